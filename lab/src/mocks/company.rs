//! The mock schemes as companies: who plays when a scenario is theirs.

use std::collections::VecDeque;

use sealcast::url::OriginMode;
use sealcast_delivery::memory::{Ordered, Orderer, Start};
use sealcast_wire::{Address, CertHash, Monotonic, Now};

use super::mls_shaped::{self, MlsShaped};
use crate::scenarios::company::{Company, Player};
use crate::sim::member::{Ask, Member, Told, keys_records};
use crate::sim::{Birth, Effect, Node, Reach};

/// The MLS-shaped scheme over an orderer, with member 0 as founder.
pub struct MlsCompany {
    /// How many members; the orderer's node follows them.
    pub members: usize,
}

impl Company for MlsCompany {
    fn cert(&self, member: usize) -> CertHash {
        mls_shaped::cert(&name(member))
    }

    fn member(&self, member: usize, _life: u32, seed: [u8; 32]) -> Birth<Player> {
        let orderer = Address::Node(self.members as u32);
        Box::new(move |now, records| {
            let config = mls_shaped::Config { name: name(member), founder: member == 0, seed };
            let keys = MlsShaped::restore(config, &keys_records(records));
            Box::new(Member::new(now, keys, Ordered::new(orderer, Start::Head), OriginMode::Auto))
        })
    }

    fn helpers(&self) -> Vec<(bool, Birth<Player>)> {
        vec![(true, orderer())]
    }

    fn admits(&self) -> bool {
        true
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
    effects: VecDeque<Effect<Told>>,
}

impl Node for OrdererNode {
    type Told = Told;
    type Command = Ask;

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

    fn command(&mut self, _now: Now, _ask: Ask) {}

    fn timeout(&self) -> Option<Monotonic> {
        None
    }

    fn handle_timeout(&mut self, _now: Now) {}

    fn poll(&mut self) -> Option<Effect<Told>> {
        self.effects.pop_front()
    }
}
