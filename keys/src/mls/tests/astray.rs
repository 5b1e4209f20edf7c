//! Newcomers whom an evicted member answers first.

use sealcast_wire::Fetch;

use super::net::Net;
use crate::Command;
use crate::mls::posted::NOBODY;

/// Three members of which the last one is evicted and goes on as if it were not, while the others are off; and one more device,
/// which it let in.
fn captured(seed: u64) -> Net {
    let mut net = Net::new(4, seed);
    (0..3).for_each(|node| {
        net.start(node);
        net.run(2_000);
    });
    net.assert_together(&[0, 1, 2]);
    net.nodes[2].deaf = true;
    let cert = net.cert(2);
    net.command(0, Command::Evict { cert, reason: "lost its badge".to_owned() });
    net.run(3_000);
    net.assert_together(&[0, 1]);
    (0..2).for_each(|node| net.crash(node));
    // It passes over what evicts it, and takes away what the others posted.
    net.directory.remove(&Fetch::KeyPackage(NOBODY));
    net.nodes[2].next = net.log.len();
    net.nodes[2].deaf = false;
    net.start(3);
    net.run(5_000);
    net.assert_together_among(&[2, 3]);
    net.assert_members(3, 4);
    net
}

#[test]
fn rule_d1_a_newcomer_whom_an_evicted_member_let_in_is_shown_the_way_by_who_comes_next() {
    for seed in 0..8 {
        let mut net = captured(seed);
        net.start(1);
        net.run(8_000);
        net.start(0);
        net.run(4_000);
        net.assert_together(&[0, 1, 3]);
    }
}

#[test]
fn who_was_warned_of_an_evicted_member_follows_it_no_more() {
    for seed in 0..4 {
        let mut net = captured(seed);
        net.start(1);
        net.run(8_000);
        net.crash(1);
        net.crash(3);
        net.start(3);
        net.run(8_000);
        net.start(0);
        net.start(1);
        net.run(4_000);
        net.assert_together(&[0, 1, 3]);
    }
}
