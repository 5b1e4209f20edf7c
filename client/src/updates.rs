//! Blocks that concern the client, by height: who named which digest, and contents that fit one.
//!
//! Honest brokers send updates in the order of heights. So a block counts once f + 1 brokers name the same digest for it,
//! and there was none for the client once f + 1 brokers named later ones without it.

use std::collections::{BTreeMap, BTreeSet};

use sealcast_broker::protocol::Contents;
use sealcast_broker::state::Results;
use sealcast_wire::{Monotonic, Utc, limits};

use super::channel::believed;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Updates {
    heights: BTreeMap<u64, Height>,
    /// The last one that was dealt with.
    pub(super) applied: u64,
    /// Digests that were believed, of late.
    past: BTreeMap<u64, [u8; 32]>,
    /// Bytes of the bodies in [`Updates::heights`].
    bytes: usize,
}

/// One block.
#[derive(Debug)]
pub(super) struct Height {
    digests: BTreeMap<u16, [u8; 32]>,
    /// Who says that the block does not concern the client.
    none: BTreeSet<u16>,
    /// By digest.
    contents: BTreeMap<[u8; 32], Box<Contents>>,
    pub(super) since: Monotonic,
    /// How often it was asked for.
    pub(super) asked: u32,
    /// Whether results were taken out of it.
    pub(super) results_taken: bool,
}

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Too few have spoken.
    Unclear,
    /// f + 1 brokers named this digest.
    Believed([u8; 32]),
    /// It does not concern the client.
    Nothing,
}

impl Updates {
    /// A broker names a block's digest. `false` if that contradicts f + 1 others, or is too much.
    pub(super) fn named(&mut self, now: Monotonic, broker: u16, height: u64, digest: [u8; 32]) -> bool {
        if height <= self.applied && !self.heights.contains_key(&height) {
            return self.past.get(&height).is_none_or(|it| *it == digest);
        }
        if !self.heights.contains_key(&height) {
            let alone = self.heights.values().filter(|it| it.digests.len() == 1 && it.digests.contains_key(&broker));
            if self.heights.len() >= limits::CLIENT_HEIGHTS_PER_BROKER_MAX
                && alone.count() >= limits::CLIENT_HEIGHTS_PER_BROKER_MAX
            {
                return false;
            }
            if self.heights.len() >= limits::CLIENT_HEIGHTS_MAX {
                // The newest makes room: what is missed so is seen by the gap that it leaves.
                let newest = *self.heights.last_key_value().expect("it is full").0;
                if newest <= height {
                    return true;
                }
                self.remove(newest);
            }
        }
        let it = self.heights.entry(height).or_insert_with(|| Height {
            digests: BTreeMap::new(),
            none: BTreeSet::new(),
            contents: BTreeMap::new(),
            since: now,
            asked: 0,
            results_taken: false,
        });
        it.none.remove(&broker);
        *it.digests.entry(broker).or_insert(digest) == digest
    }

    /// Contents that have this digest. Bodies for which there is no room are asked for when their turn comes.
    pub(super) fn contents(&mut self, height: u64, digest: [u8; 32], mut contents: Contents) {
        let new = bytes(&contents);
        if !self.free(height, new) {
            contents.bodies.clear();
        }
        if let Some(it) = self.heights.get_mut(&height) {
            let before = it.bytes();
            match it.contents.get_mut(&digest) {
                // All brokers may have sent it; and an answer may bring bodies that the speaker kept back.
                Some(held) if held.bodies.len() >= held.publications.len() + held.advertisements.len() => {}
                Some(held) => held.bodies.extend(contents.bodies),
                None => {
                    it.contents.insert(digest, Box::new(contents));
                }
            }
            self.bytes += it.bytes() - before;
        }
    }

    /// Makes room for so many bytes of bodies: those of later blocks are not needed yet. `false` if there is none.
    fn free(&mut self, height: u64, bytes: usize) -> bool {
        for (_, it) in self.heights.range_mut(height.saturating_add(1)..).rev() {
            if self.bytes + bytes <= limits::CLIENT_BODIES_BYTES_MAX {
                break;
            }
            self.bytes -= it.bytes();
            it.contents.values_mut().for_each(|it| it.bodies.clear());
        }
        self.bytes + bytes <= limits::CLIENT_BODIES_BYTES_MAX
    }

    /// A broker says that it has nothing of the client's at a height.
    pub(super) fn nothing(&mut self, broker: u16, height: u64) {
        if let Some(it) = self.heights.get_mut(&height)
            && !it.digests.contains_key(&broker)
        {
            it.none.insert(broker);
        }
    }

    /// Heights that are not dealt with, ascending.
    pub(super) fn heights(&self) -> impl Iterator<Item = (u64, &Height)> {
        self.heights.iter().map(|(height, it)| (*height, it))
    }

    pub(super) fn get_mut(&mut self, height: u64) -> Option<&mut Height> {
        self.heights.get_mut(&height)
    }

    /// The lowest that is not dealt with.
    pub(super) fn head(&self) -> Option<u64> {
        self.heights.first_key_value().map(|(height, _)| *height)
    }

    /// What is known of a block. `passed` are the brokers that have named later ones without it.
    pub(super) fn known(&self, height: u64, passed: impl Iterator<Item = u16>, faulty: usize) -> Known {
        let Some(it) = self.heights.get(&height) else { return Known::Nothing };
        if let Some(digest) = believed(it.digests.values().copied(), faulty) {
            return Known::Believed(digest);
        }
        let passed = passed.filter(|broker| !it.digests.contains_key(broker) && !it.none.contains(broker)).count();
        if it.none.len() + passed > faulty { Known::Nothing } else { Known::Unclear }
    }

    /// What a believed block holds, if it is here.
    pub(super) fn held(&self, height: u64, digest: &[u8; 32]) -> Option<&Contents> {
        self.heights.get(&height)?.contents.get(digest).map(|it| &**it)
    }

    /// Takes the results out of a believed block, once, with its time.
    pub(super) fn take_results(&mut self, height: u64, digest: &[u8; 32]) -> Option<(Utc, Vec<Results>)> {
        let it = self.heights.get_mut(&height)?;
        let contents = it.contents.get_mut(digest)?;
        it.results_taken = true;
        Some((contents.at, std::mem::take(&mut contents.results)))
    }

    /// Takes out what a believed block holds.
    pub(super) fn take(&mut self, height: u64, digest: &[u8; 32]) -> Option<Box<Contents>> {
        let taken = self.heights.get_mut(&height)?.contents.remove(digest)?;
        self.bytes -= bytes(&taken);
        Some(taken)
    }

    fn remove(&mut self, height: u64) -> Option<Height> {
        let removed = self.heights.remove(&height)?;
        self.bytes -= removed.bytes();
        Some(removed)
    }

    /// A block is given up. That accuses nobody: brokers no longer say what it was, or bring what it held.
    pub(super) fn give_up(&mut self, height: u64) {
        self.remove(height);
    }

    /// A block is dealt with. Names who said something else of it.
    pub(super) fn done(&mut self, height: u64, digest: Option<[u8; 32]>) -> Vec<u16> {
        let Some(it) = self.remove(height) else { return Vec::new() };
        let Some(digest) = digest else { return it.digests.keys().copied().collect() };
        self.applied = self.applied.max(height);
        self.past.insert(height, digest);
        while self.past.len() > limits::CLIENT_HEIGHTS_MAX {
            self.past.pop_first();
        }
        it.digests.iter().filter(|(_, said)| **said != digest).map(|(broker, _)| *broker).collect()
    }
}

impl Height {
    fn bytes(&self) -> usize {
        self.contents.values().map(|it| bytes(it)).sum()
    }
}

/// Bytes of the bodies in contents.
fn bytes(contents: &Contents) -> usize {
    contents.bodies.iter().map(|(_, body)| body.len()).sum()
}
