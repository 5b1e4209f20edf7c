//! Prints what threshold encryption costs, in µs on one thread and in units of one variable-base multiplication timed in
//! the same run; each time is the fastest of fifteen short batches, since on a shared machine everything else only adds.
//!
//!     cargo run --release -p sealcast-crypto --example tdh2 [p256]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha20Rng;
use rand_core::{CryptoRng, SeedableRng};
use sealcast_crypto::group::{Group, P256, Parameters, Ristretto255, SecretScalar};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::tdh2::{
    Checked, Ciphertext, Combiner, KeyShare, Label, Labelled, Outcome, ProvedShare, PublicKey, Share, deal,
};
use sealcast_crypto::threshold_prf;

fn main() {
    let all = std::env::args().nth(1).is_some_and(|it| it == "p256");
    suite::<Ristretto255>(&[(2, 4), (6, 16), (11, 31)]);
    if all {
        suite::<P256>(&[(2, 4)]);
    }
}

fn suite<G: Group>(sizes: &[(u16, u16)]) {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let unit = multiplication::<G>(&mut rng);
    println!("{}: one variable-base multiplication {unit:.2} µs", G::NAME);
    println!("{:<52} {:>9} {:>7} {:>6}", "", "µs", "units", "goal");
    for (t, n) in sizes {
        println!("(t, n) = ({t}, {n})");
        encryption::<G>(&Table { unit, goals: *t == 2 && G::SUITE == 1 }, *t, *n, &mut rng);
    }
    println!("threshold PRF, (2, 4)");
    prf::<G>(&Table { unit, goals: false }, &mut rng);
}

/// x P, without encoding.
fn multiplication<G: Group>(rng: &mut impl CryptoRng) -> f64 {
    let scalar = |rng: &mut _| {
        let bytes = SecretScalar::<G>::random(rng).to_bytes();
        G::decode_scalar(bytes.expose()).expect("a scalar's own bytes")
    };
    let (x, p) = (scalar(rng), G::mul_base(&scalar(rng)));
    micros(|| G::mul(black_box(&p), black_box(&x)))
}

struct System<G: Group> {
    key: Arc<PublicKey<G>>,
    holders: Vec<KeyShare<G>>,
    label: Label,
    sealed: Vec<Checked<G>>,
}

fn system<G: Group>(parameters: Parameters, rng: &mut impl CryptoRng) -> System<G> {
    let (key, holders) = deal::<G>(parameters, rng).expect("parameters in range");
    let label = Label::new(b"client", 1).header("topic", "value").access(b"role = doctor");
    let seal = |_| {
        let sealed = key.encrypt(&label, &[7; 32], rng);
        key.check(key.bind(sealed, &label)).expect("well-formed")
    };
    let sealed = (0..BATCH_SIZE).map(seal).collect();
    System { key: Arc::new(key), holders, label, sealed }
}

fn encryption<G: Group>(table: &Table, t: u16, n: u16, rng: &mut ChaCha20Rng) {
    let it = system::<G>(Parameters { delta: 1, ..Parameters::new(b"bench", t, n) }, rng);
    let (key, first) = (&it.key, &it.sealed[0]);
    table.row("encrypt, 32 B", 2.13, micros(|| key.encrypt(black_box(&it.label), &[7; 32], rng)));

    let bytes: Vec<Vec<u8>> = it.sealed.iter().map(|it| it.ciphertext().encode()).collect();
    let read = |bytes: &[u8]| -> Labelled<G> {
        key.bind(Ciphertext::decode(black_box(bytes)).expect("well-formed"), &it.label)
    };
    table.row("check, with decoding", 2.58, micros(|| key.check(read(&bytes[0])).is_ok()));
    for size in [8, 64, 256] {
        let goal = if size == 64 { 1.43 } else { 0.0 };
        let batch = micros(|| {
            let all = bytes.iter().cycle().take(size).map(|it| read(it)).collect();
            key.check_batch(all, rng).iter().all(Result::is_ok)
        });
        table.row(&format!("check, batch of {size}, each, with decoding"), goal, batch / size as f64);
    }

    let share = micros(|| it.holders[0].share(black_box(first)).expect("checked").encode());
    table.row("share, without proof, encoded", 1.17, share);
    table.row("share, with proof", 0.0, micros(|| it.holders[0].prove(black_box(first), rng).is_ok()));
    let quorum = &it.holders[..usize::from(t)];
    let proved: Vec<(usize, Vec<u8>)> = (0..32)
        .flat_map(|k| {
            let it = &it.sealed[k];
            quorum.iter().map(|holder| (k, holder.prove(it, rng).expect("checked").encode())).collect::<Vec<_>>()
        })
        .collect();
    let read_share = |bytes: &[u8]| ProvedShare::<G>::decode(black_box(bytes)).expect("well-formed");
    let single = micros(|| key.verify_share(first, &read_share(&proved[0].1)).is_ok());
    table.row("verify a share, with decoding", 0.0, single);
    let batch = micros(|| {
        let all: Vec<_> = proved.iter().map(|(k, bytes)| (&*it.sealed[*k], read_share(bytes))).collect();
        key.verify_shares(&all, rng).iter().all(Result::is_ok)
    });
    table.row("verify t shares of 32 ciphertexts, each, decoding", 1.18, batch / proved.len() as f64);

    // The first holder and the last ones: of neighbours the coefficients happen to be integers.
    let shares = |it: &System<G>| -> Vec<Share<G>> {
        let some = it.holders[..1].iter().chain(&it.holders[usize::from(n - t) + 1..]);
        some.map(|holder| holder.share(&it.sealed[0]).expect("checked")).collect()
    };
    let mut reader = Combiner::new(it.key.clone());
    let found = shares(&it);
    table.row("combine, coefficients cached", 1.01, micros(|| reader.interpolate(black_box(&found))));
    let whole = micros(|| matches!(reader.combine(first, black_box(&found)), Ok(Outcome::Opened(_))));
    table.row("open: combine so, check both equations, AEAD", 0.0, whole);
    let small = system::<G>(Parameters::new(b"bench", t, n), rng);
    if small.key.parameters().delta > 1 {
        let mut reader = Combiner::new(small.key.clone());
        let found = shares(&small);
        table.row("combine, integers", 0.10, micros(|| reader.interpolate(black_box(&found))));
        let whole = micros(|| matches!(reader.combine(&small.sealed[0], black_box(&found)), Ok(Outcome::Opened(_))));
        table.row("open: combine so, check both equations, AEAD", 0.0, whole);
    }
    let encoded: Vec<Vec<u8>> = found.iter().map(Share::encode).collect();
    let decode = micros(|| encoded.iter().all(|it| Share::<G>::decode(black_box(it)).is_ok()));
    table.row("decode t shares", 0.0, decode);
    let stranger = micros(|| KeyShare::new(key, 1, black_box(&Secret::from_bytes([1; 32]))).is_err());
    table.row("check a share of the key", 0.0, stranger);
}

fn prf<G: Group>(table: &Table, rng: &mut ChaCha20Rng) {
    let (key, holders) = threshold_prf::deal::<G>(Parameters::new(b"bench", 2, 4), rng).expect("in range");
    table.row("input to the group", 0.0, micros(|| key.input(black_box(b"leaf 7"))));
    let input = key.input(b"leaf 7");
    table.row("evaluate a share, with proof", 0.0, micros(|| holders[0].evaluate(black_box(&input), rng)));
    let shares: Vec<_> = holders.iter().map(|it| it.evaluate(&input, rng).expect("its own key")).collect();
    table.row("verify a share", 0.0, micros(|| key.verify(&input, black_box(&shares[0])).is_ok()));
    let verified: Vec<_> = shares.iter().map(|it| key.verify(&input, it).expect("honest")).collect();
    table.row("combine 2 of 4", 0.0, micros(|| key.combine(&input, black_box(&verified)).is_ok()));
}

struct Table {
    unit: f64,
    goals: bool,
}

impl Table {
    /// `prototype`: what a prototype took, in units; the goal is 1.15 times that. 0 for none.
    fn row(&self, what: &str, prototype: f64, us: f64) {
        let units = us / self.unit;
        let goal = prototype * 1.15;
        let verdict = match self.goals && prototype > 0.0 {
            true => format!("{goal:>6.2} {}", if units <= goal { "holds" } else { "MISSED" }),
            false => String::new(),
        };
        println!("{what:<52} {us:>9.2} {units:>7.2} {verdict}");
    }
}

/// µs of one call.
fn micros<T>(mut operation: impl FnMut() -> T) -> f64 {
    let begun = Instant::now();
    let mut calls = 0_u32;
    while begun.elapsed() < BATCH {
        black_box(operation());
        calls += 1;
    }
    let mut fastest = f64::INFINITY;
    for _ in 0..BATCHES {
        let begun = Instant::now();
        for _ in 0..calls {
            black_box(operation());
        }
        fastest = fastest.min(begun.elapsed().as_secs_f64() * 1e6 / f64::from(calls));
    }
    fastest
}

const BATCHES: usize = 15;
/// Shorter than a time slice, so that some batch has the processor to itself.
const BATCH: Duration = Duration::from_millis(1);
const BATCH_SIZE: usize = 64;
