//! A broker's figures for Prometheus (OpenMetrics 1.0), over the little of HTTP that is needed for it.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

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
        "HTTP/1.1 {status}\r\ncontent-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes())?;
    socket.write_all(body.as_bytes())
}

/// The figures in the text form of OpenMetrics, as `fill` gives them each time they are asked for.
pub fn page(fill: impl Fn(&mut Page) -> fmt::Result + Send + Sync + 'static) -> impl Fn() -> String + Send + 'static {
    let mut registry = Registry::with_prefix("sealcast_broker");
    registry.register_collector(Box::new(Figures(fill)));
    move || {
        let mut text = String::new();
        encode(&mut text, &registry).expect("a string takes all");
        text
    }
}

/// Where figures are written to.
pub struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    /// What only grows, since the start.
    ///
    /// # Errors
    /// If the text cannot be written.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.0
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    /// The same by something that a label names, as `drops_total{reason="slow"}`.
    ///
    /// # Errors
    /// If the text cannot be written.
    pub fn counters<L: EncodeLabelValue>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut counter = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (of, value) in values {
            counter.encode_family(&[(label, of)])?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    /// What is now.
    ///
    /// # Errors
    /// If the text cannot be written.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }
}

/// All of them.
struct Figures<F>(F);

impl<F> fmt::Debug for Figures<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Figures")
    }
}

impl<F: Fn(&mut Page) -> fmt::Result + Send + Sync + 'static> Collector for Figures<F> {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        (self.0)(&mut Page(encoder))
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
        let page = page(|page| {
            page.gauge("height", "The last block executed.", 7_u64)?;
            page.counters("drops", "What was turned away.", "reason", [("slow", 2)])
        });
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
        assert!(answer.contains("# TYPE sealcast_broker_height gauge\nsealcast_broker_height 7\n"), "{answer}");
        assert!(answer.ends_with("sealcast_broker_drops_total{reason=\"slow\"} 2\n# EOF\n"), "{answer}");
    }
}
