//! Linearizable: the order agrees with real time. What is published after another message was acknowledged, to anybody, has a
//! later position, and what a member delivers is a prefix of all that, from where it came in.
//!
//! With one order and known times of publishing and acknowledgement this is exact: no search for an order is needed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sealcast_wire::Monotonic;

use super::{Body, Checker, Event, Roles, Verdict};

/// See the module.
#[derive(Default)]
pub struct Linearizable {
    topics: BTreeSet<Arc<str>>,
    /// The acknowledged messages, by position.
    acknowledged: BTreeMap<u64, Body>,
    /// By message: the last position that was acknowledged to anybody before it was published.
    after: BTreeMap<Body, u64>,
    /// By node: the last position that it delivered.
    reads: BTreeMap<usize, u64>,
}

impl Linearizable {
    /// Of these topics.
    pub fn of(topics: impl IntoIterator<Item = Arc<str>>) -> Linearizable {
        Linearizable { topics: topics.into_iter().collect(), ..Linearizable::default() }
    }

    fn has_position(&self, body: Body, at: u64) -> Verdict {
        match self.after.get(&body).filter(|after| **after >= at) {
            Some(after) => Err(format!("{body:?} is at {at}, and was published after {after} was acknowledged")),
            None => Ok(()),
        }
    }
}

impl Checker<Roles, Event> for Linearizable {
    fn name(&self) -> &'static str {
        "linearizable"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, _roles: &Roles) -> Verdict {
        match event {
            Event::Started | Event::Gap(_) => _ = self.reads.remove(&node),
            Event::Published { topic, body } if self.topics.contains(topic) => {
                if let (Some(body), Some((last, _))) = (Body::read(body), self.acknowledged.last_key_value()) {
                    self.after.insert(body, *last);
                }
            }
            Event::Ordered(body, at) => {
                self.acknowledged.insert(*at, *body);
                return self.has_position(*body, *at);
            }
            Event::Delivered { topic, sequence, body, .. } if self.topics.contains(topic) => {
                // Between what it read last and this nothing is acknowledged.
                if let Some(before) = self.reads.insert(node, *sequence)
                    && before < *sequence
                    && let Some((at, missed)) = self.acknowledged.range(before + 1..*sequence).next()
                {
                    return Err(format!("node {node} reads {before} and then {sequence}, without {missed:?} at {at}"));
                }
                if let Some(body) = Body::read(body) {
                    return self.has_position(body, *sequence);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
