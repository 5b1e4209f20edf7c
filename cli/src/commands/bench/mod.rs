//! `sealcast bench`: what sealing costs on this machine, measured where messages arrive.

mod brokers;
mod center;
mod cores;
mod join;
mod latency;
mod plain;
mod rekey;
mod throughput;

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use rustix::fd::AsFd as _;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sealcast::Session;
use sealcast::code::Code;
use sealcast::session::Identity;
use sealcast::url::OriginMode;

use self::center::BenchCenter;
use super::Env;
use crate::hint::Failure;
use crate::interrupt;
use crate::scene::Scene;

/// Measure latency, throughput, joining, changes of key and brokers on this machine
#[derive(Debug, Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "\
Each makes a group of its own in a temporary folder, on loopback multicast, or brokers of its own,
with real sockets; what runs already is not disturbed. --compare takes plain (in clear), sealed
(under the group's key) and signed (each origin proved, too).

Examples:
  sealcast bench latency --compare plain,sealed,signed
  sealcast bench throughput --size 1KiB --subs 10 --compare plain,sealed,signed
  sealcast bench join --members 16
  sealcast bench rekey --members 200
  sealcast bench brokers --keys threshold --paper"
)]
pub(crate) struct Bench {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Round trips: publish, an echo publishes back, until it is here again
    Latency(latency::Latency),
    /// Messages per second, delivered at every subscriber
    Throughput(throughput::Throughput),
    /// From the last start to a common key; one joins; one is evicted
    Join(join::Join),
    /// Joins and leaves per second in a group with keys from a centre, installed by all members
    Rekey(rekey::Rekey),
    /// Publications through four brokers of its own, delivered in order to one subscriber
    Brokers(brokers::Brokered),
}

impl Bench {
    pub(crate) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let through = env.global.url.as_ref().is_some_and(|url| url.starts_with("quorum:"));
        if through && !matches!(self.verb, Verb::Brokers(_)) {
            let what = "this measures a group of its own on loopback, and goes through no brokers";
            return Err(Failure::new(Code::BadPair, what).hint("sealcast bench brokers"));
        }
        match self.verb {
            Verb::Latency(b) => b.run(env),
            Verb::Throughput(b) => b.run(env),
            Verb::Join(b) => b.run(env),
            Verb::Rekey(b) => b.run(env),
            Verb::Brokers(b) => b.run(env),
        }
    }
}

/// What protects the messages that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protection {
    Plain,
    Sealed,
    Signed,
}

impl Protection {
    fn name(self) -> &'static str {
        match self {
            Protection::Plain => "plain",
            Protection::Sealed => "sealed",
            Protection::Signed => "signed",
        }
    }
}

/// How strongly messages are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Guarantee {
    BestEffort,
    Fifo,
    Ordered,
    Safe,
}

/// One row of a table.
#[derive(Clone, Copy, Debug)]
struct Kind {
    protection: Protection,
    guarantee: Guarantee,
}

impl Kind {
    /// All kinds of these.
    fn all(compare: &[Protection], guarantees: &[Guarantee]) -> Vec<Kind> {
        let of = |guarantee: &Guarantee| {
            let guarantee = *guarantee;
            compare.iter().map(move |protection| Kind { protection: *protection, guarantee })
        };
        guarantees.iter().flat_map(of).collect()
    }

    fn name(self) -> String {
        match self.guarantee {
            Guarantee::BestEffort => self.protection.name().to_owned(),
            Guarantee::Fifo => format!("{}, fifo", self.protection.name()),
            Guarantee::Ordered => format!("{}, ordered", self.protection.name()),
            Guarantee::Safe => format!("{}, safe", self.protection.name()),
        }
    }
}

/// Who publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Publisher {
    Any,
    Sequencer,
    Another,
    All,
}

impl Publisher {
    /// Puts the session first that shall publish, once somebody orders.
    fn to_front(self, sessions: &mut [Session]) -> Result<(), Failure> {
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
        let is_it = |it: &Session| match self {
            Publisher::Any | Publisher::All => true,
            Publisher::Sequencer => it.info().me == sequencer,
            Publisher::Another => it.info().me != sequencer,
        };
        if let Some(at) = sessions.iter().position(is_it) {
            sessions.swap(0, at);
        }
        Ok(())
    }
}

/// Where the members of a measurement are.
#[derive(Clone, Debug, Args)]
struct Location {
    /// Further options of the URL, for example linger=1ms
    #[arg(long, value_name = "OPTIONS")]
    options: Option<String>,
    /// Files of network namespaces, one a member, in which its session opens: what `sealcast lab figures` gives
    #[arg(long, value_delimiter = ',', value_name = "FILES", hide = true)]
    namespaces: Vec<PathBuf>,
}

/// How sessions of a measurement are opened.
struct BenchSetup {
    scene: Scene,
    protection: Protection,
    /// Further options of the URL.
    options: String,
    namespaces: Vec<PathBuf>,
    /// Gives the keys instead of the members themselves.
    center: Option<BenchCenter>,
}

impl BenchSetup {
    /// A group of `members` identities named `m0`, `m1`, ….
    fn new(protection: Protection, members: usize, options: Option<&String>) -> Result<BenchSetup, Failure> {
        let mut scene = Scene::new("bench")?;
        for i in 0..members {
            scene.member(&name(i), &[("both", "#"), ("evict", "#")])?;
        }
        let options = options.map(|o| format!("&{o}")).unwrap_or_default();
        Ok(BenchSetup { scene, protection, options, namespaces: vec![], center: None })
    }

    /// A group whose keys come from a centre that has registered so many.
    fn centered(registered: usize, options: Option<&String>) -> Result<BenchSetup, Failure> {
        let mut setup = BenchSetup::new(Protection::Sealed, 0, options)?;
        let center = BenchCenter::start(setup.scene.group(), registered)?;
        setup.options = format!("&order=best-effort&kdc={}{}", center.address, setup.options);
        setup.center = Some(center);
        Ok(setup)
    }

    /// The same at a location, for messages of this kind.
    fn at(location: &Location, kind: Kind, members: usize) -> Result<BenchSetup, Failure> {
        let mut options = location.options.clone();
        if kind.guarantee != Guarantee::BestEffort && !options.as_deref().unwrap_or_default().contains("order=") {
            options = Some(options.map_or_else(|| "order=total".to_owned(), |more| format!("order=total&{more}")));
        }
        let mut setup = BenchSetup::new(kind.protection, members, options.as_ref())?;
        if !location.namespaces.is_empty() {
            setup.scene.reach(1);
            setup.namespaces.clone_from(&location.namespaces);
        }
        Ok(setup)
    }

    /// The session of member `i`, in its namespace; the group may still be forming.
    fn open(&self, i: usize) -> Result<Session, Failure> {
        let Some(namespace) = self.namespaces.get(i) else { return self.open_here(i) };
        let failed = |e: std::io::Error| Failure::system(namespace.display(), &e);
        let file = File::open(namespace).map_err(failed)?;
        // A thread keeps its namespace, and gives it to the session's threads and sockets.
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                let moved = move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network));
                moved.map_err(|e| failed(e.into()))?;
                self.open_here(i)
            });
            there.join().map_err(|_| Failure::new(Code::System, "opening a session panicked"))?
        })
    }

    fn open_here(&self, i: usize) -> Result<Session, Failure> {
        if let Some(center) = &self.center {
            let url = self.scene.url(&format!("&keys=center{}", self.options));
            return Ok(sealcast::open(&url).identity(Identity::Principal(center.principal(i))).wait()?);
        }
        let (keys, origin) = match self.protection {
            Protection::Plain => ("plain", OriginMode::Auto),
            Protection::Sealed => ("contributory", OriginMode::Mac),
            Protection::Signed => ("contributory", OriginMode::Signed),
        };
        let url = self.scene.url(&format!("&keys={keys}{}", self.options));
        Ok(sealcast::open(&url).home(self.scene.home()).origin(origin).identity(name(i).as_str()).wait()?)
    }

    /// All sessions, once they share a key.
    fn open_all(&self, members: usize) -> Result<Vec<Session>, Failure> {
        let sessions: Vec<Session> = (0..members).map(|i| self.open(i)).collect::<Result<_, _>>()?;
        self.agreed(&sessions)?;
        Ok(sessions)
    }

    /// Waits until all sessions share a view, where there is one.
    fn agreed(&self, sessions: &[Session]) -> Result<(), Failure> {
        let has_views = self.protection != Protection::Plain || self.options.contains("order=total");
        if has_views { agreed(sessions, sessions.len()) } else { Ok(()) }
    }
}

/// Waits until all sessions have one view of this many members.
fn agreed(sessions: &[Session], members: usize) -> Result<(), Failure> {
    let start = Instant::now();
    loop {
        let views: Vec<_> = sessions.iter().map(Session::view).collect();
        let epoch = views.first().and_then(|v| v.as_ref().map(|v| v.epoch));
        let same = |v: &Option<std::sync::Arc<sealcast_wire::View>>| {
            v.as_ref().is_some_and(|v| Some(v.epoch) == epoch && v.members.len() == members)
        };
        if views.iter().all(same) {
            return Ok(());
        }
        stop_if_asked()?;
        if start.elapsed() > FORMATION_TIMEOUT {
            let what = format!("{members} members did not agree on a key in {FORMATION_TIMEOUT:?}");
            return Err(Failure::new(Code::TimedOut, what).hint("sealcast doctor"));
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

fn stop_if_asked() -> Result<(), Failure> {
    if interrupt::asked() { Err(Failure::said(130)) } else { Ok(()) }
}

fn name(i: usize) -> String {
    format!("m{i}")
}

/// The value that this share of the others does not exceed; of a sorted list.
fn percentile(sorted: &[u64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get(((last as f64) * share).round() as usize).map_or(0.0, |ns| *ns as f64 / 1e3)
}

/// The middle one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// How long it may take until a member orders.
const ORDER_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a group may take to form before something is wrong.
const FORMATION_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_few_values_are_values() {
        let sorted = [1_000, 2_000, 3_000, 4_000, 100_000];
        assert_eq!(percentile(&sorted, 0.5), 3.0);
        assert_eq!(percentile(&sorted, 0.99), 100.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }
}
