use sealcast_crypto::signature::{OriginKey, SIGNATURE_LEN};
use sealcast_wire::Utc;

use super::*;
use crate::fixture::{NOW, World, client, origin_key, publication, publish, subscribe};
use crate::genesis::Genesis;
use crate::operation::{Batch, Checked, Operation, Policy, check};
use crate::receipt::{Fact, Receipt, ReceiptError, Testimony};
use crate::state::{LowWaterMark, Memory, Outbox, Reading, State, Subject, SubjectStatus, TopicPosition};

/// Client 1 subscribes and client 2 publishes, in one block.
fn story() -> (World, State<Memory>, Outbox) {
    let world = World::new();
    let mut state = State::open(world.genesis.clone(), Memory::default()).expect("memory does not fail");
    let batch = |seed: u8, operations: Vec<Operation>| {
        let batch = Batch::sign(&world.cluster, &origin_key(seed), 0, operations);
        check(&world.cluster, vec![batch], |_| vec![]).remove(0).expect("it is signed well")
    };
    let batches: Vec<Checked> = vec![
        batch(1, vec![world.claim(1, &[("desk", "fx")]), subscribe("market/#")]),
        batch(2, vec![world.claim(2, &[]), publish(publication(&["market/eurusd"], b"1.0842"))]),
    ];
    let outbox = state.execute(1, NOW, &batches).expect("it executes");
    (world, state, outbox)
}

fn brokers(genesis: &Genesis) -> Vec<OriginKey> {
    let mut keys: Vec<OriginKey> = (210..214).map(origin_key).collect();
    keys.sort_by_key(OriginKey::public_bytes);
    assert!(keys.iter().map(OriginKey::public_bytes).eq(genesis.brokers.iter().copied()));
    keys
}

fn testimony(world: &World, outbox: &Outbox, broker: u16, number: u64) -> Testimony {
    let (fact, proof) = Fact::of(outbox, &client(2), number).expect("it was executed");
    let signature = brokers(&world.genesis)[usize::from(broker)].sign(&outbox.executed(&world.cluster));
    Testimony { broker, height: outbox.height, state_root: outbox.state_root, fact, proof, signature }
}

fn replies() -> Vec<Reply> {
    let (world, state, outbox) = story();
    let contents = Contents::of(&outbox, &client(1)).expect("it concerns the subscriber");
    let contents = Contents { bodies: vec![(0, vec![7; 9])], ..contents };
    let update = Update { height: 1, digest: contents.digest(&world.cluster, &client(1), 1), contents: Some(contents) };
    let entry = outbox.publications[0].clone();
    let key = SignedKey { epoch: 3, key: vec![1; 40], signature: [9; 64] };
    let active = ActiveSubscription {
        id: 1,
        interest: "market/# and price = 105".parse().expect("it parses"),
        since: 2,
        next: 5,
    };
    let welcome = Welcome {
        broker: 2,
        height: state.height(),
        at: state.time(),
        sn: state.next_sn(),
        policy: 1,
        epoch: 3,
        registered: true,
        next: 7,
        subscriptions: vec![active],
        key: Some(key.clone()),
    };
    let report = Report { broker: 3, at: 1279, misbehaviour: Misbehaviour::Equivocated };
    let status =
        Status { broker: 1, running: true, key_age: Some(5), reports: vec![report], next_act: 9, ..Status::default() };
    let low_water_mark = LowWaterMark { height: 3, sn: 40 };
    let status = Status { suspended: vec![(client(1), 9)], low_water_mark, ..status };
    let status = Status { descriptors_used: 107, descriptors_allowed: 1024, ..status };
    let status = Status { silent: vec![0, 3], cut_off: vec![3], clock_ahead: -30, ..status };
    let snapshot = SnapshotInfo { head: vec![1; 9], start_height: 2, certificate: vec![2; 7], header: vec![3; 5] };
    let roots = ([4; 32], [5; 32]);
    let checkpoint =
        Checkpoint { broker: 2, height: 64, state_root: roots.0, outbox_root: roots.1, signature: [6; SIGNATURE_LEN] };
    let answers = vec![
        Answer::Update(update.clone()),
        Answer::Result { height: 1, results: outbox.results[0].clone() },
        Answer::Receipt(Box::new(testimony(&world, &outbox, 1, 1))),
        Answer::Places(vec![
            TopicPosition { ps: 0, reading: Reading::Empty },
            TopicPosition { ps: 1, reading: Reading::Publication(Box::new(entry.clone())) },
        ]),
        Answer::Value(Some((7, vec![1, 2]))),
        Answer::Value(None),
        Answer::Resumed { lost: 2, notice: outbox.notices[0].clone(), until: 4, publications: vec![entry] },
        Answer::Bodies(vec![(1, vec![3])]),
        Answer::Share(vec![3; 33]),
        Answer::Status(Box::new(status)),
        Answer::Key(key),
        Answer::History(Box::new(History { height: 9, oldest: 3, snapshot: Some(snapshot) })),
        Answer::History(Box::default()),
        Answer::Checkpoint(Box::new(checkpoint)),
        Answer::Part(vec![7; 40]),
        Answer::Evidence(vec![(report, vec![8; 300]), (report, vec![])]),
        Answer::Policy { number: 0, policy: Policy::default() },
        Answer::Policy {
            number: 3,
            policy: "read market/# if exchange:desk = fx\npublish a/+ if not exchange:desk in [fx, rates]"
                .parse()
                .expect("it parses"),
        },
        Answer::Subject(SubjectStatus { revoked: true, suspended: Some(9), clients: 2 }),
        Answer::Subject(SubjectStatus::default()),
        Answer::No(Why::Behind),
    ];
    let mut all: Vec<Reply> = answers.into_iter().zip(0..).map(|(answer, id)| Reply::Answer { id, answer }).collect();
    all.extend([
        Reply::Welcome(welcome),
        Reply::Refused { first: 4, why: Refusal::Quota },
        Reply::Refused { first: 5, why: Refusal::Unregistered },
        Reply::Refused { first: 6, why: Refusal::Proof },
        Reply::Refused { first: 7, why: Refusal::Topic },
        Reply::Update(update),
        Reply::Attach { sn: 3, attachment: vec![1, 2, 3] },
    ]);
    all
}

fn requests() -> Vec<Request> {
    let header = || crate::operation::Header { topic: "market/eurusd".into(), value: Some("105".into()) };
    let queries = vec![
        Query::Update { height: 1 },
        Query::Result { number: 2 },
        Query::Receipt { height: 3, number: 4 },
        Query::Witness { sn: 5 },
        Query::TopicPosition { header: header(), ps: 9 },
        Query::Range { header: header(), from: 1, limit: 100, min_height: 8 },
        Query::Latest { header: header(), min_height: 8 },
        Query::Value { topic: "t".into(), key: b"k".to_vec(), min_height: 1 },
        Query::Resume { subscription: 1, place: 2, sn: 3, min_height: 4 },
        Query::Bodies { sns: vec![1, 5] },
        Query::Share { sn: 1, proved: true },
        Query::Status,
        Query::Key,
        Query::History,
        Query::Checkpoint { height: 64 },
        Query::Part { height: 64, offset: 1 << 20 },
        Query::Policy { min_height: 8 },
        Query::Evidence,
        Query::Subject { subject: Subject::Client(client(1)), min_height: 8 },
        Query::Subject { subject: credential(), min_height: 8 },
    ];
    let mut all: Vec<Request> = queries.into_iter().zip(0..).map(|(query, id)| Request::Query { id, query }).collect();
    all.extend([Request::Hello { cluster: World::new().cluster }, Request::Submit(vec![1; 5])]);
    all
}

fn credential() -> Subject {
    Subject::Credential { issuer: "exchange".into(), serial: vec![7] }
}

/// docs/WIRE.md 15.
#[test]
fn rule_g9_the_question_about_a_subject_has_its_form() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let asked = Request::Query { id: 5, query: Query::Subject { subject: credential(), min_height: 8 } };
    let expected = "03000000000000000513000000000000000802000865786368616e6765000107";
    assert_eq!(hex(&asked.to_bytes()), expected);
    let asked = Request::Query { id: 5, query: Query::Subject { subject: Subject::Client(client(1)), min_height: 8 } };
    assert_eq!(
        hex(&asked.to_bytes()),
        format!("030000000000000005130000000000000008 01{}", hex(&client(1).0)).replace(' ', "")
    );
    let status = SubjectStatus { revoked: true, suspended: Some(9), clients: 2 };
    let answer = Reply::Answer { id: 5, answer: Answer::Subject(status) };
    assert_eq!(hex(&answer.to_bytes()), "05000000000000000511010100000000000000090000 0002".replace(' ', ""));
}

#[test]
fn messages_are_read_as_they_were_written_and_no_shorter_or_longer() {
    for reply in replies() {
        let bytes = reply.to_bytes();
        assert_eq!(Reply::from_bytes(&bytes), Ok(reply.clone()));
        let open_end =
            matches!(reply, Reply::Attach { .. } | Reply::Answer { answer: Answer::Share(_) | Answer::Part(_), .. });
        for cut in 0..bytes.len() {
            assert!(open_end || Reply::from_bytes(&bytes[..cut]).is_err(), "{reply:?} cut at {cut}");
        }
        assert!(open_end || Reply::from_bytes(&[&bytes[..], &[0]].concat()).is_err(), "{reply:?}");
    }
    for request in requests() {
        let bytes = request.to_bytes();
        assert_eq!(Request::from_bytes(&bytes), Ok(request.clone()));
        for cut in 0..bytes.len() {
            let open_end = matches!(request, Request::Submit(_)) && cut > 0;
            assert!(open_end || Request::from_bytes(&bytes[..cut]).is_err(), "{request:?} cut at {cut}");
        }
    }
}

#[test]
fn rule_g2_no_message_of_hostile_bytes_panics_or_claims_memory() {
    for reply in replies() {
        let bytes = reply.to_bytes();
        for (i, flip) in (0..bytes.len()).flat_map(|i| [1, 0x80, 0xff].map(|flip| (i, flip))) {
            let mut changed = bytes.clone();
            changed[i] ^= flip;
            if let Ok(read) = Reply::from_bytes(&changed) {
                assert_eq!(read.to_bytes(), changed, "each message has one encoding");
            }
        }
    }
}

#[test]
fn rule_e1_a_digest_names_everything_but_bodies() {
    let (world, _, outbox) = story();
    let contents = Contents::of(&outbox, &client(1)).expect("it concerns the subscriber");
    let digest = |c: &Contents| c.digest(&world.cluster, &client(1), 1);
    assert_eq!(digest(&Contents { bodies: vec![(1, vec![1])], ..contents.clone() }), digest(&contents));
    let others = [
        Contents { at: Utc(NOW.0 + 1), ..contents.clone() },
        Contents { results: Vec::new(), ..contents.clone() },
        Contents { notices: Vec::new(), ..contents.clone() },
        Contents { publications: Vec::new(), ..contents.clone() },
    ];
    for other in &others {
        assert_ne!(digest(other), digest(&contents), "{other:?}");
    }
    assert_ne!(contents.digest(&world.cluster, &client(2), 1), digest(&contents));
    assert_ne!(contents.digest(&world.cluster, &client(1), 2), digest(&contents));
    assert_eq!(Contents::of(&outbox, &client(3)), None, "a stranger gets nothing");
}

#[test]
fn rule_e1_a_receipt_needs_f_plus_1_signatures_over_its_very_fact() {
    let (world, _, outbox) = story();
    let (one, other) = (testimony(&world, &outbox, 0, 1), testimony(&world, &outbox, 3, 1));
    let mut receipt = Receipt::new(world.cluster, &one);
    assert_eq!(receipt.verify(&world.genesis), Err(ReceiptError::Few { signed: 1, needed: 2 }));
    assert!(receipt.add(&other));
    assert_eq!(receipt.verify(&world.genesis), Ok(()));
    assert_eq!(Receipt::from_bytes(&receipt.to_bytes()), Ok(receipt.clone()));
    assert!(matches!(receipt.fact, Fact::Published(_)), "a publication's receipt shows it in its place");

    let registered = testimony(&world, &outbox, 1, 0);
    assert!(matches!(registered.fact, Fact::Executed(_)));
    assert!(!receipt.add(&registered), "another fact");

    let forged = |change: &dyn Fn(&mut Receipt)| {
        let mut copy = receipt.clone();
        change(&mut copy);
        copy.verify(&world.genesis)
    };
    let publication = |r: &mut Receipt, change: &dyn Fn(&mut crate::state::Entry)| match &mut r.fact {
        Fact::Published(entry) => change(entry),
        Fact::Executed(_) => unreachable!("it is a publication"),
    };
    assert_eq!(forged(&|r| publication(r, &|e| e.sn += 1)), Err(ReceiptError::Proof));
    assert_eq!(forged(&|r| publication(r, &|e| e.height += 1)), Err(ReceiptError::Proof));
    assert_eq!(forged(&|r| r.state_root[0] ^= 1), Err(ReceiptError::Signature(0)));
    assert_eq!(forged(&|r| r.height += 1), Err(ReceiptError::Proof));
    assert_eq!(forged(&|r| r.cluster.0[0] ^= 1), Err(ReceiptError::Cluster));
    let moved = |r: &mut Receipt| {
        let signature = r.signatures.remove(&3).expect("it is there");
        r.signatures.insert(2, signature);
    };
    assert_eq!(forged(&moved), Err(ReceiptError::Signature(2)), "a signature counts for its own broker only");
}

#[test]
fn brokers_speak_in_turn() {
    let turns: Vec<usize> = (0..4).map(|height| designated_responder(&Client([9; 32]), height, 4)).collect();
    assert_eq!(turns, [1, 2, 3, 0]);
    assert_ne!(designated_responder(&Client([9; 32]), 5, 4), designated_responder(&Client([10; 32]), 5, 4));
}

#[test]
fn rule_e8_only_brokers_take_part_in_a_ceremony() {
    let (world, mut state, _) = story();
    let word = || Operation::Dkg(vec![1, 2, 3]);
    let batch = |seed: u8| Batch::sign(&world.cluster, &origin_key(seed), 5, vec![word()]);
    let batches: Vec<Checked> = check(&world.cluster, vec![batch(210), batch(77), batch(210)], |_| vec![])
        .into_iter()
        .map(|f| f.expect("it is signed well"))
        .collect();
    let outbox = state.execute(2, NOW, &batches).expect("it executes");
    let codes: Vec<_> = outbox.results.iter().map(|r| r.outcomes[0].code).collect();
    use crate::state::Code::{Denied, Done};
    assert_eq!(codes, [Done, Denied, Done]);
}
