use proptest::prelude::*;
use rcgen::{
    BasicConstraints, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, SanType,
};

use super::super::authority::{Authority, Request, Signer};
use super::super::fixture::*;
use super::super::keytext::MemberSecret;
use super::*;

fn secret(seed: u64) -> MemberSecret {
    MemberSecret::generate(Algorithm::Ed25519, &mut rng(seed))
}

/// As a member with a good clock would, the day after the authority's and the certificate's first.
fn verify(ca: &Authority, certificate: &Certificate) -> Result<Arc<Verified>, CertificateError> {
    ca.anchor().verify(certificate, Some(later(1)), NOW)
}

#[test]
fn certificates_of_every_pair_of_algorithms_verify() {
    for ca in [Algorithm::P256, Algorithm::Ed25519] {
        for leaf in [Algorithm::P256, Algorithm::Ed25519] {
            let mut ca = authority_with(ca, 1);
            let secret = MemberSecret::generate(leaf, &mut rng(2));
            let mut request = request("robot7", &secret, everything());
            request.attributes.push(Attribute::new("ward3 CA", "role", "robot").expect("valid"));
            let issued = ca.issue(&request, NOW, 90 * DAY).expect("issued");
            let verified = verify(&ca, &issued).expect("verified");
            assert_eq!((&*verified.name, verified.serial.number()), ("robot7", Some(1)));
            assert_eq!((verified.not_before, verified.not_after), (NOW, later(90)));
            assert_eq!((&verified.rights, &verified.attributes), (&request.rights, &request.attributes));
            assert_eq!((&verified.key, verified.sealing), (&request.keys.signing, Some(request.keys.sealing)));
            assert_eq!(Certificate::from_pem(&issued.to_pem()), Ok(issued));
        }
    }
}

#[test]
fn a_certificate_under_a_wrong_root_is_refused() {
    let (mut ours, namesake) = (authority(1), authority(2));
    let other = Authority::create("other CA", Algorithm::P256, NOW, &mut rng(3)).expect("valid");
    let issued = ours.issue(&request("m", &secret(3), everything()), NOW, DAY).expect("issued");
    assert_eq!(verify(&namesake, &issued), Err(CertificateError::Signature));
    assert_eq!(verify(&other, &issued), Err(CertificateError::Issuer));
}

/// LCMsec takes an invalid certificate for one with uid 0 (research: LCMsec 1.2, 'Bug').
#[test]
fn an_invalid_certificate_stands_for_nobody() {
    let mut ca = authority(1);
    let good = ca.issue(&request("m", &secret(3), everything()), NOW, 90 * DAY).expect("issued");
    assert!(verify(&ca, &good).is_ok());
    for i in 0..good.der().len() {
        let mut der = good.der().to_vec();
        der[i] ^= 1;
        let result = Certificate::parse(&der).and_then(|c| verify(&ca, &c));
        assert!(result.is_err(), "byte {i} changed, and {result:?}");
    }
}

/// LCMsec's own sample certificates, expired on 2022-09-20, still agree on keys.
#[test]
fn an_expired_certificate_is_refused() {
    let ca = authority(1);
    let sample = certificate(&ca, &secret(2), |p| {
        p.not_before = date(Utc(1_600_000_000));
        p.not_after = date(Utc(1_663_632_000)); // 2022-09-20
    });
    assert_eq!(verify(&ca, &sample), Err(CertificateError::Expired));
    let good = certificate(&ca, &secret(2), |_| {});
    let at = |utc: Utc| ca.anchor().verify(&good, Some(utc), NOW).map(|_| ());
    assert_eq!(at(Utc(later(90).0 + CLOCK_UNCERTAINTY_SECONDS)), Ok(()));
    assert_eq!(at(Utc(later(90).0 + CLOCK_UNCERTAINTY_SECONDS + 1)), Err(CertificateError::Expired));
}

#[test]
fn a_certificate_whose_time_has_not_come_is_refused() {
    let ca = authority(1);
    let early = certificate(&ca, &secret(2), |p| p.not_before = date(later(10)));
    assert_eq!(verify(&ca, &early), Err(CertificateError::NotYetValid));
    let at = |utc: Utc| ca.anchor().verify(&early, Some(utc), NOW).map(|_| ());
    assert_eq!(at(Utc(later(10).0 - CLOCK_UNCERTAINTY_SECONDS)), Ok(()));
    assert_eq!(at(Utc(later(10).0 - CLOCK_UNCERTAINTY_SECONDS - 1)), Err(CertificateError::NotYetValid));
}

#[test]
fn under_an_expired_authority_nobody_is_a_member() {
    let ca = authority(1);
    let for_ever = certificate(&ca, &secret(2), |p| p.not_after = date(later(10_000)));
    assert_eq!(ca.anchor().verify(&for_ever, Some(later(3_652)), NOW).map(|_| ()), Ok(()));
    let late = ca.anchor().verify(&for_ever, Some(later(3_653)), NOW);
    assert_eq!(late, Err(CertificateError::AuthorityExpired));
}

#[test]
fn rule_g5_without_a_clock_the_floor_judges() {
    let ca = authority(1);
    let good = certificate(&ca, &secret(2), |_| {});
    let at = |utc: Option<Utc>, floor: Utc| ca.anchor().verify(&good, utc, floor).map(|_| ());
    let built_before_it_was_issued = later(-500);
    assert_eq!(at(None, built_before_it_was_issued), Ok(()), "the true time is the floor or later");
    assert_eq!(at(None, later(90)), Ok(()));
    assert_eq!(at(None, Utc(later(90).0 + 1)), Err(CertificateError::Expired));
    // A clock that was never set, or was turned back, does not revive what has expired.
    assert_eq!(at(Some(Utc(0)), later(100)), Err(CertificateError::Expired));
    assert_eq!(at(Some(Utc(0)), later(80)), Ok(()));
}

#[test]
fn rule_g5_the_newest_date_that_the_authority_signed_is_known() {
    let mut ca = authority(1);
    let mut anchor = ca.anchor().clone();
    assert_eq!(anchor.newest_date(), NOW);
    let crl = ca.crl(later(5), DAY).expect("signed");
    assert_eq!(anchor.learn_crl(&crl), Ok(true));
    assert_eq!(anchor.newest_date(), later(5));
}

#[test]
fn a_key_that_may_not_sign_messages_is_refused() {
    let ca = authority(1);
    let wrong = certificate(&ca, &secret(2), |p| p.key_usages = vec![KeyUsagePurpose::KeyAgreement]);
    assert_eq!(verify(&ca, &wrong), Err(CertificateError::KeyUsage));
    let server = certificate(&ca, &secret(2), |p| {
        p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    assert_eq!(verify(&ca, &server), Err(CertificateError::KeyUsage));
    let unsaid = certificate(&ca, &secret(2), |p| p.key_usages.clear());
    assert!(verify(&ca, &unsaid).is_ok(), "RFC 5280, 4.2.1.3: what is not said is not restricted");
}

#[test]
fn an_authority_is_no_member() {
    let ca = authority(1);
    assert_eq!(verify(&ca, ca.certificate()), Err(CertificateError::Authority));
    let flagged = certificate(&ca, &secret(2), |p| p.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    assert_eq!(verify(&ca, &flagged), Err(CertificateError::Authority));
}

#[test]
fn a_member_is_no_authority() {
    let ca = authority(1);
    let member = certificate(&ca, &secret(2), |_| {});
    assert_eq!(TrustAnchor::new(member.der()).map(|_| ()), Err(CertificateError::NotAuthority));
    let unsigning = certificate(&ca, &secret(2), |p| {
        p.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        p.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    });
    assert_eq!(TrustAnchor::new(unsigning.der()).map(|_| ()), Err(CertificateError::KeyUsage));
}

#[test]
fn an_authority_that_did_not_sign_itself_is_refused() {
    let mut der = authority(1).certificate().der().to_vec();
    let last = der.len() - 1;
    der[last] ^= 1;
    assert_eq!(TrustAnchor::new(&der).map(|_| ()), Err(CertificateError::Signature));
}

/// What a member's key signs, under its own name or under the authority's, is no certificate.
#[test]
fn a_member_cannot_issue_certificates() {
    let mut ca = authority(1);
    let (member, friend) = (MemberSecret::generate(Algorithm::P256, &mut rng(2)), secret(3));
    let issued = ca.issue(&request("member", &member, everything()), NOW, DAY).expect("issued");
    let key = member.signing_key();
    for claimed in [&issued, ca.certificate()] {
        let der = pki_types::CertificateDer::from(&claimed.der()[..]);
        let issuer = Issuer::from_ca_cert_der(&der, Signer(&key)).expect("rcgen does not check");
        let forged = certificate_by(&issuer, &friend);
        let expected = if claimed.is_authority() { CertificateError::Signature } else { CertificateError::Issuer };
        assert_eq!(verify(&ca, &forged), Err(expected));
    }
}

/// An authority under ours is not ours: nobody stands between the authority and its members.
#[test]
fn an_intermediate_authority_is_not_followed() {
    let ca = authority(1);
    let middle = MemberSecret::generate(Algorithm::P256, &mut rng(2));
    let intermediate = certificate(&ca, &middle, |p| {
        p.distinguished_name.push(DnType::CommonName, "intermediate CA");
        p.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        p.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    });
    let key = middle.signing_key();
    let der = pki_types::CertificateDer::from(&intermediate.der()[..]);
    let leaf = certificate_by(&Issuer::from_ca_cert_der(&der, Signer(&key)).expect("read"), &secret(3));
    assert_eq!(verify(&ca, &leaf), Err(CertificateError::Issuer));
    // Whoever trusts the intermediate itself, does.
    let anchor = TrustAnchor::new(intermediate.der()).expect("an authority");
    assert!(anchor.verify(&leaf, Some(later(1)), NOW).is_ok());
    // Where people compare fingerprints it must have signed itself: a forger would change its signature for free.
    assert_eq!(TrustAnchor::self_signed(intermediate.der()).map(drop), Err(CertificateError::Signature));
    assert!(TrustAnchor::self_signed(ca.certificate().der()).is_ok());
}

#[test]
fn unknown_critical_extensions_and_unmet_constraints_are_refused() {
    let ca = authority(1);
    let critical = certificate(&ca, &secret(2), |p| {
        let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
        extension.set_criticality(true);
        p.custom_extensions.push(extension);
    });
    assert_eq!(verify(&ca, &critical), Err(CertificateError::Constraint));
    let key = MemberSecret::generate(Algorithm::P256, &mut rng(4));
    let bound = certificate(&ca, &key, |p| {
        p.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        p.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let only = rcgen::GeneralSubtree::DnsName("example.org".into());
        p.name_constraints = Some(NameConstraints { permitted_subtrees: vec![only], excluded_subtrees: vec![] });
    });
    let signer = key.signing_key();
    let der = pki_types::CertificateDer::from(&bound.der()[..]);
    let mut params = params(&secret(5));
    params.subject_alt_names.push(SanType::DnsName("robots.example.com".try_into().expect("ASCII")));
    let issuer = Issuer::from_ca_cert_der(&der, Signer(&signer)).expect("read");
    let outside = sign(&params, &issuer, &secret(5));
    let anchor = TrustAnchor::new(bound.der()).expect("an authority");
    assert_eq!(anchor.verify(&outside, Some(later(1)), NOW), Err(CertificateError::Constraint));
}

#[test]
fn rule_a10_a_revoked_certificate_is_refused() {
    let mut ca = authority(1);
    let mut anchor = ca.anchor().clone();
    let issue = |ca: &mut Authority, seed| ca.issue(&request("m", &secret(seed), everything()), NOW, 90 * DAY);
    let (lost, kept) = (issue(&mut ca, 2).expect("issued"), issue(&mut ca, 3).expect("issued"));
    let known = anchor.verify(&lost, Some(later(1)), NOW).expect("not revoked yet");
    assert_eq!(ca.revoke(lost.serial(), later(1)), Ok(true));
    assert_eq!(ca.revoke(lost.serial(), later(2)), Ok(false));
    assert_eq!(anchor.learn_crl(&ca.crl(later(1), DAY).expect("signed")), Ok(true));
    assert_eq!(anchor.verify(&lost, Some(later(1)), NOW), Err(CertificateError::Revoked));
    assert_eq!(anchor.check(&known, Some(later(1)), NOW), Err(CertificateError::Revoked), "it bites who is in");
    let kept = anchor.verify(&kept, Some(later(1)), NOW).expect("not revoked");
    assert_eq!(anchor.check(&kept, Some(later(1)), NOW), Ok(()));
    assert_eq!(anchor.check(&kept, Some(later(100)), NOW), Err(CertificateError::Expired));
}

#[test]
fn keys_of_other_algorithms_are_refused() {
    let ca = authority(1);
    let p384 = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).expect("a key");
    let signed = params(&secret(2)).signed_by(&p384, &ca.issuer()).expect("signed");
    assert_eq!(Certificate::parse(signed.der()).map(|_| ()), Err(CertificateError::Algorithm));
}

#[test]
fn broken_fields_are_refused() {
    let ca = authority(1);
    let parse = |change: &dyn Fn(&mut rcgen::CertificateParams)| {
        let mut params = params(&secret(2));
        change(&mut params);
        let signed = params.signed_by(&super::super::authority::Subject(&secret(2).public().signing), &ca.issuer());
        Certificate::parse(signed.expect("signed").der()).map(|_| ())
    };
    let uri = |p: &mut rcgen::CertificateParams, uri: &str| {
        p.subject_alt_names.push(SanType::URI(uri.try_into().expect("ASCII")));
    };
    assert_eq!(parse(&|_| {}), Ok(()));
    assert_eq!(parse(&|p| uri(p, "https://example.org/me")), Ok(()), "others' URIs mean nothing to us");
    for broken in ["urn:sealcast:g:pub", "urn:sealcast:attr:x", "urn:sealcast:key:00", "urn:lcmsec:gkexchg:1"] {
        assert_eq!(parse(&|p| uri(p, broken)), Err(CertificateError::Rights), "{broken}");
    }
    let two_keys = parse(&|p| uri(p, &format!("urn:sealcast:key:{}", "ab".repeat(32))));
    assert_eq!(two_keys, Err(CertificateError::Rights));
    for name in ["", "a\nb", &"x".repeat(65)] {
        let named = parse(&|p| p.distinguished_name.push(DnType::CommonName, name));
        assert_eq!(named, Err(CertificateError::Malformed), "{name:?}");
    }
    for serial in [vec![0], vec![0x7F; 21]] {
        let numbered = parse(&|p| p.serial_number = Some(serial.clone().into()));
        assert_eq!(numbered, Err(CertificateError::Malformed), "{serial:?}");
    }
    let long = parse(&|p| (0..60).for_each(|i| uri(p, &format!("urn:sealcast:g:pub:{i}{}", "x".repeat(60)))));
    assert_eq!(long, Err(CertificateError::Malformed));
    let mut trailing = ca.certificate().der().to_vec();
    trailing.push(0);
    assert_eq!(Certificate::parse(&trailing).map(|_| ()), Err(CertificateError::Malformed));
}

#[test]
fn an_authority_refuses_what_it_cannot_sign() {
    use super::super::authority::AuthorityError;
    let mut ca = authority(1);
    let good = request("m", &secret(2), everything());
    let refused = |ca: &mut Authority, request: &Request, seconds| ca.issue(request, NOW, seconds).map(|_| ());
    let named = |name: &str| Request { name: name.to_owned(), ..good.clone() };
    assert_eq!(refused(&mut ca, &named("a\u{1b}[2J"), DAY), Err(AuthorityError::Name));
    assert_eq!(refused(&mut ca, &named(""), DAY), Err(AuthorityError::Name));
    assert_eq!(refused(&mut ca, &good, 0), Err(AuthorityError::Date));
    assert_eq!(refused(&mut ca, &good, i64::MAX), Err(AuthorityError::Date));
    let many =
        (0..80).map(|i| super::super::Right::new("g", super::super::Act::Publish, &format!("{i}/{}", "x".repeat(50))));
    let many = Request { rights: many.collect::<Result<_, _>>().expect("valid"), ..good.clone() };
    assert_eq!(refused(&mut ca, &many, DAY), Err(AuthorityError::TooLong));
    assert_eq!(ca.ledger().issued().count(), 0, "what was refused took no serial");
    let beyond = ca.issue(&good, NOW, 20 * 365 * DAY).expect("issued");
    assert_eq!(beyond.not_after(), ca.certificate().not_after(), "nobody outlives the authority");
    assert_eq!(ca.revoke(Serial::try_from(7).expect("valid"), NOW), Err(AuthorityError::NoSuchSerial));
}

#[test]
fn an_authority_goes_on_from_what_was_kept() {
    use super::super::authority::AuthorityError;
    use super::super::keytext::AuthoritySecret;
    let mut ca = authority(1);
    let first = ca.issue(&request("first one", &secret(2), everything()), NOW, DAY).expect("issued");
    ca.revoke(first.serial(), NOW).expect("issued before");
    ca.crl(NOW, DAY).expect("signed");
    let ledger: super::super::Ledger = ca.ledger().to_string().parse().expect("what is written is read");
    assert_eq!(&ledger, ca.ledger());
    let secret_text = AuthoritySecret::import(&ca.secret().export()).expect("what is written is read");
    let mut again = Authority::restore(ca.certificate().der(), secret_text, ledger).expect("restored");
    assert_eq!(again.bootstrap_key(GROUP), ca.bootstrap_key(GROUP));
    let second = again.issue(&request("second", &secret(3), everything()), NOW, DAY).expect("issued");
    assert_eq!(second.serial().number(), Some(2));
    assert_eq!(again.ledger().valid_of("first one", NOW), []);
    assert_eq!(again.ledger().valid_of("second", NOW), [second.serial()]);
    let mut anchor = ca.anchor().clone();
    assert_eq!(anchor.learn_crl(&again.crl(NOW, DAY).expect("signed")), Ok(true));
    assert_eq!(anchor.crl().map(Crl::number), Some(2));
    let other_secret = authority(9).secret().clone();
    let mixed = Authority::restore(ca.certificate().der(), other_secret, ca.ledger().clone());
    assert_eq!(mixed.map(|_| ()), Err(AuthorityError::Mismatch));
}

fn sample() -> Vec<u8> {
    certificate(&authority(1), &secret(2), |_| {}).der().to_vec()
}

proptest! {
    #[test]
    fn parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = (Certificate::parse(&bytes), TrustAnchor::new(&bytes));
        let with_head = [&[0x30, 0x82, 0, 200, 0x30, 0x81, 150, 0xA0, 3, 2, 1, 2][..], &bytes].concat();
        let _ = Certificate::parse(&with_head);
    }

    #[test]
    fn a_mutated_certificate_is_refused_without_a_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 1..6),
    ) {
        let (original, ca) = (sample(), authority(1));
        let mut der = original.clone();
        changes.iter().for_each(|(i, x)| der[i.index(original.len())] ^= x);
        let result = Certificate::parse(&der).and_then(|c| verify(&ca, &c));
        prop_assert!(result.is_err() || der == original);
    }
}
