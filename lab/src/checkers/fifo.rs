//! What is published fifo comes in each sender's order and without a gap to all who have it in their view, and it in its own,
//! as long as both live.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sealcast_wire::Monotonic;

use super::{Body, Checker, Event, Roles, Verdict};

/// See the module.
#[derive(Default)]
pub struct Fifo {
    topics: BTreeSet<Arc<str>>,
    /// Whether nothing is due to a node that says that it misses some of the order.
    ordered: bool,
    /// Those who say that nobody orders.
    parted: BTreeSet<usize>,
    /// The members that each node sees.
    views: BTreeMap<usize, BTreeSet<usize>>,
    /// The number of the epoch that each of them was in last.
    epochs: BTreeMap<usize, u32>,
    /// By message: who has still to get it.
    missing: BTreeMap<Body, BTreeSet<usize>>,
    /// By receiver and sender's run: the number of the message that came last.
    last: BTreeMap<(usize, u32, u32), u64>,
    /// Those who said that they miss some of the order: what they published before may be in doubt.
    gaps: BTreeSet<usize>,
    /// Messages of those that somebody lacks, with what is wrong, unless they turn out to be in doubt.
    owed: BTreeMap<Body, String>,
}

impl Fifo {
    /// Of these topics.
    pub fn of(topics: impl IntoIterator<Item = Arc<str>>) -> Fifo {
        Fifo { topics: topics.into_iter().collect(), ..Fifo::default() }
    }

    /// Of these, which are ordered: who says that it misses some gets no more of what was published until then; nor does, in
    /// the end, who says that nobody orders.
    pub fn ordered(topics: impl IntoIterator<Item = Arc<str>>) -> Fifo {
        Fifo { ordered: true, ..Fifo::of(topics) }
    }

    /// Nothing is due any more where this does not hold of sender and receiver.
    fn retain(&mut self, is_due: impl Fn(usize, usize) -> bool) {
        self.missing.retain(|body, due| {
            due.retain(|node| is_due(body.author as usize, *node));
            !due.is_empty()
        });
    }
}

impl Checker<Roles, Event> for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, roles: &Roles) -> Verdict {
        match event {
            Event::Installed(view, _) => {
                let nodes: BTreeSet<usize> = roles.nodes_of(view).into_iter().collect();
                // Whom a sender does not see any more gets nothing of it, and who does not see a sender takes nothing of it.
                let sees = |from: usize, to: usize| from != node || nodes.contains(&to);
                // It may have passed over a view without the others, which it never showed: they get nothing of that.
                let before = self.epochs.insert(node, view.epoch.counter);
                let passed = before.is_some_and(|before| view.epoch.counter > before + 1);
                self.retain(|from, to| sees(from, to) && sees(to, from) && !(passed && (from == node || to == node)));
                self.views.insert(node, nodes);
            }
            Event::Started | Event::Changed | Event::Stopped | Event::Excluded => {
                self.views.remove(&node);
                self.epochs.remove(&node);
                self.parted.remove(&node);
                self.last.retain(|(to, ..), _| *to != node);
                self.retain(|from, to| from != node && to != node);
                self.gaps.remove(&node);
                self.owed.retain(|body, _| body.author as usize != node);
            }
            Event::Published { topic, body } if self.topics.contains(topic) => {
                let Some(body) = Body::read(body) else { return Ok(()) };
                let others = self.views.get(&node).into_iter().flatten().copied();
                let sees = |other: &usize| self.views.get(other).is_some_and(|v| v.contains(&node));
                let due: BTreeSet<usize> = others.filter(|other| *other != node && sees(other)).collect();
                if !due.is_empty() {
                    self.missing.insert(body, due);
                }
            }
            Event::Delivered { topic, body, .. } if self.topics.contains(topic) => {
                let Some(body) = Body::read(body) else { return Ok(()) };
                let last = self.last.insert((node, body.author, body.life), body.number);
                if last.is_some_and(|last| last >= body.number) {
                    return Err(format!("node {node} gets {body:?} after number {}", last.unwrap_or_default()));
                }
                // What came before it and is due to this node has come before it.
                let before = self.missing.iter().find(|(it, due)| {
                    (it.author, it.life) == (body.author, body.life) && it.number < body.number && due.contains(&node)
                });
                if let Some(before) = before.map(|(it, _)| *it) {
                    let wrong = format!("node {node} gets {body:?} without {before:?}");
                    // Whose fate is not known is told in its turn.
                    if !self.ordered || !self.gaps.contains(&(body.author as usize)) {
                        return Err(wrong);
                    }
                    self.owed.entry(before).or_insert(wrong);
                    self.missing.remove(&before);
                }
                if let Some(due) = self.missing.get_mut(&body) {
                    due.remove(&node);
                    if due.is_empty() {
                        self.missing.remove(&body);
                    }
                }
            }
            Event::Sequencer(Some(_)) => _ = self.parted.remove(&node),
            Event::Sequencer(None) if self.ordered => _ = self.parted.insert(node),
            Event::Gap(_) if self.ordered => {
                self.gaps.insert(node);
                self.retain(|_, to| to != node);
            }
            Event::Doubted(body) => {
                self.missing.remove(body);
                self.owed.remove(body);
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self) -> Verdict {
        let parted = std::mem::take(&mut self.parted);
        self.retain(|_, to| !parted.contains(&to));
        if let Some((_, wrong)) = self.owed.pop_first() {
            return Err(wrong);
        }
        match self.missing.first_key_value() {
            Some((body, due)) => {
                let missing: usize = self.missing.values().map(BTreeSet::len).sum();
                Err(format!("{missing} deliveries missing; the first: {body:?} at nodes {due:?}"))
            }
            None => Ok(()),
        }
    }
}
