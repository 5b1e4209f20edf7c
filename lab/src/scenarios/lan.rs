//! Stories of a group on a LAN whose members agree on keys by themselves.

use std::collections::BTreeSet;
use std::time::Duration;

use sealcast_keys::Command;
use sealcast_sim::dice::{Chance, Dice};
use sealcast_sim::network::Network;

use super::script::{Knobs, Script, Step};
use crate::misbehaviour::Misbehaviour;

/// The network of a story: rough, or without loss a quiet one.
pub(super) fn network(knobs: &Knobs) -> Network {
    if knobs.loss.0 == 0 { Network::lossless() } else { Network::rough(knobs.loss) }
}

/// All members start and find each other.
pub(super) fn formed(knobs: &Knobs, dice: &mut Dice) -> Script {
    let mut script = Script::new(knobs.members, network(knobs));
    script.start_all(0..knobs.members, knobs.jitter, dice).converge(0..knobs.members, TIMEOUT);
    script
}

pub(super) fn all_publish(script: &mut Script, by: impl IntoIterator<Item = usize>, rate: u32, lasting: Duration) {
    script.then(Step::Traffic { by: by.into_iter().collect(), rate, bytes: 100, lasting });
}

pub(super) fn without(n: usize, gone: &[usize]) -> BTreeSet<usize> {
    (0..n).filter(|m| !gone.contains(m)).collect()
}

pub(super) fn formation(knobs: &Knobs, dice: &mut Dice) -> Script {
    let mut script = formed(knobs, dice);
    script.lossless = knobs.loss.0 == 0;
    all_publish(&mut script, 0..knobs.members, 20, SECOND / 2);
    script.wait(SECOND / 2);
    script
}

/// What the figure 'formation converges' counts. `members`, `jitter` and `loss` are upper bounds; a seed's
/// number of members is one of the figure's.
pub(super) fn formation_wide(knobs: &Knobs, dice: &mut Dice) -> Script {
    let sizes: Vec<usize> = [2, 3, 4, 8, 16, 32, 64].into_iter().filter(|n| *n <= knobs.members).collect();
    let members = sizes.get(dice.index(sizes.len().max(1))).copied().unwrap_or(knobs.members);
    let jitter = dice.between(Duration::ZERO, knobs.jitter);
    let loss = Chance(dice.below(u64::from(knobs.loss.0) + 1) as u32);
    let mut script = Script::new(members, network(&Knobs { members, loss, jitter }));
    script.start_all(0..members, jitter, dice).converge(0..members, TIMEOUT);
    script
}

pub(super) fn one_by_one(knobs: &Knobs, dice: &mut Dice) -> Script {
    let mut script = Script::new(knobs.members, network(knobs));
    all_publish(&mut script, 0..knobs.members, 20, 60 * SECOND);
    for member in 0..knobs.members {
        script.wait(dice.between(Duration::ZERO, knobs.jitter)).then(Step::Start(member));
        script.converge(0..=member, TIMEOUT);
    }
    script
}

pub(super) fn leave(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(knobs, dice);
    all_publish(&mut script, 0..n, 50, 10 * SECOND);
    let leaver = dice.index(n);
    script.wait(dice.between(Duration::ZERO, SECOND)).then(Step::Command(leaver, Command::Leave));
    script.then(Step::Out { member: leaver, within: TIMEOUT }).converge(without(n, &[leaver]), TIMEOUT);
    script.wait(SECOND);
    script
}

pub(super) fn evict(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(knobs, dice);
    all_publish(&mut script, 0..n, 50, 10 * SECOND);
    let whom = 1 + dice.index(n - 1);
    script.wait(dice.between(Duration::ZERO, SECOND)).then(Step::Evict { by: 0, whom });
    script.converge(without(n, &[whom]), TIMEOUT).then(Step::Out { member: whom, within: TIMEOUT });
    // It starts again with the same certificate; the others know better.
    script.then(Step::Never { members: without(n, &[whom]), whom });
    script.then(Step::Crash(whom)).then(Step::Start(whom)).wait(2 * SECOND);
    script.converge(without(n, &[whom]), TIMEOUT);
    script
}

pub(super) fn suspect(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(knobs, dice);
    all_publish(&mut script, 0..n, 20, 10 * SECOND);
    let dead = dice.index(n);
    script.wait(dice.between(Duration::ZERO, SECOND)).then(Step::Crash(dead));
    script.converge(without(n, &[dead]), TIMEOUT).wait(SECOND);
    script
}

pub(super) fn rekey(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(knobs, dice);
    all_publish(&mut script, 0..n, 20, 10 * SECOND);
    for _ in 0..3 {
        script.wait(dice.between(SECOND / 2, SECOND)).then(Step::Command(dice.index(n), Command::Rotate));
        script.then(Step::Renewed { members: (0..n).collect(), within: TIMEOUT });
    }
    script.wait(SECOND);
    script
}

pub(super) fn rotate(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(knobs, dice);
    all_publish(&mut script, 0..n, 50, 10 * SECOND);
    for _ in 0..3 {
        for _ in 0..=dice.index(n) {
            script.then(Step::Command(dice.index(n), Command::Rotate));
            script.wait(dice.between(Duration::ZERO, Duration::from_millis(30)));
        }
        script.wait(SECOND).converge(0..n, TIMEOUT);
    }
    script
}

pub(super) fn partition(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(knobs, dice);
    all_publish(&mut script, 0..n, 20, 30 * SECOND);
    let mut members: Vec<usize> = (0..n).collect();
    dice.shuffle(&mut members);
    let (one, other) = members.split_at(1 + dice.index(n - 1));
    script.then(Step::Partition(vec![one.to_vec(), other.to_vec()]));
    if dice.below(4) > 0 {
        script.converge(one.iter().copied(), TIMEOUT).converge(other.iter().copied(), TIMEOUT);
    } else {
        // It heals in the middle of the halves' own changes.
        script.wait(dice.between(Duration::ZERO, 2 * SECOND));
    }
    script.then(Step::Heal).wait(SECOND / 2).converge(0..n, TIMEOUT);
    script
}

pub(super) fn restart(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(knobs, dice);
    all_publish(&mut script, 0..n, 20, 30 * SECOND);
    for _ in 0..3 {
        let member = dice.index(n);
        let away = if dice.below(2) == 0 { Duration::ZERO } else { dice.between(Duration::ZERO, 2 * SECOND) };
        script.then(Step::Crash(member)).wait(away).then(Step::Start(member));
        if dice.below(3) > 0 {
            script.wait(Duration::from_millis(1)).converge(0..n, TIMEOUT);
        } else {
            script.wait(dice.between(Duration::ZERO, SECOND));
        }
    }
    script.wait(SECOND).converge(0..n, TIMEOUT);
    script
}

pub(super) fn frozen(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(knobs, dice);
    all_publish(&mut script, 0..n, 20, 30 * SECOND);
    let member = dice.index(n);
    script.then(Step::Stop(member));
    if dice.below(2) == 0 {
        script.converge(without(n, &[member]), TIMEOUT);
    } else {
        script.wait(dice.between(Duration::ZERO, SECOND));
    }
    script.then(Step::Resume(member)).wait(SECOND).converge(0..n, TIMEOUT);
    script
}

pub(super) fn dying_joiner(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let (joiner, late) = (n - 2, n - 1);
    let mut script = Script::new(n, network(knobs));
    script.start_all(0..joiner, knobs.jitter, dice).converge(0..joiner, TIMEOUT);
    all_publish(&mut script, 0..n, 20, 30 * SECOND);
    for _ in 0..4 {
        script.then(Step::Start(joiner)).wait(dice.between(Duration::ZERO, Duration::from_millis(250)));
        script.then(Step::Crash(joiner)).wait(dice.between(Duration::ZERO, Duration::from_millis(100)));
    }
    script.then(Step::Start(late)).converge(without(n, &[joiner]), TIMEOUT);
    script.then(Step::Start(joiner)).converge(0..n, TIMEOUT);
    script
}

pub(super) fn silent_member(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = formed(knobs, dice);
    all_publish(&mut script, 0..n, 20, 30 * SECOND);
    let member = dice.index(n);
    let (mute, deaf) = [(true, false), (false, true), (true, true)][dice.index(3)];
    for other in without(n, &[member]) {
        if mute {
            script.then(Step::Cut(member, other));
        }
        if deaf {
            script.then(Step::Cut(other, member));
        }
    }
    if mute {
        script.then(Step::Together { members: without(n, &[member]), within: TIMEOUT });
    }
    script.wait(2 * SECOND).then(Step::Heal).wait(SECOND).converge(0..n, TIMEOUT);
    script
}

pub(super) fn replayer(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = Script::new(n, network(knobs));
    script.then(Step::Misbehave(Misbehaviour::Replayer));
    script.start_all(0..n, knobs.jitter, dice).converge(0..n, TIMEOUT);
    all_publish(&mut script, 0..n, 30, 20 * SECOND);
    script.wait(SECOND).then(Step::Command(dice.index(n), Command::Rotate)).wait(SECOND).converge(0..n, TIMEOUT);
    let leaver = 1 + dice.index(n - 1);
    script.then(Step::Command(leaver, Command::Leave)).then(Step::Out { member: leaver, within: TIMEOUT });
    script.converge(without(n, &[leaver]), TIMEOUT);
    script.wait(2 * SECOND).converge(without(n, &[leaver]), TIMEOUT);
    script
}

pub(super) fn forger(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = Script::new(n, network(knobs));
    script.then(Step::Misbehave(Misbehaviour::Forger));
    script.start_all(0..n, knobs.jitter, dice).converge(0..n, TIMEOUT);
    all_publish(&mut script, 0..n, 30, 10 * SECOND);
    script.wait(SECOND).then(Step::Command(dice.index(n), Command::Rotate)).wait(SECOND).converge(0..n, TIMEOUT);
    script
}

pub(super) fn flooder(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = Script::new(n, network(knobs));
    script.then(Step::Misbehave(Misbehaviour::Flooder));
    script.start_all(0..n, knobs.jitter, dice).converge(0..n, TIMEOUT);
    all_publish(&mut script, 0..n, 30, SECOND);
    script.wait(SECOND).converge(0..n, TIMEOUT);
    script
}

pub(super) fn flooder_inside(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = Script::new(n, network(knobs));
    script.then(Step::Imposter(n - 1, Misbehaviour::FlooderInside));
    script.start_all(0..n, knobs.jitter, dice).converge(0..n, TIMEOUT);
    all_publish(&mut script, 0..n, 20, SECOND);
    script.wait(SECOND).then(Step::Command(0, Command::Rotate)).wait(SECOND).converge(0..n, TIMEOUT);
    script
}

pub(super) fn equivocator(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let honest = without(n, &[n - 1]);
    let mut script = Script::new(n, network(knobs));
    script.then(Step::Imposter(n - 1, Misbehaviour::Equivocator));
    script.start_all(0..n, knobs.jitter, dice).then(Step::Together { members: honest.clone(), within: TIMEOUT });
    all_publish(&mut script, honest.iter().copied(), 20, 20 * SECOND);
    script.wait(2 * SECOND).then(Step::Together { members: honest.clone(), within: TIMEOUT });
    // A change in which it has a part.
    script.then(Step::Command(0, Command::Rotate)).wait(2 * SECOND);
    script.then(Step::Together { members: honest, within: TIMEOUT });
    script
}

pub(super) fn evicted_insider(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let whom = 1 + dice.index(n - 1);
    let mut script = Script::new(n, network(knobs));
    script.then(Step::Imposter(whom, Misbehaviour::EvictedInsider));
    script.start_all(0..n, knobs.jitter, dice).converge(0..n, TIMEOUT);
    all_publish(&mut script, 0..n, 100, 10 * SECOND);
    script.wait(dice.between(Duration::ZERO, SECOND)).then(Step::Evict { by: 0, whom });
    script.converge(without(n, &[whom]), TIMEOUT).then(Step::Never { members: without(n, &[whom]), whom });
    script.wait(3 * SECOND).converge(without(n, &[whom]), TIMEOUT);
    script
}

/// Four publish 1,000 messages a second between them, and every one must arrive.
pub(super) fn busy(knobs: &Knobs, dice: &mut Dice, members: usize) -> Script {
    let mut script = Script::new(knobs.members, network(knobs));
    script.lossless = true;
    script.start_all(0..members, knobs.jitter, dice).converge(0..members, TIMEOUT);
    let publishers = members.min(4);
    all_publish(&mut script, 0..publishers, (1000 / publishers) as u32, 3 * SECOND);
    script.wait(dice.between(Duration::ZERO, SECOND / 2));
    script
}

pub(super) fn traffic_join(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = busy(knobs, dice, n - 1);
    script.then(Step::Start(n - 1)).converge(0..n, TIMEOUT).wait(SECOND);
    script
}

pub(super) fn traffic_rotate(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = busy(knobs, dice, n);
    for _ in 0..3 {
        script.then(Step::Command(dice.index(n), Command::Rotate)).wait(SECOND / 2);
    }
    script.converge(0..n, TIMEOUT);
    script
}

pub(super) fn traffic_evict(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = busy(knobs, dice, n);
    let whom = 1 + dice.index(n - 1);
    script.then(Step::Evict { by: 0, whom }).converge(without(n, &[whom]), TIMEOUT).wait(SECOND);
    script
}

pub(super) fn traffic_leave(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = busy(knobs, dice, n);
    let leaver = dice.index(n);
    script.then(Step::Command(leaver, Command::Leave)).converge(without(n, &[leaver]), TIMEOUT).wait(SECOND);
    script
}

pub(super) fn life(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = Script::new(n, network(knobs));
    let mut runs = vec![true; n];
    let mut evicted: BTreeSet<usize> = BTreeSet::new();
    script.start_all(0..n, knobs.jitter, dice);
    all_publish(&mut script, 0..n, 20, 60 * SECOND);
    for _ in 0..12 {
        script.wait(dice.between(Duration::ZERO, SECOND));
        let member = dice.index(n);
        match dice.below(8) {
            0 | 1 if runs[member] => {
                script.then(Step::Crash(member));
                runs[member] = false;
            }
            0..=2 if !runs[member] => {
                script.then(Step::Start(member));
                runs[member] = true;
            }
            3 => {
                let side = (0..n).filter(|_| dice.below(2) == 0).collect();
                script.then(Step::Partition(vec![side]));
            }
            4 => {
                script.then(Step::Heal);
            }
            5 => {
                script.then(Step::Command(member, Command::Rotate));
            }
            6 if member != 0 && evicted.is_empty() && runs[0] => {
                script.then(Step::Evict { by: 0, whom: member });
                evicted.insert(member);
            }
            _ => {
                script.then(Step::Cut(member, dice.index(n)));
            }
        }
    }
    script.then(Step::Heal);
    for member in (0..n).filter(|m| !runs[*m]) {
        script.then(Step::Start(member));
    }
    // Whether the eviction was taken in depends on whether its signer was in a group then.
    script.wait(2 * SECOND);
    script.then(Step::Together { members: (0..n).filter(|m| !evicted.contains(m)).collect(), within: TIMEOUT });
    script
}

pub(super) const SECOND: Duration = Duration::from_secs(1);
/// How long members may take to find one view: far longer than they should.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
