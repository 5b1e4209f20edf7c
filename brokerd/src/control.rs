//! What is asked of a running broker on its own machine: to read its settings again.
//!
//! ```text
//! FOLDER/control    a socket of this user alone: 'reload' and a line feed in, one line of JSON out
//! SIGHUP            the same; what comes of it is in the log
//! ```

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use signal_hook::consts::SIGHUP;
use tracing::{error, info, warn};

/// Where a broker is asked; the socket goes when it is dropped.
pub struct Control {
    path: PathBuf,
    /// `None` where the folder's name is too long for a socket.
    socket: Option<UnixListener>,
    hung_up: Arc<AtomicBool>,
}

/// Who asked.
pub struct StopRequest(Option<UnixStream>);

/// What reading the settings again came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Settings that changed, and are in force.
    pub changed: Vec<&'static str>,
    /// Settings that changed and wait for a restart.
    pub restart: Vec<&'static str>,
}

impl Control {
    /// Listens in a broker's folder, which no other process uses.
    ///
    /// # Errors
    /// Signals cannot be heard.
    pub fn start(folder: &Path) -> io::Result<Control> {
        let path = folder.join(SOCKET);
        let hung_up = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGHUP, hung_up.clone())?;
        // What a crash left there is nobody's.
        let _ = fs::remove_file(&path);
        let socket = match listen(&path) {
            Ok(socket) => Some(socket),
            Err(e) => {
                warn!("{}: {e}; SIGHUP reloads too", path.display());
                None
            }
        };
        Ok(Control { path, socket, hung_up })
    }

    /// Whether somebody asks now.
    pub fn asked(&self) -> Option<StopRequest> {
        if self.hung_up.swap(false, Ordering::AcqRel) {
            return Some(StopRequest(None));
        }
        let (stream, _) = self.socket.as_ref()?.accept().ok()?;
        heard(&stream).ok()?.then_some(StopRequest(Some(stream)))
    }
}

impl StopRequest {
    /// Tells who asked, and the log, what came of it.
    pub fn answer(self, came: &Result<Reloaded, String>) {
        let line = match came {
            Ok(it) => {
                let nothing = it.changed.is_empty() && it.restart.is_empty();
                let of = |what: &str, all: &[&str]| (!all.is_empty()).then(|| format!("{what} {}", all.join(", ")));
                let said = [of("in force:", &it.changed), of("after a restart:", &it.restart)];
                let said: Vec<String> = said.into_iter().flatten().collect();
                info!("reloaded: {}", if nothing { "nothing changed".into() } else { said.join("; ") });
                json!({ "reloaded": true, "changed": it.changed, "restart": it.restart })
            }
            Err(why) => {
                error!("not reloaded, the settings stay as they are: {why}");
                json!({ "reloaded": false, "why": why })
            }
        };
        if let Some(mut stream) = self.0 {
            // Who does not wait for the answer finds it in the log.
            let _ = writeln!(stream, "{line}");
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.socket.is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let socket = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Whether it is the one thing that can be asked.
fn heard(stream: &UnixStream) -> io::Result<bool> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    Ok(line == "reload\n")
}

/// In the broker's folder.
pub const SOCKET: &str = "control";
/// How long who asks may take to say what.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of what is asked.
const LINE_BYTES_MAX: u64 = 64;
