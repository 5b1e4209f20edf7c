//! A session: a group with a socket, a clock and threads around it.
//!
//! ```no_run
//! # use std::time::Duration;
//! let robot = sealcast::open("udpm://239.255.76.67:7667?ttl=1").identity("robot7").wait()?;
//! let mut poses = robot.subscribe("pose/+").wait()?;
//! robot.publish("pose/robot7", [1, 2, 3]).wait()?;
//! if let Some(message) = poses.next_timeout(Duration::from_secs(1))? {
//!     println!("{} {} {:?}", message.origin(), message.topic(), message.payload());
//! }
//! # Ok::<(), sealcast::Error>(())
//! ```
//! Everything that takes time can be awaited on any runtime, or waited for with `.wait()`. A session has
//! one thread that receives and one that flushes; a publisher seals on its own thread, and a blocking
//! reader receives on its own. A program may have any number of sessions: there are no globals.

mod changed;
mod control;
mod driver;
mod filter;
mod lease;
mod line;
mod memory;
mod open;
mod own;
mod queue;
mod scheme;
mod views;

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sealcast_crypto::identity::PublicKeys;
use sealcast_keys::contributory::{MemberStatus, Status};
use sealcast_keys::{Command, Exclusion, Notice};
use sealcast_wire::{CertHash, Drops, EpochId, Guarantee, Member, Monotonic, Now, View};

pub use changed::Doing;
pub use open::{Identity, Opening, open};
pub use queue::{SlowReader, Subscription};
pub use views::Views;

use crate::code::Code;
use crate::control::{GroupInfo, MemberInfo, Server};
use crate::error::{Error, Result};
use crate::group::{Gate, Publication, PublishError, ViewEvent, lock};
use crate::io::clock::Clock;
use crate::io::udp::{UdpReceiver, Warning};
use crate::url::{Cipher, OriginMode, Scheme, Url, Way};
use changed::Changed;
use control::millis;
use driver::Road;
use filter::Filter;
use lease::Lease;
use line::Line;
use own::Own;
use queue::Queue;
use views::ViewQueue;

/// A member of a group. Clones are the same member; the last one to go closes it.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

/// Owns the threads; they hold only [`Shared`].
struct Inner {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    control: Mutex<Option<Server>>,
}

/// What the threads of a session share.
pub(crate) struct Shared {
    url: Url,
    group_name: String,
    me: String,
    identity: Option<Arc<sealcast_crypto::identity::Identity>>,
    clock: Clock,
    lease: Lease,
    line: Option<Line>,
    gate: Arc<Mutex<Gate>>,
    changed: Changed,
    queues: Mutex<Vec<Arc<Queue>>>,
    /// Whether we hear our own datagrams.
    own: Own,
    /// Counts changes of `queues`.
    generation: AtomicU64,
    view_queues: Mutex<Vec<Arc<ViewQueue>>>,
    seen: Mutex<Seen>,
    delivered: AtomicU64,
    published: AtomicU64,
    missed: AtomicU64,
    failed_receives: AtomicU64,
}

/// What was seen of the group so far.
#[derive(Default)]
struct Seen {
    view: Option<Arc<View>>,
    installed_at: Monotonic,
    excluded: Option<Exclusion>,
    closed: bool,
    log: VecDeque<LogEntry>,
    warnings: Vec<Warning>,
}

/// A line of a group's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Microseconds since 1970.
    pub at_micros: u64,
    /// What happened.
    pub event: LogEvent,
}

/// What happened in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// The membership changed.
    View(ViewEvent),
    /// Something worth telling the operator.
    Notice(Notice),
}

/// What a session has done and seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages published.
    pub published: u64,
    /// Messages delivered to at least one subscription.
    pub delivered: u64,
    /// Messages that readers were too slow for.
    pub missed: u64,
    /// Datagrams handed to the kernel.
    pub sent_datagrams: u64,
    /// Sends that the kernel refused.
    pub failed_sends: u64,
    /// Receiving calls that the kernel refused.
    pub failed_receives: u64,
    /// What was dropped, by reason.
    pub drops: Drops,
}

/// How a change of the group went.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// What became of a published message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its number, as receivers see it; `None` if it waits for the next key.
    pub number: Option<u64>,
}

/// Why `try_publish` did not take a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TryPublishError {
    /// The queue is full: later it will do.
    #[error("queue full")]
    Full,
    /// No key is agreed yet.
    #[error("no key is agreed yet")]
    NotReady,
    /// It will not do later either.
    #[error(transparent)]
    Refused(#[from] Error),
}

impl Session {
    /// Publishes a message: `.await` it, or `.wait()`. It is on its way when that returns; before the
    /// first key is agreed it waits for it (`wait=` in the URL, 10 s).
    pub fn publish<'a>(&'a self, topic: &'a str, body: impl AsRef<[u8]> + 'a) -> Publish<'a> {
        Publish { session: self, topic, body: Box::new(body), guarantee: Guarantee::BestEffort }
    }

    /// Publishes a message from a control loop: never waits, never allocates in steady state.
    ///
    /// # Errors
    /// [`TryPublishError`]: nothing was taken.
    pub fn try_publish(&self, topic: &str, body: &[u8]) -> std::result::Result<(), TryPublishError> {
        let message = Publication { topic, body, guarantee: Guarantee::BestEffort, sent_micros: None };
        match self.inner.shared.publish(&message, false) {
            Ok(_) => Ok(()),
            Err(PublishError::NotReady) => Err(TryPublishError::NotReady),
            Err(PublishError::Send(sealcast_delivery::SendError::Full)) => Err(TryPublishError::Full),
            Err(why) => Err(TryPublishError::Refused(self.inner.shared.refused(topic, why))),
        }
    }

    /// Takes messages of the topics that match a pattern: `+` is one level, a last `#` the rest.
    pub fn subscribe<'a>(&'a self, pattern: &'a str) -> Subscribe<'a> {
        Subscribe {
            session: self,
            pattern,
            regex: false,
            capacity: sealcast_wire::limits::SUBSCRIBER_MESSAGES,
            when_slow: SlowReader::default(),
        }
    }

    /// The memberships from now on, the current one first.
    pub fn views(&self) -> Views {
        let shared = &self.inner.shared;
        let queue = Arc::new(ViewQueue::default());
        let mut queues = lock(&shared.view_queues);
        let seen = lock(&shared.seen);
        if let Some(view) = &seen.view {
            queue.push(ViewEvent::Changed { view: view.clone(), joined: view.members.clone(), left: Vec::new() });
        }
        if let Some(why) = &seen.excluded {
            queue.push(ViewEvent::Excluded(why.clone()));
        }
        queues.push(queue.clone());
        Views { shared: shared.clone(), queue }
    }

    /// The installed membership.
    pub fn view(&self) -> Option<Arc<View>> {
        lock(&self.inner.shared.seen).view.clone()
    }

    /// Waits until a view is installed: `.await` it, or `.wait()`.
    pub fn ready(&self) -> Doing<Arc<View>> {
        let patience = self.inner.shared.url.options.wait;
        self.doing(patience, not_ready, |shared| {
            let seen = lock(&shared.seen);
            match (&seen.view, &seen.excluded) {
                (_, Some(why)) => Some(Err(Error::excluded(why))),
                (Some(view), None) => Some(Ok(view.clone())),
                (None, None) => None,
            }
        })
    }

    /// Agrees on a new key for the same members.
    pub fn rotate(&self) -> Doing<Report> {
        self.change(Command::Rotate)
    }

    /// Evicts a member, named by its certificate or, if one only has it, by its name; the reason goes
    /// into the signed statement and every member's log.
    pub fn evict(&self, who: impl Into<Who>, reason: &str) -> Doing<Report> {
        let who = who.into();
        let view = self.view();
        let cert = match (&who, &view) {
            (Who::Cert(cert), _) => Ok(*cert),
            (Who::Name(name), Some(view)) => named(view, name),
            (Who::Name(_), None) => Err(not_ready(Duration::ZERO)),
        };
        match cert {
            Ok(cert) => self.change(Command::Evict { cert, reason: reason.to_owned() }),
            Err(error) => self.doing(Duration::ZERO, not_done, move |_| Some(Err(error.clone()))),
        }
    }

    /// Gives the key scheme a signed object: an eviction statement, a CRL or a policy.
    ///
    /// # Errors
    /// Those of the key scheme.
    pub fn learn(&self, object: Vec<u8>) -> Result<()> {
        self.inner.shared.command(Command::Learn(object))
    }

    /// Leaves the group: done when our word has been taken in here; nothing can be published after it.
    pub fn leave(&self) -> Doing<()> {
        let refused = self.inner.shared.command(Command::Leave).err();
        self.doing(LEAVE_PATIENCE, not_done, move |shared| match &refused {
            Some(error) => Some(Err(error.clone())),
            None => lock(&shared.seen).excluded.is_some().then_some(Ok(())),
        })
    }

    /// Hands everything that was published to the kernel.
    pub fn flush(&self) {
        if let Some(line) = &self.inner.shared.line {
            line.flush();
        }
    }

    /// Leaves the group, sends what is left and ends the session's threads. Readers get what is in their
    /// queues, and then the end.
    pub fn close(self) {
        self.inner.close();
    }

    /// Figures.
    pub fn stats(&self) -> Stats {
        self.inner.shared.stats()
    }

    /// What is known of the group.
    pub fn info(&self) -> Info {
        self.inner.shared.info()
    }

    /// What a contributory scheme knows: members with their rights, compartments, messages counted;
    /// `None` for other schemes.
    pub fn status(&self) -> Option<Status> {
        self.inner.shared.status()
    }

    /// What happened in the group since we are in it, oldest first.
    pub fn log(&self) -> Vec<LogEntry> {
        lock(&self.inner.shared.seen).log.iter().cloned().collect()
    }

    /// What is not as it should be on this machine, with the line that repairs it.
    pub fn warnings(&self) -> Vec<Warning> {
        lock(&self.inner.shared.seen).warnings.clone()
    }

    /// The URL it was opened with.
    pub fn url(&self) -> &Url {
        &self.inner.shared.url
    }

    fn change(&self, command: Command) -> Doing<Report> {
        let begun = Instant::now();
        let from = self.view().map(|v| v.epoch);
        let refused = self.inner.shared.command(command).err();
        self.doing(CHANGE_PATIENCE, not_done, move |shared| {
            if let Some(error) = &refused {
                return Some(Err(error.clone()));
            }
            let seen = lock(&shared.seen);
            if let Some(why) = &seen.excluded {
                return Some(Err(Error::excluded(why)));
            }
            let view = seen.view.clone()?;
            let from = from.filter(|f| *f != view.epoch)?;
            drop(seen);
            let (on_new_key, members) = shared.lease.with(|driver| driver.as_ref().map(|d| d.group.on_new_key()))?;
            let report = Report { from, to: view.epoch, on_new_key, members, elapsed: begun.elapsed() };
            (on_new_key == members || begun.elapsed() > CONFIRM_PATIENCE).then_some(Ok(report))
        })
    }

    /// The serial number of a member's certificate, if the scheme has such.
    fn serial_of(&self, who: &Who) -> Option<String> {
        let info = self.inner.shared.group_info();
        let mut members = info.members.into_iter();
        let found = match who {
            Who::Name(name) => members.find(|m| m.name == *name),
            Who::Cert(cert) => members.find(|m| m.certificate == hex(&cert.0)),
        };
        found.and_then(|m| m.serial)
    }

    fn doing<T>(
        &self,
        patience: Duration,
        late: fn(Duration) -> Error,
        check: impl FnMut(&Shared) -> Option<Result<T>> + Send + 'static,
    ) -> Doing<T> {
        let shared = self.inner.shared.clone();
        Doing { shared, deadline: Instant::now() + patience, check: Box::new(check), late, patience }
    }
}

/// Whom to evict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// By certificate.
    Cert(CertHash),
    /// By the name in it.
    Name(String),
}

impl From<&str> for Who {
    fn from(name: &str) -> Who {
        Who::Name(name.to_owned())
    }
}

impl From<CertHash> for Who {
    fn from(cert: CertHash) -> Who {
        Who::Cert(cert)
    }
}

fn named(view: &View, name: &str) -> Result<CertHash> {
    let certs: Vec<CertHash> = view.members.iter().filter(|m| &*m.name == name).map(|m| m.id.cert).collect();
    match certs[..] {
        [cert] => Ok(cert),
        [] => {
            Err(Error::new(Code::BadValue, format!("no member is named «{name}»")).with_hint("sealcast group members"))
        }
        _ => Err(Error::new(Code::BadValue, format!("several members are named «{name}»"))
            .with_hint("name the certificate instead: sealcast group members shows them")),
    }
}

/// What is known of a group.
#[derive(Clone, Debug)]
pub struct Info {
    /// Where, and how.
    pub url: Url,
    /// Its name.
    pub group: String,
    /// Our own name.
    pub me: String,
    /// Who holds the keys.
    pub keys: Scheme,
    /// When origins are signed.
    pub origin: OriginMode,
    /// The installed membership.
    pub view: Option<Arc<View>>,
    /// How long it has been installed.
    pub age: Duration,
    /// Members heard on this key, and all of them.
    pub on_new_key: (usize, usize),
    /// Whether publishing is paused by a change of key.
    pub paused: bool,
    /// Why we are out, if so.
    pub excluded: Option<Exclusion>,
    /// Per member: how long ago it was last heard; by slot, `None` if never in this epoch.
    pub last_heard: Vec<Option<Duration>>,
}

impl Info {
    /// The members with their places.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.view.iter().flat_map(|v| &v.members)
    }
}

/// A message about to be published.
#[must_use = "nothing is published unless it is awaited or .wait() is called"]
pub struct Publish<'a> {
    session: &'a Session,
    topic: &'a str,
    body: Box<dyn AsRef<[u8]> + 'a>,
    guarantee: Guarantee,
}

impl Publish<'_> {
    /// In the order sent, without gaps while we live.
    pub fn fifo(mut self) -> Self {
        self.guarantee = Guarantee::Fifo;
        self
    }

    /// In one order at all members.
    pub fn ordered(mut self) -> Self {
        self.guarantee = Guarantee::Ordered;
        self
    }

    /// Ordered, and acknowledged once all members hold it.
    pub fn safe(mut self) -> Self {
        self.guarantee = Guarantee::Safe;
        self
    }

    /// Publishes it on this thread.
    ///
    /// # Errors
    /// Why not: no right, no key in time, too long, closed.
    pub fn wait(self) -> Result<Published> {
        let shared = &self.session.inner.shared;
        let body = (*self.body).as_ref();
        let message = Publication { topic: self.topic, body, guarantee: self.guarantee, sent_micros: None };
        match shared.publish(&message, true) {
            Ok(number) => Ok(Published { number }),
            Err(PublishError::NotReady) => {
                let patience = shared.url.options.wait;
                let done =
                    shared.changed.wait_until(Instant::now() + patience, || match shared.publish(&message, true) {
                        Err(PublishError::NotReady) => None,
                        other => Some(other),
                    });
                match done {
                    Some(Ok(number)) => Ok(Published { number }),
                    Some(Err(why)) => Err(shared.refused(self.topic, why)),
                    None => Err(not_ready(patience)),
                }
            }
            Err(why) => Err(shared.refused(self.topic, why)),
        }
    }
}

impl<'a> IntoFuture for Publish<'a> {
    type Output = Result<Published>;
    type IntoFuture = Publishing<'a>;

    fn into_future(self) -> Publishing<'a> {
        let deadline = Instant::now() + self.session.inner.shared.url.options.wait;
        Publishing { publish: self, deadline }
    }
}

/// A message being published.
pub struct Publishing<'a> {
    publish: Publish<'a>,
    deadline: Instant,
}

impl Future for Publishing<'_> {
    type Output = Result<Published>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Publishing { publish, deadline } = self.get_mut();
        let shared = &publish.session.inner.shared;
        let body = (*publish.body).as_ref();
        let message = Publication { topic: publish.topic, body, guarantee: publish.guarantee, sent_micros: None };
        let polled = shared.changed.poll_until(cx, *deadline, || match shared.publish(&message, true) {
            Err(PublishError::NotReady) => None,
            other => Some(other),
        });
        polled.map(|done| match done {
            Some(Ok(number)) => Ok(Published { number }),
            Some(Err(why)) => Err(shared.refused(publish.topic, why)),
            None => Err(not_ready(shared.url.options.wait)),
        })
    }
}

/// A subscription about to be made.
#[must_use = "nothing is subscribed to unless it is awaited or .wait() is called"]
pub struct Subscribe<'a> {
    session: &'a Session,
    pattern: &'a str,
    regex: bool,
    capacity: usize,
    when_slow: SlowReader,
}

impl Subscribe<'_> {
    /// How many messages may wait to be read; at least 1.
    pub fn capacity(mut self, messages: usize) -> Self {
        self.capacity = messages.max(1);
        self
    }

    /// What happens when more come.
    pub fn when_slow(mut self, policy: SlowReader) -> Self {
        self.when_slow = policy;
        self
    }

    /// The pattern is a regular expression that the whole topic must match, as in LCM.
    pub fn regex(mut self) -> Self {
        self.regex = true;
        self
    }

    /// Subscribes.
    ///
    /// # Errors
    /// If the pattern cannot be read, or the socket cannot be opened.
    pub fn wait(self) -> Result<Subscription> {
        let filter = if self.regex { Filter::regex(self.pattern)? } else { Filter::pattern(self.pattern)? };
        let shared = &self.session.inner.shared;
        shared.may_subscribe(&filter, self.pattern)?;
        shared.listen()?;
        let queue = Arc::new(Queue::new(filter, self.capacity, self.when_slow));
        lock(&shared.queues).push(queue.clone());
        shared.own.adjust(|topic| shared.wants(topic));
        shared.generation.fetch_add(1, Ordering::Release);
        let why = {
            let seen = lock(&shared.seen);
            seen.excluded.as_ref().map(Error::excluded).or_else(|| seen.closed.then(Error::closed))
        };
        if let Some(why) = why {
            queue.close(why);
        }
        Ok(Subscription { shared: shared.clone(), queue })
    }
}

impl IntoFuture for Subscribe<'_> {
    type Output = Result<Subscription>;
    type IntoFuture = std::future::Ready<Result<Subscription>>;

    fn into_future(self) -> Self::IntoFuture {
        std::future::ready(self.wait())
    }
}

impl Shared {
    fn publish(&self, message: &Publication<'_>, patient: bool) -> std::result::Result<Option<u64>, PublishError> {
        let line = self.line.as_ref().filter(|_| message.guarantee == Guarantee::BestEffort);
        let number = match line {
            Some(line) => {
                self.own.publish(message.topic, |topic| self.wants(topic));
                line.publish(message, patient)?
            }
            None => {
                let now = self.clock.now();
                let sent_micros = Some(self.clock.wall_micros(now.monotonic));
                let message = Publication { sent_micros, ..*message };
                self.lease.with(|driver| {
                    let Some(driver) = driver else { return Err(PublishError::Excluded(Exclusion::Left)) };
                    let token = driver.group.publish(now, message)?;
                    driver.pump(self, now);
                    Ok(token.map(|t| t.0))
                })?
            }
        };
        self.published.fetch_add(1, Ordering::Relaxed);
        Ok(number)
    }

    /// The error that a user sees.
    fn refused(&self, topic: &str, why: PublishError) -> Error {
        match why {
            PublishError::NotReady => not_ready(Duration::ZERO),
            PublishError::Denied => Error::new(Code::DeniedPublish, format!("{} may not publish on {topic}", self.me))
                .with_hint(format!("ask the group's authority for the right: sealcast invite --for … --pub '{topic}'")),
            PublishError::MustSign => Error::new(
                Code::DeniedPublish,
                format!("{topic} demands signatures, since some of its readers may not write it"),
            )
            .with_hint("leave origin=mac out of the URL"),
            PublishError::Excluded(why) => Error::excluded(&why),
            PublishError::Send(why) => why.into(),
        }
    }

    /// Whether our certificate lets us read any topic that a subscription is for.
    fn may_subscribe(&self, filter: &Filter, text: &str) -> Result<()> {
        let (Some(identity), Filter::Pattern(pattern)) = (&self.identity, filter) else { return Ok(()) };
        if identity.certificate().rights.subscribes(&self.group_name).any(|granted| granted.overlaps(pattern)) {
            return Ok(());
        }
        Err(Error::new(Code::DeniedSubscribe, format!("{} may not subscribe to {text}", self.me))
            .with_hint(format!("ask the group's authority for the right: sealcast invite --for … --sub '{text}'")))
    }

    fn command(&self, command: Command) -> Result<()> {
        let now = self.clock.now();
        self.lease.with(|driver| {
            let driver = driver.as_mut().ok_or_else(Error::closed)?;
            driver.group.command(now, command)?;
            driver.pump(self, now);
            Ok(())
        })
    }

    /// Opens the receiving socket, if it is not open: plain publishers do without.
    fn listen(&self) -> Result<()> {
        let Way::Multicast(address) = self.url.way else { return Ok(()) };
        self.lease.with(|driver| {
            let driver = driver.as_mut().ok_or_else(Error::closed)?;
            if !matches!(driver.road, Road::Closed) {
                return Ok(());
            }
            let (receiver, warnings) = UdpReceiver::open(address, &self.url.options)?;
            lock(&self.seen).warnings.extend(warnings);
            if let Some(ear) = self.line.as_ref().and_then(|line| receiver.ear(&line.udp)) {
                self.own.listen(ear, |topic| self.wants(topic));
            }
            driver.listen(receiver).map_err(|e| Error::system("waiting for the socket", &e))
        })
    }

    fn queues_for(&self, topic: &str) -> Vec<Arc<Queue>> {
        lock(&self.queues).iter().filter(|q| q.filter.matches(topic)).cloned().collect()
    }

    fn wants(&self, topic: &str) -> bool {
        lock(&self.queues).iter().any(|q| q.filter.matches(topic))
    }

    fn unsubscribe(&self, queue: &Arc<Queue>) {
        lock(&self.queues).retain(|q| !Arc::ptr_eq(q, queue));
        self.own.adjust(|topic| self.wants(topic));
        self.generation.fetch_add(1, Ordering::Release);
        queue.close(Error::closed());
        // The driver may be waiting for room in it.
        if queue.when_slow == SlowReader::Block {
            self.lease.wake();
        }
    }

    fn forget_views(&self, queue: &Arc<ViewQueue>) {
        lock(&self.view_queues).retain(|q| !Arc::ptr_eq(q, queue));
    }

    fn viewed(&self, now: Now, event: ViewEvent) {
        {
            // In this order everywhere, so that a new reader neither misses nor doubles an event.
            let queues = lock(&self.view_queues);
            let mut seen = lock(&self.seen);
            match &event {
                ViewEvent::Changed { view, .. } => {
                    seen.view = Some(view.clone());
                    seen.installed_at = now.monotonic;
                }
                ViewEvent::Excluded(why) => seen.excluded = Some(why.clone()),
            }
            self.note(&mut seen, now, LogEvent::View(event.clone()));
            queues.iter().for_each(|q| q.push(event.clone()));
        }
        if let ViewEvent::Excluded(why) = &event {
            let queues = lock(&self.queues).clone();
            queues.iter().for_each(|q| q.close(Error::excluded(why)));
        }
        self.changed.ring();
    }

    fn noticed(&self, now: Now, notice: Notice) {
        self.note(&mut lock(&self.seen), now, LogEvent::Notice(notice));
        self.changed.ring();
    }

    fn note(&self, seen: &mut Seen, now: Now, event: LogEvent) {
        if seen.log.len() >= LOG_ENTRIES_MAX {
            seen.log.pop_front();
        }
        seen.log.push_back(LogEntry { at_micros: self.clock.wall_micros(now.monotonic), event });
    }

    /// The socket fails: readers are told.
    fn fail(&self, error: &io::Error) {
        let queues = lock(&self.queues).clone();
        queues.iter().for_each(|q| q.close(Error::system("the group's socket", error)));
    }

    fn info(&self) -> Info {
        let now = self.clock.monotonic();
        let (on_new_key, last_heard) = self.lease.with(|driver| {
            driver.as_ref().map_or_else(Default::default, |d| (d.group.on_new_key(), d.group.last_heard(now)))
        });
        let paused = lock(&self.gate).is_paused();
        let seen = lock(&self.seen);
        Info {
            url: self.url.clone(),
            group: self.group_name.clone(),
            me: self.me.clone(),
            keys: self.url.keys,
            origin: self.url.options.origin,
            view: seen.view.clone(),
            age: now.since(seen.installed_at),
            on_new_key,
            paused,
            excluded: seen.excluded.clone(),
            last_heard,
        }
    }

    fn stats(&self) -> Stats {
        let line = |of: fn(&Line) -> &AtomicU64| self.line.as_ref().map_or(0, |l| of(l).load(Ordering::Relaxed));
        Stats {
            published: self.published.load(Ordering::Relaxed),
            delivered: self.delivered.load(Ordering::Relaxed),
            missed: self.missed.load(Ordering::Relaxed),
            sent_datagrams: line(|l| &l.sent_datagrams),
            failed_sends: line(|l| &l.failed_sends),
            failed_receives: self.failed_receives.load(Ordering::Relaxed),
            drops: self.lease.with(|driver| driver.as_ref().map(|d| d.group.drops())).unwrap_or_default(),
        }
    }

    /// What a contributory scheme knows.
    fn status(&self) -> Option<Status> {
        let now = self.clock.now();
        self.lease.with(|driver| driver.as_ref()?.group.keys().status(now))
    }

    /// What the local socket shows.
    fn group_info(&self) -> GroupInfo {
        let (info, stats) = (self.info(), self.stats());
        let mut shown = GroupInfo {
            group: info.group,
            url: info.url.to_string(),
            me: info.me,
            pid: std::process::id(),
            keys: match info.keys {
                Scheme::Plain => "plain",
                Scheme::Contributory => "contributory",
            }
            .to_owned(),
            cipher: match (info.keys, self.url.options.cipher) {
                (Scheme::Plain, _) => "none",
                (_, Cipher::Aes256Gcm) => "AES-256-GCM",
                (_, Cipher::ChaCha20Poly1305) => "ChaCha20-Poly1305",
            }
            .to_owned(),
            origin: match info.origin {
                OriginMode::Auto => "auto",
                OriginMode::Signed => "signed",
                OriginMode::Mac => "mac",
            }
            .to_owned(),
            epoch: info.view.as_ref().map(|v| v.epoch.counter),
            epoch_hash: info.view.as_ref().map(|v| format!("{:016x}", v.epoch.hash)),
            age_ms: millis(info.age),
            paused: info.paused,
            excluded: info.excluded.as_ref().map(|why| Error::excluded(why).to_string()),
            authority: self.identity.as_ref().map(|i| i.authority().to_string()),
            veiled: self.identity.as_ref().is_some_and(|i| i.is_veiled(&self.group_name)),
            warnings: lock(&self.seen).warnings.iter().map(|w| format!("{}: {}", w.what, w.hint)).collect(),
            ..GroupInfo::default()
        };
        let mut heard = info.last_heard.iter();
        shown.members = info
            .view
            .iter()
            .flat_map(|view| view.members.iter().enumerate().map(|(i, m)| (i == usize::from(view.me.0), m)))
            .map(|(me, m)| MemberInfo {
                name: m.name.to_string(),
                certificate: hex(&m.id.cert.0),
                last_heard_ms: heard.next().copied().flatten().filter(|_| !me).map(millis),
                me,
                ..MemberInfo::default()
            })
            .collect();
        if let Some(status) = self.status() {
            shown.rotates_in_ms = Some(millis(status.rotates_in));
            for (member, known) in shown.members.iter_mut().zip(&status.members) {
                describe(member, known, &status.group);
            }
        }
        let counters = [
            ("published", stats.published),
            ("delivered", stats.delivered),
            ("missed", stats.missed),
            ("sent datagrams", stats.sent_datagrams),
            ("failed sends", stats.failed_sends),
            ("failed receives", stats.failed_receives),
        ];
        shown.counters = counters.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        shown.counters.extend(stats.drops.iter().map(|(why, n)| (format!("dropped {why}"), n)));
        shown
    }
}

/// What a member's certificate says.
fn describe(member: &mut MemberInfo, known: &MemberStatus, group: &str) {
    member.serial = Some(known.serial.to_string());
    member.key = known.sealing.map(|sealing| PublicKeys { signing: known.key.clone(), sealing }.to_string());
    member.attributes = known.attributes.iter().map(|a| format!("{}={}", a.key, a.value)).collect();
    member.since_epoch = Some(known.since);
    member.publishes = known.rights.publishes(group).map(|p| p.to_string()).collect();
    member.subscribes = known.rights.subscribes(group).map(|p| p.to_string()).collect();
}

/// A notice as a person reads it.
fn told(notice: &Notice) -> String {
    match notice {
        Notice::Attempt { counter, attempt, members } => {
            format!("agreeing on epoch {counter}, attempt {attempt}, with {members} members")
        }
        Notice::LeftOut { cert, why } => format!("left out {}: {why:?}", hex(&cert.0[..6])),
        Notice::Eviction { cert, number, reason, by } => {
            format!("{by} evicts {} (statement {number}): {reason}", hex(&cert.0[..6]))
        }
        Notice::Expires { cert, seconds } => {
            format!("the certificate {} ends in {} h", hex(&cert.0[..6]), seconds / 3600)
        }
        Notice::StaleCrl => "the revocation list is older than the policy allows".to_owned(),
        Notice::OtherPart { epoch } => format!("another part of the group is heard, in epoch {}", epoch.counter),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl Inner {
    fn close(&self) {
        let threads = std::mem::take(&mut *lock(&self.threads));
        if threads.is_empty() {
            return;
        }
        drop(lock(&self.control).take());
        let shared = &self.shared;
        if let Some(line) = &shared.line {
            line.flush();
        }
        // Whoever was never in, or is out already, has nothing to leave.
        if shared.command(Command::Leave).is_ok() {
            let out = || lock(&shared.seen).excluded.is_some().then_some(());
            shared.changed.wait_until(Instant::now() + CLOSE_PATIENCE, out);
        }
        if let Some(line) = &shared.line {
            line.close();
        }
        lock(&shared.seen).closed = true;
        shared.lease.close();
        for thread in threads {
            // A panic in a session's thread was reported when it happened.
            let _ = thread.join();
        }
        drop(shared.lease.remove());
        let queues = lock(&shared.queues).clone();
        queues.iter().for_each(|q| q.close(Error::closed()));
        lock(&shared.view_queues).iter().for_each(|q| q.close());
        shared.changed.ring();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("url", &self.inner.shared.url.to_string()).finish_non_exhaustive()
    }
}

fn not_ready(patience: Duration) -> Error {
    Error::new(Code::NotReady, format!("no key was agreed in {patience:?}"))
        .with_hint("sealcast doctor checks the network; are the others on the same URL, with the same authority?")
}

fn not_done(patience: Duration) -> Error {
    Error::new(Code::TimedOut, format!("not done within {patience:?}")).with_hint("sealcast group show")
}

/// How long a rotation or eviction may take.
const CHANGE_PATIENCE: Duration = Duration::from_secs(10);
/// How long members are waited for that were not heard on the new key.
const CONFIRM_PATIENCE: Duration = Duration::from_secs(1);
/// How long leaving may take.
const LEAVE_PATIENCE: Duration = Duration::from_secs(2);
/// How long a closing session waits for the others to take in that it leaves.
const CLOSE_PATIENCE: Duration = Duration::from_millis(400);
/// Lines of the log that are kept.
const LOG_ENTRIES_MAX: usize = 1000;
