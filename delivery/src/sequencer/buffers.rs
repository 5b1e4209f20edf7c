//! Buffers of records that are kept for a while and then forgotten: some hundred thousand a second, too long for the
//! allocator's quick lists.

use sealcast_wire::limits;

/// Spare buffers, some of which the next records are kept in.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    spare: Vec<Vec<u8>>,
    /// What the spare ones could hold.
    bytes: usize,
}

impl Buffers {
    /// A copy of these bytes. A buffer is used again for what fills at least half of it: records have one message or as many as
    /// a datagram holds, and those of one message shall not be kept in buffers of the longest.
    pub(super) fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let Some(mut buffer) = self.spare.pop() else { return bytes.to_vec() };
        self.bytes -= buffer.capacity();
        if !(bytes.len()..=2 * bytes.len()).contains(&buffer.capacity()) {
            return bytes.to_vec();
        }
        buffer.clear();
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// Takes a buffer back.
    pub(super) fn give(&mut self, buffer: Vec<u8>) {
        if self.bytes + buffer.capacity() <= limits::SPARE_BYTES_MAX && buffer.capacity() > 0 {
            self.bytes += buffer.capacity();
            self.spare.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_nothing_of_what_the_buffer_held_before_and_spare_ones_are_bounded() {
        let mut buffers = Buffers::default();
        buffers.give(vec![7; 5]);
        let copy = buffers.copy(b"new");
        assert_eq!((&copy[..], copy.capacity(), buffers.bytes), (&b"new"[..], 5, 0));
        (0..20).for_each(|_| buffers.give(vec![0; limits::SPARE_BYTES_MAX / 8]));
        assert_eq!((buffers.spare.len(), buffers.bytes), (8, limits::SPARE_BYTES_MAX));
        buffers.give(vec![1]);
        assert_eq!(buffers.spare.len(), 8);
    }

    #[test]
    fn what_is_short_is_not_kept_in_a_long_buffer() {
        let mut buffers = Buffers::default();
        buffers.give(vec![0; 60_000]);
        let copy = buffers.copy(&[1; 1_100]);
        assert!(copy.len() == 1_100 && copy.capacity() < 2_300, "{} bytes", copy.capacity());
    }
}
