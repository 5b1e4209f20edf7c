//! What a key scheme may ask for by content or by name, and have made available to others.
//!
//! Both axes speak it: `keys` asks, the way (a directory, brokers, or the members themselves) answers.

use crate::Utc;
use crate::member::CertHash;

/// Names a fetch, for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FetchId(pub u64);

/// What can be fetched, and be offered to those who fetch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fetch {
    /// A blob whose SHA-256 this is.
    Blob([u8; 32]),
    /// A key package of a would-be member.
    KeyPackage(CertHash),
    /// The brokers' shares of a message; they come as attachments.
    Shares {
        /// The message's index.
        index: u64,
        /// With proofs, as of a message whose reader check failed: they cost brokers more, and come at a rate.
        proved: bool,
    },
    /// The key that those who carry messages hold shares of, as enough of them vouch for it.
    Key,
    /// What members left for this device while it was away: one message. The next fetch has it deleted, and brings the next one.
    Mail(CertHash),
}

/// Key packages of a device, for those who let it in while it is away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPackages {
    /// Whose.
    pub cert: CertHash,
    /// Each is handed out once, where a directory can promise that.
    pub single_use: Vec<Vec<u8>>,
    /// Handed out where there is no other one.
    pub last_resort: Option<Vec<u8>>,
    /// When they are of no use any more.
    pub until: Utc,
}

/// What a scheme asks a transport for, and what a transport can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetches {
    /// Blobs and key packages: what a directory has.
    pub directory: bool,
    /// Shares of those who carry messages, and the key that they are of.
    pub shares: bool,
}

impl Fetches {
    /// Nothing.
    pub const NOTHING: Fetches = Fetches { directory: false, shares: false };

    /// Whether all that is asked for can be had.
    pub fn covers(self, asked: Fetches) -> bool {
        (self.directory || !asked.directory) && (self.shares || !asked.shares)
    }
}

/// The answer to a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The bytes; not yet checked against what was asked for.
    Bytes(Vec<u8>),
    /// Nobody had it in time.
    Missing,
    /// There was no room for the question, and it was not sent: whoever still wants it asks again.
    NotAsked,
}
