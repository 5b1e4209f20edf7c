//! A small world for tests: an authority, members, and certificates that no authority should issue.

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use rcgen::{CertificateParams, DistinguishedName, DnType, Issuer, KeyUsagePurpose, SanType};
use sealcast_wire::Utc;

use super::authority::{Authority, MEMBER_VALIDITY_SECONDS, Request, Signer, Subject};
use super::certificate::{Certificate, sealing_uri};
use super::holder::Identity;
use super::keytext::MemberSecret;
use super::rights::{Right, Rights};
use crate::signature::Algorithm;

/// Now, in these tests: 2026-11-20.
pub(super) const NOW: Utc = Utc(1_795_132_800);
pub(super) const DAY: i64 = 24 * 60 * 60;
/// The group of these tests.
pub(super) const GROUP: &str = "ward3";

pub(super) fn later(days: i64) -> Utc {
    Utc(NOW.0 + days * DAY)
}

pub(super) fn rng(seed: u64) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(seed)
}

pub(super) fn authority(seed: u64) -> Authority {
    authority_with(Algorithm::P256, seed)
}

pub(super) fn authority_with(algorithm: Algorithm, seed: u64) -> Authority {
    Authority::create("ward3 CA", algorithm, NOW, &mut rng(seed)).expect("a valid authority")
}

pub(super) fn rights(uris: &[&str]) -> Rights {
    uris.iter().map(|u| Right::from_uri(u).expect("valid").expect("a right")).collect()
}

pub(super) fn everything() -> Rights {
    rights(&["urn:sealcast:ward3:both:%23"])
}

pub(super) fn request(name: &str, secret: &MemberSecret, rights: Rights) -> Request {
    Request { name: name.to_owned(), keys: secret.public(), rights, attributes: vec![] }
}

/// A member of the authority with these rights; name and keys follow from the seed.
pub(super) fn member(authority: &mut Authority, rights: Rights, seed: u64) -> Identity {
    let secret = MemberSecret::generate(Algorithm::Ed25519, &mut rng(seed));
    let request = request(&format!("member{seed}"), &secret, rights);
    let certificate = authority.issue(&request, NOW, MEMBER_VALIDITY_SECONDS).expect("issued");
    Identity::new(&certificate, &secret, authority.anchor().clone()).expect("an identity")
}

/// A certificate signed by the authority as `change` wants it; by default a member's good one.
pub(super) fn certificate(
    authority: &Authority,
    secret: &MemberSecret,
    change: impl FnOnce(&mut CertificateParams),
) -> Certificate {
    let mut params = params(secret);
    change(&mut params);
    sign(&params, &authority.issuer(), secret)
}

/// A member's certificate by any issuer.
pub(super) fn certificate_by(issuer: &Issuer<'_, Signer<'_>>, secret: &MemberSecret) -> Certificate {
    sign(&params(secret), issuer, secret)
}

pub(super) fn sign(params: &CertificateParams, issuer: &Issuer<'_, Signer<'_>>, secret: &MemberSecret) -> Certificate {
    let signed = params.signed_by(&Subject(&secret.public().signing), issuer).expect("signed");
    Certificate::parse(signed.der()).expect("read")
}

pub(super) fn params(secret: &MemberSecret) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "member");
    params.not_before = date(NOW);
    params.not_after = date(later(90));
    params.serial_number = Some(vec![0x51, 1].into());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    for uri in [sealing_uri(&secret.public().sealing).as_str(), "urn:sealcast:ward3:both:%23"] {
        params.subject_alt_names.push(SanType::URI(uri.try_into().expect("ASCII")));
    }
    params
}

pub(super) fn date(utc: Utc) -> time::OffsetDateTime {
    time::OffsetDateTime::from_unix_timestamp(utc.0).expect("a date")
}
