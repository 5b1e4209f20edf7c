//! Who subscribes to what. Publishers and readers on any thread look here, so it has a lock of its own.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sealcast_wire::Monotonic;

use super::filter::Filter;
use crate::group::lock;

/// Who reads what a subscription takes.
pub trait Reader: Clone {
    /// The first position in the order of what it has not read yet.
    fn first_unread(&self) -> Option<u64>;
}

/// Who reads at once.
impl Reader for () {
    fn first_unread(&self) -> Option<u64> {
        None
    }
}

/// See the module. `R` is what the shell knows a subscription by.
pub struct Subscriptions<R> {
    /// Counts changes.
    generation: AtomicU64,
    list: Mutex<Vec<(Filter, R)>>,
    /// The first position of what somebody had not read who unsubscribed, and until when that counts.
    left: Mutex<Option<(u64, Monotonic)>>,
}

impl<R> Default for Subscriptions<R> {
    fn default() -> Subscriptions<R> {
        Subscriptions { generation: AtomicU64::new(1), list: Mutex::default(), left: Mutex::default() }
    }
}

impl<R: Reader> Subscriptions<R> {
    /// One more.
    pub fn add(&self, filter: Filter, reader: R) {
        lock(&self.list).push((filter, reader));
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Without these.
    pub fn remove(&self, is_meant: impl Fn(&R) -> bool) {
        lock(&self.list).retain(|(_, reader)| !is_meant(reader));
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Without this one. What it had not read is for the next run if this one ends next, as where a scope ends: subscriptions go
    /// before their session then.
    pub fn leave(&self, now: Monotonic, reader: &R, is_meant: impl Fn(&R) -> bool) {
        let mut left = lock(&self.left);
        if let Some(first) = reader.first_unread() {
            let earlier = left.filter(|(_, until)| now < *until).map_or(first, |(it, _)| it.min(first));
            *left = Some((earlier, now + ENDS_WITHIN));
        }
        drop(left);
        self.remove(is_meant);
    }

    /// The first position in the order of what is not read.
    pub(super) fn first_unread(&self, now: Monotonic) -> Option<u64> {
        let left = lock(&self.left).filter(|(_, until)| now < *until).map(|(first, _)| first);
        self.all().iter().filter_map(Reader::first_unread).chain(left).min()
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.list).is_empty()
    }

    /// Whether anybody takes a topic.
    pub fn wants(&self, topic: &str) -> bool {
        lock(&self.list).iter().any(|(filter, _)| filter.matches(topic))
    }

    /// Those with such a filter.
    pub fn select(&self, is_meant: impl Fn(&Filter) -> bool) -> Vec<R> {
        let list = lock(&self.list);
        list.iter().filter(|(filter, _)| is_meant(filter)).map(|(_, reader)| reader.clone()).collect()
    }

    /// All of them.
    pub fn all(&self) -> Vec<R> {
        self.select(|_| true)
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

/// So soon after a subscription its session ends, if that is why it goes.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
