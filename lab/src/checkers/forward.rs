//! Epochs' numbers ascend at one process, and an excluded process installs nothing more.

use std::collections::{BTreeMap, BTreeSet};

use sealcast_wire::{EpochId, Monotonic};

use super::{Cast, Checker, Event, Verdict};

/// See the module.
#[derive(Default)]
pub struct Forward {
    at: BTreeMap<usize, EpochId>,
    out: BTreeSet<usize>,
}

impl Checker for Forward {
    fn name(&self) -> &'static str {
        "forward"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, _cast: &Cast) -> Verdict {
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
                let before = self.at.insert(node, view.epoch);
                if let Some(before) = before.filter(|before| view.epoch.counter <= before.counter) {
                    return Err(format!("node {node} goes from {before:?} to {:?}, which is no later", view.epoch));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
