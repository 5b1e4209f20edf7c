//! The key of a ring: its confirmation, its commitment, and the seed of a later join.

use aws_lc_rs::hmac;
use curve25519_dalek::ristretto::RistrettoPoint;
use zeroize::Zeroizing;

use super::element::{Element, Exponent};
use super::{Misbehaved, Ring};
use crate::hash::Transcript;
use crate::kdf::hkdf;
use crate::secret::Secret;

/// What all members of a ring share in the end; to be used once every active member has confirmed it.
pub struct Key {
    ring: Ring,
    /// Hash of the session, X_1 … X_n, Y_1 … Y_n.
    transcript: [u8; 32],
    /// enc(sk), kept for the seed of a join.
    sk: Secret<32>,
    key: Secret<32>,
}

impl Key {
    pub(super) fn new<'a>(
        ring: &Ring,
        sk: &RistrettoPoint,
        publics: &'a [Element],
        shares: impl Iterator<Item = &'a Element>,
    ) -> Key {
        let mut transcript = Transcript::new("DB/transcript").add(&ring.session);
        publics.iter().chain(shares).for_each(|it| transcript.absorb(&it.bytes));
        let transcript = transcript.finish();
        let encoded = Zeroizing::new(sk.compress());
        let sk = Secret::filled(|bytes| bytes.copy_from_slice(encoded.as_bytes()));
        // key = HKDF(enc(sk), salt = transcript hash, info = "DB/key")
        let key = hkdf(sk.expose(), &transcript, &[b"DB/key"]);
        Key { ring: *ring, transcript, sk, key }
    }

    /// The agreed secret, from which all keys of the epoch are derived.
    pub fn secret(&self) -> &Secret<32> {
        &self.key
    }

    /// Public: the hash of session, contributions and shares; psid of a later join.
    pub fn transcript(&self) -> [u8; 32] {
        self.transcript
    }

    /// HKDF(key, "com"): to be sent signed, so that who gives members different keys is seen to (A13).
    pub fn commitment(&self) -> [u8; 32] {
        *hkdf(self.key.expose(), b"", &[b"com"]).expose()
    }

    /// The MAC by which the member on a seat shows that it has the key.
    pub fn confirmation(&self, seat: usize) -> [u8; CONFIRMATION_LEN] {
        let tag = hmac::sign(&self.confirmation_key(), &self.confirmed(seat));
        tag.as_ref().try_into().expect("HMAC-SHA256 has 32 bytes")
    }

    /// Whether the member on a seat has our key; compared in constant time.
    ///
    /// # Errors
    /// [`Misbehaved::Unconfirmed`] if it has another, or pretends.
    pub fn confirmed_by(&self, seat: usize, confirmation: &[u8]) -> Result<(), Misbehaved> {
        if seat >= self.ring.size {
            return Err(Misbehaved::Unconfirmed(seat));
        }
        hmac::verify(&self.confirmation_key(), &self.confirmed(seat), confirmation)
            .map_err(|_| Misbehaved::Unconfirmed(seat))
    }

    /// The exponent by which all of today's members take one seat in tomorrow's `ring`, when `joiners` (hashes
    /// that name them, in ring order) come in: HKDF(sk, "DB/join", psid, session, joiners).
    pub fn seed(&self, ring: &Ring, joiners: &[[u8; 32]]) -> Seed {
        let mut info: Vec<&[u8]> = vec![b"DB/join", &self.transcript, &ring.session];
        info.extend(joiners.iter().map(|joiner| &joiner[..]));
        Seed(hkdf(self.sk.expose(), b"", &info))
    }

    fn confirmation_key(&self) -> hmac::Key {
        let key: Secret<32> = hkdf(self.key.expose(), b"", &[b"DB/confirm"]);
        hmac::Key::new(hmac::HMAC_SHA256, key.expose())
    }

    fn confirmed(&self, seat: usize) -> [u8; 32] {
        Transcript::new("DB/confirm").add(&self.transcript).add(&(seat as u32).to_be_bytes()).finish()
    }
}

/// The seed of a join: what old members know and joiners do not.
pub struct Seed(Secret<64>);

impl Seed {
    pub(super) fn exponent(&self) -> Exponent {
        Exponent::reduce(&self.0).expect("zero is not met in 2^252 draws")
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(<redacted>)")
    }
}

impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<redacted>")
    }
}

/// Bytes of a confirmation.
pub const CONFIRMATION_LEN: usize = 32;
