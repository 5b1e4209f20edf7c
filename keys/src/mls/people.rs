//! Who is in a group, and how each runs: cheap to clone, since an epoch that begins shares nearly all with the one before.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use sealcast_crypto::identity::Verified;
use sealcast_crypto::set_hash::SetHash;
use sealcast_crypto::signature::PublicKey;
use sealcast_wire::{CertHash, Incarnation, Member, MemberId, Roster, Slot, Utc};

use super::certificates::{Certificates, OVER_SECONDS, Trust};
use super::message::Card;
use crate::epoch::Runs;

/// The members of an epoch.
#[derive(Clone)]
pub(super) struct People {
    group: Arc<str>,
    pub(super) members: Map<Slot, Arc<Verified>>,
    /// The runs of members.
    pub(super) cards: Cards,
    pub(super) roster: Roster,
    /// By what it was seen that nobody is to be removed, and when the first certificate ends, or before.
    in_by: Option<(Arc<Trust>, Utc)>,
}

impl People {
    /// Nobody is in this group yet.
    pub(super) fn new(group: Arc<str>) -> People {
        let (members, cards, roster, in_by) = Default::default();
        People { group, members, cards, roster, in_by }
    }

    /// Whether somebody is to be removed: excluded, or with a certificate that ended two hours ago. Newcomers are judged as
    /// they come.
    pub(super) fn are_some_out(&mut self, judge: &Certificates, trust: &Arc<Trust>) -> bool {
        let are_in =
            |(by, until): &(Arc<Trust>, Utc)| Arc::ptr_eq(by, trust) && !judge.is_past(*until, 2 * OVER_SECONDS);
        if self.in_by.as_ref().is_some_and(are_in) {
            return false;
        }
        let is_out = |it: &Arc<Verified>| trust.excludes(it) || judge.is_over(it, 2 * OVER_SECONDS);
        let until = self.members.values().map(|it| it.not_after).min().unwrap_or(Utc(i64::MAX));
        let out = self.members.values().any(is_out);
        self.in_by = (!out).then(|| (trust.clone(), until));
        out
    }

    /// Puts a member into a slot, with its card if that is a good one.
    pub(super) fn admit(&mut self, slot: Slot, it: Arc<Verified>, card: Option<&Card>) {
        if let Some(card) = card {
            self.cards.insert(&self.group, card, &it.key);
        }
        self.sit(slot, it);
    }

    /// The same with a card that those who were there before vouch for: it is checked when something comes from that member. If it is a
    /// bad one, they have another set of cards and so other keys than we.
    pub(super) fn admit_as_others_did(&mut self, slot: Slot, it: Arc<Verified>, card: Option<&Card>) {
        if let Some(card) = card {
            self.cards.put(card, None);
        }
        self.sit(slot, it);
    }

    fn sit(&mut self, slot: Slot, it: Arc<Verified>) {
        if let Some((_, until)) = &mut self.in_by {
            *until = it.not_after.min(*until);
        }
        self.roster.insert(slot, self.member(&it));
        self.members.insert(slot, it);
    }

    /// Takes out a slot's member; its certificate.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<CertHash> {
        self.roster.remove(slot);
        let cert = self.members.remove(&slot)?.hash;
        self.cards.remove(&cert);
        Some(cert)
    }

    /// A member runs anew, if the card is its own and of a later run than the one known: whether it does.
    pub(super) fn run(&mut self, card: &Card) -> bool {
        let Some((slot, _)) = self.roster.find(&card.id.cert) else { return false };
        let Some(it) = self.members.get(&slot).cloned() else { return false };
        let is_newer = self.cards.get(&card.id.cert).is_none_or(|known| known.run < card.run);
        if !is_newer || !self.cards.insert(&self.group, card, &it.key) {
            return false;
        }
        self.roster.insert(slot, self.member(&it));
        true
    }

    /// A credential's member as views name it.
    fn member(&self, it: &Verified) -> Member {
        let incarnation = self.cards.get(&it.hash).map(|card| card.id.incarnation).unwrap_or_default();
        Member { id: MemberId { cert: it.hash, incarnation }, name: it.name.clone() }
    }
}

/// Whom data can come from: nobody at a blank leaf, and no member whose run is not known.
impl Runs for People {
    fn count(&self) -> usize {
        self.roster.last().map_or(0, |(slot, _)| slot.index() + 1)
    }

    fn get(&self, slot: Slot) -> Option<(Incarnation, &PublicKey)> {
        let known = self.cards.0.get(&self.roster.get(slot)?.id.cert)?;
        let checked = || known.card.check(&self.group, &self.members.get(&slot)?.key);
        Some((known.card.id.incarnation, known.origin.get_or_init(checked).as_ref()?))
    }
}

/// Cards by certificate, and the hash of them all.
#[derive(Clone, Default)]
pub(super) struct Cards(Map<CertHash, Arc<Known>>, SetHash);

struct Known {
    card: Card,
    /// The key that it names, once it is checked; `None` of a bad one.
    origin: OnceLock<Option<PublicKey>>,
}

impl Cards {
    /// Takes in a card that this key signed, instead of the one before; whether it did.
    fn insert(&mut self, group: &str, card: &Card, key: &PublicKey) -> bool {
        let Some(origin) = card.check(group, key) else { return false };
        self.put(card, Some(origin));
        true
    }

    fn put(&mut self, card: &Card, origin: Option<PublicKey>) {
        self.remove(&card.id.cert);
        self.1.insert(&card.id.cert.0, &card.run_bytes());
        let origin = origin.map_or_else(OnceLock::new, |it| OnceLock::from(Some(it)));
        self.0.insert(card.id.cert, Arc::new(Known { card: card.clone(), origin }));
    }

    fn remove(&mut self, cert: &CertHash) {
        if let Some(known) = self.0.remove(cert) {
            self.1.remove(&cert.0, &known.card.run_bytes());
        }
    }

    pub(super) fn get(&self, cert: &CertHash) -> Option<&Card> {
        self.0.get(cert).map(|it| &it.card)
    }

    /// By certificate, ascending.
    pub(super) fn values(&self) -> impl Iterator<Item = &Card> {
        self.0.values().map(|it| &it.card)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Names the set of cards.
    pub(super) fn digest(&self) -> [u8; 32] {
        self.1.digest()
    }
}

/// Names a set of cards of which nothing is checked; `None` if two are of one certificate.
pub(super) fn digest_of(cards: &[Card]) -> Option<[u8; 32]> {
    let by_cert: BTreeMap<&CertHash, &Card> = cards.iter().map(|card| (&card.id.cert, card)).collect();
    let mut set = SetHash::new();
    by_cert.iter().for_each(|(cert, card)| set.insert(&cert.0, &card.run_bytes()));
    (by_cert.len() == cards.len()).then(|| set.digest())
}

/// An ordered map whose clones share what they have in common: a change copies some dozens of entries.
#[derive(Clone)]
pub(super) struct Map<K, V> {
    buckets: Vec<Arc<BTreeMap<K, V>>>,
    len: usize,
}

/// A key that says in which bucket it lies: later buckets hold greater keys.
pub(super) trait Key: Ord + Copy {
    fn bucket(&self) -> usize;
}

impl Key for Slot {
    fn bucket(&self) -> usize {
        self.index() / 64
    }
}

impl Key for CertHash {
    fn bucket(&self) -> usize {
        usize::from(self.0[0])
    }
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Map<K, V> {
        Map { buckets: Vec::new(), len: 0 }
    }
}

impl<K: Key, V: Clone> Map<K, V> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.buckets.get(key.bucket())?.get(key)
    }

    pub(super) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        let at = key.bucket();
        if self.buckets.len() <= at {
            self.buckets.resize_with(at + 1, Arc::default);
        }
        let before = Arc::make_mut(&mut self.buckets[at]).insert(key, value);
        self.len += usize::from(before.is_none());
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        if !self.contains_key(key) {
            return None;
        }
        self.len -= 1;
        Arc::make_mut(&mut self.buckets[key.bucket()]).remove(key)
    }

    /// By key, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.buckets.iter().flat_map(|bucket| bucket.iter())
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The key before which this many lie.
    pub(super) fn nth(&self, mut index: usize) -> Option<&K> {
        for bucket in &self.buckets {
            match index.checked_sub(bucket.len()) {
                Some(behind) => index = behind,
                None => return bucket.keys().nth(index),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_map_is_a_map_and_its_clones_stay_as_they_are(changes in prop::collection::vec((0_u32..300, any::<bool>()), 0..80)) {
            let (mut map, mut plain) = (Map::default(), BTreeMap::new());
            let mut before = Vec::new();
            for (i, (slot, comes)) in changes.into_iter().enumerate() {
                before.push((map.clone(), plain.clone()));
                match comes {
                    true => { map.insert(Slot(slot), i); plain.insert(Slot(slot), i); }
                    false => prop_assert_eq!(map.remove(&Slot(slot)), plain.remove(&Slot(slot))),
                }
            }
            before.push((map, plain));
            for (map, plain) in before {
                prop_assert_eq!(map.len(), plain.len());
                prop_assert!(map.iter().eq(plain.iter()));
                for (i, key) in plain.keys().enumerate() {
                    prop_assert_eq!(map.nth(i), Some(key));
                }
                prop_assert_eq!(map.nth(plain.len()), None);
            }
        }
    }
}
