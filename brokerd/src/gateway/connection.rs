//! One client's channel, from its first byte to its last.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sealcast_broker::operation::{Client, Head};
use sealcast_broker::protocol::{Answer, Query, Reply, Request, Welcome, Why};
use sealcast_wire::limits;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

use super::client_connection::ClientConnection;
use super::outgoing::Outgoing;
use super::traffic::Traffic;
use super::unauthenticated::Slot;
use super::{ClientStatus, Handler, Shared};
use crate::drops::Reason;
use sealcast_tls as tls;
use sealcast_tls::message::{LENGTH_BYTES, announced};

/// Serves one connection to its end; why it ended, unless the client closed it.
pub(super) async fn serve(
    shared: &Arc<Shared>,
    socket: TcpStream,
    slot: Slot,
    acceptor: TlsAcceptor,
    service: Arc<dyn Handler>,
) -> Option<Reason> {
    // Neither is worth a connection.
    let _ = socket.set_nodelay(true);
    let _ =
        SockRef::from(&socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENCE).with_interval(SILENCE / 4));
    let lost = slot.lost();
    let greeted = tokio::select! {
        greeted = timeout(limits::GATEWAY_HANDSHAKE, greet(shared, socket, acceptor)) => greeted,
        () = lost.notified() => Ok(Err(Reason::Connections)),
    };
    let (client, input, output) = match greeted {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(reason)) => return Some(reason),
        Err(_) => return Some(Reason::Late),
    };
    let channel = shared.enter(client);
    let reason = talk(shared, ClientConnection::new(client, slot), client, &channel, (input, output), service).await;
    shared.leave(&client, &channel);
    reason
}

type Input = Incoming<tokio::io::ReadHalf<tokio_rustls::server::TlsStream<TcpStream>>>;
type Output = tokio::io::WriteHalf<tokio_rustls::server::TlsStream<TcpStream>>;

/// The handshake and the hello.
async fn greet(shared: &Shared, socket: TcpStream, acceptor: TlsAcceptor) -> Result<(Client, Input, Output), Reason> {
    let stream = acceptor.accept(socket).await.map_err(|_| Reason::Handshake)?;
    let client = tls::peer(stream.get_ref().1.peer_certificates()).ok_or(Reason::Handshake)?;
    if stream.get_ref().1.alpn_protocol().is_none() {
        return Err(Reason::Handshake);
    }
    let (input, output) = tokio::io::split(stream);
    let mut input = Incoming { input, buffer: BytesMut::new(), until: Instant::now() };
    let length = input.length().await?.ok_or(Reason::Broken)?;
    if length > limits::GATEWAY_HELLO_BYTES_MAX {
        return Err(Reason::Long);
    }
    let hello = input.message(length, [Some(&shared.unregistered.reading), None]).await?;
    shared.heard.count(LENGTH_BYTES + length);
    match Request::from_bytes(&hello) {
        Ok(Request::Hello { cluster }) if cluster == shared.cluster => Ok((client, input, output)),
        Ok(Request::Hello { .. }) => Err(Reason::Cluster),
        _ => Err(Reason::Malformed),
    }
}

/// Both directions, until one ends.
async fn talk(
    shared: &Arc<Shared>,
    mut client_connection: ClientConnection,
    client: Client,
    channel: &Arc<Outgoing>,
    (input, mut output): (Input, Output),
    service: Arc<dyn Handler>,
) -> Option<Reason> {
    let lost = client_connection.lost();
    let welcome = tokio::select! {
        welcome = welcome(shared, client, service.clone()) => welcome,
        () = lost.notified() => return Some(Reason::Connections),
    };
    let Some((welcome, status)) = welcome else { return Some(Reason::Ending) };
    client_connection.is(status, shared);
    let lost = client_connection.lost();
    channel.open(Reply::Welcome(welcome).to_bytes().into());
    let channel = channel.clone();
    // It keeps its place until its connection is closed.
    let mut listener = Listener {
        shared: shared.clone(),
        client_connection,
        client,
        channel: channel.clone(),
        service: service.clone(),
        strikes: 0,
    };
    let says = |message| service.says(&client, message);
    let ended = tokio::select! {
        ended = listener.listen(input) => ended,
        ended = write(&channel, says, &shared.said, &mut output, limits::GATEWAY_WRITE) => ended,
        reason = channel.over() => Err(reason),
        // At once: its place is somebody else's.
        () = lost.notified() => return Some(Reason::Connections),
    };
    // The client learns at once that nothing more comes; whoever is gone already does not.
    let _ = timeout(GOODBYE, output.shutdown()).await;
    // The reason for which somebody ended the channel says more than that it ended.
    channel.ended().or(ended.err())
}

/// What it is told first, and what it is; `None` if the broker ends.
async fn welcome(shared: &Shared, client: Client, service: Arc<dyn Handler>) -> Option<(Welcome, ClientStatus)> {
    let _lane = shared.welcomes.acquire().await.ok()?;
    tokio::task::spawn_blocking(move || (service.welcome(&client), service.client_status(&client))).await.ok()
}

/// Writes what waits, as long as the client takes it: of each message some within `write_timeout`.
async fn write(
    channel: &Outgoing,
    says: impl Fn(Bytes) -> Bytes,
    said: &Traffic,
    output: &mut (impl AsyncWrite + Unpin),
    write_timeout: Duration,
) -> Result<(), Reason> {
    loop {
        for queued in channel.next().await? {
            let waited = queued.len();
            let message = says(queued);
            let length = tls::message::length(message.len());
            for part in std::iter::once(&length[..]).chain(message.chunks(WRITE_BYTES)) {
                taken(write_timeout, output.write_all(part)).await?;
            }
            channel.left(waited);
            said.count(LENGTH_BYTES + message.len());
        }
        taken(write_timeout, output.flush()).await?;
    }
}

/// Waits until the client has taken something.
async fn taken(write_timeout: Duration, written: impl Future<Output = io::Result<()>>) -> Result<(), Reason> {
    match timeout(write_timeout, written).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Reason::Broken),
        Err(_) => Err(Reason::Slow),
    }
}

/// What hears a client after its hello.
struct Listener {
    shared: Arc<Shared>,
    client_connection: ClientConnection,
    client: Client,
    channel: Arc<Outgoing>,
    service: Arc<dyn Handler>,
    /// Queries beyond those that it may have open, while it was not registered.
    strikes: u32,
}

/// Why a query is not answered now.
enum Busy {
    /// The client has as many open as it may.
    Client,
    /// All clients of its kind have together.
    All,
}

impl Listener {
    async fn listen(&mut self, mut input: Input) -> Result<(), Reason> {
        let open = Arc::new(());
        let shared = self.shared.clone();
        while let Some(length) = input.length().await? {
            if length > READ_BYTES {
                self.client_connection.look_again(&shared, &self.service).await;
            }
            let quotas = self.client_connection.quotas(&shared);
            if length > quotas.request_bytes {
                return Err(Reason::Long);
            }
            let own = self.client_connection.reading();
            let message = input.message(length, [own.as_deref(), Some(&quotas.reading)]).await?;
            shared.heard.count(LENGTH_BYTES + length);
            // Who does not take answers is not heard.
            self.channel.has_capacity().await?;
            if Request::submitted(&message).is_some() {
                self.submit(message.slice(1..));
                continue;
            }
            match Request::from_bytes(&message) {
                Ok(Request::Query { id, query }) => {
                    self.client_connection.look_again(&shared, &self.service).await;
                    match self.ask(&open, id, query) {
                        Err(Busy::Client) if self.client_connection.is_unregistered() => self.strike().await?,
                        Err(Busy::All) if self.client_connection.is_unregistered() => {
                            sleep(limits::QUERY_BUSY_PAUSE).await
                        }
                        Ok(()) | Err(Busy::Client | Busy::All) => {}
                    }
                }
                _ => return Err(Reason::Malformed),
            }
        }
        Ok(())
    }

    fn submit(&self, batch: Bytes) {
        let first = Head::of(&batch).map_or(0, |head| head.first);
        if let Err(why) = self.service.submit(&self.client, batch) {
            self.reply(&Reply::Refused { first, why });
        }
    }

    /// An unregistered client asked more than it may: it is not heard for a while, and at last no more.
    async fn strike(&mut self) -> Result<(), Reason> {
        self.strikes += 1;
        if self.strikes > limits::QUERY_STRIKES_MAX {
            return Err(Reason::Strikes);
        }
        sleep(limits::QUERY_STRIKE_PAUSE).await;
        Ok(())
    }

    /// Answers on another thread, since it may read the disk. Each open query holds a clone of `open`.
    ///
    /// # Errors
    /// [`Busy`], which the client is told.
    fn ask(&self, open: &Arc<()>, id: u64, query: Query) -> Result<(), Busy> {
        let quotas = self.client_connection.quotas(&self.shared);
        let of_all = match quotas.queries.clone().try_acquire_owned() {
            _ if Arc::strong_count(open) > quotas.queries_each => Err(Busy::Client),
            of_all => of_all.map_err(|_| Busy::All),
        };
        let of_all = of_all.inspect_err(|_| {
            self.shared.drops.count(Reason::Questions);
            self.reply(&Reply::Answer { id, answer: Answer::No(Why::Busy) });
        })?;
        let rest = quotas.rest;
        let (shared, client, channel) = (self.shared.clone(), self.client, self.channel.clone());
        let (service, workers, mine) = (self.service.clone(), quotas.workers.clone(), open.clone());
        tokio::spawn(async move {
            let Ok(workers) = workers.acquire_owned().await else { return };
            // What nobody waits for any more is not computed.
            if channel.ended().is_some() {
                return;
            }
            tokio::task::spawn_blocking(move || {
                let begun = std::time::Instant::now();
                let answer = service.answer(&client, query);
                reply(&shared, &channel, &Reply::Answer { id, answer });
                drop((mine, of_all));
                if rest > 0 {
                    std::thread::sleep(begun.elapsed().min(REST_MAX) * rest);
                }
                drop(workers);
            });
        });
        Ok(())
    }

    fn reply(&self, it: &Reply) {
        reply(&self.shared, &self.channel, it);
    }
}

fn reply(shared: &Shared, channel: &Outgoing, reply: &Reply) {
    let clients = shared.channels.read().unwrap_or_else(std::sync::PoisonError::into_inner).len();
    channel.push(reply.to_bytes().into(), clients);
}

/// Messages out of a stream of bytes.
struct Incoming<R> {
    input: R,
    buffer: BytesMut,
    /// When all of the message must be there.
    until: Instant,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    /// The length of the next message; `None` if the stream ends between two.
    async fn length(&mut self) -> Result<Option<usize>, Reason> {
        if self.buffer.is_empty() && self.more().await? == 0 {
            return Ok(None);
        }
        self.until = Instant::now() + limits::GATEWAY_MESSAGE;
        let all = timeout_at(self.until, self.fill(LENGTH_BYTES)).await;
        all.map_err(|_| Reason::Stalled)??;
        // How much is too much is for the caller to say: it depends on who sends.
        Ok(announced(&self.buffer, usize::MAX).unwrap_or_default())
    }

    /// The message of this length. Memory is taken as bytes come, not as they are announced, and long messages share
    /// each of `reading`, in this order.
    async fn message(&mut self, length: usize, reading: [Option<&Semaphore>; 2]) -> Result<Bytes, Reason> {
        timeout_at(self.until, self.rest(length, reading)).await.map_err(|_| Reason::Stalled)?
    }

    async fn rest(&mut self, length: usize, reading: [Option<&Semaphore>; 2]) -> Result<Bytes, Reason> {
        let mut held = Vec::new();
        for reading in reading.into_iter().flatten().filter(|_| length > READ_BYTES) {
            let permits = u32::try_from(length).expect("it is below the limit");
            held.push(reading.acquire_many(permits).await.map_err(|_| Reason::Ending)?);
        }
        self.fill(LENGTH_BYTES + length).await?;
        let message = self.buffer.split_to(LENGTH_BYTES + length).freeze().slice(LENGTH_BYTES..);
        // A short message must not keep the whole buffer that it came in.
        Ok(if length < COPIED_BYTES { Bytes::copy_from_slice(&message) } else { message })
    }

    /// Reads until so many bytes are there.
    async fn fill(&mut self, bytes: usize) -> Result<(), Reason> {
        while self.buffer.len() < bytes {
            if self.more().await? == 0 {
                return Err(Reason::Broken);
            }
        }
        Ok(())
    }

    async fn more(&mut self) -> Result<usize, Reason> {
        self.buffer.reserve(READ_BYTES);
        self.input.read_buf(&mut self.buffer).await.map_err(|_| Reason::Broken)
    }
}

/// Bytes asked of a socket at once.
const READ_BYTES: usize = 64 << 10;
/// Shorter messages are copied out of the buffer.
const COPIED_BYTES: usize = 16 << 10;
/// Bytes that a client must take within `GATEWAY_WRITE`.
const WRITE_BYTES: usize = 256 << 10;
/// How long the end of a channel may take.
const GOODBYE: Duration = Duration::from_secs(1);
/// An answer that took longer counts as this: an old block's body that was read from a slow disk.
const REST_MAX: Duration = Duration::from_millis(2);
/// Silence after which the kernel asks whether the client's machine still stands.
const SILENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[tokio::test]
    async fn rule_g7_who_takes_not_even_a_messages_length_loses_its_channel() {
        let channel = Outgoing::new(Arc::new(AtomicUsize::new(0)));
        channel.open(Bytes::from_static(b"welcome"));
        // Nobody reads at the other end, and there is room for so many bytes: for a part of the length, or of the message.
        for room in [2, 6] {
            channel.push(Bytes::from_static(b"more"), 1);
            let (mut output, _other) = tokio::io::duplex(room);
            let said = Traffic::default();
            let written = write(&channel, |it| it, &said, &mut output, Duration::from_millis(10));
            assert_eq!(timeout(Duration::from_secs(60), written).await, Ok(Err(Reason::Slow)), "{room} bytes");
        }
    }
}
