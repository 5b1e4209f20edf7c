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
use zeroize::Zeroizing;

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
    /// The secret of the group's bootstrap key.
    pub bootstrap_key: Secret<32>,
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
        // Whoever knows no fingerprint is about to compare one by eye.
        let mut anchor = match expected {
            Some(_) => TrustAnchor::new(&authority)?,
            None => TrustAnchor::self_signed(&authority)?,
        };
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
        let identity = Identity::new(&certificate, secret, anchor)?
            .with_bootstrap_key(&invite.group, invite.bootstrap_key.clone());
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

    fn body(&self, authority: &[u8]) -> Zeroizing<Vec<u8>> {
        let mut writer = Writer::new();
        let (crl, policy) = (self.crl.as_deref().unwrap_or(&[]), self.policy.as_deref().unwrap_or(&[]));
        for part in [self.group.as_bytes(), self.url.as_bytes(), authority, &self.certificate, crl, policy] {
            writer.u32(u32::try_from(part.len()).expect("the parts are far below 4 GB")).raw(part);
        }
        writer.raw(self.bootstrap_key.expose()).u64(self.issued_at.0 as u64).u64(self.expires_at.0 as u64);
        Zeroizing::new(writer.finish())
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
        let bootstrap_key = Secret::try_from(reader.take(32)?).map_err(|_| InviteError::Malformed)?;
        let (issued_at, expires_at) = (Utc(reader.u64()? as i64), Utc(reader.u64()? as i64));
        reader.end()?;
        check_group(&group).map_err(|_| InviteError::Malformed)?;
        Ok((Invite { group, url, certificate, crl, policy, bootstrap_key, issued_at, expires_at }, authority))
    }
}

fn unseal(bytes: &[u8], secret: &MemberSecret, joiner: &PublicKeys) -> Result<Zeroizing<Vec<u8>>, InviteError> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::identity::authority::{MEMBER_VALIDITY_SECONDS, Subject};
    use crate::identity::fixture::*;
    use crate::identity::keytext::AuthoritySecret;
    use crate::identity::ledger::Ledger;
    use crate::identity::statement::{OnStale, Policy};
    use crate::signature::Algorithm;

    fn joiner() -> MemberSecret {
        MemberSecret::generate(Algorithm::Ed25519, &mut rng(7))
    }

    fn invite_of(ca: &mut Authority, joiner: &MemberSecret) -> Invite {
        let certificate = ca.issue(&request("newcomer", joiner, everything()), NOW, MEMBER_VALIDITY_SECONDS);
        let policy = Policy {
            group: GROUP.to_owned(),
            number: 0,
            compartments: vec![],
            max_crl_age_seconds: None,
            on_stale: OnStale::Warn,
        };
        Invite {
            group: GROUP.to_owned(),
            url: "udpm://239.255.76.67:7667?ttl=1&keys=contributory".to_owned(),
            certificate: certificate.expect("issued").der().to_vec(),
            crl: Some(ca.crl(NOW, DAY).expect("signed")),
            policy: Some(ca.policy(&policy).expect("signed")),
            bootstrap_key: ca.bootstrap_key(GROUP),
            issued_at: NOW,
            expires_at: later(1),
        }
    }

    fn sealed(ca: &mut Authority) -> Vec<u8> {
        let invite = invite_of(ca, &joiner());
        invite.seal(ca, &joiner().public(), &mut rng(9)).expect("sealed")
    }

    fn open(bytes: &[u8]) -> Result<Opened, InviteError> {
        Invite::open(bytes, &joiner(), None, Some(NOW), NOW)
    }

    #[test]
    fn an_authority_that_did_not_sign_itself_is_taken_by_its_whole_fingerprint_only() {
        let ca = authority(1);
        let secret = AuthoritySecret::generate(Algorithm::P256, &mut rng(2));
        let mut params = params(&joiner());
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
        let key = secret.signing_key();
        let der = params.signed_by(&Subject(key.public()), &ca.issuer()).expect("signed").der().to_vec();
        let mut under = Authority::restore(&der, secret, Ledger::new()).expect("an authority");
        let bytes = sealed(&mut under);
        assert!(matches!(open(&bytes), Err(InviteError::Certificate(CertificateError::Signature))));
        let expected = Some(under.fingerprint());
        assert!(Invite::open(&bytes, &joiner(), expected, Some(NOW), NOW).is_ok());
    }

    #[test]
    fn rule_a11_an_invitation_brings_all_that_a_joiner_needs() {
        let mut ca = authority(1);
        let invite = invite_of(&mut ca, &joiner());
        let bytes = invite.seal(&ca, &joiner().public(), &mut rng(9)).expect("sealed");
        let text = format!("Dear newcomer,\n\n{}\n", Invite::to_pem(&bytes));
        assert_eq!(Invite::from_pem(&text), Ok(bytes.clone()));
        assert!(Invite::is_invite(&bytes));
        let opened = Invite::open(&bytes, &joiner(), Some(ca.fingerprint()), Some(NOW), NOW).expect("opened");
        assert_eq!(opened.invite, invite);
        assert_eq!(opened.authority, ca.certificate().der().to_vec());
        let identity = opened.identity;
        assert_eq!(identity.public(), joiner().public());
        assert!(identity.certificate().rights.may_publish(GROUP, "x"));
        assert_eq!(identity.anchor().crl().map(super::super::Crl::number), Some(1));
        assert!(identity.has_bootstrap_key(GROUP) && !identity.has_bootstrap_key("other"));
        let bootstrap_key = crate::bootstrap::BootstrapKey::new(&ca.bootstrap_key(GROUP));
        assert_eq!(identity.bootstrap_key(GROUP).tag(), bootstrap_key.tag());
        assert_ne!(identity.bootstrap_key("other").tag(), bootstrap_key.tag());
    }

    #[test]
    fn rule_a11_an_invitation_is_of_use_to_nobody_else() {
        let mut ca = authority(1);
        let bytes = sealed(&mut ca);
        let thief = MemberSecret::generate(Algorithm::Ed25519, &mut rng(8));
        let stolen = Invite::open(&bytes, &thief, None, Some(NOW), NOW).map(|_| ());
        assert_eq!(stolen, Err(InviteError::OtherKey));
        // Written over with the thief's own key it is no longer what was sealed.
        let mut relabelled = bytes;
        relabelled[4..36].copy_from_slice(&thief.public().sealing.0);
        let stolen = Invite::open(&relabelled, &thief, None, Some(NOW), NOW).map(|_| ());
        assert_eq!(stolen, Err(InviteError::Tampered));
        let invite = invite_of(&mut ca, &joiner());
        assert_eq!(invite.seal(&ca, &thief.public(), &mut rng(9)), Err(InviteError::OtherKey));
    }

    /// A thief who copies the contents that it was once sealed cannot pass them on as its own either:
    /// the signature is over the joiner's keys.
    #[test]
    fn rule_a11_the_authoritys_signature_binds_the_joiners_keys() {
        let mut ca = authority(1);
        let bytes = sealed(&mut ca);
        let contents = unseal(&bytes, &joiner(), &joiner().public()).expect("ours");
        let friend = MemberSecret::generate(Algorithm::Ed25519, &mut rng(8));
        let mut resealed = header(&friend.public().sealing);
        let passed_on = hpke::seal_to(&friend.public().sealing, INFO, &resealed, &contents, &mut rng(3));
        resealed.extend_from_slice(&passed_on.expect("sealed"));
        let opened = Invite::open(&resealed, &friend, None, Some(NOW), NOW).map(|_| ());
        assert_eq!(opened, Err(InviteError::Signature));
    }

    #[test]
    fn rule_a11_an_invitation_that_was_changed_or_cut_is_refused() {
        let mut ca = authority(1);
        let bytes = sealed(&mut ca);
        assert!(open(&bytes).is_ok());
        for i in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[i] ^= 1;
            let expected = match i {
                0..4 => InviteError::Malformed,
                4..36 => InviteError::OtherKey,
                _ => InviteError::Tampered,
            };
            assert_eq!(open(&changed).map(|_| ()), Err(expected), "byte {i} changed");
            let expected = if i < 36 + hpke::OVERHEAD { InviteError::Malformed } else { InviteError::Tampered };
            assert_eq!(open(&bytes[..i]).map(|_| ()), Err(expected), "cut at {i}");
        }
    }

    #[test]
    fn rule_a11_an_invitation_expires() {
        let mut ca = authority(1);
        let bytes = sealed(&mut ca);
        let at = |utc, floor| Invite::open(&bytes, &joiner(), None, utc, floor).map(|_| ());
        assert_eq!(at(Some(Utc(later(1).0 + CLOCK_UNCERTAINTY_SECONDS)), NOW), Ok(()));
        assert_eq!(at(Some(Utc(later(1).0 + CLOCK_UNCERTAINTY_SECONDS + 1)), NOW), Err(InviteError::Expired));
        assert_eq!(at(None, later(2)), Err(InviteError::Expired), "without a clock the floor judges (G5)");
        assert_eq!(at(None, NOW), Ok(()));
    }

    #[test]
    fn rule_a11_an_invitation_from_another_authority_is_noticed() {
        let (mut ca, mut other) = (authority(1), authority(2));
        let bytes = sealed(&mut other);
        let opened = Invite::open(&bytes, &joiner(), Some(ca.fingerprint()), Some(NOW), NOW).map(|_| ());
        assert_eq!(opened, Err(InviteError::OtherAuthority));
        // One authority's certificate in another's invitation.
        let mixed = invite_of(&mut ca, &joiner()).seal(&other, &joiner().public(), &mut rng(9)).expect("sealed");
        assert_eq!(open(&mixed).map(|_| ()), Err(InviteError::Crl(CrlError::Signature)));
        let bare = Invite { crl: None, policy: None, ..invite_of(&mut ca, &joiner()) };
        let mixed = bare.seal(&other, &joiner().public(), &mut rng(9)).expect("sealed");
        assert_eq!(open(&mixed).map(|_| ()), Err(InviteError::Certificate(CertificateError::Signature)));
    }

    #[test]
    fn rule_a10_a_revoked_newcomer_is_not_let_in() {
        let mut ca = authority(1);
        let mut invite = invite_of(&mut ca, &joiner());
        let serial = Certificate::parse(&invite.certificate).expect("read").serial();
        ca.revoke(serial, NOW).expect("issued");
        invite.crl = Some(ca.crl(NOW, DAY).expect("signed"));
        let bytes = invite.seal(&ca, &joiner().public(), &mut rng(9)).expect("sealed");
        assert_eq!(open(&bytes).map(|_| ()), Err(InviteError::Certificate(CertificateError::Revoked)));
    }

    #[test]
    fn a_policy_of_another_group_is_refused() {
        let mut ca = authority(1);
        let invite = Invite { group: "ward4".to_owned(), ..invite_of(&mut ca, &joiner()) };
        let bytes = invite.seal(&ca, &joiner().public(), &mut rng(9)).expect("sealed");
        assert_eq!(open(&bytes).map(|_| ()), Err(InviteError::Policy(StatementError::Contents)));
    }

    proptest! {
        #[test]
        fn rule_g2_parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(open(&bytes).is_err());
            prop_assert!(open(&[header(&joiner().public().sealing), bytes.clone()].concat()).is_err());
            let _ = (Invite::parse(&bytes), Invite::from_pem(&String::from_utf8_lossy(&bytes)));
        }
    }
}
