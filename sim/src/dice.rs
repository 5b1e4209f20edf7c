//! All chance of a run: seeded, and split by purpose so that one part's throws do not shift another's.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// A seeded source of chance.
#[derive(Clone, Debug)]
pub struct Dice {
    rng: ChaCha8Rng,
}

/// A probability in parts per million: whole numbers, so that every machine throws alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chance(pub u32);

impl Chance {
    /// It never happens.
    pub const NEVER: Chance = Chance(0);

    /// From a fraction between 0 and 1; values outside are taken as the nearest end.
    pub fn of(fraction: f64) -> Chance {
        Chance((fraction.clamp(0.0, 1.0) * 1e6).round() as u32)
    }

    /// As a fraction between 0 and 1.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

impl Dice {
    /// Chance for one purpose (`stream`) of the run with this seed.
    pub fn new(seed: u64, stream: u64) -> Dice {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Dice { rng }
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// A seed for a machine that needs its own generator.
    pub fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        seed
    }

    /// Evenly one of `0..n`.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "nothing to choose from");
        // A bias of n / 2^64 does not matter to a simulation.
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// Evenly one index of a slice or list of `n`.
    pub fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    /// Whether something of this probability happens.
    pub fn happens(&mut self, chance: Chance) -> bool {
        chance.0 > 0 && self.below(1_000_000) < u64::from(chance.0)
    }

    /// Evenly a duration between the two, ends included, in whole microseconds.
    pub fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let (low, high) = (low.as_micros() as u64, high.as_micros() as u64);
        Duration::from_micros(low + self.below(high.saturating_sub(low) + 1))
    }

    /// Brings a list into random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.index(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let draw = |seed, stream| Dice::new(seed, stream).bits();
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        assert_ne!(draw(7, 1), draw(8, 1));
    }

    #[test]
    fn a_chance_happens_about_as_often_as_it_says() {
        let mut dice = Dice::new(1, 0);
        let hits = (0..100_000).filter(|_| dice.happens(Chance::of(0.2))).count();
        assert!((19_000..21_000).contains(&hits), "{hits}");
        assert!(!(0..1000).any(|_| dice.happens(Chance::NEVER)));
    }

    #[test]
    fn a_duration_lies_between_its_ends() {
        let mut dice = Dice::new(2, 0);
        let (low, high) = (Duration::from_micros(5), Duration::from_micros(7));
        let mut seen = [false; 3];
        for _ in 0..200 {
            seen[dice.between(low, high).as_micros() as usize - 5] = true;
        }
        assert_eq!(seen, [true; 3]);
    }
}
