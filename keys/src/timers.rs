//! What a machine waits for: at most one time for each thing.

use std::collections::BTreeMap;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::Rng;
use sealcast_wire::Monotonic;

/// At most one time per timer. The order of timers breaks ties of equal times.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    due: BTreeMap<T, Monotonic>,
    /// The earliest of them: asked for with every datagram, changed seldom.
    next: Option<Monotonic>,
}

impl<T> Default for Timers<T> {
    fn default() -> Timers<T> {
        Timers { due: BTreeMap::new(), next: None }
    }
}

impl<T: Copy + Ord> Timers<T> {
    /// Sets the timer, whatever it was.
    pub(crate) fn set(&mut self, timer: T, at: Monotonic) {
        self.due.insert(timer, at);
        self.changed();
    }

    /// Sets the timer unless it is due earlier already.
    pub(crate) fn sooner(&mut self, timer: T, at: Monotonic) {
        let due = self.due.entry(timer).or_insert(at);
        *due = at.min(*due);
        self.changed();
    }

    pub(crate) fn stop(&mut self, timer: T) {
        self.due.remove(&timer);
        self.changed();
    }

    pub(crate) fn is_set(&self, timer: T) -> bool {
        self.due.contains_key(&timer)
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Monotonic> {
        self.next
    }

    /// Takes the earliest one that is due.
    pub(crate) fn take_due(&mut self, now: Monotonic) -> Option<T> {
        let (timer, _) = self.due.iter().filter(|(_, at)| **at <= now).min_by_key(|(timer, at)| (**at, **timer))?;
        let timer = *timer;
        self.due.remove(&timer);
        self.changed();
        Some(timer)
    }

    fn changed(&mut self) {
        self.next = self.due.values().min().copied();
    }
}

/// A duration drawn evenly from `0..max`.
pub(crate) fn jitter(rng: &mut ChaCha20Rng, max: Duration) -> Duration {
    let micros = u64::try_from(max.as_micros()).unwrap_or(u64::MAX).max(1);
    Duration::from_micros(rng.next_u64() % micros)
}
