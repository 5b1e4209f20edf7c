//! How much a broker proposes at once while several accounts publish. Pure.
//!
//! A batch that comes waits for all blocks that are proposed and not executed yet, whosever batches they hold. How long
//! that is depends on the machine, the disk and the links, so it is measured: a block that took longer than is wanted
//! from its proposal on makes the next ones smaller, one that took half of it makes them larger. What even a short block
//! takes nobody can save, so some blocks are kept short, and one and a half times the shortest of the last times is
//! wanted, within limits. One account alone keeps nobody waiting, and gets full blocks.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use sealcast_order::BlockSize;
use sealcast_wire::limits;

/// What was learnt of the blocks that this broker proposed.
#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes of the next block, at most.
    bytes: usize,
    /// When that changed last: blocks that were proposed before say nothing of it.
    changed: Option<Instant>,
    /// Blocks that are not executed, by height.
    proposed: BTreeMap<u64, Proposed>,
    /// How long the last ones took, the newest last.
    took: VecDeque<Duration>,
}

#[derive(Debug)]
struct Proposed {
    at: Instant,
    bytes: usize,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { bytes: limits::BLOCK_BYTES_MAX, changed: None, proposed: BTreeMap::new(), took: VecDeque::new() }
    }
}

impl Pace {
    /// The size of the block of this height, where a block may have this one.
    pub(super) fn limit(&self, height: u64, size: BlockSize) -> BlockSize {
        let most = if height.is_multiple_of(SHORT_EVERY) { limits::BLOCK_BYTES_ALWAYS } else { self.bytes };
        BlockSize { bytes: size.bytes.min(most), ..size }
    }

    /// A block of this height with so many bytes is proposed.
    pub(super) fn proposed(&mut self, height: u64, bytes: usize, now: Instant) {
        self.proposed.insert(height, Proposed { at: now, bytes });
        while self.proposed.len() > limits::PROPOSALS_TIMED {
            self.proposed.pop_first();
        }
    }

    /// All blocks up to this height are executed and durable.
    pub(super) fn executed(&mut self, height: u64, now: Instant) {
        let later = self.proposed.split_off(&(height + 1));
        let done = std::mem::replace(&mut self.proposed, later);
        for it in done.into_values() {
            self.took.push_back(now.saturating_duration_since(it.at));
            if self.took.len() > limits::PROPOSALS_TIMED {
                self.took.pop_front();
            }
            if self.changed.is_none_or(|changed| it.at >= changed) {
                self.learn(&it, now);
            }
        }
    }

    fn learn(&mut self, block: &Proposed, now: Instant) {
        let (took, wanted) = (now.saturating_duration_since(block.at), self.wanted());
        let before = self.bytes;
        if took > wanted {
            // No less than a fourth at once: one slow block may be a slow disk.
            let part = (wanted.as_secs_f64() / took.as_secs_f64()).max(0.25);
            let smaller = (before.min(block.bytes) as f64 * part) as usize;
            self.bytes = smaller.max(limits::BLOCK_BYTES_ALWAYS);
        } else if took < wanted / 2 && block.bytes >= before / 2 {
            self.bytes = (before + before / 4).min(limits::BLOCK_BYTES_MAX);
        }
        if self.bytes != before {
            self.changed = Some(now);
        }
    }

    fn wanted(&self) -> Duration {
        let shortest = self.took.iter().min().copied().unwrap_or_default();
        let (least, most) = (limits::BLOCK_EXECUTED_WITHIN, WANTED_PARTS_MAX * limits::BLOCK_EXECUTED_WITHIN);
        (shortest * 3 / 2).clamp(least, most)
    }
}

/// One of so many blocks is short: a block that waits for longer ones shows less of what a short one takes.
const SHORT_EVERY: u64 = 16;
/// On slow links, at most so many times [`limits::BLOCK_EXECUTED_WITHIN`] is wanted.
const WANTED_PARTS_MAX: u32 = 4;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FULL: BlockSize = BlockSize { batches: limits::BLOCK_BATCHES, bytes: limits::BLOCK_BYTES };

    /// Proposes full blocks, one after the other, over links that take so long, on a machine that executes so many bytes
    /// in a second.
    fn run_over(link: Duration, pace: &mut Pace, now: &mut Instant, blocks: u64, bytes_per_second: f64) {
        for height in 0..blocks {
            let bytes = pace.limit(height, FULL).bytes;
            pace.proposed(height, bytes, *now);
            *now += link + Duration::from_secs_f64(bytes as f64 / bytes_per_second);
            pace.executed(height, *now);
        }
    }

    fn run(pace: &mut Pace, now: &mut Instant, blocks: u64, bytes_per_second: f64) {
        run_over(Duration::ZERO, pace, now, blocks, bytes_per_second);
    }

    /// The size of blocks that are not kept short.
    fn bytes(pace: &Pace) -> usize {
        pace.limit(1, FULL).bytes
    }

    #[test]
    fn rule_g7_blocks_are_as_large_as_the_machine_executes_in_time_and_grow_again() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        assert_eq!(bytes(&pace), FULL.bytes);
        run(&mut pace, &mut now, 50, 2e6);
        let slow = bytes(&pace);
        let took = slow as f64 / 2e6;
        assert!(took <= limits::BLOCK_EXECUTED_WITHIN.as_secs_f64() && slow > limits::BLOCK_BYTES_ALWAYS, "{slow}");
        run(&mut pace, &mut now, 50, 1e9);
        assert_eq!(bytes(&pace), FULL.bytes);
        // However slow it is, something of each account fits.
        run(&mut pace, &mut now, 50, 1e3);
        assert_eq!(bytes(&pace), limits::BLOCK_BYTES_ALWAYS);
    }

    #[test]
    fn blocks_that_were_proposed_before_a_change_do_not_change_it_again() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        (1..=4).for_each(|height| pace.proposed(height, FULL.bytes, now));
        let late = now + 2 * WANTED_PARTS_MAX * limits::BLOCK_EXECUTED_WITHIN;
        pace.executed(1, late);
        let once = bytes(&pace);
        pace.executed(4, late + limits::BLOCK_EXECUTED_WITHIN);
        assert_eq!((once, bytes(&pace)), (FULL.bytes / 2, FULL.bytes / 2));
        assert!(pace.proposed.is_empty());
    }

    #[test]
    fn short_blocks_say_little_of_longer_ones() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        run(&mut pace, &mut now, 50, 1e6);
        let before = bytes(&pace);
        for height in 100..200 {
            pace.proposed(height, 100, now);
            pace.executed(height, now);
        }
        assert_eq!(bytes(&pace), before);
    }

    #[test]
    fn on_slow_links_blocks_stay_long() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        run_over(Duration::from_millis(300), &mut pace, &mut now, 100, 1e7);
        assert!(bytes(&pace) > limits::BLOCK_BYTES / 2, "{}", bytes(&pace));
    }
}
