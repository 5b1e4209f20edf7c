//! Newcomers whom an evicted member answers first.

use sealcast_wire::{Dropped, Fetch};

use super::formed;
use super::net::Net;
use crate::mls::posted::NOBODY;
use crate::{Command, Keys as _};

/// Three members of which the last one is evicted and goes on as if it were not, while the others are off; and one more device,
/// which it let in. The evicted one changes its key so many times before.
fn captured(seed: u64, ahead: usize) -> Net {
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
    net.nodes[2].next = net.log.len();
    net.nodes[2].deaf = false;
    for _ in 0..ahead {
        net.command(2, Command::Rotate);
        net.run(1_000);
    }
    net.directory.remove(&Fetch::KeyPackage(NOBODY));
    net.start(3);
    net.run(5_000);
    net.assert_in_one_epoch(&[2, 3]);
    net.assert_members(3, 4);
    net
}

#[test]
fn rule_d1_a_newcomer_whom_an_evicted_member_let_in_hears_of_it_from_who_comes_next() {
    for (seed, ahead) in (0..8).flat_map(|seed| [(seed, 0), (seed, 1), (seed, 4)]) {
        let mut net = captured(seed, ahead);
        net.start(1);
        // It seals nothing from then on.
        net.run(2_500);
        let is_free = |net: &Net| net.nodes[3].holds || net.nodes[3].views.last().unwrap().view.members.len() == 3;
        assert!(is_free(&net), "seed {seed}, ahead by {ahead}");
        net.run(20_000);
        net.start(0);
        net.run(4_000);
        net.assert_together(&[0, 1, 3]);
    }
}

#[test]
fn a_captured_member_that_runs_anew_hears_of_it_too_and_however_late() {
    for seed in 0..4 {
        let mut net = captured(seed, 2);
        net.crash(3);
        net.start(3);
        net.run(1_800_000);
        net.start(1);
        net.run(30_000);
        net.start(0);
        net.run(4_000);
        net.assert_together(&[0, 1, 3]);
    }
}

#[test]
fn rule_g8_warnings_without_end_cost_so_many_signatures_a_second_and_nothing_else() {
    let mut net = formed(3, 9);
    let garbage: Vec<Vec<u8>> = (0..100_u8).map(|it| vec![it; 300]).collect();
    let heard = net.with(0, |keys, now| {
        let heard = keys.hear_warning(now, &garbage);
        assert!(keys.poll().is_none(), "nobody is told, and nothing is stored");
        heard
    });
    assert_eq!(heard, Err(Dropped::Queue));
    net.run(2_000);
    assert_eq!(net.with(0, |keys, now| keys.hear_warning(now, &garbage[..64])), Ok(()));
    net.assert_together(&[0, 1, 2]);
}
