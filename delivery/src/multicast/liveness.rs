//! Who is alive: any authenticated frame of a member counts, whatever its epoch (A14: delivery says
//! who is silent, the key scheme decides what follows).

use std::collections::BTreeMap;
use std::time::Duration;

use sealcast_wire::{CertHash, Dropped, EpochId, Incarnation, Monotonic, Roster, Slot, View};

/// When each other member of the view was last heard.
#[derive(Debug)]
pub(super) struct Liveness {
    detect: Duration,
    epoch: Option<EpochId>,
    roster: Roster,
    me: Option<Incarnation>,
    members: BTreeMap<Incarnation, Watched>,
    /// Since when they are watched: all count as heard then.
    since: Monotonic,
    check: Option<Monotonic>,
}

#[derive(Debug)]
struct Watched {
    cert: CertHash,
    heard: Monotonic,
    /// When it was heard, or named as silent, last.
    counts: Monotonic,
}

impl Liveness {
    /// Suspects a member that was not heard for `detect`.
    pub(super) fn new(detect: Duration) -> Liveness {
        let (roster, members) = (Roster::default(), BTreeMap::new());
        Liveness { detect, epoch: None, roster, me: None, members, since: Monotonic(0), check: None }
    }

    /// The members to be watched; all of them count as heard now.
    pub(super) fn install(&mut self, now: Monotonic, view: &View) {
        for gone in self.roster.without(&view.members) {
            self.members.remove(&gone.id.incarnation);
        }
        for new in view.members.without(&self.roster) {
            self.members.insert(new.id.incarnation, Watched { cert: new.id.cert, heard: now, counts: now });
        }
        self.roster = view.members.clone();
        self.epoch = Some(view.epoch);
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
        if let Some(it) = self.members.get_mut(who) {
            (it.heard, it.counts) = (now, now);
        }
    }

    /// The slots, as bits, of those who were heard since then: what the collector tells ([`super::beats`]).
    pub(super) fn heard_since(&self, since: Monotonic) -> Vec<u8> {
        let mut bits = vec![0; self.roster.last().map_or(0, |(slot, _)| slot.index() / 8 + 1)];
        for (slot, member) in self.roster.slots() {
            if self.members.get(&member.id.incarnation).is_some_and(|it| it.heard.max(self.since) >= since) {
                bits[slot.index() / 8] |= 1 << (slot.index() % 8);
            }
        }
        bits
    }

    /// The collector tells whom it heard; whether we are among them.
    ///
    /// # Errors
    /// Who says so is not the one with the lowest slot, or of another view.
    pub(super) fn collected(
        &mut self,
        now: Monotonic,
        (epoch, by): (EpochId, Slot),
        bits: &[u8],
    ) -> Result<bool, Dropped> {
        if self.epoch != Some(epoch) {
            return Err(Dropped::Stale);
        }
        if self.roster.slots().next().is_none_or(|(lowest, _)| lowest != by) {
            return Err(Dropped::Policy);
        }
        let is_named = |slot: Slot| bits.get(slot.index() / 8).is_some_and(|bits| bits >> (slot.index() % 8) & 1 == 1);
        let mut names_us = false;
        for (_, member) in self.roster.slots().filter(|(slot, _)| is_named(*slot)) {
            names_us |= self.me == Some(member.id.incarnation);
            if let Some(it) = self.members.get_mut(&member.id.incarnation) {
                (it.heard, it.counts) = (now, now);
            }
        }
        Ok(names_us)
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
        for (_, it) in others {
            it.counts = self.since.max(it.counts);
            if now >= it.counts + self.detect {
                silent.extend(self.roster.find(&it.cert).map(|(slot, _)| slot));
                it.counts = now;
            }
            let next = it.counts + self.detect;
            check = Some(check.map_or(next, |at: Monotonic| at.min(next)));
        }
        self.check = check;
        silent.sort();
        silent
    }
}
