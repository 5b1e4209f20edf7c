//! Proof that a directory showed two histories of one log, for anybody who has its pinned key (D1).
//!
//! ```text
//! evidence = u8 1 ‖ receipt A ‖ head, 32 ‖ u16 n ‖ n·link ‖ receipt B        link = SHA-256 of an entry, 32 ‖ (0 | 1 ‖ next key, 32)
//! ```
//! Receipt A signs one head at a position p. The links lead from another head at p to the one that receipt B signs at p + n. A
//! head names all that is before it, so B contradicts A. With n = 0 these are two receipts for one position. No entry is in it.

use sealcast_wire::{Reader, Writer, limits};

use crate::VERSION;
use crate::codec::{FormatError, count, put_count};
use crate::ids::Head;
use crate::key::RelayKey;
use crate::log::{LINK_BYTES_LEAST, Link};
use crate::receipt::Receipt;

/// Two receipts that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Signs a head at its position.
    pub one: Receipt,
    /// The head at that position by which the other history passes.
    pub head: Head,
    /// From there to the other receipt.
    pub links: Vec<Link>,
    /// Signs what the links lead to.
    pub other: Receipt,
}

/// Why evidence convicts nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvidenceError {
    /// A receipt is not signed by that key.
    #[error("a receipt in the evidence was not signed by this relay's key")]
    Signature,
    /// The receipts do not contradict each other.
    #[error("the receipts in the evidence do not contradict each other")]
    NoContradiction,
}

impl Evidence {
    /// Whether it convicts the directory with this key.
    ///
    /// # Errors
    /// [`EvidenceError`] if it does not.
    pub fn verify(&self, relay: &RelayKey) -> Result<(), EvidenceError> {
        let mut position = self.one.position;
        let mut head = self.head;
        for link in &self.links {
            position = position.checked_add(1).ok_or(EvidenceError::NoContradiction)?;
            head = link.head(&head, position);
        }
        let contradicts = self.one.group == self.other.group
            && self.one.head != self.head
            && (position, head) == (self.other.position, self.other.head);
        if !contradicts {
            return Err(EvidenceError::NoContradiction);
        }
        let signed = self.one.verify(relay) && self.other.verify(relay);
        if signed { Ok(()) } else { Err(EvidenceError::Signature) }
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        self.one.encode(w.u8(VERSION));
        put_count(w.raw(&self.head.0), self.links.len());
        self.links.iter().for_each(|link| link.encode(&mut w));
        self.other.encode(&mut w);
        w.finish()
    }

    /// Reads what [`Evidence::to_bytes`] wrote.
    ///
    /// # Errors
    /// The bytes have another form. Nothing is verified.
    pub fn from_bytes(bytes: &[u8]) -> Result<Evidence, FormatError> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return Err(FormatError::Version);
        }
        let (one, head) = (Receipt::decode(&mut r)?, Head(r.array()?));
        let n = count(&mut r, LINK_BYTES_LEAST, limits::RELAY_EVIDENCE_LINKS_MAX)?;
        let links = (0..n).map(|_| Link::decode(&mut r)).collect::<Result<_, _>>()?;
        let other = Receipt::decode(&mut r)?;
        r.end()?;
        Ok(Evidence { one, head, links, other })
    }
}
