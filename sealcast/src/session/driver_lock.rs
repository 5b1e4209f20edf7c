//! Who drives a session: its own thread, or the reader that waits for a message anyway.
//!
//! Exactly one thread at a time waits for the [`Sockets`]. A blocking reader takes the lead while it waits, so that a
//! message reaches it without a second thread waking up in between; the session's thread then stands by, and takes over
//! once nobody has led for a moment, or at once when others wait too.
//!
//! The [`Driver`] itself has a lock of its own, which nobody holds while waiting: a publisher that goes through it wakes
//! no other thread, unless whoever waits must do something sooner than it planned.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Shared;
use super::driver::{Driver, Sockets};
use super::queue::Queue;
use crate::group::lock;
use crate::io::process::Process;

/// See the module.
pub(super) struct DriverLock {
    process: Process,
    driver: Mutex<Option<Driver>>,
    /// Locked by whoever waits for them, and by nobody who has the driver.
    sockets: Mutex<Option<Sockets>>,
    waker: Arc<mio::Waker>,
    /// Threads that want the driver or the sockets now.
    wanted: AtomicUsize,
    /// Whether a reader leads.
    leading: AtomicBool,
    /// Counts the times that readers led.
    led: AtomicU64,
    /// Readers that wait without leading.
    followers: AtomicUsize,
    /// Tasks wait for messages: then the session's thread drives, always.
    tasks: AtomicBool,
    /// Whether the standing-by thread sleeps until it is told.
    deep: AtomicBool,
    standby: Mutex<()>,
    relieve: Condvar,
    closing: AtomicBool,
}

impl DriverLock {
    pub(super) fn new(waker: Arc<mio::Waker>) -> DriverLock {
        DriverLock {
            process: Process::current(),
            driver: Mutex::new(None),
            sockets: Mutex::new(None),
            waker,
            wanted: AtomicUsize::new(0),
            leading: AtomicBool::new(false),
            led: AtomicU64::new(0),
            followers: AtomicUsize::new(0),
            tasks: AtomicBool::new(false),
            deep: AtomicBool::new(false),
            standby: Mutex::new(()),
            relieve: Condvar::new(),
            closing: AtomicBool::new(false),
        }
    }

    /// Puts driver and sockets in; once, before anybody drives.
    pub(super) fn install(&self, driver: Driver, sockets: Sockets) {
        *lock(&self.driver) = Some(driver);
        *lock(&self.sockets) = Some(sockets);
    }

    /// Interrupts whoever waits for the sockets.
    pub(super) fn wake(&self) {
        // Fails only if the descriptor is gone, and then nobody waits on it.
        let _ = self.waker.wake();
    }

    /// Does something with the driver, between two of its turns or while it waits; `None` once the session is closed, and in
    /// a forked child.
    pub(super) fn with<T>(&self, shared: &Shared, act: impl FnOnce(&mut Option<Driver>) -> T) -> T {
        if !self.process.is_ours() {
            return act(&mut None);
        }
        let mut driver = self.take(&self.driver, false);
        let done = act(&mut driver);
        let is_late = driver.as_mut().is_some_and(|driver| driver.is_late(shared));
        drop(driver);
        if is_late {
            self.wake();
        }
        done
    }

    fn take<'a, T>(&self, of: &'a Mutex<Option<T>>, interrupt: bool) -> MutexGuard<'a, Option<T>> {
        if let Ok(taken) = of.try_lock() {
            return taken;
        }
        self.wanted.fetch_add(1, Ordering::SeqCst);
        if interrupt {
            self.wake();
        }
        let taken = lock(of);
        self.wanted.fetch_sub(1, Ordering::SeqCst);
        taken
    }

    /// Lets a thread that wants the driver or the sockets have them.
    fn give_way(&self) {
        while self.wanted.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }

    /// The lead, unless somebody else has it or others wait too.
    pub(super) fn lead(&self) -> Option<Leader<'_>> {
        if self.others() || self.closing.load(Ordering::Acquire) {
            return None;
        }
        let free = self.leading.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        free.then_some(Leader { driver_lock: self })
    }

    /// Whether somebody waits who cannot lead.
    pub(super) fn others(&self) -> bool {
        self.tasks.load(Ordering::Relaxed) || self.followers.load(Ordering::SeqCst) > 0
    }

    /// Waits without leading, until the answer is dropped.
    pub(super) fn follow(&self) -> Follower<'_> {
        self.followers.fetch_add(1, Ordering::SeqCst);
        if self.leading.load(Ordering::SeqCst) {
            // The leader sees that there are others now, and lets the session's thread take over.
            self.wake();
        } else {
            self.relieve();
        }
        Follower { driver_lock: self }
    }

    /// A task waits for messages: the session's thread drives from now on.
    pub(super) fn drive_yourself(&self) {
        if !self.tasks.swap(true, Ordering::SeqCst) {
            self.wake();
            self.relieve();
        }
    }

    fn relieve(&self) {
        let _standby = lock(&self.standby);
        self.relieve.notify_all();
    }

    /// The session's thread: drives, or stands by while readers lead.
    pub(super) fn run(&self, shared: &Shared) {
        while !self.closing.load(Ordering::Acquire) {
            self.give_way();
            if self.leading.load(Ordering::SeqCst) || !self.drive(shared) {
                self.stand_by();
            }
        }
    }

    /// One turn of the session's thread; `false` if a reader took the lead.
    fn drive(&self, shared: &Shared) -> bool {
        let mut sockets = lock(&self.sockets);
        let Some(sockets) = sockets.as_mut() else { return false };
        self.turn(shared, sockets, MOST, None);
        !self.leading.load(Ordering::SeqCst)
    }

    /// Takes in what has arrived and does what is due; waits up to `most` if there is nothing, and returns at once when
    /// something came for `wanted`.
    fn turn(&self, shared: &Shared, sockets: &mut Sockets, most: Duration, wanted: Option<&Queue>) {
        let begun = lock(&self.driver).as_mut().and_then(|driver| driver.begin_turn(shared, most, wanted));
        let Some(wait) = begun else { return };
        sockets.wait(shared, wait);
        if let Some(driver) = lock(&self.driver).as_mut() {
            driver.end_turn(shared, sockets, wanted);
        }
    }

    /// Returns once nobody has led for a moment, or others wait.
    fn stand_by(&self) {
        let mut led = self.led.load(Ordering::SeqCst);
        let mut guard = lock(&self.standby);
        loop {
            if self.closing.load(Ordering::Acquire) || (self.others() && !self.leading.load(Ordering::SeqCst)) {
                return;
            }
            guard = self.relieve.wait_timeout(guard, LEADERLESS).unwrap_or_else(PoisonError::into_inner).0;
            let now = self.led.load(Ordering::SeqCst);
            if now != led {
                led = now;
                continue;
            }
            if !self.leading.load(Ordering::SeqCst) {
                return;
            }
            // One reader has led all the time: sleep until it stops.
            self.deep.store(true, Ordering::SeqCst);
            if self.leading.load(Ordering::SeqCst) {
                guard = self.relieve.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
            self.deep.store(false, Ordering::SeqCst);
            led = self.led.load(Ordering::SeqCst);
        }
    }

    /// Ends [`DriverLock::run`].
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.wake();
        self.relieve();
    }

    /// Closes what the leader waited for; nobody leads any more.
    pub(super) fn forget_sockets(&self) {
        self.take(&self.sockets, true).take();
    }
}

/// A reader that drives; gives the lead back when dropped.
pub(super) struct Leader<'a> {
    driver_lock: &'a DriverLock,
}

impl Leader<'_> {
    /// One turn: returns when something came for `queue`, at the deadline, or when interrupted.
    pub(super) fn turn(&self, shared: &Shared, deadline: Option<Instant>, queue: &Queue) {
        let driver_lock = self.driver_lock;
        driver_lock.give_way();
        let left = deadline.map_or(MOST, |d| d.saturating_duration_since(Instant::now()));
        let mut sockets = driver_lock.take(&driver_lock.sockets, true);
        if let Some(sockets) = sockets.as_mut().filter(|_| queue.is_empty()) {
            driver_lock.turn(shared, sockets, left.min(MOST), Some(queue));
        }
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let driver_lock = self.driver_lock;
        driver_lock.led.fetch_add(1, Ordering::SeqCst);
        driver_lock.leading.store(false, Ordering::SeqCst);
        if driver_lock.deep.load(Ordering::SeqCst) || driver_lock.others() {
            driver_lock.relieve();
        }
    }
}

/// A reader that waits for others to drive.
pub(super) struct Follower<'a> {
    driver_lock: &'a DriverLock,
}

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        self.driver_lock.followers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A turn lasts at most this long; whoever wants the lead interrupts it.
const MOST: Duration = Duration::from_millis(500);
/// Nobody has led for this long: the reader is busy with something else.
const LEADERLESS: Duration = Duration::from_millis(2);
