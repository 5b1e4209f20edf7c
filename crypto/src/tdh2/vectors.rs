//! The vectors in `crypto/vectors/tdh2.json`: the scheme and its formats as a second implementation computes them (G9).

use std::sync::Arc;

use serde_json::Value;

use super::oracle::Full;
use super::*;
use crate::group::{P256, PrimeGroup, Ristretto255};
use crate::secret::Secret;
use crate::unhex;

#[test]
fn rule_g9_labels() {
    let it = &of_kind("label", 1)[0];
    let label = Label::new(b"hospital", 3).header("ward", "skin").header("urgent", "").access(b"role = doctor");
    let label = label.operation(b"pub").executes(b"put stock 7").under(1, 2);
    assert_eq!((label.encode(), label.hash().to_vec()), (bytes(it, "encoded"), bytes(it, "hash")));
    assert_eq!(Label::decode(&bytes(it, "encoded")), Ok(label));
}

#[test]
fn rule_g9_threshold_encryption() {
    for it in of_kind("tdh2", 6) {
        match it["suite"].as_str().unwrap() {
            Ristretto255::NAME => encryption::<Ristretto255>(&it),
            P256::NAME => encryption::<P256>(&it),
            other => panic!("suite {other}?"),
        }
    }
}

fn encryption<G: PrimeGroup>(it: &Value) {
    let name = &it["name"];
    let key = PublicKey::<G>::decode(&bytes(it, "key")).unwrap();
    assert_eq!(key.encode(), bytes(it, "key"), "{name}");
    assert_eq!(key.g_bar().bytes(), bytes(it, "g_bar"), "{name}");
    assert_eq!((key.hash().to_vec(), key.lasting_hash().to_vec()), (bytes(it, "pkh"), bytes(it, "pkh0")), "{name}");

    let label = Label::decode(&bytes(it, "label")).unwrap();
    let seed = Secret::try_from(&bytes(it, "seed")[..]).unwrap();
    let sealed = key.encrypt_with(&label.hash(), &bytes(it, "message"), &seed).unwrap();
    assert_eq!(sealed.encode(), bytes(it, "ciphertext"), "{name}");
    let sealed = Ciphertext::<G>::decode(&bytes(it, "ciphertext")).unwrap();
    let sealed = key.check(key.bind(sealed, &label)).unwrap();
    assert_eq!(sealed.id().to_vec(), bytes(it, "ctid"), "{name}");

    let random = Secret::try_from(&bytes(it, "random")[..]).unwrap();
    let (mut shares, mut verified) = (Vec::new(), Vec::new());
    let lists = list(it, "secrets").into_iter().zip(list(it, "shares")).zip(list(it, "proved"));
    for (i, ((x, share), proved)) in (1..).zip(lists) {
        let holder = KeyShare::new(&key, i, &Secret::try_from(&x[..]).unwrap()).unwrap();
        let found = holder.share(&sealed).unwrap();
        assert_eq!(found.encode(), share, "{name}");
        assert_eq!(holder.prove_with::<Full>(&sealed, found, &random).encode(), proved, "{name}");
        shares.push(Share::decode(&share).unwrap());
        verified.push(key.verify_share(&sealed, &ProvedShare::decode(&proved).unwrap()).unwrap());
    }
    let message = bytes(it, "message").into();
    let mut reader = Combiner::new(Arc::new(key));
    let t = usize::from(reader.key().parameters().threshold);
    assert_eq!(reader.combine(&sealed, &shares[shares.len() - t..]), Ok(Combined::Opened(message)), "{name}");
    assert!(matches!(reader.combine_verified(&sealed, &verified), Ok(Combined::Opened(_))), "{name}");
}

/// The vectors of a kind, of which there are `count`.
fn of_kind(kind: &str, count: usize) -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("../../vectors/tdh2.json")).unwrap();
    let all = file["vectors"].as_array().unwrap();
    let found: Vec<Value> = all.iter().filter(|it| it["kind"] == kind).cloned().collect();
    assert_eq!(found.len(), count);
    found
}

fn bytes(it: &Value, field: &str) -> Vec<u8> {
    unhex(it[field].as_str().unwrap_or_else(|| panic!("{}: no {field}", it["name"])))
}

fn list(it: &Value, field: &str) -> Vec<Vec<u8>> {
    it[field].as_array().unwrap().iter().map(|it| unhex(it.as_str().unwrap())).collect()
}
