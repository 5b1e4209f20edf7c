//! Who is alive: any authenticated frame of a member counts, whatever its epoch (A14: delivery says
//! who is silent, the key scheme decides what follows).

use std::collections::BTreeMap;
use std::time::Duration;

use sealcast_wire::{Incarnation, Monotonic, Slot, View};

/// When each other member of the view was last heard.
#[derive(Debug)]
pub(super) struct Liveness {
    detect: Duration,
    members: BTreeMap<Incarnation, (Slot, Monotonic)>,
    check: Option<Monotonic>,
}

impl Liveness {
    /// Suspects a member that was not heard for `detect`.
    pub(super) fn new(detect: Duration) -> Liveness {
        Liveness { detect, members: BTreeMap::new(), check: None }
    }

    /// The members to be watched; all of them count as heard now.
    pub(super) fn install(&mut self, now: Monotonic, view: &View) {
        let others = view.members.slots().filter(|(slot, _)| *slot != view.me);
        self.members = others.map(|(slot, m)| (m.id.incarnation, (slot, now))).collect();
        self.check = (!self.members.is_empty()).then_some(now + self.detect);
    }

    /// A frame of this member was authenticated.
    pub(super) fn heard(&mut self, now: Monotonic, who: &Incarnation) {
        if let Some((_, heard)) = self.members.get_mut(who) {
            *heard = now;
        }
    }

    /// When somebody's silence may be long enough.
    pub(super) fn timeout(&self) -> Option<Monotonic> {
        self.check
    }

    /// Who has been silent for too long; each is named again after as long a silence.
    pub(super) fn silent(&mut self, now: Monotonic) -> Vec<Slot> {
        if self.check.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let mut silent = Vec::new();
        for (slot, heard) in self.members.values_mut() {
            if now >= *heard + self.detect {
                silent.push(*slot);
                *heard = now;
            }
        }
        self.check = self.members.values().map(|(_, heard)| *heard + self.detect).min();
        silent.sort();
        silent
    }
}
