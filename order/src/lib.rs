//! One total order: among 3f+1 brokers of which f may do anything, or at one broker alone.
//!
//! The crate orders batches, bytes that it never reads, in blocks. Whoever uses it implements `Application` (a pool of
//! batches to draw from, a verdict on each block, a taker of ordered blocks) and holds an `Order`:
//! - `engine::Engine`, Byzantine agreement by commonware's simplex and marshal; we write no consensus ourselves;
//! - `solo::Solo`, one unreplicated broker with a log: the paper's Chios-Solo, and the baseline of every figure.
//!
//! # What the order promises
//! All honest brokers deliver the same blocks at the same heights; a block is delivered only when it is final and
//! durable, again after a crash if it was not acknowledged, and never if the application's predicate refused it at
//! the honest brokers. A batch handed to an honest broker is ordered once the links deliver and the leaders are
//! honest: a leader can ignore what is forwarded to it for one term (`Settings::term`), no longer. A batch may be
//! ordered twice, and it is the application's numbers per client that make the second one void.
//!
//! # Upstream, and how to take its next version
//! All `commonware-*` crates are pinned to one version (`=2026.10.0`): their interfaces change with each monthly
//! release, while formats on disk and on the wire are kept, with a path to migrate, for what upstream calls BETA.
//! BETA are: simplex, marshal's core, the links, the archives, the runtime. ALPHA are `consensus::Application` and
//! `marshal::standard::Inline`, used in `engine/alpha.rs` alone, and the simulated links, used by tests alone.
//! To upgrade: read upstream's changelog for formats, raise all pins together, let `alpha.rs`, `stack.rs` and
//! `engine/mod.rs` compile, run this crate's tests, then start a broker on a folder written by the old version.
//! Going back is a path of its own: 2026.9 cannot read archives that a newer version has written.
//!
//! The engine is instantiated for its runtime in this crate, so that callers never compile it again: `Engine` and
//! everything else public here is free of type parameters.

mod application;
mod block;
pub mod engine;
mod order;
pub mod pool;
pub mod solo;
#[cfg(test)]
mod testing;

pub use application::{Ack, Application, Delivered, Origin};
pub use block::{Batch, Block, BlockSize, HEADER_BYTES, Hash, LENGTH_BYTES, Malformed, Parent};
pub use order::{Evidence, Fault, Later, Misbehaviour, Order, Peer, Refused, StartCertificate, Status};
