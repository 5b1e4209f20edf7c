//! Authenticated encryption in place, with a packet counter as nonce (RFC 5116).
//!
//! ```text
//! nonce: | 0 0 0 0 | counter, 64 bits, big-endian |
//! ```
//! A key seals each counter once: `keys` derives one key per sender, incarnation and domain, and counts
//! up (G4). Nothing here allocates.

use aws_lc_rs::aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use crate::secret::Secret;

/// Which AEAD. Both take 32-byte keys, 12-byte nonces, and make 16-byte tags; the number goes into
/// every key derivation that a suite's key comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Suite {
    /// AES-256-GCM (NIST SP 800-38D): the default, fastest where the processor has AES.
    #[default]
    Aes256Gcm = 1,
    /// ChaCha20-Poly1305 (RFC 8439): where it has not.
    ChaCha20Poly1305 = 2,
}

/// A key of one suite, expanded once. May be shared by threads.
pub struct Key {
    key: LessSafeKey,
}

impl Key {
    /// Expands the key.
    pub fn new(suite: Suite, key: &Secret<32>) -> Key {
        let key = UnboundKey::new(suite.algorithm(), key.expose()).expect("both suites take 32 bytes");
        Key { key: LessSafeKey::new(key) }
    }

    /// Seals `buffer` = plaintext ‖ 16 bytes of room in place, into ciphertext ‖ tag.
    ///
    /// Each `counter` may be used once per key: a second use reveals the plaintexts' difference and
    /// lets anybody forge.
    ///
    /// # Panics
    /// If `buffer` is shorter than a tag, or longer than the suite can take (some 64 GB).
    pub fn seal(&self, counter: u64, aad: &[u8], buffer: &mut [u8]) {
        self.seal_under(nonce(counter), aad, buffer);
    }

    /// Twin of [`Key::seal`] under any nonce, for vectors.
    pub(crate) fn seal_under(&self, nonce: [u8; 12], aad: &[u8], buffer: &mut [u8]) {
        let (plaintext, room) = buffer.split_last_chunk_mut::<TAG_LEN>().expect("the caller leaves room for the tag");
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(aad), plaintext);
        room.copy_from_slice(tag.expect("no message of ours nears the suite's limit").as_ref());
    }

    /// Opens `buffer` = ciphertext ‖ tag in place and returns the plaintext, its first part.
    ///
    /// # Errors
    /// [`OpenError`] if the tag is not that of key, counter, aad and ciphertext; `buffer` is then
    /// unspecified and must not be used.
    pub fn open<'a>(&self, counter: u64, aad: &[u8], buffer: &'a mut [u8]) -> Result<&'a mut [u8], OpenError> {
        self.open_under(nonce(counter), aad, buffer)
    }

    /// Twin of [`Key::open`] under any nonce, for vectors.
    pub(crate) fn open_under<'a>(
        &self,
        nonce: [u8; 12],
        aad: &[u8],
        buffer: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.open_in_place(nonce, Aad::from(aad), buffer).map_err(|_| OpenError)
    }
}

/// The tag is wrong: another key, counter or aad, or the bytes were changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("authentication failed")]
pub struct OpenError;

impl Suite {
    fn algorithm(self) -> &'static Algorithm {
        match self {
            Suite::Aes256Gcm => &AES_256_GCM,
            Suite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<redacted>")
    }
}

fn nonce(counter: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_be_bytes());
    nonce
}

/// Length of a tag, bytes (RFC 5116 §5.2, RFC 8439 §2.8).
pub const TAG_LEN: usize = 16;

/// Packets after which a sender asks for a new epoch, long before the 64-bit counter ends.
///
/// AES-GCM's distance from ideal is about σ²/2¹²⁹ for σ blocks of 16 bytes under one key (RFC 9001
/// §B.1): 2³² packets of 1.5 KB stay below 2⁻⁵¹, of 64 KB below 2⁻⁴¹.
pub const PACKETS_MAX: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SUITES: [Suite; 2] = [Suite::Aes256Gcm, Suite::ChaCha20Poly1305];

    fn sealed(suite: Suite, counter: u64, aad: &[u8], plaintext: &[u8]) -> Vec<u8> {
        let mut buffer = plaintext.to_vec();
        buffer.resize(plaintext.len() + TAG_LEN, 0);
        Key::new(suite, &Secret::from_bytes([9; 32])).seal(counter, aad, &mut buffer);
        buffer
    }

    #[test]
    fn the_nonce_is_four_zero_bytes_and_the_counter() {
        assert_eq!(nonce(0x0102_0304_0506_0708), [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn shorter_than_a_tag_is_refused() {
        for suite in SUITES {
            let key = Key::new(suite, &Secret::from_bytes([9; 32]));
            for n in 0..TAG_LEN {
                assert_eq!(key.open(0, b"", &mut vec![0; n]), Err(OpenError));
            }
        }
    }

    #[test]
    fn suites_are_different() {
        assert_ne!(sealed(SUITES[0], 1, b"", b"hello"), sealed(SUITES[1], 1, b"", b"hello"));
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens(
            counter: u64,
            aad in prop::collection::vec(any::<u8>(), 0..64),
            plaintext in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            for suite in SUITES {
                let mut buffer = sealed(suite, counter, &aad, &plaintext);
                let key = Key::new(suite, &Secret::from_bytes([9; 32]));
                prop_assert_eq!(key.open(counter, &aad, &mut buffer).map(|p| p.to_vec()), Ok(plaintext.clone()));
            }
        }

        #[test]
        fn any_changed_bit_is_noticed(
            counter: u64,
            aad in prop::collection::vec(any::<u8>(), 1..64),
            plaintext in prop::collection::vec(any::<u8>(), 0..300),
            place: prop::sample::Index,
            bit in 0..8_u32,
        ) {
            for suite in SUITES {
                let good = sealed(suite, counter, &aad, &plaintext);
                let opens = |key: u8, counter: u64, aad: &[u8], mut bytes: Vec<u8>| {
                    Key::new(suite, &Secret::from_bytes([key; 32])).open(counter, aad, &mut bytes).is_ok()
                };
                prop_assert!(opens(9, counter, &aad, good.clone()));
                let mut changed = good.clone();
                changed[place.index(good.len())] ^= 1 << bit;
                prop_assert!(!opens(9, counter, &aad, changed));
                let mut other_aad = aad.clone();
                other_aad[place.index(aad.len())] ^= 1 << bit;
                prop_assert!(!opens(9, counter, &other_aad, good.clone()));
                prop_assert!(!opens(9, counter ^ (1 << (bit * 8)), &aad, good.clone()));
                prop_assert!(!opens(8, counter, &aad, good.clone()));
                prop_assert!(!opens(9, counter, &aad, good[..place.index(good.len())].to_vec()));
            }
        }
    }
}
