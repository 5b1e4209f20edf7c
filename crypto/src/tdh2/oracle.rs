//! The hashes H1, H2, H3 of the scheme, each over the whole of what it vouches for.
//!
//! A trait, since tests run the attack of S1 against the printed hashes and read another implementation's data; what
//! users get is [`Full`].

use super::key::PublicKey;
use crate::group::{Element, PrimeGroup, Transcript};
use crate::secret::Secret;

/// Which hashes.
pub(super) trait Oracle<G: PrimeGroup> {
    /// H1: what hides σ, from Z.
    fn mask(key: &PublicKey<G>, u: &Element<G>, z: &Element<G>) -> Secret<32>;
    /// H2: the challenge of a ciphertext.
    fn ciphertext(it: &CiphertextStatement<'_, G>) -> G::Scalar;
    /// H3: the challenge of a share.
    fn share(it: &ShareStatement<'_, G>) -> G::Scalar;
}

/// log_g u = log_ḡ ū, and all that this ciphertext is.
pub(super) struct CiphertextStatement<'a, G: PrimeGroup> {
    /// pkh0.
    pub(super) key: &'a [u8; 32],
    /// L'.
    pub(super) label: &'a [u8; 32],
    /// c_1.
    pub(super) masked: &'a [u8; 32],
    /// D.
    pub(super) body: &'a [u8; 32],
    /// |C|.
    pub(super) body_len: usize,
    /// u, ū, w, w̄.
    pub(super) elements: [&'a Element<G>; 4],
}

/// log_g h_i = log_u u_i, for one ciphertext and holder under one sharing.
pub(super) struct ShareStatement<'a, G: PrimeGroup> {
    /// pkh.
    pub(super) key: &'a [u8; 32],
    /// i.
    pub(super) index: u16,
    /// ctid.
    pub(super) ciphertext: &'a [u8; 32],
    /// u, h_i.
    pub(super) bases: [&'a Element<G>; 2],
    /// u_i, û, ĥ.
    pub(super) answers: [&'a Element<G>; 3],
}

/// TDH2-VIL v1.
pub(super) struct Full;

impl<G: PrimeGroup> Oracle<G> for Full {
    fn mask(key: &PublicKey<G>, u: &Element<G>, z: &Element<G>) -> Secret<32> {
        Secret::from_bytes(Transcript::<G>::secret("mask").add(key.lasting_hash()).element(u).element(z).hash())
    }

    fn ciphertext(it: &CiphertextStatement<'_, G>) -> G::Scalar {
        Transcript::<G>::new("H2")
            .add(it.key)
            .add(it.label)
            .add(it.masked)
            .add(it.body)
            .add(&(it.body_len as u64).to_be_bytes())
            .elements(it.elements)
            .scalar()
    }

    fn share(it: &ShareStatement<'_, G>) -> G::Scalar {
        Transcript::<G>::new("H3")
            .add(it.key)
            .add(&u32::from(it.index).to_be_bytes())
            .add(it.ciphertext)
            .elements(it.bases)
            .elements(it.answers)
            .scalar()
    }
}
