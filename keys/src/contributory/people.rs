//! Who is who: the cards of those we have heard of, each verified once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sealcast_crypto::identity::anchor::{TrustAnchor, Verified};
use sealcast_crypto::identity::rights::Rights;
use sealcast_crypto::signature::{Algorithm, PublicKey};
use sealcast_wire::limits::UNKNOWN_CERTIFICATE_CHECKS_PER_SECOND;
use sealcast_wire::{CertHash, Dropped, EpochId, Member, MemberId, Monotonic, Now, Utc, limits};

use super::memo::Verifier;
use super::message::{Card, ShortId};

/// One run of one certificate's holder, its card verified.
pub(super) struct Person {
    pub(super) id: MemberId,
    pub(super) short: ShortId,
    /// Of the incarnation.
    pub(super) key: PublicKey,
    pub(super) cert: Arc<Verified>,
    pub(super) rights: Arc<Rights>,
    /// To be handed on.
    pub(super) card: Card,
}

impl Person {
    pub(super) fn member(&self) -> Member {
        Member { id: self.id, name: self.cert.name.clone() }
    }
}

/// The people whose cards we hold, and what unknown members may still cost us.
pub(super) struct People {
    group: Arc<str>,
    known: BTreeMap<ShortId, Known>,
    /// Certificates that were verified, and what their holders' new runs may still cost us.
    certificates: BTreeMap<CertHash, (Arc<Verified>, Budget)>,
    budget: Budget,
    /// Pairs of people with one short id, whose cards are both good.
    twins: Vec<(Arc<Person>, Arc<Person>)>,
}

struct Known {
    person: Arc<Person>,
    /// When we heard a message that this person signed.
    heard: Option<Monotonic>,
    /// When somebody asked for the card.
    asked: Option<Monotonic>,
    /// When the card was last seen or sent.
    given: Option<Monotonic>,
    /// When this person's JOIN was last looked at.
    joined: Option<Monotonic>,
    /// The epoch and time of this person's last beacon.
    beacon: Option<(EpochId, Monotonic)>,
}

impl People {
    pub(super) fn new(group: Arc<str>) -> People {
        People {
            group,
            known: BTreeMap::new(),
            certificates: BTreeMap::new(),
            budget: Budget::default(),
            twins: Vec::new(),
        }
    }

    pub(super) fn get(&self, short: &ShortId) -> Option<&Arc<Person>> {
        self.known.get(short).map(|k| &k.person)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn knows(&self, short: &ShortId) -> bool {
        self.known.contains_key(short)
    }

    /// Takes in a card: our authority's certificate, of a member of this group, that signed this run's key.
    ///
    /// Costs nothing for who is known already; unknown members are checked so many times per second (G1). A good card of
    /// another one with the same short id is not taken, but remembered for [`People::take_twins`].
    ///
    /// # Errors
    /// [`Dropped::Rate`], [`Dropped::Policy`] if the certificate is not good here, [`Dropped::Auth`].
    pub(super) fn meet(
        &mut self,
        now: Now,
        floor: Utc,
        anchor: &TrustAnchor,
        verifier: &Verifier,
        card: &Card,
    ) -> Result<Arc<Person>, Dropped> {
        let short = card.short_id(&self.group);
        let same = |p: &Person| {
            let of = |c: &Card| (c.cert, c.incarnation, c.key, c.versions);
            of(&p.card) == of(card)
        };
        if let Some(known) = self.known.get_mut(&short).filter(|known| same(&known.person)) {
            known.given = Some(now.monotonic);
            return Ok(known.person.clone());
        }
        let person = self.verify(now, floor, anchor, verifier, (short, card))?;
        if let Some(known) = self.known.get(&short) {
            if self.twins.len() < limits::RUNS_PER_CERTIFICATE_MAX {
                self.twins.push((known.person.clone(), person));
            }
            return Err(Dropped::Policy);
        }
        self.insert(person.clone(), now.monotonic);
        Ok(person)
    }

    /// Pairs of people with one short id that were met since the last time.
    pub(super) fn take_twins(&mut self) -> Vec<(Arc<Person>, Arc<Person>)> {
        std::mem::take(&mut self.twins)
    }

    fn verify(
        &mut self,
        now: Now,
        floor: Utc,
        anchor: &TrustAnchor,
        verifier: &Verifier,
        (short, card): (ShortId, &Card),
    ) -> Result<Arc<Person>, Dropped> {
        let cert = self.certificate(now, floor, anchor, verifier, (card.cert, &card.der))?;
        if !verifier.signature(&cert.key, &card.signed(&self.group), &card.signature) {
            return Err(Dropped::Auth);
        }
        person(short, cert, card)
    }

    /// The certificate of who says something that we have to check: of our authority, and of a member of this group.
    ///
    /// # Errors
    /// As [`People::meet`].
    pub(super) fn certificate(
        &mut self,
        now: Now,
        floor: Utc,
        anchor: &TrustAnchor,
        verifier: &Verifier,
        (hash, der): (CertHash, &[u8]),
    ) -> Result<Arc<Verified>, Dropped> {
        // A holder's many runs come out of its own budget, and garbage not out of that of known certificates.
        Ok(match self.certificates.get_mut(&hash) {
            Some((cert, budget)) => {
                if !budget.take(now.monotonic, RUNS_PER_SECOND) {
                    return Err(Dropped::Rate);
                }
                anchor.check(cert, now.utc, floor).map_err(|_| Dropped::Policy)?;
                cert.clone()
            }
            None => {
                if !self.budget.take(now.monotonic, UNKNOWN_CERTIFICATE_CHECKS_PER_SECOND) {
                    return Err(Dropped::Rate);
                }
                let cert = verifier.certificate(anchor, der, now.utc, floor).map_err(|_| Dropped::Policy)?;
                if cert.hash != hash {
                    return Err(Dropped::Malformed);
                }
                if !cert.rights.is_member(&self.group) {
                    return Err(Dropped::Policy);
                }
                if self.certificates.len() >= limits::KNOWN_PEOPLE_MAX {
                    let held: BTreeSet<CertHash> = self.known.values().map(|k| k.person.id.cert).collect();
                    self.certificates.retain(|hash, _| held.contains(hash));
                }
                if self.certificates.len() < 2 * limits::KNOWN_PEOPLE_MAX {
                    self.certificates.insert(cert.hash, (cert.clone(), Budget::default()));
                }
                cert
            }
        })
    }

    /// Whether something else that unknown members say, and that costs about as much, may be checked (G1).
    pub(super) fn may_check(&mut self, now: Monotonic) -> bool {
        self.budget.take(now, UNKNOWN_CERTIFICATE_CHECKS_PER_SECOND)
    }

    /// Takes in somebody without checks: ourselves.
    pub(super) fn insert(&mut self, person: Arc<Person>, now: Monotonic) {
        let known =
            Known { person: person.clone(), heard: None, asked: None, given: Some(now), joined: None, beacon: None };
        self.known.insert(person.short, known);
    }

    /// Whether there are more than are worth remembering.
    pub(super) fn is_crowded(&self) -> bool {
        self.known.len() > limits::KNOWN_PEOPLE_MAX
    }

    /// Forgets unknown members over the limit, those longest unheard first; `needed` stay.
    pub(super) fn forget(&mut self, needed: impl Fn(&ShortId) -> bool) {
        while self.known.len() > limits::KNOWN_PEOPLE_MAX {
            let oldest = self.known.iter().filter(|(short, _)| !needed(short)).min_by_key(|(_, k)| (k.heard, k.given));
            let Some(short) = oldest.map(|(short, _)| *short) else { return };
            self.known.remove(&short);
        }
    }

    /// Notes that this person was heard just now, by its signature.
    pub(super) fn hear(&mut self, short: &ShortId, now: Monotonic) {
        if let Some(known) = self.known.get_mut(short) {
            known.heard = Some(now);
        }
    }

    pub(super) fn heard(&self, short: &ShortId) -> Option<Monotonic> {
        self.known.get(short)?.heard
    }

    /// Whether another JOIN of this person may be looked at: one per [`JOIN_SPACING`].
    pub(super) fn may_join(&mut self, short: &ShortId, now: Monotonic) -> bool {
        let Some(known) = self.known.get_mut(short) else { return false };
        let may = known.joined.is_none_or(|at| now.since(at) >= JOIN_SPACING);
        if may {
            known.joined = Some(now);
        }
        may
    }

    /// Whether another beacon of this person for this epoch is worth a look: sent again, it says nothing new.
    pub(super) fn may_beacon(&self, short: &ShortId, epoch: EpochId, now: Monotonic) -> bool {
        let last = self.known.get(short).and_then(|k| k.beacon);
        last.is_none_or(|(of, at)| of != epoch || now.since(at) >= BEACON_SPACING)
    }

    /// A beacon of this person was verified.
    pub(super) fn beaconed(&mut self, short: &ShortId, epoch: EpochId, now: Monotonic) {
        if let Some(known) = self.known.get_mut(short) {
            known.beacon = Some((epoch, now));
        }
    }

    /// Somebody asks for a card: whether it is time to give it again, and how long ago the first of the
    /// unanswered asked.
    pub(super) fn asked(&mut self, short: &ShortId, now: Monotonic) -> Option<Duration> {
        let known = self.known.get_mut(short)?;
        if known.given.is_some_and(|at| now.since(at) < CARD_SPACING && known.asked.is_some()) {
            return None;
        }
        let first = known.asked.filter(|at| now.since(*at) < Duration::from_secs(2));
        known.asked = Some(first.unwrap_or(now));
        Some(first.map_or(Duration::ZERO, |at| now.since(at)))
    }

    /// The card leaves now, or was seen to.
    pub(super) fn gave(&mut self, short: &ShortId, now: Monotonic) {
        if let Some(known) = self.known.get_mut(short) {
            known.given = Some(now);
        }
    }

    /// The name in a certificate that we know, and whether no other one that we know has it.
    pub(super) fn named(&self, cert: CertHash) -> Option<(&str, bool)> {
        let known = self.known.values().map(|k| (k.person.id.cert, &k.person.cert));
        let all = || known.clone().chain(self.certificates.iter().map(|(hash, (it, _))| (*hash, it)));
        let name = all().find(|(hash, _)| *hash == cert).map(|(_, it)| &*it.name)?;
        Some((name, all().all(|(hash, it)| hash == cert || *it.name != *name)))
    }

    /// All runs of a certificate that we know of.
    pub(super) fn of(&self, cert: CertHash) -> impl Iterator<Item = &Arc<Person>> {
        self.known.values().map(|k| &k.person).filter(move |p| p.id.cert == cert)
    }
}

/// The person of a verified card.
pub(super) fn person(short: ShortId, cert: Arc<Verified>, card: &Card) -> Result<Arc<Person>, Dropped> {
    let key = PublicKey::new(Algorithm::Ed25519, &card.key).map_err(|_| Dropped::Malformed)?;
    let id = MemberId { cert: card.cert, incarnation: card.incarnation };
    let rights = Arc::new(cert.rights.clone());
    Ok(Arc::new(Person { id, short, key, cert, rights, card: card.clone() }))
}

/// Signature checks: a bucket of so many that fills in one second.
#[derive(Default)]
pub(super) struct Budget {
    /// Micro-checks used up; drains with time.
    level: u64,
    at: Monotonic,
}

impl Budget {
    pub(super) fn take(&mut self, now: Monotonic, per_second: u32) -> bool {
        let drained = u64::try_from(now.since(self.at).as_micros()).unwrap_or(u64::MAX);
        self.level = self.level.saturating_sub(drained.saturating_mul(u64::from(per_second)));
        self.at = now.max(self.at);
        if self.level + 1_000_000 > u64::from(per_second) * 1_000_000 {
            return false;
        }
        self.level += 1_000_000;
        true
    }
}

/// New runs of one known certificate that are looked at per second.
const RUNS_PER_SECOND: u32 = 20;
/// Between two JOINs of one person that are looked at.
const JOIN_SPACING: Duration = Duration::from_millis(15);
/// Between two beacons of one person for one epoch that are looked at.
const BEACON_SPACING: Duration = Duration::from_millis(20);
/// Between two times that one member gives one card.
const CARD_SPACING: Duration = Duration::from_millis(80);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_g1_strangers_are_checked_so_many_times_a_second() {
        let mut budget = Budget::default();
        let taken = |budget: &mut Budget, at: u64| {
            (0..1000).filter(|_| budget.take(Monotonic(at), UNKNOWN_CERTIFICATE_CHECKS_PER_SECOND)).count()
        };
        assert_eq!(taken(&mut budget, 0), UNKNOWN_CERTIFICATE_CHECKS_PER_SECOND as usize);
        assert_eq!(taken(&mut budget, 500_000), UNKNOWN_CERTIFICATE_CHECKS_PER_SECOND as usize / 2);
        assert_eq!(taken(&mut budget, 500_000), 0);
        assert_eq!(taken(&mut budget, 60_000_000), UNKNOWN_CERTIFICATE_CHECKS_PER_SECOND as usize);
    }
}
