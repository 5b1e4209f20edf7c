//! Signatures: Ed25519 (RFC 8032) and ECDSA P-256 with SHA-256 (FIPS 186-5), 64 bytes both.
//!
//! What is signed is the end of a [`crate::hash::Transcript`] or otherwise an injective encoding that
//! names protocol, group, epoch and roster (G3); this file signs bytes and knows nothing of them.
//!
//! There is no batch verification: it would halve Ed25519's cost per signature (42 → 20 µs for batches
//! of 16), but datagrams come one by one, data is batched by Merkle trees already, and the usual batch
//! equation accepts signatures that single verification refuses, on keys made for it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::agreement::{PrivateKey, X25519};
use aws_lc_rs::digest::{SHA512, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    ParsedPublicKey, VerificationAlgorithm,
};
use curve25519_dalek::edwards::CompressedEdwardsY;
use rand_core::CryptoRng;
use zeroize::{Zeroize as _, Zeroizing};

use sealcast_wire::limits;

use crate::hpke::diffie_hellman;
use crate::secret::Secret;

/// Which signature scheme a key is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// Ed25519: the default.
    #[default]
    Ed25519 = 1,
    /// ECDSA over P-256 with SHA-256, for certificates of existing authorities and hardware.
    P256 = 2,
}

/// A signature: R ‖ S of Ed25519, or r ‖ s of ECDSA, big-endian.
pub type Signature = [u8; SIGNATURE_LEN];

/// A private key, as a certificate's holder has it.
pub struct SigningKey {
    pair: Pair,
    public: PublicKey,
}

enum Pair {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
}

impl SigningKey {
    /// A new key.
    pub fn generate(algorithm: Algorithm, rng: &mut impl CryptoRng) -> SigningKey {
        loop {
            // A seed is a scalar of P-256 but for one in 2³²; the next one then is.
            if let Ok(key) = SigningKey::from_seed(algorithm, &Secret::random(rng)) {
                return key;
            }
        }
    }

    /// The key of a seed: Ed25519's seed, or P-256's scalar, big-endian.
    ///
    /// # Errors
    /// [`KeyError`] if the bytes are no scalar of P-256.
    pub fn from_seed(algorithm: Algorithm, seed: &Secret<32>) -> Result<SigningKey, KeyError> {
        match algorithm {
            Algorithm::Ed25519 => SigningKey::ed25519(Ed25519KeyPair::from_seed_unchecked(seed.expose())),
            Algorithm::P256 => {
                SigningKey::p256(EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, &rfc5915(seed)))
            }
        }
    }

    /// The key in an unencrypted PKCS#8 document (RFC 5208, RFC 5958), of whichever algorithm it names.
    ///
    /// # Errors
    /// [`KeyError`] if it is of neither algorithm or not well-formed.
    pub fn from_pkcs8(der: &[u8]) -> Result<SigningKey, KeyError> {
        SigningKey::ed25519(Ed25519KeyPair::from_pkcs8(der))
            .or_else(|_| SigningKey::p256(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der)))
    }

    /// The PKCS#8 (version 1) document of this key, for the file it is kept in.
    pub fn to_pkcs8(&self) -> Zeroizing<Vec<u8>> {
        let document = match &self.pair {
            Pair::Ed25519(pair) => pair.to_pkcs8v1(),
            Pair::P256(pair) => pair.to_pkcs8v1(),
        };
        Zeroizing::new(document.expect("a key that was parsed has an encoding").as_ref().to_vec())
    }

    /// Signs. Ed25519 is deterministic; ECDSA draws its nonce from the library's own generator, which
    /// takes key and message in too.
    pub fn sign(&self, message: &[u8]) -> Signature {
        let signature = match &self.pair {
            Pair::Ed25519(pair) => pair.sign(message),
            Pair::P256(pair) => pair.sign(&SystemRandom::new(), message).expect("a valid key signs"),
        };
        signature.as_ref().try_into().expect("both kinds are 64 bytes")
    }

    /// The public half.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    fn ed25519<E>(pair: Result<Ed25519KeyPair, E>) -> Result<SigningKey, KeyError> {
        let pair = pair.map_err(|_| KeyError)?;
        let public = PublicKey::new(Algorithm::Ed25519, pair.public_key().as_ref())?;
        Ok(SigningKey { pair: Pair::Ed25519(pair), public })
    }

    fn p256<E>(pair: Result<EcdsaKeyPair, E>) -> Result<SigningKey, KeyError> {
        let pair = pair.map_err(|_| KeyError)?;
        let public = PublicKey::new(Algorithm::P256, pair.public_key().as_ref())?;
        Ok(SigningKey { pair: Pair::P256(pair), public })
    }
}

/// A public key that is a valid point: parsed once, ready to verify, cheap to clone.
#[derive(Clone)]
pub struct PublicKey {
    algorithm: Algorithm,
    key: ParsedPublicKey,
}

impl PublicKey {
    /// The key with these bytes, as the subject public key of a certificate has them: 32 bytes for
    /// Ed25519; for P-256 a SEC 1 point, uncompressed (65 bytes).
    ///
    /// # Errors
    /// [`KeyError`] if they are no point; for Ed25519 also if the encoding is not canonical, or the point
    /// of small order, so that one signature would fit many messages.
    pub fn new(algorithm: Algorithm, bytes: &[u8]) -> Result<PublicKey, KeyError> {
        let acceptable = match algorithm {
            Algorithm::Ed25519 => is_strict_ed25519(bytes),
            Algorithm::P256 => bytes.len() == P256_POINT_LEN && bytes[0] == P256_UNCOMPRESSED,
        };
        if !acceptable {
            return Err(KeyError);
        }
        let key = ParsedPublicKey::new(algorithm.verification(), bytes).map_err(|_| KeyError)?;
        Ok(PublicKey { algorithm, key })
    }

    /// The key that [`PublicKey::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`KeyError`] as for [`PublicKey::new`], and if the algorithm is unknown.
    pub fn from_bytes(bytes: &[u8]) -> Result<PublicKey, KeyError> {
        match bytes.split_first() {
            Some((1, point)) => PublicKey::new(Algorithm::Ed25519, point),
            Some((2, point)) => PublicKey::new(Algorithm::P256, point),
            _ => Err(KeyError),
        }
    }

    /// One byte for the algorithm (1 Ed25519, 2 P-256), then the point; one encoding per key.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.algorithm as u8];
        bytes.extend_from_slice(self.point());
        bytes
    }

    /// The point alone, as a certificate has it.
    pub fn point(&self) -> &[u8] {
        self.key.as_ref()
    }

    /// Which scheme.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Whether `signature` is this key's over `message`.
    ///
    /// # Errors
    /// [`SignatureError`] if it is not.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), SignatureError> {
        self.key.verify_sig(message, signature).map_err(|_| SignatureError)
    }
}

/// The key of one running process (its incarnation), certified by the certificate's key: always Ed25519,
/// whatever that one is, so that beacons and batches are signed fast.
///
/// Two of them also agree on a secret, by X25519 over the same scalars: signing and agreeing with one key is as good as with
/// two where the hashes tell them apart (Thormarker 2021, "On using the same key pair for Ed25519 and an X25519 based KEM").
pub struct OriginKey {
    key: SigningKey,
    exchange: PrivateKey,
    /// What it agreed on with others last, by their points: a member asks for the same ones in each epoch.
    agreed: Mutex<BTreeMap<[u8; 32], Secret<32>>>,
}

impl OriginKey {
    /// A new key.
    pub fn generate(rng: &mut impl CryptoRng) -> OriginKey {
        OriginKey::from_seed(&Secret::random(rng))
    }

    /// The key of a seed.
    pub fn from_seed(seed: &Secret<32>) -> OriginKey {
        let key = SigningKey::from_seed(Algorithm::Ed25519, seed).expect("every seed is an Ed25519 key");
        let exchange = PrivateKey::from_private_key(&X25519, exchange_scalar(seed).expose());
        OriginKey { key, exchange: exchange.expect("any 32 bytes are a scalar"), agreed: Mutex::default() }
    }

    /// Signs; deterministic.
    pub fn sign(&self, message: &[u8]) -> Signature {
        self.key.sign(message)
    }

    /// The public half.
    pub fn public(&self) -> &PublicKey {
        self.key.public()
    }

    /// What this key and another one have in common (RFC 7748, section 6.1, on the u-coordinate of the other's point): to
    /// derive keys from, with all that they are for. `None` of a P-256 key.
    pub fn agree(&self, other: &PublicKey) -> Option<Secret<32>> {
        let place: [u8; 32] = other.point().try_into().ok()?;
        let mut agreed = self.agreed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(secret) = agreed.get(&place) {
            return Some(secret.clone());
        }
        let point = CompressedEdwardsY(place).decompress()?;
        let secret = diffie_hellman(&self.exchange, point.to_montgomery().as_bytes())?;
        if agreed.len() >= limits::AGREED_KEYS_MAX {
            agreed.clear();
        }
        agreed.insert(place, secret.clone());
        Some(secret)
    }

    /// The public half as the 32 bytes that go on the wire.
    pub fn public_bytes(&self) -> [u8; 32] {
        self.public().point().try_into().expect("an Ed25519 key has 32 bytes")
    }
}

/// The bytes are no acceptable key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid key")]
pub struct KeyError;

/// The signature is not that key's over that message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("wrong signature")]
pub struct SignatureError;

impl Algorithm {
    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Algorithm::Ed25519 => &ED25519,
            Algorithm::P256 => &ECDSA_P256_SHA256_FIXED,
        }
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &PublicKey) -> bool {
        self.algorithm == other.algorithm && self.point() == other.point()
    }
}

impl Eq for PublicKey {}

impl PartialOrd for PublicKey {
    fn partial_cmp(&self, other: &PublicKey) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PublicKey {
    fn cmp(&self, other: &PublicKey) -> std::cmp::Ordering {
        (self.algorithm, self.point()).cmp(&(other.algorithm, other.point()))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:", self.algorithm)?;
        self.point().iter().take(8).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({:?}, <redacted>)", self.public)
    }
}

impl fmt::Debug for OriginKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OriginKey({:?}, <redacted>)", self.public())
    }
}

/// The scalar of an Ed25519 key (RFC 8032, section 5.1.5, steps 1 to 3), which X25519 clamps as Ed25519 does.
fn exchange_scalar(seed: &Secret<32>) -> Secret<32> {
    let mut hash = digest(&SHA512, seed.expose()).as_ref().to_vec();
    let scalar = Secret::try_from(&hash[..32]).expect("SHA-512 has 64 bytes");
    hash.zeroize();
    scalar
}

/// Canonical, on the curve, and not one of the eight points of small order.
fn is_strict_ed25519(bytes: &[u8]) -> bool {
    let Ok(encoded) = CompressedEdwardsY::from_slice(bytes) else { return false };
    encoded.decompress().is_some_and(|point| !point.is_small_order() && point.compress() == encoded)
}

/// An `ECPrivateKey` (RFC 5915 §3) of P-256 without its public key, which the library computes.
fn rfc5915(scalar: &Secret<32>) -> Zeroizing<Vec<u8>> {
    let mut der = Zeroizing::new(Vec::with_capacity(51));
    der.extend_from_slice(&[0x30, 49, 0x02, 1, 1, 0x04, 32]); // SEQUENCE { INTEGER 1, OCTET STRING,
    der.extend_from_slice(scalar.expose());
    der.extend_from_slice(&[0xA0, 10, 0x06, 8, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07]); // [0] prime256v1 }
    der
}

/// Length of a signature of either algorithm, bytes.
pub const SIGNATURE_LEN: usize = 64;
/// SEC 1 §2.3.3: 4 ‖ x ‖ y.
const P256_POINT_LEN: usize = 65;
/// SEC 1 §2.3.3; the hybrid form (6, 7) of the same length would be a second encoding.
const P256_UNCOMPRESSED: u8 = 4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng;

    use super::*;
    use crate::unhex;

    const ALGORITHMS: [Algorithm; 2] = [Algorithm::Ed25519, Algorithm::P256];

    fn key(algorithm: Algorithm, seed: u64) -> SigningKey {
        SigningKey::generate(algorithm, &mut ChaCha20Rng::seed_from_u64(seed))
    }

    #[test]
    fn rfc8032_test_1() {
        let seed = unhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let key = SigningKey::from_seed(Algorithm::Ed25519, &Secret::try_from(&seed[..]).unwrap()).unwrap();
        let public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
        assert_eq!(key.public().point(), unhex(public));
        let signature = "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b";
        assert_eq!(key.sign(b"").to_vec(), unhex(signature));
    }

    #[test]
    fn rfc6979_p256_key_has_its_public_key() {
        let scalar = unhex("c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721");
        let key = SigningKey::from_seed(Algorithm::P256, &Secret::try_from(&scalar[..]).unwrap()).unwrap();
        let point = "0460fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb67903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299";
        assert_eq!(key.public().point(), unhex(point));
    }

    /// The pair that libsodium's test of its conversion has (`test/default/ed25519_convert.c`).
    #[test]
    fn libsodium_ed25519_convert() {
        let seed = unhex("421151a459faeade3d247115f94aedae42318124095afabe4d1451a559faedee");
        let seed = Secret::try_from(&seed[..]).unwrap();
        let public = OriginKey::from_seed(&seed).exchange.compute_public_key().unwrap();
        let converted = unhex("f1814f0e8ff1043d8a44d25babff3cedcae6c22c3edaa48f857ae70de2baae50");
        assert_eq!(public.as_ref(), converted);
        let point = CompressedEdwardsY::from_slice(OriginKey::from_seed(&seed).public().point()).unwrap();
        assert_eq!(point.decompress().unwrap().to_montgomery().as_bytes()[..], converted);
    }

    #[test]
    fn two_origin_keys_agree_and_a_third_one_does_not() {
        let [a, b, c] = [1, 2, 3].map(|i| OriginKey::from_seed(&Secret::from_bytes([i; 32])));
        let agreed = |one: &OriginKey, other: &OriginKey| *one.agree(other.public()).unwrap().expose();
        assert_eq!(agreed(&a, &b), agreed(&b, &a));
        assert!(agreed(&a, &b) != agreed(&a, &c) && agreed(&a, &b) != agreed(&b, &c));
        assert!(a.agree(key(Algorithm::P256, 1).public()).is_none());
    }

    #[test]
    fn rule_g7_an_origin_key_remembers_what_it_agreed_on_with_so_many_others_alone() {
        let a = OriginKey::from_seed(&Secret::from_bytes([1; 32]));
        let others: Vec<OriginKey> = (2..=255).map(|i| OriginKey::from_seed(&Secret::from_bytes([i; 32]))).collect();
        let agreed: Vec<[u8; 32]> = others.iter().map(|it| *a.agree(it.public()).unwrap().expose()).collect();
        assert!((1..=limits::AGREED_KEYS_MAX).contains(&a.agreed.lock().unwrap().len()));
        for (other, agreed) in others.iter().zip(&agreed) {
            assert_eq!(a.agree(other.public()).unwrap().expose(), agreed);
            assert_eq!(other.agree(a.public()).unwrap().expose(), agreed);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_key() {
        for algorithm in ALGORITHMS {
            assert_eq!(key(algorithm, 1).public(), key(algorithm, 1).public());
            assert_ne!(key(algorithm, 1).public(), key(algorithm, 2).public());
        }
    }

    #[test]
    fn signatures_verify_for_key_and_message_only() {
        for algorithm in ALGORITHMS {
            let key = key(algorithm, 1);
            let signature = key.sign(b"message");
            assert_eq!(key.public().verify(b"message", &signature), Ok(()));
            assert_eq!(key.public().verify(b"massage", &signature), Err(SignatureError));
            assert_eq!(self::key(algorithm, 2).public().verify(b"message", &signature), Err(SignatureError));
            for i in 0..SIGNATURE_LEN {
                let mut changed = signature;
                changed[i] ^= 1;
                assert_eq!(key.public().verify(b"message", &changed), Err(SignatureError));
            }
            assert_eq!(key.public().verify(b"message", &signature[..63]), Err(SignatureError));
        }
    }

    #[test]
    fn keys_survive_pkcs8_and_public_bytes() {
        for algorithm in ALGORITHMS {
            let key = key(algorithm, 3);
            let again = SigningKey::from_pkcs8(&key.to_pkcs8()).unwrap();
            assert_eq!(again.public(), key.public());
            assert_eq!(PublicKey::from_bytes(&key.public().to_bytes()).as_ref(), Ok(key.public()));
            assert!(key.public().verify(b"m", &again.sign(b"m")).is_ok());
        }
    }

    #[test]
    fn keys_that_are_no_keys_are_refused() {
        for algorithm in ALGORITHMS {
            let bytes = key(algorithm, 4).public().to_bytes();
            for n in 0..bytes.len() {
                assert_eq!(PublicKey::from_bytes(&bytes[..n]), Err(KeyError));
            }
            assert_eq!(PublicKey::from_bytes(&[&[3], &bytes[1..]].concat()), Err(KeyError));
        }
        assert!(SigningKey::from_seed(Algorithm::P256, &Secret::from_bytes([0; 32])).is_err(), "zero");
        assert!(SigningKey::from_seed(Algorithm::P256, &Secret::from_bytes([255; 32])).is_err(), "above the order");
        assert!(SigningKey::from_pkcs8(b"not DER").is_err());
    }

    #[test]
    fn ed25519_keys_of_small_order_or_odd_encoding_are_refused() {
        let identity = unhex("0100000000000000000000000000000000000000000000000000000000000000");
        let order_8 = unhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05");
        let y_is_p_plus_1 = unhex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f");
        let y_is_p_plus_3 = unhex("f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f");
        for bytes in [identity, order_8, y_is_p_plus_1, y_is_p_plus_3] {
            assert_eq!(PublicKey::new(Algorithm::Ed25519, &bytes), Err(KeyError));
        }
    }

    #[test]
    fn p256_points_have_one_encoding() {
        let point = key(Algorithm::P256, 6).public().point().to_vec();
        for first in (0..=255).filter(|&first| first != P256_UNCOMPRESSED) {
            let other = [&[first], &point[1..]].concat();
            assert_eq!(PublicKey::new(Algorithm::P256, &other), Err(KeyError), "{first}");
        }
        assert_eq!(PublicKey::new(Algorithm::P256, &[&[2 + point[64] % 2], &point[1..33]].concat()), Err(KeyError));
    }

    proptest! {
        #[test]
        fn bytes_that_are_a_key_are_its_encoding(algorithm in 0_u8..4, bytes in prop::collection::vec(any::<u8>(), 32)) {
            let bytes = [&[algorithm], &bytes[..]].concat();
            if let Ok(key) = PublicKey::from_bytes(&bytes) {
                prop_assert_eq!(key.to_bytes(), bytes);
            }
        }

        #[test]
        fn any_bytes_are_verified_without_harm(signature in prop::collection::vec(any::<u8>(), 0..100)) {
            for algorithm in ALGORITHMS {
                prop_assert_eq!(key(algorithm, 7).public().verify(b"message", &signature), Err(SignatureError));
            }
        }
    }

    #[test]
    fn secrets_do_not_print() {
        let printed = format!("{:?} {:?}", key(Algorithm::P256, 5), OriginKey::from_seed(&Secret::from_bytes([1; 32])));
        assert_eq!(printed.matches("<redacted>").count(), 2);
    }
}
