//! Payloads that say who published them, so that checkers know a message when they see it.

use sealcast_wire::{Reader, Writer};

/// The payload of a test message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Body {
    /// Which node published it.
    pub author: u32,
    /// Which of its processes, counted from 1.
    pub life: u32,
    /// Which of its messages.
    pub number: u64,
}

impl Body {
    /// The payload, padded to `length` bytes.
    pub fn bytes(&self, length: usize) -> Vec<u8> {
        let mut w = Writer::new();
        w.raw(MARKER).u32(self.author).u32(self.life).u64(self.number);
        let mut bytes = w.finish();
        bytes.resize(length.max(bytes.len()), b'.');
        bytes
    }

    /// Reads a payload from the front of other bytes.
    pub fn begins(bytes: &[u8]) -> Option<Body> {
        let mut r = Reader::new(bytes.strip_prefix(MARKER)?);
        Some(Body { author: r.u32().ok()?, life: r.u32().ok()?, number: r.u64().ok()? })
    }

    /// Reads a payload; `None` if it is not one of ours.
    pub fn read(bytes: &[u8]) -> Option<Body> {
        let body = Body::begins(bytes)?;
        bytes[LENGTH..].iter().all(|b| *b == b'.').then_some(body)
    }
}

/// Bytes before the padding.
const LENGTH: usize = MARKER.len() + 16;
/// Begins every payload; must never be seen on the wire.
pub const MARKER: &[u8] = b"FOR-MEMBERS-ONLY";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_as_written_and_nothing_else_is() {
        let body = Body { author: 3, life: 1, number: 99 };
        for length in [0, 32, 100] {
            assert_eq!(Body::read(&body.bytes(length)), Some(body));
        }
        let mut changed = body.bytes(64);
        changed[60] ^= 1;
        assert_eq!(Body::read(&changed), None);
        assert_eq!(Body::read(b"hello"), None);
    }
}
