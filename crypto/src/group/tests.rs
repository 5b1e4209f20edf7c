//! Both suites, against other people's vectors and against themselves.

use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_core::{CryptoRng, SeedableRng};

use super::*;
use crate::unhex;

/// RFC 9497 §A.1.1.1 and §A.3.1.1: blind · HashToGroup(0x00), mode OPRF.
#[test]
fn rfc9497_hash_to_group() {
    fn blinded<G: PrimeGroup>(dst: &str, blind: &str) -> Vec<u8> {
        let blind = G::decode_scalar(&unhex(blind).try_into().unwrap()).unwrap();
        let point = G::hash_to_point(dst, &[0]);
        G::encode(&G::mul(&point, &blind)).as_ref().to_vec()
    }
    let blind = "64d37aed22a27f5191de1c1d69fadb899d8862b58eb4220029e036ec4c1f6706";
    let expect = "609a0ae68c15a3cf6903766461307e5c8bb2f95e7e6550e1ffa2dc99e412803c";
    assert_eq!(blinded::<Ristretto255>("HashToGroup-OPRFV1-\0-ristretto255-SHA512", blind), unhex(expect));
    let blind = "3338fa65ec36e0290022b48eb562889d89dbfa691d1cde91517fa222ed7ad364";
    let expect = "03723a1e5c09b8b9c18d1dcbca29e8007e95f14f4732d9346d490ffc195110368d";
    assert_eq!(blinded::<P256>("HashToGroup-OPRFV1-\0-P256-SHA256", blind), unhex(expect));
}

/// RFC 9380 §J.1.1, P256_XMD:SHA-256_SSWU_RO_, message "abc".
#[test]
fn rfc9380_j1_1() {
    let point = P256::hash_to_point("QUUX-V01-CS02-with-P256_XMD:SHA-256_SSWU_RO_", b"abc");
    let x = "0bb8b87485551aa43ed54f009230450b492fead5f1cc91658775dac4a3388a0f";
    assert_eq!(P256::encode(&point)[1..].to_vec(), unhex(x));
}

fn each_suite(test: impl Fn(u64) + Copy) {
    (1..4).for_each(test);
}

fn random<G: PrimeGroup>(rng: &mut impl CryptoRng) -> (G::Scalar, G::Point) {
    let x = *SecretScalar::<G>::random(rng).scalar();
    (x, G::mul_base(SecretScalar::<G>::random(rng).scalar()))
}

fn all_multiplications_agree<G: PrimeGroup>(seed: u64) {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let ((x, p), (y, q)) = (random::<G>(&mut rng), random::<G>(&mut rng));
    assert_eq!(G::mul(&G::generator(), &x), G::mul_base(&x));
    assert_eq!(G::mul(&p, &x), G::mul_table(&G::table(&p), &x));
    let statics = G::statics(&[p, q]);
    assert_eq!(G::msm(&statics, &[x], &[y], &[q]), G::mul(&p, &x) + G::mul(&q, &y));
    assert_eq!(G::msm(&statics, &[x, y], &[], &[]), G::mul(&p, &x) + G::mul(&q, &y));
    assert_eq!(G::msm(&statics, &[], &[], &[]), G::identity());
    // Long sums take another way.
    let many: Vec<_> = (0..200).map(|_| random::<G>(&mut rng)).collect();
    let (scalars, points): (Vec<_>, Vec<_>) = many.iter().copied().unzip();
    let expect = many.iter().fold(G::mul(&q, &y), |sum, (x, p)| sum + G::mul(p, x));
    assert_eq!(G::msm(&statics, &[G::Scalar::from(0), y], &scalars, &points), expect);
    assert_eq!(small_msm::<G>(&[-7, 1 << 40, 0], &[p, q, p]), {
        G::mul(&q, &G::Scalar::from(1 << 40)) - G::mul(&p, &G::Scalar::from(7))
    });
    assert_eq!(small_msm::<G>(&[], &[]), G::identity());
}

#[test]
fn all_multiplications_agree_in_both_suites() {
    each_suite(|seed| {
        all_multiplications_agree::<Ristretto255>(seed);
        all_multiplications_agree::<P256>(seed);
    });
}

fn halves_double<G: PrimeGroup>(seed: u64) {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let (x, p) = random::<G>(&mut rng);
    assert_eq!(G::half(&x) + G::half(&x), x);
    assert_eq!(G::invert(&x) * x, G::Scalar::from(1));
    let [a, b] = Element::<G>::doubled([p, G::mul(&p, &G::half(&x))]).unwrap();
    assert_eq!((a, b), (Element::new(p + p).unwrap(), Element::new(G::mul(&p, &x)).unwrap()));
    assert_eq!(*b.point(), G::mul(&p, &x));
    assert!(Element::<G>::doubled([p, G::identity()]).is_none());
}

#[test]
fn halves_double_in_both_suites() {
    each_suite(|seed| {
        halves_double::<Ristretto255>(seed);
        halves_double::<P256>(seed);
    });
}

/// S5: q, q + 1 and 2²⁵⁶ − 1 are no scalars; p + 1 and the like are no elements; the identity has no encoding.
#[test]
fn s5_only_canonical_encodings_decode() {
    let q_ristretto = "edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010";
    let q_p256 = "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551";
    assert!(Ristretto255::decode_scalar(&unhex(q_ristretto).try_into().unwrap()).is_none());
    assert!(P256::decode_scalar(&unhex(q_p256).try_into().unwrap()).is_none());
    assert!(Ristretto255::decode_scalar(&[0xff; 32]).is_none() && P256::decode_scalar(&[0xff; 32]).is_none());
    assert!(SecretScalar::<Ristretto255>::from_bytes(&Secret::from_bytes([0; 32])).is_none());
    assert!(SecretScalar::<P256>::from_bytes(&Secret::from_bytes([0; 32])).is_none());

    // RFC 9496 §A.2: non-canonical field encodings, negative ones, non-squares.
    for bad in [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "f3ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371",
    ] {
        assert!(Element::<Ristretto255>::decode(&unhex(bad)).is_none(), "{bad}");
    }
    let good = P256::encode(&P256::generator());
    assert!(Element::<P256>::decode(&good).is_some());
    for prefix in [0, 1, 4, 5, 6, 7] {
        assert!(Element::<P256>::decode(&[&[prefix][..], &good[1..]].concat()).is_none(), "{prefix}");
    }
    let p = "ffffffff00000001000000000000000000000000ffffffffffffffffffffffff";
    for x in [p, "ffffffff00000001000000000000000000000001000000000000000000000004"] {
        assert!(Element::<P256>::decode(&[vec![2], unhex(x)].concat()).is_none());
    }
    assert!(Element::<P256>::decode(&[0; 33]).is_none() && Element::<P256>::decode(&[0]).is_none());
    assert!(Element::<P256>::new(P256::identity()).is_none());
    assert!(Element::<Ristretto255>::new(Ristretto255::identity()).is_none());
}

#[test]
fn delta_makes_every_coefficient_an_integer() {
    for (t, n, expect) in [(2, 4, 6), (3, 7, 360), (1, 1, 1), (3, 4, 3), (11, 31, 1)] {
        assert_eq!(delta(t, n), expect, "({t}, {n})");
    }
    for n in 1..=13 {
        for t in 1..=n {
            let (delta, last): (u64, Vec<u16>) = (delta(t, n), (n - t + 1..=n).collect());
            assert!(Coefficients::<Ristretto255>::new(&last, delta).are_integers(), "({t}, {n})");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn any_t_shares_make_the_whole(seed: u64, t in 1_u16..6, more in 0_u16..12) {
        fn check<G: PrimeGroup>(seed: u64, t: u16, n: u16) {
            let mut rng = ChaCha20Rng::seed_from_u64(seed);
            let polynomial = Polynomial::<G>::random(t, &mut rng);
            let h = polynomial.at(0).unwrap().public();
            let shares: Vec<_> = (1..=n).map(|i| polynomial.at(i).unwrap().public()).collect();
            let committee = Committee::new(Parameters::new(b"s", t, n), h, shares.clone()).ok().unwrap();
            for last in [true, false] {
                let indices: Vec<u16> = if last { (n - t + 1..=n).collect() } else { (1..=t).collect() };
                let points: Vec<_> = indices.iter().map(|i| *committee.share_of(*i).unwrap().point()).collect();
                for delta in [1, committee.parameters.delta] {
                    let whole = G::mul(h.point(), &G::Scalar::from(delta));
                    assert_eq!(Coefficients::<G>::new(&indices, delta).combine(&points), whole);
                }
            }
            // One wrong share of the public key is found.
            let mut wrong = shares;
            wrong[usize::from(n) - 1] = polynomial.at(n + 1).unwrap().public();
            let refused = Committee::new(Parameters::new(b"s", t, n), h, wrong);
            assert_eq!(refused.err(), (t > 1).then_some(ParametersError::Inconsistent));
        }
        check::<Ristretto255>(seed, t, t + more);
        check::<P256>(seed, t, t + more.min(4));
    }
}

/// Whoever has Z of a ciphertext opens it, so Z is erased like other secrets.
#[test]
fn a_secret_element_erases_itself_and_is_not_shown() {
    fn check<G: PrimeGroup>() {
        let element = Element::<G>::base(&G::Scalar::from(7)).unwrap();
        let mut erased = element;
        erased.zeroize();
        assert!(erased.bytes().iter().all(|byte| *byte == 0) && erased.point() != element.point());
        let secret = SecretElement::<G>::new(*element.point()).unwrap();
        assert_eq!((secret.expose(), format!("{secret:?}")), (&element, "<redacted>".to_owned()));
        assert!(std::mem::needs_drop::<SecretElement<G>>(), "dropping it erases it");
        assert!(SecretElement::<G>::new(G::identity()).is_none());
    }
    check::<Ristretto255>();
    check::<P256>();
}
