//! The engine alone and OpenMLS, in one group of 10,000 members: both process the same commits, and enter by the same Welcome.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sealcast_crypto::hash::sha256;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::SigningKey;
use sealcast_keys::mls::engine::mls_rs::MlsRs;
use sealcast_keys::mls::engine::{Engine, Handshake, PackageKind, Plan, Setup, Step, Suite};
use sealcast_keys::mls::judge::{Credential, Everybody};
use sealcast_wire::Utc;

use super::tree::FullGroup;
use super::{memory_of, millis, resident_bytes};
use crate::Failure;
use crate::figures::median;
use crate::peers::openmls::OpenMls;

/// What was measured in a group of one size.
pub(super) struct Sides {
    pub(super) members: usize,
    /// Ours, in memory.
    pub(super) process_ms: f64,
    /// Bytes of all nodes that a commit changes, and of the GroupInfo that goes with them.
    pub(super) uploaded: f64,
    /// Entering by a Welcome, all leaves validated.
    pub(super) welcome_ms: f64,
    /// Of one member.
    pub(super) memory: f64,
    /// OpenMLS, if it is here; or why it is not.
    pub(super) openmls: Result<Peer, String>,
}

/// The same of OpenMLS.
pub(super) struct Peer {
    /// With SQLite's defaults.
    pub(super) sqlite_ms: f64,
    /// With its storage in memory.
    pub(super) memory_ms: f64,
    /// Bytes that it hands to SQLite for a commit.
    pub(super) written: f64,
    pub(super) welcome_ms: f64,
    /// Of one member with its storage in memory.
    pub(super) memory: f64,
}

/// Measures a group of this size, with so many commits.
///
/// # Errors
/// A member refuses, or the peer ended.
pub(super) fn measure(members: u32, commits: usize, disk: &Path) -> Result<Sides, Failure> {
    let mut group = Enlarged::new(members)?;
    let folder = tempfile::Builder::new().prefix("sealcast-openmls").tempdir_in(disk)?;
    let mut peer = OpenMls::start().map_err(|why| why.to_string());
    if let Ok(peer) = &mut peer {
        peer.member("sqlite", &format!("sqlite {}", folder.path().join("group.db").display()))?;
        peer.member("memory", "memory")?;
        group.let_in(peer, "sqlite", &[])?;
        group.let_in(peer, "memory", &["sqlite"])?;
    }
    let (mut process, mut uploaded, mut durable, mut volatile, mut written) = (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..commits {
        let (commit, bytes) = group.update()?;
        uploaded.push(bytes as f64);
        let begun = Instant::now();
        group.second.process(&commit, now())?;
        process.push(millis(begun.elapsed()));
        if let Ok(peer) = &mut peer {
            let processed = peer.process("sqlite", &commit)?;
            durable.push(millis(processed.took));
            written.push(processed.bytes as f64);
            volatile.push(millis(peer.process("memory", &commit)?.took));
        }
    }
    let welcome = group.welcome(peer.as_mut().ok())?;
    let memory = group.memory()?;
    if let Ok(peer) = &mut peer {
        group.agree(peer, &["sqlite", "memory"])?;
    }
    let count = group.second.members().len();
    let openmls = peer.map(|_| Peer {
        sqlite_ms: median(&durable),
        memory_ms: median(&volatile),
        written: median(&written),
        welcome_ms: welcome.1.map_or(f64::NAN, millis),
        memory: welcome.2,
    });
    let (process_ms, uploaded, welcome_ms) = (median(&process), median(&uploaded), millis(welcome.0));
    Ok(Sides { members: count, process_ms, uploaded, welcome_ms, memory, openmls })
}

/// A group with members of ours.
struct Enlarged {
    first: MlsRs,
    second: MlsRs,
    seeds: u32,
}

impl Enlarged {
    /// A full group in which two of the members are ours, and two leaves are left for others.
    fn new(members: u32) -> Result<Enlarged, Failure> {
        let full = FullGroup::new(members.saturating_sub(4).max(1))?;
        let (one, two) = (seed(1), seed(2));
        let step = |seed| Step { utc: now(), seed };
        let (mut first, _) = MlsRs::external_join(&setup("first")?, &full.group_info, &full.tree, None, step(&one))?;
        let (info, tree) = (first.group_info(), first.tree());
        let (second, commit) = MlsRs::external_join(&setup("second")?, &info, &tree, None, step(&two))?;
        first.process(&commit.message, now())?;
        Ok(Enlarged { first, second, seeds: 2 })
    }

    fn seed(&mut self) -> Secret<32> {
        self.seeds += 1;
        seed(self.seeds)
    }

    /// A member of OpenMLS comes in by an external commit, which the others follow.
    fn let_in(&mut self, peer: &mut OpenMls, name: &str, others: &[&str]) -> Result<(), Failure> {
        let (commit, _) = peer.external(name, &self.first.group_info(), &self.first.tree())?;
        self.first.process(&commit, now())?;
        self.second.process(&commit, now())?;
        others.iter().try_for_each(|other| peer.process(other, &commit).map(drop))
    }

    /// The first member renews its path: the commit, and how many bytes go with it.
    fn update(&mut self) -> Result<(Vec<u8>, usize), Failure> {
        let seed = self.seed();
        let made = self.first.commit(&Plan::default(), Step { utc: now(), seed: &seed })?;
        self.first.apply(&made.pending)?;
        let nodes: usize = made.nodes.nodes.iter().map(|node| node.bytes.len() + 4).sum();
        Ok((made.message, nodes + made.group_info.len()))
    }

    /// A member of ours and several of the other kind enter by one Welcome: how long that took, and how much memory one of the
    /// other kind takes.
    fn welcome(&mut self, peer: Option<&mut OpenMls>) -> Result<(Duration, Option<Duration>, f64), Failure> {
        let setup = setup("third")?;
        let (package_seed, seed) = (self.seed(), self.seed());
        let package = MlsRs::key_package(
            &setup,
            PackageKind::SingleUse,
            PACKAGE_LASTS,
            Step { utc: now(), seed: &package_seed },
        )?;
        let mut peer = peer;
        let mut add = vec![package.public.clone()];
        if let Some(peer) = &mut peer {
            for name in WELCOMED {
                peer.member(name, "memory")?;
                add.push(peer.package(name)?);
            }
        }
        let add: Vec<&[u8]> = add.iter().map(Vec::as_slice).collect();
        let made = self.first.commit(&Plan { add: &add, ..Plan::default() }, Step { utc: now(), seed: &seed })?;
        self.first.apply(&made.pending)?;
        self.second.process(&made.message, now())?;
        let (welcome, tree) = (made.welcome.ok_or("no Welcome")?, self.first.tree());
        let mut ours = Vec::new();
        for _ in WELCOMED {
            let begun = Instant::now();
            let joined = MlsRs::join(&setup, &welcome, &tree, &package.secret, now())?;
            ours.push(begun.elapsed());
            if joined.engine.context() != self.first.context() {
                return Err("the Welcome leads elsewhere".into());
            }
        }
        ours.sort();
        let ours = ours[ours.len() / 2];
        let Some(peer) = peer else { return Ok((ours, None, f64::NAN)) };
        ["sqlite", "memory"].into_iter().try_for_each(|name| peer.process(name, &made.message).map(drop))?;
        let (mut theirs, mut resident) = (Vec::new(), Vec::new());
        for name in WELCOMED {
            theirs.push(peer.join(name, &welcome, &tree)?);
            resident.push(resident_bytes(peer.pid())? as f64);
        }
        theirs.sort();
        // The first ones take what was free in the process already.
        let grown = resident[WELCOMED.len() - 1] - resident[FIRST - 1];
        Ok((ours, Some(theirs[theirs.len() / 2]), grown / (WELCOMED.len() - FIRST) as f64))
    }

    /// How much memory a member takes.
    fn memory(&mut self) -> Result<f64, Failure> {
        let (checkpoint, tree) = (self.second.checkpoint(), self.second.tree());
        let setup = setup("second")?;
        memory_of(|| Ok(MlsRs::restore(&setup, &checkpoint, &tree)?))
    }

    /// All are in one epoch.
    fn agree(&self, peer: &mut OpenMls, names: &[&str]) -> Result<(), Failure> {
        let here = self.first.context();
        let is_here =
            |authenticator: &[u8], tree_hash: &[u8]| here.authenticator == authenticator && here.tree_hash == tree_hash;
        let second = self.second.context();
        let mut agree = is_here(&second.authenticator, &second.tree_hash);
        for name in names {
            let there = peer.position(name)?;
            agree &= is_here(&there.authenticator, &there.tree_hash);
        }
        if agree { Ok(()) } else { Err("the members are in different epochs".into()) }
    }
}

fn setup(name: &str) -> Result<Setup, Failure> {
    let seed = Secret::from_bytes(sha256(name.as_bytes()));
    Ok(Setup {
        suite: Suite::X25519,
        credential: Credential::Basic(name.as_bytes().to_vec()),
        signer: Arc::new(SigningKey::from_seed(Suite::X25519.algorithm(), &seed)?),
        judge: Arc::new(Everybody),
        handshake: Handshake::Private,
        extension_kinds: Vec::new(),
    })
}

fn seed(of: u32) -> Secret<32> {
    Secret::from_bytes(sha256(&of.to_be_bytes()))
}

/// OpenMLS asks the system's clock.
fn now() -> Utc {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Utc(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

const PACKAGE_LASTS: Duration = Duration::from_secs(30 * 24 * 3600);
/// Members of OpenMLS that enter by one Welcome, and how many of them only fill what is free in their process.
const WELCOMED: [&str; 4] = ["welcomed1", "welcomed2", "welcomed3", "welcomed4"];
const FIRST: usize = 2;
