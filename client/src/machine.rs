//! What a transport through brokers and its handle share: the brokers' client, patterns and the group's two topics, readers
//! of subscriptions by interest, and what callers wait for.
//!
//! ```text
//! keys=plain, threshold     a message is a publication under its topic; patterns are subscriptions at the brokers
//! keys=contributory, mls    the group's messages are publications under two topics of the group's:
//!                             group/NAME/keys       the key scheme's, bootstrap-encrypted and signed as on multicast
//!                             group/NAME/messages   datagrams that members sealed; topic and text are inside
//! ```
//! Everything comes back at its place in the order, our own too.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sealcast_broker::cluster_file::ClusterFile;
use sealcast_broker::operation::{Body as Contents, Client, Constraint, Execute, Header, Interest, Publication};
use sealcast_broker::protocol::{Status, Why};
use sealcast_broker::receipt::Receipt;
use sealcast_broker::state::{self, Code, Entry};
use sealcast_crypto::hash::sha256;
use sealcast_crypto::identity::{Pattern, check_topic};
use sealcast_wire::frame::KIND_SEALED;
use sealcast_wire::{
    Dropped, Drops, EpochId, Fetch, FetchId, Fetched, Guarantee, Monotonic, Now, Protect, SealedHeader, Source, limits,
};

use super::advertised::{Advertised, Advertisement};
use super::item::{Content, Item};
use super::marks::Marks;
use super::readers::{Readers, Sealed};
use super::{
    Answer, Config, Delivered as Published, Notice, OperationOutcome as Became, OrderStatus, Output as QuorumEvent,
    Proofs, Quorum,
};
use sealcast_delivery::memory::{BestEffort, keys_message};
use sealcast_delivery::{Body, Delivered, Outcome, Outgoing, Output, SendError, Token, What};

/// See the module.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) quorum: Quorum,
    pub(super) payload_kind: PayloadKind,
    /// For a key scheme that asks for the brokers' key.
    cluster: Option<Arc<ClusterFile>>,
    /// The scheme asked last under this id, and the brokers had no key.
    key_asked: Option<FetchId>,
    pub(super) batches: BestEffort,
    pub(super) patterns: BTreeMap<Pattern, Wanted>,
    /// Datagrams of ours that have not come back, by their hash.
    ours: BTreeMap<[u8; 16], VecDeque<Token>>,
    /// What a later run of a group's member may not need any more.
    marks: Marks,
    /// The place of the last publication that was handed on for patterns: several of them may want one.
    passed: Option<u64>,
    /// The highest sn of what was handed on.
    pub(super) newest: u64,
    /// Whether subscriptions of runs before this one go on; otherwise they end.
    resumes: bool,
    /// The brokers know us, and a group's topics.
    pub(super) is_up: bool,
    /// What runs before this one subscribed to is ended.
    is_tidy: bool,
    /// When the record was last handed out.
    stored: Option<Monotonic>,
    queue: VecDeque<Next>,
    pub(super) drops: Drops,
    /// What was told of them, and of those of the quorum.
    told: Drops,

    // What the handle's callers want.
    /// Operations that are no messages of a group's.
    pub(super) acts: BTreeSet<Token>,
    /// Messages of a group's whose details somebody wants.
    pub(super) followed: BTreeSet<Token>,
    /// Interests that are subscribed to, until the brokers have them.
    pub(super) wanted: BTreeMap<Token, Interest>,
    /// Tokens that nobody waits for any more.
    pub(super) forgotten: BTreeSet<Token>,
    /// What callers wait for.
    pub(super) done: BTreeMap<Token, Done>,
    pub(super) readers: Readers,
    /// Sealed publications that callers read, by sn.
    pub(super) reads: BTreeMap<u64, Reading>,
    pub(super) notices: VecDeque<Notice>,
    pub(super) advertised: Advertised,
    /// Why the brokers do nothing for this client any more, if an operation was refused for that.
    pub(super) dismissed: Option<Code>,
    /// Counts what came for callers and readers.
    pub(super) changes: u64,
    /// The group takes no more messages.
    paused: bool,
    /// The brokers are asked for no more.
    held: bool,
}

/// What publications hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PayloadKind {
    /// A message each.
    Messages {
        /// Brokers hold shares of the key that it is sealed under.
        sealed: bool,
    },
    /// What members of a group say to each other.
    Group {
        /// The group.
        name: String,
        /// Whether a later run hears what the key scheme said and this run did not use: what follows the last
        /// [`Input::Checkpointed`](sealcast_delivery::Input::Checkpointed). Otherwise it hears what is said from its start on.
        resumes: bool,
    },
}

/// What a caller waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// What became of an operation.
    Outcome(Became),
    /// A subscription is active under this id.
    Subscribed(u64),
    /// The answer to a read.
    Read(Result<Answer, Why>),
    /// A receipt; `None` if f + 1 brokers have none.
    Receipt(Option<Box<Receipt>>),
    /// The status of the brokers that answered in time.
    Status(BTreeMap<u16, Status>),
    /// The proofs that those brokers keep.
    Proofs(Proofs),
}

/// A sealed publication that callers read.
#[derive(Debug)]
pub(super) struct Reading {
    /// How many of them.
    pub(super) callers: usize,
    /// What opened of it, once it has: bodies, or ⊥.
    pub(super) opened: Option<Option<Vec<Vec<u8>>>>,
}

/// A pattern that somebody reads.
#[derive(Debug)]
pub(super) struct Wanted {
    readers: usize,
    token: Token,
    pub(super) status: Option<Result<u64, Code>>,
}

#[derive(Debug)]
pub(super) enum Next {
    Output(Output),
    Request(u16, Arc<[u8]>),
}

impl Machine {
    pub(super) fn new(
        now: Now,
        config: Config,
        record: Option<&[u8]>,
        payload_kind: PayloadKind,
        cluster: Option<Arc<ClusterFile>>,
        resumes: bool,
    ) -> Result<Machine, sealcast_wire::Malformed> {
        let mut quorum = match record {
            None => Quorum::new(config),
            Some(record) => Quorum::restore(config, record)?,
        };
        let keys = match &payload_kind {
            PayloadKind::Group { name, resumes: true } => Some(group_interest(name, KEYS)),
            PayloadKind::Group { .. } | PayloadKind::Messages { .. } => None,
        };
        if !resumes {
            quorum.forget_subscriptions_but(keys.as_ref());
        }
        let mut machine = Machine {
            quorum,
            payload_kind,
            cluster,
            key_asked: None,
            batches: BestEffort::up_to(limits::BODY_BYTES_MAX),
            patterns: BTreeMap::new(),
            ours: BTreeMap::new(),
            marks: Marks::default(),
            passed: None,
            newest: 0,
            resumes,
            is_up: false,
            is_tidy: false,
            stored: None,
            queue: VecDeque::new(),
            drops: Drops::default(),
            told: Drops::default(),
            acts: BTreeSet::new(),
            followed: BTreeSet::new(),
            wanted: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            done: BTreeMap::new(),
            readers: Readers::default(),
            reads: BTreeMap::new(),
            notices: VecDeque::new(),
            advertised: Advertised::default(),
            dismissed: None,
            changes: 0,
            paused: false,
            held: false,
        };
        if let PayloadKind::Group { name, resumes } = machine.payload_kind.clone() {
            // What waits to be numbered has room for the first of all.
            let _ = machine.read_pattern_from(now, &group_pattern(&name, KEYS), resumes);
            let _ = machine.read_pattern(now, &group_pattern(&name, MESSAGES));
        }
        Ok(machine)
    }

    /// Wants what is published from now on under topics that match.
    pub(super) fn read_pattern(&mut self, now: Now, pattern: &Pattern) -> Result<(), SendError> {
        self.read_pattern_from(now, pattern, false)
    }

    /// The same; or what was published since a run before took what it read last.
    fn read_pattern_from(&mut self, now: Now, pattern: &Pattern, resumes: bool) -> Result<(), SendError> {
        match self.patterns.get_mut(pattern) {
            // It may be one that nobody read before it was active.
            Some(wanted) if !matches!(wanted.status, Some(Err(_))) => wanted.readers += 1,
            _ => {
                let interest = Interest::Is(Constraint { topic: pattern.clone(), value: None });
                let token = match resumes {
                    true => self.quorum.subscribe(now, interest)?,
                    false => self.quorum.subscribe_afresh(now, interest)?,
                };
                self.patterns.insert(pattern.clone(), Wanted { readers: 1, token, status: None });
            }
        }
        self.drain(now);
        Ok(())
    }

    /// One reader of a pattern less. A pattern that nobody reads ends, as soon as it is active.
    pub(super) fn leave_pattern(&mut self, now: Now, pattern: &Pattern) {
        let Some(wanted) = self.patterns.get_mut(pattern) else { return };
        wanted.readers = wanted.readers.saturating_sub(1);
        self.end_unread(now, pattern.clone());
        self.drain(now);
    }

    /// Whether a pattern is active at the brokers by now, or why they refuse it.
    pub(super) fn pattern_status(&self, pattern: &Pattern) -> Option<Result<(), Code>> {
        self.patterns.get(pattern)?.status.map(|it| it.map(drop))
    }

    /// The same for the topics where a group meets, if one does.
    pub(super) fn group_status(&self) -> Option<Result<(), Code>> {
        if !self.orders_all() {
            return None;
        }
        let status: Option<Result<Vec<u64>, Code>> = self.patterns.values().map(|it| it.status).collect();
        status.map(|it| it.map(drop))
    }

    /// Keys begin when the brokers know us, and those of a group when what others say for them comes.
    fn look_whether_up(&mut self) {
        let registered = self.quorum.order_status().is_some_and(|it| it.registered);
        let meets = !self.orders_all() || matches!(self.group_status(), Some(Ok(())));
        if registered && meets && !std::mem::replace(&mut self.is_up, true) {
            self.put(Output::Up);
        }
    }

    /// The threshold key that the cluster's file names, or else enough brokers.
    pub(super) fn key(&self) -> Option<Vec<u8>> {
        let cluster = self.cluster.as_ref()?;
        let said =
            self.quorum.order_status().into_iter().flat_map(|it| it.keys.iter().map(|(broker, key)| (*broker, key)));
        cluster.key.clone().or_else(|| cluster.agreed_key(said)).map(|it| it.key)
    }

    /// The key scheme asks for something.
    pub(super) fn fetch(&mut self, now: Now, id: FetchId, what: &Fetch) {
        let result = match what {
            Fetch::Key => self.key().map_or(Fetched::Missing, Fetched::Bytes),
            Fetch::Shares { .. } | Fetch::Blob(_) | Fetch::KeyPackage(_) | Fetch::Mail(_) => {
                self.quorum.fetch(now, what)
            }
        };
        if *what == Fetch::Key {
            self.key_asked = None;
            if result == Fetched::Missing {
                // The brokers may have made it since they welcomed us.
                self.quorum.look_for_key(now);
                self.key_asked = Some(id);
            }
        }
        self.put(Output::Fetched(id, result));
    }

    /// Gives the key scheme the brokers' key if it came meanwhile: shares may come right behind it.
    fn give_key(&mut self) {
        if self.key_asked.is_some()
            && let Some(key) = self.key()
            && let Some(id) = self.key_asked.take()
        {
            self.put(Output::Fetched(id, Fetched::Bytes(key)));
        }
    }

    /// The group reads a pattern from now on.
    pub(super) fn subscribe(&mut self, now: Now, pattern: &Pattern) {
        // One that becomes active now tells so by itself.
        let before = self.pattern_status(pattern).filter(Result::is_ok);
        let status = match self.read_pattern(now, pattern) {
            Ok(()) => before,
            Err(_) => Some(Err(Code::TooMany)),
        };
        if let Some(status) = status {
            self.put(Output::Subscribed(pattern.clone(), status.map_err(Into::into)));
        }
    }

    /// Ends a subscription to a pattern that nobody reads.
    fn end_unread(&mut self, now: Now, pattern: Pattern) {
        let std::collections::btree_map::Entry::Occupied(wanted) = self.patterns.entry(pattern) else { return };
        let Wanted { readers: 0, status: Some(status), .. } = *wanted.get() else { return };
        wanted.remove();
        if let Ok(id) = status
            && !self.readers.is_read(id)
        {
            // What does not get through now ends when the client says so the next time.
            let _ = self.quorum.unsubscribe(now, id);
        }
    }

    /// Whether a pattern brings what this subscription gets.
    pub(super) fn is_patterns(&self, subscription: u64) -> bool {
        self.patterns.values().any(|it| it.status == Some(Ok(subscription)))
    }

    /// The next thing to be done; requests stay apart, for batches.
    pub(super) fn next(&mut self) -> Option<Next> {
        if let Some(next) = self.queue.pop_front() {
            return Some(next);
        }
        let mut drops = self.quorum.drops().clone();
        drops.add(&self.drops);
        if let Some(dropped) = drops.since(&mut self.told) {
            return Some(Next::Output(Output::Dropped(dropped)));
        }
        if self.paused {
            return None;
        }
        let Sealed { entry, header, ciphertext, .. } = self.readers.next_to_open()?;
        Some(Next::Output(Output::Open { index: entry.sn, header, body: ciphertext }))
    }

    /// Whether [`Machine::next`] would tell something.
    pub(super) fn has_next(&self) -> bool {
        !self.queue.is_empty() || !self.paused && self.readers.has_unopened()
    }

    /// A message of the group's.
    pub(super) fn send(
        &mut self,
        now: Now,
        protect: Option<&Arc<dyn Protect>>,
        message: Outgoing<'_>,
    ) -> Result<Token, SendError> {
        if message.guarantee == Guarantee::Safe {
            return Err(SendError::NotGiven(message.guarantee));
        }
        let token = match (&self.payload_kind, message.what) {
            (PayloadKind::Group { .. }, What::Message { .. }) => return Err(SendError::PerDatagram),
            (PayloadKind::Group { name, .. }, what) => {
                let kind = if let What::Data { .. } = what { MESSAGES } else { KEYS };
                let topic = format!("{}/{kind}", group_topic(name));
                let datagram = self.batches.record(protect.map(|p| &**p), &message)?;
                let id = id_of(&datagram);
                let token = self.publish(now, topic, Vec::new(), datagram)?;
                self.ours.entry(id).or_default().push_back(token);
                token
            }
            (PayloadKind::Messages { .. }, What::Data { topic, sent_micros, body, .. }) => {
                check_topic(topic).map_err(|_| SendError::BadTopic)?;
                let sent = sent_micros.map_or_else(Vec::new, |at| [SENT, &at.to_be_bytes()[..]].concat());
                self.publish(now, topic.to_owned(), sent, body.to_vec())?
            }
            (PayloadKind::Messages { sealed: true }, What::Message { body: Body::Sealed(seal), again, .. }) => {
                let number = self.quorum.number(now)?;
                let sealed = seal.seal(Some(u128::from(number).to_be_bytes()))?;
                let (number, publication) =
                    sealed_publication(&sealed.header, &sealed.body).ok_or(SendError::TooLong)?;
                self.quorum.publish_sealed(now, number, publication, again)?
            }
            (PayloadKind::Messages { sealed: false }, What::Message { envelope, body: Body::Clear(body), .. }) => {
                if body.len() > limits::BODY_BYTES_MAX {
                    return Err(SendError::TooLong);
                }
                let body = Contents::Plain(body.to_vec());
                let publication = Publication::of(envelope, body).map_err(|_| SendError::TooLong)?;
                self.quorum.publish(now, publication)?
            }
            (PayloadKind::Messages { .. }, What::Message { .. } | What::Keys { .. }) => {
                return Err(SendError::PerDatagram);
            }
        };
        self.drain(now);
        Ok(token)
    }

    pub(super) fn put(&mut self, output: Output) {
        self.queue.push_back(Next::Output(output));
    }

    /// Takes in all that the brokers' client has to tell.
    pub(super) fn drain(&mut self, now: Now) {
        loop {
            while let Some(said) = self.quorum.poll(now) {
                self.perform(now, said);
            }
            if !self.regulate(now) {
                return;
            }
        }
    }

    fn perform(&mut self, now: Now, said: QuorumEvent) {
        match said {
            QuorumEvent::Send { broker, request } => self.queue.push_back(Next::Request(broker, request)),
            QuorumEvent::OrderStatus(OrderStatus { policy, epoch, registered, .. }) => {
                if registered && !self.resumes && !std::mem::replace(&mut self.is_tidy, true) {
                    for id in self.quorum.unread_subscriptions() {
                        // What does not get through stays for the next run.
                        let _ = self.quorum.unsubscribe(now, id);
                    }
                }
                self.changes += 1;
                self.look_whether_up();
                self.give_key();
                self.put(Output::InForce(EpochId { counter: epoch, hash: policy }));
            }
            QuorumEvent::Delivered(published) => self.deliver(now, *published),
            QuorumEvent::Skipped { subscription, place, count } => {
                self.line_up(now, subscription, Item::Empty { place, count });
            }
            QuorumEvent::Lost { subscription, place, count } => {
                if self.readers.is_read(subscription) {
                    self.line_up(now, subscription, Item::Lost { place, count });
                } else {
                    self.drops.count_many(Dropped::Incomplete, count);
                }
            }
            QuorumEvent::Advertised { advertisement, scope, text } => {
                let state::Advertisement { client, sn, .. } = advertisement;
                self.changes += 1;
                self.advertised.put(Advertisement { scope, text, client, sn });
            }
            QuorumEvent::Attach { sn, broker, attachment } => {
                self.put(Output::Attach { index: sn, attachments: vec![(broker, attachment)] });
            }
            QuorumEvent::Outcome(token, became) => self.became(now, token, became),
            QuorumEvent::Subscribed { token, subscription } => {
                if self.wanted.remove(&token).is_none() {
                    self.decided(now, token, Ok(subscription));
                } else if !self.forgotten.remove(&token) {
                    self.readers.begin(subscription);
                    self.finish(token, Done::Subscribed(subscription));
                } else if !self.is_patterns(subscription) {
                    // Nobody would read what is lined up for it.
                    self.quorum.leave(now, subscription);
                }
            }
            QuorumEvent::Read(token, answer) => self.finish(token, Done::Read(answer)),
            QuorumEvent::Receipt(token, receipt) => self.finish(token, Done::Receipt(receipt)),
            QuorumEvent::Status(token, said) => self.finish(token, Done::Status(said)),
            QuorumEvent::Proofs(token, proofs) => self.finish(token, Done::Proofs(proofs)),
            QuorumEvent::Store(record) => {
                let is_due = |at| now.monotonic.since(at) >= STORE_EVERY;
                if self.resumes || self.stored.is_none_or(is_due) {
                    self.stored = Some(now.monotonic);
                    self.put(Output::Store { id: RECORD, record });
                }
            }
            QuorumEvent::Notice(notice) => {
                self.changes += 1;
                self.notices.push_back(notice);
            }
        }
    }

    fn finish(&mut self, token: Token, done: Done) {
        if !self.forgotten.remove(&token) {
            self.changes += 1;
            self.done.insert(token, done);
        }
    }

    /// A publication of one of our subscriptions.
    fn deliver(&mut self, now: Now, published: Published) {
        let Published { subscription, place, entry, .. } = &published;
        let (subscription, place) = (*subscription, *place);
        self.newest = self.newest.max(entry.sn);
        if self.readers.is_read(subscription) {
            if !self.is_patterns(subscription) {
                return self.hand_on(now, subscription, place, published);
            }
            self.hand_on(now, subscription, place, published.clone());
        }
        if let Err(why) = self.published(published) {
            self.drops.count(why);
        }
    }

    /// A publication for a reader of ours.
    fn hand_on(&mut self, now: Now, subscription: u64, place: u64, published: Published) {
        let Published { entry, publication, .. } = published;
        match publication.body {
            Contents::Sealed(_) if self.opens() => {
                if let Some(sealed) = Sealed::of(&entry, publication) {
                    self.readers.put_sealed(subscription, place, sealed);
                }
                self.look_back(now);
            }
            body => {
                let (entry, associated) = (Box::new(entry), publication.associated);
                let item = match Content::of(body) {
                    Some(content) => Item::Publication { place, entry, associated, content },
                    // Without keys nothing sealed is ever opened.
                    None => Item::Empty { place, count: 1 },
                };
                self.line_up(now, subscription, item);
            }
        }
    }

    fn line_up(&mut self, now: Now, subscription: u64, item: Item) {
        self.changes += 1;
        self.readers.put(subscription, item);
        self.look_back(now);
    }

    /// Stops what comes if readers or keys have enough.
    fn look_back(&mut self, now: Now) {
        if !self.held && self.readers.is_behind() {
            self.hold(now, true);
        }
    }

    /// Lets the brokers' client stop or go on, as readers and the group need; whether it goes on.
    fn regulate(&mut self, now: Now) -> bool {
        let is_behind = self.readers.is_behind() || self.paused && !self.orders_all();
        if is_behind == self.held {
            return false;
        }
        self.hold(now, is_behind);
        !is_behind
    }

    fn hold(&mut self, now: Now, held: bool) {
        self.held = held;
        if self.orders_all() {
            // What the group's members say comes on.
            let read: Vec<u64> = self.readers.subscriptions().filter(|it| !self.is_patterns(*it)).collect();
            read.into_iter().for_each(|it| self.quorum.pause(now, it, held));
        } else {
            self.quorum.hold(now, held);
        }
    }

    /// Whether keys open what is sealed.
    pub(super) fn opens(&self) -> bool {
        self.payload_kind == PayloadKind::Messages { sealed: true }
    }

    /// A sealed publication opened, or is ⊥.
    pub(super) fn opened(&mut self, now: Now, sn: u64, bodies: Option<&[Vec<u8>]>) {
        self.quorum.opened(sn);
        if let Some(reading) = self.reads.get_mut(&sn) {
            reading.opened = Some(bodies.map(<[_]>::to_vec));
        }
        self.readers.settle(sn, bodies);
        self.changes += 1;
        self.drain(now);
    }

    /// Begins to open a sealed publication that was read. Shares come without proofs, for which the keys ask if they doubt.
    pub(super) fn open(&mut self, now: Now, entry: &Entry, publication: &Publication) -> Result<(), SendError> {
        if let Some(reading) = self.reads.get_mut(&entry.sn) {
            reading.callers += 1;
            return Ok(());
        }
        let sealed = if self.opens() { Sealed::of(entry, publication.clone()) } else { None };
        let Some(sealed) = sealed else {
            // Without keys nothing sealed is ever opened.
            self.reads.insert(entry.sn, Reading { callers: 1, opened: Some(None) });
            return Ok(());
        };
        self.quorum.shares(now, entry.sn, false)?;
        self.reads.insert(entry.sn, Reading { callers: 1, opened: None });
        self.readers.put_first(sealed);
        self.drain(now);
        Ok(())
    }

    /// A caller reads a publication no more. What was kept for callers goes with the last one.
    pub(super) fn end_read(&mut self, sn: u64) {
        let Some(reading) = self.reads.get_mut(&sn) else { return };
        reading.callers -= 1;
        if reading.callers == 0 {
            self.reads.remove(&sn);
            self.readers.end_read(sn);
        }
    }

    /// A pattern is active at the brokers, or they refuse it; `false` if the token is no pattern's.
    fn decided(&mut self, now: Now, token: Token, status: Result<u64, Code>) -> bool {
        let Some((pattern, wanted)) = self.patterns.iter_mut().find(|(_, it)| it.token == token) else { return false };
        wanted.status = Some(status);
        let (pattern, is_read) = (pattern.clone(), wanted.readers > 0);
        if is_read && !self.orders_all() {
            self.put(Output::Subscribed(pattern.clone(), status.map(drop).map_err(Into::into)));
        }
        self.look_whether_up();
        self.end_unread(now, pattern);
        true
    }

    /// What became of an operation of ours.
    fn became(&mut self, now: Now, token: Token, became: Became) {
        if let Became::Executed { outcome, .. } = &became
            && matches!(outcome.code, Code::Unregistered | Code::Revoked)
        {
            self.dismissed.get_or_insert(outcome.code);
        }
        if self.acts.remove(&token) || self.wanted.remove(&token).is_some() {
            return self.finish(token, Done::Outcome(became));
        }
        // A message that was superseded is sealed again, and keeps its token.
        if !matches!(became, Became::Superseded { .. }) && self.followed.remove(&token) {
            self.finish(token, Done::Outcome(became.clone()));
        }
        let outcome = match became {
            Became::Executed { outcome, .. } if outcome.code == Code::Done => match &self.payload_kind {
                // Its place is told when it comes back.
                PayloadKind::Group { .. } => return,
                PayloadKind::Messages { .. } => {
                    let sn = outcome.detail.first_chunk::<8>().map(|sn| u64::from_be_bytes(*sn));
                    sn.map_or(Outcome::Accepted, Outcome::Ordered)
                }
            },
            Became::Executed { outcome, .. } => Outcome::Denied(outcome.code.into()),
            Became::Superseded { policy, epoch } => Outcome::Superseded(EpochId { counter: epoch, hash: policy }),
            Became::Refused(_) => Outcome::Failed,
            // It had its place; in a group it comes back from there.
            Became::Forgotten if self.orders_all() => return,
            Became::Forgotten => Outcome::Accepted,
        };
        if let Outcome::Denied(reason) = outcome
            && let Ok(code) = Code::try_from(reason)
            && self.decided(now, token, Err(code))
        {
            return;
        }
        if self.patterns.values().any(|it| it.token == token) {
            return;
        }
        if !matches!(outcome, Outcome::Ordered(_) | Outcome::Accepted) {
            self.ours.retain(|_, tokens| {
                tokens.retain(|it| *it != token);
                !tokens.is_empty()
            });
        }
        self.put(Output::Outcome(token, outcome));
    }

    /// A publication in its place.
    fn published(&mut self, it: Published) -> Result<(), Dropped> {
        let Published { subscription, place, entry, publication, .. } = it;
        let key = entry.client.0;
        match (&self.payload_kind, publication.body) {
            (PayloadKind::Group { resumes, .. }, Contents::Plain(datagram)) => {
                if *resumes && datagram.get(1) != Some(&KIND_SEALED) {
                    self.marks.note(subscription, place, entry.sn);
                }
                let source = Source::Client { key, epoch: EpochId::default() };
                let ours = if entry.client == *self.quorum.client() { self.came_back(&datagram) } else { None };
                if datagram.get(1) == Some(&KIND_SEALED) {
                    self.put(Output::Record { index: entry.sn, from: source, ours, datagram });
                    return Ok(());
                }
                if let Some(token) = ours {
                    self.put(Output::Outcome(token, Outcome::Ordered(entry.sn)));
                    return Ok(());
                }
                let bytes = keys_message(&datagram)?;
                if bytes.len() > limits::OPEN_BYTES_MAX {
                    return Err(Dropped::Malformed);
                }
                self.put(Output::Keys { source, position: Some(entry.sn), bytes: bytes.to_vec() });
                Ok(())
            }
            (PayloadKind::Group { .. }, Contents::Sealed(_) | Contents::Digest { .. }) => Err(Dropped::Foreign),
            (PayloadKind::Messages { .. }, body) => {
                if self.passed.is_some_and(|passed| passed >= entry.sn) {
                    return Ok(());
                }
                self.passed = Some(entry.sn);
                let headers = &publication.headers;
                let read = |it: &&Header| self.patterns.keys().any(|pattern| pattern.matches(&it.topic));
                let topic = headers.iter().find(read).or(headers.first()).ok_or(Dropped::Malformed)?;
                let topic: Arc<str> = topic.topic.as_str().into();
                let epoch = EpochId { counter: entry.epoch, hash: entry.policy };
                let envelope = Publication { body: Contents::Plain(Vec::new()), ..publication };
                let (header, body) = match body {
                    Contents::Plain(body) => (Vec::new(), body),
                    Contents::Digest { hash, .. } => (Vec::new(), hash.to_vec()),
                    Contents::Sealed(body) => (sealed_header(&entry.client, entry.number, &envelope), body),
                };
                let epoch = if header.is_empty() { EpochId::default() } else { epoch };
                self.put(Output::Deliver(Delivered {
                    index: entry.sn,
                    ordered: true,
                    source: Source::Client { key, epoch },
                    signed: true,
                    topic,
                    sent_micros: sent_micros(&envelope.associated),
                    header,
                    body,
                    attachments: Vec::new(),
                }));
                Ok(())
            }
        }
    }

    /// A later run needs nothing of what the key scheme said up to this sn.
    pub(super) fn checkpointed(&mut self, now: Now, sn: u64) {
        if let Some((subscription, place, sn)) = self.marks.take_to(sn) {
            self.quorum.taken(now, subscription, place + 1, Some(sn));
            self.stored = None;
            self.drain(now);
        }
    }

    fn came_back(&mut self, datagram: &[u8]) -> Option<Token> {
        let id = id_of(datagram);
        let tokens = self.ours.get_mut(&id)?;
        let token = tokens.pop_front();
        if tokens.is_empty() {
            self.ours.remove(&id);
        }
        token
    }

    /// A publication under one topic.
    fn publish(&mut self, now: Now, topic: String, associated: Vec<u8>, body: Vec<u8>) -> Result<Token, SendError> {
        if body.len() > limits::BODY_BYTES_MAX {
            return Err(SendError::TooLong);
        }
        let publication = Publication {
            headers: vec![Header { topic, value: None }],
            associated,
            access: None,
            execute: Execute::Nothing,
            policy: 0,
            epoch: 0,
            body: Contents::Plain(body),
        };
        self.quorum.publish(now, publication)
    }
}

impl Machine {
    /// A group's messages have one order, and so have what its members say for its key.
    pub(super) fn orders_all(&self) -> bool {
        matches!(self.payload_kind, PayloadKind::Group { .. })
    }

    /// The group takes no more messages, or takes them again.
    pub(super) fn pause(&mut self, now: Now, paused: bool) {
        self.paused = paused;
        if let PayloadKind::Group { name, .. } = &self.payload_kind {
            let messages = self.patterns.get(&group_pattern(name, MESSAGES));
            if let Some(Wanted { status: Some(Ok(id)), .. }) = messages {
                self.quorum.pause(now, *id, paused);
            }
        }
        self.drain(now);
    }
}

/// Where a group's members meet: one level for the name, whatever is in it.
fn group_topic(name: &str) -> String {
    let mut topic = String::from("group/");
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => topic.push(char::from(byte)),
            _ => topic += &format!("%{byte:02x}"),
        }
    }
    topic
}

/// What a member reads there.
fn group_interest(name: &str, kind: &str) -> Interest {
    Interest::Is(Constraint { topic: group_pattern(name, kind), value: None })
}

/// One of the two places there.
fn group_pattern(name: &str, kind: &str) -> Pattern {
    format!("{}/{kind}", group_topic(name)).parse().expect("the name is one level")
}

fn id_of(datagram: &[u8]) -> [u8; 16] {
    sha256(datagram)[..16].try_into().expect("a hash has 32 bytes")
}

/// What a key scheme reads before a ciphertext.
fn sealed_header(client: &Client, number: u64, publication: &Publication) -> Vec<u8> {
    SealedHeader { client: client.0, number, envelope: publication.envelope() }.to_bytes()
}

/// The publication with such a header and this ciphertext, and its number.
fn sealed_publication(header: &[u8], ciphertext: &[u8]) -> Option<(u64, Publication)> {
    if ciphertext.len() > limits::BODY_BYTES_MAX {
        return None;
    }
    let SealedHeader { number, envelope, .. } = SealedHeader::from_bytes(header).ok()?;
    let publication = Publication::of(&envelope, Contents::Sealed(ciphertext.to_vec())).ok()?;
    Some((number, publication))
}

/// The sender's clock, if it told: `"sent" ‖ u64 microseconds since 1970`.
fn sent_micros(associated: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(associated.strip_prefix(SENT)?.try_into().ok()?))
}

/// What members of a group say for its key, and all else.
const KEYS: &str = "keys";
const MESSAGES: &str = "messages";
const SENT: &[u8] = b"sent";
/// The id of the one record.
const RECORD: u64 = 0;
/// How often the highest block seen is made durable.
const STORE_EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_publication_is_the_one_that_its_header_describes() {
        let publication = Publication {
            headers: vec![Header { topic: "market/eurusd".into(), value: None }],
            associated: b"a".to_vec(),
            access: Some("exchange:desk = fx".parse().unwrap()),
            execute: Execute::Increment { key: b"k".to_vec(), by: 2 },
            policy: 3,
            epoch: 4,
            body: Contents::Sealed(b"ciphertext".to_vec()),
        };
        let header = sealed_header(&Client([7; 32]), 9, &publication);
        assert_eq!(sealed_publication(&header, b"ciphertext"), Some((9, publication)));
        assert_eq!(sealed_publication(&header[..20], b"ciphertext"), None);
    }

    #[test]
    fn a_groups_place_is_one_level_whatever_its_name() {
        assert_eq!(group_topic("ward3"), "group/ward3");
        assert_eq!(group_topic("a/b+#"), "group/a%2fb%2b%23");
        assert_eq!(sent_micros(&[SENT, &7_u64.to_be_bytes()].concat()), Some(7));
        assert_eq!(sent_micros(b"sent"), None);
    }
}
