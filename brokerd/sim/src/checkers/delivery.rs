//! What correct subscribers get: Agreement 2, Total Order 2, Liveness 2, No Creation, No Duplication. All of them here
//! subscribe to everything, so that those of one desk have the same subscription and the same access.

use std::collections::{BTreeMap, BTreeSet};

use sealcast_broker::operation::Client;
use sealcast_broker::state::Code;

use super::{Book, Checker};
use crate::cast::Desk;
use crate::event::Event;

pub(super) fn all() -> Vec<Box<dyn Checker>> {
    vec![
        Box::new(NoCreation),
        Box::<NoDuplication>::default(),
        Box::<Agreement>::default(),
        Box::<Liveness>::default(),
        Box::<TotalOrder>::default(),
        Box::<TopicOrder>::default(),
    ]
}

/// A publication as an application got it.
type Got = (u64, Client, u64, Vec<u8>);

/// Total Order 2: subscribers with the same subscription and attributes deliver the same publications in one order.
#[derive(Default)]
struct TotalOrder {
    got: BTreeMap<usize, usize>,
    order: BTreeMap<Desk, Vec<Got>>,
}

impl Checker for TotalOrder {
    fn name(&self) -> &'static str {
        "total order 2"
    }

    fn see(&mut self, book: &Book, event: &Event) -> Result<(), String> {
        let Event::Delivered { client, sn, publisher, number, body, .. } = event else { return Ok(()) };
        let order = self.order.entry(book.clients[*client].1).or_default();
        let place = self.got.entry(*client).or_default();
        let got = (*sn, *publisher, *number, body.clone());
        if let Some(known) = order.get(*place) {
            if *known != got {
                return Err(format!(
                    "client {client} got sn {sn} as its {place}th, another one of its desk {}",
                    known.0
                ));
            }
        } else {
            order.push(got);
        }
        *place += 1;
        Ok(())
    }
}

/// Agreement 2: what one correct subscriber delivers, all of the same subscription and access deliver in the end.
#[derive(Default)]
struct Agreement {
    got: BTreeMap<usize, BTreeSet<u64>>,
    subscribed: BTreeSet<usize>,
}

impl Checker for Agreement {
    fn name(&self) -> &'static str {
        "agreement 2"
    }

    fn see(&mut self, book: &Book, event: &Event) -> Result<(), String> {
        match event {
            Event::Subscribed { client } => {
                self.subscribed.insert(*client);
            }
            Event::Delivered { client, sn, .. } => {
                self.got.entry(*client).or_default().insert(*sn);
            }
            Event::End { .. } => {
                let mut of_desk: BTreeMap<Desk, (usize, BTreeSet<u64>)> = BTreeMap::new();
                for client in self.subscribed.iter().filter(|it| !book.revoked.contains_key(it)) {
                    let got = self.got.remove(client).unwrap_or_default();
                    let (first, all) = of_desk.entry(book.clients[*client].1).or_insert_with(|| (*client, got.clone()));
                    if *all != got {
                        let missing: Vec<&u64> = all.symmetric_difference(&got).collect();
                        return Err(format!("clients {first} and {client} of one desk differ in {missing:?}"));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Numbers of a topic grow at each subscriber, as they do in the order.
#[derive(Default)]
struct TopicOrder(BTreeMap<(usize, String), (u64, u64)>);

impl Checker for TopicOrder {
    fn name(&self) -> &'static str {
        "topic order"
    }

    fn see(&mut self, _: &Book, event: &Event) -> Result<(), String> {
        let Event::Delivered { client, sn, topic: (topic, ps), .. } = event else { return Ok(()) };
        match self.0.insert((*client, topic.clone()), (*ps, *sn)) {
            Some((before, at)) if before >= *ps || at >= *sn => {
                Err(format!("client {client} got {topic} {ps} (sn {sn}) after {before} (sn {at})"))
            }
            _ => Ok(()),
        }
    }
}

/// No Duplication: nothing is delivered twice, and no number of a client stands for two publications.
#[derive(Default)]
struct NoDuplication {
    places: BTreeSet<(usize, u64)>,
    numbers: BTreeMap<(Client, u64), u64>,
    sns: BTreeSet<(usize, u64)>,
}

impl Checker for NoDuplication {
    fn name(&self) -> &'static str {
        "no duplication"
    }

    fn see(&mut self, _: &Book, event: &Event) -> Result<(), String> {
        let Event::Delivered { client, place, sn, publisher, number, .. } = event else { return Ok(()) };
        if !self.places.insert((*client, *place)) || !self.sns.insert((*client, *sn)) {
            return Err(format!("client {client} got sn {sn} at place {place} twice"));
        }
        match self.numbers.insert((*publisher, *number), *sn) {
            Some(before) if before != *sn => {
                Err(format!("number {number} of one client stands at sn {before} and {sn}"))
            }
            _ => Ok(()),
        }
    }
}

/// No Creation, and integrity: what is delivered was published, by whom it says and as it says.
struct NoCreation;

impl Checker for NoCreation {
    fn name(&self) -> &'static str {
        "no creation"
    }

    fn see(&mut self, book: &Book, event: &Event) -> Result<(), String> {
        let Event::Delivered { client, publisher, number, topic, body, .. } = event else { return Ok(()) };
        if book.plan_of(publisher, *number, body).is_some_and(|plan| plan.topic == topic.0) {
            return Ok(());
        }
        Err(format!("client {client} got «{}», which nobody published so", String::from_utf8_lossy(body)))
    }
}

/// Liveness 2: every correct subscriber gets all that was published since it subscribed and that it may read.
#[derive(Default)]
struct Liveness {
    subscribed: BTreeSet<usize>,
    done: BTreeMap<u64, usize>,
    got: BTreeMap<usize, BTreeSet<u64>>,
}

impl Checker for Liveness {
    fn name(&self) -> &'static str {
        "liveness 2"
    }

    fn see(&mut self, book: &Book, event: &Event) -> Result<(), String> {
        match event {
            Event::Subscribed { client } => {
                self.subscribed.insert(*client);
            }
            Event::Outcome { plan, sn, code: Code::Done, .. } => {
                self.done.insert(*sn, *plan);
            }
            Event::Delivered { client, sn, .. } => {
                self.got.entry(*client).or_default().insert(*sn);
            }
            Event::End { .. } => {
                for client in self.subscribed.iter().filter(|it| !book.revoked.contains_key(it)) {
                    let got = self.got.get(client);
                    for (sn, plan) in &self.done {
                        let has = got.is_some_and(|got| got.contains(sn));
                        if !has && book.plans[*plan].0.is_for(book.clients[*client].1) {
                            return Err(format!("client {client} never got plan {plan} at sn {sn}"));
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
