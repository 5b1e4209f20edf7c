//! A member whose program was changed, for tests and simulations elsewhere (feature `misbehaving`).
//!
//! What such a program says and ours does not is made with the codec and the keys of a member, so that it is well-formed.
//! [`Rule`] names rules that a planted fault leaves out, to show that somebody would notice.

use std::collections::BTreeSet;

use sealcast_wire::{CertHash, EpochId, MemberId};

use super::Center;
use super::message::{Accept, Ack, Beacon, Challenge, Content, Gone, Message, PART_SLOTS, Part, Propose};
use super::pair::PairKey;

/// What a message under the bootstrap key is, as far as it matters to who misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// Somebody asks to be let in, with this registration.
    Join(CertHash),
    /// A leader says who shall be in the next epoch.
    Propose,
    /// A leader says to this one that it is out.
    Dismiss(CertHash),
    /// Anything else.
    Other,
}

/// A rule that a planted fault leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// ACCEPT and ACK are under their author's pair key.
    Tags,
    /// Whoever is let in asks the centre whether its leader is revoked.
    Check,
    /// An answer of the centre is under a key that only the centre and who asked know.
    Answers,
    /// Whoever was revoked stays so.
    Revocations,
    /// Who never agrees with its leader on how a view ended is left out.
    Ends,
}

impl Center {
    /// What a message says; `None` if it is not under our bootstrap key.
    pub fn read(&self, bootstrap_sealed: &[u8]) -> Option<MessageKind> {
        Some(match self.bootstrap_open(bootstrap_sealed)? {
            Message::Join(m) => MessageKind::Join(m.registration.hash()),
            Message::Propose(_) => MessageKind::Propose,
            Message::Dismiss(m) => MessageKind::Dismiss(m.to.cert),
            _ => MessageKind::Other,
        })
    }

    /// Says to everybody in our view that we lead it: by our own registration, and by one that grants us the right.
    pub fn usurp(&mut self) {
        let Some(installed) = &self.installed else { return };
        let (base, slots) = (installed.epoch, installed.slots.clone());
        let mut entitled = (*self.registration).clone();
        if let Some(leader) = self.leader().and_then(|it| self.people.get(&it.cert)) {
            entitled.rights = leader.registration.rights.clone();
        }
        let others: Vec<MemberId> = slots.iter().filter(|it| **it != self.me).copied().collect();
        let installed_slots = slots.clone();
        for registration in [self.registration.clone(), entitled.into()] {
            let leader = MemberId { cert: registration.hash(), ..self.me };
            let run = leader.incarnation;
            let epoch = EpochId { counter: base.counter + 1, hash: 1 };
            self.send(&Message::Beacon(Beacon {
                registration: registration.clone(),
                run,
                epoch,
                size: 60,
                reliable: self.config.reliable,
            }));
            let gone = vec![(0, Gone::Revoked)];
            let slots = [leader].into_iter().chain(others.iter().copied()).collect();
            let (counter, lock) = (base.counter + 1, [0; 32]);
            let content = Content { leader, base, counter, attempt: 1, lock, gone, slots };
            for to in &others {
                let key = self.key_at_hand(to);
                let (to, registration, salt) = (*to, registration.clone(), [1; 16]);
                let mut challenge = Challenge { to, registration, run, salt, token: [2; 16], tag: [0; 16] };
                challenge.tag = key.challenge(&challenge);
                self.send(&Message::Challenge(challenge));
            }
            let signer = self.signer.clone();
            for base in [Some(&installed_slots[..]), None] {
                self.send(&Message::Propose(content.say(base, &signer)));
            }
            for (part, slots) in (0..).zip(content.slots.chunks(PART_SLOTS)) {
                let slots = slots.iter().map(|it| (*it, [1; 16])).collect();
                let mut it = Part { proposal: content.id(), part, slots, signature: [0; 64] };
                it.signature = signer.sign(&it.statement());
                self.send(&Message::Roster(it));
            }
        }
    }

    /// What a thief makes of another one's CHALLENGE, ACCEPT or PROPOSE: it accepts and acknowledges in that one's name,
    /// and in its own.
    pub fn steal(&mut self, bootstrap_sealed: &[u8], whom: CertHash) {
        let (victim, to, token) = match self.bootstrap_open(bootstrap_sealed) {
            Some(Message::Challenge(m)) => {
                (m.to, MemberId { cert: m.registration.hash(), incarnation: m.run }, m.token)
            }
            Some(Message::Accept(m)) => (m.from, m.to, m.token),
            Some(Message::Propose(m)) => return self.acknowledge_for(&m, |it| it.cert == whom, [0; 32]),
            _ => return,
        };
        if victim.cert != whom {
            return;
        }
        let key = self.key_at_hand(&to);
        for from in [victim, self.me] {
            let mut accept = Accept { from, to, token, epoch: EpochId::default(), tag: [0; 16] };
            accept.tag = key.accept(&accept);
            self.send(&Message::Accept(accept));
        }
    }

    /// Acknowledges a proposal in the names of all in it, once this acknowledgement of ours was sent.
    pub fn acknowledge_falsely(&mut self, proposal: &[u8], ack: &[u8]) {
        let (Some(Message::Propose(m)), Some(Message::Ack(ack))) =
            (self.bootstrap_open(proposal), self.bootstrap_open(ack))
        else {
            return;
        };
        let me = self.me;
        if m.id() == ack.proposal && ack.from == me {
            self.acknowledge_for(&m, |it| *it != me, ack.cut);
        }
    }

    /// Our own acknowledgement, of another end of the view; `None` if it is none of ours.
    pub fn misjudge(&mut self, bootstrap_sealed: &[u8]) -> Option<Vec<u8>> {
        let Some(Message::Ack(mut ack)) = self.bootstrap_open(bootstrap_sealed) else { return None };
        let key = self.shared_with(&ack.to)?;
        ack.cut = [9; 32];
        ack.tag = key.ack(&ack);
        let nonce = *bootstrap_sealed.last_chunk()?;
        Some(self.bootstrap_key.seal(nonce, &Message::Ack(ack).encode()))
    }

    fn acknowledge_for(&mut self, m: &Propose, whose: impl Fn(&MemberId) -> bool, cut: [u8; 32]) {
        let (to, proposal, key) = (m.leader, m.id(), self.key_at_hand(&m.leader));
        let slots = self.installed.iter().flat_map(|it| &it.slots);
        let came = m.came.iter().flatten().map(|(_, who)| who);
        let named: BTreeSet<MemberId> = slots.chain(came).filter(|it| whose(it) && **it != to).copied().collect();
        for from in named {
            let mut ack = Ack { from, to, proposal, base: m.base, cut, tag: [0; 16] };
            ack.tag = key.ack(&ack);
            self.send(&Message::Ack(ack));
        }
    }

    /// A key that we share with somebody, or the one by which it would talk to us if it led.
    fn key_at_hand(&self, other: &MemberId) -> PairKey {
        self.shared_with(other).unwrap_or_else(|| {
            let sigma = self.config.principal.long_term.receives(&other.cert.0, &self.me.cert.0, &[1; 16]);
            PairKey::new(&self.group, &sigma, other, &self.me)
        })
    }

    /// Whether a planted fault leaves this rule out.
    pub(super) fn lacks(&self, rule: Rule) -> bool {
        self.config.without.contains(&rule)
    }

    fn bootstrap_open(&self, bootstrap_sealed: &[u8]) -> Option<Message> {
        Message::decode(&self.bootstrap_key.open(bootstrap_sealed).ok()?).ok()
    }
}
