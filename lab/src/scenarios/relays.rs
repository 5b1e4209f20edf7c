//! MLS groups at a relay that lies: members lose time by it, and never agreement, secrecy, or the truth about who wrote what.

use std::collections::BTreeSet;
use std::time::Duration;

use sealcast_keys::Command;
use sealcast_sim::dice::Dice;
use sealcast_sim::network::Network;

use super::mls::publish;
use super::mocks::admission;
use super::script::{Knobs, Script, Step};
use crate::misbehaviour::{Misbehaviour, RelayLie};

/// The relay signs two logs, and shows one to some members and the other one to the rest; in the end it shows those the first
/// one. The members of the first log learn nothing of it.
pub(super) fn forker(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = with_short_tail(knobs, dice);
    let from = 1 + dice.index(n - 1);
    let (first, second): (BTreeSet<usize>, BTreeSet<usize>) = ((0..from).collect(), (from..n).collect());
    let answers = dice.index(2) == 0;
    all_publish(&mut script, 0..n, 2 * SECOND);
    lies(&mut script, n, RelayLie::Forks { from, lasting: 6 * SECOND, answers });
    script.wait(dice.between(Duration::ZERO, SECOND)).then(Step::Command(from, Command::Rotate));
    // Whom the first log removes goes on in the second one.
    let whom = from + dice.index(n - from);
    let evicts = dice.index(2) == 0;
    script.then(if evicts { Step::Evict { by: 0, whom } } else { Step::Command(0, Command::Rotate) });
    script.wait(2 * SECOND).then(Step::Together { members: first.clone(), within: SECOND });
    script.then(Step::Together { members: second.clone(), within: SECOND });
    if evicts {
        script.then(Step::Never { members: first.clone(), whom });
    }
    script.then(Step::Command(0, Command::Rotate));
    script.then(Step::Blames { members: second, proof: true, within: TIMEOUT });
    all_publish(&mut script, first.iter().copied(), 2 * SECOND);
    script.then(Step::Command(0, Command::Rotate)).wait(SECOND);
    script.then(Step::Together { members: first.clone(), within: TIMEOUT });
    if first.len() > 1 {
        script.then(Step::Hears { members: first, within: SECOND });
    }
    script
}

/// The relay loses what it wrote since a moment, and signs other entries in its place; a member that was away sees those.
pub(super) fn amnesiac(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = with_short_tail(knobs, dice);
    let away = 1 + dice.index(n - 1);
    let others: BTreeSet<usize> = (0..n).filter(|it| *it != away).collect();
    script.then(Step::Crash(away)).then(Step::Crash(n)).wait(dice.between(Duration::ZERO, SECOND)).then(Step::Start(n));
    all_publish(&mut script, others.iter().copied(), SECOND);
    script.then(Step::Command(0, Command::Rotate)).wait(SECOND + dice.between(Duration::ZERO, SECOND));
    script.then(Step::Together { members: others.clone(), within: TIMEOUT });
    lies(&mut script, n, RelayLie::Forgets);
    script.wait(dice.between(Duration::ZERO, SECOND)).then(Step::Start(away));
    all_publish(&mut script, 0..n, 4 * SECOND);
    script.then(Step::Blames { members: others, proof: true, within: TIMEOUT }).wait(SECOND);
    script
}

/// The relay shows some members nothing new, an eviction among it, and takes nothing of theirs; then it does.
pub(super) fn withholder(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = admission(knobs, dice);
    let (from, whom) = (1 + dice.index(n - 1), 1 + dice.index(n - 1));
    let stay = (0..n).filter(|it| *it != whom);
    let told: BTreeSet<usize> = stay.clone().filter(|it| *it < from).collect();
    all_publish(&mut script, 0..n, 4 * SECOND);
    lies(&mut script, n, RelayLie::WithholdsLog { from });
    script.wait(dice.between(Duration::ZERO, SECOND)).then(Step::Evict { by: 0, whom }).wait(2 * SECOND);
    script.then(Step::Never { members: told.clone(), whom }).then(Step::Command(0, Command::Rotate)).wait(SECOND);
    script.then(Step::Together { members: told, within: TIMEOUT });
    lies_no_more(&mut script, n);
    script.converge(stay.clone(), TIMEOUT).then(Step::Out { member: whom, within: TIMEOUT });
    all_publish(&mut script, stay.clone(), SECOND);
    script.then(Step::Hears { members: stay.collect(), within: SECOND });
    script
}

/// The relay gives a newcomer, whom the others let in, neither Welcome nor tree; then it does.
pub(super) fn content_withholder(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = without_last(1, knobs, dice);
    lies(&mut script, n, RelayLie::WithholdsContent { from: n - 1 });
    script.then(Step::Start(n - 1));
    goes_on(&mut script, 0..n - 1, dice);
    lies_no_more(&mut script, n);
    publish(script, n)
}

/// The relay answers, every second time that it matters, by what it knew a while ago.
pub(super) fn rewinder(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = admission(knobs, dice);
    lies(&mut script, n, RelayLie::Rewinds);
    goes_on(&mut script, 0..n, dice);
    let restarted = dice.index(n);
    script.then(Step::Crash(restarted)).wait(dice.between(Duration::ZERO, SECOND)).then(Step::Start(restarted));
    script.then(Step::Blames { members: (0..n).collect(), proof: false, within: TIMEOUT });
    lies_no_more(&mut script, n);
    publish(script, n)
}

/// The relay gives other blobs, key packages and entries than those that it is asked for, every second time.
pub(super) fn swapper(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = without_last(2, knobs, dice);
    lies(&mut script, n, RelayLie::Swaps);
    script.then(Step::Start(n - 2)).then(Step::Start(n - 1));
    goes_on(&mut script, 0..n - 2, dice);
    script.then(Step::Blames { members: [n - 2, n - 1].into(), proof: false, within: TIMEOUT });
    lies_no_more(&mut script, n);
    publish(script, n)
}

/// The relay repeats its responses and announcements, and what members say.
pub(super) fn replayer(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = without_last(1, knobs, dice);
    lies(&mut script, n, RelayLie::Replays);
    script.then(Step::Misbehave(Misbehaviour::Replayer)).then(Step::Start(n - 1));
    goes_on(&mut script, 0..n - 1, dice);
    lies_no_more(&mut script, n);
    publish(script, n)
}

/// A former member floods the log with names by the joiner key and by those that it names itself: members evict one more, change
/// keys and publish, by keys of their epochs.
pub(super) fn flooded(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = admission(knobs, dice);
    // By then all have appended something, and named the key of their epoch.
    goes_on(&mut script, 0..n, dice);
    lies(&mut script, n, RelayLie::IsFlooded);
    let whom = 1 + dice.index(n - 1);
    script.wait(dice.between(Duration::ZERO, 2 * SECOND)).then(Step::Evict { by: 0, whom });
    let stay = (0..n).filter(|it| *it != whom);
    script.then(Step::Out { member: whom, within: 8 * SECOND });
    all_publish(&mut script, stay.clone(), 3 * SECOND);
    for member in stay.clone() {
        script.then(Step::Command(member, Command::Rotate)).wait(dice.between(Duration::ZERO, SECOND));
    }
    script.wait(SECOND).then(Step::Together { members: stay.clone().collect(), within: 8 * SECOND });
    let restarted = stay.clone().nth(dice.index(n - 1)).expect("they are n - 1");
    script.then(Step::Crash(restarted)).wait(dice.between(Duration::ZERO, SECOND)).then(Step::Start(restarted));
    script.converge(stay.clone(), 8 * SECOND);
    all_publish(&mut script, stay.clone(), SECOND);
    script.then(Step::Hears { members: stay.collect(), within: SECOND });
    script
}

/// All are together, and what they published is in the log: fewer entries follow than a receipt is compared with
/// (`RELAY_LINKS_MAX`), beyond which a fork is a rollback without evidence.
fn with_short_tail(knobs: &Knobs, dice: &mut Dice) -> Script {
    let mut script = admission(knobs, dice);
    script.wait(4 * SECOND);
    script
}

/// All but the last ones are together.
fn without_last(count: usize, knobs: &Knobs, dice: &mut Dice) -> Script {
    let (n, first) = (knobs.members, 0..knobs.members - count);
    let mut script = Script::new(n, Network::rough(knobs.loss));
    script.start_all(first.clone(), knobs.jitter, dice).converge(first, TIMEOUT);
    script
}

/// These change keys and publish, and stay together.
fn goes_on(script: &mut Script, members: std::ops::Range<usize>, dice: &mut Dice) {
    all_publish(script, members.clone(), 3 * SECOND);
    for member in members.clone() {
        script.then(Step::Command(member, Command::Rotate)).wait(dice.between(Duration::ZERO, SECOND));
    }
    script.wait(SECOND).then(Step::Together { members: members.collect(), within: TIMEOUT });
}

fn all_publish(script: &mut Script, by: impl IntoIterator<Item = usize>, lasting: Duration) {
    script.then(Step::Traffic { by: by.into_iter().collect(), rate: 10, bytes: 100, lasting });
}

/// The relay's process ends, and comes back as one that lies.
fn lies(script: &mut Script, relay: usize, lie: RelayLie) {
    script.then(Step::Crash(relay)).then(Step::Imposter(relay, Misbehaviour::FalseRelay(lie))).then(Step::Start(relay));
}

/// It comes back as ours.
fn lies_no_more(script: &mut Script, relay: usize) {
    script.then(Step::Crash(relay)).then(Step::Honest(relay)).then(Step::Start(relay));
}

const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(60);
