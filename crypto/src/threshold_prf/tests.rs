//! The PRF in both suites.

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use super::*;
use crate::group::in_both_suites;
use crate::tdh2;

fn system<G: PrimeGroup>(t: u16, n: u16, seed: u64) -> (PublicKey<G>, Vec<KeyShare<G>>, ChaCha20Rng) {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let (key, holders) = deal(Parameters::new(b"test", t, n), &mut rng).unwrap();
    (key, holders, rng)
}

in_both_suites! {
    fn any_t_shares_give_the_same_value = agree;
    fn a_wrong_share_is_refused_and_named = refused;
    fn fewer_than_t_or_foreign_shares_give_nothing = too_few;
    fn the_value_is_that_of_the_whole_key = whole;
    /// S28: the two schemes' keys are different types, and with one x in both their hashes still are.
    fn s28_a_share_of_one_scheme_is_none_of_the_other = apart;
}

fn agree<G: PrimeGroup>() {
    let (key, holders, mut rng) = system::<G>(2, 4, 1);
    let input = key.input(b"leaf 7");
    let shares: Vec<_> = holders.iter().map(|it| it.evaluate(&input, &mut rng).unwrap()).collect();
    let batch: Vec<_> = shares.iter().map(|share| (&input, *share)).collect();
    let verified: Vec<_> = key.verify_batch(&batch, &mut rng).into_iter().map(Result::unwrap).collect();
    let value = key.combine(&input, &verified).unwrap();
    for pair in [[0, 1], [2, 3], [3, 0], [1, 2]] {
        assert_eq!(key.combine(&input, &pair.map(|i| verified[i])).unwrap(), value);
    }
    let other = key.input(b"leaf 8");
    let theirs: Vec<_> =
        holders[..2].iter().map(|it| key.verify(&other, &it.evaluate(&other, &mut rng).unwrap()).unwrap()).collect();
    assert_ne!(key.combine(&other, &theirs).unwrap(), value);
}

fn refused<G: PrimeGroup>() {
    let (key, holders, mut rng) = system::<G>(2, 4, 1);
    let (input, other) = (key.input(b"one"), key.input(b"two"));
    let share = holders[1].evaluate(&input, &mut rng).unwrap();
    assert_eq!(Share::decode(&share.encode()), Ok(share));
    assert_eq!(key.verify(&other, &share), Err(BadShare(2)));
    assert_eq!(key.verify(&input, &Share { index: 3, ..share }), Err(BadShare(3)));
    assert_eq!(key.verify(&input, &Share { index: 5, ..share }), Err(BadShare(5)));
    let bytes = share.encode();
    for bit in (0..bytes.len() * 8).step_by(11) {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(Share::<G>::decode(&changed).map_or(true, |it| key.verify(&input, &it).is_err()), "bit {bit}");
    }
    let batch = [(&input, share), (&other, share), (&input, share)];
    let found: Vec<bool> = key.verify_batch(&batch, &mut rng).iter().map(Result::is_ok).collect();
    assert_eq!(found, [true, false, true]);
    assert_eq!(Share::<G>::decode(&bytes[1..]), Err(DecodeError::Length));
    // A holder's nonce differs for two inputs with one random string.
    let zero = Secret::from_bytes([0; 32]);
    assert_ne!(holders[0].evaluate_with(&input, &zero).h_hat, holders[0].evaluate_with(&other, &zero).h_hat);
}

fn too_few<G: PrimeGroup>() {
    let (key, holders, mut rng) = system::<G>(3, 4, 1);
    let (elsewhere, others, _) = system::<G>(3, 4, 2);
    let input = key.input(b"one");
    let verified: Vec<_> =
        holders.iter().map(|it| key.verify(&input, &it.evaluate(&input, &mut rng).unwrap()).unwrap()).collect();
    assert_eq!(key.combine(&input, &verified[..2]).err(), Some(SharesError::TooFew { have: 2, need: 3 }));
    let twice = [verified[0], verified[1], verified[1]];
    assert_eq!(key.combine(&input, &twice).err(), Some(SharesError::Duplicate(2)));
    assert_eq!(key.combine(&key.input(b"two"), &verified).err(), Some(SharesError::Foreign(1)));
    assert_eq!(elsewhere.combine(&input, &verified).err(), Some(SharesError::Foreign(1)));
    assert!(others[0].evaluate(&input, &mut rng).is_none());
    assert_eq!(elsewhere.verify(&input, &holders[0].evaluate(&input, &mut rng).unwrap()), Err(BadShare(1)));
}

fn whole<G: PrimeGroup>() {
    // t = 1: the only share is the whole key, and the value is M^x. It is not computable from h = g^x, since M is
    // hashed to the group and not a known power of g.
    let (key, holders, mut rng) = system::<G>(1, 1, 1);
    let input = key.input(b"one");
    let share = key.verify(&input, &holders[0].evaluate(&input, &mut rng).unwrap()).unwrap();
    let power = Element::<G>::new(G::mul(input.point.point(), holders[0].x.scalar())).unwrap();
    let expect = Transcript::<G>::new("prf-out").add(&key.lasting_hash).add(b"one").element(&power).wide();
    assert_eq!(key.combine(&input, &[share]).unwrap(), expect);
}

fn apart<G: PrimeGroup>() {
    let (key, holders, mut rng) = system::<G>(2, 4, 1);
    let shares: Vec<_> = (1..=4).map(|i| *key.committee.share_of(i).unwrap()).collect();
    let twin = tdh2::PublicKey::new(key.parameters().clone(), key.committee.h, shares).unwrap();
    assert_ne!(*twin.hash(), key.hash);
    assert_ne!(*twin.lasting_hash(), key.lasting_hash);
    // The PRF's proof that log u = log h_i, for a ciphertext whose u is M, is no decryption share.
    let label = tdh2::Label::new(b"c", 1);
    let sealed = twin.encrypt(&label, b"m", &mut rng);
    let bytes = sealed.encode();
    let input = Input { bytes: vec![], key: key.lasting_hash, point: Element::decode(&bytes[..G::POINT_LEN]).unwrap() };
    let share = holders[0].evaluate(&input, &mut rng).unwrap();
    assert!(key.verify(&input, &share).is_ok());
    let foreign = tdh2::ProvedShare::decode(&share.encode()).expect("the layouts agree");
    assert!(twin.verify_share(&twin.bind(sealed, &label), &foreign).is_err());
}

/// `crypto/vectors/tdh2.json`, kind `prf`: a second implementation's.
#[test]
fn rule_g9_values_of_the_prf() {
    fn check<G: PrimeGroup>(it: &serde_json::Value) {
        let bytes = |field: &str| crate::unhex(it[field].as_str().unwrap());
        let list = |field: &str| -> Vec<Vec<u8>> {
            it[field].as_array().unwrap().iter().map(|it| crate::unhex(it.as_str().unwrap())).collect()
        };
        let element = |bytes: &[u8]| Element::<G>::decode(bytes).unwrap();
        let parameters = Parameters { epoch: 5, delta: 1, ..Parameters::new(b"vectors", 2, 4) };
        let holders = list("holders").iter().map(|it| element(it)).collect();
        let key = PublicKey::new(parameters, element(&bytes("h")), holders).unwrap();
        assert_eq!((key.hash.to_vec(), key.lasting_hash.to_vec()), (bytes("pkh"), bytes("pkh0")));
        let input = key.input(&bytes("input"));
        assert_eq!(input.point.bytes(), bytes("point"));
        let random = Secret::try_from(&bytes("random")[..]).unwrap();
        let mut verified = Vec::new();
        for (i, (x, share)) in (1..).zip(list("secrets").iter().zip(list("shares"))) {
            let holder = KeyShare::new(&key, i, &Secret::try_from(&x[..]).unwrap()).unwrap();
            assert_eq!(holder.evaluate_with(&input, &random).encode(), share);
            verified.push(key.verify(&input, &Share::decode(&share).unwrap()).unwrap());
        }
        assert_eq!(key.combine(&input, &verified[2..]).unwrap().expose().to_vec(), bytes("value"));
    }
    let file: serde_json::Value = serde_json::from_str(include_str!("../../vectors/tdh2.json")).unwrap();
    let found: Vec<_> = file["vectors"].as_array().unwrap().iter().filter(|it| it["kind"] == "prf").collect();
    assert_eq!(found.len(), 2);
    check::<crate::group::Ristretto255>(found[0]);
    check::<crate::group::P256>(found[1]);
}
