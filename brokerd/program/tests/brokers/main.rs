//! Whole brokers in one process, over loopback, with their files in a folder that goes when the test ends.

mod client;
mod cluster;
mod damage;
mod evidence;
mod history;
mod hostile;
mod outside;
mod process;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use sealcast_broker::cluster_file::{Suite, VouchedKey};
use sealcast_broker::operation::{Accusation, Batch, Body, Client, Operation, Publication};
use sealcast_broker::protocol::{Answer, Query, Refusal, Reply, Why};
use sealcast_broker::receipt::{Fact, Receipt, ReceiptError};
use sealcast_broker::state::{Code, Reading};
use sealcast_brokerd::config::Config;
use sealcast_brokerd::drops::Reason;
use sealcast_brokerd::failure::Failure;
use sealcast_brokerd::serve::Broker;
use sealcast_crypto::group::{P256, Ristretto255};
use sealcast_crypto::tdh2::{Ciphertext, Combined, Combiner, PublicKey, Share, Sharing};
use sealcast_keys::threshold::sealed::{Attachment, What};
use sealcast_order_engine::Simplex;

use client::Reader;
use cluster::{Home, key, publish, subscribe, until};

#[test]
fn a_publication_comes_to_its_subscriber_from_all_brokers_alike() {
    let home = Home::new("publication", 4);
    let brokers = home.start_all();
    let mut reader = Reader::open(&home, &brokers, 2);
    let mut publisher = Reader::open(&home, &brokers, 1);
    reader.order(1, vec![home.claim(2), subscribe("market/#")]);
    publisher.order(0, vec![home.claim(1)]);
    publisher.order(3, vec![publish("market/eurusd", b"1.0842"), publish("weather", b"rain")]);

    let (heights, contents) = reader.updates(4, |contents| !contents.publications.is_empty());
    assert_eq!(heights.len(), 1, "all four say it of one block");
    assert_eq!(contents.notices.len(), 1);
    let entry = &contents.publications[0];
    assert_eq!(contents.publications.len(), 1, "the weather is not for it");
    assert_eq!((entry.client, entry.number), (Client(key(1).public_bytes()), 1));
    let (sn, body) = &contents.bodies[0];
    assert_eq!(*sn, entry.sn);
    assert_eq!(Operation::from_bytes(body), Ok(publish("market/eurusd", b"1.0842")));

    // Without ordering anything, all answer the same.
    let answers = reader.ask_all(&Query::Result { number: 1 });
    let sure = |answer: &Answer| matches!(answer, Answer::Result { results, .. } if results.outcomes.len() == 2);
    assert!(answers.iter().all(|answer| sure(answer) && *answer == answers[0]), "{answers:?}");
    brokers.into_iter().for_each(Broker::stop);
}

#[test]
fn rule_e12_brokers_that_end_come_back_with_all_that_was_acknowledged() {
    let home = Home::new("restart", 4);
    let mut brokers = home.start_all();
    let mut publisher = Reader::open(&home, &brokers, 1);
    publisher.order(0, vec![home.claim(1), subscribe("a")]);

    // One is gone as in a crash; three go on.
    let height = brokers[3].status().height;
    drop(brokers.pop());
    for n in 0..20 {
        publisher.order(n % 3, vec![publish("a", &[n as u8])]);
    }
    brokers.push(home.start(3));
    until("the fourth has caught up", || brokers[3].status().height > height + 5 && brokers[3].failure().is_none());
    let ordered = brokers[0].status().height;
    until("it has all of it", || brokers[3].status().height >= ordered);

    // All are gone, some of them gracefully.
    for (n, broker) in brokers.drain(..).enumerate() {
        if n % 2 == 0 { broker.stop() } else { drop(broker) }
    }
    let brokers = home.start_all();
    // What two brokers had executed the others may execute only now.
    until("two operations and twenty are there", || Reader::open(&home, &brokers, 1).next == 22);
    let mut publisher = Reader::open(&home, &brokers, 1);
    publisher.order(2, vec![publish("a", b"after")]);
    let latest = Query::Latest { header: cluster::header("a"), min_height: 0 };
    let mut answers = publisher.ask_all(&latest);
    until("all say alike", || {
        answers = publisher.ask_all(&latest);
        answers.iter().all(|answer| *answer == answers[0])
    });
    let Answer::Places(places) = &answers[0] else { panic!("{answers:?}") };
    assert_eq!(places[0].ps, 20, "twenty-one publications, from 0");
}

#[test]
fn rule_g7_hostile_bytes_and_hostile_clients_harm_nobody_else() {
    let home = Home::new("hostile", 4);
    let brokers = home.start_all();
    let mut honest = Reader::open(&home, &brokers, 1);
    honest.order(0, vec![home.claim(1)]);

    let noise: Vec<u8> = (0..100_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for port in [brokers[0].gateway_address(), home.order_address(0)] {
        for _ in 0..8 {
            let mut socket = TcpStream::connect(port).expect("it listens");
            socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a time-out");
            // It may close while we write.
            let _ = socket.write_all(&noise);
            let _ = socket.read(&mut [0; 16]);
        }
    }
    until("noise is counted", || brokers[0].drops().of(Reason::Handshake) == 8);

    // Another client's batch, one that is none, and one whose signature is false.
    let mut hostile = Reader::open(&home, &brokers, 9);
    let theirs = Batch::sign(&home.cluster, &key(1), 1, vec![publish("a", b"forged")]);
    let channel = &mut hostile.channels[0];
    channel.submit(&theirs).expect("it is sent");
    assert_eq!(channel.hear().expect("a refusal"), Reply::Refused { first: 1, why: Refusal::NotYours });
    let mut bytes = Batch::sign(&home.cluster, &key(9), 5, vec![home.claim(9)]).to_bytes();
    *bytes.last_mut().expect("it has a signature") ^= 1;
    channel.say(&sealcast_broker::protocol::Request::Submit(bytes)).expect("it is sent");
    assert_eq!(channel.hear().expect("a refusal"), Reply::Refused { first: 5, why: Refusal::Signature });
    assert!(channel.hear().is_err(), "and the channel ends");

    // Nothing of an unregistered client is ordered, and what it says of itself costs it the channel if it is false.
    for n in 0..100 {
        let batch = Batch::sign(&home.cluster, &key(9), 1000 + n, vec![publish("a", b"nobody vouches for me")]);
        hostile.channels[2].submit(&batch).expect("it is sent");
    }
    hostile.refused(2, Refusal::Unregistered);
    assert!(brokers[2].drops().of(Reason::UnregisteredBatch) > 0);
    let batch = Batch::sign(&home.cluster, &key(9), 0, vec![home.claim(1)]);
    hostile.channels[1].submit(&batch).expect("it is sent");
    assert_eq!(hostile.channels[1].hear().expect("a refusal"), Reply::Refused { first: 0, why: Refusal::Proof });
    assert!(hostile.channels[1].hear().is_err(), "and the channel ends");

    assert_eq!(honest.order_for(0, vec![publish("a", b"still here")]), [Code::Done]);
    assert!(brokers.iter().all(|broker| broker.failure().is_none()));
}

#[test]
fn brokers_without_a_key_make_one_and_keep_it() {
    let home = Home::new("key", 4);
    let brokers = home.start_all();
    until("all have the key", || brokers.iter().all(|broker| broker.status().key_age.is_some()));
    let agreed = agreed_key(&home, &mut Reader::open(&home, &brokers, 1));
    brokers.into_iter().for_each(Broker::stop);

    let brokers = home.start_all();
    let mut client = Reader::open(&home, &brokers, 1);
    let again = client.ask_all(&Query::Key);
    assert!(again.iter().all(|answer| matches!(answer, Answer::Key(key) if key.key == agreed.key)), "{again:?}");
}

#[test]
fn a_cluster_on_p_256_makes_its_key_and_who_may_read_opens_what_is_sealed_under_it() {
    let home = Home::on(Suite::P256, "p256", 4);
    let brokers = home.start_all();
    until("all have the key", || brokers.iter().all(|broker| broker.status().key_age.is_some()));
    let mut reader = Reader::open(&home, &brokers, 2);
    reader.order(1, vec![home.claim(2), subscribe("a")]);
    let agreed = agreed_key(&home, &mut reader);
    let key = PublicKey::<P256>::decode(&agreed.key).expect("the brokers' key");

    let mut publisher = Reader::open(&home, &brokers, 1);
    publisher.order(0, vec![home.claim(1)]);
    let Operation::Publish(plain) = publish("a", b"") else { panic!("a publication") };
    let (client, number) = (Client(cluster::key(1).public_bytes()), publisher.next);
    let open = Publication { access: Some("exchange:desk = fx".parse().expect("a condition")), ..*plain };
    let label = open.label(&client, number);
    let ciphertext = key.encrypt(&label, b"bid 1.0830", &mut ChaCha20Rng::seed_from_u64(1)).encode();
    publisher.order(0, vec![Operation::Publish(Box::new(Publication { body: Body::Sealed(ciphertext), ..open }))]);

    // All that the reader opens comes from brokers.
    let (_, contents) = reader.updates(2, |contents| !contents.publications.is_empty());
    let (sn, body) = &contents.bodies[0];
    let Ok(Operation::Publish(sealed)) = Operation::from_bytes(body) else { panic!("a publication") };
    let Body::Sealed(bytes) = &sealed.body else { panic!("it is sealed") };
    let ciphertext = Ciphertext::decode(bytes).expect("a ciphertext");
    let query = Query::Share { sn: *sn, proved: false };
    let mut shares: Vec<Share<P256>> = Vec::new();
    until("three brokers give their shares", || {
        let share = |answer: Answer| match answer {
            Answer::Share(bytes) => match Attachment::<P256>::from_bytes(&bytes).expect("an attachment").what {
                What::Share(share) => Some(share),
                other => panic!("{other:?}"),
            },
            _ => None,
        };
        shares = reader.ask_all(&query).into_iter().filter_map(share).take(3).collect();
        shares.len() == 3
    });
    let mut combiner = Combiner::new(Arc::new(key));
    let labelled = combiner.key().bind(ciphertext, &sealed.label(&client, number));
    assert!(combiner.combine(&labelled, &shares[..2]).is_err(), "two are too few");
    let opened = combiner.combine(&labelled, &shares);
    assert!(matches!(&opened, Ok(Combined::Opened(it)) if it[..] == *b"bid 1.0830"), "{opened:?}");
    let of_stranger = Reader::open(&home, &brokers, 9).ask_all(&query);
    assert!(of_stranger.iter().all(|answer| matches!(answer, Answer::No(_))), "{of_stranger:?}");
}

#[test]
fn rule_e4_who_seals_what_opens_to_nothing_is_suspended_and_who_says_so_falsely_loses_the_channel() {
    let home = Home::new("suspended", 4);
    let brokers = home.start_all();
    until("all have the key", || brokers.iter().all(|broker| broker.status().key_age.is_some()));
    let mut reader = Reader::open(&home, &brokers, 2);
    reader.order(1, vec![home.claim(2)]);
    let Answer::Key(key) = &reader.ask_all(&Query::Key)[0] else { panic!("a key") };
    let key = PublicKey::<Ristretto255>::decode(&key.key).expect("the brokers' key");

    // Client 1 publishes what every broker finds well-formed and nobody opens.
    let mut publisher = Reader::open(&home, &brokers, 1);
    publisher.order(0, vec![home.claim(1)]);
    let Operation::Publish(plain) = publish("a", b"") else { panic!("a publication") };
    let (client, number) = (Client(cluster::key(1).public_bytes()), publisher.next);
    let ciphertext =
        key.encrypt_falsely(&plain.label(&client, number), 32, &mut ChaCha20Rng::seed_from_u64(1)).encode();
    let sealed = Publication { body: Body::Sealed(ciphertext.clone()), ..*plain.clone() };
    publisher.order(0, vec![Operation::Publish(Box::new(sealed))]);
    let latest = Query::Latest { header: cluster::header("a"), min_height: 0 };
    let mut sn = None;
    until("it can be read", || {
        let Answer::Places(places) = &reader.ask_all(&latest)[0] else { return false };
        let Reading::Publication(entry) = &places[0].reading else { return false };
        sn = Some(entry.sn);
        sn.is_some()
    });
    let sn = sn.expect("it was just read");

    // Three brokers prove their shares; two of them convict nobody.
    let mut proofs: Vec<Vec<u8>> = Vec::new();
    until("three brokers prove", || {
        let answers = reader.ask_all(&Query::Share { sn, proved: true });
        let proved = |answer: Answer| match answer {
            // 1 byte of kind and 32 of the ciphertext's name stand before share, proof and signature.
            Answer::Share(bytes) => bytes.get(33..).map(<[u8]>::to_vec),
            _ => None,
        };
        proofs = answers.into_iter().filter_map(proved).take(3).collect();
        proofs.len() == 3
    });
    let accuse = |proofs: &[Vec<u8>]| {
        let shares = [&(proofs.len() as u16).to_be_bytes()[..], &proofs.concat()].concat();
        let (envelope, ciphertext) = (plain.envelope(), ciphertext.clone());
        let sharing = Sharing::First;
        Operation::Accuse(Box::new(Accusation { sn, client, number, envelope, ciphertext, sharing, shares }))
    };
    let few = Batch::sign(&home.cluster, &cluster::key(2), reader.next, vec![accuse(&proofs[..2])]);
    reader.channels[3].submit(&few).expect("it is sent");
    reader.refused(3, Refusal::Accusation);
    assert!(brokers.iter().all(|broker| broker.status().suspended.is_empty()));
    let mut reader = Reader::open(&home, &brokers, 2);
    assert_eq!(reader.order_for(1, vec![accuse(&proofs)]), [Code::Done]);
    assert_eq!(publisher.order_for(0, vec![publish("a", b"plain"), Operation::Sync]), [Code::Suspended, Code::Done]);
    until("all brokers know it", || {
        brokers.iter().all(|broker| broker.status().suspended.iter().any(|it| it.0 == client))
    });
    assert_eq!(reader.order_for(1, vec![accuse(&proofs), publish("a", b"others")]), [Code::Futile, Code::Done]);
}

#[test]
fn one_broker_alone_orders_too_and_deals_its_own_key() {
    let home = Home::new("solo", 1);
    let brokers = home.start_all();
    let mut client = Reader::open(&home, &brokers, 1);
    assert_eq!(client.order_for(0, vec![home.claim(1), publish("a", b"b")]), [Code::Done, Code::Done]);
    assert!(matches!(client.ask_all(&Query::Key)[..], [Answer::Key(_)]));
    assert_eq!(client.ask_all(&Query::Result { number: 7 }), [Answer::No(Why::Nothing)]);
    let status = brokers[0].status();
    assert!(status.running && status.height > 0 && status.clients == 1, "{status:?}");
    brokers.into_iter().for_each(Broker::stop);
    let brokers = home.start_all();
    assert_eq!(Reader::open(&home, &brokers, 1).next, 2);
}

#[test]
fn rule_e1_a_receipt_of_one_broker_alone_is_verified_as_any() {
    let home = Home::new("solo-receipt", 1);
    let brokers = home.start_all();
    let mut client = Reader::open(&home, &brokers, 1);
    client.order(0, vec![home.claim(1), publish("a", b"b")]);
    let result = client.ask_all(&Query::Result { number: 1 }).pop();
    let Some(Answer::Result { height, .. }) = result else { panic!("{result:?}") };
    let answer = client.ask_all(&Query::Receipt { height, number: 1 }).pop();
    let Some(Answer::Receipt(testimony)) = answer else { panic!("{answer:?}") };
    brokers.into_iter().for_each(Broker::stop);

    // Nobody is asked: genesis is enough.
    let bytes = Receipt::new(home.cluster, &testimony).to_bytes();
    let verify = |bytes: &[u8]| Receipt::from_bytes(bytes).ok().map(|it| it.verify(&home.file.genesis));
    assert_eq!(verify(&bytes), Some(Ok(())));
    let Ok(receipt) = Receipt::from_bytes(&bytes) else { panic!("its own bytes") };
    let Fact::Published(entry) = &receipt.fact else { panic!("{:?}", receipt.fact) };
    assert_eq!((entry.client, entry.number), (Client(key(1).public_bytes()), 1));
    for place in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[place] ^= 1;
        assert_ne!(verify(&changed), Some(Ok(())), "byte {place} can be changed");
    }
    let unsigned = Receipt { signatures: BTreeMap::new(), ..receipt };
    assert_eq!(unsigned.verify(&home.file.genesis), Err(ReceiptError::Few { signed: 0, needed: 1 }));
}

#[test]
fn what_keeps_a_broker_from_starting_is_said_in_one_line() {
    let home = Home::new("refused", 4);
    let taken = std::net::TcpListener::bind(home.order_address(1)).expect("it is free");
    let failed = |broker: usize| Broker::start(home.config(broker), &Simplex).map(drop).expect_err("it does not start");
    let failure = failed(1);
    assert!(matches!(&failure, Failure::Address(what) if what.ends_with("the port is in use")), "{failure}");
    assert_eq!(failure.code().exit(), 4);
    drop(taken);
    let _taken = std::net::TcpListener::bind(home.gateway_address(2)).expect("it is free");
    assert!(matches!(failed(2), Failure::Address(what) if what.contains("for clients at")));

    let running = home.start(0);
    let second = Config::read(&home.folder(0)).map(drop).expect_err("it runs already");
    assert!(second.to_string().contains("a broker runs in this folder already"), "{second}");
    drop(running);
    Config::read(&home.folder(0)).expect("it runs no more");

    std::fs::write(home.folder(3).join("state"), "no folder").expect("it is written");
    let failure = failed(3);
    assert!(matches!(failure, Failure::Storage(_)) && failure.code().exit() == 1, "{failure}");
}

/// The key that 2f + 1 brokers signed (E11).
fn agreed_key(home: &Home, client: &mut Reader) -> VouchedKey {
    let keys = client.ask_all(&Query::Key);
    let words = keys.iter().zip(0..).map(|(answer, broker)| match answer {
        Answer::Key(key) => (broker, key),
        other => panic!("{other:?}"),
    });
    home.file.agreed_key(words).expect("2f + 1 signed the same key (E11)")
}
