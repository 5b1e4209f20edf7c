//! A session as the client of brokers that it is: what the handle to brokers does with the session's driver.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sealcast_broker::cluster_file::ClusterFile;
use sealcast_client::{Done, OperationOutcome, PayloadKind};
use sealcast_delivery::Token;
use sealcast_keys::Status;
use sealcast_wire::Now;

use super::driver::AnyCore;
use super::open::{Opening, start};
use super::parts::{Loaded, Parts};
use super::schemes;
use super::shared::Shared;
use super::transports::{BrokerLink, BrokersShell, Reach};
use super::{Inner, Session};
use crate::brokers::{self, Brokers, Evidence, Purpose};
use crate::code::Code;
use crate::config::Home;
use crate::error::{Error, Result};
use crate::group::{PublishError, Together, lock};
use crate::io::clock::{self, Clock};
use crate::remedy::Remedy;
use crate::url::{Scheme, TransportAddress, Url};

/// See the module.
#[derive(Clone)]
pub(crate) struct Driven {
    shared: Arc<Shared>,
    shell: BrokersShell,
}

impl Session {
    /// What brokers do beside carrying messages, for a session through them: reads, receipts, conditions on values, acts of
    /// administrators. It is the same client: what it subscribes to begins when it does, as all of the session's does.
    ///
    /// # Errors
    /// [`Code::Usage`] if the session goes through no brokers.
    pub fn brokers(&self) -> Result<Brokers> {
        self.handle(false)
    }

    /// The same for who uses nothing else of the session: it ends with the handle, and waits for nothing when that is dropped.
    ///
    /// # Errors
    /// As [`Session::brokers`].
    pub fn into_brokers(self) -> Result<Brokers> {
        self.handle(true)
    }

    /// Evidence of misbehaviour at brokers that came up since the last call (E4). What convicts a publisher was brought
    /// before the brokers meanwhile.
    pub fn evidence(&self) -> Vec<Evidence> {
        let brokers = self.inner.shared.brokers.as_ref();
        brokers.map(|it| it.lock().evidence_store.take()).unwrap_or_default()
    }

    fn handle(&self, is_own: bool) -> Result<Brokers> {
        let no_brokers = || Error::new(Code::Usage, format!("{} goes through no brokers", self.url()));
        let driven = Driven::of(&self.inner).ok_or_else(no_brokers)?;
        Ok(Brokers::of_session(self.clone(), driven, is_own))
    }
}

impl Opening {
    /// As a client of brokers by itself, in no group, for this purpose: the keys of its clients, and their subscriptions, are those
    /// of earlier runs. Without an identity it is nobody in particular, whom brokers tell little. [`Session::into_brokers`]
    /// makes a handle of it.
    pub fn as_client(mut self, purpose: Purpose) -> Opening {
        self.client = Some(purpose);
        self
    }

    /// A client of brokers: an issuer that they know must vouch for it, whoever holds the keys.
    pub(super) fn through_brokers(&self, url: &Url, home: &Home, clock: Clock) -> Result<Parts> {
        let TransportAddress::Quorum(path) = &url.address else { return Err(Error::closed()) };
        let cluster = Arc::new(brokers::load_named(path, &url.options)?);
        // A client by itself may be nobody in particular.
        let is_nobody = self.identity.is_none() && self.client.is_some();
        let who = if is_nobody { None } else { Some(self.load(url, home)?) };
        let member = match &who {
            Some(who) if self.client.is_none() => self.member(who, url, (home, &cluster), clock)?,
            _ => None,
        };
        let key = match who.as_ref().and_then(|it| it.kept.as_ref()) {
            Some(kept) => {
                let purpose = self.client.unwrap_or(Purpose::Session);
                brokers::ClientKey::of(home, &cluster.cluster(), &kept.holder(), purpose)?
            }
            None => brokers::ClientKey::fresh()?,
        };
        let mut registrations = Vec::new();
        if let Some(Loaded { held, kept }) = &who {
            let at = clock.now().utc.unwrap_or(clock::FLOOR);
            registrations = brokers::registrations(&cluster, held.as_deref(), kept.as_deref(), &key.client(), at);
        }
        if let Some(who) = who.as_ref().filter(|_| registrations.is_empty()) {
            let of =
                who.held.as_ref().map(|it| format!(", whose certificate is of {}", it.anchor().certificate().name()));
            let what = format!("no issuer of these brokers vouches for {}{}", who.name(), of.unwrap_or_default());
            let issuers = cluster.genesis.issuers.keys().cloned().collect();
            return Err(Error::new(Code::Denied, what).with_remedy(Remedy::ChooseIdentity { issuers }));
        }
        let payload_kind = match &member {
            // What a member of an MLS group missed is in the order.
            Some(member) => PayloadKind::Group { name: member.group.clone(), resumes: url.keys == Scheme::Mls },
            None => PayloadKind::Messages { sealed: url.is_sealed() },
        };
        let (batch_operations, accuse, resumes) = (brokers::BATCH_OPERATIONS, true, self.client.is_some());
        let reach = Reach { cluster, key, registrations, payload_kind, batch_operations, accuse, resumes };
        if let Some(member) = member {
            return Ok(Parts { reach: Some(reach), ..member });
        }
        let (group, control) = (url.options.group.clone().unwrap_or_default(), self.control.clone());
        Ok(Parts { group, control, ..Parts::of_client(who.map(|it| it.name()), reach)? })
    }
}

impl Opening {
    /// A member of a group that meets at these brokers; `None` if the keys are not members'.
    fn member(
        &self,
        who: &Loaded,
        url: &Url,
        (home, cluster): (&Home, &ClusterFile),
        clock: Clock,
    ) -> Result<Option<Parts>> {
        match url.keys {
            Scheme::Contributory => self.contributory(who, url, home, clock).map(Some),
            #[cfg(feature = "mls")]
            Scheme::Mls => {
                let order = hex::encode(cluster.cluster().0.first_chunk::<8>().unwrap_or(&[0; 8]));
                self.mls(who, url, Some((home, &order)), clock).map(Some)
            }
            // A URL of it does not parse.
            #[cfg(not(feature = "mls"))]
            Scheme::Mls => {
                let _ = cluster;
                Err(Error::closed())
            }
            Scheme::Plain | Scheme::Threshold | Scheme::Center => Ok(None),
        }
    }
}

impl Parts {
    /// Those of a client of brokers that is in no group.
    fn of_client(me: Option<String>, reach: Reach) -> Result<Parts> {
        let (me, group) = (me.unwrap_or_else(|| "client".to_owned()), String::new());
        let keys = match reach.payload_kind {
            PayloadKind::Messages { sealed: false } => schemes::plain(&me)?,
            PayloadKind::Messages { sealed: true } | PayloadKind::Group { .. } => {
                schemes::threshold(&reach.cluster, &me, reach.key.client().0)?
            }
        };
        Ok(Parts { keys, me, group, store: None, identity: None, rights: None, control: None, reach: Some(reach) })
    }
}

/// A session of a client of brokers that has its key already.
pub(crate) fn open_client(opening: brokers::Opening) -> Result<Session> {
    let brokers::Opening { cluster, key, registrations, keys, timeout, batch_operations, accuse } = opening;
    let payload_kind = PayloadKind::Messages { sealed: keys != Scheme::Plain };
    let reach = Reach { cluster, key, registrations, payload_kind, batch_operations, accuse, resumes: true };
    start(Url::of_brokers(keys, timeout), Parts::of_client(None, reach)?, None, Clock::start(), false)
}

impl Driven {
    fn of(inner: &Inner) -> Option<Driven> {
        let shell = inner.shared.brokers.clone()?;
        Some(Driven { shared: inner.shared.clone(), shell })
    }

    /// A forked child has the same keys, numbers and generator (G4).
    ///
    /// # Errors
    /// [`Code::Forked`] there.
    pub(crate) fn check(&self) -> Result<()> {
        self.shared.process.check()
    }

    /// Calls a verb between two turns of the driver; what it has to send leaves at once.
    ///
    /// # Errors
    /// The session is closed, or another process's.
    pub(crate) fn call<T>(&self, verb: impl FnOnce(Now, &mut BrokerLink) -> T) -> Result<T> {
        self.call_core(|now, _, through| verb(now, through))
    }

    fn call_core<T>(&self, verb: impl FnOnce(Now, &mut AnyCore, &mut BrokerLink) -> T) -> Result<T> {
        self.shared.driver_lock.with(&self.shared, |driver| {
            let Some(driver) = driver else { return Err(self.check().err().unwrap_or_else(Error::closed)) };
            let now = self.shared.clock.now();
            let done = verb(now, &mut driver.core, &mut self.shell.lock());
            driver.pump(&self.shared, now);
            Ok(done)
        })
    }

    /// Looks at what came, or takes it.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut BrokerLink) -> T) -> T {
        look(&mut self.shell.lock())
    }

    /// Waits until something comes of a check, which is repeated when anything has changed; `None` after that time.
    pub(crate) async fn until<T>(&self, timeout: Duration, check: impl FnMut() -> Option<T> + Send) -> Option<T> {
        self.shared.changed.until(Instant::now() + timeout, check).await
    }

    /// Waits so long.
    pub(crate) async fn pause(&self, time: Duration) {
        self.until(time, || None::<()>).await;
    }

    /// The driver looks at once.
    pub(crate) fn wake(&self) {
        self.shared.driver_lock.wake();
    }

    /// Publishes what the keys seal, on this thread; [`Driven::done`] tells what became of it.
    ///
    /// # Errors
    /// The session is closed, or another process's; why nothing was taken.
    pub(crate) fn publish(&self, message: Together<'_>) -> Result<std::result::Result<Token, PublishError>> {
        self.call_core(|now, core, through| {
            let token = core.publish_together(now, message)?;
            through.handle.follow(token);
            // The group tells if it gives up sealing it again.
            lock(&self.shared.outcomes).claim(token);
            Ok(token)
        })
    }

    /// Takes what became of what a verb began, once it is known.
    pub(crate) fn done(&self, token: Token) -> Option<Done> {
        // The brokers' answer is there before the group's outcome is.
        let outcome = lock(&self.shared.outcomes).of(token);
        let done = self.look(|it| it.handle.done(token)).or_else(|| outcome.map(|_| self.give_up(token)));
        if done.is_some() {
            lock(&self.shared.outcomes).forget(token);
        }
        done
    }

    /// The group gave up a publication: what it was sealed for was replaced again and again.
    fn give_up(&self, token: Token) -> Done {
        let now = self.shared.clock.now();
        self.look(|it| {
            it.handle.forget(now, token);
            let order_status = it.handle.order_status().unwrap_or_default();
            Done::Outcome(OperationOutcome::Superseded { policy: order_status.policy, epoch: order_status.epoch })
        })
    }

    /// Nobody waits for this any more.
    pub(crate) fn forget(&self, token: Token) {
        lock(&self.shared.outcomes).forget(token);
        // After the end nothing is kept.
        let _ = self.call(|now, through| through.handle.forget(now, token));
    }

    /// What the keys wait for.
    pub(crate) fn status(&self) -> Option<Status> {
        self.shared.status()
    }

    /// How old the newest block is that f + 1 brokers show.
    pub(crate) fn age(&self) -> Option<Duration> {
        let now = self.shared.clock.now();
        self.look(|it| it.handle.age(now))
    }

    /// The error that a user sees.
    pub(crate) fn refused(&self, topic: &str, why: PublishError) -> Error {
        self.shared.refused(topic, why)
    }

    /// A broker's channel is open, or a broker says something on it.
    #[cfg(test)]
    pub(crate) fn hear(&self, broker: u16, message: Option<&[u8]>) {
        let peer = sealcast_wire::Address::Node(u32::from(broker));
        let heard = self.call_core(|now, core, _| match message {
            None => core.group_mut().connected(now, peer),
            Some(bytes) => core.group_mut().handle_message(now, peer, bytes),
        });
        heard.expect("the session is open");
    }

    /// Closing the session waits for nothing from now on.
    pub(crate) fn end(&self) {
        let _ = self.call_core(|now, core, _| core.end(now));
    }
}
