//! `sealcast brokers init DIR`: keys, genesis, the cluster file, and a folder for each broker.
//!
//! ```text
//! DIR/cluster.toml               for clients too; 0644
//! DIR/broker-2/broker.key        the broker's Ed25519 key, SC-SECRET-1…; 0600
//! DIR/broker-2/cluster.toml      the same cluster file, so that the folder can be moved to its machine
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};

use sealcast::brokers::{load, save};
use sealcast::code::Code;
use sealcast::config::{
    Contexts, FileError, Home, KeptIdentity, Overwrite, name_checked, private_folder, program_folder, read_public,
    write_secret,
};
use sealcast::url::{TransportAddress, Url};
use sealcast_broker::cluster_file::{Addresses, ClusterFile, Mismatch};
use sealcast_broker::genesis::{Genesis, Issuer};
use sealcast_crypto::ed25519::Key;
use sealcast_crypto::identity::{Attribute, PublicKeys, keytext, pem};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{Algorithm, OriginKey, PublicKey};
use sealcast_wire::limits;
use serde_json::json;

use super::{Made, processes};
use crate::authority::KeptAuthority;
use crate::cluster::PIN_DIGITS;
use crate::commands::{Env, init as newcomer};
use crate::hint::Failure;
use crate::target;

/// A cluster that was just made.
pub(super) struct Cluster {
    pub(super) path: PathBuf,
    pub(super) file: ClusterFile,
}

pub(super) fn init(env: &Env<'_>, made: &Made, folder: &Path) -> Result<(), Failure> {
    let cluster = make(env, made, folder)?;
    let (file, shown) = (&cluster.file, Home::shown(&cluster.path));
    let id = hex::encode(file.cluster().0);
    env.output.object(&json!({
        "cluster": id, "name": file.genesis.name, "path": cluster.path, "brokers": file.brokers(),
        "threshold": file.threshold, "administrators": file.genesis.administrators.len(),
        "quorum": file.genesis.quorum, "issuers": file.genesis.issuers.keys().collect::<Vec<_>>(),
        "key": file.key.is_some(), "authority": file.endorsement.as_ref().map(|it| it.authority.fingerprint().to_string()),
    }))?;
    told(env, &cluster)?;
    env.output
        .say(format!("          Next:  sealcast brokers run {}/broker-0   (each on its machine)", Home::shown(folder)));
    let pin = &id[..PIN_DIGITS];
    env.output.say(format!("                 sealcast --url 'quorum:{shown}?pin={pin}' brokers status"));
    Ok(())
}

/// `cluster   brokers  5f0c…  4 brokers, of which 1 may lie; 3 open a publication`
pub(super) fn told(env: &Env<'_>, cluster: &Cluster) -> Result<(), Failure> {
    let file = &cluster.file;
    let (n, f, t) = (file.brokers(), file.faulty(), file.threshold);
    let id = &hex::encode(file.cluster().0)[..16];
    let name = &file.genesis.name;
    env.output.line(format!("cluster   {name}  {id}…  {n} brokers, of which {f} may lie; {t} open a publication"))?;
    let (m, k) = (file.genesis.quorum, file.genesis.administrators.len());
    let issuers: Vec<&str> = file.genesis.issuers.keys().map(String::as_str).collect();
    env.output.line(format!("issuers   {}   administrators {m} of {k}", issuers.join(", ")))?;
    let signed = match &file.endorsement {
        Some(it) => format!("signed by the authority {}", it.authority.certificate().name()),
        None => "signed by no authority".to_owned(),
    };
    env.output.line(format!("file      {}  {signed}", Home::shown(&cluster.path)))
}

pub(super) fn make(env: &Env<'_>, made: &Made, folder: &Path) -> Result<Cluster, Failure> {
    let path = folder.join("cluster.toml");
    if path.exists() {
        return Err(Failure::new(Code::Exists, format!("{} exists already", Home::shown(&path)))
            .hint("another folder; making a cluster anew would lose what its brokers hold"));
    }
    if made.name.is_empty() || made.name.len() > limits::GROUP_BYTES_MAX {
        return Err(Failure::new(Code::BadValue, "--name: a name has 1 to 64 bytes"));
    }
    let f = made.n.saturating_sub(1) / 3;
    let enough = made.n == 1 || (limits::BROKERS_MIN..=limits::BROKERS_MAX).contains(&made.n);
    if !enough || made.n != 3 * f + 1 {
        return Err(Failure::new(Code::BadValue, format!("-n {}: {}", made.n, Mismatch::Brokers(made.n)))
            .hint("-n 4 bears one broker that lies, -n 7 two"));
    }
    let issuers = issuers(env, made)?;
    let administrators = administrators(env, made)?;
    let most = administrators.len();
    let quorum = made.quorum.unwrap_or(most / 2 + 1);
    if !(1..=most).contains(&quorum) {
        let there =
            if most == 1 { "there is 1 administrator".to_owned() } else { format!("there are {most} administrators") };
        return Err(Failure::new(Code::BadValue, format!("--quorum {quorum}: {there}"))
            .hint(format!("--quorum 1 to {most}; --admin scpub1… names one more administrator")));
    }
    let threshold = u16::try_from(if made.paper { f + 1 } else { 2 * f + 1 }).expect("brokers have a limit");
    let seeds = seeds(made.n);
    let genesis =
        Genesis { name: made.name.clone(), brokers: seeds.keys().copied().collect(), quorum, administrators, issuers };
    let addresses = addresses(made)?;
    not_taken(env, made, &addresses)?;
    let mut file =
        ClusterFile { genesis, addresses, threshold, suite: made.suite.into(), key: None, endorsement: None };
    endorse(env, &mut file)?;
    lay_out(folder, &file, &seeds)?;
    if made.dealer {
        env.output.warn("--dealer: this machine knows the threshold key while it deals its shares");
        processes::deal(folder, made.n)?;
        file = sealcast::brokers::load(&folder.join("broker-0").join("cluster.toml"))?;
    }
    save(&path, &file, Overwrite::Never)?;
    Ok(Cluster { path, file })
}

/// Seeds of new brokers by their keys, whose order numbers them.
pub(super) fn seeds(n: usize) -> BTreeMap<[u8; 32], Secret<32>> {
    let mut rng = crate::rng();
    let seeds = (0..n).map(|_| Secret::random(&mut rng));
    seeds.map(|seed| (OriginKey::from_seed(&seed).public_bytes(), seed)).collect()
}

/// The folders of a cluster's brokers.
pub(super) fn lay_out(
    folder: &Path,
    file: &ClusterFile,
    seeds: &BTreeMap<[u8; 32], Secret<32>>,
) -> Result<(), Failure> {
    file.check().map_err(|e| Failure::new(Code::BadValue, e))?;
    private_folder(folder)?;
    for (n, seed) in seeds.values().enumerate() {
        let own = folder.join(format!("broker-{n}"));
        private_folder(&own)?;
        let text = format!("{}\n", *keytext::export_seed(seed));
        write_secret(&own.join("broker.key"), text.as_bytes(), Overwrite::Never)?;
        save(&own.join("cluster.toml"), file, Overwrite::Never)?;
    }
    Ok(())
}

/// Whoever gives attributes.
fn issuers(env: &Env<'_>, made: &Made) -> Result<BTreeMap<String, Issuer>, Failure> {
    let mut issuers = BTreeMap::new();
    let mut named: Vec<String> = made.issuers.clone();
    if named.is_empty() {
        named = env.home.authorities();
        if let [_, _, ..] = &named[..] {
            let all = named.join(", ");
            env.output.warn(format!("all authorities of this machine give attributes: {all}; --issuer names some"));
        }
    }
    if named.is_empty() {
        newcomer::found(env, &made.name)?;
        named.push(made.name.clone());
    }
    for text in &named {
        let (name, issuer) = match text.split_once('=') {
            Some((name, at)) => (name, issuer_of(name, at)?),
            None => {
                let kept = KeptAuthority::open(&env.home, text).map_err(|e| match e.is(Code::Missing) {
                    true => Failure::new(Code::NoAuthority, format!("--issuer: there is no authority '{text}' here"))
                        .hint("sealcast ca ls; of others: --issuer NAME=CERTIFICATE.pem"),
                    false => e,
                })?;
                let issuer = Issuer::authority(kept.authority.certificate().der());
                (text.as_str(), issuer.map_err(|_| Failure::new(Code::Authority, format!("{text} is no authority")))?)
            }
        };
        Attribute::new(name, "key", "value")
            .map_err(|e| Failure::new(Code::BadValue, format!("--issuer: '{name}': {e}")))?;
        issuers.insert(name.to_owned(), issuer);
    }
    Ok(issuers)
}

fn issuer_of(name: &str, at: &str) -> Result<Issuer, Failure> {
    if at.starts_with("scpub1") {
        let keys = at.parse::<PublicKeys>();
        let keys = keys.map_err(|e| Failure::new(Code::BadValue, format!("--issuer: the key of {name}: {e}")))?;
        return Ok(Issuer::Key(keys.signing));
    }
    if let Some(key) = hex::decode(at).ok().and_then(|bytes| PublicKey::from_bytes(&bytes).ok()) {
        return Ok(Issuer::Key(key));
    }
    let path = Path::new(at);
    let text = read_public(path)?;
    let der = pem::read(pem::CERTIFICATE, &text);
    let issuer = der.and_then(|der| Issuer::authority(&der).ok());
    issuer.ok_or_else(|| {
        Failure::new(Code::Authority, format!("--issuer: {} is no authority's certificate", Home::shown(path)))
            .hint(format!("--issuer {name}=CERTIFICATE.pem; sealcast ca inspect FILE tells what it is"))
    })
}

/// Those who are named, else the chosen identity.
fn administrators(env: &Env<'_>, made: &Made) -> Result<Vec<Key>, Failure> {
    let mut keys = Vec::new();
    for text in &made.administrators {
        let public: PublicKeys = text.parse().map_err(|e| Failure::new(Code::BadValue, format!("--admin: {e}")))?;
        keys.push(administrator(&public.signing).ok_or_else(|| {
            Failure::new(Code::BadValue, format!("--admin: {} is no Ed25519 key", keytext::short(text)))
                .hint("sealcast id new NAME makes an identity with one")
        })?);
    }
    if keys.is_empty() {
        let name = target::identity(env)?.ok_or_else(|| target::no_identity(env))?;
        let kept = KeptIdentity::load(&env.home, &name)?;
        let key = administrator(&kept.secret.public().signing).ok_or_else(|| {
            Failure::new(Code::BadValue, format!("{name} has a P-256 key; administrators have Ed25519 ones"))
                .hint("sealcast id new admin, then --id admin; or --admin scpub1…")
        })?;
        keys.push(key);
    }
    keys.sort_by_key(|key| *key.as_bytes());
    keys.dedup();
    Ok(keys)
}

fn administrator(key: &PublicKey) -> Option<Key> {
    let point = (key.algorithm() == Algorithm::Ed25519).then(|| key.point())?;
    Key::new(point.try_into().ok()?).ok()
}

fn addresses(made: &Made) -> Result<Vec<Addresses>, Failure> {
    let host = |n: usize| made.host.replace("{}", &n.to_string());
    let fixed = |base: u16| -> Option<Vec<(u16, u16)>> {
        let port = |n: usize, more: u16| u16::try_from(n).ok()?.checked_add(base)?.checked_add(more);
        (0..made.n).map(|n| Some((port(n, 0)?, port(n, ORDER_PORTS)?))).collect()
    };
    let too_high = || Failure::new(Code::BadValue, "--port: the last port would be above 65535");
    let local = made.host == "127.0.0.1";
    let ports = match made.port {
        Some(0) => free_ports(made.n)?,
        Some(base) => fixed(base).ok_or_else(too_high)?,
        None => {
            let usual = fixed(PORTS).ok_or_else(too_high)?;
            let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
            if local && !usual.iter().all(|(a, b)| free(*a) && free(*b)) { free_ports(made.n)? } else { usual }
        }
    };
    let one = |(n, (gateway, order)): (usize, (u16, u16))| Addresses {
        gateway: format!("{}:{gateway}", host(n)),
        order: format!("{}:{order}", host(n)),
    };
    Ok(ports.into_iter().enumerate().map(one).collect())
}

/// Refuses a `--port` with which a broker would listen where another one does or will: a broker of another cluster of this
/// user, or whoever listens on this machine now.
fn not_taken(env: &Env<'_>, made: &Made, addresses: &[Addresses]) -> Result<(), Failure> {
    let Some(port) = made.port.filter(|it| *it != 0) else { return Ok(()) };
    let taken = |at: &str, by: &str| {
        Err(Failure::new(Code::BadValue, format!("--port {port}: {at} is taken by {by}"))
            .hint(format!("brokers listen at {port} and {} and above; --port 0 takes free ports", port + ORDER_PORTS)))
    };
    let all = || addresses.iter().flat_map(|it| [&it.gateway, &it.order]);
    for other in known_clusters(env) {
        let name = &other.genesis.name;
        for (number, held) in other.addresses.iter().enumerate() {
            if all().any(|at| *at == held.gateway) {
                return taken(&held.gateway, &format!("broker {number} of {name}, for clients"));
            }
            if all().any(|at| *at == held.order) {
                return taken(&held.order, &format!("broker {number} of {name}, for the other brokers"));
            }
        }
    }
    let in_use = |at: &&String| TcpListener::bind(at.as_str()).is_err_and(|e| e.kind() == ErrorKind::AddrInUse);
    match all().find(in_use) {
        Some(at) => taken(at, "a program that runs now"),
        None => Ok(()),
    }
}

/// The clusters that `up` has made here, and those of contexts. A file that cannot be read is not this command's business.
fn known_clusters(env: &Env<'_>) -> Vec<ClusterFile> {
    let made = fs::read_dir(env.home.state().join(CLUSTERS)).into_iter().flatten().flatten();
    let contexts = Contexts::load(&env.home).map(|it| it.context).unwrap_or_default();
    let urls = contexts.values().filter_map(|it| match Url::parse(&it.url).ok()?.address {
        TransportAddress::Quorum(path) => Some(path),
        _ => None,
    });
    let paths: BTreeSet<PathBuf> = made.map(|it| it.path().join("cluster.toml")).chain(urls).collect();
    paths.iter().filter_map(|path| load(path).ok()).collect()
}

/// Ports that are free now, and that no system gives to outgoing connections: a broker that was down finds its own free
/// again.
pub(crate) fn free_ports(n: usize) -> Result<Vec<(u16, u16)>, Failure> {
    let mut random = [0; 2];
    getrandom::fill(&mut random).map_err(|e| Failure::new(Code::System, e))?;
    // Whoever looks at the same time begins elsewhere.
    let begin = usize::from(u16::from_be_bytes(random)) % FREE_PORTS.len();
    let around = FREE_PORTS.cycle().skip(begin).take(FREE_PORTS.len());
    let free = around.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let ports: Vec<u16> = free.take(2 * n).collect();
    if ports.len() < 2 * n {
        return Err(Failure::new(Code::System, "too few ports of 127.0.0.1 are free"));
    }
    Ok(ports.chunks(2).map(|pair| (pair[0], pair[1])).collect())
}

/// The authority of the first issuer that is on this machine signs the file.
fn endorse(env: &Env<'_>, file: &mut ClusterFile) -> Result<(), Failure> {
    for name in env.home.authorities() {
        let Some(Issuer::Authority { der, .. }) = file.genesis.issuers.get(&name) else { continue };
        let kept = KeptAuthority::open(&env.home, &name)?;
        if kept.authority.certificate().der()[..] == der[..] {
            let key = kept.authority.secret().signing_key();
            file.endorse(kept.authority.anchor().clone(), |statement| key.sign(statement));
            return Ok(());
        }
    }
    Ok(())
}

/// All of a folder, for the brokers in it.
pub(super) fn folders(folder: &Path, n: usize) -> Result<Vec<PathBuf>, Failure> {
    let all: Vec<PathBuf> = (0..n).map(|it| folder.join(format!("broker-{it}"))).collect();
    match all.iter().find(|it| !it.is_dir()) {
        Some(missing) => Err(FileError::Missing(missing.clone()).into()),
        None => Ok(all),
    }
}

/// Where `up` keeps a cluster of this name.
pub(super) fn default_folder(env: &Env<'_>, name: &str) -> Result<PathBuf, Failure> {
    let parent = env.home.state().join(CLUSTERS);
    program_folder(env.home.state())?;
    program_folder(&parent)?;
    Ok(parent.join(name_checked(name)?))
}

/// The folder of clusters that `up` makes, in the state folder.
const CLUSTERS: &str = "clusters";
/// Of the first broker, for clients.
const PORTS: u16 = 7400;
/// Those between brokers are so much higher.
const ORDER_PORTS: u16 = 100;
/// Where others are looked for: above the usual ones, below those of outgoing connections (Linux: from 32,768 on; IANA:
/// 49,152).
const FREE_PORTS: Range<u16> = 10_000..32_768;
