//! An error for whoever must act: its code, a sentence, and what helps.
//!
//! Modules have small enums of their own; what users meet is this one type.

use std::fmt;
use std::sync::Arc;

use sealcast_delivery::SendError;
use sealcast_keys::{CommandError, Exclusion};

use crate::code::{Class, Code};
use crate::config::{FileError, PrincipalError};
use crate::remedy::Remedy;

/// An error with its code and, where something is known that helps, a hint or a [`Remedy`].
#[derive(Clone)]
pub struct Error(Box<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    code: Code,
    message: String,
    hint: Option<String>,
    remedy: Option<Remedy>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// Two errors are the same if they say the same, whatever is beneath.
impl PartialEq for Error {
    fn eq(&self, other: &Error) -> bool {
        let said = |it: &Error| (it.0.code, it.0.message.clone(), it.0.hint.clone(), it.0.remedy.clone());
        said(self) == said(other)
    }
}

impl Eq for Error {}

/// A `Result` of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of this code; `message` says who, what and where, beginning in lower case.
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error(Box::new(Parts { code, message: message.into(), hint: None, remedy: None, source: None }))
    }

    /// The same error with what helps, where that depends on what the caller's user types.
    #[must_use]
    pub fn with_remedy(mut self, remedy: Remedy) -> Error {
        self.0.remedy = Some(remedy);
        self
    }

    /// The same error with what is beneath it.
    #[must_use]
    pub(crate) fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// The same error with the next thing to try: a value, an option of the URL, a line for the system's shell.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }

    /// The same error, of this place in the input.
    #[cfg(feature = "relay")]
    #[must_use]
    pub(crate) fn at(mut self, place: impl fmt::Display) -> Error {
        self.0.message = format!("{place}: {}", self.0.message);
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

    /// What to write instead or to do next.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// What would help, for a program to say in its own words.
    ///
    /// ```
    /// use sealcast::Remedy;
    ///
    /// let error = sealcast::open("mem:doc-remedy").wait().unwrap_err();
    /// assert_eq!(error.remedy(), Some(&Remedy::MakeIdentity), "sealed groups need to know who we are");
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn remedy(&self) -> Option<&Remedy> {
        self.0.remedy.as_ref()
    }

    /// The system's answer to something we tried.
    pub fn system(doing: impl fmt::Display, error: &std::io::Error) -> Error {
        let beneath = match error.raw_os_error() {
            Some(number) => std::io::Error::from_raw_os_error(number),
            None => std::io::Error::new(error.kind(), error.to_string()),
        };
        Error::new(Code::System, format!("{doing}: {error}")).caused_by(beneath)
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

    /// A group that does not let us in: it has so many members, and may have no more.
    pub(crate) fn group_full(most: usize) -> Error {
        let what = format!("the group does not let us in: it has {most} members, and may have no more");
        Error::new(Code::GroupFull, what).with_remedy(Remedy::MakeRoom)
    }

    /// What a session answers once its process is out of the group.
    pub fn excluded(why: &Exclusion) -> Error {
        match why {
            Exclusion::Left => Error::new(Code::Closed, "we have left the group"),
            Exclusion::Evicted { reason } => Error::new(Code::Excluded, format!("we were evicted: {reason}")),
            Exclusion::Revoked => Error::new(Code::Excluded, "the group's authority has revoked our certificate")
                .with_remedy(Remedy::AskForInvite { keys: None }),
            Exclusion::StaleCrl => {
                let what = "the revocation list is older than the group's policy allows, and it has members stop then";
                Error::new(Code::CertificateExpired, what).with_remedy(Remedy::LearnRevocations)
            }
            Exclusion::Behind => {
                Error::new(Code::Full, "more came while the key changed than we hold: we left the group")
                    .with_remedy(Remedy::StartAgain)
            }
            Exclusion::Exists => {
                Error::new(Code::GroupExists, "there is a group of this name already").with_remedy(Remedy::JoinGroup)
            }
            Exclusion::Duplicate => {
                Error::new(Code::Duplicate, "another process runs with this identity").with_remedy(Remedy::OwnIdentity)
            }
        }
    }
}

/// As a program prints it whose `main` returns it: on lines of their own what helps, and what was beneath. `{:#?}` shows the
/// fields.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &*self.0;
        if f.alternate() {
            return f.debug_tuple("Error").field(parts).finish();
        }
        write!(f, "{}: {}", parts.code, parts.message)?;
        if let Some(hint) = &parts.hint {
            write!(f, "\nhint: {hint}")?;
        }
        if let Some(remedy) = &parts.remedy {
            write!(f, "\nremedy: {remedy:?}")?;
        }
        // What our message ends with need not be said twice.
        let beneath = parts.source.as_ref().map(ToString::to_string).filter(|it| !parts.message.contains(it));
        beneath.map_or(Ok(()), |it| write!(f, "\ncaused by: {it}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|it| it as &(dyn std::error::Error + 'static))
    }
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Error {
        let message = error.to_string();
        let told = match &error {
            FileError::Missing(_) => Error::new(Code::Missing, message),
            FileError::Exists(_) => Error::new(Code::Exists, message).with_remedy(Remedy::Overwrite),
            FileError::Exposed { path, .. } => {
                let mode = if path.is_dir() { "go-rwx" } else { "600" };
                Error::new(Code::Exposed, message).with_hint(format!("chmod {mode} {}", path.display()))
            }
            FileError::Syntax { .. } => Error::new(Code::Syntax, message),
            FileError::Content { .. } => Error::new(Code::Content, message),
            FileError::Io { .. } => Error::new(Code::System, message),
        };
        told.caused_by(error)
    }
}

impl From<PrincipalError> for Error {
    fn from(error: PrincipalError) -> Error {
        match error {
            PrincipalError::File(error) => error.into(),
            sealed @ (PrincipalError::Sealed(_) | PrincipalError::WrongPassphrase(_)) => {
                Error::new(Code::Decrypt, sealed.to_string()).caused_by(sealed)
            }
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
            SendError::NotPrimary => Code::NotPrimary,
            SendError::Retired | SendError::NotReady | SendError::Old | SendError::Unsealed(_) => Code::NotReady,
            SendError::Exhausted(_) => Code::Denied,
        };
        let told = Error::new(code, error.to_string()).caused_by(error);
        match error {
            SendError::Old => told.with_remedy(Remedy::CheckClock),
            SendError::NotPrimary => told.with_remedy(Remedy::ForcePrimary),
            SendError::NotGiven(_) => told.with_hint(
                "order=total in all members' udpm: URLs gives fifo, ordered and safe; a quorum: URL gives fifo and ordered",
            ),
            SendError::Full => told.with_hint(
                "try again in a moment, or let publish wait; over udpm:, backlog= holds more and slow=expel leaves out who holds all up",
            ),
            _ => told,
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
            CommandError::TooMuch => Code::Full,
            CommandError::Invalid => Code::Signature,
            CommandError::Unsupported => Code::BadPair,
        };
        Error::new(code, error.to_string()).caused_by(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guarantee_that_is_not_given_comes_with_the_option_that_gives_it() {
        let error = Error::from(SendError::NotGiven(sealcast_wire::Guarantee::Ordered));
        assert!(error.hint().is_some_and(|it| it.contains("order=total") && it.contains("quorum:")), "{error:?}");
    }

    #[test]
    fn a_full_backlog_comes_with_what_makes_room() {
        let error = Error::from(SendError::Full);
        assert_eq!(error.code(), Code::Full);
        assert!(error.hint().is_some_and(|it| it.contains("backlog=") && it.contains("slow=expel")), "{error:?}");
    }

    #[test]
    fn a_program_whose_main_returns_an_error_prints_a_sentence_and_what_helps() {
        let error = Error::new(Code::NoIdentity, "no identity").with_remedy(Remedy::MakeIdentity);
        let number = Code::NoIdentity;
        assert_eq!(format!("{error:?}"), format!("{number}: no identity\nremedy: MakeIdentity"));
        let beneath = Error::from(SendError::Full);
        assert!(!format!("{beneath:?}").contains("caused by"), "it says no more than the message: {beneath:?}");
        assert!(format!("{error:#?}").contains("source: None"), "{error:#?}");
    }

    #[test]
    fn an_exposed_key_comes_with_the_line_that_repairs_it() {
        let path = std::path::PathBuf::from("/nowhere/id/robot7");
        let error = Error::from(FileError::Exposed { path, mode: 0o644 });
        assert_eq!(error.hint(), Some("chmod 600 /nowhere/id/robot7"));
        assert_eq!(error.class() as u8, 3);
    }
}
