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
