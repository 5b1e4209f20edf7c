//! Programs that are installed beside this one, which starts them or becomes one.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use sealcast::code::Code;

use crate::hint::Failure;

/// The path of a program: beside this one, else wherever the system finds it.
pub(crate) fn program(name: &str) -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|me| Some(me.parent()?.join(name)));
    beside.filter(|p| p.is_file()).unwrap_or_else(|| PathBuf::from(name))
}

/// Becomes a program; why it does not.
pub(crate) fn become_program(name: &str, arguments: impl IntoIterator<Item = OsString>) -> Failure {
    missing(name, &Command::new(program(name)).args(arguments).exec())
}

/// Why a program does not start.
pub(crate) fn missing(name: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => {
            let what = format!("{name} is neither beside this program nor on the PATH");
            Failure::new(Code::Missing, what).hint(match name {
                MOSQUITTO => "sudo apt install mosquitto",
                LAB => "make install   (cargo build -p sealcast-lab beside a build of this program)",
                BROKER => "make install   (cargo build -p sealcast-brokerd-program beside a build of this program)",
                RELAY => "make install   (cargo build -p sealcast-relayd beside a build of this program)",
                _ => "cargo build -p sealcast-brokerd-testing, beside a build of this program",
            })
        }
        _ => Failure::system(name, error),
    }
}

pub(crate) const BROKER: &str = "sealcast-broker";
pub(crate) const LAB: &str = "sealcast-lab";
pub(crate) const MOSQUITTO: &str = "mosquitto";
pub(crate) const RELAY: &str = "sealcast-relay";
