//! Brokers of one's own in a temporary folder on this machine: for `demo` and `bench`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sealcast::brokers::{Brokers, ClientKey, Opening, registration};
use sealcast::code::Code;
use sealcast::config::{FileError, private_folder};
use sealcast::url::Scheme;
use sealcast_broker::cluster_file::{Addresses, ClusterFile, Suite};
use sealcast_broker::genesis::{Genesis, Issuer};
use sealcast_crypto::ed25519::Key;
use sealcast_crypto::identity::{Attribute, Authority, Identity, MemberSecret, Request, Rights};
use sealcast_crypto::signature::{Algorithm, OriginKey};

use super::init;
use super::processes::Processes;
use crate::hint::Failure;
use crate::text::now;

/// What brokers are wanted.
pub(crate) struct Wanted<'a> {
    /// 3f + 1 of them; one is an unreplicated broker.
    pub(crate) brokers: usize,
    /// f + 1 of them open a publication, as in the paper, instead of 2f + 1.
    pub(crate) paper: bool,
    /// Who gives attributes.
    pub(crate) issuers: &'a [&'a str],
    /// What each of them has in its `broker.toml`.
    pub(crate) settings: &'a str,
    /// In which folder theirs is made; the system's temporary one if there is none.
    pub(crate) within: Option<&'a Path>,
}

/// Running brokers with their issuers and one administrator. All of it goes when it is dropped.
pub(crate) struct Local {
    folder: PathBuf,
    folders: Vec<PathBuf>,
    cluster: Arc<ClusterFile>,
    issuers: BTreeMap<String, Authority>,
    administrator: OriginKey,
    processes: Processes,
}

impl Local {
    /// Makes them and starts their processes.
    pub(crate) fn start(wanted: &Wanted<'_>) -> Result<Local, Failure> {
        let folder = temporary(wanted.within)?;
        let mut issuers = BTreeMap::new();
        for name in wanted.issuers {
            let authority = Authority::create(name, Algorithm::P256, now(), &mut crate::rng());
            issuers.insert((*name).to_owned(), authority.map_err(|e| Failure::new(Code::BadValue, e))?);
        }
        let administrator = OriginKey::generate(&mut crate::rng());
        let seeds = init::seeds(wanted.brokers);
        let named = issuers.iter().map(|(name, authority)| {
            let issuer = Issuer::authority(authority.certificate().der());
            (name.clone(), issuer.expect("an authority of this program is one"))
        });
        let genesis = Genesis {
            name: "local".to_owned(),
            brokers: seeds.keys().copied().collect(),
            quorum: 1,
            administrators: vec![Key::new(&administrator.public_bytes()).expect("a key of this program is one")],
            issuers: named.collect(),
        };
        let at = |(gateway, order): (u16, u16)| Addresses {
            gateway: format!("127.0.0.1:{gateway}"),
            order: format!("127.0.0.1:{order}"),
        };
        let f = wanted.brokers.saturating_sub(1) / 3;
        let cluster = ClusterFile {
            genesis,
            addresses: init::free_ports(wanted.brokers)?.into_iter().map(at).collect(),
            threshold: u16::try_from(if wanted.paper { f + 1 } else { 2 * f + 1 }).expect("brokers have a limit"),
            suite: Suite::Ristretto255,
            key: None,
            endorsement: None,
        };
        init::lay_out(&folder, &cluster, &seeds)?;
        let folders = init::folders(&folder, wanted.brokers)?;
        for folder in &folders {
            let path = folder.join("broker.toml");
            std::fs::write(&path, wanted.settings).map_err(|e| FileError::io(&path, e))?;
        }
        let processes = Processes::start(&folders)?;
        Ok(Local { folder, folders, cluster: cluster.into(), issuers, administrator, processes })
    }

    /// A client that the brokers know by an issuer's certificate with these attributes.
    pub(crate) fn client(
        &mut self,
        name: &str,
        issuer: &str,
        attributes: &[(&str, &str)],
        keys: Scheme,
        batch_operations: usize,
    ) -> Result<Brokers, Failure> {
        let bad = |e: &dyn std::fmt::Display| Failure::new(Code::BadValue, e);
        let authority = self.issuers.get_mut(issuer).expect("callers name issuers that they asked for");
        let secret = MemberSecret::generate(Algorithm::Ed25519, &mut crate::rng());
        let attributes = attributes.iter().map(|(key, value)| Attribute::new(issuer, key, value));
        let attributes = attributes.collect::<Result<Vec<_>, _>>().map_err(|e| bad(&e))?;
        let request = Request { name: name.to_owned(), keys: secret.public(), rights: Rights::none(), attributes };
        let certificate = authority.issue(&request, now(), VALID_SECONDS).map_err(|e| bad(&e))?;
        let identity = Identity::new(&certificate, &secret, authority.anchor().clone()).map_err(|e| bad(&e))?;
        let key = ClientKey::fresh()?;
        let registrations = registration(&self.cluster, &identity, &key.client(), false).into_iter().collect();
        let cluster = self.cluster.clone();
        let (timeout, accuse) = (TIMEOUT, true);
        Ok(Brokers::open(Opening { cluster, key, registrations, keys, timeout, batch_operations, accuse })?)
    }

    /// The cluster.
    pub(crate) fn cluster(&self) -> &Arc<ClusterFile> {
        &self.cluster
    }

    /// Signs the administrators' acts.
    pub(crate) fn administrator(&self) -> &OriginKey {
        &self.administrator
    }

    /// A broker's folder.
    pub(crate) fn folder(&self, broker: usize) -> &Path {
        &self.folders[broker]
    }

    /// The brokers' processes, by their numbers.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.processes.ids()
    }

    /// Kills a broker, as a crash does.
    pub(crate) fn kill(&mut self, broker: usize) -> Result<(), Failure> {
        self.processes.kill(broker)
    }

    /// Starts a killed broker again.
    pub(crate) fn restart(&mut self, broker: usize) -> Result<(), Failure> {
        self.processes.restart(broker, &self.folders[broker])
    }

    /// A broker lies from now on.
    pub(crate) fn corrupt(&mut self, broker: usize) -> Result<(), Failure> {
        self.processes.corrupt(broker, &self.folders[broker])
    }

    /// A folder that goes with all the rest.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.folder.join("scratch")
    }

    /// Fails if a broker has ended by itself, and says how.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        match self.processes.ended().into_iter().next() {
            None => Ok(()),
            Some(it) => Err(Failure::new(Code::System, format!("broker {} {}", it.number, it.how))),
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.processes.stop(STOP_TIMEOUT);
        // What cannot be removed is in a temporary folder, which is emptied at the next start.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A folder that nobody else has.
fn temporary(within: Option<&Path>) -> Result<PathBuf, Failure> {
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(|e| Failure::new(Code::System, e))?;
    let within = within.map_or_else(std::env::temp_dir, Path::to_path_buf);
    let folder = within.join(format!("sealcast-{:08x}", u32::from_be_bytes(random)));
    private_folder(&folder)?;
    Ok(folder)
}

/// How long a call may take: the brokers may be starting.
const TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// A day.
const VALID_SECONDS: i64 = 86_400;
