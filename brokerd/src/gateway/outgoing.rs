//! What waits for one client, bounded by bytes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use sealcast_wire::limits;
use tokio::sync::Notify;

use crate::drops::Reason;

/// The queue between whoever has something for a client and the task that writes to its socket.
#[derive(Debug)]
pub(super) struct Outgoing {
    queue: Mutex<Queue>,
    /// Something waits, or the end has come.
    news: Notify,
    /// Less waits than before, or the end has come.
    room: Notify,
    /// The end has come.
    over: Notify,
    /// Bytes that wait for all clients.
    all: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Bytes>,
    bytes: usize,
    /// Nothing leaves before the client was welcomed.
    open: bool,
    /// What waits is the last.
    last: Option<Reason>,
    end: Option<Reason>,
}

impl Outgoing {
    /// A queue from which nothing leaves yet; `all` counts what waits in all queues.
    pub(super) fn new(all: Arc<AtomicUsize>) -> Outgoing {
        Outgoing { queue: Mutex::default(), news: Notify::new(), room: Notify::new(), over: Notify::new(), all }
    }

    /// The welcome, before all that waits already; from now on messages leave.
    pub(super) fn open(&self, welcome: Bytes) {
        let mut queue = self.lock();
        self.take_in(&mut queue, welcome.len());
        queue.messages.push_front(welcome);
        queue.open = true;
        drop(queue);
        self.news.notify_one();
    }

    /// Queues a message. If too much waits, the channel ends instead: the client resumes when it can.
    pub(super) fn push(&self, message: Bytes, clients: usize) {
        let mut queue = self.lock();
        if queue.end.or(queue.last).is_some() {
            return;
        }
        let waits = queue.bytes + message.len();
        let all = self.all.load(Ordering::Relaxed) + message.len();
        let mean = limits::GATEWAY_OUTGOING_ALL_BYTES_MAX / clients.max(1);
        if waits > limits::GATEWAY_OUTGOING_BYTES_MAX || (all > limits::GATEWAY_OUTGOING_ALL_BYTES_MAX && waits > mean)
        {
            self.end_now(&mut queue, Reason::Slow);
            return;
        }
        self.take_in(&mut queue, message.len());
        queue.messages.push_back(message);
        drop(queue);
        self.news.notify_one();
    }

    /// Ends the channel. What waits is dropped; the first reason counts.
    pub(super) fn end(&self, reason: Reason) {
        self.end_now(&mut self.lock(), reason);
    }

    /// Ends the channel once what waits has left.
    pub(super) fn finish(&self, reason: Reason) {
        self.lock().last.get_or_insert(reason);
        self.news.notify_one();
    }

    /// Why it ended, if it did.
    pub(super) fn ended(&self) -> Option<Reason> {
        self.lock().end
    }

    /// The messages that wait, once there are some; the reason, once it ended.
    pub(super) async fn next(&self) -> Result<VecDeque<Bytes>, Reason> {
        loop {
            let news = self.news.notified();
            {
                let mut queue = self.lock();
                if let Some(reason) = queue.end {
                    return Err(reason);
                }
                if queue.open && !queue.messages.is_empty() {
                    return Ok(std::mem::take(&mut queue.messages));
                }
                if let Some(reason) = queue.last {
                    self.end_now(&mut queue, reason);
                    return Err(reason);
                }
            }
            news.await;
        }
    }

    /// So many bytes of what [`Outgoing::next`] gave have left.
    pub(super) fn left(&self, bytes: usize) {
        let mut queue = self.lock();
        if queue.end.is_none() {
            queue.bytes -= bytes;
            self.all.fetch_sub(bytes, Ordering::Relaxed);
        }
        drop(queue);
        self.room.notify_one();
    }

    /// Waits until so little waits that the client may ask for more.
    pub(super) async fn has_capacity(&self) -> Result<(), Reason> {
        loop {
            let room = self.room.notified();
            {
                let queue = self.lock();
                if let Some(reason) = queue.end {
                    return Err(reason);
                }
                if queue.bytes <= limits::GATEWAY_OUTGOING_BYTES_MAX / 4 {
                    return Ok(());
                }
            }
            room.await;
        }
    }

    /// Waits until the channel has ended.
    pub(super) async fn over(&self) -> Reason {
        loop {
            let over = self.over.notified();
            if let Some(reason) = self.ended() {
                return reason;
            }
            over.await;
        }
    }

    fn take_in(&self, queue: &mut Queue, bytes: usize) {
        queue.bytes += bytes;
        self.all.fetch_add(bytes, Ordering::Relaxed);
    }

    fn end_now(&self, queue: &mut Queue, reason: Reason) {
        if queue.end.is_none() {
            queue.end = Some(reason);
            queue.messages.clear();
            self.all.fetch_sub(std::mem::take(&mut queue.bytes), Ordering::Relaxed);
        }
        self.news.notify_one();
        self.room.notify_one();
        self.over.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> (Outgoing, Arc<AtomicUsize>) {
        let all = Arc::new(AtomicUsize::new(0));
        (Outgoing::new(all.clone()), all)
    }

    #[tokio::test]
    async fn the_welcome_comes_first_whatever_came_before_it() {
        let (queue, all) = queue();
        queue.push(Bytes::from_static(b"update"), 1);
        queue.open(Bytes::from_static(b"welcome"));
        assert_eq!(queue.next().await.expect("it is open"), [&b"welcome"[..], b"update"]);
        assert_eq!(all.load(Ordering::Relaxed), 13);
        queue.left(13);
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn rule_g7_a_slow_client_loses_its_channel_and_nothing_stays_of_it() {
        let (queue, all) = queue();
        queue.open(Bytes::new());
        let message = Bytes::from(vec![0; limits::GATEWAY_OUTGOING_BYTES_MAX / 2]);
        queue.push(message.clone(), 1);
        queue.push(message.clone(), 1);
        assert_eq!(queue.ended(), None);
        queue.push(Bytes::from_static(b"one more"), 1);
        assert_eq!(queue.next().await, Err(Reason::Slow));
        assert_eq!(queue.has_capacity().await, Err(Reason::Slow));
        queue.left(message.len());
        queue.end(Reason::Ending);
        assert_eq!((queue.ended(), all.load(Ordering::Relaxed)), (Some(Reason::Slow), 0));
    }

    #[test]
    fn rule_g7_when_all_have_much_waiting_those_with_more_than_the_mean_give_way() {
        let (queue, all) = queue();
        all.store(limits::GATEWAY_OUTGOING_ALL_BYTES_MAX, Ordering::Relaxed);
        let mean = limits::GATEWAY_OUTGOING_ALL_BYTES_MAX / 1024;
        queue.push(Bytes::from(vec![0; mean]), 1024);
        assert_eq!(queue.ended(), None);
        queue.push(Bytes::from_static(b"more than the mean"), 1024);
        assert_eq!(queue.ended(), Some(Reason::Slow));
    }
}
