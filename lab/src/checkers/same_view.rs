//! Same view (B4): members that deliver ordered messages in one view agree on who is in it, deliver one prefix of one list in
//! it, and the whole of that if they go on to the same next view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sealcast_wire::{EpochId, Monotonic};

use super::{Body, Checker, Event, Roles, Verdict};

/// See the module. All read all of these topics.
#[derive(Default)]
pub struct SameView {
    topics: BTreeSet<Arc<str>>,
    members: BTreeMap<EpochId, BTreeSet<usize>>,
    /// By epoch: what is delivered in it, by whoever is farthest.
    lists: BTreeMap<EpochId, Vec<(u64, Body)>>,
    /// By epoch: the one before it in which messages were delivered, and how many; and who showed that first.
    before: BTreeMap<EpochId, (EpochId, usize, usize)>,
    nodes: BTreeMap<usize, Progress>,
}

/// How far a node is.
#[derive(Default)]
struct Progress {
    /// The last epoch in which it delivered something, and how much.
    last: Option<(EpochId, usize)>,
    /// In this epoch it misses some, as it said.
    misses: Option<EpochId>,
}

impl SameView {
    /// Of these topics.
    pub fn of(topics: impl IntoIterator<Item = Arc<str>>) -> SameView {
        SameView { topics: topics.into_iter().collect(), ..SameView::default() }
    }

    fn delivered(&mut self, node: usize, epoch: EpochId, (position, body): (u64, Body)) -> Verdict {
        let progress = self.nodes.entry(node).or_default();
        if progress.misses == Some(epoch) {
            return Ok(());
        }
        let count = match progress.last {
            Some((last, count)) if last == epoch => count,
            last => {
                if let Some((last, count)) = last {
                    let (theirs, all, by) = *self.before.entry(epoch).or_insert((last, count, node));
                    if (theirs, all) != (last, count) {
                        return Err(format!(
                            "node {node} comes to {epoch:?} after {count} messages in {last:?}, node {by} after {all} in {theirs:?}"
                        ));
                    }
                }
                0
            }
        };
        progress.last = Some((epoch, count + 1));
        let list = self.lists.entry(epoch).or_default();
        match list.get(count) {
            None => list.push((position, body)),
            Some(other) if *other != (position, body) => {
                return Err(format!(
                    "node {node} gets {body:?} at {position} as message {count} of {epoch:?}, and another one got {:?} at {}",
                    other.1, other.0
                ));
            }
            Some(_) => {}
        }
        Ok(())
    }
}

impl Checker<Roles, Event> for SameView {
    fn name(&self) -> &'static str {
        "same view"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, roles: &Roles) -> Verdict {
        match event {
            Event::Started => _ = self.nodes.remove(&node),
            Event::Gap(_) => {
                let progress = self.nodes.entry(node).or_default();
                *progress = Progress { last: None, misses: progress.last.map(|(epoch, _)| epoch).or(progress.misses) };
            }
            Event::Installed(view, _) => {
                let members: BTreeSet<usize> = roles.nodes_of(view).into_iter().collect();
                let first = self.members.entry(view.epoch).or_insert_with(|| members.clone());
                if *first != members {
                    return Err(format!("node {node} has {members:?} in {:?}, another one {first:?}", view.epoch));
                }
            }
            Event::Delivered { topic, sequence, body, epoch: Some(epoch), .. } if self.topics.contains(topic) => {
                if let Some(body) = Body::read(body) {
                    return self.delivered(node, *epoch, (*sequence, body));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
