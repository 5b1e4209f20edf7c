//! A group whose sequencer or leader crashes, and one whose network splits and heals.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{AREA, MEMBERS};
use crate::Failure;
use crate::brokers::beside;
use crate::figures::{Bench, Goal, Holds, Row, median};
use crate::netns::Bridge;
use crate::peers::Player;
use crate::peers::centre::{Registry, Running};
use crate::peers::identities::Identities;
use crate::peers::roles::monotonic_nanos;

pub(in crate::figures) const CRASHES: &[&str] = &[SEQUENCER, LEADER];
const SEQUENCER: &str = "ord-crash-sequencer";
const LEADER: &str = "ord-crash-leader";

/// From a crash to the first delivery, at the last of the survivors, of a message that was published after it.
pub(in crate::figures) fn crashes(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let runs = bench.pick(5, 20);
    let mut rows = Vec::new();
    for (id, whose, keys) in
        [(SEQUENCER, "sequencer's", Keys::Contributory), (LEADER, "leader's, keys=center,", Keys::Center)]
    {
        if !bench.wants(id) {
            continue;
        }
        let what = format!("the {whose} crash to first ordered delivery / detect={} ms", DETECT.as_millis());
        let row = Row::new(AREA, id, what, "ratio", Goal::AtMost(2.0));
        let (mut took, mut failed) = (vec![], vec![]);
        for _ in 0..runs {
            bench.bar.tick();
            match crash(keys) {
                Ok(it) => took.push(it.as_secs_f64() * 1e3),
                Err(why) => failed.push(why.to_string()),
            }
        }
        let worst = took.iter().copied().fold(0.0, f64::max);
        let how = format!(
            "median of {runs} runs, detect= takes {} ms at least, not 75; {MEMBERS} processes, each publishes every \
             {PUBLISH_MILLIS} ms; SIGKILL, then the last survivor's first delivery of a message published later{}",
            DETECT.as_millis(),
            failed.first().map(|why| format!("; {} runs failed, the first: {why}", failed.len())).unwrap_or_default()
        );
        rows.push(match took.is_empty() {
            true => row.absent(Holds::No, how),
            // A run that failed took longer than any other.
            false => {
                took.extend(failed.iter().map(|_| f64::INFINITY));
                let middle = median(&took);
                let row =
                    row.part("median ms", middle).part("worst ms", worst).part("runs failed", failed.len() as f64);
                row.measured(middle / (DETECT.as_secs_f64() * 1e3), how)
            }
        });
    }
    Ok(rows)
}

fn crash(keys: Keys) -> Result<Duration, Failure> {
    let mut group = Group::start(keys, &format!("detect={}ms", DETECT.as_millis()))?;
    let orders = group.sequencer()?;
    // A leader that is no sequencer would not be missed by the order.
    if matches!(keys, Keys::Center) && group.first_member()? != orders {
        return Err("the leader does not order".into());
    }
    for member in &mut group.members {
        member.tell(&format!("order {PUBLISH_MILLIS} {}", PUBLISHING.as_millis()))?;
    }
    std::thread::sleep(BEFORE_CRASH);
    let crashed = monotonic_nanos();
    group.members[orders].kill()?;
    let mut first = 0;
    for (_, member) in group.members.iter_mut().enumerate().filter(|(i, _)| *i != orders) {
        let line = answer(member, "ordered", PUBLISHING + FORMATION_MAX)?;
        let pairs = line.split_whitespace().filter_map(|pair| {
            let (sent, delivered) = pair.split_once(':')?;
            Some((sent.parse::<u64>().ok()?, delivered.parse::<u64>().ok()?))
        });
        let came = pairs.filter(|(sent, _)| *sent > crashed).map(|(_, delivered)| delivered).min();
        first = first.max(came.ok_or_else(|| format!("nothing was delivered for {PUBLISHING:?} after the crash"))?);
    }
    Ok(Duration::from_nanos(first.saturating_sub(crashed)))
}

pub(in crate::figures) const MERGE: &[&str] = &["ord-merge"];

/// From the end of a partition to one view of all.
pub(in crate::figures) fn merge(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let runs = bench.pick(2, 10);
    let mut took = vec![];
    for _ in 0..runs {
        bench.bar.tick();
        let mut group = Group::start(Keys::Contributory, "")?;
        group.sequencer()?;
        let all: Vec<usize> = (0..MEMBERS).collect();
        let (alone, others) = all.split_last().expect("there are members");
        group.bridge.plug(*alone, false)?;
        group.viewed(others, others.len(), 4 * DEFAULT_DETECT + FORMATION_MAX)?;
        group.viewed(&[*alone], 1, 4 * DEFAULT_DETECT + FORMATION_MAX)?;
        let healed = monotonic_nanos();
        group.bridge.plug(*alone, true)?;
        let merged = group.viewed(&all, MEMBERS, 10 * DEFAULT_DETECT)?;
        took.push(merged.saturating_sub(healed) as f64 / 1e9);
    }
    let worst = took.iter().copied().fold(0.0, f64::max);
    let what = format!("heal to one view of all / default detect, {} ms", DEFAULT_DETECT.as_millis());
    let row = Row::new(AREA, "ord-merge", what, "ratio", Goal::AtMost(2.0)).part("median s", median(&took));
    let how = format!(
        "median of {runs} runs, order=total, one of {MEMBERS} was alone until both sides had views of their own, bridge of \
         namespaces"
    );
    Ok(vec![row.part("worst s", worst).measured(median(&took) / DEFAULT_DETECT.as_secs_f64(), how)])
}

/// Who holds the keys.
#[derive(Clone, Copy)]
enum Keys {
    Contributory,
    Center,
}

/// Processes of one group with an order, one a namespace.
struct Group {
    members: Vec<Player>,
    names: Vec<String>,
    /// When each installed its newest view, which, and of how many.
    views: Vec<Option<(u64, String, usize)>>,
    bridge: Bridge,
    _identities: Option<Arc<Identities>>,
    _centre: Option<(Running, Registry)>,
}

impl Group {
    /// All members, once they have one view.
    fn start(keys: Keys, options: &str) -> Result<Group, Failure> {
        let bridge = Bridge::new(MEMBERS + 1)?;
        let mut url = format!("udpm://{ADDRESS}?ttl=1&group=lab&order=total");
        if !options.is_empty() {
            url = format!("{url}&{options}");
        }
        let (identities, centre) = match keys {
            Keys::Contributory => (Some(Arc::new(Identities::new(MEMBERS)?)), None),
            Keys::Center => {
                let registry = Registry::new()?;
                registry.keep(MEMBERS)?;
                // It has the last namespace.
                let within = bridge.command(MEMBERS, beside("sealcast")?);
                let running = registry.run(Some(within), &format!("{}:7680", Bridge::address_of(MEMBERS)))?;
                url = format!("{url}&keys=center&kdc={}", running.address);
                (None, Some((running, registry)))
            }
        };
        let home = match (&identities, &centre) {
            (Some(all), _) => all.home(),
            (None, Some((_, registry))) => registry.home(),
            (None, None) => return Err("a group needs identities".into()),
        };
        let names: Vec<String> = (0..MEMBERS).map(|i| format!("robot{i}")).collect();
        let mut members = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let mut command = bridge.command(i, std::env::current_exe()?);
            command.args(["role", "member", &url, "--identity", name, "--home"]).arg(home);
            let mut member = Player::start(&mut command)?;
            member.ready()?;
            member.tell("open")?;
            members.push(member);
        }
        let views = vec![None; MEMBERS];
        let mut group = Group { members, names, views, bridge, _identities: identities, _centre: centre };
        let all: Vec<usize> = (0..MEMBERS).collect();
        group.viewed(&all, MEMBERS, FORMATION_MAX)?;
        Ok(group)
    }

    /// When the last of these installed one view of this size, nanoseconds of the monotonic clock.
    fn viewed(&mut self, which: &[usize], size: usize, within: Duration) -> Result<u64, Failure> {
        let until = Instant::now() + within;
        loop {
            for at in which {
                while let Some(line) = self.members[*at].hear_for(Duration::from_millis(1))? {
                    if let ["view", when, epoch, members] = line.split_whitespace().collect::<Vec<_>>()[..] {
                        self.views[*at] = Some((when.parse()?, epoch.to_owned(), members.parse()?));
                    }
                }
            }
            let views: Vec<_> = which.iter().filter_map(|at| self.views[*at].as_ref()).collect();
            let epochs: BTreeSet<&str> = views.iter().map(|it| &*it.1).collect();
            if views.len() == which.len() && epochs.len() == 1 && views.iter().all(|it| it.2 == size) {
                return Ok(views.iter().map(|it| it.0).max().unwrap_or_default());
            }
            if Instant::now() > until {
                return Err(format!("no view of {size} within {within:?}: {:?}", self.views).into());
            }
        }
    }

    /// Which is the first member of the view: with keys from a centre, that one leads.
    fn first_member(&mut self) -> Result<usize, Failure> {
        self.members[0].tell("first")?;
        let name = answer(&self.members[0], "first", FORMATION_MAX)?;
        Ok(self.names.iter().position(|it| *it == name).ok_or("who is first is no member")?)
    }

    /// Which member orders, once all say the same for a while.
    fn sequencer(&mut self) -> Result<usize, Failure> {
        let until = Instant::now() + FORMATION_MAX;
        let (mut agreed, mut last) = (0, None);
        while agreed < 10 {
            let mut said = BTreeSet::new();
            for member in &mut self.members {
                member.tell("sequencer")?;
                said.insert(answer(member, "sequencer", FORMATION_MAX)?);
            }
            let one = said.pop_first().filter(|it| said.is_empty() && !it.is_empty());
            agreed = if one.is_some() && one == last { agreed + 1 } else { 0 };
            last = one;
            if Instant::now() > until {
                return Err("no member orders".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let name = last.unwrap_or_default();
        Ok(self.names.iter().position(|it| *it == name).ok_or("who orders is no member")?)
    }
}

/// What a member says after this word; views that it tells meanwhile are passed over.
fn answer(member: &Player, word: &str, within: Duration) -> Result<String, Failure> {
    let until = Instant::now() + within;
    loop {
        let line = member.hear_for(until.saturating_duration_since(Instant::now()))?;
        let line = line.ok_or_else(|| format!("a member does not say '{word}'"))?;
        if let Some(rest) = line.strip_prefix(word) {
            return Ok(rest.trim().to_owned());
        }
    }
}

/// What a fast failover is measured with (B9).
const DETECT: Duration = Duration::from_millis(75);
const DEFAULT_DETECT: Duration = sealcast_wire::limits::DETECT_ORDERED;
const ADDRESS: &str = "239.255.76.67:7667";
/// Each member publishes as often, for so long.
const PUBLISH_MILLIS: u64 = 5;
const PUBLISHING: Duration = Duration::from_secs(3);
const BEFORE_CRASH: Duration = Duration::from_millis(700);
const FORMATION_MAX: Duration = Duration::from_secs(20);
