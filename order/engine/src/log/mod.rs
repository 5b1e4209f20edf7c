//! The log of a broker: its final blocks and their certificates, in files of bounded size that are closed one after another.
//!
//! ```text
//! log/0 [closed] ─▶ log/1 [closed] ─▶ … ─▶ log/n [active: records only]        keys/: digest ─▶ height, in few sorted runs
//! ```
//! What is held in memory and open does not grow with the blocks (E15): the heights of the active file, some hundred bytes for
//! each closed one, and a handful of descriptors. A closed file is opened when something in it is read.
//!
//! Writes gather in a buffer; `sync` makes them durable, blocks and certificates together. After a crash the active file is
//! read up to its first bad record: what follows was never durable, or the file is damaged, and then the log does not open.
//! Upstream's marshal uses the log through `stores`; `migrate` takes over the archives of the versions before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use commonware_codec::{EncodeSize, Write};
use commonware_consensus::simplex::scheme::ed25519::Scheme;
use commonware_consensus::simplex::types::Finalization;
use commonware_cryptography::sha256::Digest;
use commonware_runtime::{Blob as _, Handle, Spawner, Storage, WriteOptions};
use commonware_storage::Context;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use rand_core::CryptoRng;
use sealcast_wire::limits;

use crate::codec::EngineBlock;

mod digests;
mod heights;
pub(super) mod migrate;
mod record;
mod recover;
mod segment;
pub(super) mod stores;
#[cfg(test)]
mod tests;

use digests::Digests;
use heights::Heights;
use record::{Kind, Marker};
use sealcast_order::Fault;
use segment::{Closed, Location};

/// What the log needs of a runtime.
pub trait Runtime: Context + Spawner + CryptoRng {}
impl<E: Context + Spawner + CryptoRng> Runtime for E {}

/// A file that does not hold what was written to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {what}")]
pub struct Damage {
    /// Its path below the engine's folder.
    pub(super) file: String,
    pub(super) what: String,
}

impl Damage {
    fn new(what: impl Into<String>) -> Damage {
        Damage { file: String::new(), what: what.into() }
    }
}

/// Why the log cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    #[error(transparent)]
    Damaged(#[from] Damage),
    #[error(transparent)]
    Storage(#[from] commonware_runtime::Error),
    /// Taking over the archives of an older version needs more open files than are allowed.
    #[error("{needed} files must be open once to take over the archives")]
    Files { needed: usize },
}

impl LogError {
    /// Names the file in which it came up. A read beyond the end is damage: the file was longer.
    fn named(self, partition: &str, number: u64) -> LogError {
        let file = file_path(partition, number);
        match self {
            LogError::Damaged(damage) if damage.file.is_empty() => Damage { file, ..damage }.into(),
            LogError::Storage(error) if is_cut(&error) => Damage { file, what: "it was cut short".into() }.into(),
            LogError::Storage(commonware_runtime::Error::BlobCorrupt(.., what)) => Damage { file, what }.into(),
            other => other,
        }
    }
}

fn is_cut(error: &commonware_runtime::Error) -> bool {
    use commonware_runtime::Error;
    match error {
        Error::BlobInsufficientLength => true,
        Error::Io(error) => error.kind() == std::io::ErrorKind::UnexpectedEof,
        _ => false,
    }
}

impl From<LogError> for Fault {
    fn from(error: LogError) -> Fault {
        match error {
            LogError::Damaged(Damage { file, what }) => Fault::Damaged { file: file.into(), what },
            LogError::Storage(error) => Fault::Storage(error.to_string()),
            LogError::Files { needed } => Fault::Files { needed },
        }
    }
}

/// How large a file gets before it is closed.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub(super) bytes: u64,
    pub(super) records: usize,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { bytes: limits::LOG_FILE_BYTES, records: limits::LOG_FILE_RECORDS }
    }
}

/// The log, open.
pub struct Log<E: Runtime> {
    context: E,
    partition: String,
    sizes: Sizes,
    closed: Vec<Closed>,
    active: Active<E::Blob>,
    /// Closed files that were read lately, the last one first.
    files: VecDeque<(u64, Arc<E::Blob>)>,
    digests: Digests<E>,
    /// Heights below which blocks and certificates are needed no more.
    floors: [u64; 2],
}

/// A sync that is under way; several may wait for it.
type Syncing = Shared<BoxFuture<'static, Result<(), commonware_runtime::Error>>>;

/// The file that is written.
struct Active<B> {
    number: u64,
    marker: Marker,
    file: Arc<B>,
    /// Where blocks and certificates lie, by height.
    locations: [BTreeMap<u64, Location>; 2],
    /// The blocks' digests, by their first bytes.
    digests: BTreeSet<(u64, u64)>,
    /// Records of all kinds.
    records: usize,
    /// Bytes handed to the file.
    written: u64,
    /// What comes behind them.
    buffer: Vec<u8>,
    /// Bytes of it known to be durable.
    durable: Arc<AtomicU64>,
    /// The newest sync, and how many bytes it makes durable.
    syncing: Option<(u64, Syncing)>,
}

/// What the log keeps of one height.
#[derive(Clone, Debug)]
struct Record {
    height: u64,
    digest: [u8; 32],
    body: Bytes,
}

/// An open log, and the heights of the blocks and certificates in it.
pub struct Opened<E: Runtime> {
    log: Log<E>,
    heights: [Heights; 2],
}

impl<E: Runtime> Opened<E> {
    /// Appends a final block and its certificate, which the log does not have.
    pub async fn append_final(
        &mut self,
        block: &EngineBlock,
        certificate: &Finalization<Scheme, Digest>,
    ) -> Result<(), LogError> {
        let (height, digest) = (block.height, &certificate.proposal.payload.0);
        self.log.append(Kind::Block, height, digest, block).await?;
        self.log.append(Kind::Certificate, height, digest, certificate).await
    }

    /// Makes durable what was appended.
    pub async fn sync(&mut self) -> Result<(), LogError> {
        self.log.sync().await
    }
}

impl<E: Runtime> Log<E> {
    /// Opens the log whose partitions' names begin with `disk`, or makes an empty one.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if a file lacks something that was durable.
    pub async fn open(context: E, disk: &str, sizes: Sizes) -> Result<Opened<E>, LogError> {
        recover::open(context, disk, sizes).await
    }

    /// Appends a record, which is in memory or with the operating system until the next sync. The caller knows that the
    /// log has none of this kind and height.
    async fn append(
        &mut self,
        kind: Kind,
        height: u64,
        digest: &[u8; 32],
        body: &(impl EncodeSize + Write),
    ) -> Result<(), LogError> {
        if self.active.end() >= self.sizes.bytes || self.active.records >= self.sizes.records {
            self.close().await?;
        }
        let active = &mut self.active;
        let offset = active.end();
        let durable = active.durable.load(Ordering::Acquire);
        let length = record::append(&mut active.buffer, &active.marker, kind, height, digest, durable, body);
        active.remember(kind, height, digest, offset, length);
        if active.buffer.len() >= WRITE_BUFFER_BYTES {
            active.flush().await?;
        }
        Ok(())
    }

    /// The record of this kind and height, if it is held and not below the low-water mark.
    async fn get(&mut self, kind: Kind, height: u64) -> Result<Option<Record>, LogError> {
        let table = table_of(kind);
        if self.is_pruned(kind, height) {
            return Ok(None);
        }
        if let Some(location) = self.active.locations[table].get(&height).copied() {
            let bytes = self.active.read(&location).await.map_err(|e| e.named(&self.partition, self.active.number))?;
            return self.checked(kind, height, self.active.number, self.active.marker, bytes).map(Some);
        }
        for i in (0..self.closed.len()).rev() {
            let closed = self.closed[i];
            if !closed.tables[table].may_have(height) {
                continue;
            }
            let number = closed.number;
            let named = |e: LogError| e.named(&self.partition, number);
            let file = open_file(&self.context, &self.partition, &mut self.files, number).await.map_err(named)?;
            if let Some(location) = closed.find(&file, table, height).await.map_err(named)? {
                let bytes = segment::read(&file, location.offset, location.length).await.map_err(named)?;
                return self.checked(kind, height, number, closed.marker, bytes).map(Some);
            }
        }
        Ok(None)
    }

    /// The block with this digest, if it is held and not below the low-water mark.
    async fn find(&mut self, digest: &[u8; 32]) -> Result<Option<Record>, LogError> {
        let prefix = prefix_of(digest);
        let mut heights: Vec<u64> =
            self.active.digests.range((prefix, 0)..=(prefix, u64::MAX)).map(|(_, height)| *height).collect();
        heights.extend(self.digests.find(prefix).await?);
        for height in heights {
            // Eight bytes may be those of another block's digest, too.
            if let Some(record) = self.get(Kind::Block, height).await?.filter(|record| record.digest == *digest) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Makes everything durable that was appended.
    async fn sync(&mut self) -> Result<(), LogError> {
        self.start_sync().await?.await.map_err(LogError::from)
    }

    /// Begins to make everything durable that was appended; the handle ends when it is.
    async fn start_sync(&mut self) -> Result<Handle<()>, LogError> {
        let active = &mut self.active;
        active.flush().await?;
        let under_way = active.syncing.as_ref().filter(|(covered, _)| *covered == active.written);
        let syncing = match under_way {
            Some((_, syncing)) => syncing.clone(),
            None => {
                let (handle, durable, written) =
                    (active.file.start_sync().await, active.durable.clone(), active.written);
                let done = async move {
                    handle.await?;
                    durable.fetch_max(written, Ordering::AcqRel);
                    Ok(())
                };
                let syncing = done.boxed().shared();
                active.syncing = Some((written, syncing.clone()));
                syncing
            }
        };
        Ok(Handle::from_future(syncing))
    }

    /// Records of this kind below `min` are needed no more. Files without any other are removed.
    async fn prune(&mut self, kind: Kind, min: u64) -> Result<(), LogError> {
        let table = table_of(kind);
        if min <= self.floors[table] {
            return Ok(());
        }
        self.append(Kind::LowWaterMark, min, &[0; 32], &kind.byte()).await?;
        self.floors[table] = min;
        let floors = self.floors;
        let is_needed = |closed: &Closed| {
            let mut tables = closed.tables.iter().zip(floors);
            tables.any(|(table, low_water_mark)| table.count > 0 && table.last >= low_water_mark)
        };
        let needless = self.closed.iter().take_while(|closed| !is_needed(closed)).count();
        for closed in self.closed.drain(..needless) {
            self.files.retain(|(number, _)| *number != closed.number);
            self.context.remove(&self.partition, Some(&closed.number.to_be_bytes())).await?;
        }
        Ok(())
    }

    /// Whether a record of this kind and height is needed no more.
    fn is_pruned(&self, kind: Kind, height: u64) -> bool {
        height < self.floors[table_of(kind)]
    }

    /// Closes the active file and begins the next.
    async fn close(&mut self) -> Result<(), LogError> {
        let active = &mut self.active;
        active.flush().await?;
        let [blocks, certificates] = &active.locations;
        let mut blocks = blocks.iter().map(|(height, location)| (*height, *location));
        let mut certificates = certificates.iter().map(|(height, location)| (*height, *location));
        let entries: [&mut dyn Iterator<Item = (u64, Location)>; 2] = [&mut blocks, &mut certificates];
        let (closed, bytes) = Closed::close(active.number, active.marker, active.written, entries, self.floors);
        active.file.write_at(active.written, bytes, WriteOptions::default()).await?;
        active.file.sync().await?;
        let next = Active::create(&mut self.context, &self.partition, closed.number + 1).await?;
        let before = std::mem::replace(&mut self.active, next);
        self.closed.push(closed);
        remember_file(&mut self.files, before.number, before.file);
        self.digests.add(before.number, before.digests, self.floors[0]).await
    }

    /// The record in these bytes, which must be the one that was looked for.
    fn checked(&self, kind: Kind, height: u64, number: u64, marker: Marker, bytes: Bytes) -> Result<Record, LogError> {
        let head = record::check(&bytes, &marker).filter(|head| (head.kind, head.height) == (kind, height));
        let what = || Damage::new(format!("the record of block {height} has a false checksum"));
        let head = head.ok_or_else(|| LogError::from(what()).named(&self.partition, number))?;
        let body = bytes.slice(record::HEAD_BYTES..record::HEAD_BYTES + head.length);
        Ok(Record { height, digest: head.digest, body })
    }
}

impl<B: commonware_runtime::Blob> Active<B> {
    async fn create<E: Runtime<Blob = B>>(
        context: &mut E,
        partition: &str,
        number: u64,
    ) -> Result<Active<B>, LogError> {
        let mut marker = Marker::default();
        context.fill_bytes(&mut marker);
        let (file, _) = context.open(partition, &number.to_be_bytes()).await?;
        file.resize(0).await?;
        let header = segment::header(number, &marker);
        let written = header.len() as u64;
        file.write_at(0, header, WriteOptions::default()).await?;
        file.sync().await?;
        Ok(Active::at(number, marker, Arc::new(file), written))
    }

    /// A file of which so many bytes are there and durable.
    fn at(number: u64, marker: Marker, file: Arc<B>, written: u64) -> Active<B> {
        Active {
            number,
            marker,
            file,
            locations: [BTreeMap::new(), BTreeMap::new()],
            digests: BTreeSet::new(),
            records: 0,
            written,
            buffer: Vec::new(),
            durable: Arc::new(AtomicU64::new(written)),
            syncing: None,
        }
    }

    fn end(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn remember(&mut self, kind: Kind, height: u64, digest: &[u8; 32], offset: u64, length: usize) {
        self.records += 1;
        let prefix = prefix_of(digest);
        if kind == Kind::Block {
            self.digests.insert((prefix, height));
        }
        if kind != Kind::LowWaterMark {
            self.locations[table_of(kind)].insert(height, Location { offset, length, prefix });
        }
    }

    async fn flush(&mut self) -> Result<(), LogError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.buffer);
        let length = bytes.len() as u64;
        self.file.write_at(self.written, bytes, WriteOptions::default()).await?;
        self.written += length;
        Ok(())
    }

    async fn read(&self, location: &Location) -> Result<Bytes, LogError> {
        match location.offset.checked_sub(self.written) {
            Some(begin) => {
                let begin = usize::try_from(begin).expect("it lies in the buffer");
                Ok(Bytes::copy_from_slice(&self.buffer[begin..begin + location.length]))
            }
            None => segment::read(&self.file, location.offset, location.length).await,
        }
    }
}

/// A closed file, opened if it was not read lately.
async fn open_file<E: Storage>(
    context: &E,
    partition: &str,
    files: &mut VecDeque<(u64, Arc<E::Blob>)>,
    number: u64,
) -> Result<Arc<E::Blob>, LogError> {
    let file = match files.iter().position(|(n, _)| *n == number) {
        Some(i) => files.remove(i).expect("it is there").1,
        None => Arc::new(context.open(partition, &number.to_be_bytes()).await?.0),
    };
    remember_file(files, number, file.clone());
    Ok(file)
}

fn remember_file<B>(files: &mut VecDeque<(u64, Arc<B>)>, number: u64, file: Arc<B>) {
    files.push_front((number, file));
    files.truncate(limits::LOG_FILES_OPEN);
}

fn file_path(partition: &str, number: u64) -> String {
    format!("{partition}/{number:016x}")
}

/// The index of the table, floor and heights of a kind.
fn table_of(kind: Kind) -> usize {
    match kind {
        Kind::Block => 0,
        Kind::Certificate => 1,
        Kind::LowWaterMark => unreachable!("floors are not looked up"),
    }
}

fn prefix_of(digest: &[u8; 32]) -> u64 {
    u64::from_be_bytes(*digest.first_chunk().expect("a digest has 32 bytes"))
}

/// Bytes that gather before a write.
const WRITE_BUFFER_BYTES: usize = 1 << 20;
