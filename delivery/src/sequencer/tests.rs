//! Whole members against each other, over a network that loses, repeats and reorders by a seed.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use sealcast_wire::frame::HEADER_LEN;
use sealcast_wire::{Address, CertHash, Change, Member, MemberId, To, Utc};

use super::*;
use crate::multicast::frame::{Frames, Head};
use crate::testing::{Ring, epoch_id, incarnation};
use crate::{Outcome, StateEvent, StateInput};

/// Topics `c1/…` lie in compartment 1, `c2/…` in 2, and signed ones end in `!`.
struct Topics {
    /// Who does not read compartment 2.
    deaf: Option<Slot>,
}

impl Access for Topics {
    fn domain(&self, topic: &str) -> Option<Domain> {
        topic.strip_prefix('c').and_then(|it| it[..1].parse().ok()).map(Domain)
    }
    fn may_publish(&self, _: Slot, _: &str) -> bool {
        true
    }
    fn may_subscribe(&self, _: Slot, _: &str) -> bool {
        true
    }
    fn reads(&self, slot: Slot, domain: Domain) -> bool {
        domain != Domain(2) || self.deaf != Some(slot)
    }
    fn must_sign(&self, topic: &str) -> bool {
        topic.ends_with('!')
    }
}

/// What one member got: from which slot, under which topic, what.
type Got = Vec<(Slot, String, Vec<u8>)>;

struct Net {
    now: u64,
    rng: ChaCha8Rng,
    /// Of 1,000.
    loss: u64,
    nodes: Vec<Sequencer>,
    /// By node: the epochs whose keys it holds.
    keys: Vec<BTreeMap<u32, Arc<dyn Protect>>>,
    current: Vec<u32>,
    access: Arc<dyn Access>,
    under_way: BTreeMap<(u64, u64), (usize, usize, Vec<u8>)>,
    /// What was sent, by who sent it.
    sent: Vec<(usize, Vec<u8>)>,
    count: u64,
    got: Vec<Got>,
    acknowledged: Vec<Vec<u64>>,
    /// By node: what it got of the order, by its positions; and of its own messages where they were delivered.
    order: Vec<Vec<(u64, Slot, Vec<u8>)>>,
    ordered: Vec<Vec<(u64, u64)>>,
    left: Vec<usize>,
    in_doubt: Vec<Vec<u64>>,
    /// Who hears nothing at all.
    deaf: BTreeSet<usize>,
    /// These hear each other alone, and so do the others.
    parted: Option<BTreeSet<usize>>,
    /// By node: what it said last of a view that was prepared, and how often it asked for another one.
    flushed: Vec<Option<(EpochId, [u8; 32])>>,
    renewed: Vec<usize>,
    /// Who gets so many of 1,000 datagrams not, but those with nothing reliable in them.
    slow: Option<(usize, u64)>,
    /// By node: who was told to hold all up, and whether by its own judgement.
    slow_told: Vec<(usize, Slot, bool)>,
    /// By node: whom it took for gone. And by whom, and to whom, signed words come with a wrong proof.
    suspected: Vec<(usize, Slot)>,
    garbled: BTreeSet<(usize, usize)>,
    /// Who was told that some of the order never comes.
    gaps: Vec<usize>,
    /// By node: whose promised messages never come, and behind which position ordered ones do.
    lost: Vec<(usize, Slot)>,
    from: Vec<u64>,
    /// If each machine lets in from another one, besides what goes to all, what answers it: from whom and to whom something
    /// went.
    guards: Option<BTreeSet<(usize, usize)>>,
    /// What members say to the coordinator alone reaches nobody else, to save time.
    is_large: bool,
    /// The same of all that is said to one member.
    is_aside: bool,
    /// No datagram overtakes others by much.
    is_even: bool,
    /// By node: what came to it, if of each 1,000 datagrams 50 in a row get lost.
    bursts: Option<Vec<u64>>,
    states: BTreeMap<usize, Log>,
    /// Nobody polls this node: its process waits for a disk.
    unpolled: Option<usize>,
}

const STATE_TOPIC: &str = "c1/state";

/// The state of a test's application: all messages of a topic, with their positions.
#[derive(Default)]
struct Log {
    has: bool,
    entries: Vec<u8>,
    last: u64,
    /// Those before this position are in it.
    from: u64,
    waiting: Vec<(u64, Vec<u8>)>,
    /// How often it began with nothing, got a state, and lost some.
    begun: usize,
    came: usize,
    lost: usize,
    resumed: usize,
}

impl Log {
    fn message(&mut self, index: u64, body: &[u8]) {
        if !self.has {
            return self.waiting.push((index, body.to_vec()));
        }
        if index < self.from {
            return;
        }
        assert!(index > self.last, "each message once, in order");
        self.last = index;
        self.entries.extend(index.to_be_bytes());
        self.entries.extend(body);
    }

    fn event(&mut self, event: StateEvent) -> Option<(u64, Option<Vec<u8>>)> {
        match event {
            StateEvent::Begins => self.restore(0, Vec::new()),
            StateEvent::Resumes => {
                self.resumed += 1;
                self.go_on();
            }
            StateEvent::Wanted(ticket) => {
                return Some((ticket, self.has.then(|| [&self.last.to_be_bytes()[..], &self.entries].concat())));
            }
            StateEvent::Here { position, bytes } => {
                self.came += 1;
                self.last = u64::from_be_bytes(bytes[..8].try_into().expect("8 bytes"));
                assert!(self.last < position);
                self.restore(position, bytes[8..].to_vec());
            }
            StateEvent::Lost => (self.has, self.lost) = (false, self.lost + 1),
            StateEvent::Refused => panic!("there are few"),
        }
        None
    }

    fn restore(&mut self, position: u64, entries: Vec<u8>) {
        self.begun += usize::from(position == 0);
        (self.entries, self.from) = (entries, position);
        self.go_on();
    }

    fn go_on(&mut self) {
        self.has = true;
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().for_each(|(index, body)| self.message(index, &body));
    }
}

impl Net {
    fn new(members: usize, loss: u64, seed: u64) -> Net {
        let node = |_| Sequencer::new(Config::default(), 1 << 20);
        Net {
            now: 1_000,
            rng: ChaCha8Rng::seed_from_u64(seed),
            loss,
            nodes: (0..members).map(node).collect(),
            keys: vec![BTreeMap::new(); members],
            current: vec![0; members],
            access: Arc::new(Topics { deaf: None }),
            under_way: BTreeMap::new(),
            sent: Vec::new(),
            count: 0,
            got: vec![Vec::new(); members],
            acknowledged: vec![Vec::new(); members],
            order: vec![Vec::new(); members],
            ordered: vec![Vec::new(); members],
            left: Vec::new(),
            in_doubt: vec![Vec::new(); members],
            deaf: BTreeSet::new(),
            parted: None,
            flushed: vec![None; members],
            renewed: vec![0; members],
            slow: None,
            slow_told: Vec::new(),
            lost: Vec::new(),
            from: vec![0; members],
            suspected: Vec::new(),
            garbled: BTreeSet::new(),
            gaps: Vec::new(),
            guards: None,
            is_large: false,
            is_aside: false,
            is_even: false,
            bursts: None,
            states: BTreeMap::new(),
            unpolled: None,
        }
    }

    fn at(&self) -> Now {
        Now { monotonic: Monotonic(self.now), utc: Some(Utc(0)) }
    }

    /// An epoch of these nodes begins at all of them.
    fn install(&mut self, epoch: u32, who: &[usize]) {
        who.iter().for_each(|node| self.install_at(epoch, who, *node));
    }

    fn view(epoch: u32, who: &[usize], node: usize) -> (Arc<dyn Protect>, View) {
        let view = Net::coming(epoch, who, node);
        let runs = who.iter().map(|it| incarnation(Slot(*it as u32))).collect();
        (Arc::new(Ring::of_runs(epoch, view.me.0, runs)), view)
    }

    fn coming(epoch: u32, who: &[usize], node: usize) -> View {
        let me = who.iter().position(|it| *it == node).expect("it is in") as u32;
        let member = |it: &usize| Member {
            id: MemberId { cert: CertHash([*it as u8; 32]), incarnation: incarnation(Slot(*it as u32)) },
            name: "robot".into(),
        };
        let members = who.iter().map(member).collect();
        View::new(None, epoch_id(epoch), members, Slot(me), Change::Joined)
    }

    /// All of these are told that a view is coming, and have so long to flush the one in use.
    fn prepare(&mut self, epoch: u32, who: &[usize], micros: u64) {
        for node in who {
            let view = Net::coming(epoch, who, *node);
            let now = self.at();
            self.flushed[*node] = None;
            self.nodes[*node].handle(now, Input::Prepare { view: &view, flush: sealcast_wire::Flush::Now });
            self.drain(*node);
        }
        self.run(self.now + micros);
    }

    /// A change as the key scheme makes it: those who stay flush and agree on that, and all install.
    fn change(&mut self, epoch: u32, who: &[usize]) {
        let stay: Vec<usize> = who.iter().copied().filter(|node| self.current[*node] > 0).collect();
        // If somebody is late, the key scheme tries again.
        for _ in 0..10 {
            self.prepare(epoch, who, 100_000);
            if stay.iter().all(|node| self.flushed[*node].is_some()) {
                break;
            }
        }
        let cuts: BTreeSet<_> = stay.iter().map(|node| self.flushed[*node]).collect();
        assert!(cuts.len() <= 1 && !cuts.contains(&None), "{cuts:?}");
        self.install(epoch, who);
    }

    /// A view of these, which orders.
    fn order(&mut self, epoch: u32, who: &[usize]) {
        self.install(epoch, who);
        self.run(self.now + 260_000);
        self.change(epoch + 1, who);
    }

    fn install_at(&mut self, epoch: u32, who: &[usize], node: usize) {
        let (protect, view) = Net::view(epoch, who, node);
        // The key binds what all of the base said alike.
        let said = |node: usize| self.flushed[node].filter(|(of, _)| of.counter == epoch).map(|(_, cut)| cut);
        let base = who.iter().copied().find(|it| self.current[*it] > 0 && said(*it).is_some());
        let cut = said(node).filter(|cut| base.and_then(said) == Some(*cut));
        let view = view.after(cut.unwrap_or_default());
        self.keys[node].insert(epoch, protect.clone());
        self.current[node] = epoch;
        let (now, access) = (self.at(), self.access.clone());
        self.nodes[node].handle(now, Input::Install { view: &view, protect: Some(&protect), access: &access });
        self.drain(node);
    }

    fn publish(&mut self, node: usize, topic: &str, body: &[u8]) -> Result<Token, SendError> {
        self.publish_as(Guarantee::Fifo, node, topic, body)
    }

    fn publish_as(&mut self, guarantee: Guarantee, node: usize, topic: &str, body: &[u8]) -> Result<Token, SendError> {
        let domain = self.access.domain(topic).expect("a topic of these");
        let what = What::Data { topic, domain, signed: self.access.must_sign(topic), sent_micros: None, body };
        let protect = self.keys[node].get(&self.current[node]).cloned();
        let out = Outgoing { what, guarantee, to: To::Group };
        let now = self.at();
        let sent = self.nodes[node].send(now, protect.as_ref(), out);
        self.drain(node);
        sent
    }

    /// The same once there is room.
    fn publish_patiently(&mut self, node: usize, topic: &str, body: &[u8]) -> Token {
        self.publish_patiently_as(Guarantee::Fifo, node, topic, body)
    }

    fn publish_patiently_as(&mut self, guarantee: Guarantee, node: usize, topic: &str, body: &[u8]) -> Token {
        loop {
            match self.publish_as(guarantee, node, topic, body) {
                Ok(token) => return token,
                Err(SendError::Full) => self.run(self.now + 1_000),
                Err(why) => panic!("{why}"),
            }
        }
    }

    /// Node 1 says to node 0, the sequencer, in the name of this slot, that it holds all of the order.
    fn acknowledge_for(&mut self, forger: &Ring, slot: Slot, counter: u64) {
        self.run(self.now + 1_000);
        let mut frame = Vec::new();
        let said = self.nodes[0].current.as_ref().and_then(|it| it.order.as_ref()).map_or(0, Order::held);
        crate::multicast::frame::write_control(&Control::Ack(said).bytes(), &mut frame);
        let forged = forger.forge(Domain::GROUP, 0, slot, counter, &frame);
        self.carry(1, 0, &forged);
        self.run(self.now + 5_000);
    }

    fn drain(&mut self, node: usize) {
        while self.unpolled != Some(node) {
            let mut batch = Batch::default();
            match self.nodes[node].poll(&mut batch) {
                None => return,
                Some(Output::Transmit(To::Slot(to))) if self.guards.is_some() => {
                    let to = to.index();
                    let guards = self.guards.as_mut().expect("there are guards");
                    guards.insert((node, to));
                    if guards.contains(&(to, node)) {
                        batch.iter().for_each(|datagram| self.carry(node, to, datagram));
                    }
                }
                Some(Output::Transmit(to)) => {
                    let one = if self.is_aside { self.node_at(node, to) } else { None };
                    for datagram in batch.iter() {
                        self.sent.push((node, datagram.to_vec()));
                        let is_status = node != 0 && datagram.len() == HEADER_LEN + 3 + 2 + 15 + 16;
                        let hearers = if self.is_large && is_status { 1 } else { self.nodes.len() };
                        match one {
                            Some(to) => self.carry(node, to, datagram),
                            None => (0..hearers).for_each(|to| self.carry(node, to, datagram)),
                        }
                    }
                }
                Some(Output::Deliver(it)) => {
                    let Source::Inside { slot, .. } = it.source else { panic!("it is from inside") };
                    assert_eq!(it.signed, it.topic.ends_with('!'));
                    let Source::Inside { counter, .. } = it.source else { panic!("it is from inside") };
                    if counter & sealcast_wire::frame::COUNTER_ORDERED != 0 {
                        assert!(it.index > self.from[node], "node {node}, {}", it.index);
                        self.order[node].push((it.index, slot, it.body.clone()));
                        if &*it.topic == STATE_TOPIC
                            && let Some(state) = self.states.get_mut(&node)
                        {
                            state.message(it.index, &it.body);
                        }
                    }
                    self.got[node].push((slot, it.topic.to_string(), it.body));
                }
                Some(Output::Outcome(Token(number), Outcome::Accepted)) => self.acknowledged[node].push(number),
                Some(Output::Outcome(Token(number), Outcome::Ordered(position))) => {
                    self.ordered[node].push((number, position));
                }
                Some(Output::Outcome(Token(number), Outcome::InDoubt)) => self.in_doubt[node].push(number),
                Some(Output::Flushed(epoch, cut)) => self.flushed[node] = Some((epoch, cut)),
                Some(Output::Renew) => self.renewed[node] += 1,
                Some(Output::Suspect(slot)) => self.suspected.push((node, slot)),
                Some(Output::Dropped(_) | Output::Sealed(..)) => {}
                Some(Output::Slow { slot, judged }) => self.slow_told.push((node, slot, judged)),
                Some(Output::State(_, event)) => {
                    if let Some((ticket, bytes)) = self.states.entry(node).or_default().event(event) {
                        let now = self.at();
                        let give = Input::State(StateInput::Give { ticket, bytes });
                        self.nodes[node].handle(now, give);
                    }
                }
                Some(Output::Left) => self.left.push(node),
                Some(Output::Order(OrderStatus { gap, from, sequencer, .. })) => {
                    self.gaps.extend(gap.then_some(node));
                    // Where a view orders, what was delivered is up to there, and what comes is behind it.
                    if sequencer.is_some() {
                        assert!(self.order[node].iter().all(|(position, ..)| *position <= from), "node {node}, {from}");
                        self.from[node] = from;
                    }
                }
                Some(Output::Gap(slot)) => self.lost.push((node, slot)),
                Some(Output::Entered(_)) => {}
                Some(other) => panic!("{other:?}"),
            }
        }
    }

    /// The one that hears what a node says to a slot of its view.
    fn node_at(&self, node: usize, to: To) -> Option<usize> {
        let To::Slot(slot) = to else { return None };
        let who = self.nodes[node].current.as_ref()?.incarnations.get(&slot)?;
        (0..self.nodes.len()).find(|it| incarnation(Slot(*it as u32)) == *who)
    }

    fn carry(&mut self, from: usize, to: usize, datagram: &[u8]) {
        for _ in 0..1 + u64::from(self.rng.next_u64().is_multiple_of(50)) {
            // What is looped back stays on the machine.
            let is_late = self.slow.is_some_and(|(slow, loss)| {
                let is_record = Header::parse(datagram).is_ok_and(|it| it.flags & FLAG_RELIABLE != 0);
                slow == to && from != to && is_record && self.rng.next_u64() % 1_000 < loss
            });
            if is_late {
                continue;
            }
            let delay = match (from == to, self.is_even) {
                (true, _) => 5,
                (_, true) => 100,
                _ => 50 + self.rng.next_u64() % 250,
            };
            let held = if from != to && !self.is_even && self.rng.next_u64().is_multiple_of(40) {
                self.rng.next_u64() % 4_000
            } else {
                0
            };
            let in_burst = self.bursts.as_mut().filter(|_| from != to).is_some_and(|came| {
                came[to] += 1;
                came[to] % 1_000 < 50
            });
            if from == to || !in_burst && self.rng.next_u64() % 1_000 >= self.loss {
                self.count += 1;
                self.under_way.insert((self.now + delay + held, self.count), (from, to, datagram.to_vec()));
            }
        }
    }

    fn hear(&mut self, from: usize, to: usize, datagram: &mut [u8]) {
        let Ok(header) = Header::parse(datagram) else { return };
        let Some(protect) = self.keys[to].get(&header.epoch.counter).cloned() else { return };
        let is_garbled = header.flags & FLAG_SIGNED != 0 && self.garbled.contains(&(from, to));
        let (now, from, sealed) = (self.at(), Address::Node(from as u32), datagram.to_vec());
        if !self.access.reads(protect.slot(), header.domain) {
            self.nodes[to].handle(now, Input::Unread(&sealed));
            return self.drain(to);
        }
        let Ok((source, flags, frame)) = protect.open(datagram) else {
            self.nodes[to].handle(now, Input::Unread(&sealed));
            return self.drain(to);
        };
        frame.last_mut().filter(|_| is_garbled).into_iter().for_each(|it| *it ^= 1);
        let sealed = Some(&sealed[..]);
        self.nodes[to].handle(now, Input::Frame { source, from, flags, frame, sealed, protect: Some(&*protect) });
        self.drain(to);
    }

    /// Plays until a moment.
    fn run(&mut self, until: u64) {
        let mut timers: Vec<Option<u64>> = self.nodes.iter().map(|it| Some(it.timeout()?.0)).collect();
        let (mut instant, mut times) = (0, 0);
        loop {
            let timer = (0..self.nodes.len()).filter_map(|n| Some((timers[n]?, n))).min();
            let next = self.under_way.first_key_value().map(|((at, _), _)| *at);
            let due = [timer.map(|(at, _)| at), next].into_iter().flatten().min().filter(|at| *at <= until);
            let Some(due) = due else { break };
            self.now = self.now.max(due);
            if next.is_some_and(|at| at <= due) {
                let (_, (from, to, mut datagram)) = self.under_way.pop_first().expect("there is one");
                let is_parted = self.parted.as_ref().is_some_and(|it| it.contains(&from) != it.contains(&to));
                if !self.deaf.contains(&to) && !is_parted {
                    self.hear(from, to, &mut datagram);
                }
                timers[to] = self.nodes[to].timeout().map(|it| it.0);
            } else if let Some((_, node)) = timer {
                times = if instant == self.now { times + 1 } else { 0 };
                instant = self.now;
                assert!(times < 1_000, "node {node} asks for a time-out at once, for ever");
                let protect = self.keys[node].get(&self.current[node]).cloned();
                let now = self.at();
                self.nodes[node].handle_timeout(now, protect.as_ref());
                self.drain(node);
                timers[node] = self.nodes[node].timeout().map(|it| it.0);
            }
        }
        self.now = until;
    }

    /// What `node` got of what `slot` sent.
    fn of(&self, node: usize, slot: u32) -> Vec<&[u8]> {
        self.got[node].iter().filter(|(from, ..)| *from == Slot(slot)).map(|(.., body)| &**body).collect()
    }

    fn backlog(&self, node: usize) -> usize {
        self.nodes[node].multicast.lock().backlog().map_or(0, |it| it.tails().len())
    }
}

fn bodies(from: u8, count: u8) -> Vec<Vec<u8>> {
    (0..count).map(|n| [vec![from, n], vec![n; 40 * usize::from(n)]].concat()).collect()
}

const SECOND: u64 = 1_000_000;

#[test]
fn each_senders_messages_come_once_in_order_and_are_acknowledged() {
    for (loss, seed) in [(0, 1), (10, 2), (50, 3), (200, 4), (200, 5)] {
        let mut net = Net::new(4, loss, seed);
        net.install(1, &[0, 1, 2, 3]);
        let sent = bodies(0, 100);
        let mut tokens = vec![Vec::new(); 4];
        for (n, body) in sent.iter().enumerate() {
            for (node, tokens) in tokens.iter_mut().enumerate().take(3) {
                let topic = ["c1/a", "c2/b", "c1/a", "c1/c!"][n / 7 % 4];
                tokens.push(net.publish_patiently(node, topic, body).0);
            }
            net.run(net.now + 400);
        }
        net.run(net.now + 5 * SECOND);
        for (node, tokens) in tokens.iter().enumerate() {
            for slot in 0..3 {
                assert!(
                    net.of(node, slot) == sent,
                    "node {node} of {slot} at loss {loss}: {:?}",
                    net.of(node, slot).len()
                );
            }
            assert_eq!(net.acknowledged[node], *tokens, "node {node} at loss {loss}");
            assert_eq!((net.backlog(node), net.nodes[node].incoming.bytes()), (0, 0));
        }
        // Nothing but signs of life from here on.
        let before = net.sent.len();
        net.run(net.now + 6 * SECOND);
        assert!(net.sent.len() - before <= 4 * 17, "{} datagrams in 6 s of silence", net.sent.len() - before);
    }
}

/// LSGC, weakness 18: who lost a sender's last message did not learn of it before the next one.
#[test]
fn lsgc_w18_the_last_record_is_missed_too() {
    let mut net = Net::new(3, 0, 1);
    net.install(1, &[0, 1, 2]);
    net.run(SECOND);
    net.deaf.insert(2);
    net.publish(0, "c1/a", b"the only one").expect("there is room");
    net.run(net.now + 5_000);
    assert!(net.of(2, 0).is_empty() && net.acknowledged[0].is_empty(), "one reader does not have it");
    net.deaf.clear();
    net.run(net.now + SECOND);
    assert_eq!((net.of(2, 0), net.acknowledged[0].len()), (vec![&b"the only one"[..]], 1));
}

/// LSGC, weakness 16: a sender waited for each message to be acknowledged, so that a round trip carried one.
#[test]
fn lsgc_w16_a_round_trip_carries_many_messages_of_one_sender() {
    let mut net = Net::new(3, 0, 1);
    net.is_even = true;
    net.install(1, &[0, 1, 2]);
    net.run(SECOND);
    for n in 0..200 {
        net.publish(0, "c1/a", &[n; 1000]).expect("there is room before any acknowledgement");
    }
    net.run(net.now + 200);
    assert!(net.of(1, 0).len() >= 100, "{} came within one round trip", net.of(1, 0).len());
}

#[test]
fn rule_b5_repairs_are_the_bytes_that_were_sealed_first() {
    let mut net = Net::new(3, 150, 7);
    net.install(1, &[0, 1, 2]);
    for body in bodies(0, 60) {
        net.publish(0, "c1/a", &body).expect("there is room");
        net.run(net.now + 300);
    }
    net.run(net.now + 3 * SECOND);
    assert_eq!(net.of(2, 0).len(), 60);
    let mut first: BTreeMap<(u32, u8, u64), &[u8]> = BTreeMap::new();
    let mut again = 0;
    for (_, datagram) in &net.sent {
        let header = Header::parse(datagram).expect("all are sealed");
        let nonce = (header.slot.0, header.domain.0 as u8, header.counter);
        let sealed = first.entry(nonce).or_insert(datagram);
        assert!(*sealed == &datagram[..], "a nonce seals one plaintext");
        again += usize::from(!std::ptr::eq(*sealed, &datagram[..]));
    }
    assert!(again > 5, "{again} repairs at 15 % loss");
}

#[test]
fn a_message_of_many_records_comes_whole_beside_others() {
    let mut net = Net::new(3, 50, 9);
    net.install(1, &[0, 1, 2]);
    let big: Vec<u8> = (0..300_000_u32).map(|n| (n / 7) as u8).collect();
    net.publish(1, "c1/a", b"before").expect("there is room");
    net.publish(1, "c2/big!", &big).expect("there is room");
    net.publish(1, "c1/a", b"after").expect("there is room");
    net.run(net.now + 5 * SECOND);
    for node in 0..3 {
        assert!(net.of(node, 1) == [&b"before"[..], &big, b"after"], "node {node}");
    }
    assert_eq!(net.acknowledged[1].len(), 3);
}

#[test]
fn what_not_all_have_is_sealed_anew_for_the_next_epoch_and_nothing_comes_twice() {
    for seed in 0..20 {
        let mut net = Net::new(4, 200, seed);
        net.install(1, &[0, 1, 2]);
        let sent = bodies(0, 60);
        for (n, body) in sent.iter().enumerate() {
            net.publish(0, ["c1/a", "c2/b!"][n / 5 % 2], body).expect("there is room");
            net.run(net.now + 200);
            if n == 30 {
                // One after the other, and a newcomer.
                for node in 0..4 {
                    net.install_at(2, &[0, 1, 2, 3], node);
                    net.run(net.now + 700);
                }
            }
        }
        net.run(net.now + 5 * SECOND);
        for node in 0..3 {
            let got: Vec<u8> = net.of(node, 0).iter().map(|it| it[1]).collect();
            assert!(net.of(node, 0) == sent, "node {node}, seed {seed}: {got:?}");
        }
        let late = net.of(3, 0);
        assert!(late.len() >= 29 && sent.iter().skip(60 - late.len()).eq(late.iter().copied()), "the newcomer's part");
        assert_eq!(net.acknowledged[0].len(), 60, "seed {seed}");
        assert_eq!(net.acknowledged[0].iter().collect::<BTreeSet<_>>().len(), 60);
    }
}

#[test]
fn who_cannot_read_a_compartment_holds_nobody_up_and_misses_nothing_else() {
    let mut net = Net::new(3, 100, 5);
    net.access = Arc::new(Topics { deaf: Some(Slot(2)) });
    net.install(1, &[0, 1, 2]);
    for n in 0..40_u8 {
        net.publish(0, if n % 3 == 0 { "c2/secret" } else { "c1/open" }, &[n]).expect("there is room");
        net.run(net.now + 300);
    }
    net.run(net.now + 3 * SECOND);
    let all: Vec<Vec<u8>> = (0..40).map(|n| vec![n]).collect();
    assert!(net.of(1, 0) == all);
    assert!(net.of(2, 0) == all.iter().filter(|it| it[0] % 3 != 0).collect::<Vec<_>>());
    assert_eq!(net.acknowledged[0].len(), 40);
}

#[test]
fn a_member_alone_is_acknowledged_and_one_that_is_out_is_in_doubt() {
    let mut net = Net::new(3, 0, 1);
    net.install(1, &[0]);
    net.publish(0, "c1/a", b"nobody else").expect("there is room");
    net.run(net.now + SECOND);
    assert_eq!(net.acknowledged[0].len(), 1);
    net.install(2, &[0, 1, 2]);
    net.deaf.extend([1, 2]);
    net.publish(0, "c1/a", b"who has it?").expect("there is room");
    net.run(net.now + 1_000);
    let now = net.at();
    net.nodes[0].handle(now, Input::Excluded);
    net.drain(0);
    assert_eq!((net.acknowledged[0].len(), net.in_doubt[0].len()), (1, 1));
    assert_eq!(net.publish(0, "c1/a", b"more"), Err(SendError::Retired));
}

/// LSGC, weakness 19: nothing kept a sender from overrunning its receivers.
#[test]
fn lsgc_w19_rule_g7_a_slow_group_makes_the_sender_wait_and_nothing_grows() {
    let mut net = Net::new(2, 0, 1);
    net.install(1, &[0, 1]);
    net.deaf.insert(1);
    let taken = (0..10_000).take_while(|_| net.publish(0, "c1/a", &[1; 1000]).is_ok()).count();
    assert!((480..530).contains(&taken), "{taken} messages of 1 kB in a window of {}", limits::RELIABLE_WINDOW_BYTES);
    assert_eq!(net.publish(0, "c1/a", &[1; 1000]), Err(SendError::Full));
    net.deaf.clear();
    net.run(net.now + 5 * SECOND);
    assert_eq!((net.of(1, 0).len(), net.acknowledged[0].len()), (taken, taken));
    net.publish(0, "c1/a", b"x").expect("there is room again");
}

/// Its beginning is acknowledged when somebody joins who needs it, too.
#[test]
fn who_joins_in_the_midst_of_a_message_gets_all_of_it() {
    for seed in 0..10 {
        let mut net = Net::new(3, 100, seed);
        net.install(1, &[0, 1]);
        let big: Vec<u8> = (0..200_000_u32).map(|n| (n / 7) as u8).collect();
        net.publish(0, "c1/a", b"before").expect("there is room");
        net.run(net.now + 20_000);
        net.publish(0, "c1/big", &big).expect("there is room");
        net.publish(0, "c2/a", b"after").expect("there is room");
        net.run(net.now + 1_500 + 500 * seed);
        net.install(2, &[0, 1, 2]);
        net.run(net.now + 5 * SECOND);
        assert!(
            net.of(1, 0) == [&b"before"[..], &big, b"after"],
            "seed {seed}: {:?}",
            net.of(1, 0).iter().map(|it| it.len()).collect::<Vec<_>>()
        );
        let late = net.of(2, 0);
        let (last, all) = (&late[late.len().saturating_sub(1)..], &late[late.len().saturating_sub(2)..]);
        // What all had before is none of its business.
        let wanted = all == [&big, &b"after"[..]] || last == [b"after"] && late.len() == 1 || late.is_empty();
        assert!(wanted, "seed {seed}: {:?}", late.iter().map(|it| it.len()).collect::<Vec<_>>());
        assert_eq!(net.acknowledged[0].len(), 3, "seed {seed}");
    }
}

/// What one reader has is acknowledged behind what another one lacks, and told all the same when that one is gone.
#[test]
fn what_is_acknowledged_behind_others_is_told_when_the_epoch_changes() {
    let mut net = Net::new(3, 0, 3);
    // Slot 1 alone reads compartment 1; slot 2 alone compartment 2.
    struct Apart;
    impl Access for Apart {
        fn domain(&self, topic: &str) -> Option<Domain> {
            topic.strip_prefix('c').and_then(|it| it[..1].parse().ok()).map(Domain)
        }
        fn may_publish(&self, _: Slot, _: &str) -> bool {
            true
        }
        fn may_subscribe(&self, _: Slot, _: &str) -> bool {
            true
        }
        fn reads(&self, slot: Slot, domain: Domain) -> bool {
            domain == Domain::GROUP || u32::from(domain.0) == slot.0
        }
        fn must_sign(&self, _: &str) -> bool {
            false
        }
    }
    net.access = Arc::new(Apart);
    net.install(1, &[0, 1, 2]);
    net.deaf.insert(1);
    net.publish(0, "c1/a", b"lost").expect("there is room");
    net.publish(0, "c2/b", b"there").expect("there is room");
    net.run(net.now + SECOND);
    assert_eq!((net.of(2, 0), net.acknowledged[0].len()), (vec![&b"there"[..]], 0), "in the order of publishing");
    net.install(2, &[0, 2]);
    net.run(net.now + SECOND);
    // Nobody reads the first one any more: slot 1 is another member now, and reads it.
    assert_eq!(net.acknowledged[0].len(), 2);
}

/// Anybody who heard a record can send it again: it costs no signature check, and keeps nobody in the group.
#[test]
fn rule_g8_a_record_sent_again_is_no_sign_of_life() {
    let mut net = Net::new(2, 0, 1);
    net.install(1, &[0, 1]);
    net.publish(1, "c1/a!", b"recorded").expect("there is room");
    net.run(net.now + 1_000);
    let is_data = |(from, datagram): &&(usize, Vec<u8>)| {
        *from == 1 && Header::parse(datagram).is_ok_and(|it| it.flags & FLAG_RELIABLE != 0)
    };
    let recorded = net.sent.iter().find(is_data).expect("it was sent").1.clone();
    let checks = net.nodes[0].multicast.receiver().signature_checks();
    // From here on member 1 is dead.
    net.deaf.insert(1);
    let mut suspected = false;
    for _ in 0..80 {
        net.hear(1, 0, &mut recorded.clone());
        net.now += 50_000;
        let (now, protect) = (net.at(), net.keys[0].get(&1).cloned());
        net.nodes[0].handle_timeout(now, protect.as_ref());
        while let Some(output) = net.nodes[0].poll(&mut Batch::default()) {
            suspected |= matches!(output, Output::Suspect(Slot(1)));
        }
    }
    assert!(suspected && net.nodes[0].multicast.receiver().signature_checks() == checks);
}

/// Anybody who holds the group's key can seal a signed record again, under any number: nobody takes it for another one.
#[test]
fn rule_a12_a_signed_record_sealed_again_is_no_other_record() {
    let mut net = Net::new(3, 0, 1);
    net.install(1, &[0, 1, 2]);
    net.publish(0, "c1/a!", b"one").expect("there is room");
    net.run(net.now + 20_000);
    let is_data = |(from, datagram): &&(usize, Vec<u8>)| {
        *from == 0 && Header::parse(datagram).is_ok_and(|it| it.flags & FLAG_RELIABLE != 0)
    };
    let mut recorded = net.sent.iter().find(is_data).expect("it was sent").1.clone();
    let forger = Ring::member(1, 2, 3);
    let (_, _, plaintext) = forger.open(&mut recorded).expect("it has the key");
    let far = sealcast_wire::frame::COUNTER_RELIABLE | sealcast_wire::frame::COUNTER_SIGNED;
    let signed = FLAG_RELIABLE | FLAG_SIGNED;
    for n in 2..6 {
        let mut again = forger.forge(Domain(1), signed, Slot(0), far | n, plaintext);
        (0..2).for_each(|to| net.hear(2, to, &mut again.clone()));
        // Nor of best effort.
        net.hear(2, 1, &mut forger.forge(Domain(1), FLAG_SIGNED, Slot(0), 1_000 + n, plaintext));
        again[20] ^= 1;
    }
    assert_eq!(net.of(1, 0), [b"one"]);
    for body in [b"two", b"six"] {
        net.publish(0, "c1/a!", body).expect("there is room");
        net.run(net.now + SECOND);
    }
    assert_eq!((net.of(1, 0), net.acknowledged[0].len()), (vec![&b"one"[..], b"two", b"six"], 3));
    assert_eq!(net.of(0, 0).len(), 3, "nor its own session");
}

/// A status of what nobody has sent yet acknowledges nothing of it.
#[test]
fn rule_b2_nobody_acknowledges_what_is_not_sent() {
    let mut net = Net::new(3, 0, 1);
    net.install(1, &[0, 1, 2]);
    let forger = Ring::member(1, 2, 3);
    let stream = Stream { domain: Domain(1), signed: false };
    for slot in [1, 2] {
        let mut frames = Vec::new();
        let status = Control::Status(vec![(Of { slot: Slot(0), stream }, 1 << 40)]);
        crate::multicast::frame::write_control(&status.bytes(), &mut frames);
        net.hear(2, 0, &mut forger.forge(Domain::GROUP, 0, Slot(slot), 900, &frames));
    }
    net.deaf.insert(1);
    net.publish(0, "c1/a", b"who has it?").expect("there is room");
    net.run(net.now + SECOND);
    assert!(net.acknowledged[0].is_empty());
    net.deaf.clear();
    net.run(net.now + SECOND);
    assert_eq!(net.acknowledged[0].len(), 1);
}

/// A status of which only the beginning is right, and a record too far ahead that names others.
#[test]
fn rule_g1_what_is_refused_in_part_changes_nothing() {
    let mut net = Net::new(3, 0, 1);
    net.install(1, &[0, 1, 2]);
    let forger = Ring::member(1, 2, 3);
    let stream = Stream { domain: Domain(1), signed: false };
    net.deaf.extend([1, 2]);
    net.publish(0, "c1/a", b"who has it?").expect("there is room");
    for (n, slot) in [1, 2].into_iter().enumerate() {
        let mut frames = Vec::new();
        let status = Control::Status(vec![(Of { slot: Slot(0), stream }, 1), (Of { slot: Slot(slot), stream }, 1)]);
        crate::multicast::frame::write_control(&status.bytes(), &mut frames);
        net.hear(2, 0, &mut forger.forge(Domain::GROUP, 0, Slot(slot), 900 + n as u64, &frames));
    }
    net.run(net.now + SECOND);
    assert!(net.acknowledged[0].is_empty(), "nobody has what it sent itself");

    let mut frames = Vec::new();
    crate::multicast::frame::write_after(Stream { domain: Domain(2), signed: false }, 9, &mut frames);
    let far = sealcast_wire::frame::COUNTER_RELIABLE | 1 << 40;
    net.hear(2, 1, &mut forger.forge(Domain(1), FLAG_RELIABLE, Slot(0), far, &frames));
    let epoch = net.keys[1][&1].epoch();
    assert_eq!(net.nodes[1].incoming.timeout(epoch), None, "nothing is missed");
}

/// Records that come after what will never be, in a stream that would hold all of them.
#[test]
fn rule_g7_an_insiders_records_that_wait_for_nothing_fill_no_memory() {
    let mut net = Net::new(2, 0, 1);
    net.install(1, &[0, 1]);
    let forger = Ring::member(1, 0, 2);
    let far = sealcast_wire::frame::COUNTER_RELIABLE;
    let mut frames = Vec::new();
    let other = Stream { domain: Domain(2), signed: false };
    crate::multicast::frame::write_after(other, u64::MAX, &mut frames);
    net.hear(0, 1, &mut forger.forge(Domain(1), FLAG_RELIABLE, Slot(0), far | 1, &frames));
    assert_eq!(net.nodes[1].incoming.bytes(), 0, "nothing comes after that");
    frames.clear();
    crate::multicast::frame::write_after(other, 9, &mut frames);
    for n in 1..3_000 {
        frames.resize(12, 0);
        frames.resize(60_000, 0);
        net.hear(0, 1, &mut forger.forge(Domain(1), FLAG_RELIABLE, Slot(0), far | n, &frames));
    }
    assert!(net.nodes[1].incoming.bytes() <= limits::RELIABLE_HELD_BYTES_MAX, "{}", net.nodes[1].incoming.bytes());
    // The next epoch forgets it.
    net.install(2, &[0, 1]);
    net.publish(0, "c1/a", b"still here").expect("there is room");
    net.run(net.now + 3 * SECOND);
    assert_eq!((net.of(1, 0), net.nodes[1].incoming.bytes()), (vec![&b"still here"[..]], 0));
}

/// The end of one message in the record in which another one begins, while there is no room for that one.
#[test]
fn rule_b5_a_record_that_finds_no_room_is_handed_on_once() {
    let mut net = Net::new(2, 0, 1);
    net.install(1, &[0, 1]);
    let sealer = Ring::member(1, 0, 2);
    let far = sealcast_wire::frame::COUNTER_RELIABLE;
    let head = |number| Head { keys: false, again: false, number, sent_micros: None, topic: "c1/a" };
    let record = |net: &mut Net, number, frames: &[u8]| {
        net.hear(0, 1, &mut sealer.forge(Domain(1), FLAG_RELIABLE, Slot(0), far | number, frames));
    };
    let (mut first, mut second) = (Vec::new(), Vec::new());
    head(1).write_whole(b"small", &mut first);
    head(2).write_piece(8, 0, b"larg", &mut first);
    head(2).write_piece(8, 4, b"er..", &mut second);
    *net.nodes[1].incoming.begun() += limits::REASSEMBLY_BYTES_MAX;
    record(&mut net, 1, &first);
    net.run(net.now + 3 * SECOND);
    assert!(net.of(1, 0).is_empty(), "it waits");
    *net.nodes[1].incoming.begun() -= limits::REASSEMBLY_BYTES_MAX;
    record(&mut net, 2, &second);
    net.run(net.now + 3 * SECOND);
    assert_eq!(net.of(1, 0), [&b"small"[..], b"larger.."]);
    assert_eq!(net.nodes[1].incoming.bytes(), 0);
}

/// An insider's word that a sender has forgotten what it is about to send.
#[test]
fn rule_a3_nobody_else_says_that_records_are_gone() {
    let mut net = Net::new(3, 0, 1);
    net.install(1, &[0, 1, 2]);
    let forger = Ring::member(1, 2, 3);
    let stream = Stream { domain: Domain(1), signed: false };
    for (n, control) in [
        Control::Tail(vec![(stream, 1 << 40)]),
        Control::Gone { stream, first: 65_537, proof: vec![7; 64] },
        Control::Gone { stream, first: 1 << 40, proof: vec![7; 64] },
    ]
    .into_iter()
    .enumerate()
    {
        let mut frames = Vec::new();
        crate::multicast::frame::write_control(&control.bytes(), &mut frames);
        let mut datagram = forger.forge(Domain::GROUP, 0, Slot(0), 500 + n as u64, &frames);
        net.hear(0, 1, &mut datagram);
        net.run(net.now + 10_000);
    }
    net.publish(0, "c1/a", b"heard").expect("there is room");
    net.run(net.now + SECOND);
    assert_eq!((net.of(1, 0), net.acknowledged[0].len()), (vec![&b"heard"[..]], 1));
    // And nobody goes on asking for what there is not.
    let before = net.sent.len();
    net.run(net.now + 6 * SECOND);
    assert!(net.sent.len() - before <= 3 * 17, "{} datagrams in 6 s of silence", net.sent.len() - before);
}

/// An insider says for another member that it has a message, so its sender forgets it: the reader hears that it never comes.
#[test]
fn rule_b2_a_promised_message_that_never_comes_is_told() {
    let mut net = Net::new(3, 0, 1);
    net.install(1, &[0, 1, 2]);
    net.run(net.now + SECOND);
    let forger = Ring::of_runs(1, 1, (0..3).map(|it| incarnation(Slot(it))).collect());
    let of = Of { slot: Slot(1), stream: Stream { domain: Domain(1), signed: false } };
    net.deaf.insert(2);
    net.publish(1, "c1/a", b"lost").expect("there is room");
    net.run(net.now + 2_000);
    let mut frames = Vec::new();
    crate::multicast::frame::write_control(&Control::Status(vec![(of, 1)]).bytes(), &mut frames);
    let status = forger.forge(Domain::GROUP, 0, Slot(2), 9_000, &frames);
    net.carry(1, 0, &status);
    net.run(net.now + 30_000);
    assert_eq!(net.acknowledged[1].len(), 1, "all are said to have it");
    assert!(net.lost.is_empty());
    net.deaf.clear();
    net.publish(1, "c1/a", b"next").expect("there is room");
    net.run(net.now + SECOND);
    assert_eq!((net.of(2, 1), net.lost.clone()), (vec![&b"next"[..]], vec![(2, Slot(1))]));
}

/// An insider can seal as anybody. It sends far numbers, false NAKs, false statuses and tails.
#[test]
fn rule_g8_an_insider_who_lies_about_records_costs_a_bounded_number_of_datagrams() {
    let mut net = Net::new(3, 0, 1);
    net.install(1, &[0, 1, 2]);
    let forger = Ring::member(1, 2, 3);
    let stream = Stream { domain: Domain(1), signed: false };
    let of = Of { slot: Slot(0), stream };
    let mut counter = 1 << 20;
    let mut say = |net: &mut Net, control: &Control| {
        let mut frames = Vec::new();
        crate::multicast::frame::write_control(&control.bytes(), &mut frames);
        counter += 1;
        let datagram = forger.forge(Domain::GROUP, 0, Slot(2), counter, &frames);
        (0..2).for_each(|to| net.hear(2, to, &mut datagram.clone()));
    };
    let before = net.sent.len();
    for _ in 0..2_000 {
        say(&mut net, &Control::Nak { of, ranges: vec![(1, u64::MAX)] });
        say(&mut net, &Control::Tail(vec![(stream, u64::MAX)]));
        say(&mut net, &Control::Status(vec![(Of { slot: Slot(1), stream }, u64::MAX), (of, u64::MAX)]));
        say(&mut net, &Control::Summary(vec![(of, u64::MAX)]));
        say(&mut net, &Control::Gone { stream, first: u64::MAX, proof: vec![7; 64] });
        net.run(net.now + 1_000);
    }
    let told = net.sent.len() - before;
    // In two seconds: each says at most one status and one summary a millisecond, and corrects what others say of it.
    assert!(told < 3 * 2 * 2_000 + 1_000, "{told} datagrams");
    net.publish(0, "c1/a", b"still here").expect("there is room");
    net.run(net.now + SECOND);
    assert_eq!(net.of(1, 0), [b"still here"]);
}

/// A record far ahead, records of a stream that nobody has, frames that do not belong there.
#[test]
fn rule_g2_records_that_cannot_be_are_dropped_and_counted() {
    let mut net = Net::new(2, 0, 1);
    net.install(1, &[0, 1]);
    let forger = Ring::member(1, 0, 2);
    let mut frames = Vec::new();
    Head { keys: false, again: false, number: 1, sent_micros: None, topic: "c1/a" }.write_whole(b"x", &mut frames);
    let far = sealcast_wire::frame::COUNTER_RELIABLE;
    let wrong = [
        (FLAG_RELIABLE, far | 1 << 40),
        (FLAG_RELIABLE, far),
        (FLAG_RELIABLE, 7),
        (FLAG_RELIABLE, far | sealcast_wire::frame::COUNTER_SIGNED | 1),
        (FLAG_RELIABLE | FLAG_SIGNED, far | sealcast_wire::frame::COUNTER_SIGNED | 1),
    ];
    for (flags, counter) in wrong {
        net.hear(0, 1, &mut forger.forge(Domain(1), flags, Slot(0), counter, &frames));
    }
    assert!(net.got[1].is_empty());
    net.hear(0, 1, &mut forger.forge(Domain(1), FLAG_RELIABLE, Slot(0), far | 1, &frames));
    assert_eq!(net.of(1, 0), [b"x"], "and the right one is taken");
    assert!(Frames::of(&frames).all(|it| it.is_ok()) && HEADER_LEN == 28);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn rule_b5_any_loss_any_sizes_any_topics(
        seed in any::<u64>(),
        loss in 0_u64..300,
        messages in prop::collection::vec((0_usize..3, 0_usize..4, 0_usize..6_000), 1..60),
        change in prop::option::of(0_usize..60),
    ) {
        let mut net = Net::new(3, loss, seed);
        net.install(1, &[0, 1, 2]);
        let mut sent: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 3];
        for (n, (node, topic, len)) in messages.into_iter().enumerate() {
            let body = [vec![n as u8], vec![7; len]].concat();
            net.publish_patiently(node, ["c1/a", "c2/b", "c3/c!", "c1/d!"][topic], &body);
            sent[node].push(body);
            net.run(net.now + seed % 700);
            if change == Some(n) {
                net.install(2, &[0, 1, 2]);
            }
        }
        net.run(net.now + 8 * SECOND);
        for node in 0..3 {
            for (slot, sent) in sent.iter().enumerate() {
                prop_assert!(net.of(node, slot as u32) == *sent, "node {} of {}", node, slot);
            }
            prop_assert_eq!(net.acknowledged[node].len(), sent[node].len());
        }
    }
}

mod large;
mod order;
mod parity;

/// A record far ahead of one that turns out to be another than its stamp says, and a TAIL after it.
#[test]
fn rule_g7_a_tail_after_a_refused_record_takes_nobody_down() {
    let mut net = Net::new(1, 0, 1);
    let Sequencer { multicast, incoming, .. } = &mut net.nodes[0];
    let (_, sink) = multicast.receiving();
    let (now, me, slot, epoch) = (Monotonic(1), Slot(0), Slot(1), EpochId { counter: 1, hash: 1 });
    let (of, incarnation) = (Of { slot, stream: Stream::ORDERED }, incarnation(slot));
    for number in [1, 2 + limits::RELIABLE_AHEAD_MAX] {
        let source = Source::Inside { epoch, slot, incarnation, counter: number, domain: Domain::GROUP };
        let record = Record { source, epoch, incarnation, of, number, signed: false, frames: &[] };
        incoming.take(now, me, &record, |_| true, sink).expect("it is not too far ahead");
    }
    incoming.refuse(now, me, epoch, of, 1);
    incoming.know(now, me, epoch, incarnation, of, 1);
    assert_eq!(incoming.next(epoch, of), Some(1), "that one is missing again");
}

/// Anybody sends our own records again, after all readers have them and they are forgotten: a stream that began with them would
/// have a gap for good, and the order waits for what comes after it.
#[test]
fn rule_g8_our_own_old_records_sent_again_begin_no_stream() {
    let mut net = Net::new(1, 0, 1);
    let incoming = &mut net.nodes[0].incoming;
    let (now, slot, epoch) = (Monotonic(1), Slot(0), EpochId { counter: 1, hash: 1 });
    let of = Of { slot, stream: Stream { domain: Domain(1), signed: false } };
    let incarnation = incarnation(slot);
    let mut begins = |of: Of, number| {
        let source = Source::Inside { epoch, slot, incarnation, counter: number, domain: of.stream.domain };
        let record = Record { source, epoch, incarnation, of, number, signed: false, frames: &[] };
        let begins = incoming.begin_at(now, &record, 5);
        (begins, incoming.next(epoch, of))
    };
    assert_eq!(begins(of, 3), (false, None));
    assert_eq!(begins(of, 5), (false, None));
    assert_eq!(begins(Of { slot, stream: Stream::STAMPS }, 5), (false, None));
    assert_eq!(begins(of, 7), (true, Some(7)));
    assert_eq!(begins(of, 3), (true, Some(7)), "where the stream is known, it knows what is old");
    assert_eq!(begins(Of { slot, stream: Stream::ORDERED }, 3), (true, Some(1)), "of these all are needed");
}

#[test]
fn a_member_that_holds_all_up_goes_by_its_own_reports_where_slow_ones_are_expelled() {
    for expels in [false, true] {
        let mut net = Net::new(4, 0, 900);
        if expels {
            net.nodes.iter_mut().for_each(|it| it.expel_slow(std::time::Duration::from_millis(800)));
        }
        net.order(1, &[0, 1, 2, 3]);
        // It gets few of the datagrams that it asks for, and all that it says is heard.
        net.slow = Some((3, 900));
        for n in 0..400_u32 {
            net.publish_patiently_as(
                Guarantee::Ordered,
                n as usize % 3,
                "c1/a",
                &[&n.to_be_bytes()[..], &[7; 900]].concat(),
            );
            net.run(net.now + 10_000);
        }
        let told: BTreeSet<_> = net.slow_told.iter().copied().collect();
        match expels {
            true => {
                assert!(told.contains(&(0, Slot(3), true)), "the sequencer judges");
                assert!((1..3).all(|it| told.contains(&(it, Slot(3), false))), "the others are told why: {told:?}");
                assert!(told.iter().all(|(_, slot, _)| *slot == Slot(3)), "{told:?}");
            }
            false => assert!(told.is_empty(), "{told:?}"),
        }
        assert!(net.nodes[1].sender().lock().expect("no thread panicked").flow().is_some_and(|it| it.waiting > 0));
        let flow =
            |node: usize| net.nodes[node].sender().lock().expect("no thread panicked").flow().expect("it has one");
        assert!(
            (0..3).all(|it| flow(it).slowest.is_some_and(|(slot, lag)| slot == Slot(3) && lag > 0)),
            "{:?}",
            flow(1)
        );
        net.slow = None;
        net.run(net.now + 5 * SECOND);
        let flow =
            |node: usize| net.nodes[node].sender().lock().expect("no thread panicked").flow().expect("it has one");
        assert!((0..3).all(|it| flow(it).slowest.is_none() && flow(it).waiting == 0), "{:?}", flow(1));
    }
}

#[test]
fn a_sequencer_that_waits_for_its_disk_asks_for_no_time_out_at_once() {
    let mut net = Net::new(3, 0, 901);
    net.order(1, &[0, 1, 2]);
    // It is about to say stamps when the wait begins.
    let mut count = 0;
    while net.nodes[0].stamping.due.is_none_or(|due| due.0 <= net.now) {
        net.publish_as(Guarantee::Ordered, 1, "c1/a", &[count]).expect("there is room");
        net.run(net.now + 40);
        count += 1;
    }
    net.unpolled = Some(0);
    net.run(net.now + 20_000);
    net.unpolled = None;
    net.drain(0);
    net.run(net.now + SECOND);
    assert!((0..3).all(|node| net.order[node].len() == usize::from(count)));
}

/// Senders wait for a member whose readers take nothing; a minute later it is judged, however long its own application waits.
#[test]
fn what_waits_for_acknowledgement_is_bounded_by_time() {
    for guarantee in [Guarantee::Fifo, Guarantee::Ordered] {
        let mut net = Net::new(4, 0, 902);
        net.order(1, &[0, 1, 2, 3]);
        let now = net.at();
        net.nodes[3].handle(now, Input::Pause);
        let mut room = true;
        for _ in 0..10_000 {
            room = net.publish_as(guarantee, 1, "c1/a", &[7; 900]).is_ok();
            net.run(net.now + 1_000);
        }
        assert!(!room, "senders wait");
        net.run(net.now + 40 * SECOND);
        assert!(net.slow_told.is_empty(), "{:?}", net.slow_told);
        net.run(net.now + 30 * SECOND);
        let told: BTreeSet<_> = net.slow_told.iter().copied().collect();
        assert!(told.contains(&(0, Slot(3), true)), "{guarantee:?}: {told:?}");
    }
}

#[test]
fn no_insider_can_make_another_member_slow() {
    let mut net = Net::new(4, 0, 901);
    net.nodes.iter_mut().for_each(|it| it.expel_slow(std::time::Duration::from_millis(800)));
    net.order(1, &[0, 1, 2, 3]);
    let ring = Ring::of_runs(2, 2, (0..4).map(|it| incarnation(Slot(it))).collect());
    let view = ring.epoch();
    for n in 0..300_u64 {
        net.publish_patiently_as(Guarantee::Ordered, 0, "c1/a", &n.to_be_bytes());
        // The member at slot 2 says that slot 1 holds nothing, and that it goes; and stamps its word as if it were the sequencer's.
        for (nth, control) in [Control::Ack(0), Control::Slow(Slot(1))].into_iter().enumerate() {
            let mut frame = Vec::new();
            crate::multicast::frame::write_control(&control.bytes(), &mut frame);
            let slot = Slot([1, 0][nth]);
            let datagram = ring.forge(Domain::GROUP, 0, slot, 4_000 + 2 * n + nth as u64, &frame);
            (0..4).for_each(|to| net.carry(2, to, &datagram));
        }
        net.run(net.now + 10_000);
    }
    assert!(net.slow_told.is_empty(), "in {view:?}: {:?}", net.slow_told);
}

/// An insider says for another member that it holds all, so all forget what that one lacks.
#[test]
fn lsgc_w20_rule_a3_a_member_that_lacks_what_all_forgot_is_told_so_with_proof_and_goes_on_behind_the_gap() {
    let mut net = Net::new(3, 0, 910);
    net.order(1, &[0, 1, 2]);
    let ring = Ring::of_runs(2, 1, (0..3).map(|it| incarnation(Slot(it))).collect());
    net.deaf.insert(2);
    for n in 0..40_u8 {
        net.publish_patiently_as(Guarantee::Ordered, 0, "c1/a", &[n]);
        net.acknowledge_for(&ring, Slot(2), 4_000 + u64::from(n));
    }
    assert_eq!(net.ordered[0].len(), 40, "all are said to hold it");
    net.deaf.clear();
    // Without the key of the sequencer's word nobody is told so.
    let mut frame = Vec::new();
    let past = Control::Past { first: u64::MAX, proof: vec![1; 65] };
    crate::multicast::frame::write_control(&past.bytes(), &mut frame);
    let forged = ring.forge(Domain::GROUP, 0, Slot(0), 4_000, &frame);
    net.carry(1, 2, &forged);
    net.run(net.now + 1_000);
    let before = net.renewed.clone();
    assert_eq!(net.order[2].len(), 0);
    for n in 40..44 {
        net.publish_patiently_as(Guarantee::Ordered, 0, "c1/a", &[n]);
        net.run(net.now + 200_000);
    }
    assert_eq!(net.renewed, [before[0], before[1], before[2] + 1], "it alone asks for another view, once");
    let delivered = net.order[2].len();
    assert!(delivered < 40);
    net.change(3, &[0, 1, 2]);
    assert_eq!(net.gaps, [2], "it alone has a gap");
    net.publish_patiently_as(Guarantee::Ordered, 1, "c1/a", b"after");
    net.run(net.now + SECOND);
    assert!(net.order.iter().all(|it| it.last().is_some_and(|(.., body)| body == b"after")));
    assert_eq!(net.order[2].len(), delivered + 1);
}

impl Net {
    fn follow(&mut self, node: usize) {
        self.states.entry(node).or_default();
        let now = self.at();
        self.nodes[node].handle(now, Input::State(StateInput::Follow(STATE_TOPIC)));
        self.drain(node);
    }

    fn say_some(&mut self, from: &[usize], count: u16) {
        for n in 0..count {
            let body = [&n.to_be_bytes()[..], &vec![7; usize::from(n % 5) * 200]].concat();
            self.publish_patiently_as(Guarantee::Ordered, from[usize::from(n) % from.len()], STATE_TOPIC, &body);
            self.run(self.now + 2_000);
        }
    }

    /// All of these have the same state, and all that was said is in it.
    fn have_one_state(&self, who: &[usize]) {
        let first = &self.states[&who[0]];
        assert!(first.has && !first.entries.is_empty());
        for node in who {
            let it = &self.states[node];
            assert!(it.has && it.waiting.is_empty(), "node {node}");
            assert_eq!(it.entries.len(), first.entries.len(), "node {node}");
            assert!(it.entries == first.entries, "node {node}");
        }
    }
}

#[test]
fn a_member_that_comes_gets_the_state_and_each_message_after_it_once() {
    for (loss, seed) in [(0, 920), (100, 921), (200, 922)] {
        let mut net = Net::new(4, loss, seed);
        (0..3).for_each(|node| net.follow(node));
        net.order(1, &[0, 1, 2]);
        net.say_some(&[0, 1, 2], 100);
        net.run(net.now + SECOND);
        net.have_one_state(&[0, 1, 2]);
        assert!((0..3).all(|node| (net.states[&node].begun, net.states[&node].came) == (1, 0)));
        net.follow(3);
        net.change(3, &[0, 1, 2, 3]);
        net.change(4, &[0, 1, 2, 3]);
        net.say_some(&[0, 1, 2, 3], 100);
        assert!(loss > 0 || net.states[&3].has, "it comes while others publish without a pause");
        net.run(net.now + 2 * SECOND);
        net.have_one_state(&[0, 1, 2, 3]);
        assert_eq!((net.states[&3].begun, net.states[&3].came), (0, 1), "loss {loss}");
    }
}

/// Machines often let in nothing from others but what goes to the group, and what answers them.
#[test]
fn where_machines_let_in_answers_alone_messages_are_acknowledged_and_a_state_comes() {
    for loss in [0, 100] {
        let mut net = Net::new(4, loss, 925);
        net.guards = Some(BTreeSet::new());
        (0..3).for_each(|node| net.follow(node));
        net.order(1, &[0, 1, 2]);
        net.say_some(&[0, 1, 2], 100);
        net.run(net.now + SECOND);
        net.follow(3);
        net.change(3, &[0, 1, 2, 3]);
        net.change(4, &[0, 1, 2, 3]);
        net.say_some(&[0, 1, 2, 3], 20);
        net.run(net.now + 2 * SECOND);
        net.have_one_state(&[0, 1, 2, 3]);
        assert_eq!((net.states[&3].begun, net.states[&3].came), (0, 1), "loss {loss}");
    }
}

#[test]
fn a_giver_that_dies_is_replaced_and_a_gap_is_filled_with_a_state() {
    let mut net = Net::new(4, 50, 930);
    (0..4).for_each(|node| net.follow(node));
    net.order(1, &[0, 1, 2, 3]);
    net.say_some(&[0, 1, 2, 3], 200);
    net.run(net.now + SECOND);
    // Apart from the others it misses some of the order.
    net.parted = Some(BTreeSet::from([3]));
    net.change(3, &[0, 1, 2]);
    net.say_some(&[0, 1, 2], 200);
    net.install(4, &[3]);
    net.run(net.now + SECOND);
    net.parted = None;
    net.current[3] = 0;
    net.change(5, &[0, 1, 2, 3]);
    net.current[3] = 5;
    net.change(6, &[0, 1, 2, 3]);
    assert_eq!((net.gaps.contains(&3), net.states[&3].lost, net.states[&3].has), (true, 1, false));
    // The first one that it asks hears nothing any more, once it gave a part of it.
    let part = (0..4_000).find(|_| {
        net.run(net.now + 100);
        let parts = net.sent.iter().filter(|(_, it)| it.len() > 950).count();
        parts > 0 && net.nodes[3].states_due().is_some()
    });
    assert!(part.is_some());
    net.deaf.insert(0);
    net.run(net.now + 100_000);
    net.change(7, &[1, 2, 3]);
    net.say_some(&[1, 2, 3], 50);
    net.run(net.now + 4 * SECOND);
    net.have_one_state(&[1, 2, 3]);
    assert_eq!((net.states[&3].begun, net.states[&3].came), (1, 1));
}

#[test]
fn where_nobody_has_a_state_the_lowest_slot_begins_and_who_may_not_publish_gives_none() {
    let mut net = Net::new(3, 0, 940);
    net.order(1, &[0, 1, 2]);
    net.say_some(&[0], 20);
    (0..3).for_each(|node| net.follow(node));
    net.run(net.now + SECOND);
    assert_eq!((net.states[&0].begun, net.states[&1].came, net.states[&2].came), (1, 1, 1));
    net.say_some(&[0, 1, 2], 20);
    net.run(net.now + SECOND);
    net.have_one_state(&[0, 1, 2]);
    // Who does not read the topic is told nothing of it: its key seals all that is said of its state.
    let inside = |it: &Vec<u8>| Header::parse(it).is_ok_and(|it| it.domain == Domain(1) && it.flags == 0);
    assert!(net.sent.iter().filter(|(_, it)| inside(it)).count() > 4);
}

/// An insider said that it held what it did not, and nobody else has it: what members had is not lost.
#[test]
fn rule_b2_where_all_lack_messages_who_had_the_most_goes_on_with_that() {
    let mut net = Net::new(3, 0, 941);
    (1..3).for_each(|node| net.follow(node));
    net.order(1, &[0, 1, 2]);
    net.say_some(&[0, 1, 2], 20);
    net.run(net.now + SECOND);
    let less = net.nodes[1].next_position();
    net.say_some(&[0], 5);
    net.run(net.now + SECOND);
    let (more, now) = (net.nodes[2].next_position(), net.at().monotonic);
    assert!(less < more);
    for (node, had) in [(1, less), (2, more)] {
        net.nodes[node].states_enter(now, false, true, had);
        net.drain(node);
        assert!(!net.states[&node].has);
    }
    // It came just now, and has the lowest slot.
    net.follow(0);
    net.say_some(&[0, 1], 5);
    net.run(net.now + 2 * SECOND);
    assert_eq!([0, 1, 2].map(|node| net.states[&node].resumed), [0, 0, 1]);
    assert_eq!([0, 1, 2].map(|node| net.states[&node].begun), [0, 1, 1]);
    net.say_some(&[0, 1, 2], 20);
    net.run(net.now + SECOND);
    net.have_one_state(&[0, 1, 2]);
}

#[test]
fn rule_g2_any_word_about_a_state_is_read_as_it_was_written_or_malformed() {
    use super::state::{Head, StateMessage};
    let topic = "c1/state".to_owned();
    let here = Head::Here { ticket: 1, position: 2, len: 3, hash: [4; 32] };
    let head = |head| StateMessage::Head { asker: Slot(7), nonce: 8, head, topic: topic.clone(), proof: [9; 64] };
    let words = [
        StateMessage::Query { giver: Slot(3), nonce: 4, least: 5, topic: topic.clone() },
        head(Head::Nothing),
        head(Head::Waits { had: 0 }),
        head(Head::Waits { had: 5 }),
        head(Head::Comes),
        head(here),
        StateMessage::Want { giver: Slot(1), ticket: 2, first: 3, count: 4 },
        StateMessage::Piece { asker: Slot(1), ticket: 2, index: 3, bytes: vec![4; 960] },
    ];
    for word in words {
        let bytes = Control::State(word.clone()).bytes();
        assert_eq!(Control::read(&bytes), Ok(Control::State(word.clone())));
        if !matches!(word, StateMessage::Piece { .. }) {
            assert!((0..bytes.len()).all(|n| Control::read(&bytes[..n]).is_err()));
        }
        assert!(Control::read(&[&bytes[..], &[0]].concat()).is_err());
    }
    let many = Control::State(head(Head::Nothing)).bytes();
    assert!(Control::read(&[&many[..14], &[1], &many[15..]].concat()).is_err(), "nothing, with a ticket");
}
