//! Executes the order's blocks, one thread in their order, and answers clients from any thread.
//!
//! ```text
//! order ─ execute(block, batches, done) ─▶ queue ─▶ thread: State::execute ─▶ updates ─▶ outlet
//!                                                     │                └─▶ release: shares ─▶ outlet
//!                                                     └─▶ syncer: store durable ─▶ done
//! gateway ─ welcome, answer ─▶ the state, between two blocks; outboxes of recent blocks
//! ```
//! A block's rows are one change of the store. They are synced some blocks or [`limits::STORE_SYNC_AFTER`] later, all at
//! once, and only then the order hears `done`: a crash costs the execution of those blocks again and nothing else.
//!
//! | file | what |
//! |---|---|
//! | `run` | the thread |
//! | `sync` | the thread that makes blocks durable |
//! | `numbers` | clients' next numbers and who is behind them, as admission asks for it |
//! | `recent` | outboxes and batches of the last blocks |
//! | `answers` | answers to clients |
//! | `stepped` | all of it without threads, for simulations |

mod answers;
mod numbers;
mod recent;
mod run;
mod stepped;
mod sync;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use sealcast_broker::genesis::{Cluster, Genesis};
use sealcast_broker::operation::{Batch, Checked, Client, Moment, Sealed, UnregisteredError};
use sealcast_broker::protocol::{Answer, Query, Welcome};
use sealcast_broker::state::{LowWaterMark, State, StoreError, may_vouch};
use sealcast_crypto::ed25519;
use sealcast_crypto::signature::OriginKey;
use sealcast_order::Block;
use sealcast_wire::Utc;
#[cfg(doc)]
use sealcast_wire::limits;

use crate::gateway::ClientStatus;
use crate::outlet::{Blocks, Outlet};
use crate::release::{self, KeyWithShare, Release};
use crate::store::Lsm;
use crate::sync::{self as history, Keep, Retention, Snapshots};
use numbers::Numbers;
use recent::Recent;

pub use numbers::Known;
pub(crate) use recent::Kept;
pub use stepped::Stepped;

/// What an executor needs at its start.
pub struct Setup {
    /// What the cluster began with.
    pub genesis: Genesis,
    /// This broker's number: the place of its key in genesis.
    pub index: u16,
    /// Its key.
    pub key: Arc<OriginKey>,
    /// Where its rows lie; made if it is not there.
    pub folder: PathBuf,
    /// Where results leave.
    pub outlet: Arc<dyn Outlet>,
    /// Where old blocks are found.
    pub blocks: Arc<dyn Blocks>,
    /// When shares are computed.
    pub share_on: ShareOn,
    /// Threads that compute shares, at least one.
    pub threads: usize,
    /// How far back it keeps publications.
    pub keep: Keep,
    /// Where its snapshots lie.
    pub snapshots: Snapshots,
}

/// When a broker computes its share of a sealed publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShareOn {
    /// When the publication is executed, whoever reads it: readers then wait less.
    Write,
    /// When the first reader is there.
    #[default]
    Read,
}

/// Why an executor does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// Not this cluster's broker of that number.
    #[error("the key is not that of broker {0} in genesis")]
    Key(u16),
}

/// A handle to the threads that execute; clones are the same executor, and when the last one goes, the threads end.
#[derive(Clone)]
pub struct Executor {
    pub(crate) shared: Arc<Shared>,
    queue: Sender<Job>,
}

/// What the threads have in common.
pub(crate) struct Shared {
    genesis: Genesis,
    pub(crate) cluster: Cluster,
    pub(crate) index: u16,
    pub(crate) brokers: usize,
    /// With which they sign, by number.
    pub(crate) broker_keys: Vec<ed25519::Key>,
    pub(crate) key: Arc<OriginKey>,
    pub(crate) outlet: Arc<dyn Outlet>,
    pub(crate) blocks: Arc<dyn Blocks>,
    state: RwLock<State<Lsm>>,
    /// The rows below it, for what needs no block to wait.
    rows: Lsm,
    recent: Mutex<Recent>,
    /// Which number is next of clients that were asked for.
    numbers: Mutex<Numbers>,
    /// Where the newest executed state stands, for who cannot wait for a block.
    moment: Mutex<Moment>,
    /// Executed.
    pub(crate) height: AtomicU64,
    /// Executed and durable.
    durable: AtomicU64,
    pub(crate) release: Release,
    pub(crate) retention: Retention,
    failure: OnceLock<String>,
}

/// What the executing thread is told.
enum Job {
    /// The next block.
    Block(Arc<Block>, Batches, Done),
    /// To make all durable and to end, which the sender waits for.
    Stop(SyncSender<()>),
}

/// Finds a block's batches, checked, when its turn has come; none if the block cannot be executed, nor any after it.
pub type Batches = Box<dyn FnOnce() -> Option<Vec<Checked>> + Send>;

/// What is called when a block is durable.
type Done = Box<dyn FnOnce() + Send>;

impl Executor {
    /// Opens the store and starts the threads.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(setup: Setup) -> Result<Executor, StartError> {
        let store = Lsm::open(&setup.folder)?;
        let threads = setup.threads;
        let shared = Shared::open(setup, store.clone())?;
        shared.release.start(threads)?;
        shared.retention.start()?;
        let (queue, jobs) = channel();
        let synced = sync::start(shared.clone(), store)?;
        run::start(shared.clone(), jobs, synced)?;
        Ok(Executor { shared, queue })
    }

    /// The last block that was executed and is durable.
    pub fn height(&self) -> u64 {
        self.shared.durable.load(Ordering::Acquire)
    }

    /// The last block that was executed.
    pub fn executed(&self) -> u64 {
        self.shared.height.load(Ordering::Acquire)
    }

    /// Executes a block, later. Blocks come without gaps; of those that were executed before (and are not durable yet) `done`
    /// is called when they are. `done` is dropped without a call if the storage failed or there are no batches. How many
    /// blocks wait is bounded by whoever waits for `done`: the order has a limit of what is not acknowledged.
    pub fn execute(&self, block: Arc<Block>, batches: Batches, done: Done) {
        // An ended executor drops the block and what was to be called.
        let _ = self.queue.send(Job::Block(block, batches, done));
    }

    /// What a client is told first.
    pub fn welcome(&self, client: &Client) -> Welcome {
        self.shared.welcome(client)
    }

    /// The answer to a client's query. Takes its time where bodies of old blocks or proofs are asked for.
    pub fn answer(&self, client: &Client, query: Query) -> Answer {
        self.shared.answer(client, query)
    }

    /// The threshold key, and this broker's share of it if it has one: sealed publications are accepted and released from
    /// now on; without a share accepted alone.
    pub fn set_key(&self, holding: impl Into<KeyWithShare>) {
        self.set_key_made(holding, release::now());
    }

    /// The same with a key that was made then.
    pub fn set_key_made(&self, holding: impl Into<KeyWithShare>, made: Utc) {
        self.shared.release.set_key(holding.into(), made);
    }

    /// Seconds since the threshold key was made; `None` without a key.
    pub fn key_age(&self) -> Option<u64> {
        self.shared.release.key_age()
    }

    /// The key epoch and the number of the policy in force.
    pub fn in_force(&self) -> (u32, u64) {
        let state = self.shared.state();
        (state.epoch(), state.policy().0)
    }

    /// The time of the last executed block; before the first one, by the clock here.
    pub(crate) fn time(&self) -> Utc {
        let at = self.shared.state().time();
        if at > Utc(0) { at } else { release::now() }
    }

    /// When shares are computed from now on.
    pub fn set_share_on(&self, share_on: ShareOn) {
        self.shared.release.set_share_on(share_on);
    }

    /// Which ciphertexts are well-formed for their labels; none without a key.
    pub fn ciphertexts_valid(&self, sealed: &[Sealed<'_>]) -> Vec<bool> {
        self.shared.release.ciphertexts_valid(sealed)
    }

    /// Whether the threshold key is known here.
    pub fn has_key(&self) -> bool {
        self.shared.release.has_key()
    }

    /// What is known of a client; `None` if it never registered. Of one that was asked for before it neither reads the
    /// store nor waits for a block that is being executed.
    pub fn known(&self, client: &Client) -> Option<Known> {
        let found = self.shared.numbers().get(client);
        found.unwrap_or_else(|| {
            let state = self.shared.state();
            let record = state.client(client).ok()?;
            let known = record.map(|it| Known { next: it.next, holder: it.holder(state.time()) });
            // While the state is held no block can bring a newer number, or the client.
            self.shared.numbers().put(*client, known.clone());
            known
        })
    }

    /// Whether a batch of a client that never registered may be ordered (G8). Waits for no block.
    ///
    /// # Errors
    /// [`UnregisteredError`].
    pub fn introduces(&self, batch: &Batch) -> Result<(), UnregisteredError> {
        let Shared { genesis, cluster, rows, .. } = &*self.shared;
        let now = *self.shared.moment();
        batch.introduces(genesis, cluster, now, |credential, client| {
            may_vouch(rows, credential, client).unwrap_or(false)
        })
    }

    /// What the client is to this broker now.
    pub fn client_status(&self, client: &Client) -> ClientStatus {
        if self.shared.is_broker(client) {
            return ClientStatus::Broker;
        }
        let state = self.shared.state();
        let holder = state.client(client).ok().flatten().and_then(|record| record.holder(state.time()));
        holder.map_or(ClientStatus::Unregistered, ClientStatus::Registered)
    }

    /// How many clients evidence keeps from publishing (E4).
    pub fn suspended(&self) -> usize {
        self.shared.state().suspended().len()
    }

    /// The statements of the DKG so far: height, broker, word.
    ///
    /// # Errors
    /// The storage failed.
    pub fn dkg_statements(&self) -> Result<Vec<(u64, u16, Vec<u8>)>, StoreError> {
        self.shared.state().words()
    }

    /// How far back publications are kept.
    pub fn low_water_mark(&self) -> LowWaterMark {
        self.shared.state().low_water_mark()
    }

    /// Why it executes no more, if it does not: the storage failed.
    pub fn failure(&self) -> Option<&str> {
        self.shared.failure.get().map(String::as_str)
    }

    /// Executes what waits, makes it durable, and ends. What is handed in later is dropped.
    pub fn stop(&self) {
        let (ended, end) = sync_channel(1);
        if self.queue.send(Job::Stop(ended)).is_ok() {
            let _ = end.recv();
        }
        self.shared.release.stop();
        self.shared.retention.stop();
    }
}

impl Shared {
    /// The state that lies in this store, with all that stands around it but threads.
    fn open(setup: Setup, store: Lsm) -> Result<Arc<Shared>, StartError> {
        let Setup { genesis, index, key, outlet, blocks, share_on, folder: _, threads: _, keep, snapshots } = setup;
        if genesis.brokers.iter().nth(usize::from(index)) != Some(&key.public_bytes()) {
            return Err(StartError::Key(index));
        }
        let (cluster, brokers) = (genesis.cluster(), genesis.brokers.len());
        let keys = (0..).zip(&genesis.brokers).map(|(n, key)| ed25519::Key::new(key).map_err(|_| StartError::Key(n)));
        let broker_keys = keys.collect::<Result<_, _>>()?;
        let state = State::open(genesis.clone(), store.clone())?;
        let height = state.height();
        let moment = Moment { at: state.time(), next_act: state.next_act() };
        let rows = store.clone();
        let retention = history::Setup { keep, snapshots, store };
        Ok(Arc::new_cyclic(|shared| Shared {
            genesis,
            cluster,
            index,
            brokers,
            broker_keys,
            key,
            outlet,
            blocks,
            state: RwLock::new(state),
            rows,
            recent: Mutex::new(Recent::default()),
            numbers: Mutex::default(),
            moment: Mutex::new(moment),
            height: AtomicU64::new(height),
            durable: AtomicU64::new(height),
            release: Release::new(shared.clone(), share_on),
            retention: Retention::new(retention, shared.clone()),
            failure: OnceLock::new(),
        }))
    }

    /// The newest executed state. Whoever holds it keeps the next block from being executed.
    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State<Lsm>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing below this floor is answered any more.
    pub(crate) fn raise_low_water_mark(&self, low_water_mark: LowWaterMark) -> Result<(), StoreError> {
        self.state.write().unwrap_or_else(PoisonError::into_inner).raise_low_water_mark(low_water_mark)
    }

    pub(crate) fn is_broker(&self, client: &Client) -> bool {
        self.broker_keys.iter().any(|key| *key.as_bytes() == client.0)
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self) -> MutexGuard<'_, Moment> {
        self.moment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing more is executed.
    fn fail(&self, why: String) {
        if self.failure.set(why.clone()).is_ok() {
            self.outlet.failed(&why);
        }
    }
}
