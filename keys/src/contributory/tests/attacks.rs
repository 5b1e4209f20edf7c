//! Attacks on a group's progress, each as it was found: outsiders who replay, certificate's holders who lie
//! about epochs, insiders who would stall everybody. None may stop the others, and none may cost them much.

use sealcast_wire::Incarnation;

use super::super::message::{
    Base, Beacon, Card, Fetch, Join, Kind, Message, Object, Propose, ShortId, State, Summary, signed,
};
use super::super::proposal::Proposal;
use super::*;
use crate::contributory::Versions;

/// `n` robots in one group; all that they said is in the log.
fn group(seed: u64, n: usize) -> Net {
    let mut net = Net::robots(seed, n, 0);
    net.keep_log = true;
    assert!(net.run_until(10_000, Net::is_one), "{}", net.describe());
    net.run(1500);
    net
}

/// Everybody alive hears these datagrams every so often, for so long or until `done`; whether it was.
fn under_attack(
    net: &mut Net,
    (for_ms, every_ms): (u64, u64),
    mut datagrams: impl FnMut(&mut Net) -> Vec<Vec<u8>>,
    done: impl Fn(&Net) -> bool,
) -> bool {
    let end = net.now + for_ms * 1000;
    while net.now < end {
        for bytes in datagrams(net) {
            for to in 0..net.nodes.len() {
                net.deliver(to, &bytes);
            }
        }
        let next = net.now + every_ms * 1000;
        if net.run_until(every_ms, &done) {
            return true;
        }
        net.now = next; // time goes on where nothing happens
    }
    false
}

/// Messages of one node in the log, as they were sent.
fn recorded(net: &Net, from: usize, of: impl Fn(&Message) -> bool) -> Vec<Vec<u8>> {
    net.log
        .iter()
        .filter(|(_, by, bytes)| *by == from && of(&bootstrap_open(bytes)))
        .map(|(_, _, b)| b.clone())
        .collect()
}

fn is_join(m: &Message) -> bool {
    matches!(m, Message::Join(_))
}

fn bootstrap_sealed(net: &mut Net, message: &Message) -> Vec<u8> {
    let mut nonce = [0; 12];
    net.rng.fill_bytes(&mut nonce);
    robot(0).bootstrap_key(GROUP).seal(nonce, &message.encode())
}

/// A beacon that node `by` signs.
fn beacon(net: &mut Net, by: usize, epoch: EpochId, size: u16) -> Vec<u8> {
    let keys = &net.nodes[by].keys;
    let summary = keys.statements.summary();
    let (versions, added) = (keys.config.versions, Vec::new());
    let mut m = Beacon { author: keys.me.short, epoch, size, summary, versions, added, signature: [0; 64] };
    let body = Message::Beacon(m.clone()).body();
    m.signature = keys.key.sign(&signed("sealcast/v1/beacon", GROUP, &[], &body));
    bootstrap_sealed(net, &Message::Beacon(m))
}

/// A JOIN of a new run of an identity, with a claim about where it comes from.
fn join(net: &mut Net, identity: &Identity, epoch: EpochId, size: u16) -> Vec<u8> {
    use sealcast_crypto::secret::Secret;
    use sealcast_crypto::signature::OriginKey;
    let mut incarnation = Incarnation::default();
    net.rng.fill_bytes(&mut incarnation.0);
    let key = OriginKey::from_seed(&Secret::random(&mut net.rng));
    let cert = identity.certificate();
    let der = cert.der.to_vec();
    let (versions, added) = (Versions::OURS, Vec::new());
    let mut card = Card { cert: cert.hash, incarnation, key: key.public_bytes(), versions, signature: [0; 64], der };
    card.signature = identity.key().sign(&card.signed(GROUP));
    let summary = Summary { evictions: net.nodes[0].keys.statements.summary().evictions, crl: 0, policy: 0 };
    let mut m = Join { card, summary, epoch, size, towards: EpochId::default(), added, signature: [0; 64] };
    let body = Message::Join(m.clone()).body();
    m.signature = key.sign(&signed("sealcast/v1/join", GROUP, &[], &body));
    bootstrap_sealed(net, &Message::Join(m))
}

/// A proposal that node `by` signs.
pub(super) fn proposal(net: &mut Net, by: usize, mut content: Propose) -> Vec<u8> {
    let mut nonce = [0; 12];
    net.rng.fill_bytes(&mut nonce);
    let keys = &net.nodes[by].keys;
    let me = keys.me.short;
    content.seats.retain(|s| *s != me);
    content.seats.sort_unstable();
    content.seats.insert(0, me);
    content.signature = keys.key.sign(&Proposal::instance(GROUP, &nonce, &content));
    robot(0).bootstrap_key(GROUP).seal(nonce, &Message::Propose(content).encode())
}

fn seats(net: &Net, of: &[usize]) -> Vec<ShortId> {
    of.iter().map(|i| net.nodes[*i].keys.me.short).collect()
}

#[test]
fn w6_a_dead_member_whom_replays_keep_alive_blocks_nobody() {
    (0..seeds(4)).for_each(|seed| try_dead_member_whom_replays_keep_alive_blocks_nobody(100 + seed));
}

fn try_dead_member_whom_replays_keep_alive_blocks_nobody(seed: u64) {
    let mut net = group(seed, 4);
    let joins = recorded(&net, 3, is_join);
    net.nodes[3].alive = false;
    net.command(0, Command::Rotate).unwrap();
    let one = under_attack(&mut net, (10_000, 20), |_| joins.clone(), |net| net.are_one(&[0, 1, 2]));
    assert!(one, "{}", net.describe());
}

#[test]
fn w4_beacons_of_another_time_sent_again_stop_no_change() {
    for seed in 0..seeds(4) {
        beacons_of_another_time(200 + seed);
    }
}

fn beacons_of_another_time(seed: u64) {
    let mut net = group(seed, 5);
    let is_said = |m: &Message| matches!(m, Message::Join(_) | Message::Beacon(_));
    let old: Vec<Vec<u8>> = (0..5).flat_map(|i| recorded(&net, i, is_said)).collect();
    assert!(old.iter().any(|b| matches!(bootstrap_open(b), Message::Beacon(_))));
    for i in 0..5 {
        net.nodes[i].alive = false;
    }
    (0..4).for_each(|i| _ = net.start(robot(i)));
    assert!(net.run_until(10_000, Net::is_one), "{}", net.describe());
    // The dead group of five was the greater one.
    under_attack(&mut net, (3_000, 250), |_| old.clone(), |_| false);
    net.start(robot(9));
    let one = under_attack(&mut net, (25_000, 250), |_| old.clone(), Net::is_one);
    assert!(one, "{}{:?}\n{:?}\n{}", net.describe(), net.nodes[9].keys.drops(), net.nodes[9].keys.vain, net.tail(60));
}

#[test]
fn newcomers_find_each_other_though_an_outsider_repeats_what_was_said_before() {
    (0..seeds(4))
        .for_each(|seed| try_newcomers_find_each_other_though_an_outsider_repeats_what_was_said_before(300 + seed));
}

fn try_newcomers_find_each_other_though_an_outsider_repeats_what_was_said_before(seed: u64) {
    let mut net = group(seed, 5);
    let is_said = |m: &Message| matches!(m, Message::Join(_) | Message::Beacon(_) | Message::Propose(_));
    let old: Vec<Vec<u8>> = (0..5).flat_map(|i| recorded(&net, i, is_said)).collect();
    for i in 0..5 {
        net.nodes[i].alive = false;
    }
    (7..9).for_each(|i| _ = net.start(robot(i)));
    let one = under_attack(&mut net, (15_000, 50), |_| old.clone(), Net::is_one);
    assert!(one, "{}", net.describe());
}

#[test]
fn one_alone_founds_its_group_though_an_outsider_repeats_what_was_said_before() {
    (0..seeds(4))
        .for_each(|seed| try_one_alone_founds_its_group_though_an_outsider_repeats_what_was_said_before(400 + seed));
}

fn try_one_alone_founds_its_group_though_an_outsider_repeats_what_was_said_before(seed: u64) {
    let mut net = group(seed, 3);
    let is_said = |m: &Message| matches!(m, Message::Join(_) | Message::Beacon(_));
    let old: Vec<Vec<u8>> = (0..3).flat_map(|i| recorded(&net, i, is_said)).collect();
    for i in 0..3 {
        net.nodes[i].alive = false;
    }
    net.start(robot(7));
    let one = under_attack(&mut net, (20_000, 50), |_| old.clone(), Net::is_one);
    assert!(one, "{}", net.describe());
}

#[test]
fn an_insiders_beacon_of_a_greater_epoch_stops_no_change() {
    (0..seeds(4)).for_each(|seed| try_an_insiders_beacon_of_a_greater_epoch_stops_no_change(500 + seed));
}

fn try_an_insiders_beacon_of_a_greater_epoch_stops_no_change(seed: u64) {
    let mut net = group(seed, 5);
    let head = house().identity("head5", &[(Act::Both, "#"), (Act::Evict, "#")]);
    net.start(head);
    assert!(net.run_until(10_000, Net::is_one), "{}", net.describe());
    let victim = net.nodes[3].keys.me.id.cert;
    let mut hash = 0;
    let mut liar = move |net: &mut Net| {
        hash += 1;
        let counter = net.epoch_of(0).unwrap().counter + 7;
        vec![beacon(net, 4, EpochId { counter, hash }, 60)]
    };
    under_attack(&mut net, (3_000, 300), &mut liar, |_| false);
    net.command(5, Command::Evict { cert: victim, reason: String::new() }).unwrap();
    let started = net.now;
    let out =
        |net: &Net| [0, 1, 2, 5].iter().all(|i| net.nodes[*i].epochs.last().unwrap().view.slot_of(&victim).is_none());
    assert!(under_attack(&mut net, (10_000, 300), &mut liar, out), "{}", net.describe());
    assert!(net.now - started < 1_000_000, "the lie put an eviction off by {} ms", (net.now - started) / 1000);
    let joiner = net.start(robot(9));
    let joined = |net: &Net| net.nodes[joiner].epochs.last().is_some_and(|e| e.view.members.len() == 6);
    assert!(under_attack(&mut net, (20_000, 300), &mut liar, joined), "{}", net.describe());
}

/// A beacon tells how many are in: who finds the group full is told so, once.
#[test]
fn a_newcomer_is_told_that_a_group_of_sixty_four_is_full() {
    let mut net = group(530, 2);
    let epoch = net.epoch_of(0).unwrap();
    for (size, told) in [(63, 0), (64, 1)] {
        let full = beacon(&mut net, 0, epoch, size);
        let joiner = net.start(robot(8 + told));
        for _ in 0..3 {
            net.deliver(joiner, &full);
            net.run(10);
        }
        let is_full = |it: &&Notice| matches!(it, Notice::GroupFull { is_us: true, most: 64, .. });
        assert_eq!(net.nodes[joiner].notices.iter().filter(is_full).count(), told, "of {size}");
        net.nodes[joiner].alive = false;
    }
}

#[test]
fn a_newcomers_claim_of_a_huge_epoch_leaves_the_counter_alone() {
    let mut net = group(6, 4);
    let liar = robot(10);
    for counter in [(1 << 31) - 1, (1 << 31) - 2, u32::MAX, 1 << 30] {
        let claim = join(&mut net, &liar, EpochId { counter, hash: 9 }, 60);
        under_attack(&mut net, (3_000, 500), |_| vec![claim.clone()], |_| false);
    }
    let joiner = net.start(robot(11));
    let joined = |net: &Net| net.are_one(&[0, 1, 2, 3, joiner]);
    assert!(net.run_until(10_000, joined), "{}", net.describe());
    assert!(net.epoch_of(0).unwrap().counter < 1 << 17, "{:?}", net.epoch_of(0));
}

#[test]
fn an_insiders_proposal_of_a_huge_epoch_does_not_use_the_counter_up() {
    let mut net = group(7, 4);
    let all = seats(&net, &[0, 1, 2, 3]);
    for attempt in [1, 255] {
        let base = net.nodes[0].keys.base();
        let hint = net.nodes[0].keys.statements.hint();
        let content = Propose {
            counter: (1 << 31) - 1,
            attempt,
            version: 1,
            kind: Kind::Setup,
            base,
            hint,
            seats: all.clone(),
            signature: [0; 64],
        };
        let bytes = proposal(&mut net, 3, content);
        (0..3).for_each(|to| net.deliver(to, &bytes));
        net.run(2_000);
    }
    let before = net.epoch_of(0);
    net.command(0, Command::Rotate).unwrap();
    let renewed = |net: &Net| net.epoch_of(0) != before && net.are_one(&[0, 1, 2, 3]);
    assert!(net.run_until(10_000, renewed), "{}", net.describe());
    assert!(net.epoch_of(0).unwrap().counter < 1 << 18, "{:?}", net.epoch_of(0));
}

#[test]
fn a_member_that_proposes_without_end_stalls_nobody() {
    for seed in 0..seeds(4) {
        endless_proposals(300 + seed, |_, ours| ours);
        // An epoch that it made up, greater than any that there is.
        endless_proposals(350 + seed, |counter, _| Base { counter: counter - 1, size: 64, hash: u64::MAX });
    }
}

fn endless_proposals(seed: u64, base: impl Fn(u32, Base) -> Base) {
    let mut net = group(seed, 5);
    let joiner = net.start(robot(12));
    let mut n = 0_u8;
    let mut spam = move |net: &mut Net| {
        n = n.wrapping_add(1);
        // Better than whatever runs, of statements that nobody knows, and without the newcomer.
        let running = net.nodes[0].keys.proposed;
        let epoch = net.epoch_of(0).unwrap();
        let all = seats(net, &[0, 1, 2, 3, 4]);
        let (counter, attempt) = if running.1 == 255 { (running.0 + 1, 1) } else { (running.0, running.1 + 1) };
        let counter = counter.max(epoch.counter + 1);
        let base = net.nodes[0].keys.base().map(|ours| base(counter, ours));
        let content = Propose {
            counter,
            attempt,
            version: 1,
            kind: Kind::Setup,
            base,
            hint: [n; 4],
            seats: all,
            signature: [0; 64],
        };
        vec![proposal(net, 4, content)]
    };
    let joined = |net: &Net| {
        [0, 1, 2, 3, joiner].iter().all(|i| {
            net.nodes[*i]
                .epochs
                .last()
                .is_some_and(|e| e.view.members.len() >= 5 && net.epoch_of(joiner) == Some(e.view.epoch))
        })
    };
    assert!(under_attack(&mut net, (60_000, 40), &mut spam, joined), "{}", net.describe());
}

#[test]
fn rule_g7_one_certificates_many_runs_neither_fill_the_lists_nor_keep_others_out() {
    (0..seeds(4))
        .for_each(|seed| try_one_certificates_many_runs_neither_fill_the_lists_nor_keep_others_out(900 + seed));
}

fn try_one_certificates_many_runs_neither_fill_the_lists_nor_keep_others_out(seed: u64) {
    let mut net = group(seed, 4);
    let liar = robot(10);
    let flood: Vec<Vec<u8>> = (0..1200).map(|_| join(&mut net, &liar, EpochId::default(), 0)).collect();
    let mut next = 0;
    let mut send = move |_: &mut Net| {
        next = (next + 10) % 1200;
        flood[next..next + 10].to_vec()
    };
    under_attack(&mut net, (6_000, 50), &mut send, |_| false);
    let people = net.nodes[0].keys.people.len();
    assert!(people <= 300, "{people} people remembered");
    let joiner = net.start(robot(11));
    let cert = robot(11).certificate().hash;
    let joined = |net: &Net| {
        net.nodes[joiner].epochs.last().is_some_and(|e| e.view.members.len() >= 5)
            && net.nodes[0].epochs.last().unwrap().view.slot_of(&cert).is_some()
    };
    assert!(under_attack(&mut net, (10_000, 50), &mut send, joined), "{}", net.describe());
}

/// Datagrams and bytes that the nodes send while an outsider sends one again, less what they send without.
fn echoes(net: &mut Net, datagram: &[u8], times: u64, every_ms: u64) -> (u64, u64) {
    let said = |net: &Net| net.counters().values().fold((0, 0), |(n, b), c| (n + c.0, b + c.1));
    let before = said(net);
    under_attack(net, (times * every_ms, every_ms), |_| vec![datagram.to_vec()], |_| false);
    let after = said(net);
    let quiet = net.now;
    net.run(times * every_ms);
    let idle = said(net);
    assert!(net.now > quiet);
    let less = |a: u64, b: u64, c: u64| (b - a).saturating_sub(c - b);
    (less(before.0, after.0, idle.0), less(before.1, after.1, idle.1))
}

#[test]
fn rule_g8_a_status_sent_again_is_answered_seldom() {
    let mut net = Net::robots(10, 8, 0);
    (net.keep_log, net.loss) = (true, 20);
    assert!(net.run_until(10_000, Net::is_one), "{}", net.describe());
    net.loss = 0;
    net.run(10_000);
    let last = net.nodes[0].keys.last.as_ref().unwrap().proposal.id();
    let of_last = |m: &Message| matches!(m, Message::Status(m) if m.instance == last);
    let status = (0..8).find_map(|i| recorded(&net, i, of_last).pop()).expect("with such loss somebody asked");
    let (datagrams, bytes) = echoes(&mut net, &status, 500, 10);
    println!("STATUS: {datagrams} datagrams, {bytes} B for 500 of {} B", status.len());
    assert!(datagrams <= 500, "{datagrams} datagrams for 500");
}

#[test]
fn rule_g8_a_fetch_of_all_cards_is_answered_seldom() {
    let mut net = group(11, 8);
    let cards = seats(&net, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let fetch = bootstrap_sealed(&mut net, &Message::Fetch(Fetch { proposal: None, cards }));
    let (datagrams, bytes) = echoes(&mut net, &fetch, 500, 10);
    println!("FETCH: {datagrams} datagrams, {bytes} B for 500 of {} B", fetch.len());
    assert!(bytes <= 5 * 8 * 12 * 1100, "{bytes} B in 5 s");
}

#[test]
fn rule_g8_a_list_of_nothing_is_answered_seldom_and_in_small_portions() {
    let mut net = group(12, 8);
    // As many statements as fit a group that lives long.
    let mut house = house();
    for i in 0..200_u64 {
        let mut hash = [7; 32];
        hash[..8].copy_from_slice(&i.to_be_bytes());
        let serial = robot_serial(i);
        let statement = house.authority.evict(GROUP, serial, sealcast_wire::CertHash(hash), "gone", false).unwrap();
        (0..8).for_each(|n| _ = net.nodes[n].keys.statements.learn(&statement));
    }
    drop(house);
    net.run(3_000);
    let state = bootstrap_sealed(&mut net, &Message::State(State { crl: 0, policy: 0, evictions: vec![] }));
    let (datagrams, bytes) = echoes(&mut net, &state, 500, 10);
    println!("STATE: {datagrams} datagrams, {bytes} B for 500 of {} B", state.len());
    assert!(bytes <= 5 * 100_000, "{bytes} B in 5 s");
}

fn robot_serial(i: u64) -> sealcast_crypto::identity::Serial {
    sealcast_crypto::identity::Serial::new(&[&[1][..], &i.to_be_bytes()].concat()).unwrap()
}

#[test]
fn rule_g1_false_statements_are_checked_so_many_times_a_second() {
    let mut net = group(13, 2);
    let evicted = robot(1).certificate().clone();
    let good = house().authority.evict("other", evicted.serial, evicted.hash, "", false).unwrap();
    let before = net.nodes[0].keys.drops().of(sealcast_wire::Dropped::Rate);
    for i in 0..60_u8 {
        // Nobody signed these.
        let forged = |j: u8| {
            let mut bytes = good.clone();
            let last = bytes.len() - 1;
            (bytes[last], bytes[last - 1]) = (i, j);
            Object::Eviction(bytes)
        };
        let give = bootstrap_sealed(&mut net, &Message::Give((0..20).map(forged).collect()));
        net.deliver(0, &give);
    }
    let dropped = net.nodes[0].keys.drops().of(sealcast_wire::Dropped::Rate) - before;
    assert!(dropped > 40, "of 60 datagrams with 1,200 false signatures {dropped} were dropped unchecked");
}

/// Changes, and signs anew, what one node says in rounds, for some seconds of rotations.
fn lie(net: &mut Net, liar: usize, change: impl Fn(&mut Message, [u8; 32]) -> bool) {
    net.muted.insert(liar);
    net.command(0, Command::Rotate).unwrap();
    let end = net.now + 8_000_000;
    while net.now < end {
        net.held_back.clear();
        if !net.step(end) {
            net.now = end;
        }
        for bytes in std::mem::take(&mut net.held_back) {
            let mut message = bootstrap_open(&bytes);
            let keys = &net.nodes[liar].keys;
            let bound = keys.attempt.as_ref().or(keys.last.as_ref()).and_then(|a| {
                let formation = a.formation.as_ref()?;
                Some((a.proposal.instance, formation.roster, keys.statements.hash()))
            });
            if let Some((instance, roster, state)) = bound
                && change(&mut message, instance)
            {
                let body = message.body();
                let sign = |label| keys.key.sign(&signed(label, GROUP, &[&instance, &roster, &state], &body));
                match &mut message {
                    Message::R2(m) => m.signature = sign("sealcast/v1/r2"),
                    Message::Kc(m) => m.signature = sign("sealcast/v1/kc"),
                    _ => {}
                }
            }
            let bytes = match message {
                Message::R2(_) | Message::Kc(_) => bootstrap_sealed(net, &message),
                _ => bytes,
            };
            net.transmit(liar, None, bytes);
        }
    }
    net.muted.remove(&liar);
}

fn assert_goes_on_without(net: &Net, liar: usize, before: Option<EpochId>) {
    let cert = net.nodes[liar].keys.me.id.cert;
    for i in (0..net.nodes.len()).filter(|i| *i != liar) {
        let epoch = net.nodes[i].epochs.last().unwrap();
        assert!(Some(epoch.view.epoch) != before, "{i} agreed on nothing\n{}", net.describe());
        assert!(epoch.view.slot_of(&cert).is_none(), "{i} did not find out\n{}", net.describe());
        assert!(epoch.view.members.len() >= net.nodes.len() - 1, "{i} lost others\n{}", net.describe());
    }
}

#[test]
fn rule_a9_who_confirms_another_key_is_named_and_left_out() {
    let mut net = group(14, 5);
    let before = net.epoch_of(0);
    lie(&mut net, 4, |message, _| {
        let Message::Kc(m) = message else { return false };
        m.rings[0].0[0] ^= 1;
        true
    });
    assert_goes_on_without(&net, 4, before);
}

#[test]
fn rule_a9_who_confirms_another_epoch_is_left_out() {
    let mut net = group(15, 5);
    let before = net.epoch_of(0);
    lie(&mut net, 4, |message, _| {
        let Message::Kc(m) = message else { return false };
        m.epoch ^= 1;
        true
    });
    assert_goes_on_without(&net, 4, before);
}

#[test]
fn rule_a9_who_claims_to_have_heard_something_else_is_left_out() {
    let mut net = group(16, 5);
    let before = net.epoch_of(0);
    lie(&mut net, 4, |message, instance| {
        let Message::R2(m) = message else { return false };
        m.heard = instance;
        true
    });
    assert_goes_on_without(&net, 4, before);
}

/// Outsiders, and insiders with the bootstrap key and keys of their own, change bytes of what was really said: no
/// panic, nothing of unproved origin changes the epoch, and memory stays where it was.
#[test]
fn rule_g2_no_changed_message_brings_a_member_down() {
    let mut net = Net::robots(17, 5, 0);
    (net.keep_log, net.loss) = (true, 15);
    assert!(net.run_until(10_000, Net::is_one), "{}", net.describe());
    net.command(0, Command::Rotate).unwrap();
    net.run(3_000);
    net.start(robot(20));
    assert!(net.run_until(10_000, Net::is_one), "{}", net.describe());
    net.loss = 0;
    net.run(2_000);
    let log: Vec<Vec<u8>> = net.log.iter().map(|(_, _, b)| b.clone()).collect();
    let bootstrap_key = robot(0).bootstrap_key(GROUP);
    let epochs = net.nodes.iter().map(|n| n.epochs.len()).collect::<Vec<_>>();
    let rounds = seeds(1) * 20_000;
    for round in 0..rounds {
        let original = &log[net.rng.next_u64() as usize % log.len()];
        let mut bytes = bootstrap_key.open(original).unwrap();
        for _ in 0..=net.rng.next_u64() % 3 {
            let at = net.rng.next_u64() as usize % bytes.len().max(1);
            match net.rng.next_u64() % 6 {
                0 => bytes[at] = net.rng.next_u64() as u8,
                1 => bytes[at] ^= 1 << (net.rng.next_u64() % 8),
                2 => bytes.truncate(at.max(1)),
                3 => bytes.insert(at, net.rng.next_u64() as u8),
                4 => bytes[at..].fill(0xFF),
                _ => {
                    let other = bootstrap_key.open(&log[net.rng.next_u64() as usize % log.len()]).unwrap();
                    let from = net.rng.next_u64() as usize % other.len();
                    bytes.truncate(at);
                    bytes.extend_from_slice(&other[from..]);
                    bytes.push(0);
                }
            }
        }
        let mut nonce = [0; 12];
        net.rng.fill_bytes(&mut nonce);
        let bootstrap_sealed = bootstrap_key.seal(nonce, &bytes);
        net.deliver((round % 6) as usize, &bootstrap_sealed);
        if round % 50 == 0 {
            net.run(1);
        }
    }
    net.run(5_000);
    let after = net.nodes.iter().map(|n| n.epochs.len()).collect::<Vec<_>>();
    assert_eq!(after, epochs, "somebody was made to agree, or to leave\n{}", net.describe());
    assert!(net.nodes.iter().all(|n| n.excluded.is_none() && n.keys.people.len() < 20 && n.keys.early.len() <= 384));
}

#[test]
fn a_revocation_list_too_long_for_a_message_brings_nobody_down() {
    let mut net = group(18, 2);
    let mut rng = ChaCha20Rng::seed_from_u64(7);
    let authority = Authority::create("ca", Algorithm::Ed25519, UTC, &mut rng).unwrap();
    let mut house = House { authority, identities: BTreeMap::new(), rng };
    for i in 0..3500 {
        let serial = house.identity(&format!("gone{i}"), &[(Act::Both, "#")]).certificate().serial;
        house.authority.revoke(serial, UTC).unwrap();
    }
    let crl = house.authority.crl(UTC, 86_400).unwrap();
    assert!(crl.len() > 70_000, "{} B", crl.len());
    let identity = house.identity("alone", &[(Act::Both, "#")]);
    let config = Config::new(GROUP, identity.clone());
    let mut keys = Contributory::new(config, [9; 32], net.clock());
    keys.handle_timeout(net.clock());
    net.run(1000);
    keys.handle_timeout(net.clock());
    keys.command(net.clock(), Command::Learn(crl)).unwrap();
    let state = Message::State(State { crl: 0, policy: 0, evictions: vec![] });
    let bootstrap_sealed = identity.bootstrap_key(GROUP).seal([1; 12], &state.encode());
    for _ in 0..20 {
        _ = keys.hear(net.clock(), &Source::Outside(Address::Node(0)), &bootstrap_sealed);
        while keys.poll().is_some() {}
    }
}

#[test]
fn w11_who_holds_an_old_key_reads_nothing_of_the_next_and_the_next_nothing_of_the_old() {
    let mut net = group(19, 4);
    let old = net.nodes[3].epochs.last().unwrap().protect.clone();
    let before = net.epoch_of(0);
    net.command(0, Command::Rotate).unwrap();
    let renewed = |net: &Net| net.epoch_of(0) != before && net.is_one();
    assert!(net.run_until(5_000, renewed), "{}", net.describe());
    let new = net.nodes[0].epochs.last().unwrap().protect.clone();
    for (from, to) in [(&new, &old), (&old, &new)] {
        let mut sealed = seal(from, Domain::GROUP, b"x");
        assert!(open(to, &sealed).is_err());
        // Nor with its header changed to the other's epoch.
        sealed[4..16].copy_from_slice(&to.epoch().to_bytes());
        assert_eq!(open(to, &sealed), Err(sealcast_wire::Dropped::Auth));
    }
}

#[test]
fn rule_g7_many_farewells_of_strangers_push_no_members_out_of_mind() {
    let mut net = group(20, 4);
    let short = net.nodes[3].keys.me.short;
    let keys = &mut net.nodes[0].keys;
    keys.removing.insert(short, sealcast_wire::Change::Left);
    let leave = |net: &Net, i: u64| {
        let me = net.nodes[2].keys.me.clone();
        let mut card = me.card.clone();
        card.incarnation.0[..8].copy_from_slice(&i.to_be_bytes());
        card.signature = robot(2).key().sign(&card.signed(GROUP));
        let author = card.short_id(GROUP);
        let mut m = super::super::message::Leave { author, epoch: EpochId::default(), signature: [0; 64] };
        let body = Message::Leave(m.clone()).body();
        m.signature = robot(2).key().sign(&signed("sealcast/v1/leave", GROUP, &[], &body));
        (Message::Give(vec![Object::Card(Box::new(card))]), Message::Leave(m))
    };
    for i in 0..600 {
        let (card, leave) = leave(&net, i);
        let (card, leave) = (bootstrap_sealed(&mut net, &card), bootstrap_sealed(&mut net, &leave));
        net.deliver(0, &card);
        net.deliver(0, &leave);
        net.now += 60_000;
    }
    let removing = &net.nodes[0].keys.removing;
    assert!(removing.len() <= 256 && removing.len() > 100, "{}", removing.len());
    assert!(removing.contains_key(&short));
}

/// A member's epochs have ascending numbers: of two attempts at one number, which may both end where members hear
/// different ones of them, it is in one at most.
#[test]
fn rule_a14_nobody_follows_a_proposal_of_the_number_that_it_has() {
    let mut net = group(23, 4);
    let epoch = net.epoch_of(0).unwrap();
    let hint = net.nodes[1].keys.statements.hint();
    let of = |net: &Net, counter, base| {
        let seats = seats(net, &[0, 1, 2, 3]);
        Propose { counter, attempt: 200, version: 1, kind: Kind::Setup, base, hint, seats, signature: [0; 64] }
    };
    let ours = net.nodes[1].keys.base();
    for base in [None, ours, Some(Base { counter: epoch.counter - 1, size: 4, hash: 7 })] {
        let again = of(&net, epoch.counter, base);
        let again = proposal(&mut net, 1, again);
        for i in [0, 2, 3] {
            net.deliver(i, &again);
            assert!(net.nodes[i].keys.attempt.is_none(), "{i} follows a second one of number {}", epoch.counter);
        }
    }
    let next = of(&net, epoch.counter + 1, ours);
    let next = proposal(&mut net, 1, next);
    net.deliver(0, &next);
    assert!(net.nodes[0].keys.attempt.is_some(), "the next number is another matter");
}

/// What follows on an epoch that we left stops nothing that follows on ours, however great its numbers are.
#[test]
fn rule_g7_who_was_left_behind_cannot_outbid_those_who_went_on() {
    let mut net = group(24, 4);
    let before = net.nodes[0].keys.base();
    net.command(0, Command::Rotate).unwrap();
    assert!(net.run_until(2_000, |net| net.nodes[0].keys.base() != before && net.is_one()));
    net.run(300);
    net.command(0, Command::Rotate).unwrap();
    assert!(net.run_until(100, |net| (0..4).all(|i| net.nodes[i].keys.attempt.is_some())));
    let running = |net: &Net| net.nodes[0].keys.attempt.as_ref().map(|a| a.proposal.id());
    let (first, ours) = (running(&net), net.nodes[0].keys.base());
    let hint = net.nodes[0].keys.statements.hint();
    let counter = net.epoch_of(0).unwrap().counter + 1;
    let mut bid = |base| {
        let seats = seats(&net, &[0, 1, 2, 3]);
        let content =
            Propose { counter, attempt: 200, version: 1, kind: Kind::Setup, base, hint, seats, signature: [0; 64] };
        let bytes = proposal(&mut net, 3, content);
        net.deliver(0, &bytes);
        running(&net)
    };
    assert_eq!(bid(before), first);
    assert_eq!(bid(None), first);
    assert_ne!(bid(ours), first, "members of one epoch take turns by the numbers of their attempts");
}

/// The farewell of a former run of a certificate, as it was sent or with any part of it put into another one,
/// says nothing of the run that is in the group now, nor of anybody else.
#[test]
fn rule_a3_a_former_runs_farewell_sent_again_or_spliced_removes_nobody() {
    let mut net = group(22, 4);
    net.command(3, Command::Leave).unwrap();
    assert!(net.run_until(5_000, |net| net.nodes[3].excluded.is_some() && net.are_one(&[0, 1, 2])));
    let sent = recorded(&net, 3, |m| matches!(m, Message::Leave(_)));
    let Message::Leave(old) = bootstrap_open(sent.first().expect("it said that it goes")) else { unreachable!() };
    let again = net.restart(3);
    let members = [0, 1, 2, again];
    assert!(net.run_until(5_000, |net| net.are_one(&members)), "{}", net.describe());
    net.run(2_000);

    let (now, epoch) = (seats(&net, &members), net.epoch_of(0).unwrap());
    let leave = |author, epoch, signature| Message::Leave(super::super::message::Leave { author, epoch, signature });
    let mut forgeries = vec![leave(old.author, epoch, old.signature)];
    for short in now {
        forgeries.push(leave(short, old.epoch, old.signature));
        forgeries.push(leave(short, epoch, old.signature));
    }
    // The new run's key is not its certificate's: who has got hold of that alone says no farewells.
    let short = net.nodes[again].keys.me.short;
    let body = leave(short, epoch, [0; 64]).body();
    let by_run = net.nodes[again].keys.key.sign(&signed("sealcast/v1/leave", GROUP, &[], &body));
    forgeries.push(leave(short, epoch, by_run));
    // And another holder's certificate speaks for none of it.
    let by_other = robot(1).key().sign(&signed("sealcast/v1/leave", GROUP, &[], &body));
    forgeries.push(leave(short, epoch, by_other));

    let mut datagrams = sent;
    forgeries.iter().for_each(|m| datagrams.push(bootstrap_sealed(&mut net, m)));
    let prepared: Vec<usize> = members.iter().map(|i| net.nodes[*i].prepared.len()).collect();
    under_attack(&mut net, (1_000, 50), |_| datagrams.clone(), |_| false);
    for (i, prepared) in members.into_iter().zip(prepared) {
        let node = &net.nodes[i];
        assert_eq!((node.keys.epoch(), node.prepared.len()), (epoch, prepared), "{i}\n{}", net.describe());
        let removing = |short: &ShortId| node.keys.removing.contains_key(short);
        assert!(!seats(&net, &members).iter().any(removing) && node.excluded.is_none(), "{}", net.describe());
    }
}

/// What one kind of datagram, sent by the thousand within a second, makes a member check, keep and say. The
/// numbers are those of docs/limits.md.
#[test]
fn rule_g8_a_second_of_each_hostile_datagram_costs_so_much_and_no_more() {
    use sealcast_wire::Dropped;
    let mut net = group(21, 8);
    let heard = |net: &Net, i: usize| net.nodes[i].keys.me.short;
    let author = heard(&net, 3);
    let last = net.nodes[0].keys.last.as_ref().unwrap().proposal.id();
    let epoch = net.epoch_of(0).unwrap();
    let beacons = recorded(&net, 0, |m| matches!(m, Message::Beacon(_)));
    let beacon_again = (1..8).find_map(|i| recorded(&net, i, |m| matches!(m, Message::Beacon(_))).pop());
    let beacon_again = beacon_again.or_else(|| beacons.last().cloned()).expect("somebody said that the group is here");
    let join_again = recorded(&net, 3, is_join).pop().unwrap();
    let garbage_card = |i: u64| {
        let mut card = robot_card();
        card.cert.0[..8].copy_from_slice(&i.to_be_bytes());
        card
    };
    type Make<'a> = Box<dyn Fn(&mut Net, u64) -> Vec<u8> + 'a>;
    let inputs: Vec<(&str, Make<'_>, u64, u64)> = vec![
        // name, how it is made, answers per 1,000 at most, checks per 1,000 at most
        ("garbage, outsider", Box::new(|_, i| [&i.to_be_bytes()[..], &[7; 200]].concat()), 0, 0),
        (
            "garbage under the veil, former member",
            Box::new(|net, i| {
                let nonce = [i as u8; 12];
                net.rng.next_u64();
                robot(0).bootstrap_key(GROUP).seal(nonce, &[&[5][..], &i.to_be_bytes(), &[9; 300]].concat())
            }),
            0,
            0,
        ),
        ("JOIN sent again, outsider", Box::new(|_, _| join_again.clone()), 150, 70),
        ("BEACON sent again, outsider", Box::new(|_, _| beacon_again.clone()), 60, 60),
        (
            "JOIN of strangers, former member",
            Box::new(|net, i| {
                let summary = Summary::default();
                let (epoch, towards) = (EpochId::default(), EpochId::default());
                let card = garbage_card(i);
                bootstrap_sealed(
                    net,
                    &Message::Join(Join {
                        card,
                        summary,
                        epoch,
                        size: 0,
                        towards,
                        added: Vec::new(),
                        signature: [1; 64],
                    }),
                )
            }),
            60,
            401,
        ),
        (
            "R1 falsely signed, former member",
            Box::new(|net, i| {
                let contributions = vec![[i as u8; 96]];
                let (mut instance, signature) = ([0; 32], [i as u8; 64]);
                instance[..8].copy_from_slice(&last.0);
                let (roster, state, of_base) = ([1; 32], [2; 32], false);
                let m =
                    super::super::message::R1 { author, instance, roster, state, of_base, contributions, signature };
                bootstrap_sealed(net, &Message::R1(m))
            }),
            60,
            1000,
        ),
        (
            "BEACON falsely signed, former member",
            Box::new(|net, i| {
                let summary = Summary::default();
                let epoch = EpochId { hash: i, ..epoch };
                bootstrap_sealed(
                    net,
                    &Message::Beacon(Beacon {
                        author,
                        epoch,
                        size: 3,
                        summary,
                        versions: Versions::OURS,
                        added: Vec::new(),
                        signature: [i as u8; 64],
                    }),
                )
            }),
            60,
            1000,
        ),
        (
            "FETCH of all, former member",
            Box::new(|net, _| {
                let cards = seats(net, &[0, 1, 2, 3, 4, 5, 6, 7]);
                bootstrap_sealed(net, &Message::Fetch(Fetch { proposal: Some(last), cards }))
            }),
            1200,
            0,
        ),
        (
            "STATE of nothing, former member",
            Box::new(|net, _| {
                bootstrap_sealed(net, &Message::State(State { crl: 9, policy: 9, evictions: vec![[3; 8]] }))
            }),
            1200,
            0,
        ),
    ];
    for (name, make, answers, checks) in inputs {
        net.run(3_000);
        let said = |net: &Net| (0..8).map(|i| net.nodes[i].keys.token).sum::<u64>();
        let people = net.nodes[0].keys.people.len();
        let (before, auth, rate) = (
            said(&net),
            net.nodes[0].keys.drops().of(Dropped::Auth) + net.nodes[0].keys.drops().of(Dropped::Policy),
            net.nodes[0].keys.drops().of(Dropped::Rate),
        );
        let (mut bytes, mut cpu) = (0, std::time::Duration::ZERO);
        for i in 0..1000 {
            let datagram = make(&mut net, i);
            bytes += datagram.len();
            let start = std::time::Instant::now();
            net.deliver(0, &datagram);
            cpu += start.elapsed();
            (1..8).for_each(|to| net.deliver(to, &datagram));
            net.run(1);
        }
        let answered = (said(&net) - before).saturating_sub(1);
        let checked =
            net.nodes[0].keys.drops().of(Dropped::Auth) + net.nodes[0].keys.drops().of(Dropped::Policy) - auth;
        let limited = net.nodes[0].keys.drops().of(Dropped::Rate) - rate;
        let grown = net.nodes[0].keys.people.len() - people;
        println!(
            "| {name} | {cpu:?} of 1,000 datagrams; {checked} refused by a check, {limited} unchecked | +{grown} people, {} kept | {answered} datagrams by all 8 for 1,000 of {} B |",
            net.nodes[0].keys.early.len(),
            bytes / 1000,
        );
        assert!(answered <= answers, "{name}: {answered} answers");
        assert!(checks > 0 || checked <= 1000, "{name}: {checked} checks");
        assert!(checks == 0 || checked <= checks, "{name}: {checked} checks");
        assert!(grown == 0 && net.nodes[0].keys.early.len() <= 384, "{name}");
    }
    assert!(net.is_one(), "{}", net.describe());
}

fn robot_card() -> Card {
    let identity = robot(0);
    let der = identity.certificate().der.to_vec();
    Card {
        cert: identity.certificate().hash,
        incarnation: Incarnation([4; 16]),
        key: [8; 32],
        versions: Versions::OURS,
        signature: [2; 64],
        der,
    }
}
