//! When a snapshot is taken, and what is pruned: all of it on a thread of its own, which the executing thread never waits
//! for.
//!
//! ```text
//! heights   … pruned … │ S₁: low-water │   S₂: offered   │   S₃   │ … now
//!                      └────────── keep, at least ───────┘
//! ```
//! The low-water mark is the newest snapshot as old as what is to be kept. The order's blocks are kept back to the snapshot before
//! it, and offered is the one behind it: so who begins with it finds all blocks that it still needs, also if the low-water mark
//! rises meanwhile.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::{io, thread};

use sealcast_broker::state::{self, SnapshotHead, Store as _};
use sealcast_order::StartCertificate;
use sealcast_wire::limits;
use tracing::warn;

use super::file::Snapshots;
use crate::executor::Shared;
use crate::store::{Frozen, Lsm};

/// How far back a broker keeps publications and blocks: `everything`, `2d`, `36h`, `90m`, `30s`, or `100000 blocks`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// All there ever was.
    #[default]
    Everything,
    /// The last so many blocks, at least.
    Blocks(u64),
    /// Of so many seconds, by block time, at least.
    Seconds(u64),
}

/// What is no [`Keep`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is neither 'everything' nor a time as '2d', '36h', '90m', '30s', nor at least '{least} blocks'", least = BLOCKS_MIN)]
pub struct NotKept(String);

/// What retention needs at its start.
pub(crate) struct Setup {
    pub(crate) keep: Keep,
    pub(crate) snapshots: Snapshots,
    pub(crate) store: Lsm,
}

/// Told of each checkpoint by the executing thread.
pub(crate) struct Retention {
    keep: Keep,
    pub(crate) snapshots: Snapshots,
    store: Lsm,
    /// Of the last snapshot.
    height: AtomicU64,
    at: AtomicI64,
    marks: Mutex<Option<SyncSender<Mark>>>,
    keeper: Mutex<Option<(Keeper, Receiver<Mark>)>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A checkpoint was executed.
struct Mark {
    height: u64,
    at: i64,
    /// What a snapshot of it is made of, if one is due.
    snapshot: Option<(SnapshotHead, Frozen)>,
}

impl Keep {
    /// Whether what was executed at this height and time is as old, at the newest block.
    fn reaches(self, (height, at): (u64, i64), newest: (u64, i64)) -> bool {
        self.is_apart((height, at), newest, 1)
    }

    /// Whether a snapshot is due, the last one being of this height and time.
    fn is_due(self, last: (u64, i64), newest: (u64, i64)) -> bool {
        self.is_apart(last, newest, limits::SNAPSHOTS_KEPT)
    }

    fn is_apart(self, (height, at): (u64, i64), newest: (u64, i64), parts: u64) -> bool {
        match self {
            Keep::Everything => false,
            Keep::Blocks(blocks) => newest.0.saturating_sub(height) >= blocks / parts,
            Keep::Seconds(seconds) => {
                u64::try_from(newest.1.saturating_sub(at)).is_ok_and(|apart| apart >= seconds / parts)
            }
        }
    }
}

impl Retention {
    pub(crate) fn new(setup: Setup, shared: Weak<Shared>) -> Retention {
        let Setup { keep, snapshots, store } = setup;
        let (marks, marked) = sync_channel(1);
        let keeper = Keeper { keep, snapshots: snapshots.clone(), store: store.clone(), shared };
        Retention {
            keep,
            snapshots,
            store,
            height: AtomicU64::new(0),
            at: AtomicI64::new(0),
            marks: Mutex::new(Some(marks)),
            keeper: Mutex::new(Some((keeper, marked))),
            thread: Mutex::new(None),
        }
    }

    /// Looks what is there, and starts the thread.
    pub(crate) fn start(&self) -> io::Result<()> {
        self.look()?;
        let Some((keeper, marked)) = lock(&self.keeper).take() else { return Ok(()) };
        let thread = thread::Builder::new().name("retention".into()).spawn(move || keeper.run(&marked))?;
        *lock(&self.thread) = Some(thread);
        Ok(())
    }

    /// Does what the thread would do next; whether there was anything. For simulations, which start none.
    pub(crate) fn step(&self, shared: &Arc<Shared>) -> io::Result<bool> {
        let keeper = lock(&self.keeper);
        let Some((keeper, marked)) = keeper.as_ref() else { return Ok(false) };
        let Ok(mark) = marked.try_recv() else { return Ok(false) };
        keeper.mark(shared, mark)?;
        Ok(true)
    }

    /// Looks what is there.
    pub(crate) fn look(&self) -> io::Result<()> {
        self.snapshots.prepare()?;
        if let Some(height) = self.snapshots.heights()?.last()
            && let Ok(last) = self.snapshots.read(*height)
        {
            self.height.store(*height, Ordering::Relaxed);
            self.at.store(last.head.at().0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Ends it when it has done what it is at.
    pub(crate) fn stop(&self) {
        lock(&self.marks).take();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // A panic in it was reported by its own hook.
            let _ = thread.join();
        }
    }

    /// A block was executed, and nothing since.
    pub(crate) fn executed(&self, height: u64, at: i64, head: impl FnOnce() -> SnapshotHead) {
        if self.keep == Keep::Everything || !height.is_multiple_of(limits::CHECKPOINT_BLOCKS) {
            return;
        }
        let last = (self.height.load(Ordering::Relaxed), self.at.load(Ordering::Relaxed));
        let snapshot = self.keep.is_due(last, (height, at)).then(|| (head(), self.store.freeze()));
        let is_due = snapshot.is_some();
        // If the last one is still being written, the next checkpoint will do.
        let told = lock(&self.marks).as_ref().is_some_and(|it| it.try_send(Mark { height, at, snapshot }).is_ok());
        if told && is_due {
            self.height.store(height, Ordering::Relaxed);
            self.at.store(at, Ordering::Relaxed);
        }
    }
}

/// The thread.
struct Keeper {
    keep: Keep,
    snapshots: Snapshots,
    store: Lsm,
    shared: Weak<Shared>,
}

impl Keeper {
    fn run(&self, marks: &Receiver<Mark>) {
        if let Some(shared) = self.shared.upgrade() {
            self.report(self.prune_rows(&shared));
        }
        while let Ok(mark) = marks.recv() {
            let Some(shared) = self.shared.upgrade() else { return };
            self.report(self.mark(&shared, mark));
        }
    }

    /// What is not pruned today is pruned tomorrow; the executor says so itself if the disk is full.
    fn report(&self, done: io::Result<()>) {
        if let Err(e) = done {
            warn!("old blocks are not pruned: {e}");
        }
    }

    fn mark(&self, shared: &Arc<Shared>, mark: Mark) -> io::Result<()> {
        let Mark { height, at, snapshot } = mark;
        if let Some((head, frozen)) = snapshot
            && let Some(start_certificate) = start_certificate_below(shared, height)
        {
            self.snapshots.write(&head, &start_certificate, state::elements(&frozen))?;
        }
        let mut old = None;
        for height_of in self.snapshots.heights()? {
            match self.snapshots.read(height_of) {
                Ok(it) if self.keep.reaches((height_of, it.head.at().0), (height, at)) => old = Some(it),
                Ok(_) => break,
                // A damaged one is not begun with, and goes with those that are old.
                Err(_) => {}
            }
        }
        let Some(old) = old.filter(|it| it.head.height() > shared.state().low_water_mark().height) else {
            return Ok(());
        };
        self.raise(shared, &old.head)
    }

    /// Nothing below this snapshot is kept any more.
    fn raise(&self, shared: &Arc<Shared>, head: &SnapshotHead) -> io::Result<()> {
        let height = head.height();
        let mut store = self.store.clone();
        let mut changes = state::Changes::new();
        self.snapshots.each_row(height, |row| {
            let place = state::LowWaterMark::place(height, &row).map_err(io::Error::other)?;
            changes.extend(place.map(|(key, value)| (key, Some(value))));
            if changes.len() >= limits::STORE_PAGE_ROWS {
                store.apply(std::mem::take(&mut changes)).map_err(io::Error::other)?;
            }
            Ok(())
        })?;
        store.apply(changes).map_err(io::Error::other)?;
        shared.raise_low_water_mark(head.low_water_mark()).map_err(io::Error::other)?;
        let before = self.snapshots.heights()?.into_iter().rfind(|it| *it < height);
        if let Some(before) = before.and_then(|it| self.snapshots.read(it).ok()) {
            shared.blocks.prune(before.start_certificate.height);
        }
        self.snapshots.remove_below(height)?;
        self.prune_rows(shared)
    }

    /// Rows go in steps, so that nothing else waits for long.
    fn prune_rows(&self, shared: &Arc<Shared>) -> io::Result<()> {
        let low_water_mark = shared.state().low_water_mark();
        let mut store = self.store.clone();
        while low_water_mark.prune(&mut store).map_err(io::Error::other)? {
            thread::yield_now();
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last block up to this one of which there is a certificate; a broker alone has none and needs none.
fn start_certificate_below(shared: &Shared, height: u64) -> Option<StartCertificate> {
    if shared.brokers == 1 {
        return Some(StartCertificate { height, certificate: Vec::new(), header: Vec::new() });
    }
    (height.saturating_sub(START_CERTIFICATE_SEARCH)..=height).rev().find_map(|it| shared.blocks.start_certificate(it))
}

impl FromStr for Keep {
    type Err = NotKept;

    fn from_str(text: &str) -> Result<Keep, NotKept> {
        let wrong = || NotKept(text.to_owned());
        if text == "everything" {
            return Ok(Keep::Everything);
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let seconds = match unit.trim_start() {
            "blocks" if number >= BLOCKS_MIN => return Ok(Keep::Blocks(number)),
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 86_400,
            _ => return Err(wrong()),
        };
        number.checked_mul(seconds).filter(|it| *it > 0).map(Keep::Seconds).ok_or_else(wrong)
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Keep::Everything => f.write_str("everything"),
            Keep::Blocks(blocks) => write!(f, "{blocks} blocks"),
            Keep::Seconds(seconds) => write!(f, "{seconds}s"),
        }
    }
}

/// Blocks among which one has a certificate of its own.
pub(super) const START_CERTIFICATE_SEARCH: u64 = 256;
/// The fewest blocks that can be kept.
const BLOCKS_MIN: u64 = 2 * limits::CHECKPOINT_BLOCKS;
