//! How the brokers come to hold shares of one key ([`sealcast_crypto::tdh2`]), and how each keeps its own.
//!
//! | file | what |
//! |---|---|
//! | `dealer` | somebody trusted deals the shares |
//! | `ceremony`, `word` | the brokers make the key among themselves, by words in their order (E8) |
//! | `feldman` | verifiable secret sharing, by `frost-core`: the bridge by bytes, since its curve types are of other versions |
//! | `file` | shares and seeds on disk, under a file key that is overwritten when they are to be gone (E7) |
//!
//! Broker b (from 0) holds share b + 1.

pub mod ceremony;
pub mod dealer;
mod feldman;
#[cfg(test)]
mod testing;
mod word;

pub use ceremony::{Ceremony, Event, Failure, Fault, Made, Setup, SetupError};
pub use dealer::{DealError, deal};
pub use feldman::Suite;
