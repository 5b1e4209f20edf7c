//! A group at a relay of this machine: Mosquitto and `sealcast-relay`, and members that are sessions of this process. All share its
//! cores.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sealcast::config::{Home, KeptIdentity};
use sealcast::session::Identity;
use sealcast::{Session, open};

use super::fan_out::Load;
use super::{AREA, millis, resident_bytes};
use crate::Failure;
use crate::figures::brokers::disk;
use crate::figures::{Bench, Goal, Row, median};
use crate::peers::identities::Identities;
use crate::peers::relay::Servers;

pub(in crate::figures) const RELAY: &[&str] =
    &["mls-fanout", "mls-burst", "mls-fanout-members", "mls-burst-members", "mls-evict", "mls-relay-memory"];

/// All rows of one group.
pub(in crate::figures) fn relay(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let (few, members, subscribers, evictions) = bench.pick((5, 20, 100, 3), (10, 100, 1000, 9));
    let load = || bench.pick(Load { singles: 20, burst: 100 }, Load { singles: 100, burst: 300 });
    let servers = Servers::start(&disk())?;
    let identities = Identities::new(members)?;
    let mut group = Vec::new();
    let grow = |group: &mut Vec<Session>, to: usize| -> Result<(), Failure> {
        while group.len() < to {
            bench.bar.tick();
            group.push(session(&servers, &identities, group.len())?);
            together(group)?;
        }
        Ok(())
    };
    grow(&mut group, few)?;
    let to_many = load().compare(&servers, &group, subscribers)?;
    let memory = servers.processes().map(resident_bytes).sum::<Result<u64, Failure>>()? as f64 / 1e6;
    grow(&mut group, members)?;
    let to_members = load().compare(&servers, &group, members - 1)?;
    let mut evicted = Vec::new();
    for _ in 0..evictions {
        bench.bar.tick();
        let Some(last) = group.pop() else { break };
        let begun = Instant::now();
        let eviction = group[0].evict(identities.name(group.len()).as_str(), "lost laptop");
        std::thread::scope(|scope| {
            scope.spawn(move || _ = eviction.wait());
            together(&group)?;
            evicted.push(millis(begun.elapsed()));
            Ok::<(), Failure>(())
        })?;
        last.close();
        std::thread::sleep(SETTLED);
    }
    let setting = format!(
        "members of keys=mls in one process, Mosquitto and sealcast-relay on the same cores, loopback, directory on {}",
        disk().display()
    );
    let goals = [("mls-fanout", Goal::AtMost(1.3)), ("mls-burst", Goal::AtLeast(1.0))];
    let many = format!("{subscribers} subscribers, {} of them members", few - 1);
    let mut rows = Vec::from(to_many.rows(goals, &many, &setting));
    let reported = [("mls-fanout-members", Goal::Report), ("mls-burst-members", Goal::Report)];
    rows.extend(to_members.rows(reported, &format!("{} members", members - 1), &setting));
    let row = |id: &str, what: String, unit, goal| Row::new(AREA, id, what, unit, goal);
    let evict = format!("eviction from a group of {members}: command to the last on the new key");
    rows.push(
        row("mls-evict", evict, "ms", Goal::AtMost(150.0))
            .measured(median(&evicted), format!("median of {evictions}; {members} {setting}")),
    );
    rows.push(
        row("mls-relay-memory", "memory of the relay after the burst".into(), "MB", Goal::AtMost(256.0))
            .measured(memory, format!("{subscribers} subscribers; resident sets of sealcast-relay and Mosquitto")),
    );
    Ok(rows)
}

fn session(servers: &Servers, identities: &Identities, member: usize) -> Result<Session, Failure> {
    let kept = KeptIdentity::load(&Home::at(identities.home()), &identities.name(member))?;
    let identity = Arc::new(kept.identity()?.ok_or("it has no certificate")?);
    let session = open(&servers.url).identity(Identity::Loaded(identity)).wait()?;
    session.ready().wait()?;
    Ok(session)
}

/// Waits until all sessions are in one view of all of them.
fn together(group: &[Session]) -> Result<(), Failure> {
    let begun = Instant::now();
    // From the last one to the first: the one that was waited for last is seen to be there with the others.
    for session in group.iter().rev() {
        while session.view().is_none_or(|view| view.members.len() != group.len()) {
            if begun.elapsed() > TIMEOUT {
                return Err(format!("no view of all {} members within {TIMEOUT:?}", group.len()).into());
            }
            std::thread::sleep(LOOK);
        }
    }
    Ok(())
}

const LOOK: Duration = Duration::from_micros(200);
const SETTLED: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(60);
