//! The two cipher suites of Messaging Layer Security that this project speaks (RFC 9420, section 17.1).
//!
//! | suite | KEM | AEAD | hash, KDF, MAC | signature |
//! |---|---|---|---|---|
//! | 1 | DHKEM(X25519, HKDF-SHA256) | AES-128-GCM | SHA-256 | Ed25519 |
//! | 2 | DHKEM(P-256, HKDF-SHA256) | AES-128-GCM | SHA-256 | ECDSA P-256, in DER |
//!
//! HPKE is that of RFC 9180 in base mode, with one message a context, and its exporter. What is sealed takes its
//! ephemeral key from the caller, so that many may be sealed at once and yet the same way each time.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{Algorithm as Agreement, ECDH_P256, PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use crate::hpke::{Length, labeled_expand, labeled_extract};
use crate::kdf;
use crate::secret::Secret;
use crate::signature::{Algorithm, PublicKey};

/// A cipher suite, by its number in the registry of MLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum CipherSuite {
    /// MLS_128_DHKEMX25519_AES128GCM_SHA256_Ed25519.
    #[default]
    X25519 = 1,
    /// MLS_128_DHKEMP256_AES128GCM_SHA256_P256.
    P256 = 2,
}

/// A key pair of a suite's KEM.
#[derive(Clone)]
pub struct KemPair {
    /// 32 bytes: the scalar as RFC 9180 serializes it (section 7.1.2).
    pub private: Secret<32>,
    /// 32 bytes, or an uncompressed point (65 bytes).
    pub public: Vec<u8>,
}

/// What HPKE made for one receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The encapsulated key: a public key of the KEM.
    pub enc: Vec<u8>,
    /// Ciphertext and tag.
    pub ciphertext: Vec<u8>,
}

/// An HPKE context: of the sender or of the receiver, which are the same but for who made the secret.
pub struct HpkeContext {
    key: Secret<16>,
    base_nonce: Secret<12>,
    exporter_secret: Secret<32>,
    /// How many messages this context sealed or opened.
    sequence: u64,
}

impl CipherSuite {
    /// Both.
    pub const ALL: [CipherSuite; 2] = [CipherSuite::X25519, CipherSuite::P256];

    /// The number that MLS gives it.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// Its name in the registry of MLS.
    pub fn name(self) -> &'static str {
        match self {
            CipherSuite::X25519 => "MLS_128_DHKEMX25519_AES128GCM_SHA256_Ed25519",
            CipherSuite::P256 => "MLS_128_DHKEMP256_AES128GCM_SHA256_P256",
        }
    }

    /// The algorithm of its signatures.
    pub fn algorithm(self) -> Algorithm {
        match self {
            CipherSuite::X25519 => Algorithm::Ed25519,
            CipherSuite::P256 => Algorithm::P256,
        }
    }

    /// HMAC-SHA256.
    pub fn mac(self, key: &[u8], data: &[u8]) -> [u8; 32] {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data);
        tag.as_ref().try_into().expect("HMAC-SHA256 has 32 bytes")
    }

    /// HKDF-Extract (RFC 5869, section 2.2).
    pub fn extract(self, salt: &[u8], ikm: &[u8]) -> Secret<32> {
        Secret::from_bytes(self.mac(salt, ikm))
    }

    /// HKDF-Expand (RFC 5869, section 2.3): `length` bytes.
    ///
    /// # Errors
    /// [`SuiteError::Length`] if more than 8160 bytes are asked for, or the key has not 32.
    pub fn expand(self, prk: &[u8], info: &[u8], length: usize) -> Result<Zeroizing<Vec<u8>>, SuiteError> {
        if prk.len() != HASH_LEN {
            return Err(SuiteError::Length);
        }
        let mut okm = Zeroizing::new(vec![0; length]);
        let prk = Prk::new_less_safe(HKDF_SHA256, prk);
        let filled = prk.expand(&[info], Length(length)).and_then(|it| it.fill(&mut okm));
        filled.map(|()| okm).map_err(|_| SuiteError::Length)
    }

    /// AES-128-GCM: ciphertext and tag. Never use a key with one nonce twice.
    ///
    /// # Errors
    /// [`SuiteError::Length`] if key or nonce have another length.
    pub fn seal(self, key: &[u8], nonce: &[u8], aad: &[u8], plaintext: &[u8]) -> Result<Vec<u8>, SuiteError> {
        let mut sealed = Vec::with_capacity(plaintext.len() + TAG_LEN);
        sealed.extend_from_slice(plaintext);
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SuiteError::Length)?;
        aes(key)?.seal_in_place_append_tag(nonce, Aad::from(aad), &mut sealed).map_err(|_| SuiteError::Length)?;
        Ok(sealed)
    }

    /// Opens what [`CipherSuite::seal`] made.
    ///
    /// # Errors
    /// [`SuiteError::Open`] if key, nonce, aad or ciphertext differ; [`SuiteError::Length`] as there.
    pub fn open(self, key: &[u8], nonce: &[u8], aad: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SuiteError> {
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SuiteError::Length)?;
        let mut buffer = Zeroizing::new(sealed.to_vec());
        let n = aes(key)?.open_in_place(nonce, Aad::from(aad), &mut buffer).map_err(|_| SuiteError::Open)?.len();
        buffer.truncate(n);
        Ok(buffer)
    }

    /// The key pair that follows from a secret (RFC 9180, section 7.1.3).
    ///
    /// # Errors
    /// [`SuiteError::Key`] with a chance of 2⁻⁸¹⁹²: 256 candidates were no scalar of P-256.
    pub fn kem_derive(self, ikm: &[u8]) -> Result<KemPair, SuiteError> {
        // dkp_prk = LabeledExtract("", "dkp_prk", ikm)
        let dkp_prk = labeled_extract(self.kem_id(), b"", b"dkp_prk", ikm);
        match self {
            CipherSuite::X25519 => {
                // sk = LabeledExpand(dkp_prk, "sk", "", Nsk)
                self.kem_pair(&labeled_expand(self.kem_id(), &dkp_prk, b"sk", &[]))
            }
            CipherSuite::P256 => {
                // bytes = LabeledExpand(dkp_prk, "candidate", I2OSP(counter, 1), Nsk), until 0 < sk < order
                let candidate = |counter: u8| labeled_expand(self.kem_id(), &dkp_prk, b"candidate", &[&[counter]]);
                (0..=255).find_map(|counter| self.kem_pair(&candidate(counter)).ok()).ok_or(SuiteError::Key)
            }
        }
    }

    /// The key pair of a private key.
    ///
    /// # Errors
    /// [`SuiteError::Key`] if it is no scalar of P-256.
    pub fn kem_pair(self, private: &Secret<32>) -> Result<KemPair, SuiteError> {
        let key = self.kem_private(private.expose())?;
        let public = key.compute_public_key().map_err(|_| SuiteError::Key)?.as_ref().to_vec();
        Ok(KemPair { private: private.clone(), public })
    }

    /// Whether the bytes are a public key of the KEM.
    ///
    /// # Errors
    /// [`SuiteError::Key`] if not.
    pub fn kem_check(self, public: &[u8]) -> Result<(), SuiteError> {
        match self {
            CipherSuite::X25519 => (public.len() == 32).then_some(()).ok_or(SuiteError::Key),
            CipherSuite::P256 => PublicKey::new(Algorithm::P256, public).map(|_| ()).map_err(|_| SuiteError::Key),
        }
    }

    /// HPKE's SetupBaseS with an ephemeral key of the caller's (RFC 9180, section 5.1.1): the encapsulated key, and the
    /// context.
    ///
    /// # Errors
    /// [`SuiteError::Key`] if the receiver's key is none.
    pub fn setup_sender(
        self,
        ephemeral: &KemPair,
        to: &[u8],
        info: &[u8],
    ) -> Result<(Vec<u8>, HpkeContext), SuiteError> {
        self.kem_check(to)?;
        // dh = DH(skE, pkR);  kem_context = concat(enc, pkRm)
        let dh = self.diffie_hellman(ephemeral.private.expose(), to)?;
        Ok((ephemeral.public.clone(), self.context(&dh, &ephemeral.public, to, info)))
    }

    /// HPKE's SetupBaseR (RFC 9180, section 5.1.1).
    ///
    /// # Errors
    /// [`SuiteError::Key`] if a key is none.
    pub fn setup_receiver(
        self,
        enc: &[u8],
        private: &[u8],
        public: &[u8],
        info: &[u8],
    ) -> Result<HpkeContext, SuiteError> {
        self.kem_check(enc)?;
        // dh = DH(skR, pkE);  kem_context = concat(enc, pkRm)
        let dh = self.diffie_hellman(private, enc)?;
        Ok(self.context(&dh, enc, public, info))
    }

    /// A signature as MLS sends it: Ed25519's as it is, ECDSA's as `ECDSA-Sig-Value` in DER (RFC 9420, section 5.1.2).
    pub fn encode_signature(self, signature: &[u8; 64]) -> Vec<u8> {
        match self {
            CipherSuite::X25519 => signature.to_vec(),
            CipherSuite::P256 => {
                let (r, s) = signature.split_at(32);
                let body = [der_integer(r), der_integer(s)].concat();
                [&[0x30, body.len() as u8], &body[..]].concat()
            }
        }
    }

    /// Inverse of [`CipherSuite::encode_signature`]; DER has one encoding of each number.
    ///
    /// # Errors
    /// [`SuiteError::Signature`] if it is none.
    pub fn decode_signature(self, bytes: &[u8]) -> Result<[u8; 64], SuiteError> {
        match self {
            CipherSuite::X25519 => bytes.try_into().map_err(|_| SuiteError::Signature),
            CipherSuite::P256 => {
                let (head, body) = bytes.split_first_chunk::<2>().ok_or(SuiteError::Signature)?;
                let (r, rest) = der_number(body).ok_or(SuiteError::Signature)?;
                let (s, rest) = der_number(rest).ok_or(SuiteError::Signature)?;
                if *head != [0x30, body.len() as u8] || !rest.is_empty() {
                    return Err(SuiteError::Signature);
                }
                let mut signature = [0; 64];
                signature[..32].copy_from_slice(&r);
                signature[32..].copy_from_slice(&s);
                Ok(signature)
            }
        }
    }

    /// RFC 9180, sections 4.1 and 5.1, in base mode.
    fn context(self, dh: &Secret<32>, enc: &[u8], receiver: &[u8], info: &[u8]) -> HpkeContext {
        let (kem, suite) = (self.kem_id(), self.hpke_id());
        // eae_prk = LabeledExtract("", "eae_prk", dh)
        // shared_secret = LabeledExpand(eae_prk, "shared_secret", kem_context, Nsecret)
        let eae_prk = labeled_extract(kem, b"", b"eae_prk", dh.expose());
        let shared_secret: Secret<32> = labeled_expand(kem, &eae_prk, b"shared_secret", &[enc, receiver]);
        // key_schedule_context = concat(mode, psk_id_hash, info_hash)
        let psk_id_hash = labeled_extract(suite, b"", b"psk_id_hash", b"");
        let info_hash = labeled_extract(suite, b"", b"info_hash", info);
        let context: [&[u8]; 3] = [&[0], psk_id_hash.expose(), info_hash.expose()];
        // secret = LabeledExtract(shared_secret, "secret", psk)
        let secret = labeled_extract(suite, shared_secret.expose(), b"secret", b"");
        HpkeContext {
            key: labeled_expand(suite, &secret, b"key", &context),
            base_nonce: labeled_expand(suite, &secret, b"base_nonce", &context),
            exporter_secret: labeled_expand(suite, &secret, b"exp", &context),
            sequence: 0,
        }
    }

    /// The x-coordinate, or X25519's result; an error where the library refuses the point (order, curve).
    fn diffie_hellman(self, private: &[u8], public: &[u8]) -> Result<Secret<32>, SuiteError> {
        let key = self.kem_private(private)?;
        let dh = |dh: &[u8]| Secret::try_from(dh).map_err(|_| SuiteError::Key);
        agree(&key, UnparsedPublicKey::new(self.agreement(), public), SuiteError::Key, dh)
    }

    fn kem_private(self, private: &[u8]) -> Result<PrivateKey, SuiteError> {
        PrivateKey::from_private_key(self.agreement(), private).map_err(|_| SuiteError::Key)
    }

    fn agreement(self) -> &'static Agreement {
        match self {
            CipherSuite::X25519 => &X25519,
            CipherSuite::P256 => &ECDH_P256,
        }
    }

    /// suite_id of the KEM: "KEM" ‖ kem_id (RFC 9180, section 4.1).
    fn kem_id(self) -> &'static [u8] {
        match self {
            CipherSuite::X25519 => b"KEM\x00\x20",
            CipherSuite::P256 => b"KEM\x00\x10",
        }
    }

    /// suite_id of the whole: "HPKE" ‖ kem_id ‖ kdf_id ‖ aead_id (RFC 9180, section 5.1).
    fn hpke_id(self) -> &'static [u8] {
        match self {
            CipherSuite::X25519 => b"HPKE\x00\x20\x00\x01\x00\x01",
            CipherSuite::P256 => b"HPKE\x00\x10\x00\x01\x00\x01",
        }
    }
}

impl HpkeContext {
    /// Seals the next message (RFC 9180, section 5.2): ciphertext and tag.
    ///
    /// # Errors
    /// [`SuiteError::Length`] if it is longer than AES-GCM takes.
    pub fn seal(&mut self, aad: &[u8], plaintext: &[u8]) -> Result<Vec<u8>, SuiteError> {
        let sealed = CipherSuite::X25519.seal(self.key.expose(), &self.nonce(), aad, plaintext)?;
        self.sequence += 1;
        Ok(sealed)
    }

    /// Opens the next message.
    ///
    /// # Errors
    /// [`SuiteError::Open`] if it is not the next one of this context, or was changed; the next one is the same then.
    pub fn open(&mut self, aad: &[u8], ciphertext: &[u8]) -> Result<Zeroizing<Vec<u8>>, SuiteError> {
        let opened = CipherSuite::X25519.open(self.key.expose(), &self.nonce(), aad, ciphertext)?;
        self.sequence += 1;
        Ok(opened)
    }

    /// A secret for other uses (RFC 9180, section 5.3).
    ///
    /// # Errors
    /// [`SuiteError::Length`] if more than 8160 bytes are asked for.
    pub fn export(&self, suite: CipherSuite, context: &[u8], length: usize) -> Result<Zeroizing<Vec<u8>>, SuiteError> {
        // LabeledExpand(exporter_secret, "sec", exporter_context, L)
        let size = u16::try_from(length).map_err(|_| SuiteError::Length)?.to_be_bytes();
        let info = [&size, &b"HPKE-v1"[..], suite.hpke_id(), b"sec", context].concat();
        suite.expand(self.exporter_secret.expose(), &info, length)
    }

    /// base_nonce XOR the sequence number.
    fn nonce(&self) -> [u8; 12] {
        let mut nonce = *self.base_nonce.expose();
        nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()).for_each(|(byte, of_sequence)| *byte ^= of_sequence);
        nonce
    }
}

/// Derives an ephemeral key pair for one receiver and plaintext from a seed of the caller's: another one for each, and the
/// same one each time.
///
/// # Errors
/// [`SuiteError::Key`] as [`CipherSuite::kem_derive`].
pub fn ephemeral(
    suite: CipherSuite,
    seed: &Secret<32>,
    to: &[u8],
    info: &[u8],
    aad: &[u8],
    plaintext: &[u8],
) -> Result<KemPair, SuiteError> {
    let parts: [&[u8]; 6] = [b"sealcast/v1/hpke ephemeral", &suite.number().to_be_bytes(), to, info, aad, plaintext];
    suite.kem_derive(kdf::hkdf::<32>(seed.expose(), b"", &parts).expose())
}

fn aes(key: &[u8]) -> Result<LessSafeKey, SuiteError> {
    UnboundKey::new(&AES_128_GCM, key).map(LessSafeKey::new).map_err(|_| SuiteError::Length)
}

/// An INTEGER of 32 bytes, big-endian: as short as may be, positive.
fn der_integer(number: &[u8]) -> Vec<u8> {
    let zeros = number.iter().take_while(|&&byte| byte == 0).count().min(number.len() - 1);
    let number = &number[zeros..];
    let sign = if number[0] >= 0x80 { &[0][..] } else { &[] };
    [&[0x02, (sign.len() + number.len()) as u8], sign, number].concat()
}

/// The first INTEGER, if it is positive, no longer than it must be, and fits 32 bytes; and what follows it.
fn der_number(bytes: &[u8]) -> Option<([u8; 32], &[u8])> {
    let (&[tag, length], rest) = bytes.split_first_chunk::<2>()?;
    let (number, rest) = rest.split_at_checked(length.into())?;
    let canonical = match number {
        [0, second, ..] => *second >= 0x80,
        [0] | [] => false,
        [first, ..] => *first < 0x80,
    };
    let number = number.strip_prefix(&[0]).unwrap_or(number);
    if tag != 0x02 || !canonical || number.len() > 32 {
        return None;
    }
    let mut fixed = [0; 32];
    fixed[32 - number.len()..].copy_from_slice(number);
    Some((fixed, rest))
}

/// Why a suite did not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuiteError {
    /// A key is no key of this suite.
    #[error("no key of this suite")]
    Key,
    /// A key, nonce or output has a length that is none of this suite.
    #[error("a length that is none of this suite")]
    Length,
    /// Not sealed under this key, nonce and additional data, or changed.
    #[error("authentication failed")]
    Open,
    /// The bytes are no signature.
    #[error("not a signature")]
    Signature,
}

/// Length of SHA-256, bytes.
const HASH_LEN: usize = 32;
/// Length of AES-GCM's tag, bytes (RFC 5116, section 5.1).
const TAG_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(suite: CipherSuite, seed: u8) -> KemPair {
        suite.kem_derive(&[seed; 32]).unwrap()
    }

    #[test]
    fn what_is_sealed_to_a_key_opens_with_it_alone() {
        for suite in CipherSuite::ALL {
            let (receiver, other) = (pair(suite, 1), pair(suite, 2));
            let (enc, mut sender) = suite.setup_sender(&pair(suite, 3), &receiver.public, b"info").unwrap();
            let sealed = sender.seal(b"aad", b"plaintext").unwrap();
            let opened = |pair: &KemPair, info: &[u8], aad: &[u8]| {
                let context = suite.setup_receiver(&enc, pair.private.expose(), &pair.public, info);
                context.unwrap().open(aad, &sealed).map(|plain| plain.to_vec())
            };
            assert_eq!(opened(&receiver, b"info", b"aad"), Ok(b"plaintext".to_vec()));
            assert_eq!(opened(&receiver, b"info", b"add"), Err(SuiteError::Open));
            assert_eq!(opened(&receiver, b"inf", b"aad"), Err(SuiteError::Open));
            assert_eq!(opened(&other, b"info", b"aad"), Err(SuiteError::Open));
        }
    }

    /// RFC 9180, appendix A.3.1: DHKEM(P-256, HKDF-SHA256), HKDF-SHA256, AES-128-GCM; and A.1.1 with X25519.
    #[test]
    fn rfc9180_appendix_a1_and_a3() {
        struct Vector {
            suite: CipherSuite,
            ikm_e: &'static str,
            ikm_r: &'static str,
            enc: &'static str,
            first: &'static str,
            second: &'static str,
            exported: &'static str,
        }
        let vectors = [
            Vector {
                suite: CipherSuite::X25519,
                ikm_e: "7268600d403fce431561aef583ee1613527cff655c1343f29812e66706df3234",
                ikm_r: "6db9df30aa07dd42ee5e8181afdb977e538f5e1fec8a06223f33f7013e525037",
                enc: "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431",
                first: "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a",
                second: "af2d7e9ac9ae7e270f46ba1f975be53c09f8d875bdc8535458c2494e8a6eab251c03d0c22a56b8ca42c2063b84",
                exported: "3853fe2b4035195a573ffc53856e77058e15d9ea064de3e59f4961d0095250ee",
            },
            Vector {
                suite: CipherSuite::P256,
                ikm_e: "4270e54ffd08d79d5928020af4686d8f6b7d35dbe470265f1f5aa22816ce860e",
                ikm_r: "668b37171f1072f3cf12ea8a236a45df23fc13b82af3609ad1e354f6ef817550",
                enc: "04a92719c6195d5085104f469a8b9814d5838ff72b60501e2c4466e5e67b325ac98536d7b61a1af4b78e5b7f951c0900be863c403ce65c9bfcb9382657222d18c4",
                first: "5ad590bb8baa577f8619db35a36311226a896e7342a6d836d8b7bcd2f20b6c7f9076ac232e3ab2523f39513434",
                second: "fa6f037b47fc21826b610172ca9637e82d6e5801eb31cbd3748271affd4ecb06646e0329cbdf3c3cd655b28e82",
                exported: "5e9bc3d236e1911d95e65b576a8a86d478fb827e8bdfe77b741b289890490d4d",
            },
        ];
        let plaintext = b"Beauty is truth, truth beauty";
        let info = b"Ode on a Grecian Urn";
        for it in vectors {
            let [sender, receiver] = [it.ikm_e, it.ikm_r].map(|ikm| it.suite.kem_derive(&crate::unhex(ikm)).unwrap());
            let (enc, mut context) = it.suite.setup_sender(&sender, &receiver.public, info).unwrap();
            assert_eq!(enc, crate::unhex(it.enc), "{:?}", it.suite);
            assert_eq!(context.seal(b"Count-0", plaintext).unwrap(), crate::unhex(it.first), "{:?}", it.suite);
            assert_eq!(context.seal(b"Count-1", plaintext).unwrap(), crate::unhex(it.second), "{:?}", it.suite);
            assert_eq!(*context.export(it.suite, b"", 32).unwrap(), crate::unhex(it.exported), "{:?}", it.suite);
        }
    }

    #[test]
    fn keys_that_are_none_are_refused() {
        for suite in CipherSuite::ALL {
            let ephemeral = pair(suite, 1);
            for public in [vec![], vec![0; 32], vec![0; 65], [&[4], &[1; 64][..]].concat()] {
                assert!(suite.setup_sender(&ephemeral, &public, b"").is_err(), "{suite:?} {}", public.len());
                let private = ephemeral.private.expose();
                assert!(suite.setup_receiver(&public, private, &ephemeral.public, b"").is_err(), "{suite:?}");
            }
        }
        assert!(CipherSuite::P256.kem_pair(&Secret::from_bytes([0; 32])).is_err());
        assert!(CipherSuite::P256.kem_pair(&Secret::from_bytes([255; 32])).is_err());
    }

    #[test]
    fn an_ephemeral_key_is_that_of_seed_receiver_and_plaintext() {
        for suite in CipherSuite::ALL {
            let made = |seed: u8, to: &[u8], info: &[u8], aad: &[u8], plaintext: &[u8]| {
                ephemeral(suite, &Secret::from_bytes([seed; 32]), to, info, aad, plaintext).unwrap().public
            };
            let first = made(1, b"to", b"info", b"aad", b"plaintext");
            assert_eq!(first, made(1, b"to", b"info", b"aad", b"plaintext"));
            let others = [
                made(2, b"to", b"info", b"aad", b"plaintext"),
                made(1, b"ot", b"info", b"aad", b"plaintext"),
                made(1, b"to", b"inf", b"oaad", b"plaintext"),
                made(1, b"to", b"info", b"aad", b"plain"),
            ];
            assert!(others.iter().all(|other| *other != first));
        }
    }

    #[test]
    fn a_signature_of_p256_has_one_encoding() {
        let suite = CipherSuite::P256;
        let mut fixed = [0; 64];
        (fixed[0], fixed[31], fixed[63]) = (0x80, 7, 1);
        let der = suite.encode_signature(&fixed);
        assert_eq!(der.len(), 2 + 2 + 33 + 2 + 1);
        assert_eq!(suite.decode_signature(&der), Ok(fixed));
        for i in 0..der.len() {
            assert!(suite.decode_signature(&der[..i]).is_err(), "first {i} bytes");
        }
        let longer = [&der[..], &[0]].concat();
        assert!(suite.decode_signature(&longer).is_err());
        // s = 1 with a needless zero.
        let mut padded = der.clone();
        (padded[1], padded[38]) = (der[1] + 1, 2);
        padded.insert(39, 0);
        assert!(suite.decode_signature(&padded).is_err());
    }

    #[test]
    fn lengths_that_are_none_are_refused() {
        let suite = CipherSuite::X25519;
        assert_eq!(suite.seal(&[0; 15], &[0; 12], b"", b""), Err(SuiteError::Length));
        assert_eq!(suite.seal(&[0; 16], &[0; 11], b"", b""), Err(SuiteError::Length));
        assert_eq!(suite.expand(&[0; 31], b"", 32), Err(SuiteError::Length));
        assert_eq!(suite.expand(&[0; 32], b"", 255 * 32 + 1), Err(SuiteError::Length));
        assert_eq!(suite.open(&[0; 16], &[0; 12], b"", &[0; 15]), Err(SuiteError::Open));
    }
}
