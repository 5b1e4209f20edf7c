//! Stories of a group that a member leads, with keys from a centre: leaders die, part and lie, and so does the centre.
//!
//! Whoever comes first leads, and stands by in the order in which it came. The centre's node is the one behind the members.

use std::time::Duration;

use sealcast_keys::Command;
use sealcast_sim::dice::Dice;
use sealcast_wire::limits;

use super::lan::{SECOND, TIMEOUT, all_publish, network, without};
use super::script::{Knobs, Script, Step};
use crate::misbehaviour::{CenterLie, KdcLie, Misbehaviour, OrderLie};

/// Members come in order, so that it is known who leads; stand-bys have all keys when they all are there.
fn in_order(knobs: &Knobs, members: usize) -> Script {
    let mut script = Script::new(knobs.members, network(knobs));
    for member in 0..members {
        script.then(Step::Start(member)).converge(0..=member, TIMEOUT);
    }
    script.wait(3 * SECOND / 2);
    script
}

/// The leader dies; a stand-by leads on, and takes it in again when it comes back.
pub(super) fn killed(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = in_order(knobs, n);
    all_publish(&mut script, 0..n, 50, 6 * SECOND);
    script.wait(dice.between(Duration::ZERO, SECOND)).then(Step::Crash(0));
    script.converge(without(n, &[0]), TIMEOUT).wait(dice.between(Duration::ZERO, SECOND));
    script.then(Step::Start(0)).converge(0..n, TIMEOUT).wait(SECOND);
    script
}

/// The leader dies, and while or after a stand-by takes over, this one dies, too.
pub(super) fn double_failover(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = in_order(knobs, n);
    all_publish(&mut script, 0..n, 50, 8 * SECOND);
    script.wait(dice.between(Duration::ZERO, SECOND)).then(Step::Crash(0));
    script.wait(dice.between(Duration::ZERO, 2 * SECOND)).then(Step::Crash(1));
    script.converge(without(n, &[0, 1]), TIMEOUT).wait(dice.between(Duration::ZERO, SECOND));
    script.then(Step::Start(1)).then(Step::Start(0)).converge(0..n, TIMEOUT).wait(SECOND);
    script
}

/// The centre is away when the leader dies: a stand-by leads on by the keys that it has, and those who come wait.
pub(super) fn kdc_lost(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let late = n - 1;
    let mut script = in_order(knobs, late);
    all_publish(&mut script, 0..n, 50, 8 * SECOND);
    script.then(Step::Crash(n)).wait(dice.between(Duration::ZERO, SECOND)).then(Step::Crash(0));
    script.then(Step::Start(late)).converge(without(n, &[0, late]), TIMEOUT).wait(SECOND);
    script.then(Step::Command(1, Command::Rotate));
    script.then(Step::Renewed { members: without(n, &[0, late]), within: TIMEOUT });
    script.then(Step::Start(n)).then(Step::Start(0)).converge(0..n, TIMEOUT).wait(SECOND);
    script
}

/// The network splits leader and stand-by, with the centre or without it; both lead, and merge when it heals.
pub(super) fn split(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = in_order(knobs, n);
    all_publish(&mut script, 0..n, 20, 12 * SECOND);
    let (mut one, mut other) = (vec![0], vec![1]);
    (2..n).for_each(|it| if dice.below(2) == 0 { one.push(it) } else { other.push(it) });
    let centre_is_lost = dice.below(2) == 0;
    if centre_is_lost {
        script.then(Step::Crash(n));
    }
    script.then(Step::Partition(vec![one.clone(), other.clone()])).converge(one, TIMEOUT).converge(other, TIMEOUT);
    script.wait(dice.between(Duration::ZERO, SECOND)).then(Step::Heal);
    if centre_is_lost {
        script.wait(dice.between(Duration::ZERO, SECOND)).then(Step::Start(n));
    }
    script.wait(SECOND / 2).converge(0..n, TIMEOUT).wait(SECOND);
    script
}

/// Members leave, die and come, the leader too, one after the other or two at once: more are no majority of those who vote.
pub(super) fn churn(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = in_order(knobs, n);
    all_publish(&mut script, 0..n, 20, 30 * SECOND);
    for round in 0..8 {
        let member = dice.index(n);
        if dice.below(2) == 0 {
            script.then(Step::Command(member, Command::Leave)).wait(dice.between(Duration::ZERO, SECOND / 2));
        }
        script.then(Step::Crash(member)).wait(dice.between(Duration::ZERO, SECOND / 2)).then(Step::Start(member));
        if round % 2 == 1 {
            script.wait(Duration::from_millis(1)).converge(0..n, TIMEOUT).wait(dice.between(SECOND / 2, SECOND));
        }
    }
    script.wait(SECOND);
    script
}

/// A member without the right to lead comes first, and then says that it leads.
pub(super) fn usurper(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let liar = n - 1;
    let mut script = Script::new(n, network(knobs));
    script.then(Step::Imposter(liar, Misbehaviour::CenterLiar(CenterLie::Usurps))).then(Step::Start(liar)).wait(SECOND);
    script.start_all(0..liar, knobs.jitter, dice).converge(0..n, TIMEOUT);
    all_publish(&mut script, 0..liar, 20, 10 * SECOND);
    script.wait(SECOND).then(Step::Command(dice.index(n), Command::Rotate)).wait(SECOND).converge(0..n, TIMEOUT);
    // It is there when another one takes over.
    let dead = 2 * dice.index(liar.div_ceil(2));
    script.then(Step::Crash(dead)).converge(without(n, &[dead]), TIMEOUT).wait(SECOND);
    script.then(Step::Start(dead)).converge(0..n, TIMEOUT);
    script
}

/// A member uses the tokens that another one is given, which comes and goes.
pub(super) fn token_thief(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let (victim, thief) = (n - 2, n - 1);
    let mut script = Script::new(n, network(knobs));
    script.then(Step::Imposter(thief, Misbehaviour::CenterLiar(CenterLie::Steals { whom: victim })));
    script.start_all(without(n, &[victim]), knobs.jitter, dice).converge(without(n, &[victim]), TIMEOUT);
    all_publish(&mut script, without(n, &[victim, thief]), 20, 15 * SECOND);
    for _ in 0..3 {
        script.then(Step::Start(victim)).wait(dice.between(Duration::ZERO, SECOND / 4));
        script.then(Step::Crash(victim)).wait(dice.between(Duration::ZERO, SECOND / 4));
    }
    script.converge(without(n, &[victim]), TIMEOUT).wait(4 * SECOND);
    script.then(Step::Never { members: without(n, &[victim]), whom: victim });
    script.then(Step::Command(0, Command::Rotate)).wait(2 * SECOND).converge(without(n, &[victim]), TIMEOUT);
    script
}

/// A member acknowledges in the names of all others: whoever died is left out all the same, before it is suspected.
pub(super) fn acknowledger(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let (dead, liar) = (n - 2, n - 1);
    let mut script = Script::new(n, network(knobs));
    script.then(Step::Imposter(liar, Misbehaviour::CenterLiar(CenterLie::AcknowledgesForOthers)));
    for member in 0..n {
        script.then(Step::Start(member)).converge(0..=member, TIMEOUT);
    }
    all_publish(&mut script, 0..liar, 20, 10 * SECOND);
    for _ in 0..2 {
        script.wait(dice.between(SECOND / 2, SECOND)).then(Step::Crash(dead)).then(Step::Command(0, Command::Rotate));
        script.converge(without(n, &[dead]), limits::DETECT * 4 / 5).then(Step::Start(dead)).converge(0..n, TIMEOUT);
    }
    script
}

/// A member acknowledges another end of the view than there was: the others change their group all the same.
pub(super) fn misjudger(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let (late, liar) = (n - 2, n - 1);
    let (honest, early) = (without(n, &[liar]), without(n, &[late, liar]));
    let mut script = Script::new(n, network(knobs));
    script.then(Step::Imposter(liar, Misbehaviour::CenterLiar(CenterLie::Misjudges)));
    script.start_all(without(n, &[late]), knobs.jitter, dice);
    script.then(Step::Together { members: early.clone(), within: TIMEOUT });
    all_publish(&mut script, honest.iter().copied(), 20, 10 * SECOND);
    script.wait(SECOND).then(Step::Command(0, Command::Rotate)).wait(SECOND);
    script.then(Step::Start(late)).then(Step::Together { members: honest.clone(), within: 10 * SECOND });
    script.then(Step::Command(late, Command::Leave)).then(Step::Out { member: late, within: TIMEOUT });
    script.then(Step::Together { members: early, within: 10 * SECOND }).wait(SECOND);
    script
}

/// The leader is revoked and goes on: a stand-by leads the others, and whoever comes back comes to them.
pub(super) fn revoked_leader(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let (away, honest) = (n - 1, without(n, &[0]));
    let mut script = Script::new(n, network(knobs));
    script.then(Step::Imposter(0, Misbehaviour::RevokedLeader));
    for member in 0..n {
        script.then(Step::Start(member)).converge(0..=member, TIMEOUT);
    }
    all_publish(&mut script, honest.iter().copied(), 50, 20 * SECOND);
    script.wait(3 * SECOND / 2).then(Step::Crash(away)).converge(without(n, &[away]), TIMEOUT);
    script.then(Step::Evict { by: 1, whom: 0 }).converge(without(n, &[0, away]), TIMEOUT);
    script.then(Step::Never { members: honest.clone(), whom: 0 }).wait(SECOND).then(Step::Deaf(0));
    // It comes where the revoked leader alone is heard, and then to the others.
    script.then(Step::Partition(vec![vec![0, away]])).then(Step::Start(away));
    script.wait(dice.between(SECOND, 3 * SECOND)).then(Step::Heal).converge(honest, TIMEOUT).wait(2 * SECOND);
    script
}

/// The leader, who orders, is revoked, does not listen, and goes on: to stamp, to seal and to read.
pub(super) fn evicted_sequencer(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let honest = without(n, &[0]);
    let mut script = Script::new(n, network(knobs));
    script.then(Step::Imposter(0, Misbehaviour::Orders(OrderLie::StaysWhenEvicted { members: n })));
    script.then(Step::Start(0)).wait(SECOND).start_all(honest.iter().copied(), knobs.jitter, dice);
    script.then(Step::Together { members: honest.clone(), within: TIMEOUT });
    all_publish(&mut script, 0..n, 50, 12 * SECOND);
    script.wait(2 * SECOND).wait(dice.between(Duration::ZERO, SECOND)).then(Step::Evict { by: 1, whom: 0 });
    script.converge(honest.iter().copied(), TIMEOUT).then(Step::Never { members: honest.clone(), whom: 0 });
    script.wait(3 * SECOND).then(Step::Together { members: honest.clone(), within: TIMEOUT });
    script.then(Step::Hears { members: honest, within: TIMEOUT }).wait(SECOND);
    script
}

/// The leader, who orders, says to half of the others another order than to the other half.
pub(super) fn two_orders(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = Script::new(n, network(knobs));
    script.then(Step::Imposter(0, Misbehaviour::Orders(OrderLie::TellsTwo))).then(Step::Start(0)).wait(SECOND);
    script.start_all(1..n, knobs.jitter, dice).then(Step::Together { members: (1..n).collect(), within: TIMEOUT });
    all_publish(&mut script, 1..n, 50, 6 * SECOND);
    script.wait(6 * SECOND);
    script
}

/// Somebody in the centre's place changes its answers, and says that members are revoked.
pub(super) fn kdc_garbles(knobs: &Knobs, dice: &mut Dice) -> Script {
    false_kdc(knobs, dice, KdcLie::Garbles)
}

/// The centre refuses everything.
pub(super) fn kdc_refuses(knobs: &Knobs, dice: &mut Dice) -> Script {
    false_kdc(knobs, dice, KdcLie::Refuses)
}

/// The centre forgot who is revoked.
pub(super) fn kdc_forgets(knobs: &Knobs, dice: &mut Dice) -> Script {
    false_kdc(knobs, dice, KdcLie::Forgets)
}

/// A centre that lies may keep newcomers out; those who are in stay, and whoever they know to be revoked does not come back.
fn false_kdc(knobs: &Knobs, dice: &mut Dice, lie: KdcLie) -> Script {
    let n = knobs.members;
    let (late, revoked, kdc) = (n - 2, n - 1, n);
    let (honest, early) = (without(n, &[revoked]), without(n, &[late, revoked]));
    let mut script = in_order(knobs, n);
    all_publish(&mut script, honest.iter().copied(), 20, 15 * SECOND);
    script.then(Step::Evict { by: 0, whom: revoked }).converge(honest.clone(), TIMEOUT);
    script.then(Step::Out { member: revoked, within: TIMEOUT }).wait(SECOND);
    script.then(Step::Never { members: honest.clone(), whom: revoked });
    script.then(Step::Crash(kdc)).then(Step::Imposter(kdc, Misbehaviour::FalseKdc(lie))).then(Step::Start(kdc));
    for member in [late, revoked] {
        script.then(Step::Crash(member)).then(Step::Start(member));
    }
    script.wait(dice.between(SECOND, 3 * SECOND)).then(Step::Command(1, Command::Rotate)).wait(SECOND);
    script.then(Step::Together { members: early.clone(), within: TIMEOUT });
    script.then(Step::Hears { members: early, within: TIMEOUT });
    script.then(Step::Crash(kdc)).then(Step::Honest(kdc)).then(Step::Start(kdc));
    script.converge(honest, TIMEOUT).wait(SECOND);
    script
}
