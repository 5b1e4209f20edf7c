//! Statements: what an authority, or somebody with the right, says to a whole group and for ever.
//!
//! ```text
//! 0      2      3         4        5        7
//! | "SC" | kind | version | signer | length | body | signer's certificate | evicted's certificate | signature |
//!          E, P   1         0, 1     `----------'    `-------- each behind its 16-bit length ----'    64 bytes
//!                                                        only where signer = 1, a member
//! ```
//! Integers are big-endian. Signed is the transcript `sealcast/v1/statement` of kind, the authority's
//! certificate's hash, the member's certificate's hash (empty for the authority), and body; that hash is
//! also the statement's id. Bodies name their group. A revocation list (DER) begins with 0x30, so what a
//! group may learn is told apart by its first bytes: [`Kind::of`].

mod eviction;
mod policy;

use std::sync::Arc;

use sealcast_wire::{CertHash, Malformed, Reader, Writer, limits};

pub use eviction::{Eviction, SignedEviction, Signer};
pub use policy::{Compartment, OnStale, Policy, SignedPolicy};

use super::anchor::TrustAnchor;
use super::certificate::CertificateError;
use crate::hash::{Transcript, sha256};
use crate::signature::{SIGNATURE_LEN, Signature};

/// What a signed object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An [`Eviction`].
    Eviction,
    /// A [`Policy`].
    Policy,
    /// A revocation list ([`super::Crl`]).
    Crl,
}

/// Why a statement is not accepted, or not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// Not of the form in the module's head.
    #[error("the statement is malformed")]
    Malformed,
    /// The signature is not that of who is said to sign.
    #[error("the statement's signature is wrong")]
    Signature,
    /// The certificate of the member who signed, or of the one to be evicted.
    #[error("a certificate in the statement: {0}")]
    Certificate(#[from] CertificateError),
    /// The member who signed has no `evict` right that covers the other's rights (A4).
    #[error("its signer has no right to evict that member")]
    Denied,
    /// A policy that a member signed.
    #[error("only the authority signs a policy")]
    NotAuthority,
    /// An eviction's reason.
    #[error("a reason has at most 200 bytes and no control character")]
    Reason,
    /// A policy's contents.
    #[error("the policy has wrong names or patterns, or too many")]
    Contents,
    /// A policy with a higher number is known.
    #[error("the policy is older than the one known")]
    Older,
    /// Another policy with the same number is known.
    #[error("the policy contradicts another one with the same number")]
    Conflict,
}

impl Kind {
    /// What these bytes would be, by their first ones.
    pub fn of(bytes: &[u8]) -> Option<Kind> {
        match bytes {
            [b'S', b'C', b'E', ..] => Some(Kind::Eviction),
            [b'S', b'C', b'P', ..] => Some(Kind::Policy),
            [0x30, ..] => Some(Kind::Crl),
            _ => None,
        }
    }

    fn letter(self) -> u8 {
        match self {
            Kind::Eviction => b'E',
            Kind::Policy => b'P',
            Kind::Crl => 0x30,
        }
    }
}

/// The id of a statement, without verifying it, so that known ones need not be verified again; `None` if
/// it is malformed.
pub fn id(bytes: &[u8], anchor: &TrustAnchor) -> Option<[u8; 32]> {
    Envelope::parse(Kind::of(bytes)?, bytes).ok().map(|e| e.digest(&anchor.certificate().hash()))
}

/// A statement's outer form.
struct Envelope<'a> {
    kind: Kind,
    body: &'a [u8],
    member: Option<Member<'a>>,
    signature: Signature,
}

/// The two certificates (DER) that go with a member's statement.
#[derive(Clone, Copy)]
struct Member<'a> {
    signer: &'a [u8],
    evicted: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn parse(kind: Kind, bytes: &'a [u8]) -> Result<Envelope<'a>, Malformed> {
        if bytes.len() > limits::STATEMENT_BYTES_MAX {
            return Err(Malformed);
        }
        let mut reader = Reader::new(bytes);
        if reader.take(4)? != [b'S', b'C', kind.letter(), VERSION] {
            return Err(Malformed);
        }
        let signer = reader.u8()?;
        let body = reader.bytes16(limits::STATEMENT_BYTES_MAX)?;
        let member = match signer {
            SIGNER_AUTHORITY => None,
            SIGNER_MEMBER => Some(Member {
                signer: reader.bytes16(limits::CERTIFICATE_BYTES_MAX)?,
                evicted: reader.bytes16(limits::CERTIFICATE_BYTES_MAX)?,
            }),
            _ => return Err(Malformed),
        };
        let signature = reader.array::<SIGNATURE_LEN>()?;
        reader.end()?;
        Ok(Envelope { kind, body, member, signature })
    }

    fn write(&self) -> Result<Vec<u8>, StatementError> {
        let mut writer = Writer::new();
        writer.raw(&[b'S', b'C', self.kind.letter(), VERSION]);
        writer.u8(if self.member.is_some() { SIGNER_MEMBER } else { SIGNER_AUTHORITY });
        let parts = self.member.map_or(vec![self.body], |m| vec![self.body, m.signer, m.evicted]);
        if parts.iter().map(|p| p.len()).sum::<usize>() > limits::STATEMENT_BYTES_MAX - ENVELOPE_BYTES {
            return Err(StatementError::Contents);
        }
        parts.iter().for_each(|p| {
            writer.bytes16(p);
        });
        writer.raw(&self.signature);
        Ok(writer.finish())
    }

    /// What is signed, and the statement's id.
    fn digest(&self, authority: &CertHash) -> [u8; 32] {
        digest(self.kind, authority, self.member.map(|m| CertHash(sha256(m.signer))), self.body)
    }
}

fn digest(kind: Kind, authority: &CertHash, member: Option<CertHash>, body: &[u8]) -> [u8; 32] {
    let member = member.map_or(vec![], |m| m.0.to_vec());
    Transcript::new("sealcast/v1/statement").add(&[kind.letter()]).add(&authority.0).add(&member).add(body).finish()
}

/// Text of at most `max` bytes without control characters, as it may be printed.
fn text(bytes: &[u8], max: usize) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (text.len() <= max && !text.chars().any(char::is_control)).then_some(text)
}

impl From<Malformed> for StatementError {
    fn from(_: Malformed) -> StatementError {
        StatementError::Malformed
    }
}

/// A signed object that a group learned, verified.
#[derive(Clone, Debug)]
pub enum Learned {
    /// Somebody is evicted.
    Eviction(SignedEviction),
    /// A policy.
    Policy(SignedPolicy),
    /// A revocation list.
    Crl(super::Crl),
}

impl Learned {
    /// Tells apart and verifies what a group may learn.
    ///
    /// # Errors
    /// It does not verify.
    pub fn verify(bytes: &[u8], anchor: &TrustAnchor) -> Result<Learned, LearnError> {
        Ok(match Kind::of(bytes).ok_or(StatementError::Malformed)? {
            Kind::Eviction => Learned::Eviction(SignedEviction::verify(bytes, anchor)?),
            Kind::Policy => Learned::Policy(SignedPolicy::verify(bytes, anchor)?),
            Kind::Crl => Learned::Crl(super::Crl::verify(bytes, anchor)?),
        })
    }
}

/// Why a signed object was not learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LearnError {
    /// A statement.
    #[error(transparent)]
    Statement(#[from] StatementError),
    /// A revocation list.
    #[error(transparent)]
    Crl(#[from] super::CrlError),
}

/// The bytes of a verified statement, as they are passed on.
type Bytes = Arc<[u8]>;

const VERSION: u8 = 1;
const SIGNER_AUTHORITY: u8 = 0;
const SIGNER_MEMBER: u8 = 1;
/// Bytes of an envelope beside what it holds, at most.
const ENVELOPE_BYTES: usize = 5 + 3 * 2 + SIGNATURE_LEN;
