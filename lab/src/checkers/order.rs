//! One order: at a position of a topic all see the same message, and nobody sees positions go back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sealcast_wire::Monotonic;

use super::{Checker, Event, Roles, Verdict};

/// See the module.
#[derive(Default)]
pub struct OneOrder {
    topics: BTreeSet<Arc<str>>,
    at: BTreeMap<(Arc<str>, u64), Arc<[u8]>>,
    last: BTreeMap<(usize, Arc<str>), u64>,
}

impl OneOrder {
    /// Of these topics.
    pub fn of(topics: impl IntoIterator<Item = Arc<str>>) -> OneOrder {
        OneOrder { topics: topics.into_iter().collect(), ..OneOrder::default() }
    }
}

impl Checker<Roles, Event> for OneOrder {
    fn name(&self) -> &'static str {
        "one order"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, _roles: &Roles) -> Verdict {
        match event {
            Event::Started => self.last.retain(|(n, _), _| *n != node),
            Event::Delivered { sequence, topic, body, .. } if self.topics.contains(topic) => {
                let first = self.at.entry((topic.clone(), *sequence)).or_insert_with(|| body.clone());
                if first != body {
                    return Err(format!("node {node} sees another message at {topic} {sequence}"));
                }
                if let Some(before) = self.last.insert((node, topic.clone()), *sequence)
                    && before >= *sequence
                {
                    return Err(format!("node {node} sees {topic} {sequence} after {before}"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
