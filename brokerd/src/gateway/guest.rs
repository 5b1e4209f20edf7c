//! What a client is to the door, from its hello on: a stranger, or somebody for whom there is a place.

use std::sync::Arc;

use sealcast_broker::operation::Client;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::lobby::Seat;
use super::{ClientStatus, Service, Shared};

/// A client at the door.
pub(super) struct Guest {
    client: Client,
    access: Access,
}

enum Access {
    /// One that can be lost.
    Lobby(Seat),
    /// One of the registered.
    Registered {
        _permit: OwnedSemaphorePermit,
        /// What all clients of its holder share of [`Means::reading`].
        reading: Arc<Semaphore>,
    },
    /// A broker's: there are few of them, each with one channel.
    Broker,
}

/// What clients of a kind share.
pub(super) struct Means {
    /// One permit for each byte of long messages.
    pub(super) reading: Semaphore,
    /// One permit for each open query.
    pub(super) queries: Arc<Semaphore>,
    /// One permit for each thread that answers.
    pub(super) lane: Arc<Semaphore>,
    /// Bytes of one message.
    pub(super) request_bytes: usize,
    /// Open queries of one client.
    pub(super) queries_each: usize,
    /// A thread rests so many times as long as an answer took it.
    pub(super) rest: u32,
}

impl Guest {
    /// In the lobby, until it is looked up.
    pub(super) fn new(client: Client, seat: Seat) -> Guest {
        Guest { client, access: Access::Lobby(seat) }
    }

    /// Told when its place is lost; never, if it has one of its own.
    pub(super) fn lost(&self) -> Arc<Notify> {
        match &self.access {
            Access::Lobby(seat) => seat.lost(),
            Access::Registered { .. } | Access::Broker => Arc::new(Notify::new()),
        }
    }

    pub(super) fn is_stranger(&self) -> bool {
        matches!(self.access, Access::Lobby(_))
    }

    /// What it may use.
    pub(super) fn means<'a>(&self, shared: &'a Shared) -> &'a Means {
        if self.is_stranger() { &shared.strangers } else { &shared.known }
    }

    /// Its holder's part of what all long messages share.
    pub(super) fn reading(&self) -> Option<Arc<Semaphore>> {
        match &self.access {
            Access::Registered { reading, .. } => Some(reading.clone()),
            Access::Lobby(_) | Access::Broker => None,
        }
    }

    /// It is this now: whoever is known leaves the lobby, if there is a place.
    pub(super) fn is(&mut self, status: ClientStatus, shared: &Shared) {
        let access = match status {
            ClientStatus::Stranger => None,
            ClientStatus::Broker => Some(Access::Broker),
            ClientStatus::Registered(holder) => {
                let permit = shared.registered.clone().try_acquire_owned().ok();
                permit.map(|_permit| Access::Registered { _permit, reading: shared.reading_of(holder) })
            }
        };
        if let (true, Some(access)) = (self.is_stranger(), access) {
            self.access = access;
        }
    }

    /// Looks whether a stranger is one still; it may have registered meanwhile.
    pub(super) async fn look_again(&mut self, shared: &Shared, service: &Arc<dyn Service>) {
        if !self.is_stranger() {
            return;
        }
        let (service, client) = (service.clone(), self.client);
        // Each stranger waits for one such look at a time.
        let Ok(_lane) = shared.welcomes.acquire().await else { return };
        if let Ok(status) = tokio::task::spawn_blocking(move || service.client_status(&client)).await {
            self.is(status, shared);
        }
    }
}
