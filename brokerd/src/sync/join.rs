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
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rand_core::Rng;
use sealcast_broker::protocol::{Answer, Offer, Question};
use sealcast_broker::state::{Restore, SnapshotHead};
use sealcast_order::Floor;
use sealcast_wire::limits;

use super::file::{Rows, Snapshots, rows_bytes};
use super::peers::{Peers, left_behind};
use super::retention::FLOOR_SEARCHED;
use crate::channel::Channel;
use crate::log;
use crate::store::Lsm;

/// The folders that a beginning has to do with.
pub(crate) struct Place {
    pub(crate) joining: PathBuf,
    pub(crate) state: PathBuf,
    pub(crate) snapshots: PathBuf,
}

/// Sees to it that the broker's state is one that the others' blocks follow on; where the order begins, if not at the
/// first block. `is_floor` says whether the order would begin there; `rng` decides between brokers that offer the same.
///
/// # Errors
/// The disk.
pub(crate) fn prepare(
    place: &Place,
    peers: &Peers<'_>,
    is_floor: &dyn Fn(&Floor) -> bool,
    rng: &mut impl Rng,
) -> io::Result<Option<Floor>> {
    place.settle()?;
    let height = height_in(&place.state)?;
    let histories = peers.histories();
    if left_behind(&histories, peers.faulty(), height) {
        let mut offers: Vec<(SnapshotHead, u16, Offer)> = Vec::new();
        for (broker, history) in histories {
            let offer = history.snapshot;
            let head = offer.as_ref().and_then(|it| SnapshotHead::from_bytes(&it.head));
            offers.extend(head.zip(offer).map(|(head, offer)| (head, broker, offer)));
        }
        offers.retain(|(head, ..)| head.height() > height);
        let heights: Vec<u64> = offers.iter().map(|(head, ..)| head.height()).collect();
        let mut joined = false;
        for turn in turns(&heights, peers.faulty(), rng) {
            let (head, broker, offer) = offers[turn].clone();
            if peers.end.load(Ordering::Acquire) {
                return place.floor();
            }
            let floor = Floor { height: offer.floor, certificate: offer.certificate, header: offer.header };
            match place.take(peers, broker, head, &floor, is_floor) {
                Ok(()) => {
                    joined = true;
                    break;
                }
                Err(e) if e.kind() == io::ErrorKind::StorageFull => return Err(e),
                Err(e) => log::warn(&format!("the snapshot of broker {broker} is not begun with: {e}")),
            }
        }
        if joined {
            place.settle()?;
            log::info(&format!("begun with a snapshot of block {}", height_in(&place.state)?));
        } else {
            log::warn("the others have pruned the blocks that this broker lacks, and none has a sound snapshot yet");
        }
    }
    place.floor()
}

/// In which order offers of these heights are tried. First those that more than `faulty` brokers make, so that one of
/// them is honest; of these the newest. Among equals chance decides: a broker that is slow on purpose is not met first at
/// each start.
pub(super) fn turns(heights: &[u64], faulty: usize, rng: &mut impl Rng) -> Vec<usize> {
    let is_rare = |height: &u64| heights.iter().filter(|it| *it == height).count() <= faulty;
    let mut turns: Vec<_> = heights
        .iter()
        .enumerate()
        .map(|(offer, height)| (is_rare(height), Reverse(*height), rng.next_u64(), offer))
        .collect();
    turns.sort_unstable();
    turns.into_iter().map(|(.., offer)| offer).collect()
}

impl Place {
    /// Fills `joining`.
    fn take(
        &self,
        peers: &Peers<'_>,
        broker: u16,
        head: SnapshotHead,
        floor: &Floor,
        is_floor: &dyn Fn(&Floor) -> bool,
    ) -> io::Result<()> {
        let height = head.height();
        let is_near = height.checked_sub(floor.height).is_some_and(|below| below <= FLOOR_SEARCHED);
        if !is_near || !is_floor(floor) {
            return Err(wrong("no quorum made its block final"));
        }
        let root = peers.state_root(height).ok_or_else(|| wrong("f + 1 brokers do not testify to any"))?;
        remove(&self.joining)?;
        let store = Lsm::open(&self.state_of_joining()).map_err(io::Error::other)?;
        let begun = Restore::begin(&peers.cluster.cluster(), head.clone(), &root, store);
        let restore = begun.map_err(|_| wrong("it is not the state that f + 1 brokers signed"))?;
        let length = rows_bytes(&head);
        let channel = peers.open(broker, limits::SNAPSHOT_PART_PATIENCE, Instant::now() + allowed(length))?;
        let coming = Coming { channel, height, offset: 0, rows: Rows::default() };
        let store = coming.fill(restore, length)?;
        store.sync().map_err(io::Error::other)?;
        let written = Snapshots::open(&self.snapshot_of_joining())?;
        written.write(&head, floor, sealcast_broker::state::elements(&store))?;
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

    /// Where the order begins for a state that has no block below its floor. What the order has itself counts before it.
    fn floor(&self) -> io::Result<Option<Floor>> {
        if !fs::exists(&self.state)? {
            return Ok(None);
        }
        let store = Lsm::open(&self.state).map_err(io::Error::other)?;
        let height = sealcast_broker::state::Floor::of(&store).map_err(io::Error::other)?.height;
        let opened = Snapshots::open(&self.snapshots)?.read(height);
        Ok(opened.ok().map(|it| it.floor).filter(|it| !it.certificate.is_empty()))
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
struct Coming {
    channel: Channel,
    height: u64,
    offset: u64,
    rows: Rows,
}

impl Coming {
    /// Takes all rows of so many bytes. Each part is as long as may be: many small ones would take for ever.
    fn fill(mut self, mut restore: Restore<Lsm>, length: u64) -> io::Result<Lsm> {
        while self.offset < length {
            let whole = (length - self.offset).min(limits::SNAPSHOT_PART_BYTES as u64);
            let part = match self.channel.ask(Question::Part { height: self.height, offset: self.offset })? {
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

/// How long a snapshot of so many bytes may take. The length is the one that f + 1 brokers signed.
fn allowed(length: u64) -> Duration {
    limits::SNAPSHOT_PART_PATIENCE + Duration::from_secs(length / limits::SNAPSHOT_BYTES_PER_SECOND_MIN)
}

/// How far the state in a folder has come; 0 without one.
fn height_in(state: &Path) -> io::Result<u64> {
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
