//! The session's side of its local socket.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sealcast_wire::limits;

use super::{Answer, LINE_BYTES_MAX, Reply, Request};
use crate::code::Code;
use crate::config::private_folder;
use crate::error::{Error, Result};

/// Does what is asked. The bytes are those of `publish`.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request; may take as long as the change that was asked for.
    ///
    /// # Errors
    /// Told to whoever asked, code and hint included.
    fn handle(&self, request: Request, bytes: Vec<u8>) -> Result<Answer>;
}

/// The socket and the thread that serves it. Dropping it removes the socket.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Opens the socket. One that a dead process left behind is replaced.
    ///
    /// # Errors
    /// [`Code::Duplicate`] if a living process has it, or the system's own.
    pub fn open(path: &Path, handler: Arc<dyn Handler>) -> Result<Server> {
        let folder = path.parent().unwrap_or(Path::new("."));
        private_folder(folder)?;
        if UnixStream::connect(path).is_ok() {
            return Err(Error::new(Code::Duplicate, "another process of yours runs with this identity")
                .with_hint("sealcast group leave ends it; or give this process an identity of its own"));
        }
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::system(path.display(), &e)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(|e| Error::system(path.display(), &e))?;
        let ended = Arc::new(AtomicBool::new(false));
        let serve = {
            let ended = ended.clone();
            move || accept(&listener, &handler, &ended)
        };
        let thread = std::thread::Builder::new().name("sealcast-control".to_owned()).spawn(serve);
        let thread = thread.map_err(|e| Error::system("starting a thread", &e))?;
        Ok(Server { path: path.to_owned(), ended, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // Wakes the thread out of accept; if nobody listens any more, it has ended already.
        let _ = UnixStream::connect(&self.path);
        let _ = fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take().filter(|t| t.thread().id() != std::thread::current().id()) {
            // A panic in it was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn accept(listener: &UnixListener, handler: &Arc<dyn Handler>, ended: &AtomicBool) {
    let busy = Arc::new(AtomicUsize::new(0));
    while let Ok((stream, _)) = listener.accept() {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        if !is_same_user(&stream) || busy.load(Ordering::Relaxed) >= limits::CONTROL_CLIENTS_MAX {
            continue;
        }
        let (handler, mine) = (handler.clone(), busy.clone());
        busy.fetch_add(1, Ordering::Relaxed);
        let serve = move || {
            // A client that goes away in the middle is its own business.
            let _ = serve(&stream, handler.as_ref());
            mine.fetch_sub(1, Ordering::Relaxed);
        };
        if std::thread::Builder::new().name("sealcast-client".to_owned()).spawn(serve).is_err() {
            busy.fetch_sub(1, Ordering::Relaxed);
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
            Ok(request) => match body(&request, &mut reader)? {
                Ok(bytes) => handler.handle(request, bytes),
                Err(error) => Err(error),
            },
            Err(e) => Err(Error::new(Code::Usage, format!("not understood: {e}"))
                .with_hint("are both programs of the same version?")),
        };
        let stop = result.as_ref().is_err_and(|e| matches!(e.code(), Code::Usage | Code::TooLarge));
        let mut reply = serde_json::to_vec(&Reply::from(result))?;
        reply.push(b'\n');
        (&mut &*stream).write_all(&reply)?;
        if stop {
            return Ok(());
        }
    }
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

/// A client that says nothing for this long is let go.
const CLIENT_SILENCE_MAX: Duration = Duration::from_secs(600);
