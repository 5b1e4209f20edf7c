//! One epoch's keys for data (D5), and who may do what in it.
//!
//! ```text
//! exporter secret ── MLS-Exporter("sealcast data") ──▶ base             once per epoch of RFC 9420, then it is erased
//! base ── HKDF(cut ‖ cards, "sealcast/v1/mls/data") ──▶ secret of the data epoch ──▶ senders' keys (`crate::epoch`)
//! ```
//! A data epoch begins with each commit, and with each card that tells of a new run of a member: the tree stays then, and so
//! does the base.

use std::collections::BTreeMap;
use std::sync::Arc;

use sealcast_crypto::aead::Suite;
use sealcast_crypto::hash::Transcript;
use sealcast_crypto::identity::Verified;
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::leighton_micali::{Forged, tag, verify};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{Algorithm, OriginKey, PublicKey};
use sealcast_wire::{Access, CertHash, Domain, EpochId, Incarnation, Slot, limits};

use super::engine::Context;
use super::message::Card;
use crate::compartments::Slots;
use crate::epoch::{EpochKeys, Parts};

/// Who may write, of a group that all members read.
pub(super) struct Writers {
    pub(super) group: Arc<str>,
    pub(super) members: BTreeMap<Slot, Arc<Verified>>,
    /// Whether origins are proved by signatures.
    pub(super) signs: bool,
}

impl Access for Writers {
    fn domain(&self, _topic: &str) -> Option<Domain> {
        Some(DATA)
    }

    fn may_publish(&self, slot: Slot, topic: &str) -> bool {
        self.members.get(&slot).is_some_and(|it| it.rights.may_publish(&self.group, topic))
    }

    fn may_subscribe(&self, slot: Slot, topic: &str) -> bool {
        self.members.get(&slot).is_some_and(|it| it.rights.may_subscribe(&self.group, topic))
    }

    fn reads(&self, slot: Slot, domain: Domain) -> bool {
        [Domain::GROUP, DATA].contains(&domain) && self.members.contains_key(&slot)
    }

    fn must_sign(&self, topic: &str) -> bool {
        self.signs || self.members.values().any(|it| !it.rights.may_publish(&self.group, topic))
    }
}

/// What a data epoch is made of, beside the base.
pub(super) struct DataEpoch<'a> {
    pub(super) group: &'a Arc<str>,
    pub(super) suite: Suite,
    pub(super) counter: u32,
    pub(super) context: &'a Context,
    pub(super) cut: &'a [u8; 32],
    pub(super) cards: &'a BTreeMap<CertHash, Card>,
}

impl DataEpoch<'_> {
    /// Names history, cut and runs: members that have the same here have the same keys.
    fn transcript(&self) -> [u8; 32] {
        let mut t = Transcript::new("sealcast/v1/mls/epoch").add(self.group.as_bytes());
        t.absorb(&self.context.group_id);
        t.absorb(&self.context.epoch.to_be_bytes());
        t.absorb(&self.context.transcript_hash);
        t.absorb(&self.context.authenticator);
        t.absorb(&self.counter.to_be_bytes());
        t.absorb(self.cut);
        t.absorb(&(self.cards.len() as u64).to_be_bytes());
        for card in self.cards.values() {
            [&card.id.cert.0[..], &card.id.incarnation.0, &card.run.to_be_bytes(), &card.origin]
                .iter()
                .for_each(|part| t.absorb(part));
        }
        t.finish()
    }

    pub(super) fn id(&self) -> EpochId {
        let hash = self.transcript();
        EpochId { counter: self.counter, hash: u64::from_be_bytes(*hash.first_chunk().expect("it has 32 bytes")) }
    }

    /// The keys of the member at a slot.
    pub(super) fn keys(
        &self,
        base: &Secret<32>,
        me: Slot,
        members: &BTreeMap<Slot, Arc<Verified>>,
        signer: &Arc<OriginKey>,
    ) -> EpochKeys {
        let transcript = self.transcript();
        let secret = |domain: Domain| {
            Some(hkdf(base.expose(), &transcript, &[b"sealcast/v1/mls/data", &domain.0.to_be_bytes()]))
        };
        let last = members.keys().next_back().map_or(0, |slot| slot.index() + 1);
        let last = last.min(limits::MLS_MEMBERS_MAX);
        let mut runs: Vec<(Incarnation, PublicKey)> = vec![(Incarnation::default(), signer.public().clone()); last];
        let mut speak = Vec::new();
        for (slot, it) in members.iter().take_while(|(slot, _)| slot.index() < last) {
            let Some(card) = self.cards.get(&it.hash) else { continue };
            let Ok(origin) = PublicKey::new(Algorithm::Ed25519, &card.origin) else { continue };
            runs[slot.index()] = (card.id.incarnation, origin);
            speak.push(slot.index());
        }
        EpochKeys::new(Parts {
            group: self.group.clone(),
            suite: self.suite,
            epoch: self.id(),
            me,
            members: runs,
            secrets: [Domain::GROUP, DATA].map(secret).into(),
            // Nothing is opened from a blank leaf, or from a member whose run nobody knows.
            readers: vec![speak.into_iter().collect::<Slots>(); 2],
            own: vec![None, None],
            signer: signer.clone(),
        })
    }
}

/// The key of all data: beside that of the group's own messages.
const DATA: Domain = Domain(1);

/// What proves to a newcomer that the epoch which its external commit leads to is in use. The numbers are the data epoch's, the
/// commit's position, and that at which the group was founded; `cards` is the hash of those known.
pub(super) fn entered(base: &Secret<32>, numbers: (u32, u64, u64), cut: &[u8; 32], cards: &[u8; 32]) -> [u8; 32] {
    tag(&entered_key(base), ENTERED, &[&entered_bytes(numbers), cut, cards])
}

/// Checks what [`entered`] made.
///
/// # Errors
/// [`Forged`].
pub(super) fn check_entered(
    base: &Secret<32>,
    numbers: (u32, u64, u64),
    cut: &[u8; 32],
    cards: &[u8; 32],
    mac: &[u8; 32],
) -> Result<(), Forged> {
    verify(&entered_key(base), ENTERED, &[&entered_bytes(numbers), cut, cards], mac)
}

fn entered_key(base: &Secret<32>) -> Secret<32> {
    hkdf(base.expose(), b"", &[ENTERED.as_bytes()])
}

fn entered_bytes((counter, position, founded): (u32, u64, u64)) -> Vec<u8> {
    [&counter.to_be_bytes()[..], &position.to_be_bytes(), &founded.to_be_bytes()].concat()
}

const ENTERED: &str = "sealcast/v1/mls/entered";
