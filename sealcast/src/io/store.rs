//! Records that must outlive a crash (G6): one file, appended to, with one sync per batch, which many sessions share (`disk.rs`).
//!
//! ```text
//! NAME             entry, entry, …                          a later entry of an id replaces earlier ones
//! file-keys/NAME   slot, slot, …                            4 KiB each: an entry that is overwritten where it lies (D6)
//! entry: | length of record (4) | id (8) | first 8 bytes of SHA-256 of id and record | record |
//! ```
//! A torn entry at the end, as a crash leaves it, is cut off; what was synced before it stays. An empty record erases its
//! id: what was there is in the file no more after the next sync.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sealcast_crypto::at_rest::CACHEDIR_TAG;
use sealcast_crypto::hash::Transcript;
use sealcast_keys::FILE_KEY;

use super::disk;
use crate::config::{Overwrite, program_folder, write_secret};
use crate::error::{Error, Result};
use crate::remedy::Remedy;

/// See the module.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    file: File,
    /// Where each record begins in the file, and its length.
    records: BTreeMap<u64, (u64, usize)>,
    /// Bytes of the file, and of what in it still counts.
    written: u64,
    live: u64,
    unsynced: bool,
    /// Something was erased that is still in the file.
    erased: bool,
    keys: Option<FileKeys>,
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
        let live = records.values().map(|(_, length)| (HEAD_BYTES + length) as u64).sum();
        let keys = FileKeys::open(path).map_err(|e| Error::system(path.display(), &e))?;
        let written = whole as u64;
        let mut store =
            Store { path: path.to_owned(), file, records, written, live, unsynced: false, erased: false, keys };
        if whole < bytes.len() {
            store.file.set_len(whole as u64).map_err(|e| Error::system(path.display(), &e))?;
        }
        if store.has_grown() {
            store.compact()?;
        }
        Ok(store)
    }

    /// What is stored, by id.
    ///
    /// # Errors
    /// The system's own.
    pub fn records(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        let read = |(id, at): (&u64, &(u64, usize))| Ok((*id, self.read(*at)?));
        let read: io::Result<Vec<_>> = self.records.iter().map(read).collect();
        let mut records = read.map_err(|e| Error::system(self.path.display(), &e))?;
        records.extend(self.keys.iter().flat_map(|keys| keys.slots.clone()));
        Ok(records)
    }

    /// What the key scheme stored. What a transport stores is beside it.
    ///
    /// # Errors
    /// The system's own.
    #[cfg(feature = "mls")]
    pub(crate) fn records_of_keys(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        let of_keys = self.records()?.into_iter().filter(|(id, _)| *id & 1 == 0);
        Ok(of_keys.map(|(id, record)| (id >> 1, record)).collect())
    }

    /// The same of a file that a process may be writing at this moment; without what lies in its file keys.
    ///
    /// # Errors
    /// The system's own.
    #[cfg(feature = "mls")]
    pub(crate) fn peek_records_of_keys(path: &Path) -> Result<Vec<(u64, Vec<u8>)>> {
        let bytes = std::fs::read(path).map_err(|e| Error::system(path.display(), &e))?;
        let of_keys = entries(&bytes).0.into_iter().filter(|(id, _)| *id & 1 == 0);
        Ok(of_keys.map(|(id, (from, length))| (id >> 1, bytes[from as usize..][..length].to_vec())).collect())
    }

    /// What the transport stored, if it has one record.
    pub(crate) fn record_of_transport(&self) -> Option<Vec<u8>> {
        self.records.iter().find(|(id, _)| *id & 1 == 1).and_then(|(_, at)| self.read(*at).ok())
    }

    /// Appends a record; durable after the next [`Store::sync`].
    ///
    /// # Errors
    /// The system's own.
    pub fn put(&mut self, id: u64, record: &[u8]) -> io::Result<()> {
        if id & FILE_KEY_IDS != 0 {
            let keys = match &mut self.keys {
                Some(keys) => keys,
                none => none.insert(FileKeys::create(&self.path)?),
            };
            return keys.put(id, record);
        }
        let entry = entry(id, record);
        self.file.write_all(&entry)?;
        let place = (self.written + HEAD_BYTES as u64, record.len());
        self.written += entry.len() as u64;
        let before = if record.is_empty() { self.records.remove(&id) } else { self.records.insert(id, place) };
        self.live -= before.map_or(0, |(_, length)| (HEAD_BYTES + length) as u64);
        self.live += if record.is_empty() { 0 } else { entry.len() as u64 };
        self.erased |= record.is_empty() && before.is_some();
        self.unsynced = true;
        // A session may run for years.
        if self.has_grown() {
            self.compact().map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Makes everything durable that was put.
    ///
    /// # Errors
    /// The system's own.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.erased {
            self.compact().map_err(io::Error::other)?;
        }
        if std::mem::take(&mut self.unsynced) {
            disk::sync(&self.file)?;
        }
        // What was sealed under the keys that are overwritten now is superseded by what is durable now.
        self.keys.as_mut().map_or(Ok(()), FileKeys::sync)
    }

    fn read(&self, (at, length): (u64, usize)) -> io::Result<Vec<u8>> {
        let mut record = vec![0; length];
        self.file.read_exact_at(&mut record, at)?;
        Ok(record)
    }

    fn has_grown(&self) -> bool {
        self.written > COMPACT_BYTES && self.written > 2 * self.live
    }

    fn compact(&mut self) -> Result<()> {
        let failed = |e: io::Error| Error::system(self.path.display(), &e);
        let mut whole = Vec::with_capacity(self.live as usize);
        let mut records = BTreeMap::new();
        for (id, at) in &self.records {
            records.insert(*id, ((whole.len() + HEAD_BYTES) as u64, at.1));
            whole.extend(entry(*id, &self.read(*at).map_err(failed)?));
        }
        write_secret(&self.path, &whole, Overwrite::Replace)?;
        let file = OpenOptions::new().read(true).append(true).open(&self.path).map_err(failed)?;
        // The old file's lock goes with it; nobody else can have taken the new one's in between, since
        // they wait for the old one.
        if file.try_lock().is_err() {
            return Err(Error::new(crate::Code::Duplicate, "another process of yours runs with this identity")
                .with_remedy(Remedy::OwnIdentity));
        }
        (self.file, self.records, self.written) = (file, records, whole.len() as u64);
        self.erased = false;
        Ok(())
    }
}

/// Keys under which a key scheme sealed other records (D6): each lies in a slot of its own, where its successor overwrites it.
#[derive(Debug)]
struct FileKeys {
    file: File,
    slots: BTreeMap<u64, Vec<u8>>,
    unsynced: bool,
}

impl FileKeys {
    /// Those beside a file of records, if there are any.
    fn open(of: &Path) -> io::Result<Option<FileKeys>> {
        let file = match OpenOptions::new().read(true).write(true).open(path_of_keys(of)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut slots = BTreeMap::new();
        for at in (0..file.metadata()?.len()).step_by(SLOT_BYTES) {
            let mut slot = vec![0; SLOT_BYTES.min((file.metadata()?.len() - at) as usize)];
            file.read_exact_at(&mut slot, at)?;
            let record = |(id, (from, length)): (u64, (u64, usize))| (id, slot[from as usize..][..length].to_vec());
            slots.extend(entries(&slot).0.into_iter().map(record));
        }
        Ok(Some(FileKeys { file, slots, unsynced: false }))
    }

    fn create(of: &Path) -> io::Result<FileKeys> {
        let path = path_of_keys(of);
        let folder = path.parent().expect("it lies in a folder");
        program_folder(folder).map_err(io::Error::other)?;
        // They are of no use in a backup, and would keep what they are overwritten for.
        std::fs::write(folder.join("CACHEDIR.TAG"), CACHEDIR_TAG)?;
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).clone();
        let file = options.open(&path)?;
        File::open(folder)?.sync_all()?;
        Ok(FileKeys { file, slots: BTreeMap::new(), unsynced: false })
    }

    fn put(&mut self, id: u64, record: &[u8]) -> io::Result<()> {
        let at = (id & !FILE_KEY_IDS) >> 1;
        let mut slot = if record.is_empty() { Vec::new() } else { entry(id, record) };
        assert!(slot.len() <= SLOT_BYTES && at < SLOTS, "a scheme has few file keys");
        slot.resize(SLOT_BYTES, 0);
        self.file.write_all_at(&slot, at * SLOT_BYTES as u64)?;
        self.unsynced = true;
        match record.is_empty() {
            true => _ = self.slots.remove(&id),
            false => _ = self.slots.insert(id, record.to_vec()),
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.unsynced) { disk::sync(&self.file) } else { Ok(()) }
    }
}

fn path_of_keys(of: &Path) -> PathBuf {
    let folder = of.parent().unwrap_or(Path::new("."));
    folder.join("file-keys").join(of.file_name().unwrap_or_default())
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

/// Where the records of the whole entries at the beginning lie, their lengths, and how many bytes these entries are.
fn entries(bytes: &[u8]) -> (BTreeMap<u64, (u64, usize)>, usize) {
    let mut records = BTreeMap::new();
    let mut at = 0;
    while let Some((head, rest)) = bytes[at..].split_at_checked(HEAD_BYTES) {
        let length = u32::from_be_bytes(head[..4].try_into().expect("4 bytes")) as usize;
        let id = u64::from_be_bytes(head[4..12].try_into().expect("8 bytes"));
        if rest.get(..length).is_none_or(|record| check(id, record) != head[12..]) {
            break;
        }
        match length {
            0 => _ = records.remove(&id),
            _ => _ = records.insert(id, ((at + HEAD_BYTES) as u64, length)),
        }
        at += HEAD_BYTES + length;
    }
    (records, at)
}

const HEAD_BYTES: usize = 4 + 8 + 8;
/// A file smaller than this is not worth rewriting.
const COMPACT_BYTES: u64 = 1 << 20;
/// Of ids as a session numbers records: those of transports are odd.
const FILE_KEY_IDS: u64 = FILE_KEY << 1;
/// A write that is torn leaves other slots as they are.
const SLOT_BYTES: usize = 4 << 10;
const SLOTS: u64 = 16;

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
            assert_eq!(store.records().unwrap(), [(7, b"second".to_vec()), (8, b"other".to_vec())], "torn at {torn}");
        }
        let mut store = Store::open(&path).unwrap();
        store.put(9, b"after").unwrap();
        store.sync().unwrap();
        drop(store);
        assert_eq!(Store::open(&path).unwrap().records().unwrap().len(), 3, "what comes after a torn end is read");
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
        assert_eq!(store.records().unwrap(), [(1, vec![199; 10_000])]);
        store.put(2, b"x").unwrap();
        drop(store);
        assert_eq!(Store::open(&path).unwrap().records().unwrap().len(), 2);
    }

    #[test]
    fn what_is_erased_is_in_the_file_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        let mut store = Store::open(&path).unwrap();
        store.put(1, b"to be erased").unwrap();
        store.put(2, b"to be kept").unwrap();
        store.sync().unwrap();
        let holds = |needle: &[u8]| std::fs::read(&path).unwrap().windows(needle.len()).any(|it| it == needle);
        assert!(holds(b"to be erased"));
        store.put(1, b"").unwrap();
        store.sync().unwrap();
        assert!(!holds(b"to be erased") && holds(b"to be kept"));
        store.put(3, b"and after").unwrap();
        store.sync().unwrap();
        let known = [(2, b"to be kept".to_vec()), (3, b"and after".to_vec())];
        assert_eq!(store.records().unwrap(), known);
        drop(store);
        assert_eq!(Store::open(&path).unwrap().records().unwrap(), known);
    }

    #[test]
    fn rule_d6_a_file_key_is_overwritten_where_it_lies() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        let ids = [FILE_KEY_IDS, FILE_KEY_IDS | 2];
        let mut store = Store::open(&path).unwrap();
        ids.iter().for_each(|id| store.put(*id, &[*id as u8 + 0x51; 40]).unwrap());
        store.put(8, b"sealed").unwrap();
        store.sync().unwrap();
        // A reader that has the file open sees its bytes, and not those of a new one in its place.
        let seen = File::open(folder.path().join("file-keys/records")).unwrap();
        let read = || {
            let mut bytes = vec![0; 2 * SLOT_BYTES];
            seen.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        let holds = |needle: u8| read().windows(40).any(|it| it == [needle; 40]);
        assert!(holds(0x51) && holds(0x53));
        drop(store);
        let mut store = Store::open(&path).unwrap();
        let known = |store: &Store| store.records().unwrap().into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(known(&store), [8, ids[0], ids[1]]);
        store.put(ids[0], &[0x61; 40]).unwrap();
        store.put(ids[1], b"").unwrap();
        store.sync().unwrap();
        assert!(!holds(0x51) && !holds(0x53) && holds(0x61));
        drop(store);
        assert_eq!(known(&Store::open(&path).unwrap()), [8, ids[0]]);
    }
}
