//! A group around a leader in the simulator, and what an onlooker sees of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};
use sealcast::group::Epoch;
use sealcast_crypto::aead::Suite;
use sealcast_keys::Command;
use sealcast_sim::dice::Chance;
use sealcast_sim::network::Network;
use sealcast_sim::{Observer, Reach, Sim};
use sealcast_wire::frame::{FLAG_RELIABLE, Header, KIND_SEALED, MAGIC};
use sealcast_wire::{Domain, EpochId, Guarantee, Monotonic, Slot, View};

use crate::Failure;
use crate::checkers::Body;
use crate::member::{MemberCommand, MemberEvent};
use crate::scenarios::center::CenterRobots;
use crate::scenarios::fixture::{Fixture, Player};

/// Members, who may come and go, and their centre.
pub(super) struct Group {
    sim: Sim<Player>,
    robots: CenterRobots,
    rng: ChaCha20Rng,
    pub(super) seen: Seen,
}

/// What was seen of them.
#[derive(Default)]
pub(super) struct Seen {
    /// By member.
    views: Vec<Option<Arc<View>>>,
    /// Who took a view, and when.
    pub(super) installed: Vec<(Monotonic, usize, EpochId)>,
    /// Who published which message, and when it was asked to.
    pub(super) published: Vec<(Monotonic, Body)>,
    /// Who got which message, and when.
    pub(super) delivered: Vec<(Monotonic, usize, Body)>,
    /// Under which epochs datagrams were sealed, and when they left.
    pub(super) sealed: Vec<(Monotonic, EpochId)>,
    pub(super) sent: Sent,
    pub(super) traffic: Traffic,
    /// Numbers of messages that were refused, since the channel was full.
    pub(super) refused: Vec<u64>,
    /// By member: what its datagrams can be opened with.
    epochs: Vec<Option<Arc<Epoch>>>,
    /// Reliable records that were sent before.
    records: BTreeSet<(EpochId, Slot, Domain, u64)>,
}

/// Sealed datagrams, by what they are for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    /// Reliable records, once each.
    pub(super) data: u64,
    /// Reliable records that were sent again.
    pub(super) repairs: u64,
    /// Those in which a member says what it lacks.
    pub(super) naks: u64,
    /// All others: acknowledgements, summaries, heartbeats.
    pub(super) other: u64,
}

impl Traffic {
    pub(super) fn all(&self) -> u64 {
        self.data + self.repairs + self.naks + self.other
    }

    pub(super) fn add(&mut self, more: Traffic) {
        self.data += more.data;
        self.repairs += more.repairs;
        self.naks += more.naks;
        self.other += more.other;
    }
}

/// What crossed the network.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
}

impl Group {
    /// So many whose payloads this cipher seals can be members; nobody is there yet but the centre.
    pub(super) fn sealing_by(suite: Suite, members: usize, network: Network, seed: u64) -> Group {
        Group::of(CenterRobots::new(members).sealing_by(suite), members, network, seed)
    }

    /// The same with the default cipher.
    pub(super) fn new(members: usize, network: Network, seed: u64) -> Group {
        Group::of(CenterRobots::new(members), members, network, seed)
    }

    /// The same, whose members publish fifo, too.
    pub(super) fn reliable(members: usize, network: Network, seed: u64) -> Group {
        Group::of(CenterRobots::new(members).reliable(), members, network, seed)
    }

    fn of(robots: CenterRobots, members: usize, network: Network, seed: u64) -> Group {
        let mut sim = Sim::new(seed, network);
        (0..members).for_each(|_| _ = sim.add(true));
        let mut seen = Seen { views: vec![None; members], epochs: vec![None; members], ..Seen::default() };
        for (multicast, birth) in robots.helpers() {
            let node = sim.add(multicast);
            sim.start(node, birth, &mut seen);
        }
        Group { sim, robots, rng: ChaCha20Rng::seed_from_u64(seed), seen }
    }

    pub(super) fn now(&self) -> Monotonic {
        self.sim.now()
    }

    /// From now on each copy of a datagram is lost by this chance.
    pub(super) fn lose(&mut self, loss: Chance) {
        self.sim.network.loss = loss;
    }

    pub(super) fn start(&mut self, member: usize) {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        self.sim.start(member, self.robots.member(member, 0, seed), &mut self.seen);
    }

    pub(super) fn leave(&mut self, member: usize) {
        self.seen.views[member] = None;
        self.sim.command(member, MemberCommand::Command(Command::Leave), &mut self.seen);
    }

    pub(super) fn publish(&mut self, member: usize, number: u64, bytes: usize, guarantee: Guarantee) {
        let (topic, _) =
            *self.robots.channels().iter().find(|it| it.1 == guarantee).expect("the group has that channel");
        let body = Body { author: member as u32, life: 1, number };
        self.seen.published.push((self.sim.now(), body));
        let command = MemberCommand::Publish { topic: topic.into(), body: body.bytes(bytes), guarantee };
        self.sim.command(member, command, &mut self.seen);
    }

    /// Lets time pass.
    pub(super) fn rest(&mut self, time: Duration) {
        self.sim.run_until(self.sim.now() + time, &mut self.seen);
    }

    /// Runs until these, and nobody else, are in one view; how long that took.
    ///
    /// # Errors
    /// If it takes more than half a minute.
    pub(super) fn meet(&mut self, members: usize) -> Result<Duration, Failure> {
        let began = self.sim.now();
        while !self.seen.together(members) {
            if self.sim.now().since(began) > MEETS_WITHIN {
                return Err(format!("{members} members have no common view after {} s", MEETS_WITHIN.as_secs()).into());
            }
            self.sim.step(self.sim.now() + STEP, &mut self.seen);
        }
        Ok(self.sim.now().since(began))
    }
}

impl Seen {
    /// What was seen so far is of no interest; who is in which view is.
    pub(super) fn forget(&mut self) {
        let (views, epochs) = (std::mem::take(&mut self.views), std::mem::take(&mut self.epochs));
        *self = Seen { views, epochs, ..Seen::default() };
    }

    /// Counts a sealed datagram of a member's.
    fn count(&mut self, from: usize, header: &Header, datagram: &[u8]) {
        let traffic = &mut self.traffic;
        if header.flags & FLAG_RELIABLE != 0 {
            match self.records.insert((header.epoch, header.slot, header.domain, header.counter)) {
                true => traffic.data += 1,
                false => traffic.repairs += 1,
            }
            return;
        }
        let epoch = self.epochs.get(from).and_then(Option::as_ref).filter(|it| it.view.epoch == header.epoch);
        let protect = epoch.and_then(|it| it.protect.as_ref());
        let mut datagram = datagram.to_vec();
        // Nobody but we opens a datagram with its sender's own keys, so no replay window is in the way.
        match protect.and_then(|it| it.open(&mut datagram).ok()) {
            Some((.., plaintext)) if says_nak(plaintext) => traffic.naks += 1,
            _ => traffic.other += 1,
        }
    }

    fn together(&self, members: usize) -> bool {
        let Some(first) = &self.views[0] else { return false };
        let same = |it: &Option<Arc<View>>| it.as_ref().is_some_and(|it| it.epoch == first.epoch);
        first.members.len() == members && self.views[..members].iter().all(same)
    }
}

impl Observer<Player> for Seen {
    fn sent(&mut self, at: Monotonic, from: usize, _to: Reach, datagram: &[u8]) {
        self.sent.datagrams += 1;
        self.sent.bytes += datagram.len() as u64;
        if !datagram.starts_with(&[MAGIC, KIND_SEALED]) {
            return;
        }
        let counter = datagram[4..8].try_into().expect("four bytes");
        let hash = datagram[8..16].try_into().expect("eight bytes");
        let epoch = EpochId { counter: u32::from_be_bytes(counter), hash: u64::from_be_bytes(hash) };
        self.sealed.push((at, epoch));
        if let Ok(header) = Header::parse(datagram) {
            self.count(from, &header, datagram);
        }
    }

    fn told(&mut self, at: Monotonic, node: usize, told: MemberEvent) {
        match told {
            MemberEvent::Installed(epoch) => {
                self.installed.push((at, node, epoch.view.epoch));
                if let Some(view) = self.views.get_mut(node) {
                    *view = Some(epoch.view.clone());
                    self.epochs[node] = Some(epoch);
                }
            }
            MemberEvent::Excluded(_) => self.views[node] = None,
            MemberEvent::Delivered(message) => {
                if let Some(body) = Body::read(message.payload()) {
                    self.delivered.push((at, node, body));
                }
            }
            MemberEvent::Refused(body, _) => self.refused.extend(Body::read(&body).map(|it| it.number)),
            _ => {}
        }
    }
}

/// Whether a record begins with a NAK, after heartbeats and other control frames (WIRE, "Frames").
fn says_nak(mut frames: &[u8]) -> bool {
    const HEARTBEAT: u8 = 3;
    const CONTROL: u8 = 4;
    const NAK: u8 = 4;
    loop {
        match frames {
            [HEARTBEAT, rest @ ..] if rest.len() >= 8 => frames = &rest[8..],
            [CONTROL, _, _, NAK, ..] => return true,
            [CONTROL, high, low, rest @ ..] => {
                let Some(next) = rest.get(usize::from(u16::from_be_bytes([*high, *low]))..) else { return false };
                frames = next;
            }
            _ => return false,
        }
    }
}

const MEETS_WITHIN: Duration = Duration::from_secs(30);
/// How far a step looks ahead.
const STEP: Duration = Duration::from_millis(1);
