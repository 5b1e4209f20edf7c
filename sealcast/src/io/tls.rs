//! TLS 1.3 to brokers: each side shows its Ed25519 key and nothing else (RFC 7250), so that there are no certificates to
//! expire and no names to check. The broker's key is the one of genesis (E11); ours is our name there.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, PeerIncompatible,
    SignatureAlgorithm, SignatureScheme, version,
};
use sealcast_broker::protocol::ALPN;
use sealcast_crypto::signature::OriginKey;

/// A channel of the holder of `key` to the broker with the key `broker`, not yet begun.
///
/// # Errors
/// Those of rustls; none is known.
pub fn client(key: Arc<OriginKey>, broker: [u8; 32]) -> Result<ClientConnection, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = ThisBroker { key: spki(&broker), algorithms: provider.signature_verification_algorithms };
    let name = ServerName::try_from("broker").expect("it is a host's name; it is neither sent nor checked");
    ClientConnection::new(config(provider, key, verifier), name)
}

fn config(provider: Arc<CryptoProvider>, key: Arc<OriginKey>, verifier: ThisBroker) -> Arc<ClientConfig> {
    let own = certified(key);
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .expect("the provider has TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Every channel proves both keys anew.
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Arc::new(config)
}

/// What the holder of a key shows.
pub(super) fn certified(key: Arc<OriginKey>) -> Arc<CertifiedKey> {
    let public = CertificateDer::from(spki(&key.public_bytes()).to_vec());
    Arc::new(CertifiedKey::new(vec![public], Arc::new(OwnKey(key))))
}

/// The key as `SubjectPublicKeyInfo` (RFC 8410, 4).
fn spki(key: &[u8; 32]) -> [u8; 44] {
    let mut spki = [0; 44];
    spki[..12].copy_from_slice(&SPKI_ED25519);
    spki[12..].copy_from_slice(key);
    spki
}

/// Signs handshakes by a key that stays where it is.
#[derive(Debug)]
struct OwnKey(Arc<OriginKey>);

impl SigningKey for OwnKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered.contains(&SignatureScheme::ED25519).then(|| Box::new(OwnKey(self.0.clone())) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(spki(&self.0.public_bytes()).to_vec()))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl Signer for OwnKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.0.sign(message).to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

/// Takes one broker.
#[derive(Debug)]
struct ThisBroker {
    key: [u8; 44],
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for ThisBroker {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match end_entity.as_ref() == self.key {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::SupportedVersionsExtensionRequired))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// What stands before the 32 bytes: a sequence of the algorithm 1.3.101.112 and a bit string.
const SPKI_ED25519: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
