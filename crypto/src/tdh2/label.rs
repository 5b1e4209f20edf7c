//! What a ciphertext is bound to: who published it, when, what is to be done, and who may read.

use sealcast_wire::Envelope;
use sealcast_wire::envelope::NOTHING;
use sealcast_wire::limits::{LABEL_BYTES_MAX, LABEL_PARTS_MAX};

use crate::hash::sha256;

/// L: eight components of fixed meaning (S9: in the printed flat vector, a rule of access could pass for a header).
///
/// ```text
/// L  = (client, time, operation, H(executable), headers, access, epoch, policy version)
/// L' = SHA-256("CHIOS-v1/label" ‖ u32 8 ‖ u64 |L_1| ‖ L_1 ‖ … ‖ u64 |L_8| ‖ L_8)
/// headers = u32 count ‖ (u64 |topic| ‖ topic ‖ u64 |value| ‖ value)*      access = u32 count ‖ (u64 |rule| ‖ rule)*
/// ```
/// Times, epochs and versions are u64; all integers big-endian.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// cid: who publishes; what admission compares with who signed (S11).
    pub client: Vec<u8>,
    /// ts: the client's number of the publication; (cid, ts) is used once.
    pub time: u64,
    /// op: what kind of operation this is, with all of it that nothing else here binds.
    pub operation: Vec<u8>,
    /// H(o): hash of the executable operation, if there is one (S10); see [`Label::executes`].
    pub executable: Option<[u8; 32]>,
    /// hr: topics with their values, in the publisher's order.
    pub headers: Vec<Header>,
    /// ac: the rules of access, in the publisher's order.
    pub access: Vec<Vec<u8>>,
    /// The epoch of the key that it was sealed under.
    pub epoch: u64,
    /// The version of the global policy that the publisher knew (E6).
    pub policy: u64,
}

/// `topic=value`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Header {
    /// The topic.
    pub topic: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

impl Label {
    /// Of a client's publication, with nothing else said.
    pub fn new(client: &[u8], time: u64) -> Label {
        Label { client: client.to_vec(), time, ..Label::default() }
    }

    /// Of a client's publication to brokers, with all that stands on it: nothing moves from one component to another,
    /// neither a rule into the headers nor the executable operation away (S9, S10). Associated data goes with the kind
    /// of operation; a header without a value has an empty one, which no value is.
    pub fn of(client: &[u8], number: u64, envelope: &Envelope) -> Label {
        let header = |(topic, value): &(String, Option<String>)| Header {
            topic: topic.clone().into_bytes(),
            value: value.clone().unwrap_or_default().into_bytes(),
        };
        Label {
            client: client.to_vec(),
            time: number,
            operation: [b"pub", &envelope.associated[..]].concat(),
            executable: (envelope.execute != NOTHING).then(|| sha256(&envelope.execute)),
            headers: envelope.headers.iter().map(header).collect(),
            access: envelope.access.iter().cloned().collect(),
            epoch: u64::from(envelope.epoch),
            policy: envelope.policy,
        }
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, topic: &str, value: &str) -> Label {
        self.headers.push(Header { topic: topic.into(), value: value.into() });
        self
    }

    /// With one more rule of access.
    #[must_use]
    pub fn access(mut self, rule: &[u8]) -> Label {
        self.access.push(rule.to_vec());
        self
    }

    /// With the kind of operation.
    #[must_use]
    pub fn operation(mut self, operation: &[u8]) -> Label {
        self.operation = operation.to_vec();
        self
    }

    /// With an executable operation.
    #[must_use]
    pub fn executes(mut self, operation: &[u8]) -> Label {
        self.executable = Some(sha256(operation));
        self
    }

    /// With the key's epoch and the policy's version.
    #[must_use]
    pub fn under(mut self, epoch: u64, policy: u64) -> Label {
        (self.epoch, self.policy) = (epoch, policy);
        self
    }

    /// L'.
    pub fn hash(&self) -> [u8; 32] {
        vector_hash(&self.components())
    }

    /// u32 8 ‖ (u64 length ‖ component)*: what L' hashes, less its tag.
    pub fn encode(&self) -> Vec<u8> {
        encode_vector(&self.components())
    }

    /// Reads what [`Label::encode`] writes, and nothing else.
    ///
    /// # Errors
    /// [`LabelError`] for any other bytes, or more than limits allow.
    pub fn decode(bytes: &[u8]) -> Result<Label, LabelError> {
        if bytes.len() > LABEL_BYTES_MAX {
            return Err(LabelError);
        }
        let mut rest = bytes;
        if take_count(&mut rest)? != COMPONENTS {
            return Err(LabelError);
        }
        let mut next = || take_string(&mut rest);
        let label = Label {
            client: next()?.to_vec(),
            time: integer(next()?)?,
            operation: next()?.to_vec(),
            executable: match next()? {
                [] => None,
                hash => Some(hash.try_into().map_err(|_| LabelError)?),
            },
            headers: take_list(next()?, |rest| {
                Ok(Header { topic: take_string(rest)?.to_vec(), value: take_string(rest)?.to_vec() })
            })?,
            access: take_list(next()?, |rest| Ok(take_string(rest)?.to_vec()))?,
            epoch: integer(next()?)?,
            policy: integer(next()?)?,
        };
        if rest.is_empty() { Ok(label) } else { Err(LabelError) }
    }

    fn components(&self) -> [Vec<u8>; COMPONENTS] {
        let strings = |parts: &[&[u8]]| -> Vec<u8> {
            parts.iter().flat_map(|it| [&(it.len() as u64).to_be_bytes()[..], it].concat()).collect()
        };
        let count = |n: usize| (n as u32).to_be_bytes().to_vec();
        let headers = self.headers.iter().map(|it| strings(&[&it.topic, &it.value]));
        let access = self.access.iter().map(|it| strings(&[it]));
        [
            self.client.clone(),
            self.time.to_be_bytes().to_vec(),
            self.operation.clone(),
            self.executable.map(|it| it.to_vec()).unwrap_or_default(),
            std::iter::once(count(self.headers.len())).chain(headers).collect::<Vec<_>>().concat(),
            std::iter::once(count(self.access.len())).chain(access).collect::<Vec<_>>().concat(),
            self.epoch.to_be_bytes().to_vec(),
            self.policy.to_be_bytes().to_vec(),
        ]
    }
}

/// L' of any vector of strings, the empty one included (S8): one pass, every length explicit.
pub fn vector_hash(components: &[Vec<u8>]) -> [u8; 32] {
    sha256(&[&b"CHIOS-v1/label"[..], &encode_vector(components)].concat())
}

fn encode_vector(components: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = (components.len() as u32).to_be_bytes().to_vec();
    for component in components {
        bytes.extend_from_slice(&(component.len() as u64).to_be_bytes());
        bytes.extend_from_slice(component);
    }
    bytes
}

/// Bytes that are no label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a label")]
pub struct LabelError;

fn take_count(rest: &mut &[u8]) -> Result<usize, LabelError> {
    let (count, after) = rest.split_first_chunk().ok_or(LabelError)?;
    *rest = after;
    Ok(u32::from_be_bytes(*count) as usize)
}

fn take_string<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], LabelError> {
    let (length, after) = rest.split_first_chunk().ok_or(LabelError)?;
    let length = usize::try_from(u64::from_be_bytes(*length)).map_err(|_| LabelError)?;
    let (string, after) = after.split_at_checked(length).ok_or(LabelError)?;
    *rest = after;
    Ok(string)
}

fn take_list<T>(
    mut component: &[u8],
    mut one: impl FnMut(&mut &[u8]) -> Result<T, LabelError>,
) -> Result<Vec<T>, LabelError> {
    let count = take_count(&mut component)?;
    if count > LABEL_PARTS_MAX {
        return Err(LabelError);
    }
    let list = (0..count).map(|_| one(&mut component)).collect::<Result<_, _>>()?;
    if component.is_empty() { Ok(list) } else { Err(LabelError) }
}

fn integer(component: &[u8]) -> Result<u64, LabelError> {
    component.try_into().map(u64::from_be_bytes).map_err(|_| LabelError)
}

/// z.
const COMPONENTS: usize = 8;
