//! The process of one intrusion-tolerant broker: what stands around the pure parts in `sealcast_broker`.
//!
//! ```text
//! clients ─TLS─▶ gateway ─▶ admission ─▶ order (3f+1 brokers) ─▶ executor ─▶ outlet ─▶ gateway ─▶ clients
//!                              ▲ checks, pool                      │  state in the store, shares released
//!                              └──────── blocks are checked ◀──────┘
//! ```

#![forbid(unsafe_code)]

pub mod outlet;
pub mod shares;

pub use outlet::{Blocks, Outlet};
