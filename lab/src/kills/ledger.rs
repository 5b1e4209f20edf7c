//! What the members of an order told, and what must hold of it: one order, in which everything is that was acknowledged.
//!
//! The order grows with the member that is furthest. Each run of a member (an incarnation) has a position in it: it must deliver what
//! follows, and nothing else. A run that joined begins where its first entry is. Where a member was told of a gap, it may
//! pass over some of the order.

use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Numbers of messages with the times at which they were published.
    order: Vec<(u64, u64)>,
    /// Where in the order each is.
    positions: BTreeMap<u64, usize>,
    acknowledged: BTreeSet<u64>,
    /// Acknowledged, and delivered to nobody so far; with the turn.
    awaited: BTreeMap<u64, u32>,
    /// Said to be delivered to nobody, ever.
    failed: BTreeSet<u64>,
    runs: Vec<Run>,
    turn: u32,
}

/// A run of a member.
#[derive(Debug)]
struct Run {
    name: String,
    /// Since when it is in a view that orders.
    since: Option<u64>,
    /// Where its part of the order begins.
    begins: Option<usize>,
    /// What it delivers next.
    next: Option<usize>,
    /// Delivered, and where in the order that is cannot be told yet; since this turn.
    waiting: Vec<(u64, u64)>,
    waits_since: u32,
    /// How many more times it may pass over some.
    gaps: u32,
    /// The turn in which its process ended.
    ended: Option<u32>,
}

impl Ledger {
    /// A run begins; its number. One that `founds` has all of the order from the beginning.
    pub(super) fn begin(&mut self, name: String, founds: bool) -> usize {
        let next = founds.then_some(0);
        let (begins, waiting) = (next, vec![]);
        self.runs.push(Run { name, since: None, begins, next, waiting, waits_since: 0, gaps: 0, ended: None });
        self.runs.len() - 1
    }

    /// It is in a view that orders.
    pub(super) fn joined(&mut self, run: usize, nanos: u64) {
        self.runs[run].since.get_or_insert(nanos);
    }

    /// It was told that some of the order never comes.
    pub(super) fn gap(&mut self, run: usize, nanos: u64) {
        let run = &mut self.runs[run];
        (run.gaps, run.since) = (run.gaps + 1, Some(nanos));
    }

    /// Its process has ended: more does not come of it.
    pub(super) fn end(&mut self, run: usize) {
        self.runs[run].ended = Some(self.turn);
    }

    /// Somebody was told that a message has its position.
    pub(super) fn acknowledge(&mut self, number: u64) {
        self.acknowledged.insert(number);
        if !self.positions.contains_key(&number) {
            self.awaited.insert(number, self.turn);
        }
    }

    /// Somebody was told that nobody gets a message.
    pub(super) fn fail(&mut self, number: u64) {
        self.failed.insert(number);
    }

    /// What was told until now has come from everybody when the turn after the next one ends.
    pub(super) fn next_turn(&mut self) {
        self.turn += 1;
    }

    /// A message was delivered.
    pub(super) fn deliver(&mut self, run: usize, number: u64, nanos: u64) {
        let it = &mut self.runs[run];
        if it.waiting.is_empty() {
            it.waits_since = self.turn;
        }
        it.waiting.push((number, nanos));
        self.follow(run);
    }

    /// How many messages are in the order.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// How many of them were acknowledged to their publishers.
    pub(super) fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    /// How many of the newest messages of the order a run has not delivered; `None` if it is not known where it is.
    pub(super) fn behind(&self, run: usize) -> Option<usize> {
        let run = &self.runs[run];
        run.next.filter(|_| run.waiting.is_empty()).map(|next| self.order.len() - next)
    }

    /// Places the runs whose position in the order was not known. True if that placed any.
    pub(super) fn settle(&mut self) -> bool {
        let before = self.waiting();
        (0..self.runs.len()).for_each(|run| self.follow(run));
        self.waiting() < before
    }

    /// Checks what was told before the turn before this one.
    ///
    /// # Errors
    /// What does not hold.
    pub(super) fn check(&mut self) -> Result<(), String> {
        match self.turn.checked_sub(2) {
            Some(turn) => self.check_until(turn),
            None => Ok(()),
        }
    }

    /// Checks all; nothing is on its way from members to us.
    ///
    /// # Errors
    /// What does not hold.
    pub(super) fn check_all(&mut self) -> Result<(), String> {
        self.check_until(self.turn)
    }

    fn check_until(&mut self, turn: u32) -> Result<(), String> {
        while self.settle() {}
        if let Some((number, _)) = self.awaited.iter().find(|(_, since)| **since <= turn) {
            return Err(format!("{} was acknowledged, and nobody delivered it", shown(*number)));
        }
        if let Some(number) = self.failed.iter().find(|it| self.positions.contains_key(it)) {
            return Err(format!("{} was delivered, and was said to have failed", shown(*number)));
        }
        let checked = self.runs.iter().filter(|run| run.ended.is_none_or(|ended| ended >= turn));
        checked.into_iter().try_for_each(|run| self.check_run(run, turn))
    }

    fn check_run(&self, run: &Run, turn: u32) -> Result<(), String> {
        if let Some((number, _)) = run.waiting.first().filter(|_| run.waits_since <= turn) {
            let has = shown(*number);
            return Err(match run.next.and_then(|next| self.order.get(next)) {
                Some((other, _)) => {
                    format!("two orders: {} delivered {has} where others have {}", run.name, shown(*other))
                }
                None => format!("two orders: {has} is delivered by {} alone", run.name),
            });
        }
        let (Some(since), Some(begins)) = (run.since, run.begins) else { return Ok(()) };
        let is_lost = |(number, nanos): &&(u64, u64)| *nanos > since && self.acknowledged.contains(number);
        match self.order[..begins].iter().rev().take(LOOKED_BACK).find(is_lost) {
            Some((number, _)) => {
                Err(format!("{} was in the view when {} was published, and never got it", run.name, shown(*number)))
            }
            None => Ok(()),
        }
    }

    fn waiting(&self) -> usize {
        self.runs.iter().map(|run| run.waiting.len()).sum()
    }

    /// Takes as much of what a run delivered as its position is known of.
    fn follow(&mut self, run: usize) {
        let Ledger { order, positions, awaited, runs, .. } = self;
        let run = &mut runs[run];
        let mut taken = 0;
        for &(number, nanos) in &run.waiting {
            let position = positions.get(&number).copied();
            let next = match (run.next, position) {
                // Where the others are, it is too.
                (Some(next), Some(position)) if next == position => position,
                // It is the first one with something new.
                (Some(next), None) if next == order.len() && run.gaps == 0 => {
                    order.push((number, nanos));
                    positions.insert(number, next);
                    awaited.remove(&number);
                    next
                }
                // It joined, and this is its first one.
                (None, Some(position)) => {
                    run.begins = Some(position);
                    position
                }
                // It was told of a gap.
                (Some(next), Some(position)) if position > next && run.gaps > 0 => {
                    (run.gaps, run.begins) = (run.gaps - 1, Some(position));
                    position
                }
                _ => break,
            };
            run.next = Some(next + 1);
            taken += 1;
        }
        run.waiting.drain(..taken);
    }
}

/// A message's number, as people read it.
pub(super) fn shown(number: u64) -> String {
    let (member, run, count) = (number >> 56, number >> 32 & 0xFF_FFFF, number & 0xFFFF_FFFF);
    format!("message {count} of run {run} of robot{member}")
}

/// The number before the first one of a member's run.
pub(super) fn first(member: usize, run: u32) -> u64 {
    (member as u64) << 56 | u64::from(run) << 32
}

/// More messages than are published between joining and the first delivery.
const LOOKED_BACK: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Two that found an order of 1, 2, 3, which one of them has.
    fn founded() -> (Ledger, usize, usize) {
        let mut ledger = Ledger::default();
        let (a, b) = (ledger.begin("a".into(), true), ledger.begin("b".into(), true));
        for number in [1, 2, 3] {
            ledger.deliver(a, number, 10 * number);
        }
        (ledger, a, b)
    }

    #[test]
    fn a_run_that_follows_the_order_holds_it() {
        let (mut ledger, a, b) = founded();
        ledger.acknowledge(2);
        ledger.deliver(b, 1, 10);
        assert_eq!((ledger.behind(a), ledger.behind(b), ledger.check_all()), (Some(0), Some(2), Ok(())));
    }

    #[test]
    fn another_order_is_found() {
        let (mut ledger, _, b) = founded();
        ledger.deliver(b, 2, 20);
        assert!(ledger.check_all().is_err_and(|it| it.starts_with("two orders: b delivered message 2")));
    }

    #[test]
    fn what_was_acknowledged_and_nobody_has_is_found() {
        let (mut ledger, ..) = founded();
        ledger.acknowledge(4);
        assert!(ledger.check_all().is_err_and(|it| it.contains("nobody delivered it")));
    }

    #[test]
    fn what_failed_and_was_delivered_is_found() {
        let (mut ledger, ..) = founded();
        ledger.fail(4);
        assert_eq!(ledger.check_all(), Ok(()));
        ledger.fail(3);
        assert!(ledger.check_all().is_err_and(|it| it.contains("said to have failed")));
    }

    #[test]
    fn one_who_joined_begins_anywhere_but_behind_what_it_was_there_for() {
        let (mut ledger, ..) = founded();
        ledger.acknowledge(2);
        let c = ledger.begin("c".into(), false);
        ledger.joined(c, 25);
        ledger.deliver(c, 3, 30);
        assert_eq!((ledger.behind(c), ledger.check_all()), (Some(0), Ok(())));
        let d = ledger.begin("d".into(), false);
        ledger.joined(d, 15);
        ledger.deliver(d, 3, 30);
        assert!(ledger.check_all().is_err_and(|it| it.starts_with("d was in the view when message 2")));
    }

    #[test]
    fn one_who_is_ahead_waits_for_the_others() {
        let (mut ledger, a, _) = founded();
        let c = ledger.begin("c".into(), false);
        ledger.deliver(c, 4, 40);
        ledger.deliver(c, 5, 50);
        assert_eq!(ledger.behind(c), None);
        ledger.deliver(a, 4, 40);
        assert!(ledger.settle());
        assert_eq!((ledger.behind(c), ledger.behind(a), ledger.check_all()), (Some(0), Some(1), Ok(())));
    }

    #[test]
    fn a_gap_lets_a_member_pass_over_some_once() {
        let (mut ledger, _, b) = founded();
        ledger.deliver(b, 3, 30);
        ledger.gap(b, 25);
        assert_eq!((ledger.check_all(), ledger.behind(b)), (Ok(()), Some(0)));
        ledger.deliver(b, 2, 20);
        assert!(ledger.check_all().is_err());
    }
}
