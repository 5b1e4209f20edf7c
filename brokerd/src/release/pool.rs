//! The threads that compute shares.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::{io, thread};

use sealcast_broker::operation::Client;
use sealcast_wire::limits;

use crate::executor::{Kept, Shared};

/// A publication whose share is to be computed and sent.
pub(super) struct Job {
    /// The block.
    pub(super) kept: Arc<Kept>,
    /// The publication's place in its outbox.
    pub(super) place: usize,
    /// Who gets the share.
    pub(super) readers: Vec<Client>,
}

/// The jobs that wait.
#[derive(Default)]
pub(super) struct Pool {
    queue: Mutex<Queue>,
    /// Something came, or the end.
    came: Condvar,
    /// Something went, or the end.
    went: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    ended: bool,
}

impl Pool {
    /// Starts threads, which end with [`Pool::stop`] or when the executor is gone.
    pub(super) fn start(self: &Arc<Self>, threads: usize, shared: &Weak<Shared>) -> io::Result<()> {
        for number in 0..threads {
            let (pool, shared) = (self.clone(), shared.clone());
            thread::Builder::new().name(format!("shares-{number}")).spawn(move || {
                while let Some(job) = pool.next() {
                    let Some(shared) = shared.upgrade() else { return };
                    shared.release.work(&shared, &job);
                }
            })?;
        }
        Ok(())
    }

    /// Adds a job, and waits for room.
    pub(super) fn push(&self, job: Job) {
        let mut queue = self.queue();
        while queue.jobs.len() >= limits::SHARES_TO_COMPUTE_MAX && !queue.ended {
            queue = self.went.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if !queue.ended {
            queue.jobs.push_back(job);
            self.came.notify_one();
        }
    }

    /// Forgets the jobs that wait, and ends the threads.
    pub(super) fn stop(&self) {
        let mut queue = self.queue();
        queue.ended = true;
        queue.jobs.clear();
        self.came.notify_all();
        self.went.notify_all();
    }

    /// The next job; `None` at the end.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue();
        loop {
            if queue.ended {
                return None;
            }
            if let Some(job) = queue.jobs.pop_front() {
                self.went.notify_one();
                return Some(job);
            }
            queue = self.came.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next job, if one waits.
    pub(super) fn try_next(&self) -> Option<Job> {
        self.queue().jobs.pop_front()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
