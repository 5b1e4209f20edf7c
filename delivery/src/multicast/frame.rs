//! Frames: what the plaintext of a sealed datagram (a *record*) consists of.
//!
//! ```text
//! record = frame … frame [padding] [origin proof]          the proof where the header says FLAG_SIGNED
//!
//!            0      1           2        6        14       18       22
//! whole      | kind | topic len | length | number | [sent] | topic | body |
//! piece      | kind | topic len | length | number | total  | offset | [sent] | topic | bytes |
//!              u8     u8          u32      u64      u32      u32      u64
//! heartbeat  | 3 | number u64 |
//! control    | 4 | length u16 | bytes |                           of the reliable channel; in the group's own domain
//! after      | 5 | domain u16 | signed u8 | number u64 |          in a reliable record, before all but others of its kind
//! stamps     | 6 | first u64 | count u8 | (slot u32, number u64, safe u8, hash 16 bytes) … |       in a stream of their own
//! named      | 8 | first u64 | count u8 | (hash 16 bytes) … |    in an ordered record, of ordered records before it
//! padding    | 0 … 0 |                                           to the end of the frames
//!
//! kind of whole and piece: bits 0–4: 1 whole message, 2 piece of a message
//!                          bit 5 (0x20): sealed again, after an epoch in which not all got it
//!                          bit 6 (0x40): a key scheme's message; topic length is 0
//!                          bit 7 (0x80): `sent` is there: the sender's clock, µs since 1970
//! ```
//! Integers are big-endian. `length` is that of what follows the topic; `number` counts the messages of a
//! sender up from 1 over all topics and epochs of one incarnation; `total` is the length of the whole body
//! and `offset` is the place of the bytes in it. Each piece names its topic, so that a receiver can pass
//! over it without putting it together. Keys and heartbeats are good in `Domain::GROUP` only.

use sealcast_crypto::hash::sha256;
use sealcast_wire::codec::{Malformed, Reader};
use sealcast_wire::frame::{HEADER_LEN, SEGMENT_MIN, TAG_LEN};
use sealcast_wire::{Domain, Slot};

use super::origin::PROOF_BYTES_MAX;
use super::parity::PARITY_BYTES;

/// One of a sender's reliable streams in an epoch: its records are numbered from 1 and come in that order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stream {
    /// The domain that its records are sealed in.
    pub domain: Domain,
    /// Whether they end in an origin proof.
    pub signed: bool,
}

impl Stream {
    /// A member's ordered records, of whatever domain, signed or not.
    pub const ORDERED: Stream = Stream { domain: Domain::GROUP, signed: false };
    /// What the sequencer says of their order.
    pub const STAMPS: Stream = Stream { domain: Domain::GROUP, signed: true };

    /// Whether its messages are put in order by their sender alone; what a sender did not get acknowledged of those is sealed
    /// again in the next epoch.
    pub fn is_fifo(self) -> bool {
        self.domain != Domain::GROUP
    }

    /// Appends its 3 bytes.
    pub fn write(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.domain.0.to_be_bytes());
        bytes.push(u8::from(self.signed));
    }

    /// Reads them.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(r: &mut Reader<'_>) -> Result<Stream, Malformed> {
        let domain = Domain(r.u16()?);
        match r.u8()? {
            signed @ 0..=1 => Ok(Stream { domain, signed: signed == 1 }),
            _ => Err(Malformed),
        }
    }
}

/// One frame; borrowed from its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A whole message.
    Whole {
        /// What it is about.
        head: Head<'a>,
        /// All of its bytes.
        body: &'a [u8],
    },
    /// A part of a message.
    Piece {
        /// What it is about.
        head: Head<'a>,
        /// Length of the whole body, bytes.
        total: u32,
        /// Where `bytes` belong.
        offset: u32,
        /// The part, at least one byte.
        bytes: &'a [u8],
    },
    /// A sign of life.
    Heartbeat {
        /// The number of the sender's last message.
        number: u64,
    },
    /// Whom a large group's collector heard.
    Heard {
        /// By slot, as bits: of each byte the lowest bit first.
        bits: &'a [u8],
    },
    /// What members say to each other about reliable records.
    Control {
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// What follows comes after this record of another of the sender's streams.
    After {
        /// Which stream.
        stream: Stream,
        /// The record's number there.
        number: u64,
    },
    /// What the sender's ordered records are that not all members can open.
    Named {
        /// The number of the first one.
        first: u64,
        /// They, by ascending numbers: as [`Stamp::hash_of`].
        hashes: Vec<[u8; 16]>,
    },
    /// Which ordered records come next in the order.
    Stamps {
        /// The sequence number of the first one.
        first: u64,
        /// They, by ascending sequence numbers.
        stamps: Vec<Stamp>,
    },
}

/// Which record has a position in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Whose.
    pub slot: Slot,
    /// Its number among its sender's ordered records.
    pub number: u64,
    /// Whether it, and all after it, wait until all members hold it.
    pub safe: bool,
    /// SHA-256 of the datagram as it was sealed, its first bytes (B8).
    pub hash: [u8; 16],
}

impl Stamp {
    /// What names a sealed datagram.
    pub fn hash_of(datagram: &[u8]) -> [u8; 16] {
        let hash = sha256(datagram);
        let (first, _) = hash.split_first_chunk().expect("SHA-256 has 32 bytes");
        *first
    }
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// A key scheme's message, not application data.
    pub keys: bool,
    /// It was sealed for an earlier epoch before.
    pub again: bool,
    /// The sender's number for it.
    pub number: u64,
    /// The sender's clock, microseconds since 1970.
    pub sent_micros: Option<u64>,
    /// At most 255 bytes; empty for a key scheme's message.
    pub topic: &'a str,
}

impl Head<'_> {
    /// Bytes of a `whole` frame before its body.
    pub fn whole_len(&self) -> usize {
        WHOLE_FIXED + self.variable_len()
    }

    /// Bytes of a `piece` frame before its bytes.
    pub fn piece_len(&self) -> usize {
        PIECE_FIXED + self.variable_len()
    }

    /// Appends a `whole` frame.
    ///
    /// # Panics
    /// If topic or body are longer than their length fields; callers check.
    pub fn write_whole(&self, body: &[u8], record: &mut Vec<u8>) {
        let mut fixed = [0; WHOLE_FIXED];
        self.start(WHOLE, body.len(), &mut fixed);
        record.extend_from_slice(&fixed);
        self.finish(body, record);
    }

    /// Appends a `piece` frame.
    ///
    /// # Panics
    /// If a length is longer than its field; callers check.
    pub fn write_piece(&self, total: usize, offset: usize, bytes: &[u8], record: &mut Vec<u8>) {
        let mut fixed = [0; PIECE_FIXED];
        self.start(PIECE, bytes.len(), &mut fixed);
        fixed[14..18].copy_from_slice(&u32_of(total).to_be_bytes());
        fixed[18..22].copy_from_slice(&u32_of(offset).to_be_bytes());
        record.extend_from_slice(&fixed);
        self.finish(bytes, record);
    }

    fn variable_len(&self) -> usize {
        self.topic.len() + if self.sent_micros.is_some() { 8 } else { 0 }
    }

    fn start(&self, kind: u8, length: usize, fixed: &mut [u8]) {
        let keys = if self.keys { KEYS } else { 0 };
        let timed = if self.sent_micros.is_some() { TIMED } else { 0 };
        let again = if self.again { AGAIN } else { 0 };
        fixed[0] = kind | keys | timed | again;
        fixed[1] = u8::try_from(self.topic.len()).expect("senders bound topics");
        fixed[2..6].copy_from_slice(&u32_of(length).to_be_bytes());
        fixed[6..14].copy_from_slice(&self.number.to_be_bytes());
    }

    fn finish(&self, bytes: &[u8], record: &mut Vec<u8>) {
        if let Some(sent) = self.sent_micros {
            record.extend_from_slice(&sent.to_be_bytes());
        }
        record.extend_from_slice(self.topic.as_bytes());
        record.extend_from_slice(bytes);
    }
}

/// Appends a heartbeat.
pub fn write_heartbeat(number: u64, record: &mut Vec<u8>) {
    record.push(HEARTBEAT);
    record.extend_from_slice(&number.to_be_bytes());
}

/// Appends a message about reliable records.
///
/// # Panics
/// If it is longer than its length field; callers check.
pub fn write_control(bytes: &[u8], record: &mut Vec<u8>) {
    record.push(CONTROL);
    record.extend_from_slice(&u16::try_from(bytes.len()).expect("control messages are short").to_be_bytes());
    record.extend_from_slice(bytes);
}

/// Appends what a record comes after.
pub fn write_after(stream: Stream, number: u64, record: &mut Vec<u8>) {
    record.push(AFTER);
    stream.write(record);
    record.extend_from_slice(&number.to_be_bytes());
}

/// Appends whom we heard: by slot, as bits.
///
/// # Panics
/// If there are more than 2,040.
pub fn write_heard(bits: &[u8], record: &mut Vec<u8>) {
    record.push(HEARD);
    record.push(u8::try_from(bits.len()).expect("callers bound members"));
    record.extend_from_slice(bits);
}

/// Appends what comes next in the order.
///
/// # Panics
/// If there are more than [`STAMPS_MAX`].
pub fn write_stamps(first: u64, stamps: &[Stamp], record: &mut Vec<u8>) {
    assert!(stamps.len() <= STAMPS_MAX, "callers bound stamps");
    record.push(STAMPS);
    record.extend_from_slice(&first.to_be_bytes());
    record.push(stamps.len() as u8);
    for stamp in stamps {
        record.extend_from_slice(&stamp.slot.to_bytes());
        record.extend_from_slice(&stamp.number.to_be_bytes());
        record.push(u8::from(stamp.safe));
        record.extend_from_slice(&stamp.hash);
    }
}

/// Appends what the sender's ordered records from this number on are.
///
/// # Panics
/// If there are more than [`NAMED_MAX`].
pub fn write_named(first: u64, hashes: &[[u8; 16]], record: &mut Vec<u8>) {
    assert!(hashes.len() <= NAMED_MAX, "callers bound names");
    record.push(NAMED);
    record.extend_from_slice(&first.to_be_bytes());
    record.push(hashes.len() as u8);
    record.extend(hashes.iter().flatten());
}

/// The frames of a record, in order; after the first malformed one there are no more.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: Reader<'a>,
}

impl<'a> Frames<'a> {
    /// The frames of `record`, which is the opened plaintext without its origin proof.
    pub fn of(record: &'a [u8]) -> Frames<'a> {
        Frames { rest: Reader::new(record) }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.remaining() == 0 {
            return None;
        }
        let frame = read(&mut self.rest).transpose();
        if !matches!(frame, Some(Ok(_))) {
            self.rest.rest();
        }
        frame
    }
}

fn read<'a>(r: &mut Reader<'a>) -> Result<Option<Frame<'a>>, Malformed> {
    let kind = r.u8()?;
    match kind {
        PADDING => {
            let clean = r.rest().iter().all(|&b| b == 0);
            return if clean { Ok(None) } else { Err(Malformed) };
        }
        HEARTBEAT => return Ok(Some(Frame::Heartbeat { number: r.u64()? })),
        CONTROL => {
            let length = usize::from(r.u16()?);
            return Ok(Some(Frame::Control { bytes: r.take(length)? }));
        }
        HEARD => {
            let length = usize::from(r.u8()?);
            return Ok(Some(Frame::Heard { bits: r.take(length)? }));
        }
        AFTER => return Ok(Some(Frame::After { stream: Stream::read(r)?, number: r.u64()? })),
        STAMPS => {
            let (first, count) = (r.u64()?, usize::from(r.u8()?));
            if count > STAMPS_MAX {
                return Err(Malformed);
            }
            let stamps = (0..count).map(|_| read_stamp(r)).collect::<Result<_, _>>()?;
            return Ok(Some(Frame::Stamps { first, stamps }));
        }
        NAMED => {
            let (first, count) = (r.u64()?, usize::from(r.u8()?));
            if count > NAMED_MAX {
                return Err(Malformed);
            }
            return Ok(Some(Frame::Named { first, hashes: (0..count).map(|_| r.array()).collect::<Result<_, _>>()? }));
        }
        _ => {}
    }
    let topic_len = usize::from(r.u8()?);
    let length = r.u32()? as usize;
    let number = r.u64()?;
    let keys = kind & KEYS != 0;
    if keys && topic_len != 0 {
        return Err(Malformed);
    }
    let place = match kind & KIND_MASK {
        WHOLE => None,
        PIECE => Some((r.u32()?, r.u32()?)),
        _ => return Err(Malformed),
    };
    let sent_micros = if kind & TIMED != 0 { Some(r.u64()?) } else { None };
    let topic = std::str::from_utf8(r.take(topic_len)?).map_err(|_| Malformed)?;
    let bytes = r.take(length)?;
    let head = Head { keys, again: kind & AGAIN != 0, number, sent_micros, topic };
    match place {
        None => Ok(Some(Frame::Whole { head, body: bytes })),
        Some((total, offset)) => {
            let end = (offset as usize).checked_add(length).ok_or(Malformed)?;
            if length == 0 || end > total as usize {
                return Err(Malformed);
            }
            Ok(Some(Frame::Piece { head, total, offset, bytes }))
        }
    }
}

fn read_stamp(r: &mut Reader<'_>) -> Result<Stamp, Malformed> {
    let (slot, number) = (Slot(r.u32()?), r.u64()?);
    let safe = match r.u8()? {
        safe @ 0..=1 => safe == 1,
        _ => return Err(Malformed),
    };
    Ok(Stamp { slot, number, safe, hash: r.array()? })
}

fn u32_of(n: usize) -> u32 {
    u32::try_from(n).expect("senders bound messages")
}

const PADDING: u8 = 0;
const WHOLE: u8 = 1;
const PIECE: u8 = 2;
const HEARTBEAT: u8 = 3;
const CONTROL: u8 = 4;
const AFTER: u8 = 5;
const STAMPS: u8 = 6;
const HEARD: u8 = 7;
const NAMED: u8 = 8;
const KIND_MASK: u8 = 0x1F;
const AGAIN: u8 = 0x20;
const KEYS: u8 = 0x40;
const TIMED: u8 = 0x80;

/// Bytes of an `after` frame.
pub(super) const AFTER_BYTES: usize = 12;
/// Stamps of one frame at most.
pub const STAMPS_MAX: usize = 24;
/// Bytes of so many.
pub(super) fn stamps_len(count: usize) -> usize {
    STAMPS_FIXED + count * STAMP_BYTES
}
/// How many fit into so many bytes.
pub(super) fn stamps_within(bytes: usize) -> usize {
    bytes.saturating_sub(STAMPS_FIXED) / STAMP_BYTES
}
const STAMPS_FIXED: usize = 10;
const STAMP_BYTES: usize = 29;
// They fit the shortest segment.
const _: () = assert!(STAMPS_FIXED + STAMPS_MAX * STAMP_BYTES <= SEGMENT_MIN - HEADER_LEN - TAG_LEN - PROOF_BYTES_MAX);
/// Hashes of one `named` frame at most.
pub const NAMED_MAX: usize = 40;
/// Bytes of so many.
pub(super) fn named_len(count: usize) -> usize {
    NAMED_FIXED + count * NAMED_BYTES
}
const NAMED_FIXED: usize = 10;
const NAMED_BYTES: usize = 16;
// They fit the shortest segment, and what is longer than that by a parity.
const _: () = assert!(NAMED_FIXED + NAMED_MAX * NAMED_BYTES <= SEGMENT_MIN - HEADER_LEN - TAG_LEN - PARITY_BYTES);
/// Bytes of a `heard` frame before its bits.
pub(super) const HEARD_FIXED: usize = 2;
/// Bytes of a `control` frame before its bytes.
pub(crate) const CONTROL_FIXED: usize = 3;
const WHOLE_FIXED: usize = 14;
const PIECE_FIXED: usize = 22;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames(record: &[u8]) -> Vec<Result<Frame<'_>, Malformed>> {
        Frames::of(record).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let timed = Head { keys: false, again: true, number: 9, sent_micros: Some(77), topic: "pose/robot7" };
        let keys = Head { keys: true, again: false, number: 10, sent_micros: None, topic: "" };
        let mut record = Vec::new();
        timed.write_whole(b"body", &mut record);
        assert_eq!(record.len(), timed.whole_len() + 4);
        keys.write_piece(100, 40, b"part", &mut record);
        write_heartbeat(11, &mut record);
        write_control(b"nak", &mut record);
        let stream = Stream { domain: Domain(3), signed: true };
        write_after(stream, 12, &mut record);
        let stamp = Stamp { slot: Slot(70_000), number: 13, safe: true, hash: [14; 16] };
        write_stamps(15, &[stamp; 2], &mut record);
        write_heard(&[0b101, 1], &mut record);
        write_named(16, &[[17; 16]; 2], &mut record);
        assert_eq!(
            frames(&record),
            [
                Ok(Frame::Whole { head: timed, body: b"body" }),
                Ok(Frame::Piece { head: keys, total: 100, offset: 40, bytes: b"part" }),
                Ok(Frame::Heartbeat { number: 11 }),
                Ok(Frame::Control { bytes: b"nak" }),
                Ok(Frame::After { stream, number: 12 }),
                Ok(Frame::Stamps { first: 15, stamps: vec![stamp; 2] }),
                Ok(Frame::Heard { bits: &[0b101, 1] }),
                Ok(Frame::Named { first: 16, hashes: vec![[17; 16]; 2] }),
            ]
        );
        let read = frames(&record).len();
        record.extend_from_slice(&[0; 5]);
        assert_eq!(frames(&record).len(), read, "padding is no frame");
        record.push(1);
        assert_eq!(frames(&record)[read], Err(Malformed), "padding hides nothing");
    }

    #[test]
    fn the_layout_is_this() {
        let mut record = Vec::new();
        Head { keys: false, again: false, number: 0x0102, sent_micros: None, topic: "ab" }
            .write_whole(b"xyz", &mut record);
        assert_eq!(record, b"\x01\x02\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x01\x02abxyz");
        record.clear();
        Head { keys: true, again: false, number: 3, sent_micros: Some(4), topic: "" }.write_piece(
            9,
            5,
            b"z",
            &mut record,
        );
        let expect = b"\xC2\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x09\x00\x00\x00\x05";
        assert_eq!(record[..22], expect[..]);
        assert_eq!(record[22..], *b"\x00\x00\x00\x00\x00\x00\x00\x04z");
    }

    #[test]
    fn rule_g2_impossible_frames_are_malformed() {
        let head = Head { keys: false, again: false, number: 1, sent_micros: None, topic: "t" };
        let mut beyond = Vec::new();
        head.write_piece(4, 3, b"ab", &mut beyond);
        let mut empty = Vec::new();
        head.write_piece(4, 3, b"", &mut empty);
        let mut named = Vec::new();
        Head { keys: true, ..head }.write_whole(b"", &mut named);
        for record in [
            &beyond[..],
            &empty,
            &named,
            b"\x05",
            b"\x05\0\x01\x02\0\0\0\0\0\0\0\x01",
            b"\x04\0\x02a",
            b"\x06",
            b"\x07",
            b"\x07\x02\x01",
            b"\x06\0\0\0\0\0\0\0\x01\x01\0\0\0\x01",
            b"\x06\0\0\0\0\0\0\0\x01\xFF",
            b"\x3F123456789012345",
            b"\x01\x01\xFF\xFF\xFF\xFF12345678t",
        ] {
            assert_eq!(frames(record), [Err(Malformed)]);
        }
    }

    proptest! {
        #[test]
        fn rule_g2_any_bytes_are_frames_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let total: usize = frames(&bytes).into_iter().flatten().map(|frame| match frame {
                Frame::Whole { body, .. } => body.len(),
                Frame::Piece { bytes, .. } => bytes.len(),
                Frame::Heartbeat { .. } => 8,
                Frame::Control { bytes } => bytes.len(),
                Frame::After { .. } => 11,
                Frame::Stamps { stamps, .. } => 29 * stamps.len(),
                Frame::Heard { bits } => bits.len(),
                Frame::Named { hashes, .. } => 16 * hashes.len(),
            }).sum();
            prop_assert!(total <= bytes.len());
        }
    }
}
