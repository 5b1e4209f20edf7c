//! Batches: one client's operations with consecutive numbers under one signature.
//!
//! ```text
//! u8 1 ‖ client, 32 ‖ u64 first ‖ u8 again ‖ u16 count ‖ (u32 length ‖ operation) … ‖ signature, 64
//! ```
//! Signed is `T("sealcast/v1/frame"; cluster, client, u64 first, u8 again, id₁, id₂ …)`, ids being those of
//! [`OperationId`]: the cluster is bound and not sent, and each operation can be shown to somebody without
//! the others. The same 32 bytes name the batch in its results.
//!
//! A batch whose turn had not come when it was ordered changed nothing, and brokers take no batch twice. So the same
//! operations come in a batch with the next `again`; in a batch that is only sent once more, to another broker, it
//! stays what it was.

use std::collections::BTreeMap;

use sealcast_crypto::ed25519::{Key, Signed, false_ones};
use sealcast_crypto::hash::Transcript;
use sealcast_crypto::signature::{OriginKey, SIGNATURE_LEN, Signature};
use sealcast_crypto::tdh2::Label;
use sealcast_wire::{Malformed, Reader, Writer, limits};

use super::{Accusation, Body, Client, Operation, OperationId, Publication, TopicError, read_bytes, write_bytes};
use crate::genesis::Cluster;

/// One client's operations, parsed; the signature is not yet believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    client: Key,
    first: u64,
    again: u8,
    operations: Vec<(OperationId, Operation)>,
    signature: Signature,
}

/// A batch whose signature and ciphertexts are good: [`check`] alone makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    batch: Batch,
    digest: [u8; 32],
}

/// What a batch's first bytes say of it, nothing of it checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Whose it says it is.
    pub client: Client,
    /// The number of its first operation.
    pub first: u64,
    /// The number after its last operation.
    pub end: u64,
}

/// A ciphertext with the label that it must be bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed<'a> {
    /// Who publishes.
    pub client: Client,
    /// The operation's number.
    pub number: u64,
    /// The operation's name, which with client and number names ciphertext and label.
    pub id: OperationId,
    /// [`Publication::label`].
    pub label: Label,
    /// The key epoch that it names.
    pub epoch: u32,
    /// The bytes.
    pub ciphertext: &'a [u8],
    /// Of an accused ciphertext, the accusation: its shares must prove that the ciphertext opens to nothing.
    pub against: Option<&'a Accusation>,
}

/// Why a batch makes the block that holds it invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Not of the form in the module's head.
    #[error("the batch is malformed")]
    Malformed,
    /// The client's signature.
    #[error("the batch's signature is wrong")]
    Signature,
    /// One of its ciphertexts (S11, S12: checked before it is ordered).
    #[error("a ciphertext in the batch is not well-formed for its label")]
    Ciphertext,
    /// Evidence that convicts nobody, or a ciphertext beside it.
    #[error("an accusation of the batch is false")]
    Accusation,
}

impl Batch {
    /// A batch of these operations, numbered from `first`.
    ///
    /// # Panics
    /// If there are none or too many of them, if one is over a limit, or if their numbers would pass 2⁶⁴.
    pub fn sign(cluster: &Cluster, key: &OriginKey, first: u64, operations: Vec<Operation>) -> Batch {
        assert!((1..=limits::BATCH_OPERATIONS_MAX).contains(&operations.len()), "a batch has operations and a limit");
        assert!(first.checked_add(operations.len() as u64).is_some(), "numbers end at 2⁶⁴");
        let named = |operation: Operation| {
            let bytes = operation.to_bytes();
            assert!(Operation::from_bytes(&bytes).as_ref() == Ok(&operation), "an operation within the limits");
            (OperationId::of(&bytes), operation)
        };
        let operations: Vec<_> = operations.into_iter().map(named).collect();
        let client = Key::new(&key.public_bytes()).expect("a key of ours is good");
        let mut batch = Batch { client, first, again: 0, operations, signature: [0; SIGNATURE_LEN] };
        batch.signature = key.sign(&batch.digest(cluster));
        batch
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(VERSION).raw(self.client.as_bytes()).u64(self.first).u8(self.again);
        w.u16(u16::try_from(self.operations.len()).expect("a batch has a limit"));
        self.operations.iter().for_each(|(_, operation)| write_bytes(&mut w, &operation.to_bytes()));
        w.raw(&self.signature);
        w.finish()
    }

    /// Reads what [`Batch::to_bytes`] wrote and nothing else. Costs one point decoding and a hash.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Batch, Malformed> {
        Batch::read(bytes, &mut Keys::default())
    }

    /// The same for one of several batches: a client's key, which takes a square root, is decoded once for all of them.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(bytes: &[u8], keys: &mut Keys) -> Result<Batch, Malformed> {
        let mut r = Reader::new(bytes);
        if bytes.len() > limits::BATCH_BYTES_MAX || r.u8()? != VERSION {
            return Err(Malformed);
        }
        let client: [u8; 32] = r.array()?;
        let (first, again, count) = (r.u64()?, r.u8()?, r.count16(5, limits::BATCH_OPERATIONS_MAX)?);
        if count == 0 || first.checked_add(count as u64).is_none() {
            return Err(Malformed);
        }
        let mut operations = Vec::with_capacity(count);
        let (mut proofs, mut accusations) = (0, 0);
        for _ in 0..count {
            let bytes = read_bytes(&mut r, limits::OPERATION_BYTES_MAX)?;
            let operation = Operation::from_bytes(bytes)?;
            // At the first that is too many: keys in them are decoded, which costs.
            proofs += usize::from(is_proof(&operation));
            accusations += usize::from(matches!(operation, Operation::Accuse(_)));
            if proofs > limits::BATCH_PROOFS_MAX || accusations > limits::BATCH_ACCUSATIONS_MAX {
                return Err(Malformed);
            }
            operations.push((OperationId::of(bytes), operation));
        }
        let signature = r.array()?;
        r.end()?;
        let client = keys.decode(&client)?;
        Ok(Batch { client, first, again, operations, signature })
    }

    /// The bytes of the operation at a place of a batch that [`Batch::from_bytes`] reads; `None` if there is none.
    pub fn operation_in(bytes: &[u8], place: usize) -> Option<&[u8]> {
        let mut r = Reader::new(bytes);
        r.take(HEAD_LEN - 2).ok()?;
        let count = r.count16(5, limits::BATCH_OPERATIONS_MAX).ok()?;
        let mut operations = (0..count).map(|_| read_bytes(&mut r, limits::OPERATION_BYTES_MAX).ok());
        operations.nth(place)?
    }

    /// Who says so.
    pub fn client(&self) -> Client {
        Client(*self.client.as_bytes())
    }

    /// The number of its first operation.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The number after its last operation.
    pub fn end(&self) -> u64 {
        self.first + self.operations.len() as u64
    }

    /// The operation with this number, if it is one of the batch's.
    pub fn operation(&self, number: u64) -> Option<&Operation> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.operations.get(place).map(|(_, operation)| operation)
    }

    /// Its operations with their numbers.
    pub fn operations(&self) -> impl Iterator<Item = (u64, &OperationId, &Operation)> {
        (self.first..).zip(&self.operations).map(|(number, (id, operation))| (number, id, operation))
    }

    /// What is signed, and the batch's name in its results.
    pub fn digest(&self, cluster: &Cluster) -> [u8; 32] {
        digest(cluster, self.client.as_bytes(), self.first, self.again, self.operations.iter().map(|(id, _)| id))
    }

    /// Its ciphertexts, published and accused.
    fn sealed(&self) -> impl Iterator<Item = Sealed<'_>> {
        let client = self.client();
        self.operations().filter_map(move |(number, id, operation)| match operation {
            Operation::Publish(publication) => match &**publication {
                Publication { body: Body::Sealed(ciphertext), epoch, .. } => {
                    let label = publication.label(&client, number);
                    Some(Sealed { client, number, id: *id, label, epoch: *epoch, ciphertext, against: None })
                }
                _ => None,
            },
            Operation::Accuse(accusation) => Some(accused(accusation)),
            _ => None,
        })
    }

    /// How many ciphertexts it brings, published or accused: each costs the check of its proof.
    pub fn ciphertexts(&self) -> usize {
        self.operations.iter().filter(|(_, operation)| is_sealed(operation)).count()
    }

    /// Whether a publication in it names a topic at which nothing can be published. Admission asks; blocks are valid with
    /// such batches, since old ones hold some.
    ///
    /// # Errors
    /// [`TopicError`] of the first.
    pub fn check_topics(&self) -> Result<(), TopicError> {
        self.operations.iter().try_for_each(|(_, operation)| match operation {
            Operation::Publish(publication) => publication.check_topics(),
            _ => Ok(()),
        })
    }

    /// How many accusations it brings: each costs the proofs of t shares.
    pub fn accusations(&self) -> usize {
        self.operations.iter().filter(|(_, operation)| matches!(operation, Operation::Accuse(_))).count()
    }

    /// How many registrations and acts of administrators it brings: each costs signatures when it is executed.
    pub fn proofs(&self) -> usize {
        self.operations.iter().filter(|(_, operation)| is_proof(operation)).count()
    }
}

fn is_sealed(operation: &Operation) -> bool {
    match operation {
        Operation::Publish(publication) => matches!(publication.body, Body::Sealed(_)),
        Operation::Accuse(_) => true,
        _ => false,
    }
}

fn is_proof(operation: &Operation) -> bool {
    matches!(operation, Operation::Register(_) | Operation::Administer(_))
}

fn accused(accusation: &Accusation) -> Sealed<'_> {
    Sealed {
        client: accusation.client,
        number: accusation.number,
        id: accusation.accused(),
        label: accusation.label(),
        epoch: accusation.envelope.epoch,
        ciphertext: &accusation.ciphertext,
        against: Some(accusation),
    }
}

/// Keys of clients whose batches are read together.
#[derive(Debug, Default)]
pub struct Keys(BTreeMap<[u8; 32], Key>);

impl Keys {
    fn decode(&mut self, client: &[u8; 32]) -> Result<Key, Malformed> {
        if let Some(key) = self.0.get(client) {
            return Ok(*key);
        }
        let key = Key::new(client).map_err(|_| Malformed)?;
        self.0.insert(*client, key);
        Ok(key)
    }
}

impl Head {
    /// Of an encoded batch.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn of(batch: &[u8]) -> Result<Head, Malformed> {
        let mut r = Reader::new(batch);
        if batch.len() > limits::BATCH_BYTES_MAX || r.u8()? != VERSION {
            return Err(Malformed);
        }
        let (client, first, _again, count) = (Client(r.array()?), r.u64()?, r.u8()?, r.u16()?);
        let end = first.checked_add(u64::from(count)).ok_or(Malformed)?;
        if (1..=limits::BATCH_OPERATIONS_MAX).contains(&usize::from(count)) {
            Ok(Head { client, first, end })
        } else {
            Err(Malformed)
        }
    }
}

impl Checked {
    /// The batch.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// [`Batch::digest`], as it was checked.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

/// Signs a batch of operations that are encoded already: its digest and its bytes. Clients that send many use
/// it; the operations must be what [`Operation::to_bytes`] writes, with their ids.
///
/// # Panics
/// If there are none or too many of them.
pub fn sign_encoded<'a>(
    cluster: &Cluster,
    key: &OriginKey,
    first: u64,
    again: u8,
    operations: impl Iterator<Item = (&'a OperationId, &'a [u8])> + Clone,
) -> ([u8; 32], Vec<u8>) {
    let (count, bytes) = operations.clone().fold((0, 0), |(n, sum), (_, it)| (n + 1, sum + 4 + it.len()));
    assert!((1..=limits::BATCH_OPERATIONS_MAX).contains(&count), "a batch has operations and a limit");
    let client = key.public_bytes();
    let digest = digest(cluster, &client, first, again, operations.clone().map(|(id, _)| id));
    let mut w = Writer::with_capacity(HEAD_LEN + bytes + SIGNATURE_LEN);
    w.u8(VERSION).raw(&client).u64(first).u8(again).u16(u16::try_from(count).expect("a batch has a limit"));
    operations.for_each(|(_, operation)| write_bytes(&mut w, operation));
    w.raw(&key.sign(&digest));
    (digest, w.finish())
}

fn digest<'a>(
    cluster: &Cluster,
    client: &[u8; 32],
    first: u64,
    again: u8,
    ids: impl Iterator<Item = &'a OperationId>,
) -> [u8; 32] {
    let mut transcript = Transcript::new("sealcast/v1/frame").add(&cluster.0).add(client);
    transcript.absorb(&first.to_be_bytes());
    transcript.absorb(&[again]);
    ids.for_each(|id| transcript.absorb(&id.0));
    transcript.finish()
}

/// Judges batches as blocks are judged: all signatures in one batch, then all ciphertexts in one call of
/// `ciphertexts`, which says of each whether it is well-formed for its label. Whether a batch is good does not
/// depend on the others beside it (E10).
pub fn check(
    cluster: &Cluster,
    batches: Vec<Batch>,
    ciphertexts: impl FnOnce(&[Sealed<'_>]) -> Vec<bool>,
) -> Vec<Result<Checked, BatchError>> {
    let digests: Vec<[u8; 32]> = batches.iter().map(|f| f.digest(cluster)).collect();
    let claims: Vec<Signed<'_>> = batches
        .iter()
        .zip(&digests)
        .map(|(f, digest)| Signed { key: &f.client, message: digest, signature: &f.signature })
        .collect();
    let mut wrong: Vec<Option<BatchError>> = vec![None; batches.len()];
    false_ones(&claims).into_iter().for_each(|i| wrong[i] = Some(BatchError::Signature));
    let (mut sealed, mut of_batch) = (Vec::new(), Vec::new());
    for (i, batch) in batches.iter().enumerate().filter(|(i, _)| wrong[*i].is_none()) {
        sealed.extend(batch.sealed());
        of_batch.resize(sealed.len(), i);
    }
    if !sealed.is_empty() {
        let good = ciphertexts(&sealed);
        assert_eq!(good.len(), sealed.len(), "a verdict for each ciphertext");
        let bad = of_batch.iter().zip(good).filter(|(_, good)| !good);
        bad.for_each(|(&i, _)| {
            let accuses = batches[i].accusations() > 0;
            wrong[i] = Some(if accuses { BatchError::Accusation } else { BatchError::Ciphertext });
        });
    }
    drop(sealed);
    let judged = batches.into_iter().zip(digests).zip(wrong);
    judged.map(|((batch, digest), wrong)| wrong.map_or(Ok(Checked { batch, digest }), Err)).collect()
}

impl From<Malformed> for BatchError {
    fn from(_: Malformed) -> BatchError {
        BatchError::Malformed
    }
}

const VERSION: u8 = 1;
/// Bytes before the first operation.
const HEAD_LEN: usize = 1 + 32 + 8 + 1 + 2;
