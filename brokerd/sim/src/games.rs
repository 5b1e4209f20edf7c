//! E13: the game of Chios Fig. 1, input causality and decoupling, played. The properties of Sec. III-A have their tests by
//! name in `tests`.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use sealcast_broker::operation::{self, Batch, Body, Client as Id, Operation, Publication};
use sealcast_broker::protocol::{Answer, Query, Reply, Request};
use sealcast_brokerd::store::Memory;
use sealcast_brokerd::sync::{Keep, Snapshots};
use sealcast_brokerd::{Blocks, Outlet, Setup, ShareOn, executor};
use sealcast_crypto::tdh2::{Ciphertext, Combined, Combiner, Share};
use sealcast_order::Block;
use sealcast_order_testing::simulated::{Brokers as Orders, Root, play};

use crate::byzantine_client::Deed;
use crate::event::Event;
use crate::fixture::{Desk, EVERYTHING, Fixture, MARK, Plan, Threshold, key};
use crate::scenario::{Fault, run_with};
use crate::simulation::Simulation;

/// All that a listener saw.
type Seen = Rc<RefCell<Vec<Event>>>;

/// A stage on which everything is listened to.
fn listened(seed: u64) -> (Simulation, Seen) {
    let mut simulation = Simulation::new(seed, 1, Threshold::Default, None);
    let seen = Seen::default();
    let listener = seen.clone();
    simulation.plant(Box::new(move |events| listener.borrow_mut().extend(events.iter().cloned())));
    (simulation, seen)
}

/// A message as the adversary may compare it with another: of a sealed body its length alone, and no signature, which goes
/// over all of it.
fn shape(bytes: &[u8]) -> Vec<u8> {
    let Some(batch) = Request::submitted(bytes).and_then(|it| Batch::from_bytes(it).ok()) else {
        return bytes.to_vec();
    };
    let mut shape = [&batch.client().0[..], &batch.first().to_be_bytes()].concat();
    for (number, _, it) in batch.operations() {
        let mut it = it.clone();
        if let Operation::Publish(publication) = &mut it
            && let Body::Sealed(body) = &mut publication.body
        {
            body.fill(0);
        }
        shape.extend(number.to_be_bytes());
        shape.extend(it.to_bytes());
    }
    shape
}

/// What the game shows: what came to the corrupt brokers before the reader was there, the ciphertext, what leaves before,
/// and what the reader opens.
struct Game {
    view: Vec<(usize, Vec<u8>)>,
    ciphertext: (Publication, u64, Id),
    early_shares: usize,
    opened: Vec<Vec<u8>>,
}

/// The publisher seals one of two messages for desk fx, while its only reader is away; then the reader comes back.
fn fig_1(seed: u64, message: &str) -> Game {
    let (mut simulation, seen) = listened(seed);
    let payload = [MARK, message.as_bytes()].concat();
    let told = seen.clone();
    let story = |root: Root| async move {
        let mut orders = Orders::new(root, simulation.settings()).await;
        simulation.link_all(&mut orders, 0).await;
        let publisher = simulation.enter(1, Some("fx"), None).expect("it holds");
        let reader = simulation.enter(3, Some("fx"), Some(EVERYTHING)).expect("it holds");
        // The adversary has corrupted a client, too, whom the rule does not name.
        simulation.enter(5, Some("rates"), Some(EVERYTHING)).expect("it holds");
        for number in 0..4 {
            simulation.start(&mut orders, number).await;
        }
        assert!(simulation.until(&mut orders, 60_000_000, |it| it.are_subscribed(2)).await.expect("it holds"));
        simulation.leave(reader, 3_000_000);
        let client = simulation.clients[publisher].id;
        let plan = Plan { client, topic: "desks/fx", only: Some("fx"), sealed: true, payload };
        simulation.plan(100_000, publisher, plan).expect("it holds");
        simulation.advance(&mut orders, 2_500_000).await.expect("it holds");
        let before = told.borrow().len();
        assert!(simulation.until(&mut orders, 30_000_000, Simulation::is_quiet).await.expect("it holds"));
        simulation.end(true).expect("it holds");
        before
    };
    let (before, _) = play(seed, false, story);
    let seen = seen.borrow();
    let (early, late) = seen.split_at(before);
    let held = |event: &Event| match event {
        Event::Stored { broker, bytes } => Some((*broker, bytes.clone())),
        _ => None,
    };
    let sealed = early.iter().filter_map(held).find_map(|(_, bytes)| {
        let batch = Batch::from_bytes(Request::submitted(&bytes)?).ok()?;
        batch.operations().find_map(|(number, _, it)| match it {
            Operation::Publish(it) if matches!(it.body, Body::Sealed(_)) => {
                Some(((**it).clone(), number, batch.client()))
            }
            _ => None,
        })
    });
    let opened = |event: &Event| match event {
        Event::Delivered { body, .. } => Some(body.clone()),
        _ => None,
    };
    Game {
        view: early.iter().filter_map(held).map(|(broker, bytes)| (broker, shape(&bytes))).collect(),
        ciphertext: sealed.expect("it was published"),
        early_shares: early.iter().filter(|it| matches!(it, Event::Share { .. })).count(),
        opened: late.iter().filter_map(opened).collect(),
    }
}

#[test]
fn rule_e13_fig_1_brokers_see_the_same_of_two_plaintexts_until_a_reader_asks() {
    for seed in 0..3 {
        let games = ["buy a hundred", "sell it again"].map(|message| fig_1(seed, message));
        // All brokers' views together, of which the adversary has f.
        assert_eq!(games[0].view, games[1].view, "seed {seed}");
        assert_ne!(games[0].ciphertext.0.body, games[1].ciphertext.0.body, "two messages were sealed");
        for (game, message) in games.iter().zip(["buy a hundred", "sell it again"]) {
            assert_eq!(game.early_shares, 0, "seed {seed}: a share left before anybody asked who may");
            assert_eq!(game.opened, [[MARK, message.as_bytes()].concat()], "seed {seed}");
        }
    }
}

#[test]
fn rule_e13_fig_1_f_brokers_open_nothing_with_what_they_hold() {
    let game = fig_1(7, "not for them");
    let (fixture, shares) = Fixture::new(1, Threshold::Paper, 7);
    let (_, of_default) = Fixture::new(1, Threshold::Default, 7);
    assert_eq!((shares.len(), of_default.len(), fixture.threshold), (4, 4, 2));
    let (fixture, shares) = Fixture::new(1, Threshold::Default, 7);
    let (publication, number, client) = &game.ciphertext;
    let Body::Sealed(bytes) = &publication.body else { panic!("it is sealed") };
    let label = publication.label(client, *number);
    let bind = || fixture.key.bind(Ciphertext::decode(bytes).expect("a ciphertext"), &label);
    let checked = fixture.key.check(bind()).expect("it is well-formed");
    let own: Vec<Share<_>> = shares.iter().map(|it| it.share(&checked).expect("it is theirs")).collect();
    let mut combiner = Combiner::new(fixture.key.clone());
    for corrupt in 0..4 {
        assert!(combiner.combine(&bind(), &own[corrupt..=corrupt]).is_err(), "one share is fewer than three");
        // It makes up what is missing: its own share under the others' indices.
        let claimed = |index: usize| {
            let mut share = own[corrupt].encode();
            let honest = own[index].encode();
            let length = honest.len() - share_point(&honest).len();
            share[..length].copy_from_slice(&honest[..length]);
            Share::decode(&share).expect("a share")
        };
        let others = (0..4).filter(|it| *it != corrupt).take(2).map(claimed);
        let forged: Vec<Share<_>> = std::iter::once(own[corrupt]).chain(others).collect();
        assert!(
            !matches!(combiner.combine(&bind(), &forged), Ok(Combined::Opened(_))),
            "broker {corrupt} alone opened"
        );
    }
    assert!(matches!(combiner.combine(&bind(), &own[..3]), Ok(Combined::Opened(_))), "three of them do");
}

/// The element at the end of a share.
fn share_point(encoded: &[u8]) -> &[u8] {
    &encoded[encoded.len() - 32..]
}

#[test]
fn rule_e13_input_causality_nothing_derived_from_a_pending_ciphertext_is_valid() {
    let (fixture, _) = Fixture::new(1, Threshold::Default, 5);
    let game = fig_1(5, "pending");
    let (publication, number, client) = &game.ciphertext;
    let Body::Sealed(bytes) = &publication.body else { panic!("it is sealed") };
    let valid = |bytes: &[u8], publication: &Publication, client: &Id, number: u64| {
        let Ok(ciphertext) = Ciphertext::decode(bytes) else { return false };
        fixture.key.check(fixture.key.bind(ciphertext, &publication.label(client, number))).is_ok()
    };
    assert!(valid(bytes, publication, client, *number));
    for place in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[place] ^= 1 << (place % 8);
        assert!(!valid(&changed, publication, client, *number), "byte {place} can be changed");
    }
    // Whole, but as somebody else's, under another number, for other readers or another topic.
    let other = Id(key(90).public_bytes());
    assert!(!valid(bytes, publication, &other, *number) && !valid(bytes, publication, client, number + 1));
    let for_rates = Publication { access: Some("exchange:desk = rates".parse().unwrap()), ..publication.clone() };
    let mut elsewhere = publication.clone();
    elsewhere.headers[0].topic = "open".into();
    assert!(!valid(bytes, &for_rates, client, *number) && !valid(bytes, &elsewhere, client, *number));
}

#[test]
fn rule_e13_input_causality_who_overhears_what_is_pending_gets_nothing_ordered_of_it() {
    for deed in [Deed::Replayer, Deed::MalformedCiphertext] {
        let byzantine_client = Id(key(90).public_bytes());
        let ordered = Rc::new(RefCell::new(0));
        let count = ordered.clone();
        let listener = move |events: &mut Vec<Event>| {
            let of_byzantine_client =
                |it: &&Event| matches!(it, Event::Delivered { publisher, .. } if *publisher == byzantine_client);
            *count.borrow_mut() += events.iter().filter(of_byzantine_client).count();
        };
        let report = run_with(Fault::Deed(deed), 4, 1, Threshold::Default, Some(Box::new(listener)));
        assert_eq!((report.violation, *ordered.borrow()), (None, 0), "{deed:?}");
    }
}

/// What leaves a broker for one client.
#[derive(Default)]
struct RecordingOutlet(Mutex<Vec<(Id, Reply)>>);

impl Outlet for RecordingOutlet {
    fn is_here(&self, _: &Id) -> bool {
        true
    }

    fn send(&self, client: &Id, reply: Reply) {
        self.0.lock().expect("no panic").push((*client, reply));
    }

    fn dkg(&self, _: u64, _: u16, _: &[u8]) {}

    fn executed(&self, _: u64) {}
}

impl Blocks for RecordingOutlet {
    fn batch(&self, _: u64, _: u32) -> Option<bytes::Bytes> {
        None
    }
}

/// What a publisher is told by one broker of its publications, when these clients at these desks subscribe to these topics.
fn publishers_view(readers: [(u8, Desk, &str); 2]) -> Vec<Vec<u8>> {
    let (fixture, _) = Fixture::new(1, Threshold::Default, 1);
    let outlet = Arc::new(RecordingOutlet::default());
    let setup = Setup {
        genesis: fixture.genesis.clone(),
        index: 0,
        key: Arc::new(crate::fixture::key_of(fixture.seeds[0])),
        folder: std::path::PathBuf::new(),
        outlet: outlet.clone(),
        blocks: outlet.clone(),
        share_on: ShareOn::Read,
        threads: 0,
        keep: Keep::Everything,
        snapshots: Snapshots::in_memory(),
    };
    let broker = executor::Stepped::start(setup, Memory::default(), Default::default).expect("it starts");
    let publisher = Id(key(1).public_bytes());
    let register = |seed, desk| Operation::Register(fixture.registration(seed, desk));
    let mut blocks = vec![vec![(1, 0, vec![register(1, Some("fx"))])]];
    for (seed, desk, topic) in readers {
        let subscribe = Operation::Subscribe(topic.parse().expect("an interest"));
        blocks[0].push((seed, 0, vec![register(seed, desk), subscribe]));
    }
    for (number, (topic, only)) in (1..).zip([("desks/fx", Some("fx")), ("open", None), ("desks/rates", Some("rates"))])
    {
        let payload = format!("publication {number}").into_bytes();
        let plan = Plan { client: publisher, topic, only, sealed: false, payload };
        blocks.push(vec![(1, number, vec![Operation::Publish(Box::new(plan.publication(0)))])]);
    }
    for (height, batches) in (1..).zip(blocks) {
        let signed: Vec<Batch> = batches
            .into_iter()
            .map(|(seed, first, all)| Batch::sign(&fixture.cluster, &key(seed), first, all))
            .collect();
        let batches = signed.iter().map(|it| sealcast_order::Batch::new(it.to_bytes())).collect();
        let block = Arc::new(Block { parent: [0; 32], height, time: height * 1_000_000, batches });
        let checked = operation::check(&fixture.cluster, signed, |sealed| vec![true; sealed.len()]);
        let checked = checked.into_iter().map(|it| it.expect("a good batch")).collect();
        broker.executor().execute(block, Box::new(move || Some(checked)), Box::new(|| ()));
        assert_eq!(broker.execute(), Ok(Some(height)));
    }
    let mut view: Vec<Vec<u8>> = Vec::new();
    let sent = std::mem::take(&mut *outlet.0.lock().expect("no panic"));
    view.extend(sent.into_iter().filter(|(client, _)| *client == publisher).map(|(_, reply)| reply.to_bytes()));
    view.push(Reply::Welcome(broker.executor().welcome(&publisher)).to_bytes());
    for number in 0..4 {
        let queries = [Query::Result { number }, Query::Update { height: number + 1 }, Query::Status];
        for query in queries {
            let mut answer = broker.executor().answer(&publisher, query);
            // The state's root, as hashes in receipts, stands for everything: who knows all keys can test a guess by it.
            if let Answer::Status(it) = &mut answer {
                it.state_root = [0; 32];
            }
            view.push(Reply::Answer { id: number, answer }.to_bytes());
        }
        // A receipt bears hashes over everything; what it shows is the publisher's own.
        if let Answer::Receipt(it) = broker.executor().answer(&publisher, Query::Receipt { height: number + 1, number })
        {
            view.push(format!("{:?}", it.fact).into_bytes());
        }
    }
    view
}

#[test]
fn rule_e13_decoupling_a_publisher_sees_the_same_whoever_subscribes() {
    let view = publishers_view([(3, Some("fx"), "desks/fx"), (5, Some("rates"), "#")]);
    assert!(view.len() > 12, "it sees something: {}", view.len());
    let swapped = [
        [(5, Some("fx"), "desks/fx"), (3, Some("rates"), "#")],
        [(3, Some("rates"), "#"), (5, Some("fx"), "desks/fx")],
        [(3, Some("fx"), "nothing"), (5, None, "else")],
    ];
    for readers in swapped {
        assert_eq!(publishers_view(readers), view, "{readers:?}");
    }
}
