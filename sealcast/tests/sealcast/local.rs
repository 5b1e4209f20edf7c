//! What a session has on this machine: its local socket, its records, identities and contexts on disk.

use crate::common::{Ca, SOON, url};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sealcast::Remedy;
use sealcast::config::{Context, Contexts, Home, KeptIdentity, Membership, Overwrite};
use sealcast::control::{Client, running, socket_path};
use sealcast::{Code, Session};
use sealcast_crypto::identity::{Act, MemberSecret, Request, Right};
use sealcast_crypto::signature::Algorithm;

/// An identity on disk, as `join` leaves it.
fn keep(home: &Home, ca: &mut Ca, name: &str, groups: &[&str]) -> KeptIdentity {
    let seed = name.bytes().map(u64::from).sum();
    let secret = MemberSecret::generate(Algorithm::Ed25519, &mut ChaCha20Rng::seed_from_u64(seed));
    let rights = groups.iter().flat_map(|g| [(Act::Both, *g), (Act::Evict, *g)]);
    let rights = rights.map(|(act, group)| Right::new(group, act, "#").expect("a right")).collect();
    let request = Request { name: name.to_owned(), keys: secret.public(), rights, attributes: vec![] };
    let certificate = ca.authority.issue(&request, crate::common::utc(), 3600).expect("issued");
    let mut kept = KeptIdentity::new(home, name, secret);
    let bootstrap_keys = groups.iter().map(|g| ((*g).to_owned(), ca.authority.bootstrap_key(g))).collect();
    kept.membership =
        Some(Membership { certificate, anchor: ca.authority.anchor().clone(), policy: None, bootstrap_keys });
    kept.save(Overwrite::Never).expect("saved");
    kept
}

fn open(home: &Home, target: &str, name: &str) -> Session {
    let session = sealcast::open(target).identity(name).home(home.clone()).wait();
    session.unwrap_or_else(|e| panic!("{e} ({:?})", e.hint()))
}

#[test]
fn rule_a7_a_running_session_is_used_through_its_local_socket() {
    let (folder, mut ca) = (tempfile::tempdir().unwrap(), Ca::new());
    let home = Home::at(folder.path());
    let alice = keep(&home, &mut ca, "alice", &["ward3"]);
    keep(&home, &mut ca, "bob", &["ward3"]);
    let url = url("");
    let (a, b) = (open(&home, &url, "alice"), open(&home, &url, "bob"));
    let mut at_b = b.subscribe("#").wait().unwrap();
    let deadline = std::time::Instant::now() + SOON;
    while b.view().is_none_or(|v| v.members.len() < 2) {
        assert!(std::time::Instant::now() < deadline, "not together");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(running(&home).len(), 2);
    let path = socket_path(&home, &alice.membership.as_ref().unwrap().certificate.hash(), "ward3");
    let mut client = Client::connect(&path).unwrap().expect("alice runs");

    let info = client.show().unwrap();
    assert_eq!((info.me.as_str(), info.group.as_str(), info.keys.as_str()), ("alice", "ward3", "contributory"));
    assert_eq!(info.members.len(), 2);
    assert!(info.has_bootstrap_key && info.rotates_in_ms.is_some());
    let bob = info.members.iter().find(|m| m.name == "bob").expect("a member");
    assert!(!bob.me && bob.serial.is_some() && bob.key.as_ref().is_some_and(|k| k.starts_with("scpub1")));
    assert_eq!((&bob.publishes[..], &bob.subscribes[..]), (&["#".to_owned()][..], &["#".to_owned()][..]));

    client.publish("ward3/vitals", b"{\"hr\":72}", sealcast_wire::Guarantee::BestEffort).unwrap();
    let message = at_b.next_timeout(SOON).unwrap().expect("delivered");
    assert_eq!((message.topic(), message.origin().name()), ("ward3/vitals", Some("alice")));

    let change = client.rotate().unwrap();
    assert_eq!((change.to, change.members), (change.from + 1, 2));
    let change = client.evict("bob", "lost laptop").unwrap();
    assert_eq!((change.on_new_key, change.members, change.serial), (1, 1, bob.serial.clone()));
    assert_eq!(client.evict("nobody", "").unwrap_err().code(), Code::BadValue);
    let events: Vec<String> = client.log().unwrap().into_iter().map(|l| format!("{} {}", l.event, l.what)).collect();
    assert!(events.iter().any(|e| e == "joined bob") && events.iter().any(|e| e == "evicted bob"), "{events:?}");

    client.leave().unwrap();
    assert!(a.publish("t", b"x").wait().is_err(), "who has left publishes no more");
    drop(a);
    assert!(Client::connect(&path).unwrap().is_none(), "the socket goes with the session");
}

#[test]
fn rule_a6_one_identity_runs_once() {
    let (folder, mut ca) = (tempfile::tempdir().unwrap(), Ca::new());
    let home = Home::at(folder.path());
    keep(&home, &mut ca, "alice", &["ward3"]);
    let url = url("");
    let first = open(&home, &url, "alice");
    let second = sealcast::open(&url).identity("alice").home(home.clone()).wait();
    assert_eq!(second.unwrap_err().code(), Code::Duplicate);
    first.close();
    open(&home, &url, "alice").close();
}

/// The library refuses what the transport does not give as the program does, and says which one gives it.
#[test]
fn what_multicast_does_not_give_is_refused_with_a_hint() {
    let (folder, mut ca) = (tempfile::tempdir().unwrap(), Ca::new());
    let home = Home::at(folder.path());
    keep(&home, &mut ca, "alice", &["ward3"]);
    let session = open(&home, &url(""), "alice");
    session.ready().wait().unwrap();
    let publish = || session.publish("ward3/x", b"x");
    for refused in [publish().fifo().wait(), publish().ordered().wait(), publish().safe().wait()] {
        let error = refused.unwrap_err();
        assert_eq!(error.code(), Code::BadPair, "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("quorum:")), "{error} ({:?})", error.hint());
    }
    publish().wait().unwrap();
}

#[test]
fn a_context_names_url_and_identity() {
    let (folder, mut ca) = (tempfile::tempdir().unwrap(), Ca::new());
    let home = Home::at(folder.path());
    keep(&home, &mut ca, "alice", &["ward3"]);
    let made = Contexts::update(&home, |all| {
        let context = Context { url: url(""), id: Some("alice".to_owned()) };
        all.context.insert("ward".to_owned(), context);
        Ok::<(), sealcast::Error>(())
    });
    made.unwrap();
    let session = sealcast::open("ward").home(home.clone()).wait().unwrap();
    assert_eq!(session.info().me, "alice");
    let error = sealcast::open("other").home(home.clone()).wait().unwrap_err();
    assert_eq!(error.code(), Code::Missing);
}

#[test]
fn what_is_missing_is_said_with_the_line_that_makes_it() {
    let (folder, mut ca) = (tempfile::tempdir().unwrap(), Ca::new());
    let home = Home::at(folder.path());
    let failing =
        |name: &str, more: &str| sealcast::open(&url(more)).identity(name).home(home.clone()).wait().unwrap_err();
    let error = failing("alice", "");
    assert_eq!((error.code(), error.remedy()), (Code::NoIdentity, Some(&Remedy::ListIdentities)));

    let secret = MemberSecret::generate(Algorithm::Ed25519, &mut ChaCha20Rng::seed_from_u64(1));
    KeptIdentity::new(&home, "young", secret).save(Overwrite::Never).unwrap();
    let error = failing("young", "");
    assert_eq!(error.code(), Code::NoIdentity);
    let is_of_keys =
        |it: &Remedy| matches!(it, Remedy::AskForInvite { keys: Some(keys) } if keys.starts_with("scpub1"));
    assert!(error.remedy().is_some_and(is_of_keys), "{error}");

    keep(&home, &mut ca, "both", &["ward3", "ward4"]);
    let error = failing("both", "");
    assert_eq!(error.code(), Code::BadUrl);
    assert!(error.message().contains("ward3, ward4") && error.hint().unwrap().contains("&group="));
    sealcast::open(&url("&group=ward4")).identity("both").home(home.clone()).wait().unwrap();
}

#[test]
fn sessions_of_one_process_meet_in_memory() {
    let (a, b) =
        (sealcast::open("mem:here?keys=plain").wait().unwrap(), sealcast::open("mem:here?keys=plain").wait().unwrap());
    let elsewhere = sealcast::open("mem:there?keys=plain").wait().unwrap();
    let (mut at_a, mut at_b) = (a.subscribe("#").wait().unwrap(), b.subscribe("#").wait().unwrap());
    let mut at_c = elsewhere.subscribe("#").wait().unwrap();
    a.publish("t", b"x").wait().unwrap();
    for sub in [&mut at_a, &mut at_b] {
        assert_eq!(sub.next_timeout(SOON).unwrap().expect("delivered").payload(), b"x");
    }
    assert!(at_c.try_next().unwrap().is_none());
    let mut ca = Ca::new();
    let (x, y) = (ca.member("x", &["both:#"]), ca.member("y", &["both:#"]));
    let x = sealcast::open("mem:sealed").identity(x).wait().unwrap();
    let y = sealcast::open("mem:sealed").identity(y).wait().unwrap();
    let mut at_y = y.subscribe("#").wait().unwrap();
    let deadline = std::time::Instant::now() + SOON;
    while x.view().is_none_or(|v| v.members.len() < 2) || y.view().is_none_or(|v| v.members.len() < 2) {
        assert!(std::time::Instant::now() < deadline, "not together");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    x.publish("t", b"sealed").wait().unwrap();
    assert_eq!(at_y.next_timeout(SOON).unwrap().expect("delivered").payload(), b"sealed");
}

/// RFC 9420's groups: members come in by themselves, hear best effort and one order, and an evicted one hears no more.
#[cfg(feature = "mls")]
#[test]
fn sessions_in_memory_are_an_mls_group() {
    are_an_mls_group("mem:mls?keys=mls", &mut Ca::new());
}

/// The same with messages that are RFC 9420's; who has others is told so.
#[cfg(feature = "mls")]
#[test]
fn rule_d5_sessions_in_memory_publish_private_messages() {
    let mut ca = Ca::new();
    let _alice = are_an_mls_group("mem:mls-data?keys=mls&data=mls", &mut ca);
    let url = "mem:mls-data?keys=mls&join=external&wait=1s";
    let dave = sealcast::open(url).identity(ca.member("dave", &["both:#"])).wait().unwrap();
    assert_eq!(dave.publish("pulse", b"73").wait().unwrap_err().code(), Code::NotReady);
    let says_why = |it: &sealcast::LogEntry| format!("{:?}", it.event).contains("OtherForm");
    assert!(dave.log().iter().any(says_why), "{:?}", dave.log());
}

#[cfg(feature = "mls")]
fn are_an_mls_group(url: &str, ca: &mut Ca) -> Session {
    let names = ["alice", "bob", "carol"];
    let open = |member| sealcast::open(url).identity(member).wait().unwrap();
    let members = names.map(|name| ca.member(name, &["both:#", "evict:#"]));
    let sessions = members.map(open);
    let together = |sessions: &[Session], count: usize| {
        let deadline = std::time::Instant::now() + SOON;
        while sessions.iter().any(|it| it.view().is_none_or(|view| view.members.len() != count)) {
            assert!(std::time::Instant::now() < deadline, "not together");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    together(&sessions, 3);
    let mut readers: Vec<_> = sessions.iter().map(|it| it.subscribe("#").wait().unwrap()).collect();
    sessions[0].publish("pulse", b"71").wait().unwrap();
    sessions[1].publish("order", b"rest").ordered().wait().unwrap();
    for reader in &mut readers {
        let next = |_| reader.next_timeout(SOON).unwrap().expect("delivered").payload().to_vec();
        let mut heard: Vec<Vec<u8>> = (0..2).map(next).collect();
        heard.sort();
        assert_eq!(heard, [b"71".to_vec(), b"rest".to_vec()]);
    }
    let [alice, bob, carol] = sessions;
    let evicted = carol.info().me;
    alice.evict(evicted.as_str(), "lost tablet").wait().unwrap();
    together(&[alice.clone(), bob.clone()], 2);
    bob.publish("pulse", b"72").wait().unwrap();
    assert_eq!(readers[0].next_timeout(SOON).unwrap().expect("delivered").payload(), b"72");
    let heard = readers[2].next_timeout(std::time::Duration::from_millis(300));
    assert!(!matches!(&heard, Ok(Some(_))), "{heard:?}");
    alice
}

/// Names that nothing proves, in a group of P-256 keys whose handshakes engines leave in clear: its messages are said to be
/// from whom they claim.
#[cfg(feature = "mls")]
#[test]
fn sessions_of_an_experiment_call_themselves_as_they_like() {
    let mut ca = Ca::new();
    let members = ["alice", "bob"].map(|name| ca.member(name, &["both:#"]));
    let refused =
        sealcast::open("mem:mls-basic?keys=mls&ciphersuite=2").identity(members[0].clone()).wait().unwrap_err();
    assert_eq!(refused.code(), Code::BadUrl);
    assert!(refused.message().contains("a key of Ed25519, which is for ciphersuite=1"), "{refused}");
    let url = "mem:mls-basic?keys=mls&credentials=basic&handshake=public&ciphersuite=1";
    let [alice, bob] = members.map(|member| sealcast::open(url).identity(member).wait().unwrap());
    let mut at_bob = bob.subscribe("#").wait().unwrap();
    let deadline = std::time::Instant::now() + SOON;
    while alice.view().is_none_or(|view| view.members.len() != 2) {
        assert!(std::time::Instant::now() < deadline, "not together");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    alice.publish("pulse", b"71").wait().unwrap();
    let heard = at_bob.next_timeout(SOON).unwrap().expect("delivered");
    assert_eq!(heard.payload(), b"71");
    assert!(matches!(heard.origin(), sealcast::Origin::Claimed(_)), "{:?}", heard.origin());
}

/// Who reads some topics alone is told why it is not let in.
#[cfg(feature = "mls")]
#[test]
fn a_member_that_reads_some_topics_is_refused_by_an_mls_group() {
    let mut ca = Ca::new();
    let member = ca.member("sensor", &["both:pose/#"]);
    let error = sealcast::open("mem:mls-topics?keys=mls").identity(member).wait().unwrap_err();
    assert_eq!(error.code(), Code::Denied);
    assert!(error.message().contains("a group for each set of readers"), "{error}");
}

#[test]
fn ordered_publishing_needs_a_way_that_orders() {
    let a = sealcast::open(&url("&keys=plain")).wait().unwrap();
    let error = a.publish("t", b"x").ordered().wait().unwrap_err();
    assert_eq!(error.code(), Code::BadPair);
}

/// All publish at once; the way's orderer decides, and all hear one order, each publisher itself included.
#[test]
fn sessions_in_memory_hear_one_order_of_what_is_published_in_one() {
    let open = || sealcast::open("mem:order?keys=plain&order=total").wait().unwrap();
    let sessions: Vec<Session> = (0..3).map(|_| open()).collect();
    let mut readers: Vec<_> = sessions.iter().map(|s| s.subscribe("#").wait().unwrap()).collect();
    std::thread::scope(|scope| {
        for (i, session) in sessions.iter().enumerate() {
            scope.spawn(move || {
                let mut before = None;
                for n in 0..PER_SESSION {
                    let number = session.publish("t", vec![i as u8, n]).ordered().wait().unwrap().number;
                    assert!(number.is_some() && number > before, "its place: {before:?}, {number:?}");
                    before = number;
                }
                session.flush().wait().unwrap();
            });
        }
    });
    let mut heard = readers.iter_mut().map(|reader| {
        let next = |_| reader.next_timeout(SOON).unwrap().expect("delivered").payload().to_vec();
        (0..sessions.len() * usize::from(PER_SESSION)).map(next).collect::<Vec<_>>()
    });
    let first = heard.next().unwrap();
    for i in 0..sessions.len() as u8 {
        let own: Vec<u8> = first.iter().filter(|m| m[0] == i).map(|m| m[1]).collect();
        assert_eq!(own, (0..PER_SESSION).collect::<Vec<_>>(), "each publisher's messages stay in their order");
    }
    assert!(heard.all(|other| other == first), "one order at all");
}

/// One thread publishes without waiting, and is told of each message later what position it has.
#[test]
fn one_thread_has_thousands_of_reliable_messages_under_way() {
    let session = sealcast::open("mem:tickets?keys=plain&order=total").wait().unwrap();
    let mut reader = session.subscribe("t").capacity(UNDER_WAY as usize).wait().unwrap();
    let publish = |n: u32| session.publish("t", n.to_be_bytes()).ordered().ticket().unwrap();
    let mut tickets: Vec<_> = (0..UNDER_WAY).map(publish).collect();
    // One is waited for, one awaited, one never asked; the rest is looked at until nothing is missing.
    let (first, second) = (tickets.remove(0), tickets.remove(0));
    drop(tickets.pop());
    let mut numbers = vec![crate::common::block_on(first).unwrap().number, second.wait().unwrap().number];
    for mut ticket in tickets {
        let early = ticket.try_wait().map(|it| it.unwrap().number);
        let number = ticket.wait().unwrap().number;
        assert!(early.is_none_or(|early| early == number), "it is told the same");
        numbers.push(number);
    }
    assert!(numbers.is_sorted_by(|a, b| a < b) && numbers[0].is_some(), "each has its own position, as published");
    for n in 0..UNDER_WAY {
        assert_eq!(reader.next_timeout(SOON).unwrap().expect("delivered").payload(), n.to_be_bytes());
    }
    assert_eq!(session.close(), 0);
}

/// Fewer than a publisher may have in flight at an orderer.
const UNDER_WAY: u32 = 5000;

/// Messages of each publisher.
const PER_SESSION: u8 = 20;

/// What is awaited can be awaited by a task that any thread runs.
#[test]
fn futures_of_a_session_can_be_sent_to_other_threads() {
    fn sent<T: Send + 'static>(future: impl std::future::IntoFuture<Output = T, IntoFuture: Send + 'static>) -> T {
        let future = future.into_future();
        std::thread::spawn(move || crate::common::block_on(future)).join().expect("no panic")
    }
    let session = sent(sealcast::open("mem:tasks?keys=plain&order=total")).unwrap();
    let mut reader = session.subscribe("t").wait().unwrap();
    let publishing = {
        let session = session.clone();
        async move { session.publish("t", b"x").ordered().await }
    };
    assert!(sent(publishing).unwrap().number.is_some());
    sent(session.flush()).unwrap();
    assert_eq!(reader.next_timeout(SOON).unwrap().expect("delivered").payload(), b"x");
    assert_eq!(session.close(), 0);
}
