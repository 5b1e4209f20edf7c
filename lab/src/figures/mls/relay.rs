//! A group at a relay of this machine: Mosquitto and `sealcast-relay`, and members that are sessions of this process. All share its
//! cores.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use sealcast::config::{Home, KeptIdentity};
use sealcast::session::Identity;
use sealcast::{Session, open};

use super::{AREA, millis, resident_bytes};
use crate::Failure;
use crate::figures::brokers::disk;
use crate::figures::{Bench, Goal, Row, median};
use crate::peers::identities::Identities;
use crate::peers::relay::Servers;

pub(in crate::figures) const RELAY: &[&str] = &["mls-fanout", "mls-burst", "mls-evict", "mls-relay-memory"];

/// All rows of one group.
pub(in crate::figures) fn relay(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let (members, evictions) = bench.pick((20, 3), (100, 9));
    let (singles, burst) = bench.pick((20, 100), (100, 300));
    let servers = Servers::start(&disk())?;
    let identities = Identities::new(members)?;
    let mut group = Vec::new();
    for member in 0..members {
        bench.bar.tick();
        group.push(session(&servers, &identities, member)?);
        together(&group)?;
    }
    let receivers = members - 1;
    let ours = {
        let (say, hear) = mpsc::channel();
        for session in &group[1..] {
            let mut messages = session.subscribe("load").capacity(2 * burst).wait()?;
            let say = say.clone();
            std::thread::spawn(move || while messages.wait().is_ok() && say.send(Instant::now()).is_ok() {});
        }
        let publish = |body: &[u8]| Ok(group[0].publish("load", body).wait().map(drop)?);
        FanOut { receivers, hear, publish: Box::new(publish) }.measure(singles, burst)?
    };
    let plain = {
        let (say, hear) = mpsc::channel();
        for name in 0..receivers {
            let mut client = PlainClient::connect(servers.mqtt, &format!("plain{name}"))?;
            client.subscribe("plain")?;
            let say = say.clone();
            std::thread::spawn(move || client.hear(&say));
        }
        let mut publisher = PlainClient::connect(servers.mqtt, "publisher")?;
        let acknowledged = publisher.stream.try_clone()?;
        std::thread::spawn(move || io::copy(&mut { acknowledged }, &mut io::sink()));
        FanOut { receivers, hear, publish: Box::new(move |body: &[u8]| publisher.publish("plain", body)) }
            .measure(singles, burst)?
    };
    let memory = servers.processes().map(resident_bytes).sum::<Result<u64, Failure>>()? as f64 / 1e6;
    let mut evicted = Vec::new();
    for _ in 0..evictions {
        bench.bar.tick();
        let Some(last) = group.pop() else { break };
        let begun = Instant::now();
        let eviction = group[0].evict(identities.name(group.len()).as_str(), "lost laptop");
        std::thread::scope(|scope| {
            scope.spawn(move || _ = eviction.wait());
            together(&group)?;
            evicted.push(millis(begun.elapsed()));
            Ok::<(), Failure>(())
        })?;
        last.close();
        std::thread::sleep(SETTLED);
    }
    let setting = format!(
        "{members} members of keys=mls in one process, Mosquitto and sealcast-relay on the same cores, loopback, directory on {}",
        disk().display()
    );
    let row = |id: &str, what: String, unit, goal| Row::new(AREA, id, what, unit, goal);
    let to = format!("1 KB to {receivers} subscribers, sealed ÷ Mosquitto with plain clients");
    Ok(vec![
        row("mls-fanout", format!("{to}: last one, p50"), "ratio", Goal::AtMost(1.3))
            .part("ms", ours.last_ms)
            .part("plain ms", plain.last_ms)
            .measured(ours.last_ms / plain.last_ms, format!("{singles} messages, one at a time; {setting}")),
        row("mls-burst", format!("{to}: deliveries a second of a burst"), "ratio", Goal::AtLeast(1.0))
            .part("deliveries/s", ours.rate)
            .part("plain deliveries/s", plain.rate)
            .measured(ours.rate / plain.rate, format!("{burst} messages; {setting}")),
        row(
            "mls-evict",
            format!("eviction from a group of {members}: command to the last on the new key"),
            "ms",
            Goal::AtMost(150.0),
        )
        .measured(median(&evicted), format!("median of {evictions}; {setting}")),
        row("mls-relay-memory", "memory of the relay after the burst".into(), "MB", Goal::AtMost(256.0))
            .measured(memory, format!("resident sets of sealcast-relay and Mosquitto; {setting}")),
    ])
}

fn session(servers: &Servers, identities: &Identities, member: usize) -> Result<Session, Failure> {
    let kept = KeptIdentity::load(&Home::at(identities.home()), &identities.name(member))?;
    let identity = Arc::new(kept.identity()?.ok_or("it has no certificate")?);
    let session = open(&servers.url).identity(Identity::Loaded(identity)).wait()?;
    session.ready().wait()?;
    Ok(session)
}

/// Waits until all sessions are in one view of all of them.
fn together(group: &[Session]) -> Result<(), Failure> {
    let begun = Instant::now();
    // From the last one to the first: the one that was waited for last is seen to be there with the others.
    for session in group.iter().rev() {
        while session.view().is_none_or(|view| view.members.len() != group.len()) {
            if begun.elapsed() > TIMEOUT {
                return Err(format!("no view of all {} members within {TIMEOUT:?}", group.len()).into());
            }
            std::thread::sleep(LOOK);
        }
    }
    Ok(())
}

/// Messages from one to many.
struct FanOut<'a> {
    receivers: usize,
    /// When a receiver got a message.
    hear: Receiver<Instant>,
    publish: Publish<'a>,
}

type Publish<'a> = Box<dyn FnMut(&[u8]) -> Result<(), Failure> + 'a>;

struct Delivered {
    /// From publishing a message until its last receiver has it; median.
    last_ms: f64,
    /// Deliveries a second while messages are published one after the other.
    rate: f64,
}

impl FanOut<'_> {
    fn measure(mut self, singles: usize, burst: usize) -> Result<Delivered, Failure> {
        (0..WARM).try_for_each(|_| self.send(1).map(drop))?;
        let mut last = Vec::new();
        for _ in 0..singles {
            last.push(millis(self.send(1)?));
            std::thread::sleep(PAUSE);
        }
        let took = self.send(burst)?;
        Ok(Delivered { last_ms: median(&last), rate: (burst * self.receivers) as f64 / took.as_secs_f64() })
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

    /// Acknowledges what comes, and tells when, until the connection ends.
    fn hear(&mut self, say: &Sender<Instant>) {
        while let Ok((kind, body)) = self.read() {
            if kind & 0xF0 != 0x30 {
                continue;
            }
            let topic = usize::from(u16::from_be_bytes([body[0], body[1]]));
            if say.send(Instant::now()).is_err() || self.write(0x40, &body[2 + topic..4 + topic]).is_err() {
                return;
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

const BYTES: usize = 1024;
const WARM: usize = 3;
const LOOK: Duration = Duration::from_micros(200);
const PAUSE: Duration = Duration::from_millis(10);
const SETTLED: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(60);
