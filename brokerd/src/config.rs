//! The folder of one broker.
//!
//! ```text
//! broker.key      its secret (SC-SECRET-1…)                                       0600; genesis has its public key
//! cluster.toml    the cluster file (docs/WIRE.md, 15.2), the same at all brokers
//! broker.toml     what is this broker's alone ([`Settings`]); need not be there
//! keys/           its share of the threshold key (E7)
//! order/          the engine's journal of votes, and the log of blocks
//! votes-unknown   there was no journal at a start: it is new, or has lost it ([`Forgotten`](crate::sync::Forgotten))
//! votes-awaited   for that it does not vote yet
//! state/          what was executed
//! snapshots/      what others begin with who lack what is pruned here
//! joining/        a snapshot on its way here
//! evidence/       what brokers signed that contradicts itself
//! cluster.id      of which cluster all these are
//! lock            held while the broker runs
//! control         where it is asked to reload, while it runs
//! ```

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sealcast_broker::cluster_file::ClusterFile;
use sealcast_crypto::identity::keytext::import_seed;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::limits;
use zeroize::Zeroizing;

use crate::code::Code;

mod settings;

pub use settings::{BLOCK_SIZE, CHECKED_TOGETHER, Given, Settings, ShareOn, THREADS, Threads};

/// All that a broker knows when it starts.
pub struct Config {
    /// Its folder.
    pub folder: PathBuf,
    /// Its cluster.
    pub cluster: ClusterFile,
    /// Its number.
    pub index: u16,
    /// The seed of its key.
    pub seed: Secret<32>,
    /// Its own settings, with what the command line says instead.
    pub settings: Settings,
    /// What the command line says, also when the settings are read again.
    pub given: Given,
    /// Where it listens for clients.
    pub gateway: SocketAddr,
    /// Where the brokers are for each other, by their numbers.
    pub order: Vec<SocketAddr>,
    /// Where it listens for them.
    pub listen_order: SocketAddr,
    /// While this is open, no other process runs in the folder.
    _lock: File,
}

/// What is wrong with a folder, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// What kind of trouble it is.
    pub code: Code,
    /// Which file.
    pub path: PathBuf,
    /// What.
    pub what: String,
    /// What to do.
    pub hint: String,
}

impl Config {
    /// Reads a folder, and keeps others from using it.
    ///
    /// # Errors
    /// [`ConfigError`]: what is wrong with the first file that is.
    pub fn read(folder: &Path) -> Result<Config, ConfigError> {
        let cluster = read_cluster(folder)?;

        let path = folder.join(KEY);
        let text =
            Zeroizing::new(read_text(&path, KEY_BYTES_MAX, "'sealcast brokers init' makes one for each broker")?);
        let mode = fs::metadata(&path).map_err(|e| wrong(&path, &e, CHECK))?.mode();
        if mode & 0o077 != 0 {
            let hint = format!("chmod 600 {}", path.display());
            let wrong = wrong(&path, "others can read the broker's secret", &hint);
            return Err(ConfigError { code: Code::Exposed, ..wrong });
        }
        let seed = import_seed(text.trim()).map_err(|e| wrong(&path, e, "put the broker's own key file back"))?;
        let key = OriginKey::from_seed(&seed).public_bytes();
        let index = cluster.number_of(&key).ok_or_else(|| {
            let what = format!("the key {} is not one of the brokers of '{}'", hex::encode(key), cluster.genesis.name);
            wrong(&path, what, &format!("compare the keys of [[broker]] in {}", folder.join(CLUSTER).display()))
        })?;

        let settings = Settings::read(folder)?;
        let lock = lock(folder)?;
        mark(folder, &cluster)?;
        let at = |place: usize, address: &str| resolve(&folder.join(CLUSTER), place, address);
        let own = usize::from(index);
        let listed = |place: usize| at(place, &cluster.addresses[place].order);
        let order = (0..cluster.brokers()).map(listed).collect::<Result<Vec<_>, _>>()?;
        let gateway = match settings.listen_gateway {
            Some(address) => address,
            None => at(own, &cluster.addresses[own].gateway)?,
        };
        let listen_order = settings.listen_order.unwrap_or(order[own]);
        let folder = folder.to_path_buf();
        let given = Given::default();
        Ok(Config { folder, index, seed, settings, given, gateway, listen_order, order, cluster, _lock: lock })
    }

    /// The same with what the command line says.
    #[must_use]
    pub fn given(self, given: Given) -> Config {
        Config { settings: self.settings.given(&given), given, ..self }
    }

    /// The folder of the order's files, of the state's, of secrets, of evidence.
    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// The cluster file of a broker's folder.
///
/// # Errors
/// [`ConfigError`].
pub fn read_cluster(folder: &Path) -> Result<ClusterFile, ConfigError> {
    let path = folder.join(CLUSTER);
    let text = read_text(&path, limits::CLUSTER_FILE_BYTES_MAX, "'sealcast brokers init' makes one")?;
    ClusterFile::from_text(&text).map_err(|e| wrong(&path, &e, e.hint))
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broker {} of '{}' in {}", self.index, self.cluster.genesis.name, self.folder.display())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.path.display(), self.what, self.hint)
    }
}

impl std::error::Error for ConfigError {}

fn wrong(path: &Path, what: impl fmt::Display, hint: &str) -> ConfigError {
    ConfigError { code: Code::Content, path: path.to_path_buf(), what: what.to_string(), hint: hint.to_string() }
}

fn read_text(path: &Path, most: usize, hint: &str) -> Result<String, ConfigError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(most as u64 + 1).read_to_string(&mut text));
    match read {
        Ok(n) if n > most => Err(wrong(path, format!("it has more than {most} bytes"), CHECK)),
        Ok(_) => Ok(text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Err(ConfigError { code: Code::Missing, ..wrong(path, "there is no such file", hint) })
        }
        Err(e) => Err(wrong(path, e, CHECK)),
    }
}

fn lock(folder: &Path) -> Result<File, ConfigError> {
    let path = folder.join(LOCK);
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(|e| wrong(&path, e, "the folder must be the broker's own"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(wrong(&path, "a broker runs in this folder already", "stop it first, or name another folder"))
        }
        Err(TryLockError::Error(e)) => Err(wrong(&path, e, "the folder must lie on a disk of this machine")),
    }
}

/// What lies in the folder is one cluster's, that of its first start: under another cluster file nothing of it is touched.
fn mark(folder: &Path, cluster: &ClusterFile) -> Result<(), ConfigError> {
    let (path, id) = (folder.join(MARK), format!("{}\n", hex::encode(cluster.cluster().0)));
    match fs::read_to_string(&path) {
        Ok(known) if known == id => Ok(()),
        Ok(_) => {
            let what = format!("the files here are those of another cluster than '{}'", cluster.genesis.name);
            Err(wrong(&path, what, &format!("put the right {CLUSTER} back, or give the broker a folder of its own")))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let new = path.with_extension("new");
            let written = fs::write(&new, &id).and_then(|()| File::open(&new)?.sync_all());
            written.and_then(|()| fs::rename(&new, &path)).map_err(|e| wrong(&path, e, CHECK))
        }
        Err(e) => Err(wrong(&path, e, CHECK)),
    }
}

fn resolve(path: &Path, place: usize, address: &str) -> Result<SocketAddr, ConfigError> {
    let found = address.to_socket_addrs().map(|mut all| all.next());
    let what = match found {
        Ok(Some(address)) => return Ok(address),
        Ok(None) => format!("broker {place}: {address} has no address"),
        Err(e) => format!("broker {place}: {address}: {e}"),
    };
    Err(wrong(path, what, "names of brokers must resolve on this machine"))
}

/// The broker's secret.
pub const KEY: &str = "broker.key";
/// The cluster file.
pub const CLUSTER: &str = "cluster.toml";
/// The broker's settings.
pub const SETTINGS: &str = "broker.toml";
/// Of which cluster the folder is: the cluster's id in hex.
pub const MARK: &str = "cluster.id";
const LOCK: &str = "lock";
const CHECK: &str = "see that it is a file of this broker that its user can read";
/// Bytes of a key file: the text and some white space.
const KEY_BYTES_MAX: usize = 512;

#[cfg(test)]
mod tests;
