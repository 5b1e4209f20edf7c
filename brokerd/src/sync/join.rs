//! Beginning with a snapshot, because the others have pruned the blocks that would be next.
//!
//! ```text
//! joining/state     filled row by row; whatever is found here at a start without `ready` is thrown away
//! joining/snapshot  the same rows as a file, to be offered to others
//! joining/ready     all of it is verified and durable: from here on it takes the place of what was there
//! ```
//! Nothing of the broker's own is touched before all rows came to a root that f + 1 brokers signed. Whoever serves false
//! ones is passed over for the next.

use std::cmp::Reverse;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rand_core::Rng;
use sealcast_broker::protocol::{Answer, History, Query};
use sealcast_broker::state::{Restore, SnapshotHead, Store};
use sealcast_order::StartCertificate;
use sealcast_wire::limits;
use tracing::{info, warn};

use super::file::{Rows, Snapshots, rows_bytes};
use super::peers::{Others, Source, left_behind};
use super::retention::START_CERTIFICATE_SEARCH;
use super::votes::Votes;
use crate::store::{Lsm, Memory};

/// The folders that a beginning has to do with.
pub(crate) struct JoinFolders {
    pub(crate) joining: PathBuf,
    pub(crate) state: PathBuf,
    pub(crate) snapshots: PathBuf,
    pub(crate) votes: Votes,
}

/// A snapshot that another broker offers.
struct SnapshotSource {
    broker: u16,
    head: SnapshotHead,
    /// Where the order begins.
    start_certificate: StartCertificate,
}

/// What came of looking whether others have pruned what this broker lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// They have not, or nobody is to be waited for any more.
    Needless,
    /// With a snapshot that was taken.
    Joined,
    /// They have, and none has a sound snapshot.
    Nowhere,
}

/// Sees to it that the broker's state is one that the others' blocks follow on; where the order begins, if not at the
/// first block. `is_start_certificate` says whether the order would begin there; `rng` decides between brokers that offer the same.
///
/// # Errors
/// The disk.
pub(crate) fn prepare(
    place: &JoinFolders,
    others: &impl Others,
    is_start_certificate: &dyn Fn(&StartCertificate) -> bool,
    rng: &mut impl Rng,
) -> io::Result<Option<StartCertificate>> {
    place.settle()?;
    let passed_over = |broker, e| warn!("the snapshot of broker {broker} is not begun with: {e}");
    let take = |offered: &SnapshotSource| {
        place.votes.doubt()?;
        place.take(others, offered, is_start_certificate)
    };
    match begin(others, height_in(&place.state)?, rng, take, passed_over)? {
        Begun::Needless => {}
        Begun::Joined => {
            place.settle()?;
            info!("begun with a snapshot of block {}", height_in(&place.state)?);
        }
        Begun::Nowhere => {
            warn!("the others have pruned the blocks that this broker lacks, and none has a sound snapshot yet");
        }
    }
    place.start_certificate()
}

/// What a broker begins with.
pub struct Joined {
    /// Its rows.
    pub rows: Memory,
    /// The same as a snapshot, to be offered to others.
    pub snapshots: Snapshots,
    /// Where its order begins.
    pub start_certificate: StartCertificate,
    /// The block after which that is the state.
    pub height: u64,
    /// That state's root.
    pub root: [u8; 32],
}

/// What `prepare` does at a start, for a broker in a simulation that has nothing; `None` if there is no sound snapshot, or
/// no need of one. `passed_over` is told whose is not begun with, and why.
///
/// # Errors
/// The storage.
pub fn join(
    others: &impl Others,
    is_start_certificate: &dyn Fn(&StartCertificate) -> bool,
    rng: &mut impl Rng,
    passed_over: impl FnMut(u16, io::Error),
) -> io::Result<Option<Joined>> {
    let mut joined = None;
    let take = |offered: &SnapshotSource| -> io::Result<()> {
        let (rows, snapshots) = (Memory::default(), Snapshots::in_memory());
        let store = fetch(others, offered, is_start_certificate, || Ok(Lsm::from(rows.clone())))?;
        store.sync().map_err(io::Error::other)?;
        snapshots.write(&offered.head, &offered.start_certificate, sealcast_broker::state::elements(&store))?;
        let (start_certificate, height) = (offered.start_certificate.clone(), offered.head.height());
        let root = offered.head.root(&others.genesis().cluster());
        joined = Some(Joined { rows, snapshots, start_certificate, height, root });
        Ok(())
    };
    begin(others, 0, rng, take, passed_over)?;
    Ok(joined)
}

/// Has `take` try what others offer until it succeeds, if they have pruned what follows on this height.
fn begin(
    others: &impl Others,
    height: u64,
    rng: &mut impl Rng,
    mut take: impl FnMut(&SnapshotSource) -> io::Result<()>,
    mut passed_over: impl FnMut(u16, io::Error),
) -> io::Result<Begun> {
    let histories = others.histories();
    if !left_behind(&histories, others.faulty(), height) {
        return Ok(Begun::Needless);
    }
    let mut offers: Vec<SnapshotSource> = histories.into_iter().filter_map(SnapshotSource::of).collect();
    offers.retain(|it| it.head.height() > height);
    let heights: Vec<u64> = offers.iter().map(|it| it.head.height()).collect();
    for turn in turns(&heights, others.faulty(), rng) {
        let offered = &offers[turn];
        if others.has_ended() {
            return Ok(Begun::Needless);
        }
        match take(offered) {
            Ok(()) => return Ok(Begun::Joined),
            Err(e) if e.kind() == io::ErrorKind::StorageFull => return Err(e),
            Err(e) => passed_over(offered.broker, e),
        }
    }
    Ok(Begun::Nowhere)
}

/// In which order offers of these heights are tried. First those that more than `faulty` brokers make, so that one of
/// them is honest; of these the newest. Among equals chance decides: a broker that is slow on purpose is not met first at
/// each start.
pub(super) fn turns(heights: &[u64], faulty: usize, rng: &mut impl Rng) -> Vec<usize> {
    let is_rare = |height: &u64| heights.iter().filter(|it| *it == height).count() <= faulty;
    let mut turns: Vec<_> = heights
        .iter()
        .enumerate()
        .map(|(offered, height)| (is_rare(height), Reverse(*height), rng.next_u64(), offered))
        .collect();
    turns.sort_unstable();
    turns.into_iter().map(|(.., offered)| offered).collect()
}

/// The store with all rows of an offered snapshot, if f + 1 brokers signed that state and a quorum made its start final.
/// `empty` gives the store, which is to be thrown away if that fails.
fn fetch<S: Store>(
    others: &impl Others,
    offered: &SnapshotSource,
    is_start_certificate: &dyn Fn(&StartCertificate) -> bool,
    empty: impl FnOnce() -> io::Result<S>,
) -> io::Result<S> {
    let SnapshotSource { broker, head, start_certificate } = offered;
    let height = head.height();
    let is_near = height.checked_sub(start_certificate.height).is_some_and(|below| below <= START_CERTIFICATE_SEARCH);
    if !is_near || !is_start_certificate(start_certificate) {
        return Err(wrong("no quorum made its block final"));
    }
    let root = others.state_root(height).ok_or_else(|| wrong("f + 1 brokers do not testify to any"))?;
    let begun = Restore::begin(&others.genesis().cluster(), head.clone(), &root, empty()?);
    let restore = begun.map_err(|_| wrong("it is not the state that f + 1 brokers signed"))?;
    let length = rows_bytes(head);
    let source = others.source(*broker, length)?;
    Coming { source, height, offset: 0, rows: Rows::default() }.fill(restore, length)
}

impl SnapshotSource {
    fn of((broker, history): (u16, History)) -> Option<SnapshotSource> {
        let snapshot = history.snapshot?;
        let head = SnapshotHead::from_bytes(&snapshot.head)?;
        let start_certificate = StartCertificate {
            height: snapshot.start_height,
            certificate: snapshot.certificate,
            header: snapshot.header,
        };
        Some(SnapshotSource { broker, head, start_certificate })
    }
}

impl JoinFolders {
    /// Fills `joining`.
    fn take(
        &self,
        others: &impl Others,
        offered: &SnapshotSource,
        is_start_certificate: &dyn Fn(&StartCertificate) -> bool,
    ) -> io::Result<()> {
        let store = fetch(others, offered, is_start_certificate, || {
            remove(&self.joining)?;
            Lsm::open(&self.state_of_joining()).map_err(io::Error::other)
        })?;
        store.sync().map_err(io::Error::other)?;
        let written = Snapshots::open(&self.snapshot_of_joining())?;
        written.write(&offered.head, &offered.start_certificate, sealcast_broker::state::elements(&store))?;
        drop(store);
        sync_folder(&self.joining)?;
        File::create(self.ready())?.sync_all()?;
        sync_folder(&self.joining)
    }

    /// Ends what a crash may have left half done: forwards if all was ready, backwards if not.
    fn settle(&self) -> io::Result<()> {
        if !fs::exists(self.ready())? {
            return remove(&self.joining);
        }
        let (state, snapshot) = (self.state_of_joining(), self.snapshot_of_joining());
        if fs::exists(&state)? {
            remove(&self.state)?;
            fs::rename(state, &self.state)?;
        }
        if fs::exists(&snapshot)? {
            remove(&self.snapshots)?;
            fs::rename(snapshot, &self.snapshots)?;
        }
        let folder = self.state.parent().expect("it lies in the broker's folder");
        sync_folder(folder)?;
        fs::remove_file(self.ready())?;
        sync_folder(&self.joining)?;
        remove(&self.joining)
    }

    /// Where the order begins for a state that has no block below its start. What the order has itself counts before it.
    fn start_certificate(&self) -> io::Result<Option<StartCertificate>> {
        if !fs::exists(&self.state)? {
            return Ok(None);
        }
        let store = Lsm::open(&self.state).map_err(io::Error::other)?;
        let height = sealcast_broker::state::LowWaterMark::of(&store).map_err(io::Error::other)?.height;
        let opened = Snapshots::open(&self.snapshots)?.read(height);
        Ok(opened.ok().map(|it| it.start_certificate).filter(|it| !it.certificate.is_empty()))
    }

    fn state_of_joining(&self) -> PathBuf {
        self.joining.join("state")
    }

    fn snapshot_of_joining(&self) -> PathBuf {
        self.joining.join("snapshots")
    }

    fn ready(&self) -> PathBuf {
        self.joining.join("ready")
    }
}

/// Rows on their way from a broker.
struct Coming<'a> {
    source: Source<'a>,
    height: u64,
    offset: u64,
    rows: Rows,
}

impl Coming<'_> {
    /// Takes all rows of so many bytes. Each part is as long as may be: many small ones would take for ever.
    fn fill<S: Store>(mut self, mut restore: Restore<S>, length: u64) -> io::Result<S> {
        while self.offset < length {
            let whole = (length - self.offset).min(limits::SNAPSHOT_PART_BYTES as u64);
            let part = match (self.source)(Query::Part { height: self.height, offset: self.offset })? {
                Answer::Part(part) if part.len() as u64 == whole => part,
                _ => return Err(wrong("it breaks off")),
            };
            self.offset += whole;
            self.rows.push(&part);
            while let Some((key, value)) = self.rows.next()? {
                restore.row(key, value).map_err(io::Error::other)?;
            }
        }
        if !self.rows.is_empty() {
            return Err(wrong("it has rows that are none"));
        }
        restore.finish().map_err(io::Error::other)
    }
}

/// How far the state in a folder has come; 0 without one.
pub(crate) fn height_in(state: &Path) -> io::Result<u64> {
    if !fs::exists(state)? {
        return Ok(0);
    }
    let store = Lsm::open(state).map_err(io::Error::other)?;
    sealcast_broker::state::height(&store).map_err(io::Error::other)
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
