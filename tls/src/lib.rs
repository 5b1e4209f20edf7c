//! Channels between clients and brokers: TLS 1.3 in which each side shows its Ed25519 key and nothing else
//! (RFC 7250), so that there are no certificates to expire and no names to check.
//!
//! A client knows the brokers' keys from genesis. A broker takes any key: it is the [`Client`], and what it may do is
//! written in the state.
//!
//! This is configuration, and what a message on a channel looks like ([`message`]): sockets belong to `sealcast` on one side
//! and to `brokerd` on the other.

#![forbid(unsafe_code)]

pub mod message;

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, ServerConfig,
    SignatureAlgorithm, SignatureScheme, version,
};
use sealcast_broker::operation::Client;
use sealcast_broker::protocol::ALPN;
use sealcast_crypto::ed25519::Key;
use sealcast_crypto::signature::OriginKey;

/// What a broker with this key speaks.
pub fn server(key: Arc<OriginKey>) -> Arc<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_client_cert_verifier(Arc::new(AnyClient))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified(key))));
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Every channel proves both keys anew, and nothing is kept of former ones.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

/// What a client with this key speaks to the broker whose key in genesis is `broker`.
pub fn client(key: Arc<OriginKey>, broker: [u8; 32]) -> Arc<ClientConfig> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])
        .expect("the provider has TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ThisBroker(broker)))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified(key))));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Arc::new(config)
}

/// The name that TLS asks for, which is neither sent nor checked.
pub fn name() -> ServerName<'static> {
    ServerName::try_from("broker").expect("it is a host's name")
}

/// The client whose key the peer of a channel has shown.
pub fn peer(shown: Option<&[CertificateDer<'_>]>) -> Option<Client> {
    let [key] = shown? else { return None };
    read_key(key).ok().map(Client)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn certified(key: Arc<OriginKey>) -> Arc<CertifiedKey> {
    let public = CertificateDer::from(spki(&key.public_bytes()));
    Arc::new(CertifiedKey::new(vec![public], Arc::new(OwnKey(key))))
}

/// The key as `SubjectPublicKeyInfo` (RFC 8410, 4).
fn spki(key: &[u8; 32]) -> Vec<u8> {
    [&SPKI_ED25519[..], key].concat()
}

/// The key in a `SubjectPublicKeyInfo`, by the predicate that also judges signatures on batches (E10).
fn read_key(spki: &[u8]) -> Result<[u8; 32], Error> {
    let bytes = spki.strip_prefix(&SPKI_ED25519).and_then(|key| key.try_into().ok());
    match bytes.map(Key::new) {
        Some(Ok(key)) => Ok(*key.as_bytes()),
        _ => Err(Error::InvalidCertificate(CertificateError::BadEncoding)),
    }
}

/// Signs handshakes by a key that stays where it is.
#[derive(Debug)]
struct OwnKey(Arc<OriginKey>);

impl SigningKey for OwnKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered.contains(&SignatureScheme::ED25519).then(|| Box::new(OwnKey(self.0.clone())) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(spki(&self.0.public_bytes())))
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

/// What both sides' verifiers say alike: keys stand alone, sign by Ed25519, and there is no TLS 1.2 here.
macro_rules! by_raw_keys {
    () => {
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
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
            let key = SubjectPublicKeyInfoDer::from(&**key);
            verify_tls13_signature_with_raw_key(message, &key, dss, &algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

/// Takes any client that has a good key.
#[derive(Debug)]
struct AnyClient;

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        read_key(end_entity).map(|_| ClientCertVerified::assertion())
    }

    by_raw_keys!();
}

/// Takes one broker.
#[derive(Debug)]
struct ThisBroker([u8; 32]);

impl ServerCertVerifier for ThisBroker {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match read_key(end_entity)? {
            key if key == self.0 => Ok(ServerCertVerified::assertion()),
            _ => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
    }

    by_raw_keys!();
}

/// What stands before the 32 bytes: a sequence of the algorithm 1.3.101.112 and a bit string.
const SPKI_ED25519: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

#[cfg(test)]
mod tests {
    use std::io;

    use rustls::{ClientConnection, ServerConnection};
    use sealcast_crypto::secret::Secret;

    use super::*;

    fn key(seed: u8) -> Arc<OriginKey> {
        Arc::new(OriginKey::from_seed(&Secret::from_bytes([seed; 32])))
    }

    /// Who the broker sees, and the application protocol, when client and broker shake hands in memory.
    fn meet(client: Arc<ClientConfig>, server: Arc<ServerConfig>) -> Result<(Option<Client>, Option<Vec<u8>>), Error> {
        let mut ours = ClientConnection::new(client, name())?;
        let mut theirs = ServerConnection::new(server)?;
        let carry = |bytes: Vec<u8>| io::Cursor::new(bytes);
        for _ in 0..4 {
            let mut bytes = Vec::new();
            while ours.wants_write() {
                ours.write_tls(&mut bytes).expect("memory takes it");
            }
            let mut bytes = carry(bytes);
            while theirs.read_tls(&mut bytes).expect("memory gives it") > 0 {
                theirs.process_new_packets()?;
            }
            let mut bytes = Vec::new();
            while theirs.wants_write() {
                theirs.write_tls(&mut bytes).expect("memory takes it");
            }
            let mut bytes = carry(bytes);
            while ours.read_tls(&mut bytes).expect("memory gives it") > 0 {
                ours.process_new_packets()?;
            }
        }
        assert!(!ours.is_handshaking() && !theirs.is_handshaking());
        Ok((peer(theirs.peer_certificates()), theirs.alpn_protocol().map(<[u8]>::to_vec)))
    }

    #[test]
    fn both_sides_are_their_keys() {
        let (seen, protocol) = meet(client(key(1), key(2).public_bytes()), server(key(2))).expect("they meet");
        assert_eq!(seen, Some(Client(key(1).public_bytes())));
        assert_eq!(protocol.as_deref(), Some(ALPN));
    }

    #[test]
    fn another_broker_is_not_taken_for_it() {
        assert!(meet(client(key(1), key(3).public_bytes()), server(key(2))).is_err());
    }

    #[test]
    fn rule_e10_a_key_of_small_order_is_no_client() {
        let mut identity = [0; 32];
        identity[0] = 1;
        assert!(read_key(&spki(&identity)).is_err());
        assert!(read_key(&[0; 44]).is_err() && read_key(&spki(&key(1).public_bytes())[1..]).is_err());
    }

    #[test]
    fn who_shows_no_key_or_speaks_another_protocol_is_refused() {
        let mut silent = (*client(key(1), key(2).public_bytes())).clone();
        silent.alpn_protocols = vec![b"h2".to_vec()];
        assert!(meet(Arc::new(silent), server(key(2))).is_err());
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])
            .expect("the provider has TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ThisBroker(key(2).public_bytes())))
            .with_no_client_auth();
        assert!(meet(Arc::new(config), server(key(2))).is_err());
    }
}
