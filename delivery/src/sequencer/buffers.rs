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
    /// A copy of these bytes.
    pub(super) fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let Some(mut buffer) = self.spare.pop() else { return bytes.to_vec() };
        self.bytes -= buffer.capacity();
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
        buffers.give(vec![7; 100]);
        let copy = buffers.copy(b"new");
        assert_eq!((&copy[..], copy.capacity(), buffers.bytes), (&b"new"[..], 100, 0));
        (0..20).for_each(|_| buffers.give(vec![0; limits::SPARE_BYTES_MAX / 8]));
        assert_eq!((buffers.spare.len(), buffers.bytes), (8, limits::SPARE_BYTES_MAX));
        buffers.give(vec![1]);
        assert_eq!(buffers.spare.len(), 8);
    }
}
