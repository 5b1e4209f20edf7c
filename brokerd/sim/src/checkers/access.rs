//! Who reads what: confidentiality (Fig. 1), shares, ⊥.

use std::collections::{BTreeMap, BTreeSet};

use sealcast_broker::operation::Client;
use sealcast_broker::state::Code;
use sealcast_wire::Monotonic;

use super::{Book, Checker, Verdict};
use crate::event::Event;
use crate::fixture::{EVERYTHING, MARK};

pub(super) fn all() -> Vec<Box<dyn Checker<Book, Event>>> {
    vec![Box::new(Confidentiality), Box::<Shares>::default(), Box::new(Access), Box::<Bottom>::default()]
}

/// No plaintext of what is sealed comes to any broker or lies there.
struct Confidentiality;

impl Checker<Book, Event> for Confidentiality {
    fn name(&self) -> &'static str {
        "confidentiality"
    }

    fn event(&mut self, _: Monotonic, _: usize, event: &Event, _: &Book) -> Verdict {
        match event {
            Event::Stored { broker, bytes } if bytes.windows(MARK.len()).any(|it| it == MARK) => {
                Err(format!("broker {broker} holds a plaintext"))
            }
            _ => Ok(()),
        }
    }
}

/// Correct brokers send shares only of what they have executed, and only to whom their newest state lets read (E2); nobody
/// else has as many as open.
#[derive(Default)]
struct Shares {
    /// By client and publication, whose shares somebody has who may not read it.
    stray: BTreeMap<(usize, Client, u64), BTreeSet<usize>>,
    /// Of correct brokers: to whom, at which height.
    sent: BTreeMap<usize, u64>,
}

impl Checker<Book, Event> for Shares {
    fn name(&self) -> &'static str {
        "shares"
    }

    fn event(&mut self, _: Monotonic, _: usize, event: &Event, book: &Book) -> Verdict {
        match event {
            Event::Share { broker, client, publisher, number, executed, height } => {
                let honest = book.is_honest(*broker);
                if honest && !executed {
                    return Err(format!("broker {broker} sent a share of number {number}, which it has not executed"));
                }
                if honest {
                    let last = self.sent.entry(*client).or_default();
                    *last = (*last).max(*height);
                }
                if book.may_read(*client, publisher, *number, *height) {
                    return Ok(());
                }
                if honest {
                    return Err(format!("broker {broker} sent client {client} a share of number {number} at {height}"));
                }
                let brokers = self.stray.entry((*client, *publisher, *number)).or_default();
                brokers.insert(*broker);
                if brokers.len() >= book.threshold {
                    return Err(format!("client {client} has {} shares of number {number}", brokers.len()));
                }
            }
            Event::Revoked { client, height } => {
                if let Some(last) = self.sent.get(client).filter(|last| *last >= height) {
                    return Err(format!("client {client} was ended in block {height} and got a share at {last}"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Whoever is told a publication may read it.
struct Access;

impl Checker<Book, Event> for Access {
    fn name(&self) -> &'static str {
        "authorised delivery"
    }

    fn event(&mut self, _: Monotonic, _: usize, event: &Event, book: &Book) -> Verdict {
        match event {
            Event::Delivered { client, publisher, number, body, .. } => {
                let desk = book.clients[*client].1;
                match book.plan_of(publisher, *number, body) {
                    Some(plan) if plan.is_for(desk) => Ok(()),
                    _ => Err(format!("client {client} got number {number}, which is not for its desk")),
                }
            }
            _ => Ok(()),
        }
    }
}

/// ⊥ for whoever may not read, and for nobody else: places are counted without gaps, and so are the others. Who subscribes
/// to one topic has a place for each publication there, and no other one.
#[derive(Default)]
struct Bottom {
    next: BTreeMap<usize, u64>,
    empty: BTreeMap<usize, u64>,
    subscribed: BTreeSet<usize>,
    /// Of plans that have their place, by correct clients.
    done: BTreeSet<usize>,
}

impl Checker<Book, Event> for Bottom {
    fn name(&self) -> &'static str {
        "bottom"
    }

    fn event(&mut self, _: Monotonic, _: usize, event: &Event, book: &Book) -> Verdict {
        match event {
            Event::Subscribed { client } => {
                self.subscribed.insert(*client);
            }
            Event::Outcome { plan, code: Code::Done, .. } => {
                self.done.insert(*plan);
            }
            Event::Delivered { client, place, .. } => {
                let next = self.next.entry(*client).or_default();
                if place != next {
                    return Err(format!("client {client} got place {place}, and {next} was next"));
                }
                *next += 1;
            }
            Event::Empty { client, place, count } => {
                let next = self.next.entry(*client).or_default();
                if place != next {
                    return Err(format!("client {client} was told ⊥ from {place} on, and {next} was next"));
                }
                *next += count;
                *self.empty.entry(*client).or_default() += count;
            }
            Event::End { .. } => {
                let most = self.next.values().max().copied().unwrap_or(0);
                for client in self.subscribed.iter().filter(|it| !book.revoked.contains_key(it)) {
                    let (_, desk, interest) = book.clients[*client];
                    let plans = self.done.iter().map(|it| &book.plans[*it].0);
                    let wanted = plans.filter(|plan| book.wants(*client, plan.topic));
                    // What Byzantine clients publish is not told; nobody who wants one topic wants theirs.
                    let all = if interest == Some(EVERYTHING) { most } else { wanted.clone().count() as u64 };
                    let (next, empty) = (self.next.get(client), self.empty.get(client));
                    let next = next.copied().unwrap_or(0);
                    if next != all {
                        return Err(format!("client {client} has {next} of {all} places"));
                    }
                    let due = wanted.filter(|plan| !plan.is_for(desk)).count() as u64;
                    let empty = empty.copied().unwrap_or(0);
                    if empty < due {
                        return Err(format!("client {client} was told ⊥ {empty} times of at least {due}"));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
