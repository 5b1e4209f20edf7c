//! Elements and scalars of ristretto255 as this scheme uses them: decoded canonically, secret ones erased.

use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::Identity;
use rand_core::CryptoRng;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::hash::Transcript;
use crate::kdf::hkdf;
use crate::secret::Secret;

/// A public group element with its one encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) point: RistrettoPoint,
    pub(super) bytes: [u8; 32],
}

impl Element {
    pub(super) fn new(point: RistrettoPoint) -> Element {
        Element { point, bytes: point.compress().to_bytes() }
    }

    /// `None` unless canonical (RFC 9496 §4.3.1).
    pub(super) fn decode(bytes: &[u8; 32]) -> Option<Element> {
        let point = CompressedRistretto(*bytes).decompress()?;
        Some(Element { point, bytes: *bytes })
    }

    pub(super) fn is_identity(&self) -> bool {
        self.point == RistrettoPoint::identity()
    }
}

/// x_i: a secret scalar that is not zero.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct Exponent(Scalar);

impl Exponent {
    /// x_i ← Z_q*
    pub(super) fn random(rng: &mut impl CryptoRng) -> Exponent {
        loop {
            if let Some(x) = Exponent::reduce(&Secret::random(rng)) {
                return x;
            }
        }
    }

    /// 64 uniform bytes mod q; `None` for zero, which happens once in 2²⁵² draws.
    pub(super) fn reduce(uniform: &Secret<64>) -> Option<Exponent> {
        let x = Exponent(Scalar::from_bytes_mod_order_wide(uniform.expose()));
        (!bool::from(x.0.ct_eq(&Scalar::ZERO))).then_some(x)
    }

    /// X = x G.
    pub(super) fn public(&self) -> Element {
        Element::new(RistrettoPoint::mul_base(&self.0))
    }

    /// x P, in time that does not depend on x.
    pub(super) fn times(&self, point: &RistrettoPoint) -> Zeroizing<RistrettoPoint> {
        Zeroizing::new(point * self.0)
    }

    pub(super) fn scalar(&self) -> &Scalar {
        &self.0
    }
}

/// A proof's nonce: from the secret, the statement and fresh randomness together, so that neither a repeated
/// random string nor a broken generator gives two proofs one nonce.
pub(super) fn nonce(x: &Exponent, statement: &Transcript<64>, random: &Secret<32>) -> Exponent {
    let statement = statement.clone().finish();
    let uniform = hkdf(Zeroizing::new(x.0.to_bytes()).as_slice(), random.expose(), &[b"DB/nonce", &statement]);
    Exponent::reduce(&uniform).expect("zero is not met in 2^252 draws")
}

/// The scalar of a transcript, as a challenge.
pub(super) fn challenge(statement: Transcript<64>) -> Scalar {
    Scalar::from_bytes_mod_order_wide(&statement.finish())
}
