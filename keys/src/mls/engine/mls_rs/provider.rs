//! This project's cryptography as mls-rs asks for it: suites 1 and 2, one member's signing key, randomness from a seed.
//!
//! mls-rs seals to many receivers at once, on several threads. A shared stream would give each thread what it happens to
//! draw first, so ephemeral keys follow from the seed, the receiver and the plaintext instead; all else is drawn in one
//! order, from a stream of the same seed.
//!
//! mls-rs keeps the signing key in each state that it stores. What it gets here is the public key, as a handle: the
//! private one stays where the caller has it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mls_rs_core::crypto::{
    CipherSuite as Number, CipherSuiteProvider, CryptoProvider, HpkeCiphertext, HpkeContextR, HpkeContextS, HpkePsk,
    HpkePublicKey, HpkeSecretKey, SignaturePublicKey, SignatureSecretKey,
};
use mls_rs_core::error::IntoAnyError;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use sealcast_crypto::cipher_suite::{CipherSuite, HpkeContext, KemPair, SuiteError, ephemeral};
use sealcast_crypto::hash::sha256;
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{PublicKey, SigningKey};
use sealcast_wire::Utc;
use zeroize::Zeroizing;

use crate::mls::engine::Signer;

/// The cryptography of one member.
#[derive(Clone)]
pub(super) struct Provider {
    suite: CipherSuite,
    signer: Arc<dyn Signer>,
    shared: Arc<Shared>,
}

/// What changes from call to call.
struct Shared {
    chance: Mutex<Option<Chance>>,
    utc: AtomicI64,
    #[cfg(any(test, feature = "misbehaving"))]
    spoiled: Mutex<super::misbehaving::Spoiled>,
}

/// The randomness of one call.
struct Chance {
    seed: Secret<32>,
    stream: ChaCha20Rng,
    signatures: Signatures,
}

/// Signatures by the hash of what they sign: those of P-256 are random, and a call that is repeated must sign as before.
pub(super) type Signatures = BTreeMap<[u8; 32], Vec<u8>>;

impl Provider {
    /// The cryptography of a member that signs with this key.
    pub(super) fn new(suite: CipherSuite, signer: Arc<dyn Signer>) -> Provider {
        let shared = Shared {
            chance: Mutex::new(None),
            utc: AtomicI64::new(0),
            #[cfg(any(test, feature = "misbehaving"))]
            spoiled: Mutex::default(),
        };
        Provider { suite, signer, shared: Arc::new(shared) }
    }

    /// The suite.
    pub(super) fn suite(&self) -> CipherSuite {
        self.suite
    }

    /// What mls-rs holds for the signing key.
    pub(super) fn handle(&self) -> SignatureSecretKey {
        SignatureSecretKey::new_slice(self.signer.key().public().point())
    }

    /// The time of the call.
    pub(super) fn utc(&self) -> Utc {
        Utc(self.shared.utc.load(Ordering::Relaxed))
    }

    /// Begins a call that draws nothing.
    pub(super) fn at(&self, utc: Utc) {
        self.shared.utc.store(utc.0, Ordering::Relaxed);
    }

    /// Makes a call of this name with this seed, which signs as it did before where signatures are given; answers all
    /// that it signed. Calls of different names draw differently from one seed.
    pub(super) fn with_seed<T>(
        &self,
        name: &str,
        utc: Utc,
        seed: &Secret<32>,
        signatures: Signatures,
        call: impl FnOnce() -> T,
    ) -> (T, Signatures) {
        self.at(utc);
        let stream: Secret<32> = hkdf(seed.expose(), b"", &[b"sealcast/v1/mls stream", name.as_bytes()]);
        let stream = ChaCha20Rng::from_seed(*stream.expose());
        let ephemeral: Secret<32> = hkdf(seed.expose(), b"", &[b"sealcast/v1/mls ephemeral", name.as_bytes()]);
        *self.chance() = Some(Chance { seed: ephemeral, stream, signatures });
        let answer = call();
        let signatures = self.chance().take().map(|it| it.signatures).unwrap_or_default();
        (answer, signatures)
    }

    /// For whom what is sealed cannot be opened.
    #[cfg(any(test, feature = "misbehaving"))]
    pub(super) fn spoiled(&self) -> MutexGuard<'_, super::misbehaving::Spoiled> {
        self.shared.spoiled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chance(&self) -> MutexGuard<'_, Option<Chance>> {
        self.shared.chance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self) -> Result<Secret<32>, ProviderError> {
        let mut chance = self.chance();
        let stream = &mut chance.as_mut().ok_or(ProviderError::NoSeed)?.stream;
        Ok(Secret::filled(|bytes| stream.fill_bytes(bytes)))
    }

    fn signs_with(&self, handle: &SignatureSecretKey) -> Result<&SigningKey, ProviderError> {
        let own = handle.as_bytes() == self.signer.key().public().point();
        own.then_some(self.signer.key()).ok_or(ProviderError::Suite(SuiteError::Key))
    }
}

impl CryptoProvider for Provider {
    type CipherSuiteProvider = Provider;

    fn supported_cipher_suites(&self) -> Vec<Number> {
        vec![Number::new(self.suite.number())]
    }

    fn cipher_suite_provider(&self, number: Number) -> Option<Provider> {
        (number.raw_value() == self.suite.number()).then(|| self.clone())
    }
}

impl CipherSuiteProvider for Provider {
    type Error = ProviderError;
    type HpkeContextS = Context;
    type HpkeContextR = Context;

    fn cipher_suite(&self) -> Number {
        Number::new(self.suite.number())
    }

    fn hash(&self, data: &[u8]) -> Result<Vec<u8>, ProviderError> {
        Ok(sha256(data).to_vec())
    }

    fn mac(&self, key: &[u8], data: &[u8]) -> Result<Vec<u8>, ProviderError> {
        Ok(self.suite.mac(key, data).to_vec())
    }

    fn aead_seal(&self, key: &[u8], data: &[u8], aad: Option<&[u8]>, nonce: &[u8]) -> Result<Vec<u8>, ProviderError> {
        Ok(self.suite.seal(key, nonce, aad.unwrap_or_default(), data)?)
    }

    fn aead_open(
        &self,
        key: &[u8],
        ciphertext: &[u8],
        aad: Option<&[u8]>,
        nonce: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, ProviderError> {
        Ok(self.suite.open(key, nonce, aad.unwrap_or_default(), ciphertext)?)
    }

    fn aead_key_size(&self) -> usize {
        16
    }

    fn aead_nonce_size(&self) -> usize {
        12
    }

    fn kdf_extract(&self, salt: &[u8], ikm: &[u8]) -> Result<Zeroizing<Vec<u8>>, ProviderError> {
        Ok(Zeroizing::new(self.suite.extract(salt, ikm).expose().to_vec()))
    }

    fn kdf_expand(&self, prk: &[u8], info: &[u8], length: usize) -> Result<Zeroizing<Vec<u8>>, ProviderError> {
        Ok(self.suite.expand(prk, info, length)?)
    }

    fn kdf_extract_size(&self) -> usize {
        32
    }

    fn hpke_seal(
        &self,
        to: &HpkePublicKey,
        info: &[u8],
        aad: Option<&[u8]>,
        plaintext: &[u8],
    ) -> Result<HpkeCiphertext, ProviderError> {
        let aad = aad.unwrap_or_default();
        let seed = self.chance().as_ref().ok_or(ProviderError::NoSeed)?.seed.clone();
        let ephemeral = ephemeral(self.suite, &seed, to, info, aad, plaintext)?;
        let (kem_output, mut context) = self.suite.setup_sender(&ephemeral, to, info)?;
        let sealed = HpkeCiphertext { kem_output, ciphertext: context.seal(aad, plaintext)? };
        #[cfg(any(test, feature = "misbehaving"))]
        let sealed = self.spoiled().change(to, sealed);
        Ok(sealed)
    }

    fn hpke_seal_psk(
        &self,
        _: &HpkePublicKey,
        _: &[u8],
        _: Option<&[u8]>,
        _: &[u8],
        _: HpkePsk<'_>,
    ) -> Result<HpkeCiphertext, ProviderError> {
        Err(ProviderError::Unsupported)
    }

    fn hpke_open(
        &self,
        ciphertext: &HpkeCiphertext,
        private: &HpkeSecretKey,
        public: &HpkePublicKey,
        info: &[u8],
        aad: Option<&[u8]>,
    ) -> Result<Zeroizing<Vec<u8>>, ProviderError> {
        let context = self.suite.setup_receiver(&ciphertext.kem_output, private, public, info);
        let opened = context.and_then(|mut it| it.open(aad.unwrap_or_default(), &ciphertext.ciphertext));
        opened.map_err(|_| ProviderError::NotSealedToUs)
    }

    fn hpke_open_psk(
        &self,
        _: &HpkeCiphertext,
        _: &HpkeSecretKey,
        _: &HpkePublicKey,
        _: &[u8],
        _: Option<&[u8]>,
        _: HpkePsk<'_>,
    ) -> Result<Zeroizing<Vec<u8>>, ProviderError> {
        Err(ProviderError::Unsupported)
    }

    fn hpke_setup_s(&self, to: &HpkePublicKey, info: &[u8]) -> Result<(Vec<u8>, Context), ProviderError> {
        let ephemeral = self.suite.kem_derive(self.draw()?.expose())?;
        let (enc, context) = self.suite.setup_sender(&ephemeral, to, info)?;
        Ok((enc, Context(self.suite, context)))
    }

    fn hpke_setup_r(
        &self,
        enc: &[u8],
        private: &HpkeSecretKey,
        public: &HpkePublicKey,
        info: &[u8],
    ) -> Result<Context, ProviderError> {
        Ok(Context(self.suite, self.suite.setup_receiver(enc, private, public, info)?))
    }

    fn kem_derive(&self, ikm: &[u8]) -> Result<(HpkeSecretKey, HpkePublicKey), ProviderError> {
        let KemPair { private, public } = self.suite.kem_derive(ikm)?;
        Ok((private.expose().to_vec().into(), public.into()))
    }

    fn kem_generate(&self) -> Result<(HpkeSecretKey, HpkePublicKey), ProviderError> {
        self.kem_derive(self.draw()?.expose())
    }

    fn kem_public_key_validate(&self, key: &HpkePublicKey) -> Result<(), ProviderError> {
        Ok(self.suite.kem_check(key)?)
    }

    fn random_bytes(&self, out: &mut [u8]) -> Result<(), ProviderError> {
        self.chance().as_mut().ok_or(ProviderError::NoSeed)?.stream.fill_bytes(out);
        Ok(())
    }

    fn signature_key_generate(&self) -> Result<(SignatureSecretKey, SignaturePublicKey), ProviderError> {
        Err(ProviderError::Unsupported)
    }

    fn signature_key_derive_public(&self, handle: &SignatureSecretKey) -> Result<SignaturePublicKey, ProviderError> {
        self.signs_with(handle).map(|key| SignaturePublicKey::new_slice(key.public().point()))
    }

    fn sign(&self, handle: &SignatureSecretKey, data: &[u8]) -> Result<Vec<u8>, ProviderError> {
        let signer = self.signs_with(handle)?;
        let what = sha256(data);
        if let Some(signature) = self.chance().as_ref().and_then(|it| it.signatures.get(&what)) {
            return Ok(signature.clone());
        }
        let signature = self.suite.encode_signature(&signer.sign(data));
        if let Some(chance) = self.chance().as_mut() {
            chance.signatures.insert(what, signature.clone());
        }
        Ok(signature)
    }

    fn verify(&self, key: &SignaturePublicKey, signature: &[u8], data: &[u8]) -> Result<(), ProviderError> {
        let key = PublicKey::new(self.suite.algorithm(), key).map_err(|_| ProviderError::Suite(SuiteError::Key))?;
        let signature = self.suite.decode_signature(signature)?;
        key.verify(data, &signature).map_err(|_| ProviderError::Suite(SuiteError::Signature))
    }
}

/// An HPKE context, with its suite.
pub(super) struct Context(CipherSuite, HpkeContext);

impl HpkeContextS for Context {
    type Error = ProviderError;

    fn seal(&mut self, aad: Option<&[u8]>, data: &[u8]) -> Result<Vec<u8>, ProviderError> {
        Ok(self.1.seal(aad.unwrap_or_default(), data)?)
    }

    fn export(&self, context: &[u8], length: usize) -> Result<Zeroizing<Vec<u8>>, ProviderError> {
        Ok(self.1.export(self.0, context, length)?)
    }
}

impl HpkeContextR for Context {
    type Error = ProviderError;

    fn open(&mut self, aad: Option<&[u8]>, ciphertext: &[u8]) -> Result<Zeroizing<Vec<u8>>, ProviderError> {
        Ok(self.1.open(aad.unwrap_or_default(), ciphertext)?)
    }

    fn export(&self, context: &[u8], length: usize) -> Result<Zeroizing<Vec<u8>>, ProviderError> {
        Ok(self.1.export(self.0, context, length)?)
    }
}

/// Why the cryptography did not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProviderError {
    /// The suite refuses it.
    #[error(transparent)]
    Suite(#[from] SuiteError),
    /// What HPKE sealed is not for our key.
    #[error("not sealed to our key")]
    NotSealedToUs,
    /// Something draws randomness in a call that has no seed.
    #[error("a call without a seed draws")]
    NoSeed,
    /// Something that no call of ours asks for.
    #[error("unsupported")]
    Unsupported,
}

impl IntoAnyError for ProviderError {
    fn into_dyn_error(self) -> Result<Box<dyn std::error::Error + Send + Sync>, Self> {
        Ok(self.into())
    }
}
