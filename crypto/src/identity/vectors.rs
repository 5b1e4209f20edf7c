//! The vectors in `crypto/vectors/identity.json`: what other people's code writes, we read, and write alike (G9).

use sealcast_wire::Utc;
use serde_json::Value;

use super::keytext::{export_bootstrap_key, import_bootstrap_key};
use super::statement::{Learned, Policy, SignedPolicy};
use super::*;
use crate::unhex;

#[test]
fn rule_g9_certificates() {
    for it in of_kind("certificate", 18) {
        let utc = Utc(it["utc"].as_i64().expect("seconds"));
        let verified = TrustAnchor::new(&bytes(&it, "ca")).and_then(|anchor| {
            let certificate = Certificate::parse(&bytes(&it, "der"))?;
            anchor.verify(&certificate, Some(utc), Utc(0))
        });
        match verified {
            Ok(verified) => {
                assert_eq!(text(&it, "expect"), "ok", "{}", it["name"]);
                let rights: Vec<String> = verified.rights.iter().map(Right::to_string).collect();
                assert_eq!(Value::from(rights), it["rights"], "{}", it["name"]);
                assert_eq!((&*verified.name, verified.serial.number()), ("robot7", Some(17)));
            }
            Err(why) => assert_eq!(why.to_string(), text(&it, "expect"), "{}", it["name"]),
        }
    }
}

#[test]
fn rule_g9_revocation_lists() {
    for it in of_kind("crl", 10) {
        let anchor = TrustAnchor::new(&bytes(&it, "ca")).expect("an authority");
        match Crl::verify(&bytes(&it, "der"), &anchor) {
            Ok(crl) => {
                assert_eq!(text(&it, "expect"), "ok", "{}", it["name"]);
                let revoked: Vec<String> = crl.revoked().map(Serial::to_string).collect();
                assert_eq!(
                    (Value::from(revoked), Value::from(crl.number())),
                    (it["revoked"].clone(), it["number"].clone())
                );
            }
            Err(why) => assert_eq!(why.to_string(), text(&it, "expect"), "{}", it["name"]),
        }
    }
}

#[test]
fn rule_g9_key_texts() {
    for it in of_kind("keytext", 4) {
        match text(&it, "expect") {
            "member" => {
                let secret = MemberSecret::import(text(&it, "secret")).expect("a secret");
                assert_eq!(*secret.export(), text(&it, "secret"));
                assert_eq!(secret.public().to_string(), text(&it, "public"), "{}", it["name"]);
                assert_eq!(text(&it, "public").parse(), Ok(secret.public()));
            }
            "authority" => {
                let ca = restore(&it);
                assert_eq!(*ca.secret().export(), text(&it, "secret"));
                assert_eq!(ca.fingerprint().to_string(), text(&it, "fingerprint"));
                assert_eq!(import_bootstrap_key(text(&it, "veil")), Ok(ca.bootstrap_key("ward3")));
                assert_eq!(*export_bootstrap_key(&ca.bootstrap_key("ward3")), text(&it, "veil"));
            }
            _ => {
                let token = JoinToken::import(text(&it, "text")).expect("a token");
                assert_eq!((token.secret.expose()[15], &**token.export()), (15, text(&it, "text")));
            }
        }
    }
}

#[test]
fn rule_g9_statements() {
    for it in of_kind("statement", 9) {
        let anchor = TrustAnchor::new(&bytes(&it, "ca")).expect("an authority");
        let statement = bytes(&it, "bytes");
        let (what, id, says) = match Learned::verify(&statement, &anchor) {
            Ok(Learned::Eviction(signed)) => {
                let said = signed.eviction();
                assert_eq!(said.certificate.0.to_vec(), bytes(&it, "certificate"));
                assert_eq!(said.serial.to_string(), text(&it, "serial"));
                assert_eq!((&*said.reason, said.voids), (text(&it, "reason"), false));
                let says = (said.group.clone(), said.number);
                (format!("eviction by {}", signed.signer().name(&anchor)), signed.id(), says)
            }
            Ok(Learned::Policy(signed)) => {
                let says = (signed.policy().group.clone(), signed.policy().number);
                ("policy".to_owned(), signed.id(), says)
            }
            Ok(Learned::Crl(_)) => panic!("{} is no list", it["name"]),
            Err(why) => {
                assert_eq!(why.to_string(), text(&it, "expect"), "{}", it["name"]);
                continue;
            }
        };
        assert_eq!(what, text(&it, "expect"), "{}", it["name"]);
        assert_eq!((says.0.as_str(), Some(says.1)), (text(&it, "group"), it["number"].as_u64()));
        assert_eq!(id.to_vec(), bytes(&it, "id"));
        assert_eq!(statement::id(&statement, &anchor), Some(id));
    }
}

/// Ed25519 signs alike whoever computes it, so that our authority writes what the vectors have.
#[test]
fn rule_g9_our_authority_signs_the_same_bytes() {
    let mut ca = restore(&of_kind("keytext", 4)[2]);
    for it in of_kind("statement", 9) {
        let expected = bytes(&it, "bytes");
        match text(&it, "expect") {
            "eviction by ward3 CA" => {
                let serial = text(&it, "serial").parse().expect("a serial");
                let certificate = sealcast_wire::CertHash(bytes(&it, "certificate").try_into().expect("32 bytes"));
                assert_eq!(ca.evict("ward3", serial, certificate, text(&it, "reason"), false), Ok(expected));
            }
            "policy" => {
                let known = SignedPolicy::verify(&expected, ca.anchor()).expect("verified");
                assert_eq!(ca.policy(&Policy { number: 99, ..known.policy().clone() }), Ok(expected));
            }
            _ => {}
        }
    }
    assert_eq!((ca.ledger().policy_number(), ca.ledger().crl_number()), (1, 0));
}

#[test]
fn rule_g9_rule_a11_invitations() {
    for it in of_kind("invite", 6) {
        let secret = MemberSecret::import(text(&it, "secret")).expect("a secret");
        let fingerprint = text(&it, "fingerprint").parse().expect("a fingerprint");
        let utc = Utc(it["utc"].as_i64().expect("seconds"));
        match Invite::open(&bytes(&it, "bytes"), &secret, Some(fingerprint), Some(utc), Utc(0)) {
            Ok(opened) => {
                assert_eq!(text(&it, "expect"), "ok", "{}", it["name"]);
                assert_eq!((&*opened.invite.group, &*opened.invite.url), (text(&it, "group"), text(&it, "url")));
                assert!(opened.identity.certificate().rights.may_publish("ward3", "x"));
            }
            Err(why) => assert_eq!(why.to_string(), text(&it, "expect"), "{}", it["name"]),
        }
    }
}

fn restore(it: &Value) -> Authority {
    let secret = AuthoritySecret::import(text(it, "secret")).expect("a secret");
    let ledger = "sealcast-ledger 1\n".parse().expect("an empty ledger");
    Authority::restore(&bytes(it, "ca"), secret, ledger).expect("an authority")
}

/// The vectors of a kind, of which there are `count`.
fn of_kind(kind: &str, count: usize) -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("../../vectors/identity.json")).expect("JSON");
    let all = file["vectors"].as_array().expect("a list");
    let found: Vec<Value> = all.iter().filter(|it| it["kind"] == kind).cloned().collect();
    assert_eq!(found.len(), count, "{kind}");
    found
}

fn text<'a>(it: &'a Value, field: &str) -> &'a str {
    it[field].as_str().unwrap_or_else(|| panic!("{}: no {field}", it["name"]))
}

fn bytes(it: &Value, field: &str) -> Vec<u8> {
    unhex(text(it, field))
}
