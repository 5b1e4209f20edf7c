//! A subscription and its queue: bounded, with a named policy for slow readers.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_core::Stream;
use sealcast_delivery::StateEvent;
use sealcast_wire::Reason;

use super::Shared;
use super::core::{Filter, Reader};
use crate::error::{Error, Result};
use crate::group::{Message, lock};

/// What happens when messages come faster than they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlowReader {
    /// The oldest unread message gives way: the reader sees the newest. With a capacity of 1 that is
    /// 'last one wins'.
    #[default]
    DropOldest,
    /// New messages are dropped: the reader sees an unbroken beginning.
    DropNewest,
    /// The session stops receiving until there is room: the socket's buffer absorbs what it can, and
    /// all other subscriptions of the session wait too.
    Block,
}

/// Messages of the topics that a subscription takes. Dropping it ends the subscription.
pub struct Subscription {
    pub(super) shared: Arc<Shared>,
    pub(super) queue: Arc<Queue>,
}

/// The queue behind a subscription, filled by whoever drives the session.
pub(super) struct Queue {
    pub(super) filter: Filter,
    pub(super) capacity: usize,
    pub(super) when_slow: SlowReader,
    /// Whether its reader keeps a state, and is told what becomes of it.
    pub(super) of_state: bool,
    /// Whether the transport brings its messages by now, or why not.
    pub(super) stands: Mutex<Option<std::result::Result<(), Reason>>>,
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    missed: u64,
    /// Set when the driver waits for room.
    full: bool,
    parked: usize,
    waker: Option<Waker>,
    closed: Option<Error>,
}

/// What became of a message that was pushed.
pub(super) enum Pushed {
    Taken,
    /// Another one, or this one, was dropped.
    Missed,
    /// There is no room, and the reader asked us to wait.
    Refused(Item),
}

/// What a queue holds.
pub(super) enum Item {
    Message(Message),
    /// What becomes of a state, in turn with the messages of its topic.
    State(StateEvent),
}

impl Item {
    fn message(self) -> Option<Message> {
        match self {
            Item::Message(message) => Some(message),
            Item::State(_) => None,
        }
    }
}

impl Queue {
    pub(super) fn new(filter: Filter, capacity: usize, when_slow: SlowReader, of_state: bool) -> Queue {
        let state = State { items: VecDeque::with_capacity(capacity.min(64)), ..State::default() };
        Queue {
            filter,
            capacity,
            when_slow,
            of_state,
            stands: Mutex::default(),
            state: Mutex::new(state),
            ready: Condvar::new(),
        }
    }

    pub(super) fn push(&self, item: Item) -> Pushed {
        let mut state = lock(&self.state);
        if state.closed.is_some() {
            return Pushed::Taken;
        }
        let mut pushed = Pushed::Taken;
        if state.items.len() >= self.capacity {
            match self.when_slow {
                SlowReader::DropOldest => {
                    state.items.pop_front();
                    state.missed += 1;
                    pushed = Pushed::Missed;
                }
                SlowReader::DropNewest => {
                    state.missed += 1;
                    return Pushed::Missed;
                }
                SlowReader::Block => {
                    state.full = true;
                    return Pushed::Refused(item);
                }
            }
        }
        state.items.push_back(item);
        let (waker, parked) = (state.waker.take(), state.parked > 0);
        drop(state);
        if parked {
            self.ready.notify_one();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
        pushed
    }

    /// No more messages will come; those in the queue can still be read.
    pub(super) fn close(&self, why: Error) {
        let waker = {
            let mut state = lock(&self.state);
            state.closed.get_or_insert(why);
            state.waker.take()
        };
        self.ready.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let state = lock(&self.state);
        state.items.is_empty() && state.closed.is_none()
    }

    /// The position in the order of the first one that has one.
    fn first_unread(&self) -> Option<u64> {
        let state = lock(&self.state);
        state.items.iter().find_map(|it| match it {
            Item::Message(it) if it.ordered => Some(it.sequence),
            Item::Message(_) | Item::State(_) => None,
        })
    }

    /// The next one, and whether the driver waits for the room it leaves.
    fn pop(state: &mut State) -> Option<(Item, bool)> {
        let item = state.items.pop_front()?;
        Some((item, std::mem::take(&mut state.full)))
    }
}

impl Reader for Arc<Queue> {
    fn first_unread(&self) -> Option<u64> {
        Queue::first_unread(self)
    }
}

impl Subscription {
    /// The next message if there is one.
    ///
    /// # Errors
    /// Why no more messages will come.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-try-next?keys=plain").wait()?;
    /// let mut poses = session.subscribe("pose/+").wait()?;
    /// assert!(poses.try_next()?.is_none(), "nothing was published");
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn try_next(&mut self) -> Result<Option<Message>> {
        Ok(self.try_next_item()?.and_then(Item::message))
    }

    fn try_next_item(&mut self) -> Result<Option<Item>> {
        let mut state = lock(&self.queue.state);
        match Queue::pop(&mut state) {
            Some((item, full)) => {
                drop(state);
                self.freed(full);
                Ok(Some(item))
            }
            None => match state.closed.clone() {
                Some(why) => Err(why),
                None => self.shared.process.check().map(|()| None),
            },
        }
    }

    /// Waits for the next message; `None` if none came in time.
    ///
    /// # Errors
    /// Why no more messages will come.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-next-timeout?keys=plain").wait()?;
    /// use std::time::Duration;
    ///
    /// let mut poses = session.subscribe("pose/+").wait()?;
    /// assert!(poses.next_timeout(Duration::from_millis(1))?.is_none(), "nothing was published");
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Message>> {
        self.wait_for(Instant::now().checked_add(timeout))
    }

    /// The next message, or what becomes of the state; `None` if nothing came in time.
    pub(super) fn next_item(&mut self, deadline: Option<Instant>) -> Result<Option<Item>> {
        self.wait_for_item(deadline)
    }

    /// Waits for the next message, however long it takes.
    ///
    /// # Errors
    /// Why no more messages will come.
    pub fn wait(&mut self) -> Result<Message> {
        self.wait_for(None).map(|message| message.expect("without a deadline there is a message or an error"))
    }

    /// How many messages this reader was too slow for.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-missed?keys=plain").wait()?;
    /// let poses = session.subscribe("pose/+").wait()?;
    /// assert_eq!(poses.missed(), 0);
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn missed(&self) -> u64 {
        lock(&self.queue.state).missed
    }

    /// How many messages wait to be read.
    pub fn len(&self) -> usize {
        lock(&self.queue.state).items.len()
    }

    /// Whether no message waits to be read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn wait_for(&mut self, deadline: Option<Instant>) -> Result<Option<Message>> {
        Ok(self.wait_for_item(deadline)?.and_then(Item::message))
    }

    fn wait_for_item(&mut self, deadline: Option<Instant>) -> Result<Option<Item>> {
        if let Some(item) = self.try_next_item()? {
            return Ok(Some(item));
        }
        // Whoever waits for a message may as well be the one who receives it: no other thread has to
        // wake up first.
        let shared = self.shared.clone();
        if let Some(leader) = shared.driver_lock.lead() {
            loop {
                leader.turn(&shared, deadline, &self.queue);
                if let Some(item) = self.try_next_item()? {
                    return Ok(Some(item));
                }
                if deadline.is_some_and(|d| Instant::now() >= d) {
                    return Ok(None);
                }
                if shared.driver_lock.others() {
                    break;
                }
            }
        }
        let _follower = shared.driver_lock.follow();
        let mut state = lock(&self.queue.state);
        loop {
            if let Some((item, full)) = Queue::pop(&mut state) {
                drop(state);
                self.freed(full);
                return Ok(Some(item));
            }
            if let Some(why) = &state.closed {
                return Err(why.clone());
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if left.is_some_and(|l| l.is_zero()) {
                return Ok(None);
            }
            state.parked += 1;
            state = match left {
                Some(left) => self.queue.ready.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.queue.ready.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.parked -= 1;
        }
    }

    fn freed(&self, wanted: bool) {
        if wanted {
            self.shared.driver_lock.wake();
        }
    }
}

impl Stream for Subscription {
    type Item = Result<Message>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Message>>> {
        let this = self.get_mut();
        let mut state = lock(&this.queue.state);
        // Nobody reads a state's queue as a stream: all that it holds are messages.
        if let Some((Item::Message(message), full)) = Queue::pop(&mut state) {
            drop(state);
            this.freed(full);
            return Poll::Ready(Some(Ok(message)));
        }
        if state.closed.is_some() {
            return Poll::Ready(None);
        }
        if let Err(why) = this.shared.process.check() {
            state.closed = Some(why.clone());
            return Poll::Ready(Some(Err(why)));
        }
        state.waker = Some(cx.waker().clone());
        drop(state);
        this.shared.driver_lock.drive_yourself();
        Poll::Pending
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.shared.unsubscribe(&self.queue);
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("filter", &self.queue.filter).finish_non_exhaustive()
    }
}
