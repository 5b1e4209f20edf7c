//! What requests, responses and saved state share of their form.

use sealcast_wire::{Malformed, Reader, Writer};

/// Why bytes are no request, response or saved state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The first byte names another version of this protocol.
    #[error("the message is of another version of the protocol")]
    Version,
    /// The bytes do not parse.
    #[error("the message is malformed")]
    Malformed,
    /// A part is over its limit.
    #[error("a part of the message is over its limit")]
    TooLarge,
}

impl From<Malformed> for FormatError {
    fn from(_: Malformed) -> FormatError {
        FormatError::Malformed
    }
}

/// Bytes behind a 32-bit length.
pub(crate) fn put_bytes32(w: &mut Writer, bytes: &[u8]) {
    w.u32(u32::try_from(bytes.len()).expect("callers bound what they encode")).raw(bytes);
}

/// Reads what [`put_bytes32`] wrote, of at most `max` bytes.
pub(crate) fn bytes32<'a>(r: &mut Reader<'a>, max: usize) -> Result<&'a [u8], FormatError> {
    let length = r.u32()? as usize;
    if length > max {
        return Err(FormatError::TooLarge);
    }
    Ok(r.take(length)?)
}

/// A 16-bit count of things of at least `size` bytes each.
pub(crate) fn count(r: &mut Reader<'_>, size: usize, max: usize) -> Result<usize, FormatError> {
    let n = usize::from(r.u16()?);
    if n > max {
        return Err(FormatError::TooLarge);
    }
    if n.saturating_mul(size) > r.remaining() { Err(FormatError::Malformed) } else { Ok(n) }
}

pub(crate) fn put_count(w: &mut Writer, n: usize) {
    w.u16(u16::try_from(n).expect("callers bound what they encode"));
}

/// Something that may be absent: 0, or 1 and the thing.
pub(crate) fn put_option<T>(w: &mut Writer, it: Option<T>, put: impl FnOnce(&mut Writer, T)) {
    match it {
        None => _ = w.u8(0),
        Some(it) => put(w.u8(1), it),
    }
}

/// Reads what [`put_option`] wrote.
pub(crate) fn option<'a, T>(
    r: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, FormatError>,
) -> Result<Option<T>, FormatError> {
    match r.u8()? {
        0 => Ok(None),
        1 => read(r).map(Some),
        _ => Err(FormatError::Malformed),
    }
}

pub(crate) fn put_key(w: &mut Writer, key: Option<&[u8; 32]>) {
    put_option(w, key, |w, key| _ = w.raw(key));
}

pub(crate) fn key(r: &mut Reader<'_>) -> Result<Option<[u8; 32]>, FormatError> {
    option(r, |r| Ok(r.array()?))
}
