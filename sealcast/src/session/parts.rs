//! What a URL and an identity make together: the constructors' choice of keys and transport.

#[cfg(feature = "mls")]
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "mls")]
use sealcast_crypto::hash::sha256;
use sealcast_crypto::identity::{CertificateError, Identity as LoadedIdentity, Rights};
use sealcast_keys::Keys;
#[cfg(feature = "mls")]
use sealcast_keys::mls;
use sealcast_wire::CertHash;

use super::open::{Identity, Opening};
use super::schemes;
use super::transports::Reach;
#[cfg(feature = "brokers")]
pub(super) use crate::brokers::Purpose;
use crate::code::Code;
use crate::config::{Home, KeptIdentity, KeptPrincipal};
use crate::control::socket_path;
use crate::error::{Error, Result};
use crate::io::clock::{self, Clock};
use crate::io::store::Store;
use crate::remedy::Remedy;
#[cfg(feature = "mls")]
use crate::url::Join;
use crate::url::{Scheme, TransportAddress, Url};

/// A key scheme, and what goes with it.
pub(super) struct Parts {
    pub(super) keys: Box<dyn Keys>,
    /// Our own name.
    pub(super) me: String,
    pub(super) group: String,
    pub(super) store: Option<Store>,
    pub(super) identity: Option<Arc<LoadedIdentity>>,
    /// What we may do, where somebody says so.
    pub(super) rights: Option<Rights>,
    pub(super) control: Option<PathBuf>,
    /// What the transport needs to reach brokers.
    pub(super) reach: Option<Reach>,
}

/// An identity, loaded.
pub(super) struct Loaded {
    /// With its certificate, if it has one.
    pub(super) held: Option<Arc<LoadedIdentity>>,
    /// As this user keeps it on disk, if that is where it is from.
    pub(super) kept: Option<Arc<KeptIdentity>>,
}

impl Parts {
    /// Those of a session that is about to be opened.
    pub(super) fn of(opening: &Opening, url: &Url, home: &Home, clock: Clock) -> Result<Parts> {
        url.check_pair()?;
        match url.keys {
            #[cfg(feature = "brokers")]
            _ if matches!(url.address, TransportAddress::Quorum(_)) => opening.through_brokers(url, home, clock),
            Scheme::Plain => opening.plain(url, clock),
            Scheme::Contributory => opening.contributory(&opening.load(url, home)?, url, home, clock),
            Scheme::Center => opening.center(url, home, clock),
            #[cfg(feature = "mls")]
            Scheme::Mls => {
                // A log outlives this process, and is another one at another directory.
                let log = url.options.relay.as_ref().map(|it| hex::encode(&sha256(it.as_bytes())[..8]));
                opening.mls(&opening.load(url, home)?, url, log.as_deref().map(|log| (home, log)), clock)
            }
            // A URL of it does not parse.
            #[cfg(not(feature = "mls"))]
            Scheme::Mls => Err(Error::closed()),
            // It runs over brokers alone.
            Scheme::Threshold => Err(Error::closed()),
        }
    }
}

impl Loaded {
    /// With its certificate.
    fn held(&self) -> Result<Arc<LoadedIdentity>> {
        self.held.clone().ok_or_else(|| {
            let (name, keys) = (self.name(), self.kept.as_ref().map(|it| it.secret.public().to_string()));
            let error = Error::new(Code::NoIdentity, format!("the identity '{name}' has no certificate yet"));
            error.with_remedy(Remedy::AskForInvite { keys })
        })
    }

    pub(super) fn name(&self) -> String {
        let own = self.held.as_ref().map(|it| it.certificate().name.to_string());
        own.or_else(|| Some(self.kept.as_ref()?.name())).unwrap_or_default()
    }
}

impl Opening {
    fn plain(&self, url: &Url, clock: Clock) -> Result<Parts> {
        let me = match &self.identity {
            Some(Identity::Named(name)) => name.clone(),
            Some(Identity::Loaded(held)) => held.certificate().name.to_string(),
            Some(Identity::Kept(kept)) => kept.name(),
            Some(Identity::Principal(principal)) => principal.registration.name.to_string(),
            Some(Identity::File(_)) | None => "anonymous".to_owned(),
        };
        let group = plain_group(url);
        let keys = match url.has_views() {
            true => schemes::plain_group(url, &group, &me, clock.now())?,
            false => schemes::plain(&me)?,
        };
        let control = self.control.clone();
        Ok(Parts { keys, me, group, store: None, identity: None, rights: None, control, reach: None })
    }

    pub(super) fn load(&self, url: &Url, home: &Home) -> Result<Loaded> {
        let kept = match &self.identity {
            None => {
                let (what, remedy) = match url.address {
                    TransportAddress::Quorum(_) => (
                        "brokers let in whom an issuer of theirs vouches for: an identity is needed",
                        Remedy::AskIssuer,
                    ),
                    TransportAddress::Multicast { .. }
                    | TransportAddress::Memory { .. }
                    | TransportAddress::Relay(_) => ("a sealed group needs an identity", Remedy::MakeIdentity),
                };
                return Err(Error::new(Code::NoIdentity, format!("{url}: {what}")).with_remedy(remedy));
            }
            Some(Identity::Principal(_)) => {
                let what = format!("{url}: a key distribution centre's registration is for keys=center");
                return Err(Error::new(Code::NoIdentity, what).with_remedy(Remedy::MakeIdentity));
            }
            Some(Identity::Loaded(held)) => return Ok(Loaded { held: Some(held.clone()), kept: None }),
            Some(Identity::Kept(kept)) => kept.clone(),
            Some(Identity::Named(name)) => Arc::new(KeptIdentity::load(home, name).map_err(|e| {
                let error = Error::from(e);
                if error.code() == Code::Missing {
                    Error::new(Code::NoIdentity, format!("there is no identity '{name}'"))
                        .with_remedy(Remedy::ListIdentities)
                } else {
                    error
                }
            })?),
            Some(Identity::File(path)) => Arc::new(KeptIdentity::read(path)?),
        };
        Ok(Loaded { held: kept.identity()?.map(Arc::new), kept: Some(kept) })
    }

    /// A member of a contributory group.
    pub(super) fn contributory(&self, who: &Loaded, url: &Url, home: &Home, clock: Clock) -> Result<Parts> {
        let held = who.held()?;
        let certificate = held.certificate();
        held.anchor().check(certificate, clock.now().utc, clock::FLOOR).map_err(|e| over(&certificate.name, e))?;
        let group = which_group(url, &certificate.name, &certificate.rights)?;
        let kept = who.kept.as_ref();
        let store = kept.map(|_| Store::open(&records_path(home, &certificate.hash, &group))).transpose()?;
        let control = self.control.clone().or_else(|| kept.map(|_| socket_path(home, &certificate.hash, &group)));
        let statements = kept.and_then(|it| it.membership.as_ref()?.policy.clone()).into_iter().collect();
        let records = store.as_ref().map(Store::records).transpose()?.unwrap_or_default();
        let keys = schemes::contributory(url, &group, held.clone(), statements, &records, clock.now())?;
        let me = certificate.name.to_string();
        let rights = Some(certificate.rights.clone());
        Ok(Parts { keys, me, group, store, identity: Some(held), rights, control, reach: None })
    }

    /// A member of an MLS group. With the name of an order that outlives this process it goes on where its last run ended.
    #[cfg(feature = "mls")]
    pub(super) fn mls(&self, who: &Loaded, url: &Url, order: Option<(&Home, &str)>, clock: Clock) -> Result<Parts> {
        let held = who.held()?;
        let certificate = held.certificate();
        held.anchor().check(certificate, clock.now().utc, clock::FLOOR).map_err(|e| over(&certificate.name, e))?;
        let group = which_group(url, &certificate.name, &certificate.rights)?;
        let kept = order.filter(|_| who.kept.is_some());
        let path = kept
            .map(|(home, order)| records_path(home, &certificate.hash, &group).with_extension(format!("{order}.mls")));
        let store = path.as_deref().map(Store::open).transpose()?;
        let records = store.as_ref().map(Store::records_of_keys).transpose()?;
        if url.options.join == Join::Create && records.as_ref().is_some_and(|it| mls::position(it).is_some()) {
            let what = format!("{} is a member of {group} already", certificate.name);
            return Err(Error::new(Code::GroupExists, what).with_remedy(Remedy::ShowGroup));
        }
        let elsewhere = path.as_deref().map(statements_elsewhere).transpose()?.unwrap_or_default();
        let keys = schemes::mls(url, &group, held.clone(), elsewhere, records.as_deref(), clock.now())?;
        let (me, rights) = (certificate.name.to_string(), Some(certificate.rights.clone()));
        let control = self.control.clone();
        let control = control.or_else(|| kept.map(|(home, _)| socket_path(home, &certificate.hash, &group)));
        Ok(Parts { keys, me, group, store, identity: Some(held), rights, control, reach: None })
    }

    /// A member of a group whose keys come from a centre.
    fn center(&self, url: &Url, home: &Home, clock: Clock) -> Result<Parts> {
        let passphrase = self.passphrase.as_ref().map(|it| it.as_str());
        let on_disk = |kept: KeptPrincipal| (Arc::new(kept.principal), true);
        let (principal, on_disk) = match &self.identity {
            Some(Identity::Principal(principal)) => (principal.clone(), false),
            Some(Identity::Named(name)) => KeptPrincipal::load(home, name, passphrase).map(on_disk).map_err(|e| {
                let error = Error::from(e);
                if error.code() == Code::Missing { not_registered(url, Some(name)) } else { error }
            })?,
            Some(Identity::File(path)) => on_disk(KeptPrincipal::read(path, passphrase)?),
            Some(Identity::Kept(_) | Identity::Loaded(_)) | None => return Err(not_registered(url, None)),
        };
        let registration = &principal.registration;
        registration.check(clock.now().utc, clock::FLOOR).map_err(|e| {
            let remedy = Remedy::RegisterPrincipal { name: Some(registration.name.to_string()) };
            Error::new(Code::CertificateExpired, format!("{}: {e}", registration.name)).with_remedy(remedy)
        })?;
        let group = which_group(url, &registration.name, &registration.rights)?;
        let me = registration.name.to_string();
        let control = self.control.clone();
        let control = control.or_else(|| on_disk.then(|| socket_path(home, &registration.hash(), &group)));
        let rights = Some(registration.rights.clone());
        let keys = schemes::center(url, &group, principal, clock.now())?;
        Ok(Parts { keys, me, group, store: None, identity: None, rights, control, reach: None })
    }
}

/// The group of a URL, and as whom an identity of this user is in it; as nobody where nothing is sealed.
///
/// # Errors
/// There is no such identity, it has no certificate, or it is not known which group is meant.
#[cfg(feature = "relay")]
pub(crate) fn group_and_identity(
    url: &Url,
    home: &Home,
    name: Option<&str>,
) -> Result<(String, Option<Arc<LoadedIdentity>>)> {
    if url.keys == Scheme::Plain {
        return Ok((plain_group(url), None));
    }
    let mut opening = super::open(&url.to_string());
    opening.identity = name.map(Identity::from);
    let held = opening.load(url, home)?.held()?;
    let certificate = held.certificate();
    Ok((which_group(url, &certificate.name, &certificate.rights)?, Some(held)))
}

fn plain_group(url: &Url) -> String {
    let named = url.options.group.clone();
    named.unwrap_or_else(|| if url.has_views() { PLAIN_GROUP.to_owned() } else { String::new() })
}

/// The group of a URL without `group=`, where nobody's rights name one.
const PLAIN_GROUP: &str = "plain";

fn not_registered(url: &Url, name: Option<&str>) -> Error {
    let what = match name {
        Some(name) => format!("{url}: no key distribution centre registered '{name}' here"),
        None => format!("{url}: a group whose keys come from a centre needs a registration"),
    };
    let name = name.map(str::to_owned);
    Error::new(Code::NoIdentity, what).with_remedy(Remedy::RegisterPrincipal { name })
}

/// The group of the URL, in which somebody must have rights, or the only one in which somebody has any.
fn which_group(url: &Url, name: &str, rights: &Rights) -> Result<String> {
    let groups = rights.groups();
    if let Some(group) = &url.options.group {
        if !groups.contains(group.as_str()) {
            let what = format!("{url}: {name} has no rights in {group}, but in {}", several(&groups));
            return Err(Error::new(Code::Denied, what).with_remedy(Remedy::AskForInvite { keys: None }));
        }
        return Ok(group.clone());
    }
    let mut names = groups.iter();
    match (names.next(), names.next()) {
        (Some(only), None) => Ok((*only).to_owned()),
        _ => {
            let what = format!("{url}: which group? {name} has rights in {}", several(&groups));
            Err(Error::new(Code::BadUrl, what).with_hint("add &group=NAME to the URL"))
        }
    }
}

fn over(name: &str, error: CertificateError) -> Error {
    let code = match error {
        CertificateError::Revoked => Code::Excluded,
        CertificateError::Expired | CertificateError::NotYetValid => Code::CertificateExpired,
        _ => Code::Authority,
    };
    Error::new(code, format!("the certificate of {name}: {error}")).with_remedy(Remedy::ShowIdentity)
}

fn several(groups: &std::collections::BTreeSet<&str>) -> String {
    if groups.is_empty() { "no group".to_owned() } else { groups.iter().copied().collect::<Vec<_>>().join(", ") }
}

/// Who is evicted, as runs of this member in groups of the same name at other relays and brokers knew it.
#[cfg(feature = "mls")]
fn statements_elsewhere(own: &Path) -> Result<Vec<Vec<u8>>> {
    let (Some(folder), Some(name)) = (own.parent(), own.file_name().and_then(|it| it.to_str())) else {
        return Ok(Vec::new());
    };
    let member = name.split_once('.').map_or(name, |(member, _)| member);
    let mut statements = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| Error::system(folder.display(), &e))? {
        let path = entry.map_err(|e| Error::system(folder.display(), &e))?.path();
        let other = path.file_name().and_then(|it| it.to_str()).and_then(|it| it.strip_prefix(member));
        if path != own && other.is_some_and(|it| it.starts_with('.') && it.ends_with(".mls")) {
            statements.extend(sealcast_keys::mls::statements(&Store::peek_records_of_keys(&path)?));
        }
    }
    Ok(statements)
}

fn records_path(home: &Home, certificate: &CertHash, group: &str) -> PathBuf {
    let socket = socket_path(home, certificate, group);
    home.state().join(socket.file_stem().unwrap_or_default()).with_extension("records")
}
