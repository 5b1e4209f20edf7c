//! The mock schemes as companies: who plays when a scenario is theirs.

use std::collections::VecDeque;

use sealcast::url::OriginMode;
use sealcast_delivery::memory::{Ordered, Orderer, Start};
use sealcast_sim::{Birth, Effect, Node, Reach};
use sealcast_wire::{Address, CertHash, Guarantee, Monotonic, Now};

use super::broker::{self, Broker};
use super::mls_shaped::{self, MlsShaped};
use super::threshold_shaped::{BROKERS, ThresholdShaped};
use crate::member::{Member, MemberCommand, MemberEvent, keys_records};
use crate::scenarios::channels::BOTH;
use crate::scenarios::fixture::{Fixture, Player, TOPIC, TOPIC_ORDERED};

/// The MLS-shaped scheme over an orderer, with member 0 as founder.
pub struct MlsFixture {
    /// How many members; the orderer's node follows them.
    pub members: usize,
}

impl Fixture for MlsFixture {
    fn cert(&self, member: usize) -> CertHash {
        mls_shaped::cert(&name(member))
    }

    fn member(&self, member: usize, _life: u32, seed: [u8; 32]) -> Birth<Player> {
        let orderer = Address::Node(self.members as u32);
        Box::new(move |now, records| {
            let config = mls_shaped::Config { name: name(member), founder: member == 0, seed };
            let records = keys_records(records);
            let start = mls_shaped::position(&records).map_or(Start::Head, Start::At);
            let keys = MlsShaped::restore(config, &records);
            Box::new(Member::new(now, keys, Ordered::new(orderer, start), OriginMode::Auto))
        })
    }

    fn helpers(&self) -> Vec<(bool, Birth<Player>)> {
        vec![(true, orderer())]
    }

    fn admits(&self) -> bool {
        true
    }

    fn channels(&self) -> &'static [(&'static str, Guarantee)] {
        BOTH
    }

    fn secrets(&self) -> Vec<Vec<u8>> {
        vec![TOPIC.into(), TOPIC_ORDERED.into()]
    }
}

/// The threshold-shaped scheme over an orderer and four brokers, of which the last one lies; the last
/// member may not read.
pub struct ThresholdFixture {
    /// How many members; orderer and brokers follow them.
    pub members: usize,
}

impl ThresholdFixture {
    /// The brokers, who let all but these members read; the last one lies.
    pub fn brokers(&self, denied: &[usize]) -> Vec<(bool, Birth<Player>)> {
        let readers: Vec<String> = (0..self.members).map(name).collect();
        let birth =
            |config: broker::Config| -> Birth<Player> { Box::new(move |_, _| Box::new(Broker::new(config.clone()))) };
        brokers(Address::Node(self.members as u32), &readers, denied).map(|config| (true, birth(config))).collect()
    }
}

/// Brokers that follow this orderer, for these readers by node, of whom some may not read; the last one lies.
pub fn brokers<'a>(
    orderer: Address,
    readers: &'a [String],
    denied: &'a [usize],
) -> impl Iterator<Item = broker::Config> + use<'a> {
    (0..BROKERS).map(move |broker| {
        let (readers, denied, lies) = (readers.to_vec(), denied.to_vec(), broker + 1 == BROKERS);
        broker::Config { broker, orderer, readers, denied, lies, seed: [broker as u8; 32] }
    })
}

impl Fixture for ThresholdFixture {
    fn cert(&self, member: usize) -> CertHash {
        mls_shaped::cert(&name(member))
    }

    fn member(&self, member: usize, _life: u32, seed: [u8; 32]) -> Birth<Player> {
        let orderer = Address::Node(self.members as u32);
        let roster: Vec<String> = (0..self.members - 1).map(name).collect();
        Box::new(move |now, _| {
            let keys = ThresholdShaped::new(&name(member), roster.clone(), seed);
            Box::new(Member::new(now, keys, Ordered::new(orderer, Start::Beginning), OriginMode::Auto))
        })
    }

    fn helpers(&self) -> Vec<(bool, Birth<Player>)> {
        let mut helpers = vec![(true, orderer())];
        helpers.extend(self.brokers(&[self.members - 1]));
        helpers
    }

    fn secrets(&self) -> Vec<Vec<u8>> {
        Vec::new() // brokers order by topic, in clear
    }

    fn channels(&self) -> &'static [(&'static str, Guarantee)] {
        &[(TOPIC, Guarantee::Ordered)]
    }
}

/// The name of a mock member.
pub fn name(member: usize) -> String {
    format!("member {member}")
}

/// An orderer as a node.
pub fn orderer() -> Birth<Player> {
    Box::new(|_, _| Box::new(OrdererNode { orderer: Orderer::new(), effects: VecDeque::new() }))
}

struct OrdererNode {
    orderer: Orderer,
    effects: VecDeque<Effect<MemberEvent>>,
}

impl Node for OrdererNode {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, _now: Now, from: Address, datagram: &mut [u8]) {
        self.orderer.handle(from, datagram);
        while let Some((to, datagram)) = self.orderer.poll() {
            let to = match to {
                Some(Address::Node(node)) => Reach::One(node as usize),
                _ => Reach::All,
            };
            self.effects.push_back(Effect::Send { to, datagram });
        }
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
