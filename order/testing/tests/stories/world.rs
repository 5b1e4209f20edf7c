//! What stories of four brokers have in common: ledgers above the engine, and batches handed in.

use std::sync::Arc;
use std::time::Duration;

use sealcast_order::{Batch, BlockSize, Order};
use sealcast_order_engine::{Broker, Settings, SigningSeed, Start};
use sealcast_order_testing::Ledger;
use sealcast_order_testing::simulated::{Brokers, Root};

pub(crate) const SIZE: BlockSize = BlockSize { batches: 8, bytes: 4096 };

pub(crate) struct World {
    pub(crate) brokers: Brokers,
    pub(crate) ledgers: Vec<Arc<Ledger>>,
}

/// Four brokers' settings, by index.
pub(crate) fn settings() -> Vec<Settings> {
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
    pub(crate) async fn new(root: Root, ledgers: Vec<Arc<Ledger>>, lossy: Option<u64>) -> World {
        let mut brokers = Brokers::new(root, settings()).await;
        for (a, b) in pairs() {
            let loss = lossy.map_or(0, |one_in| brokers.random() % (100 / one_in + 1));
            let latency = 1 + brokers.random() % 25;
            brokers.link(a, b, Duration::from_millis(latency), 100 - loss).await;
        }
        World { brokers, ledgers }
    }

    pub(crate) async fn link(&mut self, a: usize, b: usize, latency_millis: u64, success_percent: u64) {
        self.brokers.link(a, b, Duration::from_millis(latency_millis), success_percent).await;
    }

    pub(crate) async fn unlink(&mut self, a: usize, b: usize) {
        self.brokers.unlink(a, b).await;
    }

    pub(crate) async fn start(&mut self, i: usize) {
        self.brokers.start(i, self.ledgers[i].clone()).await;
    }

    pub(crate) async fn start_twins(&mut self, i: usize, second: Arc<Ledger>) -> Arc<dyn Order> {
        self.brokers.start_twins(i, self.ledgers[i].clone(), second).await
    }

    pub(crate) async fn start_twins_apart(&mut self, i: usize, second: Arc<Ledger>, only: usize) -> Arc<dyn Order> {
        self.brokers.start_twins_apart(i, self.ledgers[i].clone(), second, only).await
    }

    /// Kills a broker: its tasks end where they stand, what it had not synced is gone.
    pub(crate) async fn crash(&mut self, i: usize) {
        self.brokers.crash(i).await;
        self.ledgers[i].crash();
    }

    pub(crate) fn broker(&self, i: usize) -> Arc<dyn Order> {
        self.brokers.order(i)
    }

    pub(crate) fn start_from(&mut self, i: usize, start: Start) {
        self.brokers.start_from(i, start);
    }

    pub(crate) fn resize(&mut self, i: usize, block: BlockSize) {
        self.brokers.resize(i, block);
    }

    pub(crate) fn may_start(&self, i: usize) -> bool {
        self.brokers.may_start(i)
    }

    /// Hands in a batch at broker `i`.
    pub(crate) fn submit(&self, i: usize, text: &str) -> Batch {
        let batch = Batch::new(text.as_bytes().to_vec());
        self.broker(i).submit(batch.clone()).expect("an honest broker takes a good batch");
        batch
    }

    /// Hands in `count` batches at random brokers among `at`, over some time.
    pub(crate) async fn submit_many(&mut self, at: &[usize], what: &str, count: usize) -> Vec<Batch> {
        let mut batches = Vec::new();
        for n in 0..count {
            let i = at[self.below(at.len())];
            batches.push(self.submit(i, &format!("{what} {n}")));
            let pause = self.below(40) as u64;
            self.sleep(pause).await;
        }
        batches
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.brokers.random() % n as u64).expect("it is below a usize")
    }

    pub(crate) async fn sleep(&self, millis: u64) {
        self.brokers.sleep(Duration::from_millis(millis)).await;
    }

    /// Waits until the ledgers of these brokers hold the batches.
    pub(crate) async fn until_ordered(&self, at: &[usize], batches: &[Batch], story: &str) {
        let all = || at.iter().all(|i| self.ledgers[*i].has(batches));
        self.until(all, &format!("{story}: all batches ordered at {at:?}")).await;
    }

    /// Waits for something, for two simulated minutes at most.
    pub(crate) async fn until(&self, holds: impl Fn() -> bool, what: &str) {
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
pub(crate) fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..4).flat_map(|a| (0..4).map(move |b| (a, b))).filter(|(a, b)| a != b)
}

pub(crate) fn ledgers() -> Vec<Arc<Ledger>> {
    (0..4).map(|_| Arc::new(Ledger::new())).collect()
}
