//! One program over every way and key scheme, told by its URL alone; and a group that meets at brokers who read nothing.

use std::time::{Duration, Instant};

use crate::common::relay::Relay;
use crate::common::{Home, Running, brokers_programs};
use rustix::process::Signal;
use sealcast::code::Code;
use sealcast::group::Origin;
use sealcast::url::Scheme;
use sealcast::url::pairs::{Pair, Transport};
use sealcast::{Session, SlowReader, Subscription};

/// A ward with an authority that the brokers know, its members, and four brokers running.
struct Ward {
    /// Before the folder in which they write: fields are dropped in this order.
    brokers: Vec<Running>,
    home: Home,
}

impl Ward {
    fn open(name: &str) -> Ward {
        brokers_programs();
        let home = Home::new(name);
        home.good(&["ca", "init", "ward3"]);
        home.good(&["ca", "issue", "alice", "--evict", "#"]);
        for member in ["bob", "carol"] {
            home.good(&["ca", "issue", member]);
        }
        home.good(&["ca", "issue", "dave", "--group", "elsewhere"]);
        let init = ["--id", "alice", "brokers", "init", "-n", "4", "--name", "ward", "--dealer", "--port", "0", "ward"];
        home.good(&init);
        let run = |n: usize| home.start(&["brokers", "run", &format!("ward/broker-{n}")]);
        let brokers = (0..4).map(run).collect();
        Ward { brokers, home }
    }

    fn url(&self, keys: &str) -> String {
        let file = self.home.path().join("ward/cluster.toml");
        format!("quorum:{}?keys={keys}&group=ward3&wait=100s", file.display())
    }

    fn session(&self, url: &str, name: &str) -> Session {
        let home = sealcast::config::Home::at(&self.home.path().join("home"));
        let session = sealcast::open(url).home(home).identity(name).wait();
        session.unwrap_or_else(|e| panic!("{url} as {name}: {e} ({:?})", e.hint()))
    }
}

/// A program that knows nothing of ways and keys: what bob read of what alice said.
fn program(ward: &Ward, url: &str) -> (Vec<String>, Origin) {
    let (alice, bob) = (ward.session(url, "alice"), ward.session(url, "bob"));
    alice.ready().wait().unwrap_or_else(|e| panic!("{url}: {e}"));
    bob.ready().wait().unwrap_or_else(|e| panic!("{url}: {e}"));
    let mut hello = bob.subscribe("hello/+").wait().expect("a pattern that may be read");
    let mut poses = bob.subscribe("pose/#").wait().expect("a pattern that may be read");
    let mut newest = bob.subscribe("pose/+").capacity(1).wait().expect("a pattern that may be read");
    meet_under(url, &alice, "hello/you", &mut hello);
    for n in 0..10 {
        alice.publish("pose/robot7", format!("at {n}")).wait().unwrap_or_else(|e| panic!("{url}: {e}"));
    }
    alice.try_publish("elsewhere", b"not for bob").expect("there is room");
    alice.publish("pose/robot7/arm", "up").wait().expect("it is published");
    let read: Vec<_> = (0..11).map(|_| next(url, &mut poses)).collect();
    let origin = read[0].origin();
    assert!(read.iter().all(|it| it.origin() == origin), "{url}");
    assert_eq!(next(url, &mut newest).payload(), b"at 9", "{url}: the last one wins");
    assert_eq!(newest.missed(), 9, "{url}");
    let texts = read.iter().map(|it| format!("{} {}", it.topic(), String::from_utf8_lossy(it.payload()))).collect();
    alice.close();
    bob.close();
    (texts, origin)
}

/// Until one is heard by the other, who has then heard all.
fn meet_under(url: &str, one: &Session, topic: &str, other: &mut Subscription) {
    let begun = Instant::now();
    loop {
        one.publish(topic, "hello").wait().unwrap_or_else(|e| panic!("{url}: {e}"));
        let wait = Duration::from_millis(300);
        if other.next_timeout(wait).expect("the session goes on").is_some() {
            while other.next_timeout(wait).expect("the session goes on").is_some() {}
            return;
        }
        assert!(begun.elapsed() < SOON, "{url}: nobody hears");
    }
}

fn next(url: &str, subscription: &mut Subscription) -> sealcast::Message {
    subscription.next_timeout(SOON).expect("the session goes on").unwrap_or_else(|| panic!("{url}: nothing came"))
}

#[test]
fn a_program_runs_unchanged_over_every_allowed_pair() {
    let ward = Ward::open("every-way");
    let relay = Relay::start(&ward.home);
    let wanted: Vec<String> =
        (0..10).map(|n| format!("pose/robot7 at {n}")).chain(["pose/robot7/arm up".to_owned()]).collect();
    // Whose keys come from a centre is a principal of it: kdc/tests/groups.rs.
    for pair in Pair::all().filter(|pair| pair.is_allowed() && pair.keys != Scheme::Center) {
        let keys = pair.keys.name();
        let url = match pair.transport {
            Transport::Memory => format!("mem:ward-{keys}?keys={keys}&group=ward3"),
            Transport::OrderedMemory => format!("mem:order-{keys}?keys={keys}&group=ward3&order=total"),
            Transport::Multicast | Transport::OrderedMulticast => {
                let order = if pair.transport == Transport::OrderedMulticast { "&order=total" } else { "" };
                format!("udpm://239.255.76.67:{}?ttl=0&keys={keys}&group=ward3{order}", crate::common::free_port())
            }
            Transport::Quorum => ward.url(keys),
            Transport::Relay => relay.url(keys, "ward3"),
        };
        let (read, origin) = program(&ward, &url);
        assert_eq!(read, wanted, "{url}");
        match (origin, pair.keys, pair.transport) {
            // Of a plain group with an order the name is what its member gives.
            (Origin::Claimed(member), Scheme::Contributory, _)
            | (Origin::Claimed(member), Scheme::Plain, Transport::OrderedMulticast)
            | (Origin::Signed(member), Scheme::Mls, _) => {
                assert_eq!(&*member.name, "alice", "{url}");
            }
            (Origin::Client(_), Scheme::Plain | Scheme::Threshold, Transport::Quorum) => {}
            (
                Origin::Anonymous,
                Scheme::Plain,
                Transport::Memory | Transport::OrderedMemory | Transport::Multicast | Transport::Relay,
            ) => {}
            (other, ..) => panic!("{url}: {other:?}"),
        }
    }
}

#[test]
fn members_agree_on_keys_through_brokers_who_read_nothing() {
    let mut ward = Ward::open("contributory");
    let url = ward.url("contributory");
    // Somebody whom the brokers know, and who reads all that they let him.
    let dave = ward.session(&ward.url("plain"), "dave");
    let mut seen = dave.subscribe("#").capacity(100_000).wait().expect("the brokers let him");
    let outsider = sealcast::open(&url).home(sealcast::config::Home::at(&ward.home.path().join("home")));
    let denied = outsider.identity("dave").wait().expect_err("he has no right in the group");
    assert_eq!(denied.code(), Code::Denied);

    let names = ["alice", "bob", "carol"];
    let sessions: Vec<Session> = names.iter().map(|name| ward.session(&url, name)).collect();
    let begun = Instant::now();
    while !sessions.iter().all(|it| it.view().is_some_and(|view| view.members.len() == 3)) {
        assert!(begun.elapsed() < SOON, "three members: {:?}", sessions.iter().map(Session::view).collect::<Vec<_>>());
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut subscriptions: Vec<Subscription> =
        sessions.iter().map(|it| it.subscribe("vitals/+").wait().expect("they may")).collect();
    for n in 0..8 {
        for (session, name) in sessions.iter().zip(names) {
            session.publish("vitals/pulse", format!("secret {name} {n}")).wait().expect("it is published");
        }
        if n == 3 {
            // One broker dies meanwhile.
            drop(ward.brokers.remove(3));
        }
    }
    let read: Vec<Vec<(u64, String)>> = subscriptions
        .iter_mut()
        .map(|it| (0..24).map(|_| next(&url, it)).map(|m| (m.sequence(), text(m.payload()))).collect())
        .collect();
    assert!(read[0].is_sorted_by(|a, b| a.0 < b.0), "{:?}", read[0]);
    assert_eq!((&read[1], &read[2]), (&read[0], &read[0]), "all read all in one order");
    for name in names {
        let of: Vec<&String> = read[0].iter().map(|(_, text)| text).filter(|text| text.contains(name)).collect();
        let wanted: Vec<String> = (0..8).map(|n| format!("secret {name} {n}")).collect();
        assert_eq!(of, wanted.iter().collect::<Vec<_>>());
    }

    let report = sessions[0].evict("carol", "lost laptop").wait().expect("alice may");
    assert!(report.to.counter > report.from.counter);
    let ordered = sessions[0].publish("vitals/pulse", "secret after").ordered().wait().expect("it has its place");
    assert!(ordered.number.is_some());
    assert_eq!(text(next(&url, &mut subscriptions[1]).payload()), "secret after");
    let after = std::iter::from_fn(|| subscriptions[2].next_timeout(Duration::from_secs(1)).ok().flatten());
    assert_eq!(after.count(), 0, "the evicted reads nothing");
    assert!(sessions[2].publish("vitals/pulse", "still here").wait().is_err());

    let brokers = sessions[0].info().brokers.expect("it goes through brokers");
    assert_eq!((brokers.name.as_str(), brokers.brokers), ("ward", 4));
    assert!(brokers.order_status.is_some_and(|it| it.height > 0));
    // The commands see the running session, and meet it as members.
    let shown = ward.home.good(&["--url", &url, "--id", "alice", "group", "show"]);
    assert!(shown.contains("contributory") && shown.contains("alice") && shown.contains("bob"), "{shown}");
    let mut watched = sessions[1].subscribe("said/#").wait().expect("bob may");
    ward.home.good(&["--url", &url, "--id", "alice", "pub", "said/once", "by hand"]);
    assert_eq!(text(next(&url, &mut watched).payload()), "by hand");

    // And as members of their own.
    sessions.into_iter().for_each(|it| _ = it.close());
    let mut sub = ward.home.start(&["--url", &url, "--id", "bob", "sub", "said/#", "-C", "1", "-W", "100s", "-v"]);
    sub.line_within("epoch", SOON).expect("a group of its own, to begin with");
    ward.home.good(&["--url", &url, "--id", "alice", "pub", "said/twice", "by hand too"]);
    let (exit, said) = sub.end();
    assert!(exit == 0 && said.contains("from alice") && said.contains("by hand too"), "{said}");
    let refused = ward.home.run(&["--url", &url, "--id", "alice", "pub", "said/once", "x", "--allow", "ward3:a = b"]);
    assert!(refused.exit != 0 && refused.stderr.contains("keys=contributory"), "{}", refused.stderr);
    let bench = ward.home.run(&["--url", &url, "bench", "latency"]);
    assert!(bench.exit != 0 && bench.stderr.contains("bench brokers"), "{}", bench.stderr);

    let mut bytes = Vec::new();
    while let Some(message) = seen.next_timeout(Duration::from_millis(300)).expect("dave goes on") {
        assert!(message.topic().starts_with("group/ward3/"), "{}", message.topic());
        bytes.extend(message.into_payload());
    }
    assert!(bytes.len() > 1000, "brokers have what members sealed");
    for secret in ["secret", "vitals", "said/", "by hand"] {
        assert!(!bytes.windows(secret.len()).any(|it| it == secret.as_bytes()), "'{secret}' in clear");
    }
}

/// What there was no room for was lost, and the topic waited for it for ever.
#[test]
fn a_sealed_topic_goes_on_after_more_than_there_is_room_for_waited_for_shares() {
    const MESSAGES: usize = 400;
    let ward = Ward::open("room");
    let url = ward.url("threshold");
    let (alice, bob) = (ward.session(&url, "alice"), ward.session(&url, "bob"));
    alice.ready().wait().expect("keys begin");
    let reader = bob.subscribe("scan/#").capacity(1).when_slow(SlowReader::Block);
    let mut reader = reader.wait().expect("a pattern that may be read");
    for n in 0..MESSAGES {
        let mut scan = vec![0; 200_000];
        scan[..8].copy_from_slice(&(n as u64).to_be_bytes());
        alice.publish("scan/1", scan).wait().expect("it is published");
    }
    alice.flush().wait().expect("each has its place");
    // From now on shares cannot come, and blocks can.
    ward.brokers[..2].iter().for_each(|it| it.signal(Signal::STOP));
    let mut read = Vec::new();
    let stopped = Instant::now();
    while stopped.elapsed() < Duration::from_secs(8) {
        read.extend(reader.next_timeout(Duration::from_millis(100)).expect("the session goes on"));
    }
    assert!(read.len() < MESSAGES, "the test lets too much through");
    ward.brokers[..2].iter().for_each(|it| it.signal(Signal::CONT));
    while read.len() < MESSAGES {
        read.push(next(&url, &mut reader));
    }
    let numbers = read.iter().map(|it| u64::from_be_bytes(*it.payload().first_chunk().expect("it has a number")));
    assert!(numbers.eq(0..MESSAGES as u64), "each once and in order");
    assert_eq!(reader.missed(), 0);
}

/// What was published was dropped by closing, three seconds later, whatever the brokers were about.
#[test]
fn closing_waits_for_places_while_there_is_progress_and_tells_how_many_have_none() {
    let ward = Ward::open("tail");
    let url = ward.url("plain");
    let (alice, bob) = (ward.session(&url, "alice"), ward.session(&url, "bob"));
    alice.ready().wait().expect("it begins");
    let mut reader = bob.subscribe("t").capacity(10_000).wait().expect("a pattern that may be read");
    meet_under(&url, &alice, "t", &mut reader);
    ward.brokers[..2].iter().for_each(|it| it.signal(Signal::STOP));
    for n in 0..100 {
        alice.publish("t", format!("{n}")).wait().expect("it is queued");
    }
    std::thread::scope(|scope| {
        let flushed = scope.spawn(|| alice.flush().wait());
        std::thread::sleep(Duration::from_secs(5));
        ward.brokers[..2].iter().for_each(|it| it.signal(Signal::CONT));
        flushed.join().expect("no panic").expect("each has its place");
    });
    let read: Vec<String> = (0..100).map(|_| text(next(&url, &mut reader).payload())).collect();
    assert_eq!(read, (0..100).map(|n| n.to_string()).collect::<Vec<_>>());

    ward.brokers[..2].iter().for_each(|it| it.signal(Signal::STOP));
    for n in 0..7 {
        alice.publish("t", format!("{n}")).wait().expect("it is queued");
    }
    let late = alice.publish("t", "waited for").ordered();
    assert!(alice.clone().close() >= 7, "they have no place");
    assert!(late.wait().is_err());
    ward.brokers[..2].iter().for_each(|it| it.signal(Signal::CONT));
}

/// One thread publishes without waiting, more than a publisher may have in flight at the brokers, and is told of each message
/// later what position it has.
#[test]
fn one_thread_has_thousands_of_messages_under_way_at_brokers() {
    const UNDER_WAY: u32 = 3000;
    let ward = Ward::open("tickets");
    let url = ward.url("plain");
    let (alice, bob) = (ward.session(&url, "alice"), ward.session(&url, "bob"));
    alice.ready().wait().expect("it begins");
    let mut reader = bob.subscribe("t").capacity(UNDER_WAY as usize).wait().expect("a pattern that may be read");
    meet_under(&url, &alice, "t", &mut reader);
    let publish = |n: u32| alice.publish("t", n.to_be_bytes()).ordered().ticket().expect("it is taken");
    let mut tickets: Vec<_> = (0..UNDER_WAY).map(publish).collect();
    // Nobody asks what became of one of them.
    drop(tickets.pop());
    let numbers: Vec<Option<u64>> = tickets.into_iter().map(|it| it.wait().expect("it has its place").number).collect();
    assert!(numbers[0].is_some() && numbers.is_sorted_by(|a, b| a < b), "each has its own, as published");
    for n in 0..UNDER_WAY {
        assert_eq!(next(&url, &mut reader).payload(), n.to_be_bytes());
    }
    assert_eq!(alice.close(), 0);
}

fn text(payload: &[u8]) -> String {
    String::from_utf8_lossy(payload).into_owned()
}

/// A wait that only a failing test sees the end of.
const SOON: Duration = Duration::from_secs(120);
