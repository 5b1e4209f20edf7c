//! Members that hold all others up: for longer than `slow=expel` allows, or taking nothing at all for long.
//!
//! ```text
//! ACK, STATUS ─▶ the sequencer ── at each check: behind what most had at the check before? ── for so long ─▶ SLOW, suspected
//! ```
//! The sequencer, which is the coordinator too, judges a member by that member's own reports: they say how far it is, and only
//! grow, so nobody else's word makes it slower. SLOW, which is proved, tells all why it goes; nobody acts on it. Without
//! `slow=expel` senders wait for the slowest member, as long as it takes something now and then: so what waits for
//! acknowledgement is bounded by time, too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sealcast_wire::{Monotonic, Slot, limits};

use super::control::{Control, Of};
use super::order::Order;
use super::{Current, Sequencer};
use crate::Output;

/// What the sequencer knows of members that lag. Of one view.
#[derive(Debug)]
pub(super) struct Slow {
    /// How long a member may hold all up.
    most: Duration,
    /// Whether one may that takes something meanwhile.
    is_patient: bool,
    due: Option<Monotonic>,
    /// What most had at the last check, of the order and of each fifo stream.
    marks: BTreeMap<Option<Of>, u64>,
    /// What each member had.
    had: BTreeMap<(Option<Of>, Slot), u64>,
    /// Since when members have been behind at each check, in the order or in a stream.
    behind: BTreeMap<(Option<Of>, Slot), Monotonic>,
    told: BTreeSet<Slot>,
}

/// How far members are in the order, or in one sender's stream.
pub(super) type Progress = (Option<Of>, Vec<(Slot, u64)>);

impl Default for Slow {
    fn default() -> Slow {
        Slow::of(limits::RELIABLE_STALLED, true)
    }
}

impl Slow {
    fn of(most: Duration, is_patient: bool) -> Slow {
        let (marks, had) = (BTreeMap::new(), BTreeMap::new());
        Slow { most, is_patient, due: None, marks, had, behind: BTreeMap::new(), told: BTreeSet::new() }
    }

    /// Members go that hold all up for so long, whatever they take meanwhile.
    pub(super) fn expel_after(&mut self, most: Duration) {
        (self.most, self.is_patient) = (most, false);
    }

    /// A view begins, in which we judge.
    fn begin(&mut self, now: Monotonic, judges: bool) {
        *self = Slow::of(self.most, self.is_patient);
        self.due = judges.then(|| now + self.most / CHECKS);
    }

    /// When the next check is due.
    pub(super) fn due(&self) -> Option<Monotonic> {
        self.due
    }

    /// A check: who held all up for too long, if anybody did. Never so many that those who stay are no majority.
    fn check(&mut self, now: Monotonic, members: usize, lines: Vec<Progress>) -> Option<Slot> {
        let most = self.most;
        let (mut behind, mut marks, mut had) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        for (of, line) in lines {
            let mut numbers: Vec<u64> = line.iter().map(|(_, number)| *number).collect();
            numbers.sort_unstable_by(|a, b| b.cmp(a));
            let Some(majority) = numbers.get(numbers.len() / 2).copied() else { continue };
            marks.insert(of, majority);
            let Some(mark) = self.marks.get(&of).copied() else { continue };
            let lags = |number: u64| number < mark && number.saturating_add(LAG_MIN) <= majority;
            let waits = |slot, number| !self.is_patient || self.had.get(&(of, slot)) == Some(&number);
            for (slot, number) in line.into_iter().filter(|(_, number)| lags(*number)) {
                behind.extend(waits(slot, number).then_some((of, slot)));
                had.insert((of, slot), number);
            }
        }
        (self.marks, self.had, self.due) = (marks, had, Some(now + most / CHECKS));
        self.behind.retain(|it, _| behind.contains(it));
        behind.into_iter().for_each(|it| _ = self.behind.entry(it).or_insert(now));
        let room = |slot: &Slot| self.told.contains(slot) || 2 * (self.told.len() + 1) < members;
        let slow = self.behind.iter().filter(|((_, slot), since)| now >= **since + most && room(slot));
        let ((_, slot), _) = slow.min_by_key(|(_, since)| **since)?;
        let slot = *slot;
        // If it is still here then, once more.
        self.behind.iter_mut().filter(|((_, it), _)| *it == slot).for_each(|(_, since)| *since = now);
        self.told.insert(slot);
        Some(slot)
    }
}

impl Current {
    /// How far members are, where we are told: but for ourselves, and for streams that nobody else reads.
    fn lines(&self) -> Vec<Progress> {
        let order = self.order.as_ref().map(|it| (None, it.progress()));
        let reads = |slot, domain| self.access.reads(slot, domain);
        let streams = self.acknowledged.progress(&self.members, reads).into_iter().map(|(of, line)| (Some(of), line));
        order.into_iter().chain(streams).collect()
    }
}

impl Sequencer {
    /// Members that hold all up for so long are to go, from the next view on. Theirs are the reports that count, and the
    /// sequencer is who judges: see [`Output::Slow`].
    pub fn expel_slow(&mut self, after: Duration) {
        self.slow.expel_after(after);
    }

    /// A view is installed.
    pub(super) fn watch_slow(&mut self, now: Monotonic) {
        // Of two members neither is a majority.
        let judges = self.current.as_ref().is_some_and(|it| it.members.len() > 2 && it.coordinator() == Some(it.me));
        self.slow.begin(now, judges);
    }

    /// Judges, if it is time.
    pub(super) fn judge_slow(&mut self, now: Monotonic) {
        let Some(current) = self.current.as_ref().filter(|_| self.slow.due.is_some_and(|due| due <= now)) else {
            return;
        };
        let Some(slot) = self.slow.check(now, current.members.len(), current.lines()) else { return };
        // What cannot be said now is said if the member stays.
        let _ = self.multicast.lock().flush(now, &current.protect, &Control::Slow(slot).bytes());
        self.multicast.transmit_soon();
        self.tell_in_turn(Output::Slow { slot, judged: true });
    }

    /// This member holds the least of the order, by the word of who orders.
    pub(super) fn note_slowest(&mut self, slowest: Option<Slot>) {
        let lag = self.current.as_ref().and_then(|it| it.order.as_ref()).map_or(0, Order::lag);
        let is_member = |it: &Slot| self.current.as_ref().is_some_and(|view| view.members.binary_search(it).is_ok());
        let slowest = slowest.filter(|it| lag > 0 && is_member(it));
        if let Some(backlog) = self.multicast.lock().backlog() {
            backlog.slowest = slowest.map(|slot| (slot, lag));
        }
    }

    /// The sequencer says of a member why it goes.
    pub(super) fn take_slow(&mut self, by: Slot, slot: Slot) {
        let is_judge = self.current.as_ref().is_some_and(|it| it.coordinator() == Some(by) && slot != by);
        if is_judge && self.current.as_ref().is_some_and(|it| it.members.binary_search(&slot).is_ok()) {
            self.tell_in_turn(Output::Slow { slot, judged: false });
        }
    }
}

/// In the time that a member may hold all up, so often it is looked at.
const CHECKS: u32 = 16;
/// Records that a member is behind most of the others at least, for others to wait for it.
const LAG_MIN: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_millis(1600);

    fn played(members: usize, progress: impl Fn(u32, u64) -> u64) -> Vec<Option<Slot>> {
        played_with(Slow::of(MOST, false), members, progress)
    }

    fn played_with(mut slow: Slow, members: usize, progress: impl Fn(u32, u64) -> u64) -> Vec<Option<Slot>> {
        slow.begin(Monotonic(0), true);
        let check = |nth: u64| {
            let line = (0..members as u32).map(|slot| (Slot(slot), progress(slot, nth))).collect();
            slow.check(Monotonic(nth * 100_000), members, vec![(None, line)])
        };
        (1..=40).map(check).collect()
    }

    #[test]
    fn a_member_goes_that_is_behind_at_each_check_and_nobody_that_catches_up_once() {
        let told = played(4, |slot, nth| if slot == 3 { 10 * nth } else { 100 * nth });
        assert_eq!(told.iter().position(Option::is_some), Some(17), "16 checks after the first that finds it behind");
        assert_eq!(told[17], Some(Slot(3)));
        let told =
            played(4, |slot, nth| if slot == 3 && nth % 12 != 0 { 100 * nth - 300.min(100 * nth) } else { 100 * nth });
        assert!(told.iter().all(Option::is_none), "{told:?}");
    }

    /// `slow=wait`: senders wait for who is slow, but not for ever for who takes nothing.
    #[test]
    fn a_member_that_takes_nothing_goes_where_a_slow_one_stays() {
        let patient = || Slow::of(MOST, true);
        let told = played_with(patient(), 4, |slot, nth| if slot == 3 { 10 * nth } else { 100 * nth });
        assert!(told.iter().all(Option::is_none), "{told:?}");
        // All others wait for it, and send no more.
        let told = played_with(patient(), 4, |slot, nth| if slot == 3 { 7 } else { 100 * nth.min(5) });
        assert_eq!(told.iter().flatten().next(), Some(&Slot(3)));
        let first = told.iter().position(Option::is_some);
        assert!(first.is_some_and(|it| (17..20).contains(&it)), "{told:?}");
        let told = played_with(patient(), 4, |slot, nth| if slot == 3 { nth / 15 } else { 100 * nth.min(5) });
        assert!(told.iter().all(Option::is_none), "it takes one now and then: {told:?}");
    }

    #[test]
    fn nobody_goes_for_a_lag_that_keeps_nobody_waiting_or_if_no_majority_would_stay() {
        let told = played(4, |slot, nth| if slot == 3 { nth.saturating_sub(5) } else { nth });
        assert!(told.iter().all(Option::is_none), "a far member, and few messages");
        let told = played(4, |slot, nth| if slot >= 2 { nth } else { 100 * nth });
        assert!(told.iter().all(Option::is_none), "half of them, and most are not ahead");
        let told: BTreeSet<Slot> =
            played(5, |slot, nth| if slot >= 3 { nth } else { 100 * nth }).into_iter().flatten().collect();
        assert_eq!(told, BTreeSet::from([Slot(3), Slot(4)]));
        let told: BTreeSet<Slot> =
            played(3, |slot, nth| if slot == 2 { 0 } else { 100 * nth }).into_iter().flatten().collect();
        assert_eq!(told, BTreeSet::from([Slot(2)]));
    }
}
