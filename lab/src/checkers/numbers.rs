//! Nobody's claim moves the numbers of epochs: a great one comes after one that was in use.

use std::collections::BTreeSet;

use sealcast_wire::{Monotonic, limits};

use super::{Checker, Event, Roles, Verdict};

/// See the module.
#[derive(Default)]
pub struct Numbers {
    installed: BTreeSet<u32>,
}

impl Checker<Roles, Event> for Numbers {
    fn name(&self) -> &'static str {
        "numbers"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, _roles: &Roles) -> Verdict {
        let Event::Installed(view, _) = event else { return Ok(()) };
        let counter = view.epoch.counter;
        let before = counter.checked_sub(1).unwrap_or(u32::MAX);
        let follows = [counter, before].iter().any(|c| self.installed.contains(c));
        if counter > limits::FIRST_COUNTER_MAX && !follows {
            return Err(format!("node {node} installs epoch {counter}, and nobody was in {before}"));
        }
        self.installed.insert(counter);
        Ok(())
    }
}
