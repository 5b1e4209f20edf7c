//! Says the truth to one of the others and a lie to the rest, each signed: in a round, or in the confirmation.
//!
//! It agrees on its first key with the others as anybody does.

use std::collections::{BTreeSet, VecDeque};

use sealcast_keys::contributory::misbehaving::Lie;
use sealcast_sim::{Effect, Node, Reach};
use sealcast_wire::{Address, Monotonic, Now};

use super::{as_open, open_message};
use crate::member::{MemberCommand, MemberEvent};
use crate::scenarios::contributory::Robot;

/// See the module.
pub(super) struct Splitter {
    robot: Robot,
    lie: Lie,
    told_truth: usize,
    others: BTreeSet<usize>,
    in_group: bool,
    effects: VecDeque<Effect<MemberEvent>>,
}

impl Splitter {
    pub(super) fn new(robot: Robot, lie: Lie, told_truth: usize, others: BTreeSet<usize>) -> Splitter {
        Splitter { robot, lie, told_truth, others, in_group: false, effects: VecDeque::new() }
    }

    fn drain(&mut self, now: Now) {
        while let Some(effect) = self.robot.poll() {
            match effect {
                Effect::Send { datagram, .. } => self.say(now, datagram),
                Effect::Tell(MemberEvent::Installed(epoch)) => self.in_group |= epoch.view.members.len() > 2,
                Effect::Tell(_) | Effect::Store { .. } => {}
            }
        }
    }

    fn say(&mut self, now: Now, datagram: Vec<u8>) {
        let lie = open_message(&datagram)
            .filter(|_| self.in_group)
            .and_then(|sealed_message| self.robot.with_keys(now, |keys| keys.retell(sealed_message, self.lie)));
        let Some(lie) = lie.map(|sealed_message| as_open(&sealed_message)) else {
            return self.effects.push_back(Effect::Send { to: Reach::All, datagram });
        };
        for &to in &self.others {
            let datagram = if to == self.told_truth { datagram.clone() } else { lie.clone() };
            self.effects.push_back(Effect::Send { to: Reach::One(to), datagram });
        }
    }
}

impl Node for Splitter {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        self.robot.handle(now, from, datagram);
        self.drain(now);
    }

    fn command(&mut self, now: Now, command: MemberCommand) {
        self.robot.command(now, command);
        self.drain(now);
    }

    fn timeout(&self) -> Option<Monotonic> {
        self.robot.timeout()
    }

    fn handle_timeout(&mut self, now: Now) {
        self.robot.handle_timeout(now);
        self.drain(now);
    }

    fn stored(&mut self, now: Now) {
        self.robot.stored(now);
        self.drain(now);
    }

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        self.effects.pop_front()
    }
}
