//! Proofs of knowledge and of equal logarithms (Schnorr 1991; Chaum–Pedersen 1992), made non-interactive by
//! hashing the whole statement; challenge ‖ response, 64 bytes, as in RFC 9497 §2.2.
//!
//! ```text
//! knowledge of x     : A = k G              c = H(session, seat, X, A)                        s = k + c x
//! log_G X = log_H Y  : A = k G, B = k H     c = H(session, seat, X_{i-1}, X_i, X_{i+1}, Y, A, B)   s = k + c x
//! verified by        : A = s G − c X, B = s H − c Y, and c again
//! ```
//! Proofs are verified one by one, as they come: with A in c's place one multi-scalar multiplication could
//! check many, but each A must then be decoded, and the sum still has two points a proof: little is saved.

use curve25519_dalek::ristretto::RistrettoPoint;
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::VartimeMultiscalarMul;

use super::Ring;
use super::element::{Element, Exponent, challenge, nonce};
use crate::hash::Transcript;
use crate::secret::Secret;

/// c and s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proof {
    challenge: Scalar,
    response: Scalar,
}

/// A Y and what determines it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShareStatement<'a> {
    pub(super) ring: &'a Ring,
    pub(super) seat: usize,
    /// X_{i−1}
    pub(super) left: &'a Element,
    /// X_i
    pub(super) own: &'a Element,
    /// X_{i+1}
    pub(super) right: &'a Element,
    /// Y_i
    pub(super) share: &'a Element,
}

impl Proof {
    /// Knowledge of x, where X = x G, by this seat in this session.
    pub(super) fn of_knowledge(ring: &Ring, seat: usize, x: &Exponent, public: &Element, random: &Secret<32>) -> Proof {
        let statement = knowledge(ring, seat, public);
        let k = nonce(x, &statement, random);
        let c = challenge(statement.add(&k.public().bytes));
        Proof { challenge: c, response: k.scalar() + c * x.scalar() }
    }

    /// Whether this proves knowledge of log_G X by that seat in that session.
    pub(super) fn shows_knowledge(&self, ring: &Ring, seat: usize, public: &Element) -> bool {
        let statement = knowledge(ring, seat, public);
        self.challenge == challenge(statement.add(&self.commitment(public).bytes))
    }

    /// log_G X_i = log_{X_{i+1} − X_{i−1}} Y_i.
    pub(super) fn of_share(statement: &ShareStatement<'_>, x: &Exponent, random: &Secret<32>) -> Proof {
        let transcript = statement.transcript();
        let k = nonce(x, &transcript, random);
        let over_h = Element::new(*k.times(&statement.base()));
        let c = challenge(transcript.add(&k.public().bytes).add(&over_h.bytes));
        Proof { challenge: c, response: k.scalar() + c * x.scalar() }
    }

    /// Whether this proves that Y_i is right.
    pub(super) fn shows_share(&self, statement: &ShareStatement<'_>) -> bool {
        let scalars = [self.response, -self.challenge];
        let over_h = RistrettoPoint::vartime_multiscalar_mul(scalars, [statement.base(), statement.share.point]);
        let transcript = statement.transcript().add(&self.commitment(statement.own).bytes);
        self.challenge == challenge(transcript.add(&Element::new(over_h).bytes))
    }

    pub(super) fn encode(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(self.challenge.as_bytes());
        bytes[32..].copy_from_slice(self.response.as_bytes());
        bytes
    }

    /// `None` unless both scalars are reduced.
    pub(super) fn decode(bytes: &[u8; 64]) -> Option<Proof> {
        let (challenge, response) = bytes.split_at(32);
        let scalar = |half: &[u8]| Scalar::from_canonical_bytes(half.try_into().expect("halves of 64")).into_option();
        Some(Proof { challenge: scalar(challenge)?, response: scalar(response)? })
    }

    /// A = s G − c X
    fn commitment(&self, public: &Element) -> Element {
        let (c, s) = (-self.challenge, self.response);
        Element::new(RistrettoPoint::vartime_double_scalar_mul_basepoint(&c, &public.point, &s))
    }
}

impl ShareStatement<'_> {
    /// H = X_{i+1} − X_{i−1}
    fn base(&self) -> RistrettoPoint {
        self.right.point - self.left.point
    }

    fn transcript(&self) -> Transcript<64> {
        Transcript::wide("DB/share")
            .add(&self.ring.session)
            .add(&(self.seat as u32).to_be_bytes())
            .add(&self.left.bytes)
            .add(&self.own.bytes)
            .add(&self.right.bytes)
            .add(&self.share.bytes)
    }
}

fn knowledge(ring: &Ring, seat: usize, public: &Element) -> Transcript<64> {
    Transcript::wide("DB/knowledge").add(&ring.session).add(&(seat as u32).to_be_bytes()).add(&public.bytes)
}
