use std::fs;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use sealcast_broker::cluster_file::{Addresses, ClusterFile, Suite};
use sealcast_broker::operation::{Client, Operation};
use sealcast_broker::protocol::{Answer, Query, Refusal, Welcome, Why};
use sealcast_broker::state::{Memory, Reading, Restore};
use sealcast_order::StartCertificate;
use sealcast_wire::limits;

use super::file::{Rows, Snapshots};
use super::join::{JoinFolders, prepare, turns};
use super::peers::{Peers, left_behind};
use super::retention::Keep;
use super::votes::Votes;
use crate::descriptors::Connections;
use crate::drops::Drops;
use crate::executor::Executor;
use crate::fixture::{Broker, Folder, World, brokers, client, publish};
use crate::gateway::{ClientStatus, Gateway, Handler};

mod hostile;

const KEPT: u64 = 2 * limits::CHECKPOINT_BLOCKS;

/// Brokers 0 to 2, four checkpoints old, which keep the last two: their floor is the second one.
fn aged() -> (World, Vec<Broker>) {
    let mut world = World::with_clients();
    let start = |index| Broker::start_keeping(Folder::new(), &world, index, &[], Keep::Blocks(KEPT));
    let mut aged: Vec<Broker> = (0..3).map(start).collect();
    for checkpoint in (1..5).map(|n| n * limits::CHECKPOINT_BLOCKS) {
        let from = if checkpoint == limits::CHECKPOINT_BLOCKS { 1 } else { world.ordered.len() as u64 + 1 };
        while (world.ordered.len() as u64) < checkpoint {
            let n = world.ordered.len() as u8;
            world.order(if n.is_multiple_of(8) { vec![(3, vec![publish(&[n]), Operation::Sync])] } else { vec![] });
        }
        aged.iter_mut().for_each(|it| it.execute(&world, from));
        let taken = |it: &Broker| snapshots(it).heights().expect("they are listed").contains(&checkpoint);
        until("all have taken a snapshot", || aged.iter().all(taken));
    }
    until("all have pruned", || aged.iter().all(|it| it.executor.low_water_mark().height == KEPT));
    until("old files are gone", || aged.iter().all(|it| snapshots(it).heights().expect("listed")[0] == KEPT));
    (world, aged)
}

fn snapshots(broker: &Broker) -> Snapshots {
    broker.executor.shared.retention.snapshots.clone()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never came: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How a broker lies to one that lacks history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// Not at all.
    None,
    /// One bit of a row is another one.
    Bit,
    /// The rows break off.
    BreaksOff,
    /// The head of a state that never was.
    Head,
    /// A certificate that certifies nothing.
    StartCertificate,
    /// Its word is on another state.
    Root,
    /// Another broker's word.
    Stolen,
    /// A snapshot of the last block that there can be.
    Last,
    /// The rows one byte at a time.
    Crumbs,
}

/// A broker's door, without an order behind it.
struct TestHandler {
    executor: Executor,
    lie: Lie,
}

impl Handler for TestHandler {
    fn client_status(&self, client: &Client) -> ClientStatus {
        self.executor.client_status(client)
    }

    fn welcome(&self, client: &Client) -> Welcome {
        self.executor.welcome(client)
    }

    fn submit(&self, _: &Client, _: Bytes) -> Result<(), Refusal> {
        Err(Refusal::Ended)
    }

    fn answer(&self, client: &Client, query: Query) -> Answer {
        match (self.lie, self.executor.answer(client, query)) {
            (Lie::Bit, Answer::Part(mut part)) => {
                let middle = part.len() / 2;
                part.get_mut(middle).into_iter().for_each(|byte| *byte ^= 1);
                Answer::Part(part)
            }
            (Lie::BreaksOff, Answer::Part(part)) => Answer::Part(part[..part.len() / 2].to_vec()),
            (Lie::Crumbs, Answer::Part(part)) => Answer::Part(part[..1].to_vec()),
            (Lie::Head, Answer::History(mut history)) => {
                // The number of the next operation.
                history.snapshot.as_mut().expect("it offers one").head[23] ^= 1;
                Answer::History(history)
            }
            (Lie::Last, Answer::History(mut history)) => {
                let snapshot = history.snapshot.as_mut().expect("it offers one");
                snapshot.head[..8].fill(0xff);
                snapshot.start_height = u64::MAX;
                Answer::History(history)
            }
            (Lie::StartCertificate, Answer::History(mut history)) => {
                history.snapshot.as_mut().expect("it offers one").certificate = b"false".to_vec();
                Answer::History(history)
            }
            (Lie::Root, Answer::Checkpoint(mut checkpoint)) => {
                checkpoint.state_root[0] ^= 1;
                Answer::Checkpoint(checkpoint)
            }
            (Lie::Stolen, Answer::Checkpoint(mut checkpoint)) => {
                checkpoint.broker = (checkpoint.broker + 1) % 4;
                Answer::Checkpoint(checkpoint)
            }
            (_, honest) => honest,
        }
    }
}

/// Opens the doors; the cluster file names them, and a place where nobody is for broker 3.
fn doors(world: &World, aged: &[Broker], lies: [Lie; 3]) -> (ClusterFile, Vec<Gateway>) {
    let mut addresses = Vec::new();
    let gateways = aged.iter().zip(lies).zip(brokers()).map(|((broker, lie), key)| {
        let gateway = Gateway::new(world.cluster, Arc::new(Drops::default()), Connections::ALL);
        let handler = Arc::new(TestHandler { executor: broker.executor.clone(), lie });
        let anywhere: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let address = gateway.listen(anywhere, Arc::new(key), handler, 1).expect("it listens");
        addresses.push(Addresses { gateway: address.to_string(), order: "127.0.0.1:1".into() });
        gateway
    });
    let gateways = gateways.collect();
    addresses.push(Addresses { gateway: "127.0.0.1:1".into(), order: "127.0.0.1:1".into() });
    let (genesis, suite) = (world.genesis.clone(), Suite::Ristretto255);
    (ClusterFile { genesis, addresses, threshold: 3, suite, key: None, endorsement: None }, gateways)
}

fn place(folder: &Folder) -> JoinFolders {
    let [joining, state, snapshots] = ["joining", "state", "snapshots"].map(|name| folder.0.join(name));
    JoinFolders { joining, state, snapshots, votes: Votes::of(&folder.0) }
}

fn join(folder: &Folder, file: &ClusterFile) -> Option<StartCertificate> {
    join_until(folder, file, &Arc::default())
}

fn join_until(folder: &Folder, file: &ClusterFile, end: &Arc<AtomicBool>) -> Option<StartCertificate> {
    let key = Arc::new(brokers().remove(3));
    let peers = Peers { cluster: file, index: 3, key: &key, end };
    prepare(&place(folder), &peers, &|start_certificate| start_certificate.certificate == [1; 8], &mut rng())
        .expect("the disk holds")
}

fn rng() -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(7)
}

#[test]
fn a_slow_liar_is_not_met_first_at_each_start() {
    let first = |heights: &[u64], seed| turns(heights, 1, &mut ChaCha20Rng::seed_from_u64(seed))[0];
    // Broker 0 offers what honest ones offer too, and sends it slowly.
    let met = (0..90).filter(|seed| first(&[640, 640, 640], *seed) == 0).count();
    assert!((10..50).contains(&met), "met first at {met} of 90 starts");
    // An offer of its own, older or newer than those of the others, comes after theirs.
    for own in [64, 640_000] {
        assert!((0..90).all(|seed| first(&[own, 640, 640], seed) != 0), "{own}");
    }
    assert_eq!(turns(&[64, 640, 640, 640_000], 1, &mut rng())[2..], [3, 0], "what nobody else has, the newest first");
    assert_eq!(turns(&[512, 640, 512, 640], 1, &mut rng()).last().map(|it| it % 2), Some(0), "the newest of all");
    assert!(turns(&[], 1, &mut rng()).is_empty());
}

#[test]
fn a_broker_without_history_begins_with_a_snapshot_and_goes_on_like_the_others() {
    let (mut world, mut aged) = aged();
    let (file, gateways) = doors(&world, &aged, [Lie::None; 3]);
    let folder = Folder::new();
    let start_certificate = join(&folder, &file).expect("it begins there");
    let begun = KEPT + limits::CHECKPOINT_BLOCKS;
    assert_eq!(start_certificate.height, begun, "the one behind the others' floor");
    assert!(aged.iter().all(|it| it.archive.1.load(std::sync::atomic::Ordering::Relaxed) < begun), "blocks are there");
    let mut joined = Broker::start_keeping(folder, &world, 3, &[], Keep::Blocks(KEPT));
    assert_eq!((joined.executor.height(), joined.executor.low_water_mark().height), (begun, begun));
    joined.execute(&world, begun + 1);
    world.order(vec![(3, vec![publish(b"new")])]);
    let last = world.ordered.len() as u64;
    aged.push(joined);
    aged.iter_mut().for_each(|it| it.execute(&world, last));
    let roots: Vec<_> = aged.iter().map(|it| it.executor.shared.state().root()).collect();
    assert!(roots.iter().all(|root| *root == roots[0]));

    // What it lacks it says it lacks; what it has, it answers like the others.
    let ask = |broker: &Broker, query: &Query| broker.executor.answer(&client(1), query.clone());
    let header = sealcast_broker::operation::Header { topic: "market/eurusd".into(), value: None };
    let latest = Query::Latest { header: header.clone(), min_height: last };
    assert!(aged.iter().all(|it| ask(it, &latest) == ask(&aged[0], &latest)));
    let oldest = Query::TopicPosition { header: header.clone(), ps: 0 };
    assert!(aged.iter().all(|it| ask(it, &oldest) == Answer::No(Why::Pruned)), "E9");
    let Answer::Places(places) = ask(&aged[0], &latest) else { panic!("no place") };
    let Reading::Publication(entry) = &places[0].reading else { panic!("it may be read") };
    let resume = Query::Resume { subscription: 1, place: 0, sn: 0, min_height: last };
    for broker in &aged {
        let Answer::Resumed { lost, notice, publications, .. } = ask(broker, &resume) else { panic!("not resumed") };
        assert_eq!((notice.first, publications.last()), (lost, Some(&**entry)));
        assert_eq!(lost + notice.places(), places[0].ps + 1, "places are what they were");
    }
    assert_eq!(ask(&aged[0], &Query::Bodies { sns: vec![8] }), Answer::No(Why::Pruned));
    // Nobody but brokers hears of snapshots.
    for query in [Query::History, Query::Checkpoint { height: begun }, Query::Part { height: begun, offset: 0 }] {
        assert_eq!(ask(&aged[0], &query), Answer::No(Why::Denied));
    }
    drop(gateways);
}

#[test]
fn rule_e1_a_snapshot_is_believed_only_with_f_plus_1_signatures() {
    let (world, aged) = aged();
    for lies in [[Lie::None, Lie::Root, Lie::Root], [Lie::Stolen, Lie::Root, Lie::None]] {
        let (file, _gateways) = doors(&world, &aged, lies);
        let folder = Folder::new();
        assert_eq!(join(&folder, &file), None, "{lies:?}");
        assert!(!fs::exists(folder.0.join("state")).expect("it can be looked for"), "nothing has changed");
    }
    let (file, _gateways) = doors(&world, &aged, [Lie::None, Lie::None, Lie::Root]);
    assert!(join(&Folder::new(), &file).is_some(), "two of four are enough");
}

#[test]
fn a_liar_among_those_who_serve_is_passed_over_for_the_next() {
    let (world, aged) = aged();
    for lie in [Lie::Bit, Lie::BreaksOff, Lie::Head, Lie::StartCertificate] {
        // It is the first that is asked.
        let mut lies = [Lie::None; 3];
        lies[turns(&[9; 3], 1, &mut rng())[0]] = lie;
        let (file, _gateways) = doors(&world, &aged, lies);
        let folder = Folder::new();
        let start_certificate = join(&folder, &file).unwrap_or_else(|| panic!("{lie:?}"));
        assert_eq!(start_certificate.certificate, [1; 8]);
        assert!(!fs::exists(folder.0.join("joining")).expect("it can be looked for"));
        let broker = Broker::start_in(folder, &world, 3, &[]);
        assert_eq!(broker.executor.height(), start_certificate.height, "{lie:?}");
    }
}

#[test]
fn rule_e12_a_crash_while_a_snapshot_comes_in_leaves_the_old_state_or_the_new() {
    let (world, aged) = aged();
    let (file, gateways) = doors(&world, &aged, [Lie::None; 3]);
    let folder = Folder::new();
    let begun = join(&folder, &file).expect("it begins there").height;
    gateways.iter().for_each(Gateway::stop);
    // As it was a moment before: all is ready and nothing has its place.
    let ready = Folder::new();
    fs::create_dir(ready.0.join("joining")).expect("a folder");
    let moved = |from: &Folder, name: &str, to: &Folder, into: &str| {
        fs::rename(from.0.join(name), to.0.join(into)).expect("it is there");
    };
    moved(&folder, "state", &ready, "joining/state");
    moved(&folder, "snapshots", &ready, "joining/snapshots");
    let height_after = |crashed: Folder| {
        let start_certificate = join(&crashed, &file).map_or(0, |start_certificate| start_certificate.height);
        let broker = Broker::start_in(crashed, &world, 3, &[]);
        let height = broker.executor.height();
        assert!(height == 0 || height == start_certificate);
        height
    };
    // Without the mark all of it is thrown away.
    assert_eq!(height_after(ready.copy()), 0);
    fs::write(ready.0.join("joining/ready"), "").expect("it is written");
    assert_eq!(height_after(ready.copy()), begun);
    // A crash between the two renames, and after both.
    let half = ready.copy();
    fs::rename(half.0.join("joining/state"), half.0.join("state")).expect("it is there");
    assert_eq!(height_after(half.copy()), begun);
    fs::rename(half.0.join("joining/snapshots"), half.0.join("snapshots")).expect("it is there");
    assert_eq!(height_after(half), begun);
    // A state that was there before gives way.
    let older = ready.copy();
    let mut broker = Broker::start_in(older, &world, 3, &[]);
    broker.execute(&World::with_clients(), 1);
    assert_eq!(height_after(broker.end()), begun);
}

#[test]
fn a_torn_or_damaged_snapshot_is_not_served_and_not_begun_with() {
    let (world, aged) = aged();
    let snapshots = snapshots(&aged[0]);
    let folder = aged[0].folder.0.join("snapshots");
    let path = super::file::path(&folder, KEPT);
    let whole = fs::read(&path).expect("it is there");
    let opened = snapshots.read(KEPT).expect("it is sound");
    for length in [0, 10, 40, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).expect("it is written");
        assert!(snapshots.read(KEPT).is_err() && snapshots.part(KEPT, 0).is_err(), "{length} bytes");
    }
    fs::write(super::file::path(&folder, 7).with_extension("part"), &whole).expect("it is written");
    assert!(!Snapshots::open(&folder).expect("it opens").heights().expect("listed").contains(&7));
    let root = opened.head.root(&world.cluster);
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        fs::write(&path, &changed).expect("it is written");
        let taken = taken(&snapshots, &world, &root);
        // The order's own proof is checked by the order.
        let is_start_certificate =
            snapshots.read(KEPT).is_ok_and(|it| it.start_certificate != opened.start_certificate);
        assert!(is_start_certificate || taken.is_err(), "byte {at} of {}", whole.len());
    }
    fs::write(&path, &whole).expect("it is written");
    taken(&snapshots, &world, &root).expect("it is whole again");
}

#[test]
fn a_snapshot_that_cannot_be_written_leaves_nothing() {
    let (_, aged) = aged();
    let head = snapshots(&aged[0]).read(KEPT).expect("it is sound").head;
    let (folder, start_certificate) =
        (Folder::new(), StartCertificate { height: KEPT, certificate: vec![], header: vec![] });
    let rows = [Ok((vec![1; 8], vec![1; 2 << 20])), Err(sealcast_broker::state::StoreError("the disk is full".into()))];
    let empty = Snapshots::open(&folder.0).expect("it opens");
    assert!(empty.write(&head, &start_certificate, rows.into_iter()).is_err());
    assert_eq!(fs::read_dir(&folder.0).expect("a folder").count(), 0);
}

fn taken(snapshots: &Snapshots, world: &World, root: &[u8; 32]) -> io::Result<Memory> {
    let head = snapshots.read(KEPT)?.head;
    let mut restore = Restore::begin(&world.cluster, head, root, Memory::default()).map_err(io::Error::other)?;
    snapshots.each_row(KEPT, |(key, value)| restore.row(key, value).map_err(io::Error::other))?;
    restore.finish().map_err(io::Error::other)
}

#[test]
fn rows_come_out_of_any_pieces() {
    let (_, aged) = aged();
    let snapshots = snapshots(&aged[1]);
    let (mut whole, mut pieces) = (Rows::default(), Rows::default());
    let bytes = snapshots.part(KEPT, 0).expect("it is there");
    whole.push(&bytes);
    for piece in bytes.chunks(7) {
        pieces.push(piece);
        while let Some(row) = pieces.next().expect("rows") {
            assert_eq!(Some(row), whole.next().expect("rows"));
        }
    }
    assert!(whole.is_empty() && pieces.is_empty());
    pieces.push(&[0xff; 4]);
    assert!(pieces.next().is_err(), "a row that claims four gigabytes is not waited for");
    let mut value = Rows::default();
    value.push(
        &[&[0, 0, 0, 1, 7][..], &u32::try_from(limits::SNAPSHOT_ROW_BYTES_MAX + 1).expect("small").to_be_bytes()]
            .concat(),
    );
    assert!(value.next().is_err(), "nor one byte too many");
}

#[test]
fn f_brokers_can_neither_hold_back_a_snapshot_nor_force_one() {
    let of = |oldest: &[u64]| {
        let history = |oldest: u64| sealcast_broker::protocol::History { height: 9, oldest, snapshot: None };
        (0..).zip(oldest.iter().map(|it| history(*it))).collect()
    };
    assert!(!left_behind(&of(&[1, 1, 500]), 1, 0), "one claims to have pruned");
    assert!(left_behind(&of(&[1, 400, 500]), 1, 0), "one claims to have all");
    assert!(!left_behind(&of(&[400, 400, 500]), 1, 399), "the next block is there");
    assert!(!left_behind(&of(&[500]), 1, 0), "one alone says nothing");
}

#[test]
fn what_is_kept_is_said_in_words() {
    let kept = [
        ("everything", Keep::Everything),
        ("2d", Keep::Seconds(172_800)),
        ("36h", Keep::Seconds(129_600)),
        ("90 m", Keep::Seconds(5400)),
        ("30s", Keep::Seconds(30)),
        ("100000 blocks", Keep::Blocks(100_000)),
    ];
    for (text, keep) in kept {
        assert_eq!(text.parse(), Ok(keep), "{text}");
        assert_eq!(keep.to_string().parse(), Ok(keep));
    }
    for text in ["", "2", "d", "2w", "-1d", "127 blocks", "0s", "99999999999999999999d", "18446744073709551615d"] {
        assert!(text.parse::<Keep>().is_err(), "{text}");
    }
}
