//! Tells half of the others another story: two machines of one process, one for each half.
//!
//! Both start from the same seed, so both are the same member and incarnation; one of them misses a word
//! now and then, which moves its chance on, and their contributions differ.

use std::collections::VecDeque;

use sealcast_sim::{Effect, Node, Reach};
use sealcast_wire::{Address, Monotonic, Now};

use crate::member::{MemberCommand, MemberEvent};
use crate::scenarios::contributory::Robot;

/// See the module.
pub(super) struct Equivocator {
    faces: [Robot; 2],
    effects: VecDeque<Effect<MemberEvent>>,
    heard: u32,
}

impl Equivocator {
    pub(super) fn new(one: Robot, other: Robot) -> Equivocator {
        Equivocator { faces: [one, other], effects: VecDeque::new(), heard: 0 }
    }

    fn drain(&mut self) {
        for (face, robot) in self.faces.iter_mut().enumerate() {
            while let Some(effect) = robot.poll() {
                match effect {
                    Effect::Send { datagram, .. } => {
                        for to in (face..HALF_MAX).step_by(2) {
                            self.effects.push_back(Effect::Send { to: Reach::One(to), datagram: datagram.clone() });
                        }
                    }
                    // What it tells its own application is no matter; it stores for nobody.
                    Effect::Tell(_) | Effect::Store { .. } => {}
                }
            }
        }
    }
}

impl Node for Equivocator {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        self.heard += 1;
        // One face misses a word now and then, and both drift apart for good.
        if self.heard % 5 != 1 {
            self.faces[1].handle(now, from, &mut datagram.to_vec());
        }
        self.faces[0].handle(now, from, datagram);
        self.drain();
    }

    fn command(&mut self, now: Now, command: MemberCommand) {
        for robot in &mut self.faces {
            robot.command(now, command.clone());
        }
        self.drain();
    }

    fn timeout(&self) -> Option<Monotonic> {
        self.faces.iter().filter_map(Node::timeout).min()
    }

    fn handle_timeout(&mut self, now: Now) {
        for robot in &mut self.faces {
            if robot.timeout().is_some_and(|t| t <= now.monotonic) {
                robot.handle_timeout(now);
            }
        }
        self.drain();
    }

    fn stored(&mut self, now: Now) {
        for robot in &mut self.faces {
            robot.stored(now);
        }
        self.drain();
    }

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        let effect = self.effects.pop_front();
        if effect.is_none() {
            self.drain();
        }
        effect.or_else(|| self.effects.pop_front())
    }
}

/// Members that it speaks to.
const HALF_MAX: usize = 8;
