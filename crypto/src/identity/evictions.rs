//! The set of a group's evictions (A4): it only grows, and whatever the order in which statements arrive,
//! members who have seen the same ones hold the same set, with the same hash.
//!
//! Of several statements by one signer about one certificate one is kept: the authority's highest number,
//! a member's lowest. A signer can therefore not fill the set by repeating itself.
//!
//! **When a signer's power ends.** A statement is judged without dates and revocation, since a set that
//! depended on the moment would differ between members. A member with an `evict` right who turns out to be
//! hostile could therefore go on evicting others after its own eviction, under numbers that it chooses. The
//! authority's eviction of it may void all that it signed; what of it is to stay, the authority signs anew
//! before. Only the authority can void: what two members say of each other both counts.

use std::collections::BTreeMap;

use sealcast_wire::{CertHash, limits};

use super::serial::Serial;
use super::statement::{SignedEviction, Signer};
use crate::hash::Transcript;

/// The statements of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evictions {
    group: String,
    /// By evicted certificate and signer, `None` being the authority.
    statements: BTreeMap<(CertHash, Option<CertHash>), SignedEviction>,
    hash: [u8; 32],
}

/// Why a statement was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvictionsError {
    /// It speaks of another group.
    #[error("the statement is about another group")]
    OtherGroup,
    /// [`limits::EVICTIONS_MAX`] are there, or half as many by members.
    #[error("the group has as many evictions as it can hold; its authority should issue new certificates")]
    Full,
}

impl Evictions {
    /// The empty set.
    pub fn new(group: &str) -> Evictions {
        let mut set = Evictions { group: group.to_owned(), statements: BTreeMap::new(), hash: [0; 32] };
        set.hash = set.compute_hash();
        set
    }

    /// Adds a verified statement; whether that changed the set.
    ///
    /// # Errors
    /// `OtherGroup` or `Full`. Members' statements fill at most half of the set, so that the authority's
    /// always find room.
    pub fn insert(&mut self, statement: SignedEviction) -> Result<bool, EvictionsError> {
        if statement.eviction().group != self.group {
            return Err(EvictionsError::OtherGroup);
        }
        let key = (statement.eviction().certificate, statement.signer().certificate());
        let max = if key.1.is_some() { limits::EVICTIONS_MAX / 2 } else { limits::EVICTIONS_MAX };
        let changed = match self.statements.get(&key) {
            Some(known) => is_preferred(&statement, known),
            None if self.statements.len() >= max => return Err(EvictionsError::Full),
            None => true,
        };
        if changed {
            self.statements.insert(key, statement);
            self.hash = self.compute_hash();
        }
        Ok(changed)
    }

    /// The eviction that counts for this certificate, if there is one: the authority's before members'.
    /// A serial number is evicted whatever the bytes of its certificate.
    pub fn find(&self, certificate: &CertHash, serial: &Serial) -> Option<&SignedEviction> {
        let about = |s: &&SignedEviction| s.eviction().certificate == *certificate || s.eviction().serial == *serial;
        let mut counting = self.statements.values().filter(about).filter(|s| self.counts(s)).peekable();
        let first = counting.peek().copied();
        counting.find(|s| *s.signer() == Signer::Authority).or(first)
    }

    /// Whether the holder of this certificate is evicted.
    pub fn excludes(&self, certificate: &CertHash, serial: &Serial) -> bool {
        self.find(certificate, serial).is_some()
    }

    /// Whether a statement with this id is in the set.
    pub fn contains(&self, id: &[u8; 32]) -> bool {
        self.statements.values().any(|s| s.id() == *id)
    }

    /// The highest number among a signer's statements here; its next one takes a higher one. `None` is the
    /// authority.
    pub fn last_number(&self, signer: Option<CertHash>) -> u64 {
        self.statements.iter().filter(|((_, by), _)| *by == signer).map(|(_, s)| s.eviction().number).max().unwrap_or(0)
    }

    /// SHA-256 over group and statements; equal if and only if the sets are.
    pub fn hash(&self) -> [u8; 32] {
        self.hash
    }

    /// All statements, ordered by evicted certificate.
    pub fn iter(&self) -> impl Iterator<Item = &SignedEviction> {
        self.statements.values()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }

    /// Whether the authority has not taken the power from its signer.
    fn counts(&self, statement: &SignedEviction) -> bool {
        let Some(by) = statement.signer().certificate() else { return true };
        self.statements.get(&(by, None)).is_none_or(|s| !s.eviction().voids)
    }

    fn compute_hash(&self) -> [u8; 32] {
        let mut transcript = Transcript::new("sealcast/v1/evictions").add(self.group.as_bytes());
        self.statements.values().for_each(|s| transcript.absorb(&s.id()));
        transcript.finish()
    }
}

/// Which of two statements of one signer about one certificate is kept; a total order, so that the order
/// of arrival does not matter.
fn is_preferred(new: &SignedEviction, known: &SignedEviction) -> bool {
    let rank = |s: &SignedEviction| (s.eviction().number, s.id());
    match new.signer() {
        Signer::Authority => rank(new) > rank(known),
        Signer::Member(_) => rank(new) < rank(known),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::identity::authority::Authority;
    use crate::identity::fixture::*;
    use crate::identity::holder::Identity;
    use crate::identity::statement::Eviction;

    fn head(ca: &mut Authority, seed: u64) -> Identity {
        member(ca, rights(&["urn:sealcast:ward3:evict:%23"]), seed)
    }

    fn by_member(by: &Identity, of: &Identity, number: u64) -> SignedEviction {
        let eviction = Eviction::new(GROUP, of.certificate(), number, "");
        let bytes = eviction.sign_as_member(by, of.certificate()).expect("signed");
        SignedEviction::verify(&bytes, by.anchor()).expect("verified")
    }

    fn by_authority(ca: &mut Authority, of: &Identity, voids: bool) -> SignedEviction {
        let (serial, hash) = (of.certificate().serial, of.certificate().hash);
        let bytes = ca.evict(GROUP, serial, hash, "", voids).expect("signed");
        SignedEviction::verify(&bytes, ca.anchor()).expect("verified")
    }

    fn excluded(set: &Evictions, who: &Identity) -> bool {
        set.excludes(&who.certificate().hash, &who.certificate().serial)
    }

    #[test]
    fn rule_a4_the_set_only_grows_and_names_who_is_out() {
        let mut ca = authority(1);
        let (head, carol, dave) =
            (head(&mut ca, 2), member(&mut ca, everything(), 3), member(&mut ca, everything(), 4));
        let mut set = Evictions::new(GROUP);
        let empty = set.hash();
        let statement = by_member(&head, &carol, 1);
        assert_eq!(set.insert(statement.clone()), Ok(true));
        assert_ne!(set.hash(), empty);
        assert!(excluded(&set, &carol) && !excluded(&set, &dave) && set.contains(&statement.id()));
        let hash = set.hash();
        assert_eq!(set.insert(statement), Ok(false));
        assert_eq!((set.hash(), set.len()), (hash, 1));
        // A certificate of other bytes under the same serial is out as well.
        assert!(set.excludes(&dave.certificate().hash, &carol.certificate().serial));
    }

    #[test]
    fn another_groups_statement_does_not_enter() {
        let mut ca = authority(1);
        let carol = member(&mut ca, everything(), 3);
        let statement = by_authority(&mut ca, &carol, false);
        assert_eq!(Evictions::new("ward4").insert(statement), Err(EvictionsError::OtherGroup));
        assert_ne!(Evictions::new("ward4").hash(), Evictions::new(GROUP).hash());
    }

    #[test]
    fn a_signer_that_repeats_itself_takes_one_place() {
        let mut ca = authority(1);
        let (head, carol) = (head(&mut ca, 2), member(&mut ca, everything(), 3));
        let mut set = Evictions::new(GROUP);
        for number in [5, 3, 9] {
            set.insert(by_member(&head, &carol, number)).expect("room");
        }
        assert_eq!((set.len(), set.last_number(Some(head.certificate().hash))), (1, 3));
        set.insert(by_authority(&mut ca, &carol, false)).expect("room");
        set.insert(by_authority(&mut ca, &carol, false)).expect("room");
        assert_eq!((set.len(), set.last_number(None)), (2, 2));
        let (hash, serial) = (carol.certificate().hash, carol.certificate().serial);
        assert_eq!(set.find(&hash, &serial).map(SignedEviction::signer), Some(&Signer::Authority));
    }

    #[test]
    fn rule_a4_an_evicted_evictor_loses_its_power_by_the_authoritys_word() {
        let mut ca = authority(1);
        let (mallory, carol, dave) =
            (head(&mut ca, 2), member(&mut ca, everything(), 3), member(&mut ca, everything(), 4));
        let mut set = Evictions::new(GROUP);
        set.insert(by_member(&mallory, &carol, 1)).expect("room");
        set.insert(by_authority(&mut ca, &mallory, false)).expect("room");
        assert!(excluded(&set, &carol), "an eviction that was right stays");
        set.insert(by_authority(&mut ca, &carol, false)).expect("room");
        set.insert(by_authority(&mut ca, &mallory, true)).expect("room");
        // Whatever number the evicted one writes on it.
        set.insert(by_member(&mallory, &dave, 0)).expect("room");
        assert!(excluded(&set, &mallory) && excluded(&set, &carol) && !excluded(&set, &dave));
    }

    #[test]
    fn members_cannot_fill_the_set() {
        let mut ca = authority(1);
        let (head, carol) = (head(&mut ca, 2), member(&mut ca, everything(), 3));
        let last = member(&mut ca, everything(), 4);
        let mut set = Evictions::new(GROUP);
        let statement = by_member(&head, &carol, 1);
        for i in 0..limits::EVICTIONS_MAX / 2 {
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&i.to_be_bytes());
            set.statements.insert((CertHash(hash), Some(head.certificate().hash)), statement.clone());
        }
        assert_eq!(set.insert(by_member(&head, &last, 2)), Err(EvictionsError::Full));
        assert_eq!(set.insert(by_authority(&mut ca, &last, false)), Ok(true));
    }

    proptest! {
        #[test]
        fn rule_a4_the_order_of_arrival_does_not_matter(order in Just((0..8_usize).collect::<Vec<_>>()).prop_shuffle()) {
            let mut ca = authority(1);
            let (a, b, c) = (head(&mut ca, 2), head(&mut ca, 3), member(&mut ca, everything(), 4));
            let all = [
                by_member(&a, &c, 1), by_member(&a, &c, 2), by_member(&b, &c, 1), by_member(&a, &b, 3),
                by_member(&b, &a, 2), by_authority(&mut ca, &c, false), by_authority(&mut ca, &a, false),
                by_authority(&mut ca, &a, true),
            ];
            let (mut one, mut other) = (Evictions::new(GROUP), Evictions::new(GROUP));
            all.iter().for_each(|s| { one.insert(s.clone()).expect("room"); });
            order.iter().for_each(|i| { other.insert(all[*i].clone()).expect("room"); });
            prop_assert_eq!(one.hash(), other.hash());
            prop_assert_eq!(one, other);
        }
    }
}
