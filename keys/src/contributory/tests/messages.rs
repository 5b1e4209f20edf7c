//! How many messages it takes: what grows with a group's size, and what must not.

use super::super::message::{Beacon, Object};
use super::*;

/// A LAN between programs: 150 to 300 µs, no loss; starts within 100 ms.
fn lan(seed: u64, n: usize) -> Net {
    let mut net = Net::robots(seed, n, 100);
    (net.delay, net.spread) = (150, 150);
    net.keep_log = true;
    assert!(net.run_until(5_000, Net::is_one), "n {n}, seed {seed}\n{}", net.describe());
    net
}

fn epochs(net: &Net) -> usize {
    net.nodes.iter().flat_map(|n| &n.epochs).map(|e| e.view.epoch).collect::<BTreeSet<_>>().len()
}

#[test]
fn those_who_start_within_a_tenth_of_a_second_find_each_other_by_a_few_responses() {
    for n in [2, 3, 4, 5, 8, 16, 32, 64] {
        for seed in 0..seeds(if n > 16 { 3 } else { 10 }) {
            let net = lan(seed, n);
            let (counters, epochs) = (net.counters(), epochs(&net));
            let of = format!("n {n}, seed {seed}: {epochs} epochs, {counters:?}");
            assert!(counters["RESPONSE"].0 <= 3 * epochs as u64, "{of}");
            assert!(epochs <= 3, "one group, not parts that must merge: {of}");
            assert!(counters["JOIN"].0 <= (n + 2 * n.isqrt()) as u64, "N + o(N), {of}");
            assert!(net.since_last_start() < 100.0, "{} ms, {of}", net.since_last_start());
        }
    }
}

#[test]
fn one_joins_a_large_group_by_as_many_messages_as_a_small_one() {
    let mut seen = BTreeSet::new();
    for n in [8, 63] {
        for seed in 0..seeds(3) {
            // Right after it formed, when cards were given a moment ago.
            let mut net = lan(seed, n);
            let before = net.counters();
            net.start(robot(n));
            assert!(net.run_until(2_000, Net::is_one), "{}", net.describe());
            let sent = |kind: &str| net.counters()[kind].0 - before[kind].0;
            let all: u64 = before.keys().map(|kind| sent(kind)).sum();
            assert!(sent("GIVE") <= (n + n / 8 + 2) as u64, "each card about once: {}", sent("GIVE"));
            assert!(net.since_last_start() < 50.0, "{} ms", net.since_last_start());
            seen.insert(all - sent("GIVE") - sent("FETCH"));
        }
    }
    let (least, most) = (*seen.first().unwrap(), *seen.last().unwrap());
    assert!(most <= 16 && most * 4 <= least * 5, "{seen:?}");
}

#[test]
fn newcomers_hear_of_the_group_before_they_would_found_one() {
    for seed in 0..seeds(10) {
        let mut net = lan(seed, 5);
        net.run(300);
        // One every 15 ms for 150 ms: JOINs never end for long enough to be answered at once.
        for i in 5..15 {
            net.start(robot(i));
            net.run(15);
        }
        assert!(net.run_until(2_000, Net::is_one), "{}", net.describe());
        let alone =
            net.nodes.iter().flat_map(|n| &n.epochs).any(|e| e.view.members.iter().all(|m| !is_old(&net, m.id)));
        assert!(!alone, "seed {seed}: newcomers founded a group of their own\n{}", net.tail(60));
    }
}

fn is_old(net: &Net, id: sealcast_wire::MemberId) -> bool {
    net.nodes[..5].iter().any(|n| n.keys.me.id == id)
}

#[test]
fn w6_a_member_that_never_speaks_when_it_is_its_turn_keeps_nobody_out() {
    for mute in 0..6 {
        let mut net = lan(7, 6);
        net.run(300);
        net.muted.insert(mute);
        let new = net.start(robot(6));
        let others: Vec<usize> = (0..=new).filter(|i| *i != mute).collect();
        let all = |net: &Net| {
            let views = others.iter().map(|i| net.nodes[*i].epochs.last().map(|e| &e.view));
            let first = net.nodes[new].epochs.last().map(|e| &e.view);
            let same = |v: &View| views.flatten().filter(|w| w.epoch == v.epoch).count() == others.len();
            first.is_some_and(|v| v.members.len() >= others.len() && same(v))
        };
        assert!(net.run_until(5_000, all), "{mute} is mute\n{}", net.describe());
    }
}

/// An outsider sends a newcomer's JOIN again and again.
#[test]
fn rule_g8_old_joins_are_answered_by_few_beacons() {
    let mut net = lan(8, 6);
    let newcomer = net.start(robot(6));
    net.run(1);
    net.nodes[newcomer].alive = false;
    let join = net
        .log
        .iter()
        .rev()
        .map(|(_, _, b)| b)
        .find(|b| matches!(bootstrap_open(b), Message::Join(_)))
        .unwrap()
        .clone();
    net.run(2_000);
    let from = net.log.len();
    for _ in 0..1_000 {
        net.transmit(newcomer, None, join.clone());
        net.run(5);
    }
    let beacons =
        net.log[from..].iter().filter(|(_, _, b)| matches!(bootstrap_open(b), Message::Beacon(Beacon { .. }))).count();
    assert!(beacons <= 5 * 25, "{beacons} in 5 s");
}

#[test]
fn two_who_come_one_after_the_other_are_both_given_the_cards_that_they_ask_for() {
    let mut net = lan(9, 3);
    let given = |net: &Net, from: usize, cert| {
        let cards = net.log[from..].iter().filter_map(|(_, _, bytes)| match bootstrap_open(bytes) {
            Message::Give(objects) => Some(objects),
            _ => None,
        });
        let of = |o: &Object| matches!(o, Object::Card(card) if card.cert == cert);
        cards.flatten().filter(of).count()
    };
    for i in 3..6 {
        let (from, cert) = (net.log.len(), net.nodes[0].identity.certificate().hash);
        net.start(robot(i));
        assert!(net.run_until(60, Net::is_one), "{}", net.describe());
        assert!((1..=2).contains(&given(&net, from, cert)), "asked once, given once");
    }
}

#[test]
fn rule_a4_a_statement_whose_first_saying_is_lost_is_said_again() {
    let mut net = lan(10, 5);
    net.run(300);
    // Of an unknown member, so that no proposal says that there is something to be known.
    let (hash, serial) = (sealcast_wire::CertHash([9; 32]), robot(40).certificate().serial);
    let statement = house().authority.evict(GROUP, serial, hash, "gone", false).unwrap();
    net.muted.insert(0);
    net.command(0, Command::Learn(statement)).unwrap();
    net.muted.clear();
    assert_eq!(net.held_back.len(), 1);
    let from = net.log.len();
    net.run(60);
    let heard = net.nodes[1..].iter().filter(|n| n.keys.statements.evictions().len() == 1).count();
    assert_eq!(heard, 4, "all know it soon\n{}", net.tail(20));
    net.run(3_000);
    let said = net.log[from..].iter().filter(|(_, _, bytes)| matches!(bootstrap_open(bytes), Message::Give(_))).count();
    assert_eq!(said, 2, "twice more, and no oftener");
}
