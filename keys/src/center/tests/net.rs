//! Members and a centre in a small network with virtual time. Everything follows from the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};
use sealcast_crypto::bootstrap::BootstrapKey;
use sealcast_crypto::identity::{Act, Principal};
use sealcast_wire::frame::{HEADER_LEN, TAG_LEN};
use sealcast_wire::{
    Access, Address, CertHash, Domain, EpochId, Flush, MemberId, Monotonic, Protect, Slot, Source, To, View,
};

use super::realm::{GROUP, Realm, now};
use crate::center::message::{Content, Message};
use crate::center::query::Refusal;
use crate::center::{Center, Config};
use crate::{Command, Exclusion, HandleError, Input, Keys, Misbehaviour, Notice, Output};

pub(in crate::center) const REKEY: Duration = Duration::from_secs(60);
pub(in crate::center) const KDC: u32 = 1000;
/// A second one, which answers as the first does.
pub(in crate::center) const STAND_BY: u32 = 1001;

pub(in crate::center) struct Net {
    pub(in crate::center) realm: Realm,
    pub(in crate::center) nodes: Vec<Node>,
    rng: ChaCha20Rng,
    pub(in crate::center) time: u64,
    queue: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    /// Of a hundred datagrams.
    pub(in crate::center) loss: u64,
    pub(in crate::center) kdc_is_up: bool,
    /// Whether those who start have a reliable channel.
    pub(in crate::center) reliable: bool,
    /// The `detect` of those who start.
    pub(in crate::center) detect: Duration,
    /// The group of each node: others are not heard.
    pub(in crate::center) parts: Vec<u32>,
    /// What crossed the network, newest last.
    pub(in crate::center) tapped: Vec<Vec<u8>>,
    /// Times that somebody was sent one of these.
    pub(in crate::center) receptions: usize,
    pub(in crate::center) kdc_tapped: Vec<Vec<u8>>,
    pub(in crate::center) convicted: Vec<(CertHash, Misbehaviour)>,
}

pub(in crate::center) struct Node {
    pub(in crate::center) keys: Option<Center>,
    pub(in crate::center) principal: Arc<Principal>,
    pub(in crate::center) me: MemberId,
    pub(in crate::center) views: Vec<Installed>,
    pub(in crate::center) excluded: Option<Exclusion>,
    prepared: bool,
    /// How this member's transport says that a view ended; by default all alike.
    pub(in crate::center) cut: u8,
    pub(in crate::center) paused: bool,
    /// What it was told of others' channels.
    pub(in crate::center) other_channels: Vec<bool>,
    /// What centres proved that they do not do.
    pub(in crate::center) refused: Vec<Refusal>,
    /// Whether it was told that it is not let in for want of room, or that somebody else is not.
    pub(in crate::center) full: Vec<bool>,
    /// Whose tokens it was told are stolen.
    pub(in crate::center) stolen: Vec<CertHash>,
}

pub(in crate::center) struct Installed {
    pub(in crate::center) view: View,
    pub(in crate::center) protect: Arc<dyn Protect>,
    pub(in crate::center) access: Arc<dyn Access>,
}

enum Event {
    Datagram { to: usize, from: Address, bytes: Vec<u8> },
    AtKdc { from: usize, at: u32, bytes: Vec<u8> },
    Flushed { at: usize, epoch: EpochId },
    Timer(usize),
}

impl Net {
    pub(in crate::center) fn new(seed: u64) -> Net {
        Net {
            realm: Realm::new(),
            nodes: Vec::new(),
            rng: ChaCha20Rng::seed_from_u64(seed),
            time: 1_000_000,
            queue: BTreeMap::new(),
            sequence: 0,
            loss: 0,
            kdc_is_up: true,
            reliable: false,
            detect: Duration::from_millis(500),
            parts: Vec::new(),
            tapped: Vec::new(),
            receptions: 0,
            kdc_tapped: Vec::new(),
            convicted: Vec::new(),
        }
    }

    /// Registers somebody and starts it.
    pub(in crate::center) fn start(&mut self, name: &str, rights: &[(Act, &str)]) -> usize {
        let principal = Arc::new(self.realm.register(name, rights));
        self.run(principal)
    }

    /// Starts a run of a principal.
    pub(in crate::center) fn run(&mut self, principal: Arc<Principal>) -> usize {
        let centers = vec![Address::Node(KDC), Address::Node(STAND_BY)];
        let usual = Config::new(GROUP, principal.clone(), centers);
        let config = Config { detect: self.detect, rekey_after: REKEY, reliable: self.reliable, ..usual };
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        let keys = Center::new(config, seed, now(self.time)).unwrap();
        self.nodes.push(Node {
            me: keys.me,
            keys: Some(keys),
            principal,
            views: Vec::new(),
            excluded: None,
            prepared: false,
            cut: 1,
            paused: false,
            other_channels: Vec::new(),
            refused: Vec::new(),
            full: Vec::new(),
            stolen: Vec::new(),
        });
        self.parts.push(0);
        self.drain(self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    pub(in crate::center) fn stop(&mut self, at: usize) {
        self.nodes[at].keys = None;
    }

    pub(in crate::center) fn hash(&self, at: usize) -> CertHash {
        self.nodes[at].principal.registration.hash()
    }

    pub(in crate::center) fn for_millis(&mut self, millis: u64) {
        let until = self.time + millis * 1000;
        while let Some(((at, _), _)) = self.queue.first_key_value()
            && *at <= until
        {
            let ((at, _), event) = self.queue.pop_first().unwrap();
            self.time = self.time.max(at);
            self.happen(event);
        }
        self.time = until;
    }

    fn happen(&mut self, event: Event) {
        let time = now(self.time);
        match event {
            Event::Datagram { to, from, mut bytes } => {
                let Some(keys) = &mut self.nodes[to].keys else { return };
                let source = Source::Outside(from);
                if let Err(HandleError::Misbehaved(who, why)) =
                    keys.handle(time, Input::Message { source: &source, position: None, bytes: &mut bytes })
                {
                    self.convicted.push((who, why));
                }
                self.drain(to);
            }
            Event::AtKdc { from, at, bytes } => {
                self.kdc_tapped.push(bytes.clone());
                if self.kdc_is_up
                    && let Ok(answer) = self.realm.kdc.answer(time, &bytes)
                {
                    self.kdc_tapped.push(answer.clone());
                    self.post(Event::Datagram { to: from, from: Address::Node(at), bytes: answer });
                }
            }
            Event::Flushed { at, epoch } => {
                let cut = [self.nodes[at].cut; 32];
                if let Some(keys) = &mut self.nodes[at].keys {
                    keys.handle(time, Input::Flushed(epoch, cut)).unwrap();
                    self.drain(at);
                }
            }
            Event::Timer(at) => {
                let Some(keys) = &mut self.nodes[at].keys else { return };
                if keys.timeout().is_some_and(|due| due <= time.monotonic) {
                    keys.handle_timeout(time);
                    self.drain(at);
                }
            }
        }
    }

    /// Hands a node bytes that anybody could have sent; whether it took them.
    pub(in crate::center) fn inject(&mut self, to: usize, bytes: &[u8]) -> Result<(), HandleError> {
        self.inject_from(77, to, bytes)
    }

    /// The same from this address.
    pub(in crate::center) fn inject_from(&mut self, from: u32, to: usize, bytes: &[u8]) -> Result<(), HandleError> {
        let source = Source::Outside(Address::Node(from));
        let input = Input::Message { source: &source, position: None, bytes };
        let time = now(self.time);
        let taken = self.nodes[to].keys.as_mut().unwrap().handle(time, input);
        self.drain(to);
        taken
    }

    /// The same with a message, under the bootstrap key, which whoever ever was a member knows.
    pub(in crate::center) fn say(&mut self, to: usize, message: &Message) -> Result<(), HandleError> {
        self.say_from(77, to, message)
    }

    /// The same from this address.
    pub(in crate::center) fn say_from(&mut self, from: u32, to: usize, message: &Message) -> Result<(), HandleError> {
        let secret = self.nodes[0].principal.bootstrap_of(GROUP).unwrap();
        let bytes = BootstrapKey::new(secret).seal([3; 12], &message.encode());
        self.inject_from(from, to, &bytes)
    }

    /// The same with a proposal of one of the nodes, which is its leader, as members of this view are told it.
    pub(in crate::center) fn propose(
        &mut self,
        to: usize,
        leader: usize,
        content: &Content,
    ) -> Result<(), HandleError> {
        let base = self.nodes[to].keys.as_ref().and_then(|it| it.installed.as_ref()).map(|it| it.slots.clone());
        let said = content.say(base.as_deref(), &self.nodes[leader].principal.origin_key());
        self.say(to, &Message::Propose(said))
    }

    /// What crossed the network, opened.
    pub(in crate::center) fn heard(&self) -> Vec<Message> {
        let key = BootstrapKey::new(self.nodes[0].principal.bootstrap_of(GROUP).unwrap());
        self.tapped.iter().map(|it| Message::decode(&key.open(it).unwrap()).unwrap()).collect()
    }

    pub(in crate::center) fn command(&mut self, at: usize, command: Command) {
        let time = now(self.time);
        self.nodes[at].keys.as_mut().unwrap().handle(time, Input::Command(command)).unwrap();
        self.drain(at);
    }

    pub(in crate::center) fn suspect(&mut self, at: usize, whom: usize) {
        let whom = self.nodes[whom].me;
        let in_view = |it: &Installed| it.view.members.slots().find(|(_, m)| m.id == whom).map(|(slot, _)| slot);
        let Some(slot) = self.nodes[at].views.last().and_then(in_view) else { return };
        let time = now(self.time);
        self.nodes[at].keys.as_mut().unwrap().handle(time, Input::Suspected(slot)).unwrap();
        self.drain(at);
    }

    /// What all of these are told of a member that was left out.
    pub(in crate::center) fn call_slow(&mut self, by: &[usize], cert: CertHash) {
        let time = now(self.time);
        for at in by {
            self.nodes[*at].keys.as_mut().unwrap().handle(time, Input::Slow(cert)).unwrap();
            self.drain(*at);
        }
    }

    /// All that run suspect whom they do not hear in their view.
    pub(in crate::center) fn suspect_lost(&mut self) {
        for at in 0..self.nodes.len() {
            for other in 0..self.nodes.len() {
                let epoch = |at: usize| self.nodes[at].views.last().map(|it| it.view.epoch);
                let lost = self.nodes[other].keys.is_none()
                    || self.nodes[other].excluded.is_some()
                    || self.parts[at] != self.parts[other]
                    || epoch(at) != epoch(other);
                if lost && self.nodes[at].keys.is_some() {
                    self.suspect(at, other);
                }
            }
        }
    }

    fn post(&mut self, event: Event) {
        self.receptions += 1;
        if self.rng.next_u64() % 100 < self.loss {
            return;
        }
        let delay = 200 + self.rng.next_u64() % 600;
        self.put(self.time + delay, event);
    }

    fn put(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), event);
    }

    fn drain(&mut self, at: usize) {
        while let Some(output) = self.nodes[at].keys.as_mut().and_then(Keys::poll) {
            match output {
                Output::Send { to: To::Peer(Address::Node(to)), bytes, .. } if to < KDC => {
                    let (from, to) = (Address::Node(at as u32), to as usize);
                    self.tapped.push(bytes.clone());
                    if self.parts.get(to) == Some(&self.parts[at]) {
                        self.post(Event::Datagram { to, from, bytes });
                    }
                }
                Output::Send { to: To::Peer(Address::Node(kdc)), bytes, .. } => {
                    self.post(Event::AtKdc { from: at, at: kdc, bytes });
                }
                Output::Send { bytes, .. } => {
                    self.tapped.push(bytes.clone());
                    let others = (0..self.nodes.len()).filter(|to| *to != at && self.parts[*to] == self.parts[at]);
                    for to in others.collect::<Vec<_>>() {
                        self.post(Event::Datagram { to, from: Address::Node(at as u32), bytes: bytes.clone() });
                    }
                }
                Output::Prepare { view, flush } => {
                    self.nodes[at].prepared = true;
                    self.nodes[at].paused |= view.change.excludes();
                    if flush == Flush::Now {
                        let wait = 300 + self.rng.next_u64() % 2000;
                        self.put(self.time + wait, Event::Flushed { at, epoch: view.epoch });
                    }
                }
                Output::Abandoned => {
                    assert!(self.nodes[at].prepared, "nothing was prepared");
                    (self.nodes[at].prepared, self.nodes[at].paused) = (false, false);
                }
                Output::Epoch { view, protect, access } => {
                    let last = self.nodes[at].views.last().map(|it| it.view.epoch.counter);
                    assert!(last.is_none_or(|last| last < view.epoch.counter), "epochs ascend");
                    (self.nodes[at].prepared, self.nodes[at].paused) = (false, false);
                    self.nodes[at].views.push(Installed { view, protect: protect.unwrap(), access });
                }
                Output::Notice { notice: Notice::OtherChannels { reliable, .. }, .. } => {
                    self.nodes[at].other_channels.push(reliable);
                }
                Output::Notice { notice: Notice::KdcRefuses(why), .. } => self.nodes[at].refused.push(why),
                Output::Notice { notice: Notice::GroupFull { is_us, .. }, .. } => self.nodes[at].full.push(is_us),
                Output::Notice { notice: Notice::StolenToken { cert }, .. } => self.nodes[at].stolen.push(cert),
                Output::Excluded { why } => self.nodes[at].excluded = Some(why),
                _ => {}
            }
        }
        if let Some(Monotonic(due)) = self.nodes[at].keys.as_ref().and_then(Keys::timeout) {
            self.put(due.max(self.time), Event::Timer(at));
        }
    }

    pub(in crate::center) fn view(&self, at: usize) -> &View {
        &self.nodes[at].views.last().expect("it is in a group").view
    }

    /// Whether these are in one view of just them.
    pub(in crate::center) fn together(&self, nodes: &[usize]) -> bool {
        let certs: BTreeSet<CertHash> = nodes.iter().map(|at| self.hash(*at)).collect();
        let one = self.nodes[nodes[0]].views.last().map(|it| it.view.epoch);
        nodes.iter().all(|at| {
            self.nodes[*at].views.last().is_some_and(|it| {
                Some(it.view.epoch) == one
                    && it.view.members.iter().map(|m| m.id.cert).collect::<BTreeSet<_>>() == certs
            })
        })
    }

    /// Runs until these are in one view of just them, for so long at most, and looks at their keys.
    pub(in crate::center) fn meet(&mut self, nodes: &[usize], millis: u64) -> u64 {
        let began = self.time;
        while !self.together(nodes) {
            assert!(self.time < began + millis * 1000, "not together after {millis} ms: {:?}", self.seen());
            self.for_millis(1);
        }
        self.talk(nodes);
        (self.time - began) / 1000
    }

    pub(in crate::center) fn seen(&self) -> Vec<Option<(EpochId, usize)>> {
        let of = |it: &Node| it.views.last().map(|it| (it.view.epoch, it.view.members.len()));
        self.nodes.iter().map(of).collect()
    }

    /// Each of these is heard by the others, under the group's key.
    pub(in crate::center) fn talk(&self, nodes: &[usize]) {
        for from in nodes {
            let sealed = seal(&self.nodes[*from], Domain::GROUP, b"hello").expect("all members may");
            for to in nodes.iter().filter(|to| *to != from) {
                assert_eq!(open(&self.nodes[*to], &sealed).as_deref(), Some(&b"hello"[..]));
            }
        }
    }

    pub(in crate::center) fn leader(&self, at: usize) -> CertHash {
        self.view(at).members.get(Slot(0)).unwrap().id.cert
    }
}

pub(in crate::center) fn seal(by: &Node, domain: Domain, text: &[u8]) -> Option<Vec<u8>> {
    let mut datagram = vec![0; HEADER_LEN];
    datagram.extend_from_slice(text);
    datagram.resize(datagram.len() + TAG_LEN, 0);
    by.views.last()?.protect.seal(domain, 0, &mut datagram).ok()?;
    Some(datagram)
}

pub(in crate::center) fn open(by: &Node, sealed: &[u8]) -> Option<Vec<u8>> {
    let mut datagram = sealed.to_vec();
    by.views.iter().find_map(|it| it.protect.open(&mut datagram).ok().map(|(_, _, text)| text.to_vec()))
}
