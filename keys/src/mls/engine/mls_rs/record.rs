//! Records: a commit of ours that waits, and a state without what follows from its tree.

use std::collections::BTreeSet;

use mls_rs::mls_rs_codec::MlsEncode;
use sealcast_crypto::secret::Secret;
use sealcast_wire::Utc;
use sealcast_wire::codec::{Malformed, Reader, Writer};
use zeroize::Zeroizing;

use super::provider::Signatures;
use crate::mls::engine::{LeafIndex, Reference, put_length, vector};
use crate::mls::judge::Extension;

/// A commit of ours that waits: not its result, which holds the whole tree twice, but all that it follows from. The engine
/// is deterministic, so that it computes the same commit again after a restart.
///
/// ```text
/// version 1 ‖ u64 epoch ‖ 32 before ‖ u64 utc ‖ 32 seed ‖ 32 result
///   ‖ u32 n ‖ n·(u32 ‖ key package) ‖ u32 n ‖ n·u32 leaf ‖ u8 changes ‖ [u32 n ‖ n·(u16 kind ‖ u32 ‖ data)]
///   ‖ u32 n ‖ n·(u32 ‖ reference) ‖ u32 n ‖ n·(32 hash ‖ u32 ‖ signature)
/// ```
pub(super) struct PendingRecord {
    /// In which epoch it was made.
    pub(super) epoch: u64,
    /// Hash of that epoch's authenticator: forks have other ones.
    pub(super) before: [u8; 32],
    /// When.
    pub(super) utc: Utc,
    /// From what randomness.
    pub(super) seed: Secret<32>,
    /// Hash of the GroupInfo that it leads to.
    pub(super) result: [u8; 32],
    /// Key packages that it adds.
    pub(super) add: Vec<Vec<u8>>,
    /// Leaves that it removes by value.
    pub(super) remove: Vec<LeafIndex>,
    /// New extensions of the group context.
    pub(super) extensions: Option<Vec<Extension>>,
    /// Proposals that it takes by reference.
    pub(super) taken: BTreeSet<Reference>,
    /// Signatures that cannot be made again.
    pub(super) signatures: Signatures,
}

impl PendingRecord {
    /// The record's bytes.
    pub(super) fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        // In one place: a vector that grows leaves copies of the seed behind.
        let added: usize = self.add.iter().map(|it| it.len() + 4).sum();
        let extensions: usize = self.extensions.iter().flatten().map(|it| it.data.len() + 6).sum();
        let others = (self.taken.len() + self.remove.len()) * 64 + self.signatures.len() * 128;
        let mut w = Writer::with_capacity(256 + added + extensions + others);
        w.u8(PENDING_VERSION).u64(self.epoch).raw(&self.before).u64(self.utc.0 as u64);
        w.raw(self.seed.expose()).raw(&self.result);
        w.u32(self.add.len() as u32);
        self.add.iter().for_each(|package| put(&mut w, package));
        w.u32(self.remove.len() as u32);
        self.remove.iter().for_each(|leaf| {
            w.u32(leaf.0);
        });
        w.u8(self.extensions.is_some().into());
        if let Some(extensions) = &self.extensions {
            w.u32(extensions.len() as u32);
            for extension in extensions {
                w.u16(extension.kind);
                put(&mut w, &extension.data);
            }
        }
        w.u32(self.taken.len() as u32);
        self.taken.iter().for_each(|reference| put(&mut w, &reference.0));
        w.u32(self.signatures.len() as u32);
        for (what, signature) in &self.signatures {
            w.raw(what);
            put(&mut w, signature);
        }
        Zeroizing::new(w.finish())
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`Malformed`] if it is none of this version.
    pub(super) fn parse(bytes: &[u8]) -> Result<PendingRecord, Malformed> {
        let mut r = Reader::new(bytes);
        if r.u8()? != PENDING_VERSION {
            return Err(Malformed);
        }
        let record = PendingRecord {
            epoch: r.u64()?,
            before: r.array()?,
            utc: Utc(r.u64()? as i64),
            seed: Secret::from_bytes(r.array()?),
            result: r.array()?,
            add: list(&mut r, get)?,
            remove: list(&mut r, |r| Ok(LeafIndex(r.u32()?)))?,
            extensions: match r.u8()? {
                0 => None,
                1 => Some(list(&mut r, |r| Ok(Extension { kind: r.u16()?, data: get(r)? }))?),
                _ => return Err(Malformed),
            },
            taken: list(&mut r, |r| Ok(Reference(get(r)?)))?.into_iter().collect(),
            signatures: list(&mut r, |r| Ok((r.array()?, get(r)?)))?.into_iter().collect(),
        };
        r.end()?;
        Ok(record)
    }
}

fn put(w: &mut Writer, bytes: &[u8]) {
    w.u32(bytes.len() as u32).raw(bytes);
}

fn get(r: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
    let length = r.u32()? as usize;
    Ok(r.take(length)?.to_vec())
}

fn list<'a, T>(
    r: &mut Reader<'a>,
    mut one: impl FnMut(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = r.u32()?;
    (0..count).map(|_| one(r)).collect()
}

/// A state as mls-rs stores it holds three indexes of its tree and all tree hashes: nine tenths of it, and all of it
/// follows from the nodes. This is where they lie.
///
/// ```text
/// u16 version ‖ GroupContext ‖ proposals<V> ‖ own proposals<V> ‖ [4 × index<V>] ‖ nodes<V> ‖ [hashes<V>] ‖ secrets …
/// ```
/// The form is that of the one version and the features that the workspace pins.
pub(super) struct Layout<'a> {
    /// Up to the indexes.
    pub(super) head: &'a [u8],
    /// What follows the hashes.
    pub(super) secrets: &'a [u8],
    /// The tree hash in the group context.
    pub(super) tree_hash: &'a [u8],
    /// Names the group.
    pub(super) group_id: &'a [u8],
}

impl<'a> Layout<'a> {
    /// Finds the parts of a stored state.
    ///
    /// # Errors
    /// [`Malformed`] if it is none.
    pub(super) fn of(state: &'a [u8]) -> Result<Layout<'a>, Malformed> {
        let mut r = Reader::new(state);
        r.take(2 + 2 + 2)?; // version of the form; of the protocol; cipher suite
        let group_id = vector(&mut r)?;
        r.u64()?; // epoch
        let tree_hash = vector(&mut r)?;
        vector(&mut r)?; // confirmed transcript hash
        vector(&mut r)?; // extensions
        vector(&mut r)?; // proposals
        vector(&mut r)?; // own proposals
        let head = &state[..state.len() - r.remaining()];
        for _ in 0..INDEXES {
            vector(&mut r)?;
        }
        if !vector(&mut r)?.is_empty() {
            return Err(Malformed); // the nodes are apart
        }
        vector(&mut r)?;
        Ok(Layout { head, secrets: r.rest(), tree_hash, group_id })
    }

    /// The state with these tree hashes, and without indexes, which mls-rs then makes anew.
    pub(super) fn with_hashes(&self, hashes: &[[u8; 32]]) -> Zeroizing<Vec<u8>> {
        let length = hashes.len() * 33;
        let mut state = Vec::with_capacity(self.head.len() + self.secrets.len() + length + 16);
        state.extend_from_slice(self.head);
        state.resize(state.len() + INDEXES + 1, 0);
        put_length(&mut state, length);
        for hash in hashes {
            state.push(32);
            state.extend_from_slice(hash);
        }
        state.extend_from_slice(self.secrets);
        Zeroizing::new(state)
    }
}

/// An encoding that cannot fail: of what was decoded, or made here.
pub(super) fn encoded(value: &impl MlsEncode) -> Vec<u8> {
    value.mls_encode_to_vec().expect("no vector of ours nears 1 GB")
}

/// Of the form of a pending commit's record.
const PENDING_VERSION: u8 = 1;
/// By signature key, HPKE key, identity and credential type.
const INDEXES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_shorter() {
        let record = PendingRecord {
            epoch: 7,
            before: [1; 32],
            utc: Utc(-5),
            seed: Secret::from_bytes([2; 32]),
            result: [3; 32],
            add: vec![vec![4; 300], vec![]],
            remove: vec![LeafIndex(9)],
            extensions: Some(vec![Extension { kind: 0xF000, data: vec![5] }]),
            taken: BTreeSet::from([Reference(vec![6; 32])]),
            signatures: Signatures::from([([7; 32], vec![8; 70])]),
        };
        let bytes = record.to_bytes();
        let read = PendingRecord::parse(&bytes).unwrap();
        assert_eq!(read.to_bytes(), bytes);
        assert_eq!((read.epoch, read.utc, read.add.len()), (7, Utc(-5), 2));
        for n in 0..bytes.len() {
            assert!(PendingRecord::parse(&bytes[..n]).is_err(), "first {n} bytes");
        }
    }
}
