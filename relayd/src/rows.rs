//! The directory's rows on disk: an LSM tree in which the changes of a batch are one atomic write.
//!
//! *After a crash.* A commit is durable when the call returns, and whole or not there at all: a torn one at the journal's end is
//! cut off when the rows are opened. The journal is a sparse file of 64 MB from its beginning on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode};
use sealcast_relay::directory::{Row, Storage, StorageError, Write};

use crate::failure::{DAMAGED, FULL};
use crate::limits;

/// A directory's rows.
pub struct Rows {
    database: Database,
    rows: Keyspace,
}

impl Rows {
    /// The rows in this folder, which is made if it is not there.
    ///
    /// # Errors
    /// The folder cannot be used, or its files are damaged.
    pub fn open(folder: &Path) -> Result<Rows, StorageError> {
        let open = || {
            let builder = Database::builder(folder).worker_threads(1).cache_size(limits::CACHE_BYTES);
            let database = builder.max_cached_files(Some(limits::FILES_OPEN)).open()?;
            let options = || KeyspaceCreateOptions::default().max_memtable_size(limits::UNSORTED_BYTES);
            let rows = database.keyspace("rows", options)?;
            database.persist(PersistMode::SyncAll)?;
            Ok(Rows { database, rows })
        };
        // Where a damaged journal breaks what the library takes for granted, it asserts; nothing of ours is half done then.
        let opened = catch_unwind(AssertUnwindSafe(open));
        opened.map_err(|_| StorageError(format!("{DAMAGED}: the journal contradicts itself")))?.map_err(failed)
    }

    /// Applies all changes or none; they are durable when the call returns.
    ///
    /// # Errors
    /// The storage failed; nothing more can be written.
    pub fn commit(&self, writes: Vec<Write>) -> Result<(), StorageError> {
        let batch = OwnedWriteBatch::with_capacity(self.database.clone(), writes.len());
        let mut batch = batch.durability(Some(PersistMode::SyncData));
        for Write { key, value } in writes {
            match value {
                Some(value) => batch.insert(&self.rows, key, value),
                None => batch.remove(&self.rows, key),
            }
        }
        batch.commit().map_err(failed)
    }
}

impl Storage for Rows {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.rows.get(key).map_err(failed)?.map(|value| value.to_vec()))
    }

    fn range(&self, prefix: &[u8], from: &[u8], limit: usize) -> Result<Vec<Row>, StorageError> {
        let from = from.max(prefix).to_vec();
        let found = match behind(prefix) {
            Some(end) if from >= end => return Ok(Vec::new()),
            Some(end) => self.rows.range(from..end),
            None => self.rows.range(from..),
        };
        let row = |guard: fjall::Guard| guard.into_inner().map(|(key, value)| (key.to_vec(), value.to_vec()));
        found.take(limit).map(|guard| row(guard).map_err(failed)).collect()
    }
}

/// The first key behind all that begin with a prefix; `None` if there is none.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// What is to be told of an error: a full disk above all.
fn failed(error: fjall::Error) -> StorageError {
    StorageError(match &error {
        fjall::Error::Io(error) if error.kind() == std::io::ErrorKind::StorageFull => FULL.into(),
        fjall::Error::Io(error) => error.to_string(),
        fjall::Error::Locked => "another process uses the rows".into(),
        fjall::Error::Poisoned => "an earlier write failed; is the disk full?".into(),
        other => match format!("{other:?}") {
            what if what.contains("StorageFull") => FULL.into(),
            what if what.contains("Io(") && !what.contains("NotFound") && !what.contains("UnexpectedEof") => what,
            what => format!("{DAMAGED}: {what}"),
        },
    })
}

#[cfg(test)]
mod tests {
    use sealcast_relay::directory::Memory;

    use super::*;

    fn writes(n: u32) -> Vec<Write> {
        let random = |i: u32| i.wrapping_mul(2_654_435_761).to_be_bytes();
        let write = |i: u32| {
            let key = random(n * 50 + i).map(|byte| if byte % 3 == 0 { u8::MAX } else { byte % 3 });
            let length = usize::try_from(i % 4).expect("it is small") + 1;
            Write { key: key[..length].to_vec(), value: (!i.is_multiple_of(5)).then(|| random(i).to_vec()) }
        };
        (0..50).map(write).collect()
    }

    #[test]
    fn rows_on_disk_read_like_rows_in_memory_and_stay() {
        let dir = tempfile::tempdir().unwrap();
        let mut memory = Memory::default();
        for n in 0..4 {
            // Each round opens what the one before left.
            let rows = Rows::open(dir.path()).unwrap();
            memory.apply(writes(n));
            rows.commit(writes(n)).unwrap();
            for prefix in [&[][..], &[1], &[u8::MAX], &[2, 1], &[u8::MAX, u8::MAX], &[7]] {
                for from in [&[][..], &[1], &[1, 2], &[u8::MAX, 1], &[u8::MAX; 5]] {
                    for limit in [0, 1, 3, 1000] {
                        assert_eq!(rows.range(prefix, from, limit), memory.range(prefix, from, limit));
                    }
                }
            }
            let keys: Vec<_> = writes(n).into_iter().map(|it| it.key).collect();
            assert!(keys.iter().all(|key| rows.get(key) == memory.get(key)));
        }
    }

    #[test]
    fn damaged_rows_are_named_as_damaged() {
        let dir = tempfile::tempdir().unwrap();
        drop(Rows::open(dir.path()).unwrap());
        // What tells the library its own version.
        let files = std::fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().path());
        files.filter(|it| it.is_file() && !it.ends_with("lock")).for_each(|it| std::fs::write(it, [7; 40]).unwrap());
        let opened = Rows::open(dir.path());
        assert!(opened.as_ref().is_err_and(|it| it.0.contains(DAMAGED)), "{:?}", opened.err());
    }
}
