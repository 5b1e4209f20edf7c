//! Frames on their way to one checker: accounts take turns, and each account's frames keep their order.

use std::sync::{Condvar, Mutex, PoisonError};

use sealcast_broker::operation::Head;
use sealcast_order::{Frame, Origin};
use sealcast_wire::limits;

use super::fair::Fair;
use super::room::Account;

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
    queue: Fair<Arrived>,
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
    pub(super) fn push(&self, account: &Account, arrived: Arrived) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = !state.end;
        if taken {
            state.queue.push(account, arrived.frame.bytes().len(), arrived);
        }
        drop(state);
        self.news.notify_one();
        taken
    }

    /// Up to `most` frames, and no more bytes than are checked soon, once there are some; `None` after the end.
    pub(super) fn next(&self, most: usize) -> Option<Vec<Arrived>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |state: &mut State| !state.end && (!state.open || state.queue.is_empty());
        let mut state = self.news.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        if state.end { None } else { Some(state.batch(most)) }
    }

    /// The same, which may be nothing.
    pub(super) fn try_next(&self, most: usize) -> Vec<Arrived> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.open { state.batch(most) } else { Vec::new() }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.news.notify_all();
    }
}

impl State {
    /// The next batch. A frame that comes now waits for all of it.
    fn batch(&mut self, most: usize) -> Vec<Arrived> {
        let (mut batch, mut room) = (Vec::new(), limits::CHECK_BATCH_BYTES);
        while batch.len() < most
            && let Some((turn, bytes)) = self.queue.first()
            && (batch.is_empty() || bytes <= room)
        {
            room = room.saturating_sub(bytes);
            batch.extend(self.queue.remove(turn));
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use sealcast_broker::operation::Client;
    use sealcast_broker::state::Holder;

    use super::*;

    fn arrived(seed: u8, n: u64, bytes: usize) -> Arrived {
        let head = Head { client: Client([seed; 32]), first: n, end: n + 1 };
        Arrived { frame: Frame::new(vec![seed; bytes]), head, origin: Origin::Here }
    }

    fn account(seed: u8) -> Account {
        Account::Holder(Holder::new(("authority".into(), vec![seed])))
    }

    #[test]
    fn rule_g7_what_waits_to_be_checked_takes_turns_and_a_batch_is_short() {
        let lane = Lane::default();
        lane.open();
        (0..500).for_each(|n| assert!(lane.push(&account(2), arrived(2, n, 32 << 10))));
        let first = lane.next(limits::CHECK_BATCH_FRAMES).expect("there is something");
        assert_eq!(first.len(), 2, "as many bytes as are checked soon");
        lane.push(&account(1), arrived(1, 0, 1000));
        let next = lane.next(limits::CHECK_BATCH_FRAMES).expect("there is something");
        assert!(next.iter().any(|it| it.head.client == Client([1; 32])), "it does not wait for the others' 500");
        // One client's frames keep their order.
        let all: Vec<u64> = std::iter::from_fn(|| Some(lane.try_next(7)).filter(|it| !it.is_empty()))
            .flatten()
            .map(|it| it.head.first)
            .collect();
        assert!(all.is_sorted() && all.last() == Some(&499));
        lane.end();
        assert!(lane.next(1).is_none() && !lane.push(&account(1), arrived(1, 1, 9)));
    }

    #[test]
    fn a_frame_that_is_longer_than_a_batch_goes_alone() {
        let lane = Lane::default();
        lane.open();
        lane.push(&account(1), arrived(1, 0, 2 * limits::CHECK_BATCH_BYTES));
        lane.push(&account(1), arrived(1, 1, 9));
        assert_eq!([lane.try_next(9).len(), lane.try_next(9).len()], [1, 1]);
    }
}
