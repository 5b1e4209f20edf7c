//! The S-PS index (Chios Fig. 2): from a topic's place to the publication there, one row for each topic of a block.

use std::collections::BTreeMap;

use sealcast_wire::{Malformed, Reader, Writer};

use super::store::{Row, Store, StoreError};
use super::table;
use crate::operation::Header;

/// What one block publishes, by topic.
#[derive(Debug, Default)]
pub(super) struct Runs(BTreeMap<Header, Run>);

/// Publications at consecutive places of one topic.
#[derive(Debug)]
struct Run {
    /// The first one's place.
    first: u64,
    /// Which they are.
    sns: Vec<u64>,
}

impl Runs {
    /// The place that the topic's next publication gets, if the block has one there already.
    pub(super) fn next(&self, header: &Header) -> Option<u64> {
        self.0.get(header).map(Run::end)
    }

    /// Adds the publication at this place; `false` if it is not the next one.
    pub(super) fn push(&mut self, header: &Header, ps: u64, sn: u64) -> bool {
        match self.0.get_mut(header) {
            Some(run) if run.end() != ps => return false,
            Some(run) => run.sns.push(sn),
            None => {
                self.0.insert(header.clone(), Run { first: ps, sns: vec![sn] });
            }
        }
        true
    }

    /// The index's rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row> {
        self.0.iter().map(|(header, run)| (table::index(header, run.end() - 1), run.to_bytes()))
    }

    /// The rows of topics: the place that is next.
    pub(super) fn topics(&self) -> impl Iterator<Item = Row> {
        self.0.iter().map(|(header, run)| (table::topic(header), run.end().to_be_bytes().to_vec()))
    }
}

impl Run {
    fn end(&self) -> u64 {
        self.first + self.sns.len() as u64
    }

    /// `u64 first ‖ u64 sn …`
    fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(8 + 8 * self.sns.len());
        w.u64(self.first);
        self.sns.iter().for_each(|sn| {
            w.u64(*sn);
        });
        w.finish()
    }

    fn decode(r: &mut Reader<'_>) -> Result<Run, Malformed> {
        let first = r.u64()?;
        let sns = (0..r.remaining() / 8).map(|_| r.u64()).collect::<Result<_, _>>()?;
        Ok(Run { first, sns })
    }
}

/// The publications at a topic's places from one on, at most `limit`: their sns. None if that place is not there,
/// because nothing stands there yet or it is no longer kept.
pub(super) fn find(store: &impl Store, header: &Header, from: u64, limit: usize) -> Result<Vec<u64>, StoreError> {
    let until = table::after(&table::index(header, u64::MAX));
    let (mut key, mut found) = (table::index(header, from), Vec::new());
    while found.len() < limit {
        // The row of the first block whose last place there is not below.
        let Some((last, row)) = store.range(&key, &until, 1)?.pop() else { break };
        let run = table::read(&row, Run::decode)?;
        if run.first > from && found.is_empty() {
            break;
        }
        let skip = usize::try_from(from.saturating_sub(run.first)).unwrap_or(usize::MAX);
        found.extend(run.sns.iter().skip(skip).take(limit - found.len()));
        key = [&last[..], &[0]].concat();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::header;
    use crate::state::Memory;

    #[test]
    fn places_are_found_across_blocks_and_topics_do_not_mix() {
        let (a, b) = (header("a"), header("a=1"));
        let mut store = Memory::default();
        for block in [vec![(&a, 0, 5), (&b, 0, 5), (&a, 1, 6)], vec![(&a, 2, 9)], vec![(&b, 1, 12), (&a, 3, 14)]] {
            let mut runs = Runs::default();
            assert!(block.into_iter().all(|(header, ps, sn)| runs.push(header, ps, sn)));
            assert!(!runs.push(&a, 1, 99), "places have no gaps");
            store.apply(runs.rows().map(|(key, row)| (key, Some(row))).collect()).unwrap();
        }
        assert_eq!(find(&store, &a, 0, 9).unwrap(), [5, 6, 9, 14]);
        assert_eq!(find(&store, &a, 1, 2).unwrap(), [6, 9]);
        assert_eq!(find(&store, &b, 1, 9).unwrap(), [12]);
        assert_eq!(find(&store, &a, 4, 1).unwrap(), [0_u64; 0]);
        store.apply([(table::index(&a, 1), None)].into()).unwrap();
        assert_eq!(find(&store, &a, 0, 9).unwrap(), [0_u64; 0], "a place that is gone is no other's");
        assert_eq!(find(&store, &a, 2, 9).unwrap(), [9, 14]);
    }
}
