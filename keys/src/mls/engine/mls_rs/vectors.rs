//! RFC 9420's vectors for suites 1 and 2 (`mls/vectors/README.md`): our cryptography under mls-rs, and our tree hashes.

use std::sync::Arc;

use mls_rs::error::MlsError;
use mls_rs::group::ExportedTree;
use mls_rs::identity::basic::BasicIdentityProvider;
use mls_rs::{Client, MlsMessage};
use mls_rs_core::crypto::{CipherSuiteProvider, HpkeCiphertext};
use mls_rs_core::key_package::KeyPackageData;
use mls_rs_core::psk::ExternalPskId;
use sealcast_crypto::cipher_suite::CipherSuite;
use sealcast_crypto::hash::sha256;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::SigningKey;
use sealcast_wire::Utc;
use serde_json::Value;

use super::inspect::package_reference;
use super::nodes;
use super::provider::{Provider, Signatures};
use super::record::encoded;
use super::store::PackageCell;
use crate::mls::engine::put_length;

macro_rules! vectors {
    ($name:literal) => {
        serde_json::from_str::<Vec<Value>>(include_str!(concat!("../../vectors/", $name, ".json"))).unwrap()
    };
}

fn bytes(value: &Value) -> Vec<u8> {
    let digits = value.as_str().unwrap_or_else(|| panic!("{value} is no text"));
    let byte = |i: usize| u8::from_str_radix(&digits[i..i + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn suite(vector: &Value) -> CipherSuite {
    match vector["cipher_suite"].as_u64() {
        Some(1) => CipherSuite::X25519,
        Some(2) => CipherSuite::P256,
        other => panic!("suite {other:?}"),
    }
}

fn signing_key(suite: CipherSuite, private: &[u8]) -> Arc<SigningKey> {
    Arc::new(SigningKey::from_seed(suite.algorithm(), &Secret::try_from(private).unwrap()).unwrap())
}

fn provider(suite: CipherSuite) -> Provider {
    Provider::new(suite, signing_key(suite, &[1; 32]))
}

/// Vectors in a row (RFC 9420, section 2.1.2).
fn row(parts: &[&[u8]]) -> Vec<u8> {
    let mut row = Vec::new();
    for part in parts {
        put_length(&mut row, part.len());
        row.extend_from_slice(part);
    }
    row
}

fn labeled(label: &str) -> Vec<u8> {
    [b"MLS 1.0 ", label.as_bytes()].concat()
}

/// RFC 9420, section 8.
fn expand_with_label(provider: &Provider, secret: &[u8], label: &str, context: &[u8], length: usize) -> Vec<u8> {
    let info = [&(length as u16).to_be_bytes()[..], &row(&[&labeled(label), context])].concat();
    provider.kdf_expand(secret, &info, length).unwrap().to_vec()
}

#[test]
fn rfc9420_crypto_basics() {
    let vectors = vectors!("crypto-basics");
    assert_eq!(vectors.len(), 2);
    for it in &vectors {
        let suite = suite(it);
        let own = provider(suite);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        // RefHash(label, value) = Hash(RefHashInput)
        let v = &it["ref_hash"];
        assert_eq!(sha256(&row(&[text(&v["label"]).as_bytes(), &bytes(&v["value"])])).to_vec(), bytes(&v["out"]));

        let v = &it["expand_with_label"];
        let length = v["length"].as_u64().unwrap() as usize;
        let out = expand_with_label(&own, &bytes(&v["secret"]), &text(&v["label"]), &bytes(&v["context"]), length);
        assert_eq!(out, bytes(&v["out"]));

        let v = &it["derive_secret"];
        assert_eq!(expand_with_label(&own, &bytes(&v["secret"]), &text(&v["label"]), b"", 32), bytes(&v["out"]));

        let v = &it["derive_tree_secret"];
        let generation = (v["generation"].as_u64().unwrap() as u32).to_be_bytes();
        let length = v["length"].as_u64().unwrap() as usize;
        let out = expand_with_label(&own, &bytes(&v["secret"]), &text(&v["label"]), &generation, length);
        assert_eq!(out, bytes(&v["out"]));

        let v = &it["sign_with_label"];
        let signer = Provider::new(suite, signing_key(suite, &bytes(&v["priv"])));
        let public = signer.signature_key_derive_public(&signer.handle()).unwrap();
        assert_eq!(public.to_vec(), bytes(&v["pub"]));
        let content = row(&[&labeled(&text(&v["label"])), &bytes(&v["content"])]);
        signer.verify(&public, &bytes(&v["signature"]), &content).unwrap();
        let again = signer.sign(&signer.handle(), &content).unwrap();
        own.verify(&public, &again, &content).unwrap();
        assert!(own.verify(&public, &again, b"another").is_err());

        let v = &it["encrypt_with_label"];
        let (private, public) = (bytes(&v["priv"]).into(), bytes(&v["pub"]).into());
        let context = row(&[&labeled(&text(&v["label"])), &bytes(&v["context"])]);
        let sealed = HpkeCiphertext { kem_output: bytes(&v["kem_output"]), ciphertext: bytes(&v["ciphertext"]) };
        let plaintext = bytes(&v["plaintext"]);
        assert_eq!(*own.hpke_open(&sealed, &private, &public, &context, None).unwrap(), plaintext);
        let (again, _) = own.with_seed("test", Utc(0), &Secret::from_bytes([7; 32]), Signatures::new(), || {
            own.hpke_seal(&public, &context, None, &plaintext).unwrap()
        });
        assert_eq!(*own.hpke_open(&again, &private, &public, &context, None).unwrap(), plaintext);
    }
}

/// The steps of section 8 by our primitives alone.
#[test]
fn rfc9420_key_schedule() {
    let vectors = vectors!("key-schedule");
    assert_eq!(vectors.len(), 2);
    for it in &vectors {
        let own = provider(suite(it));
        let mut init_secret = bytes(&it["initial_init_secret"]);
        for epoch in it["epochs"].as_array().unwrap() {
            let of = |name: &str| bytes(&epoch[name]);
            let derive = |secret: &[u8], label: &str| expand_with_label(&own, secret, label, b"", 32);
            let pre = own.kdf_extract(&init_secret, &of("commit_secret")).unwrap();
            let joiner = expand_with_label(&own, &pre, "joiner", &of("group_context"), 32);
            assert_eq!(joiner, of("joiner_secret"));
            let member = own.kdf_extract(&joiner, &of("psk_secret")).unwrap();
            assert_eq!(derive(&member, "welcome"), of("welcome_secret"));
            let secret = expand_with_label(&own, &member, "epoch", &of("group_context"), 32);
            for (label, name) in [
                ("sender data", "sender_data_secret"),
                ("encryption", "encryption_secret"),
                ("exporter", "exporter_secret"),
                ("external", "external_secret"),
                ("confirm", "confirmation_key"),
                ("membership", "membership_key"),
                ("resumption", "resumption_psk"),
                ("authentication", "epoch_authenticator"),
                ("init", "init_secret"),
            ] {
                assert_eq!(derive(&secret, label), of(name), "{name}");
            }
            let (_, external) = own.kem_derive(&of("external_secret")).unwrap();
            assert_eq!(external.to_vec(), of("external_pub"));
            let exporter = &epoch["exporter"];
            let exported = derive(&of("exporter_secret"), exporter["label"].as_str().unwrap());
            let context = own.hash(&bytes(&exporter["context"])).unwrap();
            let length = exporter["length"].as_u64().unwrap() as usize;
            assert_eq!(expand_with_label(&own, &exported, "exported", &context, length), bytes(&exporter["secret"]));
            init_secret = of("init_secret");
        }
    }
}

#[test]
fn rfc9420_tree_hashes() {
    let vectors = vectors!("tree-validation");
    assert_eq!(vectors.len(), 28);
    for it in &vectors {
        let tree = ExportedTree::from_bytes(&bytes(&it["tree"])).unwrap();
        let expected: Vec<Vec<u8>> = it["tree_hashes"].as_array().unwrap().iter().map(bytes).collect();
        let hashes: Vec<Vec<u8>> = nodes::tree_hashes(tree.nodes()).iter().map(|it| it.to_vec()).collect();
        assert_eq!(hashes, expected);
    }
    for it in vectors!("tree-operations") {
        for (tree, hash) in [("tree_before", "tree_hash_before"), ("tree_after", "tree_hash_after")] {
            let tree = ExportedTree::from_bytes(&bytes(&it[tree])).unwrap();
            let hashes = nodes::tree_hashes(tree.nodes());
            assert_eq!(hashes[hashes.len() / 2].to_vec(), bytes(&it[hash]));
        }
    }
}

/// Our list of changed nodes makes the tree after a proposal of the tree before it.
#[test]
fn rfc9420_tree_operations() {
    let vectors = vectors!("tree-operations");
    assert_eq!(vectors.len(), 5);
    for it in &vectors {
        let [before, after] = ["tree_before", "tree_after"].map(|name| bytes(&it[name]));
        let [old, new] = [&before, &after].map(|tree| ExportedTree::from_bytes(tree).unwrap());
        let leaves = nodes::changed_leaves(old.nodes(), new.nodes());
        let changes = nodes::changes(old.nodes(), new.nodes(), &leaves);
        let mut list: Vec<Vec<u8>> = (0..old.nodes().len()).map(|i| nodes::encode(old.nodes(), i as u32)).collect();
        changes.apply_to(&mut list);
        assert_eq!(crate::mls::engine::assemble(list.iter().map(Vec::as_slice)), after);
    }
}

#[test]
fn rfc9420_messages() {
    for it in vectors!("messages") {
        let names = ["mls_welcome", "mls_group_info", "mls_key_package", "private_message"];
        let public = ["public_message_application", "public_message_proposal", "public_message_commit"];
        for name in names.into_iter().chain(public) {
            let message = bytes(&it[name]);
            assert_eq!(MlsMessage::from_bytes(&message).unwrap().to_bytes().unwrap(), message, "{name}");
        }
        let tree = bytes(&it["ratchet_tree"]);
        assert_eq!(ExportedTree::from_bytes(&tree).unwrap().to_bytes().unwrap(), tree);
    }
}

/// Decrypts the Welcome, and verifies the GroupInfo that is in it.
#[test]
fn rfc9420_welcome() {
    let vectors = vectors!("welcome");
    assert_eq!(vectors.len(), 2);
    for it in &vectors {
        let packages = PackageCell::default();
        let package = MlsMessage::from_bytes(&bytes(&it["key_package"])).unwrap().into_key_package().unwrap();
        let package = encoded(&package);
        let data = KeyPackageData::new(package.clone(), bytes(&it["init_priv"]).into(), vec![].into(), u64::MAX);
        packages.put(package_reference(&package).0, data);
        let client = Client::builder()
            .crypto_provider(provider(suite(it)))
            .identity_provider(BasicIdentityProvider::new())
            .key_package_repo(packages)
            .build();
        let welcome = MlsMessage::from_bytes(&bytes(&it["welcome"])).unwrap();
        let info = client.examine_welcome_message(&welcome).unwrap();
        // struct { version = mls10; wire_format = mls_group_info; GroupInfo group_info; } MLSMessage
        let message = [&[0, 1, 0, 4][..], &encoded(&info)].concat();
        let message = MlsMessage::from_bytes(&message).unwrap();
        let credential = mls_rs_core::identity::BasicCredential::new(b"signer".to_vec()).into_credential();
        let signer = |key: Vec<u8>| mls_rs_core::identity::SigningIdentity::new(credential.clone(), key.into());
        client.validate_group_info(&message, &signer(bytes(&it["signer_pub"]))).unwrap();
        let other = signer(provider(suite(it)).handle().to_vec());
        assert!(client.validate_group_info(&message, &other).is_err());
    }
}

/// Joins by a Welcome and follows all epochs; answers how many.
fn follow(it: &Value) -> Result<usize, MlsError> {
    let suite = suite(it);
    let packages = PackageCell::default();
    let own = Provider::new(suite, signing_key(suite, &bytes(&it["signature_priv"])));
    let package = MlsMessage::from_bytes(&bytes(&it["key_package"])).unwrap().into_key_package().unwrap();
    let public = own.signature_key_derive_public(&own.handle()).unwrap();
    assert_eq!(package.signing_identity().signature_key, public);
    let keys = [&it["init_priv"], &it["encryption_priv"]].map(bytes);
    let init = suite.kem_pair(&Secret::try_from(&keys[0][..]).unwrap()).unwrap();
    assert_eq!(init.public, package.hpke_init_key.to_vec());
    let (identity, encoded_package) = (package.signing_identity().clone(), encoded(&package));
    let [init, leaf] = keys.map(Into::into);
    packages.put(package_reference(&encoded_package).0, KeyPackageData::new(encoded_package, init, leaf, u64::MAX));
    let mut builder = Client::builder()
        .crypto_provider(own.clone())
        .identity_provider(BasicIdentityProvider::new())
        .key_package_repo(packages)
        .signing_identity(identity, own.handle(), own.cipher_suite());
    for psk in it["external_psks"].as_array().unwrap() {
        builder = builder.psk(ExternalPskId::new(bytes(&psk["psk_id"])), bytes(&psk["psk"]).into());
    }
    let client = builder.build();
    let tree = it["ratchet_tree"].as_str().map(|_| ExportedTree::from_bytes(&bytes(&it["ratchet_tree"])).unwrap());
    let welcome = MlsMessage::from_bytes(&bytes(&it["welcome"])).unwrap();
    let (mut group, _) = client.join_group(tree, &welcome, None).unwrap();
    assert_eq!(group.epoch_authenticator().unwrap().to_vec(), bytes(&it["initial_epoch_authenticator"]));
    let epochs = it["epochs"].as_array().unwrap();
    for epoch in epochs {
        let proposals = epoch["proposals"].as_array().unwrap();
        for message in proposals.iter().chain([&epoch["commit"]]) {
            let message = MlsMessage::from_bytes(&bytes(message)).unwrap();
            group.process_incoming_message(message)?;
        }
        assert_eq!(group.epoch_authenticator().unwrap().to_vec(), bytes(&epoch["epoch_authenticator"]));
        let tree = group.export_tree();
        let hashes = nodes::tree_hashes(tree.nodes());
        assert_eq!(group.context().tree_hash, hashes[hashes.len() / 2]);
    }
    Ok(epochs.len())
}

#[test]
fn rfc9420_passive_client_welcome() {
    let vectors = vectors!("passive-client-welcome");
    assert_eq!(vectors.len(), 16);
    vectors.iter().for_each(|it| assert_eq!(follow(it).unwrap(), 0));
}

#[test]
fn rfc9420_passive_client_handling_commit() {
    let vectors = vectors!("passive-client-handling-commit");
    assert_eq!(vectors.len(), 26);
    let followed = vectors.iter().map(follow).filter(|it| match it {
        Ok(epochs) => *epochs == 2,
        // It takes a key of an earlier epoch in, which we keep none of: `prior_epoch` is off.
        Err(MlsError::OldGroupStateNotFound) => false,
        Err(error) => panic!("{error}"),
    });
    assert_eq!(followed.count(), 18, "of 26");
}

#[test]
fn rfc9420_passive_client_random() {
    let vectors = vectors!("passive-client-random");
    assert_eq!(vectors.iter().map(|it| follow(it).unwrap()).sum::<usize>(), 40);
}
