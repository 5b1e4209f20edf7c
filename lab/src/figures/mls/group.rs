//! What a member of a large group does for each commit, through [`Group`](sealcast::group::Group) and on a real disk, beside
//! OpenMLS in a group of the same size; and the engine alone beside it at 10,000.

use std::fs;

use sealcast_keys::mls::certificates::CredentialKind;

use super::engine::{self, Peer, Sides};
use super::fleet::{FOUNDER, Fleet, SECOND, Spent, SpentCell};
use super::{AREA, memory_of, millis, timed};
use crate::Failure;
use crate::figures::brokers::disk;
use crate::figures::{Bench, Goal, Holds, Row, median};

pub(in crate::figures) const GROUP: &[&str] = &[
    "mls-process",
    "mls-process-share",
    "mls-written",
    "mls-uploaded",
    "mls-welcome",
    "mls-missed",
    "mls-memory",
    "mls-engine-process",
    "mls-engine-welcome",
    "mls-engine-memory",
];

/// What was measured of the member.
struct Seen {
    members: usize,
    /// Of one commit.
    process_ms: f64,
    engine_ms: f64,
    disk_ms: f64,
    /// Of one commit, neither in the engine nor waiting for the disk.
    share: f64,
    written: f64,
    uploaded: f64,
    welcome_ms: f64,
    /// Of that, in the engine.
    welcome_engine_ms: f64,
    memory: f64,
    blank: u32,
}

/// All rows of one group and of one larger group of engines.
pub(in crate::figures) fn group(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let (members, engines) = bench.pick((200, 1_000), (10_000, 10_000));
    let commits = bench.pick(16, 64);
    let certified = seen(bench, members, commits, CredentialKind::X509)?;
    let seen = seen(bench, members, commits, CredentialKind::Basic)?;
    let few = bench.pick(members, 1_000);
    let missed_by = |kind| {
        let missed = missed(bench, few, kind)?;
        Ok::<_, Failure>((millis(missed.all), millis(missed.processing), millis(missed.disk)))
    };
    let (certified_all, certified_processing, _) = missed_by(CredentialKind::X509)?;
    let (all, processing, disk_of_missed) = missed_by(CredentialKind::Basic)?;
    let same = engine::measure(members as u32, commits.min(20), &disk())?;
    let other = if members == engines as usize { None } else { Some(engine::measure(engines, commits, &disk())?) };
    let large = other.as_ref().unwrap_or(&same);
    let n = seen.members;
    let setting = format!(
        "N = {n} members with basic credentials; two of them run; {} parent nodes blank, none on or beside a committer's path; an \
         in-process order; records in {}",
        seen.blank,
        disk().display()
    );
    let beside = |row: Row, ours: f64, theirs: fn(&Peer) -> f64, sides: &Sides, how: String| match &sides.openmls {
        Ok(peer) => {
            let theirs = theirs(peer);
            row.part("ours ms", ours).part("OpenMLS ms", theirs).measured(theirs / ours, how)
        }
        Err(why) => row.part("ours ms", ours).absent(Holds::NotRun, why.clone()),
    };
    let what = |what: &str| format!("{what}, N = {n}");
    let row = |id: &str, what: String, unit, goal| Row::new(AREA, id, what, unit, goal);
    let process = row(
        "mls-process",
        what("OpenMLS with SQLite ÷ ours: process a commit through Group, durable"),
        "ratio",
        Goal::AtLeast(9.0),
    );
    let process = process.part("engine ms", seen.engine_ms).part("disk ms", seen.disk_ms);
    let process = process.part("with certificates ms", certified.process_ms);
    let how = format!("{setting}; medians of {commits} commits, fdatasync each; OpenMLS: basic credentials, JSON");
    let process = beside(process, seen.process_ms, |it| it.sqlite_ms, &same, how);
    let share = row("mls-process-share", what("of that, outside the engine and the disk"), "share", Goal::AtMost(0.1))
        .part("with certificates", certified.share)
        .measured(seen.share, setting.clone());
    let written = row("mls-written", what("written per processed commit, mean"), "KB", Goal::AtMost(100.0));
    let written = written.part("with certificates KB", certified.written / 1e3);
    let written = with_peer(written, "OpenMLS KB", &same, |it| it.written / 1e3);
    let written = written.measured(
        seen.written / 1e3,
        format!("{setting}; mean of {commits}, by the kernel's count of bytes that the process writes"),
    );
    let uploaded = row("mls-uploaded", what("sent by the author of a commit, all of it"), "KB", Goal::AtMost(64.0));
    let uploaded = uploaded
        .part("with certificates KB", certified.uploaded / 1e3)
        .part("changed nodes and GroupInfo at the larger N, KB", large.uploaded / 1e3)
        .measured(seen.uploaded / 1e3, format!("{setting}; a newcomer is sent the whole tree, by who answers it"));
    let welcome = row(
        "mls-welcome",
        what("OpenMLS ÷ ours: Welcome to first message, all leaves validated, through Group"),
        "ratio",
        Goal::AtLeast(5.7),
    );
    let how = format!("{setting}; OpenMLS has basic credentials, too, and its storage in memory");
    let welcome = welcome.part("engine ms", seen.welcome_engine_ms).part("with certificates ms", certified.welcome_ms);
    let welcome = beside(welcome, seen.welcome_ms, |it| it.welcome_ms, &same, how);
    let what_missed = format!("100 missed epochs ÷ processing them alone, N = {few}");
    let missed = row("mls-missed", what_missed, "ratio", Goal::AtMost(1.5))
        .part("ms", all)
        .part("processing alone ms", processing)
        .part("disk ms", disk_of_missed)
        .part("with certificates, ratio", certified_all / certified_processing)
        .measured(all / processing, format!("{setting}; from the start of its process on"));
    let memory = row("mls-memory", what("memory of a member"), "MB", Goal::AtMost(18.0))
        .part("with certificates MB", certified.memory / 1e6)
        .measured(seen.memory / 1e6, format!("growth of the resident set by one of many; {setting}"));
    let mut rows = vec![process, share, written, uploaded, welcome, missed, memory];
    rows.extend(engine_rows(large));
    Ok(rows)
}

/// The engine alone, with basic credentials.
fn engine_rows(sides: &Sides) -> Vec<Row> {
    let n = sides.members;
    let row = |id: &str, what: &str, unit| Row::new(AREA, id, format!("{what}, N = {n}"), unit, Goal::Report);
    let how = format!(
        "N = {n} basic credentials, no blank nodes, one group of members of ours and OpenMLS's; the engine keeps its state in \
         memory"
    );
    let mut process = row("mls-engine-process", "OpenMLS in memory ÷ our engine alone: process a commit", "ratio");
    let mut welcome = row("mls-engine-welcome", "OpenMLS ÷ our engine alone: enter by a Welcome", "ratio");
    let memory = row("mls-engine-memory", "memory of our engine alone", "MB");
    process = process.part("ours ms", sides.process_ms);
    welcome = welcome.part("ours ms", sides.welcome_ms);
    match &sides.openmls {
        Ok(peer) => {
            process = process.part("OpenMLS ms", peer.memory_ms).part("with SQLite ms", peer.sqlite_ms);
            process =
                process.part("it writes KB", peer.written / 1e3).measured(peer.memory_ms / sides.process_ms, &how);
            welcome = welcome.part("OpenMLS ms", peer.welcome_ms).measured(peer.welcome_ms / sides.welcome_ms, &how);
        }
        Err(why) => {
            process = process.absent(Holds::NotRun, why);
            welcome = welcome.absent(Holds::NotRun, why);
        }
    }
    let memory = with_peer(memory, "OpenMLS MB", sides, |it| it.memory / 1e6).measured(sides.memory / 1e6, how);
    vec![process, welcome, memory]
}

fn with_peer(row: Row, name: &str, sides: &Sides, of: fn(&Peer) -> f64) -> Row {
    match &sides.openmls {
        Ok(peer) => row.part(name, of(peer)),
        Err(_) => row,
    }
}

/// Measures the member.
fn seen(bench: &Bench, members: usize, commits: usize, kind: CredentialKind) -> Result<Seen, Failure> {
    let folder = tempfile::Builder::new().prefix("sealcast-mls").tempdir_in(disk())?;
    let mut fleet = Fleet::new(members, 1, kind, || bench.bar.tick())?;
    let make = fleet.copies(SECOND);
    let memory = memory_of(|| Ok(make()))?;
    fleet.end(SECOND);
    let (file, spent) = (folder.path().join("second"), SpentCell::default());
    fleet.start_measured(SECOND, true, &file, &spent);
    // Its new run is said in the order, and the group changes its key for that.
    fleet.run(SETTLED);
    fleet.caught_up(SECOND)?;
    timed::count_blanks(true);
    fleet.rotate(FOUNDER)?;
    timed::count_blanks(false);
    let blank = timed::worked().blank;
    (0..WARM).try_for_each(|_| fleet.rotate(FOUNDER))?;
    let (sent, _) = (fleet.sent(FOUNDER), spent.take());
    let before = bytes_written()?;
    (0..commits).try_for_each(|_| fleet.rotate(FOUNDER))?;
    let written = bytes_written()? - before;
    let each = commits as f64;
    let uploaded = (fleet.sent(FOUNDER) - sent) as f64 / each;
    let Spent { all, disk, engine, epochs, .. } = spent.take();
    if epochs.len() != commits {
        return Err(format!("{} epochs after {commits} commits", epochs.len()).into());
    }
    let process_ms = median(&epochs.into_iter().map(millis).collect::<Vec<_>>());
    let share = (all - disk - engine).as_secs_f64() / all.as_secs_f64();

    fleet.end(SECOND);
    let welcomed = SpentCell::default();
    fleet.start_measured(members, false, &folder.path().join("device"), &welcomed);
    fleet.run(SETTLED);
    welcomed.take();
    fleet.admit(members);
    fleet.together(members + 1)?;
    fleet.caught_up(members)?;
    fleet.publish(members);
    let welcome = welcomed.take();
    Ok(Seen {
        members,
        process_ms,
        engine_ms: millis(engine) / each,
        disk_ms: millis(disk) / each,
        share,
        written: written as f64 / each,
        uploaded,
        welcome_ms: millis(welcome.all),
        welcome_engine_ms: millis(welcome.engine),
        memory,
        blank,
    })
}

/// What it takes a member to follow the epochs that it missed.
fn missed(bench: &Bench, members: usize, kind: CredentialKind) -> Result<Spent, Failure> {
    let folder = tempfile::Builder::new().prefix("sealcast-mls").tempdir_in(disk())?;
    let mut fleet = Fleet::new(members, 0, kind, || bench.bar.tick())?;
    fleet.end(SECOND);
    let (file, spent) = (folder.path().join("second"), SpentCell::default());
    fleet.start_measured(SECOND, true, &file, &spent);
    fleet.run(SETTLED);
    fleet.caught_up(SECOND)?;
    fleet.end(SECOND);
    (0..MISSED).try_for_each(|_| fleet.rotate(FOUNDER))?;
    spent.take();
    fleet.start_measured(SECOND, true, &file, &spent);
    fleet.caught_up(SECOND)?;
    Ok(spent.take())
}

/// What this process wrote since it began.
fn bytes_written() -> Result<u64, Failure> {
    let io = fs::read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("wchar:"));
    Ok(line.ok_or("the kernel does not say what a process writes")?.trim().parse()?)
}

const WARM: usize = 3;
const MISSED: usize = 100;
/// Of virtual time.
const SETTLED: std::time::Duration = std::time::Duration::from_secs(2);
