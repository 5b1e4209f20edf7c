//! Whether somebody still vouches for a client that only waits. Brokers end the subscriptions of a client whose last
//! certificate is revoked, and tell it nothing; so it asks now and then for something that every registered client may read.
//!
//! ```text
//! waits ── EVERY ──▶ asks ─ f + 1 say that it may not ─▶ asks AGAIN ─ f + 1 say so once more ─▶ Notice::NotVouched
//!   ▲                 └── f + 1 answer otherwise ──┐
//!   └──────────────────────────────────────────────┘
//! ```
//! One honest broker that has not executed the registration yet says the same as f liars, so one denial is not believed.

use std::time::Duration;

use sealcast_broker::operation::Header;
use sealcast_broker::protocol::Query;
use sealcast_wire::{Monotonic, Now};

use super::Quorum;
use super::event::{Notice, Output};
use super::queries::Purpose;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Vouching {
    /// When the brokers are asked next; `None` while nothing is waited for.
    ask_at: Option<Monotonic>,
    /// How often f + 1 brokers have denied it, one time after another.
    denied: u32,
}

impl Vouching {
    pub(super) fn timeout(&self) -> Option<Monotonic> {
        self.ask_at
    }
}

impl Quorum {
    /// Asks if it is time.
    pub(super) fn watch_vouching(&mut self, now: Now) {
        let registered = self.order_status().is_some_and(|it| it.registered) && !self.is_registering();
        let waits = self.lines.values().any(|line| line.is_read)
            || self.config.registrations.iter().any(|registration| registration.intent);
        if !registered || !waits || self.vouching.denied >= DENIALS {
            self.vouching.ask_at = None;
            return;
        }
        let ask_at = *self.vouching.ask_at.get_or_insert(now.monotonic + EVERY);
        if ask_at > now.monotonic {
            return;
        }
        self.vouching.ask_at = Some(now.monotonic + EVERY);
        if self.queries.has_capacity() && !self.queries.is_open(&Purpose::Vouched) {
            let header = Header { topic: TOPIC.to_owned(), value: None };
            let query = Query::Range { header, from: 0, limit: 1, min_height: self.known.height };
            self.ask(now, Purpose::Vouched, query, self.faulty + 1);
        }
    }

    /// f + 1 brokers have answered: whether the client may read.
    pub(super) fn vouched(&mut self, now: Now, denied: bool) {
        self.vouching.denied = if denied { self.vouching.denied + 1 } else { 0 };
        if self.vouching.denied >= DENIALS {
            self.vouching.ask_at = None;
            self.outputs.push_back(Output::Notice(Notice::NotVouched));
        } else if denied {
            self.vouching.ask_at = Some(now.monotonic + AGAIN);
        }
    }
}

/// Any topic will do: who may read none of its publications is told so, and who is not registered is told nothing.
const TOPIC: &str = "sealcast/vouched";
/// How often a client that waits asks.
const EVERY: Duration = Duration::from_secs(5);
/// How soon it asks again after a denial.
const AGAIN: Duration = Duration::from_secs(1);
/// Denials in a row that are believed.
const DENIALS: u32 = 2;
