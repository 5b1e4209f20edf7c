//! The road through brokers: a channel to each, what must outlive a crash, and the keys that begin when the brokers know us.
//!
//! ```text
//! channels open ─▶ f + 1 brokers say where the order is, and that they know us ─▶ keys begin
//!                       keys=plain: at once · threshold: once the brokers' key is known · contributory: once the group's
//!                       place is subscribed to, so that nothing is said which cannot be heard
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::Registry;
use sealcast_broker::cluster_file::{ClusterFile, VouchedKey};
use sealcast_broker::operation::Registration;
use sealcast_client::{self as client, Cargo, Config, Notice, Standing};
use sealcast_crypto::signature::OriginKey;
use sealcast_delivery::{Batch, SendError};
use sealcast_keys::Keys;
use sealcast_wire::{Address, Now};

use super::schemes;
use crate::brokers::{self, ClientKey, Evidence, FRAME_OPERATIONS, Findings, Record};
use crate::code::Code;
use crate::error::{Error, Result};
use crate::io::channel::{Channel, Heard};
use crate::url;

/// What is needed to reach brokers.
pub(super) struct Reach {
    pub(super) cluster: ClusterFile,
    pub(super) key: ClientKey,
    pub(super) registrations: Vec<Registration>,
    pub(super) cargo: Cargo,
    pub(super) later: Later,
}

/// The keys that begin when the brokers know us.
pub(super) enum Later {
    Plain(String),
    Threshold(String),
    Contributory(Box<dyn FnOnce(Now) -> Result<Box<dyn Keys>> + Send>),
}

/// See the module.
pub(super) struct Through {
    cluster: Arc<ClusterFile>,
    channels: Vec<Channel>,
    registry: Registry,
    record: Record,
    later: Option<Later>,
    asked_for_key: Instant,
    trouble: Option<Error>,
    findings: Findings,
}

impl Through {
    /// The road, and the machine that goes it.
    pub(super) fn open(reach: Reach, now: Now, registry: &Registry) -> Result<(Through, client::Way)> {
        let Reach { cluster, key, registrations, cargo, later } = reach;
        let (key, record) = key.into_parts();
        let config = Config {
            genesis: cluster.genesis.clone(),
            key: key.clone(),
            registrations,
            frame_operations: FRAME_OPERATIONS,
        };
        let way = client::Way::new(now, config, record.last().as_deref(), cargo)
            .map_err(|_| Error::new(Code::Content, "what was kept of this client of the brokers is damaged"))?;
        let through = Through {
            channels: channels(&cluster, &key),
            findings: Findings::new(true),
            cluster: Arc::new(cluster),
            registry: registry.try_clone().map_err(|e| Error::system("waiting for sockets", &e))?,
            record,
            later: Some(later),
            asked_for_key: Instant::now(),
            trouble: None,
        };
        Ok((through, way))
    }

    /// The system says that something happened on this channel.
    pub(super) fn woken(&mut self, token: mio::Token) {
        if let Some(channel) = self.channels.get_mut(token.0) {
            channel.woken();
        }
    }

    /// Reads and writes what can be without waiting; whether anything came.
    pub(super) fn attend(&mut self, now: Now, way: &mut client::Way) -> bool {
        let mut any = false;
        for (broker, channel) in (0_u16..).zip(&mut self.channels) {
            channel.attend(&self.registry, &mut |heard| {
                any = true;
                match heard {
                    Heard::Opened => way.connected(now, broker),
                    Heard::Closed => way.disconnected(now, broker),
                    Heard::Message(bytes) => way.heard(now, broker, bytes),
                }
            });
        }
        any
    }

    /// Queues requests for the broker that the batch names.
    pub(super) fn send(&mut self, batch: &Batch) {
        let Some(Address::Node(broker)) = batch.to else { return };
        if let Some(channel) = self.channels.get_mut(broker as usize) {
            // What a closed channel does not take, the machine sends again when it opens.
            batch.iter().for_each(|request| {
                channel.send(request);
            });
        }
    }

    /// Hands what is queued to the kernel.
    pub(super) fn flush(&mut self) {
        for channel in &mut self.channels {
            // A channel closed by this tells when it is next attended.
            channel.flush();
        }
    }

    /// How long the driver may wait for sockets.
    pub(super) fn timeout(&self) -> Option<Duration> {
        let channels = self.channels.iter().filter_map(Channel::timeout).min();
        let channels = channels.map(|at| at.saturating_duration_since(Instant::now()));
        let waits = matches!(self.later, Some(Later::Threshold(_))).then_some(ASK_AGAIN);
        [channels, waits].into_iter().flatten().min()
    }

    /// Durable on return.
    pub(super) fn keep(&mut self, record: &[u8]) -> std::io::Result<()> {
        self.record.keep(record)
    }

    /// The keys, once their time has come.
    pub(super) fn begin(&mut self, now: Now, way: &mut client::Way) -> Result<Option<Box<dyn Keys>>> {
        let Some(standing) = way.standing().filter(|it| it.registered).cloned() else { return Ok(None) };
        match self.later.take() {
            None => Ok(None),
            Some(Later::Plain(name)) => schemes::plain(&name).map(Some),
            Some(Later::Threshold(name)) => match self.key(&standing) {
                Some(key) => schemes::threshold(&self.cluster, &key, &name, way.client().0, &standing).map(Some),
                None => {
                    self.later = Some(Later::Threshold(name));
                    if self.asked_for_key.elapsed() > ASK_AGAIN {
                        self.asked_for_key = Instant::now();
                        way.look_for_key(now);
                    }
                    Ok(None)
                }
            },
            Some(Later::Contributory(make)) => match way.group_stands() {
                Some(Ok(())) => make(now).map(Some),
                stands => {
                    self.later = Some(Later::Contributory(make));
                    if let Some(Err(code)) = stands {
                        self.trouble.get_or_insert(brokers::refused(code.into()));
                    }
                    Ok(None)
                }
            },
        }
    }

    /// What the keys found.
    pub(super) fn noticed(&mut self, notice: &sealcast_keys::Notice) {
        self.findings.by_keys(notice);
    }

    /// Whether all that is to be brought before the brokers has been.
    pub(super) fn has_accused(&self) -> bool {
        self.findings.has_accused()
    }

    /// Evidence of misbehaviour since the last call.
    pub(super) fn evidence(&mut self) -> Vec<Evidence> {
        self.findings.take()
    }

    /// Why nothing will come of it, if that is known.
    pub(super) fn trouble(&self) -> Option<Error> {
        self.trouble.clone()
    }

    /// Whether the keys have begun.
    pub(super) fn has_begun(&self) -> bool {
        self.later.is_none()
    }

    /// Why it takes so long.
    pub(super) fn late(&self, way: &client::Way, patience: Duration) -> Error {
        match way.standing() {
            None => brokers::no_quorum(&self.cluster, &self.channels, patience),
            Some(it) if !it.registered => {
                Error::new(Code::Denied, "the brokers do not accept our certificate: expired, or not of its issuer")
                    .with_hint("sealcast id show; the cluster file names the issuers")
            }
            Some(_) if matches!(self.later, Some(Later::Threshold(_))) => {
                Error::new(Code::NotReady, "the brokers have no threshold key yet")
                    .with_hint("sealcast brokers status; the key ceremony needs 2f+1 running brokers")
            }
            Some(_) => brokers::no_quorum(&self.cluster, &self.channels, patience),
        }
    }

    /// What is known of the brokers.
    pub(super) fn info(&self, way: &client::Way) -> BrokersInfo {
        BrokersInfo {
            name: self.cluster.genesis.name.clone(),
            cluster: self.cluster.cluster().0,
            client: way.client().0,
            answering: self.channels.iter().filter(|it| it.is_open()).count(),
            brokers: self.channels.len(),
            standing: way.standing().cloned(),
        }
    }

    /// Ends all channels; what is queued is sent as far as the kernel takes it.
    pub(super) fn end(&mut self, way: &client::Way) {
        // What the highest block was is known again from the brokers, but for what this protects from.
        let _ = self.record.keep(&way.record());
        self.channels.iter_mut().for_each(Channel::end);
    }

    fn key(&self, standing: &Standing) -> Option<VouchedKey> {
        let said = standing.keys.iter().map(|(broker, key)| (*broker, key));
        self.cluster.key.clone().or_else(|| self.cluster.agreed_key(said))
    }

    /// Takes in what the machine found out about brokers, and brings before them what the keys found out about publishers;
    /// whether there is something to send for it.
    pub(super) fn judge(&mut self, now: Now, way: &mut client::Way) -> bool {
        while let Some(notice) = way.poll_notice() {
            if let Notice::RolledBack { seen, height } = &notice {
                self.trouble.get_or_insert(brokers::rolled_back(*seen, *height));
            }
            if notice == Notice::NotVouched {
                self.trouble.get_or_insert(brokers::ended());
            }
            self.findings.by_order(&notice);
        }
        while let Some((token, outcome)) = way.poll_ended() {
            let _ = self.findings.ended(token, &outcome, way.newest());
        }
        self.findings.bring(|operation| way.submit(now, operation))
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

/// Of a URL's scheme, what publications hold.
pub(super) fn cargo(keys: url::Scheme, group: &str) -> Cargo {
    match keys {
        url::Scheme::Contributory => Cargo::Group(group.to_owned()),
        url::Scheme::Threshold => Cargo::Messages { sealed: true },
        url::Scheme::Plain => Cargo::Messages { sealed: false },
    }
}

/// Whether it will do later.
pub(super) fn passes(why: SendError) -> bool {
    matches!(why, SendError::Full | SendError::NotReady | SendError::Old | SendError::Retired)
}

fn channels(cluster: &ClusterFile, key: &Arc<OriginKey>) -> Vec<Channel> {
    let places = cluster.broker_keys().into_iter().zip(&cluster.addresses).enumerate();
    places.map(|(n, (broker, at))| Channel::new(mio::Token(n), at.gateway.clone(), broker, key.clone())).collect()
}

/// How often brokers that had no key are asked again whether they have one now.
const ASK_AGAIN: Duration = Duration::from_millis(200);
