//! A relay on free ports: Mosquitto, and `sealcast-relay`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Home, free_port};

/// A relay that ends with the test.
pub struct Relay {
    folder: PathBuf,
    broker: Child,
    directory: Option<Child>,
    mqtt: u16,
    listen: u16,
    /// With GROUP for the group.
    url: String,
}

impl Relay {
    /// Starts it, with its folder in the home.
    pub fn start(home: &Home) -> Relay {
        let folder = home.path().to_owned();
        let (mqtt, listen) = (free_port(), free_port());
        let setup = folder.join("mosquitto.conf");
        let text = format!("listener {mqtt} 127.0.0.1\nallow_anonymous true\npersistence false\n");
        fs::write(&setup, text).expect("the folder can be written");
        let broker =
            Command::new("mosquitto").arg("-c").arg(&setup).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let broker = broker.expect("mosquitto is installed: make setup");
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", mqtt)).is_err() {
            assert!(begun.elapsed() < TIMEOUT, "mosquitto does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut relay = Relay { folder, broker, directory: None, mqtt, listen, url: String::new() };
        relay.serve();
        relay
    }

    /// Starts the directory, on what its folder holds.
    pub fn serve(&mut self) {
        let program = program();
        let mut command = Command::new(program);
        command.arg("run").arg("--data").arg(self.data());
        command.args(["--listen", &format!("127.0.0.1:{}", self.listen)]);
        command.args(["--mqtt", &format!("mqtt://127.0.0.1:{}", self.mqtt)]);
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
            _ => format!("mqtt://127.0.0.1:{}/{keys}?keys={keys}&group={group}", self.mqtt),
        }
    }

    /// Where it keeps what it has.
    pub fn data(&self) -> PathBuf {
        self.folder.join("relay")
    }

    /// The port of the directory.
    pub fn port(&self) -> u16 {
        self.listen
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.kill();
        let _ = self.broker.kill();
        let _ = self.broker.wait();
    }
}

/// The program, built beside ours.
fn program() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_sealcast")).with_file_name("sealcast-relay");
    if !beside.is_file() {
        let built = Command::new(env!("CARGO")).args(["build", "-q", "-p", "sealcast-relayd"]).status();
        assert!(built.is_ok_and(|it| it.success()) && beside.is_file(), "sealcast-relay is built beside sealcast");
    }
    beside
}

/// Machines that run tests are busy.
const TIMEOUT: Duration = Duration::from_secs(60);
