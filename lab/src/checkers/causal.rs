//! Causal: what a member delivered or published ordered before it publishes an ordered message is before that in the order;
//! and in a view, what it published fifo before comes before it to all others. At a view's end the order does not wait for fifo
//! messages, and a publisher may get its own ones later, if they are lost on their way back to it.
//!
//! Positions rise at each member, so it is enough to compare them with those that the publisher had seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sealcast_wire::{EpochId, Monotonic};

use super::{Body, Checker, Event, Roles, Verdict};

/// See the module.
#[derive(Default)]
pub struct Causal {
    ordered: BTreeSet<Arc<str>>,
    fifo: BTreeSet<Arc<str>>,
    /// By node: the last position that it delivered.
    seen: BTreeMap<usize, u64>,
    /// By message: the last position that its publisher had delivered before.
    after: BTreeMap<Body, u64>,
    /// The epoch that each node is in.
    epochs: BTreeMap<usize, EpochId>,
    /// By receiver and sender's run: the number and the epoch of the last ordered message that came.
    last: BTreeMap<(usize, u32, u32), (u64, Option<EpochId>)>,
    /// By sender's run and number: the positions of its messages.
    positions: BTreeMap<(u32, u32), BTreeMap<u64, u64>>,
}

impl Causal {
    /// Of ordered topics, and fifo ones beside them.
    pub fn of(ordered: impl IntoIterator<Item = Arc<str>>, fifo: impl IntoIterator<Item = Arc<str>>) -> Causal {
        Causal { ordered: ordered.into_iter().collect(), fifo: fifo.into_iter().collect(), ..Causal::default() }
    }

    fn ordered(&mut self, node: usize, body: Body, at: u64) -> Verdict {
        if let Some(after) = self.after.get(&body).filter(|after| **after >= at) {
            return Err(format!("node {node} gets {body:?} at {at}; it was published after what is at {after}"));
        }
        let run = self.positions.entry((body.author, body.life)).or_default();
        run.insert(body.number, at);
        let before = run.range(..body.number).next_back().filter(|(_, it)| **it >= at);
        let after = run.range(body.number + 1..).next().filter(|(_, it)| **it <= at);
        match before.or(after) {
            Some((number, it)) => Err(format!("{body:?} is at {at}, and number {number} of its publisher at {it}")),
            None => Ok(()),
        }
    }
}

impl Checker<Roles, Event> for Causal {
    fn name(&self) -> &'static str {
        "causal"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, _roles: &Roles) -> Verdict {
        match event {
            Event::Installed(view, _) => _ = self.epochs.insert(node, view.epoch),
            Event::Started => {
                self.epochs.remove(&node);
                self.seen.remove(&node);
                self.last.retain(|(to, ..), _| *to != node);
            }
            Event::Published { topic, body } if self.ordered.contains(topic) => {
                if let (Some(body), Some(seen)) = (Body::read(body), self.seen.get(&node)) {
                    self.after.insert(body, *seen);
                }
            }
            Event::Delivered { topic, sequence, body, epoch, .. } if self.ordered.contains(topic) => {
                self.seen.insert(node, *sequence);
                let Some(body) = Body::read(body) else { return Ok(()) };
                self.last.insert((node, body.author, body.life), (body.number, *epoch));
                return self.ordered(node, body, *sequence);
            }
            Event::Delivered { topic, body, epoch, .. } if self.fifo.contains(topic) => {
                let Some(body) = Body::read(body) else { return Ok(()) };
                let last = self.last.get(&(node, body.author, body.life));
                let is_now = epoch.is_some() && self.epochs.get(&node) == epoch.as_ref();
                if let Some((last, in_epoch)) = last
                    && *last > body.number
                    && in_epoch == epoch
                    && is_now
                    && body.author as usize != node
                {
                    return Err(format!("node {node} gets {body:?} after number {last}, which is ordered after it"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
