//! Recorded datagrams that mutations start from, and how to seal them again.

use std::collections::BTreeMap;
use std::time::Duration;

use rand_core::Rng;
use sealcast_delivery::multicast::frame::{Frame, Frames, Head};
use sealcast_delivery::{Batch, lcm};
use sealcast_keys::Command;
use sealcast_wire::frame::{FLAG_SIGNED, HEADER_LEN, KIND_OPEN, KIND_SEALED, MAGIC, TAG_LEN};
use sealcast_wire::{Domain, Header, Protect};

use super::mutate::{Mutation, below};
use super::world::{People, READER, World};
use crate::Failure;

/// A recorded datagram.
pub(super) struct Specimen {
    /// What it is, as coverage names it.
    pub(super) kind: String,
    /// Its bytes.
    pub(super) datagram: Vec<u8>,
    /// Whether the attacked member has had it; if not, it would rightly be taken as it is.
    pub(super) delivered: bool,
    inside: Inside,
}

/// What a key opens.
enum Inside {
    /// The record that a member sealed.
    Record { domain: Domain, flags: u8, plaintext: Vec<u8> },
    /// The message under the bootstrap key.
    Open { message: Vec<u8> },
    /// Nothing: LCM's.
    Nothing,
}

impl Specimen {
    /// Mutated as it lies on the wire.
    pub(super) fn mutated(&self, mutation: Mutation, other: &Specimen, rng: &mut impl Rng) -> Vec<u8> {
        let mut bytes = self.datagram.clone();
        mutation.apply(&mut bytes, &other.datagram, rng);
        self.unlike(&mut bytes, &self.datagram, rng);
        other.unlike(&mut bytes, &other.datagram, rng);
        bytes
    }

    /// Changes once more what is still, or again, as it was recorded and would rightly be taken.
    fn unlike(&self, bytes: &mut [u8], recorded: &[u8], rng: &mut impl Rng) {
        if !self.delivered && *bytes == *recorded {
            let n = bytes.len();
            bytes[below(rng, n)] ^= 1 << below(rng, 8);
        }
    }

    /// Mutated inside, and sealed again by a member under the key that it holds.
    pub(super) fn resealed(
        &self,
        mutation: Mutation,
        other: &Specimen,
        protect: &dyn Protect,
        people: &People,
        rng: &mut impl Rng,
    ) -> Vec<u8> {
        match &self.inside {
            Inside::Record { domain, flags, plaintext } => {
                let mut record = plaintext.clone();
                mutation.apply(&mut record, other.inside(), rng);
                record.truncate(65_507 - HEADER_LEN - TAG_LEN);
                let flags = if below(rng, 16) == 0 { flags ^ FLAG_SIGNED } else { *flags };
                let domain = if below(rng, 16) == 0 { Domain(below(rng, 3) as u16) } else { *domain };
                let mut datagram = [&[0; HEADER_LEN][..], &record, &[0; TAG_LEN]].concat();
                // Without a key of that domain it stays as it is: noise.
                let _ = protect.seal(domain, flags, &mut datagram);
                datagram
            }
            Inside::Open { message } => {
                let mut message = message.clone();
                mutation.apply(&mut message, other.inside(), rng);
                self.unlike(&mut message, self.inside(), rng);
                other.unlike(&mut message, other.inside(), rng);
                let mut nonce = [0; 12];
                rng.fill_bytes(&mut nonce);
                [&[MAGIC, KIND_OPEN][..], &people.bootstrap_key.seal(nonce, &message)].concat()
            }
            Inside::Nothing => self.mutated(mutation, other, rng),
        }
    }

    fn inside(&self) -> &[u8] {
        match &self.inside {
            Inside::Record { plaintext, .. } => plaintext,
            Inside::Open { message } => message,
            Inside::Nothing => &self.datagram,
        }
    }
}

/// Lets a group form, talk and change, and keeps a few datagrams of every kind.
pub(super) fn record(people: &People, seed: u64) -> Result<Vec<Specimen>, Failure> {
    let mut world = World::new(people, seed)?;
    // The same world before it talked: its capability opens what the members have opened already.
    let key = World::formed(people, seed)?.protect(0);
    let delivered = world.sent.len();
    world.members[READER].command(world.now, Command::Leave)?;
    world.run(Duration::from_secs(1), |_| false);

    let mut kept: BTreeMap<String, Vec<Specimen>> = BTreeMap::new();
    for (at, (_, datagram)) in world.sent.iter().enumerate().filter(|(_, (sender, _))| *sender != 0) {
        let mut bytes = datagram.clone();
        let (kind, inside) = match bytes[..] {
            [MAGIC, KIND_SEALED, ..] => {
                let domain = Header::parse(&bytes)?.domain;
                match key.open(&mut bytes) {
                    Ok((_, flags, plaintext)) => {
                        let plaintext = plaintext.to_vec();
                        (record_kind(flags, &plaintext), Inside::Record { domain, flags, plaintext })
                    }
                    Err(_) => ("next epoch's".to_string(), Inside::Nothing),
                }
            }
            [MAGIC, KIND_OPEN, ref sealed_message @ ..] => {
                let message = people.bootstrap_key.open(sealed_message)?;
                (open_kind(&message), Inside::Open { message })
            }
            _ => continue,
        };
        let of = kept.entry(kind.clone()).or_default();
        if of.len() < PER_KIND {
            of.push(Specimen { kind, datagram: datagram.clone(), delivered: at < delivered, inside });
        }
    }
    let mut specimens: Vec<Specimen> = kept.into_values().flatten().collect();
    specimens.push(control(&world)?);
    let mut batch = Batch::default();
    let mut lcm = lcm::Encoder::default();
    lcm.encode("plain", b"LC02", &mut batch)?;
    lcm.encode("plain", &[7; 70_000], &mut batch)?;
    let plain =
        |d: &[u8]| Specimen { kind: "LCM".into(), datagram: d.to_vec(), delivered: true, inside: Inside::Nothing };
    specimens.extend(batch.iter().map(plain));
    Ok(specimens)
}

/// A control message that nobody sent: a VOUCH with a false proof. Only its seal can be right.
fn control(world: &World) -> Result<Specimen, Failure> {
    let epoch = world.members[0].view().ok_or("no view")?.epoch.to_bytes();
    let body = [&[1][..], &epoch, &[0, 1, 0, 0], &[0; 64]].concat();
    let mut plaintext = Vec::new();
    Head { keys: true, again: false, number: 1, sent_micros: None, topic: "" }.write_whole(&body, &mut plaintext);
    let datagram = [&[MAGIC, KIND_SEALED][..], &[0; HEADER_LEN - 2], &plaintext, &[0; TAG_LEN]].concat();
    let inside = Inside::Record { domain: Domain::GROUP, flags: 0, plaintext };
    Ok(Specimen { kind: "control".into(), datagram, delivered: true, inside })
}

/// Names a record by its first frame.
fn record_kind(flags: u8, plaintext: &[u8]) -> String {
    let name = match Frames::of(plaintext).next() {
        Some(Ok(Frame::Whole { head, .. })) if head.keys => "control",
        Some(Ok(Frame::Whole { .. })) => "data",
        Some(Ok(Frame::Piece { .. })) => "piece",
        Some(Ok(Frame::Heartbeat { .. })) => "heartbeat",
        _ => "record",
    };
    if flags & FLAG_SIGNED != 0 { format!("signed {name}") } else { name.to_string() }
}

/// Names a key scheme's message by the lower 4 bits of its first byte; the others are its version.
fn open_kind(message: &[u8]) -> String {
    let names = [
        "JOIN",
        "RESPONSE",
        "RESPONSE",
        "RESPONSE",
        "R1",
        "R2",
        "KC",
        "STATUS",
        "FETCH",
        "GIVE",
        "BEACON",
        "LEAVE",
        "SENDERKEY",
        "STATE",
    ];
    match message.first() {
        Some(kind) => {
            let name = names.get(usize::from(kind & 0x0F).wrapping_sub(1));
            name.map_or(format!("open {kind}"), |it| it.to_string())
        }
        None => "open, empty".into(),
    }
}

/// Recorded of each kind.
const PER_KIND: usize = 4;
