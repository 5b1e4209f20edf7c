//! mls-rs's hundred errors as the few that tell who must act.

use mls_rs::error::MlsError;
use sealcast_crypto::cipher_suite::SuiteError;

use super::identity::Refused;
use super::provider::ProviderError;
use crate::mls::engine::{CommitError, JoinError, ProcessError};
use crate::mls::judge::Refusal;

/// Why a message was not used.
pub(super) fn processing(error: &MlsError) -> ProcessError {
    match error {
        MlsError::CantProcessMessageFromSelf => ProcessError::Ours,
        MlsError::GroupIdMismatch => ProcessError::OtherGroup,
        MlsError::ProposalNotFound => ProcessError::ProposalMissing,
        MlsError::InvalidSignature
        | MlsError::InvalidMembershipTag
        | MlsError::MembershipTagForNonMember
        | MlsError::KeyMissing(_)
        | MlsError::InvalidFutureGeneration(_)
        | MlsError::InvalidLeafConsumption => ProcessError::Unauthentic,
        // The path's secret opened, and is not that of the path's keys; or none of it was sealed to a key of ours.
        MlsError::PubKeyMismatch
        | MlsError::UpdateErrorNoSecretKey
        | MlsError::LcaNotFoundInDirectPath
        | MlsError::InvalidTreeKemPrivateKey => ProcessError::NoPathSecret,
        _ => match (refusal(error), cryptography(error)) {
            (Some(refusal), _) => ProcessError::Refused(refusal),
            (_, Some(ProviderError::NotSealedToUs)) => ProcessError::NoPathSecret,
            (_, Some(ProviderError::Suite(SuiteError::Open | SuiteError::Signature))) => ProcessError::Unauthentic,
            _ => ProcessError::Invalid,
        },
    }
}

/// Why we do not come in.
pub(super) fn joining(error: &MlsError) -> JoinError {
    match error {
        MlsError::WelcomeKeyPackageNotFound => JoinError::OtherPackage,
        MlsError::TreeHashMismatch => JoinError::OtherTree,
        MlsError::InvalidSignature | MlsError::InvalidConfirmationTag | MlsError::PubKeyMismatch => {
            JoinError::Unauthentic
        }
        MlsError::SerializationError(_) | MlsError::UnexpectedMessageType => JoinError::Malformed,
        _ => match (refusal(error), cryptography(error)) {
            (Some(refusal), _) => JoinError::Refused(refusal),
            (_, Some(_)) => JoinError::Unauthentic,
            _ => JoinError::Invalid,
        },
    }
}

/// Why there is no proposal or commit.
pub(super) fn committing(error: &MlsError) -> CommitError {
    match error {
        MlsError::SerializationError(_) | MlsError::UnexpectedMessageType | MlsError::CipherSuiteMismatch => {
            CommitError::Malformed
        }
        MlsError::InvalidLifetime { .. } => CommitError::Expired,
        MlsError::InvalidSignature => CommitError::Unauthentic,
        MlsError::DuplicateLeafData(_) => CommitError::Member,
        MlsError::CommitterSelfRemoval => CommitError::OwnRemoval,
        MlsError::LeafNotFound(_)
        | MlsError::InvalidNodeIndex(_)
        | MlsError::InvalidTreeIndex
        | MlsError::ExpectedNode
        | MlsError::UnexpectedEmptyNode
        | MlsError::RemovingNonExistingMember => CommitError::NoSuchMember,
        MlsError::CommitRequired => CommitError::ProposalsWait,
        _ => refusal(error).map_or(CommitError::Invalid, CommitError::Refused),
    }
}

/// What our judge said.
pub(super) fn refusal(error: &MlsError) -> Option<Refusal> {
    let (MlsError::IdentityProviderError(any) | MlsError::MlsRulesError(any)) = error else { return None };
    any.inner_dyn_error().downcast_ref::<Refused>().map(|it| it.0)
}

/// What our cryptography said.
fn cryptography(error: &MlsError) -> Option<ProviderError> {
    let MlsError::CryptoProviderError(any) = error else { return None };
    any.inner_dyn_error().downcast_ref::<ProviderError>().copied()
}
