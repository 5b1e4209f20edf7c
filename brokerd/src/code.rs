//! The codes of a broker's errors: those of `sealcast explain` that a broker's process can end with.

use std::fmt;

/// One kind of trouble; the hundreds are the process's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Code {
    /// The operating system refused.
    System = 101,
    /// The order of the brokers ended.
    Ended = 108,
    /// A file of the broker does not hold what was written to it.
    Damaged = 110,
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
        match self {
            Code::System | Code::Ended | Code::Damaged => 1,
            Code::Missing | Code::Exposed | Code::Content => 3,
            Code::Address => 4,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "E{:04}", *self as u16)
    }
}
