//! Who holds the keys: the trait [`Keys`], and one machine per scheme.
//!
//! A key scheme is a value: time, randomness and bytes go in, [`Output`]s come out. It owns roster and
//! epoch (A14) and hands out one [`Protect`] per epoch; no key byte leaves this crate.

#![forbid(unsafe_code)]

use std::sync::Arc;

use sealcast_crypto::signature::OriginKey;
use sealcast_wire::{
    Access, Agreement, CertHash, Dropped, Envelope, EpochId, Evidence, Flush, Guarantee, Lane, Monotonic, Now, Protect,
    Slot, Source, To, View,
};
pub use sealcast_wire::{Fetch, FetchId, Fetched, Fetches, KeyPackages, Sealed};
pub use status::{CompartmentStatus, MemberStatus, PendingStatus, Shortage, Status, TreeStatus};

mod allowance;
pub mod center;
mod compartments;
pub mod contributory;
mod epoch;
#[cfg(feature = "mls")]
pub mod mls;
pub mod plain;
pub mod replay;
pub mod status;
#[cfg(feature = "threshold")]
pub mod threshold;
mod timers;

/// One scheme's machine. Call a verb, then drain [`Keys::poll`] until it answers `None`.
///
/// No method has a default: a wrapper that forgets one does not compile. A new ability is a variant of [`Input`] or
/// [`Output`], which the compiler has everybody handle.
pub trait Keys: Send {
    /// What this scheme needs of the transport that carries its messages.
    fn properties(&self) -> Properties;

    /// Takes in what happened; verifies before it changes any state (G1).
    ///
    /// # Errors
    /// [`HandleError::Dropped`] says why a message was not used, [`HandleError::Misbehaved`] who is proved to misbehave, and
    /// [`HandleError::Refused`] why a command was not done.
    fn handle(&mut self, now: Now, input: Input<'_>) -> Result<(), HandleError>;

    /// Seals one message where the transport seals whole messages (relay, brokers).
    ///
    /// # Errors
    /// [`SealError`]; [`SealError::PerDatagram`] from schemes whose transport seals datagrams.
    fn seal(&mut self, message: &Seal<'_>) -> Result<Sealed, SealError>;

    /// Whether a delivered message of so many bytes, its header included, can be taken now. One for which there is no room
    /// is never opened: whoever delivers keeps it until there is.
    fn has_capacity(&self, bytes: usize) -> bool;

    /// When [`Keys::handle_timeout`] wants to be called next.
    fn timeout(&self) -> Option<Monotonic>;

    /// Time has come.
    fn handle_timeout(&mut self, now: Now);

    /// The next thing to be done, until there is none.
    fn poll(&mut self) -> Option<Output>;
}

impl<K: Keys + ?Sized> Keys for Box<K> {
    fn properties(&self) -> Properties {
        (**self).properties()
    }

    fn handle(&mut self, now: Now, input: Input<'_>) -> Result<(), HandleError> {
        (**self).handle(now, input)
    }

    fn seal(&mut self, message: &Seal<'_>) -> Result<Sealed, SealError> {
        (**self).seal(message)
    }

    fn has_capacity(&self, bytes: usize) -> bool {
        (**self).has_capacity(bytes)
    }

    fn timeout(&self) -> Option<Monotonic> {
        (**self).timeout()
    }

    fn handle_timeout(&mut self, now: Now) {
        (**self).handle_timeout(now);
    }

    fn poll(&mut self) -> Option<Output> {
        (**self).poll()
    }
}

/// What a scheme needs of a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Of what carries its own messages: what each kind needs that needs more than [`Need::NOTHING`]
    /// ([`Output::Send`] names the guarantee of each message).
    pub messages: &'static [Need],
    /// Of what carries the application's data.
    pub data: Need,
    /// What it asks the transport for.
    pub fetches: Fetches,
    /// Whether it seals whole messages ([`Keys::seal`]); otherwise it seals datagrams, or nothing.
    pub seals_messages: bool,
    /// Whether it seals nothing at all: members speak LCM's own format on a LAN.
    pub seals_nothing: bool,
    /// Whether its members end each view together: what [`Input::Flushed`] says goes into the agreement on the next one.
    pub flushes: bool,
    /// Whether it asks who is no member, at an address ([`To::Peer`]): a key distribution centre.
    pub asks_outside: bool,
    /// Whether a member stays one while its process does not run. Otherwise it leaves when its session is closed.
    pub stays: bool,
    /// Whether members' names are claimed alone: nothing of theirs counts as signed.
    pub claims_names: bool,
}

/// A guarantee, with at least this agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need(pub Guarantee, pub Agreement);

impl Need {
    /// Whatever a transport gives.
    pub const NOTHING: Need = Need(Guarantee::BestEffort, Agreement::None);
}

impl Properties {
    /// Any transport will do.
    pub const ANY: Properties = Properties {
        messages: &[],
        data: Need::NOTHING,
        fetches: Fetches::NOTHING,
        seals_messages: false,
        seals_nothing: false,
        flushes: false,
        asks_outside: false,
        stays: false,
        claims_names: false,
    };
    /// Any transport will do that carries what nobody seals.
    pub const PLAIN: Properties = Properties { seals_nothing: true, ..Properties::ANY };

    /// All that it needs of channels.
    pub fn needs(&self) -> impl Iterator<Item = Need> + use<> {
        self.messages.iter().copied().chain([self.data])
    }

    /// Whether positions in an order decide between its own messages: the first valid one of an epoch wins.
    pub fn commits_in_order(&self) -> bool {
        self.messages.iter().any(|need| need.0 >= Guarantee::Ordered)
    }
}

/// What happens to a scheme.
#[derive(Debug)]
pub enum Input<'a> {
    /// A message of a key scheme has come.
    Message {
        /// From whom, as far as its seal proves.
        source: &'a Source,
        /// Its sequence number, where it has one in the transport's order.
        position: Option<u64>,
        /// The message.
        bytes: &'a [u8],
    },
    /// The application asks for something.
    Command(Command),
    /// A message that was sealed as a whole is delivered, with what carriers attached so far; the answer comes as
    /// [`Output::Opened`], perhaps after more attachments or fetches.
    Delivered(Delivered<'a>),
    /// What became of a message that was sent with this token.
    Outcome(Token, SendResult),
    /// These versions of key and policy are in force at whoever carries messages.
    InForce(EpochId),
    /// The answer to an [`Output::Fetch`].
    Fetched(FetchId, Fetched),
    /// What an [`Output::Packages`] brought is kept; so many of our single-use key packages are there now.
    PackagesKept(usize),
    /// The transport has not heard from a member for too long.
    Suspected(Slot),
    /// This member is left out since all others waited for it: it may come back, but not at once.
    Slow(CertHash),
    /// The transport has flushed the view before this prepared epoch; the hash of what is delivered up to there, which the
    /// next key depends on, or zeros where the transport flushes nothing.
    Flushed(EpochId, [u8; 32]),
    /// The transport carries messages from now on, where it had to connect first: the scheme begins.
    Up,
    /// All records of the order up to this position are delivered, or void: a later run needs none of them.
    Passed(u64),
    /// This process ends: what a later run is to know is stored now.
    Ends,
    /// Somebody asks what the scheme knows of its group; the answer comes as [`Output::Described`], if it knows anything.
    Describe,
}

/// Names a message that was sent, for its [`SendResult`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// What a scheme wants done.
pub enum Output {
    /// Send a message of this scheme.
    Send {
        /// Comes back with the outcome.
        token: Token,
        /// Whether the group's key seals it.
        lane: Lane,
        /// How strongly it must be delivered. The same bytes sent again in the order (after a crash, or when the outcome
        /// was lost) are the same message and have the same position.
        needs: Guarantee,
        /// Whom it is for.
        to: To,
        /// Send only after that one was accepted.
        after: Option<Token>,
        /// The key of the epoch that it leads to, for a transport that keeps a log ([`Output::AppendKey`]): Ed25519, 32 bytes.
        names: Option<[u8; 32]>,
        /// The message.
        bytes: Vec<u8>,
    },
    /// Members of the epoch that begins sign by this key what they append to a log: its keeper cannot tell members from those who
    /// were members, and so believes keys that appends name. Other transports drop it.
    AppendKey(Arc<OriginKey>),
    /// Get something by content or by name.
    Fetch {
        /// Comes back with the result.
        id: FetchId,
        /// What.
        what: Fetch,
    },
    /// Make this available to whoever fetches it: a key package before a join, a commit for those who
    /// missed it. Ways without a place for it drop it.
    Provide {
        /// Under what it is asked for.
        what: Fetch,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Have key packages of ours kept. A transport with a directory answers with [`Input::PackagesKept`]; one without drops it.
    Packages(KeyPackages),
    /// Hand over the order again from behind this position: what came of it before we had the state of that position is
    /// forgotten. A transport that cannot drops it.
    Again(u64),
    /// A new membership is coming: delivery shall flush the current view, and [`Input::Flushed`] answers, unless the
    /// transport cannot. Publishers pause if the change excludes somebody (A5).
    Prepare {
        /// The membership; its epoch names the flush, and need not be the one that is installed.
        view: View,
        /// Up to where.
        flush: Flush,
    },
    /// The change that was prepared will not happen.
    Abandoned,
    /// A run before delivered what has a position up to this one in the order, and was sealed for this epoch: it does not come
    /// again.
    DeliveredBefore {
        /// The epoch, of which the key follows.
        epoch: EpochId,
        /// The last position.
        until: u64,
    },
    /// A key is agreed: open with it from now on; seal with it once `Epoch` follows.
    Keyed {
        /// The epoch.
        epoch: EpochId,
        /// Its capability.
        protect: Arc<dyn Protect>,
        /// The view it will be installed as.
        view: View,
        /// Its rights.
        access: Arc<dyn Access>,
        /// Whether it will not be installed here: others may have, and we agree on a later one already.
        passed: bool,
    },
    /// The view is installed: seal with its key from now on.
    Epoch {
        /// The membership.
        view: View,
        /// Seals and opens; `None` only under `keys=plain`, where nothing is sealed at all.
        protect: Option<Arc<dyn Protect>>,
        /// Who may do what.
        access: Arc<dyn Access>,
    },
    /// A member's sending key of an epoch came, which the epoch's own key does not give: what it sealed can be opened.
    SenderKey {
        /// The epoch.
        epoch: EpochId,
        /// Whose.
        slot: Slot,
    },
    /// We are out: evicted, revoked, or left. Nothing may be sealed any more.
    Excluded {
        /// Why, for the application.
        why: Exclusion,
    },
    /// A message of a message-sealed way is opened, or nobody may read it (⊥).
    Opened {
        /// Its index in the way's order.
        index: u64,
        /// Who sealed it, where its seal proves that (A2).
        origin: Option<CertHash>,
        /// The plaintexts, as many as were sealed together; `None` is ⊥.
        bodies: Option<Vec<Vec<u8>>>,
    },
    /// A message that waits to be ordered is of no use any more: it need not leave. Its outcome comes as ever.
    Withdraw(Token),
    /// A later run goes on after this log position: the records hold what came up to it.
    Checkpointed(u64),
    /// Make this durable before any later `Send` leaves (G6).
    Store {
        /// Replaces the record of the same id; see [`FILE_KEY`].
        id: u64,
        /// The record, to be given back to the scheme's `restore`; an empty one erases what was there.
        record: Vec<u8>,
    },
    /// Something worth telling the operator; never a key, never a payload.
    Notice {
        /// What.
        notice: Notice,
        /// The name of the member that it is about, if the scheme knows it; with the beginning of the certificate's hash where
        /// several have that name.
        about: Option<String>,
    },
    /// The answer to [`Input::Describe`].
    Described(Box<Status>),
}

/// An id with this bit is that of a file key, under which the scheme sealed other records (D6): up to 40 bytes, overwritten
/// where it lies when the next record of the id comes. The other bits count slots from 0.
pub const FILE_KEY: u64 = 1 << 62;

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendResult {
    /// Handed to the network where it needed best effort, else delivered as it needed.
    Accepted,
    /// It has this position in the order; everything before it has been handed over. Of several messages for one epoch
    /// the first valid one wins, and every member judges that alike.
    Ordered(u64),
    /// It may have been delivered or not.
    InDoubt,
    /// It was not sent and will not be.
    Failed,
}

/// What an application may ask of the key scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Agree on a new key for the same members.
    Rotate,
    /// Make the holder of this certificate a member: schemes in which members let others in (MLS: its
    /// key package is fetched, a commit adds it, a Welcome follows). [`Notice::NotAdmitted`] tells if that fails; a member
    /// stays one.
    Admit {
        /// Whom.
        cert: CertHash,
    },
    /// Evict the holder of this certificate, with a reason for the log (A4); needs an `evict` right.
    Evict {
        /// Whom.
        cert: CertHash,
        /// At most 200 bytes of text.
        reason: String,
    },
    /// Leave: the others agree on a key without us.
    Leave,
    /// Take in a signed object: an eviction statement, a CRL or a policy (DER or our own encoding,
    /// told apart by their first bytes).
    Learn(Vec<u8>),
    /// Several of these, in this order, up to the first that is refused: with as few changes of key as the scheme can.
    Batch(Vec<Command>),
}

/// Why we are out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// By our own word.
    Left,
    /// By a signed statement.
    Evicted {
        /// Its reason.
        reason: String,
    },
    /// The authority's revocation list names our certificate.
    Revoked,
    /// The revocation list is older than the policy allows, which has members stop then.
    StaleCrl,
    /// Another process runs with our certificate (A6).
    Duplicate,
    /// More waited for a change of key than we hold: we leave rather than deliver something else than the others (G7).
    Behind,
    /// We were to found the group, and there is one of this name.
    Exists,
}

/// Something to tell the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An attempt began: epoch to be, members asked.
    Attempt {
        /// The epoch's number.
        counter: u32,
        /// The attempt's number within it.
        attempt: u32,
        /// How many members are to be in it.
        members: usize,
    },
    /// A member was left out of the next attempt.
    LeftOut {
        /// Whom.
        cert: CertHash,
        /// Why.
        why: Misbehaviour,
    },
    /// A statement of eviction was accepted.
    Eviction {
        /// Whose.
        cert: CertHash,
        /// Its number.
        number: u64,
        /// Its reason.
        reason: String,
        /// The name of who signed it.
        by: String,
    },
    /// A certificate is near its end.
    Expires {
        /// Whose.
        cert: CertHash,
        /// Seconds left.
        seconds: i64,
    },
    /// The CRL is older than the policy's `max_crl_age`.
    StaleCrl,
    /// Somebody who carries messages or sends them misbehaved, and this proves it to others (E4).
    Evidence(Evidence),
    /// Somebody is not let in, or a group is not joined: no version of the wire is spoken by all.
    OtherVersion {
        /// Who; `None` where it did not show.
        cert: Option<CertHash>,
        /// The versions that it speaks; 0 is the one that named none.
        theirs: Vec<u8>,
        /// Those that we speak.
        ours: Vec<u8>,
    },
    /// Somebody is not let in, or a group is not joined: it has other channels than ours.
    OtherChannels {
        /// Who.
        cert: CertHash,
        /// Whether it has a reliable one, and we have not.
        reliable: bool,
    },
    /// A group is not joined: its messages have another form than ours.
    OtherForm {
        /// Whether theirs are RFC 9420's, and ours are not.
        private_messages: bool,
    },
    /// Somebody is not let in, or a group is not joined: it has as many members as it may have.
    GroupFull {
        /// Who is not let in; where it is us, whose word it is that the group is full.
        cert: CertHash,
        /// Whether it is us.
        is_us: bool,
        /// How many members it may have.
        most: usize,
    },
    /// A device that was to be let in is not.
    NotAdmitted {
        /// Whom.
        cert: CertHash,
        /// Why.
        why: NotAdmitted,
    },
    /// Somebody who does not hold this one's key used the token that a leader gave it (C1), and is not let in.
    StolenToken {
        /// Whose.
        cert: CertHash,
    },
    /// A member that is evicted or revoked is still in the group: who carries the group's handshakes may be withholding the commit
    /// that removes it (D2). Nobody who knows of it seals.
    RemovalWithheld {
        /// Whom.
        cert: CertHash,
    },
    /// A centre proved that it does not do what we asked for.
    KdcRefuses(center::query::Refusal),
    /// Another group is heard on this address, or another part of ours that we shall merge with.
    OtherPart {
        /// Its epoch.
        epoch: EpochId,
    },
}

impl Notice {
    /// The certificate that it is about.
    pub fn about(&self) -> Option<&CertHash> {
        match self {
            Notice::LeftOut { cert, .. }
            | Notice::Eviction { cert, .. }
            | Notice::Expires { cert, .. }
            | Notice::OtherChannels { cert, .. }
            | Notice::GroupFull { cert, .. }
            | Notice::NotAdmitted { cert, .. }
            | Notice::StolenToken { cert }
            | Notice::RemovalWithheld { cert } => Some(cert),
            Notice::OtherVersion { cert, .. } => cert.as_ref(),
            Notice::Attempt { .. }
            | Notice::OtherForm { .. }
            | Notice::StaleCrl
            | Notice::Evidence(_)
            | Notice::KdcRefuses(_)
            | Notice::OtherPart { .. } => None,
        }
    }
}

/// Why a device is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum NotAdmitted {
    /// Neither a directory nor a member has a key package of it.
    #[error("nobody has a key package of this device")]
    NoPackage,
    /// Its key package is no longer valid.
    #[error("the key package of this device has expired")]
    Expired,
    /// It is evicted or revoked, its certificate is over, or does not grant reading all of the group.
    #[error("its certificate does not let it in: it is over, revoked or evicted, or does not grant sub:#")]
    Refused,
    /// Its key package is of another suite, or damaged.
    #[error("the key package of this device does not fit the group")]
    Unfit,
    /// The group has as many members as it may have.
    #[error("the group has as many members as it may have")]
    Full,
}

/// What a member did that it is left out for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Misbehaviour {
    /// Said nothing in time.
    Silent,
    /// Held all others up.
    Slow,
    /// Sent two different messages for one place.
    Equivocation,
    /// Sent a value that does not fit its others (wrong X, Y or proof).
    WrongValue,
    /// Has a right it shall not have, or lacks one it used.
    Rights,
    /// Said, and signed, that members speak other versions of the wire than they do.
    Version,
}

/// Why something was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// Dropped, for this reason.
    #[error("dropped: {0}")]
    Dropped(Dropped),
    /// Proved misbehaviour of a member.
    #[error("a member misbehaved: {1:?}")]
    Misbehaved(CertHash, Misbehaviour),
    /// A command was not done.
    #[error(transparent)]
    Refused(#[from] CommandError),
}

impl From<Dropped> for HandleError {
    fn from(why: Dropped) -> HandleError {
        HandleError::Dropped(why)
    }
}

impl From<sealcast_wire::Malformed> for HandleError {
    fn from(_: sealcast_wire::Malformed) -> HandleError {
        HandleError::Dropped(Dropped::Malformed)
    }
}

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No view is installed yet.
    #[error("not in a group yet")]
    NotReady,
    /// Our certificate does not grant this.
    #[error("our certificate has no right to {0}")]
    Denied(&'static str),
    /// There is no such member.
    #[error("no such member")]
    NoSuchMember,
    /// So much waits to be done that no more is taken.
    #[error("too much at once")]
    TooMuch,
    /// The signed object does not verify.
    #[error("not signed by this group's authority, or not newer than what we have")]
    Invalid,
    /// This scheme has no such thing.
    #[error("this key scheme cannot do that")]
    Unsupported,
}

/// A message to be sealed as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Seal<'a> {
    /// The transport's id of the message, else one drawn by whoever seals; binds retries to one message.
    pub id: [u8; 16],
    /// What carriers read. The scheme sets its versions to those in force.
    pub envelope: &'a Envelope,
    /// The plaintexts: one, or several that readers open together or not at all.
    pub bodies: &'a [&'a [u8]],
}

/// A message of a message-sealed way, as delivered.
#[derive(Clone, Copy, Debug)]
pub struct Delivered<'a> {
    /// Its index in the way's order.
    pub index: u64,
    /// What carriers could read.
    pub header: &'a [u8],
    /// The sealed body; `None` if only attachments came with this call.
    pub body: Option<&'a [u8]>,
    /// (broker, bytes): shares and digests.
    pub attachments: &'a [(u16, Vec<u8>)],
}

/// Why a message was not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// This scheme's delivery seals datagrams, through [`Protect`].
    #[error("this scheme seals per datagram")]
    PerDatagram,
    /// No epoch is installed yet.
    #[error("no key yet")]
    NotReady,
    /// The policy does not parse, or is stale.
    #[error("policy")]
    Policy,
    /// The body is larger than what the scheme seals, or there are too many bodies or none.
    #[error("too large, or too many")]
    TooLarge,
    /// The message's id is no number of the kind that the scheme wants.
    #[error("the message's id is no number of this scheme")]
    Number,
}
