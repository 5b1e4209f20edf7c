//! One broker, running: puts order, admission, executor and gateway together, and takes them apart in order.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use futures::executor::block_on;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use sealcast_broker::cluster_file::Suite as SuiteName;
use sealcast_broker::operation::{Checked, Client, Sealed};
use sealcast_broker::protocol::{Answer, Question, Refusal, Reply, Status, Welcome};
use sealcast_crypto::group::{P256, Ristretto255};
use sealcast_crypto::signature::OriginKey;
use sealcast_crypto::tdh2::{KeyShare, PublicKey};
use sealcast_order::engine::{self, Engine, SigningSeed};
use sealcast_order::solo::{self, Solo};
use sealcast_order::{Block, Order};
use sealcast_wire::limits;

use crate::admission::{self, Admission, Execution};
use crate::ceremony::{EPOCH, Making, Note};
use crate::config::{Config, ShareOn};
use crate::drops::{Drops, Reason};
use crate::evidence::Shelf;
use crate::executor::{self, Executor};
use crate::gateway::{Gateway, Service};
use crate::log;
use crate::metrics::{Page, Server};
use crate::outlet::{Blocks, Outlet};
use crate::release::Holding;
use crate::shares::file::Folder;
use crate::shares::{self, Suite};

/// A running broker. Dropping it ends it like a crash, which its files bear.
pub struct Broker {
    hall: Arc<Hall>,
    executor: Executor,
    admission: Arc<Admission>,
    order: Arc<dyn Order>,
    gateway_address: SocketAddr,
    ceremony: Option<JoinHandle<()>>,
    metrics: Option<Server>,
    config: Config,
}

/// Why a broker does not start, or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Something in its folder or settings.
    Config(String),
    /// An address is in use, or not this machine's.
    Address(String),
    /// Its disk.
    Storage(String),
    /// The order ended.
    Order(String),
}

impl Failure {
    /// The process's exit code: as `sealcast` has them, 3 is configuration, 4 what cannot be reached, 1 the rest.
    pub fn exit(&self) -> u8 {
        match self {
            Failure::Config(_) => 3,
            Failure::Address(_) => 4,
            Failure::Storage(_) | Failure::Order(_) => 1,
        }
    }
}

impl Broker {
    /// Starts a broker.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn start(config: Config) -> Result<Broker, Failure> {
        let key = Arc::new(OriginKey::from_seed(&config.seed));
        let (cluster, n) = (config.cluster.cluster(), config.cluster.brokers());
        let drops = Arc::new(Drops::default());
        let shelf = Shelf::open(&config.at("evidence"), &config.cluster.genesis);
        let shelf = Arc::new(shelf.map_err(|e| storage(&config.at("evidence"), &e))?);
        let hall = Arc::new(Hall {
            gateway: Gateway::new(cluster, drops.clone()),
            drops,
            shelf,
            order: Mutex::new(None),
            admission: Mutex::new(None),
            notes: Mutex::new(None),
            failure: OnceLock::new(),
            running: AtomicBool::new(true),
        });
        let executor = Executor::start(executor::Setup {
            genesis: config.cluster.genesis.clone(),
            index: config.index,
            key: key.clone(),
            folder: config.at("state"),
            outlet: hall.clone(),
            blocks: hall.clone(),
            share_on: match config.settings.share_on {
                ShareOn::Read => executor::ShareOn::Read,
                ShareOn::Write => executor::ShareOn::Write,
            },
            threads: config.threads(1),
        });
        let executor = executor.map_err(|e| Failure::Storage(format!("{}: {e}", config.at("state").display())))?;
        let (proofs, proved) = mpsc::channel();
        // It ends with admission.
        drop(keep_evidence(hall.shelf.clone(), proved).map_err(thread_failed)?);
        let admission = Admission::start(admission::Setup {
            cluster,
            block: config.block(),
            batch: config.settings.batch_size.unwrap_or(limits::CHECK_BATCH_FRAMES),
            threads: config.threads(1),
            execution: Arc::new(Hands(executor.clone())),
            outlet: hall.clone(),
            misbehaved: Box::new(move |evidence| {
                // Without its keeper the broker is ending.
                let _ = proofs.send(evidence.clone());
            }),
            drops: hall.drops.clone(),
        });
        let admission = Arc::new(admission.map_err(thread_failed)?);
        *lock(&hall.admission) = Some(admission.clone());

        let keys = Folder::open(&config.at("keys")).map_err(|e| Failure::Config(e.to_string()))?;
        let making = Making {
            cluster,
            brokers: u16::try_from(n).expect("brokers have a limit"),
            index: config.index,
            threshold: config.cluster.threshold,
            key: key.clone(),
            keys,
            executor: executor.clone(),
            admission: admission.clone(),
            rng: rng()?,
        };
        let ceremony = match config.cluster.suite {
            SuiteName::Ristretto255 => begin_key::<Ristretto255>(making, &hall, config.cluster.key.is_some())?,
            SuiteName::P256 => begin_key::<P256>(making, &hall, config.cluster.key.is_some())?,
        };

        let order = start_order(&config, admission.clone())?;
        *lock(&hall.order) = Some(order.clone());
        admission.attach(order.clone());
        let front = Arc::new(Front { admission: admission.clone(), executor: executor.clone() });
        let gateway_address = hall.gateway.listen(config.gateway, key, front, config.threads(2));
        let gateway_address = gateway_address.map_err(|e| address("clients", config.gateway, &e))?;
        let mut broker = Broker { hall, executor, admission, order, gateway_address, ceremony, metrics: None, config };
        if let Some(at) = broker.config.settings.metrics {
            let figures = broker.figures();
            broker.metrics = Some(Server::start(at, figures).map_err(|e| address("metrics", at, &e))?);
        }
        let what = if n == 1 { "alone".to_string() } else { format!("{} of {n}", broker.config.index) };
        log::info(&format!(
            "broker {what} of «{}» at block {}, clients at {gateway_address}",
            broker.config.cluster.genesis.name,
            broker.executor.height(),
        ));
        Ok(broker)
    }

    /// Where clients come in.
    pub fn gateway_address(&self) -> SocketAddr {
        self.gateway_address
    }

    /// Where figures are shown.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Server::address)
    }

    /// What was turned away so far.
    pub fn drops(&self) -> &Drops {
        &self.hall.drops
    }

    /// Where it stands.
    pub fn status(&self) -> Status {
        let client = Client([0; 32]);
        match self.executor.answer(&client, Question::Status) {
            Answer::Status(status) => *status,
            _ => Status::default(),
        }
    }

    /// Why it cannot go on, if it cannot.
    pub fn failure(&self) -> Option<Failure> {
        if let Some(why) = self.hall.failure.get() {
            return Some(Failure::Storage(why.clone()));
        }
        if let Some(why) = self.executor.failure() {
            return Some(Failure::Storage(why.to_string()));
        }
        if self.admission.failed() {
            return Some(Failure::Order("a final block holds a false frame: more than f brokers lie".into()));
        }
        if !self.order.status().running {
            let folder = self.config.at("order");
            return Some(match free_bytes(&folder) {
                Some(free) if free < FULL_BYTES => {
                    Failure::Storage(format!("{}: the disk is full ({free} bytes are free)", folder.display()))
                }
                _ => Failure::Order(format!("the order ended; its files are in {}", folder.display())),
            });
        }
        None
    }

    /// Waits until `end` is set, or it cannot go on.
    pub fn wait(&self, end: &AtomicBool) -> Option<Failure> {
        loop {
            if let Some(failure) = self.failure() {
                return Some(failure);
            }
            if end.load(Ordering::Acquire) {
                return None;
            }
            thread::sleep(LOOK);
        }
    }

    /// Ends it gracefully: nobody comes in any more, what is final is executed and durable.
    pub fn stop(mut self) {
        self.hall.running.store(false, Ordering::Release);
        self.hall.gateway.stop();
        block_on(self.order.stop());
        if let Some(notes) = lock(&self.hall.notes).take() {
            // It may have ended before.
            let _ = notes.send(Note::End);
        }
        self.take_apart();
    }

    /// Ends threads, from where frames come in to where they go.
    fn take_apart(&mut self) {
        self.metrics = None;
        self.admission.stop();
        self.executor.stop();
        lock(&self.hall.notes).take();
        if let Some(thread) = self.ceremony.take() {
            // A panic in it was reported by its own hook.
            let _ = thread.join();
        }
        // What holds the hall is not held by it any more.
        lock(&self.hall.order).take();
        lock(&self.hall.admission).take();
    }

    fn figures(&self) -> impl Fn() -> String + Send + 'static {
        let (hall, executor, admission) = (self.hall.clone(), self.executor.clone(), self.admission.clone());
        move || {
            let mut page = Page::default();
            let status = lock(&hall.order).as_ref().map(|order| order.status()).unwrap_or_default();
            let (blocks, frames) = admission.executed();
            page.figure("counter", "commits", "Blocks executed since the start.", blocks);
            page.figure("counter", "frames", "Frames executed since the start.", frames);
            page.figure("gauge", "height", "The last block executed and durable.", executor.height());
            page.figure("gauge", "tip", "The last block known to be final.", status.tip);
            page.figure("gauge", "lag", "Blocks final and not yet executed.", status.lag());
            page.figure("gauge", "view", "The view of the ordering protocol.", status.view);
            page.figure("gauge", "leader", "The broker that leads.", status.leader);
            page.figure("gauge", "running", "Whether it orders.", u8::from(status.running));
            page.figure("gauge", "clients", "Clients connected.", hall.gateway.clients());
            page.figure("gauge", "outgoing_bytes", "Bytes that wait for clients.", hall.gateway.outgoing_bytes());
            page.figure("gauge", "waiting", "Frames that wait to be ordered.", admission.waiting());
            page.figure("gauge", "waiting_bytes", "Bytes of frames checked or waiting.", admission.waiting_bytes());
            page.figure("gauge", "commit_micros", "Median time to commit, microseconds.", admission.commit_micros());
            page.head("counter", "drops", "What was turned away, by reason.");
            for (reason, count) in hall.drops.all() {
                page.line("drops", &format!("{{reason=\"{reason}\"}}"), count);
            }
            let mut misdeeds: BTreeMap<u16, u64> = BTreeMap::new();
            hall.shelf.reports().iter().for_each(|report| *misdeeds.entry(report.broker).or_default() += 1);
            page.head("counter", "equivocations", "Proofs of misbehaviour, by broker.");
            for (broker, count) in misdeeds {
                page.line("equivocations", &format!("{{broker=\"{broker}\"}}"), count);
            }
            page.finish()
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.hall.gateway.stop();
        if self.hall.running.swap(false, Ordering::AcqRel) {
            self.take_apart();
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Config(what) | Failure::Address(what) | Failure::Storage(what) | Failure::Order(what) => {
                f.write_str(what)
            }
        }
    }
}

/// Where all parts meet.
struct Hall {
    gateway: Gateway,
    drops: Arc<Drops>,
    shelf: Arc<Shelf>,
    order: Mutex<Option<Arc<dyn Order>>>,
    admission: Mutex<Option<Arc<Admission>>>,
    /// While the key is made.
    notes: Mutex<Option<Sender<Note>>>,
    failure: OnceLock<String>,
    running: AtomicBool,
}

impl Hall {
    fn note(&self, note: Note) {
        let mut notes = lock(&self.notes);
        // There is a key: nobody listens any more.
        if notes.as_ref().is_some_and(|listener| listener.send(note).is_err()) {
            *notes = None;
        }
    }
}

impl Outlet for Hall {
    fn is_here(&self, client: &Client) -> bool {
        self.gateway.is_here(client)
    }

    fn send(&self, client: &Client, reply: Reply) {
        self.gateway.send(client, &reply);
        // Who sends false signatures loses the channel: each costs us many checks.
        if let Reply::Refused { why: Refusal::Signature, .. } = reply {
            self.gateway.turn_out(client, Reason::FrameSignature);
        }
    }

    fn ceremony(&self, height: u64, broker: u16, word: &[u8]) {
        self.note(Note::Word { height, broker, word: word.to_vec() });
    }

    fn executed(&self, height: u64) {
        self.note(Note::Executed(height));
    }

    fn describe(&self, status: &mut Status) {
        let order = lock(&self.order).as_ref().map(|order| order.status()).unwrap_or_default();
        status.leader = u16::try_from(order.leader).expect("brokers have a limit");
        (status.view, status.tip) = (order.view, order.tip);
        status.running = order.running && self.running.load(Ordering::Acquire);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        status.clients = count(self.gateway.clients());
        if let Some(admission) = &*lock(&self.admission) {
            status.waiting = count(admission.waiting());
            status.commit_micros = admission.commit_micros();
        }
        status.reports = self.shelf.reports();
    }

    fn failed(&self, why: &str) {
        let _ = self.failure.set(why.to_string());
    }
}

impl Blocks for Hall {
    fn frame(&self, height: u64, frame: u32) -> Option<Arc<[u8]>> {
        let order = lock(&self.order).clone()?;
        let block = block_on(order.block(height))?;
        block.frames.get(usize::try_from(frame).ok()?).map(|frame| Arc::from(&frame.bytes()[..]))
    }
}

/// The executor as admission sees it.
struct Hands(Executor);

impl Execution for Hands {
    fn execute(&self, block: Arc<Block>, frames: Vec<Checked>, done: Box<dyn FnOnce() + Send>) {
        self.0.execute(block, frames, done);
    }

    fn next_number(&self, client: &Client) -> Option<u64> {
        self.0.next_number(client)
    }

    fn ciphertexts_valid(&self, sealed: &[Sealed<'_>]) -> Vec<bool> {
        self.0.ciphertexts_valid(sealed)
    }
}

/// What the gateway sees.
struct Front {
    admission: Arc<Admission>,
    executor: Executor,
}

impl Service for Front {
    fn welcome(&self, client: &Client) -> Welcome {
        self.executor.welcome(client)
    }

    fn submit(&self, client: &Client, frame: Bytes) -> Result<(), Refusal> {
        self.admission.submit(client, frame)
    }

    fn answer(&self, client: &Client, question: Question) -> Answer {
        self.executor.answer(client, question)
    }
}

/// The engine, or its place taken by one broker alone.
fn start_order(config: &Config, admission: Arc<Admission>) -> Result<Arc<dyn Order>, Failure> {
    let (namespace, folder) = (config.cluster.cluster().0, config.at("order"));
    if config.cluster.brokers() == 1 {
        let settings = solo::Settings {
            namespace: namespace.to_vec(),
            folder: folder.clone(),
            block: config.block(),
            unacknowledged: UNACKNOWLEDGED,
        };
        return Ok(Arc::new(Solo::start(settings, admission).map_err(|e| storage(&folder, &e))?));
    }
    let keys = config.cluster.broker_keys();
    let brokers = keys.into_iter().zip(&config.order).map(|(key, at)| engine::Broker { key, address: *at }).collect();
    let seed = SigningSeed::new(config.seed.expose());
    let mut settings = engine::Settings::new(&namespace, brokers, seed, config.listen_order, folder.clone());
    settings.block = config.block();
    settings.unacknowledged = UNACKNOWLEDGED;
    settings.threads = config.threads(settings.threads);
    match Engine::start(settings, admission) {
        Ok(engine) => Ok(Arc::new(engine)),
        Err(engine::StartError::Io(e))
            if matches!(e.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) =>
        {
            Err(address("brokers", config.listen_order, &e))
        }
        Err(engine::StartError::Io(e)) => Err(storage(&folder, &e)),
        Err(e) => Err(Failure::Config(e.to_string())),
    }
}

/// Takes the threshold key from the folder, or sees to it that one is made.
fn begin_key<G: Suite>(mut making: Making, hall: &Hall, has_key: bool) -> Result<Option<JoinHandle<()>>, Failure>
where
    Holding: From<(PublicKey<G>, KeyShare<G>)>,
{
    let kept = making.keys.share::<G>(EPOCH, making.index).map_err(|e| Failure::Config(e.to_string()))?;
    if let Some(kept) = kept {
        making.executor.set_key(kept);
        return Ok(None);
    }
    if making.threshold < 2 {
        // One broker alone deals to itself.
        let dealt = shares::deal::<G>(&making.cluster, making.threshold, making.brokers, &mut making.rng);
        let (key, mut shares) = dealt.map_err(|e| Failure::Config(e.to_string()))?;
        let share = shares.swap_remove(usize::from(making.index));
        let kept = making.keys.keep(&key, &share, &mut making.rng);
        kept.map_err(|e| Failure::Config(e.to_string()))?;
        making.executor.set_key((key, share));
        return Ok(None);
    }
    let words = making.executor.ceremony_words().map_err(|e| Failure::Storage(e.to_string()))?;
    if has_key && words.is_empty() {
        log::warn(
            "the cluster has a threshold key, and this broker no share of it: sealed publications wait for others",
        );
        return Ok(None);
    }
    let (notes, noted) = mpsc::channel();
    *lock(&hall.notes) = Some(notes);
    making.start::<G>(noted).map(Some).map_err(thread_failed)
}

fn keep_evidence(shelf: Arc<Shelf>, proofs: mpsc::Receiver<sealcast_order::Evidence>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("evidence".into()).spawn(move || {
        for evidence in proofs {
            match shelf.keep(&evidence) {
                Ok(Some(path)) => {
                    let what = format!("broker {} contradicted itself: {}", evidence.broker, path.display());
                    log::warn(&what);
                }
                Ok(None) => {}
                Err(e) => log::error(&format!("evidence against broker {} is lost: {e}", evidence.broker)),
            }
        }
    })
}

pub(crate) fn rng() -> Result<ChaCha20Rng, Failure> {
    let mut seed = zeroize::Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed)
        .map_err(|e| Failure::Config(format!("the operating system gives no randomness: {e}")))?;
    Ok(ChaCha20Rng::from_seed(*seed))
}

pub(crate) fn storage(path: &Path, error: &io::Error) -> Failure {
    Failure::Storage(format!("{}: {error}", path.display()))
}

fn address(who: &str, at: SocketAddr, error: &io::Error) -> Failure {
    let what = match error.kind() {
        io::ErrorKind::AddrInUse => "the port is in use".to_string(),
        io::ErrorKind::AddrNotAvailable => "it is not an address of this machine".to_string(),
        _ => error.to_string(),
    };
    Failure::Address(format!("cannot listen for {who} at {at}: {what}"))
}

fn thread_failed(error: io::Error) -> Failure {
    Failure::Storage(format!("cannot start a thread: {error}"))
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Blocks delivered and not yet durable: execution falls behind by no more.
const UNACKNOWLEDGED: usize = 32;
/// A disk with less free is full.
const FULL_BYTES: u64 = 4 << 20;
/// How often [`Broker::wait`] looks.
const LOOK: Duration = Duration::from_millis(100);
