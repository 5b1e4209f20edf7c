//! Publications through brokers, measured by `sealcast bench brokers` beside the ordering engine alone, in turn. All
//! processes share this machine's cores: four brokers, publisher and subscriber.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Failure;
use crate::figures::{Bench, Goal, Holds, Row, median};

pub(super) const ORDERED: &[&str] = &[
    "brokers-pub-disk",
    "brokers-pub-engine",
    "brokers-pub-solo",
    "brokers-cpu-solo",
    "brokers-pub-kafka",
    "brokers-pub-nats",
    "brokers-pub-single",
];
pub(super) const LATENCY: &[&str] = &["brokers-latency-disk", "brokers-latency-memory"];
pub(super) const SEALED: &[&str] =
    &["brokers-sealed-paper", "brokers-sealed", "brokers-sealed-together", "brokers-read-cpu"];
pub(super) const FAULTS: &[&str] = &["brokers-killed-gap", "brokers-caught-up", "brokers-build"];

/// Throughput of what brokers can read, frames of 32 signed publications of 1 KB.
pub(super) fn ordered(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let (runs, seconds) = (bench.pick(1, 3), bench.pick(4, 10));
    let disk = disk();
    let (mut four, mut alone, mut solo, mut cpu) = (vec![], vec![], vec![], vec![]);
    for _ in 0..runs {
        let brokers = brokered(&disk, seconds, &[])?;
        let engine = engine(&disk, &["--ops", bench.pick("150000", "400000")])?;
        let one = brokered(&disk, seconds, &["-n", "1"])?;
        four.push(rate(&brokers)?);
        alone.push(number(&engine, "ops_s")?);
        solo.push(rate(&one)?);
        cpu.push(number(&brokers, "broker_cpu_us")? / number(&one, "broker_cpu_us")?);
    }
    let single: Result<Vec<f64>, Failure> =
        (0..runs).map(|_| rate(&brokered(MEMORY.as_ref(), seconds, &["--frame", "1"])?)).collect();
    let (four, alone, solo) = (median(&four), median(&alone), median(&solo));
    let how = format!("medians of {runs} runs of {seconds} s, window 8192, frames of 32, 1 KB, in {}", disk.display());
    let row = |id: &str, what: &str, unit, goal| Row::new("brokers", id, what, unit, goal);
    let ratio = |id: &str, what: &str, goal: f64, name: &str, other: f64| {
        row(id, what, "ratio", Goal::AtLeast(goal)).part("brokers", four).part(name, other).measured(four / other, &how)
    };
    Ok(vec![
        row(
            "brokers-pub-disk",
            "publications through four brokers, in order at one subscriber",
            "1/s",
            Goal::AtLeast(35e3),
        )
        .measured(four, &how),
        ratio("brokers-pub-engine", "the same ÷ the engine alone", 0.75, "engine alone", alone),
        ratio("brokers-pub-solo", "the same ÷ one broker alone, same code and cores", 0.25, "solo", solo),
        row("brokers-cpu-solo", "processor time of one broker of four ÷ of one alone", "ratio", Goal::AtMost(2.0))
            .measured(median(&cpu), &how),
        row("brokers-pub-kafka", "the same ÷ Kafka, one node, flush.messages=1", "ratio", Goal::AtLeast(1.0))
            .absent(Holds::NotRun, "the peer is not driven yet"),
        row("brokers-pub-nats", "the same ÷ NATS JetStream, sync_interval: always", "ratio", Goal::AtLeast(7.0))
            .absent(Holds::NotRun, "the peer is not driven yet"),
        row(
            "brokers-pub-single",
            "the same, one publication per frame, memory file system",
            "1/s",
            Goal::AtLeast(15e3),
        )
        .measured(median(&single?), format!("medians of {runs} runs of {seconds} s in {MEMORY}")),
    ])
}

/// One publication at a time, 20 a second.
pub(super) fn latency(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let seconds = bench.pick(5, 20);
    let of = |id: &str, what: &str, folder: &Path| -> Result<Row, Failure> {
        let brokers = number(&brokered(folder, seconds, &["--paced"])?, "p50_us")? / 1e3;
        let engine = number(&engine(folder, &["--paced", "--ops", bench.pick("80", "200")])?, "p50_ms")?;
        let row = Row::new("brokers", id, what, "ratio", Goal::AtMost(1.25));
        let how = format!("p50 from publish to the subscriber, unloaded, over {seconds} s in {}", folder.display());
        Ok(row.part("ms", brokers).part("engine alone ms", engine).measured(brokers / engine, how))
    };
    Ok(vec![
        of("brokers-latency-disk", "latency of one publication ÷ the engine alone, disk", &disk())?,
        of("brokers-latency-memory", "latency of one publication ÷ the engine alone, memory", MEMORY.as_ref())?,
    ])
}

/// Sealed to the brokers' key and released to one subscriber, one ciphertext each.
pub(super) fn sealed(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let seconds = bench.pick(4, 10);
    let sealed = ["--keys", "threshold", "--window", "2048"];
    let paper = rate(&brokered(&disk(), seconds, &[&sealed[..], &["--paper"]].concat())?)?;
    let default = rate(&brokered(&disk(), seconds, &sealed)?)?;
    let how = format!("{seconds} s, window 2048, frames of 32, 1 KB, one TDH2 ciphertext each");
    let row = |id: &str, what: &str, unit, goal| Row::new("brokers", id, what, unit, goal);
    Ok(vec![
        row("brokers-sealed-paper", "sealed publications read by one subscriber, t = f+1", "1/s", Goal::AtLeast(3.1e3))
            .measured(paper, &how),
        row("brokers-sealed", "the same, t = 2f+1", "1/s", Goal::Report).measured(default, &how),
        row("brokers-sealed-together", "16 publications in a ciphertext ÷ in clear", "ratio", Goal::AtLeast(0.65))
            .absent(Holds::NotRun, "the bench does not seal several together yet"),
        row("brokers-read-cpu", "processor time per read ÷ one broker alone", "ratio", Goal::AtMost(1.15))
            .absent(Holds::NotRun, "reads are not measured yet"),
    ])
}

/// What is not measured yet.
pub(super) fn faults(_: &Bench) -> Result<Vec<Row>, Failure> {
    let row = |id: &str, what: &str, unit, goal| Row::new("brokers", id, what, unit, goal);
    Ok(vec![
        row("brokers-killed-gap", "longest gap when one of four is killed, 6,000 op/s", "ms", Goal::AtMost(500.0))
            .absent(Holds::NotRun, "not measured yet; «sealcast demo brokers» tells its own"),
        row("brokers-caught-up", "restarted after 10 s: caught up", "s", Goal::AtMost(5.0))
            .absent(Holds::NotRun, "not measured yet; «sealcast demo brokers» tells its own"),
        row("brokers-build", "clean build of order and broker on 2 cores", "min", Goal::AtMost(8.0))
            .absent(Holds::FullRunOnly, "cargo clean; time cargo build --release -p sealcast-brokerd"),
    ])
}

/// `sealcast bench brokers` with these options.
fn brokered(folder: &Path, seconds: u64, options: &[&str]) -> Result<Value, Failure> {
    let mut command = Command::new(beside("sealcast")?);
    command.args(["--json", "--no-progress", "bench", "brokers", "--time", &format!("{seconds}s")]);
    run(command.arg("--within").arg(folder).args(options))
}

fn engine(folder: &Path, options: &[&str]) -> Result<Value, Failure> {
    let folder = folder.join(format!("sealcast-engine-{}", std::process::id()));
    run(Command::new(beside("engine-alone")?).arg("--json").arg("--folder").arg(folder).args(options))
}

/// The object that a program prints.
fn run(command: &mut Command) -> Result<Value, Failure> {
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, said.trim()).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn rate(object: &Value) -> Result<f64, Failure> {
    number(object, "publications_per_second")
}

fn number(object: &Value, name: &str) -> Result<f64, Failure> {
    object[name].as_f64().ok_or_else(|| format!("there is no «{name}» in {object}").into())
}

/// A program of this project, built where this one is.
fn beside(name: &str) -> Result<PathBuf, Failure> {
    let path = std::env::current_exe()?.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    let what = format!("{} is not built: cargo build --release -p sealcast-cli -p sealcast-brokerd", path.display());
    Err(what.into())
}

/// Where files go to a disk, unless TMPDIR says otherwise.
fn disk() -> PathBuf {
    std::env::temp_dir()
}

const MEMORY: &str = "/dev/shm";
