//! Brokers in upstream's deterministic runtime: simulated links, a simulated disk, crashes, one seed for everything.
//!
//! ```text
//! play(seed, torn, story) ─▶ Root ─▶ Brokers::new: links ─▶ start, crash, start_twins … ─▶ Disks ─▶ play_on
//! ```
//! A story is one task; while it sleeps, brokers run. All of them end with it, where they stand, and what was not synced
//! is torn, if it is to be, or gone: [`play_on`] begins another story on the [`Disks`] that are left.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::Recipients;
use commonware_p2p::simulated::{self, Link, Oracle, Receiver, SplitOrigin, SplitSender, SplitTarget};
use commonware_runtime::deterministic::{
    Checkpoint, Config, Context, FaultConfig, PartialWriteMode, Runner, WriteConfig,
};
use commonware_runtime::{Clock as _, Handle as Task, IoBuf, Spawner as _, Supervisor as _};
use commonware_utils::channel::oneshot;
use commonware_utils::{Probability, probability};
use rand_core::Rng as _;
use sealcast_order::{Application, BlockSize, Order, StartCertificate};
use sealcast_order_engine::parts::{CHANNELS, Cluster, Handle, Links, Network, quota, start};
use sealcast_order_engine::{Settings, Start};

/// Every sender is split, so that the engine is instantiated once for honest brokers and twins.
type Forwarder =
    &'static (dyn Fn(SplitOrigin, &Recipients<PublicKey>, &IoBuf) -> Option<Recipients<PublicKey>> + Send + Sync);
type Channels = Links<SplitSender<PublicKey, Context, Forwarder>, Receiver<PublicKey>>;

/// What the brokers' disks hold when a story has ended.
pub struct Disks(Checkpoint);

/// A story's hold on the runtime.
pub struct Root(Context);

impl Root {
    /// The runtime itself, for stories of one part of a broker.
    pub fn context(self) -> Context {
        self.0
    }
}

/// Plays a story. With `torn`, of what a crash finds unsynced half the writes are there, whole or in part.
pub fn play<T, F: Future<Output = T>>(seed: u64, torn: bool, story: impl FnOnce(Root) -> F) -> (T, Disks) {
    let faults = FaultConfig {
        write_rate: torn.then(|| WriteConfig {
            failure_rate: probability!(0.0),
            retention_rate: probability!(0.5),
            mode: if seed.is_multiple_of(2) { PartialWriteMode::Prefix } else { PartialWriteMode::Subset },
        }),
        ..FaultConfig::default()
    };
    let config = Config::new().with_seed(seed).with_storage_fault_config(faults);
    let (told, checkpoint) = Runner::new(config).start_and_recover(|context| story(Root(context)));
    (told, Disks(checkpoint))
}

/// Goes on after all brokers were killed.
pub fn play_on<T, F: Future<Output = T>>(disks: Disks, story: impl FnOnce(Root) -> F) -> (T, Disks) {
    let (told, checkpoint) = Runner::from(disks.0).start_and_recover(|context| story(Root(context)));
    (told, Disks(checkpoint))
}

/// Brokers with their links.
pub struct Brokers {
    context: Context,
    settings: Vec<Settings>,
    /// How often each has lost its disk.
    lost: Vec<u32>,
    running: Vec<Option<(Handle, Task<()>)>>,
    oracle: Oracle<PublicKey, Context>,
    keys: Vec<PublicKey>,
}

impl Brokers {
    /// Brokers that do not run yet, by index, each with the settings of one cluster; no links.
    ///
    /// # Panics
    /// If the settings contradict each other.
    pub async fn new(root: Root, settings: Vec<Settings>) -> Brokers {
        let Root(context) = root;
        let keys = Cluster::check(&settings[0]).expect("the settings hold").keys;
        let config = simulated::Config {
            max_size: 1 << 20,
            max_peers_per_set: keys.len().try_into().expect("it is not zero"),
            disconnect_on_block: true,
            tracked_peer_sets: 1.try_into().expect("it is not zero"),
        };
        let (network, oracle) =
            simulated::Network::new_with_peers(context.child("network"), config, keys.clone()).await;
        network.start();
        let running = keys.iter().map(|_| None).collect();
        let lost = vec![0; keys.len()];
        Brokers { context: context.child("brokers"), settings, lost, running, oracle, keys }
    }

    /// Opens the link from `a` to `b`, or changes it: of 100 messages so many come.
    pub async fn link(&mut self, a: usize, b: usize, latency: Duration, success_percent: u64) {
        let link = Link {
            latency,
            jitter: latency / 3,
            success_rate: Probability::new(success_percent, 100).expect("a share of 100"),
        };
        self.oracle.add_link(self.keys[a].clone(), self.keys[b].clone(), link).await.expect("both are peers");
    }

    /// Closes it.
    pub async fn unlink(&mut self, a: usize, b: usize) {
        self.oracle.remove_link(self.keys[a].clone(), self.keys[b].clone()).await.expect("they were linked");
    }

    /// Starts a broker on its own disk.
    pub async fn start(&mut self, i: usize, application: Arc<dyn Application>) {
        let (links, _) = self.channels(i, &everybody).await;
        let running = self.run(i, &self.disk(i), links, application).await;
        self.running[i] = Some(running);
    }

    /// Starts a broker twice under one key: both halves are honest code, together they contradict themselves.
    /// Returns the second half.
    pub async fn start_twins(
        &mut self,
        i: usize,
        first: Arc<dyn Application>,
        second: Arc<dyn Application>,
    ) -> Arc<dyn Order> {
        self.start_halves(i, first, second, &everybody).await
    }

    /// The same; the first half speaks to broker `only` alone, and the second one to all others.
    pub async fn start_twins_apart(
        &mut self,
        i: usize,
        first: Arc<dyn Application>,
        second: Arc<dyn Application>,
        only: usize,
    ) -> Arc<dyn Order> {
        let (one, others) = (self.keys[only].clone(), self.keys.clone());
        let apart = move |half: SplitOrigin, to: &Recipients<PublicKey>, _: &IoBuf| {
            let to = match to {
                Recipients::All => others.clone(),
                Recipients::Some(some) => some.clone(),
                Recipients::One(one) => vec![one.clone()],
            };
            let is_first = matches!(half, SplitOrigin::Primary);
            let to: Vec<PublicKey> = to.into_iter().filter(|key| (*key == one) == is_first).collect();
            (!to.is_empty()).then_some(Recipients::Some(to))
        };
        // A few bytes for each story: upstream wants a forwarder that can be copied.
        self.start_halves(i, first, second, Box::leak(Box::new(apart))).await
    }

    async fn start_halves(
        &mut self,
        i: usize,
        first: Arc<dyn Application>,
        second: Arc<dyn Application>,
        speaks: Forwarder,
    ) -> Arc<dyn Order> {
        let (one, two) = self.channels(i, speaks).await;
        let first = self.run(i, &self.disk(i), one, first).await;
        self.running[i] = Some(first);
        Arc::new(self.run(i, &format!("twin{i}-"), two, second).await.0)
    }

    async fn run(
        &self,
        i: usize,
        disk: &str,
        links: Channels,
        application: Arc<dyn Application>,
    ) -> (Handle, Task<()>) {
        let settings = self.settings[i].clone();
        let cluster = Cluster::check(&settings).expect("the settings hold");
        let network =
            Network { peers: self.oracle.manager(), blocker: self.oracle.control(self.keys[i].clone()), links };
        let (started, is_started) = oneshot::channel();
        let name = disk.to_string();
        let task = self.context.child("broker").spawn(move |context| async move {
            let order = start(context, &name, &settings, cluster, application, network).await;
            let (handle, all) = order.expect("the simulated disk does its work");
            assert!(started.send(handle).is_ok(), "the story waits for its broker");
            let _ = all.await;
        });
        (is_started.await.expect("it starts"), task)
    }

    async fn channels(&mut self, i: usize, speaks: Forwarder) -> (Channels, Channels) {
        let control = self.oracle.control(self.keys[i].clone());
        let mut first = Vec::new();
        let mut second = Vec::new();
        for channel in 0..CHANNELS {
            let (sender, receiver) = control.register(channel, quota()).await.expect("the network runs");
            let (s1, s2) = sender.split_with(speaks);
            let (r1, r2) = receiver.split_with(self.context.child("split"), |_| SplitTarget::Both);
            first.push((s1, r1));
            second.push((s2, r2));
        }
        (Links::new(first.into_iter()), Links::new(second.into_iter()))
    }

    /// Kills a broker: its tasks end where they stand. What its application had not synced is the story's affair.
    ///
    /// # Panics
    /// If it does not run.
    pub async fn crash(&mut self, i: usize) {
        let (_, task) = self.running[i].take().expect("it runs");
        task.abort();
        let _ = task.await;
    }

    /// A running broker's order.
    ///
    /// # Panics
    /// If it does not run.
    pub fn order(&self, i: usize) -> Arc<dyn Order> {
        Arc::new(self.running[i].as_ref().expect("it runs").0.clone())
    }

    /// Lets time pass.
    pub async fn sleep(&self, time: Duration) {
        self.context.sleep(time).await;
    }

    /// Time since 1970, as this runtime has it.
    pub fn now(&self) -> Duration {
        self.context.current().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    /// A random number of the seed.
    pub fn random(&mut self) -> u64 {
        self.context.next_u64()
    }

    /// A hash over all that the runtime did so far.
    pub fn trace(&self) -> String {
        self.context.auditor().state()
    }

    /// Where a broker whose disk is empty begins.
    pub fn start_from(&mut self, i: usize, start: Start) {
        self.settings[i].start = start;
    }

    /// How much a block of a broker holds, from its next start on.
    pub fn resize(&mut self, i: usize, block: BlockSize) {
        self.settings[i].block = block;
    }

    /// Whether it could start so.
    pub fn may_start(&self, i: usize) -> bool {
        Cluster::check(&self.settings[i]).is_ok()
    }

    /// Whether a broker could begin at this floor.
    pub fn is_start_certificate(&self, i: usize, start_certificate: &StartCertificate) -> bool {
        let start = Start::StartCertificate(start_certificate.clone());
        Cluster::check(&Settings { start, ..self.settings[i].clone() }).is_ok()
    }

    /// A broker that does not run has another disk when it starts again, an empty one.
    ///
    /// # Panics
    /// If it runs.
    pub fn lose_disk(&mut self, i: usize) {
        assert!(self.running[i].is_none(), "it does not run");
        self.lost[i] += 1;
    }

    fn disk(&self, i: usize) -> String {
        match self.lost[i] {
            0 => format!("broker{i}-"),
            lost => format!("broker{i}_{lost}-"),
        }
    }
}

/// Both halves of a twin speak to everybody.
fn everybody(_: SplitOrigin, to: &Recipients<PublicKey>, _: &IoBuf) -> Option<Recipients<PublicKey>> {
    Some(to.clone())
}
