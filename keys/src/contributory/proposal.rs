//! Proposals: who shall be in the next epoch, totally ordered so that of two the same one wins everywhere.

use sealcast_crypto::hash::Transcript;
use sealcast_wire::Monotonic;

use super::message::{Base, InstanceId, Kind, Message, Propose, ShortId, first8};

/// A proposal whose signature is verified.
#[derive(Clone, Debug)]
pub(super) struct Proposal {
    pub(super) content: Propose,
    /// Binds all that the attempt does: SHA-256 over group, nonce and content.
    pub(super) instance: [u8; 32],
    /// As it came or went, under the bootstrap key: for those who missed it.
    pub(super) bootstrap_sealed: Vec<u8>,
    /// When we last sent it or saw it sent.
    pub(super) sent: Monotonic,
}

impl Proposal {
    /// The hash that names an attempt; the bootstrap key's nonce is the proposal's.
    pub(super) fn instance(group: &str, nonce: &[u8; 12], content: &Propose) -> [u8; 32] {
        let t = Transcript::new("sealcast/v1/proposal").add(group.as_bytes()).add(nonce);
        t.add(&Message::Propose(content.clone()).body()).finish()
    }

    pub(super) fn id(&self) -> InstanceId {
        InstanceId(first8(&self.instance))
    }

    /// The order of proposals: base, epoch, attempt, size, hash. The greater one wins.
    ///
    /// The base comes first: members of an epoch that others have left behind cannot outbid those who went on,
    /// however often they try.
    pub(super) fn order(&self) -> (Option<Base>, u32, u8, usize, [u8; 32]) {
        let content = &self.content;
        (content.base, content.counter, content.attempt, content.seats.len(), self.instance)
    }

    pub(super) fn proposer(&self) -> &ShortId {
        &self.content.seats[0]
    }

    pub(super) fn seat_of(&self, short: &ShortId) -> Option<usize> {
        self.content.seats.iter().position(|s| s == short)
    }

    /// Whether what it proposes may have become this epoch.
    pub(super) fn may_make(&self, epoch: Base) -> bool {
        epoch.counter == self.content.counter && usize::from(epoch.size) == self.content.seats.len()
    }

    /// Whether the seat is marked as a joiner's, in a proposal that marks them.
    pub(super) fn marks_joiner(&self, seat: usize) -> bool {
        matches!(self.content.kind, Kind::Join(bits) if bits >> seat & 1 == 1)
    }
}
