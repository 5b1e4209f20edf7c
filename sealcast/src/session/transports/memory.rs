//! `mem:`: sessions of one process that name the same place hear each other.
//!
//! A place exists as long as a session is in it. It is found by its name alone, so the list of places is
//! the one thing that all sessions of a process share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use mio::Registry;
use sealcast_delivery::memory::{BestEffort, Ordered, Orderer, Start};
use sealcast_delivery::{Batch, Delivery};
use sealcast_keys::Notice;
use sealcast_wire::{Address, Now, limits};

use super::{Carrier, Fault, Listening, Shell, Transport};
use crate::error::{Error, Result};
use crate::group::lock;
use crate::io::rng;
use crate::session::driver::AnyCore;

static HUBS: Mutex<BTreeMap<String, Weak<Hub>>> = Mutex::new(BTreeMap::new());

/// Where datagrams meet.
#[derive(Default)]
struct Hub {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u32,
    wakers: BTreeMap<u32, Arc<mio::Waker>>,
    inboxes: BTreeMap<u32, Vec<Datagram>>,
    orderer: Orderer,
}

type Datagram = (Address, Vec<u8>);

/// A session that names a place, which `ordered` ones share an orderer in.
pub(super) fn open(name: &str, ordered: bool, plain: bool, waker: &Arc<mio::Waker>) -> Result<Transport> {
    let first = || Ok::<_, Error>(u64::from_be_bytes(rng::bytes()?));
    let delivery: Box<dyn Delivery> = match (ordered, plain) {
        (true, true) => Box::new(Ordered::plain(ORDERER, Start::Head, first()?)),
        (true, false) => Box::new(Ordered::new(ORDERER, Start::Head)),
        (false, true) => Box::new(BestEffort::plain()),
        (false, false) => Box::new(BestEffort::new()),
    };
    Ok(at_hub(name, delivery, waker))
}

/// Any transport's machine whose datagrams meet at a place.
pub(in crate::session) fn at_hub(name: &str, delivery: Box<dyn Delivery>, waker: &Arc<mio::Waker>) -> Transport {
    let memory_link: Box<dyn Shell> = Box::new(MemoryLink::enter(name, waker.clone()));
    Transport { delivery, shell: Box::new(|_| (memory_link, None)), brokers: None }
}

/// A session's link to a place.
struct MemoryLink {
    hub: Arc<Hub>,
    node: u32,
}

impl MemoryLink {
    /// Enters a place, which is made if nobody is in it; `waker` is told when something comes.
    fn enter(name: &str, waker: Arc<mio::Waker>) -> MemoryLink {
        let mut hubs = lock(&HUBS);
        hubs.retain(|_, hub| hub.strong_count() > 0);
        let hub = hubs.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
            let hub = Arc::new(Hub::default());
            hubs.insert(name.to_owned(), Arc::downgrade(&hub));
            hub
        });
        let mut state = lock(&hub.state);
        state.next += 1;
        let node = state.next;
        state.inboxes.insert(node, Vec::new());
        state.wakers.insert(node, waker);
        drop(state);
        MemoryLink { hub, node }
    }

    /// What has come.
    fn take(&self) -> Vec<Datagram> {
        lock(&self.hub.state).inboxes.get_mut(&self.node).map(std::mem::take).unwrap_or_default()
    }
}

impl Shell for MemoryLink {
    fn listen(&mut self, _registry: &Registry) -> Result<Option<Listening>> {
        Ok(None)
    }

    fn receive(&mut self, now: Now, core: &mut AnyCore) -> std::result::Result<bool, Fault> {
        let came = self.take();
        let any = !came.is_empty();
        for (from, mut datagram) in came {
            core.handle_datagram(now, from, &mut datagram);
        }
        Ok(any)
    }

    /// Sends to everybody, ourselves included, or to the orderer.
    fn send(&mut self, batch: &Batch, _published: Option<usize>) {
        let mut state = lock(&self.hub.state);
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
        let wakers: Vec<Arc<mio::Waker>> = state.wakers.values().cloned().collect();
        drop(state);
        for waker in wakers {
            // Fails only if the descriptor is gone, and then nobody waits on it.
            let _ = waker.wake();
        }
    }

    fn flush(&mut self) {}

    fn hand_over(&mut self, _now: Now) -> bool {
        false
    }

    fn timeout(&self) -> Option<Duration> {
        None
    }

    fn woken(&mut self, _token: mio::Token) {}

    fn keep(&mut self, _record: &[u8]) -> std::io::Result<bool> {
        Ok(false)
    }

    fn noticed(&mut self, _notice: &Notice) {}

    fn is_settled(&self) -> bool {
        true
    }

    fn late(&self, _patience: Duration) -> Option<Error> {
        None
    }

    fn carrier(&self) -> Option<Carrier> {
        None
    }

    fn end(&mut self, _now: Now) {}
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

impl Drop for MemoryLink {
    fn drop(&mut self) {
        let mut state = lock(&self.hub.state);
        state.wakers.remove(&self.node);
        state.inboxes.remove(&self.node);
    }
}

/// The orderer's address in every place.
const ORDERER: Address = Address::Node(0);
