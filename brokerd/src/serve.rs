//! One broker, running: puts order, admission, executor and gateway together, and takes them apart in order.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures::executor::block_on;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use sealcast_broker::cluster_file::{Suite as SuiteName, VouchedKey};
use sealcast_broker::operation::Client;
use sealcast_broker::protocol::{Answer, Query, Refusal, Reply, Report, Status, Welcome};
use sealcast_crypto::group::{P256, PrimeGroup, Ristretto255};
use sealcast_crypto::signature::OriginKey;
use sealcast_crypto::tdh2::{KeyShare, PublicKey};
use sealcast_order::consensus::{self, Consensus, SigningSeed, Start, StartError};
use sealcast_order::solo::{self, Solo};
use sealcast_order::{Block, Fault, Order, Peer, StartCertificate};
use sealcast_wire::limits;
use tracing::{error, info, warn};

use crate::admission::{self, Admission};
use crate::cache::Cache;
use crate::config::{CLUSTER, Config, Settings, ShareOn, read_cluster};
use crate::control::{Control, Reloaded};
use crate::descriptors::{self, Budget, Meter};
use crate::dkg::{EPOCH, Making, Note};
use crate::drops::{Drops, Reason};
use crate::evidence::EvidenceStore;
use crate::executor::{self, Executor};
use crate::failure::{Failure, address, order_failure, rows_failure, storage, thread_failed};
use crate::gateway::{ClientStatus, Gateway, Handler};
use crate::log;
use crate::metrics::{self, Server};
use crate::neighbours::{LogLine, Neighbours, Noticed, Seen};
use crate::outlet::{Blocks, Outlet};
use crate::release::KeyWithShare;
use crate::shares;
use crate::shares::file::{FileError, Folder};
use crate::sync::{self, Others as _, Peers};

/// A running broker. Dropping it ends it like a crash, which its files bear.
pub struct Broker {
    node: Arc<Node>,
    executor: Executor,
    admission: Arc<Admission>,
    order: Arc<dyn Order>,
    gateway_address: SocketAddr,
    dkg: Option<JoinHandle<()>>,
    metrics: Option<Server>,
    config: Config,
}

impl Broker {
    /// Starts a broker.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn start(config: Config, consensus: &dyn Consensus) -> Result<Broker, Failure> {
        let begun = Broker::start_until(config, consensus, &Arc::default(), |front| front)?;
        Ok(begun.expect("nobody can ask it to end"))
    }

    /// Starts a broker whose clients meet what `behind` puts before its own front: for brokers that misbehave. While it
    /// waits for the others it looks whether `end` is set; `None` if it is.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn start_until(
        config: Config,
        consensus: &dyn Consensus,
        end: &Arc<AtomicBool>,
        behind: impl FnOnce(Arc<dyn Handler>) -> Arc<dyn Handler>,
    ) -> Result<Option<Broker>, Failure> {
        let key = Arc::new(OriginKey::from_seed(&config.seed));
        let (cluster, n) = (config.cluster.cluster(), config.cluster.brokers());
        let budget = Budget::new(n, descriptors::allowed())
            .map_err(|e| Failure::Descriptors { what: e.to_string(), hint: e.hint() })?;
        budget.shortage().iter().for_each(|it| warn!("{it}"));
        let drops = Arc::new(Drops::default());
        let evidence_store = EvidenceStore::open(&config.at("evidence"), &config.cluster.genesis);
        let evidence_store = Arc::new(evidence_store.map_err(|e| storage(&config.at("evidence"), &e))?);
        let node = Arc::new(Node {
            gateway: Gateway::new(cluster, drops.clone(), budget.connections),
            drops,
            evidence_store,
            descriptors: Meter::default(),
            order: Mutex::new(None),
            read: Mutex::new(Cache::new(limits::BLOCKS_READ_BYTES_KEPT)),
            admission: Mutex::new(None),
            notes: Mutex::new(None),
            noticed: Mutex::default(),
            failure: OnceLock::new(),
            running: AtomicBool::new(true),
        });
        let begin = begin(&config, consensus, &key, end)?;
        if end.load(Ordering::Acquire) {
            return Ok(None);
        }
        let executor = Executor::start(executor::Setup {
            genesis: config.cluster.genesis.clone(),
            index: config.index,
            key: key.clone(),
            folder: config.at("state"),
            outlet: node.clone(),
            blocks: node.clone(),
            share_on: when(config.settings.share_on),
            threads: config.settings.threads.shares,
            keep: config.settings.keep,
            snapshots: sync::Snapshots::at(config.at("snapshots")),
        });
        let executor = executor.map_err(|e| rows_failure(&config.at("state"), &e.to_string(), n > 1))?;
        let (proofs, proved) = mpsc::channel();
        // It ends with admission.
        drop(keep_evidence(node.evidence_store.clone(), proved).map_err(thread_failed)?);
        let admission = Admission::start(admission::Setup {
            cluster,
            together: config.settings.checked_together,
            threads: config.settings.threads.checks,
            execution: Arc::new(executor.clone()),
            outlet: node.clone(),
            misbehaved: Box::new(move |evidence| {
                // Without its keeper the broker is ending.
                let _ = proofs.send(evidence.clone());
            }),
            drops: node.drops.clone(),
        });
        let admission = Arc::new(admission.map_err(thread_failed)?);
        *lock(&node.admission) = Some(admission.clone());

        let keys = Folder::open(&config.at("keys"))?;
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
        let dkg = match config.cluster.suite {
            SuiteName::Ristretto255 => begin_key::<Ristretto255>(making, &node, config.cluster.key.as_ref())?,
            SuiteName::P256 => begin_key::<P256>(making, &node, config.cluster.key.as_ref())?,
        };

        let order = start_order(&config, consensus, begin, admission.clone())?;
        if let Some(failure) = rows_lost(&config, &*order, &executor) {
            return Err(failure);
        }
        *lock(&node.order) = Some(order.clone());
        admission.attach(order.clone());
        let front = behind(Arc::new(ClientHandler { admission: admission.clone(), executor: executor.clone() }));
        let gateway_address = node.gateway.listen(config.gateway, key, front, config.settings.threads.gateway);
        let gateway_address = gateway_address.map_err(|e| address("clients", config.gateway, &e))?;
        let mut broker = Broker { node, executor, admission, order, gateway_address, dkg, metrics: None, config };
        if let Some(at) = broker.config.settings.metrics {
            let figures = broker.figures();
            broker.metrics = Some(Server::start(at, figures).map_err(|e| address("metrics", at, &e))?);
        }
        let what = if n == 1 { "alone".to_string() } else { format!("{} of {n}", broker.config.index) };
        info!(
            "broker {what} of '{}' at block {}, clients at {gateway_address}",
            broker.config.cluster.genesis.name,
            broker.executor.height(),
        );
        Ok(Some(broker))
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
        &self.node.drops
    }

    /// Where it stands.
    pub fn status(&self) -> Status {
        let client = Client([0; 32]);
        match self.executor.answer(&client, Query::Status) {
            Answer::Status(status) => *status,
            _ => Status::default(),
        }
    }

    /// Why it cannot go on, if it cannot.
    pub fn failure(&self) -> Option<Failure> {
        if let Some(why) = self.node.failure.get() {
            return Some(Failure::Storage(why.clone()));
        }
        if let Some(why) = self.executor.failure() {
            let lost = rows_lost(&self.config, &*self.order, &self.executor);
            let has_others = self.config.cluster.brokers() > 1;
            return Some(lost.unwrap_or_else(|| rows_failure(&self.config.at("state"), why, has_others)));
        }
        if self.admission.failed() {
            return Some(Failure::FalseBlock);
        }
        if !self.order.status().running {
            let (folder, brokers) = (self.config.at("order"), self.config.cluster.brokers());
            return Some(order_failure(&folder, self.order.fault(), log::engine_panic(), brokers));
        }
        None
    }

    /// Reads its settings again and puts in force what may change while it runs: where figures are shown, when shares
    /// are computed, how many signatures are checked at once. What else changed waits for a restart.
    ///
    /// # Errors
    /// What is wrong with the files, or with an address; then nothing changes.
    pub fn reload(&mut self) -> Result<Reloaded, String> {
        let folder = &self.config.folder;
        let new = Settings::read(folder).map_err(|e| e.to_string())?.given(&self.config.given);
        let cluster = read_cluster(folder).map_err(|e| e.to_string())?;
        if cluster.cluster() != self.config.cluster.cluster() {
            return Err(format!("{}: it is the file of another cluster", self.config.at(CLUSTER).display()));
        }
        let mut came = Reloaded::default();
        let old = self.config.settings.clone();
        if new.metrics != old.metrics {
            let server = |at| Server::start(at, self.figures()).map_err(|e| address("metrics", at, &e).to_string());
            self.metrics = new.metrics.map(server).transpose()?;
            came.changed.push("metrics");
        }
        if new.share_on != old.share_on {
            self.executor.set_share_on(when(new.share_on));
            came.changed.push("share-on");
        }
        if new.checked_together != old.checked_together {
            self.admission.set_checked_together(new.checked_together);
            came.changed.push("checked-together");
        }
        let waits = [
            ("listen-gateway", new.listen_gateway != old.listen_gateway),
            ("listen-order", new.listen_order != old.listen_order),
            ("block-size", new.block.batches != old.block.batches),
            ("block-bytes", new.block.bytes != old.block.bytes),
            ("threads", new.threads != old.threads),
            ("keep", new.keep != old.keep),
            (CLUSTER, cluster.to_text() != self.config.cluster.to_text()),
        ];
        came.restart.extend(waits.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name));
        let Settings { metrics, share_on, checked_together, .. } = new;
        self.config.settings = Settings { metrics, share_on, checked_together, ..old };
        Ok(came)
    }

    /// Waits until `end` is set, or it cannot go on; does meanwhile what it is asked.
    pub fn wait(&mut self, end: &AtomicBool, control: Option<&Control>) -> Option<Failure> {
        let (mut height, mut since) = (self.executor.height(), Instant::now());
        let mut clocks = (SystemTime::now(), Instant::now());
        let mut asked: Option<mpsc::Receiver<bool>> = None;
        let mut watched = Watched::new(&self.config);
        loop {
            if let Some(asked) = control.and_then(Control::asked) {
                asked.answer(&self.reload());
            }
            if let Some(failure) = self.failure() {
                return Some(failure);
            }
            let now = (SystemTime::now(), Instant::now());
            if let Some(back) = set_back(clocks, now).filter(|back| *back > CLOCK_BACK) {
                return Some(Failure::SetBack(back.as_secs()));
            }
            clocks = now;
            watched.look(self);
            // Brokers order a block many times a second, also when nobody publishes.
            if std::mem::replace(&mut height, self.executor.height()) != height {
                (since, asked) = (Instant::now(), None);
            } else if since.elapsed() >= STALLED {
                match asked.get_or_insert_with(|| self.ask_whether_left_behind()).try_recv() {
                    Ok(true) => {
                        let why = format!("the others have pruned what follows on block {height}");
                        return Some(Failure::Behind(why));
                    }
                    Err(TryRecvError::Empty) => {}
                    Ok(false) | Err(TryRecvError::Disconnected) => (since, asked) = (Instant::now(), None),
                }
            }
            if end.load(Ordering::Acquire) {
                return None;
            }
            thread::sleep(LOOK);
        }
    }

    /// Ends it gracefully: nobody comes in any more, what is final is executed and durable.
    pub fn stop(mut self) {
        self.node.running.store(false, Ordering::Release);
        self.node.gateway.stop();
        block_on(self.order.stop());
        if let Some(notes) = lock(&self.node.notes).take() {
            // It may have ended before.
            let _ = notes.send(Note::End);
        }
        self.take_apart();
    }

    /// Ends threads, from where batches come in to where they go.
    fn take_apart(&mut self) {
        self.metrics = None;
        self.admission.stop();
        self.executor.stop();
        lock(&self.node.notes).take();
        if let Some(thread) = self.dkg.take() {
            // A panic in it was reported by its own hook.
            let _ = thread.join();
        }
        // What holds the node is not held by it any more.
        lock(&self.node.order).take();
        lock(&self.node.admission).take();
    }

    /// Whether the others have pruned blocks that it lacks. They are asked on a thread of its own: whoever of them takes
    /// all the time that it may does not keep this one from hearing that it is to end.
    fn ask_whether_left_behind(&self) -> mpsc::Receiver<bool> {
        let (answer, answered) = mpsc::channel();
        let (cluster, index, height) = (self.config.cluster.clone(), self.config.index, self.executor.height());
        let key = Arc::new(OriginKey::from_seed(&self.config.seed));
        // Without the thread the answer is lost, and asked for again later.
        let _ = thread::Builder::new().name("behind".into()).spawn(move || {
            let peers = Peers { cluster: &cluster, index, key: &key, end: &Arc::default() };
            // Nobody may wait any more.
            let _ = answer.send(cluster.brokers() > 1 && sync::is_left_behind(&peers, height));
        });
        answered
    }

    /// Where each of the others stands by its own words: its last block and that block's time, Unix seconds.
    fn request_times(&self) -> mpsc::Receiver<BTreeMap<u16, (u64, i64)>> {
        let (answer, answered) = mpsc::channel();
        let (cluster, index) = (self.config.cluster.clone(), self.config.index);
        let key = Arc::new(OriginKey::from_seed(&self.config.seed));
        // Without the thread the answer is lost, and asked for again later.
        let _ = thread::Builder::new().name("clocks".into()).spawn(move || {
            let peers = Peers { cluster: &cluster, index, key: &key, end: &Arc::default() };
            let time = |(broker, said)| match said {
                Answer::Status(status) => Some((broker, (status.height, status.at.0))),
                _ => None,
            };
            // Nobody may wait any more.
            let _ = answer.send(peers.ask(&Query::Status).into_iter().filter_map(time).collect());
        });
        answered
    }

    fn figures(&self) -> impl Fn() -> String + Send + 'static {
        let (node, executor, admission) = (self.node.clone(), self.executor.clone(), self.admission.clone());
        let brokers = u16::try_from(self.config.cluster.brokers()).expect("brokers have a limit");
        metrics::page(move |page| {
            let status = lock(&node.order).as_ref().map(|order| order.status()).unwrap_or_default();
            let (blocks, batches) = admission.executed();
            page.counter("commits", "Blocks executed since the start.", blocks)?;
            page.counter("batches", "Batches executed since the start.", batches)?;
            page.gauge("height", "The last block executed and durable.", executor.height())?;
            page.gauge("tip", "The last block known to be final.", status.tip)?;
            page.gauge("lag", "Blocks final and not yet executed.", status.lag())?;
            page.gauge("view", "The view of the ordering protocol.", status.view)?;
            page.gauge("leader", "The broker that leads.", status.leader)?;
            page.counter("view_changes", "Changes of the leader since the start.", status.changes)?;
            page.counter("views_skipped", "Views given up since the start.", status.skips)?;
            page.gauge("running", "Whether it orders.", u32::from(status.running))?;
            page.gauge("clients", "Clients connected.", node.gateway.clients())?;
            page.gauge("descriptors_used", "File descriptors open.", node.descriptors.used())?;
            let allowed = descriptors::allowed();
            page.gauge("descriptors_allowed", "File descriptors that the process may open.", allowed)?;
            page.gauge("outgoing_bytes", "Bytes that wait for clients.", node.gateway.outgoing_bytes())?;
            let ((messages_in, bytes_in), (messages_out, bytes_out)) = (node.gateway.heard(), node.gateway.said());
            page.counter("messages_in", "Messages of clients.", messages_in)?;
            page.counter("bytes_in", "Bytes of clients' messages.", bytes_in)?;
            page.counter("messages_out", "Messages to clients.", messages_out)?;
            page.counter("bytes_out", "Bytes of messages to clients.", bytes_out)?;
            let (epoch, policy) = executor.in_force();
            page.gauge("epoch", "The key epoch in force.", epoch)?;
            page.gauge("policy", "The number of the policy in force.", policy)?;
            if let Some(age) = executor.key_age() {
                page.gauge("key_age_seconds", "Seconds since the threshold key was made.", age)?;
            }
            page.gauge("suspended", "Clients suspended by evidence.", executor.suspended())?;
            page.gauge("waiting", "Batches that wait to be ordered.", admission.waiting())?;
            page.gauge("waiting_bytes", "Bytes of batches checked or waiting.", admission.waiting_bytes())?;
            page.gauge("commit_micros", "Median time to commit, microseconds.", admission.commit_micros())?;
            let drops = node.drops.all().map(|(reason, count)| (reason.to_string(), count));
            page.counters("drops", "What was turned away, by reason.", "reason", drops)?;
            let mut misbehaviours: BTreeMap<u16, u64> = (0..brokers).map(|broker| (broker, 0)).collect();
            node.evidence_store
                .reports()
                .iter()
                .for_each(|report| *misbehaviours.entry(report.broker).or_default() += 1);
            let mut peers = lock(&node.order).as_ref().map(|order| order.peers()).unwrap_or_default();
            peers.resize(usize::from(brokers), Peer::default());
            let heard = peers.iter().enumerate().map(|(broker, peer)| (broker, peer.heard));
            page.counters("peer_messages", "Messages of the other brokers, by broker.", "broker", heard)?;
            let cut_off = peers.iter().enumerate().map(|(broker, peer)| (broker, peer.cut_off));
            page.counters("peers_cut_off", "How often another broker was cut off, by broker.", "broker", cut_off)?;
            let noticed = lock(&node.noticed).clone();
            page.gauge("peers_silent", "Other brokers that are not heard.", noticed.silent.len())?;
            page.gauge("clock_ahead_seconds", "Seconds ahead of the others.", noticed.clock_ahead)?;
            page.counters("equivocations", "Proofs of misbehaviour, by broker.", "broker", misbehaviours)
        })
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.node.gateway.stop();
        if self.node.running.swap(false, Ordering::AcqRel) {
            self.take_apart();
        }
    }
}

/// Watching over the other brokers while this one runs.
struct Watched {
    neighbours: Neighbours,
    begun: Instant,
    looked: Option<Instant>,
    asked: Instant,
    times: Option<mpsc::Receiver<BTreeMap<u16, (u64, i64)>>>,
}

impl Watched {
    fn new(config: &Config) -> Watched {
        let neighbours = Neighbours::new(config.index, config.cluster.brokers());
        Watched { neighbours, begun: Instant::now(), looked: None, asked: Instant::now(), times: None }
    }

    /// Looks, once a second; logs what is new and shows it in the status.
    fn look(&mut self, broker: &Broker) {
        if broker.config.cluster.brokers() == 1 || self.looked.is_some_and(|at| at.elapsed() < LOOK_AROUND) {
            return;
        }
        self.looked = Some(Instant::now());
        let now = self.begun.elapsed();
        let order = broker.order.status();
        let seen = Seen {
            now,
            peers: broker.order.peers(),
            tip: order.tip,
            height: broker.executor.height(),
            refused: broker.node.drops.of(Reason::Block),
        };
        let mut lines = self.neighbours.look(&seen);
        let said = self.times.as_ref().map(mpsc::Receiver::try_recv);
        match said {
            Some(Ok(said)) => {
                let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let clock = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
                lines.extend(self.neighbours.compare_clocks(now, clock, &said));
                self.times = None;
            }
            Some(Err(TryRecvError::Disconnected)) => self.times = None,
            Some(Err(TryRecvError::Empty)) => {}
            // Whoever hears the others has a clock that they accept.
            None if self.neighbours.is_alone(now) && self.asked.elapsed() >= CLOCKS_ASKED_EVERY => {
                (self.asked, self.times) = (Instant::now(), Some(broker.request_times()));
            }
            None => {}
        }
        for line in lines {
            match line {
                LogLine::Info(text) => info!("{text}"),
                LogLine::Warn(text) => warn!("{text}"),
            }
        }
        *lock(&broker.node.noticed) = self.neighbours.noticed(now);
    }
}

/// Where all parts meet.
struct Node {
    gateway: Gateway,
    drops: Arc<Drops>,
    evidence_store: Arc<EvidenceStore>,
    descriptors: Meter,
    order: Mutex<Option<Arc<dyn Order>>>,
    /// Old blocks as the order's archive had them: it reads whole ones, and readers want one publication after the other.
    read: Mutex<Cache<u64, Arc<Block>>>,
    admission: Mutex<Option<Arc<Admission>>>,
    /// While the key is made.
    notes: Mutex<Option<Sender<Note>>>,
    noticed: Mutex<Noticed>,
    failure: OnceLock<String>,
    running: AtomicBool,
}

impl Node {
    fn note(&self, note: Note) {
        let mut notes = lock(&self.notes);
        // There is a key: nobody listens any more.
        if notes.as_ref().is_some_and(|listener| listener.send(note).is_err()) {
            *notes = None;
        }
    }
}

impl Outlet for Node {
    fn is_here(&self, client: &Client) -> bool {
        self.gateway.is_here(client)
    }

    fn send(&self, client: &Client, reply: Reply) {
        self.gateway.send(client, &reply);
        // Who sends false signatures or proofs, or accuses falsely, loses the channel: each costs us many checks.
        match reply {
            Reply::Refused { why: Refusal::Signature, .. } => self.gateway.turn_out(client, Reason::BatchSignature),
            Reply::Refused { why: Refusal::Proof, .. } => self.gateway.turn_out(client, Reason::BatchProof),
            Reply::Refused { why: Refusal::Accusation, .. } => self.gateway.turn_out(client, Reason::BatchAccusation),
            _ => {}
        }
    }

    fn dkg(&self, height: u64, broker: u16, word: &[u8]) {
        self.note(Note::Statement { height, broker, word: word.to_vec() });
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
        status.descriptors_used = count(self.descriptors.used());
        status.descriptors_allowed = count(descriptors::allowed());
        if let Some(admission) = &*lock(&self.admission) {
            status.waiting = count(admission.waiting());
            status.commit_micros = admission.commit_micros();
        }
        status.reports = self.evidence_store.reports();
        let noticed = lock(&self.noticed).clone();
        (status.silent, status.cut_off, status.clock_ahead) = (noticed.silent, noticed.cut_off, noticed.clock_ahead);
    }

    fn evidence(&self) -> Vec<(Report, Vec<u8>)> {
        self.evidence_store.proofs()
    }

    fn failed(&self, why: &str) {
        let _ = self.failure.set(why.to_string());
    }
}

impl Blocks for Node {
    fn batch(&self, height: u64, batch: u32) -> Option<Bytes> {
        let known = lock(&self.read).get(&height).cloned();
        let block = match known {
            Some(block) => block,
            None => {
                let order = lock(&self.order).clone()?;
                let block = block_on(order.block(height))?;
                let bytes = block.bytes();
                lock(&self.read).insert(height, block, bytes).clone()
            }
        };
        block.batches.get(usize::try_from(batch).ok()?).map(|batch| batch.bytes().clone())
    }

    fn start_certificate(&self, height: u64) -> Option<StartCertificate> {
        let order = lock(&self.order).clone()?;
        block_on(order.start_certificate(height))
    }

    fn prune(&self, height: u64) {
        *lock(&self.read) = Cache::new(limits::BLOCKS_READ_BYTES_KEPT);
        let order = lock(&self.order).clone();
        order.iter().for_each(|order| order.prune(height));
    }
}

/// What the gateway sees.
struct ClientHandler {
    admission: Arc<Admission>,
    executor: Executor,
}

impl Handler for ClientHandler {
    fn client_status(&self, client: &Client) -> ClientStatus {
        self.executor.client_status(client)
    }

    fn welcome(&self, client: &Client) -> Welcome {
        self.executor.welcome(client)
    }

    fn submit(&self, client: &Client, batch: Bytes) -> Result<(), Refusal> {
        self.admission.submit(client, batch)
    }

    fn answer(&self, client: &Client, query: Query) -> Answer {
        self.executor.answer(client, query)
    }
}

/// Sees to it that what is in the folder can be gone on with; where the order begins, if not at the first block.
fn begin(
    config: &Config,
    consensus: &dyn Consensus,
    key: &Arc<OriginKey>,
    end: &Arc<AtomicBool>,
) -> Result<Option<StartCertificate>, Failure> {
    if config.cluster.brokers() == 1 {
        return Ok(None);
    }
    let votes = sync::Votes::of(&config.folder);
    let disk = |e: io::Error| storage(&config.folder, &e);
    let known = votes.are_known().map_err(disk)?;
    let [joining, state, snapshots] = ["joining", "state", "snapshots"].map(|name| config.at(name));
    let place = sync::JoinFolders { joining, state, snapshots, votes };
    let peers = Peers { cluster: &config.cluster, index: config.index, key, end };
    let is_start_certificate = |start_certificate: &StartCertificate| {
        consensus.check(&engine_settings(config, Some(start_certificate.clone()))).is_ok()
    };
    let rows = |e: io::Error| rows_failure(&place.state, &e.to_string(), true);
    let executed = sync::height_in(&place.state).map_err(rows)?;
    if known && let Some(damaged) = consensus.check_votes(&config.at("order"), executed).map_err(disk)? {
        let consensus::DamagedVotes { file, what } = damaged;
        warn!(
            "{}: the journal of votes is damaged: {what}. This broker goes on without it, and does not vote where it may \
             have voted before",
            file.display()
        );
        place.votes.are_lost().map_err(disk)?;
        consensus.forget_votes(&config.at("order")).map_err(disk)?;
    }
    let mut rng = rng()?;
    let start_certificate = sync::prepare(&place, &peers, &is_start_certificate, &mut rng).map_err(rows)?;
    if start_certificate.is_some() && !known {
        place.votes.doubt().map_err(disk)?;
    }
    if !place.votes.are_in_quarantine().map_err(disk)? {
        return Ok(start_certificate);
    }
    let from = start_certificate.as_ref().map_or(executed, |start_certificate| start_certificate.height);
    wait_for_views(sync::Forgotten::new(from), &peers, &place.votes)?;
    if peers.has_ended() {
        return Ok(start_certificate);
    }
    // Meanwhile the others have pruned on.
    let start_certificate = sync::prepare(&place, &peers, &is_start_certificate, &mut rng).map_err(disk)?;
    place.votes.are_over().map_err(disk)?;
    Ok(start_certificate)
}

/// Without its journal it does not vote where it may have voted already.
fn wait_for_views(mut forgotten: sync::Forgotten, peers: &Peers<'_>, votes: &sync::Votes) -> Result<(), Failure> {
    info!("it has no journal of its votes: it waits until the others have gone on by so much that they know none");
    let (mut left, mut moved) = (None, Instant::now());
    while !peers.has_ended()
        && votes.are_in_quarantine().map_err(|e| storage(&votes.awaited, &e))?
        && !forgotten.is_over(peers)
    {
        let now = forgotten.blocks_left(peers);
        let before = left.replace(now);
        if before != Some(now) {
            moved = Instant::now();
            if before.is_none_or(|before| before.is_some() != now.is_some()) {
                info!(
                    "{}",
                    match now {
                        Some(blocks) => format!("{blocks} blocks to go before it votes"),
                        None => "too few of the others answer".to_owned(),
                    }
                );
            }
        } else if moved.elapsed() > STILL {
            moved = Instant::now();
            if !forgotten.are_heard(peers) {
                warn!("too few of the others answer: it waits until they are heard again");
                continue;
            }
            let file = votes.awaited.display();
            warn!(
                "the others stand still; if they cannot go on without this broker, remove {file} while this runs, and \
                 it votes: what it said before may convict it then, and for an hour nobody hears it"
            );
        }
        thread::sleep(REQUEST_INTERVAL);
    }
    Ok(())
}

fn engine_settings(config: &Config, begin: Option<StartCertificate>) -> consensus::Settings {
    let (namespace, keys) = (config.cluster.cluster().0, config.cluster.broker_keys());
    let brokers =
        keys.into_iter().zip(&config.order).map(|(key, at)| consensus::Broker { key, address: *at }).collect();
    let seed = SigningSeed::new(config.seed.expose());
    let mut settings = consensus::Settings::new(&namespace, brokers, seed, config.listen_order, config.at("order"));
    settings.start = begin.map_or(Start::Genesis, Start::StartCertificate);
    settings.block = config.settings.block;
    settings.unacknowledged = UNACKNOWLEDGED;
    settings.threads = config.settings.threads.engine;
    settings.progress = |done, all| {
        info!("moving the blocks of an older version to the log: {done} of {all}");
    };
    settings
}

fn when(share_on: ShareOn) -> executor::ShareOn {
    match share_on {
        ShareOn::Read => executor::ShareOn::Read,
        ShareOn::Write => executor::ShareOn::Write,
    }
}

/// The engine, or its place taken by one broker alone.
fn start_order(
    config: &Config,
    consensus: &dyn Consensus,
    begin: Option<StartCertificate>,
    admission: Arc<Admission>,
) -> Result<Arc<dyn Order>, Failure> {
    let (folder, n) = (config.at("order"), config.cluster.brokers());
    let fault = |fault: Fault| order_failure(&folder, Some(fault), None, n);
    if n == 1 {
        let settings = solo::Settings {
            namespace: config.cluster.cluster().0.to_vec(),
            folder: folder.clone(),
            block: config.settings.block,
            unacknowledged: UNACKNOWLEDGED,
        };
        let solo = Solo::start(settings, admission).map_err(|e| match e {
            solo::StartError::Damaged { file, what } => Fault::Damaged { file, what },
            solo::StartError::Io(e) => Fault::Storage(e.to_string()),
        });
        return Ok(Arc::new(solo.map_err(fault)?));
    }
    let settings = engine_settings(config, begin);
    match consensus.start(settings, admission) {
        Ok(order) => Ok(order),
        Err(StartError::Io(e)) if matches!(e.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) => {
            Err(address("brokers", config.listen_order, &e))
        }
        Err(StartError::Io(e)) => Err(fault(Fault::Storage(e.to_string()))),
        Err(StartError::Damaged { file, what }) => Err(fault(Fault::Damaged { file, what })),
        Err(StartError::Files { needed }) => Err(fault(Fault::Files { needed })),
        Err(StartError::Ended) => Err(order_failure(&folder, None, log::engine_panic(), n)),
        Err(e) => Err(Failure::Config(e.to_string())),
    }
}

/// Takes the threshold key from the folder, or sees to it that one is made.
fn begin_key<G: PrimeGroup>(
    mut making: Making,
    node: &Node,
    vouched: Option<&VouchedKey>,
) -> Result<Option<JoinHandle<()>>, Failure>
where
    KeyWithShare: From<(PublicKey<G>, Option<KeyShare<G>>)>,
{
    let kept = match making.keys.share::<G>(EPOCH, making.index) {
        Err(gone @ FileError::Erased(_)) => {
            warn!("{gone}");
            None
        }
        kept => kept?,
    };
    let made = |making: &Making| making.made_at().map_err(Failure::from);
    if let Some((key, share)) = kept {
        making.executor.set_key_made((key, Some(share)), made(&making)?);
        return Ok(None);
    }
    if making.threshold < 2 {
        // One broker alone deals to itself.
        let dealt = shares::deal::<G>(&making.cluster, making.threshold, making.brokers, &mut making.rng);
        let (key, mut shares) = dealt.map_err(|e| Failure::Config(e.to_string()))?;
        let share = shares.swap_remove(usize::from(making.index));
        let at = made(&making)?;
        making.keys.keep(&key, &share, &mut making.rng)?;
        making.executor.set_key_made((key, Some(share)), at);
        return Ok(None);
    }
    if let Some(vouched) = vouched {
        // The key suffices to check ciphertexts: it votes like the others.
        let key = PublicKey::<G>::decode(&vouched.key).map_err(|e| Failure::Config(format!("cluster.toml: {e}")))?;
        making.executor.set_key_made((key, None), made(&making)?);
    }
    let words = making.executor.dkg_statements().map_err(|e| Failure::Storage(e.to_string()))?;
    // Who began with a snapshot was not told how the key was made, and no second one is made. Where the words are here, the
    // share may still come of them.
    if words.is_empty() && (vouched.is_some() || making.executor.low_water_mark().height > 0) {
        warn!("the cluster has a threshold key, and this broker no share of it: it helps nobody to read");
        return Ok(None);
    }
    let (notes, noted) = mpsc::channel();
    *lock(&node.notes) = Some(notes);
    making.start::<G>(noted).map(Some).map_err(thread_failed)
}

fn keep_evidence(
    evidence_store: Arc<EvidenceStore>,
    proofs: mpsc::Receiver<sealcast_order::Evidence>,
) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("evidence".into()).spawn(move || {
        for evidence in proofs {
            match evidence_store.keep(&evidence) {
                Ok(Some(path)) => {
                    let what = format!("broker {} contradicted itself: {}", evidence.broker, path.display());
                    warn!("{what}");
                }
                Ok(None) => {}
                Err(e) => error!("evidence against broker {} is lost: {e}", evidence.broker),
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

/// By how much the time of day went back between two looks at it and at the clock that never does.
fn set_back(before: (SystemTime, Instant), now: (SystemTime, Instant)) -> Option<Duration> {
    (before.0 + now.1.duration_since(before.1)).duration_since(now.0).ok()
}

/// Whether the rows have lost blocks that were durable: the order has an acknowledgement for each block up to its height.
fn rows_lost(config: &Config, order: &dyn Order, executor: &Executor) -> Option<Failure> {
    // In this order: a block is acknowledged after it is durable.
    let acknowledged = order.status().height;
    let executed = executor.height();
    let what = || format!("it ends at block {executed}, and this broker had executed block {acknowledged}");
    let has_others = config.cluster.brokers() > 1;
    (acknowledged > executed).then(|| Failure::Damaged { file: config.at("state"), what: what(), has_others })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Blocks delivered and not yet durable: execution falls behind by no more.
const UNACKNOWLEDGED: usize = 32;
/// How long a broker may execute nothing before it asks how far back the others go.
const STALLED: Duration = Duration::from_secs(15);
/// A clock that is set back by less delays a broker by no more; the engine keeps deadlines by the time of day.
const CLOCK_BACK: Duration = Duration::from_secs(5);
/// How often [`Broker::wait`] looks.
const LOOK: Duration = Duration::from_millis(100);
/// How often a broker looks at whom it hears.
const LOOK_AROUND: Duration = Duration::from_secs(1);
/// How often a broker that hears too few asks the others for the time.
const CLOCKS_ASKED_EVERY: Duration = Duration::from_secs(3);
/// How often the others are asked how far they are, by a broker that waits for them.
const REQUEST_INTERVAL: Duration = Duration::from_millis(500);
/// Others that have not moved for this long do not go on by themselves.
const STILL: Duration = Duration::from_secs(30);
