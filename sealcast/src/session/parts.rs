//! What a URL and an identity make together: the constructors' choice of keys and transport.

use std::path::PathBuf;
use std::sync::Arc;

use sealcast_client::Cargo;
use sealcast_crypto::identity::{CertificateError, Identity as Held};
use sealcast_keys::Keys;
use sealcast_wire::CertHash;

use super::open::{Identity, Opening};
use super::schemes;
use super::transports::Reach;
use crate::brokers;
use crate::code::Code;
use crate::config::{Home, KeptIdentity, Voucher};
use crate::control::socket_path;
use crate::error::{Error, Result};
use crate::io::clock::{self, Clock};
use crate::io::store::Store;
use crate::url::{Scheme, Url, Way};

/// A key scheme, and what goes with it.
pub(super) struct Parts {
    pub(super) keys: Box<dyn Keys>,
    /// Our own name.
    pub(super) me: String,
    pub(super) group: String,
    pub(super) store: Option<Store>,
    pub(super) identity: Option<Arc<Held>>,
    pub(super) control: Option<PathBuf>,
    /// What the transport needs to reach brokers.
    pub(super) reach: Option<Reach>,
}

/// An identity, loaded.
struct Loaded {
    held: Arc<Held>,
    /// Signed objects that were kept with it.
    statements: Vec<Vec<u8>>,
    /// What others say of it to brokers.
    vouchers: Vec<Voucher>,
    /// Whether it is this user's, on disk.
    kept: bool,
}

/// Somebody who may be in a contributory group.
struct Member {
    held: Arc<Held>,
    statements: Vec<Vec<u8>>,
    vouchers: Vec<Voucher>,
    group: String,
    store: Option<Store>,
    control: Option<PathBuf>,
    me: String,
}

impl Parts {
    /// Those of a session that is about to be opened.
    pub(super) fn of(opening: &Opening, url: &Url, home: &Home, clock: Clock) -> Result<Parts> {
        url.check_pair()?;
        match url.keys {
            _ if matches!(url.way, Way::Quorum(_)) => opening.through_brokers(url, home, clock),
            Scheme::Plain => opening.plain(url),
            Scheme::Contributory => opening.contributory(url, home, clock),
            // It runs over brokers alone.
            Scheme::Threshold => Err(Error::closed()),
        }
    }
}

impl Opening {
    fn plain(&self, url: &Url) -> Result<Parts> {
        let me = match &self.identity {
            Some(Identity::Named(name)) => name.clone(),
            Some(Identity::Held(held)) => held.certificate().name.to_string(),
            Some(Identity::File(_)) | None => "anonymous".to_owned(),
        };
        let keys = schemes::plain(&me)?;
        let group = url.options.group.clone().unwrap_or_default();
        Ok(Parts { keys, me, group, store: None, identity: None, control: self.control.clone(), reach: None })
    }

    fn load(&self, url: &Url, home: &Home) -> Result<Loaded> {
        let kept = match &self.identity {
            None => {
                let (what, hint) = match url.way {
                    Way::Quorum(_) => (
                        "brokers let in whom an issuer of theirs vouches for: an identity is needed",
                        "sealcast ca issue NAME --ca ISSUER; the cluster file names the issuers",
                    ),
                    Way::Multicast(_) | Way::Memory { .. } => (
                        "a sealed group needs an identity",
                        "sealcast init NAME makes one; keys=plain in the URL sends everything in clear, readable by all",
                    ),
                };
                return Err(Error::new(Code::NoIdentity, format!("{url}: {what}")).with_hint(hint));
            }
            Some(Identity::Held(held)) => {
                let held = held.clone();
                return Ok(Loaded { held, statements: Vec::new(), vouchers: Vec::new(), kept: false });
            }
            Some(Identity::Named(name)) => KeptIdentity::load(home, name).map_err(|e| {
                let error = Error::from(e);
                if error.code() == Code::Missing {
                    Error::new(Code::NoIdentity, format!("there is no identity «{name}»")).with_hint("sealcast id ls")
                } else {
                    error
                }
            })?,
            Some(Identity::File(path)) => KeptIdentity::read(path)?,
        };
        let held = kept.identity()?.ok_or_else(|| {
            let name = kept.name();
            Error::new(Code::NoIdentity, format!("the identity «{name}» has no certificate yet")).with_hint(format!(
                "the holder of the authority types: sealcast invite --for {}; then here: sealcast join FILE",
                kept.secret.public()
            ))
        })?;
        let statements = kept.membership.and_then(|m| m.policy).into_iter().collect();
        Ok(Loaded { held: Arc::new(held), statements, vouchers: kept.vouchers, kept: true })
    }

    fn contributory(&self, url: &Url, home: &Home, clock: Clock) -> Result<Parts> {
        let Member { held, statements, group, store, control, me, .. } = self.member(url, home, clock)?;
        let records = store.as_ref().map(Store::records).unwrap_or_default();
        let keys = schemes::contributory(url, &group, held.clone(), statements, &records, clock.now())?;
        Ok(Parts { keys, me, group, store, identity: Some(held), control, reach: None })
    }

    /// A client of brokers: an issuer that they know must vouch for it, whoever holds the keys.
    fn through_brokers(&self, url: &Url, home: &Home, clock: Clock) -> Result<Parts> {
        let Way::Quorum(path) = &url.way else { return Err(Error::closed()) };
        let cluster = Arc::new(brokers::load_named(path, &url.options)?);
        let client_key = |kept: bool, held: &Held| match kept {
            true => {
                brokers::ClientKey::of(home, &cluster.cluster(), &held.certificate().hash, brokers::Purpose::Session)
            }
            false => brokers::ClientKey::fresh(),
        };
        let (mut parts, held, vouchers, key, cargo) = if url.keys == Scheme::Contributory {
            let Member { held, statements, vouchers, group, store, control, me } = self.member(url, home, clock)?;
            let key = client_key(store.is_some(), &held)?;
            let records = store.as_ref().map(Store::records).unwrap_or_default();
            let keys = schemes::contributory(url, &group, held.clone(), statements, &records, clock.now())?;
            let cargo = Cargo::Group(group.clone());
            let parts = Parts { keys, me, group, store, identity: Some(held.clone()), control, reach: None };
            (parts, held, vouchers, key, cargo)
        } else {
            let Loaded { held, vouchers, kept, .. } = self.load(url, home)?;
            let key = client_key(kept, &held)?;
            let me = held.certificate().name.to_string();
            let sealed = url.is_sealed();
            let keys = if sealed { schemes::threshold(&cluster, &me, key.client().0)? } else { schemes::plain(&me)? };
            let (group, control) = (url.options.group.clone().unwrap_or_default(), self.control.clone());
            let parts = Parts { keys, me, group, store: None, identity: None, control, reach: None };
            (parts, held, vouchers, key, Cargo::Messages { sealed })
        };
        let at = clock.now().utc.unwrap_or(clock::FLOOR);
        let registrations = brokers::registrations(&cluster, &held, &vouchers, &key.client(), at);
        if registrations.is_empty() {
            let (who, of) = (&held.certificate().name, held.anchor().certificate().name());
            let what = format!("{who} has its certificate of {of}, which is no issuer of these brokers");
            let issuers: Vec<&str> = cluster.genesis.issuers.keys().map(String::as_str).collect();
            let hint = format!("their issuers are {}; --id NAME", issuers.join(", "));
            return Err(Error::new(Code::Denied, what).with_hint(hint));
        }
        let (frame_operations, accuse, resumes) = (brokers::FRAME_OPERATIONS, true, false);
        parts.reach = Some(Reach { cluster, key, registrations, cargo, frame_operations, accuse, resumes });
        Ok(parts)
    }

    /// A member of a contributory group.
    fn member(&self, url: &Url, home: &Home, clock: Clock) -> Result<Member> {
        let Loaded { held, statements, vouchers, kept } = self.load(url, home)?;
        let certificate = held.certificate();
        held.anchor().check(certificate, clock.now().utc, clock::FLOOR).map_err(|e| over(&certificate.name, e))?;
        let group = match &url.options.group {
            Some(group) => group.clone(),
            None => {
                let groups = certificate.rights.groups();
                let mut names = groups.iter();
                match (names.next(), names.next()) {
                    (Some(only), None) => (*only).to_owned(),
                    _ => {
                        return Err(Error::new(
                            Code::BadUrl,
                            format!("{url}: which group? {} has rights in {}", certificate.name, several(&groups)),
                        )
                        .with_hint("add &group=NAME to the URL"));
                    }
                }
            }
        };
        let store = if kept { Some(Store::open(&records_path(home, &certificate.hash, &group))?) } else { None };
        let control = match &self.control {
            Some(path) => Some(path.clone()),
            None => kept.then(|| socket_path(home, &certificate.hash, &group)),
        };
        let me = certificate.name.to_string();
        Ok(Member { held, statements, vouchers, group, store, control, me })
    }
}

fn over(name: &str, error: CertificateError) -> Error {
    let code = match error {
        CertificateError::Revoked => Code::Excluded,
        CertificateError::Expired | CertificateError::NotYetValid => Code::CertificateExpired,
        _ => Code::Authority,
    };
    Error::new(code, format!("the certificate of {name}: {error}")).with_hint("sealcast id show")
}

fn several(groups: &std::collections::BTreeSet<&str>) -> String {
    if groups.is_empty() { "no group".to_owned() } else { groups.iter().copied().collect::<Vec<_>>().join(", ") }
}

fn records_path(home: &Home, certificate: &CertHash, group: &str) -> PathBuf {
    let socket = socket_path(home, certificate, group);
    home.state().join(socket.file_stem().unwrap_or_default()).with_extension("records")
}
