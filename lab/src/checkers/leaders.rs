//! Where somebody leads, only a member whom the centre gave the right is the first of a view (C2).

use std::collections::BTreeSet;

use sealcast_wire::{Monotonic, Slot};

use super::{Checker, Event, Roles, Verdict};

/// See the module.
pub struct Leaders {
    allowed: BTreeSet<usize>,
}

impl Leaders {
    /// These may lead.
    pub fn of(allowed: impl IntoIterator<Item = usize>) -> Leaders {
        Leaders { allowed: allowed.into_iter().collect() }
    }
}

impl Checker<Roles, Event> for Leaders {
    fn name(&self) -> &'static str {
        "leaders"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, roles: &Roles) -> Verdict {
        let Event::Installed(view, _) = event else { return Ok(()) };
        let first = view.members.get(Slot(0)).and_then(|it| roles.node(&it.id.cert));
        match first.filter(|it| !self.allowed.contains(it)) {
            Some(it) => Err(format!("node {node} has node {it} lead {:?}, without the right to", view.epoch)),
            None => Ok(()),
        }
    }
}
