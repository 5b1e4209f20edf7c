//! What comes in that should not: noise at every port, more than fits, somebody else's cluster.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sealcast_broker::cluster_file::ClusterFile;
use sealcast_broker::operation::{Operation, OperationId, sign_encoded};
use sealcast_broker::protocol::{Answer, Query, Refusal, Reply, Request};
use sealcast_brokerd::channel::Channel;
use sealcast_brokerd::config::{self, Config};
use sealcast_brokerd::drops::Reason;
use sealcast_brokerd::serve::Broker;
use sealcast_order_engine::Simplex;
use sealcast_wire::limits;

use crate::client::Reader;
use crate::cluster::{Home, key, publish, subscribe, until};

/// Bytes that mean nothing, or begin to mean something.
fn noise(kind: usize) -> Vec<u8> {
    let scrambled =
        |seed: u32| (0..20_000_u32).map(move |n| (n.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 24) as u8);
    match kind {
        0 => scrambled(1).collect(),
        1 => vec![0xFF; 4096],
        2 => vec![0; 1 << 20],
        3 => b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        // A TLS record that announces a hello and does not end.
        4 => [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC][..], &[7; 64]].concat(),
        _ => (0..4).flat_map(|seed| [vec![0, 0, 0, 9], scrambled(seed).take(9).collect()].concat()).collect(),
    }
}

/// Ends the throwers, whatever becomes of the test.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn throw(at: SocketAddr, kind: usize) {
    let Ok(mut socket) = TcpStream::connect(at) else { return };
    let timeout = Some(Duration::from_millis(50));
    socket.set_read_timeout(timeout).and_then(|()| socket.set_write_timeout(timeout)).expect("it takes time-outs");
    // It may close while we write, and owes us nothing.
    let _ = socket.write_all(&noise(kind));
    let _ = socket.read(&mut [0; 16]);
}

#[test]
fn rule_g7_noise_at_every_port_of_all_brokers_disturbs_no_client() {
    let home = Home::new("noise", 4);
    let start = |broker| {
        let mut config = home.config(broker);
        config.settings.metrics = Some("127.0.0.1:0".parse().expect("an address"));
        Broker::start(config, &Simplex).unwrap_or_else(|e| panic!("{e}"))
    };
    let brokers: Vec<Broker> = (0..4).map(start).collect();
    let metrics = brokers.iter().map(|it| it.metrics_address().expect("it shows figures"));
    let mut ports: Vec<SocketAddr> = metrics.collect();
    ports.extend((0..4).flat_map(|it| [home.gateway_address(it), home.order_address(it)]));
    let mut reader = Reader::open(&home, &brokers, 2);
    let mut publisher = Reader::open(&home, &brokers, 1);
    reader.order(0, vec![home.claim(2), subscribe("a")]);
    publisher.order(1, vec![home.claim(1)]);

    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = Ends(&over);
        for thrower in 0..2 {
            let (ports, over) = (&ports, &over);
            scope.spawn(move || {
                for n in thrower.. {
                    if over.load(Ordering::Acquire) {
                        return;
                    }
                    throw(ports[n % ports.len()], n / ports.len() % 6);
                }
            });
        }
        for n in 0..40_u8 {
            publisher.order(usize::from(n) % 4, vec![publish("a", &[n])]);
        }
        until("noise came to all", || brokers.iter().all(|it| it.drops().of(Reason::Handshake) >= 4));
    });
    let last = |contents: &sealcast_broker::protocol::Contents| {
        contents.bodies.iter().any(|(_, body)| Operation::from_bytes(body) == Ok(publish("a", &[39])))
    };
    reader.updates(2, last);
    assert!(brokers.iter().all(|it| it.failure().is_none() && it.status().running));
    brokers.into_iter().for_each(Broker::stop);
}

#[test]
fn rule_g7_what_is_larger_than_it_may_be_is_refused_and_nobody_else_waits() {
    let home = Home::new("oversized", 4);
    let brokers = home.start_all();
    let mut publisher = Reader::open(&home, &brokers, 1);
    publisher.order(0, vec![home.claim(1)]);

    // The largest body has its place; one byte more fits no operation, and its batch is refused where it comes in.
    publisher.order(0, vec![publish("a", &vec![1; limits::BODY_BYTES_MAX])]);
    let number = publisher.next;
    let large = publish("a", &vec![1; limits::BODY_BYTES_MAX + 1]).to_bytes();
    let operations = [(&OperationId::of(&large), &large[..])];
    let (_, large) = sign_encoded(&home.cluster, &key(1), number, 0, operations.into_iter());
    publisher.channels[2].say(&Request::Submit(large)).expect("it is sent");
    publisher.refused(2, Refusal::Malformed);
    let longest = Request::Submit(vec![1; limits::BATCH_BYTES_MAX]);
    publisher.channels[2].say(&longest).expect("it is sent");
    let mut heard = std::iter::repeat_with(|| publisher.channels[2].hear());
    let answered = heard.find(|it| !matches!(it, Ok(Reply::Update(_))));
    assert!(matches!(answered, Some(Ok(Reply::Refused { .. }))), "{answered:?}");
    // A unregistered client's may not be as long; it may learn so before all of it is sent.
    let mut hostile = Reader::open(&home, &brokers, 9);
    let _ = hostile.channels[2].say(&longest);
    until("it is counted", || brokers[2].drops().of(Reason::Long) == 1);
    assert!(hostile.channels[2].hear().is_err(), "the channel ends");

    // More than any message may have is not even read.
    let length = u32::try_from(limits::GATEWAY_REQUEST_BYTES_MAX + 1).expect("it fits").to_be_bytes();
    hostile.channels[3].write(&length).expect("it is sent");
    assert!(hostile.channels[3].hear().is_err(), "the channel ends");
    until("it is counted", || brokers[3].drops().of(Reason::Long) == 1);

    // Not a hello, and a message that no request is.
    for (bytes, reason) in [(&[0, 0, 0, 1, 77][..], Reason::Malformed), (&[0, 0, 0, 0], Reason::Malformed)] {
        let before = brokers[0].drops().of(reason);
        let keys = home.file.broker_keys();
        let at = brokers[0].gateway_address();
        let mut channel = Channel::connect(at, keys[0], key(8), Duration::from_secs(20)).expect("it is there");
        channel.write(bytes).expect("it is sent");
        assert!(channel.hear().is_err(), "the channel ends");
        until("it is counted", || brokers[0].drops().of(reason) > before);
    }
    // The number of what was refused was not used.
    publisher.order(0, vec![publish("a", b"still here")]);
    assert!(brokers.iter().all(|it| it.failure().is_none()));
}

#[test]
fn rule_e11_with_a_wrong_cluster_file_nobody_gets_anywhere_and_nothing_is_harmed() {
    let home = Home::new("wrong-file", 4);
    let mut brokers: Vec<Broker> = (0..3).map(|broker| home.start(broker)).collect();
    let mut publisher = Reader::open(&home, &brokers, 1);
    publisher.order(0, vec![home.claim(1), publish("a", b"one")]);

    // A client of a cluster with the same brokers and another name is told nothing.
    let mut genesis = home.file.genesis.clone();
    genesis.name = "another".into();
    let keys = home.file.broker_keys();
    let at = brokers[0].gateway_address();
    let opened = Channel::open(at, keys[0], key(2), genesis.cluster(), Duration::from_secs(20));
    assert!(opened.is_err(), "it is not welcome");
    until("it is counted", || brokers[0].drops().of(Reason::Cluster) == 1);
    // One that knows another key of the broker does not speak to it.
    assert!(Channel::open(at, keys[1], key(2), home.cluster, Duration::from_secs(20)).is_err());

    // A broker with such a file, its own key and an empty folder finds no others, who go on.
    let wrong = ClusterFile { genesis, ..home.file.clone() };
    let folder = home.folder(3);
    std::fs::write(folder.join(config::CLUSTER), wrong.to_text()).expect("it is written");
    let outsider = home.start(3);
    for n in 0..10_u8 {
        publisher.order(usize::from(n) % 3, vec![publish("a", &[n])]);
    }
    let status = outsider.status();
    assert_eq!((status.height, outsider.failure()), (0, None), "{status:?}");
    outsider.stop();

    // The folder is the other cluster's now, and says so before anything of it is touched.
    std::fs::write(folder.join(config::CLUSTER), home.file.to_text()).expect("it is written");
    let refused = Config::read(&folder).map(drop).expect_err("its files are another cluster's").to_string();
    assert!(refused.contains("the files here are those of another cluster"), "{refused}");
    for name in ["order", "state", "keys", "evidence"] {
        let _ = std::fs::remove_dir_all(folder.join(name));
    }
    std::fs::remove_file(folder.join(config::MARK)).expect("it was there");
    brokers.push(home.start(3));
    let height = brokers[0].status().height;
    until("it has caught up", || brokers[3].status().height >= height);
    let mut reader = Reader::open(&home, &brokers, 1);
    let answers = reader.ask_all(&Query::Result { number: 11 });
    assert!(answers.iter().all(|it| *it == answers[0] && matches!(it, Answer::Result { .. })), "{answers:?}");
}
