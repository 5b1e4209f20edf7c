use std::sync::atomic::AtomicUsize;
use std::sync::{OnceLock, Weak, mpsc};
use std::time::Duration;

use sealcast_broker::operation::{Accusation, Action, Body, Execute, Header, Moment, Operation, Publication};
use sealcast_broker::state::Holder;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_crypto::tdh2::Sharing;
use sealcast_order::{Later, StartCertificate, Status};

use super::*;
use crate::fixture;

const CLUSTER: Cluster = Cluster([7; 32]);

fn key(seed: u8) -> OriginKey {
    OriginKey::from_seed(&Secret::from_bytes([seed; 32]))
}

fn client(seed: u8) -> Client {
    Client(key(seed).public_bytes())
}

fn batch(seed: u8, first: u64) -> Bytes {
    let operations = vec![Operation::Sync, Operation::Unsubscribe(first)];
    operation::Batch::sign(&CLUSTER, &key(seed), first, operations).to_bytes().into()
}

fn sealed(seed: u8, ciphertext: &[u8]) -> Bytes {
    let publication = Publication {
        headers: vec![Header { topic: "a".into(), value: None }],
        associated: vec![],
        access: None,
        execute: Execute::Nothing,
        policy: 0,
        epoch: 0,
        body: Body::Sealed(ciphertext.to_vec()),
    };
    let operations = vec![Operation::Publish(Box::new(publication))];
    operation::Batch::sign(&CLUSTER, &key(seed), 0, operations).to_bytes().into()
}

/// In clear.
fn published_at(seed: u8, topic: &str) -> Bytes {
    let publication = Publication {
        headers: vec![Header { topic: "a".into(), value: None }, Header { topic: topic.into(), value: None }],
        associated: vec![],
        access: None,
        execute: Execute::Nothing,
        policy: 0,
        epoch: 0,
        body: Body::Plain(Vec::new()),
    };
    operation::Batch::sign(&CLUSTER, &key(seed), 0, vec![Operation::Publish(Box::new(publication))]).to_bytes().into()
}

fn forged(seed: u8, first: u64) -> Bytes {
    let mut bytes = batch(seed, first).to_vec();
    let last = bytes.len() - 40;
    bytes[last] ^= 1;
    bytes.into()
}

/// Knows clients 1, 2 and 5, who have used the numbers below 10, and of whom 5 has nobody left to vouch for it, and 20 to
/// 99, who have used none; keeps what is executed.
struct Ledger {
    world: fixture::World,
    /// The newest block's time, seconds after the world's.
    later: AtomicUsize,
    /// Who is to be asked whether it answers while it asks for a client, and what came of it.
    asks: OnceLock<(Weak<Admission>, mpsc::Sender<bool>)>,
    executed: Mutex<Vec<(u64, usize)>>,
    fails: AtomicBool,
    keyless: AtomicBool,
    /// Ciphertexts that were checked.
    checked: AtomicUsize,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger {
            world: fixture::World::new(),
            later: AtomicUsize::default(),
            asks: OnceLock::new(),
            executed: Mutex::default(),
            fails: AtomicBool::default(),
            keyless: AtomicBool::default(),
            checked: AtomicUsize::default(),
        }
    }
}

impl Execution for Ledger {
    fn execute(&self, block: Arc<Block>, batches: Batches, done: Box<dyn FnOnce() + Send>) {
        let Some(batches) = batches() else { return };
        lock(&self.executed).push((block.height, batches.len()));
        if !self.fails.load(Ordering::Relaxed) {
            done();
        }
    }

    fn known(&self, who: &Client) -> Option<Known> {
        if let Some((admission, answers)) = self.asks.get() {
            let (admission, (said, hears)) = (admission.upgrade().expect("it asks"), mpsc::channel());
            thread::spawn(move || said.send(admission.waiting()));
            answers.send(hears.recv_timeout(Duration::from_secs(5)).is_ok()).expect("the test listens");
        }
        let fresh = (20..100).any(|seed| client(seed) == *who);
        let is_holder = fresh || [client(1), client(2)].contains(who);
        let holder = is_holder.then(|| Holder::new(("authority".into(), who.0.to_vec())));
        let next = if fresh { 0 } else { 10 };
        (is_holder || *who == client(5)).then_some(Known { next, holder })
    }

    fn introduces(&self, batch: &operation::Batch) -> Result<(), UnregisteredError> {
        let at = fixture::NOW + self.later.load(Ordering::Relaxed) as i64;
        let now = Moment { at: sealcast_wire::Utc(at), next_act: 2 };
        batch.introduces(&self.world.genesis, &self.world.cluster, now, |_, _| true)
    }

    fn ciphertexts_valid(&self, sealed: &[Sealed<'_>]) -> Vec<bool> {
        self.checked.fetch_add(sealed.len(), Ordering::Relaxed);
        sealed.iter().map(|s| self.has_key() && s.ciphertext == b"good").collect()
    }

    fn has_key(&self) -> bool {
        !self.keyless.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Refusals(Mutex<Vec<(Client, Reply)>>);

impl Outlet for Refusals {
    fn is_here(&self, _: &Client) -> bool {
        true
    }

    fn send(&self, client: &Client, reply: Reply) {
        lock(&self.0).push((*client, reply));
    }

    fn dkg(&self, _: u64, _: u16, _: &[u8]) {}

    fn executed(&self, _: u64) {}
}

/// An order that only hands batches on to admission, as the engine does.
struct Hands(std::sync::Weak<Admission>);

impl Order for Hands {
    fn submit(&self, batch: Batch) -> Result<(), Refused> {
        self.0.upgrade().ok_or(Refused::Ended)?.receive(Origin::Here, batch)
    }

    fn status(&self) -> Status {
        Status::default()
    }

    fn evidence(&self) -> Vec<Evidence> {
        Vec::new()
    }

    fn fault(&self) -> Option<sealcast_order::Fault> {
        None
    }

    fn block(&self, _: u64) -> Later<Option<Arc<Block>>> {
        Box::pin(std::future::ready(None))
    }

    fn start_certificate(&self, _: u64) -> Later<Option<StartCertificate>> {
        Box::pin(std::future::ready(None))
    }

    fn prune(&self, _: u64) {}

    fn stop(&self) -> Later<()> {
        Box::pin(std::future::ready(()))
    }
}

struct World {
    admission: Arc<Admission>,
    ledger: Arc<Ledger>,
    refusals: Arc<Refusals>,
    drops: Arc<Drops>,
}

impl World {
    fn new() -> World {
        let (ledger, refusals) = (Arc::new(Ledger::default()), Arc::new(Refusals::default()));
        let drops = Arc::new(Drops::default());
        let admission = Admission::start(Setup {
            cluster: CLUSTER,
            together: limits::CHECKED_TOGETHER_MAX,
            threads: 2,
            execution: ledger.clone(),
            outlet: refusals.clone(),
            misbehaved: Box::new(|_| {}),
            drops: drops.clone(),
        });
        let admission = Arc::new(admission.expect("threads start"));
        admission.attach(Arc::new(Hands(Arc::downgrade(&admission))));
        World { admission, ledger, refusals, drops }
    }

    fn propose(&self) -> Vec<Batch> {
        let parent = Parent { height: 0, hash: [0; 32], time: 0, ancestors: &[] };
        self.admission.propose(&parent, BlockSize::default())
    }

    fn valid(&self, batches: &[Bytes]) -> bool {
        let parent = Parent { height: 0, hash: [0; 32], time: 0, ancestors: &[] };
        self.admission.valid(&parent, &block(1, batches))
    }

    fn refused(&self) -> Vec<(Client, Reply)> {
        lock(&self.refusals.0).clone()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.admission.stop();
    }
}

fn block(height: u64, batches: &[Bytes]) -> Block {
    Block { parent: [0; 32], height, time: 0, batches: batches.iter().cloned().map(Batch::new).collect() }
}

/// A watchdog, far beyond what it takes.
fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never came: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_clients_batches_wait_in_their_order_once_they_are_checked() {
    let world = World::new();
    let batches: Vec<Bytes> = (0..300).map(|n| batch(1, 10 + 2 * n)).collect();
    batches.iter().for_each(|f| world.admission.submit(&client(1), f.clone()).expect("it is taken"));
    until("all wait", || world.admission.waiting() == 300);
    let proposed: Vec<Bytes> = world.propose().iter().map(|f| f.bytes().clone()).collect();
    assert_eq!(proposed, batches);
    assert_eq!(world.admission.submit(&client(1), batches[0].clone()), Ok(()), "sent again, it waits once");
    assert_eq!((world.admission.waiting(), world.drops.of(Reason::BatchKnown)), (300, 1));
    assert!(world.refused().is_empty());
}

#[test]
fn what_is_no_batch_of_this_client_is_refused_at_once() {
    let world = World::new();
    let submit = |seed: u8, bytes: Bytes| world.admission.submit(&client(seed), bytes);
    assert_eq!(submit(2, batch(1, 10)), Err(Refusal::NotYours));
    assert_eq!(submit(1, Bytes::from_static(b"garbage")), Err(Refusal::Malformed));
    assert_eq!(submit(1, Bytes::from(vec![1; limits::BATCH_BYTES_MAX + 1])), Err(Refusal::TooLarge));
    assert_eq!(submit(1, batch(1, 8)), Err(Refusal::Executed), "8 and 9 were used");
    assert_eq!(submit(1, batch(1, 9)), Ok(()), "10 was not");
    let reasons = [Reason::BatchNotYours, Reason::BatchMalformed, Reason::BatchTooLarge, Reason::BatchKnown];
    assert!(reasons.iter().all(|r| world.drops.of(*r) == 1));
}

#[test]
fn false_signatures_and_ciphertexts_are_refused_and_do_not_touch_others() {
    let world = World::new();
    let submit = |seed: u8, bytes: Bytes| world.admission.submit(&client(seed), bytes).expect("it is looked at");
    submit(1, forged(1, 10));
    submit(1, batch(1, 12));
    submit(2, batch(2, 10));
    submit(23, sealed(23, b"good"));
    submit(24, sealed(24, b"bad"));
    until("three wait, two are refused", || world.admission.waiting() == 3 && world.refused().len() == 2);
    let refused = world.refused();
    assert!(refused.contains(&(client(1), Reply::Refused { first: 10, why: Refusal::Signature })));
    assert!(refused.contains(&(client(24), Reply::Refused { first: 0, why: Refusal::Ciphertext })));
    assert_eq!(world.admission.waiting_bytes(), batch(1, 12).len() * 2 + sealed(23, b"good").len());
}

#[test]
fn what_is_published_at_a_topic_that_only_looks_like_another_is_refused_before_it_is_ordered() {
    let world = World::new();
    let topics = ["records/+/x", "records/#", "records/a/x\n", "records/a/x ", " records/a/x", "records/\u{7f}a"];
    for (seed, topic) in (30..).zip(topics) {
        world.admission.submit(&client(seed), published_at(seed, topic)).expect("it is looked at");
    }
    world.admission.submit(&client(50), published_at(50, "records/a b/x")).expect("it is looked at");
    until("one waits, the others are refused", || {
        world.admission.waiting() == 1 && world.refused().len() == topics.len()
    });
    for (seed, _) in (30..).zip(topics) {
        assert!(world.refused().contains(&(client(seed), Reply::Refused { first: 0, why: Refusal::Topic })), "{seed}");
    }
    // Blocks of brokers that took it before are valid all the same, and a broker that forwards it is not a liar.
    assert!(world.valid(&[published_at(30, "records/+/x")]));
    for n in 0..u64::from(limits::FALSE_FORWARDS_MAX) + 1 {
        let before = world.drops.of(Reason::BatchTopic);
        let seed = 60 + n as u8;
        assert_eq!(world.admission.receive(Origin::Broker(1), Batch::new(published_at(seed, "a#"))), Ok(()), "{n}");
        until("it is turned away", || world.drops.of(Reason::BatchTopic) > before);
    }
}

#[test]
fn what_other_brokers_forward_is_checked_alike_and_liars_are_no_longer_heard() {
    let world = World::new();
    let forward = |broker: usize, bytes: Bytes| world.admission.receive(Origin::Broker(broker), Batch::new(bytes));
    assert_eq!(forward(1, batch(1, 10)), Ok(()));
    until("it waits", || world.admission.waiting() == 1);
    for n in 0..u64::from(limits::FALSE_FORWARDS_MAX) {
        assert_eq!(forward(2, forged(2, 100 + n)), Ok(()));
    }
    until("all are found false", || world.drops.of(Reason::BatchSignature) == u64::from(limits::FALSE_FORWARDS_MAX));
    assert_eq!(forward(2, batch(2, 10)), Err(Refused::Invalid));
    assert_eq!(forward(1, batch(2, 10)), Ok(()), "from another broker it is heard");
    assert!(world.refused().is_empty(), "their clients sent nothing here");
    assert_eq!(
        world.admission.receive(Origin::Here, Batch::new(batch(2, 12))),
        Err(Refused::Invalid),
        "nobody checked it"
    );
}

/// With so many accusations of client 2.
fn accusing(seed: u8, first: u64, ciphertext: &[u8]) -> Bytes {
    let publication = Publication {
        headers: vec![Header { topic: "a".into(), value: None }],
        associated: vec![],
        access: None,
        execute: Execute::Nothing,
        policy: 0,
        epoch: 0,
        body: Body::Plain(vec![]),
    };
    let (client, envelope, ciphertext) = (client(2), publication.envelope(), ciphertext.to_vec());
    let accusation =
        Accusation { sn: 1, client, number: 3, envelope, ciphertext, sharing: Sharing::First, shares: vec![0, 0] };
    let operations = vec![Operation::Accuse(Box::new(accusation))];
    operation::Batch::sign(&CLUSTER, &key(seed), first, operations).to_bytes().into()
}

#[test]
fn rule_g8_a_broker_that_forwards_false_ciphertexts_or_accusations_is_no_longer_heard() {
    for (false_one, reason) in [
        (sealed as fn(u8, &[u8]) -> Bytes, Reason::BatchCiphertext),
        (|seed, bytes| accusing(1, 10 + u64::from(seed), bytes), Reason::BatchAccusation),
    ] {
        let world = World::new();
        let forward = |bytes: Bytes| world.admission.receive(Origin::Broker(2), Batch::new(bytes));
        let many = u8::try_from(limits::FALSE_FORWARDS_MAX).expect("few");
        // Without a key this broker cannot tell, and blames nobody.
        world.ledger.keyless.store(true, Ordering::Relaxed);
        (0..2 * many).for_each(|n| assert_eq!(forward(false_one(20 + n, b"bad")), Ok(())));
        until("all are refused", || world.drops.of(reason) == 2 * u64::from(many));
        world.ledger.keyless.store(false, Ordering::Relaxed);
        (0..many).for_each(|n| assert_eq!(forward(false_one(20 + n, b"bad")), Ok(())));
        until("all are found false", || world.drops.of(reason) == 3 * u64::from(many));
        assert_eq!(forward(batch(2, 10)), Err(Refused::Invalid));
    }
}

#[test]
fn rule_g8_accusations_of_strangers_are_refused_unchecked() {
    let world = World::new();
    world.admission.submit(&client(3), accusing(3, 0, b"bad")).expect("it is looked at");
    let refused = Reply::Refused { first: 0, why: Refusal::Unregistered };
    until("it is refused", || world.refused() == [(client(3), refused.clone())]);
    let many = u8::try_from(2 * limits::FALSE_FORWARDS_MAX).expect("few");
    for n in 0..many {
        let forwarded = Batch::new(accusing(100 + n, 0, b"bad"));
        assert_eq!(world.admission.receive(Origin::Broker(2), forwarded), Ok(()));
    }
    until("all are refused", || world.drops.of(Reason::UnregisteredBatch) == 1 + u64::from(many));
    // One that was registered is none any more.
    world.admission.submit(&client(5), accusing(5, 10, b"bad")).expect("it is looked at");
    until("it is refused, too", || world.drops.of(Reason::UnregisteredBatch) == 2 + u64::from(many));
    assert_eq!(world.ledger.checked.load(Ordering::Relaxed), 0);
    // Who forwards them may know clients that this broker does not know yet.
    assert_eq!(world.admission.receive(Origin::Broker(2), Batch::new(batch(2, 10))), Ok(()));
    world.admission.submit(&client(1), accusing(1, 10, b"good")).expect("it is looked at");
    until("a client's is checked", || world.admission.waiting() == 2);
    assert_eq!(world.ledger.checked.load(Ordering::Relaxed), 1);
}

/// Of a client that may be nobody's.
fn of(seed: u8, first: u64, operations: Vec<Operation>) -> Bytes {
    operation::Batch::sign(&CLUSTER, &key(seed), first, operations).to_bytes().into()
}

#[test]
fn rule_g8_what_strangers_send_waits_only_if_it_shows_who_is_behind_them() {
    let world = World::new();
    let claim = |seed| world.ledger.world.claim(seed, "fx");
    let restore = |number| world.ledger.world.admin(number, Action::Restore(client(1)));
    let mut unsigned = restore(2);
    if let Operation::Administer(admin) = &mut unsigned {
        admin.signatures[0].1[5] ^= 1;
    }
    let word = || vec![Operation::Dkg(vec![1; 9])];
    let refused = [
        (of(3, 0, vec![Operation::Sync]), Refusal::Unregistered),
        (of(3, 0, vec![Operation::Sync, claim(3)]), Refusal::Unregistered),
        (of(3, 0, vec![claim(4)]), Refusal::Proof),
        (of(3, 0, vec![claim(4); limits::BATCH_PROOFS_MAX + 1]), Refusal::Malformed),
        (of(3, 0, vec![unsigned]), Refusal::Proof),
        (of(3, 0, vec![restore(1)]), Refusal::Unregistered),
        (of(3, 0, vec![restore(2), Operation::Sync]), Refusal::Unregistered),
        (of(3, 0, word()), Refusal::Unregistered),
        (sealed(3, b"good"), Refusal::Unregistered),
    ];
    for (n, (batch, why)) in (1..).zip(refused) {
        world.admission.submit(&client(3), batch).expect("it is looked at");
        until("it is refused", || world.refused().len() == n);
        assert_eq!(world.refused()[n - 1], (client(3), Reply::Refused { first: 0, why }), "{n}");
    }
    assert_eq!(world.drops.of(Reason::BatchProof), 2);
    assert_eq!((world.admission.waiting(), world.ledger.checked.load(Ordering::Relaxed)), (0, 0));

    // What holds waits, and so does what comes behind it, at whatever broker it came in.
    let good = [
        (of(3, 0, vec![claim(4), claim(3), Operation::Sync]), 3),
        (of(3, 3, vec![Operation::Sync]), 3),
        (of(6, 0, vec![restore(2)]), 6),
        (of(210, 0, word()), 210),
    ];
    for (n, (batch, seed)) in (1..).zip(good) {
        world.admission.submit(&client(seed), batch).expect("it is looked at");
        until("it waits", || world.admission.waiting() == n);
    }
    assert_eq!(world.admission.receive(Origin::Broker(1), Batch::new(of(3, 9, vec![Operation::Sync]))), Ok(()));
    until("it waits", || world.admission.waiting() == 5);
    // Somebody whom a block brings is known before the block is executed.
    assert!(world.valid(&[of(8, 0, vec![claim(8)])]));
    world.admission.submit(&client(8), of(8, 1, vec![Operation::Sync])).expect("it is looked at");
    until("it waits", || world.admission.waiting() == 6);
    // When its time is over a proof is none, and says nothing of who forwards it.
    world.ledger.later.store(100_000, Ordering::Relaxed);
    world.admission.submit(&client(9), of(9, 0, vec![claim(9)])).expect("it is looked at");
    until("it is refused", || world.refused().last().is_some_and(|(who, _)| *who == client(9)));
    assert_eq!(world.refused().last().unwrap().1, Reply::Refused { first: 0, why: Refusal::Unregistered });
}

#[test]
fn rule_g8_a_broker_that_forwards_false_registrations_is_no_longer_heard_and_one_that_knows_more_is() {
    let world = World::new();
    let forward = |bytes: Bytes| world.admission.receive(Origin::Broker(2), Batch::new(bytes));
    let many = u8::try_from(limits::FALSE_FORWARDS_MAX).expect("few");
    world.ledger.later.store(100_000, Ordering::Relaxed);
    for n in 0..many {
        assert_eq!(forward(of(100 + n, 0, vec![world.ledger.world.claim(100 + n, "fx")])), Ok(()), "over here");
        assert_eq!(forward(of(120 + n, 0, vec![Operation::Sync])), Ok(()), "registered there");
    }
    until("all are refused", || world.drops.of(Reason::UnregisteredBatch) == 2 * u64::from(many));
    world.ledger.later.store(0, Ordering::Relaxed);
    for n in 0..many {
        assert_eq!(forward(of(140 + n, 0, vec![world.ledger.world.claim(1, "fx")])), Ok(()));
    }
    until("all are found false", || world.drops.of(Reason::BatchProof) == u64::from(many));
    assert_eq!(forward(batch(2, 10)), Err(Refused::Invalid));
    assert!(world.refused().is_empty() && world.admission.waiting() == 0);
}

/// A leader that fills its blocks with registrations, or clients who do, occupy the thread that executes no longer.
#[test]
fn rule_g8_a_block_holds_few_registrations_and_acts() {
    let world = World::new();
    let each = limits::BATCH_PROOFS_MAX;
    let most = limits::BLOCK_PROOFS_MAX / each;
    let batch_of = |n: usize| of(1, 10 + (n * each) as u64, vec![world.ledger.world.claim(1, "fx"); each]);
    let full: Vec<Bytes> = (0..=most).map(batch_of).collect();
    assert!(!world.valid(&full));
    assert!(world.valid(&full[..most]));
    assert!(!world.valid(&full), "those that were checked before count too");
    full.iter().for_each(|it| world.admission.submit(&client(1), it.clone()).expect("it is taken"));
    world.admission.submit(&client(2), batch(2, 10)).expect("it is taken");
    until("all wait", || world.admission.waiting() == most + 2);
    let proposed: Vec<Bytes> = world.propose().iter().map(|f| f.bytes().clone()).collect();
    assert_eq!(proposed.len(), most + 1);
    assert!(proposed.contains(&batch(2, 10)) && world.valid(&proposed));
}

#[test]
fn nobody_waits_for_the_room_while_a_block_is_drawn_and_a_clients_number_is_asked_for() {
    let world = World::new();
    world.admission.submit(&client(1), batch(1, 10)).expect("it is taken");
    until("it waits", || world.admission.waiting() == 1);
    let (answers, answered) = mpsc::channel();
    assert!(world.ledger.asks.set((Arc::downgrade(&world.admission), answers)).is_ok());
    assert_eq!(world.propose().len(), 1);
    assert_eq!(answered.try_iter().collect::<Vec<_>>(), [true]);
}

#[test]
fn a_block_is_valid_if_each_of_its_batches_is_and_stands_there_once() {
    let world = World::new();
    assert!(world.valid(&[]));
    assert!(world.valid(&[batch(1, 10), sealed(2, b"good")]));
    assert!(world.valid(&[batch(1, 10), batch(1, 12)]), "what was checked with a block that failed is remembered");
    assert!(!world.valid(&[batch(1, 10), batch(1, 10)]));
    assert!(!world.valid(&[batch(1, 10), forged(1, 12)]));
    assert!(!world.valid(&[sealed(2, b"bad")]));
    assert!(!world.valid(&[Bytes::from_static(b"garbage")]));
    assert_eq!(world.drops.of(Reason::Block), 4);
}

/// A leader that fills its blocks with accusations, all of them false, costs each other broker a few.
#[test]
fn rule_g8_a_block_holds_few_accusations() {
    let world = World::new();
    let most = u8::try_from(limits::BLOCK_ACCUSATIONS_MAX).expect("few");
    let block: Vec<Bytes> = (0..=most).map(|n| accusing(20 + n, 0, b"bad")).collect();
    assert!(!world.valid(&block));
    assert_eq!(world.ledger.checked.load(Ordering::Relaxed), 0, "what is too much is not even checked");
    let good: Vec<Bytes> = (0..=most).map(|n| accusing(20 + n, 0, b"good")).collect();
    assert!(world.valid(&good[..usize::from(most)]));
    assert!(!world.valid(&good), "those that were checked before count too");

    // An honest leader takes no more, and what does not accuse goes on.
    for n in 0..=u64::from(most) {
        world.admission.submit(&client(1), accusing(1, 10 + n, b"good")).expect("it is looked at");
    }
    world.admission.submit(&client(2), batch(2, 10)).expect("it is taken");
    until("all wait", || world.admission.waiting() == usize::from(most) + 2);
    let proposed: Vec<Bytes> = world.propose().iter().map(|f| f.bytes().clone()).collect();
    assert_eq!(proposed.len(), usize::from(most) + 1);
    assert!(proposed.contains(&batch(2, 10)) && world.valid(&proposed));
}

/// Blocks out of a broker alone, so that they come with acknowledgements.
#[test]
fn rule_g6_blocks_are_acknowledged_when_they_are_executed_and_the_order_ends_when_they_cannot_be() {
    let folder = std::env::temp_dir().join(format!("sealcast-admission-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let world = World::new();
    let settings = sealcast_order::solo::Settings {
        namespace: CLUSTER.0.to_vec(),
        folder: folder.clone(),
        block: BlockSize::default(),
        unacknowledged: 8,
    };
    let solo = sealcast_order::solo::Solo::start(settings, world.admission.clone()).expect("it starts");
    let solo: Arc<dyn Order> = Arc::new(solo);
    world.admission.attach(solo.clone());
    world.admission.submit(&client(1), batch(1, 10)).expect("it is taken");
    until("it is executed", || solo.status().height == 1);
    assert_eq!(*lock(&world.ledger.executed), [(1, 1)]);
    assert_eq!((world.admission.waiting(), world.admission.executed()), (0, (1, 1)));
    assert!(world.admission.commit_micros() > 0);

    world.ledger.fails.store(true, Ordering::Relaxed);
    world.admission.submit(&client(2), batch(2, 10)).expect("it is taken");
    until("the order ends", || !solo.status().running);
    assert_eq!(solo.status().height, 1);
    world.admission.stop();
    assert_eq!(world.admission.submit(&client(1), batch(1, 14)), Err(Refusal::Ended));
    drop(solo);
    let _ = std::fs::remove_dir_all(&folder);
}
