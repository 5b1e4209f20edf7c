//! No keys yet: nothing can be sent or heard until the brokers know us.

use sealcast_keys::{CommandError, HandleError, Input, Keys, Output, Properties, Seal, SealError, Sealed};
use sealcast_wire::{Dropped, Monotonic, Now};

/// See the module.
pub(super) struct Waiting;

impl Keys for Waiting {
    fn properties(&self) -> Properties {
        Properties::ANY
    }

    fn handle(&mut self, _: Now, input: Input<'_>) -> std::result::Result<(), HandleError> {
        match input {
            Input::Message { .. } => Err(Dropped::NoKey.into()),
            Input::Command(_) => Err(CommandError::NotReady.into()),
            Input::Delivered(_)
            | Input::Outcome(..)
            | Input::InForce(_)
            | Input::Fetched(..)
            | Input::Suspected(_)
            | Input::Flushed(_)
            | Input::Up
            | Input::Describe => Ok(()),
        }
    }

    fn seal(&mut self, _: &Seal<'_>) -> std::result::Result<Sealed, SealError> {
        Err(SealError::NotReady)
    }

    /// What comes before its keys waits for them.
    fn has_room(&self, _: usize) -> bool {
        false
    }

    fn timeout(&self) -> Option<Monotonic> {
        None
    }

    fn handle_timeout(&mut self, _: Now) {}

    fn poll(&mut self) -> Option<Output> {
        None
    }
}
