//! A member's or an authority's certificate: X.509 version 3 (RFC 5280), read and not yet believed.
//!
//! | field | what it says |
//! |---|---|
//! | subject's common name | a name for people; no decision depends on it |
//! | serial number | what revocation lists and evictions name (A4, A10) |
//! | subject public key | Ed25519 or P-256: signs what the member says |
//! | alternative names, URIs | rights, attributes, and `urn:sealcast:key:<64 hex digits>`: the X25519 key to seal for |
//! | basic constraints, key usage | whether it is an authority's or a member's |
//!
//! [`super::TrustAnchor::verify`] makes a [`super::Verified`] of it.

use std::sync::Arc;

use sealcast_wire::{CertHash, Utc, limits};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_SIG_ED25519};
use x509_parser::prelude::FromDer;
use x509_parser::x509::{SubjectPublicKeyInfo, X509Version};

use super::attributes::Attribute;
use super::pem;
use super::rights::{PREFIX, Right, Rights};
use super::serial::Serial;
use crate::hash::sha256;
use crate::hpke;
use crate::signature::{Algorithm, PublicKey};

/// A certificate's fields. Nothing here is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    der: Arc<[u8]>,
    hash: CertHash,
    name: Arc<str>,
    serial: Serial,
    not_before: Utc,
    not_after: Utc,
    rights: Rights,
    attributes: Vec<Attribute>,
    sealing: Option<hpke::PublicKey>,
    algorithm: Algorithm,
    point: Vec<u8>,
    /// DER of the names, as chains compare them.
    pub(super) issuer: Vec<u8>,
    pub(super) subject: Vec<u8>,
    pub(super) authority: bool,
    pub(super) usage: Usage,
}

/// What the key may be used for; all of it where the certificate does not say (RFC 5280, 4.2.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) digital_signature: bool,
    pub(super) certificate_sign: bool,
    pub(super) crl_sign: bool,
}

/// Why a certificate is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// Not a certificate of the form that we read, or longer than [`limits::CERTIFICATE_BYTES_MAX`].
    #[error("the certificate is malformed")]
    Malformed,
    /// Its key or signature is neither Ed25519 nor ECDSA P-256 with SHA-256.
    #[error("the certificate's algorithm is neither Ed25519 nor ECDSA P-256 with SHA-256")]
    Algorithm,
    /// One of its URIs of rights or attributes is broken.
    #[error("a right or attribute in the certificate is broken")]
    Rights,
    /// Another authority's name stands in it.
    #[error("the certificate was issued by another authority")]
    Issuer,
    /// The authority's key did not sign it.
    #[error("the certificate's signature is wrong")]
    Signature,
    /// Its time is over.
    #[error("the certificate has expired")]
    Expired,
    /// Its time has not come.
    #[error("the certificate is not valid yet")]
    NotYetValid,
    /// The authority's own time is over.
    #[error("the authority's certificate has expired")]
    AuthorityExpired,
    /// Its key may not sign, or it is for another purpose.
    #[error("the certificate's key usage does not allow it to sign messages")]
    KeyUsage,
    /// It is an authority's and stands where a member's should.
    #[error("an authority's certificate cannot be a member's")]
    Authority,
    /// It is not an authority's and stands where one should.
    #[error("not the certificate of an authority")]
    NotAuthority,
    /// The revocation list names it.
    #[error("the certificate is revoked")]
    Revoked,
    /// It has a critical extension that we do not know, or the authority's name constraints exclude it.
    #[error("the certificate has constraints that are not met or not known")]
    Constraint,
}

impl Certificate {
    /// Reads a certificate (DER). Cheap: no signature and no curve arithmetic.
    ///
    /// # Errors
    /// `Malformed`, `Algorithm` or `Rights`.
    pub fn parse(der: &[u8]) -> Result<Certificate, CertificateError> {
        if der.len() > limits::CERTIFICATE_BYTES_MAX {
            return Err(CertificateError::Malformed);
        }
        let (rest, x509) = X509Certificate::from_der(der).map_err(|_| CertificateError::Malformed)?;
        let broken = |e: &ParsedExtension<'_>| matches!(e, ParsedExtension::ParseError { .. });
        if !rest.is_empty()
            || x509.version() != X509Version::V3
            || x509.extensions().iter().any(|e| broken(e.parsed_extension()))
        {
            return Err(CertificateError::Malformed);
        }
        let (algorithm, point) = key(x509.public_key())?;
        let hash = CertHash(sha256(der));
        let constraints = x509.basic_constraints().map_err(|_| CertificateError::Malformed)?;
        let mut certificate = Certificate {
            der: der.into(),
            hash,
            name: name(&x509, &hash)?,
            serial: Serial::from_der(x509.raw_serial()).map_err(|_| CertificateError::Malformed)?,
            not_before: Utc(x509.validity().not_before.timestamp()),
            not_after: Utc(x509.validity().not_after.timestamp()),
            rights: Rights::none(),
            attributes: Vec::new(),
            sealing: None,
            algorithm,
            point,
            issuer: x509.issuer().as_raw().to_vec(),
            subject: x509.subject().as_raw().to_vec(),
            authority: constraints.is_some_and(|c| c.value.ca),
            usage: usage(&x509)?,
        };
        certificate.read_names(&x509)?;
        Ok(certificate)
    }

    /// Reads the first certificate in a text (PEM).
    ///
    /// # Errors
    /// As [`Certificate::parse`].
    pub fn from_pem(text: &str) -> Result<Certificate, CertificateError> {
        let der = pem::read(pem::CERTIFICATE, text).ok_or(CertificateError::Malformed)?;
        Certificate::parse(&der)
    }

    /// As text (PEM).
    pub fn to_pem(&self) -> String {
        pem::write(pem::CERTIFICATE, &self.der)
    }

    /// The bytes, DER.
    pub fn der(&self) -> &Arc<[u8]> {
        &self.der
    }

    /// SHA-256 of the bytes.
    pub fn hash(&self) -> CertHash {
        self.hash
    }

    /// The subject's common name; where there is none, the beginning of the hash.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its serial number.
    pub fn serial(&self) -> Serial {
        self.serial
    }

    /// The first second of its time.
    pub fn not_before(&self) -> Utc {
        self.not_before
    }

    /// The last second of its time.
    pub fn not_after(&self) -> Utc {
        self.not_after
    }

    /// What it lets its holder do.
    pub fn rights(&self) -> &Rights {
        &self.rights
    }

    /// What it says of its holder.
    pub fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }

    /// The key to seal for its holder; LCMsec's certificates have none.
    pub fn sealing(&self) -> Option<hpke::PublicKey> {
        self.sealing
    }

    /// Whether it is an authority's.
    pub fn is_authority(&self) -> bool {
        self.authority
    }

    /// Its public key, checked to be a point of its curve.
    ///
    /// # Errors
    /// `Malformed` if it is none.
    pub fn key(&self) -> Result<PublicKey, CertificateError> {
        PublicKey::new(self.algorithm, &self.point).map_err(|_| CertificateError::Malformed)
    }

    /// Rights, attributes and sealing key from the alternative names.
    fn read_names(&mut self, x509: &X509Certificate<'_>) -> Result<(), CertificateError> {
        let names = x509.subject_alternative_name().map_err(|_| CertificateError::Malformed)?;
        for name in names.iter().flat_map(|n| &n.value.general_names) {
            match name {
                GeneralName::URI(uri) => self.read_uri(uri)?,
                GeneralName::Invalid(..) => return Err(CertificateError::Malformed),
                _ => {}
            }
        }
        Ok(())
    }

    fn read_uri(&mut self, uri: &str) -> Result<(), CertificateError> {
        if let Some(attribute) = Attribute::from_uri(uri).map_err(|_| CertificateError::Rights)? {
            self.attributes.push(attribute);
        } else if let Some(digits) = uri.strip_prefix(PREFIX).and_then(|t| t.strip_prefix("key:")) {
            let key = unhex(digits).ok_or(CertificateError::Rights)?;
            if self.sealing.replace(hpke::PublicKey(key)).is_some() {
                return Err(CertificateError::Rights);
            }
        } else if let Some(right) = Right::from_uri(uri).map_err(|_| CertificateError::Rights)? {
            self.rights.grant(right);
        }
        Ok(())
    }
}

/// The URI in which a certificate names its holder's sealing key.
pub(super) fn sealing_uri(key: &hpke::PublicKey) -> String {
    let digits: String = key.0.iter().map(|b| format!("{b:02x}")).collect();
    format!("{PREFIX}key:{digits}")
}

/// Whether a text can be a certificate's common name: 1 to [`limits::NAME_BYTES_MAX`] bytes, no control
/// characters, so that printing it on a terminal is harmless.
pub fn is_name(name: &str) -> bool {
    (1..=limits::NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
}

fn name(x509: &X509Certificate<'_>, hash: &CertHash) -> Result<Arc<str>, CertificateError> {
    let mut names = x509.subject().iter_common_name();
    match (names.next(), names.next()) {
        (None, _) => Ok(format!("{hash:?}").into()),
        (Some(name), None) => match name.as_str() {
            Ok(name) if is_name(name) => Ok(name.into()),
            _ => Err(CertificateError::Malformed),
        },
        (Some(_), Some(_)) => Err(CertificateError::Malformed),
    }
}

fn usage(x509: &X509Certificate<'_>) -> Result<Usage, CertificateError> {
    let usage = x509.key_usage().map_err(|_| CertificateError::Malformed)?.map(|u| u.value);
    let allowed = |asked: fn(&x509_parser::extensions::KeyUsage) -> bool| usage.is_none_or(asked);
    Ok(Usage {
        digital_signature: allowed(|u| u.digital_signature()),
        certificate_sign: allowed(|u| u.key_cert_sign()),
        crl_sign: allowed(|u| u.crl_sign()),
    })
}

fn key(info: &SubjectPublicKeyInfo<'_>) -> Result<(Algorithm, Vec<u8>), CertificateError> {
    let curve = info.algorithm.parameters.as_ref().and_then(|p| p.as_oid().ok());
    let algorithm = if info.algorithm.algorithm == OID_SIG_ED25519 {
        Algorithm::Ed25519
    } else if info.algorithm.algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY && curve == Some(OID_EC_P256) {
        Algorithm::P256
    } else {
        return Err(CertificateError::Algorithm);
    };
    Ok((algorithm, info.subject_public_key.data.to_vec()))
}

/// 32 bytes from 64 lower-case digits: one text for one value.
pub(super) fn unhex(digits: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    if digits.len() != 64 || !digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(out)
}
