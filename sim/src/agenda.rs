//! What is due when: one queue of a whole run.

use std::collections::BTreeMap;

use sealcast_wire::Monotonic;

/// Things that are to happen; at one instant, in the order in which they were put here.
#[derive(Debug)]
pub struct Agenda<T> {
    due: BTreeMap<(Monotonic, u64), T>,
    next: u64,
}

impl<T> Default for Agenda<T> {
    fn default() -> Agenda<T> {
        Agenda { due: BTreeMap::new(), next: 0 }
    }
}

impl<T> Agenda<T> {
    /// Something is to happen at this moment.
    pub fn push(&mut self, at: Monotonic, what: T) {
        self.due.insert((at, self.next), what);
        self.next += 1;
    }

    /// When the first thing is due.
    pub fn first(&self) -> Option<Monotonic> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// The first thing that is due up to `until`, and when it was.
    pub fn pop(&mut self, until: Monotonic) -> Option<(Monotonic, T)> {
        let entry = self.due.first_entry().filter(|entry| entry.key().0 <= until)?;
        Some((entry.key().0, entry.remove()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_at_one_instant_keeps_its_order() {
        let mut agenda = Agenda::default();
        for (at, what) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b'), (9, 'e')] {
            agenda.push(Monotonic(at), what);
        }
        assert_eq!(agenda.first(), Some(Monotonic(3)));
        let until_5: String = std::iter::from_fn(|| agenda.pop(Monotonic(5))).map(|(_, what)| what).collect();
        assert_eq!((&*until_5, agenda.first()), ("abcd", Some(Monotonic(9))));
    }
}
