//! Views for which a broker may have voted that does not know it any more.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use sealcast_order::consensus::VIEWS_REMEMBERED;

use super::peers::Others;

/// A broker that begins at a floor, without its journal of votes. It would contradict what it said in views that others
/// remember: they would keep that as a proof against it, and hear it no more. So its order does not begin before all but f
/// of the others have come so much further than they were when it asked them first, and than its start, that
///
/// - what was under way then is executed (`EXECUTED_LATER`), and
/// - no votes for it are remembered any more ([`VIEWS_REMEMBERED`]), however an old certificate is come by.
///
/// Each block has a view of its own, so that heights can be counted instead.
#[derive(Debug)]
pub struct Forgotten {
    start_height: u64,
    /// Where each was first, and is now.
    heights: BTreeMap<u16, (u64, u64)>,
    /// How many answered when they were asked last.
    answering: usize,
}

impl Forgotten {
    /// Of a broker whose order will begin at this height.
    pub fn new(start_height: u64) -> Forgotten {
        Forgotten { start_height, heights: BTreeMap::new(), answering: 0 }
    }

    /// How many blocks are still to come at the broker that decides, as the others say; `None` while too few of them answered.
    pub fn blocks_left(&self, others: &impl Others) -> Option<u64> {
        let left =
            |(first, now): &(u64, u64)| self.start_height.max(*first).saturating_add(VIEWS_PASSED).saturating_sub(*now);
        let mut left: Vec<u64> = self.heights.values().map(left).collect();
        left.sort_unstable();
        left.get(needed(others).checked_sub(1)?).copied()
    }

    /// Whether those that count answered when they were asked last: else it may be that only this broker does not hear them.
    pub fn are_heard(&self, others: &impl Others) -> bool {
        self.answering >= needed(others)
    }

    /// Whether none are, now.
    pub fn is_over(&mut self, others: &impl Others) -> bool {
        let histories = others.histories();
        self.answering = histories.len();
        for (broker, history) in histories {
            let (_, now) = self.heights.entry(broker).or_insert((history.height, 0));
            *now = history.height.max(*now);
        }
        self.blocks_left(others) == Some(0)
    }
}

/// All others but f, of whom f more may say anything.
fn needed(others: &impl Others) -> usize {
    others.genesis().brokers.len().saturating_sub(1 + others.faulty())
}

/// What a broker's folder says of its votes, beside the journal in `order`:
///
/// ```text
/// votes-unknown   there was none at a start: it is new, or has lost its folder
/// votes-awaited   so it was when the others had pruned what it lacks, or the journal was damaged: it does not vote yet
/// ```
/// Who removes the second one while it waits has it vote.
pub(crate) struct Votes {
    order: PathBuf,
    unknown: PathBuf,
    pub(crate) awaited: PathBuf,
}

impl Votes {
    pub(crate) fn of(folder: &Path) -> Votes {
        let [order, unknown, awaited] = ["order", "votes-unknown", "votes-awaited"].map(|name| folder.join(name));
        Votes { order, unknown, awaited }
    }

    /// Whether there is a journal, looked for before the order makes one.
    ///
    /// # Errors
    /// The disk.
    pub(crate) fn are_known(&self) -> io::Result<bool> {
        let empty = match fs::read_dir(&self.order) {
            Ok(mut files) => files.next().is_none(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => true,
            Err(e) => return Err(e),
        };
        if empty && !self.are_in_quarantine()? {
            File::create(&self.unknown)?.sync_all()?;
            self.sync()?;
        }
        Ok(!empty)
    }

    /// The order is to begin at a floor of others: unless its votes are known, they are waited for.
    ///
    /// # Errors
    /// The disk.
    pub(crate) fn doubt(&self) -> io::Result<()> {
        match fs::rename(&self.unknown, &self.awaited) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.and_then(|()| self.sync()),
        }
    }

    /// The journal was found damaged: its votes are waited for. To be called before the journal goes.
    ///
    /// # Errors
    /// The disk.
    pub(crate) fn are_lost(&self) -> io::Result<()> {
        File::create(&self.awaited)?.sync_all()?;
        self.sync()
    }

    /// # Errors
    /// The disk.
    pub(crate) fn are_in_quarantine(&self) -> io::Result<bool> {
        fs::exists(&self.awaited)
    }

    /// Nobody remembers them any more.
    ///
    /// # Errors
    /// The disk.
    pub(crate) fn are_over(&self) -> io::Result<()> {
        match fs::remove_file(&self.awaited) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.and_then(|()| self.sync()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        File::open(self.order.parent().expect("it lies in the broker's folder"))?.sync_all()
    }
}

/// Blocks by which the others come further.
const VIEWS_PASSED: u64 = EXECUTED_LATER + VIEWS_REMEMBERED + VIEWS_AT_ONCE;
/// Blocks for which others vote, and which they have not executed yet: more than the order hands out unacknowledged.
const EXECUTED_LATER: u64 = 40;
/// Views in which a broker may speak before it hears of later ones: more than leaders propose ahead.
const VIEWS_AT_ONCE: u64 = 8;

#[cfg(test)]
mod tests {
    use sealcast_broker::genesis::Genesis;
    use sealcast_broker::protocol::{Answer, History, Query};

    use super::*;
    use crate::fixture::{Folder, World};
    use crate::sync::Source;

    /// Three others, of whom some answer, with these heights.
    struct Heights<'a>(World, &'a [Option<u64>]);

    impl Others for Heights<'_> {
        fn genesis(&self) -> &Genesis {
            &self.0.genesis
        }

        fn ask(&self, _: &Query) -> BTreeMap<u16, Answer> {
            let history = |height| History { height, oldest: 1, snapshot: None };
            let answers = (0..).zip(self.1).filter_map(|(broker, height)| Some((broker, (*height)?)));
            answers.map(|(broker, height)| (broker, Answer::History(Box::new(history(height))))).collect()
        }

        fn source(&self, _: u16, _: u64) -> io::Result<Source<'_>> {
            Err(io::ErrorKind::NotConnected.into())
        }
    }

    fn is_over(forgotten: &mut Forgotten, heights: &[u64]) -> bool {
        let heights: Vec<Option<u64>> = heights.iter().copied().map(Some).collect();
        forgotten.is_over(&Heights(World::new(), &heights))
    }

    #[test]
    fn rule_e4_a_broker_without_its_journal_waits_until_nobody_remembers_its_votes() {
        let mut forgotten = Forgotten::new(128);
        assert!(!is_over(&mut forgotten, &[190, 190, 190]));
        assert!(!is_over(&mut forgotten, &[301, 301, 301]), "they remember what they had not executed when it asked");
        assert!(is_over(&mut forgotten, &[302, 302, 190]), "f of them may stand still");
        // One that lags is past it when it is past its start, too: until then it remembers what the others do not.
        let mut lagging = Forgotten::new(128);
        assert!(!is_over(&mut lagging, &[0, 190, 0]));
        assert!(!is_over(&mut lagging, &[239, 190, 239]));
        assert!(is_over(&mut lagging, &[240, 190, 240]));
    }

    #[test]
    fn rule_e4_a_liar_neither_shortens_that_nor_keeps_it_waiting() {
        for lies in [[0, 0], [u64::MAX, u64::MAX], [0, u64::MAX], [u64::MAX, 0]] {
            let mut forgotten = Forgotten::new(128);
            assert!(!is_over(&mut forgotten, &[190, 190, lies[0]]));
            assert!(!is_over(&mut forgotten, &[301, 301, lies[1]]), "{lies:?}");
            assert!(is_over(&mut forgotten, &[302, 302, lies[1]]), "{lies:?}");
        }
        // Whoever answers late shortens nothing for the others.
        let world = || World::new();
        let mut forgotten = Forgotten::new(128);
        assert!(!forgotten.is_over(&Heights(world(), &[Some(0), Some(190), None])));
        assert!(!forgotten.is_over(&Heights(world(), &[Some(u64::MAX), Some(301), Some(301)])));
        assert!(forgotten.is_over(&Heights(world(), &[Some(u64::MAX), Some(302), Some(301)])));
        // f may be silent, and no more: one that answers may be the liar.
        let mut forgotten = Forgotten::new(128);
        assert!(!is_over(&mut forgotten, &[]) && !is_over(&mut forgotten, &[0]));
        assert!(!is_over(&mut forgotten, &[u64::MAX]));
        assert_eq!(forgotten.blocks_left(&Heights(World::new(), &[])), None);
        // Who does not hear the others is not told that they stand still.
        let mut forgotten = Forgotten::new(128);
        assert!(!is_over(&mut forgotten, &[190, 190]) && forgotten.are_heard(&Heights(World::new(), &[])));
        assert!(!is_over(&mut forgotten, &[190]) && !forgotten.are_heard(&Heights(World::new(), &[])));
        // The limit of it: beside a liar, one that lags far behind the others decides. They remember more then.
        let mut forgotten = Forgotten::new(128);
        assert!(!is_over(&mut forgotten, &[150, 5000, 0]));
        assert!(is_over(&mut forgotten, &[262, 5112, u64::MAX]) && !is_over(&mut Forgotten::new(128), &[262, 5000, 0]));
    }

    #[test]
    fn rule_e4_a_broker_that_once_had_no_journal_waits_when_it_begins_at_a_floor() {
        let folder = Folder::new();
        fs::create_dir_all(&folder.0).unwrap();
        let votes = Votes::of(&folder.0);
        // A start from genesis, since nobody answered: it has a journal then, which says nothing of before.
        assert!(!votes.are_known().unwrap() && !votes.are_in_quarantine().unwrap());
        fs::create_dir(&votes.order).unwrap();
        assert!(!votes.are_known().unwrap(), "a start that failed made the folder");
        fs::write(votes.order.join("journal"), "").unwrap();
        assert!(votes.are_known().unwrap());
        votes.doubt().unwrap();
        assert!(votes.are_in_quarantine().unwrap());
        // So it stays, whatever is lost and begun anew, until they are past.
        fs::remove_dir_all(&votes.order).unwrap();
        assert!(!votes.are_known().unwrap());
        votes.are_over().unwrap();
        assert!(!votes.are_in_quarantine().unwrap());
        fs::create_dir(&votes.order).unwrap();
        fs::write(votes.order.join("journal"), "").unwrap();
        votes.doubt().unwrap();
        assert!(votes.are_known().unwrap() && !votes.are_in_quarantine().unwrap(), "its journal has all since");
    }
}
