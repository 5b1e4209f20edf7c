//! Views for which a broker may have voted that does not know it any more.

use sealcast_order::engine::VIEWS_REMEMBERED;

use super::peers::Others;

/// A broker that begins at a floor, without its journal of votes. It may have led views behind that floor, and would
/// contradict what it said then: others would keep that as a proof against it, and hear it no more. So its order does not
/// begin before all but f of the others
///
/// - remember no votes for the first views behind the floor, and
/// - have executed what was under way when it asked them first: nobody needs a vote there any more.
///
/// Each block has a view of its own, so that heights can be counted instead.
#[derive(Debug)]
pub struct Forgotten {
    floor: u64,
    until: Option<u64>,
}

impl Forgotten {
    /// Of a broker whose order will begin at this height.
    pub fn new(floor: u64) -> Forgotten {
        Forgotten { floor, until: None }
    }

    /// The block that the others shall have executed; `None` while too few of them answered.
    pub fn until(&self) -> Option<u64> {
        self.until
    }

    /// Whether they have, as they say now. f of them may say anything.
    pub fn is_over(&mut self, others: &impl Others) -> bool {
        let mut heights: Vec<u64> = others.histories().values().map(|it| it.height).collect();
        heights.sort_unstable_by(|a, b| b.cmp(a));
        let faulty = others.faulty();
        // All others but f, counted from the highest.
        let needed = others.genesis().brokers.len().saturating_sub(1 + faulty);
        let Some(lowest) = needed.checked_sub(1).and_then(|last| heights.get(last)) else { return needed == 0 };
        let newest = heights.get(faulty).unwrap_or(lowest);
        let behind_floor = self.floor.saturating_add(VIEWS_REMEMBERED + VIEWS_AT_ONCE);
        let until = self.until.get_or_insert(behind_floor.max(newest.saturating_add(EXECUTED_LATER)));
        *lowest >= *until
    }
}

/// Views behind its floor in which a broker may speak before it hears of later ones: more than leaders propose ahead.
const VIEWS_AT_ONCE: u64 = 8;
/// Blocks for which others vote, and which they have not executed yet: more than the order hands out unacknowledged.
const EXECUTED_LATER: u64 = 40;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io;

    use sealcast_broker::genesis::Genesis;
    use sealcast_broker::protocol::{Answer, History, Question};

    use super::*;
    use crate::fixture::World;
    use crate::sync::Source;

    /// Three others, of whom some answer, with these heights.
    struct Said(World, Vec<u64>);

    impl Others for Said {
        fn genesis(&self) -> &Genesis {
            &self.0.genesis
        }

        fn ask(&self, _: &Question) -> BTreeMap<u16, Answer> {
            let history = |height: &u64| History { height: *height, oldest: 1, snapshot: None };
            (0..).zip(self.1.iter().map(|height| Answer::History(Box::new(history(height))))).collect()
        }

        fn source(&self, _: u16, _: u64) -> io::Result<Source<'_>> {
            Err(io::ErrorKind::NotConnected.into())
        }
    }

    fn is_over(forgotten: &mut Forgotten, heights: &[u64]) -> bool {
        forgotten.is_over(&Said(World::new(), heights.to_vec()))
    }

    #[test]
    fn rule_e4_a_broker_without_its_journal_waits_until_nobody_remembers_its_votes() {
        let mut forgotten = Forgotten::new(128);
        assert!(!is_over(&mut forgotten, &[190, 190, 190]));
        assert!(!is_over(&mut forgotten, &[229, 229, 229]), "it may have voted for what they had not executed then");
        assert!(is_over(&mut forgotten, &[230, 230, 230]));
        // Near the floor the others remember its votes.
        let mut near = Forgotten::new(128);
        assert!(!is_over(&mut near, &[130, 130, 130]));
        assert!(!is_over(&mut near, &[128 + VIEWS_REMEMBERED; 3]));
        assert!(is_over(&mut near, &[128 + VIEWS_REMEMBERED + VIEWS_AT_ONCE; 3]));
    }

    #[test]
    fn rule_e4_a_liar_neither_shortens_that_nor_keeps_it_waiting() {
        for lie in [0, u64::MAX] {
            let mut forgotten = Forgotten::new(128);
            assert!(!is_over(&mut forgotten, &[190, 190, lie]));
            assert_eq!(forgotten.until(), Some(230), "as honest ones say");
            assert!(!is_over(&mut forgotten, &[229, 229, lie]));
            assert!(is_over(&mut forgotten, &[230, 230, lie]));
        }
        // f may be silent, and no more: one that answers may be the liar.
        let mut forgotten = Forgotten::new(128);
        assert!(!is_over(&mut forgotten, &[]) && !is_over(&mut forgotten, &[u64::MAX]));
        assert_eq!(forgotten.until(), None);
        assert!(!is_over(&mut forgotten, &[u64::MAX, 190]));
        assert!(is_over(&mut forgotten, &[u64::MAX, 230]));
    }
}
