//! What correct brokers have in common: Agreement 1, Total Order 1, Liveness 1, and one state.

use std::collections::{BTreeMap, BTreeSet};

use sealcast_broker::state::Code;
use sealcast_wire::Monotonic;

use super::{Book, Checker, Verdict};
use crate::event::Event;

pub(super) fn all() -> Vec<Box<dyn Checker<Book, Event>>> {
    vec![Box::<TotalOrder>::default(), Box::<Agreement>::default(), Box::<Roots>::default(), Box::<Liveness>::default()]
}

/// Total Order 1: at every height, correct brokers execute the same block, and none is left out.
#[derive(Default)]
struct TotalOrder {
    blocks: BTreeMap<u64, [u8; 32]>,
    last: BTreeMap<usize, u64>,
}

impl Checker<Book, Event> for TotalOrder {
    fn name(&self) -> &'static str {
        "total order 1"
    }

    fn event(&mut self, _: Monotonic, _: usize, event: &Event, book: &Book) -> Verdict {
        if let Event::Joined { broker, height, .. } = event {
            self.last.insert(*broker, *height);
        }
        let Event::Executed { broker, height, hash, .. } = event else { return Ok(()) };
        if !book.is_honest(*broker) {
            return Ok(());
        }
        let last = self.last.entry(*broker).or_default();
        if *height > *last + 1 {
            return Err(format!("broker {broker} executed block {height} after block {last}"));
        }
        // After a crash, blocks that were not durable come again.
        *last = *height;
        match self.blocks.entry(*height).or_insert(*hash) {
            known if known == hash => Ok(()),
            _ => Err(format!("broker {broker} executed another block {height}")),
        }
    }
}

/// Agreement 1: what one correct broker executed, all have executed in the end.
#[derive(Default)]
struct Agreement {
    last: BTreeMap<usize, u64>,
    acknowledged: u64,
}

impl Checker<Book, Event> for Agreement {
    fn name(&self) -> &'static str {
        "agreement 1"
    }

    fn event(&mut self, _: Monotonic, _: usize, event: &Event, book: &Book) -> Verdict {
        match event {
            Event::Executed { broker, height, .. } | Event::Joined { broker, height, .. }
                if book.is_honest(*broker) =>
            {
                let last = self.last.entry(*broker).or_default();
                *last = (*last).max(*height);
            }
            Event::Outcome { height, .. } => self.acknowledged = self.acknowledged.max(*height),
            Event::End { .. } => {
                let honest = (0..book.genesis.brokers.len()).filter(|it| book.is_honest(*it));
                for broker in honest {
                    let last = self.last.get(&broker).copied().unwrap_or(0);
                    if last < self.acknowledged {
                        let known = self.acknowledged;
                        return Err(format!("broker {broker} never executed more than {last} of {known} blocks"));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Correct brokers have one state and one outbox at each height, and begin with no other state (E1).
#[derive(Default)]
struct Roots(BTreeMap<u64, ([u8; 32], [u8; 32])>);

impl Checker<Book, Event> for Roots {
    fn name(&self) -> &'static str {
        "state roots"
    }

    fn event(&mut self, _: Monotonic, _: usize, event: &Event, book: &Book) -> Verdict {
        match event {
            Event::Executed { broker, height, roots, .. } if book.is_honest(*broker) => {
                match self.0.entry(*height).or_insert(*roots) {
                    known if known == roots => Ok(()),
                    _ => Err(format!("broker {broker} has another state or outbox at block {height}")),
                }
            }
            Event::Joined { broker, height, root } if book.is_honest(*broker) => match self.0.get(height) {
                Some((known, _)) if known == root => Ok(()),
                _ => Err(format!("broker {broker} begins with a state of block {height} that no correct one has")),
            },
            _ => Ok(()),
        }
    }
}

/// Liveness 1: what a correct client hands in is executed, and the client is told what came of it.
#[derive(Default)]
struct Liveness {
    done: BTreeSet<usize>,
}

impl Checker<Book, Event> for Liveness {
    fn name(&self) -> &'static str {
        "liveness 1"
    }

    fn event(&mut self, _: Monotonic, _: usize, event: &Event, book: &Book) -> Verdict {
        match event {
            Event::Outcome { plan, code: Code::Done, .. } => {
                self.done.insert(*plan);
            }
            Event::End { complete } => {
                for (plan, (it, correct)) in book.plans.iter().enumerate() {
                    if *correct && !self.done.contains(&plan) && !book.is_revoked(&it.client) {
                        return Err(format!("nothing came of plan {plan} ({})", String::from_utf8_lossy(&it.payload)));
                    }
                }
                if !complete {
                    return Err("faults are over, and not everything came that should have".into());
                }
            }
            _ => {}
        }
        Ok(())
    }
}
