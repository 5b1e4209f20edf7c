//! Opening a session: the URL read, the key scheme and the way made, the threads started.

use std::future::IntoFuture;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealcast_delivery::Delivery;
use sealcast_delivery::multicast::{Config, Multicast};
use sealcast_keys::Keys;
use sealcast_keys::plain::Plain;
use sealcast_wire::Incarnation;

use super::changed::Changed;
use super::driver::{Driver, WAKER};
use super::lease::Lease;
use super::line::Line;
use super::{Inner, Seen, Session, Shared};
use crate::code::Code;
use crate::config::{Contexts, Home};
use crate::error::{Error, Result};
use crate::group::{Group, lock};
use crate::io::clock::Clock;
use crate::io::rng;
use crate::io::udp::{self, UdpSender};
use crate::url::{OriginMode, Scheme, Url, Way};

/// Begins to open a session: `target` is a URL or the name of a context.
pub fn open(target: &str) -> Opening {
    Opening { target: Some(target.to_owned()), identity: None, origin: None, linger: None, control: None, home: None }
}

/// A session about to be opened: `.await` it, or `.wait()`.
#[must_use = "nothing is opened unless it is awaited or .wait() is called"]
#[derive(Debug)]
pub struct Opening {
    target: Option<String>,
    identity: Option<Identity>,
    origin: Option<OriginMode>,
    linger: Option<Duration>,
    control: Option<PathBuf>,
    home: Option<Home>,
}

/// Who we are: the name of an identity of this user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Found in the user's configuration folder.
    Named(String),
}

impl From<&str> for Identity {
    fn from(name: &str) -> Identity {
        Identity::Named(name.to_owned())
    }
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

    /// Lets other processes of this user control the session through a local socket at this path (A7).
    pub fn control_socket(mut self, path: impl Into<PathBuf>) -> Opening {
        self.control = Some(path.into());
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
    pub fn wait(self) -> Result<Session> {
        let home = self.home.clone().unwrap_or_else(Home::from_env);
        let mut url = self.url(&home)?;
        if let Some(origin) = self.origin {
            url.options.origin = origin;
        }
        if let Some(linger) = self.linger {
            url.options.linger = linger;
        }
        let (keys, me, group_name) = self.keys(&url)?;
        start(url, keys, me, group_name)
    }

    fn url(&self, home: &Home) -> Result<Url> {
        match &self.target {
            Some(target) if target.contains(':') => Url::parse(target),
            Some(name) => {
                let contexts = Contexts::load(home)?;
                let context = contexts.context.get(name).ok_or_else(|| {
                    Error::new(Code::Missing, format!("there is no context «{name}»")).with_hint("sealcast ctx ls")
                })?;
                Url::parse(&context.url)
            }
            None => Url::default_of(None),
        }
    }

    fn keys(&self, url: &Url) -> Result<(Box<dyn Keys>, String, String)> {
        match url.keys {
            Scheme::Plain => {
                let me = match &self.identity {
                    Some(Identity::Named(name)) => name.clone(),
                    None => "anonymous".to_owned(),
                };
                let incarnation = Incarnation(rng::bytes()?);
                Ok((Box::new(Plain::new(&me, incarnation)), me, url.options.group.clone().unwrap_or_default()))
            }
            Scheme::Contributory => match &self.identity {
                None => Err(Error::new(Code::NoIdentity, format!("{url}: a sealed group needs an identity")).with_hint(
                    "sealcast init NAME makes one; keys=plain in the URL sends everything in clear, readable by all",
                )),
                Some(Identity::Named(name)) => {
                    Err(Error::new(Code::NoIdentity, format!("there is no identity «{name}»"))
                        .with_hint("sealcast id ls"))
                }
            },
        }
    }
}

impl IntoFuture for Opening {
    type Output = Result<Session>;
    type IntoFuture = std::future::Ready<Result<Session>>;

    fn into_future(self) -> Self::IntoFuture {
        std::future::ready(self.wait())
    }
}

fn start(url: Url, keys: Box<dyn Keys>, me: String, group_name: String) -> Result<Session> {
    let clock = Clock::start();
    let (delivery, sender) = match url.way {
        Way::Multicast(address) => {
            let plain = url.keys == Scheme::Plain;
            let mut config = Config { segment: udp::segment(address, &url.options)?, plain, ..Config::default() };
            config.detect = url.options.detect.unwrap_or(config.detect);
            let mut multicast = Multicast::new(config);
            multicast.transmitted_by_shell();
            let sender = multicast.sender();
            (Box::new(multicast) as Box<dyn Delivery>, Some((sender, UdpSender::open(address, &url.options)?)))
        }
        Way::Memory { .. } => {
            return Err(Error::new(Code::BadUrl, format!("{url}: mem: carries only what is inside one process")));
        }
    };
    let group = Group::new(keys, delivery, url.options.origin)?;
    let gate = group.gate();
    let (linger, batch) = (url.options.linger, url.options.batch);
    let line = sender.map(|(sender, udp)| Line::new(gate.clone(), sender, udp, clock, linger, batch));
    let poll = mio::Poll::new().map_err(|e| Error::system("waiting for sockets", &e))?;
    let waker = mio::Waker::new(poll.registry(), WAKER).map_err(|e| Error::system("waking a thread", &e))?;
    let sealed = url.keys != Scheme::Plain;
    let shared = Arc::new(Shared {
        url,
        group_name,
        me,
        clock,
        lease: Lease::new(waker),
        line,
        gate,
        changed: Changed::default(),
        queues: Mutex::default(),
        generation: AtomicU64::new(1),
        view_queues: Mutex::default(),
        seen: Mutex::new(Seen::default()),
        delivered: AtomicU64::new(0),
        published: AtomicU64::new(0),
        missed: AtomicU64::new(0),
    });
    let mut driver = Driver::new(group, poll);
    driver.pump(&shared, clock.now());
    shared.lease.install(driver);
    if sealed {
        shared.listen()?;
    }
    let session = Session { inner: Arc::new(Inner { shared: shared.clone(), threads: Mutex::default() }) };
    let mut threads = lock(&session.inner.threads);
    threads.push(spawn("sealcast", shared.clone(), |shared| shared.lease.run(shared))?);
    if shared.line.is_some() {
        threads.push(spawn("sealcast-flush", shared, |shared| {
            if let Some(line) = &shared.line {
                line.run_flusher();
            }
        })?);
    }
    drop(threads);
    Ok(session)
}

fn spawn(
    name: &str,
    shared: Arc<Shared>,
    body: impl FnOnce(&Shared) + Send + 'static,
) -> Result<std::thread::JoinHandle<()>> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(move || body(&shared));
    spawned.map_err(|e| Error::system("starting a thread", &e))
}
