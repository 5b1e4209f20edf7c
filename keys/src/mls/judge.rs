//! Who may be a member, and who may change a group: the judge that an engine asks.
//!
//! An engine checks what RFC 9420 says of trees, signatures and secrets. Whom the members trust, and with what, is the
//! application's part of the protocol (section 5.3): certificates, rights, revocations. All members must judge alike, so
//! an answer may depend on the arguments and on what the group context names, and on nothing else.

use sealcast_wire::Utc;

/// Judges credentials and changes. An engine may ask from several threads.
pub trait Judge: Send + Sync {
    /// The lasting name of a credential's holder, without a check of its signatures. No two leaves of a group have the same
    /// one; an update and an external commit that replaces a leaf must keep it (RFC 9420, sections 7.3 and 12.4.3.2).
    ///
    /// # Errors
    /// [`Refusal`] if the credential does not name anybody.
    fn identity(&self, credential: &Credential) -> Result<Vec<u8>, Refusal>;

    /// Whether the holder of this credential may be a member, with this signature key, at this time. Requested for every
    /// leaf of a tree at a join, and for each leaf that comes or changes. Must also check that the key is the
    /// credential's own: for X.509 that of the first certificate (RFC 9420, section 5.3).
    ///
    /// # Errors
    /// [`Refusal`] says why not.
    fn admit(&self, claim: &Claim, utc: Utc, extensions: &[Extension]) -> Result<(), Refusal>;

    /// Whether a change that RFC 9420 allows is one that its author may make.
    ///
    /// # Errors
    /// [`Refusal`] says why not.
    fn permit(&self, act: &Act<'_>) -> Result<(), Refusal>;
}

/// How a leaf names its holder (RFC 9420, section 5.3).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Credential {
    /// An opaque name, proved by nothing: for experiments.
    Basic(Vec<u8>),
    /// Certificates in DER, the holder's own first.
    X509(Vec<Vec<u8>>),
}

/// What a leaf claims: that its key belongs to whom its credential names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Whom.
    pub credential: Credential,
    /// The leaf's signature key: 32 bytes of Ed25519, or an uncompressed point of P-256 (65 bytes).
    pub signature_key: Vec<u8>,
}

/// An extension of the group context (RFC 9420, section 13.4), opaque to an engine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extension {
    /// Its number; those for private use begin at 0xF000 (section 17.3).
    pub kind: u16,
    /// Its content.
    pub data: Vec<u8>,
}

/// A change that somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act<'a> {
    /// The proposer's credential, which for a change by value is the committer, or the joiner itself.
    pub by: &'a Credential,
    /// What.
    pub what: What<'a>,
    /// The extensions of the group context before it.
    pub extensions: &'a [Extension],
}

/// What somebody wants to change. Updates of one's own leaf are for [`Judge::admit`] alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// Let in the holder of a key package.
    Add(&'a Claim),
    /// Come in by an external commit.
    Join,
    /// Remove a member; it may be the proposer itself.
    Remove(&'a Credential),
    /// Replace the extensions of the group context.
    Extensions(&'a [Extension]),
}

/// Why somebody may not be in, or may not change the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Refusal {
    /// The credential is malformed, of a kind that this group has not, or not signed by its authority.
    #[error("the credential is not of this group's authority")]
    Credential,
    /// The signature key is not the credential's, or not of this group's suite.
    #[error("the signature key is not the credential's")]
    Key,
    /// The credential is not valid at this time.
    #[error("the credential is expired, or not valid yet")]
    Time,
    /// The credential is revoked, or its holder evicted.
    #[error("revoked or evicted")]
    Revoked,
    /// The credential does not grant this.
    #[error("no right to do this")]
    Right,
}

/// Admits every `basic` credential and permits every change: for experiments, in which nobody proves a name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Everybody;

impl Judge for Everybody {
    fn identity(&self, credential: &Credential) -> Result<Vec<u8>, Refusal> {
        match credential {
            Credential::Basic(name) => Ok(name.clone()),
            Credential::X509(_) => Err(Refusal::Credential),
        }
    }

    fn admit(&self, claim: &Claim, _: Utc, _: &[Extension]) -> Result<(), Refusal> {
        self.identity(&claim.credential).map(|_| ())
    }

    fn permit(&self, _: &Act<'_>) -> Result<(), Refusal> {
        Ok(())
    }
}
