//! A computer's disk: a `Store` is a barrier, and a crash tears what was not yet confirmed (G6).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::Effect;
use super::dice::{Chance, Dice};
use crate::network::Delay;

/// Records by id, as a restart finds them.
pub type Records = BTreeMap<u64, Vec<u8>>;

/// Durable records, those being written, and what waits behind them.
pub(super) struct Disk<T> {
    durable: Records,
    writing: Vec<(u64, Vec<u8>)>,
    waiting: VecDeque<Effect<T>>,
    syncing: bool,
}

/// What to do next with a node's effects.
pub(super) enum Step<T> {
    /// Perform it now.
    Do(Effect<T>),
    /// A write of so many bytes begins; call `synced` when it is durable.
    Write { bytes: usize },
    /// Nothing, until the disk has confirmed or the node wants more.
    Wait,
}

impl<T> Disk<T> {
    pub(super) fn new() -> Disk<T> {
        Disk { durable: Records::new(), writing: Vec::new(), waiting: VecDeque::new(), syncing: false }
    }

    pub(super) fn durable(&self) -> &Records {
        &self.durable
    }

    pub(super) fn wipe(&mut self) {
        self.durable.clear();
    }

    /// Appends an effect in the node's order.
    pub(super) fn queue(&mut self, effect: Effect<T>) {
        self.waiting.push_back(effect);
    }

    /// The next effect that no barrier holds back. Stores that follow each other directly share one
    /// sync.
    pub(super) fn next(&mut self) -> Step<T> {
        if self.syncing {
            return Step::Wait;
        }
        while let Some(Effect::Store { .. }) = self.waiting.front() {
            if let Some(Effect::Store { id, record }) = self.waiting.pop_front() {
                self.writing.push((id, record));
            }
        }
        if !self.writing.is_empty() {
            self.syncing = true;
            return Step::Write { bytes: self.writing.iter().map(|(_, r)| r.len()).sum() };
        }
        self.waiting.pop_front().map_or(Step::Wait, Step::Do)
    }

    /// Whether nothing is being written.
    pub(super) fn is_idle(&self) -> bool {
        !self.syncing
    }

    /// What was being written is durable.
    pub(super) fn synced(&mut self) {
        self.syncing = false;
        self.durable.extend(self.writing.drain(..));
    }

    /// Power fails: each record being written is there or is not; what waited is gone.
    pub(super) fn crash(&mut self, dice: &mut Dice) {
        for (id, record) in self.writing.drain(..) {
            if dice.happens(TORN_BUT_KEPT) {
                self.durable.insert(id, record);
            }
        }
        self.waiting.clear();
        self.syncing = false;
    }
}

/// How long an fsync takes: a consumer's SSD.
pub(super) const SYNC: Delay = Delay::Tailed(Duration::from_micros(300), Duration::from_micros(700));
const TORN_BUT_KEPT: Chance = Chance(500_000);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reach;

    fn send(n: u8) -> Effect<()> {
        Effect::Send { to: Reach::All, datagram: vec![n] }
    }

    #[test]
    fn rule_g6_nothing_after_a_store_leaves_before_it_is_durable() {
        let mut disk = Disk::new();
        for effect in [send(1), Effect::Store { id: 7, record: vec![9; 3] }, send(2)] {
            disk.queue(effect);
        }
        assert!(matches!(disk.next(), Step::Do(e) if e == send(1)));
        assert!(matches!(disk.next(), Step::Write { bytes: 3 }));
        assert!(matches!(disk.next(), Step::Wait));
        assert!(disk.durable().is_empty());
        disk.synced();
        assert_eq!(disk.durable()[&7], [9; 3]);
        assert!(matches!(disk.next(), Step::Do(e) if e == send(2)));
    }

    #[test]
    fn rule_g6_a_crash_tears_unsynced_records_and_loses_what_waited() {
        let mut kept = 0;
        for seed in 0..100 {
            let mut disk = Disk::new();
            disk.queue(Effect::Store { id: 1, record: vec![1] });
            disk.queue(send(1));
            assert!(matches!(disk.next(), Step::Write { .. }));
            disk.crash(&mut Dice::new(seed, 0));
            kept += disk.durable().len();
            assert!(matches!(disk.next(), Step::Wait), "the send never leaves");
        }
        assert!((30..70).contains(&kept), "{kept}");
    }
}
