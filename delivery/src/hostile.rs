//! A target for hostile bytes: every parser of this crate that the network reaches, in one place.
//!
//! The lab throws mutated datagrams at it, unsealed ones as unauthenticated senders send them and opened ones as a
//! hostile member seals them, and asks three things: it never panics, it never holds more than
//! [`Target::bytes_max`], and what unsealed bytes do never shows in what members said. [`Points`] tells
//! how much of the parsers the bytes came through.

use std::borrow::Cow;

use sealcast_wire::frame::FLAG_SIGNED;
use sealcast_wire::{Address, Dropped, Drops, Header, Monotonic, Protect, Source, limits};

use crate::lcm;
use crate::multicast::frame::{Frame, Frames};
use crate::multicast::{Received, Receiver, Sink};
use crate::reassembly::Bounds;

/// The parsers with the state behind them.
#[derive(Debug)]
pub struct Target {
    sealed: Receiver,
    plain: Receiver,
    bounds: Bounds,
}

/// The places in the parsers that bytes came through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Points(u32);

impl Target {
    /// Fresh state.
    pub fn new(bounds: Bounds) -> Target {
        Target { sealed: Receiver::new(limits::DETECT, bounds), plain: Receiver::new(limits::DETECT, bounds), bounds }
    }

    /// A datagram of anybody: read as LCM's and as the header of a sealed one.
    pub fn datagram(&mut self, now: Monotonic, from: Address, datagram: &[u8]) -> Points {
        let mut points = Points::default();
        if Header::parse(datagram).is_ok() {
            points.reach("header");
        }
        if datagram.starts_with(lcm::LONG) {
            points.reach("lcm fragment");
        }
        let mut seen = Seen::default();
        let before = self.plain.drops();
        self.plain.handle(now, Source::Outside(from), 0, datagram, None, &mut seen);
        if seen.messages > 0 {
            points.reach(if datagram.starts_with(lcm::LONG) { "lcm put together" } else { "lcm whole" });
        }
        points.reach_drops(&before, &self.plain.drops());
        points
    }

    /// A record that a member sealed, opened.
    pub fn record(
        &mut self,
        now: Monotonic,
        source: Source,
        flags: u8,
        record: &[u8],
        protect: &dyn Protect,
    ) -> Points {
        let mut points = Points::default();
        for frame in Frames::of(record) {
            points.reach(match frame {
                Ok(Frame::Whole { head, .. }) if head.keys => "keys",
                Ok(Frame::Whole { .. }) => "whole",
                Ok(Frame::Piece { .. }) => "piece",
                Ok(Frame::Heartbeat { .. }) => "heartbeat",
                Ok(Frame::Control { .. }) => "control",
                Ok(Frame::After { .. }) => "after",
                Ok(Frame::Stamps { .. }) => "stamps",
                Ok(Frame::Heard { .. }) => "heard",
                Ok(Frame::Named { .. }) => "named",
                Err(_) => "bad frame",
            });
        }
        let mut seen = Seen::default();
        let before = self.sealed.drops();
        self.sealed.handle(now, source, flags, record, Some(protect), &mut seen);
        if seen.messages + seen.keys > 0 {
            points.reach(if flags & FLAG_SIGNED != 0 { "proved" } else { "taken" });
        }
        points.reach_drops(&before, &self.sealed.drops());
        points
    }

    /// Time passes.
    pub fn handle_timeout(&mut self, now: Monotonic) {
        self.sealed.handle_timeout(now);
        self.plain.handle_timeout(now);
    }

    /// Bytes held for incomplete messages.
    pub fn bytes(&self) -> usize {
        self.sealed.bytes() + self.plain.bytes()
    }

    /// The most that [`Target::bytes`] may ever be.
    pub fn bytes_max(&self) -> usize {
        // Each half holds sealed records' and LCM's pieces apart, of which one stays empty.
        2 * self.bounds.bytes
    }

    /// What was dropped, by reason.
    pub fn drops(&self) -> Drops {
        let mut drops = self.sealed.drops();
        drops.add(&self.plain.drops());
        drops
    }
}

impl Points {
    /// All there are.
    pub const ALL: [&'static str; 24] = [
        "header",
        "lcm whole",
        "lcm fragment",
        "lcm put together",
        "whole",
        "piece",
        "keys",
        "heartbeat",
        "bad frame",
        "taken",
        "proved",
        "malformed",
        "auth",
        "replay",
        "no-key",
        "old-key",
        "policy",
        "queue",
        "rate",
        "incomplete",
        "foreign",
        "stale",
        "conflict",
        "too-long",
    ];

    /// Adds others.
    pub fn add(&mut self, others: Points) {
        self.0 |= others.0;
    }

    /// Their names.
    pub fn iter(self) -> impl Iterator<Item = &'static str> {
        Points::ALL.into_iter().enumerate().filter(move |(i, _)| self.0 >> i & 1 == 1).map(|(_, name)| name)
    }

    fn reach(&mut self, point: &str) {
        let i = Points::ALL.iter().position(|name| *name == point).expect("only names of ALL are reached");
        self.0 |= 1 << i;
    }

    fn reach_drops(&mut self, before: &Drops, after: &Drops) {
        for (i, why) in Dropped::ALL.into_iter().enumerate() {
            if after.of(why) > before.of(why) {
                self.0 |= 1 << (FIRST_DROP + i);
            }
        }
    }
}

#[derive(Default)]
struct Seen {
    messages: usize,
    keys: usize,
}

impl Sink for Seen {
    fn message(&mut self, _: Received<'_>) {
        self.messages += 1;
    }

    fn keys(&mut self, _: Source, _: Cow<'_, [u8]>) {
        self.keys += 1;
    }
}

/// Where the reasons of drops begin in [`Points::ALL`], in the order of [`Dropped::ALL`].
const FIRST_DROP: usize = Points::ALL.len() - Dropped::ALL.len();

#[cfg(test)]
mod tests {
    use sealcast_wire::{Domain, Guarantee, Slot};

    use super::*;
    use crate::multicast::{Data, ETHERNET_SEGMENT, Sender};
    use crate::testing::{Ring, group, incarnation};

    #[test]
    fn the_points_of_drops_have_the_names_of_their_reasons() {
        for (i, why) in Dropped::ALL.into_iter().enumerate() {
            assert_eq!(Points::ALL[FIRST_DROP + i], why.to_string());
        }
    }

    /// Recorded datagrams with one or two bytes changed, thousands of times.
    #[test]
    fn mutated_traffic_comes_through_the_parsers_and_harms_nobody() {
        let members = group(1, 2);
        let mut sender = Sender::new(ETHERNET_SEGMENT, false);
        let long = [3; 5000];
        for (signed, body) in [(false, &b"short"[..]), (true, b"short"), (false, &long), (true, &long)] {
            let data = Data {
                topic: "pose/robot7",
                domain: Domain(0),
                signed,
                guarantee: Guarantee::BestEffort,
                sent_micros: Some(1),
                body,
            };
            sender.data(Monotonic(0), Some(&members[0]), data).expect("sealed");
        }
        sender.keys(Monotonic(0), Some(&members[0]), b"keys").expect("sealed");
        sender.heartbeat(Monotonic(0), &members[0]).expect("sealed");
        let mut records = Vec::new();
        while let Some(batch) = sender.poll() {
            for datagram in batch.iter() {
                let mut datagram = datagram.to_vec();
                let (_, flags, record) = members[1].open(&mut datagram).expect("sealed by the group");
                records.push((flags, record.to_vec()));
            }
        }
        let (mut plain, mut batch) = (lcm::Encoder::default(), crate::Batch::default());
        for len in [10, 70_000] {
            plain.encode("c1", &vec![1; len], &mut batch).expect("LCM takes it");
        }
        let foreign: Vec<_> = batch.iter().map(<[u8]>::to_vec).collect();

        let hostile = Ring::member(1, 0, 2);
        let mut target = Target::new(Bounds { bytes: 1 << 20, bytes_per_sender: 1 << 19, ..Bounds::default() });
        let (mut points, mut random) = (Points::default(), 1_u64);
        let mut draw = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        for n in 0..20_000 {
            let now = Monotonic(n * 100);
            let is_foreign = n % 4 != 0;
            let (flags, mut bytes) = if is_foreign {
                (0, foreign[draw(foreign.len())].clone())
            } else {
                records[draw(records.len())].clone()
            };
            for _ in 0..draw(3) {
                let at = draw(bytes.len().min(64));
                bytes[at] = [0, 1, 0x7F, 0xFF, draw(256) as u8][draw(5)];
            }
            bytes.truncate(bytes.len() - draw(4).saturating_sub(2));
            points.add(if is_foreign {
                target.datagram(now, Address::Node(draw(5) as u32), &bytes)
            } else {
                let slot = Slot(draw(2) as u32);
                let (domain, counter) = (Domain(draw(2) as u16), n);
                let source =
                    Source::Inside { epoch: hostile.epoch(), slot, incarnation: incarnation(slot), counter, domain };
                target.record(now, source, flags, &bytes, &hostile)
            });
            if n % 1000 == 0 {
                target.handle_timeout(now);
            }
            assert!(target.bytes() <= target.bytes_max());
        }
        let missed: Vec<_> = Points::ALL.into_iter().filter(|name| !points.iter().any(|p| p == *name)).collect();
        // Those are other parts' business, or need a timer.
        let others = ["header", "no-key", "old-key", "policy", "queue", "rate", "incomplete", "stale"];
        assert!(missed.iter().all(|name| others.contains(name)), "not reached: {missed:?}");
    }
}
