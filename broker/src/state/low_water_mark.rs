//! How far back a broker keeps publications: what is below its floor is gone, and answers say so.
//!
//! ```text
//! publications   0 … pruned … │ floor.sn … kept … next_sn
//! blocks         1 … pruned … floor.height │ … kept …
//! ```
//! Places of topics and of subscriptions mean the same for ever (E9): a place below the low-water mark is not kept, and never
//! becomes another's. Where each subscription was at the low-water mark comes from the snapshot of that height.

use std::collections::BTreeMap;

use sealcast_wire::limits;

use super::interests::{Id, Subscription};
use super::store::{Changes, Row, Store, StoreError};
use super::{State, entries, table};
use crate::operation::Header;

/// The oldest that is kept; all of it if both are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LowWaterMark {
    /// Blocks up to this one are not kept.
    pub height: u64,
    /// Publications below this sn are not kept.
    pub sn: u64,
}

impl LowWaterMark {
    /// The low-water mark of what lies in a store.
    ///
    /// # Errors
    /// The storage failed.
    pub fn of(store: &impl Store) -> Result<LowWaterMark, StoreError> {
        match store.get(table::FLOOR)? {
            Some(row) => table::read(&row, |r| Ok(LowWaterMark { height: r.u64()?, sn: r.u64()? })),
            None => Ok(LowWaterMark::default()),
        }
    }

    /// The row in which a floor of this height has a subscription's place, from a row of the snapshot of that height;
    /// `None` if the row is no subscription's.
    ///
    /// # Errors
    /// The row is none.
    pub fn place(height: u64, (key, value): &Row) -> Result<Option<Row>, StoreError> {
        let Some((&table::SUBSCRIPTION, id)) = key.split_first() else { return Ok(None) };
        let subscription = table::read(value, Subscription::decode)?;
        Ok(Some((table::place(height, id), subscription.next.to_be_bytes().to_vec())))
    }

    pub(super) fn row(self) -> Row {
        (table::FLOOR.to_vec(), [self.height.to_be_bytes(), self.sn.to_be_bytes()].concat())
    }

    /// Removes what lies below this floor, which must be the store's, of [`limits::PRUNED_PUBLICATIONS`] publications and
    /// as many other rows at most; whether there may be more.
    ///
    /// # Errors
    /// The storage failed.
    pub fn prune(self, store: &mut impl Store) -> Result<bool, StoreError> {
        let limit = limits::PRUNED_PUBLICATIONS;
        let mut changes = Changes::new();
        // A block goes as a whole, and a row is of one block.
        let rows = store.range(&table::entry(0), &table::entry(self.sn), limit / entries::ROW_ENTRIES)?;
        let mut more = rows.len() == limit / entries::ROW_ENTRIES;
        // Per topic, the last place that goes.
        let mut last: BTreeMap<Header, u64> = BTreeMap::new();
        for (key, row) in rows {
            for entry in entries::of(&row) {
                last.extend(entries::read(entry?)?.places);
            }
            changes.insert(key, None);
        }
        for (header, ps) in last {
            // A row is keyed by its last place: one that goes on behind this page goes with a later one.
            let until = table::after(&table::index(&header, ps));
            let rows = store.range(&table::index(&header, 0), &until, limit + 1)?;
            changes.extend(rows.into_iter().map(|(key, _)| (key, None)));
        }
        for all in [table::past as fn(u64) -> Vec<u8>, table::places] {
            let rows = store.range(&all(0), &all(self.height), limit)?;
            more |= rows.len() == limit;
            changes.extend(rows.into_iter().map(|(key, _)| (key, None)));
        }
        if !changes.is_empty() {
            store.apply(changes)?;
        }
        Ok(more)
    }
}

impl<S: Store> State<S> {
    /// How far back publications are kept.
    pub fn low_water_mark(&self) -> LowWaterMark {
        self.low_water_mark
    }

    /// From now on nothing below this floor is answered; the places of subscriptions at its height are stored already.
    /// Only this broker's answers change, and nothing that other brokers see.
    ///
    /// # Errors
    /// The storage failed.
    pub fn raise_low_water_mark(&mut self, low_water_mark: LowWaterMark) -> Result<(), StoreError> {
        let (key, row) = low_water_mark.row();
        self.store.apply(Changes::from([(key, Some(row))]))?;
        self.low_water_mark = low_water_mark;
        Ok(())
    }

    /// The place that a subscription had next at the low-water mark; 0 if it is younger.
    pub(super) fn position_at_low_water_mark(&self, id: &Id) -> Result<u64, StoreError> {
        let key = table::subscription(&id.0, id.1);
        let row = self.store.get(&table::place(self.low_water_mark.height, &key[1..]))?;
        row.map_or(Ok(0), |row| table::number(&row))
    }
}
