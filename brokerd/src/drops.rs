//! What a broker turned away, counted by reason: nothing that comes in disappears unseen.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a channel ended, or a batch or a query was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Reason {
    /// As many connections of unregistered clients are open as may be, and this was the oldest.
    Connections,
    /// As many connections are open as the process's file descriptors allow: this one is closed at once.
    Descriptors,
    /// What came is no TLS 1.3 with a raw public key, or not our protocol.
    Handshake,
    /// No hello came in time.
    Late,
    /// A client of another cluster.
    Cluster,
    /// A message longer than any may be.
    Long,
    /// A message that cannot be read, or comes out of turn.
    Malformed,
    /// A message began and did not end.
    Stalled,
    /// More waits for the client than may wait.
    Slow,
    /// The same client opened another channel.
    Replaced,
    /// The connection broke.
    Broken,
    /// The broker ends.
    Ending,
    /// Too many queries are open.
    Questions,
    /// An unregistered client exceeded its open queries again and again.
    Strikes,
    /// A batch whose bytes are none.
    BatchMalformed,
    /// A batch whose signature is false.
    BatchSignature,
    /// A batch with a bad ciphertext.
    BatchCiphertext,
    /// A batch that accuses a publisher falsely.
    BatchAccusation,
    /// A batch of a client that is not registered, which accuses a publisher or does not show who is behind the client.
    UnregisteredBatch,
    /// A batch of a client that is not registered, which shows something false of who is behind it.
    BatchProof,
    /// A batch that publishes at a topic at which nothing can be published.
    BatchTopic,
    /// A batch of another client.
    BatchNotYours,
    /// A batch that fits no block.
    BatchTooLarge,
    /// A batch that came while the mempool was full.
    BatchFull,
    /// A batch beyond what its client may have waiting.
    BatchQuota,
    /// A batch that was executed before, waits already, or is on its way.
    BatchKnown,
    /// A batch from a broker that forwarded false ones.
    BatchForwarded,
    /// A block with a batch that is not valid.
    Block,
}

/// How often each happened.
#[derive(Debug, Default)]
pub struct Drops([AtomicU64; REASONS.len()]);

impl Drops {
    /// Counts one.
    pub fn count(&self, reason: Reason) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often this happened.
    pub fn of(&self, reason: Reason) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (Reason, u64)> {
        REASONS.into_iter().map(|reason| (reason, self.of(reason)))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Connections => "connections",
            Reason::Descriptors => "descriptors",
            Reason::Handshake => "handshake",
            Reason::Late => "late",
            Reason::Cluster => "cluster",
            Reason::Long => "long",
            Reason::Malformed => "malformed",
            Reason::Stalled => "stalled",
            Reason::Slow => "slow",
            Reason::Replaced => "replaced",
            Reason::Broken => "broken",
            Reason::Ending => "ending",
            Reason::Questions => "questions",
            Reason::Strikes => "strikes",
            Reason::BatchMalformed => "batch_malformed",
            Reason::BatchSignature => "batch_signature",
            Reason::BatchCiphertext => "batch_ciphertext",
            Reason::BatchAccusation => "batch_accusation",
            Reason::UnregisteredBatch => "batch_stranger",
            Reason::BatchProof => "batch_proof",
            Reason::BatchTopic => "batch_topic",
            Reason::BatchNotYours => "batch_not_yours",
            Reason::BatchTooLarge => "batch_too_large",
            Reason::BatchFull => "batch_full",
            Reason::BatchQuota => "batch_quota",
            Reason::BatchKnown => "batch_known",
            Reason::BatchForwarded => "batch_forwarded",
            Reason::Block => "block",
        })
    }
}

/// In the order of their numbers.
const REASONS: [Reason; 28] = [
    Reason::Connections,
    Reason::Descriptors,
    Reason::Handshake,
    Reason::Late,
    Reason::Cluster,
    Reason::Long,
    Reason::Malformed,
    Reason::Stalled,
    Reason::Slow,
    Reason::Replaced,
    Reason::Broken,
    Reason::Ending,
    Reason::Questions,
    Reason::Strikes,
    Reason::BatchMalformed,
    Reason::BatchSignature,
    Reason::BatchCiphertext,
    Reason::BatchAccusation,
    Reason::UnregisteredBatch,
    Reason::BatchProof,
    Reason::BatchTopic,
    Reason::BatchNotYours,
    Reason::BatchTooLarge,
    Reason::BatchFull,
    Reason::BatchQuota,
    Reason::BatchKnown,
    Reason::BatchForwarded,
    Reason::Block,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_counter() {
        let drops = Drops::default();
        for (place, reason) in REASONS.into_iter().enumerate() {
            assert_eq!(place, reason as usize);
            (0..=place).for_each(|_| drops.count(reason));
        }
        assert!(drops.all().all(|(reason, n)| n == reason as u64 + 1));
    }
}
