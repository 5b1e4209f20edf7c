//! The hashes and JSON of smartcontractkit/tdh2 (Go, P-256), in tests only: that scheme has the flaw S1. Its data reads
//! here, and ours there (`scripts/tdh2-go.sh`), so curve, proofs and interpolation are the same as other people's.
//!
//! ```text
//! cat(P …) = "P256" ‖ ("," ‖ hex of the uncompressed point)*
//! c   = m ⊕ SHA-256("tdh2hash1" ‖ cat(h^r))
//! e   = SHA-256("tdh2hash2" ‖ c ‖ label ‖ cat(u, w, ū, w̄)) mod q
//! e_i = SHA-256("tdh2hash4" ‖ cat(u_i, û, ĥ)) mod q
//! ```
//! Ciphertext (C, u, ū, e, f), share (i − 1, u_i, e_i, f_i): what we commit to follows from e.

use p256::elliptic_curve::sec1::ToSec1Point;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use serde_json::{Value, json};

use super::attacks::scalar;
use super::combine::unmask;
use super::oracle::{CiphertextStatement, Oracle, ShareStatement};
use super::*;
use crate::group::{Element, P256, Parameters, PrimeGroup};
use crate::hash::sha256;
use crate::secret::Secret;

/// The other implementation's hashes.
pub(super) struct Sckt;

impl Oracle<P256> for Sckt {
    fn mask(_: &PublicKey<P256>, _: &Element<P256>, z: &Element<P256>) -> Secret<32> {
        Secret::from_bytes(sha256(&[b"tdh2hash1", &cat([z])[..]].concat()))
    }

    fn ciphertext(it: &CiphertextStatement<'_, P256>) -> Number {
        let [u, u_bar, w, w_bar] = it.elements;
        number(&sha256(&[b"tdh2hash2", &it.masked[..], it.label, &cat([u, w, u_bar, w_bar])].concat()))
    }

    fn share(it: &ShareStatement<'_, P256>) -> Number {
        number(&sha256(&[b"tdh2hash4", &cat(it.answers)[..]].concat()))
    }
}

type Number = <P256 as PrimeGroup>::Scalar;

#[test]
fn data_of_the_go_program_verifies_and_opens() {
    reads(include_str!("../../vectors/tdh2-p256-go.json"), 4);
}

#[test]
fn data_that_the_go_program_accepted_verifies_and_opens() {
    reads(include_str!("../../vectors/tdh2-p256-rust.json"), 2);
}

/// Reads what we write, and prints it: `scripts/tdh2-go.sh` hands that to the Go program.
#[test]
fn data_of_ours_verifies_and_opens() {
    let text = write();
    reads(&text, 3);
    println!("{text}");
}

fn reads(text: &str, shares: usize) {
    let file: Value = serde_json::from_str(text).unwrap();
    let key = key_of(&file["pk"]);
    let (ciphertext, e) = ciphertext_of(&key, &file["ct"]);
    let sealed = key.bind_hash(ciphertext, &array(&file["ct"]["Label"]));
    let relation = sealed.relation::<Sckt>();
    assert!(relation.challenge == e && relation.holds(&key.statics), "ciphertext");

    let mut found = Vec::new();
    for k in 0..shares {
        let (share, e_i) = share_of(&key, &sealed, &file[format!("ds{k}")]);
        let relation = key.share_relation::<Sckt>(&sealed, &share).unwrap();
        assert!(relation.challenge == e_i && relation.holds(&key.statics), "share {k}");
        found.push(share.share);
        // With one bit of the answer changed it verifies no more.
        let mut wrong = file[format!("ds{k}")].clone();
        wrong["F_i"] = base64(&P256::scalar_bytes(&(number(&array(&wrong["F_i"])) + Number::ONE))).into();
        let (wrong, _) = share_of(&key, &sealed, &wrong);
        assert!(key.share_relation::<Sckt>(&sealed, &wrong).unwrap().challenge != e_i);
    }
    let mut reader = Combiner::new(std::sync::Arc::new(key));
    for pair in found.windows(2) {
        let z = Element::new(reader.interpolate(pair)).unwrap();
        let message = unmask::<P256, Sckt>(reader.key(), &sealed, &z);
        assert_eq!(*message.expose(), array(&file["msg"]));
    }
}

fn write() -> String {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let parameters = Parameters { delta: 1, ..Parameters::new(b"", 2, 4) };
    let (key, holders) = deal::<P256>(parameters, &mut rng).unwrap();
    let (message, label) = ([0x5a; 32], [0xa5; 32]);
    let sealed = key.seal::<Sckt>(&label, &message, [0; 32], vec![], &[0; 32], &scalar(1), &scalar(2)).unwrap();
    let sealed = key.bind_hash(sealed, &label);
    let it = &sealed.ciphertext;
    let point = |it: &Element<P256>| base64(&uncompressed(it));
    let scalar = |it: &Number| base64(&P256::scalar_bytes(it));
    let mut file = json!({
        "pk": {
            "Group": "P256",
            "G_bar": point(key.g_bar()),
            "H": point(key.h()),
            "HArray": (1..=4).map(|i| point(key.share_of(i).unwrap())).collect::<Vec<_>>(),
        },
        "ct": {
            "Group": "P256",
            "C": base64(&it.masked),
            "Label": base64(&label),
            "U": point(&it.u),
            "U_bar": point(&it.u_bar),
            "E": scalar(&sealed.relation::<Sckt>().challenge),
            "F": scalar(&it.f),
        },
        "msg": base64(&message),
    });
    for (k, i) in [0, 2, 3].into_iter().enumerate() {
        let u_i = Element::new(P256::mul(it.u.point(), holders[i].x.scalar())).unwrap();
        let share = Share { index: holders[i].index, u_i };
        let proved = holders[i].prove_with::<Sckt>(&sealed, share, &Secret::random(&mut rng));
        file[format!("ds{k}")] = json!({
            "Group": "P256",
            "Index": i,
            "U_i": point(&u_i),
            "E_i": scalar(&key.share_relation::<Sckt>(&sealed, &proved).unwrap().challenge),
            "F_i": scalar(&proved.f),
        });
    }
    serde_json::to_string_pretty(&file).unwrap()
}

fn key_of(pk: &Value) -> PublicKey<P256> {
    let shares: Vec<_> = pk["HArray"].as_array().unwrap().iter().map(element).collect();
    let parameters = Parameters { delta: 1, ..Parameters::new(b"", 2, shares.len() as u16) };
    PublicKey::with_g_bar(parameters, element(&pk["H"]), element(&pk["G_bar"]), shares).unwrap()
}

/// w = g^f u^−e, w̄ = ḡ^f ū^−e.
fn ciphertext_of(key: &PublicKey<P256>, ct: &Value) -> (Ciphertext<P256>, Number) {
    let (u, u_bar) = (element(&ct["U"]), element(&ct["U_bar"]));
    let (e, f) = (number(&array(&ct["E"])), number(&array(&ct["F"])));
    let commitment =
        |base: &_, image: &Element<P256>| Element::new(P256::mul(base, &f) - P256::mul(image.point(), &e)).unwrap();
    let (w, w_bar) = (commitment(&P256::generator(), &u), commitment(key.g_bar().point(), &u_bar));
    (Ciphertext { u, u_bar, w, w_bar, f, masked: array(&ct["C"]), commitment: [0; 32], body: vec![] }, e)
}

/// û = u^f u_i^−e, ĥ = g^f h_i^−e.
fn share_of(key: &PublicKey<P256>, sealed: &Labelled<P256>, ds: &Value) -> (ProvedShare<P256>, Number) {
    let index = ds["Index"].as_u64().unwrap() as u16 + 1;
    let (u_i, e, f) = (element(&ds["U_i"]), number(&array(&ds["E_i"])), number(&array(&ds["F_i"])));
    let commitment =
        |base: &_, image: &Element<P256>| Element::new(P256::mul(base, &f) - P256::mul(image.point(), &e)).unwrap();
    let u_hat = commitment(sealed.ciphertext.u.point(), &u_i);
    let h_hat = commitment(&P256::generator(), key.share_of(index).unwrap());
    (ProvedShare { share: Share { index, u_i }, u_hat, h_hat, f }, e)
}

fn cat<'a>(elements: impl IntoIterator<Item = &'a Element<P256>>) -> Vec<u8> {
    let hex = |it: &Element<P256>| uncompressed(it).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    elements.into_iter().fold("P256".to_string(), |all, it| all + "," + &hex(it)).into_bytes()
}

fn uncompressed(element: &Element<P256>) -> Vec<u8> {
    element.point().to_affine().to_sec1_point(false).as_bytes().to_vec()
}

fn element(of: &Value) -> Element<P256> {
    let bytes = unbase64(of.as_str().unwrap());
    let element = Element::decode(&[&[2 + (bytes[64] & 1)], &bytes[1..33]].concat()).unwrap();
    assert_eq!(uncompressed(&element), bytes);
    element
}

fn array(of: &Value) -> [u8; 32] {
    unbase64(of.as_str().unwrap()).try_into().unwrap()
}

/// 32 bytes mod q.
fn number(bytes: &[u8; 32]) -> Number {
    let mut wide = [0; 64];
    wide[16..48].copy_from_slice(bytes);
    P256::reduce(&wide)
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, i| bits << 8 | u32::from(*three.get(i).unwrap_or(&0)));
        for i in 0..4 {
            let digit = BASE64[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

fn unbase64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let digit = |i: usize| four.get(i).map_or(0, |it| BASE64.iter().position(|b| b == it).unwrap() as u32);
        let bits = (0..4).fold(0, |bits, i| bits << 6 | digit(i));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
    }
    bytes
}
