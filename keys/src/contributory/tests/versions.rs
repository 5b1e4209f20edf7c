//! Members of several versions of the wire. Version 2 is this same machine with one more version on its card, other keys
//! of its epochs, and JOINs and BEACONs that are longer.

use super::super::message::{Beacon, Card, Join, Kind, Object, Propose, signed};
use super::super::proposal::Proposal;
use super::*;
use crate::{HandleError, Misbehaviour};
use sealcast_wire::{CertHash, Dropped};

const BOTH: &[u8] = &[1, 2];

/// Members that speak these versions, in one group.
fn group(seed: u64, versions: &[&[u8]]) -> Net {
    let mut net = Net::new(seed);
    net.keep_log = true;
    for (i, versions) in versions.iter().enumerate() {
        net.versions = Versions::of(versions);
        net.start(robot(i));
    }
    assert!(net.run_until(8_000, Net::is_one), "{}", net.describe());
    net.run(200);
    net
}

/// Whether all that live are in one epoch of the highest version that they all speak.
fn agrees(net: &Net) -> bool {
    let live: Vec<&Contributory> = net.live().map(|i| &net.nodes[i].keys).collect();
    let highest = Versions::common(live.iter().map(|keys| keys.config.versions)).map(Versions::highest);
    net.is_one() && live.iter().all(|keys| Some(keys.status(net.clock()).version) == highest)
}

fn agree(net: &mut Net, what: &str) {
    let agreed = net.run_until(20_000, agrees);
    let versions: Vec<u8> = net.live().map(|i| net.nodes[i].keys.status(net.clock()).version).collect();
    assert!(agreed, "{what}: versions {versions:?}\n{}", net.describe());
    let live: Vec<usize> = net.live().collect();
    net.assert_one_key(&live);
}

fn version(net: &Net, i: usize) -> u8 {
    net.nodes[i].keys.status(net.clock()).version
}

fn is_notified(net: &Net, i: usize, cert: CertHash) -> bool {
    let about = |n: &Notice| matches!(n, Notice::OtherVersion { cert: Some(of), .. } if *of == cert);
    net.nodes[i].notices.iter().any(about)
}

fn is_left_out(net: &Net, i: usize, cert: CertHash) -> bool {
    let about = |n: &Notice| *n == Notice::LeftOut { cert, why: Misbehaviour::Version };
    net.nodes[i].notices.iter().any(about)
}

fn bootstrap_sealed(net: &mut Net, message: &Message) -> Vec<u8> {
    bootstrap_bytes(net, &message.encode())
}

fn bootstrap_bytes(net: &mut Net, bytes: &[u8]) -> Vec<u8> {
    let mut nonce = [0; 12];
    net.rng.fill_bytes(&mut nonce);
    robot(0).bootstrap_key(GROUP).seal(nonce, bytes)
}

fn hear(net: &mut Net, i: usize, bootstrap_sealed: &[u8]) -> Option<HandleError> {
    let now = net.clock();
    let result = net.nodes[i].keys.hear(now, &Source::Outside(Address::Node(99)), bootstrap_sealed);
    net.drain(i);
    result.err()
}

/// The last message of a node that `find` finds something in.
fn said<T>(net: &Net, by: usize, find: impl Fn(Message) -> Option<T>) -> T {
    let of_node = net.log.iter().rev().filter(|(_, from, _)| *from == by);
    of_node.filter_map(|(_, _, bytes)| find(bootstrap_open(bytes))).next().expect("it has said so")
}

#[test]
fn members_of_several_versions_use_the_highest_that_all_speak() {
    for seed in 0..seeds(20) {
        let mut net = Net::new(seed);
        (net.loss, net.duplication, net.spread) = (net.rng.next_u64() % 16, 5, 3000);
        for i in 0..6 {
            // One at least of each kind.
            let old = i == 1 || i > 1 && net.rng.next_u64().is_multiple_of(2);
            net.versions = Versions::of(if old { &[1] } else { BOTH });
            let identity =
                if i == 0 { house().identity("evictor", &[(Act::Both, "#"), (Act::Evict, "#")]) } else { robot(i) };
            let at = net.now + net.rng.next_u64() % 300_000;
            net.start_at(at, identity);
        }
        agree(&mut net, "formation");
        let evictor = net.nodes.iter().position(|n| n.identity.certificate().name == "evictor".into()).unwrap();

        let before = net.epoch_of(evictor);
        net.command(evictor, Command::Rotate).unwrap();
        net.run_until(5_000, |net| net.epoch_of(evictor) != before);
        agree(&mut net, "rekey");

        // Those of the old version go, one by its own word, the others evicted: the others speak version 2.
        let old = |net: &Net| net.live().find(|i| !net.nodes[*i].keys.config.versions.contains(2));
        let mut leaves = true;
        while let Some(i) = old(&net) {
            let cert = net.nodes[i].identity.certificate().hash;
            if std::mem::take(&mut leaves) {
                net.command(i, Command::Leave).unwrap();
            } else {
                net.command(evictor, Command::Evict { cert, reason: "old".into() }).unwrap();
            }
            assert!(net.run_until(20_000, |net| net.nodes[i].excluded.is_some()), "{}", net.describe());
            agree(&mut net, "departure");
        }
        assert_eq!(version(&net, evictor), 2, "seed {seed}");

        // One of the old version comes back, and one of the new one.
        net.versions = Versions::OURS;
        net.start(robot(7));
        agree(&mut net, "an old one joins");
        assert_eq!(version(&net, evictor), 1, "seed {seed}");
        net.versions = Versions::of(BOTH);
        net.start(robot(8));
        agree(&mut net, "a new one joins");
        let lied = |n: &Notice| matches!(n, Notice::LeftOut { why: Misbehaviour::Version, .. });
        assert!(!net.nodes.iter().flat_map(|n| &n.notices).any(lied), "seed {seed}: nobody lied");
    }
}

#[test]
fn whoever_has_no_version_in_common_is_reported_and_not_let_in() {
    let mut net = group(1, &[&[1], BOTH, &[1]]);
    net.versions = Versions::of(&[2]);
    let unknown = net.start(robot(3));
    let cert = net.nodes[unknown].identity.certificate().hash;
    assert!(net.run_until(3_000, |net| is_notified(net, 0, cert) && is_notified(net, 2, cert)), "{}", net.describe());
    net.run(3_000);
    assert!(net.are_one(&[0, 1, 2]), "{}", net.describe());
    let mut others = (0..3).map(|i| net.nodes[i].identity.certificate().hash);
    assert!(others.any(|other| is_notified(&net, unknown, other)), "it knows why");
}

/// What version 0 of this program said, byte by byte.
fn old_join(net: &mut Net, i: usize) -> Vec<u8> {
    use sealcast_crypto::secret::Secret;
    use sealcast_crypto::signature::OriginKey;
    let (identity, key) = (robot(i), OriginKey::from_seed(&Secret::random(&mut net.rng)));
    let cert = identity.certificate();
    let (incarnation, public) = ([7; 16], key.public_bytes());
    let card = signed("sealcast/v1/card", GROUP, &[&cert.hash.0, &incarnation], &public);
    let mut bytes = [&[1][..], &cert.hash.0, &incarnation, &public, &identity.key().sign(&card)].concat();
    bytes.extend_from_slice(&(cert.der.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&cert.der);
    bytes.extend_from_slice(&[0; 24 + 12 + 2 + 12]);
    let signature = key.sign(&signed("sealcast/v1/join", GROUP, &[], &bytes));
    [bytes, signature.to_vec()].concat()
}

#[test]
fn a_join_of_version_0_is_reported_by_name_and_changes_nothing() {
    let mut net = group(2, &[&[1], BOTH]);
    let (join, cert) = (old_join(&mut net, 5), robot(5).certificate().hash);
    let mut forged = join.clone();
    let last = forged.len() - 1;
    forged[last] ^= 1;
    let forged = bootstrap_bytes(&mut net, &forged);
    assert_eq!(hear(&mut net, 0, &forged), Some(Dropped::Auth.into()));
    assert!(!is_notified(&net, 0, cert), "nobody is reported on a stranger's word");

    let join = bootstrap_bytes(&mut net, &join);
    assert_eq!(hear(&mut net, 0, &join), Some(Dropped::Policy.into()));
    assert!(is_notified(&net, 0, cert));
    assert_eq!(net.nodes[0].keys.people.named(cert), Some(("robot5", true)));
    let told = net.nodes[0].notices.len();
    for _ in 0..100 {
        hear(&mut net, 0, &join);
    }
    assert_eq!(net.nodes[0].notices.len(), told, "once, however often it is heard");
    let epoch = net.epoch_of(0);
    net.run(3_000);
    assert!(net.epoch_of(0) == epoch && net.nodes[0].keys.wanting.is_empty(), "{}", net.describe());
}

/// Somebody on the road, who knows the bootstrap key, takes version 2 out of what a member signed.
#[test]
fn a_join_or_card_stripped_of_versions_is_refused() {
    let mut net = group(3, &[BOTH, BOTH]);
    let mut join: Join = said(&net, 1, |m| if let Message::Join(m) = m { Some(m) } else { None });
    assert_eq!((join.card.versions, &join.added[..]), (Versions::of(BOTH), &[2; 16][..]));
    let unsigned = join.card.clone();
    // A member that has not heard of the other yet.
    net.versions = Versions::of(BOTH);
    let newcomer = net.start(robot(2));
    join.card.versions = Versions::OURS;
    let stripped = bootstrap_sealed(&mut net, &Message::Join(join));
    assert_eq!(hear(&mut net, newcomer, &stripped), Some(Dropped::Auth.into()));
    let mut card: Card = unsigned;
    card.versions = Versions::OURS;
    let stripped = bootstrap_sealed(&mut net, &Message::Give(vec![Object::Card(Box::new(card))]));
    assert_eq!(hear(&mut net, newcomer, &stripped), Some(Dropped::Auth.into()));
    agree(&mut net, "in spite of it");
    assert_eq!(version(&net, newcomer), 2);
}

#[test]
fn a_beacon_stripped_of_versions_is_refused() {
    let mut net = group(4, &[BOTH, BOTH]);
    net.run(2_000);
    let (by, mut beacon): (usize, Beacon) = (0..2)
        .find_map(|by| {
            let mut of =
                net.log.iter().rev().filter(|(_, from, _)| *from == by).map(|(_, _, bytes)| bootstrap_open(bytes));
            of.find_map(|m| if let Message::Beacon(m) = m { Some((by, m)) } else { None })
        })
        .expect("a group says that it is here");
    net.run(100);
    beacon.versions = Versions::OURS;
    let stripped = bootstrap_sealed(&mut net, &Message::Beacon(beacon.clone()));
    assert_eq!(hear(&mut net, 1 - by, &stripped), Some(Dropped::Auth.into()));
    assert!(!is_left_out(&net, 1 - by, net.nodes[by].identity.certificate().hash), "it did not say so");

    // Its author signs something else than its card says: that is its own lie.
    let body = Message::Beacon(beacon.clone()).body();
    beacon.signature = net.nodes[by].keys.key.sign(&signed("sealcast/v1/beacon", GROUP, &[], &body));
    let lie = bootstrap_sealed(&mut net, &Message::Beacon(beacon));
    let cert = net.nodes[by].identity.certificate().hash;
    assert_eq!(hear(&mut net, 1 - by, &lie), Some(HandleError::Misbehaved(cert, Misbehaviour::Version)));
    assert!(is_left_out(&net, 1 - by, cert));
}

/// A member proposes an epoch of version 1 to members that all speak version 2, as if others spoke less.
#[test]
fn a_member_that_says_that_others_speak_less_is_left_out() {
    let mut net = group(5, &[BOTH, BOTH, BOTH, BOTH]);
    let liar = 3;
    let cert = net.nodes[liar].identity.certificate().hash;
    for claimed in [1, 3] {
        let keys = &net.nodes[liar].keys;
        let me = keys.me.short;
        let mut seats: Vec<_> = (0..4).map(|i| net.nodes[i].keys.me.short).filter(|s| *s != me).collect();
        seats.sort_unstable();
        seats.insert(0, me);
        let base = keys.base();
        let mut content = Propose {
            counter: base.unwrap().next_counter(),
            attempt: 1,
            version: claimed,
            kind: Kind::Setup,
            base,
            hint: keys.statements.hint(),
            seats,
            signature: [0; 64],
        };
        let mut nonce = [0; 12];
        net.rng.fill_bytes(&mut nonce);
        content.signature = net.nodes[liar].keys.key.sign(&Proposal::instance(GROUP, &nonce, &content));
        let lie = robot(0).bootstrap_key(GROUP).seal(nonce, &Message::Propose(content).encode());
        for i in 0..3 {
            hear(&mut net, i, &lie);
        }
        assert!((0..3).all(|i| is_left_out(&net, i, cert)), "version {claimed}: {}", net.describe());
        assert!((0..3).all(|i| net.nodes[i].keys.attempt.as_ref().is_none_or(|a| a.proposal.content.version == 2)));
        // Those who were lied to go on at once, without it; it comes back some time.
        assert!(net.run_until(5_000, |net| net.are_one(&[0, 1, 2]) || net.is_one()), "{}", net.describe());
        assert!((0..3).all(|i| version(&net, i) == 2));
        agree(&mut net, "it asks to be let in again");
        net.nodes.iter_mut().for_each(|n| n.notices.clear());
    }
}

/// The version and the cut are part of what an epoch's hash and keys follow from.
#[test]
fn epochs_that_differ_in_version_or_cut_have_other_hashes() {
    let of = |versions: &'static [u8], cut: u8| {
        let mut net = Net::new(6);
        net.versions = Versions::of(versions);
        (0..3).for_each(|i| _ = net.start(robot(i)));
        assert!(net.run_until(5_000, Net::is_one), "{}", net.describe());
        net.run(200);
        let before = net.epoch_of(0);
        net.nodes.iter_mut().for_each(|node| node.cut = Some(cut));
        net.command(0, Command::Rotate).unwrap();
        assert!(net.run_until(5_000, |net| net.is_one() && net.epoch_of(0) != before), "{}", net.describe());
        net.assert_one_key(&[0, 1, 2]);
        net.epoch_of(0).unwrap()
    };
    let epochs = [of(&[1], 0), of(&[1], 7), of(&[1, 2], 0)];
    assert!(epochs[0].hash != epochs[1].hash && epochs[0].hash != epochs[2].hash);
    assert_eq!(of(&[1], 7), epochs[1]);
}

/// Those who were in one view and say that other things were delivered in it make no key together.
#[test]
fn members_with_different_cuts_try_again_and_blame_nobody() {
    let mut net = group(7, &[&[1], &[1], &[1]]);
    let before = net.epoch_of(0);
    net.nodes[1].cut = Some(9);
    net.command(0, Command::Rotate).unwrap();
    net.run(500);
    assert_eq!(net.epoch_of(0), before);
    let blamed = |n: &Notice| matches!(n, Notice::LeftOut { .. });
    assert!(!net.nodes.iter().flat_map(|n| &n.notices).any(blamed), "{}", net.describe());
    net.nodes[1].cut = Some(0);
    assert!(net.run_until(10_000, |net| net.is_one() && net.epoch_of(0) != before), "{}", net.describe());
}

/// A transport that does not say what is delivered holds nobody up for long.
#[test]
fn rule_g7_a_flush_that_does_not_end_is_not_waited_for() {
    let mut net = group(8, &[&[1], &[1], &[1]]);
    let before = net.epoch_of(0);
    net.nodes.iter_mut().for_each(|node| node.cut = None);
    net.command(0, Command::Rotate).unwrap();
    assert!(net.run_until(1_000, |net| net.is_one() && net.epoch_of(0) != before), "{}", net.describe());
    let before = net.epoch_of(0);
    // One alone knows it: with the others it makes no key, and blames nobody.
    net.nodes[1].cut = Some(9);
    net.command(0, Command::Rotate).unwrap();
    net.run(500);
    assert_eq!(net.epoch_of(0), before);
    assert!(!net.nodes.iter().flat_map(|n| &n.notices).any(|n| matches!(n, Notice::LeftOut { .. })));
}

/// A member without the reliable channel would never acknowledge what others send there.
#[test]
fn members_with_other_channels_are_reported_and_form_a_group_of_their_own() {
    let mut net = Net::new(11);
    for reliable in [true, false] {
        net.reliable = reliable;
        (0..2).for_each(|i| _ = net.start(robot(2 * i + usize::from(reliable))));
    }
    let parted = |net: &Net| net.are_one(&[0, 1]) && net.are_one(&[2, 3]);
    assert!(net.run_until(8_000, parted), "{}", net.describe());
    net.run(5_000);
    assert!(parted(&net), "{}", net.describe());
    for (i, other, theirs) in [(0, 2, false), (2, 0, true)] {
        let cert = net.nodes[other].identity.certificate().hash;
        let about = |n: &Notice| *n == Notice::OtherChannels { cert, reliable: theirs };
        let others = net.nodes[i].notices.iter().filter(|n| matches!(n, Notice::OtherChannels { .. }));
        assert!(net.nodes[i].notices.iter().any(about) && others.count() <= 2, "node {i} is told of each once");
    }
    // A later version's items are passed over.
    net.versions = Versions::of(BOTH);
    net.reliable = true;
    net.start(robot(5));
    assert!(net.run_until(8_000, |net| net.are_one(&[0, 1, 4])), "{}", net.describe());
}
