//! Who is not a member is neither heard nor can it read (A5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sealcast_wire::{Change, EpochId, Monotonic, View};

use super::{Body, Checker, Event, Roles, Verdict, member_of};

/// See the module.
#[derive(Default)]
pub struct Exclusions {
    /// Where the order of a view, and what comes after it, is delivered once it is known, though others were shown meanwhile
    /// that are not primary.
    in_turn: BTreeSet<Arc<str>>,
    nodes: BTreeMap<usize, Membership>,
    rosters: BTreeMap<EpochId, BTreeSet<usize>>,
    /// Who was shut out at its publisher when a message was published, and where that stood.
    shut_out: BTreeMap<Body, (BTreeSet<usize>, u32)>,
}

impl Exclusions {
    /// On these topics the last messages of a primary view may come after others that are not.
    pub fn of(in_turn: impl IntoIterator<Item = Arc<str>>) -> Exclusions {
        Exclusions { in_turn: in_turn.into_iter().collect(), ..Exclusions::default() }
    }
}

/// How a node sees its group.
#[derive(Default)]
struct Membership {
    view: Option<Arc<View>>,
    /// The epochs of this and former views.
    installed: BTreeSet<EpochId>,
    /// Whose keys were ever agreed.
    keyed: BTreeSet<EpochId>,
    /// Whose keys are agreed, and that no installed view has passed over.
    agreed: BTreeSet<EpochId>,
    /// Who was a member once and is, or is about to be, none.
    gone: BTreeSet<usize>,
    /// Whom a change under way would shut out.
    prepared: BTreeSet<usize>,
    /// What was published meanwhile: forgiven if the change is given up, unless it is an eviction.
    meanwhile: Vec<Body>,
}

impl Checker<Roles, Event> for Exclusions {
    fn name(&self) -> &'static str {
        "exclusion"
    }

    fn event(&mut self, _at: Monotonic, node: usize, event: &Event, roles: &Roles) -> Verdict {
        let membership = self.nodes.entry(node).or_default();
        match event {
            Event::Started => *membership = Membership::default(),
            Event::Prepared(next) => {
                let stays: BTreeSet<usize> = roles.nodes_of(next).into_iter().collect();
                let was: BTreeSet<usize> =
                    membership.view.iter().flat_map(|v| roles.nodes_of(v)).filter(|n| !stays.contains(n)).collect();
                if next.change == Change::Evicted {
                    membership.gone.extend(&was);
                }
                membership.prepared = was;
            }
            Event::Keyed(epoch) => {
                membership.agreed.insert(*epoch);
                membership.keyed.insert(*epoch);
            }
            Event::Abandoned => {
                membership.prepared.clear();
                membership.meanwhile.drain(..).for_each(|body| drop(self.shut_out.remove(&body)));
            }
            Event::Installed(view, _) => {
                let members: BTreeSet<usize> = roles.nodes_of(view).into_iter().collect();
                let was = membership.view.iter().flat_map(|v| roles.nodes_of(v));
                membership.gone.extend(was);
                membership.gone.retain(|n| !members.contains(n));
                membership.prepared.clear();
                // Whoever is in the new view after all may read what waited for it.
                for body in membership.meanwhile.drain(..) {
                    if let Some((out, _)) = self.shut_out.get_mut(&body) {
                        out.retain(|n| !members.contains(n));
                    }
                }
                membership.installed.insert(view.epoch);
                membership.keyed.insert(view.epoch);
                membership.agreed.clear();
                membership.view = Some(view.clone());
                self.rosters.insert(view.epoch, members);
            }
            Event::Published { body, .. } => {
                if let (Some(body), Some(view)) = (Body::read(body), &membership.view) {
                    let out: BTreeSet<usize> = membership.gone.union(&membership.prepared).copied().collect();
                    if !membership.prepared.is_subset(&membership.gone) {
                        membership.meanwhile.push(body);
                    }
                    if !out.is_empty() {
                        self.shut_out.insert(body, (out, view.epoch.counter));
                    }
                }
            }
            Event::Read(body, epoch) => return self.may_read(node, *body, Some(*epoch)),
            Event::Delivered { topic, body, origin, epoch, .. } => {
                let is_due = self.in_turn.contains(topic) && epoch.is_some_and(|e| membership.keyed.contains(&e));
                let heard = member_of(origin).and_then(|m| roles.node(&m.cert));
                if let (Some(author), Some(view)) = (heard, &membership.view)
                    && !is_due
                    && !roles.nodes_of(view).contains(&author)
                    // A key that is agreed opens before its view is installed; one that was passed over never again. The
                    // number does not tell them apart where the node was alone: it goes to any group's epoch.
                    && epoch.is_none_or(|e| {
                        let passed = e.counter < view.epoch.counter && !membership.agreed.contains(&e);
                        membership.installed.contains(&e) || passed
                    })
                {
                    return Err(format!(
                        "node {node} heard node {author} under {epoch:?}, no member of {:?}",
                        view.epoch
                    ));
                }
                if let Some(body) = Body::read(body) {
                    return self.may_read(node, body, *epoch);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Exclusions {
    fn may_read(&self, node: usize, body: Body, epoch: Option<EpochId>) -> Verdict {
        if let Some((out, at)) = self.shut_out.get(&body)
            && out.contains(&node)
            && epoch.is_some_and(|e| e.counter <= *at)
        {
            return Err(format!("node {node} read {body:?}, published when it was shut out"));
        }
        if let Some(roster) = epoch.and_then(|e| self.rosters.get(&e))
            && !roster.contains(&node)
        {
            return Err(format!("node {node} read {body:?} of an epoch that it is no member of"));
        }
        Ok(())
    }
}
