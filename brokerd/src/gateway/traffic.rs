//! How much goes through the gateway.

use std::sync::atomic::{AtomicU64, Ordering};

/// Messages of one direction, and their bytes with the lengths before them.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl Traffic {
    /// One more message, of so many bytes.
    pub(super) fn count(&self, bytes: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Messages and bytes so far.
    pub(super) fn so_far(&self) -> (u64, u64) {
        (self.messages.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}
