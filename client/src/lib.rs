//! The client of 3f + 1 brokers: what it publishes is ordered once, and what it subscribes to comes once and in order,
//! while any f of the brokers are silent, slow or lying (Chios IV; E1, E6, E9, E11).
//!
//! ```text
//!  verbs: publish, subscribe, read …          ┌─────────── Quorum ───────────┐
//!  ──────────────────────────────────────────▶│ sending: numbers, batches     │──▶ Output::Send{broker, request}
//!  connected, handle(broker, reply), …        │ updates: digests, contents   │──▶ Delivered, OperationOutcome, OrderStatus …
//!  ──────────────────────────────────────────▶│ queries: f + 1 equal answers │
//!                                             └──────────────────────────────┘
//! ```
//! A shell keeps a channel to every broker (TLS, whose keys tell who speaks), says when it opens and closes, and carries
//! messages both ways; messages of one channel stay in order. The machine is a value: no sockets, no clocks.
//!
//! | file | what |
//! |---|---|
//! | `event` | what it hands out |
//! | `channel` | one broker: where it says that the order is, how it behaves |
//! | `order_status` | where the order is, as f + 1 brokers back it; how old that is |
//! | `sending`, `outcomes` | operations with their numbers, batches under way; what became of them |
//! | `updates`, `delivering` | blocks that concern the client: digests of f + 1, contents of one; handing them on in order |
//! | `line`, `catching` | a subscription's cursor; catching up after a gap, page by page and broker by broker |
//! | `pace` | handing on no faster than it is taken |
//! | `queries`, `reading`, `receipts` | queries, until f + 1 brokers answer alike |
//! | `vouching` | whether a client that only waits is still registered |
//! | `record` | what a restarted program goes on from (G6) |
//! | `transport` | the trait [`sealcast_delivery::Delivery`] over all of this |
//! | `handle` | what brokers do beside carrying a group's messages |
//! | `machine` | what the two share: patterns, a group's topics, what callers wait for |
//! | `readers`, `item`, `advertised` | what readers of subscriptions get, in order; what others advertise |

#![forbid(unsafe_code)]

mod advertised;
mod catching;
mod channel;
mod delivering;
mod event;
mod handle;
mod item;
mod line;
mod machine;
mod marks;
mod order_status;
mod outcomes;
mod pace;
mod queries;
mod readers;
mod reading;
mod receipts;
mod record;
mod sending;
#[cfg(test)]
mod tests;
mod transport;
mod updates;
mod vouching;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sealcast_broker::genesis::{Cluster, Genesis};
use sealcast_broker::operation::{Client, Interest, Operation, Publication, Registration};
use sealcast_broker::protocol::{Query, Reply, Request};
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::{Dropped, Drops, Fetch, Fetched, Malformed, Monotonic, Now, Utc, limits};

pub use advertised::{Advertised, Advertisement, Advertisements};
pub use event::{
    Answer, Conduct, ConfirmedSubscription, Delivered, Misbehaviour, Notice, OperationOutcome, OrderStatus, Output,
    Proofs, Read, TopicPosition,
};
pub use handle::Handle;
pub use item::{Content, Item, Took};
pub use machine::{Done, PayloadKind};
pub use transport::Transport;

use channel::Channel;
use delivering::Bodies;
use line::SubscriptionState;
use order_status::Known;
use queries::{Purpose, Queries};
use reading::Reading;
use receipts::Receipts;
use sealcast_delivery::{SendError, Token};
use sending::{Op, Sending, What};
use updates::Updates;
use vouching::Vouching;

/// What a client knows before it starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the cluster began with, as its file says (E11).
    pub genesis: Genesis,
    /// The client's key: its channels and its batches prove by it who it is.
    pub key: Arc<OriginKey>,
    /// Makes the client known where f + 1 brokers say that nobody vouches for it. Which of several they know they do not
    /// say: those of a client that has more than one are ordered each time it begins. All say the same of its intent.
    pub registrations: Vec<Registration>,
    /// Operations of one batch, at most `BATCH_OPERATIONS_MAX`; a lone one goes at once all the same.
    pub batch_operations: usize,
}

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    /// Where its reader left it.
    Resumed,
    /// Now.
    Afresh,
}

/// The machine. Call a verb, then drain [`Quorum::poll`] until it answers `None`.
#[derive(Debug)]
pub struct Quorum {
    config: Config,
    cluster: Cluster,
    client: Client,
    /// f.
    faulty: usize,
    channels: Vec<Channel>,
    known: Known,
    sending: Sending,
    /// The broker that batches go to.
    primary_broker: u16,
    updates: Updates,
    /// Subscriptions, by id.
    lines: BTreeMap<u64, SubscriptionState>,
    /// Subscriptions that were told to end: they are not gone on with, though brokers may still name them.
    ended: BTreeSet<u64>,
    /// What is wanted and not yet subscribed to: before it is known where the order is.
    wanted: Vec<(Token, Interest, Begin)>,
    bodies: Bodies,
    queries: Queries,
    reads: BTreeMap<Token, Reading>,
    receipts: Receipts,
    vouching: Vouching,
    tokens: u64,
    /// When the record is to be stored, if it changed.
    store_at: Option<Monotonic>,
    /// Whether publications wait until the application has room for them.
    held: bool,
    /// Handing on stopped for [`Quorum::poll`] to be drained.
    midway: bool,
    drops: Drops,
    outputs: VecDeque<Output>,
}

impl Quorum {
    /// A client that never was one before.
    ///
    /// # Panics
    /// If `batch_operations` is 0 or over its limit.
    pub fn new(config: Config) -> Quorum {
        assert!((1..=limits::BATCH_OPERATIONS_MAX).contains(&config.batch_operations), "a batch has operations");
        let cluster = config.genesis.cluster();
        let client = Client(config.key.public_bytes());
        let brokers = config.genesis.brokers.len();
        Quorum {
            cluster,
            client,
            faulty: brokers.saturating_sub(1) / 3,
            channels: vec![Channel::default(); brokers],
            known: Known::default(),
            sending: Sending::default(),
            // Clients spread over the brokers.
            primary_broker: u16::from(client.0[1]) % u16::try_from(brokers.max(1)).expect("brokers have a limit"),
            updates: Updates::default(),
            lines: BTreeMap::new(),
            ended: BTreeSet::new(),
            wanted: Vec::new(),
            bodies: Bodies::default(),
            queries: Queries::default(),
            reads: BTreeMap::new(),
            receipts: Receipts::default(),
            vouching: Vouching::default(),
            tokens: 0,
            store_at: None,
            held: false,
            midway: false,
            drops: Drops::default(),
            outputs: VecDeque::new(),
            config,
        }
    }

    /// The channel to a broker is open, and its key is that broker's.
    pub fn connected(&mut self, _now: Now, broker: u16) {
        let Some(channel) = self.channels.get_mut(usize::from(broker)) else { return };
        channel.link = channel::Link::Greeting;
        self.send(broker, Request::Hello { cluster: self.cluster }.to_bytes().into());
    }

    /// The channel to a broker is closed, or cannot be opened.
    pub fn disconnected(&mut self, now: Now, broker: u16) {
        if let Some(channel) = self.channels.get_mut(usize::from(broker)) {
            channel.down();
            self.sending.lost(now.monotonic, broker);
            self.advance(now);
        }
    }

    /// A message of a broker: [`sealcast_broker::protocol::Reply`], encoded, without its length.
    pub fn handle(&mut self, now: Now, broker: u16, reply: &[u8]) {
        if self.channels.get(usize::from(broker)).is_none() {
            return self.drops.count(Dropped::Foreign);
        }
        match Reply::from_bytes(reply) {
            Ok(Reply::Welcome(welcome)) => self.welcome(now, broker, welcome),
            Ok(Reply::Update(update)) => self.update(now, broker, update, true),
            Ok(Reply::Attach { sn, attachment }) => self.outputs.push_back(Output::Attach { sn, broker, attachment }),
            Ok(Reply::Answer { id, answer }) => self.answer(now, broker, id, answer),
            Ok(Reply::Refused { first, why }) => self.refused(now, broker, first, why),
            Err(Malformed) => {
                self.drops.count(Dropped::Malformed);
                self.misbehaved(broker, Misbehaviour::Malformed);
            }
        }
    }

    /// Publishes what brokers can read, in the order of calls. The versions that it names (E6) are set to those in force,
    /// again if they change before it has its place.
    ///
    /// # Errors
    /// `Full`, `TooLong` if it is over a limit, or `BadTopic` ([`sealcast_broker::operation::check_published`]).
    pub fn publish(&mut self, now: Now, publication: Publication) -> Result<Token, SendError> {
        let publication = self.known.stamp(publication);
        self.operation(now, What::Publish, &Operation::Publish(Box::new(publication)))
    }

    /// The number that the next operation gets: what is sealed is bound to it.
    ///
    /// # Errors
    /// `NotReady` before f + 1 brokers said it; `Old` if no recent block is known (E6); `Full`.
    pub fn number(&self, now: Now) -> Result<u64, SendError> {
        let number = self.sending.next().filter(|_| self.order_status().is_some()).ok_or(SendError::NotReady)?;
        if self.known.age(now).is_none_or(|age| age > limits::SEAL_BLOCK_AGE_MAX) {
            return Err(SendError::Old);
        }
        if self.sending.has_capacity(limits::OPERATION_BYTES_MAX) { Ok(number) } else { Err(SendError::Full) }
    }

    /// Publishes what was sealed under [`Quorum::number`], before any other verb; what was sealed `again` keeps the token
    /// under which it was superseded.
    ///
    /// # Errors
    /// As [`Quorum::number`], and `TooLong`; `Retired` if it is another number.
    pub fn publish_sealed(
        &mut self,
        now: Now,
        number: u64,
        publication: Publication,
        again: Option<Token>,
    ) -> Result<Token, SendError> {
        if self.number(now)? != number {
            return Err(SendError::Retired);
        }
        let token = again.unwrap_or_else(|| self.token());
        self.operation_as(now, token, What::Sealed, &Operation::Publish(Box::new(publication)))
    }

    /// Any other operation: advertisements, acts of administrators, registrations, `Sync`.
    ///
    /// # Errors
    /// As [`Quorum::publish`].
    pub fn submit(&mut self, now: Now, operation: Operation) -> Result<Token, SendError> {
        let what = match &operation {
            Operation::Register(_) => What::Register,
            Operation::Subscribe(interest) => What::Subscribe(interest.clone()),
            Operation::Unsubscribe(id) => What::Unsubscribe(*id),
            Operation::Publish(_) => What::Publish,
            _ => What::Other,
        };
        let token = self.operation(now, what, &operation)?;
        match operation {
            Operation::Unsubscribe(subscription) => {
                if self.ended.len() >= 4 * limits::SUBSCRIPTIONS_PER_CLIENT_MAX {
                    self.ended.pop_first();
                }
                self.ended.insert(subscription);
            }
            Operation::Register(registration) => self.remember(registration),
            _ => {}
        }
        Ok(token)
    }

    /// Whether a registration is under way.
    pub fn is_registering(&self) -> bool {
        self.sending.is_registering()
    }

    /// Whoever must register again says the same again.
    fn remember(&mut self, registration: Registration) {
        let all = &mut self.config.registrations;
        all.retain(|it| !it.proof.is_same_statement(&registration.proof));
        all.iter_mut().for_each(|it| it.intent = registration.intent);
        all.push(registration);
    }

    fn operation(&mut self, now: Now, what: What, operation: &Operation) -> Result<Token, SendError> {
        let token = self.token();
        self.operation_as(now, token, what, operation)
    }

    fn token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    fn operation_as(&mut self, now: Now, token: Token, what: What, operation: &Operation) -> Result<Token, SendError> {
        if let Operation::Publish(publication) = operation {
            publication.check_topics().map_err(|_| SendError::BadTopic)?;
        }
        let op = Op::new(token, what, operation);
        if op.bytes.len() > limits::OPERATION_BYTES_MAX {
            return Err(SendError::TooLong);
        }
        if !self.sending.has_capacity(op.bytes.len()) {
            return Err(SendError::Full);
        }
        self.sending.push(now.monotonic, op);
        Ok(token)
    }

    /// Wants publications. A subscription of this client to the same is gone on with, from the cursor if the record has
    /// one, else from now on; [`Output::Subscribed`] tells its id.
    ///
    /// # Errors
    /// As [`Quorum::publish`].
    pub fn subscribe(&mut self, now: Now, interest: Interest) -> Result<Token, SendError> {
        self.want(now, interest, Begin::Resumed)
    }

    /// The same from now on, whatever was read of it before.
    ///
    /// # Errors
    /// As [`Quorum::publish`].
    pub fn subscribe_afresh(&mut self, now: Now, interest: Interest) -> Result<Token, SendError> {
        self.want(now, interest, Begin::Afresh)
    }

    fn want(&mut self, now: Now, interest: Interest, begin: Begin) -> Result<Token, SendError> {
        if self.wanted.len() >= limits::SUBSCRIPTIONS_PER_CLIENT_MAX {
            return Err(SendError::Full);
        }
        let token = self.token();
        self.wanted.push((token, interest, begin));
        if self.order_status().is_some() {
            self.take_up_wanted(now);
        }
        Ok(token)
    }

    /// Ends a subscription.
    ///
    /// # Errors
    /// As [`Quorum::publish`].
    pub fn unsubscribe(&mut self, now: Now, subscription: u64) -> Result<Token, SendError> {
        self.submit(now, Operation::Unsubscribe(subscription))
    }

    /// Asks all brokers for their shares of a sealed publication, which come as [`Output::Attach`]; with proofs, of which
    /// brokers give few to one client (E4), if a share was false.
    ///
    /// # Errors
    /// `Full`.
    pub fn shares(&mut self, now: Now, sn: u64, proved: bool) -> Result<(), SendError> {
        if !self.queries.has_capacity_for_shares() {
            return Err(SendError::Full);
        }
        self.ask(now, Purpose::Shares(sn), Query::Share { sn, proved }, self.channels.len());
        Ok(())
    }

    /// A sealed publication is opened, or never will be: shares of brokers that did not answer are waited for no more.
    pub fn opened(&mut self, sn: u64) {
        self.queries.close_shares(sn);
    }

    /// Asks for what a key scheme wants of the brokers; shares are all that they have for one. They do not come as the
    /// answer: it says that they were asked for, or could not be.
    pub fn fetch(&mut self, now: Now, what: &Fetch) -> Fetched {
        match *what {
            Fetch::Shares { index, proved } => match self.shares(now, index, proved) {
                Ok(()) => Fetched::Missing,
                Err(_) => Fetched::NotAsked,
            },
            Fetch::Blob(_) | Fetch::KeyPackage(_) | Fetch::Key | Fetch::Mail(_) => Fetched::Missing,
        }
    }

    /// Where the order is; `None` before f + 1 brokers said it.
    pub fn order_status(&self) -> Option<&OrderStatus> {
        self.known.order_status.as_ref()
    }

    /// The time of the newest block that f + 1 brokers back (E10); of an idle cluster, as of a quarter of `SEAL_BLOCK_AGE_MAX` ago.
    pub fn at(&self) -> Option<Utc> {
        self.known.at()
    }

    /// How old the newest block is that f + 1 brokers back, by the clock here; `None` before they have named one (E6).
    pub fn age(&self, now: Now) -> Option<Duration> {
        self.known.age(now)
    }

    /// The client's key, by which the order knows it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// How the brokers behave, by number.
    pub fn conduct(&self) -> impl Iterator<Item = &Conduct> {
        self.channels.iter().map(|channel| &channel.conduct)
    }

    /// The subscriptions that are read: id, what it wants, the next place.
    pub fn subscriptions(&self) -> impl Iterator<Item = (u64, &Interest, u64)> {
        self.lines.iter().filter(|(_, line)| line.is_read).map(|(id, line)| (*id, &line.interest, line.place))
    }

    /// What was not used, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// The reader of a subscription has taken everything below `place`, of which the last is the publication with this
    /// sn, if it was one. A restarted client goes on from there: what was delivered and not taken comes again (G6).
    pub fn taken(&mut self, now: Now, subscription: u64, place: u64, sn: Option<u64>) {
        if let Some(line) = self.lines.get_mut(&subscription) {
            line.take(place, sn);
            self.changed(now);
        }
    }

    /// Subscriptions of a run before this one are of no use: what is subscribed to begins now; but for this one, if any.
    pub fn forget_subscriptions_but(&mut self, kept: Option<&Interest>) {
        self.lines.retain(|_, line| kept.is_some_and(|kept| line.interest == *kept));
    }

    /// The number that an operation has now; `None` before it has one, and once it is known what became of it.
    pub fn number_of(&self, token: Token) -> Option<u64> {
        self.sending.number_of(token)
    }

    /// Whether it is known of all operations what became of them.
    pub fn is_settled(&self) -> bool {
        self.sending.is_empty()
    }

    /// Whether every broker has welcomed us.
    pub fn is_complete(&self) -> bool {
        self.channels.iter().all(Channel::is_up)
    }

    /// The same, of what operations alone wait for: cheap enough to be asked after each.
    pub fn timeout_of_operations(&self) -> Option<Monotonic> {
        self.sending.timeout().filter(|_| self.channels.iter().any(Channel::is_up))
    }

    /// When [`Quorum::handle_timeout`] wants to be called next.
    pub fn timeout(&self) -> Option<Monotonic> {
        let (vouching, known) = (self.vouching.timeout(), self.known.timeout());
        let own = [known, self.queries.timeout(), self.late_update(), self.store_at, vouching];
        own.into_iter().flatten().chain(self.timeout_of_operations()).min()
    }

    /// Time has come.
    pub fn handle_timeout(&mut self, now: Now) {
        self.look_around(now);
        self.send_late(now);
        self.ask_late(now);
        self.request_updates(now);
        self.advance(now);
        if self.store_at.is_some_and(|at| at <= now.monotonic) {
            self.store_at = None;
            self.outputs.push_back(Output::Store(self.record()));
        }
    }

    /// The next thing to be done, until there is none. What was published leaves here.
    pub fn poll(&mut self, now: Now) -> Option<Output> {
        self.hand_on_further(now);
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        let primary_broker = self.primary_broker()?;
        let batches = self.config.batch_operations;
        let registered = self.order_status().is_some_and(|it| it.registered);
        let keys = (&self.cluster, &*self.config.key);
        for request in self.sending.cut(now.monotonic, keys, batches, primary_broker, registered) {
            self.outputs.push_back(Output::Send { broker: primary_broker, request });
        }
        self.outputs.pop_front()
    }

    fn send(&mut self, broker: u16, request: Arc<[u8]>) {
        self.outputs.push_back(Output::Send { broker, request });
    }

    /// The broker that batches go to, or the next one that is there.
    fn primary_broker(&mut self) -> Option<u16> {
        let brokers = self.channels.len();
        let next = (0..brokers)
            .map(|i| (usize::from(self.primary_broker) + i) % brokers)
            .find(|i| self.channels[*i].is_up())?;
        self.primary_broker = u16::try_from(next).expect("brokers have a limit");
        Some(self.primary_broker)
    }

    /// Brokers that can be asked, from the client's primary broker on.
    fn up(&mut self) -> Vec<u16> {
        let Some(primary_broker) = self.primary_broker() else { return Vec::new() };
        let brokers = self.channels.len();
        let from_primary =
            (0..brokers).map(|i| (usize::from(primary_broker) + i) % brokers).filter(|i| self.channels[*i].is_up());
        from_primary.map(|i| u16::try_from(i).expect("brokers have a limit")).collect()
    }

    fn misbehaved(&mut self, broker: u16, how: Misbehaviour) {
        if let Some(channel) = self.channels.get_mut(usize::from(broker)) {
            if !channel.conduct.misbehaviours.contains_key(&how) {
                self.outputs.push_back(Output::Notice(Notice::Misbehaved { broker, how }));
            }
            channel.count(how);
        }
    }
}
