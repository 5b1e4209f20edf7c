//! A change of key beside an ordered publication, over four brokers of this machine, with members that are sessions of this
//! process. All share its cores.

use std::time::{Duration, Instant};

use sealcast::config::Home;
use sealcast::{Session, ViewEvent, Views, open};
use sealcast_keys::Command;

use super::{AREA, millis};
use crate::Failure;
use crate::brokers::cluster::{Cluster, sealcast};
use crate::figures::brokers::disk;
use crate::figures::{Bench, Goal, Row, median};

pub(in crate::figures) const BROKERS: &[&str] = &["mls-brokers"];

/// Both, by turns.
pub(in crate::figures) fn brokers(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let (members, turns) = bench.pick((6, 10), (20, 40));
    let cluster = Cluster::start(4, &disk())?;
    let home = cluster.folder().join("home");
    let url =
        format!("quorum:{}?keys=mls&group=lab&wait=150s", cluster.folder().join("cluster/cluster.toml").display());
    let mut group = Vec::new();
    for member in 0..members {
        bench.bar.tick();
        let name = format!("robot{member}");
        sealcast(&home, &["ca", "issue", &name])?;
        let session = open(&url).identity(name.as_str()).home(Home::at(&home)).wait()?;
        session.ready().wait()?;
        group.push(session);
        together(&group)?;
    }
    let (mut commits, mut publications) = (Vec::new(), Vec::new());
    let mut views = group[0].views();
    while views.try_next().is_some() {}
    for turn in 0..turns + WARM {
        bench.bar.tick();
        let commit = commit(&group[0], &mut views)?;
        together(&group)?;
        let begun = Instant::now();
        group[0].publish("load", [7; 1024]).ordered().wait()?;
        let publication = begun.elapsed();
        if turn >= WARM {
            commits.push(millis(commit));
            publications.push(millis(publication));
        }
        std::thread::sleep(PAUSE);
    }
    let (commits, publications) = (median(&commits), median(&publications));
    let what = format!("commit ÷ ordered publication of 1 KB, four brokers, {members} members, p50");
    let row = Row::new(AREA, "mls-brokers", what, "ratio", Goal::AtMost(1.3));
    let how = format!(
        "{turns} of each by turns, of one member: from the command until its new key is in use, and from publishing until its \
         position is told; brokers, members and their records on one machine, files in {}",
        disk().display()
    );
    let row = row.part("commit ms", commits).part("publication ms", publications);
    Ok(vec![row.measured(commits / publications, how)])
}

/// From the command until the member has the new key.
fn commit(session: &Session, views: &mut Views) -> Result<Duration, Failure> {
    let before = session.view().ok_or("no view")?.epoch;
    let begun = Instant::now();
    session.ask(Command::Rotate)?;
    while begun.elapsed() < TIMEOUT {
        match views.next_timeout(TIMEOUT) {
            Some(ViewEvent::Changed { view, .. }) if view.epoch.counter > before.counter => return Ok(begun.elapsed()),
            Some(_) => {}
            None => break,
        }
    }
    Err("the key does not change".into())
}

/// Waits until all sessions are in the first one's view, which has all of them.
fn together(group: &[Session]) -> Result<(), Failure> {
    let begun = Instant::now();
    let epoch = |session: &Session| session.view().filter(|it| it.members.len() == group.len()).map(|it| it.epoch);
    while group.iter().any(|it| epoch(it).is_none() || epoch(it) != epoch(&group[0])) {
        if begun.elapsed() > TIMEOUT {
            return Err(format!("no view of all {} members within {TIMEOUT:?}", group.len()).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

const WARM: usize = 3;
const PAUSE: Duration = Duration::from_millis(200);
const TIMEOUT: Duration = Duration::from_secs(150);
