//! The bootstrap key over what travels before there is a group key: JOINs, certificates, rounds of an agreement.
//!
//! Certificates name topics, and topic names never travel in clear; so open messages are sealed under a
//! symmetric secret that the CA makes with the group and that comes with the identity.
//!
//! ```text
//! | group tag, 8 | nonce, 12 | ciphertext | tag, 16 |      the group tag is the associated data
//! ```
//!
//! The bootstrap key hides names from outsiders and lets a member drop their packets before any signature check.
//! It proves nothing: whoever ever was a member knows it, so what is under it is also signed, and
//! verified as an enemy's. AES-256-GCM-SIV (RFC 8452), because all members draw nonces for one
//! long-lived key: a repeated nonce then shows only that two messages were equal.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, Nonce, UnboundKey};

use crate::kdf::hkdf;
use crate::secret::Secret;

/// A group's bootstrap key.
pub struct BootstrapKey {
    tag: [u8; 8],
    key: LessSafeKey,
    names: Secret<32>,
}

impl BootstrapKey {
    /// The bootstrap key made of a secret that the group's members hold.
    pub fn new(secret: &Secret<32>) -> BootstrapKey {
        let tag = *hkdf::<8>(secret.expose(), b"", &[b"sealcast/v1/veil", b"tag"]).expose();
        let key = hkdf::<32>(secret.expose(), b"", &[b"sealcast/v1/veil", b"key"]);
        let key = UnboundKey::new(&AES_256_GCM_SIV, key.expose()).expect("AES-256 takes 32 bytes");
        let names = hkdf(secret.expose(), b"", &[b"sealcast/v1/bootstrap", b"names"]);
        BootstrapKey { tag, key: LessSafeKey::new(key), names }
    }

    /// A secret of the group's members, and of former ones, for names by which strangers are to know the group (D4).
    pub fn derived(&self, purpose: &str) -> Secret<32> {
        hkdf(self.names.expose(), b"", &[b"sealcast/v1/bootstrap", purpose.as_bytes()])
    }

    /// The bootstrap key of a group that was given none: known to everybody who has the CA's certificate
    /// (`ca_hash` = SHA-256 of its DER) and the group's name, and hides nothing from them.
    pub fn public(ca_hash: &[u8; 32], group: &str) -> BootstrapKey {
        BootstrapKey::new(&hkdf(ca_hash, b"", &[b"sealcast/v1/veil", b"public", group.as_bytes()]))
    }

    /// The group's tag, by which messages of other groups on the same address are told apart.
    pub fn tag(&self) -> [u8; 8] {
        self.tag
    }

    /// Seals a message under a nonce, which should be random.
    pub fn seal(&self, nonce: [u8; 12], message: &[u8]) -> Vec<u8> {
        let mut sealed = Vec::with_capacity(message.len() + OVERHEAD);
        sealed.extend_from_slice(&self.tag);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(message);
        let body = &mut sealed[HEAD_LEN..];
        let tag = self.key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(&self.tag), body);
        sealed.extend_from_slice(tag.expect("no message of ours nears 64 GB").as_ref());
        sealed
    }

    /// Opens what [`BootstrapKey::seal`] made.
    ///
    /// # Errors
    /// [`BootstrapError::Foreign`] if it is not of this group, [`BootstrapError::Auth`] if it pretends to be.
    pub fn open(&self, sealed: &[u8]) -> Result<Vec<u8>, BootstrapError> {
        let (tag, rest) = sealed.split_first_chunk::<8>().ok_or(BootstrapError::Foreign)?;
        if *tag != self.tag {
            return Err(BootstrapError::Foreign);
        }
        let (nonce, body) = rest.split_first_chunk::<12>().ok_or(BootstrapError::Auth)?;
        let mut body = body.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let n = self.key.open_in_place(nonce, Aad::from(tag), &mut body).map_err(|_| BootstrapError::Auth)?.len();
        body.truncate(n);
        Ok(body)
    }
}

/// Why a message is not one of this group's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapError {
    /// Another group's tag.
    #[error("another group's message")]
    Foreign,
    /// This group's tag, but not made by anybody who knows the bootstrap key.
    #[error("authentication failed")]
    Auth,
}

impl std::fmt::Debug for BootstrapKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BootstrapKey({:016x})", u64::from_be_bytes(self.tag))
    }
}

/// Bytes that the bootstrap key adds to a message.
pub const OVERHEAD: usize = HEAD_LEN + 16;
const HEAD_LEN: usize = 8 + 12;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bootstrap_key() -> BootstrapKey {
        BootstrapKey::new(&Secret::from_bytes([3; 32]))
    }

    #[test]
    fn groups_are_told_apart() {
        let other = BootstrapKey::new(&Secret::from_bytes([4; 32]));
        assert_eq!(bootstrap_key().open(&other.seal([0; 12], b"join")), Err(BootstrapError::Foreign));
        assert_ne!(BootstrapKey::public(&[1; 32], "a").tag(), BootstrapKey::public(&[1; 32], "b").tag());
        assert_ne!(BootstrapKey::public(&[1; 32], "a").tag(), BootstrapKey::public(&[2; 32], "a").tag());
    }

    #[test]
    fn a_repeated_nonce_shows_only_equality() {
        let (a, b) = (bootstrap_key().seal([7; 12], b"aaaa"), bootstrap_key().seal([7; 12], b"aaab"));
        let differing = a[HEAD_LEN..].iter().zip(&b[HEAD_LEN..]).filter(|(x, y)| x != y).count();
        assert!(differing > 10, "ciphertext and tag differ everywhere, not in one byte: {differing}");
        assert_eq!(a, bootstrap_key().seal([7; 12], b"aaaa"));
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens_and_nothing_else(
            nonce: [u8; 12],
            message in prop::collection::vec(any::<u8>(), 0..300),
            place: prop::sample::Index,
            bit in 0..8_u32,
        ) {
            let sealed = bootstrap_key().seal(nonce, &message);
            prop_assert_eq!(sealed.len(), message.len() + OVERHEAD);
            prop_assert_eq!(bootstrap_key().open(&sealed), Ok(message));
            let mut changed = sealed.clone();
            changed[place.index(sealed.len())] ^= 1 << bit;
            prop_assert!(bootstrap_key().open(&changed).is_err());
            prop_assert!(bootstrap_key().open(&sealed[..place.index(sealed.len())]).is_err());
        }
    }
}
