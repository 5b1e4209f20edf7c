//! A change of key under load, in virtual time: nothing is lost, and nothing of the evicted gets in (A5).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::common::Ca;
use crate::common::net::Net;
use sealcast_crypto::identity::Identity;
use sealcast_delivery::multicast::{Data, Multicast, Sender};
use sealcast_keys::Command;
use sealcast_wire::{Domain, Dropped, Guarantee};

const TICK: Duration = Duration::from_millis(1);

/// Members that may do everything, in one view.
fn formed(seed: u64, names: &[&str]) -> (Net<Multicast>, Vec<Arc<Identity>>) {
    let mut ca = Ca::simulated();
    let ids: Vec<_> = names.iter().map(|n| ca.member(n, &["both:#", "evict:#"])).collect();
    let mut net = Net::new(seed);
    let all: Vec<usize> = ids.iter().map(|id| net.start(id)).collect();
    net.together(&all);
    (net, ids)
}

/// One publisher sends 1,000 messages a second for `seconds`; at half time `change` happens.
fn under_load(net: &mut Net<Multicast>, publisher: usize, change: impl FnOnce(&mut Net<Multicast>)) -> u32 {
    let mut change = Some(change);
    for n in 0..2000u32 {
        if n == 1000 {
            change.take().expect("once")(net);
        }
        net.publish(publisher, "pose", &n.to_be_bytes()).expect("taken");
        net.run(TICK);
    }
    net.run(Duration::from_secs(3));
    2000
}

fn numbers(net: &Net<Multicast>, node: usize) -> Vec<u32> {
    let bodies = net.nodes[node].delivered.iter().filter(|m| m.topic() == "pose");
    bodies.map(|m| u32::from_be_bytes(m.payload().try_into().expect("4 bytes"))).collect()
}

/// Each message once, none missing.
fn complete(net: &Net<Multicast>, node: usize, sent: u32) {
    let got = numbers(net, node);
    let distinct: BTreeSet<u32> = got.iter().copied().collect();
    let missing: Vec<u32> = (0..sent).filter(|n| !distinct.contains(n)).collect();
    assert!(missing.is_empty(), "node {node} misses {missing:?}; drops {:?}", net.nodes[node].group.drops());
    assert_eq!(got.len(), distinct.len(), "node {node} got some twice");
}

fn counter(net: &Net<Multicast>, node: usize) -> u32 {
    net.nodes[node].group.view().expect("in a view").epoch.counter
}

#[test]
fn rule_a5_nothing_is_lost_at_a_join() {
    for seed in 0..5 {
        let mut ca = Ca::simulated();
        let ids: Vec<_> = ["a", "b", "c", "d"].iter().map(|n| ca.member(n, &["both:#"])).collect();
        let mut net = Net::new(seed);
        let old: Vec<usize> = ids[..3].iter().map(|id| net.start(id)).collect();
        net.together(&old);
        let before = counter(&net, 0);
        let sent = under_load(&mut net, 0, |net| {
            net.start(&ids[3]);
        });
        net.together(&[0, 1, 2, 3]);
        assert!(counter(&net, 0) > before);
        (0..3).for_each(|node| complete(&net, node, sent));
        let late = numbers(&net, 3);
        let first = *late.iter().min().expect("the joiner hears something");
        assert_eq!(late.len() as u32, sent - first, "from its first message on the joiner misses nothing");
    }
}

#[test]
fn rule_a5_nothing_is_lost_at_a_timed_or_asked_for_rekey() {
    for seed in 0..5 {
        let (mut net, _) = formed(seed, &["a", "b", "c"]);
        let before = counter(&net, 0);
        let sent = under_load(&mut net, 0, |net| net.command(1, Command::Rotate));
        assert!(counter(&net, 0) > before);
        (0..3).for_each(|node| complete(&net, node, sent));
    }
}

#[test]
fn rule_a5_nothing_is_lost_at_an_eviction() {
    for seed in 0..5 {
        let (mut net, ids) = formed(seed, &["a", "b", "c", "d"]);
        let victim = ids[3].certificate().hash;
        let before = counter(&net, 0);
        let sent = under_load(&mut net, 0, |net| {
            net.command(1, Command::Evict { cert: victim, reason: "test".to_owned() });
        });
        net.together(&[0, 1, 2]);
        assert!(counter(&net, 0) > before);
        (0..3).for_each(|node| complete(&net, node, sent));
        assert!(net.nodes[3].group.excluded().is_some(), "the evicted is told");
        assert!(numbers(&net, 3).iter().all(|n| *n < 1500), "the evicted reads nothing of the new epoch");
    }
}

#[test]
fn rule_a5_what_the_evicted_seals_in_anothers_name_is_dropped_as_old_key() {
    let (mut net, ids) = formed(7, &["a", "b", "c", "d"]);
    // Every member can derive every sending key: the evicted one takes a's.
    let stolen = net.nodes[0].group.epoch().expect("in an epoch").protect.clone().expect("sealed");
    let access = net.nodes[0].group.epoch().expect("in an epoch").access.clone();
    let domain: Domain = access.domain("pose").expect("covered");
    let victim = ids[3].certificate().hash;
    let forge = |net: &mut Net<Multicast>, body: &[u8]| {
        let mut sender = Sender::new(1472, false);
        let data =
            Data { topic: "pose", domain, signed: false, guarantee: Guarantee::BestEffort, sent_micros: None, body };
        sender.data(net.now, Some(&stolen), data).expect("the old key still seals");
        while let Some(batch) = sender.poll() {
            batch.iter().for_each(|datagram| net.inject(datagram));
        }
    };
    forge(&mut net, &1u32.to_be_bytes());
    net.run(Duration::from_millis(10));
    assert_eq!(numbers(&net, 1), [1], "inside, a member can claim to be another (A2)");

    net.command(1, Command::Evict { cert: victim, reason: "test".to_owned() });
    for n in 0..200u32 {
        forge(&mut net, &(1000 + n).to_be_bytes());
        net.run(TICK);
    }
    net.together(&[0, 1, 2]);
    net.run(Duration::from_secs(3));
    // b evicted and knows at once; whoever has not heard yet may still believe the old key.
    assert_eq!(numbers(&net, 1), [1], "nothing sealed under the old key after the eviction");
    assert!(net.nodes[1].group.drops().of(Dropped::OldKey) > 100, "{:?}", net.nodes[1].group.drops());
    for node in [0, 2] {
        let believed = numbers(&net, node).into_iter().filter(|n| *n >= 1020).count();
        assert_eq!(believed, 0, "node {node} believes the old key long after the eviction");
    }
}

#[test]
fn rule_a5_old_keys_are_erased_when_the_overlap_ends() {
    let (mut net, _) = formed(9, &["a", "b"]);
    let old = net.nodes[0].group.epoch().expect("in an epoch").protect.clone().expect("sealed");
    let access = net.nodes[0].group.epoch().expect("in an epoch").access.clone();
    let domain = access.domain("pose").expect("covered");
    let before = counter(&net, 0);
    net.command(0, Command::Rotate);
    net.run(Duration::from_millis(500));
    assert!(counter(&net, 1) > before);
    let send_old = |net: &mut Net<Multicast>, n: u32| {
        let mut sender = Sender::new(1472, false);
        let data = Data {
            topic: "pose",
            domain,
            signed: false,
            guarantee: Guarantee::BestEffort,
            sent_micros: None,
            body: &n.to_be_bytes(),
        };
        sender.data(net.now, Some(&old), data).expect("seals");
        while let Some(batch) = sender.poll() {
            batch.iter().for_each(|datagram| net.inject(datagram));
        }
        net.run(Duration::from_millis(10));
    };
    send_old(&mut net, 1);
    assert_eq!(numbers(&net, 1), [1], "in the overlap both epochs are accepted");
    net.run(Duration::from_millis(2100));
    send_old(&mut net, 2);
    assert_eq!(numbers(&net, 1), [1], "after it only the new one");
    assert!(net.nodes[1].group.drops().of(Dropped::NoKey) > 0);
}

#[test]
fn rule_g7_a_paused_publisher_is_told_full() {
    use sealcast::group::PublishError;
    use sealcast_delivery::SendError;
    use sealcast_wire::limits;

    let (mut net, ids) = formed(11, &["a", "b", "c"]);
    let victim = ids[2].certificate().hash;
    // From the command on, and as long as no time passes, the key is changing.
    net.command(0, Command::Evict { cert: victim, reason: "test".to_owned() });
    let mut taken = 0u32;
    let refused = loop {
        match net.publish(0, "pose", &taken.to_be_bytes()) {
            Ok(_) => taken += 1,
            Err(why) => break why,
        }
        assert!(taken <= limits::PAUSED_MESSAGES_MAX as u32, "nothing bounds the queue");
    };
    assert_eq!(refused, PublishError::Send(SendError::Full));
    net.together(&[0, 1]);
    net.run(Duration::from_secs(1));
    complete(&net, 1, taken);
}

#[test]
fn rule_g10_the_same_seed_gives_the_same_trace() {
    let trace = |seed| {
        let (mut net, ids) = {
            let mut ca = Ca::simulated();
            let ids: Vec<_> = ["a", "b"].iter().map(|n| ca.member(n, &["both:#"])).collect();
            let mut net = Net::new(seed);
            net.tapped = Some(Vec::new());
            (net, ids)
        };
        ids.iter().for_each(|id| {
            net.start(id);
        });
        net.together(&[0, 1]);
        net.publish(0, "pose", b"x").expect("taken");
        net.run(Duration::from_secs(1));
        let lengths: Vec<usize> = net.tapped.iter().flatten().map(Vec::len).collect();
        (net.now, lengths)
    };
    assert_eq!(trace(3), trace(3));
}
