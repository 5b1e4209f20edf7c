//! What the client's machine hands out.

use std::collections::BTreeMap;
use std::sync::Arc;

use sealcast_broker::contradiction::Contradiction;
use sealcast_broker::operation::{Header, Interest, OperationId, Policy, Publication};
use sealcast_broker::protocol::{Refusal, Report, SignedKey, Status, Why};
use sealcast_broker::receipt::Receipt;
use sealcast_broker::state::{self, Advertisement, Entry, Subject, SubjectStatus};
use sealcast_wire::{Monotonic, Utc};

use sealcast_delivery::Token;

/// What the client wants done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send these bytes to the broker: one message, its length not before it.
    Send {
        /// The place of its key in genesis.
        broker: u16,
        /// [`sealcast_broker::protocol::Request`], encoded.
        request: Arc<[u8]>,
    },
    /// The order has a new version, or the client found out where it stands.
    OrderStatus(OrderStatus),
    /// A publication for a subscription, once and in order.
    Delivered(Box<Delivered>),
    /// Publications at these places of a subscription may not be read: ⊥.
    Skipped {
        /// The subscription.
        subscription: u64,
        /// The first place.
        place: u64,
        /// How many.
        count: u64,
    },
    /// Publications at these places of a subscription are no longer kept: it goes on with the oldest that is.
    Lost {
        /// The subscription.
        subscription: u64,
        /// The first place.
        place: u64,
        /// How many.
        count: u64,
    },
    /// Somebody advertises.
    Advertised {
        /// Its place.
        advertisement: Advertisement,
        /// What is said.
        scope: Interest,
        /// Of which publications.
        text: Vec<u8>,
    },
    /// What a broker attaches to a sealed publication, which may come before or after it.
    Attach {
        /// The publication.
        sn: u64,
        /// Who.
        broker: u16,
        /// `sealcast_keys::threshold::sealed::Attachment`.
        attachment: Vec<u8>,
    },
    /// What became of an operation.
    Outcome(Token, OperationOutcome),
    /// A subscription stands from here on; until it ends, it is known by its id.
    Subscribed {
        /// Of [`super::Quorum::subscribe`].
        token: Token,
        /// The subscription.
        subscription: u64,
    },
    /// The answer to [`super::Quorum::read`].
    Read(Token, Result<Answer, Why>),
    /// The answer to [`super::Quorum::receipt`]; `None` if f + 1 brokers have none.
    Receipt(Token, Option<Box<Receipt>>),
    /// The answer to [`super::Quorum::status`], of those who answered in time.
    Status(Token, BTreeMap<u16, Status>),
    /// The answer to [`super::Quorum::proofs`], of those who answered in time.
    Proofs(Token, Proofs),
    /// Make this durable; it replaces the one before. What [`super::Quorum::restore`] reads.
    Store(Vec<u8>),
    /// Something worth telling the operator.
    Notice(Notice),
}

/// Where the order is, as at least one honest broker says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderStatus {
    /// A block that was executed.
    pub height: u64,
    /// That block's time.
    pub at: Utc,
    /// The global policy in force (E6).
    pub policy: u64,
    /// The key epoch in force (E6).
    pub epoch: u32,
    /// Whether the client may do anything.
    pub registered: bool,
    /// The threshold key as brokers signed it, by broker; whether they are enough, the cluster file's rules say (E11).
    pub keys: BTreeMap<u16, SignedKey>,
}

/// The proofs that brokers keep, by who gave them: of which misbehaviour, and its bytes.
pub type Proofs = BTreeMap<u16, Vec<(Report, Vec<u8>)>>;

/// A subscription of the client's that is confirmed in the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfirmedSubscription {
    /// The subscription.
    pub subscription: u64,
    /// What it wants.
    pub interest: Interest,
    /// The first place that its reader has not taken; of one that no record knows, where it would begin.
    pub next: u64,
    /// So many places are known to exist.
    pub places: u64,
}

/// A publication in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// For which of the client's subscriptions.
    pub subscription: u64,
    /// Which one there, without gaps; those that may not be read count too.
    pub place: u64,
    /// Where it stands in the order, and who published it.
    pub entry: Entry,
    /// What was published.
    pub publication: Publication,
}

/// What became of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationOutcome {
    /// f + 1 brokers say what it came to.
    Executed {
        /// In which block.
        height: u64,
        /// The number under which it stands there.
        number: u64,
        /// What.
        outcome: state::OperationResult,
    },
    /// It was sealed for what is no longer in force, or under a number that was used: seal it again. Nothing of it was
    /// executed, and nothing will be.
    Superseded {
        /// The global policy in force (E6).
        policy: u64,
        /// The key epoch in force (E6).
        epoch: u32,
    },
    /// f + 1 brokers refuse to order it. Nothing of it was executed, and nothing will be.
    Refused(Refusal),
    /// It had its place, but what it came to is no longer kept.
    Forgotten,
}

/// What may be read without ordering anything, of the newest executed state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// What stands at a topic's place.
    TopicPosition {
        /// The topic.
        header: Header,
        /// The place.
        ps: u64,
    },
    /// What stands from a place on.
    Range {
        /// The topic.
        header: Header,
        /// The first place.
        from: u64,
        /// How many at most, of `READ_POSITIONS_MAX`.
        limit: u16,
    },
    /// The last place of a topic.
    Latest {
        /// The topic.
        header: Header,
    },
    /// A value of the key–value state.
    Value {
        /// The topic that the key belongs to.
        topic: String,
        /// The key.
        key: Vec<u8>,
    },
    /// The global policy in force.
    Policy,
    /// What has become of a client, a certificate or a claim; administrators alone are told.
    Subject(Subject),
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Places of a topic, ascending.
    Places(Vec<TopicPosition>),
    /// A value, if the key has one.
    Value(Option<Vec<u8>>),
    /// The global policy in force.
    Policy {
        /// Its number; 0 before the first.
        number: u64,
        /// Its rules.
        policy: Policy,
    },
    /// What has become of a client, a certificate or a claim.
    Subject(SubjectStatus),
}

/// A position in a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPosition {
    /// The number at the topic.
    pub ps: u64,
    /// What stands there; `None` is ⊥.
    pub found: Option<Box<(Entry, Publication)>>,
}

/// Something worth telling the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// f + 1 brokers say that nobody vouches for the client, and it has no registration to give.
    Unregistered,
    /// The brokers do not take this registration of the client's: revoked, expired, or of another issuer.
    NotRegistered(OperationId, state::OperationResult),
    /// f + 1 brokers say, twice in a row, that nobody vouches any more for the client, which waits for publications: its
    /// certificates are revoked or over, or administrators have ended it.
    NotVouched,
    /// f + 1 brokers are behind what the client saw before: this is not its cluster as it was (E11).
    RolledBack {
        /// The highest block that the client saw.
        seen: u64,
        /// Where they are.
        height: u64,
    },
    /// A broker said something that no honest one says.
    Misbehaved {
        /// Who.
        broker: u16,
        /// What.
        how: Misbehaviour,
    },
    /// A broker signed two outcomes of one block, or another one than f + 1: all of it that convicts (E4).
    Evidence(Box<Contradiction>),
}

/// What a broker did that no honest one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Misbehaviour {
    /// Messages that are none.
    Malformed,
    /// Another broker's number.
    Number,
    /// Another digest of a block, or another answer, than f + 1 brokers.
    Differed,
    /// Contents that do not fit its own digest.
    Contents,
    /// A body that is not the one that was asked for.
    Body,
    /// A testimony that does not hold.
    Testimony,
}

/// How a broker has behaved towards this client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conduct {
    /// How often it did what.
    pub misbehaviours: BTreeMap<Misbehaviour, u64>,
    /// How often it did not answer in time, or a batch came to nothing there.
    pub silent: u64,
    /// Since when it is connected.
    pub since: Option<Monotonic>,
}
