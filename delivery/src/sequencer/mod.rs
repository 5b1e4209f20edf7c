//! One group, two channels over UDP multicast: best effort, and beside it one that loses nothing and keeps each sender's
//! order. Keys, membership and the sending half are those of [`Multicast`].
//!
//! ```text
//! publish ─▶ Sender ── sealed records, numbered per stream ──▶ others ─▶ Incoming ─▶ messages in order
//!              │ ▲                                               │
//!           Backlog ◀── SUMMARY ── coordinator ◀── STATUS ───────┤
//!              └────────── the same bytes again ◀── NAK ─────────┘
//! ```
//! A stream is the records that one member seals in one domain of one epoch, signed or not. Receivers see gaps in their
//! numbers and ask for them (NAK, after a wait that spreads the askers: RFC 5740, 5.3); the sender repeats the datagrams as
//! they were (B5), and says from time to time how far it came, so that the last ones are missed, too. Each receiver says what
//! it has without a gap; the coordinator, the member with the lowest slot, gathers that and tells all how far all readers are
//! (B10): then the sender forgets the records, and the messages are acknowledged. What not all have when a view is installed
//! is sealed again for its epoch; receivers know a message by its number.

mod acknowledged;
mod control;
mod incoming;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealcast_wire::frame::{FLAG_RELIABLE, FLAG_SIGNED};
use sealcast_wire::{
    Access, Agreement, Domain, Dropped, Drops, EpochId, Guarantee, Header, Incarnation, Monotonic, Now, Protect, Slot,
    Source, View, limits,
};

use self::acknowledged::Acknowledged;
use self::control::{Control, Of, gone_statement};
use self::incoming::{Incoming, Record};
use crate::multicast::backlog::Settled;
use crate::multicast::frame::Stream;
use crate::multicast::{Config, Data, Multicast, Sender};
use crate::{Batch, Channel, Cut, Delivery, Input, Outcome, Outgoing, Output, Properties, SendError, Token, What};

/// See the module.
pub struct Sequencer {
    multicast: Multicast,
    current: Option<Current>,
    incoming: Incoming,
    /// Outcomes of our messages.
    ready: VecDeque<Output>,
    drops: Drops,
    told: Drops,
    /// When we say what we have, and whether all of it; when we did so last.
    status: Saying,
    /// The same of what all readers have, if we are the coordinator.
    summary: Saying,
    /// When we said last how far our streams go without an answer, and how often.
    tail: (Monotonic, u32),
    /// When we said so last since somebody asked for more.
    corrected: Monotonic,
    /// When we vouched last for having forgotten records.
    vouched: Monotonic,
}

/// The installed view.
struct Current {
    epoch: EpochId,
    me: Slot,
    /// Ascending.
    members: Vec<Slot>,
    protect: Arc<dyn Protect>,
    access: Arc<dyn Access>,
    acknowledged: Acknowledged,
}

/// Something that is said once in a while at most.
#[derive(Debug, Default)]
struct Saying {
    due: Option<Monotonic>,
    last: Option<Monotonic>,
    /// Also what was said before.
    all: bool,
}

impl Saying {
    /// It has something to say.
    fn plan(&mut self, now: Monotonic, pause: Duration) {
        let earliest = self.last.map_or(now, |last| (last + pause).max(now));
        self.due.get_or_insert(earliest);
    }

    /// Whether it is to be said now; it is then.
    fn is_due(&mut self, now: Monotonic) -> bool {
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due {
            (self.due, self.last) = (None, Some(now));
        }
        is_due
    }
}

impl Current {
    fn reads(&self, domain: Domain) -> bool {
        self.access.reads(self.me, domain)
    }

    fn coordinator(&self) -> Option<Slot> {
        self.members.first().copied()
    }

    /// Between two of a member's statuses: all members' together are at most [`STATUSES_PER_SECOND`].
    fn pause(&self) -> Duration {
        PAUSE_MIN.max(Duration::from_secs(1) * self.members.len() as u32 / STATUSES_PER_SECOND)
    }
}

impl Sequencer {
    /// What it gives.
    pub const PROPERTIES: Properties = Properties {
        fifo: Some(Channel { agreement: Agreement::None, acknowledged: true, cut: Cut::Clock }),
        needs_keys: true,
        ..Multicast::PROPERTIES
    };

    /// A member that has sent nothing and heard nobody; so many bytes may wait to be acknowledged.
    pub fn new(config: Config, backlog: usize) -> Sequencer {
        let mut multicast = Multicast::new(config);
        multicast.keep_backlog(backlog);
        Sequencer {
            multicast,
            current: None,
            incoming: Incoming::default(),
            ready: VecDeque::new(),
            drops: Drops::default(),
            told: Drops::default(),
            status: Saying::default(),
            summary: Saying::default(),
            tail: (Monotonic(0), 0),
            corrected: Monotonic(0),
            vouched: Monotonic(0),
        }
    }

    /// As [`Multicast::transmitted_by_shell`].
    pub fn transmitted_by_shell(&mut self) {
        self.multicast.transmitted_by_shell();
    }

    /// The sending half, to be shared with publishers' threads.
    pub fn sender(&self) -> Arc<Mutex<Sender>> {
        self.multicast.sender()
    }

    /// Takes in a reliable record.
    fn take(
        &mut self,
        now: Monotonic,
        source: Source,
        flags: u8,
        frame: &[u8],
        protect: Option<&dyn Protect>,
    ) -> Result<(), Dropped> {
        let Source::Inside { epoch, slot, incarnation, counter, domain } = source else {
            return Err(Dropped::Malformed);
        };
        let number = Header::reliable_number(flags, counter).ok_or(Dropped::Malformed)?;
        let stream = Stream { domain, signed: flags & FLAG_SIGNED != 0 };
        let of = Of { slot, stream };
        let Sequencer { multicast, current, incoming, .. } = self;
        let current = current.as_ref();
        let me = current.filter(|it| it.epoch == epoch).map_or_else(|| protect.map(|it| it.slot()), |it| Some(it.me));
        let me = me.ok_or(Dropped::NoKey)?;
        // Before its proof costs anything, and before it is a sign of life: anybody who heard it can send it again.
        if !incoming.is_new(epoch, of, number) {
            return Err(Dropped::Replay);
        }
        // Others hold the key of our slot, too.
        if slot == me && multicast.lock().backlog().is_none_or(|it| number > it.last(stream)) {
            return Err(Dropped::Auth);
        }
        // Of another epoch it is not known who reads what: what comes after something waits for it.
        let reads = |domain| current.is_none_or(|it| it.epoch != epoch || it.reads(domain));
        let (receiver, inbox) = multicast.receiving();
        let frames = receiver.prove(now, (epoch, slot), (stream, number), frame, protect)?;
        let record = Record { source, epoch, incarnation, of, number, frames };
        if slot == me {
            incoming.begin_at(now, &record);
        }
        incoming.take(now, me, &record, reads, inbox)?;
        receiver.heard(now, &incarnation);
        let pause = current.filter(|it| it.epoch == epoch && slot != me).map(Current::pause);
        pause.into_iter().for_each(|pause| self.status.plan(now, pause));
        Ok(())
    }

    /// Takes in what a member says about reliable records.
    fn take_control(&mut self, now: Monotonic, source: Source, bytes: &[u8]) -> Result<(), Dropped> {
        let Source::Inside { epoch, slot, incarnation, .. } = source else { return Err(Dropped::Auth) };
        let Some(current) = self.current.as_mut().filter(|it| it.epoch == epoch) else {
            return Err(Dropped::Stale);
        };
        let (me, pause) = (current.me, current.pause());
        if slot == me {
            return Ok(());
        }
        match Control::read(bytes)? {
            Control::Tail(streams) => {
                for (stream, number) in streams {
                    if current.reads(stream.domain) {
                        self.incoming.know(now, me, epoch, incarnation, Of { slot, stream }, number);
                    }
                }
                // The sender of a TAIL misses an answer.
                self.status.all = true;
                self.status.plan(now, pause);
            }
            Control::Status(streams) => {
                if current.coordinator() != Some(me) {
                    return Ok(());
                }
                // Nobody has what we did not send, what it sent itself, or what it does not read.
                let is_sent = |of: Of, number| {
                    of.slot != me || self.multicast.lock().backlog().is_some_and(|it| number <= it.last(of.stream))
                };
                let may_have = |(of, number): &(Of, u64)| {
                    let is_member = current.members.binary_search(&of.slot).is_ok();
                    let reads = of.slot != slot && current.access.reads(slot, of.stream.domain);
                    is_member && reads && is_sent(*of, *number)
                };
                if !streams.iter().all(may_have) {
                    return Err(Dropped::Malformed);
                }
                let acknowledged = &mut current.acknowledged;
                let is_news = streams.into_iter().fold(false, |news, (of, it)| acknowledged.note(slot, of, it) || news);
                if is_news {
                    self.summary.plan(now, pause);
                }
            }
            Control::Summary(streams) => {
                if current.coordinator() != Some(slot) {
                    return Err(Dropped::Policy);
                }
                streams.into_iter().for_each(|(of, number)| self.all_have(now, of, number));
            }
            Control::Nak { of, ranges } if of.slot == me => self.repair(now, of.stream, &ranges),
            Control::Nak { of, ranges } => self.incoming.heard_nak(now, epoch, of, &ranges),
            Control::Gone { stream, first, proof } => {
                let of = Of { slot, stream };
                if !self.incoming.would_end_gap(now, epoch, of, first) {
                    return Err(Dropped::Stale);
                }
                if !current.protect.vouched(slot, &gone_statement(stream, first), &proof) {
                    return Err(Dropped::Auth);
                }
                let (_, inbox) = self.multicast.receiving();
                let current = &*current;
                self.incoming.gone(now, me, (epoch, of, first), |domain| current.reads(domain), inbox);
            }
        }
        Ok(())
    }

    /// All readers have a stream up to this record.
    fn all_have(&mut self, now: Monotonic, of: Of, number: u64) {
        let Some(current) = &self.current else { return };
        if of.slot != current.me {
            return self.incoming.settle(current.epoch, of, number);
        }
        self.fill_own(now, of, number);
        let told = self.multicast.lock().acknowledge(now, of.stream, number);
        if !told.is_empty() {
            self.tail.1 = 0;
        }
        self.tell(told);
    }

    /// Tells what became of messages of ours, in the order of publishing.
    fn tell(&mut self, told: Vec<Settled>) {
        let outcome = |it: &Settled| if it.acknowledged { Outcome::Accepted } else { Outcome::InDoubt };
        self.ready.extend(told.iter().map(|it| Output::Outcome(Token(it.number), outcome(it))));
    }

    /// Records of our own that we hear, too, and that got lost on their way to us, before they are forgotten.
    fn fill_own(&mut self, now: Monotonic, of: Of, number: u64) {
        let Some((epoch, me)) = self.current.as_ref().map(|it| (it.epoch, it.me)) else { return };
        let Some(first) = self.incoming.next(epoch, of) else { return };
        if number.saturating_sub(first) > OWN_MISSED {
            return self.incoming.forget(epoch, of);
        }
        for number in first..=number {
            let found = self.multicast.lock().backlog().and_then(|backlog| {
                let (datagram, protect) = backlog.record(of.stream, number)?;
                Some((datagram.to_vec(), Arc::clone(protect)))
            });
            let Some((mut datagram, protect)) = found else { return };
            let Ok((source, flags, frame)) = protect.open(&mut datagram) else { return };
            debug_assert_eq!(of.slot, me);
            // What came already is not missing.
            let _ = self.take(now, source, flags, frame, Some(&*protect));
        }
    }

    /// Sends again what somebody lacks.
    fn repair(&mut self, now: Monotonic, stream: Stream, ranges: &[(u64, u64)]) {
        let Some(protect) = self.current.as_ref().map(|it| it.protect.clone()) else { return };
        let mut sender = self.multicast.lock();
        let repairs = sender.backlog().map(|it| it.repair(now, stream, ranges, REPAIR_PAUSE));
        match repairs {
            Some(Ok(repairs)) if !repairs.is_empty() => sender.again(repairs),
            // A signature: once in a while.
            Some(Err(_)) if now < self.vouched + TAIL_AGAIN => return,
            Some(Err(first)) => {
                self.vouched = now;
                let mut proof = Vec::new();
                protect.vouch(&gone_statement(stream, first), &mut proof);
                // A full queue is met by the next NAK.
                let _ = sender.control(now, &protect, &Control::Gone { stream, first, proof }.bytes());
            }
            Some(Ok(_)) | None => {
                // Somebody may have said that there are records which there are not.
                let last = sender.backlog().map_or(0, |it| it.last(stream));
                if ranges.iter().all(|(_, to)| *to <= last) || now < self.corrected + TAIL_AGAIN {
                    return;
                }
                self.corrected = now;
                let _ = sender.control(now, &protect, &Control::Tail(vec![(stream, last)]).bytes());
            }
        }
        drop(sender);
        self.multicast.transmit_soon();
    }

    fn say(&mut self, now: Monotonic, control: &Control) {
        let Some(current) = &self.current else { return };
        // What cannot be said now is said again.
        let _ = self.multicast.lock().control(now, &current.protect, &control.bytes());
        self.multicast.transmit_soon();
    }

    /// Says all that is due.
    fn say_due(&mut self, now: Monotonic) {
        let Some(current) = &mut self.current else { return };
        let (epoch, me, pause) = (current.epoch, current.me, current.pause());
        let coordinates = current.coordinator() == Some(me);
        if self.status.is_due(now) {
            let status = self.incoming.status(epoch, me, std::mem::take(&mut self.status.all));
            match coordinates {
                // Nobody has to be told: we are who gathers it.
                true => {
                    let news =
                        status.into_iter().fold(false, |news, (of, it)| current.acknowledged.note(me, of, it) || news);
                    if news {
                        self.summary.plan(now, pause);
                    }
                }
                false => status.chunks(limits::STREAMS_TOLD_MAX).for_each(|part| {
                    self.say(now, &Control::Status(part.to_vec()));
                }),
            }
        }
        if self.summary.is_due(now)
            && let Some(current) = &mut self.current
        {
            let Current { members, access, acknowledged, .. } = current;
            let news = acknowledged.news(members, |slot, domain| access.reads(slot, domain));
            news.iter().for_each(|(of, number)| self.all_have(now, *of, *number));
            news.chunks(limits::STREAMS_TOLD_MAX).for_each(|part| self.say(now, &Control::Summary(part.to_vec())));
        }
        for (of, ranges) in self.incoming.naks(now, epoch) {
            self.say(now, &Control::Nak { of, ranges });
        }
        if self.tail_due().is_some_and(|due| due <= now) {
            self.tail = (now, self.tail.1 + 1);
            let tails = self.multicast.lock().backlog().map(|it| it.tails()).unwrap_or_default();
            tails.chunks(limits::STREAMS_TOLD_MAX).for_each(|part| self.say(now, &Control::Tail(part.to_vec())));
        }
    }

    /// When to say how far our streams go: nobody says that all have them.
    fn tail_due(&self) -> Option<Monotonic> {
        let since = self.multicast.lock().backlog()?.watch()?;
        let (last, tries) = self.tail;
        let pause = (TAIL_AGAIN * (1 << tries.min(5))).min(TAIL_AGAIN_MAX);
        // A member that is alone waits for nobody.
        let is_alone = self.current.as_ref().is_some_and(|it| it.members.len() == 1);
        Some(if is_alone && tries == 0 { since } else { since.max(last) + pause })
    }

    /// Acknowledges what nobody else reads.
    fn settle_unread(&mut self, now: Monotonic) {
        let Some(current) = &self.current else { return };
        let is_read = |stream: Stream| {
            let others = current.members.iter().filter(|it| **it != current.me);
            others.into_iter().any(|it| current.access.reads(*it, stream.domain))
        };
        let tails = self.multicast.lock().backlog().map(|it| it.tails()).unwrap_or_default();
        let unread: Vec<_> = tails.into_iter().filter(|(stream, _)| !is_read(*stream)).collect();
        let slot = current.me;
        unread.into_iter().for_each(|(stream, number)| self.all_have(now, Of { slot, stream }, number));
    }

    fn install(&mut self, now: Monotonic, view: &View, protect: Option<&Arc<dyn Protect>>, access: &Arc<dyn Access>) {
        let Some(protect) = protect else { return };
        let me = view.me;
        let route = |topic: &str, signed: bool| {
            let domain = access.domain(topic).filter(|_| access.may_publish(me, topic))?;
            // Readers know the numbers of signed messages and of others apart.
            (signed || !access.must_sign(topic)).then_some(Stream { domain, signed })
        };
        let told = self.multicast.lock().change_epoch(now, protect, route);
        self.tell(told);
        let current = Current {
            epoch: view.epoch,
            me,
            members: view.members.slots().map(|(slot, _)| slot).collect(),
            protect: protect.clone(),
            access: access.clone(),
            acknowledged: Acknowledged::default(),
        };
        let is_member = |who: &Incarnation| view.members.iter().any(|member| member.id.incarnation == *who);
        let (_, inbox) = self.multicast.receiving();
        self.incoming.install(now, me, view.epoch, is_member, |domain| current.reads(domain), inbox);
        let pause = current.pause();
        (self.status, self.summary, self.tail) = (Saying::default(), Saying::default(), (now, 0));
        self.current = Some(current);
        // What came before the view did is acknowledged now.
        self.status.plan(now, pause);
        self.multicast.transmit_soon();
    }

    /// We are out: whether others have the last messages, nobody tells us any more.
    fn exclude(&mut self) {
        self.current = None;
        (self.status, self.summary) = (Saying::default(), Saying::default());
        self.incoming.clear();
        let told = self.multicast.lock().give_up();
        self.tell(told);
    }

    fn take_controls(&mut self, now: Monotonic) {
        while let Some((source, bytes)) = self.multicast.next_control() {
            if let Err(why) = self.take_control(now, source, &bytes) {
                self.drops.count(why);
            }
        }
    }
}

impl Delivery for Sequencer {
    fn properties(&self) -> Properties {
        Sequencer::PROPERTIES
    }

    fn send(
        &mut self,
        now: Now,
        protect: Option<&Arc<dyn Protect>>,
        message: Outgoing<'_>,
    ) -> Result<Token, SendError> {
        match (message.guarantee, message.what) {
            (Guarantee::Fifo, What::Data { topic, domain, signed, sent_micros, body }) => {
                let data = Data { topic, domain, signed, reliable: true, sent_micros, body };
                let number = self.multicast.lock().data(now.monotonic, protect, data)?;
                self.multicast.transmit_soon();
                Ok(Token(number))
            }
            (Guarantee::BestEffort, _) => self.multicast.send(now, protect, message),
            (guarantee, _) => Err(SendError::NotGiven(guarantee)),
        }
    }

    fn handle(&mut self, now: Now, input: Input<'_>) {
        match input {
            Input::Frame { source, flags, frame, protect, .. } if flags & FLAG_RELIABLE != 0 => {
                if let Err(why) = self.take(now.monotonic, source, flags, frame, protect) {
                    self.drops.count(why);
                }
            }
            Input::Frame { .. } => {
                self.multicast.handle(now, input);
                self.take_controls(now.monotonic);
            }
            Input::Install { view, protect, access } => {
                self.multicast.handle(now, input);
                self.install(now.monotonic, view, protect, access);
            }
            Input::Excluded => self.exclude(),
            Input::Pause
            | Input::Resume
            | Input::Fetch(..)
            | Input::Provide { .. }
            | Input::Opened(..)
            | Input::Connected(_)
            | Input::Disconnected(_)
            | Input::Message { .. }
            | Input::Subscribe(_)
            | Input::Unsubscribe(_)
            | Input::Prepare { .. }
            | Input::Retire(_) => self.multicast.handle(now, input),
        }
    }

    fn open_at(
        &mut self,
        index: u64,
        source: Source,
        flags: u8,
        frame: &mut [u8],
        protect: &dyn Protect,
    ) -> Result<Output, Dropped> {
        self.multicast.open_at(index, source, flags, frame, protect)
    }

    fn timeout(&self) -> Option<Monotonic> {
        let current = self.current.as_ref();
        let naks = current.and_then(|it| self.incoming.timeout(it.epoch));
        let ours = [self.status.due, self.summary.due, naks, self.tail_due().filter(|_| current.is_some())];
        [self.multicast.timeout()].into_iter().chain(ours).flatten().min()
    }

    fn handle_timeout(&mut self, now: Now, protect: Option<&Arc<dyn Protect>>) {
        self.multicast.handle_timeout(now, protect);
        if let Some(current) = &self.current {
            let (_, inbox) = self.multicast.receiving();
            self.incoming.handle_timeout(now.monotonic, current.epoch, |domain| current.reads(domain), inbox);
        }
        self.settle_unread(now.monotonic);
        self.say_due(now.monotonic);
    }

    fn poll(&mut self, batch: &mut Batch) -> Option<Output> {
        if let Some(output) = self.ready.pop_front() {
            return Some(output);
        }
        let mut drops = self.drops.clone();
        drops.add(self.incoming.drops());
        match drops.since(&mut self.told) {
            Some(dropped) => Some(Output::Dropped(dropped)),
            None => self.multicast.poll(batch),
        }
    }
}

/// Between two statuses of one member, and two summaries.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Of all members together (B10).
const STATUSES_PER_SECOND: u32 = 20_000;
/// How long nothing is acknowledged until the sender says how far its streams go.
const TAIL_AGAIN: Duration = Duration::from_millis(10);
/// The same after several tries.
const TAIL_AGAIN_MAX: Duration = Duration::from_millis(320);
/// A record is sent again once in so long.
const REPAIR_PAUSE: Duration = Duration::from_millis(2);
/// If we lack so many of our own records in a row, nobody here wants them any more.
const OWN_MISSED: u64 = 4096;
