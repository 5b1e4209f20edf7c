//! Nothing is delivered twice to one process.

use std::collections::{BTreeMap, BTreeSet};

use sealcast_wire::Monotonic;

use super::{Body, Cast, Checker, Event, Verdict};

/// See the module.
#[derive(Default)]
pub struct Duplicates {
    delivered: BTreeMap<usize, BTreeSet<Body>>,
}

impl Checker<Cast, Event> for Duplicates {
    fn name(&self) -> &'static str {
        "no duplicate"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, _cast: &Cast) -> Verdict {
        match event {
            Event::Started => {
                self.delivered.remove(&node);
            }
            Event::Delivered { body, .. } => {
                if let Some(body) = Body::read(body)
                    && !self.delivered.entry(node).or_default().insert(body)
                {
                    return Err(format!("node {node} got {body:?} twice"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
