use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use sealcast_broker::protocol::{Request, Update, Why};
use sealcast_crypto::secret::Secret;
use sealcast_wire::Utc;

use super::*;
use crate::channel::Channel;

mod unregistered;

const CLUSTER: Cluster = Cluster([7; 32]);
const TIMEOUT: Duration = Duration::from_secs(30);

fn key(seed: u8) -> Arc<OriginKey> {
    Arc::new(OriginKey::from_seed(&Secret::from_bytes([seed; 32])))
}

fn client(seed: u8) -> Client {
    Client(key(seed).public_bytes())
}

/// Remembers batches, refuses those that begin with 0, and knows no answer: unregistered clients wait for it while it thinks.
#[derive(Default)]
struct Counter {
    batches: Mutex<Vec<(Client, Bytes)>>,
    known: Mutex<BTreeMap<Client, ClientStatus>>,
    thinks: AtomicBool,
}

impl Handler for Counter {
    fn client_status(&self, client: &Client) -> ClientStatus {
        lock(&self.known).get(client).cloned().unwrap_or(ClientStatus::Unregistered)
    }

    fn welcome(&self, _: &Client) -> Welcome {
        Welcome {
            broker: 3,
            height: 5,
            at: Utc(0),
            sn: 0,
            policy: 0,
            epoch: 0,
            registered: false,
            next: 0,
            subscriptions: Vec::new(),
            key: None,
        }
    }

    fn submit(&self, client: &Client, batch: Bytes) -> Result<(), Refusal> {
        if batch.first() == Some(&0) {
            return Err(Refusal::Quota);
        }
        lock(&self.batches).push((*client, batch));
        Ok(())
    }

    fn answer(&self, client: &Client, _: Query) -> Answer {
        while self.client_status(client) == ClientStatus::Unregistered && self.thinks.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Answer::No(Why::Nothing)
    }
}

struct World {
    gateway: Gateway,
    counter: Arc<Counter>,
    drops: Arc<Drops>,
    address: SocketAddr,
}

impl World {
    fn new() -> World {
        World::sized(&Sizes::default())
    }

    fn sized(sizes: &Sizes) -> World {
        let (drops, counter) = (Arc::new(Drops::default()), Arc::new(Counter::default()));
        let gateway = Gateway::sized(CLUSTER, drops.clone(), sizes);
        let anywhere = "127.0.0.1:0".parse().expect("an address");
        let address = gateway.listen(anywhere, key(200), counter.clone(), 2).expect("it listens");
        World { gateway, counter, drops, address }
    }

    fn connect(&self, seed: u8) -> Channel {
        Channel::connect(self.address, key(200).public_bytes(), key(seed), TIMEOUT).expect("it connects")
    }

    fn open(&self, seed: u8) -> Channel {
        let opened = Channel::open(self.address, key(200).public_bytes(), key(seed), CLUSTER, TIMEOUT);
        let (channel, welcome) = opened.expect("it is welcome");
        assert_eq!((welcome.broker, welcome.height), (3, 5));
        channel
    }

    fn knows(&self, seed: u8, status: ClientStatus) {
        lock(&self.counter.known).insert(client(seed), status);
    }

    fn dropped(&self, reason: Reason) {
        until(&format!("one dropped for {reason}"), || self.drops.of(reason) == 1);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.counter.thinks.store(false, Ordering::Release);
        self.gateway.stop();
    }
}

/// A watchdog, far beyond what it takes.
fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never came: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn update(height: u64) -> Reply {
    Reply::Update(Update { height, digest: [0; 32], contents: None })
}

#[test]
fn a_client_submits_asks_and_hears() {
    let world = World::new();
    let mut channel = world.open(1);
    assert!(world.gateway.is_here(&client(1)) && !world.gateway.is_here(&client(2)));
    assert_eq!(channel.ask(Query::Status).expect("an answer"), Answer::No(Why::Nothing));
    channel.say(&Request::Submit(vec![1; 100_000])).expect("it is sent");
    channel.say(&Request::Submit(vec![0; 100])).expect("it is sent");
    assert_eq!(channel.hear().expect("a refusal"), Reply::Refused { first: 0, why: Refusal::Quota });
    assert_eq!(*lock(&world.counter.batches), [(client(1), Bytes::from(vec![1; 100_000]))]);
    world.gateway.send(&client(1), &update(6));
    world.gateway.send(&client(2), &update(6));
    assert_eq!(channel.hear().expect("an update"), update(6));
    // A hello, a query and two batches; a welcome, an answer, a refusal and an update.
    let batches = [100_000, 100].map(|n| 4 + Request::Submit(vec![1; n]).to_bytes().len());
    let (messages, bytes) = world.gateway.heard();
    assert!(messages == 4 && bytes > batches.iter().sum::<usize>() as u64, "{messages} messages, {bytes} bytes");
    until("four have left", || world.gateway.said().0 == 4 && world.gateway.said().1 > 16);
    drop(channel);
    until("it has left", || world.gateway.clients() == 0);
    assert_eq!(world.gateway.outgoing_bytes(), 0);
}

#[test]
fn a_second_channel_of_a_client_takes_the_place_of_the_first() {
    let world = World::new();
    let mut first = world.open(1);
    let mut second = world.open(1);
    assert!(first.hear().is_err());
    world.dropped(Reason::Replaced);
    world.gateway.send(&client(1), &update(6));
    assert_eq!(second.hear().expect("an update"), update(6));
    assert_eq!(world.gateway.clients(), 1);
}

#[test]
fn rule_g7_hostile_bytes_cost_their_sender_his_channel_and_nobody_else_anything() {
    let world = World::new();
    let mut honest = world.open(1);
    let mut garbage = TcpStream::connect(world.address).expect("it connects");
    garbage.write_all(&[0x16, 3, 1, 0xff, 0xff, 7, 7, 7].repeat(1000)).expect("it is sent");
    let _ = garbage.read(&mut [0; 64]);
    world.dropped(Reason::Handshake);

    let mut foreign = world.connect(2);
    foreign.say(&Request::Hello { cluster: Cluster([8; 32]) }).expect("it is sent");
    assert!(foreign.hear().is_err());
    world.dropped(Reason::Cluster);

    let mut rude = world.connect(3);
    rude.say(&Request::Submit(vec![1])).expect("it is sent");
    assert!(rude.hear().is_err());
    world.dropped(Reason::Malformed);

    let mut boaster = world.open(4);
    boaster.write(&u32::MAX.to_be_bytes()).expect("it is sent");
    assert!(boaster.hear().is_err());
    world.dropped(Reason::Long);

    let mut broken = world.open(5);
    broken.write(&[0, 0, 0, 9, 3, 0, 0]).expect("it is sent");
    drop(broken);
    world.dropped(Reason::Broken);

    assert_eq!(honest.ask(Query::Status).expect("an answer"), Answer::No(Why::Nothing));
    until("only the honest one is left", || world.gateway.clients() == 1);
}

#[test]
fn rule_g7_who_takes_nothing_loses_its_channel() {
    let world = World::new();
    let mut slow = world.open(1);
    let mut quick = world.open(2);
    let large = Reply::Attach { sn: 1, attachment: vec![0; 1 << 20] };
    // The kernel's buffers take some of it.
    for _ in 0..200 {
        world.gateway.send(&client(1), &large);
    }
    world.dropped(Reason::Slow);
    until("it has left", || world.gateway.clients() == 1);
    while slow.hear().is_ok() {}
    assert_eq!(world.gateway.outgoing_bytes(), 0);
    assert_eq!(quick.ask(Query::Key).expect("an answer"), Answer::No(Why::Nothing));
}

#[test]
fn who_is_turned_out_learns_why() {
    let world = World::new();
    let mut channel = world.open(1);
    let refused = Reply::Refused { first: 1, why: Refusal::Signature };
    world.gateway.send(&client(1), &refused);
    world.gateway.turn_out(&client(1), Reason::BatchSignature);
    world.gateway.send(&client(1), &update(6));
    assert_eq!(channel.hear().expect("a refusal"), refused);
    assert!(channel.hear().is_err());
    world.dropped(Reason::BatchSignature);
}
