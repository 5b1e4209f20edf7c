//! The process of one intrusion-tolerant broker: what stands around the pure parts in `sealcast_broker`.
//!
//! ```text
//! clients ─TLS─▶ gateway ─▶ admission ─▶ order (3f+1 brokers) ─▶ executor ─▶ outlet ─▶ gateway ─▶ clients
//!                              ▲ checks, pool                      │  state in the store, shares released
//!                              └──────── blocks are checked ◀──────┘
//! ```

#![forbid(unsafe_code)]

pub mod admission;
mod cache;
pub mod channel;
pub mod code;
pub mod config;
pub mod control;
pub mod deal;
pub mod descriptors;
mod dkg;
pub mod drops;
pub mod ending;
pub mod evidence;
pub mod executor;
pub mod failure;
#[cfg(test)]
mod fixture;
pub mod gateway;
pub mod log;
pub mod metrics;
pub mod neighbours;
pub mod outlet;
pub mod release;
pub mod serve;
pub mod shares;
pub mod store;
pub mod sync;

pub use executor::{Executor, Setup, ShareOn, StartError};
pub use outlet::{Blocks, Outlet};
pub use release::KeyWithShare;
