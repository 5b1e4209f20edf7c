//! A sender and many receivers that each lose one datagram in twenty, simulated: what repairing that takes.
//!
//! The members' channel is the real one, under keys that a test scheme makes: to agree on real ones takes 200 members
//! longer than to send. What a member says to one other alone reaches that one, as over the network.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sealcast_crypto::secret::Secret;
use sealcast_delivery::multicast::Config;
use sealcast_delivery::multicast::frame::{Frame, Frames};
use sealcast_delivery::sequencer::Sequencer;
use sealcast_delivery::{Batch, Delivery as _, Input, Outgoing, Output, What};
use sealcast_sim::dice::Chance;
use sealcast_sim::network::Network;
use sealcast_sim::{Effect, Node, Observer, Reach, Sim};
use sealcast_wire::frame::FLAG_RELIABLE;
use sealcast_wire::{
    Access, Address, CertHash, Change, Domain, EpochId, Guarantee, Header, Incarnation, Member, MemberId, Monotonic,
    Now, Protect, Slot, To, View, limits,
};

use super::AREA;
use crate::Failure;
use crate::figures::{Bench, Goal, Row};
use crate::mocks::protect::MockProtect;

pub(in crate::figures) const LOSSY: &[&str] = &["ord-200", "ord-200-naks", "ord-3-naks"];

/// What is sent for the data, and how often receivers ask.
pub(in crate::figures) fn lossy(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let seeds = bench.pick(1, 3);
    let how = format!("fifo, {MESSAGES} messages of 1 KB, one in 100 us, each copy lost by itself, {seeds} seeds");
    let mut rows = Vec::new();
    if bench.wants(LOSSY[0]) || bench.wants(LOSSY[1]) {
        let seen = play_all(bench, 200, seeds)?;
        let what = "data / all that is sent for it, with repairs and parity: 200 receivers, 5 %, simulated";
        let row = Row::new(AREA, LOSSY[0], what, "ratio", Goal::AtLeast(0.7)).measured(seen.share_of_data(), &*how);
        let row = row.part("data", seen.data as f64).part("repairs", seen.repairs as f64);
        rows.push(row.part("parities", seen.parities as f64).part("acknowledgements and others", seen.others as f64));
        rows.push(naks(LOSSY[1], &seen, 200, 2.0, &how));
    }
    if bench.wants(LOSSY[2]) {
        rows.push(naks(LOSSY[2], &play_all(bench, 3, seeds)?, 3, 1.3, &how));
    }
    Ok(rows)
}

fn naks(id: &str, seen: &Seen, receivers: usize, goal: f64, how: &str) -> Row {
    let lost = seen.data as f64 * (1.0 - (1.0 - LOSS).powi(receivers as i32));
    let what = format!("NAKs per datagram that anyone lost: {receivers} receivers, 5 %, simulated");
    let row = Row::new(AREA, id, what, "NAKs", Goal::AtMost(goal)).measured(seen.naks as f64 / lost, how);
    row.part("NAKs", seen.naks as f64).part("data", seen.data as f64)
}

fn play_all(bench: &Bench, receivers: usize, seeds: u64) -> Result<Seen, Failure> {
    let mut all = Seen::new(receivers + 1);
    for seed in 1..=seeds {
        bench.bar.tick();
        let seen = play(receivers, MESSAGES, seed);
        let missing = (MESSAGES * receivers) as u64 - seen.delivered;
        if missing > 0 {
            return Err(format!("{missing} deliveries are missing, of seed {seed}").into());
        }
        all.add(&seen);
    }
    Ok(all)
}

/// One sends fifo to so many.
fn play(receivers: usize, messages: usize, seed: u64) -> Seen {
    let members = receivers + 1;
    let mut network = Network::quiet();
    network.loss = Chance::of(LOSS);
    let mut sim = Sim::new(seed, network);
    let mut seen = Seen::new(members);
    for me in 0..members {
        let node = sim.add(true);
        sim.start(node, Box::new(move |now, _| Peer::new(now, view(members, me))), &mut seen);
    }
    let (mut sent, mut tries) = (0, 100 * messages);
    while sent < messages && tries > 0 {
        (seen.refused, tries) = (false, tries - 1);
        sim.command(0, vec![7; MESSAGE_BYTES], &mut seen);
        sent += usize::from(!seen.refused);
        sim.run_until(sim.now() + EVERY, &mut seen);
    }
    sim.run_until(sim.now() + REST, &mut seen);
    seen
}

fn view(members: usize, me: usize) -> View {
    let member = |n: usize| {
        let id = MemberId { cert: CertHash([n as u8; 32]), incarnation: Incarnation([n as u8; 16]) };
        Member { id, name: "robot".into() }
    };
    let epoch = EpochId { counter: 1, hash: 1 };
    View::new(None, epoch, (0..members).map(member).collect(), Slot(me as u32), Change::Formed)
}

fn protect(view: &View) -> MockProtect {
    MockProtect::new(view, &Secret::from_bytes([7; 32]))
}

/// A member's channel.
struct Peer {
    delivery: Sequencer,
    protect: Arc<dyn Protect>,
    effects: VecDeque<Effect<PeerEvent>>,
}

/// What a member tells.
enum PeerEvent {
    Delivered,
    Refused,
}

impl Peer {
    fn new(now: Now, view: View) -> Peer {
        let protect: Arc<dyn Protect> = Arc::new(protect(&view));
        let access: Arc<dyn Access> = Arc::new(OneDomain);
        let mut delivery = Sequencer::new(Config::default(), limits::RELIABLE_BACKLOG_BYTES);
        delivery.use_parities();
        delivery.handle(now, Input::Install { view: &view, protect: Some(&protect), access: &access });
        let mut peer = Peer { delivery, protect, effects: VecDeque::new() };
        peer.drain();
        peer
    }

    fn drain(&mut self) {
        let mut batch = Batch::default();
        while let Some(output) = self.delivery.poll(&mut batch) {
            match output {
                Output::Transmit(to) => {
                    let to = if let To::Slot(slot) = to { Reach::One(slot.index()) } else { Reach::All };
                    self.effects.extend(batch.iter().map(|it| Effect::Send { to, datagram: it.to_vec() }));
                }
                Output::Deliver(_) => self.effects.push_back(Effect::Tell(PeerEvent::Delivered)),
                _ => {}
            }
            batch.clear();
        }
    }
}

impl Node for Peer {
    type Event = PeerEvent;
    type Command = Vec<u8>;

    fn handle(&mut self, now: Now, from: Address, datagram: &mut [u8]) {
        let sealed = datagram.to_vec();
        let Ok((source, flags, frame)) = self.protect.open(datagram) else { return };
        let (sealed, protect) = (Some(&sealed[..]), Some(&*self.protect));
        self.delivery.handle(now, Input::Frame { source, from, flags, frame, sealed, protect });
        self.drain();
    }

    fn command(&mut self, now: Now, body: Vec<u8>) {
        let what = What::Data { topic: "t", domain: DATA, signed: false, sent_micros: None, body: &body };
        let outgoing = Outgoing { what, guarantee: Guarantee::Fifo, to: To::Group };
        if self.delivery.send(now, Some(&self.protect), outgoing).is_err() {
            self.effects.push_back(Effect::Tell(PeerEvent::Refused));
        }
        self.drain();
    }

    fn timeout(&self) -> Option<Monotonic> {
        self.delivery.timeout()
    }

    fn handle_timeout(&mut self, now: Now) {
        self.delivery.handle_timeout(now, Some(&self.protect));
        self.drain();
    }

    fn poll(&mut self) -> Option<Effect<PeerEvent>> {
        self.effects.pop_front()
    }
}

/// All topics lie in one compartment, which all read and write.
struct OneDomain;

impl Access for OneDomain {
    fn domain(&self, _topic: &str) -> Option<Domain> {
        Some(DATA)
    }

    fn may_publish(&self, _slot: Slot, _topic: &str) -> bool {
        true
    }

    fn may_subscribe(&self, _slot: Slot, _topic: &str) -> bool {
        true
    }

    fn reads(&self, _slot: Slot, _domain: Domain) -> bool {
        true
    }

    fn must_sign(&self, _topic: &str) -> bool {
        false
    }
}

/// What an insider who hears all counts.
struct Seen {
    spy: MockProtect,
    records: BTreeSet<u64>,
    /// Datagrams by what they are for.
    data: u64,
    repairs: u64,
    parities: u64,
    naks: u64,
    others: u64,
    delivered: u64,
    /// Whether the backlog was full for the last message.
    refused: bool,
}

impl Seen {
    fn new(members: usize) -> Seen {
        let (spy, records) = (protect(&view(members, 0)), BTreeSet::new());
        Seen { spy, records, data: 0, repairs: 0, parities: 0, naks: 0, others: 0, delivered: 0, refused: false }
    }

    fn share_of_data(&self) -> f64 {
        self.data as f64 / (self.data + self.repairs + self.parities) as f64
    }

    fn add(&mut self, more: &Seen) {
        self.data += more.data;
        self.repairs += more.repairs;
        self.parities += more.parities;
        self.naks += more.naks;
        self.others += more.others;
    }
}

impl Observer<Peer> for Seen {
    fn sent(&mut self, _at: Monotonic, _from: usize, _to: Reach, datagram: &[u8]) {
        let Ok(header) = Header::parse(datagram) else { return };
        // One sends data, so that a number names a record.
        if header.flags & FLAG_RELIABLE != 0 {
            match self.records.insert(header.counter) {
                true => self.data += 1,
                false => self.repairs += 1,
            }
            return;
        }
        let mut datagram = datagram.to_vec();
        let Ok((.., record)) = self.spy.open(&mut datagram) else { return };
        let kinds: Vec<u8> = Frames::of(record).map_while(Result::ok).filter_map(|it| kind(&it)).collect();
        match kinds {
            it if it.contains(&PARITY) => self.parities += 1,
            it if it.contains(&NAK) => self.naks += 1,
            _ => self.others += 1,
        }
    }

    fn told(&mut self, _at: Monotonic, _node: usize, told: PeerEvent) {
        match told {
            PeerEvent::Delivered => self.delivered += 1,
            PeerEvent::Refused => self.refused = true,
        }
    }
}

/// Of which kind a word about reliable records is.
fn kind(frame: &Frame<'_>) -> Option<u8> {
    if let Frame::Control { bytes } = frame { bytes.first().copied() } else { None }
}

const DATA: Domain = Domain(1);
const LOSS: f64 = 0.05;
const MESSAGES: usize = 3_200;
const MESSAGE_BYTES: usize = 1_000;
/// Between two messages.
const EVERY: Duration = Duration::from_micros(100);
/// By then all is repaired.
const REST: Duration = Duration::from_secs(3);

// Kinds of what members say about reliable records (`docs/WIRE.md`).
const NAK: u8 = 4;
const PARITY: u8 = 17;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_lost_comes_and_what_is_sent_for_it_is_counted() {
        let seen = play(20, 300, 1);
        assert_eq!(seen.delivered, 20 * 300);
        assert!(seen.data >= 300 && seen.repairs + seen.parities > 0 && seen.naks > 0 && seen.others > 0);
    }
}
