//! What a client may ask one broker, without ordering anything.

use sealcast_wire::{Malformed, Reader, Writer, limits};

use super::flag;
use crate::operation::Header;
use crate::operation::publication::{read_headers, write_headers};
use crate::state::Subject;

/// A query. `min_height` is the highest block whose effects the client has seen (E9): a broker that has not executed it
/// answers [`super::Why::Behind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// The client's update of a block, with contents and bodies.
    Update {
        /// The block.
        height: u64,
    },
    /// What became of the batch with this operation of the client.
    Result {
        /// The operation's number.
        number: u64,
    },
    /// The proof of what became of an operation of the client (E1).
    Receipt {
        /// The block that executed it.
        height: u64,
        /// The operation's number.
        number: u64,
    },
    /// The proof of a publication's place, for who may read it and would show it to others.
    Witness {
        /// The publication.
        sn: u64,
    },
    /// What stands at a topic's place.
    TopicPosition {
        /// The topic, and its value if it has one.
        header: Header,
        /// The place.
        ps: u64,
    },
    /// What stands at a topic's places from one on.
    Range {
        /// The topic.
        header: Header,
        /// The first place.
        from: u64,
        /// How many at most, of `READ_POSITIONS_MAX`.
        limit: u16,
        /// E9.
        min_height: u64,
    },
    /// The last place of a topic.
    Latest {
        /// The topic.
        header: Header,
        /// E9.
        min_height: u64,
    },
    /// A value of the key–value state.
    Value {
        /// The topic that the key belongs to.
        topic: String,
        /// The key.
        key: Vec<u8>,
        /// E9.
        min_height: u64,
    },
    /// What a subscription got from a place on.
    Resume {
        /// Its number.
        subscription: u64,
        /// The first place that the client lacks.
        place: u64,
        /// Looking at operations from this sn on.
        sn: u64,
        /// E9.
        min_height: u64,
    },
    /// The operations of publications that the client may read.
    Bodies {
        /// Their sns, ascending.
        sns: Vec<u64>,
    },
    /// The broker's share of a sealed publication that the client may read, or ⊥.
    Share {
        /// The publication.
        sn: u64,
        /// Whether with proof and signature (E4).
        proved: bool,
    },
    /// Where the broker stands.
    Status,
    /// The threshold key.
    Key,
    /// How far back the broker goes; asked by brokers alone.
    History,
    /// The broker's word on the state after a block; asked by brokers alone.
    Checkpoint {
        /// The block.
        height: u64,
    },
    /// Bytes of a snapshot's rows; asked by brokers alone.
    Part {
        /// The snapshot's height.
        height: u64,
        /// Where they begin.
        offset: u64,
    },
    /// The proofs that the broker keeps of what others did (E4).
    Evidence,
    /// The global policy in force, whole.
    Policy {
        /// E9.
        min_height: u64,
    },
    /// What has become of a client, a certificate or a claim; asked by administrators alone.
    Subject {
        /// Which.
        subject: Subject,
        /// E9.
        min_height: u64,
    },
}

impl Query {
    /// ```text
    /// 1 ‖ u64 height | 2 ‖ u64 number | 3 ‖ u64 height ‖ u64 number | 4 ‖ header ‖ u64 ps
    /// 5 ‖ header ‖ u64 from ‖ u16 limit ‖ u64 floor | 6 ‖ header ‖ u64 floor | 7 ‖ bytes16 topic ‖ bytes16 key ‖ u64 floor
    /// 8 ‖ u64 subscription ‖ u64 place ‖ u64 sn ‖ u64 floor | 9 ‖ u16 count ‖ u64 sn … | 10 ‖ u64 sn ‖ u8 proved | 11 | 12
    /// 13 | 14 ‖ u64 height | 15 ‖ u64 height ‖ u64 offset | 16 ‖ u64 floor | 17 | 18 ‖ u64 sn
    /// 19 ‖ u64 floor ‖ subject
    /// ```
    pub(super) fn encode(&self, w: &mut Writer) {
        match self {
            Query::Update { height } => w.u8(1).u64(*height),
            Query::Result { number } => w.u8(2).u64(*number),
            Query::Receipt { height, number } => w.u8(3).u64(*height).u64(*number),
            Query::TopicPosition { header, ps } => write_header(w.u8(4), header).u64(*ps),
            Query::Range { header, from, limit, min_height } => {
                write_header(w.u8(5), header).u64(*from).u16(*limit).u64(*min_height)
            }
            Query::Latest { header, min_height } => write_header(w.u8(6), header).u64(*min_height),
            Query::Value { topic, key, min_height } => w.u8(7).bytes16(topic.as_bytes()).bytes16(key).u64(*min_height),
            Query::Resume { subscription, place, sn, min_height } => {
                w.u8(8).u64(*subscription).u64(*place).u64(*sn).u64(*min_height)
            }
            Query::Bodies { sns } => {
                w.u8(9).u16(u16::try_from(sns.len()).expect("a question's bodies have a limit"));
                sns.iter().fold(w, |w, sn| w.u64(*sn))
            }
            Query::Share { sn, proved } => w.u8(10).u64(*sn).u8(u8::from(*proved)),
            Query::Status => w.u8(11),
            Query::Key => w.u8(12),
            Query::History => w.u8(13),
            Query::Checkpoint { height } => w.u8(14).u64(*height),
            Query::Part { height, offset } => w.u8(15).u64(*height).u64(*offset),
            Query::Policy { min_height } => w.u8(16).u64(*min_height),
            Query::Evidence => w.u8(17),
            Query::Witness { sn } => w.u8(18).u64(*sn),
            Query::Subject { subject, min_height } => {
                subject.encode(w.u8(19).u64(*min_height));
                w
            }
        };
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Query, Malformed> {
        Ok(match r.u8()? {
            1 => Query::Update { height: r.u64()? },
            2 => Query::Result { number: r.u64()? },
            3 => Query::Receipt { height: r.u64()?, number: r.u64()? },
            4 => Query::TopicPosition { header: read_header(r)?, ps: r.u64()? },
            5 => Query::Range { header: read_header(r)?, from: r.u64()?, limit: r.u16()?, min_height: r.u64()? },
            6 => Query::Latest { header: read_header(r)?, min_height: r.u64()? },
            7 => {
                let topic = std::str::from_utf8(r.bytes16(limits::TOPIC_BYTES_MAX)?).map_err(|_| Malformed)?.to_owned();
                Query::Value { topic, key: r.bytes16(limits::VALUE_KEY_BYTES_MAX)?.to_vec(), min_height: r.u64()? }
            }
            8 => Query::Resume { subscription: r.u64()?, place: r.u64()?, sn: r.u64()?, min_height: r.u64()? },
            9 => {
                let count = r.count16(8, limits::READ_POSITIONS_MAX)?;
                Query::Bodies { sns: (0..count).map(|_| r.u64()).collect::<Result<_, _>>()? }
            }
            10 => Query::Share { sn: r.u64()?, proved: flag(r)? },
            11 => Query::Status,
            12 => Query::Key,
            13 => Query::History,
            14 => Query::Checkpoint { height: r.u64()? },
            15 => Query::Part { height: r.u64()?, offset: r.u64()? },
            16 => Query::Policy { min_height: r.u64()? },
            17 => Query::Evidence,
            18 => Query::Witness { sn: r.u64()? },
            19 => {
                let min_height = r.u64()?;
                Query::Subject { subject: Subject::decode(r)?, min_height }
            }
            _ => return Err(Malformed),
        })
    }
}

fn write_header<'w>(w: &'w mut Writer, header: &Header) -> &'w mut Writer {
    write_headers(w, std::iter::once(header));
    w
}

fn read_header(r: &mut Reader<'_>) -> Result<Header, Malformed> {
    match <[Header; 1]>::try_from(read_headers(r)?) {
        Ok([header]) => Ok(header),
        Err(_) => Err(Malformed),
    }
}
