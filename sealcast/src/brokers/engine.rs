//! The machines of a client and what they are joined to: channels, the record on disk, callers, readers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::Registry;
use sealcast_broker::cluster_file::{ClusterFile, VouchedKey};
use sealcast_broker::operation::{Body, Interest, Operation, Publication};
use sealcast_broker::protocol::{Status, Why};
use sealcast_broker::receipt::Receipt;
use sealcast_broker::state::{self, Entry};
use sealcast_delivery::quorum::{self, Answer, Config, Notice, Outcome, Proofs, Quorum, Read};
use sealcast_delivery::{SendError, Token};
use sealcast_keys::threshold::sealed::Header;
use sealcast_keys::{self as keys, Delivered};
use sealcast_wire::{Envelope, Fetch, Now, Utc, limits};

use super::advertised::{Advertised, Advertisement};
use super::credential::{self, Credential};
use super::findings::Findings;
use super::inbox::{Content, Inbox, Item};
use super::lines::{Lines, Sealed};
use super::member::Record;
use super::sealing::Sealing;
use super::{Opening, Outgoing, Stand};
use crate::code::Code;
use crate::error::{Error, Result};
use crate::io::channel::{Channel, Heard};
use crate::io::clock::Clock;
use crate::url::Scheme;

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
    /// Until when somebody vouches for us, if we have somebody's word.
    credential: Option<Credential>,
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
        let Opening { cluster, key, registration, keys, frame_operations, accuse, patience: _ } = opening;
        let (key, record) = key.into_parts();
        let places = cluster.broker_keys().into_iter().zip(&cluster.addresses).enumerate();
        let channel = |(n, (broker, at)): (usize, ([u8; 32], &sealcast_broker::cluster_file::Addresses))| {
            Channel::new(mio::Token(n), at.gateway.clone(), broker, key.clone())
        };
        let channels = places.map(channel).collect();
        let credential = registration.as_ref().and_then(Credential::of);
        let config = Config { genesis: cluster.genesis.clone(), key: key.clone(), registration, frame_operations };
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
            credential,
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
        let sealed = self.sealing.seal(number, publication.envelope(), &bodies).map_err(|e| match e {
            keys::SealError::TooLarge | keys::SealError::Policy => SendError::TooLong,
            _ => SendError::NotReady,
        })?;
        let Envelope { policy, epoch, .. } =
            Header::from_bytes(&sealed.header).map_err(|_| SendError::TooLong)?.envelope;
        let publication = Publication { policy, epoch, body: Body::Sealed(sealed.body), ..publication };
        self.quorum.publish_sealed(now, number, publication)
    }

    pub(super) fn submit(&mut self, operation: Operation) -> std::result::Result<Token, SendError> {
        if let Operation::Register(registration) = &operation
            && let Some(credential) = Credential::of(registration)
        {
            self.credential = Some(credential.or_later(self.credential));
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
        if unknown && let Some(why) = &self.not_registered {
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

    /// The last second of our credential's time, once little of it is left.
    pub(super) fn ends_soon(&self) -> Option<Utc> {
        self.credential?.ends_soon(self.quorum.at()?)
    }

    /// That our credential's time is over, if it was at the newest block.
    pub(super) fn expired(&self) -> Option<Error> {
        let (credential, at) = self.credential.zip(self.quorum.at())?;
        credential.is_over(at).then(credential::expired)
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

    /// Does all that can be done without waiting; whether anything came of it.
    pub(super) fn work(&mut self) -> bool {
        let now = self.clock.now();
        let mut any = false;
        self.mark(now);
        if self.quorum.timeout().is_some_and(|at| at <= now.monotonic) {
            self.quorum.handle_timeout(now);
            any = true;
        }
        if self.sealing.timeout().is_some_and(|at| at <= now.monotonic) {
            self.sealing.handle_timeout(now);
            any = true;
        }
        if self.lines.has_unopened() {
            // Without a key there is nothing yet to open it with.
            let _ = self.find_key();
        }
        any |= self.pump(now);
        while self.attend(now) {
            any = true;
            self.pump(now);
        }
        any |= self.findings.bring(|operation| self.quorum.submit(now, operation));
        any |= self.pump(now);
        // What was queued goes to the kernel now.
        for channel in &mut self.channels {
            channel.flush();
        }
        any
    }

    /// What a caller's verb has to send leaves at once; all else is the driver's, which works the sockets. Tells whether
    /// anything came that others may wait for.
    pub(super) fn send_out(&mut self) -> bool {
        let any = self.pump(self.clock.now());
        if any {
            for channel in &mut self.channels {
                self.closed |= !channel.flush();
            }
        }
        any
    }

    /// Whether the driver must be woken for a timer that is nearer than what it waits for; it is then taken to be woken.
    pub(super) fn is_driver_late(&mut self, timeout: Option<Duration>) -> bool {
        if std::mem::take(&mut self.closed) {
            return true;
        }
        let Some(timeout) = timeout else { return false };
        let at = Instant::now() + timeout;
        let is_late = self.driver_until.is_none_or(|until| at < until);
        if is_late {
            self.driver_until = Some(at);
        }
        is_late
    }

    /// How long what was published may wait.
    pub(super) fn timeout_of_operations(&self) -> Option<Duration> {
        let at = self.quorum.timeout_of_operations()?;
        Some(at.since(self.clock.monotonic()))
    }

    /// How long the driver waits for sockets from now on.
    pub(super) fn wait(&mut self) -> Option<Duration> {
        let timeout = self.timeout();
        self.driver_until = timeout.map(|it| Instant::now() + it);
        timeout
    }

    /// The system says that something happened on this channel.
    pub(super) fn woken(&mut self, token: mio::Token) {
        if let Some(channel) = self.channels.get_mut(token.0) {
            channel.woken();
        }
    }

    /// How long the driver may wait for sockets.
    pub(super) fn timeout(&self) -> Option<Duration> {
        let now = self.clock.now();
        let of_machines = [self.quorum.timeout(), self.sealing.timeout()].into_iter().flatten().min();
        let of_machines = of_machines.map(|at| at.since(now.monotonic));
        let of_channels = self.channels.iter().filter_map(Channel::timeout).min();
        let of_channels = of_channels.map(|at| at.saturating_duration_since(Instant::now()));
        let for_key = (matches!(self.sealing, Sealing::Waiting) && self.lines.has_unopened()).then_some(ASK_AGAIN);
        [of_machines, of_channels, for_key].into_iter().flatten().min()
    }

    /// Sends what is queued, as far as the kernel takes it, and ends.
    pub(super) fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.work();
            self.mark(self.clock.now());
            self.unstored = Some(self.quorum.record());
            self.store();
            self.channels.iter_mut().for_each(Channel::end);
            self.lines.close(&Error::closed());
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended || self.failure.is_some()
    }

    /// Nothing more can be done.
    pub(super) fn fail(&mut self, why: Error) {
        self.lines.close(&why);
        self.failure.get_or_insert(why);
    }

    /// Why nothing more can be done.
    pub(super) fn failed(&self) -> Option<Error> {
        self.failure.clone().or_else(|| self.ended.then(Error::closed))
    }

    /// Too few brokers answer: which ones do not, and why.
    pub(super) fn no_quorum(&self, patience: Duration) -> Error {
        no_quorum(&self.cluster, &self.channels, patience)
    }

    /// Takes in what channels say and sends what they have; whether anything came.
    fn attend(&mut self, now: Now) -> bool {
        let mut any = false;
        for (number, channel) in (0_u16..).zip(&mut self.channels) {
            channel.attend(&self.registry, &mut |heard| {
                any = true;
                match heard {
                    Heard::Opened => self.quorum.connected(now, number),
                    Heard::Closed => self.quorum.disconnected(now, number),
                    Heard::Message(bytes) => self.quorum.handle(now, number, bytes),
                }
            });
        }
        any
    }

    /// Does what the machines want done; whether there was anything.
    fn pump(&mut self, now: Now) -> bool {
        let mut any = false;
        loop {
            if let Some(output) = self.quorum.poll(now) {
                self.perform(now, output);
            } else if let Some(output) = self.sealing.poll() {
                self.perform_for_keys(now, output);
            } else if let Some(sealed) = self.lines.next_to_open(|bytes| self.sealing.has_room(bytes)) {
                let Sealed { entry, header, ciphertext, .. } = sealed;
                let body = Some(&ciphertext[..]);
                self.sealing.open(now, Delivered { index: entry.sn, header: &header, body, attachments: &[] });
            } else if !self.hand_over(now) {
                break;
            }
            any = true;
        }
        self.watch_credential();
        self.store();
        any
    }

    /// Gives readers what is ready for them; whether more may come because of that.
    fn hand_over(&mut self, now: Now) -> bool {
        self.lines.advance();
        let is_behind = self.lines.is_behind();
        self.quorum.hold(now, is_behind);
        std::mem::replace(&mut self.behind, is_behind) && !is_behind
    }

    fn perform(&mut self, now: Now, output: quorum::Output) {
        match output {
            quorum::Output::Send { broker, request } => {
                self.store();
                if let Some(channel) = self.channels.get_mut(usize::from(broker)) {
                    // What a closed channel does not take, the machine sends again when it opens.
                    channel.send(&request);
                }
            }
            quorum::Output::Standing(standing) => {
                self.sealing.stands(now, &standing);
                if self.lines.has_unopened() {
                    let _ = self.find_key();
                }
            }
            quorum::Output::Delivered(delivered) => self.deliver(now, *delivered),
            quorum::Output::Skipped { subscription, place, count } => {
                self.line_up(now, subscription, Item::Empty { place, count });
            }
            quorum::Output::Lost { subscription, place, count } => {
                self.line_up(now, subscription, Item::Lost { place, count });
            }
            quorum::Output::Advertised { advertisement, scope, text } => {
                let state::Advertisement { client, sn, .. } = advertisement;
                self.advertised.put(Advertisement { scope, text, client, sn });
            }
            quorum::Output::Attach { sn, broker, attachment } => {
                let attachments = [(broker, attachment)];
                self.sealing.open(now, Delivered { index: sn, header: &[], body: None, attachments: &attachments });
            }
            quorum::Output::Outcome(token, outcome) => {
                self.wanted.remove(&token);
                if let Outcome::Executed { outcome, .. } = &outcome
                    && matches!(outcome.code, state::Code::Unregistered | state::Code::Revoked)
                {
                    self.lines.close(&self.expired().unwrap_or_else(credential::ended));
                }
                if !self.findings.ended(token, &outcome, self.newest) {
                    self.finish(token, Done::Outcome(outcome));
                }
            }
            quorum::Output::Subscribed { token, subscription } => {
                self.wanted.remove(&token);
                if self.forgotten.remove(&token) {
                    // Nobody would read what is lined up for it.
                    self.quorum.leave(now, subscription);
                } else {
                    let inbox = self.lines.begin(subscription);
                    self.done.insert(token, Done::Subscribed(inbox));
                }
            }
            quorum::Output::Read(token, answer) => self.finish(token, Done::Read(answer)),
            quorum::Output::Receipt(token, receipt) => self.finish(token, Done::Receipt(receipt)),
            quorum::Output::Status(token, said) => self.finish(token, Done::Status(said)),
            quorum::Output::Proofs(token, proofs) => self.finish(token, Done::Proofs(proofs)),
            quorum::Output::Store(record) => self.unstored = Some(record),
            quorum::Output::Notice(notice) => self.notice(notice),
        }
    }

    fn perform_for_keys(&mut self, now: Now, output: keys::Output) {
        match output {
            keys::Output::Opened { index, bodies, .. } => self.settle(index, bodies),
            keys::Output::Fetch { id, what } => {
                if let Fetch::ShareProofs { index } = what {
                    // If the machine is full, the keys ask again when their patience ends.
                    let _ = self.quorum.shares(now, index, true);
                }
                self.sealing.fetched(now, id);
            }
            keys::Output::Notice(notice) => self.findings.by_keys(&notice),
            _ => {}
        }
    }

    fn finish(&mut self, token: Token, done: Done) {
        if !self.forgotten.remove(&token) {
            self.done.insert(token, done);
        }
    }

    fn deliver(&mut self, now: Now, delivered: quorum::Delivered) {
        let quorum::Delivered { subscription, place, entry, publication } = delivered;
        if !self.lines.is_read(subscription) {
            return;
        }
        self.newest = self.newest.max(entry.sn);
        let entry = Box::new(entry);
        match publication.body {
            Body::Sealed(_) if self.seals() => {
                if !self.lines.has_unopened() {
                    // Until it is known, it is looked for again now and then.
                    let _ = self.find_key();
                }
                if let Some(sealed) = sealed(&entry, publication) {
                    self.lines.put_sealed(subscription, place, sealed);
                }
                self.look_back(now);
            }
            body => {
                let item = match Content::of(body) {
                    Some(content) => Item::Publication { place, entry, associated: publication.associated, content },
                    // Without keys nothing sealed is ever opened.
                    None => Item::Empty { place, count: 1 },
                };
                self.line_up(now, subscription, item);
            }
        }
    }

    fn line_up(&mut self, now: Now, subscription: u64, item: Item) {
        self.lines.put(subscription, item);
        self.look_back(now);
    }

    /// Stops what comes if readers or keys have enough.
    fn look_back(&mut self, now: Now) {
        if !self.behind && self.lines.is_behind() {
            self.behind = true;
            self.quorum.hold(now, true);
        }
    }

    /// A sealed publication opened, or is ⊥.
    fn settle(&mut self, sn: u64, bodies: Option<Vec<Vec<u8>>>) {
        if let Some(reading) = self.reads.get_mut(&sn) {
            reading.opened = Some(bodies.clone());
        }
        self.lines.settle(sn, bodies.as_ref());
    }

    /// Takes the threshold key into use, if it is known by now.
    fn find_key(&mut self) -> std::result::Result<(), SendError> {
        let Sealing::Waiting = self.sealing else { return Ok(()) };
        let standing = self.quorum.standing().cloned().ok_or(SendError::NotReady)?;
        let key = self.look_for_key().ok_or(SendError::NotReady)?;
        match Sealing::of(&self.cluster, &key, self.quorum.client().0, &standing) {
            Ok(sealing) => {
                self.sealing = sealing;
                Ok(())
            }
            Err(e) => {
                self.fail(e);
                Err(SendError::NotReady)
            }
        }
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Unregistered => self.nobody_vouches = true,
            Notice::NotRegistered(outcome) => self.not_registered = super::done(&outcome).err(),
            Notice::RolledBack { seen, height } => {
                self.fail(rolled_back(seen, height));
            }
            Notice::Misbehaved { .. } | Notice::Evidence { .. } => self.findings.by_order(&notice),
        }
    }

    /// Whether all evidence that is to be brought before the brokers has been.
    pub(super) fn has_accused(&self) -> bool {
        self.findings.has_accused()
    }

    fn store(&mut self) {
        if let Some(record) = self.unstored.take()
            && let Err(e) = self.record.keep(&record)
        {
            self.fail(Error::system("keeping what this client knows", &e));
        }
    }

    /// Tells the machine what readers have taken, so that a restarted program goes on there.
    fn mark(&mut self, now: Now) {
        for (subscription, place, sn) in self.lines.taken() {
            self.quorum.taken(now, subscription, place, sn);
        }
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
            format!("{here} of {n} brokers are there, but {needed} did not say the same in {patience:?}"),
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
    let header = Header { client: entry.client.0, number: entry.number, envelope: publication.envelope() }.to_bytes();
    let Body::Sealed(ciphertext) = publication.body else { return None };
    Some(Sealed { entry: Box::new(entry.clone()), associated: publication.associated, header, ciphertext })
}

/// How often brokers that had no key are asked again whether they have one now.
const ASK_AGAIN: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
