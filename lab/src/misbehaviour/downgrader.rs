//! Hands on what others say without the newer versions of the wire, which breaks their signatures; and proposes, under its own
//! signature, epochs of a lower version than all members speak.

use std::time::Duration;

use sealcast_sim::{Effect, Node as _};
use sealcast_wire::{Address, Now};

use super::liar::{Inside, Lies};
use super::{as_open, open_message};
use crate::member::MemberEvent;
use crate::scenarios::contributory::Robot;

/// See the module.
pub(super) struct Downgrader;

impl Lies<Robot> for Downgrader {
    fn hear(&mut self, now: Now, member: &mut Inside<Robot>, from: Address, datagram: &mut [u8]) {
        let sealed_message = open_message(datagram).map(<[u8]>::to_vec);
        let stripped = sealed_message.and_then(|it| member.robot.with_keys(now, |keys| keys.strip_versions(&it)));
        if let Some(stripped) = stripped {
            member.send(as_open(&stripped));
        }
        member.robot.handle(now, from, datagram);
    }

    fn effect(&mut self, _now: Now, member: &mut Inside<Robot>, effect: Effect<MemberEvent>) {
        if matches!(effect, Effect::Send { .. }) {
            member.effects.push_back(effect);
        }
    }

    fn act(&mut self, now: Now, member: &mut Inside<Robot>) {
        let is_alone = member.robot.group().view().is_none_or(|view| view.members.len() < 2);
        let claim = (!is_alone).then(|| member.robot.with_keys(now, |keys| keys.claim_version(1))).flatten();
        if let Some(claim) = claim {
            member.send(as_open(&claim));
        }
    }
}

/// From one proposal to the next.
pub(super) const EVERY: Duration = Duration::from_millis(500);
