//! The attacks that break the printed scheme and its likely repairs, run against those and against ours.
//!
//! The adversary is a publisher together with one holder of a key share.

use super::ciphertext::body_hash;
use super::combine::unmask;
use super::oracle::{CiphertextStatement, Full, Oracle, ShareStatement};
use super::tests::{System, label, system};
use super::*;
use crate::group::{Element, P256, PrimeGroup, SecretScalar, Transcript, in_both_suites};
use crate::secret::Secret;

/// Fig. 8 as printed: H3 covers u_i, û and ĥ.
struct Printed;

impl<G: PrimeGroup> Oracle<G> for Printed {
    fn mask(key: &PublicKey<G>, u: &Element<G>, z: &Element<G>) -> Secret<32> {
        <Full as Oracle<G>>::mask(key, u, z)
    }

    fn ciphertext(it: &CiphertextStatement<'_, G>) -> G::Scalar {
        Full::ciphertext(it)
    }

    fn share(it: &ShareStatement<'_, G>) -> G::Scalar {
        Transcript::<G>::new("H3").elements(it.answers).scalar()
    }
}

/// A scalar by number.
pub(super) fn scalar<G: PrimeGroup>(n: u64) -> SecretScalar<G> {
    SecretScalar::new(Transcript::<G>::new("test").add(&n.to_be_bytes()).scalar()).unwrap()
}

/// A ciphertext of anything, with a right proof of r.
pub(super) fn craft<G: PrimeGroup>(
    key: &PublicKey<G>,
    label: &Label,
    r: &SecretScalar<G>,
    s: &SecretScalar<G>,
    masked: [u8; 32],
    commitment: [u8; 32],
    body: Vec<u8>,
) -> Ciphertext<G> {
    let power = |x: &SecretScalar<G>| Element::new(G::mul_table(&key.g_bar_table, x.scalar())).unwrap();
    let (u, u_bar, w, w_bar) = (r.public(), power(r), s.public(), power(s));
    let e = Full::ciphertext(&CiphertextStatement {
        key: key.lasting_hash(),
        label: &label.hash(),
        masked: &masked,
        body: &body_hash::<G>(&commitment, &body),
        body_len: body.len(),
        elements: [&u, &u_bar, &w, &w_bar],
    });
    let f = *s.scalar() + *r.scalar() * e;
    Ciphertext { u, u_bar, w, w_bar, f, masked, commitment, body }
}

/// S1. Pick a, b, s; u_i = g^a, û = g^b, ĥ = g^s; e = H3(…); f = s + x_i e; r = (b + ae)/f, u = g^r. Then
/// g^f = ĥ h_i^e and u^f = g^(b + ae) = û u_i^e, and u_i is not u^x_i.
///
/// e must be known before u is: the forger takes it over a statement about some other u, and whether that is the one
/// that a verifier takes is what the test finds out.
fn forge<G: PrimeGroup, O: Oracle<G>>(it: &System<G>) -> (Labelled<G>, ProvedShare<G>) {
    let holder = &it.holders[0];
    let (a, b, s) = (scalar::<G>(1), scalar::<G>(2), scalar::<G>(3));
    let (u_i, u_hat, h_hat) = (a.public(), b.public(), s.public());
    let some = b.public();
    let e = O::share(&ShareStatement {
        key: it.key.hash(),
        index: 1,
        ciphertext: &[0; 32],
        bases: [&some, &holder.h_i],
        answers: [&u_i, &u_hat, &h_hat],
    });
    let f = *s.scalar() + *holder.x.scalar() * e;
    let r = SecretScalar::new((*b.scalar() + *a.scalar() * e) * G::invert(&f)).unwrap();
    // An honest ciphertext but for its r.
    let digest = body_hash::<G>(&[0; 32], b"");
    let sealed = it.key.seal::<O>(&label().hash(), &[0x5a; 32], [0; 32], vec![], &digest, &r, &scalar(4)).unwrap();
    let share = Share { index: 1, u_i };
    (it.key.bind(sealed, &label()), ProvedShare { share, u_hat, h_hat, f })
}

/// σ as two sets of verified shares give it: {1, 2} with the forged share, {2, 3} without.
fn sigmas<G: PrimeGroup, O: Oracle<G>>(
    it: &mut System<G>,
    sealed: &Labelled<G>,
    forged: &ProvedShare<G>,
) -> [[u8; 32]; 2] {
    let honest = |i: usize| {
        let holder = &it.holders[i];
        Share {
            index: holder.index,
            u_i: Element::new(G::mul(sealed.ciphertext.u.point(), holder.x.scalar())).unwrap(),
        }
    };
    let (second, third) = (honest(1), honest(2));
    [[forged.share, second], [second, third]].map(|pair| {
        let z = Element::new(it.reader.interpolate(&pair)).unwrap();
        *unmask::<G, O>(&it.key, sealed, &z).expose()
    })
}

in_both_suites! {
    /// S1: with the printed hash the forged share verifies, the ciphertext is well-formed, and two sets of verified
    /// shares decrypt to different things. With ours the share is refused.
    fn s1_the_forged_share_of_fig_8_is_refused = forged_share;
    fn optimistic_combining_needs_more_than_a_committing_aead = trap_commitment;
    fn optimistic_combining_needs_the_equation_of_z = trap_first_equation;
    fn optimistic_combining_needs_the_equation_of_u = trap_second_equation;
}

fn forged_share<G: PrimeGroup>() {
    let mut it = system::<G>(2, 4);
    let (sealed, forged) = forge::<G, Printed>(&it);
    assert!(sealed.relation::<Printed>().holds(&it.key.statics), "the ciphertext is well-formed");
    let relation = it.key.share_relation::<Printed>(&sealed, &forged).unwrap();
    assert!(relation.holds(&it.key.statics), "the printed Vrf accepts it");
    let [with, without] = sigmas::<G, Printed>(&mut it, &sealed, &forged);
    assert_eq!(without, [0x5a; 32]);
    assert_ne!(with, without, "two readers, two plaintexts");

    for (sealed, forged) in [(sealed, forged), forge::<G, Full>(&it)] {
        let checked = it.key.check(sealed).expect("its publisher does know r");
        assert_eq!(it.key.verify_share(&checked, &forged), Err(BadShare(1)));
        let batch = [(&*checked, forged), (&*checked, forged)];
        assert_eq!(it.key.verify_shares(&batch, &mut it.rng), [Err(BadShare(1)); 2]);
        // Unproved it misleads nobody either: r was not made from σ.
        let shares = [forged.share, it.holders[1].share(&checked).unwrap()];
        assert_eq!(it.reader.combine(&checked, &shares), Ok(Combined::NeedProofs));
    }
}

/// S1b: smartcontractkit/tdh2 hashes the same three elements, and the same attack breaks it.
#[test]
fn s1b_the_same_hash_elsewhere_breaks_the_same_way() {
    let mut it = system::<P256>(2, 4);
    let (sealed, forged) = forge::<P256, sckt::Sckt>(&it);
    assert!(sealed.relation::<sckt::Sckt>().holds(&it.key.statics));
    assert!(it.key.share_relation::<sckt::Sckt>(&sealed, &forged).unwrap().holds(&it.key.statics));
    let [with, without] = sigmas::<P256, sckt::Sckt>(&mut it, &sealed, &forged);
    assert_eq!(without, [0x5a; 32]);
    assert_ne!(with, without);
}

/// What a reader with some of the checks reads from {1, 2}, and from {2, 3}.
fn weak_readers<G: PrimeGroup>(
    it: &mut System<G>,
    sealed: &Labelled<G>,
    false_share: Share<G>,
    equation: impl Fn(&PublicKey<G>, &SecretScalar<G>, &Element<G>) -> bool,
) -> [Option<Vec<u8>>; 2] {
    let checked = it.key.check(sealed.clone()).expect("the publisher made its proof right");
    let shares = it.shares(&checked);
    [[false_share, shares[1]], [shares[1], shares[2]]].map(|pair| {
        let z = Element::new(it.reader.interpolate(&pair)).unwrap();
        let sigma = unmask::<G, Full>(&it.key, sealed, &z);
        let (key, commitment) = it.key.body_key(&sealed.label, sigma.expose());
        let r = it.key.exponent(&sealed.label, sigma.expose(), &sealed.body).unwrap();
        if commitment != sealed.ciphertext.commitment || !equation(&it.key, &r, &z) {
            return None;
        }
        let mut body = sealed.ciphertext.body.clone();
        key.open(0, &sealed.label, &mut body).ok().map(|message| message.to_vec())
    })
}

/// The weak readers disagree; ours ask for proofs, and then all say ⊥.
fn splits_only_the_weak<G: PrimeGroup>(
    it: &mut System<G>,
    sealed: Ciphertext<G>,
    false_share: Share<G>,
    equation: impl Fn(&PublicKey<G>, &SecretScalar<G>, &Element<G>) -> bool,
) {
    let sealed = it.key.bind(sealed, &label());
    let [with, without] = weak_readers(it, &sealed, false_share, equation);
    assert_eq!(with.as_deref(), Some(&b"for some"[..]), "the attack works on who checks less");
    assert_eq!(without, None, "and splits the readers");

    let checked = it.key.check(sealed).unwrap();
    let shares = it.shares(&checked);
    for pair in [[false_share, shares[1]], [shares[1], shares[2]], [shares[0], shares[3]]] {
        assert_eq!(it.reader.combine(&checked, &pair), Ok(Combined::NeedProofs));
    }
    let verified = it.verified(&checked);
    for pair in [[0, 1], [1, 2], [0, 3]] {
        let pair = pair.map(|i| verified[i]);
        assert!(matches!(it.reader.combine_verified(&checked, &pair), Ok(Combined::Bottom(_))));
    }
}

/// σ', and the body that it seals.
fn body<G: PrimeGroup>(key: &PublicKey<G>) -> ([u8; 32], [u8; 32], Vec<u8>) {
    let sigma = [0x77; 32];
    let (seal, commitment) = key.body_key(&label().hash(), &sigma);
    let mut body = [&b"for some"[..], &[0; crate::aead::TAG_LEN]].concat();
    seal.seal(0, &label().hash(), &mut body);
    (sigma, commitment, body)
}

fn masked<G: PrimeGroup>(it: &System<G>, u: &Element<G>, z: &Element<G>, sigma: [u8; 32]) -> [u8; 32] {
    let mask = Full::mask(&it.key, u, z);
    std::array::from_fn(|i| sigma[i] ^ mask.expose()[i])
}

/// u_j = h_j^r: a publisher knows every share of its own ciphertext.
fn share_by_publisher<G: PrimeGroup>(it: &System<G>, index: u16, r: &SecretScalar<G>) -> Share<G> {
    Share { index, u_i: Element::new(G::mul(it.key.share_of(index).unwrap().point(), r.scalar())).unwrap() }
}

fn trap_commitment<G: PrimeGroup>() {
    let mut it = system::<G>(2, 4);
    let (r, s) = (scalar::<G>(1), scalar::<G>(2));
    let false_share = Share { index: 1, u_i: scalar::<G>(3).public() };
    let z = Element::new(it.reader.interpolate(&[false_share, share_by_publisher(&it, 2, &r)])).unwrap();
    let (sigma, commitment, body) = body(&it.key);
    let masked = masked(&it, &r.public(), &z, sigma);
    let sealed = craft(&it.key, &label(), &r, &s, masked, commitment, body);
    splits_only_the_weak(&mut it, sealed, false_share, |_, _, _| true);
}

fn trap_first_equation<G: PrimeGroup>() {
    // r as σ' demands it, so that g^r' = u holds; Z' as the pair {1, 2} gives it.
    let mut it = system::<G>(2, 4);
    let (sigma, commitment, body) = body(&it.key);
    let r = it.key.exponent(&label().hash(), &sigma, &body_hash::<G>(&commitment, &body)).unwrap();
    let false_share = Share { index: 1, u_i: scalar::<G>(3).public() };
    let z = Element::new(it.reader.interpolate(&[false_share, share_by_publisher(&it, 2, &r)])).unwrap();
    let masked = masked(&it, &r.public(), &z, sigma);
    let sealed = craft(&it.key, &label(), &r, &scalar(2), masked, commitment, body);
    let u = sealed.u;
    splits_only_the_weak(&mut it, sealed, false_share, |_, r, _| r.public() == u);
}

fn trap_second_equation<G: PrimeGroup>() {
    // Z' = H_Δ^r' as σ' demands it, any u, and the false share that makes {1, 2} give this Z'.
    let mut it = system::<G>(2, 4);
    let (sigma, commitment, body) = body(&it.key);
    let inner = it.key.exponent(&label().hash(), &sigma, &body_hash::<G>(&commitment, &body)).unwrap();
    let z = Element::new(G::mul_table(&it.key.h_delta_table, inner.scalar())).unwrap();
    let r = scalar::<G>(1);
    // Δλ_1 = 2Δ and Δλ_2 = −Δ: u_1 = (Z' u_2^Δ)^(1/2Δ)
    let delta = G::Scalar::from(it.key.parameters().delta);
    let second = share_by_publisher(&it, 2, &r);
    let power = *z.point() + G::mul(second.u_i.point(), &delta);
    let u_1 = Element::new(G::mul(&power, &G::invert(&(delta + delta)))).unwrap();
    let false_share = Share { index: 1, u_i: u_1 };
    assert_eq!(Element::new(it.reader.interpolate(&[false_share, second])).unwrap(), z);
    let masked = masked(&it, &r.public(), &z, sigma);
    let sealed = craft(&it.key, &label(), &r, &scalar(2), masked, commitment, body);
    splits_only_the_weak(&mut it, sealed, false_share, |key, r, z| {
        G::mul_table(&key.h_delta_table, r.scalar()) == *z.point()
    });
}
