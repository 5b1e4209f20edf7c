//! Round 1: everybody draws x_i and sends X_i with its proof of knowledge.

use std::collections::BTreeMap;

use rand_core::CryptoRng;

use super::element::{Element, Exponent};
use super::key::Seed;
use super::proof::Proof;
use super::round2::{Round2, Share};
use super::{Misbehaved, Ring};
use crate::secret::Secret;

/// X_i with the proof that its sender knows x_i (A9): a value of this type is valid in its ring and seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contribution {
    pub(super) ring: Ring,
    pub(super) seat: usize,
    /// X_i
    pub(super) public: Element,
    proof: Proof,
}

impl Contribution {
    /// What a seat sent, checked: canonical, not the identity, exponent proved for this ring and seat.
    ///
    /// # Errors
    /// [`Misbehaved::Malformed`], [`Misbehaved::Unproved`].
    pub fn decode(ring: &Ring, seat: usize, bytes: &[u8]) -> Result<Contribution, Misbehaved> {
        let bytes: &[u8; CONTRIBUTION_LEN] = bytes.try_into().map_err(|_| Misbehaved::Malformed(seat))?;
        let (public, proof) = split(bytes);
        let public = Element::decode(public).filter(|it| !it.is_identity()).ok_or(Misbehaved::Malformed(seat))?;
        let proof = Proof::decode(proof).ok_or(Misbehaved::Malformed(seat))?;
        if seat >= ring.size || !proof.shows_knowledge(ring, seat, &public) {
            return Err(Misbehaved::Unproved(seat));
        }
        Ok(Contribution { ring: *ring, seat, public, proof })
    }

    /// enc(X) ‖ c ‖ s, 96 bytes.
    pub fn encode(&self) -> [u8; CONTRIBUTION_LEN] {
        let mut bytes = [0; CONTRIBUTION_LEN];
        bytes[..32].copy_from_slice(&self.public.bytes);
        bytes[32..].copy_from_slice(&self.proof.encode());
        bytes
    }
}

/// A member that has sent its contribution and waits for the others'.
pub struct Round1 {
    ring: Ring,
    seat: usize,
    /// x_i
    exponent: Exponent,
    /// X_i
    public: Element,
}

impl Round1 {
    /// Takes a seat with a fresh exponent.
    ///
    /// # Panics
    /// If the ring has no such seat.
    pub fn start(ring: &Ring, seat: usize, rng: &mut impl CryptoRng) -> (Round1, Contribution) {
        Round1::start_with(ring, seat, Exponent::random(rng), &Secret::random(rng))
    }

    /// Takes the seed's seat of a join, as U_2.
    ///
    /// # Panics
    /// If the ring has no such seat.
    pub fn start_from_seed(ring: &Ring, seat: usize, seed: &Seed, rng: &mut impl CryptoRng) -> (Round1, Contribution) {
        Round1::start_with(ring, seat, seed.exponent(), &Secret::random(rng))
    }

    /// Derandomised twin of [`Round1::start`]: with a given x_i and randomness of the proof.
    pub(super) fn start_with(
        ring: &Ring,
        seat: usize,
        exponent: Exponent,
        random: &Secret<32>,
    ) -> (Round1, Contribution) {
        assert!(seat < ring.size, "the ring has no seat {seat}");
        let public = exponent.public();
        let proof = Proof::of_knowledge(ring, seat, &exponent, &public, random);
        let contribution = Contribution { ring: *ring, seat, public, proof };
        (Round1 { ring: *ring, seat, exponent, public }, contribution)
    }

    /// With the contributions of all seats, in their order and with our own: on to round 2, and the share to
    /// send. The generator serves the share's proof, where there is one.
    ///
    /// # Errors
    /// [`Misbehaved::Equal`], if two contributions are equal and n > 2.
    ///
    /// # Panics
    /// If the contributions are not one for each seat of this ring.
    pub fn finish(
        self,
        contributions: &[Contribution],
        rng: &mut impl CryptoRng,
    ) -> Result<(Round2, Share), Misbehaved> {
        self.finish_with(contributions, &Secret::random(rng))
    }

    /// Derandomised twin of [`Round1::finish`].
    pub(super) fn finish_with(
        self,
        contributions: &[Contribution],
        random: &Secret<32>,
    ) -> Result<(Round2, Share), Misbehaved> {
        let publics = all_different(&self.ring, contributions)?;
        if publics[self.seat] != self.public {
            return Err(Misbehaved::NotSeed(self.seat));
        }
        Ok(Round2::start(&self.ring, self.seat, &self.exponent, publics, random))
    }
}

/// A passive member of a join: it knows the seed, computes what U_2 computes, and sends nothing.
pub struct Following(Round1);

impl Following {
    /// Follows the seed's seat.
    ///
    /// # Panics
    /// If the ring has no such seat.
    pub fn start(ring: &Ring, seat: usize, seed: &Seed) -> Following {
        assert!(seat < ring.size, "the ring has no seat {seat}");
        let exponent = seed.exponent();
        let public = exponent.public();
        Following(Round1 { ring: *ring, seat, exponent, public })
    }

    /// With the contributions of all seats in their order: on to round 2, where the seed's share is then
    /// awaited as everybody's.
    ///
    /// # Errors
    /// [`Misbehaved::Equal`] as for the active; [`Misbehaved::NotSeed`] if whoever sits on the seed's seat
    /// contributed another exponent than the seed's.
    ///
    /// # Panics
    /// If the contributions are not one for each seat of this ring.
    pub fn finish(self, contributions: &[Contribution]) -> Result<Round2, Misbehaved> {
        let plain = Secret::from_bytes([0; 32]); // its own share is not sent, so its proof is of no use to anybody
        self.0.finish_with(contributions, &plain).map(|(round2, _)| round2)
    }
}

/// X_1 … X_n; equal ones are refused for n > 2 (A9), lest X_{i+1} − X_{i−1} vanish.
fn all_different(ring: &Ring, contributions: &[Contribution]) -> Result<Vec<Element>, Misbehaved> {
    let in_order = contributions.iter().enumerate().all(|(i, it)| it.seat == i && it.ring == *ring);
    assert!(in_order && contributions.len() == ring.size, "one contribution for each seat of this ring");
    if !ring.is_trivial() {
        let mut seats = BTreeMap::new();
        for it in contributions {
            if let Some(other) = seats.insert(it.public.bytes, it.seat) {
                return Err(Misbehaved::Equal(other, it.seat));
            }
        }
    }
    Ok(contributions.iter().map(|it| it.public).collect())
}

fn split(bytes: &[u8; CONTRIBUTION_LEN]) -> (&[u8; 32], &[u8; 64]) {
    let (public, proof) = bytes.split_first_chunk().expect("96 bytes are more than 32");
    (public, proof.try_into().expect("and 64 remain"))
}

/// Bytes of an encoded contribution.
pub const CONTRIBUTION_LEN: usize = 96;
