//! A relay of this machine: Mosquitto and `sealcast-relay`, as processes that can be killed and started again.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Failure;
use crate::brokers::beside;
use crate::peers::identities::GROUP;

/// Both programs; dropped, they are ended.
pub(crate) struct Servers {
    broker: Option<Child>,
    directory: Option<Child>,
    /// The broker's port.
    pub(crate) mqtt: u16,
    listen: u16,
    /// What members of the lab's group open.
    pub(crate) url: String,
    folder: TempDir,
}

impl Servers {
    /// Starts both; the directory keeps what it has in a folder of its own in this one.
    ///
    /// # Errors
    /// A program is missing, or does not start.
    pub(crate) fn start(within: &Path) -> Result<Servers, Failure> {
        let folder = tempfile::Builder::new().prefix("sealcast-relay").tempdir_in(within)?;
        let port = || -> Result<u16, Failure> { Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port()) };
        let (mqtt, listen) = (port()?, port()?);
        let mut servers = Servers { broker: None, directory: None, mqtt, listen, url: String::new(), folder };
        // In a network of its own a program is root, and may become nobody else.
        let text = format!(
            "user root\nlistener {mqtt} 127.0.0.1\nallow_anonymous true\npersistence false\nmax_queued_messages 0\nset_tcp_nodelay true\n"
        );
        fs::write(servers.settings(), text)?;
        servers.start_broker()?;
        servers.start_directory()?;
        Ok(servers)
    }

    /// Starts the broker, if it does not run.
    ///
    /// # Errors
    /// It does not listen.
    pub(crate) fn start_broker(&mut self) -> Result<(), Failure> {
        if self.broker.is_some() {
            return Ok(());
        }
        let mut command = Command::new("mosquitto");
        command.arg("-c").arg(self.settings()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.broker = Some(command.spawn().map_err(|e| format!("mosquitto: {e}; type: make setup"))?);
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.mqtt)).is_err() {
            if begun.elapsed() > TIMEOUT {
                return Err("mosquitto does not listen".into());
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Starts the directory, if it does not run, on what its folder holds.
    ///
    /// # Errors
    /// It does not say what members open.
    pub(crate) fn start_directory(&mut self) -> Result<(), Failure> {
        if self.directory.is_some() {
            return Ok(());
        }
        let program = beside("sealcast-relay").map_err(|why| format!("{why} -p sealcast-relayd"))?;
        let mut command = Command::new(program);
        command.arg("run").arg("--data").arg(self.data()).args(["--listen", &format!("127.0.0.1:{}", self.listen)]);
        command.args(["--mqtt", &format!("mqtt://127.0.0.1:{}", self.mqtt)]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("its output is piped")?).lines();
        let url = lines.map_while(Result::ok).find_map(|line| Some(line.strip_prefix("url")?.trim().to_owned()));
        self.directory = Some(child);
        self.url = url.ok_or("sealcast-relay does not start")?.replace("GROUP", GROUP);
        Ok(())
    }

    /// Kills the broker with SIGKILL.
    pub(crate) fn kill_broker(&mut self) {
        self.broker.take().into_iter().for_each(end);
    }

    /// Kills the directory with SIGKILL.
    pub(crate) fn kill_directory(&mut self) {
        self.directory.take().into_iter().for_each(end);
    }

    /// The processes that run.
    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> {
        [&self.directory, &self.broker].into_iter().flatten().map(Child::id)
    }

    /// Where the directory keeps what it has.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn settings(&self) -> PathBuf {
        self.folder.path().join("mosquitto.conf")
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.kill_directory();
        self.kill_broker();
    }
}

fn end(mut child: Child) {
    // It may have ended already.
    let _ = child.kill();
    let _ = child.wait();
}

const LOOK: Duration = Duration::from_millis(2);
const TIMEOUT: Duration = Duration::from_secs(60);
