//! `sealcast lab soak brokers`: what age costs. `--blocks` starts a broker with a history made for it; `--for` runs four of
//! them for a while, each with few open files, and watches that nothing grows.

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
        let mut cluster = Cluster::start_with(4, &within, Some(self.files))?;
        cluster.caught_up(PATIENCE)?;
        let load = Load::start(&cluster, Rate { per_second: 20.0, bytes: 256, frame: 1 })?;
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
        cluster.agree(PATIENCE)?;
        // What is allocated once is there after a quarter of the time.
        let first = looks.get(looks.len() / 4).copied().unwrap_or_default();
        let last = looks.last().copied().unwrap_or_default();
        let files = looks.iter().map(|look| look.files).max().unwrap_or_default();
        let grown = last.memory as f64 / 1e6 - first.memory as f64 / 1e6;
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
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn look(cluster: &Cluster) -> Result<Look, Failure> {
    let mut look = Look::default();
    for pid in cluster.pids() {
        look.files = look.files.max(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count());
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        look.memory = look.memory.max(kilobytes.ok_or("the kernel does not say how much memory a broker has")? * 1024);
    }
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

/// Between two looks.
const EVERY: Duration = Duration::from_secs(5);
/// Beyond this something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);
