//! Time is an argument: a monotonic clock for protocols, the calendar for certificates alone (G5).

use std::ops::{Add, Sub};
use std::time::Duration;

/// The time of one step of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Drives every timer and protocol decision.
    pub monotonic: Monotonic,
    /// Judges certificates, tokens and CRLs only; `None` on a machine without a set clock.
    pub utc: Option<Utc>,
}

/// Microseconds on a clock that never goes back; its zero means nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub u64);

/// Seconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Utc(pub i64);

impl Monotonic {
    /// Microseconds since this clock's zero.
    pub fn micros(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Monotonic) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Monotonic {
    type Output = Monotonic;
    fn add(self, d: Duration) -> Monotonic {
        Monotonic(self.0.saturating_add(u64::try_from(d.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Monotonic {
    type Output = Duration;
    fn sub(self, earlier: Monotonic) -> Duration {
        self.since(earlier)
    }
}

/// How long something takes, smoothed as round trips are (RFC 6298 §2: seven parts of what was, one of what is).
#[derive(Clone, Copy, Debug, Default)]
pub struct Took(Duration);

impl Took {
    /// It took so long once more.
    pub fn saw(&mut self, took: Duration) {
        self.0 = if self.0.is_zero() { took } else { (self.0 * 7 + took) / 8 };
    }

    /// How long it takes lately; zero if it never happened.
    pub fn lately(self) -> Duration {
        self.0
    }

    /// How long to wait for it: well over what it takes lately, from `least` to `most`.
    pub fn timeout(self, least: Duration, most: Duration) -> Duration {
        (self.0 * 4).clamp(least, most)
    }
}
