//! One epoch's keys for data (D5), and who may do what in it.
//!
//! ```text
//! exporter secret ── MLS-Exporter("sealcast data") ──▶ base             once per epoch of RFC 9420, then it is erased
//! base ── HKDF("sealcast/v1/mls/append") ──▶ the key that signs appends at a relay's directory
//! base ── HKDF(cut ‖ cards, "sealcast/v1/mls/data") ──▶ secret of the data epoch ──▶ senders' keys (`crate::epoch`)
//! ```
//! A data epoch begins with each commit, and with each card that tells of a new run of a member: the tree stays then, and so
//! does the base.

use std::sync::{Arc, OnceLock};

use sealcast_crypto::aead::Suite;
use sealcast_crypto::hash::Transcript;
use sealcast_crypto::identity::{Pattern, Verified};
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::leighton_micali::{Forged, tag, verify};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::{Access, Domain, EpochId, SealPayload, Slot};

use super::engine::Context;
use super::people::People;
use crate::epoch::{EpochKeys, Parts};

/// Who may write, of a group that all members read.
pub(super) struct Writers {
    group: Arc<str>,
    people: People,
    /// Whether origins are proved by signatures.
    signs: bool,
    /// Whether all may write to all topics, once somebody wanted to know.
    all_write: OnceLock<bool>,
}

impl Writers {
    pub(super) fn new(group: Arc<str>, people: People, signs: bool) -> Writers {
        Writers { group, people, signs, all_write: OnceLock::new() }
    }
}

impl Access for Writers {
    fn domain(&self, _topic: &str) -> Option<Domain> {
        Some(DATA)
    }

    fn may_publish(&self, slot: Slot, topic: &str) -> bool {
        self.people.members.get(&slot).is_some_and(|it| it.rights.may_publish(&self.group, topic))
    }

    fn may_subscribe(&self, slot: Slot, topic: &str) -> bool {
        self.people.members.get(&slot).is_some_and(|it| it.rights.may_subscribe(&self.group, topic))
    }

    fn reads(&self, slot: Slot, domain: Domain) -> bool {
        [Domain::GROUP, DATA].contains(&domain) && self.people.members.contains_key(&slot)
    }

    fn must_sign(&self, topic: &str) -> bool {
        let all_write = || {
            let writes_all = |it: &Verified| it.rights.publishes(&self.group).any(|it| it.covers(&Pattern::all()));
            self.people.members.values().all(|it| writes_all(it))
        };
        let all_may = || self.people.members.values().all(|it| it.rights.may_publish(&self.group, topic));
        self.signs || !*self.all_write.get_or_init(all_write) && !all_may()
    }
}

/// What a data epoch is made of, beside the base.
pub(super) struct DataEpoch<'a> {
    pub(super) group: &'a Arc<str>,
    pub(super) suite: Suite,
    pub(super) counter: u32,
    pub(super) context: &'a Context,
    pub(super) cut: &'a [u8; 32],
    pub(super) people: &'a People,
    /// With `data=mls`.
    pub(super) payload: Option<Arc<dyn SealPayload>>,
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
        t.absorb(&(self.people.cards.len() as u64).to_be_bytes());
        t.absorb(&self.people.cards.digest());
        if self.payload.is_some() {
            t.absorb(b"data=mls");
        }
        t.finish()
    }

    pub(super) fn id(&self) -> EpochId {
        let hash = self.transcript();
        EpochId { counter: self.counter, hash: u64::from_be_bytes(*hash.first_chunk().expect("it has 32 bytes")) }
    }

    /// The keys of the member at a slot.
    pub(super) fn keys(&self, base: &Secret<32>, me: Slot, signer: &Arc<OriginKey>) -> EpochKeys {
        let transcript = self.transcript();
        let secret = |domain: Domain| {
            Some(hkdf(base.expose(), &transcript, &[b"sealcast/v1/mls/data", &domain.0.to_be_bytes()]))
        };
        EpochKeys::new(Parts {
            group: self.group.clone(),
            suite: self.suite,
            epoch: self.id(),
            me,
            members: Box::new(self.people.clone()),
            secrets: [Domain::GROUP, DATA].map(secret).into(),
            readers: vec![None, None],
            own: vec![None, None],
            signer: signer.clone(),
            payload: self.payload.clone(),
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

/// The key by which members of the epoch sign what they append to a directory's log.
pub(super) fn append_key(base: &Secret<32>) -> OriginKey {
    OriginKey::from_seed(&hkdf(base.expose(), b"", &[b"sealcast/v1/mls/append"]))
}

fn entered_key(base: &Secret<32>) -> Secret<32> {
    hkdf(base.expose(), b"", &[ENTERED.as_bytes()])
}

fn entered_bytes((counter, position, founded): (u32, u64, u64)) -> Vec<u8> {
    [&counter.to_be_bytes()[..], &position.to_be_bytes(), &founded.to_be_bytes()].concat()
}

const ENTERED: &str = "sealcast/v1/mls/entered";
