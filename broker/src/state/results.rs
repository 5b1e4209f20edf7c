//! What a broker remembers of results and of the DKG, for those who ask later. None of it is in the state's
//! root: f + 1 brokers that answer the same are believed.

use std::collections::BTreeMap;

use sealcast_wire::{Malformed, Reader, Writer, limits};

use super::outbox::Results;
use super::outcome::Code;
use super::store::{Changes, Store, StoreError};
use super::{State, table};
use crate::operation::Client;

impl<S: Store> State<S> {
    /// What became of the batch in which a client's operation was executed, and the block; `None` if it was not, or
    /// long ago.
    ///
    /// # Errors
    /// The storage failed.
    pub fn result(&self, client: &Client, number: u64) -> Result<Option<(u64, Results)>, StoreError> {
        let until = table::after(&table::executed(client, u64::MAX));
        let rows = self.store.range(&table::executed(client, number), &until, 1)?;
        let Some((_, row)) = rows.first() else { return Ok(None) };
        let height = table::number(row)?;
        let Some(row) = self.store.get(&table::results(height))? else { return Ok(None) };
        let holds = |it: &Results| it.client == *client && used(it).any(|n| n == number);
        Ok(table::read(&row, from_bytes)?.into_iter().find(holds).map(|it| (height, it)))
    }

    /// Forgets results of blocks below a height, of [`limits::RESULTS_FORGOTTEN_BLOCKS`] of them at most. Only this
    /// broker's answers change, and nothing that other brokers see.
    ///
    /// # Errors
    /// The storage failed.
    pub fn forget_results(&mut self, below: u64) -> Result<(), StoreError> {
        let (from, until) = (table::results(0), table::results(below));
        let mut changes = Changes::new();
        for (key, row) in self.store.range(&from, &until, limits::RESULTS_FORGOTTEN_BLOCKS)? {
            let mut last: BTreeMap<Client, u64> = BTreeMap::new();
            for results in table::read(&row, from_bytes)? {
                if let Some(number) = used(&results).last() {
                    last.insert(results.client, number);
                }
            }
            changes.extend(last.iter().map(|(client, number)| (table::executed(client, *number), None)));
            changes.insert(key, None);
        }
        if changes.is_empty() { Ok(()) } else { self.store.apply(changes) }
    }

    /// All statements of the DKG, in their order: height, broker, word (E8).
    ///
    /// # Errors
    /// The storage failed.
    pub fn words(&self) -> Result<Vec<(u64, u16, Vec<u8>)>, StoreError> {
        let word = |(key, row): (Vec<u8>, Result<Vec<u8>, StoreError>)| {
            let row = row?;
            let height = table::read(&key[1..], |r| Ok((r.u64()?, r.u32()?)))?.0;
            table::read(&row, |r| Ok((height, r.u16()?, r.rest().to_vec())))
        };
        super::rows(&self.store, &[table::WORD]).map(word).collect()
    }
}

/// The numbers that a batch's operations used up. What came twice or too early used none.
pub(super) fn used(results: &Results) -> impl Iterator<Item = u64> {
    let outcomes = (results.first..).zip(&results.outcomes);
    outcomes.filter(|(_, it)| !matches!(it.code, Code::Duplicate | Code::Gap)).map(|(number, _)| number)
}

/// What became of a block's batches; `None` if it had none, or they are forgotten.
pub(super) fn of_block<S: Store>(store: &S, height: u64) -> Result<Option<Vec<Results>>, StoreError> {
    store.get(&table::results(height))?.map(|row| table::read(&row, from_bytes)).transpose()
}

/// `u32 count ‖ results …`
pub(super) fn to_bytes(results: &[Results]) -> Vec<u8> {
    let mut w = Writer::new();
    w.u32(u32::try_from(results.len()).expect("a block's batches have a limit"));
    results.iter().for_each(|it| it.encode(&mut w));
    w.finish()
}

fn from_bytes(r: &mut Reader<'_>) -> Result<Vec<Results>, Malformed> {
    (0..r.u32()?).map(|_| Results::decode(r)).collect()
}
