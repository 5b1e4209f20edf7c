//! What a broker turned away, counted by reason: nothing that comes in disappears unseen.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a channel ended, or a frame or a query was not served.
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
    /// A frame whose bytes are none.
    FrameMalformed,
    /// A frame whose signature is false.
    FrameSignature,
    /// A frame with a bad ciphertext.
    FrameCiphertext,
    /// A frame that accuses a publisher falsely.
    FrameAccusation,
    /// A frame of a client that is not registered, which accuses a publisher or does not show who is behind the client.
    UnregisteredBatch,
    /// A frame of a client that is not registered, which shows something false of who is behind it.
    FrameProof,
    /// A frame that publishes at a topic at which nothing can be published.
    FrameTopic,
    /// A frame of another client.
    FrameNotYours,
    /// A frame that fits no block.
    FrameTooLarge,
    /// A frame for which the broker has no room.
    FrameFull,
    /// A frame beyond what its client may have waiting.
    FrameQuota,
    /// A frame that was executed before, waits already, or is on its way.
    FrameKnown,
    /// A frame from a broker that forwarded false ones.
    FrameForwarded,
    /// A block with a frame that is not valid.
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
            Reason::FrameMalformed => "frame_malformed",
            Reason::FrameSignature => "frame_signature",
            Reason::FrameCiphertext => "frame_ciphertext",
            Reason::FrameAccusation => "frame_accusation",
            Reason::UnregisteredBatch => "frame_stranger",
            Reason::FrameProof => "frame_proof",
            Reason::FrameTopic => "frame_topic",
            Reason::FrameNotYours => "frame_not_yours",
            Reason::FrameTooLarge => "frame_too_large",
            Reason::FrameFull => "frame_full",
            Reason::FrameQuota => "frame_quota",
            Reason::FrameKnown => "frame_known",
            Reason::FrameForwarded => "frame_forwarded",
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
    Reason::FrameMalformed,
    Reason::FrameSignature,
    Reason::FrameCiphertext,
    Reason::FrameAccusation,
    Reason::UnregisteredBatch,
    Reason::FrameProof,
    Reason::FrameTopic,
    Reason::FrameNotYours,
    Reason::FrameTooLarge,
    Reason::FrameFull,
    Reason::FrameQuota,
    Reason::FrameKnown,
    Reason::FrameForwarded,
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
