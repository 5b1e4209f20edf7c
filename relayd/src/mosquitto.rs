//! A Mosquitto of the relay's own: a child process that ends with the relay, and is started again if it ends before.
//!
//! ```text
//! members ── MQTT(S), --mqtt-listen ──▶ mosquitto ◀── mqtt.sock, in the data folder ── announcer
//! ```
//! The relay comes in by a socket that only its user can open, so that it needs no password. A relay that is killed leaves its
//! broker behind, which goes on; the next start ends that one first.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use tracing::warn;

use crate::failure::{Code, Failure};
use crate::folder::Folder;
use crate::tls::Files;
use crate::{limits, lock};

/// How members reach it.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where it listens; with port 0, at a free one.
    pub listen: SocketAddr,
    /// Users and hashes of their passwords, as `mosquitto_passwd` writes them; without, everybody is let in.
    pub users: Option<PathBuf>,
    /// Certificate and key, if it speaks TLS.
    pub tls: Option<Files>,
}

/// It runs, until this is dropped.
pub struct Mosquitto {
    /// Where members reach it.
    listens: SocketAddr,
    socket: PathBuf,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    is_ending: bool,
    /// Of the process that runs.
    pid: Option<Pid>,
}

impl Mosquitto {
    /// Starts it, with its files in this folder.
    ///
    /// # Errors
    /// It is not installed, it refuses a file, or the address cannot be used.
    pub fn start(folder: &Folder, setup: &Setup) -> Result<Mosquitto, Failure> {
        let paths = Paths::within(folder.path())?;
        paths.end_earlier();
        match fs::create_dir(&paths.kept) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(Failure::file(&paths.kept, &e)),
            _ => {}
        }
        // Somebody may take a free port before Mosquitto does.
        let mut tries = if setup.listen.port() == 0 { FREE_PORTS } else { 1 };
        let (listens, running) = loop {
            let listens = free(setup.listen).map_err(|e| Failure::address("--mqtt-listen", setup.listen, &e))?;
            folder.write(CONFIG, paths.config(listens, setup)?.as_bytes())?;
            let mut running = paths.spawn()?;
            tries -= 1;
            match running.wait_until_it_listens(&paths, listens) {
                Ok(()) => break (listens, running),
                Err(failure) if tries == 0 => return Err(failure),
                Err(_) => {}
            }
        };
        let state = Arc::new(Mutex::new(State { is_ending: false, pid: running.pid() }));
        let socket = paths.socket.clone();
        let supervised = state.clone();
        let thread = thread::Builder::new().name("mosquitto".into());
        let thread = thread.spawn(move || supervise(&paths, running, &supervised));
        let thread = thread.map_err(|e| Failure::file(folder.path(), &e))?;
        Ok(Mosquitto { listens, socket, state, thread: Some(thread) })
    }

    /// Where members reach it.
    pub fn listens(&self) -> SocketAddr {
        self.listens
    }

    /// Has it read its users again.
    pub fn reload(&self) {
        if let Some(pid) = lock(&self.state).pid {
            let _ = kill_process(pid, Signal::HUP);
        }
    }

    /// Where the relay does.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Mosquitto {
    /// Ends it. It writes what it keeps for members that are away.
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        let pid = {
            let mut state = lock(&self.state);
            state.is_ending = true;
            state.pid
        };
        thread.thread().unpark();
        for signal in [Signal::TERM, Signal::KILL] {
            let begun = Instant::now();
            // Its number may be another process's once it has ended.
            if let Some(pid) = pid.filter(|_| !thread.is_finished()) {
                let _ = kill_process(pid, signal);
            }
            while !thread.is_finished() && begun.elapsed() < limits::BROKER_CLOSE_TIMEOUT {
                thread::sleep(limits::BROKER_TICK);
            }
        }
        let _ = thread.join();
    }
}

/// Waits for its end, and starts it again, until it is to end.
fn supervise(paths: &Paths, mut running: Running, state: &Mutex<State>) {
    let (least, most) = limits::RECONNECT_AFTER;
    let mut wait = least;
    loop {
        let begun = Instant::now();
        let ended = running.wait();
        lock(state).pid = None;
        wait = if begun.elapsed() > most { least } else { (wait * 2).min(most) };
        let mut why = ended;
        running = loop {
            if lock(state).is_ending {
                return;
            }
            warn!("the MQTT broker has ended: {why}; it is started again");
            thread::park_timeout(wait);
            let mut state = lock(state);
            if state.is_ending {
                return;
            }
            match paths.spawn() {
                Ok(running) => {
                    state.pid = running.pid();
                    break running;
                }
                Err(failure) => why = failure.what,
            }
            wait = (wait * 2).min(most);
        };
    }
}

/// Its files.
struct Paths {
    config: PathBuf,
    socket: PathBuf,
    pid: PathBuf,
    /// What it keeps for members that are away.
    kept: PathBuf,
}

impl Paths {
    fn within(folder: &Path) -> Result<Paths, Failure> {
        // It runs in any folder.
        let folder = fs::canonicalize(folder).map_err(|e| Failure::file(folder, &e))?;
        let at = |name: &str| folder.join(name);
        let paths =
            Paths { config: at(CONFIG), socket: at("mqtt.sock"), pid: at("mosquitto.pid"), kept: at("mosquitto") };
        let fits = |it: &str| it.len() <= limits::SOCKET_PATH_BYTES_MAX && !it.contains([' ', '\n', '\t']);
        if !paths.socket.to_str().is_some_and(fits) {
            return Err(Failure::new(
                Code::BadValue,
                format!("{}: Mosquitto takes no socket of such a long or strange path", paths.socket.display()),
                "name a folder with a shorter path with --data, or a broker of yours with --mqtt",
            ));
        }
        Ok(paths)
    }

    fn config(&self, listens: SocketAddr, setup: &Setup) -> Result<String, Failure> {
        let Paths { socket, kept, .. } = self;
        let mut lines = vec![
            "# sealcast-relay writes this at each start.".to_owned(),
            "per_listener_settings true".into(),
            // It counts where the relay runs as root: its folder is for nobody else.
            "user root".into(),
            "persistence true".into(),
            format!("persistence_location {}/", kept.display()),
            format!("autosave_interval {}", limits::BROKER_SAVE_EVERY.as_secs()),
            format!("max_packet_size {}", limits::MQTT_PACKET_BYTES_MAX),
            format!("max_inflight_messages {}", limits::BROKER_IN_FLIGHT_MAX),
            "max_queued_messages 0".into(),
            "retain_available false".into(),
            format!("memory_limit {}", limits::BROKER_MEMORY_MAX),
            format!("max_queued_bytes {}", limits::BROKER_QUEUED_BYTES_MAX),
            "set_tcp_nodelay true".into(),
            "log_dest stderr".into(),
            "log_type error".into(),
            format!("listener 0 {}", socket.display()),
            "allow_anonymous true".into(),
            format!("listener {} {}", listens.port(), listens.ip()),
            // Before a listener it would be said of another one, which everybody reaches at 1883.
            format!("max_connections {}", limits::BROKER_CONNECTIONS_MAX),
        ];
        match &setup.users {
            None => lines.push("allow_anonymous true".into()),
            Some(users) => {
                let path = whole(users, "--mqtt-users")?;
                has_users(users)?;
                lines.push("allow_anonymous false".into());
                lines.push(format!("password_file {path}"));
            }
        }
        if let Some(Files { certificates, key }) = &setup.tls {
            lines.push(format!("certfile {}", whole(certificates, "--tls-cert")?));
            lines.push(format!("keyfile {}", whole(key, "--tls-key")?));
        }
        Ok(lines.join("\n") + "\n")
    }

    fn spawn(&self) -> Result<Running, Failure> {
        let mut child = PROGRAMS
            .iter()
            .map(|it| self.begin(it))
            .find(|it| !is_missing(it))
            .unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
            .map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => Failure::new(
                    Code::Missing,
                    "there is no program 'mosquitto', the MQTT broker",
                    "install it, as by 'sudo apt install mosquitto', or name a broker of yours with --mqtt",
                ),
                _ => Failure::new(Code::System, format!("mosquitto: {e}"), "name a broker of yours with --mqtt"),
            })?;
        let said = Arc::new(Mutex::new(String::new()));
        let (stderr, keep) = (child.stderr.take().expect("it is piped"), said.clone());
        thread::spawn(move || {
            // The last error says why it ends.
            for line in BufReader::new(stderr).lines().map_while(Result::ok).filter(|it| it.contains(": Error")) {
                *lock(&keep) = line;
            }
        });
        // Without the file, a broker that is left behind keeps its port, and the next start says so.
        if let Err(e) = fs::write(&self.pid, format!("{}\n", child.id())) {
            warn!("{}: {e}", self.pid.display());
        }
        Ok(Running { child, said })
    }

    fn begin(&self, program: &str) -> io::Result<Child> {
        let mut command = Command::new(program);
        command.arg("-c").arg(&self.config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // Ctrl-C is meant for the relay, which ends it in order.
        command.process_group(0).spawn()
    }

    /// Ends one that a killed relay left behind.
    fn end_earlier(&self) {
        let pid = || fs::read_to_string(&self.pid).ok()?.trim().parse().ok().and_then(Pid::from_raw);
        let Some(pid) = pid() else { return };
        let is_it = || {
            let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
            let mut arguments = line.split(|it| *it == 0).skip(1);
            arguments.any(|it| it == self.config.as_os_str().as_encoded_bytes())
        };
        for signal in [Signal::TERM, Signal::KILL] {
            let begun = Instant::now();
            while is_it() && begun.elapsed() < limits::BROKER_CLOSE_TIMEOUT {
                let _ = kill_process(pid, signal);
                thread::sleep(limits::BROKER_TICK);
            }
        }
    }
}

struct Running {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Running {
    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Waits for its end; why it ended.
    fn wait(&mut self) -> String {
        let status = self.child.wait().map_or_else(|e| e.to_string(), |it| it.to_string());
        let said = lock(&self.said).clone();
        // `<seconds since 1970>: Error: …`
        let said = said.split_once(": ").map_or("", |(_, said)| said);
        if said.is_empty() { status } else { format!("{said} ({status})") }
    }

    fn wait_until_it_listens(&mut self, paths: &Paths, at: SocketAddr) -> Result<(), Failure> {
        let begun = Instant::now();
        let listens = || UnixStream::connect(&paths.socket).is_ok() && TcpStream::connect(near(at)).is_ok();
        while !listens() {
            let has_ended = self.child.try_wait().is_ok_and(|it| it.is_some());
            if !has_ended && begun.elapsed() < limits::BROKER_START_TIMEOUT {
                thread::sleep(limits::BROKER_TICK);
                continue;
            }
            // It may have ended just now.
            let _ = self.child.kill();
            let why = self.wait();
            return Err(Failure::new(
                Code::System,
                format!("the MQTT broker does not start: {why}"),
                format!("'mosquitto -c {}' says more", paths.config.display()),
            ));
        }
        Ok(())
    }
}

/// Where a program of this machine reaches what listens there.
fn near(at: SocketAddr) -> SocketAddr {
    match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, at.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, at.port()).into(),
        _ => at,
    }
}

/// Whether a file is one of `mosquitto_passwd`: Mosquitto says nothing of another one, and lets nobody in.
fn has_users(path: &Path) -> Result<(), Failure> {
    let hint =
        "make it with 'mosquitto_passwd -c FILE NAME'; 'mosquitto_passwd -U FILE' hashes passwords that are in clear";
    let text =
        fs::read_to_string(path).map_err(|e| Failure::new(Code::Content, format!("{}: {e}", path.display()), hint))?;
    let mut lines = text.lines().filter(|it| !it.is_empty() && !it.starts_with('#')).peekable();
    let is_user =
        |line: &str| line.split_once(':').is_some_and(|(name, hash)| !name.is_empty() && hash.starts_with('$'));
    if lines.peek().is_some() && lines.all(is_user) {
        return Ok(());
    }
    let what = format!("{}: these are no users of Mosquitto with hashed passwords", path.display());
    Err(Failure::new(Code::Content, what, hint))
}

/// The address, which nobody uses, with a port.
fn free(at: SocketAddr) -> io::Result<SocketAddr> {
    TcpListener::bind(at)?.local_addr()
}

/// A path for the configuration, which lies elsewhere.
fn whole(path: &Path, option: &str) -> Result<String, Failure> {
    let whole = fs::canonicalize(path).map_err(|e| {
        Failure::new(Code::Missing, format!("{}: {e}", path.display()), format!("{option} takes a file"))
    })?;
    whole.to_str().filter(|it| !it.contains(char::is_control)).map(str::to_owned).ok_or_else(|| {
        Failure::new(Code::BadValue, format!("{}: Mosquitto takes no such path", path.display()), "rename the file")
    })
}

fn is_missing(started: &io::Result<Child>) -> bool {
    started.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
}

/// Systems keep servers where not all users' paths lead.
const PROGRAMS: [&str; 3] = ["mosquitto", "/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto"];
const CONFIG: &str = "mosquitto.conf";
/// How many free ports are tried.
const FREE_PORTS: u32 = 4;
