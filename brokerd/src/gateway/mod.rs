//! Where clients come in: many channels on few threads.
//!
//! ```text
//! accept ─▶ TLS, the client is its key ─▶ hello ─▶ welcome ─▶ ┬ read:  submit ─▶ Service::submit
//!            └─── GATEWAY_HANDSHAKE ───┘                      │        ask ─▶ Service::answer ─┐
//!                                                             └ write: ◀── Outgoing ◀── send ──┘◀── executor
//! ```
//! Each client has one channel; a second one takes the place of the first. What a client cannot take ends its channel,
//! what nobody can understand ends it too, and both are counted ([`Drops`]). Unregistered clients have places, memory and a thread
//! of their own, and all of it is little: however many come, brokers and registered clients get in and are answered.
//!
//! | file | what |
//! |---|---|
//! | `unauthenticated` | places of those whom nobody knows |
//! | `client_connection` | what a client is to the gateway, and what it may use |
//! | `connection` | one channel |
//! | `outgoing` | what waits for a client |
//! | `traffic` | how much came and left |

mod client_connection;
mod connection;
mod outgoing;
mod traffic;
mod unauthenticated;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use sealcast_broker::genesis::Cluster;
use sealcast_broker::operation::Client;
use sealcast_broker::protocol::{Answer, Query, Refusal, Reply, Welcome};
use sealcast_broker::state::Holder;
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::limits;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::descriptors::{self, Connections};
use crate::drops::{Drops, Reason};
use client_connection::Quotas;
use outgoing::Outgoing;
use sealcast_tls as tls;
use traffic::Traffic;
use unauthenticated::UnauthenticatedConnections;

/// What a client is to a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientStatus {
    /// Nobody vouches for it: keys are free.
    Unregistered,
    /// Somebody does, for this holder.
    Registered(Holder),
    /// It is one of the brokers of genesis.
    Broker,
}

/// What stands behind the gateway. Calls come from its threads.
pub trait Handler: Send + Sync + 'static {
    /// What a client is now; may read the disk.
    fn client_status(&self, client: &Client) -> ClientStatus;

    /// What a client that comes in is told; may read the disk.
    fn welcome(&self, client: &Client) -> Welcome;

    /// Takes a batch that this client sent. A later refusal comes by [`Gateway::send`].
    ///
    /// # Errors
    /// [`Refusal`], which the client is told.
    fn submit(&self, client: &Client, batch: Bytes) -> Result<(), Refusal>;

    /// Answers a query; may read the disk.
    fn answer(&self, client: &Client, query: Query) -> Answer;

    /// Has the last word on what leaves for a client, an encoded [`Reply`]: honest brokers change nothing.
    fn says(&self, _client: &Client, message: Bytes) -> Bytes {
        message
    }
}

/// The gateway of one broker.
pub struct Gateway {
    shared: Arc<Shared>,
    runtime: Mutex<Option<Runtime>>,
}

/// What all channels share.
struct Shared {
    cluster: Cluster,
    channels: RwLock<BTreeMap<Client, Arc<Outgoing>>>,
    /// Bytes that wait for all clients.
    outgoing_bytes: Arc<AtomicUsize>,
    heard: Traffic,
    said: Traffic,
    unauthenticated: Arc<UnauthenticatedConnections>,
    /// One permit for each connection, whoever's.
    connections: Arc<Semaphore>,
    /// One permit for each channel of a registered client.
    registered: Arc<Semaphore>,
    /// One permit for each byte of long messages, by who is behind the clients that are here.
    reading: Mutex<BTreeMap<Holder, Weak<Semaphore>>>,
    unregistered: Quotas,
    /// Of registered clients and brokers.
    known: Quotas,
    /// One permit for each thread that welcomes.
    welcomes: Semaphore,
    drops: Arc<Drops>,
}

/// How much there is for whom.
struct Sizes {
    connections: Connections,
    strangers_reading_bytes: usize,
    strangers_questions: usize,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            connections: Connections::ALL,
            strangers_reading_bytes: limits::GATEWAY_READING_UNREGISTERED_BYTES_MAX,
            strangers_questions: limits::QUERIES_UNREGISTERED_TOTAL_MAX,
        }
    }
}

impl Gateway {
    /// A gateway without doors yet: replies to clients go nowhere until [`Gateway::listen`].
    pub fn new(cluster: Cluster, drops: Arc<Drops>, connections: Connections) -> Gateway {
        Gateway::sized(cluster, drops, &Sizes { connections, ..Sizes::default() })
    }

    fn sized(cluster: Cluster, drops: Arc<Drops>, sizes: &Sizes) -> Gateway {
        let unregistered = Quotas {
            reading: Semaphore::new(sizes.strangers_reading_bytes),
            queries: Arc::new(Semaphore::new(sizes.strangers_questions)),
            workers: Arc::new(Semaphore::new(1)),
            request_bytes: limits::GATEWAY_UNREGISTERED_REQUEST_BYTES_MAX,
            queries_each: limits::QUERIES_UNREGISTERED_MAX,
            rest: limits::QUERIES_UNREGISTERED_REST,
        };
        let known = Quotas {
            reading: Semaphore::new(limits::GATEWAY_READING_BYTES_MAX),
            queries: Arc::new(Semaphore::new(limits::QUERIES_TOTAL_MAX)),
            // Its threads come with the gateway.
            workers: Arc::new(Semaphore::new(0)),
            request_bytes: limits::GATEWAY_REQUEST_BYTES_MAX,
            queries_each: limits::QUERIES_MAX,
            rest: 0,
        };
        let shared = Shared {
            cluster,
            channels: RwLock::default(),
            outgoing_bytes: Arc::new(AtomicUsize::new(0)),
            heard: Traffic::default(),
            said: Traffic::default(),
            unauthenticated: UnauthenticatedConnections::new(sizes.connections.unregistered),
            connections: Arc::new(Semaphore::new(sizes.connections.total() + limits::GATEWAY_CLOSING_MAX)),
            registered: Arc::new(Semaphore::new(sizes.connections.registered)),
            reading: Mutex::default(),
            unregistered,
            known,
            welcomes: Semaphore::new(1),
            drops,
        };
        Gateway { shared: Arc::new(shared), runtime: Mutex::new(None) }
    }

    /// Opens the gateway, on `threads` threads, and says at which address it stands.
    ///
    /// # Errors
    /// If the address is in use or not ours.
    ///
    /// # Panics
    /// If it listens already.
    pub fn listen(
        &self,
        address: SocketAddr,
        key: Arc<OriginKey>,
        service: Arc<dyn Handler>,
        threads: usize,
    ) -> io::Result<SocketAddr> {
        let answering = threads.max(1) * 2;
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads.max(1))
            // One for unregistered clients and one for welcomes: no lane waits for another one.
            .max_blocking_threads(answering + 2)
            .thread_name("gateway")
            .enable_all()
            .build()?;
        let listener = runtime.block_on(tokio::net::TcpListener::bind(address))?;
        let address = listener.local_addr()?;
        let acceptor = TlsAcceptor::from(tls::server(key));
        runtime.spawn(accept(self.shared.clone(), listener, acceptor, service));
        let before = lock(&self.runtime).replace(runtime);
        assert!(before.is_none(), "a gateway listens once");
        self.shared.known.workers.add_permits(answering);
        Ok(address)
    }

    /// Whether the client has a channel here.
    pub fn is_here(&self, client: &Client) -> bool {
        self.shared.channel(client).is_some()
    }

    /// Sends it, if the client is here.
    pub fn send(&self, client: &Client, reply: &Reply) {
        if let Some(channel) = self.shared.channel(client) {
            channel.push(reply.to_bytes().into(), self.clients());
        }
    }

    /// Ends the client's channel when it has got what waits.
    pub fn turn_out(&self, client: &Client, reason: Reason) {
        if let Some(channel) = self.shared.channel(client) {
            channel.finish(reason);
        }
    }

    /// How many clients are here.
    pub fn clients(&self) -> usize {
        self.shared.channels.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Bytes that wait for clients.
    pub fn outgoing_bytes(&self) -> usize {
        self.shared.outgoing_bytes.load(Ordering::Relaxed)
    }

    /// Messages that came in since the start, and their bytes.
    pub fn heard(&self) -> (u64, u64) {
        self.shared.heard.so_far()
    }

    /// Messages that left, and their bytes.
    pub fn said(&self) -> (u64, u64) {
        self.shared.said.so_far()
    }

    /// Closes the gateway and all channels.
    pub fn stop(&self) {
        let channels = self.shared.channels.read().unwrap_or_else(PoisonError::into_inner).clone();
        channels.values().for_each(|channel| channel.end(Reason::Ending));
        let runtime = lock(&self.runtime).take();
        if let Some(runtime) = runtime {
            runtime.shutdown_timeout(STOP_TIMEOUT);
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // A runtime must not be dropped by a task; this never waits.
        if let Some(runtime) = lock(&self.runtime).take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn channel(&self, client: &Client) -> Option<Arc<Outgoing>> {
        self.channels.read().unwrap_or_else(PoisonError::into_inner).get(client).cloned()
    }

    /// What the clients of one holder share of the memory for long messages, so that none has all of it.
    fn reading_of(&self, holder: Holder) -> Arc<Semaphore> {
        let mut all = lock(&self.reading);
        if let Some(found) = all.get(&holder).and_then(Weak::upgrade) {
            return found;
        }
        all.retain(|_, it| it.strong_count() > 0);
        let new = Arc::new(Semaphore::new(limits::GATEWAY_READING_HOLDER_BYTES_MAX));
        all.insert(holder, Arc::downgrade(&new));
        new
    }

    /// A client's channel begins; a former one ends.
    fn enter(&self, client: Client) -> Arc<Outgoing> {
        let channel = Arc::new(Outgoing::new(self.outgoing_bytes.clone()));
        let mut channels = self.channels.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(former) = channels.insert(client, channel.clone()) {
            former.end(Reason::Replaced);
        }
        channel
    }

    /// A channel has ended; the client may have another one by now.
    fn leave(&self, client: &Client, channel: &Arc<Outgoing>) {
        channel.end(Reason::Broken);
        let mut channels = self.channels.write().unwrap_or_else(PoisonError::into_inner);
        if channels.get(client).is_some_and(|now| Arc::ptr_eq(now, channel)) {
            channels.remove(client);
        }
    }
}

async fn accept(
    shared: Arc<Shared>,
    listener: tokio::net::TcpListener,
    acceptor: TlsAcceptor,
    service: Arc<dyn Handler>,
) {
    let mut spare = Spare::open();
    loop {
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(e) => {
                if descriptors::are_used_up(&e) {
                    shared.drops.count(Reason::Descriptors);
                    spare.turn_away(&listener).await;
                }
                // Otherwise a connection was gone at once: the next one may be better.
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let Ok(connection) = shared.connections.clone().try_acquire_owned() else {
            shared.drops.count(Reason::Descriptors);
            continue;
        };
        let slot = shared.unauthenticated.enter();
        let (shared, acceptor, service) = (shared.clone(), acceptor.clone(), service.clone());
        tokio::spawn(async move {
            let reason = connection::serve(&shared, socket, slot, acceptor, service).await;
            if let Some(reason) = reason {
                shared.drops.count(reason);
            }
            drop(connection);
        });
    }
}

/// A descriptor that is given up where there is no other one: whoever knocks is then turned away, and does not wait for
/// an answer that does not come.
struct Spare(Option<File>);

impl Spare {
    fn open() -> Spare {
        Spare(File::open("/dev/null").ok())
    }

    async fn turn_away(&mut self, listener: &tokio::net::TcpListener) {
        self.0 = None;
        // Whom it gives is closed at once.
        drop(tokio::time::timeout(ACCEPT_AGAIN, listener.accept()).await);
        *self = Spare::open();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long channels may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the gateway rests after it could not let somebody in.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
