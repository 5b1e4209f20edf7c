//! Publications per second through brokers, delivered in order to one subscriber; or the latency of one at a time.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use sealcast::brokers::{Brokers, Item, Outgoing, Subscription};
use sealcast::code::Code;
use sealcast::url::Scheme;
use sealcast_broker::operation::{Execute, Header};
use sealcast_delivery::Token;
use serde_json::json;

use super::{median, percentile, stop_if_asked};
use crate::commands::Env;
use crate::commands::brokers::{Local, Wanted};
use crate::hint::Failure;
use crate::text::{duration, parse_bytes, parse_duration, row, size, table, thousands};

/// See the module.
#[derive(Debug, Args)]
pub(super) struct Brokered {
    /// Brokers: 3f+1, or 1 for one that is not replicated
    #[arg(short, value_name = "N", default_value_t = 4)]
    n: usize,
    /// Bytes of a publication
    #[arg(long, default_value = "1KiB", value_name = "SIZE", value_parser = parse_bytes)]
    size: usize,
    /// Publications that one signature vouches for
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    frame: u16,
    /// How many publications may be ahead of the subscriber
    #[arg(long, default_value_t = 8192, value_name = "N")]
    window: u64,
    /// How long one run takes
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = parse_duration)]
    time: Duration,
    /// Runs; their medians are shown
    #[arg(long, default_value_t = 1, value_name = "N")]
    runs: usize,
    /// Who can read: the brokers too, or only readers to whom they release it
    #[arg(long, value_enum, default_value_t = Kind::Plain, value_name = "KIND")]
    keys: Kind,
    /// f+1 brokers open a publication, as in the paper, instead of 2f+1
    #[arg(long)]
    paper: bool,
    /// One publication at a time: latency without load
    #[arg(long)]
    paced: bool,
    /// Where the brokers' folders are made
    #[arg(long, value_name = "FOLDER")]
    within: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Signed, in clear to the brokers
    Plain,
    /// Sealed to the brokers' threshold key
    Threshold,
}

/// One run's figures.
struct Measured {
    /// Publications per second at the subscriber.
    rate: f64,
    /// From `publish` to the subscriber.
    p50_micros: f64,
    p99_micros: f64,
    /// Processor time of one broker for each publication, the mean of all brokers.
    broker_micros: f64,
    /// The same of publisher and subscriber together.
    client_micros: f64,
}

/// What a reader has got so far.
#[derive(Default)]
struct Progress {
    /// The number after the last one.
    next: AtomicU64,
    ended: AtomicBool,
}

impl Brokered {
    pub(super) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let kind = if self.keys == Kind::Plain { "plain" } else { "threshold" };
        let what = if self.paced { "one at a time".to_owned() } else { format!("window {}", self.window) };
        env.output.say(format!(
            "{} brokers, {}, {kind}, frames of {}, {what}, delivered in order to one subscriber, {} × {}, medians",
            self.n,
            size(self.size),
            self.frame,
            self.runs,
            duration(self.time)
        ));
        let bar = env.output.progress(self.runs as u64, kind);
        let mut runs = Vec::new();
        for _ in 0..self.runs.max(1) {
            runs.push(self.measure()?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        let of = |value: fn(&Measured) -> f64| median(runs.iter().map(value).collect());
        let (rate, p50, p99) = (of(|m| m.rate), of(|m| m.p50_micros), of(|m| m.p99_micros));
        let (broker, client) = (of(|m| m.broker_micros), of(|m| m.client_micros));
        env.output.object(&json!({
            "bench": "brokers", "brokers": self.n, "keys": kind, "size": self.size, "frame": self.frame,
            "window": self.window, "paced": self.paced, "paper": self.paper, "seconds": self.time.as_secs_f64(),
            "runs": self.runs, "publications_per_second": rate, "p50_us": p50, "p99_us": p99,
            "broker_cpu_us": broker, "client_cpu_us": client,
        }))?;
        let heads = ["", "pub/s", "p50 ms", "p99 ms", "cpu µs/pub, one broker", "publisher and subscriber"];
        let figures = vec![
            format!("{} brokers, {kind}", self.n),
            thousands(rate as u64),
            format!("{:.2}", p50 / 1e3),
            format!("{:.2}", p99 / 1e3),
            format!("{broker:.1}"),
            format!("{client:.1}"),
        ];
        env.output.line(table(&[row(heads), figures]))
    }

    fn measure(&self) -> Result<Measured, Failure> {
        let wanted = Wanted { brokers: self.n, paper: self.paper, issuers: &["bench"], within: self.within.as_deref() };
        let mut local = Local::start(&wanted)?;
        let keys = if self.keys == Kind::Plain { Scheme::Plain } else { Scheme::Threshold };
        let frame = usize::from(self.frame);
        let publisher = local.client("publisher", "bench", &[], keys, frame)?;
        let subscriber = local.client("subscriber", "bench", &[], keys, frame)?;
        for client in [&publisher, &subscriber] {
            client.registered().inspect_err(|_| drop(local.check()))?;
            if self.keys == Kind::Threshold {
                client.key(KEY_PATIENCE)?;
            }
        }
        let subscription = subscriber.subscribe("load/#".parse().expect("an interest"))?;
        let (progress, epoch) = (Arc::new(Progress::default()), Instant::now());
        let reader = read(subscription, progress.clone(), epoch);
        let sent = self.send(&publisher, &progress, epoch, &local.ids());
        progress.ended.store(true, Ordering::Release);
        let delays = reader.join().map_err(|_| Failure::new(Code::System, "the subscriber's thread ended"))?;
        let (sent, mut delays) = (sent?, delays?);
        local.check()?;
        publisher.close();
        subscriber.close();
        delays.sort_unstable();
        let (p50_micros, p99_micros) = (percentile(&delays, 0.5), percentile(&delays, 0.99));
        Ok(Measured { p50_micros, p99_micros, ..sent })
    }

    /// Publishes until the time is over, and waits for what is under way; the rate counts what came in the time.
    fn send(
        &self,
        publisher: &Brokers,
        progress: &Progress,
        epoch: Instant,
        brokers: &[u32],
    ) -> Result<Measured, Failure> {
        let mut outgoing = Outgoing {
            headers: vec![Header { topic: "load/a".into(), value: None }],
            associated: Vec::new(),
            access: None,
            execute: Execute::Nothing,
            body: vec![0x5A; self.size.max(HEAD)],
        };
        let mut under_way: VecDeque<Token> = VecDeque::new();
        let window = if self.paced { 1 } else { self.window.max(1) };
        let mut number = 0_u64;
        // The first ones show that all is there, and warm it.
        let mut begun = (Instant::now(), 0, cpu(brokers), cpu(&[std::process::id()]));
        let mut warm = false;
        while begun.0.elapsed() < if warm { self.time } else { WARM_UP.min(self.time) } || !warm {
            if !warm && begun.0.elapsed() >= WARM_UP.min(self.time) && progress.next.load(Ordering::Acquire) > 0 {
                let delivered = progress.next.load(Ordering::Acquire);
                begun = (Instant::now(), delivered, cpu(brokers), cpu(&[std::process::id()]));
                warm = true;
            }
            self.room(number, window, progress, epoch)?;
            if self.paced {
                std::thread::sleep(PACE);
            }
            outgoing.body[..8].copy_from_slice(&number.to_be_bytes());
            outgoing.body[8..HEAD].copy_from_slice(&nanos(epoch.elapsed()).to_be_bytes());
            under_way.push_back(publisher.begin(&outgoing)?);
            number += 1;
            if under_way.len() as u64 > 2 * window {
                under_way.pop_front().map(|token| publisher.outcome(token)).transpose()?;
            }
        }
        let (at, before, brokers_before, clients_before) = begun;
        let delivered = progress.next.load(Ordering::Acquire) - before;
        let seconds = at.elapsed().as_secs_f64();
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / delivered.max(1) as f64;
        let (of_brokers, of_clients) = (cpu(brokers) - brokers_before, cpu(&[std::process::id()]) - clients_before);
        self.room(number, 1, progress, epoch)?;
        Ok(Measured {
            rate: delivered as f64 / seconds,
            p50_micros: 0.0,
            p99_micros: 0.0,
            broker_micros: each(of_brokers) / brokers.len() as f64,
            client_micros: each(of_clients),
        })
    }

    /// Waits until fewer than `window` are under way.
    fn room(&self, number: u64, window: u64, progress: &Progress, epoch: Instant) -> Result<(), Failure> {
        let since = epoch.elapsed();
        while number.saturating_sub(progress.next.load(Ordering::Acquire)) >= window {
            stop_if_asked()?;
            if epoch.elapsed().saturating_sub(since) > STUCK {
                let what = format!("nothing was delivered for {}", duration(STUCK));
                return Err(Failure::new(Code::TimedOut, what));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}

/// Takes what comes, checks that nothing is missing or twice, and returns delays in ns.
fn read(
    mut subscription: Subscription,
    progress: Arc<Progress>,
    epoch: Instant,
) -> JoinHandle<Result<Vec<u64>, Failure>> {
    std::thread::spawn(move || {
        let mut delays = Vec::new();
        while !progress.ended.load(Ordering::Acquire) {
            let Some(item) = subscription.next_timeout(Duration::from_millis(50))? else { continue };
            let Item::Publication { bodies, .. } = item else {
                return Err(Failure::new(Code::Denied, "a publication was not released to the subscriber"));
            };
            for body in bodies {
                let word = |at: usize| u64::from_be_bytes(body[at..at + 8].try_into().expect("8 bytes"));
                let next = progress.next.load(Ordering::Relaxed);
                if word(0) != next {
                    return Err(Failure::new(Code::Signature, format!("publication {} came, not {next}", word(0))));
                }
                delays.push(nanos(epoch.elapsed()) - word(8));
                progress.next.store(next + 1, Ordering::Release);
            }
        }
        Ok(delays)
    })
}

/// The processor time that processes have used; of one that is gone none.
fn cpu(processes: &[u32]) -> Duration {
    let of = |id: &u32| -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
    };
    let ticks: u64 = processes.iter().filter_map(of).sum();
    Duration::from_millis(ticks * TICK_MILLIS)
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// Number and time of sending.
const HEAD: usize = 16;
/// /proc counts in USER_HZ, which is 100 on every Linux.
const TICK_MILLIS: u64 = 10;
const WARM_UP: Duration = Duration::from_millis(500);
const PACE: Duration = Duration::from_millis(50);
const STUCK: Duration = Duration::from_secs(20);
/// How long brokers may take to make their key.
const KEY_PATIENCE: Duration = Duration::from_secs(60);
