//! One total order: among 3f+1 brokers of which f may do anything, or at one broker alone.
//!
//! The crate orders batches, bytes that it never reads, in blocks. Whoever uses it implements `Application` (a pool of
//! batches to draw from, a verdict on each block, a taker of ordered blocks) and holds an `Order`:
//! - `consensus::Consensus` starts it among brokers. `sealcast-order-engine` implements it by commonware's simplex and marshal:
//!   we write no consensus ourselves, and programs alone link it;
//! - `solo::Solo`, one unreplicated broker with a log: the paper's Chios-Solo, and the baseline of every figure.
//!
//! # What the order promises
//! All honest brokers deliver the same blocks at the same heights; a block is delivered only when it is final and
//! durable, again after a crash if it was not acknowledged, and never if the application's predicate refused it at
//! the honest brokers. A batch handed to an honest broker is ordered once the links deliver and the leaders are
//! honest: a leader can ignore what is forwarded to it for one term (`consensus::Settings::term`), no longer. A batch may be
//! ordered twice, and it is the application's numbers per client that make the second one void.

mod application;
mod block;
pub mod consensus;
mod order;
pub mod pool;
pub mod solo;

pub use application::{Ack, Application, Delivered, Origin};
pub use block::{Batch, Block, BlockSize, HEADER_BYTES, Hash, LENGTH_BYTES, Malformed, Parent};
pub use order::{Evidence, Fault, Later, Misbehaviour, Order, Peer, Refused, StartCertificate, Status};
