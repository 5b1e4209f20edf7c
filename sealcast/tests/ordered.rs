//! A contributory group whose messages all take their place in one order: what every member gets, at any seed.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::Ca;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use sealcast::group::{Group, Output, Publication, PublishError};
use sealcast::url::OriginMode;
use sealcast_crypto::identity::Identity;
use sealcast_delivery::memory::{Ordered, Orderer, Start};
use sealcast_delivery::{Batch, Outcome};
use sealcast_keys::Command;
use sealcast_keys::contributory::{self, Contributory};
use sealcast_wire::{Address, Guarantee, Monotonic, Now, Utc};

/// A member and what it saw.
struct Node {
    group: Group<Contributory, Ordered>,
    delivered: Vec<(u64, String, Vec<u8>)>,
    placed: usize,
    failed: usize,
}

/// Members, an orderer, and datagrams that take their time and are not lost.
struct World {
    now: Monotonic,
    rng: ChaCha20Rng,
    orderer: Orderer,
    nodes: Vec<Node>,
    flying: BTreeMap<(Monotonic, u64), (Address, Address, Vec<u8>)>,
    /// When what is under way between two arrives: it does not overtake.
    last: BTreeMap<(Address, Address), Monotonic>,
    sent: u64,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            now: Monotonic(1_000_000),
            rng: ChaCha20Rng::seed_from_u64(seed),
            orderer: Orderer::new(),
            nodes: Vec::new(),
            flying: BTreeMap::new(),
            last: BTreeMap::new(),
            sent: 0,
        }
    }

    fn now(&self) -> Now {
        Now { monotonic: self.now, utc: Some(common::SIMULATED) }
    }

    fn start(&mut self, identity: &Arc<Identity>) -> usize {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        let config = contributory::Config { floor: Utc(0), ..contributory::Config::new("ward3", identity.clone()) };
        let keys = Contributory::new(config, seed, self.now());
        let way = Ordered::placing(ORDERER, Start::Head, self.rng.next_u64());
        let group = Group::new(keys, way, OriginMode::Auto).expect("a pair that fits");
        self.nodes.push(Node { group, delivered: Vec::new(), placed: 0, failed: 0 });
        self.pump(self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    fn publish(&mut self, node: usize, body: Vec<u8>) -> Result<(), PublishError> {
        let message = Publication { topic: "pulse", body: &body, guarantee: Guarantee::Ordered, sent_micros: None };
        let now = self.now();
        self.nodes[node].group.publish(now, message)?;
        self.pump(node);
        Ok(())
    }

    fn command(&mut self, node: usize, command: Command) {
        let now = self.now();
        self.nodes[node].group.command(now, command).expect("a command that may be given");
        self.pump(node);
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let arrival = self.flying.keys().next().map(|(at, _)| *at);
            let timer = self.nodes.iter().filter_map(|n| n.group.timeout()).min();
            let Some(next) = [arrival, timer].into_iter().flatten().min().filter(|t| *t <= end) else { break };
            self.now = self.now.max(next);
            let now = self.now();
            while let Some(entry) = self.flying.first_entry().filter(|e| e.key().0 <= self.now) {
                let (from, to, mut bytes) = entry.remove();
                match to {
                    ORDERER => {
                        self.orderer.handle(from, &bytes);
                        while let Some((to, datagram)) = self.orderer.poll() {
                            self.send(ORDERER, to, &datagram);
                        }
                    }
                    Address::Node(n) => {
                        let i = n as usize - 1;
                        self.nodes[i].group.handle_datagram(now, from, &mut bytes);
                        self.pump(i);
                    }
                    Address::Socket(_) => unreachable!("nobody has one"),
                }
            }
            for i in 0..self.nodes.len() {
                if self.nodes[i].group.timeout().is_some_and(|at| at <= self.now) {
                    self.nodes[i].group.handle_timeout(now);
                    self.pump(i);
                }
            }
        }
        self.now = end;
    }

    /// The epoch of these if all are in one view of just them.
    fn common(&self, who: &[usize]) -> Option<u32> {
        let views: Vec<_> = who.iter().filter_map(|i| self.nodes[*i].group.view()).collect();
        let one =
            views.len() == who.len() && views.iter().all(|v| v.members.len() == who.len() && v.epoch == views[0].epoch);
        one.then(|| views[0].epoch.counter)
    }

    /// Runs until all of these are in one view of just them; its epoch.
    fn together(&mut self, who: &[usize]) -> u32 {
        for _ in 0..4000 {
            if let Some(epoch) = self.common(who) {
                return epoch;
            }
            self.run(Duration::from_millis(5));
        }
        panic!("no common view");
    }

    fn pump(&mut self, i: usize) {
        let now = self.now();
        let mut batch = Batch::default();
        loop {
            batch.clear();
            let Some(output) = self.nodes[i].group.poll(now, &mut batch) else { break };
            let node = &mut self.nodes[i];
            match output {
                Output::Transmit(_) => {
                    let from = Address::Node(i as u32 + 1);
                    let (to, datagrams) = (batch.to, batch.iter().map(<[u8]>::to_vec).collect::<Vec<_>>());
                    datagrams.iter().for_each(|datagram| self.send(from, to, datagram));
                }
                Output::Deliver(m) => {
                    let from = m.origin().name().unwrap_or("?").to_owned();
                    node.delivered.push((m.sequence(), from, m.payload().to_vec()));
                }
                Output::Store { .. } => node.group.stored(),
                Output::Outcome(_, Outcome::Placed(_)) => node.placed += 1,
                Output::Outcome(_, Outcome::Failed) => node.failed += 1,
                _ => {}
            }
        }
    }

    fn send(&mut self, from: Address, to: Option<Address>, datagram: &[u8]) {
        let all: Vec<Address> = (1..=self.nodes.len() as u32).map(Address::Node).collect();
        for to in to.map_or(all, |to| vec![to]) {
            let takes = Duration::from_micros(500 + self.rng.next_u64() % 8000);
            let at = self.last.entry((from, to)).or_default();
            *at = (*at).max(self.now + takes);
            self.sent += 1;
            self.flying.insert((*at, self.sent), (from, to, datagram.to_vec()));
        }
    }
}

const ORDERER: Address = Address::Node(0);

fn seeds() -> std::ops::Range<u64> {
    let many = std::env::var("SEALCAST_SEEDS").ok().and_then(|n| n.parse().ok());
    0..many.unwrap_or(100)
}

/// Everybody publishes all the time, while one joins, the key is changed, and one is evicted.
#[test]
fn rule_b4_all_members_get_the_same_messages_in_one_order_across_changes_of_key() {
    let mut ca = Ca::simulated();
    let alice = ca.member("alice", &["both:#", "evict:#"]);
    let others = [ca.member("bob", &["both:#"]), ca.member("carol", &["both:#"]), ca.member("dora", &["both:#"])];
    for seed in seeds() {
        let mut world = World::new(seed);
        world.start(&alice);
        others[..2].iter().for_each(|it| {
            world.start(it);
        });
        let mut epoch = world.together(&[0, 1, 2]);
        let mut said: BTreeMap<usize, u64> = BTreeMap::new();
        // Each change begins a while after the one before it stands: two at once may well be one.
        let (mut changes, mut since, mut evicted) = (0, 0, None);
        while changes < 3 || since < 120 {
            let pause = Duration::from_micros(world.rng.next_u64() % 3000);
            world.run(pause);
            let all: Vec<usize> = (0..world.nodes.len()).collect();
            let stands = world.common(&all).filter(|now| changes == 0 || *now > epoch);
            since += 1;
            if let Some(now) = stands.filter(|_| changes < 3 && since >= 80) {
                (epoch, changes, since) = (now, changes + 1, 0);
                match changes {
                    1 => {
                        world.start(&others[2]);
                    }
                    2 => world.command(1, Command::Rotate),
                    _ => {
                        let cert = others[1].certificate().hash;
                        world.command(0, Command::Evict { cert, reason: "lost".into() });
                        evicted = Some(world.nodes[2].delivered.len());
                    }
                }
            }
            assert!(since < 5000, "seed {seed}: change {changes} does not come to stand");
            let who = (world.rng.next_u64() % world.nodes.len() as u64) as usize;
            let number = said.get(&who).copied().unwrap_or(0);
            match world.publish(who, [&[who as u8][..], &number.to_be_bytes()].concat()) {
                Ok(()) => {
                    said.insert(who, number + 1);
                }
                Err(PublishError::NotReady | PublishError::Excluded(_)) => {}
                Err(why) => panic!("seed {seed}: {why}"),
            }
        }
        assert!(world.together(&[0, 1, 3]) > epoch, "seed {seed}: the eviction changes the key");
        world.run(Duration::from_secs(3));

        let whole = world.nodes[0].delivered.clone();
        assert!(whole.is_sorted_by(|a, b| a.0 < b.0), "seed {seed}: places rise");
        let differs = world.nodes[1].delivered.iter().zip(&whole).position(|(a, b)| a != b);
        let around = |all: &[(u64, String, Vec<u8>)]| {
            let at = differs.unwrap_or(all.len().saturating_sub(1)).saturating_sub(3);
            let short = |it: &(u64, String, Vec<u8>)| format!("{} {}{}", it.0, it.1, it.2[8]);
            all.iter().skip(at).take(12).map(short).collect::<Vec<_>>()
        };
        let both = (around(&world.nodes[1].delivered), around(&whole));
        assert_eq!((differs, world.nodes[1].delivered.len()), (None, whole.len()), "seed {seed}: one order: {both:?}");
        // Who joined gets all from its first message on, and the evicted all up to its last.
        let late = &world.nodes[3].delivered;
        assert!(!late.is_empty() && whole.ends_with(late), "seed {seed}: {} of {}", late.len(), whole.len());
        let gone = &world.nodes[2].delivered;
        assert!(whole.starts_with(gone), "seed {seed}: {} of {}", gone.len(), whole.len());
        assert!(gone.len() < whole.len() && evicted.is_some_and(|n| gone.len() >= n), "seed {seed}");
        for who in [0, 1, 3] {
            let name = ["alice", "bob", "carol", "dora"][who];
            let heard: Vec<u64> = whole
                .iter()
                .filter(|(_, from, _)| from == name)
                .map(|(_, _, body)| u64::from_be_bytes(body[1..].try_into().expect("a number")))
                .collect();
            let all: Vec<u64> = (0..said[&who]).collect();
            assert_eq!(heard, all, "seed {seed}: {name}'s messages, each once and in its order");
            assert_eq!(world.nodes[who].failed, 0, "seed {seed}");
        }
    }
}
