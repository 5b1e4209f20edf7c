//! Takes over the history that versions up to 0.1 kept: two of upstream's archives, with four files for each 256 blocks.
//!
//! The records move in order of height. What is durable in the log is pruned from the archives, so that a crash in between
//! loses nothing and the disk never holds the history twice. A marker says that only removing is left.
//!
//! The archives keep all their files open, so that the first start needs as many descriptors as there are files.

use commonware_consensus::simplex::scheme::ed25519::Scheme;
use commonware_consensus::simplex::types::Finalization;
use commonware_cryptography::certificate::Verifier as _;
use commonware_cryptography::sha256::Digest;
use commonware_runtime::Error;
use commonware_runtime::buffer::paged::CacheRef;
use commonware_storage::archive::{self, Archive as _, Identifier, prunable};
use commonware_storage::translator::EightCap;
use sealcast_order::BlockSize;

use super::record::Kind;
use super::{Damage, LogError, Opened, Runtime, table_of};
use crate::codec::EngineBlock;
use crate::stack::{ITEMS_PER_SECTION, WRITE_BUFFER};

type Archive<E, V> = prunable::Archive<EightCap, E, Digest, V>;

/// Moves what older versions left under `disk` into the log. Does nothing if they left nothing.
///
/// # Errors
/// [`LogError::Damaged`], or [`LogError::Files`] if the archives need more open files than are allowed.
pub(crate) async fn take_over<E: Runtime>(
    context: &E,
    disk: &str,
    pages: &CacheRef,
    opened: &mut Opened<E>,
    progress: fn(u64, u64),
) -> Result<(), LogError> {
    let old = [format!("{disk}blocks"), format!("{disk}certificates")];
    let marker = format!("{disk}taken-over");
    if has(context, &marker).await? {
        return remove(context, &old, &marker).await;
    }
    let files = files_of(context, &old).await?;
    if files == 0 {
        return Ok(());
    }
    let moved = move_all(context, &old, pages, opened, progress).await;
    moved.map_err(|error| error.or_files(files + OTHER_FILES))?;
    drop(context.open(&marker, MARKER).await?);
    remove(context, &old, &marker).await
}

/// Moves the records of both archives, and prunes what is durable in the log.
async fn move_all<E: Runtime>(
    context: &E,
    old: &[String; 2],
    pages: &CacheRef,
    opened: &mut Opened<E>,
    progress: fn(u64, u64),
) -> Result<(), LogError> {
    let blocks = Archive::<E, EngineBlock>::init(context.child("blocks"), config(&old[0], BlockSize::MAX, pages)).await;
    let mut blocks = blocks.map_err(|e| failed(&old[0], &e))?;
    let any = Scheme::certificate_codec_config_unbounded();
    let certificates =
        Archive::<E, Finalization<Scheme, Digest>>::init(context.child("certificates"), config(&old[1], any, pages));
    let mut certificates = certificates.await.map_err(|e| failed(&old[1], &e))?;

    let first = [blocks.first_index(), certificates.first_index()].into_iter().flatten().min();
    let last = [blocks.last_index(), certificates.last_index()].into_iter().flatten().max();
    if let (Some(first), Some(last)) = (first, last) {
        let end = last + 1;
        for height in first..end {
            let block = blocks.get(Identifier::Index(height)).await.map_err(|e| failed(&old[0], &e))?;
            if let Some(block) = block.filter(|_| opened.lacks(Kind::Block, height)) {
                opened.log.append(Kind::Block, height, &block.hash(), &block).await?;
                opened.heights[0].insert((height, height));
            }
            let certificate = certificates.get(Identifier::Index(height)).await.map_err(|e| failed(&old[1], &e))?;
            if let Some(certificate) = certificate.filter(|_| opened.lacks(Kind::Certificate, height)) {
                let digest = certificate.proposal.payload.0;
                opened.log.append(Kind::Certificate, height, &digest, &certificate).await?;
                opened.heights[1].insert((height, height));
            }
            let done = height + 1;
            if done.is_multiple_of(BLOCKS_AT_ONCE) || done == end {
                opened.log.sync().await?;
                blocks = blocks.prune(done).await.map_err(|e| failed(&old[0], &e))?;
                certificates = certificates.prune(done).await.map_err(|e| failed(&old[1], &e))?;
                progress(done - first, end - first);
            }
        }
    }
    Ok(())
}

impl<E: Runtime> Opened<E> {
    fn lacks(&self, kind: Kind, height: u64) -> bool {
        !self.heights[table_of(kind)].contains(height)
    }
}

async fn has<E: Runtime>(context: &E, partition: &str) -> Result<bool, LogError> {
    match context.scan(partition).await {
        Ok(names) => Ok(!names.is_empty()),
        Err(Error::PartitionMissing(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The partitions of an archive.
fn partitions(archive: &str) -> [String; 3] {
    ["metadata", "key", "value"].map(|part| format!("{archive}-{part}"))
}

async fn files_of<E: Runtime>(context: &E, archives: &[String]) -> Result<usize, LogError> {
    let mut files = 0;
    for partition in archives.iter().flat_map(|archive| partitions(archive)) {
        match context.scan(&partition).await {
            Ok(names) => files += names.len(),
            Err(Error::PartitionMissing(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(files)
}

/// Removes the archives, then the marker.
async fn remove<E: Runtime>(context: &E, archives: &[String], marker: &str) -> Result<(), LogError> {
    let all = archives.iter().flat_map(|archive| partitions(archive)).chain([marker.to_string()]);
    for partition in all {
        match context.remove(&partition, None).await {
            Ok(()) | Err(Error::PartitionMissing(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn failed(archive: &str, error: &archive::Error) -> LogError {
    // The system's reason lies some levels down in upstream's.
    let what = format!("the archive of the version before cannot be read: {error} ({error:?})");
    Damage { file: archive.to_string(), what }.into()
}

impl LogError {
    /// The number of files needed, if it came up because no more could be opened.
    fn or_files(self, needed: usize) -> LogError {
        let used_up = match &self {
            LogError::Damaged(damage) => damage.what.contains(USED_UP),
            LogError::Storage(error) => format!("{error:?}").contains(USED_UP),
            LogError::Files { .. } => false,
        };
        if used_up { LogError::Files { needed } } else { self }
    }
}

/// An archive as those versions configured it.
fn config<C: Clone>(name: &str, codec_config: C, pages: &CacheRef) -> prunable::Config<EightCap, C> {
    let [metadata_partition, key_partition, value_partition] = partitions(name);
    prunable::Config {
        translator: EightCap,
        metadata_partition,
        key_partition,
        key_page_cache: pages.clone(),
        value_partition,
        compression: None,
        codec_config,
        items_per_section: ITEMS_PER_SECTION,
        key_write_buffer: WRITE_BUFFER,
        value_write_buffer: WRITE_BUFFER,
        replay_buffer: WRITE_BUFFER,
    }
}

/// Archives as the versions before made them, for tests.
///
/// # Panics
/// If the disk does not do its work.
pub async fn write_old<E: Runtime>(
    context: &E,
    disk: &str,
    pages: &CacheRef,
    blocks: &[EngineBlock],
    certificates: &[(u64, Finalization<Scheme, Digest>)],
) {
    let all =
        Archive::<E, EngineBlock>::init(context.child("old"), config(&format!("{disk}blocks"), BlockSize::MAX, pages));
    let mut archive = all.await.expect("it is made");
    for block in blocks {
        archive = archive.put(block.height, Digest(block.hash()), block).await.expect("it is put");
    }
    drop(archive.sync().await.expect("it is durable"));
    let any = Scheme::certificate_codec_config_unbounded();
    let all = Archive::<E, _>::init(context.child("old"), config(&format!("{disk}certificates"), any, pages));
    let mut archive = all.await.expect("it is made");
    for (height, certificate) in certificates {
        archive = archive.put(*height, certificate.proposal.payload, certificate).await.expect("it is put");
    }
    drop(archive.sync().await.expect("it is durable"));
}

/// Blocks that move before they are made durable and leave the archives: a multiple of a section's.
const BLOCKS_AT_ONCE: u64 = 4096;
/// What the marker's partition holds.
const MARKER: &[u8] = b"blocks";
/// What the operating system says where a process may open no more files, as upstream repeats it.
const USED_UP: &str = "Too many open files";
/// Files that are open beside the archives'.
const OTHER_FILES: usize = 128;
