//! One client and four brokers whose every word the test writes.

use std::time::Duration;

use sealcast_broker::operation::Batch;
use sealcast_broker::protocol::{ActiveSubscription as Confirmed, Answer, Status, Update, Welcome, Why};
use sealcast_broker::receipt::{Fact, Receipt, Testimony};
use sealcast_broker::state::{Code, Notice as Places, OperationResult as Came, Part, Proof, Results, Run};
use sealcast_crypto::ed25519::Key;
use sealcast_crypto::merkle::root_of;
use sealcast_crypto::secret::Secret;
use sealcast_wire::Utc;

use super::*;
use sealcast_delivery::{self as delivery, Input};
use sealcast_wire::Address;

struct Statements {
    quorum: Quorum,
    at: Monotonic,
    /// Queries that were not answered yet: whom, by which name.
    asked: Vec<(u16, u64, Query)>,
    misbehaviours: Vec<(u16, Misbehaviour)>,
    /// Who said where it stands.
    stands: Vec<u16>,
    receipts: Vec<(Token, Option<Box<Receipt>>)>,
    /// Whether it was told that nobody vouches for it.
    not_vouched: bool,
}

fn key(seed: u8) -> OriginKey {
    OriginKey::from_seed(&Secret::from_bytes([seed; 32]))
}

fn config() -> Config {
    let genesis = Genesis {
        name: "test".into(),
        brokers: (1..5).map(|seed| key(seed).public_bytes()).collect(),
        quorum: 1,
        administrators: vec![Key::new(&key(5).public_bytes()).expect("a key")],
        issuers: BTreeMap::new(),
    };
    Config { genesis, key: Arc::new(key(6)), registrations: Vec::new(), batch_operations: 8 }
}

/// After so many blocks, with so many places for the client's one subscription.
fn welcome(broker: u16, height: u64, next: u64) -> Vec<u8> {
    let subscriptions = vec![Confirmed { id: 7, interest: "a".parse().expect("an interest"), since: 0, next }];
    let (at, sn, policy, epoch, registered, next) = (Utc(0), 3, 0, 0, true, 1);
    let it = Welcome { broker, height, at, sn, policy, epoch, registered, next, subscriptions, key: None };
    Reply::Welcome(it).to_bytes()
}

impl Statements {
    fn new() -> Statements {
        Statements {
            quorum: Quorum::new(config()),
            at: Monotonic(1_000_000),
            asked: Vec::new(),
            misbehaviours: Vec::new(),
            stands: Vec::new(),
            receipts: Vec::new(),
            not_vouched: false,
        }
    }

    fn now(&self) -> Now {
        Now { monotonic: self.at, utc: Some(Utc(0)) }
    }

    fn drain(&mut self) {
        while let Some(output) = self.quorum.poll(self.now()) {
            match output {
                Output::Send { broker, request } => {
                    if let Ok(Request::Query { id, query }) = Request::from_bytes(&request) {
                        self.asked.push((broker, id, query));
                    }
                }
                Output::Notice(Notice::Misbehaved { broker, how }) => self.misbehaviours.push((broker, how)),
                Output::Notice(Notice::NotVouched) => self.not_vouched = true,
                Output::Status(_, said) => self.stands.extend(said.into_keys()),
                Output::Receipt(token, receipt) => self.receipts.push((token, receipt)),
                _ => {}
            }
        }
    }

    fn say(&mut self, broker: u16, reply: &Reply) {
        self.quorum.handle(self.now(), broker, &reply.to_bytes());
        self.drain();
    }

    /// A broker's channel opens.
    fn welcome(&mut self, broker: u16, height: u64, next: u64) {
        self.quorum.connected(self.now(), broker);
        self.quorum.handle(self.now(), broker, &welcome(broker, height, next));
        self.drain();
    }

    /// Lets time pass while brokers answer so.
    fn run(&mut self, time: Duration, mut answer: impl FnMut(u16, &Query) -> Option<Answer>) {
        let end = self.at + time;
        loop {
            for (broker, id, query) in std::mem::take(&mut self.asked) {
                if let Some(answer) = answer(broker, &query) {
                    self.say(broker, &Reply::Answer { id, answer });
                }
            }
            let Some(next) = self.quorum.timeout().filter(|at| *at <= end) else { break };
            self.at = self.at.max(next);
            self.quorum.handle_timeout(self.now());
            self.drain();
        }
        self.at = end;
    }
}

#[test]
fn rule_e2_a_revocation_returns_only_after_2f_plus_1_signed_answers() {
    let genesis = config().genesis;
    let mut keys: Vec<OriginKey> = (1..5).map(key).collect();
    keys.sort_by_key(OriginKey::public_bytes);
    let word = |broker: u16, height: u64, first: u64, state_root: [u8; 32]| {
        let outcomes = vec![Came { code: Code::Done, detail: Vec::new() }];
        let results = Results { client: Client(key(6).public_bytes()), first, batch: [0; 32], outcomes };
        let list = root_of(&results.leaf(), 0, 1, &[]).expect("a list of one");
        let roots = [[0; 32], list, [0; 32], [0; 32]];
        let proof = Proof { part: Part::Result, index: 0, count: 1, path: Vec::new(), roots };
        Testimony { broker, height, state_root, fact: Fact::Executed(results), proof, signature: [0; 64] }
    };
    let sign = |by: u16, it: Testimony| {
        let statement = it.statement(&genesis.cluster()).expect("the proof fits");
        Testimony { signature: keys[usize::from(by)].sign(&statement), ..it }
    };
    let good = |broker: u16| sign(broker, word(broker, 4, 0, [7; 32]));
    let says =
        |it: Testimony, query: &Query| matches!(query, Query::Receipt { .. }).then(|| Answer::Receipt(Box::new(it)));
    let lies = [
        ("nothing", None),
        ("without a signature", Some(word(2, 4, 0, [7; 32]))),
        ("another's signature", Some(sign(3, word(2, 4, 0, [7; 32])))),
        ("another's word", Some(good(1))),
        ("of another block", Some(sign(2, word(2, 5, 0, [7; 32])))),
        ("of another operation", Some(sign(2, word(2, 4, 1, [7; 32])))),
        ("of another state", Some(sign(2, word(2, 4, 0, [9; 32])))),
    ];
    for (what, lie) in lies {
        let mut words = Statements::new();
        (0..4).for_each(|broker| words.welcome(broker, 10, 3));
        let token = words.quorum.bound(words.now(), 4, 0).expect("there is room");
        words.drain();
        // Asked again, the 2f say it again.
        words.run(Duration::from_secs(1), |broker, query| match broker {
            0 | 1 => says(good(broker), query),
            2 => says(lie.clone()?, query),
            _ => None,
        });
        assert!(words.receipts.is_empty(), "{what}");
        words.run(Duration::from_secs(2), |broker, query| match broker {
            3 => says(good(3), query),
            _ => None,
        });
        let [(of, Some(receipt))] = &words.receipts[..] else { panic!("{what}: 2f + 1 have signed it") };
        assert_eq!((*of, receipt.verify(&genesis)), (token, Ok(())), "{what}");
        assert!(receipt.signatures.keys().copied().eq([0, 1, 3]), "{what}");
    }
}

#[test]
fn rule_e4_who_alone_named_a_block_that_others_no_longer_keep_is_not_accused() {
    let mut words = Statements::new();
    (0..4).for_each(|broker| words.welcome(broker, 10, 3));
    words.say(0, &Reply::Update(Update { height: 12, digest: [1; 32], contents: None }));
    // The channels break before others say so; when they open, it is long past.
    (0..4).for_each(|broker| words.quorum.disconnected(words.now(), broker));
    (0..4).for_each(|broker| words.welcome(broker, 500, 3));
    words.run(Duration::from_secs(20), |_, query| match query {
        Query::Update { .. } => Some(Answer::No(Why::Pruned)),
        _ => None,
    });
    assert_eq!(words.misbehaviours, []);
    assert_eq!(words.quorum.updates.head(), None, "it is given up");
}

#[test]
fn rule_e4_a_believed_block_whose_contents_nobody_brings_accuses_nobody() {
    let mut words = Statements::new();
    (0..4).for_each(|broker| words.welcome(broker, 10, 3));
    for broker in 0..3 {
        words.say(broker, &Reply::Update(Update { height: 12, digest: [1; 32], contents: None }));
    }
    words.run(Duration::from_secs(60), |_, query| match query {
        Query::Update { .. } => Some(Answer::No(Why::Pruned)),
        _ => None,
    });
    assert_eq!(words.misbehaviours, []);
    assert_eq!(words.quorum.updates.head(), None, "it is given up");
}

#[test]
fn rule_e4_who_names_a_block_that_was_none_is_still_accused() {
    let mut words = Statements::new();
    (0..4).for_each(|broker| words.welcome(broker, 10, 3));
    words.say(0, &Reply::Update(Update { height: 12, digest: [1; 32], contents: None }));
    for broker in 1..3 {
        words.say(broker, &Reply::Update(Update { height: 13, digest: [2; 32], contents: None }));
    }
    assert_eq!(words.misbehaviours, [(0, Misbehaviour::Differed)]);
}

#[test]
fn rule_g7_numbers_at_the_end_of_all_numbers_are_malformed_and_harm_nobody() {
    let mut words = Statements::new();
    (0..4).for_each(|broker| words.welcome(broker, 10, 3));
    let token = words.quorum.receipt(words.now(), 4, 0).expect("there is room");
    let subscribed = words.quorum.subscribe(words.now(), "a".parse().expect("an interest"));
    words.drain();
    assert!(subscribed.is_ok() && token != Token(0));
    // It has to catch up.
    (0..4).for_each(|broker| words.welcome(broker, 20, 5));
    let client = *words.quorum.client();
    let outcomes = vec![Came { code: Code::Done, detail: Vec::new() }; 2];
    let fact = Fact::Executed(Results { client, first: u64::MAX, batch: [0; 32], outcomes });
    let proof = Proof { part: Part::Result, index: 0, count: 1, path: Vec::new(), roots: [[0; 32]; 4] };
    words.run(Duration::from_secs(1), |broker, query| match query {
        Query::Receipt { height, .. } if broker == 0 => {
            let (height, fact, proof) = (*height, fact.clone(), proof.clone());
            let it = Testimony { broker, height, state_root: [0; 32], fact, proof, signature: [0; 64] };
            Some(Answer::Receipt(Box::new(it)))
        }
        Query::Resume { subscription, place, .. } if broker == 1 => {
            let runs = vec![Run::Deliver { sn: 1 }, Run::Empty { count: 9 }];
            let notice = Places { client, subscription: *subscription, first: u64::MAX, runs };
            let lost = u64::MAX - *place;
            Some(Answer::Resumed { lost, notice, until: 0, publications: Vec::new() })
        }
        _ => None,
    });
    words.misbehaviours.sort_unstable();
    assert_eq!(words.misbehaviours, [(0, Misbehaviour::Malformed), (1, Misbehaviour::Malformed)]);
}

#[test]
fn what_nobody_reads_any_more_before_it_stands_ends_when_it_does() {
    let now = Now { monotonic: Monotonic(1_000_000), utc: Some(Utc(0)) };
    let payload_kind = PayloadKind::Messages { sealed: false };
    let (mut transport, _) =
        Transport::open(now, config(), None, payload_kind, None, false).expect("there is no record");
    let pattern = "a".parse().expect("a pattern");
    transport.handle(now, Input::Subscribe(&pattern));
    transport.handle(now, Input::Unsubscribe(&pattern));
    for broker in 0..4 {
        let peer = Address::Node(u32::from(broker));
        transport.handle(now, Input::Connected(peer));
        transport.handle(now, Input::Message { peer, bytes: &welcome(broker, 10, 3) });
    }
    let (mut ended, mut batch) = (Vec::new(), delivery::Batch::default());
    while transport.poll(&mut batch).is_some() {
        for request in batch.iter() {
            if let Ok(Request::Submit(batch)) = Request::from_bytes(request) {
                let batch = Batch::from_bytes(&batch).expect("it is a batch");
                ended.extend(batch.operations().filter_map(|(_, _, it)| match it {
                    Operation::Unsubscribe(id) => Some(*id),
                    _ => None,
                }));
            }
        }
        batch.clear();
    }
    assert_eq!(ended, [7]);
}

#[test]
fn a_broker_that_hangs_keeps_nobody_from_hearing_where_the_others_stand() {
    let mut words = Statements::new();
    (0..4).for_each(|broker| words.welcome(broker, 10, 3));
    words.quorum.status(words.now()).expect("there is room");
    words.drain();
    words.run(Duration::from_millis(1900), |broker, query| match query {
        Query::Status if broker != 1 => Some(Answer::Status(Box::new(Status { broker, ..Status::default() }))),
        _ => None,
    });
    assert_eq!(words.stands, [0, 2, 3]);
}

#[test]
fn who_waits_is_told_when_f_plus_1_brokers_say_twice_that_nobody_vouches_any_more() {
    let asked_for = |query: &Query| matches!(query, Query::Range { .. });
    // Who denies it: one liar, then a liar and one that is behind for a moment, then all but a liar.
    let cases: [(&[u16], u32, bool); 3] = [(&[3], u32::MAX, false), (&[2, 3], 1, false), (&[1, 2, 3], u32::MAX, true)];
    for (denying, times, is_notified) in cases {
        let mut words = Statements::new();
        (0..4).for_each(|broker| words.welcome(broker, 10, 3));
        words.quorum.subscribe(words.now(), "a".parse().expect("an interest")).expect("there is room");
        words.drain();
        let mut denials = BTreeMap::new();
        words.run(Duration::from_secs(30), |broker, query| {
            if !asked_for(query) {
                return None;
            }
            let denied = denials.entry(broker).or_insert(0);
            let denies = denying.contains(&broker) && *denied < times;
            *denied += u32::from(denies);
            Some(Answer::No(if denies { Why::Denied } else { Why::Nothing }))
        });
        assert_eq!(words.not_vouched, is_notified, "{denying:?} deny {times} times");
        assert!(!denials.is_empty(), "it is asked again and again");
    }
}

#[test]
fn who_waits_for_nothing_does_not_ask_whether_somebody_vouches() {
    let mut words = Statements::new();
    (0..4).for_each(|broker| words.welcome(broker, 10, 3));
    let mut asked = 0;
    words.run(Duration::from_secs(30), |_, query| {
        asked += usize::from(matches!(query, Query::Range { .. }));
        None
    });
    assert_eq!(asked, 0);
}

#[test]
fn nothing_is_published_at_a_topic_that_only_looks_like_another() {
    let mut words = Statements::new();
    (0..4).for_each(|broker| words.welcome(broker, 10, 3));
    let at = |topic: &str| Publication {
        headers: vec![sealcast_broker::operation::Header { topic: topic.into(), value: None }],
        associated: Vec::new(),
        access: None,
        execute: sealcast_broker::operation::Execute::Nothing,
        policy: 0,
        epoch: 0,
        body: sealcast_broker::operation::Body::Plain(Vec::new()),
    };
    for topic in ["a/+/x", "a/#", "a\n", "a ", "\u{2003}a", "a\u{7}b"] {
        assert_eq!(words.quorum.publish(words.now(), at(topic)), Err(SendError::BadTopic), "{topic:?}");
    }
    assert!(words.quorum.publish(words.now(), at("a b/c")).is_ok());
}
