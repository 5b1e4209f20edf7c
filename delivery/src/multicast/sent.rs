//! What was sent last: kept for vouching (A5), and given back as fresh batches afterwards.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use sealcast_crypto::hash::sha256;
use sealcast_wire::{Domain, EpochId, Header, limits};

use crate::Batch;

/// Names one sealed packet.
///
/// By a hash of all its bytes and not by its tag: GCM's tag is linear in the ciphertext, and whoever
/// knows the key makes another packet with the same counter and tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packet {
    /// The domain that it was sealed in.
    pub domain: Domain,
    /// Its packet counter.
    pub counter: u64,
    /// The first 16 bytes of the SHA-256 of the datagram as it is sent.
    pub digest: [u8; 16],
}

impl Packet {
    /// What stands for this sealed datagram, and its epoch; `None` if it is none.
    pub fn of(datagram: &[u8]) -> Option<(EpochId, Packet)> {
        let header = Header::parse(datagram).ok()?;
        let digest = sha256(datagram)[..16].try_into().expect("16 of 32 bytes");
        Some((header.epoch, Packet { domain: header.domain, counter: header.counter, digest }))
    }
}

/// Batches that were handed over for transmission, the last `limits::VOUCHED_PACKETS` packets at most
/// within `limits::VOUCHED_BYTES_MAX`; older ones become the memory of new batches.
///
/// Packets are hashed when somebody is excluded and not when they are sent: SHA-256 of a packet takes
/// longer than sealing it does.
#[derive(Debug, Default)]
pub(super) struct Sent {
    kept: VecDeque<(Option<EpochId>, Arc<Batch>)>,
    packets: usize,
    bytes: usize,
    small: Vec<Arc<Batch>>,
    large: Vec<Arc<Batch>>,
}

impl Sent {
    /// Shares the batch with who transmits it, and leaves `batch` empty with memory to fill.
    ///
    /// Without an epoch nobody will have to vouch for it.
    pub(super) fn share(&mut self, epoch: Option<EpochId>, batch: &mut Batch) -> Arc<Batch> {
        let small = batch.bytes.len() <= SMALL_BYTES;
        let spare = if small { self.small.pop() } else { self.large.pop() };
        let mut shared = spare.unwrap_or_default();
        let mine = Arc::get_mut(&mut shared).expect("spares are shared with nobody");
        if small {
            // A lone message is copied out, so that what is kept is as small as it is.
            if mine.bytes.capacity() > SLACK * batch.bytes.len() {
                mine.bytes = Vec::with_capacity(batch.bytes.len());
            }
            mine.append(batch);
            batch.clear();
        } else {
            mem::swap(mine, batch);
        }
        self.packets += shared.lengths.len();
        self.bytes += shared.bytes.capacity();
        self.kept.push_back((epoch, Arc::clone(&shared)));
        self.recycle();
        shared
    }

    /// The packets of an epoch, oldest first.
    pub(super) fn packets(&self, epoch: EpochId) -> Vec<Packet> {
        let batches = self.kept.iter().filter(|(of, _)| *of == Some(epoch));
        let datagrams = batches.flat_map(|(_, batch)| batch.iter());
        datagrams.filter_map(Packet::of).map(|(_, packet)| packet).collect()
    }

    fn recycle(&mut self) {
        while let Some((epoch, batch)) = self.kept.front() {
            let packets = batch.lengths.len();
            let needed = match epoch {
                Some(_) => self.packets - packets < limits::VOUCHED_PACKETS && self.bytes <= limits::VOUCHED_BYTES_MAX,
                None => self.kept.len() <= PLAIN_BATCHES,
            };
            if needed {
                return;
            }
            self.packets -= packets;
            self.bytes -= batch.bytes.capacity();
            let (_, mut batch) = self.kept.pop_front().expect("there is a front");
            if let Some(unshared) = Arc::get_mut(&mut batch) {
                let spares = if unshared.bytes.capacity() <= SMALL_BYTES { &mut self.small } else { &mut self.large };
                if spares.len() < SPARES {
                    unshared.clear();
                    spares.push(batch);
                }
            }
        }
    }
}

/// Up to this many bytes a batch is copied rather than given away with the memory that it was built in.
const SMALL_BYTES: usize = 16 << 10;
/// A kept copy has at most this many times the memory that it needs.
const SLACK: usize = 8;
/// Batches that nobody vouches for and that may still be on their way to the kernel.
const PLAIN_BATCHES: usize = 4;
/// Batches of each size that wait to be filled.
const SPARES: usize = 4;

#[cfg(test)]
mod tests {
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
                assert!(sent.packets <= limits::VOUCHED_PACKETS);
                assert!(sent.bytes <= limits::VOUCHED_BYTES_MAX, "{} bytes", sent.bytes);
                let bytes: usize = sent.kept.iter().map(|(_, b)| b.bytes.capacity()).sum();
                assert_eq!(sent.bytes, bytes);
            }
            assert!(sent.packets * len > limits::VOUCHED_BYTES_MAX / 2 || sent.packets == limits::VOUCHED_PACKETS);
        }
    }

    #[test]
    fn batches_come_back_once_they_are_let_go() {
        let mut sent = Sent::default();
        let mut mine = batch(20_000);
        let mut held = Vec::new();
        for _ in 0..100 {
            held.push(sent.share(None, &mut mine));
            mine.push(&[2; 20_000]);
        }
        assert!(sent.large.is_empty(), "what the caller holds is not reused");
        held.clear();
        for _ in 0..100 {
            drop(sent.share(None, &mut mine));
            assert!(mine.is_empty(), "the batch is empty again");
            mine.push(&[2; 20_000]);
        }
        assert!(!sent.large.is_empty());
    }
}
