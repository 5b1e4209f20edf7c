//! `sealcast lab run`: experiments that re-make a paper's figures, each with data, plot and verdicts.

mod chios;
mod discovery;
mod fig8;
mod hostile;
pub(crate) mod lan;
mod lsgc;
mod mls_mixed;
mod throughput;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::Failure;
use crate::figures::Holds;
use crate::{figures, scenarios};

/// What can be run and measured here
#[derive(Debug, Args)]
pub struct List {
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

/// Run one experiment: CSV and SVG into out/, one verdict per claim
#[derive(Debug, Args)]
pub struct Run {
    /// Which: see `sealcast lab list`
    experiment: Name,
    /// Smaller counts
    #[arg(long)]
    quick: bool,
    /// Where CSV and SVG go
    #[arg(long, value_name = "FOLDER", default_value = "out")]
    out: PathBuf,
    /// The seed of what is drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many, where the experiment counts: mutations of `hostile`
    #[arg(long)]
    count: Option<u64>,
    /// Go on where the last run of the same seed stopped
    #[arg(long)]
    resume: bool,
    /// Beside Kafka and NATS too, where `make peers` found them
    #[arg(long)]
    compare: bool,
    /// One JSON object per verdict
    #[arg(long)]
    json: bool,
    /// No progress bar
    #[arg(long)]
    no_progress: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    LcmsecFig8,
    LcmsecThroughput,
    LcmsecDiscovery,
    LsgcFig3,
    LsgcFig4,
    LsgcFig5,
    LsgcNak,
    LsgcTransition,
    Hostile,
    ChiosFig5,
    ChiosFig6,
    ChiosFig7,
    ChiosFig13,
    ChiosFig15,
    MlsMixed,
}

/// One claim, and whether it was seen to hold.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    /// The claim, with its source.
    pub(crate) claim: String,
    pub(crate) holds: Holds,
    /// The numbers that say so.
    pub(crate) seen: String,
}

/// What an experiment is given.
pub(crate) struct Lab {
    pub(crate) quick: bool,
    pub(crate) out: PathBuf,
    pub(crate) seed: u64,
    pub(crate) count: Option<u64>,
    pub(crate) resume: bool,
    pub(crate) compare: bool,
    pub(crate) json: bool,
    pub(crate) bar: ProgressBar,
}

impl Name {
    fn about(self) -> &'static str {
        match self {
            Name::LcmsecFig8 => "LCMsec Fig. 8: echo round trip against message size; plain, sealed, liblcm from C",
            Name::LcmsecDiscovery => "LCMsec Fig. 9: JOINs and responses against the number of members, two agreements",
            Name::LsgcFig3 => {
                "LSGC Fig. 3: throughput by size of the message; best effort and reliable, plain and per cipher"
            }
            Name::LsgcFig5 => "LSGC Fig. 5: throughput by size of the group, 2 to 64; the same channels and ciphers",
            Name::LsgcFig4 => {
                "LSGC Fig. 4: time and bytes of a join and a leave against the number of members, 2 to 64, per cipher"
            }
            Name::LsgcNak => "LSGC Sec. 4: NAKs against the number of members, 2 to 64, at 1 % and 5 % loss",
            Name::LsgcTransition => {
                "LSGC Sec. 2.2: best-effort messages at a change of key: drop, buffer, wait, both keys, ours"
            }
            Name::Hostile => {
                "mutated datagrams of every kind, a quarter sealed by a hostile member: panics, growth, state"
            }
            Name::LcmsecThroughput => {
                "LCMsec Sec. VI: rising rate until messages are lost; 1 KB and 60 KB, 1 and 4 receivers"
            }
            Name::ChiosFig5 => "Chios Fig. 5: publications through modules 1 and 2, one broker alone, Kafka and NATS",
            Name::ChiosFig6 => "Chios Fig. 6: latency of publishing and reading at BlockSize 1",
            Name::ChiosFig7 => "Chios Fig. 7: publications against clients, and against the size of a block",
            Name::ChiosFig13 => "Chios Fig. 13: reads, shares computed on read or on write, beside one broker alone",
            Name::ChiosFig15 => "Chios Fig. 15: four brokers and one, against clients, at two sizes of a block",
            Name::MlsMixed => "RFC 9420: groups of our members and of OpenMLS's, equal after each of 100 changes",
        }
    }
}

impl List {
    /// Prints the list.
    ///
    /// # Errors
    /// None; the signature is that of all commands.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let experiments = Name::value_variants().iter().map(|n| {
            let id = n.to_possible_value().expect("no variant is hidden").get_name().to_string();
            ("experiment", id, n.about())
        });
        let rows = figures::rows().map(|(id, about)| ("figure", id.to_string(), about));
        for (kind, id, about) in experiments.chain(rows) {
            if self.json {
                println!("{}", serde_json::json!({ "kind": kind, "id": id, "about": about }));
            } else {
                println!("{kind:<10}  {id:<20}  {about}");
            }
        }
        if !self.json {
            scenarios::command::list();
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Run {
    /// Runs it, writes its files, prints its verdicts.
    ///
    /// # Errors
    /// If it cannot be run.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let bar = figures::progress(1, self.no_progress);
        let lab = Lab {
            quick: self.quick,
            out: self.out.clone(),
            seed: self.seed,
            count: self.count,
            resume: self.resume,
            compare: self.compare,
            json: self.json,
            bar: bar.clone(),
        };
        let verdicts = match self.experiment {
            Name::LcmsecFig8 => fig8::run(&lab)?,
            Name::LcmsecThroughput => throughput::run(&lab)?,
            Name::LcmsecDiscovery => discovery::run(&lab)?,
            Name::LsgcFig3 => lsgc::fig3(&lab)?,
            Name::LsgcFig4 => lsgc::changes(&lab)?,
            Name::LsgcFig5 => lsgc::fig5(&lab)?,
            Name::LsgcNak => lsgc::nak(&lab)?,
            Name::LsgcTransition => lsgc::transition(&lab)?,
            Name::Hostile => hostile::run(&lab)?,
            Name::ChiosFig5 => chios::fig5(&lab)?,
            Name::ChiosFig6 => chios::fig6(&lab)?,
            Name::ChiosFig7 => chios::fig7(&lab)?,
            Name::ChiosFig13 => chios::fig13(&lab)?,
            Name::ChiosFig15 => chios::fig15(&lab)?,
            Name::MlsMixed => mls_mixed::run(&lab)?,
        };
        bar.finish_and_clear();
        for v in &verdicts {
            let word = match v.holds {
                Holds::Yes => "holds",
                Holds::No => "does not hold",
                Holds::Reported => "measured",
                Holds::NotRun | Holds::FullRunOnly => "not run",
            };
            if self.json {
                println!("{}", serde_json::to_string(v)?);
            } else {
                println!("{word:<13}  {}: {}", v.claim, v.seen);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Lab {
    pub(crate) fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Says on stderr where a file went.
    pub(crate) fn wrote(&self, path: &std::path::Path) {
        self.bar.suspend(|| eprintln!("wrote {}", path.display()));
    }
}
