//! The process of one intrusion-tolerant broker: what stands around the pure parts in `sealcast_broker`.
//!
//! ```text
//! clients ─TLS─▶ gateway ─▶ admission ─▶ order (3f+1 brokers) ─▶ executor ─▶ outlet ─▶ gateway ─▶ clients
//!                              ▲ checks, pool                      │  state in the store, shares released
//!                              └──────── blocks are checked ◀──────┘
//! ```

#![forbid(unsafe_code)]

pub mod admission;
pub mod channel;
pub mod drops;
pub mod gateway;
pub mod log;
pub mod outlet;
pub mod shares;
pub mod tls;

pub use outlet::{Blocks, Outlet};
