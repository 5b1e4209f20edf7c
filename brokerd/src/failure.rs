//! Why a broker does not start, or ended: what is told of it, its code, and what to do.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use sealcast_order::Fault;

use crate::code::Code;
use crate::config::ConfigError;
use crate::descriptors;
use crate::shares::file::FileError;
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
    /// A file of its folder `keys` cannot be used: which, and what is wrong with it.
    Keys(String),
    /// The order ended.
    Order(String),
    /// A final block holds what no honest broker votes for: the assumption under all of it fails.
    FalseBlock,
    /// The clock of its machine was set back by so many seconds.
    SetBack(u64),
    /// The others have pruned blocks that it lacks: started again, it begins with a snapshot of theirs.
    Behind(String),
}

impl Failure {
    /// What kind of trouble it is; the process's exit code is that of its kind.
    pub fn code(&self) -> Code {
        match self {
            Failure::File(error) => error.code,
            Failure::Config(_) | Failure::Keys(_) => Code::Content,
            Failure::Address(_) => Code::Address,
            Failure::Storage(_) | Failure::Descriptors { .. } => Code::System,
            Failure::Damaged { .. } => Code::Damaged,
            Failure::Order(_) | Failure::FalseBlock | Failure::SetBack(_) | Failure::Behind(_) => Code::Ended,
        }
    }

    /// What to do.
    pub fn hint(&self) -> &str {
        match self {
            Failure::File(error) => &error.hint,
            Failure::Config(_) => "sealcast explain E0305",
            Failure::Address(_) => "'ss -ltnp' shows who listens there; broker.toml and --metrics name other addresses",
            Failure::Storage(_) => "once the disk does its work, start the broker again: it goes on where it was",
            Failure::Descriptors { hint, .. } => hint,
            Failure::Damaged { has_others: true, .. } => {
                "move the folders order, state and snapshots away, keep broker.key, cluster.toml and keys, and start the \
                 broker again: it rebuilds from the others"
            }
            Failure::Damaged { has_others: false, .. } => {
                "there are no other brokers to rebuild from: bring back the folder from a copy"
            }
            Failure::Keys(_) => {
                "bring the folder keys back from a copy; keep order and state. Without keys the broker orders, and helps \
                 nobody to read"
            }
            Failure::Order(_) => "start the broker again: it goes on where it was",
            Failure::FalseBlock => {
                "a new start ends the same way: the block is final. Stop all brokers, compare their versions, and look who \
                 lies: sealcast brokers evidence"
            }
            Failure::SetBack(_) => {
                "set the clock right (timedatectl shows whether it is synchronized), and start the broker again: it goes on \
                 where it was"
            }
            Failure::Behind(_) => "start the broker again: it begins with a snapshot of the others",
        }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        let what = error.to_string();
        match error {
            FileError::Truncated(_) | FileError::Sealed(_) | FileError::Content(_) | FileError::Erased(_) => {
                Failure::Keys(what)
            }
            // It says what to type.
            FileError::Open(_) => Failure::Config(what),
            FileError::Io { .. } => Failure::Storage(what),
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
            Failure::FalseBlock => f.write_str("a final block holds a false batch: more than f brokers lie"),
            Failure::SetBack(seconds) => write!(f, "the clock was set back by {seconds} s, and deadlines with it"),
            Failure::Damaged { file, what, .. } => write!(f, "{} is damaged: {what}", file.display()),
            Failure::Config(what)
            | Failure::Address(what)
            | Failure::Storage(what)
            | Failure::Descriptors { what, .. }
            | Failure::Keys(what)
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
fn full(folder: &Path) -> Option<Failure> {
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

/// Why the order of so many brokers ended, or does not start: by its folder, its fault if it knows one, and what its last
/// thread said.
pub(crate) fn order_failure(folder: &Path, fault: Option<Fault>, said: Option<String>, brokers: usize) -> Failure {
    match ended(folder, fault, said, brokers) {
        files @ Failure::Descriptors { .. } => files,
        other => full(folder).unwrap_or(other),
    }
}

/// The same, whatever room the disk has.
fn ended(folder: &Path, fault: Option<Fault>, said: Option<String>, brokers: usize) -> Failure {
    let (has_others, at) = (brokers > 1, folder.display());
    match (fault, said) {
        (Some(Fault::Files { needed }), _) => {
            let what = Fault::Files { needed }.to_string();
            Failure::Descriptors { what, hint: descriptors::to_type(needed) }
        }
        (Some(Fault::Storage(what)), _) | (None, Some(what)) if what.contains(USED_UP) => {
            let hint = descriptors::to_type(descriptors::all(brokers));
            Failure::Descriptors { what: format!("the order ended: {what}"), hint }
        }
        (Some(Fault::Damaged { file, what }), _) => Failure::Damaged { file: folder.join(file), what, has_others },
        (Some(Fault::Storage(what)), _) => Failure::Storage(format!("{at}: {what}")),
        (None, Some(what)) if DAMAGE.iter().any(|word| what.contains(word)) => {
            Failure::Damaged { file: folder.to_path_buf(), what, has_others }
        }
        (None, Some(what)) => Failure::Order(format!("the order ended: {what}; its files are in {at}")),
        (None, None) => Failure::Order(format!("the order ended; its files are in {at}")),
    }
}

/// What a panic of the engine says where a file does not hold what was written to it, in upstream's words.
const DAMAGE: [&str; 5] = ["orrupt", "hecksum", "BlobInsufficientLength", "InvalidBlobSize", "UnexpectedEnd"];
/// What the operating system says where a process may open no more files.
const USED_UP: &str = "Too many open files";
/// A disk with less free is full.
const FULL_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_damage_is_called_damage_whatever_ends_the_engine() {
        let order = Path::new("/broker/order");
        let storage = |what: &str| Some(Fault::Storage(what.into()));
        let damaged = |file: &str| Some(Fault::Damaged { file: file.into(), what: "a false checksum".into() });
        let said = |what: &str| Some(what.to_owned());
        let many = "BlobOpenFailed(.., Os { code: 24, message: \"Too many open files\" })";
        let cases = [
            (None, said("called `Result::unwrap()`: BlobCorrupt(\"simplex\", ..)"), "E0110", "away, keep broker.key"),
            (None, said("invalid or missing checksum"), "E0110", "away, keep broker.key"),
            (damaged("log/7"), None, "E0110", "away, keep broker.key"),
            (damaged("log/7"), said("a later panic"), "E0110", "away, keep broker.key"),
            (None, said("thread panicked: the network's task is gone"), "E0108", "start the broker again"),
            (None, None, "E0108", "start the broker again"),
            (None, said(many), "E0101", "ulimit -n 4316; in a systemd service: LimitNOFILE=4316"),
            (storage(many), None, "E0101", "ulimit -n 4316; in a systemd service: LimitNOFILE=4316"),
            (storage("permission denied"), None, "E0101", "once the disk does its work"),
            (Some(Fault::Files { needed: 900 }), None, "E0101", "ulimit -n 900; in a systemd service: LimitNOFILE=900"),
        ];
        for (fault, said, code, hint) in cases {
            let story = format!("{fault:?}, {said:?}");
            let failure = ended(order, fault, said, 4);
            assert!(failure.code().to_string() == code && failure.hint().contains(hint), "{story}: {failure:?}");
        }
        let Failure::Damaged { file, has_others, .. } = ended(order, damaged("log/7"), None, 1) else { panic!("not") };
        assert_eq!((file, has_others), (PathBuf::from("/broker/order/log/7"), false));
    }
}
