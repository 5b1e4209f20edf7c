//! How long a group takes to agree: from the last start to a common key, when one joins, when one is evicted.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::{BenchSetup, Protection, agreed, median, name, stop_if_asked};
use crate::commands::Env;
use crate::hint::Failure;
use crate::text::{row, table};

/// See the module.
#[derive(Debug, Args)]
pub(super) struct Join {
    /// Members of the group
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=60))]
    members: u16,
    /// Runs; their medians are shown
    #[arg(long, default_value_t = 5, value_name = "N")]
    runs: usize,
    /// Further options of the URL, for example suite=chacha20poly1305
    #[arg(long, value_name = "OPTIONS")]
    options: Option<String>,
}

/// Milliseconds.
struct Measured {
    formed: f64,
    joined: f64,
    evicted: f64,
}

/// One of the figures.
type Of = fn(&Measured) -> f64;

impl Join {
    pub(super) fn run(self, env: &Env<'_>) -> Result<(), Failure> {
        let n = usize::from(self.members);
        env.output.say(format!("{n} members, loopback multicast, {} runs, one process", self.runs));
        let bar = env.output.progress(self.runs as u64, "join");
        let mut runs = vec![];
        for _ in 0..self.runs.max(1) {
            stop_if_asked()?;
            runs.push(self.measure(n)?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        let mut rows = vec![row(["", "median ms", "min ms", "max ms"])];
        let steps: [(String, Of); 3] = [
            (format!("{n} start, until all share a key"), |m| m.formed),
            (format!("1 joins {n}, until all share a key"), |m| m.joined),
            (format!("1 of {} evicted, until the others share a key", n + 1), |m| m.evicted),
        ];
        for (step, of) in steps {
            let all: Vec<f64> = runs.iter().map(of).collect();
            let (min, max) = (all.iter().copied().fold(f64::MAX, f64::min), all.iter().copied().fold(0.0, f64::max));
            let middle = median(all);
            env.output.object(&json!({
                "bench": "join", "step": step, "members": n, "runs": self.runs,
                "median_ms": middle, "min_ms": min, "max_ms": max,
            }))?;
            rows.push(vec![step, format!("{middle:.1}"), format!("{min:.1}"), format!("{max:.1}")]);
        }
        env.output.line(table(&rows))
    }

    fn measure(&self, n: usize) -> Result<Measured, Failure> {
        let setup = BenchSetup::new(Protection::Sealed, n + 1, self.options.as_ref())?;
        let mut sessions = (0..n).map(|i| setup.open(i)).collect::<Result<Vec<_>, _>>()?;
        let start = Instant::now();
        agreed(&sessions, n)?;
        let formed = millis(start.elapsed());

        let start = Instant::now();
        sessions.push(setup.open(n)?);
        agreed(&sessions, n + 1)?;
        let joined = millis(start.elapsed());

        let start = Instant::now();
        sessions[0].evict(name(n).as_str(), "bench").wait()?;
        let gone = sessions.pop().expect("one was just pushed");
        agreed(&sessions, n)?;
        let evicted = millis(start.elapsed());
        gone.close();
        for session in sessions {
            session.close();
        }
        Ok(Measured { formed, joined, evicted })
    }
}

fn millis(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}
