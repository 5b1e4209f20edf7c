//! A network without loss in virtual time, and members of a contributory group on it: each with all, or all through one
//! that orders what they say.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use sealcast::group::{Group, Message, Output, Publication, PublishError, ViewEvent};
use sealcast::url::OriginMode;
use sealcast_crypto::identity::Identity;
use sealcast_delivery::memory::{Ordered, Orderer, Start};
use sealcast_delivery::multicast::{Config, Multicast};
use sealcast_delivery::{Batch, Delivery, Outcome, Token};
use sealcast_keys::Command;
use sealcast_keys::contributory::{self, Contributory};
use sealcast_wire::{Address, Guarantee, Monotonic, Now, Utc, View};

/// A member and what it saw.
pub(crate) struct Node<D> {
    pub(crate) group: Group<Contributory, D>,
    pub(crate) delivered: Vec<Message>,
    /// How many views it had seen by then.
    pub(crate) views_then: Vec<usize>,
    pub(crate) views: Vec<ViewEvent>,
    pub(crate) outcomes: Vec<Outcome>,
    /// The same, by message.
    pub(crate) outcome_of: BTreeMap<Token, Outcome>,
}

/// The members, and the datagrams on their way: (when, number) → (from, to, bytes). Member i is at `Node(i + 1)`.
pub(crate) struct Net<D> {
    pub(crate) now: Monotonic,
    pub(crate) nodes: Vec<Node<D>>,
    flying: BTreeMap<(Monotonic, u64), (Address, Address, Vec<u8>)>,
    sent: u64,
    pub(crate) rng: ChaCha20Rng,
    /// How many microseconds datagrams take.
    takes: Range<u64>,
    /// Every sealed datagram that was sent, if it is to be kept.
    pub(crate) tapped: Option<Vec<Vec<u8>>>,
    /// Who orders, and when what is under way between two arrives: it does not overtake.
    orderer: Option<Orderer>,
    /// It shows these members another order from some moment on.
    fork: Option<(Orderer, BTreeSet<Address>)>,
    last: BTreeMap<(Address, Address), Monotonic>,
    /// Members whose programs are stopped, and what waits at their sockets.
    stopped: BTreeMap<usize, Vec<(Address, Vec<u8>)>>,
    /// Best effort leaves beside the order.
    both: bool,
}

impl Net<Multicast> {
    /// Members who multicast; datagrams overtake each other.
    pub(crate) fn new(seed: u64) -> Net<Multicast> {
        Net::of(seed, 100..2100, None)
    }

    /// A member starts; its index.
    pub(crate) fn start(&mut self, identity: &Arc<Identity>) -> usize {
        self.enter(identity, |_| Multicast::new(Config::default()))
    }
}

impl Net<Ordered> {
    /// Members whose every message takes its position in one order, or, with `both` channels, only what is published so.
    pub(crate) fn ordered(seed: u64, both: bool) -> Net<Ordered> {
        Net { both, ..Net::of(seed, 500..8500, Some(Orderer::new())) }
    }

    /// A member starts; its index.
    pub(crate) fn start(&mut self, identity: &Arc<Identity>) -> usize {
        let both = self.both;
        self.enter(identity, |rng| match both {
            true => Ordered::new(ORDERER, Start::Head),
            false => Ordered::ordering_all(ORDERER, Start::Head, rng.next_u64()),
        })
    }
}

impl<D: Delivery> Net<D> {
    fn of(seed: u64, takes: Range<u64>, orderer: Option<Orderer>) -> Net<D> {
        Net {
            now: Monotonic(1_000_000),
            nodes: Vec::new(),
            flying: BTreeMap::new(),
            sent: 0,
            rng: ChaCha20Rng::seed_from_u64(seed),
            takes,
            tapped: None,
            orderer,
            fork: None,
            last: BTreeMap::new(),
            stopped: BTreeMap::new(),
            both: false,
        }
    }

    /// From now on, whoever orders shows these members another order than the rest.
    pub(crate) fn fork(&mut self, members: &[usize]) {
        let side = members.iter().map(|i| Address::Node(*i as u32 + 1)).collect();
        self.fork = self.orderer.clone().map(|orderer| (orderer, side));
    }

    /// Shows something to one side of a fork.
    fn show(&mut self, aside: bool, datagram: &[u8]) {
        let all = (1..=self.nodes.len() as u32).map(Address::Node);
        let there = |to: &Address| self.fork.as_ref().is_some_and(|(_, side)| side.contains(to) == aside);
        for to in all.filter(there).collect::<Vec<_>>() {
            self.send(ORDERER, Some(to), datagram);
        }
    }

    /// A member's program is stopped.
    pub(crate) fn stop(&mut self, node: usize) {
        self.stopped.entry(node).or_default();
    }

    /// It goes on: its timers are due, and it takes what waits.
    pub(crate) fn resume(&mut self, node: usize) {
        let waiting = self.stopped.remove(&node).unwrap_or_default();
        let now = self.now();
        self.nodes[node].group.handle_timeout(now);
        self.pump(node);
        for (from, bytes) in waiting {
            self.arrive(from, Address::Node(node as u32 + 1), bytes);
        }
    }

    fn enter(&mut self, identity: &Arc<Identity>, transport: impl FnOnce(&mut ChaCha20Rng) -> D) -> usize {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        let config = contributory::Config { floor: Utc(0), ..contributory::Config::new("ward3", identity.clone()) };
        let keys = Contributory::new(config, seed, self.now());
        let group = Group::new(keys, transport(&mut self.rng), OriginMode::Auto).expect("a pair that fits");
        self.nodes.push(Node {
            group,
            delivered: Vec::new(),
            views_then: Vec::new(),
            views: Vec::new(),
            outcomes: Vec::new(),
            outcome_of: BTreeMap::new(),
        });
        self.pump(self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    pub(crate) fn now(&self) -> Now {
        Now { monotonic: self.now, utc: Some(super::SIMULATED) }
    }

    pub(crate) fn publish(&mut self, node: usize, topic: &str, body: &[u8]) -> Result<Token, PublishError> {
        let guarantee = if self.orderer.is_some() { Guarantee::Ordered } else { Guarantee::BestEffort };
        self.publish_as(node, topic, body, guarantee)
    }

    pub(crate) fn publish_as(
        &mut self,
        node: usize,
        topic: &str,
        body: &[u8],
        guarantee: Guarantee,
    ) -> Result<Token, PublishError> {
        let message = Publication { topic, body, guarantee, sent_micros: None };
        let now = self.now();
        let token = self.nodes[node].group.publish(now, message)?;
        self.pump(node);
        Ok(token)
    }

    pub(crate) fn command(&mut self, node: usize, command: Command) {
        let now = self.now();
        self.nodes[node].group.command(now, command).expect("a command that may be given");
        self.pump(node);
    }

    /// Somebody sends a datagram of its own making to everybody.
    pub(crate) fn inject(&mut self, datagram: &[u8]) {
        self.send(Address::Node(u32::MAX), None, datagram);
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let arrival = self.flying.keys().next().map(|(at, _)| *at);
            let runs = |(i, _): &(usize, &Node<D>)| !self.stopped.contains_key(i);
            let timer = self.nodes.iter().enumerate().filter(runs).filter_map(|(_, n)| n.group.timeout()).min();
            let Some(next) = [arrival, timer].into_iter().flatten().min().filter(|t| *t <= end) else { break };
            self.now = self.now.max(next);
            while let Some(entry) = self.flying.first_entry().filter(|e| e.key().0 <= self.now) {
                let (from, to, bytes) = entry.remove();
                self.arrive(from, to, bytes);
            }
            for i in 0..self.nodes.len() {
                let runs = !self.stopped.contains_key(&i);
                if runs && self.nodes[i].group.timeout().is_some_and(|at| at <= self.now) {
                    let now = self.now();
                    self.nodes[i].group.handle_timeout(now);
                    self.pump(i);
                }
            }
        }
        self.now = end;
    }

    /// The epoch of these if all are in one view of just them.
    pub(crate) fn common(&self, who: &[usize]) -> Option<u32> {
        let views: Vec<_> = who.iter().filter_map(|i| self.nodes[*i].group.view()).collect();
        let alike = |v: &&Arc<View>| v.members.len() == who.len() && v.epoch == views[0].epoch;
        (views.len() == who.len() && views.iter().all(alike)).then(|| views[0].epoch.counter)
    }

    /// Lets time pass until all of these are in one view of just them; its epoch.
    pub(crate) fn together(&mut self, who: &[usize]) -> u32 {
        for _ in 0..4000 {
            if let Some(epoch) = self.common(who) {
                return epoch;
            }
            self.run(Duration::from_millis(5));
        }
        panic!("{who:?} are not together");
    }

    fn arrive(&mut self, from: Address, to: Address, mut bytes: Vec<u8>) {
        match (to, &mut self.orderer) {
            (ORDERER, Some(orderer)) => {
                let aside = self.fork.as_ref().map(|(_, side)| side.contains(&from));
                let orderer = match &mut self.fork {
                    Some((other, side)) if side.contains(&from) => other,
                    Some(_) | None => orderer,
                };
                orderer.handle(from, &bytes);
                let ordered: Vec<_> = std::iter::from_fn(|| orderer.poll()).collect();
                for (to, datagram) in ordered {
                    match (to, aside) {
                        (None, Some(aside)) => self.show(aside, &datagram),
                        (Some(_), _) | (None, None) => self.send(ORDERER, to, &datagram),
                    }
                }
            }
            (Address::Node(n @ 1..), _) => {
                let (i, now) = (n as usize - 1, self.now());
                if let Some(waiting) = self.stopped.get_mut(&i) {
                    waiting.push((from, bytes));
                    return;
                }
                self.nodes[i].group.handle_datagram(now, from, &mut bytes);
                self.pump(i);
            }
            _ => unreachable!("nobody is there"),
        }
    }

    fn send(&mut self, from: Address, to: Option<Address>, datagram: &[u8]) {
        if let Some(tapped) = &mut self.tapped {
            tapped.push(datagram.to_vec());
        }
        let all = (1..=self.nodes.len() as u32).map(Address::Node).collect();
        for to in to.map_or(all, |to| vec![to]) {
            let takes = self.takes.start + self.rng.next_u64() % (self.takes.end - self.takes.start);
            let mut at = self.now + Duration::from_micros(takes);
            if self.orderer.is_some() {
                let last = self.last.entry((from, to)).or_default();
                *last = at.max(*last);
                at = *last;
            }
            self.sent += 1;
            self.flying.insert((at, self.sent), (from, to, datagram.to_vec()));
        }
    }

    fn pump(&mut self, i: usize) {
        let now = self.now();
        loop {
            let mut batch = Batch::default();
            match self.nodes[i].group.poll(now, &mut batch) {
                None => break,
                Some(Output::Transmit(_)) => {
                    let from = Address::Node(i as u32 + 1);
                    batch.iter().for_each(|datagram| self.send(from, batch.to, datagram));
                }
                Some(Output::Deliver(message)) => {
                    let views = self.nodes[i].views.len();
                    self.nodes[i].views_then.push(views);
                    self.nodes[i].delivered.push(message);
                }
                Some(Output::View(event)) => self.nodes[i].views.push(event),
                Some(Output::Outcome(token, outcome)) => {
                    self.nodes[i].outcomes.push(outcome);
                    self.nodes[i].outcome_of.insert(token, outcome);
                }
                Some(Output::Store { .. }) => self.nodes[i].group.stored(),
                Some(Output::Notice { .. } | Output::Described(_) | Output::Subscribed(..) | Output::State(..)) => {}
            }
        }
    }
}

/// Where the one is that orders.
const ORDERER: Address = Address::Node(0);
