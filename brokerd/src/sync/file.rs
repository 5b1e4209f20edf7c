//! Snapshots as files, or, for simulations, as the same bytes in memory.
//!
//! ```text
//! snapshots/<height>   "sealcast snapshot 1\n" ‖ bytes head ‖ u64 floor ‖ bytes certificate ‖ bytes header ‖ row …
//! bytes = u32 length ‖ …          row = bytes key ‖ bytes value
//! ```
//! A file has its name only when all of it is durable. How long the rows are, the head says: a file of another length is
//! none. The rows are what travels; whoever takes them checks them against the head, and the head against signatures.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufWriter, Cursor, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sealcast_broker::state::{Row, SnapshotHead, StoreError};
use sealcast_order::StartCertificate;
use sealcast_wire::limits;

/// The snapshots of one broker. Clones are the same snapshots.
#[derive(Clone, Debug)]
pub struct Snapshots(Where);

#[derive(Clone, Debug)]
enum Where {
    /// Files in this folder.
    Disk(PathBuf),
    /// What would be in the files, by height.
    Memory(Arc<Mutex<BTreeMap<u64, Vec<u8>>>>),
}

/// A snapshot's beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) head: SnapshotHead,
    /// Where the order begins for who takes it.
    pub(crate) start_certificate: StartCertificate,
    /// Where its rows begin in the file.
    rows_at: u64,
}

/// Rows out of a stream of bytes.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    buffer: VecDeque<u8>,
}

impl Snapshots {
    /// Those in a folder, which need not be there.
    pub fn at(folder: PathBuf) -> Snapshots {
        Snapshots(Where::Disk(folder))
    }

    /// None yet, on a disk that is none.
    pub fn in_memory() -> Snapshots {
        Snapshots(Where::Memory(Arc::default()))
    }

    /// The folder, made if it is not there; what was left half written is removed.
    pub(crate) fn open(folder: &Path) -> io::Result<Snapshots> {
        let snapshots = Snapshots::at(folder.to_path_buf());
        snapshots.prepare()?;
        Ok(snapshots)
    }

    /// Makes the folder if it is not there, and removes what was left half written.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        let Where::Disk(folder) = &self.0 else { return Ok(()) };
        fs::create_dir_all(folder)?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|it| it == PART) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Their heights, ascending.
    pub(crate) fn heights(&self) -> io::Result<Vec<u64>> {
        let mut heights = Vec::new();
        let folder = match &self.0 {
            Where::Disk(folder) => folder,
            Where::Memory(files) => return Ok(lock(files).keys().copied().collect()),
        };
        if !fs::exists(folder)? {
            return Ok(heights);
        }
        for entry in fs::read_dir(folder)? {
            heights.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u64>().ok()));
        }
        heights.sort_unstable();
        Ok(heights)
    }

    /// Writes a snapshot. If that fails, nothing is left of it: a disk that is full stays as full as it was.
    pub(crate) fn write(
        &self,
        head: &SnapshotHead,
        start_certificate: &StartCertificate,
        rows: impl Iterator<Item = Result<Row, StoreError>>,
    ) -> io::Result<()> {
        let folder = match &self.0 {
            Where::Disk(folder) => folder,
            Where::Memory(files) => {
                let mut file = Vec::new();
                write_all(&mut file, head, start_certificate, rows)?;
                lock(files).insert(head.height(), file);
                return Ok(());
            }
        };
        let path = path(folder, head.height());
        let part = path.with_extension(PART);
        if let Err(e) = write_file(&part, head, start_certificate, rows) {
            // What cannot be removed is removed at the next start.
            let _ = fs::remove_file(part);
            return Err(e);
        }
        fs::rename(part, path)?;
        File::open(folder)?.sync_all()
    }

    /// The beginning of the snapshot of this height.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    pub(crate) fn read(&self, height: u64) -> io::Result<Opened> {
        let (mut file, length): (Box<dyn Read>, u64) = match &self.0 {
            Where::Disk(folder) => {
                let file = File::open(path(folder, height))?;
                let length = file.metadata()?.len();
                (Box::new(file), length)
            }
            Where::Memory(files) => {
                let file = lock(files).get(&height).cloned().ok_or(io::ErrorKind::NotFound)?;
                let length = file.len() as u64;
                (Box::new(Cursor::new(file)), length)
            }
        };
        let mut magic = [0; MAGIC.len()];
        file.read_exact(&mut magic)?;
        let head = SnapshotHead::from_bytes(&read_bytes(&mut file)?).filter(|it| it.height() == height);
        let head = head.filter(|_| magic == *MAGIC).ok_or_else(damaged)?;
        let mut number = [0; 8];
        file.read_exact(&mut number)?;
        let (certificate, header) = (read_bytes(&mut file)?, read_bytes(&mut file)?);
        let start_certificate = StartCertificate { height: u64::from_be_bytes(number), certificate, header };
        let (head_bytes, parts) =
            (head.to_bytes().len(), start_certificate.certificate.len() + start_certificate.header.len());
        let rows_at = (MAGIC.len() + 4 + head_bytes + 8 + 4 + 4 + parts) as u64;
        if length != rows_at + rows_bytes(&head) {
            return Err(damaged());
        }
        Ok(Opened { head, start_certificate, rows_at })
    }

    /// Bytes of its rows from an offset on, none behind their end.
    pub(crate) fn part(&self, height: u64, offset: u64) -> io::Result<Vec<u8>> {
        let opened = self.read(height)?;
        let left = rows_bytes(&opened.head).saturating_sub(offset);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(limits::SNAPSHOT_PART_BYTES);
        let from = opened.rows_at + offset;
        match &self.0 {
            Where::Disk(folder) => {
                let mut bytes = vec![0; length];
                File::open(path(folder, height))?.read_exact_at(&mut bytes, from)?;
                Ok(bytes)
            }
            Where::Memory(files) => {
                let files = lock(files);
                let rest = files.get(&height).and_then(|file| file.get(usize::try_from(from).ok()?..));
                Ok(rest.and_then(|rest| rest.get(..length)).ok_or_else(damaged)?.to_vec())
            }
        }
    }

    /// Gives each of its rows to `each`.
    pub(crate) fn each_row(&self, height: u64, mut each: impl FnMut(Row) -> io::Result<()>) -> io::Result<()> {
        let (mut rows, mut offset) = (Rows::default(), 0);
        loop {
            let part = self.part(height, offset)?;
            if part.is_empty() {
                return if rows.is_empty() { Ok(()) } else { Err(damaged()) };
            }
            offset += part.len() as u64;
            rows.push(&part);
            while let Some(row) = rows.next()? {
                each(row)?;
            }
        }
    }

    /// Removes those below a height.
    pub(crate) fn remove_below(&self, height: u64) -> io::Result<()> {
        match &self.0 {
            Where::Disk(folder) => {
                let mut old = self.heights()?.into_iter().filter(|it| *it < height);
                old.try_for_each(|it| fs::remove_file(path(folder, it)))
            }
            Where::Memory(files) => {
                lock(files).retain(|it, _| *it >= height);
                Ok(())
            }
        }
    }
}

/// The file of a snapshot.
pub(super) fn path(folder: &Path, height: u64) -> PathBuf {
    folder.join(height.to_string())
}

/// Bytes of a snapshot's rows as they are stored and sent.
pub(crate) fn rows_bytes(head: &SnapshotHead) -> u64 {
    head.rows().saturating_mul(8).saturating_add(head.bytes())
}

impl Rows {
    /// The next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
    }

    /// The next row, if all of it is there.
    ///
    /// # Errors
    /// It claims to be longer than a row may be: whoever waited for it would keep all that comes.
    pub(crate) fn next(&mut self) -> io::Result<Option<Row>> {
        let Some(key) = self.length_at(0)? else { return Ok(None) };
        let Some(value) = self.length_at(4 + key)? else { return Ok(None) };
        if self.buffer.len() < 8 + key + value {
            return Ok(None);
        }
        let mut take = |n: usize| -> Vec<u8> {
            self.buffer.drain(..4);
            self.buffer.drain(..n).collect()
        };
        Ok(Some((take(key), take(value))))
    }

    /// Whether nothing is left over.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    fn length_at(&self, at: usize) -> io::Result<Option<usize>> {
        if self.buffer.len() < at + 4 {
            return Ok(None);
        }
        let length = self.buffer.range(at..at + 4).fold(0, |length, byte| length << 8 | usize::from(*byte));
        if length <= limits::SNAPSHOT_ROW_BYTES_MAX { Ok(Some(length)) } else { Err(damaged()) }
    }
}

fn write_file(
    path: &Path,
    head: &SnapshotHead,
    start_certificate: &StartCertificate,
    rows: impl Iterator<Item = Result<Row, StoreError>>,
) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(limits::SNAPSHOT_PART_BYTES, File::create(path)?);
    write_all(&mut file, head, start_certificate, rows)?;
    file.into_inner().map_err(|e| e.into_error())?.sync_all()
}

fn write_all(
    file: &mut impl io::Write,
    head: &SnapshotHead,
    start_certificate: &StartCertificate,
    rows: impl Iterator<Item = Result<Row, StoreError>>,
) -> io::Result<()> {
    file.write_all(MAGIC)?;
    write_bytes(file, &head.to_bytes())?;
    file.write_all(&start_certificate.height.to_be_bytes())?;
    write_bytes(file, &start_certificate.certificate)?;
    write_bytes(file, &start_certificate.header)?;
    for row in rows {
        let (key, value) = row.map_err(io::Error::other)?;
        write_bytes(file, &key)?;
        write_bytes(file, &value)?;
    }
    Ok(())
}

fn write_bytes(file: &mut impl io::Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).expect("rows have a limit");
    file.write_all(&length.to_be_bytes())?;
    file.write_all(bytes)
}

fn read_bytes(file: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    file.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > limits::START_CERTIFICATE_BYTES_MAX {
        return Err(damaged());
    }
    let mut bytes = vec![0; length];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the snapshot's file is damaged")
}

const MAGIC: &[u8; 20] = b"sealcast snapshot 1\n";
/// Of a file that is being written.
const PART: &str = "part";
