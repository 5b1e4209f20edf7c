use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sealcast_broker::operation::{
    Accusation, Action, Batch, BatchError, Body, Client, Operation, Publication, Sealed, check,
};
use sealcast_broker::protocol::{Answer, Query, SignedKey, Why};
use sealcast_crypto::group::{P256, PrimeGroup, Ristretto255};
use sealcast_crypto::tdh2::{Combined, Combiner, KeyShare, Labelled, PublicKey, Share, Sharing};
use sealcast_keys::threshold::sealed::{Attachment, What};

use super::{Job, KeyWithShare};
use crate::fixture::{Broker, World, brokers, client, key as key_of, publication};
use crate::shares::deal;

/// Four brokers that have executed everything, with shares of which three open, or as many as are asked for.
struct Cluster<G: PrimeGroup> {
    world: World,
    brokers: Vec<Broker>,
    combiner: Combiner<G>,
    sealed: Vec<Labelled<G>>,
}

impl<G: PrimeGroup> Cluster<G>
where
    KeyWithShare: From<(PublicKey<G>, Option<KeyShare<G>>)>,
{
    /// With clients 1 to 3 of [`World::with_clients`]; 1 and 2 have channels.
    fn new() -> Cluster<G> {
        Cluster::with_threshold(3)
    }

    fn with_threshold(threshold: u16) -> Cluster<G> {
        let world = World::with_clients();
        let (key, shares) = deal::<G>(&world.cluster, threshold, 4, &mut ChaCha20Rng::seed_from_u64(4)).expect("a key");
        let mut brokers: Vec<Broker> = (0..4).map(|index| Broker::start(&world, index, &[1, 2])).collect();
        for (broker, share) in brokers.iter_mut().zip(shares) {
            broker.execute(&world, 1);
            let key = PublicKey::decode(&key.encode()).expect("its own bytes");
            broker.executor.set_key((key, Some(share)));
        }
        Cluster { world, brokers, combiner: Combiner::new(Arc::new(key)), sealed: Vec::new() }
    }

    /// Client 3 publishes a sealed payload to desk fx; the publication's operation.
    fn seal(&mut self, payload: &[u8]) -> Operation {
        let open = publication(Body::Plain(vec![]));
        let label = open.label(&client(3), self.world.number(3));
        let key = self.combiner.key();
        let ciphertext = key.encrypt(&label, payload, &mut ChaCha20Rng::seed_from_u64(self.sealed.len() as u64));
        let body = Body::Sealed(ciphertext.encode());
        self.sealed.push(key.bind(ciphertext, &label));
        Operation::Publish(Box::new(Publication { body, ..open }))
    }

    /// Publishes one payload; its sn.
    fn publish(&mut self, payload: &[u8]) -> u64 {
        let operation = self.seal(payload);
        let height = self.world.order(vec![(3, vec![operation])]);
        self.brokers.iter_mut().for_each(|it| it.execute(&self.world, height));
        self.brokers[0].executor.shared.kept(height).expect("it was executed").outbox.publications[0].sn
    }

    fn ask(&self, broker: usize, seed: u8, sn: u64, proved: bool) -> Result<What<G>, Why> {
        match self.brokers[broker].executor.answer(&client(seed), Query::Share { sn, proved }) {
            Answer::Share(bytes) => Ok(self.read(&bytes)),
            Answer::No(why) => Err(why),
            other => panic!("{other:?}"),
        }
    }

    fn read(&self, bytes: &[u8]) -> What<G> {
        let attachment = Attachment::from_bytes(bytes).expect("an attachment");
        assert!(self.sealed.iter().any(|it| *it.id() == attachment.ciphertext));
        attachment.what
    }

    /// What a client opens with the attachments that came to it.
    fn open(&mut self, seed: u8, sn: u64, place: usize) -> Vec<u8> {
        let shares: Vec<Share<G>> = self.brokers[..3]
            .iter()
            .map(|it| match self.read(&it.inbox.attachments(seed, place + 1)[&sn]) {
                What::Share(share) => share,
                other => panic!("{other:?}"),
            })
            .collect();
        match self.combiner.combine(&self.sealed[place], &shares) {
            Ok(Combined::Opened(payload)) => payload.to_vec(),
            other => panic!("{:?}", other.err()),
        }
    }
}

fn whom_the_policy_allows_opens_it_and_nobody_else<G: PrimeGroup>()
where
    KeyWithShare: From<(PublicKey<G>, Option<KeyShare<G>>)>,
{
    let mut cluster = Cluster::<G>::new();
    for (place, payload) in [&b"bid 1.0830"[..], b"ask 1.0832"].into_iter().enumerate() {
        let sn = cluster.publish(payload);
        assert_eq!(cluster.open(1, sn, place), payload);
        assert_eq!(cluster.ask(0, 2, sn, false), Ok(What::Denied), "of desk rates");
        assert_eq!(cluster.ask(0, 2, sn, true), Ok(What::Denied));
        assert_eq!(cluster.ask(0, 77, sn, false), Err(Why::Denied), "a stranger");
        // Whoever asks gets what whoever subscribed got.
        let sent = cluster.brokers[0].inbox.attachments(1, place + 1)[&sn].clone();
        assert_eq!(cluster.ask(0, 3, sn, false), Ok(cluster.read(&sent)));
    }
    assert!(cluster.brokers.iter().all(|it| it.inbox.attachments(2, 0).is_empty()));
    assert_eq!(cluster.ask(0, 1, 9999, false), Err(Why::Nothing), "nothing of what is not ordered");
}

#[test]
fn whom_the_policy_allows_opens_it_and_nobody_else_on_ristretto255() {
    whom_the_policy_allows_opens_it_and_nobody_else::<Ristretto255>();
}

#[test]
fn whom_the_policy_allows_opens_it_and_nobody_else_on_p256() {
    whom_the_policy_allows_opens_it_and_nobody_else::<P256>();
}

#[test]
fn with_t_of_f_plus_one_three_brokers_send_a_share_in_turn_and_who_is_asked_gives_one() {
    let mut cluster = Cluster::<Ristretto255>::with_threshold(2);
    let all: Vec<u64> = (0..8).map(|n| cluster.publish(&[n])).collect();
    let mut silent = vec![0; all.len()];
    for broker in 0..4 {
        let sent = cluster.brokers[broker].inbox.attachments(1, 6);
        for (place, sn) in all.iter().enumerate().filter(|(_, sn)| !sent.contains_key(sn)) {
            silent[place] += 1;
            assert!(matches!(cluster.ask(broker, 1, *sn, false), Ok(What::Share(_))));
        }
        assert_eq!(sent.len(), 6, "broker {broker}");
    }
    // One more that says nothing leaves two.
    assert_eq!(silent, [1; 8]);
}

#[test]
fn rule_e2_no_share_leaves_for_whom_was_revoked_meanwhile() {
    let mut cluster = Cluster::<Ristretto255>::new();
    let sn = cluster.publish(b"before");
    assert!(matches!(cluster.ask(0, 1, sn, false), Ok(What::Share(_))));
    let kept = cluster.brokers[0].executor.shared.kept(2).expect("it was executed");
    assert_eq!(cluster.brokers[0].inbox.attachments(1, 1).len(), 1);
    let act = cluster.world.admin(1, Action::RevokeClient(client(1)));
    let height = cluster.world.order(vec![(3, vec![act])]);
    cluster.brokers.iter_mut().for_each(|it| it.execute(&cluster.world, height));
    // Asked for again, and what was still to be computed when it was revoked.
    assert_eq!(cluster.ask(0, 1, sn, false), Ok(What::Denied));
    assert_eq!(cluster.ask(0, 1, sn, true), Ok(What::Denied));
    let shared = &cluster.brokers[0].executor.shared;
    shared.release.work(shared, &Job { kept, place: 0, readers: vec![client(1)] });
    let last = cluster.brokers[0].inbox.attachments(1, 2)[&sn].clone();
    assert_eq!(cluster.read(&last), What::Denied);
    assert!(matches!(cluster.ask(0, 3, sn, false), Ok(What::Share(_))), "others read on");
}

#[test]
fn rule_e4_a_proof_is_made_once_signed_and_given_to_all() {
    let mut cluster = Cluster::<Ristretto255>::new();
    let sn = cluster.publish(b"doubted");
    let first = cluster.ask(1, 1, sn, true);
    let Ok(What::Proved(signed)) = &first else { panic!("{first:?}") };
    // A second proof would have another nonce.
    assert_eq!(first, cluster.ask(1, 3, sn, true));
    cluster.combiner.key().verify_share(&cluster.sealed[0], &signed.proved).expect("it is right");
    let statement = sealcast_keys::threshold::sealed::statement(
        &cluster.world.cluster.0,
        &Sharing::First,
        cluster.sealed[0].id(),
        &signed.proved.encode(),
    );
    let broker = sealcast_crypto::ed25519::Key::new(&brokers()[1].public_bytes()).expect("a key");
    assert!(broker.verify(&statement, &signed.signature), "who lies in it is convicted by it");
    let busy = (0..2000).map(|_| cluster.ask(1, 1, sn, true)).find(Result::is_err);
    assert_eq!(busy, Some(Err(Why::Busy)));
    assert!(cluster.ask(1, 3, sn, true).is_ok(), "one client's asking is not another's");
}

#[test]
fn rule_e4_t_signed_shares_of_a_false_ciphertext_suspend_its_publisher() {
    suspends::<Ristretto255>();
    suspends::<P256>();
}

fn suspends<G: PrimeGroup>()
where
    KeyWithShare: From<(PublicKey<G>, Option<KeyShare<G>>)>,
{
    let mut cluster = Cluster::<G>::new();
    let open = publication(Body::Plain(vec![]));
    let number = cluster.world.number(3);
    let label = open.label(&client(3), number);
    let key = cluster.combiner.key();
    let ciphertext = key.encrypt_falsely(&label, 40, &mut ChaCha20Rng::seed_from_u64(8));
    let bytes = ciphertext.encode();
    cluster.sealed.push(key.bind(ciphertext, &label));
    let published = Publication { body: Body::Sealed(bytes.clone()), ..open.clone() };
    let height = cluster.world.order(vec![(3, vec![Operation::Publish(Box::new(published))])]);
    cluster.brokers.iter_mut().for_each(|it| it.execute(&cluster.world, height));
    let sn = cluster.brokers[0].executor.shared.kept(height).expect("it was executed").outbox.publications[0].sn;
    let proof = |broker: usize| match cluster.ask(broker, 1, sn, true) {
        Ok(What::Proved(signed)) => [&signed.proved.encode()[..], &signed.signature].concat(),
        other => panic!("{other:?}"),
    };
    let proofs: Vec<Vec<u8>> = (0..4).map(proof).collect();
    let accuse = |proofs: &[&Vec<u8>]| {
        let count = u16::try_from(proofs.len()).expect("four").to_be_bytes().to_vec();
        let shares = [&[&count], proofs].concat().into_iter().flatten().copied().collect();
        let (client, envelope, ciphertext) = (client(3), open.envelope(), bytes.clone());
        let sharing = Sharing::First;
        Operation::Accuse(Box::new(Accusation { sn, client, number, envelope, ciphertext, sharing, shares }))
    };
    let verdict = |broker: usize, operation: &Operation| {
        let batch = Batch::sign(&cluster.world.cluster, &key_of(1), cluster.world.number(1), vec![operation.clone()]);
        let executor = &cluster.brokers[broker].executor;
        let judged = check(&cluster.world.cluster, vec![batch], |sealed| executor.ciphertexts_valid(sealed));
        judged.into_iter().next().expect("one batch").map(drop)
    };
    let good = accuse(&[&proofs[0], &proofs[1], &proofs[3]]);
    assert!((0..4).all(|broker| verdict(broker, &good) == Ok(())));
    for few in [vec![&proofs[0], &proofs[1]], vec![&proofs[0], &proofs[1], &proofs[1]], proofs.iter().collect()] {
        assert!((0..4).all(|broker| verdict(broker, &accuse(&few)) == Err(BatchError::Accusation)));
    }
    let height = cluster.world.order(vec![(1, vec![good])]);
    for broker in &mut cluster.brokers {
        broker.execute(&cluster.world, height);
        let Answer::Status(status) = broker.executor.answer(&client(2), Query::Status) else { panic!("a status") };
        assert_eq!(status.suspended, [(client(3), height)]);
    }
}

#[test]
fn ciphertexts_are_good_for_their_own_label_and_under_a_key() {
    let mut cluster = Cluster::<Ristretto255>::new();
    let operation = cluster.seal(b"x");
    let Operation::Publish(publication) = &operation else { panic!("a publication") };
    let Body::Sealed(ciphertext) = &publication.body else { panic!("sealed") };
    let id = sealcast_broker::operation::OperationId::of(&operation.to_bytes());
    let number = cluster.world.number(3);
    let under = |client: Client, number: u64| Sealed {
        client,
        number,
        id,
        label: publication.label(&client, number),
        epoch: 0,
        ciphertext,
        against: None,
    };
    let cut = Sealed { ciphertext: &ciphertext[1..], ..under(client(3), number + 9) };
    let all = [under(client(3), number), under(client(1), number), under(client(3), number + 1), cut];
    let executor = &cluster.brokers[0].executor;
    for _ in 0..2 {
        assert_eq!(executor.ciphertexts_valid(&all), [true, false, false, false], "also when it is known");
    }
    let keyless = Broker::start(&cluster.world, 0, &[]);
    assert_eq!(keyless.executor.ciphertexts_valid(&all), [false; 4]);
    assert_eq!(keyless.executor.answer(&client(1), Query::Key), Answer::No(Why::Nothing));
}

#[test]
fn a_broker_without_a_share_checks_by_the_key_and_helps_nobody_to_read() {
    let mut cluster = Cluster::<Ristretto255>::new();
    let lost = &cluster.brokers[3];
    let key = PublicKey::<Ristretto255>::decode(&cluster.combiner.key().encode()).expect("its own bytes");
    lost.executor.set_key((key, None));
    let operation = cluster.seal(b"x");
    let batch = Batch::sign(&cluster.world.cluster, &key_of(3), cluster.world.number(3), vec![operation.clone()]);
    let verdict = |batch: Batch| {
        let executor = &cluster.brokers[3].executor;
        let judged = check(&cluster.world.cluster, vec![batch], |sealed| executor.ciphertexts_valid(sealed));
        judged.into_iter().next().expect("one batch").map(drop)
    };
    assert_eq!(verdict(batch), Ok(()), "it votes for what is well-formed");
    let moved = Batch::sign(&cluster.world.cluster, &key_of(1), 7, vec![operation]);
    assert_eq!(verdict(moved), Err(BatchError::Ciphertext), "and for nothing else");
    let sn = cluster.publish(b"y");
    assert_eq!(cluster.ask(3, 1, sn, false), Err(Why::Nothing));
    assert_eq!(cluster.ask(3, 1, sn, true), Err(Why::Nothing));
    assert_eq!(cluster.ask(3, 2, sn, false), Ok(What::Denied), "it says whom it finds to have no right");
    assert!(matches!(cluster.ask(0, 1, sn, false), Ok(What::Share(_))), "others do");
    let Answer::Status(status) = cluster.brokers[3].executor.answer(&client(1), Query::Status) else { panic!() };
    assert!(status.key_age.is_some() && !status.has_share);
}

#[test]
fn after_a_restart_shares_are_of_ciphertexts_checked_anew() {
    let mut cluster = Cluster::<Ristretto255>::new();
    let sn = cluster.publish(b"old");
    let before = cluster.ask(0, 1, sn, false);
    let folder = cluster.brokers.remove(0).end();
    let broker = Broker::start_in(folder, &cluster.world, 0, &[]);
    let (key, mut shares) =
        deal::<Ristretto255>(&cluster.world.cluster, 3, 4, &mut ChaCha20Rng::seed_from_u64(4)).expect("a key");
    broker.executor.set_key((key, Some(shares.remove(0))));
    cluster.brokers.insert(0, broker);
    assert_eq!(cluster.ask(0, 1, sn, false), Err(Why::Pruned), "nobody has the block");
    let refused = [false, true].map(|proved| cluster.ask(0, 77, sn, proved));
    assert_eq!(refused, [Err(Why::Denied), Err(Why::Denied)], "G8: for strangers nobody looks for it");
    let archive = &cluster.brokers[0].archive;
    archive.0.lock().unwrap().extend(cluster.world.ordered.iter().map(|(block, _)| block.clone()));
    assert_eq!(cluster.ask(0, 1, sn, false), before);
}

#[test]
fn a_broker_vouches_for_the_key_in_its_own_name() {
    let cluster = Cluster::<Ristretto255>::new();
    let executor = &cluster.brokers[2].executor;
    let Answer::Key(signed) = executor.answer(&client(1), Query::Key) else { panic!("no key") };
    assert_eq!(signed.key, cluster.combiner.key().encode());
    let statement = SignedKey::statement(&cluster.world.cluster, 0, &signed.key);
    let broker = sealcast_crypto::ed25519::Key::new(&brokers()[2].public_bytes()).expect("a key");
    assert!(broker.verify(&statement, &signed.signature));
    assert_eq!(executor.welcome(&client(1)).key, Some(signed));
}
