//! The machines of a client and what they are joined to: channels, the record on disk, callers, readers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::Registry;
use sealcast_broker::cluster_file::{ClusterFile, Suite, VouchedKey};
use sealcast_broker::operation::{Body, Interest, Operation, OperationId, Publication, Registration};
use sealcast_broker::protocol::{Status, Why};
use sealcast_broker::receipt::Receipt;
use sealcast_broker::state::Entry;
use sealcast_client::{Advertised, Answer, Config, Outcome, Proofs, Quorum, Read};
use sealcast_crypto::group::{P256, Ristretto255};
use sealcast_crypto::tdh2::Ciphertext;
use sealcast_delivery::{SendError, Token};
use sealcast_keys::threshold::sealed::together_overhead;
use sealcast_keys::{self as keys, Shortage};
use sealcast_wire::{Envelope, SealedHeader, Utc, limits};

use super::credential::{self, Credential};
use super::findings::Findings;
use super::inbox::Inbox;
use super::lines::{Lines, Sealed};
use super::member::Record;
use super::sealing::Sealing;
use super::{Opening, Outgoing, Stand};
use crate::code::Code;
use crate::error::{CLOCK, Error, Result};
use crate::io::channel::Channel;
use crate::io::clock::Clock;
use crate::url::Scheme;

mod working;

/// See the module.
pub(super) struct Engine {
    pub(super) cluster: Arc<ClusterFile>,
    pub(super) quorum: Quorum,
    pub(super) findings: Findings,
    pub(super) advertised: Advertised,
    /// What callers wait for.
    pub(super) done: BTreeMap<Token, Done>,
    clock: Clock,
    channels: Vec<Channel>,
    registry: Registry,
    record: Record,
    sealing: Sealing,
    /// What subscriptions are asked for, until they stand.
    wanted: BTreeMap<Token, Interest>,
    lines: Lines,
    /// Nothing more is handed on, because readers or keys have enough.
    behind: bool,
    /// Sealed publications that callers read, by sn.
    reads: BTreeMap<u64, Reading>,
    /// Tokens that nobody waits for any more.
    forgotten: BTreeSet<Token>,
    /// A record that must be durable before anything leaves (G6).
    unstored: Option<Vec<u8>>,
    nobody_vouches: bool,
    /// f + 1 brokers say of us, who wait for publications, that nobody vouches for us any more.
    not_vouched: bool,
    /// Until when issuers vouch for us, by the registrations that say so and were not refused.
    credentials: BTreeMap<OperationId, Credential>,
    /// Why the brokers do not take our registration.
    not_registered: Option<Error>,
    /// The highest sn of what was handed on.
    newest: u64,
    /// When brokers were last asked for a key.
    asked_for_key: Instant,
    failure: Option<Error>,
    ended: bool,
    /// Until when the driver waits for sockets; `None` for as long as nothing comes.
    driver_until: Option<Instant>,
    /// A caller closed a channel, which the driver opens again.
    closed: bool,
}

/// A sealed publication that callers read.
struct Reading {
    /// How many of them.
    callers: usize,
    /// What opened of it, once it has: bodies, or ⊥.
    opened: Option<Option<Vec<Vec<u8>>>>,
}

/// What a caller waited for.
pub(super) enum Done {
    Outcome(Outcome),
    Subscribed(Arc<Inbox>),
    Read(std::result::Result<Answer, Why>),
    Receipt(Option<Box<Receipt>>),
    Status(BTreeMap<u16, Status>),
    Proofs(Proofs),
}

impl Engine {
    pub(super) fn new(opening: Opening, registry: &Registry) -> Result<Engine> {
        let Opening { cluster, key, registrations, keys, frame_operations, accuse, patience: _ } = opening;
        let (key, record) = key.into_parts();
        let places = cluster.broker_keys().into_iter().zip(&cluster.addresses).enumerate();
        let channel = |(n, (broker, at)): (usize, ([u8; 32], &sealcast_broker::cluster_file::Addresses))| {
            Channel::new(mio::Token(n), at.gateway.clone(), broker, key.clone())
        };
        let channels = places.map(channel).collect();
        let credential = |it: &Registration| {
            Some((OperationId::of(&Operation::Register(it.clone()).to_bytes()), Credential::of(it)?))
        };
        let credentials = registrations.iter().filter_map(credential).collect();
        let config = Config { genesis: cluster.genesis.clone(), key: key.clone(), registrations, frame_operations };
        let quorum = match record.last() {
            None => Quorum::new(config),
            Some(bytes) => Quorum::restore(config, &bytes)
                .map_err(|_| Error::new(Code::Content, "what was kept of this client of the brokers is damaged"))?,
        };
        let sealing = if keys == Scheme::Plain { Sealing::Plain } else { Sealing::Waiting };
        Ok(Engine {
            findings: Findings::new(accuse),
            cluster,
            quorum,
            advertised: Advertised::default(),
            done: BTreeMap::new(),
            clock: Clock::start(),
            channels,
            registry: registry.try_clone().map_err(|e| Error::system("waiting for sockets", &e))?,
            record,
            sealing,
            wanted: BTreeMap::new(),
            lines: Lines::default(),
            behind: false,
            reads: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            unstored: None,
            nobody_vouches: false,
            not_vouched: false,
            credentials,
            not_registered: None,
            newest: 0,
            asked_for_key: Instant::now(),
            failure: None,
            ended: false,
            driver_until: Some(Instant::now()),
            closed: false,
        })
    }

    /// Publishes, sealed if the keys say so; then `more` bodies go into the same ciphertext.
    pub(super) fn publish(&mut self, outgoing: &Outgoing, more: &[&[u8]]) -> std::result::Result<Token, SendError> {
        let now = self.clock.now();
        let Outgoing { headers, associated, access, execute, body } = outgoing;
        let is_large = body.len() + more.iter().map(|it| it.len()).sum::<usize>() > limits::BODY_BYTES_MAX;
        if is_large || !outgoing.keeps_to_limits() {
            return Err(SendError::TooLong);
        }
        let mut publication = Publication {
            headers: headers.clone(),
            associated: associated.clone(),
            access: access.clone(),
            execute: execute.clone(),
            policy: 0,
            epoch: 0,
            body: Body::Plain(Vec::new()),
        };
        if let Sealing::Plain = self.sealing {
            publication.body = Body::Plain(body.clone());
            return self.quorum.publish(now, publication);
        }
        let standing = self.quorum.standing().cloned().ok_or(SendError::NotReady)?;
        if let Sealing::Waiting = self.sealing {
            self.find_key()?;
        }
        self.sealing.stands(now, &standing);
        let number = self.quorum.number(now)?;
        let bodies = [&[&body[..]], more].concat();
        let sealed = self.sealing.seal(number, &publication.envelope(), &bodies).map_err(|e| match e {
            keys::SealError::TooLarge | keys::SealError::Policy => SendError::TooLong,
            _ => SendError::NotReady,
        })?;
        let Envelope { policy, epoch, .. } =
            SealedHeader::from_bytes(&sealed.header).map_err(|_| SendError::TooLong)?.envelope;
        let publication = Publication { policy, epoch, body: Body::Sealed(sealed.body), ..publication };
        self.quorum.publish_sealed(now, number, publication, None)
    }

    pub(super) fn submit(&mut self, operation: Operation) -> std::result::Result<Token, SendError> {
        if let Operation::Register(registration) = &operation
            && let Some(credential) = Credential::of(registration)
        {
            self.credentials.insert(OperationId::of(&operation.to_bytes()), credential);
        }
        self.quorum.submit(self.clock.now(), operation)
    }

    /// Begins to subscribe, or waits again for what nobody waited for any more; `None` if somebody reads the same here:
    /// two readers of one subscription would take it from each other.
    pub(super) fn subscribe(&mut self, interest: &Interest) -> std::result::Result<Option<Token>, SendError> {
        if let Some((token, _)) = self.wanted.iter().find(|(_, it)| *it == interest) {
            return Ok(self.forgotten.remove(token).then_some(*token));
        }
        if self.quorum.subscriptions().any(|(_, it, _)| it == interest) {
            return Ok(None);
        }
        let token = self.quorum.subscribe(self.clock.now(), interest.clone())?;
        self.wanted.insert(token, interest.clone());
        Ok(Some(token))
    }

    pub(super) fn read(&mut self, what: Read, linearizable: bool) -> std::result::Result<Token, SendError> {
        self.quorum.read(self.clock.now(), what, linearizable)
    }

    pub(super) fn receipt(&mut self, height: u64, number: u64) -> std::result::Result<Token, SendError> {
        self.quorum.receipt(self.clock.now(), height, number)
    }

    pub(super) fn receipt_of(&mut self, entry: &Entry) -> std::result::Result<Token, SendError> {
        self.quorum.receipt_of(self.clock.now(), entry)
    }

    pub(super) fn bound(&mut self, height: u64, number: u64) -> std::result::Result<Token, SendError> {
        self.quorum.bound(self.clock.now(), height, number)
    }

    pub(super) fn status(&mut self) -> std::result::Result<Token, SendError> {
        self.quorum.status(self.clock.now())
    }

    pub(super) fn proofs(&mut self) -> std::result::Result<Token, SendError> {
        self.quorum.proofs(self.clock.now())
    }

    /// Begins to open a sealed publication that was read. Shares come without proofs, for which the keys ask if they doubt.
    /// Each call ends with an answer of [`Engine::opened`] or with [`Engine::end_read`].
    pub(super) fn open_read(&mut self, entry: &Entry, publication: &Publication) -> std::result::Result<(), SendError> {
        let now = self.clock.now();
        if let Some(reading) = self.reads.get_mut(&entry.sn) {
            reading.callers += 1;
            return Ok(());
        }
        if let Sealing::Waiting = self.sealing {
            self.find_key()?;
        }
        let Some(sealed) = sealed(entry, publication.clone()).filter(|_| self.seals()) else {
            // Without keys nothing sealed is ever opened.
            self.reads.insert(entry.sn, Reading { callers: 1, opened: Some(None) });
            return Ok(());
        };
        self.quorum.shares(now, entry.sn, false)?;
        self.reads.insert(entry.sn, Reading { callers: 1, opened: None });
        self.lines.put_first(sealed);
        Ok(())
    }

    /// What opened of a publication that is being read; `Some(None)` is ⊥.
    pub(super) fn opened(&mut self, sn: u64) -> Option<Option<Vec<Vec<u8>>>> {
        let opened = self.reads.get(&sn)?.opened.clone()?;
        self.end_read(sn);
        Some(opened)
    }

    /// A caller reads a publication no more. With the last one goes what was kept for them.
    pub(super) fn end_read(&mut self, sn: u64) {
        let Some(reading) = self.reads.get_mut(&sn) else { return };
        reading.callers -= 1;
        if reading.callers == 0 {
            self.reads.remove(&sn);
            self.lines.end_read(sn);
        }
    }

    /// The threshold key, once it is known. Brokers name it when they welcome somebody; whoever came before asks for it.
    pub(super) fn look_for_key(&mut self) -> Option<VouchedKey> {
        let key = self.key();
        if key.is_none() && self.quorum.standing().is_some() && self.asked_for_key.elapsed() > ASK_AGAIN {
            self.asked_for_key = Instant::now();
            self.quorum.look_for_key(self.clock.now());
        }
        key
    }

    /// The threshold key, as far as is known.
    fn key(&self) -> Option<VouchedKey> {
        if let Some(key) = &self.cluster.key {
            return Some(key.clone());
        }
        let standing = self.quorum.standing()?;
        self.cluster.agreed_key(standing.keys.iter().map(|(broker, key)| (*broker, key)))
    }

    /// Whether every broker has welcomed us.
    pub(super) fn all_here(&self) -> bool {
        self.quorum.is_complete()
    }

    /// Whether f + 1 brokers know us, and somebody vouches for us there.
    pub(super) fn is_registered(&self) -> bool {
        self.quorum.standing().is_some_and(|it| it.registered)
    }

    /// Why the client cannot become known, if so.
    pub(super) fn unregistered(&self) -> Option<Error> {
        if let Some(why) = self.expired() {
            return Some(why);
        }
        let unknown = self.quorum.standing().is_some_and(|it| !it.registered);
        // Somebody else may still vouch for it.
        if unknown
            && !self.quorum.is_registering()
            && let Some(why) = &self.not_registered
        {
            return Some(why.clone());
        }
        (unknown && self.nobody_vouches).then(|| {
            Error::new(
                Code::Denied,
                "the brokers do not know us, and no issuer of the cluster has given us a certificate",
            )
            .with_hint(
                "sealcast ca issue NAME --ca ISSUER --attr …, then --id NAME; the cluster file names the issuers",
            )
        })
    }

    /// The last second of the time of the last of our credentials, once little of it is left.
    pub(super) fn ends_soon(&self) -> Option<Utc> {
        let at = self.quorum.at()?;
        self.credentials.values().max_by_key(|it| it.not_after)?.ends_soon(at)
    }

    /// That the time of all our credentials is over, if it was at the newest block.
    pub(super) fn expired(&self) -> Option<Error> {
        self.are_over(self.quorum.at()?).then(credential::expired)
    }

    /// Why nobody vouches for us, as f + 1 brokers say: they may know a later block than we do, at which our time was over.
    pub(super) fn not_vouched(&self) -> Error {
        let later = self.quorum.at().map(|at| Utc(at.0.saturating_add(BROKERS_AHEAD_SECONDS)));
        if later.is_some_and(|at| self.are_over(at)) { credential::expired() } else { credential::ended() }
    }

    fn are_over(&self, at: Utc) -> bool {
        !self.credentials.is_empty() && self.credentials.values().all(|it| it.is_over(at))
    }

    /// Tells readers that nothing will come any more, if so: brokers end subscriptions without a word.
    fn watch_credential(&mut self) {
        if let Some(why) = self.expired() {
            self.lines.close(&why);
        }
    }

    /// Whether publications are sealed.
    pub(super) fn seals(&self) -> bool {
        !matches!(self.sealing, Sealing::Plain)
    }

    /// Where the brokers stand.
    pub(super) fn stands(&self, said: &BTreeMap<u16, Status>) -> Vec<Stand> {
        let places = (0_u16..).zip(self.channels.iter().zip(&self.cluster.addresses));
        let stand = |(broker, (channel, at)): (u16, (&Channel, &sealcast_broker::cluster_file::Addresses))| Stand {
            broker,
            address: at.gateway.clone(),
            said: said.get(&broker).cloned().ok_or_else(|| {
                channel
                    .why()
                    .unwrap_or(if channel.is_open() { "it does not say" } else { "it does not answer" })
                    .to_owned()
            }),
        };
        places.map(stand).collect()
    }

    /// Why nothing comes any more for this client, if so.
    pub(super) fn excluded(&self) -> Option<Error> {
        self.expired().or_else(|| self.not_vouched.then(|| self.not_vouched()))
    }

    /// That more than f brokers have lied to this client.
    pub(super) fn misled(&self) -> Option<Error> {
        self.findings.misled(self.channels.len(), self.cluster.faulty())
    }

    /// That fewer brokers are connected than the order needs: which ones are not, and why.
    pub(super) fn cut_off(&self) -> Option<Error> {
        let here = self.channels.iter().filter(|it| it.is_open()).count();
        let too_few = here <= 2 * self.cluster.faulty();
        too_few.then(|| no_quorum(&self.cluster, &self.channels, Duration::ZERO))
    }

    /// The first publication that has waited too long for shares.
    pub(super) fn shortage(&self) -> Option<Shortage> {
        self.sealing.shortage(self.clock.monotonic(), SHARES_PATIENCE)
    }

    /// What a publication that does not open waits for.
    pub(super) fn shortage_of(&self, sn: u64) -> Option<Shortage> {
        self.sealing.shortage_of(sn)
    }

    /// Which limit a publication is over.
    pub(super) fn too_large(&self, outgoing: &Outgoing, more: &[&[u8]]) -> Error {
        let own = match (&self.sealing, self.cluster.suite) {
            (Sealing::Plain, _) => 0,
            (_, Suite::Ristretto255) => together_overhead(Ciphertext::<Ristretto255>::OVERHEAD, 1 + more.len()),
            (_, Suite::P256) => together_overhead(Ciphertext::<P256>::OVERHEAD, 1 + more.len()),
        };
        outgoing.too_large(more, limits::BODY_BYTES_MAX.saturating_sub(own))
    }

    /// Why nothing can be sealed: the newest block is too old by the clock here.
    pub(super) fn too_old(&self) -> Error {
        let most = limits::SEAL_BLOCK_AGE_MAX.as_secs();
        let what = match self.quorum.age(self.clock.now()) {
            Some(age) => format!(
                "the newest block that f + 1 brokers show is {} s old by this machine's clock; it may be {most} s old",
                age.as_secs()
            ),
            None => "f + 1 brokers have not shown their newest block yet, and nothing is sealed before".to_owned(),
        };
        Error::new(Code::NotReady, what).with_hint(CLOCK)
    }

    /// Nobody waits for this any more.
    pub(super) fn forget(&mut self, token: Token) {
        match self.done.remove(&token) {
            None => {
                self.forgotten.insert(token);
            }
            Some(Done::Subscribed(inbox)) => self.leave(inbox.id),
            Some(_) => {}
        }
    }

    /// A subscription has no reader any more.
    pub(super) fn leave(&mut self, subscription: u64) {
        let now = self.clock.now();
        self.mark(now);
        self.lines.end(subscription);
        self.quorum.leave(now, subscription);
    }
}

/// Too few brokers answer: which ones do not, and why.
pub(crate) fn no_quorum(cluster: &ClusterFile, channels: &[Channel], patience: Duration) -> Error {
    let (n, needed) = (channels.len(), cluster.faulty() + 1);
    let silent = channels.iter().enumerate().filter(|(_, it)| !it.is_open());
    let silent: Vec<String> =
        silent.map(|(n, it)| format!("broker {n} ({})", it.why().unwrap_or("no answer"))).collect();
    let here = n - silent.len();
    let (code, what) = match here > 2 * cluster.faulty() {
        true => (
            Code::TimedOut,
            format!(
                "{here} of {n} brokers are connected, but no answer that {needed} of them give alike came in {patience:?}{}",
                if silent.is_empty() { String::new() } else { format!("; not connected: {}", silent.join(", ")) }
            ),
        ),
        false => (Code::NoQuorum, format!("{here} of {n} brokers answer; silent: {}", silent.join(", "))),
    };
    Error::new(code, what).with_hint("sealcast brokers status; do the brokers of this cluster file run?")
}

/// The brokers are not the cluster as we knew it (E11).
pub(crate) fn rolled_back(seen: u64, height: u64) -> Error {
    let what = format!("the brokers are at block {height}, and we have seen {seen}: their past was taken away");
    Error::new(Code::RolledBack, what).with_hint("compare «sealcast brokers status» with whoever runs them")
}

/// What the keys need to open a publication; `None` if it is not sealed.
fn sealed(entry: &Entry, publication: Publication) -> Option<Sealed> {
    let header =
        SealedHeader { client: entry.client.0, number: entry.number, envelope: publication.envelope() }.to_bytes();
    let Body::Sealed(ciphertext) = publication.body else { return None };
    Some(Sealed { entry: Box::new(entry.clone()), associated: publication.associated, header, ciphertext })
}

/// How long shares may take before a reader is told that they are missing.
const SHARES_PATIENCE: Duration = Duration::from_secs(5);
/// How often brokers that had no key are asked again whether they have one now.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// By how much the newest block of a broker may be later than the newest one that is known here, block time.
const BROKERS_AHEAD_SECONDS: i64 = 10;

#[cfg(test)]
mod tests;
