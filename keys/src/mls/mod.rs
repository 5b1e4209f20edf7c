//! Messaging Layer Security (RFC 9420): the engine that computes group states, behind one trait.
//!
//! [`engine`] says what an engine does, in plain types; [`judge`] who may be in a group and change it. The first engine is
//! `mls-rs`, over this project's own cryptography. It is the named exception to purity: it sums on several threads and
//! asks the wall clock, though it uses neither answer where the caller gives the time, as this crate always does.

pub mod engine;
pub mod judge;
