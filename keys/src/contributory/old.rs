//! What version 0 of the wire said, which named no versions: it is recognised, so that people hear of it, and no more.
//!
//! ```text
//! JOIN    | 01 | cert, 32 | incarnation, 16 | key, 32 | card's signature, 64 | bytes16(certificate) | 50 | signature, 64 |
//! BEACON  | 0B | author, 8 | 38 | signature, 64 |
//! ```

use sealcast_crypto::signature::{Algorithm, PublicKey, Signature};
use sealcast_wire::limits::CERTIFICATE_BYTES_MAX;
use sealcast_wire::{CertHash, Dropped, Malformed, Monotonic, Now, Reader, limits};

use super::Contributory;
use super::message::{CARD_LABEL, signed};
use super::version::Versions;
use crate::{HandleError, Notice};

/// A message of version 0; unverified.
pub(super) enum Old<'a> {
    Join(Box<Join<'a>>),
    /// A group is here. Its author's card is not asked for: its holder would not understand the question.
    Beacon,
}

/// Somebody wants in.
pub(super) struct Join<'a> {
    cert: CertHash,
    incarnation: [u8; 16],
    key: [u8; 32],
    card_signature: Signature,
    der: &'a [u8],
    body: &'a [u8],
    signature: Signature,
}

impl Old<'_> {
    /// Reads what lay under the bootstrap key; `None` if it is of a later version, or of no use.
    pub(super) fn read(bytes: &[u8]) -> Option<Old<'_>> {
        match *bytes.first()? {
            JOIN => Join::read(bytes).ok().map(|join| Old::Join(Box::new(join))),
            BEACON if bytes.len() == BEACON_BYTES => Some(Old::Beacon),
            _ => None,
        }
    }
}

impl<'a> Join<'a> {
    fn read(bytes: &'a [u8]) -> Result<Join<'a>, Malformed> {
        let mut r = Reader::new(bytes);
        r.u8()?;
        let (cert, incarnation, key, card_signature) = (CertHash(r.array()?), r.array()?, r.array()?, r.array()?);
        let der = r.bytes16(CERTIFICATE_BYTES_MAX)?;
        r.take(REST_OF_JOIN)?;
        let body = &bytes[..bytes.len() - r.remaining()];
        let signature = r.array()?;
        r.end()?;
        Ok(Join { cert, incarnation, key, card_signature, der, body, signature })
    }
}

impl Contributory {
    /// Takes in a message of version 0: whoever signed it is reported, and not let in.
    pub(super) fn on_old(&mut self, now: Now, old: &Old<'_>) -> Result<(), HandleError> {
        match old {
            Old::Join(join) => self.on_old_join(now, join),
            Old::Beacon => {
                self.tell_of_version(now, None, None);
                Err(Dropped::Policy.into())
            }
        }
    }

    fn on_old_join(&mut self, now: Now, m: &Join<'_>) -> Result<(), HandleError> {
        if self.is_told_of_version(now.monotonic, Some(m.cert)) {
            return Err(Dropped::Policy.into());
        }
        let floor = self.statements.floor();
        let anchor = self.statements.anchor();
        let cert = self.people.certificate(now, floor, anchor, &self.verifier, (m.cert, m.der))?;
        let card = signed(CARD_LABEL, &self.group, &[&m.cert.0, &m.incarnation], &m.key);
        let join = signed("sealcast/v1/join", &self.group, &[], m.body);
        let key = PublicKey::new(Algorithm::Ed25519, &m.key).map_err(|_| Dropped::Malformed)?;
        if !self.verifier.signature(&cert.key, &card, &m.card_signature)
            || !self.verifier.signature(&key, &join, &m.signature)
        {
            return Err(Dropped::Auth.into());
        }
        self.tell_of_version(now, Some(m.cert), None);
        Err(Dropped::Policy.into())
    }

    /// Says that somebody has no version in common with us, or named none; now and then, however often it is heard.
    pub(super) fn tell_of_version(&mut self, now: Now, cert: Option<CertHash>, theirs: Option<Versions>) {
        if self.is_told_of_version(now.monotonic, cert) {
            return;
        }
        if self.versions_told.len() >= limits::REMEMBERED_PEOPLE_MAX {
            self.versions_told.retain(|_, at| now.monotonic.since(*at) < RESEND_AFTER);
        }
        if self.versions_told.len() < limits::REMEMBERED_PEOPLE_MAX {
            self.versions_told.insert(cert, now.monotonic);
            let theirs = theirs.map_or(vec![0], |versions| versions.iter().collect());
            let ours = self.config.versions.iter().collect();
            self.notice(Notice::OtherVersion { cert, theirs, ours });
        }
    }

    /// Whether nobody was told of this one's program for a while; it is taken to be told.
    pub(super) fn is_told_first(&mut self, now: Now, cert: CertHash) -> bool {
        if self.is_told_of_version(now.monotonic, Some(cert)) {
            return false;
        }
        if self.versions_told.len() >= limits::REMEMBERED_PEOPLE_MAX {
            self.versions_told.retain(|_, at| now.monotonic.since(*at) < RESEND_AFTER);
        }
        let has_capacity = self.versions_told.len() < limits::REMEMBERED_PEOPLE_MAX;
        if has_capacity {
            self.versions_told.insert(Some(cert), now.monotonic);
        }
        has_capacity
    }

    pub(super) fn is_told_of_version(&self, now: Monotonic, cert: Option<CertHash>) -> bool {
        self.versions_told.get(&cert).is_some_and(|at| now.since(*at) < RESEND_AFTER)
    }
}

const JOIN: u8 = 1;
const BEACON: u8 = 11;
/// Summary, epoch, size, and the epoch that it wants to come to.
const REST_OF_JOIN: usize = 24 + 12 + 2 + 12;
const BEACON_BYTES: usize = 1 + 8 + 12 + 2 + 24 + 64;
/// After so long somebody of another version is reported again.
const RESEND_AFTER: std::time::Duration = std::time::Duration::from_secs(60);
