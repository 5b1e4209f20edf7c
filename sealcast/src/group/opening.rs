//! Messages of transports that carry sealed messages: held until each is opened or ⊥, and then delivered topic by topic in
//! the transport's order. What a transport wants opened for readers of its own waits for room beside them, and for nothing
//! else.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sealcast_wire::{CertHash, Source, limits};

use super::gate::Epoch;
use super::message::{From, Message};

/// See the module.
#[derive(Default)]
pub(super) struct Opening {
    /// For which the keys had no room yet, in the way's order.
    kept: VecDeque<Sealed>,
    topics: BTreeMap<Arc<str>, BTreeMap<u64, State>>,
    topic_of: BTreeMap<u64, Arc<str>>,
    /// Bytes kept, and of opened messages that wait for those before them.
    bytes: usize,
    drawn: u64,
}

/// A message that came sealed.
pub(super) struct Sealed {
    pub(super) index: u64,
    pub(super) header: Vec<u8>,
    pub(super) body: Vec<u8>,
    pub(super) attachments: Vec<(u16, Vec<u8>)>,
    /// What the application gets with it; `None` if the transport alone wants it opened.
    pub(super) of: Option<Of>,
}

/// Whose message it is, and where it belongs.
pub(super) struct Of {
    pub(super) source: Source,
    pub(super) topic: Arc<str>,
    pub(super) sent_micros: Option<u64>,
}

impl Sealed {
    fn bytes(&self) -> usize {
        self.header.len() + self.body.len()
    }
}

enum State {
    Waits {
        sent_micros: Option<u64>,
        from: Source,
    },
    /// Opened, or ⊥.
    Done(Vec<Message>),
}

impl Opening {
    /// A sealed message came. `false`: more came than the way was asked to bring, and this one is lost.
    #[must_use]
    pub(super) fn keep(&mut self, sealed: Sealed) -> bool {
        let has_capacity = self.kept.len() < limits::EARLY_DATAGRAMS_MAX
            && self.bytes + sealed.bytes() <= 2 * limits::SEALED_WAITING_BYTES_MAX;
        if has_capacity {
            self.bytes += sealed.bytes();
            self.kept.push_back(sealed);
        }
        has_capacity
    }

    /// A message that the transport wants opened for a reader of its own. It brings none once it is asked to wait.
    pub(super) fn want(&mut self, index: u64, header: Vec<u8>, body: Vec<u8>) {
        let sealed = Sealed { index, header, body, attachments: Vec::new(), of: None };
        self.bytes += sealed.bytes();
        self.kept.push_back(sealed);
    }

    /// The next one to be opened, if the keys have room for so many bytes; it takes its place in its topic's order.
    pub(super) fn next(&mut self, has_capacity: impl FnOnce(usize) -> bool) -> Option<Sealed> {
        let first = self.kept.front().filter(|_| self.topic_of.len() < limits::EARLY_DATAGRAMS_MAX)?;
        if !has_capacity(first.bytes()) {
            return None;
        }
        let first = self.kept.pop_front()?;
        self.bytes -= first.bytes();
        if let Some(Of { source, topic, sent_micros }) = &first.of {
            self.topic_of.insert(first.index, topic.clone());
            let line = self.topics.entry(topic.clone()).or_default();
            line.entry(first.index).or_insert(State::Waits { sent_micros: *sent_micros, from: *source });
        }
        Some(first)
    }

    /// Whether no more should come until some of it is opened.
    pub(super) fn is_behind(&self) -> bool {
        !self.kept.is_empty()
            || self.topic_of.len() >= limits::EARLY_DATAGRAMS_MAX / 2
            || self.bytes >= limits::SEALED_WAITING_BYTES_MAX / 2
    }

    /// A message was opened, or nobody may read it; what can be delivered now, in order.
    pub(super) fn opened(
        &mut self,
        index: u64,
        origin: Option<CertHash>,
        bodies: Option<Vec<Vec<u8>>>,
        current: Option<&Arc<Epoch>>,
    ) -> Vec<Message> {
        let Some(topic) = self.topic_of.remove(&index) else { return Vec::new() };
        let Some(line) = self.topics.get_mut(&topic) else { return Vec::new() };
        if let Some(state @ State::Waits { .. }) = line.get_mut(&index) {
            let State::Waits { sent_micros, from } = *state else { unreachable!("just matched") };
            let from = current
                .zip(origin)
                .and_then(|(e, cert)| Some((e.view.clone(), e.view.slot_of(&cert)?)))
                .map(|(view, slot)| From::Member { view, slot, signed: true })
                .unwrap_or(match from {
                    Source::Client { key, epoch } => From::Client { key, epoch },
                    Source::Outside(_) | Source::Inside { .. } => From::Anonymous,
                });
            let message = |payload| Message {
                from: from.clone(),
                topic: topic.clone(),
                sequence: index,
                ordered: true,
                sent_micros,
                payload,
            };
            let messages: Vec<Message> = bodies.into_iter().flatten().map(message).collect();
            self.bytes += messages.iter().map(|it| it.payload.len()).sum::<usize>();
            *state = State::Done(messages);
        }
        let mut out = Vec::new();
        while let Some(first) = line.first_entry().filter(|e| matches!(e.get(), State::Done(_))) {
            if let State::Done(messages) = first.remove() {
                self.bytes -= messages.iter().map(|it| it.payload.len()).sum::<usize>();
                out.extend(messages);
            }
        }
        if line.is_empty() {
            self.topics.remove(&topic);
        }
        out
    }

    /// An id that binds retries of one message to it; unique within this process's run.
    pub(super) fn draw_id(&mut self) -> [u8; 16] {
        self.drawn += 1;
        u128::from(self.drawn).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(index: u64, topic: &str) -> Sealed {
        let source = Source::Outside(sealcast_wire::Address::Node(0));
        let (header, body, attachments) = (Vec::new(), vec![7; 100], Vec::new());
        let of = Some(Of { source, topic: topic.into(), sent_micros: None });
        Sealed { index, header, body, attachments, of }
    }

    #[test]
    fn a_topics_messages_wait_for_the_first_and_bottom_is_skipped() {
        let mut opening = Opening::default();
        for (index, topic) in [(1, "market"), (2, "market"), (3, "market"), (4, "other")] {
            assert!(opening.keep(sealed(index, topic)));
            assert_eq!(opening.next(|bytes| bytes == 100).map(|it| it.index), Some(index));
        }
        assert!(opening.opened(3, None, Some(vec![vec![3], vec![4]]), None).is_empty());
        assert_eq!(opening.bytes, 2, "what is opened and waits counts");
        assert_eq!(opening.opened(4, None, Some(vec![vec![4]]), None).len(), 1, "topics do not wait for each other");
        assert!(opening.opened(2, None, None, None).is_empty());
        let out: Vec<u64> = opening.opened(1, None, Some(vec![vec![1]]), None).iter().map(|m| m.sequence).collect();
        assert_eq!(out, [1, 3, 3], "what was sealed together has one place");
        assert!(opening.topics.is_empty() && opening.topic_of.is_empty() && opening.bytes == 0);
    }

    #[test]
    fn what_the_transport_wants_opened_disturbs_no_topics_order() {
        let mut opening = Opening::default();
        assert!(opening.keep(sealed(1, "a")));
        opening.want(0, Vec::new(), vec![7; 50]);
        assert!(opening.is_behind(), "the transport brings no more until these have room");
        assert_eq!([0, 0].map(|_| opening.next(|_| true).map(|it| it.index)), [Some(1), Some(0)]);
        assert!(!opening.is_behind() && opening.bytes == 0);
        assert!(opening.opened(0, None, Some(vec![vec![0]]), None).is_empty(), "the application did not ask for it");
        assert_eq!(opening.opened(1, None, Some(vec![vec![1]]), None).len(), 1);
    }

    #[test]
    fn what_has_no_room_is_kept_in_its_order_and_the_way_is_asked_to_wait() {
        let mut opening = Opening::default();
        assert!(opening.keep(sealed(1, "a")) && opening.keep(sealed(2, "a")));
        assert!(opening.next(|_| false).is_none() && opening.is_behind());
        assert_eq!([0, 0].map(|_| opening.next(|_| true).map(|it| it.index)), [Some(1), Some(2)]);
        assert!(!opening.is_behind() && opening.bytes == 0);
        let most = (0..).take_while(|index| opening.keep(sealed(*index, "b"))).count();
        assert_eq!(most, limits::EARLY_DATAGRAMS_MAX);
    }
}
