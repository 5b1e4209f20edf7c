//! Principals that a leader does not let in for a while.
//!
//! The centre gave no key for them, or they kept a change waiting. A member that is silent in one change may come back at once:
//! it was the network, or a busy machine. Each further time makes it wait longer, and a newcomer waits from the first time on.

use std::collections::BTreeMap;
use std::time::Duration;

use sealcast_wire::{CertHash, Monotonic, limits};

#[derive(Debug, Default)]
pub(super) struct Refused(BTreeMap<CertHash, Entry>);

#[derive(Clone, Copy, Debug)]
struct Entry {
    until: Monotonic,
    /// When it was silent last, and how often, with little time between.
    at: Monotonic,
    times: u32,
}

impl Refused {
    /// Whether this principal is not let in now.
    pub(super) fn holds(&self, now: Monotonic, cert: &CertHash) -> bool {
        self.0.get(cert).is_some_and(|it| now < it.until)
    }

    /// The centre gives no key for this principal.
    pub(super) fn no_key(&mut self, now: Monotonic, cert: CertHash) {
        let entry = self.entry(now, cert);
        entry.until = entry.until.max(now + REFUSED_FOR);
    }

    /// This principal did not answer in a change.
    pub(super) fn silent(&mut self, now: Monotonic, cert: CertHash, is_newcomer: bool) {
        let entry = self.entry(now, cert);
        let wait = |doublings: u32| (SILENT * (1 << doublings.min(SILENT_DOUBLINGS))).min(SILENT_MAX);
        let wait = match (is_newcomer, entry.times) {
            (true, times) => wait(times + 1),
            (false, 0) => Duration::ZERO,
            (false, times) => wait(times - 1),
        };
        (entry.times, entry.at, entry.until) = (entry.times + 1, now, entry.until.max(now + wait));
    }

    fn entry(&mut self, now: Monotonic, cert: CertHash) -> &mut Entry {
        self.0.retain(|_, it| now.since(it.at) < FORGOTTEN_AFTER || now < it.until);
        if self.0.len() >= limits::REMEMBERED_PEOPLE_MAX && !self.0.contains_key(&cert) {
            let oldest = self.0.iter().min_by_key(|(_, it)| it.at).map(|(cert, _)| *cert);
            oldest.map(|it| self.0.remove(&it));
        }
        self.0.entry(cert).or_insert(Entry { until: now, at: now, times: 0 })
    }
}

/// The centre's refusal counts for so long.
const REFUSED_FOR: Duration = Duration::from_secs(2);
/// What a member waits that was silent for the second time; each further time doubles it.
const SILENT: Duration = Duration::from_secs(1);
const SILENT_DOUBLINGS: u32 = 8;
const SILENT_MAX: Duration = Duration::from_secs(16);
/// A principal that was not silent for so long begins anew.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_silence_makes_a_member_wait_longer_and_the_first_costs_nothing() {
        let (cert, mut refused) = (CertHash([1; 32]), Refused::default());
        let mut now = Monotonic(0);
        for wait in [0, 1, 2, 4, 8, 16, 16] {
            refused.silent(now, cert, false);
            let end = now + Duration::from_secs(wait);
            assert_eq!((refused.holds(now, &cert), refused.holds(end, &cert)), (wait > 0, false));
            now = end;
        }
        refused.silent(now + FORGOTTEN_AFTER, cert, false);
        assert!(!refused.holds(now + FORGOTTEN_AFTER, &cert));
        let newcomer = CertHash([2; 32]);
        refused.silent(now, newcomer, true);
        assert!(refused.holds(now + Duration::from_millis(1999), &newcomer));
    }

    #[test]
    fn rule_g8_few_are_remembered() {
        let mut refused = Refused::default();
        for n in 0..1000_u16 {
            let mut cert = CertHash([0; 32]);
            cert.0[..2].copy_from_slice(&n.to_be_bytes());
            refused.silent(Monotonic(u64::from(n)), cert, true);
        }
        assert_eq!(refused.0.len(), limits::REMEMBERED_PEOPLE_MAX);
    }
}
