//! An honest client beside flooding certificates: its wait must not depend on what others have waiting, and what a flood
//! took of the brokers' memory goes back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sealcast::brokers::{Brokers, Outgoing};
use sealcast_broker::operation::{Execute, Header};

use super::disk;
use crate::Failure;
use crate::brokers::cluster::Cluster;
use crate::figures::{Bench, Goal, Row};

pub(in crate::figures) const FLOODS: &[&str] = &["brokers-flood-one", "brokers-flood-eight"];

/// One publication at a time, unloaded, then beside one flooding certificate, then beside eight.
pub(in crate::figures) fn floods(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let publications = bench.pick(100, 500);
    let mut cluster = Cluster::start(4, &disk())?;
    cluster.caught_up(TIMEOUT)?;
    let honest = cluster.client(1)?;
    honest.registered().wait()?;
    // The first ones find caches cold.
    Waits::measure(&honest, WARM_UP)?;
    let unloaded = Waits::measure(&honest, publications)?;
    let mut rows = Vec::new();
    let kinds = [(FLOODS[0], 1, "one flooding certificate", 10.0), (FLOODS[1], 8, "eight flooding certificates", 20.0)];
    let megabytes = |cluster: &Cluster| cluster.memory().map(|bytes| bytes as f64 / 1e6);
    for (id, flooders, what, goal) in kinds.into_iter().filter(|(id, ..)| bench.wants(id)) {
        let before = megabytes(&cluster)?;
        let flood = Flood::start(&cluster, flooders)?;
        let flooded = Waits::measure(&honest, publications);
        let under = megabytes(&cluster)?;
        let (flooded, ordered) = (flooded?, flood.end()?);
        cluster.check()?;
        std::thread::sleep(AFTERWARDS);
        let after = megabytes(&cluster)?;
        let how = format!(
            "{publications} publications of 1 KB, one at a time, in {}; each flooder has up to {FLOODED} publications of \
             1 KB in batches of {BATCH} under way all the time",
            disk().display()
        );
        let row = Row::new(
            "brokers",
            id,
            format!("an honest client's p99 beside {what} ÷ unloaded"),
            "ratio",
            Goal::AtMost(goal),
        );
        rows.push(
            row.part("unloaded p50 ms", unloaded.quantile(0.5))
                .part("unloaded p99 ms", unloaded.quantile(0.99))
                .part("flooded p50 ms", flooded.quantile(0.5))
                .part("flooded p99 ms", flooded.quantile(0.99))
                .part("flood's publications ordered per s", ordered)
                .part("memory before, MB", before)
                .part("memory under, MB", under)
                .part("memory a minute after, MB", after)
                .measured(flooded.quantile(0.99) / unloaded.quantile(0.99), how),
        );
    }
    honest.close();
    Ok(rows)
}

/// How long publications took until f + 1 brokers said what came of them, milliseconds, ascending.
struct Waits(Vec<f64>);

impl Waits {
    fn measure(client: &Brokers, publications: usize) -> Result<Waits, Failure> {
        let outgoing = outgoing("honest");
        let mut waits = Vec::with_capacity(publications);
        for _ in 0..publications {
            let begun = Instant::now();
            client.publish(&outgoing).wait()?;
            waits.push(begun.elapsed().as_secs_f64() * 1e3);
            std::thread::sleep(PAUSE);
        }
        waits.sort_unstable_by(f64::total_cmp);
        Ok(Waits(waits))
    }

    /// The nearest rank, so that a quantile is a wait that somebody had.
    fn quantile(&self, q: f64) -> f64 {
        let rank = (q * self.0.len() as f64).ceil() as usize;
        self.0[rank.clamp(1, self.0.len()) - 1]
    }
}

/// Clients with a certificate each, which always have as much under way as they may.
struct Flood {
    ending: Arc<AtomicBool>,
    ordered: Arc<AtomicU64>,
    begun: Instant,
    clients: Vec<JoinHandle<Result<(), String>>>,
}

impl Flood {
    /// Returns once all of them have filled what they may have under way.
    fn start(cluster: &Cluster, flooders: usize) -> Result<Flood, Failure> {
        let (ending, ordered, full) = (Arc::new(AtomicBool::new(false)), Arc::default(), Arc::new(AtomicU64::new(0)));
        let mut clients = Vec::new();
        for flooder in 0..flooders {
            let client = cluster.client_of(&format!("flooder-{flooders}-{flooder}"), BATCH)?;
            client.registered().wait()?;
            let (ending, ordered, full) = (ending.clone(), Arc::clone(&ordered), full.clone());
            clients.push(std::thread::spawn(move || {
                let came = flood(&client, &ending, &ordered, &full);
                client.close();
                came.map_err(|e| format!("flooder {flooder}: {e}"))
            }));
        }
        let begun = Instant::now();
        while full.load(Ordering::Acquire) < flooders as u64 && clients.iter().all(|it| !it.is_finished()) {
            if begun.elapsed() > TIMEOUT {
                return Err("the flood did not come up".into());
            }
            std::thread::sleep(PAUSE);
        }
        ordered.store(0, Ordering::Release);
        Ok(Flood { ending, ordered, begun: Instant::now(), clients })
    }

    /// Ends it; how many of its publications were ordered per second.
    fn end(self) -> Result<f64, Failure> {
        let rate = self.ordered.load(Ordering::Acquire) as f64 / self.begun.elapsed().as_secs_f64();
        self.ending.store(true, Ordering::Release);
        for client in self.clients {
            client.join().map_err(|_| "a flooder's thread ended")??;
        }
        Ok(rate)
    }
}

fn flood(client: &Brokers, ending: &AtomicBool, ordered: &AtomicU64, full: &AtomicU64) -> Result<(), sealcast::Error> {
    let (outgoing, mut under_way) = (outgoing("flood"), VecDeque::new());
    let mut was_full = false;
    while !ending.load(Ordering::Acquire) {
        if under_way.len() < FLOODED {
            under_way.push_back(client.begin(&outgoing).wait()?);
            continue;
        }
        if !std::mem::replace(&mut was_full, true) {
            full.fetch_add(1, Ordering::AcqRel);
        }
        if let Some(oldest) = under_way.pop_front() {
            client.outcome(oldest).wait()?;
            ordered.fetch_add(1, Ordering::AcqRel);
        }
    }
    Ok(())
}

fn outgoing(topic: &str) -> Outgoing {
    Outgoing {
        headers: vec![Header { topic: topic.into(), value: None }],
        associated: Vec::new(),
        access: None,
        execute: Execute::Nothing,
        body: vec![0x5A; BYTES],
    }
}

const BYTES: usize = 1024;
/// Publications of one batch of a flooder.
const BATCH: usize = 32;
/// Publications that one flooder has under way: 16 MB.
const FLOODED: usize = 16_384;
/// Publications before those that are measured.
const WARM_UP: usize = 20;
/// When memory is looked at again.
const AFTERWARDS: Duration = Duration::from_secs(60);
/// Between two publications of the honest client.
const PAUSE: Duration = Duration::from_millis(20);
/// Beyond this something is wrong.
const TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_wait_that_somebody_had() {
        let waits = Waits((1..=200).map(f64::from).collect());
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|q| waits.quantile(q)), [1.0, 100.0, 198.0, 200.0]);
        assert_eq!(Waits(vec![7.0]).quantile(0.99), 7.0);
    }
}
