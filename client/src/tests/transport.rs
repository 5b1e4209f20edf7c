//! A transport and its handle among four brokers whose messages the test writes, and keys that open what the test says.

use std::collections::VecDeque;

use sealcast_broker::operation::{Body, Claim, OperationId};
use sealcast_broker::protocol::{ActiveSubscription as Subscribed, Contents, Update, Welcome};
use sealcast_broker::state::{Entry, Notice as Places, Run};
use sealcast_crypto::ed25519::Key;
use sealcast_crypto::secret::Secret;
use sealcast_delivery::{Batch, Delivery, Input, Output as Out};
use sealcast_wire::Address;

use super::world::publication;
use super::*;

/// The subscription to everything that the brokers know of.
const ACTIVE: u64 = 7;

struct Fixture {
    transport: Box<dyn Delivery>,
    handle: Handle,
    cluster: Cluster,
    height: u64,
    sn: u64,
    /// What the transport wants opened, and what it delivers to the group.
    opens: VecDeque<u64>,
    delivered: Vec<u64>,
    /// Patterns that are active.
    active: usize,
    /// Messages to brokers.
    requests: usize,
}

fn now() -> Now {
    Now { monotonic: Monotonic(1_000_000), utc: Some(Utc(0)) }
}

fn key(seed: u8) -> OriginKey {
    OriginKey::from_seed(&Secret::from_bytes([seed; 32]))
}

fn config() -> Config {
    let genesis = Genesis {
        name: "test".into(),
        brokers: (1..5).map(|seed| key(seed).public_bytes()).collect(),
        quorum: 1,
        administrators: vec![Key::new(&key(1).public_bytes()).expect("a key")],
        issuers: BTreeMap::new(),
    };
    let (issuer, holder) = ("exchange".to_owned(), key(9).public().clone());
    let (not_before, not_after, attributes) = (Utc(0), Utc(1000), Vec::new());
    let claim = Claim { issuer, serial: vec![1], not_before, not_after, attributes, holder, signature: [0; 64] };
    let registrations = vec![Registration { intent: false, proof: claim.into() }];
    Config { genesis, key: Arc::new(key(9)), registrations, batch_operations: 8 }
}

fn everything() -> Interest {
    "#".parse().expect("an interest")
}

impl Fixture {
    fn new(payload_kind: PayloadKind, record: Option<&[u8]>) -> Fixture {
        let config = config();
        let cluster = config.genesis.cluster();
        let (transport, handle) =
            Transport::open(now(), config, record, payload_kind, None, true).expect("the record is good");
        let (opens, delivered) = (VecDeque::new(), Vec::new());
        Fixture { transport, handle, cluster, height: 1, sn: 0, opens, delivered, active: 0, requests: 0 }
    }

    fn sealed() -> Fixture {
        Fixture::new(PayloadKind::Messages { sealed: true }, None)
    }

    fn tell(&mut self, input: Input<'_>) {
        self.transport.handle(now(), input);
        self.poll();
    }

    fn poll(&mut self) {
        let mut batch = Batch::default();
        while let Some(output) = self.transport.poll(&mut batch) {
            match output {
                Out::Open { index, .. } => self.opens.push_back(index),
                Out::Deliver(it) => self.delivered.push(it.index),
                Out::Subscribed(_, Ok(())) => self.active += 1,
                Out::Transmit(_) => self.requests += 1,
                _ => {}
            }
            batch.clear();
        }
    }

    fn say(&mut self, broker: u32, reply: &Reply) {
        self.tell(Input::Message { peer: Address::Node(broker), bytes: &reply.to_bytes() });
    }

    /// All brokers welcome the client, which has one subscription.
    fn welcome(&mut self) {
        for broker in 0..4 {
            self.tell(Input::Connected(Address::Node(broker)));
            let subscription = Subscribed { id: ACTIVE, interest: everything(), since: 0, next: self.sn };
            let welcome = Welcome {
                broker: u16::try_from(broker).expect("it is small"),
                height: self.height,
                at: Utc(0),
                sn: self.sn,
                policy: 0,
                epoch: 0,
                registered: true,
                next: 0,
                subscriptions: vec![subscription],
                key: None,
            };
            self.say(broker, &Reply::Welcome(welcome));
        }
    }

    fn subscribe(&mut self) -> u64 {
        let token = self.handle.subscribe(now(), &everything()).expect("there is room").expect("nobody reads it");
        self.poll();
        match self.handle.done(token) {
            Some(Done::Subscribed(subscription)) => subscription,
            other => panic!("it is known to the brokers: {other:?}"),
        }
    }

    /// The next publication, which is sealed; what it is sealed to be is its first byte.
    fn publication(&mut self, bytes: usize) -> (Entry, Publication) {
        let sn = self.sn;
        self.sn += 1;
        let body = Body::Sealed(vec![u8::try_from(sn % 256).expect("a byte"); bytes]);
        let publication = Publication { body, ..publication(&["t"], b"") };
        let entry = Entry {
            sn,
            height: self.height,
            at: Utc(0),
            batch: 0,
            client: Client([9; 32]),
            number: sn,
            id: OperationId::of(&Operation::Publish(Box::new(publication.clone())).to_bytes()),
            policy: 0,
            epoch: 0,
            places: vec![(publication.headers[0].clone(), sn)],
            access: None,
        };
        (entry, publication)
    }

    /// A block of so many sealed publications, of which f + 1 brokers tell.
    fn block(&mut self, count: usize, bytes: usize) {
        self.height += 1;
        let (first, client) = (self.sn, self.handle.client());
        let (mut publications, mut bodies, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let (entry, publication) = self.publication(bytes);
            bodies.push((entry.sn, Operation::Publish(Box::new(publication)).to_bytes()));
            runs.push(Run::Deliver { sn: entry.sn });
            publications.push(entry);
        }
        let notices = vec![Places { client, subscription: ACTIVE, first, runs }];
        let (results, advertisements, at) = (Vec::new(), Vec::new(), Utc(0));
        let mut contents = Contents { at, results, notices, publications, advertisements, bodies: Vec::new() };
        let digest = contents.digest(&self.cluster, &client, self.height);
        contents.bodies = bodies;
        let height = self.height;
        self.say(0, &Reply::Update(Update { height, digest, contents: Some(contents) }));
        self.say(1, &Reply::Update(Update { height, digest, contents: None }));
    }

    /// The keys open the next message that the transport wants opened.
    fn open_next(&mut self) -> Option<u64> {
        let sn = self.opens.pop_front()?;
        self.tell(Input::Opened(sn, Some(&[sn.to_be_bytes().to_vec()])));
        Some(sn)
    }

    /// What a reader can take now, by sn; `None` is ⊥.
    fn read(&mut self, subscription: u64) -> Vec<Option<u64>> {
        let mut read = Vec::new();
        while let Some(item) = self.handle.next(now(), subscription) {
            match item {
                Item::Publication { entry, content: Content::Bodies(bodies), .. } => {
                    assert_eq!(bodies, [entry.sn.to_be_bytes()], "it got its own bodies");
                    read.push(Some(entry.sn));
                }
                Item::Empty { count, .. } => read.extend((0..count).map(|_| None)),
                other => panic!("nothing is lost: {other:?}"),
            }
            self.poll();
        }
        read
    }
}

#[test]
fn sealed_publications_come_to_their_reader_in_order_whenever_they_open() {
    let mut fixture = Fixture::sealed();
    fixture.welcome();
    let subscription = fixture.subscribe();
    fixture.block(3, 10);
    assert_eq!((&fixture.opens, &fixture.delivered), (&VecDeque::from([0, 1, 2]), &vec![]));
    for (sn, bodies) in [(2, true), (1, false)] {
        let opened = [u64::to_be_bytes(sn).to_vec()];
        fixture.tell(Input::Opened(sn, Some(&opened[..]).filter(|_| bodies)));
        assert_eq!(fixture.read(subscription), [], "the first is still sealed");
    }
    let changes = fixture.handle.changes();
    fixture.tell(Input::Opened(0, Some(&[0_u64.to_be_bytes().to_vec()])));
    assert!(fixture.handle.changes() > changes && fixture.handle.ready(subscription) == 3);
    assert_eq!(fixture.read(subscription), [Some(0), None, Some(2)]);
}

#[test]
fn rule_g7_a_sealed_backlog_larger_than_may_wait_is_opened_in_order() {
    let mut fixture = Fixture::sealed();
    fixture.welcome();
    let subscription = fixture.subscribe();
    let big = (1 << 20) - 1000;
    let blocks = limits::CLIENT_WAITING_BYTES_MAX / big / 4 + 3;
    (0..blocks).for_each(|_| fixture.block(4, big));
    let came = fixture.opens.len();
    assert!(came * big <= limits::CLIENT_WAITING_BYTES_MAX + 4 * big, "{came} are more than may wait");
    let mut read = Vec::new();
    while fixture.open_next().is_some() {
        read.extend(fixture.read(subscription));
    }
    // Blocks whose bodies had no room are asked for; here they had.
    assert_eq!(read, (0..fixture.sn).map(Some).collect::<Vec<_>>());
}

#[test]
fn rule_g7_what_was_handed_over_counts_as_waiting_until_its_reader_took_it() {
    let mut fixture = Fixture::new(PayloadKind::Messages { sealed: false }, None);
    fixture.welcome();
    let subscription = fixture.subscribe();
    let mut handed = VecDeque::new();
    // ⊥ for who has no keys; each run is an item.
    for _ in 0..limits::SUBSCRIBER_MESSAGES + 2 {
        fixture.block(1, 1);
        handed.extend(fixture.handle.hand_over(subscription));
    }
    assert_eq!((handed.len(), fixture.handle.ready(subscription)), (limits::SUBSCRIBER_MESSAGES, 0));
    assert!(fixture.handle.is_behind());
    let mut took = Took::default();
    handed.drain(..2).for_each(|item| took.add(&item));
    assert_eq!((took.items, took.end), (2, (2, None)));
    fixture.handle.took(now(), subscription, &took);
    assert_eq!(fixture.handle.confirmed_subscriptions()[0].next, 2, "a restarted program goes on there");
    fixture.poll();
    assert_eq!(fixture.handle.hand_over(subscription).len(), 2, "there is room again");
}

#[test]
fn nothing_is_to_be_opened_while_the_keys_have_no_room() {
    let mut fixture = Fixture::sealed();
    fixture.welcome();
    let subscription = fixture.subscribe();
    fixture.tell(Input::Pause);
    fixture.block(3, 10);
    assert!(fixture.opens.is_empty());
    fixture.tell(Input::Resume);
    assert_eq!(fixture.opens, [0, 1, 2]);
    while fixture.open_next().is_some() {}
    assert_eq!(fixture.handle.ready(subscription), 3);
}

#[test]
fn a_subscribe_that_timed_out_is_lined_up_for_nobody_and_taken_up_by_the_next() {
    let mut fixture = Fixture::sealed();
    let token = fixture.handle.subscribe(now(), &everything()).expect("there is room").expect("nobody reads it");
    fixture.handle.forget(now(), token);
    assert_eq!(fixture.handle.subscribe(now(), &everything()), Ok(Some(token)), "who asks again waits for the same");
    fixture.handle.forget(now(), token);
    fixture.welcome();
    assert_eq!(fixture.handle.done(token), None);
    fixture.block(2, 10);
    assert!(fixture.opens.is_empty(), "nobody reads it");
    let subscription = fixture.subscribe();
    assert_eq!(subscription, ACTIVE);
}

#[test]
fn one_subscription_has_one_reader_through_a_handle() {
    let mut fixture = Fixture::sealed();
    fixture.welcome();
    let subscription = fixture.subscribe();
    assert_eq!(fixture.handle.subscribe(now(), &everything()), Ok(None));
    fixture.handle.leave(now(), subscription);
    fixture.subscribe();
}

#[test]
fn a_pattern_and_a_reader_of_the_same_both_get_what_is_published() {
    let mut fixture = Fixture::sealed();
    fixture.welcome();
    let pattern = "#".parse().expect("a pattern");
    fixture.tell(Input::Subscribe(&pattern));
    assert_eq!(fixture.active, 1);
    let subscription = fixture.subscribe();
    fixture.block(2, 10);
    assert_eq!((&fixture.opens, &fixture.delivered), (&VecDeque::from([0, 1]), &vec![0, 1]));
    // The reader goes, and the pattern's messages come on.
    fixture.handle.leave(now(), subscription);
    fixture.block(1, 10);
    assert_eq!((fixture.opens.len(), fixture.delivered.len()), (2, 3));
    // And the other way round.
    let subscription = fixture.subscribe();
    fixture.tell(Input::Unsubscribe(&pattern));
    fixture.block(1, 10);
    assert_eq!(fixture.delivered.len(), 3);
    fixture.open_next();
    assert_eq!(fixture.handle.ready(subscription), 0, "the last one is still sealed");
}

#[test]
fn rule_g6_a_reader_goes_on_behind_what_was_taken_and_a_pattern_begins_now() {
    let mut fixture = Fixture::new(PayloadKind::Messages { sealed: false }, None);
    fixture.welcome();
    let subscription = fixture.subscribe();
    fixture.block(3, 10);
    // Without keys nothing sealed is opened.
    assert!(fixture.handle.next(now(), subscription).is_some_and(|it| it.end() == (1, None)));
    let record = fixture.handle.record();
    let next = |fixture: &Fixture| {
        let all = fixture.handle.confirmed_subscriptions();
        all.iter().map(|it| (it.subscription, it.next, it.places)).collect::<Vec<_>>()
    };
    let mut again = Fixture::new(PayloadKind::Messages { sealed: false }, Some(&record));
    (again.height, again.sn) = (fixture.height, fixture.sn);
    again.welcome();
    again.subscribe();
    assert_eq!(next(&again), [(ACTIVE, 1, 3)], "it goes on behind what was taken");
    let mut again = Fixture::new(PayloadKind::Messages { sealed: false }, Some(&record));
    (again.height, again.sn) = (fixture.height, fixture.sn);
    again.tell(Input::Subscribe(&"#".parse().expect("a pattern")));
    again.welcome();
    assert_eq!(next(&again), [(ACTIVE, 3, 3)], "it begins now");
}

#[test]
fn rule_g7_of_a_read_that_timed_out_nothing_is_kept() {
    let mut fixture = Fixture::sealed();
    fixture.welcome();
    let (entry, publication) = fixture.publication(10);
    fixture.transport.handle(now(), Input::Pause);
    for _ in 0..2 {
        fixture.handle.open(now(), &entry, &publication).expect("there is room");
    }
    fixture.handle.end_read(entry.sn);
    fixture.handle.end_read(entry.sn);
    fixture.tell(Input::Resume);
    assert!(fixture.opens.is_empty(), "nobody waits for it");
    // Who asks again begins anew, and as many as ask get it.
    for _ in 0..2 {
        fixture.handle.open(now(), &entry, &publication).expect("there is room");
    }
    fixture.poll();
    assert_eq!(fixture.handle.opened(entry.sn), None);
    assert_eq!(fixture.open_next(), Some(entry.sn));
    for _ in 0..2 {
        assert_eq!(fixture.handle.opened(entry.sn), Some(Some(vec![entry.sn.to_be_bytes().to_vec()])));
    }
    assert_eq!(fixture.handle.opened(entry.sn), None, "nothing is kept");
}

#[test]
fn rule_g7_a_reader_that_does_not_keep_up_holds_back_no_groups_messages() {
    let mut fixture = Fixture::new(PayloadKind::Group { name: "g".into(), resumes: false }, None);
    fixture.welcome();
    let subscription = fixture.subscribe();
    let before = fixture.requests;
    // ⊥, since a group's keys open no publications; each run is an item.
    for _ in 0..limits::SUBSCRIBER_MESSAGES + 2 {
        fixture.block(1, 1);
    }
    assert_eq!(fixture.handle.ready(subscription), limits::SUBSCRIBER_MESSAGES, "no more is asked for");
    assert!(fixture.requests >= before);
    // What it has no room for it catches up with, and asks brokers for.
    fixture.handle.next(now(), subscription).expect("there is one");
    fixture.poll();
    assert!(fixture.requests > before, "there is room again");
}
