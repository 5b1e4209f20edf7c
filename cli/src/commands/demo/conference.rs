//! Five in a conference: cameras go best effort, hands, slides and chat in one order, and the leader is killed.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use sealcast_crypto::hash::sha256;
use serde_json::Value;

use super::attend::Figures;
use super::participant::Participant;
use super::{Teller, broken, holds_within, program, starting};
use crate::commands::Env;
use crate::hint::Failure;
use crate::scene::Scene;
use crate::text::{duration, thousands};

/// Tells it all.
pub(super) fn run(env: &Env<'_>) -> Result<(), Failure> {
    let mut teller = Teller::new(env);
    // Of its authority nobody here has a certificate.
    let scene = Scene::new("conference")?;
    let home = scene.folder().display().to_string();
    let centre = Centre::start(&home)?;
    let url = scene.url(&format!("&keys=center&kdc={}&order=total", centre.address));
    teller.tell(registered(&home, &centre, &url))?;

    let start = Instant::now();
    let mut people = vec![Participant::start(&home, &url, NAMES[0])?];
    teller.tell(founded(&people[0], start))?;
    for name in &NAMES[1..] {
        people.push(Participant::start(&home, &url, name)?);
    }
    teller.tell(together(&people, start))?;
    people.iter_mut().try_for_each(|it| it.tell("go"))?;
    teller.tell(talk(&people))?;

    let before = figures(&mut people)?;
    let mut leader = people.remove(0);
    teller.tell(killed(&mut leader, &people))?;
    teller.tell(talk(&people))?;
    people.iter_mut().try_for_each(|it| it.tell("halt"))?;
    let after = figures(&mut people)?;
    teller.tell(one_log(&people))?;
    show_end(env, &people[0]);
    teller.tell(nothing_lost(&leader, &people))?;
    teller.tell(no_frame_lost(&people, &before[1..], &after))?;
    teller.end();
    Ok(())
}

/// The process of a key distribution centre. Dropped, it is ended.
struct Centre {
    child: Child,
    address: String,
}

impl Centre {
    fn start(home: &str) -> Result<Centre, Failure> {
        let mut command = program(home, &["kdc", "run", "--listen", "127.0.0.1:0", "--until-stdin-closes", "--json"])?;
        // Ctrl-C is meant for us. If we are killed, the pipe closes, and it ends too.
        command.arg("-q").stdin(Stdio::piped()).stderr(Stdio::inherit()).process_group(0);
        let mut child = command.spawn().map_err(starting)?;
        let mut line = String::new();
        let stdout = child.stdout.take().expect("stdout is piped");
        let read = BufReader::new(stdout).read_line(&mut line);
        let mut centre = Centre { child, address: String::new() };
        read.map_err(starting)?;
        let told: Option<Value> = serde_json::from_str(&line).ok();
        let address = told.as_ref().and_then(|it| it["listen"].as_str());
        centre.address = address.ok_or_else(|| broken("the key distribution centre did not start"))?.to_owned();
        Ok(centre)
    }
}

impl Drop for Centre {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Registers all at the centre, and lets them join with their files; the first three may lead.
fn registered(home: &str, centre: &Centre, url: &str) -> Result<String, Failure> {
    for (number, name) in NAMES.into_iter().enumerate() {
        let file = format!("{home}/{name}.principal");
        let register = ["kdc", "register", name, "--group", "conference", "--url", url, "-o", &file];
        let lead = if number < LEADERS { &["--lead"][..] } else { &[] };
        for arguments in [&[&register[..], lead].concat()[..], &["join", &file]] {
            let output = program(home, arguments)?.output().map_err(starting)?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(broken(format!("sealcast {}: {}", arguments[..2].join(" "), said.trim())));
            }
        }
    }
    Ok(format!(
        "a key distribution centre at {} has registered {}; {} may lead; files in {home}",
        centre.address,
        NAMES.join(", "),
        NAMES[..LEADERS].join(", "),
    ))
}

fn founded(first: &Participant, start: Instant) -> Result<String, Failure> {
    match holds_within(TIMEOUT, || first.record().view.is_some_and(|(_, members)| members == 1)) {
        true => Ok(format!("{} opens the conference, and leads: {}", first.name, duration(start.elapsed()))),
        false => Err(broken(format!("{} formed no group", first.name))),
    }
}

/// Waits until all are in one view in which somebody orders; who does, and in which epoch.
fn settled(people: &[Participant]) -> Result<(String, u32), Failure> {
    let view = || {
        let first = people[0].record();
        Some((first.view?, first.sequencer.clone()?)).filter(|((_, members), _)| *members == people.len())
    };
    let same = |it: &Participant, view: &((u32, usize), String)| {
        let record = it.record();
        record.view == Some(view.0) && record.sequencer.as_ref() == Some(&view.1)
    };
    let all = || view().filter(|view| people.iter().all(|it| same(it, view)));
    holds_within(TIMEOUT, || all().is_some());
    let ((epoch, _), sequencer) = all().ok_or_else(|| {
        let views = people.iter().map(|it| format!("{} {:?}", it.name, it.record().view)).collect::<Vec<_>>();
        broken(format!("{} members did not come together: {}", people.len(), views.join(", ")))
    })?;
    Ok((sequencer, epoch))
}

fn together(people: &[Participant], start: Instant) -> Result<String, Failure> {
    let (sequencer, epoch) = settled(people)?;
    Ok(format!(
        "all {} are in one group: epoch {epoch}, {} hands out the keys, {sequencer} orders, {} after the first start",
        people.len(),
        people[0].name,
        duration(start.elapsed())
    ))
}

/// Lets all talk until each has so many more entries.
fn talk(people: &[Participant]) -> Result<String, Failure> {
    let (start, before) = (Instant::now(), people.iter().map(|it| it.record().log.len()).collect::<Vec<_>>());
    let more = || people.iter().zip(&before).map(|(it, before)| it.record().log.len() - before).min().unwrap_or(0);
    if !holds_within(TIMEOUT, || more() >= ENTRIES) {
        return Err(broken(format!("only {} entries of the shared state came to each of {}", more(), people.len())));
    }
    Ok(format!(
        "all {} cameras run at 50 frames a second; beside them each got {} raised hands, slides and lines of chat in {}",
        people.len(),
        more(),
        duration(start.elapsed())
    ))
}

/// The leader dies while all talk; a stand-by takes over.
fn killed(leader: &mut Participant, rest: &[Participant]) -> Result<String, Failure> {
    rest.iter().for_each(|it| it.record().pause = Duration::ZERO);
    leader.kill()?;
    let start = Instant::now();
    let (sequencer, epoch) = settled(rest)?;
    let took = duration(start.elapsed());
    let before = rest.iter().map(|it| it.record().log.len()).max().unwrap_or(0);
    if !holds_within(TIMEOUT, || rest.iter().all(|it| it.record().log.len() > before)) {
        return Err(broken(format!("without {} nothing is ordered any more", leader.name)));
    }
    let pause = rest.iter().map(|it| it.record().pause).max().unwrap_or_default();
    Ok(format!(
        "{} is killed with -9 in the middle of it: {took} later a stand-by has given the other {} a new key (epoch {epoch}), \
         and {sequencer} orders; the longest wait for an entry was {}",
        leader.name,
        rest.len(),
        duration(pause)
    ))
}

/// What each has counted once it has done what it was told.
fn figures(people: &mut [Participant]) -> Result<Vec<Figures>, Failure> {
    people.iter_mut().try_for_each(Participant::ask_figures)?;
    holds_within(TIMEOUT, || people.iter().all(|it| it.figures().is_some()));
    let of = |it: &Participant| it.figures().ok_or_else(|| broken(format!("{} does not answer", it.name)));
    people.iter().map(of).collect()
}

fn one_log(people: &[Participant]) -> Result<String, Failure> {
    let logs = || people.iter().map(|it| it.record().log.clone()).collect::<Vec<_>>();
    let alike = || logs().windows(2).all(|pair| pair[0] == pair[1]);
    holds_within(TIMEOUT, alike);
    let hash = |log: &[String]| hex::encode(&sha256(log.join("\n").as_bytes())[..8]);
    let each = people.iter().zip(logs()).map(|(it, log)| format!("{} {} {}", it.name, log.len(), hash(&log)));
    let each = each.collect::<Vec<_>>().join(", ");
    if let Some(it) = people.iter().find(|it| it.record().has_gap) {
        return Err(broken(format!("{} was told that entries never come: {each}", it.name)));
    }
    let twice = |log: &[String]| log.iter().collect::<BTreeSet<_>>().len() < log.len();
    match alike() && !logs().iter().any(|log| twice(log)) {
        true => Ok(format!("one log of the shared state at all {}, by length and hash: {each}", people.len())),
        false => Err(broken(format!("the logs of the shared state differ: {each}"))),
    }
}

/// The last lines of the shared state, for people to see.
fn show_end(env: &Env<'_>, participant: &Participant) {
    let record = participant.record();
    for (number, entry) in record.log.iter().enumerate().skip(record.log.len().saturating_sub(SHOWN)) {
        env.output.say(format!("     {number:>5}  {entry}"));
    }
}

/// Whatever was acknowledged is in the log, what the killed one published too.
fn nothing_lost(leader: &Participant, people: &[Participant]) -> Result<String, Failure> {
    let log: BTreeSet<String> = people[0].record().log.iter().cloned().collect();
    let (mut acknowledged, mut unacknowledged) = (0, vec![]);
    for it in people.iter().chain([leader]) {
        let record = it.record();
        if let Some(lost) = record.acknowledged.iter().find(|entry| !log.contains(*entry)) {
            return Err(broken(format!("'{lost}' was acknowledged and is in no log")));
        }
        acknowledged += record.acknowledged.len();
        unacknowledged.extend(record.unacknowledged.clone());
    }
    let doubt = match unacknowledged.first() {
        None => "none was in doubt".to_owned(),
        Some((_, why)) => format!("{} got no acknowledgement: {why}", unacknowledged.len()),
    };
    let theirs = leader.record().acknowledged.len();
    Ok(format!("all {acknowledged} acknowledged entries are in it, {theirs} of {}'s among them; {doubt}", leader.name))
}

/// Since the leader was killed, none of the others dropped anything whose key it did not have.
fn no_frame_lost(people: &[Participant], before: &[Figures], after: &[Figures]) -> Result<String, Failure> {
    let (mut came, mut sent, mut dropped) = (0, 0, vec![]);
    for ((it, before), now) in people.iter().zip(before).zip(after) {
        let (no_key, old_key) = (now.no_key - before.no_key, now.old_key - before.old_key);
        if no_key + old_key > 0 {
            dropped.push(format!("{} dropped {no_key} datagrams as no-key and {old_key} as old-key", it.name));
        }
        let others = people.iter().zip(after).filter(|(other, _)| other.name != it.name);
        for (other, theirs) in others {
            came += now.came.get(other.name).copied().unwrap_or(0);
            sent += theirs.sent;
        }
    }
    let (came, sent) = (thousands(came), thousands(sent));
    if !dropped.is_empty() {
        return Err(broken(format!("{}; {came} of {sent} camera frames came", dropped.join(", "))));
    }
    Ok(format!(
        "no camera frame between the {} was lost for want of a key: 0 dropped as no-key or old-key; {came} of {sent} came",
        people.len(),
    ))
}

const NAMES: [&str; 5] = ["ann", "ben", "cem", "dia", "eve"];
/// The first so many may lead.
const LEADERS: usize = 3;
/// Entries that come to each before, and again after, the leader is killed. By then nobody holds a datagram any more that came
/// while the group formed, and that no key opens (`limits::EPOCH_OVERLAP`).
const ENTRIES: usize = 60;
/// Entries of the end that are shown.
const SHOWN: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(20);
