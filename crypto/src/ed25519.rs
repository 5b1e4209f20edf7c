//! Ed25519 (RFC 8032) by one predicate that single and batch verification share (E10).
//!
//! Replicas must never judge a signature differently, whichever path they took. The usual pair does: the
//! single equation s·B = R + k·A (without the cofactor) and a random linear combination of many such disagree
//! on keys and signatures with a component of small order, and whoever publishes such a key chooses them.
//! Here the predicate is, for both:
//!
//! 1. A and R are canonical encodings of points that are not of small order, and s < ℓ;
//! 2. \[8\](s·B − R − k·A) = 0 with k = SHA-512(R ‖ A ‖ message).
//!
//! With the cofactor in it, the sum over a batch with weights zᵢ, \[8\]Σ zᵢ(sᵢ·B − Rᵢ − kᵢ·Aᵢ) = 0, lies in the group of
//! prime order ℓ: it holds if all its equations do, and otherwise for at most one choice in 2¹²⁸ of the weights.
//! The weights are a hash of the whole batch, so that it cannot be made to fit them, no generator is needed,
//! and the same batch is judged alike everywhere. What RFC 8032's own signers make passes everywhere; who makes
//! signatures with components of small order is accepted here and elsewhere perhaps not (ZIP 215 has more on
//! that), which harms nobody but him.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{Context, SHA512};
use curve25519_dalek::constants::ED25519_BASEPOINT_POINT;
use curve25519_dalek::edwards::{CompressedEdwardsY, EdwardsPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::{IsIdentity, VartimeMultiscalarMul};

use crate::hash::{Transcript, sha256};
use crate::signature::{KeyError, Signature};

/// A public key, parsed once: canonical and not of small order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    encoded: CompressedEdwardsY,
    point: EdwardsPoint,
}

/// What somebody is said to have signed.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// Whose signature.
    pub key: &'a Key,
    /// Of what.
    pub message: &'a [u8],
    /// R ‖ s.
    pub signature: &'a Signature,
}

impl Key {
    /// The key with these 32 bytes.
    ///
    /// # Errors
    /// [`KeyError`] if they are no point, not its canonical encoding, or the point is of small order.
    pub fn new(bytes: &[u8; 32]) -> Result<Key, KeyError> {
        let encoded = CompressedEdwardsY(*bytes);
        Ok(Key { encoded, point: strict(&encoded).ok_or(KeyError)? })
    }

    /// Its 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.encoded.as_bytes()
    }

    /// Whether the signature is this key's over the message, by the predicate of the module's head.
    pub fn verify(&self, message: &[u8], signature: &Signature) -> bool {
        Equation::of(&Signed { key: self, message, signature }).is_some_and(|e| e.holds())
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_bytes().iter().take(8).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The places of those that are no signatures, ascending: exactly those for which [`Key::verify`] is false.
///
/// One false signature among n costs about log₂ n more sums over halves of what is left, so false ones should
/// cost their sender his connection.
pub fn false_ones(batch: &[Signed<'_>]) -> Vec<usize> {
    let equations: Vec<Option<Equation>> = batch.iter().map(Equation::of).collect();
    let mut wrong: Vec<usize> = (0..batch.len()).filter(|&i| equations[i].is_none()).collect();
    let sound: Vec<(usize, Equation)> = equations.into_iter().enumerate().filter_map(|(i, e)| Some((i, e?))).collect();
    sound.chunks(CHUNK).for_each(|chunk| bisect(chunk, &mut wrong));
    wrong.sort_unstable();
    wrong
}

/// One signature's equation, all parts of it valid.
struct Equation {
    key: CompressedEdwardsY,
    a: EdwardsPoint,
    /// R as it was sent.
    encoded: CompressedEdwardsY,
    r: EdwardsPoint,
    s: Scalar,
    k: Scalar,
}

impl Equation {
    /// Condition 1 of the module's head.
    fn of(signed: &Signed<'_>) -> Option<Equation> {
        let (r, s) = signed.signature.split_first_chunk::<32>()?;
        let s = Option::from(Scalar::from_canonical_bytes(s.try_into().ok()?))?;
        let mut hash = Context::new(&SHA512);
        hash.update(r);
        hash.update(signed.key.as_bytes());
        hash.update(signed.message);
        let k = hash.finish().as_ref().try_into().expect("SHA-512 has 64 bytes");
        let encoded = CompressedEdwardsY(*r);
        Some(Equation {
            key: signed.key.encoded,
            a: signed.key.point,
            encoded,
            r: strict(&encoded)?,
            s,
            k: Scalar::from_bytes_mod_order_wide(&k),
        })
    }

    /// Condition 2.
    fn holds(&self) -> bool {
        let sum = EdwardsPoint::vartime_double_scalar_mul_basepoint(&-self.k, &self.a, &self.s) - self.r;
        sum.mul_by_cofactor().is_identity()
    }
}

fn bisect(chunk: &[(usize, Equation)], wrong: &mut Vec<usize>) {
    match chunk {
        [] => {}
        [(at, equation)] => wrong.extend((!equation.holds()).then_some(*at)),
        _ if sum_vanishes(chunk) => {}
        _ => {
            let (left, right) = chunk.split_at(chunk.len() / 2);
            bisect(left, wrong);
            bisect(right, wrong);
        }
    }
}

fn sum_vanishes(chunk: &[(usize, Equation)]) -> bool {
    let mut all = Transcript::new("ed25519 batch");
    for (_, e) in chunk {
        all.absorb(e.key.as_bytes());
        all.absorb(e.encoded.as_bytes());
        all.absorb(e.s.as_bytes());
        all.absorb(e.k.as_bytes());
    }
    let seed = all.finish();
    let mut base = Scalar::ZERO;
    let mut scalars = Vec::with_capacity(2 * chunk.len() + 1);
    let mut points = Vec::with_capacity(2 * chunk.len() + 1);
    // One term for each key, however often it signed.
    let mut keys: BTreeMap<[u8; 32], (Scalar, EdwardsPoint)> = BTreeMap::new();
    for (i, (_, e)) in chunk.iter().enumerate() {
        let z = weight(&seed, i);
        base += z * e.s;
        scalars.push(-z);
        points.push(e.r);
        keys.entry(e.key.to_bytes()).or_insert((Scalar::ZERO, e.a)).0 -= z * e.k;
    }
    for (scalar, point) in keys.into_values().chain([(base, ED25519_BASEPOINT_POINT)]) {
        scalars.push(scalar);
        points.push(point);
    }
    EdwardsPoint::vartime_multiscalar_mul(&scalars, &points).mul_by_cofactor().is_identity()
}

/// 128 bits of a hash of everything.
fn weight(seed: &[u8; 32], i: usize) -> Scalar {
    let mut input = [0; 40];
    input[..32].copy_from_slice(seed);
    input[32..].copy_from_slice(&(i as u64).to_be_bytes());
    let half = sha256(&input)[..16].try_into().expect("half of 32 bytes");
    Scalar::from(u128::from_be_bytes(half))
}

/// The point of a canonical encoding, if it is not of small order. An encoding that is not canonical has y ≥ p, or the
/// sign of x = 0, which only points of small order have: neither needs the inversion that encoding it again would cost.
fn strict(encoded: &CompressedEdwardsY) -> Option<EdwardsPoint> {
    let [low, middle @ .., high] = encoded.as_bytes();
    let is_reduced = high & 0x7f < 0x7f || *low < 0xed || middle.iter().any(|byte| *byte != 0xff);
    let point = if is_reduced { encoded.decompress()? } else { return None };
    (!point.is_small_order()).then_some(point)
}

/// Signatures in one sum: beyond it one gains little, and a false one costs more.
const CHUNK: usize = 128;

#[cfg(test)]
mod tests {
    use curve25519_dalek::constants::EIGHT_TORSION;
    use proptest::prelude::*;

    use super::*;
    use crate::secret::Secret;
    use crate::signature::{Algorithm, OriginKey, PublicKey};
    use crate::unhex;

    /// A signature as its maker wants it: key a·B + key_twist, R = r·B + r_twist, s as the equation asks.
    fn crafted(seed: u8, message: &[u8], key_twist: usize, r_twist: usize) -> (Key, Signature) {
        let scalar = |tag: &[u8]| {
            let wide = Transcript::wide("test").add(tag).add(&[seed]).finish();
            Scalar::from_bytes_mod_order_wide(&wide)
        };
        let (a, r) = (scalar(b"a"), scalar(b"r"));
        let key = Key::new(&(EdwardsPoint::mul_base(&a) + EIGHT_TORSION[key_twist]).compress().to_bytes()).unwrap();
        let point = (EdwardsPoint::mul_base(&r) + EIGHT_TORSION[r_twist]).compress();
        let mut signature = [0; 64];
        signature[..32].copy_from_slice(point.as_bytes());
        let k = Equation::of(&Signed { key: &key, message, signature: &signature }).unwrap().k;
        signature[32..].copy_from_slice((r + k * a).as_bytes());
        (key, signature)
    }

    #[test]
    fn rfc8032_test_2() {
        let key = unhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
        let signature = "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00";
        let key = Key::new(&key.try_into().unwrap()).unwrap();
        assert!(key.verify(&[0x72], &unhex(signature).try_into().unwrap()));
        assert!(!key.verify(&[0x73], &unhex(signature).try_into().unwrap()));
    }

    #[test]
    fn rule_e10_batch_and_single_agree_on_crafted_keys() {
        let mut differs_elsewhere = 0;
        let made: Vec<_> = (0..64_u8).map(|i| crafted(i, &[i], usize::from(i % 8), usize::from(i / 8))).collect();
        let messages: Vec<[u8; 1]> = (0..64_u8).map(|i| [i]).collect();
        let batch: Vec<Signed<'_>> =
            made.iter().zip(&messages).map(|((key, signature), message)| Signed { key, message, signature }).collect();
        for s in &batch {
            assert!(s.key.verify(s.message, s.signature), "components of small order vanish");
            assert!(false_ones(&[*s, *s]).is_empty(), "also where a batch holds it twice");
            let cofactorless = PublicKey::new(Algorithm::Ed25519, s.key.as_bytes()).unwrap();
            differs_elsewhere += usize::from(cofactorless.verify(s.message, s.signature).is_err());
        }
        assert!(false_ones(&batch).is_empty());
        assert!(differs_elsewhere > 32, "the usual predicate would depend on the path: {differs_elsewhere}");
    }

    #[test]
    fn rule_e10_encodings_that_are_not_strict_are_refused_in_either_path() {
        let (key, good) = crafted(1, b"m", 0, 0);
        let mut beyond = good;
        // s + ℓ is the same scalar.
        let order = unhex("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
        let mut carry = 0;
        for (byte, add) in beyond[32..].iter_mut().zip(order) {
            let sum = u16::from(*byte) + u16::from(add) + carry;
            (*byte, carry) = (sum as u8, sum >> 8);
        }
        let mut small = good;
        small[..32].copy_from_slice(EIGHT_TORSION[1].compress().as_bytes());
        let mut odd = good;
        odd[..32].copy_from_slice(&unhex("f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"));
        for signature in [beyond, small, odd] {
            assert!(!key.verify(b"m", &signature));
            let batch = [good, signature, good].map(|s| s);
            let batch: Vec<_> = batch.iter().map(|signature| Signed { key: &key, message: b"m", signature }).collect();
            assert_eq!(false_ones(&batch), [1]);
        }
        for torsion in EIGHT_TORSION {
            assert_eq!(Key::new(&torsion.compress().to_bytes()), Err(KeyError));
        }
    }

    #[test]
    fn rule_e10_a_point_has_one_encoding_that_is_accepted() {
        // All with y from p - 20 to 2²⁵⁵ - 1, and y = 0 and 1, with either sign.
        let mut accepted = 0;
        for low in 0xd9..=0xff_u8 {
            for high in [0x7f, 0xff] {
                let mut bytes = [0xff; 32];
                (bytes[0], bytes[31]) = (low, high);
                let encoded = CompressedEdwardsY(bytes);
                let again = encoded.decompress().filter(|point| !point.is_small_order()).map(|it| it.compress());
                assert_eq!(strict(&encoded).is_some(), again == Some(encoded), "{low} {high}");
                accepted += usize::from(strict(&encoded).is_some());
            }
        }
        assert!(accepted > 0);
        for (y, sign) in [(0, 0), (0, 0x80), (1, 0), (1, 0x80)] {
            let mut bytes = [0; 32];
            (bytes[0], bytes[31]) = (y, sign);
            assert_eq!(strict(&CompressedEdwardsY(bytes)), None, "of small order");
        }
    }

    #[test]
    fn an_equation_that_cancels_another_is_found() {
        // Without weights the errors of these two would cancel in the sum.
        let key = OriginKey::from_seed(&Secret::from_bytes([1; 32]));
        let public = Key::new(&key.public_bytes()).unwrap();
        let (mut a, mut b) = (key.sign(b"a"), key.sign(b"b"));
        let shift = |signature: &mut Signature, by: Scalar| {
            let s = Scalar::from_bytes_mod_order(signature[32..].try_into().unwrap()) + by;
            signature[32..].copy_from_slice(s.as_bytes());
        };
        shift(&mut a, Scalar::ONE);
        shift(&mut b, -Scalar::ONE);
        let batch = [
            Signed { key: &public, message: b"a", signature: &a },
            Signed { key: &public, message: b"b", signature: &b },
        ];
        assert_eq!(false_ones(&batch), [0, 1]);
    }

    proptest! {
        #[test]
        fn rule_e10_batch_and_single_agree_on_any_mixture(
            what in prop::collection::vec((0_u8..4, 0_usize..8, 0_usize..8, 0_u8..4, 0_usize..64), 0..40)
        ) {
            let made: Vec<_> = what.iter().map(|&(seed, a, r, harm, at)| {
                let (key, mut signature) = crafted(seed, &[seed], a, r);
                if harm == 0 { signature[at] ^= 1 << (seed % 8); }
                (key, signature, [seed])
            }).collect();
            let batch: Vec<_> =
                made.iter().map(|(key, signature, message)| Signed { key, message, signature }).collect();
            let single: Vec<usize> = (0..batch.len())
                .filter(|&i| !batch[i].key.verify(batch[i].message, batch[i].signature)).collect();
            prop_assert_eq!(false_ones(&batch), single);
        }
    }
}
