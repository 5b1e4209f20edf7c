//! Members of `keys=mls` in a small network, with the real engine.

mod admission;
mod astray;
mod basic;
mod complaints;
mod journal;
mod large;
mod net;
mod posted;
mod private_messages;
mod sharing;

use sealcast_crypto::identity::Act;
use sealcast_crypto::signature::Algorithm;
use sealcast_wire::Change;

use self::net::{GROUP, Net, seal};
use super::ConfigError;
use super::engine::Engine as _;
use super::message::Message;
use super::scheme::Phase;
use crate::{Command, Exclusion, Input, Keys as _, Notice};

/// All of them, together; one more has a certificate.
fn formed(members: usize, seed: u64) -> Net {
    form(Net::new(members + 1, seed), members)
}

fn form(mut net: Net, members: usize) -> Net {
    net.start(0);
    net.run(1_000);
    (1..members).for_each(|node| net.start(node));
    net.run(5_000);
    net.assert_together(&(0..members).collect::<Vec<_>>());
    net
}

#[test]
fn newcomers_come_in_by_external_commits() {
    for seed in 0..5 {
        formed(6, seed);
    }
}

#[test]
fn newcomers_come_in_though_a_third_of_the_answers_is_lost() {
    for seed in 0..5 {
        let mut net = Net::new(5, seed);
        net.loss = 33;
        net.start(0);
        net.run(1_000);
        (1..5).for_each(|node| net.start(node));
        net.run(30_000);
        net.assert_together(&[0, 1, 2, 3, 4]);
    }
}

#[test]
fn of_two_founders_one_wins() {
    for seed in 0..8 {
        let mut net = Net::new(3, seed);
        (0..3).for_each(|node| net.start_as(node, |config| config.founds = true));
        net.run(20_000);
        net.assert_together(&[0, 1, 2]);
    }
}

#[test]
fn who_founds_where_a_group_may_be_waits_for_its_members_to_say_so() {
    for seed in 0..8 {
        let mut net = formed(2, seed);
        // Its questions of the first 400 ms are lost, or answered by nobody who is there.
        net.loss = 100;
        net.start_as(2, |config| config.founds = true);
        net.run(500);
        net.loss = 0;
        net.run(3_000);
        net.assert_together(&[0, 1, 2]);
        assert_eq!(net.nodes[2].views[0].view.members.len(), 3, "it never was in a group of its own");
    }
}

#[test]
fn a_group_founded_while_all_members_of_another_were_away_joins_them_later() {
    let mut net = formed(2, 3);
    net.crash(0);
    net.crash(1);
    net.start_as(2, |config| (config.founds, config.directory) = (true, false));
    net.run(5_000);
    assert_eq!(net.nodes[2].views[0].view.members.len(), 1);
    net.crash(2);
    (0..2).for_each(|node| net.start(node));
    net.run(3_000);
    net.start_as(2, |config| (config.founds, config.directory) = (true, false));
    net.run(5_000);
    net.assert_together(&[0, 1, 2]);
}

#[test]
fn two_members_are_both_asked_in_turn() {
    for seed in 0..8 {
        let mut net = formed(2, seed);
        net.crash(seed as usize % 2);
        net.start_as(2, |_| {});
        net.run(380);
        let is_outside = matches!(net.nodes[2].keys.as_ref().unwrap().phase, Phase::Outside(_));
        assert!(!is_outside, "seed {seed}: nobody who is there showed it a way before it would found a group");
    }
}

#[test]
fn a_device_that_waits_is_admitted_by_its_key_package() {
    let mut net = formed(3, 1);
    let mut more = Net::new(4, 1);
    std::mem::swap(&mut net, &mut more);
    net.start(0);
    net.run(1_000);
    net.start(1);
    net.run(3_000);
    net.start_as(3, |config| config.joins = false);
    net.run(3_000);
    net.assert_together(&[0, 1]);
    let cert = net.cert(3);
    net.command(1, Command::Admit { cert });
    net.run(3_000);
    net.assert_together(&[0, 1, 3]);
}

#[test]
fn the_evicted_reads_nothing_more_and_does_not_come_back() {
    let mut net = formed(4, 2);
    let cert = net.cert(2);
    net.command(0, Command::Evict { cert, reason: "lost laptop".into() });
    net.run(3_000);
    net.assert_together(&[0, 1, 3]);
    assert_eq!(net.nodes[2].excluded, Some(Exclusion::Evicted { reason: "lost laptop".into() }));
    let last = net.nodes[0].views.last().unwrap();
    assert_eq!(last.view.change, Change::Evicted);
    let sealed = seal(&last.protect, b"secret");
    for old in &net.nodes[2].views {
        assert!(old.protect.open(&mut sealed.clone()).is_err());
    }
    // Neither with its state nor without it.
    net.crash(2);
    net.start(2);
    net.run(5_000);
    net.assert_together(&[0, 1, 3]);
    net.crash(2);
    net.nodes[2].records.clear();
    net.start(2);
    net.run(5_000);
    net.assert_together(&[0, 1, 3]);
    assert!(net.nodes[2].views.is_empty());
}

#[test]
fn rule_d1_a_commit_names_the_key_by_which_members_of_its_epoch_append_and_the_evicted_lacks_it() {
    let mut net = formed(3, 7);
    let key = |net: &Net, node: usize| net.nodes[node].append_key.expect("it is in an epoch");
    let first = key(&net, 0);
    assert!([1, 2].iter().all(|node| key(&net, *node) == first), "all of an epoch have the same");
    assert_eq!(net.named.last(), Some(&first), "the last one came by an external commit, which names it, too");
    let cert = net.cert(2);
    net.command(0, Command::Evict { cert, reason: String::new() });
    net.run(3_000);
    let second = key(&net, 0);
    assert_eq!((key(&net, 1), key(&net, 2)), (second, first));
    assert_eq!(net.named.last(), Some(&second));
    // A process that starts has it again, and a card of a new run, which is no commit, changes nothing.
    net.crash(1);
    net.nodes[1].append_key = None;
    net.start(1);
    net.run(3_000);
    net.assert_together(&[0, 1]);
    assert_eq!((key(&net, 0), key(&net, 1)), (second, second));
    assert_eq!(net.named.last(), Some(&second));
    // One that is killed while its commit is under way names the same key once more.
    net.command(1, Command::Rotate);
    let named = *net.named.last().unwrap();
    net.crash(1);
    net.start(1);
    assert_eq!((named != second, net.named.last()), (true, Some(&named)));
    net.run(3_000);
    net.assert_together(&[0, 1]);
    assert_eq!([key(&net, 0), key(&net, 1)], [named; 2]);
}

#[test]
fn only_who_may_evict_evicts() {
    let mut net = formed(3, 3);
    let (cert, now) = (net.cert(0), net.now());
    let keys = net.nodes[1].keys.as_mut().unwrap();
    let command = crate::Input::Command(Command::Evict { cert, reason: String::new() });
    assert!(crate::Keys::handle(keys, now, command).is_err());
    net.run(1_000);
    net.assert_together(&[0, 1, 2]);
}

#[test]
fn rule_d3_a_member_leaves_by_a_proposal_that_another_one_commits() {
    for seed in 0..4 {
        let mut net = formed(4, seed);
        net.command(1, Command::Leave);
        net.run(5_000);
        assert_eq!(net.nodes[1].excluded, Some(Exclusion::Left));
        net.assert_together(&[0, 2, 3]);
        assert_eq!(net.nodes[0].views.last().unwrap().view.change, Change::Left);
    }
}

#[test]
fn rule_g8_members_keep_one_proposal_of_a_leaf_and_nothing_but_its_own_removal() {
    let mut net = formed(4, 40);
    net.with(3, |keys, now| keys.flood_proposals(now, 20));
    for _ in 0..5 {
        net.with(3, |keys, now| keys.ask_to_leave(now));
    }
    // Before anybody commits.
    (0..3).for_each(|node| net.catch_up(node));
    let kept = |net: &Net, node: usize| {
        let inside = net.nodes[node].keys.as_ref().unwrap().inside().unwrap();
        assert!(inside.keeps_one_proposal_a_leaf());
        inside.engine.proposals().into_iter().map(|it| it.reference).collect::<Vec<_>>()
    };
    assert_eq!((0..3).map(|node| kept(&net, node).len()).collect::<Vec<_>>(), [1, 1, 1]);
    assert_eq!(kept(&net, 0), kept(&net, 1), "all keep the same one");
    // One that comes back keeps no other.
    net.crash(0);
    net.start(0);
    net.catch_up(0);
    assert_eq!(kept(&net, 0), kept(&net, 1));
    net.run(5_000);
    net.assert_together(&[0, 1, 2]);
    assert!(net.nodes[3].excluded.is_some());
}

#[test]
fn rule_g8_a_commit_of_a_void_proposal_is_void_for_all() {
    let mut net = formed(4, 41);
    let of = |net: &Net, node: usize| net.nodes[node].keys.as_ref().unwrap().inside().unwrap().engine_epoch();
    let before = of(&net, 0);
    // Its engine knows its own proposals, and commits what it may of them.
    net.with(3, |keys, now| {
        keys.judge_nothing();
        keys.flood_proposals(now, 4);
        keys.commit_proposals(now);
    });
    (0..3).for_each(|node| net.catch_up(node));
    assert_eq!([0, 1, 2].map(|node| of(&net, node)), [before; 3]);
}

#[test]
fn rule_d2_the_turn_of_a_silent_member_passes_on() {
    for away in 1..4 {
        let mut net = formed(4, 9);
        net.crash(away);
        net.command(0, Command::Leave);
        net.run(10_000);
        let stay: Vec<usize> = (1..4).filter(|it| *it != away).collect();
        assert_eq!(net.nodes[0].excluded, Some(Exclusion::Left), "without m{away}");
        assert_eq!(net.nodes[stay[0]].views.last().unwrap().view.members.len(), 3);
    }
}

#[test]
fn racing_commits_end_in_one_epoch() {
    for seed in 0..6 {
        let mut net = formed(5, seed);
        (0..5).for_each(|node| net.command(node, Command::Rotate));
        net.run(5_000);
        net.assert_together(&[0, 1, 2, 3, 4]);
        assert!(net.nodes[0].views.last().unwrap().view.epoch.counter >= 9, "each of them came to pass");
    }
}

#[test]
fn rule_g4_a_restarted_member_goes_on_with_a_card_and_no_commit() {
    let mut net = formed(4, 4);
    let before = net.nodes[0].keys.as_ref().unwrap().inside().unwrap().engine_epoch();
    let old = net.nodes[2].views.last().unwrap().view.members.clone();
    net.crash(2);
    net.run(500);
    net.start(2);
    net.run(3_000);
    net.assert_together(&[0, 1, 2, 3]);
    let inside = net.nodes[0].keys.as_ref().unwrap().inside().unwrap();
    assert_eq!(inside.engine_epoch(), before, "the tree is as it was");
    let cert = net.cert(2);
    let run = |of: &sealcast_wire::Roster| of.find(&cert).unwrap().1.id.incarnation;
    assert_ne!(run(&old), run(&net.nodes[0].views.last().unwrap().view.members));
}

#[test]
fn a_run_knows_how_far_the_one_before_delivered_its_epoch() {
    let mut net = formed(3, 4);
    let began = |net: &mut Net| {
        net.crash(2);
        net.start(2);
        net.nodes[2].delivered_before.take().expect("it is a member").1
    };
    assert_eq!(began(&mut net), 0, "nothing came in that epoch");
    net.run(3_000);
    // It ends, and hears of that.
    let now = net.now();
    net.with(2, |keys, _| {
        keys.handle(now, Input::Passed(40)).unwrap();
        keys.handle(now, Input::Ends).unwrap();
    });
    assert_eq!(began(&mut net), 40);
    // It is killed a second later.
    net.run(3_000);
    net.with(2, |keys, now| keys.handle(now, Input::Passed(50)).unwrap());
    assert_eq!(began(&mut net), 0, "not stored, and of an epoch since");
    net.run(3_000);
    net.with(2, |keys, now| keys.handle(now, Input::Passed(60)).unwrap());
    net.run(1_100);
    assert_eq!(began(&mut net), 60);
    // What was void for it comes again, and is behind nothing.
    net.with(2, |keys, now| {
        keys.handle(now, Input::Passed(12)).unwrap();
        keys.handle(now, Input::Ends).unwrap();
    });
    assert_eq!(began(&mut net), 60);
    // A program before this one stored nothing, and delivered all.
    net.run(3_000);
    net.nodes[2].records.remove(&crate::mls::mark::MARK);
    assert_eq!(began(&mut net), u64::MAX);
    net.run(3_000);
    net.assert_together(&[0, 1, 2]);
}

#[test]
fn rule_d1_a_crash_at_any_moment_loses_neither_state_nor_commit() {
    for millis in 0..12 {
        let mut net = formed(4, 5);
        net.command(1, Command::Rotate);
        let cert = net.cert(3);
        net.command(0, Command::Evict { cert, reason: String::new() });
        net.run(millis);
        net.crash(0);
        net.crash(1);
        net.run(50);
        net.start(0);
        net.start(1);
        net.run(8_000);
        net.assert_together(&[0, 1, 2]);
    }
}

#[test]
fn a_member_that_was_away_follows_the_log() {
    let mut net = formed(4, 6);
    net.crash(3);
    for _ in 0..10 {
        net.command(1, Command::Rotate);
        net.run(500);
    }
    net.start(3);
    net.run(3_000);
    net.assert_together(&[0, 1, 2, 3]);
}

#[test]
fn rule_d1_a_void_entry_stops_nobody() {
    let mut net = formed(3, 7);
    let epoch = net.nodes[0].keys.as_ref().unwrap().inside().unwrap().engine_epoch();
    let key = net.nodes[0].identity.bootstrap_key(GROUP);
    for (i, body) in [vec![], vec![0; 40], b"\x00\x01\x00\x02garbage".to_vec()].into_iter().enumerate() {
        let commit = Message::Commit { epoch, commit: body, cards: vec![], why: vec![] };
        net.append(key.seal([i as u8; 12], &commit.write()));
        // Of an epoch that is not, and nothing at all.
        let later = Message::Commit { epoch: epoch + 7, commit: vec![1], cards: vec![], why: vec![] };
        net.append(key.seal([9 + i as u8; 12], &later.write()));
        net.append(vec![i as u8; 100]);
        // A part of something that never comes.
        let part = Message::Part { epoch, whole: [i as u8; 32], index: 0, count: 3, bytes: vec![1; 20] };
        net.append(key.seal([20 + i as u8; 12], &part.write()));
    }
    net.command(1, Command::Rotate);
    net.run(2_000);
    net.assert_together(&[0, 1, 2]);
    assert!(net.nodes[0].keys.as_ref().unwrap().inside().unwrap().engine_epoch() > epoch);
}

#[test]
fn the_authority_s_list_removes_whom_it_revokes() {
    let mut net = formed(3, 8);
    let serial = net.nodes[2].identity.certificate().serial;
    let at = net.now().utc.unwrap();
    assert!(net.authority.revoke(serial, at).unwrap());
    let crl = net.authority.crl(at, 86_400).unwrap();
    net.command(1, Command::Learn(crl));
    net.run(8_000);
    net.assert_together(&[0, 1]);
    assert!(matches!(net.nodes[2].excluded, Some(Exclusion::Evicted { .. })));
}

#[test]
fn a_certificate_for_some_topics_is_refused_with_the_reason() {
    let mut net = Net::of(&[&[(Act::Both, "#")], &[(Act::Both, "pose/#")]], Algorithm::Ed25519, 1);
    let records = Vec::new();
    let identity = net.nodes[1].identity.clone();
    let config = super::Config::new(GROUP, identity);
    let now = net.now();
    let made = super::Mls::<super::engine::mls_rs::MlsRs>::restore(config, [1; 32], now, &records);
    assert_eq!(made.err(), Some(ConfigError::Readers));
    net.run(1);
}

#[test]
fn certificates_of_p256_make_groups_of_the_second_suite() {
    let mut net = Net::of(&[&[(Act::Both, "#")][..]; 3], Algorithm::P256, 1);
    net.start(0);
    net.run(1_000);
    net.start(1);
    net.start(2);
    net.run(5_000);
    net.assert_together(&[0, 1, 2]);
}

#[test]
fn rule_d8_no_name_is_seen() {
    let net = formed(3, 1);
    let seen = |needle: &[u8]| net.log.iter().any(|it| it.1.windows(needle.len()).any(|w| w == needle));
    assert!(!seen(b"m1") || !seen(GROUP.as_bytes()));
    let der = &net.nodes[1].identity.certificate().der;
    assert!(!seen(&der[40..72]));
}

#[test]
fn rule_d2_another_group_of_the_name_lets_nobody_in_whom_an_earlier_one_evicted() {
    let mut before = formed(4, 2);
    let cert = before.cert(2);
    before.command(0, Command::Evict { cert, reason: "lost laptop".into() });
    before.run(3_000);
    before.assert_together(&[0, 1, 3]);
    // The log is lost. Members meet at another one, where the evicted is first, and m3 knows of nothing.
    for first in [2, 1] {
        let mut net = Net::new(4, 2);
        let holders = before.nodes.iter().map(|it| it.identity.clone());
        net.nodes.iter_mut().zip(holders).for_each(|(node, identity)| node.identity = identity);
        let known = |node: usize| {
            let records: Vec<(u64, Vec<u8>)> = before.nodes[node].records.clone().into_iter().collect();
            super::statements(&records)
        };
        let (one, none) = (known(1), known(2));
        assert!(!one.is_empty() && none.is_empty());
        net.start_as(first, |config| (config.founds, config.statements) = (true, known(first)));
        net.run(1_500);
        for node in [0, 1, 2, 3].into_iter().filter(|it| *it != first) {
            net.start_as(node, |config| {
                (config.founds, config.statements) = (false, if node == 1 { one.clone() } else { vec![] })
            });
            net.run(2_000);
        }
        net.run(8_000);
        net.assert_together(&[0, 1, 3]);
        assert!(matches!(net.nodes[2].excluded, Some(Exclusion::Evicted { .. })), "{first} was first");
        // All of them know it from here on.
        let stored: Vec<(u64, Vec<u8>)> = net.nodes[3].records.clone().into_iter().collect();
        assert_eq!(super::statements(&stored), one);
    }
}

#[test]
fn rule_d2_nobody_seals_for_whom_it_knows_to_be_evicted_and_a_withheld_removal_is_told() {
    let mut net = formed(3, 2);
    let cert = net.cert(2);
    // The order brings nothing more.
    net.nodes.iter_mut().for_each(|it| it.deaf = true);
    net.command(0, Command::Evict { cert, reason: String::new() });
    assert!(net.nodes[0].holds, "it has paused at once");
    net.run(60_000);
    assert!(net.nodes[0].holds);
    assert_eq!(net.nodes[0].notices, [Notice::RemovalWithheld { cert }]);
    // Also after a restart: the statement is stored.
    net.crash(0);
    net.start(0);
    net.run(1_000);
    assert!(net.nodes[0].holds);
    net.nodes.iter_mut().for_each(|it| it.deaf = false);
    net.append(vec![]);
    net.run(10_000);
    net.assert_together(&[0, 1]);
    assert!(!net.nodes[0].holds);
}
