//! A channel to one broker: TCP, TLS, and messages behind their lengths; never blocking.
//!
//! ```text
//! closed ─ connect ─▶ opening ─ handshake done ─▶ open ─ end, error, too slow ─▶ closed, to be tried again
//!   ▲                                                                              after 50 ms, 100 ms … 5 s
//!   └──────────────────────────────────────────────────────────────────────────────┘
//! ```

use std::collections::VecDeque;
use std::io::{self, BufRead, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::ClientConnection;
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::limits;

use sealcast_tls as tls;

/// A channel that is opened again whenever it ends.
pub struct Channel {
    token: Token,
    address: String,
    broker: [u8; 32],
    key: Arc<OriginKey>,
    state: State,
    /// Failures in a row, and the last one's words.
    failures: u32,
    why: Option<String>,
    /// It was closed, and nobody was told yet.
    unsaid: bool,
}

enum State {
    Closed { until: Instant },
    Opening(Box<Link>),
    Open(Box<Link>),
}

struct Link {
    socket: TcpStream,
    tls: ClientConnection,
    /// Messages behind their lengths; of the first one, what is left to be given to TLS.
    outgoing: VecDeque<Vec<u8>>,
    sent: usize,
    outgoing_bytes: usize,
    /// The kernel may have something for us.
    readable: bool,
    /// As it comes from the kernel.
    raw: Box<[u8]>,
    /// What TLS made of it, from the last message's end on.
    incoming: Vec<u8>,
    since: Instant,
}

/// What happened on a channel.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// It is open: the broker has proved its key.
    Opened,
    /// A message.
    Message(&'a [u8]),
    /// It is closed; it will be opened again by itself.
    Closed,
}

impl Channel {
    /// A channel of the holder of `key` to the broker with the key `broker`, which listens at `address` (`host:port`).
    pub fn new(token: Token, address: String, broker: [u8; 32], key: Arc<OriginKey>) -> Channel {
        let state = State::Closed { until: Instant::now() };
        Channel { token, address, broker, key, state, failures: 0, why: None, unsaid: false }
    }

    /// Whether messages can be sent.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Why it is not open, in the words of whoever knows.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref().filter(|_| !self.is_open())
    }

    /// When [`Channel::attend`] wants to be called, though nothing came.
    pub fn timeout(&self) -> Option<Instant> {
        match &self.state {
            State::Closed { until } => Some(*until),
            State::Opening(link) => Some(link.since + HANDSHAKE_TIMEOUT),
            State::Open(_) => None,
        }
    }

    /// Queues a message; `false` if the channel is not open, or closed now because the broker takes nothing any more.
    pub fn send(&mut self, message: &[u8]) -> bool {
        let State::Open(link) = &mut self.state else { return false };
        if link.outgoing_bytes + message.len() > limits::CHANNEL_SEND_BYTES_MAX {
            self.close("it takes nothing any more");
            return false;
        }
        let bytes = tls::message::framed(message);
        link.outgoing_bytes += bytes.len();
        link.outgoing.push_back(bytes);
        true
    }

    /// The system says that something happened on its socket.
    pub fn woken(&mut self) {
        if let State::Opening(link) | State::Open(link) = &mut self.state {
            link.readable = true;
        }
    }

    /// Writes what is queued, as far as the kernel takes it; `false` if the channel is closed by that.
    pub fn flush(&mut self) -> bool {
        let State::Open(link) = &mut self.state else { return true };
        if link.outgoing.is_empty() {
            return true;
        }
        let written = link.write();
        written.map_err(|e| self.close(&plain(&e))).is_ok()
    }

    /// Does what can be done without waiting: opens, reads, writes. Everything that was heard is given to `heard`. Reads
    /// only what [`Channel::woken`] told of.
    pub fn attend(&mut self, registry: &Registry, heard: &mut impl FnMut(Heard<'_>)) {
        self.tell(heard);
        if let State::Closed { until } = self.state {
            if Instant::now() < until {
                return;
            }
            match self.connect(registry) {
                Ok(link) => self.state = State::Opening(link),
                Err(e) => return self.close(&plain(&e)),
            }
        }
        if let State::Opening(link) = &self.state
            && link.since.elapsed() > HANDSHAKE_TIMEOUT
        {
            return self.close("it does not answer");
        }
        if let Err(e) = self.work(heard) {
            self.close(&plain(&e));
            self.tell(heard);
        }
    }

    fn tell(&mut self, heard: &mut impl FnMut(Heard<'_>)) {
        if std::mem::take(&mut self.unsaid) {
            heard(Heard::Closed);
        }
    }

    /// Ends it for good, or until the next [`Channel::attend`]: what was queued is handed to the kernel as far as it
    /// takes it.
    pub fn end(&mut self) {
        if let State::Open(link) = &mut self.state {
            link.tls.send_close_notify();
            // Nobody is left to tell.
            let _ = link.write();
        }
        self.state = State::Closed { until: Instant::now() };
    }

    fn connect(&self, registry: &Registry) -> io::Result<Box<Link>> {
        let address = resolve(&self.address)?;
        let mut socket = TcpStream::connect(address)?;
        registry.register(&mut socket, self.token, Interest::READABLE | Interest::WRITABLE)?;
        let config = tls::client(self.key.clone(), self.broker);
        let tls = ClientConnection::new(config, tls::name()).map_err(io::Error::other)?;
        Ok(Box::new(Link {
            socket,
            tls,
            outgoing: VecDeque::new(),
            sent: 0,
            outgoing_bytes: 0,
            readable: true,
            raw: vec![0; READ_BYTES].into(),
            incoming: Vec::new(),
            since: Instant::now(),
        }))
    }

    fn work(&mut self, heard: &mut impl FnMut(Heard<'_>)) -> io::Result<()> {
        if let State::Opening(link) = &mut self.state {
            if !link.shake_hands()? {
                return Ok(());
            }
            let now = State::Closed { until: Instant::now() };
            if let State::Opening(link) = std::mem::replace(&mut self.state, now) {
                self.state = State::Open(link);
            }
            heard(Heard::Opened);
        }
        let State::Open(link) = &mut self.state else { return Ok(()) };
        let failures = &mut self.failures;
        let over = link.readable
            && link.read(&mut |message| {
                // A broker that ends each channel at once is not tried over and over.
                *failures = 0;
                heard(Heard::Message(message));
            })?;
        link.write()?;
        if over { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn close(&mut self, why: &str) {
        self.unsaid |= self.is_open();
        self.why = Some(format!("{}: {why}", self.address));
        let shift = self.failures.min(BACK_OFF_DOUBLINGS);
        self.failures = self.failures.saturating_add(1);
        // By the broker's key, so that a client does not knock at all of them in the same instant.
        let jitter = Duration::from_millis(u64::from(self.broker[0]) % 16) * (1 << shift);
        self.state = State::Closed { until: Instant::now() + BACK_OFF * (1 << shift) + jitter };
    }
}

impl Link {
    /// Goes on with connecting and the handshake; whether both are done.
    fn shake_hands(&mut self) -> io::Result<bool> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        match self.socket.peer_addr() {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotConnected => return Ok(false),
            Err(e) => return Err(e),
        }
        // An unset option costs latency and nothing else.
        let _ = self.socket.set_nodelay(true);
        // A broker says nothing before it was spoken to.
        let over = self.read(&mut |_| ())?;
        self.write()?;
        if over { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(!self.tls.is_handshaking()) }
    }

    /// Reads what is there; whether the other side has ended.
    fn read(&mut self, message: &mut impl FnMut(&[u8])) -> io::Result<bool> {
        loop {
            let length = match self.socket.read(&mut self.raw) {
                Ok(0) => return Ok(true),
                Ok(length) => length,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Ok(false);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            // TLS takes a few KB at a time; from the kernel that would be as many calls.
            let mut at = 0;
            while at < length {
                match self.tls.read_tls(&mut &self.raw[at..length])? {
                    0 => return Ok(true),
                    taken => at += taken,
                }
                let state = match self.tls.process_new_packets() {
                    Ok(state) => state,
                    Err(e) => {
                        // The alert tells the broker why.
                        let _ = self.tls.write_tls(&mut self.socket);
                        return Err(io::Error::new(io::ErrorKind::InvalidData, e));
                    }
                };
                let mut left = state.plaintext_bytes_to_read();
                while left > 0 {
                    let mut reader = self.tls.reader();
                    let chunk = reader.fill_buf()?;
                    let taken = chunk.len();
                    self.incoming.extend_from_slice(chunk);
                    reader.consume(taken);
                    left -= taken;
                }
                if state.peer_has_closed() {
                    self.messages(message)?;
                    return Ok(true);
                }
            }
            self.messages(message)?;
        }
    }

    fn messages(&mut self, message: &mut impl FnMut(&[u8])) -> io::Result<()> {
        let mut left = &self.incoming[..];
        while let Some(bytes) = tls::message::first(left, limits::PROTOCOL_MESSAGE_BYTES_MAX)? {
            message(bytes);
            left = &left[tls::message::LENGTH_BYTES + bytes.len()..];
        }
        let read = self.incoming.len() - left.len();
        self.incoming.drain(..read);
        Ok(())
    }

    /// Writes as much as the kernel takes.
    fn write(&mut self) -> io::Result<()> {
        loop {
            if !self.tls.is_handshaking() {
                while let Some(first) = self.outgoing.front() {
                    let n = self.tls.writer().write(&first[self.sent..])?;
                    self.sent += n;
                    self.outgoing_bytes -= n;
                    if self.sent < first.len() {
                        break;
                    }
                    self.outgoing.pop_front();
                    self.sent = 0;
                }
            }
            if !self.tls.wants_write() {
                return Ok(());
            }
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// The address; a host's name is looked up on this thread, anew each time.
fn resolve(address: &str) -> io::Result<SocketAddr> {
    let found = address.to_socket_addrs()?.next();
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host has no address"))
}

/// The system's words without Rust's number.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the broker ended the channel".to_owned(),
        io::ErrorKind::InvalidData => format!("another program listens there, or a broker with another key ({error})"),
        _ => error.to_string().split(" (os error").next().unwrap_or_default().to_lowercase(),
    }
}

/// Bytes asked of the kernel at once.
const READ_BYTES: usize = 64 << 10;
/// First wait after a failure.
const BACK_OFF: Duration = Duration::from_millis(50);
/// It doubles so often: to 3.2 s.
const BACK_OFF_DOUBLINGS: u32 = 6;
/// How long connecting and the handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    use rustls::{ServerConnection, Stream};
    use sealcast_crypto::secret::Secret;

    use super::*;

    fn key(seed: u8) -> Arc<OriginKey> {
        Arc::new(OriginKey::from_seed(&Secret::from_bytes([seed; 32])))
    }

    /// A broker with the key of seed 9 that answers each of so many messages, and then ends; its answers are the
    /// messages turned round, all but the last bytes of which come late.
    fn broker(messages: usize) -> (String, JoinHandle<Option<Vec<u8>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let thread = std::thread::spawn(move || {
            let mut tls = ServerConnection::new(tls::server(key(9))).expect("the configuration is whole");
            let (mut socket, _) = listener.accept().expect("a client comes");
            let mut stream = Stream::new(&mut tls, &mut socket);
            for _ in 0..messages {
                let mut head = [0; 4];
                stream.read_exact(&mut head).ok()?;
                let mut message = vec![0; u32::from_be_bytes(head) as usize];
                stream.read_exact(&mut message).ok()?;
                message.reverse();
                let bytes = [&head[..], &message].concat();
                let (early, late) = bytes.split_at(bytes.len().min(5));
                stream.write_all(early).and_then(|()| stream.flush()).ok()?;
                stream.write_all(late).and_then(|()| stream.flush()).ok()?;
            }
            let shown = tls.peer_certificates().map(|shown| shown[0].as_ref()[12..].to_vec());
            tls.send_close_notify();
            tls.write_tls(&mut socket).ok()?;
            shown
        });
        (address, thread)
    }

    /// Attends to the channel until it has heard so many things.
    fn hear(channel: &mut Channel, poll: &mut mio::Poll, things: usize) -> Vec<String> {
        let mut heard = Vec::new();
        let mut events = mio::Events::with_capacity(8);
        while heard.len() < things {
            channel.attend(poll.registry(), &mut |it| heard.push(told(&it)));
            if heard.len() < things {
                poll.poll(&mut events, Some(Duration::from_millis(10))).expect("the system waits");
                events.iter().for_each(|_| channel.woken());
            }
        }
        heard
    }

    /// In words, long messages by their lengths and hashes.
    fn told(heard: &Heard<'_>) -> String {
        match heard {
            Heard::Message(bytes) if bytes.len() > 9 => {
                format!("{} bytes, {:?}", bytes.len(), sealcast_crypto::hash::sha256(bytes))
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn messages_go_there_and_back() {
        let (address, broker) = broker(2);
        let mut poll = mio::Poll::new().expect("the system polls");
        let mut channel = Channel::new(Token(1), address, key(9).public_bytes(), key(3));
        assert!(!channel.send(b"too early"));
        assert_eq!(hear(&mut channel, &mut poll, 1), [told(&Heard::Opened)]);
        let long: Vec<u8> = (0..3_000_000u32).map(|i| i as u8).collect();
        assert!(channel.send(b"abc") && channel.send(&long));
        let expected: Vec<u8> = long.iter().rev().copied().collect();
        let wanted = [Heard::Message(b"cba"), Heard::Message(&expected), Heard::Closed];
        assert_eq!(hear(&mut channel, &mut poll, 3), wanted.each_ref().map(told));
        assert!(!channel.is_open() && channel.timeout().is_some());
        assert_eq!(broker.join().expect("it ends"), Some(key(3).public_bytes().to_vec()), "the broker knows who spoke");
    }

    #[test]
    fn rule_e11_a_broker_with_another_key_than_in_genesis_is_not_spoken_to() {
        let (address, broker) = broker(1);
        let mut poll = mio::Poll::new().expect("the system polls");
        let mut channel = Channel::new(Token(1), address, key(8).public_bytes(), key(3));
        let mut events = mio::Events::with_capacity(8);
        while channel.why().is_none() {
            channel.attend(poll.registry(), &mut |it| panic!("nothing is heard: {it:?}"));
            poll.poll(&mut events, Some(Duration::from_millis(10))).expect("the system waits");
            events.iter().for_each(|_| channel.woken());
        }
        assert!(channel.why().expect("it failed").contains("another key"), "{:?}", channel.why());
        assert_eq!(broker.join().expect("it ends"), None);
    }
}
