//! One order: at a place of a topic all see the same message, and nobody sees places go back.

use std::collections::BTreeMap;
use std::sync::Arc;

use sealcast_wire::Monotonic;

use super::{Cast, Checker, Event, Verdict};

/// See the module.
#[derive(Default)]
pub struct OneOrder {
    at: BTreeMap<(Arc<str>, u64), Arc<[u8]>>,
    last: BTreeMap<(usize, Arc<str>), u64>,
}

impl Checker<Cast, Event> for OneOrder {
    fn name(&self) -> &'static str {
        "one order"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, _cast: &Cast) -> Verdict {
        match event {
            Event::Started => self.last.retain(|(n, _), _| *n != node),
            Event::Delivered { sequence, topic, body, .. } => {
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
