//! Publish and subscribe in a group that trusts neither the network nor the machines in between.
//!
//! One URL says which transport carries the messages and who holds the keys. [`open`] it, then [`Session::publish`] and
//! [`Session::subscribe`]:
//!
//! ```
//! let session = sealcast::open("mem:tour?keys=plain").wait()?;
//! let mut poses = session.subscribe("pose/+").wait()?;
//! session.publish("pose/robot7", [1, 2, 3]).wait()?;
//! let message = poses.wait()?;
//! assert_eq!((message.topic(), message.payload()), ("pose/robot7", &[1, 2, 3][..]));
//! # Ok::<(), sealcast::Error>(())
//! ```
//!
//! | you want | see |
//! |---|---|
//! | a URL: transports, keys, options | [`Url`] |
//! | who sent a message, as far as that is proved | [`Message::origin`] |
//! | to publish from a control loop, without waiting | [`Session::try_publish`] |
//! | to know that a message has its place in an order | [`Published`], [`Ticket`] |
//! | who is in the group | [`Session::view`], [`Session::views`] |
//! | to evict a member, or to change the key | [`Session::evict`], [`Session::rotate`] |
//! | reads, receipts and policies at brokers | [`Session::brokers`], [`brokers`] |
//! | what an error means | [`Error`], [`Code`] |
//!
//! What takes time can be awaited on any runtime, or waited for with `.wait()`. Programs to begin with lie in `examples`:
//! `robot`, `chat`, `control_loop`. Keys, certificates and contexts are made by the program `sealcast`.

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
pub use session::{Published, Session, SlowReader, Subscription, Ticket, TryPublishError, Views, open};
pub use url::{OriginMode, Url};
