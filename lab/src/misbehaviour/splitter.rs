//! Says the truth to one of the others and a lie to the rest, each signed: in a round, or in the confirmation.
//!
//! It agrees on its first key with the others as anybody does.

use std::collections::BTreeSet;

use sealcast_keys::contributory::misbehaving::Lie;
use sealcast_sim::{Effect, Reach};
use sealcast_wire::Now;

use super::liar::{Inside, Lies};
use super::{as_open, open_message};
use crate::member::MemberEvent;
use crate::scenarios::contributory::Robot;

/// See the module.
pub(super) struct Splitter {
    lie: Lie,
    told_truth: usize,
    others: BTreeSet<usize>,
    in_group: bool,
}

impl Splitter {
    pub(super) fn new(lie: Lie, told_truth: usize, others: BTreeSet<usize>) -> Splitter {
        Splitter { lie, told_truth, others, in_group: false }
    }

    fn say(&self, now: Now, member: &mut Inside<Robot>, datagram: Vec<u8>) {
        let lie = open_message(&datagram)
            .filter(|_| self.in_group)
            .and_then(|sealed_message| member.robot.with_keys(now, |keys| keys.retell(sealed_message, self.lie)));
        let Some(lie) = lie.map(|sealed_message| as_open(&sealed_message)) else { return member.send(datagram) };
        for &to in &self.others {
            let datagram = if to == self.told_truth { datagram.clone() } else { lie.clone() };
            member.effects.push_back(Effect::Send { to: Reach::One(to), datagram });
        }
    }
}

impl Lies<Robot> for Splitter {
    fn effect(&mut self, now: Now, member: &mut Inside<Robot>, effect: Effect<MemberEvent>) {
        match effect {
            Effect::Send { datagram, .. } => self.say(now, member, datagram),
            Effect::Tell(MemberEvent::Installed(epoch)) => self.in_group |= epoch.view.members.len() > 2,
            Effect::Tell(_) | Effect::Store { .. } => {}
        }
    }
}
