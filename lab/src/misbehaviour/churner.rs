//! Asks to be let in, wants new keys, leaves, and comes back as another run, without end.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use sealcast_keys::Command;
use sealcast_keys::contributory::misbehaving::Lie;
use sealcast_sim::dice::Dice;
use sealcast_sim::{Effect, Node};
use sealcast_wire::{Address, Monotonic, Now};

use super::{Make, as_open, open_message};
use crate::member::{MemberCommand, MemberEvent};
use crate::scenarios::contributory::Robot;

/// See the module.
pub(super) struct Churner {
    make: Rc<Make>,
    robot: Robot,
    dice: Dice,
    /// How far ahead of the epoch that it was in last each of its runs claims to be.
    ahead: Option<u32>,
    counter: u32,
    in_group: bool,
    out: bool,
    next: Monotonic,
    effects: VecDeque<Effect<MemberEvent>>,
}

impl Churner {
    pub(super) fn new(now: Now, make: Rc<Make>, mut dice: Dice, ahead: Option<u32>) -> Churner {
        let robot = make(now, dice.seed(), &[]);
        let (next, effects) = (now.monotonic + EVERY, VecDeque::new());
        Churner { make, robot, dice, ahead, counter: 0, in_group: false, out: false, next, effects }
    }

    fn drain(&mut self, now: Now) {
        while let Some(effect) = self.robot.poll() {
            match effect {
                Effect::Send { to, datagram } => {
                    let datagram = self.claim(now, &datagram).unwrap_or(datagram);
                    self.effects.push_back(Effect::Send { to, datagram });
                }
                Effect::Tell(MemberEvent::Installed(epoch)) => {
                    self.in_group = epoch.view.members.len() > 1;
                    self.counter = epoch.view.epoch.counter;
                }
                Effect::Tell(MemberEvent::Excluded(_)) => self.out = true,
                Effect::Tell(_) | Effect::Store { .. } => {}
            }
        }
    }

    fn claim(&mut self, now: Now, datagram: &[u8]) -> Option<Vec<u8>> {
        let (sealed_message, claim) = (open_message(datagram)?, Lie::From(self.counter.saturating_add(self.ahead?)));
        self.robot
            .with_keys(now, |keys| keys.retell(sealed_message, claim))
            .map(|sealed_message| as_open(&sealed_message))
    }

    fn act(&mut self, now: Now) {
        if self.out {
            let seed = self.dice.seed();
            self.robot = (self.make)(now, seed, &[]);
            (self.in_group, self.out) = (false, false);
        } else if self.in_group {
            let command = if self.dice.below(3) == 0 { Command::Leave } else { Command::Rotate };
            self.robot.command(now, MemberCommand::Command(command));
        }
    }
}

impl Node for Churner {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        self.robot.handle(now, from, datagram);
        self.drain(now);
    }

    fn command(&mut self, _now: Now, _command: MemberCommand) {}

    fn timeout(&self) -> Option<Monotonic> {
        Some(self.robot.timeout().map_or(self.next, |at| at.min(self.next)))
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.next <= now.monotonic {
            self.next = now.monotonic + EVERY;
            self.act(now);
        }
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

const EVERY: Duration = Duration::from_millis(20);
