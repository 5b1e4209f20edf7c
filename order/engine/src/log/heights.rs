//! Which heights are held, as ranges without gaps.

use std::collections::BTreeMap;

use super::segment::Range;

/// Disjoint ranges of heights, both ends included, that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Heights {
    /// Last height by first.
    ranges: BTreeMap<u64, u64>,
}

impl Heights {
    /// Adds the heights `first..=last`.
    pub(super) fn insert(&mut self, (mut first, mut last): Range) {
        // What overlaps or touches it becomes part of it.
        while let Some((begin, end)) = self.ranges.range(..=last.saturating_add(1)).next_back().map(|(b, e)| (*b, *e)) {
            if end.saturating_add(1) < first {
                break;
            }
            (first, last) = (first.min(begin), last.max(end));
            self.ranges.remove(&begin);
        }
        self.ranges.insert(first, last);
    }

    /// Removes all heights below `min`.
    pub(super) fn remove_below(&mut self, min: u64) {
        let kept = self.ranges.split_off(&min);
        let before = std::mem::replace(&mut self.ranges, kept);
        if let Some(last) = before.into_values().next_back().filter(|last| *last >= min) {
            self.ranges.insert(min, last);
        }
    }

    /// Forgets the lowest ranges beyond so many, and returns the height below which nothing is known any more.
    pub(super) fn bound(&mut self, ranges: usize) -> Option<u64> {
        let mut end = None;
        while self.ranges.len() > ranges {
            end = self.ranges.pop_first().map(|(_, last)| last + 1);
        }
        end
    }

    pub(super) fn contains(&self, height: u64) -> bool {
        self.around(height).0.is_some()
    }

    /// The end of the range with `height`, and the beginning of the first range behind it.
    pub(super) fn around(&self, height: u64) -> (Option<u64>, Option<u64>) {
        let end = self.ranges.range(..=height).next_back().map(|(_, end)| *end).filter(|end| height <= *end);
        let behind = height.checked_add(1).and_then(|next| self.ranges.range(next..).next());
        (end, behind.map(|(begin, _)| *begin))
    }

    /// Up to `max` heights from `start` on that are missing before the last range.
    pub(super) fn missing(&self, start: u64, max: usize) -> Vec<u64> {
        let mut missing = Vec::new();
        let mut next = start;
        while missing.len() < max {
            match self.around(next) {
                (Some(end), Some(_)) => next = end + 1,
                (None, Some(begin)) => {
                    let room = max - missing.len();
                    missing.extend((next..begin).take(room));
                    next = begin;
                }
                (_, None) => break,
            }
        }
        missing
    }

    /// The ranges that hold `from` or lie behind it.
    pub(super) fn ranges_from(&self, from: u64) -> impl Iterator<Item = Range> + '_ {
        let first = self.ranges.range(..=from).next_back().filter(|(_, end)| from <= **end).map_or(from, |(b, _)| *b);
        self.ranges.range(first..).map(|(begin, end)| (*begin, *end))
    }

    pub(super) fn last(&self) -> Option<u64> {
        self.ranges.last_key_value().map(|(_, end)| *end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use commonware_storage::rmap::RMap;
    use rand_chacha::ChaCha20Rng;
    use rand_core::{Rng as _, SeedableRng as _};

    use super::*;

    /// Upstream's map, which marshal's archives answer by, is the model.
    #[test]
    fn heights_answer_as_upstreams_map_does() {
        for seed in 0..64 {
            let mut rng = ChaCha20Rng::seed_from_u64(seed);
            let (mut ours, mut model, mut set) = (Heights::default(), RMap::new(), BTreeSet::new());
            for _ in 0..60 {
                let first = rng.next_u64() % 100;
                let last = first + rng.next_u64() % 6;
                if rng.next_u64().is_multiple_of(8) {
                    ours.remove_below(first);
                    if let Some(below) = first.checked_sub(1) {
                        model.remove(0, below);
                    }
                    set.retain(|height| *height >= first);
                } else {
                    ours.insert((first, last));
                    (first..=last).for_each(|height| model.insert(height));
                    set.extend(first..=last);
                }
                let ranges: Vec<Range> = model.iter().map(|(b, e)| (*b, *e)).collect();
                assert_eq!(ours.ranges_from(0).collect::<Vec<_>>(), ranges, "seed {seed}");
                for height in 0..110 {
                    assert_eq!(ours.around(height), model.next_gap(height), "seed {seed}, {height}");
                    assert_eq!(ours.contains(height), set.contains(&height), "seed {seed}, {height}");
                    assert_eq!(ours.missing(height, 7), model.missing_items(height, 7), "seed {seed}, {height}");
                    let from: Vec<Range> = model.iter_from(height).map(|(b, e)| (*b, *e)).collect();
                    assert_eq!(ours.ranges_from(height).collect::<Vec<_>>(), from, "seed {seed}, {height}");
                }
                assert_eq!(ours.last(), model.last_index());
            }
        }
    }

    #[test]
    fn a_bound_forgets_the_lowest_ranges() {
        let mut heights = Heights::default();
        [(0, 3), (5, 5), (7, 9)].into_iter().for_each(|range| heights.insert(range));
        assert_eq!(heights.bound(3), None);
        assert_eq!(heights.bound(1), Some(6));
        assert_eq!(heights.ranges_from(0).collect::<Vec<_>>(), [(7, 9)]);
    }
}
