//! Frames that wait to be ordered: first come, first served, each once, within a limit. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sealcast_wire::limits;

use crate::block::{Block, BlockSize, Frame, Hash};
use crate::order::Refused;

/// A pool. A frame leaves it only when a block with it is delivered, so that one whose block failed is drawn again (E14).
#[derive(Debug)]
pub struct Pool {
    waiting: BTreeMap<u64, Frame>,
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

    /// Takes a frame in. Call it after the checks of one's own.
    pub fn receive(&mut self, frame: Frame) -> Result<(), Refused> {
        let length = frame.bytes().len();
        if length > limits::FRAME_BYTES_MAX {
            return Err(Refused::TooLarge);
        }
        let hash = frame.hash();
        if self.known.contains_key(&hash) || self.ordered.contains(&hash) {
            return Err(Refused::Known);
        }
        if self.bytes + length > self.bytes_max || self.waiting.len() >= limits::ORDER_POOL_FRAMES_MAX {
            return Err(Refused::Full);
        }
        self.known.insert(hash, self.arrivals);
        self.waiting.insert(self.arrivals, frame);
        self.arrivals += 1;
        self.bytes += length;
        Ok(())
    }

    /// The oldest frames that are in none of `ancestors`, as many as a block holds.
    pub fn propose(&self, ancestors: &[Arc<Block>], size: BlockSize) -> Vec<Frame> {
        let taken: BTreeSet<Hash> = ancestors.iter().flat_map(|b| b.frames.iter().map(Frame::hash)).collect();
        let mut room = size.bytes;
        let mut proposed = Vec::new();
        for frame in self.waiting.values() {
            if taken.contains(&frame.hash()) {
                continue;
            }
            let length = frame.bytes().len();
            let alone = proposed.is_empty() && length > room;
            if proposed.len() == size.frames || (length > room && !alone) {
                break;
            }
            room = room.saturating_sub(length);
            proposed.push(frame.clone());
            if alone {
                break;
            }
        }
        proposed
    }

    /// A block was delivered: its frames wait no more, and are known for a while in case they come again.
    pub fn delivered(&mut self, block: &Block) {
        for hash in block.frames.iter().map(Frame::hash) {
            if let Some(frame) = self.known.remove(&hash).and_then(|arrival| self.waiting.remove(&arrival)) {
                self.bytes -= frame.bytes().len();
            }
            if self.ordered.insert(hash) {
                self.ordered_by_age.push_back(hash);
            }
            if self.ordered_by_age.len() > limits::ORDERED_FRAMES_KNOWN {
                let oldest = self.ordered_by_age.pop_front().expect("it holds more than the limit");
                self.ordered.remove(&oldest);
            }
        }
    }

    /// How many frames wait.
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

    const SIZE: BlockSize = BlockSize { frames: 2, bytes: 10 };

    fn frame(text: &'static str) -> Frame {
        Frame::new(text.as_bytes())
    }

    fn block(frames: Vec<Frame>) -> Block {
        Block { parent: [0; 32], height: 1, time: 0, frames }
    }

    #[test]
    fn rule_e14_a_frame_stays_until_it_is_delivered() {
        let mut pool = Pool::new();
        for text in ["a", "b", "c"] {
            pool.receive(frame(text)).expect("there is room");
        }
        assert_eq!(pool.propose(&[], SIZE), [frame("a"), frame("b")]);
        // In flight: the next block takes the next frames.
        let flying = Arc::new(block(vec![frame("a"), frame("b")]));
        assert_eq!(pool.propose(std::slice::from_ref(&flying), SIZE), [frame("c")]);
        // The view of that block was skipped: they are drawn again.
        assert_eq!(pool.propose(&[], SIZE), [frame("a"), frame("b")]);
        pool.delivered(&flying);
        assert_eq!(pool.propose(&[], SIZE), [frame("c")]);
        assert_eq!(pool.receive(frame("a")), Err(Refused::Known));
    }

    #[test]
    fn a_long_frame_is_drawn_alone_in_its_turn() {
        let mut pool = Pool::new();
        for text in ["a", "longer than a block", "b"] {
            pool.receive(frame(text)).expect("there is room");
        }
        assert_eq!(pool.propose(&[], SIZE), [frame("a")]);
        pool.delivered(&block(vec![frame("a")]));
        assert_eq!(pool.propose(&[], SIZE), [frame("longer than a block")]);
    }

    #[test]
    fn rule_g7_a_pool_has_its_limits() {
        let mut pool = Pool::new().with_bytes_max(12);
        assert_eq!(pool.receive(Frame::new(vec![0; limits::FRAME_BYTES_MAX + 1])), Err(Refused::TooLarge));
        assert_eq!(pool.receive(frame("0123456789")), Ok(()));
        assert_eq!(pool.receive(frame("0123456789")), Err(Refused::Known));
        assert_eq!(pool.receive(frame("abc")), Err(Refused::Full));
        pool.delivered(&block(vec![frame("0123456789")]));
        assert_eq!((pool.receive(frame("abc")), pool.len()), (Ok(()), 1));
    }
}
