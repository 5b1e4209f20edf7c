//! Only liars are named as liars: what they say about others convicts nobody. That holds for relays, too.

use std::collections::BTreeSet;

use sealcast_keys::Misbehaviour;
use sealcast_wire::Monotonic;

use super::{Checker, Event, Roles, Verdict};

/// See the module.
#[derive(Default)]
pub struct Blame {
    changed: BTreeSet<usize>,
}

impl Checker<Roles, Event> for Blame {
    fn name(&self) -> &'static str {
        "blame"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, roles: &Roles) -> Verdict {
        match event {
            Event::Changed => _ = self.changed.insert(node),
            Event::LeftOut(cert, why)
                if !matches!(why, Misbehaviour::Silent | Misbehaviour::Slow) && !self.changed.contains(&node) =>
            {
                let whom = roles.node(cert);
                if whom.is_none_or(|whom| !self.changed.contains(&whom)) {
                    return Err(format!("node {node} leaves out {whom:?}, which behaves: {why:?}"));
                }
            }
            Event::Blames { relay, proof } if !self.changed.contains(&node) => {
                if !self.changed.contains(relay) {
                    return Err(format!("node {node} blames the relay, which behaves"));
                }
                if *proof == Some(false) {
                    return Err(format!("node {node} has evidence against the relay that does not hold"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
