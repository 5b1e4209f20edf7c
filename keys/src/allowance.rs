//! What one certificate's holder may cost the group, whatever its runs: a new run is as free as a hash.

use std::collections::BTreeMap;
use std::time::Duration;

use sealcast_wire::{CertHash, Monotonic, limits};

/// How often each certificate's holder did something: so often at once, and then once in so much time.
#[derive(Debug)]
pub(crate) struct Allowances {
    at_once: u32,
    every: Duration,
    /// By certificate: when all that it did is made good by time.
    spent_until: BTreeMap<CertHash, Monotonic>,
}

impl Allowances {
    pub(crate) fn new(at_once: u32, every: Duration) -> Allowances {
        Allowances { at_once, every, spent_until: BTreeMap::new() }
    }

    /// When this certificate's holder may do it the next time; `None` if it may now.
    pub(crate) fn next(&self, cert: &CertHash, now: Monotonic) -> Option<Monotonic> {
        let spent = *self.spent_until.get(cert)?;
        let slack = self.every * (self.at_once - 1);
        let ahead = spent.since(now);
        (ahead > slack).then(|| now + (ahead - slack))
    }

    /// It did so.
    pub(crate) fn spend(&mut self, cert: CertHash, now: Monotonic) {
        let spent = self.spent_until.entry(cert).or_insert(now);
        *spent = now.max(*spent) + self.every;
        if self.spent_until.len() > limits::REMEMBERED_PEOPLE_MAX {
            self.spent_until.retain(|_, spent| *spent > now);
            let least = self.spent_until.iter().min_by_key(|(_, spent)| **spent).map(|(cert, _)| *cert);
            if self.spent_until.len() > limits::REMEMBERED_PEOPLE_MAX {
                least.map(|cert| self.spent_until.remove(&cert));
            }
        }
    }

    /// It may not for so long.
    pub(crate) fn defer(&mut self, cert: CertHash, now: Monotonic, time: Duration) {
        let until = now + time + self.every * (self.at_once - 1);
        self.spend(cert, now);
        self.spent_until.entry(cert).and_modify(|spent| *spent = until.max(*spent));
    }

    /// It does so, if it may.
    pub(crate) fn take(&mut self, cert: CertHash, now: Monotonic) -> bool {
        let may = self.next(&cert, now).is_none();
        if may {
            self.spend(cert, now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_g8_a_certificate_may_so_much_at_once_and_then_so_much_in_time() {
        let mut allowances = Allowances::new(4, Duration::from_secs(2));
        let (one, other) = (CertHash([1; 32]), CertHash([2; 32]));
        let taken = |a: &mut Allowances, cert, at| (0..100).filter(|_| a.take(cert, Monotonic(at))).count();
        assert_eq!(taken(&mut allowances, one, 0), 4);
        assert_eq!(allowances.next(&one, Monotonic(0)), Some(Monotonic(2_000_000)));
        assert_eq!(allowances.next(&other, Monotonic(0)), None);
        assert_eq!(taken(&mut allowances, one, 1_999_999), 0);
        assert_eq!(taken(&mut allowances, one, 2_000_000), 1);
        assert_eq!(taken(&mut allowances, one, 600_000_000), 4);
    }

    #[test]
    fn who_is_deferred_may_not_until_then() {
        let mut allowances = Allowances::new(4, Duration::from_secs(2));
        let one = CertHash([1; 32]);
        allowances.defer(one, Monotonic(0), Duration::from_secs(30));
        assert!(!allowances.take(one, Monotonic(29_999_999)));
        assert!(allowances.take(one, Monotonic(30_000_000)) && !allowances.take(one, Monotonic(30_000_000)));
    }

    #[test]
    fn rule_g7_no_more_certificates_are_remembered_than_fit() {
        let mut allowances = Allowances::new(4, Duration::from_secs(2));
        for i in 0..5_000_u32 {
            let mut cert = CertHash([0; 32]);
            cert.0[..4].copy_from_slice(&i.to_be_bytes());
            allowances.spend(cert, Monotonic(u64::from(i)));
        }
        assert!(allowances.spent_until.len() <= limits::REMEMBERED_PEOPLE_MAX);
    }
}
