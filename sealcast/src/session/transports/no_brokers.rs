//! Where brokers would be, in a program without them (feature `brokers`): values that cannot exist.

use mio::Registry;
use sealcast_wire::Now;

use super::Transport;
use crate::error::Result;

/// What is needed to reach brokers.
pub(in crate::session) enum Reach {}

/// The shell around a client of brokers.
pub(crate) enum BrokersShell {}

pub(super) fn open(reach: Reach, _now: Now, _registry: &Registry) -> Result<Transport> {
    match reach {}
}
