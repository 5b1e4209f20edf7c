//! Groups that form, grow, lose members and leaders, part and merge.

use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};
use sealcast_crypto::identity::Act;
use sealcast_wire::{Change, Domain, limits};

use super::super::STAND_BYS;
use super::net::{Net, REKEY, open, seal};
use super::realm::{ALL, PLAIN};
use crate::{Command, Exclusion};

/// A leader and others, in one group.
fn group(seed: u64, leaders: usize, others: usize) -> (Net, Vec<usize>) {
    let mut net = Net::new(seed);
    let mut all: Vec<usize> = (0..leaders).map(|i| net.start(&format!("leader{i}"), ALL)).collect();
    all.extend((0..others).map(|i| net.start(&format!("m{i}"), PLAIN)));
    net.meet(&all, 3000);
    (net, all)
}

#[test]
fn newcomers_come_to_one_key_whoever_is_first() {
    for seed in 0..40 {
        let mut net = Net::new(seed);
        let mut all = Vec::new();
        for i in 0..6 {
            all.push(net.start(&format!("m{i}"), if (i + seed as usize).is_multiple_of(3) { ALL } else { PLAIN }));
            net.for_millis(seed % 5 * 40);
        }
        net.meet(&all, 4000);
    }
}

#[test]
fn one_joins_sixteen_within_milliseconds() {
    let (mut net, mut all) = group(1, 2, 14);
    all.push(net.start("late", PLAIN));
    let took = net.meet(&all, 1000);
    assert!(took <= 40, "{took} ms");
    let epoch = net.view(all[0]).epoch;
    net.for_millis(1000);
    assert_eq!(net.view(all[0]).epoch, epoch, "nothing else changes");
}

#[test]
fn rule_c2_a_group_forms_only_around_who_may_lead() {
    let mut net = Net::new(1);
    let plain = [net.start("a", PLAIN), net.start("b", PLAIN)];
    net.for_millis(3000);
    assert!(plain.iter().all(|at| net.nodes[*at].views.is_empty()));
    let leader = net.start("leader", ALL);
    net.meet(&[plain[0], plain[1], leader], 3000);
    assert_eq!(net.leader(plain[0]), net.hash(leader));
}

#[test]
fn many_are_let_in_under_loss() {
    for seed in 0..30 {
        let mut net = Net::new(seed);
        net.loss = seed % 3 * 10;
        let mut all = vec![net.start("leader", ALL), net.start("stand-by", ALL)];
        all.extend((0..10).map(|i| net.start(&format!("m{i}"), PLAIN)));
        net.meet(&all, 20_000);
    }
}

/// LSGC, weakness 13: the message of a change grew with the group, to 24 bytes for each member.
/// Two hundred come at once; then one joins, one leaves, and the leader dies. Nothing is longer than a packet.
#[test]
fn lsgc_w13_two_hundred_members_join_leave_and_lose_their_leader_in_packets() {
    let mut net = Net::new(1);
    let mut all = vec![net.start("leader", ALL), net.start("stand-by", ALL), net.start("third", ALL)];
    all.extend((0..197).map(|i| net.start(&format!("m{i}"), PLAIN)));
    net.meet(&all, 20_000);
    net.for_millis(4000);
    net.tapped.clear();
    all.push(net.start("late", PLAIN));
    let joined = net.meet(&all, 1000);
    assert_eq!(net.view(all[0]).change, Change::Joined);
    let leaver = all.remove(100);
    net.command(leaver, Command::Leave);
    let left = net.meet(&all, 1000);
    assert!(joined <= 100 && left <= 100, "{joined} and {left} ms");
    let leader = *all.iter().find(|at| net.hash(**at) == net.leader(all[0])).unwrap();
    net.stop(leader);
    all.retain(|at| *at != leader);
    all.iter().for_each(|at| net.suspect(*at, leader));
    net.meet(&all, 3000);
    let longest = net.tapped.iter().map(Vec::len).max().unwrap();
    assert!(longest <= 1200, "{longest} bytes");
}

/// What a change costs each member does not grow with the group, but for the acknowledgement of each.
#[test]
fn a_join_and_a_leave_are_heard_by_all_a_few_times() {
    let mut net = Net::new(7);
    let mut all = vec![net.start("leader", ALL), net.start("stand-by", ALL)];
    all.extend((0..98).map(|i| net.start(&format!("m{i}"), PLAIN)));
    net.meet(&all, 20_000);
    net.for_millis(4000);
    for round in 0..4 {
        let before = net.receptions;
        all.push(net.start(&format!("late {round}"), PLAIN));
        net.meet(&all, 1000);
        let joined = net.receptions - before;
        let before = net.receptions;
        net.command(all.pop().unwrap(), Command::Leave);
        net.meet(&all, 1000);
        let left = net.receptions - before;
        assert!(joined <= 8 * all.len() && left <= 8 * all.len(), "{joined} and {left} receptions");
    }
}

/// A group with a reliable channel: one more than 64, where all have verification keys, is no limit.
#[test]
fn who_comes_to_a_full_group_is_told_so_and_let_in_once_somebody_left() {
    let mut net = Net::new(5);
    net.reliable = true;
    let mut all = vec![net.start("leader", ALL), net.start("stand-by", ALL)];
    all.extend((2..limits::ORDERED_MEMBERS_MAX).map(|i| net.start(&format!("m{i}"), PLAIN)));
    net.meet(&all, 20_000);
    let leader = *all.iter().find(|at| net.hash(**at) == net.leader(all[0])).unwrap();
    assert!(all.iter().all(|at| net.nodes[*at].full.is_empty()));
    let before = net.view(leader).epoch;
    let late = net.start("late", PLAIN);
    net.for_millis(1500);
    assert!(net.nodes[late].views.is_empty() && net.together(&all));
    assert_eq!(net.view(leader).epoch, before, "nothing changes for who finds the group full");
    assert_eq!((&net.nodes[late].full, &net.nodes[leader].full), (&vec![true], &vec![false]), "once each");
    let leaver = all.pop().unwrap();
    net.command(leaver, Command::Leave);
    all.push(late);
    net.meet(&all, 3000);
}

#[test]
fn who_leaves_is_gone_at_once_and_reads_nothing_more() {
    let (mut net, all) = group(3, 2, 3);
    net.command(all[4], Command::Leave);
    net.meet(&all[..4], 200);
    assert_eq!(net.view(all[0]).change, Change::Left);
    net.for_millis(200);
    assert_eq!(net.nodes[all[4]].excluded, Some(Exclusion::Left));
    let sealed = seal(&net.nodes[all[0]], Domain::GROUP, b"secret").unwrap();
    assert_eq!(open(&net.nodes[all[4]], &sealed), None);
}

#[test]
fn a_leader_that_leaves_hands_over_within_milliseconds() {
    for seed in 0..30 {
        let (mut net, all) = group(seed, 3, 3);
        let leader = *all.iter().find(|at| net.hash(**at) == net.leader(all[0])).unwrap();
        let rest: Vec<usize> = all.iter().copied().filter(|at| *at != leader).collect();
        net.command(leader, Command::Leave);
        // Also where what the next leader proposes overtakes the last one's word that it leaves.
        let took = net.meet(&rest, 500);
        assert!(took <= 12, "seed {seed}: {took} ms");
        net.for_millis(600);
        assert_eq!(net.nodes[leader].excluded, Some(Exclusion::Left));
    }
}

#[test]
fn lsgc_w14_rule_c2_a_stand_by_leads_on_without_the_centre() {
    for seed in 0..20 {
        let (mut net, all) = group(seed, 3, 4);
        net.for_millis(1500);
        let leader = *all.iter().find(|at| net.hash(**at) == net.leader(all[0])).unwrap();
        net.kdc_is_up = false;
        net.stop(leader);
        net.for_millis(500);
        net.suspect_lost();
        let rest: Vec<usize> = all.iter().copied().filter(|at| *at != leader).collect();
        net.meet(&rest, 3000);
        assert_eq!(net.view(rest[0]).change, Change::Suspected);
        // And once more.
        let second = *rest.iter().find(|at| net.hash(**at) == net.leader(rest[0])).unwrap();
        net.stop(second);
        net.suspect_lost();
        let rest: Vec<usize> = rest.into_iter().filter(|at| *at != second).collect();
        net.meet(&rest, 5000);
    }
}

#[test]
fn rule_c2_who_stands_by_has_its_keys_before_the_view_is_installed() {
    for seed in 0..10 {
        let (mut net, mut all) = group(seed, 4, 3);
        let assert_ready = |net: &Net, all: &[usize]| {
            let certs: Vec<_> = all.iter().map(|at| net.hash(*at)).collect();
            let has = |at: &&usize| {
                let leads = &net.nodes[**at].keys.as_ref().unwrap().leads;
                certs.iter().all(|it| *it == net.hash(**at) || leads.salt_with(it).is_some())
            };
            let ready = all.iter().filter(has).count();
            assert!(ready > STAND_BYS, "seed {seed}: {ready} are ready");
        };
        assert_ready(&net, &all);
        all.push(net.start("late", PLAIN));
        net.meet(&all, 3000);
        assert_ready(&net, &all);
        // It leads on although the centre has been gone since the moment at which it came to stand by.
        let leader = *all.iter().find(|at| net.hash(**at) == net.leader(all[0])).unwrap();
        net.command(leader, Command::Leave);
        let rest: Vec<usize> = all.iter().copied().filter(|at| *at != leader).collect();
        net.meet(&rest, 500);
        assert_ready(&net, &rest);
        // Where it gives none, changes go on.
        net.kdc_is_up = false;
        net.command(rest[0], Command::Rotate);
        net.for_millis(400);
        net.meet(&rest, 500);
    }
}

#[test]
fn who_held_all_up_is_not_let_in_again_at_once() {
    let (mut net, all) = group(11, 2, 3);
    let (slow, rest) = (all[4], &all[..4]);
    rest.iter().for_each(|at| net.suspect(*at, slow));
    net.call_slow(rest, net.hash(slow));
    net.meet(rest, 500);
    net.for_millis(limits::SLOW_OUT.as_millis() as u64 - 2_000);
    assert!(net.together(rest), "it is there all the time, and asks");
    net.meet(&all, 5_000);
}

#[test]
fn without_anybody_who_may_lead_the_view_stays_until_one_comes() {
    let (mut net, all) = group(5, 1, 3);
    net.stop(all[0]);
    net.suspect_lost();
    net.for_millis(2000);
    assert!(all[1..].iter().all(|at| net.nodes[*at].excluded.is_none()));
    let leader = net.nodes[all[0]].principal.clone();
    let again = net.run(leader);
    net.meet(&[again, all[1], all[2], all[3]], 5000);
}

#[test]
fn who_falls_silent_in_a_change_is_left_out_of_the_next() {
    let (mut net, all) = group(6, 2, 3);
    net.stop(all[4]);
    net.command(all[1], Command::Rotate);
    net.meet(&all[..4], 3000);
}

/// As long as its leader goes on with a proposal, since some still answer, those who answered do not give it up.
#[test]
fn a_change_that_takes_long_keeps_those_who_are_ready() {
    let mut net = Net::new(12);
    net.detect = Duration::from_secs(20);
    let mut all = vec![net.start("leader", ALL)];
    all.extend((0..4).map(|i| net.start(&format!("m{i}"), PLAIN)));
    net.meet(&all, 3000);
    net.for_millis(500);
    let before = net.view(all[0]).epoch.counter;
    (1..).zip(&all[2..]).for_each(|(part, at)| net.parts[*at] = part);
    net.command(all[1], Command::Rotate);
    for at in &all[2..] {
        net.for_millis(2_000);
        net.parts[*at] = 0;
    }
    net.for_millis(1_000);
    assert!(net.together(&all));
    assert_eq!((net.view(all[0]).epoch.counter, net.view(all[1]).epoch.counter), (before + 1, before + 1));
    assert_eq!(net.view(all[1]).change, Change::Rekeyed);
}

#[test]
fn a_key_is_replaced_by_time_and_on_demand() {
    let (mut net, all) = group(7, 1, 2);
    net.for_millis(200);
    let before = net.view(all[0]).epoch.counter;
    net.command(all[2], Command::Rotate);
    net.for_millis(100);
    assert_eq!((net.view(all[0]).epoch.counter, net.view(all[2]).change), (before + 1, Change::Rekeyed));
    net.for_millis(REKEY.as_millis() as u64 + 1000);
    assert_eq!(net.view(all[1]).epoch.counter, before + 2);
    assert!(net.together(&all));
}

#[test]
fn rule_c1_a_revoked_member_is_out_within_a_second_and_stays_out() {
    let (mut net, all) = group(8, 2, 3);
    let (cert, victim) = (net.hash(all[4]), net.nodes[all[4]].principal.clone());
    net.command(all[1], Command::Evict { cert, reason: "lost".into() });
    let took = net.meet(&all[..4], 1500);
    assert!(took <= 1200, "{took} ms");
    assert_eq!(net.view(all[0]).change, Change::Evicted);
    net.for_millis(1500);
    assert!(matches!(net.nodes[all[4]].excluded, Some(Exclusion::Evicted { .. })));
    let sealed = seal(&net.nodes[all[0]], Domain::GROUP, b"secret").unwrap();
    assert_eq!(open(&net.nodes[all[4]], &sealed), None);
    let again = net.run(victim);
    net.for_millis(4000);
    assert!(net.together(&all[..4]) && net.nodes[again].views.is_empty());
}

#[test]
fn rule_g7_a_wish_for_a_new_key_that_is_lost_is_said_again() {
    let (mut net, all) = group(14, 1, 2);
    net.for_millis(200);
    let before = net.view(all[0]).epoch;
    net.loss = 100;
    net.command(all[2], Command::Rotate);
    net.for_millis(10);
    net.loss = 0;
    net.for_millis(400);
    assert!(net.together(&all) && net.view(all[0]).epoch.counter == before.counter + 1);
    net.for_millis(3000);
    assert_eq!(net.view(all[0]).epoch.counter, before.counter + 1, "one wish brings one key");
}

#[test]
fn a_revoked_leader_is_led_away() {
    let (mut net, all) = group(9, 3, 3);
    let leader = *all.iter().find(|at| net.hash(**at) == net.leader(all[0])).unwrap();
    let other = *all[..3].iter().find(|at| **at != leader).unwrap();
    let cert = net.hash(leader);
    net.command(other, Command::Evict { cert, reason: String::new() });
    let rest: Vec<usize> = all.iter().copied().filter(|at| *at != leader).collect();
    net.meet(&rest, 3000);
    assert_eq!(net.view(rest[0]).change, Change::Evicted);
}

#[test]
fn two_parts_merge_and_the_greater_takes_the_other_in() {
    for seed in 0..20 {
        let (mut net, all) = group(seed, 4, 4);
        net.for_millis(1200);
        let mine = |at: &&usize| (**at).is_multiple_of(3);
        all.iter().filter(mine).for_each(|at| net.parts[*at] = 1);
        net.suspect_lost();
        net.for_millis(3000);
        let (one, two): (Vec<usize>, Vec<usize>) = all.iter().copied().partition(|at| mine(&at));
        assert!(net.together(&one) && net.together(&two), "seed {seed}: {:?}", net.seen());
        all.iter().for_each(|at| net.parts[*at] = 0);
        net.meet(&all, 4000);
        assert_eq!(net.view(one[0]).change, Change::Merged);
    }
}

#[test]
fn a_run_that_starts_anew_takes_the_old_ones_place() {
    let (mut net, all) = group(10, 2, 2);
    let again = net.nodes[all[3]].principal.clone();
    let again = net.run(again);
    net.meet(&[all[0], all[1], all[2], again], 1000);
    net.for_millis(500);
    assert_eq!(net.nodes[all[3]].excluded, Some(Exclusion::Duplicate));
}

#[test]
fn members_that_do_not_agree_how_their_view_ended_come_to_no_epoch_until_they_do() {
    let (mut net, all) = group(11, 1, 3);
    net.nodes[all[2]].cut = 9;
    let before = net.view(all[0]).epoch;
    net.command(all[0], Command::Rotate);
    net.for_millis(150);
    assert_eq!(net.view(all[0]).epoch, before);
    net.nodes[all[2]].cut = 1;
    net.for_millis(1000);
    assert!(net.together(&all) && net.view(all[0]).epoch.counter > before.counter);
    assert_eq!(net.view(all[3]).cut, [1; 32]);
}

/// An epoch's entry is lost, and the leader goes on to the next one: the member takes both in.
#[test]
fn rule_b4_no_member_passes_over_an_epoch_that_others_were_in() {
    for seed in 0..20 {
        let (mut net, all) = group(seed, 1, 3);
        net.for_millis(200);
        let from = net.view(all[0]).epoch.counter;
        net.loss = 25;
        for _ in 0..4 {
            net.command(all[0], Command::Rotate);
            net.for_millis(20);
        }
        net.loss = 0;
        net.for_millis(1000);
        assert!(net.together(&all), "seed {seed}: {:?}", net.seen());
        let last = net.view(all[0]).epoch.counter;
        for at in &all {
            let passed: Vec<u32> = net.nodes[*at].views.iter().map(|it| it.view.epoch.counter).collect();
            assert!((from..=last).all(|it| passed.contains(&it)), "seed {seed}: {passed:?} of {from} to {last}");
        }
    }
}

/// The order of a group would begin a second time: its leader dies, comes back at once, and hears nobody who leads.
#[test]
fn rule_b1_a_leader_that_comes_back_forms_no_group_beside_its_own() {
    for seed in 0..20 {
        let (mut net, all) = group(seed, 3, 2);
        net.for_millis(1500);
        let leader = *all.iter().find(|at| net.hash(**at) == net.leader(all[0])).unwrap();
        let again = net.nodes[leader].principal.clone();
        net.stop(leader);
        let again = net.run(again);
        net.for_millis(1200);
        assert!(net.nodes[again].views.is_empty(), "seed {seed}: {:?}", net.seen());
        net.suspect_lost();
        let mut rest: Vec<usize> = all.iter().copied().filter(|at| *at != leader).collect();
        rest.push(again);
        net.meet(&rest, 3000);
    }
}

#[test]
fn rule_a8_who_may_not_read_a_topic_gets_no_key_of_it_and_who_only_writes_is_heard() {
    let mut net = Net::new(12);
    let leader = net.start("leader", ALL);
    let poser = net.start("poser", &[(Act::Both, "pose/#")]);
    let logger = net.start("logger", &[(Act::Publish, "log/#")]);
    net.meet(&[leader, poser, logger], 3000);
    let access = net.nodes[leader].views.last().unwrap().access.clone();
    let (pose, rest) = (access.domain("pose/1").unwrap(), access.domain("log/1").unwrap());
    assert_ne!(pose, rest);
    let of = |at: usize, domain| seal(&net.nodes[at], domain, b"x");
    assert!(open(&net.nodes[poser], &of(leader, pose).unwrap()).is_some());
    assert!(open(&net.nodes[poser], &of(leader, rest).unwrap()).is_none());
    assert!(of(logger, pose).is_none(), "it may write none of it");
    let logged = of(logger, rest).unwrap();
    assert!(open(&net.nodes[leader], &logged).is_some() && open(&net.nodes[poser], &logged).is_none());
    assert!(open(&net.nodes[logger], &of(leader, rest).unwrap()).is_none(), "it writes and does not read");
}

#[test]
fn without_the_centre_the_group_goes_on_and_those_wait_that_it_does_not_know() {
    let (mut net, all) = group(13, 2, 2);
    net.kdc_is_up = false;
    net.command(all[1], Command::Rotate);
    net.for_millis(300);
    assert!(net.together(&all));
    let late = net.start("late", PLAIN);
    net.for_millis(3000);
    assert!(net.together(&all) && net.nodes[late].views.is_empty());
    net.kdc_is_up = true;
    net.meet(&[all[0], all[1], all[2], all[3], late], 5000);
}

/// Starts, crashes, leaves, revocations, parts and loss in any order; then quiet, in which all that are left meet.
#[test]
fn whatever_happens_those_who_are_left_meet_in_one_epoch() {
    for seed in 0..100 {
        let mut net = Net::new(seed);
        let mut dice = ChaCha20Rng::seed_from_u64(seed);
        let mut below = move |n: usize| dice.next_u64() as usize % n;
        net.loss = [0, 5, 15][below(3)];
        let mut live: Vec<usize> = (0..4).map(|i| net.start(&format!("l{i}"), ALL)).collect();
        live.extend((0..4).map(|i| net.start(&format!("m{i}"), PLAIN)));
        for step in 0..12 {
            net.for_millis(below(700) as u64);
            let at = below(live.len());
            match below(8) {
                // One who may lead stays.
                0 if live.len() > 4 && at > 0 => net.stop(live.remove(at)),
                1 if live.len() > 4 && at > 0 => net.command(live.remove(at), Command::Leave),
                2 => {
                    // One that crashed comes back.
                    let again = net.nodes[live[at]].principal.clone();
                    net.stop(live[at]);
                    live[at] = net.run(again);
                }
                3 => live.iter().for_each(|it| net.parts[*it] = below(2) as u32),
                4 => live.iter().for_each(|it| net.parts[*it] = 0),
                5 => live.push(net.start(&format!("n{step}"), if below(2) == 0 { ALL } else { PLAIN })),
                6 => net.kdc_is_up = !net.kdc_is_up,
                _ => {
                    let it = live[at];
                    if !net.nodes[it].views.is_empty() && net.nodes[it].excluded.is_none() {
                        net.command(it, Command::Rotate);
                    }
                }
            }
            if below(3) == 0 {
                net.suspect_lost();
            }
        }
        (net.loss, net.kdc_is_up) = (0, true);
        live.iter().for_each(|it| net.parts[*it] = 0);
        assert!(live.iter().all(|it| net.nodes[*it].excluded.is_none()), "seed {seed}");
        for _ in 0..40 {
            net.suspect_lost();
            net.for_millis(250);
        }
        assert!(net.together(&live), "seed {seed}: {:?}", net.seen());
        net.talk(&live);
        assert!(live.iter().all(|it| !net.nodes[*it].paused), "seed {seed}");
        assert!(net.convicted.is_empty(), "seed {seed}: {:?}", net.convicted);
    }
}
