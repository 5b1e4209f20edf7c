//! Groups of more than a thousand members.

use sealcast_wire::limits;

use super::net::{Net, seal};
use crate::Command;
use crate::mls::message::Body;

/// A founder, and two who came last; between them members who were admitted and are away.
fn formed(members: usize) -> Net {
    let mut net = Net::new(members, 1);
    net.start(0);
    net.run(1_000);
    let away: Vec<usize> = (3..members).collect();
    for some in away.chunks(limits::MLS_ADDED_MAX) {
        for node in some {
            net.start_as(*node, |config| config.joins = false);
            net.crash(*node);
        }
        for node in some {
            let cert = net.cert(*node);
            net.command(0, Command::Admit { cert });
        }
        net.run(500);
    }
    for node in [1, 2] {
        net.start(node);
        net.run(3_000);
    }
    net
}

fn assert_together(net: &Net, members: usize) {
    let last = |node: usize| net.nodes[node].views.last().expect("it is in");
    for node in [0, 1, 2] {
        assert_eq!(last(node).view.members.len(), members, "m{node}");
        assert_eq!(last(node).view.epoch, last(0).view.epoch, "m{node}");
        for other in [0, 1, 2].into_iter().filter(|it| *it != node) {
            let mut sealed = seal(&last(node).protect, b"pulse 71");
            let opened = last(other).protect.open(&mut sealed).map(|it| it.2.to_vec());
            assert_eq!(opened.as_deref(), Ok(&b"pulse 71"[..]), "m{node} to m{other}");
        }
    }
}

fn written(net: &Net, node: usize) -> usize {
    net.nodes[node].stored.iter().map(|(_, record)| record.len()).sum()
}

#[test]
fn a_group_of_1040_members_writes_what_changed() {
    let members = 1_040;
    let mut net = formed(members);
    assert_together(&net, members);
    assert!(net.nodes[2].views.last().unwrap().view.me.index() >= 1_024, "behind the slots of a word of bits");
    let before = written(&net, 0);
    // Commits of the two who came last.
    for i in 0..12 {
        net.command(1 + i % 2, Command::Rotate);
        net.run(300);
    }
    net.run(60_000);
    let mean = (written(&net, 0) - before) / 12;
    assert!(mean <= 100_000 * members / 10_000, "{mean} bytes a commit, the checkpoint of their minute included");
    // A run goes on from what is there.
    net.crash(0);
    net.start(0);
    net.run(3_000);
    assert_together(&net, members);
}

#[test]
fn what_has_more_pieces_than_a_message_names_is_found_again() {
    let mut net = super::formed(2, 1);
    let bytes: Vec<u8> = (0..4_000_000_u32).map(|i| (i % 251) as u8 ^ (i >> 12) as u8).collect();
    let body = net.with(0, |keys, _| keys.body(&bytes));
    assert!(matches!(&body, Body::Listed(lists) if lists.len() == 1), "{body:?}");
    let found = (0..10).find_map(|_| {
        net.run(10);
        net.with(1, |keys, now| keys.whole(now, &body))
    });
    assert!(found == Some(bytes));
}
