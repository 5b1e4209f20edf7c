//! Members come and go: one by one, together, for good, by force.

use super::super::message::{Base, Kind, Propose, ShortId};
use super::super::timing::Timer;
use super::attacks::proposal;
use super::*;
use crate::CommandError;
use sealcast_wire::Change;

/// `n` robots in one group, without loss; then what the scenario wants.
fn group(seed: u64, n: usize) -> Net {
    let mut net = Net::robots(seed, n, 0);
    assert!(net.run_until(5_000, Net::is_one), "{}", net.describe());
    net.run(200);
    net
}

fn lossy(seed: u64, n: usize) -> Net {
    let mut net = group(seed, n);
    (net.loss, net.duplication, net.spread) = (15, 5, 3000);
    net.keep_log = true;
    net
}

fn becomes_one(net: &mut Net, within_ms: u64) {
    let one = net.run_until(within_ms, Net::is_one);
    assert!(one, "not one\n{}{}", net.tail(30), net.describe());
    let live: Vec<usize> = net.live().collect();
    net.assert_one_key(&live);
}

fn change(net: &Net, i: usize) -> Change {
    net.nodes[i].epochs.last().unwrap().view.change
}

#[test]
fn one_joins_a_group_by_a_constant_number_of_messages() {
    for n in [3, 8, 16, 40] {
        let mut net = group(3, n);
        let before = net.counters();
        let start = net.now;
        let i = net.start(robot(n));
        becomes_one(&mut net, 2_000);
        let took = net.now - start;
        let sent = |kind| net.counters()[kind].0 - before[kind].0;
        let rounds = [sent("R1"), sent("R2"), sent("KC")];
        assert_eq!((sent("JOIN"), sent("RESPONSE"), rounds), (1, 1, [4, 4, 4]), "n {n}");
        assert!(sent("GIVE") <= n as u64 + 2, "certificates of strangers: {}", sent("GIVE"));
        assert!(took < 60_000, "{took} µs");
        assert_eq!((change(&net, 0), change(&net, i)), (Change::Joined, Change::Formed));
    }
}

#[test]
fn members_join_one_by_one_and_a_setup_heals_the_ring_now_and_then() {
    let mut net = group(4, 3);
    for i in 3..24 {
        net.start(robot(i));
        becomes_one(&mut net, 2_000);
        net.run(50);
    }
    let counters = net.counters();
    assert!(counters["R1"].0 < 21 * 8 + 40, "{counters:?}");
    assert_eq!(net.epoch_of(0).unwrap().counter, 22);
}

#[test]
fn a_batch_that_comes_together_joins_together() {
    let mut net = group(5, 5);
    for i in 5..12 {
        net.start(robot(i));
    }
    becomes_one(&mut net, 2_000);
    assert_eq!(net.epoch_of(0).unwrap().counter, 2);
}

#[test]
fn who_leaves_is_gone_and_the_others_have_a_new_key() {
    for seed in 0..seeds(10) {
        let mut net = if seed == 0 { group(seed, 6) } else { lossy(seed, 6) };
        let old = net.nodes[2].epochs.last().unwrap().clone();
        net.command(2, Command::Leave).unwrap();
        let before = net.epoch_of(0);
        let gone = |net: &Net| net.epoch_of(0) != before && net.are_one(&[0, 1, 3, 4, 5]);
        assert!(net.run_until(10_000, gone), "{}{}", net.tail(20), net.describe());
        net.run(500);
        assert_eq!(net.nodes[2].excluded, Some(Exclusion::Left), "{}", net.describe());
        let others: Vec<usize> = net.live().collect();
        assert!(net.are_one(&others) && others.len() == 5);
        let sealed = seal(&net.nodes[0].epochs.last().unwrap().protect, Domain::GROUP, b"later");
        assert!(open(&old.protect, &sealed).is_err());
        if seed == 0 {
            assert_eq!(change(&net, 0), Change::Left);
        }
    }
}

#[test]
fn rule_a4_an_evicted_member_is_out_within_milliseconds_and_stays_out() {
    let mut net = group(7, 16);
    let evictor = net.start(house().identity("warden", &[(Act::Both, "#"), (Act::Evict, "#")]));
    becomes_one(&mut net, 2_000);
    net.run(100);
    let victim = net.nodes[3].identity.certificate().hash;
    let start = net.now;
    net.command(evictor, Command::Evict { cert: victim, reason: "stolen".into() }).unwrap();
    let prepared = net.nodes[evictor].prepared.last().unwrap();
    assert_eq!((prepared.change, prepared.members.len()), (Change::Evicted, 16), "publishers pause at once");
    let old = net.epoch_of(0);
    assert!(net.run_until(2_000, |net| net.epoch_of(0) != old && net.is_one()), "{}", net.describe());
    assert!(net.now - start < 20_000, "{} µs", net.now - start);
    assert_eq!(net.nodes[3].excluded, Some(Exclusion::Evicted { reason: "stolen".into() }));
    assert!(net.live().all(|i| change(&net, i) == Change::Evicted));
    // It comes again, as another process with the same certificate.
    let again = net.restart(3);
    let epoch = net.epoch_of(0);
    net.run(3_000);
    assert_eq!(net.epoch_of(0), epoch, "nothing changes for the others\n{}", net.describe());
    assert!(net.nodes[again].excluded.is_some(), "it is told\n{}", net.describe());
}

#[test]
fn rule_a4_evictions_hold_under_loss_and_through_a_merge() {
    for seed in 0..seeds(10) {
        let mut net = group(seed, 6);
        let warden = net.start(house().identity("warden", &[(Act::Both, "#"), (Act::Evict, "#")]));
        becomes_one(&mut net, 2_000);
        (net.loss, net.duplication, net.spread) = (15, 5, 3000);
        net.keep_log = true;
        // Half of them do not hear the statement: they are elsewhere.
        for i in [4, 5, 3] {
            net.nodes[i].part = 1;
        }
        let victim = net.nodes[3].identity.certificate().hash;
        net.command(warden, Command::Evict { cert: victim, reason: "lost".into() }).unwrap();
        for slot in 0..7 {
            net.suspect(0, Slot(slot)); // all that do not answer are left out anyway
        }
        net.run(4_000);
        net.nodes.iter_mut().for_each(|n| n.part = 0);
        becomes_one(&mut net, 30_000);
        assert!(net.nodes[3].excluded.is_some(), "seed {seed}\n{}", net.describe());
    }
}

#[test]
fn rule_a4_who_has_no_right_evicts_nobody() {
    let mut net = group(8, 3);
    let victim = net.nodes[1].identity.certificate().hash;
    let refused = net.command(0, Command::Evict { cert: victim, reason: "I want".into() });
    assert_eq!(refused, Err(CommandError::Denied("evict")));
    let unknown = Command::Evict { cert: Default::default(), reason: "who".into() };
    assert_eq!(net.command(0, unknown), Err(CommandError::NoSuchMember));
}

#[test]
fn who_falls_silent_is_left_out_and_may_come_back() {
    for seed in 0..seeds(10) {
        let mut net = if seed == 0 { group(seed, 5) } else { lossy(seed, 5) };
        net.nodes[4].part = 1;
        let slot = net.nodes[0].epochs.last().unwrap().view.slot_of(&net.nodes[4].identity.certificate().hash).unwrap();
        net.suspect(0, slot);
        let rest = [0, 1, 2, 3];
        assert!(net.run_until(10_000, |net| net.are_one(&rest)), "{}", net.describe());
        if seed == 0 {
            assert_eq!(change(&net, 0), Change::Suspected);
        }
        net.nodes[4].part = 0;
        becomes_one(&mut net, 15_000);
    }
}

#[test]
fn a_member_that_died_is_found_out_by_the_next_agreement() {
    // W6: dead first, second and last members of the ring blocked every later join.
    for dead in 0..5 {
        let mut net = group(9, 5);
        net.nodes[dead].alive = false;
        net.start(robot(5));
        let live: Vec<usize> = net.live().collect();
        let epoch = net.epoch_of(live[0]);
        let moved = |net: &Net| {
            let first = net.epoch_of(live[0]);
            first != epoch && live.iter().all(|i| net.epoch_of(*i) == first)
        };
        assert!(net.run_until(5_000, moved), "{}", net.describe());
        net.assert_one_key(&live);
        // Who is only passive in a join is not missed by it; by its silence it is.
        let cert = net.nodes[dead].identity.certificate().hash;
        if let Some(slot) = net.nodes[live[0]].epochs.last().unwrap().view.slot_of(&cert) {
            net.suspect(live[0], slot);
        }
        becomes_one(&mut net, 5_000);
    }
}

#[test]
fn w6_any_number_of_dead_members_blocks_no_newcomer() {
    let mut net = group(10, 6);
    for dead in 0..5 {
        net.nodes[dead].alive = false;
    }
    net.start(robot(6));
    becomes_one(&mut net, 10_000);
}

#[test]
fn a_key_is_replaced_on_demand_and_by_time() {
    let mut net = group(11, 8);
    let start = net.now;
    net.command(5, Command::Rotate).unwrap();
    let first = net.epoch_of(0);
    assert!(net.run_until(1_000, |net| net.epoch_of(0) != first && net.is_one()), "{}", net.describe());
    assert!(net.now - start < 10_000, "{} µs", net.now - start);
    assert_eq!(change(&net, 0), Change::Rekeyed);
    let second = net.epoch_of(0);
    net.run(3600 * 1000 + 2_000);
    assert!(net.is_one() && net.epoch_of(0).unwrap().counter == second.unwrap().counter + 1, "{}", net.describe());
}

#[test]
fn w13_two_groups_that_hear_each_other_become_one() {
    for seed in 0..seeds(10) {
        for (a, b) in [(1, 1), (3, 1), (4, 4), (5, 3)] {
            let mut net = Net::robots(seed, a + b, 0);
            if seed > 0 {
                (net.loss, net.duplication, net.spread) = (15, 5, 3000);
            }
            net.keep_log = true;
            net.run(1);
            for i in a..a + b {
                net.nodes[i].part = 1;
            }
            let (left, right): (Vec<usize>, Vec<usize>) = ((0..a).collect(), (a..a + b).collect());
            let apart = net.run_until(10_000, |net| net.are_one(&left) && net.are_one(&right));
            assert!(apart, "{}{}", net.tail(40), net.describe());
            net.nodes.iter_mut().for_each(|n| n.part = 0);
            becomes_one(&mut net, 20_000);
        }
    }
}

#[test]
fn a_group_that_was_cut_in_two_heals() {
    for seed in 0..seeds(10) {
        let mut net = lossy(seed, 8);
        for i in 0..4 {
            net.nodes[i].part = 1;
        }
        // Each half misses the other.
        for slot in 0..8 {
            for i in [0, 7] {
                let other = net.nodes[i].epochs.last().unwrap().view.member(Slot(slot as u32)).unwrap().id.cert;
                let theirs = (0..8).find(|j| net.nodes[*j].identity.certificate().hash == other).unwrap();
                if net.nodes[theirs].part != net.nodes[i].part {
                    net.suspect(i, Slot(slot as u32));
                }
            }
        }
        let halves = net.run_until(10_000, |net| net.are_one(&[0, 1, 2, 3]) && net.are_one(&[4, 5, 6, 7]));
        assert!(halves, "{}", net.describe());
        net.nodes.iter_mut().for_each(|n| n.part = 0);
        becomes_one(&mut net, 20_000);
        let told = |n: &super::Node| n.notices.iter().filter(|it| matches!(it, Notice::OtherPart { .. })).count();
        let told: Vec<usize> = net.nodes.iter().map(told).collect();
        assert!(told.iter().all(|n| *n <= 1), "seed {seed}: the other part is told of once: {told:?}");
        assert!(told.contains(&1), "seed {seed}: and not passed over in silence");
    }
}

/// It lacks the others' confirmations of one key when two of them propose the next, and the greater proposal comes first.
#[test]
fn w13_a_lesser_proposal_takes_no_greater_ones_place_that_waits_for_confirmations() {
    let mut net = group(77, 4);
    let late = 3;
    net.command(0, Command::Rotate).unwrap();
    let confirms = |net: &Net| net.nodes[late].keys.attempt.as_ref().is_some_and(super::super::Attempt::is_confirming);
    assert!(net.run_until(1_000, confirms), "{}", net.describe());
    net.nodes[late].part = 1;
    net.queue.retain(|_, (to, _)| *to != late);
    let before = net.nodes[late].keys.epoch();
    let others = |net: &Net| (0..3).all(|i| net.nodes[i].keys.epoch() != before);
    assert!(net.run_until(30, others), "{}", net.describe());
    let base = net.nodes[0].keys.base();
    let hint = net.nodes[0].keys.statements.hint();
    let seats: Vec<ShortId> = (0..4).map(|i| net.nodes[i].keys.me.short).collect();
    let content = |attempt| Propose {
        counter: base.unwrap().next_counter(),
        attempt,
        version: 1,
        kind: Kind::Setup,
        base,
        hint,
        seats: seats.clone(),
        signature: [0; 64],
    };
    let [greater, lesser] = [(0, 2), (1, 1)].map(|(by, attempt)| proposal(&mut net, by, content(attempt)));
    net.deliver(late, &greater);
    assert!(confirms(&net), "it waits for what is on its way");
    net.nodes[late].keys.timers.stop(Timer::Resend);
    net.now += 41_000;
    net.deliver(late, &lesser);
    let attempt = net.nodes[late].keys.attempt.as_ref().map(|a| a.proposal.content.attempt);
    assert_eq!(attempt, Some(2), "{}", net.describe());
}

/// A newcomer that missed how an agreement ended is named in the two that follow: the later one's author is no rival of it.
#[test]
fn w13_a_proposal_that_was_gone_past_is_not_taken_up_again_while_the_next_one_is_not_proved_yet() {
    let mut net = group(78, 3);
    let late = net.start(robot(3));
    net.nodes[late].part = 1;
    for i in 0..3 {
        let (person, now) = (net.nodes[i].keys.me.clone(), net.clock());
        net.nodes[late].keys.people.insert(person, now.monotonic);
    }
    let first = net.nodes[0].keys.base().unwrap();
    let second = Base { counter: first.next_counter(), size: 4, hash: 7 };
    let hint = net.nodes[0].keys.statements.hint();
    let seats: Vec<ShortId> = (0..4).map(|i| net.nodes[i].keys.me.short).collect();
    let [gone, next] = [(0, first), (1, second)].map(|(by, base)| {
        let (counter, seats) = (base.next_counter(), seats.clone());
        let (base, signature) = (Some(base), [0; 64]);
        let content = Propose { counter, attempt: 1, version: 1, kind: Kind::Setup, base, hint, seats, signature };
        proposal(&mut net, by, content)
    });
    net.deliver(late, &gone);
    let keys = &mut net.nodes[late].keys;
    keys.later = keys.attempt.take().map(|a| a.proposal);
    assert!(keys.later.is_some(), "it waits for the end of the agreement that it follows on");
    net.deliver(late, &next);
    net.run(80);
    let base = net.nodes[late].keys.attempt.as_ref().and_then(|a| a.proposal.content.base);
    assert_eq!(base, Some(second), "{}", net.describe());
}

/// Each time some of those who are left go on without the others, who do not notice: four epochs are in use, each with
/// those of the later ones in its view. Then all hear each other again, and lose a quarter of what is said.
#[test]
fn w13_those_who_were_left_behind_at_different_epochs_come_back() {
    for seed in 0..seeds(4) {
        let mut net = group(400 + seed, 24);
        (net.loss, net.spread) = (25, 3000);
        for step in 1..4 {
            let on: Vec<usize> = (6 * step..24).collect();
            on.iter().for_each(|i| net.nodes[*i].part = step as u32);
            for i in &on {
                let view = net.nodes[*i].epochs.last().unwrap().view.clone();
                let goes = |m: &sealcast_wire::Member| !on.iter().any(|n| net.nodes[*n].keys.me.id == m.id);
                let slots: Vec<Slot> = view.members.slots().filter(|(_, m)| goes(m)).map(|(slot, _)| slot).collect();
                slots.into_iter().for_each(|slot| net.suspect(*i, slot));
            }
            assert!(net.run_until(20_000, |net| net.are_one(&on)), "{}", net.describe());
        }
        net.nodes.iter_mut().for_each(|n| n.part = 0);
        let healed = net.now;
        assert!(net.run_until(15_000, Net::is_one), "{}", net.describe());
        println!("seed {seed}: {} ms", (net.now - healed) / 1000);
    }
}

#[test]
fn a_restarted_process_takes_its_own_place() {
    for seed in 0..seeds(10) {
        let mut net = if seed == 0 { group(seed, 5) } else { lossy(seed, 5) };
        net.restart(2);
        becomes_one(&mut net, 10_000);
        assert_eq!(net.nodes[0].epochs.last().unwrap().view.members.len(), 5);
    }
}

#[test]
fn rule_a6_of_two_live_processes_of_one_certificate_the_newer_stays_and_the_older_stops() {
    let mut net = group(13, 4);
    let twin = net.start(net.nodes[1].identity.clone());
    net.run(3_000);
    assert_eq!(net.nodes[1].excluded, Some(Exclusion::Duplicate), "{}", net.describe());
    assert!(net.is_one() && net.nodes[twin].excluded.is_none(), "{}", net.describe());
    let epoch = net.epoch_of(0);
    net.run(10_000);
    assert_eq!(net.epoch_of(0), epoch, "they do not fight");
}

#[test]
fn rule_a14_the_roster_is_the_view_and_slots_follow_its_order() {
    let net = group(14, 7);
    for node in &net.nodes {
        let view = &node.epochs.last().unwrap().view;
        assert!(view.members.iter().is_sorted_by(|a, b| a.id < b.id));
        assert_eq!(view.member(view.me).unwrap().id, node.keys.me.id);
        assert_eq!(node.keyed.last(), Some(&view.epoch), "opened with before it is sealed with");
        let status = node.keys.status(net.clock());
        assert_eq!((status.members.len(), status.epoch), (7, Some(view.epoch)));
    }
}

#[test]
fn w12_members_need_no_common_clock() {
    // Each node's clock is its own: starts spread over two seconds shift nothing but the order of events,
    // and calendars are consulted for certificates alone. Here half the members have no calendar.
    let mut net = Net::robots(15, 6, 300);
    net.no_calendar = (0..6).filter(|i| i % 2 == 0).collect();
    becomes_one(&mut net, 5_000);
}

#[test]
fn rule_g10_same_seed_same_trace() {
    let trace = |seed| {
        let mut net = Net::robots(seed, 6, 100);
        (net.loss, net.duplication, net.keep_log) = (15, 5, true);
        net.run(3_000);
        net.log
    };
    assert!(trace(16) == trace(16));
    assert!(trace(16) != trace(17));
}

#[test]
fn a_key_waits_for_the_silent_as_long_as_was_asked_for() {
    for (detect, least, most) in [(1_500, 250, 700), (3_000, 550, 1_200), (15_000, 2_900, 4_500)] {
        let mut net = Net::new(21);
        net.detect = std::time::Duration::from_millis(detect);
        (0..4).for_each(|i| net.start_at(net.now, robot(i)));
        assert!(net.run_until(5_000, Net::is_one), "{}", net.describe());
        net.run(200);
        net.nodes[3].alive = false;
        let start = net.now;
        net.command(0, Command::Rotate).unwrap();
        assert!(net.run_until(10_000, |net| net.are_one(&[0, 1, 2])), "{}", net.describe());
        let ms = (net.now - start) / 1000;
        assert!((least..=most).contains(&ms), "detect {detect} ms: {ms} ms");
    }
}
