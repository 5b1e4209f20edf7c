//! Which process a session belongs to: after a fork both copies would seal other bytes under the same nonces (G4).
//!
//! A forked child inherits keys, counters and generators, and none of the session's threads. The copy of a session in the
//! child therefore refuses everything. It compares process ids before it takes any lock, which a thread that is not in
//! the child may have held at the fork.

#[cfg(feature = "lan")]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "lan")]
use sealcast_wire::Monotonic;

use crate::error::{Error, Result};

/// The process that opened a session.
#[derive(Debug)]
pub(crate) struct Process {
    id: u32,
    /// When the ids were compared for the batch that gathers, in microseconds; 0 while none gathers.
    #[cfg(feature = "lan")]
    compared: AtomicU64,
}

impl Process {
    /// The one that runs this.
    pub(crate) fn current() -> Process {
        Process {
            id: std::process::id(),
            #[cfg(feature = "lan")]
            compared: AtomicU64::new(0),
        }
    }

    /// Whether the one that runs this is still the same. Costs a system call.
    pub(crate) fn is_ours(&self) -> bool {
        std::process::id() == self.id
    }

    /// The same as a result.
    ///
    /// # Errors
    /// [`crate::Code::Forked`].
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_ours() { Ok(()) } else { Err(Error::forked()) }
    }

    /// The same for each message of a batch, at one system call for all of them. A batch counts as over after
    /// [`BATCH_MICROS`], so that a child that was forked in the middle of one is found, too.
    #[cfg(feature = "lan")]
    pub(crate) fn is_ours_for_batch(&self, now: Monotonic) -> bool {
        let compared = self.compared.load(Ordering::Relaxed);
        if compared != 0 && now.micros().saturating_sub(compared) < BATCH_MICROS {
            return true;
        }
        let ours = self.is_ours();
        self.compared.store(if ours { now.micros().max(1) } else { 0 }, Ordering::Relaxed);
        ours
    }

    /// The batch that gathered is sealed.
    #[cfg(feature = "lan")]
    pub(crate) fn end_batch(&self) {
        self.compared.store(0, Ordering::Relaxed);
    }
}

/// How long one comparison serves: a fork takes about as long. The ids are compared again before anything is sealed, so a
/// message that a child adds within this time is lost in the child and never sent.
#[cfg(feature = "lan")]
const BATCH_MICROS: u64 = 200;
