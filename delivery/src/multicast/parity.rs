//! Parity over the sealed records of a reliable stream: shards of a Reed–Solomon code, so that a receiver rebuilds what it
//! lost, whatever that is, without asking for it.
//!
//! ```text
//! records 1 … 64 ─▶ shards of equal length ─▶ + n parities; any 64 of the 64 + n give the rest
//!
//! body of a control frame | 11 | stream | first u64 | parities u8 | index u8 | shard |
//! shard of a record       | length u16 | domain u16 | flags u8 | ciphertext and tag | 0 … 0 |   an even length
//! ```
//! What a record's header says besides follows from its stream and its number. A rebuilt record is opened as any other one, so
//! a parity proves nothing and needs no proof. How many a block gets follows from what receivers ask for all the same: none
//! while NAKs are for few records, then as many as leave few to ask for.

use std::collections::{BTreeMap, VecDeque};

use sealcast_wire::codec::{Malformed, Reader};
use sealcast_wire::frame::{HEADER_LEN, TAG_LEN};
use sealcast_wire::{EpochId, Header, Slot, limits};

use super::frame::{CONTROL_FIXED, Stream};
use crate::Batch;

/// Of one sender.
#[derive(Debug, Default)]
pub(crate) struct Parity {
    /// Parities of a block, in quarters.
    quarters: usize,
    blocks: BTreeMap<Stream, Block>,
    /// Bodies of control frames, until they are taken.
    ready: VecDeque<Vec<u8>>,
    /// Records sealed, and repaired for the first time, since `quarters` was looked at.
    sealed: usize,
    repaired: usize,
    /// How often in a row next to nothing was.
    quiet: usize,
    /// The same of a third and more.
    much: usize,
}

/// The records of a block so far.
#[derive(Debug)]
struct Block {
    first: u64,
    shards: Vec<Vec<u8>>,
}

/// What a parity says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParityHead {
    pub(crate) stream: Stream,
    /// The number of its block's first record.
    pub(crate) first: u64,
    /// How many the block has.
    pub(crate) parities: u8,
    /// Which of them this is.
    pub(crate) index: u8,
}

impl Parity {
    /// Records were sealed: their numbers begin with `first`.
    pub(super) fn push(&mut self, stream: Stream, first: u64, batch: &Batch) {
        if stream == Stream::STAMPS {
            return;
        }
        self.sealed += batch.lengths.len();
        if self.sealed >= SAMPLE {
            self.adapt();
        }
        if self.quarters == 0 {
            return;
        }
        for (number, datagram) in (first..).zip(batch.iter()) {
            if block_of(number) == number {
                self.blocks.insert(stream, Block { first: number, shards: Vec::with_capacity(PARITY_BLOCK) });
            }
            let Some(block) = self.blocks.get_mut(&stream) else { continue };
            let is_next = number == block.first + block.shards.len() as u64;
            let Some(shard) = shard(datagram).filter(|_| is_next) else {
                self.blocks.remove(&stream);
                continue;
            };
            block.shards.push(shard);
            if block.shards.len() == PARITY_BLOCK
                && let Some(block) = self.blocks.remove(&stream)
            {
                self.encode(stream, block);
            }
        }
    }

    /// Whether there are any at present.
    pub(super) fn is_made(&self) -> bool {
        self.quarters > 0
    }

    /// So many records were repaired for the first time.
    pub(super) fn repaired(&mut self, count: usize) {
        self.repaired += count;
    }

    /// Another epoch begins.
    pub(super) fn change(&mut self) {
        self.blocks.clear();
        self.ready.clear();
    }

    /// The body of a control frame that is to be sent.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }

    fn encode(&mut self, stream: Stream, block: Block) {
        let Block { first, mut shards } = block;
        let length = shards.iter().map(Vec::len).max().unwrap_or(0).next_multiple_of(2);
        shards.iter_mut().for_each(|it| it.resize(length, 0));
        let parities = (self.quarters / 4).clamp(1, limits::PARITIES_MAX);
        let encoded = reed_solomon_simd::encode(PARITY_BLOCK, parities, &shards);
        let encoded = encoded.expect("the numbers of shards are supported, and their lengths equal and even");
        for (index, shard) in (0..).zip(encoded) {
            let head = ParityHead { stream, first, parities: parities as u8, index };
            let mut body = Vec::with_capacity(HEAD_BYTES + length);
            head.write(&shard, &mut body);
            self.ready.push_back(body);
        }
    }

    /// More where much is asked for all the same, and slowly fewer where next to nothing is.
    fn adapt(&mut self) {
        let (sealed, repaired) = (self.sealed, self.repaired);
        (self.sealed, self.repaired) = (0, 0);
        let is_quiet = 200 * repaired < sealed;
        self.quiet = if is_quiet { self.quiet + 1 } else { 0 };
        let is_much = 3 * repaired > sealed;
        self.much = if is_much { self.much + 1 } else { 0 };
        self.quarters = match self.quarters {
            // Less is lost by few, who ask for it.
            0 if self.much < MUCH => 0,
            0 if 3 * repaired <= 2 * sealed => START,
            0 => 2 * START,
            // As many in a hundred.
            now if 100 * repaired > 10 * sealed => now + 8,
            now if 100 * repaired > 3 * sealed => now + 2,
            now if self.quiet >= QUIET => now - 1,
            now => now,
        };
        self.quarters = self.quarters.min(4 * limits::PARITIES_MAX);
        if self.quiet >= QUIET {
            self.quiet = 0;
        }
        if self.quarters < LEAST {
            self.quarters = 0;
            self.blocks.clear();
        }
    }
}

impl ParityHead {
    /// Appends the body of its control frame.
    pub(crate) fn write(&self, shard: &[u8], body: &mut Vec<u8>) {
        body.push(PARITY);
        self.stream.write(body);
        body.extend_from_slice(&self.first.to_be_bytes());
        body.extend_from_slice(&[self.parities, self.index]);
        body.extend_from_slice(shard);
    }

    /// Reads what follows the kind; the shard is the rest.
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<(ParityHead, Vec<u8>), Malformed> {
        let (stream, first) = (Stream::read(r)?, r.u64()?);
        let (parities, index) = (r.u8()?, r.u8()?);
        let shard = r.rest();
        let is_block = first > 0 && block_of(first) == first && first <= u64::MAX - PARITY_BLOCK as u64;
        let is_shard = shard.len() >= SHARD_FIXED && shard.len() % 2 == 0;
        let is_one = index < parities && usize::from(parities) <= limits::PARITIES_MAX && stream != Stream::STAMPS;
        if !is_block || !is_shard || !is_one {
            return Err(Malformed);
        }
        Ok((ParityHead { stream, first, parities, index }, shard.to_vec()))
    }
}

/// The number of the first record of a record's block.
pub(crate) fn block_of(number: u64) -> u64 {
    (number - 1) / PARITY_BLOCK as u64 * PARITY_BLOCK as u64 + 1
}

/// A sealed record as a shard, not padded.
pub(crate) fn shard(datagram: &[u8]) -> Option<Vec<u8>> {
    let header = Header::parse(datagram).ok()?;
    let sealed = &datagram[HEADER_LEN..];
    let mut shard = Vec::with_capacity(SHARD_FIXED + sealed.len() + 1);
    shard.extend_from_slice(&u16::try_from(sealed.len()).ok()?.to_be_bytes());
    shard.extend_from_slice(&header.domain.0.to_be_bytes());
    shard.push(header.flags);
    shard.extend_from_slice(sealed);
    Some(shard)
}

/// The sealed record that a shard is of; nothing of it is proved.
pub(crate) fn datagram(
    shard: &[u8],
    (epoch, slot): (EpochId, Slot),
    (stream, number): (Stream, u64),
) -> Result<Vec<u8>, Malformed> {
    use sealcast_wire::frame::{FLAG_ORDERED, FLAG_RELIABLE, FLAG_SIGNED};
    let mut r = Reader::new(shard);
    let (length, domain, flags) = (usize::from(r.u16()?), sealcast_wire::Domain(r.u16()?), r.u8()?);
    let sealed = r.take(length)?;
    let signed = flags & FLAG_SIGNED != 0;
    let is_of_stream = match flags & FLAG_ORDERED {
        0 => stream.is_fifo() && stream == Stream { domain, signed },
        _ => stream == Stream::ORDERED,
    };
    if flags & FLAG_RELIABLE == 0 || !is_of_stream || sealed.len() < TAG_LEN {
        return Err(Malformed);
    }
    let mut datagram = vec![0; HEADER_LEN];
    datagram.extend_from_slice(sealed);
    let counter = Header::counting(flags) | number;
    Header { domain, epoch, slot, flags, counter }.write(&mut datagram);
    Ok(datagram)
}

/// The kind of its control frame.
pub(crate) const PARITY: u8 = 17;
/// Records of a block.
pub(crate) const PARITY_BLOCK: usize = 64;
/// So much longer than the longest record of its block a parity's datagram is.
pub(crate) const PARITY_BYTES: usize = HEADER_LEN + TAG_LEN + CONTROL_FIXED + HEAD_BYTES + SHARD_FIXED + 1 - HEADER_LEN;
const HEAD_BYTES: usize = 1 + 3 + 8 + 1 + 1;
const SHARD_FIXED: usize = 2 + 2 + 1;
/// Records after which the number of parities is looked at.
const SAMPLE: usize = 128;
/// So often in a row it has to show that fewer would do.
const QUIET: usize = 4;
/// So often in a row much has to be lost: a burst is asked for.
const MUCH: usize = 2;
/// Parities of a block at first, in quarters.
const START: usize = 16;
/// Fewer are none, in quarters.
const LEAST: usize = 8;
