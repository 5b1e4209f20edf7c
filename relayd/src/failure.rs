//! Why the program does not start, or ended: what is told of it, its code, and what to do.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// Why the program does not start, or ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// What kind of trouble it is.
    pub code: Code,
    /// What happened.
    pub what: String,
    /// What to do.
    pub hint: String,
}

/// One kind of trouble, as in `sealcast explain`; the hundreds are the process's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Code {
    /// The operating system refused, or the disk.
    System = 101,
    /// A file does not hold what was written to it.
    Damaged = 110,
    /// The command line is wrong.
    Usage = 201,
    /// A value has the wrong form.
    BadValue = 203,
    /// A file is missing.
    Missing = 301,
    /// A secret can be read by others.
    Exposed = 303,
    /// A file says what cannot be.
    Content = 305,
    /// An address cannot be used.
    Address = 404,
}

impl Code {
    /// The exit code of a process that ends with this.
    pub fn exit(self) -> u8 {
        (self as u16 / 100) as u8
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "E{:04}", *self as u16)
    }
}

impl Failure {
    pub(crate) fn new(code: Code, what: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { code, what: what.into(), hint: hint.into() }
    }

    /// The rows, or another file of the folder, cannot be read or written.
    pub(crate) fn storage(folder: &Path, why: &str) -> Failure {
        let at = folder.display();
        if is_full(folder) || why.contains(FULL) {
            return Failure::new(
                Code::System,
                format!("{at}: {FULL}"),
                "free some space and start the relay again: all that was answered is kept",
            );
        }
        if why.contains(DAMAGED) {
            return Failure::new(
                Code::Damaged,
                format!("{at}: {why}"),
                "bring the folder back from a copy; members notice what an older copy lacks. With a new folder and the same \
                 receipt.key they notice, too, that the logs are gone",
            );
        }
        Failure::new(
            Code::System,
            format!("{at}: {why}"),
            "once the disk works again, start the relay again: all that was answered is kept",
        )
    }

    /// A file of the folder cannot be read or written.
    pub(crate) fn file(path: &Path, error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Failure::new(
                Code::System,
                format!("{}: this user may not use it", path.display()),
                "run the relay as the user to whom the folder belongs, or name another one with --data",
            ),
            io::ErrorKind::StorageFull => Failure::storage(path, FULL),
            _ => Failure::storage(path, &error.to_string()),
        }
    }

    pub(crate) fn address(option: &str, at: SocketAddr, error: &io::Error) -> Failure {
        let what = match error.kind() {
            io::ErrorKind::AddrInUse => "the port is in use".to_string(),
            io::ErrorKind::AddrNotAvailable => "it is not an address of this machine".to_string(),
            io::ErrorKind::PermissionDenied => "ports below 1024 need a privilege".to_string(),
            _ => error.to_string(),
        };
        Failure::new(
            Code::Address,
            format!("cannot listen at {at}: {what}"),
            format!("'ss -ltnp' shows which program listens there; {option} names another address"),
        )
    }
}

/// Whether the disk of a folder is full, whatever the error of a library says.
fn is_full(folder: &Path) -> bool {
    rustix::fs::statvfs(folder).is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < FULL_BYTES)
}

/// How an error begins that says that files do not hold what was written to them.
pub(crate) const DAMAGED: &str = "the rows cannot be read";
pub(crate) const FULL: &str = "the disk is full";
/// A disk with less free is full.
const FULL_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_say_who_must_act() {
        let disk = Failure::storage(Path::new("/"), FULL);
        assert_eq!((disk.code.to_string(), disk.code.exit()), ("E0101".to_owned(), 1));
        assert_eq!(disk.to_string(), "/: the disk is full");
        let damaged = Failure::storage(Path::new("/"), "the rows cannot be read: a checksum is wrong");
        assert_eq!((damaged.code, damaged.code.exit()), (Code::Damaged, 1));
        assert_eq!((Code::BadValue.exit(), Code::Content.exit(), Code::Address.exit()), (2, 3, 4));
    }
}
