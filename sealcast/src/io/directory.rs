//! A client of a relay's directory: requests and responses as bodies of HTTP, one after the other, on a thread of its own.
//!
//! Nobody trusts what comes: responses prove themselves. TLS hides from the network which group asks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sealcast_relay::response::{Refusal, Response};
use sealcast_wire::limits;
use ureq::Agent;

use super::tls_roots;
use crate::code::Code;
use crate::error::{Error, Result};
use crate::group::lock;

/// What comes of it.
pub(crate) enum Heard {
    /// Requests are answered from now on that are made under this number.
    Connected(u64),
    /// All requests that were not answered are lost.
    Disconnected(Error),
    Response(u64, Vec<u8>),
}

/// A client.
pub(crate) struct Directory {
    requests: Option<SyncSender<(u64, Vec<u8>)>>,
    shared: Arc<Shared>,
    url: String,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and its owner tell each other.
#[derive(Default)]
struct Shared {
    /// Counts breaks: requests of before are lost.
    generation: AtomicU64,
    /// When the request was sent that is not answered yet.
    asked: Mutex<Option<Instant>>,
}

impl Directory {
    /// A client of the directory at a URL; `heard` is called on the thread that asks it.
    ///
    /// # Errors
    /// The system starts no thread.
    pub(crate) fn start(
        url: &str,
        roots: Vec<ureq::tls::Certificate<'static>>,
        heard: impl Fn(Heard) + Send + 'static,
    ) -> Result<Directory> {
        let (requests, queue) = sync_channel(limits::DIRECTORY_QUEUE_MAX);
        let client = Client::new(url, roots, TIMEOUT);
        let shared: Arc<Shared> = Arc::default();
        let theirs = shared.clone();
        let work = move || answer(&client, &queue, &theirs, &heard);
        let thread = thread::Builder::new().name("directory".into()).spawn(work);
        let thread = thread.map_err(|e| Error::system("starting a thread", &e))?;
        Ok(Directory { requests: Some(requests), shared, url: url.to_owned(), thread: Some(thread) })
    }

    /// Queues a request under a number; `false` if too many wait.
    pub(crate) fn ask(&self, generation: u64, request: &[u8]) -> bool {
        let Some(requests) = &self.requests else { return false };
        !matches!(requests.try_send((generation, request.to_vec())), Err(TrySendError::Full(_)))
    }

    /// Forgets all requests that wait; the number of those to come.
    pub(crate) fn forget(&self) -> u64 {
        self.shared.generation.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// That it has not answered a request for long, though it may yet.
    pub(crate) fn silence(&self) -> Option<Error> {
        let waits = lock(&self.shared.asked).map(|it| it.elapsed()).filter(|it| *it > SILENT)?;
        Some(silent_at(&self.url, &format!("has not answered for {} s", waits.as_secs())))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.requests = None;
        // It may wait for an answer: nobody waits for it.
        drop(self.thread.take());
    }
}

fn answer(client: &Client, queue: &Receiver<(u64, Vec<u8>)>, shared: &Shared, heard: &dyn Fn(Heard)) {
    let Shared { generation, asked } = shared;
    let mut pause = RETRY_FIRST;
    heard(Heard::Connected(generation.load(Ordering::Relaxed)));
    while let Ok((of, request)) = queue.recv() {
        if of != generation.load(Ordering::Relaxed) {
            continue;
        }
        *lock(asked) = Some(Instant::now());
        let answered = client.ask(&request);
        *lock(asked) = None;
        match answered {
            Ok(answer) => {
                pause = RETRY_FIRST;
                heard(Heard::Response(of, answer.response));
            }
            Err(why) => {
                // What waits behind it is asked again by who asked.
                let next = generation.fetch_add(1, Ordering::Relaxed) + 1;
                heard(Heard::Disconnected(why));
                thread::sleep(pause);
                pause = (pause * 2).min(RETRY_LAST);
                heard(Heard::Connected(next));
            }
        }
    }
}

/// Asks a directory, one request after the other.
pub(crate) struct Client {
    agent: Agent,
    url: String,
}

/// What came.
pub(crate) struct Answer {
    pub(crate) response: Vec<u8>,
    /// The clock of the directory, or of what is before it, if it shows one: an HTTP date.
    pub(crate) date: Option<String>,
}

impl Client {
    /// A client of the directory at a URL; `timeout` is from a request to the end of its response.
    pub(crate) fn new(url: &str, roots: Vec<ureq::tls::Certificate<'static>>, timeout: Duration) -> Client {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let roots = ureq::tls::RootCerts::Specific(Arc::new(roots));
        let tls =
            ureq::tls::TlsConfig::builder().unversioned_rustls_crypto_provider(provider).root_certs(roots).build();
        let config = Agent::config_builder()
            .timeout_global(Some(timeout))
            .http_status_as_error(true)
            .max_redirects(0)
            .tls_config(tls)
            .build();
        Client { agent: config.new_agent(), url: url.to_owned() }
    }

    /// Waits for the answer to a request.
    ///
    /// # Errors
    /// Nobody answers, or something else than a directory does.
    pub(crate) fn ask(&self, request: &[u8]) -> Result<Answer> {
        match self.post(request) {
            // A proxy, or the directory, takes no request of this length.
            Err(ureq::Error::StatusCode(413)) => {
                Ok(Answer { response: Response::Refused(Refusal::TooLarge).encode(), date: None })
            }
            other => other.map_err(|e| self.trouble(&e)),
        }
    }

    fn post(&self, request: &[u8]) -> std::result::Result<Answer, ureq::Error> {
        let mut response = self.agent.post(&self.url).content_type("application/octet-stream").send(request)?;
        let date = response.headers().get("date").and_then(|it| it.to_str().ok()).map(str::to_owned);
        let body = response.body_mut().with_config().limit(limits::RELAY_RESPONSE_BYTES_MAX as u64);
        Ok(Answer { response: body.read_to_vec()?, date })
    }

    fn trouble(&self, why: &ureq::Error) -> Error {
        let directory = format!("the directory {}", self.url);
        match why {
            ureq::Error::Rustls(e) => tls_roots::refused(&directory, e),
            ureq::Error::Io(e) => tls_roots::unreachable(&directory, self.url.starts_with("https:"), e),
            ureq::Error::Timeout(_) => silent_at(&self.url, "does not answer"),
            ureq::Error::StatusCode(503) => Error::new(Code::TimedOut, format!("{directory} is busy, or its disk is"))
                .with_hint("it is asked again; if that goes on, the relay's log says why"),
            ureq::Error::StatusCode(status) => Error::new(Code::NoRoute, format!("{directory}: HTTP status {status}"))
                .with_hint("directory= is to be what the relay's program prints, with its /v1"),
            other => Error::new(Code::NoRoute, format!("{directory}: {other}"))
                .with_hint("directory= is to be what the relay's program prints"),
        }
    }
}

fn silent_at(url: &str, what: &str) -> Error {
    Error::new(Code::TimedOut, format!("the directory {url} {what}"))
        .with_hint("does it run, and is its port reachable?")
}

/// A directory that works answers sooner, but for large responses over slow lines.
const SILENT: Duration = Duration::from_secs(3);
/// Of a session's requests.
const TIMEOUT: Duration = Duration::from_secs(20);
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_directory_that_takes_requests_and_answers_none_is_named_before_the_request_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let directory = Directory::start(&url, Vec::new(), |_| {}).unwrap();
        assert!(directory.ask(0, b"a request"));
        let _taken = listener.accept().unwrap();
        assert!(directory.silence().is_none(), "it has just been asked");
        let begun = Instant::now();
        while directory.silence().is_none() {
            assert!(begun.elapsed() < TIMEOUT, "the request has ended");
            thread::sleep(Duration::from_millis(50));
        }
        let why = directory.silence().unwrap();
        assert_eq!(why.code(), Code::TimedOut);
        assert!(why.to_string().starts_with(&format!("the directory {url} has not answered for ")), "{why}");
    }
}
