//! Answers each JOIN by a proposal of its own, on an epoch that nobody can check, and goes through with it.
//!
//! One of a single target hears and speaks to that one alone: it learns nothing, of its own eviction neither.

use std::collections::VecDeque;
use std::sync::Arc;

use sealcast::group::Epoch;
use sealcast_keys::contributory::misbehaving::{Claim, MessageKind};
use sealcast_sim::{Effect, Node, Reach};
use sealcast_wire::{Address, CertHash, Monotonic, Now};

use super::{evicted, open_message};
use crate::member::{MemberCommand, MemberEvent};
use crate::scenarios::contributory::Robot;

/// See the module.
pub(super) struct Captor {
    robot: Robot,
    target: Option<(usize, CertHash)>,
    claim: Claim,
    /// Where the target's messages come from, once it was heard.
    source: Option<Address>,
    keys: Vec<Arc<Epoch>>,
    effects: VecDeque<Effect<MemberEvent>>,
}

impl Captor {
    /// `robot` keeps none of the rules that protect who follows a proposal.
    pub(super) fn new(robot: Robot, target: Option<(usize, CertHash)>, claim: Claim) -> Captor {
        Captor { robot, target, claim, source: None, keys: Vec::new(), effects: VecDeque::new() }
    }

    fn drain(&mut self) {
        while let Some(effect) = self.robot.poll() {
            match effect {
                Effect::Send { datagram, .. } => {
                    let to = self.target.map_or(Reach::All, |(node, _)| Reach::One(node));
                    self.effects.push_back(Effect::Send { to, datagram });
                }
                Effect::Tell(MemberEvent::Keyed { epoch, passed }) => {
                    self.keys.push(epoch.clone());
                    self.effects.push_back(Effect::Tell(MemberEvent::Keyed { epoch, passed }));
                }
                Effect::Tell(_) | Effect::Store { .. } => {}
            }
        }
    }
}

impl Node for Captor {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        let read = evicted::read(&self.keys, datagram);
        self.effects.extend(read.into_iter().map(Effect::Tell));
        let word =
            open_message(datagram).and_then(|sealed_message| self.robot.group().keys().inner().read(sealed_message));
        let whom = self.target.map(|(_, cert)| cert);
        let joins = matches!(word, Some(MessageKind::Join(cert)) if whom.is_none_or(|whom| cert == whom));
        if joins && self.target.is_some() {
            self.source = Some(from);
        }
        if self.target.is_some() && self.source.as_ref() != Some(&from) {
            return;
        }
        self.robot.handle(now, from, datagram);
        if joins {
            self.robot.with_keys(now, |keys| keys.capture(now, whom, self.claim));
        }
        self.drain();
    }

    fn command(&mut self, now: Now, command: MemberCommand) {
        self.robot.command(now, command);
        self.drain();
    }

    fn timeout(&self) -> Option<Monotonic> {
        self.robot.timeout()
    }

    fn handle_timeout(&mut self, now: Now) {
        self.robot.handle_timeout(now);
        self.drain();
    }

    fn stored(&mut self, now: Now) {
        self.robot.stored(now);
        self.drain();
    }

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        if self.effects.is_empty() {
            self.drain();
        }
        self.effects.pop_front()
    }
}
