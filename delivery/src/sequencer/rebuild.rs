//! Records that were lost, rebuilt from the others of their block and from parities.
//!
//! A stream's records are kept from its first parity on. What comes out is as hostile as what went in, and is opened as what
//! comes from the network is. A block is decoded once at most, and only as many shards are kept as that takes, of the last
//! blocks of a stream.

use std::collections::BTreeMap;
use std::time::Duration;

use sealcast_wire::frame::{FLAG_ORDERED, FLAG_SIGNED};
use sealcast_wire::{Dropped, EpochId, Header, Monotonic, Slot, limits};

use super::Sequencer;
use super::control::Of;
use crate::multicast::frame::Stream;
use crate::multicast::parity::{PARITY_BLOCK, ParityHead, block_of, datagram, shard};

/// Of all streams of the installed view.
#[derive(Debug, Default)]
pub(super) struct Rebuild {
    streams: BTreeMap<Of, Blocks>,
    bytes: usize,
    rebuilt: u64,
}

#[derive(Debug)]
struct Blocks {
    /// By the number of the first record.
    recent: BTreeMap<u64, Block>,
    /// The last block of which a parity came, and when its first one did.
    last: (u64, Monotonic),
    /// Between two such times.
    between: Duration,
}

#[derive(Debug, Default)]
struct Block {
    /// By the place of the record in the block.
    records: BTreeMap<usize, Vec<u8>>,
    /// By its index, and how many there are, all as long as the first one.
    parities: BTreeMap<usize, Vec<u8>>,
    count: usize,
    length: usize,
    /// Nothing more is to be made of it.
    is_done: bool,
}

impl Rebuild {
    /// Another view.
    pub(super) fn clear(&mut self) {
        *self = Rebuild { rebuilt: self.rebuilt, ..Rebuild::default() };
    }

    /// Whether somebody sends parities.
    pub(super) fn is_used(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Records that were rebuilt so far, opened or not.
    #[cfg(test)]
    pub(super) fn rebuilt(&self) -> u64 {
        self.rebuilt
    }

    /// Bytes that are held.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How long a gap in a stream may be closed by parities that are to come.
    pub(super) fn wait(&self, of: Of) -> Duration {
        let between = self.streams.get(&of).map_or(Duration::ZERO, |it| it.between);
        if between > WAIT_MAX { Duration::ZERO } else { between * 5 / 4 }
    }

    /// A record came, as it was sealed.
    pub(super) fn record(&mut self, epoch: EpochId, of: Of, number: u64, sealed: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let Some(blocks) = self.streams.get_mut(&of) else { return Vec::new() };
        let first = block_of(number);
        // Its sender sends no parities any more.
        if first > blocks.last.0 + BLOCKS_UNCOVERED * PARITY_BLOCK as u64 {
            let ended = self.streams.remove(&of);
            self.bytes -= ended.map_or(0, |it| it.recent.values().map(Block::bytes).sum());
            return Vec::new();
        }
        let Some(shard) = shard(sealed) else { return Vec::new() };
        let Some(block) = block(blocks, first, &mut self.bytes) else { return Vec::new() };
        if block.is_done || self.bytes + shard.len() > limits::PARITY_BYTES_MAX {
            return Vec::new();
        }
        self.bytes += shard.len();
        let before = block.records.insert((number - first) as usize, shard);
        self.bytes -= before.map_or(0, |it| it.len());
        self.decode(epoch, of, first)
    }

    /// A parity came. `known` is the last record of the stream that came, and `next` the first one that did not: what is
    /// beyond the one is made up, and what is before the other is of no use.
    pub(super) fn parity(
        &mut self,
        now: Monotonic,
        (epoch, of): (EpochId, Of),
        head: ParityHead,
        shard: Vec<u8>,
        (known, next): (u64, u64),
    ) -> Result<Vec<(u64, Vec<u8>)>, Dropped> {
        if head.first > known {
            return Err(Dropped::Malformed);
        }
        let blocks = self.streams.entry(of).or_insert_with(|| Blocks {
            recent: BTreeMap::new(),
            last: (head.first, now),
            between: Duration::ZERO,
        });
        if head.first > blocks.last.0 {
            let (last, at) = blocks.last;
            let between =
                now.since(at) / u32::try_from((head.first - last) / PARITY_BLOCK as u64).unwrap_or(u32::MAX).max(1);
            // A sender that waits, perhaps for what we wait for, takes longer than its blocks do.
            blocks.between = match blocks.between {
                Duration::ZERO => between,
                known if between < known => between,
                known => known + (between.min(2 * known) - known) / 16,
            };
            blocks.last = (head.first, now);
        }
        if head.first + PARITY_BLOCK as u64 <= next {
            return Ok(Vec::new());
        }
        let room = limits::PARITY_BYTES_MAX.saturating_sub(self.bytes);
        let Some(block) = block(blocks, head.first, &mut self.bytes).filter(|it| !it.is_done) else {
            return Ok(Vec::new());
        };
        let (count, index) = (usize::from(head.parities), usize::from(head.index));
        if block.parities.is_empty() {
            (block.count, block.length) = (count, shard.len());
        }
        if count != block.count || shard.len() != block.length {
            return Err(Dropped::Malformed);
        }
        if shard.len() > room {
            return Err(Dropped::Queue);
        }
        if block.parities.contains_key(&index) {
            return Err(Dropped::Replay);
        }
        self.bytes += shard.len();
        block.parities.insert(index, shard);
        Ok(self.decode(epoch, of, head.first))
    }

    /// The missing records of a block, if there are enough shards.
    fn decode(&mut self, epoch: EpochId, of: Of, first: u64) -> Vec<(u64, Vec<u8>)> {
        let block = self.streams.get_mut(&of).and_then(|it| it.recent.get_mut(&first));
        let Some(block) = block.filter(|it| it.records.len() + it.parities.len() >= PARITY_BLOCK) else {
            return Vec::new();
        };
        let missing: Vec<usize> = (0..PARITY_BLOCK).filter(|at| !block.records.contains_key(at)).collect();
        self.bytes -= block.bytes();
        let Block { mut records, parities, count, length, .. } =
            std::mem::replace(block, Block { is_done: true, ..Block::default() });
        // A longer record than its parities is none that they are of.
        if missing.is_empty() || records.values().any(|it| it.len() > length) {
            return Vec::new();
        }
        records.values_mut().for_each(|it| it.resize(length, 0));
        let Ok(rebuilt) = reed_solomon_simd::decode(PARITY_BLOCK, count, records, parities) else {
            return Vec::new();
        };
        self.rebuilt += missing.len() as u64;
        let whole = missing.into_iter().filter_map(|at| {
            let number = first + at as u64;
            Some((number, datagram(rebuilt.get(&at)?, (epoch, of.slot), (of.stream, number)).ok()?))
        });
        whole.collect()
    }
}

/// A block of a stream, if it is one of the last ones.
fn block<'a>(blocks: &'a mut Blocks, first: u64, bytes: &mut usize) -> Option<&'a mut Block> {
    if !blocks.recent.contains_key(&first) && blocks.recent.len() >= limits::PARITY_BLOCKS_HELD {
        let oldest = *blocks.recent.first_key_value()?.0;
        if first < oldest {
            return None;
        }
        *bytes -= blocks.recent.remove(&oldest).map_or(0, |it| it.bytes());
    }
    Some(blocks.recent.entry(first).or_default())
}

impl Block {
    fn bytes(&self) -> usize {
        self.records.values().chain(self.parities.values()).map(Vec::len).sum()
    }
}

impl Sequencer {
    /// A parity of a member's records came.
    pub(super) fn take_parity(
        &mut self,
        now: Monotonic,
        slot: Slot,
        head: ParityHead,
        shard: Vec<u8>,
    ) -> Result<(), Dropped> {
        let Some((current, rebuild)) = self.current.as_ref().zip(self.rebuild.as_mut()) else { return Ok(()) };
        let (epoch, me, of) = (current.epoch, current.me, Of { slot, stream: head.stream });
        // Of a stream that we cannot read, nothing came.
        let range = self.incoming.range(epoch, of).ok_or(Dropped::Malformed)?;
        let end = head.first + PARITY_BLOCK as u64 - 1;
        let rebuilt = rebuild.parity(now, (epoch, of), head, shard, range)?;
        let wait = rebuild.wait(of);
        self.take_rebuilt(now, (epoch, of), rebuilt);
        self.incoming.end_wait(now, me, (epoch, of), end, wait);
        Ok(())
    }

    /// A record came that is new, as it was sealed: others of its block may follow from it.
    pub(super) fn keep_shard(&mut self, now: Monotonic, sealed: &[u8]) {
        let (Some(rebuild), Some(current)) = (&mut self.rebuild, &self.current) else { return };
        let Ok(header) = Header::parse(sealed) else { return };
        let Some(number) = Header::reliable_number(header.flags, header.counter) else { return };
        let signed = header.flags & FLAG_SIGNED != 0;
        let stream = match header.flags & FLAG_ORDERED {
            0 => Stream { domain: header.domain, signed },
            _ => Stream::ORDERED,
        };
        if current.epoch != header.epoch || header.slot == current.me || stream == Stream::STAMPS {
            return;
        }
        let of = Of { slot: header.slot, stream };
        let rebuilt = rebuild.record(header.epoch, of, number, sealed);
        self.take_rebuilt(now, (header.epoch, of), rebuilt);
    }

    /// Takes in records that were rebuilt, if they prove themselves.
    pub(super) fn take_rebuilt(&mut self, now: Monotonic, (epoch, of): (EpochId, Of), rebuilt: Vec<(u64, Vec<u8>)>) {
        for (number, sealed) in rebuilt {
            let Some(protect) = self.current.as_ref().filter(|it| it.epoch == epoch).map(|it| it.protect.clone())
            else {
                return;
            };
            if !self.incoming.is_new(epoch, of, number) {
                continue;
            }
            let mut datagram = sealed.clone();
            let taken = match protect.open(&mut datagram) {
                Ok((source, flags, frame)) if flags & FLAG_ORDERED != 0 => {
                    self.take_ordered(now, source, flags, (frame, &sealed), Some(&*protect))
                }
                Ok((source, flags, frame)) => self.take(now, source, flags, frame, Some(&*protect)),
                Err(Dropped::NoKey) => self.take_unread(now, &sealed),
                Err(why) => Err(why),
            };
            if let Err(why) = taken {
                self.drops.count(why);
            }
        }
    }
}

/// A sender whose blocks take longer is asked at once.
const WAIT_MAX: Duration = Duration::from_millis(8);
/// So many blocks without a parity, and there are none any more.
const BLOCKS_UNCOVERED: u64 = 8;
