//! What an authority remembers: which serials it gave, which it took back, and how far its numbers got.
//!
//! The ledger is public text, one fact a line, and must be durable before what it records is handed out
//! (G6): a serial or a number given twice makes two things look like one.
//!
//! ```text
//! sealcast-ledger 1
//! next <serial>                 the next certificate's
//! crl <number>                  the last revocation list's; 0: none yet
//! policy <number>               the last policy's
//! eviction <number>             the last eviction's
//! issued <serial> <SHA-256 of the certificate, hex> <not after, seconds since 1970> <name>
//! revoked <serial> <when, seconds since 1970>
//! ```

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::str::FromStr;

use sealcast_wire::{CertHash, Utc};

use super::certificate::{is_name, unhex};
use super::serial::Serial;

/// An authority's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// The next certificate's serial number.
    pub(super) next_serial: u64,
    /// The number of the last revocation list.
    pub(super) crl_number: u64,
    /// The number of the last policy.
    pub(super) policy_number: u64,
    /// The number of the last eviction.
    pub(super) eviction_number: u64,
    pub(super) issued: BTreeMap<Serial, Issued>,
    pub(super) revoked: BTreeMap<Serial, Utc>,
}

/// A certificate that was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// Its SHA-256.
    pub hash: CertHash,
    /// Until when it is good.
    pub not_after: Utc,
    /// Its holder's name.
    pub name: String,
}

/// The text is not a ledger; the line, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the ledger is damaged")]
pub struct LedgerError {
    /// Which line.
    pub line: usize,
}

impl Ledger {
    /// A new authority's.
    pub(super) fn new() -> Ledger {
        Ledger {
            next_serial: 1,
            crl_number: 0,
            policy_number: 0,
            eviction_number: 0,
            issued: BTreeMap::new(),
            revoked: BTreeMap::new(),
        }
    }

    /// Certificates issued, by serial.
    pub fn issued(&self) -> impl Iterator<Item = (&Serial, &Issued)> {
        self.issued.iter()
    }

    /// When a serial was revoked.
    pub fn revoked(&self, serial: &Serial) -> Option<Utc> {
        self.revoked.get(serial).copied()
    }

    /// The certificates issued to a name that are neither revoked nor, at this time, over.
    pub fn valid_of(&self, name: &str, utc: Utc) -> Vec<Serial> {
        let good = |(s, i): &(&Serial, &Issued)| i.name == name && i.not_after >= utc && !self.revoked.contains_key(s);
        self.issued.iter().filter(good).map(|(s, _)| *s).collect()
    }

    /// The number of the last revocation list; 0 if there was none.
    pub fn crl_number(&self) -> u64 {
        self.crl_number
    }

    /// The number of the last policy; 0 if there was none.
    pub fn policy_number(&self) -> u64 {
        self.policy_number
    }

    fn read_line(&mut self, line: &str) -> Option<()> {
        let (what, rest) = line.split_once(' ')?;
        match what {
            "next" => self.next_serial = rest.parse().ok().filter(|n| *n > 0)?,
            "crl" => self.crl_number = rest.parse().ok()?,
            "policy" => self.policy_number = rest.parse().ok()?,
            "eviction" => self.eviction_number = rest.parse().ok()?,
            "issued" => {
                let mut parts = rest.splitn(4, ' ');
                let serial: Serial = parts.next()?.parse().ok()?;
                let hash = CertHash(unhex(parts.next()?)?);
                let not_after = Utc(parts.next()?.parse().ok()?);
                let name = parts.next().filter(|n| is_name(n))?.to_owned();
                self.issued.insert(serial, Issued { hash, not_after, name });
            }
            "revoked" => {
                let (serial, when) = rest.split_once(' ')?;
                self.revoked.insert(serial.parse().ok()?, Utc(when.parse().ok()?));
            }
            _ => return None,
        }
        Some(())
    }
}

/// The text of the module's head.
impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}\nnext {}\ncrl {}", self.next_serial, self.crl_number)?;
        writeln!(f, "policy {}\neviction {}", self.policy_number, self.eviction_number)?;
        for (serial, i) in &self.issued {
            let mut hash = String::with_capacity(64);
            i.hash.0.iter().try_for_each(|b| write!(hash, "{b:02x}"))?;
            writeln!(f, "issued {serial} {hash} {} {}", i.not_after.0, i.name)?;
        }
        self.revoked.iter().try_for_each(|(serial, when)| writeln!(f, "revoked {serial} {}", when.0))
    }
}

impl FromStr for Ledger {
    type Err = LedgerError;

    fn from_str(text: &str) -> Result<Ledger, LedgerError> {
        let mut ledger = Ledger::new();
        for (i, line) in text.lines().enumerate() {
            let good = if i == 0 { (line == HEAD).then_some(()) } else { ledger.read_line(line) };
            good.ok_or(LedgerError { line: i + 1 })?;
        }
        // A ledger that lost its lines of numbers would give serials twice.
        let counted = ledger.issued.keys().filter_map(Serial::number).all(|n| n < ledger.next_serial);
        if text.is_empty() || !counted { Err(LedgerError { line: 1 }) } else { Ok(ledger) }
    }
}

const HEAD: &str = "sealcast-ledger 1";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_damaged_ledger_names_the_line() {
        for (text, line) in [
            ("", 1),
            ("next 1", 1),
            ("sealcast-ledger 1\nnext 0", 2),
            ("sealcast-ledger 1\ncrl x", 2),
            ("sealcast-ledger 1\nnext 5\nissued 1 zz 5 name", 3),
            ("sealcast-ledger 1\nforgotten 5", 2),
        ] {
            assert_eq!(text.parse::<Ledger>(), Err(LedgerError { line }), "{text}");
        }
        let twice = format!("{HEAD}\nissued 7 {} 5 name", "0".repeat(64));
        assert_eq!(twice.parse::<Ledger>(), Err(LedgerError { line: 1 }), "serial 7 would be given again");
    }

    proptest! {
        #[test]
        fn parsing_never_panics(tail in "\\PC{0,60}|(issued|revoked|next) [0-9a-f ]{0,80}") {
            let _ = tail.parse::<Ledger>();
            if let Ok(ledger) = format!("{HEAD}\n{tail}").parse::<Ledger>() {
                prop_assert_eq!(ledger.to_string().parse(), Ok(ledger));
            }
        }
    }
}
