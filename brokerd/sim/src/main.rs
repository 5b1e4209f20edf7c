//! The program `brokers-sim`, which `sealcast lab sim brokers` starts: whole brokers for one seed or many.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sealcast_brokers_sim::cast::Threshold;
use sealcast_brokers_sim::note::Note;
use sealcast_brokers_sim::scenario::{Fault, Report, run};

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
        let mut seeds = self.seed.map_or(self.seeds.clone(), |seed| seed..seed + 1);
        let note = self.note(fault);
        if self.resume
            && let Some(note) = &note
        {
            seeds.start = seeds.start.max(note.read().min(seeds.end));
        }
        note.iter().for_each(|note| note.begin(seeds.start));
        let bar = self.bar(fault, seeds.end.saturating_sub(seeds.start));
        let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(BTreeMap::new()));
        let begun = Instant::now();
        let jobs = self.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        std::thread::scope(|scope| {
            for _ in 0..jobs.max(1) {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds.end {
                            break;
                        }
                        let why = self.one(fault, seed);
                        match why {
                            None => note.iter().for_each(|note| note.held(seed)),
                            Some(why) => {
                                bar.suspend(|| {
                                    eprintln!("{}: seed {seed}: {why}", fault.name());
                                    eprintln!("  again: {}", self.again(fault, seed));
                                });
                                failed.lock().expect("no panic").insert(seed, why);
                            }
                        }
                        bar.inc(1);
                    }
                });
            }
        });
        bar.finish_and_clear();
        let failed = failed.into_inner().expect("no panic");
        let count = seeds.end.saturating_sub(seeds.start);
        let (held, took) = (count - failed.len() as u64, begun.elapsed().as_secs_f64());
        if self.json {
            let again: Vec<String> = failed.keys().map(|seed| self.again(fault, *seed)).collect();
            let line = serde_json::json!({
                "fault": fault.name(), "f": self.faulty, "paper": self.paper, "seeds": count, "held": held,
                "failed_seeds": failed.keys().collect::<Vec<_>>(), "again": again, "took_s": took,
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
                violation.map(|it| format!("{}: {}", it.property, it.what))
            }
            Err(_) => Some("a panic, which its own message tells of".into()),
        }
    }

    /// How far the seeds of a fault hold, unless it is one seed alone that is looked at.
    fn note(&self, fault: Fault) -> Option<Note> {
        let paper = if self.paper { "-paper" } else { "" };
        self.seed.is_none().then(|| Note::of(&format!("brokers-{}-{}{paper}", fault.name(), self.faulty)))
    }

    fn bar(&self, fault: Fault, seeds: u64) -> ProgressBar {
        let is_shown = std::io::stderr().is_terminal() && !self.no_progress && self.seed.is_none();
        let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style = ProgressStyle::with_template("{msg:<22} {wide_bar} {pos}/{len} {eta}");
        let bar = ProgressBar::with_draw_target(Some(seeds), target);
        bar.with_style(style.expect("the template is right")).with_message(fault.name())
    }

    /// How to see a failure again.
    fn again(&self, fault: Fault, seed: u64) -> String {
        let f = if self.faulty == 1 { String::new() } else { format!(" --f {}", self.faulty) };
        let paper = if self.paper { " --paper" } else { "" };
        format!("sealcast lab sim brokers --fault {} --seed {seed}{f}{paper}", fault.name())
    }
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("seeds are given as A..B")?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|e| e.to_string());
    Ok(number(from)?..number(to)?)
}
