//! What correct subscribers get: Agreement 2, Total Order 2, Liveness 2, No Creation, No Duplication. Those of one desk have
//! the same access; they subscribe to everything or to one topic, and what both want both get alike.

use std::collections::{BTreeMap, BTreeSet};

use sealcast_broker::operation::Client;
use sealcast_broker::state::Code;
use sealcast_wire::Monotonic;

use super::{Book, Checker, Verdict};
use crate::event::Event;
use crate::fixture::Desk;

pub(super) fn all() -> Vec<Box<dyn Checker<Book, Event>>> {
    vec![
        Box::new(NoCreation),
        Box::new(Subscription),
        Box::<NoDuplication>::default(),
        Box::<Agreement>::default(),
        Box::<Liveness>::default(),
        Box::<TotalOrder>::default(),
        Box::<TopicOrder>::default(),
    ]
}

/// A publication as an application got it.
type Got = (u64, Client, u64, Vec<u8>);

/// Total Order 2: subscribers with the same subscription and attributes deliver the same publications in one order, and who
/// subscribes to one topic delivers in the order in which the others deliver there.
#[derive(Default)]
struct TotalOrder {
    got: BTreeMap<(usize, String), usize>,
    /// By desk, of everything and of each topic.
    order: BTreeMap<(Desk, String), Vec<Got>>,
}

impl Checker<Book, Event> for TotalOrder {
    fn name(&self) -> &'static str {
        "total order 2"
    }

    fn event(&mut self, _: Monotonic, _: usize, event: &Event, book: &Book) -> Verdict {
        let Event::Delivered { client, sn, publisher, number, topic, body, .. } = event else { return Ok(()) };
        let (_, desk, interest) = book.clients[*client];
        for line in BTreeSet::from([interest.unwrap_or_default(), topic.0.as_str()]) {
            let order = self.order.entry((desk, line.to_owned())).or_default();
            let place = self.got.entry((*client, line.to_owned())).or_default();
            let got = (*sn, *publisher, *number, body.clone());
            match order.get(*place) {
                Some(known) if *known != got => {
                    return Err(format!(
                        "client {client} got sn {sn} as its {place}th of {line}, another one of its desk {}",
                        known.0
                    ));
                }
                Some(_) => {}
                None => order.push(got),
            }
            *place += 1;
        }
        Ok(())
    }
}

/// Agreement 2: what one correct subscriber delivers, all of the same access who subscribe to it deliver in the end.
#[derive(Default)]
struct Agreement {
    /// By client and sn, the topic.
    got: BTreeMap<usize, BTreeMap<u64, String>>,
    subscribed: BTreeSet<usize>,
}

impl Checker<Book, Event> for Agreement {
    fn name(&self) -> &'static str {
        "agreement 2"
    }

    fn event(&mut self, _: Monotonic, _: usize, event: &Event, book: &Book) -> Verdict {
        match event {
            Event::Subscribed { client } => {
                self.subscribed.insert(*client);
            }
            Event::Delivered { client, sn, topic, .. } => {
                self.got.entry(*client).or_default().insert(*sn, topic.0.clone());
            }
            Event::End { .. } => {
                let there: Vec<usize> =
                    self.subscribed.iter().filter(|it| !book.revoked.contains_key(it)).copied().collect();
                // What one of them got and the other one wants.
                let common = |one: usize, other: usize| -> BTreeSet<u64> {
                    let got = self.got.get(&one).into_iter().flatten();
                    got.filter(|(_, topic)| book.wants(other, topic)).map(|(sn, _)| *sn).collect()
                };
                for (nth, client) in there.iter().enumerate() {
                    let desk = book.clients[*client].1;
                    for other in there[..nth].iter().filter(|it| book.clients[**it].1 == desk) {
                        let (got, all) = (common(*client, *other), common(*other, *client));
                        if all != got {
                            let missing: Vec<&u64> = all.symmetric_difference(&got).collect();
                            return Err(format!("clients {other} and {client} of one desk differ in {missing:?}"));
                        }
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

impl Checker<Book, Event> for TopicOrder {
    fn name(&self) -> &'static str {
        "topic order"
    }

    fn event(&mut self, _: Monotonic, _: usize, event: &Event, _: &Book) -> Verdict {
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

impl Checker<Book, Event> for NoDuplication {
    fn name(&self) -> &'static str {
        "no duplication"
    }

    fn event(&mut self, _: Monotonic, _: usize, event: &Event, _: &Book) -> Verdict {
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

impl Checker<Book, Event> for NoCreation {
    fn name(&self) -> &'static str {
        "no creation"
    }

    fn event(&mut self, _: Monotonic, _: usize, event: &Event, book: &Book) -> Verdict {
        let Event::Delivered { client, publisher, number, topic, body, .. } = event else { return Ok(()) };
        if book.plan_of(publisher, *number, body).is_some_and(|plan| plan.topic == topic.0) {
            return Ok(());
        }
        Err(format!("client {client} got '{}', which nobody published so", String::from_utf8_lossy(body)))
    }
}

/// Whoever is told a publication subscribes to its topic.
struct Subscription;

impl Checker<Book, Event> for Subscription {
    fn name(&self) -> &'static str {
        "subscription"
    }

    fn event(&mut self, _: Monotonic, _: usize, event: &Event, book: &Book) -> Verdict {
        match event {
            Event::Delivered { client, sn, topic: (topic, _), .. } if !book.wants(*client, topic) => {
                Err(format!("client {client} got sn {sn} of {topic}, to which it does not subscribe"))
            }
            _ => Ok(()),
        }
    }
}

/// Liveness 2: every correct subscriber gets all that was published since it subscribed, that it wants and that it may read.
#[derive(Default)]
struct Liveness {
    subscribed: BTreeSet<usize>,
    done: BTreeMap<u64, usize>,
    got: BTreeMap<usize, BTreeSet<u64>>,
}

impl Checker<Book, Event> for Liveness {
    fn name(&self) -> &'static str {
        "liveness 2"
    }

    fn event(&mut self, _: Monotonic, _: usize, event: &Event, book: &Book) -> Verdict {
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
                        let it = &book.plans[*plan].0;
                        if !has && book.wants(*client, it.topic) && it.is_for(book.clients[*client].1) {
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
