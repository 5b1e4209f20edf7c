//! The sending half: packs messages into records, cuts big ones, seals, and lays datagrams end to end.
//!
//! ```text
//! data ──▶ lane (domain, signed?) ─ record open ─▶ record closed: sealed in place ─▶ batch ─▶ poll
//!                                                   signed: after the whole batch is signed
//! ```
//! One lane per domain and signed-ness has one record open at a time, at the end of its batch; a
//! record is closed when the next message does not fit or when [`Sender::poll`] flushes. The payload is
//! copied once, into the batch, and sealed there. In steady state nothing is allocated: batches that the
//! caller has let go of come back.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use sealcast_wire::frame::{FLAG_SIGNED, HEADER_LEN, KIND_OPEN, MAGIC, SEGMENT_MIN, TAG_LEN};
use sealcast_wire::{Domain, EpochId, Exhausted, Monotonic, Protect, limits};

use super::frame::{Head, write_heartbeat};
use super::origin::{PROOF_BYTES_MAX, Unsigned};
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
    spoken: Option<Monotonic>,
    retired: VecDeque<EpochId>,
    lost: u64,
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
        let head = Head { keys: false, number: 0, sent_micros: data.sent_micros, topic: data.topic };
        self.sealed(now, protect, data.domain, data.signed, head, data.body)
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
        let head = Head { keys: true, number: 0, sent_micros: None, topic: "" };
        self.sealed(now, protect, Domain::GROUP, false, head, bytes)
    }

    /// Says that we are alive.
    pub fn heartbeat(&mut self, now: Monotonic, protect: &Arc<dyn Protect>) -> Result<(), SendError> {
        let number = self.number;
        let lane = self.lane(protect, Domain::GROUP, false)?;
        self.reserve(lane, HEARTBEAT_BYTES);
        write_heartbeat(number, &mut self.lanes[lane].batch.bytes);
        self.spoken = Some(now);
        Ok(())
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
        domain: Domain,
        signed: bool,
        mut head: Head<'_>,
        body: &[u8],
    ) -> Result<u64, SendError> {
        let lane = self.lane(protect, domain, signed)?;
        head.number = self.number.checked_add(1).ok_or(Exhausted)?;
        self.number = head.number;
        if domain == Domain::GROUP {
            self.spoken = Some(now);
        }
        let room = self.room(signed);
        let whole = head.whole_len() + body.len();
        if whole <= room {
            self.reserve(lane, whole);
            self.lanes[lane].since.get_or_insert(now);
            head.write_whole(body, &mut self.lanes[lane].batch.bytes);
            return Ok(head.number);
        }
        // Pieces of equal length: ⌈body ÷ n⌉ bytes each, for the least n that fits.
        let most = room - head.piece_len();
        let each = body.len().div_ceil(body.len().div_ceil(most));
        for (i, bytes) in body.chunks(each).enumerate() {
            self.reserve(lane, head.piece_len() + bytes.len());
            head.write_piece(body.len(), i * each, bytes, &mut self.lanes[lane].batch.bytes);
        }
        Ok(head.number)
    }

    /// Bytes of frames that fit into a record.
    fn room(&self, signed: bool) -> usize {
        self.segment - HEADER_LEN - TAG_LEN - if signed { PROOF_BYTES_MAX } else { 0 }
    }

    /// The lane of this domain, sealing with this capability.
    fn lane(&mut self, protect: &Arc<dyn Protect>, domain: Domain, signed: bool) -> Result<usize, SendError> {
        let known = self.lanes.iter().position(|lane| (lane.domain, lane.signed) == (domain, signed));
        if let Some(at) = known {
            if self.lanes[at].protect.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, protect)) {
                return Ok(at);
            }
            self.finish(at);
        }
        if self.retired.contains(&protect.epoch()) {
            return Err(SendError::Retired);
        }
        protect.ready(domain)?;
        let at = known.unwrap_or_else(|| {
            self.lanes.push(Lane::new(domain, signed));
            self.lanes.len() - 1
        });
        self.lanes[at].protect = Some(Arc::clone(protect));
        Ok(at)
    }

    /// Makes room for a frame of `len` bytes in the lane's open record, closing the one before if need be.
    fn reserve(&mut self, at: usize, len: usize) {
        let room = self.room(self.lanes[at].signed);
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
        self.lost += lane.close(false) + lane.sign();
        if lane.batch.is_empty() {
            return;
        }
        let epoch = lane.protect.as_ref().map(|protect| protect.epoch());
        let batch = self.sent.share(epoch, &mut lane.batch);
        self.done_bytes += batch.bytes.len();
        self.done.push_back(batch);
    }
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("segment", &self.segment).field("number", &self.number).finish_non_exhaustive()
    }
}

/// The records of one domain and signed-ness that were not handed over yet.
struct Lane {
    domain: Domain,
    signed: bool,
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
    unsigned: Unsigned,
}

impl Lane {
    fn new(domain: Domain, signed: bool) -> Lane {
        Lane {
            domain,
            signed,
            protect: None,
            waited: false,
            batch: Batch::default(),
            open: None,
            since: None,
            unsigned: Unsigned::default(),
        }
    }

    /// Closes the open record; returns how many were lost.
    fn close(&mut self, full: bool) -> u64 {
        let Some(start) = self.open.take() else { return 0 };
        let bytes = &mut self.batch.bytes;
        let fixed = TAG_LEN + if self.signed { PROOF_BYTES_MAX } else { 0 };
        // Padded up to its predecessor a record keeps the segmented send going.
        if full && let Some(&before) = self.batch.lengths.last() {
            let len = bytes.len() - start + fixed;
            if len < before && before - len <= before / PADDING_SHARE {
                bytes.resize(bytes.len() + before - len, 0);
            }
        }
        if self.signed {
            self.unsigned.push(&bytes[start + HEADER_LEN..]);
        }
        bytes.resize(bytes.len() + fixed, 0);
        let length = bytes.len() - start;
        if self.signed {
            self.batch.lengths.push(length);
            return 0;
        }
        let protect = self.protect.as_ref().expect("an open record has its capability");
        if protect.seal(self.domain, 0, &mut bytes[start..]).is_err() {
            bytes.truncate(start);
            return 1;
        }
        self.batch.lengths.push(length);
        0
    }

    /// Signs and seals the closed records of a signed lane; returns how many were lost.
    fn sign(&mut self) -> u64 {
        if self.unsigned.len() == 0 {
            return 0;
        }
        let protect = self.protect.as_ref().expect("a closed record has its capability");
        let signed = self.unsigned.sign(self.domain, &**protect);
        let proof = signed.proof_len();
        assert!(proof <= PROOF_BYTES_MAX, "a proof of {proof} bytes does not fit its room");
        let (mut from, mut to, mut lost) = (0, 0, 0);
        let bytes = &mut self.batch.bytes;
        let lengths = mem::take(&mut self.batch.lengths);
        for (index, &length) in lengths.iter().enumerate() {
            // Less than a full batch needs shorter proofs: its records move together.
            let frames = length - TAG_LEN - PROOF_BYTES_MAX;
            if from != to {
                bytes.copy_within(from..from + frames, to);
            }
            from += length;
            let length = frames + proof + TAG_LEN;
            signed.write(index, &mut bytes[to + frames..to + frames + proof]);
            match protect.seal(self.domain, FLAG_SIGNED, &mut bytes[to..to + length]) {
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
        let target = if self.signed { SIGNED_BATCH_TARGET } else { BATCH_TARGET };
        alone && !self.signed || self.batch.bytes.len() >= target || self.unsigned.len() == limits::ORIGIN_BATCH_MAX
    }

    /// Until when what is to be signed may wait for more.
    fn gathers_until(&self) -> Option<Monotonic> {
        self.since.filter(|_| self.signed).map(|since| since + limits::SIGNING_GATHER)
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
