//! Opening the log: closed files by their trailers, the active one by reading its records.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use commonware_runtime::{Blob, Error};

use super::digests::Digests;
use super::heights::Heights;
use super::record::{self, Head, Kind, Marker};
use super::segment::{self, Closed, FILE_HEADER_BYTES, TRAILER_BYTES};
use super::{Active, Damage, Log, LogError, Opened, Runtime, Sizes, file_path, table_of};

pub(super) async fn open<E: Runtime>(mut context: E, disk: &str, sizes: Sizes) -> Result<Opened<E>, LogError> {
    let partition = format!("{disk}log");
    let numbers = numbers(&context, &partition).await?;
    let mut heights = [Heights::default(), Heights::default()];
    let mut floors = [0; 2];
    let mut closed = Vec::new();
    let mut active = None;
    for (i, number) in numbers.iter().copied().enumerate() {
        let is_last = i + 1 == numbers.len();
        let (file, size) =
            context.open(&partition, &number.to_be_bytes()).await.map_err(|e| named(e, &partition, number))?;
        let found = read_file(Arc::new(file), number, size, is_last).await;
        match found.map_err(|e| e.named(&partition, number))? {
            Found::Closed(trailer, ranges) => {
                for (heights, ranges) in heights.iter_mut().zip(ranges) {
                    ranges.into_iter().for_each(|range| heights.insert(range));
                }
                floors = [floors[0].max(trailer.floors[0]), floors[1].max(trailer.floors[1])];
                closed.push(trailer);
            }
            Found::Active(file, below) => {
                for (heights, locations) in heights.iter_mut().zip(&file.locations) {
                    locations.keys().for_each(|height| heights.insert((*height, *height)));
                }
                floors = [floors[0].max(below[0]), floors[1].max(below[1])];
                active = Some(file);
            }
            Found::Nothing => {}
        }
    }
    let active = match active {
        Some(active) => active,
        None => {
            let next = closed.last().map_or(0, |last: &Closed| last.number + 1);
            Active::create(&mut context, &partition, next).await?
        }
    };
    heights.iter_mut().zip(floors).for_each(|(heights, low_water_mark)| heights.remove_below(low_water_mark));
    let mut files = VecDeque::new();
    let digests = Digests::open(context.child("digests"), disk, &partition, &closed, &mut files).await?;
    let log = Log { context, partition, sizes, closed, active, files, digests, floors };
    Ok(Opened { log, heights })
}

/// The numbers of the log's files, which follow on each other.
async fn numbers<E: Runtime>(context: &E, partition: &str) -> Result<Vec<u64>, LogError> {
    let names = match context.scan(partition).await {
        Ok(names) => names,
        Err(Error::PartitionMissing(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let number = |name: &Vec<u8>| <[u8; 8]>::try_from(&name[..]).map(u64::from_be_bytes).ok();
    let numbers: Option<Vec<u64>> = names.iter().map(number).collect();
    let alien = || Damage { file: partition.to_string(), what: "it holds files that are not the log's".into() };
    let mut numbers = numbers.ok_or_else(alien)?;
    numbers.sort_unstable();
    match numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]) {
        Some(pair) => Err(Damage { file: file_path(partition, pair[0] + 1), what: "it is missing".into() }.into()),
        None => Ok(numbers),
    }
}

/// What a file is found to be.
enum Found<B> {
    Closed(Closed, [Vec<segment::Range>; 2]),
    /// With the floors in it.
    Active(Active<B>, [u64; 2]),
    /// It was being made.
    Nothing,
}

async fn read_file<B: Blob>(file: Arc<B>, number: u64, size: u64, is_last: bool) -> Result<Found<B>, LogError> {
    let header = if size >= FILE_HEADER_BYTES as u64 {
        segment::read_header(&segment::read(&file, 0, FILE_HEADER_BYTES).await?, number)
    } else {
        Err(Damage::new("it was cut short"))
    };
    // The first bytes of a file are durable before the first record is written.
    let marker = match header {
        Ok(marker) => marker,
        Err(_) if is_last && size <= FILE_HEADER_BYTES as u64 => return Ok(Found::Nothing),
        Err(damage) => return Err(damage.into()),
    };
    if let Some(begin) = size.checked_sub(TRAILER_BYTES as u64).filter(|begin| *begin >= FILE_HEADER_BYTES as u64) {
        let trailer = segment::read(&file, begin, TRAILER_BYTES).await?;
        if let Some(closed) = Closed::parse(&trailer, number, marker, size) {
            let ranges = closed.ranges(&file).await?;
            return Ok(Found::Closed(closed, ranges));
        }
    }
    if !is_last {
        return Err(Damage::new("its end is missing or was changed").into());
    }
    let (active, floors) = replay(file, number, marker, size).await?;
    Ok(Found::Active(active, floors))
}

/// Reads the records of a file that was not closed, and cuts off what was being written.
async fn replay<B: Blob>(
    file: Arc<B>,
    number: u64,
    marker: Marker,
    size: u64,
) -> Result<(Active<B>, [u64; 2]), LogError> {
    let mut window = Window { file: file.clone(), size, begin: 0, bytes: Bytes::new() };
    let mut active = Active::at(number, marker, file, FILE_HEADER_BYTES as u64);
    let mut floors = [0; 2];
    let mut durable = 0;
    let mut offset = FILE_HEADER_BYTES as u64;
    while let Some((head, body)) = window.record(offset, &marker).await? {
        durable = durable.max(head.durable);
        if head.kind == Kind::LowWaterMark {
            let kind = body.first().and_then(|byte| Kind::of(*byte)).filter(|kind| *kind != Kind::LowWaterMark);
            let kind = kind.ok_or_else(|| Damage::new("a floor in it is of no kind that is known"))?;
            let low_water_mark = &mut floors[table_of(kind)];
            *low_water_mark = (*low_water_mark).max(head.height);
        }
        active.remember(head.kind, head.height, &head.digest, offset, head.record_bytes());
        offset += head.record_bytes() as u64;
    }
    if offset < size {
        if window.is_durable_behind(offset, &marker).await? {
            let what = format!("the record at byte {offset} was changed, and records behind it were not");
            return Err(Damage::new(what).into());
        }
        active.file.resize(offset).await?;
        active.file.sync().await?;
    }
    if durable > offset {
        return Err(Damage::new("it was cut short").into());
    }
    active.written = offset;
    active.durable = Arc::new(offset.into());
    Ok((active, floors))
}

/// A file read forward in large pieces.
struct Window<B> {
    file: Arc<B>,
    size: u64,
    begin: u64,
    bytes: Bytes,
}

impl<B: Blob> Window<B> {
    /// So many bytes from `offset` on; fewer at the end of the file.
    async fn read(&mut self, offset: u64, length: usize) -> Result<Bytes, LogError> {
        let length = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(length);
        let held = |w: &Window<B>| {
            let from = usize::try_from(offset.checked_sub(w.begin)?).ok()?;
            (from + length <= w.bytes.len()).then(|| w.bytes.slice(from..from + length))
        };
        if let Some(bytes) = held(self) {
            return Ok(bytes);
        }
        let some = u64::max(length as u64, PIECE_BYTES).min(self.size - offset);
        self.bytes = segment::read(&self.file, offset, usize::try_from(some).expect("a piece fits memory")).await?;
        self.begin = offset;
        Ok(self.bytes.slice(..length))
    }

    /// The whole record at `offset`, if there is one.
    async fn record(&mut self, offset: u64, marker: &Marker) -> Result<Option<(Head, Bytes)>, LogError> {
        let Some(head) = Head::parse(&self.read(offset, record::HEAD_BYTES).await?, marker) else { return Ok(None) };
        let bytes = self.read(offset, head.record_bytes()).await?;
        let body = |head: Head| (head, bytes.slice(record::HEAD_BYTES..record::HEAD_BYTES + head.length));
        Ok(record::check(&bytes, marker).map(body))
    }

    /// Whether a record behind `offset` was appended when `offset` was durable already: then what is bad there is damage.
    async fn is_durable_behind(&mut self, offset: u64, marker: &Marker) -> Result<bool, LogError> {
        let mut at = offset + 1;
        while at < self.size {
            let piece = self.read(at, usize::try_from(PIECE_BYTES).expect("a piece fits memory")).await?;
            for i in piece.windows(marker.len()).enumerate().filter(|(_, it)| it == marker).map(|(i, _)| i as u64) {
                let record = self.record(at + i, marker).await?;
                if record.is_some_and(|(head, _)| head.durable > offset) {
                    return Ok(true);
                }
            }
            // A marker may lie across two pieces.
            at += (piece.len() as u64).saturating_sub(marker.len() as u64 - 1).max(1);
        }
        Ok(false)
    }
}

fn named(error: Error, partition: &str, number: u64) -> LogError {
    LogError::from(error).named(partition, number)
}

/// Bytes read at once.
const PIECE_BYTES: u64 = 1 << 20;
