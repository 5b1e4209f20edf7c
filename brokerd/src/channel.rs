//! A client's channel to one broker that blocks while it waits: for tests and small tools.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};
use sealcast_broker::genesis::Cluster;
use sealcast_broker::operation::Batch;
use sealcast_broker::protocol::{Answer, Query, Reply, Request, Welcome};
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::limits;

use sealcast_tls as tls;

/// An open channel. Each call ends after `timeout`, however the bytes come: a broker that sends one now and then is
/// waited for no longer than one that is silent.
pub struct Channel {
    stream: StreamOwned<ClientConnection, Timed>,
    timeout: Duration,
    /// Limit of one call, whatever is asked.
    last: Option<Instant>,
    queries: u64,
    /// What came while an answer was waited for: the last [`limits::CHANNEL_EARLIER_BYTES_MAX`] of it.
    earlier: VecDeque<(Reply, usize)>,
    earlier_bytes: usize,
}

impl Channel {
    /// Connects, says hello, and waits for the welcome.
    ///
    /// # Errors
    /// If nobody is there, it is not this broker, it ends the channel, or one of the three takes too long.
    pub fn open(
        address: SocketAddr,
        broker: [u8; 32],
        key: Arc<OriginKey>,
        cluster: Cluster,
        timeout: Duration,
    ) -> io::Result<(Channel, Welcome)> {
        Channel::connect(address, broker, key, timeout)?.greet(cluster)
    }

    /// Says hello, and waits for the welcome.
    pub(crate) fn greet(mut self, cluster: Cluster) -> io::Result<(Channel, Welcome)> {
        self.say(&Request::Hello { cluster })?;
        match self.hear()? {
            Reply::Welcome(welcome) => Ok((self, welcome)),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the broker did not welcome")),
        }
    }

    /// Connects and says nothing.
    ///
    /// # Errors
    /// If nobody is there.
    pub fn connect(
        address: SocketAddr,
        broker: [u8; 32],
        key: Arc<OriginKey>,
        timeout: Duration,
    ) -> io::Result<Channel> {
        let until = Instant::now() + timeout;
        let socket = TcpStream::connect_timeout(&address, timeout)?;
        socket.set_nodelay(true)?;
        let connection = ClientConnection::new(tls::client(key, broker), tls::name()).map_err(io::Error::other)?;
        let stream = StreamOwned::new(connection, Timed { socket, until, end: None });
        let (queries, earlier, earlier_bytes) = (0, VecDeque::new(), 0);
        Ok(Channel { stream, timeout, last: None, queries, earlier, earlier_bytes })
    }

    /// From `last` on nothing is waited for, and nothing once `end` is set.
    pub(crate) fn until(mut self, last: Option<Instant>, end: Arc<AtomicBool>) -> Channel {
        self.last = last;
        self.stream.sock.end = Some(end);
        self
    }

    /// Hands in a batch.
    ///
    /// # Errors
    /// If the channel broke.
    pub fn submit(&mut self, batch: &Batch) -> io::Result<()> {
        self.say(&Request::Submit(batch.to_bytes()))
    }

    /// Asks, and waits for the answer; other replies meanwhile are kept for [`Channel::hear`], the newest of them.
    ///
    /// # Errors
    /// If the channel broke, or the answer was not there in time.
    pub fn ask(&mut self, query: Query) -> io::Result<Answer> {
        self.queries += 1;
        let asked = self.queries;
        self.begin(self.timeout);
        self.write_message(&Request::Query { id: asked, query })?;
        loop {
            match self.read()? {
                (Reply::Answer { id, answer }, _) if id == asked => return Ok(answer),
                (other, bytes) => self.keep(other, bytes),
            }
        }
    }

    /// The next reply.
    ///
    /// # Errors
    /// If the channel broke, or nothing came in time.
    pub fn hear(&mut self) -> io::Result<Reply> {
        if let Some((reply, bytes)) = self.earlier.pop_front() {
            self.earlier_bytes -= bytes;
            return Ok(reply);
        }
        self.begin(self.timeout);
        self.read().map(|(reply, _)| reply)
    }

    /// The next reply, if one begins to come in time.
    ///
    /// # Errors
    /// If the channel broke.
    pub fn hear_within(&mut self, timeout: Duration) -> io::Result<Option<Reply>> {
        if !self.earlier.is_empty() {
            return self.hear().map(Some);
        }
        self.begin(timeout);
        match self.stream.fill_buf().map(<[u8]>::is_empty) {
            Ok(_) => self.hear().map(Some),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Says it.
    ///
    /// # Errors
    /// If the channel broke.
    pub fn say(&mut self, request: &Request) -> io::Result<()> {
        self.begin(self.timeout);
        self.write_message(request)
    }

    /// Writes bytes, whatever they are.
    ///
    /// # Errors
    /// If the channel broke.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.begin(self.timeout);
        self.write_all(bytes)
    }

    /// The timeout begins anew.
    fn begin(&mut self, timeout: Duration) {
        let until = Instant::now() + timeout;
        self.stream.sock.until = self.last.map_or(until, |last| last.min(until));
    }

    fn keep(&mut self, reply: Reply, bytes: usize) {
        self.earlier.push_back((reply, bytes));
        self.earlier_bytes += bytes;
        while self.earlier_bytes > limits::CHANNEL_EARLIER_BYTES_MAX
            && let Some((_, bytes)) = self.earlier.pop_front()
        {
            self.earlier_bytes -= bytes;
        }
    }

    fn write_message(&mut self, request: &Request) -> io::Result<()> {
        self.write_all(&tls::message::framed(&request.to_bytes()))
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// A reply and its length.
    fn read(&mut self) -> io::Result<(Reply, usize)> {
        let mut head = [0; tls::message::LENGTH_BYTES];
        self.stream.read_exact(&mut head)?;
        let length = tls::message::announced(&head, limits::PROTOCOL_MESSAGE_BYTES_MAX)?.unwrap_or_default();
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        let unreadable = |_| io::Error::new(io::ErrorKind::InvalidData, "the broker's message cannot be read");
        Ok((Reply::from_bytes(&bytes).map_err(unreadable)?, length))
    }
}

/// A socket on which nothing is waited for beyond a moment, nor once `end` is set.
struct Timed {
    socket: TcpStream,
    until: Instant,
    end: Option<Arc<AtomicBool>>,
}

impl Timed {
    /// Tries again and again, each time for a short while.
    fn wait<T>(&mut self, mut act: impl FnMut(&mut TcpStream, Option<Duration>) -> io::Result<T>) -> io::Result<T> {
        loop {
            if self.end.as_ref().is_some_and(|end| end.load(Ordering::Acquire)) {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "this broker is asked to end"));
            }
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match act(&mut self.socket, Some(left.min(LOOK))) {
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                done => return done,
            }
        }
    }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.wait(|socket, timeout| {
            socket.set_read_timeout(timeout)?;
            socket.read(bytes)
        })
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(|socket, timeout| {
            socket.set_write_timeout(timeout)?;
            socket.write(bytes)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// How often a wait looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);
