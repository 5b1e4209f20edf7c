//! When the records that a stream lacks are asked for.
//!
//! ```text
//! records   1 2 3 . 5 6 . . 9 10 . 12        a gap ─▶ wave: due after a wait that spreads the askers
//! waves     └──────────────┘└──────┘         due ─▶ one NAK for all of it that is missing, but what others asked for just now
//!            asked, answer    to be           asked ─▶ due again after the time that answers take, then later and later
//!            is under way     asked
//! ```
//! A wave is a run of numbers whose gaps were seen at about the same time. Each has its own time, so a gap that shows while
//! the answer for earlier ones is under way does not wait for that. How long an answer takes is measured from those that
//! were asked for once (Karn's rule) and smoothed as in RFC 6298, 2. The wait before the first NAK is that of RFC 5740, 5.3, in
//! steps of an answer's time: half as many members ask in each step as in the one after it, so of many that lack the same,
//! few ask before they hear it.

use std::collections::VecDeque;
use std::time::Duration;

use sealcast_wire::{Monotonic, limits};

/// Of one stream.
#[derive(Debug, Default)]
pub(super) struct Waves {
    /// Ascending.
    waves: VecDeque<Wave>,
    /// What others asked for lately, and when; oldest first.
    heard: VecDeque<(Monotonic, Vec<(u64, u64)>)>,
    answers: Answers,
}

#[derive(Debug)]
struct Wave {
    /// Its last number; its first one is behind the wave before.
    to: u64,
    due: Monotonic,
    /// When it was asked for last, here or elsewhere.
    asked: Option<Monotonic>,
    tries: u32,
    /// Whether others asked for all of it the last time that it was due.
    yielded: bool,
}

/// How long it takes from a NAK to its answer.
#[derive(Debug)]
struct Answers {
    smoothed: Duration,
    varies: Duration,
}

impl Waves {
    /// When something is to be asked for.
    pub(super) fn due(&self) -> Option<Monotonic> {
        self.waves.iter().map(|it| it.due).min()
    }

    /// Whether the first missing record was asked for since the stream last went on.
    pub(super) fn was_asked(&self) -> bool {
        self.waves.front().is_some_and(|it| it.tries > 0)
    }

    /// Records up to `to` are missing, as far as they are not here. `chance` is any number, another one for each member, and
    /// `members` are as many as may lack them.
    /// They may yet come within `wait` though they are lost.
    pub(super) fn expect(&mut self, now: Monotonic, to: u64, wait: Duration, (chance, members): (u64, usize)) {
        if self.waves.back().is_some_and(|it| it.to >= to) {
            return;
        }
        let is_full = self.waves.len() >= limits::NAK_WAVES_MAX - 1;
        match self.waves.back_mut() {
            // It is asked for with the one before.
            Some(last) if is_full || last.tries == 0 => last.to = to,
            _ => {
                let due = now + wait + NAK_WAIT + self.spread(chance, members);
                self.waves.push_back(Wave { to, due, asked: None, tries: 0, yielded: false });
            }
        }
    }

    /// What is missing up to `to` comes by itself no more; the same chance as above.
    pub(super) fn end_wait(&mut self, now: Monotonic, to: u64, (chance, members): (u64, usize)) {
        let due = now + NAK_WAIT + self.spread(chance, members);
        let at = self.waves.partition_point(|it| it.to < to);
        for wave in self.waves.iter_mut().take(at).filter(|it| it.tries == 0) {
            wave.due = wave.due.min(due);
        }
        // Of a wave that goes on behind it, this part is asked for by itself.
        if let Some(wave) = self.waves.get_mut(at).filter(|it| it.tries == 0 && it.due > due) {
            if wave.to == to {
                wave.due = due;
            } else if self.waves.len() < limits::NAK_WAVES_MAX {
                self.waves.insert(at, Wave { to, due, asked: None, tries: 0, yielded: false });
            }
        }
    }

    /// There is nothing behind this record.
    pub(super) fn end_at(&mut self, known: u64) {
        while self.waves.len() > 1 && self.waves[self.waves.len() - 2].to >= known {
            self.waves.pop_back();
        }
        if let Some(last) = self.waves.back_mut() {
            last.to = last.to.min(known);
        }
    }

    /// A record came that was missing; `next` is the first one that is.
    pub(super) fn came(&mut self, now: Monotonic, number: u64, next: u64) {
        if let Some(wave) = self.waves.iter().find(|it| it.to >= number)
            && let (1, Some(asked)) = (wave.tries, wave.asked)
        {
            self.answers.take(now.since(asked));
        }
        let has_gone_on = number < next;
        while self.waves.front().is_some_and(|it| it.to < next) {
            self.waves.pop_front();
        }
        // Answers come: those that do not are lost, and not late.
        if let Some(front) = self.waves.front_mut().filter(|_| has_gone_on) {
            front.tries = front.tries.min(1);
        }
        if self.waves.is_empty() {
            self.heard.clear();
        }
    }

    /// Somebody asks for these.
    pub(super) fn heard(&mut self, now: Monotonic, ranges: &[(u64, u64)]) {
        if self.waves.is_empty() {
            return;
        }
        if self.heard.len() >= limits::NAKS_HEARD_MAX {
            self.heard.pop_front();
        }
        self.heard.push_back((now, ranges.to_vec()));
    }

    /// The ranges whose NAK is due, ascending. `missing` lists the gaps between two numbers, both included, as
    /// ranges.
    pub(super) fn take_due(
        &mut self,
        now: Monotonic,
        next: u64,
        mut missing: impl FnMut(u64, u64) -> Vec<(u64, u64)>,
    ) -> Vec<(u64, u64)> {
        let again = self.answers.wait();
        while self.heard.front().is_some_and(|(at, _)| *at + again <= now) {
            self.heard.pop_front();
        }
        let mut asked: Vec<(u64, u64)> = Vec::new();
        let mut from = next;
        for wave in &mut self.waves {
            let first = std::mem::replace(&mut from, (wave.to + 1).max(next));
            if wave.due > now || asked.len() >= limits::NAKED_RANGES_MAX {
                continue;
            }
            let lacked = missing(first, wave.to);
            if lacked.is_empty() {
                wave.tries = DONE;
                continue;
            }
            // Who asks without end, for all there is, keeps others from asking once, and not the next time.
            let unheard = match wave.yielded {
                true => lacked,
                false => self.heard.iter().fold(lacked, |lacked, (_, heard)| without(lacked, heard)),
            };
            wave.yielded = unheard.is_empty();
            asked.extend(unheard);
            // Losses in a row are few, and silence is long.
            let pause = again * (1 << wave.tries.saturating_sub(QUICK_TRIES).min(8));
            (wave.due, wave.asked) = (now + pause.min(NAK_AGAIN_MAX), Some(now));
            wave.tries = (wave.tries + 1).min(DONE - 1);
        }
        // The numbers of a wave that is whole fall to the next one, which looks at what is missing alone.
        self.waves.retain(|it| it.tries != DONE);
        // Neighbours in two waves are one range.
        let mut ranges: Vec<(u64, u64)> = Vec::with_capacity(asked.len());
        for (from, to) in asked {
            match ranges.last_mut().filter(|last| last.1 + 1 == from) {
                Some(last) => last.1 = to,
                None => ranges.push((from, to)),
            }
        }
        ranges.truncate(limits::NAKED_RANGES_MAX);
        ranges
    }

    /// How long a member waits, so that others may ask first.
    fn spread(&self, chance: u64, members: usize) -> Duration {
        let steps = members.max(2).ilog2();
        // Half of all members are in the last step, a quarter in the one before, …
        let early = chance.trailing_ones().min(steps - 1);
        let step = if members <= FEW { self.answers.smoothed / 4 } else { self.answers.smoothed }.min(NAK_STEP_MAX);
        let within = (step.as_nanos() as u64 * (chance >> 32 & 0xFFFF)) >> 16;
        step * (steps - 1 - early) + Duration::from_nanos(within)
    }
}

impl Default for Answers {
    fn default() -> Answers {
        Answers { smoothed: Duration::from_micros(500), varies: Duration::from_micros(500) }
    }
}

impl Answers {
    fn take(&mut self, took: Duration) {
        let took = took.min(NAK_AGAIN_MAX);
        self.varies = (3 * self.varies + self.smoothed.abs_diff(took)) / 4;
        self.smoothed = (7 * self.smoothed + took) / 8;
    }

    /// How long an answer is waited for.
    fn wait(&self) -> Duration {
        (self.smoothed + 4 * self.varies).clamp(NAK_AGAIN_MIN, NAK_AGAIN_MAX)
    }
}

/// What is in the one list and not in the other; both ascend.
fn without(ranges: Vec<(u64, u64)>, others: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut left = Vec::with_capacity(ranges.len());
    for (mut from, to) in ranges {
        let at = others.partition_point(|(_, last)| *last < from);
        for (first, last) in others[at..].iter().take_while(|(first, _)| *first <= to) {
            if from < *first {
                left.push((from, first - 1));
            }
            from = last.saturating_add(1);
        }
        if from <= to {
            left.push((from, to));
        }
    }
    left
}

/// A wave of which all came.
const DONE: u32 = u32::MAX;
/// How long a missing record may be under way before it is asked for.
const NAK_WAIT: Duration = Duration::from_micros(200);
/// A step of the wait before a NAK, where answers take longer.
const NAK_STEP_MAX: Duration = Duration::from_millis(2);
/// Up to so many members, it matters little who asks first: each lacks something else.
const FEW: usize = 8;
/// How long an answer is waited for at least: a sender gives it once in half of that.
const NAK_AGAIN_MIN: Duration = Duration::from_millis(2);
/// How long at most.
const NAK_AGAIN_MAX: Duration = Duration::from_millis(160);
/// How often it is waited for as long as answers take.
const QUICK_TRIES: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000;

    /// All numbers between two are missing.
    fn all(from: u64, to: u64) -> Vec<(u64, u64)> {
        if from <= to { vec![(from, to)] } else { Vec::new() }
    }

    fn asked(waves: &mut Waves, now: u64) -> Vec<(u64, u64)> {
        waves.take_due(Monotonic(now), 1, all)
    }

    #[test]
    fn a_gap_does_not_wait_for_the_answer_to_another_one() {
        let mut waves = Waves::default();
        waves.expect(Monotonic(0), 3, Duration::ZERO, (0, 2));
        assert_eq!(asked(&mut waves, 100), [], "it may be late");
        assert_eq!(asked(&mut waves, MS), [(1, 3)]);
        waves.expect(Monotonic(MS), 5, Duration::ZERO, (0, 2));
        assert_eq!(asked(&mut waves, 2 * MS), [(4, 5)]);
        assert_eq!(asked(&mut waves, 2 * MS), []);
        assert_eq!(asked(&mut waves, 6 * MS), [(1, 5)], "and in the end both are asked for again, at once");
    }

    #[test]
    fn what_others_asked_for_is_not_asked_for_until_their_answer_is_late() {
        let mut waves = Waves::default();
        waves.expect(Monotonic(0), 9, Duration::ZERO, (0, 2));
        waves.heard(Monotonic(300), &[(2, 3), (6, 20)]);
        assert_eq!(asked(&mut waves, MS), [(1, 1), (4, 5)]);
        assert_eq!(asked(&mut waves, 4 * MS), [(1, 9)]);
    }

    /// An insider asks for everything, at this member alone: the sender hears nothing of it.
    #[test]
    fn rule_g8_who_asks_without_end_keeps_nobody_from_asking() {
        let mut waves = Waves::default();
        waves.expect(Monotonic(0), 9, Duration::ZERO, (0, 2));
        let mut times = 0;
        for at in 0..100 {
            waves.heard(Monotonic(at * MS), &[(1, u64::MAX)]);
            times += u32::from(!asked(&mut waves, at * MS).is_empty());
        }
        assert!(times >= 3, "asked {times} times in 100 ms");
    }

    #[test]
    fn answers_are_waited_for_as_long_as_they_take_and_silence_longer_and_longer() {
        let mut waves = Waves::default();
        for n in 0..40 {
            let at = 100 * MS * n;
            waves.expect(Monotonic(at), n + 1, Duration::ZERO, (0, 2));
            assert_eq!(waves.take_due(Monotonic(at + MS), n + 1, all), [(n + 1, n + 1)]);
            waves.came(Monotonic(at + 21 * MS), n + 1, n + 2);
            assert_eq!(waves.due(), None);
        }
        let start = 10_000 * MS;
        waves.expect(Monotonic(start), 99, Duration::ZERO, (0, 2));
        let mut times = Vec::new();
        for at in start / MS..start / MS + 1_000 {
            if !waves.take_due(Monotonic(at * MS), 99, all).is_empty() {
                times.push(at - start / MS);
            }
        }
        let pauses: Vec<u64> = times.windows(2).map(|it| it[1] - it[0]).collect();
        assert!((20..30).contains(&pauses[0]), "{pauses:?}");
        assert!(pauses.iter().rev().take(3).all(|it| *it == 160) && times.len() < 16, "{pauses:?}");
    }

    /// LSGC, weakness 17: all who lacked something asked for it at once.
    #[test]
    fn lsgc_w17_of_many_who_lack_the_same_few_ask_first() {
        let first_step = |members: u64| {
            let waits = (0..members).map(|n| Waves::default().spread(n.wrapping_mul(0x9E37_79B9_7F4A_7C15), 200));
            let waits: Vec<Duration> = waits.collect();
            let first = waits.iter().min().copied().unwrap_or_default();
            waits.iter().filter(|it| **it < first + Duration::from_micros(500)).count()
        };
        assert!((1..=8).contains(&first_step(200)), "{}", first_step(200));
    }

    #[test]
    fn rule_g7_gaps_without_end_make_a_bounded_number_of_waves() {
        let mut waves = Waves::default();
        for n in 0..10_000 {
            waves.expect(Monotonic(n * 10 * MS), 2 * n + 1, Duration::ZERO, (n, 3));
            waves.heard(Monotonic(n * 10 * MS), &[(1, n)]);
            let missing = |from: u64, to: u64| (from..=to).step_by(2).map(|it| (it, it)).collect();
            assert!(waves.take_due(Monotonic(n * 10 * MS + MS), 1, missing).len() <= limits::NAKED_RANGES_MAX);
            assert!(waves.waves.len() <= limits::NAK_WAVES_MAX && waves.heard.len() <= limits::NAKS_HEARD_MAX);
        }
        waves.end_at(7);
        assert_eq!(waves.waves.back().map(|it| it.to), Some(7));
    }
}
