//! The engine over real sockets and a real disk: four brokers on loopback.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::executor::block_on;
use sealcast_order::{Fault, Order, Refused};
use sealcast_order_engine::{Broker, Engine, Settings, SigningSeed, StartError};
use sealcast_order_testing::Aged;

#[path = "../../tests/common/mod.rs"]
mod common;

use common::{Folder, Ledger, batch, until};

fn cluster(folder: &Path) -> Vec<Settings> {
    let listeners: Vec<TcpListener> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<SocketAddr> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
    let seeds: Vec<SigningSeed> = (1..=4).map(|i| SigningSeed::new(&[i; 32])).collect();
    let brokers: Vec<Broker> =
        seeds.iter().zip(&addresses).map(|(s, a)| Broker { key: s.public(), address: *a }).collect();
    let of = |i: usize| {
        let folder = folder.join(i.to_string());
        Settings::new(b"loopback", brokers.clone(), seeds[i].clone(), addresses[i], folder)
    };
    (0..4).map(of).collect()
}

#[test]
fn four_brokers_over_tcp_go_on_without_one_which_then_catches_up() {
    let folder = Folder::new("four");
    let settings = cluster(&folder.0);
    let ledgers: Vec<Arc<Ledger>> = (0..4).map(|_| Ledger::new()).collect();
    let start = |i: usize| Engine::start(settings[i].clone(), ledgers[i].clone()).expect("it starts");
    let mut engines: Vec<Option<Engine>> = (0..4).map(|i| Some(start(i))).collect();
    let submit = |engines: &[Option<Engine>], n: usize| {
        let alive: Vec<&Engine> = engines.iter().flatten().collect();
        alive[n % alive.len()].submit(batch(n)).expect("it is taken");
    };

    (0..1000).for_each(|n| submit(&engines, n));
    until("1,000 batches at all", || ledgers.iter().all(|l| l.ordered() == 1000));

    engines[3] = None;
    (1000..1500).for_each(|n| submit(&engines, n));
    until("1,500 batches at three", || ledgers[..3].iter().all(|l| l.ordered() == 1500));
    assert_eq!(ledgers[3].ordered(), 1000);

    engines[3] = Some(start(3));
    until("1,500 batches at all", || ledgers.iter().all(|l| l.ordered() == 1500));
    (1500..1600).for_each(|n| submit(&engines, n));
    until("1,600 batches at all", || ledgers.iter().all(|l| l.ordered() == 1600));

    let (first, last) = (ledgers[0].blocks(), ledgers[3].blocks());
    for (height, hash) in &first {
        assert!(last.get(height).is_none_or(|other| other == hash), "another block {height}");
    }
    let engine = engines[0].as_ref().expect("it runs");
    let (height, hash) = first.last_key_value().expect("it has blocks");
    assert_eq!(block_on(engine.block(*height)).expect("it is held").hash(), *hash);
    assert!(engine.evidence().is_empty());
    for engine in engines.into_iter().flatten() {
        assert!(engine.status().running);
        block_on(engine.stop());
        assert!(!engine.status().running);
        assert_eq!(engine.submit(batch(9999)), Err(Refused::Ended));
    }
}

/// The files of broker 3's log, by name.
fn log_files(settings: &Settings) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(settings.folder.join("log")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn said(started: Result<Engine, StartError>) -> (PathBuf, String) {
    match started {
        Err(StartError::Damaged { file, what }) => (file, what),
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("it starts"),
    }
}

#[test]
fn rule_e12_a_broker_whose_log_is_damaged_does_not_start_and_names_the_file() {
    let folder = Folder::new("damaged");
    let settings = cluster(&folder.0);
    let ledgers: Vec<Arc<Ledger>> = (0..4).map(|_| Ledger::new()).collect();
    let start = |i: usize| Engine::start(settings[i].clone(), ledgers[i].clone());
    let engines: Vec<Engine> = (0..4).map(|i| start(i).unwrap()).collect();
    for n in 0..50 {
        engines[0].submit(batch(n)).unwrap();
        until("one more batch", || ledgers.iter().all(|l| l.ordered() > n));
    }
    block_on(engines[3].stop());
    drop(engines);

    let files = log_files(&settings[3]);
    let newest = files.last().expect("there is a log").clone();
    let sound = std::fs::read(&newest).unwrap();
    let mut changed = sound.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    std::fs::write(&newest, &changed).unwrap();
    let (file, what) = said(start(3));
    assert_eq!(file, newest);
    assert!(what.contains("records behind it were not"), "{what}");

    // Half of it is gone: what was executed is not there any more.
    std::fs::write(&newest, &sound[..sound.len() / 2]).unwrap();
    let (_, what) = said(start(3));
    assert!(what.contains("was executed here"), "{what}");

    std::fs::write(&newest, &sound).unwrap();
    let engine = start(3).expect("it starts again");
    assert_eq!(engine.fault(), None);
    let (height, hash) = ledgers[3].blocks().pop_last().expect("it has blocks");
    assert_eq!(block_on(engine.block(height)).map(|block| block.hash()), Some(hash));
}

/// What is read while a broker runs may be damaged, too: it ends, and says which file it was.
#[test]
fn rule_e12_damage_that_is_met_while_it_runs_ends_it_without_a_panic() {
    let folder = Folder::new("met");
    let settings = cluster(&folder.0);
    let ledgers: Vec<Arc<Ledger>> = (0..4).map(|_| Ledger::new()).collect();
    let engines: Vec<Engine> =
        (0..4).map(|i| Engine::start(settings[i].clone(), ledgers[i].clone()).unwrap()).collect();
    for n in 0..20 {
        engines[0].submit(batch(n)).unwrap();
        until("one more batch", || ledgers.iter().all(|l| l.ordered() > n));
    }
    let file = log_files(&settings[3]).pop().expect("there is a log");
    let bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(7).position(|it| it == b"batch 3").expect("it was published");
    let open = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&open, b"F", at as u64).unwrap();
    let all: Vec<u64> = ledgers[3].blocks().into_keys().collect();
    std::thread::scope(|scope| {
        // What it is asked for is not there; it ends instead of answering.
        scope.spawn(|| all.iter().for_each(|height| drop(block_on(engines[3].block(*height)))));
        until("it ends", || !engines[3].status().running);
    });
    match engines[3].fault() {
        Some(Fault::Damaged { file: named, what }) => {
            assert!(file.ends_with(&named), "{}", named.display());
            assert!(what.contains("false checksum"), "{what}");
        }
        other => panic!("{other:?}"),
    }
    // The others go on.
    engines[0].submit(batch(99)).unwrap();
    until("one more", || ledgers[..3].iter().all(|l| l.ordered() > 20));
}

/// A history of more than one file of the log, as years of idling leave it.
#[test]
fn rule_e15_an_aged_broker_starts_and_delivers_its_history() {
    const BLOCKS: u64 = 40_000;
    let folder = Folder::new("aged");
    let settings = cluster(&folder.0);
    let keys = (1..=4).map(|i| SigningSeed::new(&[i; 32])).collect();
    let at = settings[0].folder.clone();
    let aged = Aged { folder: at, namespace: b"loopback".to_vec(), keys, blocks: BLOCKS, until: 1_700_000_000_000_000 };
    aged.write(|_| ()).expect("it is written");
    assert_eq!(log_files(&settings[0]).len(), 2, "one is closed");
    let ledger = Ledger::new();
    let engine = Engine::start(settings[0].clone(), ledger.clone()).expect("it starts");
    until("all blocks", || engine.status().height == BLOCKS);
    let blocks = ledger.blocks();
    for height in [1, 2, BLOCKS / 2, BLOCKS] {
        let block = block_on(engine.block(height)).expect("it is held");
        assert_eq!(Some(&block.hash()), blocks.get(&height));
        assert!(block_on(engine.start_certificate(height)).is_some(), "block {height} has a certificate");
    }
    engine.prune(BLOCKS - 10);
    until("the old ones are pruned", || block_on(engine.block(1)).is_none());
    until("their file is removed", || log_files(&settings[0]).len() == 1);
    assert!(block_on(engine.block(BLOCKS)).is_some());
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let folder = Folder::new("refused");
    let good = cluster(&folder.0).remove(0);
    let start = |change: fn(&mut Settings)| {
        let mut settings = good.clone();
        change(&mut settings);
        Engine::start(settings, Ledger::new()).map(drop)
    };
    assert!(matches!(start(|s| s.brokers.truncate(3)), Err(StartError::Brokers(3))));
    assert!(matches!(start(|s| s.brokers[1] = s.brokers[0]), Err(StartError::Brokers(4))));
    assert!(matches!(start(|s| s.key = SigningSeed::new(&[9; 32])), Err(StartError::NotAMember)));
    assert!(matches!(start(|s| s.heartbeat = s.leader_timeout), Err(StartError::Settings(_))));
    assert!(matches!(start(|s| s.folder = "/proc/nothing".into()), Err(StartError::Io(_))));
    assert_eq!(format!("{:?}", good.key), "<redacted>");
}
