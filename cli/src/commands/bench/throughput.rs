//! Messages per second, delivered at every subscriber: the publisher is at most a window ahead of the slowest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::time::{ClockId, clock_gettime};
use sealcast::code::Code;
use sealcast::{Session, Subscription};
use serde_json::json;

use super::{BenchSetup, Guarantee, Kind, Location, Protection, Publisher, median, percentile, stop_if_asked};
use crate::commands::Env;
use crate::hint::Failure;
use crate::text::{duration, parse_bytes, parse_duration, row, size, table, thousands};

/// See the module.
#[derive(Debug, Args)]
pub(super) struct Throughput {
    /// Bytes of a message
    #[arg(long, default_value = "1KiB", value_name = "SIZE", value_parser = parse_bytes)]
    size: usize,
    /// Subscribers
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=60))]
    subs: u16,
    /// How many messages the publisher may be ahead of the slowest subscriber
    #[arg(long, default_value_t = 2000, value_name = "N")]
    window: u64,
    /// How long one run takes
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = parse_duration)]
    time: Duration,
    /// Runs of each kind; their medians are shown
    #[arg(long, default_value_t = 3, value_name = "N")]
    runs: usize,
    /// What to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["plain", "sealed"], value_name = "KINDS")]
    compare: Vec<Protection>,
    /// How strongly messages are published; all but best-effort are acknowledged, under order=total
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["best-effort"], value_name = "GUARANTEES")]
    guarantee: Vec<Guarantee>,
    /// Who publishes: where one member orders, that one or another; or all
    #[arg(long, value_enum, default_value = "any", value_name = "WHO", hide_possible_values = true)]
    publisher: Publisher,
    #[command(flatten)]
    location: Location,
}

/// One run's figures.
struct Measured {
    /// Messages per second at the slowest subscriber.
    rate: f64,
    p50_micros: f64,
    p99_micros: f64,
    cpu_micros_per_message: f64,
    /// Share of what was sent that some subscriber did not get.
    lost: f64,
}

/// What one subscriber has got so far.
#[derive(Default)]
struct Progress {
    /// One more than the number of the newest message.
    next: AtomicU64,
    count: AtomicU64,
}

impl Throughput {
    pub(super) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        env.output.say(format!(
            "1 → {}, {}, delivered at every subscriber, window {}, {} × {}, medians, one process",
            self.subs,
            size(self.size),
            self.window,
            self.runs,
            duration(self.time)
        ));
        let mut rows = vec![row(["", "msg/s", "MB/s", "p50 µs", "p99 µs", "cpu µs/msg", "lost", "ratio"])];
        let mut first = None;
        for kind in Kind::all(&self.compare, &self.guarantee) {
            let bar = env.output.progress(self.runs as u64, &kind.name());
            let mut runs = vec![];
            for _ in 0..self.runs.max(1) {
                runs.push(self.measure(kind)?);
                bar.inc(1);
            }
            bar.finish_and_clear();
            let of = |value: fn(&Measured) -> f64| median(runs.iter().map(value).collect());
            let (rate, p50, p99) = (of(|m| m.rate), of(|m| m.p50_micros), of(|m| m.p99_micros));
            let (cpu, lost) = (of(|m| m.cpu_micros_per_message), of(|m| m.lost));
            let megabytes = rate * self.size as f64 / 1e6;
            let ratio = rate / *first.get_or_insert(rate);
            env.output.object(&json!({
                "bench": "throughput", "kind": kind.name(), "size": self.size, "subs": self.subs,
                "window": self.window, "seconds": self.time.as_secs_f64(), "runs": self.runs,
                "messages_per_second": rate, "megabytes_per_second": megabytes, "p50_us": p50, "p99_us": p99,
                "cpu_us_per_message": cpu, "lost": lost, "memory_bytes": memory_peak(), "ratio": ratio,
            }))?;
            rows.push(vec![
                kind.name(),
                thousands(rate as u64),
                format!("{megabytes:.1}"),
                format!("{p50:.0}"),
                format!("{p99:.0}"),
                format!("{cpu:.2}"),
                format!("{:.2} %", lost * 100.0),
                format!("{ratio:.2}"),
            ]);
        }
        env.output.line(table(&rows))
    }

    fn measure(&self, kind: Kind) -> Result<Measured, Failure> {
        let members = usize::from(self.subs) + 1;
        let setup = BenchSetup::at(&self.location, kind, members)?;
        let mut sessions = setup.open_all(members)?;
        if kind.guarantee != Guarantee::BestEffort {
            self.publisher.to_front(&mut sessions)?;
        }
        let senders = if self.publisher == Publisher::All { members } else { 1 };
        let ended = Arc::new(AtomicBool::new(false));
        let epoch = Instant::now();
        let mut readers = vec![];
        // Of each sender, at each other member.
        let progress: Vec<Vec<Arc<Progress>>> =
            (0..senders).map(|_| (0..members).map(|_| Arc::default()).collect()).collect();
        for (at, session) in sessions.iter().enumerate().filter(|(at, _)| senders > 1 || *at > 0) {
            let capacity = usize::try_from(self.window).unwrap_or(usize::MAX).saturating_mul(2).max(4096);
            let subscription = session.subscribe("load").capacity(capacity).wait()?;
            let progress: Vec<Arc<Progress>> = progress.iter().map(|of| of[at].clone()).collect();
            let ended = ended.clone();
            let read = move || read(subscription, &progress, &ended, epoch);
            readers.push(std::thread::spawn(read));
        }
        let cpu = cpu_time();
        let sent: Result<Vec<(u64, f64)>, Failure> = std::thread::scope(|scope| {
            let send = |(at, of): (usize, &Vec<Arc<Progress>>)| {
                let others = of.iter().enumerate().filter(|(reader, _)| *reader != at).map(|(_, it)| it.clone());
                let (session, others): (&Session, Vec<_>) = (&sessions[at], others.collect());
                let (window, guarantee) = ((self.window / senders as u64).max(1), kind.guarantee);
                scope.spawn(move || self.send(session, at, guarantee, window, &others, epoch))
            };
            let sending: Vec<_> = progress.iter().enumerate().map(send).collect();
            let panicked = || Failure::new(Code::System, "a publisher panicked");
            sending.into_iter().map(|it| it.join().map_err(|_| panicked())?).collect()
        });
        let cpu = cpu_time().saturating_sub(cpu);
        // Let what is under way arrive.
        std::thread::sleep(Duration::from_millis(100));
        ended.store(true, Ordering::Relaxed);
        let delays = collect(readers);
        let (sent, mut delays) = (sent?, delays?);
        delays.sort_unstable();
        for session in sessions {
            session.close();
        }
        let seconds = sent.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
        let sent: u64 = sent.iter().map(|(sent, _)| sent).sum();
        let slowest = |(at, of): (usize, &Vec<Arc<Progress>>)| -> u64 {
            let others = of.iter().enumerate().filter(|(reader, _)| *reader != at);
            others.map(|(_, it)| it.count.load(Ordering::Relaxed)).min().unwrap_or(0)
        };
        let slowest: u64 = progress.iter().enumerate().map(slowest).sum();
        Ok(Measured {
            rate: slowest as f64 / seconds,
            p50_micros: percentile(&delays, 0.5),
            p99_micros: percentile(&delays, 0.99),
            cpu_micros_per_message: cpu.as_secs_f64() * 1e6 / sent.max(1) as f64,
            lost: sent.saturating_sub(slowest) as f64 / sent.max(1) as f64,
        })
    }

    /// Publishes as the `sender`th until the time is over: how many, in how many seconds.
    fn send(
        &self,
        session: &Session,
        sender: usize,
        guarantee: Guarantee,
        window: u64,
        progress: &[Arc<Progress>],
        epoch: Instant,
    ) -> Result<(u64, f64), Failure> {
        let mut body = vec![0x5A; self.size.max(HEAD)];
        body[NUMBERED..HEAD].copy_from_slice(&(sender as u64).to_be_bytes());
        let start = Instant::now();
        let mut number: u64 = 0;
        while start.elapsed() < self.time {
            wait_for_capacity(number, window, progress)?;
            body[..8].copy_from_slice(&number.to_be_bytes());
            body[8..NUMBERED].copy_from_slice(&nanos(epoch.elapsed()).to_be_bytes());
            match guarantee {
                Guarantee::BestEffort => _ = session.publish("load", &body).wait()?,
                // What it comes to is waited for by flush.
                Guarantee::Fifo => drop(session.publish("load", &body).fifo().ticket()?),
                Guarantee::Ordered => drop(session.publish("load", &body).ordered().ticket()?),
                Guarantee::Safe => drop(session.publish("load", &body).safe().ticket()?),
            }
            number += 1;
        }
        session.flush().wait()?;
        let end = Instant::now() + LOST_AFTER;
        while progress.iter().any(|p| p.next.load(Ordering::Acquire) < number) && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok((number, start.elapsed().as_secs_f64()))
    }
}

/// Waits while the slowest subscriber is a window behind; what does not come at all is lost.
fn wait_for_capacity(number: u64, window: u64, progress: &[Arc<Progress>]) -> Result<(), Failure> {
    let behind = || progress.iter().map(|p| number.saturating_sub(p.next.load(Ordering::Acquire))).max().unwrap_or(0);
    if behind() < window {
        return Ok(());
    }
    stop_if_asked()?;
    let start = Instant::now();
    while behind() >= window && start.elapsed() < LOST_AFTER {
        std::thread::sleep(Duration::from_micros(20));
    }
    Ok(())
}

fn read(
    mut subscription: Subscription,
    progress: &[Arc<Progress>],
    ended: &AtomicBool,
    epoch: Instant,
) -> Result<Vec<u64>, Failure> {
    let mut delays = vec![];
    while !ended.load(Ordering::Relaxed) {
        let Some(message) = subscription.next_timeout(Duration::from_millis(20))? else { continue };
        let Some((head, _)) = message.payload().split_first_chunk::<HEAD>() else { continue };
        let field = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("three fields of 8 bytes"));
        let [number, sent, sender] = [0, 8, NUMBERED].map(field);
        let Some(progress) = usize::try_from(sender).ok().and_then(|it| progress.get(it)) else { continue };
        progress.count.fetch_add(1, Ordering::Relaxed);
        progress.next.fetch_max(number + 1, Ordering::Release);
        if number % SAMPLE_EVERY == 0 {
            delays.push(nanos(epoch.elapsed()).saturating_sub(sent));
        }
    }
    Ok(delays)
}

fn collect(readers: Vec<JoinHandle<Result<Vec<u64>, Failure>>>) -> Result<Vec<u64>, Failure> {
    let mut all = vec![];
    for reader in readers {
        let panicked = || Failure::new(Code::System, "a subscriber panicked");
        all.append(&mut reader.join().map_err(|_| panicked())??);
    }
    Ok(all)
}

/// Processor time of the whole process, publisher and subscribers together.
fn cpu_time() -> Duration {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// The most memory that this process has used, all members together, bytes; 0 if the system does not say.
fn memory_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|it| it.trim().strip_suffix(" kB")?.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}

/// Number and time of sending, and who sent.
const HEAD: usize = NUMBERED + 8;
const NUMBERED: usize = 16;
/// Delays are kept for one message in so many.
const SAMPLE_EVERY: u64 = 16;
const LOST_AFTER: Duration = Duration::from_millis(300);
