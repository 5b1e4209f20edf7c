//! On which cores the two ends of a measured round trip run.

use std::fmt;

use clap::ValueEnum;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sealcast::code::Code;

use crate::hint::Failure;

/// Where the ends run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Cores {
    /// Both on one core: each runs when the other one waits
    One,
    /// Each on a core of its own: waking the other one is part of the round trip
    Two,
    /// Wherever the scheduler puts them at the moment
    Any,
}

/// The cores of both ends, for threads to be held on.
#[derive(Clone)]
pub(super) struct PinnedCores {
    how: Cores,
    here: usize,
    there: usize,
    before: CpuSet,
}

impl Cores {
    /// Chooses among the cores that this process may use.
    ///
    /// # Errors
    /// There are too few, or the system does not tell.
    pub(super) fn hold(self) -> Result<PinnedCores, Failure> {
        let refused = |e: rustix::io::Errno| Failure::system("choosing cores", &e.into());
        let before = sched_getaffinity(None).map_err(refused)?;
        let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| before.is_set(*core)).collect();
        let (here, there) = chosen(self, &allowed).ok_or_else(|| {
            Failure::new(Code::BadValue, "--cores two: this process may use one core only").hint("--cores one")
        })?;
        let held = PinnedCores { how: self, here, there, before };
        if self != Cores::Any {
            pin(held.here).map_err(refused)?;
        }
        Ok(held)
    }
}

/// The cores of the asking end and of the echo. Not the first: there most interrupts are handled.
fn chosen(how: Cores, allowed: &[usize]) -> Option<(usize, usize)> {
    let last = *allowed.last()?;
    match how {
        Cores::One | Cores::Any => Some((last, last)),
        Cores::Two => Some((last, *allowed.get(allowed.len().checked_sub(2)?)?)),
    }
}

impl PinnedCores {
    /// This thread, and those that it starts from now on, are of the asking end.
    pub(super) fn here(&self) {
        self.hold(self.here);
    }

    /// The same for the echo.
    pub(super) fn there(&self) {
        self.hold(self.there);
    }

    fn hold(&self, core: usize) {
        if self.how != Cores::Any {
            // It was possible a moment ago, when the cores were chosen.
            let _ = pin(core);
        }
    }

    /// This thread runs again where it was allowed to.
    pub(super) fn release(&self) {
        // It was allowed before; if not now, what follows is slower and nothing else.
        let _ = sched_setaffinity(None, &self.before);
    }

    /// Whether the scheduler moves the ends as it likes.
    pub(super) fn is_free(&self) -> bool {
        self.how == Cores::Any
    }

    /// As programs read it.
    pub(super) fn cores(&self) -> &'static str {
        match self.how {
            Cores::One => "one",
            Cores::Two => "two",
            Cores::Any => "any",
        }
    }
}

impl fmt::Display for PinnedCores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.how {
            Cores::One => write!(f, "both ends on core {}", self.here),
            Cores::Two => write!(f, "ends on cores {} and {}", self.here, self.there),
            Cores::Any => f.write_str("ends on any core"),
        }
    }
}

fn pin(core: usize) -> rustix::io::Result<()> {
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_share_a_core_or_have_two_of_those_allowed() {
        assert_eq!(chosen(Cores::One, &[0, 1, 5]), Some((5, 5)));
        assert_eq!(chosen(Cores::Two, &[0, 1, 5]), Some((5, 1)));
        assert_eq!(chosen(Cores::Two, &[3]), None);
        assert_eq!(chosen(Cores::One, &[3]), Some((3, 3)));
    }

    #[test]
    fn threads_stay_where_they_are_held_and_are_released() {
        let before = sched_getaffinity(None).unwrap();
        let held = Cores::One.hold().unwrap();
        let started = std::thread::spawn(|| sched_getaffinity(None).unwrap()).join().unwrap();
        assert!(started.count() == 1 && started.is_set(held.here), "{held}");
        held.release();
        assert_eq!(sched_getaffinity(None).unwrap().count(), before.count());
    }
}
