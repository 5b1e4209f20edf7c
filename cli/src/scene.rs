//! A group of one's own in a temporary folder, on this machine only: for `demo` and `bench`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;

use sealcast::code::Code;
use sealcast::config::{Home, KeptIdentity, Membership, Overwrite};
use sealcast_crypto::identity::{Authority, MemberSecret, Request, Right, Rights};
use sealcast_crypto::signature::Algorithm;
use tempfile::TempDir;

use crate::commands::doctor::{NO_ROUTE_HINT, local_address};
use crate::hint::{Failure, plain};
use crate::text::now;

/// A folder with an authority and identities; removed when dropped.
#[derive(Debug)]
pub(crate) struct Scene {
    folder: TempDir,
    group: String,
    authority: Authority,
    address: SocketAddr,
    /// How many routers its datagrams may pass; 0 keeps them on this machine.
    ttl: u8,
}

impl Scene {
    /// An authority of a new group, and an address that nobody uses now.
    pub(crate) fn new(group: &str) -> Result<Scene, Failure> {
        let address = SocketAddr::from((LCM_ADDRESS, free_port()?));
        local_address(address).map_err(|e| {
            let failure = Failure::new(Code::NoRoute, format!("no route to {}: {}", address.ip(), plain(&e)));
            failure.hint(NO_ROUTE_HINT)
        })?;
        Scene::at(group, address)
    }

    /// The same where nothing is multicast.
    pub(crate) fn off_lan(group: &str) -> Result<Scene, Failure> {
        Scene::at(group, SocketAddr::from((LCM_ADDRESS, 0)))
    }

    fn at(group: &str, address: SocketAddr) -> Result<Scene, Failure> {
        let folder = tempfile::Builder::new().prefix("sealcast-").tempdir();
        let folder = folder.map_err(|e| Failure::system(std::env::temp_dir().display(), &e))?;
        let authority = Authority::create(group, Algorithm::P256, now(), &mut crate::rng());
        let authority = authority.map_err(|e| Failure::new(Code::BadValue, e))?;
        Ok(Scene { folder, group: group.to_owned(), authority, address, ttl: 0 })
    }

    /// Another authority's group of the same name at the same place.
    pub(crate) fn impostor(&self) -> Result<Scene, Failure> {
        let mut other = Scene::new(&self.group)?;
        other.address = self.address;
        Ok(other)
    }

    /// Puts the bootstrap key of another scene's group into an identity: the worst that an outsider can know.
    pub(crate) fn steal_bootstrap_key(&self, from: &Scene, name: &str) -> Result<(), Failure> {
        let mut identity = KeptIdentity::load(&self.home(), name)?;
        if let Some(m) = &mut identity.membership {
            m.bootstrap_keys.insert(from.group.clone(), from.authority.bootstrap_key(&from.group));
        }
        Ok(identity.save(Overwrite::Replace)?)
    }

    /// Where its files are.
    pub(crate) fn home(&self) -> Home {
        Home::at(self.folder.path())
    }

    /// The folder itself.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The group's name.
    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    /// The multicast address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets its datagrams leave through an interface: namespaces of this machine are machines of their own.
    pub(crate) fn reach(&mut self, ttl: u8) {
        self.ttl = ttl;
    }

    /// The URL of the group: this machine only unless it reaches further, sealed, with these further options.
    pub(crate) fn url(&self, options: &str) -> String {
        format!("udpm://{}?ttl={}&group={}{options}", self.address, self.ttl, self.group)
    }

    /// An identity with rights such as `("both", "#")`.
    pub(crate) fn member(&mut self, name: &str, rights: &[(&str, &str)]) -> Result<(), Failure> {
        let mut granted = Rights::none();
        for (act, pattern) in rights {
            let act = sealcast_crypto::identity::Act::from_name(act).expect("scenes name acts that exist");
            let right = Right::new(&self.group, act, pattern).map_err(|e| Failure::new(Code::BadValue, e))?;
            granted.grant(right);
        }
        let secret = MemberSecret::generate(Algorithm::Ed25519, &mut crate::rng());
        let mut identity = KeptIdentity::new(&self.home(), name, secret);
        let request =
            Request { name: name.to_owned(), keys: identity.secret.public(), rights: granted, attributes: vec![] };
        let certificate = self.authority.issue(&request, now(), VALID_SECONDS);
        let certificate = certificate.map_err(|e| Failure::new(Code::BadValue, e))?;
        let anchor = self.authority.anchor().clone();
        let bootstrap_keys = BTreeMap::from([(self.group.clone(), self.authority.bootstrap_key(&self.group))]);
        identity.membership = Some(Membership { certificate, anchor, policy: None, bootstrap_keys });
        Ok(identity.save(Overwrite::Never)?)
    }
}

/// A UDP port that nobody uses at this moment.
pub(crate) fn free_port() -> Result<u16, Failure> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|s| s.local_addr());
    socket.map(|a| a.port()).map_err(|e| Failure::system("finding a free port", &e))
}

/// Where LCM multicasts.
pub(crate) const LCM_ADDRESS: Ipv4Addr = Ipv4Addr::new(239, 255, 76, 67);
/// A day: no scene lasts longer.
const VALID_SECONDS: i64 = 86_400;
