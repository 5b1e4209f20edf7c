//! The trait [`Delivery`] over the brokers: any key scheme through their one order.
//!
//! ```text
//! keys=plain, threshold     a message is a publication under its topic; patterns are subscriptions at the brokers
//! keys=contributory         the group's messages are publications under two topics of the group's:
//!                             group/NAME/keys       the key scheme's, veiled and signed as on multicast
//!                             group/NAME/messages   datagrams that members sealed; topic and text are inside
//! ```
//! Everything comes back at its place in the order, our own too. A shell carries bytes between [`Way`] and the brokers:
//! it calls [`Way::connected`], [`Way::heard`], [`Way::disconnected`], and sends each batch to the broker that it names.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sealcast_broker::cluster_file::ClusterFile;
use sealcast_broker::operation::{
    Body as Contents, Client, Constraint, Execute, Header, Interest, Operation, Publication,
};
use sealcast_broker::state::Code;
use sealcast_crypto::hash::sha256;
use sealcast_crypto::identity::{Pattern, check_topic};
use sealcast_wire::frame::KIND_SEALED;
use sealcast_wire::{
    Address, Agreement, Dropped, Drops, EpochId, Fetch, Fetched, Fetches, Guarantee, Monotonic, Now, Protect,
    SealedHeader, Source, To, limits,
};

use super::{Config, Delivered as Published, Notice, Outcome as Became, Output as Said, Quorum, Standing};
use sealcast_delivery::memory::{BestEffort, keys_message};
use sealcast_delivery::{
    Batch, Body, Delivered, Delivery, Input, Outcome, Outgoing, Output, Packet, Properties, SendError, Token, What,
};

/// See the module.
#[derive(Debug)]
pub struct Way {
    quorum: Quorum,
    cargo: Cargo,
    /// Says of which key brokers may say that they hold shares.
    cluster: Option<Arc<ClusterFile>>,
    frames: BestEffort,
    patterns: BTreeMap<Pattern, Wanted>,
    /// Datagrams of ours that have not come back, by their hash.
    ours: BTreeMap<[u8; 16], VecDeque<Token>>,
    /// Operations that are no messages, and what became of them.
    acts: BTreeSet<Token>,
    ended: VecDeque<(Token, Became)>,
    /// The place of the last publication that was handed on: several subscriptions may want one.
    newest: Option<u64>,
    /// The brokers know us, and so they do where a group meets.
    is_up: bool,
    /// What runs before this one subscribed to is ended.
    is_tidy: bool,
    /// When the record was last handed out.
    stored: Option<Monotonic>,
    queue: VecDeque<Next>,
    notices: VecDeque<Notice>,
    drops: Drops,
}

/// What publications hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cargo {
    /// A message each.
    Messages {
        /// Brokers hold shares of the key that it is sealed under.
        sealed: bool,
    },
    /// What members of the group with this name say to each other.
    Group(String),
}

/// A pattern that somebody reads.
#[derive(Debug)]
struct Wanted {
    readers: usize,
    token: Token,
    stands: Option<Result<u64, Code>>,
}

#[derive(Debug)]
enum Next {
    Output(Output),
    Request(u16, Arc<[u8]>),
}

impl Way {
    /// A client that may have run before: of its record only what protects from brokers that went back is used (E11).
    /// Subscriptions begin now, whatever was read before.
    ///
    /// # Errors
    /// The record is none, or of another cluster or client.
    pub fn new(now: Now, config: Config, record: Option<&[u8]>, cargo: Cargo) -> Result<Way, sealcast_wire::Malformed> {
        let mut quorum = match record {
            None => Quorum::new(config),
            Some(record) => Quorum::restore(config, record)?,
        };
        quorum.forget_subscriptions();
        let frames = BestEffort::up_to(limits::BODY_BYTES_MAX);
        let mut way = Way {
            quorum,
            cargo,
            cluster: None,
            frames,
            patterns: BTreeMap::new(),
            ours: BTreeMap::new(),
            acts: BTreeSet::new(),
            ended: VecDeque::new(),
            newest: None,
            is_up: false,
            is_tidy: false,
            stored: None,
            queue: VecDeque::new(),
            notices: VecDeque::new(),
            drops: Drops::default(),
        };
        if let Cargo::Group(name) = &way.cargo {
            for place in [group_place(name, KEYS), group_place(name, MESSAGES)] {
                // What waits to be numbered has room for the first of all.
                let _ = way.subscribe(now, &place);
            }
        }
        Ok(way)
    }

    /// The same, for a key scheme that asks for the brokers' key ([`Fetch::Key`]).
    pub fn of_cluster(self, cluster: Arc<ClusterFile>) -> Way {
        Way { cluster: Some(cluster), ..self }
    }

    /// The channel to a broker is open, and its key is that broker's.
    pub fn connected(&mut self, now: Now, broker: u16) {
        self.quorum.connected(now, broker);
        self.drain(now);
    }

    /// The channel to a broker is closed, or cannot be opened.
    pub fn disconnected(&mut self, now: Now, broker: u16) {
        self.quorum.disconnected(now, broker);
        self.drain(now);
    }

    /// A message of a broker, without its length.
    pub fn heard(&mut self, now: Now, broker: u16, reply: &[u8]) {
        self.quorum.handle(now, broker, reply);
        self.drain(now);
    }

    /// Wants what is published from now on under topics that match; [`Way::stands`] tells when the brokers know it. Each
    /// call is undone by an [`Way::unsubscribe`].
    ///
    /// # Errors
    /// `Full`.
    pub fn subscribe(&mut self, now: Now, pattern: &Pattern) -> Result<(), SendError> {
        match self.patterns.get_mut(pattern) {
            // It may be one that nobody read before it stood.
            Some(wanted) if !matches!(wanted.stands, Some(Err(_))) => wanted.readers += 1,
            _ => {
                let interest = Interest::Is(Constraint { topic: pattern.clone(), value: None });
                let token = self.quorum.subscribe(now, interest)?;
                self.patterns.insert(pattern.clone(), Wanted { readers: 1, token, stands: None });
            }
        }
        self.drain(now);
        Ok(())
    }

    /// One reader less. What nobody reads ends, as soon as it stands.
    pub fn unsubscribe(&mut self, now: Now, pattern: &Pattern) {
        let Some(wanted) = self.patterns.get_mut(pattern) else { return };
        wanted.readers = wanted.readers.saturating_sub(1);
        self.end_unread(now, pattern.clone());
        self.drain(now);
    }

    /// Keys begin when the brokers know us, and those of a group when what others say for them comes.
    fn look_whether_up(&mut self) {
        let registered = self.quorum.standing().is_some_and(|it| it.registered);
        let meets = !self.orders_all() || matches!(self.group_stands(), Some(Ok(())));
        if registered && meets && !std::mem::replace(&mut self.is_up, true) {
            self.put(Output::Up);
        }
    }

    /// Ends a subscription that stands and that nobody reads.
    fn end_unread(&mut self, now: Now, pattern: Pattern) {
        let std::collections::btree_map::Entry::Occupied(wanted) = self.patterns.entry(pattern) else { return };
        let Wanted { readers: 0, stands: Some(stands), .. } = *wanted.get() else { return };
        wanted.remove();
        if let Ok(id) = stands {
            // What does not get through now ends when the client says so the next time.
            let _ = self.quorum.unsubscribe(now, id);
        }
    }

    /// Whether the brokers know a pattern by now, or why they refuse it.
    pub fn stands(&self, pattern: &Pattern) -> Option<Result<(), Code>> {
        self.patterns.get(pattern)?.stands.map(|it| it.map(drop))
    }

    /// The same for the topics where a group meets, if one does.
    pub fn group_stands(&self) -> Option<Result<(), Code>> {
        if !self.orders_all() {
            return None;
        }
        let stand: Option<Result<Vec<u64>, Code>> = self.patterns.values().map(|it| it.stands).collect();
        stand.map(|it| it.map(drop))
    }

    /// Whether messages can be sent.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Whether it is known of all that was sent what became of it.
    pub fn is_settled(&self) -> bool {
        self.quorum.is_settled()
    }

    /// Orders what is no message; [`Way::poll_ended`] tells what became of it.
    ///
    /// # Errors
    /// [`SendError`]: nothing was queued.
    pub fn submit(&mut self, now: Now, operation: Operation) -> Result<Token, SendError> {
        let token = self.quorum.submit(now, operation)?;
        self.acts.insert(token);
        self.drain(now);
        Ok(token)
    }

    /// What became of something that was submitted.
    pub fn poll_ended(&mut self) -> Option<(Token, Became)> {
        self.ended.pop_front()
    }

    /// The sn of the newest publication that came.
    pub fn newest(&self) -> u64 {
        self.newest.unwrap_or(0)
    }

    /// The key that the cluster's file names, or else enough brokers.
    pub fn key(&self) -> Option<Vec<u8>> {
        let cluster = self.cluster.as_ref()?;
        let said = self.standing().into_iter().flat_map(|it| it.keys.iter().map(|(broker, key)| (*broker, key)));
        cluster.key.clone().or_else(|| cluster.agreed_key(said)).map(|it| it.key)
    }

    /// Where the order is; `None` before f + 1 brokers said it.
    pub fn standing(&self) -> Option<&Standing> {
        self.quorum.standing()
    }

    /// The client's key.
    pub fn client(&self) -> &Client {
        self.quorum.client()
    }

    /// Something worth telling the operator.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// What a restarted client goes on from.
    pub fn record(&self) -> Vec<u8> {
        self.quorum.record()
    }

    fn put(&mut self, output: Output) {
        self.queue.push_back(Next::Output(output));
    }

    fn drain(&mut self, now: Now) {
        while let Some(said) = self.quorum.poll(now) {
            match said {
                Said::Send { broker, request } => self.queue.push_back(Next::Request(broker, request)),
                Said::Standing(Standing { policy, epoch, registered, .. }) => {
                    if registered && !std::mem::replace(&mut self.is_tidy, true) {
                        for id in self.quorum.strangers() {
                            // What does not get through stays for the next run.
                            let _ = self.quorum.unsubscribe(now, id);
                        }
                    }
                    self.look_whether_up();
                    self.put(Output::InForce(EpochId { counter: epoch, hash: policy }));
                }
                Said::Delivered(published) => {
                    if let Err(why) = self.published(*published) {
                        self.drops.count(why);
                    }
                }
                Said::Attach { sn, broker, attachment } => {
                    self.put(Output::Attach { index: sn, attachments: vec![(broker, attachment)] });
                }
                Said::Outcome(token, became) => self.became(now, token, became),
                Said::Subscribed { token, subscription } => {
                    self.decided(now, token, Ok(subscription));
                }
                Said::Store(record) => {
                    if self.stored.is_none_or(|at| now.monotonic.since(at) >= STORE_EVERY) {
                        self.stored = Some(now.monotonic);
                        self.put(Output::Store { id: RECORD, record });
                    }
                }
                Said::Notice(notice) => self.notices.push_back(notice),
                Said::Lost { count, .. } => self.drops.count_many(Dropped::Incomplete, count),
                Said::Skipped { .. }
                | Said::Advertised { .. }
                | Said::Read(..)
                | Said::Receipt(..)
                | Said::Status(..)
                | Said::Proofs(..) => {}
            }
        }
    }

    /// A subscription stands, or is refused; `false` if it is none of ours.
    fn decided(&mut self, now: Now, token: Token, stands: Result<u64, Code>) -> bool {
        let Some((pattern, wanted)) = self.patterns.iter_mut().find(|(_, it)| it.token == token) else { return false };
        wanted.stands = Some(stands);
        let (pattern, is_read) = (pattern.clone(), wanted.readers > 0);
        if is_read && !self.orders_all() {
            self.put(Output::Subscribed(pattern.clone(), stands.map(drop).map_err(Into::into)));
        }
        self.look_whether_up();
        self.end_unread(now, pattern);
        true
    }

    /// What became of an operation of ours.
    fn became(&mut self, now: Now, token: Token, became: Became) {
        if self.acts.remove(&token) {
            self.ended.push_back((token, became));
            return;
        }
        let outcome = match became {
            Became::Executed { outcome, .. } if outcome.code == Code::Done => match &self.cargo {
                // Its place is told when it comes back.
                Cargo::Group(_) => return,
                Cargo::Messages { .. } => {
                    let sn = outcome.detail.first_chunk::<8>().map(|sn| u64::from_be_bytes(*sn));
                    sn.map_or(Outcome::Accepted, Outcome::Placed)
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
        if !matches!(outcome, Outcome::Placed(_) | Outcome::Accepted) {
            self.ours.retain(|_, tokens| {
                tokens.retain(|it| *it != token);
                !tokens.is_empty()
            });
        }
        self.put(Output::Outcome(token, outcome));
    }

    /// A publication in its place.
    fn published(&mut self, it: Published) -> Result<(), Dropped> {
        let Published { entry, publication, .. } = it;
        let key = entry.client.0;
        match (&self.cargo, publication.body) {
            (Cargo::Group(_), Contents::Plain(datagram)) => {
                let source = Source::Client { key, epoch: EpochId::default() };
                let ours = if entry.client == *self.client() { self.came_back(&datagram) } else { None };
                if datagram.get(1) == Some(&KIND_SEALED) {
                    self.put(Output::Record { index: entry.sn, from: source, ours, datagram });
                    return Ok(());
                }
                if let Some(token) = ours {
                    self.put(Output::Outcome(token, Outcome::Placed(entry.sn)));
                    return Ok(());
                }
                let bytes = keys_message(&datagram)?;
                if bytes.len() > limits::OPEN_BYTES_MAX {
                    return Err(Dropped::Malformed);
                }
                self.put(Output::Keys { source, bytes: bytes.to_vec() });
                Ok(())
            }
            (Cargo::Group(_), Contents::Sealed(_) | Contents::Digest { .. }) => Err(Dropped::Foreign),
            (Cargo::Messages { .. }, body) => {
                if self.newest.is_some_and(|newest| newest >= entry.sn) {
                    return Ok(());
                }
                self.newest = Some(entry.sn);
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

impl Way {
    /// A group's messages have one order, and so have what its members say for its key.
    fn orders_all(&self) -> bool {
        matches!(self.cargo, Cargo::Group(_))
    }

    fn pause(&mut self, now: Now, held: bool) {
        match &self.cargo {
            Cargo::Messages { .. } => self.quorum.hold(now, held),
            Cargo::Group(name) => {
                let messages = self.patterns.get(&group_place(name, MESSAGES));
                if let Some(Wanted { stands: Some(Ok(id)), .. }) = messages {
                    self.quorum.pause(now, *id, held);
                }
            }
        }
        self.drain(now);
    }
}

impl Delivery for Way {
    fn properties(&self) -> Properties {
        Properties {
            best_effort: Some(Agreement::Byzantine),
            fifo: Some(Agreement::Byzantine),
            ordered: Some(Agreement::Byzantine),
            // Brokers keep it; when members hold it, nobody says.
            safe: None,
            orders_all: self.orders_all(),
            connects: true,
            subscribes: !self.orders_all(),
            acknowledges: true,
            message_bytes_max: limits::BODY_BYTES_MAX,
            fetches: Fetches { shares: true, directory: false },
            names_packets: false,
        }
    }

    fn send(
        &mut self,
        now: Now,
        protect: Option<&Arc<dyn Protect>>,
        message: Outgoing<'_>,
    ) -> Result<Token, SendError> {
        if message.guarantee == Guarantee::Safe {
            return Err(SendError::NotGiven(message.guarantee));
        }
        let token = match (&self.cargo, message.what) {
            (Cargo::Group(name), what) => {
                let kind = if let What::Keys { .. } = what { KEYS } else { MESSAGES };
                let topic = format!("{}/{kind}", group_topic(name));
                let datagram = self.frames.datagram(protect.map(|p| &**p), &message)?;
                let id = id_of(&datagram);
                let token = self.publish(now, topic, Vec::new(), datagram)?;
                self.ours.entry(id).or_default().push_back(token);
                token
            }
            (Cargo::Messages { .. }, What::Data { topic, sent_micros, body, .. }) => {
                check_topic(topic).map_err(|_| SendError::BadTopic)?;
                let sent = sent_micros.map_or_else(Vec::new, |at| [SENT, &at.to_be_bytes()[..]].concat());
                self.publish(now, topic.to_owned(), sent, body.to_vec())?
            }
            (Cargo::Messages { sealed: true }, What::Message { body: Body::Sealed(seal), again, .. }) => {
                let number = self.quorum.number(now)?;
                let sealed = seal.seal(Some(u128::from(number).to_be_bytes()))?;
                let (number, publication) =
                    sealed_publication(&sealed.header, &sealed.body).ok_or(SendError::TooLong)?;
                self.quorum.publish_sealed(now, number, publication, again)?
            }
            (Cargo::Messages { sealed: false }, What::Message { envelope, body: Body::Clear(body), .. }) => {
                if body.len() > limits::BODY_BYTES_MAX {
                    return Err(SendError::TooLong);
                }
                let body = Contents::Plain(body.to_vec());
                let publication = Publication::of(envelope, body).map_err(|_| SendError::TooLong)?;
                self.quorum.publish(now, publication)?
            }
            (Cargo::Messages { .. }, What::Message { .. }) => return Err(SendError::PerDatagram),
            (Cargo::Messages { .. }, What::Keys { .. }) => return Err(SendError::PerDatagram),
        };
        self.drain(now);
        Ok(token)
    }

    fn handle(&mut self, now: Now, input: Input<'_>) {
        match input {
            // Nothing comes in frames but what [`Way::heard`] takes.
            Input::Frame { .. } => self.drops.count(Dropped::Foreign),
            Input::Pause => self.pause(now, true),
            Input::Resume => self.pause(now, false),
            Input::Fetch(id, what) => {
                let result = match what {
                    Fetch::Key => self.key().map_or(Fetched::Missing, Fetched::Bytes),
                    Fetch::Shares { .. } | Fetch::Blob(_) | Fetch::After(_) | Fetch::KeyPackage(_) => {
                        self.quorum.fetch(now, what)
                    }
                };
                if (what, &result) == (&Fetch::Key, &Fetched::Missing) {
                    // The brokers may have made it since they welcomed us.
                    self.quorum.look_for_key(now);
                }
                self.put(Output::Fetched(id, result));
                self.drain(now);
            }
            Input::Opened(index) => self.quorum.opened(index),
            // Where a group meets is subscribed to from the beginning.
            Input::Subscribe(_) | Input::Unsubscribe(_) if self.orders_all() => {}
            Input::Subscribe(pattern) => {
                let stands = match self.subscribe(now, pattern) {
                    Ok(()) => self.stands(pattern),
                    Err(_) => Some(Err(Code::TooMany)),
                };
                if let Some(stands) = stands {
                    self.put(Output::Subscribed(pattern.clone(), stands.map_err(Into::into)));
                }
            }
            Input::Unsubscribe(pattern) => self.unsubscribe(now, pattern),
            Input::Prepare(_) => self.put(Output::Flushed([0; 32])),
            // Brokers keep nothing but publications.
            Input::Install(_) | Input::Offer { .. } => {}
        }
    }

    fn open_at(
        &mut self,
        index: u64,
        source: Source,
        flags: u16,
        frame: &mut [u8],
        protect: &dyn Protect,
    ) -> Result<Output, Dropped> {
        self.frames.take_at(index, source, flags, frame, protect)
    }

    fn sent(&mut self, _epoch: EpochId) -> Vec<Packet> {
        Vec::new()
    }

    fn timeout(&self) -> Option<Monotonic> {
        self.quorum.timeout()
    }

    fn handle_timeout(&mut self, now: Now, _protect: Option<&Arc<dyn Protect>>) {
        self.quorum.handle_timeout(now);
        self.drain(now);
    }

    fn poll(&mut self, batch: &mut Batch) -> Option<Output> {
        match self.queue.pop_front()? {
            Next::Output(output) => Some(output),
            Next::Request(broker, request) => {
                batch.to = Some(Address::Node(u32::from(broker)));
                batch.push(&request);
                Some(Output::Transmit(To::Group))
            }
        }
    }

    fn drops(&self) -> Drops {
        let mut drops = self.quorum.drops().clone();
        drops.add(&self.drops);
        drops
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

/// One of the two places there.
fn group_place(name: &str, kind: &str) -> Pattern {
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
