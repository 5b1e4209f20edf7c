use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sealcast_crypto::group::Parameters;
use sealcast_crypto::identity::Authority;
use sealcast_crypto::signature::{Algorithm, OriginKey};
use sealcast_crypto::tdh2::deal;

use super::*;
use crate::fixture::{NOW, World, origin_key};

/// A cluster without a key, and its brokers' keys by number.
fn cluster() -> (ClusterFile, Vec<OriginKey>) {
    let world = World::new();
    let mut keys: Vec<OriginKey> = (210..214).map(origin_key).collect();
    keys.sort_by_key(OriginKey::public_bytes);
    let addresses = (0..4)
        .map(|i| Addresses { gateway: format!("127.0.0.1:{}", 7400 + i), order: format!("broker-{i}.example:7410") })
        .collect();
    let (threshold, suite) = (3, Suite::Ristretto255);
    (ClusterFile { genesis: world.genesis, addresses, threshold, suite, key: None, endorsement: None }, keys)
}

/// What the brokers say of a key that t of n hold.
fn words(file: &ClusterFile, keys: &[OriginKey], t: u16) -> Vec<SignedKey> {
    let parameters = Parameters::new(&file.cluster().0, t, 4);
    let (key, _) = deal::<Ristretto255>(parameters, &mut ChaCha20Rng::seed_from_u64(9)).unwrap();
    let key = key.encode();
    let statement = SignedKey::statement(&file.cluster(), 0, &key);
    keys.iter().map(|it| SignedKey { epoch: 0, key: key.clone(), signature: it.sign(&statement) }).collect()
}

fn numbered(words: &[SignedKey]) -> impl Iterator<Item = (u16, &SignedKey)> {
    (0..).zip(words)
}

#[test]
fn a_file_reads_back_as_it_was_written() {
    let (mut file, keys) = cluster();
    let text = file.to_text();
    assert_eq!(ClusterFile::from_text(&text).expect("it reads").to_text(), text);

    let hospital = World::new().hospital;
    file.endorse(hospital.anchor().clone(), |it| hospital.secret().signing_key().sign(it));
    let words = words(&file, &keys, 3);
    file.set_key(file.agreed_key(numbered(&words)).expect("four agree")).expect("it fits");
    let text = file.to_text();
    let again = ClusterFile::from_text(&text).expect("it reads");
    assert_eq!((again.to_text(), again.cluster(), &again.key), (text, file.cluster(), &file.key));
    assert_eq!(again.signed_by(hospital.fingerprint()), Ok(()));
    assert_eq!(again.number_of(&again.broker_keys()[2]), Some(2));
}

#[test]
fn rule_e11_a_file_of_which_any_pinned_part_was_changed_is_refused() {
    let (mut file, keys) = cluster();
    let hospital = World::new().hospital;
    file.endorse(hospital.anchor().clone(), |it| hospital.secret().signing_key().sign(it));
    let words = words(&file, &keys, 3);
    file.set_key(file.agreed_key(numbered(&words)).unwrap()).unwrap();
    let text = file.to_text();
    let key = &hex::encode(&file.key.as_ref().unwrap().key);
    // One digit of the last element, so that it stays a key's form at most.
    let other_key = format!("{}{}", &key[..key.len() - 2], if key.ends_with("00") { "01" } else { "00" });
    for (from, to, part) in [
        ("quorum = 2", "quorum = 1", "they were changed"),
        ("name = \"test\"", "name = \"tast\"", "they were changed"),
        ("threshold = 3", "threshold = 2", "authority's signature is not over this file"),
        (key.as_str(), other_key.as_str(), ""),
        ("threshold = 3", "threshold = 4", "is 2 (f+1) to 3 (2f+1)"),
        ("epoch = 0", "epoch = 1", "broker 0 did not sign this threshold key"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        let error = ClusterFile::from_text(&changed).map(|_| ()).expect_err(from);
        assert!(error.what.contains(part), "{from}: {error}");
    }
    // Who changes the id as well made another cluster: its key and its authority's signature are gone.
    let mut forged = file.clone();
    forged.genesis.quorum = 1;
    assert_eq!(forged.check(), Err(Mismatch::KeySignature(0)));
    forged.key = None;
    assert_eq!(forged.check(), Err(Mismatch::Endorsement));
    forged.endorsement = None;
    assert_eq!(forged.check(), Ok(()));
    let expected = hospital.fingerprint();
    assert_eq!(forged.signed_by(expected), Err(Mismatch::Unsigned));
    let mut rng = ChaCha20Rng::seed_from_u64(8);
    let another = Authority::create("another CA", Algorithm::P256, NOW, &mut rng).expect("an authority");
    forged.endorse(another.anchor().clone(), |it| another.secret().signing_key().sign(it));
    assert_eq!(forged.check(), Ok(()));
    assert_eq!(forged.signed_by(expected), Err(Mismatch::Authority { found: another.fingerprint(), expected }));
    assert_ne!(forged.cluster(), file.cluster());
}

#[test]
fn rule_e11_a_key_counts_when_2f_and_1_brokers_signed_it() {
    let (mut file, keys) = cluster();
    let mut words = words(&file, &keys, 3);
    assert_eq!(file.agreed_key(numbered(&words[..2])), None, "two of four are too few");
    words[1].signature[3] ^= 1;
    let key = file.agreed_key(numbered(&words)).expect("three are enough");
    assert_eq!(key.signatures.keys().copied().collect::<Vec<_>>(), [0, 2, 3]);
    let mut fewer = key.clone();
    fewer.signatures.remove(&2);
    assert_eq!(file.set_key(fewer), Err(Mismatch::KeySignatures { signed: 2, needed: 3 }));
    let mut swapped = key.clone();
    swapped.signatures.insert(1, words[2].signature);
    assert_eq!(file.set_key(swapped), Err(Mismatch::KeySignature(1)));
    assert_eq!(file.set_key(key), Ok(()));
    // Another threshold than the file's.
    let easier = self::words(&file, &keys, 2);
    assert_eq!(file.agreed_key(numbered(&easier)), None);
}

#[test]
fn mistakes_are_named_with_their_place() {
    let text = cluster().0.to_text();
    let line_of = |part: &str| text.lines().position(|l| l.contains(part)).expect("it is there") + 1;
    for (from, to, part) in [
        ("threshold = 3", "threshold = \"three\"", "invalid type: string \"three\", expected u16"),
        ("suite = \"ristretto255\"", "suite = \"curve\"", "there is no suite 'curve'"),
        ("version = 1", "version = 2", "the file has version 2, and this program reads version 1"),
        ("gateway = \"127.0.0.1:7401\"", "gateway = \"127.0.0.1\"", "'127.0.0.1' is no address"),
        ("quorum = 2", "quorum = 9", "9 of 3 administrators cannot sign"),
        ("quorum = 2", "quorums = 2", "unknown field `quorums`"),
    ] {
        let error = ClusterFile::from_text(&text.replacen(from, to, 1)).map(|_| ()).expect_err(from);
        assert!(error.what.contains(part), "{error}");
        assert_eq!(error.location.map(|p| p.line), Some(line_of(from)), "{error}");
    }
    let brokers = |n: usize| {
        let mut file = cluster().0;
        file.genesis.brokers = file.genesis.brokers.into_iter().take(n).collect();
        file.addresses.truncate(n);
        ClusterFile::from_text(&file.to_text()).map(|_| ()).expect_err("too few").what
    };
    assert!(brokers(3).starts_with("3 brokers: there must be 3f+1"));
    assert!(ClusterFile::from_text("").is_err() && ClusterFile::from_text("\u{0}\u{1}x").is_err());
}
