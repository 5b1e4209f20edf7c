//! An application for tests: it keeps every block that it was given, and compares.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use sealcast_order::{Ack, Application, Batch, Block, BlockSize, Delivered, Hash, Origin, Parent, Refused, pool::Pool};

/// Batches that begin so are refused by every honest ledger.
pub const BAD: &[u8] = b"bad";

/// What was delivered, which survives crashes, and a pool, which does not.
#[derive(Default)]
pub struct Ledger {
    /// Proposes what honest ledgers refuse.
    lax: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pool: Pool,
    blocks: BTreeMap<u64, (Hash, Arc<Block>)>,
    batches: BTreeSet<Hash>,
}

impl Ledger {
    /// An honest one.
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// One that proposes and accepts what honest ones refuse.
    pub fn lax() -> Ledger {
        Ledger { lax: true, ..Ledger::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test goes on after a panic")
    }

    /// The pool is gone, as after a crash.
    pub fn crash(&self) {
        self.state().pool = Pool::new();
    }

    /// Of the last block.
    pub fn height(&self) -> u64 {
        self.state().blocks.last_key_value().map_or(0, |(height, _)| *height)
    }

    /// Whether all of these were delivered.
    pub fn has(&self, batches: &[Batch]) -> bool {
        let state = self.state();
        batches.iter().all(|f| state.batches.contains(&f.hash()))
    }

    /// The batches of the largest block.
    pub fn largest(&self) -> usize {
        self.state().blocks.values().map(|(_, block)| block.batches.len()).max().unwrap_or(0)
    }

    /// All batches in their order, from the first block on.
    pub fn batches(&self) -> Vec<Batch> {
        self.state().blocks.values().flat_map(|(_, b)| b.batches.clone()).collect()
    }

    /// The hashes of all blocks, by height.
    pub fn blocks(&self) -> BTreeMap<u64, Hash> {
        self.state().blocks.iter().map(|(height, (hash, _))| (*height, *hash)).collect()
    }
}

/// Where both hold a block of a height, it is the same.
pub fn assert_agree(ledgers: &[Arc<Ledger>], story: &str) {
    let mut all: BTreeMap<u64, Hash> = BTreeMap::new();
    for (i, ledger) in ledgers.iter().enumerate() {
        for (height, hash) in ledger.blocks() {
            let first = all.entry(height).or_insert(hash);
            assert_eq!(*first, hash, "{story}: ledger {i} has another block {height}");
        }
        let batches = ledger.batches();
        let once: BTreeSet<Hash> = batches.iter().map(Batch::hash).collect();
        assert_eq!(once.len(), batches.len(), "{story}: ledger {i} has a batch twice");
        assert!(batches.iter().all(|f| !f.bytes().starts_with(BAD)), "{story}: ledger {i} has a bad batch");
    }
}

impl Application for Ledger {
    fn receive(&self, _origin: Origin, batch: Batch) -> Result<(), Refused> {
        let mut state = self.state();
        if state.batches.contains(&batch.hash()) {
            return Err(Refused::Known);
        }
        if !self.lax && batch.bytes().starts_with(BAD) {
            return Err(Refused::Invalid);
        }
        state.pool.receive(batch)
    }

    fn propose(&self, parent: &Parent<'_>, size: BlockSize) -> Vec<Batch> {
        self.state().pool.propose(parent.ancestors, size)
    }

    fn waiting(&self, size: BlockSize) -> Vec<Batch> {
        self.state().pool.propose(&[], size)
    }

    fn valid(&self, parent: &Parent<'_>, block: &Block) -> bool {
        let flying: BTreeSet<Hash> = parent.ancestors.iter().flat_map(|b| b.batches.iter().map(Batch::hash)).collect();
        let state = self.state();
        block.batches.iter().all(|f| {
            let new = !flying.contains(&f.hash()) && !state.batches.contains(&f.hash());
            new && (self.lax || !f.bytes().starts_with(BAD))
        })
    }

    fn deliver(&self, block: Delivered, ack: Ack) {
        let mut state = self.state();
        let height = block.block.height;
        let last = state.blocks.last_key_value().map(|(last, (hash, _))| (*last, *hash));
        match last {
            Some((last, _)) if height <= last => {
                assert_eq!(state.blocks.get(&height).map(|(hash, _)| *hash), Some(block.hash), "another block again");
            }
            Some((last, hash)) => {
                assert_eq!((height, block.block.parent), (last + 1, hash), "a gap");
                state.take(block);
            }
            None => state.take(block),
        }
        drop(state);
        ack.done();
    }
}

impl State {
    fn take(&mut self, block: Delivered) {
        self.pool.delivered(&block.block);
        self.batches.extend(block.block.batches.iter().map(Batch::hash));
        self.blocks.insert(block.block.height, (block.hash, block.block));
    }
}
