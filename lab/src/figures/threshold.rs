//! What threshold encryption costs: TDH2 on ristretto255, in units of one variable-base multiplication timed in the
//! same run, so that the rows mean the same on any machine. One thread.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha20Rng;
use rand_core::{CryptoRng, SeedableRng};
use sealcast_crypto::group::{Group, Parameters, Ristretto255, SecretScalar};
use sealcast_crypto::tdh2::{
    Checked, Ciphertext, Combiner, KeyShare, Label, Labelled, ProvedShare, PublicKey, Share, deal,
};

use crate::Failure;
use crate::figures::{Bench, Goal, Row};

pub(super) const ROWS: &[&str] = &[
    "tdh2-encrypt",
    "tdh2-check",
    "tdh2-check-64",
    "tdh2-share",
    "tdh2-verify",
    "tdh2-combine-cached",
    "tdh2-combine-integer",
];

/// What a prototype took for each row, in units (research on TDH2); the goal is 1.15 times that.
const PROTOTYPE: [f64; 7] = [2.13, 2.58, 1.43, 1.17, 1.18, 1.01, 0.10];
const WHAT: [&str; 7] = [
    "encrypt 32 B",
    "check one ciphertext, with decoding",
    "check 64 ciphertexts, each, with decoding",
    "a share without proof, encoded",
    "verify the shares of 32 ciphertexts, each, with decoding",
    "combine (2, 4), coefficients cached",
    "combine (2, 4), integer coefficients",
];

type G = Ristretto255;

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let batches = bench.pick(15, 60);
    let unit = multiplication(batches, &mut rng);
    let times = times(batches, &mut rng);
    let row = |i: usize| {
        Row::new("brokers", ROWS[i], format!("TDH2: {}", WHAT[i]), "units", Goal::AtMost(PROTOTYPE[i] * 1.15))
            .part("us", times[i])
            .part("unit in us", unit)
            .measured(times[i] / unit, format!("the fastest of {batches} batches of 1 ms, ristretto255, one thread"))
    };
    Ok((0..ROWS.len()).map(row).collect())
}

/// µs of x P, without encoding.
fn multiplication(batches: usize, rng: &mut impl CryptoRng) -> f64 {
    let scalar = |rng: &mut _| {
        let bytes = SecretScalar::<G>::random(rng).to_bytes();
        G::decode_scalar(bytes.expose()).expect("a scalar's own bytes")
    };
    let (x, p) = (scalar(rng), G::mul_base(&scalar(rng)));
    micros(batches, || G::mul(black_box(&p), black_box(&x)))
}

/// µs of each row.
fn times(batches: usize, rng: &mut ChaCha20Rng) -> [f64; 7] {
    // Of neighbours the coefficients happen to be integers; `delta` 1 keeps them from being multiplied out.
    let it = System::new(Parameters { delta: 1, ..Parameters::new(b"bench", T, N) }, rng);
    let small = System::new(Parameters::new(b"bench", T, N), rng);
    let (key, first) = (&it.key, &it.sealed[0]);
    let bytes: Vec<Vec<u8>> = it.sealed.iter().map(|it| it.ciphertext().encode()).collect();
    let read = |bytes: &[u8]| -> Labelled<G> {
        key.bind(Ciphertext::decode(black_box(bytes)).expect("well-formed"), &it.label)
    };
    let proved: Vec<(usize, Vec<u8>)> = (0..32)
        .flat_map(|k| it.holders[..usize::from(T)].iter().map(move |holder| (k, holder)))
        .map(|(k, holder)| (k, holder.prove(&it.sealed[k], rng).expect("checked").encode()))
        .collect();
    let encrypt = micros(batches, || key.encrypt(black_box(&it.label), &[7; 32], rng));
    let check = micros(batches, || key.check(read(&bytes[0])).is_ok());
    let check_64 = micros(batches, || {
        let all = bytes.iter().map(|it| read(it)).collect();
        key.check_batch(all, rng).iter().all(Result::is_ok)
    });
    let share = micros(batches, || it.holders[0].share(black_box(first)).expect("checked").encode());
    let verify = micros(batches, || {
        let of = |(k, bytes): &(usize, Vec<u8>)| {
            (&*it.sealed[*k], ProvedShare::<G>::decode(black_box(bytes)).expect("well-formed"))
        };
        key.verify_shares(&proved.iter().map(of).collect::<Vec<_>>(), rng).iter().all(Result::is_ok)
    });
    let combine = |it: &System| {
        let (mut reader, found) = (Combiner::new(it.key.clone()), it.shares());
        micros(batches, || reader.interpolate(black_box(&found)))
    };
    [encrypt, check, check_64 / bytes.len() as f64, share, verify / proved.len() as f64, combine(&it), combine(&small)]
}

struct System {
    key: Arc<PublicKey<G>>,
    holders: Vec<KeyShare<G>>,
    label: Label,
    sealed: Vec<Checked<G>>,
}

impl System {
    fn new(parameters: Parameters, rng: &mut impl CryptoRng) -> System {
        let (key, holders) = deal::<G>(parameters, rng).expect("parameters in range");
        let label = Label::new(b"client", 1).header("topic", "value").access(b"role = doctor");
        let seal = |_| {
            let sealed = key.encrypt(&label, &[7; 32], rng);
            key.check(key.bind(sealed, &label)).expect("well-formed")
        };
        let sealed = (0..CIPHERTEXTS).map(seal).collect();
        System { key: Arc::new(key), holders, label, sealed }
    }

    /// The first holder's and the last one's.
    fn shares(&self) -> Vec<Share<G>> {
        let some = [&self.holders[0], &self.holders[usize::from(N) - 1]];
        some.map(|holder| holder.share(&self.sealed[0]).expect("checked")).into()
    }
}

/// µs of one call: the fastest batch, since on a shared machine everything else only adds.
fn micros<T>(batches: usize, mut operation: impl FnMut() -> T) -> f64 {
    let begun = Instant::now();
    let mut calls = 0_u32;
    while begun.elapsed() < BATCH {
        black_box(operation());
        calls += 1;
    }
    let mut fastest = f64::INFINITY;
    for _ in 0..batches {
        let begun = Instant::now();
        for _ in 0..calls {
            black_box(operation());
        }
        fastest = fastest.min(begun.elapsed().as_secs_f64() * 1e6 / f64::from(calls));
    }
    fastest
}

const T: u16 = 2;
const N: u16 = 4;
const CIPHERTEXTS: usize = 64;
/// Shorter than a time slice, so that some batch has the processor to itself.
const BATCH: Duration = Duration::from_millis(1);
