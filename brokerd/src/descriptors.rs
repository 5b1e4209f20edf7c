//! The file descriptors that a broker's process may open.

use std::fs;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the process's soft limit of open files to its hard limit. The order must not run out of files at the soft
/// limit, which is meant for programs that use `select`.
///
/// # Errors
/// The operating system refuses; the limits are as before.
pub fn raise() -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(())
}

/// How many descriptors the process may open: its soft limit; `usize::MAX` if there is none.
pub fn allowed() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Counts the process's open descriptors, at most once a second whoever asks.
#[derive(Debug, Default)]
pub struct Meter(Mutex<Option<(Instant, usize)>>);

impl Meter {
    /// How many are open, as of the last second; 0 where the system does not show them.
    pub fn used(&self) -> usize {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*counted {
            Some((at, used)) if at.elapsed() < COUNTED_EVERY => *used,
            _ => counted.insert((Instant::now(), count())).1,
        }
    }
}

fn count() -> usize {
    match fs::read_dir("/proc/self/fd") {
        // One of them is the folder's own.
        Ok(open) => open.count().saturating_sub(1),
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => allowed(),
        Err(_) => 0,
    }
}

/// How long a count holds: with thousands of descriptors it takes a millisecond.
const COUNTED_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_meter_counts_what_is_open_and_not_for_each_question() {
        let files: Vec<fs::File> = (0..50).map(|_| fs::File::open("/dev/null").expect("it is there")).collect();
        let meter = Meter::default();
        let used = meter.used();
        assert!((files.len()..=allowed()).contains(&used), "{used} of {}", allowed());
        *meter.0.lock().expect("nobody panicked") = Some((Instant::now(), 7));
        assert_eq!(meter.used(), 7, "it was counted just now");
    }
}
