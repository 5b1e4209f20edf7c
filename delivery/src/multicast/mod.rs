//! UDP multicast, best effort: LCM's datagrams in a plain group, sealed records in any other.
//!
//! ```text
//!            publishers' threads                      the thread that reads the socket
//! message ──▶ Sender ──▶ Batch ──▶ network ──▶ Protect::open ──▶ Receiver ──▶ message
//!             pack, cut, sign, seal                              prove, put together
//! ```
//! [`Multicast`] is both halves as one [`Delivery`]; a session shares the [`Sender`] among threads
//! ([`Multicast::sender`]) and keeps the rest on one. Every datagram is authenticated before anything
//! here looks into it; the frames inside are described in [`frame`], origin proofs in `origin`.

pub(crate) mod backlog;
mod beats;
mod congestion;
pub mod frame;
mod liveness;
pub(crate) mod origin;
mod pace;
pub(crate) mod parity;
mod receiver;
mod sender;
mod sent;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sealcast_wire::frame::{KIND_OPEN, MAGIC};
use sealcast_wire::{Domain, Dropped, Drops, Fetched, Flush, Guarantee, Monotonic, Now, Protect, Source, To, limits};

pub use backlog::Flow;
pub use receiver::{Received, Receiver, Sink};
pub use sender::{Data, SEGMENT_MAX, Sender};

use self::beats::{Beat, Beats};
use crate::reassembly::Bounds;
use crate::{Batch, Delivered, Delivery, Input, Outgoing, Output, Properties, SendError, Token, What};

/// How a multicast member behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of a datagram's payload at most: the path's MTU less 28 for IPv4 and UDP.
    pub segment: usize,
    /// After how much silence a member is suspected; heartbeats come eight times as often.
    pub detect: Duration,
    /// How much is held for incomplete messages.
    pub bounds: Bounds,
    /// Whether the group has no keys and speaks LCM's datagrams.
    pub plain: bool,
    /// Whether members of a large group say to one of them, and not to all, that they are alive (B10); all of a group do, or
    /// nobody.
    pub collects: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            segment: ETHERNET_SEGMENT,
            detect: limits::DETECT,
            bounds: Bounds::default(),
            plain: false,
            collects: false,
        }
    }
}

/// Both halves of a multicast member.
#[derive(Debug)]
pub struct Multicast {
    sender: Arc<Mutex<Sender>>,
    receiver: Receiver,
    inbox: Inbox,
    plain: bool,
    beats: Beats,
    /// Who transmits: polled for batches, or a shell that polls the shared sender itself.
    transmission: Transmission,
    /// Datagrams that are not for all: the key scheme's for addresses outside the group, and ours for one member.
    aside: VecDeque<(To, Vec<u8>)>,
    /// What was told of drops.
    told: Drops,
}

/// Who polls the [`Sender`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transmission {
    /// [`Delivery::poll`] does, into its batch.
    Polled,
    /// The shell does: it is told when there is something besides what publishers send.
    Shell {
        /// Whether it has to be told.
        waits: bool,
    },
}

impl Multicast {
    /// What it gives.
    pub const PROPERTIES: Properties =
        Properties { names_packets: true, reaches_outside: true, ..Properties::BEST_EFFORT };

    /// A member that has sent nothing and heard nobody.
    pub fn new(config: Config) -> Multicast {
        Multicast {
            sender: Arc::new(Mutex::new(Sender::new(config.segment, config.plain))),
            receiver: Receiver::new(config.detect, config.bounds),
            inbox: Inbox::default(),
            plain: config.plain,
            beats: Beats::new(config.detect / HEARTBEATS_PER_DETECT, config.collects),
            transmission: Transmission::Polled,
            aside: VecDeque::new(),
            told: Drops::default(),
        }
    }

    /// From now on the shell polls the shared sender: [`Output::Transmit`] comes with an empty batch and
    /// means that it should.
    pub fn transmitted_by_shell(&mut self) {
        self.transmission = Transmission::Shell { waits: false };
    }

    /// Keeps reliable records until all readers have them, and what members say of those until the caller takes it.
    pub(crate) fn keep_backlog(&mut self, bytes: usize) {
        self.lock().keep_backlog(bytes);
        self.inbox.controls = Some(VecDeque::new());
    }

    /// The next thing that a member said about reliable records.
    pub(crate) fn next_control(&mut self) -> Option<(Source, Vec<u8>)> {
        self.inbox.controls.as_mut()?.pop_front()
    }

    /// The receiving half, and where its messages go.
    pub(crate) fn receiving(&mut self) -> (&mut Receiver, &mut Inbox) {
        (&mut self.receiver, &mut self.inbox)
    }

    fn beat(&mut self, now: Monotonic, beat: Beat, protect: &Arc<dyn Protect>) {
        let _ = match beat {
            Beat::All => self.lock().heartbeat(now, protect),
            Beat::Heard(since) => {
                let bits = self.receiver.heard_since(since);
                self.lock().heard(now, protect, &bits)
            }
            Beat::To(slot) => {
                let sealed = self.lock().heartbeat_alone(protect);
                self.aside.extend(sealed.map(|datagram| (To::Slot(slot), datagram)));
                Ok(())
            }
        };
        self.transmit_soon();
    }

    /// Says something about reliable records in a datagram of its own, to one member where it was last heard or to the group;
    /// its caller says again what finds the queue full.
    pub(crate) fn tell(&mut self, protect: &Arc<dyn Protect>, domain: Domain, to: To, bytes: &[u8]) {
        if self.aside.len() < limits::OUTSIDE_MAX {
            let sealed = self.lock().control_alone(protect, domain, bytes);
            self.aside.extend(sealed.map(|datagram| (to, datagram)));
        }
    }

    pub(crate) fn transmit_soon(&mut self) {
        if let Transmission::Shell { waits } = &mut self.transmission {
            *waits = true;
        }
    }

    /// The sending half, to be shared with publishers' threads.
    pub fn sender(&self) -> Arc<Mutex<Sender>> {
        Arc::clone(&self.sender)
    }

    /// The receiving half.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Sender> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Delivery for Multicast {
    fn properties(&self) -> Properties {
        Multicast::PROPERTIES
    }

    fn send(
        &mut self,
        now: Now,
        protect: Option<&Arc<dyn Protect>>,
        message: Outgoing<'_>,
    ) -> Result<Token, SendError> {
        if message.guarantee != Guarantee::BestEffort {
            return Err(SendError::NotGiven(message.guarantee));
        }
        if let (To::Peer(_), What::Keys { bytes, sealed: false, .. }) = (message.to, &message.what) {
            if self.aside.len() >= limits::OUTSIDE_MAX {
                return Err(SendError::Full);
            }
            self.aside.push_back((message.to, [&[MAGIC, KIND_OPEN][..], bytes].concat()));
            return Ok(Token(0));
        }
        self.transmit_soon();
        let mut sender = self.lock();
        let number = match message.what {
            What::Data { topic, domain, signed, sent_micros, body } => {
                let data = Data { topic, domain, signed, guarantee: Guarantee::BestEffort, sent_micros, body };
                sender.data(now.monotonic, protect, data)?
            }
            What::Keys { bytes, sealed, .. } => sender.keys(now.monotonic, protect.filter(|_| sealed), bytes)?,
            What::Message { .. } => return Err(SendError::PerDatagram),
        };
        Ok(Token(number))
    }

    fn handle(&mut self, now: Now, input: Input<'_>) {
        match input {
            Input::Frame { source, frame, .. } if matches!(source, Source::Outside(_)) && !self.plain => {
                self.inbox.keys(source, Cow::Borrowed(frame));
            }
            Input::Frame { source, flags, frame, protect, .. } => {
                self.receiver.handle(now.monotonic, source, flags, frame, protect, &mut self.inbox);
            }
            Input::Prepare { view, flush } => {
                self.lock().seal();
                self.transmit_soon();
                // What is lost is lost: there is nothing that all could agree to have.
                if flush != Flush::Later {
                    self.inbox.ready.push_back(Output::Flushed(view.epoch, [0; 32]));
                }
            }
            Input::Install { view, .. } => {
                self.receiver.install(now.monotonic, view);
                self.beats.install(now.monotonic, view, !self.plain);
            }
            Input::Retire(epoch) => {
                // What is not named now would be dropped as forged: its sender is told instead.
                let mut sender = self.lock();
                sender.retire(epoch);
                let packets = sender.sent(epoch);
                drop(sender);
                self.inbox.ready.push_back(Output::Sealed(epoch, packets));
            }
            Input::Fetch(id, _) => self.inbox.ready.push_back(Output::Fetched(id, Fetched::Missing)),
            // Everything comes; nobody keeps what waits or is offered, and no message is sealed as a whole.
            Input::Unread(_)
            | Input::Keyed { .. }
            | Input::Pause
            | Input::Resume
            | Input::Checkpointed(_)
            | Input::Withdraw(_)
            | Input::Provide { .. }
            | Input::AppendKey(_)
            | Input::Packages(_)
            | Input::Again(_)
            | Input::Opened(..)
            | Input::Subscribe(_)
            | Input::Unsubscribe(_)
            | Input::Leave
            | Input::ForcePrimary
            | Input::State(_)
            | Input::Excluded => {}
            // There are no channels.
            Input::Connected(_) | Input::Disconnected(_) | Input::Message { .. } => {}
        }
    }

    fn open_at(
        &mut self,
        _index: u64,
        _source: Source,
        _flags: u8,
        _frame: &mut [u8],
        _protect: &dyn Protect,
    ) -> Result<Output, Dropped> {
        Err(Dropped::Foreign)
    }

    fn timeout(&self) -> Option<Monotonic> {
        [self.receiver.timeout(), self.beats.timeout()].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Now, protect: Option<&Arc<dyn Protect>>) {
        for slot in self.receiver.handle_timeout(now.monotonic) {
            self.inbox.ready.push_back(Output::Suspect(slot));
        }
        if self.receiver.take_named() {
            self.beats.named(now.monotonic);
        }
        let spoken = self.lock().last_spoken();
        // Where nothing can be sealed now, the next beat tries again.
        if let (Some(beat), Some(protect)) = (self.beats.due(now.monotonic, spoken), protect) {
            self.beat(now.monotonic, beat, protect);
        }
    }

    fn poll(&mut self, batch: &mut Batch) -> Option<Output> {
        if let Some(output) = self.inbox.ready.pop_front() {
            return Some(output);
        }
        self.receiver.refused(std::mem::take(&mut self.inbox.refused));
        if let Some(dropped) = self.receiver.drops().since(&mut self.told) {
            return Some(Output::Dropped(dropped));
        }
        if let Some((to, datagram)) = self.aside.pop_front() {
            batch.push(&datagram);
            batch.to = if let To::Peer(address) = to { Some(address) } else { None };
            return Some(Output::Transmit(to));
        }
        match &mut self.transmission {
            Transmission::Polled => {
                let ready = self.lock().poll()?;
                batch.append(&ready);
            }
            Transmission::Shell { waits } => {
                if !std::mem::take(waits) {
                    return None;
                }
            }
        }
        Some(Output::Transmit(To::Group))
    }
}

/// What came up, until it is polled.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    ready: VecDeque<Output>,
    /// What members say about reliable records, where somebody asks for it.
    controls: Option<VecDeque<(Source, Vec<u8>)>>,
    topics: BTreeSet<Arc<str>>,
    /// Readers take nothing now: reliable messages wait, and others are dropped.
    paused: bool,
    /// How many of those since that was counted.
    refused: u32,
}

impl Inbox {
    /// Readers take nothing from now on, or again; whether they took nothing before.
    pub(crate) fn pause(&mut self, pauses: bool) -> bool {
        std::mem::replace(&mut self.paused, pauses)
    }

    /// Something that comes after the messages that came before it.
    pub(crate) fn tell(&mut self, output: Output) {
        self.ready.push_back(output);
    }

    fn intern(&mut self, topic: &str) -> Arc<str> {
        if let Some(known) = self.topics.get(topic) {
            return Arc::clone(known);
        }
        if self.topics.len() == limits::TOPICS_INTERNED_MAX {
            self.topics.clear();
        }
        let topic: Arc<str> = topic.into();
        self.topics.insert(Arc::clone(&topic));
        topic
    }
}

impl Sink for Inbox {
    fn has_readers(&self) -> bool {
        !self.paused
    }

    fn message(&mut self, message: Received<'_>) {
        if self.paused {
            self.refused += 1;
            return;
        }
        let delivered = Delivered {
            index: message.number,
            ordered: message.ordered,
            source: message.source,
            signed: message.signed,
            topic: self.intern(message.topic),
            sent_micros: message.sent_micros,
            header: Vec::new(),
            body: message.body.into_owned(),
            attachments: Vec::new(),
        };
        self.ready.push_back(Output::Deliver(delivered));
    }

    fn keys(&mut self, source: Source, bytes: Cow<'_, [u8]>) {
        self.ready.push_back(Output::Keys { source, position: None, bytes: bytes.into_owned() });
    }

    fn control(&mut self, source: Source, bytes: &[u8]) -> bool {
        let Some(controls) = &mut self.controls else { return false };
        controls.push_back((source, bytes.to_vec()));
        true
    }
}

/// Ethernet's MTU of 1,500 bytes less IPv4's and UDP's headers.
pub const ETHERNET_SEGMENT: usize = 1472;
/// Eight in a row lost to 20 % independent loss: 3 in a million.
const HEARTBEATS_PER_DETECT: u32 = 8;
