//! A broker killed and started again under load; and how long a clean build takes.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::disk;
use crate::Failure;
use crate::brokers::cluster::Cluster;
use crate::brokers::load::{Load, Rate};
use crate::figures::{Bench, Goal, Holds, Row, median};

pub(in crate::figures) const FAULTS: &[&str] = &["brokers-killed-gap", "brokers-caught-up", "brokers-build"];

/// The leader is killed, and started again later.
pub(in crate::figures) fn faults(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let row = |id: &str, what: &str, unit, goal| Row::new("brokers", id, what, unit, goal);
    if !FAULTS[..2].iter().any(|id| bench.wants(id)) {
        return Ok(vec![built(bench)]);
    }
    let runs = bench.pick(1, 5);
    let (mut gaps, mut unharmed, mut caught_up) = (vec![], vec![], vec![]);
    for _ in 0..runs {
        let mut cluster = Cluster::start(4, &disk())?;
        cluster.caught_up(TIMEOUT)?;
        let load = Load::start(&cluster, Rate { per_second: OPERATIONS_S, bytes: 1024, batch: 32 })?;
        std::thread::sleep(WARM_UP);
        load.longest_gap();
        std::thread::sleep(WARM_UP);
        unharmed.push(load.longest_gap().as_secs_f64() * 1e3);
        let leader = cluster.leader().ok_or("no broker says who leads")?;
        cluster.kill(&[leader])?;
        std::thread::sleep(AWAY);
        gaps.push(load.longest_gap().as_secs_f64() * 1e3);
        cluster.restart(leader)?;
        caught_up.push(cluster.caught_up(TIMEOUT)?.as_secs_f64());
        load.check()?;
        load.end()?;
    }
    let how = format!(
        "{runs} runs: {OPERATIONS_S} publications of 1 KB a second in batches of at most 32, two publishers, two \
         subscribers, in {}; the leader is killed with SIGKILL, and started again {} s later",
        disk().display(),
        AWAY.as_secs()
    );
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    Ok(vec![
        row("brokers-killed-gap", "longest gap when one of four is killed, 6,000 op/s", "ms", Goal::AtMost(500.0))
            .part("worst", most(&gaps))
            .part("unharmed", median(&unharmed))
            .measured(median(&gaps), &how),
        row("brokers-caught-up", "restarted after 10 s: caught up", "s", Goal::AtMost(5.0))
            .part("worst", most(&caught_up))
            .measured(median(&caught_up), &how),
        built(bench),
    ])
}

/// How long a clean build takes: in a full run, and where the sources are.
fn built(bench: &Bench) -> Row {
    let row =
        Row::new("brokers", "brokers-build", "clean build of order and broker on 2 cores", "min", Goal::AtMost(8.0));
    if bench.quick || !bench.wants("brokers-build") {
        return row.absent(Holds::FullRunOnly, format!("cargo {} into an empty folder", BUILD.join(" ")));
    }
    let took = std::env::current_dir().map_err(Failure::from).and_then(|here| {
        let sources = sources(&here)
            .ok_or_else(|| format!("there are no sources at or above {}: run it in their folder", here.display()))?;
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        build(&cargo, &sources, &disk())
    });
    match took {
        Err(why) => row.absent(Holds::NotRun, why.to_string()),
        Ok(took) => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let how = format!("one cargo {} into an empty folder, on {cores} cores", BUILD.join(" "));
            row.part("s", took.as_secs_f64()).measured(took.as_secs_f64() / 60.0, how)
        }
    }
}

/// The folder at or above this one that has the broker's sources.
fn sources(here: &Path) -> Option<PathBuf> {
    let is_it = |it: &&Path| {
        let manifest = fs::read_to_string(it.join("brokerd/Cargo.toml")).unwrap_or_default();
        manifest.contains("name = \"sealcast-brokerd\"") && it.join("Cargo.toml").is_file()
    };
    here.ancestors().find(is_it).map(Path::to_path_buf)
}

/// Builds the broker, and what it needs, into a new folder within `within`, which goes again; how long it took.
fn build(cargo: &OsStr, sources: &Path, within: &Path) -> Result<Duration, Failure> {
    let target = tempfile::Builder::new().prefix("sealcast-build-").tempdir_in(within)?;
    let mut command = Command::new(cargo);
    command.args(BUILD).current_dir(sources).env("CARGO_TARGET_DIR", target.path()).stdin(Stdio::null());
    let begun = Instant::now();
    let output = command.output().map_err(|e| format!("{}: {e}", cargo.display()))?;
    let took = begun.elapsed();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        return Err(format!("{}: {last}", output.status).into());
    }
    Ok(took)
}

const OPERATIONS_S: f64 = 6000.0;
const WARM_UP: Duration = Duration::from_secs(2);
const AWAY: Duration = Duration::from_secs(10);
/// Beyond this something is wrong.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Figures are measured where there is no network.
/// The broker and the order in it; the lab's programs beside it link the engine once more each.
const BUILD: [&str; 8] =
    ["build", "--release", "--offline", "--locked", "-p", "sealcast-brokerd-program", "--bin", "sealcast-broker"];

#[cfg(test)]
mod tests {
    use indicatif::ProgressBar;

    use super::*;
    use crate::peers::Field;

    #[test]
    fn the_sources_are_found_from_within() {
        let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
        let found = sources(&lab.join("src/figures")).expect("they are here");
        assert_eq!(Some(found.as_path()), lab.parent());
        assert_eq!(sources(Path::new("/")), None);
    }

    #[test]
    fn a_build_is_timed_and_leaves_nothing() {
        let within = tempfile::tempdir().expect("a folder");
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let times = ["true", "false", "no-such-program"].map(|cargo| build(cargo.as_ref(), here, within.path()));
        assert!(times[0].is_ok() && times[1].is_err() && times[2].is_err(), "{times:?}");
        assert_eq!(fs::read_dir(within.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn a_quick_run_builds_nothing() {
        let bench = Bench { field: Field::default(), quick: true, rows: Vec::new(), bar: ProgressBar::hidden() };
        assert_eq!(built(&bench).holds, Holds::FullRunOnly);
        let other = Bench { quick: false, rows: vec!["brokers-caught-up".into()], ..bench };
        assert_eq!(built(&other).holds, Holds::FullRunOnly);
    }
}
