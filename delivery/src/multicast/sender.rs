//! The sending half: packs messages into records, cuts big ones, seals, and lays datagrams end to end.
//!
//! ```text
//! data ──▶ lane (domain, signed?) ─ record open ─▶ record closed: sealed in place ─▶ batch ─▶ poll
//!                                                   signed: after the whole batch is signed
//! ```
//! One lane per domain, signed-ness and reliability has one record open at a time, at the end of its batch; a
//! record is closed when the next message does not fit or when [`Sender::poll`] flushes. The payload is
//! copied once, into the batch, and sealed there. In steady state nothing is allocated: batches that the
//! caller has let go of come back.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use sealcast_wire::frame::{
    FLAG_ORDERED, FLAG_RELIABLE, FLAG_SAFE, FLAG_SIGNED, HEADER_LEN, KIND_OPEN, MAGIC, SEGMENT_MIN, TAG_LEN,
};
use sealcast_wire::protect::SIGNATURE_BYTES;
use sealcast_wire::{Access, Domain, EpochId, Exhausted, Guarantee, Monotonic, Protect, limits};

use super::backlog::{Again, Backlog, Flow, Settled};
use super::frame::{
    AFTER_BYTES, CONTROL_FIXED, Frame, Frames, HEARD_FIXED, Head, NAMED_MAX, STAMPS_MAX, Stamp, Stream, named_len,
    stamps_len, stamps_within, write_after, write_control, write_heard, write_heartbeat, write_named, write_stamps,
};
use super::origin::{PROOF_BYTES_MAX, TRAILER_BYTES, Unsigned, without_proof};
use super::parity::PARITY_BYTES;
use super::sent::Sent;
use crate::{Batch, Packet, SendError, lcm};

/// The sending half of a multicast group member; shared by publishers' threads behind a mutex.
pub struct Sender {
    segment: usize,
    number: u64,
    /// Only in a group without keys.
    plain: Option<lcm::Encoder>,
    lanes: Vec<Lane>,
    /// Open messages and LCM's datagrams, which nothing seals.
    unsealed: Batch,
    /// Whether `unsealed` was passed over by the last poll.
    unsealed_waited: bool,
    done: VecDeque<Arc<Batch>>,
    done_bytes: usize,
    sent: Sent,
    /// What not all readers have, where there is a reliable channel.
    backlog: Option<Backlog>,
    /// What seals for the backlog's epoch, if publishers may not know yet that it has begun.
    ahead: Option<Ahead>,
    spoken: Option<Monotonic>,
    retired: VecDeque<EpochId>,
    lost: u64,
}

/// An epoch that has begun without the knowledge of publishers.
struct Ahead {
    protect: Arc<dyn Protect>,
    access: Arc<dyn Access>,
}

impl Ahead {
    /// Where a topic's messages are sealed in it; `None` if we may not publish them.
    fn stream(&self, topic: &str, signed: bool) -> Option<Stream> {
        let may = self.access.may_publish(self.protect.slot(), topic);
        let domain = self.access.domain(topic).filter(|_| may)?;
        Some(Stream { domain, signed: signed || self.access.must_sign(topic) })
    }
}

/// A message to be framed.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// Its topic, at most `limits::TOPIC_BYTES_MAX` bytes.
    pub topic: &'a str,
    /// The compartment whose key seals it.
    pub domain: Domain,
    /// Whether to prove its origin by signature (A12).
    pub signed: bool,
    /// How strongly.
    pub guarantee: Guarantee,
    /// The sender's clock, microseconds since 1970, if it wants to tell.
    pub sent_micros: Option<u64>,
    /// The payload, at most `limits::MESSAGE_BYTES_MAX`.
    pub body: &'a [u8],
}

impl Sender {
    /// A sender of datagrams of at most `segment` bytes: the path's MTU less the IP and UDP headers.
    ///
    /// With `plain`, messages without a capability become LCM's datagrams, of LCM's own size; else they
    /// are refused.
    ///
    /// # Panics
    /// If `segment` is not between [`SEGMENT_MIN`] and [`SEGMENT_MAX`].
    pub fn new(segment: usize, plain: bool) -> Sender {
        let mut sender = Sender {
            segment: 0,
            number: 0,
            plain: plain.then(lcm::Encoder::default),
            lanes: Vec::new(),
            unsealed: Batch::default(),
            unsealed_waited: false,
            done: VecDeque::new(),
            done_bytes: 0,
            sent: Sent::default(),
            backlog: None,
            ahead: None,
            spoken: None,
            retired: VecDeque::new(),
            lost: 0,
        };
        sender.set_segment(segment);
        sender
    }

    /// From the next record on, datagrams have at most this many bytes.
    ///
    /// # Panics
    /// If `segment` is not between [`SEGMENT_MIN`] and [`SEGMENT_MAX`].
    pub fn set_segment(&mut self, segment: usize) {
        assert!((SEGMENT_MIN..=SEGMENT_MAX).contains(&segment), "no segment of {segment} bytes");
        self.finish_lanes();
        self.segment = segment;
    }

    /// Takes one message of the application and returns its number; [`Sender::poll`] brings it on its way.
    ///
    /// Without `protect` it becomes LCM's datagrams, whose sequence numbers have 32 bits, in a plain group.
    ///
    /// # Errors
    /// Nothing was taken then; see [`SendError`]. A message without capability that is not meant to go in
    /// clear is [`SendError::Exhausted`].
    pub fn data(
        &mut self,
        now: Monotonic,
        protect: Option<&Arc<dyn Protect>>,
        data: Data<'_>,
    ) -> Result<u64, SendError> {
        self.admit(data.body.len())?;
        let Some(protect) = protect else {
            let plain = self.plain.as_mut().ok_or(Exhausted)?;
            return plain.encode(data.topic, data.body, &mut self.unsealed).map(u64::from);
        };
        if data.topic.len() > limits::TOPIC_BYTES_MAX {
            return Err(SendError::BadTopic);
        }
        let mut stream = Stream { domain: data.domain, signed: data.signed };
        let mut ahead = None;
        if data.guarantee != Guarantee::BestEffort {
            let backlog = self.backlog.as_ref().ok_or(SendError::NotGiven(data.guarantee))?;
            let is_ahead = |it: &Ahead| it.protect.epoch().counter > protect.epoch().counter;
            if let Some(it) = self.ahead.as_ref().filter(|it| is_ahead(it)) {
                stream = it.stream(data.topic, data.signed).ok_or(SendError::Retired)?;
                ahead = Some(it.protect.clone());
            }
            let protect = ahead.as_ref().unwrap_or(protect);
            backlog.admit(protect.epoch(), data.body.len())?;
            if data.guarantee >= Guarantee::Ordered {
                backlog.admit_ordered()?;
            }
        }
        let head = Head { keys: false, again: false, number: 0, sent_micros: data.sent_micros, topic: data.topic };
        let protect = ahead.as_ref().unwrap_or(protect);
        let number = self.sealed(now, protect, LaneOf { stream, guarantee: data.guarantee }, head, data.body)?;
        if let Some(backlog) = self.backlog.as_mut().filter(|_| data.guarantee == Guarantee::BestEffort) {
            backlog.spend(now, head.whole_len() + data.body.len());
        }
        Ok(number)
    }

    /// Whether publishers of best effort have to wait now, since it goes too fast beside what is reliable; if so, whether none
    /// did before. What is taken all the same counts.
    pub fn holds_back(&mut self, now: Monotonic) -> Option<bool> {
        self.backlog.as_mut().and_then(|it| it.holds_back(now))
    }

    /// Who publishes may not know yet of the epoch that has begun: what is reliable is sealed for it all the same.
    pub(crate) fn seal_ahead(&mut self, protect: &Arc<dyn Protect>, access: &Arc<dyn Access>) {
        self.ahead = Some(Ahead { protect: protect.clone(), access: access.clone() });
    }

    /// Takes a key scheme's message: sealed under the group's key, or without `protect` on the open lane.
    ///
    /// An open message is one datagram of up to `limits::OPEN_BYTES_MAX` bytes: the socket must let IP
    /// fragment it.
    ///
    /// # Errors
    /// Nothing was taken then; see [`SendError`].
    pub fn keys(&mut self, now: Monotonic, protect: Option<&Arc<dyn Protect>>, bytes: &[u8]) -> Result<u64, SendError> {
        self.admit(bytes.len())?;
        let Some(protect) = protect else {
            if bytes.len() > limits::OPEN_BYTES_MAX {
                return Err(SendError::TooLong);
            }
            self.unsealed.bytes.extend_from_slice(&[MAGIC, KIND_OPEN]);
            self.unsealed.bytes.extend_from_slice(bytes);
            self.unsealed.lengths.push(2 + bytes.len());
            self.number += 1;
            return Ok(self.number);
        };
        let head = Head { keys: true, again: false, number: 0, sent_micros: None, topic: "" };
        self.sealed(now, protect, LaneOf::GROUP, head, bytes)
    }

    /// Says that we are alive.
    pub fn heartbeat(&mut self, now: Monotonic, protect: &Arc<dyn Protect>) -> Result<(), SendError> {
        let number = self.number;
        let lane = self.lane(now, protect, LaneOf::GROUP)?;
        self.reserve(lane, HEARTBEAT_BYTES);
        write_heartbeat(number, &mut self.lanes[lane].batch.bytes);
        self.spoken = Some(now);
        Ok(())
    }

    /// Says the same to one member alone.
    pub(crate) fn heartbeat_alone(&mut self, protect: &Arc<dyn Protect>) -> Option<Vec<u8>> {
        let number = self.number;
        self.alone(protect, Domain::GROUP, |record| write_heartbeat(number, record))
    }

    /// Says whom we heard: by slot, as bits.
    pub(crate) fn heard(&mut self, now: Monotonic, protect: &Arc<dyn Protect>, bits: &[u8]) -> Result<(), SendError> {
        let lane = self.lane(now, protect, LaneOf::GROUP)?;
        self.reserve(lane, HEARD_FIXED + bits.len());
        write_heard(bits, &mut self.lanes[lane].batch.bytes);
        self.spoken = Some(now);
        Ok(())
    }

    /// Says something about reliable records.
    pub(crate) fn control(
        &mut self,
        now: Monotonic,
        protect: &Arc<dyn Protect>,
        bytes: &[u8],
    ) -> Result<(), SendError> {
        let lane = self.lane(now, protect, LaneOf::GROUP)?;
        self.reserve(lane, CONTROL_FIXED + bytes.len());
        write_control(bytes, &mut self.lanes[lane].batch.bytes);
        self.spoken = Some(now);
        Ok(())
    }

    /// The same as a datagram of its own, for one member.
    pub(crate) fn control_alone(
        &mut self,
        protect: &Arc<dyn Protect>,
        domain: Domain,
        bytes: &[u8],
    ) -> Option<Vec<u8>> {
        self.alone(protect, domain, |record| write_control(bytes, record))
    }

    /// A sealed datagram of this record, which is on no other's way.
    fn alone(&self, protect: &Arc<dyn Protect>, domain: Domain, write: impl FnOnce(&mut Vec<u8>)) -> Option<Vec<u8>> {
        let mut datagram = vec![0; HEADER_LEN];
        write(&mut datagram);
        datagram.resize(datagram.len() + TAG_LEN, 0);
        let is_current = !self.retired.contains(&protect.epoch());
        is_current.then(|| protect.seal(domain, 0, &mut datagram))?.ok()?;
        Some(datagram)
    }

    /// Says which ordered records come next in the order; at most `STAMPS_MAX`. Nobody believes that of others than the
    /// sequencer.
    ///
    /// # Errors
    /// [`SendError`], as for a message.
    pub fn stamps(
        &mut self,
        now: Monotonic,
        protect: &Arc<dyn Protect>,
        first: u64,
        stamps: &[Stamp],
    ) -> Result<(), SendError> {
        let lane = self.lane(now, protect, LaneOf::STAMPS)?;
        if let Some(backlog) = &mut self.backlog {
            backlog.begin_stamps(now);
        }
        self.reserve(lane, stamps_len(stamps.len()));
        write_stamps(first, stamps, &mut self.lanes[lane].batch.bytes);
        self.spoken = Some(now);
        Ok(())
    }

    /// How many stamps a record has at most: their proof must fit, too.
    pub(crate) fn stamps_max(&self, protect: &dyn Protect) -> usize {
        let beside = HEADER_LEN + protect.attestation_len() + TRAILER_BYTES + TAG_LEN;
        // Who would fit but a few signs instead.
        let count = stamps_within(self.segment.saturating_sub(beside));
        if count < STAMPS_MAX / 4 { STAMPS_MAX } else { count.min(STAMPS_MAX) }
    }

    /// Says something, proved, about the end of a view.
    pub(crate) fn flush(&mut self, now: Monotonic, protect: &Arc<dyn Protect>, bytes: &[u8]) -> Result<(), SendError> {
        let lane = self.lane(now, protect, LaneOf::STAMPS)?;
        if let Some(backlog) = &mut self.backlog {
            backlog.begin_stamps(now);
        }
        self.reserve(lane, CONTROL_FIXED + bytes.len());
        write_control(bytes, &mut self.lanes[lane].batch.bytes);
        Ok(())
    }

    /// Says something, signed, at a position in the order; which record of ours that is.
    pub(crate) fn ordered_control(
        &mut self,
        now: Monotonic,
        protect: &Arc<dyn Protect>,
        bytes: &[u8],
    ) -> Result<u64, SendError> {
        let lane = self.lane(now, protect, LaneOf::LEAVE)?;
        self.reserve(lane, CONTROL_FIXED + bytes.len());
        write_control(bytes, &mut self.lanes[lane].batch.bytes);
        self.finish(lane);
        Ok(self.backlog.as_ref().map_or(0, |it| it.last(Stream::ORDERED)))
    }

    /// Messages can be sent reliably from now on, once an epoch begins; so many bytes may wait for acknowledgement.
    pub(crate) fn keep_backlog(&mut self, bytes: usize) {
        self.backlog = Some(Backlog::new(bytes));
        self.sent.keep_more_spares();
    }

    /// From now on parities of reliable records are sent as they are needed.
    pub(crate) fn make_parities(&mut self) {
        self.finish_lanes();
        self.backlog.iter_mut().for_each(Backlog::make_parities);
    }

    /// Whether something waits to be acknowledged and nobody looks at the clock for it: the caller wakes the
    /// thread that does.
    pub fn take_unwatched(&mut self) -> bool {
        self.backlog.as_mut().is_some_and(Backlog::take_unwatched)
    }

    /// How much waits to be acknowledged, where that is told.
    pub fn flow(&self) -> Option<Flow> {
        self.backlog.as_ref().map(Backlog::flow)
    }

    /// When best effort may be sent again that waits for its pace.
    pub fn paced_until(&mut self, now: Monotonic) -> Option<Monotonic> {
        self.backlog.as_mut().and_then(|it| it.paced_until(now))
    }

    /// What not all readers have.
    pub(crate) fn backlog(&mut self) -> Option<&mut Backlog> {
        self.backlog.as_mut()
    }

    /// All readers have a stream's records up to this one; what became of messages by that, in the order of publishing.
    pub(crate) fn acknowledge(&mut self, now: Monotonic, stream: Stream, number: u64) -> Vec<Settled> {
        let is_open = |lane: &&Lane| !lane.batch.bytes.is_empty();
        let more: Vec<Stream> = self.lanes.iter().filter(is_open).filter_map(|lane| lane.of.reliable()).collect();
        let Sender { backlog: Some(backlog), sent, .. } = self else { return Vec::new() };
        backlog.acknowledge(now, stream, number, &more, |batch| sent.reuse(batch))
    }

    /// Nothing more will be acknowledged: the messages of which not all readers have the end.
    pub(crate) fn give_up(&mut self) -> Vec<Settled> {
        self.finish_lanes();
        self.backlog.as_mut().map(Backlog::give_up).unwrap_or_default()
    }

    /// Sends records again before anything else leaves.
    pub(crate) fn again(&mut self, repairs: Batch) {
        self.done_bytes += repairs.bytes.len();
        self.done.push_front(Arc::new(repairs));
    }

    /// Another epoch begins: what not all readers have is sealed anew for it, in the stream that `route` names for its topic
    /// and signed-ness; others may have the messages that have none any more. Returns what became of messages by that.
    pub(crate) fn change_epoch(
        &mut self,
        now: Monotonic,
        protect: &Arc<dyn Protect>,
        ordered: bool,
        route: impl Fn(&str, bool) -> Option<Stream>,
    ) -> Vec<Settled> {
        self.finish_lanes();
        self.ahead = None;
        let Some(backlog) = &mut self.backlog else { return Vec::new() };
        for Again { entry, from } in backlog.change(protect.epoch(), ordered) {
            for (datagram, _) in entry.batch.iter().zip(entry.first..).filter(|(_, number)| *number >= from) {
                let mut datagram = datagram.to_vec();
                let Ok((_, flags, record)) = entry.protect.open(&mut datagram) else { continue };
                let signed = flags & FLAG_SIGNED != 0;
                let guarantee = match (flags & FLAG_ORDERED, flags & FLAG_SAFE) {
                    (0, _) => Guarantee::Fifo,
                    (_, 0) => Guarantee::Ordered,
                    _ => Guarantee::Safe,
                };
                let Some(frames) = (if signed { without_proof(record) } else { Some(&*record) }) else { continue };
                for frame in Frames::of(frames).flatten() {
                    let (head, total, offset, body) = match frame {
                        Frame::Whole { head, body } => (head, body.len(), 0, body),
                        Frame::Piece { head, total, offset, bytes } => (head, total as usize, offset as usize, bytes),
                        Frame::Heartbeat { .. }
                        | Frame::Control { .. }
                        | Frame::After { .. }
                        | Frame::Stamps { .. }
                        | Frame::Named { .. }
                        | Frame::Heard { .. } => continue,
                    };
                    // A record may hold the end of a message that all have.
                    if !self.backlog.as_ref().is_some_and(|backlog| backlog.is_open(head.number)) {
                        continue;
                    }
                    let head = Head { again: true, ..head };
                    let of = route(head.topic, signed).map(|stream| LaneOf { stream, guarantee });
                    match of.map(|of| self.lane(now, protect, of)) {
                        Some(Ok(lane)) => self.put(now, lane, &head, total, offset, body),
                        Some(Err(_)) | None => {
                            self.backlog.iter_mut().for_each(|backlog| backlog.doubt(head.number));
                        }
                    }
                }
            }
        }
        self.backlog.as_mut().map(Backlog::told).unwrap_or_default()
    }

    /// Ends the use of an epoch: seals what waits under its key, and refuses it from now on (A5).
    pub fn retire(&mut self, epoch: EpochId) {
        self.finish_lanes();
        if self.retired.len() == limits::EPOCHS_HELD {
            self.retired.pop_front();
        }
        self.retired.push_back(epoch);
    }

    /// Names the last packets sealed for an epoch, oldest first, so that its members can be told which
    /// ones were ours (A5).
    pub fn sent(&mut self, epoch: EpochId) -> Vec<Packet> {
        self.finish_lanes();
        self.sent.packets(epoch)
    }

    /// Seals whatever waits in open records; [`Sender::poll`] brings it on its way.
    pub fn seal(&mut self) {
        self.finish_lanes();
    }

    /// The next datagrams to transmit; `None` when there is nothing.
    ///
    /// Open records are left to fill while full batches wait before them, but for one poll only, so that
    /// a stream in one domain does not hold up a lone message in another. The batch stays shared with the
    /// sender, which may have to vouch for it: drop it after sending.
    pub fn poll(&mut self) -> Option<Arc<Batch>> {
        self.next(|_| true)
    }

    /// Whether ordered messages that come now gather behind those that have no position yet.
    pub fn gathers_ordered(&self) -> bool {
        self.backlog.as_ref().is_some_and(|it| it.waits(Stream::ORDERED))
    }

    /// As [`Sender::poll`], but leaves signed messages to gather for one signature until the oldest of them
    /// has waited for [`limits::SIGNING_GATHER`].
    ///
    /// For streams: each signature costs every receiver a verification, whether for one message or many.
    pub fn poll_gathered(&mut self, now: Monotonic) -> Option<Arc<Batch>> {
        self.next(|lane| lane.gathers_until().is_none_or(|until| now >= until))
    }

    /// When [`Sender::poll_gathered`] has something to sign.
    pub fn gathers_until(&self) -> Option<Monotonic> {
        self.lanes.iter().filter_map(Lane::gathers_until).min()
    }

    /// Whether a batch is full and waits for [`Sender::poll`].
    pub fn has_full(&self) -> bool {
        !self.done.is_empty()
    }

    fn next(&mut self, due: impl Fn(&Lane) -> bool) -> Option<Arc<Batch>> {
        let idle = self.done.is_empty();
        for at in 0..self.lanes.len() {
            if !due(&self.lanes[at]) {
                continue;
            }
            if idle || mem::replace(&mut self.lanes[at].waited, true) {
                self.finish(at);
            }
        }
        if (idle || mem::replace(&mut self.unsealed_waited, true)) && !self.unsealed.is_empty() {
            let unsealed = self.sent.share(None, &mut self.unsealed);
            self.unsealed_waited = false;
            self.done_bytes += unsealed.bytes.len();
            self.done.push_back(unsealed);
        }
        let Some(batch) = self.done.pop_front() else {
            // Everything is on its way: now there is time for what nobody waits for.
            self.sent.settle();
            return None;
        };
        self.done_bytes -= batch.bytes.len();
        Some(batch)
    }

    /// Bytes that wait for [`Sender::poll`].
    pub fn pending(&self) -> usize {
        self.done_bytes + self.unsealed.bytes.len() + self.lanes.iter().map(|l| l.batch.bytes.len()).sum::<usize>()
    }

    /// When we last said something that all members can open; tells whether a heartbeat is due. Data in
    /// a compartment does not count: not everybody reads it.
    pub fn last_spoken(&self) -> Option<Monotonic> {
        self.spoken
    }

    /// Records that were given up because their epoch's packet counter was used up while they waited.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn admit(&self, len: usize) -> Result<(), SendError> {
        if len > limits::MESSAGE_BYTES_MAX {
            return Err(SendError::TooLong);
        }
        if self.done_bytes + self.unsealed.bytes.len() > limits::SENDING_BYTES_MAX {
            return Err(SendError::Full);
        }
        Ok(())
    }

    fn sealed(
        &mut self,
        now: Monotonic,
        protect: &Arc<dyn Protect>,
        of: LaneOf,
        mut head: Head<'_>,
        body: &[u8],
    ) -> Result<u64, SendError> {
        let lane = self.lane(now, protect, of)?;
        head.number = self.number.checked_add(1).ok_or(Exhausted)?;
        self.number = head.number;
        if of.stream.domain == Domain::GROUP {
            self.spoken = Some(now);
        }
        self.put(now, lane, &head, body.len(), 0, body);
        Ok(head.number)
    }

    /// Frames the part of a message of `total` bytes that begins at `offset` and is `body`: all of it in one frame if that
    /// fits, else in pieces.
    fn put(&mut self, now: Monotonic, lane: usize, head: &Head<'_>, total: usize, offset: usize, body: &[u8]) {
        let room = self.room(self.lanes[lane].of);
        let whole = head.whole_len() + body.len();
        if whole <= room && body.len() == total {
            self.reserve(lane, whole);
            // While the order still owes us a position, nothing is gained by another record for each message.
            let ordered = self.lanes[lane].of.reliable() == Some(Stream::ORDERED);
            let waits = ordered && self.backlog.as_ref().is_some_and(|it| it.waits(Stream::ORDERED));
            if self.lanes[lane].since.is_none() {
                (self.lanes[lane].since, self.lanes[lane].gathers) = (Some(now), waits);
            }
            head.write_whole(body, &mut self.lanes[lane].batch.bytes);
        } else {
            // Pieces of equal length: ⌈body ÷ n⌉ bytes each, for the least n that fits.
            let most = room - head.piece_len();
            let each = body.len().div_ceil(body.len().div_ceil(most));
            for (i, bytes) in body.chunks(each).enumerate() {
                self.reserve(lane, head.piece_len() + bytes.len());
                head.write_piece(total, offset + i * each, bytes, &mut self.lanes[lane].batch.bytes);
            }
        }
        let lane = &mut self.lanes[lane];
        if lane.of.reliable().is_some() && offset + body.len() == total {
            lane.ends.push((lane.batch.lengths.len(), head.number));
        }
    }

    /// Bytes of frames that fit into a record.
    fn room(&self, of: LaneOf) -> usize {
        // A parity is longer than what it is of.
        let has_parities = of.reliable().is_some_and(|it| it != Stream::STAMPS)
            && self.backlog.as_ref().is_some_and(Backlog::makes_parities);
        let parity = if has_parities { PARITY_BYTES } else { 0 };
        self.segment - HEADER_LEN - TAG_LEN - of.proof_min() - parity
    }

    /// The lane of this kind, sealing with this capability.
    fn lane(&mut self, now: Monotonic, protect: &Arc<dyn Protect>, of: LaneOf) -> Result<usize, SendError> {
        let at = self.lane_of(protect, of)?;
        if of.reliable().is_some() && of != LaneOf::STAMPS {
            self.enter(now, at);
            // Others that were sealed for it may have used this lane.
            self.lanes[at].protect.get_or_insert_with(|| Arc::clone(protect));
        }
        Ok(at)
    }

    fn lane_of(&mut self, protect: &Arc<dyn Protect>, of: LaneOf) -> Result<usize, SendError> {
        let known = self.lanes.iter().position(|lane| lane.of == of);
        let sealing = known.filter(|at| self.lanes[*at].protect.as_ref().is_some_and(|it| Arc::ptr_eq(it, protect)));
        let at = match sealing {
            Some(at) => at,
            None => {
                if let Some(at) = known {
                    self.finish(at);
                }
                if self.retired.contains(&protect.epoch()) {
                    return Err(SendError::Retired);
                }
                protect.ready(of.stream.domain)?;
                let at = known.unwrap_or_else(|| {
                    self.lanes.push(Lane::new(of, self.segment));
                    self.lanes.len() - 1
                });
                self.lanes[at].protect = Some(Arc::clone(protect));
                at
            }
        };
        Ok(at)
    }

    /// The next reliable record is of this lane: those before it are sealed, and it says which ones it comes after.
    fn enter(&mut self, now: Monotonic, at: usize) {
        let (Some(stream), Some(backlog)) = (self.lanes[at].of.reliable(), &mut self.backlog) else { return };
        let is_other = backlog.begin(now, stream);
        for other in (0..self.lanes.len()).filter(|other| *other != at) {
            let Lane { of, batch, .. } = &self.lanes[other];
            if !batch.bytes.is_empty() && of.reliable().is_some() && *of != LaneOf::STAMPS {
                self.finish(other);
            }
        }
        if !is_other {
            return;
        }
        let news = self.backlog.as_mut().map(|backlog| backlog.after(stream)).unwrap_or_default();
        for (other, number) in news {
            self.reserve(at, AFTER_BYTES);
            write_after(other, number, &mut self.lanes[at].batch.bytes);
        }
    }

    /// Makes room for a frame of `len` bytes in the lane's open record, closing the one before if need be.
    fn reserve(&mut self, at: usize, len: usize) {
        let room = self.room(self.lanes[at].of);
        let lane = &mut self.lanes[at];
        if let Some(start) = lane.open {
            if lane.batch.bytes.len() - start - HEADER_LEN + len <= room {
                return;
            }
            self.lost += lane.close(true);
            if lane.full() {
                self.queue(at);
            }
        }
        let lane = &mut self.lanes[at];
        lane.open = Some(lane.batch.bytes.len());
        lane.batch.bytes.extend_from_slice(&[0; HEADER_LEN]);
    }

    fn finish_lanes(&mut self) {
        (0..self.lanes.len()).for_each(|at| self.finish(at));
        // Parities of the last records.
        let group = self.lanes.iter().position(|lane| lane.of == LaneOf::GROUP);
        group.into_iter().for_each(|at| self.finish(at));
    }

    /// Seals the lane's records and queues its batch; the lane lets go of its key, so that none is held on
    /// to while nothing is to be sealed (B5).
    fn finish(&mut self, at: usize) {
        self.queue(at);
        self.lanes[at].protect = None;
    }

    fn queue(&mut self, at: usize) {
        let lane = &mut self.lanes[at];
        (lane.waited, lane.since) = (false, None);
        let stream = lane.of.reliable();
        let first = stream.map(|stream| self.backlog.as_ref().map_or(0, |backlog| backlog.last(stream)) + 1);
        self.lost += lane.close(false) + lane.sign(first);
        if lane.batch.is_empty() {
            lane.ends.clear();
            return;
        }
        let protect = lane.protect.clone();
        // Nobody has to vouch for reliable records: what not all have is sealed anew.
        let epoch = protect.as_ref().filter(|_| stream.is_none()).map(|protect| protect.epoch());
        let batch = self.sent.share(epoch, &mut lane.batch);
        if let (Some(stream), Some(protect), Some(backlog)) = (stream, &protect, &mut self.backlog) {
            backlog.push(stream, Arc::clone(protect), &batch, &mut lane.ends);
        }
        let domain = self.lanes[at].of.stream.domain;
        let is_named = stream == Some(Stream::ORDERED) && self.backlog.as_ref().is_some_and(|it| it.names(domain));
        let hashes: Vec<_> = if is_named { batch.iter().map(Stamp::hash_of).collect() } else { Vec::new() };
        self.done_bytes += batch.bytes.len();
        self.done.push_back(batch);
        if let Some(protect) = protect.filter(|_| stream.is_some()) {
            self.say_parities(&protect);
            self.say_named(&protect, first.unwrap_or(1), &hashes);
        }
    }

    /// Says what ordered records from this number on are, behind them: the sequencer cannot open them, and stamps no noise (B8).
    fn say_named(&mut self, protect: &Arc<dyn Protect>, first: u64, hashes: &[[u8; 16]]) {
        let mut first = first;
        for hashes in hashes.chunks(NAMED_MAX) {
            // Where nothing can be sealed any more, they are sealed anew.
            let Ok(lane) = self.lane_of(protect, LaneOf::NAMED) else { return };
            self.reserve(lane, named_len(hashes.len()));
            write_named(first, hashes, &mut self.lanes[lane].batch.bytes);
            first += hashes.len() as u64;
        }
        if let Some(lane) = self.lanes.iter().position(|it| it.of == LaneOf::NAMED).filter(|_| !hashes.is_empty()) {
            self.finish(lane);
        }
    }

    /// Says the parities of what was sealed last, behind it.
    fn say_parities(&mut self, protect: &Arc<dyn Protect>) {
        while let Some(body) = self.backlog.as_mut().and_then(Backlog::take_parity) {
            // Where nothing can be sealed any more, who lacks records asks for them.
            let Ok(lane) = self.lane_of(protect, LaneOf::GROUP) else { continue };
            self.reserve(lane, CONTROL_FIXED + body.len());
            write_control(&body, &mut self.lanes[lane].batch.bytes);
        }
    }
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("segment", &self.segment).field("number", &self.number).finish_non_exhaustive()
    }
}

/// What a lane's records have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LaneOf {
    /// Their domain, and whether they are signed.
    stream: Stream,
    guarantee: Guarantee,
}

impl LaneOf {
    /// Of key schemes' messages, heartbeats and control.
    const GROUP: LaneOf =
        LaneOf { stream: Stream { domain: Domain::GROUP, signed: false }, guarantee: Guarantee::BestEffort };
    /// Of the sequencer's stamps.
    const STAMPS: LaneOf = LaneOf { stream: Stream::STAMPS, guarantee: Guarantee::Fifo };
    /// Of our last word in the order.
    const LEAVE: LaneOf =
        LaneOf { stream: Stream { domain: Domain::GROUP, signed: true }, guarantee: Guarantee::Ordered };

    /// Of what names ordered records that the sequencer cannot open.
    const NAMED: LaneOf =
        LaneOf { stream: Stream { domain: Domain::GROUP, signed: false }, guarantee: Guarantee::Ordered };

    /// Room that a record must leave for its proof: stamps are no batch, and have a signature where nothing longer fits.
    fn proof_min(self) -> usize {
        match (self.stream.signed, self == LaneOf::STAMPS) {
            (false, _) => 0,
            (true, false) => PROOF_BYTES_MAX,
            (true, true) => SIGNATURE_BYTES + TRAILER_BYTES,
        }
    }

    /// The stream that they are numbered in, if they are reliable.
    fn reliable(self) -> Option<Stream> {
        match self.guarantee {
            Guarantee::BestEffort => None,
            Guarantee::Fifo => Some(self.stream),
            Guarantee::Ordered | Guarantee::Safe => Some(Stream::ORDERED),
        }
    }
}

/// The records of one kind that were not handed over yet.
struct Lane {
    of: LaneOf,
    /// Seals what is in `batch`; `None` while nothing is.
    protect: Option<Arc<dyn Protect>>,
    /// Whether the open record was passed over by the last poll.
    waited: bool,
    /// Closed datagrams, then the open record. Signed ones have room for a proof and wait for it.
    batch: Batch,
    /// Where the open record begins: header room, then frames.
    open: Option<usize>,
    /// When the first small message in it came.
    since: Option<Monotonic>,
    /// Whether it gathers, as what is to be signed does.
    gathers: bool,
    unsigned: Unsigned,
    /// Bytes that closed records leave for their proofs, and whether those are of [`Protect::attest`].
    proof: usize,
    attests: bool,
    segment: usize,
    /// Of reliable ones: in which record of the batch which message ends.
    ends: Vec<(usize, u64)>,
}

impl Lane {
    fn new(of: LaneOf, segment: usize) -> Lane {
        Lane {
            of,
            protect: None,
            waited: false,
            batch: Batch::default(),
            open: None,
            since: None,
            gathers: false,
            unsigned: Unsigned::default(),
            proof: of.proof_min(),
            attests: false,
            segment,
            ends: Vec::new(),
        }
    }

    /// What the headers of its records say.
    fn flags(&self) -> u8 {
        let LaneOf { stream, guarantee } = self.of;
        let signed = if stream.signed { FLAG_SIGNED } else { 0 };
        signed
            | match guarantee {
                Guarantee::BestEffort => 0,
                Guarantee::Fifo => FLAG_RELIABLE,
                Guarantee::Ordered => FLAG_RELIABLE | FLAG_ORDERED,
                Guarantee::Safe => FLAG_RELIABLE | FLAG_ORDERED | FLAG_SAFE,
            }
    }

    /// Closes the open record; returns how many were lost.
    fn close(&mut self, full: bool) -> u64 {
        let Some(start) = self.open.take() else { return 0 };
        let (flags, signed) = (self.flags(), self.of.stream.signed);
        let protect = self.protect.as_ref().expect("an open record has its capability");
        let bytes = &mut self.batch.bytes;
        if self.of == LaneOf::STAMPS {
            let attestation = protect.attestation_len() + TRAILER_BYTES;
            self.attests = bytes.len() - start + attestation + TAG_LEN <= self.segment;
            self.proof = if self.attests { attestation } else { self.of.proof_min() };
        }
        let fixed = TAG_LEN + self.proof;
        // Padded up to its predecessor a record keeps the segmented send going.
        if full && let Some(&before) = self.batch.lengths.last() {
            let len = bytes.len() - start + fixed;
            if len < before && before - len <= before / PADDING_SHARE {
                bytes.resize(bytes.len() + before - len, 0);
            }
        }
        if signed {
            self.unsigned.push(&bytes[start + HEADER_LEN..]);
        }
        bytes.resize(bytes.len() + fixed, 0);
        let length = bytes.len() - start;
        if signed {
            self.batch.lengths.push(length);
            return 0;
        }
        if protect.seal(self.of.stream.domain, flags, &mut bytes[start..]).is_err() {
            bytes.truncate(start);
            return 1;
        }
        self.batch.lengths.push(length);
        0
    }

    /// Signs and seals the closed records of a signed lane; returns how many were lost.
    ///
    /// Reliable ones have numbers from `first` on.
    fn sign(&mut self, first: Option<u64>) -> u64 {
        if self.unsigned.len() == 0 {
            return 0;
        }
        let protect = self.protect.as_ref().expect("a closed record has its capability");
        let (flags, domain) = (self.flags(), self.of.stream.domain);
        let signed = self.unsigned.sign(domain, first, self.attests, &**protect);
        let proof = signed.proof_len();
        assert!(proof <= self.proof, "a proof of {proof} bytes does not fit its room");
        let (mut from, mut to, mut lost) = (0, 0, 0);
        let bytes = &mut self.batch.bytes;
        let lengths = mem::take(&mut self.batch.lengths);
        for (index, &length) in lengths.iter().enumerate() {
            // Less than a full batch needs shorter proofs: its records move together.
            let frames = length - TAG_LEN - self.proof;
            if from != to {
                bytes.copy_within(from..from + frames, to);
            }
            from += length;
            let length = frames + proof + TAG_LEN;
            signed.write(index, &mut bytes[to + frames..to + frames + proof]);
            match protect.seal(domain, flags, &mut bytes[to..to + length]) {
                Ok(_) => {
                    self.batch.lengths.push(length);
                    to += length;
                }
                Err(Exhausted) => lost += 1,
            }
        }
        bytes.truncate(to);
        lost
    }

    fn full(&self) -> bool {
        // Nothing shares a segmented send with a record of more than half of one: it goes first, and its
        // receivers open it while the next one is sealed.
        let alone = self.batch.lengths.last().is_some_and(|length| 2 * length > limits::TRAIN_BYTES_MAX);
        let signed = self.of.stream.signed;
        if self.of == LaneOf::STAMPS {
            return !self.batch.is_empty();
        }
        let target = if signed { SIGNED_BATCH_TARGET } else { BATCH_TARGET };
        alone && !signed || self.batch.bytes.len() >= target || self.unsigned.len() == limits::ORIGIN_BATCH_MAX
    }

    /// Until when what is to be signed, or ordered behind others, may wait for more.
    fn gathers_until(&self) -> Option<Monotonic> {
        self.since.filter(|_| self.of.stream.signed || self.gathers).map(|since| since + limits::SIGNING_GATHER)
    }
}

/// The greatest segment: a UDP datagram over IPv4.
pub const SEGMENT_MAX: usize = 65_507;
/// A batch of this size goes out while the next one fills: two segmented sends.
const BATCH_TARGET: usize = 2 * limits::TRAIN_BYTES_MAX;
/// As much for one signature: its verification is then less work than the hash of what it proves.
const SIGNED_BATCH_TARGET: usize = 4 * limits::TRAIN_BYTES_MAX;
/// A record is padded if that lengthens it by no more than this part of its predecessor.
const PADDING_SHARE: usize = 8;
const HEARTBEAT_BYTES: usize = 9;
