//! The judge as mls-rs asks it: about identities, and about the proposals of a commit.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mls_rs::MlsRules;
use mls_rs::group::proposal::{AddProposal, ReInitProposal, RemoveProposal, UpdateProposal};
use mls_rs::group::{GroupContext, Roster, Sender};
use mls_rs::mls_rules::{
    CommitDirection, CommitOptions, CommitSource, EncryptionOptions, ProposalBundle, ProposalInfo, ProposalSource,
};
use mls_rs_core::error::IntoAnyError;
use mls_rs_core::extension::{Extension as MlsExtension, ExtensionList, ExtensionType};
use mls_rs_core::identity::{
    BasicCredential, Credential as MlsCredential, CredentialType, DerCertificate, IdentityProvider,
    MemberValidationContext, SigningIdentity,
};
use mls_rs_core::time::MlsTime;
use sealcast_crypto::signature::PublicKey;

use super::provider::Provider;
use crate::mls::engine::{Handshake, Reference};
use crate::mls::judge::{Act, Claim, Credential, Extension, Judge, Refusal, What};

/// Judges leaves.
#[derive(Clone)]
pub(super) struct Identities {
    judge: Arc<dyn Judge>,
    provider: Provider,
}

impl Identities {
    /// Judges leaves by this judge, at the time of the provider's call.
    pub(super) fn new(judge: Arc<dyn Judge>, provider: Provider) -> Identities {
        Identities { judge, provider }
    }

    /// Whether a member may have this leaf.
    ///
    /// # Errors
    /// [`Refusal`], [`Refusal::Key`] if the key is of another suite.
    pub(super) fn admit(&self, claim: &Claim, extensions: &[Extension]) -> Result<(), Refusal> {
        PublicKey::new(self.provider.suite().algorithm(), &claim.signature_key).map_err(|_| Refusal::Key)?;
        self.judge.admit(claim, self.provider.utc(), extensions)
    }
}

impl IdentityProvider for Identities {
    type Error = Refused;

    fn validate_member(
        &self,
        identity: &SigningIdentity,
        _: Option<MlsTime>,
        context: MemberValidationContext<'_>,
    ) -> Result<(), Refused> {
        let extensions = context.new_extensions().map(extensions_of).unwrap_or_default();
        Ok(self.admit(&claim_of(identity)?, &extensions)?)
    }

    fn validate_external_sender(
        &self,
        _: &SigningIdentity,
        _: Option<MlsTime>,
        _: Option<&ExtensionList>,
    ) -> Result<(), Refused> {
        // Nobody outside of a group of ours proposes anything.
        Err(Refused(Refusal::Right))
    }

    fn identity(&self, identity: &SigningIdentity, _: &ExtensionList) -> Result<Vec<u8>, Refused> {
        Ok(self.judge.identity(&claim_of(identity)?.credential)?)
    }

    fn valid_successor(
        &self,
        before: &SigningIdentity,
        after: &SigningIdentity,
        extensions: &ExtensionList,
    ) -> Result<bool, Refused> {
        Ok(self.identity(before, extensions)? == self.identity(after, extensions)?)
    }

    fn supported_types(&self) -> Vec<CredentialType> {
        vec![CredentialType::BASIC, CredentialType::X509]
    }
}

/// Judges commits, and says how ours look.
#[derive(Clone)]
pub(super) struct Rules {
    judge: Arc<dyn Judge>,
    handshake: Handshake,
    taking: Arc<Mutex<Taking>>,
}

/// Which proposals our next commit takes by reference, and whose commit was judged last.
#[derive(Default)]
pub(super) struct Taking {
    /// No others than these, if some are named.
    pub(super) only: Option<BTreeSet<Reference>>,
    /// What the commit that was made last took of them.
    pub(super) taken: Vec<Reference>,
    /// Who signed the commit of others that was judged last.
    pub(super) committer: Option<Claim>,
}

impl Rules {
    /// Judges commits by this judge.
    pub(super) fn new(judge: Arc<dyn Judge>, handshake: Handshake) -> Rules {
        Rules { judge, handshake, taking: Arc::default() }
    }

    /// What our next commit takes.
    pub(super) fn taking(&self) -> MutexGuard<'_, Taking> {
        self.taking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the author of a proposal may make it.
    fn permit(&self, by: &CommitSource, roster: &Roster<'_>, act: &Wanted<'_>) -> Result<(), Refusal> {
        let author = match (act.sender, by) {
            (Sender::Member(leaf), _) => {
                let member = roster.member_with_index(leaf).map_err(|_| Refusal::Right)?;
                claim_of(&member.signing_identity)?.credential
            }
            (Sender::NewMemberCommit, CommitSource::NewMember(identity)) => claim_of(identity)?.credential,
            _ => return Err(Refusal::Right),
        };
        self.judge.permit(&Act { by: &author, what: act.what, extensions: act.extensions })
    }
}

/// A proposal of a commit.
struct Wanted<'a> {
    sender: Sender,
    what: What<'a>,
    extensions: &'a [Extension],
}

impl MlsRules for Rules {
    type Error = Refused;

    fn filter_proposals(
        &self,
        direction: CommitDirection,
        source: CommitSource,
        roster: &Roster<'_>,
        context: &GroupContext,
        mut proposals: ProposalBundle,
    ) -> Result<ProposalBundle, Refused> {
        let extensions = extensions_of(&context.extensions);
        let extensions = &extensions;
        let only = self.taking().only.clone();
        let sends = direction == CommitDirection::Send;
        if !sends {
            // mls-rs has verified its signature.
            self.taking().committer = Some(committer_of(&source)?);
        }
        // What others proposed, and may not be committed, stays out of our commits and voids those of others.
        let keep = |source: &ProposalSource, judged: Result<(), Refusal>| match source {
            ProposalSource::ByReference(it) if sends => {
                let taken = only.as_ref().is_none_or(|only| only.contains(&Reference(it.to_vec())));
                Ok(taken && judged.is_ok())
            }
            _ => judged.map(|()| true).map_err(Refused),
        };
        let act = |sender: Sender, what: What<'_>| self.permit(&source, roster, &Wanted { sender, what, extensions });
        if let CommitSource::NewMember(_) = source {
            act(Sender::NewMemberCommit, What::Join)?;
        }
        proposals.retain_by_type(|it: &ProposalInfo<AddProposal>| {
            let claim = claim_of(it.proposal.signing_identity());
            keep(it.source(), claim.and_then(|claim| act(it.sender, What::Add(&claim))))
        })?;
        proposals.retain_by_type(|it: &ProposalInfo<RemoveProposal>| {
            let member = roster.member_with_index(it.proposal.to_remove()).map_err(|_| Refusal::Right);
            let claim = member.and_then(|member| claim_of(&member.signing_identity));
            keep(it.source(), claim.and_then(|claim| act(it.sender, What::Remove(&claim.credential))))
        })?;
        proposals.retain_by_type(|it: &ProposalInfo<ExtensionList>| {
            let wanted = extensions_of(&it.proposal);
            keep(it.source(), act(it.sender, What::Extensions(&wanted)))
        })?;
        proposals.retain_by_type(|it: &ProposalInfo<UpdateProposal>| keep(it.source(), Ok(())))?;
        // This project uses neither: keys come from the tree alone, and a group is never begun anew.
        proposals.retain_by_type(|it: &ProposalInfo<ReInitProposal>| keep(it.source(), Err(Refusal::Right)))?;
        proposals.retain_by_type(|it: &ProposalInfo<mls_rs::group::proposal::PreSharedKeyProposal>| {
            keep(it.source(), Err(Refusal::Right))
        })?;
        if sends {
            proposals = in_order(proposals);
            let references = proposals.iter_proposals().filter_map(|it| Some(Reference(it.proposal_ref()?.to_vec())));
            let taken = references.collect();
            self.taking().taken = taken;
        }
        Ok(proposals)
    }

    fn commit_options(&self, _: &Roster<'_>, _: &GroupContext, _: &ProposalBundle) -> Result<CommitOptions, Refused> {
        // Each commit renews its author's keys; the tree travels beside Welcomes and GroupInfo.
        let options = CommitOptions::new().with_path_required(true).with_ratchet_tree_extension(false);
        Ok(options.with_single_welcome_message(true).with_allow_external_commit(true))
    }

    fn encryption_options(&self, _: &Roster<'_>, _: &GroupContext) -> Result<EncryptionOptions, Refused> {
        let private = self.handshake == Handshake::Private;
        Ok(EncryptionOptions::new(private, mls_rs::client_builder::PaddingMode::None))
    }
}

fn committer_of(source: &CommitSource) -> Result<Claim, Refusal> {
    match source {
        CommitSource::ExistingMember(member) => claim_of(&member.signing_identity),
        CommitSource::NewMember(identity) => claim_of(identity),
    }
}

/// mls-rs holds proposals in a hash map, whose order is another one in each process: the same proposals in the order of
/// their references, before those by value.
fn in_order(proposals: ProposalBundle) -> ProposalBundle {
    let mut all: Vec<_> = proposals.into_proposals().collect();
    all.sort_by_key(|it| match &it.source {
        ProposalSource::ByReference(reference) => (0, reference.to_vec()),
        _ => (1, Vec::new()),
    });
    let mut ordered = ProposalBundle::default();
    all.into_iter().for_each(|it| ordered.add(it.proposal, it.sender, it.source));
    ordered
}

/// What the judge says, as an error of mls-rs's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub(super) struct Refused(#[from] pub(super) Refusal);

impl IntoAnyError for Refused {
    fn into_dyn_error(self) -> Result<Box<dyn std::error::Error + Send + Sync>, Self> {
        Ok(self.into())
    }
}

/// A leaf's claim.
///
/// # Errors
/// [`Refusal::Credential`] if its credential is of another kind.
pub(super) fn claim_of(identity: &SigningIdentity) -> Result<Claim, Refusal> {
    let credential = match &identity.credential {
        MlsCredential::Basic(basic) => Credential::Basic(basic.identifier.clone()),
        MlsCredential::X509(chain) => Credential::X509(chain.iter().map(|it| it.to_vec()).collect()),
        _ => return Err(Refusal::Credential),
    };
    Ok(Claim { credential, signature_key: identity.signature_key.to_vec() })
}

/// A claim as a leaf has it.
pub(super) fn signing_identity(claim: &Claim) -> SigningIdentity {
    let credential = match &claim.credential {
        Credential::Basic(name) => MlsCredential::Basic(BasicCredential::new(name.clone())),
        Credential::X509(chain) => {
            MlsCredential::X509(chain.iter().map(|it| DerCertificate::new(it.clone())).collect::<Vec<_>>().into())
        }
    };
    SigningIdentity::new(credential, claim.signature_key.clone().into())
}

/// The extensions of a group context.
pub(super) fn extensions_of(list: &ExtensionList) -> Vec<Extension> {
    let extension =
        |it: &MlsExtension| Extension { kind: it.extension_type.raw_value(), data: it.extension_data.clone() };
    list.iter().map(extension).collect()
}

/// Extensions as a group context has them.
pub(super) fn extension_list(extensions: &[Extension]) -> ExtensionList {
    let extension = |it: &Extension| MlsExtension::new(ExtensionType::new(it.kind), it.data.clone());
    extensions.iter().map(extension).collect()
}
