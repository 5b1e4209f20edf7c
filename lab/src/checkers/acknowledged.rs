//! Nothing acknowledged is lost: what its publisher was told is at a position is delivered there, by all who were in the view
//! that ordered it and stay, unless they say that they miss some, or that nobody orders any more; and no two messages are acknowledged at one position.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sealcast_wire::{EpochId, Monotonic};

use super::{Body, Checker, Event, Roles, Verdict};

/// See the module. All read all of these topics.
#[derive(Default)]
pub struct Acknowledged {
    topics: BTreeSet<Arc<str>>,
    /// By position: what was delivered there first, and in which epoch it was sealed.
    delivered: BTreeMap<u64, (Body, Option<EpochId>)>,
    /// By position: what was acknowledged there.
    acknowledged: BTreeMap<u64, Body>,
    nodes: BTreeMap<usize, Run>,
}

/// A node's process.
#[derive(Default)]
struct Run {
    /// The epochs that it showed.
    shown: BTreeSet<EpochId>,
    /// The positions at which it got messages.
    got: BTreeSet<u64>,
    /// It may miss what is not after this position, as it said.
    misses: Option<u64>,
    /// It says that nobody orders: it may never learn what a majority of those held that are gone (B2).
    is_parted: bool,
}

impl Acknowledged {
    /// Of these topics.
    pub fn of(topics: impl IntoIterator<Item = Arc<str>>) -> Acknowledged {
        Acknowledged { topics: topics.into_iter().collect(), ..Acknowledged::default() }
    }
}

impl Checker<Roles, Event> for Acknowledged {
    fn name(&self) -> &'static str {
        "acknowledged"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, _roles: &Roles) -> Verdict {
        match event {
            Event::Installed(view, _) => _ = self.nodes.entry(node).or_default().shown.insert(view.epoch),
            Event::Started | Event::Changed | Event::Stopped | Event::Excluded => _ = self.nodes.remove(&node),
            Event::Sequencer(who) => self.nodes.entry(node).or_default().is_parted = who.is_none(),
            Event::Gap(from) => {
                let misses = &mut self.nodes.entry(node).or_default().misses;
                *misses = (*misses).max(Some(*from));
            }
            Event::Delivered { topic, sequence, body, epoch, .. } if self.topics.contains(topic) => {
                let Some(body) = Body::read(body) else { return Ok(()) };
                self.delivered.entry(*sequence).or_insert((body, *epoch));
                self.nodes.entry(node).or_default().got.insert(*sequence);
                if let Some(other) = self.acknowledged.get(sequence).filter(|other| **other != body) {
                    return Err(format!("{other:?} is acknowledged at {sequence}, where node {node} gets {body:?}"));
                }
            }
            Event::Ordered(body, at) => {
                if let Some(other) = self.acknowledged.insert(*at, *body) {
                    return Err(format!("{other:?} and {body:?} are acknowledged at {at}"));
                }
                if let Some((other, _)) = self.delivered.get(at).filter(|(other, _)| other != body) {
                    return Err(format!("{body:?} is acknowledged at {at}, where {other:?} was delivered"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self) -> Verdict {
        for (at, body) in &self.acknowledged {
            let Some((_, epoch)) = self.delivered.get(at) else {
                return Err(format!("{body:?} is acknowledged at {at}, where nobody saw it"));
            };
            let Some(epoch) = epoch else { continue };
            let lacks = |run: &Run| {
                let is_due = run.shown.contains(epoch) && run.misses.is_none_or(|last| *at > last);
                is_due && !run.is_parted && !run.got.contains(at)
            };
            if let Some((node, _)) = self.nodes.iter().find(|(_, run)| lacks(run)) {
                return Err(format!("{body:?} is acknowledged at {at}, in {epoch:?}, and never came to node {node}"));
            }
        }
        Ok(())
    }
}
