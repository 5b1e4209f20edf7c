//! Clients that showed lately who is behind them, and whom the newest executed state may not know yet.

use std::collections::{BTreeSet, VecDeque};

use sealcast_broker::operation::{Client, Frame, Operation};
use sealcast_wire::limits;

/// The last of them.
#[derive(Debug, Default)]
pub(super) struct Introduced {
    clients: BTreeSet<Client>,
    by_age: VecDeque<Client>,
}

impl Introduced {
    /// The frame was found good, or stands in a block: if it registers its client, what comes behind it is taken.
    pub(super) fn saw(&mut self, frame: &Frame) {
        let registers = |(.., it): (u64, &_, &Operation)| matches!(it, Operation::Register(_));
        if frame.proofs() == 0 || !frame.operations().any(registers) || !self.clients.insert(frame.client()) {
            return;
        }
        self.by_age.push_back(frame.client());
        if self.by_age.len() > limits::INTRODUCED_CLIENTS
            && let Some(oldest) = self.by_age.pop_front()
        {
            self.clients.remove(&oldest);
        }
    }

    pub(super) fn holds(&self, client: &Client) -> bool {
        self.clients.contains(client)
    }
}
