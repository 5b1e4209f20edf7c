//! A relay on free ports: Mosquitto, and `sealcast-relay`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Home, free_port};

/// An MQTT broker that ends with the test.
pub struct Mosquitto {
    child: Child,
    pub port: u16,
}

impl Mosquitto {
    /// Starts it on a port of this machine, with these further lines in its configuration.
    pub fn start(folder: &Path, port: u16, setup: &str) -> Mosquitto {
        let path = folder.join(format!("mosquitto-{port}.conf"));
        let text = format!("listener {port} 127.0.0.1\npersistence false\n{setup}");
        fs::write(&path, text).expect("the folder can be written");
        let child = Command::new("mosquitto").arg("-c").arg(&path).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.expect("mosquitto is installed: make setup");
        let (mosquitto, begun) = (Mosquitto { child, port }, Instant::now());
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < TIMEOUT, "mosquitto does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        mosquitto
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A relay that ends with the test.
pub struct Relay {
    folder: PathBuf,
    broker: Mosquitto,
    directory: Option<Child>,
    listen: u16,
    /// More of what the directory is started with.
    options: Vec<String>,
    /// With GROUP for the group.
    url: String,
}

impl Relay {
    /// Starts it, with its folder in the home; its broker lets everybody in.
    pub fn start(home: &Home) -> Relay {
        Relay::start_with(home, &[])
    }

    /// The same, with more options of the directory.
    pub fn start_with(home: &Home, options: &[&str]) -> Relay {
        let folder = home.path().to_owned();
        let broker = Mosquitto::start(&folder, free_port(), ANYBODY);
        let options = options.iter().map(|&it| it.to_owned()).collect();
        let mut relay = Relay { folder, broker, directory: None, listen: free_port(), options, url: String::new() };
        relay.serve();
        relay
    }

    /// Starts the directory, on what its folder holds.
    pub fn serve(&mut self) {
        let program = program();
        let mut command = Command::new(program);
        command.arg("run").arg("--data").arg(self.data());
        command.args(["--listen", &format!("127.0.0.1:{}", self.listen)]).args(&self.options);
        command.args(["--mqtt", &format!("mqtt://127.0.0.1:{}", self.broker.port)]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let url = lines.map_while(Result::ok).find_map(|line| Some(line.strip_prefix("url")?.trim().to_owned()));
        self.directory = Some(child);
        self.url = url.expect("it says what members type");
    }

    /// It is killed at once.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.directory.take() {
            child.kill().expect("it is ours");
            child.wait().expect("it is ours");
        }
    }

    /// A URL of keys and a group that meet there.
    pub fn url(&self, keys: &str, group: &str) -> String {
        match keys {
            "mls" => self.url.replace("GROUP", group),
            _ => format!("mqtt://127.0.0.1:{}/{keys}?keys={keys}&group={group}", self.broker.port),
        }
    }

    /// Where it keeps what it has.
    pub fn data(&self) -> PathBuf {
        self.folder.join("relay")
    }

    /// Copies that, while the directory does not run.
    pub fn copy(&self) -> PathBuf {
        let copy = self.folder.join("copy");
        let copied = Command::new("cp").arg("-a").arg(self.data()).arg(&copy).status();
        assert!(copied.is_ok_and(|it| it.success()), "it is copied");
        copy
    }

    /// Puts a copy in its place, while the directory does not run.
    pub fn put_back(&self, copy: &Path) {
        fs::remove_dir_all(self.data()).and_then(|()| fs::rename(copy, self.data())).expect("it is moved");
    }

    /// The port of the directory.
    pub fn port(&self) -> u16 {
        self.listen
    }

    /// The port of the broker.
    pub fn mqtt_port(&self) -> u16 {
        self.broker.port
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The program, built beside ours.
pub fn program() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_sealcast")).with_file_name("sealcast-relay");
    if !beside.is_file() {
        let built = Command::new(env!("CARGO")).args(["build", "-q", "-p", "sealcast-relayd"]).status();
        assert!(built.is_ok_and(|it| it.success()) && beside.is_file(), "sealcast-relay is built beside sealcast");
    }
    beside
}

/// Lets everybody in.
pub const ANYBODY: &str = "allow_anonymous true\n";
/// Machines that run tests are busy.
const TIMEOUT: Duration = Duration::from_secs(60);
