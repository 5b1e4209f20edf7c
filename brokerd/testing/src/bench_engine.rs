//! The ordering engine alone: four brokers on loopback (or one, `--solo`), the brokers' own batches of publications whose
//! signatures every broker checks, nothing executed. What the brokers' throughput is compared with.
//!
//! A client in the same process hands in batches of K publications of 1 KB, signed beforehand, with W publications under
//! way; each goes to one broker in turn, or to all (`--to-all`). A publication counts when f + 1 brokers delivered it.
//! `--paced` hands in one at a time, 20 a second, and measures latency without load.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use sealcast_broker::genesis::Cluster;
use sealcast_broker::operation::{self, Body, Execute, Header, Operation, Publication};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_order::pool::Pool;
use sealcast_order::solo::{self, Solo};
use sealcast_order::{Ack, Application, Batch, Block, BlockSize, Delivered, Hash, Order, Origin, Parent, Refused};
use sealcast_order_engine::{Broker, Engine, Settings, SigningSeed};

const CLUSTER: Cluster = Cluster([7; 32]);
const BODY_BYTES: usize = 1024;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where brokers keep their logs; removed first
    #[arg(long, value_name = "FOLDER")]
    folder: PathBuf,
    /// Publications of 1 KB
    #[arg(long, default_value_t = 200_000)]
    ops: usize,
    /// Publications of one batch, which has one signature
    #[arg(long, default_value_t = 32)]
    batch: usize,
    /// Publications under way
    #[arg(long, default_value_t = 20_000)]
    window: usize,
    /// Views that a leader keeps
    #[arg(long, default_value_t = 64)]
    term: u32,
    /// Threads of each broker
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Hand each batch to all brokers
    #[arg(long)]
    to_all: bool,
    /// One at a time, 20 a second: latency without load
    #[arg(long)]
    paced: bool,
    /// One broker alone
    #[arg(long)]
    solo: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) {
    let _ = std::fs::remove_dir_all(&args.folder);
    let batches = sign(args);
    let client = Arc::new(Client::new(batches.len(), args.batch, if args.solo { 1 } else { 2 }));
    let orders = start(args, &client);
    warm_up(&orders, &client, &batches[0]);

    let cpu = cpu_seconds();
    let begun = Instant::now();
    for (n, batch) in batches.iter().enumerate().skip(1) {
        client.wait(n, args.window / args.batch);
        client.sent(n);
        let at = if args.to_all { 0..orders.len() } else { n % orders.len()..n % orders.len() + 1 };
        for order in &orders[at] {
            while order.submit(batch.clone()) == Err(Refused::Full) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if args.paced {
            client.wait(n + 1, 1);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    client.wait(batches.len(), 1);
    let seconds = begun.elapsed().as_secs_f64();
    let operations = ((batches.len() - 1) * args.batch) as f64;
    let cpu = cpu_seconds() - cpu;
    let mut latencies = client.latencies();
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let (rate, cpu) = (operations / seconds, cpu * 1e6 / operations);
    let (p50, p99) = (at(0.5), at(0.99));
    if args.json {
        println!("{{\"ops_s\":{rate:.1},\"p50_ms\":{p50:.3},\"p99_ms\":{p99:.3},\"cpu_us_op\":{cpu:.2}}}");
    } else {
        println!(
            "{} brokers, {} per batch, term {}: {rate:.0} ops/s, p50 {p50:.1} ms, p99 {p99:.1} ms, {cpu:.1} CPU us/op, {:.0} blocks/s",
            orders.len(),
            args.batch,
            args.term,
            orders[0].status().tip as f64 / seconds,
        );
    }
    drop(orders);
    let _ = std::fs::remove_dir_all(&args.folder);
}

/// Batches of `batch` publications, by one client.
fn sign(args: &Args) -> Vec<Batch> {
    let key = OriginKey::from_seed(&Secret::from_bytes([1; 32]));
    let publication = |n: usize| {
        let mut body = vec![0; BODY_BYTES];
        body[..8].copy_from_slice(&(n as u64).to_be_bytes());
        Operation::Publish(Box::new(Publication {
            headers: vec![Header { topic: "market/eurusd".into(), value: None }],
            associated: Vec::new(),
            access: None,
            execute: Execute::Nothing,
            policy: 0,
            epoch: 0,
            body: Body::Plain(body),
        }))
    };
    let of = |n: usize| {
        let first = n * args.batch;
        let operations = (first..first + args.batch).map(publication).collect();
        Batch::new(operation::Batch::sign(&CLUSTER, &key, first as u64, operations).to_bytes())
    };
    (0..=args.count() / args.batch).map(of).collect()
}

impl Args {
    /// Paced runs are short.
    fn count(&self) -> usize {
        if self.paced { self.ops.min(200) } else { self.ops }
    }
}

fn start(args: &Args, client: &Arc<Client>) -> Vec<Box<dyn Order>> {
    let size = BlockSize::default();
    if args.solo {
        let settings = solo::Settings {
            namespace: CLUSTER.0.to_vec(),
            folder: args.folder.clone(),
            block: size,
            unacknowledged: 32,
        };
        let checker = Arc::new(Checker::new(client.clone()));
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
            ..Settings::new(&CLUSTER.0, brokers.clone(), seed, brokers[i].address, folder)
        };
        let checker = Arc::new(Checker::new(client.clone()));
        Box::new(Engine::start(settings, checker).expect("it starts")) as Box<dyn Order>
    };
    seeds.into_iter().enumerate().map(start).collect()
}

/// The first batch shows that links and leader work.
fn warm_up(orders: &[Box<dyn Order>], client: &Client, batch: &Batch) {
    client.sent(0);
    orders.iter().for_each(|o| {
        let _ = o.submit(batch.clone());
    });
    client.wait(1, 1);
}

/// What is under way, and how long it took.
struct Client {
    /// f + 1.
    quorum: usize,
    /// Publications of one batch.
    batch: usize,
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
    fn new(batches: usize, batch: usize, quorum: usize) -> Client {
        let progress = Progress { sent: vec![None; batches], copies: vec![0; batches], latencies: Vec::new(), done: 0 };
        Client { quorum, batch, state: Mutex::new(progress), changed: Condvar::new() }
    }

    fn sent(&self, n: usize) {
        self.state.lock().expect("no panic").sent[n] = Some(Instant::now());
    }

    /// Until fewer than `window` of the first `n` batches are under way.
    fn wait(&self, n: usize, window: usize) {
        let state = self.state.lock().expect("no panic");
        drop(self.changed.wait_while(state, |s| s.done + window.max(1) <= n).expect("no panic"));
    }

    /// Batches that begin with these publications were delivered by one broker.
    fn delivered(&self, firsts: &[u64]) {
        let mut state = self.state.lock().expect("no panic");
        for n in firsts.iter().map(|first| usize::try_from(*first).expect("it is small") / self.batch) {
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
    state: Mutex<State>,
}

struct State {
    pool: Pool,
    /// By hash, the number of each batch's first publication.
    checked: BTreeMap<Hash, u64>,
    ordered: BTreeSet<Hash>,
}

impl Checker {
    fn new(client: Arc<Client>) -> Checker {
        let state = State { pool: Pool::new(), checked: BTreeMap::new(), ordered: BTreeSet::new() };
        Checker { client, state: Mutex::new(state) }
    }

    /// Parses and checks what was not checked before, as brokers do.
    fn check(&self, batches: &[Batch]) -> bool {
        let new: Vec<&Batch> = {
            let state = self.state.lock().expect("no panic");
            batches.iter().filter(|f| !state.checked.contains_key(&f.hash())).collect()
        };
        let parsed: Result<Vec<operation::Batch>, _> =
            new.iter().map(|f| operation::Batch::from_bytes(f.bytes())).collect();
        let Ok(parsed) = parsed else { return false };
        let firsts: Vec<u64> = parsed.iter().map(operation::Batch::first).collect();
        let good = operation::check(&CLUSTER, parsed, |_| Vec::new()).iter().all(Result::is_ok);
        if good {
            let hashes = new.iter().map(|f| f.hash());
            self.state.lock().expect("no panic").checked.extend(hashes.zip(firsts));
        }
        good
    }
}

impl Application for Checker {
    fn receive(&self, _: Origin, batch: Batch) -> Result<(), Refused> {
        let hash = batch.hash();
        let mut state = self.state.lock().expect("no panic");
        if state.ordered.contains(&hash) {
            return Err(Refused::Known);
        }
        state.pool.receive(batch)
    }

    fn propose(&self, parent: &Parent<'_>, size: BlockSize) -> Vec<Batch> {
        let batches = self.state.lock().expect("no panic").pool.propose(parent.ancestors, size);
        assert!(self.check(&batches), "the client signs well");
        batches
    }

    fn waiting(&self, size: BlockSize) -> Vec<Batch> {
        self.state.lock().expect("no panic").pool.propose(&[], size)
    }

    fn valid(&self, parent: &Parent<'_>, block: &Block) -> bool {
        let flying: BTreeSet<Hash> = parent.ancestors.iter().flat_map(|b| b.batches.iter().map(Batch::hash)).collect();
        let new = {
            let state = self.state.lock().expect("no panic");
            block.batches.iter().all(|f| !flying.contains(&f.hash()) && !state.ordered.contains(&f.hash()))
        };
        new && self.check(&block.batches)
    }

    fn deliver(&self, delivered: Delivered, ack: Ack) {
        // After a restart batches come that this run did not check; a measurement never restarts.
        assert!(self.check(&delivered.block.batches), "the client signs well");
        let mut state = self.state.lock().expect("no panic");
        state.pool.delivered(&delivered.block);
        let mut firsts = Vec::with_capacity(delivered.block.batches.len());
        for hash in delivered.block.batches.iter().map(Batch::hash) {
            firsts.extend(state.checked.remove(&hash));
            state.ordered.insert(hash);
        }
        drop(state);
        self.client.delivered(&firsts);
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
