use sealcast_broker::genesis::Cluster;
use sealcast_broker::operation::{self, Body, Execute, Header, Operation, Publication, check};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;

use super::*;

const CLUSTER: Cluster = Cluster([7; 32]);
const SIZE: BlockSize = BlockSize { batches: 3, bytes: 1 << 20 };

fn key(seed: u8) -> OriginKey {
    OriginKey::from_seed(&Secret::from_bytes([seed; 32]))
}

fn client(seed: u8) -> Client {
    Client(key(seed).public_bytes())
}

/// A batch of a client with the operations `first..end`.
fn batch(seed: u8, first: u64, end: u64) -> Batch {
    let operations = (first..end).map(Operation::Unsubscribe).collect();
    Batch::new(operation::Batch::sign(&CLUSTER, &key(seed), first, operations).to_bytes())
}

fn checked(batch: &Batch) -> Checked {
    let parsed = operation::Batch::from_bytes(batch.bytes()).unwrap();
    check(&CLUSTER, vec![parsed], |sealed| vec![true; sealed.len()]).remove(0).unwrap()
}

fn head(batch: &Batch) -> Head {
    Head::of(batch.bytes()).unwrap()
}

fn block(height: u64, batches: &[Batch]) -> Arc<Block> {
    Arc::new(Block { parent: [0; 32], height, time: 0, batches: batches.to_vec() })
}

/// The account of a client with a credential of its own.
fn known(client: Client) -> Account {
    Account::of(client, Some(Holder::new(("authority".into(), client.0.to_vec()))))
}

impl Mempool {
    fn with(batches: &[Batch]) -> Mempool {
        let mut mempool = Mempool::default();
        batches.iter().for_each(|f| mempool.admit(f));
        mempool
    }

    fn admit(&mut self, batch: &Batch) {
        self.reserve(batch, head(batch), known(head(batch).client)).unwrap();
        self.settle(&batch.hash(), Some(checked(batch)));
        assert!(self.enter(&batch.hash()));
    }

    fn is_empty(&self) -> bool {
        let shares = self.shares.is_empty() && [self.all, self.unregistered] == [Share::default(); 2];
        let waits = !self.waiting.is_empty() || !self.authors.is_empty();
        shares && !waits && self.held.is_empty() && self.strays.is_empty() && self.stray_bytes == 0
    }
}

fn propose(mempool: &Mempool, ancestors: &[Arc<Block>], next: impl Fn(&Client) -> Option<u64>) -> Vec<Batch> {
    let turns = mempool.authors().into_iter().map(|who| (who, next(&who))).collect();
    mempool.propose(ancestors, SIZE, turns)
}

fn unregistered(_: &Client) -> Option<u64> {
    None
}

#[test]
fn rule_e14_a_batch_stays_until_it_is_delivered() {
    let batches: Vec<Batch> = (0..5).map(|n| batch(n, 0, 1)).collect();
    let mut mempool = Mempool::with(&batches);
    assert_eq!(propose(&mempool, &[], unregistered), batches[..3]);
    let flying = block(1, &batches[..3]);
    assert_eq!(propose(&mempool, std::slice::from_ref(&flying), unregistered), batches[3..]);
    // The view of that block was skipped.
    assert_eq!(propose(&mempool, &[], unregistered), batches[..3]);
    assert_eq!(mempool.oldest(SIZE), batches[..3]);

    assert!(mempool.deliver(&flying).iter().all(Option::is_some), "they are not checked again");
    assert_eq!(propose(&mempool, &[], unregistered), batches[3..]);
    assert_eq!(mempool.reserve(&batches[0], head(&batches[0]), known(client(1))), Err(AdmissionError::Known));
    assert_eq!(mempool.executed(1).len(), 3);
    assert_eq!(
        mempool.reserve(&batches[0], head(&batches[0]), known(client(1))),
        Ok(()),
        "a gap may have made it void"
    );
    mempool.settle(&batches[0].hash(), None);
    mempool.deliver(&block(2, &batches[3..]));
    assert!(mempool.is_empty());
}

#[test]
fn rule_g7_whoever_fills_the_room_leaves_room_for_others() {
    let mut mempool = Mempool::default();
    let big = |seed: u8, n: u64| {
        // The bytes are never parsed here.
        let mut bytes = batch(seed, n, n + 1).bytes().to_vec();
        bytes.resize(limits::BATCH_BYTES_MAX, 0);
        Batch::new(bytes)
    };
    let fill = |mempool: &mut Mempool, seed: u8| {
        (0..)
            .take_while(|n| {
                let head = Head { client: client(seed), first: *n, end: n + 1 };
                mempool.reserve(&big(seed, *n), head, known(client(seed))).is_ok()
            })
            .count()
    };
    let all = limits::ORDER_POOL_BYTES_MAX / limits::BATCH_BYTES_MAX;
    let first = fill(&mut mempool, 1);
    assert!((all / 4..=all / 3 + 1).contains(&first), "one alone has a third: {first}");
    let others: Vec<usize> = (2..8).map(|seed| fill(&mut mempool, seed)).collect();
    assert!(others.iter().all(|n| *n >= 1), "whoever comes new finds room: {others:?}");
    assert!(mempool.bytes() <= limits::ORDER_POOL_BYTES_MAX);
    let one_more = Head { client: client(1), first: 99, end: 100 };
    assert_eq!(mempool.reserve(&big(1, 99), one_more, known(client(1))), Err(AdmissionError::Quota));
}

#[test]
fn rule_g7_many_keys_of_one_credential_have_one_share() {
    let mut mempool = Mempool::default();
    let holder = |name: &str| Some(Holder::new((name.into(), b"serial".to_vec())));
    let reserve = |mempool: &mut Mempool, n: u8, name: &str| {
        let mut bytes = batch(n, 0, 1).bytes().to_vec();
        bytes.resize(limits::BATCH_BYTES_MAX, 0);
        let batch = Batch::new(bytes);
        mempool.reserve(&batch, head(&batch), Account::of(client(n), holder(name)))
    };
    let taken = (0..u8::MAX).take_while(|n| reserve(&mut mempool, *n, "mallory's").is_ok()).count();
    let all = limits::ORDER_POOL_BYTES_MAX / limits::BATCH_BYTES_MAX;
    assert!((all / 4..=all / 3 + 1).contains(&taken), "a third, as one client alone: {taken}");
    assert_eq!(reserve(&mut mempool, u8::MAX, "ann's"), Ok(()));
}

#[test]
fn rule_g7_a_stranger_has_little_room() {
    let mut mempool = Mempool::default();
    let batches: Vec<Batch> = (0..=limits::UNREGISTERED_BATCHES_MAX as u64).map(|n| batch(1, n, n + 1)).collect();
    let taken =
        batches.iter().take_while(|f| mempool.reserve(f, head(f), Account::Unregistered(client(1))).is_ok()).count();
    assert_eq!(taken, limits::UNREGISTERED_BATCHES_MAX);
    assert_eq!(
        mempool.reserve(&batches[taken], head(&batches[taken]), Account::Unregistered(client(1))),
        Err(AdmissionError::Quota)
    );
    batches[..taken].iter().for_each(|f| mempool.settle(&f.hash(), None));
    assert!(mempool.is_empty());

    // Keys are free: many unregistered clients together have a part, and the registered the rest.
    let largest = |n: u32| {
        let mut bytes = batch(1, 0, 1).bytes().to_vec();
        bytes[1..5].copy_from_slice(&n.to_be_bytes());
        bytes.resize(limits::UNREGISTERED_BYTES_MAX, 0);
        Batch::new(bytes)
    };
    let many = (0..)
        .map(largest)
        .take_while(|f| mempool.reserve(f, head(f), Account::Unregistered(head(f).client)).is_ok())
        .count();
    assert_eq!(many, limits::UNREGISTERED_BYTES_TOTAL_MAX / limits::UNREGISTERED_BYTES_MAX);
    let late = largest(u32::MAX);
    assert_eq!(
        mempool.reserve(&late, head(&late), Account::Unregistered(head(&late).client)),
        Err(AdmissionError::Full)
    );
    assert_eq!(mempool.reserve(&late, head(&late), known(client(1))), Ok(()));
}

#[test]
fn a_batch_waits_for_those_before_it_but_not_for_ever() {
    let (a, b, c) = (batch(1, 5, 7), batch(1, 7, 8), batch(1, 9, 10));
    let next = |who: &Client| (*who == client(1)).then_some(5);
    // They come in another order than they are numbered, and 8 never comes.
    let mut mempool = Mempool::with(&[c.clone(), b.clone(), a.clone()]);
    assert_eq!(propose(&mempool, &[], next), std::slice::from_ref(&a), "its turn comes first");
    let flying = block(1, std::slice::from_ref(&a));
    assert_eq!(propose(&mempool, std::slice::from_ref(&flying), next), std::slice::from_ref(&b));
    mempool.deliver(&flying);
    mempool.deliver(&block(2, &[b]));
    let executed = |_: &Client| Some(8);
    assert_eq!(propose(&mempool, &[], executed), []);
    mempool.deliver(&block(limits::TURN_TIMEOUT_BLOCKS, &[]));
    assert_eq!(propose(&mempool, &[], executed), [c], "the state says what is missing");
}

#[test]
fn a_batch_whose_turn_nobody_asked_for_is_for_the_next_block() {
    let (a, b) = (batch(1, 5, 7), batch(2, 5, 7));
    let mut mempool = Mempool::with(std::slice::from_ref(&a));
    let turns: BTreeMap<Client, Option<u64>> = mempool.authors().into_iter().map(|who| (who, Some(5))).collect();
    mempool.admit(&b);
    assert_eq!(mempool.propose(&[], SIZE, turns), [a]);
}

#[test]
fn a_batch_that_a_block_brings_is_remembered_until_the_block_is_delivered() {
    let (a, b) = (batch(1, 0, 1), batch(2, 0, 1));
    let mut mempool = Mempool::default();
    mempool.remember(&a, head(&a), checked(&a));
    mempool.remember(&b, head(&b), checked(&b));
    assert!(mempool.checked(&a.hash()).is_some() && propose(&mempool, &[], unregistered).is_empty());
    // A client brings one of them after all: it need not be checked again.
    assert_eq!(mempool.reserve(&b, head(&b), known(client(1))), Ok(()));
    assert!(mempool.checked(&b.hash()).is_some() && mempool.enter(&b.hash()));
    assert_eq!(propose(&mempool, &[], unregistered), std::slice::from_ref(&b));
    assert_eq!(mempool.deliver(&block(1, &[a, b])).iter().filter(|known| known.is_some()).count(), 2);
    assert!(mempool.is_empty());
}

#[test]
fn a_block_may_come_while_its_batch_is_being_checked() {
    let a = batch(1, 0, 1);
    let mut mempool = Mempool::default();
    mempool.reserve(&a, head(&a), known(client(1))).unwrap();
    assert_eq!(mempool.deliver(&block(1, std::slice::from_ref(&a))), [None]);
    mempool.settle(&a.hash(), Some(checked(&a)));
    assert!(!mempool.enter(&a.hash()) && mempool.is_empty());

    let b = batch(1, 1, 2);
    mempool.reserve(&b, head(&b), known(client(1))).unwrap();
    mempool.remember(&b, head(&b), checked(&b));
    mempool.settle(&b.hash(), Some(checked(&b)));
    assert!(mempool.enter(&b.hash()));
}

#[test]
fn rule_g7_batches_of_blocks_that_failed_are_forgotten_at_last() {
    let mut mempool = Mempool::default();
    let big = |n: u64| {
        let mut bytes = batch(1, n, n + 1).bytes().to_vec();
        bytes.resize(limits::BATCH_BYTES_MAX, 0);
        Batch::new(bytes)
    };
    let good = checked(&batch(1, 0, 1));
    let all = 2 * (limits::STRAY_BATCHES_BYTES_MAX / limits::BATCH_BYTES_MAX) as u64;
    for n in 0..all {
        mempool.remember(&big(n), Head { client: client(1), first: n, end: n + 1 }, good.clone());
    }
    assert!(mempool.stray_bytes <= limits::STRAY_BATCHES_BYTES_MAX);
    assert!(mempool.checked(&big(0).hash()).is_none() && mempool.checked(&big(all - 1).hash()).is_some());
}

/// A batch of this length; its bytes are never parsed beyond their head.
fn long(seed: u8, n: u64, bytes: usize) -> Batch {
    let mut all = batch(seed, n, n + 1).bytes().to_vec();
    all.resize(bytes, 0);
    Batch::new(all)
}

impl Mempool {
    /// So many long batches of a client, which wait.
    fn flood(&mut self, seed: u8, batches: u64, bytes: usize) {
        let good = checked(&batch(seed, 0, 1));
        for n in 0..batches {
            let it = long(seed, n, bytes);
            self.reserve(&it, head(&it), known(client(seed))).expect("there is room");
            self.settle(&it.hash(), Some(good.clone()));
            assert!(self.enter(&it.hash()));
        }
    }
}

const FULL: BlockSize = BlockSize { batches: limits::BLOCK_BATCHES, bytes: limits::BLOCK_BYTES };

fn propose_full(mempool: &Mempool, ancestors: &[Arc<Block>]) -> Vec<Batch> {
    mempool.propose(ancestors, FULL, mempool.authors().into_iter().map(|who| (who, None)).collect())
}

#[test]
fn rule_g7_a_clients_wait_does_not_depend_on_anothers_backlog() {
    let honest = batch(1, 0, 1);
    for backlog in [4, 1000] {
        let mut mempool = Mempool::default();
        mempool.flood(2, backlog, 32 << 10);
        mempool.admit(&honest);
        let place = propose_full(&mempool, &[]).iter().position(|it| *it == honest);
        assert_eq!(place, Some(0), "it is the shortest, and all are new");
        let forwarded = mempool.oldest(FULL).iter().position(|it| *it == honest);
        assert_eq!(forwarded, Some(0), "what a new leader is sent has the same turns");

        // A block of the flood is on its way; what comes now stands in the next one.
        let mut mempool = Mempool::default();
        mempool.flood(2, backlog, 32 << 10);
        let flying = block(1, &propose_full(&mempool, &[]));
        mempool.admit(&honest);
        let next = propose_full(&mempool, std::slice::from_ref(&flying));
        assert_eq!(next.iter().position(|it| *it == honest), Some(0));
    }
}

#[test]
fn rule_g7_accounts_with_much_waiting_share_a_block_and_leave_a_newcomer_its_turn() {
    let mut mempool = Mempool::default();
    (2..10).for_each(|seed| mempool.flood(seed, 64, 32 << 10));
    for height in 1..4 {
        let proposed = propose_full(&mempool, &[]);
        let of = |seed: u8| proposed.iter().filter(|it| head(it).client == client(seed)).count();
        let shares: Vec<usize> = (2..10).map(of).collect();
        assert!(shares.iter().all(|it| *it == 8), "64 batches fit, of eight accounts: {shares:?}");
        for seed in 2..10 {
            let numbers: Vec<u64> =
                proposed.iter().map(head).filter(|it| it.client == client(seed)).map(|it| it.first).collect();
            assert!(numbers.is_sorted(), "one client's batches keep their order: {numbers:?}");
        }
        mempool.deliver(&block(height, &proposed));
        mempool.executed(height);
    }
    let honest = batch(1, 0, 1);
    mempool.admit(&honest);
    let place = propose_full(&mempool, &[]).iter().position(|it| *it == honest);
    assert!(place.is_some_and(|it| it <= 8), "at most one of each other account stands before it: {place:?}");
}

#[test]
fn rule_g7_a_block_that_a_broker_proposes_is_soon_checked() {
    let sealed = |n: u64| {
        let publication = Publication { body: Body::Sealed(vec![7; 9]), ..plain() };
        let operations = vec![Operation::Publish(Box::new(publication)); SEALED_OF_A_BATCH];
        Batch::new(operation::Batch::sign(&CLUSTER, &key(1), n * 1000, operations).to_bytes())
    };
    let batches: Vec<Batch> = (0..10).map(sealed).collect();
    let mempool = Mempool::with(&batches);
    let proposed = propose_full(&mempool, &[]);
    assert_eq!(proposed.len(), limits::BLOCK_CIPHERTEXTS_PROPOSED_MAX / SEALED_OF_A_BATCH);
    let flying = block(1, &proposed);
    assert_eq!(
        propose_full(&mempool, std::slice::from_ref(&flying)),
        batches[proposed.len()..],
        "the rest is for the next one"
    );
}

const SEALED_OF_A_BATCH: usize = 64;

fn plain() -> Publication {
    Publication {
        headers: vec![Header { topic: "a".into(), value: None }],
        associated: vec![],
        access: None,
        execute: Execute::Nothing,
        policy: 0,
        epoch: 0,
        body: Body::Plain(vec![]),
    }
}

#[test]
fn rule_g7_while_much_is_not_executed_blocks_are_small_and_whoever_comes_new_is_in_them() {
    let mut mempool = Mempool::default();
    mempool.flood(2, 900, 32 << 10);
    let mut height = 0;
    while mempool.on_their_way_bytes.values().sum::<usize>() + limits::BLOCK_BYTES <= limits::UNEXECUTED_BYTES_MAX {
        height += 1;
        let proposed = propose_full(&mempool, &[]);
        assert!(proposed.len() > 32, "a full one: {}", proposed.len());
        mempool.deliver(&block(height, &proposed));
    }
    let honest = batch(1, 0, 1);
    mempool.admit(&honest);
    let proposed = propose_full(&mempool, &[]);
    let bytes: usize = proposed.iter().map(|it| it.bytes().len()).sum();
    assert!(bytes <= limits::BLOCK_BYTES_ALWAYS && proposed.contains(&honest), "{bytes} bytes");
    mempool.executed(height);
    assert!(propose_full(&mempool, &[]).len() > 32, "what is executed makes room");
}

#[test]
fn batches_of_blocks_that_failed_are_forgotten_after_a_while() {
    let mut mempool = Mempool::default();
    let a = batch(1, 0, 1);
    mempool.remember(&a, head(&a), checked(&a));
    mempool.deliver(&block(limits::STRAY_BLOCKS_MAX, &[]));
    assert!(mempool.checked(&a.hash()).is_some(), "another leader may bring it");
    mempool.deliver(&block(limits::STRAY_BLOCKS_MAX + 1, &[]));
    assert!(mempool.is_empty(), "its memory goes back");
}

#[test]
fn an_account_is_alone_once_no_other_has_published_for_a_while() {
    let mut mempool = Mempool::with(&[batch(1, 0, 1), batch(1, 1, 2)]);
    assert!(!mempool.is_shared(), "nobody else ever published");
    mempool.admit(&batch(2, 0, 1));
    mempool.admit(&batch(2, 1, 2));
    mempool.deliver(&block(limits::ALONE_BLOCKS, &[]));
    assert!(mempool.is_shared());
    mempool.deliver(&block(limits::ALONE_BLOCKS + 1, &[]));
    assert!(!mempool.is_shared());
    mempool.admit(&batch(1, 2, 3));
    assert!(!mempool.is_shared(), "the other one published long ago");
    mempool.admit(&batch(2, 2, 3));
    assert!(mempool.is_shared(), "it is back");
}
