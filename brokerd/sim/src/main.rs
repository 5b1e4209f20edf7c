//! The program `brokers-sim`, which `sealcast lab sim brokers` starts: whole brokers for one seed or many.

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use sealcast_brokers_sim::fixture::Threshold;
use sealcast_brokers_sim::scenario::{Fault, Report, run};
use sealcast_sim::seeds::{Note, Seeds, range};

/// Play whole brokers and their clients in one deterministic simulation
#[derive(Debug, Parser)]
#[command(name = "brokers-sim")]
struct Args {
    /// What goes wrong; everything, each in turn, if nothing is named
    #[arg(long, value_name = "NAME")]
    fault: Option<String>,
    /// Play these seeds: A..B, without B
    #[arg(long, default_value = "0..100", value_parser = range)]
    seeds: Range<u64>,
    /// Play this seed, and say what it came to
    #[arg(long)]
    seed: Option<u64>,
    /// Go on after the last seed that held, as noted by the run before
    #[arg(long)]
    resume: bool,
    /// So many of 3f + 1 brokers may lie
    #[arg(long = "f", default_value_t = 1)]
    faulty: usize,
    /// f + 1 shares open, as in the paper
    #[arg(long)]
    paper: bool,
    /// Seeds played at once; one per processor if not said
    #[arg(long)]
    jobs: Option<usize>,
    /// One object per fault on stdout
    #[arg(long)]
    json: bool,
    /// No progress bar
    #[arg(long)]
    no_progress: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let faults = match &args.fault {
        None => Fault::all(),
        Some(name) => match Fault::find(name) {
            Some(fault) => vec![fault],
            None => {
                let names: Vec<&str> = Fault::all().into_iter().map(Fault::name).collect();
                eprintln!("brokers-sim: error: there is no fault {name}");
                eprintln!("brokers-sim: hint: {}", names.join(", "));
                return ExitCode::from(2);
            }
        },
    };
    let held = faults.into_iter().map(|fault| args.play(fault)).collect::<Vec<_>>();
    if held.into_iter().all(|it| it) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Args {
    /// Plays one fault; whether all held.
    fn play(&self, fault: Fault) -> bool {
        let begun = Instant::now();
        let seeds = Seeds {
            name: fault.name().to_owned(),
            seeds: self.seed.map_or(self.seeds.clone(), |seed| seed..seed + 1),
            jobs: self.jobs.unwrap_or(0),
            bar: !self.no_progress && self.seed.is_none(),
            note: self.note(fault),
            resume: self.resume,
        };
        let told = |seed, why: &Option<String>| {
            let why = why.as_ref()?;
            Some(format!("{}: seed {seed}: {why}\n  again: {}", fault.name(), self.again(fault, seed)))
        };
        let Ok(played) = seeds.play(|seed| Ok::<_, Infallible>(self.one(fault, seed)), told);
        let failed: Vec<u64> = played.iter().filter(|it| it.report.is_some()).map(|it| it.seed).collect();
        let (count, took) = (played.len(), begun.elapsed().as_secs_f64());
        let held = count - failed.len();
        if self.json {
            let again: Vec<String> = failed.iter().map(|seed| self.again(fault, *seed)).collect();
            let line = serde_json::json!({
                "fault": fault.name(), "f": self.faulty, "paper": self.paper, "seeds": count, "held": held,
                "failed_seeds": failed, "again": again, "took_s": took,
            });
            println!("{line}");
        } else {
            println!("{:<22} {held} of {count} held, {took:.1} s", fault.name());
        }
        failed.is_empty()
    }

    /// Plays one seed; what did not hold.
    fn one(&self, fault: Fault, seed: u64) -> Option<String> {
        let threshold = if self.paper { Threshold::Paper } else { Threshold::Default };
        let played = catch_unwind(AssertUnwindSafe(|| run(fault, seed, self.faulty, threshold)));
        match played {
            Ok(Report { violation, counts, trace }) => {
                if self.seed.is_some() && !self.json {
                    println!("{counts:#?}\ntrace {trace}");
                }
                violation.map(|it| format!("{}: {}", it.checker, it.what))
            }
            Err(_) => Some("a panic, which its own message tells of".into()),
        }
    }

    /// How far the seeds of a fault hold, unless it is one seed alone that is looked at.
    fn note(&self, fault: Fault) -> Option<Note> {
        let paper = if self.paper { "-paper" } else { "" };
        self.seed.is_none().then(|| Note::of(&format!("brokers-{}-{}{paper}", fault.name(), self.faulty))).flatten()
    }

    /// How to see a failure again.
    fn again(&self, fault: Fault, seed: u64) -> String {
        let f = if self.faulty == 1 { String::new() } else { format!(" --f {}", self.faulty) };
        let paper = if self.paper { " --paper" } else { "" };
        format!("sealcast lab sim brokers --fault {} --seed {seed}{f}{paper}", fault.name())
    }
}
