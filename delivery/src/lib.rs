//! How bytes travel: the trait [`Delivery`], and one machine per way.
//!
//! A delivery owns liveness and order, never keys (A14): it seals and opens through the
//! [`Protect`] capability that it is handed with each call, and sees opened frames only.

#![forbid(unsafe_code)]

pub mod batch;
pub mod hostile;
pub mod lcm;
pub mod memory;
pub mod multicast;
mod packet;
pub mod reassembly;
#[cfg(feature = "relay")]
pub mod relay;
pub mod sequencer;
#[cfg(test)]
mod testing;

use std::sync::Arc;
use std::time::Duration;

use sealcast_crypto::identity::Pattern;
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::{
    Access, Address, Agreement, Domain, Dropped, Drops, Envelope, EpochId, Exhausted, Fetch, FetchId, Fetched, Fetches,
    Flush, Guarantee, KeyPackages, Member, Monotonic, Now, Protect, Reason, SealMessage, Slot, Source, To, Unsealed,
    View, limits,
};

pub use batch::{Batch, Train};
pub use packet::Packet;

/// One transport's machine. Call a verb, then drain [`Delivery::poll`] until it answers `None`.
///
/// No method has a default: a wrapper that forgets one does not compile. A new ability is a variant of [`Input`] or
/// [`Output`], which the compiler has everybody handle.
pub trait Delivery: Send {
    /// What this transport gives.
    fn properties(&self) -> Properties;

    /// Frames, seals and queues one message.
    ///
    /// `protect` is the current epoch's capability, shared because messages that wait for others in a
    /// record are sealed with the one they were sent under; `None` sends on the open lane, where the
    /// message protects itself.
    ///
    /// # Errors
    /// [`SendError`].
    fn send(&mut self, now: Now, protect: Option<&Arc<dyn Protect>>, message: Outgoing<'_>)
    -> Result<Token, SendError>;

    /// Takes in what happened.
    fn handle(&mut self, now: Now, input: Input<'_>);

    /// Reads the opened frame of an [`Output::Record`]; what it holds is not queued but answered, numbered by its position.
    ///
    /// # Errors
    /// Why it holds nothing.
    fn open_at(
        &mut self,
        index: u64,
        source: Source,
        flags: u8,
        frame: &mut [u8],
        protect: &dyn Protect,
    ) -> Result<Output, Dropped>;

    /// When [`Delivery::handle_timeout`] wants to be called next.
    fn timeout(&self) -> Option<Monotonic>;

    /// Time has come.
    fn handle_timeout(&mut self, now: Now, protect: Option<&Arc<dyn Protect>>);

    /// The next thing to be done, until there is none; datagrams to transmit are appended to `batch`.
    fn poll(&mut self, batch: &mut Batch) -> Option<Output>;
}

impl<D: Delivery + ?Sized> Delivery for Box<D> {
    fn properties(&self) -> Properties {
        (**self).properties()
    }

    fn send(
        &mut self,
        now: Now,
        protect: Option<&Arc<dyn Protect>>,
        message: Outgoing<'_>,
    ) -> Result<Token, SendError> {
        (**self).send(now, protect, message)
    }

    fn handle(&mut self, now: Now, input: Input<'_>) {
        (**self).handle(now, input);
    }

    fn open_at(
        &mut self,
        index: u64,
        source: Source,
        flags: u8,
        frame: &mut [u8],
        protect: &dyn Protect,
    ) -> Result<Output, Dropped> {
        (**self).open_at(index, source, flags, frame, protect)
    }

    fn timeout(&self) -> Option<Monotonic> {
        (**self).timeout()
    }

    fn handle_timeout(&mut self, now: Now, protect: Option<&Arc<dyn Protect>>) {
        (**self).handle_timeout(now, protect);
    }

    fn poll(&mut self, batch: &mut Batch) -> Option<Output> {
        (**self).poll(batch)
    }
}

/// Who orders in a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderStatus {
    /// Who says what comes next in the order; `None`: nothing is ordered here.
    pub sequencer: Option<Member>,
    /// Whether that is so because we are not in the primary component (B1); otherwise another view comes at once, which may
    /// order.
    pub is_settled: bool,
    /// Whether somebody's word made the view primary, and not a majority: others may have another order.
    pub forced: bool,
    /// Ordered messages were delivered by others and never come here: we were apart from the primary component (B6).
    pub gap: bool,
    /// The number of the primary view that we were in last: each one's is greater than the one's before.
    pub term: u64,
    /// What has a greater sequence number than this comes here from that view on.
    pub from: u64,
}

/// What an application does with a state: what follows from the ordered messages of one topic.
#[derive(Clone, Debug)]
pub enum StateInput<'a> {
    /// It keeps one of this topic; [`StateEvent`]s tell what becomes of it.
    Follow(&'a str),
    /// It keeps it no more.
    Unfollow(&'a str),
    /// It lost some of the messages: it needs a later state.
    Again(&'a str),
    /// The answer to [`StateEvent::Wanted`]; `None` if it has none at this moment.
    Give {
        /// What was said there.
        ticket: u64,
        /// The state after all messages before that, at most `limits::STATE_BYTES_MAX`.
        bytes: Option<Vec<u8>>,
    },
}

/// What becomes of a state, told in turn with the messages of its topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateEvent {
    /// It begins with nothing: all messages from here on follow.
    Begins,
    /// It goes on as it was when messages were missed, since nobody has more of it: those that came since then follow.
    Resumes,
    /// Somebody needs it as it is here, after all messages before this and none after it.
    Wanted(u64),
    /// A state in which all messages before this position are; those from it on came since it was asked for, or follow.
    Here {
        /// Of the first message that may not be in it.
        position: u64,
        /// The state.
        bytes: Vec<u8>,
    },
    /// Messages are missing: another member's state comes, and counts from its position on.
    Lost,
    /// There are `limits::STATES_MAX` already.
    Refused,
}

/// What a transport gives, channel by channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Messages that may be lost; `None`: there is no such channel.
    pub best_effort: Option<Channel>,
    /// Each sender's messages in the order sent.
    pub fifo: Option<Channel>,
    /// One order at all members.
    pub ordered: Option<Channel>,
    /// The same, acknowledged once all members hold it.
    pub safe: Option<Channel>,
    /// Key schemes' messages take their position in the order too, whatever they need.
    pub orders_keys: bool,
    /// What it can be asked for.
    pub fetches: Fetches,
    /// It remembers what it sealed last ([`Input::Retire`]); otherwise whoever transmits does.
    pub names_packets: bool,
    /// It may send on what members sealed, as repairs do: [`Input::Frame`] brings each datagram that has these flags as it
    /// came, too, and [`Input::Unread`] those of them that we cannot open. Which ones may change with what it hears.
    pub keeps_sealed: Option<u8>,
    /// It carries nothing of the application that nobody seals.
    pub needs_keys: bool,
    /// It needs a scheme whose members end each view together ([`Input::Prepare`]).
    pub needs_flush: bool,
    /// It carries a key scheme's messages to addresses of who is no member, and back ([`To::Peer`]).
    pub reaches_outside: bool,
    /// It has to connect first: before [`Output::Up`] nothing can be sent, and the key scheme does not begin.
    pub connects: bool,
    /// It carries to a member only what that member subscribed to ([`Input::Subscribe`]).
    pub subscribes: bool,
    /// Bytes of the longest message that it carries, sealed.
    pub message_bytes_max: usize,
}

impl Properties {
    /// Best effort and nothing else.
    pub const BEST_EFFORT: Properties = Properties {
        best_effort: Some(Channel { agreement: Agreement::None, acknowledged: false, cut: Cut::Clock }),
        fifo: None,
        ordered: None,
        safe: None,
        orders_keys: false,
        fetches: Fetches::NOTHING,
        names_packets: false,
        keeps_sealed: None,
        needs_keys: false,
        needs_flush: false,
        reaches_outside: false,
        connects: false,
        subscribes: false,
        message_bytes_max: limits::MESSAGE_BYTES_MAX,
    };

    /// The channel that gives a guarantee; `None` if it is not given.
    pub fn gives(&self, guarantee: Guarantee) -> Option<Channel> {
        match guarantee {
            Guarantee::BestEffort => self.best_effort,
            Guarantee::Fifo => self.fifo,
            Guarantee::Ordered => self.ordered,
            Guarantee::Safe => self.safe,
        }
    }

    /// Whether it tells what became of each message on the channel that gives a guarantee.
    pub fn acknowledges(&self, guarantee: Guarantee) -> bool {
        self.gives(guarantee).is_some_and(|channel| channel.acknowledged)
    }

    /// Whether it tells so on any channel.
    pub fn acknowledges_any(&self) -> bool {
        [self.best_effort, self.fifo, self.ordered, self.safe].iter().flatten().any(|channel| channel.acknowledged)
    }

    /// Whether a position in the order ends epochs on the channel that gives a guarantee.
    pub fn cuts_by_position(&self, guarantee: Guarantee) -> bool {
        self.gives(guarantee).is_some_and(|channel| channel.cut == Cut::Position)
    }
}

/// One of a transport's channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Whether two halves of a group can both go on.
    pub agreement: Agreement,
    /// [`Output::Outcome`] tells what became of each message.
    pub acknowledged: bool,
    /// What ends an epoch.
    pub cut: Cut,
}

/// What ends an epoch on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Time: for a while the messages of both epochs are taken (A5).
    Clock,
    /// A position in one order. Sealed datagrams come back as [`Output::Record`], and their receiver opens them there.
    Position,
}

/// What happens to a transport.
pub enum Input<'a> {
    /// One opened frame has come: the plaintext of a datagram, or an open message.
    Frame {
        /// From whom, as far as its seal proves.
        source: Source,
        /// Where from, as far as the network tells.
        from: Address,
        /// Its flags.
        flags: u8,
        /// The frame.
        frame: &'a mut [u8],
        /// The datagram as it came, for a transport that sends it on ([`Properties::keeps_sealed`]), if it was sealed.
        sealed: Option<&'a [u8]>,
        /// The capability that opened it, if one did.
        protect: Option<&'a dyn Protect>,
    },
    /// A sealed datagram of an epoch of ours that we cannot open: of a topic whose key we do not have.
    Unread(&'a [u8]),
    /// Hand out no application's messages and records until [`Input::Resume`]: they wait at whoever orders them. The key
    /// scheme's come on, and so may what was under way. A transport that cannot do so goes on; whoever is told lives with it.
    Pause,
    /// There is room again.
    Resume,
    /// The key scheme asks for something by content or by name. The answer always comes as [`Output::Fetched`].
    Fetch(FetchId, &'a Fetch),
    /// Make something available to whoever fetches it; a transport without a place for it drops it.
    Provide {
        /// Under what it is asked for.
        what: &'a Fetch,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Have key packages of ours kept where others take them. A transport with a directory that hands out single-use ones
    /// answers with [`Output::PackagesKept`]; one with a place for the last resort keeps that; others drop it.
    Packages(&'a KeyPackages),
    /// From now on members sign by this key what they append to a log. Transports without one drop it.
    AppendKey(&'a Arc<OriginKey>),
    /// Hand over the order again from behind this position, if it is kept.
    Again(u64),
    /// What the keys opened of a sealed message, which was delivered or came as [`Output::Open`]: its bodies, or ⊥. Nobody
    /// waits any more for what was fetched for it.
    Opened(u64, Option<&'a [Vec<u8>]>),
    /// A channel to a peer is open, and the peer is the one of this address.
    Connected(Address),
    /// The channel to a peer is closed, or cannot be opened.
    Disconnected(Address),
    /// A channel brings a whole message.
    Message {
        /// From whom.
        peer: Address,
        /// The message.
        bytes: &'a [u8],
    },
    /// Bring what is published from now on under topics that match. The answer comes as [`Output::Subscribed`]; each of these
    /// is undone by one [`Input::Unsubscribe`]. A transport that brings everything ignores both ([`Properties::subscribes`]).
    Subscribe(&'a Pattern),
    /// One reader less.
    Unsubscribe(&'a Pattern),
    /// A view is coming: flush the current one, and answer with [`Output::Flushed`] unless it is [`Flush::Later`]. What was
    /// sent before is sealed, at the latest here, under the key that it was sent with (A5).
    Prepare {
        /// The view; its epoch names the flush.
        view: &'a View,
        /// Up to where.
        flush: Flush,
    },
    /// The key of a view is agreed: others may install it, though we may not.
    Keyed {
        /// The view.
        view: &'a View,
        /// Seals and opens in it.
        protect: &'a Arc<dyn Protect>,
        /// Who may do what in it.
        access: &'a Arc<dyn Access>,
    },
    /// The view that was prepared is installed.
    Install {
        /// The view.
        view: &'a View,
        /// Seals and opens in it; `None` where nothing is sealed.
        protect: Option<&'a Arc<dyn Protect>>,
        /// Who may do what in it.
        access: &'a Arc<dyn Access>,
    },
    /// We are about to leave by our own word; [`Output::Left`] answers ([`Properties::needs_flush`]).
    Leave,
    /// The operator says that those who are missing are gone for good: the next view that we report to is primary whatever part
    /// of the last one it is (B1; [`Properties::needs_flush`]).
    ForcePrimary,
    /// The application does something with its state ([`Properties::needs_flush`]).
    State(StateInput<'a>),
    /// We are out: no key is ours any more, and nothing more becomes of what was sent.
    Excluded,
    /// A message of the key scheme need not be ordered, if it is not yet: [`Output::Outcome`] says what became of it.
    Withdraw(Token),
    /// A later run of this member needs nothing of the order up to this position.
    Checkpointed(u64),
    /// Seal nothing more for an epoch. The answer comes as [`Output::Sealed`] where [`Properties::names_packets`].
    Retire(EpochId),
}

impl<'a> Input<'a> {
    /// A frame that nobody sealed, from this address.
    pub fn open(from: Address, frame: &'a mut [u8]) -> Input<'a> {
        Input::Frame { source: Source::Outside(from), from, flags: 0, frame, sealed: None, protect: None }
    }
}

/// Names a message that was sent, for its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// A message to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Application data with its topic, or a key scheme's message.
    pub what: What<'a>,
    /// How strongly.
    pub guarantee: Guarantee,
    /// Whom for.
    pub to: To,
}

/// The kinds of payload.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// Application data.
    Data {
        /// Its topic; travels sealed.
        topic: &'a str,
        /// The compartment whose key seals it.
        domain: Domain,
        /// Whether to prove its origin by signature (A12).
        signed: bool,
        /// The sender's clock, microseconds since 1970, if it wants to tell.
        sent_micros: Option<u64>,
        /// The payload.
        body: &'a [u8],
    },
    /// Application data that travels as one message, for transports whose carriers read what is on it.
    Message {
        /// What they read: topics, conditions, an executable operation.
        envelope: &'a Envelope,
        /// What it holds.
        body: Body<'a>,
        /// It was sent before under this token and superseded: a transport that keeps details by token goes on with that one.
        again: Option<Token>,
    },
    /// A key scheme's message on the open lane or, sealed, on the control lane.
    Keys {
        /// Its bytes.
        bytes: &'a [u8],
        /// Whether to seal it under the group's key.
        sealed: bool,
        /// The key of the epoch that it leads to, for a transport that keeps a log.
        names: Option<[u8; 32]>,
    },
}

/// What a message holds that travels as one.
#[derive(Clone, Copy)]
pub enum Body<'a> {
    /// Bytes that carriers may read, too.
    Clear(&'a [u8]),
    /// What the key scheme seals once the transport knows which id the message gets.
    Sealed(&'a dyn SealMessage),
}

impl std::fmt::Debug for Body<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Body::Clear(bytes) => write!(f, "{} bytes in clear", bytes.len()),
            Body::Sealed(_) => f.write_str("to be sealed"),
        }
    }
}

/// What a way wants done.
#[derive(Debug)]
pub enum Output {
    /// `batch` holds one or more datagrams to be sent now.
    Transmit(To),
    /// A message of a key scheme.
    Keys {
        /// Who sent it.
        source: Source,
        /// Its sequence number, where it has one in the order.
        position: Option<u64>,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Application data.
    Deliver(Delivered),
    /// A sealed datagram at its position in the transport's order ([`Cut::Position`]).
    Record {
        /// Its place.
        index: u64,
        /// Whose it is, where the way knows.
        from: Source,
        /// It is ours: what [`Delivery::send`] answered.
        ours: Option<Token>,
        /// The datagram.
        datagram: Vec<u8>,
    },
    /// Messages can be sent from now on ([`Properties::connects`]).
    Up,
    /// Messages of topics that match come from now on, or those who carry them refuse.
    Subscribed(Pattern, Result<(), Reason>),
    /// These versions of key and policy are in force at those who carry messages.
    InForce(EpochId),
    /// More attachments of a message delivered before (brokers).
    Attach {
        /// The message's index.
        index: u64,
        /// (broker, bytes).
        attachments: Vec<(u16, Vec<u8>)>,
    },
    /// A sealed message that the transport wants opened for a reader of its own; [`Input::Opened`] answers. None comes
    /// between [`Input::Pause`] and [`Input::Resume`].
    Open {
        /// The message's index.
        index: u64,
        /// What carriers read.
        header: Vec<u8>,
        /// The sealed bodies.
        body: Vec<u8>,
    },
    /// The answer to [`Input::Fetch`].
    Fetched(FetchId, Fetched),
    /// What [`Input::Packages`] brought is kept; so many single-use packages are there now.
    PackagesKept(usize),
    /// What became of a message sent.
    Outcome(Token, Outcome),
    /// A member has been silent for too long.
    Suspect(Slot),
    /// This member holds all others up and is to go (`slow=expel`): by our own judgement, or by that of the sequencer, which
    /// says so to all and acts by itself.
    Slow {
        /// Who.
        slot: Slot,
        /// Whether we judge.
        judged: bool,
    },
    /// The view before this prepared epoch is flushed; the hash of what is delivered up to there, zeros where the transport
    /// flushes nothing.
    Flushed(EpochId, [u8; 32]),
    /// We may leave: that we do is in the order, or will not be. The answer to [`Input::Leave`].
    Left,
    /// What comes from now on is of this view, and all of those before it has come ([`Properties::needs_flush`]).
    Entered(EpochId),
    /// Who orders in the view in use, as it changed.
    Order(OrderStatus),
    /// Fifo messages of this member never come: somebody told it that we have them, and it has forgotten them.
    Gap(Slot),
    /// What has these positions in the order is not kept any more, and never comes: the first one, and the last.
    Missed(u64, u64),
    /// No other member was heard for so long, though we are connected (D2); `None` once one is.
    Silence(Option<Duration>),
    /// What becomes of the application's state of this topic, in turn with its messages.
    State(Arc<str>, StateEvent),
    /// Another change is wanted, of whatever members there are: the view in use cannot order, and one in which all have reported
    /// may.
    Renew,
    /// The last packets sealed for an epoch, so that they can be vouched for (A5): the answer to [`Input::Retire`].
    Sealed(EpochId, Vec<Packet>),
    /// What was dropped since this came last, by reason (G7).
    Dropped(Drops),
    /// Make this durable before anything later leaves (G6).
    Store {
        /// Overwrites the record of the same id.
        id: u64,
        /// The record.
        record: Vec<u8>,
    },
}

/// A delivered message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Position in the way's order, where it has one; else the sender's message number.
    pub index: u64,
    /// Whether that position was agreed in the view that it was sealed in: then it comes, though its sender may be out by now
    /// (B4).
    pub ordered: bool,
    /// Who sent it, as far as the seal proves.
    pub source: Source,
    /// Whether a signature proves the slot in `source`.
    pub signed: bool,
    /// The topic.
    pub topic: Arc<str>,
    /// The sender's clock, microseconds since 1970, if it told.
    pub sent_micros: Option<u64>,
    /// What carriers could read, where the way seals per message; else empty.
    pub header: Vec<u8>,
    /// The payload, or the sealed body where the way seals per message.
    pub body: Vec<u8>,
    /// Shares and digests by broker.
    pub attachments: Vec<(u16, Vec<u8>)>,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Delivered as its guarantee says.
    Accepted,
    /// The same, at this place of the way's order.
    Ordered(u64),
    /// It was sealed for an epoch, or for versions of key and policy, that these replaced, and nobody has it.
    Superseded(sealcast_wire::EpochId),
    /// It may have been delivered or not: others may hold it.
    InDoubt,
    /// It will not be delivered, and nobody has seen it.
    Failed,
    /// Those who carry it made nothing of it, for this reason.
    Denied(Reason),
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// A queue is full: try again later.
    #[error("queue full")]
    Full,
    /// The message is longer than we take into memory, here or at receivers.
    #[error("message longer than MESSAGE_BYTES_MAX ({} bytes)", sealcast_wire::limits::MESSAGE_BYTES_MAX)]
    TooLong,
    /// The topic is longer than the way carries, or holds a character that it cannot carry (LCM: NUL; brokers: `+`, `#`,
    /// control characters, and blanks at the ends).
    #[error("topic too long, or with a character that cannot be published there")]
    BadTopic,
    /// The epoch of `protect` is over: load the current one and send again.
    #[error("this epoch is over")]
    Retired,
    /// This way does not give that guarantee.
    #[error("this way does not give {0:?}")]
    NotGiven(Guarantee),
    /// Only the primary component orders (B1).
    #[error("nothing is ordered: most of the last members of the group are missing, or nobody else was ever in it")]
    NotPrimary,
    /// This transport seals datagrams and carries no messages that are sealed as a whole, or with more on them than a topic.
    #[error("this transport seals per datagram")]
    PerDatagram,
    /// The key scheme did not seal the message.
    #[error(transparent)]
    Unsealed(#[from] Unsealed),
    /// It is not known yet where the order is.
    #[error("not enough brokers have answered yet")]
    NotReady,
    /// What is known of the order is older than `limits::SEAL_BLOCK_AGE_MAX` by the clock here (E6).
    #[error("the newest block that f + 1 brokers show is too old to seal for, by the clock here")]
    Old,
    /// The epoch's key cannot seal any more.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}
