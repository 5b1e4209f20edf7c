//! What stands between clients, the other brokers and the order: every batch is checked once, wherever it comes from,
//! before it may wait to be ordered.
//!
//! ```text
//! gateway ───────────▶ submit ─┐                       ┌─ draw, waiting ◀─┐
//!                              ├▶ room ▶ lane ▶ checker ─▶ order.submit ─▶ room      engine
//! engine, forwarded ─▶ offer ──┘        one per thread ├─ valid ◀─────────┤
//!                                                      └─ deliver ◀───────┘─▶ executor
//! ```
//! A lane is served by one thread and a client has one lane, so that its batches keep their order; signatures are checked
//! in batches of what has come meanwhile. In lanes and room accounts take turns (`fair`). Batches that a proposed block brings and nobody brought before are checked
//! with the block; a block with a batch that is not good is not valid.
//!
//! *Unregistered clients* (G8). Of a client that never registered a batch waits only if it shows who is behind the client
//! ([`operation::Batch::introduces`]), or if one before it did. It is no matter of blocks: brokers differ in whom they know.
//!
//! *Topics.* No batch waits that publishes at a topic which rules for a visible name would not cover
//! ([`operation::check_published`]). Blocks may hold such batches: leaders of an older version propose them, and brokers that
//! refused their blocks would let one client stop the order.

mod fair;
mod introduced;
mod mempool;
mod pace;
mod shard;
mod stepped;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use bytes::Bytes;
use sealcast_broker::genesis::Cluster;
use sealcast_broker::operation::{self, BatchError, Checked, Client, Head, Keys, Sealed, UnregisteredError};
use sealcast_broker::protocol::{Refusal, Reply};
use sealcast_order::{
    Ack, Application, Batch, Block, BlockSize, Delivered, Evidence, Hash, Order, Origin, Parent, Refused,
};
use sealcast_wire::limits;

use crate::drops::{Drops, Reason};
use crate::executor::{Batches, Executor, Known};
use crate::outlet::Outlet;
use introduced::Introduced;
use mempool::{Account, AdmissionError, Mempool};
use pace::Pace;
use shard::{Arrived, VerificationShard};
use tracing::error;

pub use stepped::Stepped;

/// What admission asks of whoever executes.
pub trait Execution: Send + Sync + 'static {
    /// Executes the next block, later, on a thread that finds its batches; `done` once that is durable. Dropping `done` says
    /// that it cannot be.
    fn execute(&self, block: Arc<Block>, batches: Batches, done: Box<dyn FnOnce() + Send>);

    /// What is known of a client; `None` if it never registered.
    fn known(&self, client: &Client) -> Option<Known>;

    /// Whether a batch of a client that never registered shows who is behind it.
    ///
    /// # Errors
    /// [`UnregisteredError`].
    fn introduces(&self, batch: &operation::Batch) -> Result<(), UnregisteredError>;

    /// Which ciphertexts are well-formed for their labels.
    fn ciphertexts_valid(&self, sealed: &[Sealed<'_>]) -> Vec<bool>;

    /// Whether the threshold key is known: without it no ciphertext is valid.
    fn has_key(&self) -> bool;
}

impl Execution for Executor {
    fn execute(&self, block: Arc<Block>, batches: Batches, done: Box<dyn FnOnce() + Send>) {
        Executor::execute(self, block, batches, done);
    }

    fn known(&self, client: &Client) -> Option<Known> {
        Executor::known(self, client)
    }

    fn introduces(&self, batch: &operation::Batch) -> Result<(), UnregisteredError> {
        Executor::introduces(self, batch)
    }

    fn ciphertexts_valid(&self, sealed: &[Sealed<'_>]) -> Vec<bool> {
        Executor::ciphertexts_valid(self, sealed)
    }

    fn has_key(&self) -> bool {
        Executor::has_key(self)
    }
}

/// What admission is told at its start.
pub struct Setup {
    /// Bound in every signature.
    pub cluster: Cluster,
    /// Batches whose signatures are checked in one together, at most.
    pub together: usize,
    /// Threads that check.
    pub threads: usize,
    /// Who executes.
    pub execution: Arc<dyn Execution>,
    /// Where refusals leave.
    pub outlet: Arc<dyn Outlet>,
    /// Told of brokers that lied.
    pub misbehaved: Box<dyn Fn(&Evidence) + Send + Sync>,
    /// What is turned away is counted there.
    pub drops: Arc<Drops>,
}

/// Admission, running.
pub struct Admission {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    cluster: Cluster,
    together: AtomicUsize,
    execution: Arc<dyn Execution>,
    outlet: Arc<dyn Outlet>,
    misbehaved: Box<dyn Fn(&Evidence) + Send + Sync>,
    drops: Arc<Drops>,
    mempool: Mutex<Mempool>,
    /// `None` where there is no clock: in simulations.
    pace: Option<Mutex<Pace>>,
    shards: Vec<VerificationShard>,
    order: Mutex<Option<Arc<dyn Order>>>,
    introduced: Mutex<Introduced>,
    /// How many false batches each broker forwarded.
    false_forwards: Mutex<BTreeMap<usize, u32>>,
    commits: Mutex<Commits>,
    failed: AtomicBool,
}

/// How long some of the batches took from their coming in to their execution.
#[derive(Debug, Default)]
struct Commits {
    under_way: BTreeMap<Hash, Instant>,
    micros: VecDeque<u64>,
    blocks: u64,
    batches: u64,
}

impl Admission {
    /// Starts its threads. Batches are checked once an order is there ([`Admission::attach`]).
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(setup: Setup) -> io::Result<Admission> {
        let shared = Arc::new(Shared::new(setup, Some(Pace::default())));
        let mut threads = Vec::new();
        for shard in 0..shared.shards.len() {
            let shared = shared.clone();
            threads.push(thread::Builder::new().name(format!("check-{shard}")).spawn(move || shared.serve(shard))?);
        }
        Ok(Admission { shared, threads: Mutex::new(threads) })
    }

    /// From now on good batches are handed to this order.
    pub fn attach(&self, order: Arc<dyn Order>) {
        *lock(&self.shared.order) = Some(order);
        self.shared.shards.iter().for_each(VerificationShard::open);
    }

    /// From now on so many batches are checked in one together, at most.
    pub fn set_checked_together(&self, batches: usize) {
        self.shared.together.store(together(batches), Ordering::Relaxed);
    }

    /// A client's batch. What is wrong with it later is sent to it as [`Reply::Refused`].
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn submit(&self, client: &Client, batch: Bytes) -> Result<(), Refusal> {
        let refuse = |reason: Reason, why: Refusal| {
            self.shared.drops.count(reason);
            Err(why)
        };
        if batch.len() > limits::BATCH_BYTES_MAX {
            return refuse(Reason::BatchTooLarge, Refusal::TooLarge);
        }
        let Ok(head) = Head::of(&batch) else { return refuse(Reason::BatchMalformed, Refusal::Malformed) };
        if head.client != *client {
            return refuse(Reason::BatchNotYours, Refusal::NotYours);
        }
        match self.shared.reserve(Batch::new(batch), head, Origin::Here) {
            Ok(()) => Ok(()),
            Err(Turned::Executed) => refuse(Reason::BatchKnown, Refusal::Executed),
            Err(Turned::Mempool(AdmissionError::Quota)) => refuse(Reason::BatchQuota, Refusal::Quota),
            Err(Turned::Mempool(AdmissionError::Full)) => refuse(Reason::BatchFull, Refusal::Full),
            Err(Turned::Mempool(AdmissionError::Known)) => {
                // It was sent again, and is on its way already.
                self.shared.drops.count(Reason::BatchKnown);
                Ok(())
            }
            Err(Turned::Ended) => Err(Refusal::Ended),
        }
    }

    /// Batches that wait to be ordered.
    pub fn waiting(&self) -> usize {
        lock(&self.shared.mempool).len()
    }

    /// Bytes of batches that are being checked or wait.
    pub fn waiting_bytes(&self) -> usize {
        lock(&self.shared.mempool).bytes()
    }

    /// Median time from a client's batch coming in here to its execution, microseconds; 0 if there was none.
    pub fn commit_micros(&self) -> u64 {
        let mut micros: Vec<u64> = lock(&self.shared.commits).micros.iter().copied().collect();
        micros.sort_unstable();
        micros.get(micros.len() / 2).copied().unwrap_or(0)
    }

    /// Blocks and batches that were executed here since the start.
    pub fn executed(&self) -> (u64, u64) {
        let commits = lock(&self.shared.commits);
        (commits.blocks, commits.batches)
    }

    /// Whether the order delivered what no honest broker would have voted for.
    pub fn failed(&self) -> bool {
        self.shared.failed.load(Ordering::Acquire)
    }

    /// Ends its threads. Call it when the order has ended.
    pub fn stop(&self) {
        *lock(&self.shared.order) = None;
        self.shared.shards.iter().for_each(VerificationShard::end);
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // A panic in it was reported by its own hook.
            let _ = thread.join();
        }
    }
}

impl Application for Admission {
    fn receive(&self, origin: Origin, batch: Batch) -> Result<(), Refused> {
        let Origin::Broker(broker) = origin else {
            // Only batches that a checker found good are submitted.
            return if lock(&self.shared.mempool).enter(&batch.hash()) { Ok(()) } else { Err(Refused::Invalid) };
        };
        if lock(&self.shared.false_forwards).get(&broker).is_some_and(|n| *n >= limits::FALSE_FORWARDS_MAX) {
            self.shared.drops.count(Reason::BatchForwarded);
            return Err(Refused::Invalid);
        }
        let Ok(head) = Head::of(batch.bytes()) else {
            self.shared.false_forward(broker);
            self.shared.drops.count(Reason::BatchMalformed);
            return Err(Refused::Invalid);
        };
        self.shared.reserve(batch, head, origin).map_err(|turned| match turned {
            Turned::Executed | Turned::Mempool(AdmissionError::Known) => Refused::Known,
            Turned::Mempool(AdmissionError::Full) => Refused::Full,
            Turned::Mempool(AdmissionError::Quota) => {
                self.shared.drops.count(Reason::BatchQuota);
                Refused::Full
            }
            Turned::Ended => Refused::Ended,
        })
    }

    fn propose(&self, parent: &Parent<'_>, size: BlockSize) -> Vec<Batch> {
        // Asked for before the mempool is locked: the answer may have to wait for the block that is being executed.
        let asked = lock(&self.shared.mempool).authors();
        let next = |client: Client| (client, self.shared.execution.known(&client).map(|it| it.next));
        let turns = asked.into_iter().map(next).collect();
        let mempool = lock(&self.shared.mempool);
        let pace = self.shared.pace.as_ref().filter(|_| mempool.is_shared());
        let Some(pace) = pace else { return mempool.propose(parent.ancestors, size, turns) };
        let proposed = mempool.propose(parent.ancestors, lock(pace).limit(parent.height + 1, size), turns);
        drop(mempool);
        let bytes = proposed.iter().map(|batch| batch.bytes().len()).sum();
        lock(pace).proposed(parent.height + 1, bytes, Instant::now());
        proposed
    }

    fn waiting(&self, size: BlockSize) -> Vec<Batch> {
        lock(&self.shared.mempool).oldest(size)
    }

    fn valid(&self, _: &Parent<'_>, block: &Block) -> bool {
        let valid = self.shared.valid(block);
        if !valid {
            self.shared.drops.count(Reason::Block);
        }
        valid
    }

    fn deliver(&self, Delivered { block, .. }: Delivered, ack: Ack) {
        // At once, so that nobody draws them again.
        let known = lock(&self.shared.mempool).deliver(&block);
        let (shared, of) = (self.shared.clone(), block.clone());
        let batches = Box::new(move || {
            let batches = shared.batches(&of, known);
            if batches.is_none() {
                let height = of.height;
                error!("block {height} is final with a false batch: more than f brokers lie");
                shared.failed.store(true, Ordering::Release);
            }
            batches
        });
        let (shared, height) = (self.shared.clone(), block.height);
        let done = Box::new(move || {
            shared.executed(height);
            ack.done();
        });
        // If it cannot be executed, the acknowledgement is dropped, and that ends the order.
        self.shared.execution.execute(block, batches, done);
    }

    fn misbehaved(&self, evidence: &Evidence) {
        (self.shared.misbehaved)(evidence);
    }
}

/// What became of a batch's check.
type Verdict = Result<Checked, Wrong>;

/// Why a batch may not wait.
#[derive(Clone, Copy)]
enum Wrong {
    /// It would make a block invalid.
    Batch(BatchError),
    /// It comes from nobody, and accuses somebody or does not show who is behind it: it is not checked.
    Unregistered,
    /// It comes from nobody, and what it shows is false.
    Proof,
    /// It publishes where nothing can be published. Blocks that hold such a batch are valid, as old ones are.
    Topic,
}

/// Why a batch is not even checked.
enum Turned {
    Executed,
    Mempool(AdmissionError),
    Ended,
}

impl Shared {
    fn new(setup: Setup, pace: Option<Pace>) -> Shared {
        Shared {
            cluster: setup.cluster,
            together: AtomicUsize::new(together(setup.together)),
            execution: setup.execution,
            outlet: setup.outlet,
            misbehaved: setup.misbehaved,
            drops: setup.drops,
            mempool: Mutex::default(),
            pace: pace.map(Mutex::new),
            shards: (0..setup.threads.max(1)).map(|_| VerificationShard::default()).collect(),
            order: Mutex::new(None),
            introduced: Mutex::default(),
            false_forwards: Mutex::default(),
            commits: Mutex::default(),
            failed: AtomicBool::new(false),
        }
    }

    /// Room for a batch, and a place in its client's lane.
    fn reserve(&self, batch: Batch, head: Head, origin: Origin) -> Result<(), Turned> {
        let known = self.execution.known(&head.client);
        if known.as_ref().is_some_and(|it| head.end <= it.next) {
            return Err(Turned::Executed);
        }
        let hash = batch.hash();
        let account = Account::of(head.client, known.and_then(|it| it.holder));
        lock(&self.mempool).reserve(&batch, head, account.clone()).map_err(Turned::Mempool)?;
        if origin == Origin::Here {
            lock(&self.commits).begin(hash);
        }
        let shard = &self.shards[usize::from(head.client.0[0]) % self.shards.len()];
        if shard.push(&account, Arrived { batch, head, origin }) {
            Ok(())
        } else {
            lock(&self.mempool).settle(&hash, None);
            Err(Turned::Ended)
        }
    }

    /// Serves a lane until its end.
    fn serve(&self, shard: usize) {
        let shard = &self.shards[shard];
        while let Some(together) = shard.next(self.together.load(Ordering::Relaxed)) {
            let (begun, bytes) = (Instant::now(), together.iter().map(|it| it.batch.bytes().len()).sum());
            if !self.attend(together) {
                return;
            }
            shard.took(bytes, begun.elapsed());
        }
    }

    /// Checks batches and hands the good ones to the order; `false` if there is none any more.
    fn attend(&self, together: Vec<Arrived>) -> bool {
        // Before they are judged: what is turned away for want of a key was not false.
        let has_key = self.execution.has_key();
        let verdicts = self.judge(&together);
        let mut good = Vec::with_capacity(together.len());
        let mut mempool = lock(&self.mempool);
        for (arrived, verdict) in together.into_iter().zip(verdicts) {
            let hash = arrived.batch.hash();
            match verdict {
                Some(Err(why)) => {
                    mempool.settle(&hash, None);
                    self.refuse(&arrived, why, has_key);
                }
                Some(Ok(checked)) => {
                    mempool.settle(&hash, Some(checked));
                    good.push(arrived.batch);
                }
                None => good.push(arrived.batch),
            }
        }
        drop(mempool);
        let Some(order) = lock(&self.order).clone() else { return false };
        for batch in good {
            let hash = batch.hash();
            if order.submit(batch).is_err() {
                // It was delivered meanwhile, or the order has ended; who sent it hears of that.
                lock(&self.mempool).give_up(&hash);
            }
        }
        true
    }

    /// A verdict on each batch, `None` for those that a block brought and that were found good with it.
    fn judge(&self, together: &[Arrived]) -> Vec<Option<Verdict>> {
        let mut verdicts: Vec<Option<Verdict>> = Vec::with_capacity(together.len());
        let (mut batches, mut places, mut keys) = (Vec::new(), Vec::new(), Keys::default());
        for (place, arrived) in together.iter().enumerate() {
            verdicts.push(None);
            let known = lock(&self.mempool).checked(&arrived.batch.hash()).is_some();
            if known {
                continue;
            }
            match operation::Batch::read(arrived.batch.bytes(), &mut keys) {
                Ok(batch) => match self.greet(&batch) {
                    Ok(()) => {
                        batches.push(batch);
                        places.push(place);
                    }
                    Err(why) => verdicts[place] = Some(Err(why)),
                },
                Err(malformed) => verdicts[place] = Some(Err(Wrong::Batch(malformed.into()))),
            }
        }
        let judged = operation::check(&self.cluster, batches, |sealed| self.execution.ciphertexts_valid(sealed));
        for (place, verdict) in places.into_iter().zip(judged) {
            verdicts[place] = Some(verdict.map_err(Wrong::Batch));
        }
        verdicts
    }

    /// Whether a batch may come from this client (G8): keys are free, and each accusation costs the proofs of t shares,
    /// each registration that comes to nothing a signature or two at all brokers, again and again.
    fn greet(&self, batch: &operation::Batch) -> Result<(), Wrong> {
        batch.check_topics().map_err(|_| Wrong::Topic)?;
        let client = batch.client();
        let known = self.execution.known(&client);
        if batch.accusations() > 0 && known.as_ref().is_none_or(|it| it.holder.is_none()) {
            return Err(Wrong::Unregistered);
        }
        if known.is_some() || lock(&self.introduced).holds(&client) {
            return Ok(());
        }
        self.execution.introduces(batch).map_err(|why| match why {
            UnregisteredError::Unknown => Wrong::Unregistered,
            UnregisteredError::False => Wrong::Proof,
        })?;
        lock(&self.introduced).saw(batch);
        Ok(())
    }

    fn refuse(&self, arrived: &Arrived, why: Wrong, has_key: bool) {
        let (reason, refusal) = match why {
            Wrong::Batch(BatchError::Malformed) => (Reason::BatchMalformed, Refusal::Malformed),
            Wrong::Batch(BatchError::Signature) => (Reason::BatchSignature, Refusal::Signature),
            Wrong::Batch(BatchError::Ciphertext) => (Reason::BatchCiphertext, Refusal::Ciphertext),
            Wrong::Batch(BatchError::Accusation) => (Reason::BatchAccusation, Refusal::Accusation),
            // It may be registered where this broker has not come yet.
            Wrong::Unregistered => (Reason::UnregisteredBatch, Refusal::Unregistered),
            Wrong::Proof => (Reason::BatchProof, Refusal::Proof),
            Wrong::Topic => (Reason::BatchTopic, Refusal::Topic),
        };
        self.drops.count(reason);
        match arrived.origin {
            Origin::Here => {
                lock(&self.commits).under_way.remove(&arrived.batch.hash());
                let Head { client, first, .. } = arrived.head;
                self.outlet.send(&client, Reply::Refused { first, why: refusal });
            }
            Origin::Broker(broker) => match why {
                // Honest brokers may be ahead of this one in what they executed, and in having a key; and those of an
                // older version take any topic.
                Wrong::Unregistered | Wrong::Topic => {}
                Wrong::Batch(BatchError::Ciphertext | BatchError::Accusation) if !has_key => {}
                // They differ in nothing else: whatever they forward they have checked, by the same key.
                Wrong::Batch(_) | Wrong::Proof => self.false_forward(broker),
            },
        }
    }

    fn false_forward(&self, broker: usize) {
        *lock(&self.false_forwards).entry(broker).or_default() += 1;
    }

    /// Whether all batches of a block are good, each there once, with no more accusations and proofs than a block may hold.
    fn valid(&self, block: &Block) -> bool {
        let hashes: BTreeSet<Hash> = block.batches.iter().map(Batch::hash).collect();
        if hashes.len() != block.batches.len() {
            return false;
        }
        let (mut accusations, mut proofs) = (0, 0);
        let mut count = |batch: &operation::Batch| {
            accusations += batch.accusations();
            proofs += batch.proofs();
        };
        let unknown: Vec<&Batch> = {
            let mempool = lock(&self.mempool);
            let mut known = |batch: &Batch| {
                let checked = mempool.checked(&batch.hash());
                checked.iter().for_each(|it| count(it.batch()));
                checked.is_some()
            };
            block.batches.iter().filter(|batch| !known(batch)).collect()
        };
        let mut keys = Keys::default();
        let parsed: Result<Vec<_>, _> = unknown.iter().map(|f| operation::Batch::read(f.bytes(), &mut keys)).collect();
        let Ok(parsed) = parsed else { return false };
        parsed.iter().for_each(&mut count);
        if accusations > limits::BLOCK_ACCUSATIONS_MAX || proofs > limits::BLOCK_PROOFS_MAX {
            return false;
        }
        let checked = operation::check(&self.cluster, parsed, |sealed| self.execution.ciphertexts_valid(sealed));
        let all_good = checked.iter().all(Result::is_ok);
        let (mut mempool, mut introduced) = (lock(&self.mempool), lock(&self.introduced));
        for (batch, checked) in unknown.into_iter().zip(checked) {
            if let (Ok(head), Ok(checked)) = (Head::of(batch.bytes()), checked) {
                introduced.saw(checked.batch());
                mempool.remember(batch, head, checked);
            }
        }
        all_good
    }

    /// The batches of a final block, checked, of which some are known; `None` if a signature is false. Ciphertexts were
    /// judged by those who made it final, perhaps before this broker had the key.
    fn batches(&self, block: &Block, mut known: Vec<Option<Checked>>) -> Option<Vec<Checked>> {
        let missing: Vec<usize> = (0..known.len()).filter(|i| known[*i].is_none()).collect();
        let mut keys = Keys::default();
        let parsed: Result<Vec<_>, _> =
            missing.iter().map(|i| operation::Batch::read(block.batches[*i].bytes(), &mut keys)).collect();
        let checked = operation::check(&self.cluster, parsed.ok()?, |sealed| vec![true; sealed.len()]);
        for (place, checked) in missing.into_iter().zip(checked) {
            known[place] = checked.ok();
        }
        known.into_iter().collect()
    }

    fn executed(&self, height: u64) {
        let done = lock(&self.mempool).executed(height);
        if let Some(pace) = &self.pace {
            lock(pace).executed(height, Instant::now());
        }
        lock(&self.commits).end(&done);
    }
}

impl Commits {
    fn begin(&mut self, batch: Hash) {
        if self.under_way.len() < COMMITS_TIMED {
            self.under_way.insert(batch, Instant::now());
        }
    }

    fn end(&mut self, done: &[Hash]) {
        self.blocks += 1;
        self.batches += done.len() as u64;
        for begun in done.iter().filter_map(|hash| self.under_way.remove(hash)) {
            if self.micros.len() == COMMITS_KEPT {
                self.micros.pop_front();
            }
            self.micros.push_back(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
        }
    }
}

fn together(batches: usize) -> usize {
    batches.clamp(1, limits::CHECKED_TOGETHER_MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Batches on their way that are timed at once.
const COMMITS_TIMED: usize = 64;
/// Times of which the median is told.
const COMMITS_KEPT: usize = 255;

#[cfg(test)]
mod tests;
