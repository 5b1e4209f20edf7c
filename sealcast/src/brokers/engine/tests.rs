//! A client's machines among four brokers whose words the test writes: no sockets, no other threads.

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sealcast_broker::cluster_file::{Addresses, Suite};
use sealcast_broker::genesis::Genesis;
use sealcast_broker::operation::{Claim, Client, Execute, OperationId, Registration};
use sealcast_broker::protocol::{Contents, Reply, SignedKey, Standing, Update, Welcome};
use sealcast_broker::state::{self, Notice as Places, Run};
use sealcast_client::{Content, Item};
use sealcast_crypto::ed25519::Key;
use sealcast_crypto::group::{Parameters, Ristretto255};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_crypto::tdh2::{Ciphertext, KeyShare, PublicKey, deal};
use sealcast_keys::threshold::sealed::{Attachment, What, label};
use sealcast_keys::threshold::{self, Threshold, pin};
use sealcast_keys::{Keys as _, Seal};
use sealcast_wire::{Incarnation, SealedHeader, Utc};

use super::super::{ClientKey, FRAME_OPERATIONS};
use super::*;

type G = Ristretto255;

/// The subscription to everything that the brokers know of.
const STANDING: u64 = 7;

struct Stage {
    engine: Engine,
    brokers: Vec<OriginKey>,
    key: PublicKey<G>,
    holders: Vec<KeyShare<G>>,
    publisher: Threshold<G>,
    height: u64,
    /// Of the newest block.
    at: Utc,
    /// Publications in their order: what the keys need.
    sealed: Vec<sealcast_keys::Sealed>,
    /// Keeps what channels are registered with.
    _poll: mio::Poll,
}

impl Stage {
    /// Four brokers, two of which open what is sealed; the client knows their key from the file, or not yet.
    fn new(knows_key: bool) -> Stage {
        let mut brokers: Vec<OriginKey> =
            (1..5_u8).map(|i| OriginKey::from_seed(&Secret::from_bytes([i; 32]))).collect();
        brokers.sort_by_key(OriginKey::public_bytes);
        let keys: Vec<[u8; 32]> = brokers.iter().map(OriginKey::public_bytes).collect();
        let genesis = Genesis {
            name: "test".into(),
            brokers: keys.iter().copied().collect(),
            quorum: 1,
            administrators: vec![Key::new(&keys[0]).expect("a key")],
            issuers: BTreeMap::new(),
        };
        let cluster = genesis.cluster().0;
        let (key, holders) =
            deal::<G>(Parameters::new(&cluster, 2, 4), &mut ChaCha20Rng::seed_from_u64(1)).expect("2 of 4");
        let encoded = key.encode();
        let publisher = [9; 32];
        let config = threshold::Config::new(publisher, cluster, &keys, &encoded, &pin(&cluster, &encoded));
        let seed = Secret::from_bytes([8; 32]);
        let versions = threshold::Standing::default();
        let config = config.expect("they fit");
        let publisher = Threshold::new("publisher", Incarnation::default(), config, versions, &seed);
        let vouched = VouchedKey { epoch: 0, key: encoded, signatures: BTreeMap::new() };
        let nowhere = || Addresses { gateway: "127.0.0.1:1".into(), order: "127.0.0.1:1".into() };
        let cluster = ClusterFile {
            genesis,
            addresses: (0..4).map(|_| nowhere()).collect(),
            threshold: 2,
            suite: Suite::Ristretto255,
            key: knows_key.then_some(vouched),
            endorsement: None,
        };
        let opening = Opening {
            cluster: Arc::new(cluster),
            key: ClientKey::fresh().expect("the system has randomness"),
            registrations: vec![Registration { intent: false, proof: claim().into() }],
            keys: Scheme::Threshold,
            patience: Duration::from_secs(1),
            frame_operations: FRAME_OPERATIONS,
            accuse: true,
        };
        let poll = mio::Poll::new().expect("the system polls");
        let engine = Engine::new(opening, poll.registry()).expect("it opens");
        Stage { engine, brokers, key, holders, publisher, height: 1, at: Utc(0), sealed: Vec::new(), _poll: poll }
    }

    fn say(&mut self, broker: u16, reply: &Reply) {
        let now = self.engine.clock.now();
        self.engine.quorum.handle(now, broker, &reply.to_bytes());
        self.engine.pump(now);
    }

    /// All brokers welcome the client, which has one subscription.
    fn welcome(&mut self, key: bool) {
        let cluster = self.engine.cluster.cluster();
        for broker in 0..4 {
            let now = self.engine.clock.now();
            self.engine.quorum.connected(now, broker);
            let encoded = self.key.encode();
            let signature = self.brokers[usize::from(broker)].sign(&SignedKey::statement(&cluster, 0, &encoded));
            let standing =
                Standing { id: STANDING, interest: "#".parse().expect("an interest"), since: 0, next: self.next() };
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
                    subscriptions: vec![standing],
                    key: key.then_some(SignedKey { epoch: 0, key: encoded, signature }),
                }),
            );
        }
    }

    fn next(&self) -> u64 {
        self.sealed.len() as u64
    }

    fn interest() -> Interest {
        "#".parse().expect("an interest")
    }

    fn subscribe(&mut self) -> Arc<Inbox> {
        let token = self.engine.subscribe(&Stage::interest()).expect("there is room").expect("nobody reads it");
        self.engine.pump(self.engine.clock.now());
        match self.engine.done.remove(&token) {
            Some(Done::Subscribed(inbox)) => inbox,
            _ => panic!("it stands at the brokers"),
        }
    }

    /// A block of publications with these bodies, of which f + 1 brokers tell.
    fn block(&mut self, bodies: &[Vec<u8>]) {
        self.height += 1;
        let (first, client) = (self.next(), *self.engine.quorum.client());
        let (mut publications, mut operations, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        for body in bodies {
            let (entry, publication) = self.publication(body);
            operations.push((entry.sn, Operation::Publish(Box::new(publication)).to_bytes()));
            runs.push(Run::Deliver { sn: entry.sn });
            publications.push(entry);
        }
        let notices = vec![Places { client, subscription: STANDING, first, runs }];
        let (results, advertisements, at) = (Vec::new(), Vec::new(), self.at);
        let mut contents = Contents { at, results, notices, publications, advertisements, bodies: Vec::new() };
        let digest = contents.digest(&self.engine.cluster.cluster(), &client, self.height);
        contents.bodies = operations;
        let height = self.height;
        self.say(0, &Reply::Update(Update { height, digest, contents: Some(contents) }));
        self.say(1, &Reply::Update(Update { height, digest, contents: None }));
    }

    /// The next publication, sealed.
    fn publication(&mut self, body: &[u8]) -> (Entry, Publication) {
        let header = || sealcast_broker::operation::Header { topic: "t".into(), value: None };
        let sn = self.next();
        let publication = Publication {
            headers: vec![header()],
            associated: b"for all".to_vec(),
            access: None,
            execute: Execute::Nothing,
            policy: 0,
            epoch: 0,
            body: Body::Plain(Vec::new()),
        };
        let envelope = publication.envelope();
        let message = Seal { id: u128::from(sn).to_be_bytes(), envelope: &envelope, bodies: &[body] };
        let sealed = self.publisher.seal(&message).expect("it is small enough");
        let publication = Publication { body: Body::Sealed(sealed.body.clone()), ..publication };
        let entry = Entry {
            sn,
            height: self.height,
            at: Utc(0),
            frame: 0,
            client: Client([9; 32]),
            number: sn,
            id: OperationId::of(&Operation::Publish(Box::new(publication.clone())).to_bytes()),
            policy: 0,
            epoch: 0,
            places: vec![(header(), sn)],
            access: None,
        };
        self.sealed.push(sealed);
        (entry, publication)
    }

    /// Two brokers give their shares of a publication.
    fn shares(&mut self, sn: u64) {
        self.shares_of(sn, 0..2);
    }

    /// These brokers give their shares of a publication.
    fn shares_of(&mut self, sn: u64, brokers: std::ops::Range<u16>) {
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
    fn read(&mut self, inbox: &Inbox) -> Vec<u8> {
        let mut read = Vec::new();
        while let Some(item) = inbox.take() {
            match item {
                Item::Publication { content: Content::Bodies(bodies), .. } => read.push(bodies[0][0]),
                other => panic!("nothing is ⊥ or lost: {other:?}"),
            }
            let now = self.engine.clock.now();
            self.engine.mark(now);
            self.engine.pump(now);
        }
        read
    }
}

/// The word of somebody whom the brokers have believed.
fn claim() -> Claim {
    let (issuer, serial, attributes) = ("exchange".to_owned(), vec![1], Vec::new());
    let (not_before, not_after) = (Utc(0), Utc(1000));
    let holder = OriginKey::from_seed(&Secret::from_bytes([1; 32])).public().clone();
    Claim { issuer, serial, not_before, not_after, attributes, holder, signature: [0; 64] }
}

#[test]
fn rule_e10_who_only_reads_is_warned_before_and_told_when_its_credential_ends() {
    let mut stage = Stage::new(true);
    stage.welcome(true);
    let inbox = stage.subscribe();
    let close_at = |stage: &mut Stage, at: i64, byte: u8| {
        stage.at = Utc(at);
        stage.block(&[vec![byte]]);
        stage.shares(u64::from(byte));
        (stage.engine.ends_soon(), inbox.closed())
    };
    assert_eq!(close_at(&mut stage, 800, 0), (None, None));
    assert_eq!(close_at(&mut stage, 1000, 1), (Some(Utc(1000)), None), "its last second is one of it");
    let (_, why) = close_at(&mut stage, 1001, 2);
    assert_eq!(why.map(|it| it.code()), Some(Code::CertificateExpired));
    assert_eq!(stage.read(&inbox), [0, 1, 2], "what came before is read first");
}

#[test]
fn rule_e10_a_refused_registration_vouches_for_nobody_and_is_the_reason_where_its_time_is_over() {
    for (at, is_over) in [(500, false), (1001, true)] {
        let mut stage = Stage::new(true);
        stage.welcome(true);
        stage.at = Utc(at);
        stage.block(&[vec![0]]);
        let refused = *stage.engine.credentials.keys().next().expect("it has one");
        let outcome = state::Outcome { code: state::Code::Proof, detail: Vec::new() };
        let now = stage.engine.clock.now();
        let notice = sealcast_client::Notice::NotRegistered(refused, outcome);
        stage.engine.perform(now, sealcast_client::Output::Notice(notice));
        assert_eq!(stage.engine.expired().is_some(), is_over, "at {at}");
        assert_eq!(stage.engine.credentials.is_empty(), !is_over, "at {at}");
    }
}

#[test]
fn who_reads_is_told_when_brokers_answer_that_nobody_vouches_any_more() {
    let told = |code: state::Code| {
        let mut stage = Stage::new(true);
        stage.welcome(true);
        let inbox = stage.subscribe();
        let became = Outcome::Executed { height: 2, number: 1, outcome: state::Outcome { code, detail: Vec::new() } };
        let now = stage.engine.clock.now();
        stage.engine.perform(now, sealcast_client::Output::Outcome(Token(900), became));
        inbox.closed().map(|it| (it.code(), it.message().to_owned())).expect("nothing will come any more")
    };
    let (code, ended) = told(state::Code::Unregistered);
    assert!(code == Code::Excluded && ended.contains("nobody vouches for us"), "{ended}");
    let (code, revoked) = told(state::Code::Revoked);
    assert!(
        code == Code::Excluded && revoked.contains("revoked this client"),
        "a certificate would not help: {revoked}"
    );
}

#[test]
fn rule_g7_a_sealed_backlog_larger_than_keys_hold_waits_and_is_opened_in_order() {
    let mut stage = Stage::new(true);
    stage.welcome(true);
    let inbox = stage.subscribe();
    // More than the keys take at once, and no shares: as after a long time away.
    let bodies = limits::SEALED_WAITING_BYTES_MAX / ((1 << 20) - 1000) + 3;
    let all: Vec<u8> = (0..u8::try_from(bodies).expect("few")).collect();
    for four in all.chunks(4) {
        stage.block(&four.iter().map(|n| vec![*n; (1 << 20) - 1000]).collect::<Vec<_>>());
    }
    assert!(stage.engine.lines.is_behind(), "no more is handed on than may wait");
    let mut read = Vec::new();
    for sn in 0..stage.next() {
        stage.shares(sn);
        read.extend(stage.read(&inbox));
    }
    // Blocks whose bodies had no room are asked for; here they had.
    assert_eq!(read, all);
    assert!(!stage.engine.lines.is_behind());
}

#[test]
fn what_comes_before_the_key_is_known_is_opened_when_it_is() {
    let mut stage = Stage::new(false);
    stage.welcome(false);
    let inbox = stage.subscribe();
    stage.block(&[vec![1], vec![2]]);
    assert!(stage.read(&inbox).is_empty());
    // Brokers that have made their key meanwhile welcome the client anew.
    stage.welcome(true);
    for sn in 0..2 {
        stage.shares(sn);
    }
    assert_eq!(stage.read(&inbox), [1, 2]);
}

#[test]
fn a_subscribe_that_timed_out_is_lined_up_for_nobody_and_taken_up_by_the_next() {
    let mut stage = Stage::new(true);
    let interest = Stage::interest();
    let token = stage.engine.subscribe(&interest).expect("there is room").expect("nobody reads it");
    stage.engine.forget(token);
    // Who asks again waits for the same.
    assert_eq!(stage.engine.subscribe(&interest), Ok(Some(token)));
    stage.engine.forget(token);
    stage.welcome(true);
    assert!(stage.engine.done.is_empty() && !stage.engine.lines.is_read(STANDING), "nobody reads it");
    stage.block(&[vec![1], vec![2]]);
    assert!(!stage.engine.lines.has_unopened() && stage.engine.wanted.is_empty());
    stage.subscribe();
    assert!(stage.engine.lines.is_read(STANDING));
}

#[test]
fn a_subscribe_that_stands_as_its_caller_gives_up_is_left_again() {
    let mut stage = Stage::new(true);
    stage.welcome(true);
    let token = stage.engine.subscribe(&Stage::interest()).expect("there is room").expect("nobody reads it");
    stage.engine.pump(stage.engine.clock.now());
    stage.engine.forget(token);
    assert!(!stage.engine.lines.is_read(STANDING) && stage.engine.forgotten.is_empty());
}

#[test]
fn one_subscription_has_one_reader() {
    let mut stage = Stage::new(true);
    stage.welcome(true);
    let inbox = stage.subscribe();
    assert_eq!(stage.engine.subscribe(&Stage::interest()), Ok(None));
    stage.engine.leave(inbox.id);
    stage.subscribe();
}

#[test]
fn rule_g7_of_a_read_that_timed_out_nothing_is_kept() {
    let mut stage = Stage::new(true);
    stage.welcome(true);
    let (entry, publication) = stage.publication(&[5]);
    for _ in 0..2 {
        stage.engine.open_read(&entry, &publication).expect("the key is known");
    }
    stage.engine.end_read(entry.sn);
    assert!(stage.engine.lines.has_unopened(), "another caller waits for it");
    stage.engine.end_read(entry.sn);
    assert!(!stage.engine.lines.has_unopened() && stage.engine.reads.is_empty());
    // Who asks again begins anew, and as many as ask get it.
    for _ in 0..2 {
        stage.engine.open_read(&entry, &publication).expect("the key is known");
    }
    stage.engine.pump(stage.engine.clock.now());
    stage.shares(entry.sn);
    for _ in 0..2 {
        assert_eq!(stage.engine.opened(entry.sn), Some(Some(vec![vec![5]])));
    }
    assert!(stage.engine.reads.is_empty());
}

#[test]
fn who_waits_is_told_when_f_plus_1_brokers_say_that_nobody_vouches_any_more() {
    let mut stage = Stage::new(true);
    stage.welcome(true);
    let inbox = stage.subscribe();
    assert_eq!(stage.engine.excluded(), None);
    let now = stage.engine.clock.now();
    stage.engine.perform(now, sealcast_client::Output::Notice(sealcast_client::Notice::NotVouched));
    let why = inbox.closed().expect("nothing will come any more");
    assert_eq!((why.code(), why.code().exit()), (Code::Excluded, 7));
    assert_eq!(stage.engine.excluded(), Some(why));
}

#[test]
fn a_publication_that_waits_for_shares_names_whose_have_come() {
    let mut stage = Stage::new(true);
    stage.welcome(true);
    let inbox = stage.subscribe();
    stage.block(&[vec![1], vec![2]]);
    stage.shares_of(0, 0..1);
    let missing = stage.engine.shortage_of(0).expect("one share does not open it");
    assert_eq!((missing.needed, missing.holders), (2, [0].into()));
    assert_eq!(stage.engine.shortage_of(1).expect("no share has come").holders, [].into());
    stage.shares_of(0, 1..2);
    assert_eq!(stage.engine.shortage_of(0), None);
    assert_eq!(stage.read(&inbox), [1]);
}

#[test]
fn rule_e4_more_liars_than_f_are_too_many_to_believe_and_what_cannot_be_read_is_no_lie() {
    use sealcast_client::{self as client, Misdeed, Notice};
    let mut stage = Stage::new(true);
    let mut tell = |broker: u16, how: Misdeed| {
        let now = stage.engine.clock.now();
        stage.engine.perform(now, client::Output::Notice(Notice::Misbehaved { broker, how }));
        stage.engine.misled().map(|why| (why.code(), why.message().to_owned()))
    };
    assert_eq!(tell(2, Misdeed::Differed), None);
    assert_eq!(tell(2, Misdeed::Contents), None, "it is the same one");
    assert_eq!(tell(0, Misdeed::Malformed), None, "it may be of another version");
    let (code, what) = tell(3, Misdeed::Testimony).expect("two of four are too many");
    assert!(code == Code::Equivocation && code.exit() == 8 && what.starts_with("brokers 2, 3 told"), "{what}");
}

#[test]
fn a_publication_over_a_limit_is_told_which_one() {
    let header = |topic: &str| sealcast_broker::operation::Header { topic: topic.into(), value: None };
    let good = || Outgoing {
        headers: vec![header("t")],
        associated: Vec::new(),
        access: None,
        execute: Execute::Nothing,
        body: Vec::new(),
    };
    let stage = Stage::new(true);
    let told = |it: &Outgoing, more: &[&[u8]]| {
        let why = stage.engine.too_large(it, more);
        assert!(why.code() == Code::TooLarge && why.hint().is_some(), "{why}");
        why.message().to_owned()
    };
    let room = limits::BODY_BYTES_MAX - together_overhead(Ciphertext::<G>::OVERHEAD, 1);
    let body = |bytes: usize| Outgoing { body: vec![0; bytes], ..good() };
    let expected = format!("the message has {} bytes, and a publication holds {room}", room + 1);
    assert_eq!(told(&body(room + 1), &[]), expected);
    assert!(told(&body(room), &[b""]).contains(&format!("holds {}", room - 4)), "with the length of another one");
    assert!(
        told(&body(room), &[]).contains("with its topics, condition and message"),
        "it fits, so it was something else"
    );
    let topics = Outgoing { headers: vec![header("t"); limits::HEADERS_MAX + 1], ..good() };
    assert!(told(&topics, &[]).contains("has 17 topics, and it may have 16"), "{}", told(&topics, &[]));
    let put = |key: usize, value: usize| Execute::Put { key: vec![0; key], value: vec![0; value] };
    let key = Outgoing { execute: put(limits::VALUE_KEY_BYTES_MAX + 1, 1), ..good() };
    let value = Outgoing { execute: put(1, limits::VALUE_BYTES_MAX + 1), ..good() };
    assert!(told(&key, &[]).contains("bytes of a key") && told(&value, &[]).contains("bytes of a value"));
    for it in [&topics, &key, &value] {
        assert!(!it.keeps_to_limits());
    }
    let odd = Outgoing { headers: vec![header("fine"), header("a/#")], ..good() };
    assert!(odd.bad_topic().message().starts_with("\"a/#\": "), "{}", odd.bad_topic());
}

#[test]
fn what_cannot_be_sealed_by_the_clock_here_says_how_old_the_newest_block_is_and_what_to_look_at() {
    let mut stage = Stage::new(true);
    let before = stage.engine.too_old();
    assert!(before.message().starts_with("f + 1 brokers have not shown their newest block yet, "), "{before}");
    stage.welcome(true);
    let header = sealcast_broker::operation::Header { topic: "t".into(), value: None };
    let (associated, access, execute, body) = (Vec::new(), None, Execute::Nothing, vec![1]);
    let outgoing = Outgoing { headers: vec![header], associated, access, execute, body };
    // Blocks of 1970, by the clock of today.
    assert_eq!(stage.engine.publish(&outgoing, &[]), Err(SendError::Old));
    let why = stage.engine.too_old();
    assert!(why.message().contains(" s old by this machine's clock; it may be 60 s old"), "{why}");
    assert_eq!(why.code(), Code::NotReady);
    assert!(why.hint().is_some_and(|hint| hint.contains("date -u")));
    assert_eq!(Error::from(SendError::Old).hint(), why.hint(), "a session says the same");
}
