//! An executor without threads and without a folder, for simulations: whoever holds it says when it executes, syncs and
//! releases.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use sealcast_broker::state::{Entry, StoreError};

use super::sync::Executed;
use super::{Done, Executor, Job, Setup, Shared, StartError};
use crate::store::{Lsm, Memory};

/// The executor and what its threads would have done.
pub struct Stepped {
    executor: Executor,
    jobs: Receiver<Job>,
    store: Lsm,
    /// Executed and not durable.
    executed: RefCell<Vec<(u64, Done)>>,
}

impl Stepped {
    /// Over these rows; of `setup`, the folder and the threads are not used. Snapshots are best in memory, too. `elapsed` tells the time.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        setup: Setup,
        rows: Memory,
        elapsed: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Result<Stepped, StartError> {
        let store = Lsm::from(rows);
        let shared = Shared::open(setup, store.clone())?;
        shared.retention.look()?;
        let begun = Instant::now();
        shared.release.set_clock(Box::new(move || begun + elapsed()));
        let (queue, jobs) = channel();
        Ok(Stepped { executor: Executor { shared, queue }, jobs, store, executed: RefCell::default() })
    }

    /// What admission and clients hold.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Executes the next block that waits; its height, and `None` if none does or can be.
    ///
    /// # Errors
    /// The storage failed.
    pub fn execute(&self) -> Result<Option<u64>, String> {
        match self.jobs.try_recv() {
            Ok(Job::Block(block, batches, done)) => {
                let Some(batches) = batches() else { return Ok(None) };
                let Executed::Block(height, done) = self.shared().take(block, &batches, done)? else { return Ok(None) };
                self.executed.borrow_mut().push((height, done));
                Ok(Some(height))
            }
            Ok(Job::Stop(_)) | Err(_) => Ok(None),
        }
    }

    /// Makes all that was executed durable, and tells the order.
    ///
    /// # Errors
    /// The storage failed.
    pub fn sync(&self) -> Result<(), StoreError> {
        let executed = self.executed.take();
        if executed.is_empty() {
            return Ok(());
        }
        self.store.sync()?;
        for (height, done) in executed {
            self.shared().durable.fetch_max(height, Ordering::AcqRel);
            done();
        }
        Ok(())
    }

    /// Computes and sends the shares that wait; whether there were any.
    pub fn release(&self) -> bool {
        self.shared().release.step(self.shared())
    }

    /// Takes the snapshot that is due, and prunes what need not be kept; whether a checkpoint was executed since.
    ///
    /// # Errors
    /// The storage failed.
    pub fn retain(&self) -> io::Result<bool> {
        self.shared().retention.step(self.shared())
    }

    /// The roots of the state after a recent block and of what it yielded.
    pub fn roots(&self, height: u64) -> Option<([u8; 32], [u8; 32])> {
        let kept = self.shared().kept(height).ok()?;
        Some((kept.outbox.state_root, kept.outbox.root()))
    }

    /// The publication with this sn, if there is one.
    ///
    /// # Errors
    /// The storage failed.
    pub fn published(&self, sn: u64) -> Result<Option<Entry>, StoreError> {
        self.shared().state().published(sn)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.executor.shared
    }
}
