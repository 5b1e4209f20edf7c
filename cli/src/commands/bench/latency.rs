//! Round trips: publish, an echo publishes back, until it is here again. Messages with a guarantee go one way: publish, until
//! they are acknowledged.
//!
//! A round trip has two modes. Where sender and receiver share a core, the receiver runs as soon as the sender waits. Where they
//! do not, the receiver's core has mostly gone idle meanwhile, and waking it costs an interrupt from core to core at each of the
//! two ends, several times what sealing costs. Left alone, the scheduler chooses anew whenever a core seems idle, so that one
//! kind may be measured in one mode and the next one in the other. Hence the ends are held on cores, one unless asked
//! otherwise, and the kinds take turns in short blocks, each compared with the first one of its own turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::thread::sched_getcpu;
use sealcast::code::Code;
use sealcast::{Session, Subscription};
use serde_json::json;

use super::cores::{Cores, PinnedCores};
use super::{BenchSetup, Guarantee, Kind, Location, Protection, Publisher, median, percentile, stop_if_asked};
use crate::commands::Env;
use crate::hint::Failure;
use crate::text::{parse_bytes, row, size, table, thousands};

/// See the module.
#[derive(Debug, Args)]
pub(super) struct Latency {
    /// Bytes of a message
    #[arg(long, default_value = "100B", value_name = "SIZE", value_parser = parse_bytes)]
    size: usize,
    /// Round trips of each kind
    #[arg(long, default_value_t = 1000, value_name = "N")]
    count: usize,
    /// What to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["plain", "sealed"], value_name = "KINDS")]
    compare: Vec<Protection>,
    /// How strongly messages are published: best-effort ones are echoed, others acknowledged by the group
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["best-effort"], value_name = "GUARANTEES")]
    guarantee: Vec<Guarantee>,
    /// Who publishes what one member orders: that one or another
    #[arg(long, value_enum, default_value = "any", value_name = "WHO", hide_possible_values = true)]
    publisher: Publisher,
    /// Members of the group
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=60))]
    members: u16,
    /// On how many cores the two ends run: one; two, which adds waking the other one; or any, which shows the
    /// share of both
    #[arg(long, value_enum, default_value = "one", value_name = "HOW", hide_possible_values = true)]
    cores: Cores,
    #[command(flatten)]
    location: Location,
}

/// One kind's figures.
#[derive(Default)]
struct Measured {
    /// Of each round trip.
    nanos: Vec<u64>,
    /// The middle one of each turn.
    middles: Vec<f64>,
    /// Of those whose two ends ran on one core, nanoseconds.
    near: Vec<u64>,
    /// Of those whose ends ran on two.
    far: Vec<u64>,
    lost: usize,
}

/// Members of a group: one asks, one echoes, and the others hear it all.
struct Pair {
    guarantee: Guarantee,
    here: Session,
    echo: Session,
    _others: Vec<Session>,
    answers: Subscription,
    echoing: Option<JoinHandle<Result<(), Failure>>>,
    /// The core on which the echo last answered.
    echo_core: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
    _setup: BenchSetup,
}

impl Latency {
    pub(super) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let held = self.cores.hold()?;
        env.output.say(format!(
            "round trip, {} each way, alone, {} times, linger 0, {} members, {held}",
            size(self.size),
            thousands(self.count as u64),
            self.members
        ));
        let measured = self.measure(env, &held);
        // Whatever comes later runs where it likes.
        held.release();
        self.show(env, &held, measured?)
    }

    fn show(&self, env: &Env<'_>, held: &PinnedCores, measured: Vec<Measured>) -> Result<(), Failure> {
        let mut rows = vec![row(["", "p50 µs", "p99 µs", "max µs", "lost", "ratio"])];
        if held.is_free() {
            rows[0].extend(["one core", "p50 µs", "two cores", "p50 µs"].map(str::to_owned));
        }
        let first = measured.first().map(|m| m.middles.clone()).unwrap_or_default();
        for (kind, mut m) in self.kinds().into_iter().zip(measured) {
            m.nanos.sort_unstable();
            let ratio = median(m.middles.iter().zip(&first).map(|(this, first)| this / first).collect());
            let at = |share: f64| percentile(&m.nanos, share);
            let (p50, p99, max) = (at(0.5), at(0.99), at(1.0));
            let modes = [mode(&mut m.near, m.nanos.len()), mode(&mut m.far, m.nanos.len())];
            let [near, far] = modes.map(|(share, p50)| json!({ "share": share, "p50_us": p50 }));
            env.output.object(&json!({
                "bench": "latency", "kind": kind.name(), "size": self.size, "count": self.count,
                "p50_us": p50, "p99_us": p99, "max_us": max, "lost": m.lost, "ratio": ratio, "cores": held.cores(),
                "one_core": near, "two_cores": far,
            }))?;
            let mut line = vec![
                kind.name(),
                format!("{p50:.1}"),
                format!("{p99:.1}"),
                format!("{max:.0}"),
                m.lost.to_string(),
                format!("{ratio:.2}"),
            ];
            if held.is_free() {
                let shown = |(share, p50): (f64, Option<f64>)| {
                    [format!("{:.0} %", share * 100.0), p50.map_or("-".to_owned(), |it| format!("{it:.1}"))]
                };
                line.extend(modes.into_iter().flat_map(shown));
            }
            rows.push(line);
        }
        env.output.line(table(&rows))
    }

    /// All kinds in turn, block by block, so that what changes on this machine meanwhile changes for all of them.
    fn measure(&self, env: &Env<'_>, held: &PinnedCores) -> Result<Vec<Measured>, Failure> {
        let mut pairs = vec![];
        for kind in self.kinds() {
            pairs.push(self.open(kind, held)?);
        }
        let body = vec![0x5A; self.size];
        let bar = env.output.progress((self.count * pairs.len()) as u64, "round trips");
        let mut measured: Vec<Measured> = pairs.iter().map(|_| Measured::default()).collect();
        for pair in &mut pairs {
            (0..WARM_UP).try_for_each(|_| pair.round_trip(&body).map(drop))?;
        }
        let mut left = self.count;
        while left > 0 {
            let block = left.min(BLOCK);
            left -= block;
            for (pair, m) in pairs.iter_mut().zip(&mut measured) {
                // The first ones of a turn find the caches as the last kind left them.
                (0..WARM_UP_OF_BLOCK).try_for_each(|_| pair.round_trip(&body).map(drop))?;
                let mut nanos = Vec::with_capacity(block);
                for _ in 0..block {
                    match pair.round_trip(&body)? {
                        Some(it) => {
                            nanos.push(it);
                            if pair.is_near() { m.near.push(it) } else { m.far.push(it) }
                        }
                        None => m.lost += 1,
                    }
                }
                nanos.sort_unstable();
                m.middles.push(percentile(&nanos, 0.5));
                m.nanos.append(&mut nanos);
                bar.inc(block as u64);
            }
        }
        bar.finish_and_clear();
        pairs.into_iter().try_for_each(Pair::close)?;
        Ok(measured)
    }

    fn kinds(&self) -> Vec<Kind> {
        Kind::all(&self.compare, &self.guarantee)
    }

    /// A group for this kind.
    fn open(&self, kind: Kind, held: &PinnedCores) -> Result<Pair, Failure> {
        let setup = BenchSetup::at(&self.location, kind, usize::from(self.members))?;
        // A session's threads run where the one that opens it does.
        held.there();
        let mut sessions: Vec<Session> = (1..self.members.into()).map(|i| setup.open(i)).collect::<Result<_, _>>()?;
        held.here();
        sessions.insert(0, setup.open(0)?);
        setup.agreed(&sessions)?;
        if kind.guarantee != Guarantee::BestEffort {
            self.publisher.to_front(&mut sessions)?;
        }
        let others = sessions.split_off(2);
        let (echo, here) = (sessions.remove(1), sessions.remove(0));
        let ended = Arc::new(AtomicBool::new(false));
        let questions = echo.subscribe("ping").wait()?;
        let answers = here.subscribe("pong").wait()?;
        let echo_core = Arc::new(AtomicUsize::new(0));
        let echoing = std::thread::spawn({
            let (ended, echo, held, core) = (ended.clone(), echo.clone(), held.clone(), echo_core.clone());
            move || {
                held.there();
                answer(&echo, questions, &core, &ended)
            }
        });
        let (guarantee, echoing) = (kind.guarantee, Some(echoing));
        Ok(Pair { guarantee, here, echo, _others: others, answers, echoing, echo_core, ended, _setup: setup })
    }
}

impl Pair {
    /// Whether the last round trip ended on the core from which its answer came.
    fn is_near(&self) -> bool {
        self.echo_core.load(Ordering::Relaxed) == sched_getcpu()
    }

    /// What one took, nanoseconds; `None` if it was lost.
    fn round_trip(&mut self, body: &[u8]) -> Result<Option<u64>, Failure> {
        stop_if_asked()?;
        let start = Instant::now();
        // What is acknowledged needs no echo.
        let acknowledged = || self.here.publish("acknowledged", body);
        let came = match self.guarantee {
            Guarantee::BestEffort => {
                self.here.publish("ping", body).wait()?;
                self.answers.next_timeout(LOST_AFTER)?.map(drop)
            }
            Guarantee::Fifo => Some(acknowledged().fifo().wait().map(drop)?),
            Guarantee::Ordered => Some(acknowledged().ordered().wait().map(drop)?),
            Guarantee::Safe => Some(acknowledged().safe().wait().map(drop)?),
        };
        Ok(came.map(|_| u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)))
    }

    fn close(mut self) -> Result<(), Failure> {
        self.ended.store(true, Ordering::Relaxed);
        let echoing = self.echoing.take().map(JoinHandle::join);
        self.here.clone().close();
        self.echo.clone().close();
        match echoing {
            Some(Ok(answered)) => answered,
            Some(Err(_)) => Err(Failure::new(Code::System, "the echo panicked")),
            None => Ok(()),
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn answer(
    session: &Session,
    mut questions: Subscription,
    core: &AtomicUsize,
    ended: &AtomicBool,
) -> Result<(), Failure> {
    while !ended.load(Ordering::Relaxed) {
        if let Some(message) = questions.next_timeout(Duration::from_millis(50))? {
            core.store(sched_getcpu(), Ordering::Relaxed);
            session.publish("pong", message.payload()).wait()?;
        }
    }
    Ok(())
}

/// What share of all these are, and the middle one of them, microseconds.
fn mode(nanos: &mut [u64], all: usize) -> (f64, Option<f64>) {
    nanos.sort_unstable();
    (nanos.len() as f64 / all.max(1) as f64, (!nanos.is_empty()).then(|| percentile(nanos, 0.5)))
}

/// Round trips that are not counted: caches and the path's first packets.
const WARM_UP: usize = 100;
const WARM_UP_OF_BLOCK: usize = 5;
/// Round trips of a kind in one turn: a few milliseconds, in which little else changes.
const BLOCK: usize = 50;
const LOST_AFTER: Duration = Duration::from_millis(500);
