//! Publications as they lie in the store: a row for some of a block's at a time, keyed by the last one's sn.
//!
//! ```text
//! row = (u32 length ‖ entry) …        one after the other by sn, of one block
//! ```
//! A row of its own for each would cost more than all the rest of executing it.

use sealcast_wire::{Malformed, Reader, Writer};

use super::entry::Entry;
use super::store::{Row, Store, StoreError};
use super::table;

/// A block's publications on their way into rows.
#[derive(Debug, Default)]
pub(super) struct Entries {
    rows: Vec<Row>,
    /// The row that is being filled, how many it has, and the last one's sn.
    open: Writer,
    count: usize,
    last: u64,
}

impl Entries {
    /// Adds the next publication, which has these bytes.
    pub(super) fn push(&mut self, sn: u64, entry: &[u8]) {
        self.open.u32(u32::try_from(entry.len()).expect("an entry has a limit")).raw(entry);
        (self.count, self.last) = (self.count + 1, sn);
        if self.count == ROW_ENTRIES || self.open.as_slice().len() >= ROW_BYTES {
            self.close();
        }
    }

    /// The rows of all of them.
    pub(super) fn rows(mut self) -> impl Iterator<Item = Row> {
        self.close();
        self.rows.into_iter()
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.count) > 0 {
            self.rows.push((table::entry(self.last), std::mem::take(&mut self.open).finish()));
        }
    }
}

/// The bytes of the publication with this sn; `None` if there is none.
pub(super) fn find(store: &impl Store, sn: u64) -> Result<Option<Vec<u8>>, StoreError> {
    Finder::new(store).find(sn)
}

/// Finds several publications, and those of one row with one look at the store.
pub(super) struct Finder<'a, S> {
    store: &'a S,
    row: Option<Row>,
}

impl<'a, S: Store> Finder<'a, S> {
    pub(super) fn new(store: &'a S) -> Finder<'a, S> {
        Finder { store, row: None }
    }

    /// The bytes of the publication with this sn; `None` if there is none.
    pub(super) fn find(&mut self, sn: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let key = table::entry(sn);
        if !self.row.as_ref().is_some_and(|(last, row)| key <= *last && first(row).is_ok_and(|first| first <= sn)) {
            self.row = self.store.range(&key, &table::after(&[table::ENTRY]), 1)?.pop();
        }
        let Some((_, row)) = &self.row else { return Ok(None) };
        for entry in of(row) {
            let entry = entry?;
            if sn_of(entry)? == sn {
                return Ok(Some(entry.to_vec()));
            }
        }
        Ok(None)
    }
}

/// The bytes of all publications from this sn on, in their order.
pub(super) fn from<S: Store>(store: &S, sn: u64) -> impl Iterator<Item = Result<Vec<u8>, StoreError>> + use<'_, S> {
    let rows = super::rows_from(store, table::entry(sn), &[table::ENTRY], ROWS_READ);
    let entries = rows.flat_map(|(_, row)| match row {
        Ok(row) => of(&row).map(|entry| entry.map(<[u8]>::to_vec)).collect::<Vec<_>>(),
        Err(error) => vec![Err(error)],
    });
    // The first row may begin below.
    entries.skip_while(move |entry| matches!(entry, Ok(entry) if sn_of(entry).is_ok_and(|it| it < sn)))
}

/// The publications of a row.
pub(super) fn of(row: &[u8]) -> impl Iterator<Item = Result<&[u8], StoreError>> {
    let mut r = Reader::new(row);
    std::iter::from_fn(move || {
        (r.remaining() > 0).then(|| {
            let entry = r.u32().and_then(|length| r.take(length as usize));
            if entry.is_err() {
                r = Reader::new(&[]);
            }
            entry.map_err(|Malformed| table::malformed())
        })
    })
}

/// Reads what one of them is.
pub(super) fn read(entry: &[u8]) -> Result<Entry, StoreError> {
    table::read(entry, Entry::decode)
}

/// The sn of the first publication of a row.
fn first(row: &[u8]) -> Result<u64, StoreError> {
    of(row).next().ok_or_else(table::malformed)?.and_then(sn_of)
}

/// An entry begins with its sn.
fn sn_of(entry: &[u8]) -> Result<u64, StoreError> {
    Reader::new(entry).u64().map_err(|Malformed| table::malformed())
}

/// Bytes at which a row is full: about what the store reads from its disk at once.
const ROW_BYTES: usize = 4096;
/// Publications of a row, at most: a bound on what a page of rows holds.
pub(super) const ROW_ENTRIES: usize = 32;
/// Rows read at once by whoever goes through all.
const ROWS_READ: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Memory;

    /// What stands for a publication: its sn and some bytes.
    fn entry(sn: u64, bytes: usize) -> Vec<u8> {
        [&sn.to_be_bytes()[..], &vec![7; bytes]].concat()
    }

    #[test]
    fn publications_are_found_in_rows_of_many_and_of_one() {
        let mut store = Memory::default();
        // Some sns are of operations that publish nothing.
        let sns = |block: u64| (0..100).map(move |n| block * 1000 + 3 * n);
        for block in 0..3 {
            let mut entries = Entries::default();
            sns(block).for_each(|sn| entries.push(sn, &entry(sn, if sn % 7 == 0 { 5000 } else { 100 })));
            let rows: Vec<Row> = entries.rows().collect();
            assert!(rows.len() > 100 / ROW_ENTRIES && rows.len() < 50, "{}", rows.len());
            store.apply(rows.into_iter().map(|(key, row)| (key, Some(row))).collect()).unwrap();
        }
        let all: Vec<u64> = (0..3).flat_map(sns).collect();
        let mut finder = Finder::new(&store);
        for sn in 0..2400 {
            let expected = all.contains(&sn).then_some(sn);
            let found = |bytes: Option<Vec<u8>>| bytes.map(|it| sn_of(&it).unwrap());
            assert_eq!(found(find(&store, sn).unwrap()), expected);
            assert_eq!(found(finder.find(sn).unwrap()), expected);
        }
        for from_sn in [0, 1, 150, 1000, 2297, 2298] {
            let found: Vec<u64> = from(&store, from_sn).map(|it| sn_of(&it.unwrap()).unwrap()).collect();
            assert!(found.into_iter().eq(all.iter().copied().filter(|sn| *sn >= from_sn)));
        }
        assert!(Entries::default().rows().next().is_none());
    }

    #[test]
    fn a_row_that_is_cut_is_an_error_and_not_the_end() {
        let mut entries = Entries::default();
        (0..3).for_each(|sn| entries.push(sn, &entry(sn, 10)));
        let (key, mut row) = entries.rows().next().unwrap();
        row.pop();
        let read: Vec<bool> = of(&row).map(|it| it.is_ok()).collect();
        assert_eq!(read, [true, true, false]);
        let mut store = Memory::default();
        store.apply([(key, Some(row))].into()).unwrap();
        assert!(find(&store, 2).is_err());
    }
}
