//! The clocks of this machine, read into the types that machines take as arguments (G5).

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sealcast_wire::{Monotonic, Now, Utc};

/// A monotonic clock, and the calendar beside it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    /// Microseconds since 1970 at `start`.
    wall_at_start: u64,
}

impl Clock {
    /// A clock whose zero is now.
    pub fn start() -> Clock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { start: Instant::now(), wall_at_start: u64::try_from(wall.as_micros()).unwrap_or(u64::MAX) }
    }

    /// Microseconds since this clock's zero.
    pub fn monotonic(&self) -> Monotonic {
        Monotonic(u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// Both clocks. The calendar is read anew, since it may be set while we run; a calendar before this
    /// program was written counts as none.
    pub fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).ok();
        let utc = wall.and_then(|d| i64::try_from(d.as_secs()).ok()).map(Utc).filter(|utc| *utc > FLOOR);
        Now { monotonic: self.monotonic(), utc }
    }

    /// The calendar in microseconds since 1970, as it was at the start and went on since: for the time
    /// stamps of messages, without a second look at a clock.
    pub fn wall_micros(&self, at: Monotonic) -> u64 {
        self.wall_at_start.saturating_add(at.micros())
    }

    /// How long until a time of this clock; zero if it is over.
    pub fn until(&self, at: Monotonic) -> Duration {
        at.since(self.monotonic())
    }
}

/// 2026-01-01T00:00:00Z, before which no program of this version ran: a date that has surely passed (G5).
pub const FLOOR: Utc = Utc(1_767_225_600);
