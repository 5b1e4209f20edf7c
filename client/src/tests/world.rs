//! Brokers behind one idealised order, clients, and a network that delays and loses channels.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use sealcast_broker::access::Access;
use sealcast_broker::genesis::{Genesis, Issuer};
use sealcast_broker::operation::{
    Action, Admin, Batch, Body, Checked, Claim, Client, Execute, Header, Operation, Publication, Registration, check,
};
use sealcast_broker::protocol::Reply;
use sealcast_broker::state::{Memory, State};
use sealcast_crypto::ed25519::Key;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{Algorithm, OriginKey, SigningKey};
use sealcast_delivery::Token;
use sealcast_sim::agenda::Agenda;
use sealcast_sim::channels::{Channels, Direction};
use sealcast_wire::{Monotonic, Now, Utc};

use super::super::{Config, Delivered, OperationOutcome, Output, Quorum};
use super::broker::{Behaviour, Broker};

pub(super) const START: Utc = Utc(1_795_132_800);

/// What a client was told.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) delivered: Vec<Delivered>,
    pub(super) skipped: u64,
    pub(super) outcomes: BTreeMap<Token, OperationOutcome>,
    pub(super) subscribed: BTreeMap<Token, u64>,
    pub(super) record: Option<Vec<u8>>,
    pub(super) others: Vec<Output>,
}

/// One client with its channels.
pub(super) struct Member {
    pub(super) quorum: Quorum,
    pub(super) told: Seen,
    config: Config,
    pub(super) id: Client,
}

enum Event {
    ToBroker { member: usize, broker: u16, request: Arc<[u8]>, channel: u32 },
    ToMember { member: usize, broker: u16, reply: Vec<u8>, channel: u32 },
    Block,
    Execute { broker: u16 },
    Connect { member: usize, broker: u16 },
    Cut { member: usize, broker: u16 },
}

pub(super) struct World {
    pub(super) brokers: Vec<Broker>,
    pub(super) members: Vec<Member>,
    pub(super) genesis: Genesis,
    issuer: SigningKey,
    administrator: OriginKey,
    rng: ChaCha8Rng,
    now: u64,
    queue: Agenda<Event>,
    /// Of members, to brokers.
    channels: Channels,
    pool: Vec<Batch>,
    known: BTreeSet<Vec<u8>>,
    /// Blocks that are ordered.
    chain: Vec<(Utc, Arc<Vec<Checked>>)>,
    pub(super) delay_max: u64,
    /// Whether blocks hold batches in any order.
    pub(super) shuffles: bool,
    /// Of 1,000 messages, at so many the channel breaks.
    pub(super) breaks: u32,
    pub(super) clock_error: i64,
    /// Brokers whose state stands still, until a test takes them out of here.
    pub(super) held: BTreeSet<u16>,
    /// Brokers whose replies do not come, likewise.
    pub(super) unheard: BTreeSet<u16>,
}

fn key(seed: u8) -> OriginKey {
    OriginKey::from_seed(&Secret::from_bytes([seed; 32]))
}

pub(super) fn header(topic: &str) -> Header {
    match topic.split_once('=') {
        Some((topic, value)) => Header { topic: topic.into(), value: Some(value.into()) },
        None => Header { topic: topic.into(), value: None },
    }
}

pub(super) fn publication(topics: &[&str], body: &[u8]) -> Publication {
    Publication {
        headers: topics.iter().map(|it| header(it)).collect(),
        associated: Vec::new(),
        access: None,
        execute: Execute::Nothing,
        policy: 0,
        epoch: 0,
        body: Body::Plain(body.to_vec()),
    }
}

pub(super) fn only(access: &str, publication: Publication) -> Publication {
    Publication { access: Some(access.parse::<Access>().expect("a condition")), ..publication }
}

impl World {
    /// Four brokers, of which the last in order behaves so, or seven with two such.
    pub(super) fn new(seed: u64, faulty: usize, behaviour: Behaviour) -> World {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let issuer = SigningKey::from_seed(Algorithm::Ed25519, &Secret::from_bytes([2; 32])).expect("a key");
        let administrator = key(250);
        let count = 3 * faulty + 1;
        let mut keys: Vec<OriginKey> = (0..count).map(|i| key(100 + i as u8)).collect();
        keys.sort_by_key(OriginKey::public_bytes);
        let genesis = Genesis {
            name: "test".into(),
            brokers: keys.iter().map(OriginKey::public_bytes).collect(),
            quorum: 1,
            administrators: vec![Key::new(&administrator.public_bytes()).expect("a key")],
            issuers: BTreeMap::from([("exchange".to_owned(), Issuer::Key(issuer.public().clone()))]),
        };
        let mut liars = BTreeSet::new();
        while liars.len() < faulty {
            liars.insert(rng.next_u32() as usize % count);
        }
        let brokers = keys.into_iter().enumerate().map(|(i, key)| {
            let state = State::open(genesis.clone(), Memory::default()).expect("memory does not fail");
            let behaviour = if liars.contains(&i) { behaviour } else { Behaviour::Honest };
            Broker::new(i as u16, behaviour, key, state)
        });
        let mut world = World {
            brokers: brokers.collect(),
            members: Vec::new(),
            genesis,
            issuer,
            administrator,
            rng,
            now: 1_000_000,
            queue: Agenda::default(),
            channels: Channels::default(),
            pool: Vec::new(),
            known: BTreeSet::new(),
            chain: Vec::new(),
            delay_max: 5_000,
            shuffles: false,
            breaks: 0,
            clock_error: 0,
            held: BTreeSet::new(),
            unheard: BTreeSet::new(),
        };
        world.push(10_000, Event::Block);
        world
    }

    /// A client with these attributes at the exchange.
    pub(super) fn join(&mut self, seed: u8, attributes: &[(&str, &str)]) -> usize {
        let registration = self.registration(seed, attributes);
        self.join_by(seed, vec![registration])
    }

    /// The exchange's word on a client.
    pub(super) fn registration(&self, seed: u8, attributes: &[(&str, &str)]) -> Registration {
        self.word(seed, seed, attributes)
    }

    /// One of its words.
    pub(super) fn word(&self, seed: u8, serial: u8, attributes: &[(&str, &str)]) -> Registration {
        let validity = (Utc(0), Utc(START.0 + 1_000_000));
        let claim = Claim::sign("exchange", &[serial], validity, attributes, key(seed).public(), &self.issuer);
        Registration { intent: false, proof: claim.into() }
    }

    /// A client with these words.
    pub(super) fn join_by(&mut self, seed: u8, registrations: Vec<Registration>) -> usize {
        let key = Arc::new(key(seed));
        let config = Config { genesis: self.genesis.clone(), key, registrations, batch_operations: 8 };
        self.enter(config, None)
    }

    fn enter(&mut self, config: Config, member: Option<usize>) -> usize {
        let id = Client(config.key.public_bytes());
        let record = member.and_then(|it| self.members[it].told.record.clone());
        let quorum = match record {
            Some(record) => Quorum::restore(config.clone(), &record).expect("it is our record"),
            None => Quorum::new(config.clone()),
        };
        let at = member.unwrap_or(self.members.len());
        match member {
            Some(member) => {
                let it = &mut self.members[member];
                it.quorum = quorum;
            }
            None => {
                let told = Seen::default();
                self.members.push(Member { quorum, told, config, id });
            }
        }
        for broker in 0..self.brokers.len() as u16 {
            let wait = 1 + self.random(self.delay_max);
            self.push(wait, Event::Connect { member: at, broker });
        }
        at
    }

    /// The client's program dies, and starts again with what it stored.
    pub(super) fn restart(&mut self, member: usize) {
        for broker in 0..self.brokers.len() as u16 {
            self.channels.cut((member, usize::from(broker)));
        }
        let config = self.members[member].config.clone();
        self.enter(config, Some(member));
    }

    pub(super) fn now(&self) -> Now {
        let utc = Utc(START.0 + (self.now / 1_000_000) as i64 + self.clock_error);
        Now { monotonic: Monotonic(self.now), utc: Some(utc) }
    }

    pub(super) fn random(&mut self, below: u64) -> u64 {
        self.rng.next_u64() % below.max(1)
    }

    fn push(&mut self, wait: u64, event: Event) {
        self.queue.push(Monotonic(self.now + wait), event);
    }

    /// A message on its way, behind those before it.
    fn carry(&mut self, direction: Direction, member: usize, broker: u16, event: Event) {
        let delay = 50 + self.random(self.delay_max);
        let at = self.channels.arrives(direction, (member, usize::from(broker)), Monotonic(self.now + delay));
        self.queue.push(at, event);
        if self.breaks > 0 && self.random(1000) < u64::from(self.breaks) {
            let wait = self.random(2 * self.delay_max);
            self.push(wait, Event::Cut { member, broker });
        }
    }

    /// Administrators change the policy at once.
    pub(super) fn set_policy(&mut self, number: u64, text: &str) {
        let mut admin = Admin::new(number, Action::Policy(text.parse().expect("a policy")));
        let cluster = self.genesis.cluster();
        assert!(admin.sign(&self.genesis, &cluster, &self.administrator));
        self.pool.push(Batch::sign(&cluster, &key(249), number, vec![Operation::Administer(admin)]));
    }

    /// Cuts all channels of a member for a while.
    pub(super) fn cut_off(&mut self, member: usize) {
        for broker in 0..self.brokers.len() as u16 {
            self.push(0, Event::Cut { member, broker });
        }
    }

    /// Lets so much time pass.
    pub(super) fn run(&mut self, micros: u64) {
        let until = self.now + micros;
        loop {
            (0..self.members.len()).for_each(|it| self.drain(it));
            let timer = self.members.iter().enumerate().filter_map(|(i, it)| Some((it.quorum.timeout()?.0, i))).min();
            let event = self.queue.first().map(|at| at.0);
            let next = timer.map(|(at, _)| at).into_iter().chain(event).min().unwrap_or(until).max(self.now);
            if next > until {
                self.now = until;
                return;
            }
            self.now = next;
            match timer.filter(|(at, _)| *at <= next && event.is_none_or(|event| *at <= event)) {
                Some((_, member)) => {
                    let now = self.now();
                    self.members[member].quorum.handle_timeout(now);
                    let after = self.members[member].quorum.timeout();
                    assert!(after.is_none_or(|at| at.0 > self.now) || self.drains(member), "a timer that does nothing");
                }
                None => {
                    let Some((_, event)) = self.queue.pop(Monotonic(self.now)) else { continue };
                    self.happen(event);
                }
            }
        }
    }

    fn drains(&mut self, member: usize) -> bool {
        self.drain(member);
        self.members[member].quorum.timeout().is_none_or(|at| at.0 > self.now)
    }

    /// Lets time pass until this holds; `false` if it never did.
    pub(super) fn until(&mut self, micros: u64, mut holds: impl FnMut(&World) -> bool) -> bool {
        let end = self.now + micros;
        while self.now < end {
            if holds(self) {
                return true;
            }
            self.run(20_000);
        }
        holds(self)
    }

    pub(super) fn drain(&mut self, member: usize) {
        let now = self.now();
        while let Some(output) = self.members[member].quorum.poll(now) {
            let told = &mut self.members[member].told;
            match output {
                Output::Send { broker, request } => {
                    let channel = self.channels.number((member, usize::from(broker)));
                    self.carry(
                        Direction::ToServer,
                        member,
                        broker,
                        Event::ToBroker { member, broker, request, channel },
                    );
                }
                Output::Delivered(it) => {
                    let (subscription, next, sn) = (it.subscription, it.place + 1, it.entry.sn);
                    told.delivered.push(*it);
                    self.members[member].quorum.taken(now, subscription, next, Some(sn));
                }
                Output::Skipped { subscription, place, count } => {
                    told.skipped += count;
                    self.members[member].quorum.taken(now, subscription, place + count, None);
                }
                Output::Outcome(token, outcome) => {
                    assert!(told.outcomes.insert(token, outcome).is_none(), "an operation has one outcome");
                }
                Output::Subscribed { token, subscription } => {
                    told.subscribed.insert(token, subscription);
                }
                Output::Store(record) => told.record = Some(record),
                other => told.others.push(other),
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.now();
        let channel_of = |world: &World, member, broker| world.channels.number((member, usize::from(broker)));
        match event {
            Event::ToBroker { member, broker, request, channel } => {
                if channel_of(self, member, broker) != channel {
                    return;
                }
                let id = self.members[member].id;
                let (replies, batch) = self.brokers[usize::from(broker)].handle(id, &request);
                self.pool.extend(batch);
                replies.into_iter().for_each(|reply| self.reply(member, broker, &reply));
            }
            Event::ToMember { member, broker, reply, channel } => {
                if channel_of(self, member, broker) == channel {
                    self.members[member].quorum.handle(now, broker, &reply);
                }
            }
            Event::Block => {
                let mut batches = std::mem::take(&mut self.pool);
                batches.retain(|batch| self.known.insert(batch.to_bytes()));
                if self.shuffles {
                    for i in (1..batches.len()).rev() {
                        let j = self.random(i as u64 + 1) as usize;
                        batches.swap(i, j);
                    }
                    let later = self.random(batches.len() as u64 + 1) as usize;
                    for batch in batches.drain(batches.len() - later / 2..).collect::<Vec<_>>() {
                        self.known.remove(&batch.to_bytes());
                        self.pool.push(batch);
                    }
                }
                let cluster = self.genesis.cluster();
                let checked = check(&cluster, batches, |sealed| vec![true; sealed.len()]);
                let checked: Vec<Checked> = checked.into_iter().map(|it| it.expect("batches are good")).collect();
                let utc = Utc(START.0 + (self.now / 1_000_000) as i64);
                self.chain.push((utc, Arc::new(checked)));
                for broker in 0..self.brokers.len() as u16 {
                    let wait = 1 + self.random(4 * self.delay_max);
                    self.push(wait, Event::Execute { broker });
                }
                self.push(10_000, Event::Block);
            }
            Event::Execute { broker } if self.held.contains(&broker) => self.push(10_000, Event::Execute { broker }),
            Event::Execute { broker } => {
                // One event for each block, in order.
                let it = &mut self.brokers[usize::from(broker)];
                let height = it.state.height() + 1;
                let (at, batches) = self.chain[height as usize - 1].clone();
                let replies: VecDeque<(Client, Reply)> = it.execute(height, at, &batches).into();
                for (client, reply) in replies {
                    let member = self.members.iter().position(|it| it.id == client);
                    if let Some(member) = member.filter(|it| self.channels.is_open((*it, usize::from(broker)))) {
                        self.reply(member, broker, &reply);
                    }
                }
            }
            Event::Connect { member, broker } => {
                if self.channels.open((member, usize::from(broker))) {
                    self.members[member].quorum.connected(now, broker);
                }
            }
            Event::Cut { member, broker } => {
                if self.channels.cut((member, usize::from(broker))) {
                    let id = self.members[member].id;
                    self.brokers[usize::from(broker)].here.remove(&id);
                    self.members[member].quorum.disconnected(now, broker);
                    let wait = 20_000 + self.random(100_000);
                    self.push(wait, Event::Connect { member, broker });
                }
            }
        }
    }

    fn reply(&mut self, member: usize, broker: u16, reply: &Reply) {
        if self.unheard.contains(&broker) {
            return;
        }
        let channel = self.channels.number((member, usize::from(broker)));
        let reply = reply.to_bytes();
        self.carry(Direction::ToClient, member, broker, Event::ToMember { member, broker, reply, channel });
    }
}
