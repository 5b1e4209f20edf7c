//! Members whose reports some others lack, flush after flush.
//!
//! A report is proved by a MAC for each member, so its author can show one member a right proof and another one a wrong one.
//! Each such flush fails: those who stay do not end the view alike. The member of the lowest slot that stays judges. Where it
//! lacks a report itself, the author goes. Where another member says that it lacks one, either of the two lies, and no proof
//! shows which. The one with more such disputes goes, in this view and before; if they have as many, the author does.

use std::collections::{BTreeMap, BTreeSet};

use sealcast_wire::{Monotonic, Slot, limits};

use super::Sequencer;
use super::named::Slots;
use super::primary::{Id, id_of};
use crate::Output;

/// What the judge remembers.
#[derive(Debug, Default)]
pub(super) struct Unheard {
    /// In how many flushes since a view was decided the first member lacked the second one's report.
    lacked: BTreeMap<(Id, Id), u32>,
    /// In how many disputes each run was that ended with somebody left out.
    disputes: BTreeMap<Id, u32>,
}

impl Unheard {
    /// All who stayed ended a view alike.
    pub(super) fn settle(&mut self) {
        self.lacked.clear();
    }

    /// A flush failed in which the first of each pair lacked the second one's report: who goes.
    fn judge(&mut self, me: Id, stay: &BTreeSet<Id>, pairs: &[(Id, Id)]) -> Vec<Id> {
        self.lacked.retain(|(by, of), _| stay.contains(by) && stay.contains(of));
        pairs.iter().for_each(|pair| *self.lacked.entry(*pair).or_default() += 1);
        let firm = |least: u32| self.lacked.iter().filter(move |(_, times)| **times >= least).map(|(pair, _)| *pair);
        let ours = |least: u32| firm(least).filter(|(by, _)| *by == me).map(|(_, of)| of).collect::<Vec<Id>>();
        // A judge that lacks most reports is likely slow itself, but does not wait for ever.
        let most = ours(FLUSHES);
        let gone = if most.len() * 2 <= stay.len() { most } else { ours(FLUSHES_OF_MOST) };
        let gone = if gone.is_empty() { self.settle_dispute(me).into_iter().collect() } else { gone };
        self.lacked.retain(|(by, of), _| !gone.contains(by) && !gone.contains(of));
        gone
    }

    /// Of two members of which one says that it lacks the other one's report: who goes.
    fn settle_dispute(&mut self, me: Id) -> Option<Id> {
        let pairs = || self.lacked.iter().filter(|((by, _), n)| **n >= FLUSHES && *by != me).map(|(pair, _)| *pair);
        let score = |id: Id| {
            let now = pairs().filter(|(by, of)| *by == id || *of == id).count() as u32;
            now + self.disputes.get(&id).copied().unwrap_or_default()
        };
        let loser = |(by, of): (Id, Id)| if of == me || score(by) > score(of) { by } else { of };
        let (by, of) = pairs().max_by_key(|pair| score(loser(*pair)))?;
        let gone = loser((by, of));
        for id in [by, of].into_iter().filter(|id| *id != me) {
            if self.disputes.len() >= limits::REMEMBERED_PEOPLE_MAX {
                self.disputes.pop_first();
            }
            *self.disputes.entry(id).or_default() += 1;
        }
        Some(gone)
    }
}

impl Sequencer {
    /// Another view is prepared: the flush before may have failed for want of somebody's report.
    pub(super) fn judge_unheard(&mut self, now: Monotonic) {
        let (Some(current), Some(flush)) = (&self.current, &self.flush) else { return };
        let Some((_, me)) = flush.stay.first_key_value().filter(|(slot, _)| **slot == current.me) else { return };
        // One that outlived its view names other slots.
        let is_of = |(slot, id): (&Slot, &Id)| current.incarnations.get(slot).is_some_and(|it| id_of(it) == *id);
        if now < flush.until || !flush.stay.iter().all(is_of) {
            return;
        }
        let mut pairs = Vec::new();
        for (slot, id) in &flush.stay {
            if !flush.reports.contains_key(id) {
                pairs.extend((slot != &current.me).then_some((*me, *id)));
                continue;
            }
            // Who has all says nothing any more: what it said early is no complaint.
            let late = flush.began + flush.until.since(flush.began) / 2;
            let lacks = |(by, (at, heard)): (&Slot, &(Monotonic, Slots))| {
                (by != slot && *at >= late && !heard.holds(*slot)).then(|| flush.stay.get(by).copied()).flatten()
            };
            pairs.extend(flush.complaints.iter().filter_map(lacks).map(|by| (by, *id)));
        }
        if pairs.is_empty() {
            return;
        }
        let stay: BTreeSet<Id> = flush.stay.values().copied().collect();
        let gone = self.unheard.judge(*me, &stay, &pairs);
        let slots = flush.stay.iter().filter(|(_, id)| gone.contains(id)).map(|(slot, _)| *slot);
        self.ready.extend(slots.map(Output::Suspect));
    }
}

/// So many flushes fail for want of a report before somebody goes: less than a key scheme waits for members that end a view
/// differently.
const FLUSHES: u32 = 5;
/// The same where the judge lacks most reports.
const FLUSHES_OF_MOST: u32 = 3 * FLUSHES;

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Id = [0; 8];
    const NOBODY: [Id; 0] = [];

    fn id(n: u8) -> Id {
        [n; 8]
    }

    /// Who goes after so many flushes without these reports.
    fn after(unheard: &mut Unheard, flushes: u32, members: u8, pairs: &[(Id, Id)]) -> Vec<Id> {
        let stay = (0..members).map(id).collect();
        (0..flushes).flat_map(|_| unheard.judge(ME, &stay, pairs)).collect()
    }

    #[test]
    fn who_does_not_report_to_the_judge_goes() {
        let mut unheard = Unheard::default();
        assert_eq!(after(&mut unheard, FLUSHES - 1, 4, &[(ME, id(3))]), NOBODY);
        assert_eq!(after(&mut unheard, 1, 4, &[(ME, id(3))]), [id(3)]);
        // Two who take turns go all the same; a view that all ended alike clears both.
        let turns = |it: &mut Unheard| {
            (0..FLUSHES).flat_map(|_| [1, 2].map(|n| after(it, 1, 5, &[(ME, id(n))]))).flatten().collect::<Vec<Id>>()
        };
        assert_eq!(turns(&mut unheard), [id(1), id(2)]);
        assert_eq!(after(&mut unheard, FLUSHES - 1, 5, &[(ME, id(1))]), NOBODY);
        unheard.settle();
        assert_eq!(after(&mut unheard, FLUSHES - 1, 5, &[(ME, id(1))]), NOBODY);
    }

    #[test]
    fn a_judge_that_hears_few_blames_nobody_at_once() {
        let mut unheard = Unheard::default();
        let most = [(ME, id(1)), (ME, id(2)), (ME, id(3))];
        assert_eq!(after(&mut unheard, FLUSHES_OF_MOST - 1, 4, &most), NOBODY);
        assert_eq!(after(&mut unheard, 1, 4, &most), [id(1), id(2), id(3)]);
    }

    #[test]
    fn of_two_in_a_dispute_the_author_goes_unless_the_other_one_had_more_disputes() {
        let mut unheard = Unheard::default();
        assert_eq!(after(&mut unheard, FLUSHES, 5, &[(id(4), id(1))]), [id(1)]);
        // Whoever says it of one member after the other is believed once.
        assert_eq!(after(&mut unheard, FLUSHES, 5, &[(id(4), id(2))]), [id(4)]);
        // Nobody says it of the judge.
        assert_eq!(after(&mut unheard, FLUSHES, 5, &[(id(3), ME)]), [id(3)]);
        let mut unheard = Unheard::default();
        assert_eq!(after(&mut unheard, FLUSHES, 5, &[(id(1), id(4)), (id(2), id(4))]), [id(4)]);
        assert_eq!(after(&mut unheard, FLUSHES, 5, &[(id(1), id(2)), (id(1), id(3))]), [id(1)]);
    }
}
