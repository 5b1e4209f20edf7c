//! The ways that a session can go, as one type: the table of ways, in code.

use std::sync::Arc;

use sealcast_client as client;
use sealcast_delivery::memory::{BestEffort, Ordered};
use sealcast_delivery::multicast::Multicast;
use sealcast_delivery::{Batch, Delivery, Input, Outgoing, Output, Packet, Properties, SendError, Token};
use sealcast_wire::{Dropped, Drops, EpochId, Monotonic, Now, Protect, Source};

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
    fn properties(&self) -> Properties {
        each!(self, way => way.properties())
    }

    fn send(
        &mut self,
        now: Now,
        protect: Option<&Arc<dyn Protect>>,
        message: Outgoing<'_>,
    ) -> Result<Token, SendError> {
        each!(self, way => way.send(now, protect, message))
    }

    fn handle(&mut self, now: Now, input: Input<'_>) {
        each!(self, way => way.handle(now, input));
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

    fn next_id(&mut self, now: Now) -> Result<Option<[u8; 16]>, SendError> {
        each!(self, way => way.next_id(now))
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

    fn sent(&mut self, epoch: EpochId) -> Vec<Packet> {
        each!(self, way => way.sent(epoch))
    }
}
