//! Big-endian bytes with checked lengths: nothing is allocated because a datagram claims it (G2).

/// The bytes do not have the form that they should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed bytes")]
pub struct Malformed;

/// Reads a byte slice from the front.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader at the first byte.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The next `n` bytes.
    #[inline]
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(Malformed)?;
        self.rest = rest;
        Ok(head)
    }

    /// The next `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(self.take(N)?.try_into().expect("take returned N bytes"))
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    /// Two bytes, big-endian.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    /// Four bytes, big-endian.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// Eight bytes, big-endian.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string of bytes behind a 16-bit length, of at most `max` bytes.
    pub fn bytes16(&mut self, max: usize) -> Result<&'a [u8], Malformed> {
        let n = usize::from(self.u16()?);
        if n > max { Err(Malformed) } else { self.take(n) }
    }

    /// A 16-bit count of things of at least `size` bytes each, checked against `max` and against
    /// what is left.
    pub fn count16(&mut self, size: usize, max: usize) -> Result<usize, Malformed> {
        let n = usize::from(self.u16()?);
        if n > max || n.saturating_mul(size) > self.rest.len() { Err(Malformed) } else { Ok(n) }
    }

    /// What is left, all of it.
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// How many bytes are left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Nothing may be left.
    #[inline]
    pub fn end(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

/// Appends to a byte vector.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty writer.
    pub fn new() -> Writer {
        Writer::default()
    }

    /// An empty writer with room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Writer {
        Writer { bytes: Vec::with_capacity(bytes) }
    }

    /// Bytes as they are; the reader must know their number.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// One byte.
    pub fn u8(&mut self, v: u8) -> &mut Self {
        self.raw(&[v])
    }

    /// Two bytes, big-endian.
    pub fn u16(&mut self, v: u16) -> &mut Self {
        self.raw(&v.to_be_bytes())
    }

    /// Four bytes, big-endian.
    pub fn u32(&mut self, v: u32) -> &mut Self {
        self.raw(&v.to_be_bytes())
    }

    /// Eight bytes, big-endian.
    pub fn u64(&mut self, v: u64) -> &mut Self {
        self.raw(&v.to_be_bytes())
    }

    /// Bytes behind a 16-bit length.
    ///
    /// # Panics
    /// If there are more than 65,535 of them: the caller's own limit must be lower.
    pub fn bytes16(&mut self, bytes: &[u8]) -> &mut Self {
        self.u16(u16::try_from(bytes.len()).expect("callers bound what they encode")).raw(bytes)
    }

    /// What was written so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, finished.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_g2_a_claimed_length_is_checked_before_use() {
        let mut r = Reader::new(&[0xFF, 0xFF, 1, 2]);
        assert_eq!(r.bytes16(1 << 15), Err(Malformed));
        let mut r = Reader::new(&[0x00, 0x10, 1, 2]);
        assert_eq!(r.count16(8, 1000), Err(Malformed));
    }

    #[test]
    fn what_is_written_is_read() {
        let mut w = Writer::new();
        w.u8(1).u16(2).u32(3).u64(4).bytes16(b"five");
        let bytes = w.finish();
        let mut r = Reader::new(&bytes);
        assert_eq!((r.u8(), r.u16(), r.u32(), r.u64()), (Ok(1), Ok(2), Ok(3), Ok(4)));
        assert_eq!(r.bytes16(4), Ok(&b"five"[..]));
        assert_eq!(r.end(), Ok(()));
    }
}
