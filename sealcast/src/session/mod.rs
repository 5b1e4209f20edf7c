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

mod admission;
#[cfg(feature = "brokers")]
mod brokers;
mod call;
mod changed;
mod control;
pub mod core;
mod driver;
mod driver_lock;
mod info;
mod loopback_filter;
mod open;
mod parts;
mod publish;
mod queue;
mod replica;
mod schemes;
mod shared;
mod subscribe;
mod transports;
mod views;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sealcast_keys::{Command, Status};
use sealcast_wire::{CertHash, Guarantee, View};

#[cfg(feature = "brokers")]
pub(crate) use self::brokers::{Driven, open_client};
pub use self::core::{LogEvent, Report};
pub use admission::Admission;
pub use call::Call;
pub use info::{Info, LogEntry, Stats};
#[doc(hidden)]
pub use open::open_parts;
pub use open::{Identity, Opened, Opening, open};
#[cfg(feature = "relay")]
pub(crate) use parts::group_and_identity;
pub use publish::{Publish, Published, Publishing, Ticket, TryPublishError};
pub use queue::{SlowReader, Subscription};
pub use replica::{Replica, State, Step};
pub use subscribe::{Subscribe, Subscribing};
#[cfg(feature = "brokers")]
pub(crate) use transports::BrokerLink;
#[cfg(feature = "brokers")]
pub use transports::BrokersInfo;
pub use views::Views;

use crate::code::Code;
use crate::control::Server;
use crate::error::{Error, Result};
use crate::group::{Publication, ViewEvent, lock};
use crate::remedy::Remedy;
use crate::url::Url;
use shared::{Past, Shared, WhoOrders, no_place};
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

impl Session {
    /// Publishes a message: `.await` it, or `.wait()`. It is on its way when that returns; before the
    /// first key is agreed it waits for it (`wait=` in the URL, 10 s).
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-publish?keys=plain").wait()?;
    /// session.publish("pose/robot7", [1, 2, 3]).wait()?;
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn publish<'a>(&'a self, topic: &'a str, body: impl AsRef<[u8]> + Send + 'a) -> Publish<'a> {
        let guarantee = self.inner.shared.guarantee(Guarantee::BestEffort);
        Publish { session: self, topic, body: Box::new(body), guarantee, within: None }
    }

    /// What keeps the relay of this session from working now, as far as it is known; it is tried again by itself.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-trouble?keys=plain").wait()?;
    /// assert!(session.trouble().is_none());
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn trouble(&self) -> Option<Error> {
        self.inner.shared.trouble()
    }

    /// Publishes a message from a control loop: never waits, never allocates in steady state.
    ///
    /// # Errors
    /// [`TryPublishError`]: nothing was taken.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-try-publish?keys=plain").wait()?;
    /// match session.try_publish("arm/state", &[0; 12]) {
    ///     Ok(()) => {}
    ///     Err(sealcast::TryPublishError::Refused(why)) => return Err(why),
    ///     Err(_) => println!("skipped: the next state replaces it"),
    /// }
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn try_publish(&self, topic: &str, body: &[u8]) -> std::result::Result<(), TryPublishError> {
        self.try_publish_as(topic, body, Guarantee::BestEffort).map(drop)
    }

    /// Publishes a message with a guarantee from a control loop: never waits. The ticket tells later what became of the
    /// message; dropped, it has published the message all the same. `Ordered` and `Safe` allocate what is kept for the ticket.
    ///
    /// # Errors
    /// [`TryPublishError`]: nothing was taken. `Full` here also means that readers have not acknowledged enough of what was
    /// published before.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-try-publish-as?keys=plain&order=total").wait()?;
    /// use sealcast::{Guarantee, TryPublishError};
    ///
    /// match session.try_publish_as("arm/mode", b"halt", Guarantee::Ordered) {
    ///     Ok(ticket) => assert!(ticket.wait()?.number.is_some(), "or ask it with try_wait in the next cycles"),
    ///     Err(TryPublishError::Refused(why)) => return Err(why),
    ///     Err(why) => println!("again in the next cycle: {why}"),
    /// }
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn try_publish_as(
        &self,
        topic: &str,
        body: &[u8],
        guarantee: Guarantee,
    ) -> std::result::Result<Ticket, TryPublishError> {
        let shared = &self.inner.shared;
        let guarantee = shared.guarantee(guarantee);
        let message = Publication { topic, body, guarantee, sent_micros: None };
        match shared.publish(&message, false) {
            Ok(number) => Ok(Ticket::new(shared.clone(), number, guarantee, None)),
            Err(why) => Err(TryPublishError::of(shared, topic, why)),
        }
    }

    /// Takes messages of the topics that match a pattern: `+` is one level, a last `#` the rest.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-subscribe?keys=plain").wait()?;
    /// let mut poses = session.subscribe("pose/+").wait()?;
    /// session.publish("pose/robot7", "here").wait()?;
    /// assert_eq!(poses.wait()?.payload(), b"here");
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn subscribe<'a>(&'a self, pattern: &'a str) -> Subscribe<'a> {
        Subscribe {
            session: self,
            pattern,
            regex: false,
            capacity: sealcast_wire::limits::SUBSCRIBER_MESSAGES,
            when_slow: SlowReader::default(),
            of_state: false,
        }
    }

    /// The memberships from now on, the current one first.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-views?keys=plain").wait()?;
    /// use sealcast::ViewEvent;
    ///
    /// session.ready().wait()?;
    /// if let Some(ViewEvent::Changed { view, joined, .. }) = session.views().try_next() {
    ///     assert_eq!(view.members.len(), joined.len(), "whoever is there already counts as joined");
    /// }
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn views(&self) -> Views {
        let shared = &self.inner.shared;
        let queue = Arc::new(ViewQueue::default());
        let mut queues = lock(&shared.view_queues);
        let seen = lock(&shared.seen);
        if let Some(view) = &seen.view {
            queue.push(ViewEvent::Changed {
                view: view.clone(),
                joined: view.members.iter().cloned().collect(),
                left: Vec::new(),
            });
        }
        if let Some(WhoOrders { sequencer, is_settled, term, from }) = seen.order.clone() {
            queue.push(ViewEvent::Order { sequencer, is_settled, forced: false, gap: false, term, from });
        }
        if let Some(why) = &seen.excluded {
            queue.push(ViewEvent::Excluded(why.clone()));
        }
        queues.push(queue.clone());
        Views { shared: shared.clone(), queue }
    }

    /// The installed membership.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-view?keys=plain").wait()?;
    /// session.ready().wait()?;
    /// for member in &session.view().expect("it is ready").members {
    ///     println!("{}", member.name);
    /// }
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn view(&self) -> Option<Arc<View>> {
        lock(&self.inner.shared.seen).view.clone()
    }

    /// Waits until a view is installed: `.await` it, or `.wait()`.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-ready?keys=plain").wait()?;
    /// let view = session.ready().wait()?;
    /// println!("epoch {}", view.epoch.counter);
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn ready(&self) -> Call<'static, Result<Arc<View>>> {
        let timeout = self.inner.shared.url.options.wait;
        self.doing(timeout, Shared::late, |shared| {
            let seen = lock(&shared.seen);
            if let Some(why) = &seen.ended {
                return Some(Err(why.clone()));
            }
            match (&seen.view, &seen.excluded) {
                (_, Some(why)) => Some(Err(Error::excluded(why))),
                (Some(view), None) => Some(Ok(view.clone())),
                // The session goes on asking: somebody may leave, and that a group is full is not proved.
                (None, None) => None,
            }
        })
    }

    /// Why the group does not let us in, as far as it says: it has as many members as it may have.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-kept-out?keys=plain").wait()?;
    /// assert!(session.kept_out().is_none());
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn kept_out(&self) -> Option<Error> {
        self.inner.shared.kept_out()
    }

    /// Agrees on a new key for the same members.
    ///
    /// ```no_run
    /// let session = sealcast::open("udpm://239.255.76.67:7667").identity("desk").wait()?;
    /// let report = session.rotate().wait()?;
    /// println!("epoch {}, {} members", report.to.counter, report.members);
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn rotate(&self) -> Call<'static, Result<Report>> {
        self.change(Command::Rotate)
    }

    /// Makes those members of the group that are here its primary component, though most of the last one are missing: for an
    /// operator who knows that those are gone for good. If they are not, two parts may go on with two orders. Done when
    /// messages are ordered here; returns who orders them.
    ///
    /// ```no_run
    /// let session = sealcast::open("udpm://239.255.76.67:7667?order=total").identity("desk").wait()?;
    /// println!("{} orders from now on", session.force_primary().wait()?.name);
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn force_primary(&self) -> Call<'static, Result<sealcast_wire::Member>> {
        let shared = &self.inner.shared;
        let ordered = lock(&shared.seen).order.clone().and_then(|it| it.sequencer);
        let refused = if ordered.is_some() { None } else { shared.force_primary().err() };
        self.doing(CHANGE_TIMEOUT, not_done, move |shared| {
            let seen = lock(&shared.seen);
            let out = refused.clone().or_else(|| seen.excluded.as_ref().map(Error::excluded));
            out.map(Err).or_else(|| seen.order.clone().and_then(|it| it.sequencer).map(Ok))
        })
    }

    /// Evicts a member, named by its certificate or, if one only has it, by its name; the reason goes
    /// into the signed statement and every member's log.
    ///
    /// ```no_run
    /// let session = sealcast::open("udpm://239.255.76.67:7667").identity("desk").wait()?;
    /// session.evict("robot7", "lost").wait()?;
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn evict(&self, who: impl Into<Who>, reason: &str) -> Call<'static, Result<Report>> {
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
    ///
    /// ```no_run
    /// # let session = sealcast::open("udpm://239.255.76.67:7667").identity("desk").wait()?;
    /// let crl = std::fs::read("ward.crl").map_err(|e| sealcast::Error::system("ward.crl", &e))?;
    /// session.learn(crl)?;
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn learn(&self, object: Vec<u8>) -> Result<()> {
        self.inner.shared.command(Command::Learn(object))
    }

    /// Why nothing more comes of the session, if so.
    #[doc(hidden)]
    pub fn ended(&self) -> Option<Error> {
        self.inner.shared.ended()
    }

    /// Asks the key scheme for anything, for tests of schemes that have commands of their own.
    ///
    /// # Errors
    /// Those of the key scheme.
    /// What keeps the transport from working, where it knows.
    #[doc(hidden)]
    pub fn transport_trouble(&self) -> Option<Error> {
        self.inner.shared.transport_trouble(self.inner.shared.url.options.wait)
    }

    #[doc(hidden)]
    pub fn ask(&self, command: Command) -> Result<()> {
        self.inner.shared.command(command)
    }

    /// Leaves the group: done when our word has been taken in here; nothing can be published after it.
    ///
    /// ```no_run
    /// let session = sealcast::open("udpm://239.255.76.67:7667").identity("robot7").wait()?;
    /// session.leave().wait()?;
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn leave(&self) -> Call<'static, Result<()>> {
        let refused = self.inner.shared.command(Command::Leave).err();
        self.doing(LEAVE_TIMEOUT, not_left, move |shared| match &refused {
            Some(error) => Some(Err(error.clone())),
            None => lock(&shared.seen).excluded.is_some().then_some(Ok(())),
        })
    }

    /// Hands everything that was published to the kernel, at once; through an order, done when each message has its place or
    /// it is known why it has none, and late when nothing got a place for so long as publishing may take (`wait=` in the URL).
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-flush?keys=plain").wait()?;
    /// session.publish("log", "the last line").wait()?;
    /// session.flush().wait()?;
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn flush(&self) -> Call<'static, Result<()>> {
        let shared = &self.inner.shared;
        if let Some(tx_queue) = &shared.tx_queue {
            tx_queue.flush();
        }
        let (timeout, mut progress) = (shared.url.options.wait, self::core::Progress::default());
        // As long as there is progress.
        self.doing_until(Instant::now() + FOREVER, timeout, unordered, move |shared| match shared.unordered() {
            0 => Some(Ok(())),
            _ if shared.is_stuck(&mut progress, timeout) => Some(Err(unordered(shared, timeout))),
            _ => shared.ended().map(Err),
        })
    }

    /// Leaves the group, sends what is left and ends the session's threads; through an order, once each message has its place,
    /// or none got one for a while. Readers get what is in their queues, and then the end.
    ///
    /// How many messages have no place: they may get one still, or never. `0` where messages have none.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-close?keys=plain").wait()?;
    /// assert_eq!(session.close(), 0, "each message has its place, or needs none");
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn close(self) -> usize {
        self.inner.close()
    }

    /// Figures.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-stats?keys=plain").wait()?;
    /// session.publish("t", "x").wait()?;
    /// assert_eq!(session.stats().published, 1);
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.inner.shared.stats()
    }

    /// What is known of the group.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-info?keys=plain").wait()?;
    /// println!("{} as {}", session.info().group, session.info().me);
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn info(&self) -> Info {
        self.inner.shared.info()
    }

    /// What the key scheme knows of the group: members with their rights, compartments; `None` where it knows nothing.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-status?keys=plain").wait()?;
    /// assert!(session.status().is_none_or(|it| it.compartments.is_empty()), "no keys, no compartments");
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn status(&self) -> Option<Status> {
        self.inner.shared.status()
    }

    /// What happened in the group since we are in it, oldest first.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-log?keys=plain").wait()?;
    /// for entry in session.log() {
    ///     println!("{} {:?}", entry.at_micros, entry.event);
    /// }
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn log(&self) -> Vec<LogEntry> {
        self.inner.shared.log()
    }

    /// Why brokers gave a message of ours no place, if that came up: of the first such one. Who publishes `.ordered()` is told
    /// of each.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-refusal?keys=plain").wait()?;
    /// assert!(session.refusal().is_none());
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn refusal(&self) -> Option<Error> {
        self.inner.shared.tickets().refusal.and_then(|it| no_place(it).err())
    }

    /// What is not as it should be on this machine, with the line that repairs it.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-warnings?keys=plain").wait()?;
    /// for warning in session.warnings() {
    ///     eprintln!("{}: {}", warning.what, warning.hint);
    /// }
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn warnings(&self) -> Vec<Warning> {
        lock(&self.inner.shared.seen).warnings.clone()
    }

    /// The URL it was opened with.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-url?keys=plain").wait()?;
    /// assert_eq!(session.url().keys, sealcast::Scheme::Plain);
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn url(&self) -> &Url {
        &self.inner.shared.url
    }

    fn change(&self, command: Command) -> Call<'static, Result<Report>> {
        let begun = self.inner.shared.change(command);
        self.doing(CHANGE_TIMEOUT, not_done, move |shared| {
            let change = match &begun {
                Ok(change) => change,
                Err(error) => return Some(Err(error.clone())),
            };
            let excluded = lock(&shared.seen).excluded.as_ref().map(Error::excluded);
            excluded.map(Err).or_else(|| shared.report(change).map(Ok))
        })
    }

    /// The serial number of a member's certificate, if the scheme has such.
    fn serial_of(&self, who: &Who) -> Option<String> {
        let info = self.inner.shared.group_info();
        let mut members = info.members.into_iter();
        let found = match who {
            Who::Name(name) => members.find(|m| m.name == *name),
            Who::Cert(cert) => members.find(|m| m.certificate == hex::encode(cert.0)),
        };
        found.and_then(|m| m.serial)
    }

    /// Waits until a check answers, which is repeated when anything has changed; `late` says why it took too long.
    fn doing<T>(
        &self,
        timeout: Duration,
        late: fn(&Shared, Duration) -> Error,
        check: impl FnMut(&Shared) -> Option<Result<T>> + Send + 'static,
    ) -> Call<'static, Result<T>> {
        self.doing_until(Instant::now() + timeout, timeout, late, check)
    }

    fn doing_until<T>(
        &self,
        deadline: Instant,
        timeout: Duration,
        late: fn(&Shared, Duration) -> Error,
        mut check: impl FnMut(&Shared) -> Option<Result<T>> + Send + 'static,
    ) -> Call<'static, Result<T>> {
        let shared = self.inner.shared.clone();
        Call::new(async move {
            // A forked child has the same future (G4).
            let look = || shared.process.check().err().map(Err).or_else(|| check(&shared));
            let done = shared.changed.until(deadline, look).await;
            done.unwrap_or_else(|| Err(late(&shared, timeout)))
        })
    }
}

/// Something that will cost messages, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// What.
    pub what: String,
    /// The line to type.
    pub hint: String,
}

/// Whom to evict, or to let in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

impl From<String> for Who {
    fn from(name: String) -> Who {
        Who::Name(name)
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
        [] => Err(Error::new(Code::BadValue, format!("no member is named '{name}'")).with_remedy(Remedy::ListMembers)),
        _ => Err(Error::new(Code::BadValue, format!("several members are named '{name}'"))
            .with_remedy(Remedy::NameCertificate)),
    }
}

impl Inner {
    fn close(&self) -> usize {
        if !self.shared.process.is_ours() {
            // Threads, sockets and the local socket's file are the parent's. Nobody could join threads that are not here.
            std::mem::forget(std::mem::take(&mut *lock(&self.threads)));
            std::mem::forget(lock(&self.control).take());
            return 0;
        }
        let threads = std::mem::take(&mut *lock(&self.threads));
        if threads.is_empty() {
            return self.shared.unordered();
        }
        drop(lock(&self.control).take());
        let shared = &self.shared;
        if let Some(tx_queue) = &shared.tx_queue {
            tx_queue.flush();
        }
        shared.close();
        // A thread that has ended early drives no more.
        let left = || {
            // Let go before the driver is asked, whose holder may want it.
            let left = lock(&shared.seen).left;
            left.or_else(|| threads.iter().any(JoinHandle::is_finished).then(|| shared.unordered()))
        };
        let unordered = shared.changed.wait_until(Instant::now() + FOREVER, left).unwrap_or(0);
        if let Some(tx_queue) = &shared.tx_queue {
            tx_queue.close();
        }
        lock(&shared.seen).closed = true;
        shared.driver_lock.close();
        for thread in threads {
            // A panic in a session's thread was reported when it happened.
            let _ = thread.join();
        }
        let driver = shared.driver_lock.with(shared, |driver| {
            let driver = driver.take()?;
            let core = &driver.core;
            let (tickets, log, drops) = (core.tickets(), core.log().clone(), core.group().drops().clone());
            lock(&shared.seen).past = Past { tickets, log, drops };
            Some(driver)
        });
        shared.driver_lock.forget_sockets();
        if let Some(driver) = driver {
            driver.end(shared.clock.now());
        }
        shared.subscriptions.all().iter().for_each(|q| q.close(Error::closed()));
        lock(&shared.view_queues).iter().for_each(|q| q.close());
        shared.changed.ring();
        unordered
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

fn not_ready(timeout: Duration) -> Error {
    Error::new(Code::NotReady, format!("no key was agreed in {timeout:?}")).with_remedy(Remedy::CheckNetwork)
}

fn not_done(_: &Shared, timeout: Duration) -> Error {
    Error::new(Code::TimedOut, format!("not done within {timeout:?}")).with_remedy(Remedy::ShowGroup)
}

/// Where commits change the group, another member makes the one that we ask for.
fn not_left(_: &Shared, timeout: Duration) -> Error {
    let what = format!("no other member has taken us out within {timeout:?}");
    Error::new(Code::TimedOut, what).with_hint("we have asked for it: the next member that runs does it")
}

fn unordered(shared: &Shared, timeout: Duration) -> Error {
    let count = shared.unordered();
    let what = format!("{count} of our messages have no place in the order, and none got one for {timeout:?}");
    Error::new(Code::TimedOut, what).with_remedy(Remedy::ShowOrder)
}

/// How long a rotation or eviction may take.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long leaving may take.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// No deadline: a year.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);
