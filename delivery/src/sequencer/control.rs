//! What members say to each other about reliable records: bodies of control frames.
//!
//! ```text
//! tail    | 01 | count u8 | (stream, number u64) … |                 how far the speaker's own streams go
//! status  | 02 | count u8 | (slot u32, stream, number u64) … |       what the speaker has without a gap
//! summary | 03 | count u8 | (slot u32, stream, number u64) … |       what all readers have so
//! nak     | 04 | slot u32 | stream | count u8 | (first u64, last u64) … |       what the speaker lacks
//! gone    | 05 | stream | first u64 | proof |                        the first record that the speaker still has
//! past    | 0c | first u64 | proof |         the first sequence number of which the sequencer still has anything
//! held    | 06 | u64 |                              so much of the order the speaker holds: stamps and records
//! stable  | 07 | majority u64 | all u64 | slot u32 | so much of it a majority holds, and all; who holds no more, if most do
//! flush   | 08 | epoch 12 | heard: count u8, bits | report |    signed: what the speaker brings into a prepared view, and
//!                                                                     who reported to it
//! parity  | 11 | stream | first u64 | parities u8 | index u8 | shard |      of a block of the speaker's records (`parity.rs`)
//! fill    | 09 | epoch 12 | stamps |        signed: stamps that somebody lacks who stays, as a frame
//! ```
//! leave   | 0a |                         signed, of the ordered stream: the speaker goes
//! slow    | 0b | slot u32 |              signed: this member goes, since it holds all up
//! state   | 0d … 10 |                    about the application's state: `state`
//! Signed ones are in records of the stream that stamps are in, and are judged as they come: nobody asks for missing ones.
//! A stream is 3 bytes ([`Stream`]). All are about the epoch of the record that holds them.

use sealcast_crypto::hash::Transcript;
use sealcast_wire::codec::{Malformed, Reader};
use sealcast_wire::frame::{HEADER_LEN, SEGMENT_MIN, TAG_LEN};
use sealcast_wire::limits::{NAK_RANGES_MAX, REPORT_BYTES_MAX, STREAMS_TOLD_MAX};
use sealcast_wire::protect::SIGNATURE_BYTES;
use sealcast_wire::{EpochId, Slot};

use super::named::{SLOTS_BYTES, Slots};
use super::state::StateMessage;
use crate::multicast::frame::{CONTROL_FIXED, Stream};
use crate::multicast::origin::TRAILER_BYTES;
use crate::multicast::parity::{PARITY, ParityHead};

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Tail(Vec<(Stream, u64)>),
    Status(Vec<(Of, u64)>),
    Summary(Vec<(Of, u64)>),
    Nak {
        of: Of,
        ranges: Vec<(u64, u64)>,
    },
    Ack(u64),
    Stable {
        majority: u64,
        all: u64,
        slowest: Option<Slot>,
    },
    Flush {
        view: EpochId,
        /// The slots of those whose reports the speaker has.
        heard: Slots,
        report: Vec<u8>,
    },
    Fill {
        view: EpochId,
        stamps: Vec<u8>,
    },
    /// Of the ordered stream, signed: its sender votes no more, and counts no more among those whose majority goes on.
    Leave,
    /// Of the sequencer: this member goes, since it holds all up.
    Slow(Slot),
    /// Of a block of its sender's records.
    Parity(ParityHead, Vec<u8>),
    /// `proof` shows that the speaker itself says so (A3), by [`gone_statement`].
    Gone {
        stream: Stream,
        first: u64,
        proof: Vec<u8>,
    },
    /// About the application's state; sealed for the compartment of its topic.
    State(StateMessage),
    /// The same of the order, by the sequencer.
    Past {
        first: u64,
        proof: Vec<u8>,
    },
}

/// What a sender proves that has no record of a stream before the `first` one any more; epoch and slot are bound by who
/// vouches.
pub(super) fn gone_statement(stream: Stream, first: u64) -> [u8; 32] {
    let t = Transcript::new("sealcast/v1/gone").add(&stream.domain.0.to_be_bytes());
    t.add(&[u8::from(stream.signed)]).add(&first.to_be_bytes()).finish()
}

/// A stream of the epoch, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Of {
    pub(super) slot: Slot,
    pub(super) stream: Stream,
}

impl Control {
    /// Its bytes; of lists the first `limits::STREAMS_TOLD_MAX` entries and of ranges the first `limits::NAK_RANGES_MAX`.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Control::Tail(streams) => {
                let streams = &streams[..streams.len().min(STREAMS_TOLD_MAX)];
                bytes.extend_from_slice(&[TAIL, streams.len() as u8]);
                for (stream, number) in streams {
                    stream.write(&mut bytes);
                    bytes.extend_from_slice(&number.to_be_bytes());
                }
            }
            Control::Status(streams) => numbers(STATUS, streams, &mut bytes),
            Control::Summary(streams) => numbers(SUMMARY, streams, &mut bytes),
            Control::Nak { of, ranges } => {
                let ranges = &ranges[..ranges.len().min(NAK_RANGES_MAX)];
                bytes.push(NAK);
                of.write(&mut bytes);
                bytes.push(ranges.len() as u8);
                ranges.iter().for_each(|(first, last)| {
                    bytes.extend_from_slice(&first.to_be_bytes());
                    bytes.extend_from_slice(&last.to_be_bytes());
                });
            }
            Control::Ack(held) => {
                bytes.push(ACK);
                bytes.extend_from_slice(&held.to_be_bytes());
            }
            Control::Stable { majority, all, slowest } => {
                bytes.push(STABLE);
                bytes.extend_from_slice(&majority.to_be_bytes());
                bytes.extend_from_slice(&all.to_be_bytes());
                bytes.extend_from_slice(&slowest.unwrap_or(Slot::MAX).to_bytes());
            }
            Control::Slow(slot) => {
                bytes.push(SLOW);
                bytes.extend_from_slice(&slot.to_bytes());
            }
            Control::Flush { view, heard, report } => {
                bytes.push(FLUSH);
                bytes.extend_from_slice(&view.to_bytes());
                heard.write(&mut bytes);
                bytes.extend_from_slice(report);
            }
            Control::Fill { view, stamps } => {
                bytes.push(FILL);
                bytes.extend_from_slice(&view.to_bytes());
                bytes.extend_from_slice(stamps);
            }
            Control::Leave => bytes.push(LEAVE),
            Control::State(word) => word.write(&mut bytes),
            Control::Past { first, proof } => {
                bytes.push(PAST);
                bytes.extend_from_slice(&first.to_be_bytes());
                bytes.extend_from_slice(proof);
            }
            Control::Parity(head, shard) => head.write(shard, &mut bytes),
            Control::Gone { stream, first, proof } => {
                bytes.push(GONE);
                stream.write(&mut bytes);
                bytes.extend_from_slice(&first.to_be_bytes());
                bytes.extend_from_slice(proof);
            }
        }
        bytes
    }

    /// Reads them.
    pub(super) fn read(bytes: &[u8]) -> Result<Control, Malformed> {
        let mut r = Reader::new(bytes);
        let control = match r.u8()? {
            TAIL => {
                let count = count(&mut r, STREAMS_TOLD_MAX)?;
                Control::Tail((0..count).map(|_| Ok((Stream::read(&mut r)?, r.u64()?))).collect::<Result<_, _>>()?)
            }
            kind @ (STATUS | SUMMARY) => {
                let count = count(&mut r, STREAMS_TOLD_MAX)?;
                let streams = (0..count).map(|_| Ok((Of::read(&mut r)?, r.u64()?))).collect::<Result<_, _>>()?;
                if kind == STATUS { Control::Status(streams) } else { Control::Summary(streams) }
            }
            NAK => {
                let of = Of::read(&mut r)?;
                let count = count(&mut r, NAK_RANGES_MAX)?;
                let ranges: Vec<(u64, u64)> =
                    (0..count).map(|_| Ok((r.u64()?, r.u64()?))).collect::<Result<_, Malformed>>()?;
                let ascend = ranges.windows(2).all(|pair| pair[0].1 < pair[1].0);
                if !ascend || ranges.iter().any(|(first, last)| first > last) {
                    return Err(Malformed);
                }
                Control::Nak { of, ranges }
            }
            GONE => {
                let (stream, first) = (Stream::read(&mut r)?, r.u64()?);
                Control::Gone { stream, first, proof: r.rest().to_vec() }
            }
            PAST => Control::Past { first: r.u64()?, proof: r.rest().to_vec() },
            kind @ (FLUSH | FILL) => {
                let view = EpochId { counter: r.u32()?, hash: r.u64()? };
                match kind {
                    FLUSH => Control::Flush { view, heard: Slots::read(&mut r)?, report: r.rest().to_vec() },
                    _ => Control::Fill { view, stamps: r.rest().to_vec() },
                }
            }
            LEAVE => Control::Leave,
            SLOW => Control::Slow(Slot(r.u32()?)),
            PARITY => {
                let (head, shard) = ParityHead::read(&mut r)?;
                Control::Parity(head, shard)
            }
            ACK => Control::Ack(r.u64()?),
            STABLE => {
                let (majority, all) = (r.u64()?, r.u64()?);
                if all > majority {
                    return Err(Malformed);
                }
                let slowest = Some(Slot(r.u32()?)).filter(|slot| *slot != Slot::MAX);
                Control::Stable { majority, all, slowest }
            }
            kind => Control::State(StateMessage::read(kind, &mut r)?.ok_or(Malformed)?),
        };
        r.end()?;
        Ok(control)
    }
}

impl Of {
    fn write(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.slot.to_bytes());
        self.stream.write(bytes);
    }

    fn read(r: &mut Reader<'_>) -> Result<Of, Malformed> {
        Ok(Of { slot: Slot(r.u32()?), stream: Stream::read(r)? })
    }
}

fn numbers(kind: u8, streams: &[(Of, u64)], bytes: &mut Vec<u8>) {
    let streams = &streams[..streams.len().min(STREAMS_TOLD_MAX)];
    bytes.extend_from_slice(&[kind, streams.len() as u8]);
    for (of, number) in streams {
        of.write(bytes);
        bytes.extend_from_slice(&number.to_be_bytes());
    }
}

fn count(r: &mut Reader<'_>, most: usize) -> Result<usize, Malformed> {
    Some(usize::from(r.u8()?)).filter(|count| *count <= most).ok_or(Malformed)
}

const TAIL: u8 = 1;
const STATUS: u8 = 2;
const SUMMARY: u8 = 3;
const NAK: u8 = 4;
const GONE: u8 = 5;
const ACK: u8 = 6;
const STABLE: u8 = 7;
const FLUSH: u8 = 8;
const FILL: u8 = 9;
const LEAVE: u8 = 10;
const SLOW: u8 = 11;
const PAST: u8 = 12;

/// Bytes of a frame that fits the shortest segment.
pub(super) const ROOM: usize = SEGMENT_MIN - HEADER_LEN - TAG_LEN - CONTROL_FIXED;
const _: () = assert!(2 + STREAMS_TOLD_MAX * (4 + 3 + 8) <= ROOM && 9 + NAK_RANGES_MAX * 16 <= ROOM);
const _: () = assert!(1 + 12 + 1 + SLOTS_BYTES + REPORT_BYTES_MAX + SIGNATURE_BYTES + TRAILER_BYTES <= ROOM);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sealcast_wire::Domain;

    use super::*;

    const OF: Of = Of { slot: Slot(70_000), stream: Stream { domain: Domain(3), signed: true } };

    #[test]
    fn what_is_written_is_read_and_nothing_shorter_or_longer() {
        let all = [
            Control::Tail(vec![(OF.stream, 7), (OF.stream, u64::MAX)]),
            Control::Status(vec![(OF, 9)]),
            Control::Summary(Vec::new()),
            Control::Nak { of: OF, ranges: vec![(1, 1), (4, 9)] },
            Control::Ack(u64::MAX),
            Control::Leave,
            Control::Stable { majority: 9, all: 9, slowest: None },
            Control::Stable { majority: 9, all: 3, slowest: Some(Slot(2)) },
            Control::Slow(Slot(2)),
        ];
        let view = EpochId { counter: 3, hash: 4 };
        for control in [
            Control::Flush { view, heard: [0, 2, 63, 255].into_iter().map(Slot).collect(), report: vec![5; 6] },
            Control::Fill { view, stamps: vec![8; 9] },
        ] {
            assert_eq!(Control::read(&control.bytes()), Ok(control));
        }
        for control in all {
            let bytes = control.bytes();
            assert_eq!(Control::read(&bytes), Ok(control));
            assert!((0..bytes.len()).all(|n| Control::read(&bytes[..n]).is_err()));
            assert_eq!(Control::read(&[&bytes[..], &[0]].concat()), Err(Malformed));
        }
        let gone = Control::Gone { stream: OF.stream, first: 12, proof: vec![7; 64] };
        assert_eq!(Control::read(&gone.bytes()), Ok(gone.clone()));
        assert!((0..12).all(|n| Control::read(&gone.bytes()[..n]).is_err()));
        let past = Control::Past { first: 12, proof: vec![7; 64] };
        assert_eq!(Control::read(&past.bytes()), Ok(past.clone()));
        assert!((0..9).all(|n| Control::read(&past.bytes()[..n]).is_err()));
        assert_eq!(Control::read(&Control::Stable { majority: 8, all: 9, slowest: None }.bytes()), Err(Malformed));
        for ranges in [vec![(2, 1)], vec![(1, 4), (4, 9)], vec![(5, 6), (1, 2)]] {
            assert_eq!(Control::read(&Control::Nak { of: OF, ranges }.bytes()), Err(Malformed));
        }
    }

    #[test]
    fn rule_g2_parities_of_no_block_are_malformed() {
        let good = ParityHead { stream: OF.stream, first: 129, parities: 3, index: 2 };
        let read = |head: ParityHead, len: usize| Control::read(&Control::Parity(head, vec![5; len]).bytes());
        assert_eq!(read(good, 40), Ok(Control::Parity(good, vec![5; 40])));
        for (head, len) in [
            (good, 41),
            (good, 4),
            (good, 0),
            (ParityHead { first: 0, ..good }, 40),
            (ParityHead { first: 130, ..good }, 40),
            (ParityHead { first: u64::MAX - 62, ..good }, 40),
            (ParityHead { index: 3, ..good }, 40),
            (ParityHead { parities: 33, ..good }, 40),
            (ParityHead { stream: Stream::STAMPS, ..good }, 40),
        ] {
            assert_eq!(read(head, len), Err(Malformed), "{head:?}");
        }
    }

    #[test]
    fn rule_g2_long_lists_are_cut_and_claimed_lengths_allocate_nothing() {
        let many = Control::Status(vec![(OF, 1); 300]);
        assert!(matches!(Control::read(&many.bytes()), Ok(Control::Status(read)) if read.len() == STREAMS_TOLD_MAX));
        assert_eq!(Control::read(&[STATUS, 255]), Err(Malformed));
    }

    /// `delivery/vectors/records.json`: made by a second implementation.
    #[test]
    fn rule_g9_control_messages_are_those_of_the_vectors_both_ways() {
        let vectors: serde_json::Value =
            serde_json::from_str(include_str!("../../vectors/records.json")).expect("vectors are JSON");
        let number = |v: &serde_json::Value| v.as_u64().expect("a number");
        let stream =
            |v: &[serde_json::Value]| Stream { domain: Domain(number(&v[0]) as u16), signed: number(&v[1]) == 1 };
        let of = |v: &[serde_json::Value]| Of { slot: Slot(number(&v[0]) as u32), stream: stream(&v[1..]) };
        let controls = vectors["controls"].as_array().expect("a list");
        assert_eq!(controls.len(), 5);
        for v in controls {
            let streams: Vec<&[serde_json::Value]> =
                v["streams"].as_array().expect("a list").iter().map(|it| &it.as_array().expect("a list")[..]).collect();
            let control = match v["what"].as_str().expect("a name") {
                "TAIL" => Control::Tail(streams.iter().map(|it| (stream(it), number(&it[2]))).collect()),
                "STATUS" => Control::Status(streams.iter().map(|it| (of(it), number(&it[3]))).collect()),
                "SUMMARY" => Control::Summary(streams.iter().map(|it| (of(it), number(&it[3]))).collect()),
                "NAK" => {
                    let ranges = v["ranges"].as_array().expect("a list").iter();
                    Control::Nak {
                        of: of(streams[0]),
                        ranges: ranges.map(|it| (number(&it[0]), number(&it[1]))).collect(),
                    }
                }
                "GONE" => {
                    Control::Gone { stream: stream(streams[0]), first: number(&streams[0][2]), proof: vec![9; 64] }
                }
                other => panic!("no message is called {other}"),
            };
            let text = v["bytes"].as_str().expect("hexadecimal");
            let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
            let bytes: Vec<u8> = (0..text.len()).step_by(2).map(byte).collect();
            assert_eq!(control.bytes(), bytes);
            assert_eq!(Control::read(&bytes), Ok(control));
        }
    }

    proptest! {
        #[test]
        fn rule_g2_any_bytes_are_a_message_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(control) = Control::read(&bytes) {
                prop_assert_eq!(control.bytes(), bytes);
            }
        }
    }
}
