//! How a broker comes by a history that it does not have: its folder lost, or others' blocks pruned.

use std::fs;

use sealcast_broker::operation::Operation;
use sealcast_broker::protocol::{Answer, Query, Why};
use sealcast_broker::state::Reading;
use sealcast_brokerd::serve::Broker;
use sealcast_order_engine::Simplex;

use crate::client::Reader;
use crate::cluster::{Home, header, publish, subscribe, until};

/// What a broker loses with its disk: all but its key and the cluster file.
fn lose(home: &Home, broker: usize, folders: &[&str]) {
    for name in folders {
        fs::remove_dir_all(home.folder(broker).join(name)).expect("it was there");
    }
}

#[test]
fn a_broker_whose_folder_is_lost_gets_all_blocks_from_the_others() {
    let home = Home::new("lost", 4);
    let mut brokers = home.start_all();
    until("all have the key", || brokers.iter().all(|broker| broker.status().key_age.is_some()));
    let mut publisher = Reader::open(&home, &brokers, 1);
    publisher.order(0, vec![home.claim(1), subscribe("a")]);
    for n in 0..20 {
        publisher.order(n % 3, vec![publish("a", &[n as u8]), publish("b", &[n as u8; 500])]);
    }
    brokers.pop().expect("the last one").stop();
    lose(&home, 3, &["order", "state", "keys", "evidence"]);
    publisher.channels.pop();
    publisher.order(1, vec![publish("a", b"without it")]);
    brokers.push(home.start(3));
    let ordered = brokers[0].status().height;
    until("it has executed all of it", || brokers[3].status().height >= ordered);

    let mut reader = Reader::open(&home, &brokers, 1);
    let ranges = reader.ask_all(&Query::Range { header: header("a"), from: 0, limit: 100, min_height: 0 });
    assert!(ranges.iter().all(|it| *it == ranges[0]), "{ranges:?}");
    let Answer::Places(places) = &ranges[3] else { panic!("{ranges:?}") };
    assert_eq!(places.iter().map(|it| it.ps).collect::<Vec<_>>(), (0..21).collect::<Vec<_>>());
    let Reading::Publication(first) = &places[0].reading else { panic!("it may be read") };
    // Its body is in a block that this broker fetched.
    let bodies = reader.channels[3].ask(Query::Bodies { sns: vec![first.sn] }).expect("an answer");
    let Answer::Bodies(bodies) = bodies else { panic!("{bodies:?}") };
    assert_eq!(Operation::from_bytes(&bodies[0].1), Ok(publish("a", &[0])));
    reader.order(3, vec![publish("a", b"through it")]);
    // It lost its share of the threshold key, and takes part in no second DKG.
    assert!(!brokers[3].status().has_share);
    assert!(brokers.iter().all(|it| it.failure().is_none()));
    brokers.into_iter().for_each(Broker::stop);
}

#[test]
fn a_broker_that_lacks_what_the_others_pruned_begins_with_a_snapshot() {
    let home = Home::new("pruned", 4);
    let keep = || "128 blocks".parse().expect("so many are kept");
    let start = |broker: usize| {
        let mut config = home.config(broker);
        config.settings.keep = keep();
        Broker::start(config, &Simplex).unwrap_or_else(|e| panic!("{e}"))
    };
    let mut brokers: Vec<Broker> = (0..4).map(start).collect();
    let mut publisher = Reader::open(&home, &brokers, 1);
    publisher.order(0, vec![home.claim(1), subscribe("a")]);
    publisher.order(0, vec![publish("a", b"the first")]);
    // One lags from here on, and has come so far.
    let lagging = brokers.pop().expect("the last one");
    let behind = lagging.status().height;
    lagging.stop();
    publisher.channels.pop();
    let mut published = 1;
    until("the first publication is pruned", || {
        publisher.order(published % 3, vec![publish("a", &published.to_be_bytes())]);
        published += 1;
        let first = publisher.ask_all(&Query::TopicPosition { header: header("a"), ps: 0 });
        first.iter().all(|it| *it == Answer::No(Why::Pruned))
    });
    let pruned = |broker: &Broker| broker.status().height;
    assert!(brokers.iter().all(|it| pruned(it) > behind + 128));

    // It comes back, and nothing that follows on its own blocks is to be had.
    brokers.push(start(3));
    let ordered = brokers[0].status().height;
    until("it has executed all of it", || brokers[3].status().height >= ordered && brokers[3].failure().is_none());
    let mut reader = Reader::open(&home, &brokers, 1);
    let pruned = reader.channels[3].ask(Query::TopicPosition { header: header("a"), ps: 0 }).expect("an answer");
    assert_eq!(pruned, Answer::No(Why::Pruned));
    reader.order(3, vec![publish("a", b"through it")]);
    let latest = Query::Latest { header: header("a"), min_height: 0 };
    let mut answers = reader.ask_all(&latest);
    until("all say alike", || {
        answers = reader.ask_all(&latest);
        answers.iter().all(|answer| *answer == answers[0])
    });
    let Answer::Places(places) = &answers[3] else { panic!("{answers:?}") };
    assert_eq!(places[0].ps, published as u64);

    // Then it loses everything but its key: what it had voted for too.
    brokers.pop().expect("the last one").stop();
    lose(&home, 3, &["order", "state", "keys", "evidence", "snapshots"]);
    brokers.push(start(3));
    let ordered = brokers[0].status().height;
    until("it has executed all of it again", || brokers[3].status().height >= ordered);
    let mut reader = Reader::open(&home, &brokers, 1);
    reader.order(3, vec![publish("a", b"through it again")]);
    assert!(brokers.iter().all(|it| it.failure().is_none()));
    // It goes on from its own folder.
    brokers.pop().expect("the last one").stop();
    brokers.push(start(3));
    let ordered = brokers[0].status().height;
    until("it has gone on", || brokers[3].status().height >= ordered);
    brokers.into_iter().for_each(Broker::stop);
}
