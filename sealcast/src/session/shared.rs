//! What the threads of a session share, and what they do with it.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sealcast_crypto::identity::Identity;
use sealcast_keys::{Command, Exclusion, Notice};
use sealcast_wire::{Guarantee, Monotonic, Now, View, limits};

use super::changed::Changed;
use super::driver::Road;
use super::filter::Filter;
use super::info::{LogEntry, LogEvent};
use super::lease::Lease;
use super::line::Line;
use super::not_ready;
use super::own::Own;
use super::queue::{Queue, SlowReader};
use super::views::ViewQueue;
use crate::code::Code;
use crate::error::{Error, Result};
use crate::group::{Gate, Publication, PublishError, ViewEvent, lock};
use crate::io::clock::Clock;
use crate::io::udp::{UdpReceiver, Warning};
use crate::url::{Url, Way};

/// What the threads of a session share.
pub(crate) struct Shared {
    pub(super) url: Url,
    pub(super) group_name: String,
    pub(super) me: String,
    pub(super) identity: Option<Arc<Identity>>,
    pub(super) clock: Clock,
    pub(super) lease: Lease,
    pub(super) line: Option<Line>,
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
}

/// What was seen of the group so far.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) view: Option<Arc<View>>,
    pub(super) installed_at: Monotonic,
    pub(super) excluded: Option<Exclusion>,
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
                self.own.publish(message.topic, |topic| self.wants(topic));
                line.publish(message, patient)?
            }
            None => {
                let now = self.clock.now();
                let sent_micros = Some(self.clock.wall_micros(now.monotonic));
                let message = Publication { sent_micros, ..*message };
                self.lease.with(|driver| {
                    let Some(driver) = driver else { return Err(PublishError::Excluded(Exclusion::Left)) };
                    let token = driver.group.publish(now, message)?;
                    driver.pump(self, now);
                    Ok(token.map(|t| t.0))
                })?
            }
        };
        self.published.fetch_add(1, Ordering::Relaxed);
        Ok(number)
    }

    /// The error that a user sees.
    pub(super) fn refused(&self, topic: &str, why: PublishError) -> Error {
        match why {
            PublishError::NotReady => not_ready(std::time::Duration::ZERO),
            PublishError::Denied => Error::new(Code::DeniedPublish, format!("{} may not publish on {topic}", self.me))
                .with_hint(format!("ask the group's authority for the right: sealcast invite --for … --pub '{topic}'")),
            PublishError::MustSign => Error::new(
                Code::DeniedPublish,
                format!("{topic} demands signatures, since some of its readers may not write it"),
            )
            .with_hint("leave origin=mac out of the URL"),
            PublishError::Excluded(why) => Error::excluded(&why),
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
        let Way::Multicast(address) = self.url.way else { return Ok(()) };
        self.lease.with(|driver| {
            let driver = driver.as_mut().ok_or_else(Error::closed)?;
            if !matches!(driver.road, Road::Closed) {
                return Ok(());
            }
            let (receiver, warnings) = UdpReceiver::open(address, &self.url.options)?;
            lock(&self.seen).warnings.extend(warnings);
            if let Some(ear) = self.line.as_ref().and_then(|line| receiver.ear(&line.udp)) {
                self.own.listen(ear, |topic| self.wants(topic));
            }
            driver.listen(receiver).map_err(|e| Error::system("waiting for the socket", &e))
        })
    }

    pub(super) fn queues_for(&self, topic: &str) -> Vec<Arc<Queue>> {
        lock(&self.queues).iter().filter(|q| q.filter.matches(topic)).cloned().collect()
    }

    pub(super) fn wants(&self, topic: &str) -> bool {
        lock(&self.queues).iter().any(|q| q.filter.matches(topic))
    }

    pub(super) fn unsubscribe(&self, queue: &Arc<Queue>) {
        lock(&self.queues).retain(|q| !Arc::ptr_eq(q, queue));
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

    pub(super) fn noticed(&self, now: Now, notice: Notice) {
        self.note(&mut lock(&self.seen), now, LogEvent::Notice(notice));
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
