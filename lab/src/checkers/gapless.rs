//! Of the order a member misses nothing between two messages that it gets, unless it says so.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use sealcast_wire::Monotonic;

use super::{Checker, Event, Roles, Verdict};

/// See the module. All read all of these topics.
#[derive(Default)]
pub struct Gapless {
    topics: BTreeSet<Arc<str>>,
    /// The positions at which anybody got a message, and who did first.
    all: BTreeMap<u64, usize>,
    /// By node: those at which it did, ascending, since it began or said that it misses some.
    runs: BTreeMap<usize, Vec<u64>>,
    ended: Vec<(usize, Vec<u64>)>,
}

impl Gapless {
    /// Of these topics.
    pub fn of(topics: impl IntoIterator<Item = Arc<str>>) -> Gapless {
        Gapless { topics: topics.into_iter().collect(), ..Gapless::default() }
    }
}

impl Checker<Roles, Event> for Gapless {
    fn name(&self) -> &'static str {
        "gapless"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, _roles: &Roles) -> Verdict {
        match event {
            Event::Delivered { topic, sequence, .. } if self.topics.contains(topic) => {
                self.all.entry(*sequence).or_insert(node);
                self.runs.entry(node).or_default().push(*sequence);
            }
            Event::Started | Event::Gap(_) => {
                self.ended.extend(self.runs.get_mut(&node).map(|run| (node, mem::take(run))));
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self) -> Verdict {
        for (node, run) in self.ended.drain(..).chain(mem::take(&mut self.runs)) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            // A run that goes back is what another checker reports.
            let due = self.all.range(first..=last.max(first));
            if let Some((at, by)) = due.into_iter().find(|(at, _)| run.binary_search(at).is_err()) {
                return Err(format!("node {node} misses what node {by} got at {at}, between {first} and {last}"));
            }
        }
        Ok(())
    }
}
