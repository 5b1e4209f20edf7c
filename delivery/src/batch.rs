//! Datagrams laid end to end, ready for segmented sends (GSO).

use std::fmt;

use sealcast_wire::Address;
use sealcast_wire::limits::{TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX};

/// Datagrams laid end to end.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The bytes of all datagrams.
    pub bytes: Vec<u8>,
    /// Length of each datagram, in order; runs of equal length go out as one segmented send.
    pub lengths: Vec<usize>,
    /// Where to, if not to the group.
    pub to: Option<Address>,
}

/// A run of datagrams that leaves in one system call: all of `segment` bytes, the last perhaps shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train<'a> {
    /// The datagrams, end to end; at most `limits::TRAIN_BYTES_MAX` unless there is only one.
    pub bytes: &'a [u8],
    /// Length of each but the last, 1 and up unless the datagram is empty.
    pub segment: usize,
    /// How many; at most `limits::TRAIN_SEGMENTS_MAX`.
    pub count: usize,
}

impl Batch {
    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.lengths.clear();
        self.to = None;
    }

    /// Appends one whole datagram.
    pub fn push(&mut self, datagram: &[u8]) {
        self.bytes.extend_from_slice(datagram);
        self.lengths.push(datagram.len());
    }

    /// Appends all datagrams of another batch.
    pub fn append(&mut self, other: &Batch) {
        self.bytes.extend_from_slice(&other.bytes);
        self.lengths.extend_from_slice(&other.lengths);
    }

    /// The datagrams, one after the other.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        self.lengths.iter().map(move |n| {
            let d = &self.bytes[at..at + n];
            at += n;
            d
        })
    }

    /// The datagrams as runs that each leave in one segmented send, in order.
    ///
    /// The kernel cuts a buffer into equal segments of which only the last may be shorter, so a shorter
    /// datagram ends its run.
    pub fn trains(&self) -> impl Iterator<Item = Train<'_>> {
        let (mut at, mut next) = (0, 0);
        std::iter::from_fn(move || {
            let segment = *self.lengths.get(next)?;
            let (mut bytes, mut count) = (segment, 1);
            for &n in self.lengths[next + 1..].iter().take(TRAIN_SEGMENTS_MAX - 1) {
                if n > segment || n == 0 || bytes + n > TRAIN_BYTES_MAX {
                    break;
                }
                (bytes, count) = (bytes + n, count + 1);
                if n < segment {
                    break;
                }
            }
            let train = Train { bytes: &self.bytes[at..at + bytes], segment, count };
            (at, next) = (at + bytes, next + count);
            Some(train)
        })
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("lengths", &self.lengths).field("to", &self.to).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn batch(lengths: &[usize]) -> Batch {
        let mut batch = Batch::default();
        for (i, &n) in lengths.iter().enumerate() {
            batch.push(&vec![i as u8; n]);
        }
        batch
    }

    #[test]
    fn a_shorter_datagram_ends_its_run_and_a_longer_one_starts_the_next() {
        let batch = batch(&[10, 10, 4, 10, 12, 12]);
        let runs: Vec<_> = batch.trains().map(|t| (t.segment, t.count, t.bytes.len())).collect();
        assert_eq!(runs, [(10, 3, 24), (10, 1, 10), (12, 2, 24)]);
    }

    #[test]
    fn a_run_keeps_within_what_the_kernel_takes() {
        let many = batch(&[100; 130]);
        assert_eq!(many.trains().map(|t| t.count).collect::<Vec<_>>(), [64, 64, 2]);
        let big = batch(&[30_000; 5]);
        assert_eq!(big.trains().map(|t| t.count).collect::<Vec<_>>(), [2, 2, 1]);
    }

    proptest! {
        #[test]
        fn trains_carry_the_same_datagrams_in_the_same_order(
            lengths in prop::collection::vec(prop_oneof![0_usize..4, Just(1472), 1_usize..3000], 0..200)
        ) {
            let batch = batch(&lengths);
            let mut cut = Vec::new();
            for train in batch.trains() {
                prop_assert!(train.count <= TRAIN_SEGMENTS_MAX);
                prop_assert!(train.bytes.len() <= TRAIN_BYTES_MAX || train.count == 1);
                if train.segment == 0 {
                    cut.push(Vec::new());
                } else {
                    let before = cut.len();
                    cut.extend(train.bytes.chunks(train.segment).map(<[u8]>::to_vec));
                    prop_assert_eq!(cut.len() - before, train.count);
                }
            }
            prop_assert_eq!(cut, batch.iter().map(<[u8]>::to_vec).collect::<Vec<_>>());
        }
    }
}
