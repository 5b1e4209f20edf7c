//! Batches on their way to one checker: accounts take turns, and each account's batches keep their order.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use sealcast_broker::operation::Head;
use sealcast_order::{Batch, Origin};
use sealcast_wire::limits;

use super::fair::Fair;
use super::mempool::Account;

/// A batch that has room and is not checked yet. How many there may be is the mempool's affair.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) batch: Batch,
    pub(super) head: Head,
    pub(super) origin: Origin,
}

#[derive(Debug, Default)]
pub(super) struct VerificationShard {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: Fair<Arrived>,
    /// Nanoseconds that each byte of the last batches took: a signature of many plain bytes is cheap, ciphertexts are dear.
    costs: VecDeque<f64>,
    open: bool,
    end: bool,
}

impl VerificationShard {
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
            state.queue.push(account, arrived.batch.bytes().len(), arrived);
        }
        drop(state);
        self.news.notify_one();
        taken
    }

    /// Up to `most` batches, and no more bytes than are checked soon, once there are some; `None` after the end.
    pub(super) fn next(&self, most: usize) -> Option<Vec<Arrived>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |state: &mut State| !state.end && (!state.open || state.queue.is_empty());
        let mut state = self.news.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        if state.end { None } else { Some(state.take(most)) }
    }

    /// The same, which may be nothing.
    pub(super) fn try_next(&self, most: usize) -> Vec<Arrived> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.open { state.take(most) } else { Vec::new() }
    }

    /// A together of so many bytes took so long to check.
    pub(super) fn took(&self, bytes: usize, time: Duration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.costs.len() >= COSTS {
            state.costs.pop_front();
        }
        state.costs.push_back(time.as_nanos() as f64 / bytes.max(1) as f64);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.news.notify_all();
    }
}

impl State {
    /// The next together. A batch that comes now waits for all of it.
    fn take(&mut self, most: usize) -> Vec<Arrived> {
        let (mut together, mut room) = (Vec::new(), self.bytes());
        while together.len() < most
            && let Some((turn, bytes)) = self.queue.first()
            && (together.is_empty() || bytes <= room)
        {
            room = room.saturating_sub(bytes);
            together.extend(self.queue.remove(turn));
        }
        together
    }

    /// Bytes that are checked soon, by what the last batches took.
    fn bytes(&self) -> usize {
        let dearest = self.costs.iter().copied().fold(f64::NAN, f64::max);
        let bytes = limits::CHECKED_TOGETHER_WITHIN.as_nanos() as f64 / dearest;
        // Nothing is known at the beginning: then it is no number, and becomes 0.
        (bytes as usize).clamp(limits::CHECKED_TOGETHER_BYTES, limits::CHECKED_TOGETHER_BYTES_MAX)
    }
}

/// Batches whose cost is remembered: the dearest of them counts, so that who mixes dear batches with cheap ones gains one.
const COSTS: usize = 16;

#[cfg(test)]
mod tests {
    use sealcast_broker::operation::Client;
    use sealcast_broker::state::Holder;

    use super::*;

    fn arrived(seed: u8, n: u64, bytes: usize) -> Arrived {
        let head = Head { client: Client([seed; 32]), first: n, end: n + 1 };
        Arrived { batch: Batch::new(vec![seed; bytes]), head, origin: Origin::Here }
    }

    fn account(seed: u8) -> Account {
        Account::Holder(Holder::new(("authority".into(), vec![seed])))
    }

    #[test]
    fn rule_g7_what_waits_to_be_checked_takes_turns_and_a_batch_is_short() {
        let shard = VerificationShard::default();
        shard.open();
        (0..500).for_each(|n| assert!(shard.push(&account(2), arrived(2, n, 32 << 10))));
        let first = shard.next(limits::CHECKED_TOGETHER_MAX).expect("there is something");
        assert_eq!(first.len(), 2, "as many bytes as are checked soon");
        shard.push(&account(1), arrived(1, 0, 1000));
        let next = shard.next(limits::CHECKED_TOGETHER_MAX).expect("there is something");
        assert!(next.iter().any(|it| it.head.client == Client([1; 32])), "it does not wait for the others' 500");
        // One client's batches keep their order.
        let all: Vec<u64> = std::iter::from_fn(|| Some(shard.try_next(7)).filter(|it| !it.is_empty()))
            .flatten()
            .map(|it| it.head.first)
            .collect();
        assert!(all.is_sorted() && all.last() == Some(&499));
        shard.end();
        assert!(shard.next(1).is_none() && !shard.push(&account(1), arrived(1, 1, 9)));
    }

    #[test]
    fn more_are_checked_together_where_batches_are_cheap_and_fewer_after_one_dear_batch() {
        let shard = VerificationShard::default();
        shard.open();
        (0..500).for_each(|n| assert!(shard.push(&account(2), arrived(2, n, 32 << 10))));
        let cheap = || (0..COSTS).for_each(|_| shard.took(1 << 20, Duration::from_millis(1)));
        cheap();
        assert_eq!(shard.try_next(limits::CHECKED_TOGETHER_MAX).len(), limits::CHECKED_TOGETHER_BYTES_MAX / (32 << 10));
        shard.took(1 << 20, Duration::from_millis(150));
        assert_eq!(shard.try_next(limits::CHECKED_TOGETHER_MAX).len(), 2);
        cheap();
        assert_eq!(shard.try_next(limits::CHECKED_TOGETHER_MAX).len(), 32);
    }

    #[test]
    fn a_batch_longer_than_what_is_checked_together_goes_alone() {
        let shard = VerificationShard::default();
        shard.open();
        shard.push(&account(1), arrived(1, 0, 2 * limits::CHECKED_TOGETHER_BYTES));
        shard.push(&account(1), arrived(1, 1, 9));
        assert_eq!([shard.try_next(9).len(), shard.try_next(9).len()], [1, 1]);
    }
}
