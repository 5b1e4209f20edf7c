//! The engine of members, with a watch: how long it worked in this thread.

use std::cell::Cell;
use std::time::{Duration, Instant};

use sealcast_keys::mls::engine::mls_rs::MlsRs;
use sealcast_keys::mls::engine::{
    ApplyError, Change, Checkpoint, Commit, CommitError, Context, Engine, Envelope, ExporterDeleted, ExternalCommit,
    GroupSummary, JoinError, Joined, KeyPackage, LeafIndex, Malformed, NewKeyPackage, PackageKind, PackageSecret,
    Pending, Plan, ProcessError, Processed, Propose, Proposed, Reference, RestoreError, Setup, SetupError, Step,
};
use sealcast_keys::mls::judge::{Claim, Extension};
use sealcast_wire::Utc;
use zeroize::Zeroizing;

/// [`MlsRs`], timed.
pub(super) struct Timed(MlsRs);

/// What engines did in this thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Worked {
    /// In all of their calls.
    pub(super) all: Duration,
    /// In processing messages.
    pub(super) processing: Duration,
    /// How many parent nodes were blank after the last commit that was processed.
    pub(super) blank: u32,
}

/// What they did so far.
pub(super) fn worked() -> Worked {
    WORKED.get()
}

/// Whether blank nodes are counted after each commit, which takes time.
pub(super) fn count_blanks(counts: bool) {
    COUNTS.set(counts);
}

fn timed<T>(call: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let answer = call();
    let mut worked = WORKED.get();
    worked.all += begun.elapsed();
    WORKED.set(worked);
    answer
}

thread_local! {
    static WORKED: Cell<Worked> = const { Cell::new(Worked { all: Duration::ZERO, processing: Duration::ZERO, blank: 0 }) };
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

impl Engine for Timed {
    fn key_package(
        setup: &Setup,
        kind: PackageKind,
        lifetime: Duration,
        step: Step<'_>,
    ) -> Result<NewKeyPackage, SetupError> {
        timed(|| MlsRs::key_package(setup, kind, lifetime, step))
    }

    fn inspect_key_package(bytes: &[u8]) -> Result<KeyPackage, Malformed> {
        timed(|| MlsRs::inspect_key_package(bytes))
    }

    fn inspect_welcome(bytes: &[u8]) -> Result<Vec<Reference>, Malformed> {
        timed(|| MlsRs::inspect_welcome(bytes))
    }

    fn inspect_group_info(bytes: &[u8]) -> Result<GroupSummary, Malformed> {
        timed(|| MlsRs::inspect_group_info(bytes))
    }

    fn open_welcome(setup: &Setup, welcome: &[u8], package: &PackageSecret) -> Result<GroupSummary, JoinError> {
        timed(|| MlsRs::open_welcome(setup, welcome, package))
    }

    fn inspect_message(bytes: &[u8]) -> Result<Envelope, Malformed> {
        timed(|| MlsRs::inspect_message(bytes))
    }

    fn create(setup: &Setup, group_id: &[u8], extensions: &[Extension], step: Step<'_>) -> Result<Timed, SetupError> {
        timed(|| MlsRs::create(setup, group_id, extensions, step)).map(Timed)
    }

    fn join(
        setup: &Setup,
        welcome: &[u8],
        tree: &[u8],
        package: &PackageSecret,
        utc: Utc,
    ) -> Result<Joined<Timed>, JoinError> {
        let joined = timed(|| MlsRs::join(setup, welcome, tree, package, utc))?;
        Ok(Joined { engine: Timed(joined.engine), by: joined.by })
    }

    fn external_join(
        setup: &Setup,
        group_info: &[u8],
        tree: &[u8],
        replaces: Option<LeafIndex>,
        step: Step<'_>,
    ) -> Result<(Timed, ExternalCommit), JoinError> {
        let (engine, commit) = timed(|| MlsRs::external_join(setup, group_info, tree, replaces, step))?;
        Ok((Timed(engine), commit))
    }

    fn propose(&mut self, proposal: &Propose<'_>, step: Step<'_>) -> Result<Vec<u8>, CommitError> {
        timed(|| self.0.propose(proposal, step))
    }

    fn commit(&mut self, plan: &Plan<'_>, step: Step<'_>) -> Result<Commit, CommitError> {
        timed(|| self.0.commit(plan, step))
    }

    fn apply(&mut self, pending: &Pending) -> Result<Change, ApplyError> {
        timed(|| self.0.apply(pending))
    }

    fn process(&mut self, message: &[u8], utc: Utc) -> Result<Processed, ProcessError> {
        let before = worked().all;
        let processed = timed(|| self.0.process(message, utc));
        let mut worked = WORKED.get();
        worked.processing += worked.all - before;
        if COUNTS.get() {
            let parents = (1..self.0.node_count()).step_by(2);
            worked.blank = parents.filter(|at| self.0.node(*at) == [0]).count() as u32;
        }
        WORKED.set(worked);
        processed
    }

    fn inspect_proposal(&self, message: &[u8], utc: Utc) -> Result<Proposed, ProcessError> {
        timed(|| self.0.inspect_proposal(message, utc))
    }

    fn seal(&mut self, plaintext: &[u8], aad: &[u8], step: Step<'_>) -> Result<Vec<u8>, CommitError> {
        timed(|| self.0.seal(plaintext, aad, step))
    }

    fn group_info(&self) -> Vec<u8> {
        timed(|| self.0.group_info())
    }

    fn tree(&self) -> Vec<u8> {
        timed(|| self.0.tree())
    }

    fn node(&self, index: u32) -> Vec<u8> {
        timed(|| self.0.node(index))
    }

    fn node_count(&self) -> u32 {
        self.0.node_count()
    }

    fn export(&self, label: &str, context: &[u8], length: usize) -> Result<Zeroizing<Vec<u8>>, ExporterDeleted> {
        timed(|| self.0.export(label, context, length))
    }

    fn export_after(
        &mut self,
        pending: &Pending,
        label: &str,
        context: &[u8],
        length: usize,
    ) -> Result<Zeroizing<Vec<u8>>, ApplyError> {
        timed(|| self.0.export_after(pending, label, context, length))
    }

    fn delete_exporter(&mut self) {
        timed(|| self.0.delete_exporter());
    }

    fn checkpoint(&mut self) -> Checkpoint {
        timed(|| self.0.checkpoint())
    }

    fn restore(setup: &Setup, checkpoint: &Checkpoint, tree: &[u8]) -> Result<Timed, RestoreError> {
        timed(|| MlsRs::restore(setup, checkpoint, tree)).map(Timed)
    }

    fn context(&self) -> Context {
        timed(|| self.0.context())
    }

    fn own_leaf(&self) -> LeafIndex {
        self.0.own_leaf()
    }

    fn member(&self, leaf: LeafIndex) -> Option<Claim> {
        timed(|| self.0.member(leaf))
    }

    fn members(&self) -> Vec<(LeafIndex, Claim)> {
        timed(|| self.0.members())
    }

    fn committer(&self) -> Option<Claim> {
        self.0.committer()
    }

    fn blanks_above(&self) -> usize {
        timed(|| self.0.blanks_above())
    }

    fn proposals(&self) -> Vec<Proposed> {
        timed(|| self.0.proposals())
    }
}
