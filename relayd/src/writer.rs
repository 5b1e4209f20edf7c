//! The thread that owns the directory and its rows.
//!
//! ```text
//! waiting requests ─▶ each handled over what those before it changed ─▶ one durable commit ─▶ responses, announcements (G6)
//! ```
//! A batch that changes nothing needs no commit. If the commit fails, nobody is answered, and the program ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sealcast_relay::directory::{Directory, Overlay, Published, StorageError};
use sealcast_wire::{Monotonic, Now, Utc};
use tokio::sync::oneshot;

use crate::announcer::Announcements;
use crate::budget::{Budget, Share};
use crate::limits;
use crate::metrics::Metrics;
use crate::rows::Rows;

/// A request that waits.
struct Job {
    request: Vec<u8>,
    /// What the request takes while it waits.
    _share: Share,
    answer: oneshot::Sender<Answer>,
}

/// What comes of a request.
#[derive(Debug)]
pub enum Answer {
    /// The directory's response, and what it takes until the client has it.
    Response(Vec<u8>, Share),
    /// Clients have not taken their responses, and there are too many: nothing was done.
    Busy,
}

/// Hands requests to the writer. Clones reach the same one; when the last one goes, the writer ends.
#[derive(Clone)]
pub struct Requests {
    jobs: SyncSender<Job>,
    pulse: Arc<Pulse>,
}

/// Since when the writer has been busy with its batch.
struct Pulse {
    start: Instant,
    /// Milliseconds after `start`, and 1; 0 if it waits for requests.
    busy_since: AtomicU64,
}

/// The writer's thread.
pub struct Writer {
    thread: JoinHandle<()>,
    /// Comes when it ended because of its storage; closes when it ended otherwise.
    pub failed: oneshot::Receiver<StorageError>,
}

impl Requests {
    /// Hands a request over; `None` if too many wait. The answer does not come if the storage fails.
    pub fn send(&self, request: Vec<u8>, share: Share) -> Option<oneshot::Receiver<Answer>> {
        let (answer, answered) = oneshot::channel();
        match self.jobs.try_send(Job { request, _share: share, answer }) {
            Ok(()) => Some(answered),
            // The writer has ended: the answer does not come.
            Err(TrySendError::Disconnected(_)) => Some(answered),
            Err(TrySendError::Full(_)) => None,
        }
    }

    /// Whether the writer handles requests in time.
    pub fn is_well(&self) -> bool {
        let busy_since = self.pulse.busy_since.load(Ordering::Acquire);
        busy_since == 0 || self.pulse.millis().saturating_sub(busy_since) < limits::BATCH_TIMEOUT.as_millis() as u64
    }
}

impl Pulse {
    fn millis(&self) -> u64 {
        self.start.elapsed().as_millis() as u64 + 1
    }
}

impl Writer {
    /// Starts it.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub fn start(
        directory: Directory,
        rows: Rows,
        announcements: Announcements,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<(Writer, Requests)> {
        let (jobs, waiting) = mpsc::sync_channel(limits::WAITING_MAX);
        let (fail, failed) = oneshot::channel();
        let pulse = Arc::new(Pulse { start: Instant::now(), busy_since: AtomicU64::new(0) });
        let responses = Budget::new(limits::RESPONSES_BYTES_MAX);
        let state = State { directory, rows, announcements, metrics, responses, pulse: pulse.clone() };
        let thread = thread::Builder::new().name("writer".into()).spawn(move || {
            if let Err(why) = state.run(&waiting) {
                // The program may be ending already.
                let _ = fail.send(why);
            }
        })?;
        Ok((Writer { thread, failed }, Requests { jobs, pulse }))
    }

    /// Waits until it has ended, after the last [`Requests`].
    pub fn join(self) {
        // A panic in it was reported by its own hook.
        let _ = self.thread.join();
    }
}

struct State {
    directory: Directory,
    rows: Rows,
    announcements: Announcements,
    metrics: Arc<Metrics>,
    responses: Budget,
    pulse: Arc<Pulse>,
}

impl State {
    fn run(mut self, waiting: &Receiver<Job>) -> Result<(), StorageError> {
        let mut sweep_at = Instant::now();
        loop {
            let job = match waiting.recv_timeout(sweep_at.saturating_duration_since(Instant::now())) {
                Ok(job) => Some(job),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            self.pulse.busy_since.store(self.pulse.millis(), Ordering::Release);
            if let Some(job) = job {
                self.batch(job, waiting)?;
            }
            if Instant::now() >= sweep_at {
                sweep_at = Instant::now() + self.sweep()?;
            }
            self.pulse.busy_since.store(0, Ordering::Release);
        }
    }

    /// Handles a request and others that wait. All are answered, or none.
    fn batch(&mut self, first: Job, waiting: &Receiver<Job>) -> Result<(), StorageError> {
        let (mut answers, mut published, mut bytes, mut changing) = (Vec::new(), Vec::new(), 0, 0);
        let mut overlay = Overlay::new(&self.rows);
        let mut next = Some(first);
        while let Some(Job { request, answer, .. }) = next.take() {
            if self.responses.is_used_up() {
                answers.push((answer, Answer::Busy));
            } else {
                let handled = self.directory.handle(now(self.pulse.start), &request, &overlay)?;
                self.metrics.answered(&request, &handled.response);
                bytes += request.len() + handled.response.len();
                changing += u64::from(!handled.writes.is_empty());
                overlay.apply(handled.writes);
                published.extend(handled.published);
                let share = self.responses.take(handled.response.len());
                answers.push((answer, Answer::Response(handled.response, share)));
            }
            if answers.len() < limits::BATCH_REQUESTS_MAX && bytes < limits::BATCH_BYTES_MAX {
                next = waiting.try_recv().ok();
            }
        }
        let writes = overlay.into_writes();
        if !writes.is_empty() {
            let begun = Instant::now();
            self.rows.commit(writes)?;
            self.metrics.committed(begun.elapsed(), changing);
        }
        for (answer, of) in answers {
            // A client that has left needs none.
            let _ = answer.send(of);
        }
        for it in &published {
            self.metrics.founded.inc_by(u64::from(it.position == 1));
        }
        published.into_iter().for_each(|it: Published| self.announcements.push(&it));
        Ok(())
    }

    /// Removes some rows whose time is over, and says when to look again.
    fn sweep(&mut self) -> Result<Duration, StorageError> {
        let writes = self.directory.sweep(now(self.pulse.start), &self.rows)?;
        if writes.is_empty() {
            return Ok(limits::SWEEP_EVERY);
        }
        self.rows.commit(writes)?;
        Ok(limits::SWEEP_AGAIN)
    }
}

/// The clocks of this machine (G5). The calendar may be set while we run; one before this program was written counts as none.
fn now(start: Instant) -> Now {
    let utc = SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|it| i64::try_from(it.as_secs()).ok());
    let monotonic = Monotonic(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX));
    Now { monotonic, utc: utc.map(Utc).filter(|it| *it > WRITTEN) }
}

/// 2026-11-01.
const WRITTEN: Utc = Utc(1_793_491_200);
