//! The trait of whatever orders: the engine among 3f+1 brokers, or one broker alone.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use crate::block::{self, Batch, Block, Hash};

/// A result that comes later; usable from any async runtime, and by `futures::executor::block_on` without one.
pub type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One total order. Delivery goes through the `Application` given at the start.
pub trait Order: Send + Sync {
    /// Hands in a batch: it goes to the application's pool and to the broker that leads (E14). `Ok` promises
    /// nothing yet; the batch is ordered when a block with it is delivered.
    fn submit(&self, batch: Batch) -> Result<(), Refused>;

    /// Where things stand.
    fn status(&self) -> Status;

    /// Proofs of misbehaviour seen since the start, the newest last, at most `limits::EVIDENCE_MAX`.
    fn evidence(&self) -> Vec<Evidence>;

    /// Why its files cannot be used any more, if that is why it ended.
    fn fault(&self) -> Option<Fault>;

    /// What was noticed of each broker on the links since the start, by index; empty where there are no others.
    fn peers(&self) -> Vec<Peer> {
        Vec::new()
    }

    /// The block of this height, if it is held here.
    fn block(&self, height: u64) -> Later<Option<Arc<Block>>>;

    /// The proof that a quorum finalised the block of this height: where another broker may start (`Start::StartCertificate`).
    fn start_certificate(&self, height: u64) -> Later<Option<StartCertificate>>;

    /// Blocks below `height` are needed no more. They go in steps; blocks not yet acknowledged stay.
    fn prune(&self, height: u64);

    /// Ends gracefully: what was delivered and acknowledged is recorded. Dropping ends it like a crash, which is safe too.
    fn stop(&self) -> Later<()>;
}

/// Where an order stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The view of the protocol.
    pub view: u64,
    /// The index of the broker that leads it.
    pub leader: usize,
    /// The highest block acknowledged here.
    pub height: u64,
    /// The highest block known to be final.
    pub tip: u64,
    /// How often another broker has taken the lead since the start, by its turn or because the one before was silent.
    pub changes: u64,
    /// How often views were given up since the start: their leader was silent, or what it proposed was not valid.
    pub skips: u64,
    /// Whether it still runs.
    pub running: bool,
}

impl Status {
    /// Blocks between what is known to be final and what was acknowledged here.
    pub fn lag(&self) -> u64 {
        self.tip.saturating_sub(self.height)
    }
}

/// What was noticed of a broker on the links since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Messages that came from it. A running broker sends several a second, also when nobody publishes.
    pub heard: u64,
    /// How often it was cut off, for an hour each time, because it contradicted itself or sent what no honest broker sends.
    pub cut_off: u64,
}

/// Why a batch is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// As many batches wait as may wait; try again later.
    #[error("the pool of waiting batches is full")]
    Full,
    /// It waits already, or was ordered not long ago.
    #[error("the batch is known already")]
    Known,
    /// It fits no block.
    #[error("the batch is larger than a block")]
    TooLarge,
    /// The application does not want it.
    #[error("the batch is not valid")]
    Invalid,
    /// The order has ended.
    #[error("the order has ended")]
    Ended,
}

/// What is wrong with an order's files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A file does not hold what was written to it.
    #[error("{}: {what}", file.display())]
    Damaged {
        /// The file, below the order's folder.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The disk does not do its work.
    #[error("{0}")]
    Storage(String),
    /// The process may open too few files to move the blocks of an older version to the log.
    #[error("to move the blocks of an older version to the log, {needed} files must be open once")]
    Files {
        /// How many it must be allowed.
        needed: usize,
    },
}

/// What a broker did that no honest broker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Misbehaviour {
    /// Voted for two different blocks in one view.
    TwoNotarizeVotes,
    /// Voted for the finality of two different blocks in one view.
    TwoFinalizeVotes,
    /// Voted to skip a view and for the finality of its block.
    SkippedAndFinalized,
}

/// Two signed statements that contradict each other. Anyone who knows the brokers' keys can check them:
/// [`crate::consensus::Consensus::judge`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The broker's index.
    pub broker: usize,
    /// The view in which it happened.
    pub view: u64,
    /// What it was.
    pub misbehaviour: Misbehaviour,
    /// The two signed votes, in the engine's encoding.
    pub proof: Vec<u8>,
}

/// The proof that a block is final, from which a broker without history can start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartCertificate {
    /// The block's height.
    pub height: u64,
    /// The quorum's certificate, in the engine's encoding.
    pub certificate: Vec<u8>,
    /// What the block's hash is made of, which shows its height: the certificate names nothing but the hash.
    pub header: Vec<u8>,
}

impl StartCertificate {
    /// The block's hash, if the header is one of that height.
    pub fn hash(&self) -> Option<Hash> {
        (block::height_in(&self.header) == Some(self.height)).then(|| block::hash_of(&self.header))
    }
}
