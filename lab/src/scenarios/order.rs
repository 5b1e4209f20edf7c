//! Stories of a group that orders: whoever orders dies or stops, members come and go without end, and insiders lie about the order.

use std::collections::BTreeSet;
use std::time::Duration;

use sealcast_keys::Command;
use sealcast_sim::dice::Dice;

use super::lan::{SECOND, TIMEOUT, all_publish, formed, network, without};
use super::script::{Knobs, Script, Step};
use crate::misbehaviour::{Misbehaviour, OrderLie};

/// Whoever orders dies, twice; each time it comes back.
pub(super) fn sequencer_killed(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(knobs, dice);
    all_publish(&mut script, 0..n, 50, 60 * SECOND);
    script.wait(SECOND);
    for _ in 0..2 {
        script.wait(dice.between(Duration::ZERO, SECOND)).then(Step::CrashSequencer).wait(Duration::from_millis(1));
        script.then(Step::Rest(TIMEOUT)).wait(dice.between(Duration::ZERO, SECOND));
        script.then(Step::Return).converge(0..n, TIMEOUT).wait(SECOND);
    }
    script
}

/// Whoever orders dies, and while or after the others change their view, whoever orders next does, too.
pub(super) fn double_failover(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(knobs, dice);
    all_publish(&mut script, 0..n, 50, 60 * SECOND);
    script.wait(SECOND).wait(dice.between(Duration::ZERO, SECOND)).then(Step::CrashSequencer);
    script.wait(dice.between(Duration::ZERO, 4 * SECOND)).then(Step::CrashSequencer);
    script.then(Step::Rest(TIMEOUT)).wait(dice.between(Duration::ZERO, SECOND));
    script.then(Step::Return).converge(0..n, TIMEOUT).wait(SECOND);
    script
}

/// Of a large group some publish. Whoever orders, and leads, dies in the midst of that, and comes back.
pub(super) fn large(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(knobs, dice);
    let speakers: BTreeSet<usize> = (0..SPEAKERS).map(|_| dice.index(n)).chain([0, 1, n - 1]).collect();
    all_publish(&mut script, speakers, 10, 3 * SECOND);
    script.wait(SECOND / 2).wait(dice.between(Duration::ZERO, SECOND / 2)).then(Step::CrashSequencer);
    script.wait(Duration::from_millis(1)).then(Step::Rest(TIMEOUT)).wait(dice.between(Duration::ZERO, SECOND));
    script.then(Step::Return).converge(0..n, TIMEOUT).wait(SECOND);
    script
}

/// A process, whoever orders in half of the runs, is stopped for 10 s (SIGSTOP), and comes back with all that it had.
pub(super) fn stopped(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(knobs, dice);
    all_publish(&mut script, 0..n, 20, 60 * SECOND);
    script.wait(SECOND).wait(dice.between(Duration::ZERO, SECOND));
    let member = dice.index(n);
    script.then(if dice.below(2) == 0 { Step::StopSequencer } else { Step::Stop(member) });
    script.wait(10 * SECOND).then(Step::Rest(TIMEOUT)).then(Step::Return).wait(SECOND).converge(0..n, TIMEOUT);
    script.wait(SECOND);
    script
}

/// Two members come, leave and die, a hundred times in a second. The others are a majority all the time.
pub(super) fn fast_churn(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let visitors = [n - 2, n - 1];
    let mut script = formed(knobs, dice);
    all_publish(&mut script, 0..n, 20, 60 * SECOND);
    script.wait(SECOND);
    let mut leaving = [false; 2];
    for change in 0..CHURN {
        let (member, leaving) = (visitors[change % 2], &mut leaving[change % 2]);
        if !*leaving && dice.below(2) == 0 {
            script.then(Step::Command(member, Command::Leave));
            *leaving = true;
        } else {
            script.then(Step::Crash(member)).then(Step::Start(member));
            *leaving = false;
        }
        script.wait(SECOND / CHURN as u32);
    }
    for member in visitors {
        script.then(Step::Crash(member)).then(Step::Start(member));
    }
    script.wait(SECOND).converge(0..n, TIMEOUT).wait(SECOND);
    script
}

/// A member says that it holds all of the order, and of all streams, whatever it lacks.
pub(super) fn acknowledger(knobs: &Knobs, dice: &mut Dice) -> Script {
    liar(knobs, dice, OrderLie::Acknowledges, knobs.members - 1)
}

/// A member asks for everything, again and again.
pub(super) fn nak_flooder(knobs: &Knobs, dice: &mut Dice) -> Script {
    liar(knobs, dice, OrderLie::AsksForAll, knobs.members - 1)
}

/// A member that is not the sequencer says which records come next in the order.
pub(super) fn stamp_forger(knobs: &Knobs, dice: &mut Dice) -> Script {
    liar(knobs, dice, OrderLie::Stamps, knobs.members - 1)
}

/// The sequencer says to half of the others another order than to the other half.
pub(super) fn two_orders(knobs: &Knobs, dice: &mut Dice) -> Script {
    liar(knobs, dice, OrderLie::TellsTwo, LOWEST)
}

/// A member lies about the order.
fn liar(knobs: &Knobs, dice: &mut Dice, lie: OrderLie, liar: usize) -> Script {
    let n = knobs.members;
    let honest = without(n, &[liar]);
    let mut script = Script::new(n, network(knobs));
    script.then(Step::Imposter(liar, Misbehaviour::Orders(lie))).start_all(0..n, knobs.jitter, dice);
    script.then(Step::Together { members: honest.clone(), within: TIMEOUT });
    all_publish(&mut script, honest.iter().copied(), 50, 12 * SECOND);
    script.wait(2 * SECOND).then(Step::Command(0, Command::Rotate)).wait(2 * SECOND);
    script.then(Step::Together { members: honest.clone(), within: TIMEOUT });
    // Whoever dies comes back, beside the liar.
    let others: Vec<usize> = honest.iter().copied().skip(1).collect();
    let dead = others[dice.index(others.len())];
    script.then(Step::Crash(dead)).wait(dice.between(Duration::ZERO, 4 * SECOND)).then(Step::Start(dead)).wait(SECOND);
    script.then(Step::Together { members: honest.clone(), within: TIMEOUT });
    script.then(Step::Hears { members: honest.clone(), within: TIMEOUT }).wait(SECOND);
    // What it kept from somebody comes once it is out: until then it can hold reliable delivery up.
    script.then(Step::Evict { by: 0, whom: liar }).converge(honest, TIMEOUT).wait(2 * SECOND);
    script
}

/// Whoever orders is evicted, does not listen, and goes on: to stamp, to seal and to read.
pub(super) fn evicted_sequencer(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let (liar, honest) = (LOWEST, without(n, &[LOWEST]));
    let mut script = Script::new(n, network(knobs));
    script.then(Step::Imposter(liar, Misbehaviour::Orders(OrderLie::StaysWhenEvicted { members: n })));
    script.start_all(0..n, knobs.jitter, dice);
    script.then(Step::Together { members: honest.clone(), within: TIMEOUT });
    all_publish(&mut script, 0..n, 50, 12 * SECOND);
    script.wait(2 * SECOND).wait(dice.between(Duration::ZERO, SECOND)).then(Step::Evict { by: 0, whom: liar });
    script
        .converge(honest.iter().copied(), TIMEOUT)
        .then(Step::Never { members: honest.clone(), whom: liar })
        .wait(3 * SECOND);
    script.then(Step::Together { members: honest.clone(), within: TIMEOUT });
    script.then(Step::Hears { members: honest, within: TIMEOUT }).wait(SECOND);
    script
}

/// This robot's certificate gives it the lowest slot of a group of all, so that it orders.
const LOWEST: usize = 1;
/// Members of a large group that publish, beside three that always do.
const SPEAKERS: usize = 5;
/// Changes of the group in a second.
const CHURN: usize = 100;
