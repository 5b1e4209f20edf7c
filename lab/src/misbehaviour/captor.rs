//! Answers each JOIN by a proposal of its own, on an epoch that nobody can check, and goes through with it.
//!
//! One of a single target hears and speaks to that one alone: it learns nothing, of its own eviction neither.

use std::sync::Arc;

use sealcast::group::Epoch;
use sealcast_keys::contributory::misbehaving::{Claim, MessageKind};
use sealcast_sim::{Effect, Node as _, Reach};
use sealcast_wire::{Address, CertHash, Now};

use super::liar::{Inside, Lies};
use super::{evicted, open_message};
use crate::member::MemberEvent;
use crate::scenarios::contributory::Robot;

/// See the module. Its member keeps none of the rules that protect who follows a proposal.
pub(super) struct Captor {
    target: Option<(usize, CertHash)>,
    claim: Claim,
    /// Where the target's messages come from, once it was heard.
    source: Option<Address>,
    keys: Vec<Arc<Epoch>>,
}

impl Captor {
    pub(super) fn new(target: Option<(usize, CertHash)>, claim: Claim) -> Captor {
        Captor { target, claim, source: None, keys: Vec::new() }
    }
}

impl Lies<Robot> for Captor {
    fn hear(&mut self, now: Now, member: &mut Inside<Robot>, from: Address, datagram: &mut [u8]) {
        let read = evicted::read(&self.keys, datagram);
        member.effects.extend(read.into_iter().map(Effect::Tell));
        let word =
            open_message(datagram).and_then(|sealed_message| member.robot.group().keys().inner().read(sealed_message));
        let whom = self.target.map(|(_, cert)| cert);
        let joins = matches!(word, Some(MessageKind::Join(cert)) if whom.is_none_or(|whom| cert == whom));
        if joins && self.target.is_some() {
            self.source = Some(from);
        }
        if self.target.is_some() && self.source.as_ref() != Some(&from) {
            return;
        }
        member.robot.handle(now, from, datagram);
        if joins {
            member.robot.with_keys(now, |keys| keys.capture(now, whom, self.claim));
        }
    }

    fn effect(&mut self, _now: Now, member: &mut Inside<Robot>, effect: Effect<MemberEvent>) {
        match effect {
            Effect::Send { datagram, .. } => {
                let to = self.target.map_or(Reach::All, |(node, _)| Reach::One(node));
                member.effects.push_back(Effect::Send { to, datagram });
            }
            Effect::Tell(MemberEvent::Keyed { ref epoch, .. }) => {
                self.keys.push(epoch.clone());
                member.effects.push_back(effect);
            }
            Effect::Tell(_) | Effect::Store { .. } => {}
        }
    }
}
