//! What the engine asks of the part above it: batches to propose, a verdict on a block, and to take what was ordered.

use std::fmt;
use std::sync::Arc;

use crate::block::{Batch, Block, BlockSize, Hash, Parent};
use crate::order::{Evidence, Refused};

/// Where a batch came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Submitted at this broker.
    Here,
    /// Forwarded by the broker of this index, who may lie.
    Broker(usize),
}

/// The part above the engine. It owns the pool of batches that wait; `pool::Pool` is one ready made.
///
/// All calls come from the engine's own tasks and must return soon; only `valid` may compute for longer, it runs
/// where blocking is allowed. A panic in one of them ends the engine.
pub trait Application: Send + Sync + 'static {
    /// A batch comes in. Check it here, once, so that `valid` need not check it again, and keep it until it is
    /// delivered: the engine itself remembers nothing, so that the batches of a block that failed are drawn again (E14).
    fn receive(&self, origin: Origin, batch: Batch) -> Result<(), Refused>;

    /// Batches for a block on `parent`, within `size`: those that wait and are in none of `parent.ancestors`.
    fn propose(&self, parent: &Parent<'_>, size: BlockSize) -> Vec<Batch>;

    /// Batches that still wait, the oldest first, within `size`; they are forwarded to a new leader (E14).
    fn waiting(&self, size: BlockSize) -> Vec<Batch>;

    /// Whether `block` may follow `parent`. Must be the same at every honest broker, whatever it has seen so far
    /// beside the ancestors; a block with `false` is never voted for. Parent, height, time and size are already checked.
    fn valid(&self, parent: &Parent<'_>, block: &Block) -> bool;

    /// `block` stands in the order and is durable in the engine's log. Blocks come by height without gaps; after a
    /// restart those come again whose acknowledgement was lost. Execution belongs to a thread of the application.
    fn deliver(&self, block: Delivered, ack: Ack);

    /// A broker was caught lying.
    fn misbehaved(&self, _evidence: &Evidence) {}
}

/// A block whose place is final.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// The block.
    pub block: Arc<Block>,
    /// Its hash.
    pub hash: Hash,
}

/// The receipt that the engine waits for: `done` says that what follows from the block is durable.
///
/// Acknowledge in the order of delivery: `done` for one block says that all below it are done too.
/// At most `Settings::unacknowledged` blocks are out at once. Dropping it without `done` stops the engine: the
/// application has failed, and going on would lose the block.
#[must_use]
pub struct Ack(Box<dyn FnOnce() + Send + Sync>);

impl Ack {
    /// A receipt that calls `done`.
    pub fn new(done: impl FnOnce() + Send + Sync + 'static) -> Ack {
        Ack(Box::new(done))
    }

    /// The block need not be delivered again.
    pub fn done(self) {
        (self.0)();
    }
}

impl fmt::Debug for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ack")
    }
}
