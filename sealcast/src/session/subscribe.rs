//! Subscribing.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::Session;
use super::core::Filter;
use super::queue::{Queue, SlowReader, Subscription};
#[cfg(not(feature = "brokers"))]
use super::shared::refused;
use crate::error::{Error, Result};
use crate::group::lock;
#[cfg(feature = "brokers")]
use crate::refusals::refused;

/// A subscription about to be made.
#[must_use = "nothing is subscribed to unless it is awaited or .wait() is called"]
pub struct Subscribe<'a> {
    pub(super) session: &'a Session,
    pub(super) pattern: &'a str,
    pub(super) regex: bool,
    pub(super) capacity: usize,
    pub(super) when_slow: SlowReader,
    pub(super) of_state: bool,
}

impl Subscribe<'_> {
    /// How many messages may wait to be read; at least 1.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-capacity?keys=plain").wait()?;
    /// use sealcast::SlowReader;
    ///
    /// let mut newest = session.subscribe("pose/+").capacity(1).when_slow(SlowReader::DropOldest).wait()?;
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn capacity(mut self, messages: usize) -> Self {
        self.capacity = messages.max(1);
        self
    }

    /// What happens when more come.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-when-slow?keys=plain").wait()?;
    /// use sealcast::SlowReader;
    ///
    /// let mut all = session.subscribe("log").when_slow(SlowReader::Block).wait()?;
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn when_slow(mut self, policy: SlowReader) -> Self {
        self.when_slow = policy;
        self
    }

    /// Its reader keeps a state.
    pub(super) fn of_state(mut self) -> Self {
        self.of_state = true;
        self
    }

    /// The pattern is a regular expression that the whole topic must match, as in LCM.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-regex?keys=plain").wait()?;
    /// let mut poses = session.subscribe("POSE_[0-9]+").regex().wait()?;
    /// session.publish("POSE_7", "here").wait()?;
    /// assert_eq!(poses.wait()?.topic(), "POSE_7");
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn regex(mut self) -> Self {
        self.regex = true;
        self
    }

    /// Subscribes; where those who carry messages have to know it, once they do.
    ///
    /// # Errors
    /// If the pattern cannot be read, the socket cannot be opened, or those who carry messages refuse it or do not answer.
    pub fn wait(self) -> Result<Subscription> {
        let shared = self.session.inner.shared.clone();
        let mut doing = self.into_future();
        let done = match doing.advance() {
            Some(done) => Some(done),
            None => shared.changed.wait_until(doing.deadline, || doing.advance()),
        };
        done.unwrap_or_else(|| Err(shared.late(shared.url.options.wait)))
    }

    fn begin(&self) -> Result<Subscription> {
        let filter = if self.regex { Filter::regex(self.pattern)? } else { Filter::pattern(self.pattern)? };
        let shared = &self.session.inner.shared;
        shared.may_subscribe(&filter, self.pattern)?;
        shared.listen()?;
        let queue = Arc::new(Queue::new(filter, self.capacity, self.when_slow, self.of_state));
        shared.subscriptions.add(queue.filter.clone(), queue.clone());
        shared.loopback_filter.adjust(|topic| shared.wants(topic));
        let why = {
            let seen = lock(&shared.seen);
            let excluded = seen.excluded.as_ref().map(Error::excluded);
            excluded.or_else(|| seen.ended.clone()).or_else(|| seen.closed.then(Error::closed))
        };
        if let Some(why) = why {
            queue.close(why);
        }
        let subscription = Subscription { shared: shared.clone(), queue };
        shared.tell_transport(&subscription.queue.filter, true)?;
        Ok(subscription)
    }
}

impl<'a> IntoFuture for Subscribe<'a> {
    type Output = Result<Subscription>;
    type IntoFuture = Subscribing<'a>;

    fn into_future(self) -> Subscribing<'a> {
        let deadline = Instant::now() + self.session.inner.shared.url.options.wait;
        Subscribing { subscribe: self, begun: None, deadline }
    }
}

/// A subscription being made.
pub struct Subscribing<'a> {
    subscribe: Subscribe<'a>,
    begun: Option<Subscription>,
    deadline: Instant,
}

impl Subscribing<'_> {
    fn advance(&mut self) -> Option<Result<Subscription>> {
        let shared = &self.subscribe.session.inner.shared;
        if let Err(why) = shared.process.check() {
            return Some(Err(why));
        }
        let begun = match self.begun.take() {
            Some(begun) => begun,
            None => {
                if shared.transport.subscribes && lock(&shared.seen).view.is_none() {
                    // What cannot be opened yet would be lost.
                    return shared.ended().map(Err);
                }
                match self.subscribe.begin() {
                    Ok(begun) => begun,
                    Err(why) => return Some(Err(why)),
                }
            }
        };
        if !shared.transport.subscribes {
            return Some(Ok(begun));
        }
        let stands = *lock(&begun.queue.stands);
        match (stands, shared.ended()) {
            (Some(Ok(())), _) => Some(Ok(begun)),
            (Some(Err(reason)), _) => Some(Err(refused(reason))),
            (None, Some(why)) => Some(Err(why)),
            (None, None) => {
                self.begun = Some(begun);
                None
            }
        }
    }
}

impl Future for Subscribing<'_> {
    type Output = Result<Subscription>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let shared = this.subscribe.session.inner.shared.clone();
        let polled = shared.changed.poll_until(cx, this.deadline, || this.advance());
        polled.map(|done| done.unwrap_or_else(|| Err(shared.late(shared.url.options.wait))))
    }
}
