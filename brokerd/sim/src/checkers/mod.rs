//! Whether what is seen is as promised: one checker for each property of Chios, Sec. III-A, and for what else is
//! promised here. A checker hears events and the book of who is who; it says what is wrong at once, or at the end.

mod access;
mod agreement;
mod delivery;
mod promises;

use std::collections::BTreeMap;
use std::sync::Arc;

use sealcast_broker::genesis::Genesis;
use sealcast_broker::operation::Client;
use sealcast_sim::checker::Panel;
pub use sealcast_sim::checker::{Checker, Verdict, Violation};

use crate::event::Event;
use crate::fixture::{Desk, Fixture, Interest, Plan, wants};

/// Who is who, and what was meant, as far as was told.
pub struct Book {
    /// Brokers that lie.
    pub liars: Vec<usize>,
    /// How many shares open.
    pub threshold: usize,
    /// What receipts are checked against.
    pub genesis: Genesis,
    /// Clients by their numbers.
    pub clients: Vec<(Client, Desk, Interest)>,
    /// Plans by their numbers, and whether they are a correct client's.
    pub plans: Vec<(Arc<Plan>, bool)>,
    /// Plans by client and number: of what is sealed, and of Byzantine clients. What is not sealed gets another number when a new
    /// policy comes before it.
    pub sends: BTreeMap<(Client, u64), Vec<usize>>,
    /// Who was ended, in which block.
    pub revoked: BTreeMap<usize, u64>,
}

/// All checkers, of a cluster of whose brokers these lie.
pub fn all(fixture: &Fixture, liars: Vec<usize>) -> Panel<Book, Event> {
    let book = Book {
        liars,
        threshold: fixture.threshold,
        genesis: fixture.genesis.clone(),
        clients: Vec::new(),
        plans: Vec::new(),
        sends: BTreeMap::new(),
        revoked: BTreeMap::new(),
    };
    let all = agreement::all().into_iter().chain(delivery::all()).chain(access::all()).chain(promises::all());
    Panel::new(book, all.collect())
}

impl Book {
    /// Takes in what happened, before checkers do.
    pub fn see(&mut self, event: &Event) {
        match event {
            Event::Enters { id, desk, interest, .. } => self.clients.push((*id, *desk, *interest)),
            Event::Planned { plan, correct } => self.plans.push((plan.clone(), *correct)),
            Event::Sends { plan, number } => {
                let (it, correct) = &self.plans[*plan];
                if it.sealed || !correct {
                    self.sends.entry((it.client, *number)).or_default().push(*plan);
                }
            }
            Event::Revoked { client, height } => {
                self.revoked.insert(*client, *height);
            }
            _ => {}
        }
    }

    /// Whether a broker is honest.
    pub fn is_honest(&self, broker: usize) -> bool {
        !self.liars.contains(&broker)
    }

    /// What a client may have meant by a number.
    pub fn meant(&self, client: &Client, number: u64) -> impl Iterator<Item = &Arc<Plan>> {
        self.sends.get(&(*client, number)).into_iter().flatten().map(|plan| &self.plans[*plan].0)
    }

    /// The plan that somebody got, if it was meant so.
    pub fn plan_of(&self, client: &Client, number: u64, body: &[u8]) -> Option<&Arc<Plan>> {
        let is_it = |it: &&Arc<Plan>| it.client == *client && it.payload == body;
        let of_number = self.meant(client, number).find(is_it);
        let free = || self.plans.iter().filter(|(it, correct)| *correct && !it.sealed).map(|(it, _)| it).find(is_it);
        of_number.or_else(free)
    }

    /// Whether somebody was ended.
    pub fn is_revoked(&self, client: &Client) -> bool {
        self.revoked.keys().any(|it| self.clients[*it].0 == *client)
    }

    /// Whether a client subscribes to what is published in a topic.
    pub fn wants(&self, client: usize, topic: &str) -> bool {
        wants(self.clients[client].2, topic)
    }

    /// Whether a client may read what was published under a number, in a state of this height.
    pub fn may_read(&self, client: usize, publisher: &Client, number: u64, height: u64) -> bool {
        let desk = self.clients[client].1;
        let ended = self.revoked.get(&client).is_some_and(|revoked| *revoked <= height);
        !ended && self.meant(publisher, number).any(|plan| plan.is_for(desk))
    }
}
