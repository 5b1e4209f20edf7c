//! LSGC's figures, and what its text leaves open.
//!
//! Source: McDaniel, Honeyman and Prakash, "Lightweight Secure Group Communication" (1998). Changes of a group and of its key
//! are played with `keys=center` in the deterministic simulator: a virtual clock counts what the network and the protocol take,
//! and no computing. Throughput is measured between processes.

mod changes;
mod group;
mod nak;
mod throughput;
mod transition;

pub(super) use changes::run as changes;
pub(super) use nak::run as nak;
pub(super) use throughput::{fig3, fig5};
pub(super) use transition::run as transition;
