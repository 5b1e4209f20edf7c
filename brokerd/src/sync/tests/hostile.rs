//! Brokers that keep one that starts waiting: they drip, they flood, they cut a snapshot into crumbs.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use rustls::{ServerConnection, StreamOwned};
use sealcast_broker::protocol::{Reply, Update};
use sealcast_crypto::signature::OriginKey;

use super::*;

/// What a broker does with one that asks.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// A handshake that never ends, a byte at a time.
    Greeting,
    /// The longest answer that there may be, a byte at a time.
    Drip,
    /// Updates without end, and no answer.
    Flood,
}

/// A door of the broker with this key. Its threads end with the channels.
fn hostile(manner: Manner, key: OriginKey, welcome: Welcome) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let key = Arc::new(key);
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let (key, welcome) = (key.clone(), welcome.clone());
            // Whoever asked hangs up.
            thread::spawn(move || keep_waiting(manner, key, welcome, socket));
        }
    });
    address
}

fn keep_waiting(manner: Manner, key: Arc<OriginKey>, welcome: Welcome, mut socket: TcpStream) -> io::Result<()> {
    if let Manner::Greeting = manner {
        // A record of the handshake, 16 KB long.
        socket.write_all(&[0x16, 3, 3, 0x40, 0])?;
        return drip(socket);
    }
    let connection = ServerConnection::new(sealcast_tls::server(key)).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, socket);
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    stream.read_exact(&mut vec![0; u32::from_be_bytes(length) as usize])?;
    stream.write_all(&message(&Reply::Welcome(welcome)))?;
    match manner {
        Manner::Flood => {
            let update = Reply::Update(Update { height: 1, digest: [0; 32], contents: None });
            let many = message(&update).repeat(1000);
            loop {
                stream.write_all(&many)?;
            }
        }
        _ => {
            let longest = u32::try_from(limits::PROTOCOL_MESSAGE_BYTES_MAX).expect("it fits");
            stream.write_all(&longest.to_be_bytes())?;
            drip(stream)
        }
    }
}

fn drip(mut to: impl io::Write) -> io::Result<()> {
    loop {
        to.write_all(&[0])?;
        to.flush()?;
        thread::sleep(Duration::from_millis(20));
    }
}

fn message(reply: &Reply) -> Vec<u8> {
    sealcast_tls::message::framed(&reply.to_bytes())
}

#[test]
fn rule_g8_one_broker_that_drips_or_floods_keeps_none_from_starting() {
    let (world, aged) = aged();
    let welcome = aged[0].executor.welcome(&client(1));
    let (joined, joins) = mpsc::channel();
    let mut gateways = Vec::new();
    for manner in [Manner::Greeting, Manner::Drip, Manner::Flood] {
        let (mut file, open) = doors(&world, &aged, [Lie::None; 3]);
        gateways.extend(open);
        file.addresses[0].gateway = hostile(manner, brokers().remove(0), welcome.clone()).to_string();
        let joined = joined.clone();
        thread::spawn(move || joined.send((manner, join(&Folder::new(), &file))).expect("the test waits"));
    }
    for _ in 0..3 {
        let (manner, start_certificate) = joins.recv_timeout(Duration::from_secs(60)).expect("a start that ends");
        assert!(start_certificate.is_some(), "{manner:?}: the honest ones are enough");
    }
}

#[test]
fn rule_g8_a_snapshot_in_crumbs_is_not_waited_for() {
    let (world, aged) = aged();
    let (file, _gateways) = doors(&world, &aged, [Lie::Crumbs; 3]);
    assert_eq!(join(&Folder::new(), &file), None);
    let (file, _gateways) = doors(&world, &aged, [Lie::Crumbs, Lie::None, Lie::Crumbs]);
    assert!(join(&Folder::new(), &file).is_some(), "who sends whole parts is begun with");
}

#[test]
fn rule_g8_a_channel_takes_no_longer_than_it_may_on_the_whole() {
    let (world, aged) = aged();
    let (file, _gateways) = doors(&world, &aged, [Lie::None; 3]);
    let key = Arc::new(brokers().remove(3));
    let peers = Peers { cluster: &file, index: 3, key: &key, end: &Arc::default() };
    let last = Instant::now() + Duration::from_secs(5);
    let mut channel = peers.open(1, Duration::from_secs(60), last).expect("it is open");
    let part = Query::Part { height: KEPT, offset: 0 };
    assert!(matches!(channel.ask(part.clone()), Ok(Answer::Part(_))));
    thread::sleep(last.saturating_duration_since(Instant::now()));
    assert_eq!(channel.ask(part).expect_err("too late").kind(), io::ErrorKind::TimedOut);
    assert!(peers.open(1, Duration::from_secs(60), last).is_err());
}

#[test]
fn a_broker_that_is_to_end_begins_with_nothing() {
    let (world, aged) = aged();
    let (file, _gateways) = doors(&world, &aged, [Lie::None; 3]);
    let folder = Folder::new();
    assert_eq!(join_until(&folder, &file, &Arc::new(AtomicBool::new(true))), None);
    assert!(!fs::exists(folder.0.join("state")).expect("it can be looked for"));
}

#[test]
fn rule_g7_a_snapshot_of_the_last_block_that_can_be_overflows_nothing() {
    let (world, aged) = aged();
    let (file, _gateways) = doors(&world, &aged, [Lie::Last; 3]);
    assert_eq!(join(&Folder::new(), &file), None);
}
