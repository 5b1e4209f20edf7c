//! A closed file of the log: records, then tables by height, then a trailer. Nothing of it stays in memory but the trailer.
//!
//! ```text
//! file    = "SEALLOG" ‖ version (1) ‖ number (8) ‖ marker (8) ‖ CRC-32 (4)
//!           ‖ record … ‖ table of blocks ‖ table of certificates ‖ ranges of both ‖ trailer
//! table   = entry …, by height
//! entry   = height (8) ‖ offset (8) ‖ length (4) ‖ digest's first 8 bytes (8) ‖ CRC-32 of those (4)
//! range   = first height (8) ‖ last height (8)
//! trailer = "SEALEND" ‖ version (1) ‖ 2 × (count (8) ‖ first (8) ‖ last (8) ‖ table's offset (8) ‖ ranges (4))
//!           ‖ ranges' offset (8) ‖ CRC-32 of ranges (4) ‖ 2 × floor (8) ‖ CRC-32 (4)
//! ```
//! A file that is still written has records only. The trailer is durable before the next file is made, so only the last file
//! may lack it.

use std::sync::Arc;

use bytes::BufMut as _;
use commonware_cryptography::Crc32;
use commonware_runtime::{Blob, ReadOptions};

use super::record::Marker;
use super::{Damage, LogError};

/// Where a record lies in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) offset: u64,
    /// Bytes of the whole record.
    pub(super) length: usize,
    /// The first eight bytes of its digest.
    pub(super) prefix: u64,
}

/// The first bytes of each file.
pub(super) fn header(number: u64, marker: &Marker) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FILE_HEADER_BYTES);
    bytes.put_slice(b"SEALLOG");
    bytes.put_u8(VERSION);
    bytes.put_u64(number);
    bytes.put_slice(marker);
    let checksum = Crc32::checksum(&bytes);
    bytes.put_u32(checksum);
    bytes
}

/// The marker in a file's first bytes.
pub(super) fn read_header(bytes: &[u8], number: u64) -> Result<Marker, Damage> {
    let version = bytes.strip_prefix(b"SEALLOG").and_then(|rest| rest.first());
    if let Some(version) = version.filter(|version| **version != VERSION) {
        return Err(Damage::new(format!("its version is {version}, and this program knows version {VERSION} only")));
    }
    let marker = bytes.get(16..24).and_then(|marker| Marker::try_from(marker).ok());
    let marker = marker.ok_or_else(|| Damage::new("its first bytes are missing"))?;
    if bytes != header(number, &marker) {
        return Err(Damage::new("its first bytes are not those of a log file of this number"));
    }
    Ok(marker)
}

/// What a closed file says of one kind of record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    /// How many heights it has.
    pub(super) count: u64,
    /// The lowest; meaningless without any.
    pub(super) first: u64,
    /// The highest.
    pub(super) last: u64,
    offset: u64,
    ranges: u32,
}

impl Table {
    pub(super) fn may_have(&self, height: u64) -> bool {
        self.count > 0 && (self.first..=self.last).contains(&height)
    }

    fn is_dense(&self) -> bool {
        self.count > 0 && self.last - self.first + 1 == self.count
    }
}

/// A closed file, as its trailer describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closed {
    pub(super) number: u64,
    pub(super) marker: Marker,
    /// Blocks and certificates.
    pub(super) tables: [Table; 2],
    ranges_offset: u64,
    ranges_checksum: u32,
    /// Heights below which blocks and certificates were needed no more when it was closed.
    pub(super) floors: [u64; 2],
}

/// Heights without gaps, both ends included.
pub(super) type Range = (u64, u64);

impl Closed {
    /// The bytes that close a file which ends at `end`, and what they say. `entries` are by height.
    pub(super) fn close(
        number: u64,
        marker: Marker,
        end: u64,
        entries: [&mut dyn Iterator<Item = (u64, Location)>; 2],
        floors: [u64; 2],
    ) -> (Closed, Vec<u8>) {
        let mut bytes = Vec::new();
        let mut tables = [Table::default(); 2];
        let mut all_ranges = Vec::new();
        for (table, entries) in tables.iter_mut().zip(entries) {
            table.offset = end + bytes.len() as u64;
            let mut ranges: Vec<Range> = Vec::new();
            for (height, location) in entries {
                put_entry(&mut bytes, height, &location);
                match ranges.last_mut() {
                    Some((_, last)) if *last + 1 == height => *last = height,
                    _ => ranges.push((height, height)),
                }
                table.count += 1;
            }
            (table.first, table.last) = (ranges.first().map_or(0, |r| r.0), ranges.last().map_or(0, |r| r.1));
            table.ranges = u32::try_from(ranges.len()).expect("a file has fewer records");
            all_ranges.extend(ranges);
        }
        let ranges_offset = end + bytes.len() as u64;
        let mut ranges = Vec::with_capacity(all_ranges.len() * RANGE_BYTES);
        for (first, last) in all_ranges {
            ranges.put_u64(first);
            ranges.put_u64(last);
        }
        let closed =
            Closed { number, marker, tables, ranges_offset, ranges_checksum: Crc32::checksum(&ranges), floors };
        bytes.extend(ranges);
        bytes.extend(closed.trailer());
        (closed, bytes)
    }

    fn trailer(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(TRAILER_BYTES);
        bytes.put_slice(b"SEALEND");
        bytes.put_u8(VERSION);
        for table in &self.tables {
            bytes.put_u64(table.count);
            bytes.put_u64(table.first);
            bytes.put_u64(table.last);
            bytes.put_u64(table.offset);
            bytes.put_u32(table.ranges);
        }
        bytes.put_u64(self.ranges_offset);
        bytes.put_u32(self.ranges_checksum);
        self.floors.iter().for_each(|low_water_mark| bytes.put_u64(*low_water_mark));
        let checksum = Crc32::checksum(&[&bytes[..], &self.marker].concat());
        bytes.put_u32(checksum);
        bytes
    }

    /// Reads the trailer of a file of `size` bytes; `None` if it has none.
    pub(super) fn parse(bytes: &[u8], number: u64, marker: Marker, size: u64) -> Option<Closed> {
        let mut rest = bytes.strip_prefix(b"SEALEND")?.strip_prefix(&[VERSION])?;
        let mut tables = [Table::default(); 2];
        for table in &mut tables {
            *table = Table {
                count: take_u64(&mut rest)?,
                first: take_u64(&mut rest)?,
                last: take_u64(&mut rest)?,
                offset: take_u64(&mut rest)?,
                ranges: take_u32(&mut rest)?,
            };
        }
        let ranges_offset = take_u64(&mut rest)?;
        let ranges_checksum = take_u32(&mut rest)?;
        let floors = [take_u64(&mut rest)?, take_u64(&mut rest)?];
        let closed = Closed { number, marker, tables, ranges_offset, ranges_checksum, floors };
        let ranges = u64::from(tables[0].ranges) + u64::from(tables[1].ranges);
        let end = ranges_offset.checked_add(ranges * RANGE_BYTES as u64)?.checked_add(TRAILER_BYTES as u64)?;
        (bytes == closed.trailer() && end == size).then_some(closed)
    }

    /// The heights that it has of each kind.
    pub(super) async fn ranges<B: Blob>(&self, file: &Arc<B>) -> Result<[Vec<Range>; 2], LogError> {
        if self.tables.iter().all(|table| table.count == 0 || table.is_dense()) {
            let of = |table: &Table| if table.count == 0 { Vec::new() } else { vec![(table.first, table.last)] };
            return Ok([of(&self.tables[0]), of(&self.tables[1])]);
        }
        let counts = self.tables.map(|table| table.ranges as usize);
        let bytes = read(file, self.ranges_offset, (counts[0] + counts[1]) * RANGE_BYTES).await?;
        if Crc32::checksum(&bytes) != self.ranges_checksum {
            return Err(Damage::new("the list of its heights has a false checksum").into());
        }
        let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("a chunk has 8 bytes"));
        let all: Vec<Range> = bytes.chunks_exact(RANGE_BYTES).map(|r| (number(&r[..8]), number(&r[8..]))).collect();
        let (blocks, certificates) = all.split_at(counts[0]);
        Ok([blocks.to_vec(), certificates.to_vec()])
    }

    /// Where it has the record of this height and kind (0 block, 1 certificate).
    ///
    /// Reads one entry if no height is missing, a bounded window if few are, and else bisects.
    pub(super) async fn find<B: Blob>(
        &self,
        file: &Arc<B>,
        kind: usize,
        height: u64,
    ) -> Result<Option<Location>, LogError> {
        let table = &self.tables[kind];
        if !table.may_have(height) {
            return Ok(None);
        }
        // Heights ascend, so the entry is at most as far from each end as its height is.
        let mut low = table.count.saturating_sub(table.last - height + 1);
        let mut high = (height - table.first).min(table.count - 1);
        while low <= high {
            let middle = if high - low < WINDOW { low } else { low + (high - low) / 2 };
            let some = (high - middle + 1).min(WINDOW);
            let entries = self.entries(file, kind, middle, some).await?;
            if let Some((_, location)) = entries.iter().find(|(h, _)| *h == height) {
                return Ok(Some(*location));
            }
            let (first, last) = (entries[0].0, entries[entries.len() - 1].0);
            if height < first {
                let Some(below) = middle.checked_sub(1) else { return Ok(None) };
                high = below;
            } else if height > last {
                low = middle + some;
            } else {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Entries of a table from `index` on, by height.
    pub(super) async fn entries<B: Blob>(
        &self,
        file: &Arc<B>,
        kind: usize,
        index: u64,
        count: u64,
    ) -> Result<Vec<(u64, Location)>, LogError> {
        let offset = self.tables[kind].offset + index * ENTRY_BYTES as u64;
        let bytes = read(file, offset, usize::try_from(count).expect("a window is small") * ENTRY_BYTES).await?;
        let entries: Option<Vec<_>> = bytes.chunks_exact(ENTRY_BYTES).map(entry).collect();
        entries
            .ok_or_else(|| Damage::new(format!("an entry of its table at byte {offset} has a false checksum")).into())
    }
}

/// Reads so many bytes.
pub(super) async fn read<B: Blob>(file: &Arc<B>, offset: u64, length: usize) -> Result<bytes::Bytes, LogError> {
    Ok(bytes::Bytes::from(file.read_at(offset, length, ReadOptions::default()).await?.coalesce().freeze()))
}

fn put_entry(bytes: &mut Vec<u8>, height: u64, location: &Location) {
    let begin = bytes.len();
    bytes.put_u64(height);
    bytes.put_u64(location.offset);
    bytes.put_u32(u32::try_from(location.length).expect("a record is bounded far below 2^32"));
    bytes.put_u64(location.prefix);
    let checksum = Crc32::checksum(&bytes[begin..]);
    bytes.put_u32(checksum);
}

fn entry(bytes: &[u8]) -> Option<(u64, Location)> {
    let (content, checksum) = bytes.split_last_chunk::<4>()?;
    let mut rest = content;
    let height = take_u64(&mut rest)?;
    let (offset, length, prefix) = (take_u64(&mut rest)?, take_u32(&mut rest)? as usize, take_u64(&mut rest)?);
    let location = Location { offset, length, prefix };
    (Crc32::checksum(content) == u32::from_be_bytes(*checksum)).then_some((height, location))
}

pub(super) fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    let (number, after) = rest.split_first_chunk::<8>()?;
    *rest = after;
    Some(u64::from_be_bytes(*number))
}

pub(super) fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    let (number, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    Some(u32::from_be_bytes(*number))
}

/// The format of a file, named in its first and in its last bytes.
const VERSION: u8 = 1;
/// Bytes before the first record.
pub(super) const FILE_HEADER_BYTES: usize = 7 + 1 + 8 + 8 + 4;
/// Bytes of one entry of a table.
const ENTRY_BYTES: usize = 8 + 8 + 4 + 8 + 4;
const RANGE_BYTES: usize = 16;
/// Bytes of the trailer.
pub(super) const TRAILER_BYTES: usize = 7 + 1 + 2 * (8 + 8 + 8 + 8 + 4) + 8 + 4 + 2 * 8 + 4;
/// Entries read at once: 4 KB.
const WINDOW: u64 = 128;
