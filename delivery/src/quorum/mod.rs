//! The client of 3f + 1 brokers: what it publishes is ordered once, and what it subscribes to comes once and in order,
//! while any f of the brokers are silent, slow or lying (Chios IV; E1, E6, E9, E11).
//!
//! ```text
//!  verbs: publish, subscribe, read …          ┌─────────── Quorum ───────────┐
//!  ──────────────────────────────────────────▶│ sending: numbers, frames     │──▶ Output::Send{broker, request}
//!  connected, handle(broker, reply), …        │ updates: digests, contents   │──▶ Delivered, Outcome, Standing …
//!  ──────────────────────────────────────────▶│ asking:  f + 1 equal answers │
//!                                             └──────────────────────────────┘
//! ```
//! A shell keeps a channel to every broker (TLS, whose keys tell who speaks), says when it opens and closes, and carries
//! messages both ways; messages of one channel stay in order. The machine is a value: no sockets, no clocks.
//!
//! | file | what |
//! |---|---|
//! | `event` | what it hands out |
//! | `channel` | one broker: where it says that the order is, how it behaves |
//! | `sending` | operations with their numbers, frames under way, what became of them |
//! | `updates` | blocks that concern the client, by height: digests of f + 1, contents of one |
//! | `line` | a subscription's cursor, and catching up after a gap |
//! | `asking` | questions, until f + 1 brokers answer alike |
//! | `record` | what a restarted program goes on from (G6) |
//! | `way` | the [`crate::Delivery`] over it |

#[allow(dead_code)] // read by what follows
mod channel;
mod event;

use std::collections::VecDeque;
use std::sync::Arc;

use sealcast_broker::genesis::{Cluster, Genesis};
use sealcast_broker::operation::{Client, Interest, Operation, Publication, Registration};
use sealcast_broker::protocol::{Reply, Request};
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::{Malformed, Monotonic, Now};

pub use event::{Answer, Conduct, Delivered, Misdeed, Notice, Outcome, Output, Read, Standing};

use crate::{SendError, Token};
use channel::Channel;

/// What a client knows before it starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the cluster began with, as its file says (E11).
    pub genesis: Genesis,
    /// The client's key: its channels and its frames prove by it who it is.
    pub key: Arc<OriginKey>,
    /// Makes the client known where f + 1 brokers say that nobody vouches for it.
    pub registration: Option<Registration>,
    /// Operations of one frame, at most `FRAME_OPERATIONS_MAX`; a lone one goes at once all the same.
    pub frame_operations: usize,
}

/// The machine. Call a verb, then drain [`Quorum::poll`] until it answers `None`.
#[derive(Debug)]
#[allow(dead_code)] // read by what follows
pub struct Quorum {
    config: Config,
    cluster: Cluster,
    client: Client,
    channels: Vec<Channel>,
    outputs: VecDeque<Output>,
}

impl Quorum {
    /// A client that never was one before.
    ///
    /// # Panics
    /// If `frame_operations` is 0 or over its limit.
    pub fn new(config: Config) -> Quorum {
        let cluster = config.genesis.cluster();
        let client = Client(config.key.public_bytes());
        let channels = vec![Channel::default(); config.genesis.brokers.len()];
        Quorum { cluster, client, channels, outputs: VecDeque::new(), config }
    }

    /// A client that goes on where an [`Output::Store`] left it.
    ///
    /// # Errors
    /// The record is none, or of another cluster or client.
    pub fn restore(config: Config, record: &[u8]) -> Result<Quorum, Malformed> {
        if record.is_empty() { Err(Malformed) } else { Ok(Quorum::new(config)) }
    }

    /// The channel to a broker is open, and its key is that broker's.
    pub fn connected(&mut self, _now: Now, broker: u16) {
        let Some(channel) = self.channels.get_mut(usize::from(broker)) else { return };
        channel.link = channel::Link::Greeting;
        let request = Request::Hello { cluster: self.cluster }.to_bytes().into();
        self.outputs.push_back(Output::Send { broker, request });
    }

    /// The channel to a broker is closed, or cannot be opened.
    pub fn disconnected(&mut self, _now: Now, broker: u16) {
        if let Some(channel) = self.channels.get_mut(usize::from(broker)) {
            channel.down();
        }
    }

    /// A message of a broker: [`sealcast_broker::protocol::Reply`], encoded, without its length.
    pub fn handle(&mut self, now: Now, broker: u16, reply: &[u8]) {
        let Some(channel) = self.channels.get_mut(usize::from(broker)) else { return };
        match Reply::from_bytes(reply) {
            Ok(Reply::Welcome(welcome)) if welcome.broker == broker => channel.welcome(now.monotonic, welcome),
            Ok(Reply::Welcome(_)) => channel.count(Misdeed::Number),
            Ok(_) => {}
            Err(Malformed) => channel.count(Misdeed::Malformed),
        }
    }

    /// Publishes what brokers can read, in the order of calls. The versions that it names (E6) are set to those in force,
    /// again if they change before it has its place.
    ///
    /// # Errors
    /// `Full`, or `TooLong` if it is over a limit.
    pub fn publish(&mut self, now: Now, publication: Publication) -> Result<Token, SendError> {
        self.submit(now, Operation::Publish(Box::new(publication)))
    }

    /// The number that the next operation gets: what is sealed is bound to it.
    ///
    /// # Errors
    /// `NotReady` before f + 1 brokers said it; `Old` if no recent block is known (E6); `Full`.
    pub fn number(&self, _now: Now) -> Result<u64, SendError> {
        Err(SendError::NotReady)
    }

    /// Publishes what was sealed under [`Quorum::number`], before any other verb.
    ///
    /// # Errors
    /// As [`Quorum::number`], and `TooLong`; `Retired` if it is another number, or the versions are not those in force.
    pub fn publish_sealed(&mut self, now: Now, number: u64, publication: Publication) -> Result<Token, SendError> {
        if self.number(now)? != number {
            return Err(SendError::Retired);
        }
        self.publish(now, publication)
    }

    /// Any other operation: advertisements, acts of administrators, registrations, `Sync`.
    ///
    /// # Errors
    /// As [`Quorum::publish`].
    pub fn submit(&mut self, _now: Now, _operation: Operation) -> Result<Token, SendError> {
        Err(SendError::NotReady)
    }

    /// Wants publications. A subscription of this client to the same is gone on with, from the cursor if the record has
    /// one, else from now on; [`Output::Subscribed`] tells its id.
    ///
    /// # Errors
    /// As [`Quorum::publish`].
    pub fn subscribe(&mut self, now: Now, interest: Interest) -> Result<Token, SendError> {
        self.submit(now, Operation::Subscribe(interest))
    }

    /// Ends a subscription.
    ///
    /// # Errors
    /// As [`Quorum::publish`].
    pub fn unsubscribe(&mut self, now: Now, subscription: u64) -> Result<Token, SendError> {
        self.submit(now, Operation::Unsubscribe(subscription))
    }

    /// Reads the newest state that f + 1 brokers agree on, not older than what the client has seen (E9); `linearizable`
    /// orders a `Sync` before.
    ///
    /// # Errors
    /// `Full`.
    pub fn read(&mut self, _now: Now, _what: Read, _linearizable: bool) -> Result<Token, SendError> {
        Err(SendError::NotReady)
    }

    /// Collects the receipt of an operation of this client, from its [`Outcome::Executed`].
    ///
    /// # Errors
    /// `Full`.
    pub fn receipt(&mut self, _now: Now, _height: u64, _number: u64) -> Result<Token, SendError> {
        Err(SendError::NotReady)
    }

    /// Asks all brokers where they are.
    ///
    /// # Errors
    /// `Full`.
    pub fn status(&mut self, _now: Now) -> Result<Token, SendError> {
        Err(SendError::NotReady)
    }

    /// Asks all brokers for their shares of a sealed publication, with proofs; they come as [`Output::Attach`].
    ///
    /// # Errors
    /// `Full`.
    pub fn shares(&mut self, _now: Now, _sn: u64) -> Result<(), SendError> {
        Err(SendError::NotReady)
    }

    /// Where the order is; `None` before f + 1 brokers said it.
    pub fn standing(&self) -> Option<&Standing> {
        None
    }

    /// The client's key, by which the order knows it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// How the brokers behave, by number.
    pub fn conduct(&self) -> impl Iterator<Item = &Conduct> {
        self.channels.iter().map(|channel| &channel.conduct)
    }

    /// When [`Quorum::handle_timeout`] wants to be called next.
    pub fn timeout(&self) -> Option<Monotonic> {
        None
    }

    /// Time has come.
    pub fn handle_timeout(&mut self, _now: Now) {}

    /// The next thing to be done, until there is none. What was published leaves here.
    pub fn poll(&mut self, _now: Now) -> Option<Output> {
        self.outputs.pop_front()
    }
}
