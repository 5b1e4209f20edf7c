//! The authority (CA) of one or more groups: issues certificates, takes them back, and signs policies,
//! evictions and invitations.
//!
//! It is a value that somebody's program holds for a moment, not a service. Whatever it returns may leave
//! the machine only after its [`Ledger`] is durable.

use rand_core::CryptoRng;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyUsagePurpose, PublicKeyData, RevokedCertParams, SanType, SerialNumber,
    SignatureAlgorithm,
};
use sealcast_wire::{CertHash, Utc, limits};
use time::OffsetDateTime;

use super::anchor::TrustAnchor;
use super::attributes::Attribute;
use super::certificate::{Certificate, CertificateError, is_name, sealing_uri};
use super::keytext::{AuthoritySecret, Fingerprint, PublicKeys};
use super::ledger::{Issued, Ledger};
use super::rights::{RightError, Rights, check_group};
use super::serial::Serial;
use super::statement::{Eviction, Policy, StatementError};
use crate::secret::Secret;
use crate::signature::{Algorithm, PublicKey, Signature, SigningKey};

/// An authority with its secret.
#[derive(Debug)]
pub struct Authority {
    certificate: Certificate,
    anchor: TrustAnchor,
    secret: AuthoritySecret,
    key: SigningKey,
    ledger: Ledger,
}

/// What a certificate is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The holder's name, for people: see [`is_name`].
    pub name: String,
    /// The holder's keys; it made them itself.
    pub keys: PublicKeys,
    /// What it may do.
    pub rights: Rights,
    /// What the authority says of it.
    pub attributes: Vec<Attribute>,
}

/// Why an authority refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// A certificate's name.
    #[error("a name has 1 to 64 bytes and no control character")]
    Name,
    /// A group's name.
    #[error(transparent)]
    Group(#[from] RightError),
    /// A date that a certificate cannot hold, or an end before its beginning.
    #[error("the dates are not possible, or the authority's own time is over before")]
    Date,
    /// The certificate would be longer than [`limits::CERTIFICATE_BYTES_MAX`].
    #[error("so many rights and attributes do not fit into one certificate")]
    TooLong,
    /// No such certificate was issued.
    #[error("no certificate with this serial number was issued")]
    NoSuchSerial,
    /// Key, certificate and ledger do not belong together.
    #[error("the authority's key does not belong to its certificate")]
    Mismatch,
    /// The authority's own certificate is not usable.
    #[error("the authority's certificate: {0}")]
    Certificate(#[from] CertificateError),
    /// A statement that cannot be made.
    #[error(transparent)]
    Statement(#[from] StatementError),
    /// All numbers are used up.
    #[error("the authority's numbers are used up")]
    Exhausted,
}

impl Authority {
    /// A new authority, valid for ten years.
    ///
    /// # Errors
    /// `Name` or `Date`.
    pub fn create(
        name: &str,
        algorithm: Algorithm,
        now: Utc,
        rng: &mut impl CryptoRng,
    ) -> Result<Authority, AuthorityError> {
        let secret = AuthoritySecret::generate(algorithm, rng);
        let key = secret.signing_key();
        let end = now.0.checked_add(AUTHORITY_VALIDITY_SECONDS).ok_or(AuthorityError::Date)?;
        let mut params = params(name, now, Utc(end))?;
        let mut serial = [0; 16];
        rng.fill_bytes(&mut serial);
        serial[0] = serial[0] & 0x7F | 0x40;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        // Nobody stands between the authority and its members.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let der = params.self_signed(&Signer(&key)).map_err(|_| AuthorityError::Date)?.der().to_vec();
        Authority::restore(&der, secret, Ledger::new())
    }

    /// An authority from what was kept of it: its certificate (DER), its secret and its ledger.
    ///
    /// # Errors
    /// `Certificate` or `Mismatch`.
    pub fn restore(certificate: &[u8], secret: AuthoritySecret, ledger: Ledger) -> Result<Authority, AuthorityError> {
        let anchor = TrustAnchor::new(certificate)?;
        let key = secret.signing_key();
        if key.public() != anchor.key() {
            return Err(AuthorityError::Mismatch);
        }
        Ok(Authority { certificate: anchor.certificate().clone(), anchor, secret, key, ledger })
    }

    /// Issues a certificate for keys that somebody else made. Its holder must show that it has them, or
    /// the certificate must reach nobody but whoever they seal for (an invitation does).
    ///
    /// # Errors
    /// `Name`, `Date`, `TooLong` or `Exhausted`.
    pub fn issue(&mut self, request: &Request, now: Utc, validity_seconds: i64) -> Result<Certificate, AuthorityError> {
        let end = now.0.checked_add(validity_seconds).ok_or(AuthorityError::Date)?;
        let end = end.min(self.certificate.not_after().0);
        let serial = Serial::try_from(self.ledger.next_serial).map_err(|_| AuthorityError::Exhausted)?;
        let next = self.ledger.next_serial.checked_add(1).ok_or(AuthorityError::Exhausted)?;
        let mut params = params(&request.name, now, Utc(end))?;
        params.serial_number = Some(SerialNumber::from_slice(serial.as_bytes()));
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let uris = [sealing_uri(&request.keys.sealing)];
        let uris = uris.into_iter().chain(request.rights.iter().map(|r| r.to_string()));
        for uri in uris.chain(request.attributes.iter().map(|a| a.to_string())) {
            params.subject_alt_names.push(SanType::URI(uri.try_into().expect("our URIs are percent-encoded ASCII")));
        }
        let issued = params.signed_by(&Subject(&request.keys.signing), &self.issuer());
        let der = issued.map_err(|_| AuthorityError::Date)?.der().to_vec();
        if der.len() > limits::CERTIFICATE_BYTES_MAX {
            return Err(AuthorityError::TooLong);
        }
        let certificate = Certificate::parse(&der).expect("what we issue, we read");
        self.ledger.next_serial = next;
        let entry = Issued { hash: certificate.hash(), not_after: certificate.not_after(), name: request.name.clone() };
        self.ledger.issued.insert(serial, entry);
        Ok(certificate)
    }

    /// Takes a certificate back; whether it had not been. Members learn it by the next [`Authority::crl`].
    ///
    /// # Errors
    /// `NoSuchSerial`.
    pub fn revoke(&mut self, serial: Serial, now: Utc) -> Result<bool, AuthorityError> {
        if !self.ledger.issued.contains_key(&serial) {
            return Err(AuthorityError::NoSuchSerial);
        }
        let known = self.ledger.revoked.contains_key(&serial);
        self.ledger.revoked.entry(serial).or_insert(now);
        Ok(!known)
    }

    /// Signs the next revocation list (DER).
    ///
    /// # Errors
    /// `Date` or `Exhausted`.
    pub fn crl(&mut self, now: Utc, validity_seconds: i64) -> Result<Vec<u8>, AuthorityError> {
        let number = self.ledger.crl_number.checked_add(1).ok_or(AuthorityError::Exhausted)?;
        let next = now.0.checked_add(validity_seconds).filter(|n| *n > now.0).ok_or(AuthorityError::Date)?;
        let revoked: Result<Vec<_>, AuthorityError> = self
            .ledger
            .revoked
            .iter()
            .map(|(serial, when)| {
                Ok(RevokedCertParams {
                    serial_number: SerialNumber::from_slice(serial.as_bytes()),
                    revocation_time: date(*when)?,
                    reason_code: None,
                    invalidity_date: None,
                })
            })
            .collect();
        let params = CertificateRevocationListParams {
            this_update: date(now)?,
            next_update: date(Utc(next))?,
            crl_number: SerialNumber::from_slice(&minimal(number)),
            issuing_distribution_point: None,
            revoked_certs: revoked?,
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        let der = params.signed_by(&self.issuer()).map_err(|_| AuthorityError::Date)?.der().to_vec();
        self.ledger.crl_number = number;
        Ok(der)
    }

    /// Signs the eviction of a certificate's holder from a group (A4). With `voids` the evictions that the
    /// evicted one signed count no more; sign those that shall stay first: see [`super::evictions`].
    ///
    /// # Errors
    /// `Group`, `Statement` (the reason's length) or `Exhausted`.
    pub fn evict(
        &mut self,
        group: &str,
        serial: Serial,
        certificate: CertHash,
        reason: &str,
        voids: bool,
    ) -> Result<Vec<u8>, AuthorityError> {
        check_group(group)?;
        let number = self.ledger.eviction_number.checked_add(1).ok_or(AuthorityError::Exhausted)?;
        let eviction =
            Eviction { group: group.to_owned(), serial, certificate, number, voids, reason: reason.to_owned() };
        let bytes = eviction.sign_as_authority(self)?;
        self.ledger.eviction_number = number;
        Ok(bytes)
    }

    /// Signs a group's policy under the next number, whatever number the draft has (A8, A10).
    ///
    /// # Errors
    /// `Statement` if the policy contradicts itself or is too long, or `Exhausted`.
    pub fn policy(&mut self, draft: &Policy) -> Result<Vec<u8>, AuthorityError> {
        let number = self.ledger.policy_number.checked_add(1).ok_or(AuthorityError::Exhausted)?;
        let bytes = Policy { number, ..draft.clone() }.sign(self)?;
        self.ledger.policy_number = number;
        Ok(bytes)
    }

    /// The authority as others trust it, without a revocation list.
    pub fn anchor(&self) -> &TrustAnchor {
        &self.anchor
    }

    /// Its certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Its fingerprint, `scca1…`.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint(self.certificate.hash().0)
    }

    /// What it remembers; to be saved after each call that changes it.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Its secret, to be saved once.
    pub fn secret(&self) -> &AuthoritySecret {
        &self.secret
    }

    /// A group's bootstrap key.
    pub fn bootstrap_key(&self, group: &str) -> Secret<32> {
        self.secret.bootstrap_key(group)
    }

    /// Signs what a statement or an invitation made of its contents.
    pub(super) fn sign(&self, message: &[u8]) -> Signature {
        self.key.sign(message)
    }

    /// The authority as rcgen's issuer.
    pub(super) fn issuer(&self) -> Issuer<'static, Signer<'_>> {
        let der = pki_types::CertificateDer::from(&self.certificate.der()[..]);
        Issuer::from_ca_cert_der(&der, Signer(&self.key)).expect("the certificate was read before")
    }
}

fn params(name: &str, from: Utc, to: Utc) -> Result<CertificateParams, AuthorityError> {
    if !is_name(name) {
        return Err(AuthorityError::Name);
    }
    if to <= from || from.0 < 0 {
        return Err(AuthorityError::Date);
    }
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date(from)?;
    params.not_after = date(to)?;
    Ok(params)
}

fn date(utc: Utc) -> Result<OffsetDateTime, AuthorityError> {
    OffsetDateTime::from_unix_timestamp(utc.0).map_err(|_| AuthorityError::Date)
}

fn minimal(number: u64) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    bytes[bytes.iter().take_while(|b| **b == 0).count().min(7)..].to_vec()
}

/// Our signing key, as rcgen asks for one.
pub(super) struct Signer<'a>(pub(super) &'a SigningKey);

/// Our public key, as rcgen asks for one.
pub(super) struct Subject<'a>(pub(super) &'a PublicKey);

impl PublicKeyData for Signer<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0.public().point()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        Subject(self.0.public()).algorithm()
    }
}

impl PublicKeyData for Subject<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0.point()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        match self.0.algorithm() {
            Algorithm::Ed25519 => &rcgen::PKCS_ED25519,
            Algorithm::P256 => &rcgen::PKCS_ECDSA_P256_SHA256,
        }
    }
}

impl rcgen::SigningKey for Signer<'_> {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signature = self.0.sign(message);
        Ok(match self.0.public().algorithm() {
            Algorithm::Ed25519 => signature.to_vec(),
            Algorithm::P256 => ecdsa_der(&signature),
        })
    }
}

/// `SEQUENCE { INTEGER r, INTEGER s }` (RFC 3279, 2.2.3) of r ‖ s.
fn ecdsa_der(signature: &Signature) -> Vec<u8> {
    let mut body = Vec::with_capacity(70);
    for half in signature.chunks(32) {
        let digits = &half[half.iter().take_while(|b| **b == 0).count().min(31)..];
        let sign = usize::from(digits[0] & 0x80 != 0);
        body.extend_from_slice(&[0x02, (digits.len() + sign) as u8]);
        body.extend(std::iter::repeat_n(0, sign).chain(digits.iter().copied()));
    }
    let mut der = vec![0x30, body.len() as u8];
    der.append(&mut body);
    der
}

/// Ten years of 365.25 days.
pub const AUTHORITY_VALIDITY_SECONDS: i64 = 3652 * DAY_SECONDS + DAY_SECONDS / 2;
/// 90 days: a member's certificate, where nothing else is asked.
pub const MEMBER_VALIDITY_SECONDS: i64 = 90 * DAY_SECONDS;
/// 30 days: a revocation list, where nothing else is asked.
pub const CRL_VALIDITY_SECONDS: i64 = 30 * DAY_SECONDS;
const DAY_SECONDS: i64 = 24 * 60 * 60;
