//! Messaging Layer Security (RFC 9420): `keys=mls`, and the engine that computes group states, behind one trait.
//!
//! [`Mls`] is a member of a group over an order; [`engine`] says what an engine does, in plain types; [`judge`] who may be in
//! a group and change it, and [`certificates`] answers that by an authority's certificates. The first engine is `mls-rs`,
//! over this project's own cryptography. It is the named exception to purity: it sums on several threads and asks the wall
//! clock, though it uses neither answer where the caller gives the time, as this crate always does.

mod access;
mod admitting;
mod astray;
mod body;
pub mod certificates;
mod committing;
mod complaining;
mod complaints;
pub mod engine;
mod excluded;
mod following;
mod joining;
mod journal;
pub mod judge;
mod mark;
mod message;
#[cfg(any(test, feature = "misbehaving"))]
pub mod misbehaving;
mod packages;
mod people;
mod posted;
mod private_message;
mod records;
mod scheme;
mod sharing;
#[cfg(test)]
mod tests;

pub use excluded::statements;
pub use records::position;
pub use scheme::{Config, ConfigError, Mls, PROPERTIES};
