//! The broker's rows on disk: an LSM tree in which a block's changes are one atomic batch.
//!
//! *After a crash.* A batch goes to the tree's journal and, when the call returns, to the operating system; what a killed
//! process had applied is there when it comes back. Against a loss of power it stands only after [`Lsm::sync`]. Blocks
//! are not acknowledged to the order before that, so that it brings again what may be lost, and the store is always at
//! the end of some block: a torn batch at the journal's end is cut off when the store is opened.

use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use sealcast_broker::state::{Changes, Row, Store, StoreError};

/// The rows of one broker. Clones are the same store.
#[derive(Clone)]
pub struct Lsm {
    database: Database,
    rows: Keyspace,
}

impl Lsm {
    /// The store in this folder, which is made if it is not there. What is in it is durable when the call returns.
    ///
    /// # Errors
    /// The folder cannot be used, or another process uses it.
    pub fn open(folder: &Path) -> Result<Lsm, StoreError> {
        let named = |error: fjall::Error| StoreError(format!("{} ({})", said(&error), folder.display()));
        let open = || {
            let database = Database::builder(folder).worker_threads(1).cache_size(CACHE_BYTES).open()?;
            let rows = database.keyspace("rows", KeyspaceCreateOptions::default)?;
            database.persist(PersistMode::SyncAll)?;
            Ok(Lsm { database, rows })
        };
        open().map_err(named)
    }

    /// Returns when all that was applied is durable.
    ///
    /// # Errors
    /// The storage failed; nothing more can be written.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.database.persist(PersistMode::SyncData).map_err(failed)
    }
}

impl Store for Lsm {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.rows.get(key).map_err(failed)?.map(|value| value.to_vec()))
    }

    fn range(&self, from: &[u8], until: &[u8], limit: usize) -> Result<Vec<Row>, StoreError> {
        if from >= until {
            return Ok(Vec::new());
        }
        let rows = self.rows.range(from..until).take(limit);
        let row = |guard: fjall::Guard| guard.into_inner().map(|(key, value)| (key.to_vec(), value.to_vec()));
        rows.map(|guard| row(guard).map_err(failed)).collect()
    }

    fn apply(&mut self, changes: Changes) -> Result<(), StoreError> {
        let mut batch = fjall::OwnedWriteBatch::with_capacity(self.database.clone(), changes.len());
        for (key, value) in changes {
            match value {
                Some(value) => batch.insert(&self.rows, key, value),
                None => batch.remove(&self.rows, key),
            }
        }
        batch.commit().map_err(failed)
    }
}

fn failed(error: fjall::Error) -> StoreError {
    StoreError(said(&error))
}

/// What is to be told of an error: a full disk above all.
fn said(error: &fjall::Error) -> String {
    match error {
        fjall::Error::Io(error) if error.kind() == std::io::ErrorKind::StorageFull => "the disk is full".into(),
        fjall::Error::Io(error) => error.to_string(),
        fjall::Error::Locked => "another process uses the store".into(),
        fjall::Error::Poisoned => "an earlier write failed; is the disk full?".into(),
        other => other.to_string(),
    }
}

/// Blocks of rows that are kept in memory.
const CACHE_BYTES: u64 = 64 << 20;
