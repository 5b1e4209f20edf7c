//! What a client of brokers knows from the cluster file, or from the brokers: their keys, and the one to which it seals
//! (E11).

use std::collections::BTreeSet;
use std::sync::Arc;

use sealcast_crypto::ed25519;
use sealcast_crypto::group::PrimeGroup;
use sealcast_crypto::hash::Transcript;
use sealcast_crypto::signature::Signature;
use sealcast_crypto::tdh2::{KeyError, PublicKey, vouching};
use sealcast_wire::EpochId;

/// What a client needs to know before it starts; all of it from a cluster file that it has verified.
#[derive(Clone)]
pub struct Config<G: PrimeGroup> {
    /// Our own Ed25519 key: whom the labels of our publications name.
    pub(super) client: [u8; 32],
    /// Names the cluster in everything that is signed for it.
    pub(super) cluster: [u8; 32],
    /// The key to which we seal. Holder i is broker i − 1.
    pub(super) key: Arc<PublicKey<G>>,
    /// By number: with which they sign.
    pub(super) brokers: Vec<ed25519::Key>,
    /// [`pin`] of the key.
    pin: [u8; 32],
}

/// The versions that publications must name (E6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequiredVersions {
    /// The key's epoch.
    pub epoch: u32,
    /// The number of the global policy.
    pub policy: u64,
}

impl<G: PrimeGroup> Config<G> {
    /// Of a cluster file: its id, its brokers' keys by number, the encoded threshold key, and the [`pin`] of that.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(
        client: [u8; 32],
        cluster: [u8; 32],
        brokers: &[[u8; 32]],
        key: &[u8],
        pinned: &[u8; 32],
    ) -> Result<Config<G>, ConfigError> {
        if pin(&cluster, key) != *pinned {
            return Err(ConfigError::Pin);
        }
        Config::build(client, cluster, brokers, key)
    }

    /// Of a cluster's id, its brokers' keys by number, and an encoded threshold key for which 2f + 1 of them vouch: those
    /// who made the key, when no file names it (E11). Signatures that do not hold count for nothing.
    ///
    /// # Errors
    /// [`ConfigError`]; [`ConfigError::Vouched`] if fewer signed it for this epoch.
    pub fn vouched<'a>(
        client: [u8; 32],
        cluster: [u8; 32],
        brokers: &[[u8; 32]],
        epoch: u32,
        key: &[u8],
        signatures: impl IntoIterator<Item = (u16, &'a Signature)>,
    ) -> Result<Config<G>, ConfigError> {
        let config = Config::build(client, cluster, brokers, key)?;
        if config.key.parameters().epoch != u64::from(epoch) {
            return Err(ConfigError::Epoch(epoch));
        }
        let statement = vouching(&cluster, epoch, key);
        let holds = |(broker, signature): &(u16, &Signature)| {
            config.brokers.get(usize::from(*broker)).is_some_and(|key| key.verify(&statement, signature))
        };
        // A broker counts once, however often it signed.
        let signed = signatures.into_iter().filter(holds).map(|(broker, _)| broker).collect::<BTreeSet<_>>().len();
        let needed = 2 * config.faulty() + 1;
        if signed < needed { Err(ConfigError::Vouched { signed, needed }) } else { Ok(config) }
    }

    fn build(client: [u8; 32], cluster: [u8; 32], brokers: &[[u8; 32]], key: &[u8]) -> Result<Config<G>, ConfigError> {
        let pin = pin(&cluster, key);
        let key = PublicKey::decode(key)?;
        let holders = key.parameters().holders;
        if usize::from(holders) != brokers.len() {
            return Err(ConfigError::Holders { holders, brokers: brokers.len() });
        }
        let numbered = (0_u16..).zip(brokers);
        let signing = |(number, key)| ed25519::Key::new(key).map_err(|_| ConfigError::Broker(number));
        let brokers = numbered.map(signing).collect::<Result<_, _>>()?;
        Ok(Config { client, cluster, key: Arc::new(key), brokers, pin })
    }

    /// Whether this is the key that we have. Another one, were it another sharing of the same key, needs a handover
    /// that 2f + 1 brokers signed, and none is known yet.
    ///
    /// # Errors
    /// [`ConfigError::Pin`] if it is another.
    pub fn check_key(&self, key: &[u8]) -> Result<(), ConfigError> {
        if pin(&self.cluster, key) == self.pin { Ok(()) } else { Err(ConfigError::Pin) }
    }

    /// f: so many brokers may lie.
    pub(super) fn faulty(&self) -> usize {
        self.brokers.len().saturating_sub(1) / 3
    }

    /// t.
    pub(super) fn threshold(&self) -> usize {
        usize::from(self.key.parameters().threshold)
    }
}

/// What a cluster file says of the threshold key: `T("sealcast/v1/threshold key"; cluster, encoded key)`.
pub fn pin(cluster: &[u8; 32], key: &[u8]) -> [u8; 32] {
    Transcript::new("sealcast/v1/threshold key").add(cluster).add(key).finish()
}

impl RequiredVersions {
    /// The later of each.
    pub(super) fn max(self, other: RequiredVersions) -> RequiredVersions {
        RequiredVersions { epoch: self.epoch.max(other.epoch), policy: self.policy.max(other.policy) }
    }
}

impl From<RequiredVersions> for EpochId {
    fn from(it: RequiredVersions) -> EpochId {
        EpochId { counter: it.epoch, hash: it.policy }
    }
}

impl From<EpochId> for RequiredVersions {
    fn from(it: EpochId) -> RequiredVersions {
        RequiredVersions { epoch: it.counter, policy: it.hash }
    }
}

/// A cluster file that does not fit together, or another key than its.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// E11.
    #[error(
        "the brokers' threshold key is not the one that the cluster file names, and no handover by 2f+1 brokers is"
    )]
    Pin,
    /// Too few brokers vouch for the key.
    #[error("{signed} brokers vouch for the threshold key, {needed} must")]
    Vouched {
        /// How many signed it.
        signed: usize,
        /// 2f + 1.
        needed: usize,
    },
    /// The key is of another epoch than what was signed says.
    #[error("the threshold key is not of epoch {0}")]
    Epoch(u32),
    /// The key itself.
    #[error("the brokers' threshold key: {0}")]
    Key(#[from] KeyError),
    /// The key is shared among others.
    #[error("the threshold key has {holders} holders, the cluster {brokers} brokers")]
    Holders {
        /// n of the key.
        holders: u16,
        /// How many the file names.
        brokers: usize,
    },
    /// A broker's key for signatures is none.
    #[error("broker {0} has no valid Ed25519 key")]
    Broker(u16),
}
