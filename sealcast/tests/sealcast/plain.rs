//! Sessions without keys over loopback multicast: the way and the shell, apart from any key scheme.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::SOON;
use sealcast::{Code, Origin, Session, SlowReader};

fn url(more: &str) -> String {
    crate::common::url(&format!("&keys=plain{more}"))
}

fn open(url: &str) -> Session {
    sealcast::open(url).wait().expect("a plain session opens")
}

#[test]
fn a_message_reaches_others_and_oneself() {
    let url = url("");
    let (a, b) = (open(&url), open(&url));
    let mut at_a = a.subscribe("pose/+").wait().unwrap();
    let mut at_b = b.subscribe("#").wait().unwrap();
    a.publish("pose/robot7", b"hello").wait().unwrap();
    for sub in [&mut at_a, &mut at_b] {
        let message = sub.next_timeout(SOON).unwrap().expect("delivered");
        assert_eq!((message.topic(), message.payload()), ("pose/robot7", &b"hello"[..]));
        assert_eq!(message.origin(), Origin::Anonymous);
        assert_eq!(message.epoch(), None);
    }
    a.publish("other", b"x").wait().unwrap();
    assert_eq!(at_b.next_timeout(SOON).unwrap().expect("delivered").topic(), "other");
    assert!(at_a.try_next().unwrap().is_none(), "the pattern does not match");
    a.close();
    assert_eq!(at_a.try_next().unwrap_err().code(), Code::Closed);
}

/// Clones are the same member, and may ask what happened after one of them closed it.
#[test]
fn figures_and_the_log_outlive_closing() {
    let a = open(&url(""));
    a.publish("pose/robot7", b"hello").wait().unwrap();
    let (published, log) = (a.stats().published, a.log());
    a.clone().close();
    assert_eq!((published, a.stats().published), (1, 1));
    assert!(!log.is_empty() && a.log().starts_with(&log), "{:?}", a.log());
}

#[test]
fn own_messages_are_heard_whenever_one_is_subscribed_to_them() {
    let url = url("");
    let (a, b) = (open(&url), open(&url));
    let mut others = a.subscribe("b").wait().unwrap();
    let mut own_at_b = b.subscribe("a").wait().unwrap();
    a.publish("a", b"1").wait().unwrap();
    assert_eq!(own_at_b.next_timeout(SOON).unwrap().expect("delivered").payload(), b"1");
    let mut own = a.subscribe("a").wait().unwrap();
    a.publish("a", b"2").wait().unwrap();
    assert_eq!(own.next_timeout(SOON).unwrap().expect("subscribed by now").payload(), b"2");
    drop(own);
    a.publish("a", b"3").wait().unwrap();
    // A topic that is new, with a subscription that was there before.
    b.publish("b", b"4").wait().unwrap();
    assert_eq!(others.next_timeout(SOON).unwrap().expect("others are heard all the time").payload(), b"4");
    let mut all = a.subscribe("#").wait().unwrap();
    a.publish("c", b"5").wait().unwrap();
    assert_eq!(all.next_timeout(SOON).unwrap().expect("a pattern takes it").payload(), b"5");
}

#[test]
fn every_size_arrives_whole() {
    let url = url("&recv_buf_size=4194304");
    let (a, b) = (open(&url), open(&url));
    let mut sub = b.subscribe("#").wait().unwrap();
    for size in [0, 1, 1471, 1472, 65_480, 65_499, 65_500, 200_000, 1_000_000] {
        let body: Vec<u8> = (0..size).map(|i| (i * 7) as u8).collect();
        a.publish("size", &body).wait().unwrap();
        let message = sub.next_timeout(SOON).unwrap().unwrap_or_else(|| panic!("{size} bytes did not arrive"));
        assert!(message.payload() == body, "{size} bytes differ");
    }
}

#[test]
fn a_stream_arrives_in_order_and_without_loss() {
    let url = url("&recv_buf_size=4194304");
    let (a, b) = (open(&url), open(&url));
    let mut sub = b.subscribe("stream").capacity(20_000).wait().unwrap();
    let publisher = thread::spawn(move || {
        for i in 0..10_000u32 {
            a.publish("stream", i.to_be_bytes()).wait().unwrap();
            if i % 100 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        a.flush().wait().unwrap();
        a
    });
    for i in 0..10_000u32 {
        let message = sub.next_timeout(SOON).unwrap().unwrap_or_else(|| panic!("number {i} is missing"));
        assert_eq!(message.payload(), i.to_be_bytes());
    }
    publisher.join().unwrap();
}

#[test]
fn readers_and_publishers_of_many_threads_get_everything() {
    let url = url("&recv_buf_size=4194304");
    let (a, b) = (open(&url), open(&url));
    let subs: Vec<_> = (0..3).map(|i| b.subscribe(&format!("t/{i}")).capacity(1000).wait().unwrap()).collect();
    let publishers: Vec<_> = (0..3)
        .map(|i| {
            let a = a.clone();
            thread::spawn(move || {
                for n in 0..200u32 {
                    a.publish(&format!("t/{i}"), n.to_be_bytes()).wait().unwrap();
                    thread::sleep(Duration::from_micros(200));
                }
            })
        })
        .collect();
    let readers: Vec<_> = subs
        .into_iter()
        .map(|mut sub| {
            thread::spawn(move || {
                for n in 0..200u32 {
                    let message = sub.next_timeout(SOON).unwrap().unwrap_or_else(|| panic!("number {n} is missing"));
                    assert_eq!(message.payload(), n.to_be_bytes());
                }
            })
        })
        .collect();
    publishers.into_iter().chain(readers).for_each(|t| t.join().unwrap());
}

#[test]
fn each_policy_for_slow_readers_does_what_its_name_says() {
    let url = url("");
    let (a, b) = (open(&url), open(&url));
    let mut all = b.subscribe("n").wait().unwrap();
    let mut oldest = b.subscribe("n").capacity(2).when_slow(SlowReader::DropOldest).wait().unwrap();
    let mut newest = b.subscribe("n").capacity(2).when_slow(SlowReader::DropNewest).wait().unwrap();
    let mut block = b.subscribe("n").capacity(2).when_slow(SlowReader::Block).wait().unwrap();
    for i in 0..6u8 {
        a.publish("n", [i]).wait().unwrap();
    }
    a.flush().wait().unwrap();
    let read = |sub: &mut sealcast::Subscription, n: usize| -> Vec<u8> {
        (0..n).map(|_| sub.next_timeout(SOON).unwrap().expect("delivered").payload()[0]).collect()
    };
    assert_eq!(read(&mut block, 6), [0, 1, 2, 3, 4, 5]);
    assert_eq!(read(&mut all, 6), [0, 1, 2, 3, 4, 5]);
    assert_eq!(read(&mut oldest, 2), [4, 5]);
    assert_eq!(read(&mut newest, 2), [0, 1]);
    assert_eq!((all.missed(), oldest.missed(), newest.missed(), block.missed()), (0, 4, 4, 0));
}

#[test]
fn rule_g7_waiting_ends_in_time_and_closing_ends_waiting() {
    let url = url("");
    let a = open(&url);
    let mut sub = a.subscribe("#").wait().unwrap();
    let begun = Instant::now();
    assert!(sub.next_timeout(Duration::from_millis(30)).unwrap().is_none());
    assert!(begun.elapsed() >= Duration::from_millis(30));
    let waiting = thread::spawn(move || sub.wait().unwrap_err().code());
    thread::sleep(Duration::from_millis(20));
    a.close();
    assert_eq!(waiting.join().unwrap(), Code::Closed);
}

#[test]
fn lcm_regular_expressions_and_two_groups_in_one_process() {
    let (one, two) = (url(""), url(""));
    let (a, b) = (open(&one), open(&two));
    let mut at_a = a.subscribe("POSE_.*").regex().wait().unwrap();
    let mut at_b = b.subscribe("#").wait().unwrap();
    a.publish("POSE_1", b"1").wait().unwrap();
    b.publish("POSE_2", b"2").wait().unwrap();
    assert_eq!(at_a.next_timeout(SOON).unwrap().expect("delivered").payload(), b"1");
    assert_eq!(at_b.next_timeout(SOON).unwrap().expect("delivered").payload(), b"2");
    assert!(at_a.try_next().unwrap().is_none());
    let error = a.subscribe("(").regex().wait().unwrap_err();
    assert_eq!(error.code(), Code::BadValue);
}

#[test]
fn a_task_on_any_runtime_is_woken() {
    use std::pin::pin;

    let url = url("");
    crate::common::block_on(async {
        use futures_core::Stream;
        let a = sealcast::open(&url).await.unwrap();
        let mut sub = a.subscribe("t").await.unwrap();
        let published = a.publish("t", b"x").await.unwrap();
        assert_eq!(published.number, Some(0), "LCM counts from 0");
        let mut sub = pin!(&mut sub);
        let message = std::future::poll_fn(|cx| sub.as_mut().poll_next(cx)).await.unwrap().unwrap();
        assert_eq!(message.payload(), b"x");
    });
}

#[test]
fn a_sealed_group_without_identity_fails_with_a_hint() {
    let error = sealcast::open("udpm://239.255.76.67:7667?ttl=0").wait().unwrap_err();
    assert_eq!(error.code(), Code::NoIdentity);
    assert_eq!(error.remedy(), Some(&sealcast::Remedy::MakeIdentity));
}
