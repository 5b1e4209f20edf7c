//! A publication: headers, rules, an executable operation, and a body that brokers need not understand.

use sealcast_crypto::tdh2::Label;
use sealcast_wire::{Envelope, Malformed, Reader, Writer, limits};

use super::constraint::{read_topic, read_value, write_value};
use super::{Client, read_bytes, write_bytes};
use crate::access::Access;

/// A topic and, if it has one, its value: `price=105`, `market/eurusd`. Each such pair has its own gap-free
/// numbers (Chios Fig. 2, `tp`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Header {
    /// A topic.
    pub topic: String,
    /// Its value.
    pub value: Option<String>,
}

/// Why nothing can be published at a topic. Brokers take no batch that tries; what was ordered before they looked stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// It holds a `+` or a `#`, which mean other topics in a pattern.
    #[error("a topic of a publication holds no + and no #: they are for patterns")]
    Wildcard,
    /// It holds a control character: who reads the name does not see it, and no rule for the visible name covers it.
    #[error("a topic of a publication holds no control characters")]
    Control,
    /// It begins or ends with a blank.
    #[error("a topic of a publication neither begins nor ends with a blank")]
    Blank,
}

/// Whether something can be published at a topic that [`sealcast_crypto::identity::check_topic`] takes: rules name topics by
/// patterns, and must not be evaded by a name that only looks like theirs.
///
/// # Errors
/// [`TopicError`].
pub fn check_published(topic: &str) -> Result<(), TopicError> {
    if topic.contains(['+', '#']) {
        Err(TopicError::Wildcard)
    } else if topic.chars().any(char::is_control) {
        Err(TopicError::Control)
    } else if topic.starts_with(char::is_whitespace) || topic.ends_with(char::is_whitespace) {
        Err(TopicError::Blank)
    } else {
        Ok(())
    }
}

/// What `pub` orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// One to [`limits::HEADERS_MAX`], no two the same; the order is the publisher's.
    pub headers: Vec<Header>,
    /// What need not be kept from brokers, beside the headers.
    pub associated: Vec<u8>,
    /// Who may read it, beside what the global policy says (Chios `ac`); `None` leaves it to that.
    pub access: Option<Access>,
    /// What brokers do with their key–value state (Chios `o`).
    pub execute: Execute,
    /// The number of the global policy that the publisher sealed for (E6).
    pub policy: u64,
    /// The epoch of the key that it sealed to (E6).
    pub epoch: u32,
    /// What readers get.
    pub body: Body,
}

/// An executable operation on the brokers' key–value state. Keys belong to the topic of the publication's
/// first header, so that who may publish there may change them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Execute {
    /// Nothing.
    Nothing,
    /// Sets a value.
    Put {
        /// Whose.
        key: Vec<u8>,
        /// To what.
        value: Vec<u8>,
    },
    /// Adds to a number, which begins at 0 and is 8 bytes, two's complement, big-endian. Answers the sum.
    Increment {
        /// Whose.
        key: Vec<u8>,
        /// How much.
        by: i64,
    },
    /// Sets a value if it is what is expected. Answers the value that it found otherwise.
    CompareAndSet {
        /// Whose.
        key: Vec<u8>,
        /// What it must be; `None`: it must not be there.
        expected: Option<Vec<u8>>,
        /// What it becomes.
        value: Vec<u8>,
    },
}

/// What readers get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Bytes that brokers can read (module 1).
    Plain(Vec<u8>),
    /// A ciphertext under the brokers' key (module 2), bound to [`Publication::label`].
    Sealed(Vec<u8>),
    /// Bytes that lie elsewhere.
    Digest {
        /// How many.
        size: u64,
        /// Their SHA-256.
        hash: [u8; 32],
    },
}

impl Publication {
    /// Whether something can be published at each of its topics.
    ///
    /// # Errors
    /// [`TopicError`] of the first where it cannot.
    pub fn check_topics(&self) -> Result<(), TopicError> {
        self.headers.iter().try_for_each(|it| check_published(&it.topic))
    }

    /// The label that a ciphertext is bound to: client, number, and everything of the publication but its body.
    pub fn label(&self, client: &Client, number: u64) -> Label {
        Label::of(&client.0, number, &self.envelope())
    }

    /// All of it but its body, as clients seal it.
    pub fn envelope(&self) -> Envelope {
        let mut execute = Writer::new();
        self.execute.encode(&mut execute);
        Envelope {
            headers: self.headers.iter().map(|h| (h.topic.clone(), h.value.clone())).collect(),
            associated: self.associated.clone(),
            access: self.access.as_ref().map(Access::to_bytes),
            execute: execute.finish(),
            policy: self.policy,
            epoch: self.epoch,
        }
    }

    /// The envelope's bytes, and the body.
    pub(super) fn encode(&self, w: &mut Writer) {
        write_headers(w, self.headers.iter());
        w.bytes16(&self.associated);
        match &self.access {
            None => w.u8(0),
            Some(access) => w.u8(1).bytes16(&access.to_bytes()),
        };
        self.execute.encode(w);
        w.u64(self.policy).u32(self.epoch);
        match &self.body {
            Body::Plain(bytes) => write_bytes(w.u8(1), bytes),
            Body::Sealed(bytes) => write_bytes(w.u8(2), bytes),
            Body::Digest { size, hash } => {
                w.u8(3).u64(*size).raw(hash);
            }
        }
    }

    /// What [`Publication::envelope`] took apart.
    ///
    /// # Errors
    /// [`Malformed`] if the envelope says what no publication may.
    pub fn of(envelope: &Envelope, body: Body) -> Result<Publication, Malformed> {
        let mut w = Writer::new();
        envelope.encode(&mut w);
        let mut r = Reader::new(w.as_slice());
        let publication = Publication::decode_envelope(&mut r)?;
        r.end()?;
        Ok(Publication { body, ..publication })
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Publication, Malformed> {
        let publication = Publication::decode_envelope(r)?;
        let body = match r.u8()? {
            1 => Body::Plain(read_bytes(r, limits::BODY_BYTES_MAX)?.to_vec()),
            2 => Body::Sealed(read_bytes(r, limits::BODY_BYTES_MAX)?.to_vec()),
            3 => Body::Digest { size: r.u64()?, hash: r.array()? },
            _ => return Err(Malformed),
        };
        Ok(Publication { body, ..publication })
    }

    /// All but the body, which is empty.
    fn decode_envelope(r: &mut Reader<'_>) -> Result<Publication, Malformed> {
        let headers = read_headers(r)?;
        let associated = r.bytes16(limits::ASSOCIATED_BYTES_MAX)?.to_vec();
        let access = match r.u8()? {
            0 => None,
            1 => Some(Access::from_bytes(r.bytes16(limits::EXPRESSION_BYTES_MAX)?)?),
            _ => return Err(Malformed),
        };
        let execute = Execute::decode(r)?;
        let (policy, epoch) = (r.u64()?, r.u32()?);
        Ok(Publication { headers, associated, access, execute, policy, epoch, body: Body::Plain(Vec::new()) })
    }
}

/// `u16 count ‖ (bytes16 topic ‖ value) …`
pub(crate) fn write_headers<'a>(w: &mut Writer, headers: impl ExactSizeIterator<Item = &'a Header>) {
    w.u16(u16::try_from(headers.len()).expect("headers have a limit"));
    for header in headers {
        w.bytes16(header.topic.as_bytes());
        write_value(w, header.value.as_deref());
    }
}

/// Reads what [`write_headers`] wrote; one or more, no two the same.
pub(crate) fn read_headers(r: &mut Reader<'_>) -> Result<Vec<Header>, Malformed> {
    let count = r.count16(4, limits::HEADERS_MAX)?;
    let mut headers = Vec::with_capacity(count);
    for _ in 0..count {
        let header = Header { topic: read_topic(r)?, value: read_value(r)? };
        if headers.contains(&header) {
            return Err(Malformed);
        }
        headers.push(header);
    }
    if headers.is_empty() { Err(Malformed) } else { Ok(headers) }
}

impl Body {
    /// Bytes that it brings.
    pub(super) fn len(&self) -> usize {
        match self {
            Body::Plain(bytes) | Body::Sealed(bytes) => bytes.len(),
            Body::Digest { .. } => 0,
        }
    }
}

impl Execute {
    fn encode(&self, w: &mut Writer) {
        match self {
            Execute::Nothing => w.u8(0),
            Execute::Put { key, value } => w.u8(1).bytes16(key).bytes16(value),
            Execute::Increment { key, by } => w.u8(2).bytes16(key).raw(&by.to_be_bytes()),
            Execute::CompareAndSet { key, expected: None, value } => w.u8(3).bytes16(key).u8(0).bytes16(value),
            Execute::CompareAndSet { key, expected: Some(expected), value } => {
                w.u8(3).bytes16(key).u8(1).bytes16(expected).bytes16(value)
            }
        };
    }

    fn decode(r: &mut Reader<'_>) -> Result<Execute, Malformed> {
        let kind = r.u8()?;
        if kind == 0 {
            return Ok(Execute::Nothing);
        }
        let key = r.bytes16(limits::VALUE_KEY_BYTES_MAX)?.to_vec();
        let value = |r: &mut Reader<'_>| r.bytes16(limits::VALUE_BYTES_MAX).map(<[u8]>::to_vec);
        match kind {
            1 => Ok(Execute::Put { key, value: value(r)? }),
            2 => Ok(Execute::Increment { key, by: i64::from_be_bytes(r.array()?) }),
            3 => {
                let expected = match r.u8()? {
                    0 => None,
                    1 => Some(value(r)?),
                    _ => return Err(Malformed),
                };
                Ok(Execute::CompareAndSet { key, expected, value: value(r)? })
            }
            _ => Err(Malformed),
        }
    }
}
