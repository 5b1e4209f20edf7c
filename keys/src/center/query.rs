//! What members ask the key distribution centre, and what it answers.
//!
//! ```text
//! all:      "SCKDC1\0\0" (8) ‖ kind (1) ‖ asker (32) ‖ nonce (16) ‖ content ‖ zeros ‖ tag (32)
//! 1 PAIR    to (32), padded to 185 bytes                2 GRANTED  number (8) ‖ salt (16) ‖ masked (32) ‖ proof (32)
//! 3 NEWS    since (8), padded to 512 bytes              4 REVOKED  number (8) ‖ count (2) of: number (8) ‖ principal (32)
//! 5 REVOKE  principal (32) ‖ reason (16-bit length)     6 DONE     number (8)
//! 8 CHECK   principal (32), padded to 185 bytes         6 DONE     number (8): it is registered, and not revoked
//!                                                       7 REFUSED  kind asked (1) ‖ number (8) ‖ why (1)
//! ```
//! The tag is the first thing that is checked: HMAC-SHA256 under the asker's authentication key, with another label for
//! each direction. No answer is longer than its question, so that nobody's questions in another one's name amplify.
//! GRANTED has no tag of its own: its proof binds all of it.

use sealcast_crypto::leighton_micali::{Forged, Granted, LongTerm, tag, verify};
use sealcast_wire::limits::{KDC_NEWS_MAX, KDC_QUERY_BYTES_MAX, REASON_BYTES_MAX};
use sealcast_wire::{CertHash, Malformed, Reader, Writer};

/// How every question and answer begins.
pub const MAGIC: [u8; 8] = *b"SCKDC1\0\0";

/// Tells one question of a principal from its others.
pub type Nonce = [u8; 16];

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// A key to talk to this principal.
    Pair(CertHash),
    /// Who was revoked after the revocation of this number.
    News(u64),
    /// Revoke this principal.
    Revoke(CertHash, String),
    /// Whether this principal is registered, and not revoked.
    Check(CertHash),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The key, masked, and the number of the newest revocation.
    Granted(u64, Granted),
    /// The newest revocation's number, and those after the one that was named, as many as fit: number and whose.
    Revoked(u64, Vec<(u64, CertHash)>),
    /// It is revoked, by the revocation of this number; or it is good, and this is the newest revocation's.
    Done(u64),
    /// The kind of question, the newest revocation's number, and why not.
    Refused(u8, u64, Refusal),
}

/// Why the centre does not do what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// There is no such principal.
    #[error("no such principal is registered")]
    Unknown,
    /// The other one is revoked.
    #[error("it is revoked")]
    Revoked,
    /// The other one's registration has ended, or not begun.
    #[error("its registration has ended, or has not begun")]
    Expired,
    /// Who asks has no right to.
    #[error("who asks has no right to it")]
    Denied,
    /// It is a stand-by that has not heard from the first centre for too long.
    #[error("the stand-by has not heard from the first centre for too long")]
    Stale,
    /// It could not be stored.
    #[error("the centre cannot store it")]
    Store,
    /// Who asks is revoked itself.
    #[error("who asks is revoked")]
    Excluded,
}

/// One of [`Refusal::ALL`], by its number.
impl Refusal {
    /// All of them; the wire has their place here, counted from 1.
    pub const ALL: [Refusal; 7] = [
        Refusal::Unknown,
        Refusal::Revoked,
        Refusal::Expired,
        Refusal::Denied,
        Refusal::Stale,
        Refusal::Store,
        Refusal::Excluded,
    ];
}

/// A question or an answer whose tag is not checked yet.
#[derive(Debug)]
pub struct Unchecked<'a, T> {
    /// Whose authentication key makes the tag.
    pub asker: CertHash,
    /// The question's.
    pub nonce: Nonce,
    what: T,
    tagged: &'a [u8],
    tag: &'a [u8],
    label: &'static str,
}

impl<T> Unchecked<'_, T> {
    /// What it says, if the asker's keys made the tag. Only an [`Answer::Granted`] has none.
    ///
    /// # Errors
    /// [`Forged`].
    pub fn check(self, keys: &LongTerm) -> Result<T, Forged> {
        if !self.tag.is_empty() {
            verify(&keys.authentication, self.label, &[self.tagged], self.tag)?;
        }
        Ok(self.what)
    }

    /// The same, which holds whoever made it: a planted fault.
    #[cfg(any(test, feature = "misbehaving"))]
    pub(super) fn believed(self) -> Self {
        Unchecked { tag: &[], ..self }
    }
}

impl Query {
    fn kind(&self) -> u8 {
        match self {
            Query::Pair(_) => PAIR,
            Query::News(_) => NEWS,
            Query::Revoke(..) => REVOKE,
            Query::Check(_) => CHECK,
        }
    }

    /// The question's bytes, proved to be the asker's.
    pub fn write(&self, asker: &CertHash, nonce: &Nonce, keys: &LongTerm) -> Vec<u8> {
        let mut w = head(self.kind(), asker, nonce);
        let bytes = match self {
            Query::Pair(whom) | Query::Check(whom) => {
                w.raw(&whom.0);
                PAIR_BYTES
            }
            Query::News(since) => {
                w.u64(*since);
                KDC_QUERY_BYTES_MAX
            }
            Query::Revoke(whom, reason) => {
                w.raw(&whom.0).bytes16(reason.as_bytes());
                KDC_QUERY_BYTES_MAX
            }
        };
        finish(w, bytes, keys, ASKED)
    }

    /// Reads a question.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(bytes: &[u8]) -> Result<Unchecked<'_, Query>, Malformed> {
        let (kind, asker, nonce, mut r) = open(bytes)?;
        let what = match kind {
            PAIR if bytes.len() == PAIR_BYTES => Query::Pair(CertHash(r.array()?)),
            CHECK if bytes.len() == PAIR_BYTES => Query::Check(CertHash(r.array()?)),
            NEWS if bytes.len() == KDC_QUERY_BYTES_MAX => Query::News(r.u64()?),
            REVOKE if bytes.len() == KDC_QUERY_BYTES_MAX => {
                let whom = CertHash(r.array()?);
                let reason = std::str::from_utf8(r.bytes16(REASON_BYTES_MAX)?).map_err(|_| Malformed)?;
                Query::Revoke(whom, reason.to_owned())
            }
            _ => return Err(Malformed),
        };
        if r.rest().iter().any(|byte| *byte != 0) {
            return Err(Malformed);
        }
        let (tagged, tag) = bytes.split_at(bytes.len() - TAG_BYTES);
        Ok(Unchecked { asker, nonce, what, tagged, tag, label: ASKED })
    }
}

impl Answer {
    /// The answer's bytes to who asked with this nonce, whose keys these are.
    pub fn write(&self, asker: &CertHash, nonce: &Nonce, keys: &LongTerm) -> Vec<u8> {
        let kind = match self {
            Answer::Granted(..) => GRANTED,
            Answer::Revoked(..) => REVOKED,
            Answer::Done(_) => DONE,
            Answer::Refused(..) => REFUSED,
        };
        let mut w = head(kind, asker, nonce);
        match self {
            Answer::Granted(number, granted) => {
                w.u64(*number).raw(&granted.salt).raw(&granted.masked).raw(&granted.proof);
                return w.finish();
            }
            Answer::Revoked(number, list) => {
                w.u64(*number).u16(list.len() as u16);
                list.iter().for_each(|(number, whom)| _ = w.u64(*number).raw(&whom.0));
            }
            Answer::Done(number) => _ = w.u64(*number),
            Answer::Refused(kind, number, why) => {
                let place = Refusal::ALL.iter().position(|it| it == why).expect("all are listed");
                w.u8(*kind).u64(*number).u8(place as u8 + 1);
            }
        }
        finish(w, 0, keys, ANSWERED)
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(bytes: &[u8]) -> Result<Unchecked<'_, Answer>, Malformed> {
        let (kind, asker, nonce, mut r) = open(bytes)?;
        if kind == GRANTED {
            let mut r = Reader::new(&bytes[HEAD_BYTES..]);
            let number = r.u64()?;
            let granted = Granted { salt: r.array()?, masked: r.array()?, proof: r.array()? };
            r.end()?;
            let what = Answer::Granted(number, granted);
            return Ok(Unchecked { asker, nonce, what, tagged: &[], tag: &[], label: ANSWERED });
        }
        let what = match kind {
            REVOKED => {
                let number = r.u64()?;
                let count = r.count16(40, KDC_NEWS_MAX)?;
                let one = |_| Ok((r.u64()?, CertHash(r.array()?)));
                Answer::Revoked(number, (0..count).map(one).collect::<Result<_, Malformed>>()?)
            }
            DONE => Answer::Done(r.u64()?),
            REFUSED => {
                let (kind, number, place) = (r.u8()?, r.u64()?, usize::from(r.u8()?));
                let why = place.checked_sub(1).and_then(|at| Refusal::ALL.get(at)).ok_or(Malformed)?;
                Answer::Refused(kind, number, *why)
            }
            _ => return Err(Malformed),
        };
        r.end()?;
        let (tagged, tag) = bytes.split_at(bytes.len() - TAG_BYTES);
        Ok(Unchecked { asker, nonce, what, tagged, tag, label: ANSWERED })
    }
}

/// The kind of a question, as [`Answer::Refused`] names it.
pub fn kind_of(ask: &Query) -> u8 {
    ask.kind()
}

fn head(kind: u8, asker: &CertHash, nonce: &Nonce) -> Writer {
    let mut w = Writer::new();
    w.raw(&MAGIC).u8(kind).raw(&asker.0).raw(nonce);
    w
}

fn finish(w: Writer, padded_to: usize, keys: &LongTerm, label: &str) -> Vec<u8> {
    let mut bytes = w.finish();
    bytes.resize(bytes.len().max(padded_to.saturating_sub(TAG_BYTES)), 0);
    let tag = tag(&keys.authentication, label, &[&bytes]);
    bytes.extend_from_slice(&tag);
    bytes
}

fn open(bytes: &[u8]) -> Result<(u8, CertHash, Nonce, Reader<'_>), Malformed> {
    if bytes.len() > KDC_QUERY_BYTES_MAX || bytes.len() < HEAD_BYTES + TAG_BYTES {
        return Err(Malformed);
    }
    let mut r = Reader::new(&bytes[..bytes.len() - TAG_BYTES]);
    if r.array()? != MAGIC {
        return Err(Malformed);
    }
    Ok((r.u8()?, CertHash(r.array()?), r.array()?, r))
}

const PAIR: u8 = 1;
const GRANTED: u8 = 2;
const NEWS: u8 = 3;
const REVOKED: u8 = 4;
const REVOKE: u8 = 5;
const DONE: u8 = 6;
const REFUSED: u8 = 7;
const CHECK: u8 = 8;
const TAG_BYTES: usize = 32;
const HEAD_BYTES: usize = 8 + 1 + 32 + 16;
/// As long as the answer.
const PAIR_BYTES: usize = HEAD_BYTES + 8 + 16 + 32 + 32 + 40;
const _: () = assert!(HEAD_BYTES + 10 + 40 * KDC_NEWS_MAX + TAG_BYTES <= KDC_QUERY_BYTES_MAX);
const ASKED: &str = "sealcast/v1/kdc/ask";
const ANSWERED: &str = "sealcast/v1/kdc/answer";
