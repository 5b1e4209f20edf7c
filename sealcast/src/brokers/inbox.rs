//! What a subscription has got and its reader not yet taken.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sealcast_client::Item;
use sealcast_wire::limits;

use super::Shared;
use crate::error::{Error, Result};
use crate::group::lock;

/// A subscription that stands in the order. Dropping it only ends the reading: it is gone on with by the next
/// [`super::Brokers::subscribe`] to the same, unless [`super::Brokers::unsubscribe`] ends it.
pub struct Subscription {
    inbox: Arc<Inbox>,
    shared: Arc<Shared>,
}

/// Between the engine and a reader.
pub(super) struct Inbox {
    pub(super) id: u64,
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    /// Bytes of them.
    bytes: usize,
    /// The place behind the last item that was taken, and its sn, since the engine last looked.
    taken: Option<(u64, Option<u64>)>,
    closed: Option<Error>,
}

impl State {
    fn is_full(&self) -> bool {
        self.items.len() >= limits::SUBSCRIBER_MESSAGES || self.bytes >= limits::CLIENT_WAITING_BYTES_MAX
    }

    /// Takes the next item, if there is one; and whether there is room again that there was not.
    fn take(&mut self) -> (Option<Item>, bool) {
        let was_full = self.is_full();
        let Some(item) = self.items.pop_front() else { return (None, false) };
        self.bytes -= item.bytes();
        self.taken = Some(item.end());
        (Some(item), was_full && !self.is_full())
    }
}

impl Inbox {
    pub(super) fn new(id: u64) -> Inbox {
        Inbox { id, state: Mutex::default(), ready: Condvar::new() }
    }

    /// Whether the reader must take something before more may come.
    pub(super) fn is_full(&self) -> bool {
        lock(&self.state).is_full()
    }

    /// What the reader has taken since the last call: the place behind it, and the sn of its last publication.
    pub(super) fn taken(&self) -> Option<(u64, Option<u64>)> {
        lock(&self.state).taken.take()
    }

    /// Hands over items at once: who waits is woken once.
    pub(super) fn extend(&self, items: impl Iterator<Item = Item>) {
        let mut state = lock(&self.state);
        for item in items {
            state.bytes += item.bytes();
            state.items.push_back(item);
        }
        drop(state);
        self.ready.notify_one();
    }

    #[cfg(test)]
    pub(super) fn take(&self) -> Option<Item> {
        lock(&self.state).take().0
    }

    #[cfg(test)]
    pub(super) fn closed(&self) -> Option<Error> {
        lock(&self.state).closed.clone()
    }

    pub(super) fn close(&self, why: Error) {
        lock(&self.state).closed.get_or_insert(why);
        self.ready.notify_all();
    }
}

impl Subscription {
    pub(super) fn new(inbox: Arc<Inbox>, shared: Arc<Shared>) -> Subscription {
        Subscription { inbox, shared }
    }

    /// Its number in the order.
    pub fn id(&self) -> u64 {
        self.inbox.id
    }

    /// Waits for the next item; `None` if none came in time.
    ///
    /// # Errors
    /// Why none will come any more.
    pub fn next_timeout(&mut self, patience: Duration) -> Result<Option<Item>> {
        self.shared.process.check()?;
        let until = Instant::now() + patience;
        let mut state = lock(&self.inbox.state);
        loop {
            if let (Some(item), has_room) = state.take() {
                drop(state);
                if has_room {
                    // The driver waits for room; one that is gone needs none.
                    let _ = self.shared.waker.wake();
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
        if !self.shared.process.is_ours() {
            return;
        }
        self.shared.lock().leave(self.inbox.id);
        // What waited for its reader need not wait any more.
        let _ = self.shared.waker.wake();
    }
}
