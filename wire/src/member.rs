//! Members, slots, epochs and views.

use std::fmt;
use std::sync::Arc;

use crate::roster::Roster;

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

/// A member's index, up to [`Slot::MAX`]: of one epoch's roster, or lasting where the scheme says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

impl Slot {
    /// The wire has 24 bits for it.
    pub const MAX: Slot = Slot((1 << 24) - 1);

    /// The slot as an index of what is kept by slot.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// As hashes and derived keys take it in.
    pub fn to_bytes(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }
}

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
    /// Who is in it, by slot; shared with the views before and after.
    pub members: Roster,
    /// Our own slot.
    pub me: Slot,
    /// Why there is a new view.
    pub change: Change,
    /// Who was not in the view before; everybody, if there was none.
    pub came: Vec<Member>,
    /// Who was in the view before and is not in this one.
    pub went: Vec<Member>,
    /// What the members of the view before said alike of its end ([`Flush`]), as this view's key binds it; zeros where they said
    /// nothing, and for who was in another one.
    pub cut: [u8; 32],
    /// Whether others of the group were heard who are not in it, and may be about to come: no first order begins meanwhile.
    pub waits: bool,
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
    /// Somebody held all others up (`slow=expel`).
    Slow,
    /// Somebody was evicted or revoked.
    Evicted,
}

/// Up to where the view before a coming one is flushed: what its members deliver in it is the same up to there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// It is not known yet: nothing is flushed, and another word follows.
    Later,
    /// Up to where the members' transports agree on, by themselves.
    Now,
    /// Up to the message at this position in the order, which leads to the coming view: the one before ends there.
    At(u64),
}

impl Change {
    /// Whether somebody who holds the old key is no longer a member: no grace time then (A5).
    pub fn excludes(self) -> bool {
        matches!(self, Change::Left | Change::Suspected | Change::Slow | Change::Evicted)
    }
}

impl View {
    /// A view that follows on `before`, or the first one. It costs O(change · log n) if its roster was made from that one's.
    pub fn new(before: Option<&Roster>, epoch: EpochId, members: Roster, me: Slot, change: Change) -> View {
        let nobody = Roster::default();
        let before = before.unwrap_or(&nobody);
        let cloned = |of: Vec<&Member>| of.into_iter().cloned().collect();
        let (came, went) = (cloned(members.without(before)), cloned(before.without(&members)));
        View { epoch, members, me, change, came, went, cut: [0; 32], waits: false }
    }

    /// The same, with what binds it to the end of the view before.
    pub fn after(self, cut: [u8; 32]) -> View {
        View { cut, ..self }
    }

    /// The same, which may have to wait for others.
    pub fn waiting(self, waits: bool) -> View {
        View { waits, ..self }
    }

    /// The slot of a member, by certificate.
    pub fn slot_of(&self, cert: &CertHash) -> Option<Slot> {
        self.members.find(cert).map(|(slot, _)| slot)
    }

    /// The member at a slot.
    #[inline]
    pub fn member(&self, slot: Slot) -> Option<&Member> {
        self.members.get(slot)
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
