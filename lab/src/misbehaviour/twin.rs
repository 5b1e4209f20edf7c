//! Has two cards under one short id, and shows each half of the others another one.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use sealcast_keys::contributory::misbehaving::{Collision, MessageKind};
use sealcast_sim::{Effect, Node, Reach};
use sealcast_wire::{Address, Monotonic, Now};

use super::{as_open, open_message};
use crate::member::{MemberCommand, MemberEvent};
use crate::scenarios::contributory::Robot;

/// See the module.
pub(super) struct Twin {
    robot: Robot,
    _collision: Collision,
    /// Who is shown the card with which it asks to be let in, and who the other one.
    halves: [BTreeSet<usize>; 2],
    next: Monotonic,
    effects: VecDeque<Effect<MemberEvent>>,
}

impl Twin {
    /// `robot` was made after the collision was planted.
    pub(super) fn new(now: Now, robot: Robot, collision: Collision, others: &BTreeSet<usize>) -> Twin {
        let half = |odd: usize| others.iter().copied().filter(|m| m % 2 == odd).collect();
        let halves = [half(0), half(1)];
        Twin { robot, _collision: collision, halves, next: now.monotonic, effects: VecDeque::new() }
    }

    fn drain(&mut self) {
        while let Some(effect) = self.robot.poll() {
            let Effect::Send { datagram, .. } = effect else { continue };
            let word = open_message(&datagram)
                .and_then(|sealed_message| self.robot.group().keys().inner().read(sealed_message));
            match word {
                Some(MessageKind::Join(_) | MessageKind::Give) => self.show(0, &datagram),
                _ => self.effects.push_back(Effect::Send { to: Reach::All, datagram }),
            }
        }
    }

    fn show(&mut self, half: usize, datagram: &[u8]) {
        let to_one = |to: &usize| Effect::Send { to: Reach::One(*to), datagram: datagram.to_vec() };
        self.effects.extend(self.halves[half].iter().map(to_one));
    }
}

impl Node for Twin {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
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
            let card = self.robot.with_keys(now, |keys| keys.twin());
            self.show(1, &as_open(&card));
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

const EVERY: Duration = Duration::from_millis(100);
