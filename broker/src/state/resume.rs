//! What a subscription got while its reader was away, found in short steps: between two of them the state may move on.

use sealcast_wire::limits;

use super::entry::Entry;
use super::outbox::Notice;
use super::read::ReadError;
use super::store::Store;
use super::{State, entries};
use crate::operation::Client;

/// What a subscription got since a place, as far as was looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// As a block would have notified it, but judged on the newest state.
    pub notice: Notice,
    /// All operations below this number were looked at; the next query begins here.
    pub until: u64,
    /// What the notice delivers, by sn.
    pub publications: Vec<Entry>,
    /// So many places from the first one that was asked for are no longer kept; the notice begins behind them.
    pub lost: u64,
}

/// A resumption under way. Whoever holds the state for it keeps blocks from being executed, for a step at a time.
#[derive(Debug)]
pub struct Resuming {
    found: Resumed,
    min_height: u64,
    /// Publications that it may still look at, and bytes of entries that it may still take.
    left: (usize, usize),
    begun: bool,
}

impl Resuming {
    /// From `place` on, which is the first that the client lacks, looking at operations from `sn` on, at a broker that has
    /// executed block `min_height`: for a client that comes back. The client says both as it last knew them; the
    /// subscription's own beginning is (0, 0). In all it looks at [`limits::RESUME_ENTRIES_MAX`] publications at most.
    pub fn new(client: Client, subscription: u64, place: u64, sn: u64, min_height: u64) -> Resuming {
        let notice = Notice { client, subscription, first: place, runs: Vec::new() };
        let found = Resumed { notice, until: sn, publications: Vec::new(), lost: 0 };
        let left = (limits::RESUME_ENTRIES_MAX, limits::ANSWER_ENTRIES_BYTES);
        Resuming { found, min_height, left, begun: false }
    }

    /// Looks at the next [`limits::RESUME_STEP_ENTRIES`] publications; whether another step may find more.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn step<S: Store>(&mut self, state: &State<S>) -> Result<bool, ReadError> {
        state.reached(self.min_height)?;
        let Notice { client, subscription, first: place, .. } = self.found.notice;
        let attributes = state.reader(&client)?;
        let id = (client, subscription);
        let active = state.interests.get(&id).ok_or(ReadError::NoSubscription)?;
        if self.found.until < state.low_water_mark.sn {
            // What is pruned between two steps is asked for again.
            if std::mem::replace(&mut self.begun, true) {
                return Ok(false);
            }
            self.found.lost = state.position_at_low_water_mark(&id)?.saturating_sub(place);
            self.found.notice.first += self.found.lost;
        }
        self.begun = true;
        let from = self.found.until.max(active.since).max(state.low_water_mark.sn);
        let limit = self.left.0.min(limits::RESUME_STEP_ENTRIES);
        let mut next = state.head.next_sn;
        for (n, row) in (1..=limit).zip(entries::from(&state.store, from)) {
            let row = row?;
            let entry = entries::read(&row)?;
            let sn = entry.sn;
            if n == limit {
                next = sn + 1;
            }
            self.left.0 -= 1;
            let headers = entry.headers();
            if !active.interest.matches(&headers) {
                continue;
            }
            let releases = state.releases(&entry, &headers, &attributes);
            self.found.notice.push(sn, releases);
            if releases {
                self.found.publications.push(entry);
                match self.left.1.checked_sub(row.len()) {
                    Some(left) => self.left.1 = left,
                    None => {
                        self.found.until = sn + 1;
                        return Ok(false);
                    }
                }
            }
        }
        self.found.until = next;
        Ok(next < state.head.next_sn && self.left.0 > 0)
    }

    /// What was found so far.
    pub fn found(self) -> Resumed {
        self.found
    }
}

impl<S: Store> State<S> {
    /// All steps of a [`Resuming`] at once.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn resume(
        &self,
        client: &Client,
        subscription: u64,
        place: u64,
        sn: u64,
        min_height: u64,
    ) -> Result<Resumed, ReadError> {
        let mut resuming = Resuming::new(*client, subscription, place, sn, min_height);
        while resuming.step(self)? {}
        Ok(resuming.found())
    }
}
