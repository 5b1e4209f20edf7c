//! What tests of orders have in common, here and in `order/engine`.
#![allow(dead_code, reason = "one of the two programs needs it")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sealcast_order::pool::Pool;
use sealcast_order::{Ack, Application, Batch, Block, BlockSize, Delivered, Hash, Origin, Parent, Refused};

/// Keeps all blocks, and acknowledges unless told not to.
pub(crate) struct Ledger {
    state: Mutex<State>,
}

struct State {
    pool: Pool,
    blocks: BTreeMap<u64, Hash>,
    batches: BTreeSet<Hash>,
    held: Option<Vec<Ack>>,
}

impl Ledger {
    pub(crate) fn new() -> Arc<Ledger> {
        let pool = Pool::new();
        let state = State { pool, blocks: BTreeMap::new(), batches: BTreeSet::new(), held: None };
        Arc::new(Ledger { state: Mutex::new(state) })
    }

    pub(crate) fn holding_back() -> Arc<Ledger> {
        let ledger = Ledger::new();
        ledger.state.lock().unwrap().held = Some(Vec::new());
        ledger
    }

    pub(crate) fn ordered(&self) -> usize {
        self.state.lock().unwrap().batches.len()
    }

    pub(crate) fn blocks(&self) -> BTreeMap<u64, Hash> {
        self.state.lock().unwrap().blocks.clone()
    }
}

impl Application for Ledger {
    fn receive(&self, _: Origin, batch: Batch) -> Result<(), Refused> {
        let mut state = self.state.lock().unwrap();
        if state.batches.contains(&batch.hash()) {
            return Err(Refused::Known);
        }
        state.pool.receive(batch)
    }

    fn propose(&self, parent: &Parent<'_>, size: BlockSize) -> Vec<Batch> {
        self.state.lock().unwrap().pool.propose(parent.ancestors, size)
    }

    fn waiting(&self, size: BlockSize) -> Vec<Batch> {
        self.state.lock().unwrap().pool.propose(&[], size)
    }

    fn valid(&self, _: &Parent<'_>, block: &Block) -> bool {
        let state = self.state.lock().unwrap();
        block.batches.iter().all(|f| !state.batches.contains(&f.hash()))
    }

    fn deliver(&self, delivered: Delivered, ack: Ack) {
        let mut state = self.state.lock().unwrap();
        state.pool.delivered(&delivered.block);
        state.batches.extend(delivered.block.batches.iter().map(Batch::hash));
        let before = state.blocks.insert(delivered.block.height, delivered.hash);
        assert!(before.is_none_or(|hash| hash == delivered.hash), "two blocks of one height");
        match &mut state.held {
            Some(held) => held.push(ack),
            None => ack.done(),
        }
    }
}

/// A folder that goes when the test ends.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sealcast-order-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A batch of this number.
pub(crate) fn batch(n: usize) -> Batch {
    Batch::new(format!("batch {n}").into_bytes())
}

/// A watchdog, far beyond what it takes.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(120), "never came: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
