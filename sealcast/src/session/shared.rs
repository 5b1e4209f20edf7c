//! What the threads of a session share, and what they do with it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealcast_crypto::identity::{Identity, Pattern};
use sealcast_delivery::{Outcome, Properties, SendError, Token};
use sealcast_keys::{Command, Exclusion, Notice};
use sealcast_wire::{Guarantee, Monotonic, Now, Reason, View, limits};

use super::changed::Changed;
use super::driver::{AnyGroup, Driver};
use super::filter::Filter;
use super::info::{LogEntry, LogEvent};
use super::lease::Lease;
use super::not_ready;
use super::own::Own;
use super::queue::{Queue, SlowReader};
use super::transports::{Brokers, Line, Listening};
use super::views::ViewQueue;
use crate::brokers::refused;
use crate::code::Code;
use crate::error::{Error, Result};
use crate::group::{Gate, Publication, PublishError, ViewEvent, lock};
use crate::io::clock::Clock;
use crate::io::process::Process;
use crate::io::udp::Warning;
use crate::url::Url;

/// What the threads of a session share.
pub(crate) struct Shared {
    pub(super) url: Url,
    pub(super) group_name: String,
    pub(super) me: String,
    pub(super) identity: Option<Arc<Identity>>,
    /// Whether it ends by itself in a moment.
    pub(super) one_shot: bool,
    pub(super) clock: Clock,
    pub(super) process: Process,
    pub(super) lease: Lease,
    pub(super) line: Option<Arc<Line>>,
    /// What the transport gives.
    pub(super) transport: Properties,
    pub(super) brokers: Option<Brokers>,
    pub(super) gate: Arc<Mutex<Gate>>,
    pub(super) changed: Changed,
    pub(super) queues: Mutex<Vec<Arc<Queue>>>,
    /// Whether we hear our own datagrams.
    pub(super) own: Own,
    /// Counts changes of `queues`.
    pub(super) generation: AtomicU64,
    pub(super) view_queues: Mutex<Vec<Arc<ViewQueue>>>,
    pub(super) seen: Mutex<Seen>,
    pub(super) delivered: AtomicU64,
    pub(super) published: AtomicU64,
    pub(super) missed: AtomicU64,
    pub(super) failed_receives: AtomicU64,
    /// Publications that brokers executed to nothing.
    pub(super) refused: AtomicU64,
    /// Messages of which it is known what became of them, where that is told.
    pub(super) settled: AtomicU64,
    /// What became of those that somebody waits for.
    pub(super) outcomes: Mutex<BTreeMap<Token, Option<Outcome>>>,
}

/// What was seen of the group so far.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) view: Option<Arc<View>>,
    pub(super) installed_at: Monotonic,
    pub(super) excluded: Option<Exclusion>,
    /// Why nothing more will come of it.
    pub(super) ended: Option<Error>,
    /// Why the first message that got no place got none.
    pub(super) refusal: Option<Error>,
    pub(super) closed: bool,
    pub(super) log: VecDeque<LogEntry>,
    pub(super) warnings: Vec<Warning>,
}

impl Shared {
    pub(super) fn publish(
        &self,
        message: &Publication<'_>,
        patient: bool,
    ) -> std::result::Result<Option<u64>, PublishError> {
        let line = self.line.as_ref().filter(|_| message.guarantee == Guarantee::BestEffort);
        let number = match line {
            Some(line) => {
                line.publish(message, patient, || self.own.publish(message.topic, |topic| self.wants(topic)))?
            }
            None if !self.process.is_ours() => return Err(PublishError::Forked),
            None => {
                let now = self.clock.now();
                let sent_micros = Some(self.clock.wall_micros(now.monotonic));
                let message = Publication { sent_micros, ..*message };
                self.lease.with(|driver| {
                    let Some(driver) = driver else { return Err(PublishError::Excluded(Exclusion::Left)) };
                    let token = driver.group.publish(now, message)?;
                    let is_waited_for = self.is_waited_for(message.guarantee);
                    if !self.transport.acknowledges(message.guarantee) {
                        // Nothing more becomes known of it.
                        self.settled.fetch_add(1, Ordering::Release);
                    }
                    if is_waited_for {
                        lock(&self.outcomes).insert(token, None);
                    }
                    driver.pump(self, now);
                    Ok(Some(token.0).filter(|_| is_waited_for))
                })?
            }
        };
        self.published.fetch_add(1, Ordering::Relaxed);
        Ok(number)
    }

    /// Whether publishing ends when the message has its place in the order.
    pub(super) fn is_waited_for(&self, guarantee: Guarantee) -> bool {
        guarantee >= Guarantee::Ordered && self.transport.acknowledges(guarantee)
    }

    /// How many of our messages have no place yet, where that is told.
    pub(super) fn unplaced(&self) -> usize {
        if !self.transport.acknowledges_any() {
            return 0;
        }
        // What is settled is counted after it was published.
        let settled = self.settled.load(Ordering::Acquire);
        let left = self.published.load(Ordering::Acquire).saturating_sub(settled);
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// It is known what became of a message.
    pub(super) fn became(&self, token: Token, outcome: Outcome) {
        self.settled.fetch_add(1, Ordering::Release);
        if self.unplaced() == 0 {
            self.changed.ring();
        }
        if let Some(waiting) = lock(&self.outcomes).get_mut(&token) {
            *waiting = Some(outcome);
            self.changed.ring();
        }
        if matches!(outcome, Outcome::Denied(_) | Outcome::Failed) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            if let Some(why) = no_place(outcome).err() {
                lock(&self.seen).refusal.get_or_insert(why);
            }
        }
    }

    /// Whether all that was published has its place, where that is told, and all that was found is brought.
    pub(super) fn is_settled(&self) -> bool {
        self.lease.with(|driver| {
            let Some(Driver { group, shell, .. }) = driver.as_ref() else { return true };
            shell.is_settled() && group.is_settled()
        })
    }

    /// Why it takes so long until there is a key.
    pub(super) fn late(&self, patience: Duration) -> Error {
        let late = self.lease.with(|driver| {
            let waits = driver.as_ref().filter(|it| it.group.epoch().is_none());
            waits.and_then(|it| it.shell.late(patience))
        });
        late.unwrap_or_else(|| not_ready(patience))
    }

    /// Nothing more will come of it: readers are told, and whoever waits.
    pub(super) fn end(&self, why: &Error) {
        if lock(&self.seen).ended.replace(why.clone()).is_none() {
            lock(&self.queues).iter().for_each(|q| q.close(why.clone()));
            self.changed.ring();
        }
    }

    /// Why nothing more will come of it, if so.
    pub(super) fn ended(&self) -> Option<Error> {
        let seen = lock(&self.seen);
        seen.ended.clone().or_else(|| seen.excluded.as_ref().map(Error::excluded))
    }

    /// The pattern that the transport is told of for a filter; `None` where it brings everything.
    pub(super) fn told_to_transport(&self, filter: &Filter) -> Option<Pattern> {
        self.transport.subscribes.then(|| filter.as_pattern())
    }

    /// Does something with the group, and what it wants done.
    pub(super) fn with_group(&self, act: impl FnOnce(Now, &mut AnyGroup)) -> Result<()> {
        let now = self.clock.now();
        self.lease.with(|driver| {
            let driver = driver.as_mut().ok_or_else(Error::closed)?;
            act(now, &mut driver.group);
            driver.pump(self, now);
            Ok(())
        })
    }

    /// The transport brings a pattern's messages, or those who carry them refuse.
    pub(super) fn subscribed(&self, pattern: &Pattern, result: std::result::Result<(), Reason>) {
        let queues = lock(&self.queues);
        let told = queues.iter().filter(|q| q.filter.as_pattern() == *pattern);
        told.for_each(|q| *lock(&q.stands) = Some(result));
        drop(queues);
        self.changed.ring();
    }

    /// The error that a user sees.
    pub(super) fn refused(&self, topic: &str, why: PublishError) -> Error {
        match why {
            PublishError::NotReady => not_ready(Duration::ZERO),
            PublishError::Denied => Error::new(Code::DeniedPublish, format!("{} may not publish on {topic}", self.me))
                .with_hint(format!("ask the group's authority for the right: sealcast invite --for … --pub '{topic}'")),
            PublishError::MustSign => Error::new(
                Code::DeniedPublish,
                format!("{topic} demands signatures, since some of its readers may not write it"),
            )
            .with_hint("leave origin=mac out of the URL"),
            PublishError::Forked => Error::forked(),
            PublishError::Excluded(why) => Error::excluded(&why),
            PublishError::Send(SendError::TooLong) if self.transport.message_bytes_max < limits::MESSAGE_BYTES_MAX => {
                let most = self.transport.message_bytes_max;
                Error::new(Code::TooLarge, format!("a message over this transport has at most {most} bytes, sealed"))
            }
            PublishError::Send(why) => why.into(),
        }
    }

    /// Whether our certificate lets us read any topic that a subscription is for.
    pub(super) fn may_subscribe(&self, filter: &Filter, text: &str) -> Result<()> {
        let (Some(identity), Filter::Pattern(pattern)) = (&self.identity, filter) else { return Ok(()) };
        if identity.certificate().rights.subscribes(&self.group_name).any(|granted| granted.overlaps(pattern)) {
            return Ok(());
        }
        Err(Error::new(Code::DeniedSubscribe, format!("{} may not subscribe to {text}", self.me))
            .with_hint(format!("ask the group's authority for the right: sealcast invite --for … --sub '{text}'")))
    }

    pub(super) fn command(&self, command: Command) -> Result<()> {
        self.process.check()?;
        let now = self.clock.now();
        self.lease.with(|driver| {
            let driver = driver.as_mut().ok_or_else(Error::closed)?;
            driver.group.command(now, command)?;
            driver.pump(self, now);
            Ok(())
        })
    }

    /// Opens the receiving socket, if it is not open: plain publishers do without.
    pub(super) fn listen(&self) -> Result<()> {
        self.lease.with(|driver| {
            let driver = driver.as_mut().ok_or_else(Error::closed)?;
            let Some(Listening { warnings, ear }) = driver.listen()? else { return Ok(()) };
            lock(&self.seen).warnings.extend(warnings);
            if let Some(ear) = ear {
                self.own.listen(ear, |topic| self.wants(topic));
            }
            Ok(())
        })
    }

    pub(super) fn queues_for(&self, topic: &str) -> Vec<Arc<Queue>> {
        lock(&self.queues).iter().filter(|q| q.filter.matches(topic)).cloned().collect()
    }

    pub(super) fn wants(&self, topic: &str) -> bool {
        lock(&self.queues).iter().any(|q| q.filter.matches(topic))
    }

    pub(super) fn unsubscribe(&self, queue: &Arc<Queue>) {
        if !self.process.is_ours() {
            return;
        }
        lock(&self.queues).retain(|q| !Arc::ptr_eq(q, queue));
        if let Some(pattern) = self.told_to_transport(&queue.filter) {
            // A closed session has no subscriptions.
            let _ = self.with_group(|now, group| group.unsubscribe(now, &pattern));
        }
        self.own.adjust(|topic| self.wants(topic));
        self.generation.fetch_add(1, Ordering::Release);
        queue.close(Error::closed());
        // The driver may be waiting for room in it.
        if queue.when_slow == SlowReader::Block {
            self.lease.wake();
        }
    }

    pub(super) fn forget_views(&self, queue: &Arc<ViewQueue>) {
        lock(&self.view_queues).retain(|q| !Arc::ptr_eq(q, queue));
    }

    pub(super) fn viewed(&self, now: Now, event: ViewEvent) {
        {
            // In this order everywhere, so that a new reader neither misses nor doubles an event.
            let queues = lock(&self.view_queues);
            let mut seen = lock(&self.seen);
            match &event {
                ViewEvent::Changed { view, .. } => {
                    seen.view = Some(view.clone());
                    seen.installed_at = now.monotonic;
                }
                ViewEvent::Excluded(why) => seen.excluded = Some(why.clone()),
            }
            self.note(&mut seen, now, LogEvent::View(event.clone()));
            queues.iter().for_each(|q| q.push(event.clone()));
        }
        if let ViewEvent::Excluded(why) = &event {
            let queues = lock(&self.queues).clone();
            queues.iter().for_each(|q| q.close(Error::excluded(why)));
        }
        self.changed.ring();
    }

    pub(super) fn noticed(&self, now: Now, notice: Notice, about: Option<String>) {
        self.note(&mut lock(&self.seen), now, LogEvent::Notice { notice, about });
        self.changed.ring();
    }

    pub(super) fn note(&self, seen: &mut Seen, now: Now, event: LogEvent) {
        if seen.log.len() >= limits::LOG_ENTRIES_MAX {
            seen.log.pop_front();
        }
        seen.log.push_back(LogEntry { at_micros: self.clock.wall_micros(now.monotonic), event });
    }

    /// The socket fails: readers are told.
    pub(super) fn fail(&self, error: &io::Error) {
        let queues = lock(&self.queues).clone();
        queues.iter().for_each(|q| q.close(Error::system("the group's socket", error)));
    }
}

/// The number of a message that brokers gave a place, or why it has none.
pub(super) fn no_place(outcome: Outcome) -> Result<Option<u64>> {
    match outcome {
        Outcome::Placed(number) => Ok(Some(number)),
        Outcome::Accepted => Ok(None),
        Outcome::Denied(reason) => Err(refused(reason)),
        Outcome::InDoubt => Err(Error::new(Code::InDoubt, "the group went on without this member while it published")
            .with_hint("sealcast group show; when the others are there again, ask them or publish it again")),
        Outcome::Failed | Outcome::Superseded(_) => {
            Err(Error::new(Code::NotReady, "the message got no place in the order")
                .with_hint("sealcast brokers status shows brokers; then publish it again"))
        }
    }
}
