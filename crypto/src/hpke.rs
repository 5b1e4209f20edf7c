//! Sealing one message to a public key: HPKE (RFC 9180), base mode, single shot.
//!
//! Suite: DHKEM(X25519, HKDF-SHA256) 0x0020, HKDF-SHA256 0x0001, AES-256-GCM 0x0002.
//!
//! Composed here from aws-lc-rs's X25519, HKDF and AES-GCM rather than taken from the `hpke` crate: that
//! one brings a second implementation of each of them (and ML-KEM) into a robot's program, AES-GCM at a
//! fifth of the speed; what is left to write is the key schedule below, which the RFC's vectors pin.
//!
//! Used for invites (sealed to the joiner's key) and for the sender keys of members who may write a
//! topic but not read it (A1). The base mode proves nothing about the sender: what is sealed is signed.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use aws_lc_rs::hmac;
use rand_core::CryptoRng;
use zeroize::Zeroizing;

use crate::secret::Secret;

/// A public key: X25519's u-coordinate (RFC 7748).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

/// A key pair to which others seal.
pub struct KeyPair {
    private: PrivateKey,
    public: PublicKey,
}

impl KeyPair {
    /// The key pair of a secret (§7.1.3 `DeriveKeyPair`); the secret is the key pair, if somewhat longer
    /// to compute with.
    pub fn derive(secret: &Secret<32>) -> KeyPair {
        // dkp_prk = LabeledExtract("", "dkp_prk", ikm);  sk = LabeledExpand(dkp_prk, "sk", "", Nsk)
        let dkp_prk = labeled_extract(KEM, b"", b"dkp_prk", secret.expose());
        let sk: Secret<32> = labeled_expand(KEM, &dkp_prk, b"sk", &[]);
        let private = PrivateKey::from_private_key(&X25519, sk.expose()).expect("any 32 bytes are a scalar");
        let public = private.compute_public_key().expect("a valid private key has a public one");
        let public = PublicKey(public.as_ref().try_into().expect("X25519 has 32 bytes"));
        KeyPair { private, public }
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Opens what [`seal_to`] made for this key with the same `info` and `aad`.
    ///
    /// # Errors
    /// [`OpenError`] if it was made for another key, info or aad, or was changed.
    pub fn open(&self, info: &[u8], aad: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let (enc, ciphertext) = sealed.split_first_chunk::<32>().ok_or(OpenError)?;
        // Decap: dh = DH(skR, pkE);  kem_context = concat(enc, pkRm)
        let shared_secret = shared_secret(&self.private, enc, enc, &self.public.0).ok_or(OpenError)?;
        let (key, nonce) = key_schedule(&shared_secret, info);
        let mut buffer = Zeroizing::new(ciphertext.to_vec());
        let n = key.open_in_place(nonce, Aad::from(aad), &mut buffer).map_err(|_| OpenError)?.len();
        buffer.truncate(n);
        Ok(buffer)
    }
}

/// Seals `plaintext` so that only the holder of `to`'s private key opens it: enc (32 bytes) ‖ ciphertext ‖ tag.
///
/// # Errors
/// [`SealError`] if `to` is a point of small order, under which the secret would be known.
pub fn seal_to(
    to: &PublicKey,
    info: &[u8],
    aad: &[u8],
    plaintext: &[u8],
    rng: &mut impl CryptoRng,
) -> Result<Vec<u8>, SealError> {
    seal_with(&KeyPair::derive(&Secret::random(rng)), to, info, aad, plaintext)
}

/// Derandomised twin of [`seal_to`]: with a given ephemeral key.
fn seal_with(
    ephemeral: &KeyPair,
    to: &PublicKey,
    info: &[u8],
    aad: &[u8],
    plaintext: &[u8],
) -> Result<Vec<u8>, SealError> {
    // Encap: dh = DH(skE, pkR);  enc = SerializePublicKey(pkE);  kem_context = concat(enc, pkRm)
    let enc = ephemeral.public.0;
    let shared_secret = shared_secret(&ephemeral.private, &to.0, &enc, &to.0).ok_or(SealError)?;
    let (key, nonce) = key_schedule(&shared_secret, info);
    let mut sealed = Vec::with_capacity(OVERHEAD + plaintext.len());
    sealed.extend_from_slice(&enc);
    sealed.extend_from_slice(plaintext);
    let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), &mut sealed[ENC_LEN..]);
    sealed.extend_from_slice(tag.expect("no message of ours nears 64 GB").as_ref());
    Ok(sealed)
}

/// The sealed bytes were not made for this key, info and aad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sealed for this key")]
pub struct OpenError;

/// The receiver's public key is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a public key of small order")]
pub struct SealError;

/// §4.1: `ExtractAndExpand(dh, kem_context)`; `None` if there is no dh.
fn shared_secret(private: &PrivateKey, peer: &[u8; 32], enc: &[u8; 32], receiver: &[u8; 32]) -> Option<Secret<32>> {
    // eae_prk = LabeledExtract("", "eae_prk", dh)
    // shared_secret = LabeledExpand(eae_prk, "shared_secret", kem_context, Nsecret)
    let dh = diffie_hellman(private, peer)?;
    let eae_prk = labeled_extract(KEM, b"", b"eae_prk", dh.expose());
    Some(labeled_expand(KEM, &eae_prk, b"shared_secret", &[enc, receiver]))
}

/// X25519; `None` if the result is zero (§7.1.4), which the library refuses.
pub(crate) fn diffie_hellman(private: &PrivateKey, peer: &[u8]) -> Option<Secret<32>> {
    let dh = |dh: &[u8]| Secret::try_from(dh).map_err(|_| ());
    agree(private, UnparsedPublicKey::new(&X25519, peer), (), dh).ok()
}

/// §5.1: key and the first nonce, of the base mode: no pre-shared key.
fn key_schedule(shared_secret: &Secret<32>, info: &[u8]) -> (LessSafeKey, Nonce) {
    // key_schedule_context = concat(mode, psk_id_hash, info_hash)
    let psk_id_hash = labeled_extract(SUITE, b"", b"psk_id_hash", b"");
    let info_hash = labeled_extract(SUITE, b"", b"info_hash", info);
    let context: [&[u8]; 3] = [&[MODE_BASE], psk_id_hash.expose(), info_hash.expose()];
    // secret = LabeledExtract(shared_secret, "secret", psk)
    let secret = labeled_extract(SUITE, shared_secret.expose(), b"secret", b"");
    // key = LabeledExpand(secret, "key", context, Nk);  base_nonce = LabeledExpand(secret, "base_nonce", …, Nn)
    let key: Secret<32> = labeled_expand(SUITE, &secret, b"key", &context);
    let base_nonce: Secret<12> = labeled_expand(SUITE, &secret, b"base_nonce", &context);
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.expose()).expect("AES-256 takes 32 bytes"));
    (key, Nonce::assume_unique_for_key(*base_nonce.expose()))
}

/// §4: HKDF-Extract of "HPKE-v1" ‖ suite ‖ label ‖ ikm.
pub(crate) fn labeled_extract(suite: &[u8], salt: &[u8], label: &[u8], ikm: &[u8]) -> Secret<32> {
    let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, salt));
    [b"HPKE-v1", suite, label, ikm].iter().for_each(|part| mac.update(part));
    Secret::try_from(mac.sign().as_ref()).expect("HMAC-SHA256 has 32 bytes")
}

/// §4: HKDF-Expand with info u16 length ‖ "HPKE-v1" ‖ suite ‖ label ‖ info.
pub(crate) fn labeled_expand<const N: usize>(
    suite: &[u8],
    prk: &Secret<32>,
    label: &[u8],
    info: &[&[u8]],
) -> Secret<N> {
    const { assert!(N <= 255 * 32, "RFC 5869 §2.3: at most 255 blocks") };
    let length = (N as u16).to_be_bytes();
    let head: [&[u8]; 4] = [&length, b"HPKE-v1", suite, label];
    let parts = [&head, info].concat();
    let prk = Prk::new_less_safe(HKDF_SHA256, prk.expose());
    Secret::filled(|okm| {
        prk.expand(&parts, Length(N)).and_then(|it| it.fill(okm)).expect("the length is checked at compile time");
    })
}

pub(crate) struct Length(pub(crate) usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyPair({:?}, <redacted>)", self.public)
    }
}

/// Bytes that sealing adds.
pub const OVERHEAD: usize = ENC_LEN + 16;
/// Length of the encapsulated key, bytes (§7.1).
const ENC_LEN: usize = 32;
/// suite_id of the KEM: "KEM" ‖ kem_id (§4.1).
const KEM: &[u8] = b"KEM\x00\x20";
/// suite_id of the whole: "HPKE" ‖ kem_id ‖ kdf_id ‖ aead_id (§5.1).
const SUITE: &[u8] = b"HPKE\x00\x20\x00\x01\x00\x02";
/// §5, Table 1.
const MODE_BASE: u8 = 0;

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    use super::*;
    use crate::unhex;

    fn pair(seed: u8) -> KeyPair {
        KeyPair::derive(&Secret::from_bytes([seed; 32]))
    }

    fn sealed() -> Vec<u8> {
        seal_to(&pair(1).public(), b"info", b"aad", b"plaintext", &mut ChaCha20Rng::seed_from_u64(1)).unwrap()
    }

    #[derive(serde::Deserialize)]
    struct Vectors {
        vectors: Vec<Vector>,
    }

    #[derive(serde::Deserialize)]
    struct Vector {
        name: String,
        expect: String,
        ikm_e: String,
        ikm_r: String,
        pk_r: String,
        enc: String,
        shared_secret: String,
        #[serde(default)]
        info: String,
        #[serde(default)]
        aad: String,
        #[serde(default)]
        plaintext: String,
        #[serde(default)]
        ciphertext: String,
    }

    #[test]
    fn rfc9180_vectors() {
        let file: Vectors = serde_json::from_str(include_str!("../vectors/hpke.json")).unwrap();
        for it in &file.vectors {
            let derive = |ikm: &str| KeyPair::derive(&Secret::try_from(&unhex(ikm)[..]).unwrap());
            let (sender, receiver) = (derive(&it.ikm_e), derive(&it.ikm_r));
            assert_eq!(receiver.public.0.to_vec(), unhex(&it.pk_r), "{}", it.name);
            assert_eq!(sender.public.0.to_vec(), unhex(&it.enc), "{}", it.name);
            let (enc, pk_r) = (&sender.public.0, &receiver.public.0);
            let encap = shared_secret(&sender.private, pk_r, enc, pk_r).unwrap();
            let decap = shared_secret(&receiver.private, enc, enc, pk_r).unwrap();
            assert_eq!(encap.expose().to_vec(), unhex(&it.shared_secret), "{}", it.name);
            assert_eq!(encap, decap, "{}", it.name);
            match it.expect.as_str() {
                "shared secret" => {}
                "sealed" => {
                    let (info, aad) = (unhex(&it.info), unhex(&it.aad));
                    let sealed = seal_with(&sender, &receiver.public, &info, &aad, &unhex(&it.plaintext)).unwrap();
                    assert_eq!(sealed, unhex(&(it.enc.clone() + &it.ciphertext)), "{}", it.name);
                    assert_eq!(*receiver.open(&info, &aad, &sealed).unwrap(), unhex(&it.plaintext), "{}", it.name);
                }
                other => panic!("{}: expect {other}?", it.name),
            }
        }
    }

    #[test]
    fn only_the_receiver_opens_and_only_with_info_and_aad() {
        let sealed = sealed();
        assert_eq!(sealed.len(), b"plaintext".len() + OVERHEAD);
        assert_eq!(pair(1).open(b"info", b"aad", &sealed).unwrap().as_slice(), b"plaintext");
        assert_eq!(pair(2).open(b"info", b"aad", &sealed), Err(OpenError));
        assert_eq!(pair(1).open(b"onfi", b"aad", &sealed), Err(OpenError));
        assert_eq!(pair(1).open(b"info", b"daa", &sealed), Err(OpenError));
    }

    #[test]
    fn any_changed_byte_and_any_shorter_message_is_refused() {
        let sealed = sealed();
        for i in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[i] ^= 4;
            assert_eq!(pair(1).open(b"info", b"aad", &changed), Err(OpenError), "byte {i}");
            assert_eq!(pair(1).open(b"info", b"aad", &sealed[..i]), Err(OpenError), "first {i} bytes");
        }
    }

    #[test]
    fn points_of_small_order_are_refused() {
        for point in [[0; 32], {
            let mut one = [0; 32];
            one[0] = 1;
            one
        }] {
            let mut rng = ChaCha20Rng::seed_from_u64(1);
            assert_eq!(seal_to(&PublicKey(point), b"", b"", b"x", &mut rng), Err(SealError));
            let forged = [&point[..], &[0; 32]].concat();
            assert_eq!(pair(1).open(b"", b"", &forged), Err(OpenError));
        }
    }
}
