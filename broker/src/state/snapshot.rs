//! Snapshots: a state's rows, from which a new broker computes the root and compares it with what f+1
//! brokers signed. What cannot be so checked (the index, the set's hash) is computed and not taken over.

use super::entry::Entry;
use super::index::Runs;
use super::outbox::publications_root;
use super::store::{Changes, Row, Store, StoreError};
use super::{Head, State, table};
use crate::genesis::Genesis;

/// Why a snapshot is not taken over. The store may hold part of it and is to be thrown away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// It is not the state with that root.
    #[error("the snapshot is not the state that it should be")]
    Root,
    /// Rows are missing, doubled, out of order, or of no table.
    #[error("the snapshot has rows that are none")]
    Rows,
    /// The storage failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<S: Store> State<S> {
    /// The state's rows, ascending, as [`State::restore`] takes them; a page of a snapshot is as many of
    /// them as one likes. They are those of this height until the next block is executed.
    ///
    /// # Errors
    /// Each row may fail to be read.
    pub fn snapshot(&self) -> impl Iterator<Item = Result<Row, StoreError>> + '_ {
        super::rows(&self.store, &[]).filter(|(key, _)| table::is_kept(key)).map(|(key, value)| Ok((key, value?)))
    }

    /// The state with these rows, if its root is `root`, written to an empty store.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn restore(
        genesis: Genesis,
        mut store: S,
        rows: impl IntoIterator<Item = Row>,
        root: &[u8; 32],
    ) -> Result<State<S>, RestoreError> {
        let mut taken = Head::first();
        let (mut head, mut last) = (None, Vec::new());
        let mut block: Vec<Entry> = Vec::new();
        let mut runs = Runs::default();
        for (key, value) in rows {
            if key <= last {
                return Err(RestoreError::Rows);
            }
            let mut changes = Changes::new();
            if table::is_element(&key) {
                taken.set.insert(&key, &value);
            } else if key == table::HEAD {
                head = Some(table::read(&value, Head::decode).map_err(|_| RestoreError::Rows)?);
            } else if key.first() == Some(&table::ENTRY) {
                let entry = Entry::from_bytes(&value).map_err(|_| RestoreError::Rows)?;
                if table::entry(entry.sn) != key {
                    return Err(RestoreError::Rows);
                }
                if block.last().is_some_and(|before| before.height != entry.height) {
                    taken.append(block[0].height, &publications_root(&block));
                    block.clear();
                    changes = runs.take();
                }
                if !entry.places.iter().all(|(header, ps)| runs.push(header, *ps, entry.sn)) {
                    return Err(RestoreError::Rows);
                }
                block.push(entry);
            } else {
                return Err(RestoreError::Rows);
            }
            changes.insert(key.clone(), Some(value));
            store.apply(changes)?;
            last = key;
        }
        if let Some(first) = block.first() {
            taken.append(first.height, &publications_root(&block));
        }
        let head = head.unwrap_or_else(Head::first);
        taken = Head { set: taken.set, history: taken.history, ..head };
        let mut changes = runs.take();
        changes.insert(table::HEAD.to_vec(), Some(taken.to_bytes()));
        store.apply(changes)?;
        let state = State::open(genesis, store).map_err(|_| RestoreError::Rows)?;
        if state.root() == *root { Ok(state) } else { Err(RestoreError::Root) }
    }
}
