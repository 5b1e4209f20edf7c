//! Three variants in use elsewhere are open; each test first breaks the variant, so that it is seen to be able
//! to fail, and then turns the same attack on what we do.

use curve25519_dalek::ristretto::RistrettoPoint;
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::Identity;
use rand_chacha::ChaCha20Rng;
use rand_core::{CryptoRng, SeedableRng};

use super::element::{Element, Exponent};
use super::tests::{context, finish, run};
use super::*;
use crate::kdf::hkdf;
use crate::secret::Secret;

/// The bare protocol, without proofs, hashes or checks: exponents in, everything out.
struct Bare {
    x: Vec<Scalar>,
    /// X_i
    publics: Vec<RistrettoPoint>,
    /// Y_i
    shares: Vec<RistrettoPoint>,
    /// K_i^R
    right_keys: Vec<RistrettoPoint>,
    sk: RistrettoPoint,
}

fn bare(x: Vec<Scalar>) -> Bare {
    let n = x.len();
    let publics: Vec<_> = x.iter().map(RistrettoPoint::mul_base).collect();
    let right_keys: Vec<_> = (0..n).map(|i| x[i] * publics[(i + 1) % n]).collect();
    let shares = (0..n).map(|i| right_keys[i] - right_keys[(i + n - 1) % n]).collect();
    let sk = right_keys.iter().sum();
    Bare { x, publics, shares, right_keys, sk }
}

/// What one right key, known to sit at `seat`, opens: walk the ring with the public shares.
fn walk(shares: &[RistrettoPoint], seat: usize, right_key: RistrettoPoint) -> RistrettoPoint {
    let n = shares.len();
    let (mut key, mut sum) = (right_key, right_key);
    for j in 1..n {
        key += shares[(seat + j) % n];
        sum += key;
    }
    sum
}

/// Whether any of these points, taken as a right key or the negative of one at any seat, opens the ring.
fn opens(points: &[RistrettoPoint], shares: &[RistrettoPoint], is_key: impl Fn(RistrettoPoint) -> bool) -> bool {
    let candidates = points.iter().flat_map(|&point| [point, -point]);
    candidates.into_iter().any(|point| (0..shares.len()).any(|seat| is_key(walk(shares, seat, point))))
}

fn scalars(n: usize, seed: u64) -> Vec<Scalar> {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    (0..n).map(|_| *Exponent::random(&mut rng).scalar()).collect()
}

/// Our own ring with known exponents, so that the test can play its members.
fn ours(ring: &Ring, x: &[Scalar], rng: &mut impl CryptoRng) -> (Vec<RistrettoPoint>, Vec<RistrettoPoint>, Key) {
    let exponent = |x: &Scalar| {
        let mut wide = [0; 64];
        wide[..32].copy_from_slice(x.as_bytes());
        Exponent::reduce(&Secret::from_bytes(wide)).unwrap()
    };
    let (round1, sent): (Vec<_>, Vec<_>) =
        x.iter().enumerate().map(|(i, x)| Round1::start_with(ring, i, exponent(x), &Secret::random(rng))).unzip();
    let publics = sent.iter().map(|it| it.public.point).collect();
    let (mut round2, shares): (Vec<_>, Vec<_>) = round1.into_iter().map(|it| it.finish(&sent, rng).unwrap()).unzip();
    let values = shares.iter().map(|it| Element::decode(it.encode().first_chunk().unwrap()).unwrap().point).collect();
    (publics, values, round2.remove(0).finish(&shares).unwrap())
}

/// The key that sk would give in that ring.
fn key_of(sk: RistrettoPoint, key: &Key) -> Secret<32> {
    hkdf(sk.compress().as_bytes(), &key.transcript(), &[b"DB/key"])
}

#[test]
fn broken_variant_leave_with_only_the_neighbours_refreshed() {
    // Six members; the one at seat 2 leaves. It knows every right key: its own, and the rest by walking.
    let before = bare(scalars(6, 1));
    let known = before.right_keys.clone();
    assert_eq!(walk(&before.shares, 2, known[2]), before.sk);

    // The variant: seats 1 and 3, its neighbours, draw anew; 0, 4 and 5 keep their exponents.
    let fresh = scalars(2, 2);
    let variant = bare(vec![before.x[0], fresh[0], fresh[1], before.x[4], before.x[5]]);
    assert!(opens(&known, &variant.shares, |sk| sk == variant.sk), "the leaver has the variant's key");

    // Ours: everybody draws anew.
    let ring = Ring::new(&Context { epoch: 8, ..context("g", Kind::Setup, 1) }, 5, Shares::Plain);
    let (_, shares, key) = ours(&ring, &scalars(5, 3), &mut ChaCha20Rng::seed_from_u64(4));
    assert!(!opens(&known, &shares, |sk| key_of(sk, &key) == *key.secret()));
}

#[test]
fn broken_variant_join_with_the_ends_kept_and_two_colluding_joiners() {
    // Five members; their shares were public and are recorded. Two joiners sit at the end of the new ring:
    // U_1, U_2, U_n, J_1, J_2, so that J_1 is U_n's neighbour.
    let before = bare(scalars(5, 1));
    let seed = scalars(1, 2)[0];
    let j2 = scalars(1, 3)[0];

    // The variant: U_1 and U_n keep x_1 and x_n; J_1 echoes X_1 as its own. U_n's right key is then
    // x_n X_1, an old right key; J_2 knows its own left and right keys and walks back to it, J_1 making up
    // a share that closes the ring.
    let x_n = before.x[4];
    let (x_1, echoed) = (before.x[0], before.publics[0]);
    let j2_right = j2 * before.publics[0];
    let u1_right = x_1 * RistrettoPoint::mul_base(&seed);
    let y_1 = u1_right - j2_right;
    let u2_right = seed * RistrettoPoint::mul_base(&x_n);
    let y_2 = u2_right - u1_right;
    let y_n = x_n * echoed - u2_right;
    let recovered = j2_right + y_1 + y_2 + y_n; // from J_2's own key and three public shares
    assert_eq!(recovered, before.right_keys[4], "x_n x_1 G, U_n's old right key");
    assert!(opens(&[recovered], &before.shares, |sk| sk == before.sk), "the joiners have the variant's old key");

    // Ours, first: an echo of X_1 is refused, as not proved, before anybody answers to it.
    let ring = Ring::new(&context("g", Kind::Join, 1), 5, Shares::Plain);
    let honest = run(&ring, 4);
    assert_eq!(Contribution::decode(&ring, 3, &honest.contributions[0].encode()), Err(Misbehaved::Unproved(3)));
    // Ours, second: even all right keys of the new ring open nothing of the old one.
    let old_ring = Ring::new(&context("g", Kind::Setup, 1), 5, Shares::Plain);
    let (_, old_shares, old_key) = ours(&old_ring, &before.x, &mut ChaCha20Rng::seed_from_u64(5));
    let seed = *old_key.seed(&ring, &[[7; 32], [8; 32]]).exponent().scalar();
    let fresh = scalars(4, 6);
    let new = bare(vec![fresh[0], seed, fresh[1], fresh[2], fresh[3]]);
    assert!(!opens(&new.right_keys, &old_shares, |sk| key_of(sk, &old_key) == *old_key.secret()));
    assert!(opens(&before.right_keys[4..], &old_shares, |sk| key_of(sk, &old_key) == *old_key.secret()), "control");
}

#[test]
fn broken_variant_join_from_the_session_key_itself() {
    let old = run(&Ring::new(&context("g", Kind::Setup, 1), 4, Shares::Plain), 1);
    let old = &old.keys[0];
    let ring = |attempt| Ring::new(&Context { epoch: 8, ..context("g", Kind::Join, attempt) }, 4, Shares::Plain);

    // The variant takes the key's bytes as exponent: one value for whatever joiners and attempts, so that U_2's
    // X shows which joins start from one key, and who learns the exponent has the traffic's key.
    let variant = |_ring: &Ring, _joiners: &[[u8; 32]]| Scalar::from_bytes_mod_order(*old.secret().expose());
    assert_eq!(variant(&ring(1), &[[1; 32]]), variant(&ring(2), &[[2; 32]]));

    // Ours is another one for each attempt and joiner, and no function of what seals traffic.
    let ours = |ring: &Ring, joiners: &[[u8; 32]]| *old.seed(ring, joiners).exponent().scalar();
    assert_eq!(ours(&ring(1), &[[1; 32]]), ours(&ring(1), &[[1; 32]]));
    assert_ne!(ours(&ring(1), &[[1; 32]]), ours(&ring(2), &[[1; 32]]), "another attempt");
    assert_ne!(ours(&ring(1), &[[1; 32]]), ours(&ring(1), &[[2; 32]]), "another joiner");
    assert_ne!(ours(&ring(1), &[[1; 32], [2; 32]]), ours(&ring(1), &[[2; 32], [1; 32]]), "another order");
    let seed = ours(&ring(1), &[[1; 32]]);
    assert_ne!(seed, variant(&ring(1), &[[1; 32]]));
    for guess in [seed.to_bytes(), RistrettoPoint::mul_base(&seed).compress().to_bytes()] {
        assert!(*old.secret() != Secret::from_bytes(guess), "the exponent is not the key");
        let derived: Secret<32> = hkdf(&guess, &old.transcript(), &[b"DB/key"]);
        assert!(*old.secret() != derived, "nor what the key is derived from");
    }
}

/// Known and accepted (deviation 3): who has an old sk follows joins, until a full setup heals.
#[test]
fn an_old_key_follows_joins_but_not_a_setup() {
    let old = run(&Ring::new(&context("g", Kind::Setup, 1), 4, Shares::Plain), 1);
    let ring = Ring::new(&context("g", Kind::Join, 1), 4, Shares::Plain);
    let mut rng = ChaCha20Rng::seed_from_u64(2);
    let active = (0..4).map(|seat| match seat {
        SEED_SLOT => Round1::start_from_seed(&ring, seat, &old.keys[1].seed(&ring, &[[9; 32]]), &mut rng),
        _ => Round1::start(&ring, seat, &mut rng),
    });
    let joined = finish(&ring, active.collect(), &mut rng);
    let spy = Following::start(&ring, SEED_SLOT, &old.keys[0].seed(&ring, &[[9; 32]])).finish(&joined.contributions);
    assert!(spy.unwrap().finish(&joined.shares).unwrap().secret() == joined.keys[3].secret());
    let healed = run(&Ring::new(&context("g", Kind::Setup, 2), 5, Shares::Plain), 3);
    let ring = healed.ring;
    let spy = Following::start(&ring, SEED_SLOT, &old.keys[0].seed(&ring, &[])).finish(&healed.contributions);
    assert_eq!(spy.err(), Some(Misbehaved::NotSeed(SEED_SLOT)));
}

#[test]
fn the_bare_protocol_is_the_papers() {
    let it = bare(scalars(5, 1));
    assert_eq!(it.shares.iter().sum::<RistrettoPoint>(), RistrettoPoint::identity(), "ΣY = 0");
    for seat in 0..5 {
        assert_eq!(walk(&it.shares, seat, it.right_keys[seat]), it.sk);
    }
    assert_eq!(it.publics[2], RistrettoPoint::mul_base(&it.x[2]));
}
