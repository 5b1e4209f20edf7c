//! A registration: what a key distribution centre knows of a principal, in a certificate's place (C3).
//!
//! ```text
//! "SCREG1" ‖ realm (32) ‖ serial (8) ‖ name (16-bit length) ‖ Ed25519 key (32) ‖ not before (8) ‖ not after (8)
//! ‖ count (2) of rights, ascending: group (16-bit length) ‖ act (1) ‖ pattern (16-bit length)
//! "SCREG2" the same, with an X25519 key (32) behind the Ed25519 key
//! ```
//! Nobody signs it. Its SHA-256 is the principal's name in every key of [`crate::leighton_micali`], so that a pair that
//! comes to one key knows that the centre registered both as each showed itself.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::agreement::{PrivateKey, X25519};
use sealcast_wire::{CertHash, Malformed, Reader, Utc, Writer, limits};

use super::certificate::is_name;
use super::rights::{Act, Right, Rights};
use crate::hash::sha256;
use crate::hpke::diffie_hellman;
use crate::kdf::hkdf;
use crate::leighton_micali::{LongTerm, PairSecret};
use crate::secret::Secret;
use crate::signature::{Algorithm, OriginKey, PublicKey};

/// What a centre registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Names the centre: hash of a secret of its master keys.
    pub realm: [u8; 32],
    /// Of this centre's registrations.
    pub serial: u64,
    /// For people to read; never for decisions.
    pub name: Arc<str>,
    /// Verifies what the principal signs.
    pub key: PublicKey,
    /// X25519 key (RFC 7748, a u-coordinate), if it has one: two principals that both do share more than the centre knows.
    pub exchange: Option<[u8; 32]>,
    /// Seconds since 1970 from which it holds.
    pub not_before: i64,
    /// Seconds since 1970 until which it holds.
    pub not_after: i64,
    /// What the principal may do.
    pub rights: Rights,
}

/// Why a registration does not hold now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// Its time has not come.
    #[error("the registration holds only from {0} on (seconds since 1970)")]
    NotYetValid(i64),
    /// Its time is over.
    #[error("the registration ended at {0} (seconds since 1970)")]
    Expired(i64),
}

impl Registration {
    /// The bytes, the same for all who write it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        let magic = if self.exchange.is_some() { MAGIC_EXCHANGE } else { MAGIC };
        w.raw(magic).raw(&self.realm).u64(self.serial).bytes16(self.name.as_bytes()).raw(self.key.point());
        self.exchange.iter().for_each(|key| _ = w.raw(key));
        w.u64(self.not_before as u64).u64(self.not_after as u64).u16(self.rights.len() as u16);
        for right in self.rights.iter() {
            w.bytes16(right.group.as_bytes()).u8(act_number(right.act)).bytes16(right.pattern.to_string().as_bytes());
        }
        w.finish()
    }

    /// Reads what [`Registration::to_bytes`] wrote, and nothing else.
    ///
    /// # Errors
    /// [`Malformed`], also where the same content could be written otherwise.
    pub fn from_bytes(bytes: &[u8]) -> Result<Registration, Malformed> {
        if bytes.len() > limits::REGISTRATION_BYTES_MAX {
            return Err(Malformed);
        }
        let mut r = Reader::new(bytes);
        let has_exchange = match r.take(MAGIC.len())? {
            MAGIC => false,
            MAGIC_EXCHANGE => true,
            _ => return Err(Malformed),
        };
        let (realm, serial) = (r.array()?, r.u64()?);
        let name = text(r.bytes16(limits::NAME_BYTES_MAX)?)?;
        let key = PublicKey::new(Algorithm::Ed25519, r.take(32)?).map_err(|_| Malformed)?;
        let exchange = if has_exchange { Some(r.array()?) } else { None };
        let (not_before, not_after) = (r.u64()? as i64, r.u64()? as i64);
        let count = r.count16(5, limits::REGISTRATION_RIGHTS_MAX)?;
        let mut rights = Rights::none();
        for _ in 0..count {
            let group = text(r.bytes16(limits::GROUP_BYTES_MAX)?)?;
            let act = act_of(r.u8()?)?;
            let pattern = text(r.bytes16(limits::TOPIC_BYTES_MAX)?)?;
            rights.grant(Right::new(group, act, pattern).map_err(|_| Malformed)?);
        }
        r.end()?;
        let made = Registration { realm, serial, name: name.into(), key, exchange, not_before, not_after, rights };
        if is_name(&made.name) && made.to_bytes() == bytes { Ok(made) } else { Err(Malformed) }
    }

    /// SHA-256 of its bytes: the principal's lasting name.
    pub fn hash(&self) -> CertHash {
        CertHash(sha256(&self.to_bytes()))
    }

    /// Whether it holds at a time; without a clock, whether it had not ended at `floor` (G5).
    ///
    /// # Errors
    /// [`RegistrationError`].
    pub fn check(&self, utc: Option<Utc>, floor: Utc) -> Result<(), RegistrationError> {
        let now = utc.unwrap_or(floor);
        if now.0 > self.not_after {
            return Err(RegistrationError::Expired(self.not_after));
        }
        if utc.is_some() && now.0 < self.not_before {
            return Err(RegistrationError::NotYetValid(self.not_before));
        }
        Ok(())
    }
}

/// A principal with its secrets: what the centre's `register` writes, and `join` takes.
#[derive(Clone)]
pub struct Principal {
    /// What others are shown.
    pub registration: Registration,
    /// Shared with the centre.
    pub long_term: LongTerm,
    /// Of the key in the registration.
    pub signing: Secret<32>,
    /// The bootstrap secrets of the groups in which it has rights, by name.
    pub bootstrap: Vec<(String, Secret<32>)>,
}

impl Principal {
    /// Signs as this principal.
    pub fn origin_key(&self) -> OriginKey {
        OriginKey::from_seed(&self.signing)
    }

    /// The key that this principal shares with `other`, of what the centre made for them: where both registrations have an X25519
    /// key, with an exchange mixed in that the centre cannot do. `None`: the other one's key is of small order.
    ///
    /// HKDF with the centre's key as salt, so that it takes both to know the result (RFC 5869, 3.1).
    pub fn mixed(&self, sigma: &PairSecret, other: &Registration) -> Option<PairSecret> {
        let (Some(_), Some(theirs)) = (self.registration.exchange, other.exchange) else { return Some(sigma.clone()) };
        let dh = diffie_hellman(&exchange_private(&self.signing), &theirs)?;
        Some(hkdf(dh.expose(), sigma.expose(), &[b"sealcast/v1/center/exchange"]))
    }

    /// The bootstrap secret of a group.
    pub fn bootstrap_of(&self, group: &str) -> Option<&Secret<32>> {
        self.bootstrap.iter().find(|(name, _)| name == group).map(|(_, secret)| secret)
    }
}

/// Without secrets.
impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Principal").field("registration", &self.registration).finish_non_exhaustive()
    }
}

/// The X25519 key of a principal's registration, which follows from the seed of its signing key.
pub fn exchange_key(signing: &Secret<32>) -> [u8; 32] {
    let public = exchange_private(signing).compute_public_key().expect("a valid private key has a public one");
    public.as_ref().try_into().expect("X25519 has 32 bytes")
}

fn exchange_private(signing: &Secret<32>) -> PrivateKey {
    let secret: Secret<32> = hkdf(signing.expose(), b"", &[b"sealcast/v1/centre/exchange"]);
    PrivateKey::from_private_key(&X25519, secret.expose()).expect("any 32 bytes are a scalar")
}

/// The bootstrap secret of a group under a centre, whose secret this is.
pub fn bootstrap_secret(centre: &Secret<32>, group: &str) -> Secret<32> {
    hkdf(centre.expose(), b"", &[b"sealcast/v1/centre/bootstrap", group.as_bytes()])
}

/// Names a centre by its secret.
pub fn realm(centre: &Secret<32>) -> [u8; 32] {
    *hkdf::<32>(centre.expose(), b"", &[b"sealcast/v1/centre/realm"]).expose()
}

fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed)
}

fn act_number(act: Act) -> u8 {
    match act {
        Act::Publish => 1,
        Act::Subscribe => 2,
        Act::Both => 3,
        Act::Evict => 4,
        Act::Lead => 5,
    }
}

fn act_of(number: u8) -> Result<Act, Malformed> {
    let known = [Act::Publish, Act::Subscribe, Act::Both, Act::Evict, Act::Lead];
    known.into_iter().find(|act| act_number(*act) == number).ok_or(Malformed)
}

const MAGIC: &[u8] = b"SCREG1";
/// With an X25519 key.
const MAGIC_EXCHANGE: &[u8] = b"SCREG2";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::leighton_micali::Master;

    fn registration() -> Registration {
        let rights = [(Act::Lead, "#"), (Act::Both, "pose/#"), (Act::Publish, "log/+")];
        Registration {
            realm: [1; 32],
            serial: 7,
            name: "robot7".into(),
            key: OriginKey::from_seed(&Secret::from_bytes([3; 32])).public().clone(),
            exchange: None,
            not_before: 1_790_000_000,
            not_after: 1_800_000_000,
            rights: rights.iter().map(|(act, p)| Right::new("ward3", *act, p).unwrap()).collect(),
        }
    }

    #[test]
    fn a_registration_is_read_as_it_was_written_and_not_otherwise() {
        for exchange in [None, Some([5; 32])] {
            let made = Registration { exchange, ..registration() };
            let bytes = made.to_bytes();
            assert_eq!(Registration::from_bytes(&bytes), Ok(made));
            for cut in 0..bytes.len() {
                assert_eq!(Registration::from_bytes(&bytes[..cut]), Err(Malformed));
            }
            assert_eq!(Registration::from_bytes(&[&bytes[..], &[0]].concat()), Err(Malformed));
        }
    }

    fn principal(seed: u8, exchanges: bool) -> Principal {
        let signing = Secret::from_bytes([seed; 32]);
        let long_term = LongTerm { exchange: signing.clone(), authentication: signing.clone() };
        let exchange = exchanges.then(|| exchange_key(&signing));
        Principal {
            registration: Registration { exchange, ..registration() },
            long_term,
            signing,
            bootstrap: Vec::new(),
        }
    }

    /// The centre knows σ and all that it registered; what it lacks is either one's X25519 secret.
    #[test]
    fn rule_c2_two_with_x25519_keys_share_what_the_centre_cannot_compute() {
        let sigma = Secret::from_bytes([9; 32]);
        let [a, b, other] = [1, 2, 3].map(|seed| principal(seed, true));
        let of = |one: &Principal, with: &Principal| *one.mixed(&sigma, &with.registration).expect("a key").expose();
        assert_eq!(of(&a, &b), of(&b, &a));
        assert!(of(&a, &b) != *sigma.expose() && of(&a, &b) != of(&a, &other));
        let later = a.mixed(&Secret::from_bytes([8; 32]), &b.registration).expect("a key");
        assert_ne!(*later.expose(), of(&a, &b), "it takes the centre's key, too");
        // Golden value: another version comes to the same key.
        assert_eq!(of(&a, &b)[..8], 0x275d_a05f_bdff_4b6e_u64.to_be_bytes());
        let without = principal(2, false);
        assert_eq!((of(&a, &without), of(&without, &a)), ([9; 32], [9; 32]), "both or none");
        let mut weak = b;
        weak.registration.exchange = Some([0; 32]);
        assert!(a.mixed(&sigma, &weak.registration).is_none(), "a key of small order would give all the same");
    }

    /// Who shows somebody's registration with a verification key of its own comes to no key of that principal's.
    #[test]
    fn rule_c3_a_registration_binds_its_verification_key() {
        let mallory = OriginKey::from_seed(&Secret::from_bytes([4; 32])).public().clone();
        let swapped = Registration { key: mallory, ..registration() };
        assert_eq!(
            Registration::from_bytes(&swapped.to_bytes()).as_ref(),
            Ok(&swapped),
            "nothing else is wrong with it"
        );
        assert_ne!(swapped.hash(), registration().hash());
        let master = Master::new(&Secret::from_bytes([7; 32]));
        let (alice, leader) = (registration().hash().0, [8; 32]);
        let keys = master.long_term(&alice);
        let key = keys.receives(&leader, &alice, &[5; 16]);
        assert_ne!(key, keys.receives(&leader, &swapped.hash().0, &[5; 16]), "a leader that was shown the other one");
        assert_ne!(key, master.long_term(&swapped.hash().0).receives(&leader, &alice, &[5; 16]));
    }

    #[test]
    fn rule_g2_rights_out_of_order_or_twice_are_refused() {
        let made = registration();
        let one = Registration { rights: made.rights.iter().take(1).cloned().collect(), ..made.clone() }.to_bytes();
        let head = one.len() - (2 + 5 + 1 + 2 + made.rights.iter().next().unwrap().pattern.to_string().len());
        let mut twice = [&one[..], &one[head..]].concat();
        twice[head - 1] = 2;
        assert_eq!(Registration::from_bytes(&twice), Err(Malformed));
    }

    #[test]
    fn rule_g5_it_holds_from_its_first_to_its_last_second() {
        let made = registration();
        let at = |s: i64| made.check(Some(Utc(s)), Utc(0));
        assert_eq!(at(1_789_999_999), Err(RegistrationError::NotYetValid(1_790_000_000)));
        assert_eq!((at(1_790_000_000), at(1_800_000_000)), (Ok(()), Ok(())));
        assert_eq!(at(1_800_000_001), Err(RegistrationError::Expired(1_800_000_000)));
        assert_eq!(made.check(None, Utc(1_700_000_000)), Ok(()), "without a clock it may have begun");
        assert_eq!(made.check(None, Utc(1_900_000_000)), Err(RegistrationError::Expired(1_800_000_000)));
    }

    #[test]
    fn each_right_of_it_counts() {
        let rights = registration().rights;
        assert!(rights.may_lead("ward3") && !rights.may_lead("ward4"));
        assert!(rights.may_subscribe("ward3", "pose/1") && !rights.may_subscribe("ward3", "log/1"));
    }

    proptest! {
        #[test]
        fn rule_g2_no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Registration::from_bytes(&bytes);
            let _ = Registration::from_bytes(&[MAGIC, &bytes].concat());
        }
    }
}
