//! Policy (A8, A10): which topics share a key, and what an old revocation list means.
//!
//! ```text
//! group (16-bit length) ‖ number (8) ‖ max-crl-age, seconds, 0 = none (4) ‖ on-stale (1: 0 warn, 1 refuse-joins, 2 stop)
//! ‖ compartments (16-bit count): name (16-bit length) ‖ patterns (16-bit count): pattern (16-bit length)
//! ```
//! Only the authority signs one; a higher number takes the place of a lower one.

use std::collections::BTreeSet;

use sealcast_wire::{Reader, Utc, Writer, limits};

use super::{Bytes, Envelope, Kind, StatementError, digest, text};
use crate::identity::anchor::TrustAnchor;
use crate::identity::authority::Authority;
use crate::identity::certificate::is_name;
use crate::identity::crl::Crl;
use crate::identity::pattern::Pattern;
use crate::identity::rights::check_group;

/// What a policy says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whose.
    pub group: String,
    /// Counts up; [`Authority::policy`] sets it.
    pub number: u64,
    /// A topic belongs to the first compartment that has a pattern for it. At most
    /// [`limits::COMPARTMENTS_MAX`].
    pub compartments: Vec<Compartment>,
    /// How old the revocation list may be, seconds; `None`: as old as it is.
    pub max_crl_age_seconds: Option<u32>,
    /// What is done when it is older, or missing.
    pub on_stale: OnStale,
}

/// Topics that share a key: one set of readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compartment {
    /// For people; unique in the policy.
    pub name: String,
    /// Which topics; at least one pattern, at most [`limits::COMPARTMENT_PATTERNS_MAX`].
    pub patterns: Vec<Pattern>,
}

/// What an old revocation list leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnStale {
    /// A warning.
    #[default]
    Warn,
    /// Nobody new is let in.
    RefuseJoins,
    /// Members stop sending.
    Stop,
}

/// A verified policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedPolicy {
    policy: Policy,
    id: [u8; 32],
    bytes: Bytes,
}

impl Policy {
    /// Which compartment a topic belongs to, by index.
    pub fn compartment_of(&self, topic: &str) -> Option<usize> {
        self.compartments.iter().position(|c| c.patterns.iter().any(|p| p.matches(topic)))
    }

    /// What is to be done about the revocation list's age; `None` while it is young enough. Without a
    /// clock its age is at least that to the newest signed date (G5).
    pub fn staleness(&self, crl: Option<&Crl>, utc: Option<Utc>, floor: Utc) -> Option<OnStale> {
        let max = i64::from(self.max_crl_age_seconds?);
        let fresh = crl.is_some_and(|c| c.age_seconds(utc, floor) <= max);
        (!fresh).then_some(self.on_stale)
    }

    pub(in crate::identity) fn sign(&self, authority: &Authority) -> Result<Vec<u8>, StatementError> {
        let body = self.body()?;
        let digest = digest(Kind::Policy, &authority.certificate().hash(), None, &body);
        let signature = authority.sign(&digest);
        Envelope { kind: Kind::Policy, body: &body, member: None, signature }.write()
    }

    fn body(&self) -> Result<Vec<u8>, StatementError> {
        self.check()?;
        let mut writer = Writer::new();
        writer.bytes16(self.group.as_bytes()).u64(self.number);
        writer.u32(self.max_crl_age_seconds.unwrap_or(0)).u8(self.on_stale.code());
        writer.u16(self.compartments.len() as u16);
        for compartment in &self.compartments {
            writer.bytes16(compartment.name.as_bytes()).u16(compartment.patterns.len() as u16);
            compartment.patterns.iter().for_each(|p| {
                writer.bytes16(p.to_string().as_bytes());
            });
        }
        Ok(writer.finish())
    }

    fn parse(body: &[u8]) -> Result<Policy, StatementError> {
        let mut reader = Reader::new(body);
        let group = own_text(reader.bytes16(limits::GROUP_BYTES_MAX)?)?;
        let number = reader.u64()?;
        let max_crl_age_seconds = Some(reader.u32()?).filter(|age| *age > 0);
        let on_stale = OnStale::from_code(reader.u8()?).ok_or(StatementError::Malformed)?;
        let mut compartments = Vec::new();
        for _ in 0..reader.count16(4, limits::COMPARTMENTS_MAX)? {
            let name = own_text(reader.bytes16(limits::NAME_BYTES_MAX)?)?;
            let mut patterns = Vec::new();
            for _ in 0..reader.count16(2, limits::COMPARTMENT_PATTERNS_MAX)? {
                let pattern = std::str::from_utf8(reader.bytes16(limits::TOPIC_BYTES_MAX)?);
                let pattern = pattern.ok().and_then(|p| p.parse().ok()).ok_or(StatementError::Malformed)?;
                patterns.push(pattern);
            }
            compartments.push(Compartment { name, patterns });
        }
        reader.end()?;
        let policy = Policy { group, number, compartments, max_crl_age_seconds, on_stale };
        policy.check().map_err(|_| StatementError::Malformed)?;
        Ok(policy)
    }

    fn check(&self) -> Result<(), StatementError> {
        let names: BTreeSet<&str> = self.compartments.iter().map(|c| c.name.as_str()).collect();
        let fits =
            |c: &Compartment| is_name(&c.name) && (1..=limits::COMPARTMENT_PATTERNS_MAX).contains(&c.patterns.len());
        let good = check_group(&self.group).is_ok()
            && self.compartments.len() <= limits::COMPARTMENTS_MAX
            && names.len() == self.compartments.len()
            && self.compartments.iter().all(fits)
            && self.max_crl_age_seconds != Some(0);
        if good { Ok(()) } else { Err(StatementError::Contents) }
    }
}

impl OnStale {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            OnStale::Warn => "warn",
            OnStale::RefuseJoins => "refuse-joins",
            OnStale::Stop => "stop",
        }
    }

    /// From the word that people write.
    pub fn from_name(name: &str) -> Option<OnStale> {
        ALL_ON_STALE.into_iter().find(|o| o.name() == name)
    }

    fn code(self) -> u8 {
        self as u8
    }

    fn from_code(code: u8) -> Option<OnStale> {
        ALL_ON_STALE.into_iter().find(|o| o.code() == code)
    }
}

impl SignedPolicy {
    /// Verifies a policy.
    ///
    /// # Errors
    /// It is malformed, or the authority did not sign it.
    pub fn verify(bytes: &[u8], anchor: &TrustAnchor) -> Result<SignedPolicy, StatementError> {
        let envelope = Envelope::parse(Kind::Policy, bytes)?;
        if envelope.member.is_some() {
            return Err(StatementError::NotAuthority);
        }
        let policy = Policy::parse(envelope.body)?;
        let id = envelope.digest(&anchor.certificate().hash());
        anchor.key().verify(&id, &envelope.signature).map_err(|_| StatementError::Signature)?;
        Ok(SignedPolicy { policy, id, bytes: bytes.into() })
    }

    /// Whether it may take the place of `known`; `Ok(false)` if it says the same.
    ///
    /// # Errors
    /// `Older` or `Conflict`: numbers never go back (A10).
    pub fn replaces(&self, known: Option<&SignedPolicy>) -> Result<bool, StatementError> {
        match known {
            None => Ok(true),
            Some(known) if self.policy.number > known.policy.number => Ok(true),
            Some(known) if self.policy.number < known.policy.number => Err(StatementError::Older),
            Some(known) if self.id == known.id => Ok(false),
            Some(_) => Err(StatementError::Conflict),
        }
    }

    /// What it says.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The same for the same words, whatever the signature's bytes.
    pub fn id(&self) -> [u8; 32] {
        self.id
    }

    /// The statement, to be passed on.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn own_text(bytes: &[u8]) -> Result<String, StatementError> {
    text(bytes, bytes.len()).map(str::to_owned).ok_or(StatementError::Malformed)
}

const ALL_ON_STALE: [OnStale; 3] = [OnStale::Warn, OnStale::RefuseJoins, OnStale::Stop];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::identity::fixture::*;
    use crate::identity::statement::{LearnError, Learned};

    fn policy() -> Policy {
        let compartment = |name: &str, patterns: &[&str]| Compartment {
            name: name.to_owned(),
            patterns: patterns.iter().map(|p| p.parse().expect("valid")).collect(),
        };
        Policy {
            group: GROUP.to_owned(),
            number: 0,
            compartments: vec![compartment("orders", &["orders/#", "stop"]), compartment("rest", &["#"])],
            max_crl_age_seconds: Some(3 * DAY as u32),
            on_stale: OnStale::RefuseJoins,
        }
    }

    #[test]
    fn rule_a8_a_topic_belongs_to_the_first_compartment_that_has_it() {
        let mut ca = authority(1);
        let bytes = ca.policy(&policy()).expect("signed");
        let signed = SignedPolicy::verify(&bytes, ca.anchor()).expect("verified");
        assert_eq!(signed.policy(), &Policy { number: 1, ..policy() });
        assert_eq!(Kind::of(&bytes), Some(Kind::Policy));
        let of = |topic| signed.policy().compartment_of(topic);
        assert_eq!((of("orders/7"), of("stop"), of("pose")), (Some(0), Some(0), Some(1)));
        let narrow = Policy { compartments: policy().compartments[..1].to_vec(), ..policy() };
        assert_eq!(narrow.compartment_of("pose"), None);
    }

    #[test]
    fn rule_a10_a_policy_never_goes_back() {
        let mut ca = authority(1);
        let sign = |ca: &mut Authority, policy: &Policy| {
            SignedPolicy::verify(&ca.policy(policy).expect("signed"), ca.anchor()).expect("verified")
        };
        let first = sign(&mut ca, &policy());
        let second = sign(&mut ca, &policy());
        assert_eq!(second.replaces(Some(&first)), Ok(true));
        assert_eq!(first.replaces(Some(&second)), Err(StatementError::Older));
        assert_eq!(first.replaces(Some(&first)), Ok(false));
        assert_eq!(first.replaces(None), Ok(true));
        let mut forgetful = Authority::restore(
            ca.certificate().der(),
            ca.secret().clone(),
            "sealcast-ledger 1\n".parse().expect("a ledger that lost its numbers"),
        )
        .expect("restored");
        let other = sign(&mut forgetful, &Policy { on_stale: OnStale::Stop, ..policy() });
        assert_eq!(other.replaces(Some(&first)), Err(StatementError::Conflict));
    }

    #[test]
    fn rule_a10_an_old_or_missing_revocation_list_has_its_consequence() {
        let mut ca = authority(1);
        let crl = Crl::verify(&ca.crl(NOW, DAY).expect("signed"), ca.anchor()).expect("verified");
        let p = policy();
        assert_eq!(p.staleness(Some(&crl), Some(later(3)), NOW), None);
        assert_eq!(p.staleness(Some(&crl), Some(Utc(later(3).0 + 1)), NOW), Some(OnStale::RefuseJoins));
        assert_eq!(p.staleness(Some(&crl), None, later(4)), Some(OnStale::RefuseJoins), "by the floor");
        assert_eq!(p.staleness(None, None, NOW), Some(OnStale::RefuseJoins));
        let careless = Policy { max_crl_age_seconds: None, ..policy() };
        assert_eq!(careless.staleness(None, Some(later(999)), NOW), None);
    }

    #[test]
    fn only_the_authority_signs_policies() {
        let (mut ours, mut theirs) = (authority(1), authority(2));
        let foreign = theirs.policy(&policy()).expect("signed");
        assert_eq!(SignedPolicy::verify(&foreign, ours.anchor()), Err(StatementError::Signature));
        let good = ours.policy(&policy()).expect("signed");
        for i in 0..good.len() {
            let mut changed = good.clone();
            changed[i] ^= 1;
            assert!(SignedPolicy::verify(&changed, ours.anchor()).is_err(), "byte {i} changed");
            assert!(SignedPolicy::verify(&good[..i], ours.anchor()).is_err(), "cut at {i}");
        }
    }

    #[test]
    fn a_policy_that_contradicts_itself_is_not_signed() {
        let mut ca = authority(1);
        let mut refused = |change: &dyn Fn(&mut Policy)| {
            let mut policy = policy();
            change(&mut policy);
            ca.policy(&policy).err()
        };
        let wrong = Some(StatementError::Contents.into());
        assert_eq!(refused(&|_| {}), None);
        assert_eq!(refused(&|p| p.group.clear()), wrong);
        assert_eq!(refused(&|p| p.max_crl_age_seconds = Some(0)), wrong);
        assert_eq!(refused(&|p| p.compartments[1].name = "orders".to_owned()), wrong);
        assert_eq!(refused(&|p| p.compartments[1].patterns.clear()), wrong);
        assert_eq!(refused(&|p| p.compartments[1].patterns = vec![Pattern::all(); 17]), wrong);
        let many = |p: &mut Policy| {
            let numbered = (0..17).map(|i| Compartment { name: i.to_string(), patterns: vec![Pattern::all()] });
            p.compartments = numbered.collect();
        };
        assert_eq!(refused(&many), wrong);
        let long = |p: &mut Policy| {
            let pattern: Pattern = "x".repeat(250).parse().expect("valid");
            let numbered = (0..16).map(|i| Compartment { name: i.to_string(), patterns: vec![pattern.clone(); 16] });
            p.compartments = numbered.collect();
        };
        assert_eq!(refused(&long), wrong);
        assert_eq!(ca.ledger().policy_number(), 1, "what was refused took no number");
    }

    #[test]
    fn what_a_group_may_learn_is_told_apart_by_its_first_bytes() {
        let mut ca = authority(1);
        let learn = |bytes: &[u8], ca: &Authority| Learned::verify(bytes, ca.anchor());
        let policy = ca.policy(&policy()).expect("signed");
        assert!(matches!(learn(&policy, &ca), Ok(Learned::Policy(_))));
        let crl = ca.crl(NOW, DAY).expect("signed");
        assert!(matches!(learn(&crl, &ca), Ok(Learned::Crl(_))));
        let carol = member(&mut ca, everything(), 2);
        let eviction = ca.evict(GROUP, carol.certificate().serial, carol.certificate().hash, "", false);
        assert!(matches!(learn(&eviction.expect("signed"), &ca), Ok(Learned::Eviction(_))));
        let malformed = LearnError::Statement(StatementError::Malformed);
        assert_eq!(learn(b"", &ca).err(), Some(malformed));
        assert_eq!(learn(b"SCX\x01", &ca).err(), Some(malformed));
        for name in ["warn", "refuse-joins", "stop"] {
            assert_eq!(OnStale::from_name(name).map(OnStale::name), Some(name));
        }
    }

    proptest! {
        #[test]
        fn rule_g2_parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let ca = authority(1);
            prop_assert!(SignedPolicy::verify(&[b"SCP\x01\x00", &bytes[..]].concat(), ca.anchor()).is_err());
            let head = [&[0, 1, b'g', 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0][..], &bytes].concat();
            for body in [&bytes[..], &head] {
                if let Ok(policy) = Policy::parse(body) {
                    prop_assert_eq!(policy.body(), Ok(body.to_vec()), "one encoding for one policy");
                }
            }
        }
    }
}
