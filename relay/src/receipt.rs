//! A directory's signed statement that a log has a certain head at a position (D1), and the announcement of an entry.
//!
//! ```text
//! receipt      = group, 32 ‖ u64 position ‖ head, 32 ‖ signature, 64
//! signed       = T("sealcast/v1/relay/receipt"; group; u64 position; head)
//! announcement = u8 1 ‖ receipt ‖ (0 | 1 ‖ entry)
//! ```

use sealcast_crypto::hash::Transcript;
use sealcast_crypto::signature::{OriginKey, Signature};
use sealcast_wire::{Malformed, Reader, Writer};

use crate::VERSION;
use crate::codec::{FormatError, option, put_option};
use crate::ids::{GroupId, Head};
use crate::key::RelayKey;
use crate::log::LogEntry;

/// A log position with its head, signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Whose log.
    pub group: GroupId,
    /// The first entry has position 1.
    pub position: u64,
    /// The chain up to and with the entry at the position.
    pub head: Head,
    /// The directory's.
    pub signature: Signature,
}

/// What a directory publishes of an entry that it accepted: members who hear it need not ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Of the entry's position.
    pub receipt: Receipt,
    /// The entry, unless it is too long for what carries the announcement.
    pub entry: Option<LogEntry>,
}

impl Receipt {
    /// A receipt by the directory with this key. The same statement always has the same bytes.
    pub fn sign(key: &OriginKey, group: GroupId, position: u64, head: Head) -> Receipt {
        let signature = key.sign(&statement(&group, position, &head));
        Receipt { group, position, head, signature }
    }

    /// Whether the directory with this key signed it.
    pub fn verify(&self, relay: &RelayKey) -> bool {
        relay.key().verify(&statement(&self.group, self.position, &self.head), &self.signature)
    }

    /// Its bytes, for other members.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(RECEIPT_BYTES);
        self.encode(&mut w);
        w.finish()
    }

    /// Reads what [`Receipt::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`Malformed`]; also of position 0, which has no entry, and of 2⁶⁴ − 1. The signature is not checked.
    pub fn from_bytes(bytes: &[u8]) -> Result<Receipt, Malformed> {
        let mut r = Reader::new(bytes);
        let receipt = Receipt::decode(&mut r)?;
        r.end()?;
        Ok(receipt)
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        w.raw(&self.group.0).u64(self.position).raw(&self.head.0).raw(&self.signature);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Receipt, Malformed> {
        let receipt =
            Receipt { group: GroupId(r.array()?), position: r.u64()?, head: Head(r.array()?), signature: r.array()? };
        // Behind each position there is another one.
        if matches!(receipt.position, 0 | u64::MAX) { Err(Malformed) } else { Ok(receipt) }
    }
}

impl Announcement {
    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        self.receipt.encode(w.u8(VERSION));
        put_option(&mut w, self.entry.as_ref(), |w, entry| entry.encode(w));
        w.finish()
    }

    /// Reads what [`Announcement::to_bytes`] wrote.
    ///
    /// # Errors
    /// The bytes have another form. The signature is not checked.
    pub fn from_bytes(bytes: &[u8]) -> Result<Announcement, FormatError> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return Err(FormatError::Version);
        }
        let receipt = Receipt::decode(&mut r)?;
        let entry = option(&mut r, LogEntry::decode)?;
        r.end()?;
        Ok(Announcement { receipt, entry })
    }
}

fn statement(group: &GroupId, position: u64, head: &Head) -> [u8; 32] {
    let statement = Transcript::new("sealcast/v1/relay/receipt").add(&group.0);
    statement.add(&position.to_be_bytes()).add(&head.0).finish()
}

/// Bytes of a receipt.
pub const RECEIPT_BYTES: usize = 32 + 8 + 32 + 64;
