//! Epochs never go back at one process, none comes twice, and an excluded process installs nothing more.

use std::collections::{BTreeMap, BTreeSet};

use sealcast_wire::{EpochId, Monotonic};

use super::{Cast, Checker, Event, Verdict};

/// See the module.
#[derive(Default)]
pub struct Forward {
    at: BTreeMap<usize, Vec<EpochId>>,
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
                let before = self.at.entry(node).or_default();
                let back = before.last().is_some_and(|last| view.epoch.counter < last.counter);
                if back || before.contains(&view.epoch) {
                    return Err(format!("node {node} goes from {:?} back to {:?}", before.last(), view.epoch));
                }
                before.push(view.epoch);
            }
            _ => {}
        }
        Ok(())
    }
}
