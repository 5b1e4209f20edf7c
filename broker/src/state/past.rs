//! What brokers sign of a block, remembered for as long as the block's publications are kept: so a receipt can be had
//! years later (E1), and a broker without a state knows which snapshot is one.

use sealcast_crypto::merkle::Tree;
use sealcast_wire::{Malformed, Reader, Writer};

use super::outbox::{self, executed};
use super::store::{Store, StoreError};
use super::{Entry, Part, Proof, Results, State, entries, results, table};
use crate::genesis::Cluster;
use crate::operation::Client;

/// A block that was executed, as far as signatures and receipts need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    /// The block.
    pub height: u64,
    /// The state after it.
    pub state_root: [u8; 32],
    /// The roots of its outbox's lists.
    pub roots: [[u8; 32]; 4],
    /// The sn of its first publication; 0 if it has none.
    pub first_sn: u64,
}

impl Past {
    /// What is signed of the block of this height; `None` if it held nothing, or is no longer kept.
    ///
    /// # Errors
    /// The storage failed.
    pub fn of<S: Store>(store: &S, height: u64) -> Result<Option<Past>, StoreError> {
        let row = store.get(&table::past(height))?;
        row.map(|row| table::read(&row, |r| Past::decode(height, r))).transpose()
    }

    /// The publication of this client and number in that block, with the leaves of all publications there: reads and
    /// hashes each of them.
    ///
    /// # Errors
    /// The storage failed.
    pub fn publication<S: Store>(
        &self,
        store: &S,
        client: &Client,
        number: u64,
    ) -> Result<Option<PastPublication>, StoreError> {
        let (mut found, mut leaves) = (None, Vec::new());
        for row in entries::from(store, self.first_sn) {
            let row = row?;
            let entry = entries::read(&row)?;
            if entry.height != self.height {
                break;
            }
            if entry.client == *client && entry.number == number {
                found = Some((leaves.len(), entry));
            }
            leaves.push(Entry::leaf_of(&row));
        }
        Ok(found.map(|(index, entry)| (index, entry, leaves)))
    }

    /// What became of the batch with this operation in that block, with the leaves of all results there; `None` if it is
    /// not there, or forgotten.
    ///
    /// # Errors
    /// The storage failed.
    pub fn result<S: Store>(&self, store: &S, client: &Client, number: u64) -> Result<Option<PastResult>, StoreError> {
        let Some(results) = results::of_block(store, self.height)? else { return Ok(None) };
        let leaves = results.iter().map(Results::leaf).collect();
        let holds =
            |it: &Results| it.client == *client && (it.first..it.first + it.outcomes.len() as u64).contains(&number);
        let found = results.into_iter().enumerate().find(|(_, it)| holds(it));
        Ok(found.map(|(index, results)| (index, results, leaves)))
    }

    /// The outbox root.
    pub fn outbox_root(&self) -> [u8; 32] {
        outbox::root(self.height, &self.roots)
    }

    /// What brokers sign of it (E1).
    pub fn executed(&self, cluster: &Cluster) -> [u8; 32] {
        executed(cluster, self.height, &self.state_root, &self.outbox_root())
    }

    /// That something is at this place of a list which has these leaves; `None` if the list is another one.
    pub fn prove(&self, part: Part, index: usize, leaves: &[[u8; 32]]) -> Option<Proof> {
        if index >= leaves.len() {
            return None;
        }
        let tree = Tree::new(leaves);
        let fits = tree.root() == self.roots[part as usize];
        fits.then(|| Proof { part, index, count: leaves.len(), path: tree.path(index), roots: self.roots })
    }

    /// `state root ‖ root … 4 ‖ u64 first sn`
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut w = Writer::with_capacity(168);
        w.raw(&self.state_root);
        self.roots.iter().for_each(|root| {
            w.raw(root);
        });
        w.u64(self.first_sn);
        w.finish()
    }

    fn decode(height: u64, r: &mut Reader<'_>) -> Result<Past, Malformed> {
        let (state_root, roots) = (r.array()?, [r.array()?, r.array()?, r.array()?, r.array()?]);
        Ok(Past { height, state_root, roots, first_sn: r.u64()? })
    }
}

impl<S: Store> State<S> {
    /// [`Past::of`] this state's store.
    ///
    /// # Errors
    /// The storage failed.
    pub fn past(&self, height: u64) -> Result<Option<Past>, StoreError> {
        Past::of(&self.store, height)
    }
}

/// Its place in the list, what it is, and the list's leaves.
type PastPublication = (usize, Entry, Vec<[u8; 32]>);
/// The same of results.
type PastResult = (usize, Results, Vec<[u8; 32]>);
