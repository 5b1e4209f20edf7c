//! One primary: at no time two primary views order in parallel, and nothing is delivered in a view that does not order (B1).
//!
//! Each view in which anything is ordered has its sequence numbers to itself: those of two views never mix, as those of two
//! primaries that go on from one position would.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sealcast_wire::{CertHash, EpochId, Monotonic};

use super::{Checker, Event, Roles, Verdict};

/// See the module.
#[derive(Default)]
pub struct OnePrimary {
    topics: BTreeSet<Arc<str>>,
    nodes: BTreeMap<usize, Status>,
    /// By position: the epoch of the view that ordered it.
    ordered: BTreeMap<u64, EpochId>,
    /// By epoch: the first and the last of its positions.
    ranges: BTreeMap<EpochId, (u64, u64)>,
    /// By epoch: who orders, and who said so first.
    sequencers: BTreeMap<EpochId, (CertHash, usize)>,
}

/// What a node shows of the order.
#[derive(Default)]
struct Status {
    epoch: Option<EpochId>,
    since: Monotonic,
    sequencer: Option<CertHash>,
    shown: BTreeSet<EpochId>,
    /// Those of them in which it said that somebody orders.
    primary: BTreeSet<EpochId>,
}

impl OnePrimary {
    /// Of these topics.
    pub fn of(topics: impl IntoIterator<Item = Arc<str>>) -> OnePrimary {
        OnePrimary { topics: topics.into_iter().collect(), ..OnePrimary::default() }
    }

    /// A position of the order of this view.
    fn orders(&mut self, at: u64, epoch: EpochId) -> Verdict {
        if let Some(other) = self.ordered.insert(at, epoch).filter(|other| *other != epoch) {
            return Err(format!("{other:?} and {epoch:?} both order at {at}"));
        }
        let before = self.ordered.range(..at).next_back().map(|(_, it)| *it);
        let after = self.ordered.range(at + 1..).next().map(|(_, it)| *it);
        if let (Some(before), Some(after)) = (before, after)
            && before == after
            && before != epoch
        {
            return Err(format!("{epoch:?} orders at {at}, among positions of {before:?}"));
        }
        let (first, last) = *self.ranges.entry(epoch).or_insert((at, at));
        // It goes on beside what is its own already.
        let next = if at > last { before } else { after };
        if (at < first || at > last) && next != Some(epoch) {
            return Err(format!("{epoch:?} orders at {at} and from {first} to {last}, and {next:?} between them"));
        }
        self.ranges.insert(epoch, (first.min(at), last.max(at)));
        Ok(())
    }
}

impl Checker<Roles, Event> for OnePrimary {
    fn name(&self) -> &'static str {
        "one primary"
    }

    fn event(&mut self, at: Monotonic, node: usize, event: &Event, _roles: &Roles) -> Verdict {
        let status = self.nodes.entry(node).or_default();
        match event {
            Event::Started | Event::Stopped | Event::Excluded => *status = Status::default(),
            Event::Installed(view, _) => {
                // What was ordered there may come once the next view is shown.
                status.note();
                (status.epoch, status.since) = (Some(view.epoch), at);
                status.shown.insert(view.epoch);
            }
            Event::Sequencer(who) => {
                // Who catches up in a view says who orders there before it shows that view; else it says so at once.
                if at > status.since {
                    status.note();
                }
                status.sequencer = *who;
            }
            Event::Delivered { topic, sequence, epoch: Some(epoch), .. } if self.topics.contains(topic) => {
                status.note();
                if status.shown.contains(epoch) && !status.primary.contains(epoch) {
                    return Err(format!("node {node} gets {sequence} in {epoch:?}, which does not order"));
                }
                if let Some(who) = status.sequencer.filter(|_| status.epoch == Some(*epoch)) {
                    let (theirs, by) = *self.sequencers.entry(*epoch).or_insert((who, node));
                    if theirs != who {
                        return Err(format!("nodes {by} and {node} name different sequencers of {epoch:?}"));
                    }
                }
                return self.orders(*sequence, *epoch);
            }
            _ => {}
        }
        Ok(())
    }
}

impl Status {
    /// Somebody orders in the view that is shown. Asked once that is known: who orders is shown after the view, at once.
    fn note(&mut self) {
        if let (Some(epoch), Some(_)) = (self.epoch, self.sequencer) {
            self.primary.insert(epoch);
        }
    }
}
