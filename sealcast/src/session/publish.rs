//! Publishing, waited for or awaited.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use sealcast_wire::Guarantee;

use super::{Session, not_ready};
use crate::error::{Error, Result};
use crate::group::{Publication, PublishError};

/// What became of a published message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its number, as receivers see it; `None` if it waits for the next key.
    pub number: Option<u64>,
}

/// Why `try_publish` did not take a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TryPublishError {
    /// The queue is full: later it will do.
    #[error("queue full")]
    Full,
    /// No key is agreed yet.
    #[error("no key is agreed yet")]
    NotReady,
    /// It will not do later either.
    #[error(transparent)]
    Refused(#[from] Error),
}

/// A message about to be published.
#[must_use = "nothing is published unless it is awaited or .wait() is called"]
pub struct Publish<'a> {
    pub(super) session: &'a Session,
    pub(super) topic: &'a str,
    pub(super) body: Box<dyn AsRef<[u8]> + 'a>,
    pub(super) guarantee: Guarantee,
}

impl Publish<'_> {
    /// In the order sent, without gaps while we live.
    pub fn fifo(mut self) -> Self {
        self.guarantee = Guarantee::Fifo;
        self
    }

    /// In one order at all members.
    pub fn ordered(mut self) -> Self {
        self.guarantee = Guarantee::Ordered;
        self
    }

    /// Ordered, and acknowledged once all members hold it.
    pub fn safe(mut self) -> Self {
        self.guarantee = Guarantee::Safe;
        self
    }

    /// Publishes it on this thread.
    ///
    /// # Errors
    /// Why not: no right, no key in time, too long, closed.
    pub fn wait(self) -> Result<Published> {
        let shared = &self.session.inner.shared;
        let body = (*self.body).as_ref();
        let message = Publication { topic: self.topic, body, guarantee: self.guarantee, sent_micros: None };
        match shared.publish(&message, true) {
            Ok(number) => Ok(Published { number }),
            Err(PublishError::NotReady) => {
                let patience = shared.url.options.wait;
                let done =
                    shared.changed.wait_until(Instant::now() + patience, || match shared.publish(&message, true) {
                        Err(PublishError::NotReady) => None,
                        other => Some(other),
                    });
                match done {
                    Some(Ok(number)) => Ok(Published { number }),
                    Some(Err(why)) => Err(shared.refused(self.topic, why)),
                    None => Err(not_ready(patience)),
                }
            }
            Err(why) => Err(shared.refused(self.topic, why)),
        }
    }
}

impl<'a> IntoFuture for Publish<'a> {
    type Output = Result<Published>;
    type IntoFuture = Publishing<'a>;

    fn into_future(self) -> Publishing<'a> {
        let deadline = Instant::now() + self.session.inner.shared.url.options.wait;
        Publishing { publish: self, deadline }
    }
}

/// A message being published.
pub struct Publishing<'a> {
    publish: Publish<'a>,
    deadline: Instant,
}

impl Future for Publishing<'_> {
    type Output = Result<Published>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Publishing { publish, deadline } = self.get_mut();
        let shared = &publish.session.inner.shared;
        let body = (*publish.body).as_ref();
        let message = Publication { topic: publish.topic, body, guarantee: publish.guarantee, sent_micros: None };
        let polled = shared.changed.poll_until(cx, *deadline, || match shared.publish(&message, true) {
            Err(PublishError::NotReady) => None,
            other => Some(other),
        });
        polled.map(|done| match done {
            Some(Ok(number)) => Ok(Published { number }),
            Some(Err(why)) => Err(shared.refused(publish.topic, why)),
            None => Err(not_ready(shared.url.options.wait)),
        })
    }
}
