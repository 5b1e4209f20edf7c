//! A group over an untrusted relay: an MQTT broker that carries datagrams, and a directory that keeps a log.
//!
//! ```text
//! best effort   datagram ─▶ MQTT, the group's topic ─▶ the other members
//! ordered       datagram ─▶ Append ─▶ directory ─▶ announcement over MQTT, or Read ─▶ everybody, ourselves included
//! ```
//! Two channels lead to the relay: [`MQTT`] takes and brings datagrams, and brings the directory's announcements; [`DIRECTORY`]
//! takes requests and brings their responses, in that order. The owner of the sockets opens and closes both.
//!
//! | file | what |
//! |---|---|
//! | `log` | the log: appending to it, reading it |
//! | `beacon` | what members show each other, and whether they hear each other |
//! | `signing` | by which key a member signs what it asks of the directory |
//! | `devices` | what single devices leave and fetch at the directory: key packages and mail |
//!
//! The log is what the directory signed ([`Follower`](sealcast_relay::follower::Follower)): a relay that shows two of them can be convicted, and none can change
//! what members accept (D1). The cut at a position is the head of the log there. Members show each other their receipts over MQTT,
//! so that a relay cannot keep two logs apart for long (D2).

mod beacon;
mod devices;
mod log;
mod signing;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sealcast_relay::evidence::Evidence;
use sealcast_relay::ids::DeviceId;
use sealcast_relay::key::RelayKey;
use sealcast_relay::request::Signer;
use sealcast_wire::frame::FLAG_RELIABLE;
use sealcast_wire::{
    Address, Agreement, CertHash, Dropped, Fetched, Fetches, Flush, Guarantee, Malformed, Monotonic, Now, Protect,
    Source, To, limits,
};

use self::log::{Log, Waiting};
use crate::memory::BestEffort;
use crate::{Batch, Channel, Cut, Delivery, Input, Outgoing, Output, Properties, SendError, Token, What};

/// The channel to the MQTT broker.
pub const MQTT: Address = Address::Node(0);
/// The channel to the directory.
pub const DIRECTORY: Address = Address::Node(1);

/// A member's end of a relay.
pub struct Relay {
    best_effort: BestEffort,
    log: Option<Log>,
    is_subscribed: bool,
    is_up: bool,
}

/// What a member knows of the directory, and is known by there.
pub struct Config {
    /// The key that we pin.
    pub relay: RelayKey,
    /// Signs requests in the name of all who may join, until there is a key of an epoch, and names the group.
    pub signer: Box<dyn Signer + Send>,
    /// The name of a certificate's device there.
    pub device: Box<dyn Fn(&CertHash) -> DeviceId + Send>,
}

/// What a relay did so far, for people.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// What the relay did last that no honest one does.
    pub misbehaviour: Option<String>,
    /// Why its directory refused what was to be kept, if it refused that last.
    pub refusal: Option<String>,
    /// The proof that it showed two logs.
    pub evidence: Option<Box<Evidence>>,
    /// The group was to be founded, and has a log.
    pub exists: bool,
}

/// Shows the status of a relay to other threads.
#[derive(Clone, Debug, Default)]
pub struct Handle(Arc<Mutex<Status>>);

impl Handle {
    /// The status.
    pub fn lock(&self) -> MutexGuard<'_, Status> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Relay {
    /// What it gives with a directory.
    pub const PROPERTIES: Properties = Properties {
        fifo: Some(ORDERED),
        ordered: Some(ORDERED),
        fetches: Fetches { directory: true, shares: false },
        ..Relay::WITHOUT_DIRECTORY
    };

    /// What an MQTT broker alone gives.
    pub const WITHOUT_DIRECTORY: Properties =
        Properties { connects: true, message_bytes_max: limits::BODY_BYTES_MAX, ..Properties::BEST_EFFORT };

    /// A member's end. `record` is what the last run stored; without one the log begins at its head. If it `founds` the group,
    /// there must be no log: [`Status::exists`] says if there is one, and then nothing comes of it.
    ///
    /// # Errors
    /// The record is none, or of another group or relay.
    pub fn open(config: Config, record: Option<&[u8]>, founds: bool) -> Result<(Relay, Handle), Malformed> {
        let handle = Handle::default();
        let log = Log::open(config, record, founds, handle.clone())?;
        Ok((Relay { log: Some(log), ..Relay::without_directory(false) }, handle))
    }

    /// A member's end of an MQTT broker alone; `plain` if nothing is sealed.
    pub fn without_directory(plain: bool) -> Relay {
        let best_effort = match plain {
            true => BestEffort::plain_up_to(limits::BODY_BYTES_MAX),
            false => BestEffort::up_to(limits::BODY_BYTES_MAX),
        };
        Relay { best_effort, log: None, is_subscribed: false, is_up: false }
    }

    /// Has what is sealed be a multiple of so many bytes: the relay sees sizes in such steps only.
    #[must_use]
    pub fn padded(mut self, step: usize) -> Relay {
        self.best_effort.pad(step);
        self
    }

    fn watch(&mut self, now: Now) {
        self.look_whether_up();
        self.log.iter_mut().for_each(|log| log.watch_silence(now));
    }

    /// Messages can be sent once both channels work and it is known where the log begins for us.
    fn look_whether_up(&mut self) {
        let begins = self.log.as_ref().is_none_or(Log::has_begun);
        if self.is_subscribed && begins && !self.is_up {
            self.is_up = true;
            self.best_effort.put(Output::Up);
        }
    }
}

impl Delivery for Relay {
    fn properties(&self) -> Properties {
        if self.log.is_some() { Relay::PROPERTIES } else { Relay::WITHOUT_DIRECTORY }
    }

    fn send(
        &mut self,
        now: Now,
        protect: Option<&Arc<dyn Protect>>,
        message: Outgoing<'_>,
    ) -> Result<Token, SendError> {
        match (message.guarantee, &mut self.log) {
            (Guarantee::BestEffort, _) => self.best_effort.send(now, protect, message),
            (Guarantee::Fifo | Guarantee::Ordered, Some(log)) => {
                let is_data = !matches!(message.what, What::Keys { .. });
                log.has_capacity(is_data)?;
                let datagram = self.best_effort.record(protect.map(|it| &**it), &message)?;
                let token = self.best_effort.token();
                let names = if let What::Keys { names, .. } = message.what { names } else { None };
                log.append(now, Waiting { token, datagram, names, is_data });
                Ok(token)
            }
            (guarantee, _) => Err(SendError::NotGiven(guarantee)),
        }
    }

    fn handle(&mut self, now: Now, input: Input<'_>) {
        match &input {
            // What has a place in the log counts there, and shows no life: anybody can send it again.
            Input::Frame { flags, .. } if flags & FLAG_RELIABLE != 0 => {
                return self.best_effort.drop_one(Dropped::Foreign);
            }
            // Our own message, which the broker does not bring back to us, was sent again by somebody.
            Input::Frame { source: Source::Inside { slot, .. }, protect, .. }
                if protect.is_some_and(|it| it.slot() == *slot) =>
            {
                return self.best_effort.drop_one(Dropped::Stale);
            }
            Input::Frame { source: Source::Inside { slot, .. }, .. } => {
                self.log.iter_mut().for_each(|log| log.beacons.opened(*slot));
            }
            _ => {}
        }
        match (input, &mut self.log) {
            (Input::Connected(MQTT), log) => {
                self.is_subscribed = true;
                log.iter_mut().for_each(|log| log.beacons.listen(now, true));
            }
            // The broker keeps what comes, as far as it can; what is ordered is read from the log.
            (Input::Disconnected(MQTT), log) => log.iter_mut().for_each(|log| log.beacons.listen(now, false)),
            (Input::Connected(DIRECTORY), Some(log)) => log.connected(now),
            (Input::Disconnected(DIRECTORY), Some(log)) => log.disconnected(now),
            (Input::Message { peer: DIRECTORY, bytes }, Some(log)) => log.answered(now, bytes),
            (Input::Message { peer: MQTT, bytes }, Some(log)) => log.announced(now, bytes),
            (Input::Connected(_) | Input::Disconnected(_) | Input::Message { .. }, _) => {
                self.best_effort.drop_one(Dropped::Foreign);
            }
            (Input::Fetch(id, what), Some(log)) => log.fetch(now, id, what),
            (Input::Fetch(id, _), None) => self.best_effort.put(Output::Fetched(id, Fetched::Missing)),
            (Input::Provide { what, bytes }, Some(log)) => log.provide(now, what, bytes),
            (Input::Withdraw(token), Some(log)) => log.withdraw(token),
            (Input::Packages(packages), Some(log)) => log.keep_packages(now, packages),
            (Input::AppendKey(key), Some(log)) => log.signing.begin(key),
            (Input::Again(position), Some(log)) => log.again(now, position),
            (Input::Checkpointed(position), Some(log)) => log.checkpointed(position),
            (Input::Prepare { view, flush: Flush::At(position) }, Some(log)) => match log.cut(position) {
                Some(cut) => log.flushed(view.epoch, cut),
                // The cut of that position is forgotten: no answer comes.
                None => self.best_effort.drop_one(Dropped::Stale),
            },
            (Input::Excluded, Some(log)) => log.end(),
            (Input::Frame { frame, protect, .. }, Some(log)) if beacon::is_one(frame) => {
                log.heard(now, frame, protect.is_some());
            }
            (Input::Install { view, .. }, Some(log)) => {
                log.begin_epoch(view.epoch);
                log.installed(now, view);
            }
            (input, _) => self.best_effort.handle(now, input),
        }
        self.watch(now);
    }

    fn open_at(
        &mut self,
        index: u64,
        source: Source,
        flags: u8,
        frame: &mut [u8],
        protect: &dyn Protect,
    ) -> Result<Output, Dropped> {
        if let (Some(log), Source::Inside { slot, .. }) = (&mut self.log, &source) {
            log.beacons.opened(*slot);
        }
        self.best_effort.take_at(index, source, flags, frame, protect)
    }

    fn timeout(&self) -> Option<Monotonic> {
        self.log.as_ref().and_then(Log::timeout)
    }

    fn handle_timeout(&mut self, now: Now, protect: Option<&Arc<dyn Protect>>) {
        if let Some(log) = &mut self.log {
            log.handle_timeout(now, protect.map(|it| &**it));
        }
        self.watch(now);
    }

    fn poll(&mut self, batch: &mut Batch) -> Option<Output> {
        if let Some(log) = &mut self.log {
            if let Some(request) = log.next_request() {
                return Some(to_directory(batch, &request));
            }
            if let Some(output) = log.next_output() {
                return Some(output);
            }
            if let Some(datagram) = log.next_beacon() {
                batch.to = Some(MQTT);
                batch.push(&datagram);
                return Some(Output::Transmit(To::Group));
            }
        }
        if let Some(output) = self.best_effort.poll(batch) {
            if let Output::Transmit(_) = output {
                batch.to = Some(MQTT);
            }
            return Some(output);
        }
        let log = self.log.as_mut()?;
        log.propose();
        log.next_request().map(|it| to_directory(batch, &it))
    }
}

fn to_directory(batch: &mut Batch, request: &[u8]) -> Output {
    batch.to = Some(DIRECTORY);
    batch.push(request);
    Output::Transmit(To::Group)
}

const ORDERED: Channel = Channel { agreement: Agreement::Forkable, acknowledged: true, cut: Cut::Position };
