//! Lets threads and tasks wait until something about a session has changed.

use std::future::poll_fn;
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
        let first = lock(&self.state).tasks.iter().map(|it| it.deadline).min()?;
        let left = first.saturating_duration_since(Instant::now());
        if left.is_zero() {
            // It looks at the clock; a task that nobody runs any more is forgotten by this.
            self.ring();
            return None;
        }
        Some(left)
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

    /// The same as a future.
    pub(super) async fn until<T>(&self, deadline: Instant, mut check: impl FnMut() -> Option<T> + Send) -> Option<T> {
        poll_fn(|cx| self.poll_until(cx, deadline, &mut check)).await
    }
}

/// What is waited for may be that nothing happens for a while: nobody rings for that.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    /// A bell, and what tells whether the driver was woken since the last look.
    fn bell() -> (Changed, impl FnMut() -> bool) {
        let mut poll = mio::Poll::new().unwrap();
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).unwrap();
        let woken = move || {
            let mut events = mio::Events::with_capacity(1);
            poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
            !events.is_empty()
        };
        (Changed::new(Arc::new(waker)), woken)
    }

    #[test]
    fn a_task_wakes_the_driver_only_if_it_gives_up_before_the_driver_looks() {
        let (changed, mut woken) = bell();
        let mut cx = Context::from_waker(Waker::noop());
        let soon = Duration::from_secs(60);
        changed.plan(2 * soon);
        assert!(changed.poll_until(&mut cx, Instant::now() + 3 * soon, || None::<()>).is_pending());
        assert!(!woken(), "the driver looks before");
        assert!(changed.poll_until(&mut cx, Instant::now() + soon, || None::<()>).is_pending());
        assert!(woken(), "the driver would look too late");
        let first = changed.first_deadline(2 * soon).expect("a task waits");
        assert!(first <= soon && first > soon / 2, "{first:?}");
    }

    #[test]
    fn a_task_gives_up_at_its_deadline_and_is_told_of_what_happens() {
        let (changed, _) = bell();
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(changed.poll_until(&mut cx, Instant::now(), || None::<()>), Poll::Ready(None));
        assert!(changed.poll_until(&mut cx, Instant::now() + Duration::from_secs(60), || None::<()>).is_pending());
        assert!(changed.awaited());
        changed.ring();
        assert!(!changed.awaited() && changed.first_deadline(Duration::ZERO).is_none(), "each task asks again");
    }

    #[test]
    fn a_task_that_was_dropped_keeps_nobody_from_waiting() {
        let (changed, _) = bell();
        let mut cx = Context::from_waker(Waker::noop());
        let deadline = Instant::now() + Duration::from_millis(1);
        assert!(changed.poll_until(&mut cx, deadline, || None::<()>).is_pending());
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(changed.first_deadline(Duration::from_secs(1)), None, "it is told, and forgotten");
        assert!(!changed.awaited());
    }
}
