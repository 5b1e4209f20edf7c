//! VOUCH: a member's word, under the new epoch's key, for the last datagrams it sealed under the old
//! one (A5).
//!
//! ```text
//! | 1 | old epoch id (12) | part (1) | parts (1) | n (2) | n × ( domain (2) | counter (8) | digest (16) ) | proof |
//! ```
//! It travels on the control lane, so that whoever was excluded can neither read nor make it; the proof
//! is the member's attestation, or its signature where that would make too many parts, over the new epoch, its slot and all
//! the bytes before (A3). A digest is of a whole datagram, since an AEAD's tag binds nothing against one who knows the key
//! ([`Packet`]). A long list goes in parts of one datagram each, of use one without the other.

use std::collections::BTreeSet;

use sealcast_crypto::hash::Transcript;
use sealcast_delivery::Packet;
use sealcast_wire::protect::SIGNATURE_BYTES;
use sealcast_wire::{Domain, EpochId, Malformed, Protect, Reader, Slot, View, Writer, limits};

/// The first byte of a VOUCH on the control lane; the key scheme's own messages begin with another one.
pub(super) const TAG_VOUCH: u8 = 1;
/// The first byte of a key scheme's message on the control lane.
pub(super) const TAG_KEYS: u8 = 0;

/// HERE: this one byte on the control lane says that we seal for the epoch.
pub(super) const TAG_HERE: u8 = 2;

/// Whether we say HERE of a view's epoch: all of a small group do, of a large one a few, at every so manieth slot from where
/// the epoch's hash says. All members open each.
pub(super) fn says_here(view: &View) -> bool {
    let span = view.members.last().map_or(0, |(slot, _)| slot.0 + 1);
    let step = span.div_ceil(limits::HERE_OF_MANY);
    view.members.len() <= limits::HERE_MEMBERS_MAX as usize
        || u64::from(view.me.0 % step) == view.epoch.hash % u64::from(step)
}

/// One part, read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) old: EpochId,
    part: u8,
    parts: u8,
    packets: Vec<Packet>,
}

/// What one member has vouched for so far.
#[derive(Debug, Default)]
pub(super) struct Vouched {
    packets: BTreeSet<Packet>,
    heard: BTreeSet<u8>,
    parts: u8,
}

/// Writes a VOUCH for `old`, proved with the new epoch's capability; at least one part.
pub(super) fn write(old: EpochId, packets: &[Packet], protect: &dyn Protect) -> Vec<Vec<u8>> {
    let packets = &packets[packets.len().saturating_sub(limits::VOUCHED_PACKETS)..];
    // Each member checks each part of each other: MACs cost next to nothing, but take the place of packets.
    let room = (PACKETS_PER_PART * PACKET_BYTES + SIGNATURE_BYTES).saturating_sub(protect.attestation_len());
    let attested = (room / PACKET_BYTES).min(PACKETS_PER_PART);
    let attests = attested > 0 && packets.len().div_ceil(attested) <= PARTS_MAX;
    let per_part = if attests { attested } else { PACKETS_PER_PART };
    let parts = u8::try_from(packets.len().div_ceil(per_part).max(1)).expect("there are at most PARTS_MAX parts");
    (0..parts)
        .map(|part| {
            let from = usize::from(part) * per_part;
            let packets = &packets[from..packets.len().min(from + per_part)];
            let mut w = Writer::new();
            w.u8(TAG_VOUCH).raw(&old.to_bytes()).u8(part).u8(parts);
            w.u16(u16::try_from(packets.len()).expect("at most PACKETS_PER_PART"));
            for packet in packets {
                w.u16(packet.domain.0).u64(packet.counter).raw(&packet.digest);
            }
            let mut bytes = w.finish();
            let statement = statement(protect.epoch(), protect.slot(), &bytes);
            match attests {
                true => protect.attest(&statement, &mut bytes),
                false => protect.vouch(&statement, &mut bytes),
            }
            bytes
        })
        .collect()
}

/// A part as it came: nothing shows yet whose it is.
pub(super) struct Unproved<'a> {
    part: Part,
    stated: &'a [u8],
    proof: &'a [u8],
}

/// Reads a part.
pub(super) fn read(message: &[u8]) -> Result<Unproved<'_>, Malformed> {
    let mut r = Reader::new(message);
    if r.u8()? != TAG_VOUCH {
        return Err(Malformed);
    }
    let old = EpochId { counter: r.u32()?, hash: r.u64()? };
    let (part, parts) = (r.u8()?, r.u8()?);
    if part >= parts || usize::from(parts) > PARTS_MAX {
        return Err(Malformed);
    }
    let n = r.count16(PACKET_BYTES, PACKETS_PER_PART)?;
    let mut packets = Vec::with_capacity(n);
    for _ in 0..n {
        packets.push(Packet { domain: Domain(r.u16()?), counter: r.u64()?, digest: r.array()? });
    }
    let proof = r.rest();
    Ok(Unproved { part: Part { old, part, parts, packets }, stated: &message[..message.len() - proof.len()], proof })
}

impl Unproved<'_> {
    /// The part, if it came sealed under `protect`'s epoch from the member at `by`, and that one made it.
    pub(super) fn proved(self, by: Slot, protect: &dyn Protect) -> Option<Part> {
        let statement = statement(protect.epoch(), by, self.stated);
        protect.attested(by, &statement, self.proof).then_some(self.part)
    }

    /// The epoch that it claims to be about.
    pub(super) fn old(&self) -> EpochId {
        self.part.old
    }

    /// Whether it would add to what its sender vouched for so far, if it is proved.
    pub(super) fn adds_to(&self, vouched: &Vouched) -> bool {
        vouched.takes(&self.part)
    }
}

impl Vouched {
    /// Adds a part, if it is new; what does not go with the first one is not taken.
    pub(super) fn add(&mut self, part: Part) -> bool {
        let new = self.takes(&part);
        if new {
            self.parts = part.parts;
            self.heard.insert(part.part);
            self.packets.extend(part.packets);
        }
        new
    }

    fn takes(&self, part: &Part) -> bool {
        self.heard.is_empty() || (part.parts == self.parts && !self.heard.contains(&part.part))
    }

    /// Whether this datagram is vouched for; `None` while another part may name it.
    pub(super) fn covers(&self, datagram: &[u8]) -> Option<bool> {
        let named = Packet::of(datagram).is_some_and(|(_, packet)| self.packets.contains(&packet));
        if named || self.heard.len() == usize::from(self.parts) { Some(named) } else { None }
    }
}

fn statement(new: EpochId, by: Slot, stated: &[u8]) -> [u8; 32] {
    Transcript::new("sealcast/v1/vouch").add(&new.to_bytes()).add(&by.to_bytes()).add(stated).finish()
}

const PACKET_BYTES: usize = 2 + 8 + 16;
/// With header, signature and seal they fit into a datagram of 1,472 bytes.
const PACKETS_PER_PART: usize = 48;
const PARTS_MAX: usize = limits::VOUCHED_PACKETS.div_ceil(PACKETS_PER_PART);

#[cfg(test)]
mod tests {
    use super::*;
    use sealcast_wire::Header;
    use sealcast_wire::frame::{HEADER_LEN, TAG_LEN};

    fn datagram(counter: u64, fill: u8) -> Vec<u8> {
        let mut bytes = vec![fill; HEADER_LEN + 40 + TAG_LEN];
        let epoch = EpochId { counter: 3, hash: 5 };
        Header { domain: Domain(2), epoch, slot: Slot(1), flags: 0, counter }.write(&mut bytes);
        bytes
    }

    #[test]
    fn rule_a5_a_word_covers_the_very_bytes_and_is_final_once_whole() {
        let packet = |counter| Packet::of(&datagram(counter, 1)).expect("sealed").1;
        let old = EpochId { counter: 3, hash: 5 };
        let mut word = Vouched::default();
        assert!(word.add(Part { old, part: 1, parts: 2, packets: vec![packet(7)] }));
        assert_eq!(word.covers(&datagram(7, 1)), Some(true));
        assert_eq!(word.covers(&datagram(7, 2)), None, "the other part is still to come");
        assert!(word.add(Part { old, part: 0, parts: 2, packets: vec![packet(6)] }));
        assert_eq!(word.covers(&datagram(7, 2)), Some(false), "same header and counter, other bytes");
        assert_eq!(word.covers(&datagram(8, 1)), Some(false));
        let again = word.add(Part { old, part: 0, parts: 2, packets: vec![packet(8)] });
        assert!(!again, "what is held is not judged again for a word said again (G8)");
        assert_eq!(word.covers(&datagram(8, 1)), Some(false), "a word once given is not changed");
    }

    /// Signs with what it is given, and believes that alone.
    struct Given {
        epoch: EpochId,
        slot: Slot,
        signature: Vec<u8>,
    }

    impl Protect for Given {
        fn epoch(&self) -> EpochId {
            self.epoch
        }

        fn slot(&self) -> Slot {
            self.slot
        }

        fn seal(&self, _: Domain, _: u8, _: &mut [u8]) -> Result<u64, sealcast_wire::Exhausted> {
            Err(sealcast_wire::Exhausted)
        }

        fn open<'a>(
            &self,
            _: &'a mut [u8],
        ) -> Result<(sealcast_wire::Source, u8, &'a mut [u8]), sealcast_wire::Dropped> {
            Err(sealcast_wire::Dropped::NoKey)
        }

        fn vouch(&self, _: &[u8], proof: &mut Vec<u8>) {
            proof.extend_from_slice(&self.signature);
        }

        fn vouched(&self, by: Slot, _: &[u8], proof: &[u8]) -> bool {
            by == self.slot && proof == self.signature
        }
    }

    /// The last datagram of the last story is a VOUCH for the last one sealed before it in the old epoch.
    #[test]
    fn rule_g9_a_vouch_is_that_of_the_vectors() {
        let file = include_str!("../../../keys/vectors/contributory.json");
        let file: serde_json::Value = serde_json::from_str(file).expect("vectors are JSON");
        let steps = file["stories"][1]["steps"].as_array().expect("steps");
        let unhex = |v: &serde_json::Value| -> Vec<u8> {
            let text = v.as_str().expect("hexadecimal");
            (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("digits")).collect()
        };
        let last = steps.last().expect("there are steps");
        let header = Header::parse(&unhex(&last["datagram"])).expect("sealed");
        let message = unhex(&last["record"]).split_off(WHOLE_FRAME);
        let sealed = steps.iter().filter(|s| s["record"].is_string()).map(|s| unhex(&s["datagram"]));
        let (old, packet) = sealed.filter_map(|d| Packet::of(&d)).next().expect("one of the old epoch");
        let signature = message[message.len() - 64..].to_vec();
        let given = Given { epoch: header.epoch, slot: header.slot, signature };
        assert_eq!(write(old, &[packet], &given), std::slice::from_ref(&message));
        let part = read(&message).expect("well formed").proved(header.slot, &given);
        assert_eq!(part, Some(Part { old, part: 0, parts: 1, packets: vec![packet] }));
    }

    /// Attests with a MAC for each of so many members.
    struct Attests(usize);

    impl Protect for Attests {
        fn epoch(&self) -> EpochId {
            EpochId { counter: 4, hash: 6 }
        }

        fn slot(&self) -> Slot {
            Slot(1)
        }

        fn seal(&self, _: Domain, _: u8, _: &mut [u8]) -> Result<u64, sealcast_wire::Exhausted> {
            Err(sealcast_wire::Exhausted)
        }

        fn open<'a>(
            &self,
            _: &'a mut [u8],
        ) -> Result<(sealcast_wire::Source, u8, &'a mut [u8]), sealcast_wire::Dropped> {
            Err(sealcast_wire::Dropped::NoKey)
        }

        fn vouch(&self, _: &[u8], proof: &mut Vec<u8>) {
            proof.resize(proof.len() + SIGNATURE_BYTES, 7);
        }

        fn vouched(&self, _: Slot, _: &[u8], _: &[u8]) -> bool {
            false
        }

        fn attest(&self, _: &[u8], proof: &mut Vec<u8>) {
            proof.resize(proof.len() + self.attestation_len(), 1);
        }

        fn attestation_len(&self) -> usize {
            1 + 16 * self.0
        }

        fn attested(&self, _: Slot, _: &[u8], proof: &[u8]) -> bool {
            proof.len() == self.attestation_len() && proof.iter().all(|it| *it == 1)
        }
    }

    #[test]
    fn rule_a3_members_are_shown_macs_and_signatures_only_where_those_would_take_too_many_parts() {
        let old = EpochId { counter: 3, hash: 5 };
        let packets: Vec<Packet> = (0..512).map(|n| Packet::of(&datagram(n, 1)).expect("sealed").1).collect();
        for (members, count, parts, attested) in
            [(3, 0, 1, true), (16, 40, 1, true), (16, 512, 11, false), (64, 11, 1, true), (64, 121, 11, true)]
        {
            let words = write(old, &packets[..count], &Attests(members));
            assert_eq!(words.len(), parts, "{count} packets, {members} members");
            let mut all = Vec::new();
            for word in &words {
                assert!(word.len() <= 17 + 48 * PACKET_BYTES + SIGNATURE_BYTES, "it fits into a datagram");
                let is_proved = read(word).expect("well formed").proved(Slot(1), &Attests(members)).is_some();
                assert_eq!(is_proved, attested, "{count} packets, {members} members");
                all.extend(read(word).expect("well formed").part.packets);
            }
            assert_eq!(all, packets[..count]);
        }
    }

    /// Bytes of a `whole` frame without topic before its body.
    const WHOLE_FRAME: usize = 14;
}
