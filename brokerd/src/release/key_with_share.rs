//! A broker's holding of the threshold key, in whichever group the key is.

use sealcast_broker::operation::Sealed;
use sealcast_broker::protocol::Why;
use sealcast_broker::state::Entry;
use sealcast_crypto::group::{P256, PrimeGroup, Ristretto255};
use sealcast_crypto::tdh2::{KeyShare, PublicKey};

use super::Kind;
use super::shares::Shares;
use crate::executor::Shared;

/// The threshold key with one broker's share of it.
pub enum KeyWithShare {
    /// On ristretto255, the default.
    Ristretto255(Box<Shares<Ristretto255>>),
    /// On P-256.
    P256(Box<Shares<P256>>),
}

/// The key with this broker's share.
impl<G: PrimeGroup> From<(PublicKey<G>, KeyShare<G>)> for KeyWithShare
where
    KeyWithShare: From<(PublicKey<G>, Option<KeyShare<G>>)>,
{
    fn from((key, share): (PublicKey<G>, KeyShare<G>)) -> KeyWithShare {
        (key, Some(share)).into()
    }
}

impl From<(PublicKey<Ristretto255>, Option<KeyShare<Ristretto255>>)> for KeyWithShare {
    fn from((key, share): (PublicKey<Ristretto255>, Option<KeyShare<Ristretto255>>)) -> KeyWithShare {
        KeyWithShare::Ristretto255(Box::new(Shares::new(key, share)))
    }
}

impl From<(PublicKey<P256>, Option<KeyShare<P256>>)> for KeyWithShare {
    fn from((key, share): (PublicKey<P256>, Option<KeyShare<P256>>)) -> KeyWithShare {
        KeyWithShare::P256(Box::new(Shares::new(key, share)))
    }
}

impl KeyWithShare {
    /// The key's epoch and its encoding.
    pub(super) fn encoded(&self) -> (u32, Vec<u8>) {
        match self {
            KeyWithShare::Ristretto255(it) => it.encoded(),
            KeyWithShare::P256(it) => it.encoded(),
        }
    }

    /// Whether this broker has a share of it.
    pub(super) fn has_share(&self) -> bool {
        match self {
            KeyWithShare::Ristretto255(it) => it.has_share(),
            KeyWithShare::P256(it) => it.has_share(),
        }
    }

    /// t: so many shares open a publication.
    pub(super) fn threshold(&self) -> usize {
        match self {
            KeyWithShare::Ristretto255(it) => it.threshold(),
            KeyWithShare::P256(it) => it.threshold(),
        }
    }

    /// Which ciphertexts are well-formed for their labels, and of accused ones, which are proved to open to nothing.
    pub(super) fn check(&self, shared: &Shared, sealed: &[Sealed<'_>]) -> Vec<bool> {
        match self {
            KeyWithShare::Ristretto255(it) => it.check(shared, sealed),
            KeyWithShare::P256(it) => it.check(shared, sealed),
        }
    }

    /// The bytes of an attachment to a publication.
    pub(super) fn prepare(&self, shared: &Shared, entry: &Entry, kind: Kind) -> Result<Vec<u8>, Why> {
        match self {
            KeyWithShare::Ristretto255(it) => it.prepare(shared, entry, kind),
            KeyWithShare::P256(it) => it.prepare(shared, entry, kind),
        }
    }
}
