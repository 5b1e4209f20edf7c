//! A key distribution centre as `sealcast kdc run` runs it, and the principals that it has registered.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use sealcast::config::{Home, KeptPrincipal, Overwrite};
use sealcast_crypto::identity::{Act, Principal, Registration, Right};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_kdc::Store;
use sealcast_kdc::store::principal;
use sealcast_wire::Utc;
use tempfile::TempDir;

use super::identities::GROUP;
use crate::Failure;
use crate::brokers::beside;

/// A centre's folder, and a home for those whom it registers.
pub(crate) struct Registry {
    folder: TempDir,
}

impl Registry {
    /// Nobody is registered.
    pub(crate) fn new() -> Result<Registry, Failure> {
        Registry::within(&std::env::temp_dir())
    }

    /// The same in memory, where there is such a folder: registering thousands waits for a disk thousands of times.
    pub(crate) fn in_memory() -> Result<Registry, Failure> {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Registry::within(memory) } else { Registry::new() }
    }

    fn within(folder: &Path) -> Result<Registry, Failure> {
        Ok(Registry { folder: tempfile::Builder::new().prefix("sealcast-lab-").tempdir_in(folder)? })
    }

    /// The home in which the principals of [`Registry::keep`] are found.
    pub(crate) fn home(&self) -> &Path {
        self.folder.path()
    }

    /// Registers so many, called `robot0`, `robot1`, …: all may do all with every topic, and lead.
    pub(crate) fn register(&self, members: usize) -> Result<Vec<Principal>, Failure> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        let store = Store::create(&self.folder.path().join(CENTRE), &Secret::from_bytes(seed))?;
        let now = Utc(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?);
        let rights = [Act::Both, Act::Lead, Act::Evict].map(|act| Right::new(GROUP, act, "#"));
        let rights = rights.into_iter().collect::<Result<Vec<Right>, _>>()?;
        let mut made = Vec::new();
        for i in 0..members {
            getrandom::fill(&mut seed)?;
            let signing = Secret::from_bytes(seed);
            let draft = Registration {
                realm: store.realm(),
                serial: 0,
                name: format!("robot{i}").as_str().into(),
                key: OriginKey::from_seed(&signing).public().clone(),
                exchange: None,
                not_before: now.0 - 60,
                not_after: now.0 + 86_400,
                rights: rights.iter().cloned().collect(),
            };
            made.push(principal(store.secret(), store.register(draft, now)?, signing));
        }
        Ok(made)
    }

    /// Registers so many, and writes the files that they join with.
    pub(crate) fn keep(&self, members: usize) -> Result<(), Failure> {
        let home = Home::at(self.home());
        for made in self.register(members)? {
            let path = home.principal(&made.registration.name);
            KeptPrincipal { path, principal: made, url: None }.write(None, Overwrite::Never)?;
        }
        Ok(())
    }

    /// Runs the centre; in the namespace where this command is, if there is one.
    pub(crate) fn run(&self, within: Option<Command>, listen: &str) -> Result<Running, Failure> {
        let mut command = within.map_or_else(|| beside("sealcast").map(Command::new), Ok)?;
        command.args(["--json", "kdc", "run", "--listen", listen, "--until-stdin-closes", "--dir"]);
        command.arg(self.folder.path().join(CENTRE));
        // If we are killed, the pipe closes, and it ends too.
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout is piped")).read_line(&mut line)?;
        let said: Result<serde_json::Value, _> = serde_json::from_str(&line);
        let address = said.ok().and_then(|it| it["listen"].as_str()?.parse().ok());
        let mut running = Running { child, address: ([0, 0, 0, 0], 0).into() };
        running.address = address.ok_or("the centre does not run")?;
        Ok(running)
    }
}

/// A centre that runs until it is dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Running {
    /// The most memory that it has used.
    pub(crate) fn resident_bytes(&self) -> Result<u64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM in /proc")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The centre's folder within the home.
const CENTRE: &str = "kdc";
