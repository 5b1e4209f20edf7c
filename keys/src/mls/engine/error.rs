//! Why an engine did not do what it was asked: one small enum an act, each telling who must act.

use crate::mls::judge::Refusal;

/// The bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed")]
pub struct Malformed;

/// The exporter's secret is erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the exporter of this epoch is deleted")]
pub struct ExporterDeleted;

/// Why we cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The signing key is not of the suite's algorithm.
    #[error("the signing key is not of the suite's algorithm")]
    Algorithm,
    /// Our own judge refuses us.
    #[error(transparent)]
    Refused(Refusal),
    /// An extension of the group context is of a kind that the setup does not name.
    #[error("an extension of an unknown kind")]
    Extension,
}

/// Why we do not come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// Our setup.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// Welcome, GroupInfo, tree or the package's secret do not parse.
    #[error("malformed")]
    Malformed,
    /// The Welcome is not for this key package.
    #[error("the Welcome is for other key packages")]
    OtherPackage,
    /// The tree is not that of the epoch.
    #[error("the tree is of another epoch")]
    OtherTree,
    /// A signature, a tag or a ciphertext is wrong.
    #[error("not authentic")]
    Unauthentic,
    /// Somebody in the group, or we, may not be in it.
    #[error(transparent)]
    Refused(Refusal),
    /// Something is against RFC 9420.
    #[error("against the rules of the protocol")]
    Invalid,
}

/// Why there is no proposal or commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// A key package does not parse, or is of another suite.
    #[error("a key package is malformed")]
    Malformed,
    /// At no time are all of the key packages valid.
    #[error("a key package is expired, or not valid yet")]
    Expired,
    /// A key package's signature is wrong.
    #[error("a key package is not authentic")]
    Unauthentic,
    /// The judge refuses somebody or something.
    #[error(transparent)]
    Refused(Refusal),
    /// There is no such member.
    #[error("no such member")]
    NoSuchMember,
    /// Nobody commits its own removal.
    #[error("a member does not commit its own removal")]
    OwnRemoval,
    /// Somebody is a member already: its identity or a key of it is in the tree.
    #[error("a member already")]
    Member,
    /// Proposals wait for a commit: no application data before it (RFC 9420, section 15.2).
    #[error("proposals wait for a commit")]
    ProposalsWait,
    /// The changes do not go together, or are against RFC 9420.
    #[error("against the rules of the protocol")]
    Invalid,
}

/// Why an own commit is not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// It is no pending commit of this version.
    #[error("malformed")]
    Malformed,
    /// It was made in another epoch: it lost, or is applied already.
    #[error("of another epoch")]
    OtherEpoch,
    /// It was made in another state of this epoch: the proposals that it takes are not all here.
    #[error("of another state of this epoch")]
    OtherState,
}

/// Why a message was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// It does not parse, or is nothing that members send each other.
    #[error("malformed")]
    Malformed,
    /// It is of another group.
    #[error("of another group")]
    OtherGroup,
    /// It is of another epoch.
    #[error("of epoch {0}")]
    OtherEpoch(u64),
    /// It is our own: a commit of ours is applied by [`super::Engine::apply`].
    #[error("our own message")]
    Ours,
    /// It cannot be opened, or a signature or tag is wrong. Somebody on the way may have changed it.
    #[error("not authentic")]
    Unauthentic,
    /// It commits a proposal that did not come.
    #[error("commits a proposal that did not come")]
    ProposalMissing,
    /// Its author, or somebody whom it lets in, may not do that.
    #[error(transparent)]
    Refused(Refusal),
    /// It is signed by a member, and against RFC 9420: no member follows it.
    #[error("against the rules of the protocol")]
    Invalid,
    /// It is signed by a member, and holds no secret that we can open, though it should: others may follow it (D3).
    #[error("its path secret is not for us")]
    NoPathSecret,
}

/// Why a checkpoint is not restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// It does not parse.
    #[error("malformed")]
    Malformed,
    /// The tree is not that of the checkpoint.
    #[error("the tree is of another epoch")]
    OtherTree,
    /// The setup is that of another member or suite.
    #[error("of another member")]
    OtherMember,
}
