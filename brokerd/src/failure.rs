//! Why a broker does not start, or ended: what is told of it, its code, and what to do.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use sealcast_order::Fault;

use crate::code::Code;
use crate::config::ConfigError;
use crate::store;

/// Why a broker does not start, or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A file of its folder.
    File(ConfigError),
    /// Something else in its folder or settings.
    Config(String),
    /// An address is in use, or not this machine's.
    Address(String),
    /// Its disk.
    Storage(String),
    /// The operating system allows its process too few open files.
    Descriptors {
        /// How many it needs for what, and how many are allowed.
        what: String,
        /// What to type.
        hint: String,
    },
    /// A file of its folder does not hold what was written to it.
    Damaged {
        /// The file, or the folder if it is not known which of its files.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
        /// Whether there are other brokers, from which this one can rebuild what it lost.
        has_others: bool,
    },
    /// The order ended.
    Order(String),
    /// The others have pruned blocks that it lacks: started again, it begins with a snapshot of theirs.
    Behind(String),
}

impl Failure {
    /// What kind of trouble it is; the process's exit code is that of its kind.
    pub fn code(&self) -> Code {
        match self {
            Failure::File(error) => error.code,
            Failure::Config(_) => Code::Content,
            Failure::Address(_) => Code::Address,
            Failure::Storage(_) | Failure::Descriptors { .. } => Code::System,
            Failure::Damaged { .. } => Code::Damaged,
            Failure::Order(_) | Failure::Behind(_) => Code::Ended,
        }
    }

    /// What to do.
    pub fn hint(&self) -> &str {
        match self {
            Failure::File(error) => &error.hint,
            Failure::Config(_) => "sealcast explain E0305",
            Failure::Address(_) => "«ss -ltnp» shows who listens there; broker.toml and --metrics name other addresses",
            Failure::Storage(_) => "once the disk does its work, start the broker again: it goes on where it was",
            Failure::Descriptors { hint, .. } => hint,
            Failure::Damaged { has_others: true, .. } => {
                "move the folders order, state and snapshots away, keep broker.key, cluster.toml and keys, and start the \
                 broker again: it rebuilds from the others"
            }
            Failure::Damaged { has_others: false, .. } => {
                "there are no other brokers to rebuild from: bring back the folder from a copy"
            }
            Failure::Order(_) => "start the broker again: it goes on where it was",
            Failure::Behind(_) => "start the broker again: it begins with a snapshot of the others",
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::File(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::File(error) => write!(f, "{}: {}", error.path.display(), error.what),
            Failure::Damaged { file, what, .. } => write!(f, "{} is damaged: {what}", file.display()),
            Failure::Config(what)
            | Failure::Address(what)
            | Failure::Storage(what)
            | Failure::Descriptors { what, .. }
            | Failure::Order(what)
            | Failure::Behind(what) => f.write_str(what),
        }
    }
}

pub(crate) fn storage(path: &Path, error: &io::Error) -> Failure {
    Failure::Storage(format!("{}: {error}", path.display()))
}

pub(crate) fn address(who: &str, at: SocketAddr, error: &io::Error) -> Failure {
    let what = match error.kind() {
        io::ErrorKind::AddrInUse => "the port is in use".to_string(),
        io::ErrorKind::AddrNotAvailable => "it is not an address of this machine".to_string(),
        _ => error.to_string(),
    };
    Failure::Address(format!("cannot listen for {who} at {at}: {what}"))
}

pub(crate) fn thread_failed(error: io::Error) -> Failure {
    Failure::Storage(format!("cannot start a thread: {error}"))
}

/// Says so if the disk of a folder has no room left, however what failed there words it.
pub(crate) fn full(folder: &Path) -> Option<Failure> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let what = || format!("{}: the disk is full ({free} bytes are free)", folder.display());
    (free < FULL_BYTES).then(|| Failure::Storage(what()))
}

/// What an error of the rows in a folder comes from: a full disk, a damaged file, or the system.
pub(crate) fn rows_failure(folder: &Path, why: &str, has_others: bool) -> Failure {
    let (file, what) = (folder.to_path_buf(), why.to_owned());
    full(folder).unwrap_or_else(|| match store::is_damage(why) {
        true => Failure::Damaged { file, what, has_others },
        false => Failure::Storage(format!("{}: {why}", folder.display())),
    })
}

/// Why the engine ended, by its folder, its fault if it knows one, and what its last thread said.
pub(crate) fn order_failure(folder: &Path, fault: Option<Fault>, said: Option<String>, has_others: bool) -> Failure {
    let file = || folder.to_path_buf();
    if let Some(full) = full(folder) {
        return full;
    }
    match fault {
        Some(Fault::Damaged { file, what }) => return Failure::Damaged { file: folder.join(file), what, has_others },
        Some(Fault::Storage(what)) => return Failure::Storage(format!("{}: {what}", folder.display())),
        None => {}
    }
    match said {
        Some(what) if DAMAGE.iter().any(|word| what.contains(word)) => {
            Failure::Damaged { file: file(), what, has_others }
        }
        Some(what) => Failure::Order(format!("the order ended: {what}; its files are in {}", folder.display())),
        None => Failure::Order(format!("the order ended; its files are in {}", folder.display())),
    }
}

/// What a panic of the engine says where a file does not hold what was written to it, in upstream's words.
const DAMAGE: [&str; 5] = ["orrupt", "hecksum", "BlobInsufficientLength", "InvalidBlobSize", "UnexpectedEnd"];
/// A disk with less free is full.
const FULL_BYTES: u64 = 4 << 20;
