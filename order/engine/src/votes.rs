//! Whether the journal of votes holds what was written to it, looked at before upstream opens it.
//!
//! Upstream cuts a journal off at the first page whose checksum fails and goes on. After a crash that is right: what was
//! not yet synced was not yet sent. But a damaged disk forgets votes that others have heard, and a broker that votes
//! again in those views contradicts itself (E16). The two differ:
//!
//! ```text
//! simplex/VIEW     header, 4,096 bytes ‖ page … ; one file per view, VIEW as 16 hex digits
//! page             data, 4,084 bytes ‖ (u16 length ‖ u32 CRC-32C of so much of the data), twice
//! votes-closed     "VIEW SHA-256" per line: the journal as a graceful end left it
//! ```
//! * After a graceful end every file must be what `close` saw. That finds any change, also in what was written last.
//! * After a crash of the process the kernel still writes whole pages. After a loss of power a page that was not synced
//!   may lack sectors: they are as before, and before the first write all of them are zero. A rewritten page keeps the
//!   bytes and the checksum of its last synced contents. So a page that fails both checksums is torn if it lacks a
//!   sector of its data or its checksums, and nothing valid follows it; otherwise it is damaged.
//! * Files grow by whole pages, so a length that is no multiple of them was cut. Each view is synced before a later one
//!   is begun: a page that lacks sectors is damage in all files but the newest.
//!
//! * Each block has a view of its own, and is executed when the journal knows its view: a journal whose newest view is
//!   below the height of the last executed block has lost its end.
//!
//! After a crash, whole pages or files lost at the end cannot be told from a crash a moment earlier, unless so many are
//! missing that the last rule finds it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use commonware_cryptography::{Crc32, Hasher as _, Sha256};
use sealcast_order::consensus::DamagedVotes;

/// Looks at the journal of votes in an engine's folder while no engine runs there; `None` if it is sound. `executed` is
/// the height of the last block that the application has executed.
///
/// # Errors
/// The disk.
pub(super) fn check(folder: &Path, executed: u64) -> io::Result<Option<DamagedVotes>> {
    let sections = sections(folder)?;
    if let Some(closed) = closed(folder)? {
        let Ok(closed) = closed else {
            return Ok(Some(DamagedVotes { file: folder.join(CLOSED), what: "it cannot be read".to_owned() }));
        };
        let differs = |view: &u64| match sections.get(view) {
            None => Ok(Some("it is gone".to_owned())),
            Some(file) if hash(file)? != closed[view] => Ok(Some("it has changed since the broker ended".to_owned())),
            Some(_) => Ok::<_, io::Error>(None),
        };
        for view in closed.keys() {
            if let Some(what) = differs(view)? {
                return Ok(Some(DamagedVotes { file: path(folder, *view), what }));
            }
        }
        return Ok(None);
    }
    let newest = sections.keys().next_back();
    for (view, file) in &sections {
        if let Some(what) = damage(&fs::read(file)?, Some(view) == newest) {
            return Ok(Some(DamagedVotes { file: file.clone(), what: what.to_owned() }));
        }
    }
    if newest.copied().unwrap_or(0) < executed {
        let what = format!("the votes of the last views are gone, and block {executed} is executed");
        return Ok(Some(DamagedVotes { file: folder.join(PARTITION), what }));
    }
    Ok(None)
}

/// Removes the journal of votes, so that the engine begins without one.
///
/// # Errors
/// The disk.
pub(super) fn forget(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder.join(PARTITION)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    open(folder)
}

/// Writes down what the journal is at a graceful end. The engine has ended.
pub(super) fn close(folder: &Path) -> io::Result<()> {
    let mut text = String::new();
    for (view, file) in sections(folder)? {
        text += &format!("{view:016x} {}\n", hash(&file)?);
    }
    let new = folder.join(format!("{CLOSED}.new"));
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, folder.join(CLOSED))?;
    File::open(folder)?.sync_all()
}

/// What [`close`] wrote holds no longer: the engine is about to write.
pub(super) fn open(folder: &Path) -> io::Result<()> {
    match fs::remove_file(folder.join(CLOSED)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.and_then(|()| File::open(folder)?.sync_all()),
    }
}

/// The journal's files by view.
fn sections(folder: &Path) -> io::Result<BTreeMap<u64, PathBuf>> {
    let files = match fs::read_dir(folder.join(PARTITION)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        files => files?,
    };
    let mut sections = BTreeMap::new();
    for file in files {
        let file = file?;
        let view = file.file_name().to_str().and_then(|name| u64::from_str_radix(name, 16).ok());
        sections.extend(view.map(|view| (view, file.path())));
    }
    Ok(sections)
}

fn path(folder: &Path, view: u64) -> PathBuf {
    folder.join(PARTITION).join(format!("{view:016x}"))
}

/// What [`close`] wrote, if it did; `Malformed` if it is not that.
fn closed(folder: &Path) -> io::Result<Option<Result<BTreeMap<u64, String>, Malformed>>> {
    let bytes = match fs::read(folder.join(CLOSED)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes?,
    };
    let text = String::from_utf8_lossy(&bytes);
    let line = |line: &str| {
        let (view, hash) = line.split_once(' ')?;
        Some((u64::from_str_radix(view, 16).ok()?, hash.to_owned()))
    };
    let lines: Option<BTreeMap<u64, String>> = text.lines().map(line).collect();
    Ok(Some(lines.ok_or(Malformed)))
}

struct Malformed;

fn hash(file: &Path) -> io::Result<String> {
    let bytes = fs::read(file)?;
    Ok(Sha256::hash(&[&bytes]).0.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What is wrong with a file of the journal after a crash, if anything is.
fn damage(bytes: &[u8], newest: bool) -> Option<&'static str> {
    if !bytes.len().is_multiple_of(PAGE) {
        return Some("it was cut off");
    }
    let Some(pages) = bytes.get(PAGE..) else {
        // Its creation was not synced.
        return (!newest).then_some("it is empty");
    };
    if !newest && pages.is_empty() {
        return Some("its votes are gone");
    }
    let pages: Vec<&[u8]> = pages.chunks_exact(PAGE).collect();
    let last_valid = pages.iter().rposition(|page| is_valid(page));
    for (place, page) in pages.iter().enumerate().filter(|(_, page)| !is_valid(page)) {
        if last_valid.is_some_and(|valid| valid > place) {
            return Some("a page in its middle fails its checksum");
        }
        if !is_torn(page) || (!newest && place == 0) {
            return Some("a page fails its checksum");
        }
    }
    None
}

/// Whether one of a page's checksums holds.
fn is_valid(page: &[u8]) -> bool {
    checksums(page)
        .into_iter()
        .any(|(length, crc)| (1..=DATA).contains(&length) && Crc32::checksum(&page[..length]) == crc)
}

/// Whether a page that fails its checksums lacks a sector which its first write would have filled.
fn is_torn(page: &[u8]) -> bool {
    let length = checksums(page).into_iter().map(|(length, _)| length).max().unwrap_or(0);
    let mut sectors = page[..length.min(DATA)].chunks(SECTOR);
    length == 0 || sectors.any(|sector| sector.iter().all(|byte| *byte == 0))
}

fn checksums(page: &[u8]) -> [(usize, u32); 2] {
    [DATA, DATA + 6].map(|at| {
        let length = u16::from_be_bytes([page[at], page[at + 1]]);
        (usize::from(length), u32::from_be_bytes([page[at + 2], page[at + 3], page[at + 4], page[at + 5]]))
    })
}

/// Where upstream keeps the journal, and what [`close`] writes beside it.
const PARTITION: &str = "simplex";
const CLOSED: &str = "votes-closed";
/// Bytes of a header, and of a page as it lies on the disk.
const PAGE: usize = 4096;
/// Bytes of a page's data.
const DATA: usize = PAGE - 12;
/// Bytes that a disk writes whole.
const SECTOR: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn page(data: &[u8]) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        page[..data.len()].copy_from_slice(data);
        page[DATA..DATA + 2].copy_from_slice(&u16::try_from(data.len()).expect("a page").to_be_bytes());
        page[DATA + 2..DATA + 6].copy_from_slice(&Crc32::checksum(data).to_be_bytes());
        page
    }

    fn file(pages: &[Vec<u8>]) -> Vec<u8> {
        [vec![0x43; PAGE], pages.concat()].concat()
    }

    #[test]
    fn rule_e16_a_torn_end_is_no_damage_and_anything_else_is() {
        let (votes, more) = (page(&[7; 1500]), page(&[8; 1500]));
        let whole = file(&[page(&[6; DATA]), votes.clone()]);
        for newest in [true, false] {
            assert_eq!(damage(&whole, newest), None);
            assert!(damage(&whole[..whole.len() / 2 + 100], newest).is_some(), "cut inside a page");
            let torn = [&votes[..SECTOR], &vec![0; SECTOR], &votes[2 * SECTOR..]].concat();
            assert_eq!(damage(&file(&[more.clone(), torn.clone()]), newest), None, "a sector was not written");
            assert_eq!(damage(&file(&[torn, more.clone()]), newest), Some("a page in its middle fails its checksum"));
            assert_eq!(damage(&file(&[more.clone(), vec![0; PAGE]]), newest), None, "nothing of it was written");
            for at in [0, 1000, 1499, DATA + 1, DATA + 5] {
                let mut flipped = whole.clone();
                flipped[2 * PAGE + at] ^= 0x20;
                assert_eq!(damage(&flipped, newest), Some("a page fails its checksum"), "byte {at}");
            }
        }
        // A rewritten page whose second checksum is not there yet, or is wrong, has its first one.
        let mut rewritten = votes.clone();
        rewritten[1500..2500].fill(9);
        rewritten[DATA + 6..].copy_from_slice(&[9, 196, 1, 2, 3, 4]);
        assert_eq!(damage(&file(&[rewritten]), true), None);
        let (header, empty) = (file(&[]), file(&[vec![0; PAGE]]));
        assert_eq!([damage(&[], true), damage(&header, true), damage(&empty, true)], [None; 3]);
        assert!([&[][..], &header, &empty].into_iter().all(|bytes| damage(bytes, false).is_some()), "synced, and gone");
    }

    #[test]
    fn rule_e16_after_a_graceful_end_any_change_of_the_journal_is_seen() {
        let folder = std::env::temp_dir().join(format!("sealcast-votes-closed-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        assert_eq!(check(&folder, 0).expect("read"), None, "there is none");
        fs::create_dir_all(folder.join(PARTITION)).expect("made");
        let (old, new) = (path(&folder, 254), path(&folder, 255));
        let bytes = file(&[page(&[7; 100])]);
        [&old, &new].iter().for_each(|it| fs::write(it, &bytes).expect("written"));
        close(&folder).expect("written");
        assert_eq!(check(&folder, 255).expect("read"), None);
        // A crash could have left this one.
        fs::write(&new, &bytes[..PAGE]).expect("cut");
        assert_eq!(check(&folder, 255).expect("read").map(|it| it.file), Some(new.clone()));
        fs::remove_file(&new).expect("removed");
        assert_eq!(check(&folder, 255).expect("read").map(|it| it.what), Some("it is gone".to_owned()));
        open(&folder).expect("removed");
        assert_eq!(check(&folder, 254).expect("read"), None, "after a crash it may have been so");
        assert_eq!(check(&folder, 255).expect("read").map(|it| it.file), Some(folder.join(PARTITION)));
        fs::write(&old, &bytes[..bytes.len() - 1]).expect("cut");
        assert_eq!(check(&folder, 0).expect("read").map(|it| it.file), Some(old));
        fs::write(folder.join(CLOSED), "\u{fffd}").expect("written");
        assert_eq!(check(&folder, 0).expect("read").map(|it| it.file), Some(folder.join(CLOSED)));
        forget(&folder).expect("removed");
        assert_eq!(check(&folder, 0).expect("read"), None);
        let _ = fs::remove_dir_all(&folder);
    }
}
