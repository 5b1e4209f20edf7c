//! A relay of one's own on this machine: the MQTT broker Mosquitto, and the program `sealcast-relay`.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sealcast::config::FileError;
use serde_json::Value;

use super::{broken, holds_within};
use crate::beside::{self, missing, program};
use crate::commands::brokers::free_ports;
use crate::hint::Failure;

/// Both programs. Dropped, they are ended.
pub(super) struct LocalRelay {
    folder: PathBuf,
    pub(super) mqtt_port: u16,
    listen_port: u16,
    _mosquitto: Ended,
    directory: Option<Ended>,
    /// With GROUP where the group's name goes.
    url: String,
}

/// A child that ends when this is dropped.
struct Ended(Child);

impl LocalRelay {
    /// Starts both, with their files in this folder.
    pub(super) fn start(folder: &Path) -> Result<LocalRelay, Failure> {
        let (mqtt_port, listen_port) = free_ports(1)?[0];
        let setup = folder.join("mosquitto.conf");
        let text = format!("listener {mqtt_port} 127.0.0.1\nallow_anonymous true\npersistence false\n");
        std::fs::write(&setup, text).map_err(|e| FileError::io(&setup, e))?;
        let mut command = Command::new(beside::MOSQUITTO);
        command.arg("-c").arg(&setup).stdout(Stdio::null());
        let mosquitto = start(beside::MOSQUITTO, &mut command)?;
        if !holds_within(TIMEOUT, || TcpStream::connect(("127.0.0.1", mqtt_port)).is_ok()) {
            return Err(broken("mosquitto does not listen"));
        }
        let (folder, url) = (folder.to_owned(), String::new());
        let mut relay = LocalRelay { folder, mqtt_port, listen_port, _mosquitto: mosquitto, directory: None, url };
        relay.serve()?;
        Ok(relay)
    }

    /// Starts the directory on what its folder holds.
    pub(super) fn serve(&mut self) -> Result<(), Failure> {
        let mut command = Command::new(program(beside::RELAY));
        command.args(["run", "--json", "--data"]).arg(self.data());
        command.args(["--listen", &format!("127.0.0.1:{}", self.listen_port)]);
        command.args(["--mqtt", &format!("mqtt://127.0.0.1:{}", self.mqtt_port)]).stdout(Stdio::piped());
        let mut directory = start(beside::RELAY, &mut command)?;
        let mut line = String::new();
        let stdout = directory.0.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut line).map_err(|e| Failure::system(beside::RELAY, &e))?;
        let told: Value = serde_json::from_str(&line).unwrap_or_default();
        self.url = told["url"].as_str().ok_or_else(|| broken("the directory does not start"))?.to_owned();
        self.directory = Some(directory);
        Ok(())
    }

    /// Kills the directory with SIGKILL, as a crash does.
    pub(super) fn kill(&mut self) {
        self.directory = None;
    }

    /// What members of a group type.
    pub(super) fn url(&self, group: &str) -> String {
        self.url.replace("GROUP", group)
    }

    /// The same broker for a group without keys.
    pub(super) fn plain_url(&self) -> String {
        format!("mqtt://127.0.0.1:{}/plain?keys=plain", self.mqtt_port)
    }

    /// What the directory keeps.
    pub(super) fn data(&self) -> PathBuf {
        self.folder.join("relay")
    }

    /// Copies what the directory keeps, while it does not run.
    pub(super) fn copy(&self) -> Result<PathBuf, Failure> {
        let copy = self.folder.join("copy");
        copy_folder(&self.data(), &copy).map_err(|e| FileError::io(&copy, e))?;
        Ok(copy)
    }

    /// Puts a copy in the place of what the directory keeps, while it does not run.
    pub(super) fn put_back(&self, copy: &Path) -> Result<(), Failure> {
        let data = self.data();
        let moved = std::fs::remove_dir_all(&data).and_then(|()| std::fs::rename(copy, &data));
        moved.map_err(|e| FileError::io(&data, e).into())
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(name: &str, command: &mut Command) -> Result<Ended, Failure> {
    // Ctrl-C is meant for us.
    command.stdin(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command.spawn().map(Ended).map_err(|e| missing(name, &e))
}

/// With the same rights: the directory's program refuses others.
fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() { copy_folder(&from, &to)? } else { std::fs::copy(&from, &to).map(drop)? }
    }
    std::fs::set_permissions(to, std::fs::metadata(from)?.permissions())
}

const TIMEOUT: Duration = Duration::from_secs(10);
