//! `data=mls`: messages of the application as PrivateMessages.

use std::sync::Arc;

use sealcast_wire::frame::{HEADER_LEN, TAG_LEN};
use sealcast_wire::{Domain, Dropped, EpochId, PayloadContext, Protect, Slot, limits};

use super::form;
use super::net::{GROUP, Net};
use crate::mls::engine::mls_rs::MlsRs;
use crate::mls::engine::{Content, Engine as _};
use crate::mls::{Config, ConfigError, Mls};
use crate::{Command, Notice};

fn formed(members: usize) -> Net {
    let mut net = Net::new(members + 1, 9);
    net.private_messages = true;
    form(net, members)
}

/// The keys of a member's epoch.
fn keys(net: &Net, node: usize) -> Arc<dyn Protect> {
    net.nodes[node].views.last().expect("it is in").protect.clone()
}

fn context(by: &dyn Protect, topic: &'static str) -> PayloadContext<'static> {
    PayloadContext { epoch: by.epoch(), by: by.slot(), ordered: true, topic, sent_micros: Some(7) }
}

fn seal(by: &dyn Protect, topic: &'static str, text: &[u8]) -> Vec<u8> {
    by.payload().expect("data=mls").seal(&context(by, topic), text).expect("it may")
}

fn open(at: &dyn Protect, context: &PayloadContext<'_>, sealed: &[u8]) -> Result<Vec<u8>, Dropped> {
    at.payload().expect("data=mls").open(context, sealed)
}

#[test]
fn rule_d5_with_data_mls_messages_are_private_messages_and_each_opens_once_in_any_order() {
    let net = formed(3);
    let [ann, bob] = [0, 1].map(|it| keys(&net, it));
    let sealed: Vec<Vec<u8>> = (0..20).map(|i| seal(&*ann, "t", &[i; 100])).collect();
    let envelope = MlsRs::inspect_message(&sealed[0]).unwrap();
    assert_eq!(envelope.content, Content::Application);
    let context = context(&*ann, "t");
    for (i, message) in (0..20).zip(&sealed).rev() {
        assert_eq!(open(&*bob, &context, message), Ok(vec![i; 100]));
        assert!(open(&*bob, &context, message).is_err(), "its key is used up");
    }
    // Nobody opens his own by RFC 9420, but hears it where it comes back, as all others do.
    assert_eq!(open(&*ann, &context, &sealed[0]), Ok(vec![0; 100]));
    assert_eq!(open(&*ann, &context, &sealed[0]), Err(Dropped::Replay));
    // Without data=mls there is nothing of it.
    assert!(super::formed(2, 9).nodes[0].views[0].protect.payload().is_none());
}

#[test]
fn rule_g3_a_datagram_whose_private_message_is_not_good_moves_no_window() {
    let net = formed(2);
    let [ann, bob] = [0, 1].map(|it| keys(&net, it));
    let datagram = || {
        let mut datagram = vec![0; HEADER_LEN + 9 + TAG_LEN];
        let counter = ann.seal(Domain(1), 0, &mut datagram).expect("it may");
        (counter, datagram)
    };
    // Any member could have sealed it, in ann's slot: nothing is known of it until what is in it opens.
    let (_, mut early) = datagram();
    let far: Vec<_> = (0..5_000).map(|_| datagram()).collect();
    let (_, late) = far.last().expect("many");
    assert!(bob.open(&mut late.clone()).is_ok());
    let (source, ..) = bob.open(&mut early).expect("it is not taken for an old one");
    assert!(bob.admit(&source) && !bob.admit(&source), "once");
    let (source, ..) = bob.open(&mut late.clone()).expect("a copy");
    assert!(bob.admit(&source));
    assert_eq!(bob.open(&mut late.clone()).map(|_| ()), Err(Dropped::Replay));
}

#[test]
fn rule_g3_a_private_message_counts_where_its_sender_put_it_and_stays_good_for_that() {
    let net = formed(3);
    let [ann, bob, eve] = [0, 1, 2].map(|it| keys(&net, it));
    let message = seal(&*ann, "t", b"on");
    let right = context(&*ann, "t");
    let other_epoch = EpochId { counter: right.epoch.counter + 1, ..right.epoch };
    let wrong = [
        PayloadContext { topic: "u", ..right },
        PayloadContext { by: eve.slot(), ..right },
        PayloadContext { ordered: false, ..right },
        PayloadContext { sent_micros: None, ..right },
        PayloadContext { sent_micros: Some(8), ..right },
        PayloadContext { epoch: other_epoch, ..right },
    ];
    for context in &wrong {
        assert_eq!(open(&*bob, context, &message), Err(Dropped::Auth), "{context:?}");
    }
    for at in 0..message.len() {
        let mut changed = message.clone();
        changed[at] ^= 1;
        assert!(open(&*bob, &right, &changed).is_err(), "byte {at}");
    }
    assert_eq!(open(&*bob, &right, &message), Ok(b"on".to_vec()), "none of these used up its key");
    assert!(bob.payload().unwrap().open(&PayloadContext { by: Slot(77), ..right }, b"").is_err());
}

#[test]
fn what_waits_is_opened_when_the_group_has_gone_on() {
    let mut net = formed(3);
    let [ann, bob] = [0, 1].map(|it| keys(&net, it));
    let before = seal(&*ann, "t", b"before");
    net.command(2, Command::Rotate);
    net.run(2_000);
    net.assert_together(&[0, 1, 2]);
    let after = seal(&*keys(&net, 0), "t", b"after");
    assert_eq!(open(&*keys(&net, 1), &context(&*keys(&net, 0), "t"), &after), Ok(b"after".to_vec()));
    assert_eq!(open(&*bob, &context(&*ann, "t"), &before), Ok(b"before".to_vec()));
    assert_eq!(open(&*keys(&net, 1), &context(&*keys(&net, 0), "t"), &before), Err(Dropped::Auth));
}

#[test]
fn rule_g4_a_run_seals_in_no_epoch_in_which_one_before_did() {
    let mut net = formed(3);
    let epoch = |net: &Net| net.nodes[1].keys.as_ref().unwrap().inside().unwrap().engine_epoch();
    let last = epoch(&net);
    let bob = keys(&net, 1);
    let first = seal(&*bob, "t", b"first run");
    net.crash(1);
    net.run(1_000);
    net.start(1);
    assert!(net.nodes[1].views.is_empty(), "it may not seal yet");
    net.run(5_000);
    net.assert_together(&[0, 1, 2]);
    assert!(epoch(&net) > last, "the new run led to an epoch");
    let ann = keys(&net, 0);
    let again = seal(&*keys(&net, 1), "t", b"second run");
    assert_eq!(open(&*ann, &context(&*keys(&net, 1), "t"), &again), Ok(b"second run".to_vec()));
    // What the run before said, and nobody had yet, is good.
    let held = net.nodes[0].views.iter().find(|it| it.protect.epoch() == bob.epoch()).unwrap();
    assert_eq!(open(&*held.protect, &context(&*bob, "t"), &first), Ok(b"first run".to_vec()));
}

#[test]
fn rule_g7_who_misses_all_others_of_an_epoch_opens_the_last_one() {
    let mut net = formed(3);
    let [ann, bob] = [0, 1].map(|it| keys(&net, it));
    let mut worn = Vec::new();
    let payload = ann.payload().unwrap();
    let mut sealed = Vec::new();
    while let Ok(message) = payload.seal(&context(&*ann, "t"), b"m") {
        sealed.push(message);
        worn.extend(payload.is_worn().then_some(sealed.len()));
    }
    assert_eq!((sealed.len(), worn), (limits::MLS_SEALED_MAX, vec![limits::MLS_SEALED_MAX / 2]));
    assert_eq!(open(&*bob, &context(&*ann, "t"), sealed.last().unwrap()), Ok(b"m".to_vec()));
    assert_eq!(open(&*bob, &context(&*ann, "t"), &sealed[0]), Ok(b"m".to_vec()));
    net.command(0, Command::Rotate);
    net.run(2_000);
    net.assert_together(&[0, 1, 2]);
    seal(&*keys(&net, 0), "t", b"in the next epoch");
}

#[test]
fn what_comes_back_no_more_makes_room_for_what_may() {
    let net = formed(2);
    let ann = keys(&net, 0);
    let (ordered, large) = (context(&*ann, "t"), vec![7; limits::MLS_OWN_BYTES_MAX / 4]);
    let best_effort = PayloadContext { ordered: false, ..ordered };
    let payload = ann.payload().unwrap();
    let first = payload.seal(&ordered, &large).unwrap();
    for _ in 0..5 {
        payload.seal(&best_effort, &large).unwrap();
    }
    for _ in 0..3 {
        payload.seal(&ordered, &large).unwrap();
    }
    assert!(payload.seal(&ordered, &large).is_err() && payload.is_worn(), "all that is kept may come back");
    assert_eq!(open(&*ann, &ordered, &first), Ok(large.clone()));
    assert!(payload.seal(&ordered, &large).is_ok());
}

/// All that begin anew could lead to an epoch each.
#[test]
fn one_epoch_does_for_many_that_run_anew() {
    let mut net = formed(8);
    let epoch = |net: &Net| net.nodes[0].keys.as_ref().unwrap().inside().unwrap().engine_epoch();
    let last = epoch(&net);
    (0..8).for_each(|node| net.crash(node));
    net.run(100);
    (0..8).for_each(|node| net.start(node));
    net.run(10_000);
    net.assert_together(&(0..8).collect::<Vec<_>>());
    let led = epoch(&net) - last;
    assert!((1..=3).contains(&led), "{led} epochs");
}

#[test]
fn nobody_comes_into_a_group_whose_messages_have_another_form() {
    for form in [true, false] {
        let mut net = if form { formed(3) } else { super::formed(3, 9) };
        net.start_as(3, |config| config.private_messages = !form);
        net.run(5_000);
        let told = |net: &Net| net.nodes[3].notices.contains(&Notice::OtherForm { private_messages: form });
        assert!(told(&net) && net.nodes[3].views.is_empty());
        net.assert_together(&[0, 1, 2]);
        // Nor by a Welcome.
        net.nodes[3].notices.clear();
        net.start_as(3, |config| (config.private_messages, config.joins) = (!form, false));
        net.run(1_000);
        let cert = net.cert(3);
        net.command(0, Command::Admit { cert });
        net.run(5_000);
        assert!(told(&net) && net.nodes[3].views.is_empty());
        // A member that runs anew is told so before it does anything.
        let config = Config { private_messages: !form, ..Config::new(GROUP, net.nodes[1].identity.clone()) };
        let records: Vec<(u64, Vec<u8>)> = net.nodes[1].records.clone().into_iter().collect();
        let restored = Mls::<MlsRs>::restore(config, [3; 32], net.now(), &records);
        assert_eq!(restored.err(), Some(ConfigError::Form));
    }
}
