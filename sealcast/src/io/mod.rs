//! The library's only sockets, clocks, files of records and randomness.

#[cfg(feature = "brokers")]
pub mod channel;
pub mod clock;
pub(crate) mod process;
pub mod rng;
pub mod store;
#[cfg(feature = "lan")]
pub mod udp;
