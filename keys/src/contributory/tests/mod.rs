//! A small network with virtual time, and the scenarios that run in it. Everything follows from the seed.

mod attacks;
mod formation;
mod hostile;
mod insiders;
mod membership;
mod messages;
mod rights;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex};

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use sealcast_crypto::identity::authority::{Authority, Request};
use sealcast_crypto::identity::holder::Identity;
use sealcast_crypto::identity::keytext::MemberSecret;
use sealcast_crypto::identity::rights::{Act, Right, Rights};
use sealcast_crypto::signature::Algorithm;
use sealcast_wire::frame::{HEADER_LEN, TAG_LEN};
use sealcast_wire::{
    Access, Address, Domain, EpochId, Flush, Monotonic, Now, Protect, Slot, Source, Utc, View, limits,
};

use super::message::Message;
use super::{Config, Contributory, Memo, Versions};
use crate::{Command, Exclusion, Input, Keys, Notice, Output};

pub(super) const GROUP: &str = "robots";
pub(super) const UTC: Utc = Utc(1_790_000_000);

/// One authority and its members' identities for all tests; identities are made once.
pub(super) struct House {
    pub(super) authority: Authority,
    identities: BTreeMap<String, Arc<Identity>>,
    rng: ChaCha20Rng,
}

pub(super) static HOUSE: LazyLock<Mutex<House>> = LazyLock::new(|| {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let authority = Authority::create("ca", Algorithm::Ed25519, UTC, &mut rng).unwrap();
    let mut house = House { authority, identities: BTreeMap::new(), rng };
    // In one order, whichever test is first: their certificates, and with them what a seed plays, are the same each time.
    for i in 0..ROBOTS {
        house.robot(i);
    }
    Mutex::new(house)
});

/// Robots whose certificates are made before any other.
const ROBOTS: usize = 65;

impl House {
    fn robot(&mut self, i: usize) -> Arc<Identity> {
        self.identity(&format!("robot{i}"), &[(Act::Both, "#")])
    }

    /// The identity of a name, with rights in the group as given at the first call.
    pub(super) fn identity(&mut self, name: &str, rights: &[(Act, &str)]) -> Arc<Identity> {
        if let Some(identity) = self.identities.get(name) {
            return identity.clone();
        }
        let algorithm = if name.starts_with("p256") { Algorithm::P256 } else { Algorithm::Ed25519 };
        let secret = MemberSecret::generate(algorithm, &mut self.rng);
        let rights: Rights = rights.iter().map(|(act, p)| Right::new(GROUP, *act, p).unwrap()).collect();
        let request = Request { name: name.into(), keys: secret.public(), rights, attributes: vec![] };
        let certificate = self.authority.issue(&request, UTC, 86_400 * 365).unwrap();
        let anchor = self.authority.anchor().clone();
        let identity = Identity::new(&certificate, &secret, anchor).unwrap();
        let identity = Arc::new(identity.with_bootstrap_key(GROUP, self.authority.bootstrap_key(GROUP)));
        self.identities.insert(name.into(), identity.clone());
        identity
    }
}

pub(super) fn house() -> std::sync::MutexGuard<'static, House> {
    HOUSE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub(super) fn robot(i: usize) -> Arc<Identity> {
    house().robot(i)
}

/// An epoch as a node got it.
#[derive(Clone)]
pub(super) struct Epoch {
    pub(super) at: u64,
    pub(super) view: View,
    pub(super) protect: Arc<dyn Protect>,
    pub(super) access: Arc<dyn Access>,
}

pub(super) struct Node {
    pub(super) keys: Contributory,
    pub(super) identity: Arc<Identity>,
    pub(super) alive: bool,
    pub(super) started: u64,
    pub(super) epochs: Vec<Epoch>,
    pub(super) keyed: Vec<EpochId>,
    pub(super) prepared: Vec<View>,
    /// What its transport says of the view that is flushed, if it answers.
    pub(super) cut: Option<u8>,
    pub(super) abandoned: usize,
    pub(super) excluded: Option<Exclusion>,
    pub(super) notices: Vec<Notice>,
    pub(super) records: BTreeMap<u64, Vec<u8>>,
    /// Part of the network: only nodes of one part hear each other.
    pub(super) part: u32,
}

/// The network: who hears what, when.
pub(super) struct Net {
    pub(super) seed: u64,
    rng: ChaCha20Rng,
    pub(super) now: u64,
    pub(super) nodes: Vec<Node>,
    queue: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    starts: BTreeMap<(u64, usize), (Arc<Identity>, Versions)>,
    sequence: u64,
    pub(super) memo: Arc<Memo>,
    /// Percent.
    pub(super) loss: u64,
    pub(super) duplication: u64,
    /// What those speak that start from now on.
    pub(super) versions: Versions,
    /// Whether those who start from now on have a reliable channel.
    pub(super) reliable: bool,
    /// After how much silence members suspect.
    pub(super) detect: std::time::Duration,
    /// Least delay, microseconds.
    pub(super) delay: u64,
    /// Extra delay of up to this, microseconds: reorders.
    pub(super) spread: u64,
    /// All that was sent, in order.
    pub(super) log: Vec<(u64, usize, Vec<u8>)>,
    pub(super) keep_log: bool,
    /// Messages of these nodes are not sent: what a crash right before sending looks like to others.
    pub(super) muted: BTreeSet<usize>,
    /// What the muted wanted to send.
    pub(super) held_back: Vec<Vec<u8>>,
    /// Nodes whose machine has no calendar.
    pub(super) no_calendar: BTreeSet<usize>,
    next_index: usize,
}

impl Net {
    pub(super) fn new(seed: u64) -> Net {
        Net {
            seed,
            rng: ChaCha20Rng::seed_from_u64(seed),
            now: 1_000_000,
            nodes: Vec::new(),
            queue: BTreeMap::new(),
            starts: BTreeMap::new(),
            sequence: 0,
            memo: Arc::new(Memo::default()),
            loss: 0,
            duplication: 0,
            versions: Versions::OURS,
            reliable: false,
            detect: sealcast_wire::limits::DETECT,
            delay: 1000,
            spread: 100,
            log: Vec::new(),
            keep_log: false,
            muted: BTreeSet::new(),
            held_back: Vec::new(),
            no_calendar: BTreeSet::new(),
            next_index: 0,
        }
    }

    /// `n` robots, started within `jitter` ms.
    pub(super) fn robots(seed: u64, n: usize, jitter_ms: u64) -> Net {
        let mut net = Net::new(seed);
        for i in 0..n {
            let at = if jitter_ms == 0 { 0 } else { net.rng.next_u64() % (jitter_ms * 1000) };
            net.start_at(net.now + at, robot(i));
        }
        net
    }

    /// The `i`-th node started gets index `i` in `nodes` once its time has come, in order of time.
    pub(super) fn start_at(&mut self, at: u64, identity: Arc<Identity>) {
        self.next_index += 1;
        self.starts.insert((at, self.next_index), (identity, self.versions));
    }

    pub(super) fn start(&mut self, identity: Arc<Identity>) -> usize {
        self.boot(identity, self.versions, &BTreeMap::new())
    }

    fn boot(&mut self, identity: Arc<Identity>, versions: Versions, records: &BTreeMap<u64, Vec<u8>>) -> usize {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        let config = Config {
            memo: Some(self.memo.clone()),
            detect: self.detect,
            versions,
            reliable: self.reliable,
            ..Config::new(GROUP, identity.clone())
        };
        let records: Vec<(u64, Vec<u8>)> = records.iter().map(|(id, r)| (*id, r.clone())).collect();
        let keys = Contributory::restore(config, seed, self.clock(), &records);
        self.nodes.push(Node {
            keys,
            identity,
            alive: true,
            started: self.now,
            epochs: Vec::new(),
            keyed: Vec::new(),
            prepared: Vec::new(),
            cut: Some(0),
            abandoned: 0,
            excluded: None,
            notices: Vec::new(),
            records: BTreeMap::new(),
            part: 0,
        });
        self.nodes.len() - 1
    }

    /// Kills a node; its successor with the same identity and records gets a new index.
    pub(super) fn restart(&mut self, i: usize) -> usize {
        self.nodes[i].alive = false;
        let (identity, records) = (self.nodes[i].identity.clone(), self.nodes[i].records.clone());
        let versions = self.nodes[i].keys.config.versions;
        self.boot(identity, versions, &records)
    }

    pub(super) fn clock(&self) -> Now {
        Now { monotonic: Monotonic(self.now), utc: Some(UTC) }
    }

    fn clock_of(&self, i: usize) -> Now {
        Now { utc: Some(UTC).filter(|_| !self.no_calendar.contains(&i)), ..self.clock() }
    }

    /// Runs for so many milliseconds of virtual time.
    pub(super) fn run(&mut self, ms: u64) {
        let end = self.now + ms * 1000;
        while self.step(end) {}
        self.now = end;
    }

    /// Runs until `done`, at most so long; whether it came to pass.
    pub(super) fn run_until(&mut self, ms: u64, done: impl Fn(&Net) -> bool) -> bool {
        let end = self.now + ms * 1000;
        loop {
            if done(self) {
                return true;
            }
            if !self.step(end) {
                return false;
            }
        }
    }

    pub(super) fn step(&mut self, end: u64) -> bool {
        let message = self.queue.first_key_value().map(|((at, _), _)| *at);
        let start = self.starts.first_key_value().map(|((at, _), _)| *at);
        let live = self.nodes.iter().enumerate().filter(|(_, n)| n.alive);
        let timer = live.filter_map(|(i, n)| Some((n.keys.timeout()?.0.max(self.now), i))).min();
        let next = [message, start, timer.map(|(at, _)| at)].into_iter().flatten().min();
        let Some(next) = next.filter(|at| *at <= end) else { return false };
        self.now = next;
        if start == Some(next) {
            let (_, (identity, versions)) = self.starts.pop_first().unwrap();
            let i = self.boot(identity, versions, &BTreeMap::new());
            self.drain(i);
        } else if message == Some(next) {
            let (_, (to, bytes)) = self.queue.pop_first().unwrap();
            self.deliver(to, &bytes);
        } else {
            let (_, i) = timer.unwrap();
            let now = self.clock_of(i);
            self.nodes[i].keys.handle_timeout(now);
            self.drain(i);
        }
        true
    }

    pub(super) fn deliver(&mut self, to: usize, bytes: &[u8]) {
        if self.nodes[to].alive {
            let now = self.clock_of(to);
            _ = self.nodes[to].keys.hear(now, &Source::Outside(Address::Node(0)), bytes);
            self.drain(to);
        }
    }

    pub(super) fn command(&mut self, i: usize, command: Command) -> Result<(), crate::CommandError> {
        let now = self.clock();
        let result = self.nodes[i].keys.command(now, command);
        self.drain(i);
        result
    }

    pub(super) fn suspect(&mut self, i: usize, slot: Slot) {
        let now = self.clock();
        self.nodes[i].keys.suspect(now, slot);
        self.drain(i);
    }

    pub(super) fn drain(&mut self, i: usize) {
        while let Some(output) = self.nodes[i].keys.poll() {
            let (at, node) = (self.now, &mut self.nodes[i]);
            match output {
                Output::Send { bytes, .. } => self.broadcast(i, bytes),
                Output::Keyed { epoch, .. } => node.keyed.push(epoch),
                Output::DeliveredBefore { .. } => {}
                Output::SenderKey { .. } => {}
                Output::Epoch { view, protect, access } => {
                    let protect = protect.expect("contributory seals");
                    // Whoever was alone goes to any group's.
                    let grouped = |e: &&Epoch| e.view.members.len() >= 2;
                    let before = node.epochs.last().filter(grouped).map_or(0, |e| e.view.epoch.counter);
                    assert!(
                        view.epoch.counter > before,
                        "seed {}: {i} goes from {before} to {:?}",
                        self.seed,
                        view.epoch
                    );
                    node.epochs.push(Epoch { at, view, protect, access });
                }
                Output::Prepare { view, flush } => {
                    let epoch = view.epoch;
                    node.prepared.push(view);
                    if let Some(cut) = node.cut.filter(|_| flush != Flush::Later) {
                        let now = self.clock_of(i);
                        self.nodes[i].keys.handle(now, Input::Flushed(epoch, [cut; 32])).expect("never refused");
                    }
                }
                Output::Abandoned => node.abandoned += 1,
                Output::Excluded { why } => node.excluded = Some(why),
                Output::Notice { notice, .. } => node.notices.push(notice),
                Output::Store { id, record } => _ = node.records.insert(id, record),
                Output::Fetch { .. }
                | Output::Provide { .. }
                | Output::Packages(_)
                | Output::Again(_)
                | Output::AppendKey(_)
                | Output::Checkpointed(_)
                | Output::Withdraw(_)
                | Output::Opened { .. }
                | Output::Described(_) => {
                    panic!("not of this scheme")
                }
            }
        }
    }

    pub(super) fn broadcast(&mut self, from: usize, bytes: Vec<u8>) {
        if self.muted.contains(&from) {
            self.held_back.push(bytes);
            return;
        }
        self.transmit(from, None, bytes);
    }

    /// Sends to one, or to all.
    pub(super) fn transmit(&mut self, from: usize, only: Option<usize>, bytes: Vec<u8>) {
        let part = self.nodes[from].part;
        if self.keep_log {
            self.log.push((self.now, from, bytes.clone()));
        }
        for to in 0..self.nodes.len() {
            let hears =
                to != from && only.is_none_or(|only| only == to) && self.nodes[to].alive && self.nodes[to].part == part;
            if !hears || self.rng.next_u64() % 100 < self.loss {
                continue;
            }
            let copies = 1 + u64::from(self.rng.next_u64() % 100 < self.duplication);
            for _ in 0..copies {
                self.sequence += 1;
                let at = self.now + self.delay + if self.spread == 0 { 0 } else { self.rng.next_u64() % self.spread };
                self.queue.insert((at, self.sequence), (to, bytes.clone()));
            }
        }
    }

    pub(super) fn live(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes.len()).filter(|i| self.nodes[*i].alive && self.nodes[*i].excluded.is_none())
    }

    /// Whether all that live are in one epoch whose roster is exactly them, and everybody is started.
    pub(super) fn is_one(&self) -> bool {
        self.starts.is_empty() && self.are_one(&self.live().collect::<Vec<_>>())
    }

    /// Whether these are in one epoch whose roster is exactly them.
    pub(super) fn are_one(&self, who: &[usize]) -> bool {
        let Some(first) = who.first().and_then(|i| self.nodes[*i].epochs.last()) else { return false };
        let ids: BTreeSet<_> = who.iter().map(|i| self.nodes[*i].keys.me.id).collect();
        let roster: BTreeSet<_> = first.view.members.iter().map(|m| m.id).collect();
        ids == roster
            && who.iter().all(|i| {
                self.nodes[*i]
                    .epochs
                    .last()
                    .is_some_and(|e| e.view.epoch == first.view.epoch && e.view.members == first.view.members)
            })
    }

    /// What each seals in the group's domain the others open: the key is the same.
    pub(super) fn assert_one_key(&self, who: &[usize]) {
        for from in who {
            let sealed = seal(&self.nodes[*from].epochs.last().unwrap().protect, Domain::GROUP, b"hello");
            for to in who.iter().filter(|to| *to != from) {
                let opened = open(&self.nodes[*to].epochs.last().unwrap().protect, &sealed);
                assert_eq!(opened.as_deref(), Ok(&b"hello"[..]), "seed {}: {from} → {to}", self.seed);
            }
        }
    }

    pub(super) fn epoch_of(&self, i: usize) -> Option<EpochId> {
        self.nodes[i].epochs.last().map(|e| e.view.epoch)
    }

    /// When the last of the given nodes installed its present epoch, ms after the last start.
    pub(super) fn since_last_start(&self) -> f64 {
        let last_start = self.nodes.iter().map(|n| n.started).max().unwrap();
        let installed = self.live().filter_map(|i| self.nodes[i].epochs.last()).map(|e| e.at).max().unwrap();
        (installed.saturating_sub(last_start)) as f64 / 1000.0
    }

    /// Sum over all nodes.
    pub(super) fn counters(&self) -> BTreeMap<&'static str, (u64, u64)> {
        let mut sum: BTreeMap<&'static str, (u64, u64)> = BTreeMap::new();
        for node in &self.nodes {
            for (name, tally) in node.keys.status(self.clock()).counters.iter() {
                let entry = sum.entry(name).or_default();
                entry.0 += tally.sent;
                entry.1 += tally.sent_bytes;
            }
        }
        sum
    }

    /// The last messages sent, for failures; needs `keep_log`.
    pub(super) fn tail(&self, n: usize) -> String {
        let line = |(at, from, bytes): &(u64, usize, Vec<u8>)| {
            let mut text = format!("{:?}", bootstrap_open(bytes));
            text.truncate(300);
            format!("{:9.3} {from:2} {text}\n", *at as f64 / 1000.0)
        };
        self.log[self.log.len().saturating_sub(n)..].iter().map(line).collect()
    }

    /// A line for failures: where everybody stands.
    pub(super) fn describe(&self) -> String {
        let mut text = format!("seed {} at {} ms\n", self.seed, self.now / 1000);
        for (i, n) in self.nodes.iter().enumerate().filter(|(_, n)| n.alive) {
            let epoch = n.epochs.last().map(|e| (e.view.epoch, e.view.members.len()));
            let attempt = n.keys.attempt.as_ref().map(|a| {
                let c = &a.proposal.content;
                (c.counter, c.attempt, c.seats.len(), a.proposal.id(), format!("{:?}", state(a)))
            });
            let wanting = n.keys.wanting.len();
            let merging = n.keys.merging.is_some();
            text += &format!(
                "  {i} {:?} {epoch:?} attempt {attempt:?} wanting {wanting} merging {merging} removing {:?} strikes {} out {:?}\n",
                n.keys.me.short.0[0],
                n.keys.removing.len(),
                n.keys.strikes.len(),
                n.excluded,
            );
        }
        text
    }
}

fn state(a: &super::Attempt) -> &'static str {
    use super::attempt::AttemptState;
    match a.state {
        AttemptState::Gathering => "gathering",
        AttemptState::Round1 { sent: false, .. } => "waiting",
        AttemptState::Round1 { .. } => "r1",
        AttemptState::Round2 { .. } => "r2",
        AttemptState::Confirming(_) => "kc",
        AttemptState::Done => "done",
        AttemptState::Failed => "failed",
    }
}

pub(super) fn seal(protect: &Arc<dyn Protect>, domain: Domain, text: &[u8]) -> Vec<u8> {
    let mut d = vec![0; HEADER_LEN];
    d.extend_from_slice(text);
    d.resize(d.len() + TAG_LEN, 0);
    protect.seal(domain, 0, &mut d).unwrap();
    d
}

pub(super) fn open(protect: &Arc<dyn Protect>, sealed: &[u8]) -> Result<Vec<u8>, sealcast_wire::Dropped> {
    protect.open(&mut sealed.to_vec()).map(|(_, _, text)| text.to_vec())
}

/// What lies under the bootstrap key.
pub(super) fn bootstrap_open(bytes: &[u8]) -> Message {
    let bootstrap_key = robot(0).bootstrap_key(GROUP);
    Message::decode(&bootstrap_key.open(bytes).unwrap()).unwrap()
}

/// How many seeds a sweep tries: few by default, as many as wished by `SEALCAST_SEEDS`.
pub(super) fn seeds(default: u64) -> u64 {
    std::env::var("SEALCAST_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}
