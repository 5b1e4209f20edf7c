//! A member whose program was changed, for tests and simulations elsewhere (feature `misbehaving`).
//!
//! What such a program says and ours does not is made with the codec and the keys of a member, so that it is well-formed and
//! signed. [`Rule`] names rules that a planted fault leaves out, to show that somebody would notice.

use std::cell::Cell;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use sealcast_wire::{CertHash, EpochId, Now, limits};

use super::Contributory;
use super::attempt::digest_r1;
use super::message::{Base, Card, Kind, Message, Object, Propose, ShortId, signed};
use super::proposal::Proposal;
use super::version::Versions;

/// What a message under the bootstrap key is, as far as it matters to who misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// Somebody wants in, with this certificate.
    Join(CertHash),
    /// A card or a statement is handed on.
    Give,
    /// A message of a round, or a confirmation.
    Round,
    /// Anything else.
    Other,
}

/// A number that an epoch is said to have, which nobody can check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// A first epoch, of the greatest number that those may have.
    First,
    /// One that follows on this one, of two members.
    After(u32),
}

/// What a liar changes in a message of its own before it signs it anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lie {
    /// In a JOIN: the number of the epoch that it comes from.
    From(u32),
    /// In R1: another X, proved like the first.
    Contribution,
    /// In R2: what was heard.
    Heard,
    /// In R2: a share that is none.
    Share,
    /// In a confirmation: the MAC of the group's key.
    Confirmation,
    /// In a confirmation: the epoch's hash.
    Epoch,
    /// In a confirmation: the readers' public keys, which are meant for those who only write.
    Publics,
}

/// A rule that a planted fault leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// An epoch that one follows on is vouched for by two of its members.
    Proof,
    /// Whoever is in no group waits for others that are heard.
    Caution,
    /// A wrong confirmation stops nobody, and its author is left out of the next epoch.
    Liars,
    /// A certificate with two cards under one short id is left out.
    Twins,
    /// One certificate's holder changes the group so often and no more.
    Allowance,
}

/// While it lives, all cards of one certificate have one short id in this thread, as if 2³² hashes had been tried.
#[derive(Debug)]
pub struct Collision(());

impl Collision {
    /// Of this certificate.
    pub fn plant(cert: CertHash) -> Collision {
        COLLIDES.set(Some(cert));
        Collision(())
    }
}

impl Drop for Collision {
    fn drop(&mut self) {
        COLLIDES.set(None);
    }
}

thread_local! {
    static COLLIDES: Cell<Option<CertHash>> = const { Cell::new(None) };
}

pub(super) fn collides(cert: &CertHash) -> Option<ShortId> {
    COLLIDES.get().filter(|c| c == cert).map(|_| ShortId([0x1e; 8]))
}

impl Contributory {
    /// What a message says; `None` if it is not under our bootstrap key.
    pub fn read(&self, bootstrap_sealed: &[u8]) -> Option<MessageKind> {
        Some(match self.bootstrap_open(bootstrap_sealed)? {
            Message::Join(m) => MessageKind::Join(m.card.cert),
            Message::Give(_) => MessageKind::Give,
            Message::R1(_) | Message::R2(_) | Message::Kc(_) => MessageKind::Round,
            _ => MessageKind::Other,
        })
    }

    /// Proposes an epoch of ours and of all, or the newest run of one certificate, that want in; and goes through with it.
    pub fn capture(&mut self, now: Now, whom: Option<CertHash>, claim: Claim) {
        let of = |s: &&ShortId| whom.is_none() || self.people.get(s).map(|p| p.id.cert) == whom;
        let mut wanting: Vec<ShortId> = self.wanting.keys().filter(of).copied().collect();
        if whom.is_some() {
            wanting.sort_by_key(|s| self.wanting.get(s).map(|w| w.last));
            wanting = wanting.split_off(wanting.len().saturating_sub(1));
            wanting.sort();
        }
        wanting.truncate(limits::MEMBERS_MAX - 1);
        if wanting.is_empty() {
            return;
        }
        self.give_own_card(now);
        let base = match claim {
            Claim::First => None,
            Claim::After(counter) => Some(Base { counter, size: 2, hash: self.rng.next_u64() }),
        };
        let mut content = Propose {
            counter: base.map_or(limits::FIRST_COUNTER_MAX, Base::next_counter),
            attempt: 1,
            version: self.version_of(std::iter::once(&self.me.short).chain(&wanting)),
            kind: Kind::Setup,
            base,
            hint: self.statements.hint(),
            seats: std::iter::once(self.me.short).chain(wanting).collect(),
            signature: [0; 64],
        };
        let nonce = self.nonce();
        let instance = Proposal::instance(&self.group, &nonce, &content);
        content.signature = self.key.sign(&instance);
        let message = Message::Propose(content.clone());
        let bootstrap_sealed = self.bootstrap_key.seal(nonce, &message.encode());
        self.send_bootstrap(&message, bootstrap_sealed.clone());
        self.adopt(now, Proposal { content, instance, bootstrap_sealed, sent: now.monotonic });
    }

    /// A message of ours with this lie in it, signed anew; `None` if there is no place for it.
    pub fn retell(&mut self, bootstrap_sealed: &[u8], lie: Lie) -> Option<Vec<u8>> {
        let mut message = self.bootstrap_open(bootstrap_sealed)?;
        match (&mut message, lie) {
            (Message::Join(m), Lie::From(counter)) => {
                (m.epoch, m.size) = (EpochId { counter, hash: 5 }, 1);
            }
            (Message::R1(m), Lie::Contribution) => {
                let attempt = self.attempt.as_ref().or(self.last.as_ref())?;
                let mut same_each_time = ChaCha20Rng::from_seed(attempt.proposal.instance);
                *m.contributions.first_mut()? = attempt.other_contribution(&mut same_each_time)?;
            }
            (Message::R2(m), Lie::Heard) => m.heard[0] ^= 1,
            (Message::R2(m), Lie::Share) => m.shares.first_mut()?.get_mut(..32)?.fill(0),
            (Message::Kc(m), Lie::Confirmation) => m.rings.first_mut()?.0[0] ^= 1,
            (Message::Kc(m), Lie::Epoch) => m.epoch ^= 1,
            (Message::Kc(m), Lie::Publics) if !m.publics.is_empty() => m.publics.iter_mut().for_each(|k| k[0] ^= 1),
            _ => return None,
        }
        let body = message.body();
        let bound = self.attempt.as_ref().or(self.last.as_ref()).and_then(|a| {
            let formation = a.formation.as_ref()?;
            Some((a.proposal.instance, formation.roster, self.statements.hash()))
        });
        let of_round = |label: &str| {
            let (instance, roster, state) = bound?;
            Some(self.key.sign(&signed(label, &self.group, &[&instance, &roster, &state], &body)))
        };
        match &mut message {
            Message::Join(m) => m.signature = self.key.sign(&signed("sealcast/v1/join", &self.group, &[], &body)),
            Message::R1(m) => {
                m.signature = self.config.identity.key().sign(&digest_r1(&self.group, &self.me.id, &body));
            }
            Message::R2(m) => m.signature = of_round("sealcast/v1/r2")?,
            Message::Kc(m) => m.signature = of_round("sealcast/v1/kc")?,
            _ => return None,
        }
        let nonce = self.nonce();
        Some(self.bootstrap_key.seal(nonce, &message.encode()))
    }

    /// A proposal of ours of the epoch that follows on ours, for all of its members, that is said to be of this version of the
    /// wire; `None` before the first.
    pub fn claim_version(&mut self, version: u8) -> Option<Vec<u8>> {
        let (base, me) = (self.base()?, self.me.short);
        let people = self.installed.iter().flat_map(|i| &i.agreed.people);
        let mut seats: Vec<ShortId> = people.map(|p| p.short).filter(|s| *s != me).collect();
        seats.sort_unstable();
        seats.insert(0, me);
        let mut content = Propose {
            counter: base.next_counter(),
            attempt: 1,
            version,
            kind: Kind::Setup,
            base: Some(base),
            hint: self.statements.hint(),
            seats,
            signature: [0; 64],
        };
        let nonce = self.nonce();
        content.signature = self.key.sign(&Proposal::instance(&self.group, &nonce, &content));
        Some(self.bootstrap_key.seal(nonce, &Message::Propose(content).encode()))
    }

    /// What somebody on the road who knows the bootstrap key makes of a JOIN or BEACON: it names the first version alone. `None` if it
    /// names no other one.
    pub fn strip_versions(&mut self, bootstrap_sealed: &[u8]) -> Option<Vec<u8>> {
        let mut message = self.bootstrap_open(bootstrap_sealed)?;
        let versions = match &mut message {
            Message::Join(m) => &mut m.card.versions,
            Message::Beacon(m) => &mut m.versions,
            _ => return None,
        };
        if std::mem::replace(versions, Versions::OURS) == Versions::OURS {
            return None;
        }
        let nonce = self.nonce();
        Some(self.bootstrap_key.seal(nonce, &message.encode()))
    }

    /// Another card of our certificate, handed on. With a [`Collision`] it has our short id.
    pub fn twin(&mut self) -> Vec<u8> {
        let mut card: Card = self.me.card.clone();
        card.incarnation.0[0] ^= 1;
        card.signature = self.config.identity.key().sign(&card.signed(&self.group));
        let nonce = self.nonce();
        self.bootstrap_key.seal(nonce, &Message::Give(vec![Object::Card(Box::new(card))]).encode())
    }

    /// Whether a planted fault leaves this rule out.
    pub(super) fn lacks(&self, rule: Rule) -> bool {
        self.config.without.contains(&rule)
    }

    fn bootstrap_open(&self, bootstrap_sealed: &[u8]) -> Option<Message> {
        Message::decode(&self.bootstrap_key.open(bootstrap_sealed).ok()?).ok()
    }

    fn nonce(&mut self) -> [u8; 12] {
        let mut nonce = [0; 12];
        self.rng.fill_bytes(&mut nonce);
        nonce
    }
}
