//! Gives messages their positions in one total order, and keeps what others fetch: an untrusted party that holds no key
//! and judges nothing.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;

use sealcast_wire::limits::{OFFERS_MAX, ORDERED_MESSAGES_MAX};
use sealcast_wire::{Address, Dropped, Drops, Fetch, Fetched};

use super::frame::{Chain, EntryId, Frame, chained};
use super::{Outbox, open_content, open_datagram};

/// The orderer's machine: datagrams in, datagrams out, no clock.
#[derive(Clone, Debug, Default)]
pub struct Orderer {
    /// Each with the hash of all before it.
    log: Vec<(EntryId, Chain, Vec<u8>)>,
    chain: Chain,
    places: BTreeMap<EntryId, u64>,
    offers: BTreeMap<Fetch, Vec<u8>>,
    outbox: Outbox,
    drops: Drops,
}

impl Orderer {
    /// An orderer with an empty order.
    pub fn new() -> Orderer {
        Orderer::default()
    }

    /// A datagram has come.
    pub fn handle(&mut self, from: Address, datagram: &[u8]) {
        match open_content(datagram).and_then(Frame::parse) {
            Ok(Frame::Submit { id, payload }) => self.submit(from, id, payload),
            Ok(Frame::Again { from: index }) => self.again(from, index),
            // What is asked of brokers is not for us.
            Ok(Frame::Fetch { what: Fetch::Shares { .. }, .. }) => {}
            Ok(Frame::Fetch { id, what }) => {
                let result = self.find(&what).map_or(Fetched::Missing, |b| Fetched::Bytes(b.to_vec()));
                self.answer(from, &Frame::Answer { id, result });
            }
            Ok(Frame::Provide { what, bytes }) => self.keep(from, what, bytes),
            Ok(_) => {}
            Err(_) => self.drops.count(Dropped::Malformed),
        }
    }

    /// The next datagram to be sent; `None` as destination is the group.
    pub fn poll(&mut self) -> Option<(Option<Address>, Vec<u8>)> {
        self.outbox.pop_front()
    }

    /// How many messages have a place.
    pub fn ordered(&self) -> u64 {
        self.log.len() as u64
    }

    /// What was dropped so far.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    fn submit(&mut self, from: Address, id: EntryId, payload: &[u8]) {
        let next = self.log.len() as u64;
        let index = match self.places.entry(id) {
            MapEntry::Occupied(place) => *place.get(),
            MapEntry::Vacant(_) if self.log.len() >= ORDERED_MESSAGES_MAX => return self.drops.count(Dropped::Queue),
            MapEntry::Vacant(place) => {
                place.insert(next);
                let before = self.chain;
                self.chain = chained(&before, &id);
                self.log.push((id, before, payload.to_vec()));
                self.outbox.push_back((None, open_datagram(&Frame::Entry { index: next, id, before, payload })));
                next
            }
        };
        let before = self.log[usize::try_from(index).expect("an index below the log's length")].1;
        self.answer(from, &Frame::Ordered { id, index, before });
    }

    fn again(&mut self, to: Address, index: u64) {
        let next = self.log.len() as u64;
        self.answer(to, &Frame::Head { next });
        let from = usize::try_from(index.min(next)).expect("an index below the log's length");
        for (i, (id, before, payload)) in self.log.iter().enumerate().skip(from).take(RESENT_AT_ONCE) {
            let entry = Frame::Entry { index: i as u64, id: *id, before: *before, payload };
            self.outbox.push_back((Some(to), open_datagram(&entry)));
        }
    }

    fn find(&self, what: &Fetch) -> Option<&[u8]> {
        self.offers.get(what).map(Vec::as_slice)
    }

    fn keep(&mut self, from: Address, what: Fetch, bytes: &[u8]) {
        if let Fetch::Blob(hash) = what
            && sealcast_crypto::hash::sha256(bytes) != hash
        {
            return self.drops.count(Dropped::Auth);
        }
        if self.offers.len() >= OFFERS_MAX && !self.offers.contains_key(&what) {
            return self.drops.count(Dropped::Queue);
        }
        self.offers.insert(what.clone(), bytes.to_vec());
        self.answer(from, &Frame::Kept { what });
    }

    fn answer(&mut self, to: Address, frame: &Frame<'_>) {
        self.outbox.push_back((Some(to), open_datagram(frame)));
    }
}

/// Messages resent for one request.
const RESENT_AT_ONCE: usize = 32;
