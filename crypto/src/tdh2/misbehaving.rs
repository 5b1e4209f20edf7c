//! A publisher who misbehaves, for tests and simulations elsewhere. Any publisher can do this: it needs no more than the
//! public key.

use rand_core::CryptoRng;

use super::ciphertext::{Ciphertext, body_hash};
use super::key::PublicKey;
use super::label::Label;
use super::oracle::Full;
use crate::aead::TAG_LEN;
use crate::group::{PrimeGroup, SecretScalar};
use crate::secret::Secret;

impl<G: PrimeGroup> PublicKey<G> {
    /// A ciphertext of `length` bytes that brokers find well-formed and that opens to nothing: its r is not made of its σ,
    /// so that every reader's check fails, whichever t shares it has.
    #[doc(hidden)]
    pub fn encrypt_falsely(&self, label: &Label, length: usize, rng: &mut impl CryptoRng) -> Ciphertext<G> {
        let (sigma, commitment) = (Secret::<32>::random(rng), *Secret::<32>::random(rng).expose());
        let mut body = vec![0; length + TAG_LEN];
        rng.fill_bytes(&mut body);
        let digest = body_hash::<G>(&commitment, &body);
        let (r, s) = (SecretScalar::random(rng), SecretScalar::random(rng));
        self.seal::<Full>(&label.hash(), sigma.expose(), commitment, body, &digest, &r, &s).expect("r and s are not 0")
    }
}
