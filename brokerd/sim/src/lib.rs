//! Whole brokers and their clients in one deterministic simulation: the real engine on its deterministic runtime, the
//! real admission, executor and release above it, the real client machines below, one seed for all of it.
//!
//! ```text
//! publishers, readers ── the brokers' client + keys::threshold                       Byzantine clients: by name
//!        │ messages with delays, channels that break                                 │
//!        ▼                                                                            ▼
//! brokers ── admission ▶ engine ▶ executor ▶ release, stepped; rows in memory    liars: by name
//!        │ everything that happens is an Event
//!        ▼
//! checkers, one for each promise (Chios III-A)
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`fixture`] | who takes part, with all keys; what is published |
//! | [`broker`] | one broker: what its process holds, without sockets, files and threads |
//! | [`liar`] | brokers that misbehave, by name |
//! | [`joiner`] | a broker that lost its folder asks the others |
//! | [`client`] | one correct client |
//! | [`member`] | a member of a group with any of the key schemes: the core of a session |
//! | [`byzantine_client`] | clients that misbehave, by name |
//! | [`simulation`] | time, messages, faults: all of it at work |
//! | [`event`], [`checkers`] | what is seen, and whether it is as promised |
//! | [`scenario`] | what is played, by name |

#![forbid(unsafe_code)]

pub mod broker;
pub mod byzantine_client;
pub mod checkers;
pub mod client;
pub mod event;
pub mod fixture;
#[cfg(test)]
mod games;
pub mod joiner;
pub mod liar;
pub mod member;
pub mod scenario;
pub mod simulation;
#[cfg(test)]
mod tests;
