//! Sends what nobody said: bytes of every form, plaintext, and changed copies of what it heard.

use std::collections::VecDeque;
use std::time::Duration;

use sealcast_sim::dice::Dice;
use sealcast_sim::{Effect, Node, Reach};
use sealcast_wire::frame::{HEADER_LEN, KIND_OPEN, MAGIC, TAG_LEN};
use sealcast_wire::{Address, Domain, EpochId, Header, Monotonic, Now, Slot};

use crate::member::{MemberCommand, MemberEvent};
use crate::scenarios::fixture::TOPIC;

/// See the module.
pub(super) struct Forger {
    dice: Dice,
    heard: VecDeque<Vec<u8>>,
    next: Monotonic,
    effects: VecDeque<Effect<MemberEvent>>,
}

impl Forger {
    pub(super) fn new(now: Now, dice: Dice) -> Forger {
        Forger { dice, heard: VecDeque::new(), next: now.monotonic + EVERY, effects: VecDeque::new() }
    }

    fn forgery(&mut self) -> Vec<u8> {
        match self.dice.below(6) {
            0 => self.lcm_message(),
            1 => self.sealed(),
            2 => [&[MAGIC, KIND_OPEN][..], &self.bytes(200)].concat(),
            3 => self.bytes(64),
            _ => self.changed(),
        }
    }

    /// A plain LC02 message on the group's topic, which a secured member must not take.
    fn lcm_message(&mut self) -> Vec<u8> {
        let mut datagram = b"LC02".to_vec();
        datagram.extend_from_slice(&(self.dice.bits() as u32).to_be_bytes());
        datagram.extend_from_slice(TOPIC.as_bytes());
        datagram.push(0);
        datagram.extend_from_slice(b"plaintext of nobody");
        datagram
    }

    /// A sealed datagram with a guessed tag; the epoch is one that was heard, where there is one.
    fn sealed(&mut self) -> Vec<u8> {
        let heard = self.heard.iter().rev().find_map(|d| Header::parse(d).ok());
        let epoch = heard.map_or(EpochId { counter: 1, hash: self.dice.bits() }, |h| h.epoch);
        let mut datagram = self.bytes(300);
        datagram.resize(datagram.len().max(HEADER_LEN + TAG_LEN), 0);
        let slot = Slot(self.dice.below(4) as u32);
        let counter = self.dice.below(1 << 40);
        Header { domain: Domain(self.dice.below(3) as u16), epoch, slot, flags: 0, counter }.write(&mut datagram);
        datagram
    }

    /// A heard datagram with some bits changed, cut, or lengthened.
    fn changed(&mut self) -> Vec<u8> {
        if self.heard.is_empty() {
            return self.bytes(40);
        }
        let mut datagram = self.heard[self.dice.index(self.heard.len())].clone();
        match self.dice.below(4) {
            0 => datagram.truncate(self.dice.index(datagram.len().max(1))),
            1 => datagram.extend(self.bytes(20)),
            _ => {
                for _ in 0..=self.dice.below(3) {
                    if !datagram.is_empty() {
                        let at = self.dice.index(datagram.len());
                        datagram[at] ^= 1 << self.dice.below(8);
                    }
                }
            }
        }
        // What somebody said is the replayer's to send again.
        if self.heard.contains(&datagram) {
            datagram.push(0);
        }
        datagram
    }

    fn bytes(&mut self, max: u64) -> Vec<u8> {
        (0..self.dice.below(max)).map(|_| self.dice.bits() as u8).collect()
    }
}

impl Node for Forger {
    type Event = MemberEvent;
    type Command = MemberCommand;

    fn handle(&mut self, _now: Now, _from: Address, datagram: &mut [u8]) {
        if self.heard.len() == HEARD_MAX {
            self.heard.pop_front();
        }
        self.heard.push_back(datagram.to_vec());
    }

    fn command(&mut self, _now: Now, _command: MemberCommand) {}

    fn timeout(&self) -> Option<Monotonic> {
        Some(self.next)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.next = now.monotonic + EVERY;
        let datagram = self.forgery();
        self.effects.push_back(Effect::Send { to: Reach::All, datagram });
    }

    fn poll(&mut self) -> Option<Effect<MemberEvent>> {
        self.effects.pop_front()
    }
}

const EVERY: Duration = Duration::from_millis(2);
const HEARD_MAX: usize = 512;
