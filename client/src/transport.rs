//! The trait [`Delivery`] over the brokers: any key scheme through their one order.
//!
//! ```text
//!   Group ─ Delivery ─▶ Transport ─┐
//!                                  ├─ one machine: the brokers' client, patterns, readers, what callers wait for
//!   callers ──────────▶ Handle ────┘
//! ```
//! A transport comes with the [`Handle`] to what brokers do beside carrying a group's messages. A shell keeps a channel to
//! every broker: it tells [`Input::Connected`], [`Input::Message`] and [`Input::Disconnected`] by the broker's number, and
//! sends each batch to the broker that it names.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sealcast_broker::cluster_file::ClusterFile;
use sealcast_wire::{
    Address, Agreement, Dropped, Fetches, Flush, Malformed, Monotonic, Now, Protect, Source, To, limits,
};

use super::Config;
use super::handle::Handle;
use super::machine::{Machine, Next, PayloadKind};
use sealcast_delivery::{Batch, Channel, Cut, Delivery, Input, Outgoing, Output, Properties, SendError, Token};

/// See the module.
#[derive(Debug)]
pub struct Transport(Arc<Mutex<Machine>>);

impl Transport {
    /// The transport of a client that may have run before, and the handle to it. If it `resumes`, subscriptions of the runs
    /// before go on when the handle subscribes to the same again. Otherwise they end, and of the record only what protects
    /// from brokers that went back is used (E11). What a group itself reads begins now either way. The cluster's file is for
    /// a key scheme that asks for the brokers' key ([`sealcast_wire::Fetch::Key`]).
    ///
    /// # Errors
    /// The record is none, or of another cluster or client.
    pub fn open(
        now: Now,
        config: Config,
        record: Option<&[u8]>,
        payload_kind: PayloadKind,
        cluster: Option<Arc<ClusterFile>>,
        resumes: bool,
    ) -> Result<(Box<dyn Delivery>, Handle), Malformed> {
        let machine = Arc::new(Mutex::new(Machine::new(now, config, record, payload_kind, cluster, resumes)?));
        Ok((Box::new(Transport(machine.clone())), Handle(machine)))
    }

    /// What it gives; `orders_all` where it carries what a group's members say to each other ([`PayloadKind::Group`]).
    pub const fn properties_of(orders_all: bool) -> Properties {
        // Whole messages are sealed for brokers, not for an epoch of members.
        let cut = if orders_all { Cut::Position } else { Cut::Clock };
        let channel = Some(Channel { agreement: Agreement::Byzantine, acknowledged: true, cut });
        Properties {
            best_effort: channel,
            fifo: channel,
            ordered: channel,
            // Brokers keep it; when members hold it, nobody says.
            safe: None,
            orders_keys: orders_all,
            connects: true,
            subscribes: !orders_all,
            message_bytes_max: limits::BODY_BYTES_MAX,
            fetches: Fetches { shares: true, directory: false },
            names_packets: false,
            keeps_sealed: None,
            needs_keys: false,
            needs_flush: false,
            reaches_outside: false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        lock(&self.0)
    }
}

/// What the lock guards stays usable after a panic of its holder: no verb leaves half a change behind.
pub(super) fn lock(machine: &Mutex<Machine>) -> MutexGuard<'_, Machine> {
    machine.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Delivery for Transport {
    fn properties(&self) -> Properties {
        Transport::properties_of(self.lock().orders_all())
    }

    fn send(
        &mut self,
        now: Now,
        protect: Option<&Arc<dyn Protect>>,
        message: Outgoing<'_>,
    ) -> Result<Token, SendError> {
        self.lock().send(now, protect, message)
    }

    fn handle(&mut self, now: Now, input: Input<'_>) {
        let mut machine = self.lock();
        match input {
            // What is sealed comes in messages of brokers.
            Input::Frame { .. } | Input::Unread(_) => machine.drops.count(Dropped::Foreign),
            Input::Connected(peer) => match broker(peer) {
                Some(broker) => machine.quorum.connected(now, broker),
                None => machine.drops.count(Dropped::Foreign),
            },
            Input::Disconnected(peer) => match broker(peer) {
                Some(broker) => machine.quorum.disconnected(now, broker),
                None => machine.drops.count(Dropped::Foreign),
            },
            Input::Message { peer, bytes } => match broker(peer) {
                Some(broker) => machine.quorum.handle(now, broker, bytes),
                None => machine.drops.count(Dropped::Foreign),
            },
            Input::Pause => machine.pause(now, true),
            Input::Resume => machine.pause(now, false),
            Input::Fetch(id, what) => machine.fetch(now, id, what),
            // A group's topics are subscribed to from the beginning.
            Input::Subscribe(_) | Input::Unsubscribe(_) if machine.orders_all() => {}
            Input::Subscribe(pattern) => machine.subscribe(now, pattern),
            Input::Unsubscribe(pattern) => machine.leave_pattern(now, pattern),
            Input::Opened(index, bodies) => machine.opened(now, index, bodies),
            Input::Prepare { flush: Flush::Later, .. } => {}
            // Brokers order for everybody alike, and show it: there is nothing to agree on.
            Input::Prepare { view, flush: Flush::Now | Flush::At(_) } => {
                machine.put(Output::Flushed(view.epoch, [0; 32]));
            }
            Input::Checkpointed(sn) => machine.checkpointed(now, sn),
            // Brokers keep nothing but publications.
            Input::Keyed { .. }
            | Input::Install { .. }
            | Input::Leave
            | Input::ForcePrimary
            | Input::State(_)
            | Input::Excluded
            | Input::Withdraw(_)
            | Input::Retire(_)
            | Input::Provide { .. }
            | Input::AppendKey(_)
            | Input::Packages(_)
            | Input::Again(_) => {}
        }
        machine.drain(now);
    }

    fn open_at(
        &mut self,
        index: u64,
        source: Source,
        flags: u8,
        batch: &mut [u8],
        protect: &dyn Protect,
    ) -> Result<Output, Dropped> {
        self.lock().batches.take_at(index, source, flags, batch, protect)
    }

    fn timeout(&self) -> Option<Monotonic> {
        self.lock().quorum.timeout()
    }

    fn handle_timeout(&mut self, now: Now, _protect: Option<&Arc<dyn Protect>>) {
        let mut machine = self.lock();
        machine.quorum.handle_timeout(now);
        machine.drain(now);
    }

    fn poll(&mut self, batch: &mut Batch) -> Option<Output> {
        match self.lock().next()? {
            Next::Output(output) => Some(output),
            Next::Request(broker, request) => {
                batch.to = Some(Address::Node(u32::from(broker)));
                batch.push(&request);
                Some(Output::Transmit(To::Group))
            }
        }
    }
}

/// The number of the broker at an address.
fn broker(peer: Address) -> Option<u16> {
    match peer {
        Address::Node(number) => u16::try_from(number).ok(),
        Address::Socket(_) => None,
    }
}
