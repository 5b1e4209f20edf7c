//! One intrusion-tolerant broker (Chios): what it executes, and by which rules it releases publications.
//!
//! | module | what | source |
//! |---|---|---|
//! | [`expression`] | the text and bytes of conditions: `a = b and (c or not d)` | – |
//! | [`access`] | conditions on attributes, which decide who may read | Chios III-A; E3 |
//! | [`cluster_file`] | what clients and brokers know of a cluster before they speak | E11 |
//! | [`contradiction`] | proofs that a broker signed another outcome of a block | E4 |
//! | [`genesis`] | what a cluster begins with | E3, E11 |
//! | [`operation`] | what clients ask, and the batches they sign | Chios III-A; S9–S11, E6, E10 |
//! | [`protocol`] | what clients and brokers say to each other | E1, E9 |
//! | [`receipt`] | proofs of what was executed, to be checked offline | E1 |
//! | [`state`] | executes ordered blocks: numbers, releases, roots | Chios IV; E1–E3, E6, E9, E10 |
//!
//! Everything here is pure: no sockets, files, threads, clocks or randomness.

#![forbid(unsafe_code)]

pub mod access;
pub mod cluster_file;
pub mod contradiction;
pub mod expression;
#[cfg(test)]
mod fixture;
pub mod genesis;
#[cfg(test)]
mod golden;
pub mod operation;
pub mod protocol;
pub mod receipt;
pub mod state;
