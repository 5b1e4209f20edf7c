//! One broker: what its process holds, without sockets, files and threads. Its rows, its snapshots and the engine's archive
//! outlive it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sealcast_broker::genesis::Genesis;
use sealcast_broker::operation::{Client, Head};
use sealcast_broker::protocol::{Answer, Query, Reply, Request};
use sealcast_broker::state::Store as _;
use sealcast_brokerd::drops::Drops;
use sealcast_brokerd::store::Memory;
use sealcast_brokerd::sync::{Joined, Keep, Snapshots};
use sealcast_brokerd::{Blocks, Outlet, Setup, ShareOn, admission, executor};
use sealcast_crypto::group::Ristretto255;
use sealcast_crypto::tdh2::{KeyShare, PublicKey};
use sealcast_order::{
    Ack, Application, Batch, Block, BlockSize, Delivered, Evidence, Hash, Order, Origin, Parent, Refused,
    StartCertificate,
};

use crate::fixture::{Fixture, key_of};

/// How much one block holds here.
pub const BLOCK: BlockSize = BlockSize { batches: 8, bytes: 64 << 10 };

/// One broker.
pub struct Broker {
    /// Its number.
    pub number: usize,
    genesis: Genesis,
    seed: [u8; 32],
    key: Arc<PublicKey<Ristretto255>>,
    share: [u8; 32],
    /// How far back it keeps publications and blocks.
    pub keep: Keep,
    rows: Memory,
    snapshots: Snapshots,
    /// What the engine's archive holds.
    pub archive: Arc<Archive>,
    clock: Arc<AtomicU64>,
    /// Batches that it refused for whose they were.
    censored: Arc<AtomicU64>,
    /// What its engine found, not looked at yet: who contradicted himself, and in which view.
    contradictions: Arc<Mutex<Vec<(usize, u64)>>>,
    life: Option<Life>,
}

/// The process.
struct Life {
    admission: admission::Stepped,
    executor: executor::Stepped,
    client_outlet: Arc<ClientOutlet>,
    /// When what was executed is synced, microseconds.
    sync_at: Option<u64>,
}

/// What is kept of the order.
#[derive(Default)]
pub struct Archive(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// Final blocks by height, with their hashes.
    blocks: BTreeMap<u64, (Hash, Arc<Block>)>,
    /// Those that have a certificate of their own, if somebody needs them.
    floors: BTreeMap<u64, StartCertificate>,
    /// The last block whose certificate was looked for.
    certified: u64,
    /// While the engine runs.
    order: Option<Arc<dyn Order>>,
}

/// The gateway's place: who has a channel, and what leaves.
#[derive(Default)]
struct ClientOutlet(Mutex<Channels>);

#[derive(Default)]
struct Channels {
    here: BTreeSet<Client>,
    out: Vec<(Client, Reply)>,
}

/// What a broker's application is between it and the engine: it remembers blocks, and it may refuse a client's batches.
struct Gate {
    admission: Arc<admission::Admission>,
    archive: Arc<Archive>,
    refuses: Option<Client>,
    refused: Arc<AtomicU64>,
}

impl Broker {
    /// It does not run yet.
    pub fn new(number: usize, fixture: &Fixture, share: &KeyShare<Ristretto255>) -> Broker {
        Broker {
            number,
            genesis: fixture.genesis.clone(),
            seed: fixture.seeds[number],
            key: fixture.key.clone(),
            share: *share.secret_bytes().expose(),
            keep: Keep::Everything,
            rows: Memory::default(),
            snapshots: Snapshots::in_memory(),
            archive: Arc::default(),
            clock: Arc::default(),
            censored: Arc::default(),
            contradictions: Arc::default(),
            life: None,
        }
    }

    /// Another process under the same key, with rows of its own.
    pub fn twin(&self) -> Broker {
        Broker {
            number: self.number,
            genesis: self.genesis.clone(),
            seed: self.seed,
            key: self.key.clone(),
            share: self.share,
            keep: Keep::Everything,
            rows: Memory::default(),
            snapshots: Snapshots::in_memory(),
            archive: Arc::default(),
            clock: Arc::default(),
            censored: Arc::default(),
            contradictions: Arc::default(),
            life: None,
        }
    }

    /// Starts the process; what the engine is given. [`Broker::attach`] follows.
    ///
    /// # Panics
    /// If its own rows are none.
    pub fn start(&mut self, refuses: Option<Client>) -> Arc<dyn Application> {
        let client_outlet = Arc::new(ClientOutlet::default());
        let index = u16::try_from(self.number).expect("a broker's number has 16 bits");
        let setup = Setup {
            genesis: self.genesis.clone(),
            index,
            key: Arc::new(key_of(self.seed)),
            folder: std::path::PathBuf::new(),
            outlet: client_outlet.clone(),
            blocks: self.archive.clone(),
            share_on: if self.number.is_multiple_of(2) { ShareOn::Read } else { ShareOn::Write },
            threads: 0,
            keep: self.keep,
            snapshots: self.snapshots.clone(),
        };
        let clock = self.clock.clone();
        let elapsed = move || Duration::from_micros(clock.load(Ordering::Relaxed));
        let executor = executor::Stepped::start(setup, self.rows.clone(), elapsed).expect("its own rows open");
        let key = PublicKey::<Ristretto255>::decode(&self.key.encode()).expect("its own bytes");
        let secret = sealcast_crypto::secret::Secret::from_bytes(self.share);
        let share = KeyShare::new(&key, index + 1, &secret).expect("the dealer's share");
        executor.executor().set_key((key, share));
        let contradictions = self.contradictions.clone();
        let admission = admission::Stepped::new(admission::Setup {
            cluster: self.genesis.cluster(),
            together: 16,
            threads: 1,
            execution: Arc::new(executor.executor().clone()),
            outlet: client_outlet.clone(),
            misbehaved: Box::new(move |it| lock(&contradictions).push((it.broker, it.view))),
            drops: Arc::new(Drops::default()),
        });
        let (archive, refused) = (self.archive.clone(), self.censored.clone());
        let gate = Gate { admission: admission.admission().clone(), archive, refuses, refused };
        self.life = Some(Life { admission, executor, client_outlet, sync_at: None });
        Arc::new(gate)
    }

    /// The engine runs.
    pub fn attach(&self, order: Arc<dyn Order>) {
        if let Some(life) = &self.life {
            self.archive.kept().order = Some(order.clone());
            life.admission.admission().attach(order);
        }
    }

    /// Looks which of the blocks that it executed since have a certificate of their own: a snapshot needs one.
    pub async fn certify(&self) {
        if self.keep == Keep::Everything || self.life.is_none() {
            return;
        }
        let (from, order) = {
            let kept = self.archive.kept();
            (kept.certified + 1, kept.order.clone())
        };
        let Some(order) = order else { return };
        for height in from..=self.height() {
            let start_certificate = order.start_certificate(height).await;
            let mut kept = self.archive.kept();
            kept.floors.extend(start_certificate.map(|start_certificate| (height, start_certificate)));
            kept.certified = height;
        }
    }

    /// Whether its process runs.
    pub fn runs(&self) -> bool {
        self.life.is_some()
    }

    /// The process ends where it stands; of what was executed and not synced, a beginning stays, as `dice` says.
    pub fn crash(&mut self, dice: u64) {
        if let Some(life) = self.life.take() {
            let kept = usize::try_from(dice % (self.rows.unsynced() as u64 + 1)).expect("it is small");
            self.end(life);
            self.rows.crash(kept);
        }
    }

    /// Admission and archive hold the order, which holds them: without this they would outlive the run.
    fn end(&self, life: Life) {
        self.archive.kept().order = None;
        life.admission.admission().stop();
    }

    /// It does not run, and what it had is gone, all but its keys.
    pub fn lose(&mut self) {
        (self.rows, self.snapshots, self.archive) = (Memory::default(), Snapshots::in_memory(), Arc::default());
    }

    /// It will start with this.
    pub fn begin(&mut self, joined: Joined) {
        self.archive.kept().certified = joined.height;
        (self.rows, self.snapshots) = (joined.rows, joined.snapshots);
    }

    /// Does what threads would do; blocks executed meanwhile, with hash and roots.
    ///
    /// # Errors
    /// It cannot go on.
    pub fn step(&mut self, now: u64, dice: u64) -> Result<Vec<Done>, String> {
        self.clock.store(now, Ordering::Relaxed);
        let Some(life) = &mut self.life else { return Ok(Vec::new()) };
        let mut done = Vec::new();
        while life.executor.retain().map_err(|error| error.to_string())? {}
        loop {
            let mut any = life.admission.step();
            if life.admission.admission().failed() {
                return Err(format!("broker {} was given a final block with a false batch", self.number));
            }
            while let Some(height) = life.executor.execute()? {
                any = true;
                life.sync_at.get_or_insert(now + dice % SYNC_MICROS);
                if let (Some(roots), Some(hash)) = (life.executor.roots(height), self.archive.hash(height)) {
                    done.push(Done { height, hash, roots });
                }
            }
            any |= life.executor.release();
            if !any {
                break;
            }
        }
        if life.sync_at.is_some_and(|at| at <= now) {
            life.sync_at = None;
            life.executor.sync().map_err(|error| error.to_string())?;
        }
        Ok(done)
    }

    /// Who contradicted himself, and in which view, as its engine found since this was asked last.
    pub fn contradictions(&self) -> Vec<(usize, u64)> {
        std::mem::take(&mut *lock(&self.contradictions))
    }

    /// What leaves.
    pub fn take(&mut self) -> Vec<(Client, Reply)> {
        self.life.as_ref().map(|life| std::mem::take(&mut life.client_outlet.channels().out)).unwrap_or_default()
    }

    /// A client's channel is gone.
    pub fn leave(&mut self, client: &Client) {
        if let Some(life) = &self.life {
            life.client_outlet.channels().here.remove(client);
        }
    }

    /// A client says something; `false` if nobody understands it, which ends the channel.
    #[must_use]
    pub fn hear(&mut self, client: &Client, bytes: &[u8]) -> bool {
        let Some(life) = &self.life else { return false };
        if let Some(batch) = Request::submitted(bytes) {
            let first = Head::of(batch).map_or(0, |head| head.first);
            if let Err(why) = life.admission.admission().submit(client, Bytes::copy_from_slice(batch)) {
                life.client_outlet.push(client, Reply::Refused { first, why });
            }
            return true;
        }
        match Request::from_bytes(bytes) {
            Ok(Request::Hello { cluster }) if cluster == self.genesis.cluster() => {
                life.client_outlet.channels().here.insert(*client);
                let welcome = life.executor.executor().welcome(client);
                life.client_outlet.push(client, Reply::Welcome(welcome));
                true
            }
            Ok(Request::Query { id, query }) => {
                let answer = life.executor.executor().answer(client, query);
                life.client_outlet.push(client, Reply::Answer { id, answer });
                true
            }
            _ => false,
        }
    }

    /// What it answers to another broker, or to a client; `None` if it does not run.
    pub fn answer(&self, client: &Client, query: &Query) -> Option<Answer> {
        self.life.as_ref().map(|life| life.executor.executor().answer(client, query.clone()))
    }

    /// Publications below this one are not kept.
    pub fn low_water_mark(&self) -> u64 {
        self.life.as_ref().map_or(0, |life| life.executor.executor().low_water_mark().sn)
    }

    /// Batches that it refused for whose they were.
    pub fn censored(&self) -> u64 {
        self.censored.load(Ordering::Relaxed)
    }

    /// The last block that it executed.
    pub fn height(&self) -> u64 {
        self.life.as_ref().map_or(0, |life| life.executor.executor().executed())
    }

    /// Whose publication stands at a place.
    pub fn published(&self, sn: u64) -> Option<(Client, u64)> {
        let found = self.life.as_ref()?.executor.published(sn).ok().flatten()?;
        Some((found.client, found.number))
    }

    /// All that lies at this broker: rows, and batches of blocks.
    pub fn holdings(&self) -> Vec<Arc<[u8]>> {
        let rows = self.rows.range(&[], &[0xff; 64], usize::MAX).unwrap_or_default();
        let mut all: Vec<Arc<[u8]>> = rows.into_iter().map(|(key, value)| [key, value].concat().into()).collect();
        for (_, block) in self.archive.kept().blocks.values() {
            all.extend(block.batches.iter().map(|batch| Arc::from(&batch.bytes()[..])));
        }
        all
    }
}

/// A block that was executed.
pub struct Done {
    /// Which.
    pub height: u64,
    /// Its hash.
    pub hash: [u8; 32],
    /// Of state and outbox.
    pub roots: ([u8; 32], [u8; 32]),
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(life) = self.life.take() {
            self.end(life);
        }
    }
}

impl Archive {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.0)
    }

    fn hash(&self, height: u64) -> Option<Hash> {
        self.kept().blocks.get(&height).map(|it| it.0)
    }
}

impl Blocks for Archive {
    fn batch(&self, height: u64, batch: u32) -> Option<Bytes> {
        Some(self.kept().blocks.get(&height)?.1.batches.get(batch as usize)?.bytes().clone())
    }

    fn start_certificate(&self, height: u64) -> Option<StartCertificate> {
        self.kept().floors.get(&height).cloned()
    }

    fn prune(&self, height: u64) {
        let mut kept = self.kept();
        kept.blocks.retain(|it, _| *it >= height);
        kept.floors.retain(|it, _| *it >= height);
        kept.order.iter().for_each(|order| order.prune(height));
    }
}

impl ClientOutlet {
    fn channels(&self) -> MutexGuard<'_, Channels> {
        lock(&self.0)
    }

    fn push(&self, client: &Client, reply: Reply) {
        self.channels().out.push((*client, reply));
    }
}

impl Outlet for ClientOutlet {
    fn is_here(&self, client: &Client) -> bool {
        self.channels().here.contains(client)
    }

    fn send(&self, client: &Client, reply: Reply) {
        if self.is_here(client) {
            self.push(client, reply);
        }
    }

    fn dkg(&self, _: u64, _: u16, _: &[u8]) {}

    fn executed(&self, _: u64) {}
}

impl Gate {
    fn refuses(&self, batch: &Batch) -> bool {
        let is_it = |client| Head::of(batch.bytes()).is_ok_and(|head| head.client == client);
        let refuses = self.refuses.is_some_and(is_it);
        self.refused.fetch_add(u64::from(refuses), Ordering::Relaxed);
        refuses
    }
}

impl Application for Gate {
    fn receive(&self, origin: Origin, batch: Batch) -> Result<(), Refused> {
        if self.refuses(&batch) { Err(Refused::Invalid) } else { self.admission.receive(origin, batch) }
    }

    fn propose(&self, parent: &Parent<'_>, size: BlockSize) -> Vec<Batch> {
        self.admission.propose(parent, size)
    }

    fn waiting(&self, size: BlockSize) -> Vec<Batch> {
        Application::waiting(&*self.admission, size)
    }

    fn valid(&self, parent: &Parent<'_>, block: &Block) -> bool {
        !block.batches.iter().any(|batch| self.refuses(batch)) && self.admission.valid(parent, block)
    }

    fn deliver(&self, block: Delivered, ack: Ack) {
        self.archive.kept().blocks.insert(block.block.height, (block.hash, block.block.clone()));
        self.admission.deliver(block, ack);
    }

    fn misbehaved(&self, evidence: &Evidence) {
        self.admission.misbehaved(evidence);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was executed is synced after at most this.
const SYNC_MICROS: u64 = 30_000;
