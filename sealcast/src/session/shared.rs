//! What the threads of a session share, and what they do with it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealcast_crypto::identity::{Identity, Pattern, Rights};
use sealcast_delivery::{Outcome, Properties, SendError, StateInput, Token};
use sealcast_keys::{Command, Exclusion, Notice};
use sealcast_wire::{Drops, Guarantee, Member, Monotonic, Now, Reason, View, limits};

use super::admission::Refused;
use super::changed::Changed;
use super::core::{Change, Filter, Log, Progress, Report, Subscriptions, Tickets};
use super::driver::AnyCore;
use super::driver_lock::DriverLock;
use super::loopback_filter::LoopbackFilter;
use super::queue::{Queue, SlowReader};
use super::transports::{BrokersShell, Listening, TxQueue};
use super::views::ViewQueue;
use super::{Warning, not_ready};
use crate::code::Code;
use crate::error::{Error, Result};
use crate::group::{Gate, Publication, PublishError, ViewEvent, lock};
use crate::io::clock::Clock;
use crate::io::process::Process;
#[cfg(feature = "brokers")]
use crate::refusals::refused;
use crate::remedy::Remedy;
use crate::url::Url;

/// What the threads of a session share.
pub(crate) struct Shared {
    pub(super) url: Url,
    pub(super) group_name: String,
    pub(super) me: String,
    pub(super) identity: Option<Arc<Identity>>,
    /// What we may do, where somebody says so.
    pub(super) rights: Option<Rights>,
    /// Whether it ends by itself in a moment.
    pub(super) one_shot: bool,
    pub(super) clock: Clock,
    pub(super) process: Process,
    pub(super) driver_lock: DriverLock,
    pub(super) tx_queue: Option<Arc<TxQueue>>,
    /// What the transport gives.
    pub(super) transport: Properties,
    #[cfg_attr(not(feature = "brokers"), expect(dead_code, reason = "nobody can be asked"))]
    pub(super) brokers: Option<BrokersShell>,
    pub(super) gate: Arc<Mutex<Gate>>,
    pub(super) changed: Changed,
    pub(super) subscriptions: Arc<Subscriptions<Arc<Queue>>>,
    /// Whether we hear our own datagrams.
    pub(super) loopback_filter: LoopbackFilter,
    pub(super) view_queues: Mutex<Vec<Arc<ViewQueue>>>,
    pub(super) seen: Mutex<Seen>,
    pub(super) delivered: AtomicU64,
    /// Messages that went through the tx queue.
    pub(super) published: AtomicU64,
    pub(super) missed: AtomicU64,
    pub(super) failed_receives: AtomicU64,
    /// What became of messages that somebody waits for.
    pub(super) outcomes: Mutex<Outcomes>,
    /// Messages that went reliably through the tx queue; the core counts what becomes of them.
    pub(super) reliable: Arc<AtomicU64>,
    /// All of those up to this number are acknowledged, but for the [`Shared::doubtful`].
    pub(super) acknowledged: AtomicU64,
    /// Those of which some reader may lack some.
    pub(super) doubtful: Mutex<Doubtful>,
}

/// What became of messages that somebody waits for.
#[derive(Default)]
pub(super) struct Outcomes {
    waited: BTreeMap<Token, Option<Outcome>>,
    /// Told before the publisher's thread came to say that somebody waits; the oldest are forgotten.
    early: VecDeque<(Token, Outcome)>,
}

impl Outcomes {
    /// Somebody waits for it.
    pub(super) fn claim(&mut self, token: Token) {
        let may_be = self.early.back().is_some_and(|(last, _)| *last >= token);
        let early = may_be.then(|| self.early.iter().position(|(it, _)| *it == token)).flatten();
        let outcome = early.and_then(|at| self.early.remove(at)).map(|(_, outcome)| outcome);
        self.waited.insert(token, outcome);
    }

    /// What became of it, if that is known: it is told once.
    pub(super) fn take(&mut self, token: Token) -> Option<Outcome> {
        let outcome = (*self.waited.get(&token)?)?;
        self.waited.remove(&token);
        Some(outcome)
    }

    /// What became of it, if that is known.
    #[cfg(feature = "brokers")]
    pub(super) fn of(&self, token: Token) -> Option<Outcome> {
        self.waited.get(&token).copied().flatten()
    }

    /// Nobody waits for it any more.
    pub(super) fn forget(&mut self, token: Token) {
        self.waited.remove(&token);
    }

    /// It is known; whether somebody waits for it.
    fn note(&mut self, token: Token, outcome: Outcome) -> bool {
        if let Some(waits) = self.waited.get_mut(&token) {
            *waits = Some(outcome);
            return true;
        }
        // Of fifo messages nobody asks here.
        if outcome != Outcome::Accepted {
            if self.early.len() == EARLY_MAX {
                self.early.pop_front();
            }
            self.early.push_back((token, outcome));
        }
        false
    }
}

/// More than there are threads that publish at once.
const EARLY_MAX: usize = 1024;

/// Which of our reliable messages some reader may lack: what becomes of them is told in the order of their numbers.
#[derive(Default)]
pub(super) struct Doubtful {
    /// From number to number, with nothing acknowledged in between.
    runs: VecDeque<(u64, u64)>,
    /// Whether the message told last is one.
    last: bool,
    /// Up to here nothing is remembered.
    forgotten: u64,
}

impl Doubtful {
    fn note(&mut self, number: u64, is_doubtful: bool) {
        match (is_doubtful, self.last, self.runs.back_mut()) {
            (true, true, Some(run)) => run.1 = number,
            (true, ..) => {
                if self.runs.len() == limits::DOUBTFUL_MAX {
                    self.forgotten = self.runs.pop_front().map_or(self.forgotten, |(_, to)| to);
                }
                self.runs.push_back((number, number));
            }
            (false, ..) => {}
        }
        self.last = is_doubtful;
    }

    fn contains(&self, number: u64) -> bool {
        number <= self.forgotten || self.runs.iter().any(|(from, to)| (from..=to).contains(&&number))
    }
}

/// Who orders, as in [`ViewEvent::Order`].
#[derive(Clone)]
pub(super) struct WhoOrders {
    pub(super) sequencer: Option<Member>,
    pub(super) is_settled: bool,
    pub(super) term: u64,
    pub(super) from: u64,
}

/// What was seen of the group so far.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) view: Option<Arc<View>>,
    pub(super) installed_at: Monotonic,
    /// Who orders, and whether that is settled; `None` where nobody told.
    pub(super) order: Option<WhoOrders>,
    pub(super) excluded: Option<Exclusion>,
    /// Nobody else was heard for so long, up to then.
    pub(super) silent: Option<(Duration, Monotonic)>,
    /// How many members the group has that does not let us in, as it says, because it may have no more.
    pub(super) full: Option<(usize, Monotonic)>,
    /// Devices that were to be let in.
    pub(super) not_admitted: Refused,
    /// Why nothing more will come of it.
    pub(super) ended: Option<Error>,
    /// We have left: how many of our messages have no place.
    pub(super) left: Option<usize>,
    pub(super) closed: bool,
    /// What the core told last, for those who ask after the end.
    pub(super) past: Past,
    pub(super) warnings: Vec<Warning>,
}

/// What is left of a core.
#[derive(Default)]
pub(super) struct Past {
    pub(super) tickets: Tickets,
    pub(super) log: Log,
    pub(super) drops: Drops,
}

impl Shared {
    pub(super) fn publish(
        &self,
        message: &Publication<'_>,
        patient: bool,
    ) -> std::result::Result<Option<u64>, PublishError> {
        let is_waited_for = self.is_waited_for(message.guarantee);
        let reliable = is_waited_for && self.is_numbered(Guarantee::Fifo);
        let tx_queue = self.tx_queue.as_ref().filter(|_| reliable || message.guarantee == Guarantee::BestEffort);
        if let Some(tx_queue) = tx_queue {
            // Counted before it can be acknowledged.
            let count = if reliable { &*self.reliable } else { &self.published };
            count.fetch_add(1, Ordering::Relaxed);
            // Our own ordered messages are delivered in their turn, whether they come back to us or not.
            let is_ordered = message.guarantee >= Guarantee::Ordered;
            let filter = || match is_ordered {
                true => {}
                false => self.loopback_filter.publish(message.topic, |topic| self.wants(topic)),
            };
            let number = tx_queue.publish(message, patient, filter);
            match number {
                Ok(Some(number)) if is_ordered => lock(&self.outcomes).claim(Token(number)),
                Ok(_) => {}
                Err(_) => _ = count.fetch_sub(1, Ordering::Relaxed),
            }
            if reliable && tx_queue.take_unwatched() {
                self.driver_lock.wake();
            }
            return number;
        }
        if !self.process.is_ours() {
            return Err(PublishError::Forked);
        }
        let now = self.clock.now();
        let sent_micros = Some(self.clock.wall_micros(now.monotonic));
        let message = Publication { sent_micros, ..*message };
        self.driver_lock.with(self, |driver| {
            let Some(driver) = driver else { return Err(PublishError::Excluded(Exclusion::Left)) };
            let token = driver.core.publish(now, message)?;
            if is_waited_for {
                lock(&self.outcomes).claim(token);
            }
            driver.pump_published(self, now, message.body.len());
            Ok(Some(token.0).filter(|_| is_waited_for))
        })
    }

    /// What a message gets that is published with this guarantee.
    pub(super) fn guarantee(&self, asked: Guarantee) -> Guarantee {
        if self.url.options.history { asked.max(Guarantee::Ordered) } else { asked }
    }

    /// Whether publishing ends when the message has its place in the order, or all readers have it.
    pub(super) fn is_waited_for(&self, guarantee: Guarantee) -> bool {
        let is_ordered = guarantee >= Guarantee::Ordered && self.transport.acknowledges(guarantee);
        is_ordered || self.is_numbered(guarantee)
    }

    /// Whether messages are acknowledged in the order of their numbers: no outcome of each has to be kept.
    pub(super) fn is_numbered(&self, guarantee: Guarantee) -> bool {
        guarantee == Guarantee::Fifo && self.tx_queue.is_some() && self.transport.acknowledges(guarantee)
    }

    /// What became of a message that is waited for, if that is known.
    pub(super) fn outcome(&self, token: Token, guarantee: Guarantee) -> Option<Outcome> {
        if !self.is_numbered(guarantee) {
            return lock(&self.outcomes).take(token);
        }
        if self.acknowledged.load(Ordering::Acquire) < token.0 {
            return None;
        }
        Some(if lock(&self.doubtful).contains(token.0) { Outcome::InDoubt } else { Outcome::Accepted })
    }

    /// How many of our messages have no place yet, where that is told.
    pub(super) fn unordered(&self) -> usize {
        // Flushing on a LAN asks this each time, and interrupts nobody for it.
        if !self.transport.acknowledges_any() {
            return 0;
        }
        let open = self.driver_lock.with(self, |driver| driver.as_ref().map(|d| d.core.unordered()));
        open.or_else(|| lock(&self.seen).left).unwrap_or(0)
    }

    /// Whether nothing became of any message for so long.
    pub(super) fn is_stuck(&self, progress: &mut Progress, timeout: Duration) -> bool {
        let now = self.clock.monotonic();
        self.driver_lock.with(self, |driver| driver.as_ref().is_some_and(|d| d.core.is_stuck(now, progress, timeout)))
    }

    /// What was published through the order, and what became of it.
    pub(super) fn tickets(&self) -> Tickets {
        let tickets = self.driver_lock.with(self, |driver| driver.as_ref().map(|d| d.core.tickets()));
        tickets.unwrap_or_else(|| lock(&self.seen).past.tickets.clone())
    }

    /// It is known what became of a message that went through the tx queue.
    pub(super) fn numbered_became(&self, token: Token, outcome: Outcome) {
        let is_sure = matches!(outcome, Outcome::Accepted | Outcome::Ordered(_));
        lock(&self.doubtful).note(token.0, !is_sure);
        self.acknowledged.fetch_max(token.0, Ordering::AcqRel);
    }

    /// It is known what became of a message; perhaps of all.
    pub(super) fn became(&self, token: Token, outcome: Outcome, all: bool) {
        let is_waited_for = lock(&self.outcomes).note(token, outcome);
        if all || is_waited_for {
            self.changed.ring();
        }
    }

    /// The group has taken in that we leave, or had its time for it.
    pub(super) fn left(&self, unordered: usize) {
        lock(&self.seen).left = Some(unordered);
        self.changed.ring();
    }

    /// Leaves the group.
    pub(super) fn close(&self) {
        let now = self.clock.now();
        self.driver_lock.with(self, |driver| {
            let Some(driver) = driver.as_mut() else { return self.left(0) };
            driver.core.close(now, driver.shell.is_settled());
            driver.pump(self, now);
        });
    }

    /// Why it takes so long until a message is taken.
    pub(super) fn late_for(&self, guarantee: Guarantee, timeout: Duration) -> Error {
        if self.is_numbered(guarantee) && lock(&self.gate).epoch().is_some() {
            let what =
                format!("readers have not acknowledged what was published before for {timeout:?}: there is no room");
            return Error::new(Code::TimedOut, what).with_hint(
                "a member may be slow, or gone and not suspected yet: slow=expel leaves it out, backlog= holds more",
            );
        }
        self.late(timeout)
    }

    /// Why it takes so long until there is a key.
    pub(super) fn late(&self, timeout: Duration) -> Error {
        let late = self.transport_trouble(timeout);
        self.kept_out().or(late).unwrap_or_else(|| not_ready(timeout))
    }

    /// What keeps the transport from working, while there is no key.
    pub(super) fn transport_trouble(&self, timeout: Duration) -> Option<Error> {
        self.driver_lock.with(self, |driver| {
            let waits = driver.as_ref().filter(|it| it.core.group().epoch().is_none());
            waits.and_then(|it| it.shell.late(timeout))
        })
    }

    /// The key scheme has something to tell.
    pub(super) fn noticed(&self, notice: &Notice) {
        if let Notice::GroupFull { is_us: true, most, .. } = notice {
            lock(&self.seen).full = Some((*most, self.clock.monotonic()));
        }
        self.note_not_admitted(notice);
        self.changed.ring();
    }

    /// That the group lets nobody in any more, if it said so lately: somebody may have left since, and it may have been a lie.
    pub(super) fn kept_out(&self) -> Option<Error> {
        let lately = |at: Monotonic| self.clock.monotonic().since(at) < FULL_FOR;
        lock(&self.seen).full.filter(|(_, at)| lately(*at)).map(|(most, _)| Error::group_full(most))
    }

    /// Nothing more will come of it: readers are told, and whoever waits.
    pub(super) fn end(&self, why: &Error) {
        if lock(&self.seen).ended.replace(why.clone()).is_none() {
            self.subscriptions.all().iter().for_each(|q| q.close(why.clone()));
            self.changed.ring();
        }
    }

    /// Why nothing more will come of it, if so.
    pub(super) fn ended(&self) -> Option<Error> {
        let seen = lock(&self.seen);
        seen.ended.clone().or_else(|| seen.excluded.as_ref().map(Error::excluded))
    }

    /// Tells the transport of a filter, where it has to know, or that it is read no more.
    pub(super) fn tell_transport(&self, filter: &Filter, is_read: bool) -> Result<()> {
        if !self.transport.subscribes {
            return Ok(());
        }
        let (now, pattern) = (self.clock.now(), filter.as_pattern());
        let tell = if is_read { AnyCore::subscribe } else { AnyCore::unsubscribe };
        self.driver_lock.with(self, |driver| {
            let driver = driver.as_mut().ok_or_else(Error::closed)?;
            tell(&mut driver.core, now, &pattern);
            driver.pump(self, now);
            Ok(())
        })
    }

    /// The transport brings a pattern's messages, or those who carry them refuse.
    pub(super) fn subscribed(&self, pattern: &Pattern, result: std::result::Result<(), Reason>) {
        let told = self.subscriptions.select(|filter| filter.as_pattern() == *pattern);
        told.iter().for_each(|q| *lock(&q.stands) = Some(result));
        self.changed.ring();
    }

    /// The error that a user sees.
    pub(super) fn refused(&self, topic: &str, why: PublishError) -> Error {
        match why {
            PublishError::NotReady => not_ready(Duration::ZERO),
            PublishError::Denied => Error::new(Code::DeniedPublish, format!("{} may not publish on {topic}", self.me))
                .with_remedy(Remedy::AskForRight { publish: true, topic: topic.to_owned() }),
            PublishError::MustSign => Error::new(
                Code::DeniedPublish,
                format!("{topic} demands signatures, since some of its readers may not write it"),
            )
            .with_hint("leave origin=mac out of the URL"),
            PublishError::Forked => Error::forked(),
            PublishError::Excluded(why) => Error::excluded(&why),
            PublishError::Send(SendError::TooLong) if self.transport.message_bytes_max < limits::MESSAGE_BYTES_MAX => {
                let most = self.transport.message_bytes_max;
                Error::new(Code::TooLarge, format!("a message over this transport has at most {most} bytes, sealed"))
            }
            PublishError::Send(why) => why.into(),
        }
    }

    /// Whether our certificate or registration lets us read any topic that a subscription is for.
    pub(super) fn may_subscribe(&self, filter: &Filter, text: &str) -> Result<()> {
        let (Some(rights), Filter::Pattern(pattern)) = (&self.rights, filter) else { return Ok(()) };
        if rights.subscribes(&self.group_name).any(|granted| granted.overlaps(pattern)) {
            return Ok(());
        }
        Err(Error::new(Code::DeniedSubscribe, format!("{} may not subscribe to {text}", self.me))
            .with_remedy(Remedy::AskForRight { publish: false, topic: text.to_owned() }))
    }

    pub(super) fn command(&self, command: Command) -> Result<()> {
        self.process.check()?;
        let now = self.clock.now();
        self.driver_lock.with(self, |driver| {
            let driver = driver.as_mut().ok_or_else(Error::closed)?;
            driver.core.command(now, command)?;
            driver.pump(self, now);
            Ok(())
        })
    }

    /// Does something with a state.
    pub(super) fn state(&self, input: StateInput<'_>) -> Result<()> {
        self.process.check()?;
        let now = self.clock.now();
        self.driver_lock.with(self, |driver| {
            let driver = driver.as_mut().ok_or_else(Error::closed)?;
            driver.core.state(now, input);
            driver.pump(self, now);
            Ok(())
        })
    }

    pub(super) fn force_primary(&self) -> Result<()> {
        self.process.check()?;
        let now = self.clock.now();
        self.driver_lock.with(self, |driver| {
            let driver = driver.as_mut().ok_or_else(Error::closed)?;
            driver.core.force_primary(now)?;
            driver.pump(self, now);
            Ok(())
        })
    }

    /// Begins a change of the group.
    pub(super) fn change(&self, command: Command) -> Result<Change> {
        self.process.check()?;
        let now = self.clock.now();
        self.driver_lock.with(self, |driver| {
            let driver = driver.as_mut().ok_or_else(Error::closed)?;
            let change = driver.core.change(now, command)?;
            driver.pump(self, now);
            Ok(change)
        })
    }

    /// How a change went, once that is known.
    pub(super) fn report(&self, change: &Change) -> Option<Report> {
        let now = self.clock.monotonic();
        self.driver_lock.with(self, |driver| driver.as_ref()?.core.report(now, change))
    }

    /// Opens the receiving socket, if it is not open: plain publishers do without.
    pub(super) fn listen(&self) -> Result<()> {
        self.driver_lock.with(self, |driver| {
            let driver = driver.as_mut().ok_or_else(Error::closed)?;
            let Some(Listening { warnings, loopback_socket }) = driver.listen()? else { return Ok(()) };
            lock(&self.seen).warnings.extend(warnings);
            if let Some(loopback_socket) = loopback_socket {
                self.loopback_filter.listen(loopback_socket, |topic| self.wants(topic));
            }
            Ok(())
        })
    }

    pub(super) fn wants(&self, topic: &str) -> bool {
        self.subscriptions.wants(topic)
    }

    pub(super) fn unsubscribe(&self, queue: &Arc<Queue>) {
        if !self.process.is_ours() {
            return;
        }
        self.subscriptions.leave(self.clock.now().monotonic, queue, |q| Arc::ptr_eq(q, queue));
        // A closed session has no subscriptions.
        let _ = self.tell_transport(&queue.filter, false);
        self.loopback_filter.adjust(|topic| self.wants(topic));
        queue.close(Error::closed());
        // The driver may be waiting for room in it.
        if queue.when_slow == SlowReader::Block {
            self.driver_lock.wake();
        }
    }

    pub(super) fn forget_views(&self, queue: &Arc<ViewQueue>) {
        lock(&self.view_queues).retain(|q| !Arc::ptr_eq(q, queue));
    }

    pub(super) fn viewed(&self, now: Now, event: ViewEvent) {
        {
            // In this order everywhere, so that a new reader neither misses nor doubles an event.
            let queues = lock(&self.view_queues);
            let mut seen = lock(&self.seen);
            match &event {
                ViewEvent::Changed { view, .. } => {
                    seen.view = Some(view.clone());
                    seen.full = None;
                    seen.installed_at = now.monotonic;
                }
                ViewEvent::Order { sequencer, is_settled, term, from, .. } => {
                    let (sequencer, is_settled, term, from) = (sequencer.clone(), *is_settled, *term, *from);
                    seen.order = Some(WhoOrders { sequencer, is_settled, term, from });
                }
                ViewEvent::Stale { silent } => seen.silent = silent.map(|it| (it, now.monotonic)),
                ViewEvent::Gap { .. } | ViewEvent::Missed { .. } => {}
                ViewEvent::Excluded(why) => seen.excluded = Some(why.clone()),
            }
            queues.iter().for_each(|q| q.push(event.clone()));
        }
        if let ViewEvent::Excluded(why) = &event {
            self.subscriptions.all().iter().for_each(|q| q.close(Error::excluded(why)));
        }
        self.changed.ring();
    }

    /// The socket fails: readers are told.
    pub(super) fn fail(&self, error: &io::Error) {
        self.subscriptions.all().iter().for_each(|q| q.close(Error::system("the group's socket", error)));
    }
}

/// For so long we believe that a group is full.
const FULL_FOR: Duration = Duration::from_secs(90);

/// Brokers alone refuse.
#[cfg(not(feature = "brokers"))]
pub(super) fn refused(_: Reason) -> Error {
    Error::new(Code::NotReady, "the transport refused it")
}

/// The number of a message that brokers gave a place, or why it has none.
pub(super) fn no_place(outcome: Outcome) -> Result<Option<u64>> {
    match outcome {
        Outcome::Ordered(number) => Ok(Some(number)),
        Outcome::Accepted => Ok(None),
        Outcome::Denied(reason) => Err(refused(reason)),
        Outcome::InDoubt => {
            Err(Error::new(Code::InDoubt, "the group changed while this member published: others may have the message")
                .with_remedy(Remedy::PublishAgain))
        }
        Outcome::Failed | Outcome::Superseded(_) => {
            Err(Error::new(Code::NotReady, "the message got no place in the order")
                .with_remedy(Remedy::ShowOrderAndPublishAgain))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_a_message_is_told_once_whether_it_is_known_before_somebody_waits_or_after() {
        let mut outcomes = Outcomes::default();
        let [early, late, fifo] = [1, 2, 3].map(Token);
        assert!(!outcomes.note(early, Outcome::Ordered(8)));
        outcomes.claim(early);
        assert_eq!((outcomes.take(early), outcomes.take(early)), (Some(Outcome::Ordered(8)), None));
        outcomes.claim(late);
        assert_eq!(outcomes.take(late), None);
        assert!(outcomes.note(late, Outcome::InDoubt));
        assert_eq!(outcomes.take(late), Some(Outcome::InDoubt));
        // Nobody asks for these: little of them is kept.
        outcomes.note(fifo, Outcome::Accepted);
        (4..10_000).for_each(|it| _ = outcomes.note(Token(it), Outcome::InDoubt));
        assert!(outcomes.waited.is_empty() && outcomes.early.len() <= EARLY_MAX);
    }

    #[test]
    fn a_message_in_doubt_is_never_taken_for_acknowledged() {
        let mut doubtful = Doubtful::default();
        // Numbers of other messages lie in between.
        for number in [2, 4, 6] {
            doubtful.note(number, true);
        }
        doubtful.note(7, false);
        doubtful.note(9, true);
        assert!([2, 4, 6, 9].iter().all(|it| doubtful.contains(*it)) && !doubtful.contains(7));
        for number in (0..4 * limits::DOUBTFUL_MAX as u64).map(|n| 10 + n) {
            doubtful.note(number, number % 2 == 0);
        }
        assert!(doubtful.runs.len() <= limits::DOUBTFUL_MAX);
        assert!((0..100).all(|number| doubtful.contains(number)), "of what is forgotten nothing is promised");
    }
}
