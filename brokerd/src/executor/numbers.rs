//! Clients' next numbers, in memory: admission asks for them with every frame.

use std::collections::BTreeMap;

use sealcast_broker::operation::Client;
use sealcast_broker::state::Results;
use sealcast_wire::limits;

/// Of registered clients, as the newest executed block left them.
#[derive(Default)]
pub(super) struct Numbers(BTreeMap<Client, u64>);

impl Numbers {
    pub(super) fn get(&self, client: &Client) -> Option<u64> {
        self.0.get(client).copied()
    }

    /// Remembers a number out of the state. Call it while no block can be executed.
    pub(super) fn put(&mut self, client: Client, next: u64) {
        if self.0.len() >= limits::NUMBERS_KNOWN_CLIENTS {
            self.0.clear();
        }
        self.0.insert(client, next);
    }

    /// A block was executed, and nobody has seen the state after it yet.
    pub(super) fn executed(&mut self, results: &[Results]) {
        for it in results {
            if let (Some(next), Some(known)) = (it.next(), self.0.get_mut(&it.client)) {
                *known = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealcast_broker::state::{Code, Outcome};

    #[test]
    fn numbers_follow_what_blocks_use_up() {
        let (ann, bob) = (Client([1; 32]), Client([2; 32]));
        let outcomes = |codes: &[Code]| codes.iter().map(|code| Outcome { code: *code, detail: Vec::new() }).collect();
        let results =
            |client, first, codes: &[Code]| Results { client, first, frame: [0; 32], outcomes: outcomes(codes) };
        let mut numbers = Numbers::default();
        numbers.put(ann, 5);
        numbers.executed(&[
            results(ann, 4, &[Code::Duplicate, Code::Done, Code::Denied]),
            results(bob, 0, &[Code::Done]),
            results(ann, 9, &[Code::Gap]),
            results(ann, 4, &[Code::Duplicate]),
        ]);
        assert_eq!(numbers.get(&ann), Some(7), "what came twice or too early uses no number");
        assert_eq!(numbers.get(&bob), None, "nobody asked");
    }
}
