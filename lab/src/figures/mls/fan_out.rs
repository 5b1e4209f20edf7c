//! One message to many: to members of a group at a relay and to plain clients beside them, and to plain clients alone.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use sealcast::Session;

use super::{AREA, millis};
use crate::Failure;
use crate::figures::{Goal, Row, median};
use crate::peers::relay::Servers;

/// Publishes messages of 1 KB one at a time, and then so many at once.
pub(super) struct Load {
    pub(super) singles: usize,
    pub(super) burst: usize,
}

/// What became of it in a group at a relay, and at the same broker without one.
pub(super) struct Compared {
    ours: Delivered,
    plain: Delivered,
    load: Load,
}

impl Load {
    /// From the first member of a group to the others, and to as many clients as `receivers` lacks; and in clear to as many clients.
    pub(super) fn compare(self, servers: &Servers, group: &[Session], receivers: usize) -> Result<Compared, Failure> {
        let ours = sealed(servers, group, receivers, 2 * self.burst)?.measure(&self)?;
        let plain = plain(servers, receivers)?.measure(&self)?;
        Ok(Compared { ours, plain, load: self })
    }
}

impl Compared {
    /// Until the last receiver has one message; and deliveries a second.
    pub(super) fn rows(&self, [last, burst]: [(&str, Goal); 2], to: &str, setting: &str) -> [Row; 2] {
        let (Compared { ours, plain, load }, to) =
            (self, format!("1 KB to {to}, sealed ÷ Mosquitto with plain clients"));
        [
            Row::new(AREA, last.0, format!("{to}: last one, p50"), "ratio", last.1)
                .part("ms", ours.last_ms)
                .part("plain ms", plain.last_ms)
                .measured(ours.last_ms / plain.last_ms, format!("{} messages, one at a time; {setting}", load.singles)),
            Row::new(AREA, burst.0, format!("{to}: deliveries a second of a burst"), "ratio", burst.1)
                .part("deliveries/s", ours.rate)
                .part("plain deliveries/s", plain.rate)
                .measured(ours.rate / plain.rate, format!("{} messages; {setting}", load.burst)),
        ]
    }
}

/// Messages from one to many.
struct FanOut<'a> {
    receivers: usize,
    /// When a receiver got a message.
    hear: Receiver<Instant>,
    publish: Publish<'a>,
    _clients: Clients,
}

type Publish<'a> = Box<dyn FnMut(&[u8]) -> Result<(), Failure> + 'a>;

struct Delivered {
    /// From publishing a message until its last receiver has it; median.
    last_ms: f64,
    /// Deliveries a second while messages are published one after the other.
    rate: f64,
}

impl FanOut<'_> {
    fn measure(mut self, load: &Load) -> Result<Delivered, Failure> {
        (0..WARM).try_for_each(|_| self.send(1).map(drop))?;
        let mut last = Vec::new();
        for _ in 0..load.singles {
            last.push(millis(self.send(1)?));
            std::thread::sleep(PAUSE);
        }
        let took = self.send(load.burst)?;
        Ok(Delivered { last_ms: median(&last), rate: (load.burst * self.receivers) as f64 / took.as_secs_f64() })
    }

    /// Publishes so many, and waits for all deliveries.
    fn send(&mut self, count: usize) -> Result<Duration, Failure> {
        let begun = Instant::now();
        (0..count).try_for_each(|_| (self.publish)(&[7; BYTES]))?;
        let mut last = begun;
        for at in 0..count * self.receivers {
            let heard = self.hear.recv_timeout(TIMEOUT);
            last = last.max(heard.map_err(|_| format!("{at} of {} deliveries came", count * self.receivers))?);
        }
        Ok(last - begun)
    }
}

/// Clients that subscribe, each with a thread that hears; they end with this.
#[derive(Default)]
struct Clients(Vec<TcpStream>);

impl Clients {
    fn subscribe(&mut self, port: u16, name: &str, topic: &str, say: &Sender<Instant>) -> Result<(), Failure> {
        let mut client = PlainClient::connect(port, name)?;
        client.subscribe(topic)?;
        self.0.push(client.stream.try_clone()?);
        let say = say.clone();
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || client.hear(&say))?;
        Ok(())
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.0.iter().for_each(|it| _ = it.shutdown(Shutdown::Both));
    }
}

/// The least that MQTT 3.1.1 asks of a client: QoS 1, one topic, short packets.
struct PlainClient {
    stream: TcpStream,
    packet: u16,
}

impl PlainClient {
    fn connect(port: u16, name: &str) -> Result<PlainClient, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        let mut client = PlainClient { stream, packet: 0 };
        // CONNECT: protocol level 4, clean session, keep-alive off.
        let body = [&[0, 4][..], b"MQTT", &[4, 2, 0, 0], &text(name)].concat();
        client.write(0x10, &body)?;
        if client.read()?.1 != [0, 0] {
            return Err("Mosquitto refuses a client".into());
        }
        Ok(client)
    }

    fn subscribe(&mut self, topic: &str) -> Result<(), Failure> {
        self.write(0x82, &[&[0, 1][..], &text(topic), &[1]].concat())?;
        if self.read()?.1.last() != Some(&1) {
            return Err("Mosquitto refuses a subscription".into());
        }
        Ok(())
    }

    fn publish(&mut self, topic: &str, body: &[u8]) -> Result<(), Failure> {
        self.packet = self.packet.wrapping_add(1).max(1);
        let body = [&text(topic)[..], &self.packet.to_be_bytes(), body].concat();
        Ok(self.write(0x32, &body)?)
    }

    /// Acknowledges what comes, and tells when a message did, until the connection ends.
    fn hear(&mut self, say: &Sender<Instant>) {
        while let Ok((_, packet, body)) = self.published() {
            // Members say other things at the group's topic, too, and all of them are shorter.
            let is_notified = body < BYTES || say.send(Instant::now()).is_ok();
            if !is_notified || self.write(0x40, &packet).is_err() {
                return;
            }
        }
    }

    /// The topic of the next publication, its number and how long it is.
    fn published(&mut self) -> io::Result<(String, [u8; 2], usize)> {
        loop {
            let (kind, packet) = self.read()?;
            if kind & 0xF0 == 0x30 {
                let topic = usize::from(u16::from_be_bytes([packet[0], packet[1]]));
                let (topic, rest) = packet[2..].split_at(topic);
                return Ok((String::from_utf8_lossy(topic).into_owned(), [rest[0], rest[1]], rest.len() - 2));
            }
        }
    }

    fn write(&mut self, kind: u8, body: &[u8]) -> io::Result<()> {
        let mut packet = vec![kind];
        let mut length = body.len();
        loop {
            let more = length >= 0x80;
            packet.push((length & 0x7F) as u8 | u8::from(more) << 7);
            length >>= 7;
            if !more {
                break;
            }
        }
        packet.extend_from_slice(body);
        self.stream.write_all(&packet)
    }

    fn read(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte)?;
        let (kind, mut length, mut shift) = (byte[0], 0, 0);
        loop {
            self.stream.read_exact(&mut byte)?;
            length |= usize::from(byte[0] & 0x7F) << shift;
            shift += 7;
            if byte[0] < 0x80 {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((kind, body))
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

/// Messages from the first member to the others, and to as many clients as are missing: they get what the relay forwards, and
/// open nothing.
fn sealed<'a>(
    servers: &Servers,
    group: &'a [Session],
    receivers: usize,
    capacity: usize,
) -> Result<FanOut<'a>, Failure> {
    let (say, hear) = mpsc::channel();
    let mut clients = Clients::default();
    let missing = receivers - (group.len() - 1);
    if missing > 0 {
        let topic = topic_of(servers, &group[0])?;
        (0..missing).try_for_each(|name| clients.subscribe(servers.mqtt, &format!("other{name}"), &topic, &say))?;
    }
    for session in &group[1..] {
        let mut messages = session.subscribe("load").capacity(capacity).wait()?;
        let say = say.clone();
        std::thread::spawn(move || while messages.wait().is_ok() && say.send(Instant::now()).is_ok() {});
    }
    let publish = |body: &[u8]| Ok(group[0].publish("load", body).wait().map(drop)?);
    Ok(FanOut { receivers, hear, publish: Box::new(publish), _clients: clients })
}

/// The same in clear, without a group.
fn plain(servers: &Servers, receivers: usize) -> Result<FanOut<'static>, Failure> {
    let (say, hear) = mpsc::channel();
    let mut clients = Clients::default();
    (0..receivers).try_for_each(|name| clients.subscribe(servers.mqtt, &format!("plain{name}"), "plain", &say))?;
    let mut publisher = PlainClient::connect(servers.mqtt, "publisher")?;
    let acknowledged = publisher.stream.try_clone()?;
    std::thread::spawn(move || io::copy(&mut { acknowledged }, &mut io::sink()));
    let publish = move |body: &[u8]| publisher.publish("plain", body);
    Ok(FanOut { receivers, hear, publish: Box::new(publish), _clients: clients })
}

/// What the group is called at the broker: the topic of what a member publishes.
fn topic_of(servers: &Servers, member: &Session) -> Result<String, Failure> {
    let mut client = PlainClient::connect(servers.mqtt, "all")?;
    client.subscribe("#")?;
    client.stream.set_read_timeout(Some(TIMEOUT))?;
    member.publish("load", [7; BYTES]).wait()?;
    loop {
        let (topic, _, body) = client.published()?;
        if body > BYTES {
            return Ok(topic);
        }
    }
}

const BYTES: usize = 1024;
const WARM: usize = 3;
const STACK_BYTES: usize = 128 << 10;
const PAUSE: Duration = Duration::from_millis(10);
const TIMEOUT: Duration = Duration::from_secs(60);
