//! Epochs' numbers ascend at one process that is not alone, and an excluded process installs nothing more.

use std::collections::{BTreeMap, BTreeSet};

use sealcast_wire::{EpochId, Monotonic};

use super::{Checker, Event, Roles, Verdict};

/// See the module.
#[derive(Default)]
pub struct Forward {
    /// The epoch that each is in, and the number of its members.
    at: BTreeMap<usize, (EpochId, usize)>,
    out: BTreeSet<usize>,
}

impl Checker<Roles, Event> for Forward {
    fn name(&self) -> &'static str {
        "forward"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, _roles: &Roles) -> Verdict {
        match event {
            Event::Started => {
                self.at.remove(&node);
                self.out.remove(&node);
            }
            Event::Excluded => {
                self.out.insert(node);
            }
            Event::Installed(view, _) if self.out.contains(&node) => {
                return Err(format!("node {node} is out, and installs {:?}", view.epoch));
            }
            Event::Installed(view, _) => {
                let before = self.at.insert(node, (view.epoch, view.members.len()));
                // Whoever is alone goes to any group's epoch.
                let back = |(before, n): &(EpochId, usize)| *n > 1 && view.epoch.counter <= before.counter;
                if let Some((before, _)) = before.filter(back) {
                    return Err(format!("node {node} goes from {before:?} to {:?}, which is no later", view.epoch));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
