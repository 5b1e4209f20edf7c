//! The local socket of a running session (A7): other processes of the same user ask it what it knows, and
//! have it publish, subscribe, rotate, admit, evict, leave or learn.
//!
//! A Unix socket in the user's runtime folder (0700), one per certificate and group. One request is a
//! line of JSON, for `publish` followed by as many bytes as it says; one answer is a line of JSON. After
//! `subscribe` the connection brings messages only, each a line followed by as many bytes as it says:
//! ```text
//! → {"do":"publish","topic":"ward3/vitals","bytes":9}\n{"hr":72}
//! ← {"ok":{"published":{"number":17}}}
//! → {"do":"evict","who":"carol","reason":"lost laptop"}
//! ← {"error":{"code":414,"message":"our certificate has no right to evict","hint":null}}
//! → {"do":"subscribe","pattern":"ward3/#","regex":false}
//! ← {"ok":"done"}
//! ← {"heard":{"topic":"ward3/vitals","origin":{"signed":"robot7"},"epoch":3,…,"bytes":9}}\n{"hr":72}
//! ```
//! Whoever connects must be the same user: the kernel says who it is.

mod client;
mod server;

use std::path::PathBuf;

use sealcast_crypto::hash::Transcript;
use sealcast_wire::{CertHash, Guarantee};
use serde::{Deserialize, Serialize};

pub use client::{Client, Listening, running};
pub use server::{Handler, Server};

use crate::code::Code;
use crate::config::Home;
use crate::error::Error;
use crate::group::{Message, Origin};
use crate::remedy::Remedy;

/// What is asked of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// What it knows of the group.
    Show,
    /// What happened, oldest first.
    Log,
    /// Publish the bytes that follow.
    Publish {
        /// On this topic.
        topic: String,
        /// How strongly.
        #[serde(default, skip_serializing_if = "Strength::is_default")]
        guarantee: Strength,
        /// How many bytes follow the line.
        bytes: usize,
    },
    /// Bring messages from now on, until the connection ends.
    Subscribe {
        /// Of the topics that match.
        pattern: String,
        /// Whether it is a regular expression.
        regex: bool,
    },
    /// Agree on a new key.
    Rotate,
    /// Make those who are here primary, by force.
    Primary,
    /// Evict a member.
    Evict {
        /// A name, or a certificate's SHA-256 in hexadecimal digits.
        who: String,
        /// For everybody's log.
        reason: String,
        /// All that have the name, with one change of key where the scheme can.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        all: bool,
    },
    /// Who waits to be let in.
    Pending,
    /// Let devices in.
    Admit {
        /// Names of such, or certificates' SHA-256 in hexadecimal digits.
        who: Vec<String>,
    },
    /// Leave the group; the session ends.
    Leave,
    /// Take in a signed object.
    Learn {
        /// A revocation list, policy or eviction, in hexadecimal digits.
        object: String,
    },
}

/// What a session answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// To `show`.
    Show(Box<GroupInfo>),
    /// To `log`.
    Log(Vec<LogLine>),
    /// To `publish`.
    Published {
        /// Its number; none while it waits for the next key.
        number: Option<u64>,
        /// How many other members the group has; none where nobody knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        others: Option<usize>,
        /// Whether a subscription of the session itself takes it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        here: bool,
    },
    /// To `rotate` and `evict`.
    Changed(Change),
    /// To `pending`.
    Pending(Vec<PendingInfo>),
    /// To `admit`.
    Admitted(AdmissionInfo),
    /// To `primary`.
    Ordered {
        /// Who orders.
        sequencer: String,
    },
    /// To `subscribe`, `leave` and `learn`.
    Done,
}

/// What a session told of a message that it published for somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its number; none while it waits for the next key.
    pub number: Option<u64>,
    /// How many other members the group has; none where nobody knows.
    pub others: Option<usize>,
    /// Whether a subscription of the session itself takes it.
    pub here: bool,
}

/// How strongly a message is published: the names of [`Guarantee`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strength {
    /// Best effort.
    #[default]
    Best,
    /// In the order sent.
    Fifo,
    /// In one order at all members.
    Ordered,
    /// Ordered, and acknowledged once all members hold it.
    Safe,
}

impl Strength {
    fn is_default(&self) -> bool {
        *self == Strength::Best
    }
}

impl From<Guarantee> for Strength {
    fn from(guarantee: Guarantee) -> Strength {
        match guarantee {
            Guarantee::BestEffort => Strength::Best,
            Guarantee::Fifo => Strength::Fifo,
            Guarantee::Ordered => Strength::Ordered,
            Guarantee::Safe => Strength::Safe,
        }
    }
}

impl From<Strength> for Guarantee {
    fn from(strength: Strength) -> Guarantee {
        match strength {
            Strength::Best => Guarantee::BestEffort,
            Strength::Fifo => Guarantee::Fifo,
            Strength::Ordered => Guarantee::Ordered,
            Strength::Safe => Guarantee::Safe,
        }
    }
}

/// A message that a session heard for somebody else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// Its topic.
    pub topic: String,
    /// Who sent it.
    pub origin: HeardOrigin,
    /// The number of the epoch whose key sealed it.
    pub epoch: Option<u32>,
    /// Its number.
    pub sequence: u64,
    /// The sender's clock, microseconds since 1970, if it told.
    pub sent_micros: Option<u64>,
    /// How many messages were missed so far, because we were slow.
    pub missed: u64,
    /// How many bytes follow the line.
    pub bytes: usize,
    /// The payload.
    #[serde(skip)]
    pub payload: Vec<u8>,
}

/// Who sent a message, and how well that is proved: [`Origin`] by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeardOrigin {
    /// A verified signature of this member.
    Signed(String),
    /// Whoever holds the group's key, and claims to be this member.
    Claimed(String),
    /// A client of brokers, by its key in hexadecimal digits.
    Client(String),
    /// Nothing is proved.
    Anonymous,
}

impl From<Message> for Heard {
    fn from(message: Message) -> Heard {
        Heard {
            topic: message.topic().to_owned(),
            origin: match message.origin() {
                Origin::Signed(member) => HeardOrigin::Signed(member.name.to_string()),
                Origin::Claimed(member) => HeardOrigin::Claimed(member.name.to_string()),
                Origin::Client(key) => HeardOrigin::Client(key.iter().map(|b| format!("{b:02x}")).collect()),
                Origin::Anonymous => HeardOrigin::Anonymous,
            },
            epoch: message.epoch().map(|it| it.counter),
            sequence: message.sequence(),
            sent_micros: message.sent_micros(),
            missed: 0,
            bytes: message.payload().len(),
            payload: message.into_payload(),
        }
    }
}

/// What a session knows of its group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupInfo {
    /// The group's name.
    pub group: String,
    /// Where, and how.
    pub url: String,
    /// Our own name.
    pub me: String,
    /// The process that runs the session.
    pub pid: u32,
    /// Whether the session is that of a command that sends, leaves and ends.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub one_shot: bool,
    /// The authority's fingerprint, `scca1…`.
    pub authority: Option<String>,
    /// Who holds the keys: `plain`, `contributory`.
    pub keys: String,
    /// The cipher of payload.
    pub cipher: String,
    /// How origins are proved: `auto`, `signed`, `mac`.
    pub origin: String,
    /// Whether names are hidden from those who merely know the authority.
    #[serde(rename = "veiled")]
    pub has_bootstrap_key: bool,
    /// The epoch's number, once there is one.
    pub epoch: Option<u32>,
    /// The epoch's hash, 16 hexadecimal digits.
    pub epoch_hash: Option<String>,
    /// How long the epoch is installed, milliseconds.
    pub age_ms: u64,
    /// When the key changes by itself, milliseconds from now.
    pub rotates_in_ms: Option<u64>,
    /// Whether publishing waits for a change of key.
    pub paused: bool,
    /// Who orders, where one member does (`order=total` over multicast).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderInfo>,
    /// The order of a group that has one, and the tree that it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeInfo>,
    /// For how long nobody else was heard, milliseconds, if that is too long for a group of its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    /// Why the session is out of the group, if it is.
    pub excluded: Option<String>,
    /// What should be known, each with what repairs it.
    pub warnings: Vec<String>,
    /// The members, by slot.
    pub members: Vec<MemberInfo>,
    /// Topics by the key that they travel under (A8), in the order in which a topic is looked up.
    pub compartments: Vec<CompartmentInfo>,
    /// Counters of the session by name: published, delivered, missed, and drops by reason.
    pub counters: std::collections::BTreeMap<String, u64>,
}

/// Who orders in a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OrderInfo {
    /// The member that says what comes next; `None`: nothing is ordered here, as this member is not in the primary component.
    pub sequencer: Option<String>,
    /// The number of the primary view that this member was in last.
    #[serde(default)]
    pub term: u64,
    /// Bytes that this member published reliably and that wait to be acknowledged, as sealed.
    pub backlog_bytes: u64,
    /// The most that there may be (`backlog=`).
    pub backlog_bytes_max: u64,
    /// So many may wait at present: less where the network took no more.
    pub window_bytes: u64,
    /// The member that holds the least of the order, if others wait for it.
    pub slowest: Option<SlowestInfo>,
}

/// The ratchet tree of a group of RFC 9420, and the order of its changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TreeInfo {
    /// The cipher suite, as RFC 9420 names it.
    pub suite: String,
    /// How many nodes the tree has.
    pub nodes: u32,
    /// How many of those above our leaf are blank.
    pub blanks_above: usize,
    /// Whether who keeps the order can show two of them, which members find out.
    pub forkable: bool,
    /// The position in the order of the last message that was judged.
    pub position: u64,
    /// When who keeps the order was last heard, milliseconds ago, where that is told.
    pub heard_ms: Option<u64>,
}

/// The slowest member of an order, by its sequencer's word.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowestInfo {
    /// The name in its certificate.
    pub name: String,
    /// How many records less it holds than most members.
    pub behind: u64,
}

/// What a session knows of a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberInfo {
    /// The name in its certificate.
    pub name: String,
    /// Its certificate's SHA-256, hexadecimal digits.
    pub certificate: String,
    /// The certificate's serial number.
    pub serial: Option<String>,
    /// Its public keys, `scpub1…`.
    pub key: Option<String>,
    /// `key=value`.
    pub attributes: Vec<String>,
    /// The epoch in which we first saw it.
    pub since_epoch: Option<u32>,
    /// How long it has been seen, milliseconds.
    pub age_ms: Option<u64>,
    /// How long ago it was last heard, milliseconds.
    pub last_heard_ms: Option<u64>,
    /// Whether it mixes an X25519 exchange into keys from a centre, with others who do.
    pub x25519: bool,
    /// Patterns that it may publish on.
    pub publishes: Vec<String>,
    /// Patterns that it may subscribe to.
    pub subscribes: Vec<String>,
    /// Whether it is the session itself.
    pub me: bool,
}

/// Topics under one key, and who has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompartmentInfo {
    /// Its name in the group's policy; without one, its pattern.
    pub name: String,
    /// The patterns of its topics.
    pub patterns: Vec<String>,
    /// Who reads it: places in `members`.
    pub readers: Vec<usize>,
    /// Who writes some of it and does not read it: places in `members`.
    pub writers_only: Vec<usize>,
    /// Whether every message must be signed, since some reader may not write all that it reads (A1).
    pub signed: bool,
}

/// A line of a group's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// Microseconds since 1970.
    pub at_micros: u64,
    /// The epoch that it led to, if it is a change of membership.
    pub epoch: Option<u32>,
    /// What happened, one word: `joined`, `left`, `evicted`, `rekeyed`, `notice`, …
    pub event: String,
    /// To whom or what.
    pub what: String,
}

/// How a change of the group went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The epoch's number before.
    pub from: u32,
    /// The epoch's number now.
    pub to: u32,
    /// Members heard on the new key.
    pub on_new_key: usize,
    /// Members in all.
    pub members: usize,
    /// From the command to that, microseconds.
    pub elapsed_micros: u64,
    /// The evicted certificate's serial number.
    pub serial: Option<String>,
}

/// A device that waits to be let in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PendingInfo {
    /// The name in its certificate.
    pub name: String,
    /// Its certificate's SHA-256, hexadecimal digits.
    pub certificate: String,
    /// The certificate's serial number.
    pub serial: String,
    /// Seconds since 1970 at which the certificate ends.
    pub not_after: i64,
    /// How long ago it was heard last, milliseconds.
    pub heard_ms: u64,
}

/// How an admission went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdmissionInfo {
    /// The epoch's number before.
    pub from: u32,
    /// The epoch's number now.
    pub to: u32,
    /// Members now.
    pub members: usize,
    /// Certificates of those who are members now, hexadecimal digits.
    pub admitted: Vec<String>,
    /// Who is not.
    pub refused: Vec<RefusedInfo>,
    /// From the command to that, microseconds.
    pub elapsed_micros: u64,
}

/// A device that was not let in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefusedInfo {
    /// Its certificate, hexadecimal digits.
    pub certificate: String,
    /// The error's number.
    pub code: u16,
    /// Why.
    pub message: String,
}

/// An answer's outer form.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reply {
    Ok(Answer),
    Heard(Heard),
    Error(Refusal),
}

#[derive(Serialize, Deserialize)]
struct Refusal {
    code: u16,
    message: String,
    hint: Option<String>,
    /// As a newer program may know more of them, one that is not known is none.
    #[serde(default, deserialize_with = "known_remedy", skip_serializing_if = "Option::is_none")]
    remedy: Option<Remedy>,
}

fn known_remedy<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Remedy>, D::Error> {
    let value = Option::<serde_json::Value>::deserialize(from)?;
    Ok(value.and_then(|value| serde_json::from_value(value).ok()))
}

impl From<Result<Answer, Error>> for Reply {
    fn from(result: Result<Answer, Error>) -> Reply {
        match result {
            Ok(answer) => Reply::Ok(answer),
            Err(e) => Reply::Error(Refusal {
                code: e.code().number(),
                message: e.message().to_owned(),
                hint: e.hint().map(str::to_owned),
                remedy: e.remedy().cloned(),
            }),
        }
    }
}

impl From<Reply> for Result<Answer, Error> {
    fn from(reply: Reply) -> Result<Answer, Error> {
        match reply {
            Reply::Ok(answer) => Ok(answer),
            Reply::Heard(_) => Err(Error::new(Code::System, "a message that nobody subscribed to")),
            Reply::Error(r) => {
                let error = Error::new(Code::of_number(r.code).unwrap_or(Code::System), r.message);
                let error = r.hint.into_iter().fold(error, Error::with_hint);
                Err(r.remedy.into_iter().fold(error, Error::with_remedy))
            }
        }
    }
}

/// Where the session of this certificate in this group has its socket. Short, since the kernel takes at
/// most 107 bytes.
pub fn socket_path(home: &Home, certificate: &CertHash, group: &str) -> PathBuf {
    let hash = Transcript::new("sealcast/v1/control socket").add(&certificate.0).add(group.as_bytes()).finish();
    let name: String = hash[..8].iter().map(|b| format!("{b:02x}")).collect();
    home.runtime().join(format!("{name}.{EXTENSION}"))
}

const EXTENSION: &str = "sock";
/// Bytes of a line: the largest is a revocation list in hexadecimal digits.
const LINE_BYTES_MAX: u64 = 4 << 20;
