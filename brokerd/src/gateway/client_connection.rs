//! What a client is to the gateway, from its hello on: an unregistered client, or somebody for whom there is a place.

use std::sync::Arc;

use sealcast_broker::operation::Client;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::unauthenticated::Slot;
use super::{ClientStatus, Handler, Shared};

/// A client at the gateway.
pub(super) struct ClientConnection {
    client: Client,
    access: Access,
}

enum Access {
    /// One that can be lost.
    Unauthenticated(Slot),
    /// One of the registered.
    Registered {
        _permit: OwnedSemaphorePermit,
        /// What all clients of its holder share of [`Quotas::reading`].
        reading: Arc<Semaphore>,
    },
    /// A broker's: there are few of them, each with one channel.
    Broker,
}

/// What clients of a kind share.
pub(super) struct Quotas {
    /// One permit for each byte of long messages.
    pub(super) reading: Semaphore,
    /// One permit for each open query.
    pub(super) queries: Arc<Semaphore>,
    /// One permit for each thread that answers.
    pub(super) workers: Arc<Semaphore>,
    /// Bytes of one message.
    pub(super) request_bytes: usize,
    /// Open queries of one client.
    pub(super) queries_each: usize,
    /// A thread rests so many times as long as an answer took it.
    pub(super) rest: u32,
}

impl ClientConnection {
    /// Unauthenticated, until it is looked up.
    pub(super) fn new(client: Client, slot: Slot) -> ClientConnection {
        ClientConnection { client, access: Access::Unauthenticated(slot) }
    }

    /// Told when its place is lost; never, if it has one of its own.
    pub(super) fn lost(&self) -> Arc<Notify> {
        match &self.access {
            Access::Unauthenticated(slot) => slot.lost(),
            Access::Registered { .. } | Access::Broker => Arc::new(Notify::new()),
        }
    }

    pub(super) fn is_unregistered(&self) -> bool {
        matches!(self.access, Access::Unauthenticated(_))
    }

    /// What it may use.
    pub(super) fn quotas<'a>(&self, shared: &'a Shared) -> &'a Quotas {
        if self.is_unregistered() { &shared.unregistered } else { &shared.known }
    }

    /// Its holder's part of what all long messages share.
    pub(super) fn reading(&self) -> Option<Arc<Semaphore>> {
        match &self.access {
            Access::Registered { reading, .. } => Some(reading.clone()),
            Access::Unauthenticated(_) | Access::Broker => None,
        }
    }

    /// It is this now: a client that is known leaves the unauthenticated ones, if there is a slot.
    pub(super) fn is(&mut self, status: ClientStatus, shared: &Shared) {
        let access = match status {
            ClientStatus::Unregistered => None,
            ClientStatus::Broker => Some(Access::Broker),
            ClientStatus::Registered(holder) => {
                let permit = shared.registered.clone().try_acquire_owned().ok();
                permit.map(|_permit| Access::Registered { _permit, reading: shared.reading_of(holder) })
            }
        };
        if let (true, Some(access)) = (self.is_unregistered(), access) {
            self.access = access;
        }
    }

    /// Looks whether an unregistered client is one still; it may have registered meanwhile.
    pub(super) async fn look_again(&mut self, shared: &Shared, service: &Arc<dyn Handler>) {
        if !self.is_unregistered() {
            return;
        }
        let (service, client) = (service.clone(), self.client);
        // Each unregistered client waits for one such look at a time.
        let Ok(_lane) = shared.welcomes.acquire().await else { return };
        if let Ok(status) = tokio::task::spawn_blocking(move || service.client_status(&client)).await {
            self.is(status, shared);
        }
    }
}
