//! Any keys over any delivery: what users import.
//!
//! [`open`] a session by URL, then [`Session::publish`] and [`Session::subscribe`]; see [`session`].

#![forbid(unsafe_code)]

pub mod brokers;
pub mod code;
pub mod config;
pub mod control;
pub mod error;
pub mod group;
pub mod io;
mod refusals;
pub mod session;
pub mod url;

pub use code::{Class, Code};
pub use error::{Error, Result};
pub use group::{Message, Origin, ViewEvent};
pub use session::{Session, SlowReader, Subscription, Views, open};
pub use url::{OriginMode, Url};
