//! Snapshots: what a new broker needs to execute the next block. The head names the state's root, which f + 1 brokers
//! signed, before a single row is there; the rows must come to what the head says, or nothing is believed.

use sealcast_crypto::set_hash::SetHash;
use sealcast_wire::{Utc, limits};

use super::low_water_mark::LowWaterMark;
use super::store::{Changes, Row, Store, StoreError};
use super::{Head, State, table};
use crate::genesis::{Cluster, Genesis};

/// Why a snapshot is not taken over. The store may hold part of it and is to be thrown away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// It is not the state with that root.
    #[error("the snapshot is not the state that it should be")]
    Root,
    /// Rows are missing, doubled, out of order, too many, or of no table.
    #[error("the snapshot has rows that are none")]
    Rows,
    /// The storage failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The head of a snapshot. Its encoding is that of the state's row `M`:
/// `u64 height ‖ i64 time ‖ u64 next sn ‖ u64 next act ‖ u64 policy ‖ u32 epoch ‖ history ‖ set ‖ u64 rows ‖ u64 bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotHead(Head);

/// A snapshot on its way into an empty store.
pub struct Restore<S> {
    store: S,
    wanted: Head,
    set: SetHash,
    rows: u64,
    bytes: u64,
    last: Vec<u8>,
    changes: Changes,
}

impl SnapshotHead {
    /// The head with these bytes, if it is one.
    pub fn from_bytes(bytes: &[u8]) -> Option<SnapshotHead> {
        table::read(bytes, Head::decode).ok().map(SnapshotHead)
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.to_bytes()
    }

    /// The root of the state that it is of.
    pub fn root(&self, cluster: &Cluster) -> [u8; 32] {
        self.0.root(cluster)
    }

    /// After which block.
    pub fn height(&self) -> u64 {
        self.0.height
    }

    /// That block's time.
    pub fn at(&self) -> Utc {
        self.0.at
    }

    /// How many rows follow.
    pub fn rows(&self) -> u64 {
        self.0.rows
    }

    /// Bytes of their keys and values.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The low-water mark of a broker that begins with it.
    pub fn low_water_mark(&self) -> LowWaterMark {
        LowWaterMark { height: self.0.height, sn: self.0.next_sn }
    }
}

impl<S: Store> Restore<S> {
    /// Begins with the head, if it is that of the state with this root. The store must be empty.
    ///
    /// # Errors
    /// `Root`.
    pub fn begin(cluster: &Cluster, head: SnapshotHead, root: &[u8; 32], store: S) -> Result<Restore<S>, RestoreError> {
        if head.root(cluster) != *root {
            return Err(RestoreError::Root);
        }
        let (set, changes) = (SetHash::new(), Changes::new());
        Ok(Restore { store, wanted: head.0, set, rows: 0, bytes: 0, last: Vec::new(), changes })
    }

    /// Takes the next row, ascending by key.
    ///
    /// # Errors
    /// `Rows` or `Store`.
    pub fn row(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), RestoreError> {
        self.rows += 1;
        self.bytes += (key.len() + value.len()) as u64;
        if key <= self.last
            || !table::is_element(&key)
            || self.rows > self.wanted.rows
            || self.bytes > self.wanted.bytes
        {
            return Err(RestoreError::Rows);
        }
        self.set.insert(&key, &value);
        self.last.clone_from(&key);
        let place =
            LowWaterMark::place(self.wanted.height, &(key.clone(), value.clone())).map_err(|_| RestoreError::Rows)?;
        self.changes.extend(place.map(|(key, value)| (key, Some(value))));
        self.changes.insert(key, Some(value));
        if self.changes.len() >= limits::STORE_PAGE_ROWS {
            self.store.apply(std::mem::take(&mut self.changes))?;
        }
        Ok(())
    }

    /// All rows were there: writes the head, without which the store is none.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn finish(mut self) -> Result<S, RestoreError> {
        if (self.rows, self.bytes) != (self.wanted.rows, self.wanted.bytes) {
            return Err(RestoreError::Rows);
        }
        if self.set != self.wanted.set {
            return Err(RestoreError::Root);
        }
        let (key, row) = SnapshotHead(self.wanted.clone()).low_water_mark().row();
        self.changes.insert(key, Some(row));
        let (key, row) = self.wanted.row();
        self.changes.insert(key, Some(row));
        self.store.apply(self.changes)?;
        Ok(self.store)
    }
}

impl<S: Store> State<S> {
    /// The head of a snapshot of this state; its rows are the store's [`elements`] until the next block is executed.
    pub fn snapshot_head(&self) -> SnapshotHead {
        SnapshotHead(self.head.clone())
    }

    /// The state with this head and these rows, if its root is `root`, written to an empty store.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn restore(
        genesis: Genesis,
        store: S,
        head: SnapshotHead,
        rows: impl IntoIterator<Item = Row>,
        root: &[u8; 32],
    ) -> Result<State<S>, RestoreError> {
        let mut restore = Restore::begin(&genesis.cluster(), head, root, store)?;
        rows.into_iter().try_for_each(|(key, value)| restore.row(key, value))?;
        State::open(genesis, restore.finish()?).map_err(|_| RestoreError::Rows)
    }
}

/// The rows of a store that a snapshot has, ascending.
///
/// # Errors
/// Each row may fail to be read.
pub fn elements<S: Store>(store: &S) -> impl Iterator<Item = Result<Row, StoreError>> + '_ {
    table::ELEMENTS.iter().flat_map(|table| super::rows(store, &[*table])).map(|(key, value)| Ok((key, value?)))
}
