//! Round 2: everybody sends Y_i = K_i^R − K_i^L, and walks the ring with the others'.

use curve25519_dalek::ristretto::RistrettoPoint;
use curve25519_dalek::traits::Identity;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::element::{Element, Exponent};
use super::key::Key;
use super::proof::{Proof, ShareStatement};
use super::{Misbehaved, Ring, Shares};
use crate::secret::Secret;

/// Y_i, with its proof where the ring demands one: a value of this type is canonical, possible, and proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    ring: Ring,
    seat: usize,
    /// Y_i
    value: Element,
    proof: Option<Proof>,
}

impl Share {
    /// enc(Y), then c ‖ s if it is proved: [`Ring::share_len`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.value.bytes.to_vec();
        bytes.extend(self.proof.iter().flat_map(Proof::encode));
        bytes
    }
}

/// A member that has all contributions, has sent its share and waits for the others'.
pub struct Round2 {
    ring: Ring,
    seat: usize,
    /// X_1 … X_n
    publics: Vec<Element>,
    /// K_i^L
    left: Zeroizing<RistrettoPoint>,
    /// K_i^R
    right: Zeroizing<RistrettoPoint>,
    /// Y_i
    own: Element,
}

impl Round2 {
    pub(super) fn start(
        ring: &Ring,
        seat: usize,
        x: &Exponent,
        publics: Vec<Element>,
        random: &Secret<32>,
    ) -> (Round2, Share) {
        // K_i^L = x_i X_{i−1},  K_i^R = x_i X_{i+1}
        let left = x.times(&publics[ring.left(seat)].point);
        let right = x.times(&publics[ring.right(seat)].point);
        // Y_i = K_i^R − K_i^L
        let own = Element::new(*right - *left);
        let round2 = Round2 { ring: *ring, seat, publics, left, right, own };
        let proof = match ring.shares {
            Shares::Plain => None,
            Shares::Proved => Some(Proof::of_share(&round2.statement(seat, &own), x, random)),
        };
        (round2, Share { ring: *ring, seat, value: own, proof })
    }

    /// What a seat sent as its share, checked: canonical; the identity if n ≤ 2 and only then; proved, where
    /// the ring demands it. For our own seat (the seed's, if we follow): what we computed ourselves.
    ///
    /// # Errors
    /// [`Misbehaved::Malformed`], [`Misbehaved::WrongShare`].
    pub fn admit(&self, seat: usize, bytes: &[u8]) -> Result<Share, Misbehaved> {
        let malformed = Misbehaved::Malformed(seat);
        if seat >= self.ring.size || bytes.len() != self.ring.share_len() {
            return Err(malformed);
        }
        let (value, proof) = bytes.split_first_chunk().ok_or(malformed)?;
        let value = Element::decode(value).ok_or(malformed)?;
        let possible = value.is_identity() == self.ring.is_trivial() && (seat != self.seat || value == self.own);
        if !possible {
            return Err(Misbehaved::WrongShare(seat));
        }
        let proof = match self.ring.shares {
            Shares::Plain => None,
            Shares::Proved => {
                let proof = proof.try_into().ok().and_then(Proof::decode).ok_or(malformed)?;
                if !proof.shows_share(&self.statement(seat, &value)) {
                    return Err(Misbehaved::WrongShare(seat));
                }
                Some(proof)
            }
        };
        Ok(Share { ring: self.ring, seat, value, proof })
    }

    /// With the shares of all seats, in their order and with our own: the key, yet to be confirmed.
    ///
    /// # Errors
    /// [`Misbehaved::Unclosed`] if ΣY ≠ 0 or the walk does not end at K_i^L. Where every share is proved
    /// this cannot happen.
    ///
    /// # Panics
    /// If the shares are not one for each seat of this ring.
    pub fn finish(self, shares: &[Share]) -> Result<Key, Misbehaved> {
        let n = self.ring.size;
        let in_order = shares.iter().enumerate().all(|(i, it)| it.seat == i && it.ring == self.ring);
        assert!(in_order && shares.len() == n, "one share for each seat of this ring");
        // ΣY = 0, which anybody can see. The walk's end below says the same once more, K̄_{i+n−1} − K_i^L = ΣY,
        // of secrets that we computed twice: it also stops a fault of our own.
        let sum: RistrettoPoint = shares.iter().map(|it| it.value.point).sum();
        if sum != RistrettoPoint::identity() {
            return Err(Misbehaved::Unclosed);
        }
        // K̄_i = K_i^R;  K̄_{i+j} = Y_{i+j} + K̄_{i+j−1};  sk = Σ K̄_j
        let mut right_key = Zeroizing::new(*self.right);
        let mut sk = Zeroizing::new(*self.right);
        for j in 1..n {
            *right_key += shares[(self.seat + j) % n].value.point;
            *sk += *right_key;
        }
        // K̄_{i+n−1} = K_i^L, before any use
        if !bool::from(right_key.ct_eq(&self.left)) {
            return Err(Misbehaved::Unclosed);
        }
        Ok(Key::new(&self.ring, &sk, &self.publics, shares.iter().map(|it| &it.value)))
    }

    fn statement<'a>(&'a self, seat: usize, share: &'a Element) -> ShareStatement<'a> {
        ShareStatement {
            ring: &self.ring,
            seat,
            left: &self.publics[self.ring.left(seat)],
            own: &self.publics[seat],
            right: &self.publics[self.ring.right(seat)],
            share,
        }
    }
}
