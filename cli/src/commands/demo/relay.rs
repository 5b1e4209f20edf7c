//! Five traders at a relay that none of them trusts: it reads nothing, crashes, and in the end lies.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sealcast::Session;
use sealcast::code::Code;
use sealcast::relay::{Evidence, KeptEvidence, kept, read};

use super::local_relay::LocalRelay;
use super::member::Member;
use super::observer::Observer;
use super::{Teller, broken, holds_within, without_words};
use crate::commands::Env;
use crate::hint::Failure;
use crate::scene::Scene;
use crate::text::{bytes, duration, thousands};

/// Tells it all.
pub(super) fn run(env: &Env<'_>) -> Result<(), Failure> {
    let mut teller = Teller::new(env);
    let mut scene = Scene::off_lan(GROUP)?;
    for name in NAMES {
        let evict: &[(&str, &str)] = if name == NAMES[0] { &[("both", "#"), ("evict", "#")] } else { &[("both", "#")] };
        scene.member(name, evict)?;
    }
    let mut relay = LocalRelay::start(scene.folder())?;
    let url = format!("{}&wait={}s", relay.url(GROUP), TIMEOUT.as_secs());
    let folder = scene.folder().display();
    teller.tell(Ok(format!(
        "{} have certificates; a relay runs that is none of theirs, in {folder}",
        NAMES.join(", ")
    )))?;
    let observer = Observer::subscribe(relay.mqtt_port)?;

    let start = Instant::now();
    let mut members = vec![Member::start(&scene, &url, NAMES[0])?];
    teller.tell(
        together(&members).map(|_| format!("{} founds a group there: {}", NAMES[0], duration(start.elapsed()))),
    )?;
    for name in &NAMES[1..4] {
        members.push(Member::start(&scene, &url, name)?);
    }
    let epoch = together(&members);
    teller.tell(
        epoch.map(|it| format!("{} come in: epoch {it}, {}", NAMES[1..4].join(", "), duration(start.elapsed()))),
    )?;
    teller.tell(external(&scene, &url, &mut members))?;
    teller.tell(talk(&members))?;
    teller.tell(one_order(&members))?;

    teller.tell(ciphertext_only(observer, &relay))?;
    teller.tell(it_would_have_noticed(&relay))?;

    let evicted = members.pop().expect("there are five");
    teller.tell(evict(&members, &evicted))?;
    teller.tell(reads_nothing(&members, &evicted))?;
    evicted.stop();

    teller.tell(killed(&mut relay, &members))?;
    let away = members.pop().expect("there are four");
    let (name, seen) = (away.name.clone(), away.epoch().map_or(0, |(epoch, _)| epoch));
    away.stop();
    teller.tell(ten_epochs(&members, &name, seen))?;
    teller.tell(caught_up(&scene, &url, &mut members))?;

    let away = members.pop().expect("there are four");
    away.stop();
    teller.tell(rolled_back(&mut relay, &scene, &members))?;
    let returned = Member::start(&scene, &url, NAMES[3])?;
    let convicted = convicted(&scene, &members, &returned);
    teller.tell(convicted)?;
    teller.tell(refused(&scene, &url))?;
    members.into_iter().chain([returned]).for_each(Member::stop);
    teller.end();
    Ok(())
}

/// Waits until all are in one epoch of so many members; its number.
fn together(members: &[Member]) -> Result<u32, Failure> {
    let first = || members[0].epoch().filter(|(_, n)| *n == members.len());
    let all = || first().filter(|it| members.iter().all(|m| m.epoch() == Some(*it)));
    holds_within(TIMEOUT, || all().is_some());
    let epochs = || members.iter().map(|m| format!("{} {:?}", m.name, m.epoch())).collect::<Vec<_>>().join(", ");
    all().map(|(epoch, _)| epoch).ok_or_else(|| broken(format!("they are not in one epoch: {}", epochs())))
}

/// One who has a certificate alone, and whom nobody invited.
fn external(scene: &Scene, url: &str, members: &mut Vec<Member>) -> Result<String, Failure> {
    let (before, start) = (together(members)?, Instant::now());
    members.push(Member::start(scene, url, NAMES[4])?);
    let after = together(members)?;
    let took = duration(start.elapsed());
    Ok(format!(
        "{} comes in by an external commit of its own, which all check alike: epoch {before} → {after}, {took}",
        NAMES[4]
    ))
}

/// Each says something; all others have it, and know its author.
fn talk(members: &[Member]) -> Result<String, Failure> {
    for member in members {
        for number in 0..EACH {
            let quote = format!("{SECRET} {number} of {}", member.name);
            member.session.publish(&topic(&member.name), quote).wait()?;
        }
    }
    let lacks =
        |it: &Member| members.iter().find(|of| of.name != it.name && it.got_of(&of.name, &topic(&of.name)) < EACH);
    if !holds_within(TIMEOUT, || members.iter().all(|it| lacks(it).is_none())) {
        return Err(broken("not every quote arrived at all others with a verified signature"));
    }
    let (n, all) = (members.len(), EACH * members.len());
    Ok(format!("{all} quotes: all {n} got every one of the others', each with a verified signature"))
}

/// Two publish at once through the log; all read the same.
fn one_order(members: &[Member]) -> Result<String, Failure> {
    let publish = |member: &Member| -> Result<(), Failure> {
        (0..EACH).try_for_each(|n| order(member, &format!("{} {n}", member.name)))
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| publish(&members[1]));
        publish(&members[2])?;
        other.join().map_err(|_| broken("a publisher ended"))?
    })?;
    let orders = || members.iter().map(orders).collect::<Vec<_>>();
    let is_one = || orders().iter().all(|it| it.len() == 2 * EACH && *it == orders()[0]);
    match holds_within(TIMEOUT, is_one) {
        true => Ok(format!(
            "{} orders of two at once lie in the relay's log: all {} have one order of them",
            2 * EACH,
            members.len()
        )),
        false => Err(broken(format!("the orders differ, or some are missing: {:?}", orders()))),
    }
}

/// Publishes through the log; done when its position is known.
fn order(member: &Member, text: &str) -> Result<(), Failure> {
    let published = member.session.publish(ORDERS, text).ordered().wait()?;
    published.number.map(drop).ok_or_else(|| broken(format!("'{text}' has no position in the log")))
}

/// What came through the log.
fn orders(member: &Member) -> Vec<String> {
    let of = |it: &super::member::Got| (it.topic == ORDERS).then(|| String::from_utf8_lossy(&it.payload).into_owned());
    member.got().iter().filter_map(of).collect()
}

fn ciphertext_only(observer: Observer, relay: &LocalRelay) -> Result<String, Failure> {
    let capture = observer.end();
    let mut known = vec![SECRET, GROUP, "quotes", ORDERS];
    known.extend(NAMES);
    let found = capture.texts(&known);
    if capture.datagrams() < 2 * EACH || !found.is_empty() {
        return Err(broken(format!("the observer took {} messages, and reads {found:?}", capture.datagrams())));
    }
    let kept = without_words(&[&relay.data()], &known)?;
    Ok(format!(
        "an observer of everything at the broker took {} messages ({}), and the directory keeps {}: no quote, topic or name in either: {} …",
        thousands(capture.datagrams() as u64),
        bytes(capture.bytes() as u64),
        bytes(kept),
        capture.sample()
    ))
}

/// The same observer beside a group without keys: if it finds nothing here, its silence meant nothing.
fn it_would_have_noticed(relay: &LocalRelay) -> Result<String, Failure> {
    let observer = Observer::subscribe(relay.mqtt_port)?;
    let session = sealcast::open(&relay.plain_url()).wait()?;
    session.publish(&topic(NAMES[0]), SECRET).wait()?;
    session.close();
    // What the broker took it hands on before anything of a later subscriber.
    let later = Observer::subscribe(relay.mqtt_port)?;
    later.end();
    std::thread::sleep(Duration::from_millis(150));
    match observer.end().texts(&[SECRET, "quotes"]).len() {
        2 => Ok("the same observer reads all of it where keys=plain: it would have noticed".to_owned()),
        _ => Err(broken("the observer finds nothing even where everything is in clear")),
    }
}

fn evict(members: &[Member], out: &Member) -> Result<String, Failure> {
    let report = members[0].session.evict(out.name.as_str(), "left the desk").wait()?;
    let epoch = together(members)?;
    Ok(format!(
        "{} evicts {}: epoch {} → {epoch}, {}/{} members on the new key after {}",
        members[0].name,
        out.name,
        report.from.counter,
        report.on_new_key,
        report.members,
        duration(report.elapsed)
    ))
}

/// The evicted one's session still runs, and hears all that the relay forwards.
fn reads_nothing(members: &[Member], out: &Member) -> Result<String, Failure> {
    let (before, theirs) = (out.got().len(), members[1].got().len());
    for number in 0..EACH {
        members[0].session.publish(&topic(NAMES[0]), format!("{SECRET} without {} {number}", out.name)).wait()?;
    }
    let arrived = holds_within(TIMEOUT, || members[1].got().len() >= theirs + EACH);
    match (arrived, out.got().len() - before) {
        (false, _) => Err(broken("the members that stayed do not hear each other any more")),
        (true, 0) => Ok(format!("{} reads 0 of {EACH} new quotes", out.name)),
        (true, n) => Err(broken(format!("{} was evicted and read {n} quotes", out.name))),
    }
}

/// The directory dies while two publish through it, and comes back.
fn killed(relay: &mut LocalRelay, members: &[Member]) -> Result<String, Failure> {
    let publish = |member: &Member| -> Result<(), Failure> {
        (0..EACH).try_for_each(|n| order(member, &format!("{} {n} beside a crash", member.name)))
    };
    let before = orders(&members[0]).len();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let both = [1, 2].map(|at| scope.spawn(move || publish(&members[at])));
        holds_within(TIMEOUT, || orders(&members[0]).len() >= before + EACH / 2);
        relay.kill();
        std::thread::sleep(DOWN);
        relay.serve()?;
        both.into_iter().try_for_each(|it| it.join().map_err(|_| broken("a publisher ended"))?)
    })?;
    let wanted = before + 2 * EACH;
    let logs = || members.iter().map(orders).collect::<Vec<_>>();
    let is_whole = |it: &Vec<String>| it.len() == wanted && it.iter().collect::<BTreeSet<_>>().len() == wanted;
    if !holds_within(TIMEOUT, || logs().iter().all(|it| is_whole(it) && *it == logs()[0])) {
        let lengths: Vec<usize> = logs().iter().map(Vec::len).collect();
        return Err(broken(format!("of {wanted} orders the members have {lengths:?}, or in other orders")));
    }
    Ok(format!(
        "the directory is killed with -9 among {} orders and started again: each has one position, none is lost or comes twice, {}",
        2 * EACH,
        duration(start.elapsed())
    ))
}

/// While one is away the key changes ten times, and something is ordered under each.
fn ten_epochs(members: &[Member], away: &str, seen: u32) -> Result<String, Failure> {
    let start = Instant::now();
    for number in 0..EPOCHS {
        members[0].session.rotate().wait()?;
        order(&members[0], &format!("{MISSED} {number}"))?;
    }
    let now = members[0].epoch().map_or(0, |(epoch, _)| epoch);
    if now < seen + EPOCHS {
        return Err(broken(format!("the key changed from epoch {seen} to {now} only")));
    }
    Ok(format!(
        "{away} is away; the key changes from epoch {seen} to {now} in {}, an order under each",
        duration(start.elapsed())
    ))
}

fn caught_up(scene: &Scene, url: &str, members: &mut Vec<Member>) -> Result<String, Failure> {
    let start = Instant::now();
    members.push(Member::start(scene, url, NAMES[3])?);
    let back = members.last().expect("it was pushed");
    let epoch = together(members)?;
    let missed = || orders(back).iter().filter(|it| it.starts_with(MISSED)).count();
    match holds_within(TIMEOUT, || missed() >= EPOCHS as usize) {
        true => Ok(format!(
            "{} comes back, replays the log and is in epoch {epoch} after {}, with all {} orders that it missed",
            back.name,
            duration(start.elapsed()),
            missed()
        )),
        false => Err(broken(format!("{} has {} of {EPOCHS} orders that it missed", back.name, missed()))),
    }
}

/// The relay goes on with an old copy of what it kept, under the same key.
fn rolled_back(relay: &mut LocalRelay, scene: &Scene, members: &[Member]) -> Result<String, Failure> {
    relay.kill();
    let copy = relay.copy()?;
    relay.serve()?;
    for number in 0..FORKED {
        order(&members[0], &format!("sold {number}"))?;
    }
    let sold = |it: &Member| orders(it).iter().filter(|it| it.starts_with("sold")).count();
    if !holds_within(TIMEOUT, || members.iter().all(|it| sold(it) == FORKED)) {
        return Err(broken("not all members have what was ordered before the relay lies"));
    }
    relay.kill();
    relay.put_back(&copy)?;
    relay.serve()?;
    if let Some((path, _)) = kept(&scene.home())?.first() {
        return Err(broken(format!("nobody lied yet, and there is evidence: {}", path.display())));
    }
    Ok(format!(
        "the relay puts a copy in of before the last {FORKED} orders, which {} have: nothing shows it yet to {}, who is away",
        members.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", "),
        NAMES[3]
    ))
}

/// One who saw nothing of it lets the log grow anew, and the others have two signatures for one position.
fn convicted(scene: &Scene, members: &[Member], returned: &Member) -> Result<String, Failure> {
    let start = Instant::now();
    // Whether it has its position the publisher need not learn: it is alone once the others know.
    let _ = order(returned, "bought");
    let over = |it: &Member| ended(&it.session).is_some_and(|code| code == Code::Equivocation);
    if !holds_within(TIMEOUT, || members.iter().all(over)) {
        let states: Vec<String> = members.iter().map(|it| format!("{} {:?}", it.name, ended(&it.session))).collect();
        return Err(broken(format!("a relay that signed two logs is not convicted: {}", states.join(", "))));
    }
    let took = duration(start.elapsed());
    let all = kept(&scene.home())?;
    let (path, proof) = all.first().ok_or_else(|| broken("no evidence was kept"))?;
    let proof = proof.clone().map_err(Failure::from)?;
    if !is_convincing(&proof) {
        return Err(broken("a changed proof convicts the relay, too"));
    }
    let name = path.file_name().unwrap_or_default().display();
    Ok(format!(
        "{} orders something, the log grows anew, and all {} convict the relay by two signatures of its own for position {}, {took}: {name}",
        returned.name,
        members.len(),
        proof.evidence.one.position
    ))
}

/// Whether it convicts this relay, and does not once a bit of it is another one.
fn is_convincing(proof: &KeptEvidence) -> bool {
    let mut changed: Evidence = proof.evidence.clone();
    changed.one.signature[0] ^= 1;
    proof.evidence.verify(&proof.relay).is_ok() && changed.verify(&proof.relay).is_err()
}

/// Why a session is over, if it is.
fn ended(session: &Session) -> Option<Code> {
    session.ready().wait().err().map(|e| e.code())
}

/// A user who has the proof does not go there again.
fn refused(scene: &Scene, url: &str) -> Result<String, Failure> {
    let opened = sealcast::open(url).home(scene.home()).identity(NAMES[4]).wait();
    match opened {
        Err(e) if e.code() == Code::Equivocation => {}
        Err(e) => return Err(broken(format!("the relay is refused for another reason: {e}"))),
        Ok(_) => return Err(broken("a session opens at a relay that is convicted")),
    }
    for (path, _) in kept(&scene.home())? {
        read(&path)?;
        std::fs::remove_file(&path).map_err(|e| Failure::system(path.display(), &e))?;
    }
    sealcast::open(url).home(scene.home()).identity(NAMES[4]).wait()?;
    Ok("a new session refuses that relay, until its user deletes the proof".to_owned())
}

fn topic(name: &str) -> String {
    format!("quotes/{name}")
}

const GROUP: &str = "exchange";
const NAMES: [&str; 5] = ["anneliese", "bertrand", "catalina", "dagobert", "ernestine"];
const SECRET: &str = "EURUSD 1.0842";
const ORDERS: &str = "orders/desk";
const MISSED: &str = "while away";
/// Messages of each in a stream.
const EACH: usize = 20;
const EPOCHS: u32 = 10;
/// Orders that a copy of the relay's lacks.
const FORKED: usize = 3;
/// So long the directory is away.
const DOWN: Duration = Duration::from_millis(300);
const TIMEOUT: Duration = Duration::from_secs(20);
