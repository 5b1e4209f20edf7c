//! A broker killed and started again under load; and how long a clean build takes.

use std::time::Duration;

use super::disk;
use crate::Failure;
use crate::brokers::cluster::Cluster;
use crate::brokers::load::{Load, Rate};
use crate::figures::{Bench, Goal, Holds, Row, median};

pub(in crate::figures) const FAULTS: &[&str] = &["brokers-killed-gap", "brokers-caught-up", "brokers-build"];

/// The leader is killed, and started again later.
pub(in crate::figures) fn faults(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let row = |id: &str, what: &str, unit, goal| Row::new("brokers", id, what, unit, goal);
    let build = row("brokers-build", "clean build of order and broker on 2 cores", "min", Goal::AtMost(8.0))
        .absent(Holds::FullRunOnly, "cargo clean; time cargo build --release -p sealcast-brokerd");
    if !FAULTS[..2].iter().any(|id| bench.wants(id)) {
        return Ok(vec![build]);
    }
    let runs = bench.pick(1, 5);
    let (mut gaps, mut unharmed, mut caught_up) = (vec![], vec![], vec![]);
    for _ in 0..runs {
        let mut cluster = Cluster::start(4, &disk())?;
        cluster.caught_up(PATIENCE)?;
        let load = Load::start(&cluster, Rate { per_second: OPERATIONS_S, bytes: 1024, frame: 32 })?;
        std::thread::sleep(WARM_UP);
        load.longest_gap();
        std::thread::sleep(WARM_UP);
        unharmed.push(load.longest_gap().as_secs_f64() * 1e3);
        let leader = cluster.leader().ok_or("no broker says who leads")?;
        cluster.kill(&[leader])?;
        std::thread::sleep(AWAY);
        gaps.push(load.longest_gap().as_secs_f64() * 1e3);
        cluster.restart(leader)?;
        caught_up.push(cluster.caught_up(PATIENCE)?.as_secs_f64());
        load.check()?;
        load.end()?;
    }
    let how = format!(
        "{runs} runs: {OPERATIONS_S} publications of 1 KB a second in frames of at most 32, two publishers, two \
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
        build,
    ])
}

const OPERATIONS_S: f64 = 6000.0;
const WARM_UP: Duration = Duration::from_secs(2);
const AWAY: Duration = Duration::from_secs(10);
/// Beyond this something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);
