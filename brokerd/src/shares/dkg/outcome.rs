//! What comes of making a key together.

use std::collections::BTreeSet;

use sealcast_crypto::group::PrimeGroup;
use sealcast_crypto::tdh2::{KeyShare, PublicKey};

use super::super::word::Round;

/// What comes of it.
#[derive(Debug)]
pub enum Event<G: PrimeGroup> {
    /// To be ordered as this broker's [`Dkg`](sealcast_broker::operation::Operation::Dkg).
    Say(Vec<u8>),
    /// A broker's dealing does not count in this run.
    Excluded {
        /// The run.
        run: u32,
        /// Whose.
        broker: u16,
        /// Why not.
        fault: Fault,
    },
    /// A broker complained of a dealer without reason.
    Refuted {
        /// The run.
        run: u32,
        /// Who complained.
        complainer: u16,
        /// Of whom.
        dealer: u16,
    },
    /// There is a key: the same at all brokers.
    Made(Box<Made<G>>),
    /// There will be none in this run. Another one begins with [`super::Dkg::begin`], here or elsewhere.
    Failed {
        /// The run.
        run: u32,
        /// Why.
        why: Failure,
    },
}

/// A key that the brokers made.
#[derive(Debug)]
pub struct Made<G: PrimeGroup> {
    /// The run that made it.
    pub run: u32,
    /// The key.
    pub key: PublicKey<G>,
    /// This broker's share of it; `None` if it took no part in the run, or lacks a dealer's share and could not say so in
    /// time.
    pub share: Option<KeyShare<G>>,
    /// Whose dealings make it up.
    pub dealers: BTreeSet<u16>,
}

/// Why a broker is excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Fault {
    /// It did not speak in time.
    #[error("it said nothing in time")]
    Silent(Round),
    /// It did not prove what its word must prove.
    #[error("a proof in its word is false")]
    Proof(Round),
    /// It did not deal what it promised, or not to everybody.
    #[error("it did not deal what it promised")]
    Promise,
    /// It dealt a bad share.
    #[error("it dealt a bad share to broker {0}")]
    Share(u16),
}

/// Why a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Failure {
    /// More than f are excluded.
    #[error("{excluded} of {brokers} brokers are excluded")]
    Excluded {
        /// So many.
        excluded: u16,
        /// n.
        brokers: u16,
    },
    /// The sum of the dealings is no key, which no set with an honest dealer in it comes to.
    #[error("the dealings do not sum to a key")]
    Degenerate,
}
