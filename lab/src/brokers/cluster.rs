//! Four brokers as processes, in a folder that goes when they do, unless somebody wants to look into it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealcast::brokers::{Brokers, ClientKey, Opening, load, registration};
use sealcast::config::{Home, KeptIdentity};
use sealcast::url::Scheme;
use sealcast_broker::cluster_file::ClusterFile;
use sealcast_broker::protocol::Status;
use sealcast_crypto::identity::Identity;

use super::beside;
use crate::Failure;

/// The brokers. Dropping it kills them.
pub(crate) struct Cluster {
    folder: PathBuf,
    keep: bool,
    /// Files that each may have open, if not as many as this process may.
    files: Option<u64>,
    file: Arc<ClusterFile>,
    identity: Identity,
    /// By number; `None` is one that was killed.
    processes: Vec<Option<Child>>,
    /// Asks where they stand.
    watcher: Option<Brokers>,
}

impl Cluster {
    /// Makes `n` of them in a new folder within `within`, and starts them.
    pub(crate) fn start(n: usize, within: &Path) -> Result<Cluster, Failure> {
        Cluster::start_with(n, within, None)
    }

    /// The same; each of them may have so many files open.
    pub(crate) fn start_with(n: usize, within: &Path, files: Option<u64>) -> Result<Cluster, Failure> {
        // Whoever lacks a program is told so before anything is made.
        ["sealcast", "sealcast-broker"].iter().try_for_each(|it| beside(it).map(drop))?;
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(|e| e.to_string())?;
        let folder = within.join(format!("sealcast-lab-{:08x}", u32::from_be_bytes(random)));
        fs::create_dir_all(&folder)?;
        let (home, at) = (folder.join("home"), folder.join("cluster"));
        sealcast(&home, &["ca", "init", "lab"])?;
        sealcast(&home, &["ca", "issue", "ann"])?;
        let n_text = n.to_string();
        let init = ["--id", "ann", "brokers", "init", "-n", &n_text, "--port", "0", "--name", "lab"];
        sealcast(&home, &[&init[..], &[&at.display().to_string()]].concat())?;
        let file = Arc::new(load(&at.join("cluster.toml"))?);
        let identity = KeptIdentity::load(&Home::at(&home), "ann")?.identity()?.ok_or("ann has no certificate")?;
        let processes = (0..n).map(|_| None).collect();
        let mut cluster = Cluster { folder, keep: false, files, file, identity, processes, watcher: None };
        for broker in 0..n {
            cluster.restart(broker)?;
        }
        cluster.watcher = Some(cluster.client(1)?);
        Ok(cluster)
    }

    /// How many may fail at once.
    pub(crate) fn faulty(&self) -> usize {
        self.file.faulty()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.processes.len()
    }

    /// The processes that run.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.processes.iter().flatten().map(Child::id)
    }

    /// Bytes of memory that the broker has which has the most.
    ///
    /// # Errors
    /// The kernel does not say.
    pub(crate) fn memory(&self) -> Result<u64, Failure> {
        let mut most = 0;
        for pid in self.pids() {
            let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
            most = most.max(kilobytes.ok_or("the kernel does not say how much memory a broker has")? * 1024);
        }
        Ok(most)
    }

    /// Its file.
    pub(crate) fn file(&self) -> &Arc<ClusterFile> {
        &self.file
    }

    /// Where its files are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The files stay when it goes.
    pub(crate) fn keep(&mut self) {
        self.keep = true;
    }

    /// A new client in clear, of which nothing is kept on disk; it is registered when it is asked to be.
    pub(crate) fn client(&self, batch_operations: usize) -> Result<Brokers, Failure> {
        self.open(&self.identity, batch_operations)
    }

    /// The same with a new certificate of this name.
    pub(crate) fn client_of(&self, name: &str, batch_operations: usize) -> Result<Brokers, Failure> {
        let home = self.folder.join("home");
        sealcast(&home, &["ca", "issue", name])?;
        let identity = KeptIdentity::load(&Home::at(&home), name)?.identity()?;
        self.open(&identity.ok_or_else(|| format!("{name} has no certificate"))?, batch_operations)
    }

    fn open(&self, identity: &Identity, batch_operations: usize) -> Result<Brokers, Failure> {
        let (cluster, key) = (self.file.clone(), ClientKey::fresh()?);
        let registrations = registration(&cluster, identity, &key.client(), false).into_iter().collect();
        let (keys, timeout) = (Scheme::Plain, CALL_TIMEOUT);
        Ok(Brokers::open(Opening { cluster, key, registrations, keys, timeout, batch_operations, accuse: false })?)
    }

    /// Kills brokers with SIGKILL, all in one instant, as a crash of their machines does.
    pub(crate) fn kill(&mut self, brokers: &[usize]) -> Result<(), Failure> {
        let mut killed: Vec<Child> = brokers.iter().filter_map(|broker| self.processes[*broker].take()).collect();
        killed.iter_mut().try_for_each(Child::kill)?;
        killed.iter_mut().try_for_each(|it| it.wait().map(drop))?;
        Ok(())
    }

    /// Starts a killed one.
    pub(crate) fn restart(&mut self, broker: usize) -> Result<(), Failure> {
        let folder = self.folder.join("cluster").join(format!("broker-{broker}"));
        let log = File::options().create(true).append(true).open(folder.join("log"))?;
        let program = beside("sealcast-broker")?;
        let mut command = match self.files {
            None => Command::new(program),
            Some(files) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")]).arg(program);
                shell
            }
        };
        command.arg("run").arg(&folder).arg("--until-stdin-closes");
        let child = command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log).spawn()?;
        self.processes[broker] = Some(child);
        if let Some(watcher) = self.watcher.take() {
            // A new one has not waited in vain for the broker, and looks for it at once.
            watcher.close();
            self.watcher = Some(self.client(1)?);
        }
        Ok(())
    }

    /// Fails if one has ended by itself, with what it said last.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        for (broker, process) in self.processes.iter_mut().enumerate() {
            let ended = process.as_mut().map(Child::try_wait).transpose()?.flatten();
            if let Some(status) = ended {
                let log = self.folder.join("cluster").join(format!("broker-{broker}")).join("log");
                let said = fs::read_to_string(log).unwrap_or_default();
                let last = said.lines().last().unwrap_or("it said nothing").to_owned();
                return Err(format!("broker {broker} has ended by itself ({status}): {last}").into());
            }
        }
        Ok(())
    }

    /// Where the brokers stand; `None` for those that do not say.
    pub(crate) fn stands(&self) -> Vec<Option<Status>> {
        let watcher = self.watcher.as_ref().expect("it is there once all are started");
        match watcher.status().wait() {
            Ok(stands) => stands.into_iter().map(|it| it.said.ok()).collect(),
            Err(_) => vec![None; self.len()],
        }
    }

    /// Which broker leads, as the one sees it that is furthest.
    pub(crate) fn leader(&self) -> Option<usize> {
        let furthest = self.stands().into_iter().flatten().max_by_key(|it| it.view)?;
        Some(usize::from(furthest.leader))
    }

    /// Waits until every broker stands at most `LAG` blocks behind the first; how long that took.
    ///
    /// # Errors
    /// Where they stand, if it takes longer than `timeout`.
    pub(crate) fn caught_up(&mut self, timeout: Duration) -> Result<Duration, Failure> {
        let begun = Instant::now();
        loop {
            let stands = self.stands();
            let heights: Vec<Option<u64>> = stands.iter().map(|it| it.as_ref().map(|said| said.height)).collect();
            let (least, most) = (heights.iter().min().copied().flatten(), heights.iter().max().copied().flatten());
            if least.zip(most).is_some_and(|(least, most)| most - least <= LAG) {
                return Ok(begun.elapsed());
            }
            self.check()?;
            if begun.elapsed() > timeout {
                return Err(format!("not caught up after {timeout:?}: blocks {heights:?}").into());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until all stand at one block, and compares the states that they have there.
    ///
    /// # Errors
    /// They differ, or never stand together.
    pub(crate) fn agree(&mut self, timeout: Duration) -> Result<u64, Failure> {
        let begun = Instant::now();
        let mut seen: Vec<std::collections::BTreeMap<u64, [u8; 32]>> = vec![Default::default(); self.len()];
        loop {
            for (broker, said) in self.stands().into_iter().enumerate() {
                if let Some(said) = said {
                    seen[broker].insert(said.height, said.state_root);
                }
            }
            let common = seen[0].keys().rev().find(|height| seen.iter().all(|it| it.contains_key(height))).copied();
            if let Some(height) = common {
                let alike = seen.iter().all(|it| it[&height] == seen[0][&height]);
                return if alike { Ok(height) } else { Err(format!("two states after block {height}").into()) };
            }
            self.check()?;
            if begun.elapsed() > timeout {
                return Err(format!("the brokers never stood at one block in {timeout:?}").into());
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(watcher) = self.watcher.take() {
            watcher.close();
        }
        let all: Vec<usize> = (0..self.processes.len()).collect();
        // They may be gone already.
        let _ = self.kill(&all);
        if !self.keep {
            // What cannot be removed is in a temporary folder.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Runs `sealcast` with a home of its own.
pub(crate) fn sealcast(home: &Path, arguments: &[&str]) -> Result<(), Failure> {
    let mut command = Command::new(beside("sealcast")?);
    let output = command.args(arguments).env("SEALCAST_HOME", home).stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("sealcast {}: {}", arguments.join(" "), said.trim()).into())
        }
    }
}

/// Who stands at most so many blocks behind has caught up: they come in this instant.
const LAG: u64 = 8;
const LOOK: Duration = Duration::from_millis(20);
/// How long a call to the brokers may take: all of them may be down.
const CALL_TIMEOUT: Duration = Duration::from_secs(180);
