//! What a key scheme may ask for by content or by name, and have made available to others.
//!
//! Both axes speak it: `keys` asks, the way (a directory, brokers, or the members themselves) answers.

use crate::member::{CertHash, EpochId};

/// Names a fetch, for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FetchId(pub u64);

/// What can be fetched, and be offered to those who fetch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fetch {
    /// A blob whose SHA-256 this is.
    Blob([u8; 32]),
    /// The message whose acceptance ended this epoch, if one has: whoever keeps the order has it.
    After(EpochId),
    /// A key package of a would-be member.
    KeyPackage(CertHash),
    /// Proofs for the shares of a message whose reader check failed.
    ShareProofs {
        /// The message's index.
        index: u64,
    },
}

/// The answer to a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The bytes; not yet checked against what was asked for.
    Bytes(Vec<u8>),
    /// Nobody had it in time.
    Missing,
}
