//! Who is alive: any authenticated frame of a member counts, whatever its epoch (A14: delivery says
//! who is silent, the key scheme decides what follows).

use std::collections::BTreeMap;
use std::time::Duration;

use sealcast_wire::{CertHash, Incarnation, Monotonic, Roster, Slot, View};

/// When each other member of the view was last heard.
#[derive(Debug)]
pub(super) struct Liveness {
    detect: Duration,
    roster: Roster,
    me: Option<Incarnation>,
    members: BTreeMap<Incarnation, (CertHash, Monotonic)>,
    /// Since when they are watched: all count as heard then.
    since: Monotonic,
    check: Option<Monotonic>,
}

impl Liveness {
    /// Suspects a member that was not heard for `detect`.
    pub(super) fn new(detect: Duration) -> Liveness {
        let (roster, members) = (Roster::default(), BTreeMap::new());
        Liveness { detect, roster, me: None, members, since: Monotonic(0), check: None }
    }

    /// The members to be watched; all of them count as heard now.
    pub(super) fn install(&mut self, now: Monotonic, view: &View) {
        for gone in self.roster.without(&view.members) {
            self.members.remove(&gone.id.incarnation);
        }
        for new in view.members.without(&self.roster) {
            self.members.insert(new.id.incarnation, (new.id.cert, now));
        }
        self.roster = view.members.clone();
        self.me = view.member(view.me).map(|me| me.id.incarnation);
        self.since = now;
        self.check = (self.members.len() > 1).then_some(now + self.detect);
    }

    /// Whether this run is one of the view's members, we included.
    pub(super) fn knows(&self, who: &Incarnation) -> bool {
        self.members.contains_key(who)
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
        let others = self.members.iter_mut().filter(|(who, _)| Some(**who) != self.me);
        let mut check = None;
        for (_, (cert, heard)) in others {
            *heard = self.since.max(*heard);
            if now >= *heard + self.detect {
                silent.extend(self.roster.find(cert).map(|(slot, _)| slot));
                *heard = now;
            }
            let next = *heard + self.detect;
            check = Some(check.map_or(next, |at: Monotonic| at.min(next)));
        }
        self.check = check;
        silent.sort();
        silent
    }
}
