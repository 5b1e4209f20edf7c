//! The engine alone: four brokers on loopback (or one, `--solo`), frames of signed operations whose signature every
//! broker checks, nothing executed. What the brokers' throughput is compared with.
//!
//! cargo run --release -p sealcast-order --example alone -- [--folder F] [--ops N] [--frame K] [--window W]
//!     [--term T] [--to-all] [--paced] [--solo] [--threads N]
//!
//! A client in the same process hands in frames of K operations of 1 KB, signed beforehand, with W operations under
//! way; each goes to one broker in turn, or to all (`--to-all`). An operation counts when two brokers (f+1) delivered
//! it. `--paced` hands in one at a time, 20 a second, and measures latency without load.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use commonware_codec::{DecodeExt as _, Encode as _};
use commonware_cryptography::ed25519::{PrivateKey, PublicKey, Signature};
use commonware_cryptography::{BatchEntry, BatchVerifier as _, Signer as _};
use commonware_parallel::Sequential;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};
use sealcast_order::engine::{Broker, Engine, Settings, SigningSeed};
use sealcast_order::pool::Pool;
use sealcast_order::solo::{self, Solo};
use sealcast_order::{Ack, Application, Block, BlockSize, Delivered, Frame, Hash, Order, Origin, Parent, Refused};

const NAMESPACE: &[u8] = b"alone";
const OPERATION_BYTES: usize = 1024;
/// Signatures per batch.
const BATCH: usize = 128;
const SIGNATURE_BYTES: usize = 64;

fn main() {
    let args = Args::parse();
    let _ = std::fs::remove_dir_all(&args.folder);
    let frames = sign(&args);
    let client = Arc::new(Client::new(frames.len(), if args.solo { 1 } else { 2 }));
    let orders = start(&args, &client);
    warm_up(&orders, &client, &frames[0]);

    let cpu = cpu_seconds();
    let begun = Instant::now();
    for (n, frame) in frames.iter().enumerate().skip(1) {
        client.wait(n, args.window / args.frame);
        client.sent(n);
        let at = if args.to_all { 0..orders.len() } else { n % orders.len()..n % orders.len() + 1 };
        for order in &orders[at] {
            while order.submit(frame.clone()) == Err(Refused::Full) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if args.paced {
            client.wait(n + 1, 1);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    client.wait(frames.len(), 1);
    let seconds = begun.elapsed().as_secs_f64();
    let operations = ((frames.len() - 1) * args.frame) as f64;
    let cpu = cpu_seconds() - cpu;
    let mut latencies = client.latencies();
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let status = orders[0].status();
    println!(
        "{} brokers, {} per frame, term {}, {}: {:.0} ops/s, p50 {:.1} ms, p99 {:.1} ms, {:.1} CPU us/op, {:.0} blocks/s",
        orders.len(),
        args.frame,
        args.term,
        args.folder.display(),
        operations / seconds,
        at(0.5),
        at(0.99),
        cpu * 1e6 / operations,
        status.tip as f64 / seconds,
    );
    drop(orders);
    let _ = std::fs::remove_dir_all(&args.folder);
}

struct Args {
    folder: PathBuf,
    operations: usize,
    frame: usize,
    window: usize,
    term: u32,
    threads: usize,
    to_all: bool,
    paced: bool,
    solo: bool,
}

impl Args {
    fn parse() -> Args {
        let words: Vec<String> = std::env::args().collect();
        let text = |name: &str| words.iter().position(|w| w == name).map(|i| words[i + 1].clone());
        let number = |name: &str, default: usize| text(name).map_or(default, |t| t.parse().expect("a number"));
        let flag = |name: &str| words.iter().any(|w| w == name);
        let paced = flag("--paced");
        Args {
            folder: text("--folder").map_or_else(|| std::env::temp_dir().join("sealcast-alone"), PathBuf::from),
            operations: number("--ops", if paced { 200 } else { 200_000 }),
            frame: number("--frame", if paced { 1 } else { 32 }),
            window: number("--window", 20_000),
            term: u32::try_from(number("--term", 64)).expect("a term fits 32 bits"),
            threads: number("--threads", 2),
            to_all: flag("--to-all"),
            paced,
            solo: flag("--solo"),
        }
    }
}

/// Frames of `frame` operations behind a signature over the SHA-256 of them.
fn sign(args: &Args) -> Vec<Frame> {
    let key = PrivateKey::from_seed(1);
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let of = |n: usize| {
        let mut bytes = vec![0; SIGNATURE_BYTES + args.frame * OPERATION_BYTES];
        rng.fill_bytes(&mut bytes[SIGNATURE_BYTES..]);
        bytes[SIGNATURE_BYTES..SIGNATURE_BYTES + 8].copy_from_slice(&(n as u64).to_be_bytes());
        let hash = Frame::new(bytes[SIGNATURE_BYTES..].to_vec()).hash();
        bytes[..SIGNATURE_BYTES].copy_from_slice(&key.sign(NAMESPACE, &hash).encode());
        Frame::new(bytes)
    };
    (0..=args.operations / args.frame).map(of).collect()
}

fn number(frame: &Frame) -> usize {
    let bytes = frame.bytes()[SIGNATURE_BYTES..SIGNATURE_BYTES + 8].try_into().expect("8 bytes");
    usize::try_from(u64::from_be_bytes(bytes)).expect("a frame's number is small")
}

fn start(args: &Args, client: &Arc<Client>) -> Vec<Box<dyn Order>> {
    let size = BlockSize::default();
    if args.solo {
        let settings = solo::Settings {
            namespace: NAMESPACE.to_vec(),
            folder: args.folder.clone(),
            block: size,
            unacknowledged: 32,
        };
        let checker = Arc::new(Checker::new(size, client.clone()));
        return vec![Box::new(Solo::start(settings, checker).expect("it starts"))];
    }
    let listeners: Vec<TcpListener> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    let seeds: Vec<SigningSeed> = (1..=4).map(|i| SigningSeed::new(&[i; 32])).collect();
    let of = |(listener, seed): (&TcpListener, &SigningSeed)| Broker {
        key: seed.public(),
        address: listener.local_addr().expect("it is bound"),
    };
    let brokers: Vec<Broker> = listeners.iter().zip(&seeds).map(of).collect();
    drop(listeners);
    let start = |(i, seed): (usize, SigningSeed)| {
        let folder = args.folder.join(i.to_string());
        let settings = Settings {
            term: args.term,
            threads: args.threads,
            ..Settings::new(NAMESPACE, brokers.clone(), seed, brokers[i].address, folder)
        };
        let checker = Arc::new(Checker::new(size, client.clone()));
        Box::new(Engine::start(settings, checker).expect("it starts")) as Box<dyn Order>
    };
    seeds.into_iter().enumerate().map(start).collect()
}

/// The first frame shows that links and leader work.
fn warm_up(orders: &[Box<dyn Order>], client: &Client, frame: &Frame) {
    client.sent(0);
    orders.iter().for_each(|o| {
        let _ = o.submit(frame.clone());
    });
    client.wait(1, 1);
}

/// What is under way, and how long it took.
struct Client {
    quorum: usize,
    state: Mutex<Progress>,
    changed: Condvar,
}

struct Progress {
    sent: Vec<Option<Instant>>,
    copies: Vec<usize>,
    latencies: Vec<Duration>,
    done: usize,
}

impl Client {
    fn new(frames: usize, quorum: usize) -> Client {
        let progress = Progress { sent: vec![None; frames], copies: vec![0; frames], latencies: Vec::new(), done: 0 };
        Client { quorum, state: Mutex::new(progress), changed: Condvar::new() }
    }

    fn sent(&self, n: usize) {
        self.state.lock().expect("no panic").sent[n] = Some(Instant::now());
    }

    /// Until fewer than `window` of the first `n` frames are under way.
    fn wait(&self, n: usize, window: usize) {
        let state = self.state.lock().expect("no panic");
        drop(self.changed.wait_while(state, |s| s.done + window.max(1) <= n).expect("no panic"));
    }

    fn delivered(&self, frames: &[Frame]) {
        let mut state = self.state.lock().expect("no panic");
        for n in frames.iter().map(number) {
            state.copies[n] += 1;
            if state.copies[n] == self.quorum {
                state.done += 1;
                let took = state.sent[n].expect("it was sent").elapsed();
                if n > 0 {
                    state.latencies.push(took);
                }
            }
        }
        self.changed.notify_all();
    }

    fn latencies(&self) -> Vec<Duration> {
        self.state.lock().expect("no panic").latencies.clone()
    }
}

/// Checks each signature once and executes nothing.
struct Checker {
    client: Arc<Client>,
    key: PublicKey,
    state: Mutex<State>,
    draws: AtomicU64,
}

struct State {
    pool: Pool,
    checked: BTreeSet<Hash>,
    ordered: BTreeSet<Hash>,
}

impl Checker {
    fn new(size: BlockSize, client: Arc<Client>) -> Checker {
        let key = PrivateKey::from_seed(1).public_key();
        let state = State { pool: Pool::new(size), checked: BTreeSet::new(), ordered: BTreeSet::new() };
        Checker { client, key, state: Mutex::new(state), draws: AtomicU64::new(0) }
    }

    fn check(&self, frames: &[Frame]) -> bool {
        let new: Vec<&Frame> = {
            let state = self.state.lock().expect("no panic");
            frames.iter().filter(|f| !state.checked.contains(&f.hash())).collect()
        };
        let mut rng = ChaCha20Rng::seed_from_u64(self.draws.fetch_add(1, Ordering::Relaxed));
        let good = new.chunks(BATCH).all(|chunk| self.check_batch(chunk, &mut rng));
        if good {
            self.state.lock().expect("no panic").checked.extend(new.iter().map(|f| f.hash()));
        }
        good
    }

    fn check_batch(&self, frames: &[&Frame], rng: &mut ChaCha20Rng) -> bool {
        let signed: Vec<(Hash, Signature)> = frames
            .iter()
            .map(|f| {
                let signature = Signature::decode(f.bytes().slice(..SIGNATURE_BYTES)).expect("64 bytes");
                (Frame::new(f.bytes().slice(SIGNATURE_BYTES..)).hash(), signature)
            })
            .collect();
        PublicKey::verify_batch(
            rng,
            &signed,
            |_, (hash, signature)| BatchEntry { namespace: NAMESPACE, message: hash, public_key: &self.key, signature },
            &Sequential,
        )
    }
}

impl Application for Checker {
    fn offer(&self, _: Origin, frame: Frame) -> Result<(), Refused> {
        let hash = frame.hash();
        let mut state = self.state.lock().expect("no panic");
        if state.ordered.contains(&hash) {
            return Err(Refused::Known);
        }
        state.pool.offer(frame)
    }

    fn draw(&self, parent: &Parent<'_>, size: BlockSize) -> Vec<Frame> {
        let frames = self.state.lock().expect("no panic").pool.draw(parent.ancestors, size);
        assert!(self.check(&frames), "the client signs well");
        frames
    }

    fn waiting(&self, size: BlockSize) -> Vec<Frame> {
        self.state.lock().expect("no panic").pool.draw(&[], size)
    }

    fn valid(&self, parent: &Parent<'_>, block: &Block) -> bool {
        let flying: BTreeSet<Hash> = parent.ancestors.iter().flat_map(|b| b.frames.iter().map(Frame::hash)).collect();
        let new = {
            let state = self.state.lock().expect("no panic");
            block.frames.iter().all(|f| !flying.contains(&f.hash()) && !state.ordered.contains(&f.hash()))
        };
        new && self.check(&block.frames)
    }

    fn deliver(&self, delivered: Delivered, ack: Ack) {
        let mut state = self.state.lock().expect("no panic");
        state.pool.delivered(&delivered.block);
        for hash in delivered.block.frames.iter().map(Frame::hash) {
            state.checked.remove(&hash);
            state.ordered.insert(hash);
        }
        drop(state);
        self.client.delivered(&delivered.block.frames);
        ack.done();
    }
}

/// CPU time of this process: brokers and client.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name in brackets").split_whitespace().collect();
    let ticks: f64 = fields[11..13].iter().map(|t| t.parse::<f64>().expect("a number")).sum();
    ticks / 100.0
}
