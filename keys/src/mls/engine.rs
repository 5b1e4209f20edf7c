//! The trait [`Engine`]: one member's state of one group, as RFC 9420 computes it.
//!
//! ```text
//! founder  ─ create ─ commit(add) ── pending ── sent, receipt ── apply ─▶ next epoch
//! joiner   ─ key_package ─────────── join(Welcome, tree) ─────────────▶ next epoch
//! newcomer ─ external_join(GroupInfo, tree) ── sent, receipt ─────────▶ next epoch
//! member   ─ process(commit) ─────────────────────────────────────────▶ next epoch, and what changed
//! process  ─ restore(checkpoint, nodes) ─ process(journal) ─ apply(pending)
//! ```
//! An engine sends and stores nothing. It takes time and randomness as arguments: the same calls with the same seeds give
//! the same bytes (G10), but for signatures of P-256, whose nonces the library draws. A call that fails leaves the state
//! as it was (G1).
//!
//! Public and private state are apart. The public tree is a list of nodes, which everybody may know who may know the
//! group; each change of epoch says which ones changed. The rest is secret, and goes into a [`Checkpoint`].

use std::sync::Arc;
use std::time::Duration;

use sealcast_crypto::identity::Identity;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::SigningKey;
use sealcast_wire::{Utc, codec};
use zeroize::Zeroizing;

use super::judge::{Claim, Credential, Extension, Judge};

pub use error::{
    ApplyError, CommitError, ExporterDeleted, JoinError, Malformed, ProcessError, RestoreError, SetupError,
};
pub use sealcast_crypto::cipher_suite::CipherSuite as Suite;

mod error;
pub mod mls_rs;

/// One member's state of one group.
pub trait Engine: Sized + Send + 'static {
    // ---- key packages (RFC 9420, section 10) ---------------------------------------------------

    /// A key package, with which members add us while we are away; valid from an hour before `step.utc` until `lifetime`
    /// after it. The secret part is the caller's to store, and to erase once a Welcome that used it is applied and stored,
    /// unless the package is of last resort.
    ///
    /// # Errors
    /// [`SetupError`] if the signing key does not fit the suite.
    fn key_package(
        setup: &Setup,
        kind: PackageKind,
        lifetime: Duration,
        step: Step<'_>,
    ) -> Result<NewKeyPackage, SetupError>;

    /// What a key package says; nothing of it is verified before a commit adds it. Its lifetime never is: callers judge it
    /// before they commit.
    ///
    /// # Errors
    /// [`Malformed`] if it is none.
    fn inspect_key_package(bytes: &[u8]) -> Result<KeyPackage, Malformed>;

    // ---- what messages say before anything of them is verified ---------------------------------

    /// For which key packages a Welcome is: their references.
    ///
    /// # Errors
    /// [`Malformed`] if it is no Welcome.
    fn inspect_welcome(bytes: &[u8]) -> Result<Vec<Reference>, Malformed>;

    /// Which epoch a GroupInfo is of, so that its tree can be fetched.
    ///
    /// # Errors
    /// [`Malformed`] if it is no GroupInfo.
    fn inspect_group_info(bytes: &[u8]) -> Result<GroupSummary, Malformed>;

    /// The same of the GroupInfo that is sealed in a Welcome.
    ///
    /// # Errors
    /// [`JoinError::Malformed`], [`JoinError::OtherPackage`] or [`JoinError::Unauthentic`].
    fn open_welcome(setup: &Setup, welcome: &[u8], package: &PackageSecret) -> Result<GroupSummary, JoinError>;

    /// Which group and epoch a proposal, a commit or application data is for.
    ///
    /// # Errors
    /// [`Malformed`] if it is none of them.
    fn inspect_message(bytes: &[u8]) -> Result<Envelope, Malformed>;

    // ---- ways in -------------------------------------------------------------------------------

    /// Founds a group of one member, in epoch 0 (section 11).
    ///
    /// # Errors
    /// [`SetupError`] if the signing key does not fit the suite, or the judge refuses us.
    fn create(setup: &Setup, group_id: &[u8], extensions: &[Extension], step: Step<'_>) -> Result<Self, SetupError>;

    /// Enters by a Welcome (section 12.4.3.1), with the tree of the epoch that it leads to. Checks every leaf: the time
    /// grows with the members.
    ///
    /// # Errors
    /// [`JoinError`].
    fn join(
        setup: &Setup,
        welcome: &[u8],
        tree: &[u8],
        package: &PackageSecret,
        utc: Utc,
    ) -> Result<Joined<Self>, JoinError>;

    /// Enters by an own commit (section 12.4.3.2), which may remove one leaf of the same identity. The engine that
    /// comes out is in the epoch that the commit leads to: it is void, and must be dropped, if another commit wins.
    ///
    /// # Errors
    /// [`JoinError`].
    fn external_join(
        setup: &Setup,
        group_info: &[u8],
        tree: &[u8],
        replaces: Option<LeafIndex>,
        step: Step<'_>,
    ) -> Result<(Self, ExternalCommit), JoinError>;

    // ---- changes -------------------------------------------------------------------------------

    /// A proposal for others to commit (section 12.1); this engine knows it, too. The secret of an own update lies in the
    /// state: a caller that may crash takes a checkpoint before it sends.
    ///
    /// # Errors
    /// [`CommitError`].
    fn propose(&mut self, proposal: &Propose<'_>, step: Step<'_>) -> Result<Vec<u8>, CommitError>;

    /// Makes a commit, and stays in this epoch (section 12.4). An empty plan renews our keys alone. Of the proposals
    /// that came in this epoch it takes those that can be committed together, by reference, unless the plan says
    /// otherwise. Every commit renews its author's path.
    ///
    /// It uses up one of our handshake keys of this epoch, as [`Engine::propose`] does. A caller that may crash and
    /// then send something else in the same epoch stores a checkpoint first: what a used key seals again the others
    /// refuse.
    ///
    /// # Errors
    /// [`CommitError`].
    fn commit(&mut self, plan: &Plan<'_>, step: Step<'_>) -> Result<Commit, CommitError>;

    /// Enters the epoch that an own commit of this epoch leads to: only once a receipt says that it is the first one. A
    /// pending commit that lost is dropped.
    ///
    /// # Errors
    /// [`ApplyError`] if it was made in another epoch or state.
    fn apply(&mut self, pending: &Pending) -> Result<Change, ApplyError>;

    /// Takes in a message of another member: a proposal, a commit, or application data. `utc` judges credentials, and
    /// members who judge by different times may part: pass the time at which the order took the message in, where it says
    /// one, and not that of a later reading. The lifetimes of key packages are not judged: not all members have a clock.
    ///
    /// Works on a copy of the state, so that its time grows with the members.
    ///
    /// # Errors
    /// [`ProcessError`]; the state is what it was.
    fn process(&mut self, message: &[u8], utc: Utc) -> Result<Processed, ProcessError>;

    /// What a proposal of another member says, with the checks of [`Engine::process`], which keeps it for a commit: callers
    /// that keep only some look here first.
    ///
    /// # Errors
    /// [`ProcessError`], [`ProcessError::Malformed`] for what is no proposal.
    fn inspect_proposal(&self, message: &[u8], utc: Utc) -> Result<Proposed, ProcessError>;

    /// Seals application data as a PrivateMessage (section 15). Refused while proposals wait for a commit.
    ///
    /// # Errors
    /// [`CommitError::ProposalsWait`].
    fn seal(&mut self, plaintext: &[u8], aad: &[u8], step: Step<'_>) -> Result<Vec<u8>, CommitError>;

    // ---- what others need ----------------------------------------------------------------------

    /// The GroupInfo of this epoch, for one external commit, without the tree (section 12.4.3).
    fn group_info(&self) -> Vec<u8>;

    /// The whole tree as `ratchet_tree` has it (section 12.4.3.3).
    fn tree(&self) -> Vec<u8>;

    /// One node, encoded as in [`NodeChange`]; blank beyond the tree.
    fn node(&self, index: u32) -> Vec<u8>;

    /// How many nodes the tree has: an odd number.
    fn node_count(&self) -> u32;

    // ---- secrets -------------------------------------------------------------------------------

    /// A secret of this epoch for other uses (section 8.5).
    ///
    /// # Errors
    /// [`ExporterDeleted`].
    fn export(&self, label: &str, context: &[u8], length: usize) -> Result<Zeroizing<Vec<u8>>, ExporterDeleted>;

    /// The same of the epoch that a commit of [`Engine::commit`] leads to, which this engine is not in yet.
    ///
    /// # Errors
    /// As [`Engine::apply`].
    fn export_after(
        &mut self,
        pending: &Pending,
        label: &str,
        context: &[u8],
        length: usize,
    ) -> Result<Zeroizing<Vec<u8>>, ApplyError>;

    /// Erases the exporter's secret of this epoch, so that nothing that was exported can be computed again.
    fn delete_exporter(&mut self);

    // ---- durability ----------------------------------------------------------------------------

    /// All state but the tree's nodes.
    fn checkpoint(&mut self) -> Checkpoint;

    /// The engine of a checkpoint and the tree of the same epoch ([`assemble`]).
    ///
    /// # Errors
    /// [`RestoreError`] if they do not belong together.
    fn restore(setup: &Setup, checkpoint: &Checkpoint, tree: &[u8]) -> Result<Self, RestoreError>;

    // ---- questions -----------------------------------------------------------------------------

    /// Where the group stands.
    fn context(&self) -> Context;

    /// Our own leaf.
    fn own_leaf(&self) -> LeafIndex;

    /// Who has this leaf.
    fn member(&self, leaf: LeafIndex) -> Option<Claim>;

    /// All members, by leaf.
    fn members(&self) -> Vec<(LeafIndex, Claim)>;

    /// Who signed the commit that [`Engine::process`] was given last, if its signature is good: also of one that cannot be used.
    fn committer(&self) -> Option<Claim>;

    /// How many of the nodes above our leaf are blank: more of them make the commits of others larger, and a commit of ours
    /// fills them.
    fn blanks_above(&self) -> usize;

    /// The proposals of this epoch that wait for a commit, in the order of their references.
    fn proposals(&self) -> Vec<Proposed>;
}

/// Time and randomness of one call.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    /// Judges certificates; a key package begins an hour before it.
    pub utc: Utc,
    /// All that the call draws follows from it. Never use one twice for different calls.
    pub seed: &'a Secret<32>,
}

/// Who we are, and how this group talks.
#[derive(Clone)]
pub struct Setup {
    /// The suite of the group.
    pub suite: Suite,
    /// How our leaf names us.
    pub credential: Credential,
    /// Who holds the key of the credential.
    pub signer: Arc<dyn Signer>,
    /// Whom we trust, with what.
    pub judge: Arc<dyn Judge>,
    /// How handshakes travel.
    pub handshake: Handshake,
    /// The extensions of group contexts that we understand beside those of RFC 9420. A group has only such ones as all of
    /// its members understand.
    pub extension_kinds: Vec<u16>,
}

/// Who holds a signing key.
pub trait Signer: Send + Sync {
    /// The key.
    fn key(&self) -> &SigningKey;
}

impl Signer for SigningKey {
    fn key(&self) -> &SigningKey {
        self
    }
}

impl Signer for Identity {
    fn key(&self) -> &SigningKey {
        Identity::key(self)
    }
}

/// How proposals and commits of members travel (RFC 9420, section 6). External commits are always public.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handshake {
    /// As PrivateMessage: only members see who changes what.
    #[default]
    Private,
    /// As PublicMessage: carriers see it, and can check the form.
    Public,
}

/// A member's place in the tree, below 2²⁴; lasting as long as it is a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeafIndex(pub u32);

/// The hash by which a Welcome names a key package (RFC 9420, section 5.2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference(pub Vec<u8>);

/// Whether a key package may be used once or as often as nothing better is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackageKind {
    /// For one group; its secret goes with the first use.
    SingleUse,
    /// Used where all others are used up (RFC 9420, section 16.8); its secret stays.
    LastResort,
}

/// A key package of ours.
pub struct NewKeyPackage {
    /// An MLSMessage, for others.
    pub public: Vec<u8>,
    /// Names it.
    pub reference: Reference,
    /// The private part.
    pub secret: PackageSecret,
}

/// The private part of a key package, as a record for the caller to store and erase.
#[derive(Clone)]
pub struct PackageSecret(pub Zeroizing<Vec<u8>>);

/// What a key package says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPackage {
    /// Names it in a Welcome.
    pub reference: Reference,
    /// Of which suite; the number of RFC 9420, which need not be one of ours.
    pub suite: u16,
    /// Whose.
    pub claim: Claim,
    /// From when on.
    pub from: Utc,
    /// Until when.
    pub until: Utc,
    /// Of last resort, or for one use.
    pub kind: PackageKind,
}

/// What a GroupInfo says of its epoch (RFC 9420, section 12.4.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSummary {
    /// The group.
    pub group_id: Vec<u8>,
    /// Of which suite; the number of RFC 9420, which need not be one of ours.
    pub suite: u16,
    /// The epoch.
    pub epoch: u64,
    /// Names its tree.
    pub tree_hash: Vec<u8>,
    /// Who signed it.
    pub by: LeafIndex,
    /// The extensions of its group context.
    pub extensions: Vec<Extension>,
}

/// What the outside of a message says (RFC 9420, section 6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// For which group.
    pub group_id: Vec<u8>,
    /// For which epoch.
    pub epoch: u64,
    /// What is in it.
    pub content: Content,
}

/// What a message is said to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Application data.
    Application,
    /// A proposal.
    Proposal,
    /// A commit of a member.
    Commit,
    /// A commit of a newcomer.
    ExternalCommit,
}

/// An engine that came in by a Welcome.
pub struct Joined<E> {
    /// The engine.
    pub engine: E,
    /// Who made the commit that let us in.
    pub by: LeafIndex,
}

/// Something for others to commit.
#[derive(Clone, Copy, Debug)]
pub enum Propose<'a> {
    /// Let in the holder of this key package (an MLSMessage).
    Add(&'a [u8]),
    /// Renew the keys of our leaf.
    Update,
    /// Remove a member; our own leaf to leave (D3).
    Remove(LeafIndex),
    /// Replace the extensions of the group context.
    Extensions(&'a [Extension]),
}

/// What a commit of ours shall do, by value, beside the proposals that wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan<'a> {
    /// Key packages (MLSMessages) of those to let in.
    pub add: &'a [&'a [u8]],
    /// Whom to remove.
    pub remove: &'a [LeafIndex],
    /// The group context's extensions from now on, if they change.
    pub extensions: Option<&'a [Extension]>,
    /// Which of the waiting proposals to take.
    pub proposals: Take<'a>,
}

/// Which of the waiting proposals a commit takes.
#[derive(Clone, Copy, Debug, Default)]
pub enum Take<'a> {
    /// All that can be committed together.
    #[default]
    All,
    /// None but these.
    Only(&'a [Reference]),
}

/// A commit of ours, to be sent as one request (D1).
pub struct Commit {
    /// For the members.
    pub message: Vec<u8>,
    /// For those whom it adds: one Welcome for all of them, without the tree.
    pub welcome: Option<Vec<u8>>,
    /// The GroupInfo of the epoch that it leads to, without the tree.
    pub group_info: Vec<u8>,
    /// The nodes that it changes.
    pub nodes: NodeChanges,
    /// The tree hash of the epoch that it leads to.
    pub tree_hash: Vec<u8>,
    /// What [`Engine::apply`] takes; the caller journals it before it sends.
    pub pending: Pending,
}

/// An external commit of ours.
pub struct ExternalCommit {
    /// For the members.
    pub message: Vec<u8>,
    /// The GroupInfo of the epoch that it leads to, without the tree.
    pub group_info: Vec<u8>,
    /// The nodes that it changes.
    pub nodes: NodeChanges,
}

/// A commit of ours that is not applied: a record of some kilobytes, secret since our next keys follow from it.
#[derive(Clone)]
pub struct Pending(pub Zeroizing<Vec<u8>>);

/// All state but the tree's nodes; secret.
#[derive(Clone)]
pub struct Checkpoint(pub Zeroizing<Vec<u8>>);

/// What a message was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Processed {
    /// A proposal, which waits for a commit now.
    Proposal(Proposed),
    /// A commit: the engine is in the next epoch, unless it removed us.
    Commit(Change),
    /// Application data.
    Application {
        /// From whom.
        by: LeafIndex,
        /// The plaintext.
        plaintext: Zeroizing<Vec<u8>>,
        /// What travelled in clear beside it.
        aad: Vec<u8>,
    },
}

/// A proposal that waits for a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposed {
    /// Who proposed it.
    pub by: LeafIndex,
    /// The hash by which a commit names it (RFC 9420, section 5.2).
    pub reference: Reference,
    /// What.
    pub what: ProposedKind,
}

/// What a proposal wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProposedKind {
    /// Let somebody in.
    Add(Claim),
    /// Renew the proposer's leaf.
    Update,
    /// Remove a member.
    Remove(LeafIndex),
    /// Replace the extensions of the group context.
    Extensions(Vec<Extension>),
    /// Something that this project does not use, and that no commit of a group of ours may hold.
    Other,
}

/// What a commit changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whose leaf made it: for an external commit the new one.
    pub by: LeafIndex,
    /// Whether it was an external commit.
    pub external: bool,
    /// Leaves of members who came, in ascending order; without that of an external committer.
    pub added: Vec<LeafIndex>,
    /// Leaves of members who went; one of them may be in `added`, too, or be `by`.
    pub removed: Vec<LeafIndex>,
    /// Leaves with new keys, the committer's among them if it renewed its path.
    pub updated: Vec<LeafIndex>,
    /// Whether we are removed. The engine then stays in its epoch, and has nothing more to say.
    pub removes_us: bool,
    /// Where the group stands now; if we are removed, where it stood.
    pub context: Context,
    /// Which nodes of the tree changed; none if we are removed.
    pub nodes: NodeChanges,
}

/// Where a group stands (RFC 9420, section 8.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The group.
    pub group_id: Vec<u8>,
    /// Counts commits.
    pub epoch: u64,
    /// Names the tree.
    pub tree_hash: Vec<u8>,
    /// Names the history.
    pub transcript_hash: Vec<u8>,
    /// What members compare to see that they are in the same epoch (section 8.7).
    pub authenticator: Vec<u8>,
    /// The extensions of the group context.
    pub extensions: Vec<Extension>,
}

/// Which nodes of a tree changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeChanges {
    /// How many nodes the tree has from now on; those beyond it are gone.
    pub count: u32,
    /// The changed ones, in ascending order.
    pub nodes: Vec<NodeChange>,
}

/// One changed node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeChange {
    /// Its place in the array (RFC 9420, appendix C): leaf i is node 2i.
    pub index: u32,
    /// `optional<Node>` (section 7.8): the byte 0 if blank, else 1 and the node.
    pub bytes: Vec<u8>,
}

impl NodeChanges {
    /// Brings a list of nodes up to date.
    pub fn apply_to(&self, nodes: &mut Vec<Vec<u8>>) {
        nodes.resize(self.count as usize, vec![0]);
        for node in &self.nodes {
            if let Some(at) = nodes.get_mut(node.index as usize) {
                at.clone_from(&node.bytes);
            }
        }
    }
}

/// A tree as `ratchet_tree` has it (RFC 9420, section 12.4.3.3), of its nodes as [`NodeChange`] has them.
pub fn assemble<'a>(nodes: impl Iterator<Item = &'a [u8]> + Clone) -> Vec<u8> {
    let length = nodes.clone().map(<[u8]>::len).sum();
    let mut tree = Vec::with_capacity(length + 4);
    put_length(&mut tree, length);
    nodes.for_each(|node| tree.extend_from_slice(node));
    tree
}

/// The length of a vector (RFC 9420, section 2.1.2).
fn put_length(to: &mut Vec<u8>, length: usize) {
    match length {
        0..0x40 => to.push(length as u8),
        0x40..0x4000 => to.extend_from_slice(&(length as u16 | 0x4000).to_be_bytes()),
        _ => to.extend_from_slice(&(length as u32 | 0x8000_0000).to_be_bytes()),
    }
}

/// A vector of bytes (RFC 9420, section 2.1.2).
pub(in crate::mls) fn vector<'a>(r: &mut codec::Reader<'a>) -> Result<&'a [u8], codec::Malformed> {
    let first = r.u8()?;
    let low = u32::from(first & 0x3F);
    let length = match first >> 6 {
        0 => low,
        1 => low << 8 | u32::from(r.u8()?),
        2 => low << 24 | u32::from(r.u8()?) << 16 | u32::from(r.u16()?),
        _ => return Err(codec::Malformed),
    };
    r.take(length as usize)
}

macro_rules! redacted {
    ($($secret:ident),*) => {$(
        impl std::fmt::Debug for $secret {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($secret), "({} bytes, <redacted>)"), self.0.len())
            }
        }
    )*};
}

redacted!(PackageSecret, Pending, Checkpoint);
