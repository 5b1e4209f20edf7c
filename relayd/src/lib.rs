//! The program `sealcast-relay`: the shell around a relay's directory ([`sealcast_relay`]).
//!
//! ```text
//! members ── HTTP(S), POST /v1 ──▶ connections ▶ api ──▶ writer ──▶ rows (fjall)
//!                                                 ◀─ responses ─┤    one durable commit for all requests of a batch (G6)
//!                                                               └─▶ announcer ── MQTT, QoS 1 ──▶ broker ──▶ members
//! ```
//! Sockets, files, threads and clocks are here; all judgement is in the pure crate. The MQTT broker is another program, which
//! this one starts unless there is one already: it is as little trusted as this one.
//!
//! | module | what |
//! |---|---|
//! | [`serve`] | puts the parts together, and takes them apart in order |
//! | [`connections`] | sockets of clients: how many, for how long, with TLS or without |
//! | [`api`] | what is served over HTTP |
//! | [`writer`] | the thread that owns the directory and its rows |
//! | [`rows`] | rows on disk |
//! | [`folder`] | the data folder: lock, format, receipt key |
//! | [`announcer`] | what the directory accepted, to the MQTT broker |
//! | [`mqtt`] | where the broker is |
//! | [`mosquitto`] | a broker of the relay's own |
//! | [`tls`] | certificate and key from files |
//! | [`budget`] | bytes that requests and responses may take |
//! | [`metrics`] | figures for Prometheus |
//! | [`log`], [`failure`] | what is said to people |
//! | [`limits`] | sizes and times |

#![forbid(unsafe_code)]

pub mod announcer;
pub mod api;
pub mod budget;
pub mod connections;
pub mod failure;
pub mod folder;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod mosquitto;
pub mod mqtt;
pub mod rows;
pub mod serve;
pub mod tls;
pub mod writer;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. What a thread that panicked left is whole: no change under our locks can be half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
