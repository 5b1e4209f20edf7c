//! A small cluster for tests: four brokers, an issuer, an administrator, clients, and an outlet that remembers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use sealcast_broker::genesis::{Cluster, Genesis, Issuer};
use sealcast_broker::operation::{
    Action, Admin, Batch, Body, Checked, Claim, Client, Execute, Header, Operation, Publication, Registration, check,
};
use sealcast_broker::protocol::{Reply, Update};
use sealcast_crypto::ed25519::Key;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{Algorithm, OriginKey, SigningKey};
use sealcast_order::{Block, StartCertificate};
use sealcast_wire::Utc;

use crate::executor::{Executor, Setup, ShareOn};
use crate::outlet::{Blocks, Outlet};
use crate::sync::{Keep, Snapshots};

/// The time at which these tests begin, seconds.
pub(crate) const NOW: i64 = 1_795_132_800;
/// The seed of the administrator's key.
pub(crate) const ADMINISTRATOR: u8 = 200;

/// The cluster, its keys, and the blocks ordered so far.
pub(crate) struct World {
    pub(crate) genesis: Genesis,
    pub(crate) cluster: Cluster,
    issuer: SigningKey,
    administrator: OriginKey,
    numbers: BTreeMap<u8, u64>,
    pub(crate) ordered: Vec<(Arc<Block>, Vec<Checked>)>,
}

pub(crate) fn key(seed: u8) -> OriginKey {
    OriginKey::from_seed(&Secret::from_bytes([seed; 32]))
}

pub(crate) fn client(seed: u8) -> Client {
    Client(key(seed).public_bytes())
}

/// The keys of the brokers in the order of their numbers.
pub(crate) fn brokers() -> Vec<OriginKey> {
    let mut keys: Vec<OriginKey> = (210..214).map(key).collect();
    keys.sort_by_key(OriginKey::public_bytes);
    keys
}

impl World {
    pub(crate) fn new() -> World {
        let issuer = SigningKey::from_seed(Algorithm::Ed25519, &Secret::from_bytes([9; 32])).expect("a key");
        let administrator = key(ADMINISTRATOR);
        let genesis = Genesis {
            name: "test".into(),
            brokers: brokers().iter().map(OriginKey::public_bytes).collect::<BTreeSet<_>>(),
            quorum: 1,
            administrators: vec![Key::new(&administrator.public_bytes()).expect("a key")],
            issuers: BTreeMap::from([("exchange".to_owned(), Issuer::Key(issuer.public().clone()))]),
        };
        let cluster = genesis.cluster();
        World { genesis, cluster, issuer, administrator, numbers: BTreeMap::new(), ordered: Vec::new() }
    }

    /// With clients 1 and 3 of desk fx and 2 of desk rates, who have subscribed to `market/#`.
    pub(crate) fn with_clients() -> World {
        let mut world = World::new();
        let batches = [(1, "fx"), (2, "rates"), (3, "fx")];
        let batches = batches.map(|(seed, desk)| (seed, vec![world.claim(seed, desk), subscribe("market/#")]));
        world.order(batches.to_vec());
        world
    }

    pub(crate) fn claim(&self, seed: u8, desk: &str) -> Operation {
        let validity = (Utc(NOW), Utc(NOW + 86_400));
        let claim = Claim::sign("exchange", &[seed], validity, &[("desk", desk)], key(seed).public(), &self.issuer);
        Operation::Register(Registration { intent: false, proof: claim.into() })
    }

    pub(crate) fn admin(&self, number: u64, action: Action) -> Operation {
        let mut admin = Admin::new(number, action);
        assert!(admin.sign(&self.genesis, &self.cluster, &self.administrator));
        Operation::Administer(admin)
    }

    /// The number that the client's next operation gets here.
    pub(crate) fn number(&self, seed: u8) -> u64 {
        self.numbers.get(&seed).copied().unwrap_or(0)
    }

    /// Orders batches of these clients as the next block.
    pub(crate) fn order(&mut self, batches: Vec<(u8, Vec<Operation>)>) -> u64 {
        let mut signed = Vec::new();
        for (seed, operations) in batches {
            let first = self.numbers.entry(seed).or_insert(0);
            let batch = Batch::sign(&self.cluster, &key(seed), *first, operations);
            *first = batch.end();
            signed.push(batch);
        }
        let height = self.ordered.len() as u64 + 1;
        let block = Block {
            parent: [0; 32],
            height,
            time: (NOW as u64 + height) * 1_000_000,
            batches: signed.iter().map(|it| sealcast_order::Batch::new(it.to_bytes())).collect(),
        };
        let checked = check(&self.cluster, signed, |sealed| vec![true; sealed.len()]);
        let checked = checked.into_iter().map(|it| it.expect("a good batch")).collect();
        self.ordered.push((Arc::new(block), checked));
        height
    }
}

/// What a broker sent, and to whom it has channels.
pub(crate) struct Inbox {
    here: Mutex<BTreeSet<Client>>,
    sent: Mutex<Vec<(Client, Reply)>>,
    words: Mutex<Vec<(u64, u16, Vec<u8>)>>,
    came: Condvar,
    pub(crate) failed: Mutex<Option<String>>,
}

impl Inbox {
    pub(crate) fn new(here: &[u8]) -> Arc<Inbox> {
        Arc::new(Inbox {
            here: Mutex::new(here.iter().map(|seed| client(*seed)).collect()),
            sent: Mutex::default(),
            words: Mutex::default(),
            came: Condvar::new(),
            failed: Mutex::default(),
        })
    }

    /// The updates that a client got, by height.
    pub(crate) fn updates(&self, seed: u8) -> BTreeMap<u64, Update> {
        let sent = self.sent.lock().expect("no panic");
        let update = |(to, reply): &(Client, Reply)| match reply {
            Reply::Update(update) if *to == client(seed) => Some((update.height, update.clone())),
            _ => None,
        };
        sent.iter().filter_map(update).collect()
    }

    /// The attachments that a client got, by sn, once there are so many.
    pub(crate) fn attachments(&self, seed: u8, count: usize) -> BTreeMap<u64, Vec<u8>> {
        let attach = |(to, reply): &(Client, Reply)| match reply {
            Reply::Attach { sn, attachment } if *to == client(seed) => Some((*sn, attachment.clone())),
            _ => None,
        };
        let sent = self.sent.lock().expect("no panic");
        let few = |sent: &mut Vec<(Client, Reply)>| sent.iter().filter_map(attach).count() < count;
        let (sent, _) = self.came.wait_timeout_while(sent, TIMEOUT, few).expect("no panic");
        sent.iter().filter_map(attach).collect()
    }

    pub(crate) fn words(&self) -> Vec<(u64, u16, Vec<u8>)> {
        self.words.lock().expect("no panic").clone()
    }
}

impl Outlet for Inbox {
    fn is_here(&self, client: &Client) -> bool {
        self.here.lock().expect("no panic").contains(client)
    }

    fn send(&self, client: &Client, reply: Reply) {
        self.sent.lock().expect("no panic").push((*client, reply));
        self.came.notify_all();
    }

    fn dkg(&self, height: u64, broker: u16, word: &[u8]) {
        self.words.lock().expect("no panic").push((height, broker, word.to_vec()));
    }

    fn executed(&self, _height: u64) {}

    fn failed(&self, why: &str) {
        *self.failed.lock().expect("no panic") = Some(why.to_owned());
    }
}

/// An archive of old blocks, each with a certificate; what was said of pruning it is remembered.
#[derive(Default)]
pub(crate) struct Archive(pub(crate) Mutex<Vec<Arc<Block>>>, pub(crate) AtomicU64);

impl Blocks for Archive {
    fn batch(&self, height: u64, batch: u32) -> Option<Bytes> {
        let blocks = self.0.lock().expect("no panic");
        let block = blocks.iter().find(|it| it.height == height)?;
        Some(block.batches.get(batch as usize)?.bytes().clone())
    }

    fn start_certificate(&self, height: u64) -> Option<StartCertificate> {
        Some(StartCertificate { height, certificate: vec![1; 8], header: vec![2; 8] })
    }

    fn prune(&self, height: u64) {
        self.1.store(height, Ordering::Relaxed);
    }
}

/// One broker, its folder removed at the end.
pub(crate) struct Broker {
    pub(crate) executor: Executor,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) archive: Arc<Archive>,
    done: Option<Receiver<u64>>,
    pub(crate) folder: Folder,
}

impl Broker {
    pub(crate) fn start(world: &World, index: u16, here: &[u8]) -> Broker {
        Broker::start_in(Folder::new(), world, index, here)
    }

    pub(crate) fn start_in(folder: Folder, world: &World, index: u16, here: &[u8]) -> Broker {
        Broker::start_keeping(folder, world, index, here, Keep::Everything)
    }

    pub(crate) fn start_keeping(folder: Folder, world: &World, index: u16, here: &[u8], keep: Keep) -> Broker {
        let (inbox, archive) = (Inbox::new(here), Arc::new(Archive::default()));
        let setup = Setup {
            genesis: world.genesis.clone(),
            index,
            key: Arc::new(brokers().remove(usize::from(index))),
            folder: folder.0.join("state"),
            outlet: inbox.clone(),
            blocks: archive.clone(),
            share_on: ShareOn::Read,
            threads: 1,
            keep,
            snapshots: Snapshots::at(folder.0.join("snapshots")),
        };
        let executor = Executor::start(setup).expect("it starts");
        Broker { executor, inbox, archive, done: None, folder }
    }

    /// Executes the blocks from a height on; returns when the last one is durable.
    pub(crate) fn execute(&mut self, world: &World, from: u64) {
        let (sender, done) = channel();
        for (block, batches) in &world.ordered[from as usize - 1..] {
            let (sender, height) = (sender.clone(), block.height);
            let done = Box::new(move || sender.send(height).expect("the test waits"));
            let batches = batches.clone();
            self.executor.execute(block.clone(), Box::new(move || Some(batches)), done);
        }
        drop(sender);
        let heights: Vec<u64> = done.iter().collect();
        assert_eq!(heights, (from..=world.ordered.len() as u64).collect::<Vec<_>>(), "each is done once, in order");
        self.done = None;
    }

    /// Ends the process, and leaves its folder.
    pub(crate) fn end(self) -> Folder {
        self.executor.stop();
        self.folder
    }
}

/// A folder of its own, removed at the end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("sealcast-brokerd-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    /// What a crash of the machine now would leave, if all files were written so far.
    pub(crate) fn copy(&self) -> Folder {
        let copy = Folder::new();
        copy_all(&self.0, &copy.0);
        copy
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_all(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), &to).expect("a copy");
        }
    }
}

pub(crate) fn subscribe(text: &str) -> Operation {
    Operation::Subscribe(text.parse().expect("an interest"))
}

/// A publication on `market/eurusd` for desk fx.
pub(crate) fn publication(body: Body) -> Publication {
    Publication {
        headers: vec![Header { topic: "market/eurusd".into(), value: None }],
        associated: vec![],
        access: Some("exchange:desk = fx".parse().expect("a condition")),
        execute: Execute::Nothing,
        policy: 0,
        epoch: 0,
        body,
    }
}

pub(crate) fn publish(body: &[u8]) -> Operation {
    Operation::Publish(Box::new(publication(Body::Plain(body.to_vec()))))
}

const TIMEOUT: Duration = Duration::from_secs(20);
