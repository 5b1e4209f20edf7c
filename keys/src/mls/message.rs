//! What members of an MLS group send each other beside sealed data, all of it under the group's bootstrap key (D8).
//!
//! ```text
//! in the order:   FOUND  group id ‖ card                    the first one of a group's log founds it
//!                 COMMIT epoch ‖ commit ‖ cards ‖ why       cards of those whom it lets in, a statement of eviction
//!                 PROPOSAL epoch ‖ proposal
//!                 CARD   card                               a member runs anew (G4)
//!                 COMPLAINT commit ‖ certificate ‖ signature  a member cannot open a commit
//!                 PART   epoch ‖ hash ‖ i of n ‖ bytes       of one of these that is too long
//! by the way:     WANT   what ‖ position ‖ tries ‖ card     somebody outside asks for an ENTRY
//!                 ENTRY  to ‖ counter ‖ epoch ‖ position ‖ founded ‖ cut ‖ annex ‖ what
//!                 SEEK   hashes, or certificate ‖ tries     something to fetch, where no directory is
//!                 PIECE  bytes                              of the annex of an ENTRY
//!                 PACKAGE certificate ‖ key package         of a device
//! annex  =  bytes, or the hashes of pieces to be fetched, or those of the pieces of their list
//! ```
//! What decides lies in the order itself, also if it is long: whether something can be fetched differs by member.

use sealcast_crypto::hash::Transcript;
use sealcast_crypto::identity::Identity;
use sealcast_crypto::signature::{Algorithm, PublicKey, Signature};
use sealcast_wire::codec::{Malformed, Reader, Writer};
use sealcast_wire::{CertHash, Incarnation, MemberId, limits};

use super::complaints::Complaint;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Found {
        group_id: [u8; 32],
        card: Card,
    },
    Commit {
        epoch: u64,
        commit: Vec<u8>,
        cards: Vec<Card>,
        why: Vec<u8>,
    },
    Proposal {
        epoch: u64,
        proposal: Vec<u8>,
    },
    Part {
        epoch: u64,
        whole: [u8; 32],
        index: u16,
        count: u16,
        bytes: Vec<u8>,
    },
    Card(Card),
    Complaint(Complaint),
    Want {
        what: WantKind,
        position: u64,
        tries: u32,
        card: Card,
    },
    Entry(Entry),
    Seek(Sought),
    /// Statements of eviction, and a revocation list.
    Warning(Vec<Vec<u8>>),
    /// Sealed, as its hash names it.
    Piece(Vec<u8>),
    /// Sealed, too.
    Package {
        cert: CertHash,
        bytes: Vec<u8>,
    },
}

/// What members are asked for where no directory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sought {
    Pieces(Vec<[u8; 32]>),
    Package { cert: CertHash, tries: u32 },
}

/// What somebody outside asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum WantKind {
    /// The GroupInfo, or the Welcome that waits for it.
    Entry = 0,
    /// Whether its external commit at the position won.
    Outcome = 1,
    /// To be let in: it does not come in by itself.
    Admission = 2,
}

/// The way into an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// For whom.
    pub(super) to: CertHash,
    /// Of the epoch's name.
    pub(super) counter: u32,
    /// RFC 9420's number of it.
    pub(super) epoch: u64,
    /// Of the last message in the order that led to it.
    pub(super) position: u64,
    /// Of the message that founded the group.
    pub(super) founded: u64,
    /// What was delivered before it.
    pub(super) cut: [u8; 32],
    /// [`Annex`], in bytes.
    pub(super) annex: Body,
    pub(super) kind: EntryKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// By the Welcome in the annex. A MAC under a secret of the epoch binds what is beside it.
    Welcome([u8; 32]),
    /// By a commit of one's own on the GroupInfo in the annex, which replaces a leaf that its author has.
    GroupInfo(Option<u32>),
    /// An external commit won: the epoch that it led to is in use. A MAC under a secret of that epoch proves it.
    Entered([u8; 32]),
}

/// What an entry comes with: Welcome or GroupInfo, the tree, and the cards of members. All prove themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Annex {
    /// Welcome or GroupInfo; empty with [`EntryKind::Entered`].
    pub(super) opening: Vec<u8>,
    /// `ratchet_tree` (RFC 9420, section 12.4.3.3); empty with [`EntryKind::Entered`].
    pub(super) tree: Vec<u8>,
    pub(super) cards: Vec<Card>,
}

/// Bytes of any length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Inline(Vec<u8>),
    /// SHA-256 of each piece, in their order.
    Pieces(Vec<[u8; 32]>),
    /// The same of the pieces of the list of those.
    Listed(Vec<[u8; 32]>),
}

/// A running process of a member: whose it is, and the key by which it signs data (G4). Signed by the certificate's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) id: MemberId,
    /// Counts the runs of one certificate: a later one replaces an earlier one.
    pub(super) run: u64,
    /// Ed25519.
    pub(super) origin: [u8; 32],
    pub(super) signature: Signature,
}

impl Card {
    pub(super) fn new(group: &str, identity: &Identity, id: MemberId, run: u64, origin: [u8; 32]) -> Card {
        let mut card = Card { id, run, origin, signature: [0; 64] };
        card.signature = identity.key().sign(&card.statement(group));
        card
    }

    /// The key that it names, if the certificate's key signed it.
    pub(super) fn check(&self, group: &str, key: &PublicKey) -> Option<PublicKey> {
        key.verify(&self.statement(group), &self.signature).ok()?;
        PublicKey::new(Algorithm::Ed25519, &self.origin).ok()
    }

    fn statement(&self, group: &str) -> [u8; 32] {
        let t = Transcript::new("sealcast/v1/mls/card").add(group.as_bytes()).add(&self.id.cert.0);
        t.add(&self.id.incarnation.0).add(&self.run.to_be_bytes()).add(&self.origin).finish()
    }

    pub(super) fn put(&self, w: &mut Writer) {
        w.raw(&self.id.cert.0).raw(&self.run_bytes());
    }

    /// All but whose it is.
    pub(super) fn run_bytes(&self) -> [u8; RUN_BYTES] {
        let mut w = Writer::with_capacity(RUN_BYTES);
        w.raw(&self.id.incarnation.0).u64(self.run).raw(&self.origin).raw(&self.signature);
        w.finish().try_into().expect("its parts have this length")
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Card, Malformed> {
        let id = MemberId { cert: CertHash(r.array()?), incarnation: Incarnation(r.array()?) };
        Ok(Card { id, run: r.u64()?, origin: r.array()?, signature: r.array()? })
    }
}

impl Message {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut w = Writer::new();
        match self {
            Message::Found { group_id, card } => card.put(w.u8(FOUND).raw(group_id)),
            Message::Commit { epoch, commit, cards, why } => {
                w.u8(COMMIT).u64(*epoch).u32(commit.len() as u32).raw(commit).u16(cards.len() as u16);
                cards.iter().for_each(|it| it.put(&mut w));
                w.bytes16(why);
            }
            Message::Proposal { epoch, proposal } => _ = w.u8(PROPOSAL).u64(*epoch).bytes16(proposal),
            Message::Part { epoch, whole, index, count, bytes } => {
                w.u8(PART).u64(*epoch).raw(whole).u16(*index).u16(*count).bytes16(bytes);
            }
            Message::Card(card) => card.put(w.u8(CARD)),
            Message::Complaint(complaint) => complaint.put(w.u8(COMPLAINT)),
            Message::Want { what, position, tries, card } => {
                card.put(w.u8(WANT).u8(*what as u8).u64(*position).u32(*tries));
            }
            Message::Entry(it) => {
                w.u8(ENTRY).raw(&it.to.0).u32(it.counter).u64(it.epoch).u64(it.position).u64(it.founded).raw(&it.cut);
                it.annex.put(&mut w);
                match &it.kind {
                    EntryKind::Welcome(mac) => _ = w.u8(0).raw(mac),
                    EntryKind::GroupInfo(leaf) => _ = w.u8(1).u32(leaf.unwrap_or(u32::MAX)),
                    EntryKind::Entered(mac) => _ = w.u8(2).raw(mac),
                }
            }
            Message::Seek(Sought::Pieces(hashes)) => {
                w.u8(SEEK).u8(0).u16(hashes.len() as u16);
                hashes.iter().for_each(|it| _ = w.raw(it));
            }
            Message::Seek(Sought::Package { cert, tries }) => _ = w.u8(SEEK).u8(1).raw(&cert.0).u32(*tries),
            Message::Piece(bytes) => _ = w.u8(PIECE).bytes16(bytes),
            Message::Package { cert, bytes } => _ = w.u8(PACKAGE).raw(&cert.0).bytes16(bytes),
            Message::Warning(statements) => {
                w.u8(WARNING).u16(statements.len() as u16);
                statements.iter().for_each(|it| _ = w.bytes16(it));
            }
        }
        w.finish()
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Message, Malformed> {
        let mut r = Reader::new(bytes);
        let message = match r.u8()? {
            FOUND => Message::Found { group_id: r.array()?, card: Card::read(&mut r)? },
            COMMIT => {
                let (epoch, length) = (r.u64()?, r.u32()? as usize);
                let commit = r.take(length)?.to_vec();
                let cards = cards(&mut r, limits::MLS_ADDED_MAX)?;
                Message::Commit { epoch, commit, cards, why: r.bytes16(limits::STATEMENT_BYTES_MAX)?.to_vec() }
            }
            PROPOSAL => Message::Proposal { epoch: r.u64()?, proposal: r.bytes16(limits::OPEN_BYTES_MAX)?.to_vec() },
            PART => {
                let (epoch, whole, index, count) = (r.u64()?, r.array()?, r.u16()?, r.u16()?);
                let bytes = r.bytes16(limits::MLS_PART_BYTES)?.to_vec();
                if index >= count || usize::from(count) > limits::MLS_PARTS_MAX || bytes.is_empty() {
                    return Err(Malformed);
                }
                Message::Part { epoch, whole, index, count, bytes }
            }
            CARD => Message::Card(Card::read(&mut r)?),
            COMPLAINT => Message::Complaint(Complaint::read(&mut r)?),
            WANT => {
                let what = match r.u8()? {
                    0 => WantKind::Entry,
                    1 => WantKind::Outcome,
                    2 => WantKind::Admission,
                    _ => return Err(Malformed),
                };
                Message::Want { what, position: r.u64()?, tries: r.u32()?, card: Card::read(&mut r)? }
            }
            ENTRY => {
                let (to, counter) = (CertHash(r.array()?), r.u32()?);
                let (epoch, position, founded) = (r.u64()?, r.u64()?, r.u64()?);
                let (cut, annex) = (r.array()?, Body::read(&mut r)?);
                let kind = match r.u8()? {
                    0 => EntryKind::Welcome(r.array()?),
                    1 => EntryKind::GroupInfo(Some(r.u32()?).filter(|leaf| *leaf != u32::MAX)),
                    2 => EntryKind::Entered(r.array()?),
                    _ => return Err(Malformed),
                };
                Message::Entry(Entry { to, counter, epoch, position, founded, cut, annex, kind })
            }
            SEEK => Message::Seek(match r.u8()? {
                0 => Sought::Pieces(hashes(&mut r)?),
                1 => Sought::Package { cert: CertHash(r.array()?), tries: r.u32()? },
                _ => return Err(Malformed),
            }),
            PIECE => Message::Piece(r.bytes16(limits::OPEN_BYTES_MAX)?.to_vec()),
            PACKAGE => {
                Message::Package { cert: CertHash(r.array()?), bytes: r.bytes16(limits::OPEN_BYTES_MAX)?.to_vec() }
            }
            WARNING => {
                let count = r.count16(2, limits::EVICTIONS_MAX)?;
                let statement = |_| Ok(r.bytes16(limits::OPEN_BYTES_MAX)?.to_vec());
                Message::Warning((0..count).map(statement).collect::<Result<_, Malformed>>()?)
            }
            _ => return Err(Malformed),
        };
        r.end()?;
        Ok(message)
    }
}

fn hashes(r: &mut Reader<'_>) -> Result<Vec<[u8; 32]>, Malformed> {
    let count = r.count16(32, limits::MLS_PIECES_MAX)?;
    (0..count).map(|_| r.array()).collect()
}

fn cards(r: &mut Reader<'_>, most: usize) -> Result<Vec<Card>, Malformed> {
    let count = r.count16(CARD_BYTES, most)?;
    (0..count).map(|_| Card::read(r)).collect()
}

impl Body {
    pub(super) fn put(&self, w: &mut Writer) {
        match self {
            Body::Inline(bytes) => _ = w.u8(0).bytes16(bytes),
            Body::Pieces(pieces) => _ = w.u8(1).u16(pieces.len() as u16).raw(pieces.as_flattened()),
            Body::Listed(lists) => _ = w.u8(2).u16(lists.len() as u16).raw(lists.as_flattened()),
        }
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<Body, Malformed> {
        match r.u8()? {
            0 => Ok(Body::Inline(r.bytes16(limits::OPEN_BYTES_MAX)?.to_vec())),
            1 => Ok(Body::Pieces(hashes(r)?)),
            2 => Ok(Body::Listed(hashes(r)?)),
            _ => Err(Malformed),
        }
    }
}

impl Annex {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u32(self.opening.len() as u32).raw(&self.opening);
        w.u32(self.tree.len() as u32).raw(&self.tree).u32(self.cards.len() as u32);
        self.cards.iter().for_each(|it| it.put(&mut w));
        w.finish()
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Annex, Malformed> {
        let mut r = Reader::new(bytes);
        let length = r.u32()? as usize;
        let opening = r.take(length)?.to_vec();
        let length = r.u32()? as usize;
        let tree = r.take(length)?.to_vec();
        let count = r.u32()? as usize;
        if count != r.remaining() / CARD_BYTES {
            return Err(Malformed);
        }
        let cards = (0..count).map(|_| Card::read(&mut r)).collect::<Result<_, _>>()?;
        r.end()?;
        Ok(Annex { opening, tree, cards })
    }
}

const RUN_BYTES: usize = 16 + 8 + 32 + 64;
const CARD_BYTES: usize = 32 + RUN_BYTES;

const FOUND: u8 = 1;
const COMMIT: u8 = 2;
const PROPOSAL: u8 = 3;
const CARD: u8 = 4;
const WANT: u8 = 5;
const ENTRY: u8 = 6;
const PART: u8 = 7;
const SEEK: u8 = 8;
const PIECE: u8 = 9;
const PACKAGE: u8 = 10;
const COMPLAINT: u8 = 11;
const WARNING: u8 = 12;
