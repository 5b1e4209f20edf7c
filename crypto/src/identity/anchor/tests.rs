use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyUsagePurpose, SanType,
};

use super::super::authority::{Authority, Signer, Subject};
use super::super::fixture::{
    DAY, NOW, authority, authority_with, certificate, date, everything, later, member, request, rng,
};
use super::super::keytext::MemberSecret;
use super::*;

fn secret(seed: u64) -> MemberSecret {
    MemberSecret::generate(Algorithm::Ed25519, &mut rng(seed))
}

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
fn a_certificate_under_a_wrong_root_of_the_same_name_is_refused() {
    let (mut ours, theirs) = (authority(1), authority(2));
    let issued = member(&mut ours, everything(), 3);
    let certificate = Certificate::parse(&issued.certificate().der).expect("read");
    assert_eq!(verify(&theirs, &certificate), Err(CertificateError::Signature));
}
