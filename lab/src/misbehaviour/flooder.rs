//! Sends as much as it can: from outside what it heard, garbage and near-misses; from inside its own
//! words many times over.

use std::collections::VecDeque;
use std::time::Duration;

use sealcast_sim::dice::Dice;
use sealcast_sim::{Effect, Node, Reach};
use sealcast_wire::frame::{KIND_OPEN, MAGIC};
use sealcast_wire::{Address, Monotonic, Now};

use crate::member::{MemberCommand, MemberEvent};
use crate::scenarios::contributory::{GROUP, Robot, identity};

/// The outsider.
pub(super) struct Flooder {
    dice: Dice,
    heard: Vec<Vec<u8>>,
    next: Monotonic,
    effects: VecDeque<Effect<MemberEvent>>,
}

impl Flooder {
    pub(super) fn new(now: Now, dice: Dice) -> Flooder {
        Flooder { dice, heard: Vec::new(), next: now.monotonic + EVERY, effects: VecDeque::new() }
    }
}

impl Node for Flooder {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, _now: Now, _from: Address, datagram: &mut [u8]) {
        if self.heard.len() < HEARD_MAX {
            self.heard.push(datagram.to_vec());
        }
    }

    fn command(&mut self, _now: Now, _command: MemberCommand) {}

    fn timeout(&self) -> Option<Monotonic> {
        Some(self.next)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.next = now.monotonic + EVERY;
        for _ in 0..BURST {
            let datagram = if self.heard.is_empty() || self.dice.below(2) == 0 {
                let garbage = (0..64).map(|_| self.dice.bits() as u8);
                [MAGIC, KIND_OPEN].into_iter().chain(garbage).collect()
            } else {
                self.heard[self.dice.index(self.heard.len())].clone()
            };
            self.effects.push_back(Effect::Send { to: Reach::All, datagram });
        }
    }

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        self.effects.pop_front()
    }
}

/// The member.
pub(super) struct Inside {
    robot: Robot,
    dice: Dice,
    effects: VecDeque<Effect<MemberEvent>>,
}

impl Inside {
    pub(super) fn new(robot: Robot, dice: Dice) -> Inside {
        Inside { robot, dice, effects: VecDeque::new() }
    }

    /// Under the bootstrap key, which every member holds, and without meaning.
    fn sealed_message(&mut self) -> Vec<u8> {
        let nonce = std::array::from_fn(|_| self.dice.bits() as u8);
        let kind = self.dice.below(16) as u8;
        let message: Vec<u8> = std::iter::once(kind).chain((0..100).map(|_| self.dice.bits() as u8)).collect();
        let sealed = identity(0).bootstrap_key(GROUP).seal(nonce, &message);
        [&[MAGIC, KIND_OPEN][..], &sealed].concat()
    }
}

impl Node for Inside {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        self.robot.handle(now, from, datagram);
    }

    fn command(&mut self, now: Now, command: MemberCommand) {
        self.robot.command(now, command);
    }

    fn timeout(&self) -> Option<Monotonic> {
        self.robot.timeout()
    }

    fn handle_timeout(&mut self, now: Now) {
        self.robot.handle_timeout(now);
    }

    fn stored(&mut self, now: Now) {
        self.robot.stored(now);
    }

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        if let Some(effect) = self.effects.pop_front() {
            return Some(effect);
        }
        let effect = self.robot.poll()?;
        if let Effect::Send { to, datagram } = &effect {
            for _ in 0..REPETITIONS {
                self.effects.push_back(Effect::Send { to: *to, datagram: datagram.clone() });
                let datagram = self.sealed_message();
                self.effects.push_back(Effect::Send { to: Reach::All, datagram });
            }
        }
        Some(effect)
    }
}

const EVERY: Duration = Duration::from_millis(2);
const BURST: u32 = 20;
const HEARD_MAX: usize = 256;
const REPETITIONS: u32 = 10;
