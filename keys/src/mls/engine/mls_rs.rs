//! [`Engine`] by mls-rs 0.57, over this project's own cryptography.
//!
//! mls-rs changes a state while it still checks a message: a changed PrivateMessage uses up the key that the true one
//! needs, and a wrong confirmation tag comes to light after the private tree is replaced. So a message is processed on a
//! copy, which takes the state's place if all is well.
//!
//! What mls-rs keeps of a commit that waits are two whole trees. Here a record of what the commit follows from is enough
//! (`record.rs`); the result is kept in memory beside it, and computed again after a restart.

use std::collections::BTreeSet;
use std::time::Duration;

use mls_rs::extension::recommended::LastResortKeyPackageExt;
use mls_rs::group::proposal::Proposal;
use mls_rs::group::{
    CommitEffect, CommitMessageDescription, CommitSecrets, ExportedTree, Node, ProposalMessageDescription,
    ProposalSender, ReceivedMessage, Sender,
};
use mls_rs::{ExtensionList, Group, MlsMessage, MlsMessageDescription};
use sealcast_crypto::hash::sha256;
use sealcast_wire::Utc;
use zeroize::Zeroizing;

use self::failure::{committing, joining, processing, refusal};
use self::identity::{claim_of, extension_list, extensions_of};
use self::provider::Signatures;
use self::record::{Layout, PendingRecord, encoded};
use self::tools::{Config, Tools, mls_time};
use super::{
    ApplyError, Change, Checkpoint, Commit, CommitError, Content, Context, Engine, Envelope, ExporterDeleted,
    ExternalCommit, GroupSummary, JoinError, Joined, KeyPackage, LeafIndex, Malformed, NewKeyPackage, NodeChanges,
    PackageKind, PackageSecret, Pending, Plan, ProcessError, Processed, Propose, Proposed, ProposedKind, Reference,
    RestoreError, Setup, SetupError, Step, Take,
};
use crate::mls::judge::{Claim, Extension, Refusal};

mod failure;
mod identity;
mod inspect;
#[cfg(any(test, feature = "misbehaving"))]
mod misbehaving;
mod nodes;
mod provider;
mod record;
mod store;
#[cfg(test)]
mod tests;
mod tools;
#[cfg(test)]
mod vectors;

/// An engine by mls-rs.
pub struct MlsRs {
    tools: Tools,
    group: Group<Config>,
    /// The result of the commit that was made last, with the hash of its record.
    made: Option<([u8; 32], CommitSecrets)>,
}

impl Engine for MlsRs {
    fn key_package(
        setup: &Setup,
        kind: PackageKind,
        lifetime: Duration,
        step: Step<'_>,
    ) -> Result<NewKeyPackage, SetupError> {
        let tools = Tools::new(setup, lifetime + CLOCKS_DIFFER)?;
        let mut extensions = ExtensionList::new();
        if kind == PackageKind::LastResort {
            extensions.set_from(LastResortKeyPackageExt).expect("an empty extension has an encoding");
        }
        let from = mls_time(Utc(step.utc.0.saturating_sub(CLOCKS_DIFFER.as_secs() as i64)));
        let client = &tools.client;
        let (made, _) = tools.provider.with_seed("key package", step.utc, step.seed, Signatures::new(), || {
            client.generate_key_package_message(extensions, ExtensionList::new(), Some(from))
        });
        let message = made.expect("a key of the suite makes key packages");
        let (reference, package) = tools.packages.take().expect("mls-rs stores what it makes");
        let secret = PackageSecret(inspect::put_package_secret(&reference, &package));
        Ok(NewKeyPackage { public: encoded(&message), reference: Reference(reference), secret })
    }

    fn inspect_key_package(bytes: &[u8]) -> Result<KeyPackage, Malformed> {
        inspect::key_package(bytes)
    }

    fn inspect_welcome(bytes: &[u8]) -> Result<Vec<Reference>, Malformed> {
        inspect::welcome(bytes)
    }

    fn inspect_group_info(bytes: &[u8]) -> Result<GroupSummary, Malformed> {
        let message = MlsMessage::from_bytes(bytes).map_err(|_| Malformed)?;
        Ok(inspect::group_info(message.as_group_info().ok_or(Malformed)?))
    }

    fn open_welcome(setup: &Setup, welcome: &[u8], package: &PackageSecret) -> Result<GroupSummary, JoinError> {
        let tools = Tools::new(setup, Duration::ZERO)?;
        let (reference, data) = inspect::package_secret(&package.0).ok_or(JoinError::Malformed)?;
        tools.packages.put(reference, data);
        let welcome = MlsMessage::from_bytes(welcome).map_err(|_| JoinError::Malformed)?;
        let info = tools.client.examine_welcome_message(&welcome).map_err(|error| joining(&error))?;
        Ok(inspect::group_info(&info))
    }

    fn inspect_message(bytes: &[u8]) -> Result<Envelope, Malformed> {
        inspect::envelope(&MlsMessage::from_bytes(bytes).map_err(|_| Malformed)?)
    }

    fn create(setup: &Setup, group_id: &[u8], extensions: &[Extension], step: Step<'_>) -> Result<MlsRs, SetupError> {
        if extensions.iter().any(|it| !setup.extension_kinds.contains(&it.kind)) {
            return Err(SetupError::Extension);
        }
        let tools = Tools::admitted(setup, extensions, step.utc)?;
        let (id, list, time) = (group_id.to_vec(), extension_list(extensions), Some(mls_time(step.utc)));
        let (made, _) = tools.provider.with_seed("create", step.utc, step.seed, Signatures::new(), || {
            tools.client.create_group_with_id(id, list, ExtensionList::new(), time)
        });
        let group = made.map_err(|error| SetupError::Refused(refusal(&error).unwrap_or(Refusal::Credential)))?;
        Ok(MlsRs { tools, group, made: None })
    }

    fn join(
        setup: &Setup,
        welcome: &[u8],
        tree: &[u8],
        package: &PackageSecret,
        utc: Utc,
    ) -> Result<Joined<MlsRs>, JoinError> {
        let tools = Tools::new(setup, Duration::ZERO)?;
        tools.provider.at(utc);
        let (reference, data) = inspect::package_secret(&package.0).ok_or(JoinError::Malformed)?;
        tools.packages.put(reference, data);
        let welcome = MlsMessage::from_bytes(welcome).map_err(|_| JoinError::Malformed)?;
        let tree = ExportedTree::from_bytes(tree).map_err(|_| JoinError::Malformed)?;
        // No time: a member whose key package has expired since it came in is a member nevertheless (section 7.3).
        let joined = tools.client.join_group(Some(tree), &welcome, None);
        let (group, info) = joined.map_err(|error| joining(&error))?;
        let by = LeafIndex(info.sender);
        Ok(Joined { engine: MlsRs { tools, group, made: None }, by })
    }

    fn external_join(
        setup: &Setup,
        group_info: &[u8],
        tree: &[u8],
        replaces: Option<LeafIndex>,
        step: Step<'_>,
    ) -> Result<(MlsRs, ExternalCommit), JoinError> {
        let info = MlsMessage::from_bytes(group_info).map_err(|_| JoinError::Malformed)?;
        let context = info.as_group_info().ok_or(JoinError::Malformed)?.group_context();
        let tools = Tools::admitted(setup, &extensions_of(&context.extensions), step.utc)?;
        let tree = ExportedTree::from_bytes(tree).map_err(|_| JoinError::Malformed)?;
        let before = tree.clone();
        // No time here either: mls-rs would judge the lifetimes of all members by it.
        let builder = tools.client.external_commit_builder().map_err(|error| joining(&error))?.with_tree_data(tree);
        let builder = replaces.into_iter().fold(builder, |builder, leaf| builder.with_removal(leaf.0));
        let (made, _) =
            tools.provider.with_seed("external join", step.utc, step.seed, Signatures::new(), || builder.build(info));
        let (group, message) = made.map_err(|error| joining(&error))?;
        let leaves = replaces.map(|leaf| leaf.0).into_iter().chain([group.current_member_index()]).collect();
        let nodes = nodes::changes(before.nodes(), group.export_tree().nodes(), &leaves);
        let engine = MlsRs { tools, group, made: None };
        let commit = ExternalCommit { message: encoded(&message), group_info: engine.group_info(), nodes };
        Ok((engine, commit))
    }

    fn propose(&mut self, proposal: &Propose<'_>, step: Step<'_>) -> Result<Vec<u8>, CommitError> {
        let package = match proposal {
            Propose::Add(bytes) => Some(MlsMessage::from_bytes(bytes).map_err(|_| CommitError::Malformed)?),
            _ => None,
        };
        let group = &mut self.group;
        let (made, _) =
            self.tools.provider.with_seed("propose", step.utc, step.seed, Signatures::new(), || match proposal {
                Propose::Add(_) => group.propose_add(package.expect("parsed above"), Vec::new()),
                Propose::Update => group.propose_update(Vec::new()),
                Propose::Remove(leaf) => group.propose_remove(leaf.0, Vec::new()),
                Propose::Extensions(it) => group.propose_group_context_extensions(extension_list(it), Vec::new()),
            });
        made.map(|message| encoded(&message)).map_err(|error| committing(&error))
    }

    fn commit(&mut self, plan: &Plan<'_>, step: Step<'_>) -> Result<Commit, CommitError> {
        let mut record = PendingRecord {
            epoch: self.group.context().epoch,
            before: sha256(&self.authenticator()),
            utc: step.utc,
            seed: step.seed.clone(),
            result: [0; 32],
            add: plan.add.iter().map(|it| it.to_vec()).collect(),
            remove: plan.remove.to_vec(),
            extensions: plan.extensions.map(<[Extension]>::to_vec),
            taken: BTreeSet::new(),
            signatures: Signatures::new(),
        };
        let only = match plan.proposals {
            Take::All => None,
            Take::Only(some) => Some(some.iter().cloned().collect()),
        };
        let (output, secrets, signatures) = self.tools.make(&mut self.group, &record, only)?;
        let info = output.external_commit_group_info.as_ref().expect("the rules ask for it");
        let group_info = encoded(info);
        record.taken = self.tools.rules.taking().taken.drain(..).collect();
        record.result = sha256(&group_info);
        record.signatures = signatures;
        let tree = output.ratchet_tree.as_ref().expect("the rules ask for it");
        let before = self.group.export_tree();
        let leaves = nodes::changed_leaves(before.nodes(), tree.nodes());
        let nodes = nodes::changes(before.nodes(), tree.nodes(), &leaves);
        let tree_hash = info.as_group_info().expect("it is one").group_context().tree_hash.clone();
        let pending = Pending(record.to_bytes());
        self.made = Some((sha256(&pending.0), secrets));
        Ok(Commit {
            message: encoded(&output.commit_message),
            welcome: output.welcome_messages.first().map(encoded),
            group_info,
            nodes,
            tree_hash,
            pending,
        })
    }

    fn apply(&mut self, pending: &Pending) -> Result<Change, ApplyError> {
        let (next, applied) = self.led_to(pending)?;
        self.made = None;
        Ok(self.enter(next, &applied))
    }

    fn process(&mut self, message: &[u8], utc: Utc) -> Result<Processed, ProcessError> {
        let (next, received) = self.received(message, utc)?;
        match received {
            ReceivedMessage::Commit(description) => Ok(Processed::Commit(self.enter(next, &description))),
            ReceivedMessage::Proposal(it) => {
                let proposed = proposed_by_member(&it)?;
                self.group = next;
                Ok(Processed::Proposal(proposed))
            }
            ReceivedMessage::ApplicationMessage(it) => {
                self.group = next;
                let plaintext = Zeroizing::new(it.data().to_vec());
                Ok(Processed::Application { by: LeafIndex(it.sender_index), plaintext, aad: it.authenticated_data })
            }
            _ => Err(ProcessError::Malformed),
        }
    }

    fn inspect_proposal(&self, message: &[u8], utc: Utc) -> Result<Proposed, ProcessError> {
        match self.received(message, utc)? {
            (_, ReceivedMessage::Proposal(it)) => proposed_by_member(&it),
            _ => Err(ProcessError::Malformed),
        }
    }

    fn seal(&mut self, plaintext: &[u8], aad: &[u8], step: Step<'_>) -> Result<Vec<u8>, CommitError> {
        let group = &mut self.group;
        let (sealed, _) = self.tools.provider.with_seed("seal", step.utc, step.seed, Signatures::new(), || {
            group.encrypt_application_message(plaintext, aad.to_vec())
        });
        sealed.map(|message| encoded(&message)).map_err(|error| committing(&error))
    }

    fn group_info(&self) -> Vec<u8> {
        encoded(&self.group.group_info_message_allowing_ext_commit(false).expect("a member signs its GroupInfo"))
    }

    fn tree(&self) -> Vec<u8> {
        self.group.export_tree().to_bytes().expect("a tree that was decoded has an encoding")
    }

    fn node(&self, index: u32) -> Vec<u8> {
        nodes::encode(self.group.export_tree().nodes(), index)
    }

    fn node_count(&self) -> u32 {
        self.group.export_tree().nodes().len() as u32
    }

    fn export(&self, label: &str, context: &[u8], length: usize) -> Result<Zeroizing<Vec<u8>>, ExporterDeleted> {
        let secret = self.group.export_secret(label.as_bytes(), context, length);
        secret.map(|secret| Zeroizing::new(secret.to_vec())).map_err(|_| ExporterDeleted)
    }

    fn export_after(
        &mut self,
        pending: &Pending,
        label: &str,
        context: &[u8],
        length: usize,
    ) -> Result<Zeroizing<Vec<u8>>, ApplyError> {
        let (next, _) = self.led_to(pending)?;
        let secret = next.export_secret(label.as_bytes(), context, length).map_err(|_| ApplyError::OtherState)?;
        Ok(Zeroizing::new(secret.to_vec()))
    }

    fn delete_exporter(&mut self) {
        self.group.delete_exporter();
    }

    fn checkpoint(&mut self) -> Checkpoint {
        self.group.write_to_storage_without_ratchet_tree().expect("a cell takes every state");
        let state = self.tools.states.take().expect("it was written");
        let layout = Layout::of(&state).expect("mls-rs is pinned, and its form with it");
        let small = layout.with_hashes(&[]);
        let mut record = Zeroizing::new(Vec::with_capacity(small.len() + 1));
        record.push(CHECKPOINT_VERSION);
        record.extend_from_slice(&small);
        Checkpoint(record)
    }

    fn restore(setup: &Setup, checkpoint: &Checkpoint, tree: &[u8]) -> Result<MlsRs, RestoreError> {
        let Some((&CHECKPOINT_VERSION, state)) = checkpoint.0.split_first() else {
            return Err(RestoreError::Malformed);
        };
        let tools = Tools::new(setup, Duration::ZERO).map_err(|_| RestoreError::OtherMember)?;
        let layout = Layout::of(state).map_err(|_| RestoreError::Malformed)?;
        let tree = ExportedTree::from_bytes(tree).map_err(|_| RestoreError::Malformed)?;
        let hashes = nodes::tree_hashes(tree.nodes());
        if layout.tree_hash != hashes[hashes.len() / 2] {
            return Err(RestoreError::OtherTree);
        }
        tools.states.put(layout.with_hashes(&hashes));
        let loaded = tools.client.load_group_with_ratchet_tree(layout.group_id, tree);
        let group = loaded.map_err(|_| RestoreError::Malformed)?;
        let engine = MlsRs { tools, group, made: None };
        match engine.member(engine.own_leaf()) {
            Some(claim) if claim == engine.tools.own => Ok(engine),
            _ => Err(RestoreError::OtherMember),
        }
    }

    fn context(&self) -> Context {
        let context = self.group.context();
        Context {
            group_id: context.group_id.clone(),
            epoch: context.epoch,
            tree_hash: context.tree_hash.clone(),
            transcript_hash: context.confirmed_transcript_hash.to_vec(),
            authenticator: self.authenticator(),
            extensions: extensions_of(&context.extensions),
        }
    }

    fn own_leaf(&self) -> LeafIndex {
        LeafIndex(self.group.current_member_index())
    }

    fn member(&self, leaf: LeafIndex) -> Option<Claim> {
        let tree = self.group.export_tree();
        let node = tree.get_leaf(leaf.0.try_into().ok()?).ok()??;
        claim_of(&node.signing_identity).ok()
    }

    fn members(&self) -> Vec<(LeafIndex, Claim)> {
        let tree = self.group.export_tree();
        let member = |(i, node): (usize, &Option<Node>)| match node {
            Some(Node::Leaf(leaf)) => Some((LeafIndex(i as u32), claim_of(&leaf.signing_identity).ok()?)),
            _ => None,
        };
        tree.nodes().iter().step_by(2).enumerate().filter_map(member).collect()
    }

    fn committer(&self) -> Option<Claim> {
        self.tools.rules.taking().committer.clone()
    }

    fn blanks_above(&self) -> usize {
        nodes::blanks_above(self.group.export_tree().nodes(), self.own_leaf().0)
    }

    fn proposals(&self) -> Vec<Proposed> {
        let cached = self.group.get_cached_proposals();
        let known = cached.iter().filter_map(|it| match it.sender() {
            Sender::Member(by) => Some(Proposed {
                by: LeafIndex(*by),
                reference: Reference(it.proposal_ref().to_vec()),
                what: proposed(it.proposal()),
            }),
            _ => None,
        });
        let mut proposals: Vec<Proposed> = known.collect();
        proposals.sort_by(|a, b| a.reference.cmp(&b.reference));
        proposals
    }
}

impl MlsRs {
    /// The state that a commit of ours leads to. If it was made by a process before, it is made again.
    fn led_to(&mut self, pending: &Pending) -> Result<(Group<Config>, CommitMessageDescription), ApplyError> {
        let record = PendingRecord::parse(&pending.0).map_err(|_| ApplyError::Malformed)?;
        let here = (self.group.context().epoch, sha256(&self.authenticator()));
        if (record.epoch, record.before) != here {
            return Err(ApplyError::OtherEpoch);
        }
        let id = sha256(&pending.0);
        let mut next = self.group.clone();
        let secrets = match &self.made {
            Some((made, secrets)) if *made == id => secrets.clone(),
            _ => {
                let again = self.tools.make(&mut next, &record, Some(record.taken.clone()));
                let (output, secrets, _) = again.map_err(|_| ApplyError::OtherState)?;
                let info = output.external_commit_group_info.as_ref().map(encoded).unwrap_or_default();
                if sha256(&info) != record.result {
                    return Err(ApplyError::OtherState);
                }
                self.made = Some((id, secrets.clone()));
                secrets
            }
        };
        let applied = next.apply_detached_commit(secrets).map_err(|_| ApplyError::OtherState)?;
        Ok((next, applied))
    }

    /// What a message is, and the state that it leads to.
    fn received(&self, message: &[u8], utc: Utc) -> Result<(Group<Config>, ReceivedMessage), ProcessError> {
        let message = MlsMessage::from_bytes(message).map_err(|_| ProcessError::Malformed)?;
        let Envelope { group_id, epoch, content } = inspect::envelope(&message).map_err(|_| ProcessError::Malformed)?;
        let context = self.group.context();
        if group_id != context.group_id {
            return Err(ProcessError::OtherGroup);
        }
        if epoch != context.epoch {
            return Err(ProcessError::OtherEpoch(epoch));
        }
        if let MlsMessageDescription::PublicProtocolMessage { sender, .. } = message.description()
            && content == Content::Commit
            && sender == Sender::Member(self.own_leaf().0)
        {
            return Err(ProcessError::Ours);
        }
        self.tools.provider.at(utc);
        self.tools.rules.taking().committer = None;
        let mut next = self.group.clone();
        // Without a time mls-rs judges no lifetimes.
        let received = next.process_incoming_message(message).map_err(|error| processing(&error))?;
        Ok((next, received))
    }

    /// Goes over to the state that a commit leads to, and says what is different.
    fn enter(&mut self, next: Group<Config>, commit: &CommitMessageDescription) -> Change {
        let (epoch, removes_us) = match &commit.effect {
            CommitEffect::NewEpoch(epoch) => (epoch, false),
            CommitEffect::Removed { new_epoch, .. } => (new_epoch, true),
            CommitEffect::ReInit(_) => unreachable!("the rules refuse to begin a group anew"),
        };
        let mut removed = BTreeSet::new();
        let mut updated = BTreeSet::new();
        for it in epoch.applied_proposals() {
            match (&it.proposal, it.sender()) {
                (Proposal::Remove(it), _) => removed.extend([it.to_remove()]),
                (Proposal::Update(_), Sender::Member(leaf)) => updated.extend([*leaf]),
                _ => {}
            }
        }
        let by = commit.committer;
        let mut change = Change {
            by: LeafIndex(by),
            external: commit.is_external,
            added: Vec::new(),
            removed: removed.iter().map(|leaf| LeafIndex(*leaf)).collect(),
            updated: Vec::new(),
            removes_us,
            context: self.context(),
            nodes: NodeChanges::default(),
        };
        if removes_us {
            return change;
        }
        let (old_tree, new_tree) = (self.group.export_tree(), next.export_tree());
        let (old, new) = (old_tree.nodes(), new_tree.nodes());
        // Newcomers fill the blank leaves from the left, and those that this commit blanks.
        let filled_again =
            removed.iter().copied().filter(|leaf| new.get(2 * *leaf as usize).is_some_and(Option::is_some));
        let mut added: BTreeSet<u32> = nodes::filled_leaves(old, new).into_iter().chain(filled_again).collect();
        if commit.is_external {
            added.remove(&by);
        } else {
            updated.insert(by);
        }
        let leaves = added.iter().chain(&removed).chain(&updated).copied().chain([by]).collect();
        change.nodes = nodes::changes(old, new, &leaves);
        change.added = added.into_iter().map(LeafIndex).collect();
        change.updated = updated.into_iter().map(LeafIndex).collect();
        drop((old_tree, new_tree));
        self.group = next;
        self.made = None;
        change.context = self.context();
        change
    }

    fn authenticator(&self) -> Vec<u8> {
        self.group.epoch_authenticator().map(|it| it.to_vec()).expect("each epoch has one")
    }
}

/// A proposal that came, which nobody but a member makes.
fn proposed_by_member(it: &ProposalMessageDescription) -> Result<Proposed, ProcessError> {
    let ProposalSender::Member(by) = it.sender else { return Err(ProcessError::Invalid) };
    Ok(Proposed { by: LeafIndex(by), reference: Reference(it.proposal_ref()), what: proposed(&it.proposal) })
}

fn proposed(proposal: &Proposal) -> ProposedKind {
    match proposal {
        Proposal::Add(it) => claim_of(it.signing_identity()).map_or(ProposedKind::Other, ProposedKind::Add),
        Proposal::Update(_) => ProposedKind::Update,
        Proposal::Remove(it) => ProposedKind::Remove(LeafIndex(it.to_remove())),
        Proposal::GroupContextExtensions(it) => ProposedKind::Extensions(extensions_of(it)),
        _ => ProposedKind::Other,
    }
}

/// How far a key package's validity begins before it is made, for whose clock is behind ours.
const CLOCKS_DIFFER: Duration = Duration::from_secs(3600);
/// Of the form of a checkpoint: mls-rs 0.57's, with its hashes and indexes left out.
const CHECKPOINT_VERSION: u8 = 1;
