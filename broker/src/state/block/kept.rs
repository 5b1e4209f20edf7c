//! What publications leave for good: values of the key–value state, and topics. Nothing prunes them, so there is room for
//! so much of all clients, and for so much of those for whom one credential vouches (the first one of each). How much of
//! it is taken lies in rows of the state, so that all brokers, also those who begin with a snapshot, count alike.

use sealcast_wire::limits;

use super::Block;
use crate::state::client::CredentialName;
use crate::state::store::{Store, StoreError};
use crate::state::table::{self, Kept, Value};

/// A value that a publication writes.
pub(super) struct Write {
    /// Of its row.
    pub(super) key: Vec<u8>,
    /// What was there.
    pub(super) before: Option<Value>,
    /// The value.
    pub(super) now: Vec<u8>,
}

impl<S: Store> Block<'_, S> {
    /// Writes a value and counts it to its writer, with so many bytes of each topic that is new; `false`, and no change,
    /// if that has no room.
    pub(super) fn keep(
        &mut self,
        writer: &CredentialName,
        mut write: Option<Write>,
        topics: &[usize],
    ) -> Result<bool, StoreError> {
        if write.is_none() && topics.is_empty() {
            return Ok(true);
        }
        let mut own = self.kept(Some(writer))?;
        let mut all = self.kept(None)?;
        let mut other = None;
        let height = self.outbox.height;
        let row = write.as_mut().map(|it| {
            let value = Value { height, owner: writer.clone(), value: std::mem::take(&mut it.now) };
            value.to_bytes()
        });
        if let (Some(write), Some(row)) = (&write, &row) {
            if let Some(before) = &write.before {
                let (owner, bytes) = (&before.owner, write.key.len() + before.to_bytes().len());
                all.take(bytes);
                if owner == writer {
                    own.take(bytes);
                } else {
                    let mut theirs = self.kept(Some(owner))?;
                    theirs.take(bytes);
                    other = Some((owner.clone(), theirs));
                }
            }
            let bytes = write.key.len() + row.len();
            [&mut own, &mut all].into_iter().for_each(|it| it.add(bytes));
        }
        for bytes in topics {
            [&mut own, &mut all].into_iter().for_each(|it| it.add(*bytes));
        }
        if own.rows > limits::KEPT_ROWS_PER_CREDENTIAL_MAX
            || own.bytes > limits::KEPT_BYTES_PER_CREDENTIAL_MAX
            || all.rows > limits::KEPT_ROWS_MAX
            || all.bytes > limits::KEPT_BYTES_MAX
        {
            return Ok(false);
        }
        if let (Some(write), Some(row)) = (write, row) {
            self.changes.insert(write.key, Some(row));
        }
        let counted = [(Some(writer.clone()), own), (None, all)].into_iter();
        for (of, kept) in counted.chain(other.map(|(owner, kept)| (Some(owner), kept))) {
            self.changes.insert(table::kept(of.as_ref()), (kept != Kept::default()).then(|| kept.to_bytes()));
        }
        Ok(true)
    }

    /// How much those for whom a credential vouches have left, or all.
    fn kept(&self, of: Option<&CredentialName>) -> Result<Kept, StoreError> {
        self.get(&table::kept(of))?.map_or(Ok(Kept::default()), |row| table::read(&row, Kept::decode))
    }
}
