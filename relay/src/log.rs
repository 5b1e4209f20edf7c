//! A group's log as a hash chain: its head names all entries before it, so members who share a head share a history.
//!
//! ```text
//! head 0 = T("sealcast/v1/relay/log"; group)
//! head n = T("sealcast/v1/relay/entry"; head n-1; u64 n; SHA-256 of the entry; next key, or nothing)
//! ```

use sealcast_crypto::hash::{Transcript, sha256};
use sealcast_wire::{Reader, Writer, limits};

use crate::codec::{FormatError, bytes32, key, put_bytes32, put_key};
use crate::ids::{AppendKey, GroupId, Head};

/// What one append puts into a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The key that members of the epoch to which the entry leads derive, to sign appends. Nobody has to derive it: an entry may
    /// be void.
    pub next_key: Option<AppendKey>,
    /// Sealed bytes; no directory opens them.
    pub bytes: Vec<u8>,
}

/// What a head takes from an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// SHA-256 of the entry's bytes.
    pub hash: [u8; 32],
    /// The key that the entry names.
    pub next_key: Option<AppendKey>,
}

/// The head of a log that has no entry.
pub fn first_head(group: &GroupId) -> Head {
    Head(Transcript::of("sealcast/v1/relay/log", &group.0))
}

impl LogEntry {
    /// What a head takes from it.
    pub fn link(&self) -> Link {
        Link { hash: sha256(&self.bytes), next_key: self.next_key }
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        put_key(w, self.next_key.as_ref());
        put_bytes32(w, &self.bytes);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<LogEntry, FormatError> {
        Ok(LogEntry { next_key: key(r)?, bytes: bytes32(r, limits::RELAY_ENTRY_BYTES_MAX)?.to_vec() })
    }
}

impl Link {
    /// The head at `position`, from the one before it.
    pub fn head(&self, before: &Head, position: u64) -> Head {
        let next_key = self.next_key.as_ref().map_or(&[][..], |key| key);
        let chain = Transcript::new("sealcast/v1/relay/entry").add(&before.0).add(&position.to_be_bytes());
        Head(chain.add(&self.hash).add(next_key).finish())
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        put_key(w.raw(&self.hash), self.next_key.as_ref());
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Link, FormatError> {
        Ok(Link { hash: r.array()?, next_key: key(r)? })
    }
}

/// Bytes of the shortest encoded entry.
pub(crate) const ENTRY_BYTES_LEAST: usize = 1 + 4;
/// Bytes of the shortest encoded link.
pub(crate) const LINK_BYTES_LEAST: usize = 32 + 1;
