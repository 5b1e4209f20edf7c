//! Brokers' folders, and their processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sealcast_broker::cluster_file::{Addresses, ClusterFile, Suite};
use sealcast_broker::genesis::{Genesis, Issuer};
use sealcast_broker::protocol::{Answer, Query, Status};
use sealcast_brokerd::channel::Channel;
use sealcast_brokerd::config;
use sealcast_brokerd::sync::Keep;
use sealcast_crypto::ed25519::Key;
use sealcast_crypto::identity::keytext::export_seed;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{Algorithm, OriginKey, SigningKey};

/// How far it is, on a terminal, and whether it is to end.
pub(crate) struct Progress {
    pub(crate) is_shown: bool,
    pub(crate) end: Arc<AtomicBool>,
}

impl Progress {
    /// So many of all are done.
    ///
    /// # Errors
    /// It is to end.
    pub(crate) fn tell(&self, what: &str, done: u64, all: u64) -> io::Result<()> {
        if self.is_shown {
            // Nobody is left to be told that standard error is closed.
            let _ = write!(io::stderr(), "\r\x1b[K{done} of {all} {what}");
        }
        if self.end.load(Ordering::Acquire) {
            self.finish();
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(())
    }

    pub(crate) fn finish(&self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// The folders of a cluster, which go when it does.
pub(crate) struct Home {
    root: PathBuf,
    pub(crate) file: ClusterFile,
    pub(crate) issuer: SigningKey,
    /// The brokers' secret seeds, by number.
    pub(crate) seeds: Vec<u8>,
    /// Once it is set, nobody is waited for.
    end: Arc<AtomicBool>,
}

/// A broker's process, killed when dropped.
pub(crate) struct Running(Child);

impl Home {
    pub(crate) fn new(root: PathBuf, end: Arc<AtomicBool>) -> io::Result<Home> {
        let issuer = SigningKey::from_seed(Algorithm::Ed25519, &Secret::from_bytes([9; 32])).expect("it is a seed");
        let mut seeds: Vec<u8> = (210..210 + BROKERS as u8).collect();
        seeds.sort_by_key(|seed| key(*seed).public_bytes());
        let genesis = Genesis {
            name: "fresh-broker".into(),
            brokers: seeds.iter().map(|seed| key(*seed).public_bytes()).collect::<BTreeSet<_>>(),
            quorum: 1,
            administrators: vec![Key::new(&key(200).public_bytes()).expect("it is a key")],
            issuers: BTreeMap::from([("lab".to_owned(), Issuer::Key(issuer.public().clone()))]),
        };
        // Loopback of this process alone, and ports that the system gives to no outgoing connection.
        let [.., process, part] = std::process::id().to_be_bytes();
        let at = |port: usize| format!("127.{process}.{part}.1:{port}");
        let addresses = |broker: usize| Addresses { gateway: at(7400 + broker), order: at(7500 + broker) };
        let addresses = (0..BROKERS).map(addresses).collect();
        let suite = Suite::Ristretto255;
        let file = ClusterFile { genesis, addresses, threshold: 3, suite, key: None, endorsement: None };
        let home = Home { root, file, issuer, seeds, end };
        for (broker, seed) in home.seeds.iter().copied().enumerate() {
            let folder = home.folder(broker);
            fs::create_dir_all(&folder)?;
            fs::write(folder.join(config::CLUSTER), home.file.to_text())?;
            let path = folder.join(config::KEY);
            fs::write(&path, export_seed(&Secret::from_bytes([seed; 32])).as_bytes())?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        }
        Ok(home)
    }

    pub(crate) fn folder(&self, broker: usize) -> PathBuf {
        self.root.join(broker.to_string())
    }

    pub(crate) fn start(&self, broker: usize, keep: Option<Keep>) -> io::Result<Running> {
        let program = beside("sealcast-broker", "sealcast-brokerd-program")?;
        let mut command = Command::new(&program);
        command.arg("run").arg(self.folder(broker)).arg("--until-stdin-closes");
        if let Some(keep) = keep {
            command.args(["--keep", &keep.to_string()]);
        }
        let log = fs::File::create(self.root.join(format!("{broker}.log")))?;
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).spawn();
        child.map(Running).map_err(|e| io::Error::other(format!("{}: {e}", program.display())))
    }

    /// Gives a broker a history of so many empty blocks.
    pub(crate) fn age(&self, broker: usize, blocks: u64, progress: &Progress) -> io::Result<()> {
        let program = beside("broker-testing", "sealcast-brokerd-testing")?;
        let others = (0..BROKERS).filter(|it| *it != broker);
        let folders = std::iter::once(broker).chain(others).map(|it| self.folder(it));
        let mut command = Command::new(&program);
        command.arg("age").args(folders).args(["--blocks", &blocks.to_string()]);
        let mut aging = Running(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?);
        for line in io::BufReader::new(aging.0.stdout.take().expect("it is piped")).lines() {
            let done = line?.parse().map_err(io::Error::other)?;
            progress.tell("blocks made", done, blocks)?;
        }
        let ended = aging.0.wait()?;
        if ended.success() { Ok(()) } else { Err(io::Error::other(format!("{}: {ended}", program.display()))) }
    }

    /// A channel to a broker, which may just be starting.
    pub(crate) fn open(&self, broker: usize, seed: u8) -> io::Result<Channel> {
        let address = self.file.addresses[broker].gateway.parse().map_err(io::Error::other)?;
        let (keys, begun) = (self.file.broker_keys(), Instant::now());
        loop {
            match Channel::open(address, keys[broker], key(seed), self.file.cluster(), ANSWER) {
                Ok((channel, _)) => return Ok(channel),
                Err(e) if begun.elapsed() > ANSWER || self.end.load(Ordering::Acquire) => return Err(e),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    pub(crate) fn status(&self, broker: usize) -> io::Result<Status> {
        match self.open(broker, WATCHER)?.ask(Query::Status)? {
            Answer::Status(status) => Ok(*status),
            other => Err(io::Error::other(format!("no status: {other:?}"))),
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Running {
    /// Bytes of memory that it had at most.
    pub(crate) fn memory_peak(&self) -> io::Result<u64> {
        self.memory_of("VmHWM:")
    }

    /// Bytes of memory that it has.
    pub(crate) fn memory(&self) -> io::Result<u64> {
        self.memory_of("VmRSS:")
    }

    fn memory_of(&self, name: &str) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kilobytes.map(|it| it * 1024).ok_or_else(|| io::Error::other("the kernel does not say"))
    }

    /// How many files it has open.
    pub(crate) fn open_files(&self) -> io::Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.0.id()))?.count())
    }

    /// Ends it gracefully.
    pub(crate) fn stop(mut self) -> io::Result<()> {
        drop(self.0.stdin.take());
        self.0.wait().map(drop)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program beside this one, and the package that it is of.
fn beside(name: &str, package: &str) -> io::Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name(name);
    if program.is_file() {
        return Ok(program);
    }
    Err(io::Error::other(format!("{} is not built: cargo build --release -p {package}", program.display())))
}

pub(crate) fn key(seed: u8) -> Arc<OriginKey> {
    Arc::new(OriginKey::from_seed(&Secret::from_bytes([seed; 32])))
}

/// How many brokers there are.
pub(crate) const BROKERS: usize = 4;
/// The seed of the client that asks where brokers stand.
const WATCHER: u8 = 2;
/// How long a broker may take to say something.
const ANSWER: Duration = Duration::from_secs(30);
