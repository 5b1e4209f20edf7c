//! The key schemes that a session can run: one constructor for each.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::num::NonZeroU32;
use std::sync::Arc;

#[cfg(feature = "brokers")]
use sealcast_broker::cluster_file::{ClusterFile, Suite};
use sealcast_crypto::aead;
#[cfg(feature = "brokers")]
use sealcast_crypto::group::{P256, Ristretto255};
use sealcast_crypto::identity::{Identity, Principal};
#[cfg(feature = "brokers")]
use sealcast_crypto::secret::Secret;
#[cfg(feature = "mls")]
use sealcast_crypto::signature::Algorithm;
use sealcast_keys::Keys;
use sealcast_keys::center::{self, Center};
use sealcast_keys::contributory::{Config, Contributory};
#[cfg(feature = "mls")]
use sealcast_keys::mls::certificates::CredentialKind;
#[cfg(feature = "mls")]
use sealcast_keys::mls::engine::{Handshake, mls_rs::MlsRs};
#[cfg(feature = "mls")]
use sealcast_keys::mls::{self, Mls};
use sealcast_keys::plain::{self, Plain, PlainGroup};
#[cfg(feature = "brokers")]
use sealcast_keys::threshold::{Client, Setup};
use sealcast_wire::{Address, Incarnation, Now};

use crate::code::Code;
use crate::error::{Error, Result};
use crate::io::{clock, rng};
use crate::remedy::Remedy;
use crate::url::pairs::Transport;
use crate::url::{Cipher, TransportAddress, Url};
#[cfg(feature = "mls")]
use crate::url::{Credentials, DataForm, HandshakeForm, Join, OriginMode};

/// No keys: everything is sent in clear.
pub(super) fn plain(me: &str) -> Result<Box<dyn Keys>> {
    Ok(Box::new(Plain::new(me, Incarnation(rng::bytes()?))))
}

/// No keys, in a group with views: who it is depends on what it says alone.
pub(super) fn plain_group(url: &Url, group: &str, me: &str, now: Now) -> Result<Box<dyn Keys>> {
    let identity = plain::identity(me, group, rng::bytes()?);
    let identity = identity.map_err(|e| Error::new(Code::BadValue, format!("{me} in the group {group}: {e}")))?;
    let config = configured(url, Config::new(group, Arc::new(identity)));
    Ok(Box::new(PlainGroup::new(config, rng::bytes()?, now)))
}

/// A member of a contributory group, which takes up where the records of an earlier run end.
pub(super) fn contributory(
    url: &Url,
    group: &str,
    identity: Arc<Identity>,
    statements: Vec<Vec<u8>>,
    records: &[(u64, Vec<u8>)],
    now: Now,
) -> Result<Box<dyn Keys>> {
    let config = Config { floor: clock::FLOOR, statements, ..configured(url, Config::new(group, identity)) };
    Ok(Box::new(Contributory::restore(config, rng::bytes()?, now, records)))
}

/// A member of a group whose keys come from a centre.
pub(super) fn center(url: &Url, group: &str, principal: Arc<Principal>, now: Now) -> Result<Box<dyn Keys>> {
    let mut centers = Vec::new();
    for place in &url.options.kdc {
        let found = place.to_socket_addrs().map_err(|e| unreachable(place, &e.to_string()))?;
        let ipv4 = matches!(url.address, TransportAddress::Multicast { group, .. } if group.is_ipv4());
        let fits: Vec<SocketAddr> = found.filter(|it| it.is_ipv4() == ipv4).collect();
        let family = if ipv4 {
            "it has no IPv4 address, and the group has"
        } else {
            "it has no IPv6 address, and the group has"
        };
        let first = fits.first().ok_or_else(|| unreachable(place, family))?;
        centers.push(Address::Socket(*first));
    }
    let principal_name = principal.registration.name.to_string();
    let usual = center::Config::new(group, principal, centers);
    let config = center::Config {
        suite: suite(url),
        rekey_after: url.options.rekey.unwrap_or(usual.rekey_after),
        detect: url.detect(),
        floor: clock::FLOOR,
        reliable: url.address.transport() == Transport::OrderedMulticast,
        ..usual
    };
    let name = Some(principal_name);
    let denied = |e: center::ConfigError| {
        Error::new(Code::Denied, e.to_string()).with_remedy(Remedy::RegisterPrincipal { name })
    };
    Ok(Box::new(Center::new(config, rng::bytes()?, now).map_err(denied)?))
}

/// A member of an MLS group, which takes up where the records of an earlier run end, if there is a place for them.
#[cfg(feature = "mls")]
pub(super) fn mls(
    url: &Url,
    group: &str,
    identity: Arc<Identity>,
    statements: Vec<Vec<u8>>,
    records: Option<&[(u64, Vec<u8>)]>,
    now: Now,
) -> Result<Box<dyn Keys>> {
    let key = identity.certificate().key.algorithm();
    let (number, algorithm) = if key == Algorithm::P256 { (2, "P-256") } else { (1, "Ed25519") };
    if url.options.ciphersuite.is_some_and(|it| it != number) {
        let what = format!(
            "{url}: {} has a key of {algorithm}, which is for ciphersuite={number}",
            identity.certificate().name
        );
        return Err(Error::new(Code::BadUrl, what)
            .with_hint("use an identity with the other kind of key, or leave ciphersuite= out"));
    }
    let credentials = match url.options.credentials {
        Credentials::X509 => CredentialKind::X509,
        Credentials::Basic => CredentialKind::Basic,
    };
    let handshake = match url.options.handshake {
        HandshakeForm::Private => Handshake::Private,
        HandshakeForm::Public => Handshake::Public,
    };
    let usual = mls::Config::new(group, identity);
    let config = mls::Config {
        suite: suite(url),
        // A name that nothing proves signs nothing.
        signs: url.options.origin != OriginMode::Mac && credentials == CredentialKind::X509,
        credentials,
        private_messages: url.options.data == DataForm::Mls,
        handshake,
        rekey_after: url.options.rekey.unwrap_or(usual.rekey_after),
        floor: clock::FLOOR,
        directory: url.address.transport() != Transport::Quorum,
        stays: records.is_some(),
        statements,
        erases: url.options.erases,
        founds: matches!(url.options.join, Join::Auto | Join::Create),
        joins: matches!(url.options.join, Join::Auto | Join::External),
        pace: if url.meets_at_brokers() { PACE.get() } else { usual.pace },
        ..usual
    };
    let made = Mls::<MlsRs>::restore(config, rng::bytes()?, now, records.unwrap_or_default());
    let refused = |why| match why {
        mls::ConfigError::Form => {
            let hint = "a group keeps the form that it was founded with: put the URL's data= back as it was";
            Error::new(Code::BadUrl, why.to_string()).with_hint(hint)
        }
        mls::ConfigError::Readers | mls::ConfigError::Name => Error::new(Code::Denied, why.to_string()),
    };
    Ok(Box::new(made.map_err(refused)?))
}

fn unreachable(place: &str, why: &str) -> Error {
    Error::new(Code::NoRoute, format!("the key distribution centre {place}: {why}"))
        .with_hint("kdc=HOST:PORT in the URL says where the centre listens")
}

/// A client of brokers who hold shares of a key, which it asks them for.
#[cfg(feature = "brokers")]
pub(super) fn threshold(cluster: &ClusterFile, name: &str, client: [u8; 32]) -> Result<Box<dyn Keys>> {
    let setup = Setup {
        name: name.to_owned(),
        client,
        cluster: cluster.cluster().0,
        brokers: cluster.broker_keys(),
        incarnation: Incarnation(rng::bytes()?),
        seed: Secret::from_bytes(rng::bytes()?),
    };
    Ok(match cluster.suite {
        Suite::Ristretto255 => Box::new(Client::<Ristretto255>::new(setup)),
        Suite::P256 => Box::new(Client::<P256>::new(setup)),
    })
}

/// What a URL says of keys.
fn configured(url: &Url, mut config: Config) -> Config {
    config.suite = suite(url);
    config.rekey_after = url.options.rekey.unwrap_or(config.rekey_after);
    config.detect = url.detect();
    config.reliable = url.address.transport() == Transport::OrderedMulticast;
    if url.meets_at_brokers() {
        // The scheme counts in its own time.
        config.pace = PACE;
        config.rekey_after /= PACE.get();
        config.detect = url.options.detect.map_or(config.detect, |detect| detect / PACE.get());
    }
    config
}

fn suite(url: &Url) -> aead::Suite {
    match url.options.cipher {
        Cipher::Aes256Gcm => aead::Suite::Aes256Gcm,
        Cipher::ChaCha20Poly1305 => aead::Suite::ChaCha20Poly1305,
    }
}

/// How much slower time goes for a group that meets at brokers.
const PACE: NonZeroU32 = NonZeroU32::new(4).expect("it is not 0");

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng as _;
    use sealcast_crypto::identity::{Act, Authority, MemberSecret, Request, Right, Rights};
    use sealcast_crypto::signature::Algorithm;
    use sealcast_wire::Utc;

    use super::*;

    #[test]
    fn what_a_url_says_of_keys_reaches_the_scheme() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let mut authority = Authority::create("ca", Algorithm::Ed25519, Utc(1_790_000_000), &mut rng).unwrap();
        let secret = MemberSecret::generate(Algorithm::Ed25519, &mut rng);
        let mut rights = Rights::none();
        rights.grant(Right::new("g", Act::Both, "#").unwrap());
        let request = Request { name: "robot".into(), keys: secret.public(), rights, attributes: vec![] };
        let certificate = authority.issue(&request, Utc(1_790_000_000), 86_400).unwrap();
        let identity = Arc::new(Identity::new(&certificate, &secret, authority.anchor().clone()).unwrap());
        let of = |options: &str| {
            let url = Url::parse(&format!("udpm://239.255.76.67:7667?keys=contributory{options}")).unwrap();
            let config = configured(&url, Config::new("g", identity.clone()));
            (config.suite, config.rekey_after, config.detect)
        };
        let usual = of("");
        assert_eq!(usual.2, sealcast_wire::limits::DETECT);
        assert_eq!(of("&order=total").2, sealcast_wire::limits::DETECT_ORDERED);
        assert_eq!(of("&detect=500ms"), (usual.0, usual.1, Duration::from_millis(500)));
        assert_eq!(of("&rekey=7s"), (usual.0, Duration::from_secs(7), usual.2));
    }
}
