//! All who keep a state have the same one after the message at the same position: none is missing in it, none is in it twice.

use std::collections::BTreeMap;

use sealcast_wire::Monotonic;

use super::{Checker, Event, Roles, Verdict};

/// See the module.
#[derive(Default)]
pub struct States {
    /// By position: what all that was said up to there makes, and who said so first.
    all: BTreeMap<u64, ([u8; 32], usize)>,
}

impl Checker<Roles, Event> for States {
    fn name(&self) -> &'static str {
        "states"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, _roles: &Roles) -> Verdict {
        if let Event::State(position, hash) = event {
            let (theirs, by) = *self.all.entry(*position).or_insert((*hash, node));
            if theirs != *hash {
                return Err(format!("node {node} has another state than node {by} after the message at {position}"));
            }
        }
        Ok(())
    }
}
