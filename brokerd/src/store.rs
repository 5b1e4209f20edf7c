//! The broker's rows on disk: an LSM tree in which a block's changes are one atomic batch.
//!
//! *After a crash.* A batch goes to the tree's journal and, when the call returns, to the operating system; what a killed
//! process had applied is there when it comes back. Against a loss of power it stands only after [`Lsm::sync`]. Blocks
//! are not acknowledged to the order before that, so that it brings again what may be lost, and the store is always at
//! the end of some block: a torn batch at the journal's end is cut off when the store is opened.
//!
//! *On disk.* The tree's journal is a file of 64 MB from its beginning on, and sparse: `ls` shows all of it, `du` what was
//! written. It has no setting.

mod memory;

use std::path::Path;

use fjall::{
    AbstractTree as _, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable as _, Snapshot,
};
use sealcast_broker::state::{self, Changes, Row, Store, StoreError};
use sealcast_wire::limits;

pub use memory::Memory;

/// The rows of one broker. Clones are the same store.
#[derive(Clone)]
pub struct Lsm(Where);

#[derive(Clone)]
enum Where {
    Disk { database: Database, rows: Keyspace },
    Memory(Memory),
}

impl Lsm {
    /// The store in this folder, which is made if it is not there. What is in it is durable when the call returns.
    ///
    /// # Errors
    /// The folder cannot be used, or another process uses it.
    pub fn open(folder: &Path) -> Result<Lsm, StoreError> {
        let named = |error: fjall::Error| StoreError(format!("{} ({})", said(&error), folder.display()));
        let open = || {
            let builder = Database::builder(folder).worker_threads(1).cache_size(CACHE_BYTES);
            let database = builder.max_cached_files(Some(limits::STORE_FILES_OPEN)).open()?;
            let options = || KeyspaceCreateOptions::default().max_memtable_size(UNSORTED_BYTES);
            let rows = database.keyspace("rows", options)?;
            database.persist(PersistMode::SyncAll)?;
            sort_when_many(&rows)?;
            Ok(Lsm(Where::Disk { database, rows }))
        };
        // Where a damaged journal breaks what the library takes for granted, it asserts; nothing of ours is half done then.
        let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(open));
        let asserted = |_| StoreError(format!("{DAMAGED}: the journal contradicts itself ({})", folder.display()));
        opened.map_err(asserted)?.map_err(named)
    }

    /// The rows as they are now.
    pub fn freeze(&self) -> Frozen {
        Frozen(match &self.0 {
            Where::Disk { database, rows } => Then::Disk { snapshot: database.snapshot(), rows: rows.clone() },
            Where::Memory(rows) => Then::Memory(rows.now()),
        })
    }

    /// Returns when all that was applied is durable.
    ///
    /// # Errors
    /// The storage failed; nothing more can be written.
    pub fn sync(&self) -> Result<(), StoreError> {
        match &self.0 {
            Where::Disk { database, .. } => database.persist(PersistMode::SyncData).map_err(failed),
            Where::Memory(rows) => {
                rows.sync();
                Ok(())
            }
        }
    }
}

impl From<Memory> for Lsm {
    fn from(rows: Memory) -> Lsm {
        Lsm(Where::Memory(rows))
    }
}

/// The rows as they were at one moment, whatever is applied since.
pub struct Frozen(Then);

enum Then {
    Disk { snapshot: Snapshot, rows: Keyspace },
    Memory(state::Memory),
}

impl Store for Frozen {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match &self.0 {
            Then::Disk { snapshot, rows } => Ok(snapshot.get(rows, key).map_err(failed)?.map(|value| value.to_vec())),
            Then::Memory(rows) => rows.get(key),
        }
    }

    fn range(&self, from: &[u8], until: &[u8], limit: usize) -> Result<Vec<Row>, StoreError> {
        if from >= until {
            return Ok(Vec::new());
        }
        let rows = match &self.0 {
            Then::Disk { snapshot, rows } => snapshot.range(rows, from..until).take(limit),
            Then::Memory(rows) => return rows.range(from, until, limit),
        };
        rows.map(|guard| row(guard).map_err(failed)).collect()
    }

    fn apply(&mut self, _: Changes) -> Result<(), StoreError> {
        Err(StoreError("what was changes no more".into()))
    }
}

impl Store for Lsm {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match &self.0 {
            Where::Disk { rows, .. } => Ok(rows.get(key).map_err(failed)?.map(|value| value.to_vec())),
            Where::Memory(rows) => rows.get(key),
        }
    }

    fn range(&self, from: &[u8], until: &[u8], limit: usize) -> Result<Vec<Row>, StoreError> {
        if from >= until {
            return Ok(Vec::new());
        }
        let rows = match &self.0 {
            Where::Disk { rows, .. } => rows.range(from..until).take(limit),
            Where::Memory(rows) => return rows.range(from, until, limit),
        };
        rows.map(|guard| row(guard).map_err(failed)).collect()
    }

    fn apply(&mut self, changes: Changes) -> Result<(), StoreError> {
        let (database, rows) = match &mut self.0 {
            Where::Disk { database, rows } => (database, rows),
            Where::Memory(rows) => return rows.apply(changes),
        };
        // To the operating system, not to the disk.
        let batch = OwnedWriteBatch::with_capacity(database.clone(), changes.len());
        let mut batch = batch.durability(Some(PersistMode::Buffer));
        for (key, value) in changes {
            match value {
                Some(value) => batch.insert(rows, key, value),
                None => batch.remove(rows, key),
            }
        }
        batch.commit().and_then(|()| sort_when_many(rows)).map_err(failed)
    }
}

/// Has the rows that are not sorted yet sorted into a file, beside what goes on, if they are many. A folder keeps the bound
/// that it was made with, and older ones were made with 64 MB.
fn sort_when_many(rows: &Keyspace) -> Result<(), fjall::Error> {
    if rows.tree.active_memtable().size() > UNSORTED_BYTES {
        rows.rotate_memtable()?;
    }
    Ok(())
}

fn row(guard: fjall::Guard) -> Result<Row, fjall::Error> {
    guard.into_inner().map(|(key, value)| (key.to_vec(), value.to_vec()))
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
        other => match format!("{other:?}") {
            what if what.contains("Io(") && !what.contains("NotFound") && !what.contains("UnexpectedEof") => what,
            what => format!("{DAMAGED}: {what}"),
        },
    }
}

/// Whether an error of the store says that its files do not hold what was written to them.
pub(crate) fn is_damage(error: &str) -> bool {
    error.contains(DAMAGED)
}

/// How such an error begins.
const DAMAGED: &str = "the rows cannot be read";

/// Blocks of rows that are kept in memory.
const CACHE_BYTES: u64 = 64 << 20;
/// Bytes of new rows in memory before they are sorted into a file: a start reads as many from the journal.
const UNSORTED_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::path::PathBuf;

    use sealcast_broker::state::State;

    use super::*;
    use crate::fixture::{Broker, Folder, World, publish};

    fn changes(rows: &[(&str, Option<&str>)]) -> Changes {
        rows.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.map(|it| it.as_bytes().to_vec()))).collect()
    }

    #[test]
    fn rows_are_found_in_order_and_stay() {
        let folder = Folder::new();
        let mut store = Lsm::open(&folder.0).unwrap();
        store.apply(changes(&[("b", Some("2")), ("a", Some("1")), ("c", Some("3"))])).unwrap();
        store.apply(changes(&[("b", None), ("d", Some("4"))])).unwrap();
        let keys = |store: &Lsm, from: &[u8], until: &[u8], limit| -> Vec<u8> {
            store.range(from, until, limit).unwrap().iter().map(|(key, _)| key[0]).collect()
        };
        assert_eq!(keys(&store, b"", b"z", 9), b"acd");
        assert_eq!(keys(&store, b"b", b"d", 9), b"c");
        assert_eq!(keys(&store, b"a", b"z", 2), b"ac");
        assert_eq!(keys(&store, b"z", b"a", 2), b"");
        assert!(Lsm::open(&folder.0).is_err_and(|it| it.0.contains("another process")), "one process alone");
        drop(store);
        let store = Lsm::open(&folder.0).unwrap();
        assert_eq!((keys(&store, b"", b"z", 9), store.get(b"d").unwrap()), (b"acd".to_vec(), Some(b"4".to_vec())));
    }

    /// The last file of the journal, which holds what was applied last.
    fn journal(folder: &Folder) -> PathBuf {
        let entries = std::fs::read_dir(folder.0.join("state")).unwrap().map(|it| it.unwrap().path());
        entries.filter(|it| it.extension().is_some_and(|it| it == "jnl")).max().expect("a journal")
    }

    #[test]
    fn rule_e12_a_torn_tail_loses_whole_blocks_which_come_again() {
        let mut world = World::with_clients();
        let mut roots = Vec::new();
        let mut broker = Broker::start(&world, 0, &[]);
        broker.execute(&world, 1);
        for n in 0..6 {
            let height = world.order(vec![(3, vec![publish(&[n; 300]); 5])]);
            broker.execute(&world, height);
            roots.push(broker.executor.shared.state().root());
        }
        // What a killed process leaves, before and after the disk lost more and more of its end.
        let left = broker.folder.copy();
        drop(broker);
        let bytes = std::fs::read(journal(&left)).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let mut heights = Vec::new();
        for lost in [0, 1, 700, 5000, 12_000] {
            let torn = left.copy();
            let file = OpenOptions::new().write(true).open(journal(&torn)).unwrap();
            file.set_len((end - lost.min(end)) as u64).unwrap();
            drop(file);
            let mut broker = Broker::start_in(torn, &world, 0, &[]);
            let height = broker.executor.height();
            heights.push(height);
            broker.execute(&world, height + 1);
            assert_eq!(broker.executor.shared.state().root(), *roots.last().unwrap(), "{lost} bytes lost");
        }
        assert_eq!(heights[0], 7, "a killed process loses nothing");
        assert!(heights.is_sorted_by(|a, b| a >= b) && heights[4] < 7, "{heights:?}");
    }

    /// The files of sorted rows below a folder.
    fn tables(folder: &Folder) -> Vec<PathBuf> {
        let (mut found, mut folders) = (Vec::new(), vec![folder.0.clone()]);
        while let Some(at) = folders.pop() {
            for entry in std::fs::read_dir(at).unwrap().map(|it| it.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry);
                } else if entry.parent().is_some_and(|it| it.ends_with("tables")) {
                    found.push(entry);
                }
            }
        }
        found.sort();
        found
    }

    fn until_sorted(folder: &Folder) {
        let begun = std::time::Instant::now();
        while tables(folder).is_empty() {
            assert!(begun.elapsed() < std::time::Duration::from_secs(60), "no rows were sorted");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Some 20 MB that cannot be compressed away.
    fn fill(store: &mut Lsm) {
        for batch in 0..50 {
            store.apply((batch * 100..(batch + 1) * 100).map(|n| (key(n), Some(value(n)))).collect()).unwrap();
        }
        store.sync().unwrap();
    }

    fn key(n: u32) -> Vec<u8> {
        n.wrapping_mul(2_654_435_761).to_be_bytes().to_vec()
    }

    fn value(n: u32) -> Vec<u8> {
        (0..4096).map(|i| key(n * 4096 + i)[0]).collect()
    }

    #[test]
    fn rule_e15_a_folder_of_an_older_version_sorts_as_early_as_a_new_one() {
        let folder = Folder::new();
        let database = Database::builder(&folder.0).open().unwrap();
        let rows = database.keyspace("rows", || KeyspaceCreateOptions::default().max_memtable_size(64 << 20)).unwrap();
        drop((rows, database));
        let mut store = Lsm::open(&folder.0).unwrap();
        fill(&mut store);
        until_sorted(&folder);
        assert_eq!(store.get(&key(7)).unwrap(), Some(value(7)));
    }

    /// More rows than stay unsorted, so that some lie in sorted tables.
    #[test]
    fn rule_e12_a_damaged_sorted_table_is_named_as_damage_and_never_read() {
        let folder = Folder::new();
        let mut store = Lsm::open(&folder.0).unwrap();
        fill(&mut store);
        until_sorted(&folder);
        drop(store);
        let path = tables(&folder).remove(0);
        let sound = std::fs::read(&path).unwrap();
        for at in [sound.len() / 3, sound.len() / 2, sound.len() - 40] {
            let mut changed = sound.clone();
            changed[at] ^= 0x10;
            std::fs::write(&path, &changed).unwrap();
            let all = || -> Result<(), StoreError> {
                let store = Lsm::open(&folder.0)?;
                for n in 0..5000 {
                    // Whatever is answered is what was written.
                    assert_eq!(store.get(&key(n))?, Some(value(n)), "byte {at}");
                }
                Ok(())
            };
            match all() {
                Ok(()) => {}
                Err(error) => assert!(is_damage(&error.0), "byte {at}: {error}"),
            }
        }
        std::fs::write(&path, &sound[..sound.len() / 2]).unwrap();
        let opened = Lsm::open(&folder.0).and_then(|store| store.get(&key(1)));
        assert!(opened.as_ref().is_err_and(|error| is_damage(&error.0)), "cut: {opened:?}");
    }

    #[test]
    fn a_killed_process_leaves_the_end_of_a_block() {
        let mut world = World::with_clients();
        let folder = Folder::new();
        let mut state = State::open(world.genesis.clone(), Lsm::open(&folder.0).unwrap()).unwrap();
        world.order(vec![(3, vec![publish(b"a"), publish(b"b")])]);
        for (block, batches) in &world.ordered {
            state.execute(block.height, sealcast_wire::Utc((block.time / 1_000_000) as i64), batches).unwrap();
            // Nothing is synced: this is what lies in the files between a block's rows and their acknowledgement.
            let killed = folder.copy();
            let again = State::open(world.genesis.clone(), Lsm::open(&killed.0).unwrap()).unwrap();
            assert_eq!((again.height(), again.root()), (block.height, state.root()));
        }
    }
}
