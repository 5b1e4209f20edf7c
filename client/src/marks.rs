//! How far a later run of a group's member need not go back.

use std::collections::VecDeque;

use sealcast_wire::limits;

/// Publications that were handed to the key scheme, in their order: where each stands in its subscription, and its sn.
#[derive(Debug, Default)]
pub(super) struct Marks(VecDeque<Mark>);

/// Subscription, place, sn.
pub(super) type Mark = (u64, u64, u64);

impl Marks {
    /// One more was handed on. Of very many only some are remembered: a run that begins earlier than it must hears some things
    /// once more.
    pub(super) fn note(&mut self, subscription: u64, place: u64, sn: u64) {
        if self.0.back().is_some_and(|last| last.2 >= sn) {
            return;
        }
        if self.0.len() >= limits::MARKS_MAX {
            let mut keep = false;
            self.0.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.0.push_back((subscription, place, sn));
    }

    /// The last one up to an sn; it and those before are forgotten.
    pub(super) fn take_to(&mut self, sn: u64) -> Option<Mark> {
        let count = self.0.partition_point(|mark| mark.2 <= sn);
        self.0.drain(..count).next_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mark_before_an_sn_is_found_also_if_there_were_many() {
        let mut marks = Marks::default();
        assert_eq!(marks.take_to(9), None);
        for sn in 0..3 * limits::MARKS_MAX as u64 {
            marks.note(1, sn / 2, 2 * sn);
        }
        marks.note(1, 0, 5);
        assert!(marks.0.len() <= limits::MARKS_MAX);
        let (_, place, sn) = marks.take_to(2 * limits::MARKS_MAX as u64 + 1).unwrap();
        assert!(sn <= 2 * limits::MARKS_MAX as u64 && sn > limits::MARKS_MAX as u64, "{sn}");
        assert_eq!(place, sn / 4);
        assert!(marks.take_to(sn).is_none());
        assert!(marks.take_to(u64::MAX).is_some() && marks.0.is_empty());
    }
}
