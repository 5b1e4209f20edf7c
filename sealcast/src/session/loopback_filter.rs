//! Not hearing oneself: multicast brings every datagram back to its own process too.
//!
//! Few programs subscribe to what they publish. While none of our subscriptions takes a topic that we
//! publish, the kernel drops our own datagrams at the receiving socket, before they are queued, copied,
//! opened and thrown away. Whenever that changes, the socket hears all before the message is sent.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;

use super::transports::LoopbackSocket;
use crate::group::lock;
use sealcast_wire::limits;

/// See the module.
#[derive(Default)]
pub(super) struct LoopbackFilter {
    /// Topics that we have published, to be looked up without a lock.
    topics: ArcSwap<BTreeSet<Box<str>>>,
    /// More topics than are remembered: hear everything.
    many: AtomicBool,
    loopback_socket: Mutex<Option<LoopbackSocket>>,
}

impl LoopbackFilter {
    /// The receiving socket is open.
    pub(super) fn listen(&self, loopback_socket: LoopbackSocket, wanted: impl Fn(&str) -> bool) {
        *lock(&self.loopback_socket) = Some(loopback_socket);
        self.adjust(wanted);
    }

    /// A message of this topic is about to be sent; `wanted` says which topics a subscription takes.
    pub(super) fn publish(&self, topic: &str, wanted: impl Fn(&str) -> bool) {
        if self.many.load(Ordering::Relaxed) || self.topics.load().contains(topic) {
            return;
        }
        {
            let _socket = lock(&self.loopback_socket);
            let mut topics = BTreeSet::clone(&self.topics.load());
            topics.insert(topic.into());
            self.many.store(topics.len() > limits::OWN_TOPICS_MAX, Ordering::Relaxed);
            self.topics.store(topics.into());
        }
        self.adjust(wanted);
    }

    /// The subscriptions have changed.
    pub(super) fn adjust(&self, wanted: impl Fn(&str) -> bool) {
        let mut loopback_socket = lock(&self.loopback_socket);
        let Some(loopback_socket) = loopback_socket.as_mut() else { return };
        let hear = self.many.load(Ordering::Relaxed) || self.topics.load().iter().any(|topic| wanted(topic));
        loopback_socket.hear_own(hear);
    }
}
