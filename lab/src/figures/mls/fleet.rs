//! Groups of `keys=mls` of any size in virtual time, of which few members run, and a member whose work is measured: through
//! [`Group`](sealcast::group::Group), with its records on a real disk.
//!
//! The others have their certificates and leaves, and their processes have ended: members stay while they are away. The founder
//! admits them in blocks of 64, of which one enters and renews its path; in the block of those who are measured one of each pair
//! does. So no node is blank on or beside the path of a member that commits, and a commit is as short as in a full tree.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use sealcast::io::store::Store;
use sealcast::url::OriginMode;
use sealcast_crypto::identity::{Act, Authority, Identity, MemberSecret, Request, Right, Rights, Verified};
use sealcast_crypto::signature::Algorithm;
use sealcast_delivery::memory::{Ordered, Start};
use sealcast_keys::Command;
use sealcast_keys::mls::certificates::CredentialKind;
use sealcast_keys::mls::{self, Config, Mls};
use sealcast_sim::clock::UTC_AT_ZERO;
use sealcast_sim::dice::Dice;
use sealcast_sim::network::Network;
use sealcast_sim::{Birth, Effect, Node, Observer, Reach, Sim};
use sealcast_wire::{Address, CertHash, EpochId, Guarantee, Monotonic, Now, Utc};

use super::timed::{Timed, Worked, worked};
use crate::Failure;
use crate::member::{Member, MemberCommand, MemberEvent, keys_records};
use crate::mocks::fixture::orderer;
use crate::scenarios::fixture::Player;

/// The group, its orderer, and the network between them.
pub(super) struct Fleet {
    sim: Sim<Player>,
    seen: Seen,
    identities: Vec<Arc<Identity>>,
    credentials: CredentialKind,
    dice: Dice,
}

/// What members told, and what they sent.
#[derive(Default)]
struct Seen {
    views: BTreeMap<usize, (EpochId, usize)>,
    sent: BTreeMap<usize, u64>,
    excluded: Option<String>,
}

impl Observer<Player> for Seen {
    fn sent(&mut self, _: Monotonic, from: usize, _: Reach, datagram: &[u8]) {
        *self.sent.entry(from).or_default() += datagram.len() as u64;
    }

    fn told(&mut self, _: Monotonic, node: usize, told: MemberEvent) {
        match told {
            MemberEvent::Installed(epoch) => {
                _ = self.views.insert(node, (epoch.view.epoch, epoch.view.members.len()));
            }
            MemberEvent::Excluded(why) => self.excluded = Some(format!("member {node} is out: {why:?}")),
            _ => {}
        }
    }
}

impl Fleet {
    /// A group of so many members, of which the founder runs, and a second one; and devices that are in no group yet.
    ///
    /// # Errors
    /// Something takes too long.
    pub(super) fn new(
        members: usize,
        devices: usize,
        credentials: CredentialKind,
        mut tick: impl FnMut(),
    ) -> Result<Fleet, Failure> {
        let identities = identities(members + devices)?;
        let mut sim = Sim::new(SEED, Network::quiet());
        for _ in 0..=identities.len() {
            sim.add(true);
        }
        let mut fleet = Fleet { sim, seen: Seen::default(), identities, credentials, dice: Dice::new(SEED, 7) };
        let at = fleet.identities.len();
        fleet.sim.start(at, orderer(), &mut fleet.seen);
        fleet.start(FOUNDER, true);
        fleet.until("the founder is in", |seen| seen.views.contains_key(&FOUNDER))?;
        fleet.start(SECOND, true);
        fleet.together(2)?;
        // Those who commit lie in the first block: it is let in pair by pair, so that none of its nodes is blank.
        let mut next = SECOND + 1;
        while next < members {
            let count = if next < BLOCK { 2 } else { BLOCK };
            fleet.let_in(next..members.min(next + count))?;
            next += count;
            tick();
        }
        Ok(fleet)
    }

    /// The founder admits devices, of which the first one then enters and renews its path.
    fn let_in(&mut self, devices: Range<usize>) -> Result<(), Failure> {
        let first = devices.start;
        devices.clone().for_each(|device| self.start(device, false));
        self.run(PACKAGES_COME);
        devices.clone().skip(1).for_each(|device| self.sim.crash(device));
        let members = self.members() + devices.len();
        devices.rev().for_each(|device| self.admit(device));
        self.together(members)?;
        self.until("a device is in", |seen| seen.views.get(&first) == seen.views.get(&FOUNDER))?;
        self.rotate(first)?;
        self.end(first);
        Ok(())
    }

    /// How many are in, as the founder sees it.
    pub(super) fn members(&self) -> usize {
        self.seen.views.get(&FOUNDER).map_or(0, |(_, members)| *members)
    }

    /// How many bytes a member sent so far.
    pub(super) fn sent(&self, member: usize) -> u64 {
        self.seen.sent.get(&member).copied().unwrap_or(0)
    }

    /// A process of a member, with what its simulated disk holds.
    pub(super) fn start(&mut self, member: usize, joins: bool) {
        let make = self.make(member, joins);
        let birth: Birth<Player> = Box::new(move |now, records| {
            let records: Vec<Record> = keys_records(records).into_iter().collect();
            Box::new(make(now, &records))
        });
        self.sim.start(member, birth, &mut self.seen);
    }

    /// The process ends at once.
    pub(super) fn end(&mut self, member: usize) {
        self.sim.crash(member);
        self.seen.views.remove(&member);
    }

    /// The same with its records in a file, which begins with what its simulated disk holds; what it spends is told there.
    pub(super) fn start_measured(&mut self, member: usize, joins: bool, file: &Path, spent: &SpentCell) {
        let (make, file, spent) = (self.make(member, joins), file.to_owned(), spent.clone());
        let birth: Birth<Player> = Box::new(move |now, records| {
            Box::new(Measured::new(now, &file, &spent, &|store| {
                if store.records()?.is_empty() {
                    keys_records(records).iter().try_for_each(|(id, record)| store.put(id << 1, record))?;
                    store.sync()?;
                }
                let records: Vec<Record> = store.records()?.into_iter().map(|(id, record)| (id >> 1, record)).collect();
                Ok(make(now, &records))
            }))
        });
        self.sim.start(member, birth, &mut self.seen);
    }

    /// Makes members that nobody runs of what a member's simulated disk holds.
    pub(super) fn copies(&mut self, member: usize) -> impl Fn() -> MlsMember + use<> {
        let make = self.make(member, true);
        let records: Vec<Record> = keys_records(self.sim.records(member)).into_iter().collect();
        let now = self.sim.local(member);
        move || make(now, &records)
    }

    fn make(&mut self, member: usize, joins: bool) -> impl Fn(Now, &[Record]) -> MlsMember + use<> {
        let config = Config {
            founds: member == FOUNDER,
            joins,
            credentials: self.credentials,
            ..Config::new(GROUP, self.identities[member].clone())
        };
        let (seed, orderer) = (self.dice.seed(), Address::Node(self.identities.len() as u32));
        move |now, records| {
            let start = mls::position(records).map_or(Start::Head, Start::At);
            let keys = Mls::restore(config.clone(), seed, now, records).expect("its certificate is good");
            Member::new(now, keys, Ordered::new(orderer, start), OriginMode::Auto)
        }
    }

    /// The founder admits a device.
    pub(super) fn admit(&mut self, device: usize) {
        let cert = self.cert(device);
        self.command(FOUNDER, MemberCommand::Command(Command::Admit { cert }));
    }

    /// A member changes the key, which all who run follow.
    ///
    /// # Errors
    /// It takes too long.
    pub(super) fn rotate(&mut self, by: usize) -> Result<(), Failure> {
        let before = self.seen.views.get(&by).copied();
        self.command(by, MemberCommand::Command(Command::Rotate));
        self.until("a new key", |seen| {
            let now = seen.views.get(&by).copied();
            now != before && seen.views.values().all(|view| Some(*view) == now)
        })
    }

    /// A member publishes a message.
    pub(super) fn publish(&mut self, by: usize) {
        let publish =
            MemberCommand::Publish { topic: "load".into(), body: vec![0; 100], guarantee: Guarantee::BestEffort };
        self.command(by, publish);
    }

    /// Waits until all who run are in one view of so many members.
    ///
    /// # Errors
    /// It takes too long.
    pub(super) fn together(&mut self, members: usize) -> Result<(), Failure> {
        self.until("all are together", |seen| {
            let first = seen.views.get(&FOUNDER);
            first.is_some_and(|(_, count)| *count == members) && seen.views.values().all(|view| Some(view) == first)
        })
    }

    /// Waits until a member is in the founder's view.
    ///
    /// # Errors
    /// It takes too long.
    pub(super) fn caught_up(&mut self, member: usize) -> Result<(), Failure> {
        self.until("a member has caught up", |seen| seen.views.get(&member) == seen.views.get(&FOUNDER))
    }

    /// Lets so much time pass.
    pub(super) fn run(&mut self, time: Duration) {
        let until = self.sim.now() + time;
        self.sim.run_until(until, &mut self.seen);
    }

    fn until(&mut self, what: &str, holds: impl Fn(&Seen) -> bool) -> Result<(), Failure> {
        let until = self.sim.now() + TIMEOUT;
        while !holds(&self.seen) {
            if let Some(why) = &self.seen.excluded {
                return Err(why.clone().into());
            }
            if !self.sim.step(until, &mut self.seen) {
                return Err(format!("{what}: not within {TIMEOUT:?} of virtual time").into());
            }
        }
        Ok(())
    }

    fn command(&mut self, member: usize, command: MemberCommand) {
        self.sim.command(member, command, &mut self.seen);
    }

    fn cert(&self, member: usize) -> CertHash {
        let it = self.identities[member].certificate();
        match self.credentials {
            CredentialKind::X509 => it.hash,
            CredentialKind::Basic => Verified::claimed(&it.name, it.key.clone(), Rights::none()).expect("a name").hash,
        }
    }
}

/// What a measured member spent.
#[derive(Clone, Debug, Default)]
pub(super) struct Spent {
    /// In all that it did: its session's core, its records, the disk.
    pub(super) all: Duration,
    /// Of that, in waiting for the disk.
    pub(super) disk: Duration,
    /// Of that, in its engine.
    pub(super) engine: Duration,
    /// Of that, in processing commits.
    pub(super) processing: Duration,
    /// Of all, in one epoch after the other.
    pub(super) epochs: Vec<Duration>,
    since: Duration,
}

/// Where a measured member tells what it spends.
#[derive(Clone, Default)]
pub(super) struct SpentCell(Arc<Mutex<Spent>>);

impl SpentCell {
    /// What was spent since the last call.
    pub(super) fn take(&self) -> Spent {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Spent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A member with its records in a file, which takes datagrams that come together in one go, as a session does.
struct Measured {
    member: MlsMember,
    store: Store,
    /// When what came is dealt with.
    due: Option<Monotonic>,
    spent: SpentCell,
    effects: VecDeque<Effect<MemberEvent>>,
}

/// A member with the engine that is watched.
pub(super) type MlsMember = Member<Mls<Timed>, Ordered>;
type Made = Result<MlsMember, Failure>;
type Record = (u64, Vec<u8>);

impl Measured {
    fn new(now: Now, file: &Path, spent: &SpentCell, make: &dyn Fn(&mut Store) -> Made) -> Measured {
        let (begun, before) = (Instant::now(), worked());
        let mut store = Store::open(file).expect("the lab's own folder");
        let member = make(&mut store).expect("the lab's own folder");
        let (spent, effects) = (spent.clone(), VecDeque::new());
        let mut measured = Measured { member, store, due: None, spent, effects };
        measured.perform(now, begun, before);
        measured
    }

    /// Does what the member wants: what it stores is durable before what follows from it leaves (G6).
    fn perform(&mut self, now: Now, begun: Instant, before: Worked) {
        let mut enters = false;
        loop {
            let mut stores = false;
            while let Some(effect) = self.member.poll() {
                match effect {
                    Effect::Store { id, record } => {
                        self.put(id, &record);
                        stores = true;
                    }
                    effect => {
                        enters |= matches!(effect, Effect::Tell(MemberEvent::Installed(_)));
                        self.effects.push_back(effect);
                    }
                }
            }
            if !stores {
                break;
            }
            let waited = Instant::now();
            self.store.sync().expect("the disk takes it");
            self.spent.lock().disk += waited.elapsed();
            self.member.stored(now);
        }
        self.spend(begun, before);
        let mut spent = self.spent.lock();
        if enters {
            let epoch = spent.all - spent.since;
            spent.since = spent.all;
            spent.epochs.push(epoch);
        }
    }

    fn spend(&self, begun: Instant, before: Worked) {
        let (after, mut spent) = (worked(), self.spent.lock());
        spent.all += begun.elapsed();
        spent.engine += after.all - before.all;
        spent.processing += after.processing - before.processing;
    }

    fn put(&mut self, id: u64, record: &[u8]) {
        let waited = Instant::now();
        // A session's even ids are its key scheme's.
        self.store.put(id << 1, record).expect("the disk takes it");
        self.spent.lock().disk += waited.elapsed();
    }
}

impl Node for Measured {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        let (begun, before) = (Instant::now(), worked());
        self.member.handle(now, from, datagram);
        self.spend(begun, before);
        self.due.get_or_insert(now.monotonic + TOGETHER);
    }

    fn command(&mut self, now: Now, command: MemberCommand) {
        let (begun, before) = (Instant::now(), worked());
        self.member.command(now, command);
        self.perform(now, begun, before);
    }

    fn timeout(&self) -> Option<Monotonic> {
        [self.member.timeout(), self.due].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Now) {
        let (begun, before) = (Instant::now(), worked());
        self.due = None;
        self.member.handle_timeout(now);
        self.perform(now, begun, before);
    }

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        self.effects.pop_front()
    }
}

/// Identities of one authority, made as `sealcast ca` makes them.
fn identities(count: usize) -> Result<Vec<Arc<Identity>>, Failure> {
    let mut rng = ChaCha20Rng::seed_from_u64(SEED);
    let issued = Utc(UTC_AT_ZERO - 30 * 86_400);
    let mut authority = Authority::create("lab CA", Algorithm::P256, issued, &mut rng)?;
    let mut identities = Vec::new();
    for member in 0..count {
        let secret = MemberSecret::generate(Algorithm::Ed25519, &mut rng);
        let mut rights = Rights::none();
        rights.grant(Right::new(GROUP, Act::Both, "#")?);
        let request = Request { name: format!("robot{member}"), keys: secret.public(), rights, attributes: Vec::new() };
        let certificate = authority.issue(&request, issued, 365 * 86_400)?;
        let identity = Identity::new(&certificate, &secret, authority.anchor().clone())?;
        identities.push(Arc::new(identity.with_bootstrap_key(GROUP, authority.bootstrap_key(GROUP))));
    }
    Ok(identities)
}

/// Who founds the group, and runs all the time.
pub(super) const FOUNDER: usize = 0;
/// Who is measured.
pub(super) const SECOND: usize = 1;
const GROUP: &str = "lab";
const SEED: u64 = 2026;
/// Devices that are admitted together.
const BLOCK: usize = 64;
/// Until the orderer keeps their key packages.
const PACKAGES_COME: Duration = Duration::from_millis(100);
/// What comes within so long of virtual time comes together.
const TOGETHER: Duration = Duration::from_millis(1);
/// Of virtual time.
const TIMEOUT: Duration = Duration::from_secs(60);
