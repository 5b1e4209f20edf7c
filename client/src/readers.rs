//! What readers of subscriptions get, in order, while some of it is still sealed; and how much of that may wait.
//!
//! ```text
//!   one reader:   ready │ sealed │ opened │ sealed │ sealed      items behind a sealed one wait for it
//!                   │       │               └──────┴───────── unopened: the keys have no room yet, or there is no key
//!                   │       └── with the keys, until shares open it
//!                   └── until the reader takes it
//! ```
//! A sealed publication is kept here until the keys have room for it, so that no reader waits for one that the keys dropped.
//! While a reader does not keep up, or too much waits, the brokers are asked for no more ([`Readers::is_behind`]); shares
//! come on meanwhile.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sealcast_broker::operation::{Body, Publication};
use sealcast_broker::state::Entry;
use sealcast_wire::{SealedHeader, limits};

use super::item::{Content, Item, Took};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Readers {
    /// By subscription.
    readers: BTreeMap<u64, Reader>,
    /// In the order of the brokers, each once, whoever waits for it; and whether it is read without a subscription.
    unopened: VecDeque<(Sealed, bool)>,
}

/// A sealed publication.
#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) entry: Box<Entry>,
    pub(super) associated: Vec<u8>,
    /// [`SealedHeader`], encoded.
    pub(super) header: Vec<u8>,
    pub(super) ciphertext: Vec<u8>,
}

/// One subscription's reader.
#[derive(Debug, Default)]
struct Reader {
    ready: VecDeque<Item>,
    /// Items that were handed over and that the reader has not taken.
    handed: usize,
    /// Bytes of these and of those in `ready`.
    ready_bytes: usize,
    waiting: VecDeque<Waiting>,
    /// Bytes of bodies and ciphertexts in `waiting`.
    bytes: usize,
}

#[derive(Debug)]
enum Waiting {
    Opened(Item),
    Sealed { place: u64, entry: Box<Entry>, associated: Vec<u8>, bytes: usize },
}

impl Readers {
    /// Somebody reads this subscription from now on.
    pub(super) fn begin(&mut self, subscription: u64) {
        self.readers.insert(subscription, Reader::default());
    }

    /// Nobody reads it any more.
    pub(super) fn end(&mut self, subscription: u64) {
        self.readers.remove(&subscription);
        let waiting = self.readers.values().flat_map(|it| &it.waiting).filter_map(|it| match it {
            Waiting::Sealed { entry, .. } => Some(entry.sn),
            Waiting::Opened(_) => None,
        });
        let waited_for: BTreeSet<u64> = waiting.collect();
        self.unopened.retain(|(it, is_read)| *is_read || waited_for.contains(&it.entry.sn));
    }

    /// Whether somebody reads this subscription.
    pub(super) fn is_read(&self, subscription: u64) -> bool {
        self.readers.contains_key(&subscription)
    }

    /// The subscriptions that somebody reads.
    pub(super) fn subscriptions(&self) -> impl Iterator<Item = u64> {
        self.readers.keys().copied()
    }

    /// Something that needs no opening.
    pub(super) fn put(&mut self, subscription: u64, item: Item) {
        if let Some(reader) = self.readers.get_mut(&subscription) {
            reader.bytes += item.bytes();
            reader.waiting.push_back(Waiting::Opened(item));
            reader.advance();
        }
    }

    /// A sealed publication.
    pub(super) fn put_sealed(&mut self, subscription: u64, place: u64, sealed: Sealed) {
        let is_known = self.waits_for(sealed.entry.sn);
        if let Some(reader) = self.readers.get_mut(&subscription) {
            let (entry, associated) = (sealed.entry.clone(), sealed.associated.clone());
            reader.bytes += sealed.bytes();
            reader.waiting.push_back(Waiting::Sealed { place, entry, associated, bytes: sealed.bytes() });
            if !is_known {
                self.unopened.push_back((sealed, false));
            }
        }
    }

    /// A sealed publication that somebody reads without a subscription: it goes before those that subscriptions wait for.
    pub(super) fn put_first(&mut self, sealed: Sealed) {
        self.unopened.push_front((sealed, true));
    }

    /// Nobody reads it without a subscription any more.
    pub(super) fn end_read(&mut self, sn: u64) {
        self.unopened.retain(|(it, is_read)| !*is_read || it.entry.sn != sn);
    }

    /// The next one to be opened.
    pub(super) fn next_to_open(&mut self) -> Option<Sealed> {
        self.unopened.pop_front().map(|(sealed, _)| sealed)
    }

    /// Whether something is to be opened that the keys have not got.
    pub(super) fn has_unopened(&self) -> bool {
        !self.unopened.is_empty()
    }

    /// Whether a reader waits for a sealed publication.
    fn waits_for(&self, sn: u64) -> bool {
        let is_it = |it: &Waiting| matches!(it, Waiting::Sealed { entry, .. } if entry.sn == sn);
        self.readers.values().any(|reader| reader.waiting.iter().any(is_it))
    }

    /// A sealed publication opened, or is ⊥.
    pub(super) fn settle(&mut self, sn: u64, bodies: Option<&[Vec<u8>]>) {
        self.readers.values_mut().for_each(|reader| reader.settle(sn, bodies));
    }

    /// The next item of a subscription.
    pub(super) fn take(&mut self, subscription: u64) -> Option<Item> {
        let reader = self.readers.get_mut(&subscription)?;
        let item = reader.ready.pop_front()?;
        reader.ready_bytes -= item.bytes();
        Some(item)
    }

    /// Hands over all items of a subscription that can be taken; they count as waiting until they are.
    pub(super) fn hand_over(&mut self, subscription: u64) -> VecDeque<Item> {
        let Some(reader) = self.readers.get_mut(&subscription) else { return VecDeque::new() };
        reader.handed += reader.ready.len();
        std::mem::take(&mut reader.ready)
    }

    /// The reader has taken some of what was handed over.
    pub(super) fn took(&mut self, subscription: u64, took: &Took) {
        if let Some(reader) = self.readers.get_mut(&subscription) {
            reader.handed = reader.handed.saturating_sub(took.items);
            reader.ready_bytes = reader.ready_bytes.saturating_sub(took.bytes);
        }
    }

    /// How many items of a subscription can be taken.
    pub(super) fn ready(&self, subscription: u64) -> usize {
        self.readers.get(&subscription).map_or(0, |reader| reader.ready.len())
    }

    /// Whether no more may come: a reader does not keep up, or too much waits (G7).
    pub(super) fn is_behind(&self) -> bool {
        let bytes: usize = self.readers.values().map(|reader| reader.bytes).sum();
        bytes >= limits::CLIENT_WAITING_BYTES_MAX || self.readers.values().any(Reader::is_full)
    }
}

impl Sealed {
    /// What the keys need to open a publication; `None` if it is not sealed.
    pub(super) fn of(entry: &Entry, publication: Publication) -> Option<Sealed> {
        let header = SealedHeader { client: entry.client.0, number: entry.number, envelope: publication.envelope() };
        let Body::Sealed(ciphertext) = publication.body else { return None };
        let (entry, header) = (Box::new(entry.clone()), header.to_bytes());
        Some(Sealed { entry, associated: publication.associated, header, ciphertext })
    }

    fn bytes(&self) -> usize {
        self.header.len() + self.ciphertext.len()
    }
}

impl Reader {
    fn is_full(&self) -> bool {
        self.ready.len() + self.handed >= limits::SUBSCRIBER_MESSAGES
            || self.ready_bytes >= limits::CLIENT_WAITING_BYTES_MAX
            || self.waiting.len() >= limits::SUBSCRIBER_MESSAGES
    }

    fn settle(&mut self, sn: u64, bodies: Option<&[Vec<u8>]>) {
        for it in &mut self.waiting {
            let Waiting::Sealed { place, entry, associated, bytes } = it else { continue };
            if entry.sn == sn {
                let (place, entry, associated) = (*place, entry.clone(), std::mem::take(associated));
                let item = match bodies {
                    Some(bodies) => {
                        Item::Publication { place, entry, associated, content: Content::Bodies(bodies.to_vec()) }
                    }
                    None => Item::Empty { place, count: 1 },
                };
                self.bytes = self.bytes - *bytes + item.bytes();
                *it = Waiting::Opened(item);
            }
        }
        self.advance();
    }

    fn advance(&mut self) {
        while let Some(next) = self.waiting.pop_front_if(|it| matches!(it, Waiting::Opened(_))) {
            if let Waiting::Opened(item) = next {
                self.bytes -= item.bytes();
                self.ready_bytes += item.bytes();
                self.ready.push_back(item);
            }
        }
    }
}
