//! What was sent last: kept for vouching (A5), and given back as fresh batches afterwards.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use sealcast_wire::{EpochId, limits};

use crate::{Batch, Packet};

/// Batches that were handed over for transmission, the last `limits::VOUCHED_PACKETS` packets at most
/// within `limits::VOUCHED_BYTES_MAX`; older ones become the memory of new batches.
///
/// ```text
/// share ─▶ under way ── settle ─▶ kept ─▶ forgotten
///   ▲          └──────── memory ───────────┘
///   └── spares ◀───────────┘
/// ```
/// Packets are hashed when somebody is excluded and not when they are sent: SHA-256 of a packet takes
/// longer than sealing it does. Nor is anything copied before it is sent: what is handed over is the
/// memory that was sealed in, and a small batch's copy is made once it is on its way.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// Handed over; whoever transmits them may not be done. At most [`UNDER_WAY`].
    under_way: VecDeque<(Option<EpochId>, Arc<Batch>)>,
    kept: VecDeque<(EpochId, Arc<Batch>)>,
    /// Of what is under way with an epoch and what is kept.
    packets: usize,
    /// Of what is kept.
    bytes: usize,
    /// To be filled, the one used last on top: its memory is in the processor's cache.
    spares: Vec<Arc<Batch>>,
    /// Memory of small batches that were forgotten, for the copies of new ones.
    copies: Vec<Arc<Batch>>,
    /// How many spares are kept besides [`SPARES`].
    more_spares: usize,
}

impl Sent {
    /// Shares the batch with who transmits it, and leaves `batch` empty with memory to fill.
    ///
    /// Without an epoch nobody will have to vouch for it.
    pub(super) fn share(&mut self, epoch: Option<EpochId>, batch: &mut Batch) -> Arc<Batch> {
        let mut shared = self.spares.pop().unwrap_or_default();
        mem::swap(Arc::get_mut(&mut shared).expect("spares are shared with nobody"), batch);
        if epoch.is_some() {
            self.packets += shared.lengths.len();
        }
        self.under_way.push_back((epoch, Arc::clone(&shared)));
        if self.under_way.len() > UNDER_WAY {
            self.settle_oldest();
            self.forget();
        }
        shared
    }

    /// Puts away what is on its way; for when nobody waits.
    pub(super) fn settle(&mut self) {
        while !self.under_way.is_empty() {
            self.settle_oldest();
        }
        self.forget();
    }

    /// The packets of an epoch to vouch for, oldest first.
    pub(super) fn packets(&self, epoch: EpochId) -> Vec<Packet> {
        let under_way = self.under_way.iter().filter(|(of, _)| *of == Some(epoch)).map(|(_, batch)| batch);
        let kept = self.kept.iter().filter(|(of, _)| *of == epoch).map(|(_, batch)| batch);
        let datagrams = kept.chain(under_way).flat_map(|batch| batch.iter());
        datagrams.filter_map(Packet::vouched).map(|(_, packet)| packet).collect()
    }

    fn settle_oldest(&mut self) {
        let Some((epoch, batch)) = self.under_way.pop_front() else { return };
        let Some(epoch) = epoch else { return self.reuse(batch) };
        let kept = if batch.bytes.len() <= SMALL_BYTES {
            let copy = self.copy(&batch);
            self.reuse(batch);
            copy
        } else {
            batch
        };
        self.bytes += kept.bytes.capacity();
        self.kept.push_back((epoch, kept));
    }

    /// A copy that takes little more memory than it needs.
    fn copy(&mut self, batch: &Batch) -> Arc<Batch> {
        let mut copy = self.copies.pop().unwrap_or_default();
        let mine = Arc::get_mut(&mut copy).expect("copies are shared with nobody");
        if mine.bytes.capacity() > SLACK * batch.bytes.len() {
            mine.bytes = Vec::with_capacity(batch.bytes.len());
        }
        mine.append(batch);
        copy
    }

    /// Forgets the oldest beyond the limits.
    fn forget(&mut self) {
        while let Some((_, batch)) = self.kept.front() {
            let packets = self.packets - batch.lengths.len();
            if packets < limits::VOUCHED_PACKETS && self.bytes <= limits::VOUCHED_BYTES_MAX {
                return;
            }
            let (_, mut batch) = self.kept.pop_front().expect("there is a front");
            self.packets = packets;
            self.bytes -= batch.bytes.capacity();
            if batch.bytes.capacity() > SMALL_BYTES {
                self.reuse(batch);
            } else if let Some(mine) = Arc::get_mut(&mut batch)
                && self.copies.len() < SPARES
            {
                mine.clear();
                self.copies.push(batch);
            }
        }
    }

    /// Keeps the memory of batches that come back in numbers, since a backlog holds them for a while.
    pub(super) fn keep_more_spares(&mut self) {
        self.more_spares = SPARES_OF_BACKLOG;
    }

    /// Takes back memory that nobody else holds.
    pub(super) fn reuse(&mut self, mut batch: Arc<Batch>) {
        if let Some(mine) = Arc::get_mut(&mut batch)
            && self.spares.len() < SPARES + self.more_spares
        {
            mine.clear();
            self.spares.push(batch);
        }
    }
}

/// Up to this many bytes a batch is kept as a copy, so that what is kept is as small as it is.
const SMALL_BYTES: usize = 16 << 10;
/// A kept copy has at most this many times the memory that it needs.
const SLACK: usize = 8;
/// Batches that may be on their way to the kernel before they are put away.
const UNDER_WAY: usize = 4;
/// Batches of each kind that wait to be filled.
const SPARES: usize = 4;
/// The same besides, where a backlog gives back several at once.
const SPARES_OF_BACKLOG: usize = 28;

#[cfg(test)]
mod tests {
    use sealcast_wire::{Domain, Header};

    use super::*;

    fn batch(len: usize) -> Batch {
        let mut batch = Batch::default();
        batch.push(&vec![1; len]);
        batch
    }

    #[test]
    fn rule_g7_what_is_kept_is_bounded_by_packets_and_by_bytes() {
        let epoch = Some(EpochId { counter: 1, hash: 1 });
        let mut sent = Sent::default();
        for len in [100, 1000, 60_000, 100, 130_000, 100] {
            for _ in 0..2000 {
                sent.share(epoch, &mut batch(len));
                assert!(sent.under_way.len() <= UNDER_WAY && sent.packets <= limits::VOUCHED_PACKETS + UNDER_WAY);
                assert!(sent.bytes <= limits::VOUCHED_BYTES_MAX, "{} bytes", sent.bytes);
                let bytes: usize = sent.kept.iter().map(|(_, b)| b.bytes.capacity()).sum();
                assert_eq!(sent.bytes, bytes);
            }
            assert!(sent.packets * len > limits::VOUCHED_BYTES_MAX / 2 || sent.packets == limits::VOUCHED_PACKETS);
        }
    }

    #[test]
    fn what_is_under_way_is_named_before_and_after_it_is_put_away() {
        let epoch = EpochId { counter: 1, hash: 1 };
        let sealed = |counter, room: usize| {
            let mut datagram = vec![0; room];
            let header = Header { domain: Domain(1), epoch, slot: sealcast_wire::Slot(0), flags: 0, counter };
            header.write(&mut datagram);
            let mut batch = Batch::default();
            batch.push(&datagram);
            batch
        };
        let mut sent = Sent::default();
        let mut held = Vec::new();
        for counter in 0..10 {
            // Small and large ones in turn; every third is with its transmitter all the time.
            let shared = sent.share(Some(epoch), &mut sealed(counter, if counter % 2 == 0 { 100 } else { 40_000 }));
            if counter % 3 == 0 {
                held.push(shared);
            }
            let counters: Vec<u64> = sent.packets(epoch).iter().map(|p| p.counter).collect();
            assert_eq!(counters, (0..=counter).collect::<Vec<_>>());
        }
        let before = sent.packets(epoch);
        sent.settle();
        assert!(sent.under_way.is_empty());
        assert_eq!(sent.packets(epoch), before);
        assert_eq!(sent.packets(EpochId::default()), []);
    }

    #[test]
    fn batches_come_back_once_they_are_let_go() {
        for epoch in [None, Some(EpochId { counter: 1, hash: 1 })] {
            let mut sent = Sent::default();
            let mut mine = batch(10_000);
            let mut held = Vec::new();
            for _ in 0..100 {
                held.push(sent.share(epoch, &mut mine));
                mine.push(&[2; 10_000]);
                sent.settle();
            }
            assert!(sent.spares.is_empty(), "what the caller holds is not reused");
            held.clear();
            for _ in 0..100 {
                drop(sent.share(epoch, &mut mine));
                assert!(mine.is_empty(), "the batch is empty again");
                mine.push(&[2; 10_000]);
                sent.settle();
            }
            assert_eq!(sent.spares.len(), 1);
        }
    }
}
