//! Fork consistency (D2): a relay may show members different logs, and of two members that were shown different ones neither
//! ever sees again what the other one sees.
//!
//! "v": SUNDR (Li, Krohn, Mazières, Shasha, OSDI 2004).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sealcast_wire::{EpochId, Monotonic};

use super::{Body, Checker, Event, Roles, Verdict};

/// See the module. All read all of these topics.
#[derive(Default)]
pub struct ForkConsistency {
    topics: BTreeSet<Arc<str>>,
    nodes: BTreeMap<usize, History>,
    /// Two nodes that got different messages at one position: the first such one.
    parted: BTreeMap<(usize, usize), u64>,
}

/// What a node saw.
#[derive(Default)]
struct History {
    at: BTreeMap<u64, Body>,
    /// The last position in this run of its process.
    last: Option<u64>,
    epochs: BTreeSet<EpochId>,
}

impl ForkConsistency {
    /// Of these topics.
    pub fn of(topics: impl IntoIterator<Item = Arc<str>>) -> ForkConsistency {
        ForkConsistency { topics: topics.into_iter().collect(), ..ForkConsistency::default() }
    }

    fn delivered(&mut self, node: usize, position: u64, body: Body) -> Verdict {
        for (&other, history) in self.nodes.iter().filter(|(other, _)| **other != node) {
            let pair = (node.min(other), node.max(other));
            match history.at.get(&position) {
                Some(theirs) if *theirs != body => {
                    let parted = self.parted.entry(pair).or_insert(position);
                    *parted = position.min(*parted);
                }
                Some(_) if self.parted.get(&pair).is_some_and(|parted| *parted < position) => {
                    let what = "see the same again, after they saw different messages";
                    return Err(format!("at {position} nodes {node} and {other} {what}"));
                }
                _ => {}
            }
        }
        let history = self.nodes.entry(node).or_default();
        if history.at.insert(position, body).is_some_and(|before| before != body) {
            return Err(format!("node {node} sees another message at {position} than before"));
        }
        match history.last.replace(position).filter(|last| *last >= position) {
            Some(last) => Err(format!("node {node} sees {position} after {last}")),
            None => Ok(()),
        }
    }

    fn installed(&mut self, node: usize, epoch: EpochId) -> Verdict {
        for ((one, two), position) in self.parted.iter().filter(|((one, two), _)| [*one, *two].contains(&node)) {
            let other = if *one == node { two } else { one };
            if self.nodes.get(other).is_some_and(|it| it.epochs.contains(&epoch)) {
                let what = format!("have both epoch {epoch:?}, and saw different messages at {position}");
                return Err(format!("nodes {node} and {other} {what}"));
            }
        }
        self.nodes.entry(node).or_default().epochs.insert(epoch);
        Ok(())
    }
}

impl Checker<Roles, Event> for ForkConsistency {
    fn name(&self) -> &'static str {
        "fork consistency"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, _roles: &Roles) -> Verdict {
        match event {
            Event::Started => self.nodes.entry(node).or_default().last = None,
            Event::Installed(view, _) => return self.installed(node, view.epoch),
            Event::Delivered { topic, sequence, body, .. } if self.topics.contains(topic) => {
                if let Some(body) = Body::read(body) {
                    return self.delivered(node, *sequence, body);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
