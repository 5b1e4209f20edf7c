//! LCM's datagrams, byte for byte: what plain groups speak with every other LCM program.
//!
//! ```text
//! LC02, a whole message:
//!   0        4          8
//!   | "LC02" | sequence | channel | NUL | data |
//! LC03, one fragment:
//!   0        4          8           12       16       18      20
//!   | "LC03" | sequence | data size | offset | number | count | channel | NUL | data |   number = 0
//!   | "LC03" | sequence | data size | offset | number | count | data |                   number > 0
//! ```
//! Integers are big-endian. `data size` and `offset` count the message's data without the channel.
//! Source: LCM 1.5.3, `lcm/udpm_util.h` and `lcm_udpm.c`, thresholds as on Linux; fragments of other
//! sizes (Apple: 1,423) are taken as well. Nothing here is authenticated: whoever is on the network can
//! forge and spoil plain messages, so all that this code promises against a hostile peer is bounds.

use std::borrow::Cow;

use sealcast_wire::codec::{Malformed, Reader};
use sealcast_wire::{Address, Dropped, Drops, Monotonic, limits};

use crate::reassembly::{Bounds, Piece, Reassembly};
use crate::{Batch, SendError};

/// Makes LC02 and LC03 datagrams.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    sequence: u32,
}

impl Encoder {
    /// An encoder whose first message has this sequence number; LCM's own start at 0.
    pub fn new(sequence: u32) -> Encoder {
        Encoder { sequence }
    }

    /// Appends the message's datagrams to `batch` and returns its sequence number, which wraps.
    ///
    /// # Errors
    /// [`SendError::BadTopic`] for a channel of more than [`CHANNEL_BYTES_MAX`] bytes or with a NUL in
    /// it; [`SendError::TooLong`] beyond `limits::MESSAGE_BYTES_MAX`, which is less than LCM's own limit
    /// of 65,535 fragments.
    pub fn encode(&mut self, channel: &str, data: &[u8], batch: &mut Batch) -> Result<u32, SendError> {
        if channel.len() > CHANNEL_BYTES_MAX || channel.as_bytes().contains(&0) {
            return Err(SendError::BadTopic);
        }
        if data.len() > limits::MESSAGE_BYTES_MAX {
            return Err(SendError::TooLong);
        }
        let sequence = self.sequence;
        self.sequence = self.sequence.wrapping_add(1);
        let payload = channel.len() + 1 + data.len();
        if payload <= SHORT_BYTES_MAX {
            datagram(batch, |bytes| {
                bytes.extend_from_slice(SHORT);
                bytes.extend_from_slice(&sequence.to_be_bytes());
                bytes.extend_from_slice(channel.as_bytes());
                bytes.push(0);
                bytes.extend_from_slice(data);
            });
            return Ok(sequence);
        }
        let count = u16::try_from(payload.div_ceil(FRAGMENT_BYTES)).expect("MESSAGE_BYTES_MAX bounds the count");
        let size = u32::try_from(data.len()).expect("MESSAGE_BYTES_MAX is below 4 GB");
        let mut offset = 0;
        for number in 0..count {
            let room = FRAGMENT_BYTES - if number == 0 { channel.len() + 1 } else { 0 };
            let end = data.len().min(offset + room);
            datagram(batch, |bytes| {
                bytes.extend_from_slice(LONG);
                bytes.extend_from_slice(&sequence.to_be_bytes());
                bytes.extend_from_slice(&size.to_be_bytes());
                bytes.extend_from_slice(&u32::try_from(offset).expect("at most size").to_be_bytes());
                bytes.extend_from_slice(&number.to_be_bytes());
                bytes.extend_from_slice(&count.to_be_bytes());
                if number == 0 {
                    bytes.extend_from_slice(channel.as_bytes());
                    bytes.push(0);
                }
                bytes.extend_from_slice(&data[offset..end]);
            });
            offset = end;
        }
        debug_assert_eq!(offset, data.len(), "the fragments carry all of the data");
        Ok(sequence)
    }
}

fn datagram(batch: &mut Batch, write: impl FnOnce(&mut Vec<u8>)) {
    let start = batch.bytes.len();
    write(&mut batch.bytes);
    batch.lengths.push(batch.bytes.len() - start);
}

/// Reads LC02 and LC03 datagrams and puts fragments together, keyed by (address, port, sequence).
#[derive(Debug)]
pub struct Decoder {
    partial: Reassembly<Address, u32, String>,
    drops: Drops,
}

/// A message of LCM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The sender's sequence number; wraps, and proves nothing.
    pub sequence: u32,
    /// The channel, at most [`CHANNEL_BYTES_MAX`] bytes.
    pub channel: Cow<'a, str>,
    /// The data; borrowed from an LC02 datagram.
    pub data: Cow<'a, [u8]>,
}

impl Decoder {
    /// A decoder that holds at most what `bounds` says.
    pub fn new(bounds: Bounds) -> Decoder {
        Decoder { partial: Reassembly::new(bounds), drops: Drops::default() }
    }

    /// Takes in one datagram; the message that it is or completes.
    pub fn handle<'a>(&mut self, now: Monotonic, from: Address, datagram: &'a [u8]) -> Option<Message<'a>> {
        match Datagram::parse(datagram) {
            Ok(Datagram::Short { sequence, channel, data }) => {
                Some(Message { sequence, channel: channel.into(), data: data.into() })
            }
            Ok(Datagram::Fragment { sequence, size, count, offset, channel, data }) => {
                let piece = Piece {
                    total: size as usize,
                    count: u32::from(count),
                    offset: offset as usize,
                    bytes: data,
                    head: channel.map(str::to_owned),
                };
                let (channel, data) = self.partial.insert(now, from, sequence, piece)?;
                Some(Message { sequence, channel: channel.into(), data: data.into() })
            }
            Err(why) => {
                self.drops.count(why);
                None
            }
        }
    }

    /// When [`Decoder::handle_timeout`] wants to be called next.
    pub fn timeout(&self) -> Option<Monotonic> {
        self.partial.timeout()
    }

    /// Gives up messages whose next fragment did not come in time.
    pub fn handle_timeout(&mut self, now: Monotonic) {
        self.partial.handle_timeout(now);
    }

    /// Bytes held for incomplete messages.
    pub fn bytes(&self) -> usize {
        self.partial.bytes()
    }

    /// What was dropped, by reason.
    pub fn drops(&self) -> Drops {
        let mut drops = self.drops.clone();
        drops.add(self.partial.drops());
        drops
    }
}

/// A datagram that has the form of one; borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Datagram<'a> {
    Short { sequence: u32, channel: &'a str, data: &'a [u8] },
    Fragment { sequence: u32, size: u32, count: u16, offset: u32, channel: Option<&'a str>, data: &'a [u8] },
}

impl<'a> Datagram<'a> {
    fn parse(datagram: &'a [u8]) -> Result<Datagram<'a>, Dropped> {
        let mut r = Reader::new(datagram);
        match &r.array::<4>()? {
            SHORT => {
                let sequence = r.u32()?;
                let (channel, data) = channel(r.rest())?;
                Ok(Datagram::Short { sequence, channel, data })
            }
            LONG => {
                let (sequence, size, offset) = (r.u32()?, r.u32()?, r.u32()?);
                let (number, count) = (r.u16()?, r.u16()?);
                if number >= count || (number == 0 && offset != 0) {
                    return Err(Dropped::Malformed);
                }
                let (channel, data) = if number == 0 {
                    let (channel, data) = channel(r.rest())?;
                    (Some(channel), data)
                } else {
                    (None, r.rest())
                };
                let end = u64::from(offset) + data.len() as u64;
                if end > u64::from(size) {
                    return Err(Dropped::Malformed);
                }
                Ok(Datagram::Fragment { sequence, size, count, offset, channel, data })
            }
            _ => Err(Dropped::Foreign),
        }
    }
}

/// The channel before the first NUL, and what follows it.
fn channel(bytes: &[u8]) -> Result<(&str, &[u8]), Malformed> {
    let end = bytes.iter().take(CHANNEL_BYTES_MAX + 1).position(|&b| b == 0).ok_or(Malformed)?;
    let channel = std::str::from_utf8(&bytes[..end]).map_err(|_| Malformed)?;
    Ok((channel, &bytes[end + 1..]))
}

/// LCM's `LCM2_MAGIC_SHORT`.
pub const SHORT: &[u8; 4] = b"LC02";
/// LCM's `LCM2_MAGIC_LONG`.
pub const LONG: &[u8; 4] = b"LC03";
/// LCM's `LCM_MAX_CHANNEL_NAME_LENGTH`.
pub const CHANNEL_BYTES_MAX: usize = 63;
/// LCM's `LCM_SHORT_MESSAGE_MAX_SIZE` on Linux: channel, NUL and data of an LC02 datagram.
pub const SHORT_BYTES_MAX: usize = 65_499;
/// LCM's `LCM_FRAGMENT_MAX_PAYLOAD` on Linux: what one LC03 datagram carries behind its header.
pub const FRAGMENT_BYTES: usize = 65_487;

const _: () = assert!((limits::MESSAGE_BYTES_MAX + CHANNEL_BYTES_MAX + 1).div_ceil(FRAGMENT_BYTES) <= 65_535);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sealcast_crypto::hash::sha256;
    use serde::Deserialize;

    use super::*;

    /// `delivery/vectors/lcm.json`: what LCM's own libraries put on the wire.
    #[derive(Deserialize)]
    struct Vectors {
        messages: Vec<Vector>,
    }

    #[derive(Deserialize)]
    struct Vector {
        by: String,
        channel: String,
        sequence: u32,
        data_bytes: usize,
        datagrams: Vec<Golden>,
    }

    #[derive(Deserialize)]
    struct Golden {
        bytes: usize,
        head: String,
        sha256: String,
    }

    /// The data of the vectors.
    fn data(n: usize) -> Vec<u8> {
        (0..n).map(|k| (7 * k + k / 256) as u8).collect()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    fn encode(sequence: u32, channel: &str, data: &[u8]) -> Vec<Vec<u8>> {
        let mut batch = Batch::default();
        let encoded = Encoder::new(sequence).encode(channel, data, &mut batch);
        assert_eq!(encoded, Ok(sequence));
        batch.iter().map(<[u8]>::to_vec).collect()
    }

    fn from(port: u16) -> Address {
        Address::Socket(([127, 0, 0, 1], port).into())
    }

    fn decode(decoder: &mut Decoder, datagrams: &[Vec<u8>]) -> Vec<(String, Vec<u8>)> {
        let mut messages = Vec::new();
        for datagram in datagrams {
            let message = decoder.handle(Monotonic(0), from(1), datagram);
            messages.extend(message.map(|m| (m.channel.into_owned(), m.data.into_owned())));
        }
        messages
    }

    fn fragment(seq: u32, size: u32, offset: u32, number: u16, count: u16, rest: &[u8]) -> Vec<u8> {
        let mut d = LONG.to_vec();
        d.extend_from_slice(&[seq.to_be_bytes(), size.to_be_bytes(), offset.to_be_bytes()].concat());
        d.extend_from_slice(&[number.to_be_bytes(), count.to_be_bytes()].concat());
        d.extend_from_slice(rest);
        d
    }

    #[test]
    fn our_datagrams_are_those_of_lcm_byte_for_byte_and_back() {
        let vectors: Vectors = serde_json::from_str(include_str!("../vectors/lcm.json")).expect("vectors are JSON");
        assert!(vectors.messages.len() > 20);
        for v in vectors.messages {
            let what = format!("{} bytes on {:?} by {}", v.data_bytes, v.channel, v.by);
            let ours = encode(v.sequence, &v.channel, &data(v.data_bytes));
            assert_eq!(ours.len(), v.datagrams.len(), "{what}");
            for (ours, theirs) in ours.iter().zip(&v.datagrams) {
                assert_eq!(ours.len(), theirs.bytes, "{what}");
                assert_eq!(hex(&ours[..ours.len().min(32)]), theirs.head, "{what}");
                assert_eq!(hex(&sha256(ours)), theirs.sha256, "{what}");
            }
            let mut decoder = Decoder::new(Bounds::default());
            assert_eq!(decode(&mut decoder, &ours), [(v.channel, data(v.data_bytes))], "{what}");
            assert_eq!((decoder.bytes(), decoder.drops()), (0, Drops::default()), "{what}");
        }
    }

    #[test]
    fn what_cannot_be_said_in_lcm_is_refused() {
        let (mut encoder, mut batch) = (Encoder::default(), Batch::default());
        assert_eq!(encoder.encode(&"x".repeat(64), b"", &mut batch), Err(SendError::BadTopic));
        assert_eq!(encoder.encode("a\0b", b"", &mut batch), Err(SendError::BadTopic));
        let too_long = vec![0; limits::MESSAGE_BYTES_MAX + 1];
        let error = encoder.encode("c", &too_long, &mut batch).expect_err("too long");
        assert!(error.to_string().contains("MESSAGE_BYTES_MAX"), "the limit names itself: {error}");
        assert!(batch.is_empty());
        assert_eq!(encoder.encode("c", b"", &mut batch), Ok(0), "refused messages use no number");
    }

    #[test]
    fn a_size_beyond_our_memory_is_counted_as_such() {
        let mut decoder = Decoder::new(Bounds::default());
        let size = u32::try_from(limits::MESSAGE_BYTES_MAX).expect("fits") + 1;
        assert_eq!(decoder.handle(Monotonic(0), from(1), &fragment(0, size, 0, 0, 2000, b"c\0x")), None);
        assert_eq!((decoder.drops().of(Dropped::TooLong), decoder.bytes()), (1, 0));
    }

    #[test]
    fn senders_and_sequences_are_kept_apart() {
        let (a, b) = (encode(5, "c", &[1; 70_000]), encode(5, "c", &[2; 70_000]));
        let mut decoder = Decoder::new(Bounds::default());
        assert_eq!(decoder.handle(Monotonic(0), from(1), &a[0]), None);
        assert_eq!(decoder.handle(Monotonic(0), from(2), &b[0]), None);
        for (port, datagram, expect) in [(1, &a[1], 1), (2, &b[1], 2)] {
            let whole = decoder.handle(Monotonic(0), from(port), datagram).expect("whole");
            assert!(whole.data.len() == 70_000 && whole.data.iter().all(|&byte| byte == expect));
        }
    }

    #[test]
    fn w2_eight_bytes_kill_nobody() {
        let mut decoder = Decoder::new(Bounds::default());
        for magic in ["LC02", "LC03", "LC04", "LC05", "LCM1", "\x5C\x01\x00\x00"] {
            for n in 0..40 {
                let datagram = [magic.as_bytes(), &vec![0xFF; n]].concat();
                assert_eq!(decoder.handle(Monotonic(0), from(1), &datagram), None);
            }
        }
        assert_eq!(decoder.bytes(), 0);
        assert_eq!(decoder.drops().iter().map(|(_, n)| n).sum::<u64>(), 6 * 40);
    }

    #[test]
    fn w3_an_offset_near_the_end_of_memory_is_refused() {
        let mut decoder = Decoder::new(Bounds::default());
        for offset in [0xFFFF_FFF0, 0xFFFF_FFFF, 0x8000_0000, 36, 37] {
            for size in [36, 100, u32::MAX, 0x7FFF_FFFF] {
                assert_eq!(decoder.handle(Monotonic(0), from(1), &fragment(1, size, offset, 1, 2, &[0; 36])), None);
            }
        }
        assert_eq!(decoder.handle(Monotonic(0), from(1), &fragment(2, 36, 4, 0, 1, b"c\0abc")), None);
        assert_eq!(decoder.handle(Monotonic(0), from(1), &fragment(2, 36, 0, 2, 2, b"abc")), None);
        assert!(decoder.bytes() < 4096, "{} bytes held", decoder.bytes());
    }

    #[test]
    fn w8_long_messages_on_short_channels_arrive() {
        for channel in ["c", "c1", "pose/robot7", &"x".repeat(63)] {
            let mut decoder = Decoder::new(Bounds::default());
            let sent = data(100 * 1024);
            assert_eq!(decode(&mut decoder, &encode(0, channel, &sent)), [(channel.to_owned(), sent)]);
        }
    }

    #[test]
    fn w10_the_plain_sequence_wraps_and_the_next_message_arrives() {
        let (mut encoder, mut batch) = (Encoder::new(u32::MAX), Batch::default());
        let body = data(70_000);
        for expect in [u32::MAX, 0, 1] {
            assert_eq!(encoder.encode("c", &body, &mut batch), Ok(expect));
        }
        let datagrams: Vec<_> = batch.iter().map(<[u8]>::to_vec).collect();
        assert_eq!(decode(&mut Decoder::new(Bounds::default()), &datagrams).len(), 3);
    }

    #[test]
    fn w15_every_byte_on_the_wire_is_meant() {
        // Header, channel, NUL and data account for each byte: no padding, network order.
        assert_eq!(encode(0x0102_0304, "ab", b"xyz"), [b"LC02\x01\x02\x03\x04ab\0xyz".to_vec()]);
        let long = encode(0x0102_0304, "ab", &[9; 65_497]);
        let expect = [&b"LC03\x01\x02\x03\x04\x00\x00\xFF\xD9\x00\x00\x00\x00\x00\x00\x00\x02ab\0"[..], &[9; 65_484]];
        assert_eq!(long[0], expect.concat());
        let expect = [&b"LC03\x01\x02\x03\x04\x00\x00\xFF\xD9\x00\x00\xFF\xCC\x00\x01\x00\x02"[..], &[9; 13]];
        assert_eq!(long[1], expect.concat());
    }

    #[test]
    fn w16_fragments_of_other_systems_are_taken() {
        // Apple's LCM cuts at 1,423 bytes; nothing here depends on the system we run on.
        let body = data(10_000);
        let first = 1_423 - 2;
        let mut datagrams = vec![fragment(3, 10_000, 0, 0, 8, &[b"c\0", &body[..first]].concat())];
        for (i, part) in body[first..].chunks(1_423).enumerate() {
            let offset = u32::try_from(first + i * 1_423).expect("small");
            datagrams.push(fragment(3, 10_000, offset, u16::try_from(i + 1).expect("small"), 8, part));
        }
        assert_eq!(datagrams.len(), 8);
        datagrams.reverse();
        assert_eq!(decode(&mut Decoder::new(Bounds::default()), &datagrams), [("c".to_owned(), body)]);
    }

    /// Lengths around every threshold, and up to 3 MB.
    fn length() -> impl Strategy<Value = usize> {
        prop_oneof![
            4 => 0_usize..2_000,
            4 => (1_usize..4, 0_usize..140).prop_map(|(n, d)| n * FRAGMENT_BYTES + 70 - d),
            2 => 0_usize..300_000,
            1 => Just(3 << 20),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn messages_round_trip_shuffled_and_doubled(
            n in length(), channel in "[a-z/]{0,63}", seed in any::<u64>(), lose in any::<bool>(),
        ) {
            let sent = data(n);
            let mut datagrams = encode(9, &channel, &sent);
            let mut lost = lose.then(|| datagrams.swap_remove(seed as usize % datagrams.len()));
            datagrams.extend_from_within(..datagrams.len() / 2);
            let mut order: Vec<_> = (0..datagrams.len()).collect();
            order.sort_by_key(|&i| (i as u64 + 1).wrapping_mul(seed | 1).rotate_left(17));
            let shuffled: Vec<_> = order.into_iter().map(|i| datagrams[i].clone()).collect();
            let mut decoder = Decoder::new(Bounds::default());
            let mut got = decode(&mut decoder, &shuffled);
            if let Some(lost) = lost.take() {
                prop_assert!(got.is_empty());
                got = decode(&mut decoder, &[lost]);
            }
            prop_assert!(!got.is_empty());
            prop_assert!(got.iter().all(|m| *m == (channel.clone(), sent.clone())));
            decoder.handle_timeout(Monotonic(10_000_000));
            prop_assert_eq!(decoder.bytes(), 0);
        }

        #[test]
        fn rule_g2_any_datagrams_hold_little_and_never_panic(
            datagrams in prop::collection::vec(
                (prop_oneof![Just(&b"LC02"[..]), Just(&b"LC03"[..]), Just(&b""[..])],
                 prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 0..80), any::<u16>()), 0..100)
        ) {
            let mut decoder = Decoder::new(Bounds::default());
            let mut received = 0;
            for (magic, rest, port) in datagrams {
                let datagram = [magic, &rest].concat();
                received += datagram.len();
                decoder.handle(Monotonic(0), from(port), &datagram);
                prop_assert!(decoder.bytes() <= 4 * received + 1024 * 600);
            }
        }
    }
}
