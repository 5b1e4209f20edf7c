//! Newcomers who meet no member, at a directory where the way in is posted.

use super::net::Net;
use crate::Command;

/// Two members, who are off, and more who have certificates.
fn all_off(more: usize, seed: u64, change: impl FnOnce(&mut Net)) -> Net {
    let mut net = Net::new(2 + more, seed);
    (0..2).for_each(|node| {
        net.start_as(node, |config| config.directory = true);
        net.run(2_000);
    });
    net.assert_together(&[0, 1]);
    change(&mut net);
    (0..2).for_each(|node| net.crash(node));
    net
}

fn start(net: &mut Net, node: usize) {
    net.start_as(node, |config| (config.directory, config.founds) = (true, true));
}

#[test]
fn rule_d1_a_newcomer_comes_in_by_the_log_though_all_members_are_off() {
    for seed in 0..8 {
        let mut net = all_off(1, seed, |_| {});
        start(&mut net, 2);
        net.run(5_000);
        net.assert_members(2, 3);
        (0..2).for_each(|node| start(&mut net, node));
        net.run(5_000);
        net.assert_together(&[0, 1, 2]);
    }
}

#[test]
fn a_member_that_ran_anew_since_the_post_is_known_by_its_card() {
    for seed in 0..8 {
        let mut net = all_off(1, seed, |net| {
            net.crash(1);
            start(net, 1);
            // Its card counts, and it does not get to post.
            net.run(15);
        });
        start(&mut net, 2);
        net.run(5_000);
        net.assert_members(2, 3);
        start(&mut net, 0);
        net.run(5_000);
        net.assert_members(0, 3);
        start(&mut net, 1);
        net.run(5_000);
        net.assert_together(&[0, 1, 2]);
    }
}

#[test]
fn who_finds_a_post_of_an_epoch_that_is_over_waits_for_a_member_and_founds_nothing() {
    for seed in 0..8 {
        let mut net = all_off(1, seed, |net| {
            net.command(0, Command::Rotate);
            net.run(8);
        });
        start(&mut net, 2);
        net.run(20_000);
        assert!(net.nodes[2].views.is_empty(), "seed {seed}");
        start(&mut net, 1);
        net.run(8_000);
        net.assert_members(2, 3);
    }
}

#[test]
fn newcomers_who_meet_at_a_post_come_in_one_after_the_other() {
    for seed in 0..8 {
        let mut net = all_off(3, seed, |_| {});
        (2..5).for_each(|node| start(&mut net, node));
        net.run(30_000);
        (2..5).for_each(|node| net.assert_members(node, 5));
        (0..2).for_each(|node| start(&mut net, node));
        net.run(5_000);
        net.assert_together(&[0, 1, 2, 3, 4]);
    }
}
