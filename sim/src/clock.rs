//! A computer's own clock: its zero means nothing, it runs a little fast or slow, and the calendar may
//! be unknown (G5).

use std::time::Duration;

use sealcast_wire::{Monotonic, Now, Utc};

use super::dice::{Chance, Dice};

/// How one computer's time follows from the simulator's.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// What it shows at the simulator's zero.
    zero: Monotonic,
    /// Parts per million that it is too fast.
    drift_ppm: i64,
    /// The calendar at the simulator's zero, if the machine has one.
    utc: Option<Utc>,
}

impl Clock {
    /// A clock that started anywhere within a month, drifts by up to 100 ppm, and in one case of eight
    /// has no calendar; otherwise that is up to a minute wrong.
    pub fn draw(dice: &mut Dice) -> Clock {
        Clock {
            zero: Monotonic(0) + dice.between(Duration::ZERO, MONTH),
            drift_ppm: dice.below(2 * DRIFT_PPM_MAX + 1) as i64 - DRIFT_PPM_MAX as i64,
            utc: (!dice.happens(NO_CALENDAR)).then(|| Utc(UTC_AT_ZERO + dice.below(121) as i64 - 60)),
        }
    }

    /// What the clock shows when the simulator's shows `at`.
    pub fn at(&self, at: Monotonic) -> Now {
        let elapsed = at.micros() as i128;
        let shown = elapsed + elapsed * i128::from(self.drift_ppm) / 1_000_000;
        Now {
            monotonic: Monotonic(self.zero.micros() + shown as u64),
            utc: self.utc.map(|u| Utc(u.0 + (elapsed / 1_000_000) as i64)),
        }
    }

    /// The first moment of the simulator's clock at which this one shows `local` or more.
    pub fn reaches(&self, local: Monotonic) -> Monotonic {
        let shown = i128::from(local.micros().saturating_sub(self.zero.micros()));
        let guess = shown * 1_000_000 / (1_000_000 + i128::from(self.drift_ppm));
        let mut at = Monotonic((guess - 2).max(0) as u64);
        while self.at(at).monotonic < local {
            at.0 += 1;
        }
        at
    }
}

/// The calendar at the simulator's zero: 2026-11-20, the middle of all test certificates' lives.
pub const UTC_AT_ZERO: i64 = 1_795_132_800;
const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
const DRIFT_PPM_MAX: u64 = 100;
const NO_CALENDAR: Chance = Chance(125_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_reaches_a_time_when_it_shows_it_and_not_before() {
        let mut dice = Dice::new(9, 0);
        for _ in 0..500 {
            let clock = Clock::draw(&mut dice);
            let at = Monotonic(dice.below(10_000_000_000));
            let reached = clock.reaches(clock.at(at).monotonic);
            assert!(reached <= at);
            assert_eq!(clock.at(reached).monotonic, clock.at(at).monotonic);
            if reached > Monotonic(0) {
                assert!(clock.at(Monotonic(reached.0 - 1)).monotonic < clock.at(at).monotonic);
            }
        }
    }
}
