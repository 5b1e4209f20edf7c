//! Formation, eviction, and what a change of key costs, over real sockets and in the simulator.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sealcast_sim::dice::Chance;

use crate::Failure;
use crate::experiments::lan::{Lan, identities};
use crate::figures::{Bench, Goal, Row, median};
use crate::peers::identities::Identities;
use crate::peers::side::{Path, Side, command};
use crate::peers::{Field, Player};
use crate::scenarios::Scenario;
use crate::scenarios::script::Knobs;
use crate::scenarios::simulation::Keep;

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

pub(super) const SIMULATED: &[&str] = &["formation-converges"];

/// Groups of all sizes on the simulator, at any jitter of their starts and any loss.
pub(super) fn simulated(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let scenario = Scenario::find("formation").ok_or("the simulator has no scenario 'formation'")?;
    let sizes: &[usize] = bench.pick(&[2, 3, 4, 8, 16], &[2, 3, 4, 8, 16, 32, 64]);
    let seeds = bench.pick(20, 1_000);
    // Every seed has its jitter and loss, which together cover 0 to 2 s and 0 to 20 %.
    let runs: Vec<(usize, u64)> = sizes.iter().flat_map(|n| (0..seeds).map(move |seed| (*n, seed))).collect();
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(BTreeMap::<usize, Vec<u64>>::new());
    let play = || {
        while let Some(&(members, seed)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let loss = Chance((seed % 5) as u32 * 50_000);
            let jitter = Duration::from_millis(seed / 5 % 5 * 500);
            if !scenario.play(&Knobs { members, loss, jitter }, seed, Keep::default()).holds() {
                failed.lock().expect("no holder panics").entry(members).or_default().push(seed);
            }
            bench.bar.tick();
        }
    };
    std::thread::scope(|scope| {
        (0..std::thread::available_parallelism().map_or(1, usize::from)).for_each(|_| {
            scope.spawn(play);
        });
    });
    let failed = failed.into_inner().expect("no holder panicked");
    let lost: usize = failed.values().map(Vec::len).sum();
    let share = (runs.len() - lost) as f64 / runs.len() as f64;
    let what = "groups that form on the simulator, any N, jitter, loss";
    let row = Row::new("lan", "formation-converges", what, "share", Goal::AtLeast(1.0));
    let how = format!(
        "{seeds} seeds each for N = {sizes:?}, jitter 0-2 s and loss 0-20 % by seed; not formed: {failed:?}; \
         again: sealcast lab sim formation --nodes N --seed S"
    );
    Ok(vec![row.part("runs", runs.len() as f64).measured(share, how)])
}

pub(super) const MESSAGES: &[&str] =
    &["formation-joins", "formation-responses", "formation-response-bytes", "formation-one-joins"];

/// How many messages an agreement takes.
pub(super) fn messages(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let runs = bench.pick(5, 50);
    let spread = Duration::from_millis(100);
    let (mut joins, mut responses, mut bytes) = (Vec::new(), 0.0_f64, 0.0_f64);
    for n in [2, 4, 8, 16, 32, 64] {
        let who = identities(n, 1, 1)?;
        for seed in 0..runs {
            let counted = Lan::new(seed).join(&who, spread)?;
            if n == 64 {
                joins.push(counted.joins as f64 / 64.0);
            }
            responses = responses.max(counted.responses as f64 / counted.agreements.max(1) as f64);
            bytes = bytes.max(counted.response_bytes / n as f64);
            bench.bar.tick();
        }
    }
    let how = format!("{runs} seeds each for N = 2 to 64, starts within 100 ms, no loss, virtual time");
    let what = "JOINs a member until the key, N = 64 (N + o(N))";
    let joins = Row::new("lan", "formation-joins", what, "messages", Goal::AtMost(1.1)).measured(median(&joins), &how);
    let what = "responses per agreement, the most at any N";
    let row = Row::new("lan", "formation-responses", what, "messages", Goal::AtMost(3.0));
    let responses = row.measured(responses, &how);
    let what = "bytes of a response, per member, the most at any N";
    let size = Row::new("lan", "formation-response-bytes", what, "bytes", Goal::AtMost(64.0)).measured(bytes, &how);

    let (mut one, mut cards, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
    for n in [8, 63] {
        let who = identities(n + 1, 1, 1)?;
        let (mut messages, mut given) = (Vec::new(), Vec::new());
        for seed in 0..bench.pick(3, 20) {
            let mut lan = Lan::new(seed);
            lan.join(&who[..n], spread)?;
            lan.rest(Duration::from_millis(1));
            let counted = lan.join(&who[n..], Duration::ZERO)?;
            messages.push((counted.messages - counted.cards) as f64);
            given.push(counted.cards as f64);
            kinds = counted.kinds;
        }
        one.push(median(&messages));
        cards.push(median(&given));
    }
    let what = "messages when one joins 63 / 8, certificates apart";
    let row = Row::new("lan", "formation-one-joins", what, "ratio", Goal::AtMost(1.25));
    let row = row.part("joins 8", one[0]).part("joins 63", one[1]);
    let row = row.part("certificates' messages, 8", cards[0]).part("63", cards[1]);
    let kinds: Vec<String> = kinds.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
    let how = format!("medians, no loss, virtual time; the last of them: {}", kinds.join(", "));
    let row = row.measured(one[1] / one[0], how);
    Ok(vec![joins, responses, size, row])
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
            changed |= line.starts_with("view");
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
