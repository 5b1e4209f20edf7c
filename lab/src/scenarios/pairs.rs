//! Any keys over any transport: the fixture of the tests of all pairs, and its story.
//!
//! A key scheme is a row of [`SCHEMES`], a transport one of [`TRANSPORTS`], mocks included. The tests pair all of them, and
//! what is allowed follows from their properties.

use std::sync::Arc;
use std::time::Duration;

use sealcast::url::OriginMode;
use sealcast::url::Scheme;
use sealcast::url::pairs::Transport;
use sealcast_crypto::hash::sha256;
use sealcast_crypto::identity::Identity;
use sealcast_crypto::secret::Secret;
use sealcast_delivery::memory::{BestEffort, Ordered, Start};
use sealcast_delivery::multicast::{Config as OfMulticast, Multicast};
use sealcast_delivery::sequencer::Sequencer;
use sealcast_delivery::{self as delivery, Delivery};
use sealcast_keys::contributory::{Config, Contributory};
use sealcast_keys::mls::engine::mls_rs::MlsRs;
use sealcast_keys::mls::{self, Mls};
use sealcast_keys::plain::{self, Plain, PlainGroup};
use sealcast_keys::threshold::{Client, Setup};
use sealcast_keys::{self as keys, Keys};
use sealcast_sim::dice::{Chance, Dice};
use sealcast_sim::network::Network;
use sealcast_sim::{Birth, Records};
use sealcast_wire::{Address, CertHash, Guarantee, Incarnation, Monotonic, Now, Utc, limits};

use super::channels::BOTH;
use super::contributory::{GROUP, identity};
use super::fixture::{Fixture, Player, TOPIC, TOPIC_ORDERED};
use super::lan::{SECOND, TIMEOUT, all_publish, without};
use super::mls::RELAY_RECORD;
use super::script::{Script, Step};
use crate::checkers::{Authentic, Property};
use crate::member::{Member, keys_records, record_of_delivery};
use crate::mocks::fixture::{ThresholdFixture, name, orderer};
use crate::mocks::mls_shaped::{self, MlsShaped};
use crate::mocks::preshared::{self, Preshared};
use crate::mocks::relay::{AtRelay, relay};
use crate::mocks::repeating::Repeating;
use crate::mocks::threshold_shaped::ThresholdShaped;

/// One process of a member, about to begin.
pub struct MemberSetup<'a> {
    /// Which member.
    pub member: usize,
    /// Of how many.
    pub members: usize,
    /// The address of the orderer, where the transport has one.
    pub orderer: Address,
    /// Chance of its own.
    pub seed: [u8; 32],
    /// The time.
    pub now: Now,
    /// What the scheme's disk holds.
    pub records: &'a Records,
    /// What the transport's disk holds, at a relay.
    pub record: Option<&'a [u8]>,
}

/// A key scheme.
pub struct Keyed {
    /// Its name in tests.
    pub name: &'static str,
    /// Which one it is in URLs, if it is in any.
    pub scheme: Option<Scheme>,
    /// What its members can do.
    pub abilities: Abilities,
    /// One process of a member.
    pub make: fn(&MemberSetup<'_>) -> Box<dyn Keys>,
    /// The certificate of a member.
    pub cert: fn(usize) -> CertHash,
    /// Whom it needs beside members, of whom there are so many: they come behind the transport's.
    pub helpers: fn(usize) -> Vec<(bool, Birth<Player>)>,
    /// Where in an order a process begins, by its records.
    pub start: fn(&Records) -> Start,
}

/// What members of a scheme can do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Abilities {
    /// They know each other, and what they say is sealed.
    pub meets: bool,
    /// They let others in by name.
    pub admits: bool,
    /// Member 0 can evict.
    pub evicts: bool,
}

/// A transport.
pub struct Carried {
    /// Its name in tests.
    pub name: &'static str,
    /// Which one it is in URLs, if it is in any.
    pub transport: Option<Transport>,
    /// A member's end of it.
    pub make: fn(&MemberSetup<'_>, &Keyed) -> Box<dyn Delivery>,
    /// Whom it needs beside members.
    pub helpers: fn() -> Vec<(bool, Birth<Player>)>,
}

/// All key schemes.
pub static SCHEMES: &[Keyed] = &[
    Keyed {
        name: "plain",
        scheme: Some(Scheme::Plain),
        abilities: Abilities { meets: false, admits: false, evicts: false },
        make: |setup| Box::new(Plain::new(&name(setup.member), setup.incarnation())),
        cert: |member| CertHash(sha256(name(member).as_bytes())),
        helpers: nobody,
        start: |_| Start::Head,
    },
    Keyed {
        name: "plain, with views",
        scheme: Some(Scheme::Plain),
        abilities: Abilities { meets: true, admits: false, evicts: false },
        make: |setup| {
            let config = Config::new(GROUP, Arc::new(unproved(setup.member)));
            Box::new(PlainGroup::new(config, setup.seed, setup.now))
        },
        cert: |member| unproved(member).certificate().hash,
        helpers: nobody,
        start: |_| Start::Head,
    },
    Keyed {
        name: "contributory",
        scheme: Some(Scheme::Contributory),
        abilities: Abilities { meets: true, admits: false, evicts: true },
        make: |setup| {
            let records: Vec<(u64, Vec<u8>)> = setup.records.clone().into_iter().collect();
            let config = Config::new(GROUP, identity(setup.member));
            Box::new(Contributory::restore(config, setup.seed, setup.now, &records))
        },
        cert: |member| identity(member).certificate().hash,
        helpers: nobody,
        start: |_| Start::Head,
    },
    Keyed {
        name: "threshold",
        scheme: Some(Scheme::Threshold),
        abilities: Abilities { meets: false, admits: false, evicts: false },
        make: |setup| {
            let setup = Setup {
                name: name(setup.member),
                client: setup.seed,
                cluster: [7; 32],
                brokers: vec![[1; 32], [2; 32], [3; 32], [4; 32]],
                incarnation: setup.incarnation(),
                seed: Secret::from_bytes(setup.seed),
            };
            Box::new(Client::<sealcast_crypto::group::Ristretto255>::new(setup))
        },
        cert: |member| CertHash(sha256(name(member).as_bytes())),
        helpers: nobody,
        start: |_| Start::Head,
    },
    Keyed {
        name: "mls",
        scheme: Some(Scheme::Mls),
        abilities: Abilities { meets: true, admits: false, evicts: true },
        make: |setup| {
            let records: Vec<(u64, Vec<u8>)> = setup.records.clone().into_iter().collect();
            let usual = mls::Config::new(GROUP, identity(setup.member));
            let config = mls::Config { founds: setup.member == 0, ..usual };
            Box::new(Mls::<MlsRs>::restore(config, setup.seed, setup.now, &records).expect("its certificate is good"))
        },
        cert: |member| identity(member).certificate().hash,
        helpers: nobody,
        start: |records| {
            let records: Vec<(u64, Vec<u8>)> = records.clone().into_iter().collect();
            mls::position(&records).map_or(Start::Head, Start::At)
        },
    },
    Keyed {
        name: "mls-shaped",
        scheme: None,
        abilities: Abilities { meets: true, admits: true, evicts: true },
        make: |setup| {
            let config = mls_shaped::Config { name: name(setup.member), founder: setup.member == 0, seed: setup.seed };
            Box::new(MlsShaped::restore(config, setup.records))
        },
        cert: |member| mls_shaped::cert(&name(member)),
        helpers: nobody,
        start: |records| mls_shaped::position(records).map_or(Start::Head, Start::At),
    },
    Keyed {
        name: "threshold-shaped",
        scheme: None,
        abilities: Abilities { meets: true, admits: false, evicts: false },
        make: |setup| {
            let roster = (0..setup.members).map(name).collect();
            Box::new(ThresholdShaped::new(&name(setup.member), roster, setup.seed))
        },
        cert: |member| mls_shaped::cert(&name(member)),
        helpers: |members| ThresholdFixture { members }.brokers(&[]),
        start: |_| Start::Head,
    },
    Keyed {
        name: "preshared",
        scheme: None,
        abilities: Abilities { meets: true, admits: false, evicts: false },
        make: |setup| {
            let roster: Vec<String> = (0..setup.members).map(name).collect();
            Box::new(Preshared::new(&name(setup.member), &roster, setup.seed))
        },
        cert: |member| preshared::cert(&name(member)),
        helpers: nobody,
        start: |_| Start::Head,
    },
];

/// All transports.
pub static TRANSPORTS: &[Carried] = &[
    Carried {
        name: "udpm",
        transport: Some(Transport::Multicast),
        make: |_, keys| Box::new(Multicast::new(OfMulticast { plain: keys.is_plain(), ..OfMulticast::default() })),
        helpers: Vec::new,
    },
    Carried {
        name: "udpm, ordered",
        transport: Some(Transport::OrderedMulticast),
        make: |_, _| Box::new(Sequencer::new(OfMulticast::default(), limits::RELIABLE_BACKLOG_BYTES)),
        helpers: Vec::new,
    },
    Carried {
        name: "mem",
        transport: Some(Transport::Memory),
        make: |_, keys| Box::new(if keys.is_plain() { BestEffort::plain() } else { BestEffort::new() }),
        helpers: Vec::new,
    },
    Carried {
        name: "mem, ordered",
        transport: Some(Transport::OrderedMemory),
        make: |setup, keys| {
            let start = (keys.start)(setup.records);
            Box::new(match keys.is_plain() {
                true => Ordered::plain(setup.orderer, start, u64::from_be_bytes(setup.first_bytes())),
                false => Ordered::new(setup.orderer, start),
            })
        },
        helpers: || vec![(true, orderer())],
    },
    Carried {
        name: "relay",
        transport: Some(Transport::Relay),
        make: |setup, keys| {
            Box::new(match keys.scheme {
                Some(Scheme::Mls) => AtRelay::new(setup.orderer, setup.record).0,
                _ => AtRelay::without_directory(setup.orderer, keys.is_plain()),
            })
        },
        helpers: || vec![(true, relay())],
    },
    Carried {
        name: "repeating",
        transport: None,
        make: |_, keys| Box::new(Repeating::new(keys.is_plain())),
        helpers: Vec::new,
    },
];

impl MemberSetup<'_> {
    /// For a look at what is made there, and no more.
    pub fn to_look(records: &Records) -> MemberSetup<'_> {
        let now = Now { monotonic: Monotonic(0), utc: Some(Utc(sealcast_sim::clock::UTC_AT_ZERO)) };
        let orderer = Address::Node(MEMBERS as u32);
        MemberSetup { member: 0, members: MEMBERS, orderer, seed: [9; 32], now, records, record: None }
    }

    /// What sets this process apart from the member's others.
    pub fn incarnation(&self) -> Incarnation {
        Incarnation(*self.seed.first_chunk().expect("a seed has 32 bytes"))
    }

    fn first_bytes(&self) -> [u8; 8] {
        *self.seed.first_chunk().expect("a seed has 32 bytes")
    }
}

impl Keyed {
    /// Whether nothing is sealed at all, and nobody knows the others.
    pub fn is_plain(&self) -> bool {
        self.scheme == Some(Scheme::Plain) && !self.abilities.meets
    }

    /// Which one it is in URLs of this transport, if it is in any: plain groups have views where members order alone.
    pub fn scheme_over(&self, transport: &Carried) -> Option<Scheme> {
        let has_views = transport.transport == Some(Transport::OrderedMulticast);
        self.scheme.filter(|scheme| *scheme != Scheme::Plain || self.abilities.meets == has_views)
    }

    /// What it needs.
    pub fn needs(&self) -> keys::Properties {
        (self.make)(&MemberSetup::to_look(&Records::new())).properties()
    }
}

impl Carried {
    /// What it gives to a scheme.
    pub fn gives(&self, keys: &Keyed) -> delivery::Properties {
        (self.make)(&MemberSetup::to_look(&Records::new()), keys).properties()
    }
}

/// Members of one scheme over one transport.
pub struct Paired {
    /// Their keys.
    pub keys: &'static Keyed,
    /// How they speak.
    pub transport: &'static Carried,
}

impl Fixture for Paired {
    fn cert(&self, member: usize) -> CertHash {
        (self.keys.cert)(member)
    }

    fn member(&self, member: usize, _life: u32, seed: [u8; 32]) -> Birth<Player> {
        let (keys, transport) = (self.keys, self.transport);
        Box::new(move |now, stored| {
            let (records, record) = (&keys_records(stored), record_of_delivery(stored, RELAY_RECORD));
            let record = record.as_deref();
            let setup = MemberSetup { member, seed, now, records, record, ..MemberSetup::to_look(records) };
            Box::new(Member::new(now, (keys.make)(&setup), (transport.make)(&setup, keys), OriginMode::Auto))
        })
    }

    fn helpers(&self) -> Vec<(bool, Birth<Player>)> {
        let mut helpers = (self.transport.helpers)();
        helpers.extend((self.keys.helpers)(MEMBERS));
        helpers
    }

    fn admits(&self) -> bool {
        self.keys.abilities.admits
    }

    fn meets(&self) -> bool {
        self.keys.abilities.meets
    }

    fn channels(&self) -> &'static [(&'static str, Guarantee)] {
        let is_ordered = self.transport.gives(self.keys).gives(Guarantee::Ordered).is_some();
        match (self.keys.needs().data.0 >= Guarantee::Ordered, is_ordered) {
            (true, _) => &[(TOPIC_ORDERED, Guarantee::Ordered)],
            (false, true) => BOTH,
            (false, false) => &[(TOPIC, Guarantee::BestEffort)],
        }
    }

    fn seals(&self) -> bool {
        self.keys.scheme != Some(Scheme::Plain)
    }

    fn secrets(&self) -> Vec<Vec<u8>> {
        // Whoever orders whole messages reads topics.
        if self.keys.needs().seals_messages { Vec::new() } else { vec![TOPIC.into(), TOPIC_ORDERED.into()] }
    }

    fn authentic(&self) -> Box<Property> {
        if self.meets() { Box::<Authentic>::default() } else { Box::new(Authentic::anonymous()) }
    }
}

/// A member's identity in a plain group with views, the same in each of its lives.
fn unproved(member: usize) -> Identity {
    plain::identity(&name(member), GROUP, sha256(name(member).as_bytes())).expect("a name")
}

/// Members start and publish while messages are lost; one dies and comes back, and one is evicted where the scheme can do
/// that; in the end each hears others.
pub fn story(pair: &Paired, dice: &mut Dice) -> Script {
    let Abilities { meets, evicts, .. } = pair.keys.abilities;
    let (n, jitter) = (MEMBERS, Duration::from_millis(500));
    let mut script = Script::new(n, Network::rough(Chance(50_000)));
    script.start_all(0..n, jitter, dice);
    let together = |script: &mut Script, who: &[usize]| match meets {
        true => _ = script.converge(who.iter().copied(), TIMEOUT),
        false => _ = script.wait(SECOND),
    };
    let all: Vec<usize> = (0..n).collect();
    together(&mut script, &all);
    all_publish(&mut script, 0..n, 20, 60 * SECOND);
    let victim = 1 + dice.index(n - 1);
    script.wait(dice.between(Duration::ZERO, SECOND)).then(Step::Crash(victim));
    script.wait(dice.between(Duration::ZERO, 2 * SECOND)).then(Step::Start(victim)).wait(SECOND);
    together(&mut script, &all);
    script.then(Step::Hears { members: all.into_iter().collect(), within: TIMEOUT });
    if evicts {
        let whom = 1 + dice.index(n - 1);
        let rest = without(n, &[whom]);
        script.then(Step::Evict { by: 0, whom }).then(Step::Out { member: whom, within: TIMEOUT });
        script.converge(rest.clone(), TIMEOUT).then(Step::Never { members: rest.clone(), whom });
        script.then(Step::Deaf(whom)).then(Step::Hears { members: rest.clone(), within: TIMEOUT }).wait(SECOND);
        script.converge(rest, TIMEOUT);
    }
    script
}

fn nobody(_members: usize) -> Vec<(bool, Birth<Player>)> {
    Vec::new()
}

/// How many members play.
pub const MEMBERS: usize = 4;
