//! What a subscription has got and its reader not yet taken.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_core::Stream;
use sealcast_client::{Item, Took};

use crate::error::{Error, Result};
use crate::group::lock;
use crate::session::Driven;

/// A subscription that stands in the order. Dropping it only ends the reading: it is gone on with by the next
/// [`super::Brokers::subscribe`] to the same, unless [`super::Brokers::unsubscribe`] ends it.
pub struct Subscription {
    inbox: Arc<Inbox>,
    driven: Driven,
    /// As a stream: its error was told.
    ended: bool,
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
    /// The task that waits.
    waker: Option<Waker>,
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
            self.tell(|state| state.items.extend(items));
        }
    }

    pub(crate) fn close(&self, why: Error) {
        self.tell(|state| {
            state.closed.get_or_insert(why);
        });
    }

    /// Changes what its reader waits for.
    fn tell(&self, change: impl FnOnce(&mut State)) {
        let waker = {
            let mut state = lock(&self.state);
            change(&mut state);
            state.waker.take()
        };
        self.ready.notify_all();
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Subscription {
    pub(super) fn new(inbox: Arc<Inbox>, driven: Driven) -> Subscription {
        Subscription { inbox, driven, ended: false }
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

    /// The next item, if there is one.
    ///
    /// # Errors
    /// Why none will come any more.
    pub fn try_next(&mut self) -> Result<Option<Item>> {
        self.driven.check()?;
        self.taken(&mut lock(&self.inbox.state)).transpose()
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
            if let Some(next) = self.taken(&mut state) {
                return next.map(Some);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            state = self.inbox.ready.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes the next item, or why none will come.
    fn taken(&self, state: &mut State) -> Option<Result<Item>> {
        let Some((item, is_wanted)) = state.take() else { return state.closed.clone().map(Err) };
        if is_wanted {
            self.driven.wake();
        }
        Some(Ok(item))
    }
}

/// Ends after the error that says why.
impl Stream for Subscription {
    type Item = Result<Item>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Item>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        if let Err(why) = this.driven.check() {
            this.ended = true;
            return Poll::Ready(Some(Err(why)));
        }
        let mut state = lock(&this.inbox.state);
        match this.taken(&mut state) {
            Some(next) => {
                this.ended = next.is_err();
                Poll::Ready(Some(next))
            }
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // In a forked child and after the end there is nothing to leave.
        let _ = self.driven.call(|now, through| through.leave(now, self.inbox.id));
    }
}
