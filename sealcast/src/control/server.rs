//! The session's side of its local socket.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use sealcast_wire::limits;

use super::{Answer, Heard, LINE_BYTES_MAX, Reply, Request};
use crate::code::Code;
use crate::config::program_folder;
use crate::error::{Error, Result};
use crate::group::lock;
use crate::remedy::Remedy;
use crate::session::Subscription;

/// Does what is asked. The bytes are those of `publish`.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request; may take as long as the change that was asked for.
    ///
    /// # Errors
    /// Told to whoever asked, code and hint included.
    fn handle(&self, request: Request, bytes: Vec<u8>) -> Result<Answer>;

    /// Subscribes for somebody.
    ///
    /// # Errors
    /// Told to whoever asked.
    fn subscribe(&self, pattern: &str, regex: bool) -> Result<Subscription>;
}

/// The socket and the thread that serves it.
///
/// Dropping it removes the socket and finishes what was asked before: a request that has arrived is done
/// and answered, within a second; one that has not finds the connection closed.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    listener: Arc<UnixListener>,
    ended: Arc<AtomicBool>,
    clients: Arc<Clients>,
    thread: Option<JoinHandle<()>>,
}

/// Who is connected, each served by a thread of its own.
#[derive(Debug, Default)]
struct Clients {
    connected: Mutex<Vec<(ThreadId, Arc<UnixStream>)>>,
    gone: Condvar,
}

impl Server {
    /// Opens the socket. One that a dead process left behind is replaced.
    ///
    /// # Errors
    /// [`Code::Duplicate`] if a living process has it, or the system's own.
    pub fn open(path: &Path, handler: Arc<dyn Handler>) -> Result<Server> {
        let folder = path.parent().unwrap_or(Path::new("."));
        program_folder(folder)?;
        if UnixStream::connect(path).is_ok() {
            return Err(Error::new(Code::Duplicate, "another process of yours runs with this identity")
                .with_remedy(Remedy::LeaveFirst));
        }
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::system(path.display(), &e)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(|e| Error::system(path.display(), &e))?;
        let listener = Arc::new(listener);
        let ended = Arc::new(AtomicBool::new(false));
        let clients = Arc::<Clients>::default();
        let serve = {
            let (listener, ended, clients) = (listener.clone(), ended.clone(), clients.clone());
            move || accept(&listener, &handler, &ended, &clients)
        };
        let thread = std::thread::Builder::new().name("sealcast-control".to_owned()).spawn(serve);
        let thread = thread.map_err(|e| Error::system("starting a thread", &e))?;
        Ok(Server { path: path.to_owned(), listener, ended, clients, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // Wakes the thread out of accept, also if somebody removed the path; fails only if it has ended already.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        let _ = UnixStream::connect(&self.path);
        let _ = fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take() {
            // A panic in it was reported when it happened.
            let _ = thread.join();
        }
        self.clients.finish();
    }
}

impl Clients {
    /// Serves somebody on a thread of its own, unless there are too many.
    fn welcome(self: &Arc<Self>, stream: UnixStream, handler: &Arc<dyn Handler>) {
        let (stream, handler, all) = (Arc::new(stream), handler.clone(), self.clone());
        // Held until the thread is on the list: it may have nothing to do and go at once.
        let mut connected = lock(&self.connected);
        if connected.len() >= limits::CONTROL_CLIENTS_MAX {
            return;
        }
        let its = stream.clone();
        let body = move || {
            let _slot = ClientSlot(all);
            // Let go of before the seat is: who waits for that finds the connection closed.
            let its = its;
            // A client that goes away in the middle is its own business.
            let _ = serve(&its, handler.as_ref());
        };
        // Without a thread for it, the connection closes.
        if let Ok(thread) = std::thread::Builder::new().name("sealcast-client".to_owned()).spawn(body) {
            connected.push((thread.thread().id(), stream));
        }
    }

    /// Takes no more requests, and waits for the answers to those that have arrived. The caller may itself
    /// be answering one, as the last holder of its session.
    fn finish(&self) {
        let me = std::thread::current().id();
        let deadline = Instant::now() + ANSWERS_TIMEOUT;
        let mut connected = lock(&self.connected);
        for (_, stream) in connected.iter() {
            // Fails only if the client is gone.
            let _ = stream.shutdown(Shutdown::Read);
        }
        while connected.iter().any(|(thread, _)| *thread != me) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            connected = self.gone.wait_timeout(connected, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The place of a client's thread on the list; dropped, also by a panic, it is free.
struct ClientSlot(Arc<Clients>);

impl Drop for ClientSlot {
    fn drop(&mut self) {
        let me = std::thread::current().id();
        lock(&self.0.connected).retain(|(thread, _)| *thread != me);
        self.0.gone.notify_all();
    }
}

fn accept(listener: &UnixListener, handler: &Arc<dyn Handler>, ended: &AtomicBool, clients: &Arc<Clients>) {
    while let Ok((stream, _)) = listener.accept() {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        if is_same_user(&stream) {
            clients.welcome(stream, handler);
        }
    }
}

/// The folder is private already; this holds even if somebody opens it.
fn is_same_user(stream: &UnixStream) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(stream);
    peer.is_ok_and(|p| p.uid == rustix::process::geteuid())
}

fn serve(stream: &UnixStream, handler: &dyn Handler) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_SILENCE_MAX))?;
    stream.set_write_timeout(Some(CLIENT_SILENCE_MAX))?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let result = match serde_json::from_str::<Request>(&line) {
            Ok(Request::Subscribe { pattern, regex }) => match handler.subscribe(&pattern, regex) {
                Ok(subscription) => return bring(stream, subscription),
                Err(error) => Err(error),
            },
            Ok(request) => match body(&request, &mut reader)? {
                Ok(bytes) => handler.handle(request, bytes),
                Err(error) => Err(error),
            },
            Err(e) => Err(Error::new(Code::Usage, format!("not understood: {e}"))
                .with_hint("are both programs of the same version?")),
        };
        let stop = result.as_ref().is_err_and(|e| matches!(e.code(), Code::Usage | Code::TooLarge));
        say(stream, &Reply::from(result), &[])?;
        if stop {
            return Ok(());
        }
    }
}

/// Brings messages until the subscription or the connection ends.
fn bring(stream: &UnixStream, mut subscription: Subscription) -> io::Result<()> {
    say(stream, &Reply::Ok(Answer::Done), &[])?;
    loop {
        match subscription.next_timeout(LOOK_FOR_CLIENT) {
            Ok(Some(message)) => {
                let mut heard = Heard { missed: subscription.missed(), ..Heard::from(message) };
                let payload = std::mem::take(&mut heard.payload);
                say(stream, &Reply::Heard(heard), &payload)?;
            }
            Ok(None) if has_ended(stream) => return Ok(()),
            Ok(None) => {}
            Err(why) => return say(stream, &Reply::from(Err(why)), &[]),
        }
    }
}

/// Whether the client is gone, or no more is to be read from it. Nothing that it says is expected.
fn has_ended(stream: &UnixStream) -> bool {
    let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
    let peeked = rustix::net::recv(stream, &mut [0], flags);
    !matches!(peeked, Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR))
}

fn say(mut stream: &UnixStream, reply: &Reply, payload: &[u8]) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(reply)?;
    bytes.push(b'\n');
    bytes.extend_from_slice(payload);
    stream.write_all(&bytes)
}

fn body(request: &Request, reader: &mut impl Read) -> io::Result<Result<Vec<u8>>> {
    let Request::Publish { bytes, .. } = request else { return Ok(Ok(Vec::new())) };
    if *bytes > limits::MESSAGE_BYTES_MAX {
        return Ok(Err(Error::new(Code::TooLarge, format!("{bytes} bytes are too many for one message"))));
    }
    let mut body = Vec::new();
    reader.take(*bytes as u64).read_to_end(&mut body)?;
    if body.len() < *bytes { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(Ok(body)) }
}

/// How long a server that ends works on requests that had arrived. Publishing takes less; a change of the
/// group that takes longer is told that the session has ended.
const ANSWERS_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a subscription without messages looks whether its client is there.
const LOOK_FOR_CLIENT: Duration = Duration::from_millis(200);
/// A client that says nothing for this long is let go.
const CLIENT_SILENCE_MAX: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::control::Client;

    /// Says when it begins to publish, and goes on when it is told to.
    struct Slow {
        begun: mpsc::Sender<()>,
        go: Mutex<mpsc::Receiver<()>>,
        published: Mutex<Vec<String>>,
    }

    impl Handler for Slow {
        fn handle(&self, request: Request, _bytes: Vec<u8>) -> Result<Answer> {
            if let Request::Publish { topic, .. } = request {
                self.begun.send(()).expect("the test waits");
                self.go.lock().unwrap().recv().expect("the test says so");
                self.published.lock().unwrap().push(topic);
            }
            Ok(Answer::Published { number: Some(7), others: None, here: false })
        }

        fn subscribe(&self, _: &str, _: bool) -> Result<Subscription> {
            Err(Error::closed())
        }
    }

    #[test]
    fn a_server_whose_socket_somebody_removed_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let (begun, goes) = (mpsc::channel().0, mpsc::channel().1);
        let server = Server::open(&path, Arc::new(Slow { begun, go: Mutex::new(goes), published: Mutex::default() }));
        fs::remove_file(&path).unwrap();
        drop(server.unwrap());
    }

    #[test]
    fn rule_a7_a_server_that_ends_answers_what_it_was_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let ((begun, begins), (go, goes)) = (mpsc::channel(), mpsc::channel());
        let slow = Arc::new(Slow { begun, go: Mutex::new(goes), published: Mutex::default() });
        let server = Server::open(&path, slow.clone()).unwrap();
        let mut idle = Client::connect(&path).unwrap().unwrap();
        let mut requester = UnixStream::connect(&path).unwrap();
        requester.write_all(b"{\"do\":\"publish\",\"topic\":\"last words\",\"bytes\":0}\n").unwrap();
        begins.recv().unwrap();

        let ending = std::thread::spawn(move || drop(server));
        // It ends: the socket is gone; and it does not before it has answered.
        while path.exists() {
            std::thread::yield_now();
        }
        assert!(!ending.is_finished());
        go.send(()).unwrap();
        ending.join().unwrap();
        assert_eq!(*slow.published.lock().unwrap(), ["last words"]);
        // The answer is there, not under way.
        requester.set_nonblocking(true).unwrap();
        let mut answer = String::new();
        requester.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "{\"ok\":{\"published\":{\"number\":7}}}\n");
        // Who asks too late is told so, and nothing is done.
        assert_eq!(
            idle.publish("too late", b"", sealcast_wire::Guarantee::BestEffort).unwrap_err().code(),
            Code::Closed
        );
        assert_eq!(slow.published.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_server_may_end_in_the_middle_of_its_own_answer() {
        /// Holds its server, as a request holds the last clone of a session.
        struct Last(Mutex<Option<Server>>);

        impl Handler for Last {
            fn handle(&self, _request: Request, _bytes: Vec<u8>) -> Result<Answer> {
                drop(lock(&self.0).take());
                Ok(Answer::Done)
            }

            fn subscribe(&self, _: &str, _: bool) -> Result<Subscription> {
                Err(Error::closed())
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let last = Arc::new(Last(Mutex::default()));
        *lock(&last.0) = Some(Server::open(&path, last.clone()).unwrap());
        let mut client = Client::connect(&path).unwrap().unwrap();
        client.leave().unwrap();
        assert!(!path.exists());
    }
}
