//! The set of a group's evictions (A4): it only grows, and whatever the order in which statements arrive,
//! members who have seen the same ones hold the same set, with the same hash.
//!
//! Of several statements by one signer about one certificate one is kept: the authority's highest number,
//! a member's lowest. A signer can therefore not fill the set by repeating itself. Evicted and signer count by
//! serial number: the holder of a certificate can make a second one of other bytes.
//!
//! **A full set** is a function of the statements alone, not of their order. Of each member at most [`limits::EVICTIONS_BY_MEMBER_MAX`] are kept, those of the lowest (number, id). Of
//! all members' together half of the set is kept: the first of each signer, then the second of each, and so on, signers by
//! serial number. One signer can therefore not displace another's first statements. Of the authority's the other half is kept, those
//! of the highest numbers. What falls out can never come back by more statements, so members that have heard the same
//! statements agree whatever each forgot on the way.
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
    statements: BTreeMap<Key, SignedEviction>,
    hash: [u8; 32],
}

/// Evicted certificate and signer, `None` being the authority.
type Key = (CertHash, Option<CertHash>);

fn key(statement: &SignedEviction) -> Key {
    (statement.eviction().certificate, statement.signer().certificate())
}

/// Why a statement was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvictionsError {
    /// It speaks of another group.
    #[error("the statement is about another group")]
    OtherGroup,
    /// The set is full, and others come before it.
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
    /// `OtherGroup` or `Full`; then nothing has changed.
    pub fn insert(&mut self, statement: SignedEviction) -> Result<bool, EvictionsError> {
        if statement.eviction().group != self.group {
            return Err(EvictionsError::OtherGroup);
        }
        let of = |s: &SignedEviction| (s.eviction().serial, s.signer().serial());
        let known = self.statements.iter().find(|(_, known)| of(known) == of(&statement));
        if let Some((at, known)) = known.map(|(at, known)| (*at, known)) {
            if !is_preferred(&statement, known) {
                return Ok(false);
            }
            self.statements.remove(&at);
        }
        let key = key(&statement);
        self.statements.insert(key, statement);
        let out = self.surplus();
        out.iter().for_each(|key| _ = self.statements.remove(key));
        if out.contains(&key) {
            return Err(EvictionsError::Full);
        }
        self.hash = self.compute_hash();
        Ok(true)
    }

    /// What is too much: see the module.
    fn surplus(&self) -> Vec<Key> {
        if self.statements.len() <= limits::EVICTIONS_BY_MEMBER_MAX {
            return Vec::new();
        }
        let rank = |s: &SignedEviction| (s.eviction().number, s.id());
        let mut by_signer: BTreeMap<Option<Serial>, Vec<&SignedEviction>> = BTreeMap::new();
        for statement in self.statements.values() {
            by_signer.entry(statement.signer().serial()).or_default().push(statement);
        }
        let mut authority = by_signer.remove(&None).unwrap_or_default();
        authority.sort_by_key(|s| std::cmp::Reverse(rank(s)));
        // By turn, then by signer: in this order the serial numbers ascend within a turn.
        let mut members: Vec<(usize, Key)> = Vec::new();
        for statements in by_signer.values_mut() {
            statements.sort_by_key(|s| rank(s));
            members.extend(statements.iter().map(|s| key(s)).enumerate());
        }
        members.sort_by_key(|(turn, _)| *turn);
        let half = limits::EVICTIONS_MAX / 2;
        let is_over =
            |(place, (turn, _)): &(usize, &(usize, Key))| *turn >= limits::EVICTIONS_BY_MEMBER_MAX || *place >= half;
        let over = members.iter().enumerate().filter(is_over).map(|(_, (_, key))| *key);
        over.chain(authority.iter().skip(half).map(|s| key(s))).collect()
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
        let Some(by) = statement.signer().serial() else { return true };
        let voids = |s: &&SignedEviction| *s.signer() == Signer::Authority && s.eviction().voids;
        !self.statements.values().filter(voids).any(|s| s.eviction().serial == by)
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

#[cfg(all(test, feature = "threshold"))]
mod tests {
    use proptest::prelude::*;

    use x509_parser::prelude::{FromDer as _, X509Certificate};

    use super::*;
    use crate::group::{P256, PrimeGroup};
    use crate::identity::authority::Authority;
    use crate::identity::certificate::Certificate;
    use crate::identity::fixture::*;
    use crate::identity::holder::Identity;
    use crate::identity::keytext::MemberSecret;
    use crate::identity::statement::Eviction;
    use crate::signature::Algorithm;

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
        for i in 0..limits::EVICTIONS_BY_MEMBER_MAX {
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&i.to_be_bytes());
            set.statements.insert((CertHash(hash), Some(head.certificate().hash)), statement.clone());
        }
        let before = set.clone();
        assert_eq!(set.insert(by_member(&head, &last, 2)), Err(EvictionsError::Full));
        assert_eq!(set, before);
        assert_eq!(set.insert(by_authority(&mut ca, &last, false)), Ok(true));
    }

    /// The same certificate in other bytes: a P-256 signature (r, s) holds as (r, n - s), too.
    fn twin(of: &Identity, secret: &MemberSecret) -> Identity {
        let mut der = of.certificate().der.to_vec();
        let (_, read) = X509Certificate::from_der(&der).expect("a certificate");
        // 30 ‖ length ‖ 02 ‖ length ‖ r ‖ 02 ‖ length ‖ s
        let signature = read.signature_value.data.to_vec();
        let s = 4 + usize::from(signature[3]) + 2;
        let digits: Vec<u8> = signature[s..].iter().copied().skip_while(|byte| *byte == 0).collect();
        let mut scalar = [0; 32];
        scalar[32 - digits.len()..].copy_from_slice(&digits);
        let negated = P256::scalar_bytes(&-P256::decode_scalar(&scalar).expect("below n"));
        let mut other: Vec<u8> = negated.iter().copied().skip_while(|byte| *byte == 0).collect();
        if other[0] >= 0x80 {
            other.insert(0, 0);
        }
        // The lengths around it: 30 ‖ 82 ‖ u16 of the certificate … 03 ‖ length ‖ 00 of the signature, and the two above.
        let (begin, old) = (der.len() - signature.len(), signature.len() - s);
        let longer = |length: u8| u8::try_from(usize::from(length) + other.len() - old).expect("it is short");
        for at in [begin - 2, begin + 1, begin + s - 1] {
            der[at] = longer(der[at]);
        }
        let whole = usize::from(u16::from_be_bytes([der[2], der[3]])) + other.len() - old;
        der[2..4].copy_from_slice(&u16::try_from(whole).expect("it is short").to_be_bytes());
        der.truncate(begin + s);
        der.extend_from_slice(&other);
        Identity::new(&Certificate::parse(&der).expect("read"), secret, of.anchor().clone()).expect("it verifies")
    }

    #[test]
    fn rule_a4_a_voided_signer_has_no_power_under_a_second_certificate_of_its_serial() {
        let mut ca = authority(1);
        let (carol, dave) = (member(&mut ca, everything(), 3), member(&mut ca, everything(), 4));
        let mallory = head(&mut ca, 2);
        let other = twin(&mallory, &MemberSecret::generate(Algorithm::Ed25519, &mut rng(2)));
        assert_ne!(mallory.certificate().hash, other.certificate().hash);
        assert_eq!(mallory.certificate().serial, other.certificate().serial);
        let mut set = Evictions::new(GROUP);
        set.insert(by_member(&mallory, &carol, 1)).expect("room");
        set.insert(by_authority(&mut ca, &mallory, true)).expect("room");
        set.insert(by_member(&other, &dave, 2)).expect("room");
        assert!(excluded(&set, &mallory) && excluded(&set, &other));
        assert!(!excluded(&set, &carol) && !excluded(&set, &dave));
    }

    /// Statements as members would hear them, in two orders and in part from each other.
    fn same_in_any_order(statements: &[SignedEviction]) -> Evictions {
        let all = |order: &mut dyn Iterator<Item = &SignedEviction>| {
            let mut set = Evictions::new(GROUP);
            // What does not fit is told, and changes nothing.
            order.for_each(|s| _ = set.insert(s.clone()));
            set
        };
        let forward = all(&mut statements.iter());
        let (even, odd) = (statements.iter().step_by(2), statements.iter().skip(1).step_by(2));
        let mut mixed = all(&mut odd.rev());
        let half = all(&mut even.rev());
        half.iter().for_each(|s| _ = mixed.insert(s.clone()));
        assert_eq!(all(&mut statements.iter().rev()).hash(), forward.hash());
        assert_eq!(mixed.hash(), forward.hash());
        forward
    }

    #[test]
    fn rule_a4_a_full_set_is_the_same_in_any_order_of_arrival() {
        let mut ca = authority(1);
        let evictors: Vec<Identity> = (0..6).map(|i| head(&mut ca, 1000 + i)).collect();
        let quota = limits::EVICTIONS_BY_MEMBER_MAX;
        let evicted: Vec<Identity> = (0..=quota as u64).map(|i| member(&mut ca, everything(), 2000 + i)).collect();
        // One signs more than its quota; five together more than half of the set; the sixth a few, with high numbers.
        let mut statements: Vec<SignedEviction> = Vec::new();
        for (i, by) in evictors.iter().enumerate() {
            let few = if i == 5 { 3 } else { evicted.len() };
            let number = |k: usize| if i == 5 { 1 << 40 } else { 1 + (k * 37 % evicted.len()) as u64 };
            statements.extend(evicted.iter().take(few).enumerate().map(|(k, of)| by_member(by, of, number(k))));
        }
        let set = same_in_any_order(&statements);
        let by =
            |who: &Identity| set.iter().filter(|s| s.signer().certificate() == Some(who.certificate().hash)).count();
        assert_eq!(set.len(), limits::EVICTIONS_MAX / 2);
        assert_eq!(by(&evictors[5]), 3, "nobody displaces another's first statements");
        assert!(evictors.iter().all(|it| by(it) <= quota));
        let alone = same_in_any_order(&statements[..evicted.len()]);
        assert_eq!((alone.len(), alone.last_number(Some(evictors[0].certificate().hash))), (quota, quota as u64));
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
