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
        let number = number(&list)?;
        // webpki knows all the ways in which a list can be partial; its owned form reads every entry, too.
        webpki::OwnedCertRevocationList::from_der(der).map_err(partial)?;
        if list.extensions().iter().any(|e| e.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT) {
            return Err(CrlError::Partial);
        }
        let revoked: Result<BTreeSet<Serial>, _> =
            list.iter_revoked_certificates().map(|r| Serial::from_der(r.raw_serial())).collect();
        Ok(Crl {
            der: der.into(),
            number,
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{
        CertificateRevocationListParams, CrlDistributionPoint, CrlIssuingDistributionPoint, CrlScope, KeyIdMethod,
    };

    use super::*;
    use crate::identity::authority::Authority;
    use crate::identity::fixture::*;
    use crate::identity::keytext::MemberSecret;
    use crate::signature::Algorithm;

    /// A list as `change` wants it, signed by the authority.
    fn list(ca: &Authority, change: impl FnOnce(&mut CertificateRevocationListParams)) -> Vec<u8> {
        let mut params = CertificateRevocationListParams {
            this_update: date(NOW),
            next_update: date(later(30)),
            crl_number: vec![5].into(),
            issuing_distribution_point: None,
            revoked_certs: vec![],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        change(&mut params);
        params.signed_by(&ca.issuer()).expect("signed").der().to_vec()
    }

    #[test]
    fn an_authority_lists_what_it_revoked() {
        for algorithm in [Algorithm::P256, Algorithm::Ed25519] {
            let mut ca = authority_with(algorithm, 1);
            let serials: Vec<Serial> =
                (2..6).map(|seed| member(&mut ca, everything(), seed).certificate().serial).collect();
            ca.revoke(serials[1], NOW).expect("issued");
            ca.revoke(serials[3], NOW).expect("issued");
            let der = ca.crl(later(1), 30 * DAY).expect("signed");
            let crl = Crl::verify(&der, ca.anchor()).expect("verified");
            assert_eq!(crl.revoked().copied().collect::<Vec<_>>(), [serials[1], serials[3]]);
            assert_eq!((crl.number(), crl.this_update(), crl.next_update()), (1, later(1), Some(later(31))));
            assert_eq!(Crl::der_from_pem(&crl.to_pem()), Ok(der));
        }
    }

    #[test]
    fn a_list_that_the_authority_did_not_sign_is_refused() {
        let (ca, namesake) = (authority(1), authority(2));
        let other = Authority::create("other CA", Algorithm::P256, NOW, &mut rng(3)).expect("valid");
        assert_eq!(Crl::verify(&list(&namesake, |_| {}), ca.anchor()), Err(CrlError::Signature));
        assert_eq!(Crl::verify(&list(&other, |_| {}), ca.anchor()), Err(CrlError::Issuer));
        let good = list(&ca, |_| {});
        for i in 0..good.len() {
            let mut changed = good.clone();
            changed[i] ^= 1;
            assert!(Crl::verify(&changed, ca.anchor()).is_err(), "byte {i} changed");
        }
    }

    #[test]
    fn an_authority_whose_key_may_not_sign_lists_has_none() {
        let ca = authority(1);
        let key = MemberSecret::generate(Algorithm::P256, &mut rng(2));
        let silent = certificate(&ca, &key, |p| {
            p.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            p.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
        });
        let anchor = TrustAnchor::new(silent.der()).expect("an authority");
        let signer = key.signing_key();
        let mut params = params(&key);
        params.key_usages.clear();
        let issuer = rcgen::Issuer::from_params(&params, crate::identity::authority::Signer(&signer));
        let mut crl = None;
        list(&ca, |p| crl = Some(p.signed_by(&issuer).expect("signed")));
        let crl = crl.expect("made above");
        assert_eq!(Crl::verify(crl.der(), &anchor), Err(CrlError::Signature));
    }

    #[test]
    fn rule_a10_a_revocation_list_never_goes_back() {
        let ca = authority(1);
        let mut anchor = ca.anchor().clone();
        let numbered = |n: u8, days: i64| {
            list(&ca, |p| {
                p.crl_number = vec![n].into();
                p.this_update = date(later(days));
            })
        };
        assert_eq!(anchor.learn_crl(&numbered(5, 0)), Ok(true));
        assert_eq!(anchor.learn_crl(&numbered(5, 0)), Ok(false), "the same again, signed anew");
        assert_eq!(anchor.learn_crl(&numbered(4, 9)), Err(CrlError::Older));
        assert_eq!(anchor.learn_crl(&numbered(5, 9)), Err(CrlError::Conflict));
        assert_eq!(anchor.crl().map(Crl::number), Some(5), "what was refused changed nothing");
        assert_eq!(anchor.learn_crl(&numbered(6, 0)), Ok(true));
    }

    #[test]
    fn a_list_that_is_not_complete_or_not_numbered_is_refused() {
        let ca = authority(1);
        let partial = list(&ca, |p| {
            let distribution_point = CrlDistributionPoint { uris: vec!["http://example.org/crl".to_owned()] };
            let scope = Some(CrlScope::CaCertsOnly);
            p.issuing_distribution_point = Some(CrlIssuingDistributionPoint { distribution_point, scope });
        });
        assert_eq!(Crl::verify(&partial, ca.anchor()), Err(CrlError::Partial));
        let huge = list(&ca, |p| p.crl_number = vec![1; 9].into());
        assert_eq!(Crl::verify(&huge, ca.anchor()), Err(CrlError::Number));
    }

    #[test]
    fn rule_g5_a_lists_age_is_judged_by_the_floor_where_there_is_no_clock() {
        let ca = authority(1);
        let crl = Crl::verify(&list(&ca, |_| {}), ca.anchor()).expect("verified");
        assert_eq!(crl.age_seconds(Some(later(2)), NOW), 2 * DAY);
        assert_eq!(crl.age_seconds(None, later(1)), DAY);
        assert_eq!(crl.age_seconds(Some(Utc(0)), later(1)), DAY);
        assert_eq!(crl.age_seconds(None, Utc(0)), 0);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let ca = authority(1);
            prop_assert!(Crl::verify(&bytes, ca.anchor()).is_err());
        }
    }
}
