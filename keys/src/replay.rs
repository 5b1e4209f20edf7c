//! The replay window of one sender's packets in one epoch and domain (RFC 6479's idea: a ring of words).

use sealcast_wire::limits::REPLAY_WINDOW_PACKETS;

/// Remembers which of the last [`REPLAY_WINDOW_PACKETS`] counters were seen.
#[derive(Debug)]
pub struct Window {
    /// One more than the highest counter seen; 0: none.
    next: u64,
    /// Bit `c % 64` of word `c / 64 % WORDS` is counter `c`'s.
    words: [u64; WORDS],
}

impl Default for Window {
    fn default() -> Window {
        Window::new()
    }
}

impl Window {
    /// Nothing was seen.
    pub const fn new() -> Window {
        Window { next: 0, words: [0; WORDS] }
    }

    /// Whether the counter is new: neither seen, nor too old to tell.
    pub fn is_new(&self, counter: u64) -> bool {
        if counter >= self.next {
            return true;
        }
        self.next - counter <= SPAN && self.words[word(counter)] & bit(counter) == 0
    }

    /// Marks the counter, whose packet is authentic, as seen; `false` if it was not new.
    pub fn accept(&mut self, counter: u64) -> bool {
        if !self.is_new(counter) {
            return false;
        }
        if counter >= self.next {
            let first = if self.next == 0 { 0 } else { (self.next - 1) / 64 + 1 };
            let last = counter / 64;
            for w in first.max(last.saturating_sub(WORDS as u64 - 1))..=last {
                self.words[(w % WORDS as u64) as usize] = 0;
            }
            self.next = counter.saturating_add(1);
        }
        self.words[word(counter)] |= bit(counter);
        true
    }
}

fn word(counter: u64) -> usize {
    (counter / 64 % WORDS as u64) as usize
}

fn bit(counter: u64) -> u64 {
    1 << (counter % 64)
}

/// One word more than the window needs, so that clearing a new word forgets nothing inside it.
const WORDS: usize = REPLAY_WINDOW_PACKETS / 64 + 1;
const SPAN: u64 = REPLAY_WINDOW_PACKETS as u64;

const _: () = assert!(REPLAY_WINDOW_PACKETS.is_multiple_of(64));

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_seen_or_is_too_old_is_not_new() {
        let mut window = Window::new();
        assert!(window.accept(0) && !window.accept(0));
        assert!(window.accept(SPAN) && window.is_new(1) && !window.is_new(0));
        assert!(window.accept(1 << 40) && !window.is_new(SPAN) && window.accept((1 << 40) - SPAN + 1));
    }

    proptest! {
        #[test]
        fn the_window_agrees_with_a_set(steps in prop::collection::vec((0..300_u64, any::<bool>()), 1..400)) {
            let (mut window, mut seen, mut highest) = (Window::new(), BTreeSet::new(), 0);
            for (step, forward) in steps {
                let jump = if step > 290 { SPAN } else { step };
                let counter = if forward { highest + jump } else { highest.saturating_sub(jump * 20) };
                let fresh = !seen.contains(&counter) && (counter > highest || highest - counter < SPAN);
                prop_assert_eq!(window.accept(counter), fresh);
                seen.insert(counter);
                highest = highest.max(counter);
            }
        }
    }
}
