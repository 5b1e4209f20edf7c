//! Opening a session: the URL read, keys and transport made and joined, the threads started.

use std::future::{Future, IntoFuture};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use sealcast_crypto::identity::{Identity as LoadedIdentity, Principal};
use sealcast_delivery::Delivery;
use sealcast_keys::Keys;

use zeroize::Zeroizing;

use super::changed::Changed;
use super::control::Controlled;
use super::core::Core;
use super::driver::{Driver, Sockets, WAKER};
use super::driver_lock::DriverLock;
use super::loopback_filter::LoopbackFilter;
use super::parts::Parts;
#[cfg(feature = "brokers")]
use super::parts::Purpose;
use super::shared::{Seen, Shared};
use super::transports::{self, Transport};
use super::{Inner, Session};
use crate::code::Code;
use crate::config::{Contexts, Home, KeptIdentity};
use crate::control::Server;
use crate::error::{Error, Result};
use crate::group::{Group, lock};
use crate::io::clock::Clock;
use crate::io::process::Process;
use crate::remedy::Remedy;
use crate::url::{Join, OriginMode, Url};

/// Begins to open a session: `target` is a URL or the name of a context.
///
/// ```
/// let session = sealcast::open("mem:doc-open?keys=plain").wait()?;
/// # Ok::<(), sealcast::Error>(())
/// ```
pub fn open(target: &str) -> Opening {
    Opening {
        target: target.to_owned(),
        identity: None,
        passphrase: None,
        origin: None,
        linger: None,
        join: None,
        control: None,
        home: None,
        one_shot: false,
        timeout: None,
        #[cfg(feature = "brokers")]
        client: None,
    }
}

/// A session about to be opened: `.await` it, or `.wait()`.
#[must_use = "nothing is opened unless it is awaited or .wait() is called"]
#[derive(Clone, Debug)]
pub struct Opening {
    target: String,
    pub(super) identity: Option<Identity>,
    pub(super) passphrase: Option<Arc<Zeroizing<String>>>,
    origin: Option<OriginMode>,
    linger: Option<Duration>,
    join: Option<Join>,
    timeout: Option<Duration>,
    pub(super) control: Option<PathBuf>,
    home: Option<Home>,
    one_shot: bool,
    /// What it is for, if it is a client of brokers by itself.
    #[cfg(feature = "brokers")]
    pub(super) client: Option<Purpose>,
}

/// Who we are.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Identity {
    /// The name of an identity of this user, found in the configuration folder. Its session opens a local
    /// socket, and what must outlive a crash is kept in the state folder.
    Named(String),
    /// An identity's file.
    File(PathBuf),
    /// As one of these was read, and perhaps changed since.
    Kept(Arc<KeptIdentity>),
    /// In memory; nothing is kept on disk.
    Loaded(Arc<LoadedIdentity>),
    /// A principal of a key distribution centre, in memory, for `keys=center`.
    Principal(Arc<Principal>),
}

impl From<&str> for Identity {
    fn from(name: &str) -> Identity {
        Identity::Named(name.to_owned())
    }
}

impl From<Arc<LoadedIdentity>> for Identity {
    fn from(held: Arc<LoadedIdentity>) -> Identity {
        Identity::Loaded(held)
    }
}

impl Opening {
    /// As whom.
    ///
    /// ```no_run
    /// let session = sealcast::open("udpm://239.255.76.67:7667?ttl=1").identity("robot7").wait()?;
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn identity(mut self, identity: impl Into<Identity>) -> Opening {
        self.identity = Some(identity.into());
        self
    }

    /// The pass phrase that seals the secrets of a principal's file, for `keys=center`.
    ///
    /// ```no_run
    /// let url = "udpm://239.255.76.67:7667?keys=center&kdc=192.0.2.7:7680";
    /// let session = sealcast::open(url).identity("robot7").passphrase("correct horse").wait()?;
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn passphrase(mut self, passphrase: impl Into<String>) -> Opening {
        self.passphrase = Some(Arc::new(Zeroizing::new(passphrase.into())));
        self
    }

    /// When messages carry their sender's signature; else as the URL's `origin=` says. It concerns what this session
    /// publishes: what it receives tells by [`Message::origin`](crate::Message::origin) how well its sender is proved.
    ///
    /// ```no_run
    /// use sealcast::OriginMode;
    ///
    /// let session = sealcast::open("udpm://239.255.76.67:7667").identity("robot7").origin(OriginMode::Signed).wait()?;
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn origin(mut self, origin: OriginMode) -> Opening {
        self.origin = Some(origin);
        self
    }

    /// How long a message may wait for company; else as the URL says.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// let session = sealcast::open("udpm://239.255.76.67:7667?keys=plain").linger(Duration::from_millis(5)).wait()?;
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn linger(mut self, linger: Duration) -> Opening {
        self.linger = Some(linger);
        self
    }

    /// How it comes into a group whose members let others in; else as the URL says (`join=`).
    ///
    /// ```no_run
    /// use sealcast::url::Join;
    ///
    /// let session = sealcast::open("relay").identity("desk").join(Join::Create).wait()?;
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn join(mut self, join: Join) -> Opening {
        self.join = Some(join);
        self
    }

    /// How long its calls may take; else as the URL says (`wait=`).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let session = sealcast::open("mem:doc-timeout?keys=plain").timeout(Duration::from_secs(1)).wait()?;
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Opening {
        self.timeout = Some(timeout);
        self
    }

    /// Where other processes of this user control the session (A7); else, for an identity on disk, in
    /// the user's runtime folder.
    pub fn control_socket(mut self, path: impl Into<PathBuf>) -> Opening {
        self.control = Some(path.into());
        self
    }

    /// The session ends by itself in a moment: another process that wants to run with its identity may wait for that.
    pub fn one_shot(mut self) -> Opening {
        self.one_shot = true;
        self
    }

    /// Where contexts and identities are; else as the environment says.
    ///
    /// ```no_run
    /// use sealcast::Home;
    ///
    /// let home = Home::at("/srv/robot".as_ref());
    /// let session = sealcast::open("udpm://239.255.76.67:7667").home(home).identity("robot7").wait()?;
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn home(mut self, home: Home) -> Opening {
        self.home = Some(home);
        self
    }

    /// Opens it on this thread. The group may still be forming: see [`Session::ready`].
    ///
    /// # Errors
    /// What is wrong with URL, identity or network, each with a hint.
    pub fn wait(mut self) -> Result<Session> {
        let home = self.home.take().unwrap_or_else(Home::from_env);
        let mut url = self.url(&home)?;
        if let Some(origin) = self.origin {
            url.options.origin = origin;
        }
        if let Some(linger) = self.linger {
            url.options.linger = linger;
        }
        if let Some(join) = self.join {
            url.options.join = join;
        }
        if let Some(timeout) = self.timeout {
            url.options.wait = timeout;
        }
        let clock = Clock::start();
        let parts = Parts::of(&self, &url, &home, clock)?;
        start(url, parts, Some(home), clock, self.one_shot)
    }

    fn url(&mut self, home: &Home) -> Result<Url> {
        if self.target.contains(':') {
            return Url::parse(&self.target);
        }
        let contexts = Contexts::load(home)?;
        let context = contexts.context.get(&self.target).ok_or_else(|| {
            Error::new(Code::Missing, format!("there is no context '{}'", self.target))
                .with_remedy(Remedy::ListContexts)
        })?;
        if self.identity.is_none() {
            self.identity = context.id.clone().map(Identity::Named);
        }
        Url::parse(&context.url)
    }
}

impl IntoFuture for Opening {
    type Output = Result<Session>;
    type IntoFuture = Opened;

    fn into_future(self) -> Opened {
        Opened { opening: Some(self), done: Arc::default() }
    }
}

/// A session being opened by a thread of its own: files are read, and sockets made.
pub struct Opened {
    opening: Option<Opening>,
    done: Arc<Mutex<Done>>,
}

/// What the thread leaves, and whom it wakes.
#[derive(Default)]
struct Done {
    session: Option<Result<Session>>,
    waker: Option<Waker>,
}

impl Future for Opened {
    type Output = Result<Session>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(opening) = self.opening.take() {
            let done = self.done.clone();
            let open = move || {
                let session = opening.wait();
                let waker = {
                    let mut done = lock(&done);
                    done.session = Some(session);
                    done.waker.take()
                };
                waker.into_iter().for_each(Waker::wake);
            };
            if let Err(e) = std::thread::Builder::new().name("sealcast-open".to_owned()).spawn(open) {
                return Poll::Ready(Err(Error::system("starting a thread", &e)));
            }
        }
        let mut done = lock(&self.done);
        match done.session.take() {
            Some(session) => Poll::Ready(session),
            None => {
                done.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// A session of any keys over any transport, for tests of both: its datagrams go to all sessions of this process that name the
/// same place, and an orderer of `mem:` has the address 0 there.
///
/// # Errors
/// [`Code::BadPair`] if the transport does not give what the keys need.
#[doc(hidden)]
pub fn open_parts(place: &str, me: &str, keys: Box<dyn Keys>, delivery: Box<dyn Delivery>) -> Result<Session> {
    let url = Url::parse(&format!("mem:{place}"))?;
    let (me, group) = (me.to_owned(), String::new());
    let parts = Parts { keys, me, group, store: None, identity: None, rights: None, control: None, reach: None };
    let at_hub = |_: &mio::Registry, waker: &Arc<mio::Waker>| Ok(transports::at_hub(place, delivery, waker));
    start_over(url, parts, Clock::start(), false, at_hub)
}

/// A session over its URL's transport; `home` is where its user's files are.
pub(super) fn start(url: Url, mut parts: Parts, home: Option<Home>, clock: Clock, one_shot: bool) -> Result<Session> {
    let (of_url, reach) = (url.clone(), parts.reach.take());
    let record = parts.store.as_ref().and_then(|store| store.record_of_transport());
    let home = home.filter(|_| parts.store.is_some());
    let meeting = transports::Meeting { group: parts.group.clone(), identity: parts.identity.clone(), record, home };
    start_over(url, parts, clock, one_shot, |registry, waker| {
        transports::open(&of_url, (reach, meeting), clock, registry, waker)
    })
}

pub(super) fn start_over(
    url: Url,
    parts: Parts,
    clock: Clock,
    one_shot: bool,
    transport: impl FnOnce(&mio::Registry, &Arc<mio::Waker>) -> Result<Transport>,
) -> Result<Session> {
    let Parts { keys, me, group: group_name, store, identity, rights, control, reach: _ } = parts;
    let poll = mio::Poll::new().map_err(|e| Error::system("waiting for sockets", &e))?;
    let waker = mio::Waker::new(poll.registry(), WAKER).map_err(|e| Error::system("waking a thread", &e))?;
    let waker = Arc::new(waker);
    let Transport { delivery, shell, brokers } = transport(poll.registry(), &waker)?;
    let transport = delivery.properties();
    let group = Group::new(keys, delivery, url.options.origin)?;
    let gate = group.gate();
    let core = Core::new(group);
    let (shell, tx_queue) = shell(gate.clone());
    let has_views = url.has_views();
    let shared = Arc::new(Shared {
        url,
        group_name,
        me,
        identity,
        rights,
        one_shot,
        clock,
        process: Process::current(),
        driver_lock: DriverLock::new(waker.clone()),
        tx_queue,
        transport,
        brokers,
        gate,
        changed: Changed::new(waker),
        subscriptions: core.subscriptions(),
        loopback_filter: LoopbackFilter::default(),
        view_queues: Mutex::default(),
        seen: Mutex::new(Seen::default()),
        delivered: AtomicU64::new(0),
        published: AtomicU64::new(0),
        missed: AtomicU64::new(0),
        failed_receives: AtomicU64::new(0),
        outcomes: Mutex::default(),
        reliable: core.beside(),
        acknowledged: AtomicU64::new(0),
        doubtful: Mutex::default(),
    });
    let registry = poll.registry().try_clone().map_err(|e| Error::system("waiting for sockets", &e))?;
    let mut driver = Driver::new(core, shell, store, registry);
    driver.pump(&shared, clock.now());
    shared.driver_lock.install(driver, Sockets::new(poll));
    if has_views {
        shared.listen()?;
    }
    let inner = Inner { shared: shared.clone(), threads: Mutex::default(), control: Mutex::default() };
    let session = Session { inner: Arc::new(inner) };
    if let Some(path) = control {
        let server = Server::open(&path, Arc::new(Controlled::new(&session.inner)))?;
        *lock(&session.inner.control) = Some(server);
    }
    let mut threads = lock(&session.inner.threads);
    threads.push(spawn("sealcast", shared.clone(), |shared| shared.driver_lock.run(shared))?);
    if shared.tx_queue.is_some() {
        threads.push(spawn("sealcast-flush", shared, |shared| {
            if let Some(tx_queue) = &shared.tx_queue {
                // Threads look again by themselves, but not at once.
                let sent = |is_over| {
                    if is_over || shared.changed.awaited() {
                        shared.changed.ring();
                    }
                };
                tx_queue.run_flusher(sent);
            }
        })?);
    }
    drop(threads);
    Ok(session)
}

fn spawn(name: &str, shared: Arc<Shared>, body: impl FnOnce(&Shared) + Send + 'static) -> Result<JoinHandle<()>> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(move || body(&shared));
    spawned.map_err(|e| Error::system("starting a thread", &e))
}
