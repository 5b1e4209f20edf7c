//! Reliable records as they come: put in order stream by stream, and their messages handed on.
//!
//! ```text
//! record ─▶ stream (epoch, slot, domain, signed): numbers 1, 2, 3 …
//!              gap ─▶ held, and a NAK once it is due
//!              next ─▶ after what it says that it comes after ─▶ messages
//!                      of the ordered stream: at its position in the order, too
//! ```
//! In one epoch a record comes once, and its messages with it. What is sealed again for the next one, and what still comes of
//! the one before, is known by its number.
//! Only what its tag proves comes here, so nobody outside fills a gap or makes one.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sealcast_wire::{Domain, Dropped, Drops, EpochId, Incarnation, Monotonic, Slot, Source, limits};

use super::buffers::Buffers;
use super::control::Of;
use super::repair::Waves;
use crate::multicast::frame::{Frame, Frames, Head, Stamp, Stream};
use crate::multicast::parity::PARITY_BLOCK;
use crate::multicast::{Received, Sink};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Newest last.
    epochs: VecDeque<Epoch>,
    /// What came of each run of a sender, unsigned and signed: it goes on from epoch to epoch. Who left may come back with
    /// what it could not get acknowledged.
    senders: BTreeMap<Incarnation, Progresses>,
    /// Runs that are in no view any more, those that left last at the end.
    gone: VecDeque<Incarnation>,
    /// Of records held.
    bytes: usize,
    buffers: Buffers,
    /// Of messages begun.
    begun: usize,
    /// What the sequencer said of the order, until it is taken: in which epoch, who said it, and what.
    stamps: VecDeque<(EpochId, Slot, u64, Vec<Stamp>)>,
    /// Ordered messages handed on, until they are taken: their senders' numbers for them, and where.
    ordered: Vec<(u64, u64)>,
    /// Whether records of our own came back to us in the epoch before.
    heard_own: bool,
    /// Of the view that is installed.
    members: usize,
    drops: Drops,
}

#[derive(Debug)]
struct Epoch {
    id: EpochId,
    /// Our slot in it, once it is installed.
    me: Slot,
    /// Whether its view is installed: what comes before that waits.
    installed: bool,
    /// When it ends: it is not installed yet, or another one is.
    until: Option<Monotonic>,
    streams: BTreeMap<Of, Incomplete>,
}

/// One stream.
#[derive(Debug)]
struct Incomplete {
    incarnation: Incarnation,
    /// The first record that is not here.
    next: u64,
    /// The first record that was not handed on.
    done: u64,
    /// The last record that is known of.
    known: u64,
    /// The last record that came.
    came: u64,
    /// Records from `done` on, but for `next` and other missing ones.
    held: BTreeMap<u64, ReceivedRecord>,
    /// Up to here all readers have them, as far as we heard.
    settled: u64,
    /// When the missing ones are asked for.
    waves: Waves,
    /// How long those up to a record may be rebuilt from what is to come.
    wait: (u64, Duration),
    /// When the sender's word that it has some no more may be looked at: that costs a signature check.
    gone_at: Monotonic,
}

/// A record that waits.
#[derive(Debug)]
struct ReceivedRecord {
    source: Source,
    signed: bool,
    /// None of one that we cannot read.
    frames: Vec<u8>,
}

/// Of a run of a sender: unsigned and signed messages, then the same of ordered ones.
type Progresses = [Progress; 4];

/// What came of a sender's messages.
#[derive(Debug, Default)]
struct Progress {
    /// The number of the last whole one.
    number: u64,
    /// The one that was begun.
    begun: Option<Begun>,
}

#[derive(Debug)]
struct Begun {
    number: u64,
    total: usize,
    body: Vec<u8>,
    /// When its last piece came.
    touched: Monotonic,
}

/// A record that was opened.
pub(super) struct Record<'a> {
    pub(super) source: Source,
    pub(super) epoch: EpochId,
    pub(super) incarnation: Incarnation,
    pub(super) of: Of,
    pub(super) number: u64,
    pub(super) signed: bool,
    /// None of one that we cannot read.
    pub(super) frames: &'a [u8],
}

impl Incoming {
    /// Whether a record is one that did not come yet.
    pub(super) fn is_new(&mut self, epoch: EpochId, of: Of, number: u64) -> bool {
        let stream = self.find(epoch).and_then(|it| it.streams.get(&of));
        stream.is_none_or(|it| number >= it.next && !it.held.contains_key(&number))
    }

    /// Takes in a record that is new. `reads` tells which domains we read, where its epoch is the installed one.
    pub(super) fn take(
        &mut self,
        now: Monotonic,
        me: Slot,
        record: &Record<'_>,
        reads: impl Fn(Domain) -> bool,
        sink: &mut impl Sink,
    ) -> Result<(), Dropped> {
        let Record { source, of, number, signed, frames, .. } = *record;
        let room = limits::RELIABLE_HELD_BYTES_MAX.saturating_sub(self.bytes);
        let is_old = self.newest() != Some(record.epoch);
        let is_ordered = of.stream == Stream::ORDERED;
        let ordered = is_ordered.then(|| self.buffers.copy(frames));
        let members = self.members;
        let epoch = self.epoch(now, record.epoch);
        let installed = epoch.installed;
        let others = || {
            let others = comes_after(frames).filter(|(other, _)| *other != of.stream && reads(other.domain));
            others.map(|(stream, number)| (Of { stream, ..of }, number))
        };
        let next = |of: &Of| epoch.streams.get(of).map_or(1, |it| it.next);
        // Nothing comes after what is far from being sent.
        if others().any(|(other, number)| number > next(&other) + limits::RELIABLE_AHEAD_MAX) {
            return Err(Dropped::Malformed);
        }
        let is_next = number == next(&of);
        let is_first = is_next && epoch.streams.get(&of).is_none_or(|it| it.done == number);
        let goes_through = installed && is_first && !is_ordered && is_met(&epoch.streams, me, of, frames, &reads);
        let cost = frames.len() + RECORD_OVERHEAD;
        if number - next(&of) > limits::RELIABLE_AHEAD_MAX || !goes_through && cost > room {
            return Err(Dropped::Queue);
        }
        // What is missing before it is asked for.
        for (other, number) in others() {
            let stream = epoch.streams.entry(other).or_insert_with(|| Incomplete::new(record.incarnation));
            stream.expect(now, (me, other, members), number);
        }
        let stream = epoch.streams.entry(of).or_insert_with(|| Incomplete::new(record.incarnation));
        if number > stream.known + 1 {
            stream.expect(now, (me, of, members), number - 1);
        }
        stream.known = stream.known.max(number);
        let was_missing = number < stream.came;
        stream.came = stream.came.max(number);
        if !goes_through {
            let held = ReceivedRecord { source, signed, frames: ordered.unwrap_or_else(|| frames.to_vec()) };
            stream.held.insert(number, held);
        }
        if is_next {
            stream.next = number + 1;
        }
        while stream.held.contains_key(&stream.next) {
            stream.next += 1;
        }
        if was_missing || is_next {
            stream.waves.came(now, number, stream.next);
        }
        let from = From { of, source, incarnation: record.incarnation, signed, position: None };
        match goes_through {
            // Other streams may wait for it.
            true if self.hand_on(now, from, is_old, frames, sink) => {
                self.stream(record.epoch, of).into_iter().for_each(|it| it.done = number + 1);
            }
            true => {
                let held = ReceivedRecord { source, signed, frames: frames.to_vec() };
                self.stream(record.epoch, of).and_then(|it| it.held.insert(number, held));
                self.bytes += cost;
            }
            false => self.bytes += cost,
        }
        if installed && self.bytes > 0 {
            self.advance(now, record.epoch, of.slot, &reads, sink);
        }
        Ok(())
    }

    /// The first record of a stream that is not here, if any of it came in this epoch.
    pub(super) fn next(&mut self, epoch: EpochId, of: Of) -> Option<u64> {
        self.find(epoch)?.streams.get(&of).map(|it| it.next)
    }

    /// The first of our own records that comes back to us: what was sent before nobody here wanted. What all readers have of
    /// them is not kept to fill a gap with. Whether it is one to take in.
    pub(super) fn begin_at(&mut self, now: Monotonic, record: &Record<'_>, acknowledged: u64) -> bool {
        let first = match record.of.stream {
            Stream::ORDERED => 1,
            _ if self.heard_own => acknowledged + 1,
            _ => record.number,
        };
        let is_known = self.find(record.epoch).is_some_and(|it| it.streams.contains_key(&record.of));
        // Anybody can send old ones again.
        if !is_known && record.of.stream != Stream::ORDERED && record.number <= acknowledged {
            return false;
        }
        let streams = &mut self.epoch(now, record.epoch).streams;
        streams.entry(record.of).or_insert_with(|| Incomplete {
            next: first,
            done: first,
            ..Incomplete::new(record.incarnation)
        });
        true
    }

    /// Whether our own records came back to us in the epoch before, so that somebody here reads them.
    pub(super) fn hears_own(&self) -> bool {
        self.heard_own
    }

    /// The order has a record of this number, of a stream that may not be known yet.
    pub(super) fn expect(&mut self, now: Monotonic, me: Slot, epoch: EpochId, who: Incarnation, of: Of, number: u64) {
        let members = self.members;
        let streams = &mut self.epoch(now, epoch).streams;
        let stream = streams.entry(of).or_insert_with(|| Incomplete::new(who));
        stream.expect(now, (me, of, members), number);
    }

    /// A record that waits is another one than the order has: it is missing.
    pub(super) fn refuse(&mut self, now: Monotonic, me: Slot, epoch: EpochId, of: Of, number: u64) {
        let members = self.members;
        let Some(stream) = self.stream(epoch, of) else { return };
        let Some(refused) = stream.held.remove(&number) else { return };
        stream.next = stream.next.min(number);
        stream.expect(now, (me, of, members), number);
        self.bytes -= refused.cost();
        self.drops.count(Dropped::Auth);
    }

    /// Hands on an ordered record at its position, where it comes after nothing that was not handed on: its messages have the
    /// positions from this one on. `false`: it is to be tried again.
    pub(super) fn pass(
        &mut self,
        now: Monotonic,
        epoch: EpochId,
        (of, number, position): (Of, u64, u64),
        reads: impl Fn(Domain) -> bool,
        sink: &mut impl Sink,
    ) -> bool {
        let Some((me, streams)) = self.find(epoch).map(|it| (it.me, &mut it.streams)) else { return false };
        let waits = |stream: &&Incomplete| stream.done == number;
        let Some(record) = streams.get(&of).filter(waits).and_then(|it| it.held.get(&number)) else { return false };
        if !is_met(streams, me, of, &record.frames, &reads) {
            return false;
        }
        let Some(stream) = streams.get_mut(&of) else { return false };
        let incarnation = stream.incarnation;
        let Some(record) = stream.held.remove(&number) else { return false };
        let ReceivedRecord { source, signed, frames } = &record;
        let from = From { of, source: *source, incarnation, signed: *signed, position: Some(position) };
        let has_capacity = self.hand_on(now, from, false, frames, sink);
        let Some(stream) = self.stream(epoch, of) else { return false };
        if !has_capacity {
            stream.held.insert(number, record);
            return false;
        }
        stream.done = number + 1;
        self.bytes -= record.cost();
        self.buffers.give(record.frames);
        self.advance(now, epoch, of.slot, &reads, sink);
        true
    }

    /// What the sequencer said.
    pub(super) fn next_stamps(&mut self) -> Option<(EpochId, Slot, u64, Vec<Stamp>)> {
        self.stamps.pop_front()
    }

    /// Ordered messages that were handed on: their senders' numbers for them, and their positions.
    pub(super) fn take_ordered(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.ordered)
    }

    /// Nobody here wants our own records any more.
    pub(super) fn forget(&mut self, epoch: EpochId, of: Of) {
        let removed = self.find(epoch).and_then(|it| it.streams.remove(&of));
        self.bytes -= removed.map_or(0, |it| it.bytes());
    }

    /// Its sender says that a stream goes to this record.
    pub(super) fn know(&mut self, now: Monotonic, me: Slot, epoch: EpochId, who: Incarnation, of: Of, number: u64) {
        let members = self.members;
        let streams = &mut self.epoch(now, epoch).streams;
        let stream = streams.entry(of).or_insert_with(|| Incomplete::new(who));
        // Somebody may have said more.
        stream.known = number.min(stream.next + limits::RELIABLE_AHEAD_MAX).max(stream.came);
        stream.waves.end_at(stream.known);
        stream.expect(now, (me, of, members), stream.known);
    }

    /// Whether the sender's word that a stream begins with this record would end a gap; that is judged now and then.
    pub(super) fn would_end_gap(&mut self, now: Monotonic, epoch: EpochId, of: Of, first: u64) -> bool {
        let Some(stream) = self.stream(epoch, of) else { return false };
        let would =
            stream.waves.was_asked() && first > stream.next && first <= stream.came + 1 && stream.gone_at <= now;
        if would {
            stream.gone_at = now + GONE_AGAIN;
        }
        would
    }

    /// The sender has no record before this one any more: what is missing before it stays so.
    pub(super) fn gone(
        &mut self,
        now: Monotonic,
        (epoch, of, first): (EpochId, Of, u64),
        reads: impl Fn(Domain) -> bool,
        sink: &mut impl Sink,
    ) {
        let Some(stream) = self.stream(epoch, of) else { return };
        stream.next = first.max(stream.next);
        while stream.held.contains_key(&stream.next) {
            stream.next += 1;
        }
        stream.waves.came(now, first, stream.next);
        self.drops.count(Dropped::Incomplete);
        self.advance(now, epoch, of.slot, &reads, sink);
    }

    /// Of a stream of which something came: the last record that did, and the first one that did not.
    pub(super) fn range(&mut self, epoch: EpochId, of: Of) -> Option<(u64, u64)> {
        self.stream(epoch, of).map(|it| (it.came, it.next))
    }

    /// Parities of the records up to `to` come; of later ones, they are waited for so long.
    pub(super) fn end_wait(&mut self, now: Monotonic, me: Slot, (epoch, of): (EpochId, Of), to: u64, wait: Duration) {
        let members = self.members;
        let Some(stream) = self.stream(epoch, of) else { return };
        stream.wait = (to + WAITS_FOR, wait);
        stream.waves.end_wait(now, to, (mix(u64::from(me.0) << 32 ^ to), members));
    }

    /// Somebody asks for these records: nobody else needs to.
    pub(super) fn heard_nak(&mut self, now: Monotonic, epoch: EpochId, of: Of, ranges: &[(u64, u64)]) {
        let Some(stream) = self.stream(epoch, of) else { return };
        stream.waves.heard(now, ranges);
    }

    /// All readers have a stream up to this record.
    pub(super) fn settle(&mut self, epoch: EpochId, of: Of, number: u64) {
        if let Some(stream) = self.stream(epoch, of) {
            stream.settled = stream.settled.max(number.min(stream.done - 1));
        }
    }

    /// What was handed on and not all are known to have; with `all`, the rest, too. What waits for another stream is not
    /// among it: if the epoch ends, its sender seals it again in its place.
    pub(super) fn status(&self, epoch: EpochId, me: Slot, all: bool) -> Vec<(Of, u64)> {
        let Some(epoch) = self.epochs.iter().find(|it| it.id == epoch) else { return Vec::new() };
        // How much of the order is here is said apart.
        let is_others = |of: &Of| of.slot != me && of.stream != Stream::ORDERED;
        let others = epoch.streams.iter().filter(|(of, it)| is_others(of) && it.done > 1);
        let open = others.filter(|(_, it)| all || it.settled < it.done - 1);
        open.map(|(of, it)| (*of, it.done - 1)).collect()
    }

    /// When the next records are asked for, or old streams end.
    pub(super) fn timeout(&self, epoch: EpochId) -> Option<Monotonic> {
        let current = self.epochs.iter().find(|it| it.id == epoch);
        let naks = current.and_then(|it| it.streams.values().filter_map(|it| it.waves.due()).min());
        let ends = self.epochs.iter().filter_map(|it| it.until).min();
        [naks, ends].into_iter().flatten().min()
    }

    /// The missing records whose NAK is due, as ranges of their numbers.
    pub(super) fn naks(&mut self, now: Monotonic, epoch: EpochId) -> Vec<(Of, Vec<(u64, u64)>)> {
        let Some(epoch) = self.find(epoch) else { return Vec::new() };
        let due = epoch.streams.iter_mut().filter(|(_, it)| it.waves.due().is_some_and(|at| at <= now));
        due.map(|(of, stream)| (*of, stream.naks(now))).filter(|(_, missing)| !missing.is_empty()).collect()
    }

    /// A view is installed: what waited for it is handed on, and streams of others end some time.
    pub(super) fn install(
        &mut self,
        now: Monotonic,
        (me, members): (Slot, usize),
        epoch: EpochId,
        is_member: impl Fn(&Incarnation) -> bool,
        reads: impl Fn(Domain) -> bool,
        sink: &mut impl Sink,
    ) {
        self.members = members;
        let is_own = |of: &Of, me: Slot| of.slot == me && of.stream.is_fifo();
        let own = |it: &Epoch| it.until.is_none() && it.streams.keys().any(|of| is_own(of, it.me));
        self.heard_own = self.epochs.iter().any(own);
        for other in self.epochs.iter_mut().filter(|it| it.installed) {
            other.until.get_or_insert(now + limits::EPOCH_OVERLAP);
        }
        let new = self.epoch(now, epoch);
        (new.installed, new.until, new.me) = (true, None, me);
        self.expire(now);
        self.gone.retain(|who| !is_member(who));
        let mut freed = 0;
        for (who, progress) in self.senders.iter_mut().filter(|(who, _)| !is_member(who)) {
            freed += progress.iter_mut().filter_map(|it| it.begun.take()).map(|it| it.body.len()).sum::<usize>();
            if !self.gone.contains(who) {
                self.gone.push_back(*who);
            }
        }
        self.begun -= freed;
        while self.gone.len() > limits::KNOWN_PEOPLE_MAX {
            self.gone.pop_front().iter().for_each(|who| _ = self.senders.remove(who));
        }
        self.advance_all(now, epoch, &reads, sink);
    }

    /// Old streams end at their time, and records that found no room are tried again.
    pub(super) fn handle_timeout(
        &mut self,
        now: Monotonic,
        epoch: EpochId,
        reads: impl Fn(Domain) -> bool,
        sink: &mut impl Sink,
    ) {
        self.expire(now);
        if self.bytes > 0 {
            self.advance_all(now, epoch, &reads, sink);
        }
    }

    fn advance_all(&mut self, now: Monotonic, epoch: EpochId, reads: &impl Fn(Domain) -> bool, sink: &mut impl Sink) {
        let mut slots: Vec<Slot> =
            self.find(epoch).map(|it| it.streams.keys().map(|of| of.slot).collect()).unwrap_or_default();
        slots.dedup();
        slots.into_iter().for_each(|slot| self.advance(now, epoch, slot, reads, sink));
    }

    /// We are out.
    pub(super) fn clear(&mut self) {
        self.epochs.clear();
        self.stamps.clear();
        self.senders.clear();
        self.gone.clear();
        (self.bytes, self.begun, self.heard_own) = (0, 0, false);
    }

    /// What was dropped, by reason.
    pub(super) fn drops(&self) -> &Drops {
        &self.drops
    }

    /// As if so many bytes of messages were begun.
    #[cfg(test)]
    pub(super) fn begun(&mut self) -> &mut usize {
        &mut self.begun
    }

    /// Bytes held.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.begun
    }

    fn expire(&mut self, now: Monotonic) {
        let is_over = |it: &Epoch| it.until.is_some_and(|until| until <= now);
        let (over, kept): (VecDeque<Epoch>, _) = std::mem::take(&mut self.epochs).into_iter().partition(is_over);
        self.epochs = kept;
        self.bytes -= over.iter().map(Epoch::bytes).sum::<usize>();
    }

    fn find(&mut self, epoch: EpochId) -> Option<&mut Epoch> {
        self.epochs.iter_mut().rfind(|it| it.id == epoch)
    }

    fn stream(&mut self, epoch: EpochId, of: Of) -> Option<&mut Incomplete> {
        self.find(epoch)?.streams.get_mut(&of)
    }

    /// The epoch that was installed last.
    fn newest(&self) -> Option<EpochId> {
        self.epochs.iter().find(|it| it.installed && it.until.is_none()).map(|it| it.id)
    }

    /// The epoch; the oldest one but the current is forgotten beyond the limit. One that is not installed in time ends.
    fn epoch(&mut self, now: Monotonic, id: EpochId) -> &mut Epoch {
        let at = self.epochs.iter().rposition(|it| it.id == id);
        let at = at.unwrap_or_else(|| {
            if self.epochs.len() >= limits::EPOCHS_HELD {
                let oldest = self.epochs.iter().position(|it| it.until.is_some());
                let oldest = oldest.and_then(|at| self.epochs.remove(at));
                self.bytes -= oldest.as_ref().map_or(0, Epoch::bytes);
            }
            let until = Some(now + limits::EPOCH_OVERLAP);
            self.epochs.push_back(Epoch { id, me: Slot::MAX, installed: false, until, streams: BTreeMap::new() });
            self.epochs.len() - 1
        });
        &mut self.epochs[at]
    }

    /// Hands on what waits of a sender's streams, as far as each comes after what it has to.
    fn advance(
        &mut self,
        now: Monotonic,
        epoch: EpochId,
        slot: Slot,
        reads: &impl Fn(Domain) -> bool,
        sink: &mut impl Sink,
    ) {
        let is_old = self.newest() != Some(epoch);
        loop {
            let Some((me, streams)) = self.find(epoch).map(|it| (it.me, &mut it.streams)) else { return };
            // What is missing for good was counted when that became known.
            streams.range_mut(of_slot(slot)).for_each(|(_, it)| it.done = it.done.max(it.first_here()));
            let is_ready = |(of, stream): &(&Of, &Incomplete)| {
                let record = stream.held.get(&stream.done).filter(|_| stream.done < stream.next);
                let record = record.filter(|_| of.stream != Stream::ORDERED);
                record.is_some_and(|record| is_met(streams, me, **of, &record.frames, reads))
            };
            let Some(of) = streams.range(of_slot(slot)).find(is_ready).map(|(of, _)| *of) else { return };
            let Some(stream) = streams.get_mut(&of) else { return };
            let (number, incarnation) = (stream.done, stream.incarnation);
            let Some(record) = stream.held.remove(&number) else { return };
            let ReceivedRecord { source, signed, frames } = &record;
            let from = From { of, source: *source, incarnation, signed: *signed, position: None };
            let has_capacity = self.hand_on(now, from, is_old, frames, sink);
            let Some(stream) = self.stream(epoch, of) else { return };
            if !has_capacity {
                // It waits until there is.
                stream.held.insert(number, record);
                return;
            }
            stream.done += 1;
            self.bytes -= record.cost();
            self.buffers.give(record.frames);
        }
    }

    /// Hands on the messages of a record; those of an `old` epoch, and those that were sealed again, only if they did not come
    /// before. `false` if there is no room for a part of a message now: nothing is handed on, and the caller
    /// tries it again.
    fn hand_on(&mut self, now: Monotonic, from: From, old: bool, frames: &[u8], sink: &mut impl Sink) -> bool {
        let From { of, source, incarnation, signed, position } = from;
        // What is not handed on is not acknowledged.
        if !sink.has_readers() {
            return false;
        }
        // All of a record or nothing: a message that came in this epoch is not known by its number.
        if pieces_len(frames) > limits::REASSEMBLY_BYTES_MAX.saturating_sub(self.begun) {
            self.give_up_stalled(now);
            return false;
        }
        let channel = 2 * usize::from(position.is_some()) + usize::from(signed);
        let progress = &mut self.senders.entry(incarnation).or_default()[channel];
        let before = progress.bytes();
        let mut next = position;
        for frame in Frames::of(frames) {
            // Where a message ends there is its position, though this one may lack its beginning.
            let ends = match &frame {
                Ok(Frame::Whole { .. }) => true,
                Ok(Frame::Piece { total, offset, bytes, .. }) => {
                    u64::from(*offset) + bytes.len() as u64 == u64::from(*total)
                }
                _ => false,
            };
            let taken = match frame {
                Ok(Frame::Whole { head, body }) => {
                    progress.whole(&head, body, old, (source, signed, next), sink).map(|()| Some(head.number))
                }
                Ok(Frame::Piece { head, total, offset, bytes }) => {
                    let piece = (total as usize, offset as usize, bytes);
                    let is_last = progress.piece(now, &head, piece, old, (source, signed, next), sink);
                    is_last.map(|is_last| is_last.then_some(head.number))
                }
                Ok(Frame::Stamps { first, stamps }) if of.stream == Stream::STAMPS => {
                    if let Source::Inside { epoch, slot, .. } = source {
                        self.stamps.push_back((epoch, slot, first, stamps));
                    }
                    Ok(None)
                }
                // Signed words are taken as they come.
                Ok(Frame::Control { .. }) if matches!(of.stream, Stream::STAMPS | Stream::ORDERED) => Ok(None),
                Ok(Frame::Named { .. }) if of.stream == Stream::ORDERED => Ok(None),
                Ok(Frame::After { .. }) => Ok(None),
                Ok(
                    Frame::Heartbeat { .. }
                    | Frame::Heard { .. }
                    | Frame::Control { .. }
                    | Frame::Named { .. }
                    | Frame::Stamps { .. },
                )
                | Err(_) => Err(Dropped::Malformed),
            };
            match (taken, next) {
                (Ok(Some(number)), Some(at)) => self.ordered.push((number, at)),
                (Ok(_), _) => {}
                (Err(why), _) => self.drops.count(why),
            }
            next = next.map(|at| at + u64::from(ends));
        }
        self.begun = self.begun - before + progress.bytes();
        true
    }

    /// Of messages begun, those of which nothing came for long make room.
    fn give_up_stalled(&mut self, now: Monotonic) {
        for progress in self.senders.values_mut().flatten() {
            if let Some(stalled) = progress.begun.take_if(|it| now.since(it.touched) >= STALLED) {
                self.begun -= stalled.body.len();
                self.drops.count(Dropped::Incomplete);
            }
        }
    }
}

impl Epoch {
    fn bytes(&self) -> usize {
        self.streams.values().map(Incomplete::bytes).sum()
    }
}

impl Incomplete {
    fn new(incarnation: Incarnation) -> Incomplete {
        let held = BTreeMap::new();
        let (waves, gone_at) = (Waves::default(), Monotonic(0));
        Incomplete {
            incarnation,
            next: 1,
            done: 1,
            known: 0,
            came: 0,
            held,
            settled: 0,
            waves,
            wait: (0, Duration::ZERO),
            gone_at,
        }
    }

    fn bytes(&self) -> usize {
        self.held.values().map(ReceivedRecord::cost).sum()
    }

    /// The first record that is here and was not handed on, or the first one that is not here.
    fn first_here(&self) -> u64 {
        self.held.first_key_value().map_or(self.next, |(number, _)| (*number).min(self.next))
    }

    /// There are records up to this one: those that are missing are asked for, unless they are our own.
    fn expect(&mut self, now: Monotonic, (me, of, members): (Slot, Of, usize), to: u64) {
        self.known = self.known.max(to);
        if of.slot != me && to >= self.next {
            let (last, wait) = self.wait;
            let wait = if to <= last { wait } else { Duration::ZERO };
            self.waves.expect(now, to, wait, (mix(u64::from(me.0) << 32 ^ to), members));
        }
    }

    /// The ranges whose NAK is due.
    fn naks(&mut self, now: Monotonic) -> Vec<(u64, u64)> {
        let Incomplete { waves, held, next, .. } = self;
        waves.take_due(now, *next, |from, to| missing(held, from, to))
    }
}

/// The numbers between two, both included, of which no record is held, as ranges.
fn missing(held: &BTreeMap<u64, ReceivedRecord>, mut from: u64, to: u64) -> Vec<(u64, u64)> {
    let mut ranges = Vec::new();
    if from > to {
        return ranges;
    }
    for (number, _) in held.range(from..=to) {
        if from < *number {
            ranges.push((from, number - 1));
        }
        from = number + 1;
    }
    if from <= to {
        ranges.push((from, to));
    }
    ranges
}

impl Progress {
    fn bytes(&self) -> usize {
        self.begun.as_ref().map_or(0, |it| it.body.len())
    }

    /// Whether a message may have come before: of an `old` epoch, or sealed again.
    fn came_before(&self, head: &Head<'_>, old: bool) -> bool {
        (old || head.again) && head.number <= self.number
    }

    /// Hands on a message that came whole, unless it came before.
    fn whole(
        &mut self,
        head: &Head<'_>,
        body: &[u8],
        old: bool,
        (source, signed, position): (Source, bool, Option<u64>),
        sink: &mut impl Sink,
    ) -> Result<(), Dropped> {
        if head.keys {
            return Err(Dropped::Malformed);
        }
        if self.came_before(head, old) {
            return Err(Dropped::Replay);
        }
        self.number = self.number.max(head.number);
        self.begun = None;
        let Head { number, sent_micros, topic, .. } = *head;
        let (number, ordered) = (position.unwrap_or(number), position.is_some());
        sink.message(Received { number, ordered, source, signed, topic, sent_micros, body: body.into() });
        Ok(())
    }

    /// Adds a piece; hands on the message if that was the last one, and tells whether it was.
    fn piece(
        &mut self,
        now: Monotonic,
        head: &Head<'_>,
        (total, offset, bytes): (usize, usize, &[u8]),
        old: bool,
        (source, signed, position): (Source, bool, Option<u64>),
        sink: &mut impl Sink,
    ) -> Result<bool, Dropped> {
        if head.keys || total > limits::MESSAGE_BYTES_MAX {
            return Err(Dropped::Malformed);
        }
        if self.came_before(head, old) {
            return Err(Dropped::Replay);
        }
        if self.begun.as_ref().is_none_or(|it| it.number != head.number) {
            // Its beginning was lost for good.
            if offset != 0 {
                return Err(Dropped::Incomplete);
            }
            self.begun = Some(Begun { number: head.number, total, body: Vec::new(), touched: now });
        }
        let begun = self.begun.as_mut().ok_or(Dropped::Incomplete)?;
        match offset.cmp(&begun.body.len()) {
            // It came in the epoch before.
            std::cmp::Ordering::Less => return Err(Dropped::Replay),
            std::cmp::Ordering::Equal if begun.total == total => {}
            std::cmp::Ordering::Equal | std::cmp::Ordering::Greater => {
                self.begun = None;
                return Err(Dropped::Incomplete);
            }
        }
        begun.body.extend_from_slice(bytes);
        begun.touched = now;
        if begun.body.len() < total {
            return Ok(false);
        }
        let Some(Begun { body, .. }) = self.begun.take() else { return Ok(false) };
        self.number = self.number.max(head.number);
        let Head { number, sent_micros, topic, .. } = *head;
        let (number, ordered) = (position.unwrap_or(number), position.is_some());
        sink.message(Received { number, ordered, source, signed, topic, sent_micros, body: body.into() });
        Ok(true)
    }
}

impl ReceivedRecord {
    fn cost(&self) -> usize {
        self.frames.len() + RECORD_OVERHEAD
    }
}

/// Whose messages a record holds, and their positions, if they have any.
#[derive(Clone, Copy)]
struct From {
    of: Of,
    source: Source,
    incarnation: Incarnation,
    signed: bool,
    position: Option<u64>,
}

/// All streams of a sender.
fn of_slot(slot: Slot) -> std::ops::RangeInclusive<Of> {
    let stream = |domain, signed| Stream { domain: Domain(domain), signed };
    Of { slot, stream: stream(0, false) }..=Of { slot, stream: stream(u16::MAX, true) }
}

/// Bytes of a record that are parts of messages.
fn pieces_len(frames: &[u8]) -> usize {
    let pieces = Frames::of(frames).map_while(Result::ok);
    pieces.map(|frame| if let Frame::Piece { bytes, .. } = frame { bytes.len() } else { 0 }).sum()
}

/// What a record says that it comes after.
fn comes_after(frames: &[u8]) -> impl Iterator<Item = (Stream, u64)> {
    Frames::of(frames).map_while(|frame| match frame {
        Ok(Frame::After { stream, number }) => Some((stream, number)),
        _ => None,
    })
}

/// Whether a record comes after nothing that was not handed on. What we cannot read has no gaps for us, and streams of our own
/// that nobody here hears neither.
fn is_met(
    streams: &BTreeMap<Of, Incomplete>,
    me: Slot,
    of: Of,
    frames: &[u8],
    reads: &impl Fn(Domain) -> bool,
) -> bool {
    comes_after(frames).all(|(other, number)| {
        let stream = streams.get(&Of { stream: other, ..of });
        let is_unheard = of.slot == me && other != Stream::ORDERED && stream.is_none_or(|it| it.came == 0);
        !reads(other.domain) || other == of.stream || is_unheard || stream.is_some_and(|it| it.done > number)
    })
}

/// Spreads members' timers (the finaliser of SplitMix64).
fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// So many records behind a block of which parities came, there are some, too.
const WAITS_FOR: u64 = 2 * PARITY_BLOCK as u64;
/// Between two looks at a sender's word that it has records no more.
const GONE_AGAIN: Duration = Duration::from_millis(5);
/// Nothing more of a message came for so long: it makes room for others.
const STALLED: Duration = Duration::from_secs(10);
/// What a held record costs besides its bytes: a map entry and an allocation.
const RECORD_OVERHEAD: usize = 160;
