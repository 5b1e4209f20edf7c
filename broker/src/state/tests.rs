mod holders;
mod kept;
mod resuming;
mod suspension;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sealcast_wire::{Utc, Writer};

use super::*;
use crate::fixture::{DAY, NOW, World, client, header, origin_key, publication, publish, subscribe};
use crate::operation::{Action, Claim, Execute, Header, Operation, OperationId, Publication, Registration};

/// A state, and blocks that are a minute apart.
struct Broker {
    world: World,
    state: State<Memory>,
    numbers: BTreeMap<u8, u64>,
    blocks: Vec<(u64, Utc, Vec<Checked>)>,
}

impl Broker {
    fn new() -> Broker {
        let world = World::new();
        let state = State::open(world.genesis.clone(), Memory::default()).expect("memory does not fail");
        Broker { world, state, numbers: BTreeMap::new(), blocks: vec![] }
    }

    /// With clients 1 (desk fx), 2 (desk rates) and 3 (desk fx) registered.
    fn with_clients() -> Broker {
        let mut run = Broker::new();
        let batches = [(1, "fx"), (2, "rates"), (3, "fx")]
            .map(|(seed, desk)| (seed, vec![run.world.claim(seed, &[("desk", desk)])]));
        let outbox = run.block(batches.to_vec());
        assert!(outbox.results.iter().all(|r| r.outcomes[0].code == Code::Done));
        run
    }

    fn checked(&mut self, batches: Vec<(u8, Vec<Operation>)>) -> Vec<Checked> {
        let numbered = batches.into_iter().map(|(seed, operations)| {
            let first = self.numbers.entry(seed).or_insert(0);
            let batch = self.world.batch(seed, *first, operations);
            *first = batch.batch().end();
            batch
        });
        numbered.collect()
    }

    fn block(&mut self, batches: Vec<(u8, Vec<Operation>)>) -> Outbox {
        let batches = self.checked(batches);
        let height = self.state.height() + 1;
        self.blocks.push((height, at(height), batches.clone()));
        self.state.execute(height, at(height), &batches).expect("memory does not fail")
    }

    fn codes(&mut self, seed: u8, operations: Vec<Operation>) -> Vec<Code> {
        self.block(vec![(seed, operations)]).results[0].outcomes.iter().map(|o| o.code).collect()
    }
}

fn to(desk: &str, headers: &[&str], body: &[u8]) -> Publication {
    let access = Some(format!("exchange:desk = {desk}").parse().expect("a condition"));
    Publication { access, ..publication(headers, body) }
}

fn got(outbox: &Outbox, seed: u8) -> Vec<(u64, Vec<Run>)> {
    let mine = outbox.notices.iter().filter(|n| n.client == client(seed));
    mine.map(|n| (n.first, n.runs.clone())).collect()
}

#[test]
fn every_topic_counts_its_own_publications_as_in_figure_2() {
    let mut run = Broker::with_clients();
    let outbox = run.block(vec![
        (1, vec![publish(publication(&["price=105"], b"m0"))]),
        (2, vec![Operation::Sync, publish(publication(&["price=105", "county=Orange"], b"m2"))]),
    ]);
    let places: Vec<Vec<u64>> =
        outbox.publications.iter().map(|e| e.places.iter().map(|(_, ps)| *ps).collect()).collect();
    assert_eq!(places, [vec![0], vec![1, 0]]);
    let sn: Vec<u64> = outbox.publications.iter().map(|e| e.sn).collect();
    assert_eq!(sn, [3, 5], "three registrations before, a sync between");
    let mut detail = Writer::new();
    detail.u64(5).u64(1).u64(0);
    assert_eq!(outbox.results[1].outcomes[1], OperationResult { code: Code::Done, detail: detail.finish() });
    let place = run.state.read_latest(&client(1), &header("price=105"), 2).unwrap().unwrap();
    assert_eq!((place.ps, place.reading), (1, Reading::Publication(Box::new(outbox.publications[1].clone()))));
}

#[test]
fn the_interested_get_it_or_empty_and_the_others_nothing() {
    let mut run = Broker::with_clients();
    run.block(vec![(1, vec![subscribe("price = 105")]), (2, vec![subscribe("price = 105 or county")])]);
    let outbox = run.block(vec![(
        3,
        vec![
            publish(to("fx", &["price=105"], b"a")),
            publish(to("fx", &["price=105"], b"b")),
            publish(to("rates", &["price=105"], b"c")),
            publish(to("fx", &["price=106"], b"d")),
            publish(to("fx", &["county=Orange"], b"e")),
        ],
    )]);
    let sn = outbox.publications[0].sn;
    let deliver = |n| Run::Deliver { sn: sn + n };
    assert_eq!(got(&outbox, 1), [(0, vec![deliver(0), deliver(1), Run::Empty { count: 1 }])]);
    assert_eq!(
        got(&outbox, 2),
        [(0, vec![Run::Empty { count: 2 }, deliver(2), Run::Empty { count: 1 }])],
        "⊥ as ranges"
    );
    assert!(got(&outbox, 3).is_empty());
    let outbox = run.block(vec![(3, vec![publish(publication(&["county=Orange", "price=105"], b"f"))])]);
    assert_eq!((got(&outbox, 1)[0].0, got(&outbox, 2)[0].0), (3, 4), "places go on where the last block ended");
}

#[test]
fn a_subscription_stands_from_its_place_to_its_end() {
    let mut run = Broker::with_clients();
    let outbox = run.block(vec![(
        1,
        vec![publish(publication(&["a"], b"before")), subscribe("a"), publish(publication(&["a"], b"after"))],
    )]);
    assert_eq!(got(&outbox, 1), [(0, vec![Run::Deliver { sn: 5 }])]);
    assert_eq!(
        run.codes(1, vec![Operation::Unsubscribe(9), Operation::Unsubscribe(2)]),
        [Code::NoSubscription, Code::Done]
    );
    assert!(run.block(vec![(1, vec![publish(publication(&["a"], b"later"))])]).notices.is_empty());
    let many: Vec<_> = (0..=limits::SUBSCRIPTIONS_PER_CLIENT_MAX).map(|_| subscribe("b")).collect();
    let (first, last) = many.split_at(200);
    assert!(run.codes(1, first.to_vec()).iter().all(|c| *c == Code::Done));
    assert_eq!(run.codes(1, last.to_vec()).last(), Some(&Code::TooMany));
}

#[test]
fn advertisements_reach_those_with_intent() {
    let mut run = Broker::with_clients();
    let mut wants = run.world.claim(4, &[]);
    if let Operation::Register(registration) = &mut wants {
        registration.intent = true;
    }
    run.block(vec![(4, vec![wants]), (2, vec![subscribe("a")])]);
    let advertise = Operation::Advertise { scope: "market/#".parse().unwrap(), text: b"quotes".to_vec() };
    let outbox = run.block(vec![(1, vec![advertise])]);
    let expected: BTreeSet<Client> = [client(2), client(4)].into();
    assert_eq!((outbox.advertisements.len(), outbox.intents.iter().copied().collect()), (1, expected));
}

#[test]
fn rule_e1_everything_in_an_outbox_is_proved_against_its_root() {
    let mut run = Broker::with_clients();
    run.block(vec![(1, vec![subscribe("#")]), (2, vec![subscribe("#")])]);
    let advertise = || Operation::Advertise { scope: "a".parse().unwrap(), text: vec![] };
    let batches = (0..7).map(|n| (3, vec![publish(to("fx", &["a"], &[n])), advertise()])).collect();
    let outbox = run.block(batches);
    let leaves: [Vec<[u8; 32]>; 4] = [
        outbox.publications.iter().map(Entry::leaf).collect(),
        outbox.results.iter().map(Results::leaf).collect(),
        outbox.notices.iter().map(Notice::leaf).collect(),
        outbox.advertisements.iter().map(Advertisement::leaf).collect(),
    ];
    let mut roots = BTreeSet::new();
    for (part, leaves) in [Part::Publication, Part::Result, Part::Notice, Part::Advertisement].into_iter().zip(&leaves)
    {
        assert_eq!(outbox.prove(part, leaves.len()), None);
        for (index, leaf) in leaves.iter().enumerate() {
            let proof = outbox.prove(part, index).unwrap();
            assert_eq!(proof.root(outbox.height, leaf), Some(outbox.root()));
            assert_ne!(proof.root(outbox.height + 1, leaf), Some(outbox.root()), "another height");
            let other = Proof { index: (index + 1) % leaves.len(), ..proof.clone() };
            assert_ne!(other.root(outbox.height, leaf), Some(outbox.root()), "another place");
            for wrong in [Part::Publication, Part::Result, Part::Notice, Part::Advertisement] {
                let moved = Proof { part: wrong, ..proof.clone() };
                assert_eq!(moved.root(outbox.height, leaf) == Some(outbox.root()), wrong == part, "another list");
            }
        }
        roots.extend(leaves.iter().copied());
    }
    assert_eq!(roots.len(), 7 + 7 + 2 + 7, "all leaves differ");
    let mut changed = outbox.results[0].clone();
    changed.outcomes[0].code = Code::Denied;
    assert_ne!(outbox.prove(Part::Result, 0).unwrap().root(outbox.height, &changed.leaf()), Some(outbox.root()));
    let mut withheld = outbox.notices[0].clone();
    withheld.runs.remove(0);
    assert_ne!(outbox.prove(Part::Notice, 0).unwrap().root(outbox.height, &withheld.leaf()), Some(outbox.root()));
    assert_ne!(outbox.executed(&run.world.cluster), outbox.executed(&Cluster([0; 32])));
}

#[test]
fn rule_e2_a_revocation_binds_at_once_for_notices_and_for_reads() {
    let mut run = Broker::with_clients();
    run.block(vec![(1, vec![subscribe("a")]), (3, vec![subscribe("a")])]);
    let first = run.block(vec![(2, vec![publish(to("fx", &["a"], b"x"))])]);
    let sn = first.publications[0].sn;
    assert_eq!(got(&first, 1), [(0, vec![Run::Deliver { sn }])]);
    assert!(run.state.may_read(&client(1), sn).unwrap());

    // In one block: published, then two readers lose their right, one as a client, one by its credential.
    let ends = vec![
        publish(to("fx", &["a"], b"y")),
        run.world.admin(1, Action::RevokeClient(client(1))),
        run.world.admin(2, Action::RevokeCredential { issuer: "exchange".into(), serial: vec![3] }),
    ];
    let outbox = run.block(vec![(2, ends)]);
    assert!(got(&outbox, 1).is_empty() && got(&outbox, 3).is_empty());
    for seed in [1, 3] {
        assert!(!run.state.may_read(&client(seed), sn).unwrap(), "also what it was notified of");
        assert_eq!(run.state.read(&client(seed), &header("a"), 0), Err(ReadError::Denied));
    }
    assert_eq!(run.codes(1, vec![Operation::Sync]), [Code::Revoked]);
    let again = run.world.claim(1, &[("desk", "fx")]);
    assert_eq!(run.codes(1, vec![again]), [Code::Revoked]);
    let again = run.world.claim(3, &[("desk", "fx")]);
    assert_eq!(run.codes(3, vec![Operation::Sync, again]), [Code::Unregistered, Code::CredentialRevoked]);
    // Administrators see before what an act would change.
    let known = |seed| Subject::Client(client(seed));
    let of = |serial: u8| Subject::Credential { issuer: "exchange".into(), serial: vec![serial] };
    let ended = SubjectStatus { revoked: true, suspended: None, clients: 0 };
    let height = run.state.height();
    let administrator = Client(run.world.administrators[0].public_bytes());
    let told = |subject: Subject| run.state.read_subject(&administrator, &subject, height);
    assert_eq!(told(known(1)), Ok(SubjectStatus { clients: 1, ..ended }));
    assert_eq!(told(known(2)), Ok(SubjectStatus { clients: 1, ..SubjectStatus::default() }));
    assert_eq!(told(known(9)), Ok(SubjectStatus::default()), "it never came");
    assert_eq!(told(of(3)), Ok(ended), "nobody has it any more");
    assert_eq!(told(of(2)), Ok(SubjectStatus { clients: 1, ..SubjectStatus::default() }));
    assert_eq!(told(of(99)), Ok(SubjectStatus::default()));
    assert_eq!(run.state.read_subject(&client(2), &of(2), height), Err(ReadError::Denied), "administrators alone");
    let later = run.state.read_subject(&administrator, &of(2), height + 1);
    assert_eq!(later, Err(ReadError::Behind { height }), "E9");

    assert_eq!(run.codes(2, vec![run.world.admin(3, Action::RevokeClient(client(1)))]), [Code::Futile]);
    assert_eq!(run.codes(2, vec![run.world.admin(4, Action::RevokeClient(client(9)))]), [Code::Done]);
    let late = run.world.claim(9, &[]);
    assert_eq!(run.codes(9, vec![late]), [Code::Revoked], "also who never came");
}

#[test]
fn rule_e3_acts_of_administrators_execute_once_and_in_order() {
    let mut run = Broker::with_clients();
    let policy = |text: &str| Action::Policy(text.parse().expect("a policy"));
    let second = run.world.admin(2, policy("read b if exchange:desk = fx"));
    let first = run.world.admin(1, policy("read a if exchange:desk = fx"));
    let codes = run.codes(1, vec![second.clone(), first.clone(), second.clone(), second]);
    assert_eq!(codes, [Code::AdminNumber, Code::Done, Code::Done, Code::AdminNumber]);
    assert_eq!(run.state.policy().0, 2);
    let mut alone = crate::operation::Admin::new(3, policy(""));
    alone.sign(&run.world.genesis, &run.world.cluster, &run.world.administrators[0]);
    assert_eq!(run.codes(1, vec![Operation::Administer(alone)]), [Code::Signatures]);
    // Of a false signature everybody sees whose it is.
    let Operation::Administer(mut forged) = run.world.admin(3, policy("")) else { panic!("an act") };
    assert_eq!(forged.false_signatures(&run.world.genesis, &run.world.cluster), []);
    let (place, signature) = forged.signatures.last_mut().expect("it is signed");
    let place = *place;
    signature[0] ^= 1;
    assert_eq!(forged.false_signatures(&run.world.genesis, &run.world.cluster), [place]);
    forged.signatures.push((9, [0; 64]));
    assert_eq!(forged.false_signatures(&run.world.genesis, &run.world.cluster), [place, 9]);
    assert_eq!(run.codes(1, vec![Operation::Administer(forged)]), [Code::Signatures]);
    let courier = run.world.admin(3, policy(""));
    assert_eq!(run.codes(77, vec![courier]), [Code::Done], "anybody may bring it");
}

#[test]
fn rule_e3_global_policies_hold_beside_a_publication_s_own_rule() {
    let mut run = Broker::with_clients();
    let nurse = run.world.certificate(5, &[("hospitalA", "role", "nurse")]);
    run.block(vec![(5, vec![nurse, subscribe("ward/#")]), (1, vec![subscribe("ward/#")])]);
    let rules =
        "read ward/# if hospitalA:role in [nurse, doctor]\npublish ward/# if exchange:desk = fx".parse().unwrap();
    let act = run.world.admin(1, Action::Policy(rules));
    run.block(vec![(2, vec![act])]);
    let ward = |access: Option<&str>| {
        let access = access.map(|a| a.parse().unwrap());
        publish(Publication { access, policy: 1, ..publication(&["ward/3"], b"x") })
    };
    assert_eq!(run.codes(2, vec![ward(None)]), [Code::Denied]);
    let outbox = run.block(vec![(1, vec![ward(None), ward(Some("hospitalA:role = doctor"))])]);
    let sn = outbox.publications[0].sn;
    assert_eq!(got(&outbox, 5), [(0, vec![Run::Deliver { sn }, Run::Empty { count: 1 }])]);
    assert_eq!(got(&outbox, 1), [(0, vec![Run::Empty { count: 2 }])]);
    // A wider policy later does not open what was sealed for the narrower one.
    let act = run.world.admin(2, Action::Policy(Policy::default()));
    run.block(vec![(2, vec![act])]);
    assert!(!run.state.may_read(&client(1), sn).unwrap());
    assert!(run.state.may_read(&client(5), sn).unwrap());
    // A narrower one closes it.
    let act = run.world.admin(3, Action::Policy("read # if hospitalA:role = doctor".parse().unwrap()));
    run.block(vec![(2, vec![act])]);
    assert!(!run.state.may_read(&client(5), sn).unwrap());
}

#[test]
fn rule_e6_stale_policy_and_epoch_are_refused_and_resealed() {
    let mut run = Broker::with_clients();
    let acts = vec![run.world.admin(1, Action::Policy(Policy::default())), run.world.admin(2, Action::Epoch(4))];
    let sealed = |policy, epoch| publish(Publication { policy, epoch, ..publication(&["a"], b"x") });
    // The act and the publication race: the order decides, the same everywhere.
    let outbox = run.block(vec![
        (1, vec![sealed(0, 0)]),
        (2, acts),
        (1, vec![sealed(0, 0), sealed(1, 0), sealed(1, 4), sealed(2, 4)]),
    ]);
    let number = |n: u64| n.to_be_bytes().to_vec();
    let results: Vec<_> = outbox.results[2].outcomes.iter().map(|o| (o.code, o.detail.clone())).collect();
    assert_eq!(outbox.results[0].outcomes[0].code, Code::Done);
    assert_eq!(results[0], (Code::StalePolicy, number(1)));
    assert_eq!(results[1], (Code::StaleEpoch, 4_u32.to_be_bytes().to_vec()));
    assert_eq!(results[2].0, Code::Done);
    assert_eq!(results[3], (Code::StalePolicy, number(1)), "one from the future is no better");
    assert_eq!(outbox.publications.len(), 2);
    assert_eq!(run.codes(2, vec![run.world.admin(3, Action::Epoch(4))]), [Code::Futile], "epochs only grow");
}

#[test]
fn rule_e9_a_place_means_the_same_for_ever_and_floors_hold() {
    let mut run = Broker::with_clients();
    let operations = (0..5).map(|n| publish(to(if n % 2 == 0 { "fx" } else { "rates" }, &["a"], &[n]))).collect();
    let outbox = run.block(vec![(1, operations)]);
    let read = |run: &Broker, ps| run.state.read(&client(1), &header("a"), ps).unwrap();
    let before: Vec<_> = (0..5).map(|ps| read(&run, ps)).collect();
    assert_eq!(before[0], Some(Reading::Publication(Box::new(outbox.publications[0].clone()))));
    assert_eq!((&before[1], read(&run, 5)), (&Some(Reading::Empty), None));
    run.block(vec![(2, vec![publish(publication(&["a", "b"], b"z")), publish(publication(&["a=1"], b"z"))])]);
    assert_eq!((0..5).map(|ps| read(&run, ps)).collect::<Vec<_>>(), before);

    let range = |from, limit, min_height| run.state.read_range(&client(1), &header("a"), from, limit, min_height);
    let places: Vec<u64> = range(3, 10, 3).unwrap().iter().map(|p| p.ps).collect();
    assert_eq!(places, [3, 4, 5], "and nothing of another value");
    assert_eq!(range(0, 2, 0).unwrap().len(), 2);
    assert_eq!(range(0, 2, 4), Err(ReadError::Behind { height: 3 }));
    assert_eq!(run.state.read_latest(&client(1), &header("a"), 4), Err(ReadError::Behind { height: 3 }));
    assert_eq!(run.state.read_latest(&client(1), &header("none"), 3), Ok(None));
    assert_eq!(run.state.read_latest(&client(99), &header("none"), 3), Err(ReadError::Denied));
    let sync = run.block(vec![(1, vec![Operation::Sync])]);
    assert_eq!(sync.results[0].outcomes[0].detail[8..], 4_u64.to_be_bytes(), "a floor that has a place in the order");
}

#[test]
fn rule_e10_validity_is_judged_by_block_time_which_never_goes_back() {
    let mut run = Broker::with_clients();
    run.block(vec![(1, vec![subscribe("a")])]);
    let batches = run.checked(vec![(2, vec![publish(to("fx", &["a"], b"x"))])]);
    let in_time = run.state.clone().execute(3, Utc(NOW.0 + 30 * DAY), &batches).unwrap();
    assert!(matches!(got(&in_time, 1)[0].1[0], Run::Deliver { .. }));
    let later = run.state.clone().execute(3, Utc(NOW.0 + 30 * DAY + 1), &batches).unwrap();
    assert_eq!(later.results[0].outcomes[0].code, Code::Unregistered, "the publisher's claim is over, too");
    let mut state = run.state.clone();
    state.execute(3, Utc(NOW.0 + 40 * DAY), &[]).unwrap();
    let back = state.execute(4, NOW, &batches).unwrap();
    assert_eq!((back.at, back.results[0].outcomes[0].code), (Utc(NOW.0 + 40 * DAY), Code::Unregistered));
    assert!(!state.may_read(&client(1), 0).unwrap());
}

#[test]
fn the_same_number_counts_once_however_it_is_batched() {
    let mut run = Broker::with_clients();
    let publication = |n: u8| publish(publication(&["a"], &[n]));
    let cut = |run: &Broker, first: u64, bodies: &[u8]| {
        run.world.batch(1, first, bodies.iter().map(|n| publication(*n)).collect())
    };
    let batches = [
        cut(&run, 1, &[1, 2]),
        cut(&run, 1, &[1, 2]),
        cut(&run, 2, &[2, 3]),
        cut(&run, 6, &[9]),
        cut(&run, 2, &[99]),
        cut(&run, 4, &[4]),
    ];
    let outbox = run.state.execute(2, NOW, &batches).unwrap();
    let codes: Vec<Vec<Code>> = outbox.results.iter().map(|r| r.outcomes.iter().map(|o| o.code).collect()).collect();
    use Code::{Done, Duplicate, Gap};
    let expected =
        [vec![Done, Done], vec![Duplicate; 2], vec![Duplicate, Done], vec![Gap], vec![Duplicate], vec![Done]];
    assert_eq!(codes, expected);
    assert_eq!(outbox.results[3].outcomes[0].detail, 4_u64.to_be_bytes());
    let numbers: Vec<u64> = outbox.publications.iter().map(|e| e.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert_eq!(run.state.execute(2, NOW, &[]).unwrap_err(), ExecuteError::Height(3), "nor does a block");
}

#[test]
fn rows_of_another_version_are_not_taken_for_ours() {
    let mut run = Broker::with_clients();
    let mut store = run.state.store.clone();
    assert_eq!(height(&store).expect("its own"), run.state.height());
    let mut head = store.get(table::HEAD).unwrap().expect("it has executed something");
    head[0] += 1;
    store.apply(Changes::from([(table::HEAD.to_vec(), Some(head))])).unwrap();
    let wrong = State::open(run.world.genesis.clone(), store.clone()).expect_err("it is not ours");
    assert!(wrong.to_string().contains("another version"), "{wrong}");
    assert!(height(&store).is_err());
    assert_eq!(run.codes(1, vec![Operation::Sync]), [Code::Done]);
}

#[test]
fn strangers_change_nothing() {
    let mut run = Broker::new();
    let root = run.state.root();
    let forged = run.world.claim(2, &[("desk", "fx")]);
    let batches =
        run.checked(vec![(1, vec![Operation::Sync, publish(publication(&["a"], b"")), subscribe("a"), forged])]);
    let outbox = run.state.execute(1, NOW, &batches).unwrap();
    let codes: Vec<Code> = outbox.results[0].outcomes.iter().map(|o| o.code).collect();
    assert_eq!(codes, [Code::Unregistered, Code::Unregistered, Code::Unregistered, Code::Proof]);
    assert_eq!(run.state.client(&client(1)), Ok(None));
    assert_ne!(run.state.root(), root, "the height");
    let batches = vec![run.world.batch(1, 4, vec![run.world.claim(1, &[]), publish(publication(&["a"], b""))])];
    let outbox = run.state.execute(2, NOW, &batches).unwrap();
    assert!(outbox.results[0].outcomes.iter().all(|o| o.code == Code::Done));
    assert_eq!(run.state.client(&client(1)).unwrap().unwrap().next, 6);
}

#[test]
fn operations_on_values_execute_in_order_or_publish_nothing() {
    let mut run = Broker::with_clients();
    let with = |execute| publish(Publication { execute, ..publication(&["orders/7", "b"], b"x") });
    let key = || b"k".to_vec();
    let put = |value: &[u8]| with(Execute::Put { key: key(), value: value.to_vec() });
    let add = |by| with(Execute::Increment { key: key(), by });
    let cas = |expected: Option<&[u8]>, value: &[u8]| {
        with(Execute::CompareAndSet { key: key(), expected: expected.map(<[u8]>::to_vec), value: value.to_vec() })
    };
    let outbox = run.block(vec![(1, vec![add(2), add(-5), cas(None, b"v"), put(b"v"), cas(Some(b"v"), b"w"), add(1)])]);
    let outcomes = &outbox.results[0].outcomes;
    let codes: Vec<Code> = outcomes.iter().map(|o| o.code).collect();
    assert_eq!(codes, [Code::Done, Code::Done, Code::Mismatch, Code::Done, Code::Done, Code::NoNumber]);
    assert_eq!(outcomes[1].detail[24..], (-3_i64).to_be_bytes(), "sn, two numbers, the sum");
    assert_eq!(outcomes[2].detail, [&[1][..], &(-3_i64).to_be_bytes()].concat());
    assert_eq!(outbox.publications.len(), 4);
    assert_eq!(run.codes(1, vec![put(&i64::MAX.to_be_bytes()), add(1)]), [Code::Done, Code::NoNumber]);
    let value = |run: &Broker, topic: &str| {
        let found = run.state.read_value(&client(2), topic, b"k", 0);
        found.map(|it| {
            it.map(|(height, value)| (height == run.state.height()).then_some(value).expect("it was just written"))
        })
    };
    assert_eq!(value(&run, "orders/7"), Ok(Some(i64::MAX.to_be_bytes().to_vec())));
    assert_eq!(value(&run, "b"), Ok(None), "keys belong to the first header's topic");
    let act = run.world.admin(1, Action::Policy("read orders/# if exchange:desk = fx".parse().unwrap()));
    run.block(vec![(1, vec![act])]);
    assert_eq!(value(&run, "orders/7"), Err(ReadError::Denied));
    // Nor is a value told to who may publish there and not read (E3).
    let with = |execute| publish(Publication { execute, policy: 1, ..publication(&["orders/7", "b"], b"x") });
    let blind = vec![
        with(Execute::CompareAndSet { key: key(), expected: None, value: vec![1] }),
        with(Execute::CompareAndSet { key: b"other".to_vec(), expected: Some(vec![1]), value: vec![1] }),
        with(Execute::Increment { key: b"n".to_vec(), by: 7 }),
    ];
    let outbox = run.block(vec![(2, blind.clone()), (1, blind)]);
    let of = |batch: usize| outbox.results[batch].outcomes.iter().map(|it| (it.code, it.detail.len()));
    assert!(of(0).eq([(Code::Mismatch, 0), (Code::Mismatch, 0), (Code::Done, 24)]), "sn and two numbers alone");
    assert!(of(1).eq([(Code::Mismatch, 9), (Code::Mismatch, 1), (Code::Done, 32)]));
}

#[test]
fn a_changed_snapshot_is_not_taken_over() {
    let mut run = Broker::with_clients();
    run.block(vec![
        (1, vec![subscribe("a"), publish(publication(&["a"], b"x"))]),
        (2, vec![publish(publication(&["b"], b""))]),
    ]);
    let put = Publication { execute: Execute::Put { key: vec![1], value: vec![2] }, ..publication(&["a"], b"x") };
    let act = run.world.admin(1, Action::Policy("read c if a:b = c".parse().unwrap()));
    run.block(vec![(1, vec![publish(put), act])]);
    let rows: Vec<Row> = elements(&run.state.store).collect::<Result<_, _>>().unwrap();
    let (root, head) = (run.state.root(), run.state.snapshot_head());
    let from =
        |head: SnapshotHead, rows| State::restore(run.world.genesis.clone(), Memory::default(), head, rows, &root);
    let restore = |rows: Vec<Row>| from(head.clone(), rows);
    assert!(restore(rows.clone()).is_ok());
    let bytes = head.to_bytes();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let Some(changed) = SnapshotHead::from_bytes(&changed) else { continue };
        assert_eq!(from(changed, rows.clone()).unwrap_err(), RestoreError::Root, "the head's byte {at}");
    }
    for i in 0..rows.len() {
        let mut without = rows.clone();
        let (key, value) = without.remove(i);
        assert!(restore(without).is_err(), "without row {key:?}");
        for at in 0..value.len() {
            let mut changed = rows.clone();
            changed[i].1[at] ^= 1;
            assert!(restore(changed).is_err(), "row {key:?}, byte {at}");
        }
    }
    let mut more = rows.clone();
    more.push((b"Z".to_vec(), vec![]));
    assert_eq!(restore(more).unwrap_err(), RestoreError::Rows);
    let twice: Vec<Row> = rows.iter().flat_map(|r| [r.clone(), r.clone()]).collect();
    assert_eq!(restore(twice).unwrap_err(), RestoreError::Rows);
}

#[test]
fn rule_e9_a_pruned_place_is_not_kept_and_no_other_takes_its_number() {
    let mut run = Broker::with_clients();
    run.block(vec![(1, vec![subscribe("a"), subscribe("b")])]);
    for n in 0..6 {
        run.block(vec![(2, vec![publish(publication(&["a"], &[n])), publish(publication(&["a", "b"], &[n]))])]);
    }
    let (cut, whole) = (run.state.snapshot_head(), run.state.clone());
    let rows: Vec<Row> = elements(&run.state.store).map(|row| row.unwrap()).collect();
    let (before, after) = (run.numbers[&1], run.state.root());
    run.block(vec![(2, vec![publish(publication(&["a"], b"kept")), publish(publication(&["b"], b"kept"))])]);
    run.block(vec![(1, vec![subscribe("#")]), (2, vec![publish(publication(&["b"], b"last"))])]);
    let (root, at_once) = (run.state.root(), run.state.clone());

    // The places of the snapshot are stored, the low-water mark is raised, rows go in steps.
    let places: Vec<Row> = rows.iter().filter_map(|row| LowWaterMark::place(cut.height(), row).unwrap()).collect();
    assert_eq!(places.len(), 2);
    run.state.store.apply(places.into_iter().map(|(key, value)| (key, Some(value))).collect()).unwrap();
    run.state.raise_low_water_mark(cut.low_water_mark()).unwrap();
    let raised = run.state.clone();
    while cut.low_water_mark().prune(&mut run.state.store).unwrap() {}
    assert!(!cut.low_water_mark().prune(&mut run.state.store).unwrap());
    assert_eq!(run.state.root(), root, "no other broker sees a difference");
    let count = |state: &State<Memory>, table: u8| super::rows(&state.store, &[table]).count();
    assert_eq!(entries::from(&run.state.store, 0).count(), 3);
    assert_eq!((count(&at_once, table::INDEX), count(&run.state, table::INDEX)), (6 + 6 + 3, 3));

    // A broker that begins with the snapshot answers the same.
    let genesis = run.world.genesis.clone();
    let mut joined = State::restore(genesis.clone(), Memory::default(), cut.clone(), rows, &after).unwrap();
    for (height, at, batches) in run.blocks.iter().filter(|it| it.0 > cut.height()) {
        joined.execute(*height, *at, batches).unwrap();
    }
    let reopened = State::open(genesis, run.state.store.clone()).unwrap();
    for state in [&raised, &run.state, &joined, &reopened] {
        let (a, b, me) = (header("a"), header("b"), client(1));
        for ps in 0..12 {
            assert_eq!(state.read(&me, &a, ps), Err(ReadError::Pruned), "{ps}");
            assert_eq!(state.read_range(&me, &a, ps, 9, 0), Err(ReadError::Pruned));
        }
        for ps in [12, 13] {
            assert_eq!(state.read(&me, &a, ps), at_once.read(&me, &a, ps));
        }
        assert_eq!(state.read_range(&me, &b, 6, 9, 0), at_once.read_range(&me, &b, 6, 9, 0));
        assert_eq!(state.read_latest(&me, &b, 0), at_once.read_latest(&me, &b, 0));
        // Twelve places of the first subscription and six of the second are lost, what follows is numbered as ever.
        for (id, lost) in [(before - 2, 12), (before - 1, 6)] {
            let all = at_once.resume(&me, id, 0, 0, 0).unwrap();
            let resumed = state.resume(&me, id, 0, 0, 0).unwrap();
            assert_eq!((resumed.lost, resumed.notice.first, resumed.until), (lost, lost, all.until));
            assert_eq!(resumed.notice.places() + lost, all.notice.places());
            assert_eq!(resumed.publications[..], all.publications[lost as usize..]);
            let taken = state.resume(&me, id, 4, whole.next_sn() - 5, 0).unwrap();
            assert_eq!((taken.lost, taken.notice.first), (lost - 4, lost));
        }
        let younger = state.resume(&me, before, 0, 0, 0).unwrap();
        assert_eq!((younger.lost, younger), (0, at_once.resume(&me, before, 0, 0, 0).unwrap()));
    }
}

#[test]
fn rule_e1_what_was_signed_of_a_block_is_kept_with_its_publications() {
    let mut run = Broker::with_clients();
    run.block(vec![(1, vec![subscribe("a")])]);
    let outbox = run.block(vec![
        (2, vec![publish(publication(&["a"], b"x")), publish(publication(&["b"], b"y"))]),
        (1, vec![Operation::Sync]),
    ]);
    run.block(vec![(2, vec![publish(publication(&["a"], b"z"))])]);
    let state = State::open(run.world.genesis.clone(), run.state.store.clone()).unwrap();
    let past = state.past(outbox.height).unwrap().expect("it held something");
    assert_eq!(past.executed(&state.cluster), outbox.executed(&state.cluster));
    let (number, second) = (outbox.publications[1].number, outbox.publications[1].clone());
    let (index, entry, leaves) = past.publication(&state.store, &client(2), number).unwrap().expect("it is there");
    assert_eq!((index, &entry), (1, &second));
    assert_eq!(past.prove(Part::Publication, index, &leaves), outbox.prove(Part::Publication, 1));
    assert_eq!(past.prove(Part::Publication, 0, &leaves[1..]), None, "not that list");
    assert!(past.publication(&state.store, &client(1), number).unwrap().is_none());
    let (index, results, leaves) = past.result(&state.store, &client(1), 2).unwrap().expect("it is there");
    assert_eq!((index, &results), (1, &outbox.results[1]));
    assert_eq!(past.prove(Part::Result, index, &leaves), outbox.prove(Part::Result, 1));
}

/// What a script of these tests may do, by a client of 1 to 4.
fn operation() -> impl Strategy<Value = Step> {
    let topics = prop::sample::subsequence(vec!["a", "a=1", "b/c", "b/d"], 1..3);
    let desk = prop::option::of(prop::sample::select(vec!["fx", "rates"]));
    prop_oneof![
        6 => (topics, desk, any::<u8>()).prop_map(|(topics, desk, by)| Step::Publish(topics, desk, by)),
        3 => prop::sample::select(vec!["a", "a = 1", "b/+", "#", "a and b/#", "a or b/c"]).prop_map(Step::Subscribe),
        1 => (0_u64..12).prop_map(Step::Unsubscribe),
        1 => (prop::sample::select(vec!["fx", "rates", "none"]), 1_i64..12).prop_map(|(desk, minutes)| Step::Register(desk, minutes)),
        1 => prop::sample::select(vec!["", "read a if exchange:desk = fx", "publish b/# if exchange:desk = rates"]).prop_map(Step::Policy),
        1 => (1_u8..5).prop_map(Step::Revoke),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Publish(Vec<&'static str>, Option<&'static str>, u8),
    Subscribe(&'static str),
    Unsubscribe(u64),
    /// For some minutes.
    Register(&'static str, i64),
    Policy(&'static str),
    Revoke(u8),
}

/// Blocks of batches of up to two steps.
fn script() -> impl Strategy<Value = Vec<Vec<(u8, Vec<Step>)>>> {
    let batch = (1_u8..5, prop::collection::vec(operation(), 1..3));
    prop::collection::vec(prop::collection::vec(batch, 0..5), 1..8)
}

fn play(run: &mut Broker, script: &[Vec<(u8, Vec<Step>)>]) -> Vec<Vec<Checked>> {
    let (mut acts, mut policy) = (0, 0);
    let mut blocks = vec![];
    for block in script {
        let mut batches = vec![];
        for (seed, steps) in block {
            let operations = steps.iter().map(|step| match step {
                Step::Publish(topics, desk, by) => publish(Publication {
                    access: desk.map(|d| format!("exchange:desk = {d}").parse().unwrap()),
                    execute: match by % 3 {
                        0 => Execute::Put { key: vec![by % 5], value: vec![*by; usize::from(*by)] },
                        _ => Execute::Increment { key: b"k".to_vec(), by: i64::from(*by) },
                    },
                    policy,
                    ..publication(topics, &[*by])
                }),
                Step::Subscribe(text) => subscribe(text),
                Step::Unsubscribe(id) => Operation::Unsubscribe(*id),
                Step::Register(desk, minutes) => {
                    let (issuer, validity) = (&run.world.exchange, (NOW, Utc(NOW.0 + 60 * minutes)));
                    let claim = Claim::sign(
                        "exchange",
                        &[*seed],
                        validity,
                        &[("desk", desk)],
                        origin_key(*seed).public(),
                        issuer,
                    );
                    Operation::Register(Registration { intent: *minutes > 6, proof: claim.into() })
                }
                Step::Policy(text) => {
                    (acts, policy) = (acts + 1, policy + 1);
                    run.world.admin(acts, Action::Policy(text.parse().unwrap()))
                }
                Step::Revoke(who) => {
                    acts += 1;
                    run.world.admin(acts, Action::RevokeClient(client(*who)))
                }
            });
            batches.push((*seed, operations.collect()));
        }
        blocks.push(run.checked(batches));
    }
    blocks
}

fn at(height: u64) -> Utc {
    Utc(NOW.0 + 60 * height as i64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_same_blocks_give_the_same_roots_also_after_restart_and_restore(script in script(), cut in any::<prop::sample::Index>()) {
        let mut run = Broker::with_clients();
        let blocks = play(&mut run, &script);
        let cut = cut.index(blocks.len());
        let (mut one, mut restarted, mut joined) = (run.state.clone(), run.state.clone(), None);
        for (i, batches) in blocks.iter().enumerate() {
            if i == cut {
                let rows: Vec<Row> = elements(&one.store).collect::<Result<_, _>>().unwrap();
                let (genesis, head) = (run.world.genesis.clone(), one.snapshot_head());
                let restored = State::restore(genesis, Memory::default(), head, rows.clone(), &one.root());
                let restored = restored.expect("its own snapshot");
                prop_assert!(elements(&restored.store).map(|it| it.unwrap()).eq(rows));
                prop_assert_eq!(restored.low_water_mark(), LowWaterMark { height: one.height(), sn: one.next_sn() });
                joined = Some(restored);
            }
            let height = one.height() + 1;
            let outbox = one.execute(height, at(height), batches).unwrap();
            restarted = State::open(run.world.genesis.clone(), restarted.store).unwrap();
            for (other, whole) in [(Some(&mut restarted), true), (joined.as_mut(), false)] {
                let Some(other) = other else { continue };
                let same = other.execute(height, at(height), batches).unwrap();
                prop_assert_eq!((same.root(), same.state_root), (outbox.root(), outbox.state_root));
                prop_assert_eq!((&same.notices, &same.intents), (&outbox.notices, &outbox.intents));
                prop_assert!(!whole || other.store == one.store);
            }
            prop_assert_eq!(outbox.state_root, one.root());
            for client in one.interests.clients().into_iter().chain(one.intents.iter().copied()) {
                let record = one.client(&client).unwrap().expect("it registered");
                prop_assert!(record.attributes(one.time()).is_some(), "nobody vouches for it");
            }
        }
    }

    #[test]
    fn the_set_s_hash_is_that_of_the_rows(script in script()) {
        let mut run = Broker::with_clients();
        for batches in play(&mut run, &script) {
            let height = run.state.height() + 1;
            run.state.execute(height, at(height), &batches).unwrap();
        }
        let mut fresh = SetHash::new();
        let (mut rows, mut bytes) = (0, 0);
        for row in elements(&run.state.store) {
            let (key, value) = row.unwrap();
            fresh.insert(&key, &value);
            (rows, bytes) = (rows + 1, bytes + (key.len() + value.len()) as u64);
        }
        prop_assert_eq!(fresh.digest(), run.state.head.set.digest());
        prop_assert_eq!((rows, bytes), (run.state.head.rows, run.state.head.bytes));
        kept::assert_counted(&run.state);
    }

    /// No Creation, No Duplication, Total Order 2 and gap-free numbers of Sec. III-A, as far as they are the state's.
    #[test]
    fn what_subscribers_get_is_what_was_published_once_and_in_one_order(script in script()) {
        let mut run = Broker::with_clients();
        let mut published: BTreeMap<u64, Entry> = BTreeMap::new();
        let mut next_ps: BTreeMap<Header, u64> = BTreeMap::new();
        let mut streams: BTreeMap<(Client, u64), (u64, Vec<u64>)> = BTreeMap::new();
        for batches in play(&mut run, &script) {
            let sent: BTreeSet<(Client, u64, OperationId)> = batches.iter()
                .flat_map(|f| f.batch().operations().map(|(n, id, _)| (f.batch().client(), n, *id)).collect::<Vec<_>>())
                .collect();
            let height = run.state.height() + 1;
            let outbox = run.state.execute(height, at(height), &batches).unwrap();
            for entry in &outbox.publications {
                prop_assert!(sent.contains(&(entry.client, entry.number, entry.id)), "no creation");
                prop_assert!(published.values().all(|e| (e.client, e.number) != (entry.client, entry.number)));
                prop_assert!(published.last_key_value().is_none_or(|(sn, _)| *sn < entry.sn));
                for (header, ps) in &entry.places {
                    let next = next_ps.entry(header.clone()).or_insert(0);
                    prop_assert_eq!(*ps, *next, "gap-free at each topic");
                    *next += 1;
                }
                published.insert(entry.sn, entry.clone());
            }
            for notice in &outbox.notices {
                let (next, delivered) = streams.entry((notice.client, notice.subscription)).or_default();
                prop_assert_eq!(notice.first, *next, "gap-free for each subscription");
                *next += notice.places();
                for run in &notice.runs {
                    if let Run::Deliver { sn } = run {
                        prop_assert!(published.contains_key(sn), "no creation");
                        prop_assert!(delivered.last().is_none_or(|last| last < sn), "no duplication, one order");
                        delivered.push(*sn);
                    }
                }
            }
        }
        // Who comes back gets the same places, with what it may read now.
        for ((who, subscription), (next, _)) in &streams {
            match run.state.resume(who, *subscription, 0, 0, run.state.height()) {
                Ok(resumed) => {
                    prop_assert_eq!(resumed.notice.places(), *next);
                    for run_ in resumed.notice.runs {
                        if let Run::Deliver { sn } = run_ { prop_assert!(run.state.may_read(who, sn).unwrap()); }
                    }
                }
                Err(error) => prop_assert!(matches!(error, ReadError::NoSubscription | ReadError::Denied)),
            }
        }
    }

    /// Agreement 2 and Total Order 2: who has the same subscription, from the same place on, and the same
    /// attributes, gets the same.
    #[test]
    fn equal_subscribers_get_the_same(script in script()) {
        let mut run = Broker::with_clients();
        let twins = [11, 12].map(|seed| (seed, vec![run.world.claim(seed, &[("desk", "fx")]), subscribe("a or b/#")]));
        run.block(twins.to_vec());
        for batches in play(&mut run, &script) {
            let height = run.state.height() + 1;
            let outbox = run.state.execute(height, at(height), &batches).unwrap();
            prop_assert_eq!(got(&outbox, 11), got(&outbox, 12));
        }
    }
}
