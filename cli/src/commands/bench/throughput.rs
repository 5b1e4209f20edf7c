//! Messages per second, delivered at every subscriber: the publisher is at most a window ahead of the slowest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use rustix::time::{ClockId, clock_gettime};
use sealcast::code::Code;
use sealcast::{Session, Subscription};
use serde_json::json;

use super::{BenchSetup, Protection, median, percentile, stop_if_asked};
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
    /// How strongly messages are published; all but best-effort are acknowledged, and need keys
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["best-effort"], value_name = "GUARANTEES")]
    guarantee: Vec<Guarantee>,
    /// Who publishes: where one member orders, that one or another
    #[arg(long, value_enum, default_value = "any", value_name = "WHO", hide_possible_values = true)]
    publisher: Publisher,
    /// Further options of the URL, for example linger=1ms
    #[arg(long, value_name = "OPTIONS")]
    options: Option<String>,
}

/// How strongly messages are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Guarantee {
    BestEffort,
    Fifo,
    Ordered,
    Safe,
}

/// Who publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Publisher {
    Any,
    Sequencer,
    Another,
}

/// One row of the table.
#[derive(Clone, Copy)]
struct Kind {
    protection: Protection,
    guarantee: Guarantee,
}

impl Kind {
    fn name(self) -> String {
        match self.guarantee {
            Guarantee::BestEffort => self.protection.name().to_owned(),
            Guarantee::Fifo => format!("{}, fifo", self.protection.name()),
            Guarantee::Ordered => format!("{}, ordered", self.protection.name()),
            Guarantee::Safe => format!("{}, safe", self.protection.name()),
        }
    }
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
        let fits = |it: &Kind| it.protection != Protection::Plain || it.guarantee == Guarantee::BestEffort;
        let kinds = self.guarantee.iter().flat_map(|guarantee| {
            self.compare.iter().map(|protection| Kind { protection: *protection, guarantee: *guarantee })
        });
        for kind in kinds.filter(fits) {
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
                "cpu_us_per_message": cpu, "lost": lost, "ratio": ratio,
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
        let mut options = self.options.clone();
        if kind.guarantee != Guarantee::BestEffort && !options.as_deref().unwrap_or_default().contains("order=") {
            options = Some(options.map_or_else(|| "order=total".to_owned(), |more| format!("order=total&{more}")));
        }
        let setup = BenchSetup::new(kind.protection, members, options.as_ref())?;
        let mut sessions = setup.open_all(members)?;
        if kind.guarantee != Guarantee::BestEffort {
            self.choose_publisher(&mut sessions)?;
        }
        let (publisher, subscribers) = sessions.split_first().expect("there are at least two members");
        let ended = Arc::new(AtomicBool::new(false));
        let epoch = Instant::now();
        let mut readers = vec![];
        let progress: Vec<Arc<Progress>> = subscribers.iter().map(|_| Arc::default()).collect();
        for (session, progress) in subscribers.iter().zip(&progress) {
            let room = usize::try_from(self.window).unwrap_or(usize::MAX).saturating_mul(2).max(4096);
            let subscription = session.subscribe("load").capacity(room).wait()?;
            let (progress, ended) = (progress.clone(), ended.clone());
            let read = move || read(subscription, &progress, &ended, epoch);
            readers.push(std::thread::spawn(read));
        }
        let sent = self.send(publisher, kind.guarantee, &progress, epoch);
        // Let what is under way arrive.
        std::thread::sleep(Duration::from_millis(100));
        ended.store(true, Ordering::Relaxed);
        let delays = collect(readers);
        let (sent, seconds, cpu) = sent?;
        let mut delays = delays?;
        delays.sort_unstable();
        for session in sessions {
            session.close();
        }
        let slowest = progress.iter().map(|p| p.count.load(Ordering::Relaxed)).min().unwrap_or(0);
        Ok(Measured {
            rate: slowest as f64 / seconds,
            p50_micros: percentile(&delays, 0.5),
            p99_micros: percentile(&delays, 0.99),
            cpu_micros_per_message: cpu.as_secs_f64() * 1e6 / sent.max(1) as f64,
            lost: sent.saturating_sub(slowest) as f64 / sent.max(1) as f64,
        })
    }

    /// Puts the session first that shall publish, once somebody orders.
    fn choose_publisher(&self, sessions: &mut [Session]) -> Result<(), Failure> {
        let start = Instant::now();
        let sequencer = loop {
            let all: Vec<Option<String>> =
                sessions.iter().map(|it| it.info().order.flatten().map(|member| member.name.to_string())).collect();
            if let Some(Some(first)) = all.first()
                && all.iter().all(|it| it.as_ref() == Some(first))
            {
                break first.clone();
            }
            stop_if_asked()?;
            if start.elapsed() > ORDER_TIMEOUT {
                return Err(Failure::new(Code::TimedOut, "no member orders"));
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let is_it = |it: &Session| match self.publisher {
            Publisher::Any => true,
            Publisher::Sequencer => it.info().me == sequencer,
            Publisher::Another => it.info().me != sequencer,
        };
        if let Some(at) = sessions.iter().position(is_it) {
            sessions.swap(0, at);
        }
        Ok(())
    }

    /// Publishes until the time is over: how many, in how many seconds, with how much of the processor.
    fn send(
        &self,
        publisher: &Session,
        guarantee: Guarantee,
        progress: &[Arc<Progress>],
        epoch: Instant,
    ) -> Result<(u64, f64, Duration), Failure> {
        let mut body = vec![0x5A; self.size.max(HEAD)];
        let (start, cpu) = (Instant::now(), cpu_time());
        let mut number: u64 = 0;
        while start.elapsed() < self.time {
            self.wait_for_capacity(number, progress)?;
            body[..8].copy_from_slice(&number.to_be_bytes());
            body[8..HEAD].copy_from_slice(&nanos(epoch.elapsed()).to_be_bytes());
            match guarantee {
                Guarantee::BestEffort => _ = publisher.publish("load", &body).wait()?,
                // What it comes to is waited for by flush.
                Guarantee::Fifo => drop(publisher.publish("load", &body).fifo().ticket()?),
                Guarantee::Ordered => drop(publisher.publish("load", &body).ordered().ticket()?),
                Guarantee::Safe => drop(publisher.publish("load", &body).safe().ticket()?),
            }
            number += 1;
        }
        publisher.flush().wait()?;
        let end = Instant::now() + LOST_AFTER;
        while progress.iter().any(|p| p.next.load(Ordering::Acquire) < number) && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok((number, start.elapsed().as_secs_f64(), cpu_time().saturating_sub(cpu)))
    }

    /// Waits while the slowest subscriber is a window behind; what does not come at all is lost.
    fn wait_for_capacity(&self, number: u64, progress: &[Arc<Progress>]) -> Result<(), Failure> {
        let behind =
            || progress.iter().map(|p| number.saturating_sub(p.next.load(Ordering::Acquire))).max().unwrap_or(0);
        if behind() < self.window {
            return Ok(());
        }
        stop_if_asked()?;
        let start = Instant::now();
        while behind() >= self.window && start.elapsed() < LOST_AFTER {
            std::thread::sleep(Duration::from_micros(20));
        }
        Ok(())
    }
}

fn read(
    mut subscription: Subscription,
    progress: &Progress,
    ended: &AtomicBool,
    epoch: Instant,
) -> Result<Vec<u64>, Failure> {
    let mut delays = vec![];
    while !ended.load(Ordering::Relaxed) {
        let Some(message) = subscription.next_timeout(Duration::from_millis(20))? else { continue };
        let Some((head, _)) = message.payload().split_first_chunk::<HEAD>() else { continue };
        let (number, sent) = head.split_at(8);
        let [number, sent] = [number, sent].map(|b| u64::from_be_bytes(b.try_into().expect("halves of 16 bytes")));
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

/// Number and time of sending.
const HEAD: usize = 16;
/// Delays are kept for one message in so many.
const SAMPLE_EVERY: u64 = 16;
/// How long it may take until a member orders.
const ORDER_TIMEOUT: Duration = Duration::from_secs(20);
const LOST_AFTER: Duration = Duration::from_millis(300);
