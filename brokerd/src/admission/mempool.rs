//! Batches that wait to be ordered, and all that were checked. Pure.
//!
//! ```text
//! reserve ─▶ being checked ─▶ settle ─▶ ready ─▶ enter ─▶ waiting ─▶ deliver ─▶ on its way ─▶ executed
//!                                                remember (stood in a block) ─▶ stray ─▶ deliver
//! ```
//! A batch is checked once, from clients and from other brokers alike. **Fairness**: an account, with all its clients, may
//! have waiting at most half as many bytes and batches as are still free. So one alone gets a third of the mempool, n of them
//! 1/(n+2) each, and a new account is still admitted; clients for whom nobody vouches share a small part of it. Accounts take
//! turns by bytes ([`Fair`]), in blocks and in what is forwarded: nobody waits longer because another has much waiting.
//! **Turns**: a batch whose predecessors are missing is held back for a while, so that the state need not refuse it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sealcast_broker::operation::{Checked, Client, Head};
use sealcast_broker::state::Holder;
use sealcast_order::{Batch, Block, BlockSize, Hash};
use sealcast_wire::limits;

use super::fair::{Fair, Turn};

/// The mempool.
#[derive(Debug, Default)]
pub(super) struct Mempool {
    held: BTreeMap<Hash, PendingBatch>,
    waiting: Fair<Hash>,
    /// Whose they are, and how many of each.
    authors: BTreeMap<Client, usize>,
    /// Of batches that are being checked, ready or waiting.
    shares: BTreeMap<Account, Share>,
    all: Share,
    /// Those of clients that are not registered.
    unregistered: Share,
    /// Batches of delivered blocks that are not executed yet, by height.
    on_their_way: BTreeMap<u64, Vec<Hash>>,
    on_its_way: BTreeSet<Hash>,
    /// Bytes of their blocks, by height.
    on_their_way_bytes: BTreeMap<u64, usize>,
    /// By arrival.
    strays: BTreeMap<u64, Stray>,
    stray_arrivals: u64,
    stray_bytes: usize,
    /// The last block delivered.
    height: u64,
    /// Whose batch came last, and at which height.
    newest: Option<(Account, u64)>,
    /// The height at which another account's batch came soon after it.
    shared_at: Option<u64>,
}

/// Whose share of the mempool a batch takes: clients are as many as somebody likes, credentials are not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Account {
    /// Of all clients for whom it vouches.
    Holder(Holder),
    /// A client for whom nobody vouches.
    Unregistered(Client),
}

impl Account {
    /// The client's, if that is behind it.
    pub(super) fn of(client: Client, holder: Option<Holder>) -> Account {
        holder.map_or(Account::Unregistered(client), Account::Holder)
    }

    fn is_unregistered(&self) -> bool {
        matches!(self, Account::Unregistered(_))
    }
}

/// How much of the mempool is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    batches: usize,
    bytes: usize,
}

#[derive(Debug)]
struct PendingBatch {
    batch: Batch,
    head: Head,
    account: Account,
    progress: Progress,
}

#[derive(Debug)]
enum Progress {
    Checking,
    Ready(Checked),
    Waiting { checked: Checked, turn: Turn, since: u64 },
    Stray { checked: Checked, arrival: u64 },
}

/// A batch of a proposed block, and the height at which it came.
#[derive(Debug)]
struct Stray {
    hash: Hash,
    since: u64,
}

impl Progress {
    fn checked(&self) -> Option<&Checked> {
        match self {
            Progress::Checking => None,
            Progress::Ready(checked) | Progress::Waiting { checked, .. } | Progress::Stray { checked, .. } => {
                Some(checked)
            }
        }
    }
}

/// Why a batch is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdmissionError {
    /// It waits, or is on its way.
    Known,
    /// Its client has enough waiting.
    Quota,
    /// The mempool is full.
    Full,
}

impl Mempool {
    /// Room for a batch that is about to be checked.
    pub(super) fn reserve(&mut self, batch: &Batch, head: Head, account: Account) -> Result<(), AdmissionError> {
        let hash = batch.hash();
        let stray = match self.held.get(&hash) {
            Some(PendingBatch { progress: Progress::Stray { arrival, .. }, .. }) => Some(*arrival),
            Some(_) => return Err(AdmissionError::Known),
            None if self.on_its_way.contains(&hash) => return Err(AdmissionError::Known),
            None => None,
        };
        let free = Share {
            batches: limits::ORDER_POOL_BATCHES_MAX.saturating_sub(self.all.batches),
            bytes: limits::ORDER_POOL_BYTES_MAX.saturating_sub(self.all.bytes),
        };
        let length = batch.bytes().len();
        if free.batches == 0 || free.bytes < length {
            return Err(AdmissionError::Full);
        }
        let share = self.shares.get(&account).copied().unwrap_or_default();
        let others = self.unregistered;
        if account.is_unregistered()
            && (others.batches >= limits::UNREGISTERED_BATCHES_TOTAL_MAX
                || others.bytes + length > limits::UNREGISTERED_BYTES_TOTAL_MAX)
        {
            return Err(AdmissionError::Full);
        }
        let (batches, bytes) = match account {
            Account::Holder(_) => (free.batches / 2, free.bytes / 2),
            Account::Unregistered(_) => (limits::UNREGISTERED_BATCHES_MAX, limits::UNREGISTERED_BYTES_MAX),
        };
        // One batch always has room, so that the largest is not shut out by what many others have.
        if share.batches > 0 && (share.batches >= batches || share.bytes + length > bytes) {
            return Err(AdmissionError::Quota);
        }
        self.take(&account, length);
        let mut progress = Progress::Checking;
        if let Some(arrival) = stray {
            self.strays.remove(&arrival);
            self.stray_bytes -= length;
            if let Some(PendingBatch { progress: Progress::Stray { checked, .. }, .. }) = self.held.remove(&hash) {
                progress = Progress::Ready(checked);
            }
        }
        self.held.insert(hash, PendingBatch { batch: batch.clone(), head, account, progress });
        Ok(())
    }

    /// The batch, if it was found good.
    pub(super) fn checked(&self, hash: &Hash) -> Option<&Checked> {
        self.held.get(hash)?.progress.checked()
    }

    /// A reserved batch is good, or goes.
    pub(super) fn settle(&mut self, hash: &Hash, checked: Option<Checked>) {
        let Some(held) = self.held.get_mut(hash) else { return };
        match (&held.progress, checked) {
            (Progress::Checking, Some(checked)) => held.progress = Progress::Ready(checked),
            // It was found good in a block meanwhile.
            (Progress::Ready(_) | Progress::Waiting { .. } | Progress::Stray { .. }, _) => {}
            (Progress::Checking, None) => self.forget(hash),
        }
    }

    /// A good batch begins to wait; `false` if it was not settled.
    pub(super) fn enter(&mut self, hash: &Hash) -> bool {
        let since = self.height;
        let Some(held) = self.held.get_mut(hash) else { return false };
        match std::mem::replace(&mut held.progress, Progress::Checking) {
            Progress::Ready(checked) => {
                let before = self.newest.replace((held.account.clone(), since));
                if before.is_some_and(|(account, at)| account != held.account && since <= at + limits::ALONE_BLOCKS) {
                    self.shared_at = Some(since);
                }
                let turn = self.waiting.push(&held.account, held.batch.bytes().len(), *hash);
                held.progress = Progress::Waiting { checked, turn, since };
                *self.authors.entry(held.head.client).or_default() += 1;
                true
            }
            other => {
                held.progress = other;
                false
            }
        }
    }

    /// A batch of a proposed block was found good. It may be in the mempool already.
    pub(super) fn remember(&mut self, batch: &Batch, head: Head, checked: Checked) {
        let hash = batch.hash();
        if let Some(held) = self.held.get_mut(&hash) {
            if matches!(held.progress, Progress::Checking) {
                held.progress = Progress::Ready(checked);
            }
            return;
        }
        let arrival = self.stray_arrivals;
        self.stray_arrivals += 1;
        let progress = Progress::Stray { checked, arrival };
        // Strays take nobody's share.
        let account = Account::Unregistered(head.client);
        self.held.insert(hash, PendingBatch { batch: batch.clone(), head, account, progress });
        self.strays.insert(arrival, Stray { hash, since: self.height });
        self.stray_bytes += batch.bytes().len();
        while self.stray_bytes > limits::STRAY_BATCHES_BYTES_MAX && self.forget_oldest_stray() {}
    }

    /// Whether there was one.
    fn forget_oldest_stray(&mut self) -> bool {
        let Some((_, oldest)) = self.strays.pop_first() else { return false };
        if let Some(held) = self.held.remove(&oldest.hash) {
            self.stray_bytes -= held.batch.bytes().len();
        }
        true
    }

    /// Whether several accounts have published lately.
    pub(super) fn is_shared(&self) -> bool {
        self.shared_at.is_some_and(|height| self.height <= height + limits::ALONE_BLOCKS)
    }

    /// Whose batches wait.
    pub(super) fn authors(&self) -> Vec<Client> {
        self.authors.keys().copied().collect()
    }

    /// Batches that are in none of `ancestors` (the newest first), account by account, as many as a block holds and as
    /// can be executed soon. `turns` says which number a client's next operation has, if the state knows the client; batches of clients
    /// that are not in it came meanwhile and are for the next block.
    pub(super) fn propose(
        &self,
        ancestors: &[Arc<Block>],
        size: BlockSize,
        mut turns: BTreeMap<Client, Option<u64>>,
    ) -> Vec<Batch> {
        let mut taken = BTreeSet::new();
        if self.waiting.is_empty() {
            return Vec::new();
        }
        for batch in ancestors.iter().rev().flat_map(|block| &block.batches) {
            taken.insert(batch.hash());
            let Ok(head) = Head::of(batch.bytes()) else { continue };
            if let Some(Some(turn)) = turns.get(&head.client).copied()
                && (head.first..head.end).contains(&turn)
            {
                turns.insert(head.client, Some(head.end));
            }
        }
        let mut room = size.bytes.min(self.executed_soon(ancestors));
        let (mut accusations, mut proofs) = (limits::BLOCK_ACCUSATIONS_MAX, limits::BLOCK_PROOFS_MAX);
        let mut ciphertexts = limits::BLOCK_CIPHERTEXTS_PROPOSED_MAX;
        let mut proposed: Vec<Batch> = Vec::new();
        for hash in self.waiting.iter().filter(|hash| !taken.contains(*hash)) {
            let Some(PendingBatch { batch, head, progress: Progress::Waiting { checked, since, .. }, .. }) =
                self.held.get(hash)
            else {
                continue;
            };
            let (accuses, proves) = (checked.batch().accusations(), checked.batch().proofs());
            let sealed = checked.batch().ciphertexts();
            let Some(turn) = turns.get(&head.client).copied() else { continue };
            let too_early = turn.is_some_and(|turn| head.first > turn);
            if too_early && self.height < since + limits::TURN_TIMEOUT_BLOCKS {
                continue;
            }
            if accuses > accusations || proves > proofs {
                continue;
            }
            let length = batch.bytes().len();
            let alone = proposed.is_empty() && length > room;
            let checked_soon = sealed <= ciphertexts || proposed.is_empty();
            if proposed.len() == size.batches || (length > room && !alone) || !checked_soon {
                break;
            }
            if turn.is_some_and(|turn| (head.first..head.end).contains(&turn)) {
                turns.insert(head.client, Some(head.end));
            }
            room = room.saturating_sub(length);
            ciphertexts = ciphertexts.saturating_sub(sealed);
            accusations -= accuses;
            proofs -= proves;
            proposed.push(batch.clone());
            if alone {
                break;
            }
        }
        proposed
    }

    /// Bytes that a block on `ancestors` may hold and be executed soon: a batch that is drawn later waits for all of it.
    fn executed_soon(&self, ancestors: &[Arc<Block>]) -> usize {
        let delivered: usize = self.on_their_way_bytes.values().sum();
        let proposed: usize = ancestors.iter().filter(|it| it.height > self.height).map(|it| it.bytes()).sum();
        limits::UNEXECUTED_BYTES_MAX.saturating_sub(delivered + proposed).max(limits::BLOCK_BYTES_ALWAYS)
    }

    /// Batches that wait, account by account, within `size`.
    pub(super) fn oldest(&self, size: BlockSize) -> Vec<Batch> {
        let mut room = size.bytes;
        let fits = |batch: &&Batch| {
            let fits = batch.bytes().len() <= room || room == size.bytes;
            room = room.saturating_sub(batch.bytes().len());
            fits
        };
        let held = self.waiting.iter().filter_map(|hash| self.held.get(hash));
        held.map(|held| &held.batch).take(size.batches).take_while(fits).cloned().collect()
    }

    /// A block is final: its batches wait no more. Gives what is known of each.
    pub(super) fn deliver(&mut self, block: &Block) -> Vec<Option<Checked>> {
        self.height = block.height;
        let hashes: Vec<Hash> = block.batches.iter().map(Batch::hash).collect();
        let known = hashes.iter().map(|hash| self.take_out(hash)).collect();
        self.on_its_way.extend(&hashes);
        self.on_their_way.insert(block.height, hashes);
        self.on_their_way_bytes.insert(block.height, block.bytes());
        // Blocks that failed may come again soon, and not for ever.
        while let Some((_, oldest)) = self.strays.first_key_value()
            && oldest.since + limits::STRAY_BLOCKS_MAX < self.height
        {
            self.forget_oldest_stray();
        }
        known
    }

    /// This block and all below it are executed: their batches may come again, and it is their numbers that then tell. Gives
    /// those batches.
    pub(super) fn executed(&mut self, height: u64) -> Vec<Hash> {
        self.on_their_way_bytes = self.on_their_way_bytes.split_off(&(height + 1));
        let later = self.on_their_way.split_off(&(height + 1));
        let done: Vec<Hash> = std::mem::replace(&mut self.on_their_way, later).into_values().flatten().collect();
        done.iter().for_each(|hash| {
            self.on_its_way.remove(hash);
        });
        done
    }

    /// A good batch that could not begin to wait goes.
    pub(super) fn give_up(&mut self, hash: &Hash) {
        if matches!(self.held.get(hash), Some(PendingBatch { progress: Progress::Ready(_), .. })) {
            self.forget(hash);
        }
    }

    /// Batches that wait to be ordered.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of batches that are being checked or wait.
    pub(super) fn bytes(&self) -> usize {
        self.all.bytes
    }

    fn take_out(&mut self, hash: &Hash) -> Option<Checked> {
        // Who is being checked is settled by then, or has been; the verdict finds nothing and is dropped.
        let held = self.held.remove(hash)?;
        let length = held.batch.bytes().len();
        let checked = match held.progress {
            Progress::Stray { checked, arrival } => {
                self.strays.remove(&arrival);
                self.stray_bytes -= length;
                return Some(checked);
            }
            Progress::Waiting { checked, turn, .. } => {
                self.waiting.remove(turn);
                if let Some(count) = self.authors.get_mut(&held.head.client) {
                    *count -= 1;
                    if *count == 0 {
                        self.authors.remove(&held.head.client);
                    }
                }
                Some(checked)
            }
            Progress::Ready(checked) => Some(checked),
            Progress::Checking => None,
        };
        self.give_back(&held.account, length);
        checked
    }

    fn forget(&mut self, hash: &Hash) {
        if let Some(held) = self.held.remove(hash) {
            self.give_back(&held.account, held.batch.bytes().len());
        }
    }

    fn take(&mut self, account: &Account, bytes: usize) {
        let share = self.shares.entry(account.clone()).or_default();
        let unregistered = account.is_unregistered().then_some(&mut self.unregistered);
        for share in [share, &mut self.all].into_iter().chain(unregistered) {
            share.batches += 1;
            share.bytes += bytes;
        }
    }

    fn give_back(&mut self, account: &Account, bytes: usize) {
        let share = self.shares.get_mut(account).expect("what is given back was taken");
        let unregistered = account.is_unregistered().then_some(&mut self.unregistered);
        for share in [&mut *share, &mut self.all].into_iter().chain(unregistered) {
            share.batches -= 1;
            share.bytes -= bytes;
        }
        if share.batches == 0 {
            self.shares.remove(account);
        }
    }
}

#[cfg(test)]
mod tests;
