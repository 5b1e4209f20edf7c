//! Opening a session: the URL read, the key scheme and the way made, the threads started.

use std::future::{Future, IntoFuture};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use mio::Registry;
use sealcast_crypto::identity::{CertificateError, Identity as Held};
use sealcast_delivery::memory::{BestEffort, Ordered, Start};
use sealcast_delivery::multicast::{Config, Multicast, Sender};
use sealcast_keys::Keys;
use sealcast_wire::CertHash;

use super::changed::Changed;
use super::control::Controlled;
use super::driver::{Driver, Road, WAKER};
use super::lease::Lease;
use super::line::Line;
use super::memory::{Door, ORDERER};
use super::own::Own;
use super::schemes;
use super::shared::{Seen, Shared};
use super::through::{self, Later, Reach, Through};
use super::waiting::Waiting;
use super::way::Way as Going;
use super::{Inner, Session};
use crate::brokers;
use crate::code::Code;
use crate::config::{Contexts, Home, KeptIdentity, Voucher};
use crate::control::{Server, socket_path};
use crate::error::{Error, Result};
use crate::group::{Group, lock};
use crate::io::clock::{self, Clock};
use crate::io::process::Process;
use crate::io::rng;
use crate::io::store::Store;
use crate::io::udp::{self, UdpSender};
use crate::url::{self, OriginMode, Scheme, Url, Way};

/// Begins to open a session: `target` is a URL or the name of a context.
pub fn open(target: &str) -> Opening {
    Opening {
        target: target.to_owned(),
        identity: None,
        origin: None,
        linger: None,
        control: None,
        home: None,
        one_shot: false,
    }
}

/// A session about to be opened: `.await` it, or `.wait()`.
#[must_use = "nothing is opened unless it is awaited or .wait() is called"]
#[derive(Debug)]
pub struct Opening {
    target: String,
    identity: Option<Identity>,
    origin: Option<OriginMode>,
    linger: Option<Duration>,
    control: Option<PathBuf>,
    home: Option<Home>,
    one_shot: bool,
}

/// Who we are.
#[derive(Clone, Debug)]
pub enum Identity {
    /// The name of an identity of this user, found in the configuration folder. Its session opens a local
    /// socket, and what must outlive a crash is kept in the state folder.
    Named(String),
    /// An identity's file.
    File(PathBuf),
    /// In memory; nothing is kept on disk.
    Held(Arc<Held>),
}

impl From<&str> for Identity {
    fn from(name: &str) -> Identity {
        Identity::Named(name.to_owned())
    }
}

impl From<Arc<Held>> for Identity {
    fn from(held: Arc<Held>) -> Identity {
        Identity::Held(held)
    }
}

/// An identity, loaded.
struct Loaded {
    held: Arc<Held>,
    /// Signed objects that were kept with it.
    statements: Vec<Vec<u8>>,
    /// What others say of it to brokers.
    vouchers: Vec<Voucher>,
    /// Whether it is this user's, on disk.
    kept: bool,
}

/// Somebody who may be in a contributory group.
struct Member {
    held: Arc<Held>,
    statements: Vec<Vec<u8>>,
    vouchers: Vec<Voucher>,
    group: String,
    store: Option<Store>,
    control: Option<PathBuf>,
    me: String,
}

/// What a key scheme was made from, and what goes with it.
struct Made {
    machine: Box<dyn Keys>,
    me: String,
    group: String,
    store: Option<Store>,
    identity: Option<Arc<Held>>,
    control: Option<PathBuf>,
    reach: Option<Reach>,
}

impl Opening {
    /// As whom.
    pub fn identity(mut self, identity: impl Into<Identity>) -> Opening {
        self.identity = Some(identity.into());
        self
    }

    /// When origins are signed; else as the URL says.
    pub fn origin(mut self, origin: OriginMode) -> Opening {
        self.origin = Some(origin);
        self
    }

    /// How long a message may wait for company; else as the URL says.
    pub fn linger(mut self, linger: Duration) -> Opening {
        self.linger = Some(linger);
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
        let clock = Clock::start();
        let made = match url.keys {
            _ if matches!(url.way, Way::Quorum(_)) => self.through_brokers(&url, &home, clock)?,
            Scheme::Plain => self.plain(&url)?,
            Scheme::Contributory => self.contributory(&url, &home, clock)?,
            Scheme::Threshold => return Err(url::needs_brokers(&url.to_string())),
        };
        start(url, made, clock, self.one_shot)
    }

    fn url(&mut self, home: &Home) -> Result<Url> {
        if self.target.contains(':') {
            return Url::parse(&self.target);
        }
        let contexts = Contexts::load(home)?;
        let context = contexts.context.get(&self.target).ok_or_else(|| {
            Error::new(Code::Missing, format!("there is no context «{}»", self.target)).with_hint("sealcast ctx ls")
        })?;
        if self.identity.is_none() {
            self.identity = context.id.clone().map(Identity::Named);
        }
        Url::parse(&context.url)
    }

    fn plain(&self, url: &Url) -> Result<Made> {
        let me = match &self.identity {
            Some(Identity::Named(name)) => name.clone(),
            Some(Identity::Held(held)) => held.certificate().name.to_string(),
            Some(Identity::File(_)) | None => "anonymous".to_owned(),
        };
        let machine = schemes::plain(&me)?;
        let group = url.options.group.clone().unwrap_or_default();
        Ok(Made { machine, me, group, store: None, identity: None, control: self.control.clone(), reach: None })
    }

    fn load(&self, url: &Url, home: &Home) -> Result<Loaded> {
        let kept = match &self.identity {
            None => {
                let (what, hint) = match url.way {
                    Way::Quorum(_) => (
                        "brokers let in whom an issuer of theirs vouches for: an identity is needed",
                        "sealcast ca issue NAME --ca ISSUER; the cluster file names the issuers",
                    ),
                    Way::Multicast(_) | Way::Memory { .. } => (
                        "a sealed group needs an identity",
                        "sealcast init NAME makes one; keys=plain in the URL sends everything in clear, readable by all",
                    ),
                };
                return Err(Error::new(Code::NoIdentity, format!("{url}: {what}")).with_hint(hint));
            }
            Some(Identity::Held(held)) => {
                let held = held.clone();
                return Ok(Loaded { held, statements: Vec::new(), vouchers: Vec::new(), kept: false });
            }
            Some(Identity::Named(name)) => KeptIdentity::load(home, name).map_err(|e| {
                let error = Error::from(e);
                if error.code() == Code::Missing {
                    Error::new(Code::NoIdentity, format!("there is no identity «{name}»")).with_hint("sealcast id ls")
                } else {
                    error
                }
            })?,
            Some(Identity::File(path)) => KeptIdentity::read(path)?,
        };
        let held = kept.identity()?.ok_or_else(|| {
            let name = kept.name();
            Error::new(Code::NoIdentity, format!("the identity «{name}» has no certificate yet")).with_hint(format!(
                "the holder of the authority types: sealcast invite --for {}; then here: sealcast join FILE",
                kept.secret.public()
            ))
        })?;
        let statements = kept.membership.and_then(|m| m.policy).into_iter().collect();
        Ok(Loaded { held: Arc::new(held), statements, vouchers: kept.vouchers, kept: true })
    }

    fn contributory(&self, url: &Url, home: &Home, clock: Clock) -> Result<Made> {
        let Member { held, statements, group, store, control, me, .. } = self.member(url, home, clock)?;
        let records = store.as_ref().map(Store::records).unwrap_or_default();
        let machine = schemes::contributory(url, &group, held.clone(), statements, &records, clock.now())?;
        Ok(Made { machine, me, group, store, identity: Some(held), control, reach: None })
    }

    /// A client of brokers: an issuer that they know must vouch for it, whoever holds the keys.
    fn through_brokers(&self, url: &Url, home: &Home, clock: Clock) -> Result<Made> {
        let Way::Quorum(path) = &url.way else { return Err(Error::closed()) };
        let cluster = brokers::load_named(path, &url.options)?;
        let (held, vouchers, kept, group, later, made) = if url.keys == Scheme::Contributory {
            let Member { held, statements, vouchers, group, store, control, me } = self.member(url, home, clock)?;
            let records = store.as_ref().map(Store::records).unwrap_or_default();
            let (identity, name, url) = (held.clone(), group.clone(), url.clone());
            let make = move |now| schemes::contributory(&url, &name, identity, statements, &records, now);
            let kept = store.is_some();
            let made = (me, store, Some(held.clone()), control);
            (held, vouchers, kept, group, Later::Contributory(Box::new(make)), made)
        } else {
            let Loaded { held, vouchers, kept, .. } = self.load(url, home)?;
            let me = held.certificate().name.to_string();
            let later = if url.keys == Scheme::Plain { Later::Plain(me.clone()) } else { Later::Threshold(me.clone()) };
            let group = url.options.group.clone().unwrap_or_default();
            (held, vouchers, kept, group, later, (me, None, None, self.control.clone()))
        };
        let key = if kept {
            brokers::ClientKey::of(home, &cluster.cluster(), &held.certificate().hash, brokers::Purpose::Session)?
        } else {
            brokers::ClientKey::fresh()?
        };
        let at = clock.now().utc.unwrap_or(clock::FLOOR);
        let registrations = brokers::registrations(&cluster, &held, &vouchers, &key.client(), at);
        if registrations.is_empty() {
            let (who, of) = (&held.certificate().name, held.anchor().certificate().name());
            let what = format!("{who} has its certificate of {of}, which is no issuer of these brokers");
            let issuers: Vec<&str> = cluster.genesis.issuers.keys().map(String::as_str).collect();
            let hint = format!("their issuers are {}; --id NAME", issuers.join(", "));
            return Err(Error::new(Code::Denied, what).with_hint(hint));
        }
        let cargo = through::cargo(url.keys, &group);
        let reach = Some(Reach { cluster, key, registrations, cargo, later });
        let (me, store, identity, control) = made;
        Ok(Made { machine: Box::new(Waiting), me, group, store, identity, control, reach })
    }

    /// A member of a contributory group.
    fn member(&self, url: &Url, home: &Home, clock: Clock) -> Result<Member> {
        let Loaded { held, statements, vouchers, kept } = self.load(url, home)?;
        let certificate = held.certificate();
        held.anchor().check(certificate, clock.now().utc, clock::FLOOR).map_err(|e| over(&certificate.name, e))?;
        let group = match &url.options.group {
            Some(group) => group.clone(),
            None => {
                let groups = certificate.rights.groups();
                let mut names = groups.iter();
                match (names.next(), names.next()) {
                    (Some(only), None) => (*only).to_owned(),
                    _ => {
                        return Err(Error::new(
                            Code::BadUrl,
                            format!("{url}: which group? {} has rights in {}", certificate.name, several(&groups)),
                        )
                        .with_hint("add &group=NAME to the URL"));
                    }
                }
            }
        };
        let store = if kept { Some(Store::open(&records_path(home, &certificate.hash, &group))?) } else { None };
        let control = match &self.control {
            Some(path) => Some(path.clone()),
            None => kept.then(|| socket_path(home, &certificate.hash, &group)),
        };
        let me = certificate.name.to_string();
        Ok(Member { held, statements, vouchers, group, store, control, me })
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

fn over(name: &str, error: CertificateError) -> Error {
    let code = match error {
        CertificateError::Revoked => Code::Excluded,
        CertificateError::Expired | CertificateError::NotYetValid => Code::CertificateExpired,
        _ => Code::Authority,
    };
    Error::new(code, format!("the certificate of {name}: {error}")).with_hint("sealcast id show")
}

fn several(groups: &std::collections::BTreeSet<&str>) -> String {
    if groups.is_empty() { "no group".to_owned() } else { groups.iter().copied().collect::<Vec<_>>().join(", ") }
}

fn records_path(home: &Home, certificate: &CertHash, group: &str) -> PathBuf {
    let socket = socket_path(home, certificate, group);
    home.state().join(socket.file_stem().unwrap_or_default()).with_extension("records")
}

/// What publishers' threads use directly.
type Sending = (Arc<Mutex<Sender>>, UdpSender);

/// The way of a URL: its machine, what publishers use directly, and where datagrams come from.
fn way(url: &Url, reach: Option<Reach>, clock: Clock, registry: &Registry) -> Result<(Going, Option<Sending>, Road)> {
    let plain = url.keys == Scheme::Plain;
    match &url.way {
        Way::Multicast(address) => {
            let mut config = Config { segment: udp::segment(*address, &url.options)?, plain, ..Config::default() };
            config.detect = url.options.detect.unwrap_or(config.detect);
            let mut multicast = Multicast::new(config);
            multicast.transmitted_by_shell();
            let sender = multicast.sender();
            let udp = UdpSender::open(*address, &url.options)?;
            Ok((Going::Multicast(Box::new(multicast)), Some((sender, udp)), Road::Closed))
        }
        Way::Quorum(_) => {
            let reach = reach.ok_or_else(|| url::needs_brokers(&url.to_string()))?;
            let (through, way) = Through::open(reach, clock.now(), registry)?;
            Ok((Going::Brokers(Box::new(way)), None, Road::Brokers(Box::new(through))))
        }
        Way::Memory { name, ordered } => {
            let first = || Ok::<_, Error>(u64::from_be_bytes(rng::bytes()?));
            let machine = match (ordered, plain) {
                (true, true) => Going::Ordered(Box::new(Ordered::plain(ORDERER, Start::Head, first()?))),
                (true, false) => Going::Ordered(Box::new(Ordered::placing(ORDERER, Start::Head, first()?))),
                (false, true) => Going::BestEffort(Box::new(BestEffort::plain())),
                (false, false) => Going::BestEffort(Box::new(BestEffort::new())),
            };
            Ok((machine, None, Road::Memory(Door::enter(name))))
        }
    }
}

fn start(url: Url, made: Made, clock: Clock, one_shot: bool) -> Result<Session> {
    let Made { machine, me, group: group_name, store, identity, control, reach } = made;
    let poll = mio::Poll::new().map_err(|e| Error::system("waiting for sockets", &e))?;
    let (delivery, sender, road) = way(&url, reach, clock, poll.registry())?;
    let group = Group::new(machine, delivery, url.options.origin)?;
    let gate = group.gate();
    let (linger, batch) = (url.options.linger, url.options.batch);
    let line = sender.map(|(sender, udp)| Line::new(gate.clone(), sender, udp, clock, linger, batch));
    let waker = mio::Waker::new(poll.registry(), WAKER).map_err(|e| Error::system("waking a thread", &e))?;
    let sealed = url.keys != Scheme::Plain;
    let shared = Arc::new(Shared {
        url,
        group_name,
        me,
        identity,
        one_shot,
        clock,
        process: Process::current(),
        lease: Lease::new(waker),
        line,
        gate,
        changed: Changed::default(),
        queues: Mutex::default(),
        own: Own::default(),
        generation: AtomicU64::new(1),
        view_queues: Mutex::default(),
        seen: Mutex::new(Seen::default()),
        delivered: AtomicU64::new(0),
        published: AtomicU64::new(0),
        missed: AtomicU64::new(0),
        failed_receives: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        settled: AtomicU64::new(0),
        outcomes: Mutex::default(),
    });
    if let Road::Memory(door) = &road {
        door.attend(&shared);
    }
    let mut driver = Driver::new(group, road, store, poll);
    driver.pump(&shared, clock.now());
    shared.lease.install(driver);
    if sealed {
        shared.listen()?;
    }
    let inner = Inner { shared: shared.clone(), threads: Mutex::default(), control: Mutex::default() };
    let session = Session { inner: Arc::new(inner) };
    if let Some(path) = control {
        let server = Server::open(&path, Arc::new(Controlled::new(&session.inner)))?;
        *lock(&session.inner.control) = Some(server);
    }
    let mut threads = lock(&session.inner.threads);
    threads.push(spawn("sealcast", shared.clone(), |shared| shared.lease.run(shared))?);
    if shared.line.is_some() {
        threads.push(spawn("sealcast-flush", shared, |shared| {
            if let Some(line) = &shared.line {
                let sent = || {
                    if shared.changed.awaited() {
                        shared.changed.ring();
                    }
                };
                line.run_flusher(sent);
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
