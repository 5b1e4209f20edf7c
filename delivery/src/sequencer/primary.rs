//! Which views may order: only the primary component does (B1).
//!
//! ```text
//! prepared view ─▶ reports of all members that stay ─▶ one decision ─▶ its hash goes into the new key ─▶ installed
//! ```
//! Dynamic linear voting with attempts (`lab/models/failover.rs`; Jajodia and Mutchler 1990; Yeger Lotem, Keidar and Dolev
//! 1997): those who stay may go on if they are a majority of the last primary view, or its half with the lowest id, and
//! the same of each view that may have become primary since. A process that starts again is another member, so nothing of this
//! has to be kept on a disk. Members that come are let into a primary view by the next change, when all report.

use std::collections::{BTreeMap, BTreeSet};

use sealcast_crypto::hash::Transcript;
use sealcast_wire::codec::{Malformed, Reader};
use sealcast_wire::limits::{ORDERED_MEMBERS_MAX, REPORT_BYTES_MAX, SEQUENCE_MAX};
use sealcast_wire::{EpochId, Incarnation};

use super::named::{Members, SLOTS_BYTES, read_bits, write_bits};

/// The beginning of a run's incarnation.
pub(super) type Id = [u8; 8];

pub(super) fn id_of(incarnation: &Incarnation) -> Id {
    let (id, _) = incarnation.0.split_first_chunk().expect("an incarnation has 16 bytes");
    *id
}

/// A view that is primary, or may be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Primary {
    /// How many there were before it.
    pub(super) ordinal: u64,
    pub(super) epoch: EpochId,
    pub(super) members: Members,
}

impl Primary {
    /// As members of a view know it who know these ids.
    pub(super) fn known_by(&self, known: &BTreeSet<Id>) -> Primary {
        Primary { members: self.members.known_by(known), ..*self }
    }
}

/// What a member knows of primary views, and how far it went in the last one's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// The last primary view that it was in.
    pub(super) installed: Option<Primary>,
    /// Later ones that it agreed to, and that may be installed elsewhere; newest last.
    pub(super) attempts: Vec<Primary>,
    /// So much of the order it holds.
    pub(super) held: u64,
    /// Hash of those stamps.
    pub(super) chain: [u8; 32],
    /// The members of the installed view, but for those that left by their word in its order: they vote no more.
    pub(super) voters: Members,
    /// Its operator says that those who are missing are gone for good.
    pub(super) forces: bool,
    /// Members came to it a moment ago, or it heard of others: they may have an order.
    pub(super) waits: bool,
    /// Whether one more view may not fit; of a report that was read.
    pub(super) is_full: bool,
}

/// What follows from all reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// Whether those who reported may order.
    pub(super) is_primary: bool,
    /// Whether that is by somebody's word alone.
    pub(super) is_forced: bool,
    /// Whether there is no order, and they may begin one in a while.
    pub(super) is_early: bool,
    /// The last primary view of any of them, and who of it may still vote.
    pub(super) last: Option<Primary>,
    pub(super) voters: Members,
    /// How much of its order there is: each sequence number up to here is held by somebody who reported.
    pub(super) cut: u64,
    /// Hash of those stamps.
    pub(super) chain: [u8; 32],
}

impl Report {
    /// Its bytes for members of a view, whose ids by slot are `known`; `None` if there are more views than it has room for.
    pub(super) fn bytes(&self, known: &[Id]) -> Option<Vec<u8>> {
        if self.attempts.len() > usize::from(u8::MAX) || self.length(&self.named()) > REPORT_BYTES_MAX {
            return None;
        }
        let is_known = known.iter().copied().collect();
        let is_full = self.is_full || self.is_full_for(&is_known);
        let views = self.installed.iter().chain(&self.attempts);
        let views: Vec<Primary> = views.map(|it| it.known_by(&is_known)).collect();
        let voters = self.installed.as_ref().map(|_| self.voters.known_by(&is_known));
        let is_named = |id: &Id| views.iter().any(|it| it.members.named().contains(id));
        let flags = [self.installed.is_some(), self.forces, self.waits, is_full];
        let flags = flags.iter().rev().fold(0, |all, it| all << 1 | u8::from(*it));
        let mut bytes = vec![flags, self.attempts.len() as u8];
        write_bits(known.iter().map(is_named), &mut bytes);
        let named: Vec<Id> = known.iter().filter(|id| is_named(id)).copied().collect();
        for Primary { ordinal, epoch, members } in &views {
            bytes.extend_from_slice(&ordinal.to_be_bytes());
            bytes.extend_from_slice(&epoch.to_bytes());
            members.write(&named, &mut bytes);
        }
        bytes.extend_from_slice(&self.held.to_be_bytes());
        bytes.extend_from_slice(&self.chain);
        voters.into_iter().for_each(|it| it.write(&named, &mut bytes));
        Some(bytes)
    }

    /// As members of that view read it.
    pub(super) fn known_by(&self, known: &[Id]) -> Option<Report> {
        let bytes = self.bytes(known)?;
        Report::read(&mut Reader::new(&bytes), known).ok()
    }

    /// All members that it names.
    fn named(&self) -> BTreeSet<Id> {
        self.installed.iter().chain(&self.attempts).flat_map(|it| it.members.named()).copied().collect()
    }

    /// How long its bytes are at most, whatever view they are for, if they name no others than these.
    fn length(&self, named: &BTreeSet<Id>) -> usize {
        let views = self.installed.iter().chain(&self.attempts);
        let views = views.map(|it| VIEW_FIXED + it.members.length(named.len())).sum::<usize>();
        let voters = self.installed.as_ref().map_or(0, |_| self.voters.length(named.len()));
        FIXED + SLOTS_BYTES + views + voters
    }

    /// Whether one more view, of some of these, may not fit.
    fn is_full_for(&self, known: &BTreeSet<Id>) -> bool {
        let named = &self.named() | known;
        let more = VIEW_FIXED + Members::default().length(named.len());
        self.length(&named) + more > REPORT_BYTES_MAX || self.attempts.len() >= usize::from(u8::MAX)
    }

    /// The highest ordinal that it names.
    pub(super) fn highest(&self) -> u64 {
        self.installed.iter().chain(&self.attempts).map(|it| it.ordinal).max().unwrap_or(0)
    }

    /// Reads them, as a member of that view.
    pub(super) fn read(r: &mut Reader<'_>, known: &[Id]) -> Result<Report, Malformed> {
        let (flags, attempts) = (r.u8()?, usize::from(r.u8()?));
        if known.len() > ORDERED_MEMBERS_MAX || flags > 15 {
            return Err(Malformed);
        }
        let named: Vec<Id> = read_bits(r, known)?.into_iter().copied().collect();
        let mut view = || {
            let (ordinal, counter, hash) = (r.u64()?, r.u32()?, r.u64()?);
            Ok(Primary { ordinal, epoch: EpochId { counter, hash }, members: Members::read(r, &named)? })
        };
        let installed = if flags & 1 == 1 { Some(view()?) } else { None };
        let attempts: Vec<Primary> = (0..attempts).map(|_| view()).collect::<Result<_, _>>()?;
        let (held, chain) = (r.u64()?, r.array()?);
        let voters = if installed.is_some() { Members::read(r, &named)? } else { Members::default() };
        let (forces, waits, is_full) = (flags & 2 != 0, flags & 4 != 0, flags & 8 != 0);
        let report = Report { installed, attempts, held, chain, voters, forces, waits, is_full };
        // Whom no view has is not named.
        if report.named().len() == named.len() { Ok(report) } else { Err(Malformed) }
    }

    /// Before there was any primary view: all who know each other. A part of them that is no majority begins none; who left by
    /// its own word does not count.
    pub(super) fn meet(&mut self, epoch: EpochId, members: BTreeSet<Id>, left: &BTreeSet<Id>) {
        if self.installed.is_some() {
            return;
        }
        let (mut met, attempts): (Vec<Primary>, _) = self.attempts.drain(..).partition(|it| it.ordinal == 0);
        self.attempts = attempts;
        met.iter_mut().for_each(|it| it.members.remove(left));
        if met.iter().all(|it| it.members.have_majority(|id| members.contains(id))) {
            met = vec![Primary { ordinal: 0, epoch, members: members.into() }];
        }
        self.attempts.extend(met);
    }

    /// Notes a view that may become primary.
    pub(super) fn attempt(&mut self, attempt: Primary) {
        self.attempts.retain(|it| it.members != attempt.members);
        self.attempts.push(attempt);
    }

    /// Whether one more such view can be reported.
    pub(super) fn has_capacity_for(&self, attempt: &Primary) -> bool {
        let mut more = self.clone();
        more.attempt(attempt.clone());
        more.bytes(&[]).is_some()
    }

    /// Whether it says that such a view can be reported, whose members all report.
    fn takes(&self, attempt: &Primary) -> bool {
        !self.is_full || self.attempts.iter().any(|it| it.members == attempt.members)
    }

    /// These left by their word in the order.
    pub(super) fn leave(&mut self, left: &BTreeSet<Id>) {
        self.voters.remove(left);
    }

    /// Whether its author, which has this id, said that it leaves.
    fn leaves(&self, author: &Id) -> bool {
        self.installed.is_some() && !self.voters.named().contains(author)
    }

    /// Forgets views that nobody installed and nobody will, since all of their members report and have agreed to another one
    /// since: a member installs as primary what it agreed to last, or nothing.
    pub(super) fn forget_failed(&mut self, reports: &BTreeMap<Id, Report>) {
        let may_be = |it: &Report, attempt: &Primary| {
            let is_last = it.attempts.last().is_some_and(|last| last.members == attempt.members);
            is_last || it.installed.as_ref().is_some_and(|installed| installed.ordinal >= attempt.ordinal)
        };
        self.attempts
            .retain(|attempt| !attempt.members.are_all(|id| reports.get(id).is_some_and(|it| !may_be(it, attempt))));
    }

    /// A view is primary, and its order goes on from here.
    pub(super) fn install(&mut self, primary: Primary, held: u64, chain: [u8; 32]) {
        let later = self.attempts.drain(..).filter(|it| it.ordinal > primary.ordinal).collect();
        let voters = primary.members.clone();
        *self = Report { installed: Some(primary), attempts: later, held, chain, voters, ..Report::default() };
    }
}

/// A view's ordinal and epoch.
const VIEW_FIXED: usize = 8 + 12;
/// Flags, the number of attempts, how much is held, and its chain.
const FIXED: usize = 2 + 8 + 32;

/// What all who stay decide, each from the same reports; `is_whole`: nobody of the view before is missing.
pub(super) fn decide(reports: &BTreeMap<Id, Report>, is_whole: bool) -> Decision {
    // Of two orders that began apart from each other the one of more members stays.
    let installed = reports.values().filter_map(|it| it.installed.as_ref());
    let last = installed.max_by_key(|it| (it.ordinal, it.members.len(), *it)).cloned();
    let is_later = |it: &&Primary| last.as_ref().is_none_or(|last| it.ordinal > last.ordinal);
    // Most report the same ones.
    let attempts: BTreeSet<&Primary> = reports.values().flat_map(|it| &it.attempts).collect();
    let mut pending = attempts.into_iter().filter(|it| is_later(it));
    // Where there was none yet, all who know each other begin it. A member that is alone may be about to find a group, and so
    // may members that met just now.
    let is_early = last.is_none() && reports.values().any(|it| it.waits);
    let begins = is_whole && reports.len() > 1 && !is_early;
    // Of its members those vote who did not leave by their own word: that was their last one.
    let of_last = || reports.values().filter(|it| it.installed == last && last.is_some());
    let voters = of_last()
        .map(|it| &it.voters)
        .fold(None, |all: Option<Members>, it| Some(all.map_or_else(|| it.clone(), |all| all.in_both(it))));
    let is_here = |id: &Id| reports.contains_key(id);
    let goes_on = voters.as_ref().map_or(begins, |it| it.have_majority(is_here));
    let next = successor(last.as_ref(), reports, EpochId::default());
    let has_capacity = || reports.values().all(|it| it.takes(&next));
    let may = goes_on && pending.all(|it| it.members.have_majority(is_here)) && has_capacity();
    let is_forced = !may && reports.values().any(|it| it.forces);
    let is_primary = may || is_forced;
    let most = of_last().max_by_key(|it| (it.held, it.chain));
    let (cut, chain) = most.map_or((0, [0; 32]), |it| (it.held.min(SEQUENCE_MAX), it.chain));
    Decision { is_primary, is_early, is_forced, last, voters: voters.unwrap_or_default(), cut, chain }
}

impl Decision {
    /// What the new key binds of it: all who install it decided alike, and delivered the same.
    pub(super) fn hash(&self, reports: &BTreeMap<Id, Report>) -> [u8; 32] {
        let (ordinal, epoch) = self.last.as_ref().map_or((0, EpochId::default()), |it| (it.ordinal, it.epoch));
        let t = Transcript::new("sealcast/v1/cut").add(&[u8::from(self.is_primary)]).add(&ordinal.to_be_bytes());
        let next = self.next(reports, EpochId::default());
        let t = t.add(&epoch.to_bytes()).add(&self.cut.to_be_bytes()).add(&self.chain).add(&next.ordinal.to_be_bytes());
        let ids = |of: &mut dyn Iterator<Item = &Id>| of.flatten().copied().collect::<Vec<u8>>();
        t.add(&ids(&mut reports.keys())).add(&ids(&mut next.members.named().iter())).finish()
    }

    /// The primary view that those who reported make, but for those who leave, if they may.
    pub(super) fn next(&self, reports: &BTreeMap<Id, Report>, epoch: EpochId) -> Primary {
        successor(self.last.as_ref(), reports, epoch)
    }
}

fn successor(last: Option<&Primary>, reports: &BTreeMap<Id, Report>, epoch: EpochId) -> Primary {
    // Greater than that of any view that may be installed elsewhere, so that of two the later one shows. An insider may claim
    // any number.
    let attempts = reports.values().flat_map(|it| &it.attempts).map(|it| it.ordinal);
    let before = attempts.chain(last.map(|it| it.ordinal)).max().unwrap_or(0);
    // Who said that it leaves is in the coming view until the key scheme knows of it, and votes no more.
    let votes = |(id, report): (&Id, &Report)| (!report.leaves(id)).then_some(*id);
    let members: BTreeSet<Id> = reports.iter().filter_map(votes).collect();
    Primary { ordinal: before.saturating_add(1), epoch, members: members.into() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn view(ordinal: u64, members: &[u8]) -> Primary {
        let epoch = EpochId { counter: ordinal as u32, hash: 7 };
        Primary { ordinal, epoch, members: ids(members).into() }
    }

    fn ids(of: &[u8]) -> BTreeSet<Id> {
        of.iter().map(|it| [*it; 8]).collect()
    }

    fn report(installed: Option<Primary>, attempts: &[Primary], held: u64) -> Report {
        let voters = installed.as_ref().map_or_else(Members::default, |it| it.members.clone());
        Report { installed, attempts: attempts.to_vec(), held, chain: [held as u8; 32], voters, ..Report::default() }
    }

    fn decided(reports: &[(u8, &Report)], is_whole: bool) -> (bool, u64) {
        let reports = reports.iter().map(|(id, it)| ([*id; 8], (*it).clone())).collect();
        let decision = decide(&reports, is_whole);
        (decision.is_primary, decision.cut)
    }

    #[test]
    fn rule_b1_a_majority_of_the_last_primary_goes_on_and_of_a_half_the_one_with_the_lowest_id() {
        let it = |held| report(Some(view(4, &[1, 2, 3, 4])), &[], held);
        let (a, b) = (it(7), it(9));
        assert_eq!(decided(&[(1, &a), (2, &b), (3, &a)], false), (true, 9));
        assert_eq!(decided(&[(1, &a), (4, &a)], false), (true, 7));
        assert!(!decided(&[(2, &b), (4, &a)], false).0);
        assert!(!decided(&[(2, &b)], false).0);
        // Who comes is no vote, whatever it is.
        let new = report(None, &[], 0);
        assert!(!decided(&[(2, &b), (4, &a), (7, &new), (8, &new), (9, &new)], false).0);
        // Who was in an earlier one only says nothing of the order.
        let old = report(Some(view(3, &[7, 8, 9])), &[], 99);
        assert_eq!(decided(&[(1, &a), (2, &b), (3, &b), (7, &old), (8, &old)], false), (true, 9));
    }

    #[test]
    fn rule_b1_who_left_by_its_own_word_counts_no_more() {
        let knows = |left: &[u8]| {
            let mut it = report(Some(view(4, &[1, 2, 3])), &[], 7);
            it.leave(&ids(left));
            it
        };
        // Two of three are gone, of whom one said so; a member that knows of it tells the others.
        assert!(!decided(&[(2, &knows(&[]))], false).0);
        assert!(!decided(&[(3, &knows(&[1]))], false).0, "not the half with the lowest id");
        assert!(decided(&[(2, &knows(&[1]))], false).0);
        assert!(decided(&[(3, &knows(&[1, 2]))], false).0, "who is alone goes on alone");
        // Where all have left, nobody needs any of them.
        let all_left = [([1; 8], knows(&[1, 2, 3]))].into();
        assert_eq!((decide(&all_left, false).is_primary, decide(&all_left, false).voters.len()), (false, 0));
        // What somebody knows who was in an earlier view only says nothing.
        let old = Report { installed: Some(view(3, &[1, 2, 3])), ..knows(&[1, 2]) };
        assert!(!decided(&[(3, &knows(&[])), (9, &old)], false).0);
    }

    #[test]
    fn rule_g7_no_number_that_an_insider_reports_overflows() {
        let lie = report(Some(view(u64::MAX, &[1, 2, 3])), &[view(u64::MAX, &[1, 2])], u64::MAX);
        let reports = [(1, &lie), (2, &lie)].map(|(id, it)| ([id; 8], it.clone())).into();
        let decision = decide(&reports, true);
        let next = decision.next(&reports, EpochId::default());
        assert_eq!((decision.is_primary, decision.cut, next.ordinal), (true, SEQUENCE_MAX, u64::MAX));
    }

    #[test]
    fn rule_b1_an_operator_makes_the_rest_primary_by_force() {
        let last = view(4, &[1, 2, 3, 4, 5]);
        let it = report(Some(last.clone()), &[view(5, &[1, 2, 3])], 7);
        let forced = Report { forces: true, ..it.clone() };
        assert!(!decided(&[(4, &it), (5, &it)], false).0);
        assert_eq!(decided(&[(4, &it), (5, &forced)], false), (true, 7));
        let reports = |of: &[(u8, &Report)]| of.iter().map(|(id, it)| ([*id; 8], (*it).clone())).collect();
        assert!(decide(&reports(&[(4, &it), (5, &forced)]), false).is_forced);
        // Where a majority is there, nothing was forced.
        let whole = Report { forces: true, ..report(Some(last), &[], 7) };
        let all = [1, 2, 3, 4, 5].map(|id| (id, &whole));
        assert!(!decide(&reports(&all), true).is_forced);
    }

    #[test]
    fn rule_b1_a_view_that_may_be_installed_elsewhere_counts_too() {
        let last = Some(view(1, &[1, 2, 3, 4, 5]));
        let attempted = report(last.clone(), &[view(2, &[1, 2, 3])], 5);
        let other = report(last, &[], 5);
        // 1 and 2 may order without the others by now.
        assert!(!decided(&[(3, &attempted), (4, &other), (5, &other)], false).0);
        assert!(decided(&[(2, &attempted), (3, &attempted), (4, &other)], false).0);
        // Who made up its mind for a view counts it, though one before it is installed late.
        let mut late = report(Some(view(1, &[1, 2, 3, 4, 5])), &[view(2, &[1, 2, 3, 4, 5]), view(3, &[1, 2, 3])], 5);
        late.install(view(2, &[1, 2, 3, 4, 5]), 5, [5; 32]);
        let second = report(Some(view(2, &[1, 2, 3, 4, 5])), &[], 5);
        assert!(!decided(&[(3, &late), (4, &second), (5, &second)], false).0);
        let reports = [([3; 8], attempted.clone()), ([2; 8], attempted.clone())].into();
        assert_eq!(decide(&reports, false).next(&reports, EpochId::default()).ordinal, 3, "after the one attempted");
        // It came to nothing: a later one is installed.
        let later = report(Some(view(3, &[3, 4, 5])), &[], 6);
        assert_eq!(decided(&[(3, &attempted), (4, &later), (5, &later)], false), (true, 6));
    }

    #[test]
    fn the_first_primary_view_is_one_of_all_who_know_each_other() {
        let new = report(None, &[], 0);
        assert_eq!(decided(&[(1, &new), (2, &new)], true), (true, 0));
        assert_eq!(decided(&[(1, &new), (2, &new)], false), (false, 0));
        assert_eq!(decided(&[(1, &new)], true), (false, 0));
        let attempted = report(None, &[view(1, &[1, 2, 3])], 0);
        assert!(!decided(&[(3, &attempted)], true).0);
        assert!(decided(&[(2, &attempted), (3, &attempted)], true).0);
    }

    #[test]
    fn rule_b1_a_part_of_those_who_met_begins_no_order() {
        let met = |members: &[u8]| {
            let mut report = report(None, &[], 0);
            for members in [&members[..1], members] {
                report.meet(EpochId::default(), members.iter().map(|it| [*it; 8]).collect(), &BTreeSet::new());
            }
            report
        };
        let all = met(&[1, 2, 3, 4, 5]);
        assert!(decided(&[(1, &all), (4, &all), (5, &all)], true).0);
        assert!(!decided(&[(2, &all), (3, &all)], true).0);
        // Also if it was a view of its own meanwhile, with others who came; but not if the others left.
        let apart = |left: &[u8]| {
            let mut it = all.clone();
            it.meet(EpochId::default(), [[3; 8], [9; 8]].into(), &left.iter().map(|it| [*it; 8]).collect());
            it
        };
        let new = met(&[3, 9]);
        assert!(!decided(&[(3, &apart(&[])), (9, &new)], true).0);
        assert!(decided(&[(3, &apart(&[1, 2, 4, 5])), (9, &new)], true).0);
        let other = met(&[7, 8]);
        assert!(decided(&[(1, &all), (4, &all), (5, &all), (7, &other), (8, &other)], true).0);
    }

    #[test]
    fn rule_b1_members_that_met_just_now_begin_no_order_and_may_go_on_with_one() {
        let (new, old) = (report(None, &[], 0), report(Some(view(4, &[1, 2, 3])), &[], 7));
        let waits = |it: &Report| Report { waits: true, ..it.clone() };
        assert!(!decided(&[(1, &new), (2, &waits(&new))], true).0);
        assert!(decided(&[(1, &waits(&old)), (2, &waits(&old)), (9, &waits(&new))], true).0);
    }

    #[test]
    fn a_report_is_read_as_it_was_written_and_names_who_reads_it() {
        let all: Vec<u8> = (0..64).collect();
        let report = report(Some(view(9, &all)), &[view(10, &all[..40]), view(11, &[1, 63])], 12);
        let mut report = Report { waits: true, ..report };
        report.leave(&ids(&[7]));
        let by_slot = |of: &[u8]| of.iter().map(|it| [*it; 8]).collect::<Vec<Id>>();
        for (known, length) in [(&[][..], 114), (&[80, 3, 70][..], 116), (&all[..], 140)] {
            let bytes = report.bytes(&by_slot(known)).expect("there is room");
            assert_eq!(bytes.len(), length, "{known:?}");
            let read = Report::read(&mut Reader::new(&bytes), &by_slot(known)).expect("it is sound");
            assert_eq!(Some(&read), report.known_by(&by_slot(known)).as_ref());
            assert_eq!(read == report, known == all, "all are named for those who are all of them");
            let lengths = |it: &Report| [it.installed.iter().map(|it| it.members.len()).sum(), it.voters.len()];
            assert_eq!((lengths(&read), lengths(&report)), ([64, 63], [64, 63]));
            assert_eq!(read.bytes(&by_slot(known)), Some(bytes.clone()));
            assert!((0..bytes.len()).all(|n| Report::read(&mut Reader::new(&bytes[..n]), &by_slot(known)).is_err()));
        }
        let bytes = report.bytes(&by_slot(&all)).expect("there is room");
        let mut named = bytes.clone();
        named[2] ^= 1;
        assert!(Report::read(&mut Reader::new(&named), &by_slot(&all)).is_err());
        let more = [&all[..], &[99]].concat();
        let nobody = report.bytes(&by_slot(&more)).map(|mut bytes| {
            bytes[2 + 8] |= 1;
            Report::read(&mut Reader::new(&bytes), &by_slot(&more)).is_err()
        });
        assert_eq!(nobody, Some(true), "whom no view has is not named");
    }

    #[test]
    fn rule_g2_a_report_of_the_largest_group_fits_a_datagram() {
        let id = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        let all: Vec<Id> = (0..ORDERED_MEMBERS_MAX as u64).map(id).collect();
        let without = |gone: usize| Primary {
            ordinal: 1 + gone as u64,
            epoch: EpochId::default(),
            members: all[gone..].iter().copied().collect::<BTreeSet<Id>>().into(),
        };
        // One after the other dies, each in the midst of the change before.
        let attempts: Vec<Primary> = (1..=8).map(without).collect();
        let many = report(Some(without(0)), &attempts, 5);
        let bytes = many.bytes(&all).expect("there is room");
        assert!(bytes.len() <= REPORT_BYTES_MAX && !many.known_by(&all).expect("there is room").is_full);
        // Or half of them do.
        let halves = [all.len() / 2, all.len() / 2 + 1].map(without);
        let some = report(Some(without(0)), &halves, 5);
        assert!(some.bytes(&all).expect("there is room").len() <= REPORT_BYTES_MAX);
        // The rest counts as many of them, without their names.
        let rest = some.known_by(&all[200..]).expect("there is room");
        assert_eq!(rest.installed.map(|it| it.members.len()), Some(all.len()));
    }

    #[test]
    fn rule_b1_where_one_more_attempt_cannot_be_reported_none_is_made() {
        let last = view(1, &[1, 2, 3, 4, 5]);
        let mut full = report(Some(last.clone()), &[], 5);
        let sets = (0..).map(|n: u8| vec![1, 2, 3, 10 + n]);
        let attempts = sets.map(|it| view(2, &it));
        let made =
            attempts.take_while(|it| full.has_capacity_for(it).then(|| full.attempt(it.clone())).is_some()).count();
        assert!((8..40).contains(&made) && full.bytes(&[]).is_some(), "{made} attempts");
        let other = report(Some(last), &[], 5);
        let known: Vec<Id> = ids(&[1, 2, 3]).into_iter().collect();
        let said = |it: &Report| it.known_by(&known).expect("there is room");
        let (full, other) = (said(&full), said(&other));
        let all = [(1, &full), (2, &other), (3, &other)];
        assert_eq!(decided(&all, false), (false, 5));
        // Made before, it takes no more room.
        let (oldest, rest) = full.attempts.split_first().expect("there are some");
        let mut rest = rest.to_vec();
        rest.push(Primary { members: ids(&[1, 2, 3]).into(), ..oldest.clone() });
        let again = Report { attempts: rest, ..full.clone() };
        assert_eq!(decided(&[(1, &again), (2, &other), (3, &other)], false), (true, 5));
    }

    #[test]
    fn rule_b1_an_attempt_is_forgotten_once_all_of_its_members_have_gone_on() {
        let last = view(1, &[1, 2, 3, 4]);
        let (first, second) = (view(2, &[1, 2, 3]), view(2, &[2, 3, 4]));
        let both = report(Some(last.clone()), &[first.clone(), second.clone()], 5);
        let one = report(Some(last.clone()), std::slice::from_ref(&first), 5);
        let none = report(Some(last), &[], 5);
        let kept = |reports: &[(u8, &Report)]| {
            let reports = reports.iter().map(|(id, it)| ([*id; 8], (*it).clone())).collect();
            let mut it = both.clone();
            it.forget_failed(&reports);
            it.attempts
        };
        assert_eq!(kept(&[(1, &none), (2, &both), (3, &both), (4, &none)]), std::slice::from_ref(&second));
        // One may still install it, and one is not here to say.
        assert_eq!(kept(&[(1, &one), (2, &both), (3, &both), (4, &none)]), both.attempts);
        assert_eq!(kept(&[(2, &both), (3, &both), (4, &none)]), both.attempts);
        // One did.
        let installed = report(Some(first), &[], 5);
        assert_eq!(kept(&[(1, &installed), (2, &both), (3, &both), (4, &none)]), both.attempts);
    }

    proptest! {
        #[test]
        fn rule_g2_any_bytes_are_a_report_or_malformed(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            known in 0..255_u8,
        ) {
            let mut r = Reader::new(&bytes);
            let known: Vec<Id> = (0..known).map(|it| [it; 8]).collect();
            if let Ok(report) = Report::read(&mut r, &known) {
                prop_assert!(report.attempts.len() <= 255);
                prop_assert!(report.attempts.iter().all(|it| it.members.len() <= ORDERED_MEMBERS_MAX));
            }
        }

        /// Of two sets without a member in common, at most one may go on.
        #[test]
        fn rule_b1_two_sets_apart_never_both_go_on(
            last in prop::collection::btree_set(0_u8..12, 1..9),
            attempt in prop::collection::btree_set(0_u8..12, 1..9),
            tried in prop::collection::btree_set(0_u8..12, 0..9),
            one in prop::collection::btree_set(0_u8..12, 1..12),
        ) {
            let set = |it: &BTreeSet<u8>| it.iter().copied().collect::<Vec<u8>>();
            let (last, attempt) = (view(1, &set(&last)), view(2, &set(&attempt)));
            let of = |ids: Vec<u8>| {
                let one = |id: u8| {
                    let attempts: &[Primary] = if tried.contains(&id) { std::slice::from_ref(&attempt) } else { &[] };
                    ([id; 8], report(Some(last.clone()), attempts, 1))
                };
                ids.into_iter().map(one).collect::<BTreeMap<_, _>>()
            };
            let sides = [of(set(&one)), of((0..12).filter(|id| !one.contains(id)).collect())];
            let goes_on = sides.iter().filter(|it| !it.is_empty() && decide(it, false).is_primary).count();
            prop_assert!(goes_on <= 1);
        }
    }
}
