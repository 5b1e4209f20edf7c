//! Admission without threads, for simulations: whoever holds it says when it works.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::{Admission, Setup, Shared};

/// Admission whose lanes are served by [`Stepped::step`].
pub struct Stepped(Arc<Admission>);

impl Stepped {
    /// It works once an order is there ([`Admission::attach`]).
    pub fn new(setup: Setup) -> Stepped {
        Stepped(Arc::new(Admission { shared: Arc::new(Shared::new(setup, None)), threads: Mutex::default() }))
    }

    /// What the order and clients hold.
    pub fn admission(&self) -> &Arc<Admission> {
        &self.0
    }

    /// Checks what came; whether there was anything.
    pub fn step(&self) -> bool {
        let shared = &self.0.shared;
        let mut any = false;
        for shard in &shared.shards {
            let together = shard.try_next(shared.together.load(Ordering::Relaxed));
            if !together.is_empty() {
                any = true;
                shared.attend(together);
            }
        }
        any
    }
}
