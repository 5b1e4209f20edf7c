//! What a subscription has got and its reader not yet taken.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sealcast_broker::operation::Body;
use sealcast_broker::state::Entry;
use sealcast_wire::limits;

use super::Shared;
use crate::error::{Error, Result};
use crate::group::lock;

/// What a subscription gets, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A publication.
    Publication {
        /// Its place in the subscription.
        place: u64,
        /// Where it stands in the order, and who published it.
        entry: Box<Entry>,
        /// What need not be kept from brokers.
        associated: Vec<u8>,
        /// What was published.
        content: Content,
    },
    /// Publications that we may not read: ⊥.
    Empty {
        /// The first place.
        place: u64,
        /// How many.
        count: u64,
    },
    /// Publications that the brokers no longer keep: what follows is the oldest that they have.
    Lost {
        /// The first place.
        place: u64,
        /// How many.
        count: u64,
    },
}

/// What readers get of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Its bodies: one, or as many as were sealed together.
    Bodies(Vec<Vec<u8>>),
    /// Bytes that lie elsewhere.
    Elsewhere {
        /// How many.
        size: u64,
        /// Their SHA-256.
        hash: [u8; 32],
    },
}

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

impl Item {
    /// Bytes of what was published.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Item::Publication { associated, content, .. } => associated.len() + content.bytes(),
            Item::Empty { .. } | Item::Lost { .. } => 0,
        }
    }
}

impl Content {
    /// Its bodies; `None` if they lie elsewhere.
    pub fn bodies(&self) -> Option<&[Vec<u8>]> {
        match self {
            Content::Bodies(bodies) => Some(bodies),
            Content::Elsewhere { .. } => None,
        }
    }

    /// Of what is not sealed; `None` of what is.
    pub(super) fn of(body: Body) -> Option<Content> {
        match body {
            Body::Plain(bytes) => Some(Content::Bodies(vec![bytes])),
            Body::Digest { size, hash } => Some(Content::Elsewhere { size, hash }),
            Body::Sealed(_) => None,
        }
    }

    fn bytes(&self) -> usize {
        self.bodies().iter().flat_map(|it| it.iter()).map(Vec::len).sum()
    }
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
        self.taken = Some(match &item {
            Item::Publication { place, entry, .. } => (place + 1, Some(entry.sn)),
            Item::Empty { place, count } | Item::Lost { place, count } => (place + count, None),
        });
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
