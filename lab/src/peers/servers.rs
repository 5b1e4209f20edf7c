//! Kafka and NATS JetStream: one server that has each message on its disk before it says so, and a program of that system's
//! own client that loads it as `sealcast bench brokers` does ours (`lab/peers/`); both are processes of their own.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Failure;

/// Which system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    /// One KRaft node, one partition, `flush.messages=1`, `acks=all`.
    Kafka,
    /// JetStream on files, one replica, `sync_interval: always`.
    Nats,
}

/// What it is loaded with.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Bytes of a message.
    pub size: usize,
    /// How many messages may be ahead of the consumer.
    pub window: u64,
    /// Who publish.
    pub publishers: u16,
    /// How long it is measured.
    pub seconds: u64,
    /// One message at a time, 20 a second.
    pub paced: bool,
}

/// A running server; its files go when it is dropped.
#[derive(Debug)]
struct Running {
    child: Child,
    folder: PathBuf,
}

impl Server {
    /// The name in tables and plots.
    pub fn name(self) -> &'static str {
        match self {
            Server::Kafka => "Kafka",
            Server::Nats => "NATS JetStream",
        }
    }

    /// What exactly is compared with.
    pub fn described(self) -> String {
        let version = self.file("version").and_then(|at| fs::read_to_string(at).ok()).unwrap_or_default();
        let settings = match self {
            Server::Kafka => {
                "one KRaft node, -Xmx1g, one partition, flush.messages=1; its Java client with acks=all, batches of 64 KiB, \
                 linger 5 ms (0 for single ones), warmed up for 3 s"
            }
            Server::Nats => {
                "one server, sync_interval: always, one replica on files; its Go client, asynchronous, one message each, \
                 ordered consumer, warmed up for 1 s"
            }
        };
        format!("{}, {settings}", version.trim())
    }

    /// Whether it is there.
    ///
    /// # Errors
    /// What to type.
    pub fn is_here(self) -> Result<(), Failure> {
        match self.file("version") {
            Some(_) => Ok(()),
            None => Err(format!("{} is not here; type: make peers", self.name()).into()),
        }
    }

    /// Starts a server with its files in a folder of its own within this one, loads it, and ends it; what the load's
    /// program prints: publications per second that were acknowledged and delivered, and how long they took.
    ///
    /// # Errors
    /// It is not here, or a process ended.
    pub fn measure(self, within: &Path, load: &Load) -> Result<Value, Failure> {
        self.is_here()?;
        let [port, other] = [free_port()?, free_port()?];
        let folder = within.join(format!("sealcast-peer-{}-{port}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let running = Running { child: self.start(&folder, port, other)?, folder };
        running.wait_for(port)?;
        let mut command = match self {
            Server::Kafka => {
                let mut java = Command::new("java");
                java.args(["-Xmx1g", "-cp"]).arg(self.class_path()?).arg("Load").arg(format!("127.0.0.1:{port}"));
                java
            }
            Server::Nats => {
                let mut program = Command::new(self.named("nats_load")?);
                program.arg(format!("nats://127.0.0.1:{port}"));
                program
            }
        };
        let numbers = [load.size as u64, load.window, load.publishers.into(), load.seconds];
        command.args(numbers.map(|it| it.to_string())).args(load.paced.then_some("paced"));
        let output = command.stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(format!("{}: {}: {}", self.name(), output.status, said.trim()).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    fn start(self, folder: &Path, port: u16, other: u16) -> Result<Child, Failure> {
        let settings = folder.join("settings");
        let data = folder.join("data");
        let mut command = match self {
            Server::Kafka => {
                fs::write(&settings, kafka_settings(&data, port, other))?;
                let mut format = Command::new("java");
                format.arg("-cp").arg(self.class_path()?).args([
                    "kafka.tools.StorageTool",
                    "format",
                    "-t",
                    CLUSTER,
                    "-c",
                ]);
                let output = format.arg(&settings).stdin(Stdio::null()).output()?;
                if !output.status.success() {
                    return Err(format!("Kafka: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
                }
                let mut java = Command::new("java");
                java.args(["-Xmx1g", "-cp"]).arg(self.class_path()?).arg("kafka.Kafka").arg(&settings);
                java
            }
            Server::Nats => {
                let text = format!(
                    "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: {data:?}, sync_interval: always }}\n"
                );
                fs::write(&settings, text)?;
                let mut program = Command::new(self.named("nats-server")?);
                program.arg("-c").arg(&settings);
                program
            }
        };
        let log = fs::File::create(folder.join("log"))?;
        Ok(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?)
    }

    /// A file of it that `make peers` makes, if it is there.
    fn file(self, name: &str) -> Option<PathBuf> {
        let own = match self {
            Server::Kafka => "kafka",
            Server::Nats => "nats",
        };
        found(own, name)
    }

    fn named(self, name: &str) -> Result<PathBuf, Failure> {
        self.file(name).ok_or_else(|| format!("{} lacks {name}; type: make peers", self.name()).into())
    }

    fn class_path(self) -> Result<String, Failure> {
        let [jars, classes] = [self.named("jars")?, self.named("classes")?];
        Ok(format!("{}/*:{}", jars.display(), classes.display()))
    }
}

impl Running {
    fn wait_for(&self, port: u16) -> Result<(), Failure> {
        let since = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if since.elapsed() > TIMEOUT {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                let last = log.lines().last().unwrap_or("it says nothing").to_owned();
                return Err(format!("the peer's server does not listen: {last}").into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // What cannot be removed lies in a temporary folder.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A file of a peer that `make peers` makes, if it is there.
pub(super) fn found(peer: &str, name: &str) -> Option<PathBuf> {
    let named = std::env::var_os("SEALCAST_PEERS").map(PathBuf::from);
    let folders = named.into_iter().chain([PathBuf::from("out/peers")]);
    folders.map(|it| it.join(peer).join(name)).find(|it| it.exists())
}

fn kafka_settings(data: &Path, port: u16, controller: u16) -> String {
    format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
         controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\nlog.dirs={}\n\
         log.flush.interval.messages=1\noffsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\nauto.create.topics.enable=false\n",
        data.display()
    )
}

fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A name that Kafka wants of a cluster: 16 bytes in base64.
const CLUSTER: &str = "AAAAAAAAAAAAAAAAAAAAAQ";
/// How long a server may take to start.
const TIMEOUT: Duration = Duration::from_secs(40);
