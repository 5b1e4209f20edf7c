//! The program as a child process, and HTTP to it.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sealcast_relay::key::RelayKey;
use serde_json::Value;

/// A running relay. A test that fails leaves none behind.
pub(crate) struct Process {
    child: Child,
    links: Value,
    said: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

/// A command that runs a relay in this folder at a free port, with a broker that need not be there.
pub(crate) fn command(data: &Path, mqtt: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealcast-relay"));
    command.args(["run", "--json", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    command.arg("--mqtt").arg(format!("mqtt://{mqtt}")).args(arguments);
    command
}

/// Where nobody listens.
pub(crate) fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("an address")
}

/// How a program ended that does not start, and what it said.
pub(crate) fn end(mut command: Command) -> (Option<i32>, String) {
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

impl Process {
    pub(crate) fn start(data: &Path) -> Process {
        Process::run(command(data, nobody(), &[]))
    }

    pub(crate) fn run(mut command: Command) -> Process {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let said = Arc::new(Mutex::new(String::new()));
        let (stderr, keep) = (child.stderr.take().expect("it is piped"), said.clone());
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                keep.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("text");
        let mut process = Process { child, links: Value::Null, said, reader: Some(reader) };
        process.links = serde_json::from_str(&line).unwrap_or_else(|_| panic!("it ended: {}", process.wait().1));
        process
    }

    pub(crate) fn link(&self, name: &str) -> &str {
        self.links[name].as_str().expect(name)
    }

    pub(crate) fn relay(&self) -> RelayKey {
        self.link("relay").parse().expect("a key")
    }

    /// Where the directory listens.
    pub(crate) fn at(&self) -> SocketAddr {
        let (_, rest) = self.link("directory").split_once("://").expect("a URL");
        rest.strip_suffix("/v1").expect("a URL").parse().expect("an address")
    }

    pub(crate) fn figures(&self) -> String {
        let at =
            self.link("metrics").strip_prefix("http://").and_then(|it| it.strip_suffix("/metrics")).expect("a URL");
        let (status, text) = ask(connect(at.parse().expect("an address")), "GET", "/metrics", b"").expect("an answer");
        assert_eq!(status, 200);
        String::from_utf8(text).expect("text")
    }

    pub(crate) fn pid(&self) -> Pid {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process")
    }

    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        assert_eq!(self.child.wait().expect("it ends").signal(), Some(9), "{}", self.said());
    }

    /// Asks it to end; how it ended, after what time, and what it said.
    pub(crate) fn stop(mut self) -> (ExitStatus, Duration, String) {
        let begun = Instant::now();
        kill_process(self.pid(), Signal::TERM).expect("it runs");
        let (status, said) = self.wait();
        (status, begun.elapsed(), said)
    }

    pub(crate) fn wait(&mut self) -> (ExitStatus, String) {
        let status = self.child.wait().expect("it ends");
        self.reader.take().expect("it is waited for once").join().expect("it reads");
        (status, self.said())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn connect(at: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect_timeout(&at, TIMEOUT).expect("it listens");
    socket.set_read_timeout(Some(TIMEOUT)).expect("a time-out");
    socket.set_write_timeout(Some(TIMEOUT)).expect("a time-out");
    socket
}

/// One request over a connection of its own: status and body.
pub(crate) fn ask(
    mut socket: impl Read + Write,
    method: &str,
    path: &str,
    body: &[u8],
) -> std::io::Result<(u16, Vec<u8>)> {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: relay\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    socket.write_all(head.as_bytes())?;
    // A server that has refused may not read to the end.
    let sent = socket.write_all(body).and_then(|()| socket.flush());
    let mut answer = Vec::new();
    let read = socket.read_to_end(&mut answer);
    let Some(end) = answer.windows(4).position(|it| it == b"\r\n\r\n") else {
        sent?;
        read?;
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    };
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or_else(|| panic!("no status: {head}"));
    Ok((status, answer.split_off(end + 4)))
}

pub(crate) fn post(at: SocketAddr, body: &[u8]) -> std::io::Result<(u16, Vec<u8>)> {
    ask(connect(at), "POST", "/v1", body)
}

/// Waits for something.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIMEOUT, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All files below a folder.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(at) = folders.pop() {
        for entry in std::fs::read_dir(at).expect("it is readable") {
            let path = entry.expect("it is readable").path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found
}

pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
