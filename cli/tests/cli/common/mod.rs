//! A folder of its own per test, the program run in it, and its words made comparable.

#![allow(dead_code, unreachable_pub)] // each test file uses its part

pub mod relay;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use regex::Regex;
use tempfile::TempDir;

/// A home that disappears with the test.
pub struct Home {
    folder: TempDir,
    transcript: String,
    words: Vec<(String, String)>,
}

/// What a run left behind.
pub struct Ran {
    pub stdout: String,
    pub stderr: String,
    pub exit: i32,
}

impl Home {
    pub fn new(name: &str) -> Home {
        let folder = tempfile::Builder::new().prefix(&format!("sealcast-cli-{name}-")).tempdir();
        let folder = folder.expect("the temporary folder can be written");
        Home { folder, transcript: String::new(), words: vec![] }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The program with this home and nothing of the caller's surroundings.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sealcast"));
        command.args(arguments).current_dir(self.path()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("SEALCAST_HOME", self.path().join("home")).env("HOME", self.path());
        command.env("USER", "you");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs to the end.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        let output = self.command(arguments).output().expect("the program starts");
        Ran {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            exit: output.status.code().unwrap_or(-1),
        }
    }

    /// Runs where no file may grow, as on a full disk.
    pub fn run_on_a_full_disk(&self, arguments: &[&str]) -> Ran {
        let program = env!("CARGO_BIN_EXE_sealcast");
        let limited = "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"";
        let mut command = self.command(arguments);
        let given: Vec<_> =
            command.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
        command = Command::new("sh");
        command.args(["-c", limited, program]).args(arguments).current_dir(self.path()).env_clear();
        command.envs(given.into_iter().filter_map(|(name, value)| Some((name, value?))));
        let output = command.stdin(Stdio::null()).output().expect("the shell starts");
        Ran {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            exit: output.status.code().unwrap_or(-1),
        }
    }

    /// Runs, and must end well.
    pub fn good(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.exit, 0, "sealcast {}: {}{}", arguments.join(" "), ran.stdout, ran.stderr);
        ran.stdout
    }

    /// Runs until its stdout has this in it; what it then said.
    pub fn until(&self, arguments: &[&str], part: &str) -> String {
        let start = std::time::Instant::now();
        loop {
            let ran = self.run(arguments);
            if ran.stdout.contains(part) {
                return ran.stdout;
            }
            assert!(start.elapsed() < TIMEOUT, "no '{part}' in {}{}", ran.stdout, ran.stderr);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// A word that typed lines may use as `$NAME`.
    pub fn word(&mut self, name: &str, value: &str) {
        self.words.push((format!("${name}"), value.trim().to_owned()));
    }

    /// What `$NAME` stands for.
    pub fn said(&self, name: &str) -> &str {
        let found = self.words.iter().find(|(n, _)| n[1..] == *name);
        &found.expect("the test set it").1
    }

    /// Runs a line as typed.
    pub fn typed(&self, line: &str) -> Ran {
        let meant = self.words.iter().fold(line.to_owned(), |l, (name, value)| l.replace(name, value));
        self.run(&words(&meant).iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Runs a line as typed, and notes it with all it said.
    pub fn type_line(&mut self, line: &str) -> &mut Home {
        let ran = self.typed(line);
        self.transcript += &format!("$ sealcast {line}\n{}", ran.stdout);
        if !ran.stderr.is_empty() {
            let talk: String = ran.stderr.lines().map(|l| format!("! {l}\n")).collect();
            self.transcript += &talk;
        }
        if ran.exit != 0 {
            self.transcript += &format!("[exit {}]\n", ran.exit);
        }
        self.transcript.push('\n');
        self
    }

    /// All that was typed and answered so far.
    pub fn verbatim(&self) -> &str {
        &self.transcript
    }

    /// All that was typed and answered so far, with what changes from run to run made equal.
    pub fn transcript(&self) -> String {
        redacted(&self.transcript, self.path())
    }
}

/// Words of a line; single quotes hold words together.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![];
    for (i, part) in line.split('\'').enumerate() {
        if i % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// Keys, dates, paths and measured times replaced by their kind.
pub fn redacted(text: &str, folder: &Path) -> String {
    let text = text.replace(&folder.display().to_string(), "~");
    let rules = [
        (r"\b(scpub|scca|scjoin|SC-SECRET-)1[0-9a-zA-Z]{2,}(…[0-9a-z]{3})?", "${1}1[key]"),
        (r"(?s)(-----BEGIN [A-Z0-9 ]+-----).*?(-----END)", "$1[text]$2"),
        (r"\byou@[0-9A-Za-z_-]+", "you@laptop"),
        (r"0x[0-9a-f]{20,}", "0x[serial]"),
        (r"\b\d+ B, sealed", "[n] B, sealed"),
        // Columns are as wide as what was just made equal.
        (r"(\S) {3,}", "$1  "),
        (r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", "[time]"),
        (r"\b20\d\d-\d\d-\d\d\b", "[date]"),
        (r"\b[0-9a-f]{16,64}\b", "[hash]"),
        (r"\(?\b[0-9a-f]{12}\b\)?", "[hash]"),
        (r"\bregistration = .[0-9a-f]+.", "registration = [registration]"),
        (r"0x[0-9a-f]{4}…", "0x[id]…"),
        (r"\+\d+(\.\d+)? (ms|s)", "+[time]"),
        (r"\b\d+(\.\d+)? (ms|µs|s|m|h|d)( \d+ [smh])?\b", "[time]"),
    ];
    rules.iter().fold(text, |text, (pattern, by)| {
        Regex::new(pattern).expect("the rules are valid").replace_all(&text, *by).into_owned()
    })
}

/// A running program whose lines are read as they come; killed if the test ends before it.
pub struct Running {
    child: std::process::Child,
    lines: std::sync::mpsc::Receiver<String>,
    seen: Vec<String>,
}

impl Home {
    /// Starts the program and leaves it running. Its stderr lines come with `! ` in front.
    pub fn start(&self, arguments: &[&str]) -> Running {
        let mut child = self.command(arguments).spawn().expect("the program starts");
        let (to_test, lines) = std::sync::mpsc::channel();
        let out = child.stdout.take().expect("stdout is piped");
        let err = child.stderr.take().expect("stderr is piped");
        forward(out, "", to_test.clone());
        forward(err, "! ", to_test);
        Running { child, lines, seen: vec![] }
    }
}

fn forward(from: impl std::io::Read + Send + 'static, mark: &'static str, to: std::sync::mpsc::Sender<String>) {
    use std::io::BufRead;
    std::thread::spawn(move || {
        for line in std::io::BufReader::new(from).split(b'\n').map_while(Result::ok) {
            // The test may have ended; then nobody needs the line.
            let _ = to.send(format!("{mark}{}", String::from_utf8_lossy(&line)));
        }
    });
}

impl Running {
    /// The first line from now on that has this in it, within `TIMEOUT`; else all that was said.
    pub fn line_with(&mut self, part: &str) -> Result<String, String> {
        self.line_within(part, TIMEOUT)
    }

    /// The same, waiting so long.
    pub fn line_within(&mut self, part: &str, timeout: std::time::Duration) -> Result<String, String> {
        let end = std::time::Instant::now() + timeout;
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(std::time::Instant::now())) {
            self.seen.push(line.clone());
            if line.contains(part) {
                return Ok(line);
            }
        }
        Err(format!("no line with '{part}' among:\n{}", self.seen.join("\n")))
    }

    /// Ctrl-C.
    pub fn interrupt(&self) {
        self.signal(rustix::process::Signal::INT);
    }

    /// Has the system tell it this.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.expect("a child has a process id");
        rustix::process::kill_process(pid, signal).expect("the child runs");
    }

    /// Waits for its end: exit code and all that it said.
    pub fn end(&mut self) -> (i32, String) {
        let start = std::time::Instant::now();
        let exit = loop {
            if let Some(status) = self.child.try_wait().expect("the child can be waited for") {
                break status.code().unwrap_or(-1);
            }
            assert!(start.elapsed() < TIMEOUT, "still running after:\n{}", self.seen.join("\n"));
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        self.seen.extend(self.lines.iter());
        (exit, self.seen.join("\n"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that is free, of UDP and of TCP, for one test.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Below the ports that the system gives to sockets without one: such a socket took a port that was free a moment before.
    let at = |n: u32| 10_000 + u16::try_from(n % 20_000).expect("it fits");
    let drawn = || at(std::process::id().wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)));
    let is_free = |port: &u16| {
        let any = ("0.0.0.0", *port);
        std::net::UdpSocket::bind(any).is_ok() && std::net::TcpListener::bind(any).is_ok()
    };
    std::iter::repeat_with(drawn).take(20_000).find(is_free).expect("there are free ports")
}

/// The brokers' programs lie beside the one under test. They are another package's: testing the workspace makes all,
/// testing this package alone makes them where they are missing.
pub fn brokers_programs() {
    let beside = |name: &str| PathBuf::from(env!("CARGO_BIN_EXE_sealcast")).with_file_name(name).is_file();
    let all = || beside("sealcast-broker") && beside("broker-testing");
    if !all() {
        let packages = ["-p", "sealcast-brokerd-program", "-p", "sealcast-brokerd-testing"];
        let built = Command::new(env!("CARGO")).args(["build", "-q"]).args(packages).status();
        assert!(built.is_ok_and(|it| it.success()) && all(), "sealcast-broker is built beside sealcast");
    }
}

/// How long a test waits before it calls something missing; generous, since machines are busy.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);
