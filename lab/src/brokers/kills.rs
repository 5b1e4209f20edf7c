//! `sealcast lab kills brokers`: crash after crash under load.
//!
//! Again and again up to f brokers are killed at once (`kill -9`), stay away for a while, are started again and catch up;
//! now and then all of them are (E12). All the time two publishers publish and two subscribers read, and it must hold:
//! what was acknowledged comes, each once, in one order; receipts hold; everybody catches up, to one state.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng as _;
use serde_json::json;

use super::cluster::Cluster;
use super::interrupted;
use super::load::{Load, Outcomes, Rate};
use crate::Failure;
use crate::figures::progress;
use crate::kills::{Plan, TIMEOUT, below_ms, some};

/// Kill brokers again and again under load, and see that nothing is lost
#[derive(Args, Clone, Debug)]
pub(crate) struct Brokers {
    #[command(flatten)]
    plan: Plan,
    /// After so many kills all of them are killed at once; 0 is never
    #[arg(long, default_value_t = 20, value_name = "N")]
    all_every: u32,
    /// Publications per second
    #[arg(long, default_value_t = 500.0)]
    rate: f64,
    /// How many brokers: 3f+1
    #[arg(short, default_value_t = 4)]
    n: usize,
    /// Where the brokers' folders are made [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    within: Option<PathBuf>,
}

/// What was seen.
#[derive(Debug, Default)]
struct Seen {
    kills: u32,
    killed: u32,
    all: u32,
    /// The longest time without a delivery when up to f were killed, and when all were.
    gap: Duration,
    gap_all: Duration,
    /// The longest time from a start to having caught up.
    caught_up: Duration,
}

impl Brokers {
    /// Runs it.
    ///
    /// # Errors
    /// What did not hold, and where the brokers' files are.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let (begun, end) = (Instant::now(), interrupted()?);
        let mut cluster = Cluster::start(self.n, &self.within.clone().unwrap_or_else(std::env::temp_dir))?;
        let mut seen = Seen::default();
        let outcomes = self.kill(&mut cluster, &mut seen, &end).map_err(|why| {
            if end.load(Ordering::Acquire) {
                return Failure::from(format!("ended after {} kills; nothing is left of the brokers", seen.kills));
            }
            cluster.keep();
            let at = cluster.folder().display();
            Failure::from(format!(
                "after {} kills and {} of all (seed {}): {why}; see {at}",
                seen.kills, seen.all, self.plan.seed
            ))
        })?;
        let ms = |it: Duration| it.as_secs_f64() * 1e3;
        let seconds = begun.elapsed().as_secs_f64();
        if self.plan.json {
            let object = json!({
                "kills": seen.kills, "killed": seen.killed, "all": seen.all, "seed": self.plan.seed, "seconds": seconds,
                "acknowledged": outcomes.acknowledged, "delivered": outcomes.delivered, "receipts": outcomes.receipts,
                "gap_ms": ms(seen.gap), "gap_all_ms": ms(seen.gap_all), "caught_up_ms": ms(seen.caught_up),
                "holds": true,
            });
            println!("{object}");
        } else {
            println!(
                "{} kills of {} brokers, and {} of all {} at once, in {seconds:.0} s (seed {})",
                seen.kills, seen.killed, seen.all, self.n, self.plan.seed
            );
            println!(
                "{} publications acknowledged, {} delivered, each once, in one order at two subscribers; {} receipts hold",
                outcomes.acknowledged, outcomes.delivered, outcomes.receipts
            );
            println!(
                "longest gap {:.0} ms, {:.0} ms when all were killed; caught up within {:.0} ms; all are in one state",
                ms(seen.gap),
                ms(seen.gap_all),
                ms(seen.caught_up)
            );
            println!("nothing was lost");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn kill(&self, cluster: &mut Cluster, seen: &mut Seen, end: &AtomicBool) -> Result<Outcomes, Failure> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.plan.seed);
        cluster.caught_up(TIMEOUT)?;
        let load = Load::start(cluster, Rate { per_second: self.rate, bytes: 256, batch: 32 })?;
        let bar = progress(u64::from(self.plan.kills), self.plan.no_progress || self.plan.json);
        while seen.kills < self.plan.kills {
            one_more(&load, end)?;
            let all = self.all_every > 0 && seen.killed_since_all(self.all_every);
            let victims = match all {
                true => (0..self.n).collect(),
                false => some(&mut rng, self.n, cluster.faulty()),
            };
            std::thread::sleep(below_ms(&mut rng, UP_MS));
            load.longest_gap();
            cluster.check()?;
            cluster.kill(&victims)?;
            std::thread::sleep(below_ms(&mut rng, DOWN_MS));
            for victim in &victims {
                cluster.restart(*victim)?;
            }
            seen.caught_up = seen.caught_up.max(cluster.caught_up(TIMEOUT)?);
            one_more(&load, end)?;
            let gap = load.longest_gap();
            match all {
                true => (seen.all, seen.gap_all) = (seen.all + 1, seen.gap_all.max(gap)),
                false => {
                    seen.kills += 1;
                    seen.killed += u32::try_from(victims.len()).expect("brokers have a limit");
                    seen.gap = seen.gap.max(gap);
                    bar.inc(1);
                }
            }
            load.check()?;
        }
        bar.finish_and_clear();
        let outcomes = load.end()?;
        cluster.agree(TIMEOUT)?;
        Ok(outcomes)
    }
}

impl Seen {
    /// Whether it is time to kill all.
    fn killed_since_all(&self, every: u32) -> bool {
        self.kills / every > self.all
    }
}

/// Waits until something more is delivered; fails if all is to end.
fn one_more(load: &Load, end: &AtomicBool) -> Result<(), Failure> {
    let (before, begun) = (load.delivered(), Instant::now());
    while load.delivered() == before {
        load.check()?;
        if end.load(Ordering::Acquire) {
            return Err("interrupted".into());
        }
        if begun.elapsed() > TIMEOUT {
            return Err(format!("nothing was delivered for {TIMEOUT:?}").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// How long all are up between two kills, and how long the killed ones are away, at most.
const UP_MS: u64 = 600;
const DOWN_MS: u64 = 1200;
