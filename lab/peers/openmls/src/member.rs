//! One member of one group.

use std::error::Error;

use openmls::prelude::*;
use openmls_basic_credential::SignatureKeyPair;
use tls_codec::Serialize as _;

use crate::Failure;

/// What a commit or a proposal is to do.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) add: Vec<Vec<u8>>,
    pub(crate) remove: Vec<u32>,
}

/// Where a group stands.
pub(crate) struct State {
    pub(crate) epoch: u64,
    pub(crate) authenticator: Vec<u8>,
    pub(crate) tree_hash: Vec<u8>,
    pub(crate) leaf: u32,
    pub(crate) members: usize,
}

/// A member, whatever its storage.
pub(crate) trait Member {
    fn package(&mut self) -> Result<Vec<u8>, Failure>;
    fn create(&mut self, id: &[u8]) -> Result<(), Failure>;
    fn join(&mut self, welcome: &[u8], tree: &[u8]) -> Result<(), Failure>;
    fn external(&mut self, info: &[u8], tree: &[u8]) -> Result<Vec<u8>, Failure>;
    /// A proposal to add or remove the first one of the plan; an empty plan renews our leaf.
    fn propose(&mut self, plan: &Plan) -> Result<Vec<u8>, Failure>;
    /// The commit, which waits for [`Member::apply`], and the Welcome.
    fn commit(&mut self, plan: &Plan) -> Result<(Vec<u8>, Option<Vec<u8>>), Failure>;
    fn apply(&mut self) -> Result<(), Failure>;
    fn process(&mut self, message: &[u8]) -> Result<(), Failure>;
    fn info(&mut self) -> Result<Vec<u8>, Failure>;
    fn tree(&mut self) -> Result<Vec<u8>, Failure>;
    fn state(&mut self) -> Result<State, Failure>;
}

pub(crate) struct Client<P> {
    provider: P,
    signer: SignatureKeyPair,
    credential: CredentialWithKey,
    group: Option<MlsGroup>,
}

impl<P: OpenMlsProvider> Client<P> {
    pub(crate) fn new(name: &str, provider: P) -> Result<Client<P>, Failure> {
        let signer = SignatureKeyPair::new(SUITE.signature_algorithm())?;
        let credential = BasicCredential::new(name.as_bytes().to_vec()).into();
        let credential = CredentialWithKey { credential, signature_key: signer.public().into() };
        Ok(Client { provider, signer, credential, group: None })
    }

    fn group(&mut self) -> Result<(&mut MlsGroup, &P, &SignatureKeyPair), Failure> {
        let group = self.group.as_mut().ok_or("in no group")?;
        Ok((group, &self.provider, &self.signer))
    }

    fn read_package(&self, bytes: &[u8]) -> Result<KeyPackage, Failure> {
        match message(bytes)?.extract() {
            MlsMessageBodyIn::KeyPackage(package) => {
                Ok(package.validate(self.provider.crypto(), ProtocolVersion::Mls10)?)
            }
            _ => Err("no key package".into()),
        }
    }
}

impl<P: OpenMlsProvider> Member for Client<P>
where
    P::StorageProvider: 'static,
    <P::StorageProvider as openmls_traits::storage::StorageProvider<{ openmls_traits::storage::CURRENT_VERSION }>>::Error:
        Error + 'static,
{
    fn package(&mut self) -> Result<Vec<u8>, Failure> {
        let package = KeyPackage::builder().build(SUITE, &self.provider, &self.signer, self.credential.clone())?;
        Ok(MlsMessageOut::from(package).to_bytes()?)
    }

    fn create(&mut self, id: &[u8]) -> Result<(), Failure> {
        let group = MlsGroup::builder()
            .with_group_id(GroupId::from_slice(id))
            .ciphersuite(SUITE)
            .with_wire_format_policy(MIXED_CIPHERTEXT_WIRE_FORMAT_POLICY)
            .build(&self.provider, &self.signer, self.credential.clone())?;
        self.group = Some(group);
        Ok(())
    }

    fn join(&mut self, welcome: &[u8], tree: &[u8]) -> Result<(), Failure> {
        let MlsMessageBodyIn::Welcome(welcome) = message(welcome)?.extract() else { return Err("no Welcome".into()) };
        let tree = Some(RatchetTreeIn::tls_deserialize_exact_bytes(tree)?);
        let staged = StagedWelcome::new_from_welcome(&self.provider, &config(), welcome, tree)?;
        self.group = Some(staged.into_group(&self.provider)?);
        Ok(())
    }

    fn external(&mut self, info: &[u8], tree: &[u8]) -> Result<Vec<u8>, Failure> {
        let MlsMessageBodyIn::GroupInfo(info) = message(info)?.extract() else { return Err("no GroupInfo".into()) };
        let (group, bundle) = MlsGroup::external_commit_builder()
            .with_ratchet_tree(RatchetTreeIn::tls_deserialize_exact_bytes(tree)?)
            .with_config(config())
            .build_group(&self.provider, info, self.credential.clone())?
            .load_psks(self.provider.storage())?
            .build(self.provider.rand(), self.provider.crypto(), &self.signer, |_| true)?
            .finalize(&self.provider)?;
        self.group = Some(group);
        Ok(bundle.into_commit().to_bytes()?)
    }

    fn propose(&mut self, plan: &Plan) -> Result<Vec<u8>, Failure> {
        let package = plan.add.first().map(|it| self.read_package(it)).transpose()?;
        let (group, provider, signer) = self.group()?;
        let (proposal, _) = match (package, plan.remove.first()) {
            (Some(package), _) => group.propose_add_member(provider, signer, &package)?,
            (None, Some(leaf)) => group.propose_remove_member(provider, signer, LeafNodeIndex::new(*leaf))?,
            (None, None) => group.propose_self_update(provider, signer, LeafNodeParameters::default())?,
        };
        Ok(proposal.to_bytes()?)
    }

    fn commit(&mut self, plan: &Plan) -> Result<(Vec<u8>, Option<Vec<u8>>), Failure> {
        let packages = plan.add.iter().map(|it| self.read_package(it)).collect::<Result<Vec<_>, _>>()?;
        let (group, provider, signer) = self.group()?;
        let bundle = group
            .commit_builder()
            .force_self_update(true)
            .propose_adds(packages)
            .propose_removals(plan.remove.iter().map(|leaf| LeafNodeIndex::new(*leaf)))
            .load_psks(provider.storage())?
            .build(provider.rand(), provider.crypto(), signer, |_| true)?
            .stage_commit(provider)?;
        let (commit, welcome, _) = bundle.into_messages();
        Ok((commit.to_bytes()?, welcome.map(|it| it.to_bytes()).transpose()?))
    }

    fn apply(&mut self) -> Result<(), Failure> {
        let (group, provider, _) = self.group()?;
        Ok(group.merge_pending_commit(provider)?)
    }

    fn process(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let (group, provider, _) = self.group()?;
        let processed = group.process_message(provider, message(bytes)?.try_into_protocol_message()?)?;
        match processed.into_content() {
            ProcessedMessageContent::StagedCommitMessage(commit) => group.merge_staged_commit(provider, *commit)?,
            ProcessedMessageContent::ProposalMessage(it) => group.store_pending_proposal(provider.storage(), *it)?,
            _ => return Err("neither a commit nor a proposal".into()),
        }
        Ok(())
    }

    fn info(&mut self) -> Result<Vec<u8>, Failure> {
        let (group, provider, signer) = self.group()?;
        Ok(group.export_group_info(provider.crypto(), signer, false)?.to_bytes()?)
    }

    fn tree(&mut self) -> Result<Vec<u8>, Failure> {
        let (group, ..) = self.group()?;
        Ok(group.export_ratchet_tree().tls_serialize_detached()?)
    }

    fn state(&mut self) -> Result<State, Failure> {
        let (group, ..) = self.group()?;
        Ok(State {
            epoch: group.epoch().as_u64(),
            authenticator: group.epoch_authenticator().as_slice().to_vec(),
            tree_hash: group.public_group().group_context().tree_hash().to_vec(),
            leaf: group.own_leaf_index().u32(),
            members: group.members().count(),
        })
    }
}

fn message(bytes: &[u8]) -> Result<MlsMessageIn, Failure> {
    Ok(MlsMessageIn::tls_deserialize_exact_bytes(bytes)?)
}

/// Handshakes of members are sealed, as OpenMLS has it by default; those of newcomers cannot be.
fn config() -> MlsGroupJoinConfig {
    MlsGroupJoinConfig::builder().wire_format_policy(MIXED_CIPHERTEXT_WIRE_FORMAT_POLICY).build()
}

const SUITE: Ciphersuite = Ciphersuite::MLS_128_DHKEMX25519_AES128GCM_SHA256_Ed25519;
