//! Messages on a channel: each behind its length, a big-endian `u32`. Reads and writes nothing by itself.

use std::io;

/// Bytes of a message's length.
pub const LENGTH_BYTES: usize = 4;

/// Why a message is not read: it is longer than its reader takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl From<TooLong> for io::Error {
    fn from(_: TooLong) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, "a message is too long")
    }
}

/// What goes before a message of so many bytes.
///
/// # Panics
/// If they are 2³² or more; messages have lower limits.
pub fn length(bytes: usize) -> [u8; LENGTH_BYTES] {
    u32::try_from(bytes).expect("messages have a limit").to_be_bytes()
}

/// A message behind its length.
///
/// # Panics
/// As [`length`].
pub fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LENGTH_BYTES + message.len());
    bytes.extend_from_slice(&length(message.len()));
    bytes.extend_from_slice(message);
    bytes
}

/// How long the message at the beginning of `bytes` says it is; `None` if its length is not there yet.
///
/// # Errors
/// [`TooLong`] if it is longer than `most` bytes.
pub fn announced(bytes: &[u8], most: usize) -> Result<Option<usize>, TooLong> {
    let Some(head) = bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes(*head) as usize;
    if length > most { Err(TooLong) } else { Ok(Some(length)) }
}

/// The message at the beginning of `bytes`; `None` if not all of it is there.
///
/// # Errors
/// As [`announced`], as soon as the length is there.
pub fn first(bytes: &[u8], most: usize) -> Result<Option<&[u8]>, TooLong> {
    let Some(length) = announced(bytes, most)? else { return Ok(None) };
    Ok(bytes[LENGTH_BYTES..].get(..length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in_however_they_are_cut() {
        let sent = [framed(b""), framed(b"abc"), framed(&[7; 300])].concat();
        let (mut buffer, mut got) = (Vec::new(), Vec::new());
        for byte in &sent {
            buffer.push(*byte);
            while let Some(message) = first(&buffer, 300).expect("none is too long") {
                got.push(message.len());
                buffer.drain(..LENGTH_BYTES + got[got.len() - 1]);
            }
        }
        assert_eq!((got, buffer.len()), (vec![0, 3, 300], 0));
    }

    #[test]
    fn rule_g2_a_message_that_is_too_long_is_refused_by_its_length_alone() {
        assert_eq!(first(&length(301), 300), Err(TooLong));
        assert_eq!(announced(&[0xff; 4], 300), Err(TooLong));
        assert_eq!((announced(&[0xff; 3], 300), first(&length(300), 300)), (Ok(None), Ok(None)));
    }
}
