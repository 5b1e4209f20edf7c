//! Hands on what others say without the newer versions of the wire, which breaks their signatures; and proposes, under its own
//! signature, epochs of a lower version than all members speak.

use std::collections::VecDeque;
use std::time::Duration;

use sealcast_sim::{Effect, Node, Reach};
use sealcast_wire::{Address, Monotonic, Now};

use super::{as_open, open_message};
use crate::member::{MemberCommand, MemberEvent};
use crate::scenarios::contributory::Robot;

/// See the module.
pub(super) struct Downgrader {
    robot: Robot,
    next: Monotonic,
    effects: VecDeque<Effect<MemberEvent>>,
}

impl Downgrader {
    pub(super) fn new(now: Now, robot: Robot) -> Downgrader {
        Downgrader { robot, next: now.monotonic + EVERY, effects: VecDeque::new() }
    }

    fn say(&mut self, sealed_message: &[u8]) {
        self.effects.push_back(Effect::Send { to: Reach::All, datagram: as_open(sealed_message) });
    }

    fn drain(&mut self) {
        while let Some(effect) = self.robot.poll() {
            match effect {
                Effect::Send { .. } => self.effects.push_back(effect),
                Effect::Tell(_) | Effect::Store { .. } => {}
            }
        }
    }
}

impl Node for Downgrader {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        let sealed_message = open_message(datagram).map(<[u8]>::to_vec);
        let stripped = sealed_message.and_then(|it| self.robot.with_keys(now, |keys| keys.strip_versions(&it)));
        if let Some(stripped) = stripped {
            self.say(&stripped);
        }
        self.robot.handle(now, from, datagram);
        self.drain();
    }

    fn command(&mut self, now: Now, command: MemberCommand) {
        self.robot.command(now, command);
        self.drain();
    }

    fn timeout(&self) -> Option<Monotonic> {
        Some(self.robot.timeout().map_or(self.next, |at| at.min(self.next)))
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.next <= now.monotonic {
            self.next = now.monotonic + EVERY;
            let is_alone = self.robot.group().view().is_none_or(|view| view.members.len() < 2);
            let claim = (!is_alone).then(|| self.robot.with_keys(now, |keys| keys.claim_version(1))).flatten();
            if let Some(claim) = claim {
                self.say(&claim);
            }
        }
        self.robot.handle_timeout(now);
        self.drain();
    }

    fn stored(&mut self, now: Now) {
        self.robot.stored(now);
        self.drain();
    }

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        self.effects.pop_front()
    }
}

const EVERY: Duration = Duration::from_millis(500);
