//! Whom a group trusts: one authority's certificate, and its newest revocation list.
//!
//! LCMsec checks a certificate's signature and nothing else: expired ones agree on keys, an invalid one
//! becomes uid 0 (research: LCMsec 1.2). Here each of these must hold, and each has its test:
//!
//! 1. the authority's certificate is an authority's, may sign certificates, and its time is not over;
//! 2. the member's is not an authority's, and its key usage, if it says any, has `digitalSignature`;
//! 3. it names this authority as its issuer and carries its signature; nobody stands in between: what a
//!    member signs, or another authority under this one, is not accepted;
//! 4. its time has come and is not over, by the clock or, without one, by the newest signed date (G5);
//! 5. the revocation list does not name it (A10).
//!
//! A signature is checked once per certificate: callers keep the [`Verified`] by its hash, and ask
//! [`TrustAnchor::check`] again when time or the revocation list has moved on.

use std::sync::Arc;
use std::time::Duration;

use pki_types::{CertificateDer, SignatureVerificationAlgorithm, UnixTime};
use sealcast_wire::{CertHash, Utc};
use x509_parser::asn1_rs::Oid;
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::{OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ED25519};
use x509_parser::prelude::FromDer;

use super::attributes::Attribute;
use super::certificate::{Certificate, CertificateError, is_name};
use super::crl::{Crl, CrlError};
use super::keytext::Fingerprint;
use super::rights::Rights;
use super::serial::Serial;
use crate::hash::Transcript;
use crate::hpke;
use crate::signature::{Algorithm, PublicKey};

/// An authority that is trusted, and what it has revoked. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TrustAnchor {
    authority: Arc<Trusted>,
    crl: Option<Arc<Crl>>,
}

#[derive(Debug)]
struct Trusted {
    certificate: Certificate,
    key: PublicKey,
    path_end: pki_types::TrustAnchor<'static>,
}

/// A certificate that was verified against an authority. Only [`TrustAnchor`] makes one, beside [`Verified::claimed`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// SHA-256 of the certificate.
    pub hash: CertHash,
    /// The holder's name, for people.
    pub name: Arc<str>,
    /// Unique within the authority.
    pub serial: Serial,
    /// The first second of its time; a date that the authority signed (G5).
    pub not_before: Utc,
    /// The last second of its time.
    pub not_after: Utc,
    /// What the holder may do.
    pub rights: Rights,
    /// What the authority says of the holder.
    pub attributes: Vec<Attribute>,
    /// Verifies what the holder signs.
    pub key: PublicKey,
    /// Seals for the holder.
    pub sealing: Option<hpke::PublicKey>,
    /// The certificate itself, DER.
    pub der: Arc<[u8]>,
}

impl Verified {
    /// The hash of a name and a key that somebody claims.
    pub fn claim(name: &str, point: &[u8]) -> CertHash {
        CertHash(Transcript::new("sealcast/v1/basic").add(name.as_bytes()).add(point).finish())
    }

    /// The holder of this key, under the name that it claims, in a group where nobody proves a name: with a `basic` credential
    /// (RFC 9420, section 5.3). Its time does not end, and its hash names what it claims.
    ///
    /// # Errors
    /// The name cannot be a certificate's.
    pub fn claimed(name: &str, key: PublicKey, rights: Rights) -> Result<Verified, CertificateError> {
        if !is_name(name) {
            return Err(CertificateError::Malformed);
        }
        let CertHash(claim) = Verified::claim(name, key.point());
        Ok(Verified {
            hash: CertHash(claim),
            name: name.into(),
            serial: Serial::new(&claim[..16]).map_err(|_| CertificateError::Malformed)?,
            not_before: Utc(i64::MIN),
            not_after: NEVER,
            rights,
            attributes: Vec::new(),
            key,
            sealing: None,
            der: Arc::default(),
        })
    }
}

impl TrustAnchor {
    /// Trusts the authority with this certificate (DER), whose authenticity is the caller's business. It
    /// may itself be signed by another authority, which then means nothing here.
    ///
    /// # Errors
    /// It is malformed, not an authority's, or, if it says that it signed itself, did not.
    pub fn new(der: &[u8]) -> Result<TrustAnchor, CertificateError> {
        let certificate = Certificate::parse(der)?;
        if !certificate.authority {
            return Err(CertificateError::NotAuthority);
        }
        if !certificate.usage.certificate_sign {
            return Err(CertificateError::KeyUsage);
        }
        let key = certificate.key()?;
        if certificate.issuer == certificate.subject {
            verify_own(&key, der)?;
        }
        let der = CertificateDer::from(der);
        let path_end = webpki::anchor_from_trusted_cert(&der).map_err(|_| CertificateError::Malformed)?.to_owned();
        Ok(TrustAnchor { authority: Arc::new(Trusted { certificate, key, path_end }), crl: None })
    }

    /// The same for an authority of which people compare the fingerprint: it must have signed itself, whatever issuer it
    /// names. Otherwise a try at a fingerprint that looks alike costs one hash and no signature.
    ///
    /// # Errors
    /// As [`TrustAnchor::new`], and if the certificate is not signed by its own key.
    pub fn self_signed(der: &[u8]) -> Result<TrustAnchor, CertificateError> {
        let anchor = TrustAnchor::new(der)?;
        verify_own(anchor.key(), der)?;
        Ok(anchor)
    }

    /// Learns a revocation list (DER); whether it is a newer one.
    ///
    /// # Errors
    /// It does not verify, or goes back behind the known one; then nothing changes.
    pub fn learn_crl(&mut self, der: &[u8]) -> Result<bool, CrlError> {
        let crl = Crl::verify(der, self)?;
        let newer = crl.replaces(self.crl())?;
        if newer {
            self.crl = Some(Arc::new(crl));
        }
        Ok(newer)
    }

    /// The newest revocation list.
    pub fn crl(&self) -> Option<&Crl> {
        self.crl.as_deref()
    }

    /// The authority's certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.authority.certificate
    }

    /// The authority's fingerprint, `scca1…`.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint(self.certificate().hash().0)
    }

    /// The authority's key.
    pub fn key(&self) -> &PublicKey {
        &self.authority.key
    }

    /// Verifies a member's certificate, with the time from a clock, or `None`, and a time that has surely
    /// come: the later of the build's date and the newest signed date seen (G5).
    ///
    /// # Errors
    /// The first condition of the module's head that does not hold. The signature is checked last, so
    /// that what is refused is refused cheaply.
    pub fn verify(
        &self,
        certificate: &Certificate,
        utc: Option<Utc>,
        floor: Utc,
    ) -> Result<Arc<Verified>, CertificateError> {
        self.check_role(certificate)?;
        self.check_dates(certificate.not_before(), certificate.not_after(), utc, floor)?;
        self.check_revocation(&certificate.serial())?;
        self.verify_signed(certificate)
    }

    /// Whether a certificate that was verified is still good: time and revocation again, no signature.
    ///
    /// # Errors
    /// `Expired`, `NotYetValid`, `AuthorityExpired` or `Revoked`.
    pub fn check(&self, verified: &Verified, utc: Option<Utc>, floor: Utc) -> Result<(), CertificateError> {
        self.check_dates(verified.not_before, verified.not_after, utc, floor)?;
        self.check_revocation(&verified.serial)
    }

    /// The newest date that the authority signed, as far as its own certificate and list tell (G5).
    pub fn newest_date(&self) -> Utc {
        let list = self.crl().map_or(Utc(i64::MIN), Crl::this_update);
        self.certificate().not_before().max(list)
    }

    /// Everything but time and revocation: what is true of a certificate for ever. Statements that bind
    /// for ever are judged by it, so that every member judges them alike, whenever it sees them (A4).
    ///
    /// # Errors
    /// It is not this authority's, or malformed.
    pub fn verify_issued(&self, certificate: &Certificate) -> Result<Arc<Verified>, CertificateError> {
        self.check_role(certificate)?;
        self.verify_signed(certificate)
    }

    /// What [`TrustAnchor::verify_issued`] said of a certificate before, as the caller knows by a record that it sealed itself:
    /// the signature is not verified again.
    ///
    /// # Errors
    /// It is not this authority's, or malformed.
    pub fn recall(&self, certificate: &Certificate) -> Result<Arc<Verified>, CertificateError> {
        self.check_role(certificate)?;
        verified(certificate)
    }

    /// Conditions 2 and, by name, 3.
    fn check_role(&self, certificate: &Certificate) -> Result<(), CertificateError> {
        if certificate.authority {
            Err(CertificateError::Authority)
        } else if !certificate.usage.digital_signature {
            Err(CertificateError::KeyUsage)
        } else if certificate.issuer != self.certificate().subject {
            Err(CertificateError::Issuer)
        } else {
            Ok(())
        }
    }

    /// Condition 4, for the member's certificate and the authority's.
    fn check_dates(
        &self,
        not_before: Utc,
        not_after: Utc,
        utc: Option<Utc>,
        floor: Utc,
    ) -> Result<(), CertificateError> {
        // Without a clock nothing is too early: the true time is the floor or later.
        let margin = if utc.is_some() { CLOCK_UNCERTAINTY_SECONDS } else { 0 };
        let now = judged(utc, floor).0;
        if now.saturating_sub(margin) > self.certificate().not_after().0 {
            Err(CertificateError::AuthorityExpired)
        } else if now.saturating_sub(margin) > not_after.0 {
            Err(CertificateError::Expired)
        } else if utc.is_some() && now.saturating_add(margin) < not_before.0 {
            Err(CertificateError::NotYetValid)
        } else {
            Ok(())
        }
    }

    /// Condition 5.
    fn check_revocation(&self, serial: &Serial) -> Result<(), CertificateError> {
        if self.crl().is_some_and(|c| c.revokes(serial)) { Err(CertificateError::Revoked) } else { Ok(()) }
    }

    /// Condition 3: the path, by webpki. No intermediates are handed in, and dates were judged before, with
    /// their uncertainty, so webpki gets a time that suits.
    fn verify_signed(&self, certificate: &Certificate) -> Result<Arc<Verified>, CertificateError> {
        let der = CertificateDer::from(&certificate.der()[..]);
        let leaf = webpki::EndEntityCert::try_from(&der).map_err(from_webpki)?;
        let time = u64::try_from(certificate.not_before().0).map_err(|_| CertificateError::Malformed)?;
        let time = UnixTime::since_unix_epoch(Duration::from_secs(time));
        let ends = std::slice::from_ref(&self.authority.path_end);
        let purpose = webpki::KeyUsage::client_auth();
        leaf.verify_for_usage(ALGORITHMS, ends, &[], time, purpose, None, None).map_err(from_webpki)?;
        verified(certificate)
    }
}

/// A certificate whose signature is good.
fn verified(certificate: &Certificate) -> Result<Arc<Verified>, CertificateError> {
    Ok(Arc::new(Verified {
        hash: certificate.hash(),
        name: certificate.name().clone(),
        serial: certificate.serial(),
        not_before: certificate.not_before(),
        not_after: certificate.not_after(),
        rights: certificate.rights().clone(),
        attributes: certificate.attributes().to_vec(),
        key: certificate.key()?,
        sealing: certificate.sealing(),
        der: certificate.der().clone(),
    }))
}

/// The time by which dates are judged: the clock's, but never before a time that has surely come (G5).
pub fn judged(utc: Option<Utc>, floor: Utc) -> Utc {
    utc.map_or(floor, |utc| utc.max(floor))
}

/// Verifies an authority's certificate under its own key.
fn verify_own(key: &PublicKey, der: &[u8]) -> Result<(), CertificateError> {
    let (_, x509) = X509Certificate::from_der(der).map_err(|_| CertificateError::Malformed)?;
    let algorithm = &x509.signature_algorithm.algorithm;
    verify_der(key, algorithm, x509.tbs_certificate.as_ref(), &x509.signature_value.data)
}

/// Verifies a signature as X.509 has it (ECDSA's in DER) by the algorithm that its identifier names.
pub(super) fn verify_der(
    key: &PublicKey,
    named: &Oid<'_>,
    message: &[u8],
    signature: &[u8],
) -> Result<(), CertificateError> {
    let (expected, algorithm) = match key.algorithm() {
        Algorithm::Ed25519 => (OID_SIG_ED25519, webpki::aws_lc_rs::ED25519),
        Algorithm::P256 => (OID_SIG_ECDSA_WITH_SHA256, webpki::aws_lc_rs::ECDSA_P256_SHA256),
    };
    if *named != expected {
        return Err(CertificateError::Algorithm);
    }
    algorithm.verify_signature(key.point(), message, signature).map_err(|_| CertificateError::Signature)
}

fn from_webpki(error: webpki::Error) -> CertificateError {
    use webpki::Error;
    match error {
        Error::InvalidSignatureForPublicKey => CertificateError::Signature,
        Error::UnknownIssuer => CertificateError::Issuer,
        Error::CaUsedAsEndEntity => CertificateError::Authority,
        Error::EndEntityUsedAsCa | Error::PathLenConstraintViolated => CertificateError::NotAuthority,
        Error::RequiredEkuNotFoundContext(_) | Error::EmptyEkuExtension => CertificateError::KeyUsage,
        Error::UnsupportedCriticalExtension | Error::NameConstraintViolation => CertificateError::Constraint,
        Error::UnsupportedSignatureAlgorithmContext(_) | Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => {
            CertificateError::Algorithm
        }
        _ => CertificateError::Malformed,
    }
}

/// What authorities may sign with.
/// RFC 5280, section 4.1.2.5: the last second of the year 9999.
const NEVER: Utc = Utc(253_402_300_799);

const ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] =
    &[webpki::aws_lc_rs::ECDSA_P256_SHA256, webpki::aws_lc_rs::ED25519];

/// How wrong a clock may be (G5): a certificate just issued is accepted by a clock that is a little late.
pub const CLOCK_UNCERTAINTY_SECONDS: i64 = 300;

#[cfg(test)]
mod tests;
