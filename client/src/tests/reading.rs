//! How old what is read may be (E9).

use std::collections::BTreeMap;

use sealcast_broker::operation::{Body, Execute, Policy, Publication};
use sealcast_broker::protocol::Why;
use sealcast_broker::state::Code;
use sealcast_wire::{Fetch, Fetched};

use super::broker::{Behaviour, LIARS};
use super::world::{World, header, publication};
use super::{Answer, OperationOutcome, Output, Read, TopicPosition, fixture, subscribe};
use sealcast_delivery::Token;

/// What was read by now, if it was.
fn found(world: &World, member: usize, token: Token) -> Option<std::result::Result<Answer, Why>> {
    world.members[member].told.others.iter().find_map(|it| match it {
        Output::Read(of, answer) if *of == token => Some(answer.clone()),
        _ => None,
    })
}

/// The bodies that a read finds, in the order of places.
fn read(world: &mut World, member: usize, what: Read, linearizable: bool) -> Vec<String> {
    let now = world.now();
    let token = world.members[member].quorum.read(now, what, linearizable).expect("there is room");
    assert!(world.until(25_000_000, |it| found(it, member, token).is_some()), "no answer");
    let text = |it: TopicPosition| match it.found.expect("it may be read").1.body {
        Body::Plain(bytes) => String::from_utf8(bytes).expect("it is text"),
        other => panic!("{other:?}"),
    };
    match found(world, member, token) {
        Some(Ok(Answer::Places(places))) => places.into_iter().map(text).collect(),
        Some(Ok(Answer::Value(value))) => value.into_iter().map(|it| String::from_utf8(it).expect("text")).collect(),
        other => panic!("{other:?}"),
    }
}

/// Publishes a text and puts it as a value; f + 1 brokers acknowledge it.
fn put(world: &mut World, member: usize, text: &str) {
    let execute = Execute::Put { key: b"k".to_vec(), value: text.as_bytes().to_vec() };
    let now = world.now();
    let it = Publication { execute, ..publication(&["open"], text.as_bytes()) };
    let token = world.members[member].quorum.publish(now, it).expect("there is room");
    let acknowledged = |it: &World| match it.members[member].told.outcomes.get(&token) {
        Some(OperationOutcome::Executed { outcome, .. }) => outcome.code == Code::Done,
        _ => false,
    };
    assert!(world.until(20_000_000, acknowledged), "{text} was not acknowledged");
}

/// The newest, by all ways to read it; each with what it finds.
fn newest(old: &str, new: &str) -> [(Read, Vec<String>); 4] {
    let header = || header("open");
    let texts = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect();
    [
        (Read::Latest { header: header() }, texts(&[new])),
        (Read::Range { header: header(), from: 0, limit: 10 }, texts(&[old, new])),
        (Read::TopicPosition { header: header(), ps: 1 }, texts(&[new])),
        (Read::Value { topic: "open".into(), key: b"k".to_vec() }, texts(&[new])),
    ]
}

/// Four honest brokers, a reader and a writer, whose 'old' everybody has.
fn with_old(seed: u64) -> (World, usize, usize) {
    let mut world = World::new(seed, 1, Behaviour::Honest);
    let [reader, _, writer, _] = fixture(&mut world);
    put(&mut world, writer, "old");
    world.run(200_000);
    (world, reader, writer)
}

/// The brokers that a client asks first, and the others.
fn asked_first(world: &World, member: usize) -> [u16; 4] {
    let primary_broker = world.members[member].quorum.primary_broker;
    std::array::from_fn(|n| (primary_broker + n as u16) % 4)
}

#[test]
fn rule_e9_f_plus_1_brokers_that_are_behind_answer_a_plain_read_and_no_linearizable_one() {
    for seed in 0..20 {
        let (mut world, reader, writer) = with_old(seed);
        // f + 1 honest brokers execute nothing any more: they, and nobody else, are asked first.
        world.held = asked_first(&world, reader)[..2].iter().copied().collect();
        put(&mut world, writer, "new");
        let latest = || Read::Latest { header: header("open") };
        assert_eq!(read(&mut world, reader, latest(), false), ["old"], "seed {seed}: a plain read may be of the past");
        for (what, newest) in newest("old", "new") {
            assert_eq!(read(&mut world, reader, what.clone(), true), newest, "seed {seed}: {what:?}");
        }
        // Who has read the new value never reads the old one again, by no read.
        assert_eq!(read(&mut world, reader, latest(), false), ["new"], "seed {seed}: reads of one client go forwards");
    }
}

#[test]
fn rule_e9_a_liar_and_an_honest_broker_that_is_behind_make_no_old_answer_together() {
    for seed in 0..20 {
        let (mut world, reader, writer) = with_old(seed);
        let [liar, behind, ..] = asked_first(&world, reader);
        world.brokers[usize::from(liar)].freeze();
        world.held.insert(behind);
        put(&mut world, writer, "new");
        for (what, newest) in newest("old", "new") {
            assert_eq!(read(&mut world, reader, what.clone(), true), newest, "seed {seed}: {what:?}");
        }
    }
}

#[test]
fn rule_e9_who_has_read_something_new_reads_nothing_older() {
    let latest = Read::Latest { header: header("open") };
    let value = Read::Value { topic: "open".into(), key: b"k".to_vec() };
    for (seed, what) in (0..20).flat_map(|seed| [(seed, latest.clone()), (seed, value.clone())]) {
        let (mut world, reader, writer) = with_old(seed);
        let [_, second, behind, liar] = asked_first(&world, reader);
        world.brokers[usize::from(liar)].freeze();
        world.held.insert(behind);
        put(&mut world, writer, "new");
        assert_eq!(
            read(&mut world, reader, what.clone(), false),
            ["new"],
            "seed {seed}: of the two that are asked first"
        );
        // One of those two is not heard, so that the liar and the one that is behind are asked too.
        world.unheard.insert(second);
        let now = world.now();
        let again = world.members[reader].quorum.read(now, what.clone(), false).expect("there is room");
        world.run(5_000_000);
        assert_eq!(found(&world, reader, again), None, "seed {seed}: not the old one, again");
        world.held.clear();
        assert_eq!(read(&mut world, reader, what.clone(), false), ["new"], "seed {seed}");
    }
}

#[test]
fn rule_e9_the_policy_in_force_is_what_f_plus_1_brokers_say_and_no_liar_says_another() {
    for seed in 0..21 {
        let mut world = World::new(seed, 1, LIARS[seed as usize % LIARS.len()]);
        let [reader, ..] = fixture(&mut world);
        // Whoever is subscribed is registered.
        subscribe(&mut world, &[reader]);
        let text = "publish open if exchange:desk = fx\nread secret if exchange:desk in [fx, rates]";
        world.set_policy(1, text);
        let in_force = |it: &World| it.brokers.iter().all(|broker| broker.state.policy().0 == 1);
        assert!(world.until(20_000_000, in_force), "seed {seed}: it is not executed");
        let now = world.now();
        let token = world.members[reader].quorum.read(now, Read::Policy, false).expect("there is room");
        assert!(world.until(25_000_000, |it| found(it, reader, token).is_some()), "seed {seed}: no answer");
        let policy: Policy = text.parse().expect("a policy");
        assert_eq!(found(&world, reader, token), Some(Ok(Answer::Policy { number: 1, policy })), "seed {seed}");
    }
}

#[test]
fn rule_e4_the_proofs_of_all_who_answer_are_had_and_who_is_silent_is_not_waited_for_long() {
    for seed in 0..20 {
        let mut world = World::new(seed, 1, Behaviour::Withholder);
        let [reader, ..] = fixture(&mut world);
        let now = world.now();
        let token = world.members[reader].quorum.proofs(now).expect("there is room");
        let proofs = |it: &World| {
            it.members[reader].told.others.iter().find_map(|it| match it {
                Output::Proofs(of, proofs) if *of == token => Some(proofs.clone()),
                _ => None,
            })
        };
        assert!(world.until(3_000_000, |it| proofs(it).is_some()), "seed {seed}: no answer");
        let honest = world.brokers.iter().filter(|it| it.behaviour == Behaviour::Honest).map(|it| it.number);
        let given = proofs(&world).expect("just seen");
        assert!(given.keys().copied().eq(honest), "seed {seed}: {given:?}");
        assert!(given.iter().all(|(broker, of)| of[0].1 == [*broker as u8]), "seed {seed}: {given:?}");
    }
}

#[test]
fn rule_g7_who_gives_no_shares_keeps_neither_other_shares_nor_other_questions_from_being_asked_for() {
    const SHARES: u64 = 1024;
    let mut world = World::new(7, 1, Behaviour::Honest);
    let [reader, ..] = fixture(&mut world);
    world.run(2_000_000);
    world.unheard.insert(0);
    let (mut asked, mut opened) = (0, 0);
    let mut came: BTreeMap<u64, usize> = BTreeMap::new();
    for _ in 0..500 {
        let now = world.now();
        let shares = |sn| Fetch::Shares { index: sn, proved: false };
        while asked < SHARES && world.members[reader].quorum.fetch(now, &shares(asked)) == Fetched::Missing {
            asked += 1;
        }
        world.run(20_000);
        let it = &mut world.members[reader];
        for said in std::mem::take(&mut it.told.others) {
            let Output::Attach { sn, .. } = said else { continue };
            let of_this = came.entry(sn).or_default();
            *of_this += 1;
            if *of_this == 3 {
                it.quorum.opened(sn);
                opened += 1;
            }
        }
    }
    assert_eq!(opened, SHARES, "of {asked} asked for");
    // What does not open leaves room for all else.
    let now = world.now();
    world.unheard.extend([1, 2]);
    let quorum = &mut world.members[reader].quorum;
    while quorum.shares(now, asked, true).is_ok() {
        asked += 1;
    }
    assert!(quorum.read(now, Read::Latest { header: header("open") }, false).is_ok());
}
