//! Subscribing.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Session;
use super::filter::Filter;
use super::queue::{Queue, SlowReader, Subscription};
use crate::error::{Error, Result};
use crate::group::lock;

/// A subscription about to be made.
#[must_use = "nothing is subscribed to unless it is awaited or .wait() is called"]
pub struct Subscribe<'a> {
    pub(super) session: &'a Session,
    pub(super) pattern: &'a str,
    pub(super) regex: bool,
    pub(super) capacity: usize,
    pub(super) when_slow: SlowReader,
}

impl Subscribe<'_> {
    /// How many messages may wait to be read; at least 1.
    pub fn capacity(mut self, messages: usize) -> Self {
        self.capacity = messages.max(1);
        self
    }

    /// What happens when more come.
    pub fn when_slow(mut self, policy: SlowReader) -> Self {
        self.when_slow = policy;
        self
    }

    /// The pattern is a regular expression that the whole topic must match, as in LCM.
    pub fn regex(mut self) -> Self {
        self.regex = true;
        self
    }

    /// Subscribes.
    ///
    /// # Errors
    /// If the pattern cannot be read, or the socket cannot be opened.
    pub fn wait(self) -> Result<Subscription> {
        let filter = if self.regex { Filter::regex(self.pattern)? } else { Filter::pattern(self.pattern)? };
        let shared = &self.session.inner.shared;
        shared.may_subscribe(&filter, self.pattern)?;
        shared.listen()?;
        let queue = Arc::new(Queue::new(filter, self.capacity, self.when_slow));
        lock(&shared.queues).push(queue.clone());
        shared.own.adjust(|topic| shared.wants(topic));
        shared.generation.fetch_add(1, Ordering::Release);
        let why = {
            let seen = lock(&shared.seen);
            seen.excluded.as_ref().map(Error::excluded).or_else(|| seen.closed.then(Error::closed))
        };
        if let Some(why) = why {
            queue.close(why);
        }
        Ok(Subscription { shared: shared.clone(), queue })
    }
}

impl IntoFuture for Subscribe<'_> {
    type Output = Result<Subscription>;
    type IntoFuture = std::future::Ready<Result<Subscription>>;

    fn into_future(self) -> Self::IntoFuture {
        std::future::ready(self.wait())
    }
}
