//! The rows of a broker's state.
//!
//! | key | value | in the state's root |
//! |---|---|---|
//! | `M` | u8 format of all rows ‖ the head: height, time, numbers, history, the set's hash | each field |
//! | `B` ‖ u16 broker | u64 words ‖ u64 bytes: how much it said in the DKG | as element of the set |
//! | `C` ‖ client | [`super::client::Record`] | as element of the set |
//! | `D` ‖ bytes16 issuer ‖ bytes16 serial ‖ client | – : who holds a credential | as element |
//! | `K` ‖ bytes16 topic ‖ key | u64 height of its last change ‖ bytes16 issuer ‖ bytes16 serial of the credential that it is counted to ‖ a value of the key–value state | as element |
//! | `P` ‖ u64 number | a global policy | as element |
//! | `R` ‖ bytes16 issuer ‖ bytes16 serial | – : a revoked credential | as element |
//! | `S` ‖ client ‖ u64 id | u64 first sn ‖ u64 next place ‖ interest: a subscription | as element |
//! | `T` ‖ bytes16 topic ‖ value | u64 next ps | as element |
//! | `V`, `V` ‖ bytes16 issuer ‖ bytes16 serial | u64 rows ‖ u64 bytes of `K` and `T`: of all, and of a credential's clients | as element |
//! | `A` ‖ u64 sn | client ‖ u64 number ‖ id: a sealed publication that may be accused, of the last [`limits::ACCUSABLE`] publications | as element |
//! | `E` ‖ u64 last sn | [`super::Entry`] …: publications of a block, a row for some at a time ([`super::entries`]) | by the history |
//! | `I` ‖ bytes16 topic ‖ value ‖ u64 ps | u64 first ps ‖ u64 sn …: the S-PS index (Chios Fig. 2), a row for each block up to its last place there | follows from `E` |
//! | `N` ‖ client ‖ u64 number | u64 height: the block that executed the client's operations up to this one | no |
//! | `Q` ‖ u64 height | results of the block's batches | no |
//! | `W` ‖ u64 height ‖ u32 place | u16 broker ‖ word: of the DKG | no |
//! | `O` ‖ u64 height | [`super::Past`]: what brokers sign of a block | no |
//! | `F` | u64 height ‖ u64 sn: [`super::LowWaterMark`] | no |
//! | `G` ‖ u64 height ‖ client ‖ u64 id | u64 place: what a subscription had next at the low-water mark of this height | no |
//!
//! Rows that are not in the root are for queries that f + 1 brokers answer; what a block does must follow from the others
//! alone, since brokers prune at different times. A snapshot is the head and the set's
//! elements; publications are pruned below the low-water mark, and whoever begins with a snapshot has none.

use sealcast_wire::{Malformed, Reader, Writer, limits};

use super::client::CredentialName;
use super::store::StoreError;
use crate::operation::{Client, Header};

pub(super) const HEAD: &[u8] = b"M";
pub(super) const CLIENT: u8 = b'C';
pub(super) const ENTRY: u8 = b'E';
pub(super) const INDEX: u8 = b'I';
pub(super) const POLICY: u8 = b'P';
pub(super) const SUBSCRIPTION: u8 = b'S';
pub(super) const RESULTS: u8 = b'Q';
pub(super) const WORD: u8 = b'W';
pub(super) const PAST: u8 = b'O';
pub(super) const FLOOR: &[u8] = b"F";
pub(super) const PLACE: u8 = b'G';

/// Tables whose rows are elements of the set that the state's root hashes.
pub(super) const ELEMENTS: &[u8] = b"ABCDKPRSTV";

pub(super) fn is_element(key: &[u8]) -> bool {
    key.first().is_some_and(|table| ELEMENTS.contains(table))
}

pub(super) fn client(client: &Client) -> Vec<u8> {
    [&[CLIENT], &client.0[..]].concat()
}

pub(super) fn holder(issuer: &str, serial: &[u8], client: Option<&Client>) -> Vec<u8> {
    let mut w = Writer::new();
    w.u8(b'D').bytes16(issuer.as_bytes()).bytes16(serial).raw(client.map_or(&[], |c| &c.0));
    w.finish()
}

pub(super) fn revoked(issuer: &str, serial: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    w.u8(b'R').bytes16(issuer.as_bytes()).bytes16(serial);
    w.finish()
}

pub(super) fn value(topic: &str, key: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    w.u8(b'K').bytes16(topic.as_bytes()).raw(key);
    w.finish()
}

/// What stands in a value's row.
pub(super) struct Value {
    /// The block that changed it last.
    pub(super) height: u64,
    /// The credential that it is counted to.
    pub(super) owner: CredentialName,
    /// The value.
    pub(super) value: Vec<u8>,
}

impl Value {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u64(self.height).bytes16(self.owner.0.as_bytes()).bytes16(&self.owner.1).raw(&self.value);
        w.finish()
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Value, Malformed> {
        let height = r.u64()?;
        let issuer = r.bytes16(limits::ATTRIBUTE_BYTES_MAX)?.to_vec();
        let issuer = String::from_utf8(issuer).map_err(|_| Malformed)?;
        let owner = (issuer, r.bytes16(limits::ATTRIBUTE_BYTES_MAX)?.to_vec());
        Ok(Value { height, owner, value: r.rest().to_vec() })
    }
}

/// How much is kept for good of a credential's clients, or of all.
pub(super) fn kept(of: Option<&CredentialName>) -> Vec<u8> {
    let mut w = Writer::new();
    w.u8(b'V');
    if let Some((issuer, serial)) = of {
        w.bytes16(issuer.as_bytes()).bytes16(serial);
    }
    w.finish()
}

/// How much a broker said in the DKG.
pub(super) fn said(broker: u16) -> Vec<u8> {
    [b"B", &broker.to_be_bytes()[..]].concat()
}

/// How many rows there are, and how long they are with their keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

impl Kept {
    /// One more, of so many bytes.
    pub(super) fn add(&mut self, bytes: usize) {
        (self.rows, self.bytes) = (self.rows + 1, self.bytes + bytes as u64);
    }

    /// One that was counted is no more.
    pub(super) fn take(&mut self, bytes: usize) {
        (self.rows, self.bytes) = (self.rows - 1, self.bytes - bytes as u64);
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        [self.rows.to_be_bytes(), self.bytes.to_be_bytes()].concat()
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Kept, Malformed> {
        Ok(Kept { rows: r.u64()?, bytes: r.u64()? })
    }
}

pub(super) fn policy(number: u64) -> Vec<u8> {
    numbered(POLICY, number)
}

/// The row of publications that ends with this one.
pub(super) fn entry(sn: u64) -> Vec<u8> {
    numbered(ENTRY, sn)
}

/// What may be accused of a sealed publication.
pub(super) fn accusable(sn: u64) -> Vec<u8> {
    numbered(b'A', sn)
}

/// All results of a block.
pub(super) fn results(height: u64) -> Vec<u8> {
    numbered(RESULTS, height)
}

/// Where the results of a client's operations up to a number are.
pub(super) fn executed(client: &Client, number: u64) -> Vec<u8> {
    [b"N", &client.0[..], &number.to_be_bytes()].concat()
}

pub(super) fn word(height: u64, place: u32) -> Vec<u8> {
    [&[WORD], &height.to_be_bytes()[..], &place.to_be_bytes()].concat()
}

/// What is signed of a block.
pub(super) fn past(height: u64) -> Vec<u8> {
    numbered(PAST, height)
}

/// The places of all subscriptions at the low-water mark of a height.
pub(super) fn places(height: u64) -> Vec<u8> {
    numbered(PLACE, height)
}

/// The place of one of them; `id` is its row's key without the table.
pub(super) fn place(height: u64, id: &[u8]) -> Vec<u8> {
    [&places(height), id].concat()
}

pub(super) fn subscription(client: &Client, id: u64) -> Vec<u8> {
    [&[SUBSCRIPTION], &client.0[..], &id.to_be_bytes()].concat()
}

pub(super) fn topic(header: &Header) -> Vec<u8> {
    of_header(b'T', header).finish()
}

pub(super) fn index(header: &Header, ps: u64) -> Vec<u8> {
    let mut w = of_header(INDEX, header);
    w.u64(ps);
    w.finish()
}

/// The first key behind all that begin with this one; behind all rows if it is empty.
pub(super) fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![u8::MAX]
}

fn numbered(table: u8, number: u64) -> Vec<u8> {
    [&[table], &number.to_be_bytes()[..]].concat()
}

fn of_header(table: u8, header: &Header) -> Writer {
    let mut w = Writer::new();
    w.u8(table).bytes16(header.topic.as_bytes());
    match &header.value {
        None => w.u8(0),
        Some(value) => w.u8(1).bytes16(value.as_bytes()),
    };
    w
}

/// The number that is a row's whole value.
pub(super) fn number(value: &[u8]) -> Result<u64, StoreError> {
    read(value, |r| r.u64())
}

/// Reads a row's value; what we stored ourselves can only be wrong if the storage is.
pub(super) fn read<T>(
    value: &[u8],
    parse: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<T, StoreError> {
    let mut r = Reader::new(value);
    parse(&mut r).and_then(|read| r.end().map(|()| read)).map_err(|_| malformed())
}

pub(super) fn malformed() -> StoreError {
    StoreError("a row is not what was stored".into())
}
