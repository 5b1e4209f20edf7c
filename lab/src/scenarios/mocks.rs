//! Stories of the mock schemes: they prove the interfaces.

use std::time::Duration;

use sealcast_keys::Command;
use sealcast_sim::dice::Dice;
use sealcast_sim::network::Network;

use super::script::{Knobs, Script, Step};

const SECONDS: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(20);

/// All publish at once through brokers one of which lies; all see one order, and who may not read sees
/// nothing.
pub(super) fn brokers(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = Script::new(n, Network::rough(knobs.loss));
    script.lossless = true;
    script.start_all(0..n, knobs.jitter, dice).converge(0..n - 1, TIMEOUT).then(Step::Deaf(n - 1));
    script.then(Step::Traffic { by: (0..n - 1).collect(), rate: 5, bytes: 200, lasting: SECONDS }).wait(2 * SECONDS);
    script
}

/// Members are let in one after the other, and publish to each other.
pub(super) fn admission(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = Script::new(n, Network::rough(knobs.loss));
    script.start_all(0..n, knobs.jitter, dice).converge(0..n, TIMEOUT);
    script.then(Step::Traffic { by: (0..n).collect(), rate: 50, bytes: 100, lasting: SECONDS }).wait(SECONDS);
    script
}

/// All members want a new key at once: one wins each epoch, the others are told and try again.
pub(super) fn race(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = admission(knobs, dice);
    for member in 0..n {
        script.then(Step::Command(member, Command::Rotate));
    }
    script.wait(2 * SECONDS).converge(0..n, TIMEOUT);
    script
}

/// A member dies at any moment of its own commit, and comes back with what its disk holds.
pub(super) fn crash(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = admission(knobs, dice);
    let victim = 1 + dice.index(n - 1);
    script.then(Step::Command(victim, Command::Rotate)).then(Step::Command(0, Command::Rotate));
    script.wait(dice.between(Duration::ZERO, Duration::from_millis(8))).then(Step::Crash(victim));
    script.wait(dice.between(Duration::ZERO, SECONDS)).then(Step::Start(victim));
    script.wait(SECONDS).converge(0..n, TIMEOUT);
    script.then(Step::Traffic { by: (0..n).collect(), rate: 50, bytes: 100, lasting: SECONDS }).wait(SECONDS);
    script
}

/// One leaves and one is evicted, while all publish.
pub(super) fn departure(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = admission(knobs, dice);
    script.then(Step::Traffic { by: (0..n).collect(), rate: 200, bytes: 100, lasting: 4 * SECONDS });
    script.wait(SECONDS).then(Step::Command(1, Command::Leave)).then(Step::Out { member: 1, within: TIMEOUT });
    script.then(Step::Evict { by: 0, whom: 2 });
    script.converge((0..n).filter(|m| ![1, 2].contains(m)), TIMEOUT).wait(SECONDS);
    script
}
