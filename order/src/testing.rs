//! An application for tests: it keeps every block that it was given, and compares.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::application::{Ack, Application, Delivered, Origin};
use crate::block::{Block, BlockSize, Frame, Hash, Parent};
use crate::order::Refused;
use crate::pool::Pool;

/// Frames that begin so are refused by every honest ledger.
pub(crate) const BAD: &[u8] = b"bad";

/// What was delivered, which survives crashes, and a pool, which does not.
pub(crate) struct Ledger {
    /// Proposes what honest ledgers refuse.
    lax: bool,
    state: Mutex<State>,
}

struct State {
    pool: Pool,
    blocks: BTreeMap<u64, (Hash, Arc<Block>)>,
    frames: BTreeSet<Hash>,
}

impl Ledger {
    pub(crate) fn new() -> Ledger {
        let state = State { pool: Pool::new(), blocks: BTreeMap::new(), frames: BTreeSet::new() };
        Ledger { lax: false, state: Mutex::new(state) }
    }

    pub(crate) fn lax() -> Ledger {
        Ledger { lax: true, ..Ledger::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test goes on after a panic")
    }

    /// The pool is gone, as after a crash.
    pub(crate) fn crash(&self) {
        self.state().pool = Pool::new();
    }

    pub(crate) fn height(&self) -> u64 {
        self.state().blocks.last_key_value().map_or(0, |(height, _)| *height)
    }

    pub(crate) fn has(&self, frames: &[Frame]) -> bool {
        let state = self.state();
        frames.iter().all(|f| state.frames.contains(&f.hash()))
    }

    /// The frames of the largest block.
    pub(crate) fn largest(&self) -> usize {
        self.state().blocks.values().map(|(_, block)| block.frames.len()).max().unwrap_or(0)
    }

    /// All frames in their order, from the first block on.
    pub(crate) fn frames(&self) -> Vec<Frame> {
        self.state().blocks.values().flat_map(|(_, b)| b.frames.clone()).collect()
    }

    pub(crate) fn blocks(&self) -> BTreeMap<u64, Hash> {
        self.state().blocks.iter().map(|(height, (hash, _))| (*height, *hash)).collect()
    }
}

/// Where both hold a block of a height, it is the same.
pub(crate) fn assert_agree(ledgers: &[Arc<Ledger>], story: &str) {
    let mut all: BTreeMap<u64, Hash> = BTreeMap::new();
    for (i, ledger) in ledgers.iter().enumerate() {
        for (height, hash) in ledger.blocks() {
            let first = all.entry(height).or_insert(hash);
            assert_eq!(*first, hash, "{story}: ledger {i} has another block {height}");
        }
        let frames = ledger.frames();
        let once: BTreeSet<Hash> = frames.iter().map(Frame::hash).collect();
        assert_eq!(once.len(), frames.len(), "{story}: ledger {i} has a frame twice");
        assert!(frames.iter().all(|f| !f.bytes().starts_with(BAD)), "{story}: ledger {i} has a bad frame");
    }
}

impl Application for Ledger {
    fn receive(&self, _origin: Origin, frame: Frame) -> Result<(), Refused> {
        let mut state = self.state();
        if state.frames.contains(&frame.hash()) {
            return Err(Refused::Known);
        }
        if !self.lax && frame.bytes().starts_with(BAD) {
            return Err(Refused::Invalid);
        }
        state.pool.receive(frame)
    }

    fn propose(&self, parent: &Parent<'_>, size: BlockSize) -> Vec<Frame> {
        self.state().pool.propose(parent.ancestors, size)
    }

    fn waiting(&self, size: BlockSize) -> Vec<Frame> {
        self.state().pool.propose(&[], size)
    }

    fn valid(&self, parent: &Parent<'_>, block: &Block) -> bool {
        let flying: BTreeSet<Hash> = parent.ancestors.iter().flat_map(|b| b.frames.iter().map(Frame::hash)).collect();
        let state = self.state();
        block.frames.iter().all(|f| {
            let new = !flying.contains(&f.hash()) && !state.frames.contains(&f.hash());
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
        self.frames.extend(block.block.frames.iter().map(Frame::hash));
        self.blocks.insert(block.block.height, (block.hash, block.block));
    }
}
