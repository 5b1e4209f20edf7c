//! Members, slots, epochs and views.

use std::fmt;
use std::sync::Arc;

/// SHA-256 of a member's certificate (DER): its lasting name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CertHash(pub [u8; 32]);

impl CertHash {
    /// Its first twelve hexadecimal digits, to tell certificates apart by eye.
    pub fn short(&self) -> String {
        self.0[..6].iter().map(|b| format!("{b:02x}")).collect()
    }

    /// A name that several certificates have, with this one's digits.
    pub fn beside(&self, name: &str) -> String {
        format!("{name} ({})", self.short())
    }
}

/// 128 random bits drawn at each process start and fork (G4): tells a restarted process from the old one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Incarnation(pub [u8; 16]);

/// A member is a certificate and one running process that holds its key (A7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId {
    /// Whose.
    pub cert: CertHash,
    /// Which run of it.
    pub incarnation: Incarnation,
}

/// A member's index in one epoch's roster; means nothing outside that epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

/// An epoch: its number, and the first 64 bits of its transcript's hash (A13), so that two epochs of
/// equal number in two halves of a group never look alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EpochId {
    /// Counts up along one history; starts at 1.
    pub counter: u32,
    /// The first 8 bytes, big-endian, of the hash of the transcript that made the epoch's key.
    pub hash: u64,
}

/// A member as a view names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Certificate and incarnation.
    pub id: MemberId,
    /// The subject's common name; for people to read, never for decisions.
    pub name: Arc<str>,
}

/// A membership with its epoch: what `keys` installs and everybody sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The epoch whose key this membership shares.
    pub epoch: EpochId,
    /// Sorted by `MemberId`; a member's slot is its index.
    pub members: Vec<Member>,
    /// Our own slot.
    pub me: Slot,
    /// Why there is a new view.
    pub change: Change,
}

/// What led to a view. Decides how the previous epoch's traffic is treated (A5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// The first view of this process.
    Formed,
    /// Somebody joined; nobody left.
    Joined,
    /// A new key for the same members: by timer or on demand.
    Rekeyed,
    /// Two groups became one.
    Merged,
    /// Somebody left by its own word.
    Left,
    /// Somebody fell silent.
    Suspected,
    /// Somebody was evicted or revoked.
    Evicted,
}

impl Change {
    /// Whether somebody who holds the old key is no longer a member: no grace time then (A5).
    pub fn excludes(self) -> bool {
        matches!(self, Change::Left | Change::Suspected | Change::Evicted)
    }
}

impl View {
    /// The slot of a member, by certificate.
    pub fn slot_of(&self, cert: &CertHash) -> Option<Slot> {
        let i = self.members.iter().position(|m| m.id.cert == *cert)?;
        Some(Slot(u16::try_from(i).expect("a roster is bounded by limits::MEMBERS_MAX")))
    }

    /// The member at a slot.
    pub fn member(&self, slot: Slot) -> Option<&Member> {
        self.members.get(usize::from(slot.0))
    }
}

impl EpochId {
    /// The 12 bytes used on the wire and in every KDF: counter ‖ hash, big-endian.
    pub fn to_bytes(self) -> [u8; 12] {
        let mut b = [0; 12];
        b[..4].copy_from_slice(&self.counter.to_be_bytes());
        b[4..].copy_from_slice(&self.hash.to_be_bytes());
        b
    }
}

fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
}

impl fmt::Debug for CertHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0[..6])
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0[..4])
    }
}

impl fmt::Debug for EpochId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:016x}", self.counter, self.hash)
    }
}
