//! Orders over real sockets and a real disk: four brokers on loopback, and one alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::executor::block_on;
use sealcast_order::engine::{Aged, Broker, Engine, Settings, SigningSeed, StartError};
use sealcast_order::pool::Pool;
use sealcast_order::solo::{self, Solo};
use sealcast_order::{
    Ack, Application, Batch, Block, BlockSize, Delivered, Fault, Hash, Order, Origin, Parent, Refused,
};

/// Keeps all blocks, and acknowledges unless told not to.
struct Ledger {
    state: Mutex<State>,
}

struct State {
    pool: Pool,
    blocks: BTreeMap<u64, Hash>,
    batches: BTreeSet<Hash>,
    held: Option<Vec<Ack>>,
}

impl Ledger {
    fn new() -> Arc<Ledger> {
        let pool = Pool::new();
        let state = State { pool, blocks: BTreeMap::new(), batches: BTreeSet::new(), held: None };
        Arc::new(Ledger { state: Mutex::new(state) })
    }

    fn holding_back() -> Arc<Ledger> {
        let ledger = Ledger::new();
        ledger.state.lock().unwrap().held = Some(Vec::new());
        ledger
    }

    fn ordered(&self) -> usize {
        self.state.lock().unwrap().batches.len()
    }

    fn blocks(&self) -> BTreeMap<u64, Hash> {
        self.state.lock().unwrap().blocks.clone()
    }
}

impl Application for Ledger {
    fn receive(&self, _: Origin, batch: Batch) -> Result<(), Refused> {
        let mut state = self.state.lock().unwrap();
        if state.batches.contains(&batch.hash()) {
            return Err(Refused::Known);
        }
        state.pool.receive(batch)
    }

    fn propose(&self, parent: &Parent<'_>, size: BlockSize) -> Vec<Batch> {
        self.state.lock().unwrap().pool.propose(parent.ancestors, size)
    }

    fn waiting(&self, size: BlockSize) -> Vec<Batch> {
        self.state.lock().unwrap().pool.propose(&[], size)
    }

    fn valid(&self, _: &Parent<'_>, block: &Block) -> bool {
        let state = self.state.lock().unwrap();
        block.batches.iter().all(|f| !state.batches.contains(&f.hash()))
    }

    fn deliver(&self, delivered: Delivered, ack: Ack) {
        let mut state = self.state.lock().unwrap();
        state.pool.delivered(&delivered.block);
        state.batches.extend(delivered.block.batches.iter().map(Batch::hash));
        let before = state.blocks.insert(delivered.block.height, delivered.hash);
        assert!(before.is_none_or(|hash| hash == delivered.hash), "two blocks of one height");
        match &mut state.held {
            Some(held) => held.push(ack),
            None => ack.done(),
        }
    }
}

/// A folder that goes when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sealcast-order-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn batch(n: usize) -> Batch {
    Batch::new(format!("batch {n}").into_bytes())
}

/// A watchdog, far beyond what it takes.
fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(120), "never came: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

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

fn alone(folder: &Path) -> solo::Settings {
    let block = BlockSize { batches: 16, bytes: 4096 };
    solo::Settings { namespace: b"alone".to_vec(), folder: folder.to_path_buf(), block, unacknowledged: 8 }
}

#[test]
fn one_broker_alone_keeps_its_order_over_restarts() {
    let folder = Folder::new("solo");
    let ledger = Ledger::new();
    let solo = Solo::start(alone(&folder.0), ledger.clone()).expect("it starts");
    (0..500).for_each(|n| solo.submit(batch(n)).expect("it is taken"));
    until("500 batches", || ledger.ordered() == 500);
    let tip = solo.status().tip;
    drop(solo);

    let solo = Solo::start(alone(&folder.0), ledger.clone()).expect("it starts again");
    assert_eq!(solo.status().tip, tip);
    (500..9000).for_each(|n| solo.submit(batch(n)).expect("it is taken"));
    until("9,000 batches", || ledger.ordered() == 9000 && solo.status().lag() == 0);
    let status = solo.status();
    assert!(status.tip >= 9000 / 16);
    assert!(block_on(solo.block(1)).is_some());
    solo.prune(status.tip);
    assert!(block_on(solo.block(1)).is_none(), "whole files below are removed");
    let last = block_on(solo.block(status.tip)).expect("the last one stays");
    assert_eq!(Some(&last.hash()), ledger.blocks().get(&status.tip));
    block_on(solo.stop());
    assert_eq!(solo.submit(batch(9001)), Err(Refused::Ended));
    drop(solo);

    let solo = Solo::start(alone(&folder.0), ledger.clone()).expect("it starts a third time");
    assert_eq!(solo.status().height, status.tip, "what was acknowledged does not come again");
}

#[test]
fn a_log_is_read_whatever_size_new_blocks_have() {
    let folder = Folder::new("solo-smaller");
    let ledger = Ledger::new();
    let solo = Solo::start(alone(&folder.0), ledger.clone()).expect("it starts");
    (0..500).for_each(|n| solo.submit(batch(n)).expect("it is taken"));
    until("500 batches", || ledger.ordered() == 500 && solo.status().lag() == 0);
    let tip = solo.status().tip;
    assert!(tip < 500, "no block had two batches");
    drop(solo);

    let block = BlockSize { batches: 1, bytes: 4 };
    let solo = Solo::start(solo::Settings { block, ..alone(&folder.0) }, ledger.clone()).expect("it starts");
    assert_eq!((solo.status().tip, solo.status().height), (tip, tip), "nothing of it was cut off");
    for (height, hash) in ledger.blocks() {
        assert_eq!(block_on(solo.block(height)).map(|it| it.hash()), Some(hash));
    }
    (500..510).for_each(|n| solo.submit(batch(n)).expect("it is taken"));
    until("ten more", || ledger.ordered() == 510);
    assert_eq!(solo.status().tip, tip + 10);
}

#[test]
fn rule_g6_a_block_not_acknowledged_comes_again_and_a_torn_record_never_comes() {
    let folder = Folder::new("solo-again");
    let ledger = Ledger::holding_back();
    let solo = Solo::start(alone(&folder.0), ledger.clone()).expect("it starts");
    for n in 0..3 {
        solo.submit(batch(n)).expect("it is taken");
        until("one more block", || ledger.ordered() == n + 1);
    }
    assert_eq!((solo.status().height, solo.status().tip), (0, 3));
    drop(solo);

    // The crash tore the last record.
    let log = folder.0.join(format!("{:020}.log", 1));
    let length = std::fs::metadata(&log).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(length - 3).unwrap();
    let after = Ledger::new();
    let solo = Solo::start(alone(&folder.0), after.clone()).expect("it starts");
    until("two blocks again", || after.ordered() == 2);
    assert_eq!(solo.status().tip, 2);
    solo.submit(batch(2)).expect("it is taken");
    until("a third block", || after.ordered() == 3);
    assert_eq!(after.blocks().first_key_value(), ledger.blocks().first_key_value());
}

/// Nobody else has the blocks of a broker alone: what does not check is cut off only where a crash can have left it.
#[test]
fn rule_e12_a_broker_alone_names_damage_and_loses_nothing_in_silence() {
    let folder = Folder::new("solo-damaged");
    let ledger = Ledger::new();
    let solo = Solo::start(alone(&folder.0), ledger.clone()).expect("it starts");
    // More than one file: 256 blocks each.
    for n in 0..300 {
        solo.submit(batch(n)).expect("it is taken");
        until("one more block", || ledger.ordered() == n + 1 && solo.status().lag() == 0);
    }
    block_on(solo.stop());
    drop(solo);
    let file = |first: u64| folder.0.join(format!("{first:020}.log"));
    let (old, last) = (file(1), file(257));
    let sound = [&old, &last].map(|it| std::fs::read(it).unwrap());
    let restore = || {
        std::fs::write(&old, &sound[0]).unwrap();
        std::fs::write(&last, &sound[1]).unwrap();
    };
    let start = || Solo::start(alone(&folder.0), Ledger::new()).map(|solo| solo.status().tip);
    let flip = |path: &Path, at: usize| {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    let cut = |path: &Path, by: u64| {
        let open = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        open.set_len(open.metadata().unwrap().len() - by).unwrap();
    };
    type Damage<'a> = (&'a str, &'a dyn Fn(), &'a Path, &'a str);
    let cases: [Damage<'_>; 6] = [
        ("a flip in an old file", &|| flip(&old, 5000), &old, "was changed or cut short"),
        ("an old file cut", &|| cut(&old, 1), &old, "was changed or cut short"),
        ("a flip in the middle of the last file", &|| flip(&last, 700), &last, "records behind it were not"),
        ("a length that cannot be", &|| flip(&last, 0), &last, "records behind it were not"),
        ("the last file cut", &|| cut(&last, 100), &last, "block 300 was executed here"),
        ("the last record flipped", &|| flip(&last, sound[1].len() - 1), &last, "block 300 was executed here"),
    ];
    for (story, damage, file, what) in cases {
        damage();
        let before = [&old, &last].map(|it| std::fs::read(it).unwrap());
        match start() {
            Err(solo::StartError::Damaged { file: named, what: said }) => {
                assert!(named == *file && said.contains(what), "{story}: {} {said}", named.display());
            }
            other => panic!("{story}: {other:?}"),
        }
        let after = [&old, &last].map(|it| std::fs::read(it).unwrap());
        assert!(before == after, "{story}: what can be repaired by hand was cut off");
        restore();
    }
    assert_eq!(start().expect("it starts"), 300);
}

#[test]
fn another_clusters_log_is_refused() {
    let folder = Folder::new("solo-other");
    let ledger = Ledger::new();
    let solo = Solo::start(alone(&folder.0), ledger.clone()).expect("it starts");
    solo.submit(batch(0)).expect("it is taken");
    until("a block", || ledger.ordered() == 1);
    drop(solo);
    let other = solo::Settings { namespace: b"another".to_vec(), ..alone(&folder.0) };
    assert!(Solo::start(other, Ledger::new()).is_err());
}
