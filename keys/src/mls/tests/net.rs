//! Members, an order and a directory, with virtual time. Everything follows from the seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};
use sealcast_crypto::hash::sha256;
use sealcast_crypto::identity::{Act, Authority, Identity, MemberSecret, Request, Right, Rights, Verified};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::Algorithm;
use sealcast_wire::frame::{HEADER_LEN, TAG_LEN};
use sealcast_wire::{
    Address, CertHash, Change, Domain, EpochId, Fetch, FetchId, Fetched, Flush, Guarantee, Monotonic, Now, Protect,
    Source, Utc, View,
};

use crate::mls::certificates::CredentialKind;
use crate::mls::engine::mls_rs::MlsRs;
use crate::mls::{Config, Mls};
use crate::{Command, Exclusion, Input, KeyPackages, Keys, Notice, Output, PendingStatus, SendResult, Token};

pub(super) const GROUP: &str = "ward";
pub(super) const NOW: Utc = Utc(1_800_000_000);

pub(super) struct Net {
    pub(super) authority: Authority,
    pub(super) nodes: Vec<Node>,
    rng: ChaCha20Rng,
    pub(super) time: u64,
    /// What all clocks show, if not the time since the beginning.
    pub(super) clock_of_all: Option<Utc>,
    pub(super) credentials: CredentialKind,
    /// With `data=mls`.
    pub(super) private_messages: bool,
    /// Nodes without a clock.
    pub(super) without_clock: BTreeSet<usize>,
    queue: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    /// Of a hundred messages that nobody orders.
    pub(super) loss: u64,
    /// Each with its author; outsiders' have none.
    pub(super) log: Vec<(Option<Author>, Vec<u8>)>,
    /// The keys that commits name, also those that lost.
    pub(super) named: Vec<[u8; 32]>,
    /// The hash chain of it.
    cuts: Vec<[u8; 32]>,
    /// By name.
    pub(super) directory: BTreeMap<Fetch, Vec<u8>>,
    /// Of each device, those to be handed out once.
    pub(super) single_use: BTreeMap<CertHash, VecDeque<Vec<u8>>>,
    /// Of each device, the oldest first, and whether that was fetched.
    pub(super) mail: BTreeMap<CertHash, (VecDeque<Vec<u8>>, bool)>,
}

/// A node, which of its runs, and what its run calls the message.
type Author = (usize, u64, Token);

pub(super) struct Node {
    pub(super) identity: Arc<Identity>,
    pub(super) keys: Option<Mls<MlsRs>>,
    pub(super) records: BTreeMap<u64, Vec<u8>>,
    /// All that was stored, in its order.
    pub(super) stored: Vec<(u64, Vec<u8>)>,
    pub(super) views: Vec<Installed>,
    pub(super) excluded: Option<Exclusion>,
    pub(super) notices: Vec<Notice>,
    pub(super) pending: Vec<PendingStatus>,
    /// How far a run before was, as the last one began.
    pub(super) delivered_before: Option<(EpochId, u64)>,
    /// By which it signs what it appends.
    pub(super) append_key: Option<[u8; 32]>,
    /// The next position of the order that it hears.
    pub(super) next: usize,
    /// Messages that it cannot hear.
    pub(super) deaf: bool,
    life: u64,
    /// Its publishers pause.
    pub(super) holds: bool,
}

pub(super) struct Installed {
    pub(super) view: View,
    pub(super) protect: Arc<dyn Protect>,
}

enum Event {
    Sent { to: usize, from: usize, bytes: Vec<u8> },
    Ordered(usize),
    Fetched { to: usize, life: u64, id: FetchId, what: Fetch },
    PackagesKept { to: usize, life: u64, single_use: usize },
}

impl Net {
    pub(super) fn new(members: usize, seed: u64) -> Net {
        Net::of(&vec![&[(Act::Both, "#")][..]; members], Algorithm::Ed25519, seed)
    }

    /// Members with these rights; the first one may evict, too.
    pub(super) fn of(rights: &[&[(Act, &str)]], algorithm: Algorithm, seed: u64) -> Net {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let mut authority = Authority::create("ca", Algorithm::P256, Utc(NOW.0 - 86_400), &mut rng).unwrap();
        let mut nodes = Vec::new();
        for (i, list) in rights.iter().enumerate() {
            let secret = MemberSecret::generate(algorithm, &mut rng);
            let mut rights = Rights::none();
            list.iter().for_each(|(act, pattern)| rights.grant(Right::new(GROUP, *act, pattern).unwrap()));
            if i == 0 {
                rights.grant(Right::new(GROUP, Act::Evict, "#").unwrap());
            }
            let request = Request { name: format!("m{i}"), keys: secret.public(), rights, attributes: vec![] };
            let certificate = authority.issue(&request, Utc(NOW.0 - 3600), 30 * 86_400).unwrap();
            let identity = Identity::new(&certificate, &secret, authority.anchor().clone()).unwrap();
            let identity = Arc::new(identity.with_bootstrap_key(GROUP, Secret::from_bytes([7; 32])));
            let (records, stored, views, holds) = Default::default();
            let (keys, excluded, next, deaf, life) = Default::default();
            let (notices, pending, delivered_before, append_key) = Default::default();
            nodes.push(Node {
                identity,
                keys,
                records,
                stored,
                views,
                excluded,
                notices,
                pending,
                delivered_before,
                append_key,
                next,
                deaf,
                life,
                holds,
            });
        }
        let (queue, log, named, cuts, directory, single_use, mail) = Default::default();
        Net {
            authority,
            nodes,
            rng,
            time: 0,
            clock_of_all: None,
            credentials: CredentialKind::X509,
            private_messages: false,
            without_clock: BTreeSet::new(),
            queue,
            sequence: 0,
            loss: 0,
            log,
            named,
            cuts,
            directory,
            single_use,
            mail,
        }
    }

    pub(super) fn now(&self) -> Now {
        let utc = self.clock_of_all.unwrap_or(Utc(NOW.0 + (self.time / 1_000_000) as i64));
        Now { monotonic: Monotonic(self.time), utc: Some(utc) }
    }

    /// What a node's clocks show.
    fn now_of(&self, node: usize) -> Now {
        let now = self.now();
        Now { utc: now.utc.filter(|_| !self.without_clock.contains(&node)), ..now }
    }

    pub(super) fn cert(&self, node: usize) -> CertHash {
        let it = self.nodes[node].identity.certificate();
        match self.credentials {
            CredentialKind::X509 => it.hash,
            CredentialKind::Basic => Verified::claimed(&it.name, it.key.clone(), Rights::none()).expect("a name").hash,
        }
    }

    pub(super) fn start(&mut self, node: usize) {
        self.start_as(node, |_| {});
    }

    /// A process of this member, with what its disk holds.
    pub(super) fn start_as(&mut self, node: usize, change: impl FnOnce(&mut Config)) {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        let mut config = Config::new(GROUP, self.nodes[node].identity.clone());
        config.founds = node == 0;
        config.credentials = self.credentials;
        config.private_messages = self.private_messages;
        change(&mut config);
        let records: Vec<(u64, Vec<u8>)> = self.nodes[node].records.clone().into_iter().collect();
        let start = crate::mls::position(&records).map_or(self.log.len(), |it| it as usize);
        let keys = Mls::restore(config, seed, self.now_of(node), &records).expect("it may be a member");
        let at = &mut self.nodes[node];
        (at.keys, at.next, at.excluded) = (Some(keys), start, None);
        at.life += 1;
        at.holds = false;
        at.views.clear();
        self.drain(node);
        self.push(1, Event::Ordered(node));
    }

    /// Has a node do something, and does what follows.
    pub(super) fn with<T>(&mut self, node: usize, act: impl FnOnce(&mut Mls<MlsRs>, Now) -> T) -> T {
        let now = self.now_of(node);
        let done = act(self.nodes[node].keys.as_mut().expect("it runs"), now);
        self.drain(node);
        done
    }

    /// A process ends at once.
    pub(super) fn crash(&mut self, node: usize) {
        self.nodes[node].keys = None;
    }

    pub(super) fn command(&mut self, node: usize, command: Command) {
        let now = self.now_of(node);
        let keys = self.nodes[node].keys.as_mut().expect("it runs");
        keys.handle(now, Input::Command(command)).expect("it may");
        self.drain(node);
    }

    fn push(&mut self, after: u64, event: Event) {
        self.sequence += 1;
        let jitter = self.rng.next_u64() % 2_000;
        self.queue.insert((self.time + after + jitter, self.sequence), event);
    }

    fn drain(&mut self, node: usize) {
        let life = self.nodes[node].life;
        while let Some(output) = self.nodes[node].keys.as_mut().and_then(Keys::poll) {
            match output {
                Output::Send { token, needs: Guarantee::Ordered, names, bytes, .. } => {
                    self.named.extend(names);
                    self.put(Some((node, life, token)), bytes);
                }
                Output::Send { bytes, .. } => {
                    let run = |to: &usize| self.nodes[*to].keys.is_some();
                    let others: Vec<usize> = (0..self.nodes.len()).filter(|to| *to != node).filter(run).collect();
                    for to in others {
                        if self.rng.next_u64() % 100 >= self.loss {
                            self.push(500, Event::Sent { to, from: node, bytes: bytes.clone() });
                        }
                    }
                }
                Output::Fetch { id, what } => self.push(800, Event::Fetched { to: node, life, id, what }),
                Output::Provide { what: Fetch::Mail(to), bytes } => self.mail.entry(to).or_default().0.push_back(bytes),
                Output::Provide { what, bytes } => _ = self.directory.insert(what, bytes),
                Output::Packages(packages) => self.keep(node, packages),
                Output::AppendKey(key) => self.nodes[node].append_key = Some(key.public_bytes()),
                Output::Again(position) => {
                    self.nodes[node].next = position as usize + 1;
                    self.push(500, Event::Ordered(node));
                }
                Output::Notice { notice, .. } => self.nodes[node].notices.push(notice),
                Output::Prepare { view, flush: Flush::At(position) } => {
                    let cut = self.cuts[position as usize];
                    let now = self.now_of(node);
                    let keys = self.nodes[node].keys.as_mut().expect("it runs");
                    keys.handle(now, Input::Flushed(view.epoch, cut)).expect("no message");
                }
                Output::Prepare { view, flush: Flush::Later } => {
                    self.nodes[node].holds |= view.change == Change::Evicted;
                }
                Output::Epoch { view, protect, .. } => {
                    self.nodes[node].holds = false;
                    let protect = protect.expect("it is sealed");
                    self.nodes[node].views.push(Installed { view, protect });
                }
                Output::DeliveredBefore { epoch, until } => self.nodes[node].delivered_before = Some((epoch, until)),
                Output::Excluded { why } => self.nodes[node].excluded = Some(why),
                Output::Store { id, record } => {
                    self.nodes[node].stored.push((id, record.clone()));
                    self.nodes[node].records.insert(id, record);
                }
                Output::Prepare { .. }
                | Output::Abandoned
                | Output::Checkpointed(_)
                | Output::Withdraw(_)
                | Output::Keyed { .. }
                | Output::SenderKey { .. }
                | Output::Opened { .. } => {}
                Output::Described(status) => self.nodes[node].pending = status.pending,
            }
        }
    }

    /// What the directory keeps of a device; it says how much that is.
    fn keep(&mut self, node: usize, packages: KeyPackages) {
        let KeyPackages { cert, single_use, last_resort, .. } = packages;
        if let Some(bytes) = last_resort {
            self.directory.insert(Fetch::KeyPackage(cert), bytes);
        }
        let kept = self.single_use.entry(cert).or_default();
        kept.extend(single_use);
        let (single_use, life) = (kept.len(), self.nodes[node].life);
        self.push(800, Event::PackagesKept { to: node, life, single_use });
    }

    /// What the directory hands out.
    fn hand_out(&mut self, what: &Fetch) -> Option<Vec<u8>> {
        match what {
            Fetch::KeyPackage(cert) if let Some(one) = self.single_use.get_mut(cert).and_then(VecDeque::pop_front) => {
                Some(one)
            }
            Fetch::Mail(cert) => {
                let (mail, fetched) = self.mail.get_mut(cert)?;
                if std::mem::take(fetched) {
                    mail.pop_front();
                }
                *fetched = !mail.is_empty();
                mail.front().cloned()
            }
            what => self.directory.get(what).cloned(),
        }
    }

    /// Whom a member lists as waiting, by node, once it looked twice.
    pub(super) fn pending(&mut self, node: usize) -> Vec<usize> {
        for _ in 0..2 {
            let now = self.now_of(node);
            self.nodes[node].keys.as_mut().expect("it runs").handle(now, Input::Describe).expect("it is no command");
            self.drain(node);
            self.run(100);
        }
        let certs: Vec<CertHash> = self.nodes[node].pending.iter().map(|it| it.cert).collect();
        (0..self.nodes.len()).filter(|it| certs.contains(&self.cert(*it))).collect()
    }

    /// Lets so many milliseconds pass.
    pub(super) fn run(&mut self, millis: u64) {
        let end = self.time + millis * 1_000;
        loop {
            let timers = self.nodes.iter().enumerate().filter_map(|(i, it)| Some((it.keys.as_ref()?.timeout()?.0, i)));
            let timer = timers.min();
            let event = self.queue.first_key_value().map(|(key, _)| *key);
            match (timer, event) {
                (Some((at, node)), event) if at <= end && event.is_none_or(|(due, _)| at <= due) => {
                    self.time = self.time.max(at);
                    let now = self.now_of(node);
                    self.nodes[node].keys.as_mut().expect("it has a timer").handle_timeout(now);
                    self.drain(node);
                }
                (_, Some(key)) if key.0 <= end => {
                    self.time = self.time.max(key.0);
                    let event = self.queue.remove(&key).expect("it is there");
                    self.happen(event);
                }
                _ => break,
            }
        }
        self.time = end;
    }

    /// A node hears all that is ordered.
    pub(super) fn catch_up(&mut self, node: usize) {
        self.happen(Event::Ordered(node));
    }

    fn happen(&mut self, event: Event) {
        let (Event::Sent { to, .. } | Event::Ordered(to) | Event::Fetched { to, .. } | Event::PackagesKept { to, .. }) =
            &event;
        let now = self.now_of(*to);
        match event {
            Event::Sent { to, from, bytes } => {
                if let Some(keys) = self.nodes[to].keys.as_mut() {
                    let source = Source::Outside(Address::Node(from as u32));
                    // What it does not use it drops.
                    let _ = keys.handle(now, Input::Message { source: &source, position: None, bytes: &bytes });
                }
                self.drain(to);
            }
            Event::Ordered(to) => {
                while !self.nodes[to].deaf && self.nodes[to].next < self.log.len() {
                    let at = self.nodes[to].next;
                    let (author, bytes) = self.log[at].clone();
                    self.nodes[to].next += 1;
                    let position = at as u64;
                    let source = Source::Outside(Address::Node(0));
                    // Its sender is told its position instead.
                    let life = self.nodes[to].life;
                    let own = author.filter(|(by, of, _)| (*by, *of) == (to, life)).map(|(.., token)| token);
                    let input = match own {
                        Some(token) => Input::Outcome(token, SendResult::Ordered(position)),
                        None => Input::Message { source: &source, position: Some(position), bytes: &bytes },
                    };
                    if let Some(keys) = self.nodes[to].keys.as_mut() {
                        let _ = keys.handle(now, input);
                    }
                    self.drain(to);
                }
            }
            Event::Fetched { to, life, id, what } if self.nodes[to].life == life => {
                let found = self.hand_out(&what).map_or(Fetched::Missing, Fetched::Bytes);
                if let Some(keys) = self.nodes[to].keys.as_mut() {
                    keys.handle(now, Input::Fetched(id, found)).expect("no message");
                }
                self.drain(to);
            }
            Event::PackagesKept { to, life, single_use } if self.nodes[to].life == life => {
                if let Some(keys) = self.nodes[to].keys.as_mut() {
                    keys.handle(now, Input::PackagesKept(single_use)).expect("no message");
                }
                self.drain(to);
            }
            Event::Fetched { .. } | Event::PackagesKept { .. } => {}
        }
    }

    /// Somebody who has the bootstrap key has something ordered.
    pub(super) fn append(&mut self, bytes: Vec<u8>) {
        self.put(None, bytes);
    }

    fn put(&mut self, author: Option<Author>, bytes: Vec<u8>) {
        let before = self.cuts.last().copied().unwrap_or_default();
        self.cuts.push(sha256(&[before, sha256(&bytes)].concat()));
        self.log.push((author, bytes));
        let run: Vec<usize> = (0..self.nodes.len()).filter(|to| self.nodes[*to].keys.is_some()).collect();
        run.into_iter().for_each(|to| self.push(500, Event::Ordered(to)));
    }

    /// Asserts that these are in one epoch.
    pub(super) fn assert_in_one_epoch(&self, members: &[usize]) {
        let epochs = members.iter().map(|it| self.nodes[*it].views.last().map(|it| it.view.epoch)).collect::<Vec<_>>();
        assert!(epochs[0].is_some() && epochs.iter().all(|it| *it == epochs[0]), "{epochs:?}");
    }

    /// A member is in a view of so many.
    pub(super) fn assert_members(&self, node: usize, count: usize) {
        let members = self.nodes[node].views.last().map(|it| it.view.members.len());
        assert_eq!(members, Some(count), "m{node}");
    }

    /// Asserts that these, and nobody else, are in one view, and that each opens what each seals.
    pub(super) fn assert_together(&mut self, members: &[usize]) {
        let mut names: Vec<CertHash> = members.iter().map(|it| self.cert(*it)).collect();
        names.sort();
        let mut epochs = Vec::new();
        for node in members {
            let Some(last) = self.nodes[*node].views.last() else { panic!("m{node} is in no view") };
            let mut of: Vec<CertHash> = last.view.members.iter().map(|it| it.id.cert).collect();
            of.sort();
            assert_eq!(of, names, "m{node} in {:?}", last.view.epoch);
            epochs.push(last.view.epoch);
        }
        assert!(epochs.iter().all(|it| *it == epochs[0]), "{epochs:?}");
        for from in members {
            let sealed = seal(&self.nodes[*from].views.last().unwrap().protect, b"pulse 71");
            for to in members.iter().filter(|it| *it != from) {
                let opened =
                    self.nodes[*to].views.last().unwrap().protect.open(&mut sealed.clone()).map(|it| it.2.to_vec());
                assert_eq!(opened.as_deref(), Ok(&b"pulse 71"[..]), "m{from} to m{to}");
            }
        }
    }
}

/// Seals as a member does.
pub(super) fn seal(protect: &Arc<dyn Protect>, text: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; HEADER_LEN];
    datagram.extend_from_slice(text);
    datagram.resize(datagram.len() + TAG_LEN, 0);
    protect.seal(Domain(1), 0, &mut datagram).expect("it may write");
    datagram
}
