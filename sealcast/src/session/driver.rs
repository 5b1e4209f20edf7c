//! The driver: what the one thread that leads does in a turn.
//!
//! ```text
//! receive ─▶ Core::handle_datagram ─▶ Core::poll ─▶ queues of subscriptions, views, store
//!    ▲                                      └─▶ the shell sends
//!    └── wait for the sockets, a timer, or to be woken; others may use the driver meanwhile
//! ```

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use sealcast_delivery::{Batch, Delivery, StateEvent, StateInput};
use sealcast_keys::{Keys, Status};
use sealcast_wire::{Guarantee, Monotonic, Now};

use super::Shared;
use super::core::{Core, Output};
use super::queue::{Item, Pushed, Queue};
use super::transports::{Fault, Listening, Shell};
use crate::error::Result;
use crate::group::{Axis, Group, Message};
use crate::io::store::Store;

/// A session of any scheme over any transport.
pub(super) type AnyCore = Core<Box<dyn Keys>, Box<dyn Delivery>, Arc<Queue>>;

/// Its group.
type AnyGroup = Group<Box<dyn Keys>, Box<dyn Delivery>>;

/// See the module.
pub(super) struct Driver {
    pub(super) core: AnyCore,
    pub(super) shell: Box<dyn Shell>,
    store: Option<Store>,
    registry: mio::Registry,
    batch: Batch,
    /// Messages that a subscription has no room for and that its reader wants nevertheless.
    backlog: VecDeque<(Arc<Queue>, Item)>,
    /// Bytes of the message that is being published, while one is.
    published: Option<usize>,
    /// Since when readers make the session wait.
    blocked: Option<Monotonic>,
    /// What the key scheme last answered.
    described: Option<Box<Status>>,
    /// Until when the leader waits for the sockets, while it does.
    waits_until: Option<Monotonic>,
    /// Something came for a reader, who may be the leader that waits.
    handed: bool,
    /// Turns in a row that did not look which sockets have something.
    blind: u32,
    /// Times in a row that what came went before timers that are late.
    looks: u32,
}

/// What the leader waits for.
pub(super) struct Sockets {
    poll: mio::Poll,
    events: mio::Events,
    /// Ends short waits on time, where the system has such a thing: readiness is waited for by the millisecond.
    timer: Option<OwnedFd>,
}

impl Sockets {
    pub(super) fn new(poll: mio::Poll) -> Sockets {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK).ok();
        let timer = timer.filter(|timer| {
            let fd = timer.as_raw_fd();
            poll.registry().register(&mut mio::unix::SourceFd(&fd), TIMER, mio::Interest::READABLE).is_ok()
        });
        Sockets { poll, events: mio::Events::with_capacity(64), timer }
    }

    /// Waits until something happens, for so long at most.
    pub(super) fn wait(&mut self, shared: &Shared, most: Duration) {
        if most < SHORT
            && let Some(timer) = &self.timer
        {
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let due = Timespec::try_from(most).unwrap_or(zero);
            // One that cannot be set ends late.
            let _ =
                timerfd_settime(timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value: due });
        }
        match self.poll.poll(&mut self.events, Some(most)) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => shared.fail(&e),
        }
    }
}

impl Driver {
    pub(super) fn new(core: AnyCore, shell: Box<dyn Shell>, store: Option<Store>, registry: mio::Registry) -> Driver {
        Driver {
            core,
            shell,
            store,
            registry,
            batch: Batch::default(),
            backlog: VecDeque::new(),
            published: None,
            blocked: None,
            described: None,
            waits_until: None,
            handed: false,
            blind: 0,
            looks: 0,
        }
    }

    /// What the key scheme knows of the group.
    pub(super) fn describe(&mut self, shared: &Shared, now: Now) -> Option<Status> {
        self.core.describe(now);
        self.pump(shared, now);
        self.described.take().map(|status| *status)
    }

    /// Closes the transport.
    pub(super) fn end(mut self, now: Now) {
        self.shell.end(now);
    }

    /// Hears from now on, if it does not yet.
    pub(super) fn listen(&mut self) -> Result<Option<Listening>> {
        self.shell.listen(&self.registry)
    }

    /// Does what can be done without waiting; how long to wait for the sockets then, if there was nothing.
    pub(super) fn begin_turn(&mut self, shared: &Shared, most: Duration, wanted: Option<&Queue>) -> Option<Duration> {
        let mut now = shared.clock.now();
        // The system kept this thread waiting: what came meanwhile may be what a timer waits for.
        let due = self.core.timeout();
        let is_late = due.is_some_and(|at| now.monotonic.since(at) >= LATE);
        if is_late && self.looks < LOOKS_MAX {
            self.looks += 1;
            return Some(Duration::ZERO);
        }
        self.looks = 0;
        if self.work(shared, &mut now, wanted, due) || wanted.is_some_and(|queue| !queue.is_empty()) {
            // A flood at one socket keeps nobody from the others.
            self.blind += 1;
            return (self.blind >= BLIND_MAX).then_some(Duration::ZERO);
        }
        let first = shared.changed.first_deadline(most).unwrap_or(most);
        let wait = self.may_wait(now).min(most).min(first);
        shared.changed.plan(wait);
        self.handed = false;
        self.waits_until = Some(now.monotonic + wait);
        (!wait.is_zero()).then_some(wait)
    }

    /// Takes in what was waited for.
    pub(super) fn end_turn(&mut self, shared: &Shared, sockets: &Sockets, wanted: Option<&Queue>) {
        (self.waits_until, self.blind) = (None, 0);
        sockets.events.iter().for_each(|event| self.shell.woken(event.token()));
        if shared.changed.awaited() {
            shared.changed.ring();
        }
        let mut now = shared.clock.now();
        // What was waited for goes first: its reader may be about to answer. Timers are looked at in the
        // next turn, while the answer is on its way.
        if !self.take_in(shared, &mut now, wanted) {
            self.looks = 0;
            let due = self.core.timeout();
            self.work(shared, &mut now, wanted, due);
        }
    }

    /// Whether the leader must be woken: it waits for longer than it may by now, or something came that it may wait for.
    /// It is taken to be woken then.
    pub(super) fn is_late(&mut self, shared: &Shared) -> bool {
        let Some(until) = self.waits_until else { return false };
        let now = shared.clock.now();
        let is_late = self.handed || now.monotonic + self.may_wait(now) < until;
        if is_late {
            self.waits_until = None;
        }
        is_late
    }

    /// How long there is nothing to do unless something happens.
    fn may_wait(&self, now: Now) -> Duration {
        let due = self.core.timeout().map(|at| at.since(now.monotonic));
        let hears_on = self.blocked.map(|since| (since + BLOCKED_FOR).since(now.monotonic)).filter(|it| !it.is_zero());
        [due, self.shell.timeout(), hears_on].into_iter().flatten().min().unwrap_or(Duration::MAX)
    }

    /// Everything that can be done without waiting, a timer that is `due` first; whether there was anything.
    fn work(&mut self, shared: &Shared, now: &mut Now, wanted: Option<&Queue>, due: Option<Monotonic>) -> bool {
        let is_due = due.is_some_and(|at| at <= now.monotonic);
        if is_due {
            self.core.handle_timeout(*now);
        }
        self.pump(shared, *now);
        self.take_in(shared, now, wanted) || is_due
    }

    /// Receives while there is something to receive and room for it; whether there was anything.
    fn take_in(&mut self, shared: &Shared, now: &mut Now, wanted: Option<&Queue>) -> bool {
        let mut busy = false;
        let Some(hears_on) = self.may_receive(shared, *now) else { return busy };
        for _ in 0..RECEIVES_PER_TURN {
            if !self.receive(shared, *now) {
                break;
            }
            busy = true;
            self.pump(shared, *now);
            if !self.backlog.is_empty() && !hears_on || wanted.is_some_and(|queue| !queue.is_empty()) {
                break;
            }
            *now = shared.clock.now();
        }
        busy
    }

    /// Whether to receive now, and if so, whether though readers make the session wait. While they do, the socket's buffer takes
    /// what comes. Where members acknowledge, they take silence for death: there the session soon hears on, and only what
    /// readers wanted waits.
    fn may_receive(&mut self, shared: &Shared, now: Now) -> Option<bool> {
        if self.room() {
            if self.blocked.take().is_some() {
                self.core.readers_wait(now, false);
                self.pump(shared, now);
            }
            return self.backlog.is_empty().then_some(false);
        }
        let since = *self.blocked.get_or_insert(now.monotonic);
        if !shared.is_numbered(Guarantee::Fifo) || now.monotonic < since + BLOCKED_FOR {
            return None;
        }
        self.core.readers_wait(now, true);
        Some(true)
    }

    /// One system call's worth of what came; `false` if there was nothing.
    fn receive(&mut self, shared: &Shared, now: Now) -> bool {
        match self.shell.receive(now, &mut self.core) {
            Ok(any) => any,
            // The network may be down for a while; the next readiness of the socket tells when it is not.
            Err(Fault::Refused) => {
                shared.failed_receives.fetch_add(1, Ordering::Relaxed);
                false
            }
            Err(Fault::Ended { why, any }) => {
                shared.end(&why);
                self.core.end(now);
                // Whoever waits for closing is told now, not at the next turn.
                if self.core.is_closing() {
                    self.pump(shared, now);
                }
                any
            }
        }
    }

    /// The same as [`Driver::pump`] after a message of so many bytes was published: it may gather with others.
    pub(super) fn pump_published(&mut self, shared: &Shared, now: Now, bytes: usize) {
        self.published = Some(bytes);
        self.pump(shared, now);
        self.published = None;
    }

    /// Does what the session wants done, and gives readers what came of it.
    pub(super) fn pump(&mut self, shared: &Shared, now: Now) {
        loop {
            if self.core.is_closing() {
                self.core.shell_is_settled(now, self.shell.is_settled());
            }
            self.perform(shared, now);
            if !self.shell.hand_over(now) {
                break;
            }
            shared.changed.ring();
        }
        self.shell.flush();
    }

    fn perform(&mut self, shared: &Shared, now: Now) {
        let (mut stored, mut acknowledged) = (false, false);
        // What waits for room in a queue is behind all that the queue has: then nobody takes it for read.
        self.room();
        loop {
            self.batch.clear();
            let Some(output) = self.core.poll(now, &mut self.batch) else {
                // One sync for all that was stored in a row; what waited for it may leave then.
                if !std::mem::take(&mut stored) {
                    if acknowledged {
                        shared.changed.ring();
                    }
                    break;
                }
                match self.store.as_mut().map_or(Ok(()), Store::sync) {
                    Ok(()) => self.core.stored(),
                    Err(e) => shared.fail(&e),
                }
                continue;
            };
            match output {
                Output::Deliver(readers, message) => self.deliver(shared, &readers, message),
                Output::State(topic, event) => self.state(shared, now, &topic, event),
                Output::Transmit(_) => self.shell.send(&self.batch, self.published),
                Output::View(event) => {
                    self.handed = true;
                    shared.viewed(now, event);
                }
                Output::Notice(notice) => {
                    self.shell.noticed(&notice);
                    shared.noticed(&notice);
                }
                Output::Subscribed(pattern, result) => shared.subscribed(&pattern, result),
                Output::Described(status) => self.described = Some(status),
                Output::Store { of, id, record } => {
                    stored = true;
                    if of == Axis::Delivery {
                        match self.shell.keep(&record) {
                            Ok(true) => continue,
                            Ok(false) => {}
                            Err(e) => shared.fail(&e),
                        }
                    }
                    let id = id << 1 | u64::from(of == Axis::Delivery);
                    if let Some(Err(e)) = self.store.as_mut().map(|store| store.put(id, &record)) {
                        shared.fail(&e);
                    }
                }
                Output::Outcome(token, outcome)
                    if shared.is_numbered(Guarantee::Fifo) && !AnyGroup::is_named(token) =>
                {
                    shared.numbered_became(token, outcome);
                    // Ordered ones are waited for one by one.
                    shared.became(token, outcome, false);
                    acknowledged = true;
                }
                Output::Outcome(token, outcome) => {
                    let all = shared.transport.acknowledges_any() && self.core.is_settled();
                    shared.became(token, outcome, all);
                }
                Output::Confirmed => shared.changed.ring(),
                Output::Closed(unordered) => {
                    // Nobody may wait for this process once it is told.
                    if std::mem::take(&mut stored)
                        && let Some(Err(e)) = self.store.as_mut().map(Store::sync)
                    {
                        shared.fail(&e);
                    }
                    shared.left(unordered);
                }
            }
        }
    }

    fn deliver(&mut self, shared: &Shared, readers: &[Arc<Queue>], message: Message) {
        let Some((last, others)) = readers.split_last() else { return };
        shared.delivered.fetch_add(1, Ordering::Relaxed);
        self.handed = true;
        for queue in others {
            push(&mut self.backlog, shared, queue, Item::Message(message.clone()));
        }
        push(&mut self.backlog, shared, last, Item::Message(message));
    }

    /// Tells who keeps a state what becomes of it.
    fn state(&mut self, shared: &Shared, now: Now, topic: &str, event: StateEvent) {
        let keeps = shared.subscriptions.select(|filter| filter.matches(topic)).into_iter().find(|it| it.of_state);
        self.handed = true;
        match (keeps, event) {
            (Some(queue), event) => push(&mut self.backlog, shared, &queue, Item::State(event)),
            // It was dropped a moment ago.
            (None, StateEvent::Wanted(ticket)) => self.core.state(now, StateInput::Give { ticket, bytes: None }),
            (None, _) => {}
        }
    }

    /// Whether nobody has to be waited for: the backlog is empty, or could be emptied now.
    fn room(&mut self) -> bool {
        for _ in 0..self.backlog.len() {
            let Some((queue, item)) = self.backlog.pop_front() else { break };
            if let Pushed::Refused(item) = queue.push(item) {
                self.backlog.push_front((queue, item));
                return false;
            }
        }
        true
    }
}

fn push(backlog: &mut VecDeque<(Arc<Queue>, Item)>, shared: &Shared, queue: &Arc<Queue>, item: Item) {
    // What waits already goes first.
    if backlog.iter().any(|(waiting, _)| Arc::ptr_eq(waiting, queue)) {
        backlog.push_back((queue.clone(), item));
        return;
    }
    match queue.push(item) {
        Pushed::Taken => {}
        Pushed::Missed => {
            shared.missed.fetch_add(1, Ordering::Relaxed);
        }
        Pushed::Refused(item) => backlog.push_back((queue.clone(), item)),
    }
}

pub(super) const WAKER: mio::Token = mio::Token(usize::MAX);
const TIMER: mio::Token = mio::Token(usize::MAX - 1);
/// Waits that a millisecond more or less would make much longer.
const SHORT: Duration = Duration::from_millis(5);
/// So long readers may make a session wait until it hears on.
const BLOCKED_FOR: Duration = Duration::from_millis(50);
/// So late a timer of a thread that the system let run is not.
const LATE: Duration = Duration::from_millis(5);
/// So often what came goes before timers that are late.
const LOOKS_MAX: u32 = 8;
/// Turns that look at no other socket while one has something.
const BLIND_MAX: u32 = 4;
/// System calls of receiving before others get their turn.
const RECEIVES_PER_TURN: usize = 16;

#[cfg(test)]
mod tests;
