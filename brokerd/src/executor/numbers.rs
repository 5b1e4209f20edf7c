//! What admission asks of a client with every batch, in memory: its next number, and who is behind it.

use std::collections::{BTreeMap, BTreeSet};

use sealcast_broker::operation::Client;
use sealcast_broker::state::{Holder, Results};
use sealcast_wire::limits;

/// A client that registered once, as a block left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The number that its next operation has.
    pub next: u64,
    /// Who is behind it; nobody any more, if all that vouched for it was revoked or is over.
    pub holder: Option<Holder>,
}

/// Of clients that were asked for, as the newest executed block left them.
#[derive(Default)]
pub(super) struct Numbers {
    clients: BTreeMap<Client, Known>,
    /// Those that never registered.
    unknown: BTreeSet<Client>,
    /// The state's [`sealcast_broker::state::State::vouching`] for which they hold.
    vouching: u64,
}

impl Numbers {
    /// What the state says of the client, if that is remembered.
    pub(super) fn get(&self, client: &Client) -> Option<Option<Known>> {
        let is_unknown = || self.unknown.contains(client).then_some(None);
        self.clients.get(client).cloned().map(Some).or_else(is_unknown)
    }

    /// Remembers what the state says. Call it while no block can be executed.
    pub(super) fn put(&mut self, client: Client, known: Option<Known>) {
        let Some(known) = known else {
            if self.unknown.len() >= limits::NUMBERS_UNKNOWN_CLIENTS {
                self.unknown.clear();
            }
            self.unknown.insert(client);
            return;
        };
        if self.clients.len() >= limits::NUMBERS_KNOWN_CLIENTS {
            self.clients.clear();
        }
        self.clients.insert(client, known);
    }

    /// A block was executed, and nobody has seen the state after it yet.
    pub(super) fn executed(&mut self, results: &[Results], vouching: u64) {
        if std::mem::replace(&mut self.vouching, vouching) != vouching {
            self.clients.clear();
            self.unknown.clear();
        }
        for it in results {
            if let (Some(next), Some(known)) = (it.next(), self.clients.get_mut(&it.client)) {
                known.next = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealcast_broker::state::{Code, OperationResult};

    #[test]
    fn numbers_follow_what_blocks_use_up() {
        let (ann, bob) = (Client([1; 32]), Client([2; 32]));
        let outcomes =
            |codes: &[Code]| codes.iter().map(|code| OperationResult { code: *code, detail: Vec::new() }).collect();
        let results =
            |client, first, codes: &[Code]| Results { client, first, batch: [0; 32], outcomes: outcomes(codes) };
        let mut numbers = Numbers::default();
        let cy = Client([3; 32]);
        numbers.put(ann, Some(Known { next: 5, holder: None }));
        numbers.put(cy, None);
        let blocks = [
            results(ann, 4, &[Code::Duplicate, Code::Done, Code::Denied]),
            results(bob, 0, &[Code::Done]),
            results(ann, 9, &[Code::Gap]),
            results(ann, 4, &[Code::Duplicate]),
        ];
        numbers.executed(&blocks, 0);
        let next = |numbers: &Numbers, client| numbers.get(client).map(|it| it.map(|it| it.next));
        assert_eq!(next(&numbers, &ann), Some(Some(7)), "what came twice or too early uses no number");
        assert_eq!(next(&numbers, &bob), None, "nobody asked");
        assert_eq!(next(&numbers, &cy), Some(None), "it never registered");
        numbers.executed(&[], 1);
        assert_eq!(next(&numbers, &ann), None, "somebody else may be behind it, or nobody");
        assert_eq!(next(&numbers, &cy), None, "it may have registered");
    }
}
