//! Shares that come before their ciphertext: so many of each broker that a liar takes nobody else's room.

use std::collections::BTreeMap;

use sealcast_crypto::group::PrimeGroup;
use sealcast_wire::limits;

use super::sealed::Attachment;

/// By broker, by place: the first that came.
pub(super) struct Early<G: PrimeGroup> {
    of: BTreeMap<u16, BTreeMap<u64, Attachment<G>>>,
}

impl<G: PrimeGroup> Early<G> {
    pub(super) fn new() -> Early<G> {
        Early { of: BTreeMap::new() }
    }

    /// Keeps one for the ciphertext at a place. A broker that sends too many keeps those of the lowest places, which
    /// are needed first. `broker` is one of the cluster's.
    pub(super) fn keep(&mut self, broker: u16, index: u64, said: Attachment<G>) {
        let kept = self.of.entry(broker).or_default();
        kept.entry(index).or_insert(said);
        if kept.len() > limits::EARLY_SHARES_PER_BROKER {
            kept.pop_last();
        }
    }

    /// Those of a ciphertext that has come; those of lower places are late, and forgotten.
    pub(super) fn take(&mut self, index: u64) -> Vec<(u16, Attachment<G>)> {
        let mut taken = Vec::new();
        for (broker, kept) in &mut self.of {
            *kept = kept.split_off(&index);
            taken.extend(kept.remove(&index).map(|said| (*broker, said)));
        }
        taken
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.of.values().map(BTreeMap::len).sum()
    }
}
