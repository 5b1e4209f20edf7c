//! A client among four brokers whose messages the test writes: its channels reach nobody, and its driver runs.

use std::collections::BTreeMap;
use std::ops::Range;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sealcast_broker::cluster_file::{Addresses, Suite};
use sealcast_broker::genesis::Genesis;
use sealcast_broker::operation::{Claim, OperationId, sign_encoded};
use sealcast_broker::protocol::{
    ActiveSubscription as Subscribed, Answer as Answered, Contents, Reply, SignedKey, Update, Welcome,
};
use sealcast_broker::state::{Notice as Places, Results, Run};
use sealcast_client::{Misbehaviour, Notice};
use sealcast_crypto::ed25519::Key;
use sealcast_crypto::group::{Parameters, Ristretto255};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_crypto::tdh2::{Ciphertext, KeyShare, PublicKey, deal};
use sealcast_keys::threshold::sealed::{Attachment, What, label};
use sealcast_keys::threshold::{self, Threshold, pin};
use sealcast_keys::{Keys as _, Seal};
use sealcast_wire::{Incarnation, SealedHeader};

use super::*;

type G = Ristretto255;

/// The subscription to everything that the brokers know of.
const ACTIVE: u64 = 7;
/// More than the client asks in a test.
const QUESTIONS: u64 = 8;

struct Fixture {
    client: Brokers,
    cluster: Arc<ClusterFile>,
    brokers: Vec<OriginKey>,
    key: PublicKey<G>,
    holders: Vec<KeyShare<G>>,
    publisher: Threshold<G>,
    height: u64,
    /// Of the newest block.
    at: Utc,
    /// Publications in their order: what the keys need.
    sealed: Vec<sealcast_keys::Sealed>,
}

fn key(seed: u8) -> OriginKey {
    OriginKey::from_seed(&Secret::from_bytes([seed; 32]))
}

impl Fixture {
    /// Four brokers, two of which open what is sealed; the client knows their key from the file, or not yet.
    fn new(knows_key: bool) -> Fixture {
        let mut brokers: Vec<OriginKey> = (1..5).map(key).collect();
        brokers.sort_by_key(OriginKey::public_bytes);
        let keys: Vec<[u8; 32]> = brokers.iter().map(OriginKey::public_bytes).collect();
        let genesis = Genesis {
            name: "test".into(),
            brokers: keys.iter().copied().collect(),
            quorum: 1,
            administrators: vec![Key::new(&keys[0]).expect("a key")],
            issuers: BTreeMap::new(),
        };
        let id = genesis.cluster().0;
        let (public, holders) =
            deal::<G>(Parameters::new(&id, 2, 4), &mut ChaCha20Rng::seed_from_u64(1)).expect("2 of 4");
        let encoded = public.encode();
        let config = threshold::Config::new([9; 32], id, &keys, &encoded, &pin(&id, &encoded));
        let seed = Secret::from_bytes([8; 32]);
        let versions = threshold::RequiredVersions::default();
        let config = config.expect("they fit");
        let publisher = Threshold::new("publisher", Incarnation::default(), config, versions, &seed);
        let vouched = VouchedKey { epoch: 0, key: encoded, signatures: BTreeMap::new() };
        let nowhere = || Addresses { gateway: "127.0.0.1:1".into(), order: "127.0.0.1:1".into() };
        let cluster = Arc::new(ClusterFile {
            genesis,
            addresses: (0..4).map(|_| nowhere()).collect(),
            threshold: 2,
            suite: Suite::Ristretto255,
            key: knows_key.then_some(vouched),
            endorsement: None,
        });
        let client = Brokers::open(Opening {
            cluster: cluster.clone(),
            key: ClientKey::own(key(7)),
            registrations: vec![Registration { intent: false, proof: claim().into() }],
            keys: Scheme::Threshold,
            timeout: Duration::from_millis(200),
            batch_operations: BATCH_OPERATIONS,
            accuse: true,
        });
        let client = client.expect("it opens");
        let (height, at, sealed) = (1, Utc(0), Vec::new());
        Fixture { client, cluster, brokers, key: public, holders, publisher, height, at, sealed }
    }

    fn say(&self, broker: u16, reply: &Reply) {
        self.client.driven.hear(broker, Some(&reply.to_bytes()));
    }

    /// All brokers welcome the client, which has one subscription.
    fn welcome(&self, key: bool) {
        for broker in 0..4 {
            self.client.driven.hear(broker, None);
            let subscribed = Subscribed { id: ACTIVE, interest: everything(), since: 0, next: self.next() };
            self.say(
                broker,
                &Reply::Welcome(Welcome {
                    broker,
                    height: self.height,
                    at: Utc(0),
                    sn: self.next(),
                    policy: 0,
                    epoch: 0,
                    registered: true,
                    next: 0,
                    subscriptions: vec![subscribed],
                    key: key.then(|| self.signed_key(broker)),
                }),
            );
        }
    }

    fn signed_key(&self, broker: u16) -> SignedKey {
        let key = self.key.encode();
        let statement = SignedKey::statement(&self.cluster.cluster(), 0, &key);
        SignedKey { epoch: 0, key, signature: self.brokers[usize::from(broker)].sign(&statement) }
    }

    /// A broker answers the client's query for the key, whichever of its first ones that is.
    fn answer_with_key(&self, broker: u16) {
        for id in 0..QUESTIONS {
            self.say(broker, &Reply::Answer { id, answer: Answered::Key(self.signed_key(broker)) });
        }
    }

    fn next(&self) -> u64 {
        self.sealed.len() as u64
    }

    fn subscribe(&self) -> Subscription {
        self.client.subscribe(everything()).wait().expect("it stands at the brokers")
    }

    /// A block of publications with these bodies, of which f + 1 brokers tell.
    fn block(&mut self, bodies: &[Vec<u8>]) {
        self.block_with(bodies, Vec::new());
    }

    /// The same with what became of operations.
    fn block_with(&mut self, bodies: &[Vec<u8>], results: Vec<Results>) {
        self.height += 1;
        let (first, client) = (self.next(), self.client.client());
        let (mut publications, mut operations, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        for body in bodies {
            let (entry, publication) = self.publication(body);
            operations.push((entry.sn, Operation::Publish(Box::new(publication)).to_bytes()));
            runs.push(Run::Deliver { sn: entry.sn });
            publications.push(entry);
        }
        let notices = match runs.is_empty() {
            true => Vec::new(),
            false => vec![Places { client, subscription: ACTIVE, first, runs }],
        };
        let (advertisements, at) = (Vec::new(), self.at);
        let mut contents = Contents { at, results, notices, publications, advertisements, bodies: Vec::new() };
        let digest = contents.digest(&self.cluster.cluster(), &client, self.height);
        contents.bodies = operations;
        let height = self.height;
        self.say(0, &Reply::Update(Update { height, digest, contents: Some(contents) }));
        self.say(1, &Reply::Update(Update { height, digest, contents: None }));
    }

    /// The next publication, sealed.
    fn publication(&mut self, body: &[u8]) -> (Entry, Publication) {
        let sn = self.next();
        let publication = Publication { associated: b"for all".to_vec(), ..outgoing(&[]).publication(Vec::new()) };
        let envelope = publication.envelope();
        let message = Seal { id: u128::from(sn).to_be_bytes(), envelope: &envelope, bodies: &[body] };
        let sealed = self.publisher.seal(&message).expect("it is small enough");
        let publication = Publication { body: Body::Sealed(sealed.body.clone()), ..publication };
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
        self.sealed.push(sealed);
        (entry, publication)
    }

    /// Two brokers give their shares of a publication.
    fn shares(&self, sn: u64) {
        self.shares_of(sn, 0..2);
    }

    /// These brokers give their shares of a publication.
    fn shares_of(&self, sn: u64, brokers: Range<u16>) {
        let sealed = &self.sealed[usize::try_from(sn).expect("small")];
        let label = label(&SealedHeader::from_bytes(&sealed.header).expect("it is a header"));
        let ciphertext = Ciphertext::decode(&sealed.body).expect("it is a ciphertext");
        let checked = self.key.check(self.key.bind(ciphertext, &label)).expect("it is good");
        for broker in brokers {
            let what = What::Share(self.holders[usize::from(broker)].share(&checked).expect("it is checked"));
            let attachment = Attachment { ciphertext: *checked.id(), what }.to_bytes();
            self.say(broker, &Reply::Attach { sn, attachment });
        }
    }

    /// What a reader may take now: the first byte of each body.
    fn read(&self, subscription: &mut Subscription) -> Vec<u8> {
        let mut read = Vec::new();
        while let Ok(Some(item)) = subscription.next_timeout(Duration::ZERO) {
            match item {
                Item::Publication { content: Content::Bodies(bodies), .. } => read.push(bodies[0][0]),
                other => panic!("nothing is ⊥ or lost: {other:?}"),
            }
            // The driver takes in that there is room.
            self.client.driven.call(|_, _| ()).expect("it is open");
        }
        read
    }

    fn is_behind(&self) -> bool {
        self.client.driven.look(|it| it.handle.is_behind())
    }

    /// What the brokers' client has found out.
    fn notice(&self, notice: &Notice) {
        self.client.driven.look(|it| it.take_notice(notice));
    }
}

fn everything() -> Interest {
    "#".parse().expect("an interest")
}

fn outgoing(body: &[u8]) -> Outgoing {
    let headers = vec![Header { topic: "t".into(), value: None }];
    Outgoing { headers, associated: Vec::new(), access: None, execute: Execute::Nothing, body: body.to_vec() }
}

/// The word of somebody whom the brokers have believed.
fn claim() -> Claim {
    let (issuer, serial, attributes) = ("exchange".to_owned(), vec![1], Vec::new());
    let (not_before, not_after) = (Utc(0), Utc(1000));
    Claim { issuer, serial, not_before, not_after, attributes, holder: key(1).public().clone(), signature: [0; 64] }
}

#[test]
fn rule_e10_who_only_reads_is_warned_before_and_told_when_its_credential_ends() {
    let mut fixture = Fixture::new(true);
    fixture.welcome(true);
    let mut subscription = fixture.subscribe();
    let close_at = |fixture: &mut Fixture, at: i64, byte: u8| {
        fixture.at = Utc(at);
        fixture.block(&[vec![byte]]);
        fixture.shares(u64::from(byte));
        (fixture.client.ends_soon(), subscription.closed())
    };
    assert_eq!(close_at(&mut fixture, 800, 0), (None, None));
    assert_eq!(close_at(&mut fixture, 1000, 1), (Some(Utc(1000)), None), "its last second is one of it");
    let (_, why) = close_at(&mut fixture, 1001, 2);
    assert_eq!(why.map(|it| it.code()), Some(Code::CertificateExpired));
    assert_eq!(fixture.read(&mut subscription), [0, 1, 2], "what came before is read first");
}

#[test]
fn who_reads_is_told_when_brokers_answer_that_nobody_vouches_any_more() {
    let told = |code: Became| {
        let mut fixture = Fixture::new(true);
        fixture.welcome(true);
        let subscription = fixture.subscribe();
        let operation = Operation::Unsubscribe(99);
        let submit = |now, it: &mut BrokerLink| it.submit(now, operation.clone());
        let token = fixture.client.driven.call(submit).expect("it is open").expect("there is room");
        let bytes = operation.to_bytes();
        let id = OperationId::of(&bytes);
        let batch = sign_encoded(&fixture.cluster.cluster(), &key(7), 0, 0, [(&id, &bytes[..])].into_iter()).0;
        let outcomes = vec![Came { code, detail: Vec::new() }];
        fixture.block_with(&[], vec![Results { client: fixture.client.client(), first: 0, batch, outcomes }]);
        assert!(
            matches!(fixture.client.outcome(token).wait(), Ok(OperationOutcome::Executed { outcome, .. }) if outcome.code == code)
        );
        subscription.closed().map(|it| (it.code(), it.message().to_owned())).expect("nothing will come any more")
    };
    let (code, ended) = told(Became::Unregistered);
    assert!(code == Code::Excluded && ended.contains("nobody vouches for us"), "{ended}");
    let (code, revoked) = told(Became::Revoked);
    assert!(
        code == Code::Excluded && revoked.contains("revoked this client"),
        "a certificate would not help: {revoked}"
    );
}

#[test]
fn rule_g7_a_sealed_backlog_larger_than_keys_hold_waits_and_is_opened_in_order() {
    let mut fixture = Fixture::new(true);
    fixture.welcome(true);
    let mut subscription = fixture.subscribe();
    // More than the keys take at once, and no shares: as after a long time away.
    let bodies = limits::SEALED_WAITING_BYTES_MAX / ((1 << 20) - 1000) + 3;
    let all: Vec<u8> = (0..u8::try_from(bodies).expect("few")).collect();
    for four in all.chunks(4) {
        fixture.block(&four.iter().map(|n| vec![*n; (1 << 20) - 1000]).collect::<Vec<_>>());
    }
    assert!(fixture.is_behind(), "no more is handed on than may wait");
    let mut read = Vec::new();
    for sn in 0..fixture.next() {
        fixture.shares(sn);
        read.extend(fixture.read(&mut subscription));
    }
    // Blocks whose bodies had no room are asked for; here they had.
    assert_eq!(read, all);
    assert!(!fixture.is_behind());
}

#[test]
fn rule_g7_a_reader_that_took_what_waited_is_handed_more_without_asking() {
    let mut fixture = Fixture::new(true);
    fixture.welcome(true);
    let mut subscription = fixture.subscribe();
    let more = 3;
    let all = limits::SUBSCRIBER_MESSAGES + more;
    for first in (0..all).step_by(64) {
        fixture.block(&(first..all.min(first + 64)).map(|n| vec![n as u8]).collect::<Vec<_>>());
    }
    (0..fixture.next()).for_each(|sn| fixture.shares(sn));
    assert!(fixture.is_behind(), "its reader does not keep up");
    // Nothing wakes the driver but that there is room, and nobody else asks it for anything.
    for n in 0..all {
        let item = subscription.next_timeout(Duration::from_secs(5)).expect("it goes on").expect("it is not the last");
        let Item::Publication { content: Content::Bodies(bodies), .. } = item else { panic!("{item:?}") };
        assert_eq!(bodies, [[n as u8]]);
    }
}

#[test]
fn what_comes_before_the_key_is_known_is_opened_when_it_is() {
    let mut fixture = Fixture::new(false);
    fixture.welcome(false);
    let mut subscription = fixture.subscribe();
    fixture.block(&[vec![1], vec![2]]);
    assert!(fixture.read(&mut subscription).is_empty());
    assert_eq!(fixture.client.key(Duration::ZERO).wait().map(drop).map_err(|it| it.code()), Err(Code::NotReady));
    // The brokers make their key, and answer the query that waits for it.
    (0..4).for_each(|broker| fixture.answer_with_key(broker));
    for sn in 0..2 {
        fixture.shares(sn);
    }
    assert_eq!(fixture.read(&mut subscription), [1, 2]);
    assert_eq!(fixture.client.key(Duration::ZERO).wait().map(|it| it.key), Ok(fixture.key.encode()));
}

#[test]
fn a_subscribe_that_timed_out_is_lined_up_for_nobody_and_taken_up_by_the_next() {
    let mut fixture = Fixture::new(true);
    for _ in 0..2 {
        let why = fixture.client.subscribe(everything()).wait().map(drop).expect_err("no broker answers");
        assert_eq!(why.code(), Code::NoQuorum);
    }
    fixture.welcome(true);
    fixture.block(&[vec![1], vec![2]]);
    let waiting = fixture.client.driven.status().expect("there is a key").missing;
    assert_eq!(waiting, [], "nobody reads it");
    let subscription = fixture.subscribe();
    assert_eq!(subscription.id(), ACTIVE);
}

#[test]
fn a_subscribe_that_stands_as_its_caller_gives_up_is_left_again() {
    let fixture = Fixture::new(true);
    fixture.welcome(true);
    let subscribe = |now, it: &mut BrokerLink| it.handle.subscribe(now, &everything());
    let token = Call::new(fixture.client.take(subscribe)).wait().expect("there is room").expect("nobody reads it");
    fixture.client.driven.forget(token);
    fixture.subscribe();
}

#[test]
fn one_subscription_has_one_reader() {
    let fixture = Fixture::new(true);
    fixture.welcome(true);
    let subscription = fixture.subscribe();
    assert_eq!(fixture.client.subscribe(everything()).wait().map(drop).map_err(|it| it.code()), Err(Code::Usage));
    drop(subscription);
    fixture.subscribe();
}

#[test]
fn who_waits_is_told_when_f_plus_1_brokers_say_that_nobody_vouches_any_more() {
    let fixture = Fixture::new(true);
    fixture.welcome(true);
    let subscription = fixture.subscribe();
    assert_eq!(fixture.client.excluded(), None);
    fixture.notice(&Notice::NotVouched);
    let why = subscription.closed().expect("nothing will come any more");
    assert_eq!((why.code(), why.code().exit()), (Code::Excluded, 7));
    assert_eq!(fixture.client.excluded(), Some(why));
}

#[test]
fn rule_e11_brokers_that_went_back_end_all_that_a_client_does() {
    let fixture = Fixture::new(true);
    fixture.welcome(true);
    let mut subscription = fixture.subscribe();
    fixture.notice(&Notice::RolledBack { seen: 9, height: 2 });
    let codes = [
        subscription.next_timeout(Duration::ZERO).map(drop),
        fixture.client.ready().wait().and_then(|_| fixture.client.receipt(1, 1).wait()).map(drop),
    ];
    for came in codes {
        assert_eq!(came.map_err(|it| it.code()), Err(Code::RolledBack));
    }
}

#[test]
fn a_publication_that_waits_for_shares_names_whose_have_come() {
    let mut fixture = Fixture::new(true);
    fixture.welcome(true);
    let mut subscription = fixture.subscribe();
    fixture.block(&[vec![1], vec![2]]);
    fixture.shares_of(0, 0..1);
    let missing = |fixture: &Fixture| {
        let missing = fixture.client.driven.status().expect("there is a key").missing;
        missing.into_iter().map(|it| (it.index, it.needed, it.holders.into_iter().collect())).collect::<Vec<_>>()
    };
    assert_eq!(missing(&fixture), [(0, 2, vec![0]), (1, 2, vec![])], "one share opens nothing");
    assert_eq!(fixture.client.shortage(), None, "they have not waited long");
    fixture.shares_of(0, 1..2);
    assert_eq!(missing(&fixture), [(1, 2, vec![])]);
    assert_eq!(fixture.read(&mut subscription), [1]);
}

#[test]
fn rule_e4_more_liars_than_f_are_too_many_to_believe_and_what_cannot_be_read_is_no_lie() {
    let fixture = Fixture::new(true);
    let tell = |broker: u16, how: Misbehaviour| {
        fixture.notice(&Notice::Misbehaved { broker, how });
        fixture.client.misled().map(|why| (why.code(), why.message().to_owned()))
    };
    assert_eq!(tell(2, Misbehaviour::Differed), None);
    assert_eq!(tell(2, Misbehaviour::Contents), None, "it is the same one");
    assert_eq!(tell(0, Misbehaviour::Malformed), None, "it may be of another version");
    let (code, what) = tell(3, Misbehaviour::Testimony).expect("two of four are too many");
    assert!(code == Code::Equivocation && code.exit() == 8 && what.starts_with("brokers 2, 3 told"), "{what}");
}

#[test]
fn what_cannot_be_sealed_by_the_clock_here_says_how_old_the_newest_block_is_and_what_to_look_at() {
    let fixture = Fixture::new(true);
    let before = fixture.client.too_old();
    assert!(before.message().starts_with("f + 1 brokers have not shown their newest block yet, "), "{before}");
    fixture.welcome(true);
    // Blocks of 1970, by the clock of today.
    let why = fixture.client.begin(&outgoing(&[1])).wait().expect_err("nothing is sealed for so old a block");
    assert!(why.message().contains(" s old by this machine's clock; it may be 60 s old"), "{why}");
    assert_eq!(why.code(), Code::NotReady);
    assert_eq!(why.remedy(), Some(&crate::Remedy::CheckClock));
    assert_eq!(Error::from(SendError::Old).remedy(), why.remedy(), "a session says the same");
}

#[test]
fn what_is_over_a_limit_is_refused_whether_or_not_there_is_a_key() {
    let fixture = Fixture::new(false);
    let why =
        fixture.client.begin(&outgoing(&vec![0; limits::BODY_BYTES_MAX + 1])).wait().expect_err("it is too large");
    assert_eq!(why.code(), Code::TooLarge);
    let why = fixture.client.begin(&outgoing(&[1])).wait().expect_err("nothing can be sealed");
    assert_eq!(why.code(), Code::NoQuorum);
}
