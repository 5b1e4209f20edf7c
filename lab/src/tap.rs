//! A key scheme that is listened to: every epoch that it hands out is seen by the checkers as well.
//!
//! What they get is the capability, as the group gets it; no key byte leaves the scheme.

use std::sync::{Arc, Mutex, PoisonError};

use sealcast::group::Epoch;
use sealcast_keys::{HandleError, Input, Keys, Output, Properties, Seal, SealError, Sealed};
use sealcast_wire::{Monotonic, Now, View};

/// What a key scheme said to its group, and the group does not show.
#[derive(Clone)]
pub enum Heard {
    /// A change is coming.
    Prepared(View),
    /// A key is agreed.
    Keyed {
        /// The epoch that it is of.
        epoch: Arc<Epoch>,
        /// Whether that was passed over already: it is never installed.
        passed: bool,
    },
}

/// Where a tap's news arrive.
pub type HeardLog = Arc<Mutex<Vec<Heard>>>;

/// A scheme with a line to the checkers.
pub struct Tap<K> {
    keys: K,
    line: HeardLog,
}

impl<K: Keys> Tap<K> {
    /// Listens to a scheme.
    pub fn new(keys: K) -> (Tap<K>, HeardLog) {
        let line = HeardLog::default();
        (Tap { keys, line: line.clone() }, line)
    }

    /// The scheme itself.
    pub fn inner(&self) -> &K {
        &self.keys
    }

    /// The scheme itself, for who makes it say what it would not.
    pub fn inner_mut(&mut self) -> &mut K {
        &mut self.keys
    }
}

impl<K: Keys> Keys for Tap<K> {
    fn properties(&self) -> Properties {
        self.keys.properties()
    }
    fn handle(&mut self, now: Now, input: Input<'_>) -> Result<(), HandleError> {
        self.keys.handle(now, input)
    }
    fn seal(&mut self, message: &Seal<'_>) -> Result<Sealed, SealError> {
        self.keys.seal(message)
    }
    fn has_capacity(&self, bytes: usize) -> bool {
        self.keys.has_capacity(bytes)
    }
    fn timeout(&self) -> Option<Monotonic> {
        self.keys.timeout()
    }
    fn handle_timeout(&mut self, now: Now) {
        self.keys.handle_timeout(now);
    }

    fn poll(&mut self) -> Option<Output> {
        let output = self.keys.poll()?;
        let heard = match &output {
            Output::Prepare { view, .. } => Some(Heard::Prepared(view.clone())),
            Output::Keyed { protect, view, access, passed, .. } => {
                let (view, protect) = (Arc::new(view.clone()), Some(protect.clone()));
                let epoch = Arc::new(Epoch { view, protect, access: access.clone() });
                Some(Heard::Keyed { epoch, passed: *passed })
            }
            _ => None,
        };
        if let Some(heard) = heard {
            self.line.lock().unwrap_or_else(PoisonError::into_inner).push(heard);
        }
        Some(output)
    }
}
