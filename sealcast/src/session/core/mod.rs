//! A session as a value: a group, who subscribes to what, what became of what was published, what happened, and the end.
//!
//! ```text
//! publish ─▶ Tickets ─▶ Group ─▶ Transmit            handle_datagram ─▶ Group ─▶ Deliver(readers of its topic)
//! subscribe ─▶ Subscriptions ─▶ the transport, where it has to know       └─▶ View, Notice ─▶ Log
//! close ─▶ until all is settled, or nothing more is ─▶ Leave ─▶ Closed
//! ```
//! Time and bytes go in, [`Output`]s come out, nothing waits. Threads, sockets, queues and files are the session's, around
//! this; the simulator is another shell. Call a verb, then drain [`Core::poll`].

mod filter;
mod log;
mod subscriptions;
#[cfg(test)]
mod tests;
mod tickets;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sealcast_crypto::identity::Pattern;
use sealcast_delivery::{self as delivery, Batch, Delivery, Properties, Token};
use sealcast_keys::{Command, CommandError, Keys, Notice, Status};
use sealcast_wire::{Address, EpochId, Monotonic, Now, Reason, To, limits};

pub use filter::Filter;
pub use log::{Log, LogEvent};
pub use subscriptions::{Reader, Subscriptions};
pub use tickets::{Progress, Tickets};

use crate::group::{self, Axis, Group, Message, Publication, PublishError, Together, ViewEvent};

/// See the module. `R` is what the shell knows a subscription by.
pub struct Core<K, D, R> {
    group: Group<K, D>,
    transport: Properties,
    subscriptions: Arc<Subscriptions<R>>,
    /// Who reads which topic, as of `generation` of the subscriptions.
    routes: BTreeMap<Arc<str>, Readers<R>>,
    /// The last of them: topics come in runs.
    last_route: Option<(Arc<str>, Readers<R>)>,
    generation: u64,
    tickets: Tickets,
    /// Messages that publishers' threads sent without us, of which we are told what becomes.
    beside: Arc<AtomicU64>,
    log: Log,
    /// We are out, or nothing more will come of it for another reason.
    ended: bool,
    /// How many members are known to be on the newest key.
    confirmed: usize,
    closing: Option<Closing>,
    /// What came before anybody subscribed, of what was ordered while the process was away, and until when it is kept.
    early: VecDeque<Message>,
    early_bytes: usize,
    early_until: Option<Monotonic>,
    /// When is looked next what readers took.
    looks_at: Option<Monotonic>,
    /// What the shell does by itself is done.
    shell_is_settled: bool,
    ready: VecDeque<Output<R>>,
}

/// The subscriptions that take a topic.
pub type Readers<R> = Arc<[R]>;

/// What a session wants done.
#[derive(Debug)]
pub enum Output<R> {
    /// The batch holds datagrams to be sent now.
    Transmit(To),
    /// An application message, for these.
    Deliver(Readers<R>, Message),
    /// What becomes of the state of this topic, in turn with its messages.
    State(Arc<str>, delivery::StateEvent),
    /// The membership changed.
    View(ViewEvent),
    /// Make this durable, then call [`Core::stored`] (G6).
    Store {
        /// Whose record it is.
        of: Axis,
        /// Overwrites the record of the same id.
        id: u64,
        /// The record.
        record: Vec<u8>,
    },
    /// What became of a message, where the transport tells it.
    Outcome(Token, delivery::Outcome),
    /// The transport brings what matches from now on, or those who carry it refuse.
    Subscribed(Pattern, Result<(), Reason>),
    /// Something worth telling the operator; it is in the log.
    Notice(Notice),
    /// The answer to [`Core::describe`].
    Described(Box<Status>),
    /// Another number of members is known to be on the newest key.
    Confirmed,
    /// The session has left, and so many of its messages have no position.
    Closed(usize),
}

/// A change of the group that was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    from: Option<EpochId>,
    begun: Monotonic,
}

/// How a change of the group went.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The epoch before.
    pub from: EpochId,
    /// The epoch now.
    pub to: EpochId,
    /// Members heard on the new key, ourselves included.
    pub on_new_key: usize,
    /// Members of the new view.
    pub members: usize,
    /// From the command to that.
    pub elapsed: Duration,
}

/// How far closing is.
#[derive(Debug)]
enum Closing {
    /// What was published gets its positions.
    Settling(Progress),
    /// The others take in that we leave.
    Leaving { until: Monotonic, unordered: usize },
    /// What a later run is to know is on its way to the disk.
    Storing { unordered: usize },
    /// Told.
    Over,
}

impl<K: Keys, D: Delivery, R: Reader> Core<K, D, R> {
    /// A session of this group.
    pub fn new(group: Group<K, D>) -> Core<K, D, R> {
        let transport = group.delivery().properties();
        Core {
            group,
            transport,
            subscriptions: Arc::default(),
            routes: BTreeMap::new(),
            last_route: None,
            generation: 0,
            tickets: Tickets::default(),
            beside: Arc::default(),
            log: Log::default(),
            ended: false,
            confirmed: 0,
            closing: None,
            early: VecDeque::new(),
            early_bytes: 0,
            early_until: None,
            looks_at: None,
            shell_is_settled: true,
            ready: VecDeque::new(),
        }
    }

    /// Publishes a message; what becomes of it comes as [`Output::Outcome`] with this token, where the transport tells it.
    ///
    /// # Errors
    /// [`PublishError`]
    pub fn publish(&mut self, now: Now, message: Publication<'_>) -> Result<Token, PublishError> {
        let token = self.group.publish(now, message)?;
        self.tickets.published += 1;
        if !self.transport.acknowledges(message.guarantee) {
            // Nothing more becomes known of it.
            self.tickets.settled += 1;
        }
        Ok(token)
    }

    /// Publishes a message with all that its carriers read, as [`Group::publish_together`] does; what becomes of it comes as
    /// [`Output::Outcome`].
    ///
    /// # Errors
    /// [`PublishError`]
    pub fn publish_together(&mut self, now: Now, message: Together<'_>) -> Result<Token, PublishError> {
        let token = self.group.publish_together(now, message)?;
        self.tickets.published += 1;
        Ok(token)
    }

    /// Tells the transport of a pattern that somebody reads, where it has to know; [`Output::Subscribed`] comes then.
    pub fn subscribe(&mut self, now: Now, pattern: &Pattern) {
        if self.transport.subscribes {
            self.group.subscribe(now, pattern);
        }
    }

    /// Undoes one [`Core::subscribe`].
    pub fn unsubscribe(&mut self, now: Now, pattern: &Pattern) {
        if self.transport.subscribes {
            self.group.unsubscribe(now, pattern);
        }
    }

    /// Does what the application asks of the group.
    ///
    /// # Errors
    /// Those of the key scheme.
    pub fn command(&mut self, now: Now, command: Command) -> Result<(), CommandError> {
        self.group.command(now, command)
    }

    /// As [`Group::state`].
    pub fn state(&mut self, now: Now, input: delivery::StateInput<'_>) {
        self.group.state(now, input);
    }

    /// As [`Group::force_primary`].
    ///
    /// # Errors
    /// The same.
    pub fn force_primary(&mut self, now: Now) -> Result<(), CommandError> {
        self.group.force_primary(now)
    }

    /// Asks for a new key or an eviction; [`Core::report`] tells how it went.
    ///
    /// # Errors
    /// As [`Core::command`].
    pub fn change(&mut self, now: Now, command: Command) -> Result<Change, CommandError> {
        let change = Change { from: self.group.view().map(|v| v.epoch), begun: now.monotonic };
        self.group.command(now, command).map(|()| change)
    }

    /// How a change went: once all members are on the new key, or long enough after we are.
    pub fn report(&self, now: Monotonic, change: &Change) -> Option<Report> {
        let to = self.group.view()?.epoch;
        let from = change.from.filter(|from| *from != to)?;
        let (on_new_key, members) = self.group.on_new_key();
        let elapsed = now.since(change.begun);
        let report = Report { from, to, on_new_key, members, elapsed };
        (on_new_key == members || elapsed > CONFIRM_TIMEOUT).then_some(report)
    }

    /// Asks the key scheme what it knows of the group: [`Output::Described`], if it knows anything.
    pub fn describe(&mut self, now: Now) {
        self.group.describe(now);
    }

    /// Leaves the group once what was published has its positions and the shell has done what it does by itself, or no message
    /// got a position for a while; [`Output::Closed`] comes then.
    pub fn close(&mut self, now: Now, shell_is_settled: bool) {
        self.shell_is_settled = shell_is_settled;
        if self.closing.is_none() {
            self.closing = Some(Closing::Settling(Progress::default()));
            self.go_on_closing(now);
        }
    }

    /// Nothing more will come of it, as the shell knows: closing waits for nothing.
    pub fn end(&mut self, now: Now) {
        self.ended = true;
        self.go_on_closing(now);
    }

    /// Whether it is being closed.
    pub fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Whether the shell has done what it does by itself: closing waits for it.
    pub fn shell_is_settled(&mut self, now: Now, is_settled: bool) {
        self.shell_is_settled = is_settled;
        self.go_on_closing(now);
    }

    /// Whether all that was published is settled, where that is told.
    pub fn is_settled(&self) -> bool {
        self.unordered() == 0
    }

    /// How many of our messages have no position yet, where that is told.
    pub fn unordered(&self) -> usize {
        if self.transport.acknowledges_any() { self.tickets().open() } else { 0 }
    }

    /// Whether nothing became of any message for so long; `progress` is the caller's.
    pub fn is_stuck(&self, now: Monotonic, progress: &mut Progress, timeout: Duration) -> bool {
        progress.is_over(now, self.tickets.settled, timeout)
    }

    /// Takes in one datagram, and opens it in place.
    pub fn handle_datagram(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        self.group.handle_datagram(now, from, datagram);
    }

    /// Readers take nothing now, or again: what was promised to come waits, and its senders with it.
    pub fn readers_wait(&mut self, now: Now, wait: bool) {
        self.group.readers_wait(now, wait);
    }

    /// What was asked to be stored is durable.
    pub fn stored(&mut self) {
        self.group.stored();
    }

    /// When [`Core::handle_timeout`] wants to be called next.
    pub fn timeout(&self) -> Option<Monotonic> {
        let closing = match &self.closing {
            Some(Closing::Settling(progress)) => progress.until(self.close_timeout()),
            Some(Closing::Leaving { until, .. }) => Some(*until),
            Some(Closing::Storing { .. } | Closing::Over) | None => None,
        };
        let early = self.early_until.filter(|_| !self.early.is_empty());
        [self.group.timeout(), closing, early, self.looks_at].into_iter().flatten().min()
    }

    /// Time has come.
    pub fn handle_timeout(&mut self, now: Now) {
        self.group.handle_timeout(now);
        self.looks_at.take_if(|at| *at <= now.monotonic);
        if self.early_until.is_some_and(|at| at <= now.monotonic) {
            self.early.clear();
            self.early_bytes = 0;
        }
        self.go_on_closing(now);
    }

    /// The next thing to be done, until there is none; datagrams to transmit are appended to `batch`, which the caller hands
    /// over empty.
    pub fn poll(&mut self, now: Now, batch: &mut Batch) -> Option<Output<R>> {
        loop {
            self.hand_over_early();
            if let Some(output) = self.ready.pop_front() {
                return Some(output);
            }
            let Some(output) = self.group.poll(now, batch) else {
                self.look_what_is_taken(now);
                if let Some(Closing::Storing { unordered }) = self.closing {
                    self.closing = Some(Closing::Over);
                    return Some(Output::Closed(unordered));
                }
                let confirmed = self.group.on_new_key().0;
                return (std::mem::replace(&mut self.confirmed, confirmed) != confirmed).then_some(Output::Confirmed);
            };
            match output {
                group::Output::Transmit(to) => return Some(Output::Transmit(to)),
                group::Output::Deliver(message) => {
                    let readers = self.readers(&message.topic);
                    if !readers.is_empty() {
                        return Some(Output::Deliver(readers, message));
                    }
                    self.keep_early(now, message);
                }
                group::Output::State(topic, event) => return Some(Output::State(topic, event)),
                group::Output::View(event) => {
                    if matches!(event, ViewEvent::Changed { .. }) {
                        self.confirmed = 0;
                    }
                    self.ended |= matches!(event, ViewEvent::Excluded(_));
                    self.log.note(now.monotonic, LogEvent::View(event.clone()));
                    self.ready.push_back(Output::View(event));
                    self.go_on_closing(now);
                }
                group::Output::Store { of, id, record } => return Some(Output::Store { of, id, record }),
                group::Output::Outcome(token, outcome) => {
                    self.tickets.settle(outcome);
                    self.ready.push_back(Output::Outcome(token, outcome));
                    self.go_on_closing(now);
                }
                group::Output::Notice { notice, about } => {
                    self.log.note(now.monotonic, LogEvent::Notice { notice: notice.clone(), about });
                    return Some(Output::Notice(notice));
                }
                group::Output::Subscribed(pattern, result) => return Some(Output::Subscribed(pattern, result)),
                group::Output::Described(status) => return Some(Output::Described(status)),
            }
        }
    }

    /// Nobody reads it yet: an application that comes back opens its session first, and subscribes then.
    fn keep_early(&mut self, now: Now, message: Message) {
        let until = *self.early_until.get_or_insert(now.monotonic + SUBSCRIBED_WITHIN);
        if !message.is_ordered() || !self.group.comes_back() || now.monotonic >= until {
            return;
        }
        self.early_bytes += message.payload().len() + message.topic().len();
        self.early.push_back(message);
        while self.early_bytes > limits::UNSUBSCRIBED_BYTES_MAX
            && let Some(oldest) = self.early.pop_front()
        {
            self.early_bytes -= oldest.payload().len() + oldest.topic().len();
        }
    }

    /// Somebody has subscribed since: what came before, in its order.
    fn hand_over_early(&mut self) {
        if self.early.is_empty() || self.subscriptions.generation() == self.generation {
            return;
        }
        for message in std::mem::take(&mut self.early) {
            let readers = self.readers(&message.topic);
            if readers.is_empty() {
                self.early.push_back(message);
                continue;
            }
            self.early_bytes -= message.payload().len() + message.topic().len();
            self.ready.push_back(Output::Deliver(readers, message));
        }
    }

    /// Tells the key scheme how far readers took what was ordered: the rest is for the next run.
    fn look_what_is_taken(&mut self, now: Now) {
        if self.group.untold().is_none() || self.looks_at.is_some_and(|at| now.monotonic < at) && self.closing.is_none()
        {
            return;
        }
        let unread = self.subscriptions.first_unread(now.monotonic);
        // Once somebody subscribed, nobody may ever want the rest.
        let early = self.early.front().filter(|_| self.subscriptions.is_empty()).map(|it| it.sequence);
        self.group.taken(now, unread.into_iter().chain(early).min());
        self.looks_at = self.group.untold().map(|_| now.monotonic + LOOKS_EVERY);
    }

    /// Who reads a topic.
    fn readers(&mut self, topic: &Arc<str>) -> Readers<R> {
        let generation = self.subscriptions.generation();
        if generation != self.generation {
            self.routes.clear();
            self.last_route = None;
            self.generation = generation;
        }
        if let Some((last, readers)) = &self.last_route
            && Arc::ptr_eq(last, topic)
        {
            return readers.clone();
        }
        let readers = match self.routes.get(topic) {
            Some(readers) => readers.clone(),
            None => {
                if self.routes.len() >= limits::ROUTES_MAX {
                    self.routes.clear();
                }
                let readers: Readers<R> = self.subscriptions.select(|filter| filter.matches(topic)).into();
                self.routes.insert(topic.clone(), readers.clone());
                readers
            }
        };
        self.last_route = Some((topic.clone(), readers.clone()));
        readers
    }

    fn go_on_closing(&mut self, now: Now) {
        let timeout = self.close_timeout();
        match &mut self.closing {
            Some(Closing::Settling(progress)) => {
                let is_stuck = progress.is_over(now.monotonic, self.tickets.settled, timeout);
                let has_settled = self.shell_is_settled && self.group.is_settled() && self.unordered() == 0;
                if !(has_settled || is_stuck || self.ended) && self.transport.acknowledges_any() {
                    return;
                }
                // Those that are given up by leaving have none.
                let unordered = self.unordered();
                if self.group.stays() {
                    return self.close_at_last(now, unordered);
                }
                // Whoever was never in, or is out already, has nothing to leave.
                match self.group.command(now, Command::Leave) {
                    Ok(()) => {
                        self.closing = Some(Closing::Leaving { until: now.monotonic + timeout, unordered });
                    }
                    Err(_) => self.close_at_last(now, unordered),
                }
            }
            Some(Closing::Leaving { until, unordered }) if self.ended || *until <= now.monotonic => {
                let unordered = *unordered;
                self.close_at_last(now, unordered);
            }
            Some(Closing::Leaving { .. } | Closing::Storing { .. } | Closing::Over) | None => {}
        }
    }

    fn close_at_last(&mut self, now: Now, unordered: usize) {
        self.look_what_is_taken(now);
        self.group.ends(now);
        self.closing = Some(Closing::Storing { unordered });
    }

    fn close_timeout(&self) -> Duration {
        if self.transport.acknowledges_any() { CLOSE_TIMEOUT_ORDERED } else { CLOSE_TIMEOUT }
    }
}

impl<K, D, R> Core<K, D, R> {
    /// The group.
    pub fn group(&self) -> &Group<K, D> {
        &self.group
    }

    /// The group, for its transport's shell, and for simulations.
    pub fn group_mut(&mut self) -> &mut Group<K, D> {
        &mut self.group
    }

    /// Who subscribes, for threads that do not hold the session.
    pub fn subscriptions(&self) -> Arc<Subscriptions<R>> {
        self.subscriptions.clone()
    }

    /// What was published, and what became of it.
    pub fn tickets(&self) -> Tickets {
        let beside = self.beside.load(Ordering::Relaxed);
        Tickets { published: self.tickets.published + beside, ..self.tickets.clone() }
    }

    /// Counts the messages that publishers' threads send without this, and of which it is told what becomes.
    pub fn beside(&self) -> Arc<AtomicU64> {
        self.beside.clone()
    }

    /// What happened.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// What the transport gives.
    pub fn transport(&self) -> &Properties {
        &self.transport
    }
}

/// How long it is kept for who subscribes later what was ordered while the process was away.
const SUBSCRIBED_WITHIN: Duration = Duration::from_secs(10);
/// How often is looked whether readers took what they had not, though nothing else happens.
const LOOKS_EVERY: Duration = Duration::from_millis(200);
/// How long members are waited for that were not heard on the new key.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a closing session waits for the others to take in that it leaves.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(400);
/// The same where that takes its position in an order, and how long messages may wait for a position of which none gets one.
const CLOSE_TIMEOUT_ORDERED: Duration = Duration::from_secs(3);
