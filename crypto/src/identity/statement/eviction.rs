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

    /// The serial number of the member's certificate; `None` for the authority.
    pub fn serial(&self) -> Option<Serial> {
        match self {
            Signer::Authority => None,
            Signer::Member(member) => Some(member.serial),
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::identity::certificate::CertificateError;
    use crate::identity::fixture::*;
    use crate::identity::statement::{Kind, id};

    fn by_member(by: &Identity, of: &Identity, number: u64) -> Result<Vec<u8>, StatementError> {
        Eviction::new(GROUP, of.certificate(), number, "lost laptop").sign_as_member(by, of.certificate())
    }

    #[test]
    fn rule_a4_the_authority_may_evict_anybody() {
        let mut ca = authority(1);
        let carol = member(&mut ca, everything(), 2);
        let c = carol.certificate();
        let bytes = ca.evict(GROUP, c.serial, c.hash, "lost laptop", false).expect("signed");
        let signed = SignedEviction::verify(&bytes, carol.anchor()).expect("verified");
        assert_eq!(signed.signer(), &Signer::Authority);
        assert_eq!(&**signed.signer().name(carol.anchor()), "ward3 CA");
        let said = signed.eviction();
        assert_eq!((&*said.group, said.certificate, said.serial, said.number), (GROUP, c.hash, c.serial, 1));
        assert_eq!(said.reason, "lost laptop");
        assert_eq!(Kind::of(&bytes), Some(Kind::Eviction));
        assert_eq!(id(&bytes, carol.anchor()), Some(signed.id()));
    }

    #[test]
    fn rule_a4_a_member_evicts_as_far_as_its_right_reaches() {
        let mut ca = authority(1);
        let head = member(&mut ca, rights(&["urn:sealcast:ward3:evict:vitals/%23"]), 2);
        let nurse = member(&mut ca, rights(&["urn:sealcast:ward3:both:vitals/bed1"]), 3);
        let doctor =
            member(&mut ca, rights(&["urn:sealcast:ward3:both:vitals/%23", "urn:sealcast:ward3:pub:orders"]), 4);
        let signed = SignedEviction::verify(&by_member(&head, &nurse, 1).expect("signed"), ca.anchor());
        assert_eq!(signed.expect("verified").signer().certificate(), Some(head.certificate().hash));
        assert_eq!(by_member(&head, &doctor, 2), Err(StatementError::Denied));
        assert_eq!(by_member(&nurse, &head, 1), Err(StatementError::Denied));
    }

    /// What `sign_as_member` refuses to make, somebody else's program makes.
    #[test]
    fn rule_a4_a_statement_beyond_its_signers_right_is_refused_by_who_reads_it() {
        let mut ca = authority(1);
        let nurse = member(&mut ca, rights(&["urn:sealcast:ward3:both:vitals/bed1"]), 3);
        let head = member(&mut ca, rights(&["urn:sealcast:ward3:evict:vitals/%23"]), 2);
        let forge = |eviction: &Eviction, by: &Identity, of: &Verified| {
            let body = eviction.body().expect("encodable");
            let digest = digest(Kind::Eviction, &ca.certificate().hash(), Some(by.certificate().hash), &body);
            let member = Some(Member { signer: &by.certificate().der, evicted: &of.der });
            let signature = by.key().sign(&digest);
            let bytes = Envelope { kind: Kind::Eviction, body: &body, member, signature }.write().expect("short");
            SignedEviction::verify(&bytes, ca.anchor()).map(|_| ())
        };
        let (n, h) = (nurse.certificate(), head.certificate());
        let fair = Eviction::new(GROUP, n, 1, "");
        assert_eq!(forge(&fair, &head, n), Ok(()));
        assert_eq!(forge(&Eviction::new(GROUP, h, 1, ""), &nurse, h), Err(StatementError::Denied));
        assert_eq!(forge(&Eviction { group: "other".into(), ..fair.clone() }, &head, n), Err(StatementError::Denied));
        assert_eq!(forge(&Eviction { voids: true, ..fair.clone() }, &head, n), Err(StatementError::Malformed));
        let misnamed = Eviction { serial: h.serial, ..fair.clone() };
        assert_eq!(forge(&misnamed, &head, n), Err(StatementError::Malformed));
        let another = Eviction { certificate: h.hash, ..fair };
        assert_eq!(forge(&another, &head, n), Err(StatementError::Malformed));
    }

    #[test]
    fn rule_a4_a_stranger_evicts_nobody() {
        let (mut ours, mut theirs) = (authority(1), authority(2));
        let carol = member(&mut ours, everything(), 3);
        let mallory = member(&mut theirs, rights(&["urn:sealcast:ward3:evict:%23"]), 4);
        let c = carol.certificate();
        let bytes = theirs.evict(GROUP, c.serial, c.hash, "", false).expect("signed");
        assert_eq!(SignedEviction::verify(&bytes, ours.anchor()), Err(StatementError::Signature));
        let bytes = by_member(&mallory, &carol, 1).expect("signed");
        let refused = SignedEviction::verify(&bytes, ours.anchor());
        assert_eq!(refused, Err(StatementError::Certificate(CertificateError::Signature)));
    }

    #[test]
    fn rule_g3_everything_in_a_statement_is_signed() {
        let mut ca = authority(1);
        let head = member(&mut ca, rights(&["urn:sealcast:ward3:evict:%23"]), 2);
        let carol = member(&mut ca, everything(), 3);
        let c = carol.certificate();
        let by_authority = ca.evict(GROUP, c.serial, c.hash, "why", false).expect("signed");
        for bytes in [by_authority, by_member(&head, &carol, 1).expect("signed")] {
            assert!(SignedEviction::verify(&bytes, ca.anchor()).is_ok());
            for i in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[i] ^= 1;
                assert!(SignedEviction::verify(&changed, ca.anchor()).is_err(), "byte {i} changed");
                assert!(SignedEviction::verify(&bytes[..i], ca.anchor()).is_err(), "cut at {i}");
            }
            assert!(SignedEviction::verify(&[&bytes[..], &[0]].concat(), ca.anchor()).is_err());
        }
    }

    #[test]
    fn a_reason_is_short_and_printable() {
        let mut ca = authority(1);
        let carol = member(&mut ca, everything(), 2);
        let c = carol.certificate();
        for reason in ["x".repeat(limits::REASON_BYTES_MAX + 1), "\u{1b}[31m".to_owned()] {
            let refused = ca.evict(GROUP, c.serial, c.hash, &reason, false);
            assert_eq!(refused, Err(StatementError::Reason.into()));
        }
        assert!(ca.evict(GROUP, c.serial, c.hash, &"x".repeat(limits::REASON_BYTES_MAX), false).is_ok());
    }

    proptest! {
        #[test]
        fn rule_g2_parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let ca = authority(1);
            for head in [&b""[..], b"SCE\x01", b"SCE\x01\x00\x00\x40", b"SCE\x01\x01\x00\x40"] {
                let bytes = [head, &bytes].concat();
                prop_assert!(SignedEviction::verify(&bytes, ca.anchor()).is_err());
                let _ = id(&bytes, ca.anchor());
            }
            let _ = Eviction::parse(&bytes);
        }
    }
}
