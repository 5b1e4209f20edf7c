//! Messages of ways that seal per message: held until each is opened or ⊥, and then delivered topic by
//! topic in the way's order.

use std::collections::BTreeMap;
use std::sync::Arc;

use sealcast_wire::{CertHash, Dropped, Source, limits};

use super::gate::Epoch;
use super::message::{From, Message};

/// See the module.
#[derive(Default)]
pub(super) struct Opening {
    topics: BTreeMap<Arc<str>, BTreeMap<u64, State>>,
    topic_of: BTreeMap<u64, Arc<str>>,
    drawn: u64,
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
    /// A sealed message came; it takes its place in its topic's order.
    pub(super) fn wait(
        &mut self,
        index: u64,
        topic: Arc<str>,
        sent_micros: Option<u64>,
        from: Source,
    ) -> Result<(), Dropped> {
        if self.topic_of.len() >= limits::HELD_DATAGRAMS_MAX {
            return Err(Dropped::Queue);
        }
        self.topic_of.insert(index, topic.clone());
        self.topics.entry(topic).or_default().entry(index).or_insert(State::Waits { sent_micros, from });
        Ok(())
    }

    /// Whether no more should come until some of it is opened.
    pub(super) fn is_behind(&self) -> bool {
        self.topic_of.len() >= limits::HELD_DATAGRAMS_MAX / 2
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
            let message =
                |payload| Message { from: from.clone(), topic: topic.clone(), sequence: index, sent_micros, payload };
            *state = State::Done(bodies.into_iter().flatten().map(message).collect());
        }
        let mut out = Vec::new();
        while let Some(first) = line.first_entry().filter(|e| matches!(e.get(), State::Done(_))) {
            if let State::Done(messages) = first.remove() {
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

    #[test]
    fn a_topics_messages_wait_for_the_first_and_bottom_is_skipped() {
        let mut opening = Opening::default();
        let outside = Source::Outside(sealcast_wire::Address::Node(0));
        for index in 1..=3 {
            opening.wait(index, "market".into(), None, outside).unwrap();
        }
        opening.wait(4, "other".into(), None, outside).unwrap();
        assert!(opening.opened(3, None, Some(vec![vec![3], vec![4]]), None).is_empty());
        assert_eq!(opening.opened(4, None, Some(vec![vec![4]]), None).len(), 1, "topics do not wait for each other");
        assert!(opening.opened(2, None, None, None).is_empty());
        let out: Vec<u64> = opening.opened(1, None, Some(vec![vec![1]]), None).iter().map(|m| m.sequence).collect();
        assert_eq!(out, [1, 3, 3], "what was sealed together has one place");
        assert!(opening.topics.is_empty() && opening.topic_of.is_empty());
    }
}
