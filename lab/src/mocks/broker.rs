//! A broker of the threshold-shaped scheme: follows the order, judges, and hands out its shares, later.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use sealcast_delivery::memory::{Heard, Ordered, Start, attachment, heard};
use sealcast_delivery::{Batch, Delivery, Input, Output};
use sealcast_sim::{Effect, Node, Reach};
use sealcast_wire::frame::OPEN_HEADER_LEN;
use sealcast_wire::{Address, Monotonic, Now};

use super::threshold_shaped::answers;
use crate::member::{MemberCommand, MemberEvent};

/// The broker as a node.
pub struct Broker {
    config: Config,
    order: Ordered,
    rng: ChaCha8Rng,
    /// Headers by index.
    log: BTreeMap<u64, Vec<u8>>,
    /// Shares that leave at their time: to (node, index).
    later: BTreeMap<(Monotonic, u64), (usize, u64)>,
    made: u64,
    effects: VecDeque<Effect<MemberEvent>>,
}

/// How a broker is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which broker.
    pub broker: u16,
    /// Where the orderer is.
    pub orderer: Address,
    /// The readers' names, by node.
    pub readers: Vec<String>,
    /// Who of them may not read.
    pub denied: Vec<usize>,
    /// Whether its shares are false.
    pub lies: bool,
    /// Its chance.
    pub seed: [u8; 32],
}

impl Broker {
    /// A broker at the beginning of the order.
    pub fn new(config: Config) -> Broker {
        let order = Ordered::new(config.orderer, Start::Beginning);
        let rng = ChaCha8Rng::from_seed(config.seed);
        let (log, later, effects) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        Broker { config, order, rng, log, later, made: 0, effects }
    }

    fn drain(&mut self, now: Now) {
        let mut batch = Batch::default();
        while let Some(output) = self.order.poll(&mut batch) {
            match output {
                Output::Transmit(_) => {
                    let to = match batch.to {
                        Some(Address::Node(node)) => Reach::One(node as usize),
                        _ => Reach::All,
                    };
                    let datagrams: Vec<Vec<u8>> = batch.iter().map(<[u8]>::to_vec).collect();
                    self.effects.extend(datagrams.into_iter().map(|datagram| Effect::Send { to, datagram }));
                    batch.clear();
                }
                Output::Deliver(message) => {
                    self.log.insert(message.index, message.header);
                    for reader in 0..self.config.readers.len() {
                        let wait = Duration::from_micros(u64::from(self.rng.next_u32()) % SHARE_DELAY_MAX_MICROS);
                        self.send_later(now.monotonic + wait, reader, message.index);
                    }
                }
                _ => {}
            }
        }
    }

    fn send_later(&mut self, at: Monotonic, reader: usize, index: u64) {
        self.made += 1;
        self.later.insert((at, self.made), (reader, index));
    }

    fn answer(&mut self, reader: usize, index: u64, proof: bool) {
        let Some(header) = self.log.get(&index) else { return };
        let allowed = !self.config.denied.contains(&reader);
        let name = &self.config.readers[reader];
        let Config { broker, lies, .. } = self.config;
        for bytes in answers(broker, index, header, name, allowed, lies, proof, &mut self.rng) {
            let datagram = attachment(index, broker, &bytes);
            self.effects.push_back(Effect::Send { to: Reach::One(reader), datagram });
        }
    }
}

impl Node for Broker {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        if let (Some(Heard::WantsShare { index, proved }), Address::Node(node)) = (heard(datagram), from)
            && (node as usize) < self.config.readers.len()
        {
            return self.answer(node as usize, index, proved);
        }
        if datagram.len() > OPEN_HEADER_LEN {
            self.order.handle(now, Input::open(from, &mut datagram[OPEN_HEADER_LEN..]));
            self.drain(now);
        }
    }

    fn command(&mut self, _now: Now, _command: MemberCommand) {}

    fn timeout(&self) -> Option<Monotonic> {
        let later = self.later.first_key_value().map(|((at, _), _)| *at);
        [later, self.order.timeout()].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Now) {
        self.order.handle_timeout(now, None);
        self.drain(now);
        while let Some(entry) = self.later.first_entry().filter(|e| e.key().0 <= now.monotonic) {
            let (reader, index) = entry.remove();
            self.answer(reader, index, false);
        }
    }

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        self.effects.pop_front()
    }
}

/// A broker takes up to so long to compute and release its share.
const SHARE_DELAY_MAX_MICROS: u64 = 20_000;
