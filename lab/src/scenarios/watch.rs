//! What the simulation sees of a run: it hands every event to the checkers and knows who is in which view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sealcast_keys::{Misbehaviour, Notice};
use sealcast_sim::{Observer, Reach};
use sealcast_wire::{EpochId, Monotonic, View};

use super::fixture::Player;
use crate::checkers::{Body, Event, Panel, Roles};
use crate::member::MemberEvent;

/// See the module.
pub(crate) struct Watch {
    pub(super) panel: Panel,
    pub(super) roles: Roles,
    pub(super) members: usize,
    pub(super) views: Vec<Option<Arc<View>>>,
    pub(super) out: Vec<bool>,
    pub(super) never: Vec<(BTreeSet<usize>, usize)>,
    /// They read nothing that is published from then on.
    deaf: BTreeMap<usize, BTreeSet<Body>>,
    published: BTreeSet<Body>,
    pub(super) majorities: Vec<BTreeSet<usize>>,
    /// Who named whom as one that lies.
    pub(super) named: BTreeSet<(usize, usize)>,
    /// Who found that the relay misbehaves, and whether with evidence.
    pub(super) blames: BTreeSet<(usize, bool)>,
    pub(super) changed: bool,
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
    pub(super) installed: u64,
    pub(super) delivered: u64,
    /// By node: how many messages of others it got.
    pub(super) heard: BTreeMap<usize, u64>,
    /// By node: of which version of the wire its epoch is, where it tells that.
    pub(super) versions: BTreeMap<usize, u8>,
    pub(super) story: Option<Vec<String>>,
}

impl Watch {
    /// Nothing seen yet; the first `members` nodes are members.
    pub(super) fn new(panel: Panel, roles: Roles, members: usize, story: bool) -> Watch {
        Watch {
            panel,
            roles,
            members,
            views: vec![None; members],
            out: vec![false; members],
            never: Vec::new(),
            deaf: BTreeMap::new(),
            published: BTreeSet::new(),
            majorities: Vec::new(),
            named: BTreeSet::new(),
            blames: BTreeSet::new(),
            changed: false,
            datagrams: 0,
            bytes: 0,
            installed: 0,
            delivered: 0,
            heard: BTreeMap::new(),
            versions: BTreeMap::new(),
            story: story.then(Vec::new),
        }
    }

    /// Adds a line to the story, if one is kept.
    pub(super) fn tell(&mut self, at: Monotonic, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(format!("{:>12.3} ms  {}", at.micros() as f64 / 1e3, line()));
        }
    }

    /// From now on a member reads nothing that is not published yet.
    pub(super) fn deafen(&mut self, member: usize) {
        self.deaf.insert(member, self.published.clone());
    }

    fn look_whether_deaf(&mut self, at: Monotonic, node: usize, body: Option<Body>) {
        let is_before = |before: &BTreeSet<Body>| body.is_some_and(|it| before.contains(&it));
        if self.deaf.get(&node).is_some_and(|before| !is_before(before)) {
            self.panel.report(at, "deaf", format!("node {node} reads {body:?}"));
        }
    }

    /// The epoch that a member is in.
    pub(super) fn epoch(&self, member: usize) -> Option<EpochId> {
        self.views[member].as_ref().map(|view| view.epoch)
    }

    /// Whether all of these have one view of exactly these.
    pub(super) fn agree(&self, members: &BTreeSet<usize>) -> bool {
        let mut epoch = None;
        members.iter().all(|&m| {
            let Some(view) = &self.views[m] else { return false };
            let nodes: BTreeSet<usize> = self.roles.nodes_of(view).into_iter().collect();
            nodes == *members && *epoch.get_or_insert(view.epoch) == view.epoch
        })
    }

    /// Whether all of these have one view in which they all are.
    pub(super) fn together(&self, members: &BTreeSet<usize>) -> bool {
        let mut epoch = None;
        members.iter().all(|&m| {
            let Some(view) = &self.views[m] else { return false };
            let nodes: BTreeSet<usize> = self.roles.nodes_of(view).into_iter().collect();
            nodes.is_superset(members) && *epoch.get_or_insert(view.epoch) == view.epoch
        })
    }

    /// Who sees what, for a report.
    pub(super) fn summary(&self) -> String {
        let mut by_view: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (member, view) in self.views.iter().enumerate() {
            let sees = match view {
                _ if self.out[member] => "out".to_owned(),
                Some(v) => format!("{:?} of {:?}", v.epoch, self.roles.nodes_of(v)),
                None => "nothing".to_owned(),
            };
            by_view.entry(sees).or_default().push(member);
        }
        by_view.iter().map(|(sees, who)| format!("{who:?} see {sees}")).collect::<Vec<_>>().join("; ")
    }

    /// What carries the members cannot any more.
    pub(crate) fn broken(&mut self, at: Monotonic, why: &str) {
        self.panel.report(at, "carrier", why.to_owned());
    }

    /// Reports if a member is with others in a view, and without most of those with whom it should be.
    pub(super) fn look_for_majority(&mut self, at: Monotonic, member: usize) {
        let Some(view) = self.views.get(member).and_then(Option::as_ref) else { return };
        let nodes = self.roles.nodes_of(view);
        for most in self.majorities.iter().filter(|most| most.contains(&member)) {
            let with = nodes.iter().filter(|n| most.contains(n)).count();
            if with < nodes.len() && 2 * with <= most.len() {
                let what = format!("node {member} is with {nodes:?} in {:?}", view.epoch);
                self.panel.report(at, "majority", what);
            }
        }
    }

    pub(super) fn stopped(&mut self, at: Monotonic, member: usize) {
        self.views[member] = None;
        self.changed = true;
        self.panel.event(at, member, &Event::Stopped);
    }
}

impl Observer<Player> for Watch {
    fn sent(&mut self, at: Monotonic, from: usize, _to: Reach, datagram: &[u8]) {
        self.datagrams += 1;
        self.bytes += datagram.len() as u64;
        // Who misbehaves may send what it likes.
        if from < self.members {
            self.panel.sent(at, from, datagram);
        }
    }

    fn told(&mut self, at: Monotonic, node: usize, told: MemberEvent) {
        match &told {
            MemberEvent::Prepared(view) => {
                self.tell(at, || format!("node {node} prepares {:?} ({:?})", view.epoch.counter, view.change));
            }
            MemberEvent::Abandoned => self.tell(at, || format!("node {node} goes on as before")),
            MemberEvent::Excluded(why) => self.tell(at, || format!("node {node} is out: {why:?}")),
            MemberEvent::Restored(position) => self.tell(at, || format!("node {node} gets the state at {position}")),
            MemberEvent::Denied(why) => self.tell(at, || format!("node {node} may not: {why}")),
            MemberEvent::Notice(notice) => self.tell(at, || format!("node {node} notices {notice:?}")),
            MemberEvent::Blames { why, proof } => {
                let proof = if proof.is_some() { ", and has evidence" } else { "" };
                self.tell(at, || format!("node {node} finds that {why}{proof}"));
            }
            MemberEvent::Silence(silent) => self.tell(at, || format!("node {node} heard nobody for {silent:?}")),
            MemberEvent::Gap(_) => self.tell(at, || format!("node {node} misses some of the order")),
            MemberEvent::Sequencer(who) => {
                let who = who.and_then(|it| self.roles.node(&it));
                self.tell(at, || format!("node {node} says that {who:?} orders"));
            }
            MemberEvent::Installed(epoch) => {
                let (view, nodes) = (epoch.view.clone(), self.roles.nodes_of(&epoch.view));
                self.tell(at, || format!("node {node} installs {:?} of {nodes:?} ({:?})", view.epoch, view.change));
            }
            _ => {}
        }
        let event = match told {
            MemberEvent::Prepared(view) => Event::Prepared(view),
            MemberEvent::Abandoned => Event::Abandoned,
            MemberEvent::Installed(epoch) => {
                self.installed += 1;
                self.changed = true;
                if let Some(place) = self.views.get_mut(node) {
                    *place = Some(epoch.view.clone());
                }
                let nodes = self.roles.nodes_of(&epoch.view);
                if let Some((_, whom)) =
                    self.never.iter().find(|(who, whom)| who.contains(&node) && nodes.contains(whom))
                {
                    self.panel.report(at, "never", format!("node {node} has {whom} in {:?}", epoch.view.epoch));
                }
                self.look_for_majority(at, node);
                Event::Installed(epoch.view.clone(), Some(epoch))
            }
            MemberEvent::Excluded(_) => {
                self.changed = true;
                if node < self.members {
                    self.views[node] = None;
                    self.out[node] = true;
                }
                Event::Excluded
            }
            MemberEvent::Delivered(message) => {
                self.delivered += 1;
                if Body::read(message.payload()).is_some_and(|body| body.author as usize != node) {
                    *self.heard.entry(node).or_default() += 1;
                    self.changed = true;
                }
                self.look_whether_deaf(at, node, Body::read(message.payload()));
                Event::Delivered {
                    sequence: message.sequence(),
                    topic: message.topic().into(),
                    body: message.payload().into(),
                    origin: message.origin(),
                    epoch: message.epoch(),
                }
            }
            MemberEvent::Read(body, epoch) => {
                self.look_whether_deaf(at, node, Some(body));
                Event::Read(body, epoch)
            }
            MemberEvent::Notice(Notice::LeftOut { cert, why }) => {
                if let Some(whom) =
                    self.roles.node(&cert).filter(|_| !matches!(why, Misbehaviour::Silent | Misbehaviour::Slow))
                {
                    self.changed |= self.named.insert((node, whom));
                }
                Event::LeftOut(cert, why)
            }
            MemberEvent::Published(topic, body) => {
                self.published.extend(Body::read(body.as_ref()));
                Event::Published { topic: topic.into(), body: body.into() }
            }
            MemberEvent::Ordered(body, at) => match Body::read(&body) {
                Some(body) => Event::Ordered(body, at),
                None => return,
            },
            MemberEvent::Doubted(body) => match Body::read(&body) {
                Some(body) => Event::Doubted(body),
                None => return,
            },
            MemberEvent::Gap(from) => Event::Gap(from),
            MemberEvent::Sequencer(who) => Event::Sequencer(who),
            MemberEvent::Keyed { epoch, passed: false } => Event::Keyed(epoch.view.epoch),
            MemberEvent::Speaks(version) => {
                self.versions.insert(node, version);
                return;
            }
            MemberEvent::State(position, hash) => Event::State(position, hash),
            MemberEvent::Blames { proof, .. } => {
                self.changed = true;
                self.blames.extend([(node, false), (node, proof.is_some())]);
                Event::Blames { relay: self.members, proof }
            }
            MemberEvent::Keyed { .. }
            | MemberEvent::Silence(_)
            | MemberEvent::Restored(_)
            | MemberEvent::Refused(..)
            | MemberEvent::Denied(_)
            | MemberEvent::Outcome(_)
            | MemberEvent::Notice(_) => return,
        };
        self.panel.event(at, node, &event);
    }
}
