//! Stories of groups whose members speak several versions of the wire. Version 2 is this program with one more version on its
//! card, other keys of its epochs, and JOINs and BEACONs that are longer.

use std::collections::BTreeSet;

use sealcast_keys::Command;
use sealcast_keys::contributory::Versions;
use sealcast_sim::dice::Dice;
use sealcast_sim::{Effect, Node};
use sealcast_wire::{Address, Monotonic, Now};

use super::contributory::Robot;
use super::lan::{SECOND, TIMEOUT, all_publish, network, without};
use super::script::{Knobs, Script, Step};
use crate::member::{MemberCommand, MemberEvent};
use crate::misbehaviour::Misbehaviour;

/// A robot that tells of which version its epoch is.
pub(super) struct VersionedMember {
    robot: Robot,
    now: Now,
    version: Option<u8>,
}

impl VersionedMember {
    pub(super) fn new(now: Now, robot: Robot) -> VersionedMember {
        VersionedMember { robot, now, version: None }
    }
}

impl Node for VersionedMember {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        self.now = now;
        self.robot.handle(now, from, datagram);
    }

    fn command(&mut self, now: Now, ask: MemberCommand) {
        self.now = now;
        self.robot.command(now, ask);
    }

    fn timeout(&self) -> Option<Monotonic> {
        self.robot.timeout()
    }

    fn handle_timeout(&mut self, now: Now) {
        self.now = now;
        self.robot.handle_timeout(now);
    }

    fn stored(&mut self, now: Now) {
        self.now = now;
        self.robot.stored(now);
    }

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        if let Some(version) = self.version.take() {
            return Some(Effect::Tell(MemberEvent::Speaks(version)));
        }
        let effect = self.robot.poll();
        if let Some(Effect::Tell(MemberEvent::Installed(_))) = effect {
            self.version = Some(self.robot.group().keys().inner().status(self.now).version);
        }
        effect
    }
}

/// Every other member speaks version 1 alone.
pub(super) fn of_mixed(member: usize) -> Versions {
    if is_old(member) { Versions::OURS } else { of_newer(member) }
}

/// All speak both.
pub(super) fn of_newer(_member: usize) -> Versions {
    Versions::of(&[1, 2])
}

fn is_old(member: usize) -> bool {
    member % 2 == 1
}

/// Members of two versions join and change keys; then those of the old version leave or are evicted, and one comes back.
pub(super) fn mixed(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let mut script = Script::new(n, network(knobs));
    let late = 1 + dice.index(n - 1);
    let mut group = without(n, &[late]);
    script.start_all(group.iter().copied(), knobs.jitter, dice).converge(group.clone(), TIMEOUT);
    speaks(&mut script, &group);
    all_publish(&mut script, 0..n, 20, 30 * SECOND);
    group.insert(late);
    script.then(Step::Start(late)).converge(group.clone(), TIMEOUT);
    speaks(&mut script, &group);
    script.wait(dice.between(SECOND / 4, SECOND)).then(Step::Command(dice.index(n), Command::Rotate));
    script.then(Step::Renewed { members: group.clone(), within: TIMEOUT });
    speaks(&mut script, &group);

    let mut old: Vec<usize> = (0..n).filter(|member| is_old(*member)).collect();
    dice.shuffle(&mut old);
    let leaver = old[dice.index(old.len())];
    for member in old {
        group.remove(&member);
        if member == leaver {
            script.then(Step::Command(member, Command::Leave));
        } else {
            script.then(Step::Evict { by: 0, whom: member });
            script.then(Step::Never { members: without(n, &[member]), whom: member });
        }
        script.then(Step::Out { member, within: TIMEOUT }).converge(group.clone(), TIMEOUT);
        speaks(&mut script, &group);
    }
    group.insert(leaver);
    script.wait(dice.between(SECOND, 2 * SECOND)).then(Step::Crash(leaver)).then(Step::Start(leaver));
    script.converge(group.clone(), TIMEOUT);
    speaks(&mut script, &group);
    script
}

/// A member strips versions from what others say, and says itself that they speak less than they do.
pub(super) fn downgrader(knobs: &Knobs, dice: &mut Dice) -> Script {
    let n = knobs.members;
    let liar = n - 1;
    let honest = without(n, &[liar]);
    let mut script = Script::new(n, network(knobs));
    script.then(Step::Imposter(liar, Misbehaviour::Downgrader)).start_all(0..n, knobs.jitter, dice);
    script.then(Step::Together { members: honest.clone(), within: TIMEOUT });
    script.then(Step::Named { by: honest.clone(), whom: liar, within: TIMEOUT });
    all_publish(&mut script, honest.iter().copied(), 20, 5 * SECOND);
    script.then(Step::Together { members: honest.clone(), within: TIMEOUT });
    script.then(Step::Speaks { members: honest.clone(), version: 2 });
    script.wait(SECOND).then(Step::Stop(liar)).wait(SECOND).converge(honest.clone(), TIMEOUT);
    script.then(Step::Speaks { members: honest, version: 2 });
    script
}

/// All of these are in an epoch of the highest version that they all speak.
fn speaks(script: &mut Script, members: &BTreeSet<usize>) {
    let version = if members.iter().any(|it| is_old(*it)) { 1 } else { 2 };
    script.then(Step::Speaks { members: members.clone(), version });
}
