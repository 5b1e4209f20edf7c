//! Hostile insiders and outsiders: what they send changes nothing that was agreed.

use super::super::message::{Base, Join, Kind, Propose, R1};
use super::*;
use sealcast_wire::{Change, Dropped, limits};

fn group(seed: u64, n: usize) -> Net {
    let mut net = Net::robots(seed, n, 0);
    net.keep_log = true;
    assert!(net.run_until(5_000, Net::is_one), "{}", net.describe());
    net.run(200);
    net
}

/// Everybody still seals and opens under the epoch it had.
fn assert_undisturbed(net: &Net, who: &[usize], epoch: Option<EpochId>) {
    assert!(who.iter().all(|i| net.epoch_of(*i) == epoch), "{}", net.describe());
    net.assert_one_key(who);
}

#[test]
fn w4_w14_garbage_of_any_kind_changes_nothing() {
    let mut net = group(1, 4);
    let epoch = net.epoch_of(0);
    let bootstrap_key = robot(0).bootstrap_key(GROUP);
    let samples: Vec<Vec<u8>> = net.log.iter().map(|(_, _, bytes)| bytes.clone()).collect();
    let mut rng = ChaCha20Rng::seed_from_u64(99);
    let mut states = Vec::new();
    for round in 0..2000_usize {
        let mut bytes = samples[rng.next_u64() as usize % samples.len()].clone();
        let at = rng.next_u64() as usize % bytes.len();
        if round % 2 == 0 {
            bytes[at] ^= 1 << (rng.next_u64() % 8); // from an outsider
        } else {
            // From somebody who knows the bootstrap key and nothing else.
            let mut plain = bootstrap_key.open(&bytes).unwrap();
            let at = rng.next_u64() as usize % plain.len();
            plain[at] ^= 1 << (rng.next_u64() % 8);
            if round % 5 == 0 {
                plain.truncate(at);
            }
            bytes = bootstrap_key.seal([round as u8; 12], &plain);
        }
        net.deliver(round % 4, &bytes);
        states.push(net.nodes[round % 4].keys.attempt.is_some());
    }
    net.run(5_000);
    assert_undisturbed(&net, &[0, 1, 2, 3], epoch);
    assert!(net.nodes[0].keys.early.len() <= limits::EARLY_MESSAGES_MAX);
    assert!(states.iter().filter(|running| **running).count() == 0, "no attempt was begun");
}

#[test]
fn w4_rule_a6_a_replayed_join_elicits_a_proposal_and_stops_nobody() {
    let mut net = group(2, 5);
    // A former member's JOIN, recorded and sent again for ever.
    let extra = net.start(robot(5));
    assert!(net.run_until(2_000, Net::is_one));
    let join =
        net.log.iter().rev().find(|(_, from, b)| *from == extra && matches!(bootstrap_open(b), Message::Join(_)));
    let join = join.unwrap().2.clone();
    net.command(extra, Command::Leave).unwrap();
    net.run(1_000);
    net.nodes[extra].alive = false;
    let (who, epoch) = ([0, 1, 2, 3, 4], net.epoch_of(0));
    for _ in 0..100 {
        for i in who {
            net.deliver(i, &join);
        }
        net.run(50);
        assert_undisturbed(&net, &who, epoch);
    }
    // The living get in all the same.
    net.start(robot(6));
    assert!(net.run_until(3_000, Net::is_one), "{}", net.describe());
}

#[test]
fn w4_a_replayed_join_of_a_process_that_was_restarted_displaces_nobody() {
    let mut net = group(3, 4);
    let join = net
        .log
        .iter()
        .find(|(_, from, b)| *from == 1 && matches!(bootstrap_open(b), Message::Join(_)))
        .unwrap()
        .2
        .clone();
    net.restart(1);
    assert!(net.run_until(3_000, Net::is_one), "{}", net.describe());
    net.run(1_000);
    let epoch = net.epoch_of(0);
    let who: Vec<usize> = net.live().collect();
    for _ in 0..40 {
        for i in &who {
            net.deliver(*i, &join);
        }
        net.run(100);
        assert_undisturbed(&net, &who, epoch);
    }
}

#[test]
fn w5_a_joiner_that_dies_at_any_moment_stops_nobody() {
    for after_us in [0, 10_000, 23_000, 24_000, 25_500, 26_500, 27_500, 28_500, 29_500, 31_000] {
        let mut net = group(4, 5);
        let epoch = net.epoch_of(0);
        let joiner = net.start(robot(5));
        let end = net.now + after_us;
        while net.step(end) {}
        net.now = end;
        net.nodes[joiner].alive = false;
        net.run(100);
        net.start(robot(6));
        let who = [0, 1, 2, 3, 4, 6];
        let one = net.run_until(6_000, |net| {
            let ids: Vec<_> = who.iter().map(|i| net.epoch_of(*i)).collect();
            ids.iter().all(|e| *e == ids[0] && e.is_some() && *e != epoch)
        });
        assert!(one, "after {after_us}\n{}{}", net.tail(20), net.describe());
        net.assert_one_key(&who);
        assert!(who[..5].iter().all(|i| net.nodes[*i].excluded.is_none()));
    }
}

#[test]
fn w5_a_member_keeps_its_key_while_attempts_of_others_fail() {
    let mut net = group(5, 4);
    let epoch = net.epoch_of(0);
    // Joiners that say JOIN and nothing else, one after the other.
    for i in 10..20 {
        let joiner = net.start(robot(i));
        net.run(1);
        net.muted.insert(joiner);
        net.nodes[joiner].alive = false;
        net.run(150);
        assert_undisturbed(&net, &[0, 1, 2, 3], epoch);
    }
}

/// Changes what one node sends, as long as it runs.
fn tamper(
    net: &mut Net,
    i: usize,
    mut change: impl FnMut(&mut Net, Message) -> Vec<(Option<usize>, Message)>,
    ms: u64,
) {
    let end = net.now + ms * 1000;
    net.muted.insert(i);
    let bootstrap_key = robot(0).bootstrap_key(GROUP);
    net.held_back.clear();
    while net.step(end) {
        for bytes in std::mem::take(&mut net.held_back) {
            let nonce: [u8; 12] = bytes[8..20].try_into().unwrap();
            let message = bootstrap_open(&bytes);
            for (to, message) in change(net, message) {
                let bootstrap_sealed = bootstrap_key.seal(nonce, &message.encode());
                net.transmit(i, to, bootstrap_sealed);
            }
        }
    }
    net.now = end;
}

fn resign(net: &Net, i: usize, message: &mut Message) {
    use super::super::message::signed;
    let keys = &net.nodes[i].keys;
    let Some(attempt) = keys.attempt.as_ref().or(keys.last.as_ref()) else { return };
    let formation = attempt.formation.as_ref().unwrap();
    let body = message.body();
    let instance = &attempt.proposal.instance;
    let state = keys.statements.hash();
    match message {
        Message::R1(m) => {
            let digest = super::super::attempt::digest_r1(GROUP, &keys.me.id, &body);
            m.signature = keys.config.identity.key().sign(&digest);
        }
        Message::R2(m) => {
            let bound: [&[u8]; 3] = [instance, &formation.roster, &state];
            m.signature = keys.key.sign(&signed("sealcast/v1/r2", GROUP, &bound, &body));
        }
        _ => {}
    }
}

#[test]
fn rule_a9_a_wrong_y_names_its_sender_who_is_left_out() {
    let mut net = group(6, 5);
    let epoch = net.epoch_of(0);
    net.command(0, Command::Rotate).unwrap();
    tamper(
        &mut net,
        4,
        |net, mut message| {
            if let Message::R2(m) = &mut message {
                let other = robot(1).key().public().point()[..32].to_vec();
                let wrong = curve_point(&other);
                m.shares[0][..32].copy_from_slice(&wrong);
            }
            resign(net, 4, &mut message);
            vec![(None, message)]
        },
        3_000,
    );
    let rest = [0, 1, 2, 3];
    assert!(net.are_one(&rest) && net.epoch_of(0) != epoch, "{}", net.describe());
    net.assert_one_key(&rest);
    let cert = net.nodes[4].identity.certificate().hash;
    let named = |i: usize| {
        let wrong = Notice::LeftOut { cert, why: crate::Misbehaviour::WrongValue };
        net.nodes[i].notices.contains(&wrong)
    };
    assert!(rest.into_iter().any(named), "the sender is named");
    assert_eq!(net.nodes[0].epochs.last().unwrap().view.change, Change::Suspected);
}

/// Some valid point that is not the right one.
fn curve_point(seed: &[u8]) -> [u8; 32] {
    use sealcast_crypto::dutta_barua::{Context, Kind, Ring, Round1, Shares};
    let kind = Kind::Setup;
    let context =
        Context { group: "x", compartment: 0, epoch: 0, attempt: 0, kind, roster: [0; 32], instance: [0; 32] };
    let ring = Ring::new(&context, 3, Shares::Plain);
    let mut rng = ChaCha20Rng::from_seed(seed.try_into().unwrap());
    let (_, contribution) = Round1::start(&ring, 0, &mut rng);
    contribution.encode()[..32].try_into().unwrap()
}

#[test]
fn rule_a9_an_exponent_that_is_not_proved_names_its_sender() {
    let mut net = group(7, 5);
    let epoch = net.epoch_of(0);
    net.command(0, Command::Rotate).unwrap();
    tamper(
        &mut net,
        4,
        |net, mut message| {
            if let Message::R1(R1 { contributions, .. }) = &mut message {
                contributions[0][..32].copy_from_slice(&curve_point(&[7; 32]));
            }
            resign(net, 4, &mut message);
            vec![(None, message)]
        },
        2_000,
    );
    let rest = [0, 1, 2, 3];
    assert!(net.are_one(&rest) && net.epoch_of(0) != epoch, "{}", net.describe());
    let cert = net.nodes[4].identity.certificate().hash;
    let wrong = Notice::LeftOut { cert, why: crate::Misbehaviour::WrongValue };
    assert!(rest.iter().all(|i| net.nodes[*i].notices.contains(&wrong)));
}

#[test]
fn rule_a9_an_equivocator_gives_nobody_two_keys() {
    let mut net = group(8, 5);
    net.command(0, Command::Rotate).unwrap();
    let mut second: BTreeMap<_, Message> = BTreeMap::new();
    tamper(
        &mut net,
        4,
        |net, message| {
            // Another X, honestly proved, for nodes 0 and 1.
            let Message::R1(m) = &message else { return vec![(None, message)] };
            let keys = &mut net.nodes[4].keys;
            let other = second.entry(m.instance).or_insert_with(|| {
                let attempt = keys.attempt.as_ref().unwrap();
                let contribution = attempt.other_contribution(&mut ChaCha20Rng::seed_from_u64(5)).unwrap();
                Message::R1(R1 { contributions: vec![contribution], ..m.clone() })
            });
            let mut other = other.clone();
            resign(net, 4, &mut other);
            vec![(Some(0), other.clone()), (Some(1), other), (Some(2), message.clone()), (Some(3), message)]
        },
        6_000,
    );
    // Nobody installs an epoch whose key the others of its roster do not have.
    for i in 0..4 {
        for j in 0..4 {
            let (a, b) = (net.nodes[i].epochs.last().unwrap(), net.nodes[j].epochs.last().unwrap());
            if a.view.epoch == b.view.epoch && i != j {
                assert!(open(&b.protect, &seal(&a.protect, Domain::GROUP, b"x")).is_ok());
            }
        }
    }
    // It was named by its two signatures, and the others have a new key without it.
    let (cert, rest) = (net.nodes[4].identity.certificate().hash, [0, 1, 2, 3]);
    let named = Notice::LeftOut { cert, why: crate::Misbehaviour::Equivocation };
    assert!(rest.iter().any(|i| net.nodes[*i].notices.contains(&named)), "{}", net.describe());
    assert!(net.are_one(&rest), "{}", net.describe());
    net.assert_one_key(&rest);
}

#[test]
fn an_outsider_with_a_certificate_cannot_propose_for_a_group() {
    let mut net = group(9, 4);
    let epoch = net.epoch_of(0);
    let outsider = net.start(robot(9));
    net.muted.insert(outsider);
    net.run(1);
    let (card, key) = (net.nodes[outsider].keys.me.card.clone(), net.nodes[outsider].keys.key.clone());
    let bootstrap_key = robot(0).bootstrap_key(GROUP);
    let give = Message::Give(vec![super::super::message::Object::Card(Box::new(card))]);
    let mut seats: Vec<_> = (0..4).map(|i| net.nodes[i].keys.me.short).collect();
    seats.sort_unstable();
    seats.insert(0, net.nodes[outsider].keys.me.short);
    let unknown = Base { counter: 8, size: 4, hash: 17 };
    for base in [net.nodes[0].keys.base(), Some(unknown), None] {
        let hint = net.nodes[0].keys.statements.hint();
        let (counter, seats) = (9, seats.clone());
        let mut propose =
            Propose { counter, attempt: 1, version: 1, kind: Kind::Setup, base, hint, seats, signature: [0; 64] };
        let nonce = [5; 12];
        let instance = super::super::proposal::Proposal::instance(GROUP, &nonce, &propose);
        propose.signature = key.sign(&instance);
        for i in 0..4 {
            net.deliver(i, &bootstrap_key.seal(nonce, &give.encode()));
            net.deliver(i, &bootstrap_key.seal(nonce, &Message::Propose(propose.clone()).encode()));
            assert!(net.nodes[i].keys.attempt.is_none());
        }
    }
    net.run(2_000);
    assert_undisturbed(&net, &[0, 1, 2, 3], epoch);
}

#[test]
fn rule_a3_nobody_can_leave_for_somebody_else() {
    let mut net = group(10, 4);
    let epoch = net.epoch_of(0);
    net.run(10);
    net.command(1, Command::Leave).unwrap();
    let leave =
        net.log.iter().rev().find(|(_, _, b)| matches!(bootstrap_open(b), Message::Leave(_))).unwrap().2.clone();
    let Message::Leave(mut forged) = bootstrap_open(&leave) else { unreachable!("found as a leave") };
    forged.author = net.nodes[2].keys.me.short;
    let mut other = group(10, 4);
    let bootstrap_key = robot(0).bootstrap_key(GROUP);
    let bytes = bootstrap_key.seal([1; 12], &Message::Leave(forged).encode());
    let now = other.clock();
    let heard = other.nodes[0].keys.hear(now, &Source::Outside(Address::Node(9)), &bytes);
    assert_eq!(heard, Err(Dropped::Auth.into()));
    other.run(1_000);
    assert_eq!(other.epoch_of(0), epoch);
}

#[test]
fn rule_g1_a_flood_of_strangers_is_checked_so_many_times_a_second() {
    let mut net = group(11, 3);
    let epoch = net.epoch_of(0);
    let bootstrap_key = robot(0).bootstrap_key(GROUP);
    let join = net.log.iter().find(|(_, _, b)| matches!(bootstrap_open(b), Message::Join(_))).unwrap().2.clone();
    let Message::Join(join) = bootstrap_open(&join) else { unreachable!("found as a join") };
    let now = net.clock();
    let mut rate = 0;
    for i in 0..5_000_u32 {
        let mut card = join.card.clone();
        card.incarnation.0[..4].copy_from_slice(&i.to_be_bytes());
        let bytes = bootstrap_key.seal([2; 12], &Message::Join(Join { card, ..join.clone() }).encode());
        let heard = net.nodes[0].keys.hear(now, &Source::Outside(Address::Node(9)), &bytes);
        rate += usize::from(heard == Err(Dropped::Rate.into()));
    }
    assert!(rate >= 4_800, "{rate}");
    net.run(100);
    assert_undisturbed(&net, &[0, 1, 2], epoch);
    assert!(net.nodes[0].keys.timers.next().is_some());
}

#[test]
fn rule_g3_a_message_of_one_group_or_attempt_is_nothing_in_another() {
    let mut net = group(12, 4);
    let rounds: Vec<Vec<u8>> = net
        .log
        .iter()
        .filter(|(_, _, b)| matches!(bootstrap_open(b), Message::R1(_) | Message::R2(_) | Message::Kc(_)))
        .map(|(_, _, b)| b.clone())
        .collect();
    net.command(0, Command::Rotate).unwrap();
    for bytes in &rounds {
        for i in 0..4 {
            net.deliver(i, bytes);
        }
    }
    assert!(net.run_until(2_000, |net| net.is_one() && net.epoch_of(0).unwrap().counter == 2), "{}", net.describe());
    // Re-labelled for the new attempt, the old R1 has the wrong instance under its signature.
    net.command(0, Command::Rotate).unwrap();
    let id = net.nodes[0].keys.attempt.as_ref().map(|a| a.proposal.instance);
    net.run_until(10, |net| net.nodes[0].keys.attempt.is_some());
    let id = id.or(net.nodes[0].keys.attempt.as_ref().map(|a| a.proposal.instance)).unwrap();
    let bootstrap_key = robot(0).bootstrap_key(GROUP);
    for bytes in &rounds {
        let Message::R1(m) = bootstrap_open(bytes) else { continue };
        let bytes = bootstrap_key.seal([3; 12], &Message::R1(R1 { instance: id, ..m }).encode());
        let now = net.clock();
        let heard = net.nodes[0].keys.hear(now, &Source::Outside(Address::Node(9)), &bytes);
        assert!(heard.is_err() || net.nodes[0].keys.attempt.as_ref().is_some_and(|a| a.held(0).count_ones() <= 1));
    }
    assert!(net.run_until(2_000, |net| net.is_one() && net.epoch_of(0).unwrap().counter == 3), "{}", net.describe());
}
