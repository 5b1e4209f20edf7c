//! Sessions of a contributory group over loopback multicast.

use std::time::{Duration, Instant};

use crate::common::{Ca, SOON, open, url};
use sealcast::group::ViewEvent;
use sealcast::{Code, Origin, Session, Subscription};
use sealcast_wire::Change;

/// Waits until all of these sessions are in one view of that many members.
fn together(sessions: &[&Session], members: usize) {
    let deadline = Instant::now() + SOON;
    loop {
        let views: Vec<_> = sessions.iter().filter_map(|s| s.view()).collect();
        let one = views.len() == sessions.len()
            && views.iter().all(|v| v.members.len() == members && v.epoch == views[0].epoch);
        if one {
            return;
        }
        assert!(Instant::now() < deadline, "not together: {views:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn next(sub: &mut Subscription) -> sealcast::Message {
    sub.next_timeout(SOON).expect("open").expect("delivered")
}

#[test]
fn members_agree_on_a_key_and_talk() {
    let mut ca = Ca::new();
    let (alice, bob) = (ca.member("alice", &["both:#"]), ca.member("bob", &["both:#"]));
    let url = url("");
    let (a, b) = (open(&url, &alice), open(&url, &bob));
    let mut at_b = b.subscribe("ward3/#").wait().unwrap();
    together(&[&a, &b], 2);
    a.publish("ward3/vitals", br#"{"hr":72}"#).wait().unwrap();
    let message = next(&mut at_b);
    assert_eq!((message.topic(), message.payload()), ("ward3/vitals", &br#"{"hr":72}"#[..]));
    assert_eq!(message.epoch(), b.view().map(|v| v.epoch));
    assert!(message.sent_micros().is_some());
    assert!(matches!(message.origin(), Origin::Claimed(m) if &*m.name == "alice"));
}

#[test]
fn rule_a2_an_origin_is_signed_or_only_claimed() {
    let mut ca = Ca::new();
    let (alice, bob) = (ca.member("alice", &["both:#"]), ca.member("bob", &["both:#"]));
    let place = url("");
    let a = open(&format!("{place}&origin=signed"), &alice);
    let b = open(&place, &bob);
    let (mut at_a, mut at_b) = (a.subscribe("#").wait().unwrap(), b.subscribe("#").wait().unwrap());
    together(&[&a, &b], 2);
    a.publish("t", b"1").wait().unwrap();
    for sub in [&mut at_a, &mut at_b] {
        let origin = next(sub).origin();
        assert!(matches!(&origin, Origin::Signed(m) if &*m.name == "alice"), "{origin:?}");
        assert_eq!(origin.to_string(), "alice");
    }
    b.publish("t", b"2").wait().unwrap();
    for sub in [&mut at_a, &mut at_b] {
        let origin = next(sub).origin();
        assert!(matches!(&origin, Origin::Claimed(m) if &*m.name == "bob"), "{origin:?}");
        assert_eq!(origin.to_string(), "~bob");
    }
}

#[test]
fn rule_a1_who_may_only_read_cannot_write_and_writers_sign() {
    let mut ca = Ca::new();
    let (nurse, display) = (ca.member("nurse", &["both:#"]), ca.member("display", &["sub:#"]));
    let url = url("");
    let (n, d) = (open(&url, &nurse), open(&url, &display));
    let mut at_d = d.subscribe("#").wait().unwrap();
    together(&[&n, &d], 2);
    n.publish("orders", b"x").wait().unwrap();
    assert!(matches!(next(&mut at_d).origin(), Origin::Signed(_)), "a reader could forge otherwise");
    let error = d.publish("orders", b"forged").wait().unwrap_err();
    assert_eq!(error.code(), Code::DeniedPublish);
    assert!(error.message().contains("display may not publish on orders"), "{error}");
    assert!(error.remedy().is_some());
}

#[test]
fn a_publication_before_the_first_key_waits_for_it() {
    let mut ca = Ca::new();
    let (alice, bob) = (ca.member("alice", &["both:#"]), ca.member("bob", &["both:#"]));
    let url = url("");
    let a = open(&url, &alice);
    assert_eq!(a.try_publish("t", b"x"), Err(sealcast::session::TryPublishError::NotReady));
    let b = open(&url, &bob);
    let mut at_b = b.subscribe("t").wait().unwrap();
    a.publish("t", b"early").wait().unwrap();
    together(&[&a, &b], 2);
    a.publish("t", b"late").wait().unwrap();
    let first = next(&mut at_b);
    assert!([&b"early"[..], b"late"].contains(&first.payload()));
    assert_eq!(b.stats().drops.of(sealcast_wire::Dropped::Auth), 0);
}

#[test]
fn rule_g7_without_a_key_in_time_publishing_says_not_ready() {
    let mut ca = Ca::new();
    let alice = ca.member("alice", &["both:#"]);
    let a = open(&url("&wait=1ms"), &alice);
    let error = a.publish("t", b"x").wait().unwrap_err();
    assert_eq!((error.code(), error.class() as u8), (Code::NotReady, 4));
}

#[test]
fn views_tell_who_came_and_who_left() {
    let mut ca = Ca::new();
    let (alice, bob) = (ca.member("alice", &["both:#"]), ca.member("bob", &["both:#"]));
    let url = url("");
    let a = open(&url, &alice);
    let mut views = a.views();
    a.ready().wait().unwrap();
    let b = open(&url, &bob);
    together(&[&a, &b], 2);
    b.close();
    together(&[&a], 1);
    let mut story = Vec::new();
    while let Some(event) = views.try_next() {
        if let ViewEvent::Changed { joined, left, .. } = event {
            story.extend(joined.iter().map(|m| format!("+{}", m.name)));
            story.extend(left.iter().map(|m| format!("-{}", m.name)));
        }
    }
    assert_eq!(story, ["+alice", "+bob", "-bob"]);
    assert_eq!(a.view().unwrap().change, Change::Left);
}

#[test]
fn a_rotation_reports_everybody_on_the_new_key() {
    let mut ca = Ca::new();
    let (alice, bob) = (ca.member("alice", &["both:#"]), ca.member("bob", &["both:#"]));
    let url = url("");
    let (a, b) = (open(&url, &alice), open(&url, &bob));
    together(&[&a, &b], 2);
    let report = a.rotate().wait().unwrap();
    assert_eq!(report.to.counter, report.from.counter + 1);
    assert_eq!((report.on_new_key, report.members), (2, 2));
}

#[test]
fn rule_a4_the_evicted_is_told_and_reads_nothing_more() {
    let mut ca = Ca::new();
    let names = ["alice", "bob", "carol"];
    let ids: Vec<_> = names.iter().map(|n| ca.member(n, &["both:#", "evict:#"])).collect();
    let url = url("");
    let sessions: Vec<Session> = ids.iter().map(|id| open(&url, id)).collect();
    let [a, b, c] = &sessions[..] else { panic!("three sessions") };
    together(&[a, b, c], 3);
    let (mut at_b, mut at_c) = (b.subscribe("#").wait().unwrap(), c.subscribe("#").wait().unwrap());
    let report = a.evict("carol", "lost laptop").wait().unwrap();
    assert_eq!((report.on_new_key, report.members), (2, 2));
    together(&[a, b], 2);
    a.publish("t", b"after").wait().unwrap();
    assert_eq!(next(&mut at_b).payload(), b"after");
    let error = at_c.wait().unwrap_err();
    assert_eq!(error.code(), Code::Excluded);
    assert!(error.message().contains("lost laptop"), "{error}");
    assert_eq!(c.publish("t", b"x").wait().unwrap_err().code(), Code::Excluded);
    assert_eq!(a.evict("nobody", "").wait().unwrap_err().code(), Code::BadValue);
}

#[test]
fn sixteen_members_agree_evict_one_and_say_how_many_are_on_the_new_key() {
    let mut ca = Ca::new();
    let names: Vec<String> = (0..16).map(|i| format!("robot{i}")).collect();
    let ids: Vec<_> = names.iter().map(|n| ca.member(n, &["both:#", "evict:#"])).collect();
    let url = url("");
    let begun = Instant::now();
    let mut sessions: Vec<Session> = ids.iter().map(|id| open(&url, id)).collect();
    together(&sessions.iter().collect::<Vec<_>>(), 16);
    println!("16 members agreed {:?} after the first start", begun.elapsed());
    let report = sessions[0].evict("robot15", "drill").wait().unwrap();
    println!("{}/{} on the new key after {:?}", report.on_new_key, report.members, report.elapsed);
    assert_eq!((report.on_new_key, report.members), (15, 15));
    sessions.pop();
    together(&sessions.iter().collect::<Vec<_>>(), 15);
    // Closing all at once is no storm.
    std::thread::scope(|scope| {
        for session in sessions.drain(..) {
            scope.spawn(move || session.close());
        }
    });
}

#[test]
fn rule_a6_a_certificate_has_one_live_instance() {
    let mut ca = Ca::new();
    let (alice, bob) = (ca.member("alice", &["both:#"]), ca.member("bob", &["both:#"]));
    let url = url("");
    let (first, b) = (open(&url, &alice), open(&url, &bob));
    together(&[&first, &b], 2);
    let second = open(&url, &alice);
    let deadline = Instant::now() + SOON;
    let (out, left_in) = loop {
        match (first.info().excluded, second.info().excluded) {
            (Some(why), None) => break (why, &second),
            (None, Some(why)) => break (why, &first),
            (Some(a), Some(b)) => panic!("both are out: {a:?} {b:?}"),
            (None, None) => assert!(Instant::now() < deadline, "both are in"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(out, sealcast_keys::Exclusion::Duplicate);
    together(&[left_in, &b], 2);
}

#[test]
fn two_groups_share_an_address_and_nothing_else() {
    let (mut ca, mut other) = (Ca::new(), Ca::seeded(8));
    let ours = [ca.member("alice", &["both:#"]), ca.member("bob", &["both:#"])];
    let theirs = [other.member("eve", &["both:#"]), other.member("mallory", &["both:#"])];
    let url = url("");
    let a: Vec<Session> = ours.iter().map(|id| open(&url, id)).collect();
    let b: Vec<Session> = theirs.iter().map(|id| open(&url, id)).collect();
    let mut subs: Vec<Subscription> = a.iter().chain(&b).map(|s| s.subscribe("#").wait().unwrap()).collect();
    together(&[&a[0], &a[1]], 2);
    together(&[&b[0], &b[1]], 2);
    a[0].publish("t", b"ours").wait().unwrap();
    b[0].publish("t", b"theirs").wait().unwrap();
    let bodies: Vec<Vec<u8>> = subs.iter_mut().map(|sub| next(sub).into_payload()).collect();
    assert_eq!(bodies, [&b"ours"[..], b"ours", b"theirs", b"theirs"]);
    std::thread::sleep(Duration::from_millis(50));
    assert!(subs.iter_mut().all(|sub| sub.try_next().unwrap().is_none()));
    let foreign = || a[0].stats().drops.of(sealcast_wire::Dropped::Foreign);
    assert!(foreign() > 0, "the others' agreement was heard");
    a[0].clone().close();
    assert!(foreign() > 0, "and is known after closing");
}

#[test]
fn a_message_that_may_linger_waits_for_company_and_no_longer() {
    let mut ca = Ca::new();
    let (alice, bob) = (ca.member("alice", &["both:#"]), ca.member("bob", &["both:#"]));
    let place = url("");
    let (a, b) = (open(&format!("{place}&linger=20ms"), &alice), open(&place, &bob));
    let mut at_b = b.subscribe("t").wait().unwrap();
    together(&[&a, &b], 2);
    let before = a.stats().sent_datagrams;
    for i in 0..10u8 {
        a.publish("t", [i]).wait().unwrap();
    }
    let got: Vec<u8> = (0..10).map(|_| next(&mut at_b).payload()[0]).collect();
    assert_eq!(got, (0..10).collect::<Vec<u8>>());
    let sent = a.stats().sent_datagrams - before;
    assert!(sent < 10, "ten messages in {sent} datagrams");
}
