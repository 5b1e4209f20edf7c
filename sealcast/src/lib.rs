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
//! | to publish from a control loop, without waiting | [`Session::try_publish`], [`Session::try_publish_as`] |
//! | to know that a message has its place in an order | [`Published`], [`Ticket`] |
//! | who is in the group | [`Session::view`], [`Session::views`] |
//! | to evict a member, or to change the key | [`Session::evict`], [`Session::rotate`] |
//! | to let devices in that wait | [`Session::pending`], [`Session::admit`] |
//! | reads, receipts and policies at brokers | [`Session::brokers`], [`brokers`] |
//! | what an error means, and what helps | [`Error`], [`Code`], [`Remedy`] |
//!
//! What takes time can be awaited on any runtime, or waited for with `.wait()`. Programs to begin with lie in `examples`:
//! `robot`, `chat`, `control_loop`, `market`. Keys, certificates and contexts are made by the program `sealcast`.
//!
//! | feature | what it adds |
//! |---|---|
//! | `lan` (default) | `udpm:`, UDP multicast |
//! | `brokers` | `quorum:`, `keys=threshold` and [`Session::brokers`]: TLS, threshold cryptography, the brokers' client |
//! | `relay` | `mqtt:` and `mqtts:`: MQTT, a directory over HTTP, groups of MLS |
//!
//! A URL of a transport that a program was built without is refused by name. `mem:` is always there.

#![forbid(unsafe_code)]

#[cfg(feature = "brokers")]
pub mod brokers;
#[doc(hidden)]
pub mod code;
#[doc(hidden)]
pub mod config;
#[doc(hidden)]
pub mod control;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod group;
#[doc(hidden)]
pub mod io;
#[cfg(feature = "brokers")]
mod refusals;
#[cfg(feature = "relay")]
pub mod relay;
mod remedy;
#[doc(hidden)]
pub mod session;
pub mod url;

pub use code::{Class, Code};
pub use config::{FileError, Home, KeptIdentity};
pub use error::{Error, Result};
pub use group::{Message, Origin, ViewEvent};
pub use remedy::Remedy;
#[cfg(feature = "brokers")]
pub use session::BrokersInfo;
pub use session::{
    Admission, Call, Identity, Info, LogEntry, LogEvent, Opened, Opening, Publish, Published, Publishing, Replica,
    Report, Session, SlowReader, State, Stats, Step, Subscribe, Subscribing, Subscription, Ticket, TryPublishError,
    Views, Warning, Who, open,
};
pub use url::{
    Cipher, Credentials, DataForm, HandshakeForm, Join, Options, OriginMode, Scheme, SlowMember, TransportAddress, Url,
};

#[doc(inline)]
pub use sealcast_crypto::identity::Identity as LoadedIdentity;
#[doc(inline)]
pub use sealcast_keys::{
    CompartmentStatus, Exclusion, MemberStatus, Misbehaviour, NotAdmitted, Notice, PendingStatus, Status,
};
#[doc(inline)]
pub use sealcast_wire::{CertHash, Drops, EpochId, Guarantee, Member, MemberId, Slot, View};
