//! Makes files durable: each by a call of its own, and where many sessions of this process wait for one file system, all by one (G6).
//!
//! `syncfs` also writes what other programs left in memory, which may take long. So few sessions never call it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Makes durable what was written to a file.
///
/// # Errors
/// The system's own.
pub(super) fn sync(file: &File) -> io::Result<()> {
    let device = file.metadata()?.dev();
    let disk = DISKS.lock().unwrap_or_else(PoisonError::into_inner).entry(device).or_default().clone();
    disk.sync(|| file.sync_data(), || Ok(rustix::fs::syncfs(file)?))
}

/// File systems by their number; a process has few.
static DISKS: Mutex<BTreeMap<u64, Arc<Disk>>> = Mutex::new(BTreeMap::new());

/// Who waits for a file system.
#[derive(Debug, Default)]
struct Disk {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// So many make their own files durable at this moment.
    alone: usize,
    /// How many common syncs have begun, and the last of them that succeeded.
    begun: u64,
    succeeded: u64,
    is_running: bool,
}

impl Disk {
    fn sync(&self, alone: impl FnOnce() -> io::Result<()>, all: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.lock();
        if state.alone < ALONE_MAX {
            state.alone += 1;
            drop(state);
            let result = alone();
            self.lock().alone -= 1;
            return result;
        }
        // One that begins after this has what we wrote. If it fails, each that waited for it learns that from its own.
        let ours = state.begun + 1;
        while state.is_running {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
            if state.succeeded >= ours {
                return Ok(());
            }
        }
        state.begun += 1;
        state.is_running = true;
        let this = state.begun;
        drop(state);
        let result = all();
        let mut state = self.lock();
        state.is_running = false;
        if result.is_ok() {
            state.succeeded = this;
        }
        self.ended.notify_all();
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// So many at a time make each its own file durable.
const ALONE_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    /// Holds [`ALONE_MAX`] of them until `then` is done.
    fn beside_many(disk: &Disk, then: impl FnOnce()) {
        let (begin, end) = (Barrier::new(ALONE_MAX + 1), Barrier::new(ALONE_MAX + 1));
        std::thread::scope(|scope| {
            for _ in 0..ALONE_MAX {
                scope.spawn(|| {
                    let waits = || {
                        begin.wait();
                        end.wait();
                        Ok(())
                    };
                    disk.sync(waits, || unreachable!("there is capacity")).unwrap();
                });
            }
            begin.wait();
            then();
            end.wait();
        });
    }

    /// So many syncs at once: how many called the system, and how many succeeded.
    fn together(disk: &Disk, count: usize, result: impl Fn() -> io::Result<()> + Sync) -> (usize, usize) {
        let (calls, succeeded, arrived) = (AtomicUsize::new(0), AtomicUsize::new(0), Barrier::new(count));
        let one = || {
            arrived.wait();
            let all = || {
                calls.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(100));
                result()
            };
            let is_ok = disk.sync(|| unreachable!("many wait"), all).is_ok();
            succeeded.fetch_add(usize::from(is_ok), Ordering::SeqCst);
        };
        std::thread::scope(|scope| (0..count).for_each(|_| _ = scope.spawn(one)));
        (calls.into_inner(), succeeded.into_inner())
    }

    #[test]
    fn rule_g6_one_sync_serves_all_who_wait() {
        let disk = Disk::default();
        beside_many(&disk, || {
            let (calls, succeeded) = together(&disk, 50, || Ok(()));
            assert!((1..10).contains(&calls) && succeeded == 50, "{calls} syncs for {succeeded} of 50 members");
        });
        assert_eq!(disk.lock().alone, 0);
        disk.sync(|| Ok(()), || unreachable!("nobody else waits")).unwrap();
    }

    #[test]
    fn rule_g6_a_failed_sync_is_nobodys_success() {
        let disk = Disk::default();
        beside_many(&disk, || {
            let failed = together(&disk, 6, || Err(io::Error::other("the disk is full")));
            assert_eq!(failed, (6, 0), "each learns of it by a sync of its own");
        });
    }

    #[test]
    fn files_are_synced_by_either_call() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("file")).unwrap();
        sync(&file).unwrap();
        rustix::fs::syncfs(&file).unwrap();
    }
}
