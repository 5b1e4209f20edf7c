//! What this broker tells others of its history.

use std::sync::atomic::Ordering;

use sealcast_broker::operation::Client;
use sealcast_broker::protocol::{Answer, Checkpoint, History, SnapshotInfo, Why};
use sealcast_wire::limits;

use crate::executor::Shared;

impl Shared {
    /// How far back it goes, and what it offers: the snapshot behind its low-water mark, if there is one, else the low-water mark's own.
    pub(crate) fn history(&self, client: &Client) -> Result<Answer, Why> {
        self.only_brokers(client)?;
        let mut history = History { height: self.height.load(Ordering::Acquire), oldest: 1, snapshot: None };
        if self.state().low_water_mark().height > 0 {
            let snapshots = &self.retention.snapshots;
            let heights = snapshots.heights().map_err(|_| Why::Storage)?;
            let mut sound = heights.into_iter().filter_map(|height| snapshots.read(height).ok());
            let lowest = sound.next().ok_or(Why::Storage)?;
            history.oldest = lowest.start_certificate.height;
            let offered = sound.next().unwrap_or(lowest);
            let (head, start_certificate) = (offered.head.to_bytes(), offered.start_certificate);
            let (certificate, header) = (start_certificate.certificate, start_certificate.header);
            history.snapshot = Some(SnapshotInfo { head, start_height: start_certificate.height, certificate, header });
        }
        Ok(Answer::History(Box::new(history)))
    }

    /// Its word on the state after a block (E1).
    pub(crate) fn checkpoint(&self, client: &Client, height: u64) -> Result<Answer, Why> {
        self.only_brokers(client)?;
        if height > self.height.load(Ordering::Acquire) {
            return Err(Why::Behind);
        }
        if height == 0 || !height.is_multiple_of(limits::CHECKPOINT_BLOCKS) {
            return Err(Why::Nothing);
        }
        let past = self.state().past(height).map_err(|_| Why::Storage)?.ok_or(Why::Pruned)?;
        let signature = self.key.sign(&past.executed(&self.cluster));
        let (state_root, outbox_root) = (past.state_root, past.outbox_root());
        let checkpoint = Checkpoint { broker: self.index, height, state_root, outbox_root, signature };
        Ok(Answer::Checkpoint(Box::new(checkpoint)))
    }

    /// Bytes of a snapshot's rows.
    pub(crate) fn part(&self, client: &Client, height: u64, offset: u64) -> Result<Answer, Why> {
        self.only_brokers(client)?;
        // It may have gone since it was offered.
        self.retention.snapshots.part(height, offset).map(Answer::Part).map_err(|_| Why::Pruned)
    }

    /// A snapshot holds what no client may see.
    fn only_brokers(&self, client: &Client) -> Result<(), Why> {
        if self.is_broker(client) { Ok(()) } else { Err(Why::Denied) }
    }
}
