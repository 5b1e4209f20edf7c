//! The codes of errors and events: one number for one kind of trouble, in every language and log.
//!
//! The hundreds say who must act, and are the exit codes' classes; a code is never reused.

use std::fmt;

/// Who must act; its number is the program's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Class {
    /// Something failed while running.
    Runtime = 1,
    /// The command line or a call was wrong.
    Usage = 2,
    /// A file, context, URL or identity is wrong or missing.
    Configuration = 3,
    /// Nobody answers, or not in time.
    Unreachable = 4,
    /// A policy or certificate does not grant it.
    Denied = 5,
    /// A signature, tag or certificate does not verify.
    Authentication = 6,
    /// A credential is over.
    Expired = 7,
    /// No quorum, or evidence of a fork.
    Quorum = 8,
}

macro_rules! codes {
    ($($name:ident = $number:literal, $class:ident, $title:literal;)*) => {
        /// One kind of trouble.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = $title] $name = $number,)*
        }

        impl Code {
            /// All codes, by number.
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            /// Who must act.
            pub fn class(self) -> Class {
                match self { $(Code::$name => Class::$class,)* }
            }

            /// What it is, in one line.
            pub fn title(self) -> &'static str {
                match self { $(Code::$name => $title,)* }
            }
        }
    };
}

codes! {
    System = 101, Runtime, "the operating system refused";
    Closed = 102, Runtime, "the session is closed";
    NoSession = 103, Runtime, "no session of this identity is running here";
    Claim = 104, Runtime, "a claim of the demonstration did not hold";
    Full = 105, Runtime, "a queue is full";
    TooLarge = 106, Runtime, "the message is too large";
    PolicyTest = 107, Runtime, "a test of the policy fails";
    Ended = 108, Runtime, "the order of the brokers ended";
    NotKept = 109, Runtime, "it is no longer kept";
    Damaged = 110, Runtime, "a file of the broker is damaged";
    Forked = 111, Runtime, "the session belongs to another process";
    Duplicate = 112, Runtime, "another process runs with this identity";
    Usage = 201, Usage, "the command line is wrong";
    UnknownCommand = 202, Usage, "there is no such command";
    BadValue = 203, Usage, "a value has the wrong form";
    Missing = 301, Configuration, "a file is missing";
    Exists = 302, Configuration, "a file exists already";
    Exposed = 303, Configuration, "a secret can be read by others";
    Syntax = 304, Configuration, "a file cannot be read";
    Content = 305, Configuration, "a file says what cannot be";
    NoIdentity = 306, Configuration, "no identity";
    NoUrl = 307, Configuration, "no URL";
    BadUrl = 308, Configuration, "the URL is wrong";
    BadPair = 309, Configuration, "these keys cannot travel this way";
    NoAuthority = 310, Configuration, "no authority";
    GroupExists = 311, Configuration, "the group exists already";
    AlreadyMember = 312, Configuration, "the device is a member already";
    NoRoute = 401, Unreachable, "no network route to the group";
    TimedOut = 402, Unreachable, "nothing came in time";
    NotReady = 403, Unreachable, "no key is agreed yet";
    Address = 404, Unreachable, "an address cannot be used";
    Nobody = 405, Unreachable, "nobody else is in the group";
    GroupFull = 406, Unreachable, "the group has as many members as it may have";
    NoPackage = 407, Unreachable, "nobody has a key package of the device";
    Denied = 411, Denied, "the certificate does not grant this";
    DeniedPublish = 412, Denied, "may not publish on this topic";
    DeniedSubscribe = 413, Denied, "may not subscribe to this pattern";
    DeniedEvict = 414, Denied, "may not evict";
    DeniedPolicy = 415, Denied, "the policy does not allow it";
    Signature = 601, Authentication, "a signature does not verify";
    Decrypt = 602, Authentication, "it cannot be decrypted";
    Authority = 603, Authentication, "a certificate is not from this group's authority";
    Login = 604, Authentication, "a login is refused";
    Excluded = 701, Expired, "the group has excluded this certificate";
    CertificateExpired = 702, Expired, "a certificate is not valid today";
    InviteExpired = 703, Expired, "the invite has expired";
    PackageExpired = 704, Expired, "a key package has expired";
    Equivocation = 801, Quorum, "evidence that somebody told two stories";
    NoQuorum = 802, Quorum, "too few brokers answer";
    RolledBack = 803, Quorum, "the brokers have lost what they said before";
    InDoubt = 804, Quorum, "it is not known whether the group has the message";
    NotPrimary = 805, Quorum, "most of the group is missing, and nothing is ordered";
}

impl Code {
    /// The number, as in `E0412`.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The exit code of a program that ends with this.
    pub fn exit(self) -> u8 {
        self.class() as u8
    }

    /// The code with this number.
    pub fn of_number(number: u16) -> Option<Code> {
        Code::ALL.iter().copied().find(|c| c.number() == number)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "E{:04}", self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_and_keep_to_their_class() {
        assert!(Code::ALL.windows(2).all(|pair| pair[0].number() < pair[1].number()));
        for code in Code::ALL {
            let hundreds = match code.class() {
                Class::Runtime => 100..200,
                Class::Usage => 200..300,
                Class::Configuration => 300..400,
                Class::Unreachable => 401..411,
                Class::Denied => 411..500,
                Class::Authentication => 600..700,
                Class::Expired => 700..800,
                Class::Quorum => 800..900,
            };
            assert!(hundreds.contains(&code.number()), "{code}");
            assert_eq!(Code::of_number(code.number()), Some(*code));
        }
        assert_eq!(Code::DeniedPublish.to_string(), "E0412");
        assert_eq!(Code::DeniedPublish.exit(), 5);
    }
}
