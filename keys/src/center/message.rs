//! The scheme's messages, as they are under the group's bootstrap key.
//!
//! ```text
//! 1 JOIN      registration ‖ run (16) ‖ epoch that it is in (12) ‖ size of that (2) ‖ channels (1)
//! 2 CHALLENGE     to (48) ‖ leader's registration ‖ run (16) ‖ salt (16) ‖ token (16) ‖ tag (16)
//! 3 ACCEPT    from (48) ‖ to (48) ‖ token (16) ‖ epoch that it is in (12) ‖ tag (16)
//! 4 PROPOSE   lock (32) ‖ leader (48) ‖ base (12) ‖ counter (4) ‖ attempt (4) ‖ count (2) of those who go: hash (32), why (1)
//!             ‖ count (2) of slots: who (48), tag (16) and salt (16)
//! 5 ACK       from (48) ‖ to (48) ‖ proposal (32) ‖ base (12) ‖ cut (32) ‖ tag (16)
//! 6 COMMIT    proposal (32) ‖ cut (32) ‖ nonce (one-way, 1; then 32) ‖ count (2) of commitments (32) ‖ count (2) of entries:
//!             slot (2), sealed (16-bit length)
//! 7 BEACON    registration ‖ run (16) ‖ epoch (12) ‖ size (2) ‖ channels (1): 1 if there is a reliable one, else 0
//! 8 WISH      from (48) ‖ to (48) ‖ epoch (12) ‖ what (1) ‖ tag (16)
//! 9 DISMISS   from (48) ‖ to (48) ‖ why (1) ‖ tag (16)
//! 10 WANT     count (2) of hashes (32)
//! 11 GIVE     count (2) of registrations (16-bit length)
//! ```
//! The first byte is the kind. Somebody is a registration's hash (32) and a run (16); a registration is behind a 16-bit length. Tags are
//! under pair keys ([`super::pair`]); JOIN, BEACON, WANT and GIVE prove nothing and change nothing that others rely on.

use std::sync::Arc;

use sealcast_crypto::hash::Transcript;
use sealcast_crypto::identity::Registration;
use sealcast_wire::limits::{COMPARTMENTS_MAX, EPOCH_ENTRY_BYTES_MAX, MEMBERS_MAX, REGISTRATION_BYTES_MAX};
use sealcast_wire::{CertHash, EpochId, Incarnation, Malformed, MemberId, Reader, Writer};

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

/// Who shall be in the next epoch, by slot; the leader first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Propose {
    pub(super) leader: MemberId,
    pub(super) base: EpochId,
    pub(super) counter: u32,
    pub(super) attempt: u32,
    /// Locks nonce and commitments, which COMMIT shows: so each slot's tag vouches for them.
    pub(super) lock: [u8; 32],
    /// Of the base: who goes, and why.
    pub(super) gone: Vec<(CertHash, Gone)>,
    pub(super) slots: Vec<MemberSlot>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemberSlot {
    pub(super) who: MemberId,
    pub(super) salt: [u8; 16],
    pub(super) tag: Tag,
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

impl Propose {
    /// Names it, and binds everything but the slots' tags.
    pub(super) fn id(&self) -> [u8; 32] {
        Transcript::new("sealcast/v1/center/propose").add(&self.change()).add(&self.lock).finish()
    }

    /// Binds all that its secrets are made for: who leads, whence, and the whole roster.
    pub(super) fn change(&self) -> [u8; 32] {
        let mut w = Writer::new();
        self.write_head(&mut w);
        self.slots.iter().for_each(|slot| _ = write_who(&mut w, &slot.who).raw(&slot.salt));
        Transcript::of("sealcast/v1/center/change", w.as_slice())
    }

    pub(super) fn slot_of(&self, who: &MemberId) -> Option<usize> {
        self.slots.iter().position(|slot| slot.who == *who)
    }

    fn write_head(&self, w: &mut Writer) {
        write_who(w, &self.leader).raw(&self.base.to_bytes()).u32(self.counter).u32(self.attempt);
        w.u16(self.gone.len() as u16);
        self.gone.iter().for_each(|(who, why)| _ = w.raw(&who.0).u8(*why as u8));
        w.u16(self.slots.len() as u16);
    }
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
                m.write_head(w.u8(4).raw(&m.lock));
                m.slots.iter().for_each(|s| _ = write_who(&mut w, &s.who).raw(&s.tag).raw(&s.salt));
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
        }
        w.finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Message, Malformed> {
        let mut r = Reader::new(bytes);
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
            _ => return Err(Malformed),
        };
        r.end()?;
        Ok(message)
    }
}

fn propose(r: &mut Reader<'_>) -> Result<Propose, Malformed> {
    let (lock, leader, base, counter, attempt) = (r.array()?, who(r)?, epoch(r)?, r.u32()?, r.u32()?);
    let count = r.count16(33, MEMBERS_MAX)?;
    let goes = |_| Ok((CertHash(r.array()?), gone(r.u8()?)?));
    let gone = (0..count).map(goes).collect::<Result<_, Malformed>>()?;
    let count = r.count16(80, MEMBERS_MAX)?;
    let slot = |_| Ok(MemberSlot { who: who(r)?, tag: r.array()?, salt: r.array()? });
    let slots: Vec<MemberSlot> = (0..count).map(slot).collect::<Result<_, Malformed>>()?;
    let mut certs: Vec<CertHash> = slots.iter().map(|it| it.who.cert).collect();
    certs.sort_unstable();
    certs.dedup();
    let leads = slots.first().is_some_and(|first| first.who == leader);
    if !leads || certs.len() < slots.len() || counter == 0 {
        return Err(Malformed);
    }
    Ok(Propose { leader, base, counter, attempt, lock, gone, slots })
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

fn registration(r: &mut Reader<'_>) -> Result<Arc<Registration>, Malformed> {
    Registration::from_bytes(r.bytes16(REGISTRATION_BYTES_MAX)?).map(Arc::new)
}
