//! What the last blocks yielded, with their batches: for clients whose speaker was silent, and for receipts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use sealcast_broker::operation::{Batch, Head};
use sealcast_broker::protocol::Contents;
use sealcast_broker::state::{Entry, Outbox};
use sealcast_crypto::signature::Signature;
use sealcast_order::Block;
use sealcast_wire::limits;

use crate::outlet::Blocks;

/// The last blocks, by height.
#[derive(Default)]
pub(super) struct Recent {
    kept: BTreeMap<u64, Arc<Kept>>,
    /// Publications, results and notices in them.
    things: usize,
    /// Blocks below this height have given up their batches.
    batched_from: u64,
    /// Bytes of the batches of the others.
    bytes: usize,
}

/// An executed block.
pub(crate) struct Kept {
    pub(crate) outbox: Outbox,
    /// `None` when it was given up for its size.
    block: Mutex<Option<Arc<Block>>>,
    bytes: usize,
    /// Over what was executed (E1), once somebody asked for it.
    pub(super) signature: OnceLock<Signature>,
}

impl Recent {
    /// Adds the next block, and gives up what is too old or too much.
    pub(super) fn keep(&mut self, kept: Arc<Kept>) {
        self.things += kept.things();
        self.bytes += kept.bytes;
        self.kept.insert(kept.outbox.height, kept);
        while self.kept.len() > limits::OUTBOXES_KEPT
            || self.kept.len() > 1 && self.things > limits::OUTBOXES_THINGS_KEPT
        {
            let Some((height, oldest)) = self.kept.pop_first() else { break };
            self.things -= oldest.things();
            if height >= self.batched_from {
                self.bytes -= oldest.bytes;
            }
        }
        while self.bytes > limits::OUTBOXES_BATCHES_BYTES_KEPT {
            let Some((height, oldest)) = self.kept.range(self.batched_from..).next() else { break };
            self.batched_from = height + 1;
            self.bytes -= oldest.bytes;
            oldest.block.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    /// The block of this height.
    pub(super) fn get(&self, height: u64) -> Option<Arc<Kept>> {
        self.kept.get(&height).cloned()
    }
}

impl Kept {
    pub(super) fn new(outbox: Outbox, block: Arc<Block>) -> Kept {
        let bytes = block.bytes();
        Kept { outbox, block: Mutex::new(Some(block)), bytes, signature: OnceLock::new() }
    }

    /// Bytes of the block's batches.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn things(&self) -> usize {
        self.outbox.publications.len() + self.outbox.results.len() + self.outbox.notices.len()
    }

    /// The batch's bytes, as long as the block has them here.
    pub(super) fn batch(&self, batch: u32) -> Option<Bytes> {
        let block = self.block.lock().unwrap_or_else(PoisonError::into_inner);
        Some(block.as_ref()?.batches.get(batch as usize)?.bytes().clone())
    }

    /// The operation with a client's number in a batch of this block, from here or from the order's archive.
    fn operation(&self, batch: u32, number: u64, blocks: &dyn Blocks) -> Option<Vec<u8>> {
        let first = self.outbox.results.get(batch as usize)?.first;
        let place = usize::try_from(number.checked_sub(first)?).ok()?;
        match self.batch(batch) {
            Some(bytes) => Batch::operation_in(&bytes, place).map(<[u8]>::to_vec),
            None => Batch::operation_in(&blocks.batch(self.outbox.height, batch)?, place).map(<[u8]>::to_vec),
        }
    }

    /// The contents with the bodies that fit, of what may be read.
    pub(super) fn with_bodies(
        &self,
        mut contents: Contents,
        blocks: &dyn Blocks,
        may_read: impl Fn(u64) -> bool,
    ) -> Contents {
        let published = contents.publications.iter().map(|it| (it.sn, it.batch, it.number));
        let advertised = contents.advertisements.iter().map(|it| (it.sn, it.batch, it.number));
        let mut room = limits::UPDATE_BODIES_BYTES_MAX;
        let mut bodies = Vec::with_capacity(contents.publications.len());
        for (sn, batch, number) in published.chain(advertised).filter(|(sn, ..)| may_read(*sn)) {
            let Some(operation) = self.operation(batch, number, blocks) else { continue };
            match room.checked_sub(operation.len()) {
                Some(left) => room = left,
                None => break,
            }
            bodies.push((sn, operation));
        }
        bodies.sort_by_key(|(sn, _)| *sn);
        contents.bodies = bodies;
        contents
    }
}

/// The operation of a publication in its batch's bytes.
pub(super) fn operation_of(entry: &Entry, batch: &[u8]) -> Option<Vec<u8>> {
    let first = Head::of(batch).ok()?.first;
    let place = usize::try_from(entry.number.checked_sub(first)?).ok()?;
    Batch::operation_in(batch, place).map(<[u8]>::to_vec)
}
