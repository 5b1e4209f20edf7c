//! The outer frame of every datagram that is not LCM's.
//!
//! ```text
//! sealed:  0      1      2        4         8        16    18    19      20         28            n-16
//!          | 0x5C | 1    | domain | counter | hash   | slot, 24  | flags | counter  | ciphertext  | tag |
//!                 kind             `--- epoch id ---'                    `- packet -'
//! open:    | 0x5C | 2    | message of a key scheme, which protects and proves itself |
//! ```
//! All integers are big-endian; of the slot, the lower 16 bits come first. The whole sealed header is the AEAD's associated data.

use crate::codec::{Malformed, Reader};
use crate::member::{EpochId, Slot};

/// First byte of our framing; LCM's magic begins with 'L' (G9).
pub const MAGIC: u8 = 0x5C;
/// Second byte: a datagram sealed under an epoch's key.
pub const KIND_SEALED: u8 = 1;
/// Second byte: a key scheme's message, not sealed by the group.
pub const KIND_OPEN: u8 = 2;
/// The least segment, bytes: seal, proof and a piece with the longest topic leave 435 of them for the payload.
pub const SEGMENT_MIN: usize = 1024;
/// Length of a sealed datagram's header, bytes.
pub const HEADER_LEN: usize = 28;
/// Length of an open datagram's header, bytes.
pub const OPEN_HEADER_LEN: usize = 2;
/// Length of the AEAD's tag, bytes.
pub const TAG_LEN: usize = 16;
/// Flag: the plaintext ends in an origin proof (A12).
pub const FLAG_SIGNED: u8 = 1;
/// Flag: of the channel that is reliable or ordered; without it, best effort.
pub const FLAG_RELIABLE: u8 = 2;
/// Flag, beside `FLAG_RELIABLE`: it has a place in the group's one order.
pub const FLAG_ORDERED: u8 = 4;
/// Flag, beside `FLAG_ORDERED`: it is delivered once all members hold it.
pub const FLAG_SAFE: u8 = 8;

/// Set in the packet counters of reliable records, so that they share no nonce with best effort.
pub const COUNTER_RELIABLE: u64 = 1 << 63;
/// Set beside it in those of signed ones.
pub const COUNTER_SIGNED: u64 = 1 << 62;
/// Set beside it in those of ordered ones, signed or not: a sender numbers them in one sequence over all domains.
pub const COUNTER_ORDERED: u64 = 1 << 61;

/// What a record says that has a place in an order.
pub const ORDERED: u8 = FLAG_RELIABLE | FLAG_ORDERED;
const SAFE: u8 = ORDERED | FLAG_SAFE;

/// Which of an epoch's keys seals: 0 is the group's own, 1 and up are topic compartments (A8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Domain(pub u16);

impl Domain {
    /// The group's own key: control frames.
    pub const GROUP: Domain = Domain(0);
}

/// A sealed datagram's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which key.
    pub domain: Domain,
    /// Which epoch.
    pub epoch: EpochId,
    /// The sender's slot.
    pub slot: Slot,
    /// `FLAG_…`; unknown flags are refused.
    pub flags: u8,
    /// The sender's packet counter in this epoch and domain.
    pub counter: u64,
}

impl Header {
    /// Reads the header of a sealed datagram; checks magic, kind, flags and that a tag can follow.
    #[inline]
    pub fn parse(datagram: &[u8]) -> Result<Header, Malformed> {
        if datagram.len() < HEADER_LEN + TAG_LEN {
            return Err(Malformed);
        }
        let mut r = Reader::new(datagram);
        if r.u8()? != MAGIC || r.u8()? != KIND_SEALED {
            return Err(Malformed);
        }
        let header = Header {
            domain: Domain(r.u16()?),
            epoch: EpochId { counter: r.u32()?, hash: r.u64()? },
            slot: Slot(u32::from(r.u16()?) | u32::from(r.u8()?) << 16),
            flags: r.u8()?,
            counter: r.u64()?,
        };
        // Each of the higher ones stands beside the one before it.
        let channel = header.flags & !FLAG_SIGNED;
        if !matches!(channel, 0 | FLAG_RELIABLE | ORDERED | SAFE) {
            return Err(Malformed);
        }
        Ok(header)
    }

    /// Which packet counters these flags take: the bits that they set, and what a counter counts up from 1 beside them.
    #[inline]
    pub fn counting(flags: u8) -> u64 {
        const RELIABLE: u64 = COUNTER_RELIABLE;
        [0, RELIABLE, RELIABLE | COUNTER_SIGNED, RELIABLE | COUNTER_ORDERED][Header::sequence(flags)]
    }

    /// Whether what it heads proves itself though others hold its sender's key: it is signed by its sender, or named by what is
    /// signed so. Members say to each other in such records how a view ends.
    pub fn proves_itself(&self) -> bool {
        let signed = FLAG_RELIABLE | FLAG_SIGNED;
        self.flags & FLAG_ORDERED != 0 || self.flags == signed && self.domain == Domain::GROUP
    }

    /// Which of a sender's sequences of packet counters these flags take: 0 best effort, 1 reliable, 2 reliable and signed,
    /// 3 ordered. Each is one per domain, but the last: that is one over all domains.
    #[inline]
    pub fn sequence(flags: u8) -> usize {
        match (flags & FLAG_RELIABLE, flags & FLAG_ORDERED, flags & FLAG_SIGNED) {
            (0, ..) => 0,
            (_, 0, 0) => 1,
            (_, 0, _) => 2,
            _ => 3,
        }
    }

    /// The number of a reliable record in its stream, 1 and up; `None` if it is none, or its counter is not one of these
    /// flags.
    #[inline]
    pub fn reliable_number(flags: u8, counter: u64) -> Option<u64> {
        let number = counter & !(COUNTER_RELIABLE | COUNTER_SIGNED | COUNTER_ORDERED);
        let fits = flags & FLAG_RELIABLE != 0 && counter == Header::counting(flags) | number;
        (fits && number > 0).then_some(number)
    }

    /// Writes the header into the first `HEADER_LEN` bytes.
    ///
    /// # Panics
    /// If `datagram` is shorter than that, or the slot has more bits than the wire.
    #[inline]
    pub fn write(&self, datagram: &mut [u8]) {
        datagram[0] = MAGIC;
        datagram[1] = KIND_SEALED;
        datagram[2..4].copy_from_slice(&self.domain.0.to_be_bytes());
        datagram[4..16].copy_from_slice(&self.epoch.to_bytes());
        let [beyond, high, middle, low] = self.slot.0.to_be_bytes();
        assert!(beyond == 0, "a slot has 24 bits");
        datagram[16..20].copy_from_slice(&[middle, low, high, self.flags]);
        datagram[20..28].copy_from_slice(&self.counter.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trips_and_never_looks_like_lcm() {
        let header = Header {
            domain: Domain(3),
            epoch: EpochId { counter: 7, hash: 0x0123_4567_89ab_cdef },
            slot: Slot(0x03_0009),
            flags: FLAG_SIGNED,
            counter: u64::MAX - 1,
        };
        let mut datagram = vec![0; HEADER_LEN + TAG_LEN];
        header.write(&mut datagram);
        assert_ne!(datagram[0], b'L');
        assert_eq!(datagram[16..20], [0, 9, 3, 1]);
        assert_eq!(Header::parse(&datagram), Ok(header));
    }

    #[test]
    fn flags_that_do_not_go_together_are_malformed_and_each_channel_counts_apart() {
        let mut good = Vec::new();
        for flags in 0..=u8::MAX {
            let mut datagram = vec![0; HEADER_LEN + TAG_LEN];
            let (epoch, slot) = (EpochId::default(), Slot(0));
            Header { domain: Domain(1), epoch, slot, flags, counter: 1 }.write(&mut datagram);
            good.extend(Header::parse(&datagram).map(|it| it.flags));
        }
        assert_eq!(good, [0, 1, 2, 3, 6, 7, 14, 15]);
        let counting: Vec<u64> = good.iter().map(|flags| Header::counting(*flags) >> 61).collect();
        assert_eq!(counting, [0, 0, 0b100, 0b110, 0b101, 0b101, 0b101, 0b101]);
        for flags in &good[2..] {
            assert_eq!(Header::reliable_number(*flags, Header::counting(*flags) | 9), Some(9));
            let others = good.iter().filter(|it| Header::sequence(**it) != Header::sequence(*flags));
            assert!(others.into_iter().all(|it| Header::reliable_number(*it, Header::counting(*flags) | 9).is_none()));
        }
    }

    #[test]
    fn every_shorter_prefix_is_malformed() {
        let datagram = [0x5C, 1, 0, 0, 0, 0];
        for n in 0..datagram.len() {
            assert_eq!(Header::parse(&datagram[..n]), Err(Malformed));
        }
    }
}
