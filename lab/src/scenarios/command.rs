//! `sealcast-lab sim`: plays scenarios for one seed or many, and says how to see a failure again.

use std::io::{self, Write};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Args;
use sealcast_sim::dice::Chance;
use sealcast_sim::seeds::{Note, Seeds, range};
use sealcast_wire::limits;
use serde::Serialize;

use super::script::Knobs;
use super::simulation::{Keep, Report};
use super::{ALL, Ground, Scenario};
use crate::Failure;
use crate::netns;

/// What can be asked of `sim`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// Which scenario; all of them if none is named. `sealcast-lab list` names them; `brokers` are whole brokers, and
    /// `insiders` are all attacks of one holder of a certificate.
    scenario: Option<String>,
    /// Play this seed, and show the run.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Play these seeds: A..B, without B [default: 0..100; with --sockets 0..1].
    #[arg(long, value_parser = range)]
    seeds: Option<std::ops::Range<u64>>,
    /// Over real sockets in real time, each node in a network namespace of its own.
    #[arg(long)]
    sockets: bool,
    /// Go on after the last seed that held, as noted by the run before.
    #[arg(long)]
    resume: bool,
    /// How many members; several numbers are played one after the other. With `insiders`: how many honest members.
    #[arg(long, value_name = "N,N…", value_delimiter = ',')]
    nodes: Vec<usize>,
    /// Chance that a datagram is lost, per receiver: 0 to 1.
    #[arg(long)]
    loss: Option<f64>,
    /// Members start within so many milliseconds.
    #[arg(long)]
    jitter: Option<u64>,
    /// How many seeds are played at once; one per processor if not said.
    #[arg(long)]
    jobs: Option<usize>,
    /// With --seed: show so many of the last lines of the trace.
    #[arg(long, default_value_t = 0)]
    trace: usize,
    /// With --seed: tell what members saw and noticed.
    #[arg(long)]
    story: bool,
    /// Name so many of the seeds whose first common view came last.
    #[arg(long, default_value_t = 0)]
    slowest: usize,
    /// One object per scenario on stdout.
    #[arg(long)]
    json: bool,
    /// No progress bar.
    #[arg(long)]
    no_progress: bool,
    /// With `brokers`: what goes wrong there; each in turn if nothing is named.
    #[arg(long, value_name = "NAME")]
    fault: Option<String>,
    /// With `brokers`: so many of 3f + 1 may lie.
    #[arg(long = "f", value_name = "N")]
    faulty: Option<usize>,
    /// With `brokers`: f + 1 shares open, as in the paper.
    #[arg(long)]
    paper: bool,
}

/// What a scenario's seeds showed, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Summary {
    scenario: &'static str,
    ground: &'static str,
    nodes: usize,
    /// Of those, who keeps the rules; only where a group of attacks was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    honest: Option<usize>,
    loss: f64,
    jitter_ms: u64,
    seeds: u64,
    held: u64,
    failed_seeds: Vec<u64>,
    /// Until the first common view: median, 99th percentile and longest, milliseconds of the run's time.
    converged_ms: Option<[f64; 3]>,
    /// The same of each wait for a common view, in the order of the story: joins, new keys, evictions.
    waits_ms: Vec<[f64; 3]>,
    views: u64,
    datagrams: u64,
    published: u64,
    delivered: u64,
    due: u64,
    lost: u64,
    simulated_s: f64,
    took_s: f64,
    again: Vec<String>,
}

/// Prints all scenarios with their stories.
pub fn list() {
    let mut out = std::io::stdout().lock();
    for scenario in ALL {
        // A closed pipe ends the list; there is nobody to tell.
        let _ = writeln!(out, "{:<22} {}", scenario.name, scenario.story);
    }
    let _ = writeln!(
        out,
        "{BROKERS:<22} whole brokers, of which some may lie, and their clients: --fault names what goes wrong"
    );
    let _ = writeln!(out, "{INSIDERS:<22} each attack of one holder of a certificate, beside --nodes honest members");
}

/// Plays what is asked for; exit code 1 if something did not hold.
///
/// # Errors
/// With `--sockets`: why there can be none here.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.scenario.as_deref() == Some(BROKERS) {
        return whole_brokers(arguments);
    }
    if arguments.sockets {
        netns::available()?;
        return netns::enclosed(|| play(arguments));
    }
    play(arguments)
}

/// Whole brokers are another program, which links their engine: built and found beside this one.
fn whole_brokers(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let path = std::env::current_exe()?.with_file_name("brokers-sim");
    if !path.is_file() {
        return Err(format!("{} is not built: cargo build --release -p sealcast-brokers-sim", path.display()).into());
    }
    let held = Command::new(path).args(of_brokers(arguments)).status()?;
    Ok(if held.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What that program is asked for.
fn of_brokers(arguments: &Arguments) -> Vec<String> {
    let seeds = arguments.seeds.as_ref().map(|it| format!("{}..{}", it.start, it.end));
    let text = |number: usize| number.to_string();
    let options = [
        ("--fault", arguments.fault.clone()),
        ("--seeds", seeds),
        ("--seed", arguments.seed.map(|it| it.to_string())),
        ("--f", arguments.faulty.map(text)),
        ("--jobs", arguments.jobs.map(text)),
    ];
    let flags = [
        ("--resume", arguments.resume),
        ("--paper", arguments.paper),
        ("--json", arguments.json),
        ("--no-progress", arguments.no_progress),
    ];
    let valued = options.into_iter().filter_map(|(option, value)| Some([option.to_owned(), value?])).flatten();
    valued.chain(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.to_owned())).collect()
}

/// One scenario with one set of knobs.
struct Cell {
    scenario: &'static Scenario,
    knobs: Knobs,
    honest: Option<usize>,
}

fn play(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Some(cells) = cells(arguments) else { return Ok(ExitCode::from(2)) };
    let (mut runs, mut held) = (0, 0);
    for cell in &cells {
        let (of_cell, held_of_cell) = match arguments.seed {
            Some(seed) => (1, u64::from(one(cell, seed, arguments)?)),
            None => many(cell, arguments)?,
        };
        runs += of_cell;
        held += held_of_cell;
    }
    if cells.iter().any(|cell| cell.honest.is_some()) && !arguments.json {
        println!("{} of {runs} runs of {} attacks succeeded", runs - held, INSIDERS_ALL.len());
    }
    Ok(if runs == held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is asked for; `None`, said aloud, if there is no such thing.
fn cells(arguments: &Arguments) -> Option<Vec<Cell>> {
    let is_group = arguments.scenario.as_deref() == Some(INSIDERS);
    let chosen: Vec<&'static Scenario> = match &arguments.scenario {
        None => ALL.iter().collect(),
        Some(_) if is_group => INSIDERS_ALL.iter().filter_map(|name| Scenario::find(name)).collect(),
        Some(name) => match Scenario::find(name) {
            Some(scenario) => vec![scenario],
            None => {
                eprintln!("sealcast-lab: error: there is no scenario {name}");
                eprintln!("sealcast-lab: hint: sealcast-lab list");
                return None;
            }
        },
    };
    let several = arguments.scenario.is_none() || is_group;
    let chosen = chosen.into_iter().filter(|s| !several || !arguments.sockets || s.has_sockets());
    if !is_group {
        let cell = |scenario: &'static Scenario| {
            let sizes = if arguments.nodes.is_empty() { &[scenario.knobs.members][..] } else { &arguments.nodes[..] };
            let of_size = |n: &usize| Cell { scenario, knobs: arguments.knobs(scenario, *n), honest: None };
            sizes.iter().map(of_size).collect::<Vec<_>>()
        };
        return Some(chosen.flat_map(cell).collect());
    }
    let sizes = if arguments.nodes.is_empty() { &HONEST[..] } else { &arguments.nodes[..] };
    // Who is captured needs a group of two beside it, and one misbehaves.
    if let Some(n) = sizes.iter().find(|n| !(HONEST[0]..limits::MEMBERS_MAX).contains(n)) {
        let most = limits::MEMBERS_MAX - 1;
        eprintln!("sealcast-lab: error: {n} honest members beside one that misbehaves");
        eprintln!("sealcast-lab: hint: --nodes {}, up to {most}", HONEST[0]);
        return None;
    }
    let cell = |scenario: &'static Scenario| {
        let of_size = move |n: &usize| Cell { scenario, knobs: arguments.knobs(scenario, n + 1), honest: Some(*n) };
        sizes.iter().map(of_size).collect::<Vec<_>>()
    };
    Some(chosen.flat_map(cell).collect())
}

fn one(cell: &Cell, seed: u64, arguments: &Arguments) -> io::Result<bool> {
    let Cell { scenario, knobs, .. } = cell;
    let begin = Instant::now();
    let keep = Keep { lines: arguments.trace, story: arguments.story };
    let ground = arguments.ground();
    let report = scenario.play_on(ground, knobs, seed, keep)?;
    if arguments.json {
        print_json(&summary(cell, ground, &[(seed, report.clone())], begin.elapsed()));
        return Ok(report.holds());
    }
    println!("{}: {}", scenario.name, scenario.story);
    for step in &scenario.script(knobs, seed).steps {
        println!("  {step:?}");
    }
    for line in &report.story {
        println!("{line}");
    }
    for line in &report.lines {
        println!("{line}");
    }
    let waits: Vec<String> = report.converged.iter().map(|d| format!("{:.1}", millis(*d))).collect();
    let time = if ground == Ground::Simulator { "s simulated" } else { "s over sockets" };
    println!(
        "common views after {} ms · {} views · {} datagrams, {} B · {} messages delivered · {:.1} {time}",
        waits.join(", "),
        report.views,
        report.datagrams,
        report.bytes,
        report.delivered,
        report.lasted.as_secs_f64()
    );
    if ground == Ground::Simulator {
        println!("trace {:016x}", report.trace);
    }
    for violation in &report.violations {
        println!("FAILED  {violation}");
    }
    Ok(report.holds())
}

/// Plays all seeds; how many there were, and how many held.
fn many(cell: &Cell, arguments: &Arguments) -> io::Result<(u64, u64)> {
    let Cell { scenario, knobs, .. } = cell;
    let ground = arguments.ground();
    let begin = Instant::now();
    let default = if ground == Ground::Simulator { 0..100 } else { 0..1 };
    let seeds = Seeds {
        name: scenario.name.to_owned(),
        seeds: arguments.seeds.clone().unwrap_or(default),
        // Real time is best kept by one run at a time.
        jobs: arguments.jobs.unwrap_or(if arguments.sockets { 1 } else { 0 }),
        bar: !arguments.no_progress,
        note: note(scenario, knobs, ground),
        resume: arguments.resume,
    };
    let told = |seed, report: &Report| {
        let violation = report.violations.first()?;
        Some(format!("FAILED  {violation}\nagain:  {}", again(scenario, knobs, seed, ground)))
    };
    let played = seeds.play(|seed| scenario.play_on(ground, knobs, seed, Keep::default()), told)?;
    let reports: Vec<(u64, Report)> = played.into_iter().map(|it| (it.seed, it.report)).collect();
    let summary = summary(cell, ground, &reports, begin.elapsed());
    let count = (summary.seeds, summary.held);
    if arguments.json {
        print_json(&summary);
        return Ok(count);
    }
    let waits = summary.converged_ms.map_or(String::new(), |[median, p99, max]| {
        format!(" · common view after {median:.0} ms (median), {p99:.0} ms (99 %), {max:.0} ms (longest)")
    });
    let lost = if summary.due > 0 { format!(" · lost {} of {}", summary.lost, summary.due) } else { String::new() };
    let honest = summary.honest.map_or(String::new(), |n| format!(" · {n:>2} honest"));
    println!(
        "{:<22} {}/{} seeds held{honest}{waits}{lost} · {:.0} s {} in {:.1} s",
        summary.scenario, summary.held, summary.seeds, summary.simulated_s, summary.ground, summary.took_s
    );
    for (seed, waited) in slowest(&reports).into_iter().take(arguments.slowest) {
        println!("{:>8.0} ms  {}", millis(waited), again(scenario, knobs, seed, ground));
    }
    Ok(count)
}

fn summary(cell: &Cell, ground: Ground, reports: &[(u64, Report)], took: Duration) -> Summary {
    let Cell { scenario, knobs, honest } = cell;
    let waits_ms: Vec<[f64; 3]> = (0..).map_while(|wait| spread(reports, wait)).collect();
    let failed: Vec<u64> = reports.iter().filter(|(_, r)| !r.holds()).map(|(seed, _)| *seed).collect();
    let sum = |f: fn(&Report) -> u64| reports.iter().map(|(_, r)| f(r)).sum();
    Summary {
        scenario: scenario.name,
        ground: if ground == Ground::Simulator { "simulated" } else { "over sockets" },
        nodes: knobs.members,
        honest: *honest,
        loss: knobs.loss.fraction(),
        jitter_ms: knobs.jitter.as_millis() as u64,
        seeds: reports.len() as u64,
        held: (reports.len() - failed.len()) as u64,
        converged_ms: waits_ms.first().copied(),
        waits_ms,
        views: sum(|r| r.views),
        datagrams: sum(|r| r.datagrams),
        published: sum(|r| r.tally.published),
        delivered: sum(|r| r.delivered),
        due: sum(|r| r.tally.due),
        lost: sum(|r| r.tally.lost),
        simulated_s: reports.iter().map(|(_, r)| r.lasted.as_secs_f64()).sum(),
        took_s: took.as_secs_f64(),
        again: failed.iter().take(AGAIN_MAX).map(|seed| again(scenario, knobs, *seed, ground)).collect(),
        failed_seeds: failed,
    }
}

/// Of a story's wait of this number in all seeds: median, 99th percentile and longest; `None` if no seed had it.
fn spread(reports: &[(u64, Report)], wait: usize) -> Option<[f64; 3]> {
    let mut waits: Vec<Duration> = reports.iter().filter_map(|(_, r)| r.converged.get(wait).copied()).collect();
    waits.sort_unstable();
    let at = |percent: usize| millis(waits[(waits.len() - 1) * percent / 100]);
    (!waits.is_empty()).then(|| [at(50), at(99), at(100)])
}

/// Seeds by the wait for their first common view, the longest first.
fn slowest(reports: &[(u64, Report)]) -> Vec<(u64, Duration)> {
    let first = |(seed, r): &(u64, Report)| Some((*seed, *r.converged.first()?));
    let mut waits: Vec<(u64, Duration)> = reports.iter().filter_map(first).collect();
    waits.sort_by_key(|(seed, waited)| (std::cmp::Reverse(*waited), *seed));
    waits
}

/// The command that plays exactly this run; over sockets one like it, since real time never repeats.
pub fn again(scenario: &Scenario, knobs: &Knobs, seed: u64, ground: Ground) -> String {
    let mut command = format!("sealcast-lab sim {} --seed {seed}", scenario.name);
    if ground == Ground::Sockets {
        command += " --sockets";
    }
    if knobs.members != scenario.knobs.members {
        command += &format!(" --nodes {}", knobs.members);
    }
    if knobs.loss != scenario.knobs.loss {
        command += &format!(" --loss {}", knobs.loss.fraction());
    }
    if knobs.jitter != scenario.knobs.jitter {
        command += &format!(" --jitter {}", knobs.jitter.as_millis());
    }
    command
}

impl Arguments {
    fn ground(&self) -> Ground {
        if self.sockets { Ground::Sockets } else { Ground::Simulator }
    }

    fn knobs(&self, scenario: &Scenario, members: usize) -> Knobs {
        Knobs {
            members,
            loss: self.loss.map_or(scenario.knobs.loss, Chance::of),
            jitter: self.jitter.map_or(scenario.knobs.jitter, Duration::from_millis),
        }
    }
}

/// Where it is noted how far the seeds of a scenario hold.
fn note(scenario: &Scenario, knobs: &Knobs, ground: Ground) -> Option<Note> {
    let sockets = if ground == Ground::Sockets { "-sockets" } else { "" };
    let (members, loss, jitter) = (knobs.members, knobs.loss.0, knobs.jitter.as_millis());
    Note::of(&format!("{}-{members}-{loss}-{jitter}{sockets}", scenario.name))
}

fn print_json(summary: &Summary) {
    println!("{}", serde_json::to_string(summary).expect("a summary is plain data"));
}

fn millis(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

/// Asks for whole brokers.
const BROKERS: &str = "brokers";
/// Asks for all of [`INSIDERS_ALL`].
const INSIDERS: &str = "insiders";
/// The attacks of one holder of a certificate on a group on a LAN.
const INSIDERS_ALL: &[&str] = &[
    "claimed-number",
    "climber",
    "churner",
    "visitor",
    "captor",
    "evicted-captor",
    "captured",
    "splitter",
    "splitter-heard",
    "splitter-share",
    "splitter-confirmation",
    "twins",
    "wrong-publics",
];
/// Honest members that they are played with, unless asked otherwise; the first number is the least.
const HONEST: [usize; 3] = [3, 8, 16];
/// Failures whose commands are listed.
const AGAIN_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Parsed {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn what_is_asked_of_whole_brokers_is_passed_on() {
        let all = "--fault crash --seeds 3..9 --f 2 --jobs 1 --resume --paper --json --no-progress";
        let asked = Parsed::parse_from("sim brokers".split(' ').chain(all.split(' ')));
        assert_eq!(of_brokers(&asked.arguments).join(" "), all);
        assert!(of_brokers(&Parsed::parse_from(["sim", "brokers"]).arguments).is_empty());
    }

    fn asked(line: &str) -> Option<Vec<Cell>> {
        cells(&Parsed::parse_from(line.split(' ')).arguments)
    }

    #[test]
    fn insiders_are_all_attacks_beside_so_many_honest_members() {
        let of = |line| -> Vec<(&str, usize, Option<usize>)> {
            asked(line).unwrap().iter().map(|c| (c.scenario.name, c.knobs.members, c.honest)).collect()
        };
        let all = of("sim insiders");
        assert_eq!(all.len(), INSIDERS_ALL.len() * HONEST.len());
        assert_eq!(all[..3], [3, 8, 16].map(|n| ("claimed-number", n + 1, Some(n))));
        assert_eq!(of("sim insiders --nodes 5").len(), INSIDERS_ALL.len());
        assert_eq!(of("sim captor --nodes 4,6"), [("captor", 4, None), ("captor", 6, None)]);
        assert!(asked("sim insiders --nodes 2").is_none() && asked("sim insiders --nodes 64").is_none());
    }
}
