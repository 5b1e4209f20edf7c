//! The engine put together: simplex, marshal, the blocks' broadcast and backfill, our hooks. Generic over runtime and
//! links, so that the same code runs on tokio over TCP and in the deterministic simulator.

use std::num::{NonZeroU16, NonZeroU32, NonZeroU64, NonZeroUsize};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use commonware_broadcast::buffered;
use commonware_codec::{Copying, Decode as _, DecodeExt as _, Encode as _};
use commonware_consensus::marshal::core::{Actor, Mailbox};
use commonware_consensus::marshal::standard::Standard;
use commonware_consensus::marshal::store::Blocks as _;
use commonware_consensus::marshal::{self, resolver};
use commonware_consensus::simplex;
use commonware_consensus::simplex::config::{Floor as SimplexFloor, ForwardPolicy, SkipBudget, SkipPolicy};
use commonware_consensus::simplex::elector::RoundRobin;
use commonware_consensus::simplex::scheme::ed25519::Scheme;
use commonware_consensus::simplex::types::Finalization;
use commonware_consensus::types::{Epoch, FixedEpocher, Height, Round, TermLength, View, ViewDelta};
use commonware_cryptography::Signer as _;
use commonware_cryptography::certificate::{ConstantProvider, Verifier as _};
use commonware_cryptography::ed25519::{PrivateKey, PublicKey};
use commonware_cryptography::sha256::Digest;
use commonware_p2p::{Blocker, Provider, Receiver, Sender};
use commonware_parallel::Sequential;
use commonware_runtime::buffer::paged::CacheRef;
use commonware_runtime::{Handle as Task, Quota};
use commonware_utils::channel::mpsc;
use commonware_utils::ordered::Set;
use commonware_utils::{NonZeroDuration, TryCollect as _};
use futures::future::{Either, select};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use sealcast_order::consensus::{Settings, SigningSeed, Start, StartError, VIEWS_REMEMBERED};
use sealcast_order::{Application, Block, BlockSize, Fault};
use sealcast_wire::limits;

use super::alpha::{self, Hooks};
use super::codec::{self, EngineBlock};
use super::deliver::Deliver;
use super::forward::Forward;
use super::handle::Handle;
use super::log::{self, Log, Sizes};
use super::peers::{Counts, CutOff, Heard, Tap};
use super::shared::Shared;
use super::watch::{Judge, Schedule, Watch};

/// The links of one broker, one per purpose.
pub struct Links<S, R> {
    pub(super) votes: (S, R),
    pub(super) certificates: (S, R),
    pub(super) resolver: (S, R),
    pub(super) blocks: (S, R),
    pub(super) backfill: (S, R),
    pub(super) batches: (S, R),
}

/// What a broker's tasks reach the others by.
pub struct Network<S, R, M, B> {
    /// Knows who the brokers are.
    pub peers: M,
    /// Cuts off a broker that misbehaves.
    pub blocker: B,
    /// What they are reached by.
    pub links: Links<S, R>,
}

/// How many links that are; channel numbers are 0 to one less.
pub const CHANNELS: u64 = 6;

impl<S, R> Links<S, R> {
    /// Registers each channel with `register`.
    pub fn new(mut channels: impl Iterator<Item = (S, R)>) -> Links<S, R> {
        let mut next = || channels.next().expect("there are as many channels as purposes");
        Links {
            votes: next(),
            certificates: next(),
            resolver: next(),
            blocks: next(),
            backfill: next(),
            batches: next(),
        }
    }
}

impl<S, R> Links<S, R> {
    /// The same links, on which messages are counted.
    fn heard(self, counts: &Counts, judge: &Arc<Mutex<Judge>>) -> Links<S, Heard<R>> {
        let heard = |(sender, receiver), tap| (sender, Heard { counts: counts.clone(), tap, receiver });
        Links {
            votes: heard(self.votes, Some(Tap::Votes(judge.clone()))),
            certificates: heard(self.certificates, Some(Tap::Certificates(judge.clone()))),
            resolver: heard(self.resolver, None),
            blocks: heard(self.blocks, None),
            backfill: heard(self.backfill, None),
            batches: heard(self.batches, None),
        }
    }
}

/// The cluster as the engine sees it: checked settings.
#[derive(Clone)]
pub struct Cluster {
    /// The brokers' keys, in the callers' order.
    pub keys: Vec<PublicKey>,
    pub(super) me: usize,
    pub(super) scheme: Scheme,
    /// Index in the caller's list by index in the sorted one.
    pub(super) indices: Arc<Vec<usize>>,
    floor: Option<Finalization<Scheme, Digest>>,
}

/// The brokers' keys, as callers and as the engine orders them.
pub struct Members {
    pub(super) keys: Vec<PublicKey>,
    /// In the engine's order.
    pub sorted: Set<PublicKey>,
    /// Index in the caller's list by index in the sorted one.
    pub(super) indices: Vec<usize>,
}

impl Members {
    /// The brokers of these keys.
    ///
    /// # Errors
    /// If one is no key, or is named twice.
    pub fn of<'a>(brokers: impl Iterator<Item = &'a [u8; 32]>) -> Result<Members, StartError> {
        let mut keys = Vec::new();
        for (i, broker) in brokers.enumerate() {
            let key = PublicKey::decode_cfg(bytes::Bytes::copy_from_slice(broker), &());
            keys.push(key.map_err(|_| StartError::Key(i))?);
        }
        let sorted: Set<PublicKey> = keys.iter().cloned().try_collect().map_err(|_| StartError::Brokers(keys.len()))?;
        let index = |s| keys.iter().position(|k| k == s).expect("the set was made of these keys");
        let indices = sorted.iter().map(index).collect();
        Ok(Members { keys, sorted, indices })
    }
}

/// The key of a seed, as upstream has it.
pub fn signer(seed: &SigningSeed) -> PrivateKey {
    PrivateKey::decode(Copying(seed.expose())).expect("any 32 bytes are a seed")
}

/// What votes are signed under.
pub fn namespace_of(namespace: &[u8]) -> Vec<u8> {
    [b"sealcast/v1/order/", namespace].concat()
}

impl Cluster {
    /// The cluster of these settings, checked.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn check(settings: &Settings) -> Result<Cluster, StartError> {
        let n = settings.brokers.len();
        let Members { keys, sorted, indices } = Members::of(settings.brokers.iter().map(|it| &it.key))?;
        if !(limits::BROKERS_MIN..=limits::BROKERS_MAX).contains(&n) {
            return Err(StartError::Brokers(n));
        }
        let key = signer(&settings.key);
        let own = key.public_key();
        let me = keys.iter().position(|k| *k == own).ok_or(StartError::NotAMember)?;
        let scheme = Scheme::signer(&namespace_of(&settings.namespace), sorted, key).ok_or(StartError::NotAMember)?;
        settings.check()?;
        let floor = match &settings.start {
            Start::Genesis => None,
            Start::StartCertificate(floor) => {
                let config = scheme.certificate_codec_config();
                let finalization = Finalization::<Scheme, Digest>::decode_cfg(
                    bytes::Bytes::copy_from_slice(&floor.certificate),
                    &config,
                )
                .map_err(|_| StartError::StartCertificate)?;
                // Weights of a batch of one quorum; their seed need not be secret, for the certificate is public
                // and was chosen before it: it is a hash of the certificate.
                let seed =
                    <commonware_cryptography::Sha256 as commonware_cryptography::Hasher>::hash(&[&floor.certificate]).0;
                if !finalization.verify(&mut ChaCha20Rng::from_seed(seed), &scheme, &Sequential)
                    || floor.hash() != Some(finalization.proposal.payload.0)
                {
                    return Err(StartError::StartCertificate);
                }
                Some(finalization)
            }
        };
        Ok(Cluster { keys, me, scheme, indices: Arc::new(indices), floor })
    }

    /// The longest message on any link.
    pub(super) fn message_bytes_max(&self) -> u32 {
        let n = u32::try_from(self.keys.len()).expect("the number of brokers is bounded");
        commonware_p2p::max_message_size(&[
            marshal::max_payload_size::<Standard<EngineBlock>, Scheme>(n, &BlockSize::MAX),
            simplex::max_payload_size::<Scheme, Digest>(n),
            codec::batches_bytes_max(BlockSize::MAX),
        ])
    }
}

/// Messages of one kind that one broker may send another per second; what exceeds it is dropped. Generous: brokers
/// are few and known, and a view takes milliseconds.
pub fn quota() -> Quota {
    Quota::per_second(const { NonZeroU32::new(4096).unwrap() })
}

/// Starts all tasks under `context`. They end with it; the task returned ends when one of them does. `disk` is the
/// beginning of every partition's name, so that brokers can share a simulated disk.
///
/// # Errors
/// If the log is damaged, or the disk does not do its work.
pub async fn start<E, S, R, M, B>(
    context: E,
    disk: &str,
    settings: &Settings,
    cluster: Cluster,
    application: Arc<dyn Application>,
    Network { peers, blocker, links }: Network<S, R, M, B>,
) -> Result<(Handle, Task<()>), Fault>
where
    E: log::Runtime,
    S: Sender<PublicKey = PublicKey>,
    R: Receiver<PublicKey = PublicKey>,
    M: Provider<PublicKey = PublicKey>,
    B: Blocker<PublicKey = PublicKey>,
{
    let me = cluster.keys[cluster.me].clone();
    let scheme = cluster.scheme.clone();
    let shared = Arc::new(Shared::new(application, cluster.keys.len()));
    let brokers = Arc::new(cluster.keys.clone());
    let blocker = CutOff { shared: shared.clone(), brokers: brokers.clone(), blocker };
    let term = TermLength::new(NonZeroU32::new(settings.term).expect("checked at the start"));
    let elector = if settings.term == 1 {
        RoundRobin::default()
    } else {
        RoundRobin::default().with_term(term, settings.leader_timeout * 8, VIEWS_AHEAD)
    };
    let schedule = Schedule::new(elector.clone(), term, &scheme, cluster.indices.clone());
    let mut seed = [0; 32];
    let mut rng = context.child("seed");
    rng.fill_bytes(&mut seed);
    let rng = ChaCha20Rng::from_seed(seed);
    let judge = Arc::new(Mutex::new(Judge::new(shared.clone(), schedule.clone(), scheme.clone(), rng)));
    let links = links.heard(&Counts { shared: shared.clone(), brokers }, &judge);
    let pages = pages();
    let genesis = Block::genesis(&settings.namespace);
    let genesis_hash = Digest(genesis.hash());
    let epochs = FixedEpocher::new(ONE_EPOCH);

    let backfill = resolver::p2p::init(
        context.child("backfill"),
        resolver::p2p::Config {
            public_key: me.clone(),
            peer_provider: peers.clone(),
            blocker: blocker.clone(),
            mailbox_size: MAILBOX,
            fetch_timeout: NonZeroDuration::new_panic(FETCH_TIMEOUT),
            fetch_retry_delay: FETCH_RETRY,
            priority_requests: false,
            priority_responses: false,
        },
        links.backfill,
    );
    let (broadcast, buffer) = buffered::Engine::new(
        context.child("broadcast"),
        buffered::Config {
            public_key: me.clone(),
            mailbox_size: MAILBOX,
            deque_size: BLOCKS_PER_BROKER,
            priority: false,
            codec_config: BlockSize::MAX,
            peer_provider: peers.clone(),
            strategy: Sequential,
        },
    );
    let broadcast = broadcast.start(links.blocks);

    let mut opened = Log::open(context.child("log"), disk, Sizes::default()).await?;
    log::migrate::take_over(&context, disk, &pages, &mut opened, settings.progress).await?;
    let (blocks, finalizations) = log::stores::stores(opened, shared.clone());
    let newest = blocks.last_index().map_or(0, Height::get);
    let init = Actor::init(
        context.child("marshal"),
        finalizations,
        blocks,
        marshal::Config {
            provider: ConstantProvider::new(scheme.clone()),
            epocher: epochs.clone(),
            start: match &cluster.floor {
                None => marshal::Start::Genesis(EngineBlock::from(genesis).digested(genesis_hash.0)),
                Some(finalization) => marshal::Start::Floor(finalization.clone()),
            },
            partition_prefix: format!("{disk}marshal"),
            mailbox_size: MAILBOX,
            view_retention: VIEWS_KEPT,
            prunable_items_per_section: ITEMS_PER_SECTION,
            page_cache: pages.clone(),
            replay_buffer: WRITE_BUFFER,
            key_write_buffer: WRITE_BUFFER,
            value_write_buffer: WRITE_BUFFER,
            block_codec_config: BlockSize::MAX,
            max_repair: REPAIRS,
            max_pending_acks: NonZeroUsize::new(settings.unacknowledged).expect("checked at the start"),
            strategy: Sequential,
        },
    );
    let (marshal, mailbox, floor) = match select(pin!(init), pin!(shared.until_fault())).await {
        Either::Left((init, _)) => init,
        Either::Right((fault, _)) => return Err(fault),
    };

    let processed = floor.processed().map_or(0, |p| p.height().get());
    if processed > newest {
        let what = format!("block {processed} was executed here, and the newest block in it is {newest}");
        return Err(Fault::Damaged { file: format!("{disk}log").into(), what });
    }
    shared.started(processed, schedule.leader(Round::new(Epoch::zero(), View::new(1))));
    let marshal = marshal.start(Deliver { shared: shared.clone() }, buffer, backfill);

    let (submit, submitted) = mpsc::channel(limits::SUBMITTED_BATCHES);
    let forward = Forward {
        shared: shared.clone(),
        size: settings.block,
        brokers: cluster.keys.clone(),
        me: cluster.me,
        again: settings.leader_timeout * 2,
    };
    let batches = links.batches;
    let forward = context.child("forward").spawn(move |context| forward.run(context, submitted, batches));

    let hooks =
        Hooks { shared: shared.clone(), size: settings.block, heartbeat: settings.heartbeat, drift: settings.drift };
    let glue = alpha::glue(context.child("glue"), hooks, mailbox.clone(), epochs);
    let watch = Watch { shared: shared.clone(), schedule, judge, next: glue.clone() };
    let simplex = simplex::Engine::new(
        context.child("simplex"),
        simplex::Config {
            scheme,
            elector,
            blocker,
            automaton: glue.clone(),
            relay: glue,
            reporter: watch,
            // Evidence of two votes in one view must not depend on when the second one comes.
            track_historical_votes: true,
            strategy: Sequential,
            partition: format!("{disk}simplex"),
            mailbox_size: MAILBOX,
            epoch: Epoch::zero(),
            floor: match cluster.floor {
                None => SimplexFloor::Genesis(genesis_hash),
                Some(finalization) => SimplexFloor::Finalized(finalization),
            },
            replay_buffer: WRITE_BUFFER,
            write_buffer: WRITE_BUFFER,
            page_cache: pages,
            leader_timeout: settings.leader_timeout,
            // Beside a leader that dies between proposal and notarization, this is the longest gap.
            certification_timeout: settings.leader_timeout * 3 / 2,
            timeout_retry: settings.leader_timeout * 3,
            view_retention: VIEWS_KEPT,
            skip: SkipPolicy::Enabled { timeout: settings.leader_timeout * 6, budget: SkipBudget::Participants },
            fetch_timeout: NonZeroDuration::new_panic(FETCH_TIMEOUT),
            fetch_retry_delay: FETCH_RETRY,
            forward: ForwardPolicy::SilentLeader,
        },
    );
    let simplex = simplex.start(links.votes, links.certificates, links.resolver);

    let ended = shared.clone();
    let task = context.child("all").spawn(move |_| async move {
        let tasks: Vec<Task<()>> = vec![broadcast, marshal, forward, simplex];
        select(futures::future::select_all(tasks), pin!(ended.until_fault())).await;
        ended.ended();
    });
    Ok((Handle::new(shared, mailbox, submit), task))
}

/// The cache for keys and votes.
pub fn pages() -> CacheRef {
    CacheRef::new(PAGE_BYTES, PAGES)
}

/// The certificate that proves a block final, in upstream's encoding.
pub(super) async fn certificate(mailbox: &Mailbox<Scheme, Standard<EngineBlock>>, height: u64) -> Option<Vec<u8>> {
    mailbox.get_finalization(Height::new(height)).await.map(|f| f.encode().to_vec())
}

/// All heights belong to one epoch: the set of brokers does not change while an engine runs.
const ONE_EPOCH: NonZeroU64 = NonZeroU64::new(1 << 62).unwrap();
/// Blocks that a leader may propose ahead of the last one certified.
const VIEWS_AHEAD: ViewDelta = ViewDelta::new(2);
/// Views behind the last final one whose votes, and whose unfinalised blocks, are kept.
const VIEWS_KEPT: ViewDelta = ViewDelta::new(VIEWS_REMEMBERED);
/// Unfinalised blocks per file of upstream's cache: what pruning removes at once.
pub const ITEMS_PER_SECTION: NonZeroU64 = NonZeroU64::new(256).unwrap();
/// Blocks of one broker kept in memory until they are certified: one that lies fills 128 MB of each other one with them.
const BLOCKS_PER_BROKER: usize = 16;
/// Missing blocks fetched at a time.
const REPAIRS: NonZeroUsize = NonZeroUsize::new(32).unwrap();
/// Messages between two of the engine's tasks.
const MAILBOX: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// A page of the cache for keys and votes, as upstream stores it: 4,096 bytes with its checksum.
const PAGE_BYTES: NonZeroU16 = NonZeroU16::new(4096 - 12).unwrap();
/// 8 MB of such pages.
const PAGES: NonZeroUsize = NonZeroUsize::new(2048).unwrap();
/// Bytes that gather before a write.
pub(super) const WRITE_BUFFER: NonZeroUsize = NonZeroUsize::new(1 << 20).unwrap();
/// A peer that does not answer is given up after this, and another asked.
const FETCH_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before the next try.
const FETCH_RETRY: Duration = Duration::from_millis(50);
