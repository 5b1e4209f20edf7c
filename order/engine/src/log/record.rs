//! One record of the log: what is kept of one height, with a checksum.
//!
//! ```text
//! record = marker (8) ‖ kind (1) ‖ height (8) ‖ digest (32) ‖ durable (8) ‖ length (4) ‖ body ‖ CRC-32 (4)
//! ```
//! Integers are big-endian. The marker is the file's own random number: bytes that a client publishes cannot be taken for a
//! record. `durable` is the offset below which the file was known to be on disk when the record was appended: a bad record
//! below it is damage, a bad record above it is a torn write.

use bytes::BufMut as _;
use commonware_codec::{EncodeSize, Write};
use commonware_cryptography::Crc32;
use sealcast_wire::limits;

/// The random number that begins each record of one file.
pub(super) type Marker = [u8; 8];

/// What a record holds. Other kinds can join without a new version of the file: an unknown kind is refused by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A final block.
    Block,
    /// The certificate that proves a block final.
    Certificate,
    /// Records of the kind in the body are needed no more below this height.
    LowWaterMark,
}

impl Kind {
    pub(super) fn byte(self) -> u8 {
        match self {
            Kind::Block => 1,
            Kind::Certificate => 2,
            Kind::LowWaterMark => 3,
        }
    }

    pub(super) fn of(byte: u8) -> Option<Kind> {
        [Kind::Block, Kind::Certificate, Kind::LowWaterMark].into_iter().find(|kind| kind.byte() == byte)
    }
}

/// A record's fields without its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) height: u64,
    pub(super) digest: [u8; 32],
    pub(super) durable: u64,
    /// Bytes of the body.
    pub(super) length: usize,
}

impl Head {
    /// Bytes of the whole record.
    pub(super) fn record_bytes(&self) -> usize {
        HEAD_BYTES + self.length + CHECKSUM_BYTES
    }

    /// Reads the first [`HEAD_BYTES`] of a record; `None` if they are not those of a record of this file.
    pub(super) fn parse(bytes: &[u8], marker: &Marker) -> Option<Head> {
        let rest = bytes.strip_prefix(marker)?;
        let (kind, rest) = rest.split_first()?;
        let (height, rest) = rest.split_first_chunk::<8>()?;
        let (digest, rest) = rest.split_first_chunk::<32>()?;
        let (durable, rest) = rest.split_first_chunk::<8>()?;
        let (length, _) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let head = Head {
            kind: Kind::of(*kind)?,
            height: u64::from_be_bytes(*height),
            digest: *digest,
            durable: u64::from_be_bytes(*durable),
            length,
        };
        (length <= limits::LOG_BODY_BYTES_MAX).then_some(head)
    }
}

/// Appends a record to `buffer` and returns its length.
pub(super) fn append(
    buffer: &mut Vec<u8>,
    marker: &Marker,
    kind: Kind,
    height: u64,
    digest: &[u8; 32],
    durable: u64,
    body: &(impl EncodeSize + Write),
) -> usize {
    let begin = buffer.len();
    let length = body.encode_size();
    assert!(length <= limits::LOG_BODY_BYTES_MAX, "blocks and certificates have smaller limits");
    buffer.reserve(HEAD_BYTES + length + CHECKSUM_BYTES);
    buffer.put_slice(marker);
    buffer.put_u8(kind.byte());
    buffer.put_u64(height);
    buffer.put_slice(digest);
    buffer.put_u64(durable);
    buffer.put_u32(u32::try_from(length).expect("it was just bounded"));
    body.write(buffer);
    let checksum = Crc32::checksum(&buffer[begin..]);
    buffer.put_u32(checksum);
    buffer.len() - begin
}

/// Checks a whole record. `None` if it is not one of this file, or its checksum is false.
pub(super) fn check(bytes: &[u8], marker: &Marker) -> Option<Head> {
    let head = Head::parse(bytes, marker)?;
    let (content, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
    let whole = bytes.len() == head.record_bytes() && Crc32::checksum(content) == u32::from_be_bytes(*checksum);
    whole.then_some(head)
}

/// Bytes before a record's body.
pub(super) const HEAD_BYTES: usize = 8 + 1 + 8 + 32 + 8 + 4;
/// Bytes after it.
pub(super) const CHECKSUM_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: Marker = *b"of 1 log";

    fn record() -> Vec<u8> {
        let mut bytes = Vec::new();
        let length = append(&mut bytes, &MARKER, Kind::Block, 7, &[9; 32], 40, &0x0102_0304u32);
        assert_eq!(length, bytes.len());
        bytes
    }

    #[test]
    fn a_record_is_laid_out_as_documented() {
        let mut by_hand = MARKER.to_vec();
        by_hand.push(1);
        by_hand.extend(7u64.to_be_bytes());
        by_hand.extend([9; 32]);
        by_hand.extend(40u64.to_be_bytes());
        by_hand.extend([0, 0, 0, 4, 1, 2, 3, 4]);
        by_hand.extend(Crc32::checksum(&by_hand).to_be_bytes());
        assert_eq!(record(), by_hand);
        let head = Head { kind: Kind::Block, height: 7, digest: [9; 32], durable: 40, length: 4 };
        assert_eq!(check(&by_hand, &MARKER), Some(head));
    }

    #[test]
    fn rule_g2_a_changed_or_cut_record_is_none() {
        let record = record();
        for i in 0..record.len() {
            let mut changed = record.clone();
            changed[i] ^= 1;
            assert_eq!(check(&changed, &MARKER), None, "byte {i}");
            assert_eq!(check(&record[..i], &MARKER), None, "cut at {i}");
        }
        assert_eq!(check(&record, b"another!"), None);
    }
}
