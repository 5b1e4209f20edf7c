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
    ($($name:ident = $number:literal, $class:ident, $title:literal, $advice:literal;)*) => {
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

            /// How it comes about, and what to do.
            pub fn advice(self) -> &'static str {
                match self { $(Code::$name => $advice,)* }
            }
        }
    };
}

codes! {
    System = 101, Runtime, "the operating system refused",
        "A file, socket or process could not be used. The message names which, with the system's own words.";
    Closed = 102, Runtime, "the session is closed",
        "It was closed by this program, or it ended after an error that was reported before.";
    NoSession = 103, Runtime, "no session of this identity is running here",
        "Commands that speak to a running session need one: start «sealcast sub 'PATTERN'» with the same context or --id.";
    Claim = 104, Runtime, "a claim of the demonstration did not hold",
        "The line above says which. Please report it together with the output of «sealcast doctor».";
    Full = 105, Runtime, "a queue is full",
        "Messages come faster than they leave. Publish more slowly, or let publish wait instead of try_publish.";
    TooLarge = 106, Runtime, "the message is too large",
        "One message may have 64 MiB. Send a file in parts, or a link to it.";
    PolicyTest = 107, Runtime, "a test of the policy fails",
        "The policy does not do what its author expected: one of the two is wrong. «sealcast policy why» tells what decided.";
    Ended = 108, Runtime, "the order of the brokers ended",
        "One broker cannot go on. The message says why; started again, it goes on where it was, and the others do not wait for it.";
    NotKept = 109, Runtime, "it is no longer kept",
        "Brokers keep publications as long as whoever runs them said (keep). \"sealcast read TOPIC\" begins at the oldest that is kept.";
    Damaged = 110, Runtime, "a file of the broker is damaged",
        "The message names the file. Move the folders order, state and snapshots of this broker away and start it again: it \
         rebuilds them from the other brokers. Keep broker.key, cluster.toml and the folder keys, which nobody can give back. \
         A cluster of one broker has no others: bring its folder back from a copy.";
    Forked = 111, Runtime, "the session belongs to another process",
        "The process was forked after it opened the session. Both copies would encrypt under the same nonces, so the child's refuses \
         everything. Open a session in the child; Python's multiprocessing needs set_start_method(\"spawn\").";
    Duplicate = 112, Runtime, "another process runs with this identity",
        "One certificate runs once per group. Stop the other one, or give this process an identity of its own. Until 2026-11 this was \
         E0704.";
    Usage = 201, Usage, "the command line is wrong",
        "«sealcast help COMMAND» shows what a command takes, with examples.";
    UnknownCommand = 202, Usage, "there is no such command",
        "«sealcast help» lists all commands.";
    BadValue = 203, Usage, "a value has the wrong form",
        "The message says what it should look like.";
    Missing = 301, Configuration, "a file is missing",
        "The message names the file, the hint the command that makes it.";
    Exists = 302, Configuration, "a file exists already",
        "Nothing is overwritten unasked. Choose another name, or say --force: what the file held is then lost.";
    Exposed = 303, Configuration, "a secret can be read by others",
        "Secrets must be readable by their owner only. Type the chmod of the hint; if others may have read it, make a new one.";
    Syntax = 304, Configuration, "a file cannot be read",
        "The message names file, line and column.";
    Content = 305, Configuration, "a file says what cannot be",
        "It reads well, but what it says does not fit together. The message says what.";
    NoIdentity = 306, Configuration, "no identity",
        "Sealed groups need to know who you are: «sealcast init NAME» makes an authority and an identity, \
         «sealcast join FILE» takes an invite; --id or a context chooses among several.";
    NoUrl = 307, Configuration, "no URL",
        "Where to? Say --url, set SEALCAST_URL, select a context («sealcast ctx select NAME»), or set LCM_DEFAULT_URL.";
    BadUrl = 308, Configuration, "the URL is wrong",
        "A URL looks like udpm://239.255.76.67:7667?ttl=0&keys=contributory; the message says which part is not understood.";
    BadPair = 309, Configuration, "these keys cannot travel this way",
        "A key scheme needs guarantees that this way of travelling does not give; README.md has the table of pairs.";
    NoAuthority = 310, Configuration, "no authority",
        "The signing key of the group's authority is not on this machine. Run the command where «sealcast ca ls» shows it.";
    NoRoute = 401, Unreachable, "no network route to the group",
        "Multicast needs a route even for one machine. «sealcast doctor» says which line adds it.";
    TimedOut = 402, Unreachable, "nothing came in time",
        "Is the other side running, with the same URL and group? «sealcast doctor» checks the network in between.";
    NotReady = 403, Unreachable, "no key is agreed yet",
        "The group is still forming: wait a moment; \"sealcast group show\" tells the state. Brokers: they have no key yet, or their newest \
         block is too old by the clock of this machine (date -u); \"sealcast brokers status\" tells which.";
    Address = 404, Unreachable, "an address cannot be used",
        "Another program listens there, or it is not an address of this machine. «ss -ltnp» shows who listens.";
    Nobody = 405, Unreachable, "nobody else is in the group",
        "The message was sealed and sent, and there was no other member to open it. Start the others first, or say --alone.";
    Denied = 411, Denied, "the certificate does not grant this",
        "«sealcast id show» lists what it grants; the authority grants more with «sealcast invite --pub P --sub P».";
    DeniedPublish = 412, Denied, "may not publish on this topic",
        "The certificate has no pub right that matches the topic. Brokers: a rule of the policy asks for attributes that you do not have; \
         \"sealcast policy why --topic TOPIC --publish\" shows which.";
    DeniedSubscribe = 413, Denied, "may not subscribe to this pattern",
        "The certificate has no sub right that covers any of the pattern.";
    DeniedEvict = 414, Denied, "may not evict",
        "Only the authority, or a certificate with the evict right, evicts.";
    DeniedPolicy = 415, Denied, "the policy does not allow it",
        "A rule asks for attributes that are not there, or have other values. «sealcast policy why» shows each part of each rule.";
    Signature = 601, Authentication, "a signature does not verify",
        "What was signed has been changed, or was signed by somebody else.";
    Decrypt = 602, Authentication, "it cannot be decrypted",
        "It was sealed for somebody else, or has been changed.";
    Authority = 603, Authentication, "a certificate is not from this group's authority",
        "It was issued by another authority, or may not be used in this way.";
    Excluded = 701, Expired, "the group has excluded this certificate",
        "It was evicted or revoked. The authority can issue a new one: «sealcast invite».";
    CertificateExpired = 702, Expired, "a certificate is not valid today",
        "It has expired or is not yet valid. Check the clock («sealcast doctor»), then have it renewed by the authority.";
    InviteExpired = 703, Expired, "the invite has expired",
        "Ask for a new one: «sealcast invite --for KEY».";
    Equivocation = 801, Quorum, "evidence that somebody told two stories",
        "Two contradicting signed statements were seen. They are kept as evidence; the message says where.";
    NoQuorum = 802, Quorum, "too few brokers answer",
        "Of 3f+1 brokers 2f+1 must run, and f+1 must say the same. «sealcast brokers status» shows which ones do.";
    RolledBack = 803, Quorum, "the brokers have lost what they said before",
        "They are behind what this client has seen: restored from an old copy, or another cluster under the same keys.";
    InDoubt = 804, Quorum, "it is not known whether the group has the message",
        "This member was away, and the others went on without it: some may have got the message. Ask them, or publish it again \
         once \"sealcast group show\" lists them.";
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
