//! Clients that showed lately who is behind them, and whom the newest executed state may not know yet.

use std::collections::{BTreeSet, VecDeque};

use sealcast_broker::operation::{Batch, Client, Operation};
use sealcast_wire::limits;

/// The last of them.
#[derive(Debug, Default)]
pub(super) struct Introduced {
    clients: BTreeSet<Client>,
    by_age: VecDeque<Client>,
}

impl Introduced {
    /// The batch was found good, or stands in a block: if it registers its client, what comes behind it is taken.
    pub(super) fn saw(&mut self, batch: &Batch) {
        let registers = |(.., it): (u64, &_, &Operation)| matches!(it, Operation::Register(_));
        if batch.proofs() == 0 || !batch.operations().any(registers) || !self.clients.insert(batch.client()) {
            return;
        }
        self.by_age.push_back(batch.client());
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
