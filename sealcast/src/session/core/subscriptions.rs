//! Who subscribes to what. Publishers and readers on any thread look here, so it has a lock of its own.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

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
}

impl<R> Default for Subscriptions<R> {
    fn default() -> Subscriptions<R> {
        Subscriptions { generation: AtomicU64::new(1), list: Mutex::default() }
    }
}

impl<R: Clone> Subscriptions<R> {
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
