//! Asks to be let in, wants new keys, leaves, and comes back as another run, without end.

use std::rc::Rc;
use std::time::Duration;

use sealcast_keys::Command;
use sealcast_keys::contributory::misbehaving::Lie;
use sealcast_sim::dice::Dice;
use sealcast_sim::{Effect, Node as _};
use sealcast_wire::Now;

use super::liar::{Inside, Lies};
use super::{Make, as_open, open_message};
use crate::member::{MemberCommand, MemberEvent};
use crate::scenarios::contributory::Robot;

/// See the module.
pub(super) struct Churner {
    make: Rc<Make>,
    dice: Dice,
    /// How far ahead of the epoch that it was in last each of its runs claims to be.
    ahead: Option<u32>,
    counter: u32,
    in_group: bool,
    out: bool,
}

impl Churner {
    /// Its first run, and how it goes on.
    pub(super) fn new(now: Now, make: Rc<Make>, mut dice: Dice, ahead: Option<u32>) -> (Robot, Churner) {
        let robot = make(now, dice.seed(), &[]);
        (robot, Churner { make, dice, ahead, counter: 0, in_group: false, out: false })
    }

    fn claim(&self, now: Now, robot: &mut Robot, datagram: &[u8]) -> Option<Vec<u8>> {
        let (sealed_message, claim) = (open_message(datagram)?, Lie::From(self.counter.saturating_add(self.ahead?)));
        robot.with_keys(now, |keys| keys.retell(sealed_message, claim)).map(|sealed_message| as_open(&sealed_message))
    }
}

impl Lies<Robot> for Churner {
    fn effect(&mut self, now: Now, member: &mut Inside<Robot>, effect: Effect<MemberEvent>) {
        match effect {
            Effect::Send { to, datagram } => {
                let datagram = self.claim(now, &mut member.robot, &datagram).unwrap_or(datagram);
                member.effects.push_back(Effect::Send { to, datagram });
            }
            Effect::Tell(MemberEvent::Installed(epoch)) => {
                self.in_group = epoch.view.members.len() > 1;
                self.counter = epoch.view.epoch.counter;
            }
            Effect::Tell(MemberEvent::Excluded(_)) => self.out = true,
            Effect::Tell(_) | Effect::Store { .. } => {}
        }
    }

    fn act(&mut self, now: Now, member: &mut Inside<Robot>) {
        if self.out {
            let seed = self.dice.seed();
            member.robot = (self.make)(now, seed, &[]);
            (self.in_group, self.out) = (false, false);
        } else if self.in_group {
            let command = if self.dice.below(3) == 0 { Command::Leave } else { Command::Rotate };
            member.robot.command(now, MemberCommand::Command(command));
        }
    }
}

/// From one thing that it asks for to the next.
pub(super) const EVERY: Duration = Duration::from_millis(20);
