//! `mem:`: sessions of one process that name the same place hear each other.
//!
//! A place exists as long as a session is in it. It is found by its name alone, so the list of places is
//! the one thing that all sessions of a process share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use sealcast_delivery::Batch;
use sealcast_delivery::memory::Orderer;
use sealcast_wire::{Address, limits};

use super::Shared;
use crate::group::lock;

static PLACES: Mutex<BTreeMap<String, Weak<Place>>> = Mutex::new(BTreeMap::new());

/// Where datagrams meet.
#[derive(Default)]
pub(super) struct Place {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u32,
    members: BTreeMap<u32, Weak<Shared>>,
    inboxes: BTreeMap<u32, Vec<Datagram>>,
    orderer: Orderer,
}

type Datagram = (Address, Vec<u8>);

/// A session's door to a place.
pub(super) struct Door {
    place: Arc<Place>,
    node: u32,
}

impl Door {
    /// Enters a place, which is made if nobody is in it.
    pub(super) fn enter(name: &str) -> Door {
        let mut places = lock(&PLACES);
        places.retain(|_, place| place.strong_count() > 0);
        let place = places.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
            let place = Arc::new(Place::default());
            places.insert(name.to_owned(), Arc::downgrade(&place));
            place
        });
        let mut state = lock(&place.state);
        state.next += 1;
        let node = state.next;
        state.inboxes.insert(node, Vec::new());
        drop(state);
        Door { place, node }
    }

    /// Whom to wake when something comes.
    pub(super) fn attend(&self, shared: &Arc<Shared>) {
        lock(&self.place.state).members.insert(self.node, Arc::downgrade(shared));
    }

    /// What has come.
    pub(super) fn receive(&self) -> Vec<Datagram> {
        lock(&self.place.state).inboxes.get_mut(&self.node).map(std::mem::take).unwrap_or_default()
    }

    /// Sends to everybody, ourselves included, or to the orderer.
    pub(super) fn send(&self, batch: &Batch) {
        let mut state = lock(&self.place.state);
        let from = Address::Node(self.node);
        for datagram in batch.iter() {
            match batch.to {
                Some(ORDERER) => {
                    state.orderer.handle(from, datagram);
                    while let Some((to, ordered)) = state.orderer.poll() {
                        state.put(ORDERER, to, &ordered);
                    }
                }
                to => state.put(from, to, datagram),
            }
        }
        let members: Vec<Arc<Shared>> = state.members.values().filter_map(Weak::upgrade).collect();
        drop(state);
        members.iter().for_each(|member| member.lease.wake());
    }
}

impl State {
    fn put(&mut self, from: Address, to: Option<Address>, datagram: &[u8]) {
        for (node, inbox) in &mut self.inboxes {
            let meant = to.is_none_or(|to| to == Address::Node(*node));
            if meant && inbox.len() < limits::MEMORY_INBOX_DATAGRAMS_MAX {
                inbox.push((from, datagram.to_vec()));
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let mut state = lock(&self.place.state);
        state.members.remove(&self.node);
        state.inboxes.remove(&self.node);
    }
}

/// The orderer's address in every place.
pub(super) const ORDERER: Address = Address::Node(0);
