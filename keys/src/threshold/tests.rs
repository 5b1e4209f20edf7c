//! A cluster of n holders, of which some lie, and readers that get different shares of the same ciphertexts.

mod sharings;

use aws_lc_rs::digest::{SHA512, digest};
use curve25519_dalek::Scalar;
use curve25519_dalek::ristretto::RistrettoPoint;
use proptest::prelude::*;
use sealcast_crypto::aead;
use sealcast_crypto::group::Parameters;
use sealcast_crypto::signature::{OriginKey, Signature};
use sealcast_crypto::tdh2::{Checked, KeyShare, Label, PublicKey, Sharing, deal, vouching};
use sealcast_wire::{EpochId, Utc};

use super::sealed::{SignedShare, What, statement};
use super::*;

type G = Ristretto255;

const CLUSTER: [u8; 32] = [7; 32];

struct World {
    config: Config<G>,
    holders: Vec<KeyShare<G>>,
    signing: Vec<OriginKey>,
    rng: ChaCha20Rng,
}

fn now(millis: u64) -> Now {
    Now { monotonic: Monotonic(millis * 1000), utc: Some(Utc(0)) }
}

fn envelope() -> Envelope {
    Envelope {
        headers: vec![("market/eurusd".into(), None), ("price".into(), Some("105".into()))],
        associated: b"ad".to_vec(),
        access: Some(b"a condition".to_vec()),
        execute: sealcast_wire::envelope::NOTHING.to_vec(),
        policy: 0,
        epoch: 0,
    }
}

/// Seals under a client's number of the publication.
fn seal(client: &mut Threshold<G>, number: u64, envelope: &Envelope, bodies: &[&[u8]]) -> Result<Sealed, SealError> {
    client.seal(&Seal { id: u128::from(number).to_be_bytes(), envelope, bodies })
}

impl World {
    fn new(t: u16, n: u16) -> World {
        let mut rng = ChaCha20Rng::seed_from_u64(u64::from(t));
        let (key, holders) = deal::<G>(Parameters::new(b"test", t, n), &mut rng).unwrap();
        let signing: Vec<_> = (0..n).map(|i| OriginKey::from_seed(&Secret::from_bytes([i as u8 + 1; 32]))).collect();
        let brokers: Vec<_> = signing.iter().map(OriginKey::public_bytes).collect();
        let key = key.encode();
        let config = Config::new([1; 32], CLUSTER, &brokers, &key, &pin(&CLUSTER, &key)).unwrap();
        World { config, holders, signing, rng }
    }

    fn key(&self) -> &PublicKey<G> {
        &self.config.key
    }

    fn client(&self) -> Threshold<G> {
        let seed = Secret::from_bytes([9; 32]);
        Threshold::new("reader", Incarnation::default(), self.config.clone(), RequiredVersions::default(), &seed)
    }

    fn publish(&self, number: u64, payload: &[u8]) -> Sealed {
        seal(&mut self.client(), number, &envelope(), &[payload]).unwrap()
    }

    fn checked(&self, it: &Sealed) -> Checked<G> {
        let label = sealed::label(&SealedHeader::from_bytes(&it.header).unwrap());
        self.key().check(self.key().bind(Ciphertext::decode(&it.body).unwrap(), &label)).unwrap()
    }

    /// What broker b attaches as share.
    fn share(&self, b: u16, it: &Sealed) -> (u16, Vec<u8>) {
        let checked = self.checked(it);
        let share = self.holders[usize::from(b)].share(&checked).unwrap();
        (b, Attachment { ciphertext: *checked.id(), what: What::Share(share) }.to_bytes())
    }

    /// A share of another message, said to be of this one.
    fn wrong(&self, b: u16, it: &Sealed) -> (u16, Vec<u8>) {
        let other = self.checked(&self.publish(99, b"another"));
        let share = self.holders[usize::from(b)].share(&other).unwrap();
        (b, Attachment { ciphertext: *self.checked(it).id(), what: What::Share(share) }.to_bytes())
    }

    /// With proof: of `of`, signed as one of `it`.
    fn proved(&mut self, b: u16, it: &Sealed, of: &Sealed) -> (u16, Vec<u8>) {
        let (ciphertext, of) = (*self.checked(it).id(), self.checked(of));
        let proved = self.holders[usize::from(b)].prove(&of, &mut self.rng).unwrap();
        let sharing = self.key().sharing();
        let signature =
            self.signing[usize::from(b)].sign(&statement(&CLUSTER, &sharing, &ciphertext, &proved.encode()));
        (b, Attachment { ciphertext, what: What::Proved(SignedShare { sharing, proved, signature }) }.to_bytes())
    }

    fn proof(&mut self, b: u16, it: &Sealed) -> (u16, Vec<u8>) {
        self.proved(b, it, it)
    }
}

/// What a reader did since it was last asked.
#[derive(Debug, Default, PartialEq)]
struct Did {
    opened: Vec<(u64, Option<Vec<Vec<u8>>>)>,
    asked: Vec<u64>,
    evidence: Vec<(Culprit, Vec<u8>)>,
}

fn did(reader: &mut Threshold<G>) -> Did {
    let mut did = Did::default();
    while let Some(output) = reader.poll() {
        match output {
            Output::Opened { index, origin: None, bodies } => did.opened.push((index, bodies)),
            Output::Fetch { id, what: Fetch::Shares { index, .. } } => {
                did.asked.push(index);
                reader.fetched(now(0), id, Fetched::Missing);
            }
            Output::Notice { notice: Notice::Evidence(Evidence { against, record, .. }), .. } => {
                did.evidence.push((against, record));
            }
            Output::Epoch { .. } => {}
            _ => panic!("not of this scheme"),
        }
    }
    did
}

fn give(reader: &mut Threshold<G>, index: u64, it: &Sealed, attachments: &[(u16, Vec<u8>)]) -> Did {
    reader.open(now(0), Delivered { index, header: &it.header, body: Some(&it.body), attachments });
    did(reader)
}

fn attach(reader: &mut Threshold<G>, index: u64, attachments: &[(u16, Vec<u8>)]) -> Did {
    reader.open(now(0), Delivered { index, header: &[], body: None, attachments });
    did(reader)
}

fn opened(index: u64, payload: &[u8]) -> Did {
    Did { opened: vec![(index, Some(vec![payload.to_vec()]))], ..Did::default() }
}

fn nothing() -> Did {
    Did::default()
}

/// All sets of t of 4 brokers.
fn sets(t: u32) -> impl Iterator<Item = Vec<u16>> {
    (0_u16..16).filter(move |set| set.count_ones() == t).map(|set| (0..4).filter(|i| set >> i & 1 == 1).collect())
}

#[test]
fn rule_e2_any_t_brokers_release_and_fewer_do_not() {
    for t in [3, 2] {
        let world = World::new(t, 4);
        let it = world.publish(5, b"payload");
        for set in sets(u32::from(t)) {
            let shares: Vec<_> = set.iter().map(|b| world.share(*b, &it)).collect();
            let mut reader = world.client();
            assert_eq!(give(&mut reader, 3, &it, &shares[1..]), nothing(), "one share is missing");
            assert_eq!(attach(&mut reader, 3, &shares[..1]), opened(3, b"payload"));
            let mut early = world.client();
            assert_eq!(attach(&mut early, 3, &shares), nothing());
            assert_eq!(give(&mut early, 3, &it, &[]), opened(3, b"payload"), "shares may come first");
            assert!(early.collecting.is_empty() && early.bytes == 0 && early.timeout().is_none());
        }
    }
}

#[test]
fn one_ciphertext_serves_several_publications_of_one_policy() {
    let world = World::new(3, 4);
    let payloads: Vec<Vec<u8>> = (0..16).map(|i| vec![i; 10 + usize::from(i)]).collect();
    let borrowed: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
    let it = seal(&mut world.client(), 5, &envelope(), &borrowed).unwrap();
    let shares: Vec<_> = (0..3).map(|b| world.share(b, &it)).collect();
    let found = give(&mut world.client(), 3, &it, &shares);
    assert_eq!(found.opened, [(3, Some(payloads))]);
    let sealed = |payloads: &[&[u8]]| seal(&mut world.client(), 5, &envelope(), payloads).map(|_| ());
    assert_eq!(sealed(&[]), Err(SealError::TooLarge));
    assert_eq!(sealed(&vec![&b""[..]; limits::SEALED_TOGETHER_MAX]), Ok(()));
    assert_eq!(sealed(&vec![&b""[..]; limits::SEALED_TOGETHER_MAX + 1]), Err(SealError::TooLarge));
    let room = limits::BODY_BYTES_MAX - Ciphertext::<G>::OVERHEAD - 6;
    assert_eq!(sealed(&[&vec![0; room]]), Ok(()));
    assert_eq!(sealed(&[&vec![0; room + 1]]), Err(SealError::TooLarge));
}

#[test]
fn a_wrong_share_costs_one_round_of_proofs_and_its_sender_the_belief() {
    for t in [3, 2] {
        let mut world = World::new(t, 4);
        let mut reader = world.client();
        let it = world.publish(5, b"payload");
        let mut shares = vec![world.wrong(0, &it)];
        shares.extend((1..t).map(|b| world.share(b, &it)));
        let doubt = give(&mut reader, 3, &it, &shares);
        assert_eq!(doubt, Did { asked: vec![3], ..nothing() });
        assert_eq!(attach(&mut reader, 3, &[world.share(3, &it)]), nothing(), "only proofs count now");
        let proofs: Vec<_> = (1..=t).map(|b| world.proof(b, &it)).collect();
        assert_eq!(attach(&mut reader, 3, &[world.proof(0, &it)]), nothing());
        assert_eq!(attach(&mut reader, 3, &proofs), opened(3, b"payload"));
        assert_eq!(reader.liars(), &BTreeSet::from([0]), "it proved another share than it had sent");
        let next = world.publish(6, b"next");
        let mut shares = vec![world.wrong(0, &next)];
        shares.extend((1..=t).map(|b| world.share(b, &next)));
        assert_eq!(give(&mut reader, 4, &next, &shares), opened(4, b"next"), "no second round");
    }
}

#[test]
fn rule_e4_a_false_proof_convicts_its_broker_and_nobody_else() {
    let mut world = World::new(3, 4);
    let (it, other) = (world.publish(5, b"payload"), world.publish(6, b"other"));
    let mut reader = world.client();
    give(&mut reader, 3, &it, &[world.wrong(0, &it), world.share(1, &it), world.share(2, &it)]);
    let answers = [world.proved(0, &it, &other), world.proof(1, &it), world.proof(2, &it)];
    let found = attach(&mut reader, 3, &answers);
    let (against, record) = found.evidence.first().expect("evidence").clone();
    assert_eq!((against, found.opened.len(), reader.liars().len()), (Culprit::Broker(0), 0, 1));
    assert_eq!(evidence::judge(&world.config, &record, &mut world.rng), Some(Culprit::Broker(0)));
    assert_eq!(attach(&mut reader, 3, &[world.proof(0, &it)]), nothing(), "of the convicted nothing more is taken");
    assert_eq!(attach(&mut reader, 3, &[world.proof(3, &it)]), opened(3, b"payload"));
    for at in 0..record.len() {
        let mut changed = record.clone();
        changed[at] ^= 1;
        assert_eq!(evidence::judge(&world.config, &changed, &mut world.rng), None, "byte {at}");
    }
    // A right share, signed, convicts nobody.
    let checked = world.checked(&it);
    let right = Attachment::<G>::from_bytes(&world.proof(0, &it).1).unwrap();
    let What::Proved(signed) = right.what else { panic!("a proof") };
    let innocent = evidence::false_share(&it.header, &checked, 0, &signed);
    assert_eq!(evidence::judge(&world.config, &innocent, &mut world.rng), None);
    // Of a second false proof there is no second record.
    let next = world.publish(7, b"next");
    give(&mut reader, 4, &next, &[world.share(1, &next), world.share(2, &next), world.wrong(3, &next)]);
    let answers = [world.proved(0, &next, &other), world.proof(1, &next), world.proof(2, &next), world.proof(3, &next)];
    assert_eq!(attach(&mut reader, 4, &answers), opened(4, b"next"));
}

#[test]
fn rule_g7_a_question_that_found_no_room_comes_again_soon_and_is_for_shares_before_proofs() {
    let world = World::new(3, 4);
    let it = world.publish(5, b"payload");
    let mut reader = world.client();
    assert_eq!(give(&mut reader, 5, &it, &[world.share(0, &it)]), nothing());
    let asked = |reader: &mut Threshold<G>, at: Now| {
        reader.handle_timeout(at);
        match reader.poll() {
            Some(Output::Fetch { id, what: Fetch::Shares { index: 5, proved } }) => (id, proved),
            _ => panic!("it does not ask"),
        }
    };
    let mut at = 10_000;
    for _ in 0..20 {
        let (id, proved) = asked(&mut reader, now(at));
        assert!(!proved, "too few came, and nothing is doubted");
        reader.fetched(now(at), id, Fetched::NotAsked);
        let next = reader.timeout().expect("it asks again").since(now(at).monotonic);
        assert!(next <= TIMEOUT_MIN, "{next:?}");
        at += 5000;
    }
    let (id, proved) = asked(&mut reader, now(at));
    assert!(!proved);
    reader.fetched(now(at), id, Fetched::Missing);
    assert!(asked(&mut reader, now(at + 5000)).1, "in vain");
    // Shares that combine to something wrong are asked for with proofs at once.
    let mut reader = world.client();
    let wrong = [world.wrong(0, &it), world.share(1, &it), world.share(2, &it)];
    did(&mut reader);
    reader.open(now(0), Delivered { index: 5, header: &it.header, body: Some(&it.body), attachments: &wrong });
    assert!(matches!(reader.poll(), Some(Output::Fetch { what: Fetch::Shares { index: 5, proved: true }, .. })));
}

#[test]
fn rule_g7_however_many_wait_the_first_question_for_each_is_for_shares_before_proofs() {
    let world = World::new(3, 4);
    let it = world.publish(5, b"payload");
    let mut reader = world.client();
    let waiting = limits::ORDERED_PENDING_MAX as u64 + 1;
    (0..waiting).for_each(|index| assert_eq!(give(&mut reader, index, &it, &[]), nothing()));
    let (mut asked, mut at) = (BTreeSet::new(), 10_000);
    while asked.len() < waiting as usize {
        reader.handle_timeout(now(at));
        while let Some(output) = reader.poll() {
            let Output::Fetch { id, what: Fetch::Shares { index, proved } } = output else { panic!("not of this") };
            assert!(!proved || asked.contains(&index), "proofs first, of {index}");
            asked.insert(index);
            reader.fetched(now(at), id, Fetched::Missing);
        }
        at += 1000;
        assert!(at < 60_000, "{} asked for", asked.len());
    }
}

/// A reader to whom broker 0 sent a false share of this, at place 3.
fn in_doubt(world: &World, it: &Sealed) -> Threshold<G> {
    let mut reader = world.client();
    let doubt = give(&mut reader, 3, it, &[world.wrong(0, it), world.share(1, it), world.share(2, it)]);
    assert_eq!(doubt, Did { asked: vec![3], ..nothing() });
    reader
}

#[test]
fn rule_e4_a_proof_whose_signature_fails_convicts_nobody() {
    let mut world = World::new(3, 4);
    let (it, other) = (world.publish(5, b"payload"), world.publish(6, b"other"));
    let mut reader = in_doubt(&world, &it);
    // The first one's proof is false too, but nobody else could be shown that it is his.
    let mut unsigned = world.proved(0, &it, &other);
    *unsigned.1.last_mut().unwrap() ^= 1;
    assert_eq!(attach(&mut reader, 3, &[unsigned]), nothing());
    assert_eq!(reader.drops().of(Dropped::Auth), 1);
    let proofs = [world.proof(1, &it), world.proof(2, &it), world.proof(3, &it)];
    assert_eq!(attach(&mut reader, 3, &proofs), opened(3, b"payload"), "no evidence");
    assert_eq!(reader.liars(), &BTreeSet::from([0]), "the others' shares are right");
}

#[test]
fn rule_e4_who_proves_nothing_costs_one_round_of_proofs_and_is_not_convicted() {
    let mut world = World::new(3, 4);
    let (it, next) = (world.publish(5, b"payload"), world.publish(6, b"next"));
    let mut reader = in_doubt(&world, &it);
    let proofs = [world.proof(1, &it), world.proof(2, &it), world.proof(3, &it)];
    assert_eq!(attach(&mut reader, 3, &proofs), opened(3, b"payload"), "no evidence");
    assert_eq!(reader.liars(), &BTreeSet::from([0]));
    let shares = [world.wrong(0, &next), world.share(1, &next), world.share(2, &next)];
    assert_eq!(give(&mut reader, 4, &next, &shares), nothing(), "his share is not tried");
    assert_eq!(attach(&mut reader, 4, &[world.share(3, &next)]), opened(4, b"next"));
    // With t = f + 1 two of those that failed may be left, one of them slow: nobody is blamed.
    let mut world = World::new(2, 4);
    let it = world.publish(5, b"payload");
    let mut reader = world.client();
    give(&mut reader, 3, &it, &[world.wrong(0, &it), world.share(1, &it)]);
    assert_eq!(attach(&mut reader, 3, &[world.proof(2, &it), world.proof(3, &it)]), opened(3, b"payload"));
    assert!(reader.liars().is_empty());
}

#[test]
fn rule_e1_shares_are_their_brokers_own_and_of_this_ciphertext() {
    let mut world = World::new(3, 4);
    let (it, other) = (world.publish(5, b"payload"), world.publish(6, b"other"));
    let mut reader = world.client();
    give(&mut reader, 3, &it, &[world.share(1, &it)]);
    let mut refused = |attachment: (u16, Vec<u8>), why: Dropped| {
        let before = reader.drops().of(why);
        assert_eq!(attach(&mut reader, 3, &[attachment]), nothing());
        assert_eq!(reader.drops().of(why), before + 1, "{why}");
    };
    refused(world.share(1, &it), Dropped::Replay);
    refused(world.share(0, &other), Dropped::Conflict);
    refused((2, world.share(0, &it).1), Dropped::Auth);
    refused((4, world.share(0, &it).1), Dropped::Auth);
    refused((u16::MAX, world.share(0, &it).1), Dropped::Auth);
    let mut outside = world.share(2, &it);
    outside.1[33..35].copy_from_slice(&9_u16.to_be_bytes());
    refused(outside, Dropped::Auth);
    let mut unsigned = world.proof(2, &it);
    *unsigned.1.last_mut().unwrap() ^= 1;
    refused(unsigned, Dropped::Auth);
    refused((2, world.proof(0, &it).1), Dropped::Auth);
    refused((2, vec![]), Dropped::Malformed);
    assert_eq!(attach(&mut reader, 3, &[world.share(2, &it), world.share(3, &it)]), opened(3, b"payload"));
    assert_eq!(attach(&mut reader, 3, &[world.share(0, &it)]), nothing(), "too late");
    assert_eq!(reader.drops().of(Dropped::Stale), 1);
}

#[test]
fn withheld_shares_are_asked_for_later_and_later() {
    let mut world = World::new(3, 4);
    let it = world.publish(5, b"payload");
    let mut reader = world.client();
    give(&mut reader, 3, &it, &[world.share(0, &it), world.share(1, &it)]);
    let mut gaps = Vec::new();
    let mut last = Monotonic(0);
    for _ in 0..9 {
        let at = reader.timeout().expect("it waits for a share");
        gaps.push(at.since(last).as_millis());
        last = at;
        reader.handle_timeout(Now { monotonic: at, utc: None });
        assert_eq!(did(&mut reader).asked, [3]);
    }
    assert_eq!(gaps, [150, 150, 300, 600, 1200, 2400, 4800, 9600, 9600]);
    assert_eq!(attach(&mut reader, 3, &[world.proof(3, &it)]), opened(3, b"payload"), "a proved share is a share");
    assert_eq!(reader.timeout(), None);
}

#[test]
fn what_waits_for_shares_says_whose_have_come_once_it_has_waited_long() {
    let mut world = World::new(3, 4);
    let (first, second) = (world.publish(5, b"payload"), world.publish(6, b"payload"));
    let mut reader = world.client();
    let (timeout, long) = (Duration::from_secs(5), now(5000).monotonic);
    give(&mut reader, 3, &first, &[world.share(0, &first), world.share(1, &first)]);
    assert_eq!(reader.shortage(now(4999).monotonic, timeout), None, "it has not waited long");
    let missing =
        |index: u64, holders: &[u16]| Some(Shortage { index, needed: 3, holders: holders.iter().copied().collect() });
    assert_eq!(reader.shortage(long, timeout), missing(3, &[0, 1]));
    // The trait tells the same.
    let described = |reader: &mut Threshold, at: u64| {
        reader.handle(now(at), Input::Describe).expect("nobody is refused an answer");
        std::iter::from_fn(|| reader.poll()).find_map(|it| match it {
            Output::Described(status) => Some((status.missing, status.late)),
            _ => None,
        })
    };
    assert_eq!(described(&mut reader, 4999), Some((missing(3, &[0, 1]).into_iter().collect(), None)));
    assert_eq!(described(&mut reader, 5000).and_then(|(_, late)| late), missing(3, &[0, 1]));
    // A wrong share is none: once it is doubted, proofs alone count.
    attach(&mut reader, 3, &[world.wrong(2, &first)]);
    let proofs = [world.proof(0, &first), world.proof(1, &first)];
    attach(&mut reader, 3, &proofs);
    assert_eq!(reader.shortage(long, timeout), missing(3, &[0, 1]));
    // While others open it may only be behind them; not for ever.
    give(&mut reader, 4, &second, &[world.proof(0, &second), world.proof(1, &second), world.proof(3, &second)]);
    assert_eq!(reader.shortage_of(4), None);
    assert_eq!(attach(&mut reader, 3, &[world.proof(3, &first)]), opened(3, b"payload"));
    assert_eq!((reader.shortage(now(60_000).monotonic, timeout), reader.shortage_of(3)), (None, None));
}

#[test]
fn who_is_behind_others_that_still_come_is_not_asked_for() {
    let world = World::new(3, 4);
    let its: Vec<Sealed> = (0..4).map(|n| world.publish(n, b"payload")).collect();
    let all = |it: &Sealed| [world.share(0, it), world.share(1, it), world.share(2, it)];
    let asked = |reader: &mut Threshold<G>, millis: u64| {
        reader.handle_timeout(now(millis));
        did(reader).asked
    };
    let release = |reader: &mut Threshold<G>, millis: u64, index: usize| {
        let attachments = &all(&its[index])[..];
        reader.open(now(millis), Delivered { index: index as u64, header: &[], body: None, attachments });
        did(reader)
    };
    let mut reader = world.client();
    for (index, it) in (0..).zip(&its) {
        give(&mut reader, index, it, &[]);
    }
    assert_eq!(release(&mut reader, 30, 0), opened(0, b"payload"));
    // The others' turn may come until 150 ms after that; the second one's comes.
    assert!(asked(&mut reader, 150).is_empty());
    assert_eq!(reader.timeout(), Some(now(180).monotonic));
    assert_eq!(release(&mut reader, 179, 1), opened(1, b"payload"));
    assert!(asked(&mut reader, 180).is_empty());
    // Shares have begun to take longer, so more than 150 ms.
    let until = reader.timeout().expect("it waits").micros() / 1000;
    assert!(until > 179 + 150, "{until}");
    // Once a later one has come, brokers have passed the earlier.
    assert_eq!(release(&mut reader, 300, 3), opened(3, b"payload"));
    assert_eq!(asked(&mut reader, until + 1), [2]);
    // Asked once, it is asked for again whatever comes.
    assert_eq!(reader.timeout(), Some(now(until + 151).monotonic));
}

#[test]
fn who_releases_one_now_and_then_holds_up_none_for_longer_than_that() {
    let world = World::new(3, 4);
    let its: Vec<Sealed> = (0..9).map(|n| world.publish(n, b"payload")).collect();
    let mut reader = world.client();
    for (index, it) in (0..).zip(&its) {
        give(&mut reader, index, it, &[]);
    }
    // What it waits for comes just in time, again and again; the last place is behind all that.
    for (index, it) in (0..8).zip(&its) {
        let at = now(140 + 480 * index);
        reader.handle_timeout(at);
        assert!(did(&mut reader).asked.is_empty(), "{index}");
        let attachments = &[world.share(0, it), world.share(1, it), world.share(2, it)][..];
        reader.open(at, Delivered { index, header: &[], body: None, attachments });
        assert_eq!(did(&mut reader), opened(index, b"payload"));
    }
    reader.handle_timeout(now(3999));
    assert!(did(&mut reader).asked.is_empty());
    reader.handle_timeout(now(4000));
    assert_eq!(did(&mut reader).asked, [8]);
}

#[test]
fn rule_e1_that_we_may_not_read_takes_the_word_of_f_plus_one() {
    let world = World::new(3, 4);
    let it = world.publish(5, b"payload");
    let denied = |b: u16| (b, Attachment::<G> { ciphertext: *world.checked(&it).id(), what: What::Denied }.to_bytes());
    let mut reader = world.client();
    assert_eq!(give(&mut reader, 3, &it, &[denied(0), denied(0)]), nothing());
    assert_eq!(attach(&mut reader, 3, &[denied(2)]).opened, [(3, None)]);
    let mut reader = world.client();
    give(&mut reader, 3, &it, &[denied(0)]);
    let shares: Vec<_> = (1..4).map(|b| world.share(b, &it)).collect();
    assert_eq!(attach(&mut reader, 3, &shares), opened(3, b"payload"));
}

#[test]
fn rule_s9_what_a_broker_moves_between_headers_and_policy_is_neither_opened_nor_bottom() {
    let mut world = World::new(3, 4);
    let it = world.publish(5, b"payload");
    let header = SealedHeader::from_bytes(&it.header).unwrap();
    let with =
        |envelope: Envelope| Sealed { header: SealedHeader { envelope, ..header.clone() }.to_bytes(), ..it.clone() };
    let from = &header.envelope;
    let moved = [
        with(Envelope {
            headers: vec![from.headers[0].clone()],
            access: Some(b"price105a condition".to_vec()),
            ..from.clone()
        }),
        with(Envelope {
            headers: [from.headers.clone(), vec![("a condition".into(), None)]].concat(),
            access: None,
            ..from.clone()
        }),
        with(Envelope { associated: vec![], ..from.clone() }),
        with(Envelope { execute: b"\x01\0\x01k\0\x01v".to_vec(), ..from.clone() }),
        with(Envelope { policy: 1, ..from.clone() }),
        with(Envelope { epoch: 1, ..from.clone() }),
        Sealed { header: SealedHeader { client: [2; 32], ..header.clone() }.to_bytes(), ..it.clone() },
        Sealed { header: SealedHeader { number: 6, ..header.clone() }.to_bytes(), ..it.clone() },
    ];
    for changed in moved {
        // Honest brokers name the ciphertext that was ordered.
        let mut reader = world.client();
        let shares: Vec<_> = (0..3).map(|b| world.share(b, &it)).collect();
        assert_eq!(give(&mut reader, 3, &changed, &shares[..1]), nothing());
        assert_eq!(attach(&mut reader, 3, &shares[1..2]), Did { asked: vec![3], ..nothing() });
        assert!(reader.collecting.is_empty());
        assert_eq!(give(&mut reader, 3, &it, &shares), opened(3, b"payload"), "what was ordered still opens");
        // Even t brokers' shares, said to be of the changed one, open nothing.
        let label = sealed::label(&SealedHeader::from_bytes(&changed.header).unwrap());
        let id = *world.key().bind(Ciphertext::decode(&changed.body).unwrap(), &label).id();
        let relabel = |(b, bytes): &(u16, Vec<u8>)| {
            let said = Attachment::<G>::from_bytes(bytes).unwrap();
            (*b, Attachment { ciphertext: id, ..said }.to_bytes())
        };
        let mut reader = world.client();
        let lies: Vec<_> = shares.iter().map(relabel).collect();
        assert_eq!(give(&mut reader, 3, &changed, &lies), Did { asked: vec![3], ..nothing() });
        assert!(reader.liars().is_empty(), "nobody is blamed for what the deliverer changed");
    }
    let proof = world.proof(1, &it);
    assert_eq!(attach(&mut world.client(), 3, &[proof]), nothing());
}

/// Values, as SHA-256 of their bytes: of a header, of attachments, of what brokers sign, of the pin of a key, and of
/// evidence; the last three are of a sharing after the first.
#[test]
fn rule_g9_formats_of_sealed_publications_do_not_change_unnoticed() {
    let world = World::new(2, 4);
    let header = SealedHeader { client: [1; 32], number: 5, envelope: Envelope { policy: 3, epoch: 1, ..envelope() } };
    let it = crafted(&world, |_| RistrettoPoint::mul_base(&Scalar::from(77_u64)));
    let proved = world.holders[0].prove(&world.checked(&it), &mut ChaCha20Rng::seed_from_u64(1)).unwrap();
    let signed = |sharing| SignedShare { sharing, proved, signature: [9; 64] };
    let (first, later) = (Sharing::First, Sharing::Later([3; 32]));
    let attachments = [What::Share(*proved.share()), What::Proved(signed(first)), What::Denied];
    let attachments = attachments.map(|what| Attachment { ciphertext: [8; 32], what }.to_bytes());
    let checked = world.checked(&it);
    let records = |sharing: Sharing| {
        let broker = evidence::false_share(&it.header, &checked, 2, &signed(sharing));
        [broker, evidence::faulty(&sharing, &it.header, &checked, &[signed(sharing); 2])].concat()
    };
    let seen = [
        sha256(&header.to_bytes()),
        sha256(&sealed::together(&[b"one", b""], 0).unwrap()),
        sha256(&attachments.concat()),
        statement(&CLUSTER, &first, &[8; 32], &proved.encode()),
        pin(&CLUSTER, &world.key().encode()),
        sha256(&records(first)),
        statement(&CLUSTER, &later, &[8; 32], &proved.encode()),
        sha256(&Attachment { ciphertext: [8; 32], what: What::Proved(signed(later)) }.to_bytes()),
        sha256(&records(later)),
    ];
    let seen = seen.map(|it| it.iter().map(|b| format!("{b:02x}")).collect::<String>());
    let expected = [
        "fc4c0576293d66c935a5dda152a73f77eea26247039c61794db51bf6ac2e0c30",
        "de696bfd7274e5d3c1dacd715d24f27f651a20764524a1560c59c53d39d60a98",
        "f30dad71cc6b7421d3cda57260fd7d38a00ed2519cd9d6c14b8eaf3f0784e611",
        "5a6c8d0ef4639e8f8b3d4528f6749f2238be37684d2e26046dbedbc256b34abe",
        "4580485c20bba92c1293702606575723cc16017d42c2cceb3ef6fb3bf292752b",
        "c6f41d90b735c0d11f780785832373eec4f2b411f8bf5a761f68c6547b61bd12",
        "73ae0af5b2dcc6588ea62a0aa3ee2f80e34d80ae61e9f0372b26da472ad102dc",
        "3bc0e29db620256e3397c9371ba277e0c89c5f9a10cddda1093c7d584c3f5505",
        "6128fd11241bc4db37cf0ccc5753d86ff86483d6355779e92440805b91b1a777",
    ];
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

/// X of docs/WIRE.md 16.1, for ristretto255.
fn x(tag: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = [b"CHIOS-v1/ristretto255/", &[tag.len() as u8][..], tag.as_bytes()].concat();
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

fn h64(tag: &str, parts: &[&[u8]]) -> [u8; 64] {
    digest(&SHA512, &x(tag, parts)).as_ref().try_into().unwrap()
}

fn hs(tag: &str, parts: &[&[u8]]) -> Scalar {
    Scalar::from_bytes_mod_order_wide(&h64(tag, parts))
}

/// A ciphertext that is well-formed but for its mask, which is made of this Z in place of H_Δ^r (none: of any). Its
/// publisher knows r.
fn crafted(world: &World, z: impl Fn(&Scalar) -> RistrettoPoint) -> Sealed {
    let header = SealedHeader { client: [1; 32], number: 5, envelope: envelope() };
    let label: [u8; 32] = Label::hash(&sealed::label(&header));
    let pkh0 = world.key().lasting_hash();
    let sigma = [0x5a; 32];
    let both = h64("dem", &[pkh0, &label, &sigma]);
    let (k, com) = both.split_at(32);
    let mut body = sealed::together(&[b"trap"], 0).unwrap();
    body.resize(body.len() + aead::TAG_LEN, 0);
    aead::Key::new(aead::Suite::Aes256Gcm, &Secret::try_from(k).unwrap()).seal(0, &label, &mut body);
    let d = sha256(&x("body", &[com, &body]));
    let (r, s) = (hs("r", &[pkh0, &label, &sigma, &d]), Scalar::from(4_u64));
    let g_bar = world.key().g_bar().point();
    let pt = |p: &RistrettoPoint| p.compress().to_bytes();
    let [u, u_bar, w, w_bar] =
        [RistrettoPoint::mul_base(&r), g_bar * r, RistrettoPoint::mul_base(&s), g_bar * s].map(|p| pt(&p));
    let mask = sha256(&x("mask", &[pkh0, &u, &pt(&z(&r))]));
    let c1: [u8; 32] = std::array::from_fn(|i| sigma[i] ^ mask[i]);
    let length = (body.len() as u64).to_be_bytes();
    let e = hs("H2", &[pkh0, &label, &c1, &d, &length, &u, &u_bar, &w, &w_bar]);
    let f = (s + r * e).to_bytes();
    let body = [&u[..], &u_bar, &w, &w_bar, &f, &c1, com, &body].concat();
    Sealed { header: header.to_bytes(), body, epoch: EpochId::default() }
}

#[test]
fn a_crafted_ciphertext_with_the_right_z_opens() {
    let world = World::new(2, 4);
    let delta = Scalar::from(world.key().parameters().delta);
    let it = crafted(&world, |r| world.key().h().point() * (delta * r));
    let shares = [world.share(1, &it), world.share(3, &it)];
    assert_eq!(give(&mut world.client(), 3, &it, &shares), opened(3, b"trap"));
}

#[test]
fn rule_e4_of_a_publisher_at_fault_all_readers_get_bottom_whatever_shares_they_got() {
    for t in [3, 2] {
        let mut world = World::new(t, 4);
        let it = crafted(&world, |_| RistrettoPoint::mul_base(&Scalar::from(77_u64)));
        for set in sets(u32::from(t)) {
            for proved_by in sets(u32::from(t)) {
                let shares: Vec<_> = set.iter().map(|b| world.share(*b, &it)).collect();
                let mut reader = world.client();
                assert_eq!(give(&mut reader, 3, &it, &shares), Did { asked: vec![3], ..nothing() });
                let proofs: Vec<_> = proved_by.iter().map(|b| world.proof(*b, &it)).collect();
                let found = attach(&mut reader, 3, &proofs);
                assert_eq!(found.opened, [(3, None)]);
                assert!(reader.liars().is_empty());
                let (against, record) = &found.evidence[0];
                assert_eq!(*against, Culprit::Publisher { client: [1; 32], number: 5 });
                assert_eq!(evidence::judge(&world.config, record, &mut world.rng), Some(*against));
                let cut = &record[..record.len() - 1];
                assert_eq!(evidence::judge(&world.config, cut, &mut world.rng), None);
            }
        }
    }
}

#[test]
fn rule_e4_nothing_but_t_brokers_signed_shares_of_a_false_ciphertext_convicts_its_publisher() {
    for t in [3, 2] {
        let mut world = World::new(t, 4);
        let it = crafted(&world, |_| RistrettoPoint::mul_base(&Scalar::from(77_u64)));
        let (honest, other) = (world.publish(6, b"fine"), world.publish(7, b"fine too"));
        let mut signed = |b: u16, it: &Sealed, of: &Sealed| {
            let What::Proved(signed) = Attachment::from_bytes(&world.proved(b, it, of).1).unwrap().what else {
                panic!()
            };
            signed
        };
        let right: Vec<SignedShare<G>> = (0..t).map(|b| signed(b, &it, &it)).collect();
        let of_honest: Vec<SignedShare<G>> = (0..t).map(|b| signed(b, &honest, &honest)).collect();
        let one_more = [&right[..], &[signed(t, &it, &it)]].concat();
        let mut twice = right.clone();
        twice[1] = twice[0];
        let mut of_another = right.clone();
        of_another[0] = signed(0, &other, &other);
        let mut signed_for_it = right.clone();
        signed_for_it[0] = signed(0, &it, &other);
        let mut borrowed = right.clone();
        borrowed[0].signature = right[1].signature;
        let mut unsigned = right.clone();
        unsigned[0].signature = [0; 64];
        let mut convicts = |it: &Sealed, shares: &[SignedShare<G>]| {
            let record = evidence::faulty(&Sharing::First, &it.header, &world.checked(it), shares);
            evidence::judge(&world.config, &record, &mut world.rng)
        };
        let publisher = Culprit::Publisher { client: [1; 32], number: 5 };
        assert_eq!(convicts(&it, &right), Some(publisher));
        assert_eq!(convicts(&honest, &of_honest), None, "of an honest ciphertext");
        assert_eq!(convicts(&it, &right[1..]), None, "t - 1");
        assert_eq!(convicts(&it, &one_more), None, "more than convict");
        assert_eq!(convicts(&it, &twice), None, "one broker twice");
        assert_eq!(convicts(&it, &of_another), None, "a share of another ciphertext");
        assert_eq!(convicts(&it, &signed_for_it), None, "the same, signed as one of this");
        assert_eq!(convicts(&it, &borrowed), None, "another broker's signature");
        assert_eq!(convicts(&it, &unsigned), None, "no signature");
        assert_eq!(convicts(&honest, &right), None, "evidence of another ciphertext");
        let mut elsewhere = world.config.clone();
        elsewhere.cluster = [9; 32];
        let record = evidence::faulty(&Sharing::First, &it.header, &world.checked(&it), &right);
        assert_eq!(evidence::judge(&elsewhere, &record, &mut world.rng), None, "of another cluster");
    }
}

#[test]
fn the_optimistic_trap_splits_no_readers() {
    // Publisher and broker 0: u'_1 is arbitrary, and the mask is made of what {1, 2} then combine to, with u_2 = h_2^r.
    // Key, commitment and r are all as they should be; only Z is not H_Δ^r.
    let mut world = World::new(2, 4);
    let delta = Scalar::from(world.key().parameters().delta);
    let false_share = RistrettoPoint::mul_base(&Scalar::from(3_u64));
    let second = *world.key().share_of(2).unwrap().point();
    // λ_1 = 2, λ_2 = −1 of {1, 2}
    let it = crafted(&world, |r| false_share * (delta * Scalar::from(2_u64)) - second * (delta * r));
    let id = *world.checked(&it).id();
    let lie = [&[1][..], &id, &1_u16.to_be_bytes(), &false_share.compress().to_bytes()].concat();
    for shares in [vec![(0, lie.clone()), world.share(1, &it)], vec![world.share(1, &it), world.share(2, &it)]] {
        let mut reader = world.client();
        assert_eq!(give(&mut reader, 3, &it, &shares), Did { asked: vec![3], ..nothing() });
        let proofs: Vec<_> = (1..4).map(|b| world.proof(b, &it)).collect();
        assert_eq!(attach(&mut reader, 3, &proofs).opened, [(3, None)]);
    }
}

#[test]
fn rule_e6_a_stale_publication_is_sealed_again_for_what_stands() {
    let world = World::new(3, 4);
    let mut client = world.client();
    did(&mut client);
    assert_eq!(seal(&mut client, 5, &envelope(), &[b"m"]).unwrap().epoch, EpochId { counter: 0, hash: 0 });
    let mut stands = |counter, hash| {
        client.handle(now(0), Input::InForce(EpochId { counter, hash })).unwrap();
        let mut views = Vec::new();
        while let Some(output) = client.poll() {
            let Output::Epoch { view, protect: None, .. } = output else { panic!("a view") };
            views.push(view.epoch);
        }
        let sealed = seal(&mut client, 6, &envelope(), &[b"m"]).unwrap();
        let Envelope { policy, epoch, .. } = SealedHeader::from_bytes(&sealed.header).unwrap().envelope;
        assert_eq!(sealed.epoch, EpochId { counter: epoch, hash: policy });
        (views.len(), epoch, policy)
    };
    assert_eq!(stands(0, 7), (1, 0, 7));
    assert_eq!(stands(0, 7), (0, 0, 7));
    assert_eq!(stands(2, 9), (1, 2, 9));
    assert_eq!(stands(1, 8), (0, 2, 9), "versions never go back (E11)");
}

#[test]
fn rule_e11_only_the_pinned_key_is_taken() {
    let (world, other) = (World::new(3, 4), World::new(2, 4));
    let brokers: Vec<_> = world.signing.iter().map(OriginKey::public_bytes).collect();
    let (ours, theirs) = (world.key().encode(), other.key().encode());
    let make = |brokers: &[[u8; 32]], key: &[u8], pin: [u8; 32]| {
        Config::<G>::new([1; 32], CLUSTER, brokers, key, &pin).map(|_| ()).unwrap_err()
    };
    assert_eq!(make(&brokers, &theirs, pin(&CLUSTER, &ours)), ConfigError::Pin);
    assert_eq!(make(&brokers, &ours, pin(&[8; 32], &ours)), ConfigError::Pin, "of another cluster");
    let holders = ConfigError::Holders { holders: 4, brokers: 3 };
    assert_eq!(make(&brokers[..3], &ours, pin(&CLUSTER, &ours)), holders);
    assert_eq!(
        make(&[brokers[0], brokers[1], [0; 32], brokers[3]], &ours, pin(&CLUSTER, &ours)),
        ConfigError::Broker(2)
    );
    assert!(matches!(make(&brokers, &ours[1..], pin(&CLUSTER, &ours[1..])), ConfigError::Key(_)));
    let mut client = world.client();
    assert_eq!(client.handle(now(0), Input::Command(Command::Learn(ours))), Ok(()));
    let refused = client.handle(now(0), Input::Command(Command::Learn(theirs.clone())));
    assert_eq!(refused, Err(CommandError::Invalid.into()));
    assert_eq!(world.config.check_key(&theirs), Err(ConfigError::Pin));
}

#[test]
fn rule_e11_a_key_is_taken_for_which_2f_and_1_brokers_vouch() {
    let world = World::new(3, 4);
    let brokers: Vec<_> = world.signing.iter().map(OriginKey::public_bytes).collect();
    let key = world.key().encode();
    let sign = |cluster, epoch| -> Vec<_> {
        world.signing.iter().map(|it| it.sign(&vouching(&cluster, epoch, &key))).collect()
    };
    let good = sign(CLUSTER, 0);
    let vouched = |epoch, key: &[u8], signatures: &[(u16, &Signature)]| {
        Config::<G>::vouched([1; 32], CLUSTER, &brokers, epoch, key, signatures.iter().copied())
    };
    let all: Vec<_> = (0..).zip(&good).collect();
    let config = vouched(0, &key, &all[1..]).expect("three of four vouch");
    assert_eq!(config.check_key(&key), Ok(()));
    assert_eq!(config.check_key(&World::new(2, 4).key().encode()), Err(ConfigError::Pin));

    let few = |signed| Some(ConfigError::Vouched { signed, needed: 3 });
    assert_eq!(vouched(0, &key, &all[2..]).err(), few(2));
    assert_eq!(vouched(0, &key, &[all[0], all[0], all[0], all[1]]).err(), few(2), "one counts once");
    assert_eq!(vouched(0, &key, &[all[0], all[1], (3, &good[2]), (9, &good[3])]).err(), few(2), "others' signatures");
    for (cluster, epoch) in [([8; 32], 0), (CLUSTER, 1)] {
        let others = sign(cluster, epoch);
        let others: Vec<_> = (0..).zip(&others).collect();
        assert_eq!(vouched(0, &key, &others).err(), few(0), "for another cluster or epoch");
    }
    assert_eq!(vouched(1, &key, &all).err(), Some(ConfigError::Epoch(1)));
    assert_eq!(vouched(0, &World::new(2, 4).key().encode(), &all).err(), few(0), "another key");
}

#[test]
fn a_message_is_sealed_under_the_number_in_its_id_and_for_what_its_envelope_says() {
    let world = World::new(3, 4);
    let mut client = world.client();
    let access = |condition: Vec<u8>| Envelope { access: Some(condition), ..Envelope::of_topic("pose") };
    let envelope = access(b"condition".to_vec());
    let it = seal(&mut client, 5, &envelope, &[b"m"]).unwrap();
    let header = SealedHeader::from_bytes(&it.header).unwrap();
    assert_eq!((header.number, header.envelope.access), (5, Some(b"condition".to_vec())));
    let shares: Vec<_> = (0..3).map(|b| world.share(b, &it)).collect();
    assert_eq!(give(&mut client, 3, &it, &shares), opened(3, b"m"));
    let no_number = Seal { id: [1; 16], envelope: &envelope, bodies: &[b"m"] };
    assert_eq!(client.seal(&no_number), Err(SealError::Number));
    let unsound = [
        Envelope::of_topic(""),
        Envelope { execute: vec![9], ..Envelope::of_topic("pose") },
        access(vec![0; limits::EXPRESSION_BYTES_MAX + 1]),
    ];
    for envelope in unsound {
        assert_eq!(seal(&mut client, 6, &envelope, &[b"m"]), Err(SealError::Policy));
    }
    assert_eq!(client.properties().data, Need(Guarantee::Ordered, Agreement::Byzantine));
    assert!(client.properties().seals_messages);
}

#[test]
fn rule_g2_a_lying_broker_takes_no_more_than_its_room_and_nobody_elses() {
    let world = World::new(3, 4);
    let it = world.publish(5, b"payload");
    let mut reader = world.client();
    let (broker, bytes) = world.share(0, &it);
    let honest: Vec<_> = (1..4).map(|b| world.share(b, &it)).collect();
    attach(&mut reader, 9_000, &honest);
    for index in (1..5_000).rev().chain(20_000..25_000) {
        attach(&mut reader, index, &[(broker, bytes.clone())]);
    }
    assert_eq!(reader.early.len(), limits::EARLY_SHARES_PER_BROKER + 3);
    assert_eq!(give(&mut reader, 9_000, &it, &[]), opened(9_000, b"payload"));
    assert_eq!(reader.early.len(), 0, "what is late is forgotten");
    attach(&mut reader, 7, &[(broker, bytes)]);
    assert_eq!(reader.early.len(), 0);
}

#[test]
fn rule_g2_ciphertexts_without_shares_have_a_bound() {
    let world = World::new(3, 4);
    let large = world.publish(5, &vec![0; limits::BODY_BYTES_MAX - 1000]);
    let mut reader = world.client();
    let mut index = 0;
    while reader.drops().of(Dropped::Queue) == 0 {
        index += 1;
        give(&mut reader, index, &large, &[]);
        assert!(index <= 100, "no bound");
    }
    assert!(reader.bytes <= limits::SEALED_WAITING_BYTES_MAX && reader.collecting.len() as u64 == index - 1);
    let shares: Vec<_> = (0..3).map(|b| world.share(b, &large)).collect();
    assert_eq!(attach(&mut reader, 1, &shares).opened.len(), 1);
    assert_eq!(give(&mut reader, index, &large, &shares).opened.len(), 1, "room again: it is delivered anew");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rule_g2_hostile_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 1_u8..4) {
        let world = World::new(2, 4);
        let mut reader = world.client();
        let tagged = [&[kind][..], &bytes].concat();
        for bytes in [&bytes, &tagged] {
            if let Ok(header) = SealedHeader::from_bytes(bytes) {
                prop_assert_eq!(&header.to_bytes(), bytes);
            }
            if let Ok(said) = Attachment::<G>::from_bytes(bytes) {
                prop_assert_eq!(&said.to_bytes(), bytes);
            }
            if let Ok(payloads) = sealed::apart(bytes) {
                let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
                prop_assert_eq!(&sealed::together(&payloads, 0).unwrap(), bytes);
            }
            let mut rng = ChaCha20Rng::seed_from_u64(1);
            prop_assert_eq!(evidence::judge(&world.config, bytes, &mut rng), None);
            let attachments = [(0, bytes.clone()), (9, bytes.clone())];
            reader.open(now(0), Delivered { index: 1, header: bytes, body: Some(bytes), attachments: &attachments });
        }
        prop_assert_eq!(did(&mut reader), nothing());
    }

    #[test]
    fn rule_g2_a_changed_message_opens_to_what_was_sealed_or_not_at_all(at in any::<usize>(), bit in 0_u8..8) {
        let world = World::new(2, 4);
        let it = world.publish(5, b"payload");
        let shares = [world.share(0, &it), world.share(1, &it)];
        let mut changed = it.clone();
        let at = at % (it.header.len() + it.body.len());
        match at.checked_sub(it.header.len()) {
            None => changed.header[at] ^= 1 << bit,
            Some(at) => changed.body[at] ^= 1 << bit,
        }
        let mut reader = world.client();
        prop_assert_eq!(give(&mut reader, 3, &changed, &shares).opened, vec![]);
        prop_assert_eq!(give(&mut reader, 3, &it, &shares), opened(3, b"payload"));
    }
}
