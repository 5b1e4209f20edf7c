//! Token buckets, of which there are never more than so many.
//!
//! A bucket is the time at which it will be full again (the generic cell rate algorithm): it admits while that is at most
//! [`Rate::burst`] ahead, and each cost moves it on. A full bucket is as good as none, so the one that is full soonest gives way
//! when there are too many: that forgets the least, and what goes follows from the requests alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sealcast_wire::Monotonic;
use sealcast_wire::limits::Rate;

use crate::ids::{AppendKey, GroupId};

/// Who pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Payer {
    /// Everybody who founds a group.
    Founders,
    /// Everybody who reads a group's log and blobs.
    Readers(GroupId),
    /// A key's appends.
    Appends(GroupId, AppendKey),
    /// A key's other requests.
    Others(GroupId, AppendKey),
}

#[derive(Debug)]
pub(super) struct Limiter {
    most: usize,
    full_at: BTreeMap<Payer, Monotonic>,
    by_time: BTreeSet<(Monotonic, Payer)>,
}

impl Limiter {
    pub(super) fn new(most: usize) -> Limiter {
        Limiter { most: most.max(1), full_at: BTreeMap::new(), by_time: BTreeSet::new() }
    }

    /// Whether the payer may do something now; otherwise how long it has to wait.
    pub(super) fn admit(&self, now: Monotonic, payer: Payer, rate: &Rate) -> Result<(), Duration> {
        let ahead = self.full_at.get(&payer).map_or(Duration::ZERO, |at| at.since(now));
        if ahead <= rate.burst { Ok(()) } else { Err(ahead - rate.burst) }
    }

    /// Whether the payer did something that is not paid for yet.
    pub(super) fn owes(&self, now: Monotonic, payer: &Payer) -> bool {
        self.full_at.get(payer).is_some_and(|at| *at > now)
    }

    /// One owes at least as much as another one does.
    pub(super) fn inherit(&mut self, from: &Payer, to: Payer) {
        let Some(full_at) = self.full_at.get(from).copied() else { return };
        self.fill(to, |before| before.max(full_at));
    }

    fn fill(&mut self, payer: Payer, full_at: impl FnOnce(Monotonic) -> Monotonic) {
        let before = self.full_at.get(&payer).copied();
        let full_at = full_at(before.unwrap_or(Monotonic(0)));
        if let Some(before) = before {
            self.by_time.remove(&(before, payer));
        }
        self.full_at.insert(payer, full_at);
        self.by_time.insert((full_at, payer));
        while self.full_at.len() > self.most
            && let Some((_, payer)) = self.by_time.pop_first()
        {
            self.full_at.remove(&payer);
        }
    }

    /// Takes what a request of so many bytes costs: the payer may owe the rest.
    pub(super) fn charge(&mut self, now: Monotonic, payer: Payer, rate: &Rate, bytes: usize) {
        let micros = (bytes as u64).saturating_mul(1_000_000) / rate.bytes_per_second.max(1);
        self.fill(payer, |before| before.max(now) + rate.each + Duration::from_micros(micros));
    }

    pub(super) fn len(&self) -> usize {
        self.full_at.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { burst: Duration::from_secs(2), each: Duration::from_secs(1), bytes_per_second: 1 << 10 };

    fn payer(i: u8) -> Payer {
        Payer::Readers(GroupId([i; 32]))
    }

    #[test]
    fn rule_g7_a_bucket_admits_a_burst_and_then_its_rate() {
        let mut limiter = Limiter::new(8);
        let at = |seconds: u64| Monotonic(seconds * 1_000_000);
        for _ in 0..3 {
            assert_eq!(limiter.admit(at(0), payer(1), &RATE), Ok(()));
            limiter.charge(at(0), payer(1), &RATE, 0);
        }
        assert_eq!(limiter.admit(at(0), payer(1), &RATE), Err(Duration::from_secs(1)));
        assert_eq!(limiter.admit(at(0), payer(2), &RATE), Ok(()), "another one pays for itself");
        assert_eq!(limiter.admit(at(1), payer(1), &RATE), Ok(()));
        limiter.charge(at(1), payer(1), &RATE, 4 << 10);
        assert_eq!(limiter.admit(at(1), payer(1), &RATE), Err(Duration::from_secs(5)), "bytes cost, too");
        assert_eq!(limiter.admit(at(1000), payer(1), &RATE), Ok(()));
    }

    #[test]
    fn rule_g7_of_too_many_buckets_the_fullest_one_goes() {
        let mut limiter = Limiter::new(3);
        let owes = Rate { each: Duration::from_secs(100), ..RATE };
        limiter.charge(Monotonic(0), payer(0), &owes, 0);
        for i in 1..=200 {
            limiter.charge(Monotonic(u64::from(i)), payer(i), &RATE, 0);
            assert!(limiter.len() <= 3 && limiter.by_time.len() == limiter.len());
        }
        assert!(limiter.admit(Monotonic(200), payer(0), &RATE).is_err(), "who owes most is not forgotten");
    }
}
