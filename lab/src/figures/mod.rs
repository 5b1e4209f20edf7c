//! `sealcast lab figures`: every row of an area's table, measured here and now.
//!
//! Compared sides run in the same minute, block by block in turn (A B A B …), and a row is the median
//! of its blocks: test machines are shared and noisy, so ratios within one run say more than numbers.

pub(crate) mod brokers;
mod hostile;
mod insider;
mod latency;
mod membership;
mod mls;
mod ordered;
mod record;
mod row;
mod threshold;
mod throughput;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub use row::{Goal, Holds, Row, median, number, table};

use crate::Failure;
use crate::peers::Field;

/// Measure the figures of an area, row by row
#[derive(Debug, Args)]
pub struct Figures {
    /// The area: `lan`, `ordered`, `brokers` or `mls`
    #[arg(default_value = "lan")]
    area: String,
    /// Smaller counts, named in each row; ends within five minutes
    #[arg(long)]
    quick: bool,
    /// Only these rows, by id
    #[arg(long, value_name = "ID")]
    row: Vec<String>,
    /// Write the table into this document, where it has the area's marks
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// One JSON object per row
    #[arg(long)]
    json: bool,
    /// No progress bar
    #[arg(long)]
    no_progress: bool,
}

impl Figures {
    /// Measures and prints.
    ///
    /// # Errors
    /// If the area or a row is unknown, or a measurement cannot be made.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let Some((area, all_units)) = AREAS.iter().find(|(name, _)| *name == self.area) else {
            let names: Vec<&str> = AREAS.iter().map(|(name, _)| *name).collect();
            return Err(format!("no area '{}': there are {}", self.area, names.join(", ")).into());
        };
        let known = || all_units.iter().flat_map(|u| u.rows);
        if let Some(wrong) = self.row.iter().find(|id| !known().any(|k| k == id)) {
            let all: Vec<&str> = known().copied().collect();
            return Err(format!("no row '{wrong}': there are {}", all.join(", ")).into());
        }
        let bar = progress(0, self.no_progress);
        let bench = Bench { field: Field::default(), quick: self.quick, rows: self.row.clone(), bar: bar.clone() };
        let units: Vec<&Unit> = all_units.iter().filter(|u| u.rows.iter().any(|id| bench.wants(id))).collect();
        bar.set_length(units.len() as u64);
        let start = Instant::now();
        let mut rows = Vec::new();
        for unit in units {
            bar.set_message(unit.about);
            let measured = (unit.measure)(&bench).unwrap_or_else(|why| unit.failed(area, &why));
            for row in measured.into_iter().filter(|row| bench.wants(&row.id)) {
                if self.json {
                    println!("{}", serde_json::to_string(&row)?);
                }
                rows.push(row);
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        if !self.json {
            print!("{}", table(&rows));
        }
        if let Some(document) = &self.record {
            record::record(document, area, self.quick, &rows)?;
        }
        let held = rows.iter().filter(|r| r.holds == Holds::Yes).count();
        let judged = rows.iter().filter(|r| r.goal != Goal::Report).count();
        eprintln!("{held} of {judged} goals hold; {} s", start.elapsed().as_secs());
        Ok(ExitCode::SUCCESS)
    }
}

/// The ids of all rows, with what they belong to.
pub fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    AREAS.iter().flat_map(|(_, units)| *units).flat_map(|u| u.rows.iter().map(|row| (*row, u.about)))
}

/// What a measurement is given.
pub(crate) struct Bench {
    pub(crate) field: Field,
    pub(crate) quick: bool,
    /// The rows asked for; none means all.
    pub(crate) rows: Vec<String>,
    pub(crate) bar: ProgressBar,
}

impl Bench {
    /// Whether this row was asked for: a unit need not measure what only others need. A quick run measures some only by name.
    pub(crate) fn wants(&self, id: &str) -> bool {
        let is_left_out = self.quick && ordered::ONLY_IN_FULL.contains(&id);
        self.rows.is_empty() && !is_left_out || self.rows.iter().any(|row| row == id)
    }

    /// The one for a quick run, or the one for a full run.
    pub(crate) fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// How long one rate is held in a search.
    pub(crate) fn window(&self) -> Duration {
        self.pick(Duration::from_millis(150), Duration::from_millis(700))
    }
}

/// Rows that are measured together.
struct Unit {
    rows: &'static [&'static str],
    about: &'static str,
    measure: fn(&Bench) -> Result<Vec<Row>, Failure>,
}

impl Unit {
    /// Its rows, when it could not be measured: they do not hold.
    fn failed(&self, area: &str, why: &Failure) -> Vec<Row> {
        let row = |id: &&str| Row::new(area, id, self.about, "", Goal::Report).absent(Holds::No, why.to_string());
        self.rows.iter().map(row).collect()
    }
}

/// The areas and what is measured in each.
const AREAS: &[(&str, &[Unit])] = &[("lan", LAN), ("ordered", ORDERED), ("brokers", BROKERS), ("mls", MLS)];

const LAN: &[Unit] = &[
    Unit { rows: membership::SIMULATED, about: "formation, simulated", measure: membership::simulated },
    Unit { rows: membership::MESSAGES, about: "messages of formation", measure: membership::messages },
    Unit { rows: membership::SOCKETS, about: "formation of groups", measure: membership::sockets },
    Unit { rows: latency::ROWS, about: "round trips", measure: latency::measure },
    Unit { rows: throughput::ROWS, about: "throughput without loss", measure: throughput::measure },
    Unit { rows: throughput::CPU_ROWS, about: "processor time of a sender", measure: throughput::cpu },
    Unit { rows: membership::EVICTION, about: "eviction", measure: membership::eviction },
    Unit { rows: insider::ROWS, about: "an insider at its worst", measure: insider::measure },
    Unit { rows: membership::LOSS, about: "losses at a change of key", measure: membership::loss },
    Unit { rows: hostile::ROWS, about: "hostile datagrams", measure: hostile::measure },
];

const ORDERED: &[Unit] = &[
    Unit { rows: ordered::THROUGHPUT, about: "throughput with guarantees", measure: ordered::throughput },
    Unit { rows: ordered::MEMORY, about: "memory at full rate", measure: ordered::memory },
    Unit { rows: ordered::LOSS, about: "throughput under loss", measure: ordered::loss },
    Unit { rows: ordered::LOSSY, about: "repairs for many receivers, simulated", measure: ordered::lossy },
    Unit { rows: ordered::LATENCY, about: "time to acknowledgement", measure: ordered::latency },
    Unit { rows: ordered::CRASHES, about: "failover", measure: ordered::crashes },
    Unit { rows: ordered::MERGE, about: "merging after a partition", measure: ordered::merge },
    Unit { rows: ordered::CHURN, about: "keys that change all the time", measure: ordered::churn },
    Unit { rows: ordered::IDLE, about: "idle members", measure: ordered::idle },
    Unit { rows: ordered::CPU, about: "processor time of a sender that loses nothing", measure: ordered::cpu },
    Unit { rows: ordered::SUSPICIONS, about: "false suspicions at full load", measure: ordered::suspicions },
    Unit { rows: ordered::SLOW, about: "a slow receiver", measure: ordered::slow },
    Unit { rows: ordered::BOTTLENECK, about: "a bottleneck", measure: ordered::bottleneck },
    Unit { rows: ordered::PEERS, about: "throughput beside other systems", measure: ordered::peers },
    Unit { rows: ordered::CHANGES, about: "members who come, leaders who leave", measure: ordered::changes },
    Unit { rows: ordered::CENTER, about: "a key distribution centre", measure: ordered::center },
    Unit { rows: ordered::REKEY_200, about: "joins and leaves in a group of 200", measure: ordered::rekey_200 },
    Unit { rows: ordered::REKEY_350, about: "joins and leaves in a group of 350", measure: ordered::rekey_350 },
    Unit { rows: ordered::REKEY_1000, about: "joins and leaves in a group of 1,000", measure: ordered::rekey_1000 },
];

const BROKERS: &[Unit] = &[
    Unit { rows: brokers::ORDERED, about: "publications in order", measure: brokers::ordered },
    Unit { rows: brokers::LATENCY, about: "one publication at a time", measure: brokers::latency },
    Unit { rows: brokers::SEALED, about: "sealed publications", measure: brokers::sealed },
    Unit { rows: brokers::READS, about: "reads of single publications", measure: brokers::reads },
    Unit { rows: brokers::FLOODS, about: "an honest client beside a flood", measure: brokers::floods },
    Unit { rows: brokers::FAULTS, about: "faults and build", measure: brokers::faults },
    Unit { rows: threshold::ROWS, about: "threshold encryption", measure: threshold::measure },
];

const MLS: &[Unit] = &[
    Unit { rows: mls::GROUP, about: "a member of a large group", measure: mls::group },
    Unit { rows: mls::RELAY, about: "a group at a relay", measure: mls::relay },
    Unit { rows: mls::BROKERS, about: "a change of key over brokers", measure: mls::brokers },
    Unit { rows: mls::TRAFFIC, about: "an idle hour, simulated", measure: mls::traffic },
];

/// A progress bar on stderr, if that is a terminal.
pub(crate) fn progress(steps: u64, hidden: bool) -> ProgressBar {
    let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {wide_msg}");
    ProgressBar::with_draw_target(Some(steps), target).with_style(style.expect("the template is well-formed"))
}
