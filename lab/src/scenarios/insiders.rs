//! Stories of a group on a LAN that one holder of a certificate attacks: it shall neither crash, capture nor split it.

use std::collections::BTreeSet;
use std::time::Duration;

use sealcast_keys::Command;
use sealcast_keys::contributory::misbehaving::{Claim, Lie};
use sealcast_sim::dice::Dice;
use sealcast_wire::limits;

use super::lan::{SECOND, TIMEOUT, all_publish, busy, network, without};
use super::script::{Knobs, Script, Step};
use crate::misbehaviour::Misbehaviour;

/// All JOINs of a group that starts are answered by a proposal on an epoch of the greatest number; then its author goes.
pub(super) fn claimed_number(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let liar = n - 1;
    let honest = without(n, &[liar]);
    let mut script = Script::new(n, network(knobs));
    let claim = [Claim::After(u32::MAX - 3), Claim::After(u32::MAX), Claim::After(1 << 20), Claim::First];
    let captor = Misbehaviour::Captor { target: None, claim: claim[dice.index(claim.len())] };
    script.then(Step::Imposter(liar, captor)).start_all(0..n, knobs.jitter, dice);
    script.then(Step::Together { members: honest.clone(), within: TIMEOUT });
    all_publish(&mut script, honest.iter().copied(), 20, 10 * SECOND);
    script.wait(SECOND).then(Step::Evict { by: 0, whom: liar });
    // It may be about to join: whoever evicts it lets it in no more, and the others once they heard so.
    script.then(Step::Never { members: BTreeSet::from([0]), whom: liar }).wait(SECOND);
    script.converge(honest.clone(), TIMEOUT).then(Step::Never { members: honest.clone(), whom: liar });
    script.wait(SECOND).then(Step::Command(1, Command::Leave)).then(Step::Out { member: 1, within: TIMEOUT });
    script.converge(without(n, &[liar, 1]), TIMEOUT);
    script
}

/// Each run of a member that joins and leaves says that it comes from an epoch far ahead.
pub(super) fn climber(knobs: &Knobs, dice: &mut Dice) -> Script {
    churn(knobs, dice, Some(limits::FIRST_COUNTER_MAX - 1), 10 * SECOND)
}

/// A member joins, wants new keys, and leaves without end; nothing that others publish is lost.
pub(super) fn churner(knobs: &Knobs, dice: &mut Dice) -> Script {
    churn(knobs, dice, None, 10 * SECOND)
}

fn churn(knobs: &Knobs, dice: &mut Dice, ahead: Option<u32>, lasting: Duration) -> Script {
    let n = knobs.members;
    let liar = n - 1;
    let honest = without(n, &[liar]);
    let mut script = Script::new(n, network(knobs));
    script.lossless = knobs.loss.0 == 0;
    script.start_all(honest.iter().copied(), knobs.jitter, dice);
    script.then(Step::Together { members: honest.clone(), within: TIMEOUT });
    all_publish(&mut script, honest.iter().copied().take(4), 50, lasting + SECOND);
    script.then(Step::Majority(honest.clone()));
    script.then(Step::Imposter(liar, Misbehaviour::Churner { ahead })).then(Step::Start(liar)).wait(lasting);
    // As often as it may join, and a leave each; what it asks for by its own proposals is limited by what they cost it.
    let joins = limits::JOINS_AT_ONCE + (lasting.as_millis() / limits::JOIN_EVERY.as_millis()) as u32;
    script.then(Step::Number {
        members: honest.clone(),
        at_most: 20 + 2 * joins + REKEYS_A_SECOND * lasting.as_secs() as u32,
    });
    silent(&mut script, liar, honest);
    script
}

/// A member joins and leaves as often as it can, each time as another process; whatever the others publish arrives.
pub(super) fn visitor(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let liar = n - 1;
    let honest = without(n, &[liar]);
    let mut script = busy(knobs, dice, liar);
    for _ in 0..VISITS {
        script.then(Step::Start(liar)).wait(dice.between(SECOND / 40, SECOND / 25));
        script.then(Step::Command(liar, Command::Leave)).wait(dice.between(SECOND / 200, SECOND / 50));
        script.then(Step::Crash(liar));
    }
    script.wait(SECOND).converge(honest, TIMEOUT);
    script
}

/// Whoever joins a group is asked by somebody else at the same time.
pub(super) fn captor(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let (newcomer, captor) = (n - 2, n - 1);
    let (group, honest) = (without(n, &[newcomer, captor]), without(n, &[captor]));
    let mut script = Script::new(n, network(knobs));
    script.start_all(group.iter().copied(), knobs.jitter, dice);
    script.then(Step::Together { members: group, within: TIMEOUT }).wait(SECOND);
    all_publish(&mut script, 0..=newcomer, 20, 5 * SECOND);
    start_captor(&mut script, captor, newcomer, dice);
    script.then(Step::Start(newcomer)).converge(honest.clone(), 2 * limits::DETECT);
    script.wait(2 * SECOND);
    silent(&mut script, captor, honest);
    script
}

/// A member that was off while another one was evicted comes back, and that one is the first to answer it.
pub(super) fn evicted_captor(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let (away, captor) = (n - 2, n - 1);
    let (group, honest) = (without(n, &[away, captor]), without(n, &[captor]));
    let mut script = Script::new(n, network(knobs));
    script.start_all(0..n, knobs.jitter, dice).then(Step::Together { members: (0..n).collect(), within: TIMEOUT });
    script.then(Step::Crash(away)).converge(without(n, &[away]), TIMEOUT);
    script.then(Step::Evict { by: 0, whom: captor }).converge(group, TIMEOUT);
    script.then(Step::Out { member: captor, within: TIMEOUT }).then(Step::Crash(captor)).wait(SECOND);
    script.then(Step::Never { members: honest.clone(), whom: captor }).then(Step::Deaf(captor));
    start_captor(&mut script, captor, away, dice);
    script.then(Step::Start(away));
    all_publish(&mut script, honest.iter().copied(), 50, 5 * SECOND);
    script.converge(honest.clone(), 2 * limits::DETECT);
    script.wait(2 * SECOND);
    silent(&mut script, captor, honest);
    script
}

/// With nobody else up a newcomer believes its captor, and comes to the group once that one is silent.
pub(super) fn captured(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let (newcomer, captor) = (n - 2, n - 1);
    let (group, honest) = (without(n, &[newcomer, captor]), without(n, &[captor]));
    let mut script = Script::new(n, network(knobs));
    script.start_all(group.iter().copied(), knobs.jitter, dice);
    script.then(Step::Together { members: group.clone(), within: TIMEOUT });
    all_publish(&mut script, group, 20, 15 * SECOND);
    script.then(Step::Partition(vec![vec![newcomer, captor]]));
    start_captor(&mut script, captor, newcomer, dice);
    script.then(Step::Start(newcomer)).wait(3 * SECOND);
    script.then(Step::Heal);
    silent(&mut script, captor, honest);
    script
}

fn start_captor(script: &mut Script, captor: usize, target: usize, dice: &mut Dice) {
    let claim = [Claim::After(u32::MAX - 3), Claim::After(1 << 20), Claim::First][dice.index(3)];
    script.then(Step::Imposter(captor, Misbehaviour::Captor { target: Some(target), claim }));
    script.then(Step::Start(captor)).wait(dice.between(Duration::ZERO, SECOND));
}

/// A member says the truth to one of the others, and a lie to the rest.
pub(super) fn splitter(knobs: &Knobs, dice: &mut Dice) -> Script {
    let lies = [Lie::Contribution, Lie::Heard, Lie::Share, Lie::Confirmation, Lie::Epoch];
    let lie = lies[dice.index(lies.len())];
    let n = knobs.members;
    split(knobs, dice, lie, n - 1)
}

/// The same with another hash of what was heard in R2.
pub(super) fn splitter_heard(knobs: &Knobs, dice: &mut Dice) -> Script {
    split(knobs, dice, Lie::Heard, knobs.members - 1)
}

/// The same with a share in R2 that is none.
pub(super) fn splitter_share(knobs: &Knobs, dice: &mut Dice) -> Script {
    split(knobs, dice, Lie::Share, knobs.members - 1)
}

/// The same with a confirmation of another key.
pub(super) fn splitter_confirmation(knobs: &Knobs, dice: &mut Dice) -> Script {
    split(knobs, dice, Lie::Confirmation, knobs.members - 1)
}

/// A reader says another key to those who write and do not read than the other readers do.
pub(super) fn wrong_publics(knobs: &Knobs, dice: &mut Dice) -> Script {
    split(knobs, dice, Lie::Publics, knobs.members)
}

fn split(knobs: &Knobs, dice: &mut Dice, lie: Lie, told_truth_below: usize) -> Script {
    let n = knobs.members;
    let liar = n - 1;
    let honest = without(n, &[liar]);
    let told_truth = if told_truth_below < n { dice.index(told_truth_below) } else { n };
    let mut script = Script::new(n, network(knobs));
    script.lossless = knobs.loss.0 == 0;
    let publishers = if lie == Lie::Publics { BTreeSet::from([SENSOR]) } else { honest.clone() };
    script.then(Step::Imposter(liar, Misbehaviour::Splitter { lie, told_truth, members: n }));
    script.start_all(0..n, knobs.jitter, dice).then(Step::Together { members: (0..n - 1).collect(), within: TIMEOUT });
    script.wait(SECOND).then(Step::Together { members: honest.clone(), within: TIMEOUT });
    all_publish(&mut script, publishers, 20, 6 * SECOND);
    script.then(Step::Majority(honest.clone())).then(Step::Command(0, Command::Rotate));
    let by = if lie == Lie::Publics { readers(&honest) } else { honest.clone() };
    script.then(Step::Named { by, whom: liar, within: 4 * SECOND }).wait(4 * SECOND);
    script.then(Step::Together { members: honest.clone(), within: 2 * limits::DETECT });
    silent(&mut script, liar, honest);
    script
}

/// Who misbehaves falls silent: nobody is captured or split off when two times of detection have gone by.
fn silent(script: &mut Script, liar: usize, honest: BTreeSet<usize>) {
    script.then(Step::Stop(liar)).wait(2 * limits::DETECT).then(Step::Majority(honest.clone()));
    script.converge(honest, TIMEOUT).wait(SECOND);
}

/// Who reads, where [`SENSOR`] only writes.
fn readers(honest: &BTreeSet<usize>) -> BTreeSet<usize> {
    honest.iter().copied().filter(|m| *m != SENSOR).collect()
}

/// A certificate has two cards with one short id, and shows each half of the group another one.
pub(super) fn twins(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let liar = n - 1;
    let honest = without(n, &[liar]);
    let mut script = Script::new(n, network(knobs));
    script.start_all(honest.iter().copied(), knobs.jitter, dice);
    script.then(Step::Together { members: honest.clone(), within: TIMEOUT }).wait(dice.between(Duration::ZERO, SECOND));
    all_publish(&mut script, honest.iter().copied(), 20, 6 * SECOND);
    script.then(Step::Majority(honest.clone()));
    script.then(Step::Imposter(liar, Misbehaviour::Twin { members: n })).then(Step::Start(liar));
    script.then(Step::Named { by: honest.clone(), whom: liar, within: 6 * SECOND });
    script.converge(honest.clone(), 2 * limits::DETECT);
    silent(&mut script, liar, honest);
    script
}

/// The member that only writes, where there is one.
pub(super) const SENSOR: usize = 1;
/// Joins and leaves of a visitor; some 20 come in a second.
const VISITS: usize = 24;
/// New keys that one holder of a certificate brings about in a second, beside those of its joins and leaves: 12 by proposals
/// and 10 by JOINs in ten seconds.
const REKEYS_A_SECOND: u32 = 3;
