//! `order=total` over loopback multicast: what is published fifo is neither lost nor out of order, and acknowledged.

use std::time::{Duration, Instant};

use crate::common::{Ca, SOON, block_on, open, url};
use sealcast::{Code, Guarantee, Origin, Session, SlowReader, TryPublishError};

const ORDER: &str = "&order=total";

/// Waits until all of these sessions are in one view of that many members.
fn together(sessions: &[&Session], members: usize) {
    let deadline = Instant::now() + SOON;
    let is_one = || {
        let views: Vec<_> = sessions.iter().filter_map(|s| s.view()).collect();
        views.len() == sessions.len() && views.iter().all(|v| v.members.len() == members && v.epoch == views[0].epoch)
    };
    while !is_one() {
        assert!(Instant::now() < deadline, "not together");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn rule_b2_fifo_comes_in_order_and_is_acknowledged_once_all_have_it() {
    let mut ca = Ca::new();
    let (place, names) = (url(ORDER), ["alice", "bob", "carol"]);
    let sessions = names.map(|name| open(&place, &ca.member(name, &["both:#"])));
    let [a, b, c] = &sessions;
    let mut subs = [a, b, c].map(|s| s.subscribe("log").capacity(100_000).wait().expect("subscribed"));
    together(&[a, b, c], 3);
    let one = a.publish("log", b"the first").fifo().wait().expect("acknowledged");
    assert!(one.number.is_some(), "receivers see this number");
    let wanted: Vec<Vec<u8>> =
        (0..3_000_u32).map(|n| [&n.to_be_bytes()[..], &vec![7; n as usize % 2_000]].concat()).collect();
    // As fast as there is room, in the midst of best effort.
    let mut tickets = Vec::new();
    for body in &wanted {
        tickets.push(a.publish("log", body).fifo().ticket().expect("taken"));
        b.publish("noise", body).wait().expect("sent");
    }
    let mut before = one.number;
    for ticket in tickets {
        let published = ticket.wait().expect("acknowledged");
        assert!(published.number > before);
        before = published.number;
    }
    for sub in &mut subs {
        let mut got = Vec::new();
        while got.len() < wanted.len() + 1 {
            let message = sub.next_timeout(SOON).expect("open").expect("delivered");
            assert!(matches!(message.origin(), Origin::Claimed(m) if &*m.name == "alice"));
            got.push(message.payload().to_vec());
        }
        assert!(got[0] == b"the first" && got[1..] == wanted);
        assert!(sub.next_timeout(Duration::from_millis(20)).expect("open").is_none(), "and nothing twice");
    }
    assert_eq!(a.flush().wait(), Ok(()));
    assert_eq!(a.stats().published, 3_001);
}

#[test]
fn it_is_awaited_too_and_nobody_else_has_to_be_there() {
    let mut ca = Ca::new();
    let session = open(&url(ORDER), &ca.member("alice", &["both:#"]));
    together(&[&session], 1);
    let published = block_on(async { session.publish("t", b"alone").fifo().await }).expect("acknowledged");
    assert!(published.number.is_some());
    assert_eq!(session.close(), 0, "nothing is open");
}

#[test]
fn a_reader_that_is_slow_makes_the_sender_wait_and_loses_nothing() {
    let mut ca = Ca::new();
    let (alice, bob) = (ca.member("alice", &["both:#"]), ca.member("bob", &["both:#"]));
    let place = url(&format!("{ORDER}&backlog=256KiB&recv_buf_size=64KiB"));
    let (a, b) = (open(&place, &alice), open(&place, &bob));
    let mut sub = b.subscribe("log").capacity(16).when_slow(SlowReader::Block).wait().expect("subscribed");
    together(&[&a, &b], 2);
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        while got.len() < 2_000 {
            let Some(message) = sub.next_timeout(SOON).expect("open") else { break };
            got.push(u32::from_be_bytes(message.payload()[..4].try_into().expect("four bytes")));
            if got.len().is_multiple_of(100) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        got
    });
    let body = |n: u32| [&n.to_be_bytes()[..], &[0; 1000]].concat();
    let tickets: Vec<_> =
        (0..2_000).map(|n| a.publish("log", body(n)).fifo().ticket().expect("there is room in time")).collect();
    tickets.into_iter().for_each(|ticket| _ = ticket.wait().expect("acknowledged"));
    assert!(reader.join().expect("no panic").into_iter().eq(0..2_000));
}

/// A reader that takes nothing for longer than `detect=`: it stays in the group, and its senders wait. What was given to the
/// network is in doubt then, what found no room was not sent, and nobody waits longer than it wants to.
#[test]
fn rule_b2_every_ticket_resolves_within_the_time_that_its_publisher_sets() {
    let mut ca = Ca::new();
    let (alice, bob) = (ca.member("alice", &["both:#"]), ca.member("bob", &["both:#"]));
    let place = url(&format!("{ORDER}&backlog=64KiB&recv_buf_size=64KiB"));
    let (a, b) = (open(&place, &alice), open(&place, &bob));
    let mut sub = b.subscribe("log").capacity(4).when_slow(SlowReader::Block).wait().expect("subscribed");
    together(&[&a, &b], 2);
    let time = Duration::from_millis(400);
    let mut tickets = Vec::new();
    let full = loop {
        match a.publish("log", [tickets.len() as u8; 1_000]).fifo().within(time).ticket() {
            Ok(ticket) => tickets.push(ticket),
            Err(why) => break why,
        }
        assert!(tickets.len() < 100_000, "a reader that takes nothing lets its sender go on");
    };
    assert_eq!(full.code(), Code::TimedOut);
    assert!(full.to_string().contains("there is no room"), "{full}");
    let mut last = tickets.pop().expect("some were taken");
    assert_eq!(last.try_wait().map(|it| it.map_err(|why| why.code())), Some(Err(Code::InDoubt)), "its time is over");
    assert_eq!(last.within(time).wait().map_err(|why| why.code()), Err(Code::InDoubt));
    let doubtful = a.publish("log", [0; 60_000]).fifo().within(time);
    assert_eq!(block_on(async { doubtful.await }).map_err(|why| why.code()), Err(Code::TimedOut));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(a.view().map(|it| it.members.len()), Some(2), "who waits for its reader lives");
    // All that comes, once it reads.
    for n in 0..=tickets.len() {
        let message = sub.next_timeout(SOON).expect("open").expect("delivered");
        assert_eq!(message.payload(), [n as u8; 1_000]);
    }
}

/// Who waits for room that a reader does not make is told so, within the time that the URL says.
#[test]
fn a_full_backlog_is_told_to_whoever_waits_for_room() {
    let mut ca = Ca::new();
    let (alice, bob) = (ca.member("alice", &["both:#"]), ca.member("bob", &["both:#"]));
    let place = url(&format!("{ORDER}&backlog=64KiB&recv_buf_size=64KiB&wait=500ms"));
    let (a, b) = (open(&place, &alice), open(&place, &bob));
    let mut sub = b.subscribe("log").capacity(4).when_slow(SlowReader::Block).wait().expect("subscribed");
    together(&[&a, &b], 2);
    let mut tickets = Vec::new();
    let (began, why) = loop {
        let began = Instant::now();
        match a.publish("log", [7; 1000]).fifo().ticket() {
            Ok(ticket) if tickets.len() < 10_000 => tickets.push(ticket),
            taken => break (began, taken.map(drop).expect_err("there is no room for so many")),
        }
    };
    assert_eq!(why.code(), Code::TimedOut, "{why}");
    assert!(why.message().contains("have not acknowledged") && why.message().contains("no room"), "{why}");
    assert!(why.hint().is_some_and(|it| it.contains("slow=expel")), "{why:?}");
    assert!(began.elapsed() >= Duration::from_millis(500));
    // The reader goes on, and so does the sender.
    for _ in &tickets {
        sub.next_timeout(SOON).expect("open").expect("delivered");
    }
    a.publish("log", b"there is room again").fifo().wait().expect("acknowledged");
}

/// A control loop that publishes faster than a reader acknowledges is told so at once, and what was taken arrives.
#[test]
fn rule_b2_a_control_loop_with_a_guarantee_never_waits_and_hears_what_became_of_it() {
    let mut ca = Ca::new();
    let (alice, bob) = (ca.member("alice", &["both:#"]), ca.member("bob", &["both:log"]));
    let place = url(&format!("{ORDER}&backlog=64KiB&recv_buf_size=64KiB"));
    let a = open(&place, &alice);
    let early = a.try_publish_as("log", b"no key yet", Guarantee::Fifo);
    assert_eq!(early.map(drop), Err(TryPublishError::NotReady));
    let b = open(&place, &bob);
    let mut sub = b.subscribe("log").capacity(4).when_slow(SlowReader::Block).wait().expect("subscribed");
    together(&[&a, &b], 2);
    let denied = b.try_publish_as("elsewhere", b"no right", Guarantee::Ordered);
    assert!(matches!(denied, Err(TryPublishError::Refused(why)) if why.code() == Code::DeniedPublish));
    for guarantee in [Guarantee::Fifo, Guarantee::Ordered, Guarantee::Safe] {
        a.publish("log", b"somebody orders").safe().wait().expect("acknowledged");
        sub.next_timeout(SOON).expect("open").expect("delivered");
        let mut tickets = Vec::new();
        // The reader reads nothing until there is no room: whoever waited for it here would wait in vain.
        let why = loop {
            match a.try_publish_as("log", &vec![7; 1000 + tickets.len() % 7], guarantee) {
                Ok(ticket) if tickets.len() < 100_000 => tickets.push(ticket),
                taken => break taken.map(drop),
            }
        };
        assert_eq!(why, Err(TryPublishError::Full), "{guarantee:?}");
        assert!(tickets.last_mut().is_some_and(|last| last.try_wait().is_none()), "the last one is open");
        for n in 0..tickets.len() {
            let message = sub.next_timeout(SOON).expect("open").expect("delivered");
            assert_eq!(message.payload().len(), 1000 + n % 7, "{guarantee:?}");
        }
        for ticket in tickets {
            assert!(ticket.wait().expect("acknowledged").number.is_some());
        }
    }
    a.leave().wait().expect("left");
    let left = a.try_publish_as("log", b"after the end", Guarantee::Fifo).map(drop).unwrap_err();
    assert!(matches!(left, TryPublishError::Refused(why) if why.code() == Code::Closed), "not 'later'");
}

#[test]
fn rule_b5_keys_that_change_lose_nothing_and_double_nothing() {
    let mut ca = Ca::new();
    let place = url(ORDER);
    let sessions = ["alice", "bob"].map(|name| open(&place, &ca.member(name, &["both:#"])));
    let [a, b] = &sessions;
    let mut sub = b.subscribe("log").capacity(100_000).wait().expect("subscribed");
    together(&[a, b], 2);
    let mut tickets = Vec::new();
    for n in 0..2_000_u32 {
        tickets.push(a.publish("log", n.to_be_bytes()).fifo().ticket().expect("taken"));
        if n % 500 == 250 {
            b.rotate().wait().expect("a new key");
        }
    }
    // A third one joins in the midst of it.
    let c = open(&place, &ca.member("carol", &["both:#"]));
    for n in 2_000..4_000_u32 {
        tickets.push(a.publish("log", n.to_be_bytes()).fifo().ticket().expect("taken"));
    }
    tickets.into_iter().for_each(|ticket| _ = ticket.wait().expect("acknowledged"));
    for n in 0..4_000_u32 {
        let message = sub.next_timeout(SOON).expect("open").expect("delivered");
        assert_eq!(message.payload(), n.to_be_bytes());
    }
    drop(c);
}

#[test]
fn who_dies_holds_nobody_up_for_longer_than_detect() {
    let mut ca = Ca::new();
    let place = url(&format!("{ORDER}&detect=500ms"));
    let (a, b) = (open(&place, &ca.member("alice", &["both:#"])), open(&place, &ca.member("bob", &["both:#"])));
    together(&[&a, &b], 2);
    a.publish("t", b"both have it").fifo().wait().expect("acknowledged");
    let mut others = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| drop(b));
        for n in 0..50_u8 {
            a.publish("t", [n]).fifo().wait().expect("acknowledged by those who are left");
            others += 1;
        }
    });
    assert_eq!(others, 50);
}

/// All publish at once, and the member that orders dies in the midst of it: those who are left deliver one order, each in the
/// order of publishing, with all that was acknowledged in it.
#[test]
fn rule_b3_one_order_goes_on_without_the_member_that_made_it() {
    let mut ca = Ca::new();
    let place = url(&format!("{ORDER}&detect=500ms"));
    let mut sessions: Vec<Session> =
        ["alice", "bob", "carol"].iter().map(|name| open(&place, &ca.member(name, &["both:#"]))).collect();
    together(&sessions.iter().collect::<Vec<_>>(), 3);
    let slot = |it: &Session| it.view().expect("there is one").me;
    let at = (0..3).min_by_key(|at| slot(&sessions[*at])).expect("there are three");
    let sequencer = sessions.remove(at);
    let subs: Vec<_> =
        sessions.iter().map(|it| it.subscribe("log").capacity(100_000).wait().expect("subscribed")).collect();
    let publish = |session: &Session, by: u8, n: u8| {
        let publish = session.publish("log", [by, n]);
        let publish = if n % 10 == 9 { publish.safe() } else { publish.ordered() };
        publish.wait().map(|it| it.number.expect("it has a place"))
    };
    let mut acknowledged: Vec<(u64, [u8; 2])> = Vec::new();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0_u8..)
            .zip(&sessions)
            .map(|(by, session)| {
                scope.spawn(move || {
                    let of = |n| publish(session, by, n).ok().map(|at| (at, [by, n]));
                    (0..200).filter_map(of).collect::<Vec<_>>()
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(30));
        scope.spawn(move || drop(sequencer));
        all.into_iter().for_each(|it| acknowledged.extend(it.join().expect("no panic")));
    });
    acknowledged.sort_unstable();
    assert!(acknowledged.len() > 100, "{} of 400 are acknowledged", acknowledged.len());
    let mut orders = subs.into_iter().map(|mut sub| {
        let mut got = Vec::new();
        while let Some(message) = sub.next_timeout(Duration::from_millis(500)).expect("open") {
            got.push((message.sequence(), <[u8; 2]>::try_from(message.payload()).expect("two bytes")));
        }
        got
    });
    let (one, other) = (orders.next().expect("two"), orders.next().expect("two"));
    assert!(one == other, "{} and {}", one.len(), other.len());
    assert!(one.is_sorted_by_key(|(at, _)| *at) && acknowledged.iter().all(|it| one.contains(it)));
    for by in 0..2 {
        assert!(one.iter().filter(|(_, body)| body[0] == by).is_sorted_by_key(|(_, body)| body[1]));
    }
}

/// Each topic is closed to one of three members, so that one of them is to whoever is the sequencer.
#[test]
fn rule_b8_who_orders_need_not_read() {
    let (mut ca, place) = (Ca::new(), url(ORDER));
    let topics = ["ab", "bc", "ca"];
    let rights = [["both:ab", "both:ca"], ["both:ab", "both:bc"], ["both:bc", "both:ca"]];
    let sessions = [("alice", 0), ("bob", 1), ("carol", 2)].map(|(name, n)| open(&place, &ca.member(name, &rights[n])));
    // By topic: who has it.
    let of = [[0, 1], [1, 2], [2, 0]];
    let mut subs = [0, 1, 2].map(|topic: usize| {
        of[topic].map(|n| sessions[n].subscribe(topics[topic]).capacity(1_000).wait().expect("subscribed"))
    });
    together(&sessions.each_ref(), 3);
    let mut tickets = Vec::new();
    for n in 0..100_u8 {
        for topic in 0..3 {
            let body = [n; 700];
            let sender = &sessions[of[topic][usize::from(n) % 2]];
            let publish = sender.publish(topics[topic], body);
            let publish = if n % 10 == 9 { publish.safe() } else { publish.ordered() };
            tickets.push(publish.ticket().expect("taken"));
        }
    }
    tickets.into_iter().for_each(|ticket| assert!(ticket.wait().expect("acknowledged").number.is_some()));
    for of_topic in &mut subs {
        let got = of_topic.each_mut().map(|sub| {
            let next = |_| sub.next_timeout(SOON).expect("open").expect("delivered").payload()[0];
            (0..100).map(next).collect::<Vec<_>>()
        });
        assert_eq!(got[0], got[1], "one order");
        let mut all = got[0].clone();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..100));
    }
}

/// Nothing is sealed, and nobody has a certificate; views, order and acknowledgements are those of a sealed group.
#[test]
fn rule_b4_a_plain_group_orders_in_clear() {
    let place = url("&order=total&keys=plain");
    let opened = |name: &str| sealcast::open(&place).identity(name).wait().expect("names are enough");
    let sessions = ["alice", "bob", "carol"].map(opened);
    let [a, b, c] = &sessions;
    let mut subs = [a, b, c].map(|s| s.subscribe("#").capacity(10_000).wait().expect("subscribed"));
    together(&[a, b, c], 3);
    a.publish("t", b"somebody orders").safe().wait().expect("all hold it");
    let tickets: Vec<_> = (0..300_u32)
        .map(|n| sessions[n as usize % 3].publish("t", n.to_be_bytes()).ordered().ticket().expect("taken"))
        .collect();
    tickets.into_iter().for_each(|it| assert!(it.wait().expect("ordered").number.is_some()));
    a.publish("t", b"in turn").fifo().wait().expect("acknowledged");
    let orders = subs.each_mut().map(|sub| {
        let mut next = || sub.next_timeout(SOON).expect("open").expect("delivered");
        let all: Vec<_> = (0..302).map(|_| next()).collect();
        assert!(all.iter().all(|it| matches!(it.origin(), Origin::Claimed(_))), "nothing is proved");
        let ordered = all.iter().filter(|it| it.payload().len() == 4);
        ordered.map(|it| it.payload().to_vec()).collect::<Vec<_>>()
    });
    assert!(orders[0].len() == 300 && orders.iter().all(|it| *it == orders[0]));
    let member = a.view().expect("a view").members.iter().map(|it| it.name.to_string()).collect::<Vec<_>>();
    assert!(["alice", "bob", "carol"].iter().all(|it| member.iter().any(|name| name == it)));
    // Who has no name takes part, too; who may evict is nobody.
    let anonymous = sealcast::open(&place).wait().expect("no name either");
    together(&[a, b, c, &anonymous], 4);
    assert_eq!(a.evict("bob", "").wait().unwrap_err().code(), Code::DeniedEvict);
}

#[test]
fn what_multicast_does_not_give_is_refused() {
    let mut ca = Ca::new();
    let alice = ca.member("alice", &["both:#"]);
    let best_effort = open(&url(""), &alice);
    together(&[&best_effort], 1);
    assert_eq!(best_effort.publish("t", b"x").fifo().wait().unwrap_err().code(), Code::BadPair);
    let reliable = open(&url(ORDER), &ca.member("bob", &["both:#"]));
    together(&[&reliable], 1);
    let alone = reliable.publish("t", b"x").ordered().wait().unwrap_err();
    assert_eq!(alone.code(), Code::NotPrimary, "whoever is alone is no primary component: {alone}");
    assert_eq!(best_effort.publish("t", b"x").safe().wait().unwrap_err().code(), Code::BadPair);
    for (wrong, says) in [
        ("&order=some", "total or best-effort"),
        ("&backlog=16MiB", "order=total"),
        ("&order=total&backlog=1KiB", "64KiB"),
        ("&fec=off", "order=total"),
        ("&order=total&fec=on", "auto or off"),
        ("&slow=expel", "order=total"),
        ("&order=total&slow=drop", "wait or expel"),
    ] {
        let error = sealcast::open(&url(wrong)).identity(alice.clone()).wait().unwrap_err();
        assert!(error.message().contains(says), "{wrong}: {error}");
    }
}
