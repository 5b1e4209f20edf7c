//! The thread that executes.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, PoisonError};
use std::{io, thread};

use sealcast_broker::operation::{Checked, Moment};
use sealcast_broker::protocol::{Reply, Updates, designated_responder};
use sealcast_order::Block;
use sealcast_wire::{Utc, limits};

use super::recent::Kept;
use super::sync::Executed;
use super::{Done, Job, Shared};

/// Starts it; what it executed goes to `synced`.
pub(super) fn start(shared: Arc<Shared>, jobs: Receiver<Job>, synced: Sender<Executed>) -> io::Result<()> {
    thread::Builder::new().name("executor".into()).spawn(move || run(&shared, &jobs, &synced))?;
    Ok(())
}

fn run(shared: &Arc<Shared>, jobs: &Receiver<Job>, synced: &Sender<Executed>) {
    let mut goes_on = true;
    while let Ok(job) = jobs.recv() {
        let executed = match job {
            Job::Block(block, batches, done) => {
                // Behind a block that cannot be executed there is none that can.
                let Some(batches) = goes_on.then(batches).flatten() else {
                    goes_on = false;
                    continue;
                };
                match shared.take(block, &batches, done) {
                    Ok(executed) => executed,
                    Err(why) => return shared.fail(why),
                }
            }
            Job::Stop(ended) => {
                let _ = synced.send(Executed::Stop(ended));
                return;
            }
        };
        if synced.send(executed).is_err() {
            return;
        }
    }
}

impl Shared {
    /// Executes a block, unless it was executed before.
    pub(super) fn take(
        self: &Arc<Self>,
        block: Arc<Block>,
        batches: &[Checked],
        done: Done,
    ) -> Result<Executed, String> {
        let height = block.height;
        if height > self.height.load(Ordering::Acquire) {
            self.execute(block, batches)?;
        }
        Ok(Executed::Block(height, done))
    }

    /// Executes the next block and sends what it yields.
    fn execute(self: &Arc<Self>, block: Arc<Block>, batches: &[Checked]) -> Result<(), String> {
        assert_eq!(block.batches.len(), batches.len(), "the batches are the block's");
        let height = block.height;
        // The order counts microseconds, the state seconds.
        let at = Utc(i64::try_from(block.time / 1_000_000).expect("a time of 64 bits in microseconds"));
        let outbox = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            let outbox = state.execute(height, at, batches).map_err(|error| error.to_string())?;
            self.numbers().executed(&outbox.results, state.vouching());
            *self.moment() = Moment { at: state.time(), next_act: state.next_act() };
            if height.is_multiple_of(FORGET_EVERY) {
                let below = height.saturating_sub(limits::RESULTS_KEPT_BLOCKS);
                state.forget_results(below).map_err(|error| error.to_string())?;
            }
            self.retention.executed(height, at.0, || state.snapshot_head());
            outbox
        };
        let kept = Arc::new(Kept::new(outbox, block));
        self.recent().keep(kept.clone());
        self.height.store(height, Ordering::Release);
        self.tell(&kept);
        self.release.executed(&kept, batches);
        self.outlet.executed(height);
        Ok(())
    }

    /// Sends to clients that are here what the block means to them, and the DKG its statements.
    fn tell(&self, kept: &Kept) {
        let outbox = &kept.outbox;
        let updates = Updates::of(outbox);
        for client in updates.clients().filter(|client| self.outlet.is_here(client)) {
            let Some(mut update) = updates.digest(&self.cluster, client) else { continue };
            let speaks = designated_responder(client, outbox.height, self.brokers) == usize::from(self.index);
            if speaks || kept.bytes() <= limits::UPDATE_BY_ALL_BYTES {
                update.contents =
                    updates.contents(client).map(|contents| kept.with_bodies(contents, &*self.blocks, |_| true));
            }
            self.outlet.send(client, Reply::Update(update));
        }
        for (broker, word) in &outbox.words {
            self.outlet.dkg(outbox.height, *broker, word);
        }
    }
}

/// Old results are forgotten each time so many blocks were executed.
const FORGET_EVERY: u64 = 32;

const _: () = assert!(limits::RESULTS_FORGOTTEN_BLOCKS as u64 >= FORGET_EVERY);
