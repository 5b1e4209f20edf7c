//! The reliable records that not all of their readers have yet, as they were sealed, and which messages end in them.
//!
//! ```text
//! lane ── queue ─▶ entry (stream, first number, batch) ── acknowledged by all readers ─▶ its memory goes back
//!                       ├── NAK ─▶ the same bytes again (B5)
//!                       └── another epoch ─▶ opened, framed and sealed anew
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;

use sealcast_wire::{Access, Domain, EpochId, Header, Monotonic, Protect, Slot, limits};

use super::congestion::Congestion;
use super::frame::Stream;
use super::parity::Parity;
use crate::{Batch, Outcome, SendError};

/// See the module. Of one epoch at a time.
pub(crate) struct Backlog {
    epoch: EpochId,
    streams: BTreeMap<Stream, Sent>,
    /// The stream of the record that was begun last.
    current: Option<Stream>,
    /// Messages of which is not told yet what became, by their numbers: in the order of publishing.
    messages: VecDeque<Message>,
    /// Batches so far: their order over all streams.
    batches: u64,
    /// Of all that is kept.
    bytes: usize,
    /// Of those, the ones of stamps and of what is said at the end of a view.
    stamps_bytes: usize,
    congestion: Congestion,
    /// Who asked for what was sent again last.
    turn: Slot,
    parity: Option<Parity>,
    /// When something happened last.
    now: Monotonic,
    /// Since when something waits, or when something was acknowledged last.
    since: Option<Monotonic>,
    /// Whether somebody looks at the clock for it.
    watched: bool,
    orders: Orders,
    /// We stamp, and have ordered records that nobody looked at since they were sealed.
    unstamped: bool,
    /// The member that holds the least of the order, and how many records less than most, if it does.
    pub(crate) slowest: Option<(Slot, u64)>,
}

/// How much of what a member published waits to be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Bytes, as they were sealed.
    pub waiting: usize,
    /// So many may wait at present: less than `most` where the network took no more.
    pub window: usize,
    /// So many may ever wait (`backlog=`).
    pub most: usize,
    /// The member that holds the least of the order, by the sequencer's word, and how many records less than most members do.
    pub slowest: Option<(Slot, u64)>,
}

/// Whether ordered messages are taken.
pub(crate) enum Orders {
    /// This member orders; what it reads, and whether that is us.
    By { slot: Slot, access: Arc<dyn Access>, ours: bool },
    /// Not now.
    Not(SendError),
}

/// One stream.
#[derive(Default)]
struct Sent {
    /// In the order of their numbers.
    entries: VecDeque<Entry>,
    /// The number of the last record sealed.
    last: u64,
    /// Up to here all readers have them.
    acknowledged: u64,
    /// The last acknowledged record in which a message ends: the next one may begin in it.
    ended: u64,
    /// Later records in which messages end.
    ends: VecDeque<u64>,
    /// Of other streams: after which of their records this one was told to come.
    after: BTreeMap<Stream, u64>,
    /// When records were sent again last.
    repaired: BTreeMap<u64, Monotonic>,
    /// When one of those was acknowledged last.
    waited: Monotonic,
    /// Records that are to be sent again, by who asks for them.
    wanted: BTreeMap<Slot, BTreeSet<u64>>,
}

/// A batch of records that were sealed together.
pub(super) struct Entry {
    nth: u64,
    /// So many records had been sealed with it, of all streams; and when that was.
    sealed: u64,
    at: Monotonic,
    /// The number of its first record.
    pub(super) first: u64,
    pub(super) batch: Arc<Batch>,
    pub(super) protect: Arc<dyn Protect>,
}

/// A batch to be sealed anew.
pub(super) struct Again {
    pub(super) entry: Entry,
    /// The first of its records that somebody may need.
    pub(super) from: u64,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    number: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It ends in this record of this stream.
    Sealed(Stream, u64),
    /// It is to be sealed anew.
    Moving,
    /// All readers have it.
    Acknowledged,
    /// It was delivered at this place of the order.
    Ordered(u64),
    /// Some may lack it, and it is not sent any more.
    InDoubt,
}

/// What became of a message, by its number: all readers have it, it was delivered at its place, or some may lack it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) number: u64,
    pub(crate) outcome: Outcome,
}

impl Entry {
    fn last(&self) -> u64 {
        self.first + self.batch.lengths.len() as u64 - 1
    }

    fn records(&self) -> impl Iterator<Item = (u64, &[u8])> {
        (self.first..).zip(self.batch.iter())
    }
}

impl Backlog {
    /// Nothing is sent reliably before an epoch begins.
    pub(super) fn new(most: usize) -> Backlog {
        Backlog {
            epoch: EpochId::default(),
            streams: BTreeMap::new(),
            current: None,
            messages: VecDeque::new(),
            batches: 0,
            bytes: 0,
            stamps_bytes: 0,
            congestion: Congestion::new(most),
            parity: None,
            now: Monotonic(0),
            since: None,
            watched: false,
            turn: Slot(0),
            orders: Orders::Not(SendError::NotReady),
            unstamped: false,
            slowest: None,
        }
    }

    /// How full it is.
    pub(super) fn flow(&self) -> Flow {
        Flow {
            waiting: self.published(),
            window: self.congestion.window(),
            most: self.congestion.most(),
            slowest: self.slowest,
        }
    }

    /// From now on parities are made as they are needed.
    pub(super) fn make_parities(&mut self) {
        self.parity.get_or_insert_default();
    }

    /// Whether parities are made, when they are needed: records leave room for what theirs are longer.
    pub(super) fn makes_parities(&self) -> bool {
        self.parity.is_some()
    }

    /// The body of a control frame with a parity that is to be sent.
    pub(super) fn take_parity(&mut self) -> Option<Vec<u8>> {
        self.parity.as_mut()?.take()
    }

    /// From now on ordered messages are taken, or not.
    pub(crate) fn order(&mut self, orders: Orders) {
        self.orders = orders;
    }

    /// Whether a message may be ordered now.
    pub(super) fn admit_ordered(&self) -> Result<(), SendError> {
        match &self.orders {
            Orders::By { .. } => Ok(()),
            Orders::Not(why) => Err(*why),
        }
    }

    /// Whether the sequencer has to be told what ordered records of this compartment are, as it cannot open them.
    pub(super) fn names(&self, domain: Domain) -> bool {
        match &self.orders {
            Orders::By { slot, access, .. } => domain != Domain::GROUP && !access.reads(*slot, domain),
            Orders::Not(_) => false,
        }
    }

    /// Whether a message may be taken, of so many bytes and for this epoch.
    pub(super) fn admit(&self, epoch: EpochId, bytes: usize) -> Result<(), SendError> {
        match () {
            () if epoch != self.epoch => Err(SendError::Retired),
            // One that is longer than the window goes alone.
            () if self.published() > 0 && self.published() + bytes > self.congestion.window() => Err(SendError::Full),
            () => Ok(()),
        }
    }

    /// Whether best effort has to wait now beside what is reliable; if so, whether none did before.
    pub(super) fn holds_back(&mut self, now: Monotonic) -> Option<bool> {
        self.congestion.pace.holds_back(now)
    }

    /// So many bytes of it are sent.
    pub(super) fn spend(&mut self, now: Monotonic, bytes: usize) {
        self.congestion.pace.spend(now, bytes);
    }

    /// When best effort that waits may be sent.
    pub(super) fn paced_until(&mut self, now: Monotonic) -> Option<Monotonic> {
        self.congestion.pace.until(now)
    }

    /// Bytes that publishers wait for: what the order says of itself takes nothing of theirs.
    fn published(&self) -> usize {
        self.bytes - self.stamps_bytes
    }

    /// A record of this stream is begun; whether one of another stream was begun before.
    pub(super) fn begin(&mut self, now: Monotonic, stream: Stream) -> bool {
        self.begin_stamps(now);
        self.current.replace(stream).is_some_and(|before| before != stream)
    }

    /// Stamps are about to be sent.
    pub(super) fn begin_stamps(&mut self, now: Monotonic) {
        self.now = now;
        if self.since.is_none() {
            (self.since, self.watched) = (Some(now), false);
        }
    }

    /// What the next record of a stream has to say that it comes after; it is taken to be said.
    pub(super) fn after(&mut self, stream: Stream) -> Vec<(Stream, u64)> {
        let mut told = mem::take(&mut self.streams.entry(stream).or_default().after);
        // Stamps are no part of what the application says.
        let others = self.streams.iter().filter(|(other, _)| **other != stream && **other != Stream::STAMPS);
        let news = others.filter(|(other, it)| it.last > told.get(other).copied().unwrap_or(0));
        let news: Vec<_> = news.map(|(other, it)| (*other, it.last)).collect();
        told.extend(news.iter().copied());
        self.streams.entry(stream).or_default().after = told;
        news
    }

    /// Keeps a batch of sealed records; `ends` says in which of them messages end.
    pub(super) fn push(
        &mut self,
        stream: Stream,
        protect: Arc<dyn Protect>,
        batch: &Arc<Batch>,
        ends: &mut Vec<(usize, u64)>,
    ) {
        let header = batch.iter().next().and_then(|datagram| Header::parse(datagram).ok());
        let first = header.and_then(|it| Header::reliable_number(it.flags, it.counter)).expect("it was sealed so");
        self.bytes += batch.bytes.len();
        if stream == Stream::STAMPS {
            self.stamps_bytes += batch.bytes.len();
        }
        self.unstamped |= stream == Stream::ORDERED && matches!(self.orders, Orders::By { ours: true, .. });
        let sealed = self.congestion.sealed(batch.lengths.len());
        self.parity.iter_mut().for_each(|it| it.push(stream, first, batch));
        self.batches += 1;
        // A short batch may lie in memory for a long one.
        let is_tight = batch.bytes.capacity() <= 2 * batch.bytes.len();
        let batch = if is_tight { Arc::clone(batch) } else { Arc::new(Batch::clone(batch)) };
        let entry = Entry { nth: self.batches, sealed, at: self.now, first, batch, protect };
        let sent = self.streams.entry(stream).or_default();
        sent.last = entry.last();
        sent.entries.push_back(entry);
        for (at, number) in ends.drain(..) {
            let record = first + at as u64;
            if sent.ends.back() != Some(&record) {
                sent.ends.push_back(record);
            }
            let state = State::Sealed(stream, record);
            match self.messages.binary_search_by_key(&number, |it| it.number) {
                Ok(at) => self.messages[at].state = state,
                Err(at) => self.messages.insert(at, Message { number, state }),
            }
        }
    }

    /// Whether a message is to be sealed anew.
    pub(super) fn is_open(&self, number: u64) -> bool {
        let at = self.messages.binary_search_by_key(&number, |it| it.number);
        at.is_ok_and(|at| self.messages[at].state == State::Moving)
    }

    /// A message is not sent any more.
    pub(super) fn doubt(&mut self, number: u64) {
        let state = State::InDoubt;
        match self.messages.binary_search_by_key(&number, |it| it.number) {
            Ok(at) => self.messages[at].state = state,
            Err(at) => self.messages.insert(at, Message { number, state }),
        }
    }

    /// A message of ours was delivered at this place of the order.
    pub(crate) fn ordered(&mut self, number: u64, position: u64) {
        if let Ok(at) = self.messages.binary_search_by_key(&number, |it| it.number) {
            self.messages[at].state = State::Ordered(position);
        }
    }

    /// What is known of messages before which nothing is open.
    pub(crate) fn told(&mut self) -> Vec<Settled> {
        let mut told = Vec::new();
        while let Some(first) = self.messages.front() {
            let outcome = match first.state {
                // That all hold it does not say yet where it was delivered.
                State::Sealed(Stream::ORDERED, _) | State::Moving => break,
                State::Sealed(stream, record) => {
                    if self.streams.get(&stream).is_none_or(|sent| sent.acknowledged < record) {
                        break;
                    }
                    Outcome::Accepted
                }
                State::Acknowledged => Outcome::Accepted,
                State::Ordered(position) => Outcome::Ordered(position),
                State::InDoubt => Outcome::InDoubt,
            };
            told.push(Settled { number: first.number, outcome });
            self.messages.pop_front();
        }
        told
    }

    /// All readers have a stream's records up to this one; `more` are those of which some are not sealed yet. Returns what
    /// became of messages by that, in the order of publishing; memory that is not needed any more goes to `free`.
    pub(super) fn acknowledge(
        &mut self,
        now: Monotonic,
        stream: Stream,
        number: u64,
        more: &[Stream],
        mut free: impl FnMut(Arc<Batch>),
    ) -> Vec<Settled> {
        let Some(sent) = self.streams.get_mut(&stream) else { return Vec::new() };
        let number = number.min(sent.last);
        if number <= sent.acknowledged {
            return Vec::new();
        }
        let records = number - sent.acknowledged;
        // Of the last batch that all have: how long that took, if neither it nor what it waited for was sent again (Karn's rule).
        // Of ordered ones that says more of the order than of the network.
        let at = sent.entries.partition_point(|it| it.last() <= number);
        let whole = at.checked_sub(1).and_then(|at| sent.entries.get(at)).filter(|it| it.last() > sent.acknowledged);
        if sent.repaired.first_key_value().is_some_and(|(first, _)| *first <= number) {
            sent.waited = now;
        }
        let is_once = |it: &&Entry| sent.waited < it.at;
        let took = whole.filter(is_once).filter(|_| stream.is_fifo()).map(|it| now.since(it.at));
        let sealed = whole.map_or(0, |it| it.sealed);
        sent.acknowledged = number;
        sent.repaired = sent.repaired.split_off(&(number + 1));
        sent.wanted.retain(|_, wanted| {
            *wanted = wanted.split_off(&(number + 1));
            !wanted.is_empty()
        });
        while let Some(end) = sent.ends.pop_front_if(|end| *end <= number) {
            sent.ended = end;
        }
        // Who joins needs a message from its beginning.
        let is_all = !stream.is_fifo() || number == sent.last && !more.contains(&stream);
        let needed = if is_all { number + 1 } else { sent.ended };
        let waiting = self.bytes - self.stamps_bytes;
        let mut freed = 0;
        while let Some(entry) = sent.entries.pop_front_if(|it| it.last() < needed) {
            freed += entry.batch.bytes.len();
            free(entry.batch);
        }
        self.bytes -= freed;
        if stream == Stream::STAMPS {
            self.stamps_bytes -= freed;
        }
        self.now = now;
        let records = usize::try_from(records).unwrap_or(usize::MAX);
        self.congestion.acknowledged(now, waiting, (freed, records), (took, sealed));
        self.since = (!more.is_empty() || !self.is_empty()).then_some(now);
        self.told()
    }

    /// Notes which records of a stream `by` asks for; [`Backlog::repairs`] has them. If one is asked for that is not here any
    /// more, the error is the number of the first one that is.
    pub(crate) fn repair(
        &mut self,
        now: Monotonic,
        (by, stream): (Slot, Stream),
        ranges: &[(u64, u64)],
    ) -> Result<(), u64> {
        let Some(sent) = self.streams.get_mut(&stream) else { return Ok(()) };
        let first = sent.entries.front().map_or(sent.last + 1, |it| it.first);
        if ranges.iter().any(|(from, _)| *from < first && *from <= sent.last) {
            return Err(first);
        }
        let latest = ranges.last().map_or(0, |(_, to)| (*to).min(sent.last));
        let latest = sent.entries.get(sent.entries.partition_point(|it| it.last() < latest));
        let latest = latest.map_or((None, 0), |it| (Some(now.since(it.at)), it.sealed));
        // Who waits for parities asks later.
        let waits = self.parity.as_ref().is_some_and(Parity::is_made);
        let latest = (latest.0.filter(|_| !waits), latest.1);
        self.congestion.asked(now, (by, stream), (ranges, sent.last), latest);
        let pause = self.congestion.repair_pause();
        let numbers = ranges.iter().flat_map(|(from, to)| *from..=(*to).min(sent.last));
        let mut wanted = sent.wanted.remove(&by).unwrap_or_default();
        for number in numbers.take(LOOKED_AT) {
            // A record is sent again once in the time that takes.
            if sent.repaired.get(&number).is_none_or(|at| now >= *at + pause) {
                wanted.insert(number);
            }
        }
        while wanted.len() > LOOKED_AT {
            wanted.pop_last();
        }
        if !wanted.is_empty() {
            sent.wanted.insert(by, wanted);
        }
        Ok(())
    }

    /// Records that are asked for, as many as may be sent again now. Those who ask take turns, so that who asks without end takes
    /// little from others; each gets the first ones first, since it waits for those.
    pub(crate) fn repairs(&mut self, now: Monotonic) -> Batch {
        let mut repairs = Batch::default();
        self.congestion.refill(now);
        let mut first_time = 0;
        while repairs.lengths.len() < limits::REPAIRS_MAX {
            let askers = || self.streams.values().flat_map(|it| it.wanted.keys()).copied();
            let next = askers().filter(|it| *it > self.turn).min().or_else(|| askers().min());
            let Some(by) = next.filter(|_| self.congestion.may_repair()) else { break };
            self.turn = by;
            let Some(sent) = self.streams.values_mut().find(|it| it.wanted.contains_key(&by)) else { break };
            let Some(number) = sent.wanted.get(&by).and_then(|it| it.first().copied()) else { break };
            // Others who ask for it get it, too.
            sent.wanted.retain(|_, wanted| {
                wanted.remove(&number);
                !wanted.is_empty()
            });
            let entry = sent.entries.get(sent.entries.partition_point(|it| it.last() < number));
            if let Some((_, datagram)) = entry.and_then(|it| it.records().find(|(at, _)| *at == number)) {
                first_time += usize::from(sent.repaired.insert(number, now).is_none());
                repairs.push(datagram);
            }
        }
        self.parity.iter_mut().for_each(|it| it.repaired(first_time));
        repairs
    }

    /// When more may be sent again, if more is asked for.
    pub(crate) fn repairs_due(&self) -> Option<Monotonic> {
        self.streams.values().any(|it| !it.wanted.is_empty()).then(|| self.congestion.repairs_due())
    }

    /// The last number of each stream of which something is not acknowledged.
    pub(crate) fn tails(&self) -> Vec<(Stream, u64)> {
        let open = self.streams.iter().filter(|(_, sent)| sent.last > sent.acknowledged);
        open.map(|(stream, sent)| (*stream, sent.last)).collect()
    }

    /// Whether something of a stream is not acknowledged.
    pub(crate) fn waits(&self, stream: Stream) -> bool {
        self.streams.get(&stream).is_some_and(|sent| sent.last > sent.acknowledged)
    }

    /// The last record of a stream that all readers have.
    pub(crate) fn acknowledged(&self, stream: Stream) -> u64 {
        self.streams.get(&stream).map_or(0, |sent| sent.acknowledged)
    }

    /// The last record of a stream.
    pub(crate) fn last(&self, stream: Stream) -> u64 {
        self.streams.get(&stream).map_or(0, |sent| sent.last)
    }

    /// One record as it was sealed, if it is still here.
    pub(crate) fn record(&self, stream: Stream, number: u64) -> Option<(&[u8], &Arc<dyn Protect>)> {
        let entries = &self.streams.get(&stream)?.entries;
        let entry = entries.get(entries.partition_point(|it| it.last() < number))?;
        let (_, datagram) = entry.records().find(|(at, _)| *at == number)?;
        Some((datagram, &entry.protect))
    }

    /// Another epoch begins: what not all have is the caller's to seal anew, in this order. Of ordered messages, `ordered`:
    /// nobody delivered those that we did not.
    pub(super) fn change(&mut self, epoch: EpochId, ordered: bool) -> Vec<Again> {
        for message in &mut self.messages {
            if let State::Sealed(stream, record) = message.state {
                let is_acknowledged = self.streams.get(&stream).is_some_and(|sent| record <= sent.acknowledged);
                message.state = match stream {
                    // It is delivered in the view that it was sealed in, or its sender is told (B4).
                    Stream::ORDERED if ordered => State::Moving,
                    Stream::ORDERED => State::InDoubt,
                    _ if is_acknowledged => State::Acknowledged,
                    _ => State::Moving,
                };
            }
        }
        let streams = mem::take(&mut self.streams);
        (self.epoch, self.current, self.bytes, self.stamps_bytes) = (epoch, None, 0, 0);
        self.parity.iter_mut().for_each(Parity::change);
        self.congestion.change();
        (self.since, self.slowest) = (None, None);
        let of = |(_, sent): (Stream, Sent)| {
            // Where messages end in the record in which the next one begins, those are passed over.
            let from = if sent.acknowledged == sent.last { sent.last + 1 } else { sent.ended };
            sent.entries.into_iter().map(move |entry| Again { entry, from })
        };
        let moves = |stream: &Stream| stream.is_fifo() || ordered && *stream == Stream::ORDERED;
        let mut again: Vec<Again> = streams.into_iter().filter(|(it, _)| moves(it)).flat_map(of).collect();
        again.sort_by_key(|it| it.entry.nth);
        again
    }

    /// Nothing more will be acknowledged: what becomes of all messages.
    pub(super) fn give_up(&mut self) -> Vec<Settled> {
        self.change(EpochId::default(), false);
        let outcome = |state: State| match state {
            State::Acknowledged => Outcome::Accepted,
            State::Ordered(position) => Outcome::Ordered(position),
            State::Sealed(..) | State::Moving | State::InDoubt => Outcome::InDoubt,
        };
        self.messages.drain(..).map(|it| Settled { number: it.number, outcome: outcome(it.state) }).collect()
    }

    /// Bytes kept.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.bytes
    }

    /// Whether all readers have everything.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Since when something waits to be acknowledged, or when something was last. Who asks is taken to look at the clock.
    pub(crate) fn watch(&mut self) -> Option<Monotonic> {
        self.watched = true;
        self.since
    }

    /// Whether something waits and nobody looks at the clock for it, or stamps it; the caller has to from now on.
    pub(super) fn take_unwatched(&mut self) -> bool {
        let is_unwatched = !mem::replace(&mut self.watched, true) && self.since.is_some();
        self.take_unstamped() || is_unwatched
    }

    /// Whether there are records for us to stamp; the caller looks at them now.
    pub(crate) fn take_unstamped(&mut self) -> bool {
        mem::take(&mut self.unstamped)
    }
}

/// Records that are looked at for one NAK.
const LOOKED_AT: usize = 1024;

#[cfg(test)]
mod tests {
    use sealcast_wire::Domain;
    use sealcast_wire::frame::{FLAG_RELIABLE, HEADER_LEN, TAG_LEN};

    use super::*;
    use crate::testing::group;

    const STREAM: Stream = Stream { domain: Domain(1), signed: false };

    fn sealed(protect: &Arc<dyn Protect>, count: usize) -> Arc<Batch> {
        let mut batch = Batch::default();
        for _ in 0..count {
            let mut datagram = vec![0; HEADER_LEN + 100 + TAG_LEN];
            protect.seal(STREAM.domain, FLAG_RELIABLE, &mut datagram).expect("it has the key");
            batch.push(&datagram);
        }
        Arc::new(batch)
    }

    fn backlog(protect: &Arc<dyn Protect>, count: usize) -> Backlog {
        let mut backlog = Backlog::new(1 << 20);
        backlog.change(protect.epoch(), false);
        backlog.begin(Monotonic(0), STREAM);
        backlog.push(
            STREAM,
            protect.clone(),
            &sealed(protect, count),
            &mut (0..count).map(|n| (n, n as u64 + 1)).collect(),
        );
        backlog
    }

    /// Else nobody says that there is a last record, and a receiver that missed it never asks.
    #[test]
    fn what_is_not_sealed_yet_is_looked_after_when_all_before_it_is_acknowledged() {
        for more in [&[][..], &[STREAM]] {
            let protect = group(1, 2).remove(0);
            let mut backlog = backlog(&protect, 3);
            assert_eq!(backlog.watch(), Some(Monotonic(0)));
            assert_eq!(backlog.acknowledge(Monotonic(7), STREAM, 3, more, drop).len(), 3);
            assert_eq!(backlog.watch(), (!more.is_empty()).then_some(Monotonic(7)));
        }
    }

    #[test]
    fn rule_g8_endless_naks_get_a_bounded_number_of_records() {
        let protect = group(1, 2).remove(0);
        let mut backlog = backlog(&protect, 2_000);
        let mut sent = 0;
        for micros in (0..1_000_000).step_by(100) {
            let asked = backlog.repair(Monotonic(micros), (Slot(1), STREAM), &[(1, u64::MAX)]);
            asked.expect("nothing is forgotten");
            sent += backlog.repairs(Monotonic(micros)).lengths.len();
        }
        assert!((4_000..8_000 + 3_000).contains(&sent), "{sent} in a second");
    }

    #[test]
    fn rule_g8_who_asks_without_end_takes_no_repairs_from_others() {
        let protect = group(1, 2).remove(0);
        let mut backlog = backlog(&protect, 2_000);
        let one = backlog.repair(Monotonic(0), (Slot(1), STREAM), &[(1, 2_000)]);
        one.expect("nothing is forgotten");
        let first = backlog.repairs(Monotonic(0)).lengths.len();
        assert!(first < 1_900, "the allowance is used up after {first}");
        for number in [1_950, 1_960, 1_970] {
            let mut waited = 0;
            for micros in (1..).map(|it| number * 1_000_000 + it * 2_000) {
                backlog.repair(Monotonic(micros), (Slot(1), STREAM), &[(1, 64)]).expect("nothing is forgotten");
                if waited == 0 {
                    backlog.repair(Monotonic(micros), (Slot(2), STREAM), &[(number, number)]).expect("it is here");
                }
                waited += 1;
                backlog.repairs(Monotonic(micros));
                if backlog.streams[&STREAM].repaired.contains_key(&number) {
                    break;
                }
                assert!(waited < 200, "record {number} is not sent again");
            }
        }
    }

    #[test]
    fn a_short_batch_is_kept_in_little_memory() {
        let protect = group(1, 2).remove(0);
        let mut backlog = Backlog::new(1 << 20);
        backlog.change(protect.epoch(), false);
        for n in 1..100 {
            let mut batch = Batch { bytes: Vec::with_capacity(130_000), ..Batch::default() };
            batch.append(&sealed(&protect, 1));
            backlog.push(STREAM, protect.clone(), &Arc::new(batch), &mut vec![(0, n)]);
        }
        let kept: usize = backlog.streams[&STREAM].entries.iter().map(|it| it.batch.bytes.capacity()).sum();
        assert!(kept < 100 * 400, "{kept} bytes for 99 records of 144");
    }
}
