//! A network without loss in virtual time, and members of a contributory group on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use sealcast::group::{Group, Message, Output, Publication, PublishError, ViewEvent};
use sealcast::url::OriginMode;
use sealcast_crypto::identity::Identity;
use sealcast_delivery::Batch;
use sealcast_delivery::multicast::{Config, Multicast};
use sealcast_keys::Command;
use sealcast_keys::contributory::{self, Contributory};
use sealcast_wire::{Address, Guarantee, Monotonic, Now, Utc};

/// A member and what it saw.
pub(crate) struct Node {
    pub(crate) group: Group<Contributory, Multicast>,
    pub(crate) delivered: Vec<Message>,
    pub(crate) views: Vec<ViewEvent>,
}

/// The members, and the datagrams on their way: (when, number) → (to, from, bytes).
pub(crate) struct Net {
    pub(crate) now: Monotonic,
    pub(crate) nodes: Vec<Node>,
    flying: BTreeMap<(Monotonic, u64), (usize, usize, Vec<u8>)>,
    sent: u64,
    rng: ChaCha20Rng,
    /// Every sealed datagram that was sent, if it is to be kept.
    pub(crate) tapped: Option<Vec<Vec<u8>>>,
}

impl Net {
    pub(crate) fn new(seed: u64) -> Net {
        let rng = ChaCha20Rng::seed_from_u64(seed);
        Net { now: Monotonic(1_000_000), nodes: Vec::new(), flying: BTreeMap::new(), sent: 0, rng, tapped: None }
    }

    pub(crate) fn now(&self) -> Now {
        Now { monotonic: self.now, utc: Some(super::SIMULATED) }
    }

    /// A member starts; its index.
    pub(crate) fn start(&mut self, identity: &Arc<Identity>) -> usize {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        let config = contributory::Config { floor: Utc(0), ..contributory::Config::new("ward3", identity.clone()) };
        let keys = Contributory::new(config, seed, self.now());
        let group = Group::new(keys, Multicast::new(Config::default()), OriginMode::Auto).expect("a pair that fits");
        self.nodes.push(Node { group, delivered: Vec::new(), views: Vec::new() });
        self.pump(self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    pub(crate) fn publish(&mut self, node: usize, topic: &str, body: &[u8]) -> Result<(), PublishError> {
        let message = Publication { topic, body, guarantee: Guarantee::BestEffort, sent_micros: None };
        let now = self.now();
        self.nodes[node].group.publish(now, message)?;
        self.pump(node);
        Ok(())
    }

    pub(crate) fn command(&mut self, node: usize, command: Command) {
        let now = self.now();
        self.nodes[node].group.command(now, command).expect("a command that may be given");
        self.pump(node);
    }

    /// Somebody sends a datagram of its own making to everybody.
    pub(crate) fn inject(&mut self, datagram: &[u8]) {
        self.send(usize::MAX, datagram);
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let arrival = self.flying.keys().next().map(|(at, _)| *at);
            let timer = self.nodes.iter().filter_map(|n| n.group.timeout()).min();
            let Some(next) = [arrival, timer].into_iter().flatten().min().filter(|t| *t <= end) else { break };
            self.now = self.now.max(next);
            let now = self.now();
            while let Some(entry) = self.flying.first_entry().filter(|e| e.key().0 <= self.now) {
                let (to, from, mut bytes) = entry.remove();
                let from = Address::Node(u32::try_from(from).unwrap_or(u32::MAX));
                self.nodes[to].group.handle_datagram(now, from, &mut bytes);
                self.pump(to);
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

    /// Lets time pass until all of these are in one view of just them.
    pub(crate) fn together(&mut self, who: &[usize]) {
        for _ in 0..2000 {
            let views: Vec<_> = who.iter().filter_map(|i| self.nodes[*i].group.view()).collect();
            let one = views.len() == who.len()
                && views.iter().all(|v| v.members.len() == who.len() && v.epoch == views[0].epoch);
            if one {
                return;
            }
            self.run(Duration::from_millis(5));
        }
        panic!("{who:?} are not together");
    }

    fn send(&mut self, from: usize, datagram: &[u8]) {
        if let Some(tapped) = &mut self.tapped {
            tapped.push(datagram.to_vec());
        }
        for to in 0..self.nodes.len() {
            self.sent += 1;
            // 0.1 to 2.1 ms, so that datagrams overtake each other.
            let delay = Duration::from_micros(100 + self.rng.next_u64() % 2000);
            self.flying.insert((self.now + delay, self.sent), (to, from, datagram.to_vec()));
        }
    }

    fn pump(&mut self, i: usize) {
        let now = self.now();
        loop {
            let mut batch = Batch::default();
            match self.nodes[i].group.poll(now, &mut batch) {
                None => break,
                Some(Output::Transmit(_)) => batch.iter().for_each(|datagram| self.send(i, datagram)),
                Some(Output::Deliver(message)) => self.nodes[i].delivered.push(message),
                Some(Output::View(event)) => self.nodes[i].views.push(event),
                Some(Output::Store { .. }) => self.nodes[i].group.stored(),
                Some(Output::Outcome(..) | Output::Notice(_)) => {}
            }
        }
    }
}
