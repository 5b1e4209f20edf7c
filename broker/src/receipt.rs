//! What became of an operation, in a form that anybody who has the genesis can check without asking anyone (E1).
//!
//! ```text
//! testimony = u16 broker ‖ u64 height ‖ state root ‖ fact ‖ proof ‖ signature      one broker's
//! receipt   = u8 1 ‖ cluster ‖ u64 height ‖ state root ‖ fact ‖ proof ‖ u16 count ‖ (u16 broker ‖ signature) …   f + 1 or more
//! fact      = 1 ‖ u32 length ‖ entry | 2 ‖ results
//! ```
//! The signatures are those over `executed` of the block (docs/WIRE.md, 15.5).

use std::collections::BTreeMap;

use sealcast_crypto::ed25519::Key;
use sealcast_crypto::signature::{SIGNATURE_LEN, Signature};
use sealcast_wire::{Malformed, Reader, Writer, limits};

use crate::genesis::{Cluster, Genesis};
use crate::operation::Client;
use crate::state::{Entry, Outbox, Part, Proof, Results, executed};

/// What is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A publication in its place.
    Published(Box<Entry>),
    /// What became of a batch's operations.
    Executed(Results),
}

/// One broker's word on a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Testimony {
    /// Whose.
    pub broker: u16,
    /// The block.
    pub height: u64,
    /// The state after it.
    pub state_root: [u8; 32],
    /// What.
    pub fact: Fact,
    /// That it is in the block's outbox.
    pub proof: Proof,
    /// The broker's, over the block's [`executed`].
    pub signature: Signature,
}

/// A fact that f + 1 brokers signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Of which cluster.
    pub cluster: Cluster,
    /// The block.
    pub height: u64,
    /// The state after it.
    pub state_root: [u8; 32],
    /// What.
    pub fact: Fact,
    /// That it is in the block's outbox.
    pub proof: Proof,
    /// By brokers' numbers.
    pub signatures: BTreeMap<u16, Signature>,
}

/// Why a receipt shows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    /// It is of another cluster.
    #[error("the receipt is of another cluster")]
    Cluster,
    /// The fact is not where the proof says.
    #[error("the fact and its proof do not fit together")]
    Proof,
    /// A signature in it is wrong, or of nobody whom genesis names.
    #[error("the signature of broker {0} is wrong")]
    Signature(u16),
    /// Too few brokers signed.
    #[error("{signed} brokers signed, {needed} are needed")]
    Few {
        /// How many did.
        signed: usize,
        /// f + 1.
        needed: usize,
    },
}

impl Fact {
    /// What an outbox says of an operation: the publication if it is one, else what became of its batch.
    pub fn of(outbox: &Outbox, client: &Client, number: u64) -> Option<(Fact, Proof)> {
        let published = outbox.publications.iter().position(|e| e.client == *client && e.number == number);
        if let Some(index) = published {
            let entry = Box::new(outbox.publications[index].clone());
            return Some((Fact::Published(entry), outbox.prove(Part::Publication, index)?));
        }
        let holds = |r: &Results| r.client == *client && (r.first..r.first + r.outcomes.len() as u64).contains(&number);
        let index = outbox.results.iter().position(holds)?;
        Some((Fact::Executed(outbox.results[index].clone()), outbox.prove(Part::Result, index)?))
    }

    fn leaf(&self) -> ([u8; 32], Part) {
        match self {
            Fact::Published(entry) => (entry.leaf(), Part::Publication),
            Fact::Executed(results) => (results.leaf(), Part::Result),
        }
    }

    fn encode(&self, w: &mut Writer) {
        match self {
            Fact::Published(entry) => {
                let bytes = entry.to_bytes();
                w.u8(1).u32(u32::try_from(bytes.len()).expect("entries have a limit")).raw(&bytes);
            }
            Fact::Executed(results) => results.encode(w.u8(2)),
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Fact, Malformed> {
        match r.u8()? {
            1 => {
                let length = usize::try_from(r.u32()?).map_err(|_| Malformed)?;
                Ok(Fact::Published(Box::new(Entry::from_bytes(r.take(length)?)?)))
            }
            2 => Ok(Fact::Executed(Results::decode(r)?)),
            _ => Err(Malformed),
        }
    }
}

impl Testimony {
    /// The root of the block's outbox, if the fact is where the proof says.
    pub fn outbox_root(&self) -> Option<[u8; 32]> {
        outbox_root(self.height, &self.fact, &self.proof)
    }

    /// What the broker signed, if the proof fits the fact.
    pub fn statement(&self, cluster: &Cluster) -> Option<[u8; 32]> {
        statement(cluster, self.height, &self.state_root, &self.fact, &self.proof)
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u16(self.broker).u64(self.height).raw(&self.state_root);
        self.fact.encode(w);
        self.proof.encode(w);
        w.raw(&self.signature);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Testimony, Malformed> {
        let (broker, height, state_root) = (r.u16()?, r.u64()?, r.array()?);
        let (fact, proof) = (Fact::decode(r)?, Proof::decode(r)?);
        Ok(Testimony { broker, height, state_root, fact, proof, signature: r.array::<SIGNATURE_LEN>()? })
    }
}

impl Receipt {
    /// Of one broker's word; others are added with [`Receipt::add`].
    pub fn new(cluster: Cluster, testimony: &Testimony) -> Receipt {
        let Testimony { broker, height, state_root, fact, proof, signature } = testimony.clone();
        Receipt { cluster, height, state_root, fact, proof, signatures: BTreeMap::from([(broker, signature)]) }
    }

    /// Adds another broker's word; `false` if it says something else.
    pub fn add(&mut self, testimony: &Testimony) -> bool {
        let same = testimony.statement(&self.cluster) == self.statement() && testimony.fact == self.fact;
        if same {
            self.signatures.insert(testimony.broker, testimony.signature);
        }
        same
    }

    /// Checks it against a genesis.
    ///
    /// # Errors
    /// [`ReceiptError`]: the first thing that does not hold.
    pub fn verify(&self, genesis: &Genesis) -> Result<(), ReceiptError> {
        if genesis.cluster() != self.cluster {
            return Err(ReceiptError::Cluster);
        }
        let message = self.statement().ok_or(ReceiptError::Proof)?;
        let brokers: Vec<&[u8; 32]> = genesis.brokers.iter().collect();
        for (&broker, signature) in &self.signatures {
            let key = brokers.get(usize::from(broker)).and_then(|key| Key::new(key).ok());
            if !key.is_some_and(|key| key.verify(&message, signature)) {
                return Err(ReceiptError::Signature(broker));
            }
        }
        let needed = brokers.len().saturating_sub(1) / 3 + 1;
        let signed = self.signatures.len();
        if signed < needed { Err(ReceiptError::Few { signed, needed }) } else { Ok(()) }
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(VERSION).raw(&self.cluster.0).u64(self.height).raw(&self.state_root);
        self.fact.encode(&mut w);
        self.proof.encode(&mut w);
        w.u16(u16::try_from(self.signatures.len()).expect("brokers have a limit"));
        for (broker, signature) in &self.signatures {
            w.u16(*broker).raw(signature);
        }
        w.finish()
    }

    /// Reads what [`Receipt::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Receipt, Malformed> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return Err(Malformed);
        }
        let (cluster, height, state_root) = (Cluster(r.array()?), r.u64()?, r.array()?);
        let (fact, proof) = (Fact::decode(&mut r)?, Proof::decode(&mut r)?);
        let count = r.count16(2 + SIGNATURE_LEN, limits::BROKERS_MAX)?;
        let mut signatures = BTreeMap::new();
        for _ in 0..count {
            let broker = r.u16()?;
            if signatures.last_key_value().is_some_and(|(last, _)| *last >= broker) {
                return Err(Malformed);
            }
            signatures.insert(broker, r.array()?);
        }
        r.end()?;
        Ok(Receipt { cluster, height, state_root, fact, proof, signatures })
    }

    fn statement(&self) -> Option<[u8; 32]> {
        statement(&self.cluster, self.height, &self.state_root, &self.fact, &self.proof)
    }
}

/// What brokers signed if this fact is where the proof says.
fn statement(cluster: &Cluster, height: u64, state_root: &[u8; 32], fact: &Fact, proof: &Proof) -> Option<[u8; 32]> {
    Some(executed(cluster, height, state_root, &outbox_root(height, fact, proof)?))
}

/// The outbox's root if this fact is where the proof says. A fact of the block's own height alone can be in it.
fn outbox_root(height: u64, fact: &Fact, proof: &Proof) -> Option<[u8; 32]> {
    let (leaf, part) = fact.leaf();
    let own = match fact {
        Fact::Published(entry) => entry.height == height,
        Fact::Executed(_) => true,
    };
    (own && part == proof.part).then(|| proof.root(height, &leaf))?
}

const VERSION: u8 = 1;
