//! How long an unloaded group takes to acknowledge, beside a round trip of best effort.

use serde_json::Value;

use super::{AREA, MEMBERS, bench};
use crate::Failure;
use crate::figures::brokers::number;
use crate::figures::{Bench, Goal, Row};
use crate::netns::Bridge;

pub(in crate::figures) const LATENCY: &[&str] = &["ord-ack-ordered", "ord-ack-safe"];

/// Both guarantees and the round trip, in turn.
pub(in crate::figures) fn latency(bench_of: &Bench) -> Result<Vec<Row>, Failure> {
    let bridge = Bridge::new(MEMBERS)?;
    let count = bench_of.pick(500, 5_000);
    let mut command = bench(&bridge, "latency")?;
    command.args(["--size", "100", "--count", &count.to_string(), "--members", &MEMBERS.to_string()]);
    command.args(["--compare", "sealed", "--guarantee", "best-effort,ordered,safe", "--publisher", "another"]);
    let output = command.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into());
    }
    let objects: Vec<Value> =
        serde_json::Deserializer::from_slice(&output.stdout).into_iter().collect::<Result<_, _>>()?;
    let [best_effort, ordered, safe] = &objects[..] else { return Err("not three kinds were measured".into()) };
    let how = format!(
        "median of the ratios of turns of 50, {count} in all, one outstanding, not the sequencer sends, {MEMBERS} members, \
         bridge of namespaces, all on one core"
    );
    let mut rows = Vec::new();
    for (id, name, goal, object) in [("ord-ack-ordered", "ordered", 3.0, ordered), ("ord-ack-safe", "safe", 4.0, safe)]
    {
        let what = format!("time to acknowledgement, {name} / best-effort round trip, 100 B");
        let row = Row::new(AREA, id, what, "ratio", Goal::AtMost(goal));
        let row = row.part(format!("{name} us"), number(object, "p50_us")?);
        let row = row.part("round trip us", number(best_effort, "p50_us")?);
        rows.push(row.measured(number(object, "ratio")?, &how));
    }
    Ok(rows)
}
