//! Keys from a centre over both multicasts: the fixture of these stories, and the centre as a node.
//!
//! The centre's node follows the members'. All sides of a partition hear it; a story that wants it away crashes it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, LazyLock};

use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;
use sealcast::url::OriginMode;
use sealcast_crypto::aead::Suite;
use sealcast_crypto::identity::registration::{bootstrap_secret, realm};
use sealcast_crypto::identity::{Act, Principal, Registration, Right};
use sealcast_crypto::leighton_micali::Master;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_delivery::Delivery;
use sealcast_delivery::multicast::{self, Multicast};
use sealcast_delivery::sequencer::Sequencer;
use sealcast_keys::center::kdc::{Kdc, Registry};
use sealcast_keys::center::misbehaving::Rule;
use sealcast_keys::center::{Center, Config};
use sealcast_sim::clock::UTC_AT_ZERO;
use sealcast_sim::{Birth, Effect, Node, Reach, Records};
use sealcast_wire::{Address, CertHash, Guarantee, Monotonic, Now, Utc, limits};

use super::fifo;
use super::fixture::{Fixture, Player, TOPIC};
use crate::member::{Member, MemberCommand, MemberEvent};
use crate::misbehaviour::{self, Misbehaviour, OrderingRobot, as_open, open_message};

/// Robots whose keys come from a centre.
#[derive(Clone, Copy)]
pub struct CenterRobots {
    /// How many members there are; the centre's node is the next one.
    members: usize,
    /// Who may lead.
    leads: fn(usize) -> bool,
    /// A planted fault: the centre has registered all with that right.
    all_registered: bool,
    /// Rules that all who behave leave out: a planted fault.
    without: &'static [Rule],
    /// By which topics they publish; more than one need the reliable multicast.
    channels: &'static [(&'static str, Guarantee)],
    /// Whether nobody who stays may lack an ordered message.
    complete: bool,
    /// Whether a member that holds all up is left out.
    expels: bool,
    /// What seals payloads.
    suite: Suite,
}

impl CenterRobots {
    /// So many that publish best effort; those of even numbers may lead.
    pub fn new(members: usize) -> CenterRobots {
        let channels = &[(TOPIC, Guarantee::BestEffort)];
        let leads: fn(usize) -> bool = |member| member.is_multiple_of(2);
        let (complete, suite) = (true, Suite::default());
        CenterRobots { members, leads, all_registered: false, without: &[], channels, complete, expels: false, suite }
    }

    /// The same; they publish fifo, too.
    pub fn reliable(self) -> CenterRobots {
        CenterRobots { channels: fifo::BOTH, ..self }
    }

    /// The same; they publish ordered, too, and everything of that comes to all who stay, if it is `complete`.
    pub fn ordering(self, complete: bool) -> CenterRobots {
        CenterRobots { channels: fifo::ALL, complete, ..self }
    }

    /// The same, where a member that holds all up is left out, and has a gap then.
    pub fn expelling(self) -> CenterRobots {
        CenterRobots { expels: true, ..self.ordering(false) }
    }

    /// The same, whose payloads this seals.
    pub fn sealing_by(self, suite: Suite) -> CenterRobots {
        CenterRobots { suite, ..self }
    }

    /// The same, of whom all may lead.
    pub fn of_leaders(self) -> CenterRobots {
        CenterRobots { leads: |_| true, ..self }
    }

    /// The same, of whom three may lead.
    pub fn of_few_leaders(self) -> CenterRobots {
        CenterRobots { leads: |member| member < 3, ..self }
    }

    /// The same, where the centre registers all with the right to lead: a planted fault.
    pub fn all_registered(self) -> CenterRobots {
        CenterRobots { all_registered: true, ..self }
    }

    /// The same, of whom nobody who behaves keeps these rules: a planted fault.
    pub fn lacking(self, without: &'static [Rule]) -> CenterRobots {
        CenterRobots { without, ..self }
    }

    fn orders(&self) -> bool {
        self.channels.len() > 1
    }

    fn principal(&self, member: usize) -> Arc<Principal> {
        principal(member, self.all_registered || (self.leads)(member))
    }

    /// The keys of a member, which leaves these rules out.
    fn keys(&self, member: usize, seed: [u8; 32], now: Now, without: &'static [Rule]) -> Center {
        let usual = Config::new(GROUP, self.principal(member), vec![Address::Node(self.members as u32)]);
        let config = Config { without, reliable: self.orders(), suite: self.suite, ..usual };
        Center::new(config, seed, now).expect("all are registered in the group")
    }

    /// Its channels, where they order.
    fn sequencer(&self) -> Sequencer {
        let mut delivery = Sequencer::new(multicast::Config::default(), limits::RELIABLE_BACKLOG_BYTES);
        if self.expels {
            delivery.expel_slow(fifo::EXPELLED_AFTER);
        }
        delivery
    }

    /// A process of a member, which leaves these rules out.
    fn robot(&self, member: usize, seed: [u8; 32], now: Now, without: &'static [Rule]) -> CenterRobot {
        let delivery: Box<dyn Delivery> = match self.orders() {
            true => Box::new(self.sequencer()),
            false => Box::new(Multicast::new(multicast::Config::default())),
        };
        Member::new(now, self.keys(member, seed, now, without), delivery, OriginMode::Auto)
    }

    /// One that lies about the order.
    fn ordering_robot(&self, member: usize, seed: [u8; 32], now: Now) -> OrderingRobot<Center> {
        Member::new(now, self.keys(member, seed, now, &[]), self.sequencer(), OriginMode::Auto)
    }
}

/// A member as these stories run it.
pub type CenterRobot = Member<Center, Box<dyn Delivery>>;

impl Fixture for CenterRobots {
    fn cert(&self, member: usize) -> CertHash {
        self.principal(member).registration.hash()
    }

    fn member(&self, member: usize, _life: u32, seed: [u8; 32]) -> Birth<Player> {
        let robots = *self;
        Box::new(move |now, _| Box::new(robots.robot(member, seed, now, robots.without)))
    }

    fn helpers(&self) -> Vec<(bool, Birth<Player>)> {
        vec![(false, Box::new(|_, records| Box::new(KdcNode::new(records))))]
    }

    fn shares_helpers(&self) -> bool {
        true
    }

    fn actor(&self, kind: Misbehaviour, seed: [u8; 32]) -> Option<Birth<Player>> {
        Some(misbehaviour::outsider(kind, seed))
    }

    fn imposter(&self, member: usize, kind: Misbehaviour, seed: [u8; 32]) -> Option<Birth<Player>> {
        let robots = *self;
        if let Misbehaviour::Orders(_) = kind {
            return misbehaviour::ordering(kind, Box::new(move |now| robots.ordering_robot(member, seed, now)));
        }
        let certs = (0..self.members).map(|it| self.cert(it)).collect();
        misbehaviour::centered(member, kind, Box::new(move |now| robots.robot(member, seed, now, &[])), certs)
    }

    fn may_lead(&self, member: usize) -> bool {
        (self.leads)(member)
    }

    fn apart(&self) -> Option<Box<dyn Fixture>> {
        Some(Box::new(*self))
    }

    fn channels(&self) -> &'static [(&'static str, Guarantee)] {
        self.channels
    }

    fn delivers_ordered(&self) -> bool {
        self.orders() && self.complete
    }

    fn orders_in_views(&self) -> bool {
        self.orders()
    }

    fn secrets(&self) -> Vec<Vec<u8>> {
        let topics = self.channels.iter().map(|(topic, _)| topic.as_bytes().to_vec());
        topics.chain([PATTERN.into(), b"wall-e".to_vec()]).collect()
    }
}

/// The centre as a node: it hears only what is sent to it alone, and answers whoever asked.
pub struct KdcNode {
    kdc: Kdc<Book>,
    stored: u64,
    effects: VecDeque<Effect<MemberEvent>>,
}

impl KdcNode {
    /// The centre's secret.
    pub fn secret() -> Secret<32> {
        SECRET.clone()
    }

    /// With the revocations that its disk holds.
    pub fn new(records: &Records) -> KdcNode {
        let revoked = records.values().filter_map(|it| Some(CertHash(it.as_slice().try_into().ok()?))).collect();
        let book = Book { revoked };
        let stored = book.number();
        let seed = [stored as u8; 32];
        KdcNode { kdc: Kdc::new(&SECRET, book, seed, Utc(UTC_AT_ZERO)), stored, effects: VecDeque::new() }
    }
}

impl Node for KdcNode {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        let (Some(question), Address::Node(node)) = (open_message(datagram), from) else { return };
        let Ok(answer) = self.kdc.answer(now, question) else { return };
        for (number, whom) in self.kdc.registry().revoked_since(self.stored, usize::MAX) {
            self.effects.push_back(Effect::Store { id: number, record: whom.0.to_vec() });
            self.stored = number;
        }
        self.effects.push_back(Effect::Send { to: Reach::One(node as usize), datagram: as_open(&answer) });
    }

    fn command(&mut self, _now: Now, _command: MemberCommand) {}

    fn timeout(&self) -> Option<Monotonic> {
        None
    }

    fn handle_timeout(&mut self, _now: Now) {}

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        self.effects.pop_front()
    }
}

/// All registrations, by their names.
static REGISTERED: LazyLock<BTreeMap<CertHash, Arc<Registration>>> = LazyLock::new(|| {
    let all = PRINCIPALS.values().map(|it| Arc::new(it.registration.clone()));
    all.map(|it| (it.hash(), it)).collect()
});

/// All registrations, and who is revoked, oldest first.
#[derive(Default)]
pub struct Book {
    revoked: Vec<CertHash>,
}

impl Registry for Book {
    fn find(&self, principal: &CertHash) -> Option<(Arc<Registration>, bool)> {
        Some((REGISTERED.get(principal)?.clone(), self.revoked.contains(principal)))
    }

    fn number(&self) -> u64 {
        self.revoked.len() as u64
    }

    fn revoked_since(&self, number: u64, most: usize) -> Vec<(u64, CertHash)> {
        (1..).zip(&self.revoked).skip(number as usize).take(most).map(|(n, it)| (n, *it)).collect()
    }

    fn revoke(&mut self, principal: &CertHash, _by: &str, _reason: &str) -> Option<u64> {
        if !self.revoked.contains(principal) {
            self.revoked.push(*principal);
        }
        self.revoked.iter().position(|it| it == principal).map(|at| at as u64 + 1)
    }

    fn is_stale(&self, _now: Now) -> bool {
        false
    }
}

/// A robot's keys, registered with the right to lead and evict, or without.
fn principal(member: usize, leads: bool) -> Arc<Principal> {
    PRINCIPALS[&(member, leads)].clone()
}

/// All made at once and in order, so that every run has the same ones.
static PRINCIPALS: LazyLock<BTreeMap<(usize, bool), Arc<Principal>>> = LazyLock::new(|| {
    let mut rng = ChaCha8Rng::seed_from_u64(2026);
    let master = Master::new(&SECRET);
    let mut principals = BTreeMap::new();
    for (serial, key) in
        (1..).zip((0..limits::ORDERED_MEMBERS_MAX).flat_map(|member| [(member, true), (member, false)]))
    {
        let (member, leads) = key;
        let signing = Secret::random(&mut rng);
        let acts = [(Act::Both, "#"), (Act::Both, PATTERN), (Act::Lead, "#"), (Act::Evict, "#")];
        let rights = acts.into_iter().filter(|(act, _)| leads || *act == Act::Both);
        let registration = Registration {
            realm: realm(&SECRET),
            serial,
            name: format!("wall-e {member}").into(),
            key: OriginKey::from_seed(&signing).public().clone(),
            exchange: None,
            not_before: UTC_AT_ZERO - 30 * 86_400,
            not_after: UTC_AT_ZERO + 365 * 86_400,
            rights: rights.map(|(act, it)| Right::new(GROUP, act, it).expect("it is well formed")).collect(),
        };
        let long_term = master.long_term(&registration.hash().0);
        let bootstrap = vec![(GROUP.to_owned(), bootstrap_secret(&SECRET, GROUP))];
        principals.insert(key, Arc::new(Principal { registration, long_term, signing, bootstrap }));
    }
    principals
});

/// The centre's.
static SECRET: LazyLock<Secret<32>> = LazyLock::new(|| Secret::from_bytes([42; 32]));
const GROUP: &str = "lagoon";
/// A pattern in every registration, which must never be seen on the wire.
const PATTERN: &str = "zanzibar/#";
