//! What threshold encryption costs: TDH2 on ristretto255, in units of one variable-base multiplication timed
//! beside it, so that the rows mean the same on any machine. One thread.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha20Rng;
use rand_core::{CryptoRng, SeedableRng};
use sealcast_crypto::group::{Parameters, PrimeGroup, Ristretto255, SecretScalar};
use sealcast_crypto::tdh2::{
    Checked, Ciphertext, Combiner, KeyShare, Label, Labelled, ProvedShare, PublicKey, Share, deal,
};

use crate::Failure;
use crate::figures::{Bench, Goal, Row, median};

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
    let pairs = bench.pick(51, 201);
    let costs = costs(pairs, &mut rng);
    let row = |i: usize| {
        let Cost { units, micros } = costs[i];
        Row::new("brokers", ROWS[i], format!("TDH2: {}", WHAT[i]), "units", Goal::AtMost(PROTOTYPE[i] * 1.15))
            .part("us", micros)
            .measured(
                units,
                format!("the median of {pairs} pairs of 1 ms, a unit and this in turn, ristretto255, one thread"),
            )
    };
    Ok((0..ROWS.len()).map(row).collect())
}

/// One variable-base multiplication, without encoding: x P.
struct Unit {
    x: <G as PrimeGroup>::Scalar,
    p: <G as PrimeGroup>::Point,
}

impl Unit {
    fn new(rng: &mut impl CryptoRng) -> Unit {
        let scalar = |rng: &mut _| {
            let bytes = SecretScalar::<G>::random(rng).to_bytes();
            G::decode_scalar(bytes.expose()).expect("a scalar's own bytes")
        };
        Unit { x: scalar(rng), p: G::mul_base(&scalar(rng)) }
    }

    fn run(&self) -> <G as PrimeGroup>::Point {
        G::mul(black_box(&self.p), black_box(&self.x))
    }
}

/// µs of a unit on each core while all are at it: what it costs a machine that is busy. Cores may be threads of one.
pub(super) fn unit_under_load(cores: usize) -> f64 {
    let unit = Unit::new(&mut ChaCha20Rng::seed_from_u64(1));
    let one = || {
        let (begun, mut calls) = (Instant::now(), 0_u32);
        while begun.elapsed() < LOADED {
            black_box(unit.run());
            calls += 1;
        }
        begun.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
    };
    let each: Vec<f64> = std::thread::scope(|threads| {
        let all: Vec<_> = (0..cores).map(|_| threads.spawn(one)).collect();
        all.into_iter().map(|it| it.join().expect("it only counts")).collect()
    });
    each.iter().sum::<f64>() / cores as f64
}

/// What a call takes.
#[derive(Clone, Copy)]
struct Cost {
    units: f64,
    micros: f64,
}

impl Cost {
    /// Of one of the parts that a call does.
    fn of_each(self, parts: usize) -> Cost {
        Cost { units: self.units / parts as f64, micros: self.micros / parts as f64 }
    }
}

/// Of each row.
fn costs(pairs: usize, rng: &mut ChaCha20Rng) -> [Cost; 7] {
    let unit = Unit::new(rng);
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
    let encrypt = cost(pairs, &unit, || key.encrypt(black_box(&it.label), &[7; 32], rng));
    let check = cost(pairs, &unit, || key.check(read(&bytes[0])).is_ok());
    let check_64 = cost(pairs, &unit, || {
        let all = bytes.iter().map(|it| read(it)).collect();
        key.check_batch(all, rng).iter().all(Result::is_ok)
    });
    let share = cost(pairs, &unit, || it.holders[0].share(black_box(first)).expect("checked").encode());
    let verify = cost(pairs, &unit, || {
        let of = |(k, bytes): &(usize, Vec<u8>)| {
            (&*it.sealed[*k], ProvedShare::<G>::decode(black_box(bytes)).expect("well-formed"))
        };
        key.verify_shares(&proved.iter().map(of).collect::<Vec<_>>(), rng).iter().all(Result::is_ok)
    });
    let combine = |it: &System| {
        let (mut reader, found) = (Combiner::new(it.key.clone()), it.shares());
        cost(pairs, &unit, || reader.interpolate(black_box(&found)))
    };
    [encrypt, check, check_64.of_each(bytes.len()), share, verify.of_each(proved.len()), combine(&it), combine(&small)]
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

/// Of one call. A unit and the call run next to each other, so that whatever else slows the machine slows both; the
/// median of the pairs' ratios, since it may begin or end between the two.
fn cost<T>(pairs: usize, unit: &Unit, mut operation: impl FnMut() -> T) -> Cost {
    let calls = calls_in_a_batch(&mut operation);
    let units = calls_in_a_batch(&mut || unit.run());
    let both: Vec<(f64, f64)> =
        (0..pairs).map(|_| (micros(units, &mut || unit.run()), micros(calls, &mut operation))).collect();
    let ratios: Vec<f64> = both.iter().map(|(unit, call)| call / unit).collect();
    let micros: Vec<f64> = both.iter().map(|(_, call)| *call).collect();
    Cost { units: median(&ratios), micros: median(&micros) }
}

fn calls_in_a_batch<T>(operation: &mut impl FnMut() -> T) -> u32 {
    let (begun, mut calls) = (Instant::now(), 0);
    while begun.elapsed() < BATCH {
        black_box(operation());
        calls += 1;
    }
    calls
}

fn micros<T>(calls: u32, operation: &mut impl FnMut() -> T) -> f64 {
    let begun = Instant::now();
    for _ in 0..calls {
        black_box(operation());
    }
    begun.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
}

const T: u16 = 2;
const N: u16 = 4;
const CIPHERTEXTS: usize = 64;
/// Shorter than a time slice, so that most pairs lie in one.
const BATCH: Duration = Duration::from_millis(1);
const LOADED: Duration = Duration::from_millis(500);
