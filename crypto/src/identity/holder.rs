//! What a member holds: its certificate, its keys, whom it trusts, and its groups' bootstrap keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::anchor::{TrustAnchor, Verified};
use super::certificate::{Certificate, CertificateError};
use super::keytext::{Fingerprint, MemberSecret, PublicKeys};
use crate::bootstrap::BootstrapKey;
use crate::hpke;
use crate::secret::Secret;
use crate::signature::SigningKey;

/// A member's identity.
#[derive(Debug)]
pub struct Identity {
    certificate: Arc<Verified>,
    key: SigningKey,
    sealing: hpke::KeyPair,
    anchor: TrustAnchor,
    bootstrap_keys: BTreeMap<String, Secret<32>>,
}

/// Why the parts are no identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The certificate is not this authority's, or malformed.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The certificate is for other keys.
    #[error("the secret key does not belong to the certificate")]
    OtherKey,
}

impl Identity {
    /// Puts an identity together. Time and revocation are not judged here but whenever it is used.
    ///
    /// # Errors
    /// The certificate does not verify, or is for other keys.
    pub fn new(
        certificate: &Certificate,
        secret: &MemberSecret,
        anchor: TrustAnchor,
    ) -> Result<Identity, IdentityError> {
        Identity::with_keys(certificate, secret.signing_key(), secret.sealing_key(), anchor)
    }

    /// The same from keys that came otherwise: from a PKCS#8 file, for example.
    ///
    /// # Errors
    /// As [`Identity::new`].
    pub fn with_keys(
        certificate: &Certificate,
        key: SigningKey,
        sealing: hpke::KeyPair,
        anchor: TrustAnchor,
    ) -> Result<Identity, IdentityError> {
        let certificate = anchor.verify_issued(certificate)?;
        if certificate.key != *key.public() || certificate.sealing.is_some_and(|s| s != sealing.public()) {
            return Err(IdentityError::OtherKey);
        }
        Ok(Identity { certificate, key, sealing, anchor, bootstrap_keys: BTreeMap::new() })
    }

    /// Adds the secret of a group's bootstrap key.
    #[must_use]
    pub fn with_bootstrap_key(mut self, group: &str, secret: Secret<32>) -> Identity {
        self.bootstrap_keys.insert(group.to_owned(), secret);
        self
    }

    /// The certificate.
    pub fn certificate(&self) -> &Arc<Verified> {
        &self.certificate
    }

    /// Signs for the member.
    pub fn key(&self) -> &SigningKey {
        &self.key
    }

    /// Opens what was sealed for the member.
    pub fn sealing(&self) -> &hpke::KeyPair {
        &self.sealing
    }

    /// The public keys, `scpub1…`.
    pub fn public(&self) -> PublicKeys {
        PublicKeys { signing: self.key.public().clone(), sealing: self.sealing.public() }
    }

    /// Whom it trusts, with the revocation list known when it was put together.
    pub fn anchor(&self) -> &TrustAnchor {
        &self.anchor
    }

    /// The authority's fingerprint, `scca1…`.
    pub fn authority(&self) -> Fingerprint {
        self.anchor.fingerprint()
    }

    /// A group's bootstrap key. Without a secret it is the public one: see [`Identity::has_bootstrap_key`].
    pub fn bootstrap_key(&self, group: &str) -> BootstrapKey {
        match self.bootstrap_keys.get(group) {
            Some(secret) => BootstrapKey::new(secret),
            None => BootstrapKey::public(&self.authority().0, group),
        }
    }

    /// Whether there is a secret for a group's bootstrap key. If not, whoever has the authority's certificate and
    /// the group's name can read the names in key agreement: to be said loudly.
    pub fn has_bootstrap_key(&self, group: &str) -> bool {
        self.bootstrap_keys.contains_key(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::fixture::*;
    use crate::signature::Algorithm;

    #[test]
    fn an_identity_is_made_of_parts_that_belong_together() {
        let (mut ca, other) = (authority(1), authority(2));
        let secret = |seed| MemberSecret::generate(Algorithm::Ed25519, &mut rng(seed));
        let issued = ca.issue(&request("alice", &secret(3), everything()), NOW, DAY).expect("issued");
        let made = |secret: &MemberSecret, anchor: &TrustAnchor| Identity::new(&issued, secret, anchor.clone());
        assert_eq!(made(&secret(4), ca.anchor()).map(|_| ()), Err(IdentityError::OtherKey));
        let wrong_root = made(&secret(3), other.anchor()).map(|_| ());
        assert_eq!(wrong_root, Err(IdentityError::Certificate(CertificateError::Signature)));
        let half = Identity::with_keys(&issued, secret(3).signing_key(), secret(4).sealing_key(), ca.anchor().clone());
        assert_eq!(half.map(|_| ()), Err(IdentityError::OtherKey));
        let alice = made(&secret(3), ca.anchor()).expect("an identity");
        assert_eq!((&*alice.certificate().name, alice.authority()), ("alice", ca.fingerprint()));
        assert!(!format!("{alice:?}").contains(&*secret(3).export()));
        assert!(!alice.has_bootstrap_key(GROUP));
        assert!(alice.with_bootstrap_key(GROUP, ca.bootstrap_key(GROUP)).has_bootstrap_key(GROUP));
    }
}
