//! The engine through its trait alone: a group's life, losers of a race, restarts, and what must be refused.

use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use sealcast_crypto::identity::keytext::MemberSecret;
use sealcast_crypto::identity::{Authority, Certificate, CertificateError, Identity, Request, Rights, TrustAnchor};
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{Algorithm, SigningKey};
use sealcast_wire::Utc;

use super::MlsRs;
use crate::mls::engine::{
    ApplyError, Change, Checkpoint, Commit, CommitError, Content, Engine, Envelope, Handshake, JoinError, LeafIndex,
    NewKeyPackage, PackageKind, Plan, ProcessError, Processed, Propose, ProposedKind, Reference, RestoreError, Setup,
    SetupError, Step, Suite, Take, assemble,
};
use crate::mls::judge::{Act, Claim, Credential, Everybody, Extension, Judge, Refusal, What};

const NOW: Utc = Utc(1_800_000_000);
const DAY: Duration = Duration::from_secs(86_400);
const SUITES: [Suite; 2] = [Suite::X25519, Suite::P256];
const POLICY: u16 = 0xF5EA;

fn seed(of: u32) -> Secret<32> {
    let mut bytes = [3; 32];
    bytes[..4].copy_from_slice(&of.to_be_bytes());
    Secret::from_bytes(bytes)
}

/// A member that is not in yet.
fn setup(suite: Suite, handshake: Handshake, name: u32) -> Setup {
    Setup {
        suite,
        credential: Credential::Basic(format!("member {name}").into_bytes()),
        signer: Arc::new(SigningKey::from_seed(suite.algorithm(), &seed(name + 1)).unwrap()),
        judge: Arc::new(Everybody),
        handshake,
        extension_kinds: vec![POLICY],
    }
}

fn policy(byte: u8) -> Extension {
    Extension { kind: POLICY, data: vec![byte; 32] }
}

/// All members of a group, and what chance they had.
struct Cluster {
    suite: Suite,
    handshake: Handshake,
    engines: Vec<Option<MlsRs>>,
    draws: u32,
}

impl Cluster {
    fn new(suite: Suite, handshake: Handshake) -> Cluster {
        let mut cluster = Cluster { suite, handshake, engines: Vec::new(), draws: 1000 };
        let seed = cluster.draw();
        let founder = MlsRs::create(&cluster.setup(0), b"group", &[policy(1)], Step { utc: NOW, seed: &seed });
        cluster.engines.push(Some(founder.unwrap()));
        cluster
    }

    /// A group of so many, in which the last member of each batch lets the next batch in.
    fn of(suite: Suite, handshake: Handshake, members: u32) -> Cluster {
        let mut cluster = Cluster::new(suite, handshake);
        while (cluster.engines.len() as u32) < members {
            let batch = (members - cluster.engines.len() as u32).min(10);
            cluster.grow(cluster.engines.len() - 1, batch);
        }
        cluster
    }

    fn setup(&self, name: u32) -> Setup {
        setup(self.suite, self.handshake, name)
    }

    fn draw(&mut self) -> Secret<32> {
        self.draws += 1;
        seed(self.draws)
    }

    fn engine(&mut self, member: usize) -> &mut MlsRs {
        self.engines[member].as_mut().unwrap()
    }

    fn package(&mut self, name: u32) -> NewKeyPackage {
        let (setup, seed) = (self.setup(name), self.draw());
        MlsRs::key_package(&setup, PackageKind::SingleUse, DAY, Step { utc: NOW, seed: &seed }).unwrap()
    }

    fn commit(&mut self, by: usize, plan: &Plan<'_>) -> Commit {
        let seed = self.draw();
        self.engine(by).commit(plan, Step { utc: NOW, seed: &seed }).unwrap()
    }

    fn propose(&mut self, by: usize, proposal: &Propose<'_>) -> Vec<u8> {
        let seed = self.draw();
        let message = self.engine(by).propose(proposal, Step { utc: NOW, seed: &seed }).unwrap();
        self.deliver(by, &message);
        message
    }

    /// Hands a message to all others; the first answer, and that the others agree with it.
    fn deliver(&mut self, by: usize, message: &[u8]) -> Option<Processed> {
        let mut first: Option<Processed> = None;
        for (member, slot) in self.engines.iter_mut().enumerate() {
            let Some(engine) = slot.as_mut().filter(|_| member != by) else { continue };
            let mut processed = engine.process(message, NOW).unwrap_or_else(|error| panic!("{member}: {error}"));
            if let Processed::Commit(change) = &mut processed
                && change.removes_us
            {
                *slot = None;
                continue;
            }
            assert_eq!(first.get_or_insert_with(|| processed.clone()), &processed);
        }
        first
    }

    /// Everybody applies a commit: its author by the receipt.
    fn accept(&mut self, by: usize, commit: &Commit) -> Change {
        let delivered = self.deliver(by, &commit.message);
        let own = self.engine(by).apply(&commit.pending).unwrap();
        assert_eq!(own.nodes, commit.nodes);
        assert_eq!(own.context.tree_hash, commit.tree_hash);
        if let Some(delivered) = delivered {
            assert_eq!(delivered, Processed::Commit(own.clone()));
        }
        self.check();
        own
    }

    /// A member lets so many newcomers in by one commit.
    fn grow(&mut self, by: usize, newcomers: u32) -> Change {
        let first = self.engines.len() as u32;
        let packages: Vec<NewKeyPackage> = (first..first + newcomers).map(|name| self.package(name)).collect();
        let add: Vec<&[u8]> = packages.iter().map(|it| it.public.as_slice()).collect();
        let commit = self.commit(by, &Plan { add: &add, ..Plan::default() });
        let change = self.accept(by, &commit);
        let (welcome, tree) = (commit.welcome.unwrap(), self.engine(by).tree());
        let references = MlsRs::inspect_welcome(&welcome).unwrap();
        for (i, package) in packages.iter().enumerate() {
            assert!(references.contains(&package.reference));
            let joined = MlsRs::join(&self.setup(first + i as u32), &welcome, &tree, &package.secret, NOW).unwrap();
            assert_eq!(joined.by, change.by);
            self.engines.push(Some(joined.engine));
        }
        self.check();
        change
    }

    /// All members stand where the others stand, and have the same tree.
    fn check(&self) {
        let mut all = self.engines.iter().flatten();
        let first = all.next().unwrap();
        let exported = first.export("label", b"context", 32).unwrap();
        for engine in all {
            assert_eq!(engine.context(), first.context());
            assert_eq!(engine.members(), first.members());
            assert_eq!(engine.tree(), first.tree());
            assert_eq!(engine.export("label", b"context", 32).unwrap(), exported);
        }
    }
}

fn leaves(indexes: &[u32]) -> Vec<LeafIndex> {
    indexes.iter().copied().map(LeafIndex).collect()
}

#[test]
fn a_group_lives_in_both_suites_with_hidden_and_with_public_handshakes() {
    for suite in SUITES {
        for handshake in [Handshake::Private, Handshake::Public] {
            let mut group = Cluster::new(suite, handshake);
            let grown = group.grow(0, 10);
            assert_eq!(grown.added, leaves(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));
            assert_eq!((grown.by, grown.updated), (LeafIndex(0), leaves(&[0])));

            let commit = group.commit(7, &Plan::default());
            let change = group.accept(7, &commit);
            assert_eq!((change.updated, change.context.epoch), (leaves(&[7]), 2));
            assert_eq!(group.engine(7).blanks_above(), 0);

            let commit = group.commit(3, &Plan { remove: &leaves(&[2, 9, 10]), ..Plan::default() });
            let change = group.accept(3, &commit);
            assert_eq!((change.removed, change.added), (leaves(&[2, 9, 10]), vec![]));
            assert_eq!(group.engines.iter().flatten().count(), 8);

            let commit = group.commit(4, &Plan { extensions: Some(&[policy(2)]), ..Plan::default() });
            assert_eq!(group.accept(4, &commit).context.extensions, [policy(2)]);
            // Newcomers fill what others left.
            assert_eq!(group.grow(5, 2).added, leaves(&[2, 9]));
        }
    }
}

#[test]
fn proposals_are_committed_by_reference_and_by_value_at_once() {
    for handshake in [Handshake::Private, Handshake::Public] {
        let mut group = Cluster::of(Suite::X25519, handshake, 8);
        let newcomer = group.package(8);
        group.propose(1, &Propose::Add(&newcomer.public));
        group.propose(2, &Propose::Update);
        group.propose(3, &Propose::Remove(LeafIndex(3))); // it leaves (D3)
        group.propose(4, &Propose::Remove(LeafIndex(5)));
        let proposals = group.engine(0).proposals();
        assert_eq!(proposals.len(), 4);
        assert!(proposals.iter().any(|it| it.by == LeafIndex(2) && it.what == ProposedKind::Update));
        let sealed = group.engine(0).seal(b"data", b"", Step { utc: NOW, seed: &seed(1) });
        assert_eq!(sealed, Err(CommitError::ProposalsWait));

        let other = group.package(9);
        let add: [&[u8]; 1] = [&other.public];
        let commit = group.commit(0, &Plan { add: &add, remove: &leaves(&[6]), ..Plan::default() });
        let change = group.accept(0, &commit);
        assert_eq!(change.removed, leaves(&[3, 5, 6]));
        assert_eq!(change.added, leaves(&[3, 5]));
        assert_eq!(change.updated, leaves(&[0, 2]));
        assert!(group.engine(0).proposals().is_empty());

        let (welcome, tree) = (commit.welcome.unwrap(), group.engine(0).tree());
        for (name, package) in [(8, newcomer), (9, other)] {
            let joined = MlsRs::join(&group.setup(name), &welcome, &tree, &package.secret, NOW).unwrap();
            group.engines.push(Some(joined.engine));
        }
        group.check();
    }
}

#[test]
fn a_commit_takes_the_named_proposals_alone() {
    let mut group = Cluster::of(Suite::X25519, Handshake::Private, 5);
    group.propose(1, &Propose::Remove(LeafIndex(4)));
    group.propose(2, &Propose::Update);
    let proposals = group.engine(0).proposals();
    let update = proposals.into_iter().find(|it| it.by == LeafIndex(2)).unwrap();
    let only = [update.reference];
    let commit = group.commit(0, &Plan { proposals: Take::Only(&only), ..Plan::default() });
    let change = group.accept(0, &commit);
    assert_eq!((change.removed, change.updated), (vec![], leaves(&[0, 2])));
}

#[test]
fn a_newcomer_comes_in_by_itself_and_replaces_its_old_leaf() {
    for suite in SUITES {
        let mut group = Cluster::of(suite, Handshake::Private, 6);
        let (info, tree) = (group.engine(1).group_info(), group.engine(1).tree());
        let (name, draw) = (group.setup(6), group.draw());
        let step = Step { utc: NOW, seed: &draw };
        let (engine, commit) = MlsRs::external_join(&name, &info, &tree, None, step).unwrap();
        let Some(Processed::Commit(change)) = group.deliver(usize::MAX, &commit.message) else { panic!() };
        assert_eq!((change.by, change.external, change.added.len()), (LeafIndex(6), true, 0));
        assert_eq!(change.nodes, commit.nodes);
        group.engines.push(Some(engine));
        group.check();

        // It forgets everything, and comes again: the GroupInfo that its first commit led to is enough.
        let tree = group.engine(1).tree();
        let draw = group.draw();
        let step = Step { utc: NOW, seed: &draw };
        let none = MlsRs::external_join(&name, &commit.group_info, &tree, None, step).err();
        assert_eq!(none, Some(JoinError::Invalid), "an identity has one leaf");
        let (engine, again) = MlsRs::external_join(&name, &commit.group_info, &tree, Some(LeafIndex(6)), step).unwrap();
        group.engines[6] = None;
        let Some(Processed::Commit(change)) = group.deliver(usize::MAX, &again.message) else { panic!() };
        assert_eq!((change.by, change.removed), (LeafIndex(6), leaves(&[6])));
        assert_eq!(change.nodes, again.nodes);
        group.engines[6] = Some(engine);
        group.check();
        let other = MlsRs::external_join(&name, &again.group_info, &group.engine(0).tree(), Some(LeafIndex(2)), step);
        assert!(other.is_err(), "nobody replaces somebody else");
    }
}

#[test]
fn of_racing_commits_one_wins_and_the_other_is_dropped() {
    for handshake in [Handshake::Private, Handshake::Public] {
        let mut group = Cluster::of(Suite::X25519, handshake, 5);
        let lost = group.commit(1, &Plan { remove: &leaves(&[4]), ..Plan::default() });
        let won = group.commit(2, &Plan::default());
        group.accept(2, &won);
        assert_eq!(group.engine(1).apply(&lost.pending).err(), Some(ApplyError::OtherEpoch));
        assert_eq!(group.engine(3).process(&lost.message, NOW), Err(ProcessError::OtherEpoch(1)));
        let again = group.commit(1, &Plan { remove: &leaves(&[4]), ..Plan::default() });
        assert_eq!(group.accept(1, &again).removed, leaves(&[4]));
        // Two of one member: the first one goes, the second one stays.
        let first = group.commit(0, &Plan::default());
        let second = group.commit(0, &Plan::default());
        assert_ne!(first.message, second.message);
        group.accept(0, &first);
        assert_eq!(group.engine(0).apply(&second.pending).err(), Some(ApplyError::OtherEpoch));
    }
}

#[test]
fn a_member_restarts_from_a_checkpoint_the_nodes_and_a_journal_of_changes() {
    for suite in SUITES {
        let mut group = Cluster::of(suite, Handshake::Private, 9);
        let count = group.engine(3).node_count();
        let mut nodes: Vec<Vec<u8>> = (0..count).map(|i| group.engine(3).node(i)).collect();
        assert_eq!(assemble(nodes.iter().map(Vec::as_slice)), group.engine(3).tree());
        let (first, first_tree) = (group.engine(3).checkpoint(), group.engine(3).tree());
        assert!(first.0.len() < 4000, "{} bytes", first.0.len());

        // Messages are enough: those since the checkpoint, in their order.
        let mut journal = Vec::new();
        let remove = leaves(&[8]);
        for plan in [Plan::default(), Plan { remove: &remove, ..Plan::default() }] {
            journal.push(group.propose(5, &Propose::Update));
            let commit = group.commit(1, &plan);
            let change = group.accept(1, &commit);
            change.nodes.apply_to(&mut nodes);
            journal.push(commit.message);
        }
        let old_nodes: Vec<Vec<u8>> = {
            let mut engine = MlsRs::restore(&group.setup(3), &first, &first_tree).unwrap();
            for message in &journal {
                engine.process(message, NOW).unwrap();
            }
            assert_eq!(engine.context(), group.engine(3).context());
            (0..engine.node_count()).map(|i| engine.node(i)).collect()
        };
        assert_eq!(old_nodes, nodes, "the changes of each commit make the new tree of the old one");

        // So are results: the newest checkpoint and the nodes as the changes left them.
        let newest = group.engine(3).checkpoint();
        let tree = assemble(nodes.iter().map(Vec::as_slice));
        let engine = MlsRs::restore(&group.setup(3), &newest, &tree).unwrap();
        group.engines[3] = Some(engine);
        group.check();
        let commit = group.commit(3, &Plan::default());
        group.accept(3, &commit);
        group.grow(6, 2);
    }
}

#[test]
fn a_pending_commit_survives_a_restart_and_leads_to_the_same_epoch() {
    for suite in SUITES {
        let mut group = Cluster::of(suite, Handshake::Private, 6);
        group.propose(4, &Propose::Remove(LeafIndex(5)));
        let newcomer = group.package(6);
        let add: [&[u8]; 1] = [&newcomer.public];
        let commit = group.commit(2, &Plan { add: &add, extensions: Some(&[policy(9)]), ..Plan::default() });
        assert!(commit.pending.0.len() < 2500, "{} bytes", commit.pending.0.len());
        let checkpoint = group.engine(2).checkpoint();
        let tree = group.engine(2).tree();
        // A proposal that came after it does not change it.
        group.propose(1, &Propose::Update);
        let engine = MlsRs::restore(&group.setup(2), &checkpoint, &tree).unwrap();
        group.engines[2] = Some(engine);
        let change = group.accept(2, &commit);
        assert_eq!((change.removed, change.added), (leaves(&[5]), leaves(&[5])));
        assert_eq!(change.context.extensions, [policy(9)]);
        assert_eq!(group.engine(2).apply(&commit.pending).err(), Some(ApplyError::OtherEpoch), "it is applied once");
    }
}

#[test]
fn a_pending_commit_of_another_state_is_refused() {
    let mut group = Cluster::of(Suite::X25519, Handshake::Private, 4);
    let (checkpoint, tree) = (group.engine(2).checkpoint(), group.engine(2).tree());
    group.propose(1, &Propose::Update);
    let commit = group.commit(2, &Plan::default());
    // The process forgot the proposal, which it should have journalled.
    let mut engine = MlsRs::restore(&group.setup(2), &checkpoint, &tree).unwrap();
    let context = engine.context();
    assert_eq!(engine.apply(&commit.pending), Err(ApplyError::OtherState));
    assert_eq!(engine.context(), context);
    let mut longer = commit.pending.clone();
    longer.0.push(0);
    assert_eq!(engine.apply(&longer), Err(ApplyError::Malformed));
}

#[test]
fn rule_g1_a_tampered_message_leaves_the_state_as_it_was() {
    for (suite, handshake) in [(Suite::X25519, Handshake::Private), (Suite::P256, Handshake::Public)] {
        let mut group = Cluster::of(suite, handshake, 4);
        let commit = group.commit(1, &Plan::default());
        let before = group.engine(3).checkpoint().0;
        for at in (0..commit.message.len()).step_by(7).chain(commit.message.len() - 20..commit.message.len()) {
            let mut tampered = commit.message.clone();
            tampered[at] ^= 0x10;
            assert!(group.engine(3).process(&tampered, NOW).is_err(), "byte {at}");
        }
        for n in (0..commit.message.len()).step_by(31) {
            assert_eq!(group.engine(3).process(&commit.message[..n], NOW), Err(ProcessError::Malformed));
        }
        assert_eq!(group.engine(3).checkpoint().0, before);
        group.accept(1, &commit);
    }
}

#[test]
fn errors_tell_what_a_message_is() {
    let mut group = Cluster::of(Suite::X25519, Handshake::Private, 4);
    let commit = group.commit(1, &Plan::default());
    assert_eq!(group.engine(1).process(&commit.message, NOW), Err(ProcessError::Ours));
    assert_eq!(group.engine(2).process(&commit.group_info, NOW), Err(ProcessError::Malformed));
    let mut sealed = commit.message.clone();
    *sealed.last_mut().unwrap() ^= 1;
    assert_eq!(group.engine(2).process(&sealed, NOW), Err(ProcessError::Unauthentic));
    let mut other =
        MlsRs::create(&setup(Suite::X25519, Handshake::Private, 9), b"other", &[], Step { utc: NOW, seed: &seed(1) })
            .unwrap();
    assert_eq!(other.process(&commit.message, NOW), Err(ProcessError::OtherGroup));
    // A commit of proposals that one member has not heard of.
    let draw = group.draw();
    let update = group.engine(1).propose(&Propose::Update, Step { utc: NOW, seed: &draw }).unwrap();
    group.engine(2).process(&update, NOW).unwrap();
    let commit = group.commit(2, &Plan::default());
    assert_eq!(group.engine(3).process(&commit.message, NOW), Err(ProcessError::ProposalMissing));
    group.engine(3).process(&update, NOW).unwrap();
    assert!(group.engine(3).process(&commit.message, NOW).is_ok());
    // By value and against the rules.
    let draw = group.draw();
    let step = Step { utc: NOW, seed: &draw };
    let refused = |group: &mut Cluster, plan: &Plan<'_>| group.engine(0).commit(plan, step).err();
    assert_eq!(refused(&mut group, &Plan { remove: &leaves(&[0]), ..Plan::default() }), Some(CommitError::OwnRemoval));
    assert_eq!(
        refused(&mut group, &Plan { remove: &leaves(&[7]), ..Plan::default() }),
        Some(CommitError::NoSuchMember)
    );
    let add: [&[u8]; 1] = [b"nothing"];
    assert_eq!(refused(&mut group, &Plan { add: &add, ..Plan::default() }), Some(CommitError::Malformed));
    let member = group.package(2);
    let add: [&[u8]; 1] = [&member.public];
    assert_eq!(refused(&mut group, &Plan { add: &add, ..Plan::default() }), Some(CommitError::Member));
}

#[test]
fn rule_g10_the_same_seeds_give_the_same_bytes() {
    let run = || {
        let mut group = Cluster::of(Suite::X25519, Handshake::Private, 40);
        // Blank paths, so that a commit seals to many at once, on several threads.
        let commit = group.commit(0, &Plan { remove: &leaves(&[3, 11, 19, 27]), ..Plan::default() });
        group.accept(0, &commit);
        let mut bytes = vec![commit.message, commit.pending.0.to_vec(), commit.group_info];
        (4..9).for_each(|by| bytes.push(group.propose(by, &Propose::Update)));
        let package = group.package(40);
        let add: [&[u8]; 1] = [&package.public];
        let commit = group.commit(1, &Plan { add: &add, ..Plan::default() });
        group.accept(1, &commit);
        bytes.extend([package.public, package.secret.0.to_vec(), commit.message, commit.welcome.unwrap()]);
        let (info, tree, draw) = (group.engine(1).group_info(), group.engine(1).tree(), group.draw());
        let step = Step { utc: NOW, seed: &draw };
        let (mut engine, join) = MlsRs::external_join(&group.setup(50), &info, &tree, None, step).unwrap();
        bytes.extend([info, tree, join.message, join.group_info, engine.checkpoint().0.to_vec()]);
        bytes
    };
    assert!(run() == run());
}

#[test]
fn a_package_of_last_resort_is_used_again_and_a_single_one_names_itself() {
    for suite in SUITES {
        let newcomer = setup(suite, Handshake::Private, 1);
        let step = Step { utc: NOW, seed: &seed(77) };
        let package = MlsRs::key_package(&newcomer, PackageKind::LastResort, DAY, step).unwrap();
        let read = MlsRs::inspect_key_package(&package.public).unwrap();
        assert_eq!((&read.reference, read.kind), (&package.reference, PackageKind::LastResort));
        assert_eq!((read.suite, read.until), (suite.number(), Utc(NOW.0 + 86_400)));
        assert_eq!(read.claim.credential, newcomer.credential);
        let single = MlsRs::key_package(&newcomer, PackageKind::SingleUse, DAY, Step { utc: NOW, seed: &seed(78) });
        let single = single.unwrap();
        assert_eq!(MlsRs::inspect_key_package(&single.public).unwrap().kind, PackageKind::SingleUse);
        for (id, draw) in [(&b"one"[..], seed(79)), (b"two", seed(80))] {
            let step = Step { utc: NOW, seed: &draw };
            let founder = setup(suite, Handshake::Private, 0);
            let mut engine = MlsRs::create(&founder, id, &[], step).unwrap();
            let add: [&[u8]; 1] = [&package.public];
            let commit = engine.commit(&Plan { add: &add, ..Plan::default() }, step).unwrap();
            engine.apply(&commit.pending).unwrap();
            let welcome = commit.welcome.unwrap();
            let joined = MlsRs::join(&newcomer, &welcome, &engine.tree(), &package.secret, NOW).unwrap();
            assert_eq!(joined.engine.context(), engine.context());
            let other = MlsRs::join(&newcomer, &welcome, &engine.tree(), &single.secret, NOW).err();
            assert_eq!(other, Some(JoinError::OtherPackage));
        }
    }
}

#[test]
fn lifetimes_are_left_to_the_caller_who_sees_them() {
    let mut group = Cluster::of(Suite::X25519, Handshake::Private, 3);
    let package = group.package(5);
    let add: [&[u8]; 1] = [&package.public];
    let plan = Plan { add: &add, ..Plan::default() };
    let read = MlsRs::inspect_key_package(&package.public).unwrap();
    assert_eq!((read.from, read.until), (Utc(NOW.0 - 3600), Utc(NOW.0 + 86_400)));
    for utc in [Utc(0), Utc(NOW.0 + 86_401)] {
        let draw = group.draw();
        assert!(group.engine(0).commit(&plan, Step { utc, seed: &draw }).is_ok());
    }
    // Whatever a member's clock shows, it follows.
    let commit = group.commit(0, &plan);
    assert!(group.engine(1).process(&commit.message, Utc(NOW.0 + 86_401)).is_ok());
    assert!(group.engine(2).process(&commit.message, Utc(0)).is_ok());
}

#[test]
fn a_key_of_another_algorithm_is_refused() {
    for (suite, algorithm) in [(Suite::X25519, Algorithm::P256), (Suite::P256, Algorithm::Ed25519)] {
        let signer = Arc::new(SigningKey::from_seed(algorithm, &seed(1)).unwrap());
        let wrong = Setup { signer, ..setup(suite, Handshake::Private, 1) };
        let step = Step { utc: NOW, seed: &seed(1) };
        assert_eq!(MlsRs::create(&wrong, b"group", &[], step).err(), Some(SetupError::Algorithm));
        assert_eq!(MlsRs::key_package(&wrong, PackageKind::SingleUse, DAY, step).err(), Some(SetupError::Algorithm));
        // Nor does a group take a key package of the other suite.
        let other = if suite == Suite::X25519 { Suite::P256 } else { Suite::X25519 };
        let mut group = Cluster::of(suite, Handshake::Private, 2);
        let package =
            MlsRs::key_package(&setup(other, Handshake::Private, 5), PackageKind::SingleUse, DAY, step).unwrap();
        let add: [&[u8]; 1] = [&package.public];
        assert!(group.engine(0).commit(&Plan { add: &add, ..Plan::default() }, step).is_err());
    }
}

#[test]
fn rule_d5_secrets_of_an_epoch_go_with_the_exporter() {
    let mut group = Cluster::of(Suite::X25519, Handshake::Private, 3);
    let first = group.engine(0).export("sealcast", b"epoch", 32).unwrap();
    assert_ne!(first, group.engine(0).export("sealcast", b"other", 32).unwrap());
    group.engine(0).delete_exporter();
    assert!(group.engine(0).export("sealcast", b"epoch", 32).is_err());
    assert_eq!(group.engine(1).export("sealcast", b"epoch", 32).unwrap(), first);
    let (checkpoint, tree) = (group.engine(0).checkpoint(), group.engine(0).tree());
    let engine = MlsRs::restore(&group.setup(0), &checkpoint, &tree).unwrap();
    assert!(engine.export("sealcast", b"epoch", 32).is_err(), "a checkpoint does not bring it back");
    let commit = group.commit(1, &Plan::default());
    group.accept(1, &commit);
    assert_ne!(group.engine(0).export("sealcast", b"epoch", 32).unwrap(), first);
}

#[test]
fn application_data_travels_and_a_replay_is_refused() {
    let mut group = Cluster::of(Suite::P256, Handshake::Private, 3);
    let sealed: Vec<Vec<u8>> = (0..3)
        .map(|i| {
            let draw = group.draw();
            group.engine(1).seal(&[i; 5], b"aad", Step { utc: NOW, seed: &draw }).unwrap()
        })
        .collect();
    for i in [2, 0, 1] {
        let Ok(Processed::Application { by, plaintext, aad }) = group.engine(0).process(&sealed[i], NOW) else {
            panic!()
        };
        assert_eq!((by, &plaintext[..], &aad[..]), (LeafIndex(1), &[i as u8; 5][..], &b"aad"[..]));
        assert_eq!(group.engine(0).process(&sealed[i], NOW), Err(ProcessError::Unauthentic));
    }
}

#[test]
fn a_checkpoint_goes_with_its_tree_and_its_member_alone() {
    let mut group = Cluster::of(Suite::X25519, Handshake::Private, 4);
    let (checkpoint, tree) = (group.engine(1).checkpoint(), group.engine(1).tree());
    let commit = group.commit(0, &Plan::default());
    group.accept(0, &commit);
    let later = group.engine(1).tree();
    let restore = |name: u32, tree: &[u8]| {
        MlsRs::restore(&setup(Suite::X25519, Handshake::Private, name), &checkpoint, tree).err()
    };
    assert_eq!(restore(1, &tree), None);
    assert_eq!(restore(1, &later), Some(RestoreError::OtherTree));
    assert_eq!(restore(2, &tree), Some(RestoreError::OtherMember));
    assert_eq!(restore(1, b"no tree"), Some(RestoreError::Malformed));
    for n in 0..checkpoint.0.len() {
        let shorter = Checkpoint(zeroize::Zeroizing::new(checkpoint.0[..n].to_vec()));
        let setup = setup(Suite::X25519, Handshake::Private, 1);
        assert!(MlsRs::restore(&setup, &shorter, &tree).is_err(), "first {n} bytes");
    }
}

/// Knows members by number; an even one may remove others, and nobody above 100 is let in.
struct Strict;

fn number(credential: &Credential) -> u32 {
    let Credential::Basic(name) = credential else { return u32::MAX };
    std::str::from_utf8(name).ok().and_then(|it| it.strip_prefix("member ")?.parse().ok()).unwrap_or(u32::MAX)
}

impl Judge for Strict {
    fn identity(&self, credential: &Credential) -> Result<Vec<u8>, Refusal> {
        Everybody.identity(credential)
    }

    fn admit(&self, claim: &Claim, _: Utc, _: &[Extension]) -> Result<(), Refusal> {
        if number(&claim.credential) > 100 { Err(Refusal::Revoked) } else { Ok(()) }
    }

    fn permit(&self, act: &Act<'_>) -> Result<(), Refusal> {
        match act.what {
            What::Remove(whom) if whom != act.by && !number(act.by).is_multiple_of(2) => Err(Refusal::Right),
            _ => Ok(()),
        }
    }
}

#[test]
fn all_members_judge_commits_by_the_same_judge() {
    let mut group = Cluster::of(Suite::X25519, Handshake::Private, 4);
    // Members 0 and 2 become strict; 1 and 3 let everything pass.
    for member in [0, 2] {
        let (checkpoint, tree) = (group.engine(member).checkpoint(), group.engine(member).tree());
        let strict = Setup { judge: Arc::new(Strict), ..group.setup(member as u32) };
        group.engines[member] = Some(MlsRs::restore(&strict, &checkpoint, &tree).unwrap());
    }
    let refused = group.commit(1, &Plan { remove: &leaves(&[3]), ..Plan::default() });
    let denied = Err(ProcessError::Refused(Refusal::Right));
    assert_eq!(group.engine(0).process(&refused.message, NOW), denied);
    let package = group.package(200);
    let add: [&[u8]; 1] = [&package.public];
    let refused = group.commit(1, &Plan { add: &add, ..Plan::default() });
    assert_eq!(group.engine(2).process(&refused.message, NOW), Err(ProcessError::Refused(Refusal::Revoked)));
    let draw = group.draw();
    let own = group.engine(0).commit(&Plan { add: &add, ..Plan::default() }, Step { utc: NOW, seed: &draw });
    assert_eq!(own.err(), Some(CommitError::Refused(Refusal::Revoked)));
    // A stranger's external commit, and its removal of nobody.
    let (info, tree) = (group.engine(1).group_info(), group.engine(1).tree());
    let step = Step { utc: NOW, seed: &draw };
    let (_, commit) = MlsRs::external_join(&group.setup(300), &info, &tree, None, step).unwrap();
    assert_eq!(group.engine(0).process(&commit.message, NOW), Err(ProcessError::Refused(Refusal::Revoked)));
    // What may not be committed does not keep the next commit from being made.
    group.propose(1, &Propose::Remove(LeafIndex(3)));
    group.propose(3, &Propose::Remove(LeafIndex(3)));
    let proposals: Vec<Reference> = group.engine(0).proposals().into_iter().map(|it| it.reference).collect();
    assert_eq!(proposals.len(), 2);
    let commit = group.commit(0, &Plan::default());
    assert_eq!(group.accept(0, &commit).removed, leaves(&[3]));
}

/// A group of so many members, two of them live: the second member, and the one that came last.
fn large(members: u32) -> (MlsRs, MlsRs) {
    let newcomer = |name: u32| setup(Suite::X25519, Handshake::Private, name);
    let step_seed = seed(5000);
    let founder = MlsRs::create(&newcomer(0), b"large", &[], Step { utc: NOW, seed: &step_seed }).unwrap();
    let (mut last, mut second, mut count) = (founder, None::<MlsRs>, 1);
    while count < members {
        let batch = 64.min(members - count);
        let package = |name: u32| {
            let draw = seed(10_000 + name);
            let step = Step { utc: NOW, seed: &draw };
            MlsRs::key_package(&newcomer(name), PackageKind::SingleUse, DAY, step).unwrap()
        };
        let packages: Vec<NewKeyPackage> = (count..count + batch).map(package).collect();
        let add: Vec<&[u8]> = packages.iter().map(|it| it.public.as_slice()).collect();
        let draw = seed(6000 + count);
        let commit = last.commit(&Plan { add: &add, ..Plan::default() }, Step { utc: NOW, seed: &draw }).unwrap();
        if let Some(second) = &mut second {
            second.process(&commit.message, NOW).unwrap();
        }
        last.apply(&commit.pending).unwrap();
        let (welcome, tree) = (commit.welcome.unwrap(), last.tree());
        let join = |i: u32| {
            let package = &packages[i as usize];
            MlsRs::join(&newcomer(count + i), &welcome, &tree, &package.secret, NOW).unwrap().engine
        };
        second = second.or_else(|| Some(join(0)));
        last = join(batch - 1);
        count += batch;
    }
    (second.unwrap(), last)
}

#[test]
fn at_a_thousand_members_a_journal_takes_kilobytes_a_commit() {
    let (mut second, mut last) = large(1000);
    assert_eq!(second.context(), last.context());
    assert_eq!(last.members().len(), 1000);
    for i in 0..3 {
        let draw = seed(9000 + i);
        let commit = last.commit(&Plan::default(), Step { utc: NOW, seed: &draw }).unwrap();
        let Ok(Processed::Commit(change)) = second.process(&commit.message, NOW) else { panic!() };
        last.apply(&commit.pending).unwrap();
        let nodes: usize = change.nodes.nodes.iter().map(|it| it.bytes.len()).sum();
        assert!((8..=11).contains(&change.nodes.nodes.len()), "{} nodes", change.nodes.nodes.len());
        assert!(nodes < 2000, "{nodes} bytes of nodes");
        let checkpoint = second.checkpoint();
        assert!(checkpoint.0.len() < 6000, "{} bytes of secrets", checkpoint.0.len());
        assert!(commit.pending.0.len() < 300, "{} bytes pending", commit.pending.0.len());
    }
    let (checkpoint, tree) = (second.checkpoint(), second.tree());
    let setup = setup(Suite::X25519, Handshake::Private, 1);
    let restored = MlsRs::restore(&setup, &checkpoint, &tree).unwrap();
    assert_eq!(restored.context(), last.context());
}

#[test]
fn what_messages_say_outside_is_read_without_a_key() {
    for (handshake, suite) in [(Handshake::Private, Suite::X25519), (Handshake::Public, Suite::P256)] {
        let mut group = Cluster::of(suite, handshake, 3);
        let package = group.package(3);
        let add: [&[u8]; 1] = [&package.public];
        let commit = group.commit(1, &Plan { add: &add, ..Plan::default() });
        let envelope = |content: Content| Ok(Envelope { group_id: b"group".to_vec(), epoch: 1, content });
        assert_eq!(MlsRs::inspect_message(&commit.message), envelope(Content::Commit));
        let summary = MlsRs::inspect_group_info(&commit.group_info).unwrap();
        assert_eq!((summary.epoch, summary.by, summary.suite), (2, LeafIndex(1), suite.number()));
        assert_eq!(summary.tree_hash, commit.tree_hash);
        let welcome = commit.welcome.unwrap();
        assert_eq!(MlsRs::open_welcome(&group.setup(3), &welcome, &package.secret), Ok(summary));
        let other = group.package(4);
        let refused = MlsRs::open_welcome(&group.setup(4), &welcome, &other.secret);
        assert_eq!(refused, Err(JoinError::OtherPackage));

        let draw = group.draw();
        let step = Step { utc: NOW, seed: &draw };
        let proposal = group.engine(0).propose(&Propose::Update, step).unwrap();
        assert_eq!(MlsRs::inspect_message(&proposal), envelope(Content::Proposal));
        let sealed = group.engine(2).seal(b"data", b"", step).unwrap();
        assert_eq!(MlsRs::inspect_message(&sealed), envelope(Content::Application));
        let (info, tree) = (group.engine(2).group_info(), group.engine(2).tree());
        let (_, join) = MlsRs::external_join(&group.setup(9), &info, &tree, None, step).unwrap();
        assert_eq!(MlsRs::inspect_message(&join.message), envelope(Content::ExternalCommit));
        for bytes in [&welcome[..], &info, &package.public, b""] {
            assert!(MlsRs::inspect_message(bytes).is_err());
        }
    }
}

/// Admits whom an authority certified.
struct Certified(TrustAnchor);

impl Certified {
    fn certificate(credential: &Credential) -> Result<Certificate, Refusal> {
        match credential {
            Credential::X509(chain) => match &chain[..] {
                [own] => Certificate::parse(own).map_err(|_| Refusal::Credential),
                _ => Err(Refusal::Credential),
            },
            Credential::Basic(_) => Err(Refusal::Credential),
        }
    }
}

impl Judge for Certified {
    fn identity(&self, credential: &Credential) -> Result<Vec<u8>, Refusal> {
        Certified::certificate(credential).map(|it| it.hash().0.to_vec())
    }

    fn admit(&self, claim: &Claim, utc: Utc, _: &[Extension]) -> Result<(), Refusal> {
        let certificate = Certified::certificate(&claim.credential)?;
        let verified = self.0.verify(&certificate, Some(utc), Utc(0)).map_err(|error| match error {
            CertificateError::Expired | CertificateError::NotYetValid => Refusal::Time,
            CertificateError::Revoked => Refusal::Revoked,
            _ => Refusal::Credential,
        })?;
        if verified.key.point() == claim.signature_key { Ok(()) } else { Err(Refusal::Key) }
    }

    fn permit(&self, _: &Act<'_>) -> Result<(), Refusal> {
        Ok(())
    }
}

#[test]
fn a_leaf_s_key_is_its_certificate_s() {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    for (suite, algorithm) in [(Suite::X25519, Algorithm::Ed25519), (Suite::P256, Algorithm::P256)] {
        let mut authority = Authority::create("ca", Algorithm::P256, NOW, &mut rng).unwrap();
        let mut member = |authority: &mut Authority, name: &str| {
            let secret = MemberSecret::generate(algorithm, &mut rng);
            let rights = Rights::default();
            let request = Request { name: name.to_owned(), keys: secret.public(), rights, attributes: vec![] };
            let certificate = authority.issue(&request, NOW, 86_400).unwrap();
            Arc::new(Identity::new(&certificate, &secret, authority.anchor().clone()).unwrap())
        };
        let [one, two, three] = ["one", "two", "three"].map(|name| member(&mut authority, name));
        let anchor = authority.anchor().clone();
        let setup = |of: &Arc<Identity>, signer: &Arc<Identity>| Setup {
            credential: Credential::X509(vec![of.certificate().der.to_vec()]),
            signer: signer.clone(),
            judge: Arc::new(Certified(anchor.clone())),
            ..self::setup(suite, Handshake::Private, 0)
        };
        let at = |utc: i64, seed: &'static Secret<32>| Step { utc: Utc(NOW.0 + utc), seed };
        let draws: &'static [Secret<32>] = Box::leak((0..9).map(seed).collect());
        let mut engine = MlsRs::create(&setup(&one, &one), b"group", &[], at(0, &draws[0])).unwrap();
        let stolen = MlsRs::create(&setup(&two, &one), b"group", &[], at(0, &draws[1]));
        assert_eq!(stolen.err(), Some(SetupError::Refused(Refusal::Key)));

        let package = |of, signer, i: usize| {
            MlsRs::key_package(&setup(of, signer), PackageKind::SingleUse, 9 * DAY, at(0, &draws[i])).unwrap()
        };
        let (good, stolen) = (package(&two, &two, 2), package(&three, &two, 3));
        let mut commit = |package: &NewKeyPackage, utc: i64, i: usize| {
            let add: [&[u8]; 1] = [&package.public];
            engine.commit(&Plan { add: &add, ..Plan::default() }, at(utc, &draws[i]))
        };
        assert_eq!(commit(&stolen, 0, 4).err(), Some(CommitError::Refused(Refusal::Key)));
        assert_eq!(commit(&good, 200_000, 5).err(), Some(CommitError::Refused(Refusal::Time)));
        let made = commit(&good, 0, 6).unwrap();
        engine.apply(&made.pending).unwrap();
        let welcome = made.welcome.unwrap();
        let joined = MlsRs::join(&setup(&two, &two), &welcome, &engine.tree(), &good.secret, NOW).unwrap();
        assert_eq!(joined.engine.context(), engine.context());
        let basic = self::setup(suite, Handshake::Private, 7);
        let package = MlsRs::key_package(&basic, PackageKind::SingleUse, DAY, at(0, &draws[7])).unwrap();
        let add: [&[u8]; 1] = [&package.public];
        let refused = engine.commit(&Plan { add: &add, ..Plan::default() }, at(0, &draws[8]));
        assert_eq!(refused.err(), Some(CommitError::Refused(Refusal::Credential)));
    }
}
