//! The memberships of a group as they change.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_core::Stream;

use super::Shared;
use crate::group::{ViewEvent, lock};
use sealcast_wire::limits;

/// Views from now on, the current one first. Dropping it ends it.
pub struct Views {
    pub(super) shared: Arc<Shared>,
    pub(super) queue: Arc<ViewQueue>,
}

#[derive(Default)]
pub(super) struct ViewQueue {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    events: VecDeque<ViewEvent>,
    closed: bool,
    waker: Option<Waker>,
}

impl ViewQueue {
    pub(super) fn push(&self, event: ViewEvent) {
        let waker = {
            let mut state = lock(&self.state);
            if state.events.len() >= limits::VIEW_EVENTS_MAX {
                state.events.pop_front();
            }
            state.events.push_back(event);
            state.waker.take()
        };
        self.ready.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn close(&self) {
        let waker = {
            let mut state = lock(&self.state);
            state.closed = true;
            state.waker.take()
        };
        self.ready.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Views {
    /// The next event if there is one.
    pub fn try_next(&mut self) -> Option<ViewEvent> {
        lock(&self.queue.state).events.pop_front()
    }

    /// Waits for the next event; `None` if none came in time or none will come.
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<ViewEvent> {
        let deadline = Instant::now().checked_add(timeout);
        if !self.shared.process.is_ours() {
            return self.try_next();
        }
        let mut state = lock(&self.queue.state);
        loop {
            if let Some(event) = state.events.pop_front() {
                return Some(event);
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now())).unwrap_or(FOR_EVER);
            if state.closed || left.is_zero() {
                return None;
            }
            state = self.queue.ready.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Stream for Views {
    type Item = ViewEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ViewEvent>> {
        let mut state = lock(&self.queue.state);
        match state.events.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None if state.closed => Poll::Ready(None),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Views {
    fn drop(&mut self) {
        self.shared.forget_views(&self.queue);
    }
}

const FOR_EVER: Duration = Duration::from_secs(3600);
