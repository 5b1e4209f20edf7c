//! A value that all members keep alike, over loopback multicast: who comes gets it, and each message after it once.

use std::time::{Duration, Instant};

use sealcast::{Code, Message, Replica, Session, State, Step};

use crate::common::{Ca, SOON, open, url};

/// All that was said.
#[derive(Default, Debug)]
struct Lines(Vec<String>);

impl State for Lines {
    fn apply(&mut self, message: &Message) {
        self.0.push(String::from_utf8_lossy(message.payload()).into_owned());
    }

    fn snapshot(&self) -> Vec<u8> {
        self.0.join("\n").into_bytes()
    }

    fn restore(&mut self, snapshot: Option<&[u8]>) {
        self.0 = String::from_utf8_lossy(snapshot.unwrap_or_default()).lines().map(str::to_owned).collect();
    }
}

/// Lets each of them take in what comes until this is so of all.
fn until(replicas: &mut [Replica<Lines>], what: &str, is_so: impl Fn(&Replica<Lines>) -> bool) -> Vec<Step> {
    let (end, mut steps) = (Instant::now() + 2 * SOON, Vec::new());
    while !replicas.iter().all(&is_so) {
        assert!(
            Instant::now() < end,
            "{what}: {:?}",
            replicas.iter().map(|it| it.state().map(|it| it.0.len())).collect::<Vec<_>>()
        );
        for replica in replicas.iter_mut() {
            steps.extend(replica.next_timeout(Duration::from_millis(2)).unwrap());
        }
    }
    steps
}

fn say(session: &Session, text: &str) {
    let end = Instant::now() + SOON;
    // Until there is an order.
    while let Err(why) = session.publish("board", text).ordered().wait() {
        assert!(Instant::now() < end && why.code() == Code::NotReady, "{why}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_session_that_joins_later_gets_the_state_and_every_message_after_it_once() {
    let mut ca = Ca::new();
    let names = ["alice", "bob", "carol", "dora"];
    let members: Vec<_> = names.iter().map(|name| ca.member(name, &["both:#"])).collect();
    let url = url("&group=ward3&order=total");
    let sessions: Vec<Session> = members[..3].iter().map(|it| open(&url, it)).collect();
    let mut replicas: Vec<_> = sessions.iter().map(|it| it.replicate("board", Lines::default()).unwrap()).collect();
    assert_eq!(sessions[0].replicate("board", Lines::default()).err().map(|it| it.code()), Some(Code::BadValue));
    until(&mut replicas, "all begin", |it| it.state().is_some());
    // A snapshot of many pieces.
    let lines: Vec<String> = (0..200).map(|n| format!("{n} {}", "x".repeat(500))).collect();
    let publisher = sessions[1].clone();
    let (first, rest) = (lines[..150].to_vec(), lines[150..].to_vec());
    let spoken = std::thread::spawn(move || first.iter().for_each(|line| say(&publisher, line)));
    until(&mut replicas, "all have what was said", |it| it.state().is_some_and(|it| it.0.len() == 150));
    spoken.join().unwrap();

    let dora = open(&url, &members[3]);
    replicas.push(dora.replicate("board", Lines::default()).unwrap());
    let publisher = sessions[2].clone();
    let spoken = std::thread::spawn(move || rest.iter().for_each(|line| say(&publisher, line)));
    let steps = until(&mut replicas, "all have all", |it| it.state().is_some_and(|it| it.0.len() == 200));
    spoken.join().unwrap();
    assert!(replicas.iter().all(|it| it.state().is_some_and(|it| it.0 == lines)));
    let restored = steps.iter().filter(|it| matches!(it, Step::Restored { .. })).count();
    assert_eq!(restored, 1, "she got it from one of them, and nobody else needed it");
}

#[test]
fn where_nobody_orders_or_for_more_than_a_topic_there_is_no_state() {
    let session = sealcast::open("mem:no-state?keys=plain&order=total").wait().unwrap();
    let refused =
        session.replicate("board", Lines::default()).err().map(|it| (it.code(), it.hint().map(str::to_owned)));
    assert_eq!(refused, Some((Code::BadPair, Some("udpm://…?order=total".to_owned()))));
}
