//! What clients ask of brokers, and the batches in which they sign it.
//!
//! ```text
//! operation = 1 reg       | u8 intent | proof
//!           | 2 advertise | bytes16 interest's scope | bytes16 text
//!           | 3 sub       | bytes16 interest          its id is the operation's number
//!           | 4 unsub     | u64 id
//!           | 5 pub       | publication
//!           | 6 admin     | u64 number | action | signatures
//!           | 7 sync      |                           nothing; its result names a height (E9)
//!           | 8 ceremony  | u32 length | bytes        a broker's word in making the threshold key (E8)
//!           | 9 accuse    | accusation                evidence against a publisher (E4)
//! ```
//! Every value has one encoding, and nothing else is read. The details stand with each type, and in
//! docs/WIRE.md.

pub mod accusation;
pub mod admin;
mod batch;
pub mod constraint;
pub mod policy;
pub mod publication;
pub mod registration;
#[cfg(test)]
mod tests;
mod unregistered;

use std::fmt;

use sealcast_crypto::hash::Transcript;
use sealcast_wire::{Malformed, Reader, Writer, limits};

pub use accusation::Accusation;
pub use admin::{Action, Admin, AdminError};
pub use batch::{Batch, BatchError, Checked, Head, Keys, Sealed, check, sign_encoded};
pub use constraint::{Constraint, Interest};
pub use policy::{Act, Policy, Rule};
pub use publication::{Body, Execute, Header, Publication, TopicError, check_published};
pub use registration::{Claim, Credential, Proof, ProofError, Registration};
pub use unregistered::{Moment, UnregisteredError};

/// A client: its Ed25519 key, 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client(pub [u8; 32]);

/// Names an operation by all of its bytes: `T("sealcast/v1/operation"; bytes)`. For a publication it binds
/// the ciphertext with its label, so it serves as the ciphertext's id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub [u8; 32]);

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Makes the client known, or adds to what is known of it.
    Register(Registration),
    /// Tells those with intent what the client publishes.
    Advertise {
        /// Which publications.
        scope: Interest,
        /// What to know of them.
        text: Vec<u8>,
    },
    /// Wants publications, from now on.
    Subscribe(Interest),
    /// Ends the subscription with this number.
    Unsubscribe(u64),
    /// Publishes.
    Publish(Box<Publication>),
    /// Brings an act of the administrators.
    Administer(Admin),
    /// Takes a place in the order and does nothing.
    Sync,
    /// A broker's word in making the threshold key (E8). The state gives it a place and nothing else; whoever makes
    /// the key reads the words in their order.
    Dkg(Vec<u8>),
    /// Evidence that a publication opens to nothing, which suspends its publisher (E4).
    Accuse(Box<Accusation>),
}

impl Operation {
    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let body = match self {
            Operation::Publish(publication) => publication.body.len(),
            _ => 0,
        };
        let mut w = Writer::with_capacity(body + HEAD_USUAL);
        match self {
            Operation::Register(registration) => registration.encode(w.u8(1)),
            Operation::Advertise { scope, text } => {
                w.u8(2).bytes16(&scope.to_bytes()).bytes16(text);
            }
            Operation::Subscribe(interest) => {
                w.u8(3).bytes16(&interest.to_bytes());
            }
            Operation::Unsubscribe(id) => {
                w.u8(4).u64(*id);
            }
            Operation::Publish(publication) => publication.encode(w.u8(5)),
            Operation::Administer(admin) => admin.encode(w.u8(6)),
            Operation::Sync => {
                w.u8(7);
            }
            Operation::Dkg(word) => write_bytes(w.u8(8), word),
            Operation::Accuse(accusation) => accusation.encode(w.u8(9)),
        }
        w.finish()
    }

    /// Reads what [`Operation::to_bytes`] wrote and nothing else.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Operation, Malformed> {
        if bytes.len() > limits::OPERATION_BYTES_MAX {
            return Err(Malformed);
        }
        let mut r = Reader::new(bytes);
        let interest = |r: &mut Reader<'_>| Interest::from_bytes(r.bytes16(limits::EXPRESSION_BYTES_MAX)?);
        let operation = match r.u8()? {
            1 => Operation::Register(Registration::decode(&mut r)?),
            2 => Operation::Advertise {
                scope: interest(&mut r)?,
                text: r.bytes16(limits::ASSOCIATED_BYTES_MAX)?.to_vec(),
            },
            3 => Operation::Subscribe(interest(&mut r)?),
            4 => Operation::Unsubscribe(r.u64()?),
            5 => Operation::Publish(Box::new(Publication::decode(&mut r)?)),
            6 => Operation::Administer(Admin::decode(&mut r)?),
            7 => Operation::Sync,
            8 => Operation::Dkg(read_bytes(&mut r, limits::DKG_BYTES_MAX)?.to_vec()),
            9 => Operation::Accuse(Box::new(Accusation::decode(&mut r)?)),
            _ => return Err(Malformed),
        };
        r.end()?;
        Ok(operation)
    }
}

impl OperationId {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> OperationId {
        OperationId(Transcript::of("sealcast/v1/operation", bytes))
    }
}

/// Bytes that most operations need beside a body.
const HEAD_USUAL: usize = 192;

/// `u32 length ‖ bytes`
fn write_bytes(w: &mut Writer, bytes: &[u8]) {
    w.u32(u32::try_from(bytes.len()).expect("callers bound what they encode")).raw(bytes);
}

/// Reads what [`write_bytes`] wrote, of at most `max` bytes.
fn read_bytes<'a>(r: &mut Reader<'a>, max: usize) -> Result<&'a [u8], Malformed> {
    match usize::try_from(r.u32()?) {
        Ok(n) if n <= max => r.take(n),
        _ => Err(Malformed),
    }
}

fn short(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().take(8).try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        short(f, &self.0)
    }
}

impl fmt::Debug for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        short(f, &self.0)
    }
}
