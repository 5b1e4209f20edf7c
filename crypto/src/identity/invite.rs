//! Invitations by file (A11): all that a newcomer needs, for its eyes only.
//!
//! The joiner makes its keys and gives their public halves (`scpub1…`) to the authority. The authority
//! issues the certificate and seals everything to that key; a copy of the file is of use to nobody else.
//!
//! ```text
//! "SCI" ‖ version 1 ‖ joiner's sealing key (32) ‖ HPKE(contents), aad = all before it
//! contents = body ‖ signature (64)
//! body = group ‖ URL ‖ authority's certificate ‖ certificate ‖ revocation list ‖ policy ‖ veil (32)
//!        ‖ issued at (8) ‖ expires at (8), seconds since 1970
//! ```
//! Texts and certificates stand behind 32-bit lengths; an absent list or policy has length 0. The authority
//! signs the transcript `sealcast/v1/invite` of the joiner's two public keys and body. The joiner has no
//! way to know the authority but by this file or by its fingerprint: show it, or compare it.

use rand_core::CryptoRng;
use sealcast_wire::{Malformed, Reader, Utc, Writer, limits};

use super::anchor::{CLOCK_UNCERTAINTY_SECONDS, TrustAnchor, judged};
use super::authority::Authority;
use super::certificate::{Certificate, CertificateError};
use super::crl::CrlError;
use super::holder::{Identity, IdentityError};
use super::keytext::{Fingerprint, MemberSecret, PublicKeys};
use super::pem;
use super::rights::check_group;
use super::statement::{SignedPolicy, StatementError};
use crate::hash::Transcript;
use crate::hpke;
use crate::secret::Secret;
use crate::signature::SIGNATURE_LEN;

/// What an invitation holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invite {
    /// The group.
    pub group: String,
    /// Where it meets.
    pub url: String,
    /// The joiner's certificate, DER.
    pub certificate: Vec<u8>,
    /// The newest revocation list, DER.
    pub crl: Option<Vec<u8>>,
    /// The newest signed policy.
    pub policy: Option<Vec<u8>>,
    /// The secret of the group's veil.
    pub veil: Secret<32>,
    /// When it was made.
    pub issued_at: Utc,
    /// Until when it can be opened.
    pub expires_at: Utc,
}

/// An opened invitation: everything in it verified.
#[derive(Debug)]
pub struct Opened {
    /// Its contents.
    pub invite: Invite,
    /// The authority's certificate, DER; its fingerprint is to be shown or compared.
    pub authority: Vec<u8>,
    /// The new member.
    pub identity: Identity,
}

/// Why an invitation was not opened, or not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InviteError {
    /// Not an invitation, or cut short.
    #[error("this is no invitation, or a part of it is missing")]
    Malformed,
    /// It is for another key.
    #[error("the invitation is for another key")]
    OtherKey,
    /// It was changed on its way.
    #[error("the invitation was changed on its way")]
    Tampered,
    /// The authority that it brings did not sign it.
    #[error("the invitation's signature is wrong")]
    Signature,
    /// It is from another authority than the one expected.
    #[error("the invitation is from another authority")]
    OtherAuthority,
    /// Its time is over.
    #[error("the invitation has expired")]
    Expired,
    /// The certificate in it.
    #[error("the certificate in the invitation: {0}")]
    Certificate(#[from] CertificateError),
    /// The revocation list in it.
    #[error("the revocation list in the invitation: {0}")]
    Crl(#[from] CrlError),
    /// The policy in it.
    #[error("the policy in the invitation: {0}")]
    Policy(#[from] StatementError),
}

impl Invite {
    /// Seals the invitation for the joiner, signed by the authority.
    ///
    /// # Errors
    /// `Malformed` if it is too long or names no group; `OtherKey` if the certificate is not for these
    /// keys, or the sealing key is none.
    pub fn seal(
        &self,
        authority: &Authority,
        joiner: &PublicKeys,
        rng: &mut impl CryptoRng,
    ) -> Result<Vec<u8>, InviteError> {
        let certificate = Certificate::parse(&self.certificate)?;
        if certificate.key()? != joiner.signing || certificate.sealing() != Some(joiner.sealing) {
            return Err(InviteError::OtherKey);
        }
        if check_group(&self.group).is_err() || self.url.len() > limits::URL_BYTES_MAX {
            return Err(InviteError::Malformed);
        }
        let mut contents = self.body(authority.certificate().der());
        let signature = authority.sign(&digest(joiner, &contents));
        contents.extend_from_slice(&signature);
        let mut bytes = header(&joiner.sealing);
        let sealed = hpke::seal_to(&joiner.sealing, INFO, &bytes, &contents, rng).map_err(|_| InviteError::OtherKey)?;
        bytes.extend_from_slice(&sealed);
        if bytes.len() > limits::INVITE_BYTES_MAX { Err(InviteError::Malformed) } else { Ok(bytes) }
    }

    /// Opens an invitation and verifies all that is in it. `expected` is the authority's fingerprint where
    /// the joiner knows it; `utc` and `floor` as in [`TrustAnchor::verify`].
    ///
    /// # Errors
    /// [`InviteError`], by the first thing that is wrong.
    pub fn open(
        bytes: &[u8],
        secret: &MemberSecret,
        expected: Option<Fingerprint>,
        utc: Option<Utc>,
        floor: Utc,
    ) -> Result<Opened, InviteError> {
        let joiner = secret.public();
        let contents = unseal(bytes, secret, &joiner)?;
        let (body, signature) = contents.split_last_chunk::<SIGNATURE_LEN>().ok_or(InviteError::Malformed)?;
        let (invite, authority) = Invite::parse(body)?;
        if expected.is_some_and(|e| e.0 != crate::hash::sha256(&authority)) {
            return Err(InviteError::OtherAuthority);
        }
        let mut anchor = TrustAnchor::new(&authority)?;
        anchor.key().verify(&digest(&joiner, body), signature).map_err(|_| InviteError::Signature)?;
        if judged(utc, floor).0 > invite.expires_at.0.saturating_add(CLOCK_UNCERTAINTY_SECONDS) {
            return Err(InviteError::Expired);
        }
        if let Some(crl) = &invite.crl {
            anchor.learn_crl(crl)?;
        }
        if let Some(policy) = &invite.policy
            && SignedPolicy::verify(policy, &anchor)?.policy().group != invite.group
        {
            return Err(InviteError::Policy(StatementError::Contents));
        }
        let certificate = Certificate::parse(&invite.certificate)?;
        anchor.verify(&certificate, utc, floor)?;
        let identity = Identity::new(&certificate, secret, anchor)?.with_veil(&invite.group, invite.veil.clone());
        Ok(Opened { invite, authority, identity })
    }

    /// Whether a text or a file looks like an invitation.
    pub fn is_invite(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// A sealed invitation as text.
    pub fn to_pem(sealed: &[u8]) -> String {
        pem::write(PEM_LABEL, sealed)
    }

    /// Reads what [`Invite::to_pem`] wrote, with whatever text around it.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn from_pem(text: &str) -> Result<Vec<u8>, InviteError> {
        pem::read(PEM_LABEL, text).ok_or(InviteError::Malformed)
    }

    fn body(&self, authority: &[u8]) -> Vec<u8> {
        let mut writer = Writer::new();
        let (crl, policy) = (self.crl.as_deref().unwrap_or(&[]), self.policy.as_deref().unwrap_or(&[]));
        for part in [self.group.as_bytes(), self.url.as_bytes(), authority, &self.certificate, crl, policy] {
            writer.u32(u32::try_from(part.len()).expect("the parts are far below 4 GB")).raw(part);
        }
        writer.raw(self.veil.expose()).u64(self.issued_at.0 as u64).u64(self.expires_at.0 as u64);
        writer.finish()
    }

    fn parse(body: &[u8]) -> Result<(Invite, Vec<u8>), InviteError> {
        let mut reader = Reader::new(body);
        let group = text(part(&mut reader, limits::GROUP_BYTES_MAX)?)?;
        let url = text(part(&mut reader, limits::URL_BYTES_MAX)?)?;
        let authority = part(&mut reader, limits::CERTIFICATE_BYTES_MAX)?.to_vec();
        let certificate = part(&mut reader, limits::CERTIFICATE_BYTES_MAX)?.to_vec();
        let some = |bytes: &[u8]| (!bytes.is_empty()).then(|| bytes.to_vec());
        let crl = some(part(&mut reader, limits::CRL_BYTES_MAX)?);
        let policy = some(part(&mut reader, limits::STATEMENT_BYTES_MAX)?);
        let veil = Secret::try_from(reader.take(32)?).map_err(|_| InviteError::Malformed)?;
        let (issued_at, expires_at) = (Utc(reader.u64()? as i64), Utc(reader.u64()? as i64));
        reader.end()?;
        check_group(&group).map_err(|_| InviteError::Malformed)?;
        Ok((Invite { group, url, certificate, crl, policy, veil, issued_at, expires_at }, authority))
    }
}

fn unseal(
    bytes: &[u8],
    secret: &MemberSecret,
    joiner: &PublicKeys,
) -> Result<zeroize::Zeroizing<Vec<u8>>, InviteError> {
    if bytes.len() > limits::INVITE_BYTES_MAX {
        return Err(InviteError::Malformed);
    }
    let (head, sealed) = bytes.split_at_checked(HEADER_LEN).ok_or(InviteError::Malformed)?;
    if !head.starts_with(&MAGIC) || sealed.len() < hpke::OVERHEAD {
        return Err(InviteError::Malformed);
    }
    if head != header(&joiner.sealing) {
        return Err(InviteError::OtherKey);
    }
    secret.sealing_key().open(INFO, head, sealed).map_err(|_| InviteError::Tampered)
}

fn header(joiner: &hpke::PublicKey) -> Vec<u8> {
    [&MAGIC[..], &joiner.0].concat()
}

fn digest(joiner: &PublicKeys, body: &[u8]) -> [u8; 32] {
    let transcript = Transcript::new("sealcast/v1/invite").add(&joiner.signing.to_bytes());
    transcript.add(&joiner.sealing.0).add(body).finish()
}

fn part<'a>(reader: &mut Reader<'a>, max: usize) -> Result<&'a [u8], Malformed> {
    let n = reader.u32()? as usize;
    if n > max { Err(Malformed) } else { reader.take(n) }
}

/// Text without control characters: it is printed and opened.
fn text(bytes: &[u8]) -> Result<String, InviteError> {
    let text = std::str::from_utf8(bytes).map_err(|_| InviteError::Malformed)?;
    if text.chars().any(char::is_control) { Err(InviteError::Malformed) } else { Ok(text.to_owned()) }
}

impl From<Malformed> for InviteError {
    fn from(_: Malformed) -> InviteError {
        InviteError::Malformed
    }
}

impl From<IdentityError> for InviteError {
    fn from(error: IdentityError) -> InviteError {
        match error {
            IdentityError::Certificate(error) => InviteError::Certificate(error),
            IdentityError::OtherKey => InviteError::OtherKey,
        }
    }
}

/// "SCI" and the version.
const MAGIC: [u8; 4] = *b"SCI\x01";
const HEADER_LEN: usize = MAGIC.len() + 32;
const INFO: &[u8] = b"sealcast/v1/invite";
const PEM_LABEL: &str = "SEALCAST INVITE";
