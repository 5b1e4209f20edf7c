//! Sends again what it heard: some at once, some much later, all of it in the end.

use std::collections::VecDeque;
use std::time::Duration;

use sealcast_sim::dice::{Chance, Dice};
use sealcast_sim::{Effect, Node, Reach};
use sealcast_wire::{Address, Monotonic, Now};

use crate::member::{MemberCommand, MemberEvent};

/// See the module.
pub(super) struct Replayer {
    dice: Dice,
    heard: VecDeque<Vec<u8>>,
    next: Monotonic,
    effects: VecDeque<Effect<MemberEvent>>,
}

impl Replayer {
    pub(super) fn new(now: Now, dice: Dice) -> Replayer {
        Replayer { dice, heard: VecDeque::new(), next: now.monotonic + EVERY, effects: VecDeque::new() }
    }
}

impl Node for Replayer {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, _now: Now, _from: Address, datagram: &mut [u8]) {
        if self.dice.happens(AT_ONCE) {
            self.effects.push_back(Effect::Send { to: Reach::All, datagram: datagram.to_vec() });
        }
        if self.heard.len() == HEARD_MAX {
            self.heard.remove(self.dice.index(HEARD_MAX));
        }
        self.heard.push_back(datagram.to_vec());
    }

    fn command(&mut self, _now: Now, _command: MemberCommand) {}

    fn timeout(&self) -> Option<Monotonic> {
        Some(self.next)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.next = now.monotonic + EVERY;
        if !self.heard.is_empty() {
            let datagram = self.heard[self.dice.index(self.heard.len())].clone();
            self.effects.push_back(Effect::Send { to: Reach::All, datagram });
        }
    }

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        self.effects.pop_front()
    }
}

const AT_ONCE: Chance = Chance(300_000);
const EVERY: Duration = Duration::from_millis(3);
const HEARD_MAX: usize = 4096;
