//! A cluster on loopback: its files, its brokers, and what its clients say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sealcast_broker::cluster_file::{Addresses, ClusterFile, Suite};
use sealcast_broker::genesis::{Cluster, Genesis, Issuer};
use sealcast_broker::operation::{Body, Claim, Execute, Header, Operation, Publication, Registration};
use sealcast_brokerd::config::{self, Config};
use sealcast_brokerd::serve::Broker;
use sealcast_crypto::ed25519::Key;
use sealcast_crypto::identity::keytext::export_seed;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{Algorithm, OriginKey, SigningKey};
use sealcast_order_engine::Simplex;
use sealcast_wire::Utc;

/// The files of a cluster; they go when it does.
pub(crate) struct Home {
    root: PathBuf,
    host: IpAddr,
    issuer: SigningKey,
    /// The brokers' secret seeds, by number.
    pub(crate) seeds: Vec<u8>,
    pub(crate) cluster: Cluster,
    pub(crate) file: ClusterFile,
}

impl Home {
    /// A new cluster of `n` brokers.
    pub(crate) fn new(name: &str, n: u8) -> Home {
        Home::on(Suite::Ristretto255, name, n)
    }

    /// The same, whose threshold key lies in this group.
    pub(crate) fn on(suite: Suite, name: &str, n: u8) -> Home {
        let root = std::env::temp_dir().join(format!("sealcast-brokers-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let issuer = SigningKey::from_seed(Algorithm::Ed25519, &Secret::from_bytes([9; 32])).expect("a key");
        let mut seeds: Vec<u8> = (0..n).map(|i| 210 + i).collect();
        seeds.sort_by_key(|seed| key(*seed).public_bytes());
        let genesis = Genesis {
            name: name.into(),
            brokers: seeds.iter().map(|seed| key(*seed).public_bytes()).collect::<BTreeSet<_>>(),
            quorum: 1,
            administrators: vec![Key::new(&key(200).public_bytes()).expect("a key")],
            issuers: BTreeMap::from([("exchange".to_owned(), Issuer::Key(issuer.public().clone()))]),
        };
        let host = host();
        let at = |port: u16| SocketAddr::new(host, port).to_string();
        let addresses = |broker: u16| Addresses { gateway: at(7400 + broker), order: at(7500 + broker) };
        let addresses = (0..u16::from(n)).map(addresses).collect();
        let threshold = if n == 1 { 1 } else { 2 * (u16::from(n) - 1) / 3 + 1 };
        let cluster = genesis.cluster();
        let file = ClusterFile { genesis, addresses, threshold, suite, key: None, endorsement: None };
        let home = Home { root, host, issuer, seeds, cluster, file };
        for (broker, seed) in home.seeds.iter().copied().enumerate() {
            let folder = home.folder(broker);
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join(config::CLUSTER), home.file.to_text()).expect("it is written");
            let path = folder.join(config::KEY);
            fs::write(&path, export_seed(&Secret::from_bytes([seed; 32])).as_bytes()).expect("it is written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
        }
        home
    }

    pub(crate) fn folder(&self, broker: usize) -> PathBuf {
        self.root.join(broker.to_string())
    }

    pub(crate) fn config(&self, broker: usize) -> Config {
        Config::read(&self.folder(broker)).unwrap_or_else(|e| panic!("{e}"))
    }

    pub(crate) fn start(&self, broker: usize) -> Broker {
        Broker::start(self.config(broker), &Simplex).unwrap_or_else(|e| panic!("{e}"))
    }

    pub(crate) fn start_all(&self) -> Vec<Broker> {
        (0..self.file.brokers()).map(|broker| self.start(broker)).collect()
    }

    pub(crate) fn gateway_address(&self, broker: usize) -> SocketAddr {
        self.file.addresses[broker].gateway.parse().expect("an address")
    }

    /// Where one of the brokers may show its figures.
    pub(crate) fn metrics_address(&self) -> SocketAddr {
        SocketAddr::new(self.host, 7600)
    }

    pub(crate) fn order_address(&self, broker: usize) -> SocketAddr {
        self.file.addresses[broker].order.parse().expect("an address")
    }

    /// A registration by the exchange, for a day.
    pub(crate) fn claim(&self, seed: u8) -> Operation {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let now = i64::try_from(now).expect("before the year 292 277 026 596");
        let validity = (Utc(now - 3600), Utc(now + 86_400));
        let claim = Claim::sign("exchange", &[seed], validity, &[("desk", "fx")], key(seed).public(), &self.issuer);
        Operation::Register(Registration { intent: false, proof: claim.into() })
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Loopback of the next cluster alone: a broker that comes back finds its ports free, though a port of 127.0.0.1 may by then
/// be one that the system gave to an outgoing connection. (Linux has all of 127.0.0.0/8.)
fn host() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., process, part] = std::process::id().to_be_bytes();
    IpAddr::from(Ipv4Addr::new(127, process, part, NEXT.fetch_add(1, Ordering::Relaxed)))
}

pub(crate) fn key(seed: u8) -> Arc<OriginKey> {
    Arc::new(OriginKey::from_seed(&Secret::from_bytes([seed; 32])))
}

pub(crate) fn header(topic: &str) -> Header {
    Header { topic: topic.into(), value: None }
}

pub(crate) fn publish(topic: &str, body: &[u8]) -> Operation {
    Operation::Publish(Box::new(Publication {
        headers: vec![header(topic)],
        associated: vec![],
        access: None,
        execute: Execute::Nothing,
        policy: 0,
        epoch: 0,
        body: Body::Plain(body.to_vec()),
    }))
}

pub(crate) fn subscribe(interest: &str) -> Operation {
    Operation::Subscribe(interest.parse().expect("an interest"))
}

/// A watchdog, far beyond what it takes.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(120), "never came: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
