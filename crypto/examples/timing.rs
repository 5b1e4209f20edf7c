//! Does the time of what touches secrets depend on them? After dudect (Reparaz, Balasch, Verbauwhede, 'Dude, is
//! my code constant time?', DATE 2017): two classes of inputs in random order, Welch's t between their times.
//!
//!     cargo run --release -p sealcast-crypto --example timing [samples]
//!
//! |t| above 4.5 calls for a look, above 10 for a repair. The last rows are controls that do leak, so
//! that a quiet instrument is noticed. Nothing here is asserted: machines are noisy.

use std::convert::Infallible;
use std::hint::black_box;
use std::time::Instant;

use curve25519_dalek::ristretto::RistrettoPoint;
use curve25519_dalek::scalar::Scalar;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng, TryCryptoRng, TryRng};
use sealcast_crypto::aead::{Key, Suite};
use sealcast_crypto::disclosure::Pair;
use sealcast_crypto::dutta_barua::{Context, Kind, Ring, Round1, Shares};
use sealcast_crypto::group::{Element, P256, Parameters, PrimeGroup, Ristretto255, SecretScalar};
use sealcast_crypto::hpke::{self, KeyPair};
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::leighton_micali::{self, LongTerm, Master};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{Algorithm, SigningKey};
use sealcast_crypto::{tdh2, threshold_prf};
use sealcast_wire::Envelope;
use sealcast_wire::envelope::NOTHING;

fn main() {
    let samples = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(20_000);
    println!("{samples} samples of each; classes in brackets");
    println!("{:<66} {:>8} {:>8}", "", "ns", "max |t|");
    let rng = &mut ChaCha20Rng::seed_from_u64(1);
    comparisons(samples, rng);
    exponents(samples / 10, rng);
    keys(samples / 10, rng);
    pair_keys(samples, rng);
    shares::<Ristretto255>(samples / 10, rng);
    shares::<P256>(samples / 10, rng);
    files(samples, rng);
    controls(samples, rng);
}

/// A wrong tag: wrong in its first byte, or in its last.
fn comparisons(samples: usize, rng: &mut ChaCha20Rng) {
    let key = Round1::start(&ring(1), 0, rng);
    let (round2, share) = key.0.finish(&[key.1], rng).expect("alone");
    let key = round2.finish(&[share]).expect("alone");
    let tag = key.confirmation(0);
    let wrong = |class: bool| spoilt(tag, class);
    measure(
        "confirmation MAC [first byte wrong | last]",
        samples,
        rng,
        |class, _| wrong(class),
        |tag| key.confirmed_by(0, &tag),
    );

    let secret = Secret::<32>::random(rng);
    let other = |class: bool| Secret::from_bytes(spoilt(*secret.expose(), class));
    measure("equality of secrets [first byte wrong | last]", samples, rng, |class, _| other(class), |it| it == secret);

    for suite in [Suite::Aes256Gcm, Suite::ChaCha20Poly1305] {
        let key = Key::new(suite, &Secret::random(rng));
        let mut sealed = [9; 100 + 16];
        key.seal(1, b"aad", &mut sealed);
        let prepare = |class: bool, _: &mut ChaCha20Rng| {
            let mut wrong = sealed;
            wrong[if class { 100 } else { 115 }] ^= 1;
            wrong
        };
        let name = format!("{suite:?} open, 100 B [tag's first byte wrong | last]");
        measure(&name, samples, rng, prepare, |mut it| key.open(1, b"aad", &mut it).is_ok());
    }
}

/// The secret exponent of a ring: always 1, or random.
fn exponents(samples: usize, rng: &mut ChaCha20Rng) {
    let ring = ring(3);
    let others: Vec<_> = (0..3).map(|seat| Round1::start(&ring, seat, rng).1).collect();
    measure("ring: x G and its proof [x = 1 | random]", samples, rng, drawn, |mut x| Round1::start(&ring, 0, &mut x));
    let prepare = |class: bool, rng: &mut ChaCha20Rng| {
        let (me, own) = Round1::start(&ring, 0, &mut drawn(class, rng));
        (me, [own, others[1], others[2]])
    };
    let finish = |(me, sent): (Round1, [_; 3])| me.finish(&sent, &mut Drawn([7; 64])).is_ok();
    measure("ring: x X_left, x X_right, Y [x = 1 | random]", samples, rng, prepare, finish);
}

/// A private key: always the same, or random; made before the clock starts.
fn keys(samples: usize, rng: &mut ChaCha20Rng) {
    for algorithm in [Algorithm::Ed25519, Algorithm::P256] {
        let key = |class: bool, rng: &mut ChaCha20Rng| {
            let mut seed = [0; 32];
            seed[31] = 1;
            let random = Secret::<32>::random(rng);
            let seed = if class { Secret::from_bytes(seed) } else { random };
            SigningKey::from_seed(algorithm, &seed).expect("a seed below the order but once in 2^32")
        };
        let name = format!("{algorithm:?} sign [key 1 | random]");
        measure(&name, samples, rng, key, |key| key.sign(b"message"));
    }
    let sealed = hpke::seal_to(&KeyPair::derive(&Secret::from_bytes([1; 32])).public(), b"", b"", b"x", rng);
    let sealed = sealed.expect("a good key");
    let pair = |class: bool, rng: &mut ChaCha20Rng| {
        let random = Secret::random(rng);
        KeyPair::derive(&if class { Secret::from_bytes([3; 32]) } else { random })
    };
    measure("HPKE open of another's message [key fixed | random]", samples, rng, pair, |pair| {
        pair.open(b"", b"", &sealed).is_ok()
    });
}

/// Leighton–Micali: a wrong proof is wrong in its first byte or in its last; long-term and pair keys are 0 or random.
fn pair_keys(samples: usize, rng: &mut ChaCha20Rng) {
    let master = Master::new(&Secret::random(rng));
    let (leader, member) = ([1; 32], [2; 32]);
    let pair = leighton_micali::Pair { from: leader, to: member, nonce: [3; 16] };
    let keys = master.long_term(&leader);
    let granted = master.grant(&pair, &keys, b"7", rng);
    let prepare =
        |class: bool, _: &mut ChaCha20Rng| leighton_micali::Granted { proof: spoilt(granted.proof, class), ..granted };
    let name = "Leighton-Micali: a false answer [first byte wrong | last]";
    measure(name, samples, rng, prepare, |it| keys.unmask(&pair, &it, b"7").is_err());

    let secret = Secret::<32>::random(rng);
    let tag = leighton_micali::tag(&secret, "timing", &[b"part"]);
    let prepare = |class: bool, _: &mut ChaCha20Rng| spoilt(tag, class);
    let verify = |it: [u8; 32]| leighton_micali::verify(&secret, "timing", &[b"part"], &it).is_err();
    measure("Leighton-Micali: a false tag [first byte wrong | last]", samples, rng, prepare, verify);

    let key = |class: bool, rng: &mut ChaCha20Rng| {
        let random = Secret::<32>::random(rng);
        if class { Secret::from_bytes([0; 32]) } else { random }
    };
    let prepare = |class: bool, rng: &mut ChaCha20Rng| {
        let exchange = key(class, rng);
        LongTerm { authentication: exchange.clone(), exchange }
    };
    let name = "Leighton-Micali: the pair key, by who is talked to [X = 0 | random]";
    measure(name, samples, rng, prepare, |keys| keys.receives(&leader, &member, &granted.salt));
    let name = "Leighton-Micali: an answer unmasked [X and A = 0 | random]";
    let prepare = |class: bool, rng: &mut ChaCha20Rng| {
        let keys = prepare(class, rng);
        let granted = master.grant(&pair, &keys, b"7", rng);
        (keys, granted)
    };
    measure(name, samples, rng, prepare, |(keys, granted)| keys.unmask(&pair, &granted, b"7").is_ok());
    let prepare = |class: bool, rng: &mut ChaCha20Rng| Master::new(&key(class, rng));
    let grant = |master: Master| master.grant(&pair, &keys, b"7", &mut Drawn([7; 64]));
    measure("Leighton-Micali: an answer made [centre's secret 0 | random]", samples, rng, prepare, grant);
}

/// What a broker holds of a threshold key: x_1 is 1, or random. All sharings are of one key, so that one ciphertext and
/// one input serve both classes.
fn shares<G: PrimeGroup>(samples: usize, rng: &mut ChaCha20Rng) {
    let parameters = Parameters::new(b"timing", 2, 2);
    let whole = G::reduce(&wide(rng));
    let h = Element::<G>::new(G::mul_base(&whole)).expect("not 0");
    // F(0) = x, F(1) = x_1, so F(2) = 2 x_1 − x
    let shared = |x: &G::Scalar| {
        let [h_1, h_2] = [*x, *x + *x - whole].map(|x| Element::<G>::new(G::mul_base(&x)).expect("not 0"));
        (vec![h_1, h_2], Secret::from_bytes(G::scalar_bytes(x)))
    };
    let secret = |class: bool, rng: &mut ChaCha20Rng| {
        let random = G::reduce(&wide(rng));
        if class { G::Scalar::from(1) } else { random }
    };

    let key = tdh2::PublicKey::new(parameters.clone(), h, shared(&G::reduce(&wide(rng))).0).expect("a sharing of x");
    let label = tdh2::Label::of(&[1; 32], 1, &envelope());
    let it = key.check(key.bind(key.encrypt(&label, b"message", rng), &label)).expect("its own ciphertext");
    let holder = |class: bool, rng: &mut ChaCha20Rng| {
        let (shares, x) = shared(&secret(class, rng));
        let key = tdh2::PublicKey::new(parameters.clone(), h, shares).expect("a sharing of x");
        tdh2::KeyShare::new(&key, 1, &x).expect("h_1 is of x_1")
    };
    let name = |what: &str| format!("{}: {what} [x = 1 | random]", G::NAME);
    measure(&name("TDH2 share"), samples, rng, holder, |holder| holder.share(&it));
    measure(&name("TDH2 share and proof"), samples, rng, holder, |holder| holder.prove(&it, &mut Drawn([7; 64])));

    let key = threshold_prf::PublicKey::new(parameters.clone(), h, shared(&whole).0).expect("a sharing of x");
    let input = key.input(b"name");
    let holder = |class: bool, rng: &mut ChaCha20Rng| {
        let (shares, x) = shared(&secret(class, rng));
        let key = threshold_prf::PublicKey::new(parameters.clone(), h, shares).expect("a sharing of x");
        threshold_prf::KeyShare::new(&key, 1, &x).expect("h_1 is of x_1")
    };
    let evaluate = |holder: threshold_prf::KeyShare<G>| holder.evaluate(&input, &mut Drawn([7; 64]));
    measure(&name("PRF evaluate"), samples, rng, holder, evaluate);

    let sender = Pair::<G>::new(SecretScalar::random(rng));
    let receiver = |class: bool, rng: &mut ChaCha20Rng| {
        let y = Secret::from_bytes(G::scalar_bytes(&secret(class, rng)));
        let receiver = Pair::new(SecretScalar::from_bytes(&y).expect("not 0"));
        let sealed = sender.seal(receiver.public(), b"dealt", &[9; 32]);
        (receiver, sealed)
    };
    let open = |(receiver, sealed): (Pair<G>, Vec<u8>)| receiver.open(sender.public(), b"dealt", &sealed).is_ok();
    measure(&name("DKG, open a dealt share"), samples, rng, receiver, open);
    let disclose = |(receiver, _): (Pair<G>, Vec<u8>)| receiver.disclose(sender.public(), b"dealt");
    measure(&name("DKG, disclose"), samples, rng, receiver, disclose);
}

/// A file key, from which a share at rest is unsealed: always the same, or random.
fn files(samples: usize, rng: &mut ChaCha20Rng) {
    let sealing = |key: &Secret<32>| Key::new(Suite::Aes256Gcm, &hkdf(key.expose(), &[1; 32], &[b"share"]));
    let prepare = |class: bool, rng: &mut ChaCha20Rng| {
        let random = Secret::random(rng);
        let key = if class { Secret::from_bytes([0; 32]) } else { random };
        let mut sealed = vec![9; 300 + 16];
        sealing(&key).seal(0, b"", &mut sealed);
        (key, sealed)
    };
    measure("a share at rest unsealed, 300 B [file key 0 | random]", samples, rng, prepare, |(key, mut sealed)| {
        sealing(&key).open(0, b"", &mut sealed).is_ok()
    });
}

fn wide(rng: &mut ChaCha20Rng) -> [u8; 64] {
    let mut wide = [0; 64];
    rng.fill_bytes(&mut wide);
    wide
}

fn envelope() -> Envelope {
    Envelope {
        headers: vec![("topic".into(), None)],
        associated: Vec::new(),
        access: None,
        execute: NOTHING.to_vec(),
        policy: 0,
        epoch: 0,
    }
}

/// What does leak: the instrument shall show it.
fn controls(samples: usize, rng: &mut ChaCha20Rng) {
    let tag = [9_u8; 256];
    let naive = |it: [u8; 256]| it.iter().zip(&tag).all(|(a, b)| black_box(a) == black_box(b));
    measure("control: comparison that stops early [first | last]", samples, rng, |class, _| spoilt(tag, class), naive);
    let point = RistrettoPoint::mul_base(&Scalar::from(5_u8));
    let scalar = |class: bool, rng: &mut ChaCha20Rng| {
        let mut wide = [0; 64];
        rng.fill_bytes(&mut wide);
        let random = Scalar::from_bytes_mod_order_wide(&wide);
        if class { Scalar::ONE } else { random }
    };
    let vartime = |x: Scalar| RistrettoPoint::vartime_double_scalar_mul_basepoint(&x, &point, &Scalar::ZERO);
    measure("control: variable-time multiplication [x = 1 | random]", samples / 10, rng, scalar, vartime);
}

/// Times `operation` on inputs of two classes and prints the larger class mean and the largest |t| over the
/// whole sample and over its fastest parts (dudect's cropping: interrupts make the slowest useless).
fn measure<I, T>(
    name: &str,
    samples: usize,
    rng: &mut ChaCha20Rng,
    prepare: impl Fn(bool, &mut ChaCha20Rng) -> I,
    operation: impl Fn(I) -> T,
) {
    let mut times: Vec<(bool, f64)> = Vec::with_capacity(samples);
    for _ in 0..samples + samples / 10 {
        let class = rng.next_u32().is_multiple_of(2);
        let input = black_box(prepare(class, rng));
        let begun = Instant::now();
        let output = black_box(operation(input));
        times.push((class, begun.elapsed().as_nanos() as f64));
        drop(output);
    }
    times.drain(..samples / 10); // warming up
    let mut sorted: Vec<f64> = times.iter().map(|(_, t)| *t).collect();
    sorted.sort_by(f64::total_cmp);
    let t = CROPS.map(|crop| {
        let most = sorted[((sorted.len() - 1) as f64 * crop) as usize];
        welch(&times, most).abs()
    });
    println!("{name:<66} {:>8.0} {:>8.1}", sorted[sorted.len() / 2], t.into_iter().fold(0.0, f64::max));
}

/// Welch's t between the classes, over times up to `most`.
fn welch(times: &[(bool, f64)], most: f64) -> f64 {
    let moments = |wanted: bool| {
        let class: Vec<f64> =
            times.iter().filter(|(class, t)| *class == wanted && *t <= most).map(|(_, t)| *t).collect();
        let n = class.len() as f64;
        let mean = class.iter().sum::<f64>() / n;
        let variance = class.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (mean, variance / n)
    };
    let ((mean_a, a), (mean_b, b)) = (moments(true), moments(false));
    if a + b == 0.0 { 0.0 } else { (mean_a - mean_b) / (a + b).sqrt() }
}

fn spoilt<const N: usize>(mut bytes: [u8; N], first: bool) -> [u8; N] {
    bytes[if first { 0 } else { N - 1 }] ^= 1;
    bytes
}

fn ring(size: usize) -> Ring {
    let (kind, roster, instance) = (Kind::Setup, [1; 32], [2; 32]);
    let context = Context { group: "g", compartment: 0, epoch: 1, attempt: 1, kind, roster, instance };
    Ring::new(&context, size, Shares::Plain)
}

/// A generator that gives the same 64 bytes again and again: so a test chooses the exponent.
struct Drawn([u8; 64]);

fn drawn(one: bool, rng: &mut ChaCha20Rng) -> Drawn {
    let (mut fixed, mut random) = ([0; 64], [0; 64]);
    fixed[0] = 1;
    rng.fill_bytes(&mut random);
    Drawn(if one { fixed } else { random })
}

impl TryRng for Drawn {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(u32::from_le_bytes([self.0[0], self.0[1], self.0[2], self.0[3]]))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(u64::from(self.try_next_u32()?))
    }

    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), Infallible> {
        to.copy_from_slice(&self.0[..to.len()]);
        Ok(())
    }
}

impl TryCryptoRng for Drawn {}

/// Parts of the sample, fastest first, over which t is computed.
const CROPS: [f64; 5] = [0.5, 0.75, 0.9, 0.99, 1.0];
