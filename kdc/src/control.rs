//! The local socket of a running centre: other processes of the same user register, revoke and list, since the database is
//! open in one process at a time. Who asks need not know whether one runs: see [`Centre`].
//!
//! One request is a line of JSON, one answer too:
//! ```text
//! → {"do":"register","registration":"5343524547…"}        without realm and serial, which the centre sets
//! ← {"ok":{"registered":"5343524547…"}}
//! → {"do":"revoke","name":"robot7","reason":"lost"}
//! ← {"error":{"unknown":"robot7"}}
//! → {"do":"list","after":0}
//! ← {"ok":{"list":{"entries":[…],"next":null}}}
//! ```

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sealcast::config::FileError;
use sealcast_crypto::identity::Registration;
use sealcast_crypto::secret::Secret;
use sealcast_keys::center::row::Revocation;
use sealcast_wire::{CertHash, Utc};
use serde::{Deserialize, Serialize};

use crate::store::{Entry, Store, StoreError, lock};

/// The centre in a folder, for one who changes it or looks at it: the folder itself, or the process that runs it.
#[derive(Debug)]
pub enum Centre {
    /// Nobody runs it.
    Here(Store),
    /// A running process.
    Running(Client),
}

/// A connection to a running centre.
#[derive(Debug)]
pub struct Client(BufReader<UnixStream>);

/// The running centre's side: the socket, and the thread that serves it. Dropping it removes the socket.
#[derive(Debug)]
pub struct Control {
    folder: PathBuf,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    ended: AtomicBool,
    /// Whose requests are answered now.
    connected: Mutex<Option<UnixStream>>,
}

impl Centre {
    /// The centre in a folder. One that another process has open for a moment is waited for.
    ///
    /// # Errors
    /// [`StoreError::None`] if there is none, [`StoreError::Busy`], or what is wrong with the folder.
    pub fn open(folder: &Path) -> Result<Centre, StoreError> {
        Centre::reach(folder, || Store::open(folder))
    }

    /// The same; a centre with this secret is made if there is none.
    ///
    /// # Errors
    /// As [`Centre::open`].
    pub fn create(folder: &Path, secret: &Secret<32>) -> Result<Centre, StoreError> {
        Centre::reach(folder, || Store::create(folder, secret))
    }

    fn reach(folder: &Path, open: impl Fn() -> Result<Store, StoreError>) -> Result<Centre, StoreError> {
        let begun = Instant::now();
        loop {
            if let Some(client) = Client::connect(folder)? {
                return Ok(Centre::Running(client));
            }
            match open() {
                // It starts or ends, or another one registers.
                Err(StoreError::Busy(_)) if begun.elapsed() < BUSY_TIMEOUT => std::thread::sleep(BUSY_RETRY),
                other => return other.map(Centre::Here),
            }
        }
    }

    /// As [`Store::register`].
    ///
    /// # Errors
    /// As there, and [`StoreError::Running`].
    pub fn register(&mut self, draft: &Registration, now: Utc) -> Result<Registration, StoreError> {
        let client = match self {
            Centre::Here(store) => return store.register(draft.clone(), now),
            Centre::Running(client) => client,
        };
        match client.request(&Request::Register { registration: hex::encode(draft.to_bytes()) })? {
            Answer::Registered(text) => registration(&text).ok_or_else(not_understood),
            _ => Err(not_understood()),
        }
    }

    /// Revokes the newest registration of a name: whose, and the revocation's number.
    ///
    /// # Errors
    /// As [`Store::revoke`], and [`StoreError::Running`].
    pub fn revoke(&mut self, name: &str, reason: &str, now: Utc) -> Result<(CertHash, u64), StoreError> {
        let client = match self {
            Centre::Here(store) => return revoke(store, name, reason, now),
            Centre::Running(client) => client,
        };
        match client.request(&Request::Revoke { name: name.to_owned(), reason: reason.to_owned() })? {
            Answer::Revoked { hash, number } => Ok((CertHash(bytes32(&hash).ok_or_else(not_understood)?), number)),
            _ => Err(not_understood()),
        }
    }

    /// Where the centre listens, or last did; `None` if it never ran.
    ///
    /// # Errors
    /// The database's own, and [`StoreError::Running`].
    pub fn address(&mut self) -> Result<Option<SocketAddr>, StoreError> {
        let client = match self {
            Centre::Here(store) => return store.address(),
            Centre::Running(client) => client,
        };
        match client.request(&Request::Address)? {
            Answer::Address(address) => Ok(address),
            _ => Err(not_understood()),
        }
    }

    /// The next entries after a row, and after which row to go on, if there are more.
    ///
    /// # Errors
    /// The database's own, and [`StoreError::Running`].
    pub fn entries_after(&mut self, row: u64) -> Result<(Vec<Entry>, Option<u64>), StoreError> {
        let client = match self {
            Centre::Here(store) => return store.entries_after(row, LIST_ROWS),
            Centre::Running(client) => client,
        };
        match client.request(&Request::List { after: row })? {
            Answer::List { entries, next } => {
                let entries = entries.into_iter().map(EntryText::entry).collect::<Option<_>>();
                Ok((entries.ok_or_else(not_understood)?, next))
            }
            _ => Err(not_understood()),
        }
    }
}

impl Client {
    /// Connects; `None` if nobody runs the centre in this folder.
    ///
    /// # Errors
    /// The system's own.
    pub fn connect(folder: &Path) -> Result<Option<Client>, StoreError> {
        let Ok(opened) = File::open(folder) else { return Ok(None) };
        match UnixStream::connect(reachable(folder, &opened)) {
            Ok(stream) => {
                let set = stream.set_read_timeout(Some(ANSWER_TIMEOUT));
                set.map_err(|e| FileError::io(&folder.join(SOCKET), e))?;
                Ok(Some(Client(BufReader::new(stream))))
            }
            // A socket that nobody listens on is what a killed process leaves behind.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
            Err(e) => Err(FileError::io(&folder.join(SOCKET), e).into()),
        }
    }

    fn request(&mut self, request: &Request) -> Result<Answer, StoreError> {
        let mut line = serde_json::to_vec(request).expect("requests are plain data");
        line.push(b'\n');
        let mut reply = String::new();
        let exchanged = self.0.get_mut().write_all(&line);
        let exchanged = exchanged.and_then(|()| self.0.by_ref().take(REPLY_BYTES_MAX).read_line(&mut reply));
        match exchanged {
            Ok(0) => return Err(StoreError::Running("it ended before it answered".to_owned())),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                return Err(StoreError::Running(format!("no answer in {ANSWER_TIMEOUT:?}")));
            }
            Err(e) => return Err(StoreError::Running(e.to_string())),
        }
        match serde_json::from_str(&reply).map_err(|_| not_understood())? {
            Reply::Ok(answer) => Ok(answer),
            Reply::Error(why) => Err(why.into()),
        }
    }
}

impl Control {
    /// Opens the socket in the store's folder. One that a dead process left behind is replaced: nobody else runs this
    /// centre while we have its database. `now` reads the calendar.
    ///
    /// # Errors
    /// The system's own.
    pub fn open(store: Store, now: impl Fn() -> Utc + Send + 'static) -> Result<Control, StoreError> {
        let folder = store.folder().to_owned();
        let failed = |e| StoreError::from(FileError::io(&folder.join(SOCKET), e));
        match fs::remove_file(folder.join(SOCKET)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let opened = File::open(&folder).map_err(failed)?;
        let listener = UnixListener::bind(reachable(&folder, &opened)).map_err(failed)?;
        // The folder is closed to others already.
        rustix::fs::chmod(folder.join(SOCKET), rustix::fs::Mode::from_raw_mode(0o600)).map_err(|e| failed(e.into()))?;
        let state = Arc::<State>::default();
        let serve = {
            let state = state.clone();
            move || accept(&listener, &store, &now, &state)
        };
        let thread =
            std::thread::Builder::new().name("sealcast-kdc-control".to_owned()).spawn(serve).map_err(failed)?;
        Ok(Control { folder, state, thread: Some(thread) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Relaxed);
        // What arrived is still answered; if the client is gone, there is nothing to close.
        let _ = lock(&self.state.connected).as_ref().map(|it| it.shutdown(Shutdown::Read));
        // Wakes the thread out of accept; if nobody listens any more, it has ended already.
        let _ = Client::connect(&self.folder);
        let _ = fs::remove_file(self.folder.join(SOCKET));
        if let Some(thread) = self.thread.take() {
            // A panic in it was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// One at a time: each takes a few milliseconds, and one that is slower than [`CLIENT_TIMEOUT`] is let go.
fn accept(listener: &UnixListener, store: &Store, now: &impl Fn() -> Utc, state: &State) {
    while let Ok((stream, _)) = listener.accept() {
        *lock(&state.connected) = stream.try_clone().ok();
        if state.ended.load(Ordering::Relaxed) {
            return;
        }
        let peer = rustix::net::sockopt::socket_peercred(&stream);
        if peer.is_ok_and(|it| it.uid == rustix::process::geteuid()) {
            // A client that goes away in the middle is its own business.
            let _ = serve(&stream, store, now);
        }
        *lock(&state.connected) = None;
    }
}

fn serve(mut stream: &UnixStream, store: &Store, now: &impl Fn() -> Utc) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.by_ref().take(REQUEST_BYTES_MAX).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let request = serde_json::from_str::<Request>(&line);
        let is_understood = request.is_ok();
        let reply = match request.map_err(|e| StoreError::Running(format!("not understood: {e}"))) {
            Ok(request) => handle(store, request, now()),
            Err(why) => Err(why),
        };
        let mut line = serde_json::to_vec(&match reply {
            Ok(answer) => Reply::Ok(answer),
            Err(why) => Reply::Error(why.into()),
        })?;
        line.push(b'\n');
        stream.write_all(&line)?;
        if !is_understood {
            return Ok(());
        }
    }
}

fn handle(store: &Store, request: Request, now: Utc) -> Result<Answer, StoreError> {
    match request {
        Request::Register { registration: text } => {
            let draft = registration(&text).ok_or_else(|| StoreError::Refused("it is no registration".to_owned()))?;
            Ok(Answer::Registered(hex::encode(store.register(draft, now)?.to_bytes())))
        }
        Request::Revoke { name, reason } => {
            let (hash, number) = revoke(store, &name, &reason, now)?;
            Ok(Answer::Revoked { hash: hex::encode(hash.0), number })
        }
        Request::Address => Ok(Answer::Address(store.address()?)),
        Request::List { after } => {
            let (entries, next) = store.entries_after(after, LIST_ROWS)?;
            Ok(Answer::List { entries: entries.iter().map(EntryText::new).collect(), next })
        }
    }
}

fn revoke(store: &Store, name: &str, reason: &str, now: Utc) -> Result<(CertHash, u64), StoreError> {
    let entry = store.named(name)?.ok_or_else(|| StoreError::Unknown(name.to_owned()))?;
    let hash = entry.registration.hash();
    Ok((hash, store.revoke(&hash, ADMINISTRATOR, reason, now)?))
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
enum Request {
    Register { registration: String },
    Revoke { name: String, reason: String },
    List { after: u64 },
    Address,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reply {
    Ok(Answer),
    Error(Why),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Registered(String),
    Revoked { hash: String, number: u64 },
    List { entries: Vec<EntryText>, next: Option<u64> },
    Address(Option<SocketAddr>),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Why {
    Taken(String),
    Unknown(String),
    Refused(String),
    StandBy,
    Other(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct EntryText {
    row: u64,
    registration: String,
    revoked: Option<RevocationText>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RevocationText {
    number: u64,
    at: i64,
    by: String,
    reason: String,
}

impl From<StoreError> for Why {
    fn from(error: StoreError) -> Why {
        match error {
            StoreError::Taken(name) => Why::Taken(name),
            StoreError::Unknown(name) => Why::Unknown(name),
            StoreError::Refused(what) => Why::Refused(what),
            StoreError::StandBy => Why::StandBy,
            StoreError::Running(what) => Why::Other(what),
            other => Why::Other(other.to_string()),
        }
    }
}

impl From<Why> for StoreError {
    fn from(why: Why) -> StoreError {
        match why {
            Why::Taken(name) => StoreError::Taken(name),
            Why::Unknown(name) => StoreError::Unknown(name),
            Why::Refused(what) => StoreError::Refused(what),
            Why::StandBy => StoreError::StandBy,
            Why::Other(what) => StoreError::Running(what),
        }
    }
}

impl EntryText {
    fn new(entry: &Entry) -> EntryText {
        let revoked = entry.revoked.as_ref().map(|it| RevocationText {
            number: it.number,
            at: it.at.0,
            by: it.by.clone(),
            reason: it.reason.clone(),
        });
        EntryText { row: entry.row, registration: hex::encode(entry.registration.to_bytes()), revoked }
    }

    fn entry(self) -> Option<Entry> {
        let registration = registration(&self.registration)?;
        let principal = registration.hash();
        let revoked = self.revoked.map(|it| {
            let RevocationText { number, at, by, reason } = it;
            Revocation { principal, number, at: Utc(at), by, reason }
        });
        Some(Entry { row: self.row, registration, revoked })
    }
}

fn registration(text: &str) -> Option<Registration> {
    Registration::from_bytes(&hex::decode(text).ok()?).ok()
}

fn bytes32(text: &str) -> Option<[u8; 32]> {
    hex::decode(text).ok()?.try_into().ok()
}

fn not_understood() -> StoreError {
    StoreError::Running("its answer is not understood; are both programs of the same version?".to_owned())
}

/// A path by which the kernel takes the folder's socket: it refuses those of more than 107 bytes.
fn reachable(folder: &Path, opened: &File) -> PathBuf {
    let path = folder.join(SOCKET);
    if path.as_os_str().len() < SOCKET_PATH_BYTES {
        return path;
    }
    PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd())).join(SOCKET)
}

/// Name of the socket.
const SOCKET: &str = "control.sock";
/// Bytes of a Unix socket's path, `sun_path` of unix(7).
const SOCKET_PATH_BYTES: usize = 108;
/// As whom somebody revokes that types it at the centre.
const ADMINISTRATOR: &str = "administrator";
/// Rows that one answer looks at: their text stays below [`REPLY_BYTES_MAX`].
const LIST_ROWS: usize = 128;
const REQUEST_BYTES_MAX: u64 = 8 << 10;
const REPLY_BYTES_MAX: u64 = 1 << 20;
/// How long one waits for a database that another process has open.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const BUSY_RETRY: Duration = Duration::from_millis(20);
/// Longer than any commit takes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{NOW, draft, folder, secret};

    fn running(folder: &Path) -> Control {
        Control::open(Store::create(folder, &secret()).unwrap(), || NOW).unwrap()
    }

    fn all(centre: &mut Centre) -> Vec<Entry> {
        let (mut after, mut all) = (Some(0), vec![]);
        while let Some(row) = after {
            let (some, next) = centre.entries_after(row).unwrap();
            all.extend(some);
            after = next;
        }
        all
    }

    #[test]
    fn a_running_centre_does_what_the_folder_would() {
        let folder = folder();
        let mut listed = vec![];
        for runs in [false, true, false] {
            let control = runs.then(|| running(folder.path()));
            let mut centre = Centre::create(folder.path(), &secret()).unwrap();
            assert_eq!(matches!(centre, Centre::Running(_)), runs);
            assert_eq!(all(&mut centre), listed, "the same, however it is read");
            let address = centre.address().unwrap().map(|it| it.port());
            assert_eq!(address, (!listed.is_empty()).then_some(listed.len() as u16));
            let name = format!("robot{}", listed.len());
            let made = centre.register(&draft(&name), NOW).unwrap();
            let taken = centre.register(&draft(&name), NOW);
            assert!(matches!(taken, Err(StoreError::Taken(it)) if it == name));
            let (hash, number) = centre.revoke(&name, "lost", NOW).unwrap();
            assert_eq!((hash, number), (made.hash(), 1 + listed.len() as u64));
            assert!(matches!(centre.revoke("nobody", "", NOW), Err(StoreError::Unknown(it)) if it == "nobody"));
            assert!(matches!(centre.revoke(&name, &"x".repeat(201), NOW), Ok((_, again)) if again == number));
            listed = all(&mut centre);
            let last = listed.last().unwrap().revoked.clone().unwrap();
            assert_eq!((last.reason.as_str(), last.at, last.by.as_str()), ("lost", NOW, ADMINISTRATOR));
            drop((centre, control));
            let address = ([127, 0, 0, 1], listed.len() as u16).into();
            Store::open(folder.path()).unwrap().set_address(address).unwrap();
        }
        assert_eq!(listed.len(), 3);
    }

    #[test]
    fn a_long_list_comes_in_parts() {
        let folder = folder();
        let store = Store::create(folder.path(), &secret()).unwrap();
        let names: Vec<String> = (0..LIST_ROWS + 3).map(|at| format!("robot{at}")).collect();
        let made: Vec<_> = names.iter().map(|name| store.register(draft(name), NOW).unwrap()).collect();
        let _control = Control::open(store, || NOW).unwrap();
        let listed = all(&mut Centre::open(folder.path()).unwrap());
        assert_eq!(listed.into_iter().map(|it| it.registration).collect::<Vec<_>>(), made);
    }

    #[test]
    fn a_stand_by_that_runs_registers_nobody() {
        let folder = folder();
        let control = running(folder.path());
        let mut centre = Centre::open(folder.path()).unwrap();
        centre.register(&draft("alice"), NOW).unwrap();
        // A client that is still connected holds up no end.
        let begun = Instant::now();
        drop(control);
        assert!(begun.elapsed() < CLIENT_TIMEOUT);
        assert!(matches!(centre.register(&draft("bob"), NOW), Err(StoreError::Running(_))));
        Store::open(folder.path()).unwrap().set_stand_by(true).unwrap();
        let _control = running(folder.path());
        let mut centre = Centre::open(folder.path()).unwrap();
        assert!(matches!(centre.register(&draft("bob"), NOW), Err(StoreError::StandBy)));
        assert!(matches!(centre.revoke("alice", "", NOW), Err(StoreError::StandBy)));
    }

    #[test]
    fn many_processes_may_register_at_once() {
        let folder = folder();
        drop(Store::create(folder.path(), &secret()).unwrap());
        std::thread::scope(|scope| {
            for at in 0..8 {
                let path = folder.path();
                scope.spawn(move || {
                    Centre::open(path).unwrap().register(&draft(&format!("robot{at}")), NOW).unwrap();
                });
            }
        });
        assert_eq!(all(&mut Centre::open(folder.path()).unwrap()).len(), 8);
    }

    #[test]
    fn what_a_dead_process_left_behind_is_replaced_and_paths_may_be_long() {
        let short = folder();
        let long = short.path().join("l".repeat(60)).join("m".repeat(60));
        for at in [short.path(), &long] {
            drop(Store::create(at, &secret()).unwrap());
            let opened = File::open(at).unwrap();
            drop(UnixListener::bind(reachable(at, &opened)).unwrap());
            assert!(at.join(SOCKET).exists() && Client::connect(at).unwrap().is_none());
            let control = running(at);
            assert!(Client::connect(at).unwrap().is_some());
            drop(control);
            assert!(!at.join(SOCKET).exists());
        }
    }

    #[test]
    fn rule_g2_nonsense_is_answered_and_the_connection_ends() {
        let folder = folder();
        let _control = running(folder.path());
        let long = format!("{{\"do\":\"{}\"}}\n", "x".repeat(9_000));
        for nonsense in ["\n", "{\"do\":\"dance\"}\n", "{\"do\":\"list\",\"after\":-1}\n", &long] {
            let mut stream = UnixStream::connect(folder.path().join(SOCKET)).unwrap();
            stream.write_all(nonsense.as_bytes()).unwrap();
            let mut reply = vec![];
            // What was not read of a long line breaks the connection, after the answer.
            let _ = stream.read_to_end(&mut reply);
            assert!(reply.starts_with(b"{\"error\":{\"other\":\"not understood"), "{nonsense:?}: {reply:?}");
        }
        let mut stream = UnixStream::connect(folder.path().join(SOCKET)).unwrap();
        stream.write_all(b"{\"do\":\"register\",\"registration\":\"00\"}\n{\"do\":\"list\",\"after\":0}\n").unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "{\"error\":{\"refused\":\"it is no registration\"}}");
        assert_eq!(lines.next().unwrap().unwrap(), "{\"ok\":{\"list\":{\"entries\":[],\"next\":null}}}");
    }
}
