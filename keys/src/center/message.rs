//! The scheme's messages, as they are under the group's bootstrap key.
//!
//! ```text
//! 1 JOIN      registration ‖ run (16) ‖ epoch that it is in (12) ‖ size of that (2) ‖ channels (1)
//! 2 CHALLENGE     to (48) ‖ leader's registration ‖ run (16) ‖ salt (16) ‖ token (16) ‖ tag (16)
//! 3 ACCEPT    from (48) ‖ to (48) ‖ token (16) ‖ epoch that it is in (12) ‖ tag (16)
//! 4 PROPOSE   lock (32) ‖ leader (48) ‖ base (12) ‖ counter (4) ‖ attempt (4) ‖ size (2) ‖ roster's hash (32)
//!             ‖ count (2) of slots of the base that go: slot (2), why (1) ‖ 0, or 1 and count (2) of who came: slot (2), who (48)
//!             ‖ signature (64) ‖ who has acknowledged, as bits of slots (16-bit length)
//! 5 ACK       from (48) ‖ to (48) ‖ proposal (32) ‖ base (12) ‖ cut (32) ‖ tag (16)
//! 6 COMMIT    proposal (32) ‖ cut (32) ‖ nonce (one-way, 1; then 32) ‖ count (2) of commitments (32) ‖ count (2) of entries:
//!             slot (2), sealed (16-bit length)
//! 7 BEACON    registration ‖ run (16) ‖ epoch (12) ‖ size (2) ‖ channels (1): 1 if there is a reliable one, else 0
//! 8 WISH      from (48) ‖ to (48) ‖ epoch (12) ‖ what (1) ‖ tag (16)
//! 9 DISMISS   from (48) ‖ to (48) ‖ why (1) ‖ tag (16)
//! 10 WANT     count (2) of hashes (32)
//! 11 GIVE     count (2) of registrations (16-bit length)
//! 12 ROSTER   proposal (32) ‖ part (2) ‖ count (2) of slots: who (48), salt (16) ‖ signature (64)
//! 13 LACK     from (48) ‖ to (48) ‖ proposal (32) ‖ parts of its roster, as bits (8) ‖ tag (16)
//! ```
//! The first byte is the kind. Somebody is a registration's hash (32) and a run (16); a registration is behind a 16-bit length. Tags are
//! under pair keys ([`super::pair`]), signatures the leader's; JOIN, BEACON, WANT and GIVE prove nothing and change nothing that others rely on.

use std::sync::Arc;

use sealcast_crypto::hash::{Transcript, sha256};
use sealcast_crypto::identity::Registration;
use sealcast_crypto::signature::OriginKey;
use sealcast_wire::limits::{
    CENTER_MEMBERS_MAX, CENTER_REASONS_MAX, COMPARTMENTS_MAX, EPOCH_ENTRY_BYTES_MAX, MEMBERS_MAX,
    REGISTRATION_BYTES_MAX,
};
use sealcast_wire::{CertHash, EpochId, Incarnation, Malformed, MemberId, Reader, Writer};

use super::epoch::places;

/// Sixteen bytes under a pair key.
pub(super) type Tag = [u8; 16];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Join(Join),
    Challenge(Challenge),
    Accept(Accept),
    Propose(Propose),
    Ack(Ack),
    Commit(Commit),
    Beacon(Beacon),
    Wish(Wish),
    Dismiss(Dismiss),
    Want(Vec<CertHash>),
    Give(Vec<Arc<Registration>>),
    Roster(Part),
    Lack(Lack),
}

/// Asks to be let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Join {
    pub(super) registration: Arc<Registration>,
    pub(super) run: Incarnation,
    pub(super) epoch: EpochId,
    pub(super) size: u16,
    pub(super) reliable: bool,
}

/// A leader's answer: a newcomer that makes σ of the salt knows that a registered leader made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Challenge {
    pub(super) to: MemberId,
    pub(super) registration: Arc<Registration>,
    pub(super) run: Incarnation,
    pub(super) salt: [u8; 16],
    pub(super) token: Tag,
    pub(super) tag: Tag,
}

/// The applicant is there, and holds the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accept {
    pub(super) from: MemberId,
    pub(super) to: MemberId,
    pub(super) token: Tag,
    pub(super) epoch: EpochId,
    pub(super) tag: Tag,
}

/// A change: who shall be in the next epoch, as its leader and the members that follow it know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) leader: MemberId,
    pub(super) base: EpochId,
    pub(super) counter: u32,
    pub(super) attempt: u32,
    /// Locks nonce and commitments, which COMMIT shows: so the leader's signature vouches for them.
    pub(super) lock: [u8; 32],
    /// Slots of the base that go, and why, ascending; silent ones may be missing where the roster is said whole.
    pub(super) gone: Vec<(u16, Gone)>,
    /// By slot; the leader first.
    pub(super) slots: Vec<MemberId>,
}

/// A change as it is said: by what it changes in the base, if that fits, else by the hash of a roster that comes in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Propose {
    pub(super) leader: MemberId,
    pub(super) base: EpochId,
    pub(super) counter: u32,
    pub(super) attempt: u32,
    pub(super) lock: [u8; 32],
    pub(super) size: u16,
    /// Hash of all who are in it, by slot.
    pub(super) roster: [u8; 32],
    pub(super) gone: Vec<(u16, Gone)>,
    /// Their slots in the new roster, ascending; the others of the base fill the rest in their order. `None`: it comes in parts.
    pub(super) came: Option<Vec<(u16, MemberId)>>,
    pub(super) signature: [u8; 64],
    /// A summary of who is ready, by slot; it proves nothing, and spares those a second word.
    pub(super) acked: Vec<u8>,
}

/// Sixteen slots of a proposal's roster; each stands alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) proposal: [u8; 32],
    pub(super) part: u16,
    pub(super) slots: Vec<(MemberId, [u8; 16])>,
    pub(super) signature: [u8; 64],
}

/// A member lacks parts of a proposal's roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lack {
    pub(super) from: MemberId,
    pub(super) to: MemberId,
    pub(super) proposal: [u8; 32],
    pub(super) parts: u64,
    pub(super) tag: Tag,
}

/// Why somebody goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gone {
    Left = 1,
    Silent = 2,
    Revoked = 3,
    /// Another run of it is there.
    Replaced = 4,
}

/// We are ready for it, and our view ended so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) from: MemberId,
    pub(super) to: MemberId,
    pub(super) proposal: [u8; 32],
    pub(super) base: EpochId,
    pub(super) cut: [u8; 32],
    pub(super) tag: Tag,
}

/// The epoch's secrets, one entry for each slot that does not derive them; each datagram of it stands alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) proposal: [u8; 32],
    pub(super) cut: [u8; 32],
    /// With it members of the base derive the secrets one-way from those that they have; none where all are drawn afresh.
    pub(super) nonce: Option<[u8; 32]>,
    /// By ring.
    pub(super) commitments: Vec<[u8; 32]>,
    pub(super) entries: Vec<(u16, Vec<u8>)>,
}

/// A group is here; of size 0, said by a member that does not lead it or cannot let anybody in yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Beacon {
    pub(super) registration: Arc<Registration>,
    pub(super) run: Incarnation,
    pub(super) epoch: EpochId,
    pub(super) size: u16,
    pub(super) reliable: bool,
}

/// What a member asks its leader for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) from: MemberId,
    pub(super) to: MemberId,
    pub(super) epoch: EpochId,
    pub(super) what: WishKind,
    pub(super) tag: Tag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WishKind {
    Leave = 1,
    Rotate = 2,
    /// Query the centre who is revoked, now.
    News = 3,
}

/// Somebody is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dismiss {
    pub(super) from: MemberId,
    pub(super) to: MemberId,
    pub(super) why: Gone,
    pub(super) tag: Tag,
}

impl Content {
    /// Names it: the leader signs this.
    pub(super) fn id(&self) -> [u8; 32] {
        Transcript::new("sealcast/v1/center/propose").add(&self.change()).add(&self.lock).finish()
    }

    /// Binds all that its secrets are made for: who leads, whence, and the whole roster.
    pub(super) fn change(&self) -> [u8; 32] {
        let (leader, base, counter, attempt) = (&self.leader, &self.base, self.counter, self.attempt);
        change((leader, base), (counter, attempt), (self.slots.len() as u16, &roster(&self.slots)), &self.gone)
    }

    pub(super) fn slot_of(&self, who: &MemberId) -> Option<usize> {
        self.slots.iter().position(|it| it == who)
    }

    /// Who of the base, whose slots these are, goes, and why.
    pub(super) fn why(&self, base: &[MemberId], who: &CertHash) -> Option<Gone> {
        let slot = base.iter().position(|it| it.cert == *who)?;
        self.gone.iter().find(|(at, _)| usize::from(*at) == slot).map(|(_, why)| *why)
    }

    /// As it is said to members of the base, whose slots these are; whole, if it does not fit or there is no base.
    pub(super) fn say(&self, base: Option<&[MemberId]>, signer: &OriginKey) -> Propose {
        let came: Option<Vec<(u16, MemberId)>> = base.map(|base| {
            let new = (0..).zip(&self.slots).zip(places(&self.slots, base)).filter(|(_, place)| place.is_none());
            new.map(|((at, it), _)| (at, *it)).collect()
        });
        let fits = |came: &Vec<(u16, MemberId)>| self.gone.len() * 3 + came.len() * 50 <= DIFFERENCE_BYTES;
        let applies = |came: &Vec<(u16, MemberId)>| {
            base.and_then(|base| apply(base, self.slots.len(), &self.gone, came)).is_some_and(|it| it == self.slots)
        };
        let came = came.filter(|came| fits(came) && applies(came));
        Propose {
            leader: self.leader,
            base: self.base,
            counter: self.counter,
            attempt: self.attempt,
            lock: self.lock,
            size: self.slots.len() as u16,
            roster: roster(&self.slots),
            gone: self.gone.clone(),
            came,
            signature: signer.sign(&self.id()),
            acked: Vec::new(),
        }
    }
}

impl Propose {
    pub(super) fn id(&self) -> [u8; 32] {
        let of = (&self.leader, &self.base);
        let change = change(of, (self.counter, self.attempt), (self.size, &self.roster), &self.gone);
        Transcript::new("sealcast/v1/center/propose").add(&change).add(&self.lock).finish()
    }

    /// The whole change, for who has the base with these slots; `None` if it is said whole, or is another one.
    pub(super) fn applied(&self, base: &[MemberId]) -> Option<Content> {
        let came = self.came.as_ref()?;
        let slots = apply(base, self.size.into(), &self.gone, came)?;
        // The base names nobody twice.
        let is_twice = |(at, who): &(u16, MemberId)| {
            (0..).zip(&slots).any(|(slot, it)| slot != usize::from(*at) && it.cert == who.cert)
        };
        if came.iter().any(is_twice) { None } else { self.with_unique(slots) }
    }

    /// The whole change with this roster, if it is the right one.
    pub(super) fn with(&self, slots: Vec<MemberId>) -> Option<Content> {
        let mut certs: Vec<CertHash> = slots.iter().map(|it| it.cert).collect();
        certs.sort_unstable();
        certs.dedup();
        if certs.len() == slots.len() { self.with_unique(slots) } else { None }
    }

    /// The same with a roster that names nobody twice.
    fn with_unique(&self, slots: Vec<MemberId>) -> Option<Content> {
        let is_right = slots.len() == usize::from(self.size) && slots.first() == Some(&self.leader);
        if !is_right || roster(&slots) != self.roster {
            return None;
        }
        let (leader, base, counter, attempt) = (self.leader, self.base, self.counter, self.attempt);
        Some(Content { leader, base, counter, attempt, lock: self.lock, gone: self.gone.clone(), slots })
    }

    /// Whether it says of this slot that it has acknowledged.
    pub(super) fn has_heard(&self, slot: usize) -> bool {
        self.acked.get(slot / 8).is_some_and(|byte| byte >> (slot % 8) & 1 == 1)
    }

    /// Parts in which its roster comes.
    pub(super) fn parts(&self) -> usize {
        usize::from(self.size).div_ceil(PART_SLOTS)
    }
}

impl Part {
    /// What its leader signs.
    pub(super) fn statement(&self) -> [u8; 32] {
        let mut w = Writer::new();
        self.slots.iter().for_each(|(who, salt)| _ = write_who(&mut w, who).raw(salt));
        let t = Transcript::new("sealcast/v1/center/roster part").add(&self.proposal).add(&self.part.to_be_bytes());
        t.add(w.as_slice()).finish()
    }
}

fn change(
    (leader, base): (&MemberId, &EpochId),
    (counter, attempt): (u32, u32),
    (size, roster): (u16, &[u8; 32]),
    gone: &[(u16, Gone)],
) -> [u8; 32] {
    let mut w = Writer::new();
    write_change(&mut w, (leader, base), (counter, attempt), (size, roster), gone);
    Transcript::of("sealcast/v1/center/change", w.as_slice())
}

fn write_change(
    w: &mut Writer,
    (leader, base): (&MemberId, &EpochId),
    (counter, attempt): (u32, u32),
    (size, roster): (u16, &[u8; 32]),
    gone: &[(u16, Gone)],
) {
    write_who(w, leader).raw(&base.to_bytes()).u32(counter).u32(attempt).u16(size).raw(roster);
    w.u16(gone.len() as u16);
    gone.iter().for_each(|(slot, why)| _ = w.u16(*slot).u8(*why as u8));
}

/// The hash of a whole roster.
pub(super) fn roster(slots: &[MemberId]) -> [u8; 32] {
    let mut w = Writer::new();
    slots.iter().for_each(|who| _ = write_who(&mut w, who));
    Transcript::of("sealcast/v1/center/roster", w.as_slice())
}

/// A roster of so many: that of the base without those who go, with those who came in their slots.
fn apply(base: &[MemberId], size: usize, gone: &[(u16, Gone)], came: &[(u16, MemberId)]) -> Option<Vec<MemberId>> {
    let goes = |slot: usize| gone.iter().any(|(at, _)| usize::from(*at) == slot);
    let mut stays = base.iter().enumerate().filter(|(slot, _)| !goes(*slot)).map(|(_, who)| *who);
    let mut came = came.iter().peekable();
    let next = |slot: usize| match came.next_if(|(at, _)| usize::from(*at) == slot) {
        Some((_, who)) => Some(*who),
        None => stays.next(),
    };
    let slots: Vec<MemberId> = (0..size).map(next).collect::<Option<_>>()?;
    (stays.next().is_none() && came.next().is_none()).then_some(slots)
}

/// What a proposal's lock is of.
pub(super) fn lock(nonce: Option<&[u8; 32]>, commitments: &[[u8; 32]]) -> [u8; 32] {
    let t = Transcript::new("sealcast/v1/center/lock").add(nonce.map_or(&[][..], |it| it));
    commitments.iter().fold(t, |t, it| t.add(it)).finish()
}

impl Commit {
    /// The hash of all that makes the epoch, entries apart, which prove themselves by it (A13).
    pub(super) fn transcript(&self) -> [u8; 32] {
        let t = Transcript::new("sealcast/v1/center/epoch").add(&self.proposal).add(&self.cut);
        self.commitments.iter().fold(t, |t, it| t.add(it)).finish()
    }
}

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        match self {
            Message::Join(m) => {
                w.u8(1).bytes16(&m.registration.to_bytes()).raw(&m.run.0).raw(&m.epoch.to_bytes());
                w.u16(m.size).u8(m.reliable.into());
            }
            Message::Challenge(m) => {
                write_who(w.u8(2), &m.to).bytes16(&m.registration.to_bytes()).raw(&m.run.0);
                w.raw(&m.salt).raw(&m.token).raw(&m.tag);
            }
            Message::Accept(m) => {
                write_who(write_who(w.u8(3), &m.from), &m.to).raw(&m.token).raw(&m.epoch.to_bytes()).raw(&m.tag);
            }
            Message::Propose(m) => {
                let (of, numbers) = ((&m.leader, &m.base), (m.counter, m.attempt));
                write_change(w.u8(4).raw(&m.lock), of, numbers, (m.size, &m.roster), &m.gone);
                w.u8(m.came.is_some().into());
                if let Some(came) = &m.came {
                    w.u16(came.len() as u16);
                    came.iter().for_each(|(slot, who)| _ = write_who(w.u16(*slot), who));
                }
                w.raw(&m.signature).bytes16(&m.acked);
            }
            Message::Ack(m) => {
                write_who(write_who(w.u8(5), &m.from), &m.to).raw(&m.proposal).raw(&m.base.to_bytes());
                w.raw(&m.cut).raw(&m.tag);
            }
            Message::Commit(m) => {
                w.u8(6).raw(&m.proposal).raw(&m.cut).u8(m.nonce.is_some().into());
                m.nonce.iter().for_each(|it| _ = w.raw(it));
                w.u16(m.commitments.len() as u16);
                m.commitments.iter().for_each(|it| _ = w.raw(it));
                w.u16(m.entries.len() as u16);
                m.entries.iter().for_each(|(slot, sealed)| _ = w.u16(*slot).bytes16(sealed));
            }
            Message::Beacon(m) => {
                w.u8(7).bytes16(&m.registration.to_bytes()).raw(&m.run.0).raw(&m.epoch.to_bytes());
                w.u16(m.size).u8(m.reliable.into());
            }
            Message::Wish(m) => {
                write_who(write_who(w.u8(8), &m.from), &m.to).raw(&m.epoch.to_bytes()).u8(m.what as u8).raw(&m.tag);
            }
            Message::Dismiss(m) => {
                write_who(write_who(w.u8(9), &m.from), &m.to).u8(m.why as u8).raw(&m.tag);
            }
            Message::Want(list) => {
                w.u8(10).u16(list.len() as u16);
                list.iter().for_each(|it| _ = w.raw(&it.0));
            }
            Message::Give(list) => {
                w.u8(11).u16(list.len() as u16);
                list.iter().for_each(|it| _ = w.bytes16(&it.to_bytes()));
            }
            Message::Roster(m) => {
                w.u8(12).raw(&m.proposal).u16(m.part).u16(m.slots.len() as u16);
                m.slots.iter().for_each(|(who, salt)| _ = write_who(&mut w, who).raw(salt));
                w.raw(&m.signature);
            }
            Message::Lack(m) => {
                write_who(write_who(w.u8(13), &m.from), &m.to).raw(&m.proposal).u64(m.parts).raw(&m.tag);
            }
        }
        w.finish()
    }

    #[cfg(any(test, feature = "misbehaving"))]
    pub(super) fn decode(bytes: &[u8]) -> Result<Message, Malformed> {
        Message::decode_knowing(bytes, &|_| None)
    }

    /// The same with a memory of registrations by their hashes, which need no second reading: their keys are checked points.
    pub(super) fn decode_knowing(
        bytes: &[u8],
        known: &dyn Fn(&CertHash) -> Option<Arc<Registration>>,
    ) -> Result<Message, Malformed> {
        let mut r = Reader::new(bytes);
        let registration = |r: &mut Reader<'_>| registration(r, known);
        let message = match r.u8()? {
            1 => Message::Join(Join {
                registration: registration(&mut r)?,
                run: Incarnation(r.array()?),
                epoch: epoch(&mut r)?,
                size: r.u16()?,
                reliable: boolean(&mut r)?,
            }),
            2 => Message::Challenge(Challenge {
                to: who(&mut r)?,
                registration: registration(&mut r)?,
                run: Incarnation(r.array()?),
                salt: r.array()?,
                token: r.array()?,
                tag: r.array()?,
            }),
            3 => Message::Accept(Accept {
                from: who(&mut r)?,
                to: who(&mut r)?,
                token: r.array()?,
                epoch: epoch(&mut r)?,
                tag: r.array()?,
            }),
            4 => Message::Propose(propose(&mut r)?),
            5 => Message::Ack(Ack {
                from: who(&mut r)?,
                to: who(&mut r)?,
                proposal: r.array()?,
                base: epoch(&mut r)?,
                cut: r.array()?,
                tag: r.array()?,
            }),
            6 => {
                let (proposal, cut) = (r.array()?, r.array()?);
                let nonce = if boolean(&mut r)? { Some(r.array()?) } else { None };
                let count = r.count16(32, COMPARTMENTS_MAX + 1)?;
                let commitments = (0..count).map(|_| r.array()).collect::<Result<_, _>>()?;
                let count = r.count16(4, MEMBERS_MAX)?;
                let entry = |_| Ok((r.u16()?, r.bytes16(EPOCH_ENTRY_BYTES_MAX)?.to_vec()));
                let entries = (0..count).map(entry).collect::<Result<_, Malformed>>()?;
                Message::Commit(Commit { proposal, cut, nonce, commitments, entries })
            }
            7 => Message::Beacon(Beacon {
                registration: registration(&mut r)?,
                run: Incarnation(r.array()?),
                epoch: epoch(&mut r)?,
                size: r.u16()?,
                reliable: boolean(&mut r)?,
            }),
            8 => Message::Wish(Wish {
                from: who(&mut r)?,
                to: who(&mut r)?,
                epoch: epoch(&mut r)?,
                what: match r.u8()? {
                    1 => WishKind::Leave,
                    2 => WishKind::Rotate,
                    3 => WishKind::News,
                    _ => return Err(Malformed),
                },
                tag: r.array()?,
            }),
            9 => {
                Message::Dismiss(Dismiss { from: who(&mut r)?, to: who(&mut r)?, why: gone(r.u8()?)?, tag: r.array()? })
            }
            10 => {
                let count = r.count16(32, MEMBERS_MAX)?;
                Message::Want((0..count).map(|_| r.array().map(CertHash)).collect::<Result<_, _>>()?)
            }
            11 => {
                let count = r.count16(2, MEMBERS_MAX)?;
                Message::Give((0..count).map(|_| registration(&mut r)).collect::<Result<_, _>>()?)
            }
            12 => {
                let (proposal, part) = (r.array()?, r.u16()?);
                let count = r.count16(64, PART_SLOTS)?;
                let slots = (0..count).map(|_| Ok((who(&mut r)?, r.array()?))).collect::<Result<_, Malformed>>()?;
                if usize::from(part) >= PARTS_MAX || count == 0 {
                    return Err(Malformed);
                }
                Message::Roster(Part { proposal, part, slots, signature: r.array()? })
            }
            13 => Message::Lack(Lack {
                from: who(&mut r)?,
                to: who(&mut r)?,
                proposal: r.array()?,
                parts: r.u64()?,
                tag: r.array()?,
            }),
            _ => return Err(Malformed),
        };
        r.end()?;
        Ok(message)
    }
}

fn propose(r: &mut Reader<'_>) -> Result<Propose, Malformed> {
    let (lock, leader, base, counter, attempt) = (r.array()?, who(r)?, epoch(r)?, r.u32()?, r.u32()?);
    let (size, roster) = (r.u16()?, r.array()?);
    let count = r.count16(3, CENTER_MEMBERS_MAX)?;
    let goes = |_| Ok((r.u16()?, gone(r.u8()?)?));
    let gone: Vec<(u16, Gone)> = (0..count).map(goes).collect::<Result<_, Malformed>>()?;
    let came = match boolean(r)? {
        true => {
            let count = r.count16(50, CENTER_MEMBERS_MAX)?;
            Some((0..count).map(|_| Ok((r.u16()?, who(r)?))).collect::<Result<Vec<_>, Malformed>>()?)
        }
        false => None,
    };
    let (signature, acked) = (r.array()?, r.bytes16(CENTER_MEMBERS_MAX.div_ceil(8))?.to_vec());
    let ascends = gone.is_sorted_by(|a, b| a.0 < b.0) && came.iter().all(|it| it.is_sorted_by(|a, b| a.0 < b.0));
    if !ascends || counter == 0 || !(1..=CENTER_MEMBERS_MAX).contains(&usize::from(size)) {
        return Err(Malformed);
    }
    Ok(Propose { leader, base, counter, attempt, lock, size, roster, gone, came, signature, acked })
}

fn write_who<'a>(w: &'a mut Writer, who: &MemberId) -> &'a mut Writer {
    w.raw(&who.cert.0).raw(&who.incarnation.0)
}

fn who(r: &mut Reader<'_>) -> Result<MemberId, Malformed> {
    Ok(MemberId { cert: CertHash(r.array()?), incarnation: Incarnation(r.array()?) })
}

fn boolean(r: &mut Reader<'_>) -> Result<bool, Malformed> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

fn epoch(r: &mut Reader<'_>) -> Result<EpochId, Malformed> {
    Ok(EpochId { counter: r.u32()?, hash: r.u64()? })
}

fn gone(number: u8) -> Result<Gone, Malformed> {
    [Gone::Left, Gone::Silent, Gone::Revoked, Gone::Replaced]
        .into_iter()
        .find(|it| *it as u8 == number)
        .ok_or(Malformed)
}

fn registration(
    r: &mut Reader<'_>,
    known: &dyn Fn(&CertHash) -> Option<Arc<Registration>>,
) -> Result<Arc<Registration>, Malformed> {
    let bytes = r.bytes16(REGISTRATION_BYTES_MAX)?;
    known(&CertHash(sha256(bytes))).map_or_else(|| Registration::from_bytes(bytes).map(Arc::new), Ok)
}

/// Slots of one part of a roster: with the frame and the headers of UDP and IPv6 it fits the least packet of IPv6.
pub(super) const PART_SLOTS: usize = 16;
/// Parts of the largest roster: bits of LACK.
pub(super) const PARTS_MAX: usize = 64;
const _: () = assert!(CENTER_MEMBERS_MAX <= PARTS_MAX * PART_SLOTS);
/// Bytes of a difference in one PROPOSE.
pub(super) const DIFFERENCE_BYTES: usize = 760;
const _: () = assert!(3 * CENTER_REASONS_MAX <= DIFFERENCE_BYTES);
