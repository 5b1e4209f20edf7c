//! Lets threads and tasks wait until something about a session has changed.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::group::lock;

/// A bell that wakes whoever waits.
pub(super) struct Changed {
    /// Whether a task waits; asked at every turn of the driver.
    awaited: AtomicBool,
    /// Until when the driver plans to wait for sockets at most, microseconds since `start`.
    planned: AtomicU64,
    start: Instant,
    driver: Arc<mio::Waker>,
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Default)]
struct State {
    times: u64,
    tasks: Vec<Task>,
}

/// A task that waits.
struct Task {
    waker: Waker,
    /// When it gives up.
    deadline: Instant,
}

impl Changed {
    /// `driver` wakes the thread that watches tasks' deadlines.
    pub(super) fn new(driver: Arc<mio::Waker>) -> Changed {
        Changed {
            awaited: AtomicBool::new(false),
            planned: AtomicU64::new(0),
            start: Instant::now(),
            driver,
            state: Mutex::default(),
            rung: Condvar::new(),
        }
    }

    /// Something changed.
    pub(super) fn ring(&self) {
        let tasks = {
            let mut state = lock(&self.state);
            state.times += 1;
            self.awaited.store(false, Ordering::Release);
            std::mem::take(&mut state.tasks)
        };
        self.rung.notify_all();
        tasks.into_iter().for_each(|task| task.waker.wake());
    }

    /// Whether tasks wait, whose deadlines somebody must watch.
    pub(super) fn awaited(&self) -> bool {
        self.awaited.load(Ordering::Acquire)
    }

    /// How long until the first task gives up, if one waits. Who asks plans to wait for `most` otherwise: a task that comes
    /// meanwhile and gives up sooner wakes it.
    pub(super) fn first_deadline(&self, most: Duration) -> Option<Duration> {
        // Before looking, so that no task falls between.
        self.plan(most);
        if !self.awaited() {
            return None;
        }
        let first = lock(&self.state).tasks.iter().map(|it| it.deadline).min();
        first.map(|it| it.saturating_duration_since(Instant::now()))
    }

    /// The driver is about to wait for so long.
    pub(super) fn plan(&self, wait: Duration) {
        let until = (self.start.elapsed() + wait).as_micros();
        self.planned.store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Blocks until `check` answers; `None` once the deadline is over.
    pub(super) fn wait_until<T>(&self, deadline: Instant, mut check: impl FnMut() -> Option<T>) -> Option<T> {
        let mut times = lock(&self.state).times;
        loop {
            if let Some(answer) = check() {
                return Some(answer);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let state = lock(&self.state);
            let waited = self.rung.wait_timeout_while(state, left.min(LOOK_AGAIN), |s| s.times == times);
            times = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0.times;
        }
    }

    /// The same for a task: looks, registers and looks again, so that no ringing is missed.
    pub(super) fn poll_until<T>(
        &self,
        cx: &mut Context<'_>,
        deadline: Instant,
        mut check: impl FnMut() -> Option<T>,
    ) -> Poll<Option<T>> {
        if let Some(answer) = check() {
            return Poll::Ready(Some(answer));
        }
        {
            let mut state = lock(&self.state);
            match state.tasks.iter_mut().find(|it| it.waker.will_wake(cx.waker())) {
                Some(task) => task.deadline = task.deadline.min(deadline),
                None => state.tasks.push(Task { waker: cx.waker().clone(), deadline }),
            }
            self.awaited.store(true, Ordering::SeqCst);
        }
        let until = deadline.saturating_duration_since(self.start).as_micros();
        if until < u128::from(self.planned.load(Ordering::SeqCst)) {
            // Fails only if the descriptor is gone, and then nobody waits on it.
            let _ = self.driver.wake();
        }
        match check() {
            Some(answer) => Poll::Ready(Some(answer)),
            None if Instant::now() >= deadline => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// What is waited for may be that nothing happens for a while: nobody rings for that.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Something that a session is doing: `.await` it, or `.wait()` for it on this thread.
#[must_use = "nothing is waited for unless it is awaited or .wait() is called"]
pub struct Doing<T> {
    pub(super) shared: std::sync::Arc<super::Shared>,
    pub(super) deadline: Instant,
    pub(super) check: Check<T>,
    /// What to say when the deadline is over.
    pub(super) late: fn(&super::Shared, Duration) -> crate::error::Error,
    pub(super) timeout: Duration,
}

pub(super) type Check<T> = Box<dyn FnMut(&super::Shared) -> Option<crate::error::Result<T>> + Send>;

impl<T> Doing<T> {
    /// Blocks until it is done.
    ///
    /// # Errors
    /// What went wrong, or that it was not done in time.
    pub fn wait(mut self) -> crate::error::Result<T> {
        self.shared.process.check()?;
        let done = self.shared.changed.wait_until(self.deadline, || (self.check)(&self.shared));
        done.unwrap_or_else(|| Err((self.late)(&self.shared, self.timeout)))
    }
}

impl<T> Future for Doing<T> {
    type Output = crate::error::Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let shared = this.shared.clone();
        if let Err(why) = shared.process.check() {
            return Poll::Ready(Err(why));
        }
        let polled = shared.changed.poll_until(cx, this.deadline, || (this.check)(&shared));
        polled.map(|done| done.unwrap_or_else(|| Err((this.late)(&shared, this.timeout))))
    }
}
