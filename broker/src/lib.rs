//! One intrusion-tolerant broker (Chios): what it executes, and by which rules it releases publications.
//!
//! | module | what | source |
//! |---|---|---|
//! | [`expression`] | the text and bytes of conditions: `a = b and (c or not d)` | – |
//! | [`access`] | conditions on attributes, which decide who may read | Chios III-A; E3 |
//!
//! Everything here is pure: no sockets, files, threads, clocks or randomness.

#![forbid(unsafe_code)]

pub mod access;
pub mod expression;
