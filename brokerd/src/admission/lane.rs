//! Frames on their way to one checker, in the order in which they came.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

use sealcast_broker::operation::Head;
use sealcast_order::{Frame, Origin};

/// A frame that has room and is not checked yet. How many there may be is the room's affair.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) frame: Frame,
    pub(super) head: Head,
    pub(super) origin: Origin,
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Arrived>,
    open: bool,
    end: bool,
}

impl Lane {
    /// Lets what came leave.
    pub(super) fn open(&self) {
        self.change(|state| state.open = true);
    }

    /// Ends it; what waits in it is dropped.
    pub(super) fn end(&self) {
        self.change(|state| {
            state.end = true;
            state.queue.clear();
        });
    }

    /// Whether it was taken: not after the end.
    pub(super) fn push(&self, arrived: Arrived) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = !state.end;
        if taken {
            state.queue.push_back(arrived);
        }
        drop(state);
        self.news.notify_one();
        taken
    }

    /// Up to `most` of what came, once there is something; `None` after the end.
    pub(super) fn next(&self, most: usize) -> Option<Vec<Arrived>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |state: &mut State| !state.end && (!state.open || state.queue.is_empty());
        let mut state = self.news.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        let count = state.queue.len().min(most);
        if state.end { None } else { Some(state.queue.drain(..count).collect()) }
    }

    /// Up to `most` of what came, which may be nothing.
    pub(super) fn try_next(&self, most: usize) -> Vec<Arrived> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let count = if state.open { state.queue.len().min(most) } else { 0 };
        state.queue.drain(..count).collect()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.news.notify_all();
    }
}
