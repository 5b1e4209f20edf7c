//! Stories of clients among brokers, of which some misbehave; hundreds of seeds each.

mod broker;
mod reading;
mod retention;
mod sending;
mod statements;
mod transport;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use sealcast_broker::operation::{Body, Execute, Operation};
use sealcast_broker::protocol::Refusal;
use sealcast_broker::state::Code;

use super::*;
use broker::{Behaviour, LIARS};
use world::{World, header, only, publication};

/// Two readers and two publishers; whoever is no trader may not read what is for traders.
fn fixture(world: &mut World) -> [usize; 4] {
    let trader = [("desk", "fx")];
    [world.join(1, &trader), world.join(2, &[]), world.join(3, &[]), world.join(4, &[])]
}

/// What was published, in the order of the brokers' own state.
fn ordered(world: &World) -> Vec<(u64, String, Vec<u8>)> {
    let honest = world.brokers.iter().filter(|it| it.behaviour == Behaviour::Honest);
    let honest = honest.max_by_key(|it| it.state.height()).expect("most are honest");
    let published = (0..honest.state.next_sn()).filter_map(|sn| match honest.body(sn) {
        Some((_, Operation::Publish(it))) => match it.body {
            Body::Plain(body) => Some((sn, it.headers[0].topic.clone(), body)),
            _ => None,
        },
        _ => None,
    });
    published.collect()
}

/// Every property that a reader and a publisher are promised.
fn check_all(world: &World, readers: &[usize], publishers: &BTreeMap<usize, Vec<Token>>, what: &str) {
    let order = ordered(world);
    let mut seen = BTreeSet::new();
    for (_, _, body) in &order {
        assert!(seen.insert(body.clone()), "{what}: {:?} was ordered twice", String::from_utf8_lossy(body));
    }
    for (member, tokens) in publishers {
        for token in tokens {
            let outcome = world.members[*member].told.outcomes.get(token);
            assert!(
                matches!(outcome, Some(OperationOutcome::Executed { outcome, .. }) if outcome.code == Code::Done),
                "{what}: of {token:?} of client {member} came {outcome:?}"
            );
        }
    }
    let published: usize = publishers.values().map(Vec::len).sum();
    assert_eq!(order.len(), published, "{what}: something was lost");
    for reader in readers {
        let told = &world.members[*reader].told;
        let got: Vec<(u64, Vec<u8>)> = told
            .delivered
            .iter()
            .map(|it| match &it.publication.body {
                Body::Plain(body) => (it.entry.sn, body.clone()),
                other => panic!("{what}: {other:?}"),
            })
            .collect();
        // Reader 0 is the trader.
        let is_for = |topic: &String| *reader == 0 || topic != "secret";
        let expected: Vec<(u64, Vec<u8>)> =
            order.iter().filter(|(_, topic, _)| is_for(topic)).map(|(sn, _, body)| (*sn, body.clone())).collect();
        assert_eq!(got.len(), expected.len(), "{what}: reader {reader} got another number");
        assert_eq!(got, expected, "{what}: reader {reader} got something else, or in another order");
        assert_eq!(told.skipped, (order.len() - expected.len()) as u64, "{what}: ⊥ of reader {reader}");
    }
}

fn publish(world: &mut World, member: usize, n: usize, tokens: &mut BTreeMap<usize, Vec<Token>>) {
    for i in 0..n {
        let count = tokens.entry(member).or_default().len();
        let body = format!("{member}/{count}");
        let it = match i % 3 {
            0 => only("exchange:desk = fx", publication(&["secret"], body.as_bytes())),
            1 => publication(&["open", "price=105"], body.as_bytes()),
            _ => publication(&["open/else"], body.as_bytes()),
        };
        let now = world.now();
        let token = world.members[member].quorum.publish(now, it).expect("there is room");
        tokens.entry(member).or_default().push(token);
        if world.random(3) == 0 {
            let wait = world.random(3_000);
            world.run(wait);
        }
    }
}

#[test]
fn rule_e2_what_may_no_longer_be_read_when_its_body_is_asked_for_is_empty() {
    let mut skipped = 0;
    for seed in 0..20 {
        // In its turn to send contents it sends none, so that they are asked for, later.
        let mut world = World::new(seed, 1, Behaviour::Withholder);
        let (reader, publisher) = (world.join(1, &[]), world.join(2, &[]));
        subscribe(&mut world, &[reader]);
        for n in 0..24_u8 {
            let now = world.now();
            world.members[publisher].quorum.publish(now, publication(&["open"], &[n])).expect("there is room");
            world.run(12_000);
        }
        world.set_policy(1, "read # if exchange:desk = nobody");
        let all = |it: &World| it.members[reader].told.delivered.len() as u64 + it.members[reader].told.skipped == 24;
        assert!(world.until(60_000_000, all), "{seed}: it waits for ever");
        skipped += world.members[reader].told.skipped;
        assert!(world.members[reader].told.delivered.iter().all(|it| it.place < 24));
    }
    assert!(skipped > 0, "what was asked for late");
}

#[test]
fn rule_g8_of_whom_brokers_do_not_know_they_take_nothing_and_it_hears_so() {
    for seed in 0..20 {
        let mut world = World::new(seed, 1, LIARS[seed as usize % LIARS.len()]);
        // One has nobody's word, one another client's.
        let false_word = world.registration(9, &[]);
        let members = [world.join_by(1, vec![]), world.join_by(2, vec![false_word])];
        assert!(world.until(20_000_000, |it| members.iter().all(|m| it.members[*m].quorum.order_status().is_some())));
        for member in members {
            let now = world.now();
            let quorum = &mut world.members[member].quorum;
            let tokens: Vec<Token> =
                (0..20).map(|_| quorum.publish(now, publication(&["open"], b"x")).expect("there is room")).collect();
            let told = |it: &World| tokens.iter().all(|token| it.members[member].told.outcomes.contains_key(token));
            assert!(world.until(20_000_000, told), "{seed}: it waits for ever");
            let outcomes = &world.members[member].told.outcomes;
            assert!(tokens.iter().all(|it| outcomes[it] == OperationOutcome::Refused(Refusal::Unregistered)), "{seed}");
        }
        let not_registered = |it: &Output| matches!(it, Output::Notice(Notice::NotRegistered(..)));
        assert!(world.members[members[1]].told.others.iter().any(not_registered), "{seed}");
        // Once somebody vouches for it, it goes on.
        let now = world.now();
        let word = Operation::Register(world.registration(1, &[]));
        let quorum = &mut world.members[members[0]].quorum;
        quorum.submit(now, word).expect("there is room");
        let token = quorum.publish(now, publication(&["open"], b"x")).expect("there is room");
        let done = |it: &OperationOutcome| matches!(it, OperationOutcome::Executed { outcome, .. } if outcome.code == Code::Done);
        let came = |it: &World| it.members[members[0]].told.outcomes.get(&token).is_some_and(done);
        assert!(world.until(20_000_000, came), "{seed}");
        assert_eq!(ordered(&world).len(), 1);
    }
}

#[test]
fn rule_e3_several_may_vouch_for_a_client_and_one_that_is_false_keeps_out_no_other() {
    let refused = |it: &Output| matches!(it, Output::Notice(Notice::NotRegistered(_, it)) if it.code == Code::Proof);
    for seed in 0..20 {
        let mut world = World::new(seed, 1, LIARS[seed as usize % LIARS.len()]);
        // More than a batch has room for, the first one another client's.
        let desks: Vec<String> = (0..2 * limits::BATCH_PROOFS_MAX).map(|n| format!("desk{n}")).collect();
        let statements = desks.iter().zip(11..).map(|(desk, serial)| world.word(1, serial, &[(desk, "fx")]));
        let statements = [world.registration(9, &[])].into_iter().chain(statements).collect();
        let (reader, publisher) = (world.join_by(1, statements), world.join(2, &[]));
        subscribe(&mut world, &[reader]);
        let all = desks.iter().map(|desk| format!("exchange:{desk} = fx")).collect::<Vec<_>>().join(" and ");
        for round in 1..=2 {
            let now = world.now();
            let secret = only(&all, publication(&["desks"], b"to who has all"));
            world.members[publisher].quorum.publish(now, secret).expect("there is room");
            let came = |it: &World| it.members[reader].told.delivered.len() == round;
            assert!(world.until(20_000_000, came), "{seed}: what is said of it is not known");
            // Whoever has several says them again when it begins again, the false one too.
            let told = |it: &World| it.members[reader].told.others.iter().any(refused);
            assert!(world.until(20_000_000, told), "{seed}: round {round}");
            world.members[reader].told.others.clear();
            let member = &mut world.members[reader];
            member.told.record = Some(member.quorum.record());
            member.told.subscribed.clear();
            world.restart(reader);
            subscribe(&mut world, &[reader]);
        }
        assert_eq!(world.members[reader].told.skipped, 0, "{seed}");
    }
}

/// Subscribes to everything.
fn subscribe(world: &mut World, readers: &[usize]) {
    for reader in readers {
        let now = world.now();
        world.members[*reader].quorum.subscribe(now, "#".parse().expect("an interest")).expect("there is room");
    }
    let all = readers.to_vec();
    let subscribed = world.until(20_000_000, |it| all.iter().all(|r| it.members[*r].told.subscribed.len() == 1));
    assert!(subscribed, "nobody is subscribed");
}

fn settle(world: &mut World, readers: &[usize], tokens: &BTreeMap<usize, Vec<Token>>) {
    let readers = readers.to_vec();
    world.until(60_000_000, |it| {
        let done = tokens.iter().all(|(m, of)| of.iter().all(|t| it.members[*m].told.outcomes.contains_key(t)));
        let total: usize = tokens.values().map(Vec::len).sum();
        done && readers.iter().all(|r| {
            let told = &it.members[*r].told;
            told.delivered.len() as u64 + told.skipped >= total as u64
        })
    });
}

fn story(seed: u64, faulty: usize, behaviour: Behaviour, shape: impl FnOnce(&mut World)) {
    let what = format!("seed {seed}, f = {faulty}, {behaviour:?}");
    let mut world = World::new(seed, faulty, behaviour);
    shape(&mut world);
    let [trader, other, first, second] = fixture(&mut world);
    subscribe(&mut world, &[trader, other]);
    let mut tokens = BTreeMap::new();
    for _ in 0..3 {
        publish(&mut world, first, 12, &mut tokens);
        publish(&mut world, second, 9, &mut tokens);
        let wait = world.random(60_000);
        world.run(wait);
    }
    settle(&mut world, &[trader, other], &tokens);
    check_all(&world, &[trader, other], &tokens, &what);
}

#[test]
fn readers_get_what_was_published_once_and_in_one_order() {
    for seed in 0..20 {
        story(seed, 1, Behaviour::Honest, |_| {});
    }
}

#[test]
fn rule_e1_f_liars_change_nothing_that_a_client_sees() {
    for seed in 0..60 {
        for behaviour in LIARS {
            story(seed, 1, behaviour, |_| {});
        }
    }
}

#[test]
fn rule_e1_two_of_seven_liars_change_nothing_either() {
    for seed in 0..8 {
        for behaviour in LIARS {
            story(seed, 2, behaviour, |_| {});
        }
    }
}

#[test]
fn batches_ordered_in_any_order_are_executed_in_theirs() {
    for seed in 0..60 {
        story(seed, 1, Behaviour::Honest, |world| world.shuffles = true);
    }
}

#[test]
fn channels_that_break_lose_and_repeat_nothing() {
    for seed in 0..60 {
        for behaviour in [Behaviour::Honest, LIARS[seed as usize % LIARS.len()]] {
            story(seed, 1, behaviour, |world| {
                world.breaks = 15;
                world.shuffles = seed % 2 == 0;
            });
        }
    }
}

/// A few publications by `member`, all executed.
fn publish_some(world: &mut World, member: usize, readers: &[usize], n: usize) -> BTreeMap<usize, Vec<Token>> {
    let mut tokens = BTreeMap::new();
    publish(world, member, n, &mut tokens);
    settle(world, readers, &tokens);
    tokens
}

#[test]
fn rule_e6_what_was_published_for_a_replaced_policy_is_brought_up_to_date() {
    for seed in 0..20 {
        let mut world = World::new(seed, 1, LIARS[seed as usize % LIARS.len()]);
        let [trader, other, first, _] = fixture(&mut world);
        subscribe(&mut world, &[trader, other]);
        let mut tokens = BTreeMap::new();
        publish(&mut world, first, 9, &mut tokens);
        world.set_policy(1, "read open if exchange:desk = fx");
        publish(&mut world, first, 30, &mut tokens);
        settle(&mut world, &[trader, other], &tokens);
        for token in &tokens[&first] {
            let outcome = &world.members[first].told.outcomes[token];
            assert!(
                matches!(outcome, OperationOutcome::Executed { outcome, .. } if outcome.code == Code::Done),
                "{outcome:?}"
            );
        }
        let told = |member: usize| &world.members[member].told;
        assert_eq!((told(trader).delivered.len(), told(trader).skipped), (39, 0));
        assert_eq!(told(other).delivered.len() as u64 + told(other).skipped, 39);
        assert!(
            told(other).delivered.iter().all(|it| it.publication.headers[0].topic != "open" || it.entry.policy == 0)
        );
        assert_eq!(world.members[first].quorum.order_status().map(|it| it.policy), Some(1));
    }
}

#[test]
fn rule_e6_what_was_sealed_for_a_replaced_policy_goes_back_to_be_sealed_again() {
    let mut world = World::new(1, 1, Behaviour::Censor);
    let [trader, _, first, _] = fixture(&mut world);
    subscribe(&mut world, &[trader]);
    world.run(3_000_000);
    let sealed =
        |policy| Publication { policy, body: Body::Sealed(b"ciphertext".to_vec()), ..publication(&["open"], b"") };
    world.set_policy(1, "read open if exchange:desk = fx");
    world.run(200_000);
    let now = world.now();
    let client = &mut world.members[first].quorum;
    let number = client.number(now).expect("it is known where the order is");
    assert_eq!(client.publish_sealed(now, number + 1, sealed(0), None), Err(SendError::Retired));
    let token = client.publish_sealed(now, number, sealed(0), None).expect("there is room");
    world.until(5_000_000, |it| it.members[first].told.outcomes.contains_key(&token));
    assert_eq!(world.members[first].told.outcomes[&token], OperationOutcome::Superseded { policy: 1, epoch: 0 });
    let now = world.now();
    let client = &mut world.members[first].quorum;
    let again = client.number(now).expect("it is known");
    assert!(again > number, "a number is used once");
    let kept = client.publish_sealed(now, again, sealed(1), Some(token));
    assert_eq!((kept, client.number_of(token)), (Ok(token), Some(again)), "what is sealed again keeps its token");
    world.members[first].told.outcomes.clear();
    world.until(5_000_000, |it| !it.members[trader].told.delivered.is_empty());
    assert_eq!(world.members[trader].told.delivered[0].publication, sealed(1));
    assert_eq!(world.members[trader].told.delivered[0].entry.number, again);
    world.until(5_000_000, |it| it.members[first].told.outcomes.contains_key(&token));
    assert!(
        matches!(world.members[first].told.outcomes[&token], OperationOutcome::Executed { number, .. } if number == again)
    );
}

#[test]
fn rule_e6_nothing_is_sealed_when_the_newest_block_is_too_old() {
    let mut world = World::new(2, 1, Behaviour::Honest);
    let [_, _, first, _] = fixture(&mut world);
    world.run(500_000);
    let now = world.now();
    assert!(world.members[first].quorum.number(now).is_ok());
    world.clock_error = 90;
    let late = world.now();
    assert_eq!(world.members[first].quorum.number(late), Err(SendError::Old));
    // Time alone does not make an idle client's knowledge old: it asks.
    world.clock_error = 0;
    world.run(200_000_000);
    let now = world.now();
    assert!(world.members[first].quorum.number(now).is_ok());
    // Without brokers it does.
    let now = Now { monotonic: now.monotonic, utc: now.utc.map(|it| sealcast_wire::Utc(it.0 + 61)) };
    assert_eq!(world.members[first].quorum.number(now), Err(SendError::Old));
}

#[test]
fn rule_e6_a_liar_makes_the_newest_block_neither_newer_nor_older() {
    for liar in 0..4 {
        let mut world = World::new(2, 1, Behaviour::Honest);
        let [_, _, first, _] = fixture(&mut world);
        world.run(500_000);
        // By the client's clock the others stand still and the liar does not; then the other way round.
        for (clients, liars, error) in [(90, 90, Some(SendError::Old)), (0, -90, None)] {
            world.clock_error = clients;
            world.brokers[liar].clock_error = liars;
            world.restart(first);
            world.run(500_000);
            let now = world.now();
            assert_eq!(world.members[first].quorum.number(now).err(), error, "broker {liar}");
        }
    }
}

#[test]
fn rule_e11_a_cluster_that_went_back_is_refused() {
    // The highest block that the record knows, and the highest key epoch.
    for (at, newer) in [(65, &1_000_000_u64.to_be_bytes()[..]), (73, &1_u32.to_be_bytes()[..])] {
        let mut world = World::new(3, 1, Behaviour::Honest);
        let [trader, ..] = fixture(&mut world);
        subscribe(&mut world, &[trader]);
        let mut record = world.members[trader].quorum.record();
        record[at..at + newer.len()].copy_from_slice(newer);
        world.members[trader].told.record = Some(record);
        world.restart(trader);
        world.run(8_000_000);
        let member = &world.members[trader];
        assert_eq!(member.quorum.order_status(), None, "at {at}");
        let notices = member.told.others.iter().filter(|it| matches!(it, Output::Notice(Notice::RolledBack { .. })));
        assert_eq!(notices.count(), 1, "at {at}");
    }
}

#[test]
fn rule_e11_brokers_a_few_blocks_behind_are_waited_for() {
    let mut world = World::new(3, 1, Behaviour::Honest);
    let [trader, ..] = fixture(&mut world);
    subscribe(&mut world, &[trader]);
    let mut record = world.members[trader].quorum.record();
    let height = u64::from_be_bytes(record[65..73].try_into().expect("8 bytes"));
    record[65..73].copy_from_slice(&(height + 5).to_be_bytes());
    world.members[trader].told.record = Some(record);
    world.restart(trader);
    world.run(2_000_000);
    let member = &world.members[trader];
    assert!(member.quorum.order_status().is_some_and(|it| it.height >= height + 5));
    assert!(!member.told.others.iter().any(|it| matches!(it, Output::Notice(Notice::RolledBack { .. }))));
}

#[test]
fn rule_e9_a_read_is_what_f_plus_1_brokers_agree_on_and_not_older_than_what_was_seen() {
    for seed in 0..40 {
        let behaviour = LIARS[seed as usize % LIARS.len()];
        let mut world = World::new(seed, 1, behaviour);
        let [trader, other, first, _] = fixture(&mut world);
        subscribe(&mut world, &[trader]);
        publish_some(&mut world, first, &[trader], 9);
        let put = Execute::Put { key: b"k".to_vec(), value: b"v".to_vec() };
        let now = world.now();
        let it = Publication { execute: put, ..publication(&["open"], b"put") };
        let token = world.members[first].quorum.publish(now, it).expect("there is room");
        world.until(5_000_000, |it| it.members[first].told.outcomes.contains_key(&token));
        let header = || header("secret");
        let reads = [
            Read::TopicPosition { header: header(), ps: 1 },
            Read::Range { header: header(), from: 0, limit: 10 },
            Read::Latest { header: header() },
            Read::Value { topic: "open".into(), key: b"k".to_vec() },
        ];
        for (linearizable, member) in [(true, trader), (true, other), (false, trader)] {
            let now = world.now();
            let tokens: Vec<Token> = reads
                .iter()
                .map(|it| world.members[member].quorum.read(now, it.clone(), linearizable).expect("there is room"))
                .collect();
            let found = |world: &World, token: Token| {
                world.members[member].told.others.iter().find_map(|it| match it {
                    Output::Read(of, answer) if *of == token => Some(answer.clone()),
                    _ => None,
                })
            };
            assert!(world.until(20_000_000, |it| tokens.iter().all(|token| found(it, *token).is_some())), "{seed}");
            let bodies = |token: Token| match found(&world, token) {
                Some(Ok(Answer::Places(places))) => places
                    .into_iter()
                    .map(|it| (it.ps, it.found.map(|it| it.1.body)))
                    .collect::<Vec<(u64, Option<Body>)>>(),
                other => panic!("{seed}: {other:?}"),
            };
            let plain = |text: &str| (member == trader).then(|| Body::Plain(text.as_bytes().to_vec()));
            let all: Vec<(u64, Option<Body>)> =
                (0..).zip(["2/0", "2/3", "2/6"]).map(|(ps, text)| (ps, plain(text))).collect();
            assert_eq!(bodies(tokens[0]), all[1..2], "{seed} {behaviour:?}");
            assert_eq!(bodies(tokens[1]), all, "{seed} {behaviour:?}");
            assert_eq!(bodies(tokens[2]), all[2..], "{seed} {behaviour:?}");
            assert_eq!(found(&world, tokens[3]), Some(Ok(Answer::Value(Some(b"v".to_vec())))), "{seed} {behaviour:?}");
        }
    }
}

#[test]
fn rule_e1_a_receipt_is_f_plus_1_signatures_and_who_signs_otherwise_is_shown() {
    let mut shown = 0;
    for seed in 0..20 {
        let mut world = World::new(seed, 1, Behaviour::LiarInResults);
        let [trader, _, first, _] = fixture(&mut world);
        subscribe(&mut world, &[trader]);
        let tokens = publish_some(&mut world, first, &[trader], 3);
        let OperationOutcome::Executed { height, number, .. } = world.members[first].told.outcomes[&tokens[&first][1]]
        else {
            panic!("it was executed")
        };
        let now = world.now();
        let token = world.members[first].quorum.receipt(now, height, number).expect("there is room");
        // A reader gets one too, of what it may read and somebody else published.
        assert!(world.until(5_000_000, |it| it.members[trader].told.delivered.len() >= 3));
        let entry = world.members[trader].told.delivered[1].entry.clone();
        let now = world.now();
        let readers = world.members[trader].quorum.receipt_of(now, &entry).expect("there is room");
        let of = |world: &World, member: usize, token: Token| {
            world.members[member].told.others.iter().find_map(|it| match it {
                Output::Receipt(of, receipt) if *of == token => receipt.clone(),
                _ => None,
            })
        };
        for (member, token) in [(first, token), (trader, readers)] {
            assert!(world.until(5_000_000, |it| of(it, member, token).is_some()));
            let receipt = of(&world, member, token).expect("just seen");
            assert_eq!(receipt.verify(&world.genesis), Ok(()));
            assert_eq!(receipt.height, if member == first { height } else { entry.height });
        }
        let liar = world.brokers.iter().find(|it| it.behaviour != Behaviour::Honest).expect("one lies").number;
        for it in &world.members[first].told.others {
            if let Output::Notice(Notice::Evidence(it)) = it {
                assert_eq!(it.convicts(&world.genesis), Some(liar), "whoever has the genesis is convinced");
                shown += 1;
            }
        }
    }
    assert!(shown > 0, "the liar's testimony came in time nowhere");
}

#[test]
fn rule_g6_a_restarted_reader_goes_on_where_its_record_says() {
    for seed in 0..40 {
        let mut world = World::new(seed, 1, LIARS[seed as usize % LIARS.len()]);
        let [trader, other, first, second] = fixture(&mut world);
        subscribe(&mut world, &[trader, other]);
        let mut tokens = BTreeMap::new();
        for _ in 0..4 {
            publish(&mut world, first, 7, &mut tokens);
            publish(&mut world, second, 4, &mut tokens);
            let wait = world.random(40_000);
            world.run(wait);
            // It ends in order, and is away for a while.
            for reader in [trader, other] {
                let member = &mut world.members[reader];
                member.told.record = Some(member.quorum.record());
                member.told.subscribed.clear();
                world.restart(reader);
                let now = world.now();
                world.members[reader].quorum.subscribe(now, "#".parse().expect("an interest")).expect("there is room");
            }
        }
        settle(&mut world, &[trader, other], &tokens);
        check_all(&world, &[trader, other], &tokens, &format!("seed {seed}"));
    }
}

#[test]
fn a_crashed_readers_record_may_repeat_and_leaves_nothing_out() {
    for seed in 0..20 {
        let mut world = World::new(seed, 1, Behaviour::Honest);
        let [trader, _, first, _] = fixture(&mut world);
        subscribe(&mut world, &[trader]);
        world.run(300_000);
        let mut tokens = BTreeMap::new();
        for _ in 0..4 {
            publish(&mut world, first, 9, &mut tokens);
            let wait = world.random(300_000);
            world.run(wait);
            world.restart(trader);
            let now = world.now();
            world.members[trader].quorum.subscribe(now, "#".parse().expect("an interest")).expect("there is room");
        }
        world.run(5_000_000);
        let mut places: Vec<u64> = world.members[trader].told.delivered.iter().map(|it| it.place).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places, (0..36).collect::<Vec<u64>>(), "seed {seed}");
    }
}

#[test]
fn what_a_former_run_subscribed_to_can_be_ended() {
    let mut world = World::new(5, 1, Behaviour::Honest);
    let [trader, ..] = fixture(&mut world);
    subscribe(&mut world, &[trader]);
    world.run(300_000);
    let mut unread = Vec::new();
    for _ in 0..2 {
        world.members[trader].told.record = None;
        world.members[trader].told.subscribed.clear();
        world.members[trader].told.outcomes.clear();
        world.restart(trader);
        world.run(300_000);
        let now = world.now();
        let quorum = &mut world.members[trader].quorum;
        let found = quorum.unread_subscriptions();
        let stands =
            |quorum: &Quorum, id: &u64| quorum.confirmed_subscriptions().iter().any(|it| it.subscription == *id);
        assert!(found.iter().all(|id| stands(quorum, id)), "who reads none of them sees them");
        found.iter().for_each(|id| {
            quorum.unsubscribe(now, *id).expect("there is room");
        });
        assert!(!found.iter().any(|id| stands(quorum, id)), "they end");
        unread.push(found.len());
        // What ends is not gone on with by whoever wants the same.
        let token = quorum.subscribe(now, "#".parse().expect("an interest")).expect("there is room");
        world.drain(trader);
        world.run(300_000);
        let mut subscribed = world.members[trader].told.subscribed.values();
        assert!(subscribed.next().is_some_and(|id| !found.contains(id)), "{token:?}");
    }
    assert_eq!(unread, [1, 1]);
}

#[test]
fn a_publisher_that_restarts_takes_no_outcome_of_its_former_run_for_its_own() {
    for seed in 0..60 {
        let mut world = World::new(seed, 1, Behaviour::Honest);
        world.shuffles = seed % 2 == 0;
        let [trader, _, first, _] = fixture(&mut world);
        subscribe(&mut world, &[trader]);
        world.run(100_000);
        publish(&mut world, first, 12, &mut BTreeMap::new());
        let wait = world.random(15_000);
        world.run(wait);
        // Batches of the former run are still under way.
        world.restart(first);
        world.members[first].told.outcomes.clear();
        let before = ordered(&world).len();
        let mut tokens = BTreeMap::new();
        for n in 0..10 {
            let now = world.now();
            let it = publication(&["open"], format!("new {n}").as_bytes());
            tokens
                .entry(first)
                .or_insert_with(Vec::new)
                .push(world.members[first].quorum.publish(now, it).expect("room"));
        }
        settle(&mut world, &[], &tokens);
        world.run(2_000_000);
        let order = ordered(&world);
        assert!(order.len() >= before + 10, "seed {seed}");
        for n in 0..10 {
            let body = format!("new {n}").into_bytes();
            assert_eq!(order.iter().filter(|it| it.2 == body).count(), 1, "seed {seed}: {n}");
        }
        for (token, n) in tokens[&first].iter().zip(0..) {
            let Some(OperationOutcome::Executed { outcome, .. }) = world.members[first].told.outcomes.get(token) else {
                panic!("seed {seed}: no outcome of {n}")
            };
            let sn = u64::from_be_bytes(outcome.detail[..8].try_into().expect("it begins with the sn"));
            let body = format!("new {n}").into_bytes();
            assert!(order.iter().any(|it| it.0 == sn && it.2 == body), "seed {seed}: another outcome than of {n}");
        }
    }
}

#[test]
fn a_client_that_was_cut_off_catches_up() {
    for seed in 0..40 {
        let mut world = World::new(seed, 1, LIARS[seed as usize % LIARS.len()]);
        let [trader, other, first, second] = fixture(&mut world);
        subscribe(&mut world, &[trader, other]);
        let mut tokens = BTreeMap::new();
        for _ in 0..3 {
            publish(&mut world, first, 9, &mut tokens);
            world.cut_off(trader);
            world.cut_off(first);
            publish(&mut world, second, 20, &mut tokens);
        }
        settle(&mut world, &[trader, other], &tokens);
        check_all(&world, &[trader, other], &tokens, &format!("seed {seed}"));
    }
}

#[test]
fn rule_g7_who_is_handed_nothing_for_a_while_gets_all_of_it_afterwards_and_goes_on_otherwise() {
    for seed in 0..30 {
        let mut world = World::new(seed, 1, LIARS[seed as usize % LIARS.len()]);
        let [trader, other, first, second] = fixture(&mut world);
        subscribe(&mut world, &[trader, other]);
        let mut tokens = BTreeMap::new();
        for _ in 0..3 {
            publish(&mut world, first, 9, &mut tokens);
            let now = world.now();
            world.members[trader].quorum.hold(now, true);
            let before = world.members[trader].told.delivered.len();
            // What it asks and publishes itself meanwhile is answered.
            publish(&mut world, trader, 3, &mut tokens);
            publish(&mut world, second, 20, &mut tokens);
            let now = world.now();
            let read = Read::TopicPosition { header: header("secret"), ps: 0 };
            let read = world.members[trader].quorum.read(now, read, true).expect("there is room");
            let is_read = |world: &World| {
                let told = &world.members[trader].told.others;
                told.iter().any(|it| matches!(it, Output::Read(of, Ok(_)) if *of == read))
            };
            let all = |world: &World| {
                tokens[&trader].iter().all(|token| world.members[trader].told.outcomes.contains_key(token))
            };
            assert!(world.until(20_000_000, |it| is_read(it) && all(it)), "seed {seed}");
            // What was handed out before it was held may still be drained.
            assert!(world.members[trader].told.delivered.len() <= before + 9, "seed {seed}: it is held");
            let now = world.now();
            world.members[trader].quorum.hold(now, false);
        }
        settle(&mut world, &[trader, other], &tokens);
        check_all(&world, &[trader, other], &tokens, &format!("seed {seed}"));
    }
}

#[test]
fn who_leaves_a_subscription_and_wants_the_same_again_misses_nothing() {
    for seed in 0..30 {
        let mut world = World::new(seed, 1, LIARS[seed as usize % LIARS.len()]);
        let [trader, other, first, second] = fixture(&mut world);
        subscribe(&mut world, &[trader, other]);
        let mut tokens = BTreeMap::new();
        for _ in 0..3 {
            publish(&mut world, first, 9, &mut tokens);
            let now = world.now();
            let id = world.members[trader].quorum.subscriptions().next().expect("it stands").0;
            world.members[trader].quorum.leave(now, id);
            assert_eq!(world.members[trader].quorum.subscriptions().count(), 0);
            publish(&mut world, second, 20, &mut tokens);
            let wait = world.random(400_000);
            world.run(wait);
            let now = world.now();
            world.members[trader].quorum.subscribe(now, "#".parse().expect("an interest")).expect("there is room");
            world.drain(trader);
            assert_eq!(world.members[trader].quorum.subscriptions().next().map(|it| it.0), Some(id), "it is the same");
        }
        settle(&mut world, &[trader, other], &tokens);
        check_all(&world, &[trader, other], &tokens, &format!("seed {seed}"));
    }
}

#[test]
fn what_was_unsubscribed_from_is_not_gone_on_with() {
    let mut world = World::new(3, 1, Behaviour::Honest);
    let [trader, ..] = fixture(&mut world);
    subscribe(&mut world, &[trader]);
    // Its brokers name the subscription in their welcome.
    world.cut_off(trader);
    world.run(500_000);
    let now = world.now();
    let id = world.members[trader].quorum.subscriptions().next().expect("it stands").0;
    world.members[trader].quorum.submit(now, Operation::Unsubscribe(id)).expect("there is room");
    world.run(500_000);
    let now = world.now();
    world.members[trader].quorum.subscribe(now, "#".parse().expect("an interest")).expect("there is room");
    assert!(world.until(5_000_000, |it| it.members[trader].told.subscribed.len() == 2));
    assert!(world.members[trader].quorum.subscriptions().all(|(other, ..)| other != id));
}

#[test]
fn while_one_subscription_waits_others_come_and_it_goes_on_where_it_stopped() {
    for seed in 0..30 {
        let mut world = World::new(seed, 1, LIARS[seed as usize % LIARS.len()]);
        let [trader, _, first, _] = fixture(&mut world);
        let ids: Vec<u64> = ["secret", "open or open/else"]
            .into_iter()
            .map(|interest| {
                let now = world.now();
                let quorum = &mut world.members[trader].quorum;
                let token = quorum.subscribe(now, interest.parse().expect("an interest")).expect("there is room");
                assert!(world.until(20_000_000, |it| it.members[trader].told.subscribed.contains_key(&token)));
                world.members[trader].told.subscribed[&token]
            })
            .collect();
        let of = |world: &World, id: u64| -> Vec<u64> {
            let told = &world.members[trader].told;
            told.delivered.iter().filter(|it| it.subscription == id).map(|it| it.place).collect()
        };
        let now = world.now();
        world.members[trader].quorum.pause(now, ids[0], true);
        let mut tokens = BTreeMap::new();
        publish(&mut world, first, 30, &mut tokens);
        assert!(world.until(20_000_000, |it| of(it, ids[1]).len() == 20), "seed {seed}");
        assert!(of(&world, ids[0]).is_empty(), "seed {seed}: it waits");
        let now = world.now();
        world.members[trader].quorum.pause(now, ids[0], false);
        assert!(world.until(20_000_000, |it| of(it, ids[0]).len() == 10), "seed {seed}");
        publish(&mut world, first, 3, &mut tokens);
        let all = |world: &World| of(world, ids[0]).len() == 11 && of(world, ids[1]).len() == 22;
        assert!(world.until(20_000_000, all), "seed {seed}");
        assert_eq!(of(&world, ids[0]), (0..11).collect::<Vec<u64>>(), "seed {seed}");
        assert_eq!(of(&world, ids[1]), (0..22).collect::<Vec<u64>>(), "seed {seed}");
    }
}
