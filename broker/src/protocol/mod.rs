//! What a client and a broker say to each other over a channel that proves to each who the other is.
//!
//! The channel is TLS 1.3 with raw public keys (RFC 7250): the broker's key is its own in genesis, the client's is its
//! [`Client`] key. So whoever hears a message knows which broker said it, and `f + 1` equal answers need no signatures
//! (E1); what others shall believe later is a [`crate::receipt`].
//!
//! ```text
//! message = u32 length ‖ u8 kind ‖ …            length ≤ PROTOCOL_MESSAGE_BYTES_MAX
//!
//! client ─ hello ─▶ broker ─ welcome ─▶ client
//! client ─ submit(batch) ─▶ … ordered and executed … ─ update(height, digest [, contents]) ─▶ from every broker
//!                        └─ refused(first number, why) ─▶
//!                                                      ─ attach(sn, share or ⊥) ─▶ from every broker, module 2
//! client ─ ask(id, query) ─▶ broker ─ answer(id, answer) ─▶
//! ```
//! Of each block that concerns a client every broker names the digest of what the client gets, and one
//! ([`designated_responder`]) sends it whole, or every one if the block is small (`UPDATE_BY_ALL_BYTES`): then nobody waits for one
//! certain broker. The client believes what f + 1 brokers named. If the speaker is silent or lies, the client asks
//! another one for the same update.

mod answer;
mod history;
mod query;
mod update;
mod updates;

use sealcast_crypto::tdh2;
use sealcast_wire::{Malformed, Reader, Utc, Writer, limits};

pub use answer::{Answer, Misbehaviour, Report, Status, Why};
pub use history::{Checkpoint, History, SnapshotInfo};
pub use query::Query;
pub use update::{Contents, Update};
pub use updates::Updates;

use crate::genesis::Cluster;
use crate::operation::{Client, Interest};

/// The version that both sides must speak; also the TLS application protocol `sealcast-broker/1`.
pub const VERSION: u8 = 1;
/// The TLS application protocol (ALPN).
pub const ALPN: &[u8] = b"sealcast-broker/1";

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The first message. The broker answers [`Reply::Welcome`], or ends the channel if the cluster is another one.
    Hello {
        /// Of which cluster the client knows the genesis.
        cluster: Cluster,
    },
    /// A batch to be ordered: [`crate::operation::Batch`], of this channel's client.
    Submit(Vec<u8>),
    /// A query; its answer bears the same id.
    Query {
        /// Chosen by the client, of which at most `QUERIES_MAX` may be open.
        id: u64,
        /// What.
        query: Query,
    },
}

/// What a broker says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Answers [`Request::Hello`].
    Welcome(Welcome),
    /// A batch was not taken; nothing of it will be ordered through this broker.
    Refused {
        /// The number of its first operation, 0 if it could not be read.
        first: u64,
        /// Why.
        why: Refusal,
    },
    /// A block was executed that concerns the client.
    Update(Update),
    /// What the broker attaches to a sealed publication for this client: `sealcast_keys::threshold::sealed::Attachment`.
    Attach {
        /// The publication.
        sn: u64,
        /// The attachment's bytes.
        attachment: Vec<u8>,
    },
    /// Answers [`Request::Query`].
    Answer {
        /// The query's.
        id: u64,
        /// What.
        answer: Answer,
    },
}

/// Where a broker stands, and what it knows of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The broker's number: the place of its key in genesis.
    pub broker: u16,
    /// The last block that it executed.
    pub height: u64,
    /// That block's time.
    pub at: Utc,
    /// The place in the order that the next operation gets.
    pub sn: u64,
    /// The number of the global policy in force (E6).
    pub policy: u64,
    /// The key epoch in force (E6).
    pub epoch: u32,
    /// Whether the client is registered by a credential in time, and not revoked.
    pub registered: bool,
    /// The number that the client's next operation has.
    pub next: u64,
    /// The client's active subscriptions.
    pub subscriptions: Vec<ActiveSubscription>,
    /// The threshold key, once there is one.
    pub key: Option<SignedKey>,
}

/// An active subscription of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveSubscription {
    /// The number of the operation that made it.
    pub id: u64,
    /// What it wants.
    pub interest: Interest,
    /// It is about operations with this sn or higher ones.
    pub since: u64,
    /// The place that its next publication gets.
    pub next: u64,
}

/// A threshold key as one broker vouches for it; 2f + 1 such signatures make it the cluster's (E11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedKey {
    /// The key epoch.
    pub epoch: u32,
    /// `sealcast_crypto::tdh2::PublicKey`, encoded.
    pub key: Vec<u8>,
    /// The broker's, over [`SignedKey::statement`].
    pub signature: [u8; 64],
}

/// Why a batch was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[repr(u8)]
pub enum Refusal {
    /// It is no batch.
    #[error("the batch cannot be read")]
    Malformed = 1,
    /// Its signature does not hold.
    #[error("the batch's signature is wrong")]
    Signature = 2,
    /// A ciphertext in it is malformed, or there is no threshold key yet.
    #[error("a ciphertext is malformed")]
    Ciphertext = 3,
    /// It is another client's.
    #[error("the batch is another client's")]
    NotYours = 4,
    /// It fits no block.
    #[error("the batch is larger than a block")]
    TooLarge = 5,
    /// Too much waits here; try again later, or at another broker.
    #[error("the broker is full")]
    Full = 6,
    /// The client has too much waiting here; try again when some of it is done.
    #[error("the client has too much waiting")]
    Quota = 7,
    /// The broker is ending.
    #[error("the broker is ending")]
    Ended = 8,
    /// All of its numbers were used before; the answer to [`Query::Result`] says what became of them.
    #[error("the batch was executed before")]
    Executed = 9,
    /// It accuses a publisher with evidence that does not convict (E4).
    #[error("the evidence convicts nobody")]
    Accusation = 10,
    /// Nobody vouches for the client, as far as this broker has come, and nothing in the batch shows who does.
    #[error("nobody vouches for the client")]
    Unregistered = 11,
    /// A registration or an act of administrators in it is false, and brokers do not know the client.
    #[error("what should show who is behind the client is false")]
    Proof = 12,
    /// A publication in it is at a topic with a wildcard, a control character, or a blank at an end.
    #[error("nothing can be published at such a topic")]
    Topic = 13,
}

/// Which broker sends a client the contents of a block's update: each in turn, not the same for all clients.
pub fn designated_responder(client: &Client, height: u64, brokers: usize) -> usize {
    let turn = height.wrapping_add(u64::from(client.0[0]));
    usize::try_from(turn % brokers.max(1) as u64).expect("it is less than the number of brokers")
}

impl SignedKey {
    /// What a broker signs: `T("sealcast/v1/threshold key signed"; cluster, u32 epoch, key)`.
    pub fn statement(cluster: &Cluster, epoch: u32, key: &[u8]) -> [u8; 32] {
        tdh2::vouching(&cluster.0, epoch, key)
    }

    /// `u32 epoch ‖ bytes16 key ‖ signature`
    fn encode(&self, w: &mut Writer) {
        w.u32(self.epoch).bytes16(&self.key).raw(&self.signature);
    }

    fn decode(r: &mut Reader<'_>) -> Result<SignedKey, Malformed> {
        let (epoch, key) = (r.u32()?, r.bytes16(limits::THRESHOLD_KEY_BYTES_MAX)?.to_vec());
        Ok(SignedKey { epoch, key, signature: r.array()? })
    }
}

impl Request {
    /// The batch in the message of a [`Request::Submit`], without a copy of it; `None` if it is another message.
    pub fn submitted(bytes: &[u8]) -> Option<&[u8]> {
        bytes.strip_prefix(&[SUBMIT])
    }

    /// `1 ‖ u8 version ‖ cluster | 2 ‖ batch | 3 ‖ u64 id ‖ query`
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(if let Request::Submit(batch) = self { 1 + batch.len() } else { 64 });
        match self {
            Request::Hello { cluster } => {
                w.u8(1).u8(VERSION).raw(&cluster.0);
            }
            Request::Submit(batch) => {
                w.u8(SUBMIT).raw(batch);
            }
            Request::Query { id, query } => query.encode(w.u8(3).u64(*id)),
        }
        w.finish()
    }

    /// Reads what [`Request::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Request, Malformed> {
        let mut r = Reader::new(bytes);
        let request = match r.u8()? {
            1 if r.u8()? == VERSION => Request::Hello { cluster: Cluster(r.array()?) },
            SUBMIT => Request::Submit(r.rest().to_vec()),
            3 => Request::Query { id: r.u64()?, query: Query::decode(&mut r)? },
            _ => return Err(Malformed),
        };
        r.end()?;
        Ok(request)
    }
}

impl Reply {
    /// `1 ‖ welcome | 2 ‖ u64 first ‖ u8 why | 3 ‖ update | 4 ‖ u64 sn ‖ attachment | 5 ‖ u64 id ‖ answer`
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(match self {
            Reply::Update(update) => update.bytes_about(),
            _ => 256,
        });
        match self {
            Reply::Welcome(welcome) => welcome.encode(w.u8(1)),
            Reply::Refused { first, why } => {
                w.u8(2).u64(*first).u8(*why as u8);
            }
            Reply::Update(update) => update.encode(w.u8(3)),
            Reply::Attach { sn, attachment } => {
                w.u8(4).u64(*sn).raw(attachment);
            }
            Reply::Answer { id, answer } => answer.encode(w.u8(5).u64(*id)),
        }
        w.finish()
    }

    /// Reads what [`Reply::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Reply, Malformed> {
        let mut r = Reader::new(bytes);
        let reply = match r.u8()? {
            1 => Reply::Welcome(Welcome::decode(&mut r)?),
            2 => Reply::Refused { first: r.u64()?, why: Refusal::from_number(r.u8()?)? },
            3 => Reply::Update(Update::decode(&mut r)?),
            4 => Reply::Attach { sn: r.u64()?, attachment: r.rest().to_vec() },
            5 => Reply::Answer { id: r.u64()?, answer: Answer::decode(&mut r)? },
            _ => return Err(Malformed),
        };
        r.end()?;
        Ok(reply)
    }
}

impl Refusal {
    fn from_number(number: u8) -> Result<Refusal, Malformed> {
        use Refusal::{
            Accusation, Ciphertext, Ended, Executed, Full, Malformed as NotRead, NotYours, Proof, Quota, Signature,
            TooLarge, Topic, Unregistered,
        };
        let of_batches = [NotRead, Signature, Ciphertext, NotYours, TooLarge, Executed, Accusation, Topic];
        let all = of_batches.into_iter().chain([Full, Quota, Ended, Unregistered, Proof]);
        all.into_iter().find(|why| *why as u8 == number).ok_or(Malformed)
    }
}

impl Welcome {
    /// `u8 version ‖ u16 broker ‖ u64 height ‖ i64 at ‖ u64 sn ‖ u64 policy ‖ u32 epoch ‖ u8 registered ‖ u64 next
    ///  ‖ u16 count ‖ (u64 id ‖ bytes16 interest ‖ u64 since ‖ u64 next) … ‖ (0 | 1 ‖ key)`
    fn encode(&self, w: &mut Writer) {
        w.u8(VERSION).u16(self.broker).u64(self.height).raw(&self.at.0.to_be_bytes());
        w.u64(self.sn).u64(self.policy).u32(self.epoch).u8(u8::from(self.registered)).u64(self.next);
        w.u16(u16::try_from(self.subscriptions.len()).expect("subscriptions have a limit"));
        for it in &self.subscriptions {
            w.u64(it.id).bytes16(&it.interest.to_bytes()).u64(it.since).u64(it.next);
        }
        w.u8(u8::from(self.key.is_some()));
        self.key.iter().for_each(|key| key.encode(w));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Welcome, Malformed> {
        if r.u8()? != VERSION {
            return Err(Malformed);
        }
        let (broker, height, at) = (r.u16()?, r.u64()?, Utc(i64::from_be_bytes(r.array()?)));
        let (sn, policy, epoch) = (r.u64()?, r.u64()?, r.u32()?);
        let (registered, next) = (flag(r)?, r.u64()?);
        let count = r.count16(26, limits::SUBSCRIPTIONS_PER_CLIENT_MAX)?;
        let subscriptions = (0..count).map(|_| ActiveSubscription::decode(r)).collect::<Result<_, _>>()?;
        let key = if flag(r)? { Some(SignedKey::decode(r)?) } else { None };
        Ok(Welcome { broker, height, at, sn, policy, epoch, registered, next, subscriptions, key })
    }
}

impl ActiveSubscription {
    fn decode(r: &mut Reader<'_>) -> Result<ActiveSubscription, Malformed> {
        let (id, interest) = (r.u64()?, Interest::from_bytes(r.bytes16(limits::EXPRESSION_BYTES_MAX)?)?);
        Ok(ActiveSubscription { id, interest, since: r.u64()?, next: r.u64()? })
    }
}

const SUBMIT: u8 = 2;

fn flag(r: &mut Reader<'_>) -> Result<bool, Malformed> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

/// `u32 length ‖ bytes`
fn write_bytes(w: &mut Writer, bytes: &[u8]) {
    w.u32(u32::try_from(bytes.len()).expect("callers bound what they encode")).raw(bytes);
}

fn read_bytes(r: &mut Reader<'_>, max: usize) -> Result<Vec<u8>, Malformed> {
    match usize::try_from(r.u32()?) {
        Ok(n) if n <= max => Ok(r.take(n)?.to_vec()),
        _ => Err(Malformed),
    }
}

/// A 32-bit count of things of at least `size` bytes each.
fn count(r: &mut Reader<'_>, size: usize) -> Result<usize, Malformed> {
    let n = usize::try_from(r.u32()?).map_err(|_| Malformed)?;
    if n.saturating_mul(size) > r.remaining() { Err(Malformed) } else { Ok(n) }
}

/// `u32 count ‖ thing …`
fn write_all<T>(w: &mut Writer, things: &[T], mut encode: impl FnMut(&T, &mut Writer)) {
    w.u32(u32::try_from(things.len()).expect("a message's things have a limit"));
    things.iter().for_each(|it| encode(it, w));
}

#[cfg(test)]
mod tests;
