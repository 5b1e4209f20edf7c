//! A block as the engine's own traits want it. The layout is described in `block`.

use std::ops::Deref;
use std::sync::Arc;

use bytes::BufMut;
use commonware_codec::{Buf, BufsMut, EncodeSize, Error, Read, Write};
use commonware_consensus::types::Height;
use commonware_consensus::{BoundedBlock, Heightable};
use commonware_cryptography::{Digested, Digestible, sha256};
use sealcast_order::{Batch, Block, BlockSize, HEADER_BYTES, LENGTH_BYTES, Malformed};
use sealcast_wire::limits;

/// A block that has the engine's traits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineBlock(Arc<Block>);

impl EngineBlock {
    /// With its hash, where that is known.
    pub(super) fn digested(self, hash: [u8; 32]) -> Digested<EngineBlock> {
        Digested::precomputed(self, sha256::Digest(hash))
    }
}

impl From<Block> for EngineBlock {
    fn from(block: Block) -> EngineBlock {
        EngineBlock(Arc::new(block))
    }
}

impl Deref for EngineBlock {
    type Target = Block;

    fn deref(&self) -> &Block {
        &self.0
    }
}

impl Write for EngineBlock {
    fn write(&self, buf: &mut impl BufMut) {
        self.put(buf);
    }

    fn write_bufs(&self, buf: &mut impl BufsMut) {
        self.put_head(buf);
        for batch in &self.batches {
            buf.put_u32(u32::try_from(batch.bytes().len()).expect("a batch is bounded far below 2^32"));
            buf.push(batch.bytes().clone());
        }
    }
}

impl EncodeSize for EngineBlock {
    fn encode_size(&self) -> usize {
        self.encode_inline_size() + self.bytes()
    }

    fn encode_inline_size(&self) -> usize {
        HEADER_BYTES + self.batches.len() * LENGTH_BYTES
    }
}

impl Read for EngineBlock {
    type Cfg = BlockSize;

    fn read_cfg(buf: &mut impl Buf, size: &BlockSize) -> Result<EngineBlock, Error> {
        let error = |malformed| match malformed {
            Malformed::Version => Error::Invalid("block", "unknown version"),
            Malformed::Short => Error::EndOfBuffer,
            Malformed::Length(n) => Error::InvalidLength(n),
        };
        Block::take(buf, *size).map(EngineBlock::from).map_err(error)
    }
}

impl Digestible for EngineBlock {
    type Digest = sha256::Digest;

    fn digest(&self) -> sha256::Digest {
        sha256::Digest(self.hash())
    }
}

impl Heightable for EngineBlock {
    fn height(&self) -> Height {
        Height::new(self.height)
    }
}

impl commonware_consensus::Block for EngineBlock {
    fn parent(&self) -> sha256::Digest {
        sha256::Digest(self.parent)
    }
}

impl BoundedBlock for EngineBlock {
    fn max_encode_size(size: &BlockSize) -> usize {
        HEADER_BYTES + batches_bytes_max(*size)
    }
}

/// Batches on their way to the leader: as in a block, without a header.
pub(super) fn encode_batches(batches: &[Batch]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(batches.iter().map(|f| LENGTH_BYTES + f.bytes().len()).sum());
    for batch in batches {
        batch.put(&mut bytes);
    }
    bytes
}

/// The batches in such a message; nothing if one of them breaks a bound.
pub(super) fn decode_batches(mut buf: impl Buf, size: BlockSize) -> Option<Vec<Batch>> {
    let mut batches = Vec::new();
    while buf.has_remaining() {
        if batches.len() == size.batches {
            return None;
        }
        batches.push(Batch::take(&mut buf).ok()?);
    }
    Some(batches)
}

/// The longest such message.
pub(super) fn batches_bytes_max(size: BlockSize) -> usize {
    size.batches * LENGTH_BYTES + size.bytes.max(limits::BATCH_BYTES_MAX)
}

/// The block alone.
pub(super) fn shared(block: &Digested<EngineBlock>) -> Arc<Block> {
    block.inner().0.clone()
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
    fn the_engine_encodes_a_block_as_everybody_does() {
        let block = EngineBlock::from(block());
        assert_eq!(block.encode(), block.to_bytes());
        assert_eq!(EngineBlock::decode_cfg(bytes::Bytes::from(block.to_bytes()), &SIZE).expect("it is one"), block);
        assert_eq!(block.encode_size(), block.to_bytes().len());
        assert!(block.encode_size() <= EngineBlock::max_encode_size(&SIZE));
        let long = bytes::Bytes::from([&block.to_bytes()[..], b"!"].concat());
        assert!(EngineBlock::decode_cfg(long, &SIZE).is_err());
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
