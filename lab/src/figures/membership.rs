//! Formation, eviction, and what a change of key costs, over real sockets and in the simulator.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::figures::{Bench, Goal, Row, median};
use crate::peers::identities::Identities;
use crate::peers::side::{Path, Side, command};
use crate::peers::{Field, Player};

pub(super) const SOCKETS: &[&str] = &["formation-sockets", "formation-time"];

/// Groups of processes that start together, until all hold one key.
pub(super) fn sockets(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let runs = bench.pick(5, 20);
    let mut formed = 0;
    let mut took = Vec::new();
    for _ in 0..runs {
        bench.bar.tick();
        let mut group = Group::start(&bench.field, 32, "")?;
        if let Some(t) = group.formed()? {
            formed += 1;
            took.push(t.as_secs_f64() * 1e3);
        }
    }
    let row =
        Row::new("lan", "formation-sockets", "groups of 32 processes that agree on a key", "share", Goal::AtLeast(1.0));
    let row = row.part("formed", f64::from(formed)).part("runs", f64::from(runs));
    let row = if took.is_empty() { row } else { row.part("median ms", median(&took)) };
    let sockets = row.measured(
        f64::from(formed) / f64::from(runs),
        format!("started at once, real sockets on loopback, at most {} s each", FORMATION_MAX.as_secs()),
    );

    let runs = bench.pick(5, 20);
    let mut took = Vec::new();
    for _ in 0..runs {
        bench.bar.tick();
        let mut group = Group::start(&bench.field, 16, "")?;
        let t = group.formed()?.ok_or("16 processes did not agree on a key")?;
        took.push(t.as_secs_f64() * 1e3);
    }
    let row = Row::new("lan", "formation-time", "last start to common key, N = 16, no loss", "ms", Goal::AtMost(150.0));
    let worst = took.iter().copied().fold(0.0, f64::max);
    let time =
        row.part("worst", worst).measured(median(&took), format!("median of {runs} runs, real sockets on loopback"));
    Ok(vec![sockets, time])
}

pub(super) const EVICTION: &[&str] = &["eviction-time"];

/// From the command to evict until all others are on the new key.
pub(super) fn eviction(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let runs = bench.pick(5, 20);
    let (mut took, mut seen) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        bench.bar.tick();
        let mut group = Group::start(&bench.field, 16, "")?;
        group.formed()?.ok_or("16 processes did not agree on a key")?;
        let answer = group.evict(0, 15)?;
        let told = numbers(&answer, "evicted").ok_or_else(|| format!("not evicted: {answer}"))?;
        took.push(told[1] as f64 / 1e6);
        let last = group.keyed(1..15, 15)?.ok_or("the others did not agree on a new key")?;
        seen.push(last.saturating_sub(told[0]) as f64 / 1e6);
    }
    let row =
        Row::new("lan", "eviction-time", "eviction to all others on the new key, N = 16", "ms", Goal::AtMost(100.0));
    let row = row.part("seen at the others", median(&seen)).part("worst", took.iter().copied().fold(0.0, f64::max));
    let how = format!("as the command prints it, median of {runs} runs, real sockets on loopback");
    Ok(vec![row.measured(median(&took), how)])
}

pub(super) const LOSS: &[&str] = &["lost-join", "lost-rekey", "lost-evict"];

/// A publisher at 1,000 messages a second through a join, a rekey and an eviction.
pub(super) fn loss(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let runs = bench.pick(3, 10);
    let mut rows = Vec::new();
    for (id, what, change) in [
        ("lost-join", "a join", Change::Join),
        ("lost-rekey", "a timed rekey", Change::Rekey),
        ("lost-evict", "an eviction", Change::Evict),
    ] {
        let (mut lost, mut sent) = (0, 0);
        for _ in 0..runs {
            bench.bar.tick();
            let (l, s) = lost_at(bench, change)?;
            (lost, sent) = (lost + l, sent + s);
        }
        let row = Row::new("lan", id, format!("messages lost at {what}, 1,000 msg/s"), "messages", Goal::AtMost(0.0));
        let how = format!("{runs} runs of 2 s, 100 B, 3 members, counted at each that stays");
        rows.push(row.part("sent", sent as f64).measured(lost as f64, how));
    }
    Ok(rows)
}

#[derive(Clone, Copy, PartialEq)]
enum Change {
    Join,
    Rekey,
    Evict,
}

/// (lost, sent) around one change, summed over those who stay.
fn lost_at(bench: &Bench, change: Change) -> Result<(u64, u64), Failure> {
    // Timed: the epoch's key is replaced while the messages run.
    let options = if change == Change::Rekey { "&rekey=700ms" } else { "" };
    let mut group = Group::start(&bench.field, 4, options)?;
    let all = if change == Change::Join { 3 } else { 4 };
    group.open(0..all)?;
    group.keyed(0..all, all)?.ok_or("no group formed")?;
    for i in 1..3 {
        group.members[i].tell("count loss/test")?;
        while group.members[i].hear()? != "ready" {}
    }
    group.members[0].tell("publish loss/test 100 1000 2000")?;
    std::thread::sleep(Duration::from_millis(500));
    match change {
        Change::Join => group.open(3..4)?,
        Change::Rekey => {}
        Change::Evict => {
            let answer = group.evict(1, 3)?;
            numbers(&answer, "evicted").ok_or_else(|| format!("not evicted: {answer}"))?;
        }
    }
    let until = Instant::now() + FORMATION_MAX;
    let sent = loop {
        let line = group.members[0].hear_for(until.saturating_duration_since(Instant::now()))?;
        let line = line.ok_or("the publisher says nothing")?;
        if let Some(n) = numbers(&line, "sent") {
            break n[0];
        }
    };
    std::thread::sleep(Duration::from_millis(200));
    let mut got = 0;
    let mut changed = false;
    for member in &mut group.members[1..3] {
        member.tell("take")?;
        loop {
            let line = member.hear()?;
            changed |= numbers(&line, "view").is_some();
            if let Some(n) = numbers(&line, "got") {
                got += n[0];
                break;
            }
        }
    }
    if !changed {
        return Err("the key did not change while messages ran".into());
    }
    Ok((2 * sent - got.min(2 * sent), 2 * sent))
}

/// Processes of one sealed group, each started and waiting for the word to open its session.
struct Group {
    members: Vec<Player>,
    identities: Arc<Identities>,
}

impl Group {
    fn start(field: &Field, members: usize, options: &str) -> Result<Group, Failure> {
        let url = field.url(Side::Sealed, Path::Segmented, &field.address()) + options;
        let identities = Arc::new(Identities::new(members)?);
        let members = (0..members)
            .map(|i| {
                Ok(Player::start(&mut command("member", &url, Some(&identities), i)?)?.with(Some(identities.clone())))
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        members.iter().try_for_each(Player::ready)?;
        Ok(Group { members, identities })
    }

    /// One evicts another; its answer, among views that it may tell first.
    fn evict(&mut self, who: usize, whom: usize) -> Result<String, Failure> {
        let name = self.identities.name(whom);
        self.members[who].tell(&format!("evict {name}"))?;
        loop {
            let line = self.members[who].hear()?;
            if !line.starts_with("view") {
                return Ok(line);
            }
        }
    }

    fn open(&mut self, which: Range<usize>) -> Result<(), Failure> {
        Ok(self.members[which].iter_mut().try_for_each(|m| m.tell("open"))?)
    }

    /// Opens all at once; from the last start to the last key, if all agree on one in time.
    fn formed(&mut self) -> Result<Option<Duration>, Failure> {
        let n = self.members.len();
        self.open(0..n)?;
        let mut last_start = 0;
        for m in &self.members {
            let line = m.hear()?;
            let at = numbers(&line, "opening").ok_or_else(|| format!("not opening: {line}"))?;
            last_start = last_start.max(at[0]);
        }
        Ok(self.keyed(0..n, n)?.map(|at| Duration::from_nanos(at.saturating_sub(last_start))))
    }

    /// When the last of these installed the one view of `size` members that all of them are in;
    /// nanoseconds of the monotonic clock, which all processes of a machine share.
    fn keyed(&mut self, which: Range<usize>, size: usize) -> Result<Option<u64>, Failure> {
        let until = Instant::now() + FORMATION_MAX;
        // Of each member: when it installed its newest view, and which.
        let mut newest: Vec<Option<(u64, String)>> = vec![None; which.len()];
        loop {
            for (i, at) in which.clone().enumerate() {
                let wait = if newest[i].is_none() { Duration::from_millis(20) } else { Duration::from_micros(200) };
                while let Some(line) = self.members[at].hear_for(wait)? {
                    if let ["view", when, epoch, members] = line.split_whitespace().collect::<Vec<_>>()[..] {
                        newest[i] = (members.parse() == Ok(size))
                            .then(|| Ok::<_, Failure>((when.parse()?, epoch.to_string())))
                            .transpose()?;
                    }
                }
            }
            let epochs: BTreeSet<Option<&str>> = newest.iter().map(|v| v.as_ref().map(|v| &*v.1)).collect();
            if epochs.len() == 1 && !epochs.contains(&None) {
                return Ok(newest.iter().flatten().map(|v| v.0).max());
            }
            if Instant::now() > until {
                return Ok(None);
            }
        }
    }
}

fn numbers(line: &str, word: &str) -> Option<Vec<u64>> {
    let rest = line.strip_prefix(word)?.strip_prefix(' ')?;
    rest.split_whitespace().map(|w| w.parse().ok()).collect()
}

/// After this, a group counts as not formed.
const FORMATION_MAX: Duration = Duration::from_secs(20);
