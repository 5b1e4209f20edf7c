//! What a block yields: publications in their places, results, and who gets what; with one root over all
//! of it, so that one broker's word with a path is as good as f+1 equal answers (E1).
//!
//! ```text
//! outbox root = T("sealcast/v1/outbox"; u64 height, publications, results, notices, advertisements)
//!                                                   each the root of a Merkle tree, or 32 zeros without leaves
//! executed    = T("sealcast/v1/executed"; cluster, u64 height, state root, outbox root)   what each broker signs
//! ```

use std::sync::OnceLock;

use sealcast_crypto::hash::Transcript;
use sealcast_crypto::merkle::{Tree, root_of};
use sealcast_wire::{Malformed, Reader, Utc, Writer, limits};

use super::entry::Entry;
use super::outcome::OperationResult;
use super::past::Past;
use crate::genesis::Cluster;
use crate::operation::{Client, OperationId};

/// What a block yields.
#[derive(Clone, Debug)]
pub struct Outbox {
    /// The block.
    pub height: u64,
    /// Its time.
    pub at: Utc,
    /// The state after it.
    pub state_root: [u8; 32],
    /// Publications, by sn.
    pub publications: Vec<Entry>,
    /// Results, one for each batch, in the block's order.
    pub results: Vec<Results>,
    /// What subscribers get, by client and subscription.
    pub notices: Vec<Notice>,
    /// Advertisements, by sn; they go to [`Outbox::intents`].
    pub advertisements: Vec<Advertisement>,
    /// Who wants advertisements; empty where there are none.
    pub intents: Vec<Client>,
    /// Statements of the DKG, each with its broker's number, in their order (E8).
    pub words: Vec<(u16, Vec<u8>)>,
    leaves: [OnceLock<Vec<[u8; 32]>>; 4],
    trees: OnceLock<Trees>,
}

/// The results of one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results {
    /// Whose.
    pub client: Client,
    /// The number of the batch's first operation.
    pub first: u64,
    /// Which batch: [`crate::operation::Batch::digest`]. Another run of the same client may use the same numbers.
    pub batch: [u8; 32],
    /// What became of each operation.
    pub outcomes: Vec<OperationResult>,
}

/// What one subscription gets of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whose subscription.
    pub client: Client,
    /// Its number.
    pub subscription: u64,
    /// The place of the first one: places are gap-free from block to block, so nothing can be left out.
    pub first: u64,
    /// What is there, in order.
    pub runs: Vec<Run>,
}

/// Consecutive places of one subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// One place: this publication, which the subscriber may read.
    Deliver {
        /// Its sn.
        sn: u64,
    },
    /// So many places with publications that it may not read: ⊥.
    Empty {
        /// How many.
        count: u64,
    },
}

/// An advertisement in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// The place of its operation.
    pub sn: u64,
    /// Who says so.
    pub client: Client,
    /// As the client numbered it.
    pub number: u64,
    /// Names the operation's bytes.
    pub id: OperationId,
    /// The batch within the block.
    pub batch: u32,
}

/// Which of the four lists something is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// [`Outbox::publications`].
    Publication = 0,
    /// [`Outbox::results`].
    Result = 1,
    /// [`Outbox::notices`].
    Notice = 2,
    /// [`Outbox::advertisements`].
    Advertisement = 3,
}

/// That something is in an outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// In which list.
    pub part: Part,
    /// At which place.
    pub index: usize,
    /// How many the list has.
    pub count: usize,
    /// The way to the list's root.
    pub path: Vec<[u8; 32]>,
    /// The roots of the four lists; the one of `part` is what leaf and path come to, so that a proof has one encoding.
    pub roots: [[u8; 32]; 4],
}

#[derive(Clone, Debug)]
struct Trees([Option<Tree>; 4]);

impl Outbox {
    pub(super) fn new(height: u64, at: Utc) -> Outbox {
        Outbox {
            height,
            at,
            state_root: [0; 32],
            publications: Vec::new(),
            results: Vec::new(),
            notices: Vec::new(),
            advertisements: Vec::new(),
            intents: Vec::new(),
            words: Vec::new(),
            leaves: Default::default(),
            trees: OnceLock::new(),
        }
    }

    /// The root over everything in it.
    pub fn root(&self) -> [u8; 32] {
        root(self.height, &self.roots())
    }

    /// What brokers sign of this block (E1).
    pub fn executed(&self, cluster: &Cluster) -> [u8; 32] {
        executed(cluster, self.height, &self.state_root, &self.root())
    }

    /// That the thing at this place of a list is in it; `None` if there is none.
    pub fn prove(&self, part: Part, index: usize) -> Option<Proof> {
        let tree = self.trees().0[part as usize].as_ref()?;
        let count = tree.count();
        (index < count).then(|| Proof { part, index, count, path: tree.path(index), roots: self.roots() })
    }

    /// The leaves of one list, computed once.
    pub(crate) fn leaves(&self, part: Part) -> &[[u8; 32]] {
        self.leaves[part as usize].get_or_init(|| match part {
            Part::Publication => self.publications.iter().map(Entry::leaf).collect(),
            Part::Result => self.results.iter().map(Results::leaf).collect(),
            Part::Notice => self.notices.iter().map(Notice::leaf).collect(),
            Part::Advertisement => self.advertisements.iter().map(Advertisement::leaf).collect(),
        })
    }

    /// Takes the publications' leaves from where they were computed already.
    pub(super) fn know_leaves(&self, publications: Vec<[u8; 32]>) {
        debug_assert_eq!(publications.len(), self.publications.len());
        let _ = self.leaves[Part::Publication as usize].set(publications);
    }

    /// The root of the publications, which the state's history is made of. All lists are as they will be.
    pub(super) fn publications_root(&self) -> [u8; 32] {
        self.roots()[Part::Publication as usize]
    }

    /// What is remembered of it.
    pub(super) fn past(&self) -> Past {
        let first_sn = self.publications.first().map_or(0, |entry| entry.sn);
        Past { height: self.height, state_root: self.state_root, roots: self.roots(), first_sn }
    }

    pub(super) fn roots(&self) -> [[u8; 32]; 4] {
        self.trees().0.each_ref().map(|tree| tree.as_ref().map_or([0; 32], Tree::root))
    }

    fn trees(&self) -> &Trees {
        self.trees.get_or_init(|| {
            let parts = [Part::Publication, Part::Result, Part::Notice, Part::Advertisement];
            let tree = |leaves: &[[u8; 32]]| (!leaves.is_empty()).then(|| Tree::new(leaves));
            Trees(parts.map(|part| tree(self.leaves(part))))
        })
    }
}

impl Proof {
    /// `u8 part ‖ u32 index ‖ u32 count ‖ u16 steps ‖ step … ‖ root … 4`
    pub(crate) fn encode(&self, w: &mut Writer) {
        let number = |n: usize| u32::try_from(n).expect("a block's things have a limit");
        w.u8(self.part as u8).u32(number(self.index)).u32(number(self.count));
        w.u16(u16::try_from(self.path.len()).expect("a path has at most 32 steps"));
        self.path.iter().chain(&self.roots).for_each(|hash| {
            w.raw(hash);
        });
    }

    /// Reads what [`Proof::encode`] wrote.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Proof, Malformed> {
        let part = [Part::Publication, Part::Result, Part::Notice, Part::Advertisement];
        let part = *part.get(usize::from(r.u8()?)).ok_or(Malformed)?;
        let (index, count) = (r.u32()? as usize, r.u32()? as usize);
        let steps = r.count16(32, 32)?;
        let path = (0..steps).map(|_| r.array()).collect::<Result<_, _>>()?;
        let mut roots = [[0; 32]; 4];
        for root in &mut roots {
            *root = r.array()?;
        }
        Ok(Proof { part, index, count, path, roots })
    }
    /// The outbox root of the block at this height if it holds what has this leaf at the proof's place;
    /// `None` if the proof has no such shape. Shows nothing until f+1 brokers signed that root.
    pub fn root(&self, height: u64, leaf: &[u8; 32]) -> Option<[u8; 32]> {
        let of_list = root_of(leaf, self.index, self.count, &self.path)?;
        (self.roots[self.part as usize] == of_list).then(|| root(height, &self.roots))
    }
}

impl Results {
    /// The number after the last one that the batch's operations used up. What came twice or too early used none.
    pub fn next(&self) -> Option<u64> {
        super::results::used(self).last().map(|number| number + 1)
    }

    /// `client ‖ u64 first ‖ batch's digest ‖ u16 count ‖ (u16 code ‖ bytes16 detail) …`
    pub(crate) fn encode(&self, w: &mut Writer) {
        w.raw(&self.client.0).u64(self.first).raw(&self.batch);
        w.u16(u16::try_from(self.outcomes.len()).expect("a batch's operations have a limit"));
        self.outcomes.iter().for_each(|o| o.encode(w));
    }

    /// Reads what [`Results::encode`] wrote. The number behind the last is one.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Results, Malformed> {
        let (client, first, batch) = (Client(r.array()?), r.u64()?, r.array()?);
        let count = r.count16(4, limits::BATCH_OPERATIONS_MAX)?;
        first.checked_add(count as u64).ok_or(Malformed)?;
        let outcomes = (0..count).map(|_| OperationResult::decode(r)).collect::<Result<_, _>>()?;
        Ok(Results { client, first, batch, outcomes })
    }

    /// `T("sealcast/v1/results"; client, u64 first, batch's digest, (u16 code ‖ bytes16 detail) …)`
    pub fn leaf(&self) -> [u8; 32] {
        let mut w = Writer::new();
        self.outcomes.iter().for_each(|o| o.encode(&mut w));
        let first = self.first.to_be_bytes();
        let transcript = Transcript::new("sealcast/v1/results").add(&self.client.0).add(&first);
        transcript.add(&self.batch).add(w.as_slice()).finish()
    }
}

impl Notice {
    /// `client ‖ u64 subscription ‖ u64 first ‖ u32 count ‖ (1 ‖ u64 sn | 2 ‖ u64 count) …`
    pub(crate) fn encode(&self, w: &mut Writer) {
        w.raw(&self.client.0).u64(self.subscription).u64(self.first);
        w.u32(u32::try_from(self.runs.len()).expect("a block's publications have a limit"));
        self.runs.iter().for_each(|run| run.encode(w));
    }

    /// How many places it covers.
    pub fn places(&self) -> u64 {
        self.runs.iter().map(Run::places).sum()
    }

    /// Reads what [`Notice::encode`] wrote. The place behind the last is one.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Notice, Malformed> {
        let (client, subscription, first) = (Client(r.array()?), r.u64()?, r.u64()?);
        let count = r.u32()? as usize;
        if count.saturating_mul(9) > r.remaining() {
            return Err(Malformed);
        }
        let runs = (0..count).map(|_| Run::decode(r)).collect::<Result<Vec<Run>, _>>()?;
        runs.iter().try_fold(first, |place, run| place.checked_add(run.places())).ok_or(Malformed)?;
        Ok(Notice { client, subscription, first, runs })
    }

    /// `T("sealcast/v1/notice"; client, u64 subscription, u64 first, (1 ‖ u64 sn | 2 ‖ u64 count) …)`
    pub fn leaf(&self) -> [u8; 32] {
        let mut w = Writer::new();
        self.runs.iter().for_each(|run| run.encode(&mut w));
        let transcript = Transcript::new("sealcast/v1/notice").add(&self.client.0);
        let (subscription, first) = (self.subscription.to_be_bytes(), self.first.to_be_bytes());
        transcript.add(&subscription).add(&first).add(w.as_slice()).finish()
    }

    /// Adds the next place.
    pub(super) fn push(&mut self, sn: u64, deliver: bool) {
        match (self.runs.last_mut(), deliver) {
            (_, true) => self.runs.push(Run::Deliver { sn }),
            (Some(Run::Empty { count }), false) => *count += 1,
            (_, false) => self.runs.push(Run::Empty { count: 1 }),
        }
    }
}

impl Run {
    /// The sn of what it delivers.
    pub fn delivered(&self) -> Option<u64> {
        match self {
            Run::Deliver { sn } => Some(*sn),
            Run::Empty { .. } => None,
        }
    }

    /// How many places it covers.
    pub fn places(&self) -> u64 {
        match self {
            Run::Deliver { .. } => 1,
            Run::Empty { count } => *count,
        }
    }

    fn encode(&self, w: &mut Writer) {
        match self {
            Run::Deliver { sn } => w.u8(1).u64(*sn),
            Run::Empty { count } => w.u8(2).u64(*count),
        };
    }

    fn decode(r: &mut Reader<'_>) -> Result<Run, Malformed> {
        match (r.u8()?, r.u64()?) {
            (1, sn) => Ok(Run::Deliver { sn }),
            (2, count) if count > 0 => Ok(Run::Empty { count }),
            _ => Err(Malformed),
        }
    }
}

impl Advertisement {
    /// `u64 sn ‖ client ‖ u64 number ‖ id ‖ u32 batch`
    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u64(self.sn).raw(&self.client.0).u64(self.number).raw(&self.id.0).u32(self.batch);
    }

    /// Reads what [`Advertisement::encode`] wrote.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Advertisement, Malformed> {
        let (sn, client, number, id) = (r.u64()?, Client(r.array()?), r.u64()?, OperationId(r.array()?));
        Ok(Advertisement { sn, client, number, id, batch: r.u32()? })
    }

    /// `T("sealcast/v1/advertised"; u64 sn, client, u64 number, id)`
    pub fn leaf(&self) -> [u8; 32] {
        let (sn, number) = (self.sn.to_be_bytes(), self.number.to_be_bytes());
        Transcript::new("sealcast/v1/advertised").add(&sn).add(&self.client.0).add(&number).add(&self.id.0).finish()
    }
}

/// What each broker signs of a block (E1).
pub fn executed(cluster: &Cluster, height: u64, state_root: &[u8; 32], outbox_root: &[u8; 32]) -> [u8; 32] {
    let transcript = Transcript::new("sealcast/v1/executed").add(&cluster.0).add(&height.to_be_bytes());
    transcript.add(state_root).add(outbox_root).finish()
}

pub(super) fn root(height: u64, roots: &[[u8; 32]; 4]) -> [u8; 32] {
    let transcript = Transcript::new("sealcast/v1/outbox").add(&height.to_be_bytes());
    roots.iter().fold(transcript, |t, root| t.add(root)).finish()
}
