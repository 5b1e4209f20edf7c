//! Brokers: a channel to each, and what must outlive a crash.
//!
//! ```text
//! channels open ─▶ f + 1 brokers say where the order is, and that they know us ─▶ the transport is up, and keys begin
//! ```

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mio::Registry;
use sealcast_broker::cluster_file::ClusterFile;
use sealcast_broker::operation::Registration;
use sealcast_client::{self as client, Cargo, Config, Done, Handle, Notice, Standing};
use sealcast_crypto::signature::OriginKey;
use sealcast_delivery::{Batch, Delivery, Token};
use sealcast_keys::Keys;
use sealcast_wire::{Address, Now};

use super::{Fault, Listening, Shell, Transport};
use crate::brokers::{self, ClientKey, Evidence, FRAME_OPERATIONS, Findings, Record};
use crate::code::Code;
use crate::error::{Error, Result};
use crate::group::{Group, lock};
use crate::io::channel::{Channel, Heard};
use crate::session::driver::AnyCore;

/// What is needed to reach brokers.
pub(in crate::session) struct Reach {
    pub(in crate::session) cluster: Arc<ClusterFile>,
    pub(in crate::session) key: ClientKey,
    pub(in crate::session) registrations: Vec<Registration>,
    pub(in crate::session) cargo: Cargo,
}

/// What can be asked of brokers beside what every transport does.
#[derive(Clone)]
pub(in crate::session) struct Brokers(Arc<Mutex<Through>>);

struct Through {
    cluster: Arc<ClusterFile>,
    handle: Handle,
    channels: Vec<Channel>,
    registry: Registry,
    record: Record,
    /// Publications are sealed under the brokers' key.
    seals: bool,
    trouble: Option<Error>,
    findings: Findings,
    /// An accusation under way.
    accusation: Option<Token>,
}

/// A client of these brokers.
pub(super) fn open(reach: Reach, now: Now, registry: &Registry) -> Result<Transport> {
    let Reach { cluster, key, registrations, cargo } = reach;
    let (key, record) = key.into_parts();
    let config = Config {
        genesis: cluster.genesis.clone(),
        key: key.clone(),
        registrations,
        frame_operations: FRAME_OPERATIONS,
    };
    let seals = cargo == Cargo::Messages { sealed: true };
    let last = record.last();
    let opened = client::Transport::open(now, config, last.as_deref(), cargo, Some(cluster.clone()), false);
    let (delivery, handle) =
        opened.map_err(|_| Error::new(Code::Content, "what was kept of this client of the brokers is damaged"))?;
    let through = Through {
        handle,
        channels: channels(&cluster, &key),
        findings: Findings::new(true),
        cluster,
        registry: registry.try_clone().map_err(|e| Error::system("waiting for sockets", &e))?,
        record,
        seals,
        trouble: None,
        accusation: None,
    };
    let brokers = Brokers(Arc::new(Mutex::new(through)));
    let shell: Box<dyn Shell> = Box::new(brokers.clone());
    Ok(Transport { delivery, shell: Box::new(|_| (shell, None)), brokers: Some(brokers) })
}

impl Brokers {
    /// What is known of them.
    pub(in crate::session) fn info(&self) -> BrokersInfo {
        lock(&self.0).info()
    }

    /// Evidence of misbehaviour since the last call.
    pub(in crate::session) fn evidence(&self) -> Vec<Evidence> {
        lock(&self.0).findings.take()
    }
}

impl Shell for Brokers {
    fn listen(&mut self, _registry: &Registry) -> Result<Option<Listening>> {
        Ok(None)
    }

    fn receive(&mut self, now: Now, core: &mut AnyCore) -> std::result::Result<bool, Fault> {
        let mut through = lock(&self.0);
        let any = through.attend(now, core.group_mut()) | through.judge(now);
        through.trouble.clone().map_or(Ok(any), |why| Err(Fault::Ended { why, any }))
    }

    /// Queues requests for the broker that the batch names.
    fn send(&mut self, batch: &Batch) {
        let Some(Address::Node(broker)) = batch.to else { return };
        if let Some(channel) = lock(&self.0).channels.get_mut(broker as usize) {
            // What a closed channel does not take, the machine sends again when it opens.
            batch.iter().for_each(|request| {
                channel.send(request);
            });
        }
    }

    fn flush(&mut self) {
        for channel in &mut lock(&self.0).channels {
            // A channel closed by this tells when it is next attended.
            channel.flush();
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let next = lock(&self.0).channels.iter().filter_map(Channel::timeout).min();
        next.map(|at| at.saturating_duration_since(Instant::now()))
    }

    fn woken(&mut self, token: mio::Token) {
        if let Some(channel) = lock(&self.0).channels.get_mut(token.0) {
            channel.woken();
        }
    }

    fn keep(&mut self, record: &[u8]) -> std::io::Result<bool> {
        lock(&self.0).record.keep(record).map(|()| true)
    }

    fn noticed(&mut self, notice: &sealcast_keys::Notice) {
        lock(&self.0).findings.by_keys(notice);
    }

    /// All that is to be brought before the brokers has been.
    fn is_settled(&self) -> bool {
        let through = lock(&self.0);
        through.findings.has_accused() && through.handle.is_settled()
    }

    fn late(&self, patience: Duration) -> Option<Error> {
        lock(&self.0).late(patience)
    }

    /// Ends all channels; what is queued is sent as far as the kernel takes it.
    fn end(&mut self) {
        let mut through = lock(&self.0);
        // What the highest block was is known again from the brokers, but for what this protects from.
        let record = through.handle.record();
        let _ = through.record.keep(&record);
        through.channels.iter_mut().for_each(Channel::end);
    }
}

impl Through {
    /// Reads and writes what can be without waiting; whether anything came.
    fn attend(&mut self, now: Now, group: &mut Group<Box<dyn Keys>, Box<dyn Delivery>>) -> bool {
        let mut any = false;
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
        any
    }

    /// Takes in what the machine found out about brokers, and brings before them what the keys found out about publishers;
    /// whether there is something to send for it.
    fn judge(&mut self, now: Now) -> bool {
        while let Some(notice) = self.handle.notice() {
            if let Notice::RolledBack { seen, height } = &notice {
                self.trouble.get_or_insert(brokers::rolled_back(*seen, *height));
            }
            if notice == Notice::NotVouched {
                self.trouble.get_or_insert(brokers::ended());
            }
            self.findings.by_order(&notice);
        }
        if let Some(Err(code)) = self.handle.group_status() {
            self.trouble.get_or_insert(brokers::refused(code.into()));
        }
        if let Some(token) = self.accusation
            && let Some(Done::Outcome(outcome)) = self.handle.done(token)
        {
            self.accusation = None;
            let _ = self.findings.ended(token, &outcome, self.handle.newest());
        }
        let (handle, accusation) = (&self.handle, &mut self.accusation);
        self.findings.bring(|operation| handle.submit(now, operation).inspect(|token| *accusation = Some(*token)))
    }

    fn late(&self, patience: Duration) -> Option<Error> {
        let handle = &self.handle;
        match handle.standing() {
            Some(it) if it.registered && self.seals && handle.key().is_none() => {
                let error = Error::new(Code::NotReady, "the brokers have no threshold key yet");
                Some(error.with_hint("sealcast brokers status; the key ceremony needs 2f+1 running brokers"))
            }
            Some(it) if it.registered && handle.is_up() => None,
            Some(it) if !it.registered => {
                let what = "the brokers do not accept our certificate: expired, or not of its issuer";
                let error = Error::new(Code::Denied, what);
                Some(error.with_hint("sealcast id show; the cluster file names the issuers"))
            }
            Some(_) | None => Some(brokers::no_quorum(&self.cluster, &self.channels, patience)),
        }
    }

    fn info(&self) -> BrokersInfo {
        BrokersInfo {
            name: self.cluster.genesis.name.clone(),
            cluster: self.cluster.cluster().0,
            client: self.handle.client().0,
            answering: self.channels.iter().filter(|it| it.is_open()).count(),
            brokers: self.channels.len(),
            standing: self.handle.standing(),
        }
    }
}

/// Where a session through brokers stands.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub standing: Option<Standing>,
}

fn channels(cluster: &ClusterFile, key: &Arc<OriginKey>) -> Vec<Channel> {
    let places = cluster.broker_keys().into_iter().zip(&cluster.addresses).enumerate();
    places.map(|(n, (broker, at))| Channel::new(mio::Token(n), at.gateway.clone(), broker, key.clone())).collect()
}
