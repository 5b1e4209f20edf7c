//! Secrets on disk, sealed under a file key that is overwritten once they are superseded (D6, E7).
//!
//! ```text
//! sealed = "sealcast sealed 1\n" ‖ salt, 32 ‖ AES-256-GCM(secret)       the first line is the associated data
//! key    = HKDF(file key, salt, "sealcast/v1/key at rest", what)
//! ```
//! Overwriting 32 bytes erases all that was sealed under them, also what was copied, cached, or left behind on flash
//! memory, if the file key itself was not copied. Backups therefore leave out the folders of file keys.

use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::aead::{self, Key, Suite};
use crate::kdf::hkdf;
use crate::secret::Secret;

/// Seals a secret; `what` names it, so that nothing sealed can take the place of something else.
pub fn seal(file_key: &Secret<32>, what: &[&[u8]], secret: &[u8], rng: &mut impl CryptoRng) -> Vec<u8> {
    let salt = Secret::<32>::random(rng);
    // In one place: a vector that grows leaves copies of the secret behind.
    let mut body = Zeroizing::new(Vec::with_capacity(secret.len() + aead::TAG_LEN));
    body.extend_from_slice(secret);
    body.resize(secret.len() + aead::TAG_LEN, 0);
    sealing_key(file_key, salt.expose(), what).seal(0, MAGIC, &mut body);
    [MAGIC, salt.expose(), &body].concat()
}

/// Opens what [`seal`] made.
///
/// # Errors
/// [`OpenError`].
pub fn open(file_key: &Secret<32>, what: &[&[u8]], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    if !MAGIC.starts_with(&sealed[..sealed.len().min(MAGIC.len())]) {
        return Err(OpenError::Other);
    }
    let rest = sealed.get(MAGIC.len()..).and_then(|rest| rest.split_first_chunk::<32>());
    let (salt, body) = rest.filter(|(_, body)| body.len() >= aead::TAG_LEN).ok_or(OpenError::Truncated)?;
    let mut body = Zeroizing::new(body.to_vec());
    let length = sealing_key(file_key, salt, what).open(0, MAGIC, &mut body).map_err(|_| OpenError::Sealed)?.len();
    body.truncate(length);
    Ok(body)
}

/// Why something sealed does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It begins as nothing sealed does.
    #[error("nothing that was sealed")]
    Other,
    /// It is shorter than anything sealed.
    #[error("cut short")]
    Truncated,
    /// It was sealed under another file key, as something else, or was changed.
    #[error("sealed under another file key, or damaged")]
    Sealed,
}

fn sealing_key(file_key: &Secret<32>, salt: &[u8; 32], what: &[&[u8]]) -> Key {
    let info: Vec<&[u8]> = [&b"sealcast/v1/key at rest"[..]].iter().chain(what).copied().collect();
    Key::new(Suite::Aes256Gcm, &hkdf(file_key.expose(), salt, &info))
}

const MAGIC: &[u8] = b"sealcast sealed 1\n";
/// Bytes that sealing adds.
pub const OVERHEAD: usize = MAGIC.len() + 32 + aead::TAG_LEN;
/// Content of a file `CACHEDIR.TAG` in a folder of file keys: programs that honour it leave the folder out of backups
/// (<https://bford.info/cachedir/>).
pub const CACHEDIR_TAG: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55\n\
    # Keys under which secrets are sealed. A backup of them would keep what must be erased.\n";

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    use super::*;

    #[test]
    fn rule_d6_nothing_opens_without_its_key_and_name() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let [key, other] = [(); 2].map(|()| Secret::random(&mut rng));
        let sealed = seal(&key, &[b"state", &[7]], b"secret of an epoch", &mut rng);
        assert_eq!(sealed.len(), 18 + OVERHEAD);
        assert!(!sealed.windows(6).any(|it| it == b"secret"));
        assert_eq!(open(&key, &[b"state", &[7]], &sealed).unwrap().as_slice(), b"secret of an epoch");
        assert_eq!(open(&other, &[b"state", &[7]], &sealed), Err(OpenError::Sealed));
        assert_eq!(open(&key, &[b"state", &[8]], &sealed), Err(OpenError::Sealed));
        assert_eq!(open(&key, &[b"stat", b"e", &[7]], &sealed), Err(OpenError::Sealed));
        for n in 0..OVERHEAD {
            assert_eq!(open(&key, &[b"state", &[7]], &sealed[..n]), Err(OpenError::Truncated), "first {n} bytes");
        }
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(open(&key, &[b"state", &[7]], &changed).is_err(), "byte {at}");
        }
    }
}
