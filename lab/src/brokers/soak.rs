//! `sealcast lab soak brokers`: what age costs. `--blocks` starts a broker with a history made for it; `--for` runs four of
//! them for a while, each with few open files. Both fail if something grew beyond its bound.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::json;

use super::cluster::Cluster;
use super::load::{Load, Rate};
use super::{beside, interrupted};
use crate::Failure;
use crate::figures::progress;

/// Run brokers that are old, or for long, and see that nothing grows
#[derive(Args, Clone, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["blocks", "time"]))]
pub struct Soak {
    /// Whom: `brokers`
    who: Who,
    /// Start a broker with a history of so many empty blocks (10M is ten million), made for it
    #[arg(long, value_parser = blocks)]
    blocks: Option<u64>,
    /// Run four brokers under a light load for so long, as 20m or 2h
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    time: Option<Duration>,
    /// With --for: open files that each broker is allowed
    #[arg(long, default_value_t = 256)]
    files: u64,
    /// Where the brokers' folders are made [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    within: Option<PathBuf>,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(long)]
    no_progress: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Who {
    Brokers,
}

/// What one look at the brokers shows: the most of all of them.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    height: u64,
    files: usize,
    memory: u64,
}

impl Soak {
    /// Runs it.
    ///
    /// # Errors
    /// What grew, or a broker that ended.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        match (self.blocks, self.time) {
            (Some(blocks), _) => self.aged(blocks),
            (None, Some(time)) => self.watch(time),
            (None, None) => unreachable!("clap asks for one of them"),
        }
    }

    /// Another program makes the history and starts the broker: this one does not link the ordering engine.
    fn aged(&self, blocks: u64) -> Result<ExitCode, Failure> {
        beside("sealcast-broker")?;
        let mut command = Command::new(beside("fresh-broker")?);
        command.args(["--aged", &blocks.to_string(), "--until-stdin-closes"]).stdin(Stdio::piped());
        self.within.iter().for_each(|folder| _ = command.arg("--within").arg(folder));
        command.args(self.json.then_some("--json")).args(self.no_progress.then_some("--no-progress"));
        let mut child = command.spawn()?;
        // `wait` would close it, and the program would end.
        let stdin = child.stdin.take();
        let ended = child.wait()?;
        drop(stdin);
        Ok(if ended.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn watch(&self, time: Duration) -> Result<ExitCode, Failure> {
        let end = interrupted()?;
        let within = self.within.clone().unwrap_or_else(std::env::temp_dir);
        let starting = Instant::now();
        let mut cluster = Cluster::start_with(4, &within, Some(self.files))?;
        cluster.caught_up(TIMEOUT)?;
        let start = starting.elapsed();
        let load = Load::start(&cluster, Rate { per_second: 20.0, bytes: 256, batch: 1 })?;
        let bar = progress(time.as_secs(), self.no_progress || self.json);
        let (begun, mut looks) = (Instant::now(), Vec::new());
        while begun.elapsed() < time && !end.load(Ordering::Acquire) {
            std::thread::sleep(EVERY.min(time));
            cluster.check()?;
            load.check()?;
            looks.push(look(&cluster)?);
            bar.set_position(begun.elapsed().as_secs());
        }
        bar.finish_and_clear();
        let outcomes = load.end()?;
        cluster.agree(TIMEOUT)?;
        let age = Age { looks, start, acknowledged: outcomes.acknowledged, delivered: outcomes.delivered };
        let (first, last) = (age.at_a_quarter(), age.at_the_end());
        let (files, grown) = (age.files(), age.memory_grown());
        let seconds = begun.elapsed().as_secs_f64();
        if self.json {
            let object = json!({
                "seconds": seconds, "blocks": last.height, "files": files, "files_allowed": self.files,
                "memory_mb": last.memory as f64 / 1e6, "memory_grown_mb": grown,
                "acknowledged": outcomes.acknowledged, "delivered": outcomes.delivered,
            });
            println!("{object}");
        } else {
            println!("{} blocks in {seconds:.0} s, with {} open files allowed to each broker", last.height, self.files);
            println!("open files at most {files}; {} at a quarter of the time, {} at the end", first.files, last.files);
            println!(
                "memory {:.0} MB at the end, {grown:+.1} MB since a quarter of the time",
                last.memory as f64 / 1e6
            );
            println!("{} publications acknowledged, {} delivered", outcomes.acknowledged, outcomes.delivered);
            println!("all four answer and agree {:.1} s after the first was made", age.start.as_secs_f64());
        }
        match age.faults(self.files) {
            faults if faults.is_empty() => Ok(ExitCode::SUCCESS),
            faults => Err(faults.join("; ").into()),
        }
    }
}

/// What a while of running showed.
struct Age {
    looks: Vec<Look>,
    /// From the first folder until all brokers had caught up.
    start: Duration,
    acknowledged: u64,
    delivered: u64,
}

impl Age {
    /// What is allocated once is there after a quarter of the time.
    fn at_a_quarter(&self) -> Look {
        self.looks.get(self.looks.len() / 4).copied().unwrap_or_default()
    }

    fn at_the_end(&self) -> Look {
        self.looks.last().copied().unwrap_or_default()
    }

    fn files(&self) -> usize {
        self.looks.iter().map(|look| look.files).max().unwrap_or_default()
    }

    /// Megabytes.
    fn memory_grown(&self) -> f64 {
        self.at_the_end().memory as f64 / 1e6 - self.at_a_quarter().memory as f64 / 1e6
    }

    /// Whether files went up from quarter to quarter: single looks go up and down with connections that come and go.
    fn files_rise(&self) -> Option<(usize, usize)> {
        let most = |looks: &[Look]| looks.iter().map(|look| look.files).max().unwrap_or_default();
        let (early, late) = self.looks.split_at(self.looks.len() / 4);
        let late = late.split_at(late.len() * 2 / 3).1;
        let (early, late) = (most(early), most(late));
        (early > 0 && late > early + FILES_OF_NOTE).then_some((early, late))
    }

    /// What grew, or went wrong.
    fn faults(&self, files_allowed: u64) -> Vec<String> {
        let mut faults = Vec::new();
        if self.files() as u64 > files_allowed {
            faults.push(format!("{} open files, {files_allowed} are allowed", self.files()));
        }
        if let Some((early, late)) = self.files_rise() {
            faults.push(format!("open files rose from {early} in the first quarter to {late} in the last"));
        }
        if self.memory_grown() > MEMORY_GROWN_MB {
            faults.push(format!("memory grew by {:.0} MB, {MEMORY_GROWN_MB:.0} MB may", self.memory_grown()));
        }
        if self.acknowledged != self.delivered {
            faults.push(format!("{} acknowledged, {} delivered", self.acknowledged, self.delivered));
        }
        if self.start > START_MAX {
            faults.push(format!("the start took {:.1} s", self.start.as_secs_f64()));
        }
        faults
    }
}

fn look(cluster: &Cluster) -> Result<Look, Failure> {
    let mut look = Look::default();
    for pid in cluster.pids() {
        look.files = look.files.max(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count());
    }
    look.memory = cluster.memory()?;
    look.height = cluster.stands().into_iter().flatten().map(|it| it.height).max().unwrap_or_default();
    Ok(look)
}

fn blocks(text: &str) -> Result<u64, String> {
    let (number, factor) = match text.strip_suffix(['M', 'k']) {
        Some(number) => (number, if text.ends_with('M') { 1_000_000 } else { 1000 }),
        None => (text, 1),
    };
    let number: u64 = number.parse().map_err(|_| "a number of blocks, as 100k or 10M")?;
    number.checked_mul(factor).filter(|it| *it > 0).ok_or_else(|| "at least one block".into())
}

fn time(text: &str) -> Result<Duration, String> {
    let unit = |unit: char| text.strip_suffix(unit).and_then(|it| it.parse::<u64>().ok());
    let seconds = unit('s').or_else(|| unit('m').map(|it| it * 60)).or_else(|| unit('h').map(|it| it * 3600));
    seconds.filter(|it| *it > 0).map(Duration::from_secs).ok_or_else(|| "a time, as 90s, 20m or 2h".into())
}

/// By how many open files the most of two quarters may differ: clients and other brokers connect again.
const FILES_OF_NOTE: usize = 16;
/// By how much memory may grow after the first quarter, MB.
const MEMORY_GROWN_MB: f64 = 50.0;
/// How long the start of all brokers may take.
const START_MAX: Duration = Duration::from_secs(10);
/// Between two looks.
const EVERY: Duration = Duration::from_secs(5);
/// Beyond this something is wrong.
const TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn age(change: impl Fn(usize, &mut Look)) -> Age {
        let look = |i: usize| {
            let mut look = Look { height: 7 * i as u64, files: 150 + i % 5, memory: 200_000_000 + i as u64 % 3 };
            change(i, &mut look);
            look
        };
        Age { looks: (0..240).map(look).collect(), start: Duration::from_secs(3), acknowledged: 9, delivered: 9 }
    }

    #[test]
    fn a_soak_fails_if_something_grew_and_says_what() {
        assert_eq!(age(|_, _| ()).faults(256), [""; 0]);
        assert_eq!(age(|i, it| it.files += i % 7 * 2).faults(256), [""; 0], "up and down");
        let rises = "open files rose from 168 in the first quarter to 213 in the last";
        assert_eq!(age(|i, it| it.files = 150 + i / 4 + i % 5).faults(256), [rises]);
        let many = age(|i, it| it.files += usize::from(i == 100) * 120);
        assert_eq!(many.faults(256), ["270 open files, 256 are allowed"]);
        let memory = age(|i, it| it.memory += i as u64 * 400_000);
        assert_eq!(memory.faults(256), ["memory grew by 72 MB, 50 MB may"]);
        let early = age(|i, it| it.memory += i.min(50) as u64 * 2_000_000);
        assert_eq!(early.faults(256), [""; 0], "what is allocated once is there after a quarter of the time");
        let lost = Age { delivered: 8, start: Duration::from_secs(11), ..age(|_, _| ()) };
        assert_eq!(lost.faults(256), ["9 acknowledged, 8 delivered", "the start took 11.0 s"]);
    }
}
