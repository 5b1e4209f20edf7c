//! What subscriptions are handed, in their order, while some of it is still sealed; and how much of that may wait.
//!
//! ```text
//!            lines   ready │ sealed │ ready │ sealed │ sealed      what is behind a sealed one waits for it
//!                                │               └──────┴───────── unopened: no room with the keys yet, or no key
//!                                └── with the keys, until shares open it
//! ```
//! A sealed publication is kept here until the keys have room for it: they drop what is too much for them, and a line whose
//! head is never opened would stand still for good. So that the rest is bounded too, no more is asked for while a reader is
//! behind or too much waits ([`Lines::is_behind`]); shares come on meanwhile.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sealcast_broker::state::Entry;
use sealcast_client::{Content, Item};
use sealcast_wire::limits;

use super::inbox::Inbox;
use crate::error::Error;

/// See the module.
#[derive(Default)]
pub(super) struct Lines {
    /// By subscription.
    lines: BTreeMap<u64, Line>,
    /// In the order of the brokers, each once, whoever waits for it; and whether it is read without a subscription.
    unopened: VecDeque<(Sealed, bool)>,
}

/// A sealed publication.
pub(super) struct Sealed {
    pub(super) entry: Box<Entry>,
    pub(super) associated: Vec<u8>,
    /// `sealcast_wire::SealedHeader`, encoded.
    pub(super) header: Vec<u8>,
    pub(super) ciphertext: Vec<u8>,
}

/// What one subscription waits to hand over.
struct Line {
    inbox: Arc<Inbox>,
    waiting: VecDeque<Waiting>,
    /// Bytes of bodies and ciphertexts in it.
    bytes: usize,
}

enum Waiting {
    Ready(Item),
    Sealed { place: u64, entry: Box<Entry>, associated: Vec<u8>, bytes: usize },
}

impl Lines {
    /// Somebody reads this subscription from now on.
    pub(super) fn begin(&mut self, subscription: u64) -> Arc<Inbox> {
        let inbox = Arc::new(Inbox::new(subscription));
        self.lines.insert(subscription, Line { inbox: inbox.clone(), waiting: VecDeque::new(), bytes: 0 });
        inbox
    }

    /// Nobody does any more.
    pub(super) fn end(&mut self, subscription: u64) {
        self.lines.remove(&subscription);
        let waiting = self.lines.values().flat_map(|line| &line.waiting).filter_map(|it| match it {
            Waiting::Sealed { entry, .. } => Some(entry.sn),
            Waiting::Ready(_) => None,
        });
        let waited_for: BTreeSet<u64> = waiting.collect();
        self.unopened.retain(|(it, is_read)| *is_read || waited_for.contains(&it.entry.sn));
    }

    /// Nothing will come any more.
    pub(super) fn close(&self, why: &Error) {
        self.lines.values().for_each(|line| line.inbox.close(why.clone()));
    }

    /// Whether somebody reads this subscription.
    pub(super) fn is_read(&self, subscription: u64) -> bool {
        self.lines.contains_key(&subscription)
    }

    /// What each reader has taken since the last call: subscription, place behind it, sn.
    pub(super) fn taken(&self) -> Vec<(u64, u64, Option<u64>)> {
        let taken = |(id, line): (&u64, &Line)| line.inbox.taken().map(|(place, sn)| (*id, place, sn));
        self.lines.iter().filter_map(taken).collect()
    }

    /// Something that needs no opening.
    pub(super) fn put(&mut self, subscription: u64, item: Item) {
        if let Some(line) = self.lines.get_mut(&subscription) {
            line.bytes += item.bytes();
            line.waiting.push_back(Waiting::Ready(item));
        }
    }

    /// A sealed publication.
    pub(super) fn put_sealed(&mut self, subscription: u64, place: u64, sealed: Sealed) {
        let is_known = self.waits_for(sealed.entry.sn);
        if let Some(line) = self.lines.get_mut(&subscription) {
            let (entry, associated) = (sealed.entry.clone(), sealed.associated.clone());
            line.bytes += sealed.bytes();
            line.waiting.push_back(Waiting::Sealed { place, entry, associated, bytes: sealed.bytes() });
            if !is_known {
                self.unopened.push_back((sealed, false));
            }
        }
    }

    /// A sealed publication that somebody reads: it goes before what subscriptions wait for.
    pub(super) fn put_first(&mut self, sealed: Sealed) {
        self.unopened.push_front((sealed, true));
    }

    /// Nobody reads it without a subscription any more.
    pub(super) fn end_read(&mut self, sn: u64) {
        self.unopened.retain(|(it, is_read)| !*is_read || it.entry.sn != sn);
    }

    /// The next one for the keys, if they have room for so many bytes.
    pub(super) fn next_to_open(&mut self, has_room: impl FnOnce(usize) -> bool) -> Option<Sealed> {
        let (first, _) = self.unopened.front()?;
        if has_room(first.bytes()) { self.unopened.pop_front().map(|(first, _)| first) } else { None }
    }

    /// Whether something is to be opened that the keys have not got.
    pub(super) fn has_unopened(&self) -> bool {
        !self.unopened.is_empty()
    }

    /// Whether a line waits for a sealed publication.
    pub(super) fn waits_for(&self, sn: u64) -> bool {
        let is_it = |it: &Waiting| matches!(it, Waiting::Sealed { entry, .. } if entry.sn == sn);
        self.lines.values().any(|line| line.waiting.iter().any(is_it))
    }

    /// A sealed publication opened, or is ⊥.
    pub(super) fn settle(&mut self, sn: u64, bodies: Option<&Vec<Vec<u8>>>) {
        self.lines.values_mut().for_each(|line| line.settle(sn, bodies));
    }

    /// Hands over what is ready, in order.
    pub(super) fn advance(&mut self) {
        self.lines.values_mut().for_each(Line::advance);
    }

    /// Whether no more may come: a reader does not keep up, or too much waits (G7).
    pub(super) fn is_behind(&self) -> bool {
        let is_full = |line: &Line| line.inbox.is_full() || line.waiting.len() >= limits::SUBSCRIBER_MESSAGES;
        let bytes: usize = self.lines.values().map(|line| line.bytes).sum();
        self.lines.values().any(is_full) || bytes >= limits::CLIENT_WAITING_BYTES_MAX
    }
}

impl Sealed {
    fn bytes(&self) -> usize {
        self.header.len() + self.ciphertext.len()
    }
}

impl Line {
    fn settle(&mut self, sn: u64, bodies: Option<&Vec<Vec<u8>>>) {
        for it in &mut self.waiting {
            let Waiting::Sealed { place, entry, associated, bytes } = it else { continue };
            if entry.sn == sn {
                let (place, entry, associated) = (*place, entry.clone(), std::mem::take(associated));
                let item = match bodies {
                    Some(bodies) => {
                        Item::Publication { place, entry, associated, content: Content::Bodies(bodies.clone()) }
                    }
                    None => Item::Empty { place, count: 1 },
                };
                self.bytes = self.bytes - *bytes + item.bytes();
                *it = Waiting::Ready(item);
            }
        }
    }

    fn advance(&mut self) {
        let ready = self.waiting.iter().take_while(|it| matches!(it, Waiting::Ready(_))).count();
        if ready > 0 {
            let items = self.waiting.drain(..ready).filter_map(|it| match it {
                Waiting::Ready(item) => Some(item),
                Waiting::Sealed { .. } => None,
            });
            let bytes = &mut self.bytes;
            self.inbox.extend(items.inspect(|item| *bytes -= item.bytes()));
        }
    }
}
