//! A broker's figures in the text form of Prometheus, over the little of HTTP that is needed for it.

use std::fmt::{Display, Write as _};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Answers at an address until it is dropped.
pub struct Server {
    address: SocketAddr,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Begins to answer with what `page` says.
    ///
    /// # Errors
    /// If the address is in use or not ours.
    pub fn start(address: SocketAddr, page: impl Fn() -> String + Send + 'static) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let end = Arc::new(AtomicBool::new(false));
        let ended = end.clone();
        let thread = thread::Builder::new().name("metrics".into()).spawn(move || {
            for socket in listener.incoming() {
                if ended.load(Ordering::Acquire) {
                    return;
                }
                match socket {
                    // Who asks badly, or leaves, gets nothing.
                    Ok(socket) => drop(answer(socket, &page)),
                    // Out of descriptors: without a rest it would ask again at once.
                    Err(_) => thread::sleep(ACCEPT_AGAIN),
                }
            }
        })?;
        Ok(Server { address, end, thread: Some(thread) })
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Release);
        // Wakes it.
        let woken = TcpStream::connect_timeout(&self.address, TIMEOUT);
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            // A panic in it was reported by its own hook.
            let _ = thread.join();
        }
    }
}

fn answer(mut socket: TcpStream, page: impl Fn() -> String) -> io::Result<()> {
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    let mut request = [0; REQUEST_BYTES];
    let mut length = 0;
    while length < request.len() && !request[..length].windows(4).any(|end| end == b"\r\n\r\n") {
        match socket.read(&mut request[length..])? {
            0 => break,
            n => length += n,
        }
    }
    let (status, body) = match request.starts_with(b"GET ") {
        true => ("200 OK", page()),
        false => ("405 Method Not Allowed", String::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes())?;
    socket.write_all(body.as_bytes())
}

/// Figures as text.
#[derive(Debug, Default)]
pub struct Page(String);

impl Page {
    /// One figure.
    pub fn figure(&mut self, kind: &str, name: &str, help: &str, value: impl Display) {
        self.head(kind, name, help);
        self.line(name, "", value);
    }

    /// What stands above figures of one name.
    pub fn head(&mut self, kind: &str, name: &str, help: &str) {
        write!(self.0, "# HELP sealcast_broker_{name} {help}\n# TYPE sealcast_broker_{name} {kind}\n")
            .expect("a string takes all");
    }

    /// A figure with labels, such as `{reason="slow"}`.
    pub fn line(&mut self, name: &str, labels: &str, value: impl Display) {
        writeln!(self.0, "sealcast_broker_{name}{labels} {value}").expect("a string takes all");
    }

    /// The text.
    pub fn finish(self) -> String {
        self.0
    }
}

/// How long it rests after it could not accept a connection.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// How long one who asks may take.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of a request that are read.
const REQUEST_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_answers_whoever_asks_and_bears_whoever_does_not() {
        let page = || {
            let mut page = Page::default();
            page.figure("gauge", "height", "The last block executed.", 7);
            page.finish()
        };
        let server = Server::start("127.0.0.1:0".parse().expect("an address"), page).expect("it starts");
        let ask = |request: &[u8]| {
            let mut socket = TcpStream::connect(server.address()).expect("it listens");
            socket.write_all(request).expect("it is sent");
            let mut answer = String::new();
            let _ = socket.read_to_string(&mut answer);
            answer
        };
        assert!(ask(&[0xff; 5000]).is_empty() || !ask(&[0xff; 5000]).contains("200"));
        drop(TcpStream::connect(server.address()));
        let answer = ask(b"GET /metrics HTTP/1.1\r\nhost: here\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("# TYPE sealcast_broker_height gauge\nsealcast_broker_height 7\n"), "{answer}");
    }
}
