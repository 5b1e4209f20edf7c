//! Brokers in upstream's deterministic runtime: simulated links, a simulated disk, crashes, one seed for everything.

use std::sync::Arc;
use std::time::Duration;

use commonware_cryptography::ed25519::PublicKey;
use commonware_p2p::Recipients;
use commonware_p2p::simulated::{self, Link, Oracle, Receiver, SplitOrigin, SplitSender, SplitTarget};
use commonware_runtime::deterministic::Context;
use commonware_runtime::{Clock as _, Handle as Task, IoBuf, Spawner as _, Supervisor as _};
use commonware_utils::Probability;
use commonware_utils::channel::oneshot;
use rand_core::Rng as _;

use super::handle::Handle;
use super::settings::{Broker, Settings, SigningSeed, Start};
use super::stack::{self, Cluster, Links, Network};
use crate::block::{BlockSize, Frame};
use crate::testing::Ledger;

pub(super) const SIZE: BlockSize = BlockSize { frames: 8, bytes: 4096 };

/// Every sender is split, so that the engine is instantiated once for honest brokers and twins.
type Forwarder = fn(SplitOrigin, &Recipients<PublicKey>, &IoBuf) -> Option<Recipients<PublicKey>>;
type Channels = Links<SplitSender<PublicKey, Context, Forwarder>, Receiver<PublicKey>>;

pub(super) struct World {
    pub(super) context: Context,
    pub(super) settings: Vec<Settings>,
    pub(super) ledgers: Vec<Arc<Ledger>>,
    brokers: Vec<Option<(Handle, Task<()>)>>,
    oracle: Oracle<PublicKey, Context>,
    keys: Vec<PublicKey>,
}

/// Four brokers' settings, by index.
pub(super) fn settings() -> Vec<Settings> {
    let seeds: Vec<SigningSeed> = (0..4).map(|i| SigningSeed::new(&[i + 1; 32])).collect();
    let address = |port| ([127, 0, 0, 1], port).into();
    let brokers: Vec<Broker> =
        (0..4).zip(&seeds).map(|(i, s)| Broker { key: s.public(), address: address(i) }).collect();
    let of = |(i, seed): (u16, &SigningSeed)| Settings {
        block: SIZE,
        term: 4,
        ..Settings::new(b"simulation", brokers.clone(), seed.clone(), address(i), "".into())
    };
    (0..4).zip(&seeds).map(of).collect()
}

impl World {
    /// Four brokers that do not run yet, fully linked. Latency up to 25 ms, loss up to 1 in `lossy`.
    pub(super) async fn new(mut context: Context, ledgers: Vec<Arc<Ledger>>, lossy: Option<u64>) -> World {
        let settings = settings();
        let keys = Cluster::check(&settings[0]).expect("the settings hold").keys;
        let config = simulated::Config {
            max_size: 1 << 20,
            max_peers_per_set: 4.try_into().expect("it is not zero"),
            disconnect_on_block: true,
            tracked_peer_sets: 1.try_into().expect("it is not zero"),
        };
        let (network, oracle) =
            simulated::Network::new_with_peers(context.child("network"), config, keys.clone()).await;
        network.start();
        let brokers = (0..4).map(|_| None).collect();
        let mut world = World { context: context.child("world"), settings, ledgers, brokers, oracle, keys };
        for (a, b) in pairs() {
            let loss = lossy.map_or(0, |one_in| context.next_u64() % (100 / one_in + 1));
            let latency = 1 + context.next_u64() % 25;
            world.link(a, b, latency, 100 - loss).await;
        }
        world
    }

    pub(super) async fn link(&mut self, a: usize, b: usize, latency_millis: u64, success_percent: u64) {
        let link = Link {
            latency: Duration::from_millis(latency_millis),
            jitter: Duration::from_millis(latency_millis / 3),
            success_rate: Probability::new(success_percent, 100).expect("a share of 100"),
        };
        self.oracle.add_link(self.keys[a].clone(), self.keys[b].clone(), link).await.expect("both are peers");
    }

    pub(super) async fn unlink(&mut self, a: usize, b: usize) {
        self.oracle.remove_link(self.keys[a].clone(), self.keys[b].clone()).await.expect("they were linked");
    }

    /// Starts a broker on its own disk.
    pub(super) async fn start(&mut self, i: usize) {
        let (links, _) = self.channels(i).await;
        let running = self.run(i, &format!("broker{i}-"), links, self.ledgers[i].clone()).await;
        self.brokers[i] = Some(running);
    }

    /// Starts a broker twice under one key: both halves are honest code, together they contradict themselves.
    /// Returns the second half's handle.
    pub(super) async fn start_twins(&mut self, i: usize, second: Arc<Ledger>) -> Handle {
        let (one, two) = self.channels(i).await;
        let first = self.run(i, &format!("broker{i}-"), one, self.ledgers[i].clone()).await;
        self.brokers[i] = Some(first);
        self.run(i, &format!("twin{i}-"), two, second).await.0
    }

    async fn run(&self, i: usize, disk: &str, links: Channels, ledger: Arc<Ledger>) -> (Handle, Task<()>) {
        let settings = self.settings[i].clone();
        let cluster = Cluster::check(&settings).expect("the settings hold");
        let network =
            Network { peers: self.oracle.manager(), blocker: self.oracle.control(self.keys[i].clone()), links };
        let (started, is_started) = oneshot::channel();
        let name = disk.to_string();
        let task = self.context.child("broker").spawn(move |context| async move {
            let (handle, all) = stack::start(context, &name, &settings, cluster, ledger, network).await;
            assert!(started.send(handle).is_ok(), "the story waits for its broker");
            let _ = all.await;
        });
        (is_started.await.expect("it starts"), task)
    }

    async fn channels(&mut self, i: usize) -> (Channels, Channels) {
        let control = self.oracle.control(self.keys[i].clone());
        let mut first = Vec::new();
        let mut second = Vec::new();
        for channel in 0..stack::CHANNELS {
            let (sender, receiver) = control.register(channel, stack::quota()).await.expect("the network runs");
            let (s1, s2) = sender.split_with(everybody as Forwarder);
            let (r1, r2) = receiver.split_with(self.context.child("split"), |_| SplitTarget::Both);
            first.push((s1, r1));
            second.push((s2, r2));
        }
        (Links::new(first.into_iter()), Links::new(second.into_iter()))
    }

    /// Kills a broker: its tasks end where they stand, what it had not synced is gone.
    pub(super) async fn crash(&mut self, i: usize) {
        let (_, task) = self.brokers[i].take().expect("it runs");
        task.abort();
        let _ = task.await;
        self.ledgers[i].crash();
    }

    pub(super) fn broker(&self, i: usize) -> &Handle {
        &self.brokers[i].as_ref().expect("it runs").0
    }

    /// Hands in a frame at broker `i`.
    pub(super) fn submit(&self, i: usize, text: &str) -> Frame {
        let frame = Frame::new(text.as_bytes().to_vec());
        self.broker(i).submit(frame.clone()).expect("an honest broker takes a good frame");
        frame
    }

    /// Hands in `count` frames at random brokers among `at`, over some time.
    pub(super) async fn submit_many(&mut self, at: &[usize], what: &str, count: usize) -> Vec<Frame> {
        let mut frames = Vec::new();
        for n in 0..count {
            let i = at[self.below(at.len())];
            frames.push(self.submit(i, &format!("{what} {n}")));
            let pause = self.below(40) as u64;
            self.sleep(pause).await;
        }
        frames
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.context.next_u64() % n as u64).expect("it is below a usize")
    }

    pub(super) async fn sleep(&self, millis: u64) {
        self.context.sleep(Duration::from_millis(millis)).await;
    }

    /// Waits until the ledgers of these brokers hold the frames.
    pub(super) async fn until_ordered(&self, at: &[usize], frames: &[Frame], story: &str) {
        let all = || at.iter().all(|i| self.ledgers[*i].has(frames));
        self.until(all, &format!("{story}: all frames ordered at {at:?}")).await;
    }

    /// Waits for something, for two simulated minutes at most.
    pub(super) async fn until(&self, holds: impl Fn() -> bool, what: &str) {
        for _ in 0..12_000 {
            if holds() {
                return;
            }
            self.sleep(10).await;
        }
        let heights: Vec<u64> = self.ledgers.iter().map(|l| l.height()).collect();
        panic!("never came: {what} (heights {heights:?})");
    }
}

/// All ordered pairs of different brokers.
pub(super) fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..4).flat_map(|a| (0..4).map(move |b| (a, b))).filter(|(a, b)| a != b)
}

pub(super) fn ledgers() -> Vec<Arc<Ledger>> {
    (0..4).map(|_| Arc::new(Ledger::new(SIZE))).collect()
}

/// Both halves of a twin speak to everybody.
fn everybody(_: SplitOrigin, to: &Recipients<PublicKey>, _: &IoBuf) -> Option<Recipients<PublicKey>> {
    Some(to.clone())
}

/// What the settings of a story may change.
impl World {
    pub(super) fn start_from(&mut self, i: usize, start: Start) {
        self.settings[i].start = start;
    }
}
