//! Finds a block's height by its digest, on disk: sorted runs of (digest's first bytes, height), merged as they become many.
//!
//! ```text
//! run     = entry … ‖ trailer
//! entry   = digest's first 8 bytes (8) ‖ height (8), ascending
//! trailer = "SEALKEYS" ‖ version (1) ‖ first file (8) ‖ last file (8) ‖ entries (8) ‖ CRC-32 (4)
//! ```
//! A run has the blocks of the log's files `first..=last`. Whenever four or more runs at the end are of similar size they
//! become one, so that there are few however many blocks there are; a task of its own writes it meanwhile. A digest is the
//! output of a hash, so its position in a run can be computed almost exactly: a lookup reads about two pages a run.
//!
//! The runs hold nothing that the log does not: each answer is checked against the block, and a run that is missing or was not
//! finished is made again from the log.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::{BufMut as _, Bytes};
use commonware_cryptography::Crc32;
use commonware_runtime::{Blob, Error, WriteOptions};
use commonware_utils::channel::oneshot;
use sealcast_wire::limits;

use super::segment::{self, Closed, take_u64};
use super::{LogError, Runtime, open_file};

/// The runs of a log's closed files.
pub(super) struct Digests<E: Runtime> {
    context: E,
    partition: String,
    /// By the files they cover, the oldest first.
    runs: Vec<Run<E::Blob>>,
    /// The run that a task is writing.
    merging: Option<oneshot::Receiver<Result<Run<E::Blob>, LogError>>>,
    /// The name of the next run.
    next: u64,
}

struct Run<B> {
    name: u64,
    /// The files of the log that it covers, both included.
    first: u64,
    last: u64,
    entries: u64,
    file: Arc<B>,
}

impl<B> Clone for Run<B> {
    fn clone(&self) -> Run<B> {
        Run { file: self.file.clone(), ..*self }
    }
}

type Entry = (u64, u64);

impl<E: Runtime> Digests<E> {
    /// Opens the runs and makes those that `closed` files lack.
    pub(super) async fn open(
        context: E,
        disk: &str,
        log: &str,
        closed: &[Closed],
        files: &mut VecDeque<(u64, Arc<E::Blob>)>,
    ) -> Result<Digests<E>, LogError> {
        let mut digests =
            Digests { context, partition: format!("{disk}keys"), runs: Vec::new(), merging: None, next: 0 };
        digests.read_runs().await?;
        for file in closed {
            if digests.runs.iter().any(|run| (run.first..=run.last).contains(&file.number)) {
                continue;
            }
            let mut entries = BTreeSet::new();
            let blob = open_file(&digests.context, log, files, file.number).await;
            let blob = blob.map_err(|e| e.named(log, file.number))?;
            let count = file.tables[0].count;
            for index in (0..count).step_by(ENTRIES_AT_ONCE) {
                let some = (count - index).min(ENTRIES_AT_ONCE as u64);
                let locations = file.entries(&blob, 0, index, some).await.map_err(|e| e.named(log, file.number))?;
                entries.extend(locations.into_iter().map(|(height, location)| (location.prefix, height)));
            }
            digests.add(file.number, entries, 0).await?;
        }
        Ok(digests)
    }

    async fn read_runs(&mut self) -> Result<(), LogError> {
        let names = match self.context.scan(&self.partition).await {
            Ok(names) => names,
            Err(Error::PartitionMissing(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for name in names {
            let run = match <[u8; 8]>::try_from(&name[..]) {
                Ok(bytes) => self.read_run(u64::from_be_bytes(bytes)).await?,
                Err(_) => None,
            };
            match run {
                Some(run) => self.runs.push(run),
                None => self.context.remove(&self.partition, Some(&name)).await?,
            }
        }
        self.next = self.runs.iter().map(|run| run.name + 1).max().unwrap_or_default();
        // A crash may have left the parts of a run beside it.
        let whole: Vec<(u64, u64, u64)> = self.runs.iter().map(|run| (run.name, run.first, run.last)).collect();
        let is_part = |run: &Run<E::Blob>| {
            whole.iter().any(|(name, first, last)| *name > run.name && *first <= run.first && run.last <= *last)
        };
        let (parts, runs) = std::mem::take(&mut self.runs).into_iter().partition(is_part);
        self.runs = runs;
        self.runs.sort_by_key(|run| run.first);
        self.remove(parts).await
    }

    /// A finished run; `None` if it is not one.
    async fn read_run(&self, name: u64) -> Result<Option<Run<E::Blob>>, LogError> {
        let Ok((file, size)) = self.context.open(&self.partition, &name.to_be_bytes()).await else { return Ok(None) };
        let file = Arc::new(file);
        let Some(begin) = size.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
        let bytes = segment::read(&file, begin, TRAILER_BYTES).await?;
        let parsed = || {
            let mut rest = bytes.strip_prefix(b"SEALKEYS")?.strip_prefix(&[VERSION])?;
            Some((take_u64(&mut rest)?, take_u64(&mut rest)?, take_u64(&mut rest)?))
        };
        let run = parsed().map(|(first, last, entries)| Run { name, first, last, entries, file });
        Ok(run.filter(|run| bytes == trailer(run) && begin == run.entries * ENTRY_BYTES as u64))
    }

    /// Adds the blocks of a file that was just closed. Those below `low_water_mark` may be left out.
    pub(super) async fn add(
        &mut self,
        number: u64,
        entries: BTreeSet<Entry>,
        low_water_mark: u64,
    ) -> Result<(), LogError> {
        let mut writer = Writer::create(&self.context, &self.partition, self.next).await?;
        self.next += 1;
        for entry in entries {
            writer.push(entry).await?;
        }
        let run = writer.finish(number, number).await?;
        self.runs.push(run);
        self.take_merged().await?;
        self.merge(low_water_mark);
        if self.runs.len() >= limits::LOG_RUNS_MAX
            && let Some(merging) = self.merging.take()
        {
            // The task is behind: files are closed faster than runs are merged.
            let merged = merging.await.map_err(|_| Error::Closed)?;
            self.replace_by(merged?).await?;
        }
        Ok(())
    }

    /// Heights of blocks whose digest may begin so.
    pub(super) async fn find(&mut self, prefix: u64) -> Result<Vec<u64>, LogError> {
        self.take_merged().await?;
        let mut heights = Vec::new();
        for run in self.runs.iter().rev() {
            run.find(prefix, &mut heights).await?;
        }
        Ok(heights)
    }

    /// Begins to merge the runs at the end, if enough are of similar size.
    fn merge(&mut self, low_water_mark: u64) {
        if self.merging.is_some() {
            return;
        }
        let mut from = self.runs.len();
        let mut entries = 0;
        while let Some(run) = from.checked_sub(1).map(|i| &self.runs[i]) {
            if entries > 0 && run.entries > 2 * entries {
                break;
            }
            entries += run.entries.max(1);
            from -= 1;
        }
        if self.runs.len() - from < limits::LOG_RUNS_ALIKE {
            return;
        }
        let parts = self.runs[from..].to_vec();
        let (name, partition) = (self.next, self.partition.clone());
        self.next += 1;
        let (merged, merging) = oneshot::channel();
        self.merging = Some(merging);
        drop(self.context.child("merge").spawn(move |context| async move {
            // The log may have ended meanwhile.
            let _ = merged.send(merge(&context, &partition, name, parts, low_water_mark).await);
        }));
    }

    /// Takes over the run that a task has written.
    async fn take_merged(&mut self) -> Result<(), LogError> {
        let Some(merging) = &mut self.merging else { return Ok(()) };
        let Ok(merged) = merging.try_recv() else { return Ok(()) };
        self.merging = None;
        self.replace_by(merged?).await
    }

    async fn replace_by(&mut self, merged: Run<E::Blob>) -> Result<(), LogError> {
        let is_part = |run: &Run<E::Blob>| merged.first <= run.first && run.last <= merged.last;
        let (parts, mut runs): (Vec<_>, Vec<_>) = std::mem::take(&mut self.runs).into_iter().partition(is_part);
        runs.push(merged);
        runs.sort_by_key(|run| run.first);
        self.runs = runs;
        self.remove(parts).await
    }

    async fn remove(&self, runs: Vec<Run<E::Blob>>) -> Result<(), LogError> {
        for run in runs {
            self.context.remove(&self.partition, Some(&run.name.to_be_bytes())).await?;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }
}

impl<B: Blob> Run<B> {
    /// Adds the heights of entries that begin so.
    async fn find(&self, prefix: u64, heights: &mut Vec<u64>) -> Result<(), LogError> {
        let mut index = self.first_at_least(prefix).await?;
        while index < self.entries {
            let page = self.entries(index, PAGE_ENTRIES.min(self.entries - index)).await?;
            let same = page.iter().take_while(|(p, _)| *p == prefix).count();
            heights.extend(page[..same].iter().map(|(_, height)| *height));
            if same < page.len() {
                break;
            }
            index += same as u64;
        }
        Ok(())
    }

    /// The index of the first entry that begins so or later: by interpolation, and by halves if digests were chosen to lie
    /// unevenly.
    async fn first_at_least(&self, prefix: u64) -> Result<u64, LogError> {
        // Entries before `low` are less; those from `high` on are not. Both know a number that bounds what is between them.
        let (mut low, mut high) = (0, self.entries);
        let (mut least, mut most) = (0, u64::MAX);
        let mut tries = 0;
        while low < high {
            let middle = if tries < INTERPOLATIONS {
                let share = u128::from(prefix - least) * u128::from(high - low) / (u128::from(most - least) + 1);
                low + u64::try_from(share).expect("a share of a u64")
            } else {
                low + (high - low) / 2
            };
            tries += 1;
            let begin = middle.saturating_sub(PAGE_ENTRIES / 2).clamp(low, high - 1);
            let page = self.entries(begin, PAGE_ENTRIES.min(high - begin)).await?;
            let (first, last) = (page[0].0, page[page.len() - 1].0);
            if first >= prefix {
                (high, most) = (begin, first);
            } else if last < prefix {
                (low, least) = (begin + page.len() as u64, last);
            } else {
                return Ok(begin + page.partition_point(|(p, _)| *p < prefix) as u64);
            }
        }
        Ok(low)
    }

    async fn entries(&self, index: u64, count: u64) -> Result<Vec<Entry>, LogError> {
        let length = usize::try_from(count).expect("a page is small") * ENTRY_BYTES;
        let bytes = segment::read(&self.file, index * ENTRY_BYTES as u64, length).await?;
        let entry = |mut bytes: &[u8]| Some((take_u64(&mut bytes)?, take_u64(&mut bytes)?));
        Ok(bytes.chunks_exact(ENTRY_BYTES).filter_map(entry).collect())
    }
}

fn trailer<B>(run: &Run<B>) -> Bytes {
    let mut bytes = Vec::with_capacity(TRAILER_BYTES);
    bytes.put_slice(b"SEALKEYS");
    bytes.put_u8(VERSION);
    bytes.put_u64(run.first);
    bytes.put_u64(run.last);
    bytes.put_u64(run.entries);
    let checksum = Crc32::checksum(&bytes);
    bytes.put_u32(checksum);
    bytes.into()
}

/// Writes a run.
struct Writer<B> {
    name: u64,
    file: B,
    written: u64,
    buffer: Vec<u8>,
}

impl<B: Blob> Writer<B> {
    async fn create<E: Runtime<Blob = B>>(context: &E, partition: &str, name: u64) -> Result<Writer<B>, LogError> {
        let (file, _) = context.open(partition, &name.to_be_bytes()).await?;
        file.resize(0).await?;
        Ok(Writer { name, file, written: 0, buffer: Vec::new() })
    }

    async fn push(&mut self, (prefix, height): Entry) -> Result<(), LogError> {
        self.buffer.put_u64(prefix);
        self.buffer.put_u64(height);
        if self.buffer.len() >= PIECE_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), LogError> {
        let bytes = std::mem::take(&mut self.buffer);
        let length = bytes.len() as u64;
        self.file.write_at(self.written, bytes, WriteOptions::default()).await?;
        self.written += length;
        Ok(())
    }

    async fn finish(mut self, first: u64, last: u64) -> Result<Run<B>, LogError> {
        self.flush().await?;
        let entries = self.written / ENTRY_BYTES as u64;
        let run = Run { name: self.name, first, last, entries, file: Arc::new(self.file) };
        run.file.write_at(self.written, trailer(&run), WriteOptions::default()).await?;
        run.file.sync().await?;
        Ok(run)
    }
}

/// Writes the entries of all `parts`, which follow on each other, in order; without those below `low_water_mark`.
async fn merge<E: Runtime>(
    context: &E,
    partition: &str,
    name: u64,
    parts: Vec<Run<E::Blob>>,
    low_water_mark: u64,
) -> Result<Run<E::Blob>, LogError> {
    let (first, last) = (parts[0].first, parts[parts.len() - 1].last);
    let mut writer = Writer::create(context, partition, name).await?;
    let mut readers: Vec<Reader<E::Blob>> = parts.into_iter().map(Reader::new).collect();
    loop {
        let mut least: Option<(Entry, usize)> = None;
        for (i, reader) in readers.iter_mut().enumerate() {
            let Some(entry) = reader.peek().await? else { continue };
            if least.is_none_or(|(other, _)| entry < other) {
                least = Some((entry, i));
            }
        }
        let Some((entry, i)) = least else { break };
        readers[i].page.pop_front();
        if entry.1 >= low_water_mark {
            writer.push(entry).await?;
        }
    }
    writer.finish(first, last).await
}

/// Reads a run from its beginning.
struct Reader<B> {
    run: Run<B>,
    next: u64,
    page: VecDeque<Entry>,
}

impl<B: Blob> Reader<B> {
    fn new(run: Run<B>) -> Reader<B> {
        Reader { run, next: 0, page: VecDeque::new() }
    }

    async fn peek(&mut self) -> Result<Option<Entry>, LogError> {
        if self.page.is_empty() && self.next < self.run.entries {
            let some = (self.run.entries - self.next).min(ENTRIES_AT_ONCE as u64);
            self.page = self.run.entries(self.next, some).await?.into();
            self.next += some;
        }
        Ok(self.page.front().copied())
    }
}

/// The format of a run, named in its trailer.
const VERSION: u8 = 1;
const ENTRY_BYTES: usize = 16;
const TRAILER_BYTES: usize = 8 + 1 + 3 * 8 + 4;
/// Entries of a page of 4 KB.
const PAGE_ENTRIES: u64 = 256;
/// Guesses by interpolation before a search goes on by halves.
const INTERPOLATIONS: u32 = 4;
/// Entries read at once where all are read.
const ENTRIES_AT_ONCE: usize = 4096;
/// Bytes that gather before a write.
const PIECE_BYTES: usize = 1 << 20;
