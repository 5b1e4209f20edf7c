//! What a broker keeps, and how one that lacks it gets it.
//!
//! ```text
//! executor ─ every CHECKPOINT_BLOCKS ─▶ retention ─▶ snapshots/ ─▶ floor raised, rows and old blocks pruned
//!
//! start ─▶ join: own height ≥ what others still have? ─ yes ─▶ the order fetches blocks from them, and all are executed
//!                     └ no ─▶ a snapshot, believed by f + 1 signatures (E1) ─▶ state/, then the order from its start on
//! ```
//!
//! | file | what |
//! |---|---|
//! | `file` | snapshots as files, or in memory |
//! | `retention` | when one is taken, and what is pruned |
//! | `history` | what other brokers are told |
//! | `peers` | asking them |
//! | `join` | beginning with a snapshot, in folders or, for simulations, in memory |
//! | `votes` | when a broker that lost its journal may vote again |
//!
//! *The order's folder lost.* The engine's journal says what a broker voted for. One that comes back without it could vote
//! twice in a view that is not over; it counts among the f faulty ones until it has caught up, and it does not begin at a
//! floor before the others are past all that it may have voted for.

mod file;
mod history;
mod join;
mod peers;
mod retention;
#[cfg(test)]
mod tests;
mod votes;

pub use file::Snapshots;
pub use join::{Joined, join};
pub use peers::{Others, Source};
pub use retention::{Keep, NotKept};
pub use votes::Forgotten;

pub(crate) use join::{JoinFolders, height_in, prepare};
pub(crate) use peers::{Peers, is_left_behind};
pub(crate) use retention::{Retention, Setup};
pub(crate) use votes::Votes;
