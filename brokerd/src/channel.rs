//! A client's channel to one broker that blocks while it waits: for tests and small tools.

use std::io::{self, BufRead as _, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};
use sealcast_broker::genesis::Cluster;
use sealcast_broker::operation::Frame;
use sealcast_broker::protocol::{Answer, Question, Reply, Request, Welcome};
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::limits;

use sealcast_tls as tls;

/// An open channel.
pub struct Channel {
    stream: StreamOwned<ClientConnection, TcpStream>,
    questions: u64,
    /// What came while an answer was waited for.
    earlier: Vec<Reply>,
}

impl Channel {
    /// Connects, says hello, and waits for the welcome. Nothing is waited for longer than `patience`.
    ///
    /// # Errors
    /// If nobody is there, it is not this broker, or it ends the channel.
    pub fn open(
        address: SocketAddr,
        broker: [u8; 32],
        key: Arc<OriginKey>,
        cluster: Cluster,
        patience: Duration,
    ) -> io::Result<(Channel, Welcome)> {
        let mut channel = Channel::connect(address, broker, key, patience)?;
        channel.say(&Request::Hello { cluster })?;
        match channel.hear()? {
            Reply::Welcome(welcome) => Ok((channel, welcome)),
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
        patience: Duration,
    ) -> io::Result<Channel> {
        let socket = TcpStream::connect_timeout(&address, patience)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(patience))?;
        socket.set_write_timeout(Some(patience))?;
        let connection = ClientConnection::new(tls::client(key, broker), tls::name()).map_err(io::Error::other)?;
        Ok(Channel { stream: StreamOwned::new(connection, socket), questions: 0, earlier: Vec::new() })
    }

    /// Hands in a frame.
    ///
    /// # Errors
    /// If the channel broke.
    pub fn submit(&mut self, frame: &Frame) -> io::Result<()> {
        self.say(&Request::Submit(frame.to_bytes()))
    }

    /// Asks, and waits for the answer; other replies meanwhile are kept for [`Channel::hear`].
    ///
    /// # Errors
    /// If the channel broke.
    pub fn ask(&mut self, question: Question) -> io::Result<Answer> {
        self.questions += 1;
        let asked = self.questions;
        self.say(&Request::Ask { id: asked, question })?;
        loop {
            match self.read()? {
                Reply::Answer { id, answer } if id == asked => return Ok(answer),
                other => self.earlier.push(other),
            }
        }
    }

    /// The next reply.
    ///
    /// # Errors
    /// If the channel broke, or nothing came in time.
    pub fn hear(&mut self) -> io::Result<Reply> {
        if self.earlier.is_empty() { self.read() } else { Ok(self.earlier.remove(0)) }
    }

    /// The next reply, if one begins to come in time.
    ///
    /// # Errors
    /// If the channel broke.
    pub fn hear_within(&mut self, patience: Duration) -> io::Result<Option<Reply>> {
        if !self.earlier.is_empty() {
            return self.hear().map(Some);
        }
        let usual = self.stream.sock.read_timeout()?;
        self.stream.sock.set_read_timeout(Some(patience))?;
        let ready = self.stream.fill_buf().map(<[u8]>::is_empty);
        self.stream.sock.set_read_timeout(usual)?;
        match ready {
            Ok(_) => self.read().map(Some),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Says it.
    ///
    /// # Errors
    /// If the channel broke.
    pub fn say(&mut self, request: &Request) -> io::Result<()> {
        let bytes = request.to_bytes();
        let length = u32::try_from(bytes.len()).expect("a request has a limit").to_be_bytes();
        self.write(&[&length[..], &bytes].concat())
    }

    /// Writes bytes, whatever they are.
    ///
    /// # Errors
    /// If the channel broke.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    fn read(&mut self) -> io::Result<Reply> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        let too_long = || io::Error::new(io::ErrorKind::InvalidData, "the broker's message cannot be read");
        if length > limits::PROTOCOL_MESSAGE_BYTES_MAX {
            return Err(too_long());
        }
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Reply::from_bytes(&bytes).map_err(|_| too_long())
    }
}
