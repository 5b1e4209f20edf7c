//! Has two cards under one short id, and shows each half of the others another one.

use std::collections::BTreeSet;
use std::time::Duration;

use sealcast_keys::contributory::misbehaving::{Collision, MessageKind};
use sealcast_sim::{Effect, Reach};
use sealcast_wire::Now;

use super::liar::{Inside, Lies};
use super::{as_open, open_message};
use crate::member::MemberEvent;
use crate::scenarios::contributory::Robot;

/// See the module.
pub(super) struct Twin {
    _collision: Collision,
    /// Who is shown the card with which it asks to be let in, and who the other one.
    halves: [BTreeSet<usize>; 2],
}

impl Twin {
    /// Its member is made after the collision was planted.
    pub(super) fn new(collision: Collision, others: &BTreeSet<usize>) -> Twin {
        let half = |odd: usize| others.iter().copied().filter(|m| m % 2 == odd).collect();
        Twin { _collision: collision, halves: [half(0), half(1)] }
    }

    fn show(&self, member: &mut Inside<Robot>, half: usize, datagram: &[u8]) {
        let to_one = |to: &usize| Effect::Send { to: Reach::One(*to), datagram: datagram.to_vec() };
        member.effects.extend(self.halves[half].iter().map(to_one));
    }
}

impl Lies<Robot> for Twin {
    fn effect(&mut self, _now: Now, member: &mut Inside<Robot>, effect: Effect<MemberEvent>) {
        let Effect::Send { datagram, .. } = effect else { return };
        let word =
            open_message(&datagram).and_then(|sealed_message| member.robot.group().keys().inner().read(sealed_message));
        match word {
            Some(MessageKind::Join(_) | MessageKind::Give) => self.show(member, 0, &datagram),
            _ => member.send(datagram),
        }
    }

    fn act(&mut self, now: Now, member: &mut Inside<Robot>) {
        let card = member.robot.with_keys(now, |keys| keys.twin());
        self.show(member, 1, &as_open(&card));
    }
}

/// From one showing of the other card to the next.
pub(super) const EVERY: Duration = Duration::from_millis(100);
