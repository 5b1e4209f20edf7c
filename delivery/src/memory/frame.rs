//! The frames of the in-process ways: what a datagram holds behind its open header or inside its seal.

use sealcast_crypto::hash::Transcript;
use sealcast_wire::limits::{OFFER_BYTES_MAX, TOPIC_BYTES_MAX};
use sealcast_wire::{CertHash, EpochId, Fetch, FetchId, Fetched, Malformed, Reader, Writer};

/// Names an ordered message by its content: sent again, it is the same message.
pub(crate) type EntryId = [u8; 16];

/// The hash of all that is ordered up to somewhere.
pub(crate) type Chain = [u8; 32];

/// The order with one more message.
pub(crate) fn chained(before: &Chain, id: &EntryId) -> Chain {
    Transcript::new("sealcast/v1/mem/order").add(before).add(id).finish()
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// A key scheme's message.
    Keys(&'a [u8]),
    /// Application data; always inside a seal, except where nothing is sealed at all.
    Data(Data<'a>),
    /// Application data that the scheme sealed as a whole.
    Sealed { topic: &'a str, header: &'a [u8], body: &'a [u8] },
    /// To the orderer: give this a place.
    Submit { id: EntryId, payload: &'a [u8] },
    /// From the orderer: this has a position, behind all that has this hash.
    Entry { index: u64, id: EntryId, before: Chain, payload: &'a [u8] },
    /// From the orderer to the submitter: it has that position, behind all that has this hash.
    Ordered { id: EntryId, index: u64, before: Chain },
    /// To the orderer: send again from this index on; `u64::MAX` asks only for the head.
    Again { from: u64 },
    /// From the orderer: the next index to be given.
    Head { next: u64 },
    /// From a broker: its share, digest or proof for a message.
    Attachment { index: u64, broker: u16, bytes: &'a [u8] },
    /// To whoever keeps things: give me this.
    Fetch { id: FetchId, what: Fetch },
    /// The answer.
    Answer { id: FetchId, result: Fetched },
    /// To whoever keeps things: keep this.
    Provide { what: Fetch, bytes: &'a [u8] },
    /// The answer: it is kept.
    Kept { what: Fetch },
    /// In the order: up to here the view before this prepared epoch is flushed.
    Flush { epoch: EpochId },
    /// To other members: a relay's receipt for the end of its log, as the sender knows it.
    Receipt(&'a [u8]),
    /// To other members: that their relay signed two logs.
    Evidence(&'a [u8]),
}

/// Application data as a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data<'a> {
    pub(super) number: u64,
    pub(super) sent_micros: Option<u64>,
    /// The sender's proof over topic, number and body; empty if it gave none.
    pub(super) proof: &'a [u8],
    pub(super) topic: &'a str,
    pub(super) body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads a frame that may be padded.
    pub(crate) fn parse_padded(bytes: &'a [u8]) -> Result<Frame<'a>, Malformed> {
        let mut r = Reader::new(bytes);
        if r.u8()? != PADDED {
            return Frame::parse(bytes);
        }
        let length = usize::try_from(r.u32()?).map_err(|_| Malformed)?;
        let frame = Frame::parse(r.take(length)?)?;
        if r.rest().iter().any(|&it| it != 0) { Err(Malformed) } else { Ok(frame) }
    }

    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Frame<'a>, Malformed> {
        let mut r = Reader::new(bytes);
        let frame = match r.u8()? {
            0 => Frame::Keys(r.rest()),
            1 => Frame::Data(Data {
                number: r.u64()?,
                sent_micros: option(&mut r, |r| r.u64())?,
                proof: r.bytes16(PROOF_BYTES_MAX)?,
                topic: text(&mut r)?,
                body: r.rest(),
            }),
            2 => Frame::Sealed { topic: text(&mut r)?, header: r.bytes16(usize::from(u16::MAX))?, body: r.rest() },
            3 => Frame::Submit { id: r.array()?, payload: r.rest() },
            4 => Frame::Entry { index: r.u64()?, id: r.array()?, before: r.array()?, payload: r.rest() },
            5 => Frame::Ordered { id: r.array()?, index: r.u64()?, before: r.array()? },
            7 => Frame::Again { from: r.u64()? },
            8 => Frame::Head { next: r.u64()? },
            9 => Frame::Attachment { index: r.u64()?, broker: r.u16()?, bytes: r.rest() },
            10 => Frame::Fetch { id: FetchId(r.u64()?), what: what(&mut r)? },
            11 => Frame::Answer {
                id: FetchId(r.u64()?),
                result: match r.u8()? {
                    0 => Fetched::Missing,
                    1 => Fetched::Bytes(r.rest().to_vec()),
                    _ => return Err(Malformed),
                },
            },
            12 => Frame::Provide { what: what(&mut r)?, bytes: bounded(r.rest())? },
            13 => Frame::Kept { what: what(&mut r)? },
            14 => Frame::Flush { epoch: EpochId { counter: r.u32()?, hash: r.u64()? } },
            15 => Frame::Receipt(r.rest()),
            16 => Frame::Evidence(r.rest()),
            _ => return Err(Malformed),
        };
        r.end()?;
        Ok(frame)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        match self {
            Frame::Keys(bytes) => w.u8(0).raw(bytes),
            Frame::Data(d) => {
                w.u8(1).u64(d.number);
                match d.sent_micros {
                    Some(t) => w.u8(1).u64(t),
                    None => w.u8(0),
                };
                w.bytes16(d.proof).bytes16(d.topic.as_bytes()).raw(d.body)
            }
            Frame::Sealed { topic, header, body } => w.u8(2).bytes16(topic.as_bytes()).bytes16(header).raw(body),
            Frame::Submit { id, payload } => w.u8(3).raw(id).raw(payload),
            Frame::Entry { index, id, before, payload } => w.u8(4).u64(*index).raw(id).raw(before).raw(payload),
            Frame::Ordered { id, index, before } => w.u8(5).raw(id).u64(*index).raw(before),
            Frame::Again { from } => w.u8(7).u64(*from),
            Frame::Head { next } => w.u8(8).u64(*next),
            Frame::Attachment { index, broker, bytes } => w.u8(9).u64(*index).u16(*broker).raw(bytes),
            Frame::Fetch { id, what } => put_what(w.u8(10).u64(id.0), what),
            Frame::Answer { id, result } => match result {
                Fetched::Missing | Fetched::NotAsked => w.u8(11).u64(id.0).u8(0),
                Fetched::Bytes(bytes) => w.u8(11).u64(id.0).u8(1).raw(bytes),
            },
            Frame::Provide { what, bytes } => put_what(w.u8(12), what).raw(bytes),
            Frame::Kept { what } => put_what(w.u8(13), what),
            Frame::Flush { epoch } => w.u8(14).raw(&epoch.to_bytes()),
            Frame::Receipt(bytes) => w.u8(15).raw(bytes),
            Frame::Evidence(bytes) => w.u8(16).raw(bytes),
        };
        w.finish()
    }
}

fn option<'a, T>(
    r: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Option<T>, Malformed> {
    match r.u8()? {
        0 => Ok(None),
        1 => read(r).map(Some),
        _ => Err(Malformed),
    }
}

fn text<'a>(r: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    std::str::from_utf8(r.bytes16(TOPIC_BYTES_MAX)?).map_err(|_| Malformed)
}

fn bounded(bytes: &[u8]) -> Result<&[u8], Malformed> {
    if bytes.len() > OFFER_BYTES_MAX { Err(Malformed) } else { Ok(bytes) }
}

fn what(r: &mut Reader<'_>) -> Result<Fetch, Malformed> {
    match r.u8()? {
        0 => Ok(Fetch::Blob(r.array()?)),
        1 => Ok(Fetch::KeyPackage(CertHash(r.array()?))),
        2 => Ok(Fetch::Shares { index: r.u64()?, proved: option(r, |_| Ok(()))?.is_some() }),
        4 => Ok(Fetch::Key),
        5 => Ok(Fetch::Mail(CertHash(r.array()?))),
        _ => Err(Malformed),
    }
}

fn put_what<'w>(w: &'w mut Writer, what: &Fetch) -> &'w mut Writer {
    match what {
        Fetch::Blob(hash) => w.u8(0).raw(hash),
        Fetch::KeyPackage(cert) => w.u8(1).raw(&cert.0),
        Fetch::Shares { index, proved } => w.u8(2).u64(*index).u8(u8::from(*proved)),
        Fetch::Key => w.u8(4),
        Fetch::Mail(cert) => w.u8(5).raw(&cert.0),
    }
}

/// The kind of a frame that holds another one: its length, itself, zeros.
pub(crate) const PADDED: u8 = 17;
const PROOF_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_zeros_and_holds_no_padding() {
        let frame = Frame::Keys(b"hello").bytes();
        let padded =
            |frame: &[u8], zeros: &[u8]| [&[PADDED][..], &(frame.len() as u32).to_be_bytes(), frame, zeros].concat();
        assert_eq!(Frame::parse_padded(&frame), Ok(Frame::Keys(b"hello")));
        assert_eq!(Frame::parse_padded(&padded(&frame, &[])), Ok(Frame::Keys(b"hello")));
        let whole = padded(&frame, &[0; 9]);
        assert_eq!(Frame::parse_padded(&whole), Ok(Frame::Keys(b"hello")));
        assert!(Frame::parse(&whole).is_err());
        for bad in
            [padded(&frame, &[0, 1]), padded(&padded(&frame, &[]), &[]), whole[..4].to_vec(), whole[..8].to_vec()]
        {
            assert!(Frame::parse_padded(&bad).is_err());
        }
    }

    #[test]
    fn every_frame_round_trips_and_no_prefix_is_taken_for_more() {
        let data = Data { number: 5, sent_micros: Some(7), proof: b"proof", topic: "a/b", body: b"body" };
        for frame in [
            Frame::Keys(b"hello"),
            Frame::Data(data),
            Frame::Data(Data { sent_micros: None, proof: &[], ..data }),
            Frame::Sealed { topic: "t", header: b"h", body: b"b" },
            Frame::Submit { id: [1; 16], payload: b"c" },
            Frame::Entry { index: 1, id: [2; 16], before: [9; 32], payload: b"c" },
            Frame::Ordered { id: [3; 16], index: 4, before: [8; 32] },
            Frame::Again { from: 8 },
            Frame::Head { next: 8 },
            Frame::Attachment { index: 1, broker: 2, bytes: b"share" },
            Frame::Fetch { id: FetchId(1), what: Fetch::Blob([5; 32]) },
            Frame::Fetch { id: FetchId(1), what: Fetch::KeyPackage(CertHash([6; 32])) },
            Frame::Fetch { id: FetchId(1), what: Fetch::Shares { index: 3, proved: true } },
            Frame::Fetch { id: FetchId(1), what: Fetch::Key },
            Frame::Fetch { id: FetchId(1), what: Fetch::Mail(CertHash([6; 32])) },
            Frame::Answer { id: FetchId(1), result: Fetched::Missing },
            Frame::Answer { id: FetchId(1), result: Fetched::Bytes(vec![1]) },
            Frame::Provide { what: Fetch::Blob([5; 32]), bytes: b"blob" },
            Frame::Kept { what: Fetch::Blob([5; 32]) },
            Frame::Flush { epoch: EpochId { counter: 2, hash: 3 } },
            Frame::Receipt(b"receipt"),
            Frame::Evidence(b"evidence"),
        ] {
            let bytes = frame.bytes();
            assert_eq!(Frame::parse(&bytes), Ok(frame.clone()));
            for n in 0..bytes.len() {
                assert_ne!(Frame::parse(&bytes[..n]), Ok(frame.clone()));
            }
        }
    }
}
