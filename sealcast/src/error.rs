//! An error for whoever must act: its code, a sentence, and the next thing to type.
//!
//! Modules have small enums of their own; what users meet is this one type.

use std::fmt;

use sealcast_delivery::SendError;
use sealcast_keys::{CommandError, Exclusion};

use crate::code::{Class, Code};
use crate::config::FileError;

/// An error with its code and, where there is one, a hint that can be typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Parts>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts {
    code: Code,
    message: String,
    hint: Option<String>,
}

/// What to do when the brokers' newest block is too old by the clock here.
pub(crate) const CLOCK: &str =
    "is the clock of this machine right (date -u)? sealcast brokers status shows whether the brokers go on";

/// A `Result` of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of this code; `message` says who, what and where, beginning in lower case.
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error(Box::new(Parts { code, message: message.into(), hint: None }))
    }

    /// The same error with the next thing to try.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }

    /// Its code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Who must act; the exit code of the program.
    pub fn class(&self) -> Class {
        self.0.code.class()
    }

    /// What happened.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to type or do next.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The system's answer to something we tried.
    pub fn system(doing: impl fmt::Display, error: &std::io::Error) -> Error {
        Error::new(Code::System, format!("{doing}: {error}"))
    }

    /// The session is closed.
    pub fn closed() -> Error {
        Error::new(Code::Closed, "the session is closed")
    }

    /// The session was opened before this process was forked.
    pub fn forked() -> Error {
        Error::new(Code::Forked, "this session was opened before the process was forked, and belongs to the parent")
            .with_hint("open a session of its own in the child")
    }

    /// What a session answers once its process is out of the group.
    pub fn excluded(why: &Exclusion) -> Error {
        match why {
            Exclusion::Left => Error::new(Code::Closed, "we have left the group"),
            Exclusion::Evicted { reason } => Error::new(Code::Excluded, format!("we were evicted: {reason}")),
            Exclusion::Revoked => Error::new(Code::Excluded, "the group's authority has revoked our certificate")
                .with_hint("ask for a new one: the authority's holder types sealcast invite --for KEY"),
            Exclusion::StaleCrl => {
                let what = "the revocation list is older than the group's policy allows, and it has members stop then";
                let hint = "where the authority is: sealcast ca crl -o ward.crl; here: sealcast id learn ward.crl";
                Error::new(Code::CertificateExpired, what).with_hint(hint)
            }
            Exclusion::Behind => {
                Error::new(Code::Full, "more came while the key changed than we hold: we left the group")
                    .with_hint("start again; a member may be flooding the group: sealcast group evict NAME")
            }
            Exclusion::Duplicate => Error::new(Code::Duplicate, "another process runs with this identity")
                .with_hint("stop the other one, or give this process its own identity: sealcast id new NAME"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {}

impl From<FileError> for Error {
    fn from(error: FileError) -> Error {
        let message = error.to_string();
        match error {
            FileError::Missing(_) => Error::new(Code::Missing, message),
            FileError::Exists(_) => Error::new(Code::Exists, message).with_hint("--force overwrites it"),
            FileError::Exposed { path, .. } => {
                let mode = if path.is_dir() { "go-rwx" } else { "600" };
                Error::new(Code::Exposed, message).with_hint(format!("chmod {mode} {}", path.display()))
            }
            FileError::Syntax { .. } => Error::new(Code::Syntax, message),
            FileError::Content { .. } => Error::new(Code::Content, message),
            FileError::Io { .. } => Error::new(Code::System, message),
        }
    }
}

impl From<SendError> for Error {
    fn from(error: SendError) -> Error {
        let code = match error {
            SendError::Full => Code::Full,
            SendError::TooLong => Code::TooLarge,
            SendError::BadTopic => Code::BadValue,
            SendError::NotGiven(_) | SendError::PerDatagram => Code::BadPair,
            SendError::NotPrimary
            | SendError::Retired
            | SendError::NotReady
            | SendError::Old
            | SendError::Unsealed(_) => Code::NotReady,
            SendError::Exhausted(_) => Code::Denied,
        };
        let hint = match error {
            SendError::Old => Some(CLOCK),
            SendError::NotGiven(_) => Some("multicast is best effort; a quorum: URL gives fifo and ordered"),
            _ => None,
        };
        let error = Error::new(code, error.to_string());
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

impl From<CommandError> for Error {
    fn from(error: CommandError) -> Error {
        let code = match error {
            CommandError::NotReady => Code::NotReady,
            CommandError::Denied("evict") => Code::DeniedEvict,
            CommandError::Denied(_) => Code::Denied,
            CommandError::NoSuchMember => Code::BadValue,
            CommandError::Invalid => Code::Signature,
            CommandError::Unsupported => Code::BadPair,
        };
        Error::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exposed_key_comes_with_the_line_that_repairs_it() {
        let path = std::path::PathBuf::from("/nowhere/id/robot7");
        let error = Error::from(FileError::Exposed { path, mode: 0o644 });
        assert_eq!(error.hint(), Some("chmod 600 /nowhere/id/robot7"));
        assert_eq!(error.class() as u8, 3);
    }
}
