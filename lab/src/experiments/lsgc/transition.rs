//! LSGC, Sec. 2.2: what becomes of best-effort messages while a new key reaches one member after the other.
//!
//! The paper names four strategies and takes the first: to *drop* what comes under a key that is not there (or not there any
//! more), to *buffer* it, to go on with the old key for a *waiting period*, to send under *both keys* for such a period. Ours is
//! none of these: senders queue from the moment an exclusion is coming, receivers hold what is early, and what was sealed last
//! under the old key is vouched for (A5).
//!
//! Ours is measured in groups that run. The others are computed from the same runs: the moments at which each member was asked
//! to publish, and at which it got the key; each copy takes as long as one on that network.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};
use sealcast_sim::network::Network;
use sealcast_wire::{Guarantee, Monotonic};

use super::group::{Group, Seen};
use crate::Failure;
use crate::experiments::{Lab, Verdict};
use crate::figures::{Holds, number};
use crate::plots::{Bars, Table};

/// Who stays; one more comes or goes.
const STAY: usize = 7;
const MESSAGE_BYTES: usize = 1_000;
/// Between two messages of one member.
const EVERY: Duration = Duration::from_millis(1);
const BEFORE: Duration = Duration::from_millis(100);
const AFTER: Duration = Duration::from_millis(400);
/// How long the old key goes on, or both do: the paper says no number.
const PERIOD: Duration = Duration::from_millis(50);
/// The network's, [`Network::quiet`].
const DELAY_MIN: Duration = Duration::from_micros(50);
const DELAY_MAX: Duration = Duration::from_micros(300);
/// What takes longer was delayed by the change.
const DELAYED: Duration = Duration::from_micros(400);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Join,
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Strategy {
    Drop,
    Buffer,
    Wait,
    BothKeys,
    Ours,
}

/// One number of a change.
type Measure = fn(&Fate) -> f64;

/// What became of the messages at one change.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    /// Deliveries to who stays that never came.
    lost: u64,
    /// Those that came late.
    delayed: u64,
    /// What the latest delivery took, ms.
    latest: f64,
    /// Messages of members that had it in their view, with the key, which the newcomer cannot read.
    unread: u64,
    /// Messages sealed under the old key after the first member had the new one: who left can read them.
    exposed: u64,
    /// Copies under a second key.
    copies: u64,
}

/// The runs of one change: what was asked for, and when each member had the new key.
struct Run {
    published: Vec<(Monotonic, usize)>,
    keyed: BTreeMap<usize, Monotonic>,
    rng: ChaCha20Rng,
}

impl Change {
    const ALL: [Change; 2] = [Change::Join, Change::Leave];

    fn name(self) -> &'static str {
        match self {
            Change::Join => "join",
            Change::Leave => "leave",
        }
    }
}

impl Strategy {
    const ALL: [Strategy; 5] = [Strategy::Drop, Strategy::Buffer, Strategy::Wait, Strategy::BothKeys, Strategy::Ours];

    fn name(self) -> &'static str {
        match self {
            Strategy::Drop => "drop (LSGC)",
            Strategy::Buffer => "buffer",
            Strategy::Wait => "waiting period",
            Strategy::BothKeys => "both keys",
            Strategy::Ours => "ours",
        }
    }
}

pub(in crate::experiments) fn run(lab: &Lab) -> Result<Vec<Verdict>, Failure> {
    let runs = lab.pick(5, 100);
    lab.bar.set_length(2 * runs);
    let columns = ["change", "strategy", "seed", "lost", "delayed", "latest_ms", "newcomer_lacks", "old_key", "copies"];
    let mut table = Table::new(&columns);
    let mut all: BTreeMap<(Change, Strategy), Vec<Fate>> = BTreeMap::new();
    for change in Change::ALL {
        for seed in lab.seed..lab.seed + runs {
            let (mut run, ours) = play(change, seed)?;
            for strategy in Strategy::ALL {
                let fate = if strategy == Strategy::Ours { ours } else { run.fate(strategy, change) };
                let Fate { lost, delayed, latest, unread, exposed, copies } = fate;
                table.push(&[
                    &change.name(),
                    &strategy.name(),
                    &seed,
                    &lost,
                    &delayed,
                    &latest,
                    &unread,
                    &exposed,
                    &copies,
                ]);
                all.entry((change, strategy)).or_default().push(fate);
            }
            lab.bar.inc(1);
        }
    }
    lab.wrote(&table.write(&lab.out, "lsgc-transition")?);
    let mean = |change, strategy, of: Measure| {
        let fates = &all[&(change, strategy)];
        fates.iter().map(of).sum::<f64>() / fates.len() as f64
    };
    let bars = |of: Measure| {
        let each = Change::ALL.into_iter().flat_map(|change| Strategy::ALL.map(|strategy| (change, strategy)));
        each.map(|(change, it)| (format!("{}: {}", change.name(), it.name()), mean(change, it, of))).collect()
    };
    let charts: [(&str, &str, &str, Measure); 3] = [
        ("lost", "Best-effort messages lost to those who stay", "deliveries a change, mean", |it| it.lost as f64),
        ("delayed", "From publishing to the latest delivery of a change", "ms, mean", |it| it.latest),
        ("old-key", "Sealed under the old key after the first had the new one", "messages a change, mean", |it| {
            it.exposed as f64
        }),
    ];
    for (name, title, y, of) in charts {
        lab.wrote(&Bars { title, y, bars: bars(of) }.write(&lab.out, &format!("lsgc-transition-{name}"))?);
    }
    let both = |strategy, of: Measure| Change::ALL.map(|change| number(mean(change, strategy, of))).join(" and ");
    let most =
        |of: Measure| Change::ALL.into_iter().flat_map(|it| &all[&(it, Strategy::Ours)]).map(of).fold(0.0, f64::max);
    Ok(vec![
        Verdict {
            claim: "A5: ours loses no message at a join or a leave".into(),
            holds: Holds::of(most(|it| (it.lost + it.unread) as f64) == 0.0),
            seen: format!("{} at most in {runs} runs of each", number(most(|it| (it.lost + it.unread) as f64))),
        },
        Verdict {
            claim: "A5: once anybody has the new key, ours seals nothing under the old one at a leave".into(),
            holds: Holds::of(mean(Change::Leave, Strategy::Ours, |it| it.exposed as f64) == 0.0),
            seen: format!("{} messages a leave", number(mean(Change::Leave, Strategy::Ours, |it| it.exposed as f64))),
        },
        Verdict {
            claim: "the price: the latest message at a join and a leave comes within 50 ms".into(),
            holds: Holds::of(most(|it| it.latest) <= 50.0),
            seen: format!(
                "{} ms in the mean, at most {}",
                both(Strategy::Ours, |it| it.latest),
                number(most(|it| it.latest))
            ),
        },
        Verdict {
            claim: "LSGC Sec. 2.2: on a LAN dropping loses little".into(),
            holds: Holds::Reported,
            seen: format!(
                "{} deliveries at a join and a leave, at {} messages/s",
                both(Strategy::Drop, |it| it.lost as f64),
                STAY * 1_000
            ),
        },
        Verdict {
            claim: "LSGC Sec. 2.2: a waiting period keeps the newcomer out, and lets who left read on".into(),
            holds: Holds::Reported,
            seen: format!(
                "{} messages that the newcomer lacks, {} under the old key at a leave, in {} ms",
                number(mean(Change::Join, Strategy::Wait, |it| it.unread as f64)),
                number(mean(Change::Leave, Strategy::Wait, |it| it.exposed as f64)),
                PERIOD.as_millis()
            ),
        },
    ])
}

/// Plays one change under traffic; what became of it with ours.
fn play(change: Change, seed: u64) -> Result<(Run, Fate), Failure> {
    let mut group = Group::new(STAY + 1, Network::quiet(), seed);
    let before = if change == Change::Join { STAY } else { STAY + 1 };
    (0..before).for_each(|member| group.start(member));
    group.meet(before)?;
    group.rest(Duration::from_millis(500));
    group.seen.forget();
    let (mut sent, mut changed) = (0, false);
    let (began, step) = (group.now(), EVERY / STAY as u32);
    while group.now().since(began) < BEFORE + AFTER {
        if !changed && group.now().since(began) >= BEFORE {
            changed = true;
            match change {
                Change::Join => group.start(STAY),
                Change::Leave => group.leave(STAY),
            }
        }
        group.publish((sent % STAY as u64) as usize, sent, MESSAGE_BYTES, Guarantee::BestEffort);
        sent += 1;
        group.rest(step);
    }
    group.rest(Duration::from_secs(1));
    let seen = &group.seen;
    // The view that all who are there came to last.
    let (_, _, last) = *seen.installed.last().ok_or("nobody took a view")?;
    let of_last = seen.installed.iter().filter(|(_, _, epoch)| *epoch == last);
    let keyed: BTreeMap<usize, Monotonic> = of_last.map(|(at, node, _)| (*node, *at)).collect();
    if !(0..STAY).all(|it| keyed.contains_key(&it)) {
        return Err(format!("seed {seed}: not all who stay have the last view").into());
    }
    let ours = ours(seen, &keyed, change);
    let published = seen.published.iter().map(|(at, body)| (*at, body.author as usize)).collect();
    Ok((Run { published, keyed, rng: ChaCha20Rng::seed_from_u64(seed) }, ours))
}

fn ours(seen: &Seen, keyed: &BTreeMap<usize, Monotonic>, change: Change) -> Fate {
    let mut fate = Fate::default();
    let came: BTreeMap<(usize, u64), Monotonic> =
        seen.delivered.iter().map(|(at, node, body)| ((*node, body.number), *at)).collect();
    for (asked, body) in &seen.published {
        for receiver in (0..STAY).filter(|it| *it != body.author as usize) {
            fate.take(came.get(&(receiver, body.number)).map(|at| at.since(*asked)));
        }
        let newcomer = keyed.get(&STAY).filter(|_| change == Change::Join);
        // What left before both had the key was not for it.
        let is_for_it = newcomer.is_some_and(|at| asked >= at && *asked >= keyed[&(body.author as usize)]);
        fate.unread += u64::from(is_for_it && !came.contains_key(&(STAY, body.number)));
    }
    let first = keyed.values().min().copied().unwrap_or_default();
    let before: BTreeSet<_> = seen.sealed.iter().filter(|(at, _)| *at < first).map(|(_, epoch)| *epoch).collect();
    let late = seen.sealed.iter().filter(|(at, epoch)| *at > first && before.contains(epoch));
    fate.exposed = late.count() as u64;
    fate
}

impl Run {
    /// The same messages and keys under a strategy of the paper's.
    fn fate(&mut self, strategy: Strategy, change: Change) -> Fate {
        let mut fate = Fate::default();
        let first = self.keyed.values().min().copied().unwrap_or_default();
        let newcomer = self.keyed.get(&STAY).copied().filter(|_| change == Change::Join);
        for (at, by) in self.published.clone() {
            let mine = self.keyed[&by];
            let old = at < if strategy == Strategy::Wait { mine + PERIOD } else { mine };
            let twice = strategy == Strategy::BothKeys && !old && at < mine + PERIOD;
            fate.copies += u64::from(twice);
            fate.exposed += u64::from((old || twice) && at > first);
            for receiver in (0..STAY).filter(|it| *it != by) {
                let arrives = at + self.delay();
                let keyed = self.keyed[&receiver];
                let has_key = arrives >= keyed;
                fate.take(match strategy {
                    Strategy::Drop if old == has_key => None,
                    Strategy::Buffer if old && has_key => None,
                    Strategy::Buffer if !old && !has_key => Some(keyed.since(at)),
                    // Both keys are there for a period on each side, longer than keys take to come.
                    Strategy::Wait if !old && !has_key => None,
                    Strategy::BothKeys if !old && !has_key && !twice => None,
                    _ => Some(arrives.since(at)),
                });
            }
            fate.unread += u64::from(old && at >= mine && newcomer.is_some_and(|has| at >= has));
        }
        fate
    }

    fn delay(&mut self) -> Duration {
        let spread = (DELAY_MAX - DELAY_MIN).as_micros() as u64;
        DELAY_MIN + Duration::from_micros(self.rng.next_u64() % (spread + 1))
    }
}

impl Fate {
    /// A delivery that took so long, or never came.
    fn take(&mut self, took: Option<Duration>) {
        match took {
            None => self.lost += 1,
            Some(took) => {
                self.delayed += u64::from(took > DELAYED);
                self.latest = self.latest.max(took.as_secs_f64() * 1e3);
            }
        }
    }
}
