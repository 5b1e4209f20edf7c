//! One core for all processes of a measurement: where they share it, no side is woken from another core and no other side is not.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Failure;

/// As long as it lives, this thread and the processes that it starts run on one core.
#[derive(Debug)]
pub struct OneCore(CpuSet);

impl OneCore {
    /// Holds them there. Not on the first of those allowed: there most interrupts are handled.
    ///
    /// # Errors
    /// The system's own.
    pub fn hold() -> Result<OneCore, Failure> {
        let before = sched_getaffinity(None)?;
        let mut only = CpuSet::new();
        (0..CpuSet::MAX_CPU).rfind(|core| before.is_set(*core)).into_iter().for_each(|core| only.set(core));
        sched_setaffinity(None, &only)?;
        Ok(OneCore(before))
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        // What was allowed before is allowed again; if not, the rest is slower and nothing else.
        let _ = sched_setaffinity(None, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_are_started_meanwhile_stay_on_the_core() {
        let before = sched_getaffinity(None).unwrap().count();
        let core = OneCore::hold().unwrap();
        let status = std::process::Command::new("cat").arg("/proc/self/status").output().unwrap().stdout;
        let status = String::from_utf8(status).unwrap();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned();
        assert!(list.parse::<usize>().is_ok(), "one core, not {list}");
        drop(core);
        assert_eq!(sched_getaffinity(None).unwrap().count(), before);
    }
}
