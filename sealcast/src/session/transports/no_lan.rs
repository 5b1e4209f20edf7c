//! Where multicast would be, in a program without it (feature `lan`): values that cannot exist.

use std::net::SocketAddr;

use sealcast_delivery::multicast::Flow;

use super::Transport;
use crate::error::{Error, Result};
use crate::group::{Publication, PublishError};
use crate::io::clock::Clock;
use crate::url::Url;

/// Publishers' threads send through it.
pub(in crate::session) enum TxQueue {}

/// A receiving socket that can be made deaf to our own datagrams.
pub(in crate::session) enum LoopbackSocket {}

/// No URL of it was read.
pub(super) fn open(_group: SocketAddr, _ordered: bool, _url: &Url, _clock: Clock) -> Result<Transport> {
    Err(Error::closed())
}

impl TxQueue {
    pub(in crate::session) fn publish(
        &self,
        _message: &Publication<'_>,
        _patient: bool,
        _before: impl FnOnce(),
    ) -> std::result::Result<Option<u64>, PublishError> {
        match *self {}
    }

    pub(in crate::session) fn take_unwatched(&self) -> bool {
        match *self {}
    }

    pub(in crate::session) fn flow(&self) -> Option<Flow> {
        match *self {}
    }

    pub(in crate::session) fn flush(&self) {
        match *self {}
    }

    pub(in crate::session) fn run_flusher(&self, _sent: impl Fn()) {
        match *self {}
    }

    pub(in crate::session) fn close(&self) {
        match *self {}
    }

    pub(in crate::session) fn sent_datagrams(&self) -> u64 {
        match *self {}
    }

    pub(in crate::session) fn failed_sends(&self) -> u64 {
        match *self {}
    }
}

impl LoopbackSocket {
    pub(in crate::session) fn hear_own(&mut self, _hear: bool) {
        match *self {}
    }
}
