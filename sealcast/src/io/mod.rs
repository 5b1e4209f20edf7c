//! The library's only sockets, clocks, files of records and randomness.

#[cfg(feature = "brokers")]
pub mod channel;
pub mod clock;
#[cfg(feature = "relay")]
pub(crate) mod directory;
mod disk;
#[cfg(feature = "relay")]
pub(crate) mod mqtt;
pub(crate) mod process;
pub mod rng;
pub mod store;
#[cfg(feature = "relay")]
pub(crate) mod tls_roots;
#[cfg(feature = "lan")]
pub mod udp;
