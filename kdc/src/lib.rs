//! The shell of a key distribution centre: its folder, its socket, its stand-by, and the local socket by which other
//! processes of the same user register and revoke while it runs. The centre itself is `sealcast_keys::center::kdc`.
//!
//! ```text
//! folder/            0700
//!   secret           0600   the centre's one secret, SC-SECRET-1…; a stand-by has the same file
//!   rows.redb        0600   what was registered and revoked, in rows numbered from 1
//!   control.sock     0600   while it runs
//! ```

#![forbid(unsafe_code)]

pub mod control;
pub mod server;
pub mod standby;
pub mod store;

pub use control::{Centre, Control};
pub use server::{Role, ServeError, Server};
pub use standby::{FeedStatus, StandBy};
pub use store::{Entry, Store, StoreError};
