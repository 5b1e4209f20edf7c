//! Brokers: a channel to each, and what must outlive a crash.
//!
//! ```text
//! channels open ─▶ f + 1 brokers say where the order is, and that they know us ─▶ the transport is up, and keys begin
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use mio::Registry;
use sealcast_broker::cluster_file::{Addresses, ClusterFile, VouchedKey};
use sealcast_broker::operation::{Operation, Registration};
use sealcast_broker::protocol::Status;
use sealcast_broker::state::Code as Became;
use sealcast_client::{self as client, Config, Done, Handle, Notice, OrderStatus, PayloadKind};
use sealcast_crypto::signature::OriginKey;
use sealcast_delivery::{Batch, Delivery, SendError, Token};
use sealcast_keys::Keys;
use sealcast_wire::{Address, Now, Utc};

use super::{Carrier, Fault, Listening, Shell, Transport};
use crate::brokers::{self, BrokerStatus, ClientKey, ClientStatus, EvidenceStore, Inbox, Record};
use crate::code::Code;
use crate::error::{Error, Result};
use crate::group::{Group, lock};
use crate::io::channel::{Channel, Heard};
use crate::refusals::refused;
use crate::remedy::Remedy;
use crate::session::driver::AnyCore;

/// What is needed to reach brokers.
pub(in crate::session) struct Reach {
    pub(in crate::session) cluster: Arc<ClusterFile>,
    pub(in crate::session) key: ClientKey,
    pub(in crate::session) registrations: Vec<Registration>,
    pub(in crate::session) payload_kind: PayloadKind,
    /// Operations that one signature vouches for, at most.
    pub(in crate::session) batch_operations: usize,
    /// Whether evidence against publishers is brought before the brokers (E4).
    pub(in crate::session) accuse: bool,
    /// Whether subscriptions of runs before this one go on.
    pub(in crate::session) resumes: bool,
}

/// The shell around a client of brokers. Clones share it.
#[derive(Clone)]
pub(crate) struct BrokersShell(Arc<Mutex<BrokerLink>>);

/// What is inside.
pub(crate) struct BrokerLink {
    pub(crate) cluster: Arc<ClusterFile>,
    /// What can be asked of brokers beside what every transport does.
    pub(crate) handle: Handle,
    pub(crate) payload_kind: PayloadKind,
    /// What says again who this is.
    pub(crate) registrations: Vec<Registration>,
    pub(crate) evidence_store: EvidenceStore,
    status: ClientStatus,
    channels: Vec<Channel>,
    registry: Registry,
    record: Record,
    /// Queues before readers, by subscription.
    inboxes: BTreeMap<u64, Arc<Inbox>>,
    /// An accusation under way.
    accusation: Option<Token>,
    /// When the brokers were last asked for their key.
    asked_for_key: Instant,
    /// Why nothing more comes for the session's own subscriptions.
    trouble: Option<Error>,
    /// Why nothing more can be done.
    failure: Option<Error>,
    /// Something came since the last [`Shell::hand_over`].
    heard: bool,
    /// What the handle had counted then.
    changes: u64,
    /// A channel was closed by writing to it, and nobody was told yet.
    has_lost_channel: bool,
}

/// A client of these brokers.
pub(super) fn open(reach: Reach, now: Now, registry: &Registry) -> Result<Transport> {
    let Reach { cluster, key, registrations, payload_kind, batch_operations, accuse, resumes } = reach;
    let (key, record) = key.into_parts();
    let config = Config {
        genesis: cluster.genesis.clone(),
        key: key.clone(),
        registrations: registrations.clone(),
        batch_operations,
    };
    let last = record.last();
    let opened =
        client::Transport::open(now, config, last.as_deref(), payload_kind.clone(), Some(cluster.clone()), resumes);
    let (delivery, handle) =
        opened.map_err(|_| Error::new(Code::Content, "what was kept of this client of the brokers is damaged"))?;
    let link = BrokerLink {
        handle,
        payload_kind,
        status: ClientStatus::new(&registrations),
        registrations,
        evidence_store: EvidenceStore::new(accuse),
        channels: channels(&cluster, &key),
        cluster,
        registry: registry.try_clone().map_err(|e| Error::system("waiting for sockets", &e))?,
        record,
        inboxes: BTreeMap::new(),
        accusation: None,
        asked_for_key: Instant::now(),
        trouble: None,
        failure: None,
        heard: false,
        changes: 0,
        has_lost_channel: false,
    };
    let brokers = BrokersShell(Arc::new(Mutex::new(link)));
    let shell: Box<dyn Shell> = Box::new(brokers.clone());
    Ok(Transport { delivery, shell: Box::new(|_| (shell, None)), brokers: Some(brokers) })
}

impl BrokersShell {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BrokerLink> {
        lock(&self.0)
    }
}

impl Shell for BrokersShell {
    fn listen(&mut self, _registry: &Registry) -> Result<Option<Listening>> {
        Ok(None)
    }

    fn receive(&mut self, now: Now, core: &mut AnyCore) -> std::result::Result<bool, Fault> {
        let mut link = self.lock();
        let any = link.attend(now, core.group_mut());
        link.trouble.clone().map_or(Ok(any), |why| Err(Fault::Ended { why, any }))
    }

    /// Queues requests for the broker that the batch names.
    fn send(&mut self, batch: &Batch, _published: Option<usize>) {
        let Some(Address::Node(broker)) = batch.to else { return };
        if let Some(channel) = self.lock().channels.get_mut(broker as usize) {
            // What a closed channel does not take, the machine sends again when it opens.
            batch.iter().for_each(|request| {
                channel.send(request);
            });
        }
    }

    fn flush(&mut self) {
        let mut link = self.lock();
        let BrokerLink { channels, has_lost_channel, .. } = &mut *link;
        for channel in channels {
            *has_lost_channel |= !channel.flush();
        }
    }

    fn hand_over(&mut self, now: Now) -> bool {
        self.lock().hand_over(now)
    }

    fn timeout(&self) -> Option<Duration> {
        let link = self.lock();
        if link.has_lost_channel {
            return Some(Duration::ZERO);
        }
        let next = link.channels.iter().filter_map(Channel::timeout).min();
        next.map(|at| at.saturating_duration_since(Instant::now()))
    }

    fn woken(&mut self, token: mio::Token) {
        if let Some(channel) = self.lock().channels.get_mut(token.0) {
            channel.woken();
        }
    }

    fn keep(&mut self, record: &[u8]) -> std::io::Result<bool> {
        let mut link = self.lock();
        let kept = link.record.keep(record);
        if let Err(e) = &kept {
            link.fail(Error::system("keeping what this client knows", e));
        }
        kept.map(|()| true)
    }

    fn noticed(&mut self, notice: &sealcast_keys::Notice) {
        let mut link = self.lock();
        link.evidence_store.by_keys(notice);
        link.heard = true;
    }

    /// All that is to be brought before the brokers has been.
    fn is_settled(&self) -> bool {
        let link = self.lock();
        link.evidence_store.has_accused() && link.handle.is_settled()
    }

    fn late(&self, timeout: Duration) -> Option<Error> {
        self.lock().late(timeout)
    }

    /// Ends all channels; what is queued is sent as far as the kernel takes it.
    fn carrier(&self) -> Option<Carrier> {
        None
    }

    fn end(&mut self, now: Now) {
        let mut link = self.lock();
        link.mark(now);
        // What the highest block was is known again from the brokers, but for what this protects from.
        let record = link.handle.record();
        let _ = link.record.keep(&record);
        link.channels.iter_mut().for_each(Channel::end);
        link.fail(Error::closed());
    }
}

/// What the driver does.
impl BrokerLink {
    /// Reads and writes what can be without waiting; whether anything came.
    fn attend(&mut self, now: Now, group: &mut Group<Box<dyn Keys>, Box<dyn Delivery>>) -> bool {
        let mut any = false;
        self.has_lost_channel = false;
        for (broker, channel) in (0_u32..).zip(&mut self.channels) {
            let peer = Address::Node(broker);
            channel.attend(&self.registry, &mut |heard| {
                any = true;
                match heard {
                    Heard::Opened => group.connected(now, peer),
                    Heard::Closed => group.disconnected(now, peer),
                    Heard::Message(bytes) => group.handle_message(now, peer, bytes),
                }
            });
        }
        self.heard |= any;
        any
    }

    /// Gives readers what is ready for them, and takes in what the machine has found out; whether there was anything.
    fn hand_over(&mut self, now: Now) -> bool {
        self.mark(now);
        for (subscription, inbox) in &self.inboxes {
            inbox.extend(self.handle.hand_over(*subscription));
        }
        let changes = self.handle.changes();
        let mut news = std::mem::take(&mut self.heard) | (std::mem::replace(&mut self.changes, changes) != changes);
        if news {
            self.judge(now);
        }
        if self.handle.is_behind() {
            for inbox in self.inboxes.values() {
                news |= inbox.wants_capacity();
            }
        }
        news
    }

    /// Tells the machine what readers have taken, so that a restarted program goes on there.
    fn mark(&mut self, now: Now) {
        for (subscription, inbox) in &self.inboxes {
            if let Some(took) = inbox.took() {
                self.handle.took(now, *subscription, &took);
            }
        }
    }

    /// Takes in what the machine found out about brokers and about us, and brings before the brokers what the keys found out
    /// about publishers.
    fn judge(&mut self, now: Now) {
        while let Some(notice) = self.handle.notice() {
            self.take_notice(&notice);
        }
        if self.is_registered() {
            self.status.registered();
        }
        if let Some(why) = self.expired().or_else(|| self.dismissed()) {
            self.close_inboxes(&why);
        }
        if let Some(Err(code)) = self.handle.group_status() {
            self.trouble.get_or_insert(refused(code.into()));
        }
        if let Some(token) = self.accusation
            && let Some(Done::Outcome(outcome)) = self.handle.done(token)
        {
            self.accusation = None;
            let _ = self.evidence_store.ended(token, &outcome, self.handle.newest());
        }
        let (handle, accusation) = (&self.handle, &mut self.accusation);
        let submit = |operation| handle.submit(now, operation).inspect(|token| *accusation = Some(*token));
        self.evidence_store.bring(submit);
    }

    pub(crate) fn take_notice(&mut self, notice: &Notice) {
        let at = self.handle.at();
        self.status.noticed(notice, at);
        match notice {
            Notice::RolledBack { seen, height } => {
                let why = brokers::rolled_back(*seen, *height);
                self.trouble.get_or_insert(why.clone());
                self.fail(why);
            }
            Notice::NotVouched => {
                self.trouble.get_or_insert(brokers::ended());
                self.close_inboxes(&self.status.not_vouched(at));
            }
            Notice::Unregistered | Notice::NotRegistered(..) | Notice::Misbehaved { .. } | Notice::Evidence(_) => {}
        }
        self.evidence_store.by_order(notice);
    }

    /// Why brokers do nothing for us any more, if they refused an operation for that.
    fn dismissed(&self) -> Option<Error> {
        match self.handle.dismissed()? {
            Became::Unregistered => Some(brokers::ended()),
            code => Some(refused(code.into())),
        }
    }

    /// Nothing more can be done.
    fn fail(&mut self, why: Error) {
        self.close_inboxes(&why);
        self.failure.get_or_insert(why);
        self.heard = true;
    }

    fn close_inboxes(&self, why: &Error) {
        self.inboxes.values().for_each(|inbox| inbox.close(why.clone()));
    }
}

/// What the handle to brokers does.
impl BrokerLink {
    /// A subscription has a reader from now on.
    pub(crate) fn read(&mut self, subscription: u64) -> Arc<Inbox> {
        let inbox = Arc::new(Inbox::new(subscription));
        if let Some(why) = self.failure.clone().or_else(|| self.excluded()) {
            inbox.close(why);
        }
        self.inboxes.insert(subscription, inbox.clone());
        inbox
    }

    /// A subscription has no reader any more.
    pub(crate) fn leave(&mut self, now: Now, subscription: u64) {
        self.mark(now);
        self.inboxes.remove(&subscription);
        self.handle.leave(now, subscription);
    }

    /// Has an operation ordered.
    pub(crate) fn submit(&mut self, now: Now, operation: Operation) -> std::result::Result<Token, SendError> {
        self.status.submits(&operation);
        self.handle.submit(now, operation)
    }

    /// The threshold key, once it is known. Brokers name it when they welcome a client; one that came before asks for it.
    pub(crate) fn look_for_key(&mut self, now: Now) -> Option<VouchedKey> {
        let order_status = self.handle.order_status();
        let said = order_status.iter().flat_map(|it| it.keys.iter().map(|(broker, key)| (*broker, key)));
        let key = self.cluster.key.clone().or_else(|| self.cluster.agreed_key(said));
        if key.is_none() && order_status.is_some() && self.asked_for_key.elapsed() > REQUEST_AGAIN_AFTER {
            self.asked_for_key = Instant::now();
            self.handle.look_for_key(now);
        }
        key
    }

    /// Whether publications are sealed under the brokers' key.
    pub(crate) fn seals(&self) -> bool {
        self.payload_kind == PayloadKind::Messages { sealed: true }
    }

    /// Why nothing more can be done, if so.
    pub(crate) fn failed(&self) -> Option<Error> {
        self.failure.clone()
    }

    /// Whether f + 1 brokers know us, and somebody vouches for us there.
    pub(crate) fn is_registered(&self) -> bool {
        self.handle.order_status().is_some_and(|it| it.registered)
    }

    /// Why the client cannot become known, if so.
    pub(crate) fn unregistered(&self) -> Option<Error> {
        let is_unknown = self.handle.order_status().is_some_and(|it| !it.registered);
        self.status.unregistered(self.handle.at(), is_unknown, self.handle.is_registering())
    }

    /// The last second of the time of the last of our credentials, once little of it is left.
    pub(crate) fn ends_soon(&self) -> Option<Utc> {
        self.status.ends_soon(self.handle.at()?)
    }

    /// That the time of all our credentials is over, if it was at the newest block.
    pub(crate) fn expired(&self) -> Option<Error> {
        self.status.expired(self.handle.at()?)
    }

    /// Why nothing comes any more for this client, if so.
    pub(crate) fn excluded(&self) -> Option<Error> {
        self.status.excluded(self.handle.at())
    }

    /// That more than f brokers have lied to this client.
    pub(crate) fn misled(&self) -> Option<Error> {
        self.evidence_store.misled(self.channels.len(), self.cluster.faulty())
    }

    /// That fewer brokers are connected than the order needs: which ones are not, and why.
    pub(crate) fn cut_off(&self) -> Option<Error> {
        let here = self.channels.iter().filter(|it| it.is_open()).count();
        let is_cut_off = here <= 2 * self.cluster.faulty();
        is_cut_off.then(|| self.no_quorum(Duration::ZERO))
    }

    /// Too few brokers answer: which ones do not, and why.
    pub(crate) fn no_quorum(&self, timeout: Duration) -> Error {
        brokers::no_quorum(&self.cluster, &self.channels, timeout)
    }

    /// Where the brokers are, of which these said it.
    pub(crate) fn stands(&self, said: &BTreeMap<u16, Status>) -> Vec<BrokerStatus> {
        let places = (0_u16..).zip(self.channels.iter().zip(&self.cluster.addresses));
        let stand = |(broker, (channel, at)): (u16, (&Channel, &Addresses))| BrokerStatus {
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

    fn late(&self, timeout: Duration) -> Option<Error> {
        let handle = &self.handle;
        match handle.order_status() {
            Some(it) if it.registered && self.seals() && handle.key().is_none() => {
                let error = Error::new(Code::NotReady, "the brokers have no threshold key yet");
                Some(error.with_remedy(Remedy::AwaitKey))
            }
            Some(it) if it.registered && handle.is_up() => None,
            Some(it) if !it.registered => {
                let what = "the brokers do not accept our certificate: expired, or not of its issuer";
                let error = Error::new(Code::Denied, what);
                Some(error.with_remedy(Remedy::CheckIssuer))
            }
            Some(_) | None => Some(self.no_quorum(timeout)),
        }
    }

    pub(in crate::session) fn info(&self) -> BrokersInfo {
        BrokersInfo {
            name: self.cluster.genesis.name.clone(),
            cluster: self.cluster.cluster().0,
            client: self.handle.client().0,
            answering: self.channels.iter().filter(|it| it.is_open()).count(),
            brokers: self.channels.len(),
            order_status: self.handle.order_status(),
        }
    }
}

/// Where a session through brokers stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokersInfo {
    /// The cluster's name.
    pub name: String,
    /// Its id.
    pub cluster: [u8; 32],
    /// Who we are to it.
    pub client: [u8; 32],
    /// Brokers with whom a channel is open, of so many.
    pub answering: usize,
    /// All of them.
    pub brokers: usize,
    /// Where the order is: height, policy, key epoch; once f + 1 brokers have said so.
    pub order_status: Option<OrderStatus>,
}

fn channels(cluster: &ClusterFile, key: &Arc<OriginKey>) -> Vec<Channel> {
    let places = cluster.broker_keys().into_iter().zip(&cluster.addresses).enumerate();
    places.map(|(n, (broker, at))| Channel::new(mio::Token(n), at.gateway.clone(), broker, key.clone())).collect()
}

/// How often brokers that had no key are asked again whether they have one now.
const REQUEST_AGAIN_AFTER: Duration = Duration::from_millis(200);
