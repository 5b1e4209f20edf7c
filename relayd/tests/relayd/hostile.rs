//! Clients and brokers that misbehave: service goes on.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use sealcast_relay::follower::Outcome;
use sealcast_relay::response::{Refusal, Response};
use sealcast_wire::limits;

use crate::member::Member;
use crate::process::{Process, ask, command, connect, nobody, post, until};

/// Bytes without a form, the same each time.
fn garbage(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(next).collect()
}

#[test]
fn rule_g2_two_megabytes_of_garbage_at_every_endpoint_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // The broker answers with garbage, too.
    let broker = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = broker.local_addr().unwrap();
    thread::spawn(move || {
        broker.incoming().map_while(Result::ok).for_each(|mut it| drop(it.write_all(&garbage(2 << 20))));
    });
    let relay = Process::run(command(&dir.path().join("relay"), at, &["--metrics", "127.0.0.1:0"]));
    let mut member = Member::new(&relay, 1);
    assert_eq!(member.append(b"before"), Some(Outcome::Won(1)));

    let mut bytes = garbage(2 << 20);
    let refused = |bytes: &[u8]| match post(relay.at(), bytes).unwrap() {
        (200, response) => Response::decode(&response).unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&bytes), Response::Refused(Refusal::Version));
    for kind in 0..=12 {
        bytes[..2].copy_from_slice(&[1, kind]);
        assert!(matches!(refused(&bytes), Response::Refused(_)), "kind {kind}");
    }
    assert_eq!(refused(b""), Response::Refused(Refusal::Malformed));
    for (method, path, status) in [("GET", "/v1", 405), ("POST", "/healthz", 405), ("POST", "/v2", 404)] {
        // The server may have closed before all is sent.
        assert!(ask(connect(relay.at()), method, path, &bytes).map_or(true, |it| it.0 == status), "{method} {path}");
    }
    let figures: SocketAddr = relay.link("metrics")[7..].strip_suffix("/metrics").unwrap().parse().unwrap();
    for at in [relay.at(), figures] {
        let mut socket = connect(at);
        let _ = socket.write_all(&garbage(2 << 20));
        let _ = socket.read(&mut [0; 100]);
        assert!(ask(connect(at), "POST", "/metrics", &bytes).map_or(true, |it| it.0 >= 404));
    }
    let long = vec![1; limits::RELAY_REQUEST_BYTES_MAX + 1];
    assert_eq!(post(relay.at(), &long).unwrap().0, 413);
    assert!(relay.figures().contains("sealcast_relay_turned_away_total{reason=\"too_large\"} 1\n"));

    assert_eq!(member.append(b"after"), Some(Outcome::Won(2)));
    let (status, _, said) = relay.stop();
    assert!(status.success() && !said.contains("panicked"), "{said}");
}

#[test]
fn rule_g7_half_requests_of_many_clients_stop_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Process::run(command(&dir.path().join("relay"), nobody(), &["--metrics", "127.0.0.1:0"]));
    let half = |text: &str, body: usize| {
        let mut socket = connect(relay.at());
        socket.write_all(text.as_bytes()).unwrap();
        socket.write_all(&vec![1; body]).unwrap();
        socket
    };
    // Headers without an end; bodies that are announced and do not come; long ones that come almost; nothing at all.
    let mut sockets: Vec<_> = (0..200).map(|_| half("POST /v1 HTTP/1.1\r\nhost: ", 0)).collect();
    let announced =
        format!("POST /v1 HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", limits::RELAY_REQUEST_BYTES_MAX);
    sockets.extend((0..100).map(|_| half(&announced, 100)));
    sockets.extend((0..9).map(|_| half(&announced, 7 << 20)));
    sockets.extend((0..100).map(|_| half("", 0)));
    until("they are connected", || relay.figures().contains(&format!("relay_connections {}\n", sockets.len())));
    let (mut member, begun) = (Member::new(&relay, 1), Instant::now());
    for n in 1..=10 {
        assert_eq!(member.append(&[7; 30_000]), Some(Outcome::Won(n)));
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // They do not keep it from ending.
    let (status, took, said) = relay.stop();
    assert!(status.success() && took < Duration::from_secs(2), "{took:?} {said}");
}
