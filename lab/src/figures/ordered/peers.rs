//! Messages per second beside other systems whose multicast loses nothing, and changes of the group beside JGroups'.

use std::time::{Duration, Instant};

use sealcast::session::Identity;
use sealcast::{Session, Subscription};

use super::members::Group;
use super::{AREA, MEMBERS};
use crate::Failure;
use crate::figures::{Bench, Goal, Holds, Row, median};
use crate::netns::Bridge;
use crate::peers::centre::Registry;
use crate::peers::multicast::{Changes, JGROUPS_BUNDLES, System, steady};

/// Ours beside the best of others.
struct Beside {
    id: &'static str,
    what: &'static str,
    goal: Goal,
    ours: System,
    others: &'static [System],
}

const BESIDE: &[Beside] = &[
    Beside {
        id: "ord-jgroups",
        what: "sealed ordered / JGroups SYM_ENCRYPT, not ordered",
        goal: Goal::AtLeast(5.0),
        ours: System::Ordered,
        others: &[
            System::JGroups { bundle: JGROUPS_BUNDLES[0], sealed: true },
            System::JGroups { bundle: JGROUPS_BUNDLES[1], sealed: true },
        ],
    },
    Beside {
        id: "ord-aeron",
        what: "sealed fifo / Aeron, in clear",
        goal: Goal::AtLeast(2.0),
        ours: System::Fifo,
        others: &[System::Aeron],
    },
    Beside {
        id: "ord-norm",
        what: "sealed fifo / NORM, in clear",
        goal: Goal::Report,
        ours: System::Fifo,
        others: &[System::Norm],
    },
];

pub(in crate::figures) const PEERS: &[&str] = &["ord-jgroups", "ord-aeron", "ord-norm"];

/// Ours and theirs, in turn.
pub(in crate::figures) fn peers(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let (turns, seconds) = bench.pick((1, 2), (3, 5));
    let bridge = Bridge::new(MEMBERS)?;
    let rows = BESIDE.iter().filter(|it| bench.wants(it.id));
    let row = |it: &Beside| {
        let row = Row::new(AREA, it.id, format!("{}, 1 KB, 1 -> 3", it.what), "ratio", it.goal);
        let version = match it.others[0].version() {
            Ok(version) => version,
            Err(why) => return row.absent(Holds::NotRun, why.to_string()),
        };
        let mut rates = vec![vec![]; it.others.len() + 1];
        for _ in 0..turns {
            for (system, into) in [it.ours].iter().chain(it.others).zip(&mut rates) {
                bench.bar.tick();
                match steady(&bridge, *system, 1_000, Duration::from_secs(seconds)) {
                    Ok(rate) => into.push(rate),
                    Err(why) => return row.absent(Holds::No, format!("{}: {why}", system.name())),
                }
            }
        }
        let rates: Vec<f64> = rates.iter().map(|it| median(it)).collect();
        let mut row = row.part(format!("{} msg/s", it.ours.name()), rates[0]);
        for (system, rate) in it.others.iter().zip(&rates[1..]) {
            row = row.part(format!("{} msg/s", system.name()), *rate);
        }
        let best = rates[1..].iter().copied().fold(0.0, f64::max);
        let how = format!(
            "{version}; messages at the slowest receiver, as fast as each takes them, medians of {turns} turns of {seconds} s \
             after 3 s, bridge of namespaces, MTU 1500, one process each"
        );
        row.measured(rates[0] / best, how)
    };
    Ok(rows.map(row).collect())
}

pub(in crate::figures) const CHANGES: &[&str] = &[JOIN, LEAD];
const JOIN: &str = "ord-join";
const LEAD: &str = "ord-lead";

/// A member that joins sixteen; a leader that leaves sixteen.
pub(in crate::figures) fn changes(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let runs = bench.pick(3, 15);
    let what = [
        (JOIN, format!("one joins {SETTLED}, start to its first message at another / JGroups"), Goal::AtMost(0.55)),
        (LEAD, format!("the leader of {SETTLED} leaves, to the next view at all others / JGroups"), Goal::AtMost(0.3)),
    ];
    let rows = what.map(|(id, what, goal)| Row::new(AREA, id, what, "ratio", goal));
    let version = match (System::JGroups { bundle: JGROUPS_BUNDLES[1], sealed: false }).version() {
        Ok(version) => version,
        Err(why) => return Ok(rows.map(|it| it.absent(Holds::NotRun, why.to_string())).into()),
    };
    let mut theirs = [vec![], vec![]];
    let mut jgroups = Changes::start(SETTLED)?;
    for run in 0..=runs {
        bench.bar.tick();
        let took = [jgroups.join()?, jgroups.lead()?];
        // The first run is the virtual machine's.
        if run > 0 {
            theirs.iter_mut().zip(took).for_each(|(all, it)| all.push(it.as_secs_f64() * 1e3));
        }
    }
    drop(jgroups);
    let (mut ours, mut viewed) = ([vec![], vec![]], vec![]);
    let mut group = Changing::start(bench)?;
    for _ in 0..runs {
        bench.bar.tick();
        let [first, view] = group.join()?;
        let took = [first, group.lead()?];
        ours.iter_mut().zip(took).for_each(|(all, it)| all.push(it.as_secs_f64() * 1e3));
        viewed.push(view.as_secs_f64() * 1e3);
    }
    let how = format!(
        "{version}, in clear; ours keys=center, sealed, with a new key; medians of {runs} runs, all members in one process on \
         loopback"
    );
    let measured = rows.into_iter().zip(ours.iter().zip(&theirs)).map(|(row, (ours, theirs))| {
        let (ours, theirs) = (median(ours), median(theirs));
        let row = if row.id == JOIN { row.part("in the view after ms", median(&viewed)) } else { row };
        row.part("ms", ours).part("JGroups ms", theirs).measured(ours / theirs, &how)
    });
    Ok(measured.collect())
}

/// Sessions around a leader.
struct Changing {
    group: Group,
    registered: Registered,
    /// Who is in the group, by its registration; the last one of these joins and leaves.
    who: Vec<usize>,
}

struct Registered {
    identities: Vec<Identity>,
    _centre: crate::peers::centre::Running,
    _registry: Registry,
}

impl Changing {
    fn start(bench: &Bench) -> Result<Changing, Failure> {
        let registry = Registry::new()?;
        let principals = registry.register(SETTLED + 1)?;
        let identities: Vec<Identity> = principals.into_iter().map(|it| Identity::Principal(it.into())).collect();
        let centre = registry.run(None, "127.0.0.1:0")?;
        let options = format!("keys=center&kdc={}", centre.address);
        let group = Group::open(bench, &options, SETTLED, |i| identities[i].clone(), None)?;
        let registered = Registered { identities, _centre: centre, _registry: registry };
        Ok(Changing { group, registered, who: (0..=SETTLED).collect() })
    }

    /// One more joins and publishes; how long until an older member has that message, and until it is in the view.
    fn join(&mut self) -> Result<[Duration; 2], Failure> {
        let newcomer = self.registered.identities[self.who[SETTLED]].clone();
        let mut older: Subscription = self.group.sessions[0].subscribe("first").wait()?;
        let start = Instant::now();
        let joiner: Session = sealcast::open(&self.group.url).identity(newcomer).wait()?;
        while joiner.view().is_none_or(|it| it.members.len() <= SETTLED) {
            if start.elapsed() > TIMEOUT {
                return Err("who joins is not let in".into());
            }
            std::thread::sleep(POLLED);
        }
        let viewed = start.elapsed();
        drop(joiner.publish("first", [0; 100]).fifo().ticket()?);
        older.next_timeout(TIMEOUT)?.ok_or("the first message did not come")?;
        let took = start.elapsed();
        joiner.close();
        self.group.together(TIMEOUT)?;
        Ok([took, viewed])
    }

    /// The leader leaves; how long until all others have one next view. Somebody takes its place then.
    fn lead(&mut self) -> Result<Duration, Failure> {
        let leads = self.group.leader().ok_or("no session is the first member")?;
        let leader = self.group.sessions.remove(leads);
        let start = Instant::now();
        // It says that it leaves, and then waits for its own threads.
        let leaving = std::thread::spawn(move || leader.close());
        self.group.together(TIMEOUT)?;
        let took = start.elapsed();
        leaving.join().map_err(|_| "closing a session panicked")?;
        let gone = self.who.remove(leads);
        let next = self.who.remove(SETTLED - 1);
        self.who.extend([next, gone]);
        let identity = self.registered.identities[next].clone();
        self.group.sessions.push(sealcast::open(&self.group.url).identity(identity).wait()?);
        self.group.together(TIMEOUT)?;
        Ok(took)
    }
}

/// How many are there before.
const SETTLED: usize = 16;
const POLLED: Duration = Duration::from_micros(50);
const TIMEOUT: Duration = Duration::from_secs(30);
