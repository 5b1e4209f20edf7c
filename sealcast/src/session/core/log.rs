//! What happened in a group since we are in it.

use std::collections::VecDeque;

use sealcast_keys::Notice;
use sealcast_wire::{Monotonic, limits};

use crate::group::ViewEvent;

/// The newest events, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Log(VecDeque<(Monotonic, LogEvent)>);

/// What happened in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogEvent {
    /// The membership changed.
    View(ViewEvent),
    /// Something worth telling the operator.
    Notice {
        /// What.
        notice: Notice,
        /// The name of the member that it is about, if it is known; with the beginning of the certificate's hash where several
        /// have it.
        about: Option<String>,
    },
}

impl Log {
    pub(super) fn note(&mut self, at: Monotonic, event: LogEvent) {
        if self.0.len() >= limits::LOG_ENTRIES_MAX {
            self.0.pop_front();
        }
        self.0.push_back((at, event));
    }

    /// The events, with their times.
    pub fn iter(&self) -> impl Iterator<Item = &(Monotonic, LogEvent)> {
        self.0.iter()
    }
}
