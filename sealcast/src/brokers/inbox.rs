//! What a subscription has got and its reader not yet taken.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sealcast_client::{Item, Took};

use crate::error::{Error, Result};
use crate::group::lock;
use crate::session::Driven;

/// A subscription that stands in the order. Dropping it only ends the reading: it is gone on with by the next
/// [`super::Brokers::subscribe`] to the same, unless [`super::Brokers::unsubscribe`] ends it.
pub struct Subscription {
    inbox: Arc<Inbox>,
    driven: Driven,
}

/// Between the driver and a reader.
pub(crate) struct Inbox {
    id: u64,
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    /// What the reader has taken since the driver last looked.
    took: Option<Took>,
    /// The driver waits for room.
    wanted: bool,
    closed: Option<Error>,
}

impl State {
    /// Takes the next item, if there is one; and whether the driver waits for the room that it leaves.
    fn take(&mut self) -> Option<(Item, bool)> {
        let item = self.items.pop_front()?;
        self.took.get_or_insert_default().add(&item);
        Some((item, std::mem::take(&mut self.wanted)))
    }
}

impl Inbox {
    pub(crate) fn new(id: u64) -> Inbox {
        Inbox { id, state: Mutex::default(), ready: Condvar::new() }
    }

    /// What the reader has taken since the last call.
    pub(crate) fn took(&self) -> Option<Took> {
        lock(&self.state).took.take()
    }

    /// The driver waits for room, unless the reader has taken something that [`Inbox::took`] has not told: whether it has.
    pub(crate) fn wants_capacity(&self) -> bool {
        let mut state = lock(&self.state);
        state.wanted = state.took.is_none();
        !state.wanted
    }

    /// Hands over items at once: their reader is woken once.
    pub(crate) fn extend(&self, items: VecDeque<Item>) {
        if !items.is_empty() {
            lock(&self.state).items.extend(items);
            self.ready.notify_one();
        }
    }

    pub(crate) fn close(&self, why: Error) {
        lock(&self.state).closed.get_or_insert(why);
        self.ready.notify_all();
    }
}

impl Subscription {
    pub(super) fn new(inbox: Arc<Inbox>, driven: Driven) -> Subscription {
        Subscription { inbox, driven }
    }

    /// Why nothing will come any more, though there may be something to read still.
    #[cfg(test)]
    pub(super) fn closed(&self) -> Option<Error> {
        lock(&self.inbox.state).closed.clone()
    }

    /// Its number in the order.
    pub fn id(&self) -> u64 {
        self.inbox.id
    }

    /// Waits for the next item; `None` if none came in time.
    ///
    /// # Errors
    /// Why none will come any more.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Item>> {
        self.driven.check()?;
        let until = Instant::now() + timeout;
        let mut state = lock(&self.inbox.state);
        loop {
            if let Some((item, is_wanted)) = state.take() {
                drop(state);
                if is_wanted {
                    self.driven.wake();
                }
                return Ok(Some(item));
            }
            if let Some(why) = &state.closed {
                return Err(why.clone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            state = self.inbox.ready.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // In a forked child and after the end there is nothing to leave.
        let _ = self.driven.call(|now, through| through.leave(now, self.inbox.id));
    }
}
