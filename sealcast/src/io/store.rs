//! Records that must outlive a crash (G6): one file, appended to, with one sync per batch.
//!
//! ```text
//! entry: | length of record (4) | id (8) | first 8 bytes of SHA-256 of id and record | record |
//! ```
//! A later entry of an id replaces earlier ones. A torn entry at the end, as a crash leaves it, is cut
//! off; what was synced before it stays.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sealcast_crypto::hash::Transcript;

use crate::config::{Overwrite, program_folder, write_secret};
use crate::error::{Error, Result};
use crate::remedy::Remedy;

/// See the module.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    file: File,
    records: BTreeMap<u64, Vec<u8>>,
    /// Bytes of the file, and of what in it still counts.
    written: u64,
    unsynced: bool,
}

impl Store {
    /// Opens the file, or makes it; only one process at a time has it.
    ///
    /// # Errors
    /// [`crate::Code::Duplicate`] if another process has it, or the system's own.
    pub fn open(path: &Path) -> Result<Store> {
        if let Some(folder) = path.parent() {
            program_folder(folder)?;
        }
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
        let file = file.map_err(|e| Error::system(path.display(), &e))?;
        if file.try_lock().is_err() {
            return Err(Error::new(crate::Code::Duplicate, "another process of yours runs with this identity")
                .with_remedy(Remedy::OwnIdentity));
        }
        let bytes = std::fs::read(path).map_err(|e| Error::system(path.display(), &e))?;
        let (records, whole) = entries(&bytes);
        let mut store = Store { path: path.to_owned(), file, records, written: whole as u64, unsynced: false };
        if whole < bytes.len() {
            store.file.set_len(whole as u64).map_err(|e| Error::system(path.display(), &e))?;
        }
        if store.written > COMPACT_BYTES && store.written > 2 * store.live() {
            store.compact()?;
        }
        Ok(store)
    }

    /// What is stored, by id.
    pub fn records(&self) -> Vec<(u64, Vec<u8>)> {
        self.records.iter().map(|(id, record)| (*id, record.clone())).collect()
    }

    /// What the key scheme stored. What a transport stores is beside it.
    #[cfg(feature = "mls")]
    pub(crate) fn records_of_keys(&self) -> Vec<(u64, Vec<u8>)> {
        of_keys(&self.records)
    }

    /// The same of a file that a process may be writing at this moment.
    ///
    /// # Errors
    /// The system's own.
    #[cfg(feature = "mls")]
    pub(crate) fn peek_records_of_keys(path: &Path) -> Result<Vec<(u64, Vec<u8>)>> {
        let bytes = std::fs::read(path).map_err(|e| Error::system(path.display(), &e))?;
        Ok(of_keys(&entries(&bytes).0))
    }

    /// What the transport stored, if it has one record.
    pub(crate) fn record_of_transport(&self) -> Option<Vec<u8>> {
        self.records.iter().find(|(id, _)| *id & 1 == 1).map(|(_, record)| record.clone())
    }

    /// Appends a record; durable after the next [`Store::sync`].
    ///
    /// # Errors
    /// The system's own.
    pub fn put(&mut self, id: u64, record: &[u8]) -> io::Result<()> {
        let entry = entry(id, record);
        self.file.write_all(&entry)?;
        self.written += entry.len() as u64;
        self.records.insert(id, record.to_vec());
        self.unsynced = true;
        // A session may run for years.
        if self.written > COMPACT_BYTES && self.written > 2 * self.live() {
            self.compact().map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Makes everything durable that was put.
    ///
    /// # Errors
    /// The system's own.
    pub fn sync(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.unsynced) { self.file.sync_data() } else { Ok(()) }
    }

    fn live(&self) -> u64 {
        self.records.values().map(|r| (HEAD_BYTES + r.len()) as u64).sum()
    }

    fn compact(&mut self) -> Result<()> {
        let whole: Vec<u8> = self.records.iter().flat_map(|(id, record)| entry(*id, record)).collect();
        write_secret(&self.path, &whole, Overwrite::Replace)?;
        let file = OpenOptions::new().read(true).append(true).open(&self.path);
        let file = file.map_err(|e| Error::system(self.path.display(), &e))?;
        // The old file's lock goes with it; nobody else can have taken the new one's in between, since
        // they wait for the old one.
        if file.try_lock().is_err() {
            return Err(Error::new(crate::Code::Duplicate, "another process of yours runs with this identity")
                .with_remedy(Remedy::OwnIdentity));
        }
        self.file = file;
        self.written = whole.len() as u64;
        Ok(())
    }
}

#[cfg(feature = "mls")]
fn of_keys(records: &BTreeMap<u64, Vec<u8>>) -> Vec<(u64, Vec<u8>)> {
    let of_keys = records.iter().filter(|(id, _)| *id & 1 == 0);
    of_keys.map(|(id, record)| (id >> 1, record.clone())).collect()
}

fn entry(id: u64, record: &[u8]) -> Vec<u8> {
    let mut entry = Vec::with_capacity(HEAD_BYTES + record.len());
    entry.extend_from_slice(&u32::try_from(record.len()).expect("records are small").to_be_bytes());
    entry.extend_from_slice(&id.to_be_bytes());
    entry.extend_from_slice(&check(id, record));
    entry.extend_from_slice(record);
    entry
}

fn check(id: u64, record: &[u8]) -> [u8; 8] {
    let hash = Transcript::new("sealcast/v1/stored record").add(&id.to_be_bytes()).add(record).finish();
    hash[..8].try_into().expect("8 of 32 bytes")
}

/// The whole entries at the beginning, and how many bytes they are.
fn entries(bytes: &[u8]) -> (BTreeMap<u64, Vec<u8>>, usize) {
    let mut records = BTreeMap::new();
    let mut at = 0;
    while let Some((head, rest)) = bytes[at..].split_at_checked(HEAD_BYTES) {
        let length = u32::from_be_bytes(head[..4].try_into().expect("4 bytes")) as usize;
        let id = u64::from_be_bytes(head[4..12].try_into().expect("8 bytes"));
        let Some(record) = rest.get(..length).filter(|record| check(id, record) == head[12..]) else { break };
        records.insert(id, record.to_vec());
        at += HEAD_BYTES + length;
    }
    (records, at)
}

const HEAD_BYTES: usize = 4 + 8 + 8;
/// A file smaller than this is not worth rewriting.
const COMPACT_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_g6_what_was_synced_survives_a_torn_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        let mut store = Store::open(&path).unwrap();
        store.put(7, b"first").unwrap();
        store.put(8, b"other").unwrap();
        store.put(7, b"second").unwrap();
        store.sync().unwrap();
        drop(store);
        let whole = std::fs::read(&path).unwrap();
        for torn in 1..40 {
            let mut bytes = whole.clone();
            bytes.extend_from_slice(&entry(9, &[1; 30])[..torn]);
            std::fs::write(&path, &bytes).unwrap();
            let store = Store::open(&path).unwrap();
            assert_eq!(store.records(), [(7, b"second".to_vec()), (8, b"other".to_vec())], "torn at {torn}");
        }
        let mut store = Store::open(&path).unwrap();
        store.put(9, b"after").unwrap();
        store.sync().unwrap();
        drop(store);
        assert_eq!(Store::open(&path).unwrap().records().len(), 3, "what comes after a torn end is read");
    }

    #[test]
    fn rule_a6_only_one_process_has_the_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        let store = Store::open(&path).unwrap();
        assert_eq!(Store::open(&path).unwrap_err().code(), crate::Code::Duplicate);
        drop(store);
        assert!(Store::open(&path).is_ok());
    }

    #[test]
    fn a_file_of_superseded_records_is_rewritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        let mut store = Store::open(&path).unwrap();
        for i in 0..200u8 {
            store.put(1, &[i; 10_000]).unwrap();
        }
        store.sync().unwrap();
        // While it runs, too.
        assert!(std::fs::metadata(&path).unwrap().len() < COMPACT_BYTES + 20_000);
        drop(store);
        let mut store = Store::open(&path).unwrap();
        assert_eq!(store.records(), [(1, vec![199; 10_000])]);
        store.put(2, b"x").unwrap();
        drop(store);
        assert_eq!(Store::open(&path).unwrap().records().len(), 2);
    }
}
