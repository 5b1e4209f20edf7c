//! The engine among 3f+1 brokers: upstream's simplex and marshal, over its own authenticated links, on its own runtime.
//!
//! ```text
//! submit ─▶ application's pool ──forward──▶ leader: draw ─▶ block ─▶ broadcast ─▶ all: valid? ─▶ 2f+1 votes, twice
//!                                                                                    │
//! deliver ◀── by height, durable, until acknowledged ◀── archive ◀── final ◀─────────┘
//! ```
//!
//! [`Engine`] is an `Order`. `stack` puts it together for any runtime and links; this file runs it on tokio over TCP, one
//! thread of its own beside the runtime's, so that callers need no runtime at all.
//!
//! # Upstream, and how to take its next version
//! All `commonware-*` crates are pinned to one version (`=2026.10.0`): their interfaces change with each monthly
//! release, while formats on disk and on the wire are kept, with a path to migrate, for what upstream calls BETA.
//! BETA are: simplex, marshal's core, the links, the archives, the runtime. ALPHA are `consensus::Application` and
//! `marshal::standard::Inline`, used in `alpha.rs` alone, and the simulated links, used by `order/testing` alone.
//! To upgrade: read upstream's changelog for formats, raise all pins together, let `alpha.rs`, `stack.rs` and
//! `lib.rs` compile, run this crate's tests, then start a broker on a folder written by the old version.
//! Going back is a path of its own: 2026.9 cannot read archives that a newer version has written.
//!
//! The engine is instantiated for its runtime in this crate, so that callers never compile it again: `Engine` and
//! everything else public here is free of type parameters.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use commonware_cryptography::ChaCha20Poly1305;
use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::authenticated::lookup;
use commonware_p2p::{Address, AddressableManager as _};
use commonware_runtime::{Quota, Runner as _, Spawner as _, Supervisor as _, tokio};
use commonware_stream::cups::{self, Cups};
use commonware_stream::sake::{self, Sake};
use commonware_utils::TryCollect as _;
use commonware_utils::channel::oneshot;
use commonware_utils::ordered::Map;
use sealcast_order::consensus::{Consensus, DamagedVotes};
use sealcast_order::{
    Application, Batch, Block, Evidence, Fault, Later, Order, Peer, Refused, StartCertificate, Status,
};
use sealcast_wire::limits;

mod alpha;
mod codec;
mod deliver;
mod forward;
mod handle;
mod log;
mod peers;
mod proof;
mod shared;
mod stack;
mod votes;
mod watch;

pub use proof::judge;
pub use sealcast_order::consensus::{Broker, Settings, SigningSeed, Start, StartError};

/// What the engine is put together of, for `sealcast-order-testing` alone, which puts it together in a simulation.
#[doc(hidden)]
pub mod parts {
    pub use crate::handle::Handle;
    pub use crate::log::migrate::write_old;
    pub use crate::log::{Log, Opened, Sizes};
    pub use crate::stack::{
        CHANNELS, Cluster, ITEMS_PER_SECTION, Links, Members, Network, namespace_of, pages, quota, signer, start,
    };
}

/// Consensus by simplex: the engine, for the program that starts brokers.
#[derive(Clone, Copy, Debug)]
pub struct Simplex;

impl Consensus for Simplex {
    fn start(&self, settings: Settings, application: Arc<dyn Application>) -> Result<Arc<dyn Order>, StartError> {
        Ok(Arc::new(Engine::start(settings, application)?))
    }

    fn check(&self, settings: &Settings) -> Result<(), StartError> {
        stack::Cluster::check(settings).map(drop)
    }

    fn check_votes(&self, folder: &Path, executed: u64) -> io::Result<Option<DamagedVotes>> {
        votes::check(folder, executed)
    }

    fn forget_votes(&self, folder: &Path) -> io::Result<()> {
        votes::forget(folder)
    }

    fn judge(&self, brokers: &[[u8; 32]], namespace: &[u8], proof: &[u8]) -> Option<Evidence> {
        judge(brokers, namespace, proof)
    }
}

/// One broker's engine, running.
pub struct Engine {
    handle: handle::Handle,
    end: Mutex<Option<oneshot::Sender<End>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How the engine's thread is told to end.
struct End {
    /// Told when everything has ended; without it, ending is a crash.
    graceful: Option<oneshot::Sender<()>>,
}

impl Engine {
    /// Starts it, with its journal and archives in `settings.folder`. Returns when the journal has been read.
    pub fn start(settings: Settings, application: Arc<dyn Application>) -> Result<Engine, StartError> {
        let cluster = stack::Cluster::check(&settings)?;
        std::fs::create_dir_all(&settings.folder)?;
        votes::open(&settings.folder)?;
        // Upstream reports a port in use by ending the network task later; we want to know now.
        drop(std::net::TcpListener::bind(settings.listen)?);
        let folder = settings.folder.clone();
        let (end, ended) = oneshot::channel();
        let (ready, is_ready) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("order".to_string())
            .spawn(move || run(settings, cluster, application, ready, ended))?;
        // The thread ends without a word where upstream panics.
        let handle = is_ready.recv().map_err(|_| StartError::Ended)?.map_err(|fault| match fault {
            Fault::Damaged { file, what } => StartError::Damaged { file: folder.join(file), what },
            Fault::Storage(what) => std::io::Error::other(what).into(),
            Fault::Files { needed } => StartError::Files { needed },
        })?;
        Ok(Engine { handle, end: Mutex::new(Some(end)), thread: Mutex::new(Some(thread)) })
    }

    fn end(&self, graceful: Option<oneshot::Sender<()>>) {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(end) = end {
            // If nobody listens, the engine has ended already.
            let _ = end.send(End { graceful });
        }
    }
}

impl Order for Engine {
    fn submit(&self, batch: Batch) -> Result<(), Refused> {
        self.handle.submit(batch)
    }

    fn status(&self) -> Status {
        self.handle.status()
    }

    fn evidence(&self) -> Vec<Evidence> {
        self.handle.evidence()
    }

    fn fault(&self) -> Option<Fault> {
        self.handle.fault()
    }

    fn peers(&self) -> Vec<Peer> {
        self.handle.peers()
    }

    fn block(&self, height: u64) -> Later<Option<Arc<Block>>> {
        self.handle.block(height)
    }

    fn start_certificate(&self, height: u64) -> Later<Option<StartCertificate>> {
        self.handle.start_certificate(height)
    }

    fn prune(&self, height: u64) {
        self.handle.prune(height);
    }

    fn stop(&self) -> Later<()> {
        let (done, is_done) = oneshot::channel();
        self.end(Some(done));
        Box::pin(async move {
            // An error means that the thread is gone: it has ended.
            let _ = is_done.await;
        })
    }
}

impl Drop for Engine {
    /// Like a crash, which journal and archives bear.
    fn drop(&mut self) {
        self.end(None);
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A panic in it was reported by its own hook.
            let _ = thread.join();
        }
    }
}

fn run(
    settings: Settings,
    cluster: stack::Cluster,
    application: Arc<dyn Application>,
    ready: mpsc::SyncSender<Result<handle::Handle, Fault>>,
    ended: oneshot::Receiver<End>,
) {
    let config = tokio::Config::new()
        .with_storage_directory(&settings.folder)
        .with_worker_threads(settings.threads)
        .with_tcp_nodelay(Some(true));
    let folder = settings.folder.clone();
    let done = tokio::Runner::new(config).start(|context| async move {
        let (mut network, mut oracle) =
            lookup::Network::new(context.child("network"), links(&settings, cluster.message_bytes_max()));
        oracle.track(0, addresses(&cluster.keys, settings.brokers.iter().map(|b| b.address)));
        let links = stack::Links::new((0..stack::CHANNELS).map(|i| network.register(i, stack::quota())));
        let started = stack::start(
            context.child("order"),
            "",
            &settings,
            cluster,
            application,
            stack::Network { peers: oracle.clone(), blocker: oracle, links },
        )
        .await;
        let (handle, all) = match started {
            Ok(started) => started,
            Err(fault) => {
                // If the caller is gone, nobody needs the reason.
                let _ = ready.send(Err(fault));
                return None;
            }
        };
        let network = network.start();
        // If the caller is gone, `ended` says so.
        let _ = ready.send(Ok(handle.clone()));
        let over = Over(handle);
        let end = futures::future::select(futures::future::select(all, network), ended).await;
        drop(over);
        if let futures::future::Either::Right((Ok(End { graceful: Some(done) }), _)) = end {
            // What does not end within this time would not end at all; a crash is safe too.
            let _ = context.stop(0, Some(STOP_TIMEOUT)).await;
            return Some(done);
        }
        None
    });
    // All of the engine's tasks have ended, as upstream's `start` says.
    if let Some(done) = done {
        // Without it the next start looks at the journal as after a crash.
        let _ = votes::close(&folder);
        let _ = done.send(());
    }
}

/// Says that the engine has ended, also when a task's panic (a disk that is full) takes down the runtime with all in it.
struct Over(handle::Handle);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.ended();
    }
}

type Handshake = Cups<Sake<commonware_cryptography::ed25519::PrivateKey>, ChaCha20Poly1305>;

fn links(settings: &Settings, message_bytes_max: u32) -> lookup::Config<Handshake> {
    let handshake = Cups::new(
        Sake {
            signer: stack::signer(&settings.key),
            synchrony_bound: CLOCKS_APART,
            max_handshake_age: CLOCKS_APART,
            version: sake::Version::V1,
        },
        cups::Version::V1,
    );
    let namespace = [b"sealcast/v1/links/", &settings.namespace[..]].concat();
    let brokers = settings.brokers.len().try_into().expect("there are at least 4 brokers");
    let mut config = lookup::Config::local(
        handshake,
        &namespace,
        settings.listen,
        brokers,
        message_bytes_max,
        1024.try_into().expect("it is not zero"),
    );
    // Brokers are known by key; on a machine with several addresses their packets may come from any.
    config.bypass_ip_check = true;
    // A restarted broker is to be back within seconds, not after upstream's minute.
    config.peer_connection_cooldown = Duration::from_millis(250);
    config.dial_frequency = Duration::from_millis(100);
    // Without descriptors the log cannot open its files, and upstream's listener turns in circles.
    config.max_concurrent_handshakes = HANDSHAKES;
    config.allowed_handshake_rate_per_ip = Quota::per_second(64.try_into().expect("it is not zero"));
    config.allowed_handshake_rate_per_subnet = Quota::per_second(256.try_into().expect("it is not zero"));
    config.tracked_peer_sets = 1.try_into().expect("it is not zero");
    config
}

fn addresses(keys: &[PublicKey], addresses: impl Iterator<Item = SocketAddr>) -> Map<PublicKey, Address> {
    keys.iter().cloned().zip(addresses.map(Address::from)).try_collect().expect("the keys were checked to differ")
}

/// Handshakes at a time.
const HANDSHAKES: NonZeroU32 = NonZeroU32::new(limits::ORDER_HANDSHAKES_MAX).expect("it is not zero");
/// How far two brokers' clocks may differ for a handshake.
const CLOCKS_APART: Duration = Duration::from_secs(10);
/// How long a graceful end may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
