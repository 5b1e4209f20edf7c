//! A publication to brokers, all of it but its body: what they read, and what a sealed body is bound to.
//!
//! ```text
//! envelope = u16 count ‖ (bytes16 topic ‖ value) … ‖ bytes16 associated ‖ access ‖ execute ‖ u64 policy ‖ u32 epoch
//! value    = 0 | 1 ‖ bytes16 text        access = 0 | 1 ‖ bytes16 condition
//! execute  = 0 | 1 ‖ bytes16 key ‖ bytes16 value | 2 ‖ bytes16 key ‖ i64 | 3 ‖ bytes16 key ‖ (0 | 1 ‖ bytes16) ‖ bytes16
//! ```
//! Brokers know what conditions and executable operations mean; here they are bytes of known extent, so that
//! clients name to brokers exactly what they sealed.
//!
//! ```text
//! sealed header = u8 1 ‖ client, 32 ‖ u64 number ‖ envelope         what stands before a ciphertext
//! ```

use crate::codec::{Malformed, Reader, Writer};
use crate::limits;
use crate::member::EpochId;

/// What stands on a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Topics with their values, if they have any: 1 to `HEADERS_MAX`, in the publisher's order, no two the same.
    pub headers: Vec<(String, Option<String>)>,
    /// What need not be kept from brokers.
    pub associated: Vec<u8>,
    /// The condition on readers in its bytes; `None` leaves it to the global policy.
    pub access: Option<Vec<u8>>,
    /// The executable operation in its bytes; [`NOTHING`] for none.
    pub execute: Vec<u8>,
    /// The number of the global policy that the publisher knows (E6).
    pub policy: u64,
    /// The epoch of the key that it knows (E6).
    pub epoch: u32,
}

impl Envelope {
    /// One topic and nothing else.
    pub fn of_topic(topic: &str) -> Envelope {
        Envelope {
            headers: vec![(topic.to_owned(), None)],
            associated: Vec::new(),
            access: None,
            execute: NOTHING.to_vec(),
            policy: 0,
            epoch: 0,
        }
    }

    /// The first topic.
    pub fn topic(&self) -> &str {
        self.headers.first().map_or("", |(topic, _)| topic)
    }

    /// Its bytes.
    pub fn encode(&self, w: &mut Writer) {
        w.u16(u16::try_from(self.headers.len()).expect("headers have a limit"));
        for (topic, value) in &self.headers {
            w.bytes16(topic.as_bytes());
            match value {
                None => w.u8(0),
                Some(text) => w.u8(1).bytes16(text.as_bytes()),
            };
        }
        w.bytes16(&self.associated);
        match &self.access {
            None => w.u8(0),
            Some(condition) => w.u8(1).bytes16(condition),
        };
        w.raw(&self.execute).u64(self.policy).u32(self.epoch);
    }

    /// Reads what [`Envelope::encode`] wrote.
    ///
    /// # Errors
    /// [`Malformed`], also for what is over a limit.
    pub fn decode(r: &mut Reader<'_>) -> Result<Envelope, Malformed> {
        let count = r.count16(4, limits::HEADERS_MAX)?;
        let mut headers = Vec::with_capacity(count);
        for _ in 0..count {
            let topic = text(r)?;
            let header = (topic, if flag(r)? { Some(text(r)?) } else { None });
            if headers.contains(&header) {
                return Err(Malformed);
            }
            headers.push(header);
        }
        if headers.is_empty() {
            return Err(Malformed);
        }
        let associated = r.bytes16(limits::ASSOCIATED_BYTES_MAX)?.to_vec();
        let access = if flag(r)? { Some(r.bytes16(limits::EXPRESSION_BYTES_MAX)?.to_vec()) } else { None };
        let execute = execute(r)?.to_vec();
        Ok(Envelope { headers, associated, access, execute, policy: r.u64()?, epoch: r.u32()? })
    }

    /// Whether [`Envelope::decode`] would read it back: for what a caller composed.
    pub fn is_sound(&self) -> bool {
        let text = |it: &str| (1..=limits::TOPIC_BYTES_MAX).contains(&it.len());
        let bounded = self.headers.len() <= limits::HEADERS_MAX
            && self.headers.iter().all(|(topic, value)| text(topic) && value.as_deref().is_none_or(text))
            && self.associated.len() <= limits::ASSOCIATED_BYTES_MAX
            && self.access.as_ref().is_none_or(|it| it.len() <= limits::EXPRESSION_BYTES_MAX);
        if !bounded {
            return false;
        }
        let mut w = Writer::new();
        self.encode(&mut w);
        let mut r = Reader::new(w.as_slice());
        Envelope::decode(&mut r).as_ref() == Ok(self) && r.end().is_ok()
    }
}

/// What stands before a ciphertext: all that it is bound to. Whoever carries it reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedHeader {
    /// Who publishes.
    pub client: [u8; 32],
    /// Its number of the publication.
    pub number: u64,
    /// The publication, less its body.
    pub envelope: Envelope,
}

impl SealedHeader {
    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(VERSION).raw(&self.client).u64(self.number);
        self.envelope.encode(&mut w);
        w.finish()
    }

    /// Reads what [`SealedHeader::to_bytes`] wrote, and nothing else.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<SealedHeader, Malformed> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return Err(Malformed);
        }
        let header = SealedHeader { client: r.array()?, number: r.u64()?, envelope: Envelope::decode(&mut r)? };
        r.end()?;
        Ok(header)
    }
}

/// A message that a key scheme sealed as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// What carriers read.
    pub header: Vec<u8>,
    /// What they cannot read.
    pub body: Vec<u8>,
    /// The key epoch that it was sealed for.
    pub epoch: EpochId,
}

/// The capability to seal one message as a whole, as [`crate::Protect`] is one to seal datagrams: the transport that is handed
/// it names the id that the message is bound to, and sees no plaintext.
pub trait SealMessage {
    /// Seals the message under the transport's id of it, or under one that the sealer draws.
    ///
    /// # Errors
    /// [`Unsealed`]; whoever handed the capability over knows why.
    fn seal(&self, id: Option<[u8; 16]>) -> Result<Sealed, Unsealed>;
}

/// The key scheme did not seal a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key scheme did not seal the message")]
pub struct Unsealed;

/// The bytes of an executable operation, of whatever kind.
fn execute<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let mut ahead = *r;
    let kind = ahead.u8()?;
    if kind > 3 {
        return Err(Malformed);
    }
    if kind > 0 {
        ahead.bytes16(limits::VALUE_KEY_BYTES_MAX)?;
    }
    if kind == 2 {
        ahead.take(8)?;
    }
    if kind == 3 && flag(&mut ahead)? {
        ahead.bytes16(limits::VALUE_BYTES_MAX)?;
    }
    if kind == 1 || kind == 3 {
        ahead.bytes16(limits::VALUE_BYTES_MAX)?;
    }
    r.take(r.remaining() - ahead.remaining())
}

fn text(r: &mut Reader<'_>) -> Result<String, Malformed> {
    let text = std::str::from_utf8(r.bytes16(limits::TOPIC_BYTES_MAX)?).map_err(|_| Malformed)?;
    if text.is_empty() { Err(Malformed) } else { Ok(text.to_owned()) }
}

fn flag(r: &mut Reader<'_>) -> Result<bool, Malformed> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

/// Of a sealed header.
const VERSION: u8 = 1;

/// No executable operation.
pub const NOTHING: &[u8] = &[0];

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Envelope {
        Envelope {
            headers: vec![("market/eurusd".into(), None), ("price".into(), Some("105".into()))],
            associated: b"ad".to_vec(),
            access: Some(b"condition".to_vec()),
            execute: NOTHING.to_vec(),
            policy: 3,
            epoch: 1,
        }
    }

    fn bytes(it: &Envelope) -> Vec<u8> {
        let mut w = Writer::new();
        it.encode(&mut w);
        w.finish()
    }

    #[test]
    fn what_is_written_is_read_whatever_is_executed() {
        let operations: [&[u8]; 5] = [
            &[0],
            b"\x01\0\x01k\0\x01v",
            b"\x02\0\x01k12345678",
            b"\x03\0\x01k\0\0\x01v",
            b"\x03\0\x01k\x01\0\x01e\0\x01v",
        ];
        for execute in operations {
            let it = Envelope { execute: execute.to_vec(), ..sample() };
            let bytes = bytes(&it);
            let mut r = Reader::new(&bytes);
            assert_eq!(Envelope::decode(&mut r), Ok(it.clone()));
            assert!(r.end().is_ok() && it.is_sound());
            for n in 0..bytes.len() {
                assert_eq!(Envelope::decode(&mut Reader::new(&bytes[..n])), Err(Malformed), "{n} bytes");
            }
        }
    }

    #[test]
    fn a_sealed_header_is_read_whole_or_not_at_all() {
        let it = SealedHeader { client: [7; 32], number: 9, envelope: sample() };
        let bytes = it.to_bytes();
        assert_eq!(SealedHeader::from_bytes(&bytes), Ok(it));
        for n in 0..bytes.len() {
            assert_eq!(SealedHeader::from_bytes(&bytes[..n]), Err(Malformed), "{n} bytes");
        }
        for other in [[&[2], &bytes[1..]].concat(), [&bytes[..], &[0]].concat()] {
            assert_eq!(SealedHeader::from_bytes(&other), Err(Malformed));
        }
    }

    #[test]
    fn rule_g2_what_is_over_a_limit_or_has_another_encoding_is_refused() {
        let twice = vec![("a".to_owned(), None), ("a".to_owned(), None)];
        for it in [
            Envelope { headers: vec![], ..sample() },
            Envelope { headers: twice, ..sample() },
            Envelope { headers: vec![("".into(), None)], ..sample() },
            Envelope { headers: vec![("a".into(), Some("".into()))], ..sample() },
            Envelope { headers: (0..17).map(|i| (i.to_string(), None)).collect(), ..sample() },
            Envelope { execute: vec![], ..sample() },
            Envelope { execute: vec![4], ..sample() },
            Envelope { execute: vec![0, 0], ..sample() },
            Envelope { associated: vec![0; limits::ASSOCIATED_BYTES_MAX + 1], ..sample() },
            Envelope { access: Some(vec![0; limits::EXPRESSION_BYTES_MAX + 1]), ..sample() },
        ] {
            assert!(!it.is_sound(), "{it:?}");
        }
    }
}
