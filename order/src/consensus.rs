//! What orders among several brokers, as the process of a broker starts it: the engine of `sealcast-order-engine`, given to it by
//! the program that links it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use sealcast_wire::limits;
use zeroize::Zeroizing;

use crate::application::Application;
use crate::block::BlockSize;
use crate::order::{Evidence, Order, StartCertificate};

/// Byzantine agreement among brokers.
pub trait Consensus: Send + Sync {
    /// Starts one broker's, with its journal and log in `settings.folder`. Returns when the journal has been read.
    ///
    /// # Errors
    /// [`StartError`].
    fn start(&self, settings: Settings, application: Arc<dyn Application>) -> Result<Arc<dyn Order>, StartError>;

    /// Whether it could start so: a certificate to start from is one of this cluster, for a block of that height.
    ///
    /// # Errors
    /// As [`Consensus::start`], but nothing is opened.
    fn check(&self, settings: &Settings) -> Result<(), StartError>;

    /// Looks at the journal of votes in a folder in which nothing runs; `None` if it is sound. `executed` is the height of the
    /// last block that the application has executed.
    ///
    /// # Errors
    /// The disk.
    fn check_votes(&self, folder: &Path, executed: u64) -> io::Result<Option<DamagedVotes>>;

    /// Removes the journal of votes, so that an order begins without one.
    ///
    /// # Errors
    /// The disk.
    fn forget_votes(&self, folder: &Path) -> io::Result<()>;

    /// What a proof shows; `None` if nothing. `brokers` are the keys of all in the callers' order, and `namespace` is that of
    /// their [`Settings`].
    fn judge(&self, brokers: &[[u8; 32]], namespace: &[u8], proof: &[u8]) -> Option<Evidence>;
}

/// Damage to the journal of votes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedVotes {
    /// The file that does not hold what was written to it.
    pub file: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

/// The settings of one broker's engine.
///
/// `namespace`, `brokers` and `term` must be the same at all brokers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the cluster, bound into every vote and every link (G3).
    pub namespace: Vec<u8>,
    /// All brokers, this one among them; the index in this list is the broker's index everywhere.
    pub brokers: Vec<Broker>,
    /// The key of this broker.
    pub key: SigningSeed,
    /// Where this broker listens for the others.
    pub listen: SocketAddr,
    /// The engine's folder: votes, blocks, certificates. A broker that has lost it and comes back under the same key
    /// counts among the f that may do anything until the views in which it voted are over: it could vote twice in one.
    /// Whoever begins at a floor starts it only when nobody remembers votes there ([`VIEWS_REMEMBERED`]).
    pub folder: PathBuf,
    /// Where to begin if the folder is empty.
    pub start: Start,
    /// How much a block holds that this broker proposes.
    pub block: BlockSize,
    /// Views in a row that one broker leads. Short terms bound what a leader who ignores forwarded batches can
    /// delay; long terms spare the change of leader. 1 changes the leader with each block.
    pub term: u32,
    /// Silence of a leader after which its term is given up (E14: ≤ 300 ms).
    pub leader_timeout: Duration,
    /// A leader without batches proposes an empty block after this; must be well below `leader_timeout`.
    pub heartbeat: Duration,
    /// How far a block's time may be ahead of this broker's clock; beyond it the broker waits (E10).
    pub drift: Duration,
    /// Blocks delivered and not yet acknowledged, at most.
    pub unacknowledged: usize,
    /// Threads that run the engine.
    pub threads: usize,
    /// Told how many blocks have been moved to the log, and of how many, while a folder of an older version is taken over.
    pub progress: fn(u64, u64),
}

impl Settings {
    /// The defaults for a broker of this cluster.
    pub fn new(
        namespace: &[u8],
        brokers: Vec<Broker>,
        key: SigningSeed,
        listen: SocketAddr,
        folder: PathBuf,
    ) -> Settings {
        Settings {
            namespace: namespace.to_vec(),
            brokers,
            key,
            listen,
            folder,
            start: Start::Genesis,
            block: BlockSize::default(),
            term: 64,
            leader_timeout: Duration::from_millis(300),
            heartbeat: Duration::from_millis(150),
            drift: Duration::from_secs(1),
            unacknowledged: 32,
            threads: 2,
            progress: |_, _| (),
        }
    }

    /// Whether they hold together.
    ///
    /// # Errors
    /// [`StartError::Settings`].
    pub fn check(&self) -> Result<(), StartError> {
        let wrong = StartError::Settings;
        if self.heartbeat >= self.leader_timeout {
            return Err(wrong("the heartbeat must come before the leader's time-out"));
        }
        if self.leader_timeout.is_zero() || self.leader_timeout > limits::LEADER_TIMEOUT_MAX {
            return Err(wrong("the leader's time-out is too long, or zero"));
        }
        if self.term == 0 || self.threads == 0 || self.unacknowledged == 0 {
            return Err(wrong("term, threads and unacknowledged are at least 1"));
        }
        if self.block.batches == 0 || self.block.bytes == 0 || self.block.bytes > limits::BLOCK_BYTES_MAX {
            return Err(wrong("a block holds at least one batch and at most BLOCK_BYTES_MAX bytes"));
        }
        if self.block.batches > limits::BLOCK_BATCHES_MAX {
            return Err(wrong("a block holds at most BLOCK_BATCHES_MAX batches"));
        }
        Ok(())
    }
}

/// Another broker, or this one, as all know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Its Ed25519 key.
    pub key: [u8; 32],
    /// Where it is reached.
    pub address: SocketAddr,
}

/// The seed of a broker's Ed25519 key.
#[derive(Clone)]
pub struct SigningSeed(Zeroizing<[u8; 32]>);

impl SigningSeed {
    /// From 32 secret bytes (RFC 8032).
    pub fn new(seed: &[u8; 32]) -> SigningSeed {
        SigningSeed(Zeroizing::new(*seed))
    }

    /// The secret bytes.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key that others know.
    pub fn public(&self) -> [u8; 32] {
        let pair = Ed25519KeyPair::from_seed_unchecked(&*self.0).expect("any 32 bytes are a seed");
        pair.public_key().as_ref().try_into().expect("an Ed25519 key has 32 bytes")
    }
}

impl fmt::Debug for SigningSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

/// Where an engine with an empty folder begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the first block.
    Genesis,
    /// With this block, which is delivered first; the caller has the state before it, or a later one. In a folder that
    /// has come further it changes nothing; in one that lags it leaves out what is between.
    StartCertificate(StartCertificate),
}

/// Why an engine does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Fewer than 4 brokers tolerate nothing; `brokers` holds all of them, each once.
    #[error("{0} brokers, of which each must be named once; at least 4 are needed")]
    Brokers(usize),
    /// This broker's own key is not among `brokers`.
    #[error("this broker is not a member of the cluster")]
    NotAMember,
    /// A broker's key is no Ed25519 key.
    #[error("the key of broker {0} is not an Ed25519 key")]
    Key(usize),
    /// The certificate to start from is not one of this cluster.
    #[error("the certificate to start from does not verify")]
    StartCertificate,
    /// `heartbeat` < `leader_timeout`, `term`, `threads`, `unacknowledged` ≥ 1 and a block's limits must hold.
    #[error("the settings contradict each other: {0}")]
    Settings(&'static str),
    /// A file of the engine's folder does not hold what was written to it.
    #[error("{}: {what}", file.display())]
    Damaged {
        /// The file, or the folder if it is not known which of its files.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The process may open too few files to move the blocks of an older version to the log.
    #[error("to move the blocks of an older version to the log, {needed} files must be open once")]
    Files {
        /// How many it must be allowed.
        needed: usize,
    },
    /// The engine's thread ended before it had read its files, without a word: upstream panicked.
    #[error("the engine ended while it read its files")]
    Ended,
    /// The folder cannot be used, or the thread not be started.
    #[error("cannot start: {0}")]
    Io(#[from] std::io::Error),
}

/// Views behind the last final one for which brokers remember votes: whoever contradicts himself there is found out.
pub const VIEWS_REMEMBERED: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_e14_a_silent_leader_is_given_up_after_300_ms_at_most() {
        let seeds = [1, 2, 3, 4].map(|i| SigningSeed::new(&[i; 32]));
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let brokers = seeds.iter().map(|it| Broker { key: it.public(), address: listen }).collect();
        let defaults = Settings::new(b"test", brokers, seeds[0].clone(), listen, PathBuf::new());
        assert!(defaults.leader_timeout <= Duration::from_millis(300), "{:?}", defaults.leader_timeout);
        defaults.check().expect("an engine starts so");
    }
}
