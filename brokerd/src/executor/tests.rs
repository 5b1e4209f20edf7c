use std::collections::BTreeMap;

use sealcast_broker::operation::{Action, Operation, OperationId, Policy};
use sealcast_broker::protocol::{Answer, Contents, Query, Why, designated_responder};
use sealcast_broker::receipt::{Fact, Receipt};
use sealcast_broker::state::{Code, Reading, Run};
use sealcast_wire::limits;

use crate::fixture::{ADMINISTRATOR, Broker, World, client, publish, subscribe};
use crate::gateway::ClientStatus;

fn header() -> sealcast_broker::operation::Header {
    sealcast_broker::operation::Header { topic: "market/eurusd".into(), value: None }
}

#[test]
fn all_brokers_name_one_digest_and_the_speaker_of_a_large_block_alone_brings_contents_and_bodies() {
    let mut world = World::with_clients();
    for n in 0..8 {
        let long = vec![n; if n % 2 == 0 { limits::UPDATE_BY_ALL_BYTES } else { 100 }];
        world.order(vec![(3, vec![publish(&long), publish(&[n, n])]), (1, vec![Operation::Sync])]);
    }
    let mut brokers: Vec<Broker> = (0..4).map(|index| Broker::start(&world, index, &[1, 2])).collect();
    brokers.iter_mut().for_each(|it| it.execute(&world, 1));
    for seed in [1, 2] {
        let updates: Vec<_> = brokers.iter().map(|it| it.inbox.updates(seed)).collect();
        for height in 1..=9 {
            let at_height: Vec<_> = updates.iter().map(|it| &it[&height]).collect();
            assert!(at_height.iter().all(|it| it.digest == at_height[0].digest), "E1");
            let speaks = designated_responder(&client(seed), height, 4);
            let spoken: Vec<usize> = (0..4).filter(|place| at_height[*place].contents.is_some()).collect();
            let is_small = world.ordered[height as usize - 1].0.bytes() <= limits::UPDATE_BY_ALL_BYTES;
            assert_eq!(spoken, if is_small { vec![0, 1, 2, 3] } else { vec![speaks] });
            let contents = at_height[speaks].contents.as_ref().unwrap();
            assert_eq!(contents.digest(&world.cluster, &client(seed), height), at_height[0].digest);
            check_bodies(contents, if seed == 1 && height > 1 { 2 } else { 0 });
            // Whoever is asked says the same, with bodies.
            let asked = brokers[(speaks + 1) % 4].executor.answer(&client(seed), Query::Update { height });
            let Answer::Update(update) = asked else { panic!("{asked:?}") };
            assert_eq!(update.contents.as_ref(), Some(contents));
        }
    }
    assert!(brokers[0].inbox.updates(3).is_empty(), "who has no channel here gets nothing");
    let nothing = brokers[0].executor.answer(&client(7), Query::Update { height: 2 });
    assert_eq!(nothing, Answer::No(Why::Nothing));
    assert_eq!(brokers[0].executor.answer(&client(1), Query::Update { height: 10 }), Answer::No(Why::Behind));
}

fn check_bodies(contents: &Contents, count: usize) {
    assert_eq!(contents.bodies.len(), count);
    assert_eq!(contents.publications.len(), count);
    for (entry, (sn, body)) in contents.publications.iter().zip(&contents.bodies) {
        assert_eq!((entry.sn, entry.id), (*sn, OperationId::of(body)));
    }
}

#[test]
fn a_restarted_broker_goes_on_where_it_was_and_repeats_nothing() {
    let mut world = World::with_clients();
    world.order(vec![(3, vec![publish(b"a")])]);
    let mut broker = Broker::start(&world, 0, &[1]);
    broker.execute(&world, 1);
    assert_eq!((broker.executor.height(), broker.executor.executed()), (2, 2));
    let folder = broker.end();
    world.order(vec![(3, vec![publish(b"b")])]);
    let mut broker = Broker::start_in(folder, &world, 0, &[1]);
    assert_eq!(broker.executor.height(), 2);
    // The order brings again what it believes unacknowledged.
    broker.execute(&world, 1);
    let updates = broker.inbox.updates(1);
    assert_eq!(updates.keys().copied().collect::<Vec<_>>(), [3]);
    let mut whole = Broker::start(&world, 0, &[1]);
    whole.execute(&world, 1);
    assert_eq!(updates[&3].digest, whole.inbox.updates(1)[&3].digest);
    assert_eq!(broker.executor.welcome(&client(1)), whole.executor.welcome(&client(1)));
    assert_eq!(broker.executor.answer(&client(1), Query::Update { height: 2 }), Answer::No(Why::Pruned));
    let both = [broker, whole].map(|it| it.executor.shared.state().root());
    assert_eq!(both[0], both[1]);
}

#[test]
fn results_are_found_by_number_also_after_a_restart() {
    let mut world = World::with_clients();
    let mut sent = BTreeMap::new();
    for n in 0..5_u64 {
        let first = world.number(3);
        let operations = vec![publish(&[n as u8]), Operation::Unsubscribe(99), publish(b"z")];
        let height = world.order(vec![(3, operations), (1, vec![Operation::Sync])]);
        sent.insert(first, height);
    }
    let mut broker = Broker::start(&world, 1, &[]);
    broker.execute(&world, 1);
    let broker = Broker::start_in(broker.end(), &world, 1, &[]);
    for (first, at) in sent {
        for number in first..first + 3 {
            let Answer::Result { height, results } = broker.executor.answer(&client(3), Query::Result { number })
            else {
                panic!("no result of {number}")
            };
            assert_eq!((height, results.first), (at, first));
            let codes: Vec<Code> = results.outcomes.iter().map(|it| it.code).collect();
            assert_eq!(codes, [Code::Done, Code::NoSubscription, Code::Done]);
        }
    }
    let none = Query::Result { number: world.number(3) };
    assert_eq!(broker.executor.answer(&client(3), none), Answer::No(Why::Nothing));
    assert_eq!(broker.executor.known(&client(3)).map(|it| it.next), Some(world.number(3)));
    assert_eq!(broker.executor.known(&client(9)), None);
    assert!(matches!(broker.executor.client_status(&client(3)), ClientStatus::Registered(_)));
    assert_eq!(broker.executor.client_status(&client(9)), ClientStatus::Unregistered);
}

#[test]
fn a_client_reads_and_resumes_what_it_may_read() {
    let mut world = World::with_clients();
    for n in 0..3 {
        world.order(vec![(3, vec![publish(&[n]), publish(&[n, n])])]);
    }
    let mut broker = Broker::start(&world, 2, &[]);
    broker.execute(&world, 1);
    let ask = |seed, query| broker.executor.answer(&client(seed), query);
    let range = Query::Range { header: header(), from: 2, limit: 3, min_height: 4 };
    let Answer::Places(places) = ask(1, range.clone()) else { panic!("no places") };
    assert_eq!(places.iter().map(|it| it.ps).collect::<Vec<_>>(), [2, 3, 4]);
    let sns: Vec<u64> = places
        .iter()
        .map(|it| match &it.reading {
            Reading::Publication(entry) => entry.sn,
            Reading::Empty => panic!("client 1 may read"),
        })
        .collect();
    let Answer::Places(denied) = ask(2, range) else { panic!("no places") };
    assert!(denied.iter().all(|it| it.reading == Reading::Empty));
    let Answer::Bodies(bodies) = ask(1, Query::Bodies { sns: sns.clone() }) else { panic!("no bodies") };
    assert_eq!(bodies.iter().map(|(sn, _)| *sn).collect::<Vec<_>>(), sns);
    assert_eq!(ask(2, Query::Bodies { sns: sns.clone() }), Answer::No(Why::Denied));
    // Whoever may read it may also show it to others, and nobody else.
    for sn in &sns {
        let Answer::Receipt(testimony) = ask(1, Query::Witness { sn: *sn }) else { panic!("no testimony") };
        assert!(matches!(testimony.fact, Fact::Published(entry) if entry.sn == *sn));
        assert_eq!(ask(2, Query::Witness { sn: *sn }), Answer::No(Why::Denied));
    }
    let Answer::Places(latest) = ask(1, Query::Latest { header: header(), min_height: 0 }) else { panic!("no place") };
    assert_eq!(latest[0].ps, 5);
    let behind = Query::Latest { header: header(), min_height: 5 };
    assert_eq!(ask(1, behind), Answer::No(Why::Behind), "E9");
    let resume = Query::Resume { subscription: 1, place: 0, sn: 0, min_height: 4 };
    let Answer::Resumed { notice, publications, .. } = ask(1, resume) else { panic!("not resumed") };
    assert_eq!((notice.places(), publications.len()), (6, 6));
    assert!(notice.runs.iter().zip(&publications).all(|(run, it)| *run == Run::Deliver { sn: it.sn }));
    // From the archive, where a block is no longer in memory.
    let broker = Broker::start_in(broker.end(), &world, 2, &[]);
    let bodies = Query::Bodies { sns };
    assert_eq!(broker.executor.answer(&client(1), bodies.clone()), Answer::No(Why::Pruned));
    broker.archive.0.lock().unwrap().extend(world.ordered.iter().map(|(block, _)| block.clone()));
    assert!(matches!(broker.executor.answer(&client(1), bodies), Answer::Bodies(bodies) if bodies.len() == 3));
}

#[test]
fn rule_e1_receipts_of_f_plus_1_brokers_hold_without_them() {
    let mut world = World::with_clients();
    let number = world.number(3);
    let height = world.order(vec![(3, vec![publish(b"a"), Operation::Sync])]);
    let mut brokers: Vec<Broker> = (0..2).map(|index| Broker::start(&world, index, &[])).collect();
    brokers.iter_mut().for_each(|it| it.execute(&world, 1));
    for number in [number, number + 1] {
        let testimonies =
            brokers.iter().map(|it| match it.executor.answer(&client(3), Query::Receipt { height, number }) {
                Answer::Receipt(testimony) => *testimony,
                other => panic!("{other:?}"),
            });
        let testimonies: Vec<_> = testimonies.collect();
        let mut receipt = Receipt::new(world.cluster, &testimonies[0]);
        assert!(receipt.verify(&world.genesis).is_err(), "one broker may lie");
        assert!(receipt.add(&testimonies[1]));
        receipt.verify(&world.genesis).expect("two of four");
    }
}

#[test]
fn rule_e1_receipts_of_old_blocks_can_be_had_as_long_as_publications_are_kept() {
    let mut world = World::with_clients();
    let number = world.number(3);
    let height = world.order(vec![(3, vec![publish(b"a"), Operation::Sync]), (1, vec![Operation::Sync])]);
    world.order(vec![(3, vec![publish(b"b")])]);
    // Two brokers that were ended since, and have no block in memory.
    let old: Vec<Broker> = (0..2)
        .map(|index| {
            let mut broker = Broker::start(&world, index, &[]);
            broker.execute(&world, 1);
            Broker::start_in(broker.end(), &world, index, &[])
        })
        .collect();
    let mut young = Broker::start(&world, 2, &[]);
    young.execute(&world, 1);
    for number in [number, number + 1] {
        let query = Query::Receipt { height, number };
        let ask = |it: &Broker| match it.executor.answer(&client(3), query.clone()) {
            Answer::Receipt(testimony) => *testimony,
            other => panic!("{other:?}"),
        };
        let mut receipt = Receipt::new(world.cluster, &ask(&old[0]));
        assert!(receipt.add(&ask(&old[1])));
        receipt.verify(&world.genesis).expect("two of four");
        assert!(receipt.add(&ask(&young)), "who has it in memory says the same");
    }
    let none = |height, number| old[0].executor.answer(&client(3), Query::Receipt { height, number });
    assert_eq!(none(height, number + 2), Answer::No(Why::Nothing));
    assert_eq!(none(height + 5, number), Answer::No(Why::Behind));
}

#[test]
fn rule_g8_blocks_of_long_ago_are_read_and_hashed_for_clients_alone() {
    let mut world = World::with_clients();
    // Client 7 has no registration, and a result in the block all the same.
    let height = world.order(vec![(7, vec![Operation::Sync]), (3, vec![Operation::Sync])]);
    let mut broker = Broker::start(&world, 0, &[]);
    broker.execute(&world, 1);
    let ask =
        |broker: &Broker, seed: u8, number| broker.executor.answer(&client(seed), Query::Receipt { height, number });
    assert!(matches!(ask(&broker, 7, 0), Answer::Receipt(_)), "it is in memory");
    let broker = Broker::start_in(broker.end(), &world, 0, &[]);
    assert_eq!(ask(&broker, 7, 0), Answer::No(Why::Nothing));
    assert!(matches!(ask(&broker, 3, world.number(3) - 1), Answer::Receipt(_)));
}

#[test]
fn words_of_the_ceremony_come_in_order_and_stay() {
    let mut world = World::with_clients();
    let brokers_of = |seed: u8| (seed, vec![Operation::Dkg(vec![seed; 3])]);
    let height = world.order(vec![brokers_of(210), brokers_of(1), brokers_of(213)]);
    let mut broker = Broker::start(&world, 0, &[]);
    broker.execute(&world, 1);
    let words = broker.inbox.words();
    assert_eq!(words.iter().map(|(at, _, word)| (*at, word[0])).collect::<Vec<_>>(), [(height, 210), (height, 213)]);
    let broker = Broker::start_in(broker.end(), &world, 0, &[]);
    assert_eq!(broker.executor.dkg_statements().unwrap(), words);
}

#[test]
fn a_revoked_client_is_welcomed_as_one() {
    let mut world = World::with_clients();
    let mut broker = Broker::start(&world, 3, &[1]);
    broker.execute(&world, 1);
    let welcome = broker.executor.welcome(&client(1));
    assert_eq!((welcome.broker, welcome.height, welcome.registered, welcome.next), (3, 1, true, 2));
    assert_eq!(welcome.subscriptions.len(), 1);
    let act = world.admin(1, Action::RevokeClient(client(1)));
    world.order(vec![(3, vec![act, subscribe("a")])]);
    broker.execute(&world, 2);
    let welcome = broker.executor.welcome(&client(1));
    assert_eq!((welcome.registered, welcome.subscriptions.len()), (false, 0));
    let denied = Query::Latest { header: header(), min_height: 0 };
    assert_eq!(broker.executor.answer(&client(1), denied), Answer::No(Why::Denied));
}

#[test]
fn rule_e2_who_was_revoked_or_is_denied_since_gets_no_bodies_of_recent_blocks() {
    let mut world = World::with_clients();
    let height = world.order(vec![(3, vec![publish(b"secret")])]);
    let mut broker = Broker::start(&world, 0, &[]);
    broker.execute(&world, 1);
    let ask = |broker: &Broker, seed| broker.executor.answer(&client(seed), Query::Update { height });
    let bodies = |broker: &Broker, seed| match ask(broker, seed) {
        Answer::Update(update) => update.contents.expect("contents").bodies.len(),
        other => panic!("{other:?}"),
    };
    let Answer::Update(before) = ask(&broker, 1) else { panic!("an update") };
    assert_eq!(bodies(&broker, 1), 1);
    // The policy lets nobody read it any more: what the digest covers is said as it was, what was published is not.
    let policy = Action::Policy("read market/# if exchange:desk = nobody".parse().expect("a policy"));
    let from = world.order(vec![(3, vec![world.admin(1, policy)])]);
    broker.execute(&world, from);
    assert_eq!(bodies(&broker, 1), 0);
    let Answer::Update(after) = ask(&broker, 1) else { panic!("an update") };
    assert_eq!(after.contents.expect("contents").digest(&world.cluster, &client(1), height), before.digest);
    let from = world.order(vec![(3, vec![world.admin(2, Action::RevokeClient(client(1)))])]);
    broker.execute(&world, from);
    assert_eq!(ask(&broker, 1), Answer::No(Why::Denied));
    assert!(matches!(ask(&broker, 2), Answer::Update(_)));
}

#[test]
fn rule_e6_the_policy_in_force_is_told_to_who_is_vouched_for_and_to_administrators_and_to_nobody_else() {
    let mut world = World::with_clients();
    let mut broker = Broker::start(&world, 1, &[]);
    broker.execute(&world, 1);
    let policy: Policy = "read market/# if exchange:desk = fx".parse().expect("a policy");
    let act = world.admin(1, Action::Policy(policy.clone()));
    let revoked = world.admin(2, Action::RevokeClient(client(2)));
    let ask = |broker: &Broker, seed, min_height| broker.executor.answer(&client(seed), Query::Policy { min_height });
    assert_eq!(ask(&broker, 1, 1), Answer::Policy { number: 0, policy: Policy::default() });
    world.order(vec![(3, vec![act, revoked])]);
    assert_eq!(ask(&broker, 1, 2), Answer::No(Why::Behind), "E9");
    broker.execute(&world, 2);
    for seed in [1, ADMINISTRATOR] {
        assert_eq!(ask(&broker, seed, 2), Answer::Policy { number: 1, policy: policy.clone() }, "client {seed}");
    }
    for seed in [2, 7] {
        assert_eq!(ask(&broker, seed, 2), Answer::No(Why::Denied), "client {seed}");
    }
}

#[test]
fn an_executor_that_fails_says_so_and_acknowledges_nothing_more() {
    let mut world = World::with_clients();
    (0..3).for_each(|n| _ = world.order(vec![(3, vec![publish(&[n])])]));
    let broker = Broker::start(&world, 0, &[]);
    let (sender, done) = std::sync::mpsc::channel();
    // A block is missing: as with a full disk, going on would be wrong.
    for height in [1, 3, 4] {
        let (block, batches) = world.ordered[height - 1].clone();
        let sender = sender.clone();
        broker.executor.execute(
            block,
            Box::new(move || Some(batches)),
            Box::new(move || sender.send(height).expect("the test waits")),
        );
    }
    drop(sender);
    assert_eq!(done.iter().collect::<Vec<_>>(), [1], "what was executed is durable, the rest is dropped");
    assert_eq!((broker.executor.height(), broker.executor.executed()), (1, 1));
    let why = broker.executor.failure().expect("it failed").to_owned();
    assert!(why.contains("block 2 must be executed next"), "{why}");
    assert_eq!(*broker.inbox.failed.lock().unwrap(), Some(why));
    let Answer::Status(status) = broker.executor.answer(&client(1), Query::Status) else { panic!("no status") };
    assert!(!status.running);
}
