//! Groups without a directory: members send what others fetch.

use sealcast_wire::{Address, CertHash, Source};

use super::net::{GROUP, Net};
use crate::mls::message::{Message, Sought, WantKind};
use crate::{Command, Input, Keys, Output};

/// All of them, together, though so many of a hundred messages that nobody orders are lost.
fn formed(members: usize, seed: u64, loss: u64) -> Net {
    let mut net = Net::new(members, seed);
    net.loss = loss;
    net.start_as(0, |config| config.directory = false);
    net.run(1_000);
    (1..members).for_each(|node| net.start_as(node, |config| config.directory = false));
    // Who was not heard asks later and later.
    net.run(if loss == 0 { 5_000 } else { 120_000 });
    net.assert_together(&(0..members).collect::<Vec<_>>());
    net
}

#[test]
fn newcomers_get_the_tree_from_members() {
    for seed in 0..3 {
        formed(6, seed, 0);
        formed(5, seed, 25);
    }
}

#[test]
fn a_device_is_admitted_by_what_it_says_itself_or_a_member_keeps() {
    for (seed, keeps) in [(1, true), (2, false)] {
        let mut net = Net::new(4, seed);
        [0, 1].into_iter().for_each(|node| {
            net.start_as(node, |config| config.directory = false);
            net.run(2_000);
        });
        net.start_as(3, |config| (config.directory, config.joins) = (false, false));
        net.run(1_000);
        if !keeps {
            // The member that admits it did not hear its key package.
            net.crash(1);
            net.start_as(1, |config| config.directory = false);
            net.run(3_000);
        }
        let cert = net.cert(3);
        net.command(1, Command::Admit { cert });
        net.run(5_000);
        net.assert_together(&[0, 1, 3]);
    }
}

/// An outsider with the bootstrap key, such as a former member, cannot put itself in another device's place, and gets each
/// piece once in a while.
#[test]
fn what_a_stranger_says_or_asks_costs_little() {
    let mut net = formed(4, 7, 0);
    let keeps = |net: &Net, node: usize| net.nodes[node].keys.as_ref().unwrap().pieces_kept();
    let who = (0..4).find(|node| !keeps(&net, *node).is_empty()).expect("somebody showed a newcomer the way in");
    let (now, own, other) = (net.now(), net.cert(who), net.cert((who + 3) % 4));
    let key = net.nodes[0].identity.bootstrap_key(GROUP);
    let source = Source::Outside(Address::Node(9));
    let hear = |net: &mut Net, message: Message| {
        let bytes = key.seal([9; 12], &message.write());
        let keys = net.nodes[who].keys.as_mut().unwrap();
        let heard = keys.handle(now, Input::Message { source: &source, position: None, bytes: &bytes });
        (heard.is_ok(), std::iter::from_fn(|| keys.poll()).count())
    };
    for cert in [other, CertHash([7; 32])] {
        let (kept, said) = hear(&mut net, Message::Package { cert, bytes: vec![1; 900] });
        assert!(!kept && said == 0, "a key package of nobody's is kept");
    }
    let known: Vec<[u8; 32]> = keeps(&net, who);
    net.time += 1_000_000;
    let now = net.now();
    let count = known.len();
    let seek = |net: &mut Net, what: Sought| {
        let bytes = key.seal([8; 12], &Message::Seek(what).write());
        let keys = net.nodes[who].keys.as_mut().unwrap();
        let _ = keys.handle(now, Input::Message { source: &source, position: None, bytes: &bytes });
        std::iter::from_fn(|| keys.poll()).count()
    };
    assert_eq!(seek(&mut net, Sought::Pieces(known.clone())), count);
    assert_eq!(seek(&mut net, Sought::Pieces(known)), 0);
    assert_eq!(seek(&mut net, Sought::Package { cert: own, tries: 0 }), 1);
    assert_eq!(seek(&mut net, Sought::Package { cert: own, tries: 1 }), 0);
}

/// The same of devices that say that they want to be let in: those without a certificate are not listed, and cost no message of
/// ours that nobody asked for.
#[test]
fn what_a_stranger_says_of_waiting_costs_little() {
    let mut net = formed(2, 8, 0);
    let key = net.nodes[0].identity.bootstrap_key(GROUP);
    let (now, card) = (net.now(), net.nodes[1].keys.as_ref().unwrap().card.clone());
    let source = Source::Outside(Address::Node(9));
    for i in 0..2_000_u32 {
        let mut card = card.clone();
        card.id.cert.0[..4].copy_from_slice(&i.to_be_bytes());
        let want = Message::Want { what: WantKind::Admission, position: 0, tries: 0, card };
        let bytes = key.seal([9; 12], &want.write());
        let keys = net.nodes[0].keys.as_mut().unwrap();
        keys.handle(now, Input::Message { source: &source, position: None, bytes: &bytes }).unwrap();
        assert_eq!(std::iter::from_fn(|| keys.poll()).count(), 0);
    }
    let keys = net.nodes[0].keys.as_mut().unwrap();
    keys.handle(now, Input::Describe).unwrap();
    let outputs: Vec<Output> = std::iter::from_fn(|| keys.poll()).collect();
    let listed = outputs.iter().find_map(|it| if let Output::Described(it) = it { Some(it) } else { None }).unwrap();
    assert_eq!((listed.pending.len(), listed.unnamed), (0, 1024));
    let sent = outputs.iter().filter(|it| matches!(it, Output::Send { .. })).count();
    assert!(sent <= 16, "{sent} messages");
}
