//! Groups whose members are ours and OpenMLS's by turns: after each change all members have the same epoch authenticator and
//! tree hash (RFC 9420, sections 7.8 and 8.7).

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::SigningKey;
use sealcast_keys::mls::engine::mls_rs::MlsRs;
use sealcast_keys::mls::engine::{
    Engine, Handshake, LeafIndex, PackageKind, PackageSecret, Pending, Plan, Propose, Setup, Step, Suite,
};
use sealcast_keys::mls::judge::{Credential, Everybody};
use sealcast_sim::dice::Dice;
use sealcast_wire::Utc;

use super::{Lab, Verdict};
use crate::Failure;
use crate::figures::Holds;
use crate::peers::openmls::{OpenMls, Position};
use crate::plots::Table;

pub(super) fn run(lab: &Lab) -> Result<Vec<Verdict>, Failure> {
    let (seeds, operations) = (lab.pick(2, SEEDS), lab.pick(25, OPERATIONS));
    lab.bar.set_length(seeds);
    let mut table = Table::new(&["seed", "operation", "by", "members", "epoch"]);
    let mut equal = 0;
    for seed in lab.seed..lab.seed + seeds {
        let mut group = Mixed::new(seed)?;
        for at in 0..operations {
            let (what, by) = group.change().map_err(|why| format!("seed {seed}, operation {at}: {why}"))?;
            let epoch = group.agree().map_err(|why| format!("seed {seed}, after operation {at} ({what}): {why}"))?;
            table.push(&[&seed, &what, &by, &group.members.len(), &epoch]);
            equal += 1;
        }
        lab.bar.inc(1);
    }
    lab.wrote(&table.write(&lab.out, "mls-mixed")?);
    Ok(vec![Verdict {
        claim: format!(
            "RFC 9420: members of ours and of {} follow each other's adds, removes, updates and external joins",
            OpenMls::described()
        ),
        holds: Holds::Yes,
        seen: format!(
            "the same epoch authenticator and tree hash at all of {} or more members after each of {equal} operations, \
             {seeds} seeds",
            FEWEST
        ),
    }])
}

/// A group, and all processes that its members need.
struct Mixed {
    peer: OpenMls,
    /// Those who are in.
    members: Vec<Member>,
    dice: Dice,
    named: u32,
    seeds: u32,
}

/// A member of either kind.
struct Member {
    name: String,
    /// `None` of OpenMLS.
    ours: Option<Ours>,
}

/// One of ours.
struct Ours {
    setup: Setup,
    /// Absent until it is in.
    engine: Option<MlsRs>,
    package: Option<PackageSecret>,
    pending: Option<Pending>,
}

/// What a commit or a proposal is to do.
#[derive(Default)]
struct Wanted {
    add: Vec<Vec<u8>>,
    remove: Vec<u32>,
}

impl Mixed {
    /// A group of so many, by turns of each kind; the dice say who founds it.
    fn new(seed: u64) -> Result<Mixed, Failure> {
        let (dice, members) = (Dice::new(seed, 0), Vec::new());
        let mut group = Mixed { peer: OpenMls::start()?, members, dice, named: 0, seeds: 0 };
        let mut founder = group.newcomer(seed.is_multiple_of(2))?;
        let id = format!("mixed {seed}");
        match &mut founder.ours {
            Some(ours) => {
                let seed = group.seed();
                ours.engine = Some(MlsRs::create(&ours.setup, id.as_bytes(), &[], Step { utc: now(), seed: &seed })?);
            }
            None => group.peer.create(&founder.name, id.as_bytes())?,
        }
        group.members.push(founder);
        while group.members.len() < FEWEST + 2 {
            let by = group.dice.index(group.members.len());
            group.add(by, 4, false)?;
            group.agree()?;
        }
        Ok(group)
    }

    /// Somebody who is in no group.
    fn newcomer(&mut self, is_ours: bool) -> Result<Member, Failure> {
        self.named += 1;
        let name = format!("{}{}", if is_ours { "ours" } else { "theirs" }, self.named);
        if !is_ours {
            self.peer.member(&name, "memory")?;
            return Ok(Member { name, ours: None });
        }
        let setup = Setup {
            suite: Suite::X25519,
            credential: Credential::Basic(name.clone().into_bytes()),
            signer: Arc::new(SigningKey::from_seed(Suite::X25519.algorithm(), &self.seed())?),
            judge: Arc::new(Everybody),
            handshake: Handshake::Private,
            extension_kinds: Vec::new(),
        };
        Ok(Member { name, ours: Some(Ours { setup, engine: None, package: None, pending: None }) })
    }

    fn seed(&mut self) -> Secret<32> {
        self.seeds += 1;
        let mut bytes = self.dice.seed();
        bytes[..4].copy_from_slice(&self.seeds.to_be_bytes());
        Secret::from_bytes(bytes)
    }

    /// One change that the dice draw: what it was, and who made it.
    fn change(&mut self) -> Result<(&'static str, String), Failure> {
        self.restart_one()?;
        let by = self.dice.index(self.members.len());
        let (mut name, proposes) = (self.members[by].name.clone(), self.dice.index(3) == 0);
        let what = match self.dice.index(5) {
            0 if self.members.len() < MOST => {
                let count = 1 + self.dice.index(3);
                self.add(by, count, proposes)?;
                "add"
            }
            1 if self.members.len() > FEWEST => {
                self.remove(by, proposes)?;
                "remove"
            }
            2 if self.members.len() < MOST => {
                name = self.external_join()?;
                "external join"
            }
            3 => {
                self.rejoin(by)?;
                "external rejoin"
            }
            _ => {
                self.update(by, proposes)?;
                "update"
            }
        };
        Ok((what, name))
    }

    /// One of ours goes on from what it would have stored.
    fn restart_one(&mut self) -> Result<(), Failure> {
        let at = self.dice.index(self.members.len());
        if let Some(ours) = &mut self.members[at].ours
            && let Some(engine) = &mut ours.engine
        {
            let (checkpoint, tree) = (engine.checkpoint(), engine.tree());
            *engine = MlsRs::restore(&ours.setup, &checkpoint, &tree)?;
        }
        Ok(())
    }

    fn add(&mut self, by: usize, count: usize, proposes: bool) -> Result<(), Failure> {
        let (mut newcomers, mut wanted) = (Vec::new(), Wanted::default());
        for _ in 0..count {
            let is_ours = self.named.is_multiple_of(2);
            let mut newcomer = self.newcomer(is_ours)?;
            wanted.add.push(self.package(&mut newcomer)?);
            newcomers.push(newcomer);
        }
        let (by, welcome) = self.commit(by, &wanted, proposes)?;
        let (welcome, tree) = (welcome.ok_or("no Welcome")?, self.tree(by)?);
        for mut newcomer in newcomers {
            match &mut newcomer.ours {
                Some(ours) => {
                    let package = ours.package.as_ref().expect("it made one");
                    ours.engine = Some(MlsRs::join(&ours.setup, &welcome, &tree, package, now())?.engine);
                }
                None => _ = self.peer.join(&newcomer.name, &welcome, &tree)?,
            }
            self.members.push(newcomer);
        }
        Ok(())
    }

    fn remove(&mut self, by: usize, proposes: bool) -> Result<(), Failure> {
        let whom = (by + 1 + self.dice.index(self.members.len() - 1)) % self.members.len();
        let leaf = self.position(whom)?.leaf;
        let removed = self.members.remove(whom);
        let by = if whom < by { by - 1 } else { by };
        self.commit(by, &Wanted { remove: vec![leaf], ..Wanted::default() }, proposes)?;
        if removed.ours.is_none() {
            self.peer.forget(&removed.name)?;
        }
        Ok(())
    }

    fn update(&mut self, by: usize, proposes: bool) -> Result<(), Failure> {
        self.commit(by, &Wanted::default(), proposes).map(drop)
    }

    /// Somebody comes in by a commit of its own; its name.
    fn external_join(&mut self) -> Result<String, Failure> {
        let is_ours = self.named.is_multiple_of(2);
        let newcomer = self.newcomer(is_ours)?;
        let name = newcomer.name.clone();
        self.enter(newcomer, None)?;
        Ok(name)
    }

    /// A member that lost its state comes in anew.
    fn rejoin(&mut self, whom: usize) -> Result<(), Failure> {
        let leaf = self.position(whom)?.leaf;
        let member = self.members.remove(whom);
        self.enter(member, Some(leaf))
    }

    /// By an external commit on what some member gives.
    fn enter(&mut self, mut newcomer: Member, replaces: Option<u32>) -> Result<(), Failure> {
        let through = self.dice.index(self.members.len());
        let tree = self.tree(through)?;
        let info = match &self.members[through].ours {
            Some(ours) => inside(ours)?.group_info(),
            None => self.peer.group_info(&self.members[through].name)?,
        };
        let seed = self.seed();
        let commit = match &mut newcomer.ours {
            Some(ours) => {
                let step = Step { utc: now(), seed: &seed };
                let (engine, commit) = MlsRs::external_join(&ours.setup, &info, &tree, replaces.map(LeafIndex), step)?;
                ours.engine = Some(engine);
                commit.message
            }
            None => self.peer.external(&newcomer.name, &info, &tree)?.0,
        };
        self.deliver(None, &commit)?;
        self.members.push(newcomer);
        Ok(())
    }

    /// One commit; proposed by its author and committed by another member, if that is wanted. Its author and Welcome.
    fn commit(&mut self, by: usize, wanted: &Wanted, proposes: bool) -> Result<(usize, Option<Vec<u8>>), Failure> {
        let is_alone = self.members.len() == 1;
        if !proposes || is_alone {
            let welcome = self.commit_by_value(by, wanted)?;
            return Ok((by, welcome));
        }
        // A proposal is for one thing, and nobody commits its own update or removal.
        let single = |add: Option<&Vec<u8>>, remove: Option<u32>| Wanted {
            add: add.into_iter().cloned().collect(),
            remove: remove.into_iter().collect(),
        };
        let adds = wanted.add.iter().map(|it| single(Some(it), None));
        let mut all: Vec<Wanted> = adds.chain(wanted.remove.iter().map(|it| single(None, Some(*it)))).collect();
        if all.is_empty() {
            all.push(Wanted::default());
        }
        for one in &all {
            let proposal = self.propose(by, one)?;
            self.deliver(Some(by), &proposal)?;
        }
        let other = (by + 1 + self.dice.index(self.members.len() - 1)) % self.members.len();
        let welcome = self.commit_by_value(other, &Wanted::default())?;
        Ok((other, welcome))
    }

    fn commit_by_value(&mut self, by: usize, wanted: &Wanted) -> Result<Option<Vec<u8>>, Failure> {
        let seed = self.seed();
        let (commit, welcome) = match &mut self.members[by].ours {
            Some(ours) => {
                let add: Vec<&[u8]> = wanted.add.iter().map(Vec::as_slice).collect();
                let remove: Vec<LeafIndex> = wanted.remove.iter().map(|leaf| LeafIndex(*leaf)).collect();
                let plan = Plan { add: &add, remove: &remove, ..Plan::default() };
                let made = inside_mut(ours)?.commit(&plan, Step { utc: now(), seed: &seed })?;
                ours.pending = Some(made.pending);
                (made.message, made.welcome)
            }
            None => {
                let words = words(wanted);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                self.peer.commit(&self.members[by].name, &words)?
            }
        };
        self.deliver(Some(by), &commit)?;
        match &mut self.members[by].ours {
            Some(ours) => {
                let pending = ours.pending.take().expect("it has just made it");
                inside_mut(ours)?.apply(&pending)?;
            }
            None => self.peer.apply(&self.members[by].name)?,
        }
        Ok(welcome)
    }

    fn propose(&mut self, by: usize, wanted: &Wanted) -> Result<Vec<u8>, Failure> {
        let seed = self.seed();
        let Some(ours) = &mut self.members[by].ours else {
            let mut words = words(wanted);
            if words.is_empty() {
                words.push("update".into());
            }
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            return self.peer.propose(&self.members[by].name, &words);
        };
        let proposal = match (wanted.add.first(), wanted.remove.first()) {
            (Some(package), _) => Propose::Add(package),
            (None, Some(leaf)) => Propose::Remove(LeafIndex(*leaf)),
            (None, None) => Propose::Update,
        };
        Ok(inside_mut(ours)?.propose(&proposal, Step { utc: now(), seed: &seed })?)
    }

    /// Hands a message to all members but its author.
    fn deliver(&mut self, by: Option<usize>, message: &[u8]) -> Result<(), Failure> {
        for at in (0..self.members.len()).filter(|at| Some(*at) != by) {
            let member = &mut self.members[at];
            let processed: Result<(), Failure> = match &mut member.ours {
                Some(ours) => inside_mut(ours)?.process(message, now()).map(drop).map_err(Into::into),
                None => self.peer.process(&member.name, message).map(drop),
            };
            processed.map_err(|why| format!("{}: {why}", member.name))?;
        }
        Ok(())
    }

    fn package(&mut self, newcomer: &mut Member) -> Result<Vec<u8>, Failure> {
        let seed = self.seed();
        let Some(ours) = &mut newcomer.ours else { return self.peer.package(&newcomer.name) };
        let step = Step { utc: now(), seed: &seed };
        let made = MlsRs::key_package(&ours.setup, PackageKind::SingleUse, PACKAGE_LASTS, step)?;
        ours.package = Some(made.secret);
        Ok(made.public)
    }

    fn tree(&mut self, of: usize) -> Result<Vec<u8>, Failure> {
        match &self.members[of].ours {
            Some(ours) => Ok(inside(ours)?.tree()),
            None => self.peer.tree(&self.members[of].name),
        }
    }

    fn position(&mut self, of: usize) -> Result<Position, Failure> {
        let Some(ours) = &self.members[of].ours else { return self.peer.position(&self.members[of].name) };
        let engine = inside(ours)?;
        let context = engine.context();
        Ok(Position {
            epoch: context.epoch,
            authenticator: context.authenticator,
            tree_hash: context.tree_hash,
            leaf: engine.own_leaf().0,
        })
    }

    /// All members are at one position, each at its own leaf; the epoch.
    fn agree(&mut self) -> Result<u64, Failure> {
        let first = self.position(0)?;
        let mut leaves = vec![first.leaf];
        for at in 1..self.members.len() {
            let other = self.position(at)?;
            let leaf = other.leaf;
            if (Position { leaf: first.leaf, ..other }) != first {
                return Err(format!("{} and {} differ", self.members[0].name, self.members[at].name).into());
            }
            leaves.push(leaf);
        }
        leaves.sort_unstable();
        leaves.dedup();
        if leaves.len() != self.members.len() {
            return Err("two members have one leaf".into());
        }
        Ok(first.epoch)
    }
}

fn inside(ours: &Ours) -> Result<&MlsRs, Failure> {
    ours.engine.as_ref().ok_or_else(|| "not in the group".into())
}

fn inside_mut(ours: &mut Ours) -> Result<&mut MlsRs, Failure> {
    ours.engine.as_mut().ok_or_else(|| "not in the group".into())
}

fn words(wanted: &Wanted) -> Vec<String> {
    let adds = wanted.add.iter().flat_map(|it| ["add".to_owned(), hex::encode(it)]);
    adds.chain(wanted.remove.iter().flat_map(|leaf| ["remove".to_owned(), leaf.to_string()])).collect()
}

/// OpenMLS asks the system's clock.
fn now() -> Utc {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Utc(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

const SEEDS: u64 = 20;
const OPERATIONS: u64 = 100;
const FEWEST: usize = 20;
const MOST: usize = 32;
const PACKAGE_LASTS: Duration = Duration::from_secs(30 * 24 * 3600);
