//! Origin proofs: one signature for a batch of records, and the path to it in each (A12).
//!
//! ```text
//! end of a signed record's plaintext:
//! | frames | path: 32 B × ⌈log₂ count⌉ | signature | index u8 | count u8 | signature length u16 |
//! ```
//! A leaf is the SHA-256 of a record's frames with their padding; the tree is `crypto::merkle`'s; what is
//! signed is a hash over epoch, domain, slot and root; records that say something of the order alone are batches of one, and
//! may have MACs of pairs in the signature's place ([`Protect::attest`]). Places of the path that a tree of this count does
//! not use are zero, so that all records of a batch have proofs of one length and leave in one segmented
//! send.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use sealcast_crypto::hash::{Transcript, sha256};
use sealcast_crypto::merkle::{Known, MerklePath, Tree, path_len};
use sealcast_wire::codec::{Malformed, Reader};
use sealcast_wire::protect::SIGNATURE_BYTES;
use sealcast_wire::{Domain, Dropped, EpochId, Incarnation, Monotonic, Protect, Slot, limits};

/// Hashes of records that wait to be signed together.
#[derive(Debug, Default)]
pub(super) struct Unsigned {
    leaves: Vec<[u8; 32]>,
}

/// A signed batch of records, ready to give each its proof.
#[derive(Debug)]
pub(super) struct Signed {
    tree: Tree,
    signature: Vec<u8>,
}

impl Unsigned {
    /// Adds the next record.
    pub(super) fn push(&mut self, frames: &[u8]) {
        self.leaves.push(sha256(frames));
    }

    /// How many records wait.
    pub(super) fn len(&self) -> usize {
        self.leaves.len()
    }

    /// Signs the batch, and starts the next; `attests` if only the epoch's members need to see that we said it. Of reliable
    /// records the signature binds the numbers, of which `first` is the first.
    pub(super) fn sign(&mut self, domain: Domain, first: Option<u64>, attests: bool, protect: &dyn Protect) -> Signed {
        let tree = Tree::new(&self.leaves);
        self.leaves.clear();
        let mut signature = Vec::with_capacity(SIGNATURE_BYTES);
        let statement = statement((protect.epoch(), domain, protect.slot(), first), &tree.root());
        match attests {
            true => protect.attest(&statement, &mut signature),
            false => protect.vouch(&statement, &mut signature),
        }
        Signed { tree, signature }
    }
}

impl Signed {
    /// Length of each record's proof.
    pub(super) fn proof_len(&self) -> usize {
        32 * depth(self.tree.count()) + self.signature.len() + TRAILER_BYTES
    }

    /// Writes the proof of record `index` into `room`, which has its length.
    pub(super) fn write(&self, index: usize, room: &mut [u8]) {
        let (path, rest) = room.split_at_mut(32 * depth(self.tree.count()));
        path.fill(0);
        for (sibling, place) in self.tree.path(index).iter().zip(path.chunks_mut(32)) {
            place.copy_from_slice(sibling);
        }
        let (signature, trailer) = rest.split_at_mut(self.signature.len());
        signature.copy_from_slice(&self.signature);
        trailer[0] = u8::try_from(index).expect("ORIGIN_BATCH_MAX is small");
        trailer[1] = u8::try_from(self.tree.count()).expect("ORIGIN_BATCH_MAX is small");
        trailer[2..].copy_from_slice(&u16::try_from(self.signature.len()).expect("signatures are short").to_be_bytes());
    }
}

/// Roots whose signature was verified, and the numbers of signed messages seen.
#[derive(Debug, Default)]
pub(super) struct Origins {
    verified: BTreeSet<Root>,
    order: VecDeque<Root>,
    /// The trees that records belonged to last, newest first.
    trees: VecDeque<Grown>,
    seen: BTreeMap<Incarnation, Numbers>,
    /// Since when, and how many, proofs of a slot failed.
    failed: BTreeMap<Slot, (Monotonic, u32)>,
    checks: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Root {
    of: Of,
    root: [u8; 32],
}

/// Whose records a root is of, and the number of the first one, if they are reliable.
type Of = (EpochId, Domain, Slot, Option<u64>);

/// Whose a tree is, and what is known of it.
#[derive(Debug)]
struct Grown {
    of: Of,
    tree: Known,
}

impl Origins {
    /// Splits a signed record into its frames once its proof is verified; a reliable one has a number. `attested`: it need not
    /// show anybody but us who said it.
    pub(super) fn verify<'a>(
        &mut self,
        now: Monotonic,
        (epoch, domain, slot): (EpochId, Domain, Slot),
        (number, attested): (Option<u64>, bool),
        record: &'a [u8],
        protect: &dyn Protect,
    ) -> Result<&'a [u8], Dropped> {
        // What is no proof proves nothing, as a false one.
        let proof = Proof::parse(record).map_err(|_| Dropped::Auth)?;
        // Nobody who holds the key seals it again as another one.
        let first = match number {
            Some(number) => Some(number.checked_sub(proof.index as u64).ok_or(Dropped::Auth)?),
            None => None,
        };
        let mut path =
            MerklePath::new(&sha256(proof.frames), proof.index, proof.count, proof.path).ok_or(Dropped::Auth)?;
        let of = (epoch, domain, slot, first);
        if self.trees.iter_mut().any(|grown| grown.of == of && grown.tree.proves(&mut path)) {
            return Ok(proof.frames);
        }
        let root = Root { of, root: path.root() };
        if !self.verified.contains(&root) {
            self.check(now, root, (proof.signature, attested), protect)?;
        }
        self.trees.truncate(limits::ORIGIN_TREES_MAX - 1);
        self.trees.push_front(Grown { of, tree: Known::new(&mut path) });
        Ok(proof.frames)
    }

    /// Verifies the signature of a root that was not seen before.
    fn check(
        &mut self,
        now: Monotonic,
        root: Root,
        (proof, attested): (&[u8], bool),
        protect: &dyn Protect,
    ) -> Result<(), Dropped> {
        let (_, _, slot, _) = root.of;
        if self
            .failed
            .get(&slot)
            .is_some_and(|(since, n)| now < *since + Duration::from_secs(1) && *n >= limits::FALSE_PROOFS_PER_SECOND)
        {
            return Err(Dropped::Rate);
        }
        self.checks += 1;
        let statement = statement(root.of, &root.root);
        let shows = if attested { Protect::attested } else { Protect::vouched };
        if !shows(protect, slot, &statement, proof) {
            let failed = self.failed.entry(slot).or_insert((now, 0));
            let over = now >= failed.0 + Duration::from_secs(1);
            *failed = if over { (now, 1) } else { (failed.0, failed.1 + 1) };
            return Err(Dropped::Auth);
        }
        if self.order.len() == limits::ORIGIN_ROOTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.verified.remove(&oldest);
        }
        self.order.push_back(root);
        self.verified.insert(root);
        Ok(())
    }

    /// Whether a signed message of this number is new; the number of a whole one is remembered.
    pub(super) fn fresh(&mut self, from: Incarnation, number: u64, whole: bool) -> bool {
        match self.seen.get_mut(&from) {
            Some(numbers) if whole => numbers.mark(number),
            Some(numbers) => !numbers.contains(number),
            None => {
                if whole {
                    self.seen.entry(from).or_default().mark(number);
                }
                true
            }
        }
    }

    /// Forgets members that are gone.
    pub(super) fn retain(&mut self, member: impl Fn(&Incarnation) -> bool) {
        self.seen.retain(|incarnation, _| member(incarnation));
        self.failed.clear();
    }

    /// How many signatures were checked.
    pub(super) fn checks(&self) -> u64 {
        self.checks
    }
}

/// The parts of a signed record.
struct Proof<'a> {
    frames: &'a [u8],
    path: &'a [[u8; 32]],
    signature: &'a [u8],
    index: usize,
    count: usize,
}

impl<'a> Proof<'a> {
    fn parse(record: &'a [u8]) -> Result<Proof<'a>, Malformed> {
        let split = record.len().checked_sub(TRAILER_BYTES).ok_or(Malformed)?;
        let (rest, trailer) = record.split_at(split);
        let mut r = Reader::new(trailer);
        let (index, count, signature) = (usize::from(r.u8()?), usize::from(r.u8()?), usize::from(r.u16()?));
        if index >= count || count > limits::ORIGIN_BATCH_MAX {
            return Err(Malformed);
        }
        let (rest, signature) = rest.split_at(rest.len().checked_sub(signature).ok_or(Malformed)?);
        let (frames, path) = rest.split_at(rest.len().checked_sub(32 * depth(count)).ok_or(Malformed)?);
        let (places, _) = path.as_chunks::<32>();
        let (path, unused) = places.split_at(path_len(index, count));
        if unused.iter().any(|place| *place != [0; 32]) {
            return Err(Malformed);
        }
        Ok(Proof { frames, path, signature, index, count })
    }
}

/// The frames of a signed record of ours, without their proof.
pub(crate) fn without_proof(record: &[u8]) -> Option<&[u8]> {
    Proof::parse(record).ok().map(|proof| proof.frames)
}

/// A window over the message numbers of one sender, as in RFC 6479.
#[derive(Debug)]
struct Numbers {
    highest: u64,
    seen: Vec<u64>,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers { highest: 0, seen: vec![0; WORDS] }
    }
}

impl Numbers {
    fn contains(&self, number: u64) -> bool {
        let block = number / 64;
        if number > self.highest {
            return false;
        }
        // The block of the highest number overwrites the oldest one, so a full block less is remembered.
        if self.highest / 64 - block >= WORDS as u64 {
            return true;
        }
        self.seen[(block % WORDS as u64) as usize] & (1 << (number % 64)) != 0
    }

    /// Whether the number is new; it is not any more.
    fn mark(&mut self, number: u64) -> bool {
        if self.contains(number) {
            return false;
        }
        let (block, last) = (number / 64, self.highest / 64);
        for skipped in 1..=block.saturating_sub(last).min(WORDS as u64) {
            self.seen[((last + skipped) % WORDS as u64) as usize] = 0;
        }
        if block.saturating_sub(last) > WORDS as u64 {
            self.seen.fill(0);
        }
        self.highest = self.highest.max(number);
        self.seen[(block % WORDS as u64) as usize] |= 1 << (number % 64);
        true
    }
}

/// What is signed (G3: protocol, epoch with its member set, domain, signer, and of reliable records their numbers).
fn statement((epoch, domain, slot, first): Of, root: &[u8; 32]) -> [u8; 32] {
    let t = Transcript::new("sealcast/v1/origin").add(&epoch.to_bytes()).add(&domain.0.to_be_bytes());
    let t = t.add(&slot.to_bytes()).add(root);
    match first {
        Some(first) => t.add(&first.to_be_bytes()).finish(),
        None => t.finish(),
    }
}

/// ⌈log₂ count⌉.
fn depth(count: usize) -> usize {
    count.next_power_of_two().ilog2() as usize
}

/// Room that a record must leave for the proof of a full batch.
pub(super) const PROOF_BYTES_MAX: usize =
    32 * limits::ORIGIN_BATCH_MAX.ilog2() as usize + SIGNATURE_BYTES + TRAILER_BYTES;
/// Of a lone record's proof, besides what shows who said it.
pub(crate) const TRAILER_BYTES: usize = 4;
const WORDS: usize = limits::SIGNED_NUMBERS_WINDOW / 64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_window_never_takes_a_number_twice(
            steps in prop::collection::vec((any::<bool>(), 0_u64..30_000), 1..400),
            start in prop_oneof![Just(0_u64), Just(u64::MAX - 4_000_000)],
        ) {
            let (mut numbers, mut seen, mut at) = (Numbers::default(), BTreeSet::new(), start);
            for (forward, step) in steps {
                let number = if forward { at += step / 3; at } else { at.saturating_sub(step) };
                let taken = numbers.mark(number);
                prop_assert!(!(taken && seen.contains(&number)), "{number} taken twice");
                let recent = numbers.highest - number < (limits::SIGNED_NUMBERS_WINDOW - 64) as u64;
                prop_assert!(taken || seen.contains(&number) || !recent, "{number} refused though new");
                seen.insert(number);
            }
        }
    }

    #[test]
    fn an_empty_record_is_no_proof() {
        for n in 0..TRAILER_BYTES {
            assert!(Proof::parse(&[0; 8][..n]).is_err());
        }
        assert!(Proof::parse(&[0, 0, 0, 0]).is_err(), "no batch has no records");
        assert!(Proof::parse(&[0, 65, 0, 0]).is_err(), "no batch is that big");
        assert!(Proof::parse(&[0, 2, 0, 0]).is_err(), "there is no path");
    }
}
