//! Makes the threshold key with the other brokers over the order (E8), once there is none: drives [`shares::Dkg`]
//! on a thread of its own.
//!
//! ```text
//! executor ─ words, heights ─▶ notes ─▶ Dkg ──────┬ Say ─▶ a batch under the broker's own key ─▶ admission
//!                                                 └ Made ─▶ keys/, executor
//! ```

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use sealcast_broker::genesis::Cluster;
use sealcast_broker::operation::{Batch, Client, Operation};
use sealcast_crypto::group::PrimeGroup;
use sealcast_crypto::signature::OriginKey;
use sealcast_crypto::tdh2::{KeyShare, PublicKey};
use sealcast_wire::{Utc, limits};
use tracing::{error, info, warn};

use crate::admission::Admission;
use crate::executor::Executor;
use crate::release::KeyWithShare;
use crate::shares::file::{FileError, Folder};
use crate::shares::{Dkg, Event, Made, Setup};

/// What the order tells.
#[derive(Debug)]
pub(crate) enum Note {
    /// A broker's word has its place.
    Statement {
        /// In which block.
        height: u64,
        /// Whose.
        broker: u16,
        /// What.
        word: Vec<u8>,
    },
    /// A block was executed.
    Executed(u64),
    /// The broker ends.
    End,
}

/// What it takes to make a key.
pub(crate) struct Making {
    pub(crate) cluster: Cluster,
    pub(crate) brokers: u16,
    pub(crate) index: u16,
    pub(crate) threshold: u16,
    pub(crate) key: Arc<OriginKey>,
    pub(crate) keys: Folder,
    pub(crate) executor: Executor,
    pub(crate) admission: Arc<Admission>,
    pub(crate) rng: ChaCha20Rng,
}

impl Making {
    /// Begins, with the words that were ordered before; ends when there is a key.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start<G: PrimeGroup>(self, notes: Receiver<Note>) -> io::Result<JoinHandle<()>>
    where
        KeyWithShare: From<(PublicKey<G>, Option<KeyShare<G>>)>,
    {
        thread::Builder::new().name("ceremony".into()).spawn(move || {
            if let Err(why) = self.run::<G>(&notes) {
                error!("no threshold key: {why}");
            }
        })
    }

    fn run<G: PrimeGroup>(mut self, notes: &Receiver<Note>) -> Result<(), String>
    where
        KeyWithShare: From<(PublicKey<G>, Option<KeyShare<G>>)>,
    {
        let seed = self.keys.seed(EPOCH, &mut self.rng).map_err(|e| e.to_string())?;
        let setup = Setup {
            cluster: self.cluster,
            epoch: EPOCH,
            brokers: self.brokers,
            index: self.index,
            threshold: self.threshold,
            round_blocks: limits::DKG_ROUND_BLOCKS,
        };
        let mut dkg = Dkg::<G>::new(setup, seed).map_err(|e| e.to_string())?;
        for (height, broker, word) in self.executor.dkg_statements().map_err(|e| e.to_string())? {
            dkg.word(height, broker, &word);
        }
        let mut height = self.executor.height();
        dkg.at(height);
        let mut said = height;
        dkg.begin();
        loop {
            while let Some(event) = dkg.poll() {
                match event {
                    Event::Say(word) => {
                        said = height;
                        self.say(&word);
                    }
                    Event::Excluded { run, broker, fault } => {
                        warn!("key ceremony {run}: broker {broker} is excluded: {fault}");
                    }
                    Event::Refuted { run, complainer, dealer } => {
                        warn!("key ceremony {run}: broker {complainer} complained of broker {dealer} without reason");
                    }
                    Event::Failed { run, why } => {
                        warn!("key ceremony {run} failed: {why}; another one begins");
                        dkg.begin();
                    }
                    Event::Made(made) => return self.made(*made),
                }
            }
            match notes.recv_timeout(AGAIN) {
                Ok(Note::Statement { height, broker, word }) => dkg.word(height, broker, &word),
                Ok(Note::Executed(executed)) => {
                    height = executed;
                    dkg.at(height);
                }
                Ok(Note::End) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            // What was refused, or lost with a connection, is said again.
            if height >= said + AGAIN_BLOCKS
                && let Some(word) = dkg.unheard()
            {
                said = height;
                self.say(word);
            }
        }
    }

    fn say(&self, word: &[u8]) {
        // Brokers' words have no numbers.
        let batch = Batch::sign(&self.cluster, &self.key, 0, vec![Operation::Dkg(word.to_vec())]);
        if let Err(why) = self.admission.submit(&Client(self.key.public_bytes()), batch.to_bytes().into()) {
            warn!("a word of the key ceremony was not taken, and is said again: {why}");
        }
    }

    /// When the key was made, as far as is known here: if nothing was kept, now.
    pub(crate) fn made_at(&self) -> Result<Utc, FileError> {
        self.keys.made(EPOCH, self.executor.time())
    }

    fn made<G: PrimeGroup>(mut self, made: Made<G>) -> Result<(), String>
    where
        KeyWithShare: From<(PublicKey<G>, Option<KeyShare<G>>)>,
    {
        let Made { run, key, share, dealers } = made;
        let at = self.made_at().map_err(|e| e.to_string())?;
        let Some(share) = share else {
            // It checks ciphertexts and votes like the others, and helps nobody to read.
            self.executor.set_key_made((key, None), at);
            warn!("the threshold key was made in ceremony {run}, and this broker has no share of it");
            return Ok(());
        };
        self.keys.keep(&key, &share, &mut self.rng).map_err(|e| e.to_string())?;
        self.executor.set_key_made((key, Some(share)), at);
        let dealers: Vec<String> = dealers.iter().map(ToString::to_string).collect();
        info!("the threshold key was made in ceremony {run} by brokers {}", dealers.join(", "));
        Ok(())
    }
}

/// The first key epoch.
pub(crate) const EPOCH: u32 = 0;
/// Blocks after which a word that has no place yet is said again.
const AGAIN_BLOCKS: u64 = 20;
/// Without news, so often it is looked whether something must be said again.
const AGAIN: Duration = Duration::from_secs(1);
