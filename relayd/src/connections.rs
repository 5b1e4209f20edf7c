//! Sockets of clients: how many there are, for how long, with TLS or without.
//!
//! No client is known here, so each may take little: a number of connections for its address, and a time for each step.

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
use tokio::sync::watch;
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
                        let connection = connection(
                            socket,
                            self.tls.clone(),
                            self.router.clone(),
                            self.metrics.clone(),
                            end.clone(),
                        );
                        tasks.spawn(async move {
                            connection.await;
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
    metrics: Arc<Metrics>,
    end: watch::Receiver<bool>,
) {
    // Without it a response waits for the acknowledgement of the one before.
    let _ = socket.set_nodelay(true);
    let Some(acceptor) = tls else { return speak(socket, router, end).await };
    match timeout(limits::HANDSHAKE_TIMEOUT, acceptor.accept(socket)).await {
        Ok(Ok(stream)) => speak(stream, router, end).await,
        _ => metrics.turned_away(TurnedAway::Handshake),
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    mut end: watch::Receiver<bool>,
) {
    let clock = Arc::new(RequestClock::new());
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
struct Open(Mutex<BTreeMap<IpAddr, usize>>);

/// One of them.
struct Counted {
    open: Arc<Open>,
    address: IpAddr,
    metrics: Arc<Metrics>,
}

impl Open {
    /// `None` if there are too many, of all clients or from this address.
    fn enter(self: &Arc<Open>, from: SocketAddr, connections_max: usize, metrics: &Arc<Metrics>) -> Option<Counted> {
        let address = network(from.ip());
        let mut open = lock(&self.0);
        let (all, of_address) = (open.values().sum::<usize>(), open.get(&address).copied().unwrap_or(0));
        let is_too_many = !address.is_loopback() && of_address >= limits::CONNECTIONS_PER_ADDRESS_MAX;
        if all >= connections_max || is_too_many {
            return None;
        }
        *open.entry(address).or_default() += 1;
        metrics.connections.inc();
        Some(Counted { open: self.clone(), address, metrics: metrics.clone() })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = lock(&self.open.0);
        if let Some(n) = open.get_mut(&self.address) {
            *n -= 1;
            if *n == 0 {
                open.remove(&self.address);
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
    use super::*;

    #[test]
    fn rule_g7_one_address_takes_a_part_of_all_connections() {
        let (open, metrics) = (Arc::new(Open::default()), Arc::new(Metrics::default()));
        let enter = |text: &str| open.enter(SocketAddr::new(text.parse().unwrap(), 7), 600, &metrics);
        let hosts = (0..=u16::MAX).map(|n| format!("2001:db8::{n:x}"));
        let mut counted: Vec<_> = hosts.map_while(|it| enter(&it)).collect();
        assert_eq!(counted.len(), limits::CONNECTIONS_PER_ADDRESS_MAX, "one network of 64 bits");
        counted.extend(std::iter::repeat_with(|| enter("127.0.0.1")).map_while(|it| it));
        assert_eq!((counted.len(), metrics.connections.get()), (600, 600), "a reverse proxy takes what is left");
        counted.clear();
        assert_eq!((lock(&open.0).len(), metrics.connections.get()), (0, 0));
        assert!(enter("::ffff:192.0.2.1").is_some_and(|it| it.address.is_ipv4()));
    }
}
