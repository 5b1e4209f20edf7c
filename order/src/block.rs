//! What is ordered: batches, in blocks that name their parent.
//!
//! ```text
//! block   = version (1) ‖ parent (32) ‖ height (8) ‖ time (8) ‖ count (4) ‖ count × batch
//! batch   = length (4) ‖ bytes
//! hash    = SHA-256("sealcast/v1/block" ‖ parent ‖ height ‖ time ‖ count ‖ count × SHA-256(batch bytes))
//! ```
//!
//! Integers are big-endian; every block has exactly one encoding. The hash goes over the batches' hashes (E14): a
//! batch's bytes are hashed once, when they enter, and that hash is what a publisher's signature can cover too.

use std::fmt;
use std::sync::{Arc, OnceLock};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::{Buf, BufMut, Bytes, TryGetError};
use sealcast_wire::limits;

/// A SHA-256 hash.
pub type Hash = [u8; 32];

/// One unit of ordering: bytes that the engine carries and never reads.
#[derive(Clone)]
pub struct Batch {
    bytes: Bytes,
    hash: OnceLock<Hash>,
}

impl Batch {
    /// A batch of these bytes, which are shared and not copied.
    pub fn new(bytes: impl Into<Bytes>) -> Batch {
        Batch { bytes: bytes.into(), hash: OnceLock::new() }
    }

    /// The bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// SHA-256 of the bytes, computed at most once for a batch and its later clones.
    pub fn hash(&self) -> Hash {
        *self.hash.get_or_init(|| sha256(&[&self.bytes]))
    }

    /// Its encoding.
    pub fn put(&self, into: &mut impl BufMut) {
        into.put_u32(length(self.bytes.len()));
        into.put_slice(&self.bytes);
    }

    /// Takes a batch from the front of `bytes`.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn take(bytes: &mut impl Buf) -> Result<Batch, Malformed> {
        let n = bytes.try_get_u32().map_err(short)? as usize;
        if n > limits::BATCH_BYTES_MAX {
            return Err(Malformed::Length(n));
        }
        if n > bytes.remaining() {
            return Err(Malformed::Short);
        }
        Ok(Batch::new(bytes.copy_to_bytes(n)))
    }
}

impl PartialEq for Batch {
    fn eq(&self, other: &Batch) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Batch {}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({} bytes)", self.bytes.len())
    }
}

/// How much one block holds (the paper's BlockSize). A broker keeps to its own when it proposes, and takes blocks up to
/// [`BlockSize::MAX`]: brokers may differ in it, and change it over any history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    /// Batches, at most.
    pub batches: usize,
    /// Bytes of all batches together, at most. One batch that is longer (up to `limits::BATCH_BYTES_MAX`) gets a
    /// block of its own.
    pub bytes: usize,
}

impl BlockSize {
    /// What every broker takes. Whether a block may be voted for depends on this alone, at all brokers alike.
    pub const MAX: BlockSize = BlockSize { batches: limits::BLOCK_BATCHES_MAX, bytes: limits::BLOCK_BYTES_MAX };

    /// The bytes that so many batches may have together.
    fn room(self, batches: usize) -> usize {
        if batches == 1 { limits::BATCH_BYTES_MAX } else { self.bytes }
    }
}

impl Default for BlockSize {
    /// About 1,000 operations of 1 KB: larger blocks gained no throughput and cost three times the latency.
    fn default() -> BlockSize {
        BlockSize { batches: limits::BLOCK_BATCHES, bytes: limits::BLOCK_BYTES }
    }
}

/// A block: its place in the order, its time, and its batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Hash of the block before it.
    pub parent: Hash,
    /// Its number; the genesis block, which holds nothing, is 0.
    pub height: u64,
    /// Microseconds since 1970 by the proposer's clock, never less than the parent's (E10).
    pub time: u64,
    /// What was ordered, in this order.
    pub batches: Vec<Batch>,
}

impl Block {
    /// The block under all others, which binds the order to one cluster's name.
    pub fn genesis(namespace: &[u8]) -> Block {
        Block { parent: sha256(&[b"sealcast/v1/genesis", namespace]), height: 0, time: 0, batches: Vec::new() }
    }

    /// The hash that brokers vote on.
    pub fn hash(&self) -> Hash {
        hash_of(&self.header())
    }

    /// What its hash is made of: `parent ‖ u64 height ‖ u64 time ‖ u32 count ‖ batch's hash …`
    pub fn header(&self) -> Vec<u8> {
        let hashes: Vec<Hash> = self.batches.iter().map(Batch::hash).collect();
        let count = u32::try_from(hashes.len()).expect("a block's batches are bounded far below 2^32");
        let numbers = [self.height.to_be_bytes(), self.time.to_be_bytes()];
        [&self.parent[..], numbers.as_flattened(), &count.to_be_bytes(), hashes.as_flattened()].concat()
    }

    /// Its encoding up to the first batch.
    pub fn put_head(&self, into: &mut impl BufMut) {
        into.put_u8(VERSION);
        into.put_slice(&self.parent);
        into.put_u64(self.height);
        into.put_u64(self.time);
        into.put_u32(length(self.batches.len()));
    }

    /// Its encoding.
    pub fn put(&self, into: &mut impl BufMut) {
        self.put_head(into);
        self.batches.iter().for_each(|batch| batch.put(into));
    }

    /// Its encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.batches.len() * LENGTH_BYTES + self.bytes());
        self.put(&mut bytes);
        bytes
    }

    /// Takes a block of at most `size` from the front of `bytes`. Batches share them where they are shared bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn take(bytes: &mut impl Buf, size: BlockSize) -> Result<Block, Malformed> {
        if bytes.try_get_u8().map_err(short)? != VERSION {
            return Err(Malformed::Version);
        }
        let mut parent = [0; 32];
        bytes.try_copy_to_slice(&mut parent).map_err(short)?;
        let height = bytes.try_get_u64().map_err(short)?;
        let time = bytes.try_get_u64().map_err(short)?;
        let count = bytes.try_get_u32().map_err(short)? as usize;
        // Nothing is allocated for a count that the bytes at hand cannot hold (G2).
        if count > size.batches || count.saturating_mul(LENGTH_BYTES) > bytes.remaining() {
            return Err(Malformed::Length(count));
        }
        let mut room = size.room(count);
        let mut batches = Vec::with_capacity(count);
        for _ in 0..count {
            let batch = Batch::take(bytes)?;
            let n = batch.bytes.len();
            room = room.checked_sub(n).ok_or(Malformed::Length(n))?;
            batches.push(batch);
        }
        Ok(Block { parent, height, time, batches })
    }

    /// The block of which this is the encoding.
    ///
    /// # Errors
    /// [`Malformed`], also if bytes follow it.
    pub fn from_bytes(mut bytes: Bytes, size: BlockSize) -> Result<Block, Malformed> {
        let block = Block::take(&mut bytes, size)?;
        if bytes.is_empty() { Ok(block) } else { Err(Malformed::Length(bytes.len())) }
    }

    /// Bytes of all batches together.
    pub fn bytes(&self) -> usize {
        self.batches.iter().map(|f| f.bytes.len()).sum()
    }

    /// Whether it keeps to `size`.
    pub fn fits(&self, size: BlockSize) -> bool {
        let short = self.batches.iter().all(|f| f.bytes.len() <= limits::BATCH_BYTES_MAX);
        short && self.batches.len() <= size.batches && self.bytes() <= size.room(self.batches.len())
    }
}

/// The hash of the block with this header.
pub(crate) fn hash_of(header: &[u8]) -> Hash {
    sha256(&[b"sealcast/v1/block", header])
}

/// SHA-256 of the parts laid end to end; upstream's takes twice as long where the processor has no instructions for it.
fn sha256(parts: &[&[u8]]) -> Hash {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().try_into().expect("SHA-256 gives 32 bytes")
}

fn length(n: usize) -> u32 {
    u32::try_from(n).expect("a block is bounded far below 2^32")
}

fn short(_: TryGetError) -> Malformed {
    Malformed::Short
}

/// Why bytes are no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Its format is of another version.
    #[error("unknown version of a block")]
    Version,
    /// They end within it.
    #[error("a block is cut short")]
    Short,
    /// A count or a length in it exceeds its bound.
    #[error("a count or length of {0} exceeds its bound")]
    Length(usize),
}

/// The height in a header, if it has one.
pub(crate) fn height_in(header: &[u8]) -> Option<u64> {
    header.get(32..)?.first_chunk().map(|height| u64::from_be_bytes(*height))
}

/// What a proposed block stands on.
#[derive(Clone, Copy, Debug)]
pub struct Parent<'a> {
    /// The parent's number.
    pub height: u64,
    /// The parent's hash.
    pub hash: Hash,
    /// The parent's time, microseconds.
    pub time: u64,
    /// The blocks between what was acknowledged and the proposed block, the parent first. A batch in one of them
    /// must not be proposed again. The application may meanwhile have executed some of them.
    pub ancestors: &'a [Arc<Block>],
}

/// The format of `Block`, named in its first byte.
const VERSION: u8 = 1;
/// Bytes of a block without its batches.
pub const HEADER_BYTES: usize = 1 + 32 + 8 + 8 + 4;
/// Bytes of a batch's length.
pub const LENGTH_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: BlockSize = BlockSize { batches: 3, bytes: 16 };

    fn block() -> Block {
        Block { parent: [7; 32], height: 3, time: 9, batches: vec![Batch::new(&b"ab"[..]), Batch::new(&b"c"[..])] }
    }

    #[test]
    fn rule_e14_a_blocks_hash_is_a_hash_over_batch_hashes() {
        let hashes = [&b"ab"[..], b"c"].map(|batch| sha256(&[batch]));
        let mut by_hand = b"sealcast/v1/block".to_vec();
        by_hand.extend([7; 32]);
        by_hand.extend(3u64.to_be_bytes());
        by_hand.extend(9u64.to_be_bytes());
        by_hand.extend(2u32.to_be_bytes());
        by_hand.extend(hashes.concat());
        assert_eq!(block().hash(), sha256(&[&by_hand]));
        let header = block().header();
        assert_eq!((hash_of(&header), height_in(&header)), (block().hash(), Some(3)));
        assert_eq!(height_in(&header[..39]), None);
    }

    #[test]
    fn a_blocks_encoding_is_the_documented_one() {
        let mut by_hand = vec![1];
        by_hand.extend([7; 32]);
        by_hand.extend(3u64.to_be_bytes());
        by_hand.extend(9u64.to_be_bytes());
        by_hand.extend([0, 0, 0, 2, 0, 0, 0, 2]);
        by_hand.extend(b"ab\0\0\0\x01c");
        assert_eq!(block().to_bytes(), by_hand);
        assert_eq!(Block::from_bytes(Bytes::from(by_hand), SIZE), Ok(block()));
    }

    #[test]
    fn rule_g2_a_block_beyond_its_bounds_is_not_decoded() {
        let bytes = Bytes::from(block().to_bytes());
        for size in [BlockSize { batches: 1, bytes: 16 }, BlockSize { batches: 3, bytes: 2 }] {
            assert!(Block::from_bytes(bytes.clone(), size).is_err(), "{size:?}");
        }
        for cut in 0..bytes.len() {
            assert!(Block::from_bytes(bytes.slice(..cut), SIZE).is_err(), "cut at {cut}");
        }
        assert!(Block::from_bytes([&bytes[..], b"!"].concat().into(), SIZE).is_err(), "more behind it");
        let mut huge = bytes[..HEADER_BYTES - 4].to_vec();
        huge.extend([0xff; 4]);
        assert!(Block::from_bytes(huge.into(), BlockSize { batches: usize::MAX, bytes: 16 }).is_err());

        let long = Batch::new(vec![0; limits::BATCH_BYTES_MAX]);
        let two = |batch: Batch| Block { batches: vec![batch, Batch::new(&b"it"[..])], ..block() }.to_bytes().into();
        assert!(Block::from_bytes(two(long.clone()), BlockSize::MAX).is_ok());
        let longer = Batch::new([long.bytes(), &b"!"[..]].concat());
        assert!(Block::from_bytes(two(longer), BlockSize::MAX).is_err(), "a batch beyond its own bound");
    }

    #[test]
    fn a_long_batch_gets_a_block_of_its_own() {
        let size = BlockSize { batches: 4, bytes: 16 };
        let block =
            |lengths: &[usize]| Block { batches: lengths.iter().map(|n| Batch::new(vec![0; *n])).collect(), ..block() };
        assert!(block(&[8, 8]).fits(size) && block(&[]).fits(size) && block(&[limits::BATCH_BYTES_MAX]).fits(size));
        assert!(!block(&[9, 8]).fits(size) && !block(&[1; 5]).fits(size));
        for size in [size, BlockSize::MAX] {
            assert!(!block(&[limits::BATCH_BYTES_MAX + 1]).fits(size));
            assert!(!block(&[limits::BATCH_BYTES_MAX + 1, 1]).fits(size));
        }
    }

    #[test]
    fn everything_in_a_block_changes_its_hash() {
        let others = [
            Block { parent: [8; 32], ..block() },
            Block { height: 4, ..block() },
            Block { time: 10, ..block() },
            Block { batches: vec![Batch::new(&b"abc"[..])], ..block() },
            Block { batches: vec![Batch::new(&b"c"[..]), Batch::new(&b"ab"[..])], ..block() },
        ];
        for other in others {
            assert_ne!(other.hash(), block().hash(), "{other:?}");
        }
        assert_ne!(Block::genesis(b"a").hash(), Block::genesis(b"b").hash());
    }
}
