//! The vectors in `crypto/vectors/primitives.json`: our encodings as other people's code computes them (G9).

use serde_json::Value;

use crate::aead::{Key, Suite, TAG_LEN};
use crate::bootstrap::BootstrapKey;
use crate::hash::Transcript;
use crate::kdf::hkdf;
use crate::merkle::{Tree, root_of};
use crate::secret::Secret;
use crate::unhex;

#[test]
fn rule_g9_transcripts() {
    for it in of_kind("transcript", 5) {
        let (label, parts) = (text(&it, "label"), list(&it["parts"]));
        let narrow = parts.iter().fold(Transcript::new(label), |t, part| t.add(part)).finish();
        let wide = parts.iter().fold(Transcript::wide(label), |t, part| t.add(part)).finish();
        assert_eq!(narrow.to_vec(), bytes(&it, "hash32"), "{}", it["name"]);
        assert_eq!(wide.to_vec(), bytes(&it, "hash64"), "{}", it["name"]);
    }
}

#[test]
fn rule_g9_keys() {
    for it in of_kind("hkdf", 2) {
        let info = list(&it["info"]);
        let info: Vec<&[u8]> = info.iter().map(Vec::as_slice).collect();
        let key: Secret<32> = hkdf(&bytes(&it, "ikm"), &bytes(&it, "salt"), &info);
        assert_eq!(key.expose().to_vec(), bytes(&it, "key"), "{}", it["name"]);
    }
}

#[test]
fn rule_g9_seals() {
    for it in of_kind("aead", 12) {
        let suite = match text(&it, "suite") {
            "aes-256-gcm" => Suite::Aes256Gcm,
            "chacha20-poly1305" => Suite::ChaCha20Poly1305,
            other => panic!("suite {other}?"),
        };
        let key = Key::new(suite, &Secret::try_from(&bytes(&it, "key")[..]).unwrap());
        let (counter, aad) = (text(&it, "counter").parse().unwrap(), bytes(&it, "aad"));
        let (plaintext, sealed) = (bytes(&it, "plaintext"), bytes(&it, "sealed"));
        let mut buffer = sealed.clone();
        let opened = key.open(counter, &aad, &mut buffer).map(|it| it.to_vec());
        match text(&it, "expect") {
            "opens" => {
                assert_eq!(opened, Ok(plaintext.clone()), "{}", it["name"]);
                let mut buffer = [&plaintext[..], &[0; TAG_LEN]].concat();
                key.seal(counter, &aad, &mut buffer);
                assert_eq!(buffer, sealed, "{}", it["name"]);
            }
            expect => assert_eq!(opened.unwrap_err().to_string(), expect, "{}", it["name"]),
        }
    }
}

#[test]
fn rule_g9_veils() {
    for it in of_kind("veil", 5) {
        let bootstrap_key = match it.get("group").and_then(Value::as_str) {
            Some(group) => BootstrapKey::public(&array(&bytes(&it, "ca_hash")), group),
            None => BootstrapKey::new(&Secret::from_bytes(array(&bytes(&it, "secret")))),
        };
        let (message, sealed) = (bytes(&it, "message"), bytes(&it, "sealed"));
        let opened = bootstrap_key.open(&sealed);
        match text(&it, "expect") {
            "opens" => {
                assert_eq!(opened, Ok(message.clone()), "{}", it["name"]);
                let nonce = bytes(&it, "nonce").try_into().unwrap();
                assert_eq!(bootstrap_key.seal(nonce, &message), sealed, "{}", it["name"]);
            }
            expect => assert_eq!(opened.unwrap_err().to_string(), expect, "{}", it["name"]),
        }
    }
}

#[test]
fn rule_g9_rule_a12_merkle_trees() {
    for it in of_kind("merkle", 6) {
        let records: Vec<[u8; 32]> = list(&it["records"]).iter().map(|it| array(it)).collect();
        let (tree, root) = (Tree::new(&records), array(&bytes(&it, "root")));
        assert_eq!(tree.root(), root, "{}", it["name"]);
        for (i, path) in it["paths"].as_array().unwrap().iter().enumerate() {
            let path: Vec<[u8; 32]> = list(path).iter().map(|it| array(it)).collect();
            assert_eq!(tree.path(i), path, "{} {i}", it["name"]);
            assert_eq!(root_of(&records[i], i, records.len(), &path), Some(root), "{} {i}", it["name"]);
        }
    }
}

/// The vectors of a kind, of which there are `count`.
fn of_kind(kind: &str, count: usize) -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("../vectors/primitives.json")).unwrap();
    let found: Vec<Value> =
        file["vectors"].as_array().unwrap().iter().filter(|it| it["kind"] == kind).cloned().collect();
    assert_eq!(found.len(), count);
    found
}

fn text<'a>(it: &'a Value, field: &str) -> &'a str {
    it[field].as_str().unwrap_or_else(|| panic!("{}: no {field}", it["name"]))
}

fn bytes(it: &Value, field: &str) -> Vec<u8> {
    unhex(text(it, field))
}

fn list(of: &Value) -> Vec<Vec<u8>> {
    of.as_array().unwrap().iter().map(|it| unhex(it.as_str().unwrap())).collect()
}

fn array(bytes: &[u8]) -> [u8; 32] {
    bytes.try_into().unwrap()
}
