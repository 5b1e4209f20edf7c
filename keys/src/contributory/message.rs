//! The messages of contributory groups, byte by byte.
//!
//! ```text
//! open frame = veil( type, 1 | body | signature, 64 )      FETCH, GIVE and STATE carry no signature
//! type       = format, 4 bits ‖ kind, 4 bits             of a proposal: the version that it is for
//! ```
//! Decoding checks every length (G2) and yields values whose signature is *not* verified yet: who may
//! verify it knows the card of `author`. Signatures cover [`signed`]: label with protocol version and
//! message, group, what the message is bound to (an attempt's instance and roster), and the body (G3).
//!
//! Sizes matter in one place: a proposal has at most 64 bytes per member that it names, at two members
//! too. So it names members by eight bytes (the roster's full hash is bound by each R1), takes the
//! veil's nonce for its own, and tells kind, base and version by its type.
//!
//! Members that have no version in common read each other's JOINs, BEACONs, cards and proposals all the same: their format
//! is that of version 1 for good. What later versions add to the first two is skipped, and signed with the rest.

use sealcast_crypto::dutta_barua::CONTRIBUTION_LEN;
use sealcast_crypto::hash::Transcript;
use sealcast_crypto::signature::{SIGNATURE_LEN, Signature};
use sealcast_wire::limits::{
    ADDED_BYTES_MAX, CERTIFICATE_BYTES_MAX, COMPARTMENTS_MAX, EVICTIONS_MAX, FIRST_COUNTER_MAX, MEMBERS_MAX,
    OPEN_BYTES_MAX,
};
use sealcast_wire::{CertHash, EpochId, Incarnation, Malformed, Reader, Writer};

use super::version::Versions;

/// Bytes of a card beside its certificate.
const CARD_BYTES: usize = 32 + 16 + 32 + 2 + SIGNATURE_LEN;

/// Eight bytes that name a member (certificate, incarnation and its key) within a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ShortId(pub(super) [u8; 8]);

/// The first eight bytes of an attempt's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct InstanceId(pub(super) [u8; 8]);

/// A message as its bytes say it; unverified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Join(Join),
    Propose(Propose),
    R1(R1),
    R2(R2),
    Kc(Kc),
    Status(Status),
    Fetch(Fetch),
    Give(Vec<Object>),
    Beacon(Beacon),
    Leave(Leave),
    SenderKey(SenderKey),
    State(State),
}

/// What a member shows of itself: its certificate, this run of it, and the run's key, signed by the
/// certificate's key. An object: it proves itself, whoever hands it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) cert: CertHash,
    pub(super) incarnation: Incarnation,
    /// Ed25519 public key of the incarnation.
    pub(super) key: [u8; 32],
    /// The versions of the wire that it speaks.
    pub(super) versions: Versions,
    /// By the certificate's key, over [`Card::signed`].
    pub(super) signature: Signature,
    /// The certificate; its hash is `cert`. Empty where the receiver is expected to have it.
    pub(super) der: Vec<u8>,
}

/// How far a member's knowledge of statements, CRL and policy goes; compared, never trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// First 8 bytes of the hash of the set of eviction statements.
    pub(super) evictions: u64,
    /// CRL number; 0 without one.
    pub(super) crl: u64,
    /// Policy number; 0 without one.
    pub(super) policy: u64,
}

/// 'I want in': elicits a proposal, changes nothing (A6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Join {
    pub(super) card: Card,
    pub(super) summary: Summary,
    /// The epoch that the author comes from; default without one.
    pub(super) epoch: EpochId,
    /// How many members that has.
    pub(super) size: u16,
    /// The epoch of a group of which the author heard; a JOIN that names the present one is not old.
    pub(super) towards: EpochId,
    /// What a later version adds.
    pub(super) added: Vec<u8>,
    /// By the incarnation's key.
    pub(super) signature: Signature,
}

/// What an attempt does with its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Everybody draws a fresh exponent.
    Setup,
    /// Joiners are added to a ring of three or more (tcrypto 4.2, rule 2); the bits of the joiners, by seat.
    Join(u64),
}

/// An epoch of two or more, that another one follows on. Its order is that of parts of a group which do not know
/// of each other: who moved on has the greater number, and of two with one number fewer go to more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Base {
    pub(super) counter: u32,
    pub(super) size: u8,
    pub(super) hash: u64,
}

/// The response to JOINs, and any other wish for a new epoch: names who shall be in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Propose {
    /// Number of the epoch to be.
    pub(super) counter: u32,
    /// Counts attempts at that epoch from 1.
    pub(super) attempt: u8,
    /// The version of the wire that the epoch is of: the highest that all of its members speak.
    pub(super) version: u8,
    pub(super) kind: Kind,
    /// The epoch that it is to follow; `None` among members without one.
    pub(super) base: Option<Base>,
    /// First 4 bytes of the hash of evictions, CRL number and policy number.
    pub(super) hint: [u8; 4],
    /// The proposer, then the others in ascending order: the attempt's *seats*.
    pub(super) seats: Vec<ShortId>,
    /// By the proposer's incarnation key.
    pub(super) signature: Signature,
}

/// Round 1: X of each ring that the author is active in, and all that it takes the attempt to be about: members who
/// differ in that can show each other so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct R1 {
    pub(super) author: ShortId,
    /// The attempt's hash in full.
    pub(super) instance: [u8; 32],
    /// Hash of the roster, as the author knows its members.
    pub(super) roster: [u8; 32],
    /// Hash of statements, CRL and policy, as the author knows them.
    pub(super) state: [u8; 32],
    /// Whether the author is in the epoch that the proposal follows on, or confirmed it: two such prove that it exists.
    pub(super) of_base: bool,
    /// X and the proof of knowledge of its exponent per ring, in the order of rings.
    pub(super) contributions: Vec<[u8; CONTRIBUTION_LEN]>,
    /// By the *certificate's* key: a joiner is alive and is who it says (A6).
    pub(super) signature: Signature,
}

/// Round 2: Y of each ring that the author is active in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct R2 {
    pub(super) author: ShortId,
    pub(super) instance: InstanceId,
    /// Hash of all R1, as the author holds them: different ones show an equivocator.
    pub(super) heard: [u8; 32],
    /// Hash of what is delivered in the author's view before this one; zero if nothing is flushed, or it was in none.
    pub(super) cut: [u8; 32],
    /// Y per ring, with a proof that it is of X's exponent from the second attempt on (A9).
    pub(super) shares: Vec<Vec<u8>>,
    pub(super) signature: Signature,
}

/// Key confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kc {
    pub(super) author: ShortId,
    pub(super) instance: InstanceId,
    /// First 8 bytes of the transcript's hash: the epoch's id to be (A13).
    pub(super) epoch: u64,
    /// (MAC of the author, commitment to the key) per ring that the author is in.
    pub(super) rings: Vec<([u8; 32], [u8; 32])>,
    /// Public key per compartment with writers that do not read it (A1), of those the author reads.
    pub(super) publics: Vec<[u8; 32]>,
    pub(super) signature: Signature,
}

/// Which rounds' messages the author holds, as bits by seat; asks for the others, unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) author: ShortId,
    pub(super) instance: InstanceId,
    pub(super) r1: u64,
    pub(super) r2: u64,
    pub(super) kc: u64,
    pub(super) signature: Signature,
}

/// Asks for cards by short id, and for the proposal of an attempt of which one heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fetch {
    pub(super) proposal: Option<InstanceId>,
    pub(super) cards: Vec<ShortId>,
}

/// Something that proves itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Card(Box<Card>),
    /// A signed statement of eviction.
    Eviction(Vec<u8>),
    /// A revocation list, DER.
    Crl(Vec<u8>),
    /// A signed policy.
    Policy(Vec<u8>),
}

/// Says that a group is here, who speaks for it, and what it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Beacon {
    pub(super) author: ShortId,
    pub(super) epoch: EpochId,
    pub(super) size: u16,
    pub(super) summary: Summary,
    /// As on the author's card.
    pub(super) versions: Versions,
    /// What a later version adds.
    pub(super) added: Vec<u8>,
    pub(super) signature: Signature,
}

/// 'Go on without me', signed by the certificate's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leave {
    pub(super) author: ShortId,
    pub(super) epoch: EpochId,
    pub(super) signature: Signature,
}

/// The sending key of a member that writes a compartment but does not read it (A1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SenderKey {
    pub(super) author: ShortId,
    pub(super) epoch: EpochId,
    pub(super) domain: u16,
    /// HPKE to the compartment's public key.
    pub(super) sealed: Vec<u8>,
    pub(super) signature: Signature,
}

/// What the author knows of statements: asks for what it lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) crl: u64,
    pub(super) policy: u64,
    /// First 8 bytes of each statement's hash, ascending.
    pub(super) evictions: Vec<[u8; 8]>,
}

/// The bytes that a signature is over: a hash of label, group, what the message is bound to, and body.
pub(super) fn signed(label: &str, group: &str, bound: &[&[u8]], body: &[u8]) -> [u8; 32] {
    let mut transcript = Transcript::new(label).add(group.as_bytes());
    for part in bound {
        transcript.absorb(part);
    }
    transcript.add(body).finish()
}

impl Base {
    pub(super) fn of(epoch: EpochId, size: usize) -> Base {
        Base { counter: epoch.counter, size: size as u8, hash: epoch.hash }
    }

    /// The number of the epoch that follows on this one.
    pub(super) fn next_counter(self) -> u32 {
        next_counter(self.counter)
    }
}

impl Card {
    /// The name of this card's holder in short.
    pub(super) fn short_id(&self, group: &str) -> ShortId {
        #[cfg(any(test, feature = "misbehaving"))]
        if let Some(short) = super::misbehaving::collides(&self.cert) {
            return short;
        }
        let hash = Transcript::new("sealcast/v1/member").add(group.as_bytes());
        let hash = hash.add(&self.cert.0).add(&self.incarnation.0).add(&self.key).add(&self.versions.to_bytes());
        ShortId(first8(&hash.finish()))
    }

    /// What the certificate's key signs.
    pub(super) fn signed(&self, group: &str) -> [u8; 32] {
        signed(CARD_LABEL, group, &[&self.cert.0, &self.incarnation.0, &self.key], &self.versions.to_bytes())
    }

    fn write(&self, w: &mut Writer) {
        w.raw(&self.cert.0).raw(&self.incarnation.0).raw(&self.key);
        self.versions.write(w);
        w.raw(&self.signature).bytes16(&self.der);
    }

    fn read(r: &mut Reader<'_>) -> Result<Card, Malformed> {
        Ok(Card {
            cert: CertHash(r.array()?),
            incarnation: Incarnation(r.array()?),
            key: r.array()?,
            versions: Versions::read(r)?,
            signature: r.array()?,
            der: r.bytes16(CERTIFICATE_BYTES_MAX)?.to_vec(),
        })
    }
}

impl Object {
    /// Its bytes, without what frames them.
    pub(super) fn size(&self) -> usize {
        match self {
            Object::Card(card) => CARD_BYTES + card.der.len(),
            Object::Eviction(b) | Object::Crl(b) | Object::Policy(b) => b.len(),
        }
    }

    /// Whether it fits into one message; a revocation list of some 400 entries does not, and has to come to
    /// members by other ways.
    pub(super) fn fits(&self) -> bool {
        match self {
            Object::Card(_) => true,
            Object::Eviction(b) | Object::Crl(b) | Object::Policy(b) => b.len() <= OBJECT_BYTES_MAX,
        }
    }
}

impl Summary {
    fn write(&self, w: &mut Writer) {
        w.u64(self.evictions).u64(self.crl).u64(self.policy);
    }

    fn read(r: &mut Reader<'_>) -> Result<Summary, Malformed> {
        Ok(Summary { evictions: r.u64()?, crl: r.u64()?, policy: r.u64()? })
    }
}

impl Message {
    /// Type byte and body, without signature.
    pub(super) fn body(&self) -> Vec<u8> {
        let mut w = Writer::new();
        match self {
            Message::Join(m) => {
                w.u8(JOIN);
                m.card.write(&mut w);
                m.summary.write(&mut w);
                write_epoch(&mut w, m.epoch);
                w.u16(m.size);
                write_epoch(&mut w, m.towards);
                w.bytes16(&m.added);
            }
            Message::Propose(m) => {
                let kind = match (m.kind, m.base) {
                    (Kind::Setup, None) => PROPOSE_FIRST,
                    (Kind::Setup, Some(_)) => PROPOSE_SETUP,
                    (Kind::Join(_), _) => PROPOSE_JOIN,
                };
                w.u8(m.version << 4 | kind);
                w.u32(m.counter).u8(m.attempt).raw(&m.hint);
                if let Some(base) = m.base {
                    w.u32(base.counter).u8(base.size).u64(base.hash);
                }
                if let Kind::Join(joiners) = m.kind {
                    w.u64(joiners);
                }
                m.seats.iter().for_each(|id| _ = w.raw(&id.0));
            }
            Message::R1(m) => {
                w.u8(R1_TYPE).raw(&m.author.0).raw(&m.instance).raw(&m.roster).raw(&m.state);
                w.u8(u8::from(m.of_base)).u8(m.contributions.len() as u8);
                m.contributions.iter().for_each(|c| _ = w.raw(c));
            }
            Message::R2(m) => {
                w.u8(R2_TYPE).raw(&m.author.0).raw(&m.instance.0).raw(&m.heard).raw(&m.cut);
                w.u8(m.shares.len() as u8);
                m.shares.iter().for_each(|share| _ = w.u8(share.len() as u8).raw(share));
            }
            Message::Kc(m) => {
                w.u8(KC).raw(&m.author.0).raw(&m.instance.0).u64(m.epoch).u8(m.rings.len() as u8);
                m.rings.iter().for_each(|(mac, commitment)| _ = w.raw(mac).raw(commitment));
                w.u8(m.publics.len() as u8);
                m.publics.iter().for_each(|key| _ = w.raw(key));
            }
            Message::Status(m) => {
                w.u8(STATUS).raw(&m.author.0).raw(&m.instance.0).u64(m.r1).u64(m.r2).u64(m.kc);
            }
            Message::Fetch(m) => {
                w.u8(FETCH).u8(u8::from(m.proposal.is_some()));
                if let Some(instance) = m.proposal {
                    w.raw(&instance.0);
                }
                w.u16(m.cards.len() as u16);
                m.cards.iter().for_each(|id| _ = w.raw(&id.0));
            }
            Message::Give(objects) => {
                w.u8(GIVE);
                for object in objects {
                    match object {
                        Object::Card(card) => card.write(w.u8(1)),
                        Object::Eviction(bytes) => _ = w.u8(2).bytes16(bytes),
                        Object::Crl(bytes) => _ = w.u8(3).bytes16(bytes),
                        Object::Policy(bytes) => _ = w.u8(4).bytes16(bytes),
                    }
                }
            }
            Message::Beacon(m) => {
                w.u8(BEACON).raw(&m.author.0);
                write_epoch(&mut w, m.epoch);
                w.u16(m.size);
                m.summary.write(&mut w);
                m.versions.write(&mut w);
                w.bytes16(&m.added);
            }
            Message::Leave(m) => {
                w.u8(LEAVE).raw(&m.author.0);
                write_epoch(&mut w, m.epoch);
            }
            Message::SenderKey(m) => {
                w.u8(SENDER_KEY).raw(&m.author.0);
                write_epoch(&mut w, m.epoch);
                w.u16(m.domain).bytes16(&m.sealed);
            }
            Message::State(m) => {
                w.u8(STATE).u64(m.crl).u64(m.policy).u16(m.evictions.len() as u16);
                m.evictions.iter().for_each(|hash| _ = w.raw(hash));
            }
        }
        w.finish()
    }

    /// The signature, of messages that carry one.
    pub(super) fn signature(&self) -> Option<&Signature> {
        match self {
            Message::Fetch(_) | Message::Give(_) | Message::State(_) => None,
            Message::Join(m) => Some(&m.signature),
            Message::Propose(m) => Some(&m.signature),
            Message::R1(m) => Some(&m.signature),
            Message::R2(m) => Some(&m.signature),
            Message::Kc(m) => Some(&m.signature),
            Message::Status(m) => Some(&m.signature),
            Message::Beacon(m) => Some(&m.signature),
            Message::Leave(m) => Some(&m.signature),
            Message::SenderKey(m) => Some(&m.signature),
        }
    }

    /// Who is said to have signed it, where the message names a member.
    pub(super) fn author(&self) -> Option<ShortId> {
        match self {
            Message::Join(_) | Message::Fetch(_) | Message::Give(_) | Message::State(_) => None,
            Message::Propose(m) => m.seats.first().copied(),
            Message::R1(m) => Some(m.author),
            Message::R2(m) => Some(m.author),
            Message::Kc(m) => Some(m.author),
            Message::Status(m) => Some(m.author),
            Message::Beacon(m) => Some(m.author),
            Message::Leave(m) => Some(m.author),
            Message::SenderKey(m) => Some(m.author),
        }
    }

    /// All bytes that go under the bootstrap key.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.body();
        if let Some(signature) = self.signature() {
            bytes.extend_from_slice(signature);
        }
        bytes
    }

    /// Reads what [`Message::encode`] wrote.
    ///
    /// # Errors
    /// [`Malformed`] if a length does not fit, a count is over its limit, or bytes are left over.
    pub(super) fn decode(bytes: &[u8]) -> Result<Message, Malformed> {
        if bytes.len() > OPEN_BYTES_MAX {
            return Err(Malformed);
        }
        let mut r = Reader::new(bytes);
        let kind = r.u8()?;
        let message = match kind {
            JOIN => Message::Join(Join {
                card: Card::read(&mut r)?,
                summary: Summary::read(&mut r)?,
                epoch: read_epoch(&mut r)?,
                size: r.u16()?,
                towards: read_epoch(&mut r)?,
                added: r.bytes16(ADDED_BYTES_MAX)?.to_vec(),
                signature: r.array()?,
            }),
            R1_TYPE => {
                let author = ShortId(r.array()?);
                let (instance, roster, state) = (r.array()?, r.array()?, r.array()?);
                let of_base = read_flag(&mut r)?;
                let n = read_rings(&mut r)?;
                let contributions = (0..n).map(|_| r.array()).collect::<Result<_, Malformed>>()?;
                Message::R1(R1 { author, instance, roster, state, of_base, contributions, signature: r.array()? })
            }
            R2_TYPE => {
                let (author, instance) = read_head(&mut r)?;
                let (heard, cut) = (r.array()?, r.array()?);
                let n = read_rings(&mut r)?;
                let share = |r: &mut Reader<'_>| {
                    let n = usize::from(r.u8()?);
                    Ok(r.take(n)?.to_vec())
                };
                let shares = (0..n).map(|_| share(&mut r)).collect::<Result<_, Malformed>>()?;
                Message::R2(R2 { author, instance, heard, cut, shares, signature: r.array()? })
            }
            KC => {
                let (author, instance) = read_head(&mut r)?;
                let epoch = r.u64()?;
                let n = read_rings(&mut r)?;
                let rings = (0..n).map(|_| Ok((r.array()?, r.array()?))).collect::<Result<_, Malformed>>()?;
                let n = read_rings(&mut r)?;
                let publics = (0..n).map(|_| r.array()).collect::<Result<_, Malformed>>()?;
                Message::Kc(Kc { author, instance, epoch, rings, publics, signature: r.array()? })
            }
            STATUS => {
                let (author, instance) = read_head(&mut r)?;
                let (r1, r2, kc) = (r.u64()?, r.u64()?, r.u64()?);
                Message::Status(Status { author, instance, r1, r2, kc, signature: r.array()? })
            }
            FETCH => {
                let proposal = if read_flag(&mut r)? { Some(InstanceId(r.array()?)) } else { None };
                let n = r.count16(8, MEMBERS_MAX)?;
                let cards = (0..n).map(|_| Ok(ShortId(r.array()?))).collect::<Result<_, Malformed>>()?;
                Message::Fetch(Fetch { proposal, cards })
            }
            GIVE => {
                let mut objects = Vec::new();
                while r.remaining() > 0 {
                    objects.push(match r.u8()? {
                        1 => Object::Card(Box::new(Card::read(&mut r)?)),
                        2 => Object::Eviction(r.bytes16(OPEN_BYTES_MAX)?.to_vec()),
                        3 => Object::Crl(r.bytes16(OPEN_BYTES_MAX)?.to_vec()),
                        4 => Object::Policy(r.bytes16(OPEN_BYTES_MAX)?.to_vec()),
                        _ => return Err(Malformed),
                    });
                }
                Message::Give(objects)
            }
            BEACON => Message::Beacon(Beacon {
                author: ShortId(r.array()?),
                epoch: read_epoch(&mut r)?,
                size: r.u16()?,
                summary: Summary::read(&mut r)?,
                versions: Versions::read(&mut r)?,
                added: r.bytes16(ADDED_BYTES_MAX)?.to_vec(),
                signature: r.array()?,
            }),
            LEAVE => {
                Message::Leave(Leave { author: ShortId(r.array()?), epoch: read_epoch(&mut r)?, signature: r.array()? })
            }
            SENDER_KEY => Message::SenderKey(SenderKey {
                author: ShortId(r.array()?),
                epoch: read_epoch(&mut r)?,
                domain: r.u16()?,
                sealed: r.bytes16(256)?.to_vec(),
                signature: r.array()?,
            }),
            STATE => {
                let (crl, policy) = (r.u64()?, r.u64()?);
                let n = r.count16(8, EVICTIONS_MAX)?;
                let evictions = (0..n).map(|_| r.array()).collect::<Result<_, Malformed>>()?;
                Message::State(State { crl, policy, evictions })
            }
            kind if kind >> 4 > 0 => match kind & KIND_BITS {
                PROPOSE_FIRST | PROPOSE_SETUP | PROPOSE_JOIN => Message::Propose(read_propose(kind, &mut r)?),
                _ => return Err(Malformed),
            },
            _ => return Err(Malformed),
        };
        r.end()?;
        Ok(message)
    }
}

fn read_propose(kind: u8, r: &mut Reader<'_>) -> Result<Propose, Malformed> {
    let (version, kind) = (kind >> 4, kind & KIND_BITS);
    let (counter, attempt, hint) = (r.u32()?, r.u8()?, r.array()?);
    let base = if kind == PROPOSE_FIRST { None } else { Some(read_base(r)?) };
    let joiners = if kind == PROPOSE_JOIN { Some(r.u64()?) } else { None };
    let n = r.remaining().checked_sub(SIGNATURE_LEN).ok_or(Malformed)? / 8;
    if n == 0 || n > MEMBERS_MAX {
        return Err(Malformed);
    }
    let seats = (0..n).map(|_| Ok(ShortId(r.array()?))).collect::<Result<Vec<_>, Malformed>>()?;
    let ascending = seats[1..].is_sorted_by(|a, b| a < b) && !seats[1..].contains(&seats[0]);
    let kind = joiners.map_or(Kind::Setup, Kind::Join);
    let joiners_have_seats = joiners.is_none_or(|bits| bits != 0 && (n == 64 || bits >> n == 0));
    // One step from a base, and a small number without one: nobody can use the numbers up by a claim.
    let follows = base.map_or(counter <= FIRST_COUNTER_MAX, |base| base.next_counter() == counter);
    if !ascending || !joiners_have_seats || !follows || counter == 0 || attempt == 0 {
        return Err(Malformed);
    }
    Ok(Propose { counter, attempt, version, kind, base, hint, seats, signature: r.array()? })
}

fn read_base(r: &mut Reader<'_>) -> Result<Base, Malformed> {
    let base = Base { counter: r.u32()?, size: r.u8()?, hash: r.u64()? };
    if (2..=MEMBERS_MAX).contains(&usize::from(base.size)) { Ok(base) } else { Err(Malformed) }
}

fn read_head(r: &mut Reader<'_>) -> Result<(ShortId, InstanceId), Malformed> {
    Ok((ShortId(r.array()?), InstanceId(r.array()?)))
}

fn read_rings(r: &mut Reader<'_>) -> Result<usize, Malformed> {
    let n = usize::from(r.u8()?);
    if n > COMPARTMENTS_MAX + 1 || n * 32 > r.remaining() { Err(Malformed) } else { Ok(n) }
}

fn read_flag(r: &mut Reader<'_>) -> Result<bool, Malformed> {
    match r.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

fn write_epoch(w: &mut Writer, epoch: EpochId) {
    w.u32(epoch.counter).u64(epoch.hash);
}

fn read_epoch(r: &mut Reader<'_>) -> Result<EpochId, Malformed> {
    Ok(EpochId { counter: r.u32()?, hash: r.u64()? })
}

/// The number that comes after another one; after the last one they begin again. An epoch is told from others by
/// its hash as well, so that a number may come twice.
pub(super) fn next_counter(counter: u32) -> u32 {
    counter.checked_add(1).unwrap_or(1)
}

/// The first eight bytes of a hash.
pub(super) fn first8(hash: &[u8; 32]) -> [u8; 8] {
    *hash.first_chunk().expect("32 bytes have a first 8")
}

/// Of an object in a message, less the bootstrap key, the message's type, and the object's type and length.
const OBJECT_BYTES_MAX: usize = OPEN_BYTES_MAX - sealcast_crypto::bootstrap::OVERHEAD - 4;

/// Of all messages but proposals; version 0 had none.
const FORMAT: u8 = 1 << 4;
const KIND_BITS: u8 = 0xF;
const JOIN: u8 = FORMAT | 1;
const PROPOSE_FIRST: u8 = 2;
const PROPOSE_SETUP: u8 = 3;
const PROPOSE_JOIN: u8 = 4;
const R1_TYPE: u8 = FORMAT | 5;
const R2_TYPE: u8 = FORMAT | 6;
const KC: u8 = FORMAT | 7;
const STATUS: u8 = FORMAT | 8;
const FETCH: u8 = FORMAT | 9;
const GIVE: u8 = FORMAT | 10;
const BEACON: u8 = FORMAT | 11;
const LEAVE: u8 = FORMAT | 12;
const SENDER_KEY: u8 = FORMAT | 13;
const STATE: u8 = FORMAT | 14;

/// What the certificate's key signs of a card.
pub(super) const CARD_LABEL: &str = "sealcast/v1/card";

const _: () = assert!(MEMBERS_MAX <= 64, "seats are bits of a u64");

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const BASE: Base = Base { counter: 6, size: 3, hash: 8 };

    fn examples() -> Vec<Message> {
        let (author, instance) = (ShortId([1; 8]), InstanceId([2; 8]));
        let (versions, added) = (Versions::of(&[1, 7]), vec![6; 9]);
        let signature = [9; 64];
        let epoch = EpochId { counter: 3, hash: 4 };
        let summary = Summary { evictions: 1, crl: 2, policy: 3 };
        let card = Card {
            cert: CertHash([1; 32]),
            incarnation: Incarnation([2; 16]),
            key: [3; 32],
            versions,
            signature,
            der: vec![4; 300],
        };
        let propose = |kind, base, n: u8| {
            let seats = (0..n).map(|i| ShortId([i; 8])).collect();
            Message::Propose(Propose { counter: 7, attempt: 1, version: 2, kind, base, hint: [5; 4], seats, signature })
        };
        vec![
            Message::Join(Join {
                card: card.clone(),
                summary,
                epoch,
                size: 2,
                towards: epoch,
                added: added.clone(),
                signature,
            }),
            propose(Kind::Setup, None, 2),
            propose(Kind::Setup, Some(BASE), 3),
            propose(Kind::Join(0b1000), Some(BASE), 4),
            propose(Kind::Join(1 << 63), Some(BASE), 64),
            Message::R1(R1 {
                author,
                instance: [2; 32],
                roster: [3; 32],
                state: [4; 32],
                of_base: true,
                contributions: vec![[1; 96]; 3],
                signature,
            }),
            Message::R2(R2 {
                author,
                instance,
                heard: [1; 32],
                cut: [3; 32],
                shares: vec![vec![1; 32], vec![2; 96]],
                signature,
            }),
            Message::Kc(Kc {
                author,
                instance,
                epoch: 5,
                rings: vec![([1; 32], [2; 32]); 2],
                publics: vec![[3; 32]],
                signature,
            }),
            Message::Status(Status { author, instance, r1: 1, r2: 2, kc: 3, signature }),
            Message::Fetch(Fetch { proposal: Some(instance), cards: vec![author; 3] }),
            Message::Fetch(Fetch { proposal: None, cards: vec![] }),
            Message::Give(vec![
                Object::Card(Box::new(card)),
                Object::Eviction(vec![1; 10]),
                Object::Crl(vec![2; 10]),
                Object::Policy(vec![3; 10]),
            ]),
            Message::Beacon(Beacon { author, epoch, size: 5, summary, versions, added, signature }),
            Message::Leave(Leave { author, epoch, signature }),
            Message::SenderKey(SenderKey { author, epoch, domain: 1, sealed: vec![1; 80], signature }),
            Message::State(State { crl: 1, policy: 2, evictions: vec![[1; 8], [2; 8]] }),
        ]
    }

    #[test]
    fn every_message_is_read_as_it_was_written() {
        for message in examples() {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn rule_g2_no_prefix_and_no_longer_message_is_taken() {
        for message in examples() {
            let bytes = message.encode();
            let objects = matches!(message, Message::Give(_));
            for n in 0..bytes.len() {
                let shorter = Message::decode(&bytes[..n]);
                assert!(shorter.is_err() || objects || shorter != Ok(message.clone()), "{n} of {message:?}");
            }
            assert_eq!(Message::decode(&[&bytes[..], &[77]].concat()), Err(Malformed), "{message:?}");
        }
    }

    #[test]
    fn a_proposal_has_at_most_64_bytes_per_member() {
        for n in 2..=64_u8 {
            for (kind, base) in [(Kind::Setup, None), (Kind::Setup, Some(BASE)), (Kind::Join(1), Some(BASE))] {
                if n < 3 && base.is_some() {
                    continue; // a group of one is no base: nobody else's traffic depends on it
                }
                let seats = (0..n).map(|i| ShortId([i; 8])).collect();
                let m =
                    Propose { counter: 1, attempt: 1, version: 1, kind, base, hint: [0; 4], seats, signature: [0; 64] };
                let bootstrap_and_frame = 36 + 2;
                assert!(
                    Message::Propose(m).encode().len() + bootstrap_and_frame <= 64 * usize::from(n),
                    "{n} {kind:?}"
                );
            }
        }
    }

    #[test]
    fn a_proposals_number_follows_from_its_base() {
        let of = |counter, base: Option<Base>| {
            let seats = (0..3).map(|i| ShortId([i; 8])).collect();
            let m = Propose {
                counter,
                attempt: 1,
                version: 1,
                kind: Kind::Setup,
                base,
                hint: [0; 4],
                seats,
                signature: [0; 64],
            };
            Message::decode(&Message::Propose(m).encode()).is_ok()
        };
        let base = |counter| Some(Base { counter, size: 3, hash: 8 });
        assert!(of(7, base(6)) && !of(8, base(6)) && !of(6, base(6)) && !of(5, base(6)));
        assert!(of(1, base(u32::MAX)) && !of(0, base(u32::MAX)) && !of(u32::MAX, base(u32::MAX)));
        assert!(of(1, None) && of(FIRST_COUNTER_MAX, None) && !of(FIRST_COUNTER_MAX + 1, None) && !of(0, None));
    }

    #[test]
    fn a_proposal_names_nobody_twice() {
        let seats = vec![ShortId([1; 8]), ShortId([1; 8])];
        let m = Propose {
            counter: 1,
            attempt: 1,
            version: 1,
            kind: Kind::Setup,
            base: None,
            hint: [0; 4],
            seats,
            signature: [0; 64],
        };
        assert_eq!(Message::decode(&Message::Propose(m).encode()), Err(Malformed));
    }
}
