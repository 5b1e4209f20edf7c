//! Combining t shares into the message, or into the proof that there is none.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::ciphertext::Labelled;
use super::key::PublicKey;
use super::oracle::{Full, Oracle};
use super::share::{Share, Verified};
use crate::group::{Cache, Element, PrimeGroup, SecretElement, SharesError};
use crate::secret::Secret;

/// What t shares of a ciphertext come to.
#[derive(Clone, PartialEq, Eq)]
pub enum Combined<G: PrimeGroup> {
    /// The message; every set of t shares that opens this ciphertext opens it to this.
    Opened(Zeroizing<Vec<u8>>),
    /// A share is false or the ciphertext is: ask for proofs, drop who has none, and combine what is verified.
    NeedProofs,
    /// ⊥: t shares are right and open nothing, so the publisher is at fault, and nobody reads anything. These shares
    /// are the proof of it.
    Bottom(Vec<Verified<G>>),
}

/// A reader: a key, and the Lagrange coefficients of the sets of holders that answered last.
pub struct Combiner<G: PrimeGroup> {
    key: Arc<PublicKey<G>>,
    coefficients: Cache<G>,
}

impl<G: PrimeGroup> Combiner<G> {
    /// A reader under one sharing.
    pub fn new(key: Arc<PublicKey<G>>) -> Combiner<G> {
        Combiner { key, coefficients: Cache::new() }
    }

    /// The key.
    pub fn key(&self) -> &PublicKey<G> {
        &self.key
    }

    /// Comb, optimistic: of unproved shares, the t of lowest index. [`Combined::Opened`] or [`Combined::NeedProofs`].
    ///
    /// # Errors
    /// Shares that are not at least t different holders', or a ciphertext under another key ([`SharesError::Foreign`]).
    pub fn combine(&mut self, it: &Labelled<G>, shares: &[Share<G>]) -> Result<Combined<G>, SharesError> {
        let indices: Vec<u16> = shares.iter().map(Share::index).collect();
        let chosen = self.key.committee.choose(&indices)?;
        if it.key != *self.key.lasting_hash() {
            return Err(SharesError::Foreign(chosen[0].0));
        }
        let chosen: Vec<Share<G>> = chosen.iter().map(|(_, place)| shares[*place]).collect();
        Ok(self.open(it, &chosen).map_or(Combined::NeedProofs, Combined::Opened))
    }

    /// Comb: of verified shares, the t of lowest index. [`Combined::Opened`] or [`Combined::Bottom`], the same for
    /// everybody.
    ///
    /// # Errors
    /// As [`Combiner::combine`], or a share verified for another ciphertext or sharing.
    pub fn combine_verified(&mut self, it: &Labelled<G>, shares: &[Verified<G>]) -> Result<Combined<G>, SharesError> {
        let foreign = shares.iter().find(|share| share.key != *self.key.hash() || share.ciphertext != *it.id());
        if let Some(share) = foreign {
            return Err(SharesError::Foreign(share.proved.share.index));
        }
        let indices: Vec<u16> = shares.iter().map(|share| share.proved.share.index).collect();
        let verified: Vec<_> = self.key.committee.choose(&indices)?.iter().map(|(_, place)| shares[*place]).collect();
        let chosen: Vec<Share<G>> = verified.iter().map(|it| it.proved.share).collect();
        Ok(self.open(it, &chosen).map_or(Combined::Bottom(verified), Combined::Opened))
    }

    fn open(&mut self, it: &Labelled<G>, chosen: &[Share<G>]) -> Option<Zeroizing<Vec<u8>>> {
        // The identity is the Z' of no right shares.
        let z = SecretElement::new(self.interpolate(chosen))?;
        self.key.open_with(it, z.expose())
    }

    /// Z' = Π u_i^{Δλ_i}, unchecked: what [`Combiner::combine`] does first. `chosen` are different holders', in
    /// ascending order.
    pub fn interpolate(&mut self, chosen: &[Share<G>]) -> G::Point {
        let indices: Vec<u16> = chosen.iter().map(Share::index).collect();
        let points: Vec<G::Point> = chosen.iter().map(|share| *share.u_i.point()).collect();
        let delta = self.key.parameters().delta;
        self.coefficients.of(&indices, delta).combine(&points)
    }
}

impl<G: PrimeGroup> PublicKey<G> {
    /// The message, if Z' is the Z of this ciphertext and all of it was made from its σ.
    fn open_with(&self, it: &Labelled<G>, z: &Element<G>) -> Option<Zeroizing<Vec<u8>>> {
        let ciphertext = &it.ciphertext;
        // σ' = c_1 ⊕ H1(Z'); (k' ‖ com') = …, com' = com
        let sigma = unmask::<G, Full>(self, it, z);
        let (key, commitment) = self.body_key(&it.label, sigma.expose());
        // r' = HS("r"; pkh0, L', σ', D); g^r' = u and H_Δ^r' = Z': either alone leaves the choice to a publisher
        // with one corrupt holder
        let r = self.exponent(&it.label, sigma.expose(), &it.body)?;
        let right = commitment == ciphertext.commitment
            && G::mul_base(r.scalar()) == *ciphertext.u.point()
            && G::mul_table(&self.h_delta_table, r.scalar()) == *z.point();
        if !right {
            return None;
        }
        let mut message = Zeroizing::new(ciphertext.body.clone());
        let length = key.open(0, &it.label, &mut message).ok()?.len();
        message.truncate(length);
        Some(message)
    }
}

/// σ' = c_1 ⊕ H1(Z').
pub(super) fn unmask<G: PrimeGroup, O: Oracle<G>>(key: &PublicKey<G>, it: &Labelled<G>, z: &Element<G>) -> Secret<32> {
    let mask = O::mask(key, &it.ciphertext.u, z);
    Secret::filled(|sigma| {
        *sigma = std::array::from_fn(|i| it.ciphertext.masked[i] ^ mask.expose()[i]);
    })
}

impl<G: PrimeGroup> std::fmt::Debug for Combined<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Combined::Opened(message) => write!(f, "Opened(<{} bytes>)", message.len()),
            Combined::NeedProofs => f.write_str("NeedProofs"),
            Combined::Bottom(shares) => write!(f, "Bottom({} proved shares)", shares.len()),
        }
    }
}
