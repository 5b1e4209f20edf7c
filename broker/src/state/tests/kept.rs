//! What is there for good: values, topics, and statements of the DKG.

use super::*;
use crate::state::table::Kept;

/// What the rows of values and topics say of themselves is what the state counts, in all and of each credential.
pub(super) fn assert_counted(state: &State<Memory>) {
    let all = |table: u8| super::super::rows(&state.store, &[table]).map(|(key, row)| (key, row.expect("memory")));
    let (mut kept, mut of_values): (Kept, BTreeMap<_, Kept>) = Default::default();
    for (key, row) in all(b'K').chain(all(b'T')) {
        kept.add(key.len() + row.len());
        if key[0] == b'K' {
            let value = table::read(&row, table::Value::decode).expect("a value");
            of_values.entry(table::kept(Some(&value.owner))).or_default().add(key.len() + row.len());
        }
    }
    let read = |row: &[u8]| table::read(row, Kept::decode).expect("a count");
    let mut counted: BTreeMap<Vec<u8>, Kept> = all(b'V').map(|(key, row)| (key, read(&row))).collect();
    assert_eq!(counted.remove(&table::kept(None)).unwrap_or_default(), kept);
    let sum = counted.values().fold((0, 0), |sum, it| (sum.0 + it.rows, sum.1 + it.bytes));
    assert_eq!(sum, (kept.rows, kept.bytes), "each is somebody's");
    assert!(of_values.iter().all(|(key, it)| counted[key].rows >= it.rows && counted[key].bytes >= it.bytes));
}

fn put(key: usize, value: Vec<u8>) -> Operation {
    let key = key.to_be_bytes().to_vec();
    publish(Publication { execute: Execute::Put { key, value }, ..publication(&["a"], b"x") })
}

/// How many of these are done, in blocks of a batch each.
fn done(run: &mut Broker, seed: u8, operations: Vec<Operation>) -> usize {
    let mut done = 0;
    for some in operations.chunks(limits::BATCH_OPERATIONS_MAX) {
        let codes = run.codes(seed, some.to_vec());
        assert!(codes.iter().all(|it| matches!(it, Code::Done | Code::TooMany)));
        done += codes.iter().filter(|it| **it == Code::Done).count();
    }
    done
}

#[test]
fn rule_g8_the_clients_of_one_credential_share_its_room_for_values_and_topics() {
    let mut run = Broker::with_clients();
    let long = |key| put(key, vec![7; limits::VALUE_BYTES_MAX]);
    let room = limits::KEPT_BYTES_PER_CREDENTIAL_MAX as usize / limits::VALUE_BYTES_MAX;
    let taken = done(&mut run, 1, (0..room + 100).map(long).collect());
    assert!((room - 200..room).contains(&taken), "{taken} of {room}");
    let outbox =
        run.block(vec![(1, vec![put(0, b"short".to_vec()), long(room + 200), publish(publication(&["a"], b""))])]);
    let codes: Vec<Code> = outbox.results[0].outcomes.iter().map(|it| it.code).collect();
    assert_eq!(
        codes,
        [Code::Done, Code::Done, Code::Done],
        "what is given up is free, and what leaves nothing goes on"
    );
    assert_eq!(run.codes(1, vec![long(room + 201), publish(publication(&["new"], b""))])[0], Code::TooMany);
    assert_eq!(run.state.read_value(&client(1), "a", &(room + 201).to_be_bytes(), 0), Ok(None), "nothing came of it");
    assert_eq!(run.codes(2, vec![long(room + 201)]), [Code::Done], "others are not touched by it");
    // Who writes what another wrote takes it over.
    assert_eq!(run.codes(2, vec![long(1)]), [Code::Done]);
    assert_eq!(run.codes(1, vec![long(room + 202)]), [Code::Done]);
    assert_counted(&run.state);

    // Another key of the same credential has no more, also after a restart.
    let claim =
        Claim::sign("exchange", &[1], (NOW, Utc(NOW.0 + 30 * DAY)), &[], origin_key(9).public(), &run.world.exchange);
    let again = Operation::Register(Registration { intent: false, proof: claim.into() });
    let store = run.state.store.clone();
    run.state = State::open(run.world.genesis.clone(), store).expect("memory does not fail");
    assert_eq!(run.codes(9, vec![again, long(room + 203)]), [Code::Done, Code::TooMany]);
}

#[test]
fn rule_g8_topics_have_room_for_so_many() {
    let mut run = Broker::with_clients();
    let most = limits::KEPT_ROWS_PER_CREDENTIAL_MAX as usize;
    let topics = |from: usize, count: usize| {
        let names: Vec<String> = (from..from + count).map(|n| format!("t={n}")).collect();
        publish(publication(&names.iter().map(String::as_str).collect::<Vec<_>>(), b""))
    };
    let many = (0..most / limits::HEADERS_MAX).map(|n| topics(n * limits::HEADERS_MAX, limits::HEADERS_MAX));
    assert_eq!(done(&mut run, 1, many.collect()), most / limits::HEADERS_MAX);
    assert_eq!(
        run.codes(1, vec![topics(most, 1), topics(0, 3), put(1, vec![])]),
        [Code::TooMany, Code::Done, Code::TooMany]
    );
    assert_eq!(run.state.read_latest(&client(1), &header(&format!("t={most}")), 0), Ok(None));
    assert_eq!(run.codes(2, vec![topics(most, 1)]), [Code::Done]);
    assert_counted(&run.state);
}

#[test]
fn rule_g8_a_broker_is_heard_so_often_in_the_key_ceremony() {
    let mut run = Broker::with_clients();
    let word = |length| Operation::Dkg(vec![3; length]);
    let most = limits::DKG_STATEMENTS_PER_BROKER_MAX as usize;
    let kept = |run: &Broker, broker: u8| {
        let number = run.world.genesis.brokers.iter().position(|it| *it == client(broker).0).expect("a broker");
        run.state.words().expect("memory").iter().filter(|it| usize::from(it.1) == number).count()
    };
    assert_eq!(done(&mut run, 210, vec![word(9); most + 50]), most);
    assert_eq!(kept(&run, 210), most);
    // The others have theirs, also one that began with a snapshot and has none of the words.
    let rows: Vec<Row> = elements(&run.state.store).collect::<Result<_, _>>().expect("memory");
    let (root, head) = (run.state.root(), run.state.snapshot_head());
    let joined = State::restore(run.world.genesis.clone(), Memory::default(), head, rows, &root);
    run.state = joined.expect("its own snapshot");
    assert_eq!(run.codes(210, vec![word(9)]), [Code::TooMany]);
    let long = limits::DKG_BYTES_MAX;
    let room = limits::DKG_BYTES_PER_BROKER_MAX as usize / long;
    assert_eq!(done(&mut run, 211, vec![word(long); room + 9]), room);
    assert_eq!(run.codes(211, vec![word(9)]), [Code::TooMany]);
}
