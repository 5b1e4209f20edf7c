//! On a network that loses nothing, a message reaches every member that stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::Mutex;

use sealcast_wire::Monotonic;

use super::{Body, Checker, Event, Roles, Verdict};

/// See the module.
#[derive(Default)]
pub struct Loss {
    /// The members that each node sees.
    views: BTreeMap<usize, BTreeSet<usize>>,
    /// By message: who has still to get it.
    missing: BTreeMap<Body, BTreeSet<usize>>,
    tally: Arc<Mutex<Tally>>,
}

/// How many messages there were, and how many did not arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages published.
    pub published: u64,
    /// Deliveries that were due.
    pub due: u64,
    /// Of those, how many did not come.
    pub lost: u64,
}

impl Loss {
    /// A checker, and where it counts.
    pub fn new() -> (Loss, Arc<Mutex<Tally>>) {
        let loss = Loss::default();
        let tally = loss.tally.clone();
        (loss, tally)
    }

    /// A node is no longer there to receive, or never was: nothing is due to it.
    fn excuse(&mut self, node: usize) {
        for due in self.missing.values_mut() {
            due.remove(&node);
        }
        self.missing.retain(|_, due| !due.is_empty());
    }
}

impl Checker<Roles, Event> for Loss {
    fn name(&self) -> &'static str {
        "no loss"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, roles: &Roles) -> Verdict {
        match event {
            Event::Installed(view, _) => {
                self.views.insert(node, roles.nodes_of(view).into_iter().collect());
            }
            Event::Stopped | Event::Excluded => {
                self.views.remove(&node);
                self.excuse(node);
                // What a process that ends had just published may be lost with it.
                self.missing.retain(|body, _| body.author as usize != node);
            }
            Event::Published { body, .. } => {
                let Some(body) = Body::read(body) else { return Ok(()) };
                // Due to those who see the publisher as it sees them.
                let others = self.views.get(&node).into_iter().flatten().copied();
                let sees = |other: &usize| self.views.get(other).is_some_and(|v| v.contains(&node));
                let due: BTreeSet<usize> = others.filter(|o| *o != node && sees(o)).collect();
                let mut tally = self.tally.lock().map_err(|_| "tally")?;
                tally.published += 1;
                tally.due += due.len() as u64;
                if !due.is_empty() {
                    self.missing.insert(body, due);
                }
            }
            Event::Delivered { body, .. } => {
                if let Some(body) = Body::read(body)
                    && let Some(due) = self.missing.get_mut(&body)
                {
                    due.remove(&node);
                    if due.is_empty() {
                        self.missing.remove(&body);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self) -> Verdict {
        let lost: usize = self.missing.values().map(BTreeSet::len).sum();
        self.tally.lock().map_err(|_| "tally")?.lost = lost as u64;
        match self.missing.first_key_value() {
            Some((body, due)) => Err(format!("{lost} deliveries missing; the first: {body:?} at nodes {due:?}")),
            None => Ok(()),
        }
    }
}
