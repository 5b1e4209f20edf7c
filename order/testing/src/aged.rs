//! A history that nobody ordered: the log of a broker that has idled for years, made in minutes, to measure what age costs.

use std::path::{Path, PathBuf};

use commonware_consensus::simplex::scheme::ed25519::Scheme;
use commonware_consensus::simplex::types::{Finalization, Finalize, Proposal};
use commonware_consensus::types::{Epoch, Round, View};
use commonware_cryptography::sha256::Digest;
use commonware_parallel::Sequential;
use commonware_runtime::{Runner as _, Supervisor as _, tokio};
use commonware_utils::iter::NonEmpty;
use sealcast_order::{Block, Fault};
use sealcast_order_engine::parts::{ITEMS_PER_SECTION, Log, Members, Sizes, namespace_of, pages, signer, write_old};
use sealcast_order_engine::{SigningSeed, StartError};

/// What to make.
pub struct Aged {
    /// The engine's folder, which must be empty or not exist.
    pub folder: PathBuf,
    /// The cluster's name, as in `sealcast_order_engine::Settings`.
    pub namespace: Vec<u8>,
    /// The keys of all brokers, in the callers' order.
    pub keys: Vec<SigningSeed>,
    /// How many blocks, all of them empty.
    pub blocks: u64,
    /// The time of the last block, microseconds since 1970.
    pub until: u64,
}

impl Aged {
    /// Writes the log. `progress` is told how many blocks are written, now and then.
    ///
    /// Each block has a certificate of the right form and size; those of the newest 1,000 blocks are signed by a quorum,
    /// the older ones repeat the signatures of one of them, since nobody verifies a certificate of its own log.
    ///
    /// # Errors
    /// If the keys are not those of a cluster, or the disk does not do its work.
    pub fn write(self, progress: impl Fn(u64) + Send + 'static) -> Result<(), StartError> {
        let brokers: Vec<[u8; 32]> = self.keys.iter().map(SigningSeed::public).collect();
        let Members { sorted, .. } = Members::of(brokers.iter())?;
        let quorum = brokers.len() - (brokers.len() - 1) / 3;
        let namespace = namespace_of(&self.namespace);
        let scheme =
            |seed: &SigningSeed| Scheme::signer(&namespace, sorted.clone(), signer(seed)).ok_or(StartError::NotAMember);
        let signers = self.keys[..quorum].iter().map(scheme).collect::<Result<Vec<_>, _>>()?;
        let certify = move |proposal: Proposal<Digest>| {
            let votes: Vec<_> = signers.iter().filter_map(|it| Finalize::sign(it, proposal.clone())).collect();
            let votes = NonEmpty::try_new(votes.into_iter()).expect("a quorum has members");
            Finalization::from_owned_finalizes(&signers[0], votes, &Sequential).expect("a quorum has signed")
        };
        let config = tokio::Config::new().with_storage_directory(&self.folder).with_worker_threads(1);
        let written = tokio::Runner::new(config).start(|context| async move {
            let mut opened = Log::open(context.child("log"), "", Sizes::default()).await?;
            let mut parent = Block::genesis(&self.namespace).hash();
            let mut last = None;
            for height in 1..=self.blocks {
                let time = self.until.saturating_sub((self.blocks - height) * BLOCK_MICROS);
                let block = Block { parent, height, time, batches: Vec::new() };
                parent = block.hash();
                let round = Round::new(Epoch::zero(), View::new(height));
                let proposal = Proposal::new(round, View::new(height - 1), Digest(parent));
                let certificate = match &last {
                    Some(Finalization { certificate, .. }) if height + SIGNED < self.blocks => {
                        Finalization { proposal, certificate: Clone::clone(certificate) }
                    }
                    _ => certify(proposal),
                };
                opened.append_final(&block.into(), &certificate).await?;
                last = Some(certificate);
                if height.is_multiple_of(BLOCKS_AT_ONCE) || height == self.blocks {
                    opened.sync().await?;
                    progress(height);
                }
            }
            Ok::<(), Fault>(())
        });
        written.map_err(|fault| std::io::Error::other(fault.to_string()).into())
    }
}

/// Writes what versions up to 0.1 kept of so many blocks, of which each lies in files of its own.
///
/// # Panics
/// If the disk does not do its work.
pub fn write_older(folder: &Path, blocks: u64) {
    let at = |height| Block { parent: [0; 32], height, time: height, batches: Vec::new() };
    let all: Vec<_> = (0..blocks).map(|i| at(1 + i * ITEMS_PER_SECTION.get()).into()).collect();
    let config = tokio::Config::new().with_storage_directory(folder).with_worker_threads(1);
    tokio::Runner::new(config).start(|context| async move {
        let pages = pages();
        write_old(&context, "", &pages, &all, &[]).await;
    });
}

/// Between two blocks of an idle cluster.
const BLOCK_MICROS: u64 = 150_000;
/// Newest blocks whose certificates are signed.
const SIGNED: u64 = 1000;
/// Blocks made durable at once.
const BLOCKS_AT_ONCE: u64 = 4096;
