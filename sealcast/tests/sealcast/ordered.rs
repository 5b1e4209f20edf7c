//! A contributory group whose messages take positions in one order, all of them or those that are published so beside best
//! effort: what every member gets, at any seed.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::Ca;
use crate::common::net::{Net, Node};
use rand_core::Rng;
use sealcast::group::{PublishError, ViewEvent};
use sealcast_delivery::Outcome;
use sealcast_delivery::memory::Ordered;
use sealcast_keys::Command;
use sealcast_wire::Guarantee;

/// What a member got in the order: position, sender, body.
fn got(node: &Node<Ordered>) -> Vec<(u64, String, Vec<u8>)> {
    let ordered = node.delivered.iter().filter(|it| it.topic() == "pulse");
    let of = |m: &sealcast::group::Message| {
        (m.sequence(), m.origin().name().unwrap_or("?").to_owned(), m.payload().to_vec())
    };
    ordered.map(of).collect()
}

fn seeds() -> std::ops::Range<u64> {
    let many = std::env::var("SEALCAST_SEEDS").ok().and_then(|n| n.parse().ok());
    0..many.unwrap_or(100)
}

/// Everybody publishes all the time, while one joins, the key is changed, and one is evicted.
#[test]
fn rule_b4_all_members_get_the_same_messages_in_one_order_across_changes_of_key() {
    across_changes_of_key(false);
}

/// The same on two channels: the position cuts the ordered one, and the clock the other, in one group.
#[test]
fn rule_b4_one_order_and_rule_a5_no_loss_side_by_side_across_changes_of_key() {
    across_changes_of_key(true);
}

fn across_changes_of_key(both: bool) {
    let mut ca = Ca::simulated();
    let alice = ca.member("alice", &["both:#", "evict:#"]);
    let others = [ca.member("bob", &["both:#"]), ca.member("carol", &["both:#"]), ca.member("dora", &["both:#"])];
    for seed in seeds() {
        let mut world = Net::ordered(seed, both);
        world.start(&alice);
        others[..2].iter().for_each(|it| {
            world.start(it);
        });
        let mut epoch = world.together(&[0, 1, 2]);
        let mut said: BTreeMap<usize, u64> = BTreeMap::new();
        // What was published with best effort, by whom, and who had it due: all in whose view the publisher is, and who are in its.
        let mut due: BTreeMap<Vec<u8>, (usize, Vec<usize>)> = BTreeMap::new();
        // Each change begins a while after the one before it stands: two at once may well be one.
        let (mut changes, mut since, mut evicted) = (0, 0, None);
        while changes < 3 || since < 120 {
            let pause = Duration::from_micros(world.rng.next_u64() % 3000);
            world.run(pause);
            let all: Vec<usize> = (0..world.nodes.len()).collect();
            let stands = world.common(&all).filter(|now| changes == 0 || *now > epoch);
            since += 1;
            if let Some(now) = stands.filter(|_| changes < 3 && since >= 80) {
                (epoch, changes, since) = (now, changes + 1, 0);
                match changes {
                    1 => {
                        world.start(&others[2]);
                    }
                    2 => world.command(1, Command::Rotate),
                    _ => {
                        let cert = others[1].certificate().hash;
                        world.command(0, Command::Evict { cert, reason: "lost".into() });
                        evicted = Some(got(&world.nodes[2]).len());
                    }
                }
            }
            assert!(since < 5000, "seed {seed}: change {changes} does not come to stand");
            let who = (world.rng.next_u64() % world.nodes.len() as u64) as usize;
            if both {
                let body = world.rng.next_u64().to_be_bytes().to_vec();
                if world.publish_as(who, "pose", &body, Guarantee::BestEffort).is_ok() {
                    let sees = |a: usize, b: usize| {
                        let of = |node: &Node<Ordered>| node.group.view().cloned();
                        let me = of(&world.nodes[b]).and_then(|view| Some(view.member(view.me)?.id));
                        me.is_some_and(|me| {
                            of(&world.nodes[a]).is_some_and(|view| view.members.iter().any(|it| it.id == me))
                        })
                    };
                    let others = (0..world.nodes.len()).filter(|it| *it != who && sees(who, *it) && sees(*it, who));
                    due.insert(body, (who, others.collect()));
                }
            }
            let number = said.get(&who).copied().unwrap_or(0);
            match world.publish(who, "pulse", &[&[who as u8][..], &number.to_be_bytes()].concat()) {
                Ok(_) => {
                    said.insert(who, number + 1);
                }
                Err(PublishError::NotReady | PublishError::Excluded(_)) => {}
                Err(why) => panic!("seed {seed}: {why}"),
            }
        }
        assert!(world.together(&[0, 1, 3]) > epoch, "seed {seed}: the eviction changes the key");
        world.run(Duration::from_secs(3));

        for (body, (who, others)) in &due {
            for other in others.iter().filter(|it| ![2, *who].contains(*it) && *who != 2) {
                let count = world.nodes[*other].delivered.iter().filter(|it| it.payload() == body).count();
                assert_eq!(count, 1, "seed {seed}: {other} got this often what {who} published with best effort");
            }
        }
        for who in [0, 1, 3] {
            let node = &world.nodes[who];
            let out = node.views.iter().position(
                |it| matches!(it, ViewEvent::Changed { left, .. } if left.iter().any(|it| &*it.name == "carol")),
            );
            let out = out.expect("the view without carol is shown") + 1;
            let late = node
                .delivered
                .iter()
                .zip(&node.views_then)
                .filter(|(it, then)| **then >= out && it.origin().name() == Some("carol"));
            assert_eq!(late.count(), 0, "seed {seed}: {who} hears the evicted after it saw it leave");
        }
        let [whole, second, gone, late] = [0, 1, 2, 3].map(|i| got(&world.nodes[i]));
        assert!(whole.is_sorted_by(|a, b| a.0 < b.0), "seed {seed}: places rise");
        let differs = second.iter().zip(&whole).position(|(a, b)| a != b);
        let around = |all: &[(u64, String, Vec<u8>)]| {
            let at = differs.unwrap_or(all.len().saturating_sub(1)).saturating_sub(3);
            let short = |it: &(u64, String, Vec<u8>)| format!("{} {}{}", it.0, it.1, it.2[8]);
            all.iter().skip(at).take(12).map(short).collect::<Vec<_>>()
        };
        let both = (around(&second), around(&whole));
        assert_eq!((differs, second.len()), (None, whole.len()), "seed {seed}: one order: {both:?}");
        // Who joined gets all from its first message on, and the evicted all up to its last.
        assert!(!late.is_empty() && whole.ends_with(&late), "seed {seed}: {} of {}", late.len(), whole.len());
        assert!(whole.starts_with(&gone), "seed {seed}: {} of {}", gone.len(), whole.len());
        assert!(gone.len() < whole.len() && evicted.is_some_and(|n| gone.len() >= n), "seed {seed}");
        for who in [0, 1, 3] {
            let name = ["alice", "bob", "carol", "dora"][who];
            let heard: Vec<u64> = whole
                .iter()
                .filter(|(_, from, _)| from == name)
                .map(|(_, _, body)| u64::from_be_bytes(body[1..].try_into().expect("a number")))
                .collect();
            let all: Vec<u64> = (0..said[&who]).collect();
            assert_eq!(heard, all, "seed {seed}: {name}'s messages, each once and in its order");
            assert!(!world.nodes[who].outcomes.contains(&Outcome::Failed), "seed {seed}");
        }
    }
}

/// A member is stopped for 20 s, as by SIGSTOP, and goes on in a group of its own until it has met the others again: what it
/// is told to have a place, they get; of the rest it is told that it cannot know.
#[test]
fn rule_b2_nobody_is_told_that_the_group_has_what_it_never_gets() {
    while_one_is_stopped(false);
}

#[test]
fn rule_b2_nobody_is_told_so_on_two_channels_either() {
    while_one_is_stopped(true);
}

fn while_one_is_stopped(both: bool) {
    let mut ca = Ca::simulated();
    let members: Vec<_> = ["alice", "bob", "carol"].map(|name| ca.member(name, &["both:#"])).into();
    let mut doubts = 0;
    for seed in seeds() {
        for others in [1, 2] {
            let mut world = Net::ordered(seed, both);
            members[..=others].iter().for_each(|it| {
                world.start(it);
            });
            let all: Vec<usize> = (0..=others).collect();
            world.together(&all);
            world.stop(others);
            for n in 0..100_u64 {
                world.run(Duration::from_millis(200));
                if n == 20 {
                    // It does not answer, and is left out.
                    world.command(0, Command::Rotate);
                }
                let _ = world.publish(0, "pulse", &n.to_be_bytes());
            }
            world.resume(others);
            let mut said = BTreeMap::new();
            for n in 0..100_u64 {
                let body = [&b"from the stopped"[..], &n.to_be_bytes()].concat();
                if let Ok(token) = world.publish(others, "pulse", &body) {
                    said.insert(token, body);
                }
                world.run(Duration::from_millis(50));
            }
            world.together(&all);
            world.run(Duration::from_secs(3));
            let node = &world.nodes[others];
            for (token, body) in &said {
                let got = world.nodes[0].delivered.iter().any(|m| m.payload() == body);
                let outcome = node.outcome_of.get(token);
                let acknowledged = matches!(outcome, Some(Outcome::Ordered(_) | Outcome::Accepted));
                assert!(outcome.is_some(), "seed {seed}: of {token:?} nothing is ever known");
                assert!(
                    got || !acknowledged,
                    "seed {seed}, {others} others: {token:?} is {outcome:?}, and nobody got it"
                );
                doubts += u64::from(outcome == Some(&Outcome::InDoubt));
            }
        }
    }
    assert!(doubts > 0, "it never came to a group of its own");
}

/// What was ordered in a view goes into the next one's key: of those who were shown two orders, nobody follows the other into
/// an epoch, and nobody is blamed.
#[test]
fn rule_b4_members_who_were_shown_two_orders_install_no_epoch_together() {
    let mut ca = Ca::simulated();
    let ids = ["alice", "bob", "carol"].map(|name| ca.member(name, &["both:#"]));
    for seed in 0..5 {
        let mut world = Net::ordered(seed, true);
        ids.iter().for_each(|id| _ = world.start(id));
        let first = world.together(&[0, 1, 2]);
        let say = |world: &mut Net<Ordered>, who: usize| {
            world.publish(who, "pulse", &[who as u8]).expect("taken");
            world.run(Duration::from_millis(50));
        };
        (0..3).for_each(|who| say(&mut world, who));
        world.command(1, Command::Rotate);
        world.run(Duration::from_secs(2));
        let before = world.together(&[0, 1, 2]);
        assert!(before > first, "seed {seed}: of one order they make a key");

        world.fork(&[2]);
        say(&mut world, 2);
        say(&mut world, 0);
        assert_ne!(got(&world.nodes[0]), got(&world.nodes[2]), "seed {seed}");
        world.command(0, Command::Rotate);
        for _ in 0..100 {
            world.run(Duration::from_millis(50));
            let epoch = |who: usize| world.nodes[who].group.view().map(|view| view.epoch);
            let same = epoch(2).filter(|it| it.counter > before && (0..2).any(|who| epoch(who) == Some(*it)));
            assert_eq!(same, None, "seed {seed}: one epoch after two orders");
        }
        assert!((0..3).all(|who| world.nodes[who].group.misbehaved().next().is_none()), "seed {seed}");
    }
}

/// One publishes thousands at one moment, and is told of each what position it has, in its order.
#[test]
fn thousands_of_ordered_messages_are_under_way_at_once() {
    let mut ca = Ca::simulated();
    let ids = ["alice", "bob"].map(|name| ca.member(name, &["both:#"]));
    let mut world = Net::ordered(1, true);
    ids.iter().for_each(|id| _ = world.start(id));
    world.together(&[0, 1]);
    world.run(Duration::from_secs(1));
    let publish = |n: u32| world.publish(0, "pulse", &n.to_be_bytes()).expect("there is room");
    let tokens: Vec<_> = (0..4000).map(publish).collect();
    assert!(world.nodes[0].outcome_of.is_empty(), "all are under way");
    world.run(Duration::from_secs(3));
    let position = |token| match world.nodes[0].outcome_of.get(token) {
        Some(Outcome::Ordered(position)) => *position,
        other => panic!("{token:?}: {other:?}"),
    };
    let positions: Vec<u64> = tokens.iter().map(position).collect();
    assert!(positions.is_sorted_by(|a, b| a < b));
    for node in &world.nodes {
        let bodies: Vec<u32> =
            got(node).iter().map(|it| u32::from_be_bytes(it.2[..].try_into().expect("a number"))).collect();
        assert_eq!(bodies, (0..4000).collect::<Vec<_>>());
    }
}
