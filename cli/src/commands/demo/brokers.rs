//! Two hospitals and an insurer exchange records through four brokers that none of them trusts.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sealcast::brokers::{BATCH_OPERATIONS, Brokers, Item, Outgoing, Published, Subscription};
use sealcast::config::Home;
use sealcast::url::Scheme;
use sealcast_broker::operation::{Action, Admin, Execute, Header, Operation};
use sealcast_broker::receipt::{Fact, Receipt};
use sealcast_client::Read;
use sealcast_wire::Culprit;
use serde_json::Value;

use super::{Teller, broken, holds_within, without_words};
use crate::commands::Env;
use crate::commands::brokers::{Local, Wanted, evidence};
use crate::hint::Failure;
use crate::text::duration;

/// Tells it all.
pub(super) fn run(env: &Env<'_>) -> Result<(), Failure> {
    let mut teller = Teller::new(env);
    let start = Instant::now();
    let wanted = Wanted { brokers: 4, paper: false, issuers: &[A, B, INSURER], settings: "", within: None };
    let mut local = Local::start(&wanted)?;
    let mut people = Person::all(&mut local)?;
    teller.tell(started(&people, start))?;
    teller.tell(key(&people))?;
    let record = Published::clone(&publish(&people[0], "patient/17", DERMATOLOGIST_ONLY, RECORD)?);
    teller.tell(only(&mut people, DERMATOLOGIST, RECORD))?;
    publish(&people[0], "bill/17", "insurer:role = clerk and insurer:level >= 3", BILL)?;
    teller.tell(only(&mut people, CLERK, BILL))?;
    teller.tell(nothing_readable(&local))?;
    teller.tell(receipt(&people[0], &local, &record))?;
    teller.tell(one_order(&mut people))?;
    teller.tell(killed(&mut local, &mut people))?;
    teller.tell(caught_up(&mut local, &people))?;
    let liar = innocent(&people)?;
    teller.tell(lied_to(&mut local, &mut people, liar))?;
    teller.tell(convicted(&local, &mut people, liar))?;
    teller.tell(revoked(&local, &people))?;
    people.into_iter().for_each(|person| person.brokers.close());
    drop(local);
    teller.end();
    Ok(())
}

/// Somebody with a certificate, who reads everything that is released to him.
struct Person {
    name: &'static str,
    brokers: Brokers,
    subscription: Subscription,
}

/// A name, who vouches for it, and for which attributes.
type Named<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

impl Person {
    fn all(local: &mut Local) -> Result<Vec<Person>, Failure> {
        let people: [Named<'static>; 5] = [
            ("the practice", A, &[("role", "practice")]),
            (DERMATOLOGIST, A, &[("role", "dermatologist")]),
            ("a nurse of hospital A", A, &[("role", "nurse")]),
            ("a dermatologist of hospital B", B, &[("role", "dermatologist")]),
            (CLERK, INSURER, &[("role", "clerk"), ("level", "3")]),
        ];
        let open = |(name, issuer, attributes): Named<'static>| {
            let brokers = local.client(name, issuer, attributes, Scheme::Threshold, BATCH_OPERATIONS)?;
            brokers.registered().wait()?;
            brokers.key(KEY_TIMEOUT).wait()?;
            let subscription =
                brokers.subscribe("patient/# or bill/# or shift/#".parse().expect("an interest")).wait()?;
            Ok(Person { name, brokers, subscription })
        };
        people.into_iter().map(open).collect()
    }

    /// The next thing that the order has for this person: bodies, or ⊥.
    fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        match self.subscription.next_timeout(TIMEOUT)? {
            Some(Item::Publication { content, .. }) => Ok(content.bodies().map(<[_]>::concat)),
            Some(Item::Empty { count: 1, .. }) => Ok(None),
            Some(Item::Empty { count, .. } | Item::Lost { count, .. }) => {
                Err(broken(format!("{}: {count} places at once", self.name)))
            }
            None => Err(broken(format!("nothing came to {} within {}", self.name, duration(TIMEOUT)))),
        }
    }
}

fn started(people: &[Person], start: Instant) -> Result<String, Failure> {
    let order_status = people[0].brokers.ready().wait()?;
    Ok(format!(
        "four brokers order what two hospitals and an insurer publish: block {} after {}, no server was installed",
        order_status.height,
        duration(start.elapsed())
    ))
}

fn key(people: &[Person]) -> Result<String, Failure> {
    let key = people[0].brokers.key(KEY_TIMEOUT).wait()?;
    Ok(format!(
        "the brokers made a key together, of which each has a share and nobody the whole; {} of 4 signed it",
        key.signatures.len()
    ))
}

fn publish(person: &Person, topic: &str, allow: &str, body: &str) -> Result<Published, Failure> {
    let access = allow.parse().map_err(|e| broken(format!("'{allow}': {e}")))?;
    Ok(person
        .brokers
        .publish(&Outgoing {
            headers: vec![Header { topic: topic.to_owned(), value: None }],
            associated: Vec::new(),
            access: Some(access),
            execute: Execute::Nothing,
            body: body.as_bytes().to_vec(),
        })
        .wait()?)
}

/// Everybody gets the place, one gets the words.
fn only(people: &mut [Person], reader: &str, body: &str) -> Result<String, Failure> {
    for person in people.iter_mut() {
        let got = person.next()?;
        match (person.name == reader, got) {
            (true, Some(read)) if read == body.as_bytes() => {}
            (true, _) => return Err(broken(format!("{reader} did not get the words that were published"))),
            (false, None) => {}
            (false, Some(_)) => return Err(broken(format!("{} read what is only for {reader}", person.name))),
        }
    }
    Ok(format!("'{body}' is read by {reader} alone; {} others get the place, and ⊥", people.len() - 1))
}

/// Everything that all four brokers keep, on disk.
fn nothing_readable(local: &Local) -> Result<String, Failure> {
    let folders: Vec<_> = (0..4).map(|broker| local.folder(broker)).collect();
    let bytes = without_words(&folders, &[RECORD, BILL])?;
    Ok(format!("the brokers keep {} on their disks, and not a word of either", crate::text::bytes(bytes)))
}

fn receipt(publisher: &Person, local: &Local, record: &Published) -> Result<String, Failure> {
    let receipt = publisher.brokers.receipt(record.height, record.number).wait()?;
    let kept = Receipt::from_bytes(&receipt.to_bytes()).map_err(|_| broken("a receipt cannot be read back"))?;
    kept.verify(&local.cluster().genesis).map_err(|e| broken(format!("a receipt does not hold: {e}")))?;
    let mut forged = kept.clone();
    if let Fact::Published(entry) = &mut forged.fact {
        entry.places[0].1 += 1;
    }
    match forged.verify(&local.cluster().genesis) {
        Ok(()) => Err(broken("a forged receipt holds")),
        Err(e) => Ok(format!(
            "a receipt of {} signatures shows offline that it is number {} of its topic; a forged one is refused: {e}",
            kept.signatures.len(),
            record.places[0]
        )),
    }
}

/// Two publish at once; all read the same, in the same order.
fn one_order(people: &mut [Person]) -> Result<String, Failure> {
    let publish_all = |person: &Person| -> Result<(), Failure> {
        (0..EACH).try_for_each(|n| shift(person, &format!("{} {n}", person.name)).map(drop))
    };
    let (one, other) = (&people[0], &people[4]);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| publish_all(other));
        publish_all(one)?;
        other.join().map_err(|_| broken("a publisher ended"))?
    })?;
    let mut orders = Vec::new();
    for person in people.iter_mut() {
        let order: Result<Vec<_>, Failure> = (0..2 * EACH).map(|_| person.next()).collect();
        orders.push(order?);
    }
    if orders.iter().any(|order| *order != orders[0]) {
        return Err(broken("two readers saw two orders"));
    }
    let turns = orders[0].windows(2).filter(|pair| pair[0].as_ref().map(|b| b[0]) != pair[1].as_ref().map(|b| b[0]));
    Ok(format!(
        "{} publications of two at once come to {} readers in one order, in which the two alternate {} times",
        2 * EACH,
        people.len(),
        turns.count()
    ))
}

/// For all of hospital A and of the insurer, and of hospital B.
fn shift(person: &Person, body: &str) -> Result<Published, Failure> {
    let all =
        "hospitalA:role in [practice, dermatologist, nurse] or hospitalB:role = dermatologist or insurer:role = clerk";
    publish(person, "shift/today", all, body)
}

/// The leader dies while somebody publishes.
fn killed(local: &mut Local, people: &mut [Person]) -> Result<String, Failure> {
    let stands = people[0].brokers.status().wait()?;
    let leader = stands.iter().find_map(|it| it.said.as_ref().ok().map(|said| usize::from(said.leader)));
    let leader = leader.ok_or_else(|| broken("no broker says who leads"))?;
    local.kill(leader)?;
    let (mut longest, mut last) = (Duration::ZERO, Instant::now());
    for n in 0..EACH {
        shift(&people[0], &format!("after the crash {n}"))?;
        for person in people.iter_mut() {
            person.next()?;
        }
        longest = longest.max(last.elapsed());
        last = Instant::now();
    }
    local.restart(leader)?;
    Ok(format!(
        "broker {leader}, which led, is killed: {EACH} more publications are ordered and read, the longest wait {}",
        duration(longest)
    ))
}

fn caught_up(local: &mut Local, people: &[Person]) -> Result<String, Failure> {
    let start = Instant::now();
    together(local, people)?;
    Ok(format!("it is started again and has caught up {} later", duration(start.elapsed())))
}

/// Waits until all brokers stand at about the same block.
fn together(local: &mut Local, people: &[Person]) -> Result<(), Failure> {
    let heights = || -> Option<Vec<u64>> {
        let stands = people[0].brokers.status().wait().ok()?;
        stands.iter().map(|it| it.said.as_ref().ok().map(|said| said.height)).collect()
    };
    let together = |heights: &Vec<u64>| heights.iter().max().zip(heights.iter().min()).is_some_and(|(a, b)| a - b <= 8);
    if holds_within(TIMEOUT, || heights().is_some_and(|it| together(&it))) {
        local.check()
    } else {
        Err(broken(format!("the broker that was started again did not catch up: {:?}", heights())))
    }
}

/// A broker that does not lead, and that nobody has anything against so far.
fn innocent(people: &[Person]) -> Result<usize, Failure> {
    if let Some(accused) = people.iter().flat_map(|person| person.brokers.evidence()).next() {
        return Err(broken(format!("nobody lied yet, and somebody is accused: {}", accused.what)));
    }
    let stands = people[0].brokers.status().wait()?;
    let leads = stands.iter().find_map(|it| it.said.as_ref().ok().map(|said| usize::from(said.leader)));
    Ok(if leads == Some(0) { 1 } else { 0 })
}

/// From now on a broker tells its clients nothing but lies.
fn lied_to(local: &mut Local, people: &mut [Person], liar: usize) -> Result<String, Failure> {
    local.corrupt(liar)?;
    together(local, people)?;
    let (mut longest, mut last) = (Duration::ZERO, Instant::now());
    let mut published = None;
    for n in 0..EACH {
        let body = format!("among lies {n}");
        published = Some(shift(&people[0], &body)?);
        for person in people.iter_mut() {
            if person.next()?.as_deref() != Some(body.as_bytes()) {
                return Err(broken(format!("{} did not get '{body}'", person.name)));
            }
        }
        longest = longest.max(last.elapsed());
        last = Instant::now();
    }
    let published = published.expect("some are published");
    let receipt = people[0].brokers.receipt(published.height, published.number).wait()?;
    receipt.verify(&local.cluster().genesis).map_err(|e| broken(format!("a receipt does not hold: {e}")))?;
    let place = Read::TopicPosition { header: Header { topic: "patient/17".into(), value: None }, ps: 0 };
    let found = people[1].brokers.read(&place, false).wait()?;
    let read = found.iter().find_map(|it| it.publication.as_ref()).and_then(|(_, it)| it.bodies()).map(<[_]>::concat);
    if read.as_deref() != Some(RECORD.as_bytes()) {
        return Err(broken(format!("{DERMATOLOGIST} did not read the record")));
    }
    local.check()?;
    Ok(format!(
        "broker {liar} lies from now on, in every digest, share, receipt and read: nobody notices, {EACH} more come as \
         they were, the longest wait {}",
        duration(longest)
    ))
}

/// What it signed is kept and exported, and convinces others.
fn convicted(local: &Local, people: &mut [Person], liar: usize) -> Result<String, Failure> {
    let (home, cluster) = (Home::at(&local.scratch().join("home")), local.cluster());
    let key = people[0].brokers.key(KEY_TIMEOUT).wait()?;
    let culprit = u16::try_from(liar).expect("brokers have a limit");
    let mut witnesses = BTreeSet::new();
    let began = Instant::now();
    let (path, text) = loop {
        for person in people.iter() {
            let found = person.brokers.evidence();
            if let Some(other) = found.iter().find(|it| !it.what.starts_with(&format!("broker {liar} "))) {
                return Err(broken(format!("{} accuses an honest one: {}", person.name, other.what)));
            }
            for it in &found {
                witnesses.insert(person.name);
                evidence::save(&home, &cluster.cluster(), it)?;
            }
        }
        let kept = evidence::kept(&home, &cluster.cluster())?;
        let convicts = |text: &str| evidence::convicts(cluster, &key, text) == Some(Culprit::Broker(culprit));
        if let Some(proof) = kept.into_iter().find(|(_, text)| convicts(text)) {
            break proof;
        }
        if began.elapsed() > TIMEOUT {
            return Err(broken(format!("none of the lies that {} clients noted is a proof", witnesses.len())));
        }
        // What others answer first is believed, so that a liar who is slow, as one who has just started is, may not have
        // been needed yet: neither for a publication nor for a receipt.
        let published = shift(&people[0], "among lies")?;
        people.iter_mut().try_for_each(|person| person.next().map(drop))?;
        people[0].brokers.receipt(published.height, published.number).wait()?;
    };
    let (witnesses, liar) = (witnesses.len(), culprit);
    let out = local.scratch().join("evidence");
    evidence::export(&evidence::kept(&home, &cluster.cluster())?, &out)?;
    if evidence::convicts(cluster, &key, &changed(&text)).is_some() {
        return Err(broken("a changed proof convicts somebody"));
    }
    let what = if text.contains(FALSE_SHARE) { "a false share" } else { "a state that others contradict" };
    let name = path.file_name().unwrap_or_default().display();
    Ok(format!(
        "{witnesses} of {} clients noted it; 'brokers evidence' exports {name}: {what} with broker {liar}'s \
         signature, which convinces anybody who has the cluster's keys",
        people.len()
    ))
}

/// How the record of a false share begins.
const FALSE_SHARE: &str = "\"record\": \"01";

/// The same proof with another signature, which is at a record's end.
fn changed(text: &str) -> String {
    let mut value: Value = serde_json::from_str(text).unwrap_or_default();
    let mut record = value.get("record").and_then(Value::as_str).unwrap_or_default().to_owned();
    let last = record.pop();
    record.push(if last == Some('0') { '1' } else { '0' });
    value["record"] = record.into();
    value.to_string()
}

/// An administrator ends the dermatologist; what was readable is no more.
fn revoked(local: &Local, people: &[Person]) -> Result<String, Failure> {
    let (admin, dermatologist) = (&people[0].brokers, &people[1].brokers);
    let place = Read::TopicPosition { header: Header { topic: "patient/17".into(), value: None }, ps: 0 };
    let readable =
        |brokers: &Brokers| brokers.read(&place, false).wait().map(|it| it.iter().any(|p| p.publication.is_some()));
    if !readable(dermatologist)? {
        return Err(broken("the dermatologist cannot read the record again"));
    }
    let mut act = Admin::new(admin.next_act().wait()?, Action::RevokeClient(dermatologist.client()));
    let cluster = local.cluster();
    if !act.sign(&cluster.genesis, &cluster.cluster(), local.administrator()) {
        return Err(broken("the administrator is none"));
    }
    admin.submit(&Operation::Administer(act)).wait()?;
    match readable(dermatologist) {
        Ok(true) => Err(broken("who was revoked reads the record")),
        Ok(false) | Err(_) => {
            Ok("the dermatologist reads the record again by its number; revoked, no share comes any more".to_owned())
        }
    }
}

const A: &str = "hospitalA";
const B: &str = "hospitalB";
const INSURER: &str = "insurer";
const DERMATOLOGIST: &str = "the dermatologist of hospital A";
const CLERK: &str = "a clerk of the insurer";
const DERMATOLOGIST_ONLY: &str = "hospitalA:role = dermatologist";
const RECORD: &str = "patient 17: melanoma, left forearm";
const BILL: &str = "bill 17: excision, 214.50";
const EACH: usize = 20;
const TIMEOUT: Duration = Duration::from_secs(15);
const KEY_TIMEOUT: Duration = Duration::from_secs(40);
