//! Where a directory's rows lie: a shell reads and applies them, and the state only says which change.

use std::collections::BTreeMap;
use std::ops::Bound;

/// Rows by key, in the order of their bytes.
pub trait Storage {
    /// One row.
    ///
    /// # Errors
    /// The storage failed.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError>;

    /// The first `limit` rows whose key begins with `prefix` and is at least `from`, ascending.
    ///
    /// # Errors
    /// The storage failed.
    fn range(&self, prefix: &[u8], from: &[u8], limit: usize) -> Result<Vec<Row>, StorageError>;
}

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// One changed row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Which row.
    pub key: Vec<u8>,
    /// Its value; `None` removes it.
    pub value: Option<Vec<u8>>,
}

/// The storage failed or holds what this version did not write; the directory must stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the directory's storage failed: {0}")]
pub struct StorageError(pub String);

/// Rows with changes over them, so that one durable write serves several requests (G6).
pub struct Overlay<'a> {
    below: &'a dyn Storage,
    changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// All rows in memory, for tests and simulations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl<'a> Overlay<'a> {
    /// No changes yet.
    pub fn new(below: &'a dyn Storage) -> Overlay<'a> {
        Overlay { below, changes: BTreeMap::new() }
    }

    /// Lays more changes over it.
    pub fn apply(&mut self, writes: impl IntoIterator<Item = Write>) {
        self.changes.extend(writes.into_iter().map(|it| (it.key, it.value)));
    }

    /// All changes, one for each row, to be applied at once.
    pub fn into_writes(self) -> Vec<Write> {
        self.changes.into_iter().map(|(key, value)| Write { key, value }).collect()
    }

    pub(super) fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.changes.insert(key, Some(value));
    }

    pub(super) fn remove(&mut self, key: Vec<u8>) {
        self.changes.insert(key, None);
    }
}

impl Storage for Overlay<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        match self.changes.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.below.get(key),
        }
    }

    fn range(&self, prefix: &[u8], from: &[u8], limit: usize) -> Result<Vec<Row>, StorageError> {
        let from = from.max(prefix);
        let changes = self.changes.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        let changes: Vec<_> = changes.take_while(|(key, _)| key.starts_with(prefix)).collect();
        // Each change hides one row below at most, so that enough of them are left.
        let rows = self.below.range(prefix, from, limit.saturating_add(changes.len()))?;
        let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = rows.into_iter().collect();
        for (key, value) in changes {
            match value {
                Some(value) => _ = rows.insert(key.clone(), value.clone()),
                None => _ = rows.remove(key),
            }
        }
        Ok(rows.into_iter().take(limit).collect())
    }
}

impl Memory {
    /// Applies changes.
    pub fn apply(&mut self, writes: impl IntoIterator<Item = Write>) {
        for Write { key, value } in writes {
            match value {
                Some(value) => _ = self.rows.insert(key, value),
                None => _ = self.rows.remove(&key),
            }
        }
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.rows.iter().map(|(key, value)| (&key[..], &value[..]))
    }
}

impl Storage for Memory {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.rows.get(key).cloned())
    }

    fn range(&self, prefix: &[u8], from: &[u8], limit: usize) -> Result<Vec<Row>, StorageError> {
        let rows = self.rows.range::<[u8], _>((Bound::Included(from.max(prefix)), Bound::Unbounded));
        let rows = rows.take_while(|(key, _)| key.starts_with(prefix)).take(limit);
        Ok(rows.map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write() -> impl Strategy<Value = Write> {
        let key = prop::collection::vec(0_u8..3, 0..4);
        let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..2));
        (key, value).prop_map(|(key, value)| Write { key, value })
    }

    proptest! {
        #[test]
        fn an_overlay_reads_like_the_storage_to_which_it_is_applied(
            below in prop::collection::vec(write(), 0..20),
            above in prop::collection::vec(write(), 0..20),
            prefix in prop::collection::vec(0_u8..3, 0..3),
            from in prop::collection::vec(0_u8..3, 0..4),
            limit in 0_usize..6,
        ) {
            let mut memory = Memory::default();
            memory.apply(below);
            let mut applied = memory.clone();
            applied.apply(above.clone());
            let mut overlay = Overlay::new(&memory);
            overlay.apply(above);
            prop_assert_eq!(overlay.range(&prefix, &from, limit), applied.range(&prefix, &from, limit));
            prop_assert_eq!(overlay.get(&from), applied.get(&from));
            let writes = overlay.into_writes();
            let mut later = memory.clone();
            later.apply(writes);
            prop_assert_eq!(later, applied);
        }
    }
}
