//! Batches that wait to be ordered: first come, first served, each once, within a limit. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sealcast_wire::limits;

use crate::block::{Batch, Block, BlockSize, Hash};
use crate::order::Refused;

/// A pool. A batch leaves it only when a block with it is delivered, so that one whose block failed is drawn again (E14).
#[derive(Debug)]
pub struct Pool {
    waiting: BTreeMap<u64, Batch>,
    known: BTreeMap<Hash, u64>,
    arrivals: u64,
    bytes: usize,
    ordered: BTreeSet<Hash>,
    ordered_by_age: VecDeque<Hash>,
    bytes_max: usize,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool::new()
    }
}

impl Pool {
    /// An empty pool.
    pub fn new() -> Pool {
        Pool {
            waiting: BTreeMap::new(),
            known: BTreeMap::new(),
            arrivals: 0,
            bytes: 0,
            ordered: BTreeSet::new(),
            ordered_by_age: VecDeque::new(),
            bytes_max: limits::ORDER_POOL_BYTES_MAX,
        }
    }

    /// The same, holding at most so many bytes.
    pub fn with_bytes_max(mut self, bytes_max: usize) -> Pool {
        self.bytes_max = bytes_max;
        self
    }

    /// Takes a batch in. Call it after the checks of one's own.
    pub fn receive(&mut self, batch: Batch) -> Result<(), Refused> {
        let length = batch.bytes().len();
        if length > limits::BATCH_BYTES_MAX {
            return Err(Refused::TooLarge);
        }
        let hash = batch.hash();
        if self.known.contains_key(&hash) || self.ordered.contains(&hash) {
            return Err(Refused::Known);
        }
        if self.bytes + length > self.bytes_max || self.waiting.len() >= limits::ORDER_POOL_BATCHES_MAX {
            return Err(Refused::Full);
        }
        self.known.insert(hash, self.arrivals);
        self.waiting.insert(self.arrivals, batch);
        self.arrivals += 1;
        self.bytes += length;
        Ok(())
    }

    /// The oldest batches that are in none of `ancestors`, as many as a block holds.
    pub fn propose(&self, ancestors: &[Arc<Block>], size: BlockSize) -> Vec<Batch> {
        let taken: BTreeSet<Hash> = ancestors.iter().flat_map(|b| b.batches.iter().map(Batch::hash)).collect();
        let mut room = size.bytes;
        let mut proposed = Vec::new();
        for batch in self.waiting.values() {
            if taken.contains(&batch.hash()) {
                continue;
            }
            let length = batch.bytes().len();
            let alone = proposed.is_empty() && length > room;
            if proposed.len() == size.batches || (length > room && !alone) {
                break;
            }
            room = room.saturating_sub(length);
            proposed.push(batch.clone());
            if alone {
                break;
            }
        }
        proposed
    }

    /// A block was delivered: its batches wait no more, and are known for a while in case they come again.
    pub fn delivered(&mut self, block: &Block) {
        for hash in block.batches.iter().map(Batch::hash) {
            if let Some(batch) = self.known.remove(&hash).and_then(|arrival| self.waiting.remove(&arrival)) {
                self.bytes -= batch.bytes().len();
            }
            if self.ordered.insert(hash) {
                self.ordered_by_age.push_back(hash);
            }
            if self.ordered_by_age.len() > limits::ORDERED_BATCHES_KNOWN {
                let oldest = self.ordered_by_age.pop_front().expect("it holds more than the limit");
                self.ordered.remove(&oldest);
            }
        }
    }

    /// How many batches wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: BlockSize = BlockSize { batches: 2, bytes: 10 };

    fn batch(text: &'static str) -> Batch {
        Batch::new(text.as_bytes())
    }

    fn block(batches: Vec<Batch>) -> Block {
        Block { parent: [0; 32], height: 1, time: 0, batches }
    }

    #[test]
    fn rule_e14_a_batch_stays_until_it_is_delivered() {
        let mut pool = Pool::new();
        for text in ["a", "b", "c"] {
            pool.receive(batch(text)).expect("there is room");
        }
        assert_eq!(pool.propose(&[], SIZE), [batch("a"), batch("b")]);
        // In flight: the next block takes the next batches.
        let flying = Arc::new(block(vec![batch("a"), batch("b")]));
        assert_eq!(pool.propose(std::slice::from_ref(&flying), SIZE), [batch("c")]);
        // The view of that block was skipped: they are drawn again.
        assert_eq!(pool.propose(&[], SIZE), [batch("a"), batch("b")]);
        pool.delivered(&flying);
        assert_eq!(pool.propose(&[], SIZE), [batch("c")]);
        assert_eq!(pool.receive(batch("a")), Err(Refused::Known));
    }

    #[test]
    fn a_long_batch_is_drawn_alone_in_its_turn() {
        let mut pool = Pool::new();
        for text in ["a", "longer than a block", "b"] {
            pool.receive(batch(text)).expect("there is room");
        }
        assert_eq!(pool.propose(&[], SIZE), [batch("a")]);
        pool.delivered(&block(vec![batch("a")]));
        assert_eq!(pool.propose(&[], SIZE), [batch("longer than a block")]);
    }

    #[test]
    fn rule_g7_a_pool_has_its_limits() {
        let mut pool = Pool::new().with_bytes_max(12);
        assert_eq!(pool.receive(Batch::new(vec![0; limits::BATCH_BYTES_MAX + 1])), Err(Refused::TooLarge));
        assert_eq!(pool.receive(batch("0123456789")), Ok(()));
        assert_eq!(pool.receive(batch("0123456789")), Err(Refused::Known));
        assert_eq!(pool.receive(batch("abc")), Err(Refused::Full));
        pool.delivered(&block(vec![batch("0123456789")]));
        assert_eq!((pool.receive(batch("abc")), pool.len()), (Ok(()), 1));
    }
}
