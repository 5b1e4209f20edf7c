//! The key schemes that a session can run, as one type: the table of schemes, in code.

use std::num::NonZeroU32;
use std::sync::Arc;

use sealcast_broker::cluster_file::{ClusterFile, Suite, VouchedKey};
use sealcast_client::Standing;
use sealcast_crypto::aead;
use sealcast_crypto::group::{P256, Ristretto255};
use sealcast_crypto::identity::Identity;
use sealcast_keys::contributory::{Config, Contributory, Status};
use sealcast_keys::plain::Plain;
use sealcast_keys::threshold::Threshold;
use sealcast_keys::{CommandError, HandleError, Input, Keys, Output, Properties, Seal, SealError, Sealed};
use sealcast_wire::{CertHash, Dropped, Monotonic, Now};

use super::info::both;
use crate::brokers::threshold;
use crate::error::Result;
use crate::io::store::Store;
use crate::io::{clock, rng};
use crate::url::{Cipher, Url};

/// A key scheme's machine.
pub(super) enum Scheme {
    Plain(Plain),
    Contributory(Box<Contributory>),
    /// Until brokers know us, nothing can be said or heard.
    Waiting(Waiting),
    Ristretto255(Box<Threshold<Ristretto255>>),
    P256(Box<Threshold<P256>>),
}

/// No keys yet.
pub(super) struct Waiting;

impl Scheme {
    /// A member of a contributory group, which takes up where the records of an earlier run end.
    pub(super) fn contributory(
        url: &Url,
        group: &str,
        identity: Arc<Identity>,
        statements: Vec<Vec<u8>>,
        store: Option<&Store>,
        now: Now,
    ) -> Result<Scheme> {
        let mut config = configured(url, Config::new(group, identity));
        config.floor = clock::FLOOR;
        config.statements = statements;
        let records = store.map(Store::records).unwrap_or_default();
        let machine = Contributory::restore(config, rng::bytes()?, now, &records);
        Ok(Scheme::Contributory(Box::new(machine)))
    }

    /// The same for a group that meets at brokers.
    pub(super) fn paced(
        url: &Url,
        group: &str,
        identity: Arc<Identity>,
        statements: Vec<Vec<u8>>,
        records: &[(u64, Vec<u8>)],
        now: Now,
    ) -> Result<Scheme> {
        let mut config = configured(url, Config::new(group, identity));
        config.floor = clock::FLOOR;
        config.statements = statements;
        config.pace = PACE;
        config.rekey_after /= PACE.get();
        if let Some(detect) = url.options.detect {
            config.detect = detect / PACE.get();
        }
        let machine = Contributory::restore(config, rng::bytes()?, now, records);
        Ok(Scheme::Contributory(Box::new(machine)))
    }

    /// A client of brokers who hold shares of this key.
    pub(super) fn threshold(
        cluster: &ClusterFile,
        key: &VouchedKey,
        name: &str,
        client: [u8; 32],
        standing: &Standing,
    ) -> Result<Scheme> {
        Ok(match cluster.suite {
            Suite::Ristretto255 => Scheme::Ristretto255(threshold(cluster, key, name, client, standing)?),
            Suite::P256 => Scheme::P256(threshold(cluster, key, name, client, standing)?),
        })
    }

    /// What a contributory scheme knows of its group.
    pub(super) fn status(&self, now: Now) -> Option<Status> {
        match self {
            Scheme::Contributory(machine) => Some(machine.status(now)),
            Scheme::Plain(_) | Scheme::Waiting(_) | Scheme::Ristretto255(_) | Scheme::P256(_) => None,
        }
    }

    /// The name in a certificate that was seen in the group; with the certificate's hash where others have that name, too.
    pub(super) fn named(&self, cert: &CertHash) -> Option<String> {
        let (name, is_only) = match self {
            Scheme::Contributory(machine) => machine.named(cert)?,
            Scheme::Plain(_) | Scheme::Waiting(_) | Scheme::Ristretto255(_) | Scheme::P256(_) => return None,
        };
        Some(if is_only { name.to_owned() } else { both(name, cert) })
    }
}

impl Keys for Waiting {
    fn properties(&self) -> Properties {
        Properties::ANY
    }

    fn handle(&mut self, _: Now, input: Input<'_>) -> std::result::Result<(), HandleError> {
        match input {
            Input::Message { .. } => Err(Dropped::NoKey.into()),
            Input::Command(_) => Err(CommandError::NotReady.into()),
            Input::Delivered(_)
            | Input::Outcome(..)
            | Input::InForce(_)
            | Input::Fetched(..)
            | Input::Suspected(_)
            | Input::Flushed(_) => Ok(()),
        }
    }

    fn seal(&mut self, _: &Seal<'_>) -> std::result::Result<Sealed, SealError> {
        Err(SealError::NotReady)
    }

    /// What comes before its keys waits for them.
    fn has_room(&self, _: usize) -> bool {
        false
    }

    fn timeout(&self) -> Option<Monotonic> {
        None
    }

    fn handle_timeout(&mut self, _: Now) {}

    fn poll(&mut self) -> Option<Output> {
        None
    }
}

/// How much slower time goes for a group that meets at brokers.
const PACE: NonZeroU32 = NonZeroU32::new(4).expect("it is not 0");

macro_rules! each {
    ($self:ident, $machine:ident => $call:expr) => {
        match $self {
            Scheme::Plain($machine) => $call,
            Scheme::Contributory($machine) => $call,
            Scheme::Waiting($machine) => $call,
            Scheme::Ristretto255($machine) => $call,
            Scheme::P256($machine) => $call,
        }
    };
}

impl Keys for Scheme {
    fn properties(&self) -> Properties {
        each!(self, machine => machine.properties())
    }

    fn handle(&mut self, now: Now, input: Input<'_>) -> std::result::Result<(), HandleError> {
        each!(self, machine => machine.handle(now, input))
    }

    fn seal(&mut self, message: &Seal<'_>) -> std::result::Result<Sealed, SealError> {
        each!(self, machine => machine.seal(message))
    }

    fn has_room(&self, bytes: usize) -> bool {
        each!(self, machine => machine.has_room(bytes))
    }

    fn timeout(&self) -> Option<Monotonic> {
        each!(self, machine => machine.timeout())
    }

    fn handle_timeout(&mut self, now: Now) {
        each!(self, machine => machine.handle_timeout(now));
    }

    fn poll(&mut self) -> Option<Output> {
        each!(self, machine => machine.poll())
    }
}

/// What a URL says of keys.
fn configured(url: &Url, mut config: Config) -> Config {
    config.suite = match url.options.cipher {
        Cipher::Aes256Gcm => aead::Suite::Aes256Gcm,
        Cipher::ChaCha20Poly1305 => aead::Suite::ChaCha20Poly1305,
    };
    config.rekey_after = url.options.rekey.unwrap_or(config.rekey_after);
    config.detect = url.options.detect.unwrap_or(config.detect);
    config
}

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
        assert_eq!(of("&detect=500ms"), (usual.0, usual.1, Duration::from_millis(500)));
        assert_eq!(of("&rekey=7s"), (usual.0, Duration::from_secs(7), usual.2));
    }
}
