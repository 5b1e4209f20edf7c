//! What a member says about reliable records, and when.
//!
//! ```text
//! something to say ─▶ Saying: due after a pause since it was said last ─▶ say_due ─▶ to who gathers it, or to all
//! ```
//! Pauses let a stream's words gather; after little was said they are short, so that a lone message does not wait for them. All
//! members' words together have a bound per second (B10). Statuses and acknowledgements are for the sequencer, and go to all
//! once it seems not to hear them.

use std::time::Duration;

use sealcast_wire::{Domain, Monotonic, Slot, To, limits};

use super::control::{Control, Of};
use super::order::Order;
use super::{Current, Sequencer};
use crate::multicast::frame::{STAMPS_MAX, Stream};

/// Something that is said once in a while at most.
#[derive(Debug, Default)]
pub(super) struct Saying {
    pub(super) due: Option<Monotonic>,
    pub(super) last: Option<Monotonic>,
    /// Also what was said before.
    pub(super) all: bool,
    /// Little was said last: what comes now hardly gathers.
    pub(super) was_little: bool,
}

impl Saying {
    /// It has something to say.
    pub(super) fn plan(&mut self, now: Monotonic, pause: Duration) {
        self.plan_at(self.last.map_or(now, |last| (last + pause).max(now)));
    }

    /// The same, sooner if little was said last time: a lone message's way is short, and a stream's messages share theirs.
    pub(super) fn plan_soon(&mut self, now: Monotonic, pause: Duration, members: usize) {
        let brief = BRIEF_MIN.max(Duration::from_secs(1) * members as u32 / BRIEF_PER_SECOND);
        self.plan(now, if self.was_little { brief.min(pause) } else { pause });
    }

    /// It has something to say by then.
    pub(super) fn plan_at(&mut self, at: Monotonic) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Whether it is to be said now; it is then.
    pub(super) fn is_due(&mut self, now: Monotonic) -> bool {
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due {
            (self.due, self.last) = (None, Some(now));
        }
        is_due
    }
}

impl Current {
    /// Whether we stamp, and not all members hold what is stamped.
    pub(super) fn is_open(&self) -> bool {
        self.sequencer() == Some(self.me) && self.order.as_ref().is_some_and(|it| !it.is_settled())
    }

    /// Between two times that a member says how much of the order it holds: what waits for it are messages.
    pub(super) fn ack_pause(&self) -> Duration {
        ACK_PAUSE_MIN.max(Duration::from_secs(1) * self.members.len() as u32 / STATUSES_PER_SECOND)
    }

    /// Between two of a member's statuses: all members' together are at most [`STATUSES_PER_SECOND`].
    pub(super) fn pause(&self) -> Duration {
        PAUSE_MIN.max(Duration::from_secs(1) * self.members.len() as u32 / STATUSES_PER_SECOND)
    }
}

impl Sequencer {
    /// The sequencer says what it stamped since.
    pub(super) fn say_stamps(&mut self) {
        // Its own records, which may not come back to it, among them.
        if let Some(slot) = self.current.as_ref().filter(|it| it.sequencer() == Some(it.me)).map(|it| it.me) {
            let last = self.multicast.lock().backlog().map_or(0, |it| {
                it.take_unstamped();
                it.last(Stream::ORDERED)
            });
            self.fill_own(self.now, Of { slot, stream: Stream::ORDERED }, last);
        }
        let Some(current) = &mut self.current else { return };
        let (pause, count) = (current.ack_pause(), current.members.len());
        let Current { protect, order: Some(order), .. } = current else { return };
        let unsaid = order.unsaid_len();
        if unsaid == 0 {
            return self.stamping.due = None;
        }
        // Each costs every member a system call and a check: a stream's stamps gather, a lone one leaves at once.
        self.stamping.plan_soon(self.now, STAMPS_PAUSE, count);
        if !self.stamping.is_due(self.now) && unsaid < STAMPS_MAX {
            return;
        }
        let mut is_any = false;
        let most = self.multicast.lock().stamps_max(&**protect);
        while let Some((first, stamps)) = order.unsaid(most) {
            let mut sender = self.multicast.lock();
            let before = sender.backlog().map_or(0, |it| it.last(Stream::STAMPS));
            // What cannot be said now is said with the next one.
            if sender.stamps(self.now, protect, first, &stamps).is_err() {
                break;
            }
            order.said(stamps.len(), before);
            is_any = true;
        }
        if is_any {
            self.multicast.transmit_soon();
            self.stable.plan_soon(self.now, pause, count);
            self.stamping.was_little = unsaid <= LITTLE;
        }
    }

    /// Says something to one member, if there is one that it is for, or else to all.
    pub(super) fn say_to(&mut self, now: Monotonic, to: Option<Slot>, control: &Control) {
        match (to, &self.current) {
            (Some(to), Some(current)) => {
                self.multicast.tell(&current.protect, Domain::GROUP, To::Slot(to), &control.bytes());
            }
            _ => self.say(now, control),
        }
    }

    pub(super) fn say(&mut self, now: Monotonic, control: &Control) {
        let Some(current) = &self.current else { return };
        // What cannot be said now is said again.
        let _ = self.multicast.lock().control(now, &current.protect, &control.bytes());
        self.multicast.transmit_soon();
    }

    /// Says all that is due.
    pub(super) fn say_due(&mut self, now: Monotonic) {
        let Some(current) = &mut self.current else { return };
        let (epoch, me, pause) = (current.epoch, current.me, current.pause());
        let coordinates = current.coordinator() == Some(me);
        let again = current.order.as_ref().and_then(Order::again_at);
        let (mut held, again) = (None, again.is_some_and(|at| at <= now));
        let ack_last = self.ack.last;
        if self.ack.is_due(now) || again {
            held = current.order.as_mut().and_then(|it| it.says_held(now));
            // What was nothing to say keeps nothing waiting.
            if held.is_none() {
                self.ack.last = ack_last;
            }
            let told = held.unwrap_or(current.told_held);
            self.ack.was_little = told - current.told_held.min(told) <= LITTLE as u64;
            current.told_held = told;
            current.unheard += u32::from(again);
        }
        // Who does not hear us alone may hear us among all.
        let aside = !again && !self.status.all && current.unheard.max(self.restated) < UNHEARD_MAX;
        let gatherers = (current.coordinator().filter(|_| aside), current.sequencer().filter(|_| aside));
        if self.status.is_due(now) || again {
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
                false if status.is_empty() => {}
                false => {
                    status.chunks(limits::STREAMS_TOLD_MAX).for_each(|part| {
                        self.say_to(now, gatherers.0, &Control::Status(part.to_vec()));
                    });
                    let is_waited_for = status.iter().any(|(of, _)| of.stream != Stream::STAMPS);
                    // It may get lost, and a sender whose window is full says nothing more that would bring the next one.
                    let wait = STATUS_AGAIN * (1 << self.restated.saturating_sub(STATUS_QUICK_TRIES).min(6));
                    self.restated += 1;
                    if is_waited_for {
                        self.status.plan_at(now + wait.max(pause));
                    }
                }
            }
        }
        if let Some(held) = held {
            self.say_to(now, gatherers.1, &Control::Ack(held));
        }
        let stable_last = self.stable.last;
        if self.stable.is_due(now) {
            let order = self.current.as_mut().and_then(|it| it.order.as_mut());
            let before = order.as_ref().map_or(0, |it| it.majority());
            if let Some((majority, all)) = order.and_then(Order::news) {
                self.stable.was_little = majority.saturating_sub(before) <= LITTLE as u64;
                let slowest = self.current.as_ref().and_then(|it| it.order.as_ref()?.slowest());
                self.note_slowest(slowest);
                self.say(now, &Control::Stable { majority, all, slowest });
                self.deliver(now);
            } else {
                self.stable.last = stable_last;
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
            let some = ranges.chunks(limits::NAK_RANGES_MAX);
            some.for_each(|ranges| self.say(now, &Control::Nak { of, ranges: ranges.to_vec() }));
        }
        if self.tail_due().is_some_and(|due| due <= now) {
            self.tail = (now, self.tail.1 + 1);
            let mut tails = self.multicast.lock().backlog().map(|it| it.tails()).unwrap_or_default();
            self.fill_ordered(now, &mut tails);
            tails.chunks(limits::STREAMS_TOLD_MAX).for_each(|part| self.say(now, &Control::Tail(part.to_vec())));
        }
    }

    /// Records of our own that did not come back to us take their turn in the order all the same.
    pub(super) fn fill_ordered(&mut self, now: Monotonic, tails: &mut Vec<(Stream, u64)>) {
        let Some(slot) = self.current.as_ref().map(|it| it.me) else { return };
        if let Some((_, last)) = tails.iter().find(|(stream, _)| *stream == Stream::ORDERED) {
            self.fill_own(now, Of { slot, stream: Stream::ORDERED }, *last);
        }
        // Who lacks the last word of the sequencer says what it holds.
        if self.current.as_ref().is_some_and(Current::is_open) && !tails.iter().any(|(it, _)| *it == Stream::STAMPS) {
            let last = self.multicast.lock().backlog().map_or(0, |it| it.last(Stream::STAMPS));
            tails.push((Stream::STAMPS, last));
        }
    }

    /// When to say how far our streams go: nobody says that all have them.
    pub(super) fn tail_due(&self) -> Option<Monotonic> {
        let (last, tries) = self.tail;
        let is_open = self.current.as_ref().is_some_and(Current::is_open);
        let since = self.multicast.lock().backlog()?.watch().or(is_open.then_some(last))?;
        let pause = (TAIL_AGAIN * (1 << tries.min(5))).min(TAIL_AGAIN_MAX);
        // A member that is alone waits for nobody.
        let is_alone = self.current.as_ref().is_some_and(|it| it.members.len() == 1);
        Some(if is_alone && tries == 0 { since } else { since.max(last) + pause })
    }
}

/// Between two statuses of one member, and two summaries.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The same for acknowledgements of the order.
pub(super) const ACK_PAUSE_MIN: Duration = Duration::from_micros(200);
/// Between two times that the sequencer says stamps, unless they fill a message.
pub(super) const STAMPS_PAUSE: Duration = Duration::from_micros(300);
/// How long after a status it is said again, if no summary comes.
pub(super) const STATUS_AGAIN: Duration = Duration::from_millis(2);
/// How often before that takes longer and longer.
pub(super) const STATUS_QUICK_TRIES: u32 = 16;
/// Of all members together (B10).
pub(super) const STATUSES_PER_SECOND: u32 = 20_000;
/// The same of those that tell little, and the pause between two of them at least.
pub(super) const BRIEF_PER_SECOND: u32 = 100_000;
pub(super) const BRIEF_MIN: Duration = Duration::from_micros(20);
/// Records that do not count as a stream.
pub(super) const LITTLE: usize = 2;
/// How long the sequencer may wait to hear that its words came.
pub(super) const STAMPS_STATUS: Duration = Duration::from_millis(4);
/// How long members may wait to hear that all hold what is delivered.
pub(super) const ALL_PAUSE: Duration = Duration::from_millis(1);
/// After so many words that the sequencer did not hear from us alone, we say them to all.
pub(super) const UNHEARD_MAX: u32 = 4;
/// The same after several tries.
pub(super) const TAIL_AGAIN_MAX: Duration = Duration::from_millis(320);
/// How long nothing is acknowledged until the sender says how far its streams go.
pub(super) const TAIL_AGAIN: Duration = Duration::from_millis(10);
