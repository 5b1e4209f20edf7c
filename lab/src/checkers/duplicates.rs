//! Nothing is delivered twice to one process.

use std::collections::{BTreeMap, BTreeSet};

use sealcast_wire::Monotonic;

use super::{Body, Checker, Event, Roles, Verdict};

/// See the module.
#[derive(Default)]
pub struct Duplicates {
    delivered: BTreeMap<usize, BTreeSet<Body>>,
}

impl Checker<Roles, Event> for Duplicates {
    fn name(&self) -> &'static str {
        "no duplicate"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, _roles: &Roles) -> Verdict {
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
