//! Not hearing oneself: multicast brings every datagram back to its own process too.
//!
//! Few programs subscribe to what they publish. While none of our subscriptions takes a topic that we
//! publish, the kernel drops our own datagrams at the receiving socket, before they are queued, copied,
//! opened and thrown away. Whenever that changes, the socket hears all before the message is sent.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;

use crate::group::lock;
use crate::io::udp::Ear;
use sealcast_wire::limits;

/// See the module.
#[derive(Default)]
pub(super) struct Own {
    /// Topics that we have published, to be looked up without a lock.
    topics: ArcSwap<BTreeSet<Box<str>>>,
    /// More topics than are remembered: hear everything.
    many: AtomicBool,
    ear: Mutex<Option<Ear>>,
}

impl Own {
    /// The receiving socket is open.
    pub(super) fn listen(&self, ear: Ear, wanted: impl Fn(&str) -> bool) {
        *lock(&self.ear) = Some(ear);
        self.adjust(wanted);
    }

    /// A message of this topic is about to be sent; `wanted` says which topics a subscription takes.
    pub(super) fn publish(&self, topic: &str, wanted: impl Fn(&str) -> bool) {
        if self.many.load(Ordering::Relaxed) || self.topics.load().contains(topic) {
            return;
        }
        {
            let _ear = lock(&self.ear);
            let mut topics = BTreeSet::clone(&self.topics.load());
            topics.insert(topic.into());
            self.many.store(topics.len() > limits::OWN_TOPICS_MAX, Ordering::Relaxed);
            self.topics.store(topics.into());
        }
        self.adjust(wanted);
    }

    /// The subscriptions have changed.
    pub(super) fn adjust(&self, wanted: impl Fn(&str) -> bool) {
        let mut ear = lock(&self.ear);
        let Some(ear) = ear.as_mut() else { return };
        let hear = self.many.load(Ordering::Relaxed) || self.topics.load().iter().any(|topic| wanted(topic));
        ear.hear_own(hear);
    }
}
