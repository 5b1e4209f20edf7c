//! Who holds the keys of what goes through brokers: nobody, or the brokers by shares of one key of either suite.

use std::time::Duration;

use sealcast_broker::cluster_file::{ClusterFile, Suite, VouchedKey};
use sealcast_client::Standing;
use sealcast_crypto::group::{Group, P256, Ristretto255};
use sealcast_crypto::secret::Secret;
use sealcast_keys::threshold::{Config, Standing as Versions, Threshold, pin};
use sealcast_keys::{Delivered, Input, Keys, Output, Seal, SealError, Sealed, Shortage};
use sealcast_wire::{Envelope, FetchId, Fetched, Incarnation, Monotonic, Now};

use crate::code::Code;
use crate::error::{Error, Result};
use crate::io::rng;

/// The keys of a client.
pub(super) enum Sealing {
    /// `keys=plain`.
    Plain,
    /// `keys=threshold`, and no key is known yet.
    Waiting,
    Ristretto255(Box<Threshold<Ristretto255>>),
    P256(Box<Threshold<P256>>),
}

macro_rules! each {
    ($self:ident, $machine:ident => $call:expr, else $otherwise:expr) => {
        match $self {
            Sealing::Plain | Sealing::Waiting => $otherwise,
            Sealing::Ristretto255($machine) => $call,
            Sealing::P256($machine) => $call,
        }
    };
}

impl Sealing {
    /// The machine of `keys=threshold` for this key.
    pub(super) fn of(
        cluster: &ClusterFile,
        key: &VouchedKey,
        client: [u8; 32],
        standing: &Standing,
    ) -> Result<Sealing> {
        Ok(match cluster.suite {
            Suite::Ristretto255 => Sealing::Ristretto255(threshold(cluster, key, "client", client, standing)?),
            Suite::P256 => Sealing::P256(threshold(cluster, key, "client", client, standing)?),
        })
    }

    /// Seals bodies into one ciphertext, under the client's number of the publication; the versions in the envelope become
    /// those in force.
    pub(super) fn seal(
        &mut self,
        number: u64,
        envelope: &Envelope,
        bodies: &[&[u8]],
    ) -> std::result::Result<Sealed, SealError> {
        let message = Seal { id: u128::from(number).to_be_bytes(), envelope, bodies };
        each!(self, it => it.seal(&message), else Err(SealError::NotReady))
    }

    /// The versions in force are these now (E6).
    pub(super) fn stands(&mut self, now: Now, standing: &Standing) {
        let versions = Versions { epoch: standing.epoch, policy: standing.policy };
        self.handle(now, Input::InForce(versions.into()));
    }

    /// Whether a publication of so many bytes, its header included, can be opened now.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        each!(self, it => it.has_room(bytes), else false)
    }

    pub(super) fn open(&mut self, now: Now, message: Delivered<'_>) {
        self.handle(now, Input::Delivered(message));
    }

    pub(super) fn fetched(&mut self, now: Now, id: FetchId, result: Fetched) {
        self.handle(now, Input::Fetched(id, result));
    }

    /// The first publication that has waited too long for shares.
    pub(super) fn shortage(&self, now: Monotonic, patience: Duration) -> Option<Shortage> {
        each!(self, it => it.shortage(now, patience), else None)
    }

    /// What a publication waits for.
    pub(super) fn shortage_of(&self, sn: u64) -> Option<Shortage> {
        each!(self, it => it.shortage_of(sn), else None)
    }

    /// Nothing is refused: these are no commands and no messages.
    fn handle(&mut self, now: Now, input: Input<'_>) {
        let _ = each!(self, it => it.handle(now, input), else Ok(()));
    }

    pub(super) fn timeout(&self) -> Option<Monotonic> {
        each!(self, it => it.timeout(), else None)
    }

    pub(super) fn handle_timeout(&mut self, now: Now) {
        each!(self, it => it.handle_timeout(now), else ());
    }

    pub(super) fn poll(&mut self) -> Option<Output> {
        each!(self, it => it.poll(), else None)
    }
}

/// A client's machine of `keys=threshold` in the group of the cluster's suite, under a key that the brokers vouch for.
///
/// # Errors
/// [`Code::Content`] if key and cluster do not fit together; the system's own.
fn threshold<G: Group>(
    cluster: &ClusterFile,
    key: &VouchedKey,
    name: &str,
    client: [u8; 32],
    standing: &Standing,
) -> Result<Box<Threshold<G>>> {
    let (id, brokers) = (cluster.cluster().0, cluster.broker_keys());
    let config = Config::new(client, id, &brokers, &key.key, &pin(&id, &key.key));
    let config = config.map_err(|e| Error::new(Code::Content, format!("the cluster's threshold key: {e}")))?;
    let versions = Versions { epoch: standing.epoch, policy: standing.policy };
    let (seed, incarnation) = (Secret::from_bytes(rng::bytes()?), Incarnation(rng::bytes()?));
    Ok(Box::new(Threshold::new(name, incarnation, config, versions, &seed)))
}
