//! What a broker's pure parts cost: checking batches and executing them, in memory, on one thread.
//!
//! `cargo run --release -p sealcast-broker --example costs`

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use sealcast_broker::genesis::{Genesis, Issuer};
use sealcast_broker::operation::{
    Batch, Body, Checked, Claim, Execute, Header, Operation, Publication, Registration, check,
};
use sealcast_broker::state::{Memory, State};
use sealcast_crypto::ed25519::Key;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{Algorithm, OriginKey, SigningKey};
use sealcast_wire::Utc;

fn main() {
    let key = |seed: u8| OriginKey::from_seed(&Secret::from_bytes([seed; 32]));
    let issuer = SigningKey::from_seed(Algorithm::Ed25519, &Secret::from_bytes([9; 32])).expect("a key");
    let genesis = Genesis {
        name: "costs".into(),
        brokers: BTreeSet::new(),
        quorum: 1,
        administrators: vec![Key::new(&key(8).public_bytes()).expect("a key")],
        issuers: BTreeMap::from([("exchange".to_owned(), Issuer::Key(issuer.public().clone()))]),
    };
    let cluster = genesis.cluster();
    let clients: Vec<OriginKey> = (10..10 + CLIENTS).map(key).collect();
    let mut state = State::open(genesis, Memory::default()).expect("memory does not fail");
    let register = |k: &OriginKey| {
        let claim = Claim::sign("exchange", &[1], (Utc(0), Utc(100)), &[("desk", "fx")], k.public(), &issuer);
        let registration = Operation::Register(Registration { intent: false, proof: claim.into() });
        let subscribe = Operation::Subscribe("market/#".parse().expect("an interest"));
        Batch::sign(&cluster, k, 0, vec![registration, subscribe])
    };
    let checked = |batches: Vec<Batch>| -> Vec<Checked> {
        check(&cluster, batches, |_| vec![]).into_iter().map(|f| f.expect("a good batch")).collect()
    };
    state.execute(1, Utc(1), &checked(clients.iter().map(register).collect())).expect("executed");

    println!(
        "{:>8} {:>12} {:>12} {:>12}   µs per operation of 1 KB, {CLIENTS} subscribers to each",
        "batches of", "parse", "check", "execute"
    );
    let (mut height, mut first) = (1, 2);
    for size in [1_u64, 32] {
        let (mut parse, mut verify, mut execute) = (0.0, 0.0, 0.0);
        for _ in 0..BLOCKS {
            let batches = OPERATIONS / size / clients.len() as u64;
            let sign =
                |k: &OriginKey, n: u64| Batch::sign(&cluster, k, first + n * size, vec![publication(); size as usize]);
            let bytes: Vec<Vec<u8>> =
                clients.iter().flat_map(|k| (0..batches).map(move |n| sign(k, n).to_bytes())).collect();
            first += batches * size;
            let per = |start: Instant| {
                start.elapsed().as_secs_f64() * 1e6 / (bytes.len() as u64 * size) as f64 / BLOCKS as f64
            };
            let start = Instant::now();
            let read: Vec<Batch> = bytes.iter().map(|b| Batch::from_bytes(b).expect("a batch")).collect();
            parse += per(start);
            let start = Instant::now();
            let batches = checked(read);
            verify += per(start);
            height += 1;
            let start = Instant::now();
            let outbox = state.execute(height, Utc(2), &batches).expect("executed");
            let root = outbox.root();
            execute += per(start);
            assert!(root != [0; 32] && outbox.notices.len() == clients.len());
        }
        println!("{size:>8} {parse:>12.2} {verify:>12.2} {execute:>12.2}");
    }
}

fn publication() -> Operation {
    Operation::Publish(Box::new(Publication {
        headers: vec![Header { topic: "market/eurusd".into(), value: None }],
        associated: vec![],
        access: Some("exchange:desk = fx and exchange:desk != rates".parse().expect("a condition")),
        execute: Execute::Nothing,
        policy: 0,
        epoch: 0,
        body: Body::Plain(vec![7; 1024]),
    }))
}

const CLIENTS: u8 = 8;
const OPERATIONS: u64 = 2048;
const BLOCKS: u64 = 10;
