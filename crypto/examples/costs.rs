//! Prints what each primitive costs, in µs on one thread: the fastest of fifteen short batches, since on a
//! shared machine everything else only adds.
//!
//!     cargo run --release -p sealcast-crypto --example costs
//!
//! Take ratios within one run all the same.

use std::hint::black_box;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use sealcast_crypto::aead::{Key, Suite, TAG_LEN};
use sealcast_crypto::bootstrap::BootstrapKey;
use sealcast_crypto::dutta_barua::{Context, Contribution, Kind, Ring, Round1, Shares};
use sealcast_crypto::hash::{Transcript, sha256};
use sealcast_crypto::hpke::{self, KeyPair};
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::merkle::{Tree, root_of};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{Algorithm, OriginKey, SigningKey};

fn main() {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    sealing(&mut rng);
    signing(&mut rng);
    deriving(&mut rng);
    println!("\nDutta–Barua on ristretto255, µs per member and ring; 'proved' from the second attempt on");
    println!(
        "{:>4} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10}  shares",
        "n", "start", "decode n-1", "share", "admit n-1", "key", "total"
    );
    for shares in [Shares::Plain, Shares::Proved] {
        for n in [1, 2, 3, 4, 8, 16, 32, 64] {
            ring(n, shares, &mut rng);
        }
    }
}

fn sealing(rng: &mut ChaCha20Rng) {
    println!("{:<46} {:>10} {:>10}", "sealing in place", "µs", "GB/s");
    for suite in [Suite::Aes256Gcm, Suite::ChaCha20Poly1305] {
        let key = Key::new(suite, &Secret::random(rng));
        for size in [100, 1024, 1400, 64 << 10] {
            let mut buffer = vec![0; size + TAG_LEN];
            rng.fill_bytes(&mut buffer);
            let mut counter = 0;
            let seal = micros(|| {
                counter += 1;
                key.seal(counter, &[7; 28], black_box(&mut buffer));
            });
            let sealed = buffer.clone();
            let copy = micros(|| black_box(&mut buffer).copy_from_slice(black_box(&sealed)));
            let open = micros(|| {
                buffer.copy_from_slice(&sealed);
                assert!(key.open(counter, &[7; 28], black_box(&mut buffer)).is_ok());
            });
            let throughput = |us: f64| size as f64 / us / 1e3;
            println!("{:<46} {seal:>10.3} {:>10.2}", format!("{suite:?} seal {size} B"), throughput(seal));
            println!(
                "{:<46} {:>10.3} {:>10.2}",
                format!("{suite:?} open {size} B"),
                open - copy,
                throughput(open - copy)
            );
        }
    }
    let (bootstrap_key, message) = (BootstrapKey::new(&Secret::random(rng)), vec![1; 1024]);
    row("veil seal 1024 B (with its Vec)", micros(|| bootstrap_key.seal([3; 12], black_box(&message))));
    let sealed = bootstrap_key.seal([3; 12], &message);
    row("veil open 1024 B (with its Vec)", micros(|| bootstrap_key.open(black_box(&sealed)).is_ok()));
}

fn signing(rng: &mut ChaCha20Rng) {
    println!();
    let message = [5; 32];
    for algorithm in [Algorithm::Ed25519, Algorithm::P256] {
        let key = SigningKey::generate(algorithm, rng);
        let signature = key.sign(&message);
        row(&format!("{algorithm:?} sign 32 B"), micros(|| key.sign(black_box(&message))));
        row(
            &format!("{algorithm:?} verify 32 B"),
            micros(|| key.public().verify(&message, black_box(&signature)).is_ok()),
        );
    }
    let origin = OriginKey::generate(rng);
    let records: Vec<[u8; 32]> = (0..64_u8).map(|i| [i; 32]).collect();
    let tree = Tree::new(&records);
    let per_record = |us: f64| us / 64.0;
    let send = micros(|| {
        let tree = Tree::new(black_box(&records));
        (origin.sign(&tree.root()), (0..64).map(|i| tree.path(i).len()).sum::<usize>())
    });
    row("origin batch of 64: tree, signature, paths, each", per_record(send));
    let path = tree.path(9);
    row("origin batch of 64: path to root, one record", micros(|| root_of(black_box(&records[9]), 9, 64, &path)));
    row("SHA-256 of 1024 B", micros(|| sha256(black_box(&[9; 1024]))));
}

fn deriving(rng: &mut ChaCha20Rng) {
    println!();
    let (secret, part) = (Secret::<32>::random(rng), [7_u8; 32]);
    row("HKDF to 32 B, six parts", micros(|| hkdf::<32>(secret.expose(), &part, &[black_box(&part[..]); 6])));
    row(
        "transcript of six parts of 32 B",
        micros(|| (0..6).fold(Transcript::new("label"), |t, _| t.add(&part)).finish()),
    );
    let pair = KeyPair::derive(&secret);
    let sealed = hpke::seal_to(&pair.public(), b"info", b"", &part, rng).expect("a good key");
    row("HPKE seal 32 B", micros(|| hpke::seal_to(&pair.public(), b"info", b"", &part, rng).is_ok()));
    row("HPKE open 32 B", micros(|| pair.open(b"info", b"", black_box(&sealed)).is_ok()));
}

fn ring(n: usize, shares: Shares, rng: &mut ChaCha20Rng) {
    let context = Context {
        group: "g",
        compartment: 0,
        epoch: 1,
        attempt: 1,
        kind: Kind::Setup,
        roster: [1; 32],
        instance: [2; 32],
    };
    let ring = Ring::new(&context, n, shares);
    // Seat 0 always draws the same, so that it can be consumed again and again within one ring.
    let mine = || Round1::start(&ring, 0, &mut ChaCha20Rng::seed_from_u64(2));
    let others = (1..n).map(|seat| Round1::start(&ring, seat, rng));
    let (members, sent): (Vec<_>, Vec<_>) = std::iter::once(mine()).chain(others).unzip();
    let round2 = || mine().0.finish(&sent, &mut ChaCha20Rng::seed_from_u64(3)).expect("all honest");

    let start = micros(mine);
    let bytes = sent[n - 1].encode();
    let decode = micros(|| Contribution::decode(&ring, n - 1, black_box(&bytes)).is_ok()) * (n - 1) as f64;
    let share = micros_after(mine, |(me, _)| me.finish(&sent, &mut ChaCha20Rng::seed_from_u64(3)).is_ok());
    let finished = members.into_iter().map(|me| me.finish(&sent, &mut ChaCha20Rng::seed_from_u64(3)));
    let shares_sent: Vec<_> = finished.map(|it| it.expect("all honest").1.encode()).collect();
    let me = round2().0;
    let admit = micros(|| me.admit(n - 1, black_box(&shares_sent[n - 1])).is_ok()) * (n - 1) as f64;
    let all: Vec<_> = shares_sent.iter().enumerate().map(|(i, it)| me.admit(i, it).expect("honest")).collect();
    let key = micros_after(round2, |(me, _)| me.finish(&all).is_ok());
    let total = start + decode + share + admit + key;
    println!("{n:>4} {start:>8.1} {decode:>10.1} {share:>10.1} {admit:>10.1} {key:>10.1} {total:>10.1}  {shares:?}");
}

fn row(what: &str, us: f64) {
    println!("{what:<46} {us:>10.3}");
}

/// µs of one call.
fn micros<T>(mut operation: impl FnMut() -> T) -> f64 {
    let begun = Instant::now();
    let mut calls = 0_u32;
    while begun.elapsed() < BATCH {
        black_box(operation());
        calls += 1;
    }
    fastest(|| {
        let begun = Instant::now();
        for _ in 0..calls {
            black_box(operation());
        }
        begun.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
    })
}

/// µs of one call, what it consumes made before.
fn micros_after<I, T>(mut prepare: impl FnMut() -> I, mut operation: impl FnMut(I) -> T) -> f64 {
    fastest(|| {
        let inputs: Vec<I> = (0..PREPARED).map(|_| prepare()).collect();
        let begun = Instant::now();
        for input in inputs {
            black_box(operation(input));
        }
        begun.elapsed().as_secs_f64() * 1e6 / PREPARED as f64
    })
}

fn fastest(batch: impl FnMut() -> f64) -> f64 {
    std::iter::repeat_with(batch).take(BATCHES).fold(f64::INFINITY, f64::min)
}

const BATCHES: usize = 15;
/// Shorter than a time slice, so that some batch has the processor to itself.
const BATCH: Duration = Duration::from_millis(1);
const PREPARED: usize = 20;
