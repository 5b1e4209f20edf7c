//! No keys at all: the user asked for `keys=plain`, and nothing is sealed.
//!
//! There is one epoch, which knows nobody but ourselves, and everybody may do everything: what LCM
//! without security offers. Nothing is ever sent, and every message of a key scheme is foreign. Where members order
//! messages together they need to know each other: that is [`PlainGroup`].

mod group;

use std::collections::VecDeque;
use std::sync::Arc;

use sealcast_wire::{
    Access, Change, Domain, Dropped, EpochId, Incarnation, Member, MemberId, Monotonic, Now, Slot, View,
};

pub use self::group::{GROUP_PROPERTIES, PlainGroup, identity};
use crate::{Command, CommandError, Exclusion, HandleError, Input, Keys, Output, Properties, Seal, SealError, Sealed};

/// The machine of `keys=plain`.
pub struct Plain {
    outputs: VecDeque<Output>,
}

impl Plain {
    /// A group of whoever listens; `name` and `incarnation` are ours, for our own view only.
    pub fn new(name: &str, incarnation: Incarnation) -> Plain {
        let me = Member { id: MemberId { cert: Default::default(), incarnation }, name: name.into() };
        let view =
            View::new(None, EpochId { counter: 1, hash: 0 }, [me].into_iter().collect(), Slot(0), Change::Formed);
        Plain { outputs: VecDeque::from([Output::Epoch { view, protect: None, access: Arc::new(Everything) }]) }
    }
}

impl Keys for Plain {
    fn properties(&self) -> Properties {
        Properties::PLAIN
    }

    fn handle(&mut self, _now: Now, input: Input<'_>) -> Result<(), HandleError> {
        match input {
            Input::Command(Command::Leave) => {
                self.outputs.push_back(Output::Excluded { why: Exclusion::Left });
                Ok(())
            }
            Input::Command(_) => Err(CommandError::Unsupported.into()),
            Input::Message { .. } => Err(Dropped::Foreign.into()),
            // Nothing was sent, fetched, sealed or prepared, and nobody is known who could be silent or described.
            Input::Delivered(_)
            | Input::Outcome(..)
            | Input::InForce(_)
            | Input::Passed(_)
            | Input::Ends
            | Input::Fetched(..)
            | Input::PackagesKept(_)
            | Input::Suspected(_)
            | Input::Slow(_)
            | Input::Flushed(..)
            | Input::Up
            | Input::Describe => Ok(()),
        }
    }

    fn seal(&mut self, _message: &Seal<'_>) -> Result<Sealed, SealError> {
        Err(SealError::PerDatagram)
    }

    /// It opens no whole messages.
    fn has_capacity(&self, _bytes: usize) -> bool {
        true
    }

    fn timeout(&self) -> Option<Monotonic> {
        None
    }

    fn handle_timeout(&mut self, _now: Now) {}

    fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

/// Everybody may do everything, and all topics are the whole group's: the rights of a group without any.
#[derive(Clone, Copy, Debug)]
pub struct Everything;

impl Access for Everything {
    fn reads(&self, _: Slot, _: Domain) -> bool {
        true
    }
    fn domain(&self, _topic: &str) -> Option<Domain> {
        Some(Domain::GROUP)
    }

    fn may_publish(&self, _slot: Slot, _topic: &str) -> bool {
        true
    }

    fn may_subscribe(&self, _slot: Slot, _topic: &str) -> bool {
        true
    }

    fn must_sign(&self, _topic: &str) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use sealcast_wire::{Address, Source};

    use super::*;

    #[test]
    fn plain_installs_one_epoch_without_a_capability_and_says_nothing() {
        let mut plain = Plain::new("robot7", Incarnation([7; 16]));
        let Some(Output::Epoch { view, protect, access }) = plain.poll() else { panic!("no epoch") };
        assert_eq!((view.members.len(), view.me, protect.is_none()), (1, Slot(0), true));
        assert!(access.may_publish(Slot(9), "pose/robot7") && !access.must_sign("pose/robot7"));
        assert!(plain.poll().is_none() && plain.timeout().is_none());
    }

    #[test]
    fn plain_refuses_what_it_has_not() {
        let now = Now { monotonic: Monotonic(0), utc: None };
        let mut plain = Plain::new("robot7", Incarnation([7; 16]));
        assert_eq!(plain.handle(now, Input::Command(Command::Rotate)), Err(CommandError::Unsupported.into()));
        let heard = plain
            .handle(now, Input::Message { source: &Source::Outside(Address::Node(1)), position: None, bytes: b"JOIN" });
        assert_eq!(heard, Err(HandleError::Dropped(Dropped::Foreign)));
    }
}
