//! Publishing, waited for or awaited.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use sealcast_delivery::{SendError, Token};
use sealcast_wire::Guarantee;

use super::shared::no_place;
use super::{Session, Shared};
use crate::code::Code;
use crate::error::{Error, Result};
use crate::group::{Publication, PublishError, lock};
use crate::remedy::Remedy;

/// What became of a published message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// Its number, as receivers see it; `None` if it waits for the next key, or gets its number under way.
    pub number: Option<u64>,
}

/// Why `try_publish` did not take a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TryPublishError {
    /// The queue is full, or readers have not acknowledged enough of what was published before: later it will do.
    #[error("queue full")]
    Full,
    /// No key is agreed yet, or it is changing: later it will do.
    #[error("no key is agreed yet")]
    NotReady,
    /// To try again at once will not do: no right, no such guarantee here, too long, left the group, nobody orders.
    #[error(transparent)]
    Refused(#[from] Error),
}

impl TryPublishError {
    pub(super) fn of(shared: &Shared, topic: &str, why: PublishError) -> TryPublishError {
        match why {
            PublishError::Send(SendError::Full) => TryPublishError::Full,
            // A session that has ended gets no key any more.
            PublishError::NotReady => shared.ended().map_or(TryPublishError::NotReady, TryPublishError::Refused),
            PublishError::Send(why) if passes(why) => TryPublishError::NotReady,
            why => TryPublishError::Refused(shared.refused(topic, why)),
        }
    }
}

/// A message about to be published.
#[must_use = "nothing is published unless it is awaited or .wait() is called"]
pub struct Publish<'a> {
    pub(super) session: &'a Session,
    pub(super) topic: &'a str,
    pub(super) body: Box<dyn AsRef<[u8]> + Send + 'a>,
    pub(super) guarantee: Guarantee,
    pub(super) within: Option<Duration>,
}

impl Publish<'_> {
    /// In the order sent, without gaps while we live. Over multicast it is acknowledged when this returns: all who read the
    /// topic have it.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-fifo?keys=plain&order=total").wait()?;
    /// session.publish("log", "one").fifo().wait()?;
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn fifo(mut self) -> Self {
        self.guarantee = Guarantee::Fifo;
        self
    }

    /// In one order at all members. It has its place when this returns, and the number tells it: through brokers, or over
    /// multicast with `order=total` once a majority of the members holds it. There only the primary component orders.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-ordered?keys=plain&order=total").wait()?;
    /// let first = session.publish("ledger", "one").ordered().wait()?;
    /// let second = session.publish("ledger", "two").ordered().wait()?;
    /// assert!(first.number < second.number);
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn ordered(mut self) -> Self {
        self.guarantee = Guarantee::Ordered;
        self
    }

    /// Ordered, and delivered and acknowledged once all members hold it: over multicast with `order=total`.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-safe?keys=plain&order=total").wait()?;
    /// let refused = session.publish("ledger", "one").safe().wait().unwrap_err();
    /// assert_eq!(refused.code(), sealcast::Code::BadPair, "a group in one process does not give it");
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn safe(mut self) -> Self {
        self.guarantee = Guarantee::Safe;
        self
    }

    /// How long it may take until it is taken, and from then on until it is known what became of it. Without this it is taken
    /// within `wait=`, and what became of it is known within 5 s (`wait=` through brokers).
    ///
    /// ```
    /// use std::time::Duration;
    /// # let session = sealcast::open("mem:doc-within?keys=plain&order=total").wait()?;
    /// let published = session.publish("ledger", "one").ordered().within(Duration::from_millis(800)).wait()?;
    /// assert!(published.number.is_some());
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }

    /// Publishes it on this thread.
    ///
    /// # Errors
    /// Why not: no right, no key in time, too long, closed. [`Code::InDoubt`]: it was given to the network, and nobody said in
    /// time that others have it.
    pub fn wait(self) -> Result<Published> {
        self.ticket()?.wait()
    }

    /// Publishes it on this thread, and waits for nothing but a key and room: the ticket tells later what became of it. So one
    /// thread has thousands under way.
    ///
    /// # Errors
    /// Why not: no right, no key in time, too long, closed.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-ticket?keys=plain&order=total").wait()?;
    /// let tickets: Vec<_> =
    ///     (0..100).map(|n| session.publish("ledger", format!("{n}")).ordered().ticket()).collect::<Result<_, _>>()?;
    /// for ticket in tickets {
    ///     assert!(ticket.wait()?.number.is_some());
    /// }
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn ticket(self) -> Result<Ticket> {
        let timeout = self.taken_within();
        let shared = &self.session.inner.shared;
        // The usual case goes straight through.
        let taken = match self.take(true) {
            Some(taken) => Some(taken),
            None => shared.changed.wait_until(Instant::now() + timeout, || self.take(true)),
        };
        taken.unwrap_or_else(|| Err(shared.late_for(self.guarantee, timeout)))
    }

    /// How long it may take until it is taken.
    fn taken_within(&self) -> Duration {
        self.within.unwrap_or(self.session.inner.shared.url.options.wait)
    }

    /// Publishes it, if there is a key, and room. `patient` callers may be made to wait until the network has taken what was
    /// published before; others are told later that there is room.
    fn take(&self, patient: bool) -> Option<Result<Ticket>> {
        let shared = &self.session.inner.shared;
        let body = (*self.body).as_ref();
        let message = Publication { topic: self.topic, body, guarantee: self.guarantee, sent_micros: None };
        match shared.publish(&message, patient) {
            Ok(number) => Some(Ok(Ticket::new(shared.clone(), number, self.guarantee, self.within))),
            // No key yet is no error yet.
            Err(PublishError::NotReady) => shared.ended().map(Err),
            Err(PublishError::Send(why))
                if passes(why)
                    && (shared.tx_queue.is_none()
                        || !patient
                        || why == SendError::Full
                        || shared.is_waited_for(self.guarantee)) =>
            {
                shared.ended().map(Err)
            }
            Err(why) => Some(Err(shared.refused(self.topic, why))),
        }
    }
}

/// What became of a message, if it is known or never will be.
fn ordered_at(shared: &Shared, token: Token, guarantee: Guarantee) -> Option<Result<Published>> {
    let Some(outcome) = shared.outcome(token, guarantee) else { return shared.ended().map(Err) };
    // Where messages are acknowledged by their numbers, they have no others.
    let number = Some(token.0).filter(|_| shared.is_numbered(guarantee));
    Some(no_place(outcome).map(|place| Published { number: place.or(number) }))
}

/// A message has waited too long for its position.
fn no_place_in(shared: &Shared, token: Token, guarantee: Guarantee, timeout: Duration) -> Error {
    lock(&shared.outcomes).forget(token);
    if shared.is_numbered(guarantee) {
        let what = format!("not all readers have acknowledged the message for {timeout:?}; they may have it still");
        return Error::new(Code::InDoubt, what).with_hint("a member may be slow, or gone and not suspected yet");
    }
    let what = format!("the message has had no place in the order for {timeout:?}; it may get one still");
    if let Some(why) = shared.trouble() {
        return Error::new(Code::InDoubt, format!("{what}: {}", why.message())).with_remedy(Remedy::PublishAgain);
    }
    let remedy = if shared.url.meets_at_brokers() { Remedy::ShowOrder } else { Remedy::PublishAgain };
    Error::new(Code::InDoubt, what).with_remedy(remedy)
}

/// A message that was published, of which it is known later what became: `.await` it, or `.wait()` for it on this thread.
/// Dropped, it has published the message all the same.
#[must_use = "what becomes of the message is told to those who ask"]
pub struct Ticket {
    shared: Arc<Shared>,
    state: TicketState,
    within: Duration,
    deadline: Instant,
}

#[derive(Clone, Copy)]
enum TicketState {
    Waits(Token, Guarantee),
    Done(Published),
}

impl Ticket {
    /// Of a message that was taken, with the number that publishing told.
    pub(super) fn new(
        shared: Arc<Shared>,
        number: Option<u64>,
        guarantee: Guarantee,
        within: Option<Duration>,
    ) -> Ticket {
        let state = match number {
            Some(token) if shared.is_waited_for(guarantee) => TicketState::Waits(Token(token), guarantee),
            _ => TicketState::Done(Published { number }),
        };
        let within = within.unwrap_or(shared.url.outcome_within());
        let deadline = Instant::now() + within;
        Ticket { shared, state, within, deadline }
    }

    /// What became of it, if that is known by now, or its time is over.
    ///
    /// ```
    /// # let session = sealcast::open("mem:doc-try-wait?keys=plain&order=total").wait()?;
    /// let mut ticket = session.publish("ledger", "one").ordered().ticket()?;
    /// if let Some(published) = ticket.try_wait() {
    ///     println!("number {:?}", published?.number);
    /// }
    /// # Ok::<(), sealcast::Error>(())
    /// ```
    pub fn try_wait(&mut self) -> Option<Result<Published>> {
        let done = match self.state {
            TicketState::Done(published) => Ok(published),
            TicketState::Waits(token, guarantee) => match ordered_at(&self.shared, token, guarantee) {
                Some(done) => done,
                None if Instant::now() >= self.deadline => Err(self.late()),
                None => return None,
            },
        };
        Some(self.keep(done))
    }

    /// What became of it is known so long from now, if it is not known before, instead of 5 s after it was taken.
    pub fn within(mut self, time: Duration) -> Self {
        (self.within, self.deadline) = (time, Instant::now() + time);
        self
    }

    /// Waits until it is known.
    ///
    /// # Errors
    /// That it came to nothing, or, [`Code::InDoubt`], that nobody said in time that others have it.
    pub fn wait(mut self) -> Result<Published> {
        let shared = self.shared.clone();
        let done = shared.changed.wait_until(self.deadline, || self.try_wait());
        done.unwrap_or_else(|| Err(self.late()))
    }

    /// Whoever asks again is told the same.
    fn keep(&mut self, done: Result<Published>) -> Result<Published> {
        if let Ok(published) = done {
            self.state = TicketState::Done(published);
        }
        done
    }

    fn late(&self) -> Error {
        match self.state {
            TicketState::Waits(token, guarantee) => no_place_in(&self.shared, token, guarantee, self.within),
            TicketState::Done(_) => self.shared.late(self.within),
        }
    }
}

impl Future for Ticket {
    type Output = Result<Published>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (shared, deadline) = (self.shared.clone(), self.deadline);
        let polled = shared.changed.poll_until(cx, deadline, || self.try_wait());
        polled.map(|done| done.unwrap_or_else(|| Err(self.late())))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let TicketState::Waits(token, _) = self.state {
            lock(&self.shared.outcomes).forget(token);
        }
    }
}

/// Whether it will do later.
fn passes(why: SendError) -> bool {
    matches!(why, SendError::Full | SendError::NotReady | SendError::Old | SendError::Retired)
}

impl<'a> IntoFuture for Publish<'a> {
    type Output = Result<Published>;
    type IntoFuture = Publishing<'a>;

    fn into_future(self) -> Publishing<'a> {
        let deadline = Instant::now() + self.taken_within();
        Publishing { publish: self, ticket: None, deadline }
    }
}

/// A message being published. Dropped before it is done, a message that has no place yet may get one still.
pub struct Publishing<'a> {
    publish: Publish<'a>,
    /// Once it is taken.
    ticket: Option<Ticket>,
    deadline: Instant,
}

impl Future for Publishing<'_> {
    type Output = Result<Published>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Publishing { publish, ticket, deadline } = self.get_mut();
        if ticket.is_none() {
            let shared = &publish.session.inner.shared;
            let taken = match shared.changed.poll_until(cx, *deadline, || publish.take(false)) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(taken) => taken,
            };
            let taken = taken.unwrap_or_else(|| Err(shared.late_for(publish.guarantee, publish.taken_within())));
            match taken {
                Ok(taken) => *ticket = Some(taken),
                Err(why) => return Poll::Ready(Err(why)),
            }
        }
        match ticket {
            Some(ticket) => Pin::new(ticket).poll(cx),
            None => Poll::Pending,
        }
    }
}
