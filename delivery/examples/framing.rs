//! Nanoseconds per message of framing and sealing, without sockets.
//!
//! ```text
//! cargo run --release -p sealcast-delivery --example framing
//! ```
//! `send` is `Sender::data` with its share of `Sender::poll`: packing, cutting, signing, sealing. `receive`
//! is `Protect::open` with the `Receiver`: proofs and reassembly. `aead` seals as many bytes in datagrams of
//! the same length and is the floor of both. Figures are medians over bursts of 64 KB.

#[allow(dead_code)]
#[path = "../src/testing.rs"]
mod testing;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealcast_delivery::multicast::{Data, ETHERNET_SEGMENT, Received, Receiver, Sender, Sink};
use sealcast_delivery::reassembly::Bounds;
use sealcast_wire::{Address, Domain, Guarantee, Monotonic, Protect, Source, limits};

fn main() {
    println!(
        "{:>8} {:>9} {:>8} {:>10} {:>10} {:>10} {:>9}",
        "bytes", "segment", "way", "send ns", "receive ns", "aead ns", "datagrams"
    );
    for bytes in [100, 1_000, 60_000] {
        for segment in [ETHERNET_SEGMENT, 16_000, 32_000] {
            for protection in [Protection::Sealed, Protection::Signed] {
                row(bytes, segment, protection);
            }
        }
        row(bytes, ETHERNET_SEGMENT, Protection::Plain);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protection {
    Plain,
    Sealed,
    Signed,
}

fn row(bytes: usize, segment: usize, protection: Protection) {
    let Figures { send, receive, aead, messages, datagrams } = run(bytes, segment, protection);
    let each = |t: Vec<Duration>| median(t).as_nanos() as usize / messages;
    let (protection, share) = (format!("{protection:?}").to_lowercase(), datagrams as f64 / messages as f64);
    let segment = if protection == "plain" { "-".to_owned() } else { segment.to_string() };
    println!(
        "{bytes:>8} {segment:>9} {protection:>8} {:>10} {:>10} {:>10} {share:>9.2}",
        each(send),
        each(receive),
        each(aead)
    );
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// What each burst took, and what is in a burst.
struct Figures {
    send: Vec<Duration>,
    receive: Vec<Duration>,
    aead: Vec<Duration>,
    messages: usize,
    datagrams: usize,
}

/// Sends and receives bursts of 64 KB, so that caches see what they see in a session.
fn run(bytes: usize, segment: usize, protection: Protection) -> Figures {
    let members = testing::group(1, 2);
    let protect: Option<&Arc<dyn Protect>> = (protection != Protection::Plain).then_some(&members[0]);
    let mut sender = Sender::new(segment, protection == Protection::Plain);
    let mut receiver = Receiver::new(limits::DETECT, Bounds::default());
    let body = vec![7; bytes];
    let messages = (64_000 / bytes).max(1);
    let now = Monotonic(0);
    let mut count = Count::default();
    let mut figures = Figures { send: Vec::new(), receive: Vec::new(), aead: Vec::new(), messages, datagrams: 0 };
    let mut scratch = Vec::new();
    for _ in 0..BURSTS {
        let start = Instant::now();
        for _ in 0..messages {
            let signed = protection == Protection::Signed;
            let data = Data {
                topic: "pose/robot7",
                domain: Domain(1),
                signed,
                guarantee: Guarantee::BestEffort,
                sent_micros: None,
                body: &body,
            };
            sender.data(now, protect, data).expect("there is room");
        }
        let ready: Vec<_> = std::iter::from_fn(|| sender.poll()).collect();
        figures.send.push(start.elapsed());
        scratch.clear();
        ready.iter().for_each(|batch| scratch.extend_from_slice(&batch.bytes));
        let lengths: Vec<usize> = ready.iter().flat_map(|batch| batch.lengths.iter().copied()).collect();
        figures.datagrams = lengths.len();

        let start = Instant::now();
        each_datagram(&mut scratch, &lengths, |datagram| {
            if protection == Protection::Plain {
                let source = Source::Outside(Address::Node(1));
                return receiver.handle(now, source, 0, datagram, None, &mut count);
            }
            let (source, flags, record) = members[1].open(datagram).expect("sealed by the group");
            receiver.handle(now, source, flags, record, Some(&*members[1]), &mut count);
        });
        figures.receive.push(start.elapsed());

        let start = Instant::now();
        if protection != Protection::Plain {
            each_datagram(&mut scratch, &lengths, |datagram| {
                members[1].seal(Domain(2), 0, datagram).expect("counters last");
            });
        }
        figures.aead.push(start.elapsed());
    }
    assert_eq!(count.0, messages * BURSTS, "every message arrives");
    figures
}

fn each_datagram(mut bytes: &mut [u8], lengths: &[usize], mut act: impl FnMut(&mut [u8])) {
    for &length in lengths {
        let (datagram, rest) = bytes.split_at_mut(length);
        bytes = rest;
        act(datagram);
    }
}

#[derive(Default)]
struct Count(usize);

impl Sink for Count {
    fn message(&mut self, message: Received<'_>) {
        std::hint::black_box(&message);
        self.0 += 1;
    }

    fn keys(&mut self, _: Source, _: Cow<'_, [u8]>) {}
}

const BURSTS: usize = 1_000;
