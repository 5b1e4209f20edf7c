//! What brokers tell a broker that lacks history: how far back they go, a snapshot to begin with, and what they signed.
//! Nobody else is told: a snapshot holds all clients' attributes and all values.
//!
//! ```text
//! lacks history ── History ──▶ all others                     how far back, which snapshot
//!               ── Checkpoint(height) ──▶ all others          f + 1 signatures name one state root (E1)
//!               ── Part(height, 0), Part(height, …) ──▶ one    rows that must come to that root
//! ```

use sealcast_crypto::signature::{SIGNATURE_LEN, Signature};
use sealcast_wire::{Malformed, Reader, Writer, limits};

use super::{flag, read_bytes, write_bytes};
use crate::genesis::Cluster;
use crate::state::executed;

/// How far back a broker goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The last block that it executed.
    pub height: u64,
    /// The oldest block that it still has, with all that follow.
    pub oldest: u64,
    /// What a broker without these blocks can begin with.
    pub snapshot: Option<SnapshotInfo>,
}

/// A snapshot that a broker offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// [`crate::state::SnapshotHead`], encoded.
    pub head: Vec<u8>,
    /// The block at which the order begins for who takes it: the snapshot's own or one before.
    pub start_height: u64,
    /// The quorum's certificate of that block, in the order's encoding.
    pub certificate: Vec<u8>,
    /// What that block's hash is made of.
    pub header: Vec<u8>,
}

/// A broker's word on the state after a block whose height is a multiple of `CHECKPOINT_BLOCKS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Whose.
    pub broker: u16,
    /// The block.
    pub height: u64,
    /// The state after it.
    pub state_root: [u8; 32],
    /// The root of its outbox.
    pub outbox_root: [u8; 32],
    /// Over the block's [`executed`], the same that receipts have.
    pub signature: Signature,
}

impl History {
    /// `u64 height ‖ u64 oldest ‖ (0 | 1 ‖ offer)`, `offer = u32 length ‖ head ‖ u64 start_height ‖ u32 length ‖ certificate ‖ u32 length ‖ header`
    pub(super) fn encode(&self, w: &mut Writer) {
        w.u64(self.height).u64(self.oldest).u8(u8::from(self.snapshot.is_some()));
        if let Some(snapshot) = &self.snapshot {
            write_bytes(w, &snapshot.head);
            write_bytes(w.u64(snapshot.start_height), &snapshot.certificate);
            write_bytes(w, &snapshot.header);
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<History, Malformed> {
        let (height, oldest) = (r.u64()?, r.u64()?);
        let snapshot = if flag(r)? { Some(SnapshotInfo::decode(r)?) } else { None };
        Ok(History { height, oldest, snapshot })
    }
}

impl SnapshotInfo {
    fn decode(r: &mut Reader<'_>) -> Result<SnapshotInfo, Malformed> {
        let (head, start_height) = (read_bytes(r, limits::START_CERTIFICATE_BYTES_MAX)?, r.u64()?);
        let (certificate, header) =
            (read_bytes(r, limits::START_CERTIFICATE_BYTES_MAX)?, read_bytes(r, limits::START_CERTIFICATE_BYTES_MAX)?);
        Ok(SnapshotInfo { head, start_height, certificate, header })
    }
}

impl Checkpoint {
    /// What the broker signed.
    pub fn statement(&self, cluster: &Cluster) -> [u8; 32] {
        executed(cluster, self.height, &self.state_root, &self.outbox_root)
    }

    /// `u16 broker ‖ u64 height ‖ state root ‖ outbox root ‖ signature`
    pub(super) fn encode(&self, w: &mut Writer) {
        w.u16(self.broker).u64(self.height).raw(&self.state_root).raw(&self.outbox_root).raw(&self.signature);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Checkpoint, Malformed> {
        let (broker, height, state_root, outbox_root) = (r.u16()?, r.u64()?, r.array()?, r.array()?);
        Ok(Checkpoint { broker, height, state_root, outbox_root, signature: r.array::<SIGNATURE_LEN>()? })
    }
}
