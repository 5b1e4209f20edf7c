//! A key scheme that is listened to: every epoch that it hands out is seen by the checkers as well.
//!
//! What they get is the capability, as the group gets it; no key byte leaves the scheme.

use std::sync::{Arc, Mutex, PoisonError};

use sealcast::group::Epoch;
use sealcast_keys::{
    Command, CommandError, Delivered, FetchId, Fetched, HandleError, Keys, Outcome, Output, Seal, SealError, Sealed,
    Token,
};
use sealcast_wire::{Agreement, Guarantee, Lane, Monotonic, Now, Slot, Source, View};

/// What a key scheme said to its group, and the group does not show.
#[derive(Clone)]
pub enum Heard {
    /// A change is coming.
    Prepared(View),
    /// A key is agreed.
    Keyed(Arc<Epoch>),
}

/// Where a tap's news arrive.
pub type Line = Arc<Mutex<Vec<Heard>>>;

/// A scheme with a line to the checkers.
pub struct Tap<K> {
    keys: K,
    line: Line,
}

impl<K: Keys> Tap<K> {
    /// Listens to a scheme.
    pub fn new(keys: K) -> (Tap<K>, Line) {
        let line = Line::default();
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
    fn needs(&self, lane: Lane) -> (Guarantee, Agreement) {
        self.keys.needs(lane)
    }
    fn handle(&mut self, now: Now, source: &Source, message: &[u8]) -> Result<(), HandleError> {
        self.keys.handle(now, source, message)
    }
    fn command(&mut self, now: Now, command: Command) -> Result<(), CommandError> {
        self.keys.command(now, command)
    }
    fn seal(&mut self, message: &Seal<'_>) -> Result<Sealed, SealError> {
        self.keys.seal(message)
    }
    fn open(&mut self, now: Now, message: Delivered<'_>) {
        self.keys.open(now, message);
    }
    fn has_room(&self, bytes: usize) -> bool {
        self.keys.has_room(bytes)
    }
    fn outcome(&mut self, now: Now, token: Token, outcome: Outcome) {
        self.keys.outcome(now, token, outcome);
    }
    fn fetched(&mut self, now: Now, id: FetchId, result: Fetched) {
        self.keys.fetched(now, id, result);
    }
    fn suspect(&mut self, now: Now, slot: Slot) {
        self.keys.suspect(now, slot);
    }
    fn flushed(&mut self, now: Now, cut: [u8; 32]) {
        self.keys.flushed(now, cut);
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
            Output::Prepare(view) => Some(Heard::Prepared(view.clone())),
            Output::Keyed { protect, view, access, .. } => Some(Heard::Keyed(Arc::new(Epoch {
                view: Arc::new(view.clone()),
                protect: Some(protect.clone()),
                access: access.clone(),
            }))),
            _ => None,
        };
        if let Some(heard) = heard {
            self.line.lock().unwrap_or_else(PoisonError::into_inner).push(heard);
        }
        Some(output)
    }
}
