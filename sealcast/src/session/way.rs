//! The ways that a session can go, as one type: the table of ways, in code.

use std::sync::Arc;

use sealcast_client as client;
use sealcast_delivery::memory::{BestEffort, Ordered};
use sealcast_delivery::multicast::Multicast;
use sealcast_delivery::{Batch, Delivery, Outgoing, Output, Packet, SendError, Token};
use sealcast_wire::{
    Agreement, Dropped, Drops, EpochId, Fetch, FetchId, Guarantee, Monotonic, Now, Protect, Source, View,
};

/// A way's machine.
pub(super) enum Way {
    Multicast(Box<Multicast>),
    BestEffort(Box<BestEffort>),
    Ordered(Box<Ordered>),
    Brokers(Box<client::Way>),
}

impl Way {
    /// That of the brokers, if it is the one.
    pub(super) fn brokers(&self) -> Option<&client::Way> {
        match self {
            Way::Brokers(way) => Some(way),
            Way::Multicast(_) | Way::BestEffort(_) | Way::Ordered(_) => None,
        }
    }

    /// The same, for its shell.
    pub(super) fn brokers_mut(&mut self) -> Option<&mut client::Way> {
        match self {
            Way::Brokers(way) => Some(way),
            Way::Multicast(_) | Way::BestEffort(_) | Way::Ordered(_) => None,
        }
    }
}

macro_rules! each {
    ($self:ident, $machine:ident => $call:expr) => {
        match $self {
            Way::Multicast($machine) => $call,
            Way::BestEffort($machine) => $call,
            Way::Ordered($machine) => $call,
            Way::Brokers($machine) => $call,
        }
    };
}

impl Delivery for Way {
    fn gives(&self, guarantee: Guarantee) -> Option<Agreement> {
        each!(self, way => way.gives(guarantee))
    }

    fn send(
        &mut self,
        now: Now,
        protect: Option<&Arc<dyn Protect>>,
        message: Outgoing<'_>,
    ) -> Result<Token, SendError> {
        each!(self, way => way.send(now, protect, message))
    }

    fn handle(&mut self, now: Now, source: Source, flags: u16, frame: &mut [u8], protect: Option<&dyn Protect>) {
        each!(self, way => way.handle(now, source, flags, frame, protect));
    }

    fn places(&self) -> bool {
        each!(self, way => way.places())
    }

    fn open_at(
        &mut self,
        index: u64,
        source: Source,
        flags: u16,
        frame: &mut [u8],
        protect: &dyn Protect,
    ) -> Result<Output, Dropped> {
        each!(self, way => way.open_at(index, source, flags, frame, protect))
    }

    fn hold(&mut self, now: Now, held: bool) {
        each!(self, way => way.hold(now, held));
    }

    fn next_id(&mut self, now: Now) -> Result<Option<[u8; 16]>, SendError> {
        each!(self, way => way.next_id(now))
    }

    fn fetch(&mut self, now: Now, id: FetchId, what: &Fetch) -> bool {
        each!(self, way => way.fetch(now, id, what))
    }

    fn opened(&mut self, index: u64) {
        each!(self, way => way.opened(index));
    }

    fn offer(&mut self, now: Now, what: &Fetch, bytes: &[u8]) {
        each!(self, way => way.offer(now, what, bytes));
    }

    fn prepare(&mut self, now: Now, next: &View) {
        each!(self, way => way.prepare(now, next));
    }

    fn install(&mut self, now: Now, view: &View) {
        each!(self, way => way.install(now, view));
    }

    fn timeout(&self) -> Option<Monotonic> {
        each!(self, way => way.timeout())
    }

    fn handle_timeout(&mut self, now: Now, protect: Option<&Arc<dyn Protect>>) {
        each!(self, way => way.handle_timeout(now, protect));
    }

    fn poll(&mut self, batch: &mut Batch) -> Option<Output> {
        each!(self, way => way.poll(batch))
    }

    fn drops(&self) -> Drops {
        each!(self, way => Delivery::drops(&**way))
    }

    fn sent(&mut self, epoch: EpochId) -> Option<Vec<Packet>> {
        each!(self, way => way.sent(epoch))
    }
}
