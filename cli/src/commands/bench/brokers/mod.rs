//! Brokers of its own: publications per second, delivered in order to one subscriber; or the latency of one at a time; or
//! reads per second of what they store.

mod publishing;
mod reading;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use sealcast::brokers::{Brokers, Outgoing};
use sealcast::url::Scheme;
use sealcast_broker::operation::{Execute, Header};
use sealcast_wire::limits;
use serde_json::{Map, Value, json};

use super::{median, percentile, stop_if_asked};
use crate::commands::Env;
use crate::commands::brokers::{Local, Wanted};
use crate::hint::Failure;
use crate::text::{duration, parse_bytes, parse_duration, row, size, table, thousands, whole};

/// See the module.
#[derive(Debug, Args)]
pub(super) struct Brokered {
    /// Brokers: 3f+1, or 1 for one that is not replicated
    #[arg(short, value_name = "N", default_value_t = 4)]
    n: usize,
    /// Bytes of a publication
    #[arg(long, default_value = "1KiB", value_name = "SIZE", value_parser = parse_bytes)]
    size: usize,
    /// Publications, or ciphertexts, that one signature vouches for
    #[arg(long, alias = "frame", default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    batch: u16,
    /// Publications in one ciphertext; --keys threshold
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    together: u16,
    /// How many publications may be ahead of the subscriber, those of all clients together
    #[arg(long, default_value_t = 8192, value_name = "N")]
    window: u64,
    /// Clients that publish, each with channels of its own; or that read, one publication at a time each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: Option<u16>,
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
    /// Read single publications out of those stored, by topic and number, in random order
    #[arg(long, conflicts_with_all = ["paced", "together"])]
    reads: bool,
    /// How many are stored before the reading
    #[arg(long, default_value_t = 8192, value_name = "N", requires = "reads")]
    stored: u64,
    /// When brokers compute their shares: when the first one reads, or when it is stored. What is computed on read is
    /// read once
    #[arg(long, value_enum, default_value_t = ShareOn::Read, value_name = "WHEN")]
    share_on: ShareOn,
    /// Batches of one block, at most
    #[arg(long, value_name = "N", value_parser = whole(limits::BLOCK_BATCHES_MAX))]
    block_size: Option<u32>,
    /// Bytes of one block's batches, at most
    #[arg(long, value_name = "BYTES", value_parser = whole(limits::BLOCK_BYTES_MAX))]
    block_bytes: Option<u32>,
    /// Signatures that a broker checks at once, at most
    #[arg(long, alias = "batch-size", value_name = "N", value_parser = whole(limits::CHECKED_TOGETHER_MAX))]
    checked_together: Option<u32>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ShareOn {
    Read,
    Write,
}

/// One run's figures.
struct Measured {
    /// Per second: publications at the subscriber, or reads.
    rate: f64,
    /// From `publish` to the subscriber, or from `read` to its answer.
    p50_micros: f64,
    p99_micros: f64,
    /// Processor time of one broker for each of them, the mean of all brokers.
    broker_micros: f64,
    /// The same of all clients together.
    client_micros: f64,
    /// Publications in a block and in a batch, the means; 0 of reads.
    per_block: f64,
    per_batch: f64,
    /// Processor time of one broker in a second in which nobody asks for anything, the mean of all; 0 of publications.
    idle_micros: f64,
}

/// Processor time so far.
#[derive(Clone, Copy)]
struct Spent {
    at: Instant,
    brokers: Duration,
    clients: Duration,
}

impl Brokered {
    pub(super) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let kind = self.keys.name();
        env.output.say(self.said());
        let bar = env.output.progress(self.runs as u64, kind);
        let mut runs = Vec::new();
        for _ in 0..self.runs.max(1) {
            let local = Local::start(&Wanted {
                brokers: self.n,
                paper: self.paper,
                issuers: &["bench"],
                settings: &self.settings(),
                within: self.within.as_deref(),
            })?;
            runs.push(if self.reads { self.measure_reading(local)? } else { self.measure_publishing(local)? });
            bar.inc(1);
        }
        bar.finish_and_clear();
        let of = |value: fn(&Measured) -> f64| median(runs.iter().map(value).collect());
        let (rate, p50, p99) = (of(|m| m.rate), of(|m| m.p50_micros), of(|m| m.p99_micros));
        let (broker, client) = (of(|m| m.broker_micros), of(|m| m.client_micros));
        let mut object = self.described();
        object.insert(if self.reads { "reads_per_second" } else { "publications_per_second" }.into(), rate.into());
        let figures = [("p50_us", p50), ("p99_us", p99), ("broker_cpu_us", broker), ("client_cpu_us", client)];
        object.extend(figures.map(|(name, value)| (name.to_owned(), value.into())));
        let (per_block, per_batch) = (of(|m| m.per_block), of(|m| m.per_batch));
        let idle = of(|m| m.idle_micros);
        if self.reads {
            object.insert("broker_idle_us_per_s".into(), idle.into());
        } else {
            object.insert("publications_per_block".into(), per_block.into());
            object.insert("publications_per_batch".into(), per_batch.into());
        }
        env.output.object(&Value::Object(object))?;
        let heads = match self.reads {
            false => ["", "pub/s", "p50 ms", "p99 ms", "cpu µs/pub, one broker", "publisher and subscriber"],
            true => ["", "reads/s", "p50 ms", "p99 ms", "cpu µs/read, one broker", "readers"],
        };
        let mut heads = row(heads);
        let mut figures = vec![
            format!("{} brokers, {kind}", self.n),
            thousands(rate as u64),
            format!("{:.2}", p50 / 1e3),
            format!("{:.2}", p99 / 1e3),
            format!("{broker:.1}"),
            format!("{client:.1}"),
        ];
        if self.reads {
            heads.extend(row(["idle, one broker"]));
            figures.push(format!("{:.1} % of a core", idle / 1e4));
        } else {
            heads.extend(row(["pub/block", "pub/batch"]));
            figures.extend([format!("{per_block:.0}"), format!("{per_batch:.0}")]);
        }
        env.output.line(table(&[heads, figures]))
    }

    /// What is about to be measured.
    fn said(&self) -> String {
        let runs = format!("{} × {}, medians", self.runs, duration(self.time));
        let head = format!("{} brokers, {}, {}", self.n, size(self.size), self.keys.name());
        if self.reads {
            let (clients, stored) = (self.clients(), thousands(self.stored));
            let when = match (self.keys, self.share_on) {
                (Kind::Plain, _) => "",
                (_, ShareOn::Read) => ", shares computed on read",
                (_, ShareOn::Write) => ", shares computed on write",
            };
            return format!("{head}, {stored} stored, {clients} readers, one read at a time each{when}, {runs}");
        }
        let ahead = if self.paced { "one at a time".to_owned() } else { format!("window {}", self.window) };
        let together = if self.together > 1 { format!(", {} in a ciphertext", self.together) } else { String::new() };
        let clients = if self.clients() > 1 { format!("{} publishers, ", self.clients()) } else { String::new() };
        let batches = format!("batches of {}{together}", self.batch);
        format!("{head}, {batches}, {clients}{ahead}, delivered in order to one subscriber, {runs}")
    }

    /// The same for programs.
    fn described(&self) -> Map<String, Value> {
        let object = json!({
            "bench": "brokers", "what": if self.reads { "reads" } else { "publications" }, "brokers": self.n,
            "keys": self.keys.name(), "size": self.size, "batch": self.batch, "together": self.together,
            "window": self.window, "clients": self.clients(), "paced": self.paced, "paper": self.paper,
            "stored": self.reads.then_some(self.stored), "share_on": self.share_on.name(),
            "block_size": self.block_size, "block_bytes": self.block_bytes, "checked_together": self.checked_together, "seconds": self.time.as_secs_f64(),
            "runs": self.runs,
        });
        match object {
            Value::Object(object) => object,
            _ => unreachable!("an object was written down"),
        }
    }

    fn clients(&self) -> u16 {
        self.clients.unwrap_or(if self.reads { READERS } else { 1 })
    }

    /// The brokers' `broker.toml`.
    fn settings(&self) -> String {
        let mut text = format!("share-on = \"{}\"\n", self.share_on.name());
        let sizes = [
            ("block-size", self.block_size),
            ("block-bytes", self.block_bytes),
            ("checked-together", self.checked_together),
        ];
        for (name, value) in sizes.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            text += &format!("{name} = {value}\n");
        }
        text
    }

    /// A client whom the brokers know, and who knows their key where it needs it.
    fn client(&self, local: &mut Local, name: &str) -> Result<Brokers, Failure> {
        let keys = if self.keys == Kind::Plain { Scheme::Plain } else { Scheme::Threshold };
        let client = local.client(name, "bench", &[], keys, self.batch.into())?;
        client.registered().wait().inspect_err(|_| drop(local.check()))?;
        if self.keys == Kind::Threshold {
            client.key(KEY_TIMEOUT).wait()?;
        }
        Ok(client)
    }

    fn outgoing(&self) -> Outgoing {
        Outgoing {
            headers: vec![Header { topic: TOPIC.into(), value: None }],
            associated: Vec::new(),
            access: None,
            execute: Execute::Nothing,
            body: vec![0x5A; self.size.max(HEAD)],
        }
    }
}

impl Kind {
    fn name(self) -> &'static str {
        if self == Kind::Plain { "plain" } else { "threshold" }
    }
}

impl ShareOn {
    fn name(self) -> &'static str {
        if self == ShareOn::Read { "read" } else { "write" }
    }
}

impl Spent {
    fn now(brokers: &[u32]) -> Spent {
        Spent { at: Instant::now(), brokers: cpu(brokers), clients: cpu(&[std::process::id()]) }
    }

    /// The figures since then, if so many were done; how long they took is not known here.
    fn since(self, brokers: &[u32], done: u64) -> Measured {
        let now = Spent::now(brokers);
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / done.max(1) as f64;
        Measured {
            rate: done as f64 / (now.at - self.at).as_secs_f64(),
            p50_micros: 0.0,
            p99_micros: 0.0,
            broker_micros: each(now.brokers.saturating_sub(self.brokers)) / brokers.len() as f64,
            client_micros: each(now.clients.saturating_sub(self.clients)),
            per_block: 0.0,
            per_batch: 0.0,
            idle_micros: 0.0,
        }
    }
}

impl Measured {
    /// With the times that single ones took, in ns.
    fn with(self, mut took: Vec<u64>) -> Measured {
        took.sort_unstable();
        Measured { p50_micros: percentile(&took, 0.5), p99_micros: percentile(&took, 0.99), ..self }
    }
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

fn word(body: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(body.get(at..at + 8)?.try_into().ok()?))
}

const TOPIC: &str = "load/a";
/// Of a body: which publication it is of its publisher's, when it was sent, who published it; 8 bytes each.
const HEAD: usize = 24;
/// /proc counts in USER_HZ, which is 100 on every Linux.
const TICK_MILLIS: u64 = 10;
const WARM_UP: Duration = Duration::from_millis(500);
/// How long brokers may take to make their key.
const KEY_TIMEOUT: Duration = Duration::from_secs(60);
/// Readers that keep two cores busy.
const READERS: u16 = 8;
