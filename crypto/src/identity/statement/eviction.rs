//! Eviction (A4): a statement that the holder of a certificate is no member any more.
//!
//! ```text
//! group (16-bit length) ‖ serial (16-bit length) ‖ certificate's SHA-256 (32) ‖ number (8) ‖ voids (1: 0, 1)
//! ‖ reason (16-bit length)
//! ```
//! Signed by the authority, or by a member whose `evict` right covers all rights that the evicted one has
//! in the group; then both certificates go with it. It is judged by what is true for ever: signatures and
//! rights, not dates and not revocation of the signer, since two members who see it at different times
//! must hold the same set. How a signer's power ends: [`crate::identity::evictions`].

use std::sync::Arc;

use sealcast_wire::{CertHash, Reader, Writer, limits};

use super::{Bytes, Envelope, Kind, Member, StatementError, digest, text};
use crate::identity::anchor::{TrustAnchor, Verified};
use crate::identity::authority::Authority;
use crate::identity::certificate::Certificate;
use crate::identity::holder::Identity;
use crate::identity::rights::check_group;
use crate::identity::serial::Serial;

/// What an eviction says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// From which group.
    pub group: String,
    /// The evicted certificate's serial number.
    pub serial: Serial,
    /// The evicted certificate.
    pub certificate: CertHash,
    /// Counts up, by signer.
    pub number: u64,
    /// Whether the evictions that the evicted one signed count no more. Only the authority may say so.
    pub voids: bool,
    /// For people; at most [`limits::REASON_BYTES_MAX`] bytes.
    pub reason: String,
}

/// Who signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signer {
    /// The authority.
    Authority,
    /// A member with an `evict` right; its certificate's dates and revocation were not judged.
    Member(Arc<Verified>),
}

/// A verified eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedEviction {
    eviction: Eviction,
    signer: Signer,
    id: [u8; 32],
    bytes: Bytes,
}

impl Eviction {
    /// A member's eviction of another, unsigned; `number` must be higher than the member's last one.
    pub fn new(group: &str, evicted: &Verified, number: u64, reason: &str) -> Eviction {
        Eviction {
            group: group.to_owned(),
            serial: evicted.serial,
            certificate: evicted.hash,
            number,
            voids: false,
            reason: reason.to_owned(),
        }
    }

    /// Signs as a member with an `evict` right. `evicted` is the certificate that the statement names.
    ///
    /// # Errors
    /// `Reason`; `Denied` if the right does not cover the other's; `Malformed` if the certificate is not
    /// the one named, or the statement says more than a member may.
    pub fn sign_as_member(&self, identity: &Identity, evicted: &Verified) -> Result<Vec<u8>, StatementError> {
        if !identity.certificate().rights.may_evict(&self.group, &evicted.rights) {
            return Err(StatementError::Denied);
        }
        if self.voids || (self.certificate, self.serial) != (evicted.hash, evicted.serial) {
            return Err(StatementError::Malformed);
        }
        let body = self.body()?;
        let signer = identity.certificate();
        let authority = identity.anchor().certificate().hash();
        let digest = digest(Kind::Eviction, &authority, Some(signer.hash), &body);
        let member = Member { signer: &signer.der, evicted: &evicted.der };
        let signature = identity.key().sign(&digest);
        Envelope { kind: Kind::Eviction, body: &body, member: Some(member), signature }.write()
    }

    pub(in crate::identity) fn sign_as_authority(&self, authority: &Authority) -> Result<Vec<u8>, StatementError> {
        let body = self.body()?;
        let digest = digest(Kind::Eviction, &authority.certificate().hash(), None, &body);
        let signature = authority.sign(&digest);
        Envelope { kind: Kind::Eviction, body: &body, member: None, signature }.write()
    }

    fn body(&self) -> Result<Vec<u8>, StatementError> {
        if text(self.reason.as_bytes(), limits::REASON_BYTES_MAX).is_none() {
            return Err(StatementError::Reason);
        }
        check_group(&self.group).map_err(|_| StatementError::Malformed)?;
        let mut writer = Writer::new();
        writer.bytes16(self.group.as_bytes()).bytes16(self.serial.as_bytes()).raw(&self.certificate.0);
        writer.u64(self.number).u8(u8::from(self.voids)).bytes16(self.reason.as_bytes());
        Ok(writer.finish())
    }

    fn parse(body: &[u8]) -> Result<Eviction, StatementError> {
        let mut reader = Reader::new(body);
        let group = text(reader.bytes16(limits::GROUP_BYTES_MAX)?, limits::GROUP_BYTES_MAX);
        let group = group.filter(|g| check_group(g).is_ok()).ok_or(StatementError::Malformed)?.to_owned();
        let serial = reader.bytes16(limits::CERTIFICATE_BYTES_MAX)?;
        // One encoding for one serial, so that one statement has one id.
        let serial = Serial::new(serial).ok().filter(|s| s.as_bytes() == serial).ok_or(StatementError::Malformed)?;
        let certificate = CertHash(reader.array()?);
        let number = reader.u64()?;
        let voids = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(StatementError::Malformed),
        };
        let reason = reader.bytes16(limits::REASON_BYTES_MAX)?;
        let reason = text(reason, limits::REASON_BYTES_MAX).ok_or(StatementError::Malformed)?.to_owned();
        reader.end()?;
        Ok(Eviction { group, serial, certificate, number, voids, reason })
    }
}

impl SignedEviction {
    /// Verifies a statement.
    ///
    /// # Errors
    /// It is malformed, wrongly signed, or its signer has no such right.
    pub fn verify(bytes: &[u8], anchor: &TrustAnchor) -> Result<SignedEviction, StatementError> {
        let envelope = Envelope::parse(Kind::Eviction, bytes)?;
        let eviction = Eviction::parse(envelope.body)?;
        let id = envelope.digest(&anchor.certificate().hash());
        let (signer, key) = match envelope.member {
            None => (Signer::Authority, anchor.key().clone()),
            Some(member) => {
                let signer = verify_member(&eviction, member, anchor)?;
                (Signer::Member(signer.clone()), signer.key.clone())
            }
        };
        key.verify(&id, &envelope.signature).map_err(|_| StatementError::Signature)?;
        Ok(SignedEviction { eviction, signer, id, bytes: bytes.into() })
    }

    /// What it says.
    pub fn eviction(&self) -> &Eviction {
        &self.eviction
    }

    /// Who says so.
    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// The same for the same words of the same signer, whatever the signature's bytes.
    pub fn id(&self) -> [u8; 32] {
        self.id
    }

    /// The statement, to be passed on.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Signer {
    /// The member's certificate; `None` for the authority.
    pub fn certificate(&self) -> Option<CertHash> {
        match self {
            Signer::Authority => None,
            Signer::Member(member) => Some(member.hash),
        }
    }

    /// A name for people.
    pub fn name<'a>(&'a self, anchor: &'a TrustAnchor) -> &'a Arc<str> {
        match self {
            Signer::Authority => anchor.certificate().name(),
            Signer::Member(member) => &member.name,
        }
    }
}

/// The member who signed, if both certificates are the authority's and the one's right covers the other.
fn verify_member(
    eviction: &Eviction,
    member: Member<'_>,
    anchor: &TrustAnchor,
) -> Result<Arc<Verified>, StatementError> {
    let evicted = Certificate::parse(member.evicted)?;
    if eviction.voids || (eviction.certificate, eviction.serial) != (evicted.hash(), evicted.serial()) {
        return Err(StatementError::Malformed);
    }
    let signer = anchor.verify_issued(&Certificate::parse(member.signer)?)?;
    let evicted = anchor.verify_issued(&evicted)?;
    if !signer.rights.may_evict(&eviction.group, &evicted.rights) {
        return Err(StatementError::Denied);
    }
    Ok(signer)
}
