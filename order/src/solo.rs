//! One unreplicated broker: the same trait over a log on disk. The baseline of every figure (the paper's Chios-Solo).
//!
//! ```text
//! log          = record*               one file per SEGMENT_BLOCKS blocks, named by the first block's height
//! record       = length (4) ‖ checksum (4) ‖ block      checksum = the first 4 bytes of SHA-256(block)
//! acknowledged = height (8) ‖ height (8)
//! ```
//!
//! A block is written and synced before it is delivered and before the next one is written. So a crash tears the last
//! record of the last file at most; that one was never delivered, and goes. Anything else that does not check is damage, and
//! the log does not open: there are no other brokers to get the blocks from.
//!
//! The index of all blocks held lies in memory, some 50 bytes for each; a broker alone makes a block only when batches wait.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use futures::channel::oneshot;
use sealcast_wire::limits;

use crate::application::{Ack, Application, Delivered, Origin};
use crate::block::{Batch, Block, BlockSize, HEADER_BYTES, Parent};
use crate::order::{Evidence, Fault, Later, Order, Refused, StartCertificate, Status};

/// The settings of a broker alone.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the cluster.
    pub namespace: Vec<u8>,
    /// Where the log lies.
    pub folder: PathBuf,
    /// How much a new block holds.
    pub block: BlockSize,
    /// Blocks delivered and not yet acknowledged, at most.
    pub unacknowledged: usize,
}

/// Why a broker alone does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A file of the log does not hold what was written to it.
    #[error("{}: {what}", file.display())]
    Damaged {
        /// Which file.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The folder cannot be used, or holds the log of another cluster.
    #[error("cannot start: {0}")]
    Io(#[from] io::Error),
}

/// One broker alone.
pub struct Solo {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    application: Arc<dyn Application>,
    acknowledged: AtomicU64,
    log: Mutex<Log>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    tip: u64,
    running: bool,
    /// Why it ended, if its files are the reason.
    fault: Option<Fault>,
    /// A batch or an acknowledgement came in since the writer last looked.
    news: bool,
    end: bool,
    /// Told when the writer has ended.
    ended: Vec<oneshot::Sender<()>>,
}

impl Solo {
    /// Opens the log in `settings.folder`, or begins one.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(settings: Settings, application: Arc<dyn Application>) -> Result<Solo, StartError> {
        let (log, tip) = Log::open(&settings.folder, Block::genesis(&settings.namespace))?;
        let acknowledged = log.acknowledged()?;
        let shared = Arc::new(Shared {
            application,
            acknowledged: AtomicU64::new(acknowledged),
            log: Mutex::new(log),
            state: Mutex::new(State { tip: tip.height, running: true, ..State::default() }),
            changed: Condvar::new(),
        });
        let writer = Writer { shared: shared.clone(), settings, tip, flying: Vec::new() };
        let thread = std::thread::Builder::new().name("solo".to_string()).spawn(move || writer.run())?;
        Ok(Solo { shared, thread: Mutex::new(Some(thread)) })
    }
}

impl Order for Solo {
    fn submit(&self, batch: Batch) -> Result<(), Refused> {
        if !lock(&self.shared.state).running {
            return Err(Refused::Ended);
        }
        self.shared.application.receive(Origin::Here, batch)?;
        self.shared.news();
        Ok(())
    }

    fn status(&self) -> Status {
        let height = self.shared.acknowledged.load(Ordering::Acquire);
        let state = lock(&self.shared.state);
        Status { view: state.tip, height, tip: state.tip, running: state.running, ..Status::default() }
    }

    fn evidence(&self) -> Vec<Evidence> {
        Vec::new()
    }

    fn fault(&self) -> Option<Fault> {
        lock(&self.shared.state).fault.clone()
    }

    fn block(&self, height: u64) -> Later<Option<Arc<Block>>> {
        let block = lock(&self.shared.log).read(height).ok().flatten();
        Box::pin(std::future::ready(block.map(Arc::new)))
    }

    fn start_certificate(&self, _height: u64) -> Later<Option<StartCertificate>> {
        Box::pin(std::future::ready(None))
    }

    fn prune(&self, height: u64) {
        let below = height.min(self.shared.acknowledged.load(Ordering::Acquire));
        // What cannot be removed now is removed by a later call.
        let _ = lock(&self.shared.log).prune(below);
    }

    fn stop(&self) -> Later<()> {
        let (done, is_done) = oneshot::channel();
        let mut state = lock(&self.shared.state);
        if state.running {
            state.ended.push(done);
        }
        state.end = true;
        self.shared.changed.notify_all();
        Box::pin(async move {
            // An error means that it had ended before.
            let _ = is_done.await;
        })
    }
}

impl Drop for Solo {
    fn drop(&mut self) {
        lock(&self.shared.state).end = true;
        self.shared.changed.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            // A panic in it was reported by its own hook.
            let _ = thread.join();
        }
    }
}

/// What a thread that panicked left behind is still the last that is known.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn news(&self) {
        lock(&self.state).news = true;
        self.changed.notify_all();
    }
}

/// The thread that makes blocks.
struct Writer {
    shared: Arc<Shared>,
    settings: Settings,
    tip: Block,
    /// Blocks delivered and perhaps not acknowledged, the newest first.
    flying: Vec<Arc<Block>>,
}

impl Writer {
    fn run(mut self) {
        // A log that cannot be written ends the order, and the status says so.
        let ended = self.order();
        let _ = lock(&self.shared.log).acknowledge(self.shared.acknowledged.load(Ordering::Acquire));
        let mut state = lock(&self.shared.state);
        let of_disk = ended.err().filter(|error| error.kind() != io::ErrorKind::Other);
        state.fault = of_disk.map(|error| Fault::Storage(error.to_string()));
        state.running = false;
        for done in state.ended.drain(..) {
            let _ = done.send(());
        }
    }

    fn order(&mut self) -> io::Result<()> {
        for height in self.shared.acknowledged.load(Ordering::Acquire) + 1..=self.tip.height {
            let block = lock(&self.shared.log).read(height)?;
            self.deliver(Arc::new(block.ok_or(io::ErrorKind::NotFound)?));
        }
        while self.wait() {
            while let Some(block) = self.next()? {
                let mut log = lock(&self.shared.log);
                log.append(&block)?;
                log.acknowledge(self.shared.acknowledged.load(Ordering::Acquire))?;
                drop(log);
                lock(&self.shared.state).tip = block.height;
                self.tip = block.clone();
                self.deliver(Arc::new(block));
            }
        }
        Ok(())
    }

    /// The next block, if batches wait and not too many blocks are out.
    fn next(&mut self) -> io::Result<Option<Block>> {
        let acknowledged = self.shared.acknowledged.load(Ordering::Acquire);
        self.flying.retain(|b| b.height > acknowledged);
        if self.flying.len() >= self.settings.unacknowledged || lock(&self.shared.state).end {
            return Ok(None);
        }
        let hash = self.tip.hash();
        let parent = Parent { height: self.tip.height, hash, time: self.tip.time, ancestors: &self.flying };
        let batches = self.shared.application.propose(&parent, self.settings.block);
        if batches.is_empty() {
            return Ok(None);
        }
        let block = Block { parent: hash, height: self.tip.height + 1, time: self.tip.time.max(now_micros()), batches };
        if !block.fits(self.settings.block) || !self.shared.application.valid(&parent, &block) {
            return Err(io::Error::other("the application draws what it does not find valid"));
        }
        Ok(Some(block))
    }

    fn deliver(&mut self, block: Arc<Block>) {
        self.flying.insert(0, block.clone());
        let receipt = Receipt { shared: self.shared.clone(), height: block.height, done: false };
        let hash = block.hash();
        self.shared.application.deliver(Delivered { block, hash }, Ack::new(move || receipt.done()));
    }

    /// Waits for news; whether to go on.
    fn wait(&self) -> bool {
        let state = lock(&self.shared.state);
        let idle = |s: &mut State| !s.news && !s.end;
        let mut state = self.shared.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        state.news = false;
        !state.end
    }
}

/// An acknowledgement that is still out.
struct Receipt {
    shared: Arc<Shared>,
    height: u64,
    done: bool,
}

impl Receipt {
    fn done(mut self) {
        self.done = true;
        self.shared.acknowledged.fetch_max(self.height, Ordering::AcqRel);
        self.shared.news();
    }
}

impl Drop for Receipt {
    /// Dropped unacknowledged: the application has failed, and going on would lose the block.
    fn drop(&mut self) {
        if !self.done {
            lock(&self.shared.state).end = true;
            self.shared.changed.notify_all();
        }
    }
}

/// Microseconds since 1970.
fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The blocks on disk.
struct Log {
    folder: PathBuf,
    /// Where each block lies: its file, offset and length.
    index: BTreeMap<u64, (u64, u64, usize)>,
    /// The file that grows, and its length.
    last: Option<(u64, File, u64)>,
    mark: File,
}

impl Log {
    /// Opens the log and finds its last block, which is `genesis` if there is none.
    fn open(folder: &Path, genesis: Block) -> Result<(Log, Block), StartError> {
        fs::create_dir_all(folder)?;
        let mark = open_file(&folder.join("acknowledged"))?;
        let mut log = Log { folder: folder.to_path_buf(), index: BTreeMap::new(), last: None, mark };
        let mut segments = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            segments.extend(name.to_str().and_then(|n| n.strip_suffix(".log")).and_then(|n| n.parse::<u64>().ok()));
        }
        segments.sort_unstable();
        let mut tip = genesis;
        let newest = segments.last().copied();
        for segment in segments {
            let path = log.path(segment);
            let (file, bytes) = (open_file(&path)?, fs::read(&path)?);
            let mut at = 0;
            while let Some((block, length)) = record(&bytes[at..]) {
                // The first block held may stand on pruned ones.
                let first = log.index.is_empty() && block.height > 1;
                if !first && (block.parent != tip.hash() || block.height != tip.height + 1) {
                    if log.index.is_empty() {
                        let what = format!("{}: the log is of another cluster", path.display());
                        return Err(io::Error::new(io::ErrorKind::InvalidData, what).into());
                    }
                    let what = format!("block {} in it does not follow on block {}", block.height, tip.height);
                    return Err(StartError::Damaged { file: path, what });
                }
                log.index.insert(block.height, (segment, at as u64, length));
                at += length;
                tip = block;
            }
            if at < bytes.len() {
                let what = match Some(segment) == newest {
                    false => Some(format!("the record at byte {at} was changed or cut short")),
                    true if is_record_behind(&bytes[at..], segment.max(tip.height + 1)) => {
                        Some(format!("the record at byte {at} was changed, and records behind it were not"))
                    }
                    true => None,
                };
                if let Some(what) = what {
                    return Err(StartError::Damaged { file: path, what });
                }
            }
            log.last = Some((segment, file, at as u64));
        }
        let executed = log.acknowledged()?;
        if executed > tip.height {
            let what = format!("block {executed} was executed here, and the newest block in it is {}", tip.height);
            let file = newest.map_or(folder.to_path_buf(), |segment| log.path(segment));
            return Err(StartError::Damaged { file, what });
        }
        // What a crash tore goes, now that nothing else is wrong.
        if let Some((_, file, end)) = &log.last {
            file.set_len(*end)?;
        }
        Ok((log, tip))
    }

    fn append(&mut self, block: &Block) -> io::Result<()> {
        let body = block.to_bytes();
        let mut bytes = Vec::with_capacity(RECORD_HEADER_BYTES + body.len());
        bytes.extend(u32::try_from(body.len()).expect("a block is bounded").to_be_bytes());
        bytes.extend(checksum(&body));
        bytes.extend(&body);
        let full = self.last.as_ref().is_none_or(|(first, ..)| block.height >= first + SEGMENT_BLOCKS);
        if full {
            self.last = Some((block.height, open_file(&self.path(block.height))?, 0));
            File::open(&self.folder)?.sync_all()?;
        }
        let (segment, file, end) = self.last.as_mut().expect("it was just opened");
        file.write_all_at(&bytes, *end)?;
        file.sync_data()?;
        self.index.insert(block.height, (*segment, *end, bytes.len()));
        *end += bytes.len() as u64;
        Ok(())
    }

    fn read(&self, height: u64) -> io::Result<Option<Block>> {
        let Some(&(segment, offset, length)) = self.index.get(&height) else { return Ok(None) };
        let mut bytes = vec![0; length];
        File::open(self.path(segment))?.read_exact_at(&mut bytes, offset)?;
        let (block, _) = record(&bytes).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some(block))
    }

    /// Removes the files that hold only blocks below `height`; the file that grows stays.
    fn prune(&mut self, height: u64) -> io::Result<()> {
        let mut segments: Vec<u64> = self.index.values().map(|(segment, ..)| *segment).collect();
        segments.dedup();
        for pair in segments.windows(2) {
            if pair[1] <= height {
                fs::remove_file(self.path(pair[0]))?;
                self.index.retain(|_, (segment, ..)| *segment != pair[0]);
            }
        }
        Ok(())
    }

    /// The highest block acknowledged; 0 if that was never written or cut short.
    fn acknowledged(&self) -> io::Result<u64> {
        let mut bytes = [0; 16];
        match self.mark.read_exact_at(&mut bytes, 0) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(self.pruned()),
            other => other?,
        }
        let (a, b) = bytes.split_at(8);
        let height = u64::from_be_bytes(a.try_into().expect("the half of 16 bytes"));
        Ok(if a == b { height.max(self.pruned()) } else { self.pruned() })
    }

    /// Only acknowledged blocks are pruned.
    fn pruned(&self) -> u64 {
        self.index.first_key_value().map_or(0, |(height, _)| height - 1)
    }

    /// Not synced: what is lost is delivered once more.
    fn acknowledge(&self, height: u64) -> io::Result<()> {
        self.mark.write_all_at(&[height.to_be_bytes(); 2].concat(), 0)
    }

    fn path(&self, segment: u64) -> PathBuf {
        self.folder.join(format!("{segment:020}.log"))
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// The block at the front of `bytes` and the bytes of its record.
fn record(bytes: &[u8]) -> Option<(Block, usize)> {
    let (header, rest) = bytes.split_at_checked(RECORD_HEADER_BYTES)?;
    let length = u32::from_be_bytes(header[..4].try_into().expect("4 bytes")) as usize;
    let body = rest.get(..length)?;
    if header[4..] != checksum(body) {
        return None;
    }
    let block = Block::from_bytes(bytes::Bytes::copy_from_slice(body), BlockSize::MAX).ok()?;
    Some((block, RECORD_HEADER_BYTES + length))
}

/// Whether a record lies behind the bad one of block `height` at the front of `bytes`: then that one was whole once.
///
/// The bad record may hold whatever a client published, also what looks like a record. So the search begins behind it, unless
/// its length cannot be true.
fn is_record_behind(bytes: &[u8], height: u64) -> bool {
    let length = |at: usize| bytes.get(at..)?.first_chunk().map(|it| u32::from_be_bytes(*it) as usize);
    let claimed = length(0).filter(|it| (HEADER_BYTES..=limits::LOG_BODY_BYTES_MAX).contains(it));
    let heights = height + 1..height + SEGMENT_BLOCKS;
    (claimed.map_or(1, |it| RECORD_HEADER_BYTES + it)..bytes.len()).any(|at| {
        // Most offsets cost a look at two numbers.
        let named = bytes.get(at + RECORD_HEADER_BYTES + HEIGHT_AT..).and_then(|rest| rest.first_chunk());
        named.is_some_and(|it| heights.contains(&u64::from_be_bytes(*it))) && record(&bytes[at..]).is_some()
    })
}

fn checksum(body: &[u8]) -> [u8; 4] {
    digest(&SHA256, body).as_ref()[..4].try_into().expect("4 of 32 bytes")
}

/// Length and checksum.
const RECORD_HEADER_BYTES: usize = 8;
/// Where a block's height lies in it, behind its version and its parent.
const HEIGHT_AT: usize = 1 + 32;
/// Blocks per file: what pruning removes at once.
const SEGMENT_BLOCKS: u64 = 256;
