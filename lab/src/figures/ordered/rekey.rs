//! Joins and leaves a second in large groups with keys from a centre, beside plain multicasts to as many sockets.

use std::process::Command;

use serde_json::Value;

use super::AREA;
use crate::Failure;
use crate::brokers::beside;
use crate::figures::brokers::number;
use crate::figures::{Bench, Goal, Row};

pub(in crate::figures) const REKEY_200: &[&str] = &["ord-rekey-200"];
pub(in crate::figures) const REKEY_350: &[&str] = &["ord-rekey-350"];
pub(in crate::figures) const REKEY_1000: &[&str] = &["ord-rekey-1000"];

/// The group of the quick run.
pub(in crate::figures) fn rekey_200(bench: &Bench) -> Result<Vec<Row>, Failure> {
    rekey(bench, REKEY_200[0], 200, 0.085)
}

/// The group of LSGC's own measurements.
pub(in crate::figures) fn rekey_350(bench: &Bench) -> Result<Vec<Row>, Failure> {
    rekey(bench, REKEY_350[0], 350, 0.075)
}

/// The largest group.
pub(in crate::figures) fn rekey_1000(bench: &Bench) -> Result<Vec<Row>, Failure> {
    rekey(bench, REKEY_1000[0], 1_000, 0.075)
}

fn rekey(bench: &Bench, id: &str, members: usize, goal: f64) -> Result<Vec<Row>, Failure> {
    bench.bar.tick();
    let (seconds, runs) = bench.pick((5, 1), (10, 3));
    let mut command = Command::new(beside("sealcast")?);
    command.args(["--json", "--no-progress", "bench", "rekey", "--members", &members.to_string()]);
    command.args(["--time", &format!("{seconds}s"), "--runs", &runs.to_string()]);
    let output = command.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into());
    }
    let said: Value = serde_json::from_slice(&output.stdout)?;
    let what = format!("joins and leaves/s of {members} members, installed by all / 1,400 B multicasts/s");
    let row = Row::new(AREA, id, what, "ratio", Goal::AtLeast(goal));
    let row = row.part("joins and leaves/s", number(&said, "changes_per_second")?);
    let row = row.part("multicasts/s to as many sockets", number(&said, "multicasts_per_second")?);
    let row = row.part("a join, ms", number(&said, "join_ms")?).part("a leave, ms", number(&said, "leave_ms")?);
    let how = format!(
        "keys=center, each member acknowledges to the leader itself, one member joins and leaves, one change at a time; all members in one process, with detect=20s if they are \
         more than 400, loopback, medians of {runs} runs of {seconds} s; plain multicasts before and after"
    );
    Ok(vec![row.measured(number(&said, "ratio")?, how)])
}
