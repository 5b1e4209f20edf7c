//! Sockets of clients: how many there are, for how long, with TLS or without.
//!
//! No client is known here, so each may take little: a number of connections for its address, and a time for each step. When
//! there are too many, one of the address with most of them goes, whose client has sent no whole request for the longest time.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::extract::Extension;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::api::RequestClock;
use crate::limits;
use crate::lock;
use crate::metrics::{Metrics, TurnedAway};

/// What is served where.
pub struct Server {
    /// Where clients come in.
    pub listener: TcpListener,
    /// How they are secured.
    pub tls: Option<TlsAcceptor>,
    /// What they get.
    pub router: Router,
    /// How many of them there may be.
    pub connections_max: usize,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl Server {
    /// Serves until `end` says so or its sender goes; then requests under way have [`limits::CLOSE_TIMEOUT`].
    pub async fn run(self, mut end: watch::Receiver<bool>) {
        let mut tasks = JoinSet::new();
        let open = Arc::new(Open::default());
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = end.changed() => break,
                Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            };
            match accepted {
                Ok((socket, from)) => match open.enter(from, self.connections_max, &self.metrics) {
                    Some(counted) => {
                        let clock = counted.clock.clone();
                        let (tls, router) = (self.tls.clone(), self.router.clone());
                        let served = connection(socket, tls, router, clock, self.metrics.clone(), end.clone());
                        tasks.spawn(async move {
                            let gives_way = counted.gives_way.clone();
                            tokio::select! {
                                () = served => {}
                                () = gives_way.notified() => {}
                            }
                            drop(counted);
                        });
                    }
                    None => self.metrics.turned_away(TurnedAway::Connections),
                },
                // Out of descriptors: without a rest it would try again at once.
                Err(_) => sleep(limits::ACCEPT_AGAIN).await,
            }
        }
        drop(self.listener);
        let _ = timeout(limits::CLOSE_TIMEOUT, async { while tasks.join_next().await.is_some() {} }).await;
    }
}

async fn connection(
    socket: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    clock: Arc<RequestClock>,
    metrics: Arc<Metrics>,
    end: watch::Receiver<bool>,
) {
    // Without it a response waits for the acknowledgement of the one before.
    let _ = socket.set_nodelay(true);
    let Some(acceptor) = tls else { return speak(socket, router, clock, end).await };
    match timeout(limits::HANDSHAKE_TIMEOUT, acceptor.accept(socket)).await {
        Ok(Ok(stream)) => speak(stream, router, clock, end).await,
        _ => metrics.turned_away(TurnedAway::Handshake),
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    clock: Arc<RequestClock>,
    mut end: watch::Receiver<bool>,
) {
    let router = router.layer(Extension(clock.clone()));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits::HEADER_TIMEOUT);
    http.max_headers(limits::HEADERS_MAX).max_buf_size(limits::HEADER_BYTES_MAX);
    let mut served = pin!(http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)));
    let (begun, mut tick, mut is_ending) = (Instant::now(), interval(limits::CONNECTION_TICK), false);
    loop {
        tokio::select! {
            // What a client did wrong is its own trouble.
            _ = served.as_mut() => return,
            _ = end.changed(), if !is_ending => is_ending = true,
            _ = tick.tick() => {
                let age = begun.elapsed();
                if clock.is_over() || age > limits::CONNECTION_TIMEOUT + limits::REQUEST_TIMEOUT {
                    return;
                }
                if is_ending || age <= limits::CONNECTION_TIMEOUT {
                    continue;
                }
                is_ending = true;
            }
        }
        served.as_mut().graceful_shutdown();
    }
}

/// The connections that are open.
#[derive(Default)]
struct Open(Mutex<Connections>);

#[derive(Default)]
struct Connections {
    of_address: BTreeMap<IpAddr, usize>,
    /// By the number of the connection.
    all: BTreeMap<u64, Waiting>,
    next: u64,
}

struct Waiting {
    address: IpAddr,
    clock: Arc<RequestClock>,
    gives_way: Arc<Notify>,
}

/// One of them.
struct Counted {
    open: Arc<Open>,
    number: u64,
    address: IpAddr,
    clock: Arc<RequestClock>,
    /// Tells it to end.
    gives_way: Arc<Notify>,
    metrics: Arc<Metrics>,
}

impl Open {
    /// `None` if there are too many from this address, or of all clients and each gets an answer now.
    fn enter(self: &Arc<Open>, from: SocketAddr, connections_max: usize, metrics: &Arc<Metrics>) -> Option<Counted> {
        let address = network(from.ip());
        let mut open = lock(&self.0);
        let of_address = open.of_address.get(&address).copied().unwrap_or(0);
        if !address.is_loopback() && of_address >= limits::CONNECTIONS_PER_ADDRESS_MAX {
            return None;
        }
        if open.all.len() >= connections_max {
            open.free()?;
            metrics.turned_away(TurnedAway::Connections);
        }
        *open.of_address.entry(address).or_default() += 1;
        let (number, clock, gives_way) = (open.next, Arc::new(RequestClock::new()), Arc::new(Notify::new()));
        open.next += 1;
        open.all.insert(number, Waiting { address, clock: clock.clone(), gives_way: gives_way.clone() });
        metrics.connections.inc();
        Some(Counted { open: self.clone(), number, address, clock, gives_way, metrics: metrics.clone() })
    }
}

impl Connections {
    /// Of the address with most connections the one gives way that has waited for a whole request for the longest time.
    fn free(&mut self) -> Option<()> {
        let of_address = |it: &Waiting| self.of_address.get(&it.address).copied().unwrap_or(0);
        let waits = self.all.iter().filter_map(|(number, it)| Some((of_address(it), it.clock.waits()?, *number)));
        let (.., number) = waits.max_by_key(|(count, waits, number)| (*count, *waits, u64::MAX - number))?;
        self.all.remove(&number)?.gives_way.notify_one();
        Some(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = lock(&self.open.0);
        open.all.remove(&self.number);
        if let Some(n) = open.of_address.get_mut(&self.address) {
            *n -= 1;
            if *n == 0 {
                open.of_address.remove(&self.address);
            }
        }
        self.metrics.connections.dec();
    }
}

/// What one client has: an address of IPv4, or a network of 64 bits of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(it) if !it.is_loopback() => IpAddr::V6(Ipv6Addr::from_bits(it.to_bits() >> 64 << 64)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::api::Timed;

    #[test]
    fn rule_g7_one_address_takes_a_part_of_all_connections() {
        let (open, metrics) = (Arc::new(Open::default()), Arc::new(Metrics::default()));
        let enter = |text: &str| open.enter(SocketAddr::new(text.parse().unwrap(), 7), 600, &metrics);
        let hosts = (0..=u16::MAX).map(|n| format!("2001:db8::{n:x}"));
        let mut counted: Vec<_> = hosts.map_while(|it| enter(&it)).collect();
        assert_eq!(counted.len(), limits::CONNECTIONS_PER_ADDRESS_MAX, "one network of 64 bits");
        let answered = |it: &Counted| Timed::start(it.clock.clone());
        let mut busy: Vec<_> = counted.iter().map(answered).collect();
        busy.iter().for_each(Timed::read);
        while counted.len() < 600 {
            counted.extend(enter("127.0.0.1"));
            busy.extend(counted.last().map(answered));
            busy.last().unwrap().read();
        }
        assert!(enter("127.0.0.1").is_none() && enter("192.0.2.1").is_none(), "a reverse proxy takes what is left");
        // Of two that wait for their clients, the older one gives way, and then the other one.
        drop(busy.drain(..2));
        let gives_way = |it: &Counted| it.gives_way.clone().notified_owned().now_or_never().is_some();
        counted.extend([enter("192.0.2.1").unwrap(), enter("192.0.2.2").unwrap()]);
        assert!(counted[..2].iter().all(gives_way) && !counted[2..].iter().any(gives_way));
        assert_eq!(lock(&open.0).all.len(), 600);
        counted.clear();
        let left = lock(&open.0);
        assert!(left.all.is_empty() && left.of_address.is_empty() && metrics.connections.get() == 0);
        drop(left);
        assert!(enter("::ffff:192.0.2.1").is_some_and(|it| it.address.is_ipv4()));
    }
}
