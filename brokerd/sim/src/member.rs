//! A member of a group that goes through brokers: the core of a session that users run, with any of the schemes that URLs
//! name, on the simulation's time; and an application that reads everything.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sealcast::group::{Axis, Group, Publication, ViewEvent};
use sealcast::session::core::{Core, Filter, Output};
use sealcast::url::{OriginMode, Scheme};
use sealcast_broker::operation::Client as Id;
use sealcast_client::{Config, PayloadKind, Transport};
use sealcast_crypto::identity::{Act, Authority, Identity, MemberSecret, Pattern, Request, Right};
use sealcast_crypto::signature::Algorithm;
use sealcast_delivery::{Batch, Delivery};
use sealcast_keys::contributory::{self, Contributory};
use sealcast_keys::mls::engine::mls_rs::MlsRs;
use sealcast_keys::mls::{self, Mls};
use sealcast_keys::plain::Plain;
use sealcast_keys::{Command, Keys};
use sealcast_wire::{Address, EpochId, Guarantee, Incarnation, Monotonic, Now, Utc};

use crate::client;
use crate::fixture::{Fixture, key};

/// One member.
pub struct Member {
    /// Its key.
    pub id: Id,
    /// What it read since its process started: sequence number, and payload.
    pub delivered: Vec<(u64, Vec<u8>)>,
    /// It is out of the group.
    pub is_out: bool,
    scheme: Scheme,
    seed: u8,
    life: u8,
    identity: Arc<Identity>,
    keys_records: BTreeMap<u64, Vec<u8>>,
    record: Option<Vec<u8>>,
    core: Core<Box<dyn Keys>, Box<dyn Delivery>, ()>,
    is_subscribed: bool,
    batch: Batch,
}

impl Member {
    /// A member with this scheme, whose process starts for the first time.
    pub fn new(now: Now, fixture: &Fixture, scheme: Scheme, seed: u8) -> Member {
        let (id, identity) = (Id(key(seed).public_bytes()), identity(seed));
        let core = core(now, fixture, scheme, (seed, 1), &identity, &BTreeMap::new(), None);
        let mut member = Member {
            id,
            delivered: Vec::new(),
            is_out: false,
            scheme,
            seed,
            life: 1,
            identity,
            keys_records: BTreeMap::new(),
            record: None,
            core,
            is_subscribed: false,
            batch: Batch::default(),
        };
        member.begin(now);
        member
    }

    /// Its process dies, and starts again with what was durable.
    pub fn restart(&mut self, now: Now, fixture: &Fixture) {
        self.life += 1;
        let (life, record) = ((self.seed, self.life), self.record.as_deref());
        self.core = core(now, fixture, self.scheme, life, &self.identity, &self.keys_records, record);
        (self.delivered, self.is_subscribed) = (Vec::new(), false);
        self.begin(now);
    }

    fn begin(&mut self, now: Now) {
        self.core.subscriptions().add(Filter::pattern("#").expect("it is a pattern"), ());
        self.is_subscribed = !self.core.transport().subscribes;
        self.core.subscribe(now, &Pattern::all());
    }

    /// The epoch that it is in with so many members, if it can publish and read by now.
    pub fn stands(&self, members: usize) -> Option<EpochId> {
        let alone = !matches!(self.scheme, Scheme::Contributory | Scheme::Mls);
        let view = self.core.group().view().filter(|view| alone || view.members.len() == members)?;
        self.is_subscribed.then_some(view.epoch)
    }

    /// Publishes, if it can now.
    pub fn publish(&mut self, now: Now, body: &[u8]) -> bool {
        let message = Publication { topic: "open", body, guarantee: Guarantee::Ordered, sent_micros: None };
        self.core.publish(now, message).is_ok()
    }

    /// Evicts another one.
    ///
    /// # Panics
    /// If it may not.
    pub fn evict(&mut self, now: Now, other: u8) {
        let cert = identity(other).certificate().hash;
        self.core.command(now, Command::Evict { cert, reason: "lost laptop".into() }).expect("it may");
    }

    /// The channel to a broker is open.
    pub fn connected(&mut self, now: Now, broker: u16) {
        self.core.group_mut().connected(now, Address::Node(u32::from(broker)));
    }

    /// The channel to a broker is closed.
    pub fn disconnected(&mut self, now: Now, broker: u16) {
        self.core.group_mut().disconnected(now, Address::Node(u32::from(broker)));
    }

    /// A broker says something.
    pub fn handle(&mut self, now: Now, broker: u16, reply: &[u8]) {
        self.core.group_mut().handle_message(now, Address::Node(u32::from(broker)), reply);
    }

    /// When [`Member::work`] wants to be called next.
    pub fn timeout(&self) -> Option<Monotonic> {
        self.core.timeout()
    }

    /// Does all that can be done now; what is to be sent to brokers.
    pub fn work(&mut self, now: Now) -> Vec<(u16, Arc<[u8]>)> {
        if self.core.timeout().is_some_and(|at| at <= now.monotonic) {
            self.core.handle_timeout(now);
        }
        let mut said = Vec::new();
        loop {
            self.batch.clear();
            let Some(output) = self.core.poll(now, &mut self.batch) else { return said };
            match output {
                Output::Transmit(_) => {
                    let Some(Address::Node(broker)) = self.batch.to else { continue };
                    let broker = u16::try_from(broker).expect("brokers are few");
                    said.extend(self.batch.iter().map(|request| (broker, request.into())));
                }
                Output::Store { of, id, record } => {
                    match of {
                        Axis::Keys => _ = self.keys_records.insert(id, record),
                        Axis::Delivery => self.record = Some(record),
                    }
                    self.core.stored();
                }
                Output::Deliver(_, message) => self.delivered.push((message.sequence(), message.payload().to_vec())),
                Output::View(event) => self.is_out |= matches!(event, ViewEvent::Excluded(_)),
                Output::Subscribed(_, result) => self.is_subscribed = result.is_ok(),
                Output::Outcome(..)
                | Output::Notice(_)
                | Output::Described(_)
                | Output::State(..)
                | Output::Confirmed
                | Output::Closed(_) => {}
            }
        }
    }
}

fn core(
    now: Now,
    fixture: &Fixture,
    scheme: Scheme,
    (seed, life): (u8, u8),
    identity: &Arc<Identity>,
    keys_records: &BTreeMap<u64, Vec<u8>>,
    record: Option<&[u8]>,
) -> Core<Box<dyn Keys>, Box<dyn Delivery>, ()> {
    let mut chance = [seed; 32];
    chance[0] = life;
    let (origin, incarnation) = (Arc::new(key(seed)), Incarnation(*chance.first_chunk().expect("32 bytes")));
    let id = Id(origin.public_bytes());
    let registrations = vec![fixture.registration(seed, None)];
    let config = Config { genesis: fixture.genesis.clone(), key: origin, registrations, batch_operations: 8 };
    let of_group = |resumes| PayloadKind::Group { name: GROUP.to_owned(), resumes };
    let (keys, payload_kind): (Box<dyn Keys>, PayloadKind) = match scheme {
        Scheme::Plain => (Box::new(Plain::new("member", incarnation)), PayloadKind::Messages { sealed: false }),
        Scheme::Threshold => (client::keys(fixture, id, chance), PayloadKind::Messages { sealed: true }),
        Scheme::Contributory => {
            // As sessions through brokers do.
            let pace = NonZeroU32::new(4).expect("it is not 0");
            let mut of_keys = contributory::Config::new(GROUP, identity.clone());
            (of_keys.pace, of_keys.rekey_after) = (pace, of_keys.rekey_after / pace.get());
            let records: Vec<(u64, Vec<u8>)> = keys_records.clone().into_iter().collect();
            (Box::new(Contributory::restore(of_keys, chance, now, &records)), of_group(false))
        }
        Scheme::Mls => {
            let of_keys = mls::Config { directory: false, pace: 4, ..mls::Config::new(GROUP, identity.clone()) };
            let records: Vec<(u64, Vec<u8>)> = keys_records.clone().into_iter().collect();
            let member = Mls::<MlsRs>::restore(of_keys, chance, now, &records).expect("it reads all");
            (Box::new(member), of_group(true))
        }
        other => panic!("keys={} does not run over brokers", other.name()),
    };
    let opened = Transport::open(now, config, record, payload_kind, None, false);
    let (transport, _handle) = opened.expect("the record is its own");
    Core::new(Group::new(keys, transport, OriginMode::Auto).expect("the transport gives what the keys need"))
}

/// The identity of a member.
fn identity(seed: u8) -> Arc<Identity> {
    IDENTITIES[&seed].clone()
}

/// All of one authority, which gives each certificate a serial number of its own; whoever is a member may evict.
static IDENTITIES: LazyLock<BTreeMap<u8, Arc<Identity>>> = LazyLock::new(|| {
    let mut rng = ChaCha20Rng::seed_from_u64(7);
    let mut authority = Authority::create("ca", Algorithm::Ed25519, Utc(0), &mut rng).expect("a new authority");
    let identity = |seed: u8| {
        let secret = MemberSecret::generate(Algorithm::Ed25519, &mut rng);
        let rights = [Right::new(GROUP, Act::Both, "#"), Right::new(GROUP, Act::Evict, "#")];
        let rights = rights.into_iter().map(|it| it.expect("a right")).collect();
        let request = Request { name: format!("member {seed}"), keys: secret.public(), rights, attributes: Vec::new() };
        let certificate = authority.issue(&request, Utc(0), 365 * 86_400).expect("rights are encodable");
        let identity = Identity::new(&certificate, &secret, authority.anchor().clone()).expect("its own key");
        (seed, Arc::new(identity.with_bootstrap_key(GROUP, authority.bootstrap_key(GROUP))))
    };
    SEEDS.map(identity).collect()
});

/// Seeds of the keys that members have.
pub const SEEDS: std::ops::Range<u8> = 20..30;
const GROUP: &str = "market";
