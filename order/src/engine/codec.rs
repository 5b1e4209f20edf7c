//! A block as the engine's own traits want it. The layout is described in `block`.

use std::sync::Arc;

use bytes::BufMut;
use commonware_codec::{Buf, BufsMut, EncodeSize, Error, Read, Write};
use commonware_consensus::types::Height;
use commonware_consensus::{BoundedBlock, Heightable};
use commonware_cryptography::{Digestible, sha256};
use sealcast_wire::limits;

use crate::block::{Batch, Block, BlockSize, HEADER_BYTES, LENGTH_BYTES, VERSION};

fn length(n: usize) -> u32 {
    u32::try_from(n).expect("a block is bounded far below 2^32")
}

fn write_header(block: &Block, buf: &mut impl BufMut) {
    buf.put_u8(VERSION);
    buf.put_slice(&block.parent);
    buf.put_u64(block.height);
    buf.put_u64(block.time);
    buf.put_u32(length(block.batches.len()));
}

impl Write for Block {
    fn write(&self, buf: &mut impl BufMut) {
        write_header(self, buf);
        for batch in &self.batches {
            buf.put_u32(length(batch.bytes().len()));
            buf.put_slice(batch.bytes());
        }
    }

    fn write_bufs(&self, buf: &mut impl BufsMut) {
        write_header(self, buf);
        for batch in &self.batches {
            buf.put_u32(length(batch.bytes().len()));
            buf.push(batch.bytes().clone());
        }
    }
}

impl EncodeSize for Block {
    fn encode_size(&self) -> usize {
        self.encode_inline_size() + self.bytes()
    }

    fn encode_inline_size(&self) -> usize {
        HEADER_BYTES + self.batches.len() * LENGTH_BYTES
    }
}

impl Read for Block {
    type Cfg = BlockSize;

    fn read_cfg(buf: &mut impl Buf, size: &BlockSize) -> Result<Block, Error> {
        let short = |_| Error::EndOfBuffer;
        if buf.try_get_u8().map_err(short)? != VERSION {
            return Err(Error::Invalid("block", "unknown version"));
        }
        let mut parent = [0; 32];
        buf.try_copy_to_slice(&mut parent).map_err(short)?;
        let height = buf.try_get_u64().map_err(short)?;
        let time = buf.try_get_u64().map_err(short)?;
        let count = buf.try_get_u32().map_err(short)? as usize;
        // Nothing is allocated for a count that the bytes at hand cannot hold (G2).
        if count > size.batches || count.saturating_mul(LENGTH_BYTES) > buf.remaining() {
            return Err(Error::InvalidLength(count));
        }
        let mut room = size.room(count);
        let mut batches = Vec::with_capacity(count);
        for _ in 0..count {
            let n = buf.try_get_u32().map_err(short)? as usize;
            if n > limits::BATCH_BYTES_MAX {
                return Err(Error::InvalidLength(n));
            }
            room = room.checked_sub(n).ok_or(Error::InvalidLength(n))?;
            batches.push(Batch::new(buf.try_take_owned::<bytes::Bytes>(n).map_err(short)?));
        }
        Ok(Block { parent, height, time, batches })
    }
}

impl Digestible for Block {
    type Digest = sha256::Digest;

    fn digest(&self) -> sha256::Digest {
        sha256::Digest(self.hash())
    }
}

impl Heightable for Block {
    fn height(&self) -> Height {
        Height::new(self.height)
    }
}

impl commonware_consensus::Block for Block {
    fn parent(&self) -> sha256::Digest {
        sha256::Digest(self.parent)
    }
}

impl BoundedBlock for Block {
    fn max_encode_size(size: &BlockSize) -> usize {
        HEADER_BYTES + batches_bytes_max(*size)
    }
}

/// Batches on their way to the leader: as in a block, without a header.
pub(super) fn encode_batches(batches: &[Batch]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(batches.iter().map(|f| LENGTH_BYTES + f.bytes().len()).sum());
    for batch in batches {
        bytes.put_u32(length(batch.bytes().len()));
        bytes.put_slice(batch.bytes());
    }
    bytes
}

/// The batches in such a message; nothing if one of them breaks a bound.
pub(super) fn decode_batches(mut buf: impl Buf, size: BlockSize) -> Option<Vec<Batch>> {
    let mut batches = Vec::new();
    while buf.has_remaining() {
        let n = buf.try_get_u32().ok()? as usize;
        if n > limits::BATCH_BYTES_MAX || batches.len() == size.batches {
            return None;
        }
        batches.push(Batch::new(buf.try_take_owned::<bytes::Bytes>(n).ok()?));
    }
    Some(batches)
}

/// The longest such message.
pub(super) fn batches_bytes_max(size: BlockSize) -> usize {
    size.batches * LENGTH_BYTES + size.bytes.max(limits::BATCH_BYTES_MAX)
}

/// A shared block without a copy, where nobody else holds it.
pub(super) fn shared(block: commonware_cryptography::Digested<Block>) -> Arc<Block> {
    block.inner_shared()
}

#[cfg(test)]
mod tests {
    use commonware_codec::{Decode, Encode};

    use super::*;

    const SIZE: BlockSize = BlockSize { batches: 3, bytes: 16 };

    fn block() -> Block {
        let batches = vec![Batch::new(&b"hello"[..]), Batch::new(&b""[..]), Batch::new(&b"you"[..])];
        Block { parent: [1; 32], height: 0x0102, time: 3, batches }
    }

    #[test]
    fn a_blocks_encoding_is_the_documented_one() {
        let mut by_hand = vec![1];
        by_hand.extend([1; 32]);
        by_hand.extend(0x0102u64.to_be_bytes());
        by_hand.extend(3u64.to_be_bytes());
        by_hand.extend([0, 0, 0, 3, 0, 0, 0, 5]);
        by_hand.extend(b"hello\0\0\0\0\0\0\0\x03you");
        assert_eq!(block().encode(), by_hand);
        assert_eq!(Block::decode_cfg(bytes::Bytes::from(by_hand), &SIZE).expect("it is canonical"), block());
        assert!(block().encode_size() <= Block::max_encode_size(&SIZE));
    }

    #[test]
    fn rule_g2_a_block_beyond_its_bounds_is_not_decoded() {
        let bytes = block().encode();
        for size in [BlockSize { batches: 2, bytes: 16 }, BlockSize { batches: 3, bytes: 7 }] {
            assert!(Block::decode_cfg(bytes.clone(), &size).is_err(), "{size:?}");
        }
        for cut in 0..bytes.len() {
            assert!(Block::decode_cfg(bytes.slice(..cut), &SIZE).is_err(), "cut at {cut}");
        }
        let mut huge = bytes[..HEADER_BYTES - 4].to_vec();
        huge.extend([0xff; 4]);
        assert!(Block::decode_cfg(bytes::Bytes::from(huge), &BlockSize { batches: usize::MAX, bytes: 16 }).is_err());

        let long = Batch::new(vec![0; limits::BATCH_BYTES_MAX]);
        let two = |batch: Batch| Block { batches: vec![batch, Batch::new(&b"it"[..])], ..block() }.encode();
        assert!(Block::decode_cfg(two(long.clone()), &BlockSize::MAX).is_ok());
        let longer = Batch::new([long.bytes(), &b"!"[..]].concat());
        assert!(Block::decode_cfg(two(longer), &BlockSize::MAX).is_err(), "a batch beyond its own bound");
    }

    #[test]
    fn forwarded_batches_come_back_and_garbage_does_not() {
        let batches = block().batches;
        let bytes = bytes::Bytes::from(encode_batches(&batches));
        assert!(bytes.len() <= batches_bytes_max(SIZE));
        assert_eq!(decode_batches(bytes.clone(), SIZE), Some(batches));
        assert_eq!(decode_batches(bytes.slice(..bytes.len() - 1), SIZE), None);
        assert_eq!(decode_batches(bytes, BlockSize { batches: 2, bytes: 16 }), None);
    }
}
