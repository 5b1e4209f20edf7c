//! Revocation lists (RFC 5280, section 5): which certificates their authority has taken back (A10).
//!
//! A list is verified once, when it is learned; from then on revocation is a look-up. Lists that name only
//! a part of the revoked (delta, indirect, scoped) are refused: absence from them proves nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use sealcast_wire::{Utc, limits};
use x509_parser::extensions::ParsedExtension;
use x509_parser::oid_registry::OID_X509_EXT_ISSUER_DISTRIBUTION_POINT;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use super::anchor::{TrustAnchor, judged, verify_der};
use super::pem;
use super::serial::Serial;

/// A verified revocation list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crl {
    der: Arc<[u8]>,
    number: u64,
    this_update: Utc,
    next_update: Option<Utc>,
    revoked: BTreeSet<Serial>,
}

/// Why a revocation list is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CrlError {
    /// Not a revocation list of the form that we read, or longer than [`limits::CRL_BYTES_MAX`].
    #[error("the revocation list is malformed")]
    Malformed,
    /// It names only a part of the revoked certificates.
    #[error("the revocation list is not a complete one")]
    Partial,
    /// It has no number, or one of more than 64 bits.
    #[error("the revocation list has no usable number")]
    Number,
    /// Another authority's.
    #[error("the revocation list is another authority's")]
    Issuer,
    /// The authority's key did not sign it, or may not sign revocation lists.
    #[error("the revocation list's signature is wrong")]
    Signature,
    /// A list with a higher number is known.
    #[error("the revocation list is older than the one known")]
    Older,
    /// Another list with the same number is known: the authority contradicts itself.
    #[error("the revocation list contradicts another one with the same number")]
    Conflict,
}

impl Crl {
    /// Reads and verifies a list (DER).
    ///
    /// # Errors
    /// All but `Older` and `Conflict`.
    pub fn verify(der: &[u8], anchor: &TrustAnchor) -> Result<Crl, CrlError> {
        if der.len() > limits::CRL_BYTES_MAX {
            return Err(CrlError::Malformed);
        }
        let (rest, list) = CertificateRevocationList::from_der(der).map_err(|_| CrlError::Malformed)?;
        let authority = anchor.certificate();
        if !rest.is_empty() {
            return Err(CrlError::Malformed);
        }
        if list.issuer().as_raw() != authority.subject {
            return Err(CrlError::Issuer);
        }
        if !authority.usage.crl_sign || list.signature_algorithm != list.tbs_cert_list.signature {
            return Err(CrlError::Signature);
        }
        let algorithm = &list.signature_algorithm.algorithm;
        verify_der(anchor.key(), algorithm, list.tbs_cert_list.as_ref(), &list.signature_value.data)
            .map_err(|_| CrlError::Signature)?;
        // webpki's reading knows all the ways in which a list can be partial.
        webpki::BorrowedCertRevocationList::from_der(der).map_err(partial)?;
        if list.extensions().iter().any(|e| e.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT) {
            return Err(CrlError::Partial);
        }
        let revoked: Result<BTreeSet<Serial>, _> =
            list.iter_revoked_certificates().map(|r| Serial::from_der(r.raw_serial())).collect();
        Ok(Crl {
            der: der.into(),
            number: number(&list)?,
            this_update: Utc(list.last_update().timestamp()),
            next_update: list.next_update().map(|t| Utc(t.timestamp())),
            revoked: revoked.map_err(|_| CrlError::Malformed)?,
        })
    }

    /// Whether it may take the place of `known`; `Ok(false)` if it says the same.
    ///
    /// # Errors
    /// `Older` or `Conflict`: numbers never go back (A10).
    pub fn replaces(&self, known: Option<&Crl>) -> Result<bool, CrlError> {
        match known {
            None => Ok(true),
            Some(known) if self.number > known.number => Ok(true),
            Some(known) if self.number < known.number => Err(CrlError::Older),
            Some(known) if self.revoked == known.revoked && self.this_update == known.this_update => Ok(false),
            Some(_) => Err(CrlError::Conflict),
        }
    }

    /// Whether the serial is revoked.
    pub fn revokes(&self, serial: &Serial) -> bool {
        self.revoked.contains(serial)
    }

    /// Seconds since it was issued, by the clock or else by the newest signed date (G5); never negative.
    pub fn age_seconds(&self, utc: Option<Utc>, floor: Utc) -> i64 {
        judged(utc, floor).0.saturating_sub(self.this_update.0).max(0)
    }

    /// As text (PEM).
    pub fn to_pem(&self) -> String {
        pem::write(pem::CRL, &self.der)
    }

    /// The bytes (DER) of the first list in a text (PEM).
    ///
    /// # Errors
    /// `Malformed`.
    pub fn der_from_pem(text: &str) -> Result<Vec<u8>, CrlError> {
        pem::read(pem::CRL, text).ok_or(CrlError::Malformed)
    }

    /// The bytes, DER.
    pub fn der(&self) -> &Arc<[u8]> {
        &self.der
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// When it was issued.
    pub fn this_update(&self) -> Utc {
        self.this_update
    }

    /// When the next one is due.
    pub fn next_update(&self) -> Option<Utc> {
        self.next_update
    }

    /// The revoked serials, ordered.
    pub fn revoked(&self) -> impl Iterator<Item = &Serial> {
        self.revoked.iter()
    }
}

fn number(list: &CertificateRevocationList<'_>) -> Result<u64, CrlError> {
    let mut numbers = list.extensions().iter().filter_map(|e| match e.parsed_extension() {
        ParsedExtension::CRLNumber(n) => Some(n),
        _ => None,
    });
    match (numbers.next(), numbers.next()) {
        (Some(n), None) => u64::try_from(n).map_err(|_| CrlError::Number),
        _ => Err(CrlError::Number),
    }
}

fn partial(error: webpki::Error) -> CrlError {
    match error {
        webpki::Error::UnsupportedDeltaCrl
        | webpki::Error::UnsupportedIndirectCrl
        | webpki::Error::UnsupportedCrlIssuingDistributionPoint
        | webpki::Error::UnsupportedRevocationReasonsPartitioning => CrlError::Partial,
        webpki::Error::InvalidCrlNumber => CrlError::Number,
        _ => CrlError::Malformed,
    }
}
