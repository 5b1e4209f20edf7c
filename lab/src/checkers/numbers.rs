//! Nobody's claim moves the numbers of epochs: a great one comes after one whose key was agreed.
//!
//! A member that confirmed a key may go on from it before the last confirmation installs it anywhere.

use std::collections::BTreeSet;

use sealcast_wire::{Monotonic, limits};

use super::{Checker, Event, Roles, Verdict};

/// See the module.
#[derive(Default)]
pub struct Numbers {
    agreed: BTreeSet<u32>,
}

impl Checker<Roles, Event> for Numbers {
    fn name(&self) -> &'static str {
        "numbers"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, _roles: &Roles) -> Verdict {
        let counter = match event {
            Event::Keyed(epoch) => epoch.counter,
            Event::Installed(view, _) => view.epoch.counter,
            _ => return Ok(()),
        };
        let before = counter.checked_sub(1).unwrap_or(u32::MAX);
        let follows = [counter, before].iter().any(|c| self.agreed.contains(c));
        if counter > limits::FIRST_COUNTER_MAX && !follows {
            return Err(format!("node {node} agrees on epoch {counter}, and nobody did on {before}"));
        }
        self.agreed.insert(counter);
        Ok(())
    }
}
