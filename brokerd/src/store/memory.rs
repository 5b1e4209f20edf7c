//! Rows in memory that know what a crash would leave of them, for simulations.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sealcast_broker::state::{self, Changes, Row, Store, StoreError};

/// The rows of one broker on a disk that is none. Clones are the same rows.
#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<Rows>>);

#[derive(Default)]
struct Rows {
    /// What is read.
    now: state::Memory,
    /// What a crash leaves.
    synced: state::Memory,
    /// What was applied since, in order.
    unsynced: Vec<Changes>,
}

impl Memory {
    /// All that was applied is durable.
    pub(super) fn sync(&self) {
        let mut rows = self.rows();
        let unsynced = std::mem::take(&mut rows.unsynced);
        unsynced.into_iter().for_each(|changes| rows.synced.apply(changes).expect("memory does not fail"));
    }

    /// What is read now, for who needs it later.
    pub(super) fn now(&self) -> state::Memory {
        self.rows().now.clone()
    }

    /// How many changes a crash may take.
    pub fn unsynced(&self) -> usize {
        self.rows().unsynced.len()
    }

    /// What a crash leaves: what was synced, and of what was applied since the first `kept` changes. A change is there as
    /// a whole or not, and none without those before it.
    pub fn crash(&self, kept: usize) {
        let mut rows = self.rows();
        let unsynced = std::mem::take(&mut rows.unsynced);
        let kept = unsynced.into_iter().take(kept);
        kept.for_each(|changes| rows.synced.apply(changes).expect("memory does not fail"));
        rows.now = rows.synced.clone();
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Memory {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.rows().now.get(key)
    }

    fn range(&self, from: &[u8], until: &[u8], limit: usize) -> Result<Vec<Row>, StoreError> {
        self.rows().now.range(from, until, limit)
    }

    fn apply(&mut self, changes: Changes) -> Result<(), StoreError> {
        let mut rows = self.rows();
        rows.unsynced.push(changes.clone());
        rows.now.apply(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_e12_a_crash_leaves_what_was_synced_and_a_beginning_of_the_rest() {
        let mut rows = Memory::default();
        let put = |key: u8| Changes::from([(vec![key], Some(vec![key]))]);
        for key in 1..=4 {
            rows.apply(put(key)).unwrap();
            if key == 2 {
                rows.sync();
            }
        }
        rows.apply(Changes::from([(vec![1], None)])).unwrap();
        let keys = |rows: &Memory| -> Vec<u8> { rows.range(&[0], &[9], 9).unwrap().iter().map(|it| it.0[0]).collect() };
        assert_eq!((keys(&rows), rows.unsynced()), (vec![2, 3, 4], 3));
        rows.crash(1);
        assert_eq!((keys(&rows), rows.unsynced()), (vec![1, 2, 3], 0));
        rows.crash(9);
        assert_eq!(keys(&rows), [1, 2, 3]);
    }
}
