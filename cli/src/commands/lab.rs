//! `sealcast lab …`: starts the program `sealcast-lab` beside this one, as git does with its subcommands.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use sealcast::code::Code;

use super::Env;
use crate::hint::Failure;

/// Experiments, simulator and figures (starts sealcast-lab)
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Lab {
    /// Passed on as they are; 'sealcast lab --help' is sealcast-lab's own help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

impl Lab {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let beside = std::env::current_exe().ok().and_then(|me| Some(me.parent()?.join(NAME)));
        let program = beside.filter(|p| p.is_file()).unwrap_or_else(|| PathBuf::from(NAME));
        let mut command = Command::new(&program);
        command.args(self.arguments);
        // Options before the word `lab` were meant for it too.
        if env.global.json {
            command.arg("--json");
        }
        let error = command.exec();
        Err(match error.kind() {
            io::ErrorKind::NotFound => {
                Failure::new(Code::Missing, format!("{NAME} is neither beside this program nor on the PATH"))
                    .hint("make install")
            }
            _ => Failure::system(program.display(), &error),
        })
    }
}

const NAME: &str = "sealcast-lab";
