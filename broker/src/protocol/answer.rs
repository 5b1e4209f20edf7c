//! What a broker answers.

use sealcast_wire::{Malformed, Reader, Utc, Writer, limits};

use super::update::{body, entry};
use super::{Checkpoint, History, SignedKey, Update, count, flag, read_bytes, write_all, write_bytes};
use crate::operation::{Client, Policy};
use crate::receipt::Testimony;
use crate::state::{Entry, LowWaterMark, Notice, Reading, Results, SubjectStatus, TopicPosition};

/// The answer to a [`super::Query`]. What it says of the order counts when f + 1 brokers say the same (E1), but for
/// bodies, which their ids name, and for what is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To `Update`.
    Update(Update),
    /// To `Result`.
    Result {
        /// The block that executed it.
        height: u64,
        /// What became of the batch.
        results: Results,
    },
    /// To `Receipt` and `Witness`: this broker's part of a receipt.
    Receipt(Box<Testimony>),
    /// To `TopicPosition`, `Range` and `Latest`: positions and what is published there.
    Places(Vec<TopicPosition>),
    /// To `Value`: the block that changed it last, and the value.
    Value(Option<(u64, Vec<u8>)>),
    /// To `Resume`.
    Resumed {
        /// So many places from the one that was asked for are no longer kept; the notice begins behind them.
        lost: u64,
        /// What the subscription got.
        notice: Notice,
        /// All operations below this sn were looked at.
        until: u64,
        /// The publications that the notice delivers, by sn.
        publications: Vec<Entry>,
    },
    /// To `Bodies`: by sn, as many as fit.
    Bodies(Vec<(u64, Vec<u8>)>),
    /// To `Share`: an attachment.
    Share(Vec<u8>),
    /// To `Status`.
    Status(Box<Status>),
    /// To `Key`.
    Key(SignedKey),
    /// To `History`.
    History(Box<History>),
    /// To `Checkpoint`.
    Checkpoint(Box<Checkpoint>),
    /// To `Part`: bytes of a snapshot's rows, none behind its end.
    Part(Vec<u8>),
    /// To `Policy`: [`Policy::hash`] of both is what people compare.
    Policy {
        /// Its number; 0 before the first, with no rules.
        number: u64,
        /// Its rules, as administrators signed them.
        policy: Policy,
    },
    /// To `Evidence`: what is said of whom, each with its proof. That the broker says so means nothing: a proof convicts,
    /// or it does not.
    Evidence(Vec<(Report, Vec<u8>)>),
    /// To `Subject`.
    Subject(SubjectStatus),
    /// There is no answer.
    No(Why),
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[repr(u8)]
pub enum Why {
    /// This broker has not executed what the client has seen; another one has (E9).
    #[error("this broker is behind what the client has seen")]
    Behind = 1,
    /// The client may not read it.
    #[error("the client may not read")]
    Denied = 2,
    /// There is no such thing, or not yet.
    #[error("there is no such thing")]
    Nothing = 3,
    /// It is no longer kept here.
    #[error("it is no longer kept")]
    Pruned = 4,
    /// Too many queries are open, or proofs were asked for too often (E4).
    #[error("too many questions")]
    Busy = 5,
    /// The broker's storage failed.
    #[error("the broker's storage failed")]
    Storage = 6,
}

/// Where a broker stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Its number.
    pub broker: u16,
    /// Which one leads.
    pub leader: u16,
    /// The view of the ordering protocol.
    pub view: u64,
    /// The last block that it executed.
    pub height: u64,
    /// The state after it: brokers at one block have one.
    pub state_root: [u8; 32],
    /// That block's time; clients judge by it how old what they know is (E6).
    pub at: Utc,
    /// The number of the global policy in force (E6).
    pub policy: u64,
    /// The key epoch in force (E6).
    pub epoch: u32,
    /// The number of the administrators' next act (E3).
    pub next_act: u64,
    /// The last block that it knows to be final.
    pub tip: u64,
    /// How far back it keeps publications.
    pub low_water_mark: LowWaterMark,
    /// Clients connected.
    pub clients: u32,
    /// Batches that wait to be ordered.
    pub waiting: u32,
    /// Median time from a batch's coming in here to its execution, microseconds; 0 if there was none of late.
    pub commit_micros: u64,
    /// File descriptors that its process has open; 0 if it cannot tell.
    pub descriptors_used: u32,
    /// File descriptors that its process may open; `u32::MAX` if there is no limit.
    pub descriptors_allowed: u32,
    /// Seconds since the threshold key was made; `None` without a key.
    pub key_age: Option<u64>,
    /// Whether the broker has a share of that key.
    pub has_share: bool,
    /// Whether it still orders.
    pub running: bool,
    /// Misdeeds that it has evidence of.
    pub reports: Vec<Report>,
    /// Clients that publish nothing until administrators restore them, and since which block (E4); the first
    /// [`limits::SUSPENDED_SHOWN`] of them.
    pub suspended: Vec<(Client, u64)>,
    /// Other brokers of which it hears nothing.
    pub silent: Vec<u16>,
    /// Other brokers that it has cut off from itself within the last hour, because of what they sent.
    pub cut_off: Vec<u16>,
    /// Seconds by which its clock is ahead of those of the others, negative if it is behind; 0 if nothing is known.
    pub clock_ahead: i64,
}

/// A misbehaviour of which there is evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Report {
    /// Whose.
    pub broker: u16,
    /// In which view, or of which publication.
    pub at: u64,
    /// What.
    pub misbehaviour: Misbehaviour,
}

/// What a broker did that no honest one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Misbehaviour {
    /// Two different votes in one view.
    Equivocated = 1,
    /// Voted to skip a view and for the finality of its block.
    SkippedAndFinalized = 2,
    /// Signed the proof of a false share.
    FalseShare = 3,
    /// Signed another outcome of a block than the others.
    FalseState = 4,
}

impl Answer {
    /// ```text
    /// 1 ‖ update | 2 ‖ u64 height ‖ results | 3 ‖ testimony | 4 ‖ place … | 5 ‖ (0 | 1 ‖ u64 height ‖ bytes16 value)
    /// 6 ‖ u64 lost ‖ notice ‖ u64 until ‖ (u32 length ‖ entry) … | 7 ‖ (u64 sn ‖ u32 length ‖ operation) … | 8 ‖ attachment
    /// 9 ‖ status | 10 ‖ key | 11 ‖ u8 why | 12 ‖ history | 13 ‖ checkpoint | 14 ‖ bytes | 15 ‖ u64 number ‖ u32 length ‖ policy
    /// 16 ‖ (u16 broker ‖ u64 at ‖ u8 misbehaviour ‖ u32 length ‖ proof) … | 17 ‖ subject's status
    /// place = u64 ps ‖ (0 | 1 ‖ u32 length ‖ entry)
    /// ```
    /// Each list stands behind a `u32 count`.
    pub(super) fn encode(&self, w: &mut Writer) {
        match self {
            Answer::Update(update) => update.encode(w.u8(1)),
            Answer::Result { height, results } => results.encode(w.u8(2).u64(*height)),
            Answer::Receipt(testimony) => testimony.encode(w.u8(3)),
            Answer::Places(places) => write_all(w.u8(4), places, write_topic_position),
            Answer::Value(value) => {
                w.u8(5).u8(u8::from(value.is_some()));
                value.iter().for_each(|(height, value)| {
                    w.u64(*height).bytes16(value);
                });
            }
            Answer::Resumed { lost, notice, until, publications } => {
                notice.encode(w.u8(6).u64(*lost));
                w.u64(*until);
                write_all(w, publications, |entry, w| write_bytes(w, &entry.to_bytes()));
            }
            Answer::Bodies(bodies) => write_all(w.u8(7), bodies, |(sn, body), w| write_bytes(w.u64(*sn), body)),
            Answer::Share(attachment) => {
                w.u8(8).raw(attachment);
            }
            Answer::Status(status) => status.encode(w.u8(9)),
            Answer::Key(key) => key.encode(w.u8(10)),
            Answer::History(history) => history.encode(w.u8(12)),
            Answer::Checkpoint(checkpoint) => checkpoint.encode(w.u8(13)),
            Answer::Part(bytes) => {
                w.u8(14).raw(bytes);
            }
            Answer::Policy { number, policy } => write_bytes(w.u8(15).u64(*number), &policy.to_bytes()),
            Answer::Evidence(all) => write_all(w.u8(16), all, |(report, proof), w| {
                report.encode(w);
                write_bytes(w, proof);
            }),
            Answer::Subject(status) => status.encode(w.u8(17)),
            Answer::No(why) => {
                w.u8(11).u8(*why as u8);
            }
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Answer, Malformed> {
        Ok(match r.u8()? {
            1 => Answer::Update(Update::decode(r)?),
            2 => Answer::Result { height: r.u64()?, results: Results::decode(r)? },
            3 => Answer::Receipt(Box::new(Testimony::decode(r)?)),
            4 => Answer::Places((0..count(r, 9)?).map(|_| read_topic_position(r)).collect::<Result<_, _>>()?),
            5 if flag(r)? => Answer::Value(Some((r.u64()?, r.bytes16(limits::VALUE_BYTES_MAX)?.to_vec()))),
            5 => Answer::Value(None),
            6 => {
                let (lost, notice, until) = (r.u64()?, Notice::decode(r)?, r.u64()?);
                let publications = (0..count(r, 4)?).map(|_| entry(r)).collect::<Result<_, _>>()?;
                Answer::Resumed { lost, notice, until, publications }
            }
            7 => Answer::Bodies((0..count(r, 12)?).map(|_| body(r)).collect::<Result<_, _>>()?),
            8 => Answer::Share(r.rest().to_vec()),
            9 => Answer::Status(Box::new(Status::decode(r)?)),
            10 => Answer::Key(SignedKey::decode(r)?),
            11 => Answer::No(Why::from_number(r.u8()?)?),
            12 => Answer::History(Box::new(History::decode(r)?)),
            13 => Answer::Checkpoint(Box::new(Checkpoint::decode(r)?)),
            14 => Answer::Part(r.rest().to_vec()),
            15 => {
                let (number, bytes) = (r.u64()?, read_bytes(r, limits::RULES_BYTES_MAX)?);
                Answer::Policy { number, policy: Policy::from_bytes(&bytes)? }
            }
            16 => match count(r, 15)? {
                n if n > limits::EVIDENCE_MAX => return Err(Malformed),
                n => {
                    let one = |r: &mut Reader<'_>| {
                        Ok::<_, Malformed>((Report::decode(r)?, read_bytes(r, limits::EVIDENCE_BYTES_MAX)?))
                    };
                    Answer::Evidence((0..n).map(|_| one(r)).collect::<Result<_, _>>()?)
                }
            },
            17 => Answer::Subject(SubjectStatus::decode(r)?),
            _ => return Err(Malformed),
        })
    }
}

impl Status {
    /// `u16 broker ‖ u16 leader ‖ u64 view ‖ u64 height ‖ state root ‖ i64 at ‖ u64 policy ‖ u32 epoch ‖ u64 next act
    ///  ‖ u64 tip ‖ u64 floor's height ‖ u64 floor's sn ‖ u32 clients ‖ u32 waiting ‖ u64 commit time ‖ u32 descriptors used ‖ u32 descriptors allowed
    ///  ‖ (0 | 1 ‖ u64 key age) ‖ u8 has share ‖ u8 running ‖ (u16 broker ‖ u64 at ‖ u8 misbehaviour) … ‖ (client ‖ u64 since) …
    ///  ‖ (u16 silent broker) … ‖ (u16 broker cut off) … ‖ i64 clock ahead`
    fn encode(&self, w: &mut Writer) {
        w.u16(self.broker).u16(self.leader).u64(self.view).u64(self.height).raw(&self.state_root);
        w.raw(&self.at.0.to_be_bytes());
        w.u64(self.policy).u32(self.epoch).u64(self.next_act);
        w.u64(self.tip).u64(self.low_water_mark.height).u64(self.low_water_mark.sn);
        w.u32(self.clients).u32(self.waiting).u64(self.commit_micros);
        w.u32(self.descriptors_used).u32(self.descriptors_allowed).u8(u8::from(self.key_age.is_some()));
        self.key_age.iter().for_each(|age| {
            w.u64(*age);
        });
        w.u8(u8::from(self.has_share)).u8(u8::from(self.running));
        write_all(w, &self.reports, Report::encode);
        write_all(w, &self.suspended, |(client, since), w| {
            w.raw(&client.0).u64(*since);
        });
        for brokers in [&self.silent, &self.cut_off] {
            write_all(w, brokers, |broker, w| {
                w.u16(*broker);
            });
        }
        w.raw(&self.clock_ahead.to_be_bytes());
    }

    fn decode(r: &mut Reader<'_>) -> Result<Status, Malformed> {
        let (broker, leader, view, height) = (r.u16()?, r.u16()?, r.u64()?, r.u64()?);
        let state_root = r.array()?;
        let (at, policy, epoch) = (Utc(i64::from_be_bytes(r.array()?)), r.u64()?, r.u32()?);
        let (next_act, tip) = (r.u64()?, r.u64()?);
        let low_water_mark = LowWaterMark { height: r.u64()?, sn: r.u64()? };
        let (clients, waiting, commit_micros) = (r.u32()?, r.u32()?, r.u64()?);
        let (descriptors_used, descriptors_allowed) = (r.u32()?, r.u32()?);
        let key_age = if flag(r)? { Some(r.u64()?) } else { None };
        let (has_share, running) = (flag(r)?, flag(r)?);
        let reports = (0..count(r, 11)?).map(|_| Report::decode(r)).collect::<Result<_, _>>()?;
        let suspended =
            (0..count(r, 40)?).map(|_| Ok((Client(r.array()?), r.u64()?))).collect::<Result<_, Malformed>>()?;
        let [silent, cut_off] = [brokers(r)?, brokers(r)?];
        let clock_ahead = i64::from_be_bytes(r.array()?);
        Ok(Status {
            broker,
            leader,
            view,
            height,
            state_root,
            at,
            policy,
            epoch,
            next_act,
            tip,
            low_water_mark,
            clients,
            waiting,
            commit_micros,
            descriptors_used,
            descriptors_allowed,
            key_age,
            has_share,
            running,
            reports,
            suspended,
            silent,
            cut_off,
            clock_ahead,
        })
    }
}

/// Numbers of brokers.
fn brokers(r: &mut Reader<'_>) -> Result<Vec<u16>, Malformed> {
    match count(r, 2)? {
        n if n > limits::BROKERS_MAX => Err(Malformed),
        n => (0..n).map(|_| r.u16()).collect(),
    }
}

impl Report {
    fn encode(&self, w: &mut Writer) {
        w.u16(self.broker).u64(self.at).u8(self.misbehaviour as u8);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Report, Malformed> {
        let (broker, at, number) = (r.u16()?, r.u64()?, r.u8()?);
        use Misbehaviour::{Equivocated, FalseShare, FalseState, SkippedAndFinalized};
        let all = [Equivocated, SkippedAndFinalized, FalseShare, FalseState];
        let misbehaviour = all.into_iter().find(|it| *it as u8 == number).ok_or(Malformed)?;
        Ok(Report { broker, at, misbehaviour })
    }
}

impl Why {
    fn from_number(number: u8) -> Result<Why, Malformed> {
        let all = [Why::Behind, Why::Denied, Why::Nothing, Why::Pruned, Why::Busy, Why::Storage];
        all.into_iter().find(|why| *why as u8 == number).ok_or(Malformed)
    }
}

fn write_topic_position(place: &TopicPosition, w: &mut Writer) {
    w.u64(place.ps);
    match &place.reading {
        Reading::Empty => {
            w.u8(0);
        }
        Reading::Publication(entry) => write_bytes(w.u8(1), &entry.to_bytes()),
    }
}

fn read_topic_position(r: &mut Reader<'_>) -> Result<TopicPosition, Malformed> {
    let ps = r.u64()?;
    let reading = if flag(r)? {
        Reading::Publication(Box::new(Entry::from_bytes(&read_bytes(r, limits::OPERATION_BYTES_MAX)?)?))
    } else {
        Reading::Empty
    };
    Ok(TopicPosition { ps, reading })
}
