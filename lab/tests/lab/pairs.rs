//! Every pair of keys and transport, mocks included: who is allowed runs, in the simulator and through a session, and who is
//! not is refused with a hint. `PAIR_SEED=17 cargo test --workspace --test lab pairs::` plays that seed alone.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sealcast::group::Group;
use sealcast::session::open_parts;
use sealcast::url::OriginMode;
use sealcast::url::pairs::{self, Pair};
use sealcast::{Code, Session, Subscription};
use sealcast_delivery::{self as delivery, Batch, Delivery, Outgoing, SendError, Token};
use sealcast_keys::Command;
use sealcast_keys::plain::Plain;
use sealcast_lab::mocks::broker::Broker;
use sealcast_lab::mocks::fixture::{brokers, name};
use sealcast_lab::scenarios::fixture::TOPIC;
use sealcast_lab::scenarios::pairs::{Keyed, MEMBERS, MemberSetup, Paired, SCHEMES, TRANSPORTS, story};
use sealcast_lab::scenarios::simulation::{self, Keep};
use sealcast_sim::dice::Dice;
use sealcast_sim::{Effect, Node as _, Reach, Records};
use sealcast_wire::frame::{KIND_OPEN, MAGIC};
use sealcast_wire::{Address, Dropped, Guarantee, Incarnation, Monotonic, Now, Protect, Source, To, Utc};

fn all() -> impl Iterator<Item = Paired> {
    let of = |keys: &'static Keyed| TRANSPORTS.iter().map(move |transport| Paired { keys, transport });
    SCHEMES.iter().flat_map(of)
}

fn is_allowed(pair: &Paired) -> bool {
    pairs::check(&pair.keys.needs(), &pair.transport.gives(pair.keys)).is_ok()
}

fn shown(pair: &Paired) -> String {
    format!("{} over {}", pair.keys.name, pair.transport.name)
}

/// What transports and schemes say of themselves is what the table of pairs says of them.
#[test]
fn the_table_of_pairs_is_right() {
    for pair in all() {
        let (scheme, transport) = (pair.keys.scheme_over(pair.transport), pair.transport.transport);
        if let (Some(keys), Some(transport)) = (scheme, transport) {
            assert_eq!(keys.needs(transport), pair.keys.needs(), "{}", shown(&pair));
            assert_eq!(transport.gives(keys), pair.transport.gives(pair.keys), "{}", shown(&pair));
            assert_eq!(Pair { transport, keys }.is_allowed(), is_allowed(&pair), "{}", shown(&pair));
        }
    }
}

#[test]
fn what_is_not_allowed_is_refused_with_a_hint() {
    let refused: Vec<Paired> = all().filter(|pair| !is_allowed(pair)).collect();
    assert!(refused.len() >= 6, "{:?}", refused.iter().map(shown).collect::<Vec<_>>());
    for pair in refused {
        let records = Records::new();
        let setup = MemberSetup::to_look(&records);
        let (keys, transport) = ((pair.keys.make)(&setup), (pair.transport.make)(&setup, pair.keys));
        let error = Group::new(keys, transport, OriginMode::Auto).err().expect("it is refused");
        assert_eq!(error.code(), Code::BadPair, "{}: {error}", shown(&pair));
        assert!(error.message().contains("needs") && error.hint().is_some(), "{}: {error}", shown(&pair));
        let (keys, transport) = ((pair.keys.make)(&setup), (pair.transport.make)(&setup, pair.keys));
        let error = open_parts("refused", "me", keys, transport).expect_err("a session refuses it, too");
        assert_eq!(error.code(), Code::BadPair, "{}: {error}", shown(&pair));
    }
}

#[test]
fn every_pair_runs_in_the_simulator() {
    let only: Option<u64> = std::env::var("PAIR_SEED").ok().map(|it| it.parse().expect("a seed"));
    let seeds = only.map_or(0..SEEDS, |seed| seed..seed + 1);
    // A plain group's views are the contributory scheme's: they run where URLs have them.
    let is_in_urls = |pair: &Paired| pair.keys.scheme.is_none() || pair.keys.scheme_over(pair.transport).is_some();
    for pair in all().filter(is_allowed).filter(is_in_urls) {
        for seed in seeds.clone() {
            let script = story(&pair, &mut Dice::new(seed, 4));
            let report = simulation::play(&pair, &script, seed, Keep { lines: 0, story: only.is_some() });
            report.story.iter().for_each(|line| println!("{line}"));
            let again = format!("PAIR_SEED={seed} cargo test --workspace --test lab pairs::");
            assert!(report.holds(), "{}: {:?}\nagain: {again}", shown(&pair), report.violations.first());
        }
    }
}

/// Two sessions of this process, one of which hears what the other publishes.
#[test]
fn every_pair_runs_through_a_session() {
    // Where sessions of this process meet is no directory; over sockets: `cli/tests/cli/relay.rs`.
    let meets_here = |pair: &Paired| pair.transport.name != "relay" || !pair.keys.needs().commits_in_order();
    for (n, pair) in all().filter(is_allowed).filter(meets_here).enumerate() {
        let place = format!("pair-{n}");
        let helpers: Vec<Session> = match pair.keys.needs().fetches.shares {
            true => helpers().map(|broker| at_hub(&place, broker)).collect(),
            false => Vec::new(),
        };
        let sessions: Vec<Session> = (0..2).map(|member| session(&place, &pair, member)).collect();
        let mut heard = sessions[1].subscribe("#").wait().expect("a pattern");
        if pair.keys.abilities.meets {
            meet(&pair, &sessions);
        }
        let ordered = pair.transport.gives(pair.keys).gives(Guarantee::Ordered).is_some();
        let needs = pair.keys.needs().data.0;
        if needs == Guarantee::BestEffort {
            say(&pair, &sessions[0], &mut heard, false);
        }
        if ordered {
            say(&pair, &sessions[0], &mut heard, true);
        }
        sessions.into_iter().chain(helpers).for_each(|it| _ = it.close());
    }
}

fn session(place: &str, pair: &Paired, member: usize) -> Session {
    let records = Records::new();
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let now = Now { monotonic: Monotonic(0), utc: Some(Utc(seconds as i64)) };
    let seed = [1 + member as u8; 32];
    let setup = MemberSetup { member, members: MEMBERS, orderer: ORDERER, seed, now, records: &records, record: None };
    let (keys, transport) = ((pair.keys.make)(&setup), (pair.transport.make)(&setup, pair.keys));
    open_parts(place, &name(member), keys, transport).unwrap_or_else(|e| panic!("{}: {e}", shown(pair)))
}

/// Until both have a view in which both are.
fn meet(pair: &Paired, sessions: &[Session]) {
    let begun = Instant::now();
    let both = [0, 1].map(pair.keys.cert);
    loop {
        let views: Vec<_> = sessions.iter().map(Session::view).collect();
        let are_in = |view: &sealcast_wire::View| both.iter().all(|cert| view.slot_of(cert).is_some());
        if views.iter().flatten().filter(|view| are_in(view)).count() == 2
            && views[0].as_ref().map(|it| it.epoch) == views[1].as_ref().map(|it| it.epoch)
        {
            return;
        }
        if pair.keys.abilities.admits && views[0].is_some() && views[1].is_none() {
            sessions[0].ask(Command::Admit { cert: both[1] }).expect("it lets others in");
        }
        assert!(begun.elapsed() < SOON, "{}: {views:?}", shown(pair));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Publishes until it is heard.
fn say(pair: &Paired, session: &Session, heard: &mut Subscription, ordered: bool) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let begun = Instant::now();
    loop {
        let body = format!("number {}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let publish = session.publish(TOPIC, &body);
        let published = if ordered { publish.ordered().wait() } else { publish.wait() };
        published.unwrap_or_else(|e| panic!("{}, ordered {ordered}: {e}", shown(pair)));
        while let Some(message) = heard.next_timeout(Duration::from_millis(300)).expect("the session goes on") {
            if message.payload() == body.as_bytes() {
                return;
            }
        }
        assert!(begun.elapsed() < SOON, "{}, ordered {ordered}: nobody hears", shown(pair));
    }
}

/// The brokers of the threshold-shaped scheme, who enter a place as nodes 1 to 4, and the two readers as 5 and 6.
fn helpers() -> impl Iterator<Item = Broker> {
    let readers: Vec<String> = (0..FIRST_READER).map(|node| format!("node {node}")).chain((0..2).map(name)).collect();
    let nobody: Vec<usize> = (0..FIRST_READER).collect();
    let all: Vec<Broker> = brokers(ORDERER, &readers, &nobody).map(Broker::new).collect();
    all.into_iter()
}

/// A broker of the simulator among the sessions of a place.
fn at_hub(place: &str, node: Broker) -> Session {
    let keys = Box::new(Plain::new("a broker", Incarnation([7; 16])));
    let node = Joined { node, outbox: VecDeque::new() };
    open_parts(place, "a broker", keys, Box::new(node)).expect("plain needs nothing")
}

struct Joined {
    node: Broker,
    outbox: VecDeque<(Reach, Vec<u8>)>,
}

impl Joined {
    fn drain(&mut self) {
        while let Some(effect) = self.node.poll() {
            match effect {
                Effect::Send { to, datagram } => self.outbox.push_back((to, datagram)),
                Effect::Tell(_) | Effect::Store { .. } => {}
            }
        }
    }
}

impl Delivery for Joined {
    fn properties(&self) -> delivery::Properties {
        delivery::Properties::BEST_EFFORT
    }

    fn send(&mut self, _: Now, _: Option<&Arc<dyn Protect>>, message: Outgoing<'_>) -> Result<Token, SendError> {
        Err(SendError::NotGiven(message.guarantee))
    }

    fn handle(&mut self, now: Now, input: delivery::Input<'_>) {
        if let delivery::Input::Frame { source: Source::Outside(from), frame, .. } = input {
            let mut datagram = [&[MAGIC, KIND_OPEN][..], frame].concat();
            self.node.handle(now, from, &mut datagram);
            self.drain();
        }
    }

    fn open_at(
        &mut self,
        _: u64,
        _: Source,
        _: u8,
        _: &mut [u8],
        _: &dyn Protect,
    ) -> Result<delivery::Output, Dropped> {
        Err(Dropped::Foreign)
    }

    fn timeout(&self) -> Option<Monotonic> {
        self.node.timeout()
    }

    fn handle_timeout(&mut self, now: Now, _: Option<&Arc<dyn Protect>>) {
        self.node.handle_timeout(now);
        self.drain();
    }

    fn poll(&mut self, batch: &mut Batch) -> Option<delivery::Output> {
        let (to, datagram) = self.outbox.pop_front()?;
        batch.to = match to {
            Reach::One(node) => Some(Address::Node(node as u32)),
            Reach::All => None,
        };
        batch.push(&datagram);
        Some(delivery::Output::Transmit(To::Group))
    }
}

/// The node of the first reader among the sessions of a place with brokers.
const FIRST_READER: usize = 5;
/// The orderer's address in every place.
const ORDERER: Address = Address::Node(0);
/// Of each pair.
const SEEDS: u64 = 20;
/// A wait that only a failing test sees the end of.
const SOON: Duration = Duration::from_secs(20);
