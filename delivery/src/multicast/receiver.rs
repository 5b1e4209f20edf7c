//! The receiving half: frames of opened records, origin proofs, reassembly, signs of life.

use std::borrow::Cow;
use std::time::Duration;

use sealcast_wire::frame::{FLAG_RELIABLE, FLAG_SIGNED};
use sealcast_wire::{Domain, Dropped, Drops, EpochId, Incarnation, Monotonic, Protect, Slot, Source, View};

use super::frame::{Frame, Frames, Head, Stream};
use super::liveness::Liveness;
use super::origin::Origins;
use crate::lcm;
use crate::reassembly::{Bounds, Piece, Reassembly};

/// The receiving half of a multicast group member; owned by the thread that reads the socket.
#[derive(Debug)]
pub struct Receiver {
    partial: Reassembly<(Slot, Incarnation), Key, Known>,
    plain: lcm::Decoder,
    origins: Origins,
    liveness: Liveness,
    is_named: bool,
    drops: Drops,
}

/// Takes what a [`Receiver`] brings up.
pub trait Sink {
    /// Whether anybody here wants messages of this topic; pieces of others are not put together.
    fn wants(&mut self, _topic: &str) -> bool {
        true
    }

    /// Whether readers take messages now; reliable ones wait until they do.
    fn has_readers(&self) -> bool {
        true
    }

    /// A message of the application.
    fn message(&mut self, message: Received<'_>);

    /// A message of the key scheme, from inside the group.
    fn keys(&mut self, source: Source, bytes: Cow<'_, [u8]>);

    /// What a member says about reliable records; `false` where nobody speaks of them.
    fn control(&mut self, _source: Source, _bytes: &[u8]) -> bool {
        false
    }
}

/// A message of the application as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received<'a> {
    /// The sender's number for it, or its position in the order.
    pub number: u64,
    /// Whether it has one.
    pub ordered: bool,
    /// Who sent it, as far as the seal proves.
    pub source: Source,
    /// Whether a signature proves the slot in `source`.
    pub signed: bool,
    /// Its topic.
    pub topic: &'a str,
    /// The sender's clock, microseconds since 1970, if it told.
    pub sent_micros: Option<u64>,
    /// The payload: borrowed from the datagram if it came in one.
    pub body: Cow<'a, [u8]>,
}

/// Which message of a sender a piece belongs to: signed and unsigned ones, epochs and domains never mix.
type Key = (EpochId, Domain, bool, u64);

/// What all pieces of a message agree on besides its length.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    keys: bool,
    sent_micros: Option<u64>,
    topic: Box<str>,
}

/// Who sealed a record.
#[derive(Clone, Copy)]
struct From {
    source: Source,
    epoch: EpochId,
    slot: Slot,
    incarnation: Incarnation,
    domain: Domain,
    signed: bool,
}

impl Receiver {
    /// A receiver that suspects members after `detect` of silence.
    pub fn new(detect: Duration, bounds: Bounds) -> Receiver {
        Receiver {
            partial: Reassembly::new(bounds),
            plain: lcm::Decoder::new(bounds),
            origins: Origins::default(),
            liveness: Liveness::new(detect),
            is_named: false,
            drops: Drops::default(),
        }
    }

    /// Takes in one opened record, or without a seal one of LCM's datagrams.
    ///
    /// `protect` is the capability that opened it. Records that need an origin proof and lack it are
    /// dropped whole; `signed` is never said of anything before its root is verified (A12).
    pub fn handle(
        &mut self,
        now: Monotonic,
        source: Source,
        flags: u8,
        record: &[u8],
        protect: Option<&dyn Protect>,
        sink: &mut impl Sink,
    ) {
        if let Err(why) = self.take_in(now, source, flags, record, protect, sink) {
            self.drops.count(why);
        }
    }

    /// A new view: its other members are watched for signs of life.
    pub fn install(&mut self, now: Monotonic, view: &View) {
        self.liveness.install(now, view);
        self.origins.retain(|incarnation| self.liveness.knows(incarnation));
    }

    /// When [`Receiver::handle_timeout`] wants to be called next.
    pub fn timeout(&self) -> Option<Monotonic> {
        [self.partial.timeout(), self.plain.timeout(), self.liveness.timeout()].into_iter().flatten().min()
    }

    /// Time has come; the members that have been silent for too long.
    pub fn handle_timeout(&mut self, now: Monotonic) -> Vec<Slot> {
        self.partial.handle_timeout(now);
        self.plain.handle_timeout(now);
        self.liveness.silent(now)
    }

    /// So many messages found nobody who takes them now.
    pub(super) fn refused(&mut self, count: u32) {
        (0..count).for_each(|_| self.drops.count(Dropped::Queue));
    }

    /// What was dropped, by reason.
    pub fn drops(&self) -> Drops {
        let mut drops = self.drops.clone();
        drops.add(self.partial.drops());
        drops.add(&self.plain.drops());
        drops
    }

    /// Bytes held for incomplete messages.
    pub fn bytes(&self) -> usize {
        self.partial.bytes() + self.plain.bytes()
    }

    /// How many origin signatures were checked: one per batch, not one per record.
    pub fn signature_checks(&self) -> u64 {
        self.origins.checks()
    }

    /// The frames of a reliable record, once its origin proof is verified if it is signed.
    pub(crate) fn prove<'a>(
        &mut self,
        now: Monotonic,
        (epoch, slot): (EpochId, Slot),
        (stream, number, attested): (Stream, u64, bool),
        record: &'a [u8],
        protect: Option<&dyn Protect>,
    ) -> Result<&'a [u8], Dropped> {
        if !stream.signed {
            return Ok(record);
        }
        let of = (epoch, stream.domain, slot);
        self.origins.verify(now, of, (Some(number), attested), record, protect.ok_or(Dropped::NoKey)?)
    }

    /// Whether a large group's collector named us since this was asked last.
    pub(super) fn take_named(&mut self) -> bool {
        std::mem::take(&mut self.is_named)
    }

    /// Whom we heard since then, by slot, as bits.
    pub(super) fn heard_since(&self, since: Monotonic) -> Vec<u8> {
        self.liveness.heard_since(since)
    }

    /// A reliable record came for the first time: its sender lives.
    pub(crate) fn heard(&mut self, now: Monotonic, who: &Incarnation) {
        self.liveness.heard(now, who);
    }

    fn take_in(
        &mut self,
        now: Monotonic,
        source: Source,
        flags: u8,
        record: &[u8],
        protect: Option<&dyn Protect>,
        sink: &mut impl Sink,
    ) -> Result<(), Dropped> {
        if flags & FLAG_RELIABLE != 0 {
            return Err(Dropped::Foreign); // multicast is best effort
        }
        let Source::Inside { epoch, slot, incarnation, domain, .. } = source else {
            return self.take_plain(now, source, record, sink);
        };
        self.liveness.heard(now, &incarnation);
        let signed = flags & FLAG_SIGNED != 0;
        let frames = if signed {
            let protect = protect.ok_or(Dropped::NoKey)?;
            let frames = self.origins.verify(now, (epoch, domain, slot), (None, false), record, protect)?;
            if !protect.admit(&source) {
                return Err(Dropped::Replay);
            }
            frames
        } else {
            record
        };
        let from = From { source, epoch, slot, incarnation, domain, signed };
        for frame in Frames::of(frames) {
            if let Err(why) = self.take_frame(now, from, frame?, sink) {
                self.drops.count(why);
            }
        }
        Ok(())
    }

    fn take_frame(
        &mut self,
        now: Monotonic,
        from: From,
        frame: Frame<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), Dropped> {
        match frame {
            Frame::Heartbeat { .. } if from.domain == Domain::GROUP => Ok(()),
            // Its domain is looked at where it is taken in.
            Frame::Control { bytes } if !from.signed => {
                if sink.control(from.source, bytes) {
                    Ok(())
                } else {
                    Err(Dropped::Foreign)
                }
            }
            Frame::Heard { bits } if from.domain == Domain::GROUP && !from.signed => {
                self.is_named |= self.liveness.collected(now, (from.epoch, from.slot), bits)?;
                Ok(())
            }
            Frame::Heartbeat { .. }
            | Frame::Heard { .. }
            | Frame::Control { .. }
            | Frame::After { .. }
            | Frame::Named { .. }
            | Frame::Stamps { .. } => Err(Dropped::Malformed),
            Frame::Whole { head, body } => {
                self.admit(from, &head, true)?;
                deliver(from, &head, body.into(), sink);
                Ok(())
            }
            Frame::Piece { head, total, offset, bytes } => {
                if !head.keys && !sink.wants(head.topic) {
                    return Ok(());
                }
                self.admit(from, &head, false)?;
                let known = Known { keys: head.keys, sent_micros: head.sent_micros, topic: head.topic.into() };
                let piece =
                    Piece { total: total as usize, count: 0, offset: offset as usize, bytes, head: Some(known) };
                let key = (from.epoch, from.domain, from.signed, head.number);
                if let Some((_, body)) = self.partial.insert(now, (from.slot, from.incarnation), key, piece) {
                    self.admit(from, &head, true)?;
                    deliver(from, &head, body.into(), sink);
                }
                Ok(())
            }
        }
    }

    /// Refuses what a record of this domain cannot carry, and signed messages that came before: an
    /// insider can seal them again under a new packet counter, but not sign them with a new number.
    fn admit(&mut self, from: From, head: &Head<'_>, whole: bool) -> Result<(), Dropped> {
        if head.again || head.keys && from.domain != Domain::GROUP {
            return Err(Dropped::Malformed);
        }
        if from.signed && !self.origins.fresh(from.incarnation, head.number, whole) {
            return Err(Dropped::Replay);
        }
        Ok(())
    }

    fn take_plain(
        &mut self,
        now: Monotonic,
        source: Source,
        datagram: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), Dropped> {
        let Source::Outside(from) = source else { return Err(Dropped::Malformed) };
        if let Some(message) = self.plain.handle(now, from, datagram) {
            sink.message(Received {
                ordered: false,
                number: u64::from(message.sequence),
                source,
                signed: false,
                topic: &message.channel,
                sent_micros: None,
                body: message.data,
            });
        }
        Ok(())
    }
}

fn deliver(from: From, head: &Head<'_>, body: Cow<'_, [u8]>, sink: &mut impl Sink) {
    let From { source, signed, .. } = from;
    if head.keys {
        sink.keys(source, body);
    } else {
        let Head { number, sent_micros, topic, .. } = *head;
        sink.message(Received { number, ordered: false, source, signed, topic, sent_micros, body });
    }
}
