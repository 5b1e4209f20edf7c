//! The library's only sockets, clocks, files of records and randomness.

pub mod channel;
pub mod clock;
pub(crate) mod process;
pub mod rng;
pub mod store;
pub mod udp;
