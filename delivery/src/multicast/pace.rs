//! How fast best effort is sent beside what is reliable.
//!
//! Nobody acknowledges best effort, so what the network does to it is seen by the reliable records that travel with it: while
//! none do, it goes as fast as it comes. Once the network is seen to be full, it gets seven tenths of what it took, and then a
//! little more from time to time, as TCP does (RFC 5681, 3.1). So neither starves the other, and best effort waits for no gap.

use std::time::Duration;

use sealcast_wire::{Monotonic, limits};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Bytes a second; `None`: as fast as it comes.
    rate: Option<u64>,
    /// When it was cut last, and when it grew last.
    cut: Monotonic,
    grew: Monotonic,
    /// Bytes that may leave: less than none where a long message was let in. As of then.
    left: i64,
    at: Monotonic,
    /// Bytes that left in this while and the one before, and since when.
    sent: [u64; 2],
    since: Monotonic,
    /// Whether something waits.
    waits: bool,
}

impl Pace {
    /// Whether something has to wait now; if so, whether nothing did before. It tries again at [`Pace::until`].
    pub(super) fn holds_back(&mut self, now: Monotonic) -> Option<bool> {
        self.refill(now);
        let holds_back = self.rate.is_some() && self.left <= 0;
        holds_back.then(|| !std::mem::replace(&mut self.waits, true))
    }

    /// So many bytes are sent.
    pub(super) fn spend(&mut self, now: Monotonic, bytes: usize) {
        self.refill(now);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.left = if self.rate.is_some() { self.left.saturating_sub(bytes) } else { 0 };
        self.sent[0] = self.sent[0].saturating_add(bytes.unsigned_abs());
    }

    /// So many bytes are to be sent; whether they may be.
    #[cfg(test)]
    pub(super) fn take(&mut self, now: Monotonic, bytes: usize) -> bool {
        let may = self.holds_back(now).is_none();
        if may {
            self.spend(now, bytes);
        }
        may
    }

    /// When something that waits may be sent, if not now; who waits tries again then.
    pub(super) fn until(&mut self, now: Monotonic) -> Option<Monotonic> {
        let until = self.waits_until().filter(|until| *until > now);
        self.waits = until.is_some();
        until
    }

    fn waits_until(&self) -> Option<Monotonic> {
        let rate = self.rate.filter(|_| self.waits)?;
        let owed = u64::try_from(1 - self.left).unwrap_or(0);
        Some(self.at + Duration::from_micros(owed.saturating_mul(1_000_000).div_ceil(rate)))
    }

    /// The network is seen to be full.
    pub(super) fn cut(&mut self, now: Monotonic) {
        if self.rate.is_some() && now.since(self.cut) < CUT_EVERY {
            return;
        }
        self.measure(now);
        let time = MEASURED + now.since(self.since);
        let sent = u128::from(self.sent[0] + self.sent[1]) * 1_000_000 / time.as_micros();
        let sent = u64::try_from(sent).unwrap_or(u64::MAX);
        let rate = (self.rate.map_or(sent, |rate| rate.min(sent.max(rate / 2))) / 10 * 7).max(limits::PACE_MIN);
        // What is sent seldom does not fill a network.
        let is_much = self.rate.is_some() || sent > limits::PACE_MIN;
        self.rate = is_much.then_some(rate);
        (self.cut, self.grew, self.at, self.left) = (now, now, now, self.left.min(0));
    }

    fn refill(&mut self, now: Monotonic) {
        self.measure(now);
        let Some(rate) = self.rate else { return };
        if now.since(self.cut) >= FORGOTTEN {
            (self.rate, self.waits) = (None, false);
            return;
        }
        let steps = now.since(self.grew).as_micros() / GROWS_EVERY.as_micros();
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        if steps > 0 {
            self.grew = now;
            self.rate = Some(rate.saturating_add(steps.saturating_mul(limits::PACE_STEP + rate / 512)));
        }
        let micros = u64::try_from(now.since(self.at).as_micros()).unwrap_or(u64::MAX);
        let more = rate.saturating_mul(micros) / 1_000_000;
        if more > 0 {
            let burst = (rate / BURSTS_PER_SECOND).max(limits::TRAIN_BYTES_MAX as u64);
            self.left = self.left.saturating_add_unsigned(more).min(i64::try_from(burst).unwrap_or(i64::MAX));
            self.at = now;
        }
        self.waits &= self.left <= 0;
    }

    /// Keeps count of what was sent lately.
    fn measure(&mut self, now: Monotonic) {
        let passed = now.since(self.since);
        if passed >= MEASURED {
            self.sent = [0, if passed < 2 * MEASURED { self.sent[0] } else { 0 }];
            self.since = now;
        }
    }
}

/// One loss of many records is seen several times.
const CUT_EVERY: Duration = Duration::from_millis(50);
/// After so long without a loss, others have left the network.
const FORGOTTEN: Duration = Duration::from_secs(10);
/// The rate grows so often.
const GROWS_EVERY: Duration = Duration::from_millis(10);
/// How long what is sent is counted, to know its rate.
const MEASURED: Duration = Duration::from_millis(100);
/// What may leave at once: so much of what may in a second.
const BURSTS_PER_SECOND: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    /// Offers a datagram each 10 µs, 100 MB/s, for so long; how many bytes were taken.
    fn offered(pace: &mut Pace, from: u64, micros: u64) -> u64 {
        (from..from + micros).step_by(10).filter(|at| pace.take(Monotonic(*at), 1_000)).count() as u64 * 1_000
    }

    #[test]
    fn what_nothing_reliable_goes_beside_is_never_held_up() {
        let mut pace = Pace::default();
        assert_eq!(offered(&mut pace, 0, 1_000_000), 100_000_000);
        assert_eq!(pace.until(Monotonic(1_000_000)), None);
    }

    #[test]
    fn best_effort_slows_down_where_the_network_is_full_and_comes_back() {
        let mut pace = Pace::default();
        offered(&mut pace, 0, 1_000_000);
        pace.cut(Monotonic(1_000_000));
        pace.cut(Monotonic(1_000_100));
        let first = offered(&mut pace, 1_000_000, 100_000);
        assert!((6_000_000..8_500_000).contains(&first), "seven tenths of 10 MB, for two words of one loss: {first}");
        // All is lost all the time.
        for at in (1_100_000..3_000_000).step_by(100_000) {
            offered(&mut pace, at, 100_000);
            pace.cut(Monotonic(at + 100_000));
        }
        let least = offered(&mut pace, 3_000_000, 10_000);
        assert!(least < 200_000, "{least}");
        let until = pace.until(Monotonic(3_010_000)).expect("it waits");
        assert!(!pace.take(Monotonic(until.0 - 1_000), 1_000) && pace.take(until, 1_000));
        let (fair, end) = (offered(&mut pace, 4_000_000, 100_000), 4_000_000 + 10_000_000);
        assert!(fair > 2 * least, "it grows: {fair}");
        assert_eq!(offered(&mut pace, end, 100_000), 10_000_000);
    }

    #[test]
    fn what_is_sent_seldom_is_not_slowed_down() {
        let mut pace = Pace::default();
        assert!((0..100).all(|n| {
            pace.cut(Monotonic(n * 100_000));
            pace.take(Monotonic(n * 100_000), 1_000)
        }));
    }
}
