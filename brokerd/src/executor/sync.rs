//! The thread that makes executed blocks durable, many at once, while others are executed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel};
use std::time::Instant;
use std::{io, thread};

use sealcast_wire::limits;

use super::{Done, Shared};
use crate::store::Lsm;

/// What the executing thread says.
pub(super) enum Executed {
    /// The block of this height is in the store.
    Block(u64, Done),
    /// It was the last one; whoever waits is told when it is durable.
    Stop(SyncSender<()>),
}

/// Starts it.
pub(super) fn start(shared: Arc<Shared>, store: Lsm) -> io::Result<Sender<Executed>> {
    let (sender, executed) = channel();
    thread::Builder::new().name("store-sync".into()).spawn(move || run(&shared, &store, &executed))?;
    Ok(sender)
}

fn run(shared: &Shared, store: &Lsm, executed: &Receiver<Executed>) {
    let mut ended = None;
    while ended.is_none() {
        let blocks = gather(executed, &mut ended);
        if blocks.is_empty() && ended.is_none() {
            break;
        }
        if let Err(error) = store.sync() {
            // Nothing is acknowledged: the order stops, and brings the blocks again when it starts.
            shared.fail(error.to_string());
            break;
        }
        for (height, done) in blocks {
            shared.durable.fetch_max(height, Ordering::AcqRel);
            done();
        }
    }
    if let Some(ended) = ended {
        let _ = ended.send(());
    }
}

/// The next blocks, as many as come soon; none if the executing thread is gone.
fn gather(executed: &Receiver<Executed>, ended: &mut Option<SyncSender<()>>) -> Vec<(u64, Done)> {
    let mut blocks = Vec::new();
    let mut until = None;
    while blocks.len() < limits::STORE_SYNC_BLOCKS {
        let next = match until {
            None => executed.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(until) => executed.recv_timeout(Instant::saturating_duration_since(&until, Instant::now())),
        };
        match next {
            Ok(Executed::Block(height, done)) => blocks.push((height, done)),
            Ok(Executed::Stop(sender)) => {
                *ended = Some(sender);
                break;
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
        until.get_or_insert_with(|| Instant::now() + limits::STORE_SYNC_AFTER);
    }
    // What has come meanwhile is durable with them.
    while ended.is_none() {
        match executed.try_recv() {
            Ok(Executed::Block(height, done)) => blocks.push((height, done)),
            Ok(Executed::Stop(sender)) => *ended = Some(sender),
            Err(_) => break,
        }
    }
    blocks
}
