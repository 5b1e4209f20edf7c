//! Where a broker's state lies: rows of bytes by key, so that it need not fit into memory.

use std::collections::BTreeMap;

/// Rows by key, in the order of their bytes. What is read reflects every change that was applied.
pub trait Store {
    /// One row.
    ///
    /// # Errors
    /// The storage failed; the broker must stop.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// The first `limit` rows with `from` ≤ key < `until`, ascending.
    ///
    /// # Errors
    /// The storage failed.
    fn range(&self, from: &[u8], until: &[u8], limit: usize) -> Result<Vec<Row>, StoreError>;

    /// Sets rows (`Some`) and removes them (`None`): after a crash all of it is there or nothing.
    ///
    /// # Errors
    /// The storage failed, and nothing changed.
    fn apply(&mut self, changes: Changes) -> Result<(), StoreError>;
}

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);
/// Rows to set, and with `None` to remove.
pub type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The storage failed, with what it said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the broker's storage failed: {0}")]
pub struct StoreError(pub String);

/// All rows in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Store for Memory {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.rows.get(key).cloned())
    }

    fn range(&self, from: &[u8], until: &[u8], limit: usize) -> Result<Vec<Row>, StoreError> {
        if from >= until {
            return Ok(Vec::new());
        }
        let rows = self.rows.range::<[u8], _>((std::ops::Bound::Included(from), std::ops::Bound::Excluded(until)));
        Ok(rows.take(limit).map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    fn apply(&mut self, changes: Changes) -> Result<(), StoreError> {
        for (key, value) in changes {
            match value {
                Some(value) => self.rows.insert(key, value),
                None => self.rows.remove(&key),
            };
        }
        Ok(())
    }
}
